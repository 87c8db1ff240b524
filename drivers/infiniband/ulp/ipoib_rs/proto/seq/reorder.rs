// SPDX-License-Identifier: GPL-2.0

//! The reorder window of one source: frames that overtook others wait for them, but not for long.
//!
//! It follows Algorithm 1 of "IPoIB on a Sunway system", with what that leaves open decided. With
//! `d` the distance of a frame's number from the next expected one, and a window of `W`:
//!
//! | d | what happens |
//! |---|---|
//! | 0 | delivered, and with it the run that waited for it |
//! | less than 0 | delivered: it is too late to do better, or a duplicate |
//! | 1 to W | held, if holding is worth while; a duplicate of a held frame is delivered |
//! | W + 1 to W + 128 | the window moves until it holds the frame; what it passes is delivered |
//! | more | the sender has begun anew: all that is held is delivered, and then the frame |
//!
//! Nothing is ever dropped, held for longer than the timeout that the caller keeps with
//! [`Window::expire`], or delivered twice. The ring turns with the next expected number: indexing it
//! with a number's remainder would make two numbers collide where the numbers wrap, since 65535
//! is no multiple of its size.
//!
//! A gap that is a loss never fills, and waiting for it delays the frames behind it for nothing.
//! So the window keeps a score: a gap that fills, in time or late, adds [`GAIN`]; one that is given
//! up takes 1. At 0 nothing is held any more; but a frame that arrives late for a gap, which
//! tells reordering from loss, starts it again. Gaps are thus waited for as long as at least one in
//! `GAIN + 1` is due to reordering.

use core::borrow::BorrowMut;
use core::marker::PhantomData;

use crate::seq::MsgId;

mod counts;

pub use counts::Counts;

/// The widest window, and the length of a ring.
pub const MAX_WIDTH: u8 = 128;

const RING: usize = MAX_WIDTH as usize;

/// Points that a filled gap adds to the score.
const GAIN: u8 = 4;
/// The first and highest score: so many losses end the holding of frames.
const MAX_SCORE: u8 = 16;
/// After so many frames in a row from behind the window that were not missing, the source is taken
/// to have begun anew.
const LATE_RUN: u8 = 16;

/// A frame that waits, and since when, in microseconds.
#[derive(Debug)]
pub struct Held<T> {
    item: T,
    since: u64,
}

/// Clock, rings and receiver of frames that a window uses.
pub trait Host<T, B> {
    /// The time in microseconds.
    fn now(&mut self) -> u64;

    /// An empty ring to hold frames in, unless there is none to be had now.
    fn take_ring(&mut self) -> Option<B>;

    /// Takes back a ring, which is empty.
    fn return_ring(&mut self, ring: B);

    /// Passes a frame on.
    fn deliver(&mut self, item: T);

    /// Is told what becomes of the frame with number `id`, which is held since `since`.
    #[inline]
    fn note(&mut self, _id: MsgId, _event: Event, _since: u64) {}
}

/// The life of a held frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The frame is held until those before it have come.
    Held,
    /// They have.
    Filled,
    /// The window moved on without them.
    Moved,
    /// They took too long.
    TimedOut,
}

impl Event {
    /// The event in a word.
    pub const fn word(self) -> &'static str {
        match self {
            Event::Held => "held",
            Event::Filled => "filled",
            Event::Moved => "moved",
            Event::TimedOut => "timed-out",
        }
    }
}

/// The reorder window of one source. `T` is the frame, `B` the storage of a ring of
/// [`MAX_WIDTH`] elements.
#[derive(Debug)]
pub struct Window<T, B> {
    /// The next number in order; `None` until the first frame.
    next: Option<MsgId>,
    /// There while something is held.
    ring: Option<B>,
    /// How many frames are held.
    held: u8,
    /// The distance of the highest number that is held, 0 if none is.
    highest: u8,
    /// The place of distance 0 in the ring.
    base: u8,
    score: u8,
    late_run: u8,
    /// Bit i: the number i + 1 before `next` did not arrive.
    missing: u128,
    counts: Counts,
    item: PhantomData<T>,
}

impl<T, B> Window<T, B> {
    /// A window that begins with the first number that comes.
    pub const NEW: Self = Window {
        next: None,
        ring: None,
        held: 0,
        highest: 0,
        base: 0,
        score: MAX_SCORE,
        late_run: 0,
        missing: 0,
        counts: Counts::ZERO,
        item: PhantomData,
    };

    /// How many frames are held.
    #[inline]
    pub const fn held(&self) -> usize {
        self.held as usize
    }

    /// Returns its statistics.
    #[inline]
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Returns true if a frame would be the first that is held, by a window of `width`.
    pub fn wants_ring(&self, id: MsgId, width: u8) -> bool {
        let width = i32::from(width.min(MAX_WIDTH));
        let Some(next) = self.next else {
            return false;
        };
        let distance = id.distance(next);
        // Beyond the width, a gap is given up first, which costs 1.
        let holds = (1..=width).contains(&distance) && self.score > 0
            || (width.saturating_add(1)..=width.saturating_add(i32::from(MAX_WIDTH)))
                .contains(&distance)
                && self.score > 1;
        width > 0 && self.held == 0 && holds
    }
}

impl<T, B: BorrowMut<[Option<Held<T>>]>> Window<T, B> {
    /// Notes a frame if it is the expected one and nothing is held: the caller delivers it then. False: it has
    /// to go through [`Window::receive`].
    // Short, and for every frame: not worth a call.
    #[inline(always)]
    pub fn receive_in_order(&mut self, id: MsgId) -> bool {
        if self.next != Some(id) || self.held > 0 {
            return false;
        }
        self.counts.in_order = self.counts.in_order.wrapping_add(1);
        self.late_run = 0;
        // As `step`, but without a ring there is nothing that would turn.
        debug_assert!(self.highest == 0 && self.ring.is_none());
        self.next = Some(id.next());
        if self.missing != 0 {
            self.missing <<= 1;
        }
        true
    }

    /// Takes a frame in; it is delivered or held.
    pub fn receive(&mut self, id: MsgId, item: T, width: u8, host: &mut impl Host<T, B>) {
        if self.receive_in_order(id) {
            return host.deliver(item);
        }
        let width = width.min(MAX_WIDTH);
        let Some(next) = self.next else {
            self.counts.in_order = self.counts.in_order.wrapping_add(1);
            self.next = Some(id.next());
            return host.deliver(item);
        };
        let distance = id.distance(next);
        if distance < 0 {
            return self.receive_late(id, distance.unsigned_abs(), item, host);
        }
        self.late_run = 0;
        if distance > i32::from(width).wrapping_add(i32::from(MAX_WIDTH)) {
            return self.resync(id, item, host);
        }
        if distance > i32::from(width) {
            self.move_to(id, width, host);
        }
        let distance = self.distance(id);
        if distance < 0 {
            // The width was lowered, and the frame's twin was held beyond it until now.
            return self.receive_late(id, distance.unsigned_abs(), item, host);
        }
        if distance == 0 {
            self.counts.in_order = self.counts.in_order.wrapping_add(1);
            if self.held > 0 {
                self.counts.reordered = self.counts.reordered.wrapping_add(1);
                self.reward();
            }
            self.step(id, true);
            host.deliver(item);
            self.run(Event::Filled, host);
            return self.settle(host);
        }
        // Not more than the width, hence no more than `u8`.
        self.hold(id, distance as u8, item, host);
    }

    /// Holds a frame if that is worth while and possible.
    fn hold(&mut self, id: MsgId, distance: u8, item: T, host: &mut impl Host<T, B>) {
        if self.score == 0 {
            return self.skip(id, item, host);
        }
        if self.ring.is_none() {
            self.ring = host.take_ring();
        }
        let at = self.index(distance);
        let Some(slot) = self.slot(at) else {
            // There is no ring, so that nothing is held.
            return self.skip(id, item, host);
        };
        if slot.is_some() {
            self.counts.duplicates = self.counts.duplicates.wrapping_add(1);
            return host.deliver(item);
        }
        let since = host.now();
        *slot = Some(Held { item, since });
        host.note(id, Event::Held, since);
        self.held = self.held.saturating_add(1);
        self.counts.held = self.counts.held.wrapping_add(1);
        if distance < self.highest {
            self.counts.reordered = self.counts.reordered.wrapping_add(1);
        }
        self.highest = self.highest.max(distance);
    }

    /// Delivers a frame behind a gap, and goes on behind it.
    fn skip(&mut self, id: MsgId, item: T, host: &mut impl Host<T, B>) {
        while let Some(next) = self.next {
            if id.distance(next) <= 0 {
                break;
            }
            self.step(next, false);
        }
        self.step(id, true);
        self.counts.in_order = self.counts.in_order.wrapping_add(1);
        host.deliver(item);
    }

    /// A frame from behind the window: `behind` is 1 for the number before the next one.
    fn receive_late(&mut self, id: MsgId, behind: u32, item: T, host: &mut impl Host<T, B>) {
        let bit = 1u128.checked_shl(behind.wrapping_sub(1)).unwrap_or(0);
        if self.missing & bit != 0 {
            self.missing &= !bit;
            self.late_run = 0;
            self.counts.reordered = self.counts.reordered.wrapping_add(1);
            self.counts.late = self.counts.late.wrapping_add(1);
            self.reward();
            return host.deliver(item);
        }
        self.late_run = self.late_run.saturating_add(1);
        if self.late_run >= LATE_RUN {
            return self.resync(id, item, host);
        }
        if bit != 0 {
            self.counts.duplicates = self.counts.duplicates.wrapping_add(1);
        } else {
            self.counts.late = self.counts.late.wrapping_add(1);
        }
        host.deliver(item);
    }

    /// The source has begun anew, with `id`.
    #[cold]
    fn resync(&mut self, id: MsgId, item: T, host: &mut impl Host<T, B>) {
        self.flush(host);
        self.counts.resyncs = self.counts.resyncs.wrapping_add(1);
        self.late_run = 0;
        self.missing = 0;
        self.next = Some(id.next());
        host.deliver(item);
    }

    /// Gives up what is missing until `id` is within `width`; no more than [`MAX_WIDTH`] steps.
    fn move_to(&mut self, id: MsgId, width: u8, host: &mut impl Host<T, B>) {
        while self.distance(id) > i32::from(width) {
            self.give_up(Event::Moved, host);
        }
        self.punish(Event::Moved, host);
        self.settle(host);
    }

    /// Releases the frames that have waited since `before` or longer, in microseconds, and those in front of
    /// them. Returns since when the oldest of the rest has waited.
    pub fn expire(&mut self, before: u64, host: &mut impl Host<T, B>) -> Option<u64> {
        let expired = (1..=self.highest)
            .rev()
            .find(|&distance| self.since(distance).is_some_and(|since| since <= before));
        if let Some(mut distance) = expired {
            while distance > 0 {
                let steps = self.give_up(Event::TimedOut, host);
                distance = distance.saturating_sub(steps);
            }
            self.punish(Event::TimedOut, host);
            self.settle(host);
        }
        (1..=self.highest)
            .filter_map(|distance| self.since(distance))
            .min()
    }

    /// Releases all that is held. Any number will be taken for the next.
    pub fn restart(&mut self, host: &mut impl Host<T, B>) {
        self.flush(host);
        self.next = None;
        self.missing = 0;
        self.late_run = 0;
    }

    /// Releases all that is held, in order.
    pub fn flush(&mut self, host: &mut impl Host<T, B>) {
        while self.held > 0 {
            self.give_up(Event::Moved, host);
        }
        self.settle(host);
    }

    /// Gives the next number up and delivers what waited for it; returns how many numbers that
    /// were.
    fn give_up(&mut self, why: Event, host: &mut impl Host<T, B>) -> u8 {
        if let Some(next) = self.next {
            self.step(next, false);
        }
        self.run(why, host).saturating_add(1)
    }

    /// Delivers what is held from the next number on without a gap; returns how many frames.
    fn run(&mut self, why: Event, host: &mut impl Host<T, B>) -> u8 {
        let mut released: u8 = 0;
        while let Some(next) = self.next {
            let Some(held) = self.slot(self.index(0)).and_then(Option::take) else {
                break;
            };
            self.step(next, true);
            self.held = self.held.saturating_sub(1);
            released = released.saturating_add(1);
            host.note(next, why, held.since);
            host.deliver(held.item);
        }
        let counter = match why {
            Event::Held | Event::Filled => &mut self.counts.filled,
            Event::Moved => &mut self.counts.moved,
            Event::TimedOut => &mut self.counts.timed_out,
        };
        *counter = counter.wrapping_add(u64::from(released));
        released
    }

    /// Goes on from number `id` to the one after it.
    #[inline]
    fn step(&mut self, id: MsgId, seen: bool) {
        self.next = Some(id.next());
        self.base = self.base.wrapping_add(1) % MAX_WIDTH;
        self.highest = self.highest.saturating_sub(1);
        self.missing = (self.missing << 1) | u128::from(!seen);
    }

    /// Gives the ring back if it is empty.
    fn settle(&mut self, host: &mut impl Host<T, B>) {
        if self.held == 0 {
            self.highest = 0;
            if let Some(ring) = self.ring.take() {
                host.return_ring(ring);
            }
        }
    }

    /// A gap has filled.
    fn reward(&mut self) {
        self.score = self.score.saturating_add(GAIN).min(MAX_SCORE);
    }

    /// A gap was given up. If that was one too many, nothing is held any more.
    fn punish(&mut self, why: Event, host: &mut impl Host<T, B>) {
        self.score = self.score.saturating_sub(1);
        if self.score == 0 {
            while self.held > 0 {
                self.give_up(why, host);
            }
        }
    }

    fn distance(&self, id: MsgId) -> i32 {
        self.next.map_or(0, |next| id.distance(next))
    }

    fn index(&self, distance: u8) -> usize {
        usize::from(self.base).wrapping_add(usize::from(distance)) % RING
    }

    fn slot(&mut self, at: usize) -> Option<&mut Option<Held<T>>> {
        self.ring.as_mut()?.borrow_mut().get_mut(at)
    }

    fn since(&self, distance: u8) -> Option<u64> {
        let ring = self.ring.as_ref()?.borrow();
        let held = ring.get(self.index(distance))?.as_ref()?;
        Some(held.since)
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_reorder))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    const LOG: usize = 256;

    /// A ring, lent by the test: kernel stacks are small.
    type Ring<'a> = &'a mut [Option<Held<u16>>];
    type TestWindow<'a> = Window<u16, Ring<'a>>;

    const EMPTY: [Option<Held<u16>>; RING] = [const { None }; RING];

    /// Notes deliveries; time stands still unless a test moves it.
    struct Log<'a> {
        now: u64,
        ring: Option<Ring<'a>>,
        delivered: [u16; LOG],
        len: usize,
    }

    impl<'a> Log<'a> {
        fn new(ring: Ring<'a>) -> Self {
            Log {
                now: 0,
                ring: Some(ring),
                delivered: [0; LOG],
                len: 0,
            }
        }

        fn take(&mut self) -> &[u16] {
            let len = core::mem::take(&mut self.len);
            &self.delivered[..len]
        }
    }

    impl<'a> Host<u16, Ring<'a>> for Log<'a> {
        fn now(&mut self) -> u64 {
            self.now
        }

        fn take_ring(&mut self) -> Option<Ring<'a>> {
            self.ring.take()
        }

        fn return_ring(&mut self, ring: Ring<'a>) {
            assert!(ring.iter().all(Option::is_none));
            self.ring = Some(ring);
        }

        fn deliver(&mut self, item: u16) {
            self.delivered[self.len] = item;
            self.len += 1;
        }
    }

    fn feed<'a>(window: &mut TestWindow<'a>, log: &mut Log<'a>, width: u8, ids: &[u16]) {
        for &raw in ids {
            let Some(id) = MsgId::new(raw) else { continue };
            window.receive(id, raw, width, log);
        }
    }

    /// A trace tells them apart.
    #[test]
    fn each_event_has_its_word() {
        let events = [Event::Held, Event::Filled, Event::Moved, Event::TimedOut];
        for (at, event) in events.iter().enumerate() {
            assert_eq!(
                events.iter().position(|other| other.word() == event.word()),
                Some(at)
            );
        }
    }

    /// Algorithm 1, first branch: the expected frame, and the run that waited for it.
    #[test]
    fn a_filled_gap_releases_the_run() {
        let mut ring = EMPTY;
        let (mut window, mut log) = (TestWindow::NEW, Log::new(&mut ring));
        feed(&mut window, &mut log, 32, &[7, 9, 10, 12]);
        assert_eq!(log.take(), [7]);
        assert_eq!(window.held(), 3);
        feed(&mut window, &mut log, 32, &[8]);
        assert_eq!(log.take(), [8, 9, 10]);
        feed(&mut window, &mut log, 32, &[11, 13]);
        assert_eq!(log.take(), [11, 12, 13]);
        assert_eq!(window.held(), 0);
        assert_eq!(window.counts().reordered, 2);
        assert_eq!(window.counts().filled, 3);
        assert!(log.ring.is_some());
    }

    /// Algorithm 1, second branch: what is late is delivered at once and changes nothing.
    #[test]
    fn a_late_frame_is_delivered() {
        let mut ring = EMPTY;
        let (mut window, mut log) = (TestWindow::NEW, Log::new(&mut ring));
        feed(&mut window, &mut log, 0, &[7, 9, 8, 10]);
        assert_eq!(log.take(), [7, 9, 8, 10]);
        assert_eq!(window.counts().late, 1);
        assert_eq!(window.counts().in_order, 3);
    }

    /// First defect: the frame at distance W needs a slot of its own.
    #[test]
    fn defect_1_the_slot_at_the_full_width() {
        let mut ring = EMPTY;
        let (mut window, mut log) = (TestWindow::NEW, Log::new(&mut ring));
        feed(&mut window, &mut log, MAX_WIDTH, &[1]);
        for id in 3..=130 {
            feed(&mut window, &mut log, MAX_WIDTH, &[id]);
        }
        assert_eq!(window.held(), 128);
        assert_eq!(log.take(), [1]);
        feed(&mut window, &mut log, MAX_WIDTH, &[2]);
        assert_eq!(log.len, 129);
        for (want, got) in (2..).zip(log.take()) {
            assert_eq!(*got, want);
        }
    }

    /// Second and third defect: the frame that moves the window is classified again, and the run
    /// behind the given up number is delivered.
    #[test]
    fn defects_2_and_3_a_move_classifies_again() {
        let mut ring = EMPTY;
        let (mut window, mut log) = (TestWindow::NEW, Log::new(&mut ring));
        // 2 is lost; 7 is beyond a window of 4, and the run 3, 4, 5 goes up to 6.
        feed(&mut window, &mut log, 4, &[1, 3, 4, 5, 7]);
        assert_eq!(log.take(), [1, 3, 4, 5]);
        assert_eq!(window.held(), 1);
        feed(&mut window, &mut log, 4, &[6]);
        assert_eq!(log.take(), [6, 7]);
        // 8 is lost; the frame that moves the window follows the run at once.
        feed(&mut window, &mut log, 4, &[9, 10, 11, 12, 13]);
        assert_eq!(log.take(), [9, 10, 11, 12, 13]);
        assert_eq!(window.held(), 0);
        assert_eq!(window.counts().moved, 7);
    }

    /// Fourth defect: a jump is no loop over 65535 numbers but another beginning.
    #[test]
    fn defect_4_a_far_jump_is_another_beginning() {
        let mut ring = EMPTY;
        let (mut window, mut log) = (TestWindow::NEW, Log::new(&mut ring));
        feed(&mut window, &mut log, 32, &[1, 3, 4, 1000, 1001]);
        assert_eq!(log.take(), [1, 3, 4, 1000, 1001]);
        assert_eq!(window.counts().resyncs, 1);
        // As far as a frame can be reordered, it is none.
        feed(&mut window, &mut log, 32, &[1002 + 160]);
        assert_eq!(log.take(), []);
        assert_eq!(window.counts().resyncs, 1);
        assert_eq!(window.held(), 1);
    }

    /// Fifth defect: across the wrap it is as anywhere else.
    #[test]
    fn defect_5_the_wrap() {
        let mut ring = EMPTY;
        let (mut window, mut log) = (TestWindow::NEW, Log::new(&mut ring));
        feed(&mut window, &mut log, 32, &[65533, 1, 65535, 2, 65534, 3]);
        assert_eq!(log.take(), [65533, 65534, 65535, 1, 2, 3]);
        assert_eq!(window.counts().late, 0);
        assert_eq!(window.counts().resyncs, 0);
    }

    /// Sixth defect: what waits for a frame that never comes is delivered after the timeout,
    /// and not the younger frames behind the next gap.
    #[test]
    fn defect_6_nothing_waits_for_ever() {
        let mut ring = EMPTY;
        let (mut window, mut log) = (TestWindow::NEW, Log::new(&mut ring));
        log.now = 100;
        feed(&mut window, &mut log, 32, &[1, 3]);
        log.now = 200;
        feed(&mut window, &mut log, 32, &[6, 4]);
        assert_eq!(window.expire(99, &mut log), Some(100));
        assert_eq!(log.take(), [1]);
        assert_eq!(window.expire(100, &mut log), Some(200));
        assert_eq!(log.take(), [3, 4]);
        assert_eq!(window.expire(200, &mut log), None);
        assert_eq!(log.take(), [6]);
        assert_eq!(window.counts().timed_out, 3);
        // What comes then is late, but not lost.
        feed(&mut window, &mut log, 32, &[2, 5, 7]);
        assert_eq!(log.take(), [2, 5, 7]);
        assert_eq!(window.counts().late, 2);
    }

    /// Seventh defect: a duplicate is delivered and counted, whether its twin is held or gone.
    #[test]
    fn defect_7_duplicates() {
        let mut ring = EMPTY;
        let (mut window, mut log) = (TestWindow::NEW, Log::new(&mut ring));
        feed(&mut window, &mut log, 32, &[1, 1, 3, 3, 2, 2, 4]);
        assert_eq!(log.take(), [1, 1, 3, 2, 3, 2, 4]);
        assert_eq!(window.counts().duplicates, 3);
        assert_eq!(window.counts().late, 0);
    }

    /// Seventh defect: a peer that begins anew behind the window is believed after a while, and its
    /// frames are delivered meanwhile.
    #[test]
    fn defect_7_a_restart() {
        let mut ring = EMPTY;
        let (mut window, mut log) = (TestWindow::NEW, Log::new(&mut ring));
        feed(&mut window, &mut log, 32, &[30000, 30002]);
        for id in 1..=u16::from(LATE_RUN) {
            feed(&mut window, &mut log, 32, &[id]);
        }
        // What was held comes in front of the frame that is believed.
        assert_eq!(log.take()[15..], [15, 30002, 16]);
        feed(&mut window, &mut log, 32, &[18, 17]);
        assert_eq!(log.take(), [17, 18]);
        assert_eq!(window.counts().resyncs, 1);
    }

    #[test]
    fn without_a_ring_nothing_waits() {
        let mut ring = EMPTY;
        let (mut window, mut log) = (TestWindow::NEW, Log::new(&mut ring));
        log.ring = None;
        feed(&mut window, &mut log, 32, &[1, 3, 2, 4]);
        assert_eq!(log.take(), [1, 3, 2, 4]);
        assert_eq!(window.counts().late, 1);
    }

    #[test]
    fn a_narrower_window_moves() {
        let mut ring = EMPTY;
        let (mut window, mut log) = (TestWindow::NEW, Log::new(&mut ring));
        feed(&mut window, &mut log, 32, &[1, 10, 20]);
        assert_eq!(log.take(), [1]);
        feed(&mut window, &mut log, 4, &[21]);
        assert_eq!(log.take(), [10]);
        feed(&mut window, &mut log, 0, &[22]);
        assert_eq!(log.take(), [20, 21, 22]);
        assert_eq!(window.held(), 0);
        // A duplicate of what is held beyond the new width.
        feed(&mut window, &mut log, 32, &[24, 26]);
        feed(&mut window, &mut log, 0, &[24, 27]);
        assert_eq!(log.take(), [24, 24, 26, 27]);
        assert_eq!(window.counts().duplicates, 1);
    }

    #[test]
    fn a_flush_keeps_the_order() {
        let mut ring = EMPTY;
        let (mut window, mut log) = (TestWindow::NEW, Log::new(&mut ring));
        feed(&mut window, &mut log, 32, &[1, 9, 5, 3]);
        window.restart(&mut log);
        assert_eq!(log.take(), [1, 3, 5, 9]);
        assert!(log.ring.is_some());
        feed(&mut window, &mut log, 32, &[40, 41]);
        assert_eq!(log.take(), [40, 41]);
        assert_eq!(window.counts().resyncs, 0);
    }

    /// Losses alone: the window learns not to wait, and one late frame teaches it to wait again.
    #[test]
    fn adaptive_hold() {
        let mut ring = EMPTY;
        let (mut window, mut log) = (TestWindow::NEW, Log::new(&mut ring));
        let mut id = 1;
        feed(&mut window, &mut log, 32, &[id]);
        for _ in 0..MAX_SCORE {
            assert!(window.score > 0);
            id += 2;
            feed(&mut window, &mut log, 32, &[id]);
            assert_eq!(window.held(), 1);
            log.now += 1000;
            window.expire(log.now, &mut log);
        }
        assert!(window.score == 0);
        let _ = log.take();
        feed(&mut window, &mut log, 32, &[id + 2]);
        assert_eq!(log.take(), [id + 2]);
        feed(&mut window, &mut log, 32, &[id + 1]);
        assert!(window.score > 0);
        assert_eq!(log.take(), [id + 1]);
        feed(&mut window, &mut log, 32, &[id + 4, id + 3]);
        assert_eq!(log.take(), [id + 3, id + 4]);
    }

    /// The last loss that is waited for releases all at once.
    #[test]
    fn giving_up_holds_nothing_back() {
        let mut ring = EMPTY;
        let (mut window, mut log) = (TestWindow::NEW, Log::new(&mut ring));
        feed(&mut window, &mut log, 4, &[1]);
        let mut id = 1;
        for _ in 1..MAX_SCORE {
            id += 2;
            feed(&mut window, &mut log, 4, &[id]);
            window.expire(log.now, &mut log);
        }
        let _ = log.take();
        feed(&mut window, &mut log, 4, &[id + 2, id + 4, id + 6]);
        assert!(window.score == 0);
        assert_eq!(window.held(), 0);
        assert_eq!(log.take(), [id + 2, id + 4, id + 6]);
    }

    /// A late frame is told from a duplicate, however many frames came between.
    #[test]
    fn missing_numbers_are_remembered() {
        let mut ring = EMPTY;
        let (mut window, mut log) = (TestWindow::NEW, Log::new(&mut ring));
        feed(&mut window, &mut log, 0, &[1, 3, 4, 5, 7, 8, 2, 2, 6, 6, 1]);
        assert_eq!(log.take(), [1, 3, 4, 5, 7, 8, 2, 2, 6, 6, 1]);
        let counts = window.counts();
        assert_eq!(
            (counts.late, counts.duplicates, counts.reordered),
            (2, 3, 2)
        );
    }

    /// A frame as far ahead as the window is wide costs nothing; one that moves the window does.
    #[test]
    fn the_width_itself_is_within() {
        let mut ring = EMPTY;
        let (mut window, mut log) = (TestWindow::NEW, Log::new(&mut ring));
        feed(&mut window, &mut log, 4, &[1, 6]);
        assert_eq!((window.held(), window.score), (1, MAX_SCORE));
        feed(&mut window, &mut log, 4, &[7]);
        assert_eq!((window.held(), window.score), (2, MAX_SCORE - 1));
        // Nothing waited for this one, which is not reordered.
        let mut window = TestWindow::NEW;
        feed(&mut window, &mut log, 0, &[1, 3]);
        assert_eq!(
            (window.counts().reordered, window.score),
            (0, MAX_SCORE - 1)
        );
    }

    /// A ring is wanted for the first frame that will be held.
    #[test]
    fn wanting_a_ring() {
        let mut ring = EMPTY;
        let (mut window, mut log) = (TestWindow::NEW, Log::new(&mut ring));
        let wants = |window: &TestWindow<'_>, raw, width| {
            MsgId::new(raw).is_some_and(|id| window.wants_ring(id, width))
        };
        assert!(!wants(&window, 5, 4));
        feed(&mut window, &mut log, 4, &[1]);
        for (raw, wanted) in [(1, false), (2, false), (3, true), (6, true), (7, true)] {
            assert_eq!(wants(&window, raw, 4), wanted);
        }
        assert!(wants(&window, 2 + 4 + 128, 4) && !wants(&window, 2 + 4 + 129, 4));
        assert!(!wants(&window, 3, 0));
        // At a score of 1, the gap that is given up first is the last one.
        window.score = 1;
        assert!(wants(&window, 6, 4) && !wants(&window, 7, 4));
        window.score = 2;
        assert!(wants(&window, 7, 4));
        window.score = 0;
        assert!(!wants(&window, 6, 4) && !wants(&window, 7, 4));
        window.score = MAX_SCORE;
        feed(&mut window, &mut log, 4, &[4]);
        assert!(window.held() == 1 && !wants(&window, 3, 4) && !wants(&window, 5, 4));
    }

    #[test]
    fn overtaken_by_one_that_is_held() {
        let mut ring = EMPTY;
        let (mut window, mut log) = (TestWindow::NEW, Log::new(&mut ring));
        feed(&mut window, &mut log, 32, &[1, 6, 4, 8, 5]);
        assert_eq!((window.held(), window.counts().reordered), (4, 2));
    }
}
