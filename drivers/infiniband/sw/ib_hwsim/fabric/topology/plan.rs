// SPDX-License-Identifier: GPL-2.0

//! The constants that a user chooses for a node or a cable.

use core::fmt::{self, Write};
use core::ops::RangeInclusive;

use super::text::{guid, mtu, Device, Ends, Name, Speed, Width};
use crate::addr::Guid;
use crate::config::{
    Config, LinkLayer, SwitchConfig, MAX_GIDS, MAX_PKEYS, MAX_PORTS, MAX_SWITCH_PORTS,
};
use crate::impair::{Impairment, Impairments, Routing, RoutingSetting};
use crate::limits::{Limit, Limits};
use crate::link::{LinkOffer, VL_CAP};
use crate::mtu::Mtu;
use crate::text::number;

/// No vendor's company identifier.
const VENDOR: u32 = 0;

/// The revision of everything here.
const REVISION: u32 = 1;

/// A kind of node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeKind {
    /// A host channel adapter.
    Hca,
    /// A switch.
    Switch,
}

/// A constant of a node, which has a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeSetting {
    /// The number of ports; port 0 of a switch is not one of them.
    Ports,
    /// The node GUID. The GUIDs of an adapter's ports follow it.
    NodeGuid,
    /// The largest MTU, in bytes.
    Mtu,
    /// The capacity of each port's P_Key table.
    PKeys,
    /// The capacity of each port's GID table. A switch has one GID.
    Gids,
    /// The network devices of an adapter's ports, which are Ethernet ports then.
    Netdev,
    /// A limit or an ability of an adapter.
    Limit(Limit),
    /// The adaptive routing of a switch. It may change while the switch is on.
    Routing(RoutingSetting),
}

impl NodeSetting {
    /// Returns true if it may change while the node is on.
    pub const fn is_live(self) -> bool {
        matches!(self, NodeSetting::Routing(_))
    }
}

/// The network devices of an adapter's ports, from port 1 on. None is there twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Netdevs([Option<Device>; MAX_PORTS]);

impl Netdevs {
    const NONE: Netdevs = Netdevs([None; MAX_PORTS]);

    /// Parses names with spaces between them.
    fn parse(text: &str) -> Option<Netdevs> {
        let mut netdevs = Netdevs::NONE;
        for (place, name) in text.split_ascii_whitespace().enumerate() {
            let device = Some(Device::named(name)?);
            if netdevs.0.contains(&device) {
                return None;
            }
            *netdevs.0.get_mut(place)? = device;
        }
        Some(netdevs)
    }

    fn print(&self, out: &mut dyn Write) -> fmt::Result {
        for (place, device) in self.0.iter().flatten().enumerate() {
            let space = if place == 0 { "" } else { " " };
            write!(out, "{space}{}", device.as_str())?;
        }
        Ok(())
    }

    /// Returns their number.
    pub const fn count(&self) -> u8 {
        match &self.0 {
            [None, _] => 0,
            [_, None] => 1,
            _ => 2,
        }
    }

    /// Returns that of a port, from 1.
    pub fn of(&self, port: u8) -> Option<&Device> {
        let place = usize::from(port).checked_sub(1)?;
        self.0.get(place)?.as_ref()
    }
}

/// The constants of a node that is to be.
///
/// # Invariants
///
/// There can be such an adapter or switch; the GUIDs of an adapter's ports are not beyond [`u64::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodePlan {
    name: Name,
    kind: NodeKind,
    node_guid: Guid,
    ports: u8,
    mtu: Mtu,
    pkeys: u16,
    gids: u8,
    netdevs: Netdevs,
    limits: Limits,
    routing: Routing,
}

impl NodePlan {
    /// Makes the plan of a usual node; `None` if the GUID is no node's.
    pub fn new(kind: NodeKind, name: Name, node_guid: Guid) -> Option<NodePlan> {
        let mut plan = NodePlan {
            name,
            kind,
            node_guid: Guid::new(1),
            ports: match kind {
                NodeKind::Hca => 1,
                NodeKind::Switch => 36,
            },
            mtu: Mtu::B4096,
            pkeys: 128,
            gids: 8,
            netdevs: Netdevs::NONE,
            limits: Limits::new(),
            routing: Routing::PLAIN,
        };
        plan.set_guid(node_guid)?;
        Some(plan)
    }

    /// Returns the name.
    pub const fn name(&self) -> Name {
        self.name
    }

    /// Returns the kind.
    pub const fn kind(&self) -> NodeKind {
        self.kind
    }

    /// Returns the number of ports.
    pub const fn ports(&self) -> u8 {
        self.ports
    }

    /// Returns the GUIDs: the node's, and behind it those of an adapter's ports.
    pub fn guids(&self) -> RangeInclusive<u64> {
        let first = self.node_guid.get();
        let ports = match self.kind {
            NodeKind::Hca => self.ports,
            // Port 0 has the node's.
            NodeKind::Switch => 0,
        };
        first..=first.saturating_add(ports.into())
    }

    /// Returns the adaptive routing of a switch.
    pub const fn routing(&self) -> &Routing {
        &self.routing
    }

    fn set_guid(&mut self, guid: Guid) -> Option<()> {
        let last = u64::MAX.saturating_sub(MAX_PORTS as u64);
        self.node_guid = Some(guid).filter(|guid| (1..=last).contains(&guid.get()))?;
        Some(())
    }

    /// Prints a constant.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn print(&self, setting: NodeSetting, out: &mut dyn Write) -> fmt::Result {
        match setting {
            NodeSetting::Ports => write!(out, "{}", self.ports),
            NodeSetting::NodeGuid => write!(out, "{:#018x}", self.node_guid.get()),
            NodeSetting::Mtu => write!(out, "{}", self.mtu.bytes()),
            NodeSetting::PKeys => write!(out, "{}", self.pkeys),
            NodeSetting::Gids => write!(out, "{}", self.gids),
            NodeSetting::Netdev => self.netdevs.print(out),
            NodeSetting::Limit(limit) => self.limits.print(limit, out),
            NodeSetting::Routing(setting) => self.routing.print(setting, out),
        }
    }

    /// Parses and sets a constant; `None`, and no change, if it cannot have that value.
    pub fn set(&mut self, setting: NodeSetting, text: &str) -> Option<()> {
        match setting {
            NodeSetting::Ports => {
                let most = match self.kind {
                    NodeKind::Hca => MAX_PORTS,
                    NodeKind::Switch => MAX_SWITCH_PORTS.into(),
                };
                self.ports = u8::try_from(count(text, most)?).ok()?;
            }
            NodeSetting::NodeGuid => self.set_guid(guid(text)?)?,
            NodeSetting::Mtu => self.mtu = mtu(text)?,
            NodeSetting::PKeys => self.pkeys = count(text, MAX_PKEYS)?,
            NodeSetting::Gids => {
                if self.kind == NodeKind::Switch {
                    return None;
                }
                self.gids = u8::try_from(count(text, self.link_layer().most_gids())?).ok()?;
            }
            NodeSetting::Netdev => {
                let netdevs = Netdevs::parse(text)?;
                let fits = netdevs.count() == 0 || usize::from(self.gids) <= MAX_GIDS;
                if self.kind == NodeKind::Switch || !fits {
                    return None;
                }
                self.netdevs = netdevs;
            }
            NodeSetting::Limit(limit) => {
                if self.kind == NodeKind::Switch {
                    return None;
                }
                self.limits.set(limit, text)?;
            }
            NodeSetting::Routing(setting) => {
                if self.kind == NodeKind::Hca {
                    return None;
                }
                self.routing.set(setting, text)?;
            }
        }
        Some(())
    }

    /// Returns the link layer of the ports.
    pub const fn link_layer(&self) -> LinkLayer {
        match self.netdevs.count() {
            0 => LinkLayer::InfiniBand,
            _ => LinkLayer::Ethernet,
        }
    }

    /// Returns the network devices of an adapter's ports.
    pub const fn netdevs(&self) -> &Netdevs {
        &self.netdevs
    }

    /// Returns the limits and abilities of an adapter.
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the constants of an adapter like this.
    pub fn adapter(&self) -> Config {
        let first = self.node_guid.get();
        Config {
            node_guid: self.node_guid,
            system_guid: self.node_guid,
            port_guids: [1, 2].map(|number| Guid::new(first.saturating_add(number))),
            ports: self.ports,
            pkeys: self.pkeys,
            guids: self.gids,
            link_layer: self.link_layer(),
            mtu: self.mtu,
            vendor_id: VENDOR,
            device_id: 1,
            revision: REVISION,
        }
    }

    /// Returns the constants of a switch like this.
    pub fn switch(&self) -> SwitchConfig {
        SwitchConfig {
            node_guid: self.node_guid,
            system_guid: self.node_guid,
            ports: self.ports,
            mtu: self.mtu,
            pkeys: self.pkeys,
            vendor_id: VENDOR,
            device_id: 2,
            revision: REVISION,
        }
    }
}

/// Parses a number from 1 to `most`.
fn count(text: &str, most: usize) -> Option<u16> {
    u16::try_from(number(text, 1..=u32::try_from(most).ok()?)?).ok()
}

/// A constant of a cable, which has a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CableSetting {
    /// The ends; nothing at all if there are none yet.
    Ends,
    /// The width.
    Width,
    /// The speed of a lane.
    Speed,
    /// A fault. It may change while the cable is plugged.
    Impairments(Impairment),
}

impl CableSetting {
    /// Returns true if it may change while the cable is plugged.
    pub const fn is_live(self) -> bool {
        matches!(self, CableSetting::Impairments(_))
    }
}

/// The constants of a cable that is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CablePlan {
    name: Name,
    ends: Option<Ends>,
    width: Width,
    speed: Speed,
    impairments: Impairments,
}

impl CablePlan {
    /// Makes the plan of the best cable, without ends.
    pub const fn new(name: Name) -> CablePlan {
        CablePlan {
            name,
            ends: None,
            width: Width::X4,
            speed: Speed::Qdr,
            impairments: Impairments::NONE,
        }
    }

    /// Returns the name.
    pub const fn name(&self) -> Name {
        self.name
    }

    /// Returns the ends, if there are.
    pub const fn ends(&self) -> Option<Ends> {
        self.ends
    }

    /// Returns the faults.
    pub const fn impairments(&self) -> &Impairments {
        &self.impairments
    }

    /// Returns the most that both ends of a link by this cable can agree on.
    pub const fn limits(&self) -> LinkOffer {
        LinkOffer {
            widths: self.width.mask(),
            speeds: self.speed.mask(),
            mtu: Mtu::B4096,
            vl_cap: VL_CAP,
        }
    }

    /// Prints a constant.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn print(&self, setting: CableSetting, out: &mut dyn Write) -> fmt::Result {
        match setting {
            CableSetting::Ends => self.ends.map_or(Ok(()), |ends| write!(out, "{ends}")),
            CableSetting::Width => out.write_str(self.width.as_str()),
            CableSetting::Speed => out.write_str(self.speed.as_str()),
            CableSetting::Impairments(setting) => self.impairments.print(setting, out),
        }
    }

    /// Parses and sets a constant; `None`, and no change, if it cannot have that value.
    pub fn set(&mut self, setting: CableSetting, text: &str) -> Option<()> {
        match setting {
            CableSetting::Ends if text.trim_ascii().is_empty() => self.ends = None,
            CableSetting::Ends => self.ends = Some(Ends::parse(text)?),
            CableSetting::Width => self.width = Width::parse(text.trim_ascii())?,
            CableSetting::Speed => self.speed = Speed::parse(text.trim_ascii())?,
            CableSetting::Impairments(setting) => self.impairments.set(setting, text)?,
        }
        Some(())
    }
}
