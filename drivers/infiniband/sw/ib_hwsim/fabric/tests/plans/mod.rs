// SPDX-License-Identifier: GPL-2.0

//! Nodes and cables of topologies, for the tests.

#![allow(dead_code, unreachable_pub)]

use ib_fabric::topology::*;
use ib_fabric::Guid;

/// A name that is valid.
pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// An end of a cable, as its text.
pub fn end(text: &str) -> End {
    End::parse(text).unwrap()
}

/// A node with that many ports.
pub fn node(kind: NodeKind, text: &str, guid: u64, ports: &str) -> NodePlan {
    let mut plan = NodePlan::new(kind, name(text), Guid::new(guid)).unwrap();
    plan.set(NodeSetting::Ports, ports).unwrap();
    plan
}

/// A cable with these ends.
pub fn cable(text: &str, ends: &str) -> CablePlan {
    let mut plan = CablePlan::new(name(text));
    plan.set(CableSetting::Ends, ends).unwrap();
    plan
}

/// A constant of a node, printed.
pub fn shown(plan: &NodePlan, setting: NodeSetting) -> String {
    let mut text = String::new();
    plan.print(setting, &mut text).unwrap();
    text
}

/// A constant of a cable, printed.
pub fn shown_cable(plan: &CablePlan, setting: CableSetting) -> String {
    let mut text = String::new();
    plan.print(setting, &mut text).unwrap();
    text
}
