// SPDX-License-Identifier: GPL-2.0

//! Subnet managers that end, come again, hand over, and give ports other LIDs.

use super::super::fabric::CONFIGFS;
use super::super::manager::Manager;
use super::super::{EXCLUSIVE, Port, hca};
use super::{Driver, Kind, set_mode, up};
use crate::interop::neighbour;
use crate::order::counter;
use crate::transfer::Transfer;
use anyhow::{Context, Result, ensure};
use lab::bed::{Bed, Host};
use lab::scenario;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(10);

/// Ours, and either driver.
const PAIRS: [[Kind; 2]; 3] = [
    [(Driver::Ours, "datagram"), (Driver::C, "datagram")],
    [(Driver::Ours, "connected"), (Driver::Ours, "connected")],
    [(Driver::Ours, "connected"), (Driver::C, "connected")],
];

/// Counts of an interface of ours that change when something is flushed.
fn flushed(host: &Host) -> Result<String> {
    host.ok("ethtool -S ib0 | grep -E '^ *(restarts|rc_closed|rc_disconnected|rc_broken|rc_failed|rc_stuck):'")
}

/// Streams both ways while `f` does something; each has to arrive as it was sent.
fn under_traffic(bed: &Bed, seconds: u32, f: impl FnOnce() -> Result<()>) -> Result<()> {
    let (a, b) = bed.pair()?;
    let streams = [
        Transfer::start(a, b, &b.ip4(), 1, seconds)?,
        Transfer::start(b, a, &a.ip6(), 1, seconds)?,
    ];
    f()?;
    for stream in streams {
        stream.finish()?;
    }
    Ok(())
}

/// Waits until each of two hosts reaches the other, by both versions of IP and by multicast; `LIMIT` at most.
pub(super) fn up_again(a: &Host, b: &Host) -> Result<()> {
    for (from, to) in [(a, b), (b, a)] {
        for target in [to.ip4(), to.ip6()] {
            from.wait_until(&format!("ping -q -c 1 -W 1 {target}"), LIMIT)?;
        }
        from.wait_until("ip -o link show ib0 | grep -q LOWER_UP", LIMIT)?;
    }
    for mgid in ["ff12:401b:ffff::ffff:ffff", "ff12:601b:ffff::1"] {
        let groups = format!("saquery -C {} -P 1 -g", hca(a));
        a.wait_until(
            &format!("{groups} | grep -q '\\.{mgid}$' || {{ {groups}; false; }}"),
            LIMIT,
        )?;
    }
    Ok(())
}

scenario! {
    /// The manager is killed: all goes on. Another one knows of no group; all are joined again, and the
    /// carrier is never lost.
    #[on(lockdep)]
    fn a_manager_is_killed_and_restarted(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = up(&bed, "pair", "", &PAIRS[0])?;
        let (a, b) = bed.pair()?;
        let changes = || a.ok("cat /sys/class/net/ib0/carrier_down_count");
        let before = changes()?;
        let mut manager = manager;
        under_traffic(&bed, 8, || {
            for _ in 0..2 {
                manager.kill()?;
                a.ok("sleep 0.5")?;
                a.ok(&format!("ping -q -c 2 -i 0.1 -W 2 {}", b.ip4()))?;
                manager = Manager::start(a, &hca(a), "")?;
                manager.wait_for("SUBNET UP", LIMIT)?;
                up_again(a, b)?;
            }
            Ok(())
        })?;
        ensure!(before == changes()?, "the carrier was lost");
        manager.end()?;
        bed.finish()
    }
}

scenario! {
    /// A port gets another LID and is told of a manager that does not exist, so that no group can be joined anew: an
    /// interface keeps its carrier, and reaches the peers that it knows.
    #[on(lockdep)]
    fn nobody_answers_a_member(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = up(&bed, "pair", "", &[(Driver::Ours, "datagram"); 2])?;
        let (a, b) = bed.pair()?;
        up_again(a, b)?;
        let lost = || a.ok("cat /sys/class/net/ib0/carrier_down_count");
        let before = lost()?;
        manager.kill()?;
        let lid = Port::of(a, &hca(a))?.lid;
        for change in ["smlid 99".to_owned(), "lid 77".to_owned(), format!("lid {lid}")] {
            a.ok(&format!("ibportstate -C {} -P 1 -D 0 1 {change}", hca(a)))?;
        }
        a.wait_until("dmesg | grep -q 'ib0: cannot join ff12:401b:ffff::ffff:ffff'", 2 * LIMIT)?;
        a.ok(&format!("ping -q -c 3 -i 0.2 -W 2 {}", b.ip4()))?;
        ensure!(lost()? == before, "the carrier was lost");
        let manager = Manager::start(a, &hca(a), "")?;
        up_again(a, b)?;
        ensure!(lost()? == before, "the carrier was lost");
        manager.kill()?;
        bed.finish()
    }
}

/// A standby takes over under traffic, and hands back to one of higher priority.
fn hand_over(bed: &Bed, kinds: &[Kind]) -> Result<()> {
    let master = up(bed, "star 2", "", kinds)?;
    let (a, b) = bed.pair()?;
    up_again(a, b)?;
    let before = flushed(a)?;
    let standby = Manager::standby(b, &hca(b))?;
    let mut higher = None;
    under_traffic(bed, 10, || {
        master.kill()?;
        let is_master = |host: &Host| -> Result<()> {
            let lid = Port::of(host, &hca(host))?.lid;
            let asked = format!("sminfo -C {} -P 1", hca(a));
            a.wait_until(
                &format!(
                    "{asked} | grep -q 'sm lid {lid} .*SMINFO_MASTER' ||
                     {{ {asked}; tail -n 50 /var/log/opensm-*.log; false; }}"
                ),
                3 * LIMIT,
            )
        };
        is_master(b)?;
        up_again(a, b)?;
        let again = Manager::start(a, &hca(a), "-p 10")?;
        is_master(a)?;
        higher = Some(again);
        up_again(a, b)
    })?;
    let after = flushed(a)?;
    ensure!(after == before, "{before} and then {after}");
    standby.kill()?;
    higher.context("no manager")?.kill()
}

scenario! {
    /// In datagram mode, beside `ib_ipoib`.
    #[on(lockdep)]
    fn managers_hand_over(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        hand_over(&bed, &PAIRS[0])?;
        bed.finish()
    }
}

scenario! {
    /// In connected mode, on both sides.
    #[on(lockdep)]
    fn managers_hand_over_connected_ports(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        hand_over(&bed, &PAIRS[1])?;
        bed.finish()
    }
}

scenario! {
    /// In connected mode, beside `ib_ipoib`.
    #[on(lockdep)]
    fn managers_hand_over_beside_connected_ports(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        hand_over(&bed, &PAIRS[2])?;
        bed.finish()
    }
}

scenario! {
    /// An HCA reports all sorts of events, of which none is about a change: nothing is flushed, in either mode, and no path
    /// is asked for more than once an event.
    #[on(lockdep)]
    fn events_without_a_change_flush_nothing(bed) {
        const EVENTS: u64 = 6 * 20;
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = up(&bed, "pair", "", &PAIRS[1])?;
        let (a, b) = bed.pair()?;
        for mode in ["connected", "datagram"] {
            set_mode(a, "ib0", mode)?;
            up_again(a, b)?;
            let (before, asked) = (flushed(a)?, counter(a, "paths_resolved")?);
            under_traffic(&bed, 4, || {
                a.outside().ok(
                    "for i in $(seq 20); do
                         for event in client_reregister sm_change pkey_change port_active lid_change gid_change; do
                             echo $event >/sys/kernel/config/ib_hwsim/pair/hcas/h1/event
                             sleep 0.01
                         done
                     done",
                )?;
                Ok(())
            })?;
            let (after, asked) = (flushed(a)?, counter(a, "paths_resolved")? - asked);
            ensure!(after == before, "{mode}: {before} and then {after}");
            ensure!(asked <= EVENTS, "{mode}: {asked} paths");
        }
        manager.kill()?;
        bed.finish()
    }
}

/// A manager gives all ports other LIDs under traffic: paths are asked for again, and no stream breaks.
fn change_lids(bed: &Bed, kinds: &[Kind]) -> Result<()> {
    let mut manager = up(bed, "star 2", "", kinds)?;
    let (a, b) = bed.pair()?;
    let ports = [Port::of(a, &hca(a))?, Port::of(b, &hca(b))?];
    under_traffic(bed, 8, || {
        manager.kill()?;
        let cache = format!("/var/cache/opensm-{}/guid2lid", hca(a));
        let lines: Vec<String> = ports
            .iter()
            .zip([0x31, 0x27])
            .map(|(port, lid)| format!("{:#018x} {lid:#06x} {lid:#06x}", port.guid))
            .collect();
        a.ok(&format!("printf '{}\\n' >{cache}", lines.join("\\n\\n")))?;
        manager = Manager::start(a, &hca(a), "")?;
        a.wait_until(
            &format!("ibstat {} 1 | grep -q 'Base lid: 49'", hca(a)),
            LIMIT,
        )?;
        b.wait_until(
            &format!("ibstat {} 1 | grep -q 'Base lid: 39'", hca(b)),
            LIMIT,
        )?;
        up_again(a, b)
    })?;
    manager.kill()
}

scenario! {
    /// In datagram mode, beside `ib_ipoib`.
    #[on(lockdep)]
    fn ports_get_other_lids(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        change_lids(&bed, &PAIRS[0])?;
        bed.finish()
    }
}

scenario! {
    /// In connected mode, beside `ib_ipoib`.
    #[on(lockdep)]
    fn ports_get_other_lids_beside_connected_ones(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        change_lids(&bed, &PAIRS[2])?;
        bed.finish()
    }
}

scenario! {
    /// Connections end at once then, and are made anew: they would be stuck for seconds.
    #[on(lockdep)]
    fn connected_ports_get_other_lids(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        change_lids(&bed, &PAIRS[1])?;
        for host in bed.hosts.iter() {
            let counts = ["rc_closed", "rc_disconnected", "rc_stuck"].map(|name| counter(host, name));
            let [closed, disconnected, stuck] = counts;
            ensure!(closed? + disconnected? > 0 && stuck? == 0, "{}", host.ok("ethtool -S ib0")?);
        }
        bed.finish()
    }
}

scenario! {
    /// A port is down for longer than a peer may take nothing: none is to blame, and large frames go by a connection again
    /// as soon as there is one.
    #[on(timed, lockdep)]
    fn a_port_is_down_for_long(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        // The manager is cut off by it and hears no trap: it has to look often by itself.
        let manager = up(&bed, "star 2", "-s 1", &PAIRS[1])?;
        let (a, b) = bed.pair()?;
        let outside = a.outside();
        under_traffic(&bed, 10, || {
            std::thread::sleep(a.scaled(Duration::from_millis(500)));
            outside.ok("echo 0 >/sys/kernel/config/ib_hwsim/star/cables/c1/plugged")?;
            std::thread::sleep(a.scaled(Duration::from_secs(6)));
            outside.ok("echo 1 >/sys/kernel/config/ib_hwsim/star/cables/c1/plugged")?;
            up_again(a, b)
        })?;
        a.wait_until(&format!("ping -q -c 1 -W 1 -M do -s 60000 {}", b.ip4()), LIMIT)
            .with_context(|| a.ok("ethtool -S ib0").unwrap_or_default())?;
        let route = a.ok(&format!("ip route get {}", b.ip4()))?;
        ensure!(!route.contains("mtu") && counter(a, "rc_stuck")? == 0, "{route}{}", a.ok("ethtool -S ib0")?);
        manager.kill()?;
        bed.finish()
    }
}

scenario! {
    /// A port is down for so long that its peer gives their connection up, of which the port does not hear, and nobody asks for
    /// another one. The port blames nobody when it is back: it closes the connection, and large frames go by the next.
    #[on(timed, lockdep)]
    fn a_connection_does_not_outlast_the_peers_patience(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = up(&bed, "star 2", "-s 1", &PAIRS[1])?;
        let (a, b) = bed.pair()?;
        let cable = |plugged: u8| a.outside().ok(&format!("echo {plugged} >{CONFIGFS}/star/cables/c1/plugged"));
        up_again(a, b)?;
        a.wait_until(&format!("ping -q -c 1 -W 1 -M do -s 60000 {}", b.ip4()), LIMIT)?;
        cable(0)?;
        // It gives up after 5 s, and asks once more.
        b.run(&format!("ping -q -i 0.2 -w 6 {}", a.ip4()))?.refused()?;
        std::thread::sleep(Duration::from_secs(8));
        cable(1)?;
        a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), LIMIT)?;
        a.wait_until(&format!("ping -q -c 1 -W 1 -M do -s 60000 {}", b.ip4()), LIMIT)?;
        ensure!(counter(a, "rc_stuck")? == 0, "{}", a.ok("ethtool -S ib0")?);
        manager.kill()?;
        bed.finish()
    }
}

/// A manager gives the subnet another prefix: GIDs are others, and so are addresses, which the neighbours hear of.
fn change_prefix(bed: &Bed, kinds: &[Kind]) -> Result<()> {
    let manager = up(bed, "star 2", "", kinds)?;
    let (a, b) = bed.pair()?;
    up_again(a, b)?;
    manager.kill()?;
    a.outside()
        .ok("echo 'subnet_prefix 0xfec0000000000001' >/tmp/prefix.conf")?;
    let manager = Manager::start(a, &hca(a), "-F /tmp/prefix.conf")?;
    for host in [a, b] {
        host.wait_until(
            "grep -q ':fe:c0:00:00:00:00:00:01:' /sys/class/net/ib0/address",
            2 * LIMIT,
        )?;
    }
    up_again(a, b)?;
    for (from, to) in [(a, b), (b, a)] {
        let address = to.ok("cat /sys/class/net/ib0/address")?;
        let known = neighbour(from, &to.ip4(), "ib0")?;
        ensure!(known == address.trim(), "{known} for {address}");
    }
    manager.kill()
}

scenario! {
    /// In datagram mode, beside `ib_ipoib`.
    #[on(lockdep)]
    fn the_subnet_gets_another_prefix(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        change_prefix(&bed, &PAIRS[0])?;
        bed.finish()
    }
}

scenario! {
    /// In connected mode, on both sides.
    #[on(lockdep)]
    fn connected_ports_get_another_prefix(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        change_prefix(&bed, &PAIRS[1])?;
        bed.finish()
    }
}

scenario! {
    /// The link has lost its broadcast group, which nobody answers for. Frames for new peers wait for it for 4 s, however
    /// long it is until the next attempt to join.
    fn frames_wait_for_a_lost_link_for_some_time(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let kind = (Driver::Ours, "datagram");
        let manager = up(&bed, "pair", "", &[kind, kind])?;
        let (a, b) = bed.pair()?;
        a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), LIMIT)?;
        manager.kill()?;
        b.outside().ok(&format!("echo client_reregister >{CONFIGFS}/pair/hcas/h2/event"))?;
        // The attempts become rare.
        std::thread::sleep(Duration::from_secs(15));
        let address = b.ok("cat /sys/class/net/ib0/address")?;
        let front = address.trim().split_at(36).0;
        for n in 1..=2 {
            let before = counter(b, "tx_drop_link_down")?;
            let begin = Instant::now();
            b.ok(&format!(
                "ip neigh replace 10.1.0.9{n} lladdr {front}02:00:5e:ff:fe:00:53:9{n} dev ib0 nud permanent"
            ))?;
            b.run(&format!("ping -q -c 1 -W 1 10.1.0.9{n}"))?.refused()?;
            while counter(b, "tx_drop_link_down")? == before {
                // The driver looks once a second, and a reading may take most of another one.
                ensure!(begin.elapsed() < Duration::from_secs(6), "frame {n} waits: {}", b.ok("ethtool -S ib0")?);
                std::thread::sleep(Duration::from_millis(200));
            }
        }
        bed.finish()
    }
}
