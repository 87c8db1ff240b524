// SPDX-License-Identifier: GPL-2.0

//! The least recently used connection, which makes room for others.

use ipoib_proto::hwaddr::HwAddr;
use ipoib_proto::share::{Holder, IDLE_MS};

use crate::rc::conn::{Among, Cause, Least, Used};
use crate::rc::table::Connections;

impl Connections {
    /// Ends the connection among these that was used least recently, if that is long ago, since there are too many.
    /// Not if there will be room anyway.
    pub(super) fn make_room(&mut self, among: Among, now: u64) {
        if self.ended.count() > 0 {
            return;
        }
        if let Some((holder, least)) = self.holder(now, among) {
            if now.saturating_sub(holder.last_used) >= IDLE_MS {
                self.evict(least);
            }
        }
    }

    /// The connection that was used least recently, of those that may go, and what there is to be said
    /// about it.
    pub(crate) fn holder(&mut self, now: u64, among: Among) -> Option<(Holder, Least)> {
        let used = match among {
            Among::All => {
                let channel = self.least_channel(now, |_| true);
                let both = [channel, self.senders.least(now, |_| true)];
                both.into_iter().flatten().min_by_key(|used| used.last)
            }
            Among::Channels => self.least_channel(now, |_| true),
            Among::ChannelsOf(gid) => self.least_channel(now, |peer| peer.gid() == gid),
            Among::Senders => self.senders.least(now, |_| true),
            Among::SendersOf(origin) => self.senders.least(now, |rc| rc.id.origin == Some(origin)),
        }?;
        let holder = Holder {
            held: self.count(),
            last_used: used.last,
            since: used.since,
        };
        Some((holder, used.least))
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
                since: machine.present()?.since,
                least: Least::Channel(at),
            })
        });
        used.min_by_key(|used| used.last)
    }

    /// Ends that connection, since there are too many. Where its channel is, if it has one.
    pub(crate) fn evict(&mut self, least: Least) -> Option<u16> {
        let (rc, at) = match least {
            Least::Sender(at) => (self.senders.take(at)?, None),
            Least::Channel(at) => {
                let channel = self.channels.get_mut(at)?.as_mut()?;
                (channel.machine.evict()?, u16::try_from(at).ok())
            }
        };
        self.end(rc, Cause::Evicted);
        at
    }
}
