// SPDX-License-Identifier: GPL-2.0

//! KUnit: a module's suites run as it is loaded; the kernel tree's own parser reads the result.
//!
//! Suites whose names end in [`LIVE`] want soft-RoCE, and skip their tests where there is none. Here there is.

use crate::bed::{Bed, Builder};
use crate::classify::message;
use crate::kernel::Built;
use crate::layout::Layout;
use crate::module::MODULES;
use crate::tally::Tally;
use anyhow::{Context, Result, bail, ensure};
use regex::Regex;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Where allocations can be made to fail, those that may wait are included: tests say which ones are to fail.
const FAULTS: &str = "if cd /run/debug/failslab 2>/dev/null; then \
                      echo 0 >verbose; echo N >ignore-gfp-wait; fi";

/// The end of the names of suites that want soft-RoCE.
const LIVE: &str = "_live";

/// Sends a datagram to itself from each soft-RoCE port, and tells the log of it.
const LOOPBACK: &str = "ud_loopback";

/// Time for the suites of a module, on the base kernel of the uml lane: a minute more than they take, in which some tests may
/// wait in vain.
const LIMIT: Duration = Duration::from_secs(80);

/// Loads the modules on a host of `built` that has soft-RoCE, one after the other, and counts their KUnit tests; one more is
/// the sample's datagram, which `rust/rdma` sends over soft-RoCE.
pub fn run(layout: &Layout, built: &Built) -> Result<Tally> {
    let bed = Builder::new("kunit", built.lane, built.kernel)
        .hosts(1)
        .append("kunit.enable=1")
        .append("kunit.autorun=1")
        .up()?;
    let console = bed.machines()[0].console().clone();
    let over = load(&bed).and_then(|came_back| bed.finish().map(|()| came_back));
    let lines: Vec<String> = console
        .lines()
        .iter()
        .map(|l| message(l).to_owned())
        .collect();
    let shared = shared(layout)?;
    let mut tally = Tally::default();
    for name in MODULES {
        let file = layout
            .build()
            .join("logs")
            .join(format!("kunit-{name}-{}-{}.ktap", built.lane, built.kernel));
        let document = document(&lines, name);
        fs::write(&file, &document).with_context(|| file.display().to_string())?;
        let output = Command::new("python3")
            .arg(built.source.dir.join("tools/testing/kunit/kunit.py"))
            .arg("parse")
            .arg(&file)
            .output()
            .context("kunit.py")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        match reasons(&document).and_then(|reasons| counts(&text, &shared, &reasons)) {
            Ok(mut counted) => {
                if built.kernel.injects_faults() {
                    // Tests that need fault injection have it here.
                    counted.skipped_failed();
                }
                if !counted.failed.is_empty() {
                    eprintln!("{text}");
                }
                tally.add(name, counted);
            }
            Err(error) => {
                // If the bed has failed, that is the reason.
                over?;
                return Err(error.context(format!("kunit.py parse {}:\n{text}", file.display())));
            }
        }
    }
    tally.count(LOOPBACK, over?);
    Ok(tally)
}

/// Loads each module, and then the sample. Returns true if its datagram came back.
fn load(bed: &Bed) -> Result<bool> {
    let host = &bed.hosts[0];
    host.ok(FAULTS)?;
    bed.rxe()?;
    for name in MODULES {
        let script = format!(
            "echo '{}' >/dev/kmsg && modprobe {name} && modprobe -r {name}",
            mark(name)
        );
        host.run_for(&script, LIMIT)?.ok()?;
    }
    host.ok(&format!("modprobe {LOOPBACK}"))?;
    let log = host.ok("dmesg")?;
    Ok(log.contains("ud_loopback: \"rxe0\" port 1: the datagram came back"))
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

/// Crates whose tests are KUnit suites in a kernel, and unit tests on the host.
const SHARED: [(&str, &str); 2] = [
    ("drivers/infiniband/ulp/ipoib_rs/proto", "ipoib_proto"),
    ("drivers/infiniband/sw/ib_hwsim/fabric", "ib_fabric"),
];

/// Their suites, each with the beginning of the names that its tests have on the host.
type Suites = BTreeMap<String, String>;

/// Finds these suites in their sources.
fn shared(layout: &Layout) -> Result<Suites> {
    let mut suites = Suites::new();
    for (dir, name) in SHARED {
        gather(&layout.checkout.join(dir), &format!("{name} "), &mut suites)?;
    }
    ensure!(!suites.is_empty(), "no suite is the host's, too");
    Ok(suites)
}

/// Gathers the suites of a directory, which is the module `path`.
fn gather(dir: &Path, path: &str, suites: &mut Suites) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let entry = entry?.path();
        let stem = entry.file_stem().unwrap_or_default().to_string_lossy();
        let inside = format!("{path}{stem}::");
        if entry.is_dir() {
            gather(&entry, &inside, suites)?;
        } else if entry.extension().is_some_and(|e| e == "rs") {
            for suite in suites_of(&fs::read_to_string(&entry)?)? {
                suites.insert(suite, format!("{inside}tests::"));
            }
        }
    }
    Ok(())
}

/// The suites of a source that the host has as a module `tests`.
fn suites_of(source: &str) -> Result<Vec<String>> {
    let suite = Regex::new(
        r"#\[cfg_attr\(CONFIG_KUNIT, [a-z:_]*kunit_tests\((\w+)\)\)\]\s+#\[cfg_attr\(not\(CONFIG_KUNIT\), cfg\(test\)\)\]\s+mod tests",
    )?;
    let found = suite.captures_iter(source);
    Ok(found.map(|c| c[1].to_owned()).collect())
}

/// Reasons for which cases were skipped, by suite and case. kunit.py does not tell them.
fn reasons(document: &str) -> Result<BTreeMap<String, String>> {
    let line = Regex::new(r"(?m)^    (?:# Subtest: (\w+)|ok \d+ (\w+) # SKIP (.+))$")?;
    let mut reasons = BTreeMap::new();
    let mut suite = "";
    for found in line.captures_iter(document) {
        let part = |n| found.get(n).map_or("", |part| part.as_str());
        match (part(1), part(2)) {
            ("", case) => {
                reasons.insert(format!("{suite}.{case}"), part(3).to_owned());
            }
            (begun, _) => suite = begun,
        }
    }
    Ok(reasons)
}

/// The counts in kunit.py's output.
fn counts(text: &str, shared: &Suites, reasons: &BTreeMap<String, String>) -> Result<Tally> {
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

    let mut tally = Tally::default();
    let line = Regex::new(
        r"(?m)^\[[\d:]+\] (?:=+ (\w+) \(\d+ subtests?\) =+|\[(PASSED|FAILED|CRASHED|TIMED OUT|SKIPPED)\] (\w+)(?: \(.*\))?)$",
    )?;
    let mut suite = String::new();
    // With soft-RoCE, but as if there were none.
    let mut idle = 0;
    for found in line.captures_iter(&plain) {
        if let Some(begun) = found.get(1) {
            begun.as_str().clone_into(&mut suite);
            continue;
        }
        let (result, case) = (&found[2], &found[3]);
        let skipped = result == "SKIPPED";
        if skipped && !suite.ends_with(LIVE) {
            let name = format!("{suite}.{case}");
            let reason = reasons.get(&name).map(|reason| format!(": {reason}"));
            tally.skipped.push(name + &reason.unwrap_or_default());
            continue;
        }
        idle += usize::from(skipped);
        let test = match shared.get(&suite) {
            Some(path) => format!("{path}{case}"),
            None => format!("{suite}.{case}"),
        };
        tally.run(&test, case, result == "PASSED");
    }
    // Results that a plan has announced and that never came are errors.
    let failed = of("failed")? + of("crashed")? + of("errors")? + idle;
    for n in tally.failed.len()..failed {
        tally.count(&format!("error {n} of KUnit"), false);
    }
    let told = (of("passed")?, of("skipped")?);
    let read = (tally.passed, tally.skipped.len() + idle);
    ensure!(read == told, "{read:?} passed and skipped, not {told:?}");
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
        let text = "\
[12:00:00] ================== one (3 subtests) ==================
[12:00:00] [\x1b[1;32mPASSED\x1b[0m] a
[12:00:00] [\x1b[1;31mFAILED\x1b[0m] c
[12:00:00] [\x1b[1;33mSKIPPED\x1b[0m] d (no faults)
[12:00:00] ===================== [FAILED] one =====================
[12:00:00] ================== two (1 subtest) ==================
[12:00:00] [PASSED] a
[12:00:00] Testing complete. Ran 4 tests: passed: 2, failed: 1, skipped: 1
";
        let shared = Suites::from([("two".to_owned(), "proto flow::tests::".to_owned())]);
        let document = "KTAP version 1\n1..2\n    # Subtest: one\n    ok 3 d # SKIP no faults\nok 1 one\n    # Subtest: two\n";
        let reasons = reasons(document).expect("a pattern");
        let tally = counts(text, &shared, &reasons).expect("a summary");
        assert_eq!(
            (tally.passed, &*tally.failed, &*tally.skipped),
            (
                2,
                &["c".to_owned()][..],
                &["one.d: no faults".to_owned()][..]
            )
        );
        let mut host = Tally::default();
        host.run("proto flow::tests::a", "flow::tests::a", true);
        host.add("kunit", tally);
        assert!(
            host.summary().ends_with("\n2 passed, 1 failed"),
            "{}",
            host.summary()
        );
        let live = text.replace(" one ", " one_live ");
        let tally = counts(&live, &shared, &reasons).expect("a summary");
        assert_eq!(
            (tally.passed, &*tally.failed, tally.skipped.len()),
            (2, &["c".to_owned(), "d".to_owned()][..], 0)
        );
        let missing = text.replace("skipped: 1", "skipped: 1, errors: 2");
        let tally = counts(&missing, &shared, &reasons).expect("a summary");
        assert_eq!(tally.failed.len(), 3, "{tally:?}");
        let none = "Testing complete. Ran 0 tests: errors: 1";
        for wrong in [&*text.replace("[PASSED] a", ""), "nothing", none] {
            counts(wrong, &shared, &reasons).expect_err("a result is lost, or there is none");
        }
    }

    #[test]
    fn suites_that_the_host_has() {
        let source = "#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(a_b))]\n\
                      #[cfg_attr(not(CONFIG_KUNIT), cfg(test))]\nmod tests {\n";
        assert_eq!(suites_of(source).expect("a pattern"), ["a_b"]);
        assert!(
            suites_of("#[kunit_tests(c)]\nmod tests {")
                .expect("a pattern")
                .is_empty()
        );
    }
}
