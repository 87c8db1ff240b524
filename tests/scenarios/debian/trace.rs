// SPDX-License-Identifier: GPL-2.0

//! bpftrace on the driver's tracepoints, with the command of using.rst.

use super::programs::root_with;
use anyhow::{Context, Result};
use lab::layout::Layout;
use lab::scenario;
use std::time::Duration;

/// The command of using.rst that begins with `bpftrace`, of two lines.
fn command() -> Result<String> {
    let file = Layout::from_env()?.checkout.join("Documentation/using.rst");
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let mut lines = text.lines().map(str::trim);
    let first = lines.find_map(|line| line.strip_prefix("# bpftrace"));
    let [first, second] = [first, lines.next()].map(|line| line.context("no command"));
    Ok(format!("bpftrace{}\n{}", first?, second?))
}

scenario! {
    /// bpftrace prints the life of a path.
    #[on(stock)]
    fn bpftrace_follows_a_path(bed) {
        let root = root_with(&["bpftrace", "bpftool"])?;
        let command = command()?;
        let bed = bed.debian(&[&root, &root]).up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        let trace = a.spawn(&format!("{command} >/tmp/trace 2>&1"))?;
        // It takes a while to compile, and says so before.
        let attached = "[ $(bpftool -j prog show | grep -o tracepoint | wc -l) -ge 3 ]";
        a.wait_until(attached, Duration::from_secs(60))
            .with_context(|| a.run("cat /tmp/trace").map_or_else(|e| e.to_string(), |o| o.describe()))?;
        a.ok(&format!("ping -c 1 -W 5 {}", b.ip4()))?;
        for line in ["ib0 new idle", "ib0 asked resolving", "ib0 answered ready"] {
            a.wait_until(&format!("grep -qx '{line}' /tmp/trace"), Duration::from_secs(10))
                .with_context(|| a.run("cat /tmp/trace").map_or_else(|e| e.to_string(), |o| o.describe()))?;
        }
        trace.stop()?;
        bed.finish()
    }
}
