// SPDX-License-Identifier: GPL-2.0

//! Coming and going, again and again.

use lab::machine::Kernel;
use lab::scenario;
use std::time::Duration;

/// Rounds: debug kernels check every one of them and are slow at it.
fn rounds(kernel: Kernel) -> u32 {
    match kernel {
        kernel if kernel.is_checked() => 30,
        _ => 100,
    }
}

const MODULES: &str = include_str!("../guest/lifecycle/modules.sh");

scenario! {
    /// modprobe and rmmod, a hundred times, every fifth with a port and an ib0 that is up.
    #[on(lockdep, infiniband)]
    fn the_module_comes_and_goes(bed) {
        let rounds = rounds(bed.kernel());
        let bed = bed.leaks().hosts(1).up()?;
        let host = &bed.hosts[0];
        bed.ports()?;
        let arguments = format!("{rounds} {}", host.link(""));
        let arguments: Vec<&str> = arguments.split_whitespace().collect();
        host.sh_for(MODULES, &arguments, Duration::from_secs(90))?.ok()?;
        if !host.is_infiniband() {
            // With lockdep, its links' sockets hold soft-RoCE's module.
            host.ok(&format!("rdma link del {} && modprobe -r rdma_rxe", host.rxe()))?;
        }
        host.ok("! lsmod | grep -q ipoib_rs")?;
        bed.finish()
    }
}

scenario! {
    /// `ip link add` and `ip link del`, a hundred times, up in between; then it still works.
    #[on(lockdep, infiniband)]
    fn links_come_and_go(bed) {
        let rounds = rounds(bed.kernel());
        let bed = bed.leaks().up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        a.run_for(
            &format!(
                "set -e
                 ip link del ib0
                 for i in $(seq {rounds}); do
                     ip link add name ib0 {}
                     ip link set ib0 up
                     ip addr add {}/24 dev ib0
                     ip link del ib0
                 done",
                a.link(""),
                a.ip4()
            ),
            Duration::from_secs(90),
        )?
        .ok()?;
        a.ib_add("")?;
        a.ib_up()?;
        // The neighbour still has the old address: it must find out.
        b.wait_until(&format!("ping -c 1 -W 1 {}", a.ip4()), Duration::from_secs(30))?;
        bed.finish()
    }
}

scenario! {
    /// Down and up under traffic, a hundred times: nothing hangs, and it carries on.
    #[on(lockdep, both, infiniband)]
    fn down_and_up_under_traffic(bed) {
        let rounds = rounds(bed.kernel());
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        let flood = b.spawn(&format!("ping -f -q {}", a.ip4()))?;
        a.run_for(
            &format!("set -e; for i in $(seq {rounds}); do ip link set ib0 down; ip link set ib0 up; done"),
            Duration::from_secs(60),
        )?
        .ok()?;
        flood.stop()?;
        a.wait_until(&format!("ping -c 1 -W 1 {}", b.ip4()), Duration::from_secs(15))?;
        bed.finish()
    }
}

scenario! {
    /// ib0 moves to another network namespace and works there; when that goes, so does ib0.
    #[on(lockdep, infiniband)]
    fn a_link_moves_to_another_namespace(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        let outside = a.outside();
        let (holder, pid) = a.netns_add("guest")?;
        a.ok(&format!("ip link set ib0 netns {pid}"))?;
        a.run("ip link show ib0")?.refused()?;
        outside.ok(&format!(
            "ip -n guest addr add {}/24 dev ib0 && ip -n guest link set ib0 up",
            a.ip4()
        ))?;
        outside.wait_until(
            &format!("ip netns exec guest ping -c 1 -W 1 {}", b.ip4()),
            Duration::from_secs(15),
        )?;
        holder.stop()?;
        outside.ok("ip netns del guest")?;
        // An ipoib_rs link is not moved back: it goes with its namespace, and a new one can be made.
        a.wait_until(&format!("ip link add name ib0 {}", a.link("")), Duration::from_secs(15))?;
        a.ib_up()?;
        b.wait_until(&format!("ping -c 1 -W 1 {}", a.ip4()), Duration::from_secs(30))?;
        bed.finish()
    }
}

scenario! {
    /// Two links on one port: each has its own QP, and both talk.
    #[on(lockdep, both, infiniband)]
    fn a_second_link_works_beside_the_first(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        for host in [a, b] {
            host.ok(&format!(
                "ip link add name ib1 {}
                 ip addr add 10.2.0.{}/24 dev ib1 && ip link set ib1 up",
                host.link(""),
                host.number()
            ))?;
        }
        a.wait_until("ping -c 1 -W 1 10.2.0.2", Duration::from_secs(10))?;
        a.ok(&format!("ping -c 1 -W 5 {}", b.ip4()))?;
        a.ok("ip link del ib1")?;
        a.ok(&format!("ping -c 1 -W 5 {}", b.ip4()))?;
        bed.finish()
    }
}
