// SPDX-License-Identifier: GPL-2.0

//! Accounts that close, whatever comes: each frame that goes in has come out, or was dropped, or waits, and each is
//! counted in one place (Documentation/accounts.rst).

use ipoib_proto::drop::DropReason;
use ipoib_proto::hwaddr::{Flags, HwAddr, Qpn};
use ipoib_proto::mgid::{self, Mgid, Scope};
use ipoib_proto::multicast::{self, Group, GroupTable};
use ipoib_proto::path::{self, Path, Seed, Slot};
use ipoib_proto::pkey::PKey;
use ipoib_proto::queue::{Queue, Verdict};
use ipoib_proto::reorder::{Counts, Held, MAX_WIDTH};
use ipoib_proto::seq::{MsgId, Sequence};
use ipoib_proto::source::{Events, Numbered, Place, Sink, Source, Sources};
use ipoib_proto::ticket::Ticket;
use proptest::collection::vec;
use proptest::prelude::*;

const SEED: Seed = Seed([1, 3, 5, 7, 11, 13]);

type Ring = Vec<Option<Held<u64>>>;
type Table = Sources<u64, Ring, Vec<Slot<Source<u64, Ring>>>, Vec<Place<Ring>>>;

/// Items passed up: numbers from 0 on.
#[derive(Default)]
struct Up {
    now_us: u64,
    seen: Vec<bool>,
    delivered: u64,
}

impl Sink<u64> for Up {
    fn now_us(&mut self) -> u64 {
        self.now_us
    }

    fn deliver(&mut self, item: u64) {
        let seen = &mut self.seen[item as usize];
        assert!(!*seen, "frame {item} was passed up twice");
        *seen = true;
        self.delivered += 1;
    }
}

/// Sources, and what they have counted.
struct Order {
    table: Table,
    up: Up,
    in_order: u64,
    counts: [u64; Counts::LEN],
    events: Events,
}

#[derive(Clone, Debug)]
enum Step {
    /// A frame of a source, so far ahead of the last one of that.
    Frame {
        source: u32,
        ahead: i32,
    },
    /// Milliseconds pass.
    Tick(u64),
    /// The timer.
    Expire(u64),
    /// The window has another width.
    Width(u8),
    Flush,
    Clear,
}

fn step() -> impl Strategy<Value = Step> {
    // A few real ones that reorder, lose and repeat, and a flood of others.
    let source = prop_oneof![6 => 0u32..4, 1 => 4u32..60];
    let ahead = prop_oneof![
        12 => Just(1),
        4 => -4i32..=8,
        1 => -200i32..=300,
        1 => -32767i32..=32767,
    ];
    prop_oneof![
        40 => (source, ahead).prop_map(|(source, ahead)| Step::Frame { source, ahead }),
        3 => prop_oneof![0u64..4, 900u64..1200, 29_000u64..31_000].prop_map(Step::Tick),
        2 => (0u64..6000).prop_map(Step::Expire),
        1 => prop_oneof![0u8..4, 0u8..=MAX_WIDTH].prop_map(Step::Width),
        1 => Just(Step::Flush),
        1 => Just(Step::Clear),
    ]
}

impl Order {
    fn new() -> Order {
        let slots = (0..16).map(|_| Slot::EMPTY).collect();
        let ring = || (0..MAX_WIDTH).map(|_| None).collect();
        let places = (0..4).map(|_| Place::new(ring())).collect();
        Order {
            table: Sources::new(slots, places, SEED).expect("a power of two"),
            up: Up::default(),
            in_order: 0,
            counts: [0; Counts::LEN],
            events: Events::default(),
        }
    }

    fn take(&mut self) {
        self.in_order += self.table.take_in_order();
        if let Some((counts, events)) = self.table.take_changes() {
            for (sum, more) in self.counts.iter_mut().zip(counts.values()) {
                *sum += more;
            }
            self.events.refused += events.refused;
        }
    }

    /// The identities of numbered frames.
    fn check(&mut self, offered: u64) {
        self.take();
        let [in_order, _, late, held, filled, moved, timed_out, duplicates, resyncs] = self.counts;
        assert_eq!(in_order, 0);
        let refused = self.events.refused;
        let (in_order, holding) = (self.in_order, self.table.holding() as u64);
        assert_eq!(
            offered,
            in_order + late + duplicates + resyncs + refused + held
        );
        assert_eq!(held, filled + moved + timed_out + holding);
        assert_eq!(offered, self.up.delivered + holding);
        let sources = self.table.iter().map(|(_, source)| source.window().held());
        assert_eq!(sources.sum::<usize>() as u64, holding);
    }
}

fn address(number: u32) -> HwAddr {
    let mut address = HwAddr([0; 20]);
    address.0[3] = 9;
    address.0[4] = 0xfe;
    address.0[5] = 0x80;
    address.0[16..].copy_from_slice(&number.to_be_bytes());
    address
}

fn play(steps: &[Step]) {
    let (mut order, mut now, mut width, mut offered) = (Order::new(), 0, 32, 0);
    let mut last = [1i32; 60];
    for step in steps {
        match *step {
            Step::Frame { source, ahead } => {
                let id = &mut last[source as usize];
                *id = (*id - 1 + ahead).rem_euclid(65535) + 1;
                order.up.seen.push(false);
                let frame = Numbered {
                    from: &address(source),
                    id: MsgId::new(*id as u16).expect("not 0"),
                    item: offered,
                };
                if order.table.receive_next(frame.from, frame.id, now) {
                    order.up.deliver(frame.item);
                } else {
                    order.table.receive_other(frame, width, now, &mut order.up);
                }
                offered += 1;
            }
            Step::Tick(ms) => {
                now += ms;
                order.up.now_us += ms * 1000;
                order.table.sweep(now, &mut order.up);
            }
            Step::Expire(timeout) => {
                order.table.expire(timeout, &mut order.up);
            }
            Step::Width(other) => width = other,
            Step::Flush => order.table.flush(&mut order.up),
            Step::Clear => order.table.clear(&mut order.up),
        }
        order.check(offered);
    }
    order.table.clear(&mut order.up);
    order.check(offered);
    assert_eq!(order.up.delivered, offered);
}

/// Fates of frames that a path or groups take.
#[derive(Default, Debug, PartialEq, Eq)]
struct Tally {
    taken: usize,
    sent: usize,
    dropped: [usize; DropReason::COUNT],
}

impl Tally {
    fn verdict(&mut self, verdict: Verdict<u64>) {
        self.taken += 1;
        match verdict {
            Verdict::Transmit(_) => self.sent += 1,
            Verdict::Drop(_, reason) => self.dropped[reason.index()] += 1,
            Verdict::Queued => {}
        }
    }

    fn check(&self, waiting: usize) {
        let dropped: usize = self.dropped.iter().sum();
        assert_eq!(self.taken, self.sent + dropped + waiting, "{self:?}");
    }
}

type TestPath = Path<u8, Queue<u64, 8>>;

fn poll_path(
    path: &mut TestPath,
    open: bool,
    now: u64,
    tally: &mut Tally,
    asked: &mut Option<Ticket>,
) {
    loop {
        let action = if open {
            path.poll(now)
        } else {
            path.poll_unasked(false, now)
        };
        match action {
            Some(path::Action::Transmit(_)) => tally.sent += 1,
            Some(path::Action::Drop(_, reason)) => tally.dropped[reason.index()] += 1,
            Some(path::Action::Resolve(ticket)) => *asked = Some(ticket),
            Some(path::Action::Release(_)) => {}
            Some(path::Action::Remove) => {
                // A removed entry holds nothing.
                assert_eq!(path.waiting(), 0);
                break;
            }
            None => break,
        }
    }
}

type TestGroup = Group<u8, Queue<u64, 4>>;
type Groups = GroupTable<u8, Queue<u64, 4>, TestGroup, Vec<Slot<TestGroup>>>;

fn group(last: u8) -> Mgid {
    let mut gid = mgid::broadcast(PKey::DEFAULT, Scope::LINK_LOCAL).gid();
    gid.0[12..].copy_from_slice(&[0, 0, 0, last]);
    Mgid::parse(gid).expect("a multicast GID")
}

fn poll_groups(groups: &mut Groups, now: u64, tally: &mut Tally, asked: &mut Vec<(Mgid, Ticket)>) {
    while let Some((mgid, action)) = groups.poll(now) {
        match action {
            multicast::Action::Transmit(_) => tally.sent += 1,
            multicast::Action::Drop(_, reason) => tally.dropped[reason.index()] += 1,
            multicast::Action::Attach(_, ticket) => asked.push((mgid, ticket)),
            multicast::Action::Detach(..) => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn numbered_frames_are_accounted_for(steps in vec(step(), 1..400)) {
        play(&steps);
    }

    #[test]
    fn frames_for_a_path_are_accounted_for(steps in vec((0u8..9, 0u64..6000), 1..200)) {
        let peer = HwAddr::new(Flags::NONE, Qpn::new(9).expect("fits"), group(1).gid());
        let (mut open, mut now, mut tally, mut asked) = (true, 0, Tally::default(), None);
        let mut path = TestPath::new(peer, Sequence::new(1), now);
        for (what, ms) in steps {
            match what {
                0..=3 => tally.verdict(path.send(tally.taken as u64, 100, 0, now)),
                4 => now += ms,
                5 => if let Some(ticket) = asked.take() {
                    let _ = path.resolved(ticket, 7, 5_000);
                }
                6 => if let Some(ticket) = asked.take() {
                    path.resolve_failed(ticket, now);
                }
                7 if ms % 3 == 0 => path.port_down(),
                7 if ms % 3 == 1 => path.invalidate(),
                7 => path.refresh(),
                _ => open = ms % 2 == 0,
            }
            if ms % 4 > 0 {
                poll_path(&mut path, open, now, &mut tally, &mut asked);
            }
            tally.check(path.waiting());
        }
    }

    #[test]
    fn frames_for_groups_are_accounted_for(steps in vec((0u8..11, any::<u8>(), 0u64..90_000), 1..200)) {
        let slots = (0..8).map(|_| Slot::EMPTY).collect();
        let broadcast = mgid::broadcast(PKey::DEFAULT, Scope::LINK_LOCAL);
        let mut groups = Groups::new(slots, SEED, Some, broadcast).expect("a power of two");
        let (mut now, mut tally, mut asked) = (0, Tally::default(), Vec::new());
        groups.port_up();
        for (what, which, ms) in steps {
            let mgid = if which < 20 { broadcast } else { group(which % 10) };
            match what {
                0..=3 => tally.verdict(groups.send(&mgid, tally.taken as u64, 100, 0, now)),
                4 => now += ms,
                5 | 6 => if let Some((mgid, ticket)) = asked.pop() {
                    let _ = groups.attached(&mgid, ticket, 7);
                }
                7 => if let Some((mgid, ticket)) = asked.pop() {
                    groups.attach_failed(&mgid, ticket, now);
                }
                8 => { groups.sync((0..which % 6).map(group)); }
                9 if which % 2 == 0 => groups.port_down(),
                9 => groups.port_up(),
                _ if which % 2 == 0 => groups.invalidate(),
                _ => groups.retry(),
            }
            if ms % 4 > 0 {
                poll_groups(&mut groups, now, &mut tally, &mut asked);
            }
            tally.check(groups.iter().map(Group::waiting).sum());
        }
    }
}
