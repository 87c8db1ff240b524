// SPDX-License-Identifier: GPL-2.0

//! Checks of what users write to the files of a fabric: all of it counts or nothing, and what is printed can be written again.
//! The fuzz targets in `tests/fuzz` use them as well.

use crate::plans::{shown, shown_cable};
use ib_fabric::fault::{Direction, Order, Table, Verb};
use ib_fabric::topology::{
    CablePlan, CableSetting, Name, NodeKind, NodePlan, NodeSetting, MAX_NAME,
};
use ib_fabric::Hca;

/// Writes to a file of a node.
pub(crate) fn for_a_node(plan: &mut NodePlan, setting: NodeSetting, text: &str) {
    let before = *plan;
    if plan.set(setting, text).is_none() {
        assert_eq!(*plan, before);
    }
    let is_hca = plan.kind() == NodeKind::Hca;
    let of_one_kind = match setting {
        NodeSetting::Gids | NodeSetting::Netdev | NodeSetting::Limit(_) => is_hca,
        NodeSetting::Routing(_) => !is_hca,
        _ => true,
    };
    let mut copy = *plan;
    if of_one_kind {
        assert_eq!(copy.set(setting, &shown(plan, setting)), Some(()));
    }
    assert_eq!(copy, *plan);
}

/// Checks that an adapter or switch like that can be.
pub(crate) fn can_be_made(plan: &NodePlan) {
    let guids = plan.guids();
    assert!(*guids.start() > 0 && guids.start() <= guids.end());
    match plan.kind() {
        NodeKind::Hca => assert!(Hca::new(&plan.adapter()).is_some()),
        NodeKind::Switch => assert!((1..=64).contains(&plan.switch().ports)),
    }
}

/// Writes to a file of a cable.
pub(crate) fn for_a_cable(plan: &mut CablePlan, setting: CableSetting, text: &str) {
    let before = *plan;
    if plan.set(setting, text).is_none() {
        assert_eq!(*plan, before);
    }
    let mut copy = *plan;
    assert_eq!(copy.set(setting, &shown_cable(plan, setting)), Some(()));
    assert_eq!(copy, *plan);
    assert!(plan.limits().widths & 1 != 0 && plan.limits().speeds & 1 != 0);
}

/// Takes a text as a name.
pub(crate) fn for_a_name(text: &str) {
    let valid = (1..=MAX_NAME).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    let name = Name::new(text).map(|name| name.to_string());
    assert_eq!(name.as_deref(), valid.then_some(text));
}

/// Writes to the file of an adapter's faults.
pub(crate) fn for_faults(table: &mut Table, text: &str) {
    let before = table.clone();
    if table.change(text).is_none() {
        assert_eq!(*table, before);
    }
}

/// Checks that the rules of a table can be given again, and that the copy does what the table does.
pub(crate) fn are_given_again(mut table: Table, calls: &[Verb]) {
    let mut text = String::new();
    table.print(&mut text).unwrap();
    let mut copy = Table::new();
    assert_eq!(copy.change(&text).is_some(), !text.is_empty());
    assert_eq!(copy, table);
    let active = table.active();
    for verb in calls {
        let struck = table.call(*verb);
        assert!(active.verbs || struck.is_none());
        assert_eq!(struck, copy.call(*verb));
    }
    for direction in Direction::ALL {
        assert!(active.completions || table.complete(*direction).is_none());
    }
}

/// Writes to the file that has events reported.
pub(crate) fn for_an_event(text: &str) {
    if let Some(order) = Order::parse(text) {
        assert_eq!(Order::parse(&order.to_string()), Some(order));
    }
}
