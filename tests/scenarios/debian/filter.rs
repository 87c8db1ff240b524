// SPDX-License-Identifier: GPL-2.0

//! The packet filter of installing.rst, which keeps from unpatched soft-RoCE what stops it.

use anyhow::{Context, Result, ensure};
use lab::debian::Root;
use lab::layout::Layout;
use lab::scenario;
use std::time::Duration;

/// The commands of installing.rst that begin with `nft`.
fn rules() -> Result<String> {
    let file = Layout::from_env()?
        .checkout
        .join("Documentation/installing.rst");
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let rules: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with("nft "))
        .collect();
    ensure!(!rules.is_empty(), "{} has no nft commands", file.display());
    Ok(rules.join(" && "))
}

scenario! {
    /// Short datagrams to soft-RoCE's port over IPv6 are dropped by the filter, and the host lives; what
    /// is long enough passes it. Without the filter the kernel stops, which is why there is one.
    #[on(stock)]
    fn short_datagrams_stop_at_the_filter(bed) {
        let root = Root::new(&["nftables"])?;
        let rules = rules()?;
        let bed = bed.debian(&[&root, &root]).up()?;
        let (a, b) = bed.pair()?;
        for host in [a, b] {
            host.ethernet_up(bed.builder().link_mtu())?;
            host.ok(&format!("ip addr add fd00:2::{}/64 dev eth0 nodad", host.number()))?;
            host.ok("rdma link add rxe0 type rxe netdev eth0")?;
        }
        let send = |bytes: usize| -> Result<String> {
            a.ok(&format!(
                "bash -c 'printf %0{bytes}d 0 >/dev/udp/fd00:2::{}/4791'",
                b.number()
            ))
        };
        b.ok(&rules)?;
        b.ok("nft add rule ip6 roce input udp dport 4791 counter")?;
        for bytes in [1, 4, 11] {
            send(bytes)?;
        }
        send(12)?;
        b.wait_until(
            "nft list chain ip6 roce input | grep -q 'counter packets 1 '",
            Duration::from_secs(10),
        )?;
        b.ok("true")?;

        // The reason for all this. The console tells of it, if the machine still can.
        bed.expect(".")?;
        b.ok("nft flush chain ip6 roce input")?;
        send(4)?;
        ensure!(
            b.run_for("sleep 1; ping -c 1 -W 5 192.0.2.1", Duration::from_secs(5)).is_err(),
            "soft-RoCE survives a short datagram now: the filter, patch 0003 and their documents can go"
        );
        Ok(())
    }
}
