// SPDX-License-Identifier: GPL-2.0

//! Two HCAs with a cable between them, as opensm and the diagnostics see them.

use super::fields::Fields;
use super::manager::Manager;
use super::{Port, active, counts, make};
use anyhow::{Result, ensure};
use lab::scenario;
use regex::Regex;
use std::collections::BTreeSet;
use std::time::Duration;

const HCAS: [&str; 2] = ["hwsim0", "hwsim1"];

scenario! {
    /// The cable is up at once; opensm gives the ports LIDs and brings them to Active, and finds no fault.
    #[on(lockdep, both, races)]
    fn opensm_brings_the_ports_up(bed) {
        let bed = bed.one_machine().hosts(1).up()?;
        let host = bed.hosts[0].outside();
        make(&host, "pair")?;
        for hca in HCAS {
            let port = Port::of(&host, hca)?;
            ensure!((&*port.state, &*port.physical_state) == ("Initializing", "LinkUp"), "{port:?}");
        }
        Manager::once(&host, HCAS[0])?;
        let ports = [Port::of(&host, HCAS[0])?, Port::of(&host, HCAS[1])?];
        let [a, b] = &ports;
        for port in &ports {
            ensure!((&*port.state, &*port.physical_state) == ("Active", "LinkUp"), "{port:?}");
            ensure!((1..0xc000).contains(&port.lid) && port.sm_lid == a.lid, "{port:?}");
        }
        ensure!(a.lid != b.lid && a.guid != b.guid && a.node_guid != b.node_guid, "{ports:?}");
        bed.finish()
    }
}

scenario! {
    /// The diagnostics, by directed route, by LID and by way of the SA, tell of two HCAs and the link between
    /// them, seen from either.
    #[on(lockdep, both, races)]
    fn diagnostics_see_the_pair(bed) {
        let bed = bed.one_machine().hosts(1).up()?;
        let host = bed.hosts[0].outside();
        make(&host, "pair")?;
        let manager = Manager::start(&host, HCAS[0], "")?;
        for hca in HCAS {
            active(&host, hca)?;
        }
        let ports = [Port::of(&host, HCAS[0])?, Port::of(&host, HCAS[1])?];
        for (hca, port, peer) in [(HCAS[0], &ports[0], &ports[1]), (HCAS[1], &ports[1], &ports[0])] {
            let from = format!("-C {hca} -P 1");
            discovers(&host.ok(&format!("ibnetdiscover {from}"))?, port, peer)?;
            let text = host.ok(&format!("sminfo {from}"))?;
            let sm = format!("sm lid {} sm guid {:#x},", ports[0].lid, ports[0].guid);
            ensure!(text.contains(&sm) && text.contains("SMINFO_MASTER"), "{text}");
            for (target, node) in [
                ("-D nodeinfo 0".to_owned(), port),
                ("-D nodeinfo 0,1".to_owned(), peer),
                (format!("nodeinfo {}", port.lid), port),
                (format!("nodeinfo {}", peer.lid), peer),
            ] {
                let info = Fields::of(&host, &format!("smpquery {from} {target}"))?;
                ensure!(info.text("NodeType")? == "Channel Adapter", "{info}");
                ensure!(info.number("Guid")? == node.node_guid, "{info}");
                ensure!(info.number("PortGuid")? == node.guid, "{info}");
                ensure!((info.number("NumPorts")?, info.number("LocalPort")?) == (1, 1), "{info}");
            }
            counts(&host, &from, peer.lid, 1)?;

            let nodes = Fields::of(&host, &format!("saquery {from} NodeRecord"))?;
            for (key, expected) in [("lid", [port.lid, peer.lid]), ("port_guid", [port.guid, peer.guid])] {
                ensure!(nodes.numbers(key)? == BTreeSet::from(expected), "{nodes}");
            }
            let path = format!("saquery {from} --src-to-dst {}:{}", port.lid, peer.lid);
            let path = Fields::of(&host, &path)?;
            ensure!((path.number("slid")?, path.number("dlid")?) == (port.lid, peer.lid), "{path}");
        }
        manager.end()?;
        bed.finish()
    }
}

/// Checks the output of `ibnetdiscover`: two ports, and each is the other's neighbour.
fn discovers(text: &str, port: &Port, peer: &Port) -> Result<()> {
    let link = Regex::new(
        r#"(?m)^\[1\]\(([0-9a-f]+)\)\s+"H-([0-9a-f]+)"\[1\] \(([0-9a-f]+)\)\s+# lid (\d+) lmc 0 ".*" lid (\d+) "#,
    )?;
    let seen: BTreeSet<[u64; 5]> = link
        .captures_iter(text)
        .map(|c| {
            let (_, [guid, neighbour, neighbours_port, lid, neighbours_lid]) = c.extract();
            Ok([
                u64::from_str_radix(guid, 16)?,
                u64::from_str_radix(neighbour, 16)?,
                u64::from_str_radix(neighbours_port, 16)?,
                lid.parse()?,
                neighbours_lid.parse()?,
            ])
        })
        .collect::<Result<_>>()?;
    let half = |a: &Port, b: &Port| [a.guid, b.node_guid, b.guid, a.lid, b.lid];
    ensure!(
        seen == BTreeSet::from([half(port, peer), half(peer, port)]),
        "{seen:x?} in {text}"
    );
    ensure!(text.matches("caguid=").count() == 2, "{text}");
    Ok(())
}

scenario! {
    /// modprobe and rmmod again and again, with `ib_ipoib` there and without; then the fabric works.
    #[on(lockdep, races)]
    fn the_module_comes_and_goes(bed) {
        let rounds = if bed.kernel().is_checked() { 5 } else { 20 };
        let bed = bed.leaks().one_machine().hosts(1).up()?;
        let host = bed.hosts[0].outside();
        for ipoib in ["true", "modprobe ib_ipoib"] {
            host.run_for(
                &format!(
                    "set -e
                     {ipoib}
                     for i in $(seq {rounds}); do
                         ib-hwsim pair >/dev/null
                         ib-hwsim down
                         modprobe -r ib_hwsim
                     done
                     ! rdma dev | grep hwsim"
                ),
                Duration::from_secs(60),
            )?
            .ok()?;
        }
        make(&host, "pair")?;
        // A fabric keeps the module.
        host.run("modprobe -r ib_hwsim")?.refused()?;
        Manager::once(&host, HCAS[0])?;
        for hca in HCAS {
            active(&host, hca)?;
        }
        bed.finish()
    }
}
