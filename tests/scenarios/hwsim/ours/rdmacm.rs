// SPDX-License-Identifier: GPL-2.0

//! The RDMA connection manager on the addresses of several interfaces, in several network namespaces, on one port.

use super::super::manager::Manager;
use super::super::{active, device, make};
use crate::connected::set_mode;
use crate::inspect::identity;
use crate::order::counter;
use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::scenario;
use lab::task::Task;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(10);
pub(crate) const UCM: &str = include_str!("../../../guest/hwsim/rdmacm/ucm.py");
pub(crate) const SERVER: &str = include_str!("../../../guest/hwsim/rdmacm/server.py");
const CLIENT: &str = include_str!("../../../guest/hwsim/rdmacm/client.py");
pub(crate) const ASK6: &str = include_str!("../../../guest/hwsim/rdmacm/ask6.py");
const PACKET6: &str = include_str!("../../../guest/hwsim/rdmacm/packet6.py");

/// An address that no interface has.
const FOREIGN: &str = "10.1.0.9";

/// Makes an interface of a partition on an HCA, which all namespaces see, with an address.
fn link(host: &Host, name: &str, (hca, pkey): (u8, u16), address: &str) -> Result<()> {
    host.ok(&format!(
        "set -e
         ip link add name {name} type ipoib_rs device {} pkey {pkey:#06x}
         ip addr add {address}/24 dev {name}
         ip link set {name} up",
        device(hca)
    ))?;
    host.wait_until(&format!("ip -o link show {name} | grep -q LOWER_UP"), LIMIT)
        .with_context(|| format!("{name} of host {}", host.number()))
}

/// Listens on an address and a port; clients are told `name`.
fn serve(host: &Host, address: &str, port: u16, name: &str) -> Result<Task> {
    let port = port.to_string();
    let task = host.spawn_python(&format!("{UCM}{SERVER}"), &[address, &port, name])?;
    task.wait_for("listening", host.scaled(LIMIT))?;
    Ok(task)
}

/// Connects from an address to another one, which answers; the server's name, or what comes instead of it.
fn connect(from: &Host, own: &str, to: &str, port: u16) -> Result<String> {
    from.wait_until(&format!("ping -q -c 1 -W 1 -I {own} {to}"), LIMIT)?;
    ask(from, own, to, port)
}

/// Does so whether that answers or not.
fn ask(from: &Host, own: &str, to: &str, port: u16) -> Result<String> {
    let limit = from.scaled(LIMIT).as_secs().to_string();
    let port = port.to_string();
    let output = from.python(&format!("{UCM}{CLIENT}"), &[own, to, &port, &limit])?;
    Ok(output.ok()?.trim().to_owned())
}

scenario! {
    /// Requests for RDMA connections that all come to one port reach the server they are for: by the address asked for, of
    /// IPv4 or IPv6; by the partition, where two namespaces have that address; and by the address that a server listens on.
    #[on(lockdep)]
    fn namespaces_share_a_port(bed) {
        let bed = bed.one_machine().hosts(5).up()?;
        let outside = bed.hosts[0].outside();
        outside.ok("modprobe ipoib_rs && modprobe rdma_ucm
                    printf 'Default=0x7fff, ipoib : ALL=full;\\nBlue=0x0001, ipoib : ALL=full;\\n' >/tmp/partitions.conf")?;
        make(&outside, "pair")?;
        let manager = Manager::start(&outside, &device(1), "-P /tmp/partitions.conf")?;
        for hca in [1, 2] {
            active(&outside, &device(hca))?;
        }
        let [client, b, c, blue_client, blue] = &bed.hosts[..] else {
            anyhow::bail!("five hosts");
        };
        link(client, "ib0", (1, 0xffff), "10.1.0.1")?;
        client.ok("ip addr add 10.3.0.1/24 dev ib0 && ip addr add fd00:1::1/64 dev ib0 nodad")?;
        link(b, "ib0", (2, 0xffff), "10.1.0.2")?;
        link(b, "ib1", (2, 0xffff), "10.3.0.2")?;
        // Each interface answers ARP for its own addresses only.
        b.ok("echo 1 >/proc/sys/net/ipv4/conf/all/arp_ignore")?;
        link(c, "ib0", (2, 0xffff), "10.1.0.3")?;
        c.ok("ip addr add fd00:1::3/64 dev ib0 nodad")?;
        link(blue_client, "ib0", (1, 0x8001), "10.1.0.1")?;
        link(blue, "ib0", (2, 0x8001), "10.1.0.2")?;

        let servers = [
            serve(b, "0.0.0.0", 4711, "b")?,
            serve(c, "::", 4711, "c")?,
            serve(blue, "0.0.0.0", 4711, "blue")?,
            serve(b, "10.3.0.2", 4712, "ib1 of b")?,
        ];
        for (from, own, to, port, wanted) in [
            (client, "10.1.0.1", "10.1.0.2", 4711, "by b"),
            (client, "10.1.0.1", "10.1.0.3", 4711, "by c"),
            (client, "fd00:1::1", "fd00:1::3", 4711, "by c"),
            (blue_client, "10.1.0.1", "10.1.0.2", 4711, "by blue"),
            (client, "10.3.0.1", "10.3.0.2", 4711, "by b"),
            (client, "10.3.0.1", "10.3.0.2", 4712, "by ib1 of b"),
            (client, "10.1.0.1", "10.1.0.2", 4712, "rejected"),
            (client, "10.1.0.1", "10.1.0.3", 4712, "rejected"),
            (blue_client, "10.1.0.1", "10.1.0.2", 4712, "rejected"),
        ] {
            let answer = connect(from, own, to, port)?;
            ensure!(answer == wanted, "from {own} to {to}, port {port}: {answer}, not {wanted}");
        }
        // The address moves to b.
        c.ok("ip link del ib0")?;
        link(b, "ib2", (2, 0xffff), "10.1.0.3")?;
        client.ok("ip neigh flush dev ib0")?;
        ensure!(connect(client, "10.1.0.1", "10.1.0.3", 4711)? == "by b");
        for server in servers {
            server.stop()?;
        }
        manager.end()?;
        outside.run_for("ib-hwsim down && modprobe -r ib_hwsim ipoib_rs", Duration::from_secs(60))?.ok()?;
        bed.finish()
    }
}

scenario! {
    /// With `replace=1`, a request for an address that no interface has goes to the only interface with the P_Key and the GID
    /// that it came to. If there are two, or without that parameter, it is refused.
    #[on(lockdep)]
    fn foreign_addresses_with_replace(bed) {
        let bed = bed.one_machine().up()?;
        let (client, b) = bed.pair()?;
        let outside = client.outside();
        outside.ok("modprobe rdma_ucm &&
                    printf 'Default=0x7fff, ipoib : ALL=full;\\nBlue=0x0001, ipoib : ALL=full;\\n' >/tmp/partitions.conf")?;
        make(&outside, "pair")?;
        let manager = Manager::start(&outside, &device(1), "-P /tmp/partitions.conf")?;
        for hca in [1, 2] {
            active(&outside, &device(hca))?;
        }
        for (parameters, by_the_only_one) in [("replace=0", "rejected"), ("replace=1 ports=none", "by b")] {
            outside.ok(&format!("modprobe ipoib_rs {parameters}"))?;
            link(client, "ib0", (1, 0xffff), "10.1.0.1")?;
            link(b, "ib0", (2, 0xffff), "10.1.0.2")?;
            // In another partition, it is none of those that fit.
            link(b, "ib1", (2, 0x8001), "10.2.0.2")?;
            let lladdr = b.ok("cat /sys/class/net/ib0/address")?;
            client.ok(&format!("ip neigh replace {FOREIGN} lladdr {} dev ib0 nud permanent", lladdr.trim()))?;
            let server = serve(b, "0.0.0.0", 4711, "b")?;
            let foreign = |wanted: &str| -> Result<()> {
                let answer = ask(client, "10.1.0.1", FOREIGN, 4711)?;
                ensure!(answer == wanted, "{parameters}: {answer}, not {wanted}");
                Ok(())
            };
            ensure!(connect(client, "10.1.0.1", "10.1.0.2", 4711)? == "by b", "{parameters}");
            foreign(by_the_only_one)?;
            link(b, "ib2", (2, 0xffff), "10.3.0.2")?;
            foreign("rejected")?;
            // It was for the second one that it was refused.
            b.ok("ip link del ib2")?;
            foreign(by_the_only_one)?;
            server.stop()?;
            outside.ok("modprobe -r ipoib_rs")?;
        }
        manager.end()?;
        outside.run_for("ib-hwsim down && modprobe -r ib_hwsim", Duration::from_secs(60))?.ok()?;
        bed.finish()
    }
}

scenario! {
    /// Where the kernel is told to do without IPv6 (`ipv6.disable=1`), neither a peer that asks for a connection between IPv6
    /// addresses, nor an IPv6 packet that is too large for the peer, does harm.
    #[on(lockdep)]
    fn a_kernel_without_ipv6(bed) {
        let bed = bed.one_machine().append("ipv6.disable=1").up()?;
        let (a, b) = bed.pair()?;
        let outside = a.outside();
        outside.ok("modprobe ipoib_rs && modprobe rdma_ucm")?;
        make(&outside, "pair")?;
        let manager = Manager::start(&outside, &device(1), "")?;
        for hca in [1, 2] {
            active(&outside, &device(hca))?;
        }
        link(a, "ib0", (1, 0xffff), "10.1.0.1")?;
        link(b, "ib0", (2, 0xffff), "10.1.0.2")?;
        let server = serve(b, "0.0.0.0", 4711, "b")?;
        ensure!(connect(a, "10.1.0.1", "10.1.0.2", 4711)? == "by b");
        let ((own, _), (gid, _)) = (identity(a)?, identity(b)?);
        let limit = a.scaled(LIMIT).as_secs().to_string();
        let arguments = [&*own, &gid, "4711", &limit];
        let answer = a.python(&format!("{UCM}{ASK6}"), &arguments)?.ok()?;
        ensure!(answer.trim() == "rejected", "{answer}");
        // The other one stays in datagram mode, at MTU 2044.
        set_mode(a, "connected")?;
        a.ok("ip link set ib0 mtu 65520")?;
        a.wait_until("ping -q -c 1 -W 1 10.1.0.2", LIMIT)?;
        let peer = b.ok("cat /sys/class/net/ib0/address")?;
        a.python(PACKET6, &[peer.trim()])?.ok()?;
        ensure!(counter(a, "tx_too_big")? > 0);
        ensure!(connect(a, "10.1.0.1", "10.1.0.2", 4711)? == "by b");
        server.stop()?;
        manager.end()?;
        bed.finish()
    }
}
