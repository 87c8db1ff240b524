// SPDX-License-Identifier: GPL-2.0

//! The lab's program: what `make` runs inside the root.

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use lab::cmd;
use lab::layout::Layout;
use lab::machine::{Kernel, Lane};
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
    /// Every test there is.
    Test {
        #[command(flatten)]
        wherever: Where,
        /// Only scenarios whose name contains this, and nothing else.
        #[arg(long, env = "LAB_ARG_FILTER")]
        filter: Option<String>,
    },
    /// Measures against the kernel's own C driver.
    Bench {
        #[command(flatten)]
        options: lab::bench::Options,
    },
    /// The module for the lab's kernels, or for another one.
    Module {
        /// Build directory of another kernel.
        #[arg(long, env = "LAB_ARG_KDIR")]
        kdir: Option<PathBuf>,
    },
    /// The lab's kernels.
    Kernel {
        #[command(flatten)]
        wherever: Where,
    },
    /// An interactive host with ib0 up, and a neighbour.
    Shell,
    /// Formatting, lints, licences.
    Lint,
    /// Remove what was built from this checkout.
    Clean,
    /// Link the driver into a kernel tree.
    Overlay {
        /// The kernel tree.
        #[arg(long, env = "LAB_ARG_KDIR")]
        kdir: PathBuf,
    },
    /// What there is to make.
    Help,
}

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(e) => {
            eprintln!("\x1b[31merror:\x1b[0m {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode> {
    let cli = Cli::parse();
    let layout = Layout::from_env()?;
    match cli.verb {
        Verb::Demo => cmd::demo::run(&layout)?,
        Verb::Test { wherever, filter } => {
            let all_passed =
                cmd::test::run(&layout, wherever.lane, wherever.kernel, filter.as_deref())?;
            return Ok(if all_passed {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            });
        }
        Verb::Bench { options } => lab::bench::run(&layout, &options)?,
        Verb::Module { kdir } => cmd::build::module(&layout, kdir.as_deref())?,
        Verb::Kernel { wherever } => cmd::build::kernel(&layout, wherever.lane, wherever.kernel)?,
        Verb::Shell => cmd::shell::run(&layout)?,
        Verb::Lint => {
            let all_passed = cmd::lint::report(&layout)?;
            return Ok(if all_passed {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            });
        }
        Verb::Clean => cmd::clean::run(&layout)?,
        Verb::Overlay { kdir } => cmd::overlay::run(&layout, &kdir)?,
        Verb::Help => cmd::help::print(),
    }
    Ok(ExitCode::SUCCESS)
}
