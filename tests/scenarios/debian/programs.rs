// SPDX-License-Identifier: GPL-2.0

//! Hosts that bring `ib0` up by themselves at boot, from the files in samples/, and again at the next boot.

use crate::programs::{
    DHCP, ETHERNET, IFUPDOWN, LEASED4, NETDEV, RULE, SERVER, STATIC, UNIT, replacing,
};
use anyhow::{Result, ensure};
use lab::bed::{Bed, Host};
use lab::debian::Root;
use lab::layout::Layout;
use lab::machine::{Kernel, Lane};
use lab::scenario;
use lab::stage::Stage;
use std::time::Duration;

const PACKAGES: &[&str] = &["dnsmasq", "ifupdown"];

/// A Debian system with the driver and these packages.
pub(super) fn root_with(packages: &[&str]) -> Result<Root> {
    let root = Root::new(packages)?;
    let release = root.release()?;
    let modules = format!("lib/modules/{release}/updates");
    let stage = Stage::of(&Layout::from_env()?, Lane::Qemu, Kernel::Stock);
    root.copy(
        &stage.modules().join(&modules).join("ipoib_rs.ko"),
        &format!("/{modules}"),
    )?;
    root.run(&format!("depmod {release}"))?.ok()?;
    Ok(root)
}

/// One with servers, of which each scenario says which run.
fn root() -> Result<Root> {
    let root = root_with(PACKAGES)?;
    root.run("systemctl disable dnsmasq networking")?.ok()?;
    Ok(root)
}

/// Gives `eth0` to systemd-networkd, with nothing but its link-local address.
fn networkd(root: &Root) -> Result<()> {
    root.write(
        "/etc/systemd/network/10-eth0.network",
        "[Match]\nName=eth0\n",
    )?;
    root.run("systemctl enable systemd-networkd")?.ok()?;
    Ok(())
}

/// Has the unit make `ib0`.
fn unit(root: &Root) -> Result<()> {
    root.write("/etc/systemd/system/ipoib_rs@.service", UNIT)?;
    root.run("systemctl enable ipoib_rs@eth0")?.ok()?;
    Ok(())
}

/// Both reach each other by `ib0` without a command to either, now and when each of `again` has booted
/// again.
fn reach_each_other(
    bed: &Bed,
    again: &[&Host],
    addresses: impl Fn(&Host) -> Result<String>,
) -> Result<()> {
    let (a, b) = bed.pair()?;
    let mut before = Vec::new();
    let resets = again.iter().map(|host| Some(*host));
    for reset in std::iter::once(None).chain(resets) {
        if let Some(host) = reset {
            bed.reset(host)?;
        }
        let now = vec![addresses(a)?, addresses(b)?];
        ensure!(
            before.is_empty() || before == now,
            "{before:?} became {now:?}"
        );
        // A host that has not booted may believe in the other's old address for a while.
        a.wait_until(
            &format!("ping -c 1 -W 1 {}", now[1]),
            Duration::from_secs(90),
        )?;
        b.wait_until(
            &format!("ping -c 1 -W 1 {}", now[0]),
            Duration::from_secs(90),
        )?;
        before = now;
    }
    Ok(())
}

/// Waits until `ib0` has an address, and tells it.
fn address(host: &Host, condition: &str) -> Result<String> {
    if let Err(e) = host.wait_until(condition, Duration::from_secs(30)) {
        let text = host.run("ip addr; systemctl --failed --no-legend; journalctl -b --no-pager -u systemd-networkd -u networking -u 'ipoib_rs@*' -u systemd-udevd")?;
        return Err(e.context(text.describe()));
    }
    let text = host.ok("ip -4 -o addr show dev ib0 | awk '{ print $4 }'")?;
    Ok(text.trim().trim_end_matches("/24").to_owned())
}

scenario! {
    /// systemd-networkd, with a static address on one host, which also serves DHCP, and that on the other.
    #[on(stock)]
    fn networkd_at_boot(bed) {
        let fixed = root()?;
        networkd(&fixed)?;
        unit(&fixed)?;
        fixed.write("/etc/systemd/network/20-ib0.network", STATIC)?;
        fixed.write("/etc/dnsmasq.d/ib0.conf", SERVER)?;
        fixed.run("systemctl enable dnsmasq")?.ok()?;

        let asking = root()?;
        networkd(&asking)?;
        unit(&asking)?;
        asking.write("/etc/systemd/network/20-ib0.network", DHCP)?;

        let bed = bed.debian(&[&fixed, &asking]).up()?;
        // The server's lease is what the client asks for again.
        reach_each_other(&bed, &[&bed.hosts[1]], |host| {
            if host.number() == 1 {
                let found = address(host, "ip -4 -o addr show dev ib0 | grep -q ' 10.1.0.1/24 '")?;
                // Debian starts it when the network is online, by which time the other host may have given up.
                host.wait_until("systemctl is-active dnsmasq", Duration::from_secs(90))?;
                return Ok(found);
            }
            address(host, LEASED4)
        })?;
        bed.finish()
    }
}

scenario! {
    /// ifupdown on one host; on the other the driver is in ib_ipoib's place, and systemd-networkd makes
    /// `ib0` itself.
    #[on(stock)]
    fn ifupdown_and_networkd_make_ib0_at_boot(bed) {
        let ifupdown = root()?;
        ifupdown.write("/etc/network/interfaces", "auto eth0\niface eth0 inet6 auto\nsource /etc/network/interfaces.d/*\n")?;
        ifupdown.write("/etc/network/interfaces.d/ib0", IFUPDOWN)?;
        ifupdown.run("systemctl enable networking")?.ok()?;

        let making = root()?;
        networkd(&making)?;
        making.write("/etc/modprobe.d/ipoib_rs.conf", &replacing()?)?;
        making.write("/etc/udev/rules.d/85-soft-roce.rules", RULE)?;
        making.write("/etc/systemd/network/10-eth0.network", &ETHERNET.replace("DHCP=yes", "Address=192.0.2.2/24"))?;
        making.write("/etc/systemd/network/20-ib0.netdev", NETDEV)?;
        making.write("/etc/systemd/network/20-ib0.network", &STATIC.replace("10.1.0.1/", "10.1.0.2/"))?;

        let bed = bed.debian(&[&ifupdown, &making]).up()?;
        reach_each_other(&bed, &[&bed.hosts[1], &bed.hosts[0]], |host| {
            address(host, &format!("ip -4 -o addr show dev ib0 | grep -q ' {}/24 '", host.ip4()))
        })?;
        bed.finish()
    }
}

/// A netconsole by an interface, from its address to a peer that need not exist.
const NETCONSOLE: &str = include_str!("../../guest/debian/netconsole.sh");

scenario! {
    /// Devices on top that need an Ethernet header are refused, as is netpoll. On `eth0`, all of them work.
    #[on(stock)]
    fn what_needs_ethernet_is_refused(bed) {
        let root = root_with(&[])?;
        let bed = bed.debian(&[&root]).hosts(1).up()?;
        let host = &bed.hosts[0];
        host.ethernet_up(bed.builder().link_mtu())?;
        host.rxe_up()?;
        host.ok("set -e
                 modprobe ipoib_rs
                 ip link add link eth0 name ib0 type ipoib_rs
                 ip link set ib0 up
                 ip addr add 10.1.0.1/24 dev ib0
                 ip link add br0 type bridge")?;
        host.wait_until("[ $(cat /sys/class/net/ib0/carrier) = 1 ]", Duration::from_secs(30))?;
        for kind in ["vlan id 5", "macvlan", "ipvlan"] {
            host.ok(&format!("ip link add link eth0 name above type {kind} && ip link del above"))?;
            host.run(&format!("ip link add link ib0 name above type {kind}"))?.refused()?;
        }
        host.ok("ip link set eth0 master br0 && ip link set eth0 nomaster")?;
        host.run("ip link set ib0 master br0")?.refused()?;
        host.sh(NETCONSOLE, &["eth0", "192.0.2.1", "192.0.2.9"])?;
        let ours = ["ib0", "10.1.0.1", "10.1.0.9"];
        host.sh_for(NETCONSOLE, &ours, Duration::from_secs(30))?.refused()?;
        host.ok("dmesg | grep -q \"ib0 doesn't support polling\"")?;
        bed.finish()
    }
}
