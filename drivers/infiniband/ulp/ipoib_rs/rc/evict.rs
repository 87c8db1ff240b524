// SPDX-License-Identifier: GPL-2.0

//! The least recently used connection, which makes room for others.

use kernel::prelude::*;

use crate::rc::conn::{Among, Cause, Least, Used};
use crate::rc::table::{Connections, IDLE_MS};

/// Time that an evicted connection's queue pair has to be destroyed, in milliseconds. Until it is over, no other connection is
/// evicted for room on the device. To the peer of any evicted connection, no request is made for twice as long.
const ROOM_MS: u64 = 1_000;

impl Connections {
    /// Evicts the least recently used of these connections if it has been idle for [`IDLE_MS`]. Does nothing while another one
    /// is ending, since that makes room. Returns true if there will be room.
    pub(super) fn make_room(&mut self, among: Among, now: u64) -> bool {
        if self.ended.count() > 0 {
            return true;
        }
        let used = self.least(now, among);
        let Some(used) = used.filter(|used| now.saturating_sub(used.last) >= IDLE_MS) else {
            return false;
        };
        self.evict(used.least, now);
        true
    }

    /// Makes room on the device, which has refused a queue pair for this reason: evicts a connection of this interface, unless
    /// it has evicted one just now. Returns true if there will be room.
    #[must_use]
    pub(crate) fn make_room_on_device(&mut self, refusal: Error, now: u64) -> bool {
        let is_full = [ENOMEM, ENOSPC, EAGAIN, EBUSY].contains(&refusal);
        if !is_full {
            return false;
        }
        if now < self.room_until {
            return true;
        }
        let makes_room = self.make_room(Among::All, now);
        if makes_room {
            self.room_until = now.saturating_add(ROOM_MS);
        }
        makes_room
    }

    /// The connection that was used least recently, of those that may go.
    fn least(&mut self, now: u64, among: Among) -> Option<Used> {
        match among {
            Among::All | Among::Holders => {
                let any = matches!(among, Among::All);
                let channel = self.least_channel(now);
                let sender = self.senders.least(now, |rc| any || rc.window.cost > 0);
                let both = [channel, sender];
                both.into_iter().flatten().min_by_key(|used| used.last)
            }
            Among::Channels => self.least_channel(now),
            Among::Senders => self.senders.least(now, |_| true),
            Among::SendersOf(origin) => self.senders.least(now, |rc| rc.id.origin == Some(origin)),
        }
    }

    /// The channel whose connection was used least recently, of those that are up.
    fn least_channel(&mut self, now: u64) -> Option<Used> {
        self.look_at_channels(now);
        let channels = self.channels.iter().enumerate();
        let used = channels.filter_map(|(at, channel)| {
            let channel = channel.as_ref()?;
            let machine = &channel.machine;
            if !machine.is_up() {
                return None;
            }
            // A channel with a backlog is in use.
            let last = if channel.backlog.is_empty() {
                machine.last_used()
            } else {
                now
            };
            Some(Used {
                last,
                least: Least::Channel(at),
            })
        });
        used.min_by_key(|used| used.last)
    }

    /// Evicts a connection.
    fn evict(&mut self, least: Least, now: u64) {
        let rc = match least {
            Least::Sender(at) => self.senders.take(at),
            Least::Channel(at) => {
                let channel = self.channels.get_mut(at).and_then(Option::as_mut);
                channel.and_then(|channel| {
                    channel.machine.evict_until(now.saturating_add(2 * ROOM_MS))
                })
            }
        };
        if let Some(rc) = rc {
            self.end(rc, Cause::Evicted);
        }
    }
}
