// SPDX-License-Identifier: GPL-2.0

//! GIDs that the host below has as addresses, which RDMA core's table does not tell: it always has the one that is made
//! from the Ethernet address.

use crate::connected::story;
use crate::order::counter;
use crate::programs::{networkd, put, udev};
use anyhow::{Context, Result, ensure};
use lab::bed::{Bed, Host};
use lab::layout::Layout;
use lab::scenario;
use std::time::Duration;

/// Time for a carrier or a ping, with duplicate address detection in it.
const LIMIT: Duration = Duration::from_secs(15);

/// Commands by which a host has the kernel make no address of its own.
const NONE: &str = "ip link set eth0 addrgenmode none && ip -6 addr flush dev eth0";

/// Settings of `eth0`, by who makes them, and the commands. `N` is the host's number.
const SETTINGS: &[(&str, &str)] = &[
    (
        "a static link-local address",
        "NONE && ip addr add fe80::N/64 dev eth0",
    ),
    (
        "a global address only",
        "NONE && ip addr add fd00:9::N/64 dev eth0",
    ),
    (
        "a global address, and the link-local one was taken away",
        "ip link set eth0 addrgenmode eui64 && ip link set eth0 down && ip link set eth0 up
         ip addr add fd00:9::N/64 dev eth0 && ip -6 addr flush dev eth0 scope link",
    ),
    (
        "random addresses",
        "ip link set eth0 down && ip link set eth0 addrgenmode random && ip link set eth0 up",
    ),
    (
        "stable and opaque addresses (RFC 7217), as networkd has the kernel make them",
        "ip link set eth0 down && sysctl -qw net.ipv6.conf.eth0.stable_secret=2001:db8::N
         ip link set eth0 addrgenmode stable_secret && ip link set eth0 up",
    ),
    (
        "NetworkManager",
        "NONE && ip addr add fe80::9c1d:6a3b:5e70:11N/64 dev eth0 noprefixroute
         ip route add fe80::/64 dev eth0 metric 1024
         ip addr add fd00:9::5c1d:6a3b:5e70:11N/64 dev eth0 noprefixroute
         ip route add fd00:9::/64 dev eth0 metric 1024",
    ),
    (
        "networkd with addresses of DHCPv6",
        "ip link set eth0 down && ip link set eth0 addrgenmode eui64 && ip link set eth0 up
         ip addr add fd00:9::N/128 dev eth0 noprefixroute
         ip route add fd00:9::/64 dev eth0 metric 1024",
    ),
    (
        "ifupdown with a static address",
        "ip link set eth0 down && ip link set eth0 addrgenmode eui64 && ip link set eth0 up
         sysctl -qw net.ipv6.conf.eth0.accept_ra=0 && ip addr add fd00:9::N/64 dev eth0",
    ),
];

/// The GID that `ib0` sends from is an address of `eth0`, and not a tentative one.
const OWNED: &str = r#"
    own=$(tr -d : </sys/class/net/ib0/address | cut -c 9-)
    while read address _ _ _ flags name; do
        [ $name = eth0 ] && [ $address = $own ] && [ $((0x$flags & 0x48)) = 0 ] && exit 0
    done </proc/net/if_inet6
    exit 1"#;

/// Gives a host's `eth0` no address but those that commands give it.
fn set(host: &Host, commands: &str) -> Result<()> {
    let commands = commands
        .replace("NONE", NONE)
        .replace('N', &host.number().to_string());
    host.ok(&format!(
        "set -e
         ip -6 addr flush dev eth0 && ip -6 route flush dev eth0 proto boot || true
         {commands}"
    ))?;
    Ok(())
}

/// Waits until `ib0` has a carrier, or has none.
fn carrier(host: &Host, carrier: bool) -> Result<()> {
    let wanted = u8::from(carrier);
    host.wait_until(
        &format!("[ $(cat /sys/class/net/ib0/carrier) = {wanted} ]"),
        LIMIT,
    )
}

/// Pings by IPv4 and IPv6, both ways.
pub(crate) fn reach_each_other(bed: &Bed) -> Result<()> {
    let (a, b) = bed.pair()?;
    for (from, to) in [(a, b), (b, a)] {
        let pings = format!(
            "ping -q -c 1 -W 1 {} && ping -q -c 1 -W 1 {}",
            to.ip4(),
            to.ip6()
        );
        from.wait_until(&pings, LIMIT)
            .with_context(|| format!("from host {}", from.number()))?;
    }
    Ok(())
}

scenario! {
    /// Hosts reach each other, whoever has set the addresses of their Ethernet interfaces, and however.
    #[on(both)]
    fn whatever_addresses_ethernet_has(bed) {
        let bed = bed.up()?;
        bed.loses_ethernet();
        for (whose, commands) in SETTINGS {
            for host in &bed.hosts {
                set(host, commands).with_context(|| (*whose).to_owned())?;
            }
            ib_over_ethernet(&bed).with_context(|| (*whose).to_owned())?;
            for host in &bed.hosts {
                host.ok(&format!("ip link del ib0 && rdma link del {}", host.rxe()))?;
            }
        }
        bed.finish()
    }
}

/// `ib0` on both hosts, whose Ethernet is configured, where they reach each other by GIDs of their own.
fn ib_over_ethernet(bed: &Bed) -> Result<()> {
    for host in &bed.hosts {
        host.rxe_up()?;
        host.ib_add("")?;
        host.ib_up().with_context(|| state(host))?;
        host.ok(OWNED).with_context(|| state(host))?;
    }
    reach_each_other(bed)
}

/// Waits until `eth0` of a host has a link-local address that is none of the Ethernet address, and is not tentative.
fn has_opaque_address(host: &Host) -> Result<()> {
    let opaque = "ip -6 -o addr show dev eth0 scope link | grep -v tentative | grep 'inet6 fe80' | grep -vq ff:fe";
    host.wait_until(opaque, Duration::from_secs(30))
        .with_context(|| state(host))
}

const NM_ETHERNET: &str = include_str!("../guest/roce/eth0.nmconnection");

scenario! {
    /// NetworkManager has Ethernet, with opaque addresses, as it gives a connection that is made by nmcli.
    #[on(uml)]
    fn networkmanager_has_ethernet(bed) {
        let bed = bed.up()?;
        bed.loses_ethernet();
        let (_, b) = bed.pair()?;
        let file = "/etc/NetworkManager/system-connections/eth0.nmconnection";
        put(b, file, &NM_ETHERNET.replace("ADDRESS", &b.eth4()))?;
        b.ok(&format!("chmod 600 {file}"))?;
        put(b, "/etc/NetworkManager/conf.d/eth0.conf", "[device-eth0]
match-device=interface-name:eth0
managed=1")?;
        udev(b)?;
        b.ok("mkdir -p /run/dbus && dbus-daemon --system --fork")?;
        let _manager = b.spawn("NetworkManager --no-daemon")?;
        b.wait_until("nmcli connection up eth0", Duration::from_secs(30))?;
        has_opaque_address(b)?;
        ib_over_ethernet(&bed)?;
        bed.finish()
    }
}

scenario! {
    /// systemd-networkd has Ethernet, with opaque addresses.
    #[on(uml)]
    fn networkd_has_ethernet(bed) {
        let bed = bed.up()?;
        bed.loses_ethernet();
        let (_, b) = bed.pair()?;
        let network = format!(
            "[Match]
Name=eth0
[Network]
Address={}/24
IPv6LinkLocalAddressGenerationMode=stable-privacy
IPv6StableSecretAddress=2001:db8::2",
            b.eth4()
        );
        put(b, "/etc/systemd/network/10-eth0.network", &network)?;
        // With the address of the kernel's own, networkd would leave it at that.
        b.ok("ip link set eth0 down")?;
        let _networkd = networkd(b)?;
        has_opaque_address(b)?;
        ib_over_ethernet(&bed)?;
        bed.finish()
    }
}

/// Addresses of a host, for messages.
fn state(host: &Host) -> String {
    host.ok("ip addr show; cat /sys/class/infiniband/*/ports/1/gids/* | sort -u")
        .unwrap_or_default()
}

/// Causes that doctor names.
fn causes(host: &Host) -> Result<String> {
    let tool = Layout::from_env()?.ipoibctl();
    Ok(host.run(&format!("{} doctor", tool.display()))?.stdout)
}

scenario! {
    /// An interface follows the addresses below while it is up. It keeps the one that it has for as long as that is there,
    /// has no carrier without any, which the log and doctor tell, and reaches its peers by the next one.
    #[on(both)]
    fn addresses_come_and_go(bed) {
        let bed = bed.up()?;
        bed.loses_ethernet();
        bed.ib()?;
        let (a, b) = bed.pair()?;
        reach_each_other(&bed)?;
        for host in [a, b] {
            host.ok(NONE)?;
            carrier(host, false)?;
        }
        // Both are namespaces of a kernel, or each has one.
        let log = a.outside().ok("dmesg")?;
        ensure!(log.contains("no carrier: the Ethernet interface has none of the port's GIDs"), "{log}");
        let found = causes(a)?;
        ensure!(found.contains("has none of the port's GIDs as an IPv6 address"), "{found}");

        for host in [a, b] {
            host.ok(&format!("ip addr add fd00:9::{}/64 dev eth0", host.number()))?;
            carrier(host, true)?;
            host.ok(OWNED)?;
        }
        reach_each_other(&bed)?;

        let restarts = counter(a, "restarts")?;
        for host in [a, b] {
            let number = host.number();
            host.ok(&format!("ip addr add fe80::7{number}/64 dev eth0 nodad && ip addr add fd00:9::7{number}/64 dev eth0 nodad"))?;
        }
        reach_each_other(&bed)?;
        let gid = a.ok("cut -d : -f 5- /sys/class/net/ib0/address")?;
        ensure!(gid.starts_with("fd:00:00:09") && gid.trim().ends_with(":01"), "{gid}");
        ensure!(counter(a, "restarts")? == restarts, "it has left a GID that it could keep");

        for host in [a, b] {
            let number = host.number();
            host.ok(&format!("ip addr del fd00:9::{number}/64 dev eth0"))?;
            let moved = format!("cut -d : -f 5- /sys/class/net/ib0/address | grep -q ^fe:80:.*:7{number}$");
            host.wait_until(&moved, LIMIT).with_context(|| state(host))?;
            carrier(host, true)?;
        }
        reach_each_other(&bed).with_context(|| state(a))?;
        ensure!(causes(a)?.contains("Nothing is wrong"), "{}", causes(a)?);
        bed.finish()
    }
}

scenario! {
    /// A tentative address is none yet, and one that another host has is never one. The carrier comes as soon as duplicate
    /// address detection has ended.
    fn tentative_addresses_wait(bed) {
        let bed = bed.up()?;
        bed.loses_ethernet();
        bed.ib()?;
        let (a, b) = bed.pair()?;
        reach_each_other(&bed)?;
        b.ok("ip addr add fe80::66/64 dev eth0 nodad")?;
        a.ok(NONE)?;
        carrier(a, false)?;
        a.ok("sysctl -qw net.ipv6.conf.eth0.accept_dad=1 && ip addr add fe80::66/64 dev eth0")?;
        a.wait_until("ip addr show dev eth0 | grep -q dadfailed", LIMIT)?;
        ensure!(a.ok("cat /sys/class/net/ib0/carrier")?.trim() == "0");

        // A probe is answered after a second at the earliest, or never.
        a.ok("ip addr add fe80::77/64 dev eth0")?;
        let seen = a.ok(
            "while ip addr show dev eth0 | grep -q 'fe80::77/64.*tentative'; do
                 cat /sys/class/net/ib0/carrier
                 ip addr show dev eth0 | grep -q 'fe80::77/64.*tentative' || break
             done"
        )?;
        // The last look may be after its end.
        let mut carriers: Vec<&str> = seen.lines().collect();
        carriers.pop();
        ensure!(carriers.len() > 2 && carriers.iter().all(|carrier| *carrier == "0"), "{carriers:?}");
        a.wait_until("[ $(cat /sys/class/net/ib0/carrier) = 1 ]", Duration::from_secs(1))?;
        a.ok(OWNED).with_context(|| state(a))?;
        reach_each_other(&bed)?;
        bed.finish()
    }
}

scenario! {
    /// The Ethernet address of a host changes, and its IPv6 address stays: a global one, or the one that was made from the
    /// address before. Its peers follow.
    fn an_ethernet_address_changes_under_its_gid(bed) {
        let bed = bed.up()?;
        bed.loses_ethernet();
        bed.ib()?;
        follow_ethernet_addresses(&bed)?;
        bed.finish()
    }
}

/// Changes the Ethernet address of the second host's port under GIDs of all kinds, and in both modes.
pub(crate) fn follow_ethernet_addresses(bed: &Bed) -> Result<()> {
    let (a, b) = bed.pair()?;
    let mut last = 0x40;
    for commands in ["", "NONE && ip addr add fd00:9::N/64 dev eth0"] {
        for host in [a, b] {
            if !commands.is_empty() {
                set(host, commands)?;
            }
            host.wait_until(OWNED, LIMIT).with_context(|| state(host))?;
            carrier(host, true)?;
        }
        reach_each_other(bed)?;
        for mode in ["datagram", "connected"] {
            for host in [a, b] {
                host.ok(&format!("ip link set ib0 type ipoib_rs mode {mode}"))?;
                carrier(host, true)?;
            }
            reach_each_other(bed)?;
            last += 1;
            let gid = b.ok("cut -d : -f 5- /sys/class/net/ib0/address")?;
            b.ok(&format!(
                "ip link set eth0 address 02:00:00:00:00:{last:02x}"
            ))?;
            reach_each_other(bed)
                .with_context(|| format!("{mode}, {gid}: {}{}{}", state(b), story(a), story(b)))?;
            b.ok(OWNED).with_context(|| state(b))?;
            let now = b.ok("cut -d : -f 5- /sys/class/net/ib0/address")?;
            ensure!(now == gid, "{now} is not {gid}");
        }
    }
    Ok(())
}
