// SPDX-License-Identifier: GPL-2.0

//! The table of groups against a fabric that answers joins late, in any order or with failure.

use std::collections::{HashMap, HashSet};

use ipoib_proto::mgid::{self, Mgid, Scope};
use ipoib_proto::multicast::{Action, Group, GroupTable, Membership};
use ipoib_proto::pkey::PKey;
use ipoib_proto::queue::{Queue, Verdict};
use ipoib_proto::table::{Seed, Slot};
use ipoib_proto::ticket::Ticket;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Sync(HashSet<u8>),
    Send(u8),
    Transmit(u8),
    /// Answer the n-th outstanding join.
    Answer(usize, bool),
    Advance(u64),
    PortDown,
    PortUp,
    Invalidate,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => prop::collection::hash_set(0u8..24, 0..10).prop_map(Op::Sync),
        4 => (0u8..24).prop_map(Op::Send),
        2 => (0u8..24).prop_map(Op::Transmit),
        8 => (any::<usize>(), prop::bool::weighted(0.8)).prop_map(|(n, ok)| Op::Answer(n, ok)),
        2 => prop_oneof![0u64..2_000, 0u64..100_000].prop_map(Op::Advance),
        1 => Just(Op::PortDown),
        1 => Just(Op::PortUp),
        1 => Just(Op::Invalidate),
    ]
}

fn broadcast() -> Mgid {
    mgid::broadcast(PKey::DEFAULT, Scope::LINK_LOCAL)
}

fn group(number: u8) -> Mgid {
    let mut gid = broadcast().gid();
    gid.0[12..].copy_from_slice(&[0, 0, 0, number]);
    Mgid::parse(gid).unwrap()
}

type Waiting = Queue<u32, 2>;
type Boxed = Box<Group<u32, Waiting>>;

struct Fabric {
    table: GroupTable<u32, Waiting, Boxed, Vec<Slot<Boxed>>>,
    now: u64,
    up: bool,
    /// Groups that are joined, as the fabric sees it. One that has made room may be joined anew before it is left.
    joined: HashMap<Mgid, Vec<(Membership, u32)>>,
    asked: Vec<(Mgid, Membership, Ticket)>,
    frames: HashSet<u32>,
    next: u32,
}

impl Fabric {
    /// The handle of the latest membership in a group.
    fn last(&self, mgid: &Mgid) -> Option<u32> {
        let (_, handle) = self.joined.get(mgid)?.last()?;
        Some(*handle)
    }

    fn is_in(&self, mgid: &Mgid) -> bool {
        self.last(mgid).is_some()
    }

    fn poll(&mut self) {
        for step in 0.. {
            assert!(step < 1000, "polling comes to an end");
            let Some((mgid, action)) = self.table.poll(self.now) else {
                break;
            };
            match action {
                Action::Attach(membership, ticket) => {
                    // One request at a time.
                    assert!(self.asked.iter().all(|(other, ..)| *other != mgid));
                    assert!(self.up);
                    // RFC 4391, section 5: the broadcast group comes first.
                    assert!(mgid == broadcast() || self.is_in(&broadcast()));
                    self.asked.push((mgid, membership, ticket));
                }
                Action::Detach(membership, handle) => {
                    // The driver leaves the older one.
                    let left = self.joined.get_mut(&mgid).map(|members| members.remove(0));
                    assert_eq!(left, Some((membership, handle)));
                }
                Action::Transmit(frame) => {
                    let handle = self.table.handle(&mgid).copied();
                    assert_eq!(handle, self.last(&mgid));
                    assert!(self.frames.remove(&frame));
                }
                Action::Drop(frame, _) => assert!(self.frames.remove(&frame)),
            }
        }
        if let Some(deadline) = self.table.deadline() {
            assert!(deadline > self.now, "the deadline is past");
        }
    }

    fn answer(&mut self, number: usize, success: bool) {
        if self.asked.is_empty() {
            return;
        }
        let (mgid, membership, ticket) = self.asked.remove(number % self.asked.len());
        if success {
            self.next += 1;
            assert_eq!(self.table.attached(&mgid, ticket, self.next), Ok(()));
            let members = self.joined.entry(mgid).or_default();
            members.push((membership, self.next));
        } else {
            self.table.attach_failed(&mgid, ticket, self.now);
        }
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Sync(wanted) => {
                self.table.sync(wanted.iter().map(|number| group(*number)));
            }
            Op::Send(number) => {
                self.next += 1;
                let frame = self.next;
                match self.table.send(&group(*number), frame, 100, 0, self.now) {
                    Verdict::Transmit(_) => assert!(self.is_in(&group(*number))),
                    Verdict::Queued => assert!(self.frames.insert(frame)),
                    Verdict::Drop(back, _) => assert_eq!(back, frame),
                }
            }
            Op::Transmit(number) => {
                let handle = self.table.transmit(&group(*number), self.now).copied();
                if handle.is_some() {
                    assert_eq!(handle, self.last(&group(*number)));
                }
            }
            Op::Answer(number, success) => self.answer(*number, *success),
            Op::Advance(ms) => self.now += ms,
            Op::PortDown => {
                self.up = false;
                self.table.port_down();
            }
            Op::PortUp => {
                self.up = true;
                self.table.port_up();
            }
            Op::Invalidate => self.table.invalidate(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn joins_and_leaves_pair_up(seed: [u64; 6], ops in prop::collection::vec(op(), 1..200)) {
        let storage = (0..16).map(|_| Slot::EMPTY).collect();
        let table = GroupTable::new(storage, Seed(seed), |group| Some(Box::new(group)), broadcast());
        let mut fabric = Fabric {
            table: table.unwrap(),
            now: 0,
            up: true,
            joined: HashMap::new(),
            asked: Vec::new(),
            frames: HashSet::new(),
            next: 0,
        };
        fabric.table.port_up();
        let mut wanted = HashSet::new();
        for op in &ops {
            fabric.apply(op);
            fabric.poll();
            if let Op::Sync(list) = op {
                wanted.clone_from(list);
            }
        }
        // With a fabric that answers, what is wanted is joined in the end, and nothing else.
        fabric.table.port_up();
        fabric.up = true;
        for _ in 0..100 {
            fabric.now += 20_000;
            fabric.poll();
            while !fabric.asked.is_empty() {
                fabric.answer(0, true);
                fabric.poll();
            }
            if fabric.table.needs_sync() {
                let wanted = wanted.iter().map(|number| group(*number));
                fabric.table.sync(wanted);
                fabric.poll();
            }
        }
        let mut expected: HashSet<Mgid> = wanted.iter().map(|number| group(*number)).collect();
        expected.insert(broadcast());
        fabric.joined.retain(|_, members| !members.is_empty());
        let joined: HashSet<Mgid> = fabric.joined.keys().copied().collect();
        prop_assert_eq!(joined, expected);
        prop_assert!(fabric.frames.is_empty());
        let full = |members: &Vec<(Membership, u32)>| matches!(members[..], [(Membership::Full, _)]);
        prop_assert!(fabric.joined.values().all(full));

        // And without the port nothing is left.
        fabric.table.port_down();
        fabric.poll();
        prop_assert!(fabric.joined.values().all(Vec::is_empty));
    }
}
