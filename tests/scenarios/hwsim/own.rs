// SPDX-License-Identifier: GPL-2.0

//! Subnet management of the very host that it runs on, whose datagrams need no cable.

use super::mads::UMAD;
use super::manager::Manager;
use super::{Port, active, device, make};
use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::scenario;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(15);

const TAKE_DOWN: &str = include_str!("../../guest/hwsim/own/take_down.py");

/// Takes a port's link down by way of its LID, or of a directed route if that is 0.
fn take_down(host: &Host, hca: &str, lid: u64) -> Result<()> {
    let limit = host.scaled(Duration::from_secs(10));
    let arguments = [hca, &lid.to_string(), &limit.as_secs().to_string()];
    let script = format!("{UMAD}{TAKE_DOWN}");
    let text = host
        .spawn_python(&script, &arguments)?
        .wait(2 * limit)?
        .ok()?;
    ensure!(text.trim() == "0 0", "{text}");
    Ok(())
}

scenario! {
    /// Software of the host takes the host's own port down: the answer comes, and the link goes at once, at both
    /// ends, and is trained anew.
    #[on(lockdep)]
    fn a_host_retrains_its_own_link(bed) {
        let bed = bed.one_machine().hosts(1).up()?;
        let host = bed.hosts[0].outside();
        make(&host, "pair")?;
        let hcas = [device(1), device(2)];
        for by_lid in [false, true, false, true] {
            Manager::once(&host, &hcas[0])?;
            for hca in &hcas {
                active(&host, hca)?;
            }
            let lid = if by_lid { Port::of(&host, &hcas[0])?.lid } else { 0 };
            take_down(&host, &hcas[0], lid)?;
            // There is no SM any more that could make it Active.
            for hca in &hcas {
                let port = Port::of(&host, hca)?;
                ensure!(port.state == "Initializing", "LID {lid}: {hca}: {port:?}");
            }
        }
        bed.finish()
    }
}

scenario! {
    /// The SM hears of a change of the host's own NodeDescription by trap 144, as it does of another host's.
    #[on(lockdep)]
    fn a_trap_reaches_the_manager_of_the_own_host(bed) {
        let bed = bed.one_machine().hosts(1).up()?;
        let host = bed.hosts[0].outside();
        make(&host, "pair")?;
        let hcas = [device(1), device(2)];
        // It does not look for changes by itself.
        let manager = Manager::start(&host, &hcas[0], "-s 0")?;
        for hca in &hcas {
            active(&host, hca)?;
        }
        for (hca, name) in hcas.iter().zip(["here", "there"]) {
            let node = format!("a node that is {name}");
            host.ok(&format!("echo '{node}' >/sys/class/infiniband/{hca}/node_desc"))?;
            let known = format!("saquery -C {} -P 1 NodeRecord | grep -q '{node}'", hcas[0]);
            host.wait_until(&known, LIMIT).with_context(|| node.clone())?;
        }
        manager.end()?;
        manager.has_logged("num:144")?;
        bed.finish()
    }
}
