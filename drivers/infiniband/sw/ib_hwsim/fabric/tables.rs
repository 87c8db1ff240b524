// SPDX-License-Identifier: GPL-2.0

//! The tables of a port: P_KeyTable (section 14.2.5.7), GUIDInfo (14.2.5.5),
//! SLtoVLMappingTable (14.2.5.8) and VLArbitrationTable (14.2.5.9).

use crate::addr::Guid;
use crate::bits::{copy, Field};
use crate::config::{MAX_GUIDS, MAX_PKEYS};
use crate::keys::PKey;
use crate::link::VL_CAP;

/// The entries in a block of P_KeyTable.
const PKEYS_PER_BLOCK: usize = 32;

/// The entries in a block of GUIDInfo.
const GUIDS_PER_BLOCK: usize = 8;

/// The entries of each list of VLArbitrationTable.
pub(crate) const ARBITRATION_ENTRIES: u8 = 8;

/// Returns entry `i` of a block of numbers of `len` bytes.
const fn entry(i: usize, len: usize) -> Field {
    Field::bytes(i.wrapping_mul(len), len)
}

/// The partition keys of a port.
#[derive(Clone, Debug)]
pub(crate) struct PKeyTable {
    keys: [u16; MAX_PKEYS],
    capacity: u16,
}

impl PKeyTable {
    /// Makes a table as it is at power-on: the default partition and nothing else.
    pub(crate) fn new(capacity: u16) -> PKeyTable {
        let mut keys = [0; MAX_PKEYS];
        let [first, ..] = &mut keys;
        *first = PKey::DEFAULT.get();
        PKeyTable { keys, capacity }
    }

    /// Returns an entry.
    pub(crate) fn get(&self, index: u16) -> Option<u16> {
        self.entries().get(usize::from(index)).copied()
    }

    /// Finds the entry that matches a packet's key: a full member's, else a limited one's.
    pub(crate) fn find(&self, key: PKey) -> Option<u16> {
        let find = |full| {
            let mut entries = (0..=u16::MAX).zip(self.entries());
            entries.find_map(|(index, &raw)| {
                let entry = PKey::new(raw);
                (entry.is_full() == full && entry.matches(key)).then_some(index)
            })
        };
        find(true).or_else(|| find(false))
    }

    /// Returns true if an entry matches a packet's key. A match of two limited members counts if
    /// `limited`.
    pub(crate) fn admits(&self, key: PKey, limited: bool) -> bool {
        let full = PKey::new(key.get() | 0x8000);
        let key = if limited { full } else { key };
        self.entries()
            .iter()
            .any(|&entry| PKey::new(entry).matches(key))
    }

    /// Reads a block. `None` beyond the end.
    pub(crate) fn read(&self, block: u16, data: &mut [u8]) -> Option<()> {
        let mut blocks = self.entries().chunks(PKEYS_PER_BLOCK);
        for (i, &key) in blocks.nth(usize::from(block))?.iter().enumerate() {
            entry(i, 2).put(data, key);
        }
        Some(())
    }

    /// Writes a block, as far as the table reaches. Returns whether it changed; `None` beyond
    /// the end.
    pub(crate) fn write(&mut self, block: u16, data: &[u8]) -> Option<bool> {
        let capacity = usize::from(self.capacity);
        let keys = self.keys.get_mut(..capacity)?;
        let keys = keys.chunks_mut(PKEYS_PER_BLOCK).nth(usize::from(block))?;
        let mut changed = false;
        for (i, key) in keys.iter_mut().enumerate() {
            let new = entry(i, 2).u16(data);
            changed |= core::mem::replace(key, new) != new;
        }
        Some(changed)
    }

    fn entries(&self) -> &[u16] {
        let capacity = usize::from(self.capacity);
        self.keys.get(..capacity).unwrap_or_default()
    }
}

/// The GUIDs of a port. The first is the port's own and never changes.
#[derive(Clone, Debug)]
pub(crate) struct GuidTable {
    guids: [Guid; MAX_GUIDS],
    capacity: u8,
}

impl GuidTable {
    /// Makes a table with the port's own GUID.
    pub(crate) fn new(capacity: u8, own: Guid) -> GuidTable {
        let mut guids = [Guid::NONE; MAX_GUIDS];
        let [first, ..] = &mut guids;
        *first = own;
        GuidTable { guids, capacity }
    }

    /// Returns the number of entries.
    pub(crate) fn capacity(&self) -> u8 {
        self.entries().len() as u8
    }

    /// Returns an entry, [`Guid::NONE`] if unused.
    pub(crate) fn get(&self, index: u8) -> Option<Guid> {
        self.entries().get(usize::from(index)).copied()
    }

    /// Returns true if a GUID is in the table.
    pub(crate) fn contains(&self, guid: Guid) -> bool {
        guid != Guid::NONE && self.entries().contains(&guid)
    }

    /// Reads a block. `None` beyond the end.
    pub(crate) fn read(&self, block: u32, data: &mut [u8]) -> Option<()> {
        let mut blocks = self.entries().chunks(GUIDS_PER_BLOCK);
        for (i, guid) in blocks.nth(block as usize)?.iter().enumerate() {
            entry(i, 8).put(data, guid.get());
        }
        Some(())
    }

    /// Writes a block, as far as the table reaches and without the port's own GUID. Returns
    /// whether it changed; `None` beyond the end.
    pub(crate) fn write(&mut self, block: u32, data: &[u8]) -> Option<bool> {
        let capacity = usize::from(self.capacity);
        let guids = self.guids.get_mut(..capacity)?;
        let guids = guids.chunks_mut(GUIDS_PER_BLOCK).nth(block as usize)?;
        let own = usize::from(block == 0);
        let mut changed = false;
        for (i, guid) in guids.iter_mut().enumerate().skip(own) {
            let new = Guid::new(entry(i, 8).u64(data));
            changed |= core::mem::replace(guid, new) != new;
        }
        Some(changed)
    }

    fn entries(&self) -> &[Guid] {
        let capacity = usize::from(self.capacity);
        self.guids.get(..capacity).unwrap_or_default()
    }
}

/// The bytes of one list of VLArbitrationTable.
type Arbitration = [u8; 2 * ARBITRATION_ENTRIES as usize];

/// The virtual lanes of a port: how many there are, which service levels they carry, and what
/// arbitration the subnet manager wants between them.
#[derive(Clone, Debug)]
pub(crate) struct VirtualLanes {
    operational: u8,
    pub(crate) high_limit: u8,
    mapping: [u8; 8],
    low: Arbitration,
    high: Arbitration,
}

impl VirtualLanes {
    /// Makes the lanes as they are at power-on: VL 0 carries all.
    pub(crate) fn new() -> VirtualLanes {
        VirtualLanes {
            operational: 1,
            high_limit: 0,
            mapping: [0; 8],
            low: [0; 16],
            high: [0; 16],
        }
    }

    /// Returns OperationalVLs, in the code of VLCap.
    pub(crate) fn operational(&self) -> u8 {
        self.operational
    }

    /// Sets OperationalVLs, 1 to VLCap.
    pub(crate) fn set_operational(&mut self, code: u8) {
        self.operational = code.clamp(1, VL_CAP);
    }

    /// Returns the lane of a service level: `None` if it maps to lane 15 or to one that is not
    /// operational.
    pub(crate) fn of(&self, sl: u8) -> Option<u8> {
        self.mapped(&self.mapping, sl)
    }

    /// Returns the lane of a service level as [`VirtualLanes::of`] does, by the mapping for the
    /// port that a packet came in by.
    pub(crate) fn mapped(&self, mapping: &[u8; 8], sl: u8) -> Option<u8> {
        let lanes = match self.operational {
            1 => 1,
            2 => 2,
            3 => 4,
            _ => 8,
        };
        let byte = mapping.get(usize::from(sl >> 1))?;
        let lane = if sl & 1 == 0 { byte >> 4 } else { byte & 0xf };
        (lane < lanes).then_some(lane)
    }

    /// Reads SLtoVLMappingTable.
    pub(crate) fn read_mapping(&self, data: &mut [u8]) {
        copy(&self.mapping, data);
    }

    /// Writes SLtoVLMappingTable.
    pub(crate) fn write_mapping(&mut self, data: &[u8]) {
        copy(data, &mut self.mapping);
    }

    /// Reads a block of VLArbitrationTable. `None` for one that these short lists do not have.
    pub(crate) fn read_arbitration(&self, block: u16, data: &mut [u8]) -> Option<()> {
        let list = match block {
            1 => &self.low,
            3 => &self.high,
            _ => return None,
        };
        copy(list, data);
        Some(())
    }

    /// Writes a block of VLArbitrationTable. `None` for one that these short lists do not have.
    pub(crate) fn write_arbitration(&mut self, block: u16, data: &[u8]) -> Option<()> {
        let list = match block {
            1 => &mut self.low,
            3 => &mut self.high,
            _ => return None,
        };
        copy(data, list);
        Some(())
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_tables))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    #[test]
    fn pkeys_in_blocks_of_32_up_to_the_capacity() {
        let mut table = PKeyTable::new(40);
        let mut block = [0; 64];
        block[..4].copy_from_slice(&[0x80, 0x01, 0x7f, 0xff]);
        assert_eq!(table.write(0, &block), Some(true));
        assert_eq!(table.write(0, &block), Some(false));
        assert_eq!((table.get(0), table.get(1)), (Some(0x8001), Some(0x7fff)));

        assert_eq!(table.write(1, &[0x12; 64]), Some(true));
        assert_eq!((table.get(39), table.get(40)), (Some(0x1212), None));
        let mut read = [0; 64];
        assert_eq!(table.read(1, &mut read), Some(()));
        assert_eq!(read[..16], [0x12; 16]);
        assert_eq!(read[16..], [0; 48]);

        assert_eq!(table.write(2, &block), None);
        assert_eq!(table.read(u16::MAX, &mut read), None);
    }

    #[test]
    fn entry_zero_goes_when_the_manager_writes_over_it() {
        let mut table = PKeyTable::new(1);
        assert_eq!(table.get(0), Some(0xffff));
        assert_eq!(table.write(0, &[0; 64]), Some(true));
        assert_eq!(table.get(0), Some(0));
    }

    #[test]
    fn full_member_is_found_before_limited() {
        let mut table = PKeyTable::new(4);
        let block = [0x00, 0x01, 0x80, 0x01, 0x00, 0x02, 0x80, 0x00];
        table.write(0, &block);
        // packet's key, index
        let cases = [
            (0x8001, Some(1)),
            (0x0001, Some(1)),
            (0x8002, Some(2)),
            (0x0002, None),
            (0x8000, None),
            (0x0000, None),
        ];
        for (key, index) in cases {
            assert_eq!(table.find(PKey::new(key)), index);
        }
    }

    #[test]
    fn own_guid_is_read_only() {
        let mut table = GuidTable::new(9, Guid::new(5));
        assert_eq!(table.write(0, &[0x11; 64]), Some(true));
        assert_eq!(table.get(0), Some(Guid::new(5)));
        assert_eq!(table.get(7), Some(Guid::new(0x1111_1111_1111_1111)));
        assert_eq!(table.write(0, &[0x11; 64]), Some(false));
        assert_eq!(table.write(1, &[0x22; 64]), Some(true));
        assert_eq!(table.get(9), None);
        let mut read = [0; 64];
        assert_eq!(table.read(1, &mut read), Some(()));
        assert_eq!((read[7], read[8]), (0x22, 0));
        assert_eq!(table.write(2, &[0; 64]), None);
        assert_eq!(table.read(u32::MAX, &mut read), None);
        assert!(table.contains(Guid::new(5)));
        assert!(!table.contains(Guid::NONE));
    }

    /// Section 14.2.5.8: four bits each, SL 0 in the high ones of the first byte.
    #[test]
    fn lanes_of_service_levels() {
        let mut lanes = VirtualLanes::new();
        assert_eq!(
            (lanes.of(0), lanes.of(15), lanes.of(16)),
            (Some(0), Some(0), None)
        );
        lanes.write_mapping(&[0x01, 0x7f, 0, 0, 0, 0, 0, 8]);
        lanes.set_operational(4);
        // service level, lane
        for (sl, lane) in [
            (0, Some(0)),
            (1, Some(1)),
            (2, Some(7)),
            (3, None),
            (15, None),
        ] {
            assert_eq!(lanes.of(sl), lane);
        }
        lanes.set_operational(2);
        assert_eq!((lanes.of(1), lanes.of(2)), (Some(1), None));
        let mut read = [0; 64];
        lanes.read_mapping(&mut read);
        assert_eq!(read[..8], [0x01, 0x7f, 0, 0, 0, 0, 0, 8]);
    }

    #[test]
    fn arbitration_has_two_short_lists() {
        let mut lanes = VirtualLanes::new();
        assert_eq!(lanes.write_arbitration(1, &[1; 64]), Some(()));
        assert_eq!(lanes.write_arbitration(3, &[3; 64]), Some(()));
        for (block, value) in [(1, 1), (3, 3)] {
            let mut read = [0; 64];
            assert_eq!(lanes.read_arbitration(block, &mut read), Some(()));
            assert_eq!(read[..16], [value; 16]);
            assert_eq!(read[16..], [0; 48]);
        }
        for block in [0, 2, 4, u16::MAX] {
            assert_eq!(lanes.write_arbitration(block, &[0; 64]), None);
            assert_eq!(lanes.read_arbitration(block, &mut [0; 64]), None);
        }
    }
}
