// SPDX-License-Identifier: GPL-2.0

//! The checks of a topology: every fault has a line of text that names what is wrong.

use core::fmt::{self, Display, Formatter};

use super::plan::{CablePlan, NodeKind, NodePlan};
use super::text::{Device, End, Ends, FarEnd, Name};
use crate::addr::Guid;
use crate::config::LinkLayer;

/// A reason why a node or a cable cannot be in a fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The fabric has no adapter.
    NoAdapter,
    /// Two nodes have a GUID in common.
    SameGuid {
        /// A node.
        node: Name,
        /// The other one.
        other: Name,
        /// The GUID.
        guid: Guid,
    },
    /// An Ethernet adapter does not have as many network devices as ports.
    Netdevs {
        /// The adapter.
        node: Name,
        /// The number of ports.
        ports: u8,
    },
    /// A cable has no ends.
    NoEnds {
        /// The cable.
        cable: Name,
    },
    /// A cable ends at one port twice.
    Loop {
        /// The cable.
        cable: Name,
        /// The port.
        end: End,
    },
    /// A cable ends at a node that does not exist.
    NoNode {
        /// The cable.
        cable: Name,
        /// The name of the node.
        node: Name,
    },
    /// A cable ends at a port that its node does not have.
    NoPort {
        /// The cable.
        cable: Name,
        /// The port.
        end: End,
        /// The number of ports that there are.
        ports: u8,
    },
    /// A cable ends at a node that is switched off.
    NoPower {
        /// The cable.
        cable: Name,
        /// The name of the node.
        node: Name,
    },
    /// Two cables end at one port.
    Taken {
        /// A cable.
        cable: Name,
        /// The other one.
        other: Name,
        /// The port.
        end: End,
    },
    /// A cable joins an Ethernet port with something else than another one.
    Mixed {
        /// The cable.
        cable: Name,
        /// The Ethernet port.
        end: End,
    },
    /// Two cables lead through one network device.
    DeviceTaken {
        /// A cable.
        cable: Name,
        /// The other one.
        other: Name,
        /// The device.
        device: Device,
    },
}

impl Display for Fault {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Fault::NoAdapter => f.write_str("there is no HCA"),
            Fault::SameGuid { node, other, guid } => {
                let guid = guid.get();
                write!(f, "{node}: {other} has the GUID {guid:#018x}, too")
            }
            Fault::Netdevs { node, ports } => {
                write!(
                    f,
                    "{node}: there have to be as many netdevs as ports, {ports}"
                )
            }
            Fault::NoEnds { cable } => write!(f, "{cable}: the ends are not set"),
            Fault::Loop { cable, end } => write!(f, "{cable}: both ends are {end}"),
            Fault::NoNode { cable, node } => write!(f, "{cable}: there is no node {node}"),
            Fault::NoPort { cable, end, ports } => {
                write!(
                    f,
                    "{cable}: there is no {end}: the ports of {} are 1 to {ports}",
                    end.node
                )
            }
            Fault::NoPower { cable, node } => write!(f, "{cable}: {node} is switched off"),
            Fault::Taken { cable, other, end } => {
                write!(f, "{cable}: {other} ends at {end}, too")
            }
            Fault::Mixed { cable, end } => {
                write!(
                    f,
                    "{cable}: {end} is an Ethernet port, and the other end is not"
                )
            }
            Fault::DeviceTaken {
                cable,
                other,
                device,
            } => {
                let device = device.as_str();
                write!(f, "{cable}: {other} leads through {device}, too")
            }
        }
    }
}

/// Checks that a node can be beside others.
///
/// # Errors
///
/// The first fault that there is.
pub fn check_node<'a>(
    plan: &NodePlan,
    others: impl Iterator<Item = &'a NodePlan>,
) -> Result<(), Fault> {
    if plan.link_layer() == LinkLayer::Ethernet && plan.netdevs().count() != plan.ports() {
        return Err(Fault::Netdevs {
            node: plan.name(),
            ports: plan.ports(),
        });
    }
    let ours = plan.guids();
    for other in others {
        let theirs = other.guids();
        let guid = *ours.start().max(theirs.start());
        if guid <= *ours.end().min(theirs.end()) {
            return Err(Fault::SameGuid {
                node: plan.name(),
                other: other.name(),
                guid: Guid::new(guid),
            });
        }
    }
    Ok(())
}

/// Checks that a cable can be beside others. A node comes with whether it is switched on.
///
/// # Errors
///
/// The first fault that there is.
pub fn check_cable<'a>(
    plan: &CablePlan,
    nodes: impl Iterator<Item = (&'a NodePlan, bool)> + Clone,
    others: impl Iterator<Item = &'a CablePlan>,
) -> Result<(), Fault> {
    let cable = plan.name();
    let ends = plan.ends().ok_or(Fault::NoEnds { cable })?;
    let Ends(one, far) = ends;
    let mut ethernet = None;
    let mut subnet = matches!(far, FarEnd::Device(_));
    for end in ends.ports() {
        match check_end(cable, end, nodes.clone())? {
            LinkLayer::Ethernet => ethernet = Some(end),
            LinkLayer::InfiniBand => subnet = true,
        }
    }
    if let (Some(end), true) = (ethernet, subnet) {
        return Err(Fault::Mixed { cable, end });
    }
    if far == FarEnd::Port(one) {
        return Err(Fault::Loop { cable, end: one });
    }
    for plan in others {
        let Some(theirs) = plan.ends() else {
            continue;
        };
        let other = plan.name();
        let taken = |end: &End| theirs.ports().any(|their| their == *end);
        if let Some(end) = ends.ports().find(taken) {
            return Err(Fault::Taken { cable, other, end });
        }
        if let FarEnd::Device(device) = far {
            if theirs.1 == far {
                return Err(Fault::DeviceTaken {
                    cable,
                    other,
                    device,
                });
            }
        }
    }
    Ok(())
}

/// Checks that an end of a cable is a port that can be used, and returns its link layer.
fn check_end<'a>(
    cable: Name,
    end: End,
    mut nodes: impl Iterator<Item = (&'a NodePlan, bool)>,
) -> Result<LinkLayer, Fault> {
    let node = end.node;
    let (plan, powered) = nodes
        .find(|(plan, _)| plan.name() == node)
        .ok_or(Fault::NoNode { cable, node })?;
    if end.port > plan.ports() {
        let ports = plan.ports();
        return Err(Fault::NoPort { cable, end, ports });
    }
    if !powered {
        return Err(Fault::NoPower { cable, node });
    }
    Ok(plan.link_layer())
}

/// Checks that all nodes and cables of a fabric can be at a time.
///
/// # Errors
///
/// The first fault that there is.
pub fn check_fabric<'a>(
    nodes: impl Iterator<Item = &'a NodePlan> + Clone,
    cables: impl Iterator<Item = &'a CablePlan> + Clone,
) -> Result<(), Fault> {
    if !nodes.clone().any(|plan| plan.kind() == NodeKind::Hca) {
        return Err(Fault::NoAdapter);
    }
    let mut rest = nodes.clone();
    while let Some(plan) = rest.next() {
        check_node(plan, rest.clone())?;
    }
    let mut rest = cables;
    while let Some(plan) = rest.next() {
        check_cable(plan, nodes.clone().map(|node| (node, true)), rest.clone())?;
    }
    Ok(())
}
