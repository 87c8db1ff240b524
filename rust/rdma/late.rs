// SPDX-License-Identifier: GPL-2.0

//! Devices that do not flush queue pairs in error in time.

use ipoib_netdev::clock::now_ms;
use kernel::sync::atomic::{Atomic, Relaxed};

/// When a device was last found not to flush, if ever, by [`now_ms`].
pub(crate) struct Late(Atomic<u64>);

impl Late {
    /// Never.
    pub(crate) const fn never() -> Self {
        Self(Atomic::new(0))
    }

    /// Now.
    pub(crate) fn note(&self) {
        self.0.store(now_ms().max(1), Relaxed);
    }

    /// Returns true if that was less than so many milliseconds ago.
    pub(crate) fn is_within(&self, ms: u64) -> bool {
        let then = self.0.load(Relaxed);
        then != 0 && now_ms().saturating_sub(then) < ms
    }
}
