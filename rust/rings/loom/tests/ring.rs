// SPDX-License-Identifier: GPL-2.0

//! A ring in order: all interleavings of a producer with a device and a consumer behind it.

use std::sync::Arc;

use ipoib_rings_loom::ring::{Consumer, Producer, Ring};
use ipoib_rings_loom::sync::{AtomicU32, Cell, Ops};
use loom::thread;

/// The ring, its slots, and how far the device has come, which puts nothing in order: that is the ring's to do.
struct Tested {
    ring: Ring,
    slots: Vec<Cell<Option<Box<u32>>>>,
    doorbell: AtomicU32,
}

impl Tested {
    fn new(size: u32, first: u32) -> (Arc<Self>, Producer, Consumer) {
        let ring = Ring::new(size, first).expect("a power of two");
        let (producer, consumer) = (Producer::new(&ring), Consumer::new(&ring));
        let tested = Self {
            ring,
            slots: (0..size).map(|_| Cell::new(None)).collect(),
            doorbell: AtomicU32::new(first),
        };
        (Arc::new(tested), producer, consumer)
    }

    /// Fills the next slot.
    fn fill(&self, producer: &mut Producer, frame: u32) {
        let slot = &self.slots[self.ring.index(producer.head())];
        // SAFETY: The ring is not full, so that the slot is the producer's.
        let old = slot.with_mut(|slot| unsafe { (*slot).replace(Box::new(frame)) });
        assert_eq!(old, None);
        producer.filled();
    }

    /// Takes back the slot that was filled last.
    fn take_back(&self, producer: &mut Producer) -> Option<u32> {
        let slot = &self.slots[self.ring.index(producer.take_back())];
        // SAFETY: The device does not have it.
        let frame = slot.with_mut(|slot| unsafe { (*slot).take() });
        frame.map(|frame| *frame)
    }

    /// Empties the slots up to the one that a completion names, if they are in the ring already, and says what
    /// was in them.
    fn complete(&self, consumer: &mut Consumer, id: u32) -> Vec<u32> {
        let mut frames = Vec::new();
        let Some(n) = consumer.named(id.into(), self.ring.head()) else {
            return frames;
        };
        while consumer.tail() != n.wrapping_add(1) {
            let slot = &self.slots[self.ring.index(consumer.tail())];
            // SAFETY: Below the head, so that the slot is the consumer's.
            let frame = slot.with_mut(|slot| unsafe { (*slot).take() });
            frames.push(*frame.expect("a full slot"));
            consumer.emptied();
        }
        consumer.give_back(&self.ring);
        frames
    }
}

/// Frames come out once and in order, around the end of the counter, and a slot is filled again
/// only when it was emptied.
#[test]
fn frames_come_out_in_order() {
    const FRAMES: u32 = 3;
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let (tested, mut producer, mut consumer) = Tested::new(2, u32::MAX);
        let other = {
            let tested = tested.clone();
            thread::spawn(move || {
                for frame in 0..FRAMES {
                    while producer.free() == 0 {
                        producer.look(&tested.ring);
                        thread::yield_now();
                    }
                    tested.fill(&mut producer, frame);
                    producer.publish(&tested.ring);
                    tested.doorbell.set(producer.head());
                }
            })
        };
        let mut frames = Vec::new();
        while frames.len() < FRAMES as usize {
            // What the device completes was posted.
            let posted = tested.doorbell.get();
            if posted == consumer.tail() {
                thread::yield_now();
                continue;
            }
            frames.extend(tested.complete(&mut consumer, posted.wrapping_sub(1)));
            thread::yield_now();
        }
        other.join().unwrap();
        assert_eq!(frames, [0, 1, 2]);
        assert_eq!(consumer.free(&tested.ring), 2);
    });
}

/// A frame that the device refuses goes back to the producer, which still owns it; the consumer
/// tells BQL of it.
#[test]
fn what_is_refused_is_taken_back() {
    loom::model(|| {
        let (tested, mut producer, mut consumer) = Tested::new(2, 0);
        let other = {
            let tested = tested.clone();
            thread::spawn(move || {
                tested.fill(&mut producer, 0);
                tested.fill(&mut producer, 1);
                producer.publish(&tested.ring);
                // The device takes the first, which may be completed already.
                tested.doorbell.store_release(1);
                assert_eq!(tested.take_back(&mut producer), Some(1));
                tested.ring.unsent().add(7);
                producer.publish(&tested.ring);
            })
        };
        while tested.doorbell.load_acquire() == 0 {
            thread::yield_now();
        }
        assert_eq!(consumer.named(2, tested.ring.head()), None);
        assert_eq!(tested.complete(&mut consumer, 0), [0]);
        let mut seen = tested.ring.unsent().take();
        other.join().unwrap();
        seen.merge(tested.ring.unsent().take());
        assert_eq!((seen.frames, seen.bytes), (1, 7));
        assert_eq!(consumer.free(&tested.ring), 2);
    });
}
