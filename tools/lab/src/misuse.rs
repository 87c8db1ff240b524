// SPDX-License-Identifier: GPL-2.0

//! Programs that must not compile, against the crates that a module's build has left.
//!
//! Each file in `tests/misuse` is compiled twice, as the driver is: as it stands, which must work, and with
//! `--cfg misuse`, when the compiler must refuse the lines that end in `//~ CODE`, with that code, and nothing
//! else. So it is not for another reason that it does.

use crate::kernel::Built;
use crate::layout::Layout;
use crate::module::{self, MODULES};
use crate::step::print;
use crate::tally::Tally;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Programs, and Kbuild's note of the command that has compiled the driver whose crates they use.
const USERS: [(&str, &str); 2] = [
    (
        "tests/misuse",
        "drivers/infiniband/ulp/ipoib_rs/.main.o.cmd",
    ),
    (
        "tests/misuse/ib_hwsim",
        "drivers/infiniband/sw/ib_hwsim/.main.o.cmd",
    ),
];

/// An error: its line, and its code if it has one.
type Refusal = (usize, String);

/// Compiles all programs against what was built for `built`, and counts them.
pub fn run(layout: &Layout, built: &Built) -> Result<Tally> {
    let objects = module::objects(layout, built, MODULES[0]);
    let mut tally = Tally::default();
    for (programs, note) in USERS {
        let note = objects.join(note);
        let text = fs::read_to_string(&note).with_context(|| note.display().to_string())?;
        let compiler = Compiler {
            command: command(&text).with_context(|| format!("no command in {}", note.display()))?,
            output: tempfile::tempdir()?,
            objects: objects.clone(),
        };
        compiler.check_all(&layout.checkout.join(programs), &mut tally)?;
    }
    Ok(tally)
}

/// The driver's compiler, with its flags and the crates that it uses.
struct Compiler {
    command: String,
    objects: PathBuf,
    output: tempfile::TempDir,
}

impl Compiler {
    /// Compiles all programs in a directory, and counts them.
    fn check_all(&self, dir: &Path, tally: &mut Tally) -> Result<()> {
        let mut files: Vec<PathBuf> = fs::read_dir(dir)
            .with_context(|| dir.display().to_string())?
            .map(|entry| Ok(entry?.path()))
            .filter(|path| !matches!(path, Ok(path) if path.extension() != Some(OsStr::new("rs"))))
            .collect::<Result<_>>()?;
        files.sort();
        ensure!(!files.is_empty(), "no program in {}", dir.display());
        for file in files {
            let name = file.file_stem().unwrap_or_default().to_string_lossy();
            let result = self.check(&file);
            if let Err(e) = &result {
                print(&format!("misuse {name} ... FAILED\n{e:#}"));
            }
            tally.run(&format!("misuse {name}"), &name, result.is_ok());
        }
        Ok(())
    }

    fn check(&self, file: &Path) -> Result<()> {
        let text = fs::read_to_string(file)?;
        let expected = marks(&text);
        ensure!(!expected.is_empty(), "no line says what is refused");
        let refused = self.compile(file, "")?;
        ensure!(
            refused.is_empty(),
            "refused without the misuse: {refused:?}"
        );
        let refused = self.compile(file, "--cfg misuse")?;
        if refused != expected {
            bail!("refused: {refused:?}, expected: {expected:?}");
        }
        Ok(())
    }

    /// Compiles a program, and returns the errors.
    fn compile(&self, file: &Path, options: &str) -> Result<BTreeSet<Refusal>> {
        let output = Command::new("sh")
            .arg("-c")
            .arg(format!(
                "{} --crate-name misuse --emit=metadata={} --error-format=json \
                 --cap-lints allow {options} {}",
                self.command,
                self.output.path().join("misuse.rmeta").display(),
                file.display()
            ))
            // As Kbuild has it, for the kernel's options.
            .env("RUSTC_BOOTSTRAP", "1")
            .current_dir(&self.objects)
            .output()
            .context("sh")?;
        let messages = String::from_utf8_lossy(&output.stderr);
        let refused = refusals(&messages);
        ensure!(
            output.status.success() == refused.is_empty(),
            "{}: {messages}",
            output.status
        );
        Ok(refused)
    }
}

/// The compiler's command in a note of Kbuild's, as far as what it makes of what.
fn command(note: &str) -> Option<String> {
    let (_, command) = note.lines().next()?.split_once(" := ")?;
    let (command, _) = command.split_once(" --out-dir ")?;
    Some(command.to_owned())
}

/// Returns the errors that a program's lines announce.
fn marks(text: &str) -> BTreeSet<Refusal> {
    (1..)
        .zip(text.lines())
        .filter_map(|(n, line)| Some((n, line.split_once("//~ ")?.1.trim().to_owned())))
        .collect()
}

/// The errors among a compiler's messages, each with the line that it is about.
fn refusals(messages: &str) -> BTreeSet<Refusal> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["level"] == "error")
        .filter_map(|message| {
            let spans = message["spans"].as_array()?;
            // The last message, which counts the others, is about no line.
            let mut primary = spans.iter().find(|span| span["is_primary"] == true)?;
            // What a macro has made is about the line where that is called.
            while let Some(call) = primary["expansion"].get("span") {
                primary = call;
            }
            let line = primary["line_start"].as_u64()? as usize;
            let code = message["code"]["code"].as_str().unwrap_or("none");
            Some((line, code.to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_has_the_command() {
        let note = "savedcmd_a.o := X=1 rustc -a '-b c' --out-dir d --emit=obj=a.o a.rs ; objtool\n\nsource";
        assert_eq!(command(note).as_deref(), Some("X=1 rustc -a '-b c'"));
        assert_eq!(command("nothing"), None);
    }

    #[test]
    fn errors_have_lines_and_codes() {
        let text = "fn a() {}\nb(); //~ E0425\nc!(); //~ E0080\n";
        let messages = concat!(
            r#"{"level":"warning","code":null,"spans":[{"is_primary":true,"line_start":1}]}"#,
            "\nno message\n",
            r#"{"level":"error","code":{"code":"E0425"},"spans":[{"is_primary":false,"line_start":1},"#,
            r#"{"is_primary":true,"line_start":2}]}"#,
            "\n",
            r#"{"level":"error","code":{"code":"E0080"},"spans":[{"is_primary":true,"line_start":107,"#,
            r#""expansion":{"span":{"line_start":3,"expansion":null}}}]}"#,
            "\n",
            r#"{"level":"error","code":null,"spans":[]}"#,
        );
        assert_eq!(refusals(messages), marks(text));
        let other = messages.replace("E0425", "E0433");
        assert_ne!(refusals(&other), marks(text));
    }
}
