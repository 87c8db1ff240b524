// SPDX-License-Identifier: GPL-2.0

//! Users of other hosts who ask for connections: in the name of a peer's interface, or in ever new names.

use super::super::manager::Manager;
use super::super::{EXCLUSIVE, active, device, hca, inhabit, make};
use super::add;
use super::rdmacm::UCM;
use crate::connected::{connect, story};
use crate::inspect::{directory, identity, table};
use crate::order::{counter, set};
use crate::transfer::transfer;
use anyhow::{Context, Result, ensure};
use lab::bed::{Bed, Host};
use lab::scenario;
use lab::task::Task;
use std::time::Duration;

pub(crate) const NOBODY: &str = include_str!("../../../guest/hwsim/rdmacm/nobody.py");
const NAMES: &str = include_str!("../../../guest/hwsim/rdmacm/names.py");
const HIJACK: &str = include_str!("../../../guest/hwsim/rdmacm/hijack.py");

/// Makes `ib0` in connected mode on an HCA, which all namespaces see.
fn link(host: &Host, hca: u8) -> Result<()> {
    host.ok(&format!(
        "ip link add name ib0 type ipoib_rs device {} mode connected && ip link set ib0 mtu 65520",
        device(hca)
    ))?;
    host.ib_up()
}

/// The service of an interface in Linux (`IPOIB_CM_IETF_ID`), and in RFC 4755, section 3.5, less its QPN.
const LINUX: u64 = 0x10 << 56;
const RFC: u64 = 0x01 << 56;

/// Has a user of the victim's host ask another one so often, and confirm what that answers.
fn hijack(victim: &Host, asked: &Host, rounds: u8) -> Result<Task> {
    let task = ask(victim, asked, rounds, LINUX)?;
    task.wait_for("confirmed", victim.scaled(Duration::from_secs(20)))?;
    task.wait_for("done", victim.scaled(Duration::from_secs(60)))?;
    Ok(task)
}

/// Has a user begin to do so by a service.
fn ask(victim: &Host, asked: &Host, rounds: u8, service: u64) -> Result<Task> {
    let (gid, qpn) = identity(asked)?;
    let (own_gid, own_qpn) = identity(victim)?;
    let program = format!("{NOBODY}{UCM}{HIJACK}");
    let (rounds, service) = (rounds.to_string(), service.to_string());
    let arguments = [&*gid, &qpn, &own_gid, &own_qpn, &rounds, &service];
    victim.spawn_python(&program, &arguments)
}

/// Large packets pass, all of them, which only a connection carries.
fn passes(from: &Host, to: &Host) -> Result<()> {
    for (from, to) in [(from, to), (to, from)] {
        from.ok(&format!(
            "ping -q -c 20 -i 0.05 -W 5 -s 20000 {} | grep -q ' 0% packet loss'",
            to.ip4()
        ))
        .with_context(|| format!("{}{}", story(from), story(to)))?;
    }
    Ok(())
}

/// Two hosts in connected mode, and a subnet manager.
fn pair_up(bed: &Bed) -> Result<Manager> {
    let (victim, sender) = bed.pair()?;
    let outside = victim.outside();
    outside.ok("modprobe ipoib_rs && modprobe rdma_ucm")?;
    make(&outside, "pair")?;
    let manager = Manager::start(&outside, &device(1), "")?;
    for hca in [1, 2] {
        active(&outside, &device(hca))?;
    }
    link(victim, 1)?;
    link(sender, 2)?;
    Ok(manager)
}

scenario! {
    /// An interface takes requests for its service as RFC 4755 has it, and as Linux has it, and for no other.
    #[on(lockdep)]
    fn services_of_an_interface(bed) {
        let bed = bed.one_machine().up()?;
        let manager = pair_up(&bed)?;
        let (asks, asked) = bed.pair()?;
        for (service, answer, accepted) in [(LINUX, "confirmed", 1), (RFC, "confirmed", 1), (0x02 << 56, "rejected", 0)] {
            let before = counter(asked, "rc_accepted")?;
            let user = ask(asks, asked, 1, service)?;
            user.wait_for(answer, asks.scaled(Duration::from_secs(20)))
                .with_context(|| format!("{service:#x}: {}", story(asked)))?;
            let more = counter(asked, "rc_accepted")? - before;
            ensure!(more == accepted, "{service:#x}: {more} accepted, {}", story(asked));
            user.stop()?;
        }
        manager.end()?;
        bed.finish()
    }
}

scenario! {
    /// A user without any privilege asks, on a peer's host and in the name of the peer's interface, and confirms what is
    /// answered. No frame goes by that: what the peer has stays, and where it has nothing, it gets a connection.
    #[on(lockdep, races)]
    fn users_of_a_peers_host_get_no_traffic(bed) {
        let bed = bed.one_machine().up()?;
        let manager = pair_up(&bed)?;
        let (victim, sender) = bed.pair()?;
        let outside = victim.outside();
        for host in [victim, sender] {
            set(host, "rc_idle_s", 3600)?;
        }
        connect(victim, sender)?;
        // Connections that the sender has asked for, and all that it ever asked for.
        let sends = || -> Result<(u64, u64)> {
            let rows = table(sender, &format!("{}/connections", directory(sender, "ib0")?))?;
            let up = rows.iter().filter(|row| row["state"] == "up").count();
            Ok((up as u64, counter(sender, "rc_requests_sent")?))
        };
        let before = sends()?;
        let flow = sender.spawn(&format!("ping -q -i 0.02 -s 20000 {}", victim.ip4()))?;
        let user = hijack(victim, sender, 5)?;
        passes(sender, victim)?;
        user.stop()?;
        flow.stop()?;
        ensure!(counter(victim, "rc_connected")? == 2 && counter(victim, "rc_current")? == 2, "{}", story(victim));
        // The user's were confirmed, and the sender goes on by its own.
        ensure!(counter(sender, "rc_connected")? > 2 && sends()? == before, "{}", story(sender));
        transfer(sender, victim, &victim.ip4(), 1)?;

        // Neither has a connection, or knows of any.
        for host in [victim, sender] {
            host.ok("ip link set ib0 down && ip link set ib0 up")?;
        }
        for host in [victim, sender] {
            host.wait_until("ip -o link show ib0 | grep -q LOWER_UP", Duration::from_secs(10))?;
        }
        let before = counter(sender, "rc_requests_sent")?;
        let user = hijack(victim, sender, 1)?;
        let large = format!("ping -q -c 1 -W 1 -s 20000 {}", victim.ip4());
        sender.wait_until(&large, Duration::from_secs(20)).with_context(|| story(sender))?;
        passes(sender, victim)?;
        ensure!(sends()? == (1, before + 1), "{}", story(sender));
        user.stop()?;
        manager.end()?;
        outside.run_for("ib-hwsim down && modprobe -r ib_hwsim ipoib_rs", Duration::from_secs(60))?.ok()?;
        bed.finish()
    }
}

/// The LID of a host's port.
fn lid(host: &Host) -> Result<String> {
    let text = host.ok(&format!(
        "cat /sys/class/infiniband/{}/ports/1/lid",
        hca(host)
    ))?;
    Ok(text.trim().to_owned())
}

scenario! {
    /// A user without any privilege asks with ever new GIDs, which nobody checks, by each LID of its port, and confirms what is
    /// answered. Its host gets the part that one host has, whatever it says, and another host's driver gets a connection: it has
    /// no other way to send.
    #[on(uml, timed)]
    fn users_of_one_host_leave_room_for_others(bed) {
        let bed = bed.one_machine().hosts(3).append(EXCLUSIVE).lifetime(Duration::from_secs(240)).up()?;
        let [ours, bad, other] = &bed.hosts[..] else {
            anyhow::bail!("no three hosts");
        };
        let outside = ours.outside();
        outside.ok("modprobe ipoib_rs rc_recv_queue_size=64 && modprobe ib_ipoib && modprobe rdma_ucm")?;
        make(&outside, "star 3")?;
        let manager = inhabit(&bed, "-l 1")?;
        add(ours, "mode connected")?;
        ours.ok("ip link set ib0 mtu 65520")?;
        other.ok("echo connected >/sys/class/net/ib0/mode && ip link set ib0 mtu 65520")?;
        for host in [ours, bad] {
            host.ib_up()?;
        }
        let (gid, qpn) = identity(ours)?;
        let (own_gid, _) = identity(bad)?;
        let program = format!("{NOBODY}{UCM}{NAMES}");
        let user = bad.spawn_python(&program, &[&gid, &qpn, &own_gid, &lid(ours)?, &lid(bad)?])?;
        user.wait_for("asked 80", bad.scaled(Duration::from_secs(60))).with_context(|| story(ours))?;
        other.ib_up()?;
        let ping = format!("ping -q -c 1 -W 1 -s 20000 {}", ours.ip4());
        other.wait_until(&ping, Duration::from_secs(10)).with_context(|| story(ours))?;
        let rows = table(ours, &format!("{}/connections", directory(ours, "ib0")?))?;
        let of = |lid: &str| rows.iter().filter(|row| u32::from_str_radix(lid.trim_start_matches("0x"), 16).is_ok_and(|lid| row["lid"] == lid.to_string())).count();
        let (of_bad, of_other) = (of(&lid(bad)?), of(&lid(other)?));
        // A quarter of 32, and the one that is open.
        let is_all = rows.iter().filter(|row| row["state"] == "receiving").count() == of_bad + of_other;
        ensure!((6..=9).contains(&of_bad) && of_other == 1 && is_all, "{of_bad}, {of_other}: {}", story(ours));
        let said = user.stop()?.stdout;
        ensure!(said.lines().last().is_some_and(|line| line.starts_with("asked")), "{said}");
        manager.end()?;
        bed.finish()
    }
}
