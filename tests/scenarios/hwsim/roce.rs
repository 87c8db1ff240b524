// SPDX-License-Identifier: GPL-2.0

//! This checkout's driver over two HCAs with Ethernet ports, back to back. The hosts are network namespaces of one
//! machine, whose `eth0` are the network devices of the ports.

use super::fabric::CONFIGFS;
use super::hca;
use crate::connected::{connect, set_mode, story};
use crate::multicast::exchange;
use crate::order::counter;
use crate::transfer::transfer;
use anyhow::{Context, Result, ensure};
use lab::bed::{Bed, Host};
use lab::scenario;
use std::time::{Duration, Instant};

/// Directory of the fabric.
pub(super) fn fabric() -> String {
    format!("{CONFIGFS}/roce")
}

/// Name of the HCA of a host.
fn name(host: &Host) -> String {
    format!("h{}", host.number())
}

/// A file of the HCA of a host.
pub(super) fn file(host: &Host, name_of_file: &str) -> String {
    format!("{}/hcas/{}/{name_of_file}", fabric(), name(host))
}

/// Writes to a file of the HCA of a host. A text of several lines, `\n` between them, is one write.
pub(crate) fn write(host: &Host, name_of_file: &str, text: &str) -> Result<()> {
    host.outside()
        .ok(&format!("printf '{text}' >{}", file(host, name_of_file)))?;
    Ok(())
}

/// Makes the fabric, whose HCAs are off: `make` may still set what they are.
pub(super) fn make(bed: &Bed) -> Result<()> {
    let outside = bed.pair()?.0.outside();
    outside.ok(&format!(
        "set -e
         modprobe ib_hwsim
         mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
         mkdir {0} {0}/hcas/h1 {0}/hcas/h2 {0}/cables/c1
         echo h1/1 h2/1 >{0}/cables/c1/ends",
        fabric()
    ))?;
    for host in &bed.hosts {
        set_netdev(host, host, "eth0")?;
    }
    Ok(())
}

/// Gives the HCA of a host a network device, by its name at another host.
fn set_netdev(netns: &Host, host: &Host, device: &str) -> Result<()> {
    let netns = netns.netns().context("a host without a namespace")?;
    host.outside().ok(&format!(
        "nsenter --net=/run/netns/{netns} sh -c 'echo {device} >{}'",
        file(host, "netdev")
    ))?;
    Ok(())
}

/// Switches all HCAs on and plugs the cable in.
pub(super) fn live(bed: &Bed) -> Result<()> {
    let outside = bed.pair()?.0.outside();
    outside.ok(&format!("echo 1 >{}/live", fabric()))?;
    Ok(())
}

/// Pulls the cable, or plugs it in.
pub(crate) fn plug(bed: &Bed, plugged: bool) -> Result<()> {
    let outside = bed.pair()?.0.outside();
    let plugged = u8::from(plugged);
    outside.ok(&format!("echo {plugged} >{}/cables/c1/plugged", fabric()))?;
    Ok(())
}

/// Gives each host an `ib0` of the driver's that is up, made with `options`.
pub(super) fn interfaces(bed: &Bed, options: &str) -> Result<()> {
    for host in &bed.hosts {
        host.ib_add(options)?;
        host.ib_up()?;
    }
    Ok(())
}

/// Gives a host an `ib1` beside `ib0`, which does not answer for its address.
pub(super) fn second_interface(host: &Host) -> Result<()> {
    host.ok(&format!(
        "sysctl -qw net.ipv4.conf.all.arp_ignore=1
         ip link add link eth0 name ib1 type ipoib_rs
         ip addr add 10.2.0.{}/24 dev ib1 && ip link set ib1 up",
        host.number()
    ))?;
    Ok(())
}

/// Two hosts with an `ib0` each. `set` may set what their HCAs are before they are switched on.
pub(crate) fn up(bed: &Bed, options: &str, set: impl FnOnce(&Bed) -> Result<()>) -> Result<()> {
    make(bed)?;
    set(bed)?;
    live(bed)?;
    interfaces(bed, options)
}

/// Waits until a ping passes.
pub(crate) fn ping(from: &Host, to: &Host) -> Result<()> {
    from.wait_until(
        &format!("ping -q -c 1 -W 1 {}", to.ip4()),
        Duration::from_secs(30),
    )
}

scenario! {
    /// IPv4 and IPv6 pass, large and small.
    #[on(lockdep, both, races)]
    fn roce_ports_ping(bed) {
        let bed = bed.one_machine().up()?;
        up(&bed, "", |_| Ok(()))?;
        let (a, b) = bed.pair()?;
        for (from, to) in [(a, b), (b, a)] {
            for size in [56, 4000, 20000] {
                from.ok(&format!(
                    "ping -4 -q -c 3 -i 0.05 -W 5 -s {size} {} && ping -6 -q -c 3 -i 0.05 -W 5 -s {size} {}",
                    to.ip4(),
                    to.ip6()
                ))?;
            }
        }
        bed.finish()
    }
}

/// Waits until the `ib0` of a host has a carrier, or has none.
pub(crate) fn carrier(host: &Host, carrier: bool) -> Result<()> {
    let not = if carrier { "" } else { "! " };
    host.wait_until(
        &format!("{not}ip -o link show ib0 | grep -q LOWER_UP"),
        Duration::from_secs(10),
    )
}

scenario! {
    /// A cable that is pulled takes both carriers away, and so does a network device that is down.
    #[on(lockdep, races)]
    fn a_roce_cable_is_pulled(bed) {
        let bed = bed.one_machine().up()?;
        up(&bed, "", |_| Ok(()))?;
        let (a, b) = bed.pair()?;
        ping(a, b)?;
        for _ in 0..3 {
            plug(&bed, false)?;
            carrier(a, false)?;
            carrier(b, false)?;
            plug(&bed, true)?;
            carrier(a, true)?;
            carrier(b, true)?;
            ping(a, b)?;
        }
        a.ok("ip link set eth0 down")?;
        carrier(a, false)?;
        carrier(b, false)?;
        a.ok("ip link set eth0 up")?;
        carrier(a, true)?;
        carrier(b, true)?;
        ping(a, b)?;
        bed.finish()
    }
}

scenario! {
    /// An HCA's attributes are set before it is switched on.
    #[on(lockdep, races)]
    fn a_roce_port_has_limits(bed) {
        let bed = bed.one_machine().up()?;
        up(&bed, "", |bed| {
            let (a, b) = bed.pair()?;
            write(a, "mtu", "2048")?;
            write(b, "max_send_sge", "4")
        })?;
        let (a, b) = bed.pair()?;
        ping(a, b)?;
        let mtu = a.ok("cat /sys/class/net/ib0/mtu")?;
        ensure!(mtu.trim() == "2044", "{mtu}");
        bed.finish()
    }
}

scenario! {
    /// Multicast of IPv4 and IPv6, also after the cable was away.
    #[on(lockdep, races)]
    fn roce_ports_carry_multicast(bed) {
        let bed = bed.one_machine().up()?;
        up(&bed, "", |_| Ok(()))?;
        exchange(&bed, "239.1.2.3", "64")?;
        plug(&bed, false)?;
        let (a, b) = bed.pair()?;
        carrier(b, false)?;
        plug(&bed, true)?;
        for host in [a, b] {
            carrier(host, true)?;
        }
        exchange(&bed, "ff05::4711", "4000")?;
        bed.finish()
    }
}

scenario! {
    /// Connections are made by the CM, and carry streams whose content is compared.
    #[on(lockdep, both, races)]
    fn roce_ports_have_connections(bed) {
        let bed = bed.one_machine().up()?;
        up(&bed, "mode connected", |_| Ok(()))?;
        let (a, b) = bed.pair()?;
        for host in [a, b] {
            host.ok("ip link set ib0 mtu 65520")?;
        }
        connect(a, b)?;
        transfer(a, b, &b.ip4(), 8)?;
        transfer(b, a, &a.ip6(), 8)?;
        for host in [a, b] {
            ensure!(counter(host, "rc_rx_frames")? > 100, "{}", story(host));
        }
        // A connection does not outlive its cable for long, and there is a new one then.
        plug(&bed, false)?;
        carrier(a, false)?;
        plug(&bed, true)?;
        carrier(a, true)?;
        connect(a, b)?;
        transfer(a, b, &b.ip4(), 1)?;
        bed.finish()
    }
}

/// Does this on the machine, which has to end with this error.
fn fails(host: &Host, script: &str, error: &str) -> Result<()> {
    // The one that is built into a shell has another word for each of them.
    let script = script.replace("echo ", "/bin/echo ");
    let output = host.outside().run(&script)?;
    let said = output.describe();
    output.refused()?;
    ensure!(said.contains(error), "{script}: {said}");
    Ok(())
}

scenario! {
    /// Network devices that cannot be those of a port, and cables that cannot end at one.
    #[on(lockdep, races)]
    fn roce_ports_that_cannot_be(bed) {
        let bed = bed.one_machine().up()?;
        make(&bed)?;
        let (a, b) = bed.pair()?;
        let (dir, netdev) = (fabric(), file(a, "netdev"));
        let (live, invalid) = (format!("echo 1 >{dir}/live"), "Invalid argument");
        for text in ["a b c", "a a", "a/b", "a:b", "..", "0123456789abcdef"] {
            fails(a, &format!("echo {text} >{netdev}"), invalid)?;
        }
        fails(a, &format!("echo 17 >{}", file(a, "gids")), invalid)?;
        ensure!(a.outside().ok(&format!("cat {netdev}"))? == "eth0\n");

        for (netns, name, error) in [
            (a, "eth9", "No such device"),
            (a, "lo", invalid),
            (a, "eth0 lo", invalid),
            (b, "eth0", "Device or resource busy"),
        ] {
            set_netdev(netns, a, name)?;
            fails(a, &live, error)?;
        }
        set_netdev(a, a, "eth0")?;

        let outside = a.outside();
        for (item, end) in [
            ("switches/s", "s/1"),
            ("hcas/i", "i/1"),
            ("cables/c2", "dev:lo"),
        ] {
            outside.ok(&format!("mkdir {dir}/{item} && echo h1/1 {end} >{dir}/cables/c1/ends"))?;
            fails(a, &live, invalid)?;
            outside.ok(&format!("rmdir {dir}/{item}"))?;
        }
        let log = outside.ok("dmesg")?;
        for said in ["h1/1 is an Ethernet port", "as many netdevs as ports"] {
            ensure!(log.contains(said), "no {said:?} in {log}");
        }
        outside.ok(&format!("echo h1/1 h2/1 >{dir}/cables/c1/ends && {live}"))?;
        fails(a, &format!("echo eth0 >{netdev}"), "Device or resource busy")?;
        interfaces(&bed, "")?;
        ping(a, b)?;
        bed.finish()
    }
}

scenario! {
    /// A network device goes while its port is in use: nobody waits for the port, which is Down from then on. Another
    /// one of that name takes its place when the HCA is switched on again.
    #[on(lockdep, races)]
    fn a_roce_port_outlives_its_network_device(bed) {
        let bed = bed.one_machine().up()?;
        up(&bed, "", |_| Ok(()))?;
        let (a, b) = bed.pair()?;
        let outside = a.outside();
        for (go, come) in [
            ("link del eth0", "link add eth0 netns h0 mtu 4200 type veth peer name eth0 netns h1 mtu 4200"),
            ("link set eth0 netns 1", "link set eth0 netns h0"),
        ] {
            ping(a, b)?;
            let flood = a.spawn(&format!("ping -f -q {}", b.ip4()))?;
            a.run_for(&format!("ip {go}"), Duration::from_secs(10))?.ok()?;
            b.wait_until("! ip -o link show ib0 | grep -q LOWER_UP", Duration::from_secs(10))?;
            flood.stop()?;
            let state = format!("cat /sys/class/infiniband/{}/ports/1/state", hca(a));
            ensure!(outside.ok(&state)?.contains("DOWN"));
            outside.ok(&format!("echo 0 >{}/live", fabric()))?;
            fails(a, &format!("echo 1 >{}/live", fabric()), "No such device")?;
            outside.ok(&format!("ip {come}"))?;
            for host in [a, b] {
                host.ok("ip -4 addr flush dev eth0")?;
                host.ethernet_up(bed.builder().link_mtu())?;
            }
            live(&bed)?;
            interfaces(&bed, "")?;
        }
        ping(a, b)?;
        bed.finish()
    }
}

scenario! {
    /// The addresses of a bridge above a port's network device are GIDs of the port, but not its own.
    #[on(qemu, lockdep)]
    fn gids_of_others_are_passed_over(bed) {
        let bed = bed.one_machine().up()?;
        let (a, b) = bed.pair()?;
        a.ok("set -e
            ip link add br0 address 02:00:00:00:00:99 type bridge
            ip link set eth0 master br0
            ip link set br0 up
            ip addr add fe80::99/64 dev br0 nodad
            ip addr add fd77::99/64 dev br0 nodad")?;
        up(&bed, "", |_| Ok(()))?;
        let gids = format!("cat /sys/class/infiniband/{}/ports/1/gids/*", hca(a));
        for end in ["fe80.*:0099", "fd77.*:0099"] {
            a.wait_until(&format!("{gids} | grep -q {end}$"), Duration::from_secs(10))?;
        }
        ping(a, b)?;
        // The new address' own GID has no place in the table before the old one's is free.
        readdress(a, 0x55)?;
        has_gid(a, "ib0", 0x55)?;
        carrier(a, true)?;
        ping(a, b)?;
        bed.finish()
    }
}

/// Gives the `eth0` of a host another Ethernet address, and the link-local one that is made from it.
pub(super) fn readdress(host: &Host, last: u8) -> Result<()> {
    host.ok(&format!(
        "ip link set eth0 down && ip link set eth0 address 02:00:00:00:00:{last:02x} && ip link set eth0 up"
    ))?;
    Ok(())
}

/// Waits until an interface sends from the GID of an Ethernet address that ends in a byte, with zeros before it.
pub(super) fn has_gid(host: &Host, interface: &str, last: u8) -> Result<()> {
    host.wait_until(
        &format!("grep -q ':ff:fe:00:00:{last:02x}$' /sys/class/net/{interface}/address"),
        Duration::from_secs(10),
    )
}

/// Waits until an interface sends from a GID that its port has.
fn has_a_gid(host: &Host, interface: &str) -> Result<()> {
    let own = format!("tr -d : </sys/class/net/{interface}/address | cut -c 9-");
    host.wait_until(
        &format!(r#"cat /sys/class/infiniband/*/ports/1/gids/* | tr -d : | grep -qx "$({own})""#),
        Duration::from_secs(10),
    )
}

/// Has somebody new on the other host talk to a host's `ib0`: no path leads there yet.
fn talk_to_new(from: &Host, to: &Host, number: u8) -> Result<()> {
    to.ok(&format!(
        "ip link add link eth0 name new{number} type ipoib_rs
         ip addr add 10.3.{number}.2/24 dev new{number} && ip link set new{number} up"
    ))?;
    from.ok(&format!("ip addr add 10.3.{number}.1/24 dev ib0"))?;
    from.wait_until(
        &format!("ping -q -c 1 -W 1 10.3.{number}.2"),
        Duration::from_secs(10),
    )
}

scenario! {
    /// The Ethernet address below changes under traffic, and with it the port's GID: all interfaces on it follow, and are
    /// found. Where the IPv6 address of before stays, its GID does, too, but as another entry of the port's table, from
    /// which new paths are made. Nothing holds a GID of before.
    #[on(lockdep, races)]
    fn a_roce_port_gets_another_address(bed) {
        let bed = bed.one_machine().up()?;
        up(&bed, "", |_| Ok(()))?;
        let (a, b) = bed.pair()?;
        a.ok("ip link add link eth0 name ib1 up type ipoib_rs")?;
        ping(a, b)?;
        let flood = a.spawn(&format!("ping -q -i 0.01 {}", b.ip4()))?;
        let pass = |number: u8| -> Result<()> {
            let begin = Instant::now();
            ping(a, b)?;
            ping(b, a)?;
            talk_to_new(a, b, number)?;
            let took = begin.elapsed();
            ensure!(took < a.scaled(Duration::from_secs(5)), "{number}: {took:?}");
            Ok(())
        };
        let change = |last: u8| a.ok(&format!("ip link set eth0 address 02:00:00:00:00:{last:02x}"));
        let stays = || -> Result<()> {
            has_a_gid(a, "ib0")?;
            has_a_gid(a, "ib1")
        };
        change(0x10)?;
        stays()?;
        pass(0x10)?;
        for last in 0x11..0x14 {
            readdress(a, last)?;
            has_gid(a, "ib0", last)?;
            has_gid(a, "ib1", last)?;
            pass(last)?;
        }
        for host in [a, b] {
            set_mode(host, "connected")?;
        }
        connect(a, b)?;
        let begun = counter(a, "rc_connected")?;
        change(0x20)?;
        pass(0x20)?;
        connect(a, b)?;
        a.ok("ip addr add fe80::ff:fe00:21/64 dev eth0 nodad && ip addr del fe80::ff:fe00:13/64 dev eth0")?;
        stays()?;
        pass(0x21)?;
        connect(a, b)?;
        ensure!(counter(a, "rc_connected")? >= begun + 2, "{}", story(a));
        flood.stop()?;
        a.outside().ok(&format!("echo 0 >{}/live", fabric()))?;
        bed.finish()
    }
}
