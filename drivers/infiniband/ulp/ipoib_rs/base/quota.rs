// SPDX-License-Identifier: GPL-2.0

//! The connections that all interfaces on an RDMA device may have together.
//!
//! Each has a [`Permit`], which belongs to its queue pair and is given back when the device has destroyed
//! that. To take one is an atomic operation, under the transmit lock of the interface that wants it. If
//! there is none, a work item makes room (`ctl/evict.rs`).

use ipoib_netdev::task::Task;
use ipoib_proto::share::{self, Need};
use ipoib_rdma::Device as RdmaDevice;
use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, Full, Relaxed, Release};
use kernel::sync::Arc;

use crate::base::params;

/// For how long those who find none left are waited for, in milliseconds, so that many of them do not have
/// all interfaces looked at again and again.
const COLLECT_MS: u32 = 5;

/// Counts of a device that its permits share.
struct Usage {
    /// Permits that there are.
    taken: Atomic<u32>,
    /// Permits whose connections have ended and are not gone yet.
    ending: Atomic<u32>,
    /// The interface that found none left: a [`Need`].
    need: Atomic<u64>,
    /// The last number that a member got.
    members: Atomic<u32>,
}

impl Usage {
    fn need(&self, now: u64) -> Option<Need> {
        Need::from_word(self.need.load(Relaxed), now)
    }
}

/// One connection is counted for as long as this lives.
pub(crate) struct Permit {
    usage: Arc<Usage>,
    ends: Atomic<bool>,
}

impl Permit {
    /// Notes that the connection has ended: there will be room.
    pub(crate) fn mark_ending(&self) {
        if !self.ends.xchg(true, Relaxed) {
            self.usage.ending.fetch_add(1, Relaxed);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.ends.load(Relaxed) {
            self.usage.ending.fetch_sub(1, Relaxed);
        }
        // Whoever finds room sees that the queue pair is gone.
        self.usage.taken.fetch_sub(1, Release);
    }
}

/// The count of a device, and who makes room.
pub(crate) struct Quota {
    usage: Arc<Usage>,
    task: Task<MakeRoom>,
}

impl Quota {
    /// Creates the count of `device`, with none taken.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(device: &RdmaDevice) -> Result<Arc<Self>> {
        let usage = Arc::new(
            Usage {
                taken: Atomic::new(0),
                ending: Atomic::new(0),
                need: Atomic::new(Need::NONE),
                members: Atomic::new(0),
            },
            GFP_KERNEL,
        )?;
        let task = Task::new(MakeRoom {
            usage: usage.clone(),
            device: device.clone(),
        })?;
        Ok(Arc::new(Self { usage, task }, GFP_KERNEL)?)
    }

    /// A number for an interface that has connections. That one in 2^16 later has it, too, is no harm.
    pub(crate) fn number(&self) -> u16 {
        self.usage.members.fetch_add(1, Relaxed) as u16
    }

    /// How many connections there are, how many of them are about to go, and how many there may be.
    pub(crate) fn counts(&self) -> (u32, u32, u32) {
        (
            self.usage.taken.load(Relaxed),
            self.usage.ending.load(Relaxed),
            params::rc_max_device_connections(),
        )
    }

    /// Counts one more connection in, if there may be one, of an interface with that number that has
    /// `held`.
    ///
    /// # Errors
    ///
    /// `ENOSPC`; `ENOMEM`.
    ///
    /// # Context
    ///
    /// Any.
    pub(crate) fn take(&self, number: u16, held: usize, now: u64) -> Result<Arc<Permit>> {
        let usage = &self.usage;
        let limit = params::rc_max_device_connections();
        let need = usage.need(now);
        let mut taken = usage.taken.load(Acquire);
        loop {
            if !share::may_take(taken, limit, number, held, need) {
                return Err(ENOSPC);
            }
            match usage.taken.cmpxchg(taken, taken + 1, Full) {
                Ok(_) => break,
                Err(now) => taken = now,
            }
        }
        let permit = Permit {
            usage: usage.clone(),
            ends: Atomic::new(false),
        };
        // Whose need it was has what it needs. Another one has gone before it, and it will say so again.
        if need.is_some_and(|need| !need.holds_up(number, held)) {
            usage.need.store(Need::NONE, Relaxed);
        }
        Ok(Arc::new(permit, GFP_ATOMIC)?)
    }

    /// There was none left for that interface: has room made.
    ///
    /// # Context
    ///
    /// Any.
    pub(crate) fn want(&self, number: u16, held: usize, now: u64) {
        let need = Need::new(number, held, now);
        if need.goes_before(self.usage.need(now)) {
            self.usage.need.store(need.to_word(), Relaxed);
        }
        self.task.queue(COLLECT_MS);
    }

    /// Waits for the work item and keeps it from running again.
    pub(crate) fn end(&self) {
        self.task.end();
    }
}

/// State of the work item; its work, which looks at the interfaces, is in `ctl/evict.rs`.
pub(crate) struct MakeRoom {
    usage: Arc<Usage>,
    pub(crate) device: RdmaDevice,
}

impl MakeRoom {
    /// The need of the interface that is next, unless there is or will be room for it.
    pub(crate) fn need(&self, now: u64) -> Option<Need> {
        let usage = &self.usage;
        // One after the other: the one that asks does so again until there is one for it.
        let is_full = usage.ending.load(Relaxed) == 0
            && usage.taken.load(Relaxed) >= params::rc_max_device_connections();
        usage.need(now).filter(|_| is_full)
    }
}
