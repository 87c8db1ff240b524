// SPDX-License-Identifier: GPL-2.0

//! The arithmetic of a send ring: slots, completions, signalling, stop and wake.
//!
//! Slots are numbered by free-running 32-bit counters, and a work request's `wr_id` is the number
//! of its slot. A send queue completes in order, so that the completion of one slot completes all
//! slots before it; that is why not every work request has to ask for a completion.

/// A completion that cannot be true: its `wr_id` names no slot in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotInFlight;

/// The slots that one completion sets free, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    first: u32,
    count: u32,
}

impl Completed {
    /// How many slots there are, at least 1 when fresh.
    #[inline]
    pub const fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there are none left.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl Iterator for Completed {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        self.count = self.count.checked_sub(1)?;
        let id = self.first;
        self.first = self.first.wrapping_add(1);
        Some(id)
    }
}

/// The positions of a send ring.
///
/// `head` counts what was put in, `tail` what was completed; both wrap around. Invariant:
/// `head - tail` is at most `size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    head: u32,
    tail: u32,
    size: u32,
}

impl Ring {
    /// The largest size: half the range of the counters, so that their order stays defined.
    pub const MAX_SIZE: u32 = 1 << 31;

    /// Makes an empty ring; `None` unless `size` is a power of two of at most
    /// [`Ring::MAX_SIZE`].
    #[inline]
    pub const fn new(size: u32) -> Option<Ring> {
        Ring::from_parts(0, 0, size)
    }

    /// Puts a ring together from counters that are kept elsewhere, such as in two cache lines;
    /// `None` if they break the invariant.
    #[inline]
    pub const fn from_parts(head: u32, tail: u32, size: u32) -> Option<Ring> {
        if size.is_power_of_two() && head.wrapping_sub(tail) <= size {
            Some(Ring { head, tail, size })
        } else {
            None
        }
    }

    /// Returns the number of slots.
    #[inline]
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// Returns the number that the next reserved slot gets.
    #[inline]
    pub const fn head(&self) -> u32 {
        self.head
    }

    /// Returns the number of the oldest slot in flight, if there is one.
    #[inline]
    pub const fn tail(&self) -> u32 {
        self.tail
    }

    /// How many slots are reserved and not completed.
    #[inline]
    pub const fn in_flight(&self) -> u32 {
        self.head.wrapping_sub(self.tail)
    }

    /// How many slots are free.
    #[inline]
    pub const fn free(&self) -> u32 {
        self.size.saturating_sub(self.in_flight())
    }

    /// Whether nothing is in flight.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// Returns the index of a slot in the array of slots: less than [`Ring::size`].
    #[inline]
    pub const fn index(&self, id: u32) -> usize {
        // `size` is a power of two and not 0.
        (id & self.size.wrapping_sub(1)) as usize
    }

    /// Takes the next slot; returns its number, or `None` if the ring is full.
    #[inline]
    #[must_use]
    pub fn reserve(&mut self) -> Option<u32> {
        if self.free() == 0 {
            return None;
        }
        let id = self.head;
        self.head = self.head.wrapping_add(1);
        Some(id)
    }

    /// Gives the youngest `count` slots back, whose work requests the device did not take.
    /// Returns how many it were: never more than there are in flight.
    #[inline]
    pub fn unreserve(&mut self, count: u32) -> u32 {
        let count = if count < self.in_flight() {
            count
        } else {
            self.in_flight()
        };
        self.head = self.head.wrapping_sub(count);
        count
    }

    /// Completes everything up to and including the slot that a completion names.
    ///
    /// # Errors
    ///
    /// [`NotInFlight`] if it names none that is in flight; the ring is as before then. This is what
    /// a faulty device does, or a completion that was seen twice.
    #[inline]
    pub fn complete_to(&mut self, wr_id: u64) -> Result<Completed, NotInFlight> {
        let id = u32::try_from(wr_id).map_err(|_| NotInFlight)?;
        let before = id.wrapping_sub(self.tail);
        if before >= self.in_flight() {
            return Err(NotInFlight);
        }
        let completed = Completed {
            first: self.tail,
            // Less than or equal to `in_flight`, so that this does not wrap.
            count: before.wrapping_add(1),
        };
        self.tail = id.wrapping_add(1);
        Ok(completed)
    }

    /// Completes everything: for a queue pair that is gone and will complete nothing any more.
    #[inline]
    pub fn complete_all(&mut self) -> Completed {
        let completed = Completed {
            first: self.tail,
            count: self.in_flight(),
        };
        self.tail = self.head;
        completed
    }
}

/// Whether a work request has to ask for a completion.
///
/// - `unsignalled`: how many work requests were added since the last one that asked;
/// - `every`: ask at least once in this many (0 and 1 both mean each time);
/// - `more`: whether another work request is sure to follow;
/// - `free`: how many slots are free after this one.
///
/// What follows from it, and is proved in the tests by enumeration: whenever nothing more is to
/// come, the youngest work request is one that asked, so that all of them complete; and a ring
/// without a free slot has one to wait for.
#[inline]
pub const fn must_signal(unsignalled: u32, every: u32, more: bool, free: u32) -> bool {
    !more || free == 0 || unsignalled.saturating_add(1) >= every
}

/// Which work requests of a send queue ask for a completion: [`must_signal`] with its memory.
///
/// `more` is only a forecast: the frame that was to follow may be dropped on its way. The driver
/// therefore asks [`Signal::is_settled`] before it hands a chain to the device, and where it is
/// not, lets the chain's last work request ask ([`Signal::settle`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal {
    every: u32,
    unsignalled: u32,
}

impl Signal {
    /// Makes the state of a fresh send queue that asks at least once in `every` work requests.
    ///
    /// A ring of `size` slots should ask at least four times per turn, so that it is refilled
    /// long before it is empty: `every` is limited to that.
    #[inline]
    pub const fn new(every: u32, size: u32) -> Signal {
        let quarter = size / 4;
        let every = if every < quarter { every } else { quarter };
        Signal {
            every: if every == 0 { 1 } else { every },
            unsignalled: 0,
        }
    }

    /// Decides for the next work request; see [`must_signal`].
    #[inline]
    #[must_use]
    pub fn next(&mut self, more: bool, free: u32) -> bool {
        let signal = must_signal(self.unsignalled, self.every, more, free);
        self.unsignalled = if signal {
            0
        } else {
            self.unsignalled.saturating_add(1)
        };
        signal
    }

    /// Whether the youngest work request asked for a completion, or there was none yet.
    #[inline]
    pub const fn is_settled(&self) -> bool {
        self.unsignalled == 0
    }

    /// Notes that the youngest work request was made to ask.
    #[inline]
    pub fn settle(&mut self) {
        self.unsignalled = 0;
    }

    /// Notes that the device took only a part of a chain, whose last `unsignalled` work requests
    /// did not ask.
    ///
    /// If that leaves the queue unsettled, the rest of the chain has to be posted again (the last
    /// of it asking), or the queue pair be reset: else those frames complete only with the next one.
    #[inline]
    pub fn truncated(&mut self, unsignalled: u32) {
        self.unsignalled = unsignalled;
    }
}

/// When to stop the stack's queue and when to wake it: two thresholds, so that a full ring does
/// not stop and wake for each frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    stop: u32,
    wake: u32,
}

impl Thresholds {
    /// Makes the thresholds for a ring of `size` slots, of which one frame takes up to
    /// `per_frame`; `None` if the ring is too small for two frames.
    ///
    /// The queue wakes at a quarter of the ring, or at two frames if that is more.
    pub const fn new(size: u32, per_frame: u32) -> Option<Thresholds> {
        if per_frame == 0 {
            return None;
        }
        let two = match per_frame.checked_mul(2) {
            Some(two) if two <= size => two,
            _ => return None,
        };
        let quarter = size / 4;
        Some(Thresholds {
            stop: per_frame,
            wake: if quarter > two { quarter } else { two },
        })
    }

    /// Whether the queue has to be stopped: the next frame might not fit.
    #[inline]
    pub const fn must_stop(&self, free: u32) -> bool {
        free < self.stop
    }

    /// Whether a stopped queue may be woken.
    #[inline]
    pub const fn may_wake(&self, free: u32) -> bool {
        free >= self.wake
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_ring))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two() {
        assert_eq!(Ring::new(0), None);
        assert_eq!(Ring::new(3), None);
        assert_eq!(Ring::new(128).map(|r| r.free()), Some(128));
        assert_eq!(Ring::new(Ring::MAX_SIZE).map(|r| r.in_flight()), Some(0));
        assert_eq!(Ring::from_parts(9, 0, 8), None);
        assert_eq!(Ring::from_parts(0, 1, 8), None);
    }

    /// Fills, completes and refills across the wrap of the counters.
    #[test]
    fn counters_wrap() -> Result<(), ()> {
        let start = u32::MAX - 2;
        let mut ring = Ring::from_parts(start, start, 8).ok_or(())?;
        for i in 0..8 {
            assert_eq!(ring.reserve(), Some(start.wrapping_add(i)));
        }
        assert_eq!(ring.reserve(), None);
        assert_eq!(ring.free(), 0);
        let done = ring.complete_to(u64::from(start.wrapping_add(4)));
        assert!(done.is_ok_and(|d| d.len() == 5 && d.last() == Some(1)));
        assert_eq!(ring.in_flight(), 3);
        assert_eq!(ring.index(2), 2);
        assert_eq!(ring.index(u32::MAX), 7);
        assert_eq!(ring.complete_all().len(), 3);
        assert!(ring.is_empty());
        Ok(())
    }

    #[test]
    fn a_completion_must_name_a_slot_in_flight() -> Result<(), ()> {
        let mut ring = Ring::from_parts(13, 10, 8).ok_or(())?;
        let before = ring;
        // Completed already, never posted, and no slot number at all.
        for wr_id in [9, 13, 14, u64::from(u32::MAX), (1 << 32) | 10, u64::MAX] {
            assert_eq!(ring.complete_to(wr_id), Err(NotInFlight));
            assert_eq!(ring, before);
        }
        assert!(ring.complete_to(12).is_ok_and(|d| d.len() == 3));
        assert_eq!(ring.complete_to(12), Err(NotInFlight));
        Ok(())
    }

    #[test]
    fn unreserve_gives_back_the_youngest() -> Result<(), ()> {
        let mut ring = Ring::from_parts(13, 10, 8).ok_or(())?;
        assert_eq!(ring.unreserve(2), 2);
        assert_eq!(ring.reserve(), Some(11));
        assert_eq!(ring.unreserve(u32::MAX), 2);
        assert!(ring.is_empty());
        assert_eq!(ring.tail(), 10);
        Ok(())
    }

    #[test]
    fn signal_on_the_last_the_nth_and_the_full() {
        assert!(must_signal(0, 16, false, 100));
        assert!(must_signal(0, 16, true, 0));
        assert!(must_signal(15, 16, true, 100));
        assert!(!must_signal(14, 16, true, 100));
        assert!(must_signal(0, 0, true, 100));
        assert!(must_signal(u32::MAX, 16, true, 100));
    }

    /// Every reachable state of a small ring: with work in flight, a full ring or a sender with
    /// nothing more to say always has a signalled work request to wait for, at the youngest end.
    #[test]
    fn no_state_waits_for_nothing() {
        const SIZE: u32 = 8;
        // A state is (in flight, unsignalled at the youngest end), for each period.
        for every in 0..=SIZE + 1 {
            let mut seen = [[false; SIZE as usize + 1]; SIZE as usize + 1];
            seen[0][0] = true;
            let mut changed = true;
            while changed {
                changed = false;
                for in_flight in 0..=SIZE {
                    for unsignalled in 0..=in_flight {
                        if !seen[in_flight as usize][unsignalled as usize] {
                            continue;
                        }
                        let mut reach = |f: u32, u: u32| {
                            changed |= !seen[f as usize][u as usize];
                            seen[f as usize][u as usize] = true;
                        };
                        for more in [false, true] {
                            if in_flight == SIZE {
                                break;
                            }
                            let free = SIZE - in_flight - 1;
                            let signal = must_signal(unsignalled, every, more, free);
                            // The claim: nothing more to come, or nothing more fits.
                            assert!(signal || (more && free > 0));
                            reach(in_flight + 1, if signal { 0 } else { unsignalled + 1 });
                        }
                        // A completion frees a signalled one with all before it, which leaves
                        // at least the unsignalled ones at the end.
                        for left in unsignalled..in_flight {
                            reach(left, unsignalled);
                        }
                    }
                }
            }
            // A full ring always has something to wait for.
            for unsignalled in 1..=SIZE {
                assert!(!seen[SIZE as usize][unsignalled as usize]);
            }
        }
    }

    #[test]
    fn a_broken_forecast_is_seen() {
        let mut signal = Signal::new(16, 128);
        assert!(!signal.next(true, 100));
        assert!(!signal.is_settled());
        signal.settle();
        assert!(signal.is_settled());
        assert!(signal.next(false, 100));
        assert!(signal.is_settled());
        signal.truncated(2);
        assert!(!signal.is_settled());
    }

    #[test]
    fn a_small_ring_signals_more_often() {
        let mut signal = Signal::new(64, 8);
        assert!(!signal.next(true, 7));
        assert!(signal.next(true, 6));
        let mut signal = Signal::new(0, 2);
        assert!(signal.next(true, 1));
    }

    #[test]
    fn stop_and_wake_have_distance() -> Result<(), ()> {
        let t = Thresholds::new(128, 1).ok_or(())?;
        assert!(t.must_stop(0));
        assert!(!t.must_stop(1));
        assert!(!t.may_wake(31));
        assert!(t.may_wake(32));
        assert_eq!(Thresholds::new(4, 4), None);
        assert_eq!(Thresholds::new(4, 0), None);
        assert!(Thresholds::new(2, 1).is_some_and(|t| t.may_wake(2) && !t.may_wake(1)));
        Ok(())
    }
}
