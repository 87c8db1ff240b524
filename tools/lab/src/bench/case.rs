// SPDX-License-Identifier: GPL-2.0

//! Cases of a page: the measurements.

use super::rig::{Rig, Side};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fmt;

/// A workload between two hosts; each gives a rate, and more is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Case {
    /// One TCP stream.
    Tcp1,
    /// Four TCP streams at once.
    Tcp4,
    /// UDP datagrams of 64 bytes, as fast as they go: those that arrive count.
    Udp64,
    /// One byte there, one back, over TCP.
    TcpRr,
}

impl Case {
    pub(super) const ALL: [Case; 4] = [Case::Tcp1, Case::Tcp4, Case::Udp64, Case::TcpRr];

    pub(super) fn name(self) -> &'static str {
        match self {
            Case::Tcp1 => "tcp_1",
            Case::Tcp4 => "tcp_4",
            Case::Udp64 => "udp_64",
            Case::TcpRr => "tcp_rr",
        }
    }

    pub(super) fn unit(self, rig: &Rig) -> String {
        let what = match self {
            Case::Tcp1 | Case::Tcp4 => "Mbit",
            Case::Udp64 => "packets",
            Case::TcpRr => "transactions",
        };
        format!("{what}{}", rig.per())
    }

    /// The client's command.
    pub(super) fn script(self, rig: &Rig, side: Side) -> Result<String> {
        let (to, seconds) = (rig.address(side)?, rig.seconds());
        Ok(match self {
            Case::Tcp1 => format!("iperf3 -c {to} -t {seconds} -J"),
            Case::Tcp4 => format!("iperf3 -c {to} -t {seconds} -P 4 -J"),
            Case::Udp64 => format!(
                "netperf -P 0 -H {to} -t UDP_STREAM -l {seconds} -- -m 64 -R 1 -k REMOTE_RECV_CALLS,ELAPSED_TIME"
            ),
            Case::TcpRr => {
                format!("netperf -P 0 -H {to} -t TCP_RR -l {seconds} -- -r 1,1 -k TRANSACTION_RATE")
            }
        })
    }

    /// One measurement.
    pub(super) fn measure(self, rig: &Rig, side: Side) -> Result<f64> {
        let script = self.script(rig, side)?;
        let text = rig.client(&script)?;
        let rate = match self {
            Case::Tcp1 | Case::Tcp4 => iperf3_received(&text),
            Case::Udp64 => netperf(&text, "REMOTE_RECV_CALLS")
                .and_then(|n| Ok(n / netperf(&text, "ELAPSED_TIME")?)),
            Case::TcpRr => netperf(&text, "TRANSACTION_RATE"),
        }
        .with_context(|| format!("{self}, {side}: {script}\n{text}"))?;
        ensure!(
            rate.is_finite() && rate > 0.0,
            "{self}, {side}: nothing arrived\n{text}"
        );
        Ok(rate)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Throughput at the receiver, in Mbit/s, of all streams together.
pub(super) fn iperf3_received(text: &str) -> Result<f64> {
    let report: Value = serde_json::from_str(text).context("iperf3's report")?;
    let bits = report["end"]["sum_received"]["bits_per_second"].as_f64();
    Ok(bits.context("no sum_received")? / 1e6)
}

/// One of the values that netperf was asked for with -k.
pub(super) fn netperf(text: &str, name: &str) -> Result<f64> {
    text.lines()
        .find_map(|line| {
            line.strip_prefix(name)?
                .strip_prefix('=')?
                .trim()
                .parse()
                .ok()
        })
        .with_context(|| format!("no {name}"))
}

#[cfg(test)]
mod tests {
    use super::{iperf3_received, netperf};

    #[test]
    fn iperf3_report() {
        let text = r#"{"end": {"sum_sent": {"bits_per_second": 9e8}, "sum_received": {"bits_per_second": 8.5e8}}}"#;
        assert!((iperf3_received(text).expect("is there") - 850.0).abs() < 1e-9);
        iperf3_received(r#"{"error": "unable to connect"}"#).expect_err("tells no rate");
    }

    #[test]
    fn netperf_values() {
        let text = "REMOTE_RECV_CALLS=120\nELAPSED_TIME=1.50\n";
        assert!((netperf(text, "ELAPSED_TIME").expect("is there") - 1.5).abs() < 1e-9);
        netperf(text, "ELAPSED").expect_err("is another name");
    }
}
