// SPDX-License-Identifier: GPL-2.0

//! The slots of a ring belong to one half at a time, for which who fills one has to vouch; and who makes the ring,
//! for their number.

use ipoib_rings::slots::{Slot, Slots};
use ipoib_rings::sync::AtomicU32;

type Ring = Slots<u32, &'static [Slot<u32>], &'static [AtomicU32]>;

fn make(slots: &'static [Slot<u32>], free: &'static [AtomicU32]) -> Option<Ring> {
    #[cfg(misuse)]
    return Slots::new(slots, free); //~ E0133
    #[cfg(not(misuse))]
    // SAFETY: This is not run.
    unsafe {
        Slots::new(slots, free)
    }
}

fn fill(ring: &Ring) {
    let free = ring.peek();
    #[cfg(misuse)]
    ring.fill(free.unwrap_or(0), 1, 7); //~ E0133
    #[cfg(not(misuse))]
    let _ = free;
}
