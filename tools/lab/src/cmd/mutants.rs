// SPDX-License-Identifier: GPL-2.0

//! `make mutants`: changes the code, and counts the changes that the tests notice.
//!
//! cargo-mutants makes one small change of the protocol rules and of the rings after the other and runs their tests each time. First only
//! the unit tests run, which takes a moment and finds most; then all tests run on what they have missed. The module
//! [`mutants`](crate::mutants) does this for the driver's hot path.

use crate::layout::Layout;
use crate::mutants;
pub use crate::mutants::suites;
use crate::step::{Interrupted, Job, directory, print, say};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The last one that the root's compiler compiles.
const VERSION: &str = "26.0.0";
/// The crates whose sources are changed: the protocol's rules, and the rings, which the host tests alone.
const PACKAGES: [&str; 2] = ["--package=ipoib_proto", "--package=ipoib_rings"];
/// Only the kernel compiles it.
const EXCLUDED: &str = "--exclude=**/atomics_kernel.rs";
/// Percentage of the rules' changes that the tests have to notice.
const WANTED: usize = 97;
/// Percentage of the hot path's changes that the tests have to notice.
const WANTED_HOT: usize = 90;
/// Filter that stands for the whole hot path.
const DRIVER: &str = "driver";

/// A part of all changes: every so many-th, from one on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    number: u32,
    of: u32,
}

impl std::str::FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Shard, String> {
        let parse = |(number, of): (&str, &str)| Some((number.parse().ok()?, of.parse().ok()?));
        match text.split_once('/').and_then(parse) {
            Some((number, of)) if number < of => Ok(Shard { number, of }),
            _ => Err("not of the form 0/14".into()),
        }
    }
}

/// Runs changes: those of the protocol rules, or those of the hot path if there is a filter, which is [`DRIVER`] or part of
/// a change's name. Returns true if the tests notice as many as they should.
pub fn run(layout: &Layout, filter: Option<&str>, shard: Option<Shard>) -> Result<bool> {
    let Some(filter) = filter else {
        return rules(layout, shard);
    };
    let part = |n: usize| shard.is_none_or(|s| n % s.of as usize == s.number as usize);
    let part_of_name = (filter != DRIVER).then_some(filter);
    let (killed, survivors) = mutants::run(layout, part_of_name, &part)?;
    let outcome = Outcome { killed, survivors };
    outcome.tell();
    Ok(outcome.percent() >= WANTED_HOT)
}

/// Result of running the tests on changes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    killed: usize,
    survivors: Vec<String>,
}

impl Outcome {
    /// The outcome of a sweep, by cargo-mutants' lists.
    fn of(output: &Path) -> Self {
        let noticed = ["caught.txt", "timeout.txt"];
        Self {
            killed: noticed.iter().map(|name| lines(output, name).len()).sum(),
            survivors: lines(output, "missed.txt"),
        }
    }

    fn percent(&self) -> usize {
        let viable = self.killed + self.survivors.len();
        (self.killed * 100).checked_div(viable).unwrap_or(100)
    }

    fn tell(&self) {
        println!(
            "{} changes noticed, {} not: {}%",
            self.killed,
            self.survivors.len(),
            self.percent()
        );
    }
}

/// Runs all changes of the rules or a shard of them; true if the tests notice as many as they should.
fn rules(layout: &Layout, shard: Option<Shard>) -> Result<bool> {
    let tool = ensure_tool(layout)?;
    let part = shard.map_or("all".to_owned(), |s| format!("{}-of-{}", s.number, s.of));
    let output = layout.build().join("mutants").join(part);
    if output.exists() {
        fs::remove_dir_all(&output).with_context(|| output.display().to_string())?;
    }
    fs::create_dir_all(&output).with_context(|| output.display().to_string())?;
    say("changes that unit tests notice");
    // For the build, too: the other tests take ten times as long to compile.
    let mut arguments = vec!["--cargo-arg=--lib".to_owned()];
    if let Some(Shard { number, of }) = shard {
        arguments.extend([
            "--sharding=round-robin".into(),
            format!("--shard={number}/{of}"),
        ]);
    }
    sweep(layout, &tool, &output, &arguments)?;
    let mut outcome = Outcome::of(&output);
    if !outcome.survivors.is_empty() {
        say("changes that all tests notice");
        // By name: a shard of what is left would be another part of all.
        sweep(layout, &tool, &output, &by_name(&outcome.survivors))?;
        let second = Outcome::of(&output);
        outcome.killed += second.killed;
        outcome.survivors = second.survivors;
    }
    for survivor in &outcome.survivors {
        print(&format!("not noticed: {survivor}"));
    }
    outcome.tell();
    Ok(outcome.percent() >= WANTED)
}

/// cargo-mutants, which the registry has as source only.
fn ensure_tool(layout: &Layout) -> Result<PathBuf> {
    let dir = layout.cache.join(format!("cargo-mutants-{VERSION}"));
    let dir = directory(&dir, Interrupted::Resume, |dir| {
        let what = format!("compile cargo-mutants {VERSION}");
        let hint = "If the registry cannot be reached, see to the network (https_proxy where one is used).";
        Job::new(layout, "cargo-mutants", &what, hint)?.run(
            Command::new("cargo")
                .args(["install", "--locked", "cargo-mutants", "--version", VERSION])
                .arg("--root")
                .arg(dir),
        )
    })?;
    Ok(dir.join("bin/cargo-mutants"))
}

/// Runs cargo-mutants, whose words are the progress.
fn sweep(layout: &Layout, tool: &Path, output: &Path, arguments: &[String]) -> Result<()> {
    let mut command = Command::new(tool);
    command
        .args(["mutants", "--profile", "mutants", EXCLUDED])
        .args(PACKAGES)
        .args(["--no-shuffle", "--output"])
        .arg(output)
        // Each run copies the tree to where there is room, below build/, which is not to be copied as well.
        .args(["--gitignore", "true"])
        .env("TMPDIR", output)
        .current_dir(&layout.checkout);
    let status = command.args(arguments).status().context("cargo-mutants")?;
    // 2: some were not noticed. 3: some took too long.
    ensure!(
        matches!(status.code(), Some(0 | 2 | 3)),
        "cargo-mutants: {status}"
    );
    Ok(())
}

/// Arguments that choose changes by their names.
fn by_name(changes: &[String]) -> Vec<String> {
    let names = changes.iter().map(|change| regex::escape(change));
    names.map(|name| format!("--re=^{name}$")).collect()
}

/// The changes in a list of cargo-mutants'; none if there is no list.
fn lines(output: &Path, name: &str) -> Vec<String> {
    let path = output.join("mutants.out").join(name);
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_parts() {
        assert_eq!("3/14".parse(), Ok(Shard { number: 3, of: 14 }));
        for text in ["", "3", "14/14", "-1/2", "a/b", "1/2/3"] {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
    }

    #[test]
    fn names_are_no_patterns() {
        let change = "a.rs:1:2: replace Table<V>::f -> u8 with *self (1)".to_owned();
        let [argument] = &by_name(std::slice::from_ref(&change))[..] else {
            panic!("one for each");
        };
        let pattern = argument.strip_prefix("--re=").expect("a pattern");
        let pattern = regex::Regex::new(pattern).expect("a valid one");
        assert!(pattern.is_match(&change));
        assert!(!pattern.is_match(&change.replace("1:2", "11:2")));
        assert!(!pattern.is_match(&format!("x{change}")));
    }

    #[test]
    fn percent_of_what_compiles() {
        let outcome = Outcome {
            killed: 193,
            survivors: vec![String::new(); 7],
        };
        assert_eq!(outcome.percent(), 96);
        assert_eq!(Outcome::default().percent(), 100);
    }
}
