// SPDX-License-Identifier: GPL-2.0

//! Memory for the tables of a switch, and their lengths.

use core::ops::DerefMut;

use crate::config::SwitchConfig;
use crate::port::Port;

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

/// Returns true if tables have the lengths that the switch needs.
pub(super) fn tables_fit<M: Memory>(
    config: &SwitchConfig,
    ports: &M::Ports,
    routes: &M::Routes,
    groups: &M::Groups,
    lanes: &M::Lanes,
) -> bool {
    let whole =
        |len: usize, block, most| len != 0 && len.checked_rem(block) == Some(0) && len <= most;
    let mut numbered = (0..=u8::MAX).zip(ports.iter());
    ports.len() == config.port_count()
        && numbered.all(|(n, port)| port.number() == n)
        && whole(routes.len(), ROUTES_PER_BLOCK, MAX_ROUTES)
        && whole(groups.len(), GROUPS_PER_BLOCK, MAX_GROUPS)
        && lanes.len() == config.lane_count()
}
