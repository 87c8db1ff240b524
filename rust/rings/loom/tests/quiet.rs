// SPDX-License-Identifier: GPL-2.0

//! A completion queue with its device and NAPI: no completion is left where nobody looks.

use std::sync::Arc;

use ipoib_rings_loom::quiet::Quiet;
use ipoib_rings_loom::sync::{Add, AtomicBool, AtomicU32, Ops};
use loom::sync::Mutex;
use loom::thread;

/// A completion queue of a device, which has a lock.
#[derive(Default)]
struct Queue {
    completions: u32,
    armed: bool,
    /// Requests for an event that it refuses.
    refusals: u32,
}

struct Host {
    queue: Mutex<Queue>,
    quiet: Quiet,
    /// A poll is to run.
    scheduled: AtomicBool,
    taken: AtomicU32,
}

impl Host {
    fn new() -> Self {
        Self {
            queue: Mutex::new(Queue::default()),
            quiet: Quiet::new(),
            scheduled: AtomicBool::new(false),
            taken: AtomicU32::new(0),
        }
    }

    /// The device completes something, and tells of it if it was asked to.
    fn complete(&self) {
        let mut queue = self.queue.lock().unwrap();
        queue.completions += 1;
        let event = std::mem::take(&mut queue.armed);
        drop(queue);
        if event {
            self.quiet.end();
            self.scheduled.swap_full(true);
        }
    }

    /// A poll if one is scheduled, for this queue or another: looks, unless the queue is quiet, and arms.
    fn poll(&self) {
        if !self.scheduled.swap_full(false) {
            return;
        }
        if !self.quiet.get() {
            let found = std::mem::take(&mut self.queue.lock().unwrap().completions);
            self.taken.add_full(found);
        }
        let again = self.quiet.arm(|| {
            let mut queue = self.queue.lock().unwrap();
            if queue.refusals > 0 {
                queue.refusals -= 1;
                return Err(());
            }
            queue.armed = true;
            Ok(queue.completions > 0)
        });
        // At once, or later if it was refused.
        if again != Ok(false) {
            self.scheduled.swap_full(true);
        }
    }
}

/// One CPU completes; the other polls, for this queue's events and for those of another one.
#[test]
fn nothing_is_left_behind() {
    const COMPLETIONS: u32 = 2;
    loom::model(|| {
        let host = Arc::new(Host::new());
        // Armed by the first poll.
        host.scheduled.set(true);
        let device = {
            let host = host.clone();
            thread::spawn(move || {
                for _ in 0..COMPLETIONS {
                    host.complete();
                }
            })
        };
        host.poll();
        // Something else is polled for.
        host.scheduled.swap_full(true);
        host.poll();
        device.join().unwrap();
        // Nothing else happens now: the polls that are scheduled have to find the rest.
        for _ in 0..2 * COMPLETIONS + 2 {
            host.poll();
        }
        assert_eq!(host.taken.get(), COMPLETIONS);
    });
}

/// A completion comes while the device refuses events.
#[test]
fn a_refusal_leaves_nothing_behind() {
    loom::model(|| {
        let host = Arc::new(Host::new());
        host.queue.lock().unwrap().refusals = 1;
        host.scheduled.set(true);
        let device = {
            let host = host.clone();
            thread::spawn(move || host.complete())
        };
        host.poll();
        host.poll();
        device.join().unwrap();
        for _ in 0..2 {
            host.poll();
        }
        assert_eq!(host.taken.get(), 1);
    });
}

/// Two ask at a time.
#[test]
fn two_ask_at_a_time() {
    loom::model(|| {
        let host = Arc::new(Host::new());
        let others: Vec<_> = (0..2)
            .map(|n| {
                let host = host.clone();
                thread::spawn(move || {
                    host.scheduled.swap_full(true);
                    host.poll();
                    if n == 0 {
                        host.complete();
                    }
                })
            })
            .collect();
        others.into_iter().for_each(|other| other.join().unwrap());
        for _ in 0..4 {
            host.poll();
        }
        assert_eq!(host.taken.get(), 1);
    });
}
