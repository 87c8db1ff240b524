// SPDX-License-Identifier: GPL-2.0

//! The packet filter of installing.rst, which keeps from unpatched soft-RoCE what crashes it.

use crate::hostile::STRAY;
use anyhow::{Context, Result, ensure};
use lab::bed::Builder;
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

/// A host with unpatched soft-RoCE lives as long as it has the filter, and crashes without it, when it gets datagrams of a kind
/// to one of its addresses; what is harmless passes.
fn only_the_filter_protects(bed: Builder, kind: &str, address: &str) -> Result<()> {
    let root = Root::new(&["nftables", "python3-minimal"])?;
    let rules = rules()?;
    let bed = bed.debian(&[&root, &root]).up()?;
    let (a, b) = bed.pair()?;
    for host in [a, b] {
        host.ethernet_up(bed.builder().link_mtu())?;
        host.ok(&format!(
            "ip addr add fd00:2::{}/64 dev eth0 nodad",
            host.number()
        ))?;
        host.ok("rdma link add rxe0 type rxe netdev eth0")?;
    }
    b.ok("ip addr add fd00:9::1/128 dev lo")?;
    a.ok("ip route add fd00:9::1 via fd00:2::2 dev eth0")?;
    let send = |kind: &str, address: &str| a.python(STRAY, &[kind, address])?.ok();
    b.ok(&rules)?;
    b.ok("nft add rule inet roce input udp dport 4791 counter")?;
    send(kind, address)?;
    send("long", "fd00:2::2")?;
    send("long", &b.eth4())?;
    b.wait_until(
        "nft list chain inet roce input | grep -q 'counter packets 2 '",
        Duration::from_secs(10),
    )?;
    b.ok("true")?;

    // The reason for all this. The console tells of it, if the machine still can: nothing else is judged then.
    b.ok("nft flush chain inet roce input")?;
    send(kind, address)?;
    ensure!(
        b.run_for("sleep 1; ping -c 1 -W 5 192.0.2.1", Duration::from_secs(5))
            .is_err(),
        "soft-RoCE survives {kind} now: the filter, patch 0003 and their documents can go"
    );
    Ok(())
}

scenario! {
    /// Short datagrams over IPv6.
    #[on(stock)]
    fn short_datagrams_stop_at_the_filter(bed) {
        only_the_filter_protects(bed, "short", "fd00:2::2")
    }
}

scenario! {
    /// A short datagram over IPv4, with options.
    #[on(stock)]
    fn options_stop_at_the_filter(bed) {
        only_the_filter_protects(bed, "options", "192.0.2.2")
    }
}

scenario! {
    /// A datagram of any length to an address of the host's that its RDMA device has no GID for.
    #[on(stock)]
    fn addresses_without_a_gid_stop_at_the_filter(bed) {
        only_the_filter_protects(bed, "long", "fd00:9::1")
    }
}
