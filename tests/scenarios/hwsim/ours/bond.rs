// SPDX-License-Identifier: GPL-2.0

//! Bonding over two ports of one fabric, and over what a cable leads through.

use super::super::fabric::CONFIGFS;
use super::super::manager::Manager;
use super::super::{EXCLUSIVE, active, device, make};
use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::scenario;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(10);

/// The longest time between two answers of a ping that has printed when each came (`-D`), in seconds.
pub(super) fn longest_gap(text: &str) -> Result<f64> {
    let times: Vec<f64> = text
        .lines()
        .filter(|line| line.contains("bytes from"))
        .filter_map(|line| line.strip_prefix('[')?.split_once(']')?.0.parse().ok())
        .collect();
    ensure!(times.len() > 50, "{text}");
    let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
    Ok(gaps.fold(0.0, f64::max))
}

/// Makes a fabric whose HCAs are these hosts', with a manager on the first and all ports active, for bonds.
fn fabric(topology: &str, hosts: &[&Host]) -> Result<Manager> {
    let first = hosts.first().context("no host")?;
    let outside = first.outside();
    outside.ok("modprobe ipoib_rs && modprobe bonding max_bonds=0")?;
    make(&outside, topology)?;
    for (number, host) in (1..).zip(hosts) {
        let netns = host.netns().context("a host without a namespace")?;
        outside.ok(&format!("rdma dev set {} netns {netns}", device(number)))?;
    }
    let manager = Manager::start(first, &device(1), "")?;
    for (number, host) in (1..).zip(hosts) {
        active(host, &device(number))?;
    }
    Ok(manager)
}

fn is_active(host: &Host, name: &str) -> Result<()> {
    host.wait_until(
        &format!("grep -qx {name} /sys/class/net/bond0/bonding/active_slave"),
        LIMIT,
    )
}

scenario! {
    /// A host with two ports in an active-backup bond: when the cable of the active one is pulled, packets go by the other
    /// within a second, whichever mode they are in; so when that one's is.
    ///
    /// Only Debian's kernel has bonding.
    #[on(stock)]
    fn a_bond_fails_over_within_a_second(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let (a, b) = bed.pair()?;
        let outside = a.outside();
        // The cable of the manager's host stays.
        let manager = fabric("star 3", &[b, a, a])?;
        for mode in ["datagram", "connected"] {
            b.ok(&format!("ip link add name ib0 type ipoib_rs device {} mode {mode}", device(1)))?;
            b.ib_up()?;
            a.ok(&format!(
                "set -e
                 ip link add name ib0 type ipoib_rs device {} mode {mode}
                 ip link add name ib1 type ipoib_rs device {} mode {mode}
                 ip link add bond0 type bond mode active-backup miimon 50 fail_over_mac active
                 ip link set ib0 master bond0
                 ip link set ib1 master bond0
                 ip addr add {}/24 dev bond0
                 ip addr add {}/64 dev bond0 nodad
                 ip link set bond0 up",
                device(2), device(3), a.ip4(), a.ip6()
            ))?;
            // Whichever is up first is active.
            a.wait_until("test $(grep -c 'MII Status: up' /proc/net/bonding/bond0) = 3", LIMIT)?;
            a.ok("ip link set bond0 type bond active_slave ib0")?;
            is_active(a, "ib0")?;
            for host in [&a.ip4(), &a.ip6()] {
                b.wait_until(&format!("ping -q -c 1 -W 1 {host}"), LIMIT)?;
            }
            let ping = a.spawn(&format!("ping -D -i 0.05 -W 1 {}", b.ip4()))?;
            for (cable, next) in [("c2", "ib1"), ("c3", "ib0")] {
                std::thread::sleep(Duration::from_secs(2));
                outside.ok(&format!("echo 0 >{CONFIGFS}/star/cables/{cable}/plugged"))?;
                is_active(a, next)?;
                std::thread::sleep(Duration::from_secs(2));
                ensure!(a.ok("cat /sys/class/net/bond0/address")? == a.ok(&format!("cat /sys/class/net/{next}/address"))?);
                outside.ok(&format!("echo 1 >{CONFIGFS}/star/cables/{cable}/plugged"))?;
                a.wait_until("test $(grep -c 'MII Status: up' /proc/net/bonding/bond0) = 3", LIMIT)?;
            }
            let gap = longest_gap(&ping.stop()?.stdout)?;
            println!("{mode}: nothing came for {gap:.2} s at most");
            ensure!(gap < 1.0, "nothing came for {gap} s");
            a.ok("ip link del bond0 && ip link del ib0 && ip link del ib1")?;
            b.ok("ip link del ib0")?;
        }
        manager.kill()?;
        bed.finish()
    }
}

scenario! {
    /// A bond has the address that its active slave has after a change of mode, too, and hears by it.
    ///
    /// Only Debian's kernel has bonding.
    #[on(stock)]
    fn a_bond_has_the_address_of_its_slave(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let (a, b) = bed.pair()?;
        let manager = fabric("pair", &[b, a])?;
        b.ok(&format!("ip link add name ib0 type ipoib_rs device {} mode connected", device(1)))?;
        b.ib_up()?;
        a.ok(&format!(
            "set -e
             ip link add name ib0 type ipoib_rs device {}
             ip link add bond0 type bond mode active-backup miimon 50 fail_over_mac active
             ip link set ib0 master bond0
             ip addr add {}/24 dev bond0
             ip link set bond0 up",
            device(2), a.ip4()
        ))?;
        is_active(a, "ib0")?;
        for mode in ["datagram", "connected", "datagram"] {
            a.ok(&format!("ip link set ib0 type ipoib_rs mode {mode}"))?;
            b.wait_until(&format!("ping -q -c 1 -W 1 {}", a.ip4()), LIMIT)?;
            let addresses = ["bond0", "ib0"].map(|name| a.ok(&format!("cat /sys/class/net/{name}/address")));
            let [bond, slave] = addresses;
            let (bond, slave) = (bond?, slave?);
            ensure!(bond == slave, "{mode}: {bond} of {slave}");
            // The neighbour hears of it, and sends by a connection, or no longer does.
            let first = u8::from_str_radix(&slave[..2], 16)?;
            ensure!((first & 0x80 != 0) == (mode == "connected"), "{mode}: {slave}");
            b.wait_until(&format!("ip neigh show dev ib0 | grep -q ' {}'", slave.trim()), LIMIT)?;
        }
        manager.kill()?;
        bed.finish()
    }
}

const CABLES: &str = include_str!("../../../guest/hwsim/bond/cables.sh");

scenario! {
    /// A cable through a bond is let go when that gets an InfiniBand interface, before it has longer addresses.
    ///
    /// Only Debian's kernel has bonding.
    #[on(stock)]
    fn a_bond_of_infiniband_is_no_cable(bed) {
        let bed = bed.one_machine().hosts(1).up()?;
        let host = bed.hosts[0].outside();
        host.ok("modprobe ipoib_rs && modprobe bonding max_bonds=0")?;
        make(&host, "pair")?;
        host.sh(CABLES, &[CONFIGFS, &device(1)])?;
        // The device is another cable's.
        let next = format!("echo 1 >{CONFIGFS}/next/live");
        host.run(&next)?.refused()?;
        host.ok("ip link set ib0 master bond0 && grep -qx 32 /sys/class/net/bond0/type")?;
        // It is nobody's now, and nobody gets it before it is Ethernet again.
        host.run(&next)?.refused()?;
        host.ok(
            "set -e
             ip link set ib0 nomaster
             ip link add v0 type veth peer name v1
             ip link set v0 master bond0
             grep -qx 1 /sys/class/net/bond0/type",
        )?;
        host.ok(&next)?;
        host.ok("ip link del bond0 && ip link del ib0")?;
        bed.finish()
    }
}
