// SPDX-License-Identifier: GPL-2.0

//! The Ethernet interface under RoCE, and what the host does with the packets of soft-RoCE there.

use super::{Fix, Out, Severity, by_hand};
use crate::facts::{Facts, Interface, Link, Neighbour};
use crate::filter::{Answer, Culprit, Keeper, Kind, Packet, Rules, Way};
use std::net::{IpAddr, Ipv6Addr};

/// Bytes of an Ethernet frame's payload that are not the IB packet's.
const ROOM: u32 = 80;
/// MTU of Ethernet that is enough for an IB MTU of 4096, and that for one of 2048, which leaves room for IPv6.
const GOOD: u32 = 4200;
const ENOUGH: u32 = 2048 + ROOM;

/// The largest MTU of datagrams that Ethernet leaves.
pub(super) fn datagram_mtu(ethernet: &Link) -> u32 {
    let sizes = [4096, 2048, 1024, 512, 256].into_iter();
    let mut sizes = sizes.skip_while(|size| size + ROOM > ethernet.mtu);
    sizes.next().unwrap_or(256) - 4
}

pub(super) fn check(facts: &Facts, link: &Link, ethernet: &Link, out: &mut Out<'_>) {
    let name = &ethernet.name;
    if !ethernet.up {
        out.add(
            Severity::Broken,
            "ethernet-down",
            format!("{name}, the Ethernet interface under it, is down."),
            format!("{name} does not have the flag UP"),
            format!("ip link set {name} up"),
        );
    }
    if !ethernet.carrier {
        out.add(
            Severity::Broken,
            "no-cable",
            format!("{name}, the Ethernet interface under it, has no carrier: check the cable and its other end."),
            format!("the carrier of {name} is 0"),
            "",
        );
    }
    check_ipv6(facts, ethernet, out);
    check_mtu(facts, link, ethernet, out);
}

fn check_ipv6(facts: &Facts, ethernet: &Link, out: &mut Out<'_>) {
    let name = &ethernet.name;
    let variable = format!("net/ipv6/conf/{name}/disable_ipv6");
    if facts.sysctl(&variable) == Some("1") {
        out.add(
            Severity::Broken,
            "ethernet-ipv6-off",
            format!("IPv6 is disabled on {name}, where RoCE needs it for multicast groups."),
            format!("/proc/sys/{variable} is 1"),
            format!("sysctl -w {variable}=0"),
        );
    }
    if facts.without_ipv6 {
        out.add(
            Severity::Broken,
            "ethernet-ipv6-off",
            "The kernel does without IPv6, which RoCE needs for multicast groups: boot it without ipv6.disable=1.",
            "/sys/module/ipv6/parameters/disable is 1",
            "",
        );
    }
}

/// The command that gives a link an MTU, and those below it which have to have as much. None if one cannot.
fn enlarge(facts: &Facts, link: &Link, mtu: u32) -> Option<Fix> {
    let mut all = vec![link];
    let is_port = |other: &&Link| other.master == Some(link.index);
    all.extend(facts.below(link));
    all.extend(facts.links.iter().filter(is_port));
    let small: Vec<&Link> = all.into_iter().rev().filter(|l| l.mtu < mtu).collect();
    if small.iter().any(|link| (1..mtu).contains(&link.max_mtu)) {
        return None;
    }
    let names = small.iter().map(|link| link.name.as_str());
    let names = link
        .bound_elsewhere
        .then_some("LOWER")
        .into_iter()
        .chain(names);
    let commands = names.map(|name| format!("ip link set {name} mtu {mtu}"));
    let command = commands.collect::<Vec<_>>().join(" && ");
    // The one below is in another network namespace.
    Some(if link.bound_elsewhere {
        by_hand(command)
    } else {
        command.into()
    })
}

fn check_mtu(facts: &Facts, link: &Link, ethernet: &Link, out: &mut Out<'_>) {
    let name = &ethernet.name;
    if link.mtu < 1280 && ethernet.mtu < ENOUGH {
        let fix = [GOOD, ENOUGH]
            .into_iter()
            .find_map(|mtu| enlarge(facts, ethernet, mtu));
        let (severity, text) = if ethernet.mtu < 1280 {
            let text = format!(
                "{name} has no IPv6 with an MTU below 1280, and RoCE needs it for multicast groups."
            );
            (Severity::Broken, text)
        } else {
            let text = format!(
                "The MTU of {name} leaves {} bytes for IP packets, and IPv6 needs 1280.",
                link.mtu
            );
            (Severity::Warning, text)
        };
        out.add(
            severity,
            "ethernet-mtu",
            text,
            format!(
                "the MTU of {name} is {}; an IB MTU of 2048 needs {ENOUGH}{}",
                ethernet.mtu,
                if fix.is_some() {
                    ""
                } else {
                    ", and it or what is below it cannot have that"
                }
            ),
            fix.unwrap_or_else(|| "".into()),
        );
    }
    let narrow = |other: &&Link| other.master == Some(ethernet.index) && other.mtu < ethernet.mtu;
    let mut ports = facts.links.iter().filter(|port| port.up).filter(narrow);
    if let Some(port) = ports.find(|port| datagram_mtu(port) < datagram_mtu(ethernet)) {
        out.add(
            Severity::Warning,
            "ethernet-port-mtu",
            format!(
                "Large frames are lost at {}, which is a part of {name} and has a smaller MTU.",
                port.name
            ),
            format!(
                "the MTU of {name} is {}, that of {} is {}",
                ethernet.mtu, port.name, port.mtu
            ),
            match port.max_mtu {
                max @ 1.. if max < ethernet.mtu => format!("ip link set {name} mtu {}", port.mtu),
                _ => format!("ip link set {} mtu {}", port.name, ethernet.mtu),
            },
        );
    }
}

/// The network stack of the host, which the packets of soft-RoCE pass.
pub(super) fn check_stack(
    facts: &Facts,
    interface: &Interface,
    ethernet: &Link,
    out: &mut Out<'_>,
) {
    let name = &ethernet.name;
    check_master(facts, interface, ethernet, out);
    check_filter(facts, interface, ethernet, out);
    if ethernet.qdisc == "netem" {
        out.add(
            Severity::Warning,
            "netem",
            format!(
                "{name} has the queueing discipline netem, which delays, loses or reorders packets for tests."
            ),
            format!("tc qdisc show dev {name}"),
            format!("tc qdisc del dev {name} root"),
        );
    }
    let is_lost = is_lost(interface);
    if ethernet.isolated && is_lost {
        out.add(
            Severity::Warning,
            "ethernet-isolated",
            format!("{name} does not reach other interfaces on the one below it: its macvlan mode is private or VEPA."),
            format!("ip -d link show {name}; with VEPA, a switch that sends frames back would do"),
            by_hand(format!("ip link set {name} type macvlan mode bridge")),
        );
    }
    if ethernet.filters_vlans && is_lost {
        out.add(
            Severity::Warning,
            "ethernet-vlan-filter",
            format!("{name} filters VLANs and has no default one, so that untagged frames may be dropped there."),
            format!("vlan_filtering is 1 and default_pvid 0; bridge vlan show dev {name} tells its VLANs"),
            by_hand(format!("bridge vlan add dev {name} vid VLAN pvid untagged self")),
        );
    }
}

/// Reports a master, such as a bridge, that takes all frames of the interface away from soft-RoCE.
fn check_master(facts: &Facts, interface: &Interface, ethernet: &Link, out: &mut Out<'_>) {
    let Some(master) = facts.master_of(ethernet) else {
        return;
    };
    let (name, device) = (&ethernet.name, &interface.device);
    let anew = |netdev: &str| {
        by_hand(format!(
            "rdma link del {device} && rdma link add {device} type rxe netdev {netdev}"
        ))
    };
    let (kind, fix) = match master.kind.as_str() {
        "vrf" => ("VRF", by_hand(format!("ip link set {name} nomaster"))),
        "openvswitch" => ("Open vSwitch bridge of", anew("BRIDGE")),
        kind => (kind, anew(&master.name)),
    };
    out.add(
        Severity::Broken,
        "ethernet-enslaved",
        format!(
            "{name} is a part of the {kind} {}, which takes its frames, so that soft-RoCE on {name} receives none.",
            master.name
        ),
        format!("the master of {name} is {}, and {device} is on {name}", master.name),
        fix,
    );
}

/// Packets that a command lets pass: in the words of nft, and in those of iptables.
const ROCE: [&str; 2] = ["udp dport 4791", "-p udp --dport 4791"];
const DISCOVERY: [&str; 2] = [
    "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert }",
    "-p ipv6-icmp",
];

/// The command that lets packets pass, by the program that keeps the rules.
fn let_pass(culprit: &Culprit, packet: &Packet<'_>) -> Fix {
    let Culprit {
        family,
        table,
        base,
        ..
    } = culprit;
    let name = packet.interface;
    let is_roce = packet.kind == Kind::Roce;
    let [nft, iptables] = if is_roce { ROCE } else { DISCOVERY };
    let zone = format!(
        "$(firewall-cmd --get-zone-of-interface={name} || firewall-cmd --get-default-zone)"
    );
    by_hand(match (culprit.keeper, packet.way) {
        (Keeper::Nft, _) => format!("nft insert rule {family} {table} {base} {nft} accept"),
        (Keeper::Iptables, _) => {
            let program = if *family == "ip" {
                "iptables"
            } else {
                "ip6tables"
            };
            let table = if table == "filter" {
                String::new()
            } else {
                format!(" -t {table}")
            };
            format!("{program}{table} -I {base} {iptables} -j ACCEPT")
        }
        (Keeper::Firewalld, Way::In) => {
            let what = if is_roce {
                "port=4791/udp"
            } else {
                "protocol=ipv6-icmp"
            };
            format!("firewall-cmd --zone=\"{zone}\" --add-{what}")
        }
        (Keeper::Ufw, Way::In) if is_roce => "ufw allow 4791/udp".into(),
        (Keeper::Ufw, Way::Out) if is_roce => "ufw allow out 4791/udp".into(),
        // There is no common command.
        (Keeper::Firewalld | Keeper::Ufw, _) => String::new(),
    })
}

/// The interface that packets pass, and what may stand for it.
fn packet<'a>(facts: &'a Facts, link: &'a Link, own: IpAddr) -> Packet<'a> {
    Packet {
        kind: Kind::Roce,
        way: Way::In,
        multicast: false,
        own,
        interface: &link.name,
        master: facts.master_of(link).map(|master| master.name.as_str()),
        bridge: link.kind == "bridge",
    }
}

/// Kinds of packets that have to pass.
const PACKETS: [(Kind, Way, bool); 4] = [
    (Kind::Roce, Way::In, false),
    (Kind::Roce, Way::In, true),
    (Kind::Roce, Way::Out, false),
    (Kind::Roce, Way::Out, true),
];
const NEIGHBOURS: [(Kind, Way, bool); 4] = [
    (Kind::Solicitation, Way::In, true),
    (Kind::Advertisement, Way::In, false),
    (Kind::Solicitation, Way::Out, true),
    (Kind::Advertisement, Way::Out, false),
];

fn is_lost(interface: &Interface) -> bool {
    interface.neighbours.iter().any(Neighbour::is_lost)
}

/// Asks the packet filter about each kind of packet under RoCE.
fn check_filter(facts: &Facts, interface: &Interface, ethernet: &Link, out: &mut Out<'_>) {
    let own = interface.gid.parse();
    let own: Ipv6Addr = own.unwrap_or(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1));
    let packet = packet(facts, ethernet, IpAddr::from(own).to_canonical());
    let is_six = packet.own.is_ipv6();
    let all = PACKETS.iter().chain(NEIGHBOURS.iter().filter(|_| is_six));
    ask_filter(facts, packet, all.copied(), is_lost(interface), out);
}

/// Asks the packet filter about neighbour discovery on an interface, if a peer is not found by that.
pub(super) fn check_discovery(
    facts: &Facts,
    interface: &Interface,
    link: &Link,
    out: &mut Out<'_>,
) {
    let mut lost = interface
        .neighbours
        .iter()
        .filter(|n| n.is_lost() && n.ip.is_ipv6());
    let own = link.addresses.iter().find(|a| a.ip.is_ipv6());
    if let (Some(_), Some(own)) = (lost.next(), own) {
        let packet = packet(facts, link, own.ip);
        ask_filter(facts, packet, NEIGHBOURS.into_iter(), true, out);
    }
}

/// Asks the packet filter about packets. One that may or may not pass is a cause only if a peer does not answer.
fn ask_filter(
    facts: &Facts,
    packet: Packet<'_>,
    kinds: impl Iterator<Item = (Kind, Way, bool)>,
    is_lost: bool,
    out: &mut Out<'_>,
) {
    let filter = &facts.filter;
    let rules = Rules::read(&filter.nft, &filter.iptables, &filter.ip6tables);
    let mut doubt = None;
    for (kind, way, multicast) in kinds {
        let packet = Packet {
            kind,
            way,
            multicast,
            ..packet
        };
        let (culprit, drops, severity) = match rules.judge(&packet) {
            Answer::Dropped(culprit) => (culprit, "drops", Severity::Broken),
            Answer::Unknown(culprit) if is_lost => (culprit, "may drop", Severity::Warning),
            _ => continue,
        };
        let which = match (kind, multicast) {
            (Kind::Roce, false) => "packets to UDP port 4791, which RoCEv2 uses,",
            (Kind::Roce, true) => "multicast packets to UDP port 4791, which RoCEv2 uses,",
            (Kind::Solicitation | Kind::Advertisement, _) => {
                "packets of neighbour discovery, by which IPv6 addresses are found,"
            }
        };
        let does = if way == Way::In { "receives" } else { "sends" };
        let name = packet.interface;
        let what = format!("The packet filter {drops} {which} that the host {does} on {name}.");
        let Culprit {
            family,
            table,
            chain,
            rule,
            ..
        } = &culprit;
        let how = format!("{family} table {table}, chain {chain}: {rule}");
        let found = (severity, what, how, let_pass(&culprit, &packet));
        if severity == Severity::Broken {
            doubt = Some(found);
            break;
        }
        doubt.get_or_insert(found);
    }
    if let Some((severity, what, how, fix)) = doubt {
        out.add(severity, "firewall", what, how, fix);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::judge;
    use super::super::tests::{Case, names, neighbour};
    use super::*;
    use crate::facts::Address;
    use crate::healthy::healthy;

    fn lost(facts: &mut Facts) {
        neighbour(facts, |n| n.state = "failed".into());
    }

    /// Makes the Ethernet interface a part of another one.
    fn enslave(facts: &mut Facts, kind: &str) {
        let mut master = facts.links[0].clone();
        (master.index, master.name, master.kind) = (20, "m0".into(), kind.into());
        facts.links[0].master = Some(20);
        facts.links.push(master);
    }

    /// Makes the Ethernet interface a bridge, with a port.
    fn bridge(facts: &mut Facts, mtu: u32, max_mtu: u32) {
        let mut port = facts.links[0].clone();
        (port.index, port.name, port.mtu, port.max_mtu) = (21, "p0".into(), mtu, max_mtu);
        (port.master, port.up) = (Some(facts.links[0].index), true);
        port.addresses.clear();
        facts.links[0].kind = "bridge".into();
        facts.links.push(port);
    }

    pub(in super::super) const CASES: &[Case] = &[
        ("ethernet-down", |f| f.links[0].up = false),
        ("no-cable", |f| f.links[0].carrier = false),
        ("ethernet-ipv6-off", |f| {
            f.sysctls
                .insert("net/ipv6/conf/eth0/disable_ipv6".into(), "1".into());
        }),
        ("ethernet-ipv6-off", |f| f.without_ipv6 = true),
        ("ethernet-mtu", |f| {
            (f.links[0].mtu, f.links[1].mtu) = (1500, 1020)
        }),
        // A group that could not be joined follows from it.
        ("ethernet-mtu", |f| {
            (f.links[0].mtu, f.links[1].mtu) = (1200, 1020);
            f.links[1].carrier = false;
        }),
        ("ethernet-port-mtu", |f| bridge(f, 1500, 9000)),
        ("ethernet-enslaved", |f| enslave(f, "bridge")),
        ("ethernet-isolated", |f| {
            lost(f);
            f.links[0].isolated = true;
        }),
        ("ethernet-vlan-filter", |f| {
            lost(f);
            f.links[0].filters_vlans = true;
        }),
        ("firewall", |f| {
            f.filter.nft = "udp dport 4791 drop\n".into()
        }),
        ("firewall", |f| {
            f.filter.ip6tables = ":INPUT DROP [7:420]\n".into();
        }),
        ("netem", |f| f.links[0].qdisc = "netem".into()),
    ];

    #[test]
    fn each_cause_in_ethernet() {
        for (cause, change) in CASES {
            names(true, cause, change);
        }
    }

    /// A dot in a name is no separator for sysctl.
    #[test]
    fn a_vlan_has_a_dot() {
        let mut facts = healthy(true);
        facts.links[0].name = "eth0.5".into();
        let variable = "net/ipv6/conf/eth0.5/disable_ipv6";
        facts.sysctls.insert(variable.into(), "1".into());
        assert_eq!(judge(&facts)[0].fix, format!("sysctl -w {variable}=0"));
    }

    #[test]
    fn whatever_takes_the_frames_is_named() {
        for (kind, fix) in [
            (
                "bridge",
                "rdma link del dev0 && rdma link add dev0 type rxe netdev m0",
            ),
            (
                "bond",
                "rdma link del dev0 && rdma link add dev0 type rxe netdev m0",
            ),
            (
                "team",
                "rdma link del dev0 && rdma link add dev0 type rxe netdev m0",
            ),
            (
                "openvswitch",
                "rdma link del dev0 && rdma link add dev0 type rxe netdev BRIDGE",
            ),
            ("vrf", "ip link set eth0 nomaster"),
        ] {
            let mut facts = healthy(true);
            enslave(&mut facts, kind);
            // It hides that nobody answers.
            lost(&mut facts);
            let found = judge(&facts);
            assert_eq!(found.len(), 1, "{found:#?}");
            assert_eq!(
                (found[0].cause, &*found[0].fix, found[0].safe),
                ("ethernet-enslaved", fix, false)
            );
        }
        // Frames of hardware do not come that way.
        let mut facts = healthy(true);
        enslave(&mut facts, "bond");
        facts.ports[0].software = false;
        assert_eq!(judge(&facts), []);
    }

    #[test]
    fn the_mtu_is_one_that_ethernet_can_have() {
        for (max, fix) in [
            (0, "ip link set eth0 mtu 4200"),
            (9000, "ip link set eth0 mtu 4200"),
            (4000, "ip link set eth0 mtu 2128"),
            (1500, ""),
        ] {
            let mut facts = healthy(true);
            (
                facts.links[0].mtu,
                facts.links[1].mtu,
                facts.links[0].max_mtu,
            ) = (1500, 1020, max);
            assert_eq!(judge(&facts)[0].fix, fix);
        }
        // A macvlan can have no more than what it is on.
        let mut facts = healthy(true);
        let mut below = facts.links[0].clone();
        (below.index, below.name, below.mtu) = (20, "e9".into(), 1500);
        facts.links.push(below);
        (facts.links[0].mtu, facts.links[1].mtu, facts.links[0].below) = (1500, 1020, Some(20));
        assert_eq!(
            judge(&facts)[0].fix,
            "ip link set e9 mtu 4200 && ip link set eth0 mtu 4200"
        );
    }

    #[test]
    fn the_mtu_of_a_link_elsewhere_is_for_people() {
        let mut facts = healthy(true);
        (facts.links[0].mtu, facts.links[1].mtu) = (1500, 1020);
        facts.links[0].bound_elsewhere = true;
        let found = judge(&facts);
        let fix = "ip link set LOWER mtu 4200 && ip link set eth0 mtu 4200";
        assert_eq!((&*found[0].fix, found[0].safe), (fix, false));
    }

    #[test]
    fn the_ports_of_a_bridge_take_what_it_sends() {
        for (mtu, max, fix) in [
            (1500, 9000, "ip link set p0 mtu 4400"),
            (1500, 1500, "ip link set eth0 mtu 1500"),
            (4200, 9000, ""),
        ] {
            let mut facts = healthy(true);
            bridge(&mut facts, mtu, max);
            let found = judge(&facts);
            assert_eq!(found.first().map_or("", |f| &f.fix), fix, "{found:#?}");
        }
    }

    #[test]
    fn a_duplicate_matters_if_it_is_the_gid() {
        let mut facts = healthy(true);
        facts.links[0].addresses.push(Address {
            ip: "fd00::1".parse().expect("one"),
            prefix: 64,
            duplicate: true,
        });
        assert_eq!(judge(&facts), []);
    }

    #[test]
    fn a_filter_that_accepts_is_no_cause() {
        let mut facts = healthy(true);
        facts.filter.nft = "udp dport 4791 accept\ntcp dport 22 drop\n".into();
        assert_eq!(judge(&facts), []);
    }

    const BY_ADDRESS: &str = "table inet f {\n chain in {\n type filter hook input priority 0; policy drop;\n ip6 saddr fd00::/64 accept\n }\n}\n";

    /// It may accept by address, unless somebody does not answer.
    #[test]
    fn a_filter_that_may_accept_is_a_cause_in_doubt() {
        let mut facts = healthy(true);
        (facts.filter.nft, facts.interfaces[0].gid) = (BY_ADDRESS.into(), "fd00::1".into());
        facts.ports[0].gids[0].gid = "fd00::1".into();
        facts.links[0].addresses[1].ip = "fd00::1".parse().expect("one");
        assert_eq!(judge(&facts), []);
        lost(&mut facts);
        let found = judge(&facts);
        let causes: Vec<_> = found.iter().map(|f| (f.cause, f.severity)).collect();
        assert_eq!(
            causes,
            [
                ("firewall", Severity::Warning),
                ("no-answer", Severity::Warning)
            ]
        );
    }

    #[test]
    fn whoever_keeps_the_rules_lets_packets_in() {
        let drops = |table: &str, chain: &str| {
            format!(
                "table inet {table} {{\n chain {chain} {{\n type filter hook input priority 0; policy drop;\n }}\n}}\n"
            )
        };
        for (nft, ip6tables, fix) in [
            (
                drops("filter", "input"),
                "",
                "nft insert rule inet filter input udp dport 4791 accept",
            ),
            (
                drops("firewalld", "filter_INPUT"),
                "",
                "firewall-cmd --zone=\"$(firewall-cmd --get-zone-of-interface=eth0 || firewall-cmd --get-default-zone)\" \
                 --add-port=4791/udp",
            ),
            (
                String::new(),
                "*filter\n:INPUT DROP [0:0]\n:ufw6-before-input - [0:0]\n",
                "ufw allow 4791/udp",
            ),
            (
                String::new(),
                "*filter\n:INPUT DROP [0:0]\n",
                "ip6tables -I INPUT -p udp --dport 4791 -j ACCEPT",
            ),
            (
                String::new(),
                "*raw\n:PREROUTING DROP [0:0]\n",
                "ip6tables -t raw -I PREROUTING -p udp --dport 4791 -j ACCEPT",
            ),
        ] {
            let mut facts = healthy(true);
            (facts.filter.nft, facts.filter.ip6tables) = (nft, ip6tables.into());
            let found = judge(&facts);
            assert_eq!((&*found[0].fix, found[0].safe), (fix, false), "{found:#?}");
        }
    }

    const WITHOUT_DISCOVERY: &str = "table inet f {\n chain in {\n type filter hook input priority 0; policy drop;\n \
        udp dport 4791 accept\n }\n}\n";

    /// RoCE's port is not enough: addresses have to be found, too.
    #[test]
    fn neighbour_discovery_has_to_pass() {
        let fix = "nft insert rule inet f in icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept";
        let mut facts = healthy(true);
        facts.filter.nft = WITHOUT_DISCOVERY.into();
        let found = judge(&facts);
        assert_eq!(
            (found[0].cause, &*found[0].fix),
            ("firewall", fix),
            "{found:#?}"
        );
        assert!(found[0].what.contains("on eth0"), "{found:#?}");
        // On InfiniBand, it matters to IPv6 on the interface itself.
        let mut facts = healthy(false);
        facts.filter.nft = WITHOUT_DISCOVERY.into();
        assert_eq!(judge(&facts), []);
        facts.links[1].addresses.push(Address {
            ip: "fd00::1".parse().expect("one"),
            prefix: 64,
            duplicate: false,
        });
        neighbour(&mut facts, |n| {
            (n.state, n.ip) = ("failed".into(), "fd00::2".parse().expect("one"));
        });
        let found = judge(&facts);
        assert_eq!(
            (found.len(), found[0].cause, &*found[0].fix),
            (1, "firewall", fix),
            "{found:#?}"
        );
        assert!(found[0].what.contains("on ib0"), "{found:#?}");
    }

    #[test]
    fn hardware_does_not_pass_the_stack() {
        let mut facts = healthy(true);
        facts.ports[0].software = false;
        facts.filter.nft = "udp dport 4791 drop".into();
        facts.links[0].qdisc = "netem".into();
        assert_eq!(judge(&facts), []);
    }
}
