// SPDX-License-Identifier: GPL-2.0

//! The reorder window against an oracle that is slow and simple: it keeps absolute positions in
//! sorted sets, where the window has a ring and a bit mask.

#[path = "oracle/mod.rs"]
mod oracle;

use oracle::{Event, Play};

/// A small generator of random numbers, so that a history is named by its seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// A history: a sender's frames, as a bad network delivers them.
fn history(random: &mut Random) -> Vec<Event> {
    let loss = [0, 0, 1, 10, 40][random.below(5) as usize];
    let duplication = [0, 0, 5, 20][random.below(4) as usize];
    let displacement = [0, 1, 3, 12, 40, 200][random.below(6) as usize];
    let restarts = random.percent(10);
    let ticks = [0, 2, 20][random.below(3) as usize];
    let len = 10 + random.below(50);

    let mut id = match random.below(3) {
        0 => 65535 - random.below(20),
        1 => 1 + random.below(5),
        _ => 1 + random.below(65535),
    } as u16;
    let mut frames: Vec<(u64, u16)> = Vec::new();
    for at in 0..len {
        if restarts && random.percent(3) {
            id = 1 + random.below(65535) as u16;
        }
        let copies = u64::from(!random.percent(loss)) + u64::from(random.percent(duplication));
        for _ in 0..copies {
            let delay = if displacement > 0 && random.percent(30) {
                random.below(displacement + 1)
            } else {
                0
            };
            frames.push((at + delay, id));
        }
        id = if id == u16::MAX { 1 } else { id + 1 };
    }
    frames.sort_by_key(|(at, _)| *at);
    let mut events = Vec::new();
    for (_, id) in frames {
        if random.percent(ticks) {
            events.push(Event::Tick(random.below(1500)));
        }
        if random.percent(1) {
            events.push(Event::Width(
                [0, 1, 4, 32, 80, 128][random.below(6) as usize],
            ));
        }
        if random.percent(1) {
            events.push(Event::Rings(random.percent(50)));
        }
        events.push(Event::Frame(id));
    }
    events
}

/// One million histories with loss, duplication, displacement, wraps, restarts and changes of the
/// width, the same every time.
#[test]
fn random_histories() {
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let total = 1_000_000;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                for seed in (thread..total).step_by(threads as usize) {
                    let mut random = Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
                    let width = [0, 1, 4, 32, 80, 128][random.below(6) as usize];
                    let events = history(&mut random);
                    if let Err(error) = Play::new(width).run(&events) {
                        panic!("seed {seed}, width {width}: {error}\n{events:?}");
                    }
                }
            });
        }
    });
}

/// Every history of six events over six numbers and the clock, for every narrow window:
/// nothing is lost, delivered twice or held for ever, and all is as the oracle has it.
#[test]
fn all_short_histories() {
    for start in [0u16, 65532] {
        let number = |k: u8| {
            let id = u32::from(start) + u32::from(k);
            (if id > 65535 { id - 65535 } else { id }) as u16
        };
        // 0 to 5 are numbers, 6 lets the timeout pass.
        for width in 0..=3 {
            let mut digits = [0u8; 6];
            'histories: loop {
                let mut play = Play::new(width);
                play.step(&Event::Frame(number(1))).unwrap();
                for digit in digits {
                    let event = match digit {
                        6 => Event::Tick(oracle::TIMEOUT),
                        k => Event::Frame(number(k + 1)),
                    };
                    if let Err(error) = play.step(&event) {
                        panic!("{digits:?}, width {width}, start {start}: {error}");
                    }
                }
                if let Err(error) = play.end() {
                    panic!("{digits:?}, width {width}, start {start}: {error}");
                }
                for digit in &mut digits {
                    *digit += 1;
                    if *digit < 7 {
                        continue 'histories;
                    }
                    *digit = 0;
                }
                break;
            }
        }
    }
}

/// Purpose of the window: frames displaced by no more than its width come out in order.
#[test]
fn displacement_within_the_width_is_undone() {
    for seed in 0..2_000 {
        let mut random = Random(seed);
        let width = [8, 32, 80, 128][random.below(4) as usize];
        let mut id = 65535 - random.below(200) as u16;
        let mut frames: Vec<(u64, u16)> = Vec::new();
        for at in 0..400 {
            // The first frame, and one delayed by the full width, both stay within it.
            let delay = if at > 0 && random.percent(20) {
                random.below(u64::from(width))
            } else {
                0
            };
            frames.push((at + delay, id));
            id = if id == u16::MAX { 1 } else { id + 1 };
        }
        let sent: Vec<u16> = frames.iter().map(|(_, id)| *id).collect();
        frames.sort_by_key(|(at, _)| *at);
        let events: Vec<Event> = frames.into_iter().map(|(_, id)| Event::Frame(id)).collect();
        let mut play = Play::new(width);
        play.run(&events).unwrap();
        assert_eq!(play.delivered_ids(), sent, "seed {seed}, width {width}");
    }
}

/// Found by the fuzzer: the move that uses up the score passes the very frame that caused it, which
/// then is a late one like any other.
#[test]
fn a_move_that_passes_its_frame() {
    let mut events: Vec<Event> = (0..5).map(|n| Event::Frame(60639 + 47 * n)).collect();
    events.extend([16191; 10].map(Event::Frame));
    // Each is beyond the held ones: the window moves, and gives up.
    events.extend((1..15).map(|n| Event::Frame(16191 + 47 * n)));
    events.push(Event::Frame(16774));
    events.push(Event::Width(52));
    events.extend([16821, 16824].map(Event::Frame));
    events.extend((0..6).map(|n| Event::Frame(16871 + 47 * n)));
    Play::new(126).run(&events).unwrap();
}
