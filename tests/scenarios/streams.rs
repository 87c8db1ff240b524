// SPDX-License-Identifier: GPL-2.0

//! iperf3: TCP and UDP streams.

use anyhow::{Context, Result, ensure};
use lab::bed::{Bed, Host, Netem};
use lab::machine::Lane;
use lab::scenario;
use serde_json::Value;
use std::time::Duration;

/// Runs iperf3 from the first host to the second; its JSON report.
pub(crate) fn iperf3(bed: &Bed, target: &str, options: &str) -> Result<Value> {
    let (a, b) = bed.pair()?;
    let server = b.spawn("iperf3 -s -1 --forceflush")?;
    server.wait_for("Server listening", b.scaled(Duration::from_secs(10)))?;
    let seconds = match bed.builder().lane() {
        Lane::Uml => 1,
        Lane::Qemu => 2,
    };
    let client = a.run_for(
        &format!("iperf3 -J -t {seconds} {options} -c {target}"),
        Duration::from_secs(20),
    )?;
    let report: Value = serde_json::from_str(&client.stdout).with_context(|| client.describe())?;
    server.wait(b.scaled(Duration::from_secs(10)))?.ok()?;
    Ok(report["end"].clone())
}

fn number(end: &Value, path: &str) -> Result<f64> {
    end.pointer(path)
        .and_then(Value::as_f64)
        .with_context(|| format!("no {path} in {end}"))
}

/// Datagrams that a host dropped since nobody read them: the socket's buffer was full.
fn socket_full(host: &Host) -> Result<f64> {
    let text = host.ok("grep ^Udp: /proc/net/snmp")?;
    let (names, values) = text.trim().split_once('\n').context("two lines")?;
    let mut both = names.split_whitespace().zip(values.split_whitespace());
    let (_, value) = both
        .find(|(name, _)| *name == "RcvbufErrors")
        .context("RcvbufErrors")?;
    Ok(value.parse()?)
}

scenario! {
    /// TCP over IPv4 and IPv6, one stream and four, forwards and backwards.
    #[on(both, infiniband)]
    fn tcp(bed) {
        // Emulated and with everything checked, two streams at a time get some 2 Mbit/s each.
        let slow = bed.lane() == Lane::Qemu && bed.kernel().is_checked();
        let least = if slow { 1e5 } else { 1e6 };
        let bed = bed.up()?;
        bed.ib()?;
        let (_, b) = bed.pair()?;
        for (target, options) in [
            (b.ip4(), ""),
            (b.ip6(), ""),
            (b.ip4(), "-P 4"),
            (b.ip4(), "-R"),
            (b.ip4(), "--bidir"),
        ] {
            let end = iperf3(&bed, &target, options)?;
            ensure!(number(&end, "/sum_received/bytes")? > least, "{options}: {end}");
        }
        bed.finish()
    }
}

scenario! {
    /// UDP at a rate that any lane carries: nothing is lost, and nothing is out of order.
    #[on(infiniband)]
    fn udp(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (_, b) = bed.pair()?;
        for (size, rate) in [(64, "500K"), (1400, "4M"), (4000, "4M")] {
            let before = socket_full(b)?;
            let end = iperf3(&bed, &b.ip4(), &format!("-u -b {rate} -l {size}"))?;
            let packets = number(&end, "/sum/packets")?;
            ensure!(packets > 100.0, "{end}");
            // On a busy machine the receiver may not come to read its socket in time. Of what is lost at the end,
            // iperf3 does not know.
            let full = socket_full(b)? - before;
            let lost = number(&end, "/sum/lost_packets")?;
            let disorder = number(&end, "/streams/0/udp/out_of_order")?;
            ensure!(lost <= full && disorder == 0.0, "{size} bytes: {lost} lost, {full} at the socket: {end}");
        }
        bed.finish()
    }
}

scenario! {
    /// TCP gets through a wire that delays, loses, duplicates and corrupts.
    fn tcp_on_a_bad_wire(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        for host in [a, b] {
            host.netem(Netem {
                delay_ms: 2,
                jitter_ms: 1,
                loss: 0.5,
                duplicate: 1.0,
                corrupt: 0.5,
                ..Netem::default()
            })?;
        }
        let end = iperf3(&bed, &b.ip4(), "-t 2")?;
        ensure!(number(&end, "/sum_received/bytes")? > 1e5, "{end}");
        bed.finish()
    }
}
