// SPDX-License-Identifier: GPL-2.0

//! Links that a subnet manager has taken down (section 14.2.5.6, PortPhysicalState), and that follow when its answer
//! has left by them.
//!
//! The answer is software's to send. If it never does, the link goes nevertheless, after a time.

use crate::switch::PortMask;

/// The longest time that a link waits for the answer to leave, in milliseconds: long for software, which answers at
/// once, and no worse for a subnet manager than a link that takes its time to train.
const PATIENCE_MS: u64 = 1000;

/// The links of an adapter that wait for an answer to leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retrains {
    ports: PortMask,
    /// The time at which the wait is over.
    until: u64,
}

impl Retrains {
    /// Lets the link of a port, from 1, wait from now on. Times are in milliseconds since some epoch.
    pub fn add(&mut self, port: u8, now_ms: u64) {
        if self.ports.is_empty() {
            self.until = now_ms.saturating_add(PATIENCE_MS);
        }
        self.ports = PortMask::new(self.ports.bits() | PortMask::of(port).bits());
    }

    /// Returns true if the link of a port waits, so that the answer has to leave by it although its port is down.
    pub fn contains(&self, port: u8) -> bool {
        self.ports.contains(port)
    }

    /// Forgets the link of a port, which has gone down for another reason.
    pub fn remove(&mut self, port: u8) {
        self.ports = self.ports.without(port);
    }

    /// Takes the ports whose links wait to be trained, since an answer has left.
    pub fn take(&mut self) -> PortMask {
        core::mem::take(&mut self.ports)
    }

    /// Takes them if they have waited for too long.
    pub fn take_overdue(&mut self, now_ms: u64) -> PortMask {
        match self.deadline() {
            Some(until) if until <= now_ms => self.take(),
            _ => PortMask::default(),
        }
    }

    /// Returns the time at which [`Retrains::take_overdue`] has to be called, if a link waits.
    pub fn deadline(&self) -> Option<u64> {
        (!self.ports.is_empty()).then_some(self.until)
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_retrain))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    #[test]
    fn links_follow_the_answer() {
        let mut waiting = Retrains::default();
        assert_eq!(waiting.deadline(), None);
        waiting.add(1, 50);
        waiting.add(2, 60);
        assert!(waiting.contains(1) && waiting.contains(2) && !waiting.contains(3));
        waiting.remove(1);
        assert!(waiting.take().eq([2]));
        assert_eq!((waiting.deadline(), waiting.take().next()), (None, None));
    }

    #[test]
    fn links_wait_for_a_time_only() {
        let mut waiting = Retrains::default();
        waiting.add(2, 50);
        // A link that is added later does not postpone the deadline.
        waiting.add(1, 100);
        assert_eq!(waiting.deadline(), Some(1050));
        assert!(waiting.take_overdue(1049).is_empty());
        assert!(waiting.contains(2));
        assert!(waiting.take_overdue(1050).eq([1, 2]));
        assert_eq!((waiting.deadline(), waiting.take().next()), (None, None));
        waiting.add(1, 2000);
        assert_eq!(waiting.deadline(), Some(3000));
        waiting.remove(1);
        assert!(waiting.take_overdue(u64::MAX).is_empty());
        assert_eq!(waiting.deadline(), None);
    }
}
