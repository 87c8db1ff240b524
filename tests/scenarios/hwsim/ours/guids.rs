// SPDX-License-Identifier: GPL-2.0

//! GUIDs of addresses that change or move in the port's table, mostly with `ib_ipoib` as the peer.

use super::super::control::ask_for_guid;
use super::super::fabric::CONFIGFS;
use super::super::mads::UMAD;
use super::super::{EXCLUSIVE, hca};
use super::bond::longest_gap;
use super::partitions::{child, start};
use super::rdmacm::UCM;
use super::{Driver, LIMIT, set_mode, up};
use crate::inspect::directory;
use crate::interop::neighbour;
use crate::multicast::{CM_MEMBER, joined, receive, works};
use crate::order::counter;
use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::scenario;
use std::time::Duration;

/// Gives `ib0` another GUID, for which it has to be down; then it has no IPv6 address any more.
fn set_guid(host: &Host, guid: &str) -> Result<()> {
    host.ok(&format!(
        "set -e
         ip link set ib0 down
         address=$(cat /sys/class/net/ib0/address)
         ip link set ib0 address ${{address%:??:??:??:??:??:??:??:??}}:{guid}
         ip link set ib0 up
         ip addr replace {}/64 dev ib0 nodad",
        host.ip6()
    ))?;
    Ok(())
}

/// A host reaches another one, whose address it knows soon, and the other way round, and so do their children.
fn reach_each_other(from: &Host, to: &Host) -> Result<()> {
    for (from, to) in [(from, to), (to, from)] {
        for target in [to.ip4(), to.ip6(), format!("10.2.0.{}", to.number())] {
            from.wait_until(&format!("ping -q -c 1 -W 1 {target}"), LIMIT)
                .with_context(|| format!("from host {} to {target}", from.number()))?;
        }
    }
    let address = to.ok("cat /sys/class/net/ib0/address")?;
    from.until(LIMIT, || {
        Ok(neighbour(from, &to.ip4(), "ib0")? == address.trim())
    })
    .with_context(|| format!("{address} is unknown"))
}

/// The address of a host gets another GUID, and its own one again, while a host pings it. Ours may have it before the
/// subnet manager gives it to the port; `ib_ipoib` has no carrier afterwards.
fn change(host: &Host, driver: Driver, from: &Host) -> Result<()> {
    let address = host.ok("cat /sys/class/net/ib0/address")?;
    let own = address.trim().get(36..).context("a short address")?;
    let other = format!("02:00:5e:ff:fe:00:53:{:02x}", host.number());
    let raw = format!("0x{}", other.replace(':', ""));
    reach_each_other(from, host)?;
    let ping = from.spawn(&format!("ping -D -n -i 0.02 {}", host.ip4()))?;
    if driver == Driver::Ours {
        set_guid(host, &other)?;
        from.run(&format!("ping -q -c 2 -i 0.5 -W 0.5 {}", host.ip4()))?
            .refused()?;
        ensure!(host.ok("ip -o link show ib0")?.contains("NO-CARRIER"));
        ask_for_guid(host, "set", &raw)?;
    } else {
        ask_for_guid(host, "set", &raw)?;
        set_guid(host, &other)?;
    }
    reach_each_other(from, host).with_context(|| other.clone())?;
    for interface in ["ib0", "ib0.8001"] {
        let now = host.ok(&format!("cat /sys/class/net/{interface}/address"))?;
        ensure!(now.trim().ends_with(&other), "{interface}: {now}");
    }
    set_guid(host, own)?;
    ask_for_guid(host, "delete", &raw)?;
    reach_each_other(from, host)?;
    // It goes on.
    std::thread::sleep(from.scaled(Duration::from_millis(1500)));
    let text = ping.stop()?.stdout;
    let gap = longest_gap(&text)?;
    ensure!(
        gap < from.scaled(LIMIT).as_secs_f64(),
        "{gap} s without an answer"
    );
    println!("host {}: {gap:.1} s without an answer", host.number());
    Ok(())
}

scenario! {
    /// The GUID of ours is another one while `ib_ipoib` pings it, and the other way round, in both modes: pings go on soon,
    /// and so do those of children.
    #[on(lockdep)]
    fn either_driver_gets_another_guid(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = up(&bed, "pair", "", &[(Driver::Ours, "datagram"), (Driver::C, "datagram")])?;
        let (a, b) = bed.pair()?;
        manager.kill()?;
        let manager = start(a, &["Blue=0x0001, ipoib : ALL=full;".to_owned()])?;
        child(a, Driver::Ours, 1)?;
        child(b, Driver::C, 1)?;
        for mode in ["datagram", "connected"] {
            for (host, interface) in [(a, "ib0"), (a, "ib0.8001"), (b, "ib0"), (b, "ib0.8001")] {
                set_mode(host, interface, mode)?;
            }
            change(a, Driver::Ours, b).with_context(|| format!("ours, {mode}"))?;
            change(b, Driver::C, a).with_context(|| format!("theirs, {mode}"))?;
        }
        manager.kill()?;
        bed.finish()
    }
}

const GUIDS: &str = include_str!("../../../guest/hwsim/weather/guids.py");

scenario! {
    /// The GUID of an interface moves to another place of the port's table, and the interface with it, for ours and for
    /// `ib_ipoib` as peers. The RDMA core fills the table anew as often as it likes.
    #[on(lockdep)]
    fn a_guid_moves_in_the_table(bed) {
        let bed = bed.one_machine().hosts(3).append(EXCLUSIVE).up()?;
        let kinds = [Driver::Ours, Driver::Ours, Driver::C].map(|driver| (driver, "datagram"));
        let manager = up(&bed, "star 3", "", &kinds)?;
        let [a, peers @ ..] = &bed.hosts[..] else {
            anyhow::bail!("no host");
        };
        let raw = "0x02005efffe005301";
        set_guid(a, "02:00:5e:ff:fe:00:53:01")?;
        ask_for_guid(a, "set", raw)?;
        let finds = |from: &Host, to: &Host| {
            from.wait_until(&format!("ip neigh flush dev ib0; ping -q -c 1 -W 1 {}", to.ip4()), LIMIT)
        };
        let all_find = || peers.iter().try_for_each(|peer| finds(a, peer).and_then(|()| finds(peer, a)));
        all_find()?;
        let before = counter(a, "restarts")?;
        let (outside, events) = (a.outside(), format!("{CONFIGFS}/star/hcas/h1/event"));
        let event = format!("for i in $(seq 200); do echo gid_change >{events}; echo sm_change >{events}; done");
        outside.ok(&event)?;
        ensure!(counter(a, "restarts")? == before);
        a.python(&format!("{UMAD}{GUIDS}"), &[&hca(a), "0", raw])?.ok()?;
        let again = format!("[ $(ethtool -S ib0 | sed -n 's/^ *restarts: //p') -gt {before} ]");
        a.wait_until(&again, LIMIT)?;
        all_find()?;
        // It may have looked when the core had emptied the one place and not filled the other yet.
        let moved = counter(a, "restarts")?;
        ensure!(moved <= before + 2, "{moved} after {before}");
        outside.ok(&event)?;
        ensure!(counter(a, "restarts")? == moved);
        manager.kill()?;
        bed.finish()
    }
}

scenario! {
    /// RDMA core allows one GID of a port in each group. A program cannot join a group by the address of an interface with
    /// another GUID that is in it. Nor can the interface join a group that such a program is in.
    #[on(lockdep)]
    fn a_group_has_members_of_one_guid(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let kind = (Driver::Ours, "datagram");
        let manager = up(&bed, "pair", "", &[kind, kind])?;
        let (a, b) = bed.pair()?;
        set_guid(a, "02:00:5e:ff:fe:00:53:01")?;
        ask_for_guid(a, "set", "0x02005efffe005301")?;
        a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), LIMIT)?;
        a.ok("modprobe rdma_ucm")?;
        let member = format!("{UCM}{CM_MEMBER}");

        let receiver = receive(a, "239.1.2.3")?;
        joined(a)?;
        let other = a.spawn_python(&member, &[&a.ip4(), "239.1.2.3"])?;
        other.wait_for("multicast-error", a.scaled(LIMIT))?;
        other.stop()?;
        receiver.stop()?;

        let other = a.spawn_python(&member, &[&a.ip4(), "239.1.2.4"])?;
        other.wait_for("multicast-joined", a.scaled(LIMIT))?;
        let receiver = receive(a, "239.1.2.4")?;
        let failed = format!("grep -q '^ff12:401b:ffff::f01:204 failed 1 ' {}/groups", directory(a, "ib0")?);
        a.wait_until(&failed, LIMIT)?;
        // The interface goes on trying, and is in the group soon after the program has left it.
        other.stop()?;
        works(b, "239.1.2.4", &[&receiver])?;
        receiver.stop()?;
        manager.end()?;
        bed.finish()
    }
}
