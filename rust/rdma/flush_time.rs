// SPDX-License-Identifier: GPL-2.0

//! The time that is waited for queue pairs in error.

use kernel::time::{delay::fsleep, Delta, Instant, Monotonic};

use crate::device::Device;
use crate::late::Late;

/// Time to flush what is on the queue pairs that are taken down together, in milliseconds.
const LIMIT_MS: u64 = 2000;

/// Time for those that follow within that on a device that let it pass: enough for one that flushes again.
const LATE_MS: u64 = 20;

/// Time for queue pairs in error to flush their requests: two seconds, for all that are taken down together. Those that
/// follow soon on a device that let it pass have little: RTNL may be held over a whole batch of interfaces.
pub struct FlushTime<'a> {
    begin: Instant<Monotonic>,
    limit: Delta,
    late: Option<&'a Late>,
}

impl<'a> FlushTime<'a> {
    /// That of the queue pairs of a device, from now on.
    pub fn new(device: &'a Device) -> Self {
        let late = device.late();
        let limit_ms = if late.is_within(LIMIT_MS) {
            LATE_MS
        } else {
            LIMIT_MS
        };
        Self {
            late: Some(late),
            ..Self::of(limit_ms as i64)
        }
    }

    /// So many milliseconds, from now on.
    pub(crate) fn of(limit_ms: i64) -> Self {
        Self {
            begin: Instant::now(),
            limit: Delta::from_millis(limit_ms),
            late: None,
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
        } else if let Some(late) = self.late {
            late.note();
        }
        waits
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[kernel::prelude::kunit_tests(rust_rdma_flush_time)]
mod tests {
    use kernel::prelude::*;

    use super::*;
    use crate::dummy::Dummy;

    /// A queue pair that comes after one whose time has passed has little; one that comes after others has all of it.
    #[test]
    fn a_late_device_is_not_waited_for_again() -> Result {
        let dummy = Dummy::new()?;
        let whole = Delta::from_millis(LIMIT_MS as i64);
        assert!(FlushTime::new(dummy.device()).wait());
        assert!(FlushTime::new(dummy.device()).limit == whole);
        let mut short = FlushTime {
            late: Some(dummy.device().late()),
            ..FlushTime::of(0)
        };
        assert!(!short.wait());
        let mut next = FlushTime::new(dummy.device());
        assert!(next.limit < whole && next.wait());
        while next.wait() {}
        assert!(FlushTime::new(dummy.device()).limit < whole);
        Ok(())
    }
}
