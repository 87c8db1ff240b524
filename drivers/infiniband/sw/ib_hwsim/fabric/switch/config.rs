// SPDX-License-Identifier: GPL-2.0

//! The constants of a switch, their limits, and where its tables lie.

use core::ops::DerefMut;

use crate::addr::Guid;
use crate::config::{Config, ConfigError, LinkLayer, MAX_PKEYS};
use crate::mtu::Mtu;
use crate::port::Port;

/// The most external ports of a switch.
pub const MAX_SWITCH_PORTS: u8 = 64;

/// The most entries of a linear forwarding table: all unicast LIDs.
pub const MAX_ROUTES: usize = 0xc000;

/// The most entries of a multicast forwarding table: all multicast LIDs in whole blocks.
pub const MAX_GROUPS: usize = 0x3fe0;

/// The entries in a block of LinearForwardingTable (section 14.2.5.10).
pub(super) const ROUTES_PER_BLOCK: usize = 64;

/// The entries in a block of MulticastForwardingTable (section 14.2.5.12).
pub(super) const GROUPS_PER_BLOCK: usize = 32;

/// The virtual lanes of the 16 service levels on the way from one port to another, four bits
/// each, as in SLtoVLMappingTable (section 14.2.5.8).
pub type Mapping = [u8; 8];

/// Memory for the tables of a switch: vectors of the driver's or of a test's.
pub trait Memory {
    /// The ports, [`SwitchConfig::port_count`] of them: port 0, which is the management port,
    /// and the external ones.
    type Ports: DerefMut<Target = [Port]>;
    /// The linear forwarding table: the port of each LID, 255 for none. Its length is
    /// LinearFDBCap, a multiple of 64 up to [`MAX_ROUTES`].
    type Routes: DerefMut<Target = [u8]>;
    /// The multicast forwarding table: the members of each multicast LID from 0xc000 up, port 1
    /// in bit 0. Its length is MulticastFDBCap, a multiple of 32 up to [`MAX_GROUPS`].
    type Groups: DerefMut<Target = [u64]>;
    /// The virtual lanes, [`SwitchConfig::lane_count`] mappings.
    type Lanes: DerefMut<Target = [Mapping]>;
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
    #[cfg(any(test, CONFIG_KUNIT))]
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

    /// Returns the constants of an adapter with ports like this switch's.
    pub(crate) fn as_adapter(&self) -> Config {
        Config {
            link_layer: LinkLayer::InfiniBand,
            node_guid: self.node_guid,
            system_guid: self.system_guid,
            port_guids: [self.node_guid, Guid::NONE],
            ports: 1,
            pkeys: self.pkeys,
            guids: 1,
            mtu: self.mtu,
            vendor_id: self.vendor_id,
            device_id: self.device_id,
            revision: self.revision,
        }
    }

    /// Returns the number of ports with the management port: the length of [`Memory::Ports`].
    #[inline]
    pub const fn port_count(&self) -> usize {
        (self.ports as usize).saturating_add(1)
    }

    /// Returns the number of ways from port to port: the length of [`Memory::Lanes`].
    #[inline]
    pub const fn lane_count(&self) -> usize {
        self.port_count().saturating_mul(self.port_count())
    }

    /// Checks that a switch can be like this.
    ///
    /// # Errors
    ///
    /// See [`ConfigError`].
    pub fn check(&self) -> Result<(), ConfigError> {
        if !(1..=MAX_SWITCH_PORTS).contains(&self.ports) {
            Err(ConfigError::Ports)
        } else if !(1..=MAX_PKEYS).contains(&usize::from(self.pkeys)) {
            Err(ConfigError::PKeys)
        } else if self.vendor_id >> 24 != 0 {
            Err(ConfigError::Vendor)
        } else if self.node_guid == Guid::NONE {
            Err(ConfigError::Guid)
        } else {
            Ok(())
        }
    }

    /// Checks that tables have the lengths that the switch needs.
    pub(super) fn check_tables<M: Memory>(
        &self,
        ports: &M::Ports,
        routes: &M::Routes,
        groups: &M::Groups,
        lanes: &M::Lanes,
    ) -> Result<(), ConfigError> {
        let whole =
            |len: usize, block, most| len != 0 && len.checked_rem(block) == Some(0) && len <= most;
        let mut numbered = (0..=u8::MAX).zip(ports.iter());
        let good = ports.len() == self.port_count()
            && numbered.all(|(n, port)| port.number() == n)
            && whole(routes.len(), ROUTES_PER_BLOCK, MAX_ROUTES)
            && whole(groups.len(), GROUPS_PER_BLOCK, MAX_GROUPS)
            && lanes.len() == self.lane_count();
        good.then_some(()).ok_or(ConfigError::Tables)
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_switch_config))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    #[test]
    fn limits_of_a_switch() {
        type Case = (fn(&mut SwitchConfig), Result<(), ConfigError>);
        let cases: [Case; 9] = [
            (|_| {}, Ok(())),
            (|c| (c.ports, c.pkeys) = (1, 1), Ok(())),
            (|c| (c.ports, c.pkeys) = (64, 128), Ok(())),
            (|c| c.ports = 0, Err(ConfigError::Ports)),
            (|c| c.ports = 65, Err(ConfigError::Ports)),
            (|c| c.pkeys = 0, Err(ConfigError::PKeys)),
            (|c| c.pkeys = 129, Err(ConfigError::PKeys)),
            (|c| c.vendor_id = 1 << 24, Err(ConfigError::Vendor)),
            (|c| c.node_guid = Guid::NONE, Err(ConfigError::Guid)),
        ];
        for (change, expected) in cases {
            let mut config = SwitchConfig::EXAMPLE;
            change(&mut config);
            assert_eq!(config.check(), expected);
        }
    }
}
