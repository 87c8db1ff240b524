// SPDX-License-Identifier: GPL-2.0

//! Topologies as users type them: the texts, and which of them can be.

mod plans;

use ib_fabric::text::{flag, number};
use ib_fabric::topology::*;
use ib_fabric::{Guid, Limit, LinkLayer, Mtu};
use plans::{cable, end, name, node, shown, shown_cable};

#[test]
fn flags() {
    for (text, value) in [
        ("0", Some(false)),
        ("n", Some(false)),
        ("off", Some(false)),
        ("1", Some(true)),
        ("y", Some(true)),
        (" on\n", Some(true)),
        ("", None),
        ("2", None),
        ("01", None),
        ("yes", None),
    ] {
        assert_eq!(flag(text), value, "{text:?}");
    }
}

#[test]
fn numbers() {
    for (text, value) in [
        ("0", Some(0)),
        (" 65535\t", Some(65535)),
        ("007", Some(7)),
        ("65536", None),
        ("", None),
        ("+1", None),
        ("-1", None),
        ("0x1", None),
        ("1 2", None),
    ] {
        assert_eq!(number(text, 0..=65535), value, "{text:?}");
    }
}

#[test]
fn guids() {
    for (text, value) in [
        ("0x1", Some(1)),
        (" 0x0a1b0000000001Ff\n", Some(0x0a1b_0000_0000_01ff)),
        ("0xffffffffffffffff", Some(u64::MAX)),
        ("0x00001", Some(1)),
        ("0x10000000000000000", None),
        ("0x0", None),
        ("0x", None),
        ("0x+1", None),
        ("1", None),
        ("", None),
        ("0x 1", None),
    ] {
        assert_eq!(guid(text), value.map(Guid::new), "{text:?}");
    }
}

#[test]
fn mtus() {
    for (text, value) in [
        ("256", Some(Mtu::B256)),
        ("512", Some(Mtu::B512)),
        ("1024", Some(Mtu::B1024)),
        (" 2048 ", Some(Mtu::B2048)),
        ("4096", Some(Mtu::B4096)),
        ("0", None),
        ("1", None),
        ("1500", None),
        ("8192", None),
    ] {
        assert_eq!(mtu(text), value, "{text:?}");
    }
}

#[test]
fn names() {
    let longest = "x".repeat(MAX_NAME);
    for text in ["h1", "1", "Spine-3.left_", &longest] {
        assert_eq!(name(text).to_string(), text);
    }
    let longer = "x".repeat(MAX_NAME + 1);
    for text in [
        "", ".", "-h", "_h", "h 1", "h/1", "h\n", "h\0", "\u{e9}", "h\u{e9}", &longer,
    ] {
        assert_eq!(Name::new(text), None, "{text:?}");
    }
    assert_ne!(name("h"), name("h1"));
}

#[test]
fn ends_of_a_cable() {
    for (text, printed) in [
        ("h1 h2", "h1/1 h2/1"),
        ("h1/1 s1/3", "h1/1 s1/3"),
        ("  h1\t s1/64\n", "h1/1 s1/64"),
        ("h1/255 h1/2", "h1/255 h1/2"),
        ("h1 dev:eth0", "h1/1 dev:eth0"),
        ("s1/3 dev:a-b_c@d.15byte", "s1/3 dev:a-b_c@d.15byte"),
    ] {
        assert_eq!(Ends::parse(text).unwrap().to_string(), printed);
    }
    for text in [
        "",
        "h1",
        "h1 ",
        "h1 h2 h3",
        "h1/ h2",
        "h1/0 h2",
        "h1/256 h2",
        "h1/1/1 h2",
        "/1 h2",
        "h1/x h2",
        "h1/+1 h2",
        "h1,h2",
        "dev:eth0 h1",
        "dev:eth0 dev:eth1",
        "h1 dev:",
        "h1 dev:.",
        "h1 dev:..",
        "h1 dev:a/b",
        "h1 dev:a:b",
        "h1 dev:sixteen-letters_",
        "h1 DEV:eth0",
    ] {
        assert_eq!(Ends::parse(text), None, "{text:?}");
    }
}

#[test]
fn settings_of_nodes() {
    use NodeKind::{Hca, Switch};
    use NodeSetting::{Gids, Mtu, NodeGuid, PKeys, Ports};
    // kind, setting, default, good, bad
    let cases: [(_, _, _, &[_], &[_]); 10] = [
        (Hca, Ports, "1", &["1", "2"], &["0", "3"]),
        (Switch, Ports, "36", &["1", "64"], &["0", "65"]),
        (Hca, Mtu, "4096", &["256"], &["100"]),
        (Switch, Mtu, "4096", &["2048"], &["4k"]),
        (Hca, PKeys, "128", &["1", "128"], &["0", "129"]),
        (Switch, PKeys, "128", &["1", "128"], &["0", "129"]),
        (Hca, Gids, "8", &["1", "32"], &["0", "33"]),
        (Switch, Gids, "8", &[], &["1"]),
        (
            Hca,
            NodeGuid,
            "0x0000000000000100",
            &["0x0000000000000001", "0xfffffffffffffffd"],
            &["0x0", "0xfffffffffffffffe", "0xffffffffffffffff"],
        ),
        (
            Switch,
            NodeGuid,
            "0x0000000000000100",
            &["0x0a1b000000000100"],
            &["100"],
        ),
    ];
    for (kind, setting, default, good, bad) in cases {
        let mut plan = NodePlan::new(kind, name("n"), Guid::new(0x100)).unwrap();
        assert_eq!(shown(&plan, setting), default);
        for text in good {
            assert_eq!(
                plan.set(setting, text),
                Some(()),
                "{kind:?} {setting:?} {text}"
            );
            assert_eq!(shown(&plan, setting), *text);
        }
        let before = plan;
        for text in bad {
            assert_eq!(plan.set(setting, text), None, "{kind:?} {setting:?} {text}");
            assert_eq!(plan, before);
        }
    }
    assert_eq!(NodePlan::new(Hca, name("n"), Guid::NONE), None);
    assert_eq!(NodePlan::new(Hca, name("n"), Guid::new(u64::MAX)), None);
}

#[test]
fn constants_of_an_adapter() {
    let plan = node(NodeKind::Hca, "h1", 0x100, "2");
    let config = plan.adapter();
    assert_eq!(config.node_guid.get(), 0x100);
    assert_eq!(config.port_guids.map(Guid::get), [0x101, 0x102]);
    assert_eq!((config.ports, config.pkeys, config.guids), (2, 128, 8));
    assert!(ib_fabric::Hca::new(&config).is_some());
    assert_eq!(plan.guids(), 0x100..=0x102);
}

#[test]
fn limits_of_an_adapter() {
    // limit, default, good, bad
    let cases: [(_, _, _, &[&str], &[&str]); 15] = [
        (Limit::Qp, "max_qp", "1019", &["1", "1019"], &["0", "1020"]),
        (Limit::QpWr, "max_qp_wr", "16384", &["1"], &["0", "16385"]),
        (Limit::SendSge, "max_send_sge", "32", &["1"], &["0", "33"]),
        (Limit::RecvSge, "max_recv_sge", "32", &["1"], &["0", "33"]),
        (Limit::Cq, "max_cq", "65536", &["1"], &["0", "65537"]),
        (Limit::Cqe, "max_cqe", "65536", &["1"], &["0", "65537"]),
        (Limit::Srq, "max_srq", "65536", &["0"], &["65537"]),
        (
            Limit::Ah,
            "max_ah",
            "2147483647",
            &["1"],
            &["0", "2147483648"],
        ),
        (Limit::Mr, "max_mr", "1048576", &["1"], &["0", "1048577"]),
        (
            Limit::InlineData,
            "max_inline_data",
            "0",
            &["1024"],
            &["1025"],
        ),
        (Limit::Multicast, "multicast", "1", &["0", "1"], &["2"]),
        (Limit::BlockLoopback, "block_loopback", "1", &["0"], &["2"]),
        (Limit::GetNetdev, "get_netdev", "0", &["1"], &["2"]),
        (Limit::Checksum, "checksum", "0", &["1"], &["2", "01"]),
        (Limit::Lso, "lso", "0", &["1", "262144"], &["262145", "0x1"]),
    ];
    for (limit, file, default, good, bad) in cases {
        assert_eq!(limit.name().to_str(), Ok(file));
        let setting = NodeSetting::Limit(limit);
        let mut plan = node(NodeKind::Hca, "h1", 0x100, "2");
        assert_eq!(shown(&plan, setting), default);
        for text in good {
            assert_eq!(plan.set(setting, text), Some(()), "{file} {text}");
            assert_eq!(shown(&plan, setting), *text);
            assert_eq!(plan.limits().get(limit).to_string(), *text);
        }
        let before = plan;
        for text in bad {
            assert_eq!(plan.set(setting, text), None, "{file} {text}");
        }
        assert_eq!(plan, before);
        let mut switch = node(NodeKind::Switch, "s1", 0x200, "2");
        assert_eq!(switch.set(setting, "1"), None);
    }
}

#[test]
fn constants_of_a_switch() {
    let plan = node(NodeKind::Switch, "s1", 0x100, "64");
    let config = plan.switch();
    assert_eq!(config.node_guid.get(), 0x100);
    assert_eq!((config.ports, config.pkeys), (64, 128));
    assert_eq!(plan.guids(), 0x100..=0x100);
}

#[test]
fn limits_of_a_cable() {
    let mut plan = CablePlan::new(name("c"));
    for (setting, default) in [
        (CableSetting::Ends, ""),
        (CableSetting::Width, "4x"),
        (CableSetting::Speed, "qdr"),
    ] {
        assert_eq!(shown_cable(&plan, setting), default);
    }
    for (text, widths) in [("1x", 0b01), ("4x\n", 0b11)] {
        plan.set(CableSetting::Width, text).unwrap();
        assert_eq!(plan.limits().widths, widths);
        assert_eq!(shown_cable(&plan, CableSetting::Width), text.trim());
    }
    for (text, speeds) in [("sdr", 0b001), ("ddr", 0b011), (" qdr", 0b111)] {
        plan.set(CableSetting::Speed, text).unwrap();
        assert_eq!(plan.limits().speeds, speeds);
        assert_eq!(shown_cable(&plan, CableSetting::Speed), text.trim());
    }
    assert_eq!(plan.limits().mtu, Mtu::B4096);
    plan.set(CableSetting::Ends, "a b").unwrap();
    let before = plan;
    for (setting, text) in [
        (CableSetting::Width, "8x"),
        (CableSetting::Width, ""),
        (CableSetting::Speed, "edr"),
        (CableSetting::Ends, "a"),
    ] {
        assert_eq!(plan.set(setting, text), None);
        assert_eq!(plan, before);
    }
    plan.set(CableSetting::Ends, " \n").unwrap();
    assert_eq!(plan.ends(), None);
}

/// Two adapters of two ports and one of one, a switch, and cables.
fn check(edit: impl FnOnce(&mut Vec<NodePlan>, &mut Vec<CablePlan>)) -> Result<(), Fault> {
    let mut nodes = vec![
        node(NodeKind::Hca, "h1", 0x100, "2"),
        node(NodeKind::Hca, "h2", 0x200, "2"),
        node(NodeKind::Hca, "h3", 0x300, "1"),
        node(NodeKind::Switch, "s1", 0x400, "8"),
    ];
    let mut cables = vec![
        cable("c1", "h1 s1/1"),
        cable("c2", "h2/2 s1/8"),
        cable("c3", "h3 s1/3"),
        cable("c4", "s1/4 s1/5"),
    ];
    edit(&mut nodes, &mut cables);
    check_fabric(nodes.iter(), cables.iter())
}

#[test]
fn faults_of_a_fabric() {
    type Edit = fn(&mut Vec<NodePlan>, &mut Vec<CablePlan>);
    let cases: [(Edit, Option<&str>); 21] = [
        (|_, _| (), None),
        (|_, cables| cables.clear(), None),
        // The adapter's port 1 has the GUID of no other node.
        (
            |nodes, _| nodes.push(node(NodeKind::Switch, "s2", 0x103, "1")),
            None,
        ),
        (
            |nodes, _| nodes.push(node(NodeKind::Hca, "h4", 0xfe, "1")),
            None,
        ),
        (
            |nodes, _| nodes.retain(|plan| plan.kind() == NodeKind::Switch),
            Some("there is no HCA"),
        ),
        (|nodes, _| nodes.clear(), Some("there is no HCA")),
        (
            |nodes, _| nodes.push(node(NodeKind::Switch, "s2", 0x102, "1")),
            Some("h1: s2 has the GUID 0x0000000000000102, too"),
        ),
        (
            |nodes, _| nodes.push(node(NodeKind::Hca, "h4", 0x2ff, "1")),
            Some("h3: h4 has the GUID 0x0000000000000300, too"),
        ),
        (
            |nodes, _| nodes.push(node(NodeKind::Switch, "s2", 0x400, "1")),
            Some("s1: s2 has the GUID 0x0000000000000400, too"),
        ),
        (
            |_, cables| cables.push(CablePlan::new(name("c5"))),
            Some("c5: the ends are not set"),
        ),
        (
            |_, cables| cables.push(cable("c5", "h1/2 h9")),
            Some("c5: there is no node h9"),
        ),
        (
            |_, cables| cables.push(cable("c5", "h1/3 h2")),
            Some("c5: there is no h1/3: the ports of h1 are 1 to 2"),
        ),
        (
            |_, cables| cables.push(cable("c5", "h1/2 s1/9")),
            Some("c5: there is no s1/9: the ports of s1 are 1 to 8"),
        ),
        (
            |_, cables| cables.push(cable("c5", "h1/2 h1/2")),
            Some("c5: both ends are h1/2"),
        ),
        (
            |_, cables| cables.push(cable("c5", "h1/1 h2/1")),
            Some("c1: c5 ends at h1/1, too"),
        ),
        (
            |_, cables| cables.push(cable("c5", "h1/2 s1/5")),
            Some("c4: c5 ends at s1/5, too"),
        ),
        (|_, cables| cables.push(cable("c5", "h1/2 dev:e0")), None),
        (
            |_, cables| cables.push(cable("c5", "h1/1 dev:e0")),
            Some("c1: c5 ends at h1/1, too"),
        ),
        (
            |_, cables| cables.push(cable("c5", "h9 dev:e0")),
            Some("c5: there is no node h9"),
        ),
        (
            |_, cables| {
                cables.push(cable("c5", "h1/2 dev:e0"));
                cables.push(cable("c6", "s1/6 dev:e0"));
            },
            Some("c5: c6 leads through e0, too"),
        ),
        (
            |nodes, _| nodes.truncate(3),
            Some("c1: there is no node s1"),
        ),
    ];
    for (number, (edit, fault)) in cases.into_iter().enumerate() {
        let found = check(edit).err().map(|fault| fault.to_string());
        assert_eq!(found.as_deref(), fault, "case {number}");
    }
}

#[test]
fn network_devices_of_an_adapter() {
    let mut plan = node(NodeKind::Hca, "h1", 0x100, "2");
    assert_eq!(plan.link_layer(), LinkLayer::InfiniBand);
    for (text, printed) in [
        (" eth0\n", "eth0"),
        ("veth-a.1\tb", "veth-a.1 b"),
        ("012345678901234", "012345678901234"),
    ] {
        assert_eq!(plan.set(NodeSetting::Netdev, text), Some(()));
        assert_eq!(shown(&plan, NodeSetting::Netdev), printed);
        assert_eq!(plan.adapter().link_layer, LinkLayer::Ethernet);
    }
    let before = plan;
    for text in ["a b c", "a a", "a/b", "a:b", ".", "0123456789abcdef", "ä"] {
        assert_eq!(plan.set(NodeSetting::Netdev, text), None, "{text:?}");
    }
    for (gids, set) in [("17", None), ("16", Some(()))] {
        assert_eq!(plan.set(NodeSetting::Gids, gids), set);
    }
    plan.set(NodeSetting::Gids, "8").unwrap();
    assert_eq!(plan, before);

    assert_eq!(plan.set(NodeSetting::Netdev, "a b"), Some(()));
    let [first, second] = [1, 2].map(|port| plan.netdevs().of(port).map(Device::as_str));
    assert_eq!((first, second), (Some("a"), Some("b")));
    for port in [0, 3, 255] {
        assert_eq!(plan.netdevs().of(port), None);
    }
    assert_eq!(plan.set(NodeSetting::Netdev, " "), Some(()));
    assert_eq!(plan.link_layer(), LinkLayer::InfiniBand);
    plan.set(NodeSetting::Gids, "17").unwrap();
    assert_eq!(plan.set(NodeSetting::Netdev, "a b"), None);
    let mut switch = node(NodeKind::Switch, "s1", 0x400, "8");
    assert_eq!(switch.set(NodeSetting::Netdev, "a"), None);
}

/// Makes the last adapters Ethernet ones, with such network devices, and checks a fabric of them and a switch with a
/// cable.
fn check_ethernet(netdevs: [&str; 2], ends: &str) -> Option<String> {
    let mut nodes = [
        node(NodeKind::Switch, "s1", 0x400, "8"),
        node(NodeKind::Hca, "h1", 0x100, "1"),
        node(NodeKind::Hca, "h2", 0x200, "2"),
        node(NodeKind::Hca, "h3", 0x300, "1"),
    ];
    for (plan, netdevs) in nodes[2..].iter_mut().zip(netdevs) {
        plan.set(NodeSetting::Netdev, netdevs).unwrap();
    }
    let checked = check_fabric(nodes.iter(), [cable("c1", ends)].iter());
    checked.err().map(|fault| fault.to_string())
}

#[test]
fn ethernet_ports_are_back_to_back() {
    let mixed = |end: &str| {
        Some(format!(
            "c1: {end} is an Ethernet port, and the other end is not"
        ))
    };
    for (netdevs, ends, fault) in [
        (["a b", "c"], "h2/2 h3/1", None),
        (["a b", "c"], "h2/1 h2/2", None),
        (["a b", "c"], "h1/1 s1/1", None),
        (["a b", "c"], "h2/1 s1/1", mixed("h2/1")),
        (["a b", "c"], "s1/1 h2/1", mixed("h2/1")),
        (["a b", "c"], "h1/1 h3/1", mixed("h3/1")),
        (["a b", "c"], "h3/1 dev:e0", mixed("h3/1")),
        (["", "c"], "h2/1 s1/1", None),
        (["", "c"], "h2/1 h3/1", mixed("h3/1")),
        (
            ["a", "c"],
            "h2/1 h3/1",
            Some("h2: there have to be as many netdevs as ports, 2".to_owned()),
        ),
        (
            ["a b", "c d"],
            "h2/1 h3/1",
            Some("h3: there have to be as many netdevs as ports, 1".to_owned()),
        ),
    ] {
        assert_eq!(check_ethernet(netdevs, ends), fault, "{netdevs:?} {ends}");
    }
}

#[test]
fn a_cable_needs_power() {
    let nodes = [
        (node(NodeKind::Hca, "h1", 0x100, "1"), true),
        (node(NodeKind::Hca, "h2", 0x200, "1"), false),
    ];
    let nodes = nodes.iter().map(|(plan, powered)| (plan, *powered));
    let fault = check_cable(&cable("c1", "h1 h2"), nodes, [].iter());
    let expected = Fault::NoPower {
        cable: name("c1"),
        node: name("h2"),
    };
    assert_eq!(fault, Err(expected));
    assert_eq!(expected.to_string(), "c1: h2 is switched off");
    assert_eq!(end("h2").node, name("h2"));
}
