// SPDX-License-Identifier: GPL-2.0

//! RDMA devices: none is there, or none has an interface.

use super::{Finding, Layer, Out, Severity, by_hand};
use crate::facts::Facts;

pub(super) fn check(facts: &Facts, found: &mut Vec<Finding>) {
    if !facts.interfaces.is_empty() || !facts.module.loaded {
        return;
    }
    let mut out = Out {
        layer: Layer::Device,
        subject: "",
        found,
    };
    let Some(port) = facts.ports.first() else {
        out.add(
            Severity::Broken,
            "no-device",
            "There is no RDMA device for an interface to run on.",
            "/sys/class/infiniband is empty in this network namespace",
            by_hand("rdma link add rxe0 type rxe netdev ETHERNET"),
        );
        return;
    };
    let (device, number) = (&port.device, port.number);
    let fix = match port.netdev().filter(|name| facts.link(name).is_some()) {
        Some(netdev) => format!("ip link add link {netdev} name ib0 type ipoib_rs"),
        None => format!("ip link add name ib0 type ipoib_rs device {device} port {number}"),
    };
    out.add(
        Severity::Broken,
        "no-interface",
        format!("The RDMA device {device} has no IPoIB interface."),
        "no network interface is of type ipoib_rs or ipoib",
        fix,
    );
}

#[cfg(test)]
mod tests {
    use super::super::tests::names;

    #[test]
    fn no_device_and_no_interface() {
        for roce in [false, true] {
            names(roce, "no-interface", |facts| {
                facts.interfaces.clear();
                facts.links.pop();
            });
            names(roce, "no-device", |facts| {
                facts.interfaces.clear();
                facts.links.pop();
                facts.ports.clear();
            });
        }
    }
}
