// SPDX-License-Identifier: GPL-2.0

//! Completion queues that need not be polled.
//!
//! A poll of several queues can skip one that is *quiet*: it was armed, and its event has not come.
//! This loses nothing:
//!
//! * Only [`Quiet::arm`] makes a queue quiet, and it does so *before* it asks the device, in full
//!   order. What follows from that, the event, the answer that completions were missed or the refusal,
//!   comes later and ends it. An event that was on its way already may end it too, or not: what it was for is
//!   there when the device is asked.
//! * The event ends it *before* it schedules the poll. Both that and the end of a poll change NAPI's
//!   state in full order: a poll that begins later, or one more if one is running, finds the queue
//!   not quiet.
//! * If two ask at a time, since the next poll may run on another CPU, one of them finds it quiet and
//!   leaves it to the other, which is just about to ask.
//! * It may be ended at any time, and a quiet queue be polled, which costs a look in vain.

use crate::ops::Ops;
use crate::sync::AtomicBool;

/// A flag that is set while a queue is quiet.
///
/// # Examples
///
/// ```
/// use ipoib_rings::quiet::Quiet;
///
/// let queue = Quiet::new();
/// // The device has nothing now, and will tell.
/// assert_eq!(queue.arm(|| Ok::<_, ()>(false)), Ok(false));
/// assert!(queue.get());
/// queue.end();
/// // The device has something that no event will come for: poll again.
/// assert_eq!(queue.arm(|| Ok::<_, ()>(true)), Ok(true));
/// assert!(!queue.get());
/// // The device will not tell.
/// assert_eq!(queue.arm(|| Err(())), Err(()));
/// assert!(!queue.get());
/// ```
///
/// # Invariants
///
/// While it is, the device will tell of all that is in the queue, or somebody is in [`Self::arm`] who
/// will.
pub struct Quiet(AtomicBool);

impl Quiet {
    /// Not quiet.
    pub fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Returns true if it is.
    #[inline]
    pub fn get(&self) -> bool {
        self.0.get()
    }

    /// Ends the quiet: there may be completions, or somebody wants to look.
    #[inline]
    pub fn end(&self) {
        self.0.set(false);
    }

    /// Asks for an event by `notify`, unless one is being waited for. `notify` says whether there may
    /// be completions that no event will come for; this says so to the caller, who has to poll again.
    ///
    /// # Errors
    ///
    /// Those of `notify`: no event will come.
    // For every poll; left to itself, the compiler calls it, for one that is quiet as well.
    #[inline(always)]
    pub fn arm<E>(&self, notify: impl FnOnce() -> Result<bool, E>) -> Result<bool, E> {
        // INVARIANT: If it is so already, another has asked or will; otherwise we do.
        if self.get() || self.0.replace_full(false, true).is_err() {
            return Ok(false);
        }
        match notify() {
            Ok(false) => Ok(false),
            again => {
                self.end();
                again
            }
        }
    }
}

impl Default for Quiet {
    fn default() -> Self {
        Self::new()
    }
}
