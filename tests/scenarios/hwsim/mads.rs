// SPDX-License-Identifier: GPL-2.0

//! MADs that no honest program sends, written to umad: to the own agents, and over the cable to the other HCA's.

use super::manager::Manager;
use super::{EXCLUSIVE, Port, active, hca, ipoib_up};
use anyhow::ensure;
use lab::scenario;
use std::time::Duration;

pub(super) const UMAD: &str = include_str!("../../guest/hwsim/mads/umad.py");

const MALFORMED: &str = include_str!("../../guest/hwsim/mads/malformed.py");

scenario! {
    /// Malformed MADs are answered with a status, dropped or refused, on both HCAs; then opensm brings
    /// the ports to Active as ever, and packets pass.
    #[on(lockdep)]
    fn malformed_mads_do_no_harm(bed) {
        let rounds = if bed.kernel().is_checked() { 300 } else { 1500 };
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let (a, b) = bed.pair()?;
        let manager = ipoib_up(&bed, "pair")?;
        a.ok(&format!("ping -q -c 3 -i 0.2 -W 5 {}", b.ip4()))?;
        let ports = [Port::of(a, &hca(a))?, Port::of(b, &hca(b))?];
        // It could be told to hand over to another SM, and would.
        manager.end()?;

        let [rounds, lid, peer_lid] = [rounds, ports[0].lid, ports[1].lid].map(|n| n.to_string());
        let limit = a.scaled(Duration::from_secs(15)).as_secs().to_string();
        let arguments = [&*hca(a), &rounds, &limit, &lid, &peer_lid];
        let limit = a.scaled(Duration::from_secs(60));
        let text = a.spawn_python(&format!("{UMAD}{MALFORMED}"), &arguments)?.wait(limit)?.ok()?;
        let words: Vec<&str> = text.split_whitespace().collect();
        ensure!(words.len() == 6, "{text}");
        let guids = ports.map(|port| format!("{:#x}", port.node_guid));
        ensure!(words[2..4] == guids && words[4..] == guids, "{text}");
        for count in &words[..2] {
            ensure!(count.parse::<u32>()? > 100, "taken or refused: {text}");
        }

        let manager = Manager::start(a, &hca(a), "")?;
        for (host, other) in [(a, b), (b, a)] {
            active(host, &hca(host))?;
            host.wait_until(&format!("ping -q -c 1 -W 1 {}", other.ip4()), Duration::from_secs(30))?;
            host.wait_until(&format!("ping -6 -q -c 1 -W 1 {}", other.ip6()), Duration::from_secs(30))?;
        }
        manager.kill()?;
        bed.finish()
    }
}
