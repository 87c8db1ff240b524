// SPDX-License-Identifier: GPL-2.0

//! The interface itself: flags, MTU, addresses.

use super::{Out, Severity, by_hand};
use crate::facts::{Address, Facts, Interface, Link};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(super) fn check(facts: &Facts, interface: &Interface, link: &Link, out: &mut Out<'_>) {
    check_flags(facts, link, out);
    check_addresses(facts, interface, link, out);
    check_host(facts, link, out);
    check_flux(facts, interface, link, out);
    super::ethernet::check_discovery(facts, interface, link, out);
    if link.qdisc == "netem" {
        out.add(
            Severity::Warning,
            "netem",
            "The interface has the queueing discipline netem, which delays, loses or reorders packets for tests.",
            format!("tc qdisc show dev {}", link.name),
            format!("tc qdisc del dev {} root", link.name),
        );
    }
}

fn check_flags(facts: &Facts, link: &Link, out: &mut Out<'_>) {
    let name = &link.name;
    if let Some(parent) = facts.parent_of(link).filter(|parent| !parent.up) {
        out.add(
            Severity::Broken,
            "parent-down",
            format!("{}, the parent of the interface, is down.", parent.name),
            format!("{} does not have the flag UP", parent.name),
            format!("ip link set {} up", parent.name),
        );
    }
    if !link.up {
        out.add(
            Severity::Broken,
            "interface-down",
            "The interface is down.",
            "it does not have the flag UP",
            format!("ip link set {name} up"),
        );
    }
    if !link.arp {
        out.add(
            Severity::Broken,
            "arp-off",
            "ARP is switched off, so no peer's address can be found.",
            "the interface has the flag NOARP",
            format!("ip link set {name} arp on"),
        );
    }
    if !link.multicast {
        out.add(
            Severity::Broken,
            "multicast-off",
            "Multicast is switched off, which IPv6 needs to find its neighbours.",
            "the interface does not have the flag MULTICAST",
            format!("ip link set {name} multicast on"),
        );
    }
    if link.mtu < 1280 {
        out.add(
            Severity::Warning,
            "mtu-below-ipv6",
            format!(
                "The MTU is {}, and IPv6, which needs 1280, is off on the interface.",
                link.mtu
            ),
            match link.max_mtu {
                0 => format!("ip -d link show {name} tells the largest that the port allows"),
                max => format!("the port allows {max}"),
            },
            // Where a port of InfiniBand allows less, the subnet manager has to allow more.
            match link.max_mtu {
                1..1280 => String::new(),
                0 => format!("ip link set {name} mtu 2044"),
                max => format!("ip link set {name} mtu {}", max.min(2044)),
            },
        );
    }
}

/// The network of an IPv4 address.
fn network(address: &Address) -> Option<(Ipv4Addr, u8)> {
    let IpAddr::V4(ip) = address.ip else {
        return None;
    };
    let mask = u32::MAX
        .checked_shl(32 - u32::from(address.prefix))
        .unwrap_or(0);
    // An address of a single host is in no network.
    (address.prefix < 32).then_some((Ipv4Addr::from(u32::from(ip) & mask), address.prefix))
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// The link-local address that IPv6 makes from the GUID of the interface's own GID (RFC 4391, section 8).
fn from_guid(interface: &Interface) -> Option<IpAddr> {
    let guid = interface.gid.parse::<Ipv6Addr>().ok()?.to_bits() as u64;
    let local = (0xfe80 << 112) | u128::from(guid | (2 << 56));
    Some(Ipv6Addr::from_bits(local).into())
}

/// Another interface of IPoIB on the same port and in the same partition that has an address.
fn sibling<'a>(facts: &'a Facts, interface: &Interface, ip: IpAddr) -> Option<&'a Link> {
    let place = |i: &Interface| (i.device.clone(), i.port, i.pkey & 0x7fff);
    let others = facts.interfaces.iter().filter(|i| i.name != interface.name);
    let mut links = others
        .filter(|other| place(other) == place(interface))
        .filter_map(|other| facts.link(&other.name));
    links.find(|link| link.addresses.iter().any(|a| a.ip == ip))
}

/// Addresses that duplicate address detection has found elsewhere: with siblings on this host, before others are suspected.
fn check_duplicate(facts: &Facts, interface: &Interface, link: &Link, out: &mut Out<'_>) {
    let name = &link.name;
    let Some(address) = link.addresses.iter().find(|address| address.duplicate) else {
        return;
    };
    let (ip, prefix) = (address.ip, address.prefix);
    let how = "duplicate address detection has set the flag dadfailed";
    let delete = format!("ip addr del {ip}/{prefix} dev {name}");
    let sibling = sibling(facts, interface, ip);
    // Nobody else on the fabric has the port's GUID.
    let is_of_port = from_guid(interface) == Some(ip);
    if is_of_port || (sibling.is_some() && is_link_local(ip)) {
        let other = sibling.map_or(
            "another interface on its port, maybe in another network namespace,".into(),
            |other| format!("{}, on the same port,", other.name),
        );
        let how = if is_of_port {
            format!("{how}, and the address is made from the port's GUID")
        } else {
            how.to_owned()
        };
        out.add(
            Severity::Broken,
            "duplicate-address",
            format!("IPv6 has no link-local address on {name}: {other} has {ip}, too."),
            how,
            format!("sysctl -w net/ipv6/conf/{name}/addr_gen_mode=3 && {delete}"),
        );
        return;
    }
    let who = sibling.map_or("Another host".into(), |other| {
        format!(
            "{}, another interface of this host in the partition,",
            other.name
        )
    });
    out.add(
        Severity::Broken,
        "duplicate-address",
        format!("{who} has the address {ip}."),
        how,
        by_hand(delete),
    );
}

fn check_addresses(facts: &Facts, interface: &Interface, link: &Link, out: &mut Out<'_>) {
    let name = &link.name;
    check_duplicate(facts, interface, link, out);
    let mut others = link.addresses.iter().filter(|a| !is_link_local(a.ip));
    // A parent may have them on its children only.
    let is_parent = facts.links.iter().any(|l| l.below == Some(link.index));
    if others.next().is_none() && link.master.is_none() && !is_parent {
        out.add(
            Severity::Warning,
            "no-address",
            "The interface has no IP address other than a link-local one.",
            format!("ip addr show dev {name}"),
            by_hand(format!("ip addr add ADDRESS/PREFIX dev {name}")),
        );
    }
    // Of two interfaces of IPoIB, the first one has the finding.
    let before = facts.interfaces.iter().take_while(|i| i.name != *name);
    let before: Vec<&str> = before.map(|i| i.name.as_str()).collect();
    let others = facts.links.iter().filter(|l| l.up && l.index != link.index);
    for other in others.filter(|other| !before.contains(&other.name.as_str())) {
        check_shared(link, other, out);
    }
}

/// An IP network that another interface is in, too.
fn check_shared(link: &Link, other: &Link, out: &mut Out<'_>) {
    let pairs = link
        .addresses
        .iter()
        .flat_map(|a| other.addresses.iter().map(move |b| (a, b)));
    let mut pairs = pairs.filter_map(|(a, b)| Some((a, b, network(a)?)));
    let Some((own, others, (net, prefix))) = pairs.find(|(_, b, net)| network(b) == Some(*net))
    else {
        return;
    };
    out.add(
        Severity::Warning,
        "shared-network",
        format!(
            "{} and {} are in the same IP network, and packets for it leave by one of them only.",
            link.name, other.name
        ),
        format!(
            "{} and {} are addresses in {net}/{prefix}",
            own.ip, others.ip
        ),
        // Either address may be the wrong one.
        by_hand(format!(
            "ip addr del {}/{prefix} dev {} # or: ip addr del {}/{prefix} dev {}",
            own.ip, link.name, others.ip, other.name
        )),
    );
}

/// Settings of the host that hide it from its peers.
fn check_host(facts: &Facts, link: &Link, out: &mut Out<'_>) {
    let variable = arp_ignore(&link.name);
    if facts.sysctl(&variable) == Some("8") {
        out.add(
            Severity::Broken,
            "arp-ignored",
            "The host answers no ARP requests on the interface, so no peer can find it.",
            format!("/proc/sys/{variable} is 8"),
            format!("sysctl -w {variable}=0"),
        );
    }
    let variable = format!("net/ipv6/conf/{}/disable_ipv6", link.name);
    if facts.sysctl(&variable) == Some("1") {
        out.add(
            Severity::Hint,
            "ipv6-off",
            "IPv6 is disabled on the interface.",
            format!("/proc/sys/{variable} is 1"),
            format!("sysctl -w net/ipv6/conf/{}/disable_ipv6=0", link.name),
        );
    }
    if facts.sysctl("net/ipv4/icmp_echo_ignore_all") == Some("1") {
        out.add(
            Severity::Hint,
            "ping-ignored",
            "The host answers no pings.",
            "/proc/sys/net/ipv4/icmp_echo_ignore_all is 1",
            "sysctl -w net.ipv4.icmp_echo_ignore_all=0",
        );
    }
}

/// A variable of the host's about ARP requests on an interface, or on `all`.
fn arp_ignore(name: &str) -> String {
    format!("net/ipv4/conf/{name}/arp_ignore")
}

fn arp_filter(name: &str) -> String {
    format!("net/ipv4/conf/{name}/arp_filter")
}

/// Interfaces in one partition that answer ARP requests for each other's addresses, and are in different modes. Of two,
/// the first one has the finding.
fn check_flux(facts: &Facts, interface: &Interface, link: &Link, out: &mut Out<'_>) {
    let is_zero = |name: &str| {
        let is_zero = |variable: String| facts.sysctl(&variable) == Some("0");
        is_zero(arp_ignore(name)) && is_zero(arp_filter(name))
    };
    // A part of a bond or of a VRF answers as that does.
    let answers = |link: &Link| link.up && link.arp && link.master.is_none() && is_zero(&link.name);
    let has_ipv4 = |link: &Link| link.up && link.addresses.iter().any(|a| a.ip.is_ipv4());
    let place = |i: &Interface| (i.device.clone(), i.port, i.pkey & 0x7fff);
    let behind = facts.interfaces.iter();
    let mut behind = behind.skip_while(|i| i.name != interface.name).skip(1);
    let other = behind.find_map(|other| {
        let is_near = place(other) == place(interface) && other.mode != interface.mode;
        let other = facts.link(&other.name).filter(|_| is_near)?;
        // Either of them answers for the other.
        let mixes = |one: &Link, other| answers(one) && has_ipv4(other);
        (mixes(link, other) || mixes(other, link)).then_some(other)
    });
    let Some(other) = other.filter(|_| is_zero("all") && !interface.device.is_empty()) else {
        return;
    };
    let [own, others] = [link, other].map(|link| arp_ignore(&link.name));
    out.add(
        Severity::Hint,
        "arp-flux",
        format!(
            "Peers may learn the wrong link-layer address: {} answers ARP requests for the addresses of {}, or the \
             other way round, and they are in different modes.",
            link.name, other.name
        ),
        format!(
            "both are in one partition of port {} of {}, and arp_ignore is 0",
            interface.port, interface.device
        ),
        format!("sysctl -w {own}=1 {others}=1"),
    );
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::judge;
    use super::super::tests::{Case, child, names};
    use crate::facts::Facts;
    use crate::healthy::healthy;

    pub(in super::super) const CASES: &[Case] = &[
        ("interface-down", |f| f.links[1].up = false),
        ("parent-down", |f| {
            child(f);
            let links = f.links.iter_mut();
            let family = links.filter(|link| link.name.starts_with("ib"));
            family.for_each(|link| link.up = false);
        }),
        ("arp-off", |f| f.links[1].arp = false),
        ("multicast-off", |f| f.links[1].multicast = false),
        ("mtu-below-ipv6", |f| f.links[1].mtu = 1000),
        ("mtu-below-ipv6", |f| {
            (f.links[1].mtu, f.links[1].max_mtu) = (1000, 1020);
        }),
        ("duplicate-address", |f| {
            let mut address = f.links[0].addresses[0].clone();
            address.ip = "fd00::1".parse().expect("one");
            address.duplicate = true;
            f.links[1].addresses.push(address);
        }),
        ("no-address", |f| f.links[1].addresses.clear()),
        ("no-address", |f| {
            f.links[1].addresses.truncate(1);
            f.links[1].addresses[0].ip = "fe80::1".parse().expect("one");
        }),
        ("shared-network", |f| {
            let mut other = f.links[0].clone();
            (other.index, other.name, other.up) = (12, "eth1".into(), true);
            other.addresses[0].ip = "10.1.0.77".parse().expect("one");
            f.links.push(other);
        }),
        ("netem", |f| f.links[1].qdisc = "netem".into()),
        ("arp-ignored", |f| {
            f.sysctls
                .insert("net/ipv4/conf/ib0/arp_ignore".into(), "8".into());
        }),
        ("arp-flux", second),
        ("ipv6-off", |f| {
            f.sysctls
                .insert("net/ipv6/conf/ib0/disable_ipv6".into(), "1".into());
        }),
        ("ping-ignored", |f| {
            f.sysctls
                .insert("net/ipv4/icmp_echo_ignore_all".into(), "1".into());
        }),
    ];

    #[test]
    fn each_flag_and_address() {
        for (cause, change) in CASES {
            for roce in [false, true] {
                names(roce, cause, change);
            }
        }
    }

    /// A second interface on the port of the first, which is in datagram mode.
    fn second(facts: &mut Facts) {
        let mut link = facts.links[1].clone();
        (link.index, link.name) = (13, "ib1".into());
        (link.up, link.arp) = (true, true);
        link.addresses = healthy(false).links[1].addresses.clone();
        link.addresses.truncate(1);
        link.addresses[0].ip = "10.2.0.1".parse().expect("one");
        facts.links.push(link);
        let mut interface = facts.interfaces[0].clone();
        (interface.name, interface.mode) = ("ib1".into(), "datagram".into());
        facts.interfaces.push(interface);
        facts.interfaces[0].mode = "connected".into();
        for variable in [super::arp_ignore("ib1"), super::arp_filter("ib1")] {
            facts.sysctls.insert(variable, "0".into());
        }
    }

    #[test]
    fn answers_for_others_matter_in_one_partition_and_different_modes() {
        let harmless: [fn(&mut Facts); 8] = [
            |f| f.interfaces[1].mode = "connected".into(),
            |f| f.interfaces[1].pkey = 0x8001,
            |f| f.interfaces[1].port = 2,
            |f| f.links[2].up = false,
            |f| drop(f.sysctls.insert(super::arp_ignore("all"), "1".into())),
            |f| drop(f.sysctls.insert(super::arp_filter("all"), "1".into())),
            |f| f.links.iter_mut().for_each(|link| link.master = Some(77)),
            |f| {
                for name in ["ib0", "ib1"] {
                    f.sysctls.insert(super::arp_ignore(name), "1".into());
                }
            },
        ];
        // One that answers for the other is enough.
        let either: [fn(&mut Facts); 3] = [
            |_| (),
            |f| drop(f.sysctls.insert(super::arp_ignore("ib0"), "1".into())),
            |f| drop(f.sysctls.insert(super::arp_ignore("ib1"), "1".into())),
        ];
        for roce in [false, true] {
            for change in either {
                names(roce, "arp-flux", |f| {
                    second(f);
                    change(f);
                });
            }
            for (n, change) in harmless.iter().enumerate() {
                let mut facts = healthy(roce);
                second(&mut facts);
                change(&mut facts);
                let found = judge(&facts);
                assert!(
                    found.iter().all(|f| f.cause != "arp-flux"),
                    "{n}: {found:#?}"
                );
            }
        }
    }

    #[test]
    fn the_mtu_is_one_that_the_port_allows() {
        for (max, fix) in [
            (0, "ip link set ib0 mtu 2044"),
            (1500, "ip link set ib0 mtu 1500"),
            (1020, ""),
        ] {
            let mut facts = healthy(false);
            (facts.links[1].mtu, facts.links[1].max_mtu) = (1000, max);
            let found = judge(&facts);
            assert_eq!(found[0].fix, fix, "{found:#?}");
        }
    }

    /// The address of a sibling is not that of another host, and what would end it is no command for anybody.
    #[test]
    fn siblings_have_duplicates_of_their_own() {
        let duplicate = |facts: &mut Facts, index: usize, ip: &str, duplicate| {
            let mut address = facts.links[0].addresses[0].clone();
            (address.ip, address.prefix) = (ip.parse().expect("one"), 64);
            address.duplicate = duplicate;
            facts.links[index].addresses.push(address);
        };
        // The GUID is 1, and that of an address has the bit that says so.
        let own = "fe80::200:0:0:1";
        for (ip, first, what, fix) in [
            (
                own,
                true,
                "ib1, on the same port, has",
                "sysctl -w net/ipv6/conf/ib0/addr_gen_mode=3 && ip addr del fe80::200:0:0:1/64 dev ib0",
            ),
            (
                own,
                false,
                "maybe in another network namespace",
                "sysctl -w net/ipv6/conf/ib0/addr_gen_mode=3 && ip addr del fe80::200:0:0:1/64 dev ib0",
            ),
            (
                "fe80::77",
                true,
                "ib1, on the same port, has",
                "sysctl -w net/ipv6/conf/ib0/addr_gen_mode=3 && ip addr del fe80::77/64 dev ib0",
            ),
            (
                "fe80::77",
                false,
                "Another host has the address",
                "ip addr del fe80::77/64 dev ib0",
            ),
            (
                "fd00::1",
                true,
                "ib1, another interface of this host",
                "ip addr del fd00::1/64 dev ib0",
            ),
            (
                "fd00::1",
                false,
                "Another host has the address",
                "ip addr del fd00::1/64 dev ib0",
            ),
        ] {
            let mut facts = healthy(false);
            second(&mut facts);
            facts.interfaces[0].mode = facts.interfaces[1].mode.clone();
            facts.interfaces[0].tables.clear();
            duplicate(&mut facts, 1, ip, true);
            if first {
                duplicate(&mut facts, 2, ip, false);
            }
            let found = judge(&facts);
            assert_eq!(found.len(), 1, "{found:#?}");
            assert!(found[0].what.contains(what), "{ip}: {found:#?}");
            assert_eq!(
                (&*found[0].fix, found[0].safe),
                (fix, fix.starts_with("sysctl"))
            );
        }
    }

    #[test]
    fn a_shared_network_is_named_once() {
        let mut facts = healthy(false);
        second(&mut facts);
        facts.interfaces[1].mode = facts.interfaces[0].mode.clone();
        facts.links[2].addresses[0].ip = "10.1.0.77".parse().expect("one");
        let found = judge(&facts);
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!(
            found[0].how,
            "10.1.0.1 and 10.1.0.77 are addresses in 10.1.0.0/24"
        );
        assert_eq!(
            found[0].fix,
            "ip addr del 10.1.0.1/24 dev ib0 # or: ip addr del 10.1.0.77/24 dev ib1"
        );
        assert!(!found[0].safe);
    }

    #[test]
    fn a_part_of_a_bond_needs_no_address() {
        let mut facts = healthy(false);
        facts.links[1].addresses.clear();
        facts.links[1].master = Some(77);
        assert_eq!(judge(&facts), []);
    }

    #[test]
    fn a_parent_needs_no_address() {
        for roce in [false, true] {
            let mut facts = healthy(roce);
            child(&mut facts);
            assert_eq!(judge(&facts), []);
        }
    }
}
