// SPDX-License-Identifier: GPL-2.0

//! A host with many peers, for tests: what its debugfs has, and the time that the tool takes for it.

use crate::facts::{Facts, Neighbour};
use crate::healthy::healthy;
use crate::rules;
use crate::screen::Screen;
use crate::table::rows;
use crate::{peers, status, sys};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// Hosts of a fat tree of three levels with switches of 36 ports, less one.
pub(crate) const MANY: u32 = 647;
/// The connections that an interface has at most.
const CONNECTIONS: u32 = 64;

fn gid(peer: u32) -> String {
    format!("fe80::2:c903:{peer:x}")
}

/// The tables of debugfs with this many peers, after so many steps of traffic: the first peers have the most.
pub(crate) fn tables(peers: u32, steps: u64) -> [(&'static str, String); 5] {
    let mut sources = "gid qpn in_order reordered late held filled moved timed_out duplicates resyncs holding established idle_ms\n".to_owned();
    let mut paths = "gid qpn flags state waiting idle_ms\n".to_owned();
    let mut connections = "gid qpn number state age_ms mtu may_send window waiting tx_frames tx_bytes rx_frames rx_bytes lid\n".to_owned();
    let _ = (0..peers).try_for_each(|n| {
        let (gid, qpn) = (gid(n), 0x100 + n);
        let frames = steps * u64::from(10_000 / (n + 1)) * (1 + (steps + u64::from(n)) % 3);
        let late = if n == 2 { 3 * steps } else { 0 };
        writeln!(
            sources,
            "{gid} {qpn:#08x} {frames} 0 {late} 0 0 0 0 0 0 0 1 17"
        )?;
        writeln!(paths, "{gid} {qpn:#08x} 0xb0 ready 0 17")?;
        if n < CONNECTIONS.min(peers / 2) {
            let bytes = frames * 4000;
            writeln!(
                connections,
                "{gid} {qpn:#08x} 0 up 60000 65520 32 64 {} {frames} {bytes} {} {} -",
                n % 2,
                frames / 2,
                bytes / 20
            )?;
        }
        Ok::<(), std::fmt::Error>(())
    });
    let groups = "mgid state wanted waiting\nff12:401b:ffff::ffff:ffff joined 1 0\n";
    let device = "device buffers\ndev0 512\n";
    [
        ("sources", sources),
        ("paths", paths),
        ("groups", groups.to_owned()),
        ("connections", connections),
        ("device", device.to_owned()),
    ]
}

/// A host on InfiniBand with this many peers, after so many steps of traffic.
pub(crate) fn host(peers: u32, steps: u64) -> Facts {
    let mut facts = healthy(false);
    let interface = &mut facts.interfaces[0];
    let neighbour = |n: u32| Neighbour {
        ip: std::net::Ipv4Addr::from(0x0a01_0002 + n).into(),
        state: if n % 5 == 0 { "stale" } else { "reachable" }.into(),
        flags: 0xb0,
        gid: gid(n),
        qpn: 0x100 + n,
    };
    interface.neighbours = (0..peers).map(neighbour).collect();
    let tables = tables(peers, steps);
    interface.tables = tables
        .map(|(name, text)| (name.to_owned(), rows(&text)))
        .into();
    let counters: BTreeMap<String, u64> = [
        ("rx_frames", 50_000 * steps),
        ("rx_bytes", 2_500_000 * steps),
        ("rc_rx_frames", 10_000 * steps * (1 + steps % 4)),
        ("rc_rx_bytes", 90_000_000 * steps * (1 + steps % 4)),
        ("tx_frames", 400 * steps),
        ("tx_bytes", 90_000 * steps),
        ("rc_tx_frames", 60_000 * steps),
        ("rc_tx_bytes", 1_900_000_000 * steps),
        ("rx_seq_in_order", 50_000 * steps),
        ("rx_seq_late", 3 * steps),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    interface.counters = counters;
    facts
        .sysctls
        .insert("net/ipv4/neigh/default/gc_thresh3".into(), "4096".into());
    facts
}

/// The least time that something takes of a few times: others use the caches of this machine, too.
pub(crate) fn least_of(mut what: impl FnMut()) -> Duration {
    let times = (0..7).map(|_| {
        let begin = sys::cpu();
        what();
        sys::cpu() - begin
    });
    times.min().expect("some were made")
}

/// `status` has 50 ms. What the kernel takes to answer is not in here.
#[test]
fn status_with_many_peers_is_quick() {
    let texts = tables(MANY, 5);
    let took = least_of(|| {
        let mut facts = host(2, 5);
        facts.interfaces[0].neighbours = host(MANY, 0).interfaces[0].neighbours.clone();
        for (name, text) in &texts {
            facts.interfaces[0]
                .tables
                .insert((*name).to_owned(), rows(text));
        }
        let found = rules::judge(&facts);
        let mut screen = Screen::plain(Some(80));
        status::show(&facts, &found, &mut screen);
        assert!(screen.text().contains("517 reachable"), "{}", screen.text());
    });
    println!("status: {took:?}");
    assert!(took < Duration::from_millis(25), "{took:?}");
}

#[test]
fn the_list_of_many_peers_is_quick() {
    let facts = host(MANY, 5);
    let took = least_of(|| {
        let mut screen = Screen::plain(Some(80));
        let status = peers::list(&facts, false, &mut screen).expect("a list");
        assert_eq!((status, screen.text().lines().count()), (0, 648));
    });
    println!("peers: {took:?}");
    assert!(took < Duration::from_millis(25), "{took:?}");
}
