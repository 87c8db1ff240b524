// SPDX-License-Identifier: GPL-2.0

//! KUnit: a module's suites run as it is loaded; the kernel tree's own parser reads the result.

use crate::bed::Builder;
use crate::classify::message;
use crate::kernel::Built;
use crate::layout::Layout;
use crate::module::MODULES;
use crate::tally::Tally;
use anyhow::{Context, Result, bail, ensure};
use regex::Regex;
use std::process::Command;

/// Where allocations can be made to fail, those that may wait are included: tests say which ones are to fail.
const FAULTS: &str = "if cd /run/debug/failslab 2>/dev/null; then \
                      echo 0 >verbose; echo N >ignore-gfp-wait; fi";

/// Sends a datagram to itself from each soft-RoCE port, and tells the log of it.
const LOOPBACK: &str = "ud_loopback";

/// Loads the modules on a host of `built` that has soft-RoCE, one after the other, and counts their KUnit tests; one more is
/// the sample's datagram, which `rust/rdma` sends over soft-RoCE.
pub fn run(layout: &Layout, built: &Built) -> Result<Tally> {
    let bed = Builder::new("kunit", built.lane, built.kernel)
        .hosts(1)
        .append("kunit.enable=1")
        .append("kunit.autorun=1")
        .up()?;
    let console = bed.machines()[0].console().clone();
    let host = &bed.hosts[0];
    host.ok(FAULTS)?;
    bed.rxe()?;
    for name in MODULES {
        host.ok(&format!(
            "echo '{}' >/dev/kmsg && modprobe {name} && modprobe -r {name}",
            mark(name)
        ))?;
    }
    host.ok(&format!("modprobe {LOOPBACK}"))?;
    let came_back = host
        .ok("dmesg")?
        .contains("ud_loopback: \"rxe0\" port 1: the datagram came back");
    bed.finish()?;

    let lines: Vec<String> = console
        .lines()
        .iter()
        .map(|l| message(l).to_owned())
        .collect();
    let mut tally = Tally::default();
    tally.count(LOOPBACK, came_back);
    for name in MODULES {
        let file = layout
            .build()
            .join("logs")
            .join(format!("kunit-{name}-{}-{}.ktap", built.lane, built.kernel));
        std::fs::write(&file, document(&lines, name))
            .with_context(|| file.display().to_string())?;
        let output = Command::new("python3")
            .arg(built.source.dir.join("tools/testing/kunit/kunit.py"))
            .arg("parse")
            .arg(&file)
            .output()
            .context("kunit.py")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let counted =
            counts(&text).with_context(|| format!("kunit.py parse {}:\n{text}", file.display()))?;
        if !counted.failed.is_empty() {
            eprintln!("{text}");
        }
        tally.add(name, counted);
    }
    Ok(tally)
}

/// The line in the log before what a module prints as it is loaded.
fn mark(name: &str) -> String {
    format!("lab: KUnit of {name}")
}

/// The KTAP document of a module: what follows its mark. The kernel's own suites have documents, too.
fn document(lines: &[String], name: &str) -> String {
    let (own, others) = (mark(name), mark(""));
    lines
        .iter()
        .map(String::as_str)
        .skip_while(|line| *line != own)
        .skip(1)
        .take_while(|line| !line.starts_with(&others))
        .skip_while(|line| *line != "KTAP version 1")
        .flat_map(|line| [line, "\n"])
        .collect()
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
    fn each_module_has_its_document() {
        let one = "KTAP version 1\n1..1\n    KTAP version 1\n    # Subtest: a\n    1..1\n    ok 1 b\nok 1 a\n";
        let two = "KTAP version 1\n1..1\nok 1 c\n";
        let log = format!(
            "KTAP version 1\n1..1\nok 1 rust_kernel_fmt\nlab: KUnit of one\none: loading\n{one}\
             lab: KUnit of two\ntwo: loading\n{two}lab: KUnit of none\nnone: loading\n"
        );
        let lines: Vec<String> = log.lines().map(str::to_owned).collect();
        assert_eq!(document(&lines, "one"), one);
        assert_eq!(document(&lines, "two"), two);
        assert_eq!(document(&lines, "none"), "");
        assert_eq!(document(&[], "one"), "");
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
