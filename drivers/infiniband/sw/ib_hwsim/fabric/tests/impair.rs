// SPDX-License-Identifier: GPL-2.0

//! Cables that misbehave: one seed, one history; how often what happens; and what keeps its order.

use ib_fabric::impair::{Arrival, Fate, Impairment, Impairments, Passage, Pipe, Singles};
use ib_fabric::rc::{Bth, Op, Part, Psn, Reth, Tail};
use ib_fabric::{Lid, Packet, Transport};
use proptest::prelude::*;
use Impairment::*;

fn impairments(settings: &[(Impairment, u32)]) -> Impairments {
    let mut impairments = Impairments::NONE;
    for (setting, value) in settings {
        impairments.set(*setting, &value.to_string()).unwrap();
    }
    impairments
}

fn pipe(settings: &[(Impairment, u32)]) -> Pipe {
    Pipe::new(&impairments(settings), 1, "c1", 0)
}

fn datagram(len: u32) -> Packet {
    Packet {
        len,
        ..Packet::new(Lid::new(1), Lid::new(2), 0x48, Transport::datagram(1, 0))
    }
}

fn management() -> Packet {
    Packet {
        management: true,
        ..datagram(256)
    }
}

fn connected(bth: Bth, mtu: u32) -> Packet {
    Packet {
        len: bth.bytes.min(mtu),
        transport: Transport::Rc(bth),
        ..datagram(0)
    }
}

fn single() -> Packet {
    let op = Op::Send {
        part: Part::ONLY,
        tail: Tail::Plain,
    };
    connected(Bth::bare(Psn::new(0), op), 256)
}

/// All copies that arrive of a packet.
fn arrivals(passage: &Passage) -> Vec<Arrival> {
    match passage.fate {
        Fate::Arrives { first, again, .. } => [Some(first), again].into_iter().flatten().collect(),
        Fate::Lost | Fate::Discarded => Vec::new(),
    }
}

fn is_lost(passage: &Passage) -> bool {
    passage.fate == Fate::Lost
}

const FOUL: &[(Impairment, u32)] = &[
    (Loss, 100_000),
    (Duplicate, 100_000),
    (Corrupt, 100_000),
    (Delay, 50),
    (Jitter, 20),
];

fn history(seed: u64, cable: &str, direction: u8, n: u64) -> Vec<Passage> {
    let mut pipe = Pipe::new(&impairments(FOUL), seed, cable, direction);
    (0..n)
        .map(|i| pipe.send(i * 1000, &datagram(100)))
        .collect()
}

#[test]
fn one_seed_is_one_history() {
    let first = history(7, "c1", 0, 500);
    assert_eq!(first, history(7, "c1", 0, 500));
    for (seed, cable, direction) in [(8, "c1", 0), (7, "c2", 0), (7, "c1", 1)] {
        let other = history(seed, cable, direction, 500);
        let losses = |h: &[Passage]| h.iter().map(is_lost).collect::<Vec<_>>();
        assert_ne!(losses(&first), losses(&other), "{seed} {cable} {direction}");
    }
    // It can begin anew.
    let mut pipe = Pipe::new(&impairments(FOUL), 9, "c1", 0);
    for _ in 0..77 {
        pipe.send(0, &datagram(1));
    }
    pipe.begin(7, "c1", 0);
    for passage in &first {
        assert_eq!(is_lost(&pipe.send(0, &datagram(1))), is_lost(passage));
    }
}

/// Neither times nor packets of subnet management nor full queues change the fates of data.
#[test]
fn a_history_depends_on_nothing_else() {
    let first = history(7, "c1", 0, 500);
    let mut narrow = [FOUL, &[(Rate, 100), (Queue, 1)]].concat();
    narrow.retain(|(setting, _)| *setting != Jitter);
    let mut pipe = Pipe::new(&impairments(&narrow), 7, "c1", 0);
    let mut discarded = 0;
    for (i, passage) in (0u64..).zip(&first) {
        for _ in 0..i % 3 {
            pipe.send(i * 4000, &management());
        }
        let other = pipe.send(i * 4000, &datagram(100));
        if other.fate == Fate::Discarded {
            discarded += 1;
        } else {
            assert_eq!(is_lost(&other), is_lost(passage));
        }
    }
    assert!((10..490).contains(&discarded), "{discarded}");
}

/// Frequencies are within five standard deviations.
#[test]
fn frequencies() {
    const N: u32 = 200_000;
    for ppm in [0, 100, 10_000, 300_000, 1_000_000] {
        for setting in [Loss, Duplicate, Corrupt] {
            for packet in [datagram(10), management(), single()] {
                let mut pipe = pipe(&[(setting, ppm)]);
                let mut n = 0;
                for _ in 0..N {
                    n += u32::from(match (setting, pipe.send(0, &packet).fate) {
                        (Loss, fate) => fate == Fate::Lost,
                        (Duplicate, Fate::Arrives { again, .. }) => again.is_some(),
                        (Corrupt, Fate::Arrives { intact, .. }) => !intact,
                        (_, fate) => panic!("{fate:?}"),
                    });
                }
                let p = f64::from(ppm) / 1e6;
                let mean = f64::from(N) * p;
                let sigma = (mean * (1.0 - p)).sqrt();
                let off = (f64::from(n) - mean).abs();
                assert!(off <= 5.0 * sigma, "{setting:?} {ppm}: {n}");
            }
        }
    }
}

#[test]
fn a_fair_lane_changes_nothing() {
    let mut pipe = pipe(&[]);
    for now in 0..100 {
        let passage = pipe.send(now, &datagram(1000));
        let Fate::Arrives {
            first,
            again: None,
            intact: true,
        } = passage.fate
        else {
            panic!("{passage:?}");
        };
        assert_eq!((first.at, passage.waited), (now, 0));
    }
}

#[test]
fn a_delay_is_kept() {
    let mut pipe = pipe(&[(Delay, 1500)]);
    for packet in [datagram(10), management(), single()] {
        let arrived = arrivals(&pipe.send(1_000_000, &packet));
        assert_eq!(arrived[0].at, 2_500_000);
    }
    // Packets that were sent before a shorter delay do not get overtaken.
    pipe.change(&impairments(&[(Delay, 1)]));
    for packet in [datagram(10), management(), single()] {
        assert_eq!(arrivals(&pipe.send(1_000_001, &packet))[0].at, 2_500_000);
        assert_eq!(arrivals(&pipe.send(3_000_000, &packet))[0].at, 3_001_000);
    }
}

#[test]
fn jitter_lets_datagrams_overtake_and_connections_not() {
    for duplicate in [0, 500_000] {
        let mut pipe = pipe(&[(Delay, 10), (Jitter, 1000), (Duplicate, duplicate)]);
        let mut late = [Vec::new(), Vec::new(), Vec::new()];
        for now in (0..1_000_000).step_by(1000) {
            for (list, packet) in late.iter_mut().zip([single(), datagram(1), management()]) {
                for arrival in arrivals(&pipe.send(now, &packet)) {
                    assert!(arrival.at >= now + 10_000);
                    list.push(arrival);
                }
            }
        }
        for arrival in &late[1] {
            assert!(arrival.at <= 1_000_000 + 1_010_000);
        }
        assert!(late[0].is_sorted());
        assert!(!late[1].is_sorted() && !late[2].is_sorted());
    }
}

#[test]
fn a_rate_is_kept() {
    // A packet of 1000 bytes, with its headers, takes 8.288 µs at 1 Gbit/s.
    let packet = datagram(1000);
    let bytes = u64::from(packet.wire_bytes());
    let mut pipe = pipe(&[(Rate, 1000), (Queue, 100)]);
    let mut delivered = Vec::new();
    let mut waited = 0;
    let mut discarded = 0;
    // Twice as fast as it can take them.
    for i in 0..1000 {
        let passage = pipe.send(i * bytes * 4, &packet);
        waited += u64::from(passage.waited);
        match arrivals(&passage)[..] {
            [arrival] => delivered.push(arrival),
            _ => discarded += 1,
        }
        // Subnet management goes past.
        let smp = pipe.send(i * bytes * 4, &management());
        assert_eq!(arrivals(&smp)[0].at, i * bytes * 4);
        assert_eq!(smp.waited, 0);
    }
    assert!(delivered.is_sorted());
    for pair in delivered.windows(2) {
        assert!(pair[1].at - pair[0].at >= bytes * 8);
    }
    // The queue takes 100 KiB, and half of what comes after that.
    let queue = 100 * 1024 / bytes;
    assert!((400 - queue..=500).contains(&discarded), "{discarded}");
    // From the second packet on, until the last one left.
    let total = delivered.last().unwrap().at - bytes * 8;
    let expected = (total - bytes * 4) / 1000;
    assert!(
        (expected - 20..=expected).contains(&waited),
        "{waited} {expected}"
    );
    // A queue that has drained is empty.
    let later = 1 << 40;
    assert_eq!(
        arrivals(&pipe.send(later, &packet))[0].at,
        later + bytes * 8
    );
    // Without a rate, nothing waits.
    pipe.change(&Impairments::NONE);
    pipe.send(later, &packet);
    assert_eq!(
        arrivals(&pipe.send(later + 9000, &packet))[0].at,
        later + 9000
    );
}

#[test]
fn what_is_no_packet_is_never_lost() {
    let mut pipe = pipe(&[(Loss, 1_000_000), (Duplicate, 1_000_000), (Delay, 5)]);
    let resume = connected(
        Bth {
            packets: 0,
            ..Bth::bare(Psn::new(0), Op::Resume)
        },
        256,
    );
    let passage = pipe.send(0, &resume);
    let Fate::Arrives {
        first,
        again,
        intact,
    } = passage.fate
    else {
        panic!("{passage:?}");
    };
    assert_eq!((first.at, again, intact), (5000, None, true));
}

/// A run of each kind.
fn run(kind: u8, packets: u32, mtu: u32, last_bytes: u32, part: Part) -> Packet {
    let reth = Reth {
        address: 0x1000,
        key: 1,
        len: 1 << 20,
    };
    let op = match kind {
        0 => Op::Send {
            part,
            tail: Tail::Immediate(9),
        },
        1 => Op::Write {
            part,
            to: part.first.then_some(reth),
            tail: Tail::Plain,
        },
        _ => Op::ReadResponse { part },
    };
    let bth = Bth {
        psn: Psn::new(0xff_fff0),
        packets,
        bytes: (packets - 1) * mtu + last_bytes,
        ack_request: true,
        solicited: true,
        op,
    };
    connected(bth, mtu)
}

fn bth_of(packet: &Packet) -> Bth {
    match packet.transport {
        Transport::Rc(bth) => bth,
        Transport::Ud { .. } => panic!("{packet:?}"),
    }
}

proptest! {
    /// The packets of a run are all of it, in order, and nothing else.
    #[test]
    fn runs_come_apart(
        kind in 0u8..3,
        packets in 1u32..=64,
        mtu in prop::sample::select(vec![256u32, 512, 1024, 2048, 4096]),
        last in 1u32..=256,
        first_part: bool,
        last_part: bool,
    ) {
        let part = Part { first: first_part, last: last_part };
        let run = run(kind, packets, mtu, last, part);
        let whole = bth_of(&run);
        let singles: Vec<_> = Singles::new(&run).collect();
        prop_assert_eq!(singles.len() as u32, packets);
        let mut from = 0;
        let (mut wire, mut carried) = (0, 0);
        for (i, (single, at)) in (0..).zip(&singles) {
            let bth = bth_of(single);
            prop_assert_eq!((*at, bth.packets, bth.psn), (from, 1, whole.psn.plus(i)));
            prop_assert_eq!(single.len, bth.bytes);
            prop_assert_eq!(bth.ack_request, i == packets - 1);
            let place = match bth.op {
                Op::Send { part, .. } | Op::Write { part, .. } | Op::ReadResponse { part } => part,
                _ => unreachable!(),
            };
            prop_assert_eq!(place.first, part.first && i == 0);
            prop_assert_eq!(place.last, part.last && i == packets - 1);
            from += bth.bytes;
            wire += single.wire_bytes();
            carried += bth.bytes;
        }
        prop_assert_eq!(carried, whole.bytes);
        // A part of an answer in the middle has no header of its own.
        if kind < 2 {
            prop_assert_eq!(wire, run.wire_bytes());
        }
    }

    /// The packets of a run that arrive are those that are not lost: the gaps have the lost PSNs.
    #[test]
    fn runs_are_cut_where_packets_are_lost(seed: u64, loss in 0u32..=1_000_000, packets in 1u32..=64) {
        let impairments = impairments(&[(Loss, loss)]);
        let run = run(0, packets, 256, 1, Part::ONLY);
        let mut pipe = Pipe::new(&impairments, seed, "c", 0);
        let mut alone = pipe.clone();
        let arrived: Vec<Psn> = Singles::new(&run)
            .filter(|(single, _)| !arrivals(&pipe.send(0, single)).is_empty())
            .map(|(single, _)| bth_of(&single).psn)
            .collect();
        // As many packets, each sent by itself, have the same fates.
        let expected: Vec<Psn> = (0..packets)
            .map(|i| bth_of(&run).psn.plus(i))
            .filter(|_| !is_lost(&alone.send(0, &single())))
            .collect();
        prop_assert_eq!(arrived, expected);
    }

    /// No time, no length and no setting overflows.
    #[test]
    fn extreme_times(
        settings in prop::collection::vec(0u32..=1_000_000, 7),
        times in prop::collection::vec(any::<u64>(), 1..50),
        len: u32,
    ) {
        let all = [Loss, Duplicate, Corrupt, Delay, Jitter, Rate];
        let mut list: Vec<_> = all.into_iter().zip(settings).collect();
        list.push((Queue, 65_536));
        let mut pipe = pipe(&list);
        for now in times {
            for packet in [datagram(len), single(), management()] {
                for arrival in arrivals(&pipe.send(now, &packet)) {
                    prop_assert!(arrival.at >= now);
                }
            }
        }
        for packet in [datagram(len), single(), management()] {
            pipe.send(u64::MAX, &packet);
        }
    }
}
