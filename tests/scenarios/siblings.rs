// SPDX-License-Identifier: GPL-2.0

//! Several interfaces on one port, in one namespace or several: each has a link-local IPv6 address of its own.

use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::scenario;
use std::collections::BTreeSet;
use std::net::Ipv6Addr;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(15);

/// The link-local address of an interface, when duplicate address detection has passed it.
fn link_local(host: &Host, interface: &str) -> Result<String> {
    let show = format!("ip -6 -o addr show dev {interface} scope link");
    host.wait_until(
        &format!("{show} >&2; {show} | grep -v tentative | grep -q fe80"),
        LIMIT,
    )
    .with_context(|| format!("{interface} of host {}", host.number()))?;
    let text = host.ok(&show)?;
    let address = text.split_whitespace().nth(3).context("no address")?;
    ensure!(text.lines().count() == 1, "{text}");
    Ok(address.trim_end_matches("/64").to_owned())
}

/// How IPv6 makes the interface identifiers of an interface.
fn mode(host: &Host, interface: &str) -> Result<String> {
    let text = host.ok(&format!("ip -d link show {interface}"))?;
    let (_, rest) = text.split_once("addrgenmode ").context("no mode")?;
    Ok(rest
        .split_whitespace()
        .next()
        .unwrap_or_default()
        .to_owned())
}

/// Fails unless IPv6 makes the interface identifiers of an interface like this.
fn is(host: &Host, interface: &str, wanted: &str) -> Result<()> {
    let mode = mode(host, interface)?;
    ensure!(mode == wanted, "{interface}: {mode}, not {wanted}");
    Ok(())
}

/// Each reaches each other one by its link-local address.
fn all_reach_each_other(ends: &[(&Host, &str)]) -> Result<()> {
    let addresses = ends
        .iter()
        .map(|(host, interface)| link_local(host, interface))
        .collect::<Result<Vec<_>>>()?;
    ensure!(
        addresses.iter().collect::<BTreeSet<_>>().len() == ends.len(),
        "{addresses:?}"
    );
    for (from, (host, interface)) in ends.iter().enumerate() {
        for address in addresses.iter().enumerate().filter(|(to, _)| *to != from) {
            host.wait_until(
                &format!("ping -6 -q -c 1 -W 1 {}%{interface}", address.1),
                LIMIT,
            )?;
        }
    }
    Ok(())
}

scenario! {
    /// An interface, its child and another interface of the port, the latter two in namespaces of their own as a pod's are:
    /// each has a link-local address that no other one has, and reaches the others and another host by it. The first has
    /// that of the port's GUID.
    #[on(lockdep, infiniband)]
    fn siblings_have_addresses_of_their_own(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        let outside = a.outside();
        let pods = ["pod1", "pod2"].map(|name| a.netns_add(name));
        let mut ends = vec![(a.clone(), "ib0"), (b.clone(), "ib0")];
        for (pod, link) in pods.iter().zip(["link ib0 type ipoib_rs".to_owned(), a.link("")]) {
            let (_, pid) = pod.as_ref().ok().context("no namespace")?;
            let name = if ends.len() == 2 { "pod1" } else { "pod2" };
            // IPv6 begins anew on it there.
            a.ok(&format!("ip link add name made {link} && ip link set made netns {pid} name eth9"))?;
            let pod = a.inside(name, 3);
            pod.ok("ip link set lo up && ip link set eth9 up")?;
            ends.push((pod, "eth9"));
        }
        let ends = ends.iter().map(|(host, name)| (host, *name)).collect::<Vec<_>>();
        all_reach_each_other(&ends)?;
        is(a, "ib0", "eui64")?;
        let guid = a.ok("tail -c 24 /sys/class/net/ib0/address | tr -d :")?;
        let guid = u64::from_str_radix(guid.trim(), 16)?;
        let own = link_local(a, "ib0")?.parse::<Ipv6Addr>()?;
        // But for the bit that says that it is no standard's.
        ensure!((own.to_bits() as u64 ^ guid) & !(2 << 56) == 0, "{own} of {guid:x}");
        // They stay when the interfaces go down and up, and when the first one goes; its place is free then.
        let kept = link_local(ends[3].0, "eth9")?;
        ends[3].0.ok("ip link set eth9 down && ip link set eth9 up")?;
        ensure!(link_local(ends[3].0, "eth9")? == kept);
        a.ok("ip link del ib0")?;
        outside.run("ip -n pod1 link show eth9")?.refused()?;
        is(ends[3].0, "eth9", "random")?;
        a.ok(&format!("ip link add name ib0 {} && ip link set ib0 up", a.link("")))?;
        is(a, "ib0", "eui64")?;
        all_reach_each_other(&[ends[0], ends[1], ends[3]])?;
        bed.finish()
    }
}

scenario! {
    /// A user says otherwise, for the interface or by the default of the namespace, and what he says stays, whatever the
    /// interface goes through. Without IPv6, nothing is decided until there is.
    #[on(infiniband)]
    fn a_user_says_how_identifiers_are_made(bed) {
        let bed = bed.hosts(1).up()?;
        bed.ib()?;
        let a = &bed.hosts[0];
        a.ok("ip link add link ib0 name ib1 type ipoib_rs")?;
        for mode in ["eui64", "none"] {
            a.ok(&format!("ip link set ib1 addrgenmode {mode}"))?;
            for what in ["up", "type ipoib_rs mode connected", "type ipoib_rs mode datagram", "down", "mtu 1500", "name ib2", "name ib1"] {
                a.ok(&format!("ip link set ib1 {what} 2>/dev/null || ip link set ib2 {what}"))?;
            }
            is(a, "ib1", mode)?;
        }
        a.ok("ip link del ib1 && echo 1 >/proc/sys/net/ipv6/conf/default/addr_gen_mode")?;
        a.ok("ip link add link ib0 name ib1 type ipoib_rs")?;
        is(a, "ib1", "none")?;
        a.ok("ip link del ib1 && echo 0 >/proc/sys/net/ipv6/conf/default/addr_gen_mode")?;
        a.ok("ip link add link ib0 name ib1 mtu 1000 type ipoib_rs && ip link set ib1 mtu 1500")?;
        is(a, "ib1", "random")?;
        if a.is_infiniband() {
            // With a GUID of its own it is told from the others by that.
            let [own, other] = ["$(tail -c 24 /sys/class/net/ib0/address)", "02:00:5e:ff:fe:00:53:01"];
            for (guid, mode) in [(other, "eui64"), (own, "random")] {
                a.ok(&format!("address=$(head -c 36 /sys/class/net/ib1/address) && ip link set ib1 address ${{address}}{guid}"))?;
                is(a, "ib1", mode)?;
            }
            // The port does not have that GUID, so the new interface has the port's.
            a.ok(&format!("address=$(head -c 36 /sys/class/net/ib1/address) && ip link add link ib0 name ib3 address ${{address}}{other} type ipoib_rs"))?;
            is(a, "ib3", "random")?;
            // In another partition it is alone on its link.
            a.ok("ip link add link ib0 name ib2 type ipoib_rs pkey 0x8001")?;
            is(a, "ib2", "eui64")?;
        }
        bed.finish()
    }
}
