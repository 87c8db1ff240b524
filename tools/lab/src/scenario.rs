// SPDX-License-Identifier: GPL-2.0

//! Scenarios: functions that are tests, one for each lane and kernel that their words choose.

mod places;
mod times;

use crate::bed::Builder;
use crate::history::{self, HISTORIES};
use crate::hollow;
use crate::layout::Layout;
use crate::machine::{Kernel, Lane};
use crate::slots;
use anyhow::{Context, Result, bail};
use libtest_mimic::{Arguments, Failed, Trial};
pub use places::{Places, When, words};
use sim::Plan;
use std::collections::HashSet;
use std::process::ExitCode;
use std::time::Instant;
use times::Times;

/// A scenario as [`scenario!`](crate::scenario) declares it.
pub struct Scenario {
    /// The path of its module, which begins with the name of the crate.
    pub path: &'static str,
    /// The words that choose its lanes and kernels, applied from left to right.
    pub words: &'static [fn(&mut Places)],
    /// Its steps.
    pub body: fn(Builder) -> Result<()>,
}

inventory::collect!(Scenario);

/// A scenario in one place.
struct Test {
    name: String,
    lane: Lane,
    kernel: Kernel,
    infiniband: bool,
    /// Runs only when asked for.
    asked: bool,
    body: Body,
}

/// The body of a test.
enum Body {
    Scenario(fn(Builder) -> Result<()>),
    /// Plays a plan in simulated time.
    History(Plan),
}

impl Test {
    /// Runs it; how long it took is noted in the cache and in a list for people.
    fn run(&self) -> Result<()> {
        let (path, _) = self.name.rsplit_once("::").unwrap_or_default();
        let name = path.replace("::", "-");
        let start = Instant::now();
        let result = match &self.body {
            Body::Scenario(body) => {
                let builder = Builder::new(&name, self.lane, self.kernel);
                let builder = if self.infiniband {
                    builder.infiniband()
                } else {
                    builder
                };
                if hollow::wanted() {
                    hollow::run(&builder, *body)
                } else {
                    body(builder)
                }
            }
            Body::History(plan) => history::test(&name, plan, self.kernel),
        };
        let result = result
            .with_context(|| format!("{name} on the {} lane, {} kernel", self.lane, self.kernel));
        let waited = slots::waited();
        let took = start.elapsed().saturating_sub(waited);
        // With a change of make mutants, it may take any time.
        let is_plain = std::env::var_os("LAB_MUTANT").is_none();
        if let (Ok(layout), true) = (Layout::from_env(), is_plain) {
            times::note(&layout, &self.name, took, waited);
        }
        result
    }
}

/// All scenarios in all places and all histories, by name.
fn tests() -> Result<Vec<Test>> {
    let (lane, kernel) = (Lane::Uml, Kernel::Base);
    let mut tests: Vec<Test> = history::plans(&Layout::from_env()?.checkout)?
        .into_iter()
        .map(|(name, plan)| Test {
            name: format!("{HISTORIES}{name}::{lane}_{kernel}"),
            lane,
            kernel,
            infiniband: false,
            asked: false,
            body: Body::History(plan),
        })
        .collect();
    for scenario in inventory::iter::<Scenario> {
        // The name of the test crate says nothing.
        let path = scenario.path.split_once("::").map_or("", |(_, rest)| rest);
        for (place, when) in Places::of(scenario.words).chosen() {
            tests.push(Test {
                name: format!("{path}::{place}"),
                lane: place.lane,
                kernel: place.kernel,
                infiniband: place.infiniband,
                asked: when == When::Asked,
                body: Body::Scenario(scenario.body),
            });
        }
    }
    tests.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(tests)
}

/// The program with all scenarios. `list` prints their names, one a line, and `asked` behind those that run only when
/// asked for; `run THREADS NAME...` runs some, those first that took longest last time.
pub fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["list"] => tests().map(|tests| {
            for test in tests {
                println!("{}{}", test.name, if test.asked { " asked" } else { "" });
            }
            ExitCode::SUCCESS
        }),
        ["run", threads, ref names @ ..] => run(threads, names),
        _ => {
            eprintln!("scenarios need the lab: make test runs them");
            Ok(ExitCode::SUCCESS)
        }
    };
    result.unwrap_or_else(|error| {
        eprintln!("{error:#}");
        ExitCode::FAILURE
    })
}

/// Runs the tests of these names, so many at once.
fn run(threads: &str, names: &[&str]) -> Result<ExitCode> {
    let wanted: HashSet<&str> = names.iter().copied().collect();
    let mut tests = tests()?;
    tests.retain(|test| wanted.contains(test.name.as_str()));
    if tests.len() < wanted.len() {
        bail!(
            "{} of the scenarios named are none",
            wanted.len() - tests.len()
        );
    }
    let times = Times::load(&Layout::from_env()?.cache);
    // The last ones to begin decide how long processors are idle at the end.
    tests.sort_by_key(|test| std::cmp::Reverse(times.of(&test.name)));
    let trials = tests
        .into_iter()
        .map(|test| {
            Trial::test(test.name.clone(), move || {
                // All causes, and the backtrace if there is one.
                test.run()
                    .map_err(|error| Failed::from(format!("{error:?}")))
            })
        })
        .collect();
    let arguments = Arguments {
        test_threads: Some(threads.parse().context("number of threads")?),
        ..Arguments::default()
    };
    Ok(libtest_mimic::run(&arguments, trials).exit_code())
}

/// Makes a function a scenario: `fn name(bed) { … }` becomes the tests `name::uml_base`, `name::uml_debug`,
/// `name::uml_lockdep`, `name::qemu_base`, `name::qemu_debug`, `name::qemu_kcsan` and `name::qemu_stock`.
///
/// Those that run only when asked for are the base kernel of the uml lane, since `make test` runs a scenario once, and the
/// debug and KCSAN kernels of the qemu lane, where a scenario takes a minute or more. [`words`] in an attribute `#[on(…)]`
/// after the documentation change that, from left to right.
#[macro_export]
macro_rules! scenario {
    ($(#[doc = $doc:literal])* $(#[on($($word:ident),+)])? fn $name:ident($bed:ident) $body:block) => {
        $(#[doc = $doc])*
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            fn body($bed: $crate::bed::Builder) -> ::anyhow::Result<()> $body

            $crate::inventory::submit! {
                $crate::scenario::Scenario {
                    path: module_path!(),
                    words: &[$($($crate::scenario::words::$word),+)?],
                    body,
                }
            }
        }
    };
}
