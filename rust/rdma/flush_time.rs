// SPDX-License-Identifier: GPL-2.0

//! The time that is waited for queue pairs in error.

use kernel::time::{delay::fsleep, Delta};

/// Time for queue pairs in error to flush their requests: two seconds, for all that are taken down together.
pub struct FlushTime {
    left_ms: u32,
}

impl FlushTime {
    /// All of it.
    pub const fn new() -> Self {
        Self { left_ms: 2000 }
    }

    /// Less of it.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) fn of(left_ms: u32) -> Self {
        Self { left_ms }
    }

    /// Waits for a millisecond, unless the time is over: false.
    ///
    /// # Context
    ///
    /// Process context; sleeps.
    pub(crate) fn wait(&mut self) -> bool {
        let Some(left_ms) = self.left_ms.checked_sub(1) else {
            return false;
        };
        self.left_ms = left_ms;
        fsleep(Delta::from_millis(1));
        true
    }
}

impl Default for FlushTime {
    fn default() -> Self {
        Self::new()
    }
}
