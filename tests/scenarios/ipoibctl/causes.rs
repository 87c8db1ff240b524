// SPDX-License-Identifier: GPL-2.0

//! Causes that are brought about in guests, one at a time and in pairs.
//!
//! A guest is made to have many of them, one after the other, since each takes a few runs of the tool only. What doctor
//! says mends a cause has to mend it.

mod infiniband;
mod roce;

use super::{LIMIT, ask, until, well};
use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::layout::Layout;
use lab::scenario;
use serde_json::Value;
use std::collections::BTreeSet;

/// A cause, and how it comes about.
struct Injection<'a> {
    cause: &'static str,
    /// The host that it comes about on; it may be another one than doctor's.
    on: &'a Host,
    breaks: String,
    /// Command that mends it, if doctor's is for people or there is none.
    by_hand: String,
    /// A condition on doctor's host which is waited for after either.
    then: String,
}

impl<'a> Injection<'a> {
    /// One that doctor's own command mends.
    fn new(on: &'a Host, cause: &'static str, breaks: impl Into<String>) -> Injection<'a> {
        Injection {
            cause,
            on,
            breaks: breaks.into(),
            by_hand: String::new(),
            then: "true".to_owned(),
        }
    }

    fn by_hand(mut self, command: impl Into<String>) -> Injection<'a> {
        self.by_hand = command.into();
        self
    }

    fn then(mut self, condition: &str) -> Injection<'a> {
        self.then = condition.to_owned();
        self
    }

    /// Brings the cause about.
    fn bring(&self, host: &Host) -> Result<()> {
        self.run(host, &self.breaks)
    }

    /// Mends the cause as doctor says among its findings.
    fn mend(&self, host: &Host, found: &[Value]) -> Result<()> {
        let finding = found.iter().find(|finding| finding["cause"] == self.cause);
        let finding = finding.context("it is not named")?;
        let is_safe = finding["safe"] == true;
        ensure!(is_safe == self.by_hand.is_empty(), "{finding}");
        if is_safe {
            let fix = finding["fix"].as_str().context("no command")?;
            host.ok(fix)?;
            host.wait_until(&self.then, LIMIT)
        } else {
            self.run(host, &self.by_hand)
        }
    }

    fn run(&self, host: &Host, command: &str) -> Result<()> {
        self.on.ok(command)?;
        host.wait_until(&self.then, LIMIT)
    }
}

/// Waits until a cause is named first. All findings then.
fn named(host: &Host, cause: &str) -> Result<Vec<Value>> {
    let first = |found: &[Value]| found.first().is_some_and(|f| f["cause"] == cause);
    until(host, &format!("{cause} is not the first"), first)
}

/// Waits until just these causes are named. All findings then.
fn only(host: &Host, causes: &[&str]) -> Result<Vec<Value>> {
    let wanted: BTreeSet<&str> = causes.iter().copied().collect();
    let are_all = |found: &[Value]| {
        let named = found.iter().filter_map(|finding| finding["cause"].as_str());
        named.collect::<BTreeSet<_>>() == wanted
    };
    until(host, &format!("not just {causes:?}"), are_all)
}

/// Brings each cause about and sees it named first. Mends it; then all is well.
fn singles(host: &Host, injections: &[Injection<'_>]) -> Result<()> {
    for injection in injections {
        let single = || -> Result<()> {
            injection.bring(host)?;
            injection.mend(host, &named(host, injection.cause)?)?;
            well(host)
        };
        single().with_context(|| injection.cause)?;
    }
    Ok(())
}

/// The injections of two causes.
fn two<'a, 'b>(
    injections: &'b [Injection<'a>],
    causes: [&str; 2],
) -> Result<[&'b Injection<'a>; 2]> {
    let of = |cause: &str| {
        let found = injections.iter().find(|injection| injection.cause == cause);
        found.with_context(|| cause.to_owned())
    };
    Ok([of(causes[0])?, of(causes[1])?])
}

/// Brings two causes at a time about: both are named, and nothing else. Mends them; then all is well.
fn pairs(host: &Host, injections: &[Injection<'_>], causes: &[[&str; 2]]) -> Result<()> {
    for causes in causes {
        let pair = || -> Result<()> {
            let [first, second] = two(injections, *causes)?;
            first.bring(host)?;
            second.bring(host)?;
            let found = only(host, causes)?;
            second.mend(host, &found)?;
            first.mend(host, &found)?;
            well(host)
        };
        pair().with_context(|| format!("{causes:?}"))?;
    }
    Ok(())
}

/// Two causes of which one hides the other.
struct Hidden {
    by: &'static str,
    hidden: &'static str,
    /// The hidden one is named as soon as the other is mended; else it is gone.
    stays: bool,
}

/// Brings a cause about, and another that hides it, which alone is named.
fn hidden(host: &Host, injections: &[Injection<'_>], all: &[Hidden]) -> Result<()> {
    for one in all {
        let pair = || -> Result<()> {
            let [by, below] = two(injections, [one.by, one.hidden])?;
            below.bring(host)?;
            only(host, &[one.hidden])?;
            by.bring(host)?;
            by.mend(host, &only(host, &[one.by])?)?;
            if one.stays {
                below.mend(host, &only(host, &[one.hidden])?)?;
            }
            well(host)
        };
        pair().with_context(|| format!("{} behind {}", one.hidden, one.by))?;
    }
    Ok(())
}

/// In both modes, with traffic: nothing is wrong, and status says so in words and in JSON.
fn healthy(a: &Host, b: &Host) -> Result<()> {
    let tool = Layout::from_env()?.ipoibctl();
    for mode in ["datagram", "connected"] {
        for host in [a, b] {
            host.ok(&format!("echo {mode} >/sys/class/net/ib0/mode"))?;
        }
        a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), LIMIT)?;
        a.ok(&format!("ping -q -c 50 -i 0.01 -s 3000 -W 5 {}", b.ip4()))?;
        for host in [a, b] {
            well(host).with_context(|| mode.to_owned())?;
            let (status, code) = ask(host, "status")?;
            let all = status["interfaces"].as_array().context("no interfaces")?;
            let ib0 = all.iter().find(|i| i["name"] == "ib0").context("no ib0")?;
            ensure!(code == 0 && ib0["mode"] == mode, "{status}");
            ensure!(ib0["driver"] == "ipoib_rs" && ib0["up"] == true, "{status}");
            ensure!(ib0["broadcast"] == "joined", "{status}");
            ensure!(ib0["port"]["state"] == "ACTIVE", "{status}");
            ensure!(ib0["counters"]["rx_frames"].as_u64() > Some(0), "{status}");
        }
        let (way, code) = ask(a, &format!("peers --why {}", b.ip4()))?;
        ensure!(code == 0, "{way}");
        let stops = if mode == "connected" { 4 } else { 3 };
        ensure!(way["way"].as_array().map(Vec::len) == Some(stops), "{way}");
    }
    let text = a.ok(&format!("{} status | cat", tool.display()))?;
    ensure!(
        text.contains("All is well.") && !text.contains('\x1b'),
        "{text}"
    );
    Ok(())
}

/// Causes in the interface and in the settings of the host.
fn settings(a: &Host) -> Vec<Injection<'_>> {
    let commands = [
        ("interface-down", "ip link set ib0 down"),
        ("arp-off", "ip link set ib0 arp off"),
        ("multicast-off", "ip link set ib0 multicast off"),
        ("mtu-below-ipv6", "ip link set ib0 mtu 1000"),
        ("netem", "tc qdisc replace dev ib0 root netem delay 1ms"),
        ("gso-off", "ethtool -K ib0 gso off"),
        ("gro-off", "ethtool -K ib0 gro off"),
        ("small-rings", "ethtool -G ib0 rx 64"),
    ];
    let variables = [
        ("window-off", "net/ipoib/ib0/reorder_window", "0"),
        (
            "no-time-to-reorder",
            "net/ipoib/ib0/reorder_timeout_us",
            "0",
        ),
        ("small-budget", "net/ipoib/ib0/napi_budget", "4"),
        ("extensions-off", "net/ipoib/ib0/extensions", "0"),
        ("checksums-on", "net/ipoib/ib0/icrc", "0"),
        ("large-frames-off", "net/ipoib/ib0/large_frames", "0"),
        ("arp-ignored", "net/ipv4/conf/ib0/arp_ignore", "8"),
        ("ipv6-off", "net/ipv6/conf/ib0/disable_ipv6", "1"),
        ("ping-ignored", "net/ipv4/icmp_echo_ignore_all", "1"),
        ("no-sack", "net/ipv4/tcp_sack", "0"),
        ("no-window-scaling", "net/ipv4/tcp_window_scaling", "0"),
        ("no-path-mtu", "net/ipv4/ip_no_pmtu_disc", "1"),
        (
            "small-receive-buffers",
            "net/ipv4/tcp_rmem",
            "4096 131072 262144",
        ),
        (
            "small-send-buffers",
            "net/ipv4/tcp_wmem",
            "4096 16384 262144",
        ),
    ];
    let commands = commands.map(|(cause, breaks)| Injection::new(a, cause, breaks));
    let variables = variables.map(|(cause, name, value)| {
        Injection::new(a, cause, format!("echo {value} >/proc/sys/{name}"))
    });
    commands.into_iter().chain(variables).collect()
}

/// Causes in addresses and on the way to a peer, which is connected.
fn peers<'a>(a: &'a Host, b: &'a Host) -> Vec<Injection<'a>> {
    let address = format!("{}/24", a.ip4());
    let other = b.ip4();
    let ping = format!("ping -q -c 1 -W 1 {other}");
    let mut all = vec![
        Injection::new(
            a,
            "no-address",
            format!("ip addr del {address} dev ib0; ip -6 addr flush dev ib0 scope global"),
        )
        .by_hand(format!("ip addr add {address} dev ib0")),
        Injection::new(a, "shared-network", "ip addr add 10.1.0.77/24 dev eth0")
            .by_hand("ip addr del 10.1.0.77/24 dev eth0"),
        Injection::new(a, "duplicate-address", "ip addr add fd00:7::1/64 dev ib0")
            .by_hand("ip addr del fd00:7::1/64 dev ib0"),
        Injection::new(a, "no-answer", "ping -c 1 -W 1 10.1.0.99 >/dev/null; true")
            .by_hand("ip neigh del 10.1.0.99 dev ib0"),
        Injection::new(
            b,
            "peer-in-datagram-mode",
            "echo datagram >/sys/class/net/ib0/mode",
        )
        .by_hand("echo connected >/sys/class/net/ib0/mode")
        .then(&ping),
    ];
    // An address as dnsmasq's router advertisements shift it.
    let shifted = format!(
        "{ping} &&
         address=$(ip neigh show {other} dev ib0 | sed 's/.*lladdr \\([^ ]*\\).*/\\1/') &&
         ip -6 neigh replace fe80::99 dev ib0 nud stale lladdr ${{address#??:??:}}:00:00"
    );
    all.push(
        Injection::new(a, "shifted-address", shifted).by_hand("ip -6 neigh del fe80::99 dev ib0"),
    );
    // Only on RoCE: on InfiniBand, datagrams do not carry the GID of their source.
    let stale = format!(
        "{ping} &&
         address=$(ip neigh show {other} dev ib0 | sed 's/.*lladdr \\([^ ]*\\).*/\\1/') &&
         ip neigh replace {other} dev ib0 nud permanent lladdr $(echo $address | sed 's/^\\(..\\):..:..:../\\1:0a:bc:de/')"
    );
    all.push(Injection::new(a, "stale-address", stale));
    all
}

/// Pairs of those. Each is in one at least.
const PAIRS: &[[&str; 2]] = &[
    ["interface-down", "small-rings"],
    ["gso-off", "arp-off"],
    ["gso-off", "multicast-off"],
    ["mtu-below-ipv6", "netem"],
    ["gro-off", "no-answer"],
    ["window-off", "no-sack"],
    ["no-time-to-reorder", "small-receive-buffers"],
    ["small-budget", "shared-network"],
    ["extensions-off", "checksums-on"],
    ["large-frames-off", "no-path-mtu"],
    ["ping-ignored", "duplicate-address"],
    ["no-window-scaling", "small-send-buffers"],
    ["ipv6-off", "no-address"],
    ["peer-in-datagram-mode", "arp-ignored"],
    ["shifted-address", "small-rings"],
    ["stale-address", "multicast-off"],
];

const HIDDEN: &[Hidden] = &[
    // An interface that goes down forgets its neighbours.
    Hidden {
        by: "interface-down",
        hidden: "no-answer",
        stays: false,
    },
    // So does IPv6 its variables, with an MTU that has no room for it.
    Hidden {
        by: "mtu-below-ipv6",
        hidden: "ipv6-off",
        stays: false,
    },
    // Without an address, it is in no network.
    Hidden {
        by: "no-address",
        hidden: "shared-network",
        stays: true,
    },
];

scenario! {
    /// Nothing is wrong with a pair; then each cause that any port may have is named, one at a time and in pairs, and
    /// mended.
    #[on(timed)]
    fn causes_are_named(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        healthy(a, b)?;
        b.ok("ip addr add fd00:7::1/64 dev ib0 nodad")?;
        let mut all = settings(a);
        all.extend(peers(a, b));
        singles(a, &all)?;
        for injection in &all {
            let is_paired = PAIRS.iter().flatten().any(|cause| *cause == injection.cause);
            ensure!(is_paired, "{} is in no pair", injection.cause);
        }
        pairs(a, &all, PAIRS)?;
        hidden(a, &all, HIDDEN)?;
        bed.finish()
    }
}
