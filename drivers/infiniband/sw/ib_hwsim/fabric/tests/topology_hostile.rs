// SPDX-License-Identifier: GPL-2.0

//! Property tests: no text breaks a plan, and no topology with a fault passes the checks.

mod plans;
#[path = "checks/texts.rs"]
#[allow(dead_code, reason = "each test program uses its own part")]
mod texts;

use ib_fabric::impair::{Impairment, RoutingSetting};
use ib_fabric::limits::Limit;
use ib_fabric::topology::*;
use ib_fabric::Guid;
use plans::{cable, name, node};
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
    use RoutingSetting::{Adaptive, FlowletGap};
    prop_oneof![
        6 => prop::sample::select(vec![Ports, NodeGuid, Mtu, PKeys, Gids, Netdev]),
        1 => prop::sample::select(Limit::ALL).prop_map(NodeSetting::Limit),
        1 => prop::sample::select(vec![Adaptive, FlowletGap]).prop_map(NodeSetting::Routing),
    ]
}

fn cable_setting() -> impl Strategy<Value = CableSetting> {
    use CableSetting::{Ends, Speed, Width};
    use Impairment::{Corrupt, Delay, Duplicate, Jitter, Loss, Queue, Rate};
    let impairments = vec![Loss, Duplicate, Corrupt, Delay, Jitter, Rate, Queue];
    prop_oneof![
        3 => prop::sample::select(vec![Ends, Width, Speed]),
        1 => prop::sample::select(impairments).prop_map(CableSetting::Impairments),
    ]
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
            texts::for_a_node(&mut plan, setting, &text);
        }
        texts::can_be_made(&plan);
    }

    #[test]
    fn any_text_for_a_cable(texts in prop::collection::vec((cable_setting(), text()), 0..20)) {
        let mut plan = CablePlan::new(name("c"));
        for (setting, text) in texts {
            texts::for_a_cable(&mut plan, setting, &text);
        }
    }

    #[test]
    fn any_text_for_a_name(text in prop_oneof![text(), "[a-zA-Z0-9._-]{0,40}"]) {
        texts::for_a_name(&text);
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
