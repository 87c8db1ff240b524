// SPDX-License-Identifier: GPL-2.0

//! The program with all scenarios: which there are, and the command that runs a choice of them.

use crate::layout::Layout;
use crate::machine::{Kernel, Lane};
use crate::slots;
use anyhow::{Context, Result, ensure};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The compiled scenarios.
pub(crate) struct Scenarios {
    program: PathBuf,
    names: Vec<String>,
    /// Those that run when asked for.
    asked: HashSet<String>,
}

/// Which scenarios of a lane and kernel are wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    /// Part of their names.
    pub(crate) filter: Option<&'a str>,
    /// Also those that run when asked for.
    pub(crate) asked: bool,
}

impl Scenarios {
    /// Compiles them, and ipoibctl, which guests run: cargo builds that for the test of its command line. The crates
    /// and their features are those of the unit tests, so that each is compiled once.
    pub(crate) fn build(layout: &Layout) -> Result<Scenarios> {
        let output = Command::new("cargo")
            .args(["test", "--workspace", "--locked"])
            .args(["--test", "scenarios", "--test", "command"])
            .args(["--no-run", "--message-format=json-render-diagnostics"])
            .current_dir(&layout.checkout)
            .stderr(Stdio::inherit())
            .output()
            .context("cargo")?;
        ensure!(output.status.success(), "the scenarios do not compile");
        let messages = String::from_utf8_lossy(&output.stdout);
        let program = executable(&messages).context("cargo names no program with scenarios")?;
        Scenarios::list(program)
    }

    /// Those of a program.
    fn list(program: PathBuf) -> Result<Scenarios> {
        let output = Command::new(&program)
            .arg("list")
            .output()
            .with_context(|| program.display().to_string())?;
        ensure!(
            output.status.success(),
            "{}: {}",
            program.display(),
            output.status
        );
        let text = String::from_utf8(output.stdout)?;
        let (names, asked) = read(&text);
        Ok(Scenarios {
            program,
            names,
            asked,
        })
    }

    /// The program.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// The names of a lane's scenarios for a kernel.
    pub(crate) fn choose(&self, lane: Lane, kernel: Kernel, wanted: Wanted<'_>) -> Vec<&str> {
        let place = format!("::{lane}_{kernel}");
        self.names
            .iter()
            .map(String::as_str)
            .filter(|name| name.ends_with(&place))
            .filter(|name| wanted.filter.is_none_or(|part| name.contains(part)))
            .filter(|name| wanted.asked || !self.asked.contains(*name))
            .collect()
    }

    /// The command that runs scenarios of a lane by their names.
    pub(crate) fn command(&self, lane: Lane, names: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        // How many machines really run at once is ruled by their slots, over all runs.
        let threads = slots::machines(lane).to_string();
        command.args(["run", &threads]).args(names);
        command
    }
}

/// The path of the program in cargo's messages.
fn executable(messages: &str) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == "scenarios")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

/// The names in a program's list, and those that run when asked for.
fn read(list: &str) -> (Vec<String>, HashSet<String>) {
    let mut names = Vec::new();
    let mut asked = HashSet::new();
    for line in list.lines() {
        let name = line.strip_suffix(" asked");
        asked.extend(name.map(str::to_owned));
        names.push(name.unwrap_or(line).to_owned());
    }
    (names, asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_in_the_messages() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","target":{"name":"lab"},"executable":"/t/lab"}"#,
            "\nno message\n",
            r#"{"reason":"compiler-artifact","target":{"name":"scenarios"},"executable":"/t/scenarios-1"}"#,
            "\n",
            r#"{"reason":"build-finished","success":true}"#,
        );
        assert_eq!(executable(messages), Some(PathBuf::from("/t/scenarios-1")));
        assert_eq!(executable(""), None);
    }

    #[test]
    fn scenarios_are_chosen_by_lane_kernel_and_name() {
        let (names, asked) = read("a::uml_base\na::uml_debug\nb::uml_base asked\nb::qemu_base\n");
        let scenarios = Scenarios {
            program: PathBuf::new(),
            names,
            asked,
        };
        let choose = |filter, asked| {
            let wanted = Wanted { filter, asked };
            scenarios.choose(Lane::Uml, Kernel::Base, wanted)
        };
        assert_eq!(choose(None, false), ["a::uml_base"]);
        assert_eq!(choose(None, true), ["a::uml_base", "b::uml_base"]);
        assert_eq!(choose(Some("b::"), true), ["b::uml_base"]);
        assert!(choose(Some("c::"), true).is_empty());
    }
}
