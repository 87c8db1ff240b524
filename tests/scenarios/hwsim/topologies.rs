// SPDX-License-Identifier: GPL-2.0

//! Switches between the HCAs: what opensm makes of a topology, and whether the diagnostics see what configfs says.

use super::fabric::Fabric;
use super::fields::Fields;
use super::manager::Manager;
use super::{Port, counts};
use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::layout::Layout;
use lab::scenario;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);

/// The LIDs of two HCAs.
fn lids(host: &Host, fabric: &Fabric, hcas: [&str; 2]) -> Result<[u64; 2]> {
    let lid = |hca: &str| Ok::<_, anyhow::Error>(Port::of(host, fabric.device(hca)?)?.lid);
    Ok([lid(hcas[0])?, lid(hcas[1])?])
}

scenario! {
    /// 16 HCAs on a switch: the diagnostics agree with configfs about nodes, cables and routes, all ports count,
    /// and none has seen an error.
    #[on(timed, lockdep)]
    fn diagnostics_see_a_star(bed) {
        let bed = bed.one_machine().hosts(1).up()?;
        let host = bed.hosts[0].outside();
        let fabric = Fabric::make(&host, "star 16")?;
        ensure!(fabric.hcas.len() == 16 && fabric.cables.len() == 16);
        let manager = Manager::start(&host, fabric.device("h1")?, "")?;
        let from = fabric.from("h1")?;
        fabric.wait_active(&from, LIMIT)?;
        fabric.forget_errors(&from)?;
        for hca in ["h1", "h16"] {
            fabric.is_discovered(&fabric.from(hca)?)?;
        }
        let server = host.spawn(&format!("ibping {} -S", fabric.from("h16")?))?;
        let [_, far] = lids(&host, &fabric, ["h1", "h16"])?;
        // It takes a moment until the server is there.
        host.wait_until(&format!("ibping {from} -c 1 {far} | grep -q ' 1 received'"), LIMIT)?;
        let pings = host.ok(&format!("ibping {from} -c 20 -f {far}"))?;
        ensure!(pings.contains("20 packets transmitted, 20 received, 0% packet loss"), "{pings}");
        server.stop()?;
        for hcas in [["h1", "h16"], ["h7", "h3"]] {
            let hops = fabric.traces(&from, lids(&host, &fabric, hcas)?, hcas)?;
            ensure!(hops == 2, "{hops} hops");
        }

        let switch = fabric.switches.get("s1").context("no s1")?;
        let info = Fields::of(&host, &format!("saquery {from} NodeRecord"))?;
        ensure!(info.numbers("port_guid")?.contains(&switch.guid), "{info}");
        let lid = Fields::of(&host, &format!("smpquery {from} -D portinfo 0,1 0"))?.number("Lid")?;
        // Through this port the queries come.
        counts(&host, &from, lid, 1)?;
        Fields::of(&host, &format!("perfquery {from} -x {lid} 16"))?.number("PortXmitPkts")?;
        host.run(&format!("perfquery {from} {lid} 17"))?.refused()?;
        fabric.has_no_errors(&from)?;
        manager.end()?;
        bed.finish()
    }
}

scenario! {
    /// Four switches in a row: directed routes reach each node while no port has a LID, and packets that are
    /// routed by LID take the same way afterwards.
    #[on(lockdep)]
    fn routes_cross_a_chain(bed) {
        let bed = bed.one_machine().hosts(1).up()?;
        let host = bed.hosts[0].outside();
        let fabric = Fabric::make(&host, "chain 4")?;
        let [first, last] = [fabric.from("h1")?, fabric.from("h4")?];
        let far = [("0", "h1"), ("0,1", "s1"), ("0,1,3", "s2"), ("0,1,3,3", "s3"), ("0,1,3,3,3", "s4"), ("0,1,3,3,3,1", "h4")];
        let node_info = |target: &str, name: &str| -> Result<()> {
            let info = Fields::of(&host, &format!("smpquery {first} {target}"))?;
            let (kind, node) = match fabric.switches.get(name) {
                Some(switch) => ("Switch", switch),
                None => ("Channel Adapter", fabric.hcas.get(name).context("no such node")?),
            };
            ensure!(info.text("NodeType")? == kind && info.number("Guid")? == node.guid, "{name}: {info}");
            ensure!(info.number("NumPorts")? == u64::from(node.ports), "{name}: {info}");
            Ok(())
        };
        for (path, name) in far {
            node_info(&format!("-D nodeinfo {path}"), name)?;
        }
        for dead_end in ["0,1,2", "0,1,4", "0,1,3,1,1"] {
            host.run(&format!("smpquery {first} -t 100 -D nodeinfo {dead_end}"))?.refused()?;
        }
        fabric.is_discovered(&first)?;

        let manager = Manager::start(&host, fabric.device("h1")?, "")?;
        fabric.wait_active(&first, LIMIT)?;
        fabric.forget_errors(&first)?;
        for (from, hcas) in [(&first, ["h1", "h4"]), (&last, ["h4", "h1"])] {
            let lids = lids(&host, &fabric, hcas)?;
            let hops = fabric.traces(from, lids, hcas)?;
            ensure!(hops == 5, "{hops} hops");
            fabric.is_discovered(from)?;
            fabric.has_no_errors(from)?;
        }
        let [_, lid] = lids(&host, &fabric, ["h1", "h4"])?;
        node_info(&format!("nodeinfo {lid}"), "h4")?;
        manager.end()?;
        bed.finish()
    }
}

scenario! {
    /// A fat tree: opensm knows it as one, and routes on the shortest ways.
    #[on(timed, lockdep)]
    fn opensm_routes_a_fat_tree(bed) {
        let (hosts, radix) = if bed.kernel().is_checked() { (18, 6) } else { (72, 12) };
        let bed = bed.one_machine().hosts(1).up()?;
        let host = bed.hosts[0].outside();
        let fabric = Fabric::make(&host, &format!("fat-tree {hosts} {radix}"))?;
        let from = fabric.from("h1")?;
        let manager = Manager::start(&host, fabric.device("h1")?, "-R ftree")?;
        fabric.wait_active(&from, Duration::from_secs(60))?;
        fabric.forget_errors(&from)?;
        fabric.is_discovered(&from)?;
        let farthest = format!("h{hosts}");
        for (other, hops) in [("h2", 2), (&farthest, 4)] {
            let hcas = ["h1", other];
            let seen = fabric.traces(&from, lids(&host, &fabric, hcas)?, hcas)?;
            ensure!(seen == hops, "{seen} hops to {other}");
        }
        fabric.has_no_errors(&from)?;
        manager.end()?;
        manager.has_logged("ftree tables configured")?;
        bed.finish()
    }
}

scenario! {
    /// 648 HCAs on 54 switches of 36 ports are Active, within a minute on two idle cores, and gone much sooner. The
    /// times are in `build/logs/fat-tree-648`.
    #[on(uml, base)]
    fn a_large_fat_tree_in_a_minute(bed) {
        let bed = bed.one_machine().hosts(1).memory(3072).up()?;
        let host = bed.hosts[0].outside();
        host.ok("modprobe ib_umad && modprobe ib_hwsim")?;
        let limit = Duration::from_secs(200);
        let begin = Instant::now();
        host.run_for("ib-hwsim fat-tree 648 36", limit)?.ok()?;
        let made = begin.elapsed();
        host.run_for("ib-hwsim sm", limit)?.ok()?;
        let took = begin.elapsed();
        let log = Layout::from_env()?.build().join("logs/fat-tree-648");
        let text = format!("made in {:.1} s, Active after {:.1} s\n", made.as_secs_f32(), took.as_secs_f32());
        print!("{text}");
        std::fs::write(&log, &text).with_context(|| log.display().to_string())?;
        // The goal is for two idle cores, which a busy machine does not have.
        ensure!(took < Duration::from_secs(180), "it took {took:?}");

        let states = host.ok("cat /sys/class/infiniband/hwsim*/ports/1/state | sort | uniq -c")?;
        ensure!(states.trim() == "648 4: ACTIVE", "{states}");
        let links = host.run_for("iblinkinfo -C hwsim0 -P 1 -l --switches-only | grep -c 'Active/ *LinkUp'", limit)?.ok()?;
        ensure!(links.trim() == "1944", "{links} ports of switches");
        host.ok("pkill -KILL -x opensm")?;

        // It was a minute and a half when each object that RDMA core destroyed took a normal grace period of RCU.
        let begin = Instant::now();
        host.run_for("ib-hwsim down", limit)?.ok()?;
        let took = begin.elapsed();
        ensure!(took < Duration::from_secs(40), "to go down took {took:?}");
        let text = format!("{text}down in {:.1} s\n", took.as_secs_f32());
        std::fs::write(&log, text).with_context(|| log.display().to_string())?;
        bed.finish()
    }
}
