// SPDX-License-Identifier: GPL-2.0

//! The sources that send numbered frames to us, each with its reorder window.
//!
//! A source is a queue pair of a port: the GID and the QPN that a frame came from. Both can be
//! forged, so that the cost of a source is bounded, and so is what a flood of forged ones can take from
//! the real ones:
//!
//! * The table does not grow. Frames of a source that finds no place in it are received, but not put in
//!   order.
//! * A source is established after [`ESTABLISHED`] frames. It keeps its place for as long as it
//!   sends something every [`IDLE_MS`]; what is not established may lose its place to any new one.
//! * Frames are held in one of a few rings, which a source has only for as long as it holds
//!   something. The second half of them is for established sources, which, where all are taken, take
//!   one from another: each holds for a shorter time then, but none is left without.

use core::borrow::BorrowMut;

use crate::seq::reorder::{Counts, Event, Held, Host, Window};
use crate::seq::MsgId;
use crate::table::{InsertError, Seed, Slot, Table};
use crate::wire::hwaddr::HwAddr;

mod rings;

pub use rings::Place;
use rings::Rings;

/// After so many frames a source keeps its place.
pub const ESTABLISHED: u64 = 64;
/// A source that has sent nothing for so long, in milliseconds, is forgotten.
///
/// Shorter than the time that a sender keeps a path without using it
/// ([`crate::fsm::path::IDLE_MS`]), behind which it begins anew.
pub const IDLE_MS: u64 = 30_000;
/// A source that has sent nothing for so long, in milliseconds, may go on with any number: no frame
/// is on its way for that long.
const PAUSE_MS: u64 = 1_000;
/// How often idle sources are looked for, in milliseconds, and in how many slots at a time.
const SWEEP_MS: u64 = 1_000;
const SWEEP_SLOTS: usize = 256;

/// A source.
#[derive(Debug)]
pub struct Source<T, B> {
    window: Window<T, B>,
    frames: u64,
    /// In milliseconds.
    last: u64,
}

impl<T, B> Source<T, B> {
    /// The window.
    pub const fn window(&self) -> &Window<T, B> {
        &self.window
    }

    /// For how long it has sent nothing at `now`, in milliseconds.
    pub const fn idle_for(&self, now: u64) -> u64 {
        now.saturating_sub(self.last)
    }

    /// Returns true if it keeps its place.
    pub const fn is_established(&self) -> bool {
        self.frames >= ESTABLISHED
    }

    /// Score for the choice of a source that loses its place; `None` if it keeps it.
    fn score(&self, now: u64) -> Option<u64> {
        let idle = self.idle_for(now);
        if idle >= IDLE_MS {
            Some(u64::MAX)
        } else if self.is_established() {
            None
        } else {
            // The younger one goes first, lest a flood pushes out one that is about to be established.
            Some(
                ESTABLISHED
                    .saturating_sub(self.frames)
                    .saturating_mul(IDLE_MS)
                    .saturating_add(idle),
            )
        }
    }
}

/// Counts of events in the life of sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// Sources that lost their place to others.
    pub evicted: u64,
    /// Sources that were idle and forgotten.
    pub expired: u64,
    /// Frames of sources for which there was no place.
    pub refused: u64,
    /// Frames that could not be held since all rings were taken.
    pub no_ring: u64,
    /// Rings that were taken from one source for another.
    pub reclaimed: u64,
}

/// Receiver of frames that are in order, with a clock.
pub trait Sink<T> {
    /// The time in microseconds.
    fn now_us(&mut self) -> u64;

    /// Passes a frame on.
    fn deliver(&mut self, item: T);

    /// Is told what becomes of a frame of the source `from`, as [`Host::note`].
    #[inline]
    fn note(&mut self, _from: &HwAddr, _id: MsgId, _event: Event, _since: u64) {}
}

/// Rings and statistics, which all windows share.
struct Shared<B, P> {
    rings: Rings<B, P>,
    events: Events,
    /// Sum of the counts of all sources, those that are gone included, less the counts that were taken.
    counts: Counts,
    /// Frames that all sources hold.
    holding: usize,
}

impl<B, P: BorrowMut<[Place<B>]>> Shared<B, P> {
    /// Calls `f` with a source's window and what that uses, and counts what it does. Of the rings, `reserve`
    /// have to remain when it takes one.
    fn with_window<'a, T, S: Sink<T>, R>(
        &'a mut self,
        (from, source): (&'a HwAddr, &mut Source<T, B>),
        reserve: usize,
        sink: &'a mut S,
        f: impl FnOnce(&mut Window<T, B>, &mut Surroundings<'_, B, S, P>) -> R,
    ) -> R {
        let (before, held) = (*source.window.counts(), source.window.held());
        let (rings, events) = (&mut self.rings, &mut self.events);
        let mut host = Surroundings {
            from,
            sink,
            rings,
            events,
            reserve,
        };
        let result = f(&mut source.window, &mut host);
        self.counts.add_difference(&before, source.window.counts());
        let rest = self.holding.saturating_sub(held);
        self.holding = rest.saturating_add(source.window.held());
        result
    }
}

/// Resources that a window uses.
struct Surroundings<'a, B, S, P> {
    /// Address of the source.
    from: &'a HwAddr,
    sink: &'a mut S,
    rings: &'a mut Rings<B, P>,
    events: &'a mut Events,
    /// Rings that have to remain when it takes one.
    reserve: usize,
}

impl<T, B, S: Sink<T>, P: BorrowMut<[Place<B>]>> Host<T, B> for Surroundings<'_, B, S, P> {
    fn now(&mut self) -> u64 {
        self.sink.now_us()
    }

    fn take_ring(&mut self) -> Option<B> {
        let ring = self.rings.take(self.reserve);
        if ring.is_none() {
            self.events.no_ring = self.events.no_ring.wrapping_add(1);
        }
        ring
    }

    fn return_ring(&mut self, ring: B) {
        self.rings.put(ring);
    }

    fn deliver(&mut self, item: T) {
        self.sink.deliver(item);
    }

    #[inline]
    fn note(&mut self, id: MsgId, event: Event, since: u64) {
        self.sink.note(self.from, id, event, since);
    }
}

/// A numbered frame of a source.
pub struct Numbered<'a, T> {
    /// Address of the source.
    pub from: &'a HwAddr,
    /// Number of the frame.
    pub id: MsgId,
    /// The frame.
    pub item: T,
}

/// All sources. `T` is the frame, `B` the storage of a ring, `S` that of the table, `P` that of the
/// rings.
pub struct Sources<T, B, S, P> {
    table: Table<Source<T, B>, S>,
    shared: Shared<B, P>,
    /// True if there is anything new in `counts`, less `in_order`, or `events`, or another number
    /// of sources.
    changed: bool,
    /// When slots are to be swept again.
    next_sweep: u64,
    sweep_at: usize,
    /// The place whose holder is the next to lose its ring.
    reclaim_at: usize,
}

impl<T, B, S, P> Sources<T, B, S, P>
where
    B: BorrowMut<[Option<Held<T>>]>,
    S: BorrowMut<[Slot<Source<T, B>>]>,
    P: BorrowMut<[Place<B>]>,
{
    /// Makes an empty table; `None` unless the number of slots is a power of two. As many sources can
    /// hold frames at a time as there are places.
    pub fn new(slots: S, places: P, seed: Seed) -> Option<Self> {
        Some(Sources {
            table: Table::new(slots, seed)?,
            shared: Shared {
                rings: Rings::new(places),
                events: Events::default(),
                counts: Counts::default(),
                holding: 0,
            },
            changed: false,
            next_sweep: SWEEP_MS,
            sweep_at: 0,
            reclaim_at: 0,
        })
    }

    /// How many sources there are.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns true if there is none.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// How many frames they hold.
    pub fn holding(&self) -> usize {
        self.shared.holding
    }

    /// Takes the number of frames that came as expected since this was called last.
    #[inline]
    pub fn take_in_order(&mut self) -> u64 {
        core::mem::take(&mut self.shared.counts.in_order)
    }

    /// Takes the other counts since this was called last, if there are any.
    #[inline]
    pub fn take_changes(&mut self) -> Option<(Counts, Events)> {
        if !self.changed {
            return None;
        }
        self.changed = false;
        let in_order = core::mem::take(&mut self.shared.counts.in_order);
        let changes = (
            core::mem::take(&mut self.shared.counts),
            core::mem::take(&mut self.shared.events),
        );
        self.shared.counts.in_order = in_order;
        Some(changes)
    }

    /// Walks over all sources.
    pub fn iter(&self) -> impl Iterator<Item = (&HwAddr, &Source<T, B>)> + '_ {
        self.table.iter()
    }

    /// Takes a numbered frame in if it is the next one of its source, and nothing is held: the caller delivers it then.
    /// False: [`Self::receive_other`] takes it in. `now` is in milliseconds.
    // Short, and for every frame: not worth a call.
    #[inline(always)]
    pub fn receive_next(&mut self, from: &HwAddr, id: MsgId, now: u64) -> bool {
        let Some(source) = self.table.get_mut(from) else {
            return false;
        };
        // `receive_other` deals with a clock that went back.
        let paused = now.wrapping_sub(source.last) >= PAUSE_MS;
        if paused || !source.window.receive_in_order(id) {
            return false;
        }
        source.frames = source.frames.wrapping_add(1);
        source.last = now;
        self.shared.counts.in_order = self.shared.counts.in_order.wrapping_add(1);
        true
    }

    /// Takes in a frame that [`Self::receive_next`] did not take: of a new source, or not the next one. True: something
    /// is held now that was not before, and [`Sources::expire`] is to be called when the timeout is over.
    #[inline(never)]
    pub fn receive_other(
        &mut self,
        frame: Numbered<'_, T>,
        width: u8,
        now: u64,
        sink: &mut impl Sink<T>,
    ) -> bool {
        let Numbered { from, id, item } = frame;
        self.changed = true;
        if self.table.get_mut(from).is_none() && !self.admit(from, now, sink) {
            self.shared.events.refused = self.shared.events.refused.wrapping_add(1);
            sink.deliver(item);
            return false;
        }
        if self.shared.rings.is_empty()
            && self.table.get_mut(from).is_some_and(|source| {
                source.is_established()
                    && source.idle_for(now) < PAUSE_MS
                    && source.window.wants_ring(id, width)
            })
        {
            self.reclaim(sink);
        }
        let Some(source) = self.table.get_mut(from) else {
            sink.deliver(item);
            return false;
        };
        source.frames = source.frames.wrapping_add(1);
        let paused = source.idle_for(now) >= PAUSE_MS;
        source.last = now;
        let before = source.window.held();
        let reserve = if source.is_established() {
            0
        } else {
            self.shared.rings.len().div_ceil(2)
        };
        self.shared
            .with_window((from, source), reserve, sink, |window, host| {
                if paused {
                    window.restart(host);
                }
                window.receive(id, item, width, host);
            });
        let after = source.window.held();
        if (before == 0) != (after == 0) {
            self.shared.rings.note_holding(from, after > 0);
        }
        before == 0 && after > 0
    }

    /// Finds a place for a new source.
    #[cold]
    fn admit(&mut self, from: &HwAddr, now: u64, sink: &mut impl Sink<T>) -> bool {
        for _ in 0..2 {
            let source = Source {
                window: Window::NEW,
                frames: 0,
                last: now,
            };
            match self.table.insert(*from, source) {
                Ok(_) | Err((InsertError::Exists, _)) => return true,
                Err((InsertError::Full, _)) => {}
            }
            let Some(victim) = self.table.victim(from, |source| source.score(now)) else {
                return false;
            };
            self.shared.events.evicted = self.shared.events.evicted.wrapping_add(1);
            self.remove(&victim, sink);
        }
        false
    }

    /// Forgets a source, and delivers what it holds.
    fn remove(&mut self, from: &HwAddr, sink: &mut impl Sink<T>) {
        let Some(mut source) = self.table.remove(from) else {
            return;
        };
        if source.window.held() > 0 {
            self.shared.rings.note_holding(from, false);
        }
        self.changed = true;
        self.shared
            .with_window((from, &mut source), 0, sink, |window, host| {
                window.flush(host)
            });
    }

    /// Delivers what has waited for `timeout` or longer. Returns in how long to look again, if anything
    /// is held: when the next one has waited for as long, but not before an eighth of the timeout is
    /// over, lest a timer runs for each frame. All in microseconds.
    pub fn expire(&mut self, timeout: u64, sink: &mut impl Sink<T>) -> Option<u64> {
        let now = sink.now_us();
        let before = now.checked_sub(timeout);
        self.changed = true;
        let mut oldest: Option<u64> = None;
        for at in 0..self.shared.rings.len() {
            let Some(from) = self.shared.rings.holder(at) else {
                continue;
            };
            let rest = match (self.table.get_mut(&from), before) {
                (Some(source), Some(before)) => {
                    self.shared
                        .with_window((&from, source), 0, sink, |window, host| {
                            window.expire(before, host)
                        })
                }
                // Nothing is as old as the timeout yet while the clock is younger than that.
                (Some(_), None) => Some(now),
                (None, _) => None,
            };
            match rest {
                Some(since) => oldest = Some(oldest.map_or(since, |oldest| oldest.min(since))),
                None => self.shared.rings.forget_holder(at),
            }
        }
        let age = now.saturating_sub(oldest?);
        Some(timeout.saturating_sub(age).max(timeout >> 3).max(1))
    }

    /// Delivers all that is held. The sources are kept.
    pub fn flush(&mut self, sink: &mut impl Sink<T>) {
        self.changed = true;
        for at in 0..self.shared.rings.len() {
            self.release(at, sink);
        }
    }

    /// Takes the ring of one of the sources that hold something, in turn.
    #[cold]
    fn reclaim(&mut self, sink: &mut impl Sink<T>) {
        let places = self.shared.rings.len();
        for _ in 0..places {
            let at = self.reclaim_at;
            let next = at.wrapping_add(1);
            self.reclaim_at = if next < places { next } else { 0 };
            if self.release(at, sink) {
                self.shared.events.reclaimed = self.shared.events.reclaimed.wrapping_add(1);
                return;
            }
        }
    }

    /// Delivers what the source on the list at `at` holds, and takes it off. False: there is none.
    fn release(&mut self, at: usize, sink: &mut impl Sink<T>) -> bool {
        let Some(from) = self.shared.rings.holder(at) else {
            return false;
        };
        self.shared.rings.forget_holder(at);
        if let Some(source) = self.table.get_mut(&from) {
            self.shared
                .with_window((&from, source), 0, sink, |window, host| window.flush(host));
        }
        true
    }

    /// Delivers all that is held, and forgets all sources.
    pub fn clear(&mut self, sink: &mut impl Sink<T>) {
        self.flush(sink);
        while self.table.pop().is_some() {}
    }

    /// Forgets sources that are idle. To be called every now and then; `now` is in milliseconds.
    #[inline]
    pub fn sweep(&mut self, now: u64, sink: &mut impl Sink<T>) {
        if now >= self.next_sweep {
            self.next_sweep = now.saturating_add(SWEEP_MS);
            self.sweep_some(now, sink);
        }
    }

    #[cold]
    fn sweep_some(&mut self, now: u64, sink: &mut impl Sink<T>) {
        // Both are powers of two, so that the slots follow each other.
        let capacity = self.table.capacity();
        let end = self.sweep_at.wrapping_add(SWEEP_SLOTS.min(capacity));
        let mut rest = self.sweep_at..end;
        self.sweep_at = end & capacity.wrapping_sub(1);
        while let Some(at) = self.table.first_in(rest.clone()) {
            rest.start = at.wrapping_add(1);
            let idle = match self.table.slot_mut(at) {
                Some((from, source)) if source.idle_for(now) >= IDLE_MS => *from,
                _ => continue,
            };
            self.shared.events.expired = self.shared.events.expired.wrapping_add(1);
            self.remove(&idle, sink);
        }
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_source))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;
    use crate::wire::gid::Gid;
    use crate::wire::hwaddr::{Flags, Qpn};

    impl<T, B, S, P> Sources<T, B, S, P>
    where
        B: BorrowMut<[Option<Held<T>>]>,
        S: BorrowMut<[Slot<Source<T, B>>]>,
        P: BorrowMut<[Place<B>]>,
    {
        /// Takes a numbered frame in, and delivers it if it is the next one.
        fn receive(
            &mut self,
            frame: Numbered<'_, T>,
            width: u8,
            now: u64,
            sink: &mut impl Sink<T>,
        ) -> bool {
            if self.receive_next(frame.from, frame.id, now) {
                sink.deliver(frame.item);
                return false;
            }
            self.receive_other(frame, width, now, sink)
        }
    }

    const SLOTS: usize = 8;
    const LOG: usize = 128;
    const SEED: Seed = Seed([3, 5, 7, 11, 13, 17]);

    /// A ring, lent by the test: kernel stacks are small.
    type Ring<'a> = &'a mut [Option<Held<u32>>];
    type TestSource<'a> = Source<u32, Ring<'a>>;
    type TestSources<'a> =
        Sources<u32, Ring<'a>, &'a mut [Slot<TestSource<'a>>], &'a mut [Place<Ring<'a>>]>;

    const EMPTY: [Option<Held<u32>>; 128] = [const { None }; 128];

    struct Log {
        now: u64,
        delivered: [u32; LOG],
        len: usize,
        /// The note that came last.
        note: Option<(HwAddr, MsgId, Event, u64)>,
    }

    impl Sink<u32> for Log {
        fn now_us(&mut self) -> u64 {
            self.now
        }

        fn deliver(&mut self, item: u32) {
            self.delivered[self.len] = item;
            self.len += 1;
        }

        fn note(&mut self, from: &HwAddr, id: MsgId, event: Event, since: u64) {
            self.note = Some((*from, id, event, since));
        }
    }

    impl Log {
        fn new() -> Self {
            Log {
                now: 0,
                delivered: [0; LOG],
                len: 0,
                note: None,
            }
        }

        fn take(&mut self) -> &[u32] {
            let len = core::mem::take(&mut self.len);
            &self.delivered[..len]
        }
    }

    fn sources<'a>(
        slots: &'a mut [Slot<TestSource<'a>>],
        places: &'a mut [Place<Ring<'a>>],
    ) -> TestSources<'a> {
        match Sources::new(slots, places, SEED) {
            Some(sources) => sources,
            None => unreachable!("the number of slots is a power of two"),
        }
    }

    fn peer(qpn: u32) -> HwAddr {
        let mut gid = [0; 16];
        gid[0] = 0xfe;
        gid[1] = 0x80;
        gid[15] = 1;
        HwAddr::new(
            Flags::NONE,
            Qpn::new(qpn).unwrap_or(Qpn::MULTICAST),
            Gid(gid),
        )
    }

    fn changes(sources: &mut TestSources<'_>) -> (Counts, Events) {
        sources.take_changes().unwrap_or_default()
    }

    fn id(raw: u16) -> MsgId {
        MsgId::new(raw).unwrap_or(MsgId::FIRST)
    }

    fn frame(from: &HwAddr, id: MsgId, item: u32) -> Numbered<'_, u32> {
        Numbered { from, id, item }
    }

    /// Makes a source established, up to number [`ESTABLISHED`].
    fn establish(sources: &mut TestSources<'_>, from: &HwAddr, now: u64, log: &mut Log) {
        for raw in 1..=ESTABLISHED as u16 {
            sources.receive(frame(from, id(raw), 0), 32, now, log);
        }
        let _ = log.take();
    }

    #[test]
    fn each_source_has_a_window_of_its_own() {
        let (mut ring, mut slots) = (EMPTY, [const { Slot::EMPTY }; SLOTS]);
        let mut places = [Place::new(&mut ring[..])];
        let (mut sources, mut log) = (sources(&mut slots, &mut places), Log::new());
        let (a, b) = (peer(0x11), peer(0x12));
        establish(&mut sources, &a, 0, &mut log);
        log.now = 7;
        assert!(sources.receive(frame(&a, id(66), 66), 32, 0, &mut log));
        assert_eq!(log.note, Some((a, id(66), Event::Held, 7)));
        assert!(!sources.receive(frame(&b, id(500), 500), 32, 0, &mut log));
        assert!(!sources.receive(frame(&b, id(501), 501), 32, 0, &mut log));
        log.now = 9;
        assert!(!sources.receive(frame(&a, id(65), 65), 32, 0, &mut log));
        assert_eq!(log.note, Some((a, id(66), Event::Filled, 7)));
        assert_eq!(log.take(), [500, 501, 65, 66]);
        assert_eq!(sources.len(), 2);
        assert_eq!(changes(&mut sources).0.filled, 1);
    }

    /// A source that holds nothing any more leaves its place on the list to another.
    #[test]
    fn places_of_holders_are_left() {
        let (mut ring, mut slots) = (EMPTY, [const { Slot::EMPTY }; SLOTS]);
        let mut places = [Place::new(&mut ring[..])];
        let (mut sources, mut log) = (sources(&mut slots, &mut places), Log::new());
        let (a, b) = (peer(0x11), peer(0x12));
        establish(&mut sources, &a, 0, &mut log);
        establish(&mut sources, &b, 0, &mut log);
        // It expires, then it is flushed: each time the other one comes after it.
        for (turn, (first, second)) in [(a, b), (b, a)].into_iter().enumerate() {
            let next = id(66 + 2 * turn as u16);
            log.now = 5_000 * (1 + turn as u64);
            assert!(sources.receive(frame(&first, next, 1), 32, 5, &mut log));
            if turn == 0 {
                log.now += 1_000;
                assert_eq!(sources.expire(1_000, &mut log), None);
            } else {
                sources.flush(&mut log);
            }
            assert_eq!(log.take(), [1]);
            assert!(sources.receive(frame(&second, next, 2), 32, 5, &mut log));
            assert_eq!(sources.expire(1_000, &mut log), Some(1_000));
            log.now += 1_000;
            assert_eq!(sources.expire(1_000, &mut log), None);
            assert_eq!(log.take(), [2]);
        }
    }

    /// The timer's view: when to come back, and nothing is held for longer.
    #[test]
    fn what_is_held_expires() {
        let (mut ring, mut slots) = (EMPTY, [const { Slot::EMPTY }; SLOTS]);
        let mut places = [Place::new(&mut ring[..])];
        let (mut sources, mut log) = (sources(&mut slots, &mut places), Log::new());
        let a = peer(0x11);
        establish(&mut sources, &a, 0, &mut log);
        log.now = 5_000;
        assert!(sources.receive(frame(&a, id(66), 66), 32, 5, &mut log));
        log.now = 5_400;
        assert_eq!(sources.expire(1_000, &mut log), Some(600));
        assert_eq!(log.take(), []);
        log.now = 6_000;
        assert_eq!(sources.expire(1_000, &mut log), None);
        assert_eq!(log.take(), [66]);
        // The ring is free again.
        assert!(sources.receive(frame(&a, id(68), 68), 32, 6, &mut log));
        log.now = 6_999;
        assert_eq!(sources.expire(1_000, &mut log), Some(125));
        assert_eq!(changes(&mut sources).1.no_ring, 0);
    }

    /// While few rings are free, a newcomer gets none, and its frames are not held.
    #[test]
    fn rings_are_for_established_sources() {
        let (mut ring, mut slots) = (EMPTY, [const { Slot::EMPTY }; SLOTS]);
        let mut places = [Place::new(&mut ring[..])];
        let (mut sources, mut log) = (sources(&mut slots, &mut places), Log::new());
        let a = peer(0x11);
        sources.receive(frame(&a, id(1), 1), 32, 0, &mut log);
        assert!(!sources.receive(frame(&a, id(3), 3), 32, 0, &mut log));
        assert_eq!(log.take(), [1, 3]);
        assert_eq!(changes(&mut sources).1.no_ring, 1);
    }

    /// Whoever holds all rings cannot keep them from the others; what he held is delivered.
    #[test]
    fn rings_are_taken_in_turn() {
        let (mut first, mut second) = (EMPTY, EMPTY);
        let mut slots = [const { Slot::EMPTY }; SLOTS];
        let mut places = [Place::new(&mut first[..]), Place::new(&mut second[..])];
        let (mut sources, mut log) = (sources(&mut slots, &mut places), Log::new());
        let all = [peer(0x11), peer(0x12), peer(0x13)];
        for from in &all {
            establish(&mut sources, from, 0, &mut log);
        }
        let [a, b, c] = all;
        assert!(sources.receive(frame(&a, id(66), 66), 32, 0, &mut log));
        assert!(sources.receive(frame(&b, id(67), 67), 32, 0, &mut log));
        // Neither a late frame takes anything from anybody, nor the first one after a pause.
        assert!(!sources.receive(frame(&c, id(64), 64), 32, 0, &mut log));
        assert!(!sources.receive(frame(&c, id(70), 70), 32, PAUSE_MS, &mut log));
        assert_eq!(log.take(), [64, 70]);
        assert_eq!(changes(&mut sources).1.reclaimed, 0);
        assert!(sources.receive(frame(&c, id(74), 74), 32, PAUSE_MS, &mut log));
        let evicted = log.take();
        assert!(evicted == [66] || evicted == [67]);
        let loser = if evicted == [66] { a } else { b };
        // In turn: now it is the other one of the two that goes.
        assert!(sources.receive(frame(&loser, id(80), 80), 32, 0, &mut log));
        let evicted = log.take();
        assert!(evicted == [66] || evicted == [67]);
        let (_, events) = changes(&mut sources);
        assert_eq!((events.reclaimed, events.no_ring), (2, 0));
        for raw in 71..=73 {
            sources.receive(frame(&c, id(raw), raw.into()), 32, PAUSE_MS, &mut log);
        }
        assert_eq!(log.take(), [71, 72, 73, 74]);
    }

    /// A flood of forged sources does not push an established one out, nor grow the table.
    #[test]
    fn a_flood_evicts_itself() {
        let (mut ring, mut slots) = (EMPTY, [const { Slot::EMPTY }; SLOTS]);
        let mut places = [Place::new(&mut ring[..])];
        let (mut sources, mut log) = (sources(&mut slots, &mut places), Log::new());
        let a = peer(0x11);
        establish(&mut sources, &a, 0, &mut log);
        for qpn in 0x1000..0x2000 {
            sources.receive(frame(&peer(qpn), id(9), 0), 32, 1, &mut log);
            let _ = log.take();
        }
        assert_eq!(sources.len(), SLOTS);
        assert!(changes(&mut sources).1.evicted >= 0xff8);
        assert!(sources.receive(frame(&a, id(66), 66), 32, 2, &mut log));
        assert!(!sources.receive(frame(&a, id(65), 65), 32, 2, &mut log));
        assert_eq!(log.take(), [65, 66]);
    }

    /// Where all are established, a newcomer's frames are delivered as they come.
    #[test]
    fn a_full_table_refuses_and_delivers() {
        let mut slots = [const { Slot::EMPTY }; SLOTS];
        let (mut sources, mut log) = (sources(&mut slots, &mut []), Log::new());
        for qpn in 2..2 + SLOTS as u32 {
            establish(&mut sources, &peer(qpn), 0, &mut log);
        }
        assert_eq!(sources.len(), SLOTS);
        let late = peer(0x999);
        sources.receive(frame(&late, id(5), 5), 32, 1, &mut log);
        sources.receive(frame(&late, id(4), 4), 32, 1, &mut log);
        assert_eq!(log.take(), [5, 4]);
        assert_eq!(changes(&mut sources).1.refused, 2);
        // One of the others is idle at last.
        sources.receive(frame(&late, id(6), 6), 32, IDLE_MS, &mut log);
        let events = changes(&mut sources).1;
        assert_eq!((events.refused, events.evicted), (0, 1));
        // And none of what they did is forgotten.
        assert_eq!(sources.take_in_order(), ESTABLISHED * SLOTS as u64 + 1);
    }

    #[test]
    fn an_evicted_source_loses_nothing() {
        let (mut ring, mut slots) = (EMPTY, [const { Slot::EMPTY }; SLOTS]);
        let mut places = [Place::new(&mut ring[..])];
        let (mut sources, mut log) = (sources(&mut slots, &mut places), Log::new());
        let a = peer(0x11);
        establish(&mut sources, &a, 0, &mut log);
        assert!(sources.receive(frame(&a, id(66), 66), 32, 0, &mut log));
        for qpn in 0x1000..0x1020 {
            sources.receive(frame(&peer(qpn), id(9), 0), 32, IDLE_MS, &mut log);
        }
        assert!(log.take().contains(&66));
    }

    /// After a pause a sender may go on anywhere: nothing of it is on its way any more.
    #[test]
    fn a_pause_is_another_beginning() {
        let (mut ring, mut slots) = (EMPTY, [const { Slot::EMPTY }; SLOTS]);
        let mut places = [Place::new(&mut ring[..])];
        let (mut sources, mut log) = (sources(&mut slots, &mut places), Log::new());
        let a = peer(0x11);
        establish(&mut sources, &a, 0, &mut log);
        assert!(!sources.receive(frame(&a, id(80), 80), 32, PAUSE_MS, &mut log));
        assert_eq!(log.take(), [80]);
        assert_eq!(changes(&mut sources).0.resyncs, 0);
    }

    #[test]
    fn idle_sources_are_swept() {
        let (mut ring, mut slots) = (EMPTY, [const { Slot::EMPTY }; SLOTS]);
        let mut places = [Place::new(&mut ring[..])];
        let (mut sources, mut log) = (sources(&mut slots, &mut places), Log::new());
        sources.receive(frame(&peer(0x11), id(1), 1), 32, 0, &mut log);
        sources.receive(frame(&peer(0x12), id(1), 1), 32, 1_000, &mut log);
        sources.sweep(IDLE_MS, &mut log);
        assert_eq!(sources.len(), 1);
        sources.sweep(IDLE_MS + SWEEP_MS / 2, &mut log);
        assert_eq!(sources.len(), 1);
        sources.sweep(IDLE_MS + SWEEP_MS, &mut log);
        assert_eq!(sources.len(), 0);
        assert_eq!(changes(&mut sources).1.expired, 2);
    }

    #[test]
    fn clearing_delivers_what_is_held() {
        let (mut ring, mut slots) = (EMPTY, [const { Slot::EMPTY }; SLOTS]);
        let mut places = [Place::new(&mut ring[..])];
        let (mut sources, mut log) = (sources(&mut slots, &mut places), Log::new());
        let a = peer(0x11);
        establish(&mut sources, &a, 0, &mut log);
        sources.receive(frame(&a, id(68), 68), 32, 0, &mut log);
        sources.receive(frame(&a, id(66), 66), 32, 0, &mut log);
        sources.clear(&mut log);
        assert_eq!(log.take(), [66, 68]);
        assert!(sources.is_empty());
        assert_eq!(sources.take_in_order(), ESTABLISHED);
    }

    /// Frames in order are counted, and nothing else changes; nor does a pause let a frame be the next.
    #[test]
    fn frames_in_order_change_nothing() {
        let mut slots = [const { Slot::EMPTY }; SLOTS];
        let (mut sources, mut log) = (sources(&mut slots, &mut []), Log::new());
        assert!(sources.is_empty());
        let a = peer(0x11);
        establish(&mut sources, &a, 0, &mut log);
        assert!(!sources.is_empty() && sources.take_changes().is_some());
        assert_eq!(sources.take_in_order(), ESTABLISHED);
        sources.receive(frame(&a, id(65), 65), 32, PAUSE_MS - 1, &mut log);
        assert!(sources.take_changes().is_none() && sources.take_in_order() == 1);
        sources.receive(frame(&a, id(66), 66), 32, 2 * PAUSE_MS - 1, &mut log);
        assert!(sources.take_changes().is_some() && sources.take_in_order() == 1);
        assert_eq!(log.take(), [65, 66]);
    }

    /// A source that leaves takes its name off the list of those that hold something.
    #[test]
    fn a_removed_source_is_no_holder() {
        let (mut ring, mut slots) = (EMPTY, [const { Slot::EMPTY }; SLOTS]);
        let mut places = [Place::new(&mut ring[..])];
        let (mut sources, mut log) = (sources(&mut slots, &mut places), Log::new());
        let (a, b) = (peer(0x11), peer(0x12));
        establish(&mut sources, &a, 0, &mut log);
        establish(&mut sources, &b, IDLE_MS, &mut log);
        assert!(sources.receive(frame(&a, id(66), 66), 32, 0, &mut log));
        assert_eq!(sources.shared.rings.holder(0), Some(a));
        sources.sweep(IDLE_MS, &mut log);
        assert_eq!(
            (log.take(), sources.shared.rings.holder(0)),
            (&[66][..], None)
        );
        // One that holds nothing leaves the list as it is.
        assert!(sources.receive(frame(&b, id(66), 1), 32, IDLE_MS, &mut log));
        sources.receive(frame(&a, id(1), 2), 32, IDLE_MS, &mut log);
        sources.remove(&a, &mut log);
        assert_eq!(sources.shared.rings.holder(0), Some(b));
        // A gap that fills ends that, too.
        sources.receive(frame(&b, id(65), 3), 32, IDLE_MS, &mut log);
        assert_eq!(sources.shared.rings.holder(0), None);
    }

    /// One ring for all: it goes back and forth.
    #[test]
    fn a_single_ring_is_taken_again() {
        let (mut ring, mut slots) = (EMPTY, [const { Slot::EMPTY }; SLOTS]);
        let mut places = [Place::new(&mut ring[..])];
        let (mut sources, mut log) = (sources(&mut slots, &mut places), Log::new());
        let (a, b) = (peer(0x11), peer(0x12));
        establish(&mut sources, &a, 0, &mut log);
        establish(&mut sources, &b, 0, &mut log);
        for raw in [66, 68, 70] {
            assert!(sources.receive(frame(&a, id(raw), 1), 32, 0, &mut log));
            assert!(sources.receive(frame(&b, id(raw), 2), 32, 0, &mut log));
        }
        assert_eq!(log.take(), [1, 2, 1, 2, 1]);
        assert_eq!(changes(&mut sources).1.reclaimed, 5);
    }
}
