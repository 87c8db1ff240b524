// SPDX-License-Identifier: GPL-2.0

//! Places of channels in the table: which one a peer gets is for `proto/flow/places.rs` to say.

use ipoib_proto::hwaddr::HwAddr;
use ipoib_proto::places::{choose, Choice};
use ipoib_proto::share::IDLE_MS;
use kernel::prelude::*;

use crate::rc::channel::Channel;
use crate::rc::conn::Among;
use crate::rc::table::Connections;

impl Connections {
    /// The place of the channel of a peer that has this number.
    pub(super) fn find_channel(&self, peer: &HwAddr, number: u8) -> Option<usize> {
        self.channels.iter().position(|channel| {
            channel
                .as_ref()
                .is_some_and(|channel| channel.number == number && channel.address.same_peer(peer))
        })
    }

    /// The place of a new channel to a peer, which has `asked` for a connection, or is to be asked.
    fn choose_place(&self, peer: &HwAddr, asked: bool, now: u64) -> Choice {
        let channels = self.channels.iter();
        let occupants = channels.map(|channel| Some(channel.as_ref()?.occupant(now)));
        choose(occupants, peer.gid(), asked, self.cap)
    }

    /// Makes a channel to a peer at a place that [`Self::choose_place`] has chosen.
    fn put_channel(&mut self, at: usize, address: HwAddr, number: u8, now: u64) -> Option<usize> {
        let channel = Channel::new(&self.own, address, number, self.idle_ms, now);
        let channel = KBox::new(channel, GFP_ATOMIC).ok()?;
        *self.channels.get_mut(at)? = Some(channel);
        Some(at)
    }

    /// The channel of a peer that has asked for a connection, a new one if need be.
    pub(super) fn channel_or_new(
        &mut self,
        address: HwAddr,
        number: u8,
        now: u64,
    ) -> Option<usize> {
        if let Some(at) = self.find_channel(&address, number) {
            return Some(at);
        }
        match self.choose_place(&address, true, now) {
            Choice::Place(at) | Choice::Replace(at) => self.put_channel(at, address, number, now),
            Choice::Crowd | Choice::Full | Choice::Soon => None,
        }
    }

    /// Looks for a place for the channel of a peer that asks for a connection; true if there is one. If not, and `may_evict`,
    /// makes room for one.
    pub(super) fn look_for_place(&mut self, peer: &HwAddr, may_evict: bool, now: u64) -> bool {
        let choice = self.choose_place(peer, true, now);
        if may_evict {
            self.make_place(choice, peer, now);
        }
        matches!(choice, Choice::Place(_) | Choice::Replace(_))
    }

    /// The place of a peer's channel, a new one if need be. None: there is no room for another peer now, but maybe soon.
    #[cold]
    pub(crate) fn place(&mut self, address: &HwAddr, number: u8, now: u64) -> Option<u16> {
        let at = match self.find_channel(address, number) {
            Some(at) => at,
            None if self.tried.holds(address.gid(), now) => return None,
            None => {
                let choice = self.choose_place(address, false, now);
                let again = now.saturating_add(IDLE_MS);
                self.tried.note(choice, address.gid(), again);
                let (Choice::Place(at) | Choice::Replace(at)) = choice else {
                    self.counters.connected.no_room.add_shared(1);
                    self.make_place(choice, address, now);
                    return None;
                };
                self.put_channel(at, *address, number, now)?
            }
        };
        // The flags of its address may have changed; it is the same peer.
        self.channels.get_mut(at)?.as_mut()?.address = *address;
        u16::try_from(at).ok()
    }

    /// Ends the least recently used connection among those in the way of a peer, if it is idle.
    fn make_place(&mut self, choice: Choice, peer: &HwAddr, now: u64) {
        match choice {
            Choice::Crowd => self.make_room(Among::ChannelsOf(peer.gid()), now),
            Choice::Full => self.make_room(Among::Channels, now),
            Choice::Place(_) | Choice::Replace(_) | Choice::Soon => {}
        }
    }
}
