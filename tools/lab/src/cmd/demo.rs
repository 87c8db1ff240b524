// SPDX-License-Identifier: GPL-2.0

//! `make demo`: two virtual machines with a kernel each talk IP over InfiniBand over soft-RoCE.

use crate::bed::{Bed, Builder};
use crate::layout::Layout;
use crate::machine::{Kernel, Lane};
use crate::step::say;
use crate::stock::{self, Modules};
use anyhow::{Context, Result};
use comfy_table::{Attribute, Cell, Color, Table, presets};
use regex::Regex;
use std::time::{Duration, Instant};

/// One row of the demo's table.
pub struct Row {
    /// The name of what was tried.
    pub what: &'static str,
    /// A figure, or why there is none.
    pub result: Result<String>,
}

/// Runs the demo.
pub fn run(layout: &Layout) -> Result<()> {
    say("no kernel is compiled: the demo runs Debian's own");
    stock::ensure(layout, Modules::Driver)?;
    let start = Instant::now();
    let mut steps = Steps::default();
    say("boot two virtual machines");
    let bed = Builder::new("demo", Lane::Qemu, Kernel::Stock).up()?;
    steps.done("boot");
    say("bring soft-RoCE and ib0 up on both");
    bed.ib()?;
    steps.done("soft-RoCE and ib0");
    say("talk");
    let rows = rows(&bed)?;
    steps.done("traffic");
    let good = rows.iter().all(|r| r.result.is_ok());
    print(&bed, rows)?;
    bed.finish()?;
    println!(
        "the machines ran for {:.0} s: {}",
        start.elapsed().as_secs_f32(),
        steps.text()
    );
    anyhow::ensure!(
        good,
        "not all of it worked; consoles: {}",
        layout.build().join("logs").display()
    );
    println!(
        "\nNext:  make shell    a shell on a host with ib0 up\n       \
         make test     unit tests, lint, and scenarios in User Mode Linux\n       \
         make help     everything else"
    );
    Ok(())
}

/// How long each step has taken.
struct Steps {
    last: Instant,
    texts: Vec<String>,
}

impl Default for Steps {
    fn default() -> Steps {
        Steps {
            last: Instant::now(),
            texts: Vec::new(),
        }
    }
}

impl Steps {
    fn done(&mut self, what: &str) {
        let took = self.last.elapsed().as_secs_f32();
        self.texts.push(format!("{what} {took:.0} s"));
        self.last = Instant::now();
    }

    fn text(&self) -> String {
        self.texts.join(", ")
    }
}

/// Has the first two hosts talk by `ib0`.
///
/// # Errors
///
/// Those of the programs that watch; the others' are in the rows.
pub fn rows(bed: &Bed) -> Result<Vec<Row>> {
    let (a, b) = bed.pair()?;
    let capture = a.spawn("tcpdump -i ib0 -n -l -c 2 arp")?;
    capture.wait_for("listening", a.scaled(Duration::from_secs(10)))?;
    let ping4 = a
        .ok(&format!("ping -c 3 -i 0.2 -W 5 {}", b.ip4()))
        .and_then(|t| ping(&t));
    let arp = capture
        .wait(a.scaled(Duration::from_secs(5)))
        .and_then(|o| first_match(&o.stdout, r"(?m)(ARP, Reply.*)$"));
    let ping6 = a
        .ok(&format!("ping -6 -c 3 -i 0.2 -W 5 {}", b.ip6()))
        .and_then(|t| ping(&t));
    let large = a
        .ok(&format!("ping -c 2 -i 0.2 -W 5 -s 65507 {}", b.ip4()))
        .and_then(|t| ping(&t));
    let neighbour = a
        .ok("ip neigh show dev ib0")
        .and_then(|t| first_match(&t, r"lladdr (\S+)"));
    let server = b.spawn("iperf3 -s -1 --forceflush")?;
    server.wait_for("listening", b.scaled(Duration::from_secs(10)))?;
    let tcp = a
        .run_for(
            &format!("iperf3 -c {} -t 3 -f m", b.ip4()),
            Duration::from_secs(15),
        )
        .and_then(crate::machine::Output::ok)
        .and_then(|t| first_match(&t, r"([\d.]+ Mbits/sec).*receiver"));
    // It waits for a client, which may have failed.
    server.end()?;
    let counters = a.ok("ip -s link show ib0").and_then(|t| {
        let r = Regex::new(r"(?s)RX:.*?\n\s*(\d+)\s+(\d+).*?TX:.*?\n\s*(\d+)\s+(\d+)")?;
        let c = r.captures(&t).context("no counters")?;
        Ok(format!("{} packets received, {} sent", &c[2], &c[4]))
    });
    Ok(vec![
        Row {
            what: "ARP over the broadcast group",
            result: arp,
        },
        Row {
            what: "neighbour's 20-byte address",
            result: neighbour,
        },
        Row {
            what: "ping, IPv4",
            result: ping4,
        },
        Row {
            what: "ping, IPv6",
            result: ping6,
        },
        Row {
            what: "ping, 65507 bytes",
            result: large,
        },
        Row {
            what: "TCP, iperf3, 3 s",
            result: tcp,
        },
        Row {
            what: "ib0 counters",
            result: counters,
        },
    ])
}

/// ping's round-trip line; an error if anything was lost.
fn ping(text: &str) -> Result<String> {
    let loss = first_match(text, r"(\d+)% packet loss")?;
    anyhow::ensure!(loss == "0", "{loss}% lost");
    Ok(format!(
        "{} ms",
        first_match(text, r"rtt [^=]*= [\d.]+/([\d.]+)/")?
    ))
}

fn first_match(text: &str, pattern: &str) -> Result<String> {
    let regex = Regex::new(pattern)?;
    let captures = regex
        .captures(text)
        .with_context(|| format!("nothing seen in: {text}"))?;
    Ok(captures[1].to_owned())
}

fn print(bed: &Bed, rows: Vec<Row>) -> Result<()> {
    let (a, b) = bed.pair()?;
    let link = a.ok("ip -d link show ib0")?;
    let mtu = first_match(&link, r"mtu (\d+)")?;
    let kernel = a.ok("uname -r")?;
    println!(
        "\n  {} {}  <-- ib0, MTU {mtu}, over soft-RoCE -->  {} {}     Linux {}\n",
        a.ip4(),
        a.ip6(),
        b.ip4(),
        b.ip6(),
        kernel.trim()
    );
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED);
    table.set_header(["", "what", "result"].map(|t| Cell::new(t).add_attribute(Attribute::Bold)));
    for Row { what, result } in rows {
        let (mark, color, text) = match result {
            Ok(text) => ("ok", Color::Green, text),
            Err(e) => ("failed", Color::Red, format!("{e:#}")),
        };
        table.add_row([Cell::new(mark).fg(color), Cell::new(what), Cell::new(text)]);
    }
    println!("{table}\n");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::ping;

    #[test]
    fn pings_are_read() {
        let text = "3 packets transmitted, 3 received, 0% packet loss, time 2ms\nrtt min/avg/max/mdev = 0.1/0.25/0.3/0.0 ms\n";
        assert_eq!(ping(text).expect("a round trip"), "0.25 ms");
        ping("3 packets transmitted, 2 received, 33% packet loss").expect_err("a loss");
    }
}
