// SPDX-License-Identifier: GPL-2.0

//! A slow and simple reorder window, and a play of it and the real one side by side.

use std::borrow::{Borrow, BorrowMut};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use ipoib_proto::reorder::{Held, Host, Window};
use ipoib_proto::seq::MsgId;

/// How long a frame may be held, in microseconds.
pub(crate) const TIMEOUT: u64 = 1000;

/// Event of a window.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A frame with this number arrives.
    Frame(u16),
    /// So many microseconds pass.
    Tick(u64),
    /// Its width is changed.
    Width(u8),
    /// Rings can be had, or not.
    Rings(bool),
}

/// A frame: its number, and the how manieth frame it is.
type Item = (u16, usize);

struct Ring(Vec<Option<Held<Item>>>);

impl Borrow<[Option<Held<Item>>]> for Ring {
    fn borrow(&self) -> &[Option<Held<Item>>] {
        &self.0
    }
}

impl BorrowMut<[Option<Held<Item>>]> for Ring {
    fn borrow_mut(&mut self) -> &mut [Option<Held<Item>>] {
        &mut self.0
    }
}

#[derive(Default)]
struct World {
    now: u64,
    rings: bool,
    spare: Vec<Ring>,
    taken: usize,
    delivered: Vec<Item>,
    error: Option<String>,
}

impl Host<Item, Ring> for World {
    fn now(&mut self) -> u64 {
        self.now
    }

    fn take_ring(&mut self) -> Option<Ring> {
        if !self.rings {
            return None;
        }
        self.taken += 1;
        Some(
            self.spare
                .pop()
                .unwrap_or_else(|| Ring((0..128).map(|_| None).collect())),
        )
    }

    fn return_ring(&mut self, ring: Ring) {
        if ring.0.iter().any(Option::is_some) {
            self.error = Some("a ring with frames in it was given back".into());
        }
        self.taken -= 1;
        self.spare.push(ring);
    }

    fn deliver(&mut self, item: Item) {
        self.delivered.push(item);
    }
}

/// The oracle. Positions are absolute; position `p` has the number `p mod 65535 + 1`.
#[derive(Default)]
struct Oracle {
    next: Option<i64>,
    held: BTreeMap<i64, (Item, u64)>,
    missing: BTreeSet<i64>,
    score: u32,
    late_run: u32,
    delivered: Vec<Item>,
}

impl Oracle {
    /// The position with that number which is nearest to the next one.
    fn position(&self, id: u16) -> i64 {
        let near = self.next.unwrap_or(1_000_000);
        let ahead = (i64::from(id) - 1 - near).rem_euclid(65535);
        near + if ahead > 32767 { ahead - 65535 } else { ahead }
    }

    fn run(&mut self) {
        while let Some(next) = self.next {
            let Some((item, _)) = self.held.remove(&next) else {
                break;
            };
            self.delivered.push(item);
            self.next = Some(next + 1);
        }
    }

    fn give_up(&mut self) {
        if let Some(next) = self.next {
            self.missing.insert(next);
            self.next = Some(next + 1);
        }
        self.run();
    }

    fn punish(&mut self) {
        self.score = self.score.saturating_sub(1);
        if self.score == 0 {
            while !self.held.is_empty() {
                self.give_up();
            }
        }
    }

    fn begin_anew(&mut self, position: i64, item: Item) {
        while !self.held.is_empty() {
            self.give_up();
        }
        self.delivered.push(item);
        self.next = Some(position + 1);
        self.missing.clear();
        self.late_run = 0;
    }

    fn late(&mut self, position: i64, next: i64, item: Item) {
        if next - position <= 128 && self.missing.remove(&position) {
            self.late_run = 0;
            self.score = (self.score + 4).min(16);
            self.delivered.push(item);
            return;
        }
        self.late_run += 1;
        if self.late_run >= 16 {
            self.begin_anew(position, item);
        } else {
            self.delivered.push(item);
        }
    }

    fn frame(&mut self, item: Item, width: i64, rings: bool, now: u64) {
        let position = self.position(item.0);
        let Some(next) = self.next else {
            self.delivered.push(item);
            self.next = Some(position + 1);
            return;
        };
        if position < next {
            return self.late(position, next, item);
        }
        self.late_run = 0;
        if position - next > width + 128 {
            return self.begin_anew(position, item);
        }
        if position - next > width {
            while position - self.next.unwrap() > width {
                self.give_up();
            }
            self.punish();
        }
        let next = self.next.unwrap();
        if position < next {
            // Passed by the move: its twin came out, or all that was held.
            self.late(position, next, item);
        } else if position == next {
            if !self.held.is_empty() {
                self.score = (self.score + 4).min(16);
            }
            self.delivered.push(item);
            self.next = Some(next + 1);
            self.run();
        } else if self.score == 0 || (self.held.is_empty() && !rings) {
            self.missing.extend(next..position);
            self.delivered.push(item);
            self.next = Some(position + 1);
        } else if let Entry::Vacant(place) = self.held.entry(position) {
            place.insert((item, now));
        } else {
            self.delivered.push(item);
        }
    }

    fn expire(&mut self, now: u64) {
        let expired = |(_, since): &(Item, u64)| since + TIMEOUT <= now;
        let Some(last) = self
            .held
            .iter()
            .filter(|(_, held)| expired(held))
            .map(|(p, _)| *p)
            .max()
        else {
            return;
        };
        while self.next.unwrap() <= last {
            self.give_up();
        }
        self.punish();
    }
}

/// A window and its oracle, side by side.
pub(crate) struct Play {
    window: Window<Item, Ring>,
    world: World,
    oracle: Oracle,
    width: u8,
    frames: usize,
}

impl Play {
    pub(crate) fn new(width: u8) -> Self {
        Play {
            window: Window::NEW,
            world: World {
                rings: true,
                ..World::default()
            },
            oracle: Oracle {
                score: 16,
                ..Oracle::default()
            },
            width,
            frames: 0,
        }
    }

    /// Plays a history to its end.
    pub(crate) fn run(&mut self, events: &[Event]) -> Result<(), String> {
        for event in events {
            self.step(event)?;
        }
        self.end()
    }

    /// Lets one thing happen, and compares.
    pub(crate) fn step(&mut self, event: &Event) -> Result<(), String> {
        match *event {
            Event::Frame(raw) => {
                let Some(id) = MsgId::new(raw) else {
                    return Ok(());
                };
                let item = (raw, self.frames);
                self.frames += 1;
                let rings = self.world.rings;
                self.oracle
                    .frame(item, self.width.into(), rings, self.world.now);
                let wanted = self.window.wants_ring(id, self.width);
                let before = self.window.held();
                self.window.receive(id, item, self.width, &mut self.world);
                if before == 0 && rings && wanted != (self.window.held() > 0) {
                    return Err(format!("it wanted a ring for {raw}: {wanted}"));
                }
            }
            Event::Tick(microseconds) => {
                self.world.now += microseconds;
                self.expire()?;
            }
            Event::Width(width) => self.width = width,
            Event::Rings(rings) => self.world.rings = rings,
        }
        self.compare()
    }

    fn expire(&mut self) -> Result<(), String> {
        self.oracle.expire(self.world.now);
        let Some(before) = self.world.now.checked_sub(TIMEOUT) else {
            return Ok(());
        };
        let oldest = self.window.expire(before, &mut self.world);
        if oldest.is_some_and(|since| since <= before) {
            return Err(format!("held since {oldest:?}, at {}", self.world.now));
        }
        if oldest != self.oracle.held.values().map(|(_, since)| *since).min() {
            return Err(format!("the oldest is not from {oldest:?}"));
        }
        Ok(())
    }

    /// Lets the timeout pass, after which nothing may be held, and nothing may be lost.
    pub(crate) fn end(&mut self) -> Result<(), String> {
        self.step(&Event::Tick(TIMEOUT))?;
        if self.window.held() != 0 || self.world.taken != 0 {
            return Err("something is held at the end".into());
        }
        let mut seen: Vec<usize> = self.world.delivered.iter().map(|(_, n)| *n).collect();
        seen.sort_unstable();
        if seen != (0..self.frames).collect::<Vec<_>>() {
            return Err(format!(
                "of {} frames, these came out: {seen:?}",
                self.frames
            ));
        }
        let counts = self.window.counts();
        let released = counts.filled + counts.moved + counts.timed_out;
        if counts.held != released {
            return Err(format!("{} held, {released} released", counts.held));
        }
        // Each frame is counted for what first became of it.
        let sum = counts.in_order + counts.late + counts.held + counts.duplicates + counts.resyncs;
        if sum != self.frames as u64 {
            return Err(format!(
                "{sum} of {} frames counted: {counts:?}",
                self.frames
            ));
        }
        Ok(())
    }

    fn compare(&mut self) -> Result<(), String> {
        if let Some(error) = self.world.error.take() {
            return Err(error);
        }
        if self.world.delivered != self.oracle.delivered {
            return Err(format!(
                "delivered {:?}, and not {:?}",
                self.world.delivered, self.oracle.delivered
            ));
        }
        if self.window.held() != self.oracle.held.len() {
            return Err(format!("holds {} frames", self.window.held()));
        }
        if self.window.held() > 128 || (self.world.taken > 0) != (self.window.held() > 0) {
            return Err("it has a ring for nothing".into());
        }
        Ok(())
    }

    /// The numbers of what was delivered.
    #[allow(dead_code)]
    pub(crate) fn delivered_ids(&self) -> Vec<u16> {
        self.world.delivered.iter().map(|(id, _)| *id).collect()
    }
}
