// SPDX-License-Identifier: GPL-2.0

//! Texts for the files of a simulated fabric: nodes, cables, names, faults and events.

#![no_main]

use arbitrary::Arbitrary;
use ib_fabric::Guid;
use ib_fabric::fault::{Table, Verb};
use ib_fabric::impair::{Impairment, RoutingSetting};
use ib_fabric::limits::Limit;
use ib_fabric::topology::{CablePlan, CableSetting, Name, NodeKind, NodePlan, NodeSetting};
use libfuzzer_sys::fuzz_target;

#[path = "../../../drivers/infiniband/sw/ib_hwsim/fabric/tests/plans/mod.rs"]
mod plans;
#[path = "../../../drivers/infiniband/sw/ib_hwsim/fabric/tests/checks/texts.rs"]
mod texts;

/// A file, and what is written to it.
#[derive(Arbitrary, Debug)]
enum Write<'a> {
    Node(bool, u8, &'a str),
    Cable(u8, &'a str),
    Name(&'a str),
    Faults(&'a str),
    Event(&'a str),
}

fn node_setting(file: u8) -> NodeSetting {
    match file % 64 {
        0 => NodeSetting::Ports,
        1 => NodeSetting::NodeGuid,
        2 => NodeSetting::Mtu,
        3 => NodeSetting::PKeys,
        4 => NodeSetting::Gids,
        5 => NodeSetting::Netdev,
        6 => NodeSetting::Routing(RoutingSetting::Adaptive),
        7 => NodeSetting::Routing(RoutingSetting::FlowletGap),
        file => NodeSetting::Limit(Limit::ALL[usize::from(file) % Limit::ALL.len()]),
    }
}

fn cable_setting(file: u8) -> CableSetting {
    use Impairment::{Corrupt, Delay, Duplicate, Jitter, Loss, Queue, Rate};
    let impairments = [Loss, Duplicate, Corrupt, Delay, Jitter, Rate, Queue];
    match usize::from(file % 10) {
        0 => CableSetting::Ends,
        1 => CableSetting::Width,
        2 => CableSetting::Speed,
        file => CableSetting::Impairments(impairments[file - 3]),
    }
}

fuzz_target!(|input: (Vec<Write<'_>>, Vec<u8>)| {
    let (writes, calls) = input;
    let name = Name::new("n").expect("a name");
    let node = |kind| NodePlan::new(kind, name, Guid::new(1)).expect("a node");
    let mut nodes = [node(NodeKind::Hca), node(NodeKind::Switch)];
    let (mut cable, mut faults) = (CablePlan::new(name), Table::new());
    for write in writes {
        match write {
            Write::Node(switch, file, text) => {
                let plan = &mut nodes[usize::from(switch)];
                texts::for_a_node(plan, node_setting(file), text);
            }
            Write::Cable(file, text) => texts::for_a_cable(&mut cable, cable_setting(file), text),
            Write::Name(text) => texts::for_a_name(text),
            Write::Faults(text) => texts::for_faults(&mut faults, text),
            Write::Event(text) => texts::for_an_event(text),
        }
    }
    nodes.iter().for_each(texts::can_be_made);
    let verbs = calls
        .iter()
        .map(|call| Verb::ALL[usize::from(*call) % Verb::ALL.len()]);
    texts::are_given_again(faults, &verbs.collect::<Vec<_>>());
});
