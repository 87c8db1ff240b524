// SPDX-License-Identifier: GPL-2.0

//! A ring whose slots are emptied in any order.
//!
//! Sends of different queue pairs complete in any order, so that slots are not used in turn: `free` is a
//! ring of the numbers of the slots that are free. `taken` counts the slots that were ever taken off it,
//! `given` those that were ever put back; both only grow, modulo 2^32. The numbers of the free slots
//! stand at the places from `taken` up to `given` plus the size. The producer takes and then owns them;
//! a slot that it has posted belongs to the consumer, which owns those places, and puts the
//! number back when it has emptied the slot.
//!
//! A slot says whose it is: its `state` is 0 while it is free or being filled, and the generation of the
//! work request from just before that is posted until the slot is emptied. The generation is part of the
//! work request's identifier, so that a completion of what is not posted is of no effect.

use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ops::Deref;

use crate::line::Line;
use crate::ops::Ops;
use crate::sync::{AtomicU32, Cell};
use crate::unsent::Unsent;

/// The identifier of the work request of slot `index` with a generation.
#[inline]
pub fn id(index: u32, generation: u32) -> u64 {
    (u64::from(generation) << 32) | u64::from(index)
}

/// The slot's index in an identifier, and the generation.
#[inline]
pub fn parts(id: u64) -> (u32, u32) {
    (id as u32, (id >> 32) as u32)
}

/// A place for a frame.
///
/// # Invariants
///
/// `frame` is the producer's while `state` is 0 and the slot is not free; the consumer's while
/// `state` is not 0, when it has a value.
pub struct Slot<T> {
    state: AtomicU32,
    frame: Cell<MaybeUninit<T>>,
}

impl<T> Slot<T> {
    /// A free slot.
    pub fn new() -> Self {
        // INVARIANT: It needs no frame.
        Self {
            state: AtomicU32::new(0),
            frame: Cell::new(MaybeUninit::uninit()),
        }
    }
}

impl<T> Drop for Slot<T> {
    fn drop(&mut self) {
        if self.state.get() != 0 {
            self.frame.with_mut(|frame| {
                // SAFETY: There is a value by the type invariant, and nobody else has a reference.
                unsafe { (*frame).assume_init_drop() };
            });
        }
    }
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// State shared by both halves.
///
/// # Invariants
///
/// * `slots` and `free` have the same number of elements, a power of two.
/// * `taken`, `given` and `free` are as the module's documentation says.
pub struct Slots<T, S, F> {
    /// Written by the producer.
    taken: Line<AtomicU32>,
    /// Written by the consumer.
    given: Line<AtomicU32>,
    slots: S,
    free: F,
    unsent: Unsent,
    _frame: PhantomData<T>,
}

impl<T, S: Deref<Target = [Slot<T>]>, F: Deref<Target = [AtomicU32]>> Slots<T, S, F> {
    /// A ring of free slots, whose numbers are in `free`, all of them; None unless they are as many, a
    /// power of two.
    ///
    /// # Safety
    ///
    /// `slots` and `free` must dereference to the same elements each time, of which nobody else has a reference.
    pub unsafe fn new(slots: S, free: F) -> Option<Self> {
        let size = slots.len();
        let is_valid = size.is_power_of_two() && size <= 1 << 31 && free.len() == size;
        if !is_valid || !(0u32..).zip(free.iter()).all(|(n, place)| place.get() == n) {
            return None;
        }
        // INVARIANT: Checked, and so for good by this function's requirements; `Slot::new` makes free slots only.
        Some(Self {
            taken: Line::new(AtomicU32::new(0)),
            given: Line::new(AtomicU32::new(0)),
            slots,
            free,
            unsent: Unsent::new(),
            _frame: PhantomData,
        })
    }

    /// How many slots there are.
    #[inline]
    pub fn size(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Frames that the device has refused.
    #[inline]
    pub fn unsent(&self) -> &Unsent {
        &self.unsent
    }

    /// The place in `free` with number `n`.
    #[inline]
    fn place(&self, n: u32) -> &AtomicU32 {
        // SAFETY: The index is below the length, which is a power of two.
        unsafe {
            self.free
                .get_unchecked(n as usize & self.free.len().wrapping_sub(1))
        }
    }

    /// About how many slots are free.
    #[inline]
    pub fn free(&self) -> u32 {
        let in_use = self.taken.get().wrapping_sub(self.given.get());
        self.size().wrapping_sub(in_use)
    }

    /// The number of the slot that would be taken next, as the producer, if one is free.
    #[inline]
    pub fn peek(&self) -> Option<u32> {
        let taken = self.taken.get();
        if taken.wrapping_sub(self.given.load_acquire()) == self.size() {
            return None;
        }
        Some(self.place(taken).get())
    }

    /// Takes the slot that [`Self::peek`] named and fills it: from now on the device may have it.
    ///
    /// # Safety
    ///
    /// The caller must be the producer, and have peeked; `generation` is not 0.
    #[inline]
    pub unsafe fn fill(&self, index: u32, generation: u32, frame: T) {
        // SAFETY: What `free` holds is below the number of slots.
        let slot = unsafe { self.slots.get_unchecked(index as usize) };
        slot.frame.with_mut(|place| {
            // SAFETY: The slot is free, and so the producer's.
            unsafe { (*place).write(frame) };
        });
        // The consumer that sees this sees the frame as well.
        slot.state.store_release(generation);
        self.taken.set(self.taken.get().wrapping_add(1));
    }

    /// Takes back the last slot that was filled, which the device does not have, and its frame. None: it was emptied.
    ///
    /// # Safety
    ///
    /// The caller must be the producer, and have filled the slot; the device must have refused its work request, and those
    /// of all slots that were filled after it must have been taken back before.
    pub unsafe fn take_back(&self) -> Option<(u32, T)> {
        let last = self.taken.get().wrapping_sub(1);
        // The place was not used since: it is used for a slot that is emptied once all taken before it
        // have been emptied, and this one has not been.
        let index = self.place(last).get();
        // SAFETY: As in `fill`.
        let slot = unsafe { self.slots.get_unchecked(index as usize) };
        // A completion has named it, although the device has refused it.
        if slot.state.load_acquire() == 0 {
            return None;
        }
        // INVARIANT: No completion names it, so that it is the producer's again, and free.
        slot.state.set(0);
        let frame = slot.frame.with_mut(|frame| {
            // SAFETY: The slot was filled, and its value is not used again.
            unsafe { (*frame).assume_init_read() }
        });
        self.taken.set(last);
        Some((index, frame))
    }

    /// Empties the slot of a work request that has completed, as the consumer, after `f` has seen the
    /// slot's index and its frame. None: it is not posted.
    ///
    /// # Safety
    ///
    /// The caller must be the consumer, and the device be done with it.
    #[inline(always)]
    pub unsafe fn empty(&self, id: u64, f: impl FnOnce(u32, &T)) -> Option<T> {
        let (index, generation) = parts(id);
        let slot = self.slots.get(index as usize)?;
        if generation == 0 || slot.state.load_acquire() != generation {
            return None;
        }
        let frame = slot.frame.with_mut(|frame| {
            // SAFETY: Its state says that it has a frame, which belongs to the consumer. It is not used again.
            unsafe {
                f(index, (*frame).assume_init_ref());
                (*frame).assume_init_read()
            }
        });
        self.give_back(index, slot);
        Some(frame)
    }

    /// Returns true if all slots are free, once nobody posts any more.
    pub fn is_idle(&self) -> bool {
        self.taken.get() == self.given.load_acquire()
    }

    /// Calls `keep` with each posted frame, as the consumer, and empties the slots of those for which it
    /// returns false: `removed` gets their indices and frames.
    ///
    /// # Safety
    ///
    /// The caller must be the consumer, and the producer be at rest; the device must be done with what `keep`
    /// does not keep.
    pub unsafe fn sweep(
        &self,
        mut keep: impl FnMut(&mut T) -> bool,
        mut removed: impl FnMut(u32, T),
    ) {
        for (index, slot) in (0u32..).zip(self.slots.iter()) {
            if slot.state.load_acquire() == 0 {
                continue;
            }
            let frame = slot.frame.with_mut(|frame| {
                // SAFETY: Its state says that it has a frame, which belongs to the consumer, from which nobody takes
                // it back now. One that is read is not used again.
                unsafe {
                    let is_kept = keep((*frame).assume_init_mut());
                    (!is_kept).then(|| (*frame).assume_init_read())
                }
            });
            if let Some(frame) = frame {
                self.give_back(index, slot);
                removed(index, frame);
            }
        }
    }

    /// Puts an emptied slot back, as the consumer.
    #[inline(always)]
    fn give_back(&self, index: u32, slot: &Slot<T>) {
        slot.state.set(0);
        let given = self.given.get();
        self.place(given).set(index);
        // The producer sees the place, and the empty slot, when it sees the count.
        self.given.store_release(given.wrapping_add(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;

    /// Neither half writes to a line that the other writes to, or that both read for every frame.
    #[test]
    fn halves_write_to_lines_of_their_own() {
        type Tested = Slots<u8, &'static [Slot<u8>], &'static [AtomicU32]>;
        let line = |offset: usize| offset / crate::line::LEN;
        let lines = [
            line(offset_of!(Tested, taken)),
            line(offset_of!(Tested, given)),
            line(offset_of!(Tested, slots)),
            line(offset_of!(Tested, free)),
            line(offset_of!(Tested, unsent)),
        ];
        assert_eq!(align_of::<Tested>(), crate::line::LEN);
        assert!(lines[0] != lines[1]);
        assert!(lines[2..].iter().all(|shared| !lines[..2].contains(shared)));
    }
}
