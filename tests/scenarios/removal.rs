// SPDX-License-Identifier: GPL-2.0

//! Whatever ib0 stands on is taken away under traffic: it ends cleanly, and can be made again.

use crate::connected::connected;
use anyhow::{Context, Result, ensure};
use lab::bed::{Bed, Host};
use lab::scenario;
use lab::task::Task;
use std::time::Duration;

const SIGKILL: i32 = 9;

/// Traffic both ways that does not end by itself: the second and the third task are the first host's.
fn traffic(bed: &Bed) -> Result<Vec<Task>> {
    let (a, b) = bed.pair()?;
    let server = b.spawn("iperf3 -s --forceflush")?;
    server.wait_for("Server listening", b.scaled(Duration::from_secs(10)))?;
    let tasks = vec![
        server,
        a.spawn(&format!("iperf3 -t 1000 -c {}", b.ip4()))?,
        a.spawn(&format!("ping -f -q {}", b.ip6()))?,
        b.spawn(&format!("ping -f -q {}", a.ip4()))?,
    ];
    std::thread::sleep(a.scaled(Duration::from_millis(500)));
    Ok(tasks)
}

fn stop(tasks: Vec<Task>) -> Result<()> {
    for task in tasks {
        task.stop()?;
    }
    Ok(())
}

/// Takes a host's RDMA device away, as a power failure does on InfiniBand.
fn remove_device(host: &Host) -> Result<()> {
    if let Some(hca) = host.hca_files() {
        let off = format!("echo 0 >{hca}/power");
        let outside = host.outside();
        outside.run_for(&off, Duration::from_secs(60))?.ok()?;
    } else {
        host.ok(&format!("rdma link del {}", host.rxe()))?;
    }
    Ok(())
}

/// Gives it back, and the subnet its manager, which has ended with it.
fn return_device(bed: &Bed, host: &Host) -> Result<()> {
    let Some(hca) = host.hca_files() else {
        return host.rxe_up();
    };
    let netns = host.netns().context("a host without a namespace")?;
    host.outside().ok(&format!(
        "set -e
         echo 1 >{hca}/power
         plugged={hca}/../../cables/c{}/plugged
         [ $(cat $plugged) = 1 ] || echo 1 >$plugged
         rdma dev set {} netns {netns}",
        host.number(),
        host.rdma_device()
    ))?;
    bed.subnet_manager()
}

/// No ib0 any more, within a moment.
fn gone(host: &Host) -> Result<()> {
    host.wait_until("! ip link show ib0 2>/dev/null", Duration::from_secs(15))
}

/// The first host's ib0 is made again and talks.
fn again(bed: &Bed) -> Result<()> {
    let (a, b) = bed.pair()?;
    a.ib_add("")?;
    a.ib_up()?;
    a.wait_until(
        &format!("ping -c 1 -W 1 {}", b.ip4()),
        Duration::from_secs(30),
    )
}

scenario! {
    /// `ip link del ib0`.
    #[on(lockdep, infiniband)]
    fn of_the_link(bed) {
        let bed = bed.leaks().up()?;
        bed.ib()?;
        let (a, _) = bed.pair()?;
        let tasks = traffic(&bed)?;
        a.ok("ip link del ib0")?;
        gone(a)?;
        stop(tasks)?;
        again(&bed)?;
        bed.finish()
    }
}

scenario! {
    /// `rdma link del`: the RDMA device.
    #[on(lockdep, infiniband)]
    fn of_the_rdma_device(bed) {
        let bed = bed.leaks().up()?;
        bed.ib()?;
        let (a, _) = bed.pair()?;
        let tasks = traffic(&bed)?;
        remove_device(a)?;
        gone(a)?;
        stop(tasks)?;
        return_device(&bed, a)?;
        again(&bed)?;
        bed.finish()
    }
}

scenario! {
    /// `modprobe -r ipoib_rs`: the module.
    #[on(lockdep, infiniband)]
    fn of_the_module(bed) {
        let bed = bed.leaks().up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        let tasks = traffic(&bed)?;
        a.ok("modprobe -r ipoib_rs")?;
        gone(a)?;
        stop(tasks)?;
        // In one kernel the neighbour has lost its ib0, too.
        if b.run("ip link show ib0")?.code != Some(0) {
            b.ib_add("")?;
            b.ib_up()?;
        }
        again(&bed)?;
        bed.finish()
    }
}

scenario! {
    /// `ip link del ib0`, connected.
    #[on(lockdep, infiniband)]
    fn of_the_link_with_connections(bed) {
        let bed = bed.leaks().up()?;
        let (a, _) = connected(&bed)?;
        let tasks = traffic(&bed)?;
        a.ok("ip link del ib0")?;
        gone(a)?;
        stop(tasks)?;
        again(&bed)?;
        bed.finish()
    }
}

scenario! {
    /// The RDMA device, connected.
    #[on(lockdep, both, infiniband)]
    fn of_the_rdma_device_with_connections(bed) {
        let bed = bed.leaks().up()?;
        let (a, _) = connected(&bed)?;
        let tasks = traffic(&bed)?;
        remove_device(a)?;
        gone(a)?;
        stop(tasks)?;
        return_device(&bed, a)?;
        again(&bed)?;
        bed.finish()
    }
}

scenario! {
    /// The module, connected; then the peer's module.
    #[on(lockdep, both, infiniband)]
    fn of_the_module_with_connections(bed) {
        let bed = bed.leaks().up()?;
        let (a, b) = connected(&bed)?;
        let tasks = traffic(&bed)?;
        for host in [a, b] {
            // In one kernel it has gone with the neighbour's.
            host.ok("! lsmod | grep -q ^ipoib_rs || modprobe -r ipoib_rs")?;
            gone(host)?;
        }
        stop(tasks)?;
        b.ib_add("")?;
        b.ib_up()?;
        again(&bed)?;
        bed.finish()
    }
}

scenario! {
    /// The Ethernet netdev: unplugged in the qemu lane, deleted with its peer in the uml lane.
    #[on(lockdep)]
    fn of_the_ethernet(bed) {
        let bed = bed.leaks().up()?;
        bed.loses_ethernet();
        bed.ib()?;
        let (a, _) = bed.pair()?;
        let tasks = traffic(&bed)?;
        a.ok(
            "if [ -e /sys/class/net/eth0/device ]; then
                 device=$(basename $(readlink -f /sys/class/net/eth0/device))
                 echo $device >/sys/bus/virtio/drivers/virtio_net/unbind
             else
                 ip link del eth0
             fi",
        )?;
        gone(a)?;
        stop(tasks)?;
        a.ok("modprobe -r ipoib_rs rdma_rxe")?;
        bed.finish()
    }
}

/// The first host's namespace ends under traffic. On InfiniBand, its RDMA device goes back to the initial one, and
/// serves there.
fn end_namespace(bed: &Bed) -> Result<()> {
    let (a, b) = bed.pair()?;
    let outside = a.outside();
    let mut tasks = traffic(bed)?;
    let is_outside = format!("rdma dev | grep -q ' {}:'", a.rdma_device());
    if a.is_infiniband() {
        outside.ok(&format!("! {is_outside}"))?;
    } else {
        bed.loses_ethernet();
    }
    // Sockets keep a namespace alive: those who hold them go first, by surprise.
    outside.ok("kill -9 $(ip netns pids h0); ip netns del h0")?;
    for of_first in tasks.drain(1..3) {
        let end = of_first.wait(a.scaled(Duration::from_secs(5)))?;
        ensure!(end.signal == Some(SIGKILL), "{}", end.describe());
    }
    if a.is_infiniband() {
        let limit = Duration::from_secs(20);
        outside.wait_until(&is_outside, limit)?;
        gone(&outside)?;
        // The subnet manager has ended with the namespace.
        b.subnet_manager()?;
        outside.ib_add("")?;
        outside.ib_up()?;
        outside.wait_until(&format!("ping -c 1 -W 1 {}", b.ip4()), limit)?;
    } else {
        outside.wait_until("! rdma link | grep -q rxe0", Duration::from_secs(20))?;
    }
    stop(tasks)?;
    outside.ok("modprobe -r ipoib_rs")?;
    if !a.is_infiniband() {
        outside.ok("modprobe -r rdma_rxe")?;
    }
    Ok(())
}

scenario! {
    /// The network namespace that everything lives in.
    #[on(uml, infiniband)]
    fn of_the_namespace(bed) {
        let bed = bed.leaks().up()?;
        bed.ib()?;
        end_namespace(&bed)?;
        bed.finish()
    }
}

scenario! {
    /// The network namespace, connected.
    #[on(uml, infiniband)]
    fn of_the_namespace_with_connections(bed) {
        let bed = bed.leaks().up()?;
        connected(&bed)?;
        end_namespace(&bed)?;
        bed.finish()
    }
}
