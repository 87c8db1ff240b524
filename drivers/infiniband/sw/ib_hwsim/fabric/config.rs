// SPDX-License-Identifier: GPL-2.0

//! The constants of an adapter and of a switch, and their limits.

use crate::addr::Guid;
use crate::mtu::Mtu;

/// The most ports of an adapter.
pub const MAX_PORTS: usize = 2;

/// The most entries of a P_Key table.
pub const MAX_PKEYS: usize = 128;

/// The most entries of a GID table.
pub const MAX_GUIDS: usize = 32;

/// The most entries of the GID table of an Ethernet port.
pub const MAX_GIDS: usize = 16;

/// The most external ports of a switch.
pub const MAX_SWITCH_PORTS: u8 = 64;

/// A link layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkLayer {
    /// A port of a subnet, with a LID, which a subnet manager configures.
    InfiniBand,
    /// A port of RDMA over converged Ethernet (RoCE v2), with GIDs alone, which needs no manager.
    Ethernet,
}

impl LinkLayer {
    /// Returns the most entries of the GID table of a port.
    pub(crate) const fn most_gids(self) -> usize {
        match self {
            LinkLayer::InfiniBand => MAX_GUIDS,
            LinkLayer::Ethernet => MAX_GIDS,
        }
    }
}

/// The constants of an adapter: what firmware and factory give to real ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The GUID of the adapter.
    pub node_guid: Guid,
    /// The GUID of the machine around it, or [`Guid::NONE`].
    pub system_guid: Guid,
    /// The GUIDs of the ports; the second counts only if there is a second port.
    pub port_guids: [Guid; MAX_PORTS],
    /// The number of ports, 1 or 2.
    pub ports: u8,
    /// The capacity of each port's P_Key table, 1 to 128.
    pub pkeys: u16,
    /// The capacity of each port's GID table, 1 to 32, on Ethernet 16.
    pub guids: u8,
    /// The link layer of the ports.
    pub link_layer: LinkLayer,
    /// The largest MTU.
    pub mtu: Mtu,
    /// The vendor, an IEEE identifier of 24 bits.
    pub vendor_id: u32,
    /// The product.
    pub device_id: u16,
    /// The revision of the product.
    pub revision: u32,
}

impl Config {
    /// A small adapter with two ports for the tests.
    #[cfg(any(test, CONFIG_KUNIT = "y"))]
    pub(crate) const EXAMPLE: Config = Config {
        node_guid: Guid::new(0x10),
        system_guid: Guid::new(0x1f),
        port_guids: [Guid::new(0x11), Guid::new(0x12)],
        ports: 2,
        pkeys: 4,
        guids: 3,
        link_layer: LinkLayer::InfiniBand,
        mtu: Mtu::B4096,
        vendor_id: 0x00_1234,
        device_id: 0x5678,
        revision: 0x9abc_def0,
    };

    /// Returns true if an adapter can be like this.
    pub(crate) fn is_possible(&self) -> bool {
        let [first, second] = self.port_guids;
        let has_guids = self.node_guid != Guid::NONE
            && first != Guid::NONE
            && (self.ports < 2 || second != Guid::NONE && second != first);
        (1..=MAX_PORTS).contains(&usize::from(self.ports))
            && (1..=MAX_PKEYS).contains(&usize::from(self.pkeys))
            && (1..=self.link_layer.most_gids()).contains(&usize::from(self.guids))
            && self.vendor_id >> 24 == 0
            && has_guids
    }
}

/// The constants of a switch: what firmware and factory give to real ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchConfig {
    /// The GUID of the switch and of its management port.
    pub node_guid: Guid,
    /// The GUID of the chassis around it, or [`Guid::NONE`].
    pub system_guid: Guid,
    /// The number of external ports, 1 to 64.
    pub ports: u8,
    /// The capacity of each port's P_Key table, 1 to 128.
    pub pkeys: u16,
    /// The largest MTU.
    pub mtu: Mtu,
    /// The vendor, an IEEE identifier of 24 bits.
    pub vendor_id: u32,
    /// The product.
    pub device_id: u16,
    /// The revision of the product.
    pub revision: u32,
}

impl SwitchConfig {
    /// A small switch for the tests.
    #[cfg(any(test, CONFIG_KUNIT = "y"))]
    pub(crate) const EXAMPLE: SwitchConfig = SwitchConfig {
        node_guid: Guid::new(0x50),
        system_guid: Guid::new(0x5f),
        ports: 4,
        pkeys: 4,
        mtu: Mtu::B4096,
        vendor_id: 0x00_1234,
        device_id: 0x5678,
        revision: 0x9abc_def0,
    };

    /// Returns the constants of an adapter with ports like this switch's, and as many.
    pub(crate) fn as_adapter(&self) -> Config {
        Config {
            link_layer: LinkLayer::InfiniBand,
            node_guid: self.node_guid,
            system_guid: self.system_guid,
            port_guids: [self.node_guid, Guid::NONE],
            ports: self.ports,
            pkeys: self.pkeys,
            guids: 1,
            mtu: self.mtu,
            vendor_id: self.vendor_id,
            device_id: self.device_id,
            revision: self.revision,
        }
    }

    /// Returns the number of ports with the management port: the length of its table of ports.
    #[inline]
    pub const fn port_count(&self) -> usize {
        (self.ports as usize).saturating_add(1)
    }

    /// Returns the number of ways from port to port: the length of its table of lanes.
    #[inline]
    pub const fn lane_count(&self) -> usize {
        self.port_count().saturating_mul(self.port_count())
    }

    /// Returns true if a switch can be like this.
    pub fn is_possible(&self) -> bool {
        (1..=MAX_SWITCH_PORTS).contains(&self.ports)
            && (1..=MAX_PKEYS).contains(&usize::from(self.pkeys))
            && self.vendor_id >> 24 == 0
            && self.node_guid != Guid::NONE
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_config))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    #[test]
    fn limits_of_an_adapter() {
        type Case = (fn(&mut Config), bool);
        let cases: [Case; 17] = [
            (|_| {}, true),
            (|c| (c.pkeys, c.guids) = (128, 32), true),
            (|c| (c.pkeys, c.guids) = (1, 1), true),
            (|c| c.system_guid = Guid::NONE, true),
            (|c| c.ports = 0, false),
            (|c| c.ports = 3, false),
            (|c| c.pkeys = 0, false),
            (|c| c.pkeys = 129, false),
            (|c| c.guids = 0, false),
            (|c| c.guids = 33, false),
            (
                |c| (c.link_layer, c.guids) = (LinkLayer::Ethernet, 16),
                true,
            ),
            (
                |c| (c.link_layer, c.guids) = (LinkLayer::Ethernet, 17),
                false,
            ),
            (|c| c.vendor_id = 1 << 24, false),
            (|c| c.node_guid = Guid::NONE, false),
            (|c| c.port_guids[0] = Guid::NONE, false),
            (|c| c.port_guids[1] = Guid::NONE, false),
            (|c| c.port_guids[1] = c.port_guids[0], false),
        ];
        for (change, expected) in cases {
            let mut config = Config::EXAMPLE;
            change(&mut config);
            assert_eq!(config.is_possible(), expected);
        }
    }

    #[test]
    fn second_guid_is_free_without_a_second_port() {
        let mut config = Config::EXAMPLE;
        config.ports = 1;
        config.port_guids[1] = Guid::NONE;
        assert!(config.is_possible());
    }

    #[test]
    fn limits_of_a_switch() {
        type Case = (fn(&mut SwitchConfig), bool);
        let cases: [Case; 9] = [
            (|_| {}, true),
            (|c| (c.ports, c.pkeys) = (1, 1), true),
            (|c| (c.ports, c.pkeys) = (64, 128), true),
            (|c| c.ports = 0, false),
            (|c| c.ports = 65, false),
            (|c| c.pkeys = 0, false),
            (|c| c.pkeys = 129, false),
            (|c| c.vendor_id = 1 << 24, false),
            (|c| c.node_guid = Guid::NONE, false),
        ];
        for (change, expected) in cases {
            let mut config = SwitchConfig::EXAMPLE;
            change(&mut config);
            assert_eq!(config.is_possible(), expected);
        }
    }
}
