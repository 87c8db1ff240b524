// SPDX-License-Identifier: GPL-2.0

//! The way to a peer: address resolution, paths, groups, connections.

use super::{Out, Severity, by_hand};
use crate::facts::{Facts, Interface, Link, Neighbour, address, column};
use crate::table::Row;
use ipoib_proto::admission::{MAX_SENDERS, max_of_origin, max_senders};
use std::collections::{BTreeMap, HashSet};

/// The flag of an address that takes connections (RFC 4755, section 3.1).
const TAKES_CONNECTIONS: u8 = 0x80;

pub(super) fn check(facts: &Facts, interface: &Interface, _: &Link, out: &mut Out<'_>) {
    check_neighbours(facts, interface, out);
    check_stale(interface, out);
    check_shifted(interface, out);
    check_tables(interface, out);
    if interface.mode == "connected" {
        check_connections(facts, interface, out);
        check_senders(interface, out);
    }
}

/// Up to three, and how many more there are.
fn some(names: &[String]) -> String {
    match names {
        [a, b, c, rest @ ..] if !rest.is_empty() => {
            format!("{a}, {b}, {c} and {} more", rest.len())
        }
        few => few.join(", "),
    }
}

fn check_neighbours(facts: &Facts, interface: &Interface, out: &mut Out<'_>) {
    let all = &interface.neighbours;
    let lost = all.iter().filter(|n| n.is_lost());
    let lost: Vec<String> = lost.map(|n| n.ip.to_string()).collect();
    if let Some(first) = lost.first() {
        out.add(
            Severity::Warning,
            "no-answer",
            format!(
                "Nobody answers for {}: the host is off, or has another address, partition or Q_Key.",
                some(&lost)
            ),
            "its neighbour entry is failed or incomplete",
            by_hand(format!("ipoibctl peers --why {first}")),
        );
    }
    check_room(facts, all, out);
}

/// The kernel's table of neighbours of a family, which all interfaces share.
fn check_room(facts: &Facts, all: &[Neighbour], out: &mut Out<'_>) {
    for (family, is_four) in [("ipv4", true), ("ipv6", false)] {
        let path = format!("net/{family}/neigh/default/gc_thresh3");
        let Some(limit) = facts.number(&path) else {
            continue;
        };
        let count = all.iter().filter(|n| n.ip.is_ipv4() == is_four).count() as u64;
        if count.saturating_mul(10) >= limit.saturating_mul(9) {
            out.add(
                Severity::Warning,
                "neighbour-table-full",
                format!("The neighbour table is nearly full: {count} of {limit} entries."),
                format!("/proc/sys/{path} is {limit}"),
                format!("sysctl -w {path}={}", limit.max(1024).saturating_mul(4)),
            );
        }
    }
}

/// Neighbours that were set by hand, and have another address now.
fn check_stale(interface: &Interface, out: &mut Out<'_>) {
    for neighbour in interface
        .neighbours
        .iter()
        .filter(|n| n.state == "permanent")
    {
        let qpn = format!("{:#08x}", neighbour.qpn);
        let (mut same, mut other) = (false, None);
        for row in interface.table("sources") {
            if column(row, "gid") == neighbour.gid {
                if column(row, "qpn") == qpn {
                    same = true;
                } else {
                    other = Some(column(row, "qpn"));
                }
            }
        }
        if let (false, Some(other)) = (same, other) {
            out.add(
                Severity::Warning,
                "stale-address",
                format!(
                    "The permanent neighbour entry of {} has an address that it no longer uses.",
                    neighbour.ip
                ),
                format!(
                    "frames from {} have the QPN {other}, and the entry has {qpn}",
                    neighbour.gid
                ),
                format!("ip neigh del {} dev {}", neighbour.ip, interface.name),
            );
        }
    }
}

/// Neighbours whose address was announced in the wrong place.
fn check_shifted(interface: &Interface, out: &mut Out<'_>) {
    for neighbour in &interface.neighbours {
        if let Some(gid) = neighbour.shifted(&interface.gid) {
            let ip = neighbour.ip;
            out.add(
                Severity::Warning,
                "shifted-address",
                format!(
                    "Frames to {ip} get lost: it announces its link-layer address two bytes too early, as \
                     dnsmasq does in router advertisements."
                ),
                format!(
                    "the GID in its neighbour entry is {}, and {gid} two bytes further on",
                    neighbour.gid
                ),
                // It comes again with the next advertisement.
                by_hand(format!("ip neigh del {ip} dev {}", interface.name)),
            );
        }
    }
}

/// GIDs of the peers whose rows in a table are in a state. Rows of addresses that no neighbour has tell of the past.
fn peers_in(interface: &Interface, table: &str, state: &str) -> Vec<String> {
    let rows = interface.table(table).iter();
    let mut rows = rows.filter(|row| column(row, "state") == state).peekable();
    if rows.peek().is_none() {
        return Vec::new();
    }
    let is_whole = |n: &&Neighbour| n.shifted(&interface.gid).is_none();
    let neighbours = interface.neighbours.iter().filter(is_whole);
    let known: HashSet<_> = neighbours.map(Neighbour::address).collect();
    rows.filter(|row| known.contains(&address(row)))
        .map(|row| column(row, "gid").to_owned())
        .collect()
}

fn check_tables(interface: &Interface, out: &mut Out<'_>) {
    let paths = peers_in(interface, "paths", "failed");
    if !paths.is_empty() {
        out.add(
            Severity::Warning,
            "no-path",
            format!("There is no path to {}.", some(&paths)),
            "its state is failed in paths in debugfs",
            "",
        );
    }
    let groups = interface.table("groups").iter();
    let groups: Vec<String> = groups
        .filter(|row| column(row, "state") == "failed")
        .map(|row| column(row, "mgid").to_owned())
        .collect();
    if !groups.is_empty() {
        out.add(
            Severity::Warning,
            "group-refused",
            format!("Multicast groups could not be joined: {}.", some(&groups)),
            "their state is failed in groups in debugfs",
            "",
        );
    }
}

fn check_connections(facts: &Facts, interface: &Interface, out: &mut Out<'_>) {
    let rows = interface.table("connections");
    let waiting = peers_in(interface, "connections", "waiting");
    if !waiting.is_empty() {
        out.add(
            Severity::Warning,
            "connection-failed",
            format!("The connection to {} was refused or has failed; frames go as datagrams until the next attempt.", some(&waiting)),
            "its state is waiting in connections in debugfs",
            "",
        );
    }
    let up = rows
        .iter()
        .filter(|row| column(row, "state") == "up")
        .count() as u64;
    let limit = facts.number(&interface.sysctl("rc_max_connections"));
    if limit.is_some_and(|limit| up >= limit) && interface.counter("rc_evicted") > 0 {
        out.add(
            Severity::Warning,
            "connections-full",
            format!("All {up} connections of the interface are in use, and some were ended to make room."),
            format!("rc_max_connections is {up}, and rc_evicted is not 0"),
            // The variable takes no more.
            if up < 64 {
                format!("sysctl -w {}=64", interface.sysctl("rc_max_connections"))
            } else {
                String::new()
            },
        );
    }
    let is_known = |n: &&Neighbour| !n.is_lost() && !n.is_stale() && !n.gid.is_empty();
    // One that is connected has changed its mode since it gave its address.
    let is_up = |row: &&Row| column(row, "state") == "up";
    let connected: HashSet<_> = rows.iter().filter(is_up).map(address).collect();
    let datagram = interface
        .neighbours
        .iter()
        .filter(is_known)
        .filter(|n| n.flags & TAKES_CONNECTIONS == 0 && n.shifted(&interface.gid).is_none())
        .filter(|n| !connected.contains(&n.address()));
    let datagram: Vec<String> = datagram.map(|n| n.ip.to_string()).collect();
    if !datagram.is_empty() {
        out.add(
            Severity::Hint,
            "peer-in-datagram-mode",
            format!(
                "Frames to {} go as datagrams, since it takes no connections.",
                some(&datagram)
            ),
            "its link-layer address does not have the flag 0x80",
            "",
        );
    }
}

/// Connections that peers with other drivers send by, which have places of their own.
fn check_senders(interface: &Interface, out: &mut Out<'_>) {
    let device = interface.table("device").first();
    let Some(buffers) = device.and_then(|row| column(row, "buffers").parse::<u32>().ok()) else {
        return;
    };
    // The driver counts them by LID on InfiniBand, and by GID on RoCE.
    let mut of_origin = BTreeMap::<(&str, &str), usize>::new();
    let rows = interface.table("connections").iter();
    for row in rows.filter(|row| column(row, "state") == "receiving") {
        let origin = match column(row, "lid") {
            "" | "-" => ("GID", column(row, "gid")),
            lid => ("LID", lid),
        };
        *of_origin.entry(origin).or_default() += 1;
    }
    let all: usize = of_origin.values().sum();
    let most = of_origin.iter().max_by_key(|(_, count)| **count);
    let of_one = most.filter(|(_, count)| **count >= max_of_origin(buffers));
    let (count, whose) = match of_one {
        _ if all > 0 && all >= max_senders(buffers) => (all, String::new()),
        Some(((kind, name), count)) => (*count, format!(" with the {kind} {name}")),
        None => return,
    };
    let lost = ["rc_refused_full", "rc_evicted"].map(|name| (name, interface.counter(name)));
    let lost = lost.iter().filter(|(_, value)| *value > 0);
    let lost: Vec<String> = lost.map(|(name, n)| format!("{name} is {n}")).collect();
    if lost.is_empty() {
        return;
    }
    let more = format!(
        "modprobe -r ipoib_rs && modprobe ipoib_rs rc_recv_queue_size={}",
        buffers.saturating_mul(2)
    );
    let has_more = max_senders(buffers) < MAX_SENDERS;
    out.add(
        Severity::Warning,
        "senders-full",
        format!("All {count} connections that peers with other drivers{whose} may send by are in use, and some were refused or ended to make room."),
        format!("{count} are receiving in connections in debugfs, buffers in device is {buffers}, {}", lost.join(", ")),
        by_hand(if has_more { more } else { String::new() }),
    );
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::tests::{Case, names, neighbour};
    use crate::facts::Facts;
    use crate::healthy::healthy;
    use crate::table::Row;

    fn add(facts: &mut Facts, table: &str, columns: &[(&str, &str)]) {
        let rows = facts.interfaces[0].tables.get_mut(table);
        rows.expect("a table").push(Row::of(columns));
    }

    /// A row about the neighbour that a host gets.
    fn another(state: &str) -> [(&str, &str); 3] {
        [("gid", "fe80::3"), ("qpn", "0x000012"), ("state", state)]
    }

    pub(in super::super) const CASES: &[Case] = &[
        ("no-answer", |f| neighbour(f, |n| n.state = "failed".into())),
        ("neighbour-table-full", |f| {
            f.sysctls
                .insert("net/ipv4/neigh/default/gc_thresh3".into(), "1".into());
        }),
        ("neighbour-table-full", |f| {
            neighbour(f, |n| n.ip = "fe80::2".parse().expect("one"));
            f.sysctls
                .insert("net/ipv6/neigh/default/gc_thresh3".into(), "1".into());
        }),
        ("stale-address", |f| {
            f.interfaces[0].neighbours[0].state = "permanent".into();
            f.interfaces[0].neighbours[0].qpn = 0x99;
        }),
        ("shifted-address", |f| {
            neighbour(f, |n| {
                (n.state, n.flags) = ("stale".into(), 0);
                // The GID is fe80::5054:ff:fe1b:2.
                (n.gid, n.qpn) = ("::5054:ff:fe1b:2:0".into(), 0x12_fe80);
            });
        }),
        ("no-path", |f| {
            neighbour(f, |n| n.state = "permanent".into());
            add(f, "paths", &another("failed"));
        }),
        ("group-refused", |f| {
            add(
                f,
                "groups",
                &[("mgid", "ff12:401b:ffff::1"), ("state", "failed")],
            );
        }),
        ("connection-failed", |f| {
            neighbour(f, |_| ());
            add(f, "connections", &another("waiting"));
        }),
        ("connections-full", |f| {
            f.sysctls
                .insert("net/ipoib/ib0/rc_max_connections".into(), "1".into());
            f.interfaces[0].counters.insert("rc_evicted".into(), 4);
        }),
        ("senders-full", |f| senders(f, 8, |_| 9, "rc_refused_full")),
        ("senders-full", |f| senders(f, 32, |n| n, "rc_evicted")),
        ("senders-full", |f| {
            senders(f, 8, |n| n, "rc_refused_full");
            let rows = f.interfaces[0].tables.get_mut("connections");
            for row in rows.expect("a table") {
                row.set("lid", "7");
            }
        }),
        ("peer-in-datagram-mode", |f| {
            neighbour(f, |n| n.flags = 0x20)
        }),
    ];

    fn set_buffers(facts: &mut Facts, buffers: &str) {
        let rows = facts.interfaces[0].tables.get_mut("device");
        rows.expect("a table")[0].set("buffers", buffers);
    }

    /// Has `count` peers send where 32 may, 8 of them from one host, whose GID ends in a number.
    fn senders(facts: &mut Facts, count: u32, gid: fn(u32) -> u32, counter: &str) {
        set_buffers(facts, "64");
        for n in 0..count {
            let (gid, qpn) = (format!("fe80::a:{:x}", gid(n)), format!("{n:#08x}"));
            add(
                facts,
                "connections",
                &[("gid", &gid), ("qpn", &qpn), ("state", "receiving")],
            );
        }
        facts.interfaces[0].counters.insert(counter.into(), 3);
    }

    #[test]
    fn senders_are_no_cause_while_there_is_room() {
        // No one is at a limit.
        let mut facts = healthy(true);
        senders(&mut facts, 31, |n| n % 5, "rc_refused_full");
        assert_eq!(super::super::judge(&facts), []);
        // Nobody was refused.
        let mut facts = healthy(true);
        senders(&mut facts, 8, |_| 9, "rc_idle");
        assert_eq!(super::super::judge(&facts), []);
        // Nobody says how many buffers there are.
        let mut facts = healthy(true);
        senders(&mut facts, 8, |_| 9, "rc_refused_full");
        set_buffers(&mut facts, "");
        assert_eq!(super::super::judge(&facts), []);
    }

    #[test]
    fn more_senders_take_more_buffers_while_that_helps() {
        for (buffers, most, fix) in [("64", 8, "=128"), ("512", 64, "=1024"), ("1024", 128, "")] {
            let mut facts = healthy(true);
            senders(&mut facts, most, |_| 9, "rc_refused_full");
            set_buffers(&mut facts, buffers);
            let found = super::super::judge(&facts);
            assert!(found.len() == 1 && !found[0].safe, "{found:?}");
            assert_eq!(found[0].cause, "senders-full");
            assert!(found[0].fix.ends_with(fix) && found[0].fix.is_empty() == fix.is_empty());
        }
    }

    /// A setting at its limit cannot be raised.
    #[test]
    fn no_command_asks_for_more_than_there_can_be() {
        let mut facts = healthy(true);
        for n in 0..63 {
            let gid = format!("fe80::b:{n:x}");
            add(
                &mut facts,
                "connections",
                &[("gid", &gid), ("qpn", "0x000012"), ("state", "up")],
            );
        }
        facts.interfaces[0].counters.insert("rc_evicted".into(), 4);
        let found = super::super::judge(&facts);
        assert_eq!((found[0].cause, &*found[0].fix), ("connections-full", ""));
    }

    #[test]
    fn each_part_of_the_way() {
        for (cause, change) in CASES {
            for roce in [false, true] {
                names(roce, cause, change);
            }
        }
    }

    #[test]
    fn a_permanent_entry_that_is_right_is_no_cause() {
        let mut facts = healthy(true);
        facts.interfaces[0].neighbours[0].state = "permanent".into();
        let other = Row::of(&[("gid", "fe80::2"), ("qpn", "0x000077")]);
        facts.interfaces[0]
            .tables
            .get_mut("sources")
            .expect("it")
            .push(other);
        assert_eq!(super::super::judge(&facts), []);
    }

    /// A peer had another address or another mode before.
    #[test]
    fn what_was_before_is_no_cause() {
        let mut facts = healthy(true);
        add(&mut facts, "paths", &another("failed"));
        add(&mut facts, "connections", &another("waiting"));
        neighbour(&mut facts, |n| {
            (n.state, n.flags, n.qpn) = ("stale".into(), 0x20, 0x13);
        });
        // Since then, it has been connected.
        facts.interfaces[0].neighbours[0].flags = 0x20;
        assert_eq!(super::super::judge(&facts), []);
    }

    /// A failure of an address that nobody has is no cause of its own.
    #[test]
    fn a_shifted_address_explains_what_is_wrong_with_it() {
        let mut facts = healthy(true);
        neighbour(&mut facts, |n| {
            (n.flags, n.gid, n.qpn) = (0, "::5054:ff:fe1b:2:0".into(), 0x12_fe80);
        });
        let row = [
            ("gid", "::5054:ff:fe1b:2:0"),
            ("qpn", "0x12fe80"),
            ("state", "failed"),
        ];
        add(&mut facts, "paths", &row);
        let found = super::super::judge(&facts);
        assert_eq!(found.len(), 1, "{found:#?}");
        assert!(found[0].how.contains("fe80::5054:ff:fe1b:2 "), "{found:?}");
        // Another subnet may have such GIDs, and the subnet of this one may be another.
        for gid in ["::5054:ff:fe1b:2:1", "fe80::5054:ff:fe1b:0"] {
            let mut facts = healthy(true);
            neighbour(&mut facts, |n| (n.gid, n.qpn) = (gid.into(), 0x12_fe80));
            assert_eq!(super::super::judge(&facts), [], "{gid}");
        }
    }

    #[test]
    fn many_names_are_cut() {
        let names: Vec<String> = (0..5).map(|n| n.to_string()).collect();
        assert_eq!(super::some(&names), "0, 1, 2 and 2 more");
        assert_eq!(super::some(&names[..2]), "0, 1");
    }
}
