// SPDX-License-Identifier: GPL-2.0

//! `ipoibctl`: the state of a host's IPoIB interfaces, and what is wrong with them.
//!
//! `gather` reads facts, `rules` judges them, and `status`, `doctor` and `peers` print.

mod doctor;
mod drops;
mod ethtool;
mod facts;
mod gather;
mod netlink;
mod peers;
mod rules;
mod screen;
mod status;
mod sys;

use clap::{Parser, Subcommand};
use screen::Screen;
use std::process::ExitCode;

/// Exit status for wrong usage.
const USAGE: u8 = 64;
/// Exit status if the kernel did not answer.
const FAILED: u8 = 70;

/// Show the state of this host's IPoIB interfaces, and what is wrong with them.
///
/// Exit status: 0 all is well, 1 there are warnings, 2 something is broken; 64 wrong usage, 70 the kernel did not answer.
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
    /// Say what is wrong, how that is known, and which command mends it.
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
    }
}

fn main() -> ExitCode {
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
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
        assert!(Cli::try_parse_from(["ipoibctl", "doctor", "--yes"]).is_err());
        assert!(Cli::try_parse_from(["ipoibctl", "status", "--json"]).is_ok_and(|cli| cli.json));
    }
}
