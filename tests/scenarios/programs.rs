// SPDX-License-Identifier: GPL-2.0

//! Network configuration by the programs that distributions have for it, from the files in samples/.

use anyhow::{Context, Result, ensure};
use lab::bed::{Bed, Host};
use lab::scenario;
use lab::task::Task;
use std::time::Duration;

pub(crate) const UNIT: &str = include_str!("../../samples/systemd/ipoib_rs@.service");
pub(crate) const STATIC: &str = include_str!("../../samples/networkd/20-ib0.network");
pub(crate) const DHCP: &str = include_str!("../../samples/networkd/20-ib0-dhcp.network");
pub(crate) const NETDEV: &str = include_str!("../../samples/networkd/replace/20-ib0.netdev");
pub(crate) const ETHERNET: &str = include_str!("../../samples/networkd/replace/10-eth0.network");
pub(crate) const RULE: &str = include_str!("../../samples/udev/85-soft-roce.rules");
const MODPROBE: &str = include_str!("../../samples/modprobe.d/ipoib_rs.conf");
pub(crate) const IFUPDOWN: &str = include_str!("../../samples/ifupdown/ib0");
const IFUPDOWN_DHCP: &str = include_str!("../../samples/ifupdown/ib0-dhcpv6");
pub(crate) const SERVER: &str = include_str!("../../samples/dnsmasq/ib0.conf");
const NM_CONNECTION: &str = include_str!("../../samples/NetworkManager/ib0.nmconnection");
const NM_CHILD: &str = include_str!("../../samples/NetworkManager/ib0.8001.nmconnection");
const IB_NETWORK: &str = include_str!("../../samples/networkd/infiniband/20-ib0.network");
const IB_CHILD: &str = include_str!("../../samples/networkd/infiniband/21-ib0.8001.netdev");
const IB_CHILD_NETWORK: &str =
    include_str!("../../samples/networkd/infiniband/21-ib0.8001.network");
const IB_IFUPDOWN: &str = include_str!("../../samples/ifupdown/ib0-infiniband");
const NM_CONF: &str = include_str!("../../samples/NetworkManager/ib0.conf");

/// A line that tells whether `ib0` has an address of the server's range, as a shell condition.
pub(crate) const LEASED4: &str =
    r"ip -4 -o addr show dev ib0 | grep -qE ' inet 10\.1\.0\.1[0-9]{2}/24 .* dynamic '";
pub(crate) const LEASED6: &str =
    r"ip -6 -o addr show dev ib0 | grep -qE ' inet6 fd00:1::1[0-9a-f]{2}/128 .* dynamic '";

/// Puts a file where a sample says that it goes.
pub(crate) fn put(host: &Host, path: &str, text: &str) -> Result<()> {
    host.ok(&format!(
        "mkdir -p $(dirname {path}) && cat >{path} <<'EOF'\n{text}\nEOF\nchmod 600 {path}"
    ))
    .with_context(|| path.to_owned())?;
    host.ok(&format!("chmod go+r {path}"))?;
    Ok(())
}

/// A sample with the last part of its addresses changed to the host's.
fn addressed(sample: &str, host: &Host) -> String {
    sample
        .replace("10.1.0.1/24", &format!("{}/24", host.ip4()))
        .replace("10.2.0.1/24", &format!("{}/24", child4(host)))
}

/// A host's address on its child of `ib0`.
fn child4(host: &Host) -> String {
    format!("10.2.0.{}", host.number())
}

/// An InfiniBand port on each host with its `ib0`, by these options of the module; the first host has addresses on that
/// and on a child of it. Broadcast groups take 2044.
fn infiniband_up<'a>(bed: &'a Bed, options: &str) -> Result<(&'a Host, &'a Host)> {
    let (a, b) = bed.pair()?;
    put(b, "/etc/modprobe.d/ipoib_rs.conf", options)?;
    bed.ports()?;
    a.subnet_manager_with(4)?;
    for host in [a, b] {
        host.ok("modprobe ipoib_rs && test -e /sys/class/net/ib0")?;
    }
    a.ib_up()?;
    a.ok(&format!(
        "echo 0x8001 >/sys/class/net/ib0/create_child
         ip addr add {}/24 dev ib0.8001
         ip link set ib0.8001 up",
        child4(a)
    ))?;
    Ok((a, b))
}

/// Waits until a host has both addresses, and reaches the other by both.
fn both_talk(a: &Host, b: &Host) -> Result<()> {
    for (name, own, other) in [
        ("ib0", b.ip4(), a.ip4()),
        ("ib0.8001", child4(b), child4(a)),
    ] {
        b.wait_until(
            &format!("ip -4 -o addr show dev {name} | grep -q {own}/24"),
            Duration::from_secs(20),
        )?;
        b.wait_until(
            &format!("ping -q -c 1 -W 1 {other}"),
            Duration::from_secs(10),
        )?;
    }
    ensure!(b.ok("cat /sys/class/net/ib0.8001/pkey")?.trim() == "0x8001");
    ensure!(b.ok("cat /sys/class/net/ib0.8001/parent")?.trim() == "ib0");
    Ok(())
}

/// Fails unless an MTU that a program has asked for, larger than the broadcast group takes, becomes that when the group
/// takes it.
fn remembers(a: &Host, b: &Host, mtu: u32) -> Result<()> {
    for (code, mtu) in [(4, 2044), (5, mtu)] {
        a.subnet_manager_with(code)?;
        let wanted = format!("[ $(cat /sys/class/net/ib0/mtu) = {mtu} ]");
        b.wait_until(&wanted, Duration::from_secs(20))
            .with_context(|| format!("{mtu}"))?;
    }
    Ok(())
}

/// The module's settings with those switched on that put it in ib_ipoib's place.
pub(crate) fn replacing() -> Result<String> {
    let mut conf = MODPROBE.to_owned();
    for line in [
        "options ipoib_rs replace=1\n",
        "blacklist ib_ipoib\n",
        "alias rtnl-link-ipoib ipoib_rs\n",
    ] {
        let off = format!("#{line}");
        ensure!(conf.matches(&off).count() == 1, "{line}");
        conf = conf.replace(&off, line);
    }
    Ok(conf)
}

/// Starts udev and systemd-networkd in the host's network namespace. There is no systemd that would.
pub(crate) fn networkd(host: &Host) -> Result<Task> {
    // eth0 is the bed's.
    if host
        .run("test -e /etc/systemd/network/10-eth0.network")?
        .code
        != Some(0)
    {
        put(
            host,
            "/etc/systemd/network/10-eth0.network",
            "[Match]\nName=eth0\n[Link]\nUnmanaged=yes",
        )?;
    }
    udev(host)?;
    host.ok("install -d -o systemd-network -g systemd-network /run/systemd/netif")?;
    host.spawn("/usr/lib/systemd/systemd-networkd")
}

/// Starts udev in the host's network namespace and lets it see what is there.
pub(crate) fn udev(host: &Host) -> Result<()> {
    host.ok("set -e
         test -s /etc/machine-id || systemd-id128 new >/etc/machine-id
         mkdir -p /run/udev
         /usr/lib/systemd/systemd-udevd --daemon
         udevadm trigger --type=all --action=add --subsystem-match=net
         udevadm settle")?;
    Ok(())
}

/// Does what the unit for `eth0` does when it is started.
fn start_unit(host: &Host) -> Result<()> {
    let commands: Vec<String> = UNIT
        .lines()
        .filter_map(|line| line.strip_prefix("ExecStart="))
        .map(|command| command.replace("%I", "eth0"))
        .collect();
    ensure!(commands.len() == 2, "{UNIT}");
    host.ok(&commands.join(" && "))?;
    Ok(())
}

/// `ib0` on the first host, with the addresses that the samples expect of a server.
fn server_up(bed: &Bed) -> Result<&Host> {
    let (server, _) = bed.pair()?;
    if server.is_infiniband() {
        bed.ports()?;
    } else {
        server.rxe_up()?;
    }
    server.ib_add("")?;
    server.ib_up()?;
    Ok(server)
}

/// `ib0` on a host that is to have its addresses from the first one: by the unit, which makes its soft-RoCE, too, or on its
/// InfiniBand port.
fn client_link(host: &Host) -> Result<()> {
    if host.is_infiniband() {
        host.ib_add("")
    } else {
        start_unit(host)
    }
}

/// A bed whose first host serves DHCP on `ib0`.
fn dhcp_up(bed: &Bed) -> Result<Task> {
    let server = server_up(bed)?;
    put(server, "/etc/dnsmasq.d/ib0.conf", SERVER)?;
    let task = server
        .spawn("dnsmasq -d --log-dhcp --dhcp-leasefile=/tmp/leases -C /etc/dnsmasq.d/ib0.conf")?;
    task.wait_for("sockets bound", server.scaled(Duration::from_secs(10)))?;
    Ok(task)
}

scenario! {
    /// systemd-networkd gives `ib0` its address, whoever made it.
    #[on(uml)]
    fn networkd_configures_ib0(bed) {
        let bed = bed.up()?;
        let a = server_up(&bed)?;
        let (_, b) = bed.pair()?;
        put(b, "/etc/systemd/network/20-ib0.network", &addressed(STATIC, b))?;
        let _networkd = networkd(b)?;
        // Now or before: networkd waits for it.
        start_unit(b)?;
        b.wait_until(&format!("ip -4 -o addr show dev ib0 | grep -q {}/24", b.ip4()), Duration::from_secs(15))?;
        b.wait_until("grep -q ADMIN_STATE=configured /run/systemd/netif/links/$(cat /sys/class/net/ib0/ifindex)", Duration::from_secs(15))?;
        b.ok(&format!("ping -c 1 -W 5 {}", a.ip4()))?;
        bed.finish()
    }
}

scenario! {
    /// systemd-networkd makes `ib0` itself, where the driver is in ib_ipoib's place, and a child of it, for
    /// which it makes up an address.
    #[on(uml, both)]
    fn networkd_makes_ib0(bed) {
        let bed = bed.up()?;
        let (a, b) = bed.pair()?;
        put(b, "/etc/modprobe.d/ipoib_rs.conf", &replacing()?)?;
        put(b, "/etc/udev/rules.d/85-soft-roce.rules", RULE)?;
        put(b, "/etc/systemd/network/10-eth0.network", &ETHERNET.replace("DHCP=yes", &format!("Address={}/24", b.eth4())))?;
        put(b, "/etc/systemd/network/20-ib0.netdev", NETDEV)?;
        put(b, "/etc/systemd/network/20-ib0.network", &(addressed(STATIC, b) + "IPoIB=ib1\n"))?;
        put(b, "/etc/systemd/network/30-ib1.netdev", "[NetDev]\nName=ib1\nKind=ipoib\n[IPoIB]\nMode=connected")?;
        put(b, "/etc/systemd/network/30-ib1.network", &format!("[Match]\nName=ib1\n[Network]\nAddress=10.2.0.{}/24", b.number()))?;
        let _networkd = networkd(b)?;
        for (name, address) in [("ib0", b.ip4()), ("ib1", "10.2.0.2".to_owned())] {
            b.wait_until(&format!("ip -4 -o addr show dev {name} | grep -q {address}/24"), Duration::from_secs(15))?;
            ensure!(b.ok(&format!("ethtool -i {name}"))?.contains("driver: ipoib_rs"));
        }
        ensure!(b.ok("cat /sys/class/net/ib0/mode")?.trim() == "datagram");
        ensure!(b.ok("cat /sys/class/net/ib1/mode")?.trim() == "connected");
        a.rxe_up()?;
        a.ib_add("")?;
        a.ib_up()?;
        a.ok(&format!("ping -c 1 -W 5 {}", b.ip4()))?;
        bed.finish()
    }
}

scenario! {
    /// systemd-networkd's DHCP client gets an address from dnsmasq; the messages are as RFC 4390 has them.
    #[on(uml, infiniband)]
    fn networkd_asks_for_an_address(bed) {
        let bed = bed.up()?;
        let server = dhcp_up(&bed)?;
        let (a, b) = bed.pair()?;
        let capture = a.spawn("tcpdump -lnvi ib0 udp dst port 67")?;
        capture.wait_for("listening on", a.scaled(Duration::from_secs(10)))?;
        put(b, "/etc/systemd/network/20-ib0.network", DHCP)?;
        client_link(b)?;
        let _networkd = networkd(b)?;
        b.wait_until(LEASED4, Duration::from_secs(40))?;
        b.ok(&format!("ping -c 1 -W 5 {}", a.ip4()))?;
        let seen = capture.stop()?.stdout;
        for part in ["htype 32, hlen 0", "Flags [Broadcast]", "Client-ID (61), length 19: hardware-type 255"] {
            ensure!(seen.contains(part), "no {part} in {seen}");
        }
        let log = server.stop()?;
        ensure!(log.describe().contains("DHCPACK(ib0)"), "{}", log.describe());
        bed.finish()
    }
}

scenario! {
    /// NetworkManager takes `ib0` for an InfiniBand interface and gets addresses from dnsmasq for it.
    #[on(uml, infiniband)]
    fn networkmanager_asks_for_addresses(bed) {
        let bed = bed.up()?;
        let _server = dhcp_up(&bed)?;
        let (a, b) = bed.pair()?;
        put(b, "/etc/NetworkManager/system-connections/ib0.nmconnection", NM_CONNECTION)?;
        b.ok("chmod 600 /etc/NetworkManager/system-connections/*")?;
        put(b, "/etc/NetworkManager/conf.d/ib0.conf", NM_CONF)?;
        put(b, "/etc/NetworkManager/conf.d/eth0.conf", "[device-eth0]\nmatch-device=interface-name:eth0\nmanaged=0")?;
        client_link(b)?;
        udev(b)?;
        b.ok("mkdir -p /run/dbus && dbus-daemon --system --fork")?;
        let _manager = b.spawn("NetworkManager --no-daemon")?;
        b.wait_until(LEASED4, Duration::from_secs(40))?;
        b.wait_until(LEASED6, Duration::from_secs(40))?;
        ensure!(b.ok("nmcli -t -f device,type,state,connection device")?.contains("ib0:infiniband:connected:ib0\n"));
        b.ok(&format!("ping -c 1 -W 5 {}", a.ip4()))?;
        bed.finish()
    }
}

scenario! {
    /// ifupdown makes `ib0` with its address, takes it away, and makes it again.
    #[on(uml)]
    fn ifupdown_makes_ib0(bed) {
        let bed = bed.up()?;
        let a = server_up(&bed)?;
        let (_, b) = bed.pair()?;
        put(b, "/etc/network/interfaces.d/ib0", &addressed(IFUPDOWN, b))?;
        b.ok("mkdir -p /run/network")?;
        for _ in 0..2 {
            b.ok("ifup -a --exclude=lo")?;
            b.wait_until(&format!("ping -c 1 -W 1 {}", a.ip4()), Duration::from_secs(15))?;
            b.ok("ifdown ib0")?;
            b.run("ip link show ib0")?.refused()?;
            ensure!(!b.ok("rdma link show")?.contains("rxe_eth0"));
        }
        bed.finish()
    }
}

scenario! {
    /// ifupdown has dhcpcd get an IPv6 address from dnsmasq.
    #[on(uml)]
    fn ifupdown_asks_for_an_address(bed) {
        let bed = bed.up()?;
        let _server = dhcp_up(&bed)?;
        let (a, b) = bed.pair()?;
        put(b, "/etc/network/interfaces.d/ib0", IFUPDOWN_DHCP)?;
        b.ok("mkdir -p /run/network")?;
        b.ok("ifup -a --exclude=lo")?;
        b.wait_until(LEASED6, Duration::from_secs(40))?;
        b.ok(&format!("ping -c 1 -W 5 {}", a.ip6()))?;
        b.ok("ifdown ib0")?;
        b.run("ip link show ib0")?.refused()?;
        bed.finish()
    }
}

scenario! {
    /// On an InfiniBand port, systemd-networkd gives `ib0` its address, and an MTU above the group's, and makes a child of it.
    #[on(uml)]
    fn networkd_on_infiniband(bed) {
        let bed = bed.infiniband().up()?;
        let (a, b) = infiniband_up(&bed, &replacing()?)?;
        let network = IB_NETWORK.replacen("[Network]", "[Link]\nMTUBytes=3000\n\n[Network]", 1);
        put(b, "/etc/systemd/network/20-ib0.network", &addressed(&network, b))?;
        put(b, "/etc/systemd/network/21-ib0.8001.netdev", IB_CHILD)?;
        put(b, "/etc/systemd/network/21-ib0.8001.network", &addressed(IB_CHILD_NETWORK, b))?;
        let _networkd = networkd(b)?;
        both_talk(a, b)?;
        remembers(a, b, 3000)?;
        bed.finish()
    }
}

scenario! {
    /// systemd-networkd makes up an address for a child unless it is told not to: the child has that of its port.
    #[on(uml)]
    fn networkd_makes_up_an_address(bed) {
        let bed = bed.infiniband().up()?;
        let (a, b) = infiniband_up(&bed, &replacing()?)?;
        let child = IB_CHILD.replace("MACAddress=none\n", "");
        ensure!(child != IB_CHILD);
        put(b, "/etc/systemd/network/20-ib0.network", &addressed(IB_NETWORK, b))?;
        put(b, "/etc/systemd/network/21-ib0.8001.netdev", &child)?;
        put(b, "/etc/systemd/network/21-ib0.8001.network", &addressed(IB_CHILD_NETWORK, b))?;
        let _networkd = networkd(b)?;
        both_talk(a, b)?;
        bed.finish()
    }
}

scenario! {
    /// On an InfiniBand port, NetworkManager gives `ib0` its address, and an MTU above the group's, and makes a child of it.
    #[on(uml)]
    fn networkmanager_on_infiniband(bed) {
        let bed = bed.infiniband().up()?;
        let (a, b) = infiniband_up(&bed, "options ipoib_rs ports=all")?;
        let of_ib0 = NM_CONNECTION
            .replacen("method=auto", &format!("method=manual\naddress1={}/24", b.ip4()), 1)
            .replacen("transport-mode=datagram", "transport-mode=datagram\nmtu=3000", 1);
        put(b, "/etc/NetworkManager/system-connections/ib0.nmconnection", &of_ib0)?;
        let child = NM_CHILD.replacen("transport-mode=datagram", "transport-mode=connected", 1);
        ensure!(child != NM_CHILD);
        put(b, "/etc/NetworkManager/system-connections/ib0.8001.nmconnection", &addressed(&child, b))?;
        b.ok("chmod 600 /etc/NetworkManager/system-connections/*")?;
        put(b, "/etc/NetworkManager/conf.d/ib0.conf", NM_CONF)?;
        put(b, "/etc/NetworkManager/conf.d/eth0.conf", "[device-eth0]\nmatch-device=interface-name:eth0\nmanaged=0")?;
        udev(b)?;
        b.ok("mkdir -p /run/dbus && dbus-daemon --system --fork")?;
        let _manager = b.spawn("NetworkManager --no-daemon")?;
        both_talk(a, b)?;
        for (name, mode) in [("ib0", "datagram"), ("ib0.8001", "connected")] {
            b.ok(&format!("test $(cat /sys/class/net/{name}/mode) = {mode}"))?;
        }
        let devices = b.ok("nmcli -t -f device,type,state,connection device")?;
        for name in ["ib0", "ib0.8001"] {
            ensure!(devices.contains(&format!("{name}:infiniband:connected:{name}\n")), "{devices}");
        }
        remembers(a, b, 3000)?;
        bed.finish()
    }
}

scenario! {
    /// On an InfiniBand port, ifupdown gives `ib0` its address, and an MTU above the group's, and makes a child of it,
    /// takes that away, and makes it again.
    #[on(uml)]
    fn ifupdown_on_infiniband(bed) {
        let bed = bed.infiniband().up()?;
        let (a, b) = infiniband_up(&bed, "options ipoib_rs ports=all")?;
        let interfaces = IB_IFUPDOWN.replacen("static\n", "static\n\tmtu 3000\n", 1);
        put(b, "/etc/network/interfaces.d/ib0", &addressed(&interfaces, b))?;
        b.ok("mkdir -p /run/network")?;
        for _ in 0..2 {
            b.ok("ifup -a --exclude=lo")?;
            both_talk(a, b)?;
            b.ok("ifdown ib0.8001")?;
            b.wait_until("! test -e /sys/class/net/ib0.8001", Duration::from_secs(10))?;
            b.ok("ifdown ib0")?;
        }
        b.ok("ifup ib0")?;
        remembers(a, b, 3000)?;
        bed.finish()
    }
}
