// SPDX-License-Identifier: GPL-2.0

//! The least recently used connection, which makes room for others.

use ipoib_proto::hwaddr::HwAddr;

use crate::rc::conn::{Among, Cause, Least, Used};
use crate::rc::table::Connections;

/// A connection that makes room has not been used for at least so long.
pub(super) const IDLE_MS: u64 = 100;

impl Connections {
    /// Ends the connection among these that was used least recently, if that is long ago, since there are too many.
    /// Not if there will be room anyway.
    pub(crate) fn make_room(&mut self, among: Among, now: u64) {
        if self.ended.count() > 0 {
            return;
        }
        let used = self.least(now, among);
        if let Some(used) = used.filter(|used| now.saturating_sub(used.last) >= IDLE_MS) {
            self.evict(used.least);
        }
    }

    /// The connection that was used least recently, of those that may go.
    fn least(&mut self, now: u64, among: Among) -> Option<Used> {
        match among {
            Among::All => {
                let channel = self.least_channel(now, |_| true);
                let both = [channel, self.senders.least(now, |_| true)];
                both.into_iter().flatten().min_by_key(|used| used.last)
            }
            Among::Channels => self.least_channel(now, |_| true),
            Among::ChannelsOf(gid) => self.least_channel(now, |peer| peer.gid() == gid),
            Among::Senders => self.senders.least(now, |_| true),
            Among::SendersOf(origin) => self.senders.least(now, |rc| rc.id.origin == Some(origin)),
        }
    }

    /// The channel whose connection was used least recently, of those to peers that `may_go`, that are up and not being
    /// replaced.
    fn least_channel(&mut self, now: u64, may_go: impl Fn(&HwAddr) -> bool) -> Option<Used> {
        self.look_at_channels(now);
        let channels = self.channels.iter().enumerate();
        let used = channels.filter_map(|(at, channel)| {
            let channel = channel
                .as_ref()
                .filter(|channel| may_go(&channel.address))?;
            let machine = &channel.machine;
            if !machine.is_up() || machine.offer().is_some() {
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

    /// Ends that connection, since there are too many.
    fn evict(&mut self, least: Least) {
        let rc = match least {
            Least::Sender(at) => self.senders.take(at),
            Least::Channel(at) => {
                let channel = self.channels.get_mut(at).and_then(Option::as_mut);
                channel.and_then(|channel| channel.machine.evict())
            }
        };
        if let Some(rc) = rc {
            self.end(rc, Cause::Evicted);
        }
    }
}
