// SPDX-License-Identifier: GPL-2.0

//! Memory that comes free through an interface: a host swaps to a disk behind NVMe over TCP, so that each page that is to
//! leave its memory is sent by this driver.

use crate::order::counter;
use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::scenario;
use std::time::Duration;

const SERVE: &str = include_str!("../guest/storage/serve.sh");
const FILL: &str = include_str!("../guest/swap/fill.py");
const DISK: &str = "/dev/nvme0n1";
/// Memory of a host, in MiB.
const MEMORY: u32 = 768;
/// Memory that a host has to swap, in MiB.
const SWAPPED: u64 = 64;

/// Bytes that a host's interface has sent so far.
fn sent(host: &Host) -> Result<u64> {
    let text = host.ok("cat /sys/class/net/ib0/statistics/tx_bytes")?;
    text.trim().parse().context("tx_bytes")
}

/// Fills a host's memory and more; the pages that had to leave it come back as they were.
fn fill(host: &Host) -> Result<()> {
    let before = sent(host)?;
    let program = host.spawn_python(FILL, &[&SWAPPED.to_string()])?;
    program.wait(host.scaled(Duration::from_secs(60)))?.ok()?;
    let by_interface = sent(host)? - before;
    ensure!(by_interface > SWAPPED << 20, "{by_interface} bytes");
    Ok(())
}

scenario! {
    /// A host whose memory is short swaps through its interface in either mode, and finds what it wrote.
    #[on(stock)]
    fn a_host_swaps_through_its_interface(bed) {
        let bed = bed.memory(MEMORY).lifetime(Duration::from_secs(480)).up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        b.sh(SERVE, &["tcp", &b.ip4(), "256"])?;
        a.ok(&format!(
            "modprobe nvme-tcp && nvme connect -t tcp -a {} -s 4420 -n disk -i 1",
            b.ip4()
        ))?;
        a.wait_until(&format!("test -b {DISK}"), Duration::from_secs(10))?;
        a.ok(&format!("mkswap {DISK} && swapon {DISK}"))?;
        for mode in ["datagram", "connected"] {
            for host in [a, b] {
                host.ok(&format!("echo {mode} >/sys/class/net/ib0/mode"))?;
            }
            let before = counter(a, "rc_tx_frames")?;
            fill(a).context(mode)?;
            let by_connection = counter(a, "rc_tx_frames")? > before;
            ensure!(by_connection == (mode == "connected"), "{mode}: {by_connection}");
        }
        a.run_for(&format!("swapoff {DISK} && nvme disconnect -n disk"), Duration::from_secs(60))?.ok()?;
        bed.finish()
    }
}
