// SPDX-License-Identifier: GPL-2.0

//! Traffic of reliable connections over wires with and without faults.

#[allow(dead_code)]
mod connection;

use connection::{Bed, Dice, Faults, Plan, BASE, KEY};
use ib_fabric::impair::{Impairment, Impairments, Pipe};
use ib_fabric::rc::{AtomicOp, RequesterTally, ResponderTally, Tail, Work};
use ib_fabric::Mtu;

/// Posts a request at random; the memory of the other side as it is to be in the end is changed too.
fn post(bed: &mut Bed, side: usize, counter: &mut u64, expected: &mut Vec<(Vec<u8>, Tail, u32)>) {
    let lens = [0, 1, 255, 256, 257, 512, 1000, 3000, 20_000];
    let len = lens[bed.dice.roll(9) as usize];
    let data = bed.dice.bytes(len);
    let fence = bed.dice.chance(10);
    let imm = bed.dice.roll(1 << 32) as u32;
    let work = match bed.dice.roll(8) {
        0..=2 => {
            expected.push((data.clone(), Tail::Plain, len as u32));
            Work::Send(Tail::Plain)
        }
        3 => {
            let tail = [Tail::Immediate(imm), Tail::Invalidate(KEY)][bed.dice.roll(2) as usize];
            expected.push((data.clone(), tail, len as u32));
            Work::Send(tail)
        }
        4 => {
            let (address, key, tail) = (BASE + 1024, KEY, Tail::Immediate(imm));
            let data = &data[..len.min(3000)];
            expected.push((Vec::new(), tail, data.len() as u32));
            bed.post_fenced(side, Work::Write { address, key, tail }, data, fence);
            return;
        }
        5 => {
            let (address, key) = (BASE + 8, KEY);
            let room = vec![0; len.min(1000)];
            bed.post_fenced(side, Work::Read { address, key }, &room, fence);
            return;
        }
        6 => {
            *counter += 1;
            let op = AtomicOp::FetchAdd(1);
            let (address, key) = (BASE, KEY);
            bed.post_fenced(side, Work::Atomic { address, key, op }, &[0; 8], fence);
            return;
        }
        _ => {
            let last = bed.dice.chance(50);
            bed.post_fenced(side, Work::Local { last }, &[], fence);
            return;
        }
    };
    bed.post_fenced(side, work, &data, fence);
}

/// Both sides send all kinds of requests; each is done once, and in order.
fn traffic(plan: &Plan, faults: Faults, seed: u64) {
    traffic_on(Bed::new(plan, faults, seed), &format!("{faults:?} {seed}"));
}

fn traffic_on(mut bed: Bed, case: &str) {
    let mut expected = [Vec::new(), Vec::new()];
    let mut counters = [0u64; 2];
    for side in &mut bed.sides {
        side.inbox.memory[..8].fill(0);
    }
    let original = bed.sides[0].inbox.memory[8..1008].to_vec();
    let mut posted = [0; 2];
    for _ in 0..60 {
        let side = bed.dice.roll(2) as usize;
        post(&mut bed, side, &mut counters[side], &mut expected[side]);
        posted[side] += 1;
        // Some receive requests come late.
        let in_time = bed.dice.chance(70);
        for _ in 0..bed.dice.roll(12) {
            bed.step();
        }
        if in_time {
            bed.post_receive(1 - side, 20_000);
        }
    }
    for _ in 0..60 {
        for side in 0..2 {
            bed.post_receive(side, 20_000);
        }
        for _ in 0..10 {
            bed.step();
        }
    }
    bed.run();
    for side in 0..2 {
        let (me, other) = (&bed.sides[side], &bed.sides[1 - side]);
        assert_eq!((me.failure, me.fault), (None, None), "{case}");
        assert_eq!(me.done.len(), posted[side], "{case}");
        let got = other.inbox.received.iter();
        let got: Vec<_> = got
            .map(|(r, data)| (data.clone(), r.tail, r.bytes))
            .collect();
        assert_eq!(got, expected[side], "{case}");
        let counter = u64::from_ne_bytes(other.inbox.memory[..8].try_into().unwrap());
        assert_eq!(counter, counters[side], "{case}");
        let mut olds = Vec::new();
        for sent in &me.done {
            match sent.request.work {
                Work::Read { .. } => assert!(original.starts_with(&sent.data)),
                Work::Atomic { .. } => {
                    olds.push(u64::from_ne_bytes(sent.data[..].try_into().unwrap()));
                }
                Work::Write { .. } => {}
                _ => {}
            }
        }
        assert!(olds.into_iter().eq(0..counters[side]), "{case}");
        let written = me.done.iter().filter_map(|sent| match sent.request.work {
            Work::Write { .. } => Some(&sent.data),
            _ => None,
        });
        if let Some(last) = written.last() {
            assert!(other.inbox.memory[1024..].starts_with(last), "{case}");
        }
        assert!(me.requester.is_drained() && !other.responder.owes());
    }
}

#[test]
fn without_faults_nothing_is_sent_twice() {
    for mtu in [Mtu::B256, Mtu::B1024, Mtu::B4096] {
        let plan = Plan { mtu, ..Plan::USUAL };
        let mut bed = Bed::new(&plan, Faults::default(), 1);
        let data = bed.dice.bytes(100_000);
        for _ in 0..3 {
            bed.post_receive(1, data.len());
            bed.post(0, Work::Send(Tail::Plain), &data);
        }
        bed.run();
        assert_eq!(bed.sides[0].done.len(), 3);
        for (received, got) in &bed.sides[1].inbox.received {
            assert_eq!((received.bytes as usize, got), (data.len(), &data));
        }
        let runs = data.len().div_ceil(mtu.bytes() as usize).div_ceil(64);
        let packets = 3 * data.len().div_ceil(mtu.bytes() as usize);
        // An acknowledgement for each run at most.
        assert!((packets..=packets + 3 * runs).contains(&(bed.packets as usize)));
        let [from, to] = &bed.sides;
        assert_eq!(from.requester.tally(), &RequesterTally::default());
        assert_eq!(to.responder.tally(), &ResponderTally::default());
    }
}

#[test]
fn any_traffic_arrives() {
    for seed in 0..60 {
        for holds in [false, true] {
            let plan = Plan {
                holds,
                ..Plan::USUAL
            };
            traffic(&plan, Faults::default(), seed);
        }
    }
}

#[test]
fn faults_of_the_wire_are_mended() {
    for seed in 0..300 {
        let mut dice = Dice(seed);
        let faults = Faults {
            lost: dice.roll(3),
            twice: dice.roll(20),
            late: dice.roll(3),
        };
        traffic(&Plan::USUAL, faults, seed);
    }
}

/// Checks that messages survive all faults of the fabric's cables.
#[test]
fn faults_of_cables_are_mended() {
    for seed in 0..400 {
        let mut dice = Dice(seed);
        let mut impairments = Impairments::NONE;
        let mut set = |setting, value: u64| impairments.set(setting, &value.to_string()).unwrap();
        set(Impairment::Loss, dice.roll(20_000));
        set(Impairment::Corrupt, dice.roll(10_000));
        set(Impairment::Duplicate, dice.roll(200_000));
        set(Impairment::Delay, dice.roll(300));
        set(Impairment::Jitter, dice.roll(300));
        if dice.chance(50) {
            set(Impairment::Rate, 2000 + dice.roll(10_000));
        }
        let plan = Plan {
            holds: dice.chance(50),
            timeout: 10,
            ..Plan::USUAL
        };
        let mut bed = Bed::new(&plan, Faults::default(), seed);
        bed.connect([0, 1].map(|direction| Pipe::new(&impairments, seed, "cable", direction)));
        traffic_on(bed, &format!("{impairments:?} {seed}"));
    }
}
