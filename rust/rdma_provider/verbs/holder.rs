// SPDX-License-Identifier: GPL-2.0

//! Memory of a device, with the counts of its objects, which are limited.

use core::mem;

use ib_fabric::fault::Verb;
use ipoib_sys::bindings;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};

use crate::faults::Faults;

/// Memory of a device.
///
/// # Invariants
///
/// Until the device is freed, `adapter` is its adapter, and `faults` are the adapter's.
#[repr(C)]
pub(crate) struct Holder<A> {
    device: bindings::ib_device,
    // In front of the adapter, so that its place does not depend on that one's type.
    pub(crate) faults: *const Faults,
    pub(crate) adapter: *const A,
    counts: Counts,
}

/// Number of objects of a kind. All zero, as memory that is cleared, it is 0.
pub(super) struct Count(Atomic<u32>);

/// Numbers of the objects of a device.
pub(crate) struct Counts {
    pub(super) handles: Count,
    pub(super) completion_queues: Count,
    pub(super) domains: Count,
    pub(super) queue_pairs: Count,
    pub(super) receive_queues: Count,
    pub(super) regions: Count,
}

impl Count {
    /// Counts one that is being made.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there are as many as there may be.
    ///
    /// # Context
    ///
    /// Any.
    pub(super) fn claim(&self, limit: u32) -> Result<Claim<'_>> {
        let mut old = self.0.load(Relaxed);
        while old < limit {
            match self.0.cmpxchg(old, old + 1, Relaxed) {
                Ok(_) => return Ok(Claim(self)),
                Err(now) => old = now,
            }
        }
        Err(ENOMEM)
    }

    /// Counts one less, which is gone.
    ///
    /// # Context
    ///
    /// Any.
    pub(super) fn release(&self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// An object that is being made. If this is dropped, it was not.
pub(super) struct Claim<'a>(&'a Count);

impl Claim<'_> {
    /// The object was made: [`Count::release`] is for when it is gone.
    pub(super) fn keep(self) {
        mem::forget(self);
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// The faults of a device.
///
/// # Safety
///
/// `device` has to be one of this crate's, for `'a`.
pub(super) unsafe fn faults<'a>(device: *const bindings::ib_device) -> &'a Faults {
    // SAFETY: By the safety requirement it lies in a `Holder`, which has them by its invariant, at a place that does
    // not depend on the adapter's type.
    unsafe { &*(*device.cast::<Holder<()>>()).faults }
}

/// The limits and the numbers of a device's objects, for a verb that makes or ends one.
///
/// # Errors
///
/// That with which the verb is to fail.
///
/// # Safety
///
/// `device` has to be one of this crate's, with its attributes set, for `'a`.
pub(super) unsafe fn limited<'a>(
    device: *const bindings::ib_device,
    verb: Verb,
) -> Result<(&'a bindings::ib_device_attr, &'a Counts)> {
    // SAFETY: By the safety requirement.
    unsafe { faults(device) }.strike(verb)?;
    // SAFETY: As for `faults`. RDMA core sets the attributes before it makes any object.
    Ok(unsafe { (&(*device).attrs, &(*device.cast::<Holder<()>>()).counts) })
}
