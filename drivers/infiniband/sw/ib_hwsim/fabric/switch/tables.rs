// SPDX-License-Identifier: GPL-2.0

//! Forwarding tables in blocks: LinearForwardingTable (section 14.2.5.10) and
//! MulticastForwardingTable (14.2.5.12).

use super::memory::{GROUPS_PER_BLOCK, ROUTES_PER_BLOCK};
use super::PortMask;
use crate::bits::{copy, Field};

/// The external ports in one position of MulticastForwardingTable, with port 0 in the first.
const PORTS_PER_POSITION: u32 = 16;

/// Reads a block of the linear table. `None` beyond the end.
pub(super) fn read_routes(routes: &[u8], block: u32, data: &mut [u8]) -> Option<()> {
    let mut blocks = routes.chunks(ROUTES_PER_BLOCK);
    copy(blocks.nth(block as usize)?, data);
    Some(())
}

/// Writes a block of the linear table. `None` beyond the end.
pub(super) fn write_routes(routes: &mut [u8], block: u32, data: &[u8]) -> Option<()> {
    let mut blocks = routes.chunks_mut(ROUTES_PER_BLOCK);
    copy(data, blocks.nth(block as usize)?);
    Some(())
}

/// The place of a block of the multicast table: 32 groups, and 16 ports of each.
struct Place {
    block: usize,
    shift: u32,
}

impl Place {
    /// Reads the modifier: the position in the upper four bits. `None` for ports beyond `all`.
    fn parse(modifier: u32, all: PortMask) -> Option<Place> {
        let shift = (modifier >> 28).wrapping_mul(PORTS_PER_POSITION);
        let there = with_port_0(all.bits()).checked_shr(shift);
        let exists = shift == 0 || there.is_some_and(|bits| bits != 0);
        exists.then_some(Place {
            block: (modifier & 0x0fff_ffff) as usize,
            shift,
        })
    }
}

/// Returns the members with port 0, which is none, in bit 0.
fn with_port_0(members: u64) -> u128 {
    u128::from(members) << 1
}

/// Returns entry `i` of a block of the multicast table.
const fn entry(i: usize) -> Field {
    Field::bytes(i.wrapping_mul(2), 2)
}

/// Reads a block of the multicast table of a switch with the ports `all`. `None` beyond its end.
pub(super) fn read_groups(
    groups: &[u64],
    all: PortMask,
    modifier: u32,
    data: &mut [u8],
) -> Option<()> {
    let place = Place::parse(modifier, all)?;
    let mut blocks = groups.chunks(GROUPS_PER_BLOCK);
    for (i, &members) in blocks.nth(place.block)?.iter().enumerate() {
        let bits = with_port_0(members).wrapping_shr(place.shift);
        entry(i).put(data, bits as u16);
    }
    Some(())
}

/// Writes a block of the multicast table of a switch with the ports `all`, without those ports
/// that do not exist. `None` beyond its end.
pub(super) fn write_groups(
    groups: &mut [u64],
    all: PortMask,
    modifier: u32,
    data: &[u8],
) -> Option<()> {
    let place = Place::parse(modifier, all)?;
    let mut blocks = groups.chunks_mut(GROUPS_PER_BLOCK);
    for (i, members) in blocks.nth(place.block)?.iter_mut().enumerate() {
        let old = with_port_0(*members) & !u128::from(u16::MAX).wrapping_shl(place.shift);
        let new = u128::from(entry(i).u16(data)).wrapping_shl(place.shift);
        *members = ((old | new) >> 1) as u64 & all.bits();
    }
    Some(())
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_switch_tables))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    #[test]
    fn routes_in_blocks_of_64() {
        let mut routes = [0xff; 128];
        assert_eq!(write_routes(&mut routes, 1, &[7; 64]), Some(()));
        assert_eq!((routes[63], routes[64], routes[127]), (0xff, 7, 7));
        let mut data = [0; 64];
        assert_eq!(read_routes(&routes, 1, &mut data), Some(()));
        assert_eq!(data, [7; 64]);
        for block in [2, u32::MAX] {
            assert_eq!(write_routes(&mut routes, block, &data), None);
            assert_eq!(read_routes(&routes, block, &mut data), None);
        }
    }

    #[test]
    fn ports_of_groups_in_positions_of_16() {
        // position, bits, port, its place in the entry
        let cases: [(u32, u8, u16); 6] = [
            (0, 1, 1 << 1),
            (0, 15, 1 << 15),
            (1, 16, 1 << 0),
            (1, 31, 1 << 15),
            (3, 63, 1 << 15),
            (4, 64, 1 << 0),
        ];
        let all = PortMask::up_to(64);
        for (position, port, bits) in cases {
            let mut groups = [0; 64];
            let mut data = [0; 64];
            entry(2).put(&mut data, bits);
            let modifier = (position << 28) | 1;
            assert_eq!(write_groups(&mut groups, all, modifier, &data), Some(()));
            assert_eq!(groups[34], PortMask::of(port).bits());
            let mut read = [0; 64];
            assert_eq!(read_groups(&groups, all, modifier, &mut read), Some(()));
            assert_eq!(read, data);
        }
    }

    #[test]
    fn positions_are_apart() {
        let all = PortMask::up_to(64);
        let mut groups = [0; 32];
        for position in 0..5 {
            write_groups(&mut groups, all, position << 28, &[0xff; 64]);
        }
        assert_eq!(groups, [u64::MAX; 32]);
        write_groups(&mut groups, all, 1 << 28, &[0; 64]);
        assert_eq!(groups, [!(0xffff << 15); 32]);
    }

    #[test]
    fn ports_that_do_not_exist_are_no_members() {
        let all = PortMask::up_to(4);
        let mut groups = [0; 32];
        assert_eq!(write_groups(&mut groups, all, 0, &[0xff; 64]), Some(()));
        assert_eq!(groups, [0b1111; 32]);
        let mut read = [0; 64];
        assert_eq!(read_groups(&groups, all, 0, &mut read), Some(()));
        assert_eq!(read[..2], [0, 0b11110]);
        for modifier in [1, 1 << 28, 5 << 28, 15 << 28, u32::MAX] {
            assert_eq!(write_groups(&mut groups, all, modifier, &[0; 64]), None);
            assert_eq!(read_groups(&groups, all, modifier, &mut read), None);
        }
        // Port 16 is the first of the second position.
        assert!(read_groups(&groups, PortMask::up_to(15), 1 << 28, &mut read).is_none());
        assert!(read_groups(&groups, PortMask::up_to(16), 1 << 28, &mut read).is_some());
    }
}
