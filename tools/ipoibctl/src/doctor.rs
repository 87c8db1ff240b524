// SPDX-License-Identifier: GPL-2.0

//! `ipoibctl doctor`: findings, and the commands that mend them.

use crate::facts::Facts;
use crate::rules::{self, Finding, Severity};
use crate::screen::Screen;
use anyhow::{Context, Result};
use serde::Serialize;
use std::io::{BufRead, IsTerminal, Write};
use std::process::Command;

/// Output of `--json`.
#[derive(Serialize)]
pub(crate) struct Report<'a> {
    version: u32,
    status: u8,
    findings: &'a [Finding],
    unread: &'a [String],
}

/// The findings as JSON.
pub(crate) fn json<'a>(facts: &'a Facts, found: &'a [Finding]) -> Report<'a> {
    Report {
        version: 1,
        status: rules::status(found),
        findings: found,
        unread: &facts.unread,
    }
}

/// The findings, worst first.
pub(crate) fn show(facts: &Facts, found: &[Finding], screen: &mut Screen) {
    for finding in found {
        screen.finding(finding);
    }
    if found.is_empty() {
        let names: Vec<&str> = facts.interfaces.iter().map(|i| i.name.as_str()).collect();
        screen.line("", &format!("Nothing is wrong with {}.", names.join(", ")));
    }
    for unread in &facts.unread {
        screen.line("unread   ", unread);
    }
}

/// Runs the commands of findings, after a question each. With `yes`, there is no question, and hints are left alone: they
/// are matters of taste. Returns true if one was run.
pub(crate) fn mend(found: &[Finding], yes: bool) -> Result<bool> {
    let taste = |f: &&Finding| f.severity == Severity::Hint;
    let commands = found.iter().filter(|f| f.safe && !(yes && taste(f)));
    let mut commands: Vec<&str> = commands.map(|f| f.fix.as_str()).collect();
    // Two causes may have one remedy.
    commands.dedup();
    if commands.is_empty() {
        println!("No command to run for any of this.");
        return Ok(false);
    }
    anyhow::ensure!(
        yes || std::io::stdin().is_terminal(),
        "--fix asks before each command, and standard input is not a terminal; add --yes to run them without"
    );
    let mut ran = false;
    for command in commands {
        print!("# {command}\n{}", if yes { "" } else { "Run it? [y/N] " });
        std::io::stdout().flush()?;
        if !yes {
            let mut answer = String::new();
            std::io::stdin().lock().read_line(&mut answer)?;
            if !matches!(answer.trim(), "y" | "Y" | "yes") {
                continue;
            }
        }
        let status = Command::new("sh")
            .args(["-c", command])
            .status()
            .context("sh")?;
        ran = true;
        if !status.success() {
            println!("It failed ({status}).");
        }
    }
    Ok(ran)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::healthy::healthy;

    #[test]
    fn what_is_well_is_said() {
        let facts = healthy(true);
        let mut screen = Screen::plain(Some(80));
        show(&facts, &rules::judge(&facts), &mut screen);
        assert_eq!(screen.text(), "Nothing is wrong with ib0.\n");
    }

    #[test]
    fn json_has_the_cause_and_the_status() {
        let mut facts = healthy(true);
        facts.links[1].up = false;
        let found = rules::judge(&facts);
        let text = serde_json::to_value(json(&facts, &found)).expect("JSON");
        assert_eq!(text["version"], 1);
        assert_eq!(text["status"], 2);
        assert_eq!(text["findings"][0]["cause"], "interface-down");
        assert_eq!(text["findings"][0]["severity"], "broken");
        assert_eq!(text["findings"][0]["layer"], "link");
    }

    #[test]
    fn commands_for_people_and_hints_are_not_run() {
        let mut facts = healthy(true);
        facts.links[1].addresses.clear();
        facts.interfaces[0].gso = false;
        let found = rules::judge(&facts);
        assert!(!found[0].safe && !found[0].fix.is_empty());
        assert!(found[1].safe && found[1].severity == Severity::Hint);
        assert!(!mend(&found, true).expect("no command"));
    }

    #[test]
    fn one_command_for_two_causes_is_run_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let log = dir.path().join("log");
        let mut facts = healthy(true);
        facts.links[1].up = false;
        let mut found = rules::judge(&facts);
        found[0].fix = format!("echo ran >>{}", log.display());
        found.push(found[0].clone());
        assert!(mend(&found, true).expect("it ran"));
        assert_eq!(std::fs::read_to_string(log).expect("a log"), "ran\n");
    }
}
