// SPDX-License-Identifier: GPL-2.0

//! Interfaces that send nothing by themselves, so that what is counted is what a scenario has sent.

use anyhow::Result;
use lab::bed::{Bed, Host};

/// Has `ib0` of each host send neither for IPv6 nor for ARP, and waits until no frame is under way. Neighbours are forgotten:
/// a program that sends afterwards has to give link-layer addresses itself.
pub(crate) fn hush(bed: &Bed) -> Result<()> {
    for host in &bed.hosts {
        host.ok("sysctl -qw net.ipv6.conf.ib0.disable_ipv6=1 && ip link set ib0 arp off")?;
    }
    bed.accounts()?;
    Ok(())
}

/// Has `ib0` of a host, by whatever driver, send neither for IPv6 nor ARP requests for the neighbours that it knows: it knows
/// them for good.
pub(crate) fn pin(host: &Host) -> Result<()> {
    host.ok("sysctl -qw net.ipv6.conf.ib0.disable_ipv6=1
         known=$(ip neigh show dev ib0 | sed -n 's/ lladdr \\([^ ]*\\).*/ lladdr \\1/p')
         echo \"$known\" | while read -r entry; do
             ip neigh change $entry dev ib0 nud permanent || exit
         done")?;
    Ok(())
}
