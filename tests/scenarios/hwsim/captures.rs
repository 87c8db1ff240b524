// SPDX-License-Identifier: GPL-2.0

//! Captures at an HCA, read by a program that knows nothing but the file format and the headers' figures.

use super::fabric::CONFIGFS;
use super::rc::connect;
use super::{EXCLUSIVE, ipoib_up};
use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::scenario;
use std::collections::BTreeMap;

const READ: &str = include_str!("../../guest/hwsim/captures/read.py");

fn read(host: &Host, hca: &str) -> Result<BTreeMap<String, u64>> {
    let file = format!("{CONFIGFS}/pair/hcas/{hca}/capture.pcap");
    let text = host.python(READ, &[&file])?.ok()?;
    text.lines()
        .map(|line| {
            let (name, number) = line.split_once(' ').with_context(|| line.to_owned())?;
            Ok((name.to_owned(), number.parse()?))
        })
        .collect()
}

scenario! {
    /// A capture has what passed the HCA, whole and well-formed, datagrams as well as a connection's packets; when
    /// there is no room it counts the rest, and when it is off it takes nothing.
    #[on(lockdep)]
    fn captures_have_what_passed(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = ipoib_up(&bed, "pair")?;
        let (a, b) = bed.pair()?;
        let outside = a.outside();
        let dir = format!("{CONFIGFS}/pair/hcas");
        ensure!(read(&outside, "h1")?.is_empty(), "it is off");
        outside.ok(&format!("echo 1000000 >{dir}/h1/capture && echo 3000 >{dir}/h2/capture"))?;
        a.ok(&format!("ping -q -c 5 -i 0.05 -W 5 {}", b.ip4()))?;
        a.ok("smpquery -C hwsim0 -P 1 -D nodeinfo 0,1")?;
        let seen = read(&outside, "h1")?;
        let number = |key: &str| seen.get(key).copied().unwrap_or(0);
        ensure!(number("echo") == 5 && number("reply") == 5 && number("smp") >= 2, "{seen:?}");
        ensure!(outside.ok(&format!("cat {dir}/h1/capture_dropped"))?.trim() == "0");

        // There is room for no more than some of them.
        ensure!(read(&outside, "h2")?.contains_key("all"));
        let dropped: u64 = outside.ok(&format!("cat {dir}/h2/capture_dropped"))?.trim().parse()?;
        ensure!(dropped > 0);
        outside.ok(&format!("echo 0 >{dir}/h2/capture"))?;
        a.ok(&format!("ping -q -c 2 -i 0.05 -W 5 {}", b.ip4()))?;
        ensure!(read(&outside, "h2")?.is_empty(), "it is off again");

        connect(&bed)?;
        a.ok(&format!("ping -q -c 2 -i 0.05 -W 5 -s 60000 {}", b.ip4()))?;
        outside.ok(&format!("echo 4000000 >{dir}/h1/capture"))?;
        a.ok(&format!("ping -q -c 3 -i 0.05 -W 5 -s 60000 {}", b.ip4()))?;
        let seen = read(&outside, "h1")?;
        let number = |key: &str| seen.get(key).copied().unwrap_or(0);
        ensure!(number("send") >= 2 * 3 * 15 && number("ack") >= 6, "{seen:?}");

        for bad in ["-1", "67108865", "x", ""] {
            outside.run(&format!("echo '{bad}' >{dir}/h1/capture"))?.refused()?;
        }
        manager.end()?;
        bed.finish()
    }
}
