// SPDX-License-Identifier: GPL-2.0

//! Changes of a fabric that is live: cables, power, and nodes that come and go.

use super::Port;
use super::fabric::Fabric;
use super::fields::Fields;
use super::manager::Manager;
use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::scenario;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(15);
/// With this option, opensm does not look for changes by itself. The switch's trap 128 has to tell it.
const NO_SWEEP: &str = "-s 0";

/// Waits until the SA knows a port, or does not know it any more.
pub(super) fn wait_known(host: &Host, from: &str, guid: u64, known: bool) -> Result<()> {
    let not = if known { "" } else { "!" };
    host.wait_until(
        &format!("{not} saquery {from} NodeRecord | grep -q 'port_guid\\.*{guid:#018x}'"),
        LIMIT,
    )
}

scenario! {
    /// A cable is pulled: both ports are down at once, and the SM hears of it. It is plugged in again: both are
    /// Active soon. The others never notice.
    #[on(lockdep)]
    fn a_cable_is_pulled_and_plugged(bed) {
        let bed = bed.one_machine().hosts(1).up()?;
        let host = bed.hosts[0].outside();
        let mut fabric = Fabric::make(&host, "star 4")?;
        let from = fabric.from("h1")?;
        let manager = Manager::start(&host, fabric.device("h1")?, NO_SWEEP)?;
        fabric.wait_active(&from, LIMIT)?;
        let device = fabric.device("h3")?.to_owned();
        let port = Port::of(&host, &device)?;
        for round in 0..3 {
            wait_known(&host, &from, port.guid, true)?;
            fabric.write("cables/c3/plugged", "0")?;
            let down = Port::of(&host, &device)?;
            ensure!((&*down.state, &*down.physical_state) == ("Down", "Polling"), "{down:?}");
            wait_known(&host, &from, port.guid, false)?;
            fabric.read()?;
            ensure!(fabric.cables.len() == 3, "the cable is still plugged");
            fabric.wait_active(&from, LIMIT)?;
            fabric.is_discovered(&from)?;

            fabric.write("cables/c3/plugged", "1")?;
            fabric.read()?;
            fabric.wait_active(&from, LIMIT).with_context(|| format!("round {round}"))?;
            ensure!(Port::of(&host, &device)?.lid == port.lid, "another LID");
        }
        fabric.is_discovered(&from)?;
        manager.kill()?;
        bed.finish()
    }
}

scenario! {
    /// A switch with an HCA behind it is added to a fabric that lives, and taken away, in any order.
    #[on(lockdep)]
    fn nodes_come_and_go(bed) {
        let bed = bed.leaks().one_machine().hosts(1).up()?;
        let host = bed.hosts[0].outside();
        let mut fabric = Fabric::make(&host, "chain 2")?;
        let from = fabric.from("h1")?;
        let manager = Manager::start(&host, fabric.device("h1")?, NO_SWEEP)?;
        fabric.wait_active(&from, LIMIT)?;
        let make = "cd /sys/kernel/config/ib_hwsim/chain
            mkdir switches/s3 hcas/h3 cables/to-s3 cables/to-h3";
        for guid in [0x0a1b_5555_0000_0000_u64, 0x0a1b_6666_0000_0000] {
            host.ok(make)?;
            for (path, value) in [
                ("switches/s3/ports", "5"),
                ("hcas/h3/node_guid", &*format!("{guid:#018x}")),
                ("hcas/h3/power", "1"),
                ("switches/s3/power", "1"),
                ("cables/to-h3/ends", "s3/5 h3/1"),
                ("cables/to-h3/plugged", "1"),
                ("cables/to-s3/ends", "s2/3 s3/2"),
                ("cables/to-s3/plugged", "1"),
            ] {
                fabric.write(path, value)?;
            }
            fabric.read()?;
            ensure!(fabric.hcas["h3"].guid == guid, "{:?}", fabric.hcas["h3"]);
            fabric.wait_active(&from, LIMIT)?;
            fabric.is_discovered(&from)?;
            wait_known(&host, &from, guid + 1, true)?;

            // As if the machine were carried off: its cable hangs loose.
            host.ok("rmdir /sys/kernel/config/ib_hwsim/chain/hcas/h3")?;
            ensure!(host.ok("cat /sys/kernel/config/ib_hwsim/chain/cables/to-h3/plugged")?.trim() == "0");
            wait_known(&host, &from, guid + 1, false)?;
            fabric.read()?;
            fabric.is_discovered(&from)?;
            host.ok("cd /sys/kernel/config/ib_hwsim/chain && rmdir switches/s3 cables/to-s3 cables/to-h3")?;
            fabric.read()?;
            ensure!(fabric.switches.len() == 2 && fabric.hcas.len() == 2 && fabric.cables.len() == 3);
            fabric.wait_active(&from, LIMIT)?;
            fabric.is_discovered(&from)?;
        }
        manager.kill()?;
        bed.finish()
    }
}

scenario! {
    /// An HCA is switched off and on, and then a switch: the RDMA device goes and another one comes.
    #[on(lockdep)]
    fn power_comes_and_goes(bed) {
        let bed = bed.one_machine().hosts(1).up()?;
        let host = bed.hosts[0].outside();
        let mut fabric = Fabric::make(&host, "star 3")?;
        let from = fabric.from("h1")?;
        let manager = Manager::start(&host, fabric.device("h1")?, NO_SWEEP)?;
        fabric.wait_active(&from, LIMIT)?;
        let device = fabric.device("h2")?.to_owned();
        fabric.write("hcas/h2/power", "0")?;
        fabric.read()?;
        ensure!(fabric.hcas["h2"].device.is_empty() && fabric.cables.len() == 2);
        host.run(&format!("ibstat {device}"))?.refused()?;
        fabric.write("hcas/h2/power", "1")?;
        fabric.write("cables/c2/plugged", "1")?;
        fabric.read()?;
        fabric.wait_active(&from, LIMIT)?;
        fabric.is_discovered(&from)?;

        fabric.write("switches/s1/power", "0")?;
        fabric.read()?;
        ensure!(fabric.cables.is_empty(), "{:?}", fabric.cables);
        for hca in ["h1", "h2", "h3"] {
            let port = Port::of(&host, fabric.device(hca)?)?;
            ensure!(port.state == "Down", "{port:?}");
        }
        manager.kill()?;
        fabric.write("switches/s1/power", "1")?;
        for cable in ["c1", "c2", "c3"] {
            fabric.write(&format!("cables/{cable}/plugged"), "1")?;
        }
        fabric.read()?;
        let manager = Manager::start(&host, fabric.device("h1")?, "")?;
        fabric.wait_active(&from, LIMIT)?;
        fabric.is_discovered(&from)?;
        manager.end()?;
        bed.finish()
    }
}

const WATCHED: &str = include_str!("../../guest/hwsim/live/watched.sh");

scenario! {
    /// A reader of a fabric does not wait until all of its HCAs are on, or off.
    #[on(lockdep)]
    fn a_fabric_is_read_while_it_changes(bed) {
        let bed = bed.one_machine().hosts(1).up()?;
        let host = bed.hosts[0].outside();
        Fabric::make(&host, "star 64")?;
        host.sh_for(WATCHED, &[], Duration::from_secs(60))?.ok()?;
        host.ok("ib-hwsim down && modprobe -r ib_hwsim")?;
        bed.finish()
    }
}

/// The errors of links that traps 129 to 131 are about, and the counter of each, if it has one.
const LINK_ERRORS: [(&str, u16, Option<&str>); 3] = [
    ("link_integrity", 129, Some("LocalLinkIntegrityErrors")),
    ("buffer_overrun", 130, Some("ExcessiveBufferOverrunErrors")),
    ("flow_control", 131, None),
];

/// Waits until a port has sent another trap than the `before` ones, and gives the SM time to repress it. Returns the
/// number of all.
fn wait_trap(host: &Host, port: &str, before: u64) -> Result<u64> {
    let file = format!("/sys/kernel/debug/ib_hwsim/star/{port}");
    let limit = Instant::now() + host.scaled(LIMIT);
    loop {
        let traps = Fields::of(host, &format!("cat {file}"))?.number("traps_sent")?;
        if traps > before {
            std::thread::sleep(host.scaled(Duration::from_millis(300)));
            return Ok(traps);
        }
        ensure!(Instant::now() < limit, "no trap from {port}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

scenario! {
    /// The SM hears of links that have errors: of those that are ordered, and of packets with a wrong CRC, of which
    /// too many come to the port of a switch.
    #[on(lockdep)]
    fn errors_of_links_are_reported(bed) {
        let bed = bed.one_machine().hosts(1).up()?;
        let host = bed.hosts[0].outside();
        let fabric = Fabric::make(&host, "star 3")?;
        let from = fabric.from("h1")?;
        let manager = Manager::start(&host, fabric.device("h1")?, NO_SWEEP)?;
        fabric.wait_active(&from, LIMIT)?;
        fabric.forget_errors(&from)?;
        let mut traps = 0;
        for (event, _, _) in LINK_ERRORS {
            fabric.write("hcas/h2/event", event)?;
            traps = wait_trap(&host, "h2/port1", traps)?;
        }
        let counted = Fields::of(&host, &format!("perfquery {}", fabric.from("h2")?))?;
        for counter in LINK_ERRORS.into_iter().filter_map(|(_, _, counter)| counter) {
            ensure!(counted.number(counter)? == 1, "{counted}");
        }

        fabric.write("cables/c3/corrupt", "1000000")?;
        // More packets than opensm lets the threshold of the port be.
        let ask = format!("smpquery {} -t 50 -D nodeinfo 0,1", fabric.from("h3")?);
        for _ in 0..20 {
            host.run(&ask)?.refused()?;
        }
        fabric.write("cables/c3/corrupt", "0")?;
        let lid = Fields::of(&host, &format!("smpquery {from} -D portinfo 0,1 0"))?.number("Lid")?;
        let (_, port) = fabric.peer("h3", 1)?;
        let counted = Fields::of(&host, &format!("perfquery {from} {lid} {port}"))?;
        ensure!(counted.number("LocalLinkIntegrityErrors")? >= 1, "{counted}");
        wait_trap(&host, "s1/port1", 0)?;
        manager.end()?;
        for (_, number, _) in LINK_ERRORS {
            manager.has_logged(&format!("num:{number}"))?;
        }
        manager.has_logged("Producer:2 (Switch)")?;
        bed.finish()
    }
}
