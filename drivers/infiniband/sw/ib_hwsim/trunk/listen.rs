// SPDX-License-Identifier: GPL-2.0

//! Frames that come from another kernel.

use ib_fabric::trunk::frame::{self, fits, Frame as Content};
use ib_fabric::trunk::{Address, Header, Heard, Hello};
use ib_fabric::wire::{parse, Malformed};
use raw_ether::Listen;
use rdma_provider::{now, Payload, Wakeups};

use super::counters::Counted;
use super::Trunk;
use crate::carry::enter;

impl Trunk {
    fn take_hello(&self, from: Address, header: &Header, hello: &Hello) {
        let news = {
            let state = &mut *self.managed.lock();
            match state.end.hello(now(), from, header, hello) {
                Heard::News => true,
                // There may be room for more packets.
                Heard::Known => !state.queue.is_empty(),
                Heard::Third => {
                    self.counters.add(Counted::Third, 1);
                    false
                }
            }
        };
        if news {
            self.trigger.schedule();
        }
    }

    fn take_packet(&self, from: Address, header: &Header, frame: usize, bytes: &[u8]) {
        let parsed = parse(bytes).and_then(|parsed| {
            let whole = fits(frame, parsed.len);
            whole.then_some(parsed).ok_or(Malformed::Long)
        });
        let (parsed, payload) = match &parsed {
            Ok(parsed) => match bytes.get(parsed.payload.clone()) {
                Some(payload) => (parsed, payload),
                None => return,
            },
            Err(reason) => return self.counters.malformed(*reason),
        };
        let (link, ask) = {
            let state = &mut *self.managed.lock();
            if state.end.packet(from, header).is_err() {
                return self.counters.add(Counted::Stranger, 1);
            }
            let ask = state.end.owes() || !state.queue.is_empty();
            (state.links.get(1).cloned(), ask)
        };
        self.counters.add(Counted::Received, 1);
        if ask {
            self.trigger.schedule();
        }
        if let Some(link) = link {
            let (end, mut wakeups) = (link.peer().clone(), Wakeups::new());
            Payload::with(payload, |payload| {
                enter(end, 0, &parsed.packet, payload, &mut wakeups);
            });
        }
    }
}

impl Listen for Trunk {
    fn received(&self, from: Address, bytes: &[u8]) {
        match frame::parse(bytes) {
            Some(Content::Hello(header, hello)) => self.take_hello(from, &header, &hello),
            Some(Content::Packet(header, packet)) => {
                self.take_packet(from, &header, bytes.len(), packet);
            }
            None => self.counters.add(Counted::Bad, 1),
        }
    }

    fn changed(&self) {
        self.trigger.schedule();
    }
}
