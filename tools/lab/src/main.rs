// SPDX-License-Identifier: GPL-2.0

//! The lab's program: what `make` runs inside the root.

use anyhow::Result;
use clap::error::ContextKind;
use clap::{Args, Parser, Subcommand};
use lab::cmd;
use lab::layout::Layout;
use lab::machine::{Kernel, Lane};
use lab::step;
use std::path::PathBuf;
use std::process::ExitCode;

/// Builds kernels and the ipoib_rs module, boots hosts, and runs tests on them.
#[derive(Parser)]
#[command(name = "make", bin_name = "make", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

/// Which lanes and kernels.
#[derive(Args)]
struct Where {
    /// Only this lane.
    #[arg(long, env = "LAB_ARG_LANE")]
    lane: Option<Lane>,
    /// Only this kernel.
    #[arg(long, env = "LAB_ARG_KERNEL")]
    kernel: Option<Kernel>,
}

#[derive(Subcommand)]
enum Verb {
    /// Two hosts, two kernels, ib0 on both: shows that they talk.
    Demo,
    /// Unit tests, lint, and scenarios.
    Test {
        /// This lane, or all of them (default: uml).
        #[arg(long, env = "LAB_ARG_LANE")]
        lane: Option<cmd::test::Lanes>,
        /// Only this kernel.
        #[arg(long, env = "LAB_ARG_KERNEL")]
        kernel: Option<Kernel>,
        /// Only scenarios whose name contains this, and nothing else.
        #[arg(long, env = "LAB_ARG_FILTER")]
        filter: Option<String>,
    },
    /// The KUnit suites, in a virtual machine with soft-RoCE.
    Kunit {
        #[command(flatten)]
        wherever: Where,
    },
    /// Measures against the kernel's own C driver.
    Bench {
        #[command(flatten)]
        options: lab::bench::Options,
    },
    /// One page in HTML of all measurements.
    Report,
    /// The Debian packages.
    Deb,
    /// The lab's kernels.
    Kernel {
        #[command(flatten)]
        wherever: Where,
    },
    /// An interactive host with ib0 up, and a neighbour.
    Shell,
    /// Formatting, lints, licences.
    Lint,
    /// Check that the tests notice changes of the protocol rules, or of the driver's hot path.
    Mutants {
        /// "driver", or only changes of the hot path whose names contain this.
        #[arg(long, env = "LAB_ARG_FILTER")]
        filter: Option<String>,
        /// Only every so many-th change.
        #[arg(long, env = "LAB_ARG_SHARD")]
        shard: Option<cmd::mutants::Shard>,
    },
    /// Run the KUnit suites in the staged modules, for make mutants.
    #[command(hide = true)]
    Suites,
    /// Give the fuzz targets inputs that reach more and more of their code.
    Fuzz {
        /// For this time altogether.
        #[arg(long = "for", env = "LAB_ARG_FOR", default_value = "10m")]
        time: cmd::fuzz::Time,
        /// Only targets whose name contains this.
        #[arg(long, env = "LAB_ARG_FILTER")]
        filter: Option<String>,
        /// Only this input, once.
        #[arg(long, env = "LAB_ARG_INPUT")]
        input: Option<PathBuf>,
    },
    /// Play histories in simulated time.
    Sim {
        /// Range of seeds.
        #[arg(long, env = "LAB_ARG_SEEDS", conflicts_with_all = ["seed", "input", "time"])]
        seeds: Option<cmd::sim::Seeds>,
        /// One seed, with a trace of its packets.
        #[arg(long, env = "LAB_ARG_SEED", conflicts_with_all = ["input", "time"])]
        seed: Option<u64>,
        /// Time to play for.
        #[arg(long = "for", env = "LAB_ARG_FOR", conflicts_with = "input")]
        time: Option<cmd::fuzz::Time>,
        /// File with a plan.
        #[arg(long, env = "LAB_ARG_INPUT")]
        input: Option<PathBuf>,
        /// Kernel: base or sim-debug.
        #[arg(long, env = "LAB_ARG_KERNEL")]
        kernel: Option<Kernel>,
        /// Name of a change that is made in the driver, as make mutants tells it, or a part of it.
        #[arg(long, env = "LAB_ARG_MUTANT")]
        mutant: Option<String>,
        /// Tell which lines of the driver are reached.
        #[arg(long, env = "LAB_ARG_COVER", value_parser = clap::builder::FalseyValueParser::new())]
        cover: bool,
    },
    /// Compile the modules with other configurations and for another architecture.
    Configs {
        /// Only configurations whose name contains this.
        #[arg(long, env = "LAB_ARG_FILTER")]
        filter: Option<String>,
    },
    /// Remove what was built from this checkout.
    Clean,
    /// Link the driver into a kernel tree.
    Overlay {
        /// The kernel tree.
        #[arg(long, env = "LAB_ARG_KDIR")]
        kdir: PathBuf,
    },
    /// List of the targets.
    Help,
}

fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|e| match wrong_value(&e) {
        Some(sentence) => fail(&sentence),
        None => e.exit(),
    });
    let result = Layout::from_env()
        .and_then(|layout| run(&layout, cli).map_err(|e| step::explain(&layout, e)));
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => fail(&format!("{e:#}")),
    }
}

fn fail(text: &str) -> ! {
    eprintln!("{} {text}", console::style("error:").red().for_stderr());
    std::process::exit(1)
}

/// A value that an argument cannot have, told as the argument was given: to make.
fn wrong_value(error: &clap::Error) -> Option<String> {
    let get = |kind| error.get(kind).map(ToString::to_string);
    let argument = get(ContextKind::InvalidArg)?;
    let name = argument.trim_start_matches('-').split(' ').next()?;
    let name = match name {
        "filter" => "T".to_owned(),
        name => name.to_uppercase(),
    };
    let value = get(ContextKind::InvalidValue)?;
    let valid = get(ContextKind::ValidValue)?;
    Some(format!("{name}={value} is none of {valid}; see make help"))
}

/// Does what a verb asks for. Returns false if tests failed, or too few changes were noticed.
fn run(layout: &Layout, cli: Cli) -> Result<bool> {
    match cli.verb {
        Verb::Demo => cmd::demo::run(layout)?,
        Verb::Test {
            lane,
            kernel,
            filter,
        } => {
            let request = cmd::test::Request {
                lanes: lane,
                kernel,
                filter: filter.as_deref(),
            };
            return cmd::test::run(layout, &request);
        }
        Verb::Kunit { wherever } => return cmd::kunit::run(layout, wherever.lane, wherever.kernel),
        Verb::Bench { options } => lab::bench::run(layout, &options)?,
        Verb::Report => lab::bench::html::write(layout)?,
        Verb::Deb => cmd::build::deb(layout)?,
        Verb::Kernel { wherever } => cmd::build::kernel(layout, wherever.lane, wherever.kernel)?,
        Verb::Shell => cmd::shell::run(layout)?,
        Verb::Lint => return cmd::lint::report(layout),
        Verb::Suites => return cmd::mutants::suites(layout),
        Verb::Mutants { filter, shard } => {
            let filter = filter.filter(|text| !text.is_empty());
            return cmd::mutants::run(layout, filter.as_deref(), shard);
        }
        Verb::Fuzz {
            time,
            filter,
            input,
        } => {
            return match input {
                Some(input) => cmd::fuzz::again(layout, &input),
                None => cmd::fuzz::run(layout, time, filter.as_deref()),
            };
        }
        Verb::Sim {
            seeds,
            seed,
            time,
            input,
            kernel,
            mutant,
            cover,
        } => {
            let request = cmd::sim::Request {
                seeds,
                seed,
                input,
                time,
                kernel,
                mutant: mutant.filter(|text| !text.is_empty()),
                cover,
            };
            return cmd::sim::run(layout, &request);
        }
        Verb::Configs { filter } => cmd::configs::run(layout, filter.as_deref())?,
        Verb::Clean => cmd::clean::run(layout)?,
        Verb::Overlay { kdir } => cmd::overlay::run(layout, &kdir)?,
        Verb::Help => cmd::help::print(),
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_value_is_one_sentence() {
        for (words, sentence) in [
            (
                ["make", "test", "--lane", "x"],
                "LANE=x is none of uml, qemu, all; see make help",
            ),
            (
                ["make", "kernel", "--lane", "all"],
                "LANE=all is none of uml, qemu; see make help",
            ),
        ] {
            let error = Cli::try_parse_from(words).err().expect("refused");
            assert_eq!(wrong_value(&error).as_deref(), Some(sentence));
        }
        let error = Cli::try_parse_from(["make", "test", "--kernel", "x"])
            .err()
            .expect("refused");
        let sentence = wrong_value(&error).expect("a sentence");
        assert!(
            sentence.starts_with("KERNEL=x is none of base, debug"),
            "{sentence}"
        );
        assert!(Cli::try_parse_from(["make", "test", "--lane", "all"]).is_ok());
    }
}
