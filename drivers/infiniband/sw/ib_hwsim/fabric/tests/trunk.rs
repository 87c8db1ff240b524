// SPDX-License-Identifier: GPL-2.0

//! Two ends of a cable through a network device that loses frames, sends them twice and out of turn.

#[path = "checks/trunk.rs"]
mod strangers;

use ib_fabric::trunk::frame::{self, fits, HEADER, HELLO_LEN};
use ib_fabric::trunk::{Frame, Greeting, Header, Heard, Hello, Outgoing};
use ib_fabric::trunk::{Step, Stranger, Trunk, DEAD, HELLO, PAUSE, WINDOW};
use ib_fabric::{LinkOffer, Mtu};
use proptest::prelude::*;

const OFFER: LinkOffer = LinkOffer {
    widths: 3,
    speeds: 7,
    mtu: Mtu::B2048,
    vl_cap: 4,
};

/// Addresses of both ends.
const ADDRESSES: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

#[test]
fn bytes_of_frames() {
    let header = Header {
        session: 0x0102_0304,
        sent: 0x0506_0708,
        seen: 0x090a_0b0c,
    };
    let hello = Hello {
        heard: 0x1112_1314,
        offer: Some(OFFER),
    };
    let bytes = hello.frame(&header);
    let expected = [
        1, 1, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, // header
        0x11, 0x12, 0x13, 0x14, 1, 3, 7, 4, 4, 0, 0, 0,
    ];
    assert_eq!(bytes, expected);
    // Padded to the shortest frame of Ethernet.
    let padded = [&bytes[..], &[0; 18]].concat();
    assert_eq!(frame::parse(&padded), Some(Frame::Hello(header, hello)));
    let mut packet = header.packet().to_vec();
    assert_eq!(packet, [&[1, 2], &expected[2..16]].concat());
    packet.extend([9, 8, 7]);
    assert_eq!(
        frame::parse(&packet),
        Some(Frame::Packet(header, &[9, 8, 7]))
    );
}

#[test]
fn bad_frames() {
    let hello = Hello {
        heard: 0,
        offer: Some(OFFER),
    };
    let header = Trunk::new(7).header();
    let good = hello.frame(&header);
    for len in 0..HELLO_LEN {
        assert_eq!(frame::parse(&good[..len]), None);
    }
    for (at, byte) in [(0, 0), (0, 2), (1, 0), (1, 3), (7, 0), (23, 0), (23, 6)] {
        let mut bytes = good;
        bytes[at] = byte;
        assert_eq!(frame::parse(&bytes), None, "{at}: {byte}");
    }
}

#[test]
fn padding_behind_a_packet() {
    for (all, len, expected) in [
        (46, 30, true),
        (46, 26, true),
        (46, 31, false),
        (47, 26, false),
        (100, 84, true),
        (100, 83, false),
        (100, 85, false),
    ] {
        assert_eq!(fits(all, len), expected, "{all} {len}");
    }
    assert_eq!(HEADER, 16);
}

/// An end with its port.
struct End {
    trunk: Trunk,
    enabled: bool,
    ready: bool,
    /// Times that the link went up.
    ups: u32,
}

impl End {
    fn new(seed: u32) -> End {
        End {
            trunk: Trunk::new(seed),
            enabled: true,
            ready: true,
            ups: 0,
        }
    }

    fn hello(&mut self) -> [u8; HELLO_LEN] {
        self.greet(0, Greeting::All)
    }

    fn greet(&mut self, now: u64, to: Greeting) -> [u8; HELLO_LEN] {
        self.trunk.say_hello(now, to, self.enabled.then_some(OFFER))
    }

    /// Sends a packet; its header, if there is room for it.
    fn send(&mut self) -> Option<Header> {
        let session = self.trunk.header().session;
        match self.trunk.next_frame(|| Some((session, ())))? {
            Outgoing::Send(header, _, ()) => Some(header),
            Outgoing::Stale(()) => None,
        }
    }

    /// Carries out what is due, as a cable does.
    fn step(&mut self, now: u64) {
        match self.trunk.step(now, self.ready) {
            Step::Stay => {}
            Step::Lose | Step::Train => self.retrain(),
        }
    }

    fn retrain(&mut self) {
        self.trunk.link_down();
        if self.enabled && self.trunk.offer().is_some() {
            self.trunk.link_up();
            self.ups += 1;
        }
    }
}

/// Gives a frame to an end; false if it is a packet that is not taken.
fn deliver(ends: &mut [End; 2], to: usize, now: u64, bytes: &[u8]) -> bool {
    let end = &mut ends[to];
    let from = ADDRESSES[1 - to];
    match frame::parse(bytes).unwrap() {
        Frame::Hello(header, hello) => {
            assert_ne!(end.trunk.hello(now, from, &header, &hello), Heard::Third);
            end.step(now);
            true
        }
        Frame::Packet(header, _) => end.trunk.packet(from, &header).is_ok(),
    }
}

/// The parts of a hello.
fn parts(bytes: &[u8]) -> (Header, Hello) {
    match frame::parse(bytes) {
        Some(Frame::Hello(header, hello)) => (header, hello),
        other => panic!("{other:?}"),
    }
}

/// Says hello both ways, without loss.
fn greet(ends: &mut [End; 2], now: u64) {
    for from in 0..2 {
        let hello = ends[from].hello();
        deliver(ends, 1 - from, now, &hello);
    }
}

fn trained() -> [End; 2] {
    let mut ends = [End::new(1), End::new(100)];
    greet(&mut ends, 0);
    greet(&mut ends, 1);
    assert!(ends.iter().all(|end| end.trunk.is_up()));
    ends
}

#[test]
fn both_go_up_and_stay() {
    let mut ends = [End::new(1), End::new(100)];
    let hello = ends[0].hello();
    deliver(&mut ends, 1, 0, &hello);
    assert!(!ends[1].trunk.is_up(), "the first end does not know of it");
    let hello = ends[1].hello();
    deliver(&mut ends, 0, 0, &hello);
    assert!(ends[0].trunk.is_up());
    let hello = ends[0].hello();
    deliver(&mut ends, 1, 0, &hello);
    assert!(ends[1].trunk.is_up());
    for n in 1..100 {
        greet(&mut ends, n * HELLO);
    }
    assert!(ends.iter().all(|end| end.trunk.is_up() && end.ups == 1));
    assert_eq!(ends[0].trunk.address(), Some(ADDRESSES[1]));
}

#[test]
fn silence_takes_the_link_down() {
    let mut ends = trained();
    ends[0].step(DEAD);
    assert!(ends[0].trunk.is_up());
    ends[0].step(DEAD + 1);
    assert!(!ends[0].trunk.is_up());
    // The other one has heard enough, but of another session.
    ends[1].step(DEAD);
    greet(&mut ends, DEAD);
    greet(&mut ends, DEAD);
    greet(&mut ends, DEAD);
    assert!(ends.iter().all(|end| end.trunk.is_up() && end.ups == 2));
}

#[test]
fn either_end_takes_the_link_down() {
    for down in 0..2 {
        let mut ends = trained();
        ends[down].enabled = false;
        ends[down].retrain();
        for n in 0..5 {
            greet(&mut ends, n);
            assert!(!ends[1 - down].trunk.is_up() || n == 0 && down == 1);
        }
        ends[down].enabled = true;
        ends[down].retrain();
        greet(&mut ends, 6);
        greet(&mut ends, 7);
        assert!(ends.iter().all(|end| end.trunk.is_up()));
    }
}

#[test]
fn a_device_that_is_down() {
    let mut ends = trained();
    ends[0].ready = false;
    ends[0].step(2);
    assert!(!ends[0].trunk.is_up());
    greet(&mut ends, 2);
    assert!(!ends[1].trunk.is_up());
    ends[0].ready = true;
    greet(&mut ends, 3);
    greet(&mut ends, 4);
    assert!(ends.iter().all(|end| end.trunk.is_up()));
}

#[test]
fn third_parties() {
    let mut ends = trained();
    let third = [2, 0, 0, 0, 0, 3];
    let mut other = End::new(500);
    let (header, hello) = parts(&other.hello());
    let trunk = &mut ends[0].trunk;
    assert_eq!(trunk.hello(5, third, &header, &hello), Heard::Third);
    let session = ends[1].trunk.header();
    let trunk = &mut ends[0].trunk;
    assert_eq!(trunk.packet(third, &session), Err(Stranger));
    let wrong = Header {
        session: session.session + 1,
        ..session
    };
    assert_eq!(trunk.packet(ADDRESSES[1], &wrong), Err(Stranger));
    assert_eq!(trunk.packet(ADDRESSES[1], &session), Ok(()));
    assert!(trunk.is_up());
    // When the other end is gone, somebody else may come.
    let _ = trunk.step(DEAD + 5, true);
    assert_eq!(trunk.hello(DEAD + 5, third, &header, &hello), Heard::News);
    assert_eq!(trunk.packet(ADDRESSES[1], &session), Err(Stranger));
}

#[test]
fn a_window_of_packets() {
    let mut ends = trained();
    for n in 0..WINDOW {
        let header = ends[0].send().unwrap();
        // One in ten is lost.
        if n % 10 != 0 {
            assert!(deliver(&mut ends, 1, 2, &header.packet()));
        }
    }
    assert_eq!(ends[0].send(), None);
    assert!(ends[1].trunk.owes());
    let hello = ends[1].hello();
    assert!(!ends[1].trunk.owes());
    deliver(&mut ends, 0, 3, &hello);
    for _ in 0..WINDOW {
        assert!(
            ends[0].send().is_some(),
            "room for all but none is under way"
        );
    }
    assert_eq!(ends[1].trunk.lost(), u64::from(WINDOW.div_ceil(10)));
    // All of them are lost: a hello says so.
    greet(&mut ends, 4);
    greet(&mut ends, 5);
    assert!(ends[0].send().is_some());
    assert_eq!(
        ends[1].trunk.lost(),
        u64::from(WINDOW.div_ceil(10) + WINDOW)
    );
    // Nobody acknowledges what was not sent.
    let mut forged = ends[1].trunk.header();
    forged.seen = forged.seen.wrapping_add(1_000_000);
    assert!(deliver(&mut ends, 0, 6, &forged.packet()));
    let room = std::iter::from_fn(|| ends[0].send()).count();
    assert_eq!(room, WINDOW as usize - 1);
}

#[test]
fn a_full_window_takes_no_frame() {
    let mut ends = trained();
    while ends[0].send().is_some() {}
    let mut end = ends[0].trunk.clone();
    let session = end.header().session;
    let waits = || -> Option<(u32, ())> { panic!("session {session} has no room") };
    assert_eq!(end.next_frame(waits), None);
    // This acknowledges nothing.
    let (header, hello) = parts(&ends[1].hello());
    let heard = end.hello(2, ADDRESSES[1], &header, &hello);
    assert_eq!(heard, Heard::Known);
    assert_eq!(end.next_frame(waits), None);
}

#[test]
fn frames_of_an_ended_session() {
    let mut ends = trained();
    let old = ends[0].trunk.session().unwrap();
    while ends[0].send().is_some() {}
    ends[0].trunk.link_down();
    let next = |ends: &mut [End; 2], session: u32| {
        let next = ends[0].trunk.next_frame(|| Some((session, session)));
        next.map(|next| match next {
            Outgoing::Send(header, to, _) => Ok((header.session, to)),
            Outgoing::Stale(session) => Err(session),
        })
    };
    // No hello has told of the end: they wait for room.
    assert_eq!(next(&mut ends, old), None);
    ends[0].hello();
    for _ in 0..2 * WINDOW {
        assert_eq!(next(&mut ends, old), Some(Err(old)));
    }
    greet(&mut ends, 2);
    greet(&mut ends, 3);
    let new = ends[0].trunk.session().unwrap();
    assert_ne!(new, old);
    // A frame made before the link went down, and queued after.
    assert_eq!(next(&mut ends, old), Some(Err(old)));
    assert_eq!(next(&mut ends, new), Some(Ok((new, ADDRESSES[1]))));
    // Nobody is there.
    assert_eq!(ends[0].trunk.step(DEAD + 3, true), Step::Lose);
    assert_eq!(next(&mut ends, new), Some(Err(new)));
}

#[test]
fn hellos_are_due() {
    let mut ends = [End::new(1), End::new(100)];
    let end = &mut ends[0];
    assert_eq!(end.trunk.greeting(0), Some(Greeting::All));
    end.greet(7, Greeting::All);
    assert_eq!(end.trunk.greeting(6 + HELLO), None);
    assert_eq!(end.trunk.greeting(7 + HELLO), Some(Greeting::All));
    let hello = ends[1].hello();
    deliver(&mut ends, 0, 8, &hello);
    assert!(ends[0].trunk.has_news());
    assert_eq!(ends[0].trunk.greeting(6 + PAUSE), None);
    assert_eq!(ends[0].trunk.greeting(7 + PAUSE), Some(Greeting::All));
}

#[test]
fn acknowledgements_are_for_the_other_end() {
    let mut ends = trained();
    for end in &mut ends {
        end.greet(2, Greeting::All);
    }
    for _ in 0..WINDOW / 4 {
        assert_eq!(ends[1].trunk.greeting(3), None);
        let header = ends[0].send().unwrap();
        assert!(deliver(&mut ends, 1, 2, &header.packet()));
    }
    let to = Greeting::Peer(ADDRESSES[0]);
    assert_eq!(ends[1].trunk.greeting(3), Some(to));
    let hello = ends[1].greet(3, to);
    assert_eq!(ends[1].trunk.greeting(3), None);
    // The others wait for the next one as before.
    assert_eq!(ends[1].trunk.hello_at(), 2 + HELLO);
    deliver(&mut ends, 0, 3, &hello);
    assert_eq!(
        std::iter::from_fn(|| ends[0].send()).count(),
        WINDOW as usize
    );
}

#[test]
fn two_senders_with_one_address_make_no_storm() {
    let mut end = End::new(1);
    let mut others = [End::new(100), End::new(200)];
    let mut said: Vec<u64> = Vec::new();
    for now in (0..HELLO).step_by(100_000) {
        for other in &mut others {
            let (header, hello) = parts(&other.hello());
            let heard = end.trunk.hello(now, ADDRESSES[1], &header, &hello);
            assert_eq!(heard, Heard::News);
            end.step(now);
            if let Some(to) = end.trunk.greeting(now) {
                end.greet(now, to);
                said.push(now);
            }
        }
    }
    assert!(said.windows(2).all(|two| two[1] - two[0] >= PAUSE));
    assert_eq!(said.len() as u64, HELLO / PAUSE);
}

/// A thing that happens to one of the ends.
#[derive(Clone, Debug)]
enum Input {
    Hello(usize),
    Deliver(prop::sample::Index, bool),
    Lose(prop::sample::Index),
    Tick(usize),
    Enable(usize, bool),
    Ready(usize, bool),
    Restart(usize, u32),
    Pass(u64),
}

fn input() -> impl Strategy<Value = Input> {
    let index = any::<prop::sample::Index>();
    let side = 0..2usize;
    prop_oneof![
        6 => side.clone().prop_map(Input::Hello),
        8 => (index.clone(), any::<bool>()).prop_map(|(at, keep)| Input::Deliver(at, keep)),
        3 => index.prop_map(Input::Lose),
        4 => side.clone().prop_map(Input::Tick),
        1 => (side.clone(), any::<bool>()).prop_map(|(side, on)| Input::Enable(side, on)),
        1 => (side.clone(), any::<bool>()).prop_map(|(side, on)| Input::Ready(side, on)),
        1 => (side, any::<u32>()).prop_map(|(side, seed)| Input::Restart(side, seed)),
        2 => (0..2 * HELLO).prop_map(Input::Pass),
    ]
}

/// The bytes of a frame, or of nearly one.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let any_bytes = prop::collection::vec(any::<u8>(), 0..100);
    let session = prop_oneof![0u32..4, any::<u32>()];
    let likely = (session.clone(), any::<u32>(), any::<u32>(), session, 0u8..3);
    let likely = likely.prop_map(|(session, sent, seen, heard, kind)| {
        let header = Header {
            session,
            sent,
            seen,
        };
        let offer = (kind == 0).then_some(OFFER);
        match kind {
            2 => header.packet().to_vec(),
            _ => Hello { heard, offer }.frame(&header).to_vec(),
        }
    });
    prop_oneof![1 => any_bytes, 4 => likely]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    /// Whatever happened, both ends are up a few hellos after the frames get through again; and both
    /// take each other's packets then.
    #[test]
    fn up_in_the_end(inputs in prop::collection::vec(input(), 0..200)) {
        let mut ends = [End::new(1), End::new(100)];
        let mut wire: Vec<(usize, [u8; HELLO_LEN])> = Vec::new();
        let mut now = 0;
        for input in inputs {
            match input {
                Input::Hello(side) => {
                    let hello = ends[side].hello();
                    wire.push((1 - side, hello));
                }
                Input::Deliver(_, _) | Input::Lose(_) if wire.is_empty() => {}
                Input::Deliver(at, keep) => {
                    let at = at.index(wire.len());
                    let (to, bytes) = wire[at];
                    if !keep {
                        wire.remove(at);
                    }
                    deliver(&mut ends, to, now, &bytes);
                }
                Input::Lose(at) => {
                    wire.remove(at.index(wire.len()));
                }
                Input::Tick(side) => ends[side].step(now),
                Input::Enable(side, on) => {
                    ends[side].enabled = on;
                    ends[side].retrain();
                }
                Input::Ready(side, on) => ends[side].ready = on,
                Input::Restart(side, seed) => ends[side] = End::new(seed),
                Input::Pass(time) => now += time,
            }
        }
        for end in &mut ends {
            (end.enabled, end.ready) = (true, true);
        }
        for _ in 0..5 {
            now += HELLO;
            for end in &mut ends {
                end.step(now);
            }
            greet(&mut ends, now);
        }
        prop_assert!(ends.iter().all(|end| end.trunk.is_up()));
        for from in 0..2 {
            let header = ends[from].send().unwrap();
            prop_assert!(deliver(&mut ends, 1 - from, now, &header.packet()));
        }
    }

    /// Frames from strangers do no lasting harm.
    #[test]
    fn strangers(frames in prop::collection::vec((0u8..3, frame(), 0..2 * HELLO), 0..40)) {
        let mut end = strangers::End::new(1);
        for (from, bytes, time) in frames {
            end.take([2, 0, 0, 0, 0, from], &bytes);
            end.pass(time);
            end.send();
        }
        end.comes_up();
    }
}
