// SPDX-License-Identifier: GPL-2.0

//! Property tests: no text breaks a plan, and no topology with a fault passes the checks.

mod plans;

use ib_fabric::topology::*;
use ib_fabric::Guid;
use plans::{cable, name, node, shown, shown_cable};
use proptest::prelude::*;

/// Texts near to what is meant.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[ \t]*[hs]?[0-9]{0,3}/?[0-9]{0,3}[ \n]*([a-z.-]{0,40}(/[0-9+]{0,4})?)?[ \n]?",
        "(0x)?[0-9a-fA-F]{0,20}",
        "[0-9+-]{0,7}",
        "(1x|4x|8x|sdr|ddr|qdr|on|off)[ \n]?",
    ]
}

fn node_setting() -> impl Strategy<Value = NodeSetting> {
    use NodeSetting::{Gids, Mtu, Netdev, NodeGuid, PKeys, Ports};
    prop::sample::select(vec![Ports, NodeGuid, Mtu, PKeys, Gids, Netdev])
}

fn cable_setting() -> impl Strategy<Value = CableSetting> {
    use CableSetting::{Ends, Speed, Width};
    prop::sample::select(vec![Ends, Width, Speed])
}

proptest! {
    /// Whatever is set, an adapter or switch like that can be, and what is printed can be set.
    #[test]
    fn any_text_for_a_node(
        kind in prop::sample::select(vec![NodeKind::Hca, NodeKind::Switch]),
        texts in prop::collection::vec((node_setting(), text()), 0..20),
    ) {
        let mut plan = NodePlan::new(kind, name("n"), Guid::new(1)).unwrap();
        for (setting, text) in texts {
            let before = plan;
            if plan.set(setting, &text).is_none() {
                prop_assert_eq!(plan, before);
            }
            let mut copy = plan;
            let printed = shown(&plan, setting);
            let of_adapters = matches!(setting, NodeSetting::Gids | NodeSetting::Netdev);
            if kind == NodeKind::Hca || !of_adapters {
                prop_assert_eq!(copy.set(setting, &printed), Some(()));
            }
            prop_assert_eq!(copy, plan);
        }
        let guids = plan.guids();
        prop_assert!(*guids.start() > 0 && guids.start() <= guids.end());
        match kind {
            NodeKind::Hca => prop_assert!(ib_fabric::Hca::new(&plan.adapter()).is_some()),
            NodeKind::Switch => prop_assert!((1..=64).contains(&plan.switch().ports)),
        }
    }

    #[test]
    fn any_text_for_a_cable(texts in prop::collection::vec((cable_setting(), text()), 0..20)) {
        let mut plan = CablePlan::new(name("c"));
        for (setting, text) in texts {
            let before = plan;
            if plan.set(setting, &text).is_none() {
                prop_assert_eq!(plan, before);
            }
            let mut copy = plan;
            prop_assert_eq!(copy.set(setting, &shown_cable(&plan, setting)), Some(()));
            prop_assert_eq!(copy, plan);
        }
        prop_assert!(plan.limits().widths & 1 != 0 && plan.limits().speeds & 1 != 0);
    }

    #[test]
    fn any_text_for_a_name(text in prop_oneof![text(), "[a-zA-Z0-9._-]{0,40}"]) {
        let valid = (1..=MAX_NAME).contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        prop_assert_eq!(Name::new(&text).map(|name| name.to_string()), valid.then_some(text));
    }

    /// In a fabric without fault, no GUID and no port is there twice.
    #[test]
    fn any_fabric(
        nodes in prop::collection::vec((any::<bool>(), 0u8..6, 1u64..40, 1u8..3), 0..5),
        cables in prop::collection::vec((0u8..6, 1u8..4, 0u8..6, 1u8..4), 0..4),
    ) {
        let nodes: Vec<_> = nodes.into_iter().enumerate().map(|(at, (hca, _, guid, ports))| {
            let kind = if hca { NodeKind::Hca } else { NodeKind::Switch };
            node(kind, &format!("n{at}"), guid, &ports.to_string())
        }).collect();
        let cables: Vec<_> = cables.into_iter().enumerate().map(|(at, (one, p, other, q))| {
            cable(&format!("c{at}"), &format!("n{one}/{p} n{other}/{q}"))
        }).collect();
        if check_fabric(nodes.iter(), cables.iter()).is_ok() {
            let mut guids: Vec<_> = nodes.iter().flat_map(NodePlan::guids).collect();
            let mut ends: Vec<_> = cables.iter().flat_map(|plan| plan.ends().unwrap().ports()).collect();
            for end in &ends {
                let found = nodes.iter().find(|plan| plan.name() == end.node);
                prop_assert!(found.is_some_and(|plan| end.port <= plan.ports()));
            }
            let counts = (guids.len(), ends.len());
            guids.sort_unstable();
            guids.dedup();
            ends.sort_unstable_by_key(|end| end.to_string());
            ends.dedup();
            prop_assert_eq!((guids.len(), ends.len()), counts);
        }
    }
}
