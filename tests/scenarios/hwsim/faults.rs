// SPDX-License-Identifier: GPL-2.0

//! Fabrics for which there is no memory. Debug kernels only: they have fault injection.

use super::fabric::{CONFIGFS, Fabric};
use super::manager::Manager;
use crate::faults::each;
use anyhow::ensure;
use lab::bed::Host;
use lab::scenario;
use std::time::Duration;

/// A fabric that is off: an HCA on a switch, with tables that are as short as can be.
const BEGIN: &str = "modprobe ib_hwsim && mount -t configfs configfs /sys/kernel/config
    cd /sys/kernel/config/ib_hwsim && mkdir x && cd x && mkdir hcas/a switches/s cables/c
    for node in hcas/a switches/s; do echo 1 >$node/pkeys; done
    echo 1 >hcas/a/gids && echo 2 >switches/s/ports && echo a/1 s/1 >cables/c/ends";

const ACTS: &str = include_str!("../../guest/hwsim/faults/acts.py");

/// Does this with each of its allocations failing. Ends unless there are so many, of which so many are needed.
fn all_fail(host: &Host, act: &str, least: (u32, u32)) -> anyhow::Result<()> {
    let (all, refused) = each(host, &format!("{ACTS}{act}"))?;
    ensure!(
        all >= least.0 && refused >= least.1,
        "{act}: {refused} of {all}"
    );
    Ok(())
}

scenario! {
    /// Whichever allocation fails as a fabric is made, switched on and changed: that step is refused and changes
    /// nothing, or is done; and nothing leaks.
    #[on(debug, lockdep)]
    fn fabrics_that_cannot_be_made(bed) {
        let bed = bed.leaks().one_machine().hosts(1).lifetime(Duration::from_secs(240)).up()?;
        let host = &bed.hosts[0].outside();
        host.ok(BEGIN)?;
        for (kind, least) in [("hcas", 20), ("switches", 8), ("cables", 12)] {
            all_fail(host, &format!("remake('{kind}/z')"), (least, least))?;
        }
        all_fail(host, "change('live', b'1', b'0')", (1000, 100))?;
        host.ok(&format!("echo 1 >{CONFIGFS}/x/live && echo 1 >{CONFIGFS}/x/cables/c/plugged"))?;
        for (act, least) in [
            ("put('hcas/a/power', b'0'); change('hcas/a/power', b'1', b'0')", (1000, 100)),
            ("put('hcas/a/power', b'1'); put('switches/s/power', b'0'); change('switches/s/power', b'1', b'0')", (25, 15)),
            ("put('switches/s/power', b'1'); change('cables/c/plugged', b'1', b'0')", (8, 6)),
            ("put('cables/c/plugged', b'1'); change('cables/c/loss', b'1000', b'0')", (8, 4)),
            ("change('switches/s/adaptive', b'packet', b'off')", (4, 4)),
            ("change('hcas/a/capture', b'100000', b'0')", (4, 4)),
            ("change('hcas/a/faults', b'create_ah ENOMEM at 3', b'clear')", (4, 4)),
        ] {
            all_fail(host, act, least)?;
        }
        host.ok("ib-hwsim down")?;
        let fabric = Fabric::make(host, "star 2")?;
        let manager = Manager::start(host, fabric.device("h1")?, "")?;
        fabric.wait_active(&fabric.from("h1")?, Duration::from_secs(30))?;
        manager.kill()?;
        host.ok("ib-hwsim down && modprobe -r ib_hwsim")?;
        bed.finish()
    }
}

const BEGIN_ETHERNET: &str = include_str!("../../guest/hwsim/faults/begin_ethernet.sh");

scenario! {
    /// Faults with Ethernet ports, whose HCAs have a network device to find and let go.
    #[on(debug, lockdep)]
    fn ethernet_ports_that_cannot_be_made(bed) {
        let bed = bed.leaks().one_machine().hosts(1).lifetime(Duration::from_secs(240)).up()?;
        let host = &bed.hosts[0].outside();
        host.sh(BEGIN_ETHERNET, &[])?;
        let owners = "cd /sys/class/infiniband && ls | grep -c hwsim";
        all_fail(host, "put('hcas/a/netdev', b'e1'); change('hcas/a/netdev', b'e0', b'e1'); put('hcas/a/netdev', b'e0')", (1, 1))?;
        all_fail(host, "change('live', b'1', b'0')", (200, 50))?;
        host.run(owners)?.refused()?;
        host.ok(&format!("echo 1 >{CONFIGFS}/x/live"))?;
        for (act, least) in [
            ("put('hcas/a/power', b'0'); change('hcas/a/power', b'1', b'0')", (200, 50)),
            ("put('hcas/a/power', b'1'); put('cables/c/plugged', b'0'); change('cables/c/plugged', b'1', b'0')", (4, 3)),
            ("put('cables/c/plugged', b'1'); change('cables/c/jitter', b'1000', b'0')", (8, 4)),
            ("change('hcas/a/faults', b'create_ah ENOMEM at 3', b'clear')", (4, 4)),
        ] {
            all_fail(host, act, least)?;
        }
        ensure!(host.ok(owners)?.trim() == "2");
        for n in [0, 1] {
            host.ok(&format!("ip link add link e{n} name ib{n} type ipoib_rs && ip link set ib{n} up"))?;
            host.wait_until(&format!("ip -o link show ib{n} | grep -q LOWER_UP"), Duration::from_secs(10))?;
        }
        host.ok("ip link del ib0 && ip link del ib1 && ib-hwsim down")?;
        // Nobody keeps them now, either.
        host.ok("ip link del e0 && modprobe -r ipoib_rs && modprobe -r ib_hwsim")?;
        bed.finish()
    }
}
