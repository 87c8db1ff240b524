// SPDX-License-Identifier: GPL-2.0

//! One end of a cable through a network device: whether the other one is there, and which packets
//! are under way.

use super::frame::{Header, Hello, HELLO_LEN};
use crate::link::LinkOffer;

/// Time in ns between two hellos when nothing has changed.
pub const HELLO: u64 = 250_000_000;

/// The shortest time in ns between two hellos to all, whatever has changed: two ends that take each
/// other's place at a third one would have all of them greet without end.
pub const PAUSE: u64 = 10_000_000;

/// Time in ns without a hello after which the other end is taken for gone.
pub const DEAD: u64 = 3_000_000_000;

/// Packets that may be under way.
pub const WINDOW: u32 = 256;

/// An address of a network device.
pub type Address = [u8; 6];

/// The other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Peer {
    address: Address,
    session: u32,
    /// The session of this end that it has heard.
    heard: u32,
    offer: Option<LinkOffer>,
    /// Time of its latest hello.
    at: u64,
}

/// The consequences of a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Heard {
    /// Something has changed: ask for [`Trunk::step`] soon.
    News,
    /// Nothing has.
    Known,
    /// The frame is of a third party, and was not taken.
    Third,
}

/// A packet is not of the other end, or not of this time that the link is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stranger;

/// A change of the link that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Step {
    /// None.
    Stay,
    /// The link is to be taken down, and trained again if it can be.
    Lose,
    /// The link can be trained: both ends know of each other.
    Train,
}

/// The receivers of a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Greeting {
    /// All who listen.
    All,
    /// The other end alone, which has packets acknowledged.
    Peer(Address),
}

/// The next thing to do with the frames that wait to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outgoing<F> {
    /// Send this one to an address, stamped with this header ([`Header::stamp`]).
    Send(Header, Address, F),
    /// Drop this one: nobody takes it any more.
    Stale(F),
}

/// One end of a cable through a network device.
///
/// A session lasts from one time that the link goes down to the next. As each end tells the other
/// which session of it has been heard, both go up in the same pair of sessions, or neither does.
#[derive(Clone, Debug)]
pub struct Trunk {
    own: u32,
    peer: Option<Peer>,
    /// The session of the other end that the link is up with.
    up: Option<u32>,
    sent: u32,
    /// Latest packet that the other end has seen.
    acked: u32,
    /// Latest packet of the other end.
    seen: u32,
    /// Latest packet that the other end knows to be seen.
    told: u32,
    lost: u64,
    /// The session that the last hello was of; 0 before the first one.
    greeted: u32,
    /// Something has changed since that.
    news: bool,
    /// Time of the last hello to all.
    greeted_at: Option<u64>,
}

/// Returns how far `number` is ahead of `of`; 0 if it is not.
const fn ahead(number: u32, of: u32) -> u32 {
    let by = number.wrapping_sub(of);
    if by <= u32::MAX / 2 {
        by
    } else {
        0
    }
}

/// Returns the session after another one.
const fn next(session: u32) -> u32 {
    match session.wrapping_add(1) {
        0 => 1,
        session => session,
    }
}

impl Trunk {
    /// Makes an end that has heard nothing. `seed` should not be that of an end that was there before.
    pub const fn new(seed: u32) -> Trunk {
        Trunk {
            own: next(seed),
            peer: None,
            up: None,
            sent: 0,
            acked: 0,
            seen: 0,
            told: 0,
            lost: 0,
            greeted: 0,
            news: true,
            greeted_at: None,
        }
    }

    /// Returns true if the link is up.
    pub const fn is_up(&self) -> bool {
        self.up.is_some()
    }

    /// Returns the address of the other end.
    pub fn address(&self) -> Option<Address> {
        self.peer.map(|peer| peer.address)
    }

    /// Returns the session of this end, if the link is up: packets are sent in it.
    pub fn session(&self) -> Option<u32> {
        self.up.map(|_| self.own)
    }

    /// Returns the number of packets that the other end has sent and that did not come.
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// Takes a hello.
    pub fn hello(&mut self, now: u64, from: Address, header: &Header, hello: &Hello) -> Heard {
        let old = self.peer;
        let dead = |peer: &Peer| now.saturating_sub(peer.at) >= DEAD;
        if old.is_some_and(|peer| peer.address != from && !dead(&peer)) {
            return Heard::Third;
        }
        let known = |peer: &Peer| peer.address == from && peer.session == header.session;
        if old.as_ref().is_some_and(known) {
            self.received(header.sent, false);
        } else {
            self.seen = header.sent;
            self.told = self.seen;
        }
        self.acknowledged(header.seen);
        let peer = Peer {
            address: from,
            session: header.session,
            heard: hello.heard,
            offer: hello.offer,
            at: now,
        };
        self.peer = Some(peer);
        match old {
            Some(old) if (Peer { at: now, ..old }) == peer => Heard::Known,
            _ => {
                self.news = true;
                Heard::News
            }
        }
    }

    /// Takes the header of a packet.
    ///
    /// # Errors
    ///
    /// [`Stranger`]: the packet is to be dropped.
    pub fn packet(&mut self, from: Address, header: &Header) -> Result<(), Stranger> {
        let peer = self.peer.filter(|peer| peer.address == from);
        if peer.is_none() || self.up != Some(header.session) {
            return Err(Stranger);
        }
        self.received(header.sent, true);
        self.acknowledged(header.seen);
        Ok(())
    }

    /// The other end has sent so many packets, the last one of which has just come if `here`.
    fn received(&mut self, sent: u32, here: bool) {
        let by = ahead(sent, self.seen);
        if by > 0 {
            let lost = by.saturating_sub(u32::from(here));
            self.lost = self.lost.saturating_add(lost.into());
            self.seen = sent;
        } else if here && sent != self.seen {
            // It is late, and was taken for lost.
            self.lost = self.lost.saturating_sub(1);
        }
    }

    /// The other end has seen so many.
    fn acknowledged(&mut self, seen: u32) {
        if ahead(seen, self.acked) <= self.under_way() {
            self.acked = self.acked.wrapping_add(ahead(seen, self.acked));
        }
    }

    /// Returns the number of packets under way.
    const fn under_way(&self) -> u32 {
        self.sent.wrapping_sub(self.acked)
    }

    /// Returns true if the other end waits to hear which packets have come.
    pub const fn owes(&self) -> bool {
        self.seen.wrapping_sub(self.told) >= WINDOW / 4
    }

    /// Returns true if something has changed that no hello has told of.
    pub const fn has_news(&self) -> bool {
        self.news
    }

    /// Returns the time at which a hello to all is due.
    pub fn hello_at(&self) -> u64 {
        let pause = if self.news { PAUSE } else { HELLO };
        self.greeted_at
            .map_or(0, |before| before.saturating_add(pause))
    }

    /// Returns whom a hello is due to now.
    pub fn greeting(&self, now: u64) -> Option<Greeting> {
        if self.hello_at() <= now {
            return Some(Greeting::All);
        }
        let peer = self.address().filter(|_| self.owes());
        peer.map(Greeting::Peer)
    }

    /// Returns the change that is due. `ready` says whether the network device sends and receives.
    pub fn step(&mut self, now: u64, ready: bool) -> Step {
        let fresh = |peer: &Peer| ready && now.saturating_sub(peer.at) < DEAD;
        if self.peer.is_some_and(|peer| !fresh(&peer)) {
            self.peer = None;
        }
        match (self.up, self.peer) {
            (Some(session), Some(peer)) if peer.session == session && peer.offer.is_some() => {
                Step::Stay
            }
            (Some(_), _) => Step::Lose,
            (None, _) if self.offer().is_some() => Step::Train,
            (None, _) => Step::Stay,
        }
    }

    /// Returns what the other end offers; `None` unless it knows of this one, or if the link is up.
    pub fn offer(&self) -> Option<LinkOffer> {
        let peer = self.peer.filter(|peer| peer.heard == self.own)?;
        peer.offer.filter(|_| self.up.is_none())
    }

    /// The link is up.
    pub fn link_up(&mut self) {
        if self.up.is_none() {
            self.up = self.peer.map(|peer| peer.session);
            self.acked = self.sent;
            self.news = true;
        }
    }

    /// The link is down.
    pub fn link_down(&mut self) {
        if self.up.take().is_some() {
            self.own = next(self.own);
            self.news = true;
        }
    }

    /// Returns the header of a frame that is to be sent now, or soon.
    pub const fn header(&self) -> Header {
        Header {
            session: self.own,
            sent: self.sent,
            seen: self.seen,
        }
    }

    /// Takes the next frame by `pop`, which gives its session, too. `None` if there is none, or if
    /// too many packets are under way: it is not popped then.
    ///
    /// Frames queued before the link went down are still sent, until a hello has announced that.
    pub fn next_frame<F>(&mut self, pop: impl FnOnce() -> Option<(u32, F)>) -> Option<Outgoing<F>> {
        let told = self.greeted == self.own;
        let to = self.address().filter(|_| self.is_up() || !told);
        if to.is_some() && self.under_way() >= WINDOW {
            return None;
        }
        let (session, frame) = pop()?;
        let current = session == self.own || !told;
        let Some(to) = to.filter(|_| current) else {
            return Some(Outgoing::Stale(frame));
        };
        self.sent = self.sent.wrapping_add(1);
        self.told = self.seen;
        Some(Outgoing::Send(self.header(), to, frame))
    }

    /// Makes a hello. `offer` is what the port of this end offers.
    pub fn say_hello(
        &mut self,
        now: u64,
        to: Greeting,
        offer: Option<LinkOffer>,
    ) -> [u8; HELLO_LEN] {
        if to == Greeting::All {
            self.greeted_at = Some(now);
            self.news = false;
        }
        self.greeted = self.own;
        self.told = self.seen;
        let heard = self.peer.map_or(0, |peer| peer.session);
        Hello { heard, offer }.frame(&self.header())
    }
}
