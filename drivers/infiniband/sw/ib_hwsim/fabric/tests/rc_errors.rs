// SPDX-License-Identifier: GPL-2.0

//! Errors of a reliable connection, case by case.

#[allow(dead_code)]
mod connection;

use connection::{Bed, Faults, Plan, BASE, KEY};
use ib_fabric::completion::Status;
use ib_fabric::impair::{Impairment, Impairments, Pipe};
use ib_fabric::rc::{
    Access, Aeth, AtomicOp, Bth, Fault, Nak, Op, Part, Psn, Reth, Syndrome, Tail, Work, MAX_MESSAGE,
};

/// A gap in a run is asked for (section 9.7.5.1.3), so that nobody waits for a timeout.
#[test]
fn gaps_are_asked_for() {
    let plan = Plan {
        timeout: 20,
        ..Plan::USUAL
    };
    let mut mended = 0;
    for seed in 0..100 {
        let mut lossy = Impairments::NONE;
        lossy.set(Impairment::Loss, "20000").unwrap();
        let mut bed = Bed::new(&plan, Faults::default(), seed);
        bed.connect([
            Pipe::new(&Impairments::NONE, seed, "cable", 0),
            Pipe::new(&lossy, seed, "cable", 1),
        ]);
        let data = bed.dice.bytes(10_000);
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
        assert_eq!(bed.sides[0].failure, Some(Status::RetryExceeded));
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
            assert_eq!(bed.sides[0].failure, Some(Status::RnrRetryExceeded));
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
type Refusal = (Work, usize, fn(&mut Plan), Fault, Status);

#[test]
fn refusals() {
    let (key, tail) = (KEY, Tail::Plain);
    let write = |address, key| Work::Write { address, key, tail };
    let read = |address, key| Work::Read { address, key };
    let op = AtomicOp::FetchAdd(1);
    let atomic = |address, key| Work::Atomic { address, key, op };
    let invalid = (Fault::Invalid, Status::RemoteInvalidRequest);
    let access = (Fault::Access, Status::RemoteAccess);
    let same = |_: &mut Plan| {};
    let cases: [Refusal; 14] = [
        (
            Work::Send(tail),
            101,
            same,
            Fault::Length,
            Status::RemoteInvalidRequest,
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
            let data = bed.dice.bytes(20_000);
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
