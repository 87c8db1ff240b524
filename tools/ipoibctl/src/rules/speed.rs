// SPDX-License-Identifier: GPL-2.0

//! Settings that cost speed. Most are hints, since somebody may want them so.

use super::{Finding, Layer, Out, Severity};
use crate::facts::{Facts, Interface, Link};

/// TCP buffers below this limit a stream on a fast network.
const BUFFER: u64 = 1 << 20;
/// Rings below this overflow while a CPU is busy.
const RING: u32 = 256;
/// Frames out of order that are no sign of a fabric which reorders.
const FEW: u64 = 20;
/// The flag of an address that wants numbers.
const WANTS_NUMBERS: u8 = 0x20;

/// A variable of the interface that costs speed at a value.
struct Variable {
    name: &'static str,
    bad: fn(u64) -> bool,
    /// Value that `sysctl -w` sets.
    good: u32,
    /// Only in connected mode.
    connected: bool,
    cause: &'static str,
    what: &'static str,
}

const VARIABLES: &[Variable] = &[
    Variable {
        name: "extensions",
        bad: |value| value == 0,
        good: 1,
        connected: false,
        cause: "extensions-off",
        what: "Frames carry no numbers, so nothing is put in order, and checksums are computed on connections.",
    },
    Variable {
        name: "reorder_timeout_us",
        bad: |value| value == 0,
        good: 5000,
        connected: false,
        cause: "no-time-to-reorder",
        what: "Frames that overtook others are held only until the end of a poll.",
    },
    Variable {
        name: "napi_budget",
        bad: |value| value < 16,
        good: 64,
        connected: false,
        cause: "small-budget",
        what: "A receive poll takes few frames at a time.",
    },
    Variable {
        name: "icrc",
        bad: |value| value == 0,
        good: 1,
        connected: true,
        cause: "checksums-on",
        what: "Checksums are computed on connections, where the invariant CRC protects frames already.",
    },
    Variable {
        name: "large_frames",
        bad: |value| value == 0,
        good: 1,
        connected: true,
        cause: "large-frames-off",
        what: "Packets are segmented before a connection sends them, which could carry them whole.",
    },
];

pub(super) fn check(facts: &Facts, interface: &Interface, link: &Link, out: &mut Out<'_>) {
    let name = &link.name;
    if interface.ours {
        check_window(facts, interface, out);
        check_segments(facts, interface, out);
        check_rings(interface, link, out);
        for variable in VARIABLES {
            let path = interface.sysctl(variable.name);
            let value = facts.number(&path).filter(|value| (variable.bad)(*value));
            let applies = !variable.connected || interface.mode == "connected";
            if let (true, Some(value)) = (applies, value) {
                out.add(
                    Severity::Hint,
                    variable.cause,
                    variable.what,
                    format!("/proc/sys/{path} is {value}"),
                    format!("sysctl -w {path}={}", variable.good),
                );
            }
        }
    }
    if !interface.gso {
        out.add(
            Severity::Hint,
            "gso-off",
            "Large packets are segmented before the interface gets them.",
            "generic-segmentation-offload is off",
            format!("ethtool -K {name} gso on"),
        );
    }
    if !interface.gro {
        out.add(
            Severity::Hint,
            "gro-off",
            "Received segments are not merged before the stack gets them.",
            "generic-receive-offload is off",
            format!("ethtool -K {name} gro on"),
        );
    }
}

/// The reorder window: without one, TCP takes late frames for lost ones.
fn check_window(facts: &Facts, interface: &Interface, out: &mut Out<'_>) {
    let path = interface.sysctl("reorder_window");
    let window = facts.number(&path);
    let late = interface.counter("rx_seq_late");
    let fix = format!("sysctl -w {path}=32");
    if window == Some(0) && late > 0 {
        out.add(
            Severity::Warning,
            "window-off",
            "The fabric reorders frames, and the window that puts them in order is off.",
            format!("/proc/sys/{path} is 0, and rx_seq_late is {late}"),
            fix,
        );
    } else if window == Some(0) {
        out.add(
            Severity::Hint,
            "window-off",
            "The window that puts frames in order is off.",
            format!("/proc/sys/{path} is 0"),
            fix,
        );
    }
    let moved = interface.counter("rx_seq_moved");
    let in_order = interface.counter("rx_seq_in_order");
    if window.is_some_and(|window| (1..128).contains(&window))
        && moved > 100
        && moved.saturating_mul(100) > in_order
    {
        out.add(
            Severity::Warning,
            "window-small",
            "Frames arrive further out of order than the window reaches.",
            format!("rx_seq_moved is {moved}, rx_seq_in_order {in_order}"),
            format!("sysctl -w {path}=128"),
        );
    }
}

/// Segments that the device makes carry no numbers, so that no receiver puts them in order.
fn check_segments(facts: &Facts, interface: &Interface, out: &mut Out<'_>) {
    let large = interface.counter("tx_large");
    let helps = interface
        .neighbours
        .iter()
        .any(|n| n.flags & WANTS_NUMBERS != 0);
    if !interface.tso || interface.mode != "datagram" || large == 0 || !helps {
        return;
    }
    // Peers number their frames, or TCP has learnt it.
    let late = interface.counter("rx_seq_reordered");
    let frames = interface.counter("rx_frames");
    let seen = if late >= FEW && late.saturating_mul(1000) >= frames {
        format!("rx_seq_reordered is {late}")
    } else if facts.tcp_reordered >= FEW {
        format!(
            "TCP has seen {} reordered segments (TCPSACKReorder and the like of nstat)",
            facts.tcp_reordered
        )
    } else {
        return;
    };
    out.add(
        Severity::Warning,
        "lso-unordered",
        "The fabric reorders frames, and the segments that the device makes of large packets carry no numbers to be put in order by.",
        format!("tcp-segmentation-offload is on, tx_large is {large}, and {seen}"),
        format!("ethtool -K {} tso off", interface.name),
    );
}

fn check_rings(interface: &Interface, link: &Link, out: &mut Out<'_>) {
    let Some(ring) = interface.ring else {
        return;
    };
    // Sizes are powers of two, and a device's maximum need not be one.
    let [rx, tx] = [ring.rx_max, ring.tx_max].map(|max| match max {
        0 => RING,
        max => RING.min(1 << max.ilog2()),
    });
    if ring.rx < rx || ring.tx < tx {
        out.add(
            Severity::Hint,
            "small-rings",
            format!(
                "The rings are small: {} frames to receive, {} to send.",
                ring.rx, ring.tx
            ),
            format!("ethtool -g {}", link.name),
            format!(
                "ethtool -G {} rx {} tx {}",
                link.name,
                ring.rx.max(rx),
                ring.tx.max(tx)
            ),
        );
    }
    if interface.rx_frames > 1 && interface.rx_frames >= ring.rx / 2 {
        out.add(
            Severity::Warning,
            "moderation",
            "The device reports received frames only when the ring is half full or more.",
            format!(
                "rx-frames is {}, and the ring has {}",
                interface.rx_frames, ring.rx
            ),
            format!("ethtool -C {} rx-frames 16", link.name),
        );
    }
}

/// Settings of TCP, if there is an interface that they concern.
pub(super) fn check_host(facts: &Facts, found: &mut Vec<Finding>) {
    if facts.interfaces.is_empty() {
        return;
    }
    let mut out = Out {
        layer: Layer::Speed,
        subject: "",
        found,
    };
    for (path, cause) in [
        ("net/ipv4/tcp_rmem", "small-receive-buffers"),
        ("net/ipv4/tcp_wmem", "small-send-buffers"),
    ] {
        let values = facts.sysctl(path).unwrap_or_default();
        let mut words = values.split_whitespace();
        let largest = words.next_back().and_then(|word| word.parse::<u64>().ok());
        if let Some(largest) = largest.filter(|largest| *largest < BUFFER) {
            let first: Vec<&str> = words.collect();
            out.add(
                Severity::Hint,
                cause,
                format!("TCP's buffers grow to {largest} bytes at most."),
                format!("/proc/sys/{path} is {values}"),
                format!("sysctl -w {path}='{} 6291456'", first.join(" ")),
            );
        }
    }
    for (path, bad, cause, what) in [
        (
            "net/ipv4/tcp_sack",
            "0",
            "no-sack",
            "TCP retransmits more than was lost, since selective acknowledgements are off.",
        ),
        (
            "net/ipv4/tcp_window_scaling",
            "0",
            "no-window-scaling",
            "TCP's window is 64 KiB at most, since scaling is off.",
        ),
    ] {
        if facts.sysctl(path) == Some(bad) {
            let how = format!("/proc/sys/{path} is {bad}");
            out.add(
                Severity::Hint,
                cause,
                what,
                how,
                format!("sysctl -w {path}=1"),
            );
        }
    }
    let path = "net/ipv4/ip_no_pmtu_disc";
    let value = facts.sysctl(path);
    if value.is_some_and(|value| value != "0") {
        out.add(
            Severity::Warning,
            "no-path-mtu",
            "Path MTU discovery is off, and peers with a smaller MTU need it.",
            format!("/proc/sys/{path} is {}", value.unwrap_or_default()),
            format!("sysctl -w {path}=0"),
        );
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::tests::{Case, names};
    use super::*;
    use crate::healthy::healthy;

    pub(in super::super) fn set(facts: &mut Facts, path: &str, value: &str) {
        facts.sysctls.insert(path.into(), value.into());
    }

    pub(in super::super) const CASES: &[Case] = &[
        ("window-off", |f| {
            set(f, "net/ipoib/ib0/reorder_window", "0")
        }),
        ("window-small", |f| {
            f.interfaces[0].counters.insert("rx_seq_moved".into(), 200);
        }),
        ("lso-unordered", |f| {
            segments(f);
            f.tcp_reordered = 50;
        }),
        ("small-rings", |f| {
            f.interfaces[0].ring.as_mut().expect("a ring").rx = 64
        }),
        ("small-rings", |f| {
            f.interfaces[0].ring.as_mut().expect("a ring").tx = 128
        }),
        ("moderation", |f| f.interfaces[0].rx_frames = 256),
        ("gso-off", |f| f.interfaces[0].gso = false),
        ("gro-off", |f| f.interfaces[0].gro = false),
        ("small-receive-buffers", |f| {
            set(f, "net/ipv4/tcp_rmem", "4096 131072 262144")
        }),
        ("small-send-buffers", |f| {
            set(f, "net/ipv4/tcp_wmem", "4096 16384 262144")
        }),
        ("no-sack", |f| set(f, "net/ipv4/tcp_sack", "0")),
        ("no-window-scaling", |f| {
            set(f, "net/ipv4/tcp_window_scaling", "0")
        }),
        ("no-path-mtu", |f| set(f, "net/ipv4/ip_no_pmtu_disc", "1")),
        ("small-budget", |f| set(f, "net/ipoib/ib0/napi_budget", "1")),
    ];

    /// An interface whose device makes segments.
    fn segments(facts: &mut Facts) {
        let interface = &mut facts.interfaces[0];
        (interface.mode, interface.tso) = ("datagram".into(), true);
        interface.tables.insert("connections".into(), Vec::new());
        interface.counters.insert("tx_large".into(), 9);
    }

    #[test]
    fn segments_of_a_device_matter_on_a_fabric_that_reorders() {
        let cause = |change: &dyn Fn(&mut Facts)| {
            let mut facts = healthy(false);
            segments(&mut facts);
            facts.interfaces[0]
                .counters
                .insert("rx_seq_reordered".into(), 30);
            change(&mut facts);
            let found = super::super::judge(&facts);
            found.first().map(|f| (f.cause, f.fix.clone()))
        };
        assert_eq!(
            cause(&|_| ()),
            Some(("lso-unordered", "ethtool -K ib0 tso off".into()))
        );
        for (counter, value) in [
            ("tx_large", 0),
            ("rx_seq_reordered", 19),
            ("rx_frames", 1_000_000),
        ] {
            let change = |f: &mut Facts| {
                f.interfaces[0].counters.insert(counter.into(), value);
            };
            assert_eq!(cause(&change), None, "{counter}");
        }
        assert_eq!(cause(&|f| f.interfaces[0].tso = false), None);
        assert_eq!(cause(&|f| f.interfaces[0].mode = "connected".into()), None);
        // The peer has another driver.
        assert_eq!(cause(&|f| f.interfaces[0].neighbours[0].flags = 0x80), None);
        // Without numbers, that is the cause.
        let found = cause(&|f| set(f, "net/ipoib/ib0/extensions", "0"));
        assert_eq!(found.map(|(cause, _)| cause), Some("extensions-off"));
    }

    #[test]
    fn rings_are_powers_of_two() {
        for (max, rx, fix) in [
            (2048, 64, "ethtool -G ib0 rx 256 tx 512"),
            (200, 64, "ethtool -G ib0 rx 128 tx 512"),
            (200, 128, ""),
            (64, 64, ""),
        ] {
            let mut facts = healthy(true);
            let ring = facts.interfaces[0].ring.as_mut().expect("a ring");
            (ring.rx, ring.rx_max) = (rx, max);
            let found = super::super::judge(&facts);
            assert_eq!(found.first().map_or("", |f| &f.fix), fix, "{max}");
        }
    }

    /// Each variable of the interface at a value that costs speed.
    pub(in super::super) fn variables() -> impl Iterator<Item = (&'static str, String)> {
        VARIABLES
            .iter()
            .map(|variable| (variable.cause, format!("net/ipoib/ib0/{}", variable.name)))
    }

    #[test]
    fn each_setting() {
        for (cause, change) in CASES {
            names(true, cause, change);
        }
        for (cause, path) in variables() {
            names(false, cause, |f| set(f, &path, "0"));
        }
    }

    #[test]
    fn a_window_that_is_off_is_worse_on_a_fabric_that_reorders() {
        let mut facts = healthy(true);
        set(&mut facts, "net/ipoib/ib0/reorder_window", "0");
        let severity = |facts: &Facts| super::super::judge(facts)[0].severity;
        assert_eq!(severity(&facts), Severity::Hint);
        facts.interfaces[0].counters.insert("rx_seq_late".into(), 3);
        assert_eq!(severity(&facts), Severity::Warning);
    }

    #[test]
    fn connections_settings_do_not_matter_without_connections() {
        let mut facts = healthy(true);
        facts.interfaces[0].mode = "datagram".into();
        facts.interfaces[0]
            .tables
            .insert("connections".into(), Vec::new());
        set(&mut facts, "net/ipoib/ib0/icrc", "0");
        set(&mut facts, "net/ipoib/ib0/large_frames", "0");
        assert_eq!(super::super::judge(&facts), []);
    }
}
