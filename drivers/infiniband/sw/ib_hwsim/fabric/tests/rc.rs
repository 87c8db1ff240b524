// SPDX-License-Identifier: GPL-2.0

//! Reliable connections over wires with and without faults.

mod connection;

use connection::{Bed, Dice, Faults, Plan, BASE, KEY};
use ib_fabric::rc::{
    Access, Aeth, AtomicOp, Bth, Failure, Fault, Nak, Op, Part, Psn, RequesterTally,
    ResponderTally, Reth, Syndrome, Tail, Work, MAX_MESSAGE,
};
use ib_fabric::weather::{Lane, Weather, WeatherSetting};
use ib_fabric::Mtu;

fn bytes(dice: &mut Dice, len: usize) -> Vec<u8> {
    (0..len).map(|_| dice.roll(256) as u8).collect()
}

/// Posts a request at random; the memory of the other side as it is to be in the end is changed too.
fn post(bed: &mut Bed, side: usize, counter: &mut u64, expected: &mut Vec<(Vec<u8>, Tail, u32)>) {
    let lens = [0, 1, 255, 256, 257, 512, 1000, 3000, 20_000];
    let len = lens[bed.dice.roll(9) as usize];
    let data = bytes(&mut bed.dice, len);
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
        let data = bytes(&mut bed.dice, 100_000);
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
        let mut weather = Weather::FAIR;
        let mut set = |setting, value: u64| weather.set(setting, &value.to_string()).unwrap();
        set(WeatherSetting::Loss, dice.roll(20_000));
        set(WeatherSetting::Corrupt, dice.roll(10_000));
        set(WeatherSetting::Duplicate, dice.roll(200_000));
        set(WeatherSetting::Delay, dice.roll(300));
        set(WeatherSetting::Jitter, dice.roll(300));
        if dice.chance(50) {
            set(WeatherSetting::Rate, 2000 + dice.roll(10_000));
        }
        let plan = Plan {
            holds: dice.chance(50),
            timeout: 10,
            ..Plan::USUAL
        };
        let mut bed = Bed::new(&plan, Faults::default(), seed);
        bed.connect([0, 1].map(|direction| Lane::new(&weather, seed, "cable", direction)));
        traffic_on(bed, &format!("{weather:?} {seed}"));
    }
}

/// A gap in a run is asked for (section 9.7.5.1.3), so that nobody waits for a timeout.
#[test]
fn gaps_are_asked_for() {
    let plan = Plan {
        timeout: 20,
        ..Plan::USUAL
    };
    let mut mended = 0;
    for seed in 0..100 {
        let mut lossy = Weather::FAIR;
        lossy.set(WeatherSetting::Loss, "20000").unwrap();
        let mut bed = Bed::new(&plan, Faults::default(), seed);
        bed.connect([
            Lane::new(&Weather::FAIR, seed, "cable", 0),
            Lane::new(&lossy, seed, "cable", 1),
        ]);
        let data = bytes(&mut bed.dice, 10_000);
        for _ in 0..3 {
            bed.post_receive(1, data.len());
            bed.post(0, Work::Send(Tail::Plain), &data);
        }
        bed.run();
        let received = &bed.sides[1].inbox.received;
        assert!(received.len() == 3 && received.iter().all(|(_, got)| *got == data));
        let packets = 3 * data.len().div_ceil(256);
        let was_sent_again = bed.packets > packets as u64 + 3;
        mended += usize::from(was_sent_again && bed.now < 4096 << 20);
    }
    // Some have nothing to mend, and of some the last packet is lost.
    assert!(mended > 50, "{mended}");
}

#[test]
fn a_dead_wire_ends_the_connection() {
    for retries in [0, 1, 7] {
        let plan = Plan {
            retries,
            ..Plan::USUAL
        };
        let faults = Faults {
            lost: 100,
            ..Faults::default()
        };
        let mut bed = Bed::new(&plan, faults, 1);
        bed.post(0, Work::Send(Tail::Plain), &[1]);
        bed.run();
        assert_eq!(bed.sides[0].failure, Some(Failure::RetryExceeded));
        assert_eq!(bed.packets, u64::from(retries) + 1);
        assert_eq!(bed.now, (u64::from(retries) + 1) * (4096 << 8));
        let tally = *bed.sides[0].requester.tally();
        assert_eq!(tally.retries, retries.into());
        assert_eq!(tally.timeouts, u64::from(retries) + 1);
    }
}

#[test]
fn a_receiver_that_is_never_ready() {
    for holds in [false, true] {
        for rnr_retries in [0, 1, 6] {
            let plan = Plan {
                holds,
                rnr_retries,
                rnr_timer: 10,
                ..Plan::USUAL
            };
            let mut bed = Bed::new(&plan, Faults::default(), 1);
            bed.post(0, Work::Send(Tail::Plain), &[1]);
            bed.run();
            assert_eq!(bed.sides[0].failure, Some(Failure::RnrRetryExceeded));
            assert!(bed.now >= u64::from(rnr_retries) * 320_000);
            let [from, to] = &bed.sides;
            let naks = u64::from(rnr_retries) + 1;
            assert_eq!(from.requester.tally().rnr_naks, naks);
            assert_eq!(to.responder.tally().rnr_naks, naks);
        }
        // For ever.
        let plan = Plan {
            holds,
            rnr_timer: 20,
            ..Plan::USUAL
        };
        let mut bed = Bed::new(&plan, Faults::default(), 1);
        bed.post(0, Work::Send(Tail::Plain), &[1]);
        for _ in 0..10_000 {
            assert!(bed.step());
        }
        assert_eq!(bed.sides[0].failure, None);
        bed.post_receive(1, 1);
        bed.run();
        assert_eq!(bed.sides[0].done.len(), 1);
    }
}

/// With packets that wait in the link, nobody is refused who waits for less than the timer.
#[test]
fn a_receiver_that_holds() {
    let plan = Plan {
        holds: true,
        rnr_retries: 0,
        retries: 0,
        rnr_timer: 0,
        ..Plan::USUAL
    };
    let mut bed = Bed::new(&plan, Faults::default(), 1);
    for i in 0..100u8 {
        bed.post(0, Work::Send(Tail::Plain), &[i; 600]);
    }
    for i in 0..100 {
        for _ in 0..400 {
            bed.step();
            if bed.sides[1].responder.deadline().is_some() {
                break;
            }
        }
        assert_eq!(bed.sides[1].inbox.received.len(), i);
        bed.post_receive(1, 600);
    }
    bed.run();
    assert_eq!(bed.sides[0].done.len(), 100);
    for (i, (_, data)) in bed.sides[1].inbox.received.iter().enumerate() {
        assert_eq!(data, &[i as u8; 600]);
    }
}

/// A request that was held, and comes again by a wire that does not hold it, is answered once.
#[test]
fn a_request_that_was_held() {
    let plan = Plan {
        holds: true,
        ..Plan::USUAL
    };
    let mut bed = Bed::new(&plan, Faults::default(), 1);
    bed.post(0, Work::Send(Tail::Plain), &[1; 100]);
    let runs = bed.all_runs(0);
    let (bth, payload) = &runs[0];
    bed.arrive(1, bth, payload.clone());
    assert!(bed.sides[1].responder.deadline().is_some());
    bed.sides[1].responder.set_holds(false);
    bed.arrive(1, bth, payload.clone());
    let responder = &mut bed.sides[1].responder;
    assert_eq!(responder.deadline(), None);
    let answer = responder.respond().expect("an RNR NAK");
    let is_rnr = |aeth: Aeth| matches!(aeth.syndrome, Syndrome::ReceiverNotReady(_));
    assert!(matches!(answer.bth.op, Op::Acknowledge(aeth) if is_rnr(aeth)));
    assert!(!responder.owes());
}

/// A request, a change to the setup, and how both ends see the failure.
type Refusal = (Work, usize, fn(&mut Plan), Fault, Failure);

#[test]
fn refusals() {
    let (key, tail) = (KEY, Tail::Plain);
    let write = |address, key| Work::Write { address, key, tail };
    let read = |address, key| Work::Read { address, key };
    let op = AtomicOp::FetchAdd(1);
    let atomic = |address, key| Work::Atomic { address, key, op };
    let invalid = (Fault::Invalid, Failure::RemoteInvalidRequest);
    let access = (Fault::Access, Failure::RemoteAccess);
    let same = |_: &mut Plan| {};
    let cases: [Refusal; 14] = [
        (
            Work::Send(tail),
            101,
            same,
            Fault::Length,
            Failure::RemoteInvalidRequest,
        ),
        (
            Work::Send(Tail::Invalidate(key + 1)),
            1,
            same,
            access.0,
            access.1,
        ),
        (write(BASE, key + 1), 8, same, access.0, access.1),
        (write(BASE - 1, key), 8, same, access.0, access.1),
        (write(BASE + 4089, key), 8, same, access.0, access.1),
        (write(u64::MAX, key), 8, same, access.0, access.1),
        (
            write(BASE, key),
            8,
            |p| p.access = Access::default(),
            invalid.0,
            invalid.1,
        ),
        (read(BASE, key + 1), 8, same, access.0, access.1),
        (read(BASE + 4089, key), 8, same, access.0, access.1),
        (
            read(BASE, key),
            8,
            |p| p.access = Access::default(),
            invalid.0,
            invalid.1,
        ),
        (
            read(BASE, key),
            8,
            |p| p.resources = 0,
            invalid.0,
            invalid.1,
        ),
        (atomic(BASE + 1, key), 8, same, invalid.0, invalid.1),
        (atomic(BASE, key + 1), 8, same, access.0, access.1),
        (
            atomic(BASE, key),
            8,
            |p| p.access = Access::default(),
            invalid.0,
            invalid.1,
        ),
    ];
    for (work, len, change, fault, failure) in cases {
        let mut plan = Plan::USUAL;
        change(&mut plan);
        let mut bed = Bed::new(&plan, Faults::default(), 1);
        bed.post_receive(1, 100);
        bed.post_receive(1, 100);
        bed.post(0, Work::Send(Tail::Plain), &[1]);
        bed.post(0, work, &vec![0; len]);
        bed.post(0, Work::Send(Tail::Plain), &[2]);
        bed.run();
        assert_eq!(bed.sides[1].fault, Some(fault), "{work:?}");
        assert_eq!(bed.sides[0].failure, Some(failure), "{work:?}");
        assert_eq!((bed.sides[0].done.len(), bed.queued(0)), (1, 2), "{work:?}");
    }
}

/// Packets that come in no order that a requester sends them in (section 9.7.4.1).
#[test]
fn gaps_and_duplicates_are_counted() {
    let plan = Plan {
        psn: 0,
        ..Plan::USUAL
    };
    let mut bed = Bed::new(&plan, Faults::default(), 1);
    let write = |psn, packets| Bth {
        packets,
        bytes: 256 * packets,
        ..Bth::bare(
            Psn::new(psn),
            Op::Write {
                part: Part::ONLY,
                to: Some(Reth {
                    address: BASE,
                    key: KEY,
                    len: 256 * packets,
                }),
                tail: Tail::Plain,
            },
        )
    };
    let data = |packets: u32| vec![7; 256 * packets as usize];
    // Two packets, both once more, and then three behind a gap, twice.
    for (psn, packets) in [(0, 2), (0, 2), (4, 3), (4, 3)] {
        bed.arrive(1, &write(psn, packets), data(packets));
    }
    let tally = bed.sides[1].responder.tally();
    assert_eq!((tally.duplicates, tally.early), (2, 6));
    assert_eq!((tally.sequence_naks, tally.rnr_naks), (0, 0));
    while bed.sides[1].responder.respond().is_some() {}
    assert_eq!(bed.sides[1].responder.tally().sequence_naks, 1);
    // The requester's view of such an answer.
    bed.post(0, Work::Send(Tail::Plain), &[1]);
    bed.step();
    let syndrome = Syndrome::Nak(Nak::Sequence);
    let nak = Op::Acknowledge(Aeth { syndrome, msn: 0 });
    bed.arrive(0, &Bth::bare(Psn::new(0), nak), Vec::new());
    let tally = bed.sides[0].requester.tally();
    assert_eq!((tally.sequence_naks, tally.retries), (1, 1));
}

#[test]
fn packets_out_of_turn() {
    let part = |first, last| Part { first, last };
    let send = |first, last, bytes| Bth {
        bytes,
        ack_request: true,
        ..Bth::bare(
            Psn::new(0),
            Op::Send {
                part: part(first, last),
                tail: Tail::Plain,
            },
        )
    };
    let write = |first, last, bytes, len| Bth {
        bytes,
        ..Bth::bare(
            Psn::new(0),
            Op::Write {
                part: part(first, last),
                to: Some(Reth {
                    address: BASE,
                    key: KEY,
                    len,
                }),
                tail: Tail::Plain,
            },
        )
    };
    let read = |len| {
        let (address, key) = (BASE, KEY);
        Bth::bare(Psn::new(0), Op::Read(Reth { address, key, len }))
    };
    let cases: [&[Bth]; 16] = [
        &[send(false, false, 256)],
        &[send(false, true, 1)],
        &[send(true, false, 255)],
        &[send(true, false, 0)],
        &[send(true, true, 257)],
        &[send(true, false, 256), send(true, false, 256)],
        &[send(true, false, 256), send(false, false, 10)],
        &[send(true, false, 256), send(false, true, 0)],
        &[send(true, false, 256), send(false, true, 257)],
        &[send(true, false, 256), write(false, true, 1, 257)],
        &[send(true, false, 256), read(1)],
        &[write(true, false, 256, 256)],
        &[write(true, true, 5, 6)],
        &[write(true, false, 256, 300), write(false, true, 45, 300)],
        &[write(true, true, 0, MAX_MESSAGE + 1)],
        &[read(MAX_MESSAGE + 1)],
    ];
    for packets in cases {
        let plan = Plan {
            psn: 0,
            ..Plan::USUAL
        };
        let mut bed = Bed::new(&plan, Faults::default(), 1);
        bed.post_receive(1, 1000);
        for (psn, packet) in (0..).zip(packets) {
            assert_eq!(bed.sides[1].fault, None, "{packets:?}");
            let packet = Bth {
                psn: Psn::new(psn),
                ..*packet
            };
            bed.arrive(1, &packet, Vec::new());
        }
        assert_eq!(bed.sides[1].fault, Some(Fault::Invalid), "{packets:?}");
    }
}

/// Requests behind a fence wait for the data of those before it, and so does a queue that drains.
#[test]
fn fences_and_draining() {
    let (address, key) = (BASE, KEY);
    for fence in [false, true] {
        let mut bed = Bed::new(&Plan::USUAL, Faults::default(), 1);
        bed.post_receive(1, 8);
        bed.post(0, Work::Read { address, key }, &[0; 8]);
        bed.post_fenced(0, Work::Send(Tail::Plain), &[1], fence);
        bed.step();
        assert_eq!(bed.packets, if fence { 1 } else { 2 });
        bed.sides[0].drains = true;
        bed.post(0, Work::Send(Tail::Plain), &[2]);
        bed.run();
        assert_eq!(bed.queued(0), if fence { 2 } else { 1 });
        assert!(bed.sides[0].requester.is_drained());
        bed.sides[0].drains = false;
        bed.post_receive(1, 8);
        bed.run();
        assert_eq!(bed.queued(0), 0);
    }
}

/// A message that is cut off, since the sender's memory is gone, counts as not received: the
/// receiver is not at fault, and takes it when it is sent again.
#[test]
fn a_message_that_is_cut_off() {
    let (address, key) = (BASE, KEY);
    let immediate = Tail::Immediate(7);
    let of = |tail| Work::Write { address, key, tail };
    let works = [
        Work::Send(Tail::Plain),
        Work::Send(Tail::Invalidate(KEY)),
        of(Tail::Plain),
        of(immediate),
    ];
    for work in works {
        // The first run is cut off, or the last one.
        for runs in [0, 1] {
            let mut bed = Bed::new(&Plan::USUAL, Faults::default(), 1);
            bed.sides[1].inbox.memory = vec![0; 100_000];
            bed.post_receive(1, 100_000);
            let data = bytes(&mut bed.dice, 20_000);
            bed.post(0, work, &data);
            let sent: Vec<_> = bed.all_runs(0);
            assert_eq!(sent.len(), 2);
            for (bth, payload) in &sent[..runs] {
                bed.arrive(1, bth, payload.clone());
            }
            let owes = bed.sides[1].responder.owes();
            bed.sides[1].inbox.readable = 100;
            let (bth, payload) = &sent[runs];
            bed.arrive(1, bth, payload.clone());
            let side = &bed.sides[1];
            assert_eq!(
                (side.fault, side.responder.owes()),
                (None, owes),
                "{work:?}"
            );
            assert_eq!(side.inbox.received.len(), 0, "{work:?}");

            bed.sides[1].inbox.readable = usize::MAX;
            for (bth, payload) in &sent[runs..] {
                bed.arrive(1, bth, payload.clone());
            }
            bed.run();
            assert_eq!((bed.queued(0), bed.sides[1].fault), (0, None), "{work:?}");
            let inbox = &bed.sides[1].inbox;
            let is_send = matches!(work, Work::Send(_));
            let got = if is_send {
                &inbox.received[0].1
            } else {
                &inbox.memory
            };
            assert!(got.starts_with(&data), "{work:?}");
            let uses_receive = is_send || work == of(immediate);
            assert_eq!(inbox.received.len(), usize::from(uses_receive), "{work:?}");
        }
    }
}
