// SPDX-License-Identifier: GPL-2.0

//! `make lint`: formatting, lints and licences. Each check counts as one test.

use crate::cmd::kunit_py;
use crate::frames;
use crate::kernel;
use crate::layers;
use crate::layout::{Layout, tracked};
use crate::limit::Limit;
use crate::machine::{Kernel, Lane};
use crate::module::{self, MODULES};
use crate::sizes;
use crate::source;
use crate::step::print;
use crate::tally::Tally;
use anyhow::{Context, Result, bail, ensure};
use regex::{Captures, Regex};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A check and its name.
pub(crate) type Check = (&'static str, fn(&Layout) -> Result<()>);

/// The checks, in order.
pub(crate) const CHECKS: &[Check] = &[
    ("rustfmt (host)", host_format),
    ("clippy (host)", host_clippy),
    ("rustfmt (kernel)", kernel_format),
    ("SPDX", licences),
    ("layers", layers),
    ("sizes", sizes),
    ("macros", macros),
    ("programs", programs),
    ("shellcheck", shellcheck),
    ("python", python),
    ("checkpatch", checkpatch),
    ("kunitconfig", kunitconfig),
    // Those that want a kernel come last: it may be being built.
    ("clippy (kernel)", kernel_clippy),
    ("stack frames (kernel)", stack_frames),
];

/// `make lint`: prints the count; true if all is clean.
pub fn report(layout: &Layout) -> Result<bool> {
    let tally = run(layout);
    println!("{}", tally.summary());
    Ok(tally.failed.is_empty())
}

/// Runs all checks.
pub(crate) fn run(layout: &Layout) -> Tally {
    let mut tally = Tally::default();
    for (name, check) in CHECKS {
        let result = check(layout);
        match &result {
            Ok(()) => print(&format!("lint {name} ... ok")),
            Err(e) => print(&format!("lint {name} ... FAILED\n{e:#}")),
        }
        tally.run(&format!("lint {name}"), name, result.is_ok());
    }
    tally
}

/// Time for the unit tests, and for each tool: ten times what the slowest of them takes on two cores. What hangs has an end.
pub(crate) const LIMIT: Duration = Duration::from_secs(3600);

/// Runs a tool that is silent when all is well; its words are the error.
fn tool(command: &mut Command, layout: &Layout) -> Result<()> {
    let child = command
        .current_dir(&layout.checkout)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("{:?}", command.get_program()))?;
    let limit = Limit::begin(child.id(), LIMIT);
    let output = child.wait_with_output()?;
    let [stdout, stderr] =
        [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    ensure!(
        !limit.struck(),
        "{:?}: out of time\n{stdout}{stderr}",
        command.get_program()
    );
    ensure!(output.status.success(), "{stdout}{stderr}");
    Ok(())
}

fn with_extension(files: &[PathBuf], wanted: &[&str]) -> Vec<PathBuf> {
    files
        .iter()
        .filter(|f| {
            f.extension()
                .and_then(|e| e.to_str())
                .is_some_and(|e| wanted.contains(&e))
        })
        .cloned()
        .collect()
}

fn layers(layout: &Layout) -> Result<()> {
    layers::check(&layout.checkout)
}

fn sizes(layout: &Layout) -> Result<()> {
    sizes::check(&layout.checkout)
}

/// Macros of the kernel crate that include a file of the kernel's own build, which header packages do not have.
const OF_THE_BUILD: [&str; 3] = ["warn_on!", "static_branch_unlikely!", "declare_trace!"];

/// The modules build against a distribution's headers.
fn macros(layout: &Layout) -> Result<()> {
    let mut complaints = String::new();
    for file in with_extension(&tracked(&layout.checkout)?, &["rs"]) {
        if !file.starts_with("rust") && !file.starts_with("drivers") {
            continue;
        }
        let text = fs::read_to_string(layout.checkout.join(&file))
            .with_context(|| file.display().to_string())?;
        for name in of_the_build(&text) {
            complaints += &format!("{}: {name} needs the kernel's own build\n", file.display());
        }
    }
    if complaints.is_empty() {
        Ok(())
    } else {
        bail!("{complaints}")
    }
}

/// The macros of [`OF_THE_BUILD`] that a source uses, its comments left out.
fn of_the_build(source: &str) -> impl Iterator<Item = &'static str> {
    OF_THE_BUILD.into_iter().filter(|name| {
        source
            .lines()
            .any(|line| !line.trim_start().starts_with("//") && line.contains(name))
    })
}

/// Lines of a string of a scenario from which on it is a program, which has a file of its own in `tests/guest`.
const OF_A_PROGRAM: usize = 10;

/// Programs that guests run are files, which shellcheck and the check of Python see.
fn programs(layout: &Layout) -> Result<()> {
    let mut complaints = String::new();
    for file in with_extension(&tracked(&layout.checkout)?, &["rs"]) {
        if !file.starts_with("tests/scenarios") {
            continue;
        }
        let text = fs::read_to_string(layout.checkout.join(&file))
            .with_context(|| file.display().to_string())?;
        for line in embedded(&text)? {
            complaints += &format!(
                "{}:{line}: a program belongs in tests/guest\n",
                file.display()
            );
        }
    }
    if complaints.is_empty() {
        Ok(())
    } else {
        bail!("{complaints}")
    }
}

/// The lines of a source where strings begin that have [`OF_A_PROGRAM`] lines or more, blank ones left out.
fn embedded(source: &str) -> Result<Vec<usize>> {
    let token = Regex::new(
        r##"(?s)//[^\n]*|'(?:\\.|[^'\\])'|r#"(?<hash>.*?)"#|r"(?<raw>[^"]*)"|"(?<plain>(?:\\.|[^"\\])*)""##,
    )?;
    let lines_of = |found: &Captures<'_>| {
        let raw = found.name("hash").or(found.name("raw"));
        let text = match (raw, found.name("plain")) {
            (Some(text), _) => text.as_str().to_owned(),
            // A line that ends in a backslash goes on in the next.
            (None, Some(text)) => text.as_str().replace("\\\n", "").replace("\\n", "\n"),
            (None, None) => String::new(),
        };
        text.lines().filter(|line| !line.trim().is_empty()).count()
    };
    Ok(token
        .captures_iter(source)
        .filter(|found| lines_of(found) >= OF_A_PROGRAM)
        .filter_map(|found| Some(found.get(0)?.start()))
        .map(|at| source[..at].matches('\n').count() + 1)
        .collect())
}

fn host_format(layout: &Layout) -> Result<()> {
    tool(
        Command::new("cargo").args(["fmt", "--all", "--check"]),
        layout,
    )
}

fn host_clippy(layout: &Layout) -> Result<()> {
    // The fuzzers are a workspace of their own; libFuzzer itself, in C++, is not needed to look at them.
    for part in [
        &["--workspace", "--all-targets"][..],
        &[
            "--manifest-path=tests/fuzz/Cargo.toml",
            "--no-default-features",
        ],
    ] {
        let mut command = Command::new("cargo");
        command.args(["clippy", "--quiet", "--locked"]).args(part);
        tool(command.args(["--", "-D", "warnings"]), layout)?;
    }
    Ok(())
}

fn kernel_format(layout: &Layout) -> Result<()> {
    let sources: Vec<PathBuf> = with_extension(&tracked(&layout.checkout)?, &["rs"])
        .into_iter()
        .filter(|f| {
            ["rust", "drivers", "samples", "tests/misuse"]
                .iter()
                .any(|d| f.starts_with(d))
        })
        .collect();
    if sources.is_empty() {
        return Ok(());
    }
    tool(
        Command::new("rustfmt")
            .args(["--check", "--edition", "2021"])
            .args(sources),
        layout,
    )
}

/// The first step of kunit.py.
fn kunitconfig(layout: &Layout) -> Result<()> {
    kunit_py::configure(layout)
}

fn kernel_clippy(layout: &Layout) -> Result<()> {
    clippy_objects(layout).map(|_| ())
}

fn clippy_objects(layout: &Layout) -> Result<PathBuf> {
    let built = kernel::ensure(layout, Lane::Uml, Kernel::Base)?;
    module::build(
        layout,
        &built,
        &layout.checkout,
        "clippy",
        &[
            module::WITH_SAMPLES[0],
            module::WITH_SAMPLES[1],
            "CLIPPY=1",
            "KRUSTFLAGS=-Dwarnings",
        ],
    )
}

fn stack_frames(layout: &Layout) -> Result<()> {
    let objects = clippy_objects(layout)?;
    MODULES
        .iter()
        .try_for_each(|name| frames::check(&objects.join(format!("{name}.ko"))))
}

/// The kernel's own style check on what is C, and on patches with their messages.
fn checkpatch(layout: &Layout) -> Result<()> {
    let script = source::ensure(layout)?.dir.join("scripts/checkpatch.pl");
    let files = tracked(&layout.checkout)?;
    let mut complaints = String::new();
    let (events, sources): (Vec<_>, Vec<_>) = with_extension(&files, &["c", "h"])
        .into_iter()
        .partition(|file| file.ends_with("events.h"));
    for (set, mode) in [
        (
            sources,
            // Rust's own %pA is news to it.
            &["--file", "--ignore", "VSPRINTF_POINTER_EXTENSION"][..],
        ),
        (
            events,
            // The macros of a tracepoint have a layout of their own.
            &[
                "--file",
                "--ignore",
                "PARENTHESIS_ALIGNMENT,OPEN_ENDED_LINE",
            ],
        ),
        // Patches that are nobody's submission have no sign-off. The commits that they mend are in no repository here.
        (
            with_extension(&files, &["patch"]),
            &["--no-signoff", "--ignore", "UNKNOWN_COMMIT_ID"],
        ),
    ] {
        for file in set {
            let mut perl = Command::new("perl");
            perl.arg(&script).args([
                "--strict",
                "--no-tree",
                "--no-summary",
                "--quiet",
                "--show-types",
            ]);
            perl.args(mode);
            if mode.contains(&"--file") {
                perl.arg(&file);
            } else {
                // By name, what git tracks is taken for a source file whatever it holds.
                perl.arg("-")
                    .stdin(fs::File::open(layout.checkout.join(&file))?);
            }
            if let Err(e) = tool(&mut perl, layout) {
                complaints += &format!("{}:\n{e}\n", file.display());
            }
        }
    }
    if complaints.is_empty() {
        Ok(())
    } else {
        bail!("{complaints}")
    }
}

/// Every file that can hold one has the licence tag in its first lines.
fn licences(layout: &Layout) -> Result<()> {
    let missing: Vec<String> = tracked(&layout.checkout)?
        .into_iter()
        .filter(|f| !cannot_hold_tag(f))
        .filter(|f| !has_tag(&layout.checkout.join(f)))
        .map(|f| f.display().to_string())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    bail!(
        "no SPDX-License-Identifier: GPL-2.0 in the first three lines of\n  {}",
        missing.join("\n  ")
    )
}

/// Generated files, formats without comments, data, licence texts.
fn cannot_hold_tag(file: &Path) -> bool {
    let name = file
        .file_name()
        .and_then(|n| n.to_str())
        .unwrap_or_default();
    let extension = file
        .extension()
        .and_then(|e| e.to_str())
        .unwrap_or_default();
    matches!(name, "Cargo.lock" | "COPYING" | "LICENSE")
        || matches!(
            extension,
            "json" | "bin" | "pcap" | "png" | "svg" | "patch" | "proptest-regressions"
        )
        || [
            "LICENSES",
            "debian/changelog",
            "debian/copyright",
            "debian/source",
        ]
        .iter()
        .any(|path| file.starts_with(path))
        || file.components().any(|c| c.as_os_str() == "corpus")
}

fn has_tag(file: &Path) -> bool {
    let mut head = [0; 400];
    let read = fs::File::open(file)
        .and_then(|mut f| f.read(&mut head))
        .unwrap_or(0);
    String::from_utf8_lossy(&head[..read])
        .lines()
        .take(3)
        .any(|l| l.contains("SPDX-License-Identifier: GPL-2.0"))
}

/// Python compiles, in memory.
fn python(layout: &Layout) -> Result<()> {
    const COMPILE: &str = "import pathlib, sys\nfor path in sys.argv[1:]: compile(pathlib.Path(path).read_text(), path, 'exec')";
    let programs = with_extension(&tracked(&layout.checkout)?, &["py"]);
    let mut python = Command::new("python3");
    tool(
        python.args(["-W", "error", "-c", COMPILE]).args(programs),
        layout,
    )
}

fn shellcheck(layout: &Layout) -> Result<()> {
    let scripts: Vec<PathBuf> = tracked(&layout.checkout)?
        .into_iter()
        .filter(|f| is_shell(&layout.checkout.join(f)))
        .collect();
    tool(Command::new("shellcheck").args(scripts), layout)
}

fn is_shell(file: &Path) -> bool {
    let mut head = [0; 64];
    let read = fs::File::open(file)
        .and_then(|mut f| f.read(&mut head))
        .unwrap_or(0);
    let first = String::from_utf8_lossy(&head[..read]);
    let first = first.lines().next().unwrap_or_default();
    file.extension().is_some_and(|e| e == "sh")
        || (first.starts_with("#!")
            && ["/sh", "/bash", "env bash", "env sh"]
                .iter()
                .any(|s| first.ends_with(s)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn macros_of_the_build_are_found() {
        let found = |source: &str| of_the_build(source).count();
        assert_eq!(found("    warn_on!(!is_alone);\n    declare_trace! {\n"), 2);
        assert_eq!(
            found("/// `warn_on!` is not there.\npr_warn!(\"no\");\n"),
            0
        );
    }

    #[test]
    fn embedded_programs_are_found() {
        let found = |source: &str| embedded(source).expect("a regular expression");
        let nine = "true\n".repeat(9);
        assert_eq!(found(&format!("let a =\n  \"{nine}true\";")), [2]);
        assert_eq!(
            found(&format!("a(r#\"{nine}\n\" true\"#);\n// it's\n")),
            [1]
        );
        assert_eq!(found(&format!("a(\"{}true\")", "true\\n".repeat(9))), [1]);
        assert!(found(&format!("a('\"', \"{nine}\", \"\\\"\")")).is_empty());
        assert!(found(&format!("a(\"{}\")", "true \\\n".repeat(20))).is_empty());
        assert!(found(&format!("// \"\n{nine}{nine}// \"\n")).is_empty());
    }

    #[test]
    fn tags_and_scripts_are_recognised() {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::write(&path, text).expect("writes");
            path
        };
        assert!(has_tag(&write(
            "a",
            "#!/bin/sh\n# SPDX-License-Identifier: GPL-2.0\n"
        )));
        assert!(has_tag(&write(
            "b",
            "<!-- SPDX-License-Identifier: GPL-2.0 -->\n# x\n"
        )));
        assert!(!has_tag(&write(
            "c",
            "one\ntwo\nthree\n// SPDX-License-Identifier: GPL-2.0\n"
        )));
        assert!(is_shell(&write("d", "#!/usr/bin/env bash\n")));
        assert!(!is_shell(&write("e", "#!/usr/bin/python3\n")));
        assert!(
            cannot_hold_tag(Path::new("Cargo.lock")) && !cannot_hold_tag(Path::new("Makefile"))
        );
    }
}
