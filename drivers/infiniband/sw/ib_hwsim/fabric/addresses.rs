// SPDX-License-Identifier: GPL-2.0

//! The addresses of a port: GUIDs in an InfiniBand subnet, GIDs on Ethernet.

use crate::addr::{Gid, Guid};
use crate::config::MAX_GIDS;
use crate::tables::GuidTable;

/// The GIDs of an Ethernet port, which are IP addresses of its network device.
#[derive(Clone, Debug)]
pub(crate) struct GidTable {
    gids: [Gid; MAX_GIDS],
    capacity: u8,
}

impl GidTable {
    fn entries(&self) -> &[Gid] {
        let capacity = usize::from(self.capacity);
        self.gids.get(..capacity).unwrap_or_default()
    }
}

/// The addresses of a port.
#[derive(Clone, Debug)]
pub(crate) enum Addresses {
    /// The GUIDs that the subnet manager gives. With the subnet prefix, they are GIDs.
    Guids(GuidTable),
    /// The GIDs that RDMA core gives.
    Gids(GidTable),
}

impl Addresses {
    /// Makes the addresses of a port of a subnet, which has this GUID of its own.
    pub(crate) fn guids(capacity: u8, own: Guid) -> Addresses {
        Addresses::Guids(GuidTable::new(capacity, own))
    }

    /// Makes the addresses of an Ethernet port, which has none yet.
    pub(crate) fn gids(capacity: u8) -> Addresses {
        let gids = [Gid::NONE; MAX_GIDS];
        Addresses::Gids(GidTable { gids, capacity })
    }

    /// Returns the port's own GUID, [`Guid::NONE`] on Ethernet.
    pub(crate) fn own(&self) -> Guid {
        match self {
            Addresses::Guids(table) => table.get(0).unwrap_or_default(),
            Addresses::Gids(_) => Guid::NONE,
        }
    }

    /// Returns the number of entries.
    pub(crate) fn capacity(&self) -> u8 {
        match self {
            Addresses::Guids(table) => table.capacity(),
            Addresses::Gids(table) => table.entries().len() as u8,
        }
    }

    /// Returns an entry as a GID; `None` beyond the end.
    pub(crate) fn gid(&self, prefix: u64, index: u8) -> Option<Gid> {
        match self {
            Addresses::Guids(table) => Some(Gid::from_parts(prefix, table.get(index)?)),
            Addresses::Gids(table) => table.entries().get(usize::from(index)).copied(),
        }
    }

    /// Returns true if a GID is one of these, in a subnet also with the default prefix (section 4.1.1).
    pub(crate) fn contains(&self, prefix: u64, gid: &Gid) -> bool {
        match self {
            Addresses::Guids(table) => {
                let ours = gid.prefix() == prefix || gid.prefix() == Gid::DEFAULT_PREFIX;
                ours && table.contains(gid.guid())
            }
            Addresses::Gids(table) => *gid != Gid::NONE && table.entries().contains(gid),
        }
    }

    /// Sets a GID, [`Gid::NONE`] for none. `None` beyond the end, and for a port of a subnet.
    pub(crate) fn set_gid(&mut self, index: u8, gid: Gid) -> Option<()> {
        let Addresses::Gids(table) = self else {
            return None;
        };
        let entries = table.gids.get_mut(..usize::from(table.capacity))?;
        *entries.get_mut(usize::from(index))? = gid;
        Some(())
    }

    /// See [`GuidTable::read`]; `None` on Ethernet.
    pub(crate) fn read(&self, block: u32, data: &mut [u8]) -> Option<()> {
        match self {
            Addresses::Guids(table) => table.read(block, data),
            Addresses::Gids(_) => None,
        }
    }

    /// See [`GuidTable::write`]; `None` on Ethernet.
    pub(crate) fn write(&mut self, block: u32, data: &[u8]) -> Option<bool> {
        match self {
            Addresses::Guids(table) => table.write(block, data),
            Addresses::Gids(_) => None,
        }
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_addresses))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    const GID: Gid = Gid::from_bytes([7; 16]);

    #[test]
    fn gids_come_and_go() {
        let mut table = Addresses::gids(2);
        assert_eq!(table.capacity(), 2);
        assert!(!table.contains(0, &GID) && !table.contains(0, &Gid::NONE));
        assert_eq!(table.set_gid(1, GID), Some(()));
        assert_eq!(table.gid(0, 1), Some(GID));
        assert!(table.contains(0, &GID));
        assert_eq!(table.set_gid(2, GID), None);
        assert_eq!(table.gid(0, 2), None);
        assert_eq!(table.set_gid(1, Gid::NONE), Some(()));
        assert!(!table.contains(0, &GID));
    }

    #[test]
    fn each_kind_is_set_in_its_own_way() {
        let mut block = [0; 64];
        let mut gids = Addresses::gids(2);
        assert_eq!(gids.read(0, &mut block), None);
        assert_eq!(gids.write(0, &block), None);
        assert_eq!(gids.own(), Guid::NONE);
        let mut guids = Addresses::guids(2, Guid::new(5));
        assert_eq!(guids.set_gid(1, GID), None);
        assert_eq!(guids.write(0, &block), Some(false));
        assert_eq!(guids.own(), Guid::new(5));
    }
}
