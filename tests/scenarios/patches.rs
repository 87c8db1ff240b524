// SPDX-License-Identifier: GPL-2.0

//! Reproducers of what `patches/linux-7.3` mends in the RDMA subsystem. On a kernel without the patch, each of them
//! crashes the machine, or has KASAN report it.

use crate::connected::forged::REQUEST;
use crate::hwsim::manager::Manager;
use crate::hwsim::ours::hijack::NOBODY;
use crate::hwsim::ours::rdmacm::{ASK6, SERVER, UCM};
use crate::hwsim::{active, device, make};
use anyhow::{Result, ensure};
use lab::bed::{Builder, Host};
use lab::layout::Layout;
use lab::task::Task;
use lab::{forge, kernel, module, scenario};
use std::time::Duration;

const BIND6: &str = include_str!("../guest/patches/bind6.py");
const ASK_ROCE: &str = include_str!("../guest/patches/ask_roce.py");

const LIMIT: Duration = Duration::from_secs(10);

/// Builds a module of `tests/modules` for the kernel of a bed; where guests find it.
fn build(bed: &Builder, name: &str) -> Result<String> {
    let layout = Layout::from_env()?;
    let built = kernel::ensure(&layout, bed.lane(), bed.kernel())?;
    let source = layout.checkout.join("tests/modules").join(name);
    module::ensure_alone(&layout, &built, &source, name)
}

scenario! {
    /// 0008: who destroys an ID of the IB CM waits until the ID's handler, which is told of a failed send, has returned.
    #[on(patched)]
    fn an_id_outlives_the_report_of_a_failed_send(bed) {
        let module = build(&bed, "cm_report")?;
        let bed = bed.hosts(1).up()?;
        bed.rxe()?;
        let host = &bed.hosts[0];
        host.wait_until("grep -q ^fe80: /sys/class/infiniband/rxe0/ports/1/gids/0", LIMIT)?;
        host.ok(&format!("modprobe ib_cm && insmod {module} netdev=eth0 && rmmod cm_report"))?;
        bed.finish()
    }
}

/// Accepts RDMA connections to any IPv4 address.
fn serve(host: &Host) -> Result<Task> {
    let server = host.spawn_python(&format!("{UCM}{SERVER}"), &["0.0.0.0", "4711", "server"])?;
    server.wait_for("listening", host.scaled(LIMIT))?;
    Ok(server)
}

scenario! {
    /// 0009, as it concerns ib_ipoib and local users: neither a request that names IPv6 addresses nor a user who binds to one
    /// finds it on a kernel that was told to do without IPv6.
    #[on(patched, uml)]
    fn requests_name_no_ipv6_address_where_ipv6_is_off(bed) {
        let bed = bed.one_machine().hosts(1).append("ipv6.disable=1").up()?;
        let outside = bed.hosts[0].outside();
        outside.ok("modprobe ib_hwsim && modprobe ib_ipoib && modprobe rdma_ucm")?;
        make(&outside, "pair")?;
        let manager = Manager::start(&outside, &device(1), "")?;
        for hca in [1, 2] {
            active(&outside, &device(hca))?;
            let name = format!("ib{}", hca - 1);
            outside.ok(&format!("ip addr add 10.1.{hca}.1/24 dev {name} && ip link set {name} up"))?;
            // Of several interfaces on a port, ib_ipoib asks for the one that has the address.
            outside.ok(&format!("ip link add link {name} name {name}x type ipoib pkey 0xffff && ip link set {name}x up"))?;
        }
        let server = serve(&outside)?;
        let gid = |hca: u8| -> Result<String> {
            Ok(outside.ok(&format!("cat /sys/class/infiniband/{}/ports/1/gids/0", device(hca)))?.trim().to_owned())
        };
        let limit = outside.scaled(LIMIT).as_secs().to_string();
        let arguments = [&*gid(1)?, &gid(2)?, "4711", &limit];
        let answer = outside.python(&format!("{UCM}{ASK6}"), &arguments)?.ok()?;
        ensure!(answer.trim() == "rejected", "{answer}");
        let answer = outside.python(&format!("{NOBODY}{UCM}{BIND6}"), &[])?.ok()?;
        ensure!(answer.trim() == "Cannot assign requested address", "{answer}");
        server.stop()?;
        manager.end()?;
        bed.finish()
    }
}

scenario! {
    /// 0009, as it concerns rdma_cm on RoCE ports, where it finds the interface by itself.
    #[on(patched, uml)]
    fn a_roce_port_has_no_ipv6_route_where_ipv6_is_off(bed) {
        let bed = bed.append("ipv6.disable=1").up()?;
        bed.rxe()?;
        let (a, b) = bed.pair()?;
        b.outside().ok("modprobe rdma_ucm")?;
        a.ok(&format!("ping -q -c 1 -W 5 {}", b.eth4()))?;
        let server = serve(b)?;
        let end = |host: &Host| -> Result<[String; 3]> {
            let mac = host.ok("cat /sys/class/net/eth0/address")?;
            Ok([mac.trim().to_owned(), format!("::ffff:{}", host.eth4()), "1".to_owned()])
        };
        let program = forge::between(&end(a)?, &end(b)?, &format!("{REQUEST}{ASK_ROCE}"));
        a.python(&program, &["::", "0", "4711"])?.ok()?;
        server.wait_for("request", b.scaled(LIMIT))?;
        server.stop()?;
        bed.finish()
    }
}

scenario! {
    /// 0010: a bond of IPoIB interfaces has their type and is none of them: ib_ipoib makes no child of it.
    #[on(patched, uml)]
    fn a_bond_is_no_parent(bed) {
        let bed = bed.one_machine().hosts(1).up()?;
        let outside = bed.hosts[0].outside();
        outside.ok("modprobe ib_hwsim && modprobe ib_ipoib && modprobe bonding max_bonds=0")?;
        make(&outside, "pair")?;
        outside.ok("ip link add bond0 type bond mode active-backup && ip link set ib0 master bond0")?;
        let text = outside.run("ip link add link bond0 name child type ipoib pkey 0x8001")?.refused()?;
        ensure!(text.contains("No such device"), "{text}");
        outside.ok("ip link add link ib0 name child type ipoib pkey 0x8001 && ip link del child")?;
        outside.ok("ip link del bond0 && modprobe -r ib_ipoib bonding")?;
        bed.finish()
    }
}
