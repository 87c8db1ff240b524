// SPDX-License-Identifier: GPL-2.0

//! Page `papers`: the tables and figures that papers on IP over InfiniBand and on sockets over RDMA show, by netperf,
//! iperf3, nginx and wrk, all as Debian has them. This driver and the kernel's own `ib_ipoib` are on the HCAs of the page
//! `ib`; plain Ethernet is a veth between the same hosts.

use super::Options;
use super::case::{iperf3_received, netperf};
use super::fabric::name;
use super::ib::{DATAGRAM, LARGE, Mode, PAIR, Rig, Side};
use super::plot::{Line, Plot};
use super::report::{Record, Report};
use super::statistics::Pairs;
use crate::bed::Builder;
use crate::machine::Lane;
use crate::step::say;
use crate::task::Task;
use anyhow::{Context, Result, ensure};
use regex::Regex;

/// The page's name in reports.
const PAGE: &str = "papers";
/// How long a point is measured, by the guest's clock.
const SECONDS: u32 = 1;
/// Duration of a point with files, which may take long.
const FILE_SECONDS: u32 = 2;

/// Modes: what their cases end in.
const MODES: [(&str, Mode); 2] = [
    ("ud", Mode("datagram", DATAGRAM)),
    ("rc", Mode("connected", LARGE)),
];

/// The three ways, as they are called in plots.
const SIDES: [(Side, &str); 3] = [
    (Side::Ours, "ours"),
    (Side::Peer, "ib_ipoib"),
    (Side::Ethernet, "Ethernet"),
];

/// A table or figure: a workload, measured at several points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Figure {
    /// TCP throughput over the size of the writes.
    Stream,
    /// Half a TCP round trip over the size of both messages.
    Latency,
    /// TCP throughput over the number of connections.
    Connections,
    /// Throughput of a web server over the size of a file.
    Files,
}

impl Figure {
    const ALL: [Figure; 4] = [
        Figure::Stream,
        Figure::Latency,
        Figure::Connections,
        Figure::Files,
    ];

    fn name(self) -> &'static str {
        match self {
            Figure::Stream => "stream",
            Figure::Latency => "latency",
            Figure::Connections => "connections",
            Figure::Files => "files",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Figure::Stream => "netperf TCP_STREAM, one connection",
            Figure::Latency => "netperf TCP_RR, half a round trip",
            Figure::Connections => "iperf3, TCP",
            Figure::Files => "nginx and wrk, one connection",
        }
    }

    /// Quantity on the x axis.
    fn x(self) -> &'static str {
        match self {
            Figure::Stream | Figure::Latency => "bytes of a message",
            Figure::Connections => "connections",
            Figure::Files => "bytes of a file",
        }
    }

    fn points(self) -> Vec<u32> {
        match self {
            Figure::Stream | Figure::Latency => (1..=20).map(|n| 1 << n).collect(),
            Figure::Connections => (1..=10).collect(),
            Figure::Files => (3..=8).map(|n| 10_u32.pow(n)).collect(),
        }
    }

    fn unit(self, lane: Lane) -> &'static str {
        match (self, lane) {
            (Figure::Latency, Lane::Uml) => "us",
            (Figure::Latency, Lane::Qemu) => "1000 instructions",
            (_, Lane::Uml) => "Mbit/s",
            (_, Lane::Qemu) => "Mbit per 10^9 instructions",
        }
    }

    /// Above 1 if ours is better.
    fn ratio(self, ours: f64, peer: f64) -> f64 {
        match self {
            Figure::Latency => peer / ours,
            _ => ours / peer,
        }
    }

    /// The client's command.
    fn command(self, to: &str, x: u32) -> String {
        let netperf = format!("netperf -P 0 -H {to} -l {SECONDS}");
        match self {
            Figure::Stream => {
                format!("{netperf} -t TCP_STREAM -f m -- -m {x} -k REMOTE_RECV_THROUGHPUT")
            }
            Figure::Latency => format!("{netperf} -t TCP_RR -- -r {x},{x} -k TRANSACTION_RATE"),
            Figure::Connections => format!("iperf3 -c {to} -t {SECONDS} -P {x} -J"),
            Figure::Files => {
                format!("wrk -t 1 -c 1 -d {FILE_SECONDS}s --timeout 60s http://{to}/{x}")
            }
        }
    }

    /// Figure in the client's report.
    fn value(self, text: &str) -> Result<f64> {
        let value = match self {
            Figure::Stream => netperf(text, "REMOTE_RECV_THROUGHPUT"),
            Figure::Latency => netperf(text, "TRANSACTION_RATE").map(|rate| 1e6 / (2.0 * rate)),
            Figure::Connections => iperf3_received(text),
            Figure::Files => wrk_transferred(text),
        }
        .with_context(|| text.to_owned())?;
        ensure!(value.is_finite() && value > 0.0, "nothing arrived\n{text}");
        Ok(value)
    }

    /// Measures all points in the mode that both drivers have.
    fn measure(
        self,
        rig: &Rig,
        case: &str,
        options: &Options,
        report: &mut Report,
    ) -> Result<Plot> {
        let lane = rig.lane();
        let unit = self.unit(lane);
        let once = |side: Side, x| {
            let text = rig.run(&self.command(&rig.address(side)?, x))?;
            self.value(&text)
                .with_context(|| format!("{case} {x}, {side:?}"))
        };
        let mut lines = SIDES.map(|_| Vec::new());
        for x in self.points() {
            let mut pairs = Pairs::default();
            for n in 0..options.pairs {
                let (ours, peer) = (once(Side::Ours, x)?, once(Side::Peer, x)?);
                pairs.add(ours, peer, self.ratio(ours, peer));
                // A landmark only: every other time will do.
                if n % 2 == 0 {
                    pairs.add_ceiling(once(Side::Ethernet, x)?);
                }
            }
            let medians =
                [pairs.ours(), pairs.peer(), pairs.ceiling()].map(Option::unwrap_or_default);
            say(&format!(
                "{} {case} {x}: ours {:.1}, ib_ipoib {:.1}, Ethernet {:.1} {unit}",
                name(lane),
                medians[0],
                medians[1],
                medians[2]
            ));
            for (line, y) in lines.iter_mut().zip(medians) {
                line.push((f64::from(x), y));
            }
            let record = Record::new(PAGE, case, name(lane), unit, &pairs);
            report.results.push(record.at(x));
        }
        let lines = SIDES.iter().zip(lines);
        Ok(Plot {
            page: PAGE.into(),
            lane: name(lane).into(),
            name: case.into(),
            title: self.title().into(),
            x: self.x().into(),
            y: unit.into(),
            log: self != Figure::Connections,
            lines: lines
                .map(|((_, name), points)| Line::new(name, points))
                .collect(),
        })
    }
}

/// Measures the page.
pub(super) fn page(bed: &Builder, options: &Options, report: &mut Report) -> Result<()> {
    for figure in Figure::ALL {
        for (suffix, mode) in MODES {
            let case = format!("{}_{suffix}", figure.name());
            if !options.includes(&case) {
                continue;
            }
            // Machines of its own: a machine does not live for hours.
            let rig = Rig::up(bed, PAIR, true)?;
            report.kernel = rig.release()?;
            let _server = (figure == Figure::Files).then(|| serve(&rig)).transpose()?;
            for side in [Side::Ours, Side::Peer] {
                rig.mode(side, mode)?;
            }
            let mut plot = figure.measure(&rig, &case, options, report)?;
            plot.title = format!("{}, {} mode", plot.title, mode.0);
            report.plots.push(plot);
            rig.finish()?;
            report.keep()?;
        }
    }
    Ok(())
}

/// A web server of files that are named by their sizes. All its own files are in memory.
const NGINX: &str = "daemon off;
master_process off;
pid /tmp/papers/pid;
events { }
http {
	access_log off;
	keepalive_requests 1000000;
	client_body_temp_path /tmp/papers/body;
	proxy_temp_path /tmp/papers/proxy;
	fastcgi_temp_path /tmp/papers/fastcgi;
	uwsgi_temp_path /tmp/papers/uwsgi;
	scgi_temp_path /tmp/papers/scgi;
	sendfile on;
	server {
		listen 80;
		root /tmp/papers/files;
	}
}";

/// Starts the web server on the second host.
fn serve(rig: &Rig) -> Result<Task> {
    let mut script = format!(
        "set -e\nmkdir -p /tmp/papers/files\ncat >/tmp/papers/conf <<'END'\n{NGINX}\nEND\n"
    );
    for size in Figure::Files.points() {
        script += &format!("head -c {size} /dev/zero >/tmp/papers/files/{size}\n");
    }
    rig.serve(&script, "nginx -e stderr -c /tmp/papers/conf", 80)
}

/// Rate of the transfer by wrk's report, in Mbit/s; HTTP's headers count.
fn wrk_transferred(text: &str) -> Result<f64> {
    for failure in ["Socket errors", "Non-2xx"] {
        ensure!(!text.contains(failure), "not all requests were answered");
    }
    let pattern = Regex::new(r"Transfer/sec:\s+([0-9.]+)(|K|M|G|T)B").context("a pattern")?;
    let found = pattern.captures(text).context("no Transfer/sec")?;
    let power = ["", "K", "M", "G", "T"]
        .iter()
        .position(|prefix| *prefix == &found[2])
        .context("a prefix")?;
    let value: f64 = found[1].parse()?;
    Ok(value * 1024_f64.powi(i32::try_from(power)?) * 8.0 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::{Figure, MODES, wrk_transferred};

    #[test]
    fn points_are_those_of_the_papers() {
        let ends = |figure: Figure| {
            let points = figure.points();
            (points.len(), points[0], points[points.len() - 1])
        };
        assert_eq!(ends(Figure::Stream), (20, 2, 1 << 20));
        assert_eq!(ends(Figure::Latency), (20, 2, 1 << 20));
        assert_eq!(ends(Figure::Connections), (10, 1, 10));
        assert_eq!(ends(Figure::Files), (6, 1_000, 100_000_000));
        assert_eq!(MODES.map(|mode| mode.0), ["ud", "rc"]);
    }

    #[test]
    fn reports_of_wrk() {
        let report = |rate: &str| {
            format!(
                "Running 2s test @ http://10.1.0.2/1000\n  1 threads and 1 connections\n\
                 Requests/sec:   3025.25\nTransfer/sec:      {rate}\n"
            )
        };
        for (rate, mbit) in [
            ("1.50MB", 1.5 * 1.048_576 * 8.0),
            ("512.00KB", 512.0 * 1024.0 * 8.0 / 1e6),
            ("2.00GB", 2.0 * 1_073.741_824 * 8.0),
            ("1000.00B", 0.008),
        ] {
            let value = wrk_transferred(&report(rate)).expect("a rate");
            assert!((value - mbit).abs() < 1e-9, "{rate}: {value}");
        }
        for line in [
            "  Non-2xx or 3xx responses: 3",
            "  Socket errors: connect 0, read 0, write 0, timeout 1",
        ] {
            wrk_transferred(&(report("1.50MB") + line)).expect_err("a failure");
        }
        wrk_transferred("unable to connect to 10.1.0.2:80").expect_err("no rate");
    }

    #[test]
    fn values_and_ratios() {
        let half = Figure::Latency.value("TRANSACTION_RATE=25000.00\n");
        assert!((half.expect("is there") - 20.0).abs() < 1e-9);
        Figure::Latency
            .value("TRANSACTION_RATE=0.00\n")
            .expect_err("no transaction");
        let rate = Figure::Stream.value("REMOTE_RECV_THROUGHPUT=941.5\n");
        assert!((rate.expect("is there") - 941.5).abs() < 1e-9);
        Figure::Stream
            .value("REMOTE_RECV_THROUGHPUT=0.00\n")
            .expect_err("nothing arrived");
        // Ours takes half of the time, or carries twice as much.
        for (figure, ours, peer) in [
            (Figure::Latency, 10.0, 20.0),
            (Figure::Stream, 20.0, 10.0),
            (Figure::Connections, 20.0, 10.0),
            (Figure::Files, 20.0, 10.0),
        ] {
            assert!((figure.ratio(ours, peer) - 2.0).abs() < 1e-9, "{figure:?}");
        }
    }
}
