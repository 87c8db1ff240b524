// SPDX-License-Identifier: GPL-2.0

//! A ring in any order: all interleavings of a producer with a device and a consumer behind it.

use std::sync::Arc;

use ipoib_rings_loom::counts::Counts;
use ipoib_rings_loom::slots::{id, Slot, Slots};
use ipoib_rings_loom::sync::{AtomicU32, Cell, Ops};
use loom::thread;

type Frame = Box<u32>;
type Tested = Slots<Frame, Vec<Slot<Frame>>, Vec<AtomicU32>>;

fn slots(size: u32) -> Tested {
    let slots = (0..size).map(|_| Slot::new()).collect();
    let free = (0..size).map(AtomicU32::new).collect();
    // SAFETY: They are vectors, which nobody else has.
    unsafe { Slots::new(slots, free) }.expect("a power of two")
}

/// Slots that the device has: an identifier in each, whose parts are packed, or 0 for none. They
/// put nothing in order: that is the ring's to do.
type Posted = [AtomicU32; 3];

fn pack(index: u32, generation: u32) -> u32 {
    (generation << 8) | index
}

fn unpack(posted: u32) -> u64 {
    id(posted & 0xff, posted >> 8)
}

/// Frames come out once, whatever completes first, and completions of what was completed before have no
/// effect.
#[test]
fn frames_come_out_once() {
    loom::model(|| {
        let shared = Arc::new((slots(2), Posted::default()));
        let other = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (slots, posted) = &*shared;
                for (frame, posted) in (0u32..).zip(posted) {
                    let index = loop {
                        match slots.peek() {
                            Some(index) => break index,
                            None => thread::yield_now(),
                        }
                    };
                    let generation = 2 * frame + 1;
                    // SAFETY: This is the producer, which has peeked.
                    unsafe { slots.fill(index, generation, Box::new(frame)) };
                    posted.set(pack(index, generation));
                }
            })
        };
        let (slots, posted) = &*shared;
        let mut seen = [false; 3];
        while seen.iter().any(|seen| !seen) {
            // The last one that is there completes first.
            for posted in posted.iter().rev() {
                let id = unpack(posted.get());
                // SAFETY: This is the consumer, and the device is done with it.
                let frame = unsafe { slots.empty(id, |_, _| ()) };
                if let Some(frame) = frame {
                    assert!(!std::mem::replace(&mut seen[*frame as usize], true));
                    // SAFETY: As above.
                    assert!(unsafe { slots.empty(id, |_, _| ()) }.is_none());
                }
            }
            thread::yield_now();
        }
        other.join().unwrap();
        assert!(slots.is_idle());
        assert_eq!(slots.free(), 2);
    });
}

/// A frame that the device refuses goes back to the producer, while the consumer empties the slots
/// that were posted before.
#[test]
fn what_is_refused_is_taken_back() {
    loom::model(|| {
        let shared = Arc::new((slots(2), AtomicU32::new(0)));
        let other = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (slots, posted) = &*shared;
                let first = slots.peek().expect("is empty");
                // SAFETY: This is the producer, which has peeked.
                unsafe { slots.fill(first, 1, Box::new(0)) };
                let second = slots.peek().expect("has room");
                // SAFETY: As above.
                unsafe { slots.fill(second, 3, Box::new(1)) };
                posted.set(pack(first, 1));
                // SAFETY: The device does not have the last one.
                let (index, frame) = unsafe { slots.take_back() }.expect("was filled");
                assert_eq!((index, *frame), (second, 1));
                // Its slot is filled again.
                assert_eq!(slots.peek(), Some(second));
                // SAFETY: As above.
                unsafe { slots.fill(second, 5, Box::new(2)) };
                posted.set(pack(second, 5));
            })
        };
        let (slots, posted) = &*shared;
        let mut seen = Vec::new();
        while seen.len() < 2 {
            let now = posted.get();
            for id in [id(0, 1), unpack(now)] {
                if now == 0 {
                    continue;
                }
                // SAFETY: This is the consumer, and the device has completed both.
                if let Some(frame) = unsafe { slots.empty(id, |_, _| ()) } {
                    seen.push(*frame);
                }
            }
            thread::yield_now();
        }
        other.join().unwrap();
        seen.sort_unstable();
        assert_eq!(seen, [0, 2]);
        assert!(slots.is_idle());
    });
}

/// When nothing is in flight, the consumer has ended all that it did with the frames.
#[test]
fn nothing_in_flight_is_left_alone() {
    loom::model(|| {
        let shared = Arc::new((Counts::new(), Cell::new(0u32)));
        shared.0.add_posted();
        shared.0.add_posted();
        let other = {
            let shared = shared.clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    // SAFETY: Something is in flight.
                    shared.1.with_mut(|count| unsafe { *count += 1 });
                    shared.0.add_done();
                }
            })
        };
        while shared.0.in_flight() > 0 {
            thread::yield_now();
        }
        // SAFETY: Nothing is.
        shared.1.with_mut(|count| assert_eq!(unsafe { *count }, 2));
        other.join().unwrap();
    });
}
