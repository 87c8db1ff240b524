// SPDX-License-Identifier: GPL-2.0

//! The port of an interface: Ethernet and GIDs under RoCE, the subnet manager of InfiniBand, partitions.

use super::{Out, Severity, by_hand, ethernet};
use crate::facts::{Facts, Interface, Link, Port};
use std::net::Ipv6Addr;

pub(super) fn check(facts: &Facts, interface: &Interface, link: &Link, out: &mut Out<'_>) {
    let Some(port) = facts.port_of(interface) else {
        check_elsewhere(interface, link, out);
        return;
    };
    if port.is_roce() {
        let ethernet = facts.ethernet_of(link);
        if let Some(ethernet) = ethernet {
            ethernet::check(facts, link, ethernet, out);
            // Hardware passes its frames by the host's network stack.
            if port.software {
                ethernet::check_stack(facts, interface, ethernet, out);
            }
        }
        check_gids(interface, port, ethernet, out);
        if let Some(ethernet) = ethernet {
            check_gid_addresses(facts, port, ethernet, out);
        }
    } else {
        check_infiniband(interface, port, out);
    }
    check_pkey(interface, port, out);
    check_carrier(interface, link, port, out);
}

/// A container often has an interface, but not the RDMA device that it is on.
fn check_elsewhere(interface: &Interface, link: &Link, out: &mut Out<'_>) {
    if link.up && !link.carrier {
        out.add(
            Severity::Broken,
            "port-elsewhere",
            "The interface has no carrier, and its port cannot be seen from this network namespace: run ipoibctl where its RDMA device is.",
            format!("there is no RDMA device {} here", interface.device),
            "",
        );
    }
}

fn check_gids(interface: &Interface, port: &Port, ethernet: Option<&Link>, out: &mut Out<'_>) {
    if !port.gids.iter().any(|gid| gid.kind == "RoCE v2") {
        out.add(
            Severity::Broken,
            "no-roce-gid",
            format!(
                "{} has no RoCEv2 GID for an interface to send from.",
                port.device
            ),
            "no entry of the port's GID table is of the type \"RoCE v2\"",
            ethernet.map_or(String::new(), |ethernet| {
                format!("sysctl -w net/ipv6/conf/{}/addr_gen_mode=0", ethernet.name)
            }),
        );
    }
    if !interface.gid.is_empty() && !port.gids.iter().any(|g| g.gid == interface.gid) {
        out.add(
            Severity::Warning,
            "gid-changed",
            "The GID in the interface's address is no longer one of the port's, and peers still send to it.",
            format!(
                "{} is not in the GID table of {}",
                interface.gid, port.device
            ),
            format!("ip link set {0} down && ip link set {0} up", interface.name),
        );
    }
}

/// A GID is found by the host's network stack, which answers for its own addresses only. RDMA core has one that it makes
/// from the Ethernet address in the table, whatever the addresses are.
fn check_gid_addresses(facts: &Facts, port: &Port, ethernet: &Link, out: &mut Out<'_>) {
    let name = &ethernet.name;
    // A bond has the addresses of its members.
    let candidates: Vec<_> = port
        .gids
        .iter()
        .filter(|gid| gid.kind == "RoCE v2" && (ethernet.master.is_some() || gid.netdev == *name))
        .filter_map(|gid| Some((gid.gid.parse::<Ipv6Addr>().ok()?, facts.link(&gid.netdev)?)))
        .filter(|(gid, _)| gid.to_ipv4_mapped().is_none())
        .collect();
    // Whether the link has the address, and not as a duplicate.
    let assigned = |(gid, link): &(Ipv6Addr, &Link)| {
        let mut addresses = link.addresses.iter();
        let address = addresses.find(|address| address.ip == *gid)?;
        Some(!address.duplicate)
    };
    let Some((first, link)) = candidates.first() else {
        return;
    };
    let is_duplicate = |candidate: &&(Ipv6Addr, &Link)| assigned(candidate) == Some(false);
    if candidates
        .iter()
        .any(|candidate| assigned(candidate) == Some(true))
    {
        return;
    }
    if let Some((gid, link)) = candidates.iter().find(is_duplicate) {
        out.add(
            Severity::Broken,
            "ethernet-duplicate-address",
            format!(
                "Another host on the network of {} has the address {gid}, which is the port's GID.",
                link.name
            ),
            format!(
                "duplicate address detection on {} has set the flag dadfailed",
                link.name
            ),
            // As a rule, a virtual machine is a copy of another, MAC address included.
            by_hand(format!("ip link set {} address MAC-ADDRESS", link.name)),
        );
    } else {
        out.add(
            Severity::Broken,
            "no-gid-address",
            format!(
                "{} has none of the port's GIDs as an IPv6 address, so no peer would find it, and there is no carrier.",
                link.name
            ),
            format!("{first} is in the GID table of {}, but no address of {}", port.device, link.name),
            format!("ip addr add {first}/64 dev {}", link.name),
        );
    }
}

fn check_infiniband(interface: &Interface, port: &Port, out: &mut Out<'_>) {
    let (device, number) = (&port.device, port.number);
    if port.physical == "Disabled" {
        out.add(
            Severity::Broken,
            "port-disabled",
            format!("Port {number} of {device} is disabled: somebody switched it off."),
            "its physical state is Disabled",
            by_hand(format!("mlxlink -d {device} -p {number} -a UP")),
        );
    } else if port.physical != "LinkUp" {
        out.add(
            Severity::Broken,
            "port-down",
            format!("Port {number} of {device} has no link: check the cable and its other end."),
            format!(
                "its state is {}, its physical state {}",
                port.state, port.physical
            ),
            "",
        );
    } else if port.state != "ACTIVE" && port.sm_lid == 0 {
        out.add(
            Severity::Broken,
            "no-subnet-manager",
            format!("No subnet manager has configured port {number} of {device}."),
            format!(
                "its state is {}, and it knows no subnet manager's LID",
                port.state
            ),
            by_hand("systemctl start opensm"),
        );
    } else if port.state != "ACTIVE" {
        out.add(
            Severity::Broken,
            "port-not-active",
            format!("The subnet manager does not bring port {number} of {device} to Active."),
            format!(
                "its state is {}, and its subnet manager has LID {}",
                port.state, port.sm_lid
            ),
            by_hand(format!("smpquery -C {device} -P {number} -D portinfo 0")),
        );
    }
    if !interface.gid.is_empty() && !port.gids.iter().any(|g| g.gid == interface.gid) {
        out.add(
            Severity::Warning,
            "gid-changed",
            "The GID in the interface's address is not one of the port's.",
            format!("{} is not in the GID table of {device}", interface.gid),
            format!("ip link set {0} down && ip link set {0} up", interface.name),
        );
    }
}

fn check_pkey(interface: &Interface, port: &Port, out: &mut Out<'_>) {
    if interface.pkey == 0 || port.pkeys.is_empty() {
        return;
    }
    let same = |pkey: &&u16| *pkey & 0x7fff == interface.pkey & 0x7fff;
    let members: Vec<&u16> = port.pkeys.iter().filter(same).collect();
    let has: Vec<String> = port.pkeys.iter().map(|p| format!("{p:#06x}")).collect();
    let has = format!("its P_Key table has {}", has.join(", "));
    let pkey = interface.pkey;
    if members.is_empty() {
        out.add(
            Severity::Broken,
            "no-partition",
            format!("The port is not a member of the partition {pkey:#06x}."),
            has,
            "",
        );
    } else if members.iter().all(|pkey| **pkey & 0x8000 == 0) {
        out.add(
            Severity::Broken,
            "limited-member",
            format!("The port is a limited member of the partition {pkey:#06x}, and IPoIB needs a full one."),
            has,
            "",
        );
    }
}

/// No carrier: the interface has one while it is in the broadcast group.
fn check_carrier(interface: &Interface, link: &Link, port: &Port, out: &mut Out<'_>) {
    if link.carrier {
        return;
    }
    let state = interface.broadcast().unwrap_or("unknown");
    // On InfiniBand, the subnet manager's configuration has to have the group.
    let fix = if port.is_roce() {
        format!("ip link set {0} down && ip link set {0} up", link.name)
    } else {
        String::new()
    };
    out.add(
        Severity::Broken,
        "no-broadcast-group",
        "The broadcast group could not be joined, so no peer can be found.",
        format!(
            "the port is {}, there is no carrier, and the state of the group is {state}",
            port.state
        ),
        fix,
    );
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::judge;
    use super::super::tests::{Case, child, names};
    use crate::facts::Facts;
    use crate::healthy::healthy;

    /// A port that is not Active leaves no carrier.
    fn without_carrier(facts: &mut Facts, physical: &str, state: &str) {
        facts.links[1].carrier = false;
        facts.ports[0].physical = physical.into();
        facts.ports[0].state = state.into();
    }

    pub(in super::super) const ROCE: &[Case] = &[
        ("no-roce-gid", |f| {
            f.ports[0].gids[0].kind = "IB/RoCE v1".into()
        }),
        ("no-gid-address", |f| {
            f.links[0].addresses.retain(|address| address.ip.is_ipv4());
        }),
        ("ethernet-duplicate-address", |f| {
            let mut addresses = f.links[0].addresses.iter_mut();
            if let Some(address) = addresses.find(|address| address.ip.is_ipv6()) {
                address.duplicate = true;
            }
        }),
        ("gid-changed", |f| f.interfaces[0].gid = "fe80::9".into()),
        ("no-broadcast-group", |f| f.links[1].carrier = false),
    ];

    pub(in super::super) const INFINIBAND: &[Case] = &[
        ("port-down", |f| without_carrier(f, "Polling", "DOWN")),
        ("port-disabled", |f| without_carrier(f, "Disabled", "DOWN")),
        ("no-subnet-manager", |f| {
            without_carrier(f, "LinkUp", "INIT");
            f.ports[0].sm_lid = 0;
        }),
        ("port-not-active", |f| without_carrier(f, "LinkUp", "ARMED")),
        ("no-partition", |f| {
            f.links[1].carrier = false;
            f.ports[0].pkeys = vec![0x8001];
        }),
        ("limited-member", |f| {
            f.links[1].carrier = false;
            f.ports[0].pkeys = vec![0x7fff];
        }),
        ("gid-changed", |f| f.ports[0].gids[0].gid = "fe80::9".into()),
        ("no-broadcast-group", |f| f.links[1].carrier = false),
    ];

    #[test]
    fn each_cause_in_a_port() {
        for (roce, cases) in [(true, ROCE), (false, INFINIBAND)] {
            for (cause, change) in cases {
                names(roce, cause, change);
            }
        }
    }

    /// Where the RDMA device is in another network namespace, an interface without a carrier is not well, and one with a
    /// carrier is.
    #[test]
    fn a_port_that_is_elsewhere() {
        for carrier in [false, true] {
            let mut facts = healthy(false);
            facts.ports.clear();
            facts.links[1].carrier = carrier;
            let found = judge(&facts);
            assert_eq!(
                found.iter().any(|f| f.cause == "port-elsewhere"),
                !carrier,
                "{found:?}"
            );
        }
    }

    /// A parent with a fault is not taken for an Ethernet link with one.
    #[test]
    fn a_childs_ethernet_is_its_parents() {
        let mut facts = healthy(true);
        child(&mut facts);
        facts.links[2].up = false;
        facts.links[2].qdisc = "netem".into();
        let causes: Vec<_> = judge(&facts).iter().map(|f| f.cause).collect();
        assert_eq!(causes, ["parent-down", "interface-down", "netem"]);

        let mut facts = healthy(true);
        child(&mut facts);
        facts.links[0].up = false;
        let causes: Vec<_> = judge(&facts).iter().map(|f| f.cause).collect();
        assert_eq!(causes, ["ethernet-down", "ethernet-down"]);
    }

    /// A link of a container that has the name of the host's is not below an interface of the host's device.
    #[test]
    fn a_link_elsewhere_is_nobodys_business() {
        let mut facts = healthy(true);
        facts.links[1].below = None;
        facts.links[0].up = false;
        facts.links[0].qdisc = "netem".into();
        facts
            .sysctls
            .insert("net/ipv6/conf/eth0/disable_ipv6".into(), "1".into());
        assert_eq!(judge(&facts), []);
        facts.ports[0].gids[0].kind = "IB/RoCE v1".into();
        let found = judge(&facts);
        assert_eq!((found[0].cause, &*found[0].fix), ("no-roce-gid", ""));
    }
}
