// SPDX-License-Identifier: GPL-2.0

//! The time that is waited for queue pairs in error.

use kernel::time::{delay::fsleep, Delta, Instant, Monotonic};

/// Time for queue pairs in error to flush their requests: two seconds, for all that are taken down together.
pub struct FlushTime {
    begin: Instant<Monotonic>,
    limit: Delta,
}

impl FlushTime {
    /// All of it, from now on.
    pub fn new() -> Self {
        Self::of(2000)
    }

    /// So many milliseconds, from now on.
    pub(crate) fn of(limit_ms: i64) -> Self {
        Self {
            begin: Instant::now(),
            limit: Delta::from_millis(limit_ms),
        }
    }

    /// Waits for a millisecond, unless the time is over: false.
    ///
    /// # Context
    ///
    /// Process context; sleeps.
    pub(crate) fn wait(&mut self) -> bool {
        let waits = self.begin.elapsed() < self.limit;
        if waits {
            fsleep(Delta::from_millis(1));
        }
        waits
    }
}

impl Default for FlushTime {
    fn default() -> Self {
        Self::new()
    }
}
