// SPDX-License-Identifier: GPL-2.0

//! A fixed-capacity hash table keyed by link-layer address, in storage that the caller provides.
//!
//! Open addressing without tombstones: an entry is in one of the [`PROBE`] slots from the one
//! that its hash names, and a look-up never tries another. The work per operation is bounded by
//! that, whatever addresses a peer makes up; the price is that an insertion can fail before the
//! table is full, and the remedy to take something idle out of the same window first.

use core::borrow::BorrowMut;
use core::ops::Range;

use crate::wire::hwaddr::HwAddr;

/// How many slots an entry can be in.
pub const PROBE: usize = 16;

/// Into how many groups the slots go, each of a power of two of slots that follow each other; a small table
/// has fewer. To walk over a large table that has few entries is to look at the groups that have some.
const GROUPS: usize = 256;

/// The secret of a table: random numbers that nobody outside can guess.
///
/// The hash is multilinear over the five 32-bit words of an address, which makes two different
/// addresses meet with a probability of no more than 2^-32 over the choice of the seed, whoever
/// chose the addresses (Lemire and Kaser, "Strongly universal string hashing is fast", 2014). A
/// mixing step behind it, one-to-one and without a secret, breaks up the even spacing
/// that consecutive addresses would keep.
#[derive(Clone, Copy)]
pub struct Seed(pub [u64; 6]);

impl Seed {
    /// Hashes an address without its flags.
    #[inline]
    pub const fn hash(&self, addr: &HwAddr) -> u32 {
        let (high, low, qpn) = addr.words();
        let [s0, s1, s2, s3, s4, s5] = self.0;
        let sum = s0
            .wrapping_add(s1.wrapping_mul(high & 0xffff_ffff))
            .wrapping_add(s2.wrapping_mul(high >> 32))
            .wrapping_add(s3.wrapping_mul(low & 0xffff_ffff))
            .wrapping_add(s4.wrapping_mul(low >> 32))
            .wrapping_add(s5.wrapping_mul(qpn as u64));
        let mixed = (sum ^ (sum >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        (mixed >> 32) as u32
    }
}

/// A place for one entry.
#[derive(Debug)]
pub struct Slot<V> {
    hash: u32,
    entry: Option<(HwAddr, V)>,
}

impl<V> Slot<V> {
    /// An empty slot, to fill the storage with.
    pub const EMPTY: Slot<V> = Slot {
        hash: 0,
        entry: None,
    };

    #[inline]
    fn holds(&self, hash: u32, addr: &HwAddr) -> bool {
        self.hash == hash
            && match &self.entry {
                Some((key, _)) => key.same_peer(addr),
                None => false,
            }
    }
}

/// Why an entry could not be inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsertError {
    /// There is one for this address already.
    Exists,
    /// All the slots that it could be in are taken.
    Full,
}

/// A table of `V` by link-layer address, flags ignored.
///
/// `S` is the storage: a power of two of slots in anything that lends a slice, such as an array or
/// one of the kernel's vectors.
pub struct Table<V, S> {
    storage: S,
    seed: Seed,
    len: usize,
    /// Place at which the last look-up to change something ended: most frames go where the one before went.
    last: usize,
    /// A bit for each group: whether any of its slots has an entry.
    busy: [u64; GROUPS / 64],
    /// The slots of a group are 2 to the power of this.
    group_shift: u32,
    value: core::marker::PhantomData<V>,
}

impl<V, S: BorrowMut<[Slot<V>]>> Table<V, S> {
    /// Makes an empty table; `None` unless the number of slots is a power of two.
    pub fn new(mut storage: S, seed: Seed) -> Option<Self> {
        let slots = storage.borrow_mut();
        if !slots.len().is_power_of_two() {
            return None;
        }
        let group_shift = slots.len().div_ceil(GROUPS).trailing_zeros();
        for slot in slots {
            slot.entry = None;
        }
        Some(Table {
            storage,
            seed,
            len: 0,
            last: 0,
            busy: [0; GROUPS / 64],
            group_shift,
            value: core::marker::PhantomData,
        })
    }

    /// How many entries there are.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there is no entry.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many slots there are.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.storage.borrow().len()
    }

    /// The indices of the slots that `hash` can be in.
    #[inline]
    fn window(&self, hash: u32) -> impl Iterator<Item = usize> {
        let capacity = self.capacity();
        // A power of two, so never 0.
        let mask = capacity.wrapping_sub(1);
        (0..PROBE.min(capacity)).map(move |step| (hash as usize).wrapping_add(step) & mask)
    }

    #[inline]
    fn find(&self, addr: &HwAddr) -> Option<usize> {
        let hash = self.seed.hash(addr);
        let slots = self.storage.borrow();
        self.window(hash)
            .find(|&at| slots.get(at).is_some_and(|slot| slot.holds(hash, addr)))
    }

    /// Looks an address up.
    #[inline]
    pub fn get(&self, addr: &HwAddr) -> Option<&V> {
        let at = self.find(addr)?;
        let (_, value) = self.storage.borrow().get(at)?.entry.as_ref()?;
        Some(value)
    }

    /// Looks an address up to change what is stored under it.
    #[inline]
    pub fn get_mut(&mut self, addr: &HwAddr) -> Option<&mut V> {
        if !self.is_at(self.last, addr) {
            return self.look_up(addr);
        }
        self.at_last()
    }

    /// Looks up an address other than the last one, out of line since callers seldom need it.
    #[inline(never)]
    fn look_up(&mut self, addr: &HwAddr) -> Option<&mut V> {
        self.last = self.find(addr)?;
        self.at_last()
    }

    #[inline]
    fn at_last(&mut self) -> Option<&mut V> {
        let (_, value) = self
            .storage
            .borrow_mut()
            .get_mut(self.last)?
            .entry
            .as_mut()?;
        Some(value)
    }

    /// Returns true if the entry of an address is in slot `at`.
    // For every frame, in each direction; left to itself, the compiler calls it.
    #[inline(always)]
    fn is_at(&self, at: usize, addr: &HwAddr) -> bool {
        match self.storage.borrow().get(at).map(|slot| &slot.entry) {
            Some(Some((key, _))) => key.same_peer(addr),
            _ => false,
        }
    }

    /// Inserts a value under a new address.
    ///
    /// # Errors
    ///
    /// Gives the value back with the reason; the table is as before then. On
    /// [`InsertError::Full`], [`Table::victim`] names an entry to remove first.
    pub fn insert(&mut self, addr: HwAddr, value: V) -> Result<&mut V, (InsertError, V)> {
        if self.find(&addr).is_some() {
            return Err((InsertError::Exists, value));
        }
        let hash = self.seed.hash(&addr);
        let slots = self.storage.borrow();
        let free = self
            .window(hash)
            .find(|&at| slots.get(at).is_some_and(|slot| slot.entry.is_none()));
        let Some(at) = free else {
            return Err((InsertError::Full, value));
        };
        self.note(at, true);
        let Some(slot) = self.storage.borrow_mut().get_mut(at) else {
            return Err((InsertError::Full, value));
        };
        self.len = self.len.saturating_add(1);
        slot.hash = hash;
        let (_, value) = slot.entry.insert((addr, value));
        Ok(value)
    }

    /// Takes an entry out.
    pub fn remove(&mut self, addr: &HwAddr) -> Option<V> {
        let at = self.find(addr)?;
        let (_, value) = self.take(at)?;
        Some(value)
    }

    /// Empties one slot.
    fn take(&mut self, at: usize) -> Option<(HwAddr, V)> {
        let entry = self.storage.borrow_mut().get_mut(at)?.entry.take()?;
        self.len = self.len.saturating_sub(1);
        let group = self.group_of(at);
        let slots = self.storage.borrow().get(self.slots_of(group));
        if slots.is_some_and(|slots| slots.iter().all(|slot| slot.entry.is_none())) {
            self.note(at, false);
        }
        Some(entry)
    }

    #[inline]
    fn group_of(&self, at: usize) -> usize {
        at.wrapping_shr(self.group_shift)
    }

    fn slots_of(&self, group: usize) -> Range<usize> {
        let first = group.wrapping_shl(self.group_shift);
        first..first.wrapping_add(1_usize.wrapping_shl(self.group_shift))
    }

    /// Notes whether the group of slot `at` has an entry.
    fn note(&mut self, at: usize, has: bool) {
        let group = self.group_of(at);
        if let Some(bits) = self.busy.get_mut(group / 64) {
            let bit = 1_u64.wrapping_shl((group % 64) as u32);
            *bits = if has { *bits | bit } else { *bits & !bit };
        }
    }

    /// The first group from `group` on that has an entry.
    fn next_busy(&self, group: usize) -> Option<usize> {
        let mut word = group / 64;
        let mut bits = *self.busy.get(word)? & u64::MAX.wrapping_shl((group % 64) as u32);
        while bits == 0 {
            word = word.wrapping_add(1);
            bits = *self.busy.get(word)?;
        }
        Some(
            word.wrapping_mul(64)
                .wrapping_add(bits.trailing_zeros() as usize),
        )
    }

    /// Among the entries that are in the way of `addr`, names the one with the highest score;
    /// those without a score stay. A good score is the time for which an entry was idle.
    pub fn victim(
        &self,
        addr: &HwAddr,
        mut score: impl FnMut(&V) -> Option<u64>,
    ) -> Option<HwAddr> {
        let slots = self.storage.borrow();
        self.window(self.seed.hash(addr))
            .filter_map(|at| slots.get(at)?.entry.as_ref())
            .filter_map(|(key, value)| Some((score(value)?, key)))
            .max_by_key(|(score, _)| *score)
            .map(|(_, key)| *key)
    }

    /// Returns what is in the slot with index `at`, which is less than [`Table::capacity`], to walk
    /// a large table in several steps.
    pub fn slot_mut(&mut self, at: usize) -> Option<(&HwAddr, &mut V)> {
        let (key, value) = self.storage.borrow_mut().get_mut(at)?.entry.as_mut()?;
        Some((key, value))
    }

    /// The first of a range of slots that has an entry, so that empty ones cost little on such a walk.
    pub fn first_in(&self, range: Range<usize>) -> Option<usize> {
        let slots = self.storage.borrow();
        let mut at = range.start;
        while at < range.end {
            let group = self.slots_of(self.next_busy(self.group_of(at))?);
            let first = group.start.max(at);
            at = group.end;
            // None if the group is behind the range.
            let rest = slots.get(first..group.end.min(range.end))?;
            if let Some(i) = rest.iter().position(|slot| slot.entry.is_some()) {
                return Some(first.wrapping_add(i));
            }
        }
        None
    }

    /// Walks over all entries in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&HwAddr, &V)> + '_ {
        let slots = self.storage.borrow();
        let mut rest = 0..slots.len();
        core::iter::from_fn(move || {
            let at = self.first_in(rest.clone())?;
            rest.start = at.wrapping_add(1);
            slots
                .get(at)?
                .entry
                .as_ref()
                .map(|(key, value)| (key, value))
        })
    }

    /// Walks over all entries in no particular order to change them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&HwAddr, &mut V)> + '_ {
        let busy = self.busy;
        let group_len = 1_usize.wrapping_shl(self.group_shift);
        self.storage
            .borrow_mut()
            .chunks_mut(group_len)
            .enumerate()
            .filter(move |(group, _)| {
                let bits = busy.get(group / 64).copied().unwrap_or(0);
                bits.wrapping_shr((group % 64) as u32) & 1 != 0
            })
            .flat_map(|(_, slots)| slots)
            .filter_map(|slot| slot.entry.as_mut().map(|(key, value)| (&*key, value)))
    }

    /// Takes any entry out: to empty the table one entry at a time.
    pub fn pop(&mut self) -> Option<(HwAddr, V)> {
        self.take(self.first_in(0..self.capacity())?)
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_table))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;
    use crate::wire::hwaddr::Flags;

    const SEED: Seed = Seed([
        0x0123_4567_89ab_cdef,
        0xfedc_ba98_7654_3210,
        0x0f1e_2d3c_4b5a_6978,
        0x8796_a5b4_c3d2_e1f0,
        0x1357_9bdf_0246_8ace,
        0xeca8_6420_fdb9_7531,
    ]);

    fn addr(number: u32) -> HwAddr {
        let mut addr = HwAddr([0; 20]);
        addr.0[16..].copy_from_slice(&number.to_be_bytes());
        addr
    }

    fn table() -> Option<Table<u32, [Slot<u32>; 32]>> {
        Table::new([Slot::EMPTY; 32], SEED)
    }

    #[test]
    fn insert_get_remove() -> Result<(), ()> {
        let mut table = table().ok_or(())?;
        assert_eq!(table.get(&addr(1)), None);
        assert_eq!(table.insert(addr(1), 10), Ok(&mut 10));
        assert_eq!(table.insert(addr(1), 11), Err((InsertError::Exists, 11)));
        assert_eq!(table.get(&addr(1)), Some(&10));
        assert_eq!(table.get_mut(&addr(1)), Some(&mut 10));
        // The next look-up finds it at once.
        assert!(table.is_at(table.last, &addr(1)) && !table.is_at(table.last, &addr(2)));
        assert!(table.len() == 1 && !table.is_empty());
        assert_eq!(table.remove(&addr(1)), Some(10));
        assert_eq!(table.remove(&addr(1)), None);
        assert!(table.is_empty());
        Ok(())
    }

    /// RFC 4391, section 9.1.1: the reserved byte is no part of who the peer is.
    #[test]
    fn rfc4391_9_1_1_flags_are_no_part_of_the_key() -> Result<(), ()> {
        let mut table = table().ok_or(())?;
        assert!(table.insert(addr(1), 10).is_ok());
        assert_eq!(table.get(&addr(1).with_flags(Flags::RC)), Some(&10));
        Ok(())
    }

    #[test]
    fn every_byte_but_the_flags_counts() {
        let hash = SEED.hash(&addr(1));
        assert_eq!(SEED.hash(&addr(1).with_flags(Flags(0xff))), hash);
        for byte in 1..20 {
            let mut other = addr(1);
            other.0[byte] ^= 0x80;
            assert!(SEED.hash(&other) != hash);
        }
    }

    /// Entries come and go, and what is there stays findable: there are no tombstones to fill up.
    #[test]
    fn churn_leaves_no_trace() -> Result<(), ()> {
        let mut table = table().ok_or(())?;
        assert!(table.insert(addr(0), 0).is_ok());
        for number in 1..1000 {
            assert!(table.insert(addr(number), number).is_ok());
            assert_eq!(table.get(&addr(0)), Some(&0));
            assert_eq!(table.remove(&addr(number)), Some(number));
        }
        assert_eq!(table.len(), 1);
        // No group is left marked that a walk would visit for nothing.
        assert_eq!(table.busy.map(u64::count_ones).iter().sum::<u32>(), 1);
        Ok(())
    }

    #[test]
    fn a_full_table_names_a_victim() -> Result<(), ()> {
        let mut table = Table::new([Slot::EMPTY; 4], SEED).ok_or(())?;
        for number in 0..4 {
            assert!(table.insert(addr(number), number).is_ok());
        }
        assert_eq!(table.insert(addr(9), 9), Err((InsertError::Full, 9)));
        assert_eq!(table.victim(&addr(9), |_| None), None);
        let idle = |value: &u32| (*value != 3).then_some(u64::from(*value));
        assert_eq!(table.victim(&addr(9), idle), Some(addr(2)));
        assert_eq!(table.remove(&addr(2)), Some(2));
        assert!(table.insert(addr(9), 9).is_ok());
        assert_eq!(table.iter().count(), 4);
        assert_eq!(table.iter().map(|(_, value)| *value).sum::<u32>(), 13);
        Ok(())
    }

    #[test]
    fn change_and_empty() -> Result<(), ()> {
        let mut table = table().ok_or(())?;
        assert!(table.insert(addr(1), 1).is_ok());
        assert!(table.insert(addr(2), 2).is_ok());
        assert_eq!(table.remove(&addr(1)), Some(1));
        for (_, value) in table.iter_mut() {
            *value += 5;
        }
        assert_eq!(table.pop(), Some((addr(2), 7)));
        assert_eq!(table.pop(), None);
        Ok(())
    }

    #[test]
    fn sizes_are_powers_of_two() {
        assert!(Table::<u32, [Slot<u32>; 0]>::new([], SEED).is_none());
        assert!(Table::<u32, [Slot<u32>; 3]>::new([Slot::EMPTY; 3], SEED).is_none());
        assert!(Table::<u32, [Slot<u32>; 1]>::new([Slot::EMPTY; 1], SEED).is_some());
    }

    /// The hash as its paper has it: a sum of products of random numbers with 32-bit words, then mixed.
    #[test]
    fn the_hash_is_multilinear() {
        for number in 0..100u32 {
            let mut bytes = [0; 20];
            for (n, byte) in (1u32..).zip(&mut bytes) {
                *byte = (number.wrapping_mul(n).wrapping_mul(0x9e37_79b9) >> 24) as u8;
            }
            let words = |at: usize| {
                let [a, b, c, d, e, f, g, h] = core::array::from_fn(|i| bytes[at + i]);
                let word = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
                [word % (1 << 32), word / (1 << 32)]
            };
            let qpn = u32::from_ne_bytes([0, bytes[1], bytes[2], bytes[3]]);
            let ([a, b], [c, d]) = (words(4), words(12));
            let mut sum = SEED.0[0];
            for (seed, word) in SEED.0[1..].iter().zip([a, b, c, d, qpn.into()]) {
                sum = sum.wrapping_add(seed.wrapping_mul(word));
            }
            let mixed = (sum ^ (sum / (1 << 32))).wrapping_mul(0xd6e8_feb8_6659_fd93);
            assert_eq!(u64::from(SEED.hash(&HwAddr(bytes))), mixed / (1 << 32));
        }
    }

    #[test]
    fn a_slot_holds_one_address() {
        let mut slot = Slot {
            hash: 7,
            entry: Some((addr(1), 10)),
        };
        assert!(slot.holds(7, &addr(1)) && !slot.holds(8, &addr(1)));
        // The hashes of two addresses may be the same.
        assert!(!slot.holds(7, &addr(2)));
        slot.entry = None;
        assert!(!slot.holds(7, &addr(1)));
    }
}
