// SPDX-License-Identifier: GPL-2.0

//! Flags for the two NAPIs, which read them without the transmit lock.

use ipoib_netdev::relaxed::Relax;
use kernel::sync::atomic::{Atomic, Relaxed};

/// Flags for the two NAPIs.
pub(crate) struct Shared {
    /// Frames wait for room or for credit.
    stalled: Atomic<bool>,
    /// The queue is stopped, since so many frames wait.
    blocked: Atomic<bool>,
}

impl Shared {
    pub(crate) const fn new() -> Self {
        Self {
            stalled: Atomic::new(false),
            blocked: Atomic::new(false),
        }
    }

    /// Notes that a frame waits, under the transmit lock. True: none did before.
    pub(crate) fn begin_stall(&self) -> bool {
        let begins = !self.is_stalled();
        if begins {
            self.stalled.store(true, Relaxed);
        }
        begins
    }

    /// Notes that what waits is looked at, under the transmit lock.
    pub(crate) fn end_stall(&self) {
        self.stalled.store(false, Relaxed);
    }

    /// Returns true if frames wait for room or for credit.
    #[inline]
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled.get()
    }

    /// Notes that the queue is stopped, since so much waits, under the transmit lock. True: it was not before.
    pub(crate) fn begin_block(&self) -> bool {
        let begins = !self.is_blocked();
        if begins {
            self.blocked.store(true, Relaxed);
        }
        begins
    }

    /// Notes that the queue need not be stopped any more, under the transmit lock.
    pub(crate) fn end_block(&self) {
        self.blocked.store(false, Relaxed);
    }

    /// Returns true if the queue is to stay stopped, since so much waits.
    #[inline]
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked.get()
    }
}
