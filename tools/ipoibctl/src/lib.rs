// SPDX-License-Identifier: GPL-2.0

//! `ipoibctl`: the state of a host's IPoIB interfaces, and what is wrong with them.
//!
//! `gather` reads facts, `rules` judges them, and `status`, `doctor` and `peers` print. `tune` changes settings. This is all of
//! the program, which `main` calls; the library is for the fuzz targets in `tests/fuzz`, which call `checks`.

mod capture;
#[cfg(any(test, feature = "fuzz"))]
pub mod checks;
mod doctor;
mod drops;
mod ethtool;
mod facts;
mod filter;
mod gather;
#[cfg(any(test, feature = "fuzz"))]
mod healthy;
#[cfg(test)]
mod large;
mod netlink;
mod peers;
mod rules;
mod screen;
mod status;
mod sys;
mod table;
mod top;
mod tune;

use clap::{CommandFactory, Parser, Subcommand};
use screen::Screen;
use std::process::ExitCode;

/// Exit status for wrong usage.
const USAGE: u8 = 64;
/// Exit status if the kernel did not answer.
const FAILED: u8 = 70;

/// Show the state of this host's IPoIB interfaces, and what is wrong with them.
///
/// Exit status: 0 all is well, 1 there are warnings, 2 something is broken; 64 wrong usage, 70 the kernel did not answer.
/// `tune` exits with 1 if there is something to change, `capture` if packets were lost.
#[derive(Parser)]
#[command(name = "ipoibctl", version, disable_help_subcommand = true)]
struct Cli {
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Show all interfaces of ipoib_rs and ib_ipoib, and a sentence for each thing that is wrong.
    Status,
    /// Say what is wrong, how that is known, and which command fixes it.
    Doctor {
        /// Run the commands, after a question each.
        #[arg(long)]
        fix: bool,
        /// Do not ask, and leave hints alone.
        #[arg(long, requires = "fix")]
        yes: bool,
    },
    /// List the neighbours of each interface, with path and connection.
    Peers {
        /// Follow the way to one peer, an IP address, and say where it is stuck.
        #[arg(long, value_name = "PEER")]
        why: Option<std::net::IpAddr>,
    },
    /// Watch rates of interfaces and peers, live; with --json, print them once.
    Top(top::Options),
    /// Print completions for a shell.
    Completions { shell: clap_complete::Shell },
    /// Apply settings that were measured to be best for throughput or latency, or undo that.
    Tune(tune::Options),
    /// Write the packets on the links below to a file for Wireshark.
    Capture(capture::Options),
}

fn run(cli: &Cli) -> anyhow::Result<u8> {
    let mut screen = Screen::stdout();
    match &cli.verb {
        Verb::Status => {
            let facts = gather::facts(false)?;
            let found = rules::judge(&facts);
            if cli.json {
                screen.json(&status::json(&facts, &found))?;
            } else {
                status::show(&facts, &found, &mut screen);
            }
            screen.print()?;
            Ok(rules::status(&found))
        }
        Verb::Doctor { fix, yes } => {
            anyhow::ensure!(
                !cli.json || !fix,
                "--fix prints text, and cannot be used with --json"
            );
            let mut facts = gather::facts(true)?;
            let mut found = rules::judge(&facts);
            if cli.json {
                screen.json(&doctor::json(&facts, &found))?;
            } else {
                doctor::show(&facts, &found, &mut screen);
            }
            screen.print()?;
            if *fix && doctor::mend(&found, *yes)? {
                facts = gather::facts(true)?;
                found = rules::judge(&facts);
                let mut screen = Screen::stdout();
                doctor::show(&facts, &found, &mut screen);
                screen.print()?;
            }
            Ok(rules::status(&found))
        }
        Verb::Peers { why } => {
            let facts = gather::facts(false)?;
            let status = match why {
                Some(peer) => peers::why(&facts, *peer, cli.json, &mut screen)?,
                None => peers::list(&facts, cli.json, &mut screen)?,
            };
            screen.print()?;
            Ok(status)
        }
        Verb::Top(options) if cli.json => {
            let status = top::json(options, &mut screen)?;
            screen.print()?;
            Ok(status)
        }
        Verb::Top(options) => top::run(options),
        Verb::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "ipoibctl", &mut text);
            screen.raw(&String::from_utf8(text)?);
            screen.print()?;
            Ok(0)
        }
        Verb::Tune(options) => {
            let status = tune::run(options, cli.json, &mut screen)?;
            screen.print()?;
            Ok(status)
        }
        Verb::Capture(options) => {
            let status = capture::run(options, cli.json, &mut screen)?;
            screen.print()?;
            Ok(status)
        }
    }
}

/// Does what the command line says.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            // Help and version are not errors.
            return ExitCode::from(if error.use_stderr() { USAGE } else { 0 });
        }
    };
    match run(&cli) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("ipoibctl: {error:#}");
            ExitCode::from(FAILED)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
        assert!(Cli::try_parse_from(["ipoibctl", "doctor", "--yes"]).is_err());
        assert!(Cli::try_parse_from(["ipoibctl", "status", "--json"]).is_ok_and(|cli| cli.json));
    }
    /// The manual page, in whose markup a hyphen has a backslash in front.
    #[test]
    fn the_manual_has_each_command_and_option() {
        let page = include_str!("../../../Documentation/man/ipoibctl.8").replace('\\', "");
        let mut command = Cli::command();
        command.build();
        for verb in command.get_subcommands() {
            let name = verb.get_name();
            assert!(page.contains(&format!(".B {name}\n")), "{name}");
            for option in verb.get_arguments().filter_map(clap::Arg::get_long) {
                assert!(page.contains(&format!("--{option}")), "{name} --{option}");
            }
        }
        for sort in <top::Sort as clap::ValueEnum>::value_variants() {
            let value = clap::ValueEnum::to_possible_value(sort).expect("a name");
            assert!(page.contains(value.get_name()), "{sort:?}");
        }
    }
}
