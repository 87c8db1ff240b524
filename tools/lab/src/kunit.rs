// SPDX-License-Identifier: GPL-2.0

//! KUnit: the module's suites run as it is loaded; the kernel tree's own parser reads the result.

use crate::bed::Builder;
use crate::classify::message;
use crate::kernel::Built;
use crate::layout::Layout;
use crate::tally::Tally;
use anyhow::{Context, Result, bail, ensure};
use regex::Regex;
use std::process::Command;

/// Loads the module on a host of `built` and counts its KUnit tests.
pub fn run(layout: &Layout, built: &Built) -> Result<Tally> {
    let bed = Builder::new("kunit", built.lane, built.kernel)
        .hosts(1)
        .append("kunit.enable=1")
        .append("kunit.autorun=1")
        .up()?;
    let console = bed.machines()[0].console().clone();
    bed.hosts[0]
        .run("modprobe ipoib_rs && modprobe -r ipoib_rs")?
        .ok()?;
    bed.finish()?;

    let lines: Vec<String> = console
        .lines()
        .iter()
        .map(|l| message(l).to_owned())
        .collect();
    let ktap = document(&lines);
    let file = layout
        .build()
        .join("logs")
        .join(format!("kunit-{}-{}.ktap", built.lane, built.kernel));
    std::fs::write(&file, ktap).with_context(|| file.display().to_string())?;
    let output = Command::new("python3")
        .arg(built.source.dir.join("tools/testing/kunit/kunit.py"))
        .arg("parse")
        .arg(&file)
        .output()
        .context("kunit.py")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let tally =
        counts(&text).with_context(|| format!("kunit.py parse {}:\n{text}", file.display()))?;
    if !tally.failed.is_empty() {
        eprintln!("{text}");
    }
    Ok(tally)
}

/// The module's KTAP document: the last one in the log, since the kernel's own suites have theirs.
fn document(lines: &[String]) -> String {
    let Some(start) = lines.iter().rposition(|l| l == "KTAP version 1") else {
        return String::new();
    };
    let mut text = lines[start..].join("\n");
    text.push('\n');
    text
}

/// The counts in kunit.py's output.
fn counts(text: &str) -> Result<Tally> {
    let plain = Regex::new("\x1b\\[[0-9;]*m")?
        .replace_all(text, "")
        .into_owned();
    let summary = Regex::new(r"Testing complete\. Ran (\d+) tests:?(.*)")?;
    let Some(m) = summary.captures(&plain) else {
        bail!("no summary");
    };
    let of = |what: &str| -> Result<usize> {
        let r = Regex::new(&format!(r"{what}: (\d+)"))?;
        Ok(r.captures(&m[2]).map_or(Ok(0), |c| c[1].parse())?)
    };
    let ran: usize = m[1].parse()?;
    ensure!(ran > 0, "no KUnit test ran");
    let mut tally = Tally {
        passed: of("passed")?,
        failed: Vec::new(),
    };
    let named = Regex::new(r"\[(?:FAILED|ERROR|CRASHED|TIMED OUT)\] (\S+)")?;
    let names: Vec<String> = named
        .captures_iter(&plain)
        .map(|c| c[1].to_owned())
        .collect();
    let failed = of("failed")? + of("crashed")? + of("errors")?;
    for n in 0..failed {
        tally
            .failed
            .push(names.get(n).cloned().unwrap_or_else(|| "unnamed".into()));
    }
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_modules_document_is_the_last() {
        let log = "KTAP version 1\n1..1\nok 1 rust_kernel_fmt\nipoib_rs: loading\n\
            KTAP version 1\n1..1\n    KTAP version 1\n    # Subtest: header\n    1..1\n    ok 1 a\nok 1 header\n";
        let lines: Vec<String> = log.lines().map(str::to_owned).collect();
        let text = document(&lines);
        assert!(
            text.starts_with("KTAP version 1\n1..1\n    KTAP version 1\n"),
            "{text}"
        );
        assert!(!text.contains("rust_kernel_fmt"));
        assert_eq!(document(&[]), "");
    }

    #[test]
    fn counts_of_kunit_py() {
        let text = "[12:00:00] [\x1b[1;31mFAILED\x1b[0m] c\n[12:00:00] Testing complete. Ran 3 tests: passed: 2, failed: 1\n";
        let tally = counts(text).expect("a summary");
        assert_eq!(
            tally,
            Tally {
                passed: 2,
                failed: vec!["c".into()]
            }
        );
        counts("nothing").expect_err("no summary");
        counts("Testing complete. Ran 0 tests: errors: 1").expect_err("no test");
    }
}
