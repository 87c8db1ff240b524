// SPDX-License-Identifier: GPL-2.0

//! Events of a completion queue that come later, or on another CPU.

use ib_fabric::moderation::Due;
use kernel::prelude::*;
use kernel::sync::atomic::Full;
use kernel::sync::Arc;
use kernel::time::Delta;

use super::{Armed, Cq};
use crate::bh_work::{Again, BhWork, Job};
use crate::clock::now;

/// Tells the ULP of a completion queue's completions, where that is not for whoever makes them.
pub(crate) struct Bell(Arc<Cq>);

impl Bell {
    /// The one of a queue, which has none yet.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EBUSY` if it has one.
    pub(crate) fn new(cq: &Arc<Cq>) -> Result<BhWork<Self>> {
        let bell = Arc::new(Self(cq.clone()), GFP_KERNEL)?;
        BhWork::new(cq.bell.clone(), bell)
    }
}

impl Job for Bell {
    fn run(&self) -> Again {
        let cq = &self.0;
        let now = now();
        let due = cq.expire(now);
        if cq.rung.xchg(false, Full) || due == Due::Now {
            cq.tell_completion();
        }
        match due {
            Due::At(then) => {
                let left = i64::try_from(then.saturating_sub(now)).unwrap_or(i64::MAX);
                Again::Precisely(Delta::from_nanos(left))
            }
            Due::Now | Due::Never => Again::Idle,
        }
    }
}

impl Cq {
    /// Sets the moderation of its events: so many completions at most have one, and none is later than so many
    /// microseconds; 0 is no limit of the one, and no moderation at all of the other.
    pub(crate) fn moderate(&self, count: u16, period: u16) {
        if self.ring.lock().moderation.set(count, period) {
            self.bell.schedule();
        }
    }

    /// Asks for an event whose time has come.
    fn expire(&self, now: u64) -> Due {
        let mut ring = self.ring.lock();
        let due = ring.moderation.poll(now);
        if due != Due::Now {
            return due;
        }
        // It may have had one for completions that were held back.
        let armed = core::mem::replace(&mut ring.armed, Armed::No);
        if armed == Armed::No {
            Due::Never
        } else {
            Due::Now
        }
    }
}
