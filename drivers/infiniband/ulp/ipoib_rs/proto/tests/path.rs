// SPDX-License-Identifier: GPL-2.0

//! The path against a driver that carries its actions out at random moments: no frame and no
//! address handle is ever lost or seen twice, and frames leave in their order.

use std::collections::HashSet;

use ipoib_proto::hwaddr::HwAddr;
use ipoib_proto::path::{self, Action, Path};
use ipoib_proto::queue::{Queue, Verdict};
use ipoib_proto::seq::Sequence;
use ipoib_proto::ticket::Ticket;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Send(u32),
    Transmit,
    Advance(u64),
    /// Let time pass until the path has something to do on its own.
    Deadline,
    /// The answer, which is good for so many milliseconds; or none.
    Answer(Option<u64>),
    StaleAnswer,
    Invalidate,
    Refresh,
    PortDown,
    /// May questions be asked from now on?
    Room(bool),
    /// Is there a link to ask by from now on?
    Open(bool),
    /// Do many frames wait for others from now on?
    Many(bool),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (1u32..100_000).prop_map(Op::Send),
        2 => Just(Op::Transmit),
        3 => prop_oneof![0u64..100, 0u64..20_000, 0u64..200_000].prop_map(Op::Advance),
        2 => Just(Op::Deadline),
        3 => prop_oneof![1u64..20_000, Just(u64::MAX)].prop_map(|ms| Op::Answer(Some(ms))),
        2 => Just(Op::Answer(None)),
        1 => Just(Op::StaleAnswer),
        1 => Just(Op::Invalidate),
        2 => Just(Op::Refresh),
        1 => Just(Op::PortDown),
        2 => any::<bool>().prop_map(Op::Room),
        2 => any::<bool>().prop_map(Op::Open),
        1 => any::<bool>().prop_map(Op::Many),
    ]
}

const PEER: HwAddr = HwAddr([
    0, 0, 0, 0x11, 0xfe, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
]);

/// The driver: what it holds and what it saw.
struct Driver {
    path: Path<u32, Queue<u32, 4>>,
    now: u64,
    next_frame: u32,
    next_handle: u32,
    /// Frames that went in and did not come out.
    waiting: Vec<u32>,
    /// Address handles that exist.
    handles: HashSet<u32>,
    asked: Option<Ticket>,
    old: Vec<Ticket>,
    removed: bool,
    /// The state before the deadline that has come.
    due: Option<&'static str>,
    room: bool,
    open: bool,
    /// Frames that wait for others.
    all: usize,
}

impl Driver {
    fn out(&mut self, frame: u32) {
        let at = self.waiting.iter().position(|f| *f == frame);
        let at = at.expect("a frame comes out once");
        assert_eq!(at, 0, "frames come out in order");
        self.waiting.remove(at);
    }

    fn next(&mut self) -> Option<Action<u32, u32>> {
        if self.open && self.room {
            self.path.poll(self.now)
        } else {
            self.path.poll_unasked(self.open, self.now)
        }
    }

    fn poll(&mut self) {
        for step in 0.. {
            assert!(step < 20, "polling comes to an end");
            let action = self.next();
            let is_due = self
                .due
                .take()
                .is_some_and(|state| state == self.path.state());
            assert!(action.is_some() || !is_due, "nothing at the deadline");
            match action {
                Some(Action::Resolve(ticket)) => {
                    self.old.extend(self.asked.replace(ticket));
                }
                Some(Action::Transmit(frame)) => {
                    assert!(self.handles.contains(self.path.handle().unwrap()));
                    self.out(frame);
                }
                Some(Action::Drop(frame, reason)) => {
                    assert!(reason.name().starts_with("tx_drop_"));
                    self.out(frame);
                }
                Some(Action::Release(handle)) => assert!(self.handles.remove(&handle)),
                Some(Action::Remove) => {
                    assert!(self.waiting.is_empty() && self.handles.is_empty());
                    self.removed = true;
                    return;
                }
                None => break,
            }
        }
        // Frames wait for an answer, for a turn, for a link, or not at all.
        let asks = self.room && self.open;
        assert!(self.waiting.is_empty() || self.asked.is_some() || !asks);
        assert!(self.path.deadline() > self.now, "the deadline is past");
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Send(bytes) => {
                let frame = self.next_frame;
                self.next_frame += 1;
                match self.path.send(frame, bytes, self.all, self.now) {
                    Verdict::Transmit(_) => assert!(self.waiting.is_empty()),
                    Verdict::Queued => {
                        self.waiting.push(frame);
                        assert!(self.all == 0 || self.waiting.len() <= 3);
                    }
                    Verdict::Drop(back, _) => assert_eq!(back, frame),
                }
                assert!(self.waiting.len() <= 4);
            }
            Op::Transmit => {
                if let Some((handle, _)) = self.path.transmit(self.now) {
                    assert!(self.handles.contains(handle));
                    assert!(self.waiting.is_empty());
                }
            }
            Op::Advance(ms) => self.now += ms,
            Op::Deadline => {
                let deadline = self.path.deadline();
                if deadline <= self.now {
                    return;
                }
                self.now = deadline - 1;
                assert_eq!(self.next(), None, "nothing before the deadline");
                // At the deadline there is something, which the next poll sees, but where no frame waits for the
                // answer or the turn.
                self.now = deadline;
                let state = self.path.state();
                let asks = state == "resolving" || self.path.has_question();
                self.due = (!asks || !self.waiting.is_empty()).then_some(state);
            }
            Op::Answer(Some(age)) => {
                if let Some(ticket) = self.asked.take() {
                    let handle = self.next_handle;
                    self.next_handle += 1;
                    let renew_at = self.now.saturating_add(age);
                    let back = self.path.resolved(ticket, handle, renew_at);
                    if back != Some(handle) {
                        assert!(back.is_none_or(|old| self.handles.remove(&old)));
                        self.handles.insert(handle);
                    }
                }
            }
            Op::Answer(None) => {
                if let Some(ticket) = self.asked.take() {
                    let usable = self.path.handle().copied();
                    self.path.resolve_failed(ticket, self.now);
                    assert_eq!(self.path.handle().copied(), usable);
                }
            }
            Op::StaleAnswer => {
                if let Some(ticket) = self.old.pop() {
                    assert_eq!(
                        self.path.resolved(ticket, u32::MAX, u64::MAX),
                        Some(u32::MAX)
                    );
                }
            }
            Op::Invalidate => self.path.invalidate(),
            Op::Refresh => {
                let usable = self.path.handle().copied();
                self.path.refresh();
                assert_eq!(self.path.handle().copied(), usable);
            }
            Op::PortDown => self.path.port_down(),
            Op::Room(room) => self.room = room,
            Op::Open(open) => self.open = open,
            Op::Many(many) => self.all = if many { 1_024 } else { 0 },
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn nothing_is_lost(ops in prop::collection::vec(op(), 1..200)) {
        let mut driver = Driver {
            path: Path::new(PEER, Sequence::new(1), 0),
            now: 0,
            next_frame: 0,
            next_handle: 0,
            waiting: Vec::new(),
            handles: HashSet::new(),
            asked: None,
            old: Vec::new(),
            removed: false,
            due: None,
            room: true,
            open: true,
            all: 0,
        };
        for op in &ops {
            driver.apply(op);
            driver.poll();
            if driver.removed {
                break;
            }
        }
        // A port that stays down leaves nothing.
        driver.path.port_down();
        driver.now += path::IDLE_MS;
        driver.asked = None;
        driver.poll();
        prop_assert!(driver.removed);
    }
}
