// SPDX-License-Identifier: GPL-2.0

//! Packets that are too big for their destinations, until their senders are told.

use ipoib_proto::queue::{Queue, Waiting};
use kernel::prelude::*;

/// The most packets that wait to be answered, and that are answered at a time.
const MOST: usize = 16;

/// A few packets that wait to be answered. Memory is taken for the first one that ever does.
pub(super) struct Unanswered<T>(Option<KBox<Queue<T, MOST>>>);

impl<T> Unanswered<T> {
    /// None.
    pub(super) const NONE: Self = Self(None);

    /// Keeps a packet.
    ///
    /// # Errors
    ///
    /// Gives it back if too many wait, or there is no memory.
    pub(super) fn keep(&mut self, packet: T) -> Result<(), T> {
        if self.0.is_none() {
            self.0 = KBox::new(Queue::default(), GFP_ATOMIC).ok();
        }
        match &mut self.0 {
            Some(queue) => queue.push(packet, 1),
            None => Err(packet),
        }
    }

    /// Takes the first one.
    pub(super) fn take(&mut self) -> Option<T> {
        self.0.as_mut()?.pop()
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |queue| queue.len())
    }
}

/// Answers at most [`MOST`] packets; the rest are left to the next run of the work item.
pub(crate) fn answer_some<T>(next: impl FnMut() -> Option<T>, answer: impl FnMut(T)) {
    core::iter::from_fn(next).take(MOST).for_each(answer);
}

#[kunit_tests(ipoib_rs_unanswered)]
mod tests {
    use super::*;
    use ipoib_netdev::faults::each_allocation_fails;

    /// As many as are answered at a time wait, in their order.
    #[test]
    fn a_few_wait() -> Result {
        let mut unanswered = Unanswered::NONE;
        assert!(unanswered.take().is_none());
        for packet in 0..MOST {
            unanswered.keep(packet).map_err(|_| ENOMEM)?;
        }
        assert_eq!(unanswered.keep(MOST), Err(MOST));
        assert_eq!(unanswered.len(), MOST);
        let mut answered = 0;
        answer_some(
            || unanswered.take(),
            |packet| {
                assert_eq!(packet, answered);
                answered += 1;
            },
        );
        assert_eq!((answered, unanswered.len()), (MOST, 0));
        Ok(())
    }

    /// A packet that there is no memory for is given back, and the next one may be kept.
    #[test]
    fn one_without_memory_comes_back() -> Result {
        each_allocation_fails(|| {
            let mut unanswered = Unanswered::NONE;
            let kept = unanswered.keep(7);
            assert_eq!(unanswered.len(), usize::from(kept.is_ok()));
            match kept {
                Ok(()) => Ok(()),
                Err(7) if unanswered.keep(8).is_ok() => Err(ENOMEM),
                Err(_) => Err(EIO),
            }
        })
    }

    /// A sender that has another packet answered for each answer keeps nobody from other work.
    #[test]
    fn answers_come_to_an_end() {
        let (mut taken, mut answers) = (0, 0);
        let next = || {
            taken += 1;
            Some(taken)
        };
        answer_some(next, |packet| answers = packet);
        assert_eq!(answers, MOST);
    }
}
