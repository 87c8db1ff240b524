// SPDX-License-Identifier: GPL-2.0

//! The time that is waited for queue pairs in error.

use ipoib_netdev::clock::now_ms;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::time::{delay::fsleep, Delta, Instant, Monotonic};

/// Time to flush what is on the queue pairs that are taken down together, in milliseconds.
const LIMIT_MS: u64 = 2000;

/// Time for a device that exceeded [`LIMIT_MS`] less than that ago; enough for one that has recovered.
const LATE_MS: u64 = 20;

/// Until when a device has less time, since it has exceeded its own, by [`now_ms`].
pub(crate) struct Late(Atomic<u64>);

impl Late {
    /// It has all of its time.
    pub(crate) const fn never() -> Self {
        Self(Atomic::new(0))
    }

    /// It has just exceeded it.
    fn note(&self) {
        self.0.store(now_ms().saturating_add(LIMIT_MS), Relaxed);
    }

    fn is_late(&self) -> bool {
        now_ms() < self.0.load(Relaxed)
    }
}

/// Time for queue pairs in error to flush their requests: two seconds, for all that are taken down together. Those that
/// follow soon on a device that let it pass have little: RTNL may be held over a whole batch of interfaces.
pub struct FlushTime<'a> {
    begin: Instant<Monotonic>,
    limit: Delta,
    late: Option<&'a Late>,
}

impl<'a> FlushTime<'a> {
    /// That of the queue pairs of a device, from now on.
    pub(crate) fn new(late: &'a Late) -> Self {
        let limit_ms = if late.is_late() { LATE_MS } else { LIMIT_MS };
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
    use super::*;

    /// A queue pair that comes after one whose time has passed has little; one that comes after others has all of it.
    #[test]
    fn a_late_device_is_not_waited_for_again() {
        let late = Late::never();
        let whole = Delta::from_millis(LIMIT_MS as i64);
        assert!(FlushTime::new(&late).wait());
        assert!(FlushTime::new(&late).limit == whole);
        let mut short = FlushTime {
            late: Some(&late),
            ..FlushTime::of(0)
        };
        assert!(!short.wait());
        let mut next = FlushTime::new(&late);
        assert!(next.limit < whole && next.wait());
        while next.wait() {}
        assert!(FlushTime::new(&late).limit < whole);
        // One that was late long ago is not any more.
        late.0.store(now_ms(), Relaxed);
        assert!(FlushTime::new(&late).limit == whole);
    }
}
