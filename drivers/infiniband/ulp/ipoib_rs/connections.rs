// SPDX-License-Identifier: GPL-2.0

//! The reliable connections of an interface, under the transmit lock.
//!
//! When to ask for one, whose request to accept and when to give up is for `proto/connection.rs` to say.
//! This file keeps the table of peers, the buffers that are set aside for them, and what is to be done by
//! the work item [`crate::connect`], which may sleep.

use ipoib_netdev::device::Device;
use ipoib_netdev::skb::SkbQueue;
use ipoib_proto::cm::{PrivateData, Refusal};
use ipoib_proto::connection::{self, Confirmed, Connection, Rejection};
use ipoib_proto::credit::{self, Pool};
use ipoib_proto::hwaddr::{Flags, HwAddr};
use ipoib_proto::progress::Progress;
use ipoib_proto::ticket::Ticket;
use ipoib_rdma::{Lane, RcSender};
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::Arc;

use crate::caller::Caller;
use crate::counters::Counters;
use crate::interface::{Interface, CONNECT};
use crate::rc::{Rc, Reliable, Role, Terms};

/// The most connections that an interface can have with peers that it sends to.
pub(crate) const MAX: usize = 64;
/// The most that others may have asked it for, to send by.
const MAX_SENDERS: usize = 64;
/// The most connections to one peer.
pub(crate) const MAX_LANES: usize = 8;
/// The most that are accepted and not confirmed yet.
const MAX_HALF_OPEN: usize = 16;
/// The most of those from one GID.
const MAX_HALF_OPEN_EACH: usize = MAX_LANES;
/// The most that have ended, and are not over yet, while others are accepted.
const MAX_ENDING: u32 = 16;
/// The widest window of a connection.
const WINDOW: u16 = 64;
/// Frames, and octets of them, that wait for one connection.
pub(crate) const BACKLOG: usize = 512;
const BACKLOG_BYTES: usize = 4 << 20;
/// How recently used a connection may not be if it is to make room, in milliseconds.
const LRU_MS: u64 = 100;
/// How long others may be silent on a connection that they have asked for, in milliseconds: they end it
/// themselves, unless they are gone.
const SENDER_IDLE_MS: u64 = 600_000;
/// How long they may take to confirm it: Linux asks for answers to be repeated every four seconds.
const SENDER_CONFIRM_MS: u64 = 15_000;
/// How long until it is looked for room once more, in milliseconds.
const ROOM_MS: u64 = 20;
/// How long the peer of a connection may keep us from sending, in milliseconds.
const STALL_MS: u64 = 5_000;
/// For how long after that no frame waits for a connection.
const HOPELESS_MS: u64 = 60_000;

/// What the two NAPIs look at without the lock.
pub(crate) struct Shared {
    /// Frames wait for room or for a grant.
    pub(crate) stalled: Atomic<bool>,
    /// So many that the queue was stopped.
    pub(crate) blocked: Atomic<bool>,
}

/// A peer, or one of several connections to it.
pub(crate) struct Entry {
    /// Its address as it announces itself.
    pub(crate) address: HwAddr,
    number: u8,
    pub(crate) machine: Connection<Arc<Rc>>,
    pub(crate) terms: Terms,
    /// Those of the connection that the peer has yet to confirm.
    offered: Terms,
    /// Messages that had come when that was looked at.
    seen: u64,
    /// What becomes of ours.
    progress: Progress,
    /// Messages sent that count, modulo 2^16.
    pub(crate) sent: u16,
    /// Frames that wait, for room or for the connection; they begin with the wire's header.
    pub(crate) backlog: SkbQueue,
    /// When the oldest of them began to wait.
    stalled_since: u64,
    /// A frame was there for it.
    wanted: bool,
    /// Frames have waited for too long: none is to wait for a connection before this time.
    hope_again: u64,
}

/// A connection that somebody else sends by.
struct Sender {
    rc: Arc<Rc>,
    /// Its peer has said that it was it who asked, or has sent something.
    confirmed: bool,
    /// Messages that had come when that was looked at, and since when there are no more.
    seen: u64,
    idle_since: u64,
}

/// The table.
pub(crate) struct Connections {
    pub(crate) entries: KVec<Option<KBox<Entry>>>,
    /// Those that others send by.
    senders: KVec<Sender>,
    /// Those that have come to an end.
    ended: KVec<Arc<Rc>>,
    pool: Pool,
    pub(crate) sender: RcSender,
    pub(crate) shared: Arc<Shared>,
    reliable: Arc<Reliable>,
    pub(crate) counters: Arc<Counters>,
    own: HwAddr,
    /// The lane whose queue pair has refused a frame.
    pub(crate) suspect: Option<Arc<Lane>>,
    /// How many of `ended` there were that are not over yet.
    ending: u32,
    /// The most connections there may be.
    cap: usize,
    pub(crate) lanes: u8,
    idle_ms: u64,
}

/// Where a connection stands.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// In an entry's state machine, by that ticket.
    Entry(Ticket),
    /// Among those that others send by.
    Sender,
}

/// A connection that was found.
pub(crate) struct Found {
    pub(crate) rc: Arc<Rc>,
    pub(crate) place: Place,
}

/// What the work item is to do.
pub(crate) enum Job {
    /// Ask for a connection.
    Ask {
        address: HwAddr,
        number: u8,
        ticket: Ticket,
        width: u16,
    },
    /// End one.
    End(Arc<Rc>),
    /// Nothing, for so many milliseconds.
    Wait(Option<u64>),
}

impl Connections {
    /// None yet.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(
        reliable: Arc<Reliable>,
        sender: RcSender,
        counters: Arc<Counters>,
        buffers: u32,
    ) -> Result<Self> {
        let mut entries = KVec::with_capacity(MAX, GFP_KERNEL)?;
        for _ in 0..MAX {
            entries.push(None, GFP_KERNEL)?;
        }
        let own = HwAddr::new(Flags::NONE, reliable.qpn, reliable.gid);
        let tunables = &reliable.tunables;
        let (cap, lanes, idle_ms) = (
            tunables.rc_max_connections() as usize,
            tunables.rc_max_qps() as u8,
            u64::from(tunables.rc_idle_s()) * 1_000,
        );
        Ok(Self {
            entries,
            senders: KVec::with_capacity(MAX_SENDERS, GFP_KERNEL)?,
            ended: KVec::with_capacity(2 * MAX + MAX_SENDERS, GFP_KERNEL)?,
            pool: Pool::new(buffers),
            sender,
            shared: Arc::new(
                Shared {
                    stalled: Atomic::new(false),
                    blocked: Atomic::new(false),
                },
                GFP_KERNEL,
            )?,
            reliable,
            counters,
            own,
            suspect: None,
            ending: 0,
            cap,
            lanes,
            idle_ms,
        })
    }

    /// Takes note that the lane whose queue pair has refused a frame is being looked after.
    pub(crate) fn take_suspect(&mut self) -> Option<Arc<Lane>> {
        self.suspect.take()
    }

    /// Reads what can be tuned once more.
    pub(crate) fn tunables_changed(&mut self) {
        let tunables = &self.reliable.tunables;
        self.cap = tunables.rc_max_connections() as usize;
        self.lanes = tunables.rc_max_qps() as u8;
        self.idle_ms = u64::from(tunables.rc_idle_s()) * 1_000;
    }

    /// What all connections have in common.
    pub(crate) fn reliable(&self) -> &Arc<Reliable> {
        &self.reliable
    }

    /// The entry at a place that a path remembers, if it is still that peer's.
    #[inline]
    pub(crate) fn entry(&mut self, at: u16, address: &HwAddr) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(usize::from(at))?.as_mut()?;
        (entry.address == *address).then_some(&mut **entry)
    }

    /// Walks over the entries, for people.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> + '_ {
        self.entries.iter().flatten().map(|entry| &**entry)
    }

    /// Those that others send by.
    pub(crate) fn senders(&self) -> impl Iterator<Item = &Arc<Rc>> + '_ {
        self.senders.iter().map(|sender| &sender.rc)
    }

    /// Takes note of who has sent something since the last time.
    fn look(&mut self, now: u64) {
        for entry in self.entries.iter_mut().flatten() {
            entry.look(now);
        }
        for sender in &mut self.senders {
            let came = sender.rc.flow.rx_frames.get();
            if came != sender.seen {
                sender.seen = came;
                sender.idle_since = now;
                sender.confirmed = true;
            }
        }
    }

    /// How many connections there are, or are being made.
    fn count(&self) -> usize {
        let own = self.iter().map(|entry| entry.machine.all().count());
        own.sum::<usize>() + self.senders.len()
    }

    fn find_entry(&self, peer: &HwAddr, number: u8) -> Option<usize> {
        self.entries.iter().position(|entry| {
            entry
                .as_ref()
                .is_some_and(|entry| entry.number == number && entry.address.same_peer(peer))
        })
    }

    /// The entry of a peer, a new one if need be.
    fn entry_or_new(&mut self, address: HwAddr, number: u8, now: u64) -> Option<usize> {
        if let Some(at) = self.find_entry(&address, number) {
            return Some(at);
        }
        let at = self.entries.iter().position(Option::is_none)?;
        let config = connection::Config {
            idle_ms: self.idle_ms,
            ..connection::Config::DEFAULT
        };
        let entry = KBox::new(
            Entry {
                address,
                number,
                machine: Connection::new(&self.own, &address, &config, now),
                terms: Terms::NONE,
                offered: Terms::NONE,
                seen: 0,
                progress: Progress::new(now),
                sent: 0,
                backlog: SkbQueue::new(BACKLOG, BACKLOG_BYTES),
                stalled_since: now,
                wanted: false,
                hope_again: 0,
            },
            GFP_ATOMIC,
        );
        *self.entries.get_mut(at)? = Some(entry.ok()?);
        Some(at)
    }

    /// Where the entry of a peer is, a new one if need be. None: there is no room for another peer now.
    #[cold]
    pub(crate) fn place(&mut self, address: &HwAddr, number: u8, now: u64) -> Option<u16> {
        let at = self.entry_or_new(*address, number, now)?;
        // The flags of its address may have changed; it is the same peer.
        self.entries.get_mut(at)?.as_mut()?.address = *address;
        u16::try_from(at).ok()
    }

    /// A frame is there for the peer of an entry, and no connection is up.
    #[cold]
    pub(crate) fn want(&mut self, dev: &Device<Interface>, at: u16, now: u64) {
        let Some(entry) = self.entry_at(at) else {
            self.make_room(dev, now);
            return;
        };
        if !entry.wanted && entry.machine.ticket().is_none() {
            entry.wanted = true;
            dev.queue_task(CONNECT, 0);
        }
    }

    /// What still waits at an entry wants a connection.
    pub(crate) fn want_for_backlog(&mut self, dev: &Device<Interface>, at: u16) {
        if let Some(entry) = self.entry_at(at) {
            if !entry.backlog.is_empty() {
                entry.wanted |= entry.machine.ticket().is_none();
                dev.queue_task(CONNECT, 0);
            }
        }
    }

    /// Ends the connection that was used least recently, if that is long ago, since there are too many.
    /// Not if there will be room anyway.
    fn make_room(&mut self, dev: &Device<Interface>, now: u64) -> bool {
        self.look(now);
        let idle = |entry: &&mut KBox<Entry>| {
            entry.machine.is_up()
                && !entry.machine.is_half_open()
                && entry.backlog.is_empty()
                && now.saturating_sub(entry.machine.last_used()) >= LRU_MS
        };
        let longest = self.senders.iter().enumerate();
        let longest = longest.min_by_key(|(_, sender)| sender.idle_since);
        let longest = longest.map(|(at, sender)| (at, sender.idle_since));
        if self.ending > 0 {
            return false;
        }
        let victim = self
            .entries
            .iter_mut()
            .flatten()
            .filter(idle)
            .min_by_key(|entry| entry.machine.last_used());
        let last_used = victim
            .as_ref()
            .map_or(u64::MAX, |entry| entry.machine.last_used());
        let victim = match longest {
            Some((at, since)) if since < last_used && now.saturating_sub(since) >= LRU_MS => {
                self.senders.remove(at).ok().map(|sender| sender.rc)
            }
            _ => victim.and_then(|entry| entry.machine.evict()),
        };
        let Some(rc) = victim else {
            return false;
        };
        self.counters.connected.evicted.add_shared(1);
        self.end(dev, rc);
        true
    }

    /// A connection is not used any more: the work item ends it.
    pub(crate) fn end(&mut self, dev: &Device<Interface>, rc: Arc<Rc>) {
        let width = rc.width;
        self.sender.forget(&rc.lane);
        match self.ended.push_within_capacity(rc) {
            Ok(()) => self.ending += 1,
            // `admit` sees to it that there is room. If there is none, it is destroyed as it is.
            Err(_) => self.pool.give_back(width),
        }
        dev.queue_task(CONNECT, 0);
    }

    /// Buffers that were set aside are free again.
    pub(crate) fn give_back(&mut self, width: u16) {
        self.pool.give_back(width);
    }

    /// One of those that ended is over.
    pub(crate) fn over(&mut self, width: u16) {
        self.ending = self.ending.saturating_sub(1);
        self.pool.give_back(width);
    }

    /// A window for one more connection, if there can be one. If not, and `may_evict`, there may be room
    /// for it soon.
    fn take_window(&mut self, dev: &Device<Interface>, now: u64, may_evict: bool) -> Option<u16> {
        let count = self.count();
        let others = self.cap.saturating_sub(count + 1) as u32;
        if count < self.cap {
            if let Some(width) = self.pool.take(WINDOW, others) {
                return Some(width);
            }
        }
        // What nobody has confirmed goes by itself, and takes no other one's place.
        if may_evict {
            self.make_room(dev, now);
        }
        None
    }

    /// How many connections were accepted and are not confirmed, and how many of them bear the GID of
    /// `peer`.
    fn half_open(&self, peer: &HwAddr) -> (usize, usize) {
        let own = || self.iter().filter(|entry| entry.machine.is_half_open());
        let others = || self.senders.iter().filter(|sender| !sender.confirmed);
        let own_same = own().filter(|entry| entry.address.gid() == peer.gid());
        let others_same = others().filter(|sender| sender.rc.caller.peer.gid() == peer.gid());
        (
            own().count() + others().count(),
            own_same.count() + others_same.count(),
        )
    }

    /// A request of a peer's: in which role, and how wide a window there is for it.
    ///
    /// # Errors
    ///
    /// Why it is refused.
    pub(crate) fn admit(
        &mut self,
        dev: &Device<Interface>,
        peer: &HwAddr,
        data: &PrivateData,
        now: u64,
    ) -> Result<(Role, u16), Refusal> {
        if self.ending >= MAX_ENDING {
            return Err(Refusal::Full);
        }
        let (all, same) = self.half_open(peer);
        if all >= MAX_HALF_OPEN || same >= MAX_HALF_OPEN_EACH {
            return Err(Refusal::Full);
        }
        let Some(extension) = data
            .extension
            .filter(|_| self.reliable.tunables.extensions())
        else {
            let width = self.take_window(dev, now, all == 0).ok_or(Refusal::Full)?;
            return Ok((Role::Sender, width));
        };
        if extension.lane >= MAX_LANES as u8 {
            return Err(Refusal::Data);
        }
        if let Some(at) = self.find_entry(peer, extension.lane) {
            let entry = self.entries.get_mut(at).and_then(Option::as_mut);
            match entry.map_or(Ok(()), |entry| entry.machine.request()) {
                Ok(()) => {}
                Err(Rejection::Crossing) => return Err(Refusal::Crossing),
                Err(Rejection::Closed) => return Err(Refusal::Closed),
            }
        }
        let width = self.take_window(dev, now, all == 0).ok_or(Refusal::Full)?;
        Ok((Role::Peer, width))
    }

    /// A request was accepted.
    ///
    /// # Errors
    ///
    /// It is not wanted any more.
    pub(crate) fn accepted(
        &mut self,
        dev: &Device<Interface>,
        rc: Arc<Rc>,
        terms: Terms,
        now: u64,
    ) -> Result {
        let (peer, number) = (rc.caller.peer, rc.caller.number);
        if rc.caller.role == Role::Sender {
            let sender = Sender {
                rc,
                confirmed: false,
                seen: 0,
                idle_since: now,
            };
            return self
                .senders
                .push_within_capacity(sender)
                .map_err(|_| ENOSPC);
        }
        let at = self.entry_or_new(peer, number, now).ok_or(ENOSPC)?;
        let entry = self
            .entries
            .get_mut(at)
            .and_then(Option::as_mut)
            .ok_or(ENOSPC)?;
        let (_, before) = entry.machine.accept(rc, now).map_err(|_| ECANCELED)?;
        entry.offered = terms;
        if let Some(before) = before {
            self.end(dev, before);
        }
        Ok(())
    }

    /// Lets frames be sent by what was accepted of a peer, since that has confirmed it.
    pub(crate) fn confirm(&mut self, dev: &Device<Interface>, at: u16, ticket: Ticket, now: u64) {
        let Some(entry) = self.entry_at(at) else {
            return;
        };
        let Confirmed::Up(before) = entry.machine.confirmed(ticket, now) else {
            return;
        };
        entry.begin(entry.offered, now);
        self.counters.connected.connected.add_shared(1);
        if let Some(before) = before {
            self.end(dev, before);
        }
    }

    /// The same if a frame has come by it: what said so before was lost, or is still to come.
    pub(crate) fn confirm_by_frame(&mut self, dev: &Device<Interface>, at: u16, now: u64) {
        let half_open = self
            .entry_at(at)
            .and_then(|entry| entry.machine.half_open());
        if let Some((ticket, rc)) = half_open {
            if rc.flow.has_received() {
                self.confirm(dev, at, ticket, now);
            }
        }
    }

    /// One of those that others send by is really its peer's, who has forgotten what there was before.
    pub(crate) fn sender_confirmed(&mut self, dev: &Device<Interface>, rc: &Arc<Rc>) {
        let this = |sender: &&mut Sender| Arc::ptr_eq(&sender.rc, rc);
        let Some(sender) = self.senders.iter_mut().find(this) else {
            return;
        };
        sender.confirmed = true;
        self.counters.connected.connected.add_shared(1);
        let before = |other: &Sender| {
            let (other, this) = (&other.rc.caller, &rc.caller);
            other.peer == this.peer
                && other.number == this.number
                && !core::ptr::eq(&**other, &**this)
        };
        while let Some(at) = self.senders.iter().position(before) {
            if let Ok(sender) = self.senders.remove(at) {
                self.end(dev, sender.rc);
            }
        }
    }

    /// Where the entry of a peer is.
    pub(crate) fn position(&self, peer: &HwAddr, number: u8) -> Option<u16> {
        u16::try_from(self.find_entry(peer, number)?).ok()
    }

    /// Where the entry of a connection is, present or not.
    pub(crate) fn place_of(&self, caller: &Caller) -> Option<u16> {
        self.position(&caller.peer, caller.number)
    }

    /// The entry at a place.
    pub(crate) fn entry_at(&mut self, at: u16) -> Option<&mut Entry> {
        Some(&mut **self.entries.get_mut(usize::from(at))?.as_mut()?)
    }

    /// The entry that a caller's connection is for.
    pub(crate) fn entry_of(&mut self, caller: &Caller) -> Option<&mut Entry> {
        self.entry_at(self.place_of(caller)?)
    }

    /// The entry of a connection that is there.
    pub(crate) fn of(&mut self, caller: &Caller) -> Option<&mut Entry> {
        let at = self.find_entry(&caller.peer, caller.number)?;
        let entry = self.entries.get_mut(at)?.as_mut()?;
        let is = entry.machine.all().any(|(_, rc)| is(rc, caller));
        is.then_some(&mut **entry)
    }

    /// The connection that a caller belongs to.
    pub(crate) fn find(&self, caller: &Caller) -> Option<Found> {
        if let Some(rc) = self.senders().find(|rc| is(rc, caller)) {
            return Some(Found {
                rc: rc.clone(),
                place: Place::Sender,
            });
        }
        let at = self.find_entry(&caller.peer, caller.number)?;
        let machine = &self.entries.get(at)?.as_ref()?.machine;
        let (ticket, rc) = machine.all().find(|(_, rc)| is(rc, caller))?;
        Some(Found {
            rc: rc.clone(),
            place: Place::Entry(ticket),
        })
    }

    /// The connection whose queue pair a lane is.
    pub(crate) fn of_lane(&self, lane: &Arc<Lane>) -> Option<Arc<Rc>> {
        let is = |rc: &&Arc<Rc>| Arc::ptr_eq(&rc.lane, lane);
        let own = self.iter().flat_map(|entry| entry.machine.all());
        own.map(|(_, rc)| rc)
            .find(is)
            .or_else(|| self.senders().find(is))
            .cloned()
    }

    /// Takes one out of those that others send by.
    pub(crate) fn remove_sender(&mut self, dev: &Device<Interface>, rc: &Arc<Rc>) {
        let is = |sender: &Sender| Arc::ptr_eq(&sender.rc, rc);
        if let Some(at) = self.senders.iter().position(is) {
            if let Ok(sender) = self.senders.remove(at) {
                self.end(dev, sender.rc);
            }
        }
    }

    /// The next thing to do for the work item. `is_ready` says whether there is a path to a peer.
    pub(crate) fn next_job(
        &mut self,
        dev: &Device<Interface>,
        now: u64,
        is_ready: impl Fn(&HwAddr) -> bool,
    ) -> Job {
        let up = self.iter().filter(|entry| entry.machine.is_up()).count();
        self.counters.connected.set_current(up + self.senders.len());
        if let Some(rc) = self.ended.pop() {
            return Job::End(rc);
        }
        self.look(now);
        if let Some(at) = self
            .senders
            .iter()
            .position(|sender| now >= sender.deadline())
        {
            if let Ok(sender) = self.senders.remove(at) {
                let connected = &self.counters.connected;
                if sender.confirmed {
                    connected.idle.add_shared(1);
                } else {
                    connected.failed.add_shared(1);
                }
                self.ending += 1;
                return Job::End(sender.rc);
            }
        }
        let mut next = self.senders.iter().map(Sender::deadline).min();
        for at in 0..self.entries.len() {
            let Some(entry) = self.entries.get_mut(at).and_then(Option::as_mut) else {
                continue;
            };
            let was_up = entry.machine.is_up() && !entry.machine.is_half_open();
            if let Some(rc) = entry.machine.poll(now) {
                entry.wanted |= !entry.backlog.is_empty() && !entry.machine.is_up();
                let connected = &self.counters.connected;
                if was_up {
                    connected.idle.add_shared(1);
                } else {
                    connected.failed.add_shared(1);
                }
                self.end(dev, rc);
                return self.ended.pop().map_or(Job::Wait(Some(1)), Job::End);
            }
            // If there is no path yet, there will be.
            let is_blank = entry.machine.is_blank(now);
            let wanted = entry.wanted && is_blank && is_ready(&entry.address);
            entry.wanted &= !wanted;
            let (address, number) = (entry.address, entry.number);
            if wanted {
                let width = self.take_window(dev, now, true);
                let entry = self.entries.get_mut(at).and_then(Option::as_mut);
                let Some(width) = width else {
                    // There may be room soon.
                    if let Some(entry) = entry {
                        entry.wanted = true;
                    }
                    self.counters.connected.no_room.add_shared(1);
                    next = Some(next.unwrap_or(u64::MAX).min(now.saturating_add(ROOM_MS)));
                    continue;
                };
                match entry.and_then(|entry| entry.machine.want(now)) {
                    Some(ticket) => {
                        return Job::Ask {
                            address,
                            number,
                            ticket,
                            width,
                        }
                    }
                    None => self.give_back(width),
                }
            } else if is_blank && entry.backlog.is_empty() && !entry.wanted && entry.hopes(now) {
                if let Some(entry) = self.entries.get_mut(at) {
                    *entry = None;
                }
                continue;
            }
            let entry = self.entries.get(at).and_then(Option::as_ref);
            let deadline = entry.and_then(|entry| entry.deadline(now));
            next = match (next, deadline) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
        // `make_room` may have ended one meanwhile.
        match self.ended.pop() {
            Some(rc) => Job::End(rc),
            None => Job::Wait(next.map(|next| next.saturating_sub(now))),
        }
    }

    /// All of them, to be ended: the interface goes down.
    pub(crate) fn into_parts(mut self) -> (KVec<Arc<Rc>>, RcSender) {
        let mut all = core::mem::take(&mut self.ended);
        for mut entry in self.entries.into_iter().flatten() {
            while let Some(rc) = entry.machine.close() {
                let _ = all.push_within_capacity(rc);
            }
        }
        for sender in self.senders {
            let _ = all.push_within_capacity(sender.rc);
        }
        (all, self.sender)
    }
}

fn is(rc: &Arc<Rc>, caller: &Caller) -> bool {
    core::ptr::eq(&*rc.caller, caller)
}

impl Sender {
    /// When it ends, if nothing comes by it.
    fn deadline(&self) -> u64 {
        let limit = if self.confirmed {
            SENDER_IDLE_MS
        } else {
            SENDER_CONFIRM_MS
        };
        self.idle_since.saturating_add(limit)
    }
}

impl Entry {
    /// The address of the peer.
    pub(crate) fn address(&self) -> &HwAddr {
        &self.address
    }

    /// Which of several connections to it.
    pub(crate) fn number(&self) -> u8 {
        self.number
    }

    /// A connection begins.
    pub(crate) fn begin(&mut self, terms: Terms, now: u64) {
        self.terms = terms;
        self.wanted = false;
        self.seen = 0;
        self.progress = Progress::new(now);
        self.sent = 0;
    }

    /// Nothing is to wait for it for a while.
    pub(crate) fn lose_hope(&mut self, now: u64) {
        self.hope_again = now.saturating_add(HOPELESS_MS);
    }

    pub(crate) fn hopes(&self, now: u64) -> bool {
        now >= self.hope_again
    }

    /// Whether a connection is being made, or will be.
    pub(crate) fn is_coming(&self, now: u64) -> bool {
        self.hopes(now) && (self.machine.ticket().is_some() || self.machine.is_hopeful())
    }

    /// Whether a message may be sent, as far as the peer is concerned.
    #[inline]
    pub(crate) fn may_send(&self, rc: &Rc) -> bool {
        !self.terms.extended || credit::may_send(self.sent, rc.flow.grant())
    }

    /// A frame begins to wait. True: it is the first.
    pub(crate) fn stall(&mut self, now: u64) -> bool {
        let first = self.backlog.is_empty();
        if first {
            self.stalled_since = now;
        }
        first
    }

    /// Frames have waited, and some could go.
    pub(crate) fn moved(&mut self, now: u64) {
        self.stalled_since = now;
    }

    /// Whether frames have waited for too long, or those that were sent do not arrive.
    pub(crate) fn is_stuck(&mut self, now: u64) -> bool {
        let waits = !self.backlog.is_empty() && now.saturating_sub(self.stalled_since) >= STALL_MS;
        waits || self.look_at_sent(now) >= STALL_MS
    }

    /// Takes note of what has become of what was sent, and says for how long nothing has.
    fn look_at_sent(&mut self, now: u64) -> u64 {
        let (done, under_way) = self.machine.present().map_or((0, false), |rc| {
            (rc.lane.completed(), rc.lane.in_flight() > 0)
        });
        self.progress.look(now, done, under_way)
    }

    /// Takes note of what has happened to its connection since the last time.
    fn look(&mut self, now: u64) {
        self.look_at_sent(now);
        let Some(rc) = self.machine.present() else {
            return;
        };
        let came = rc.flow.rx_frames.get();
        if came != self.seen {
            self.seen = came;
            self.machine.used(now);
        }
    }

    /// When time alone brings something to do.
    fn deadline(&self, now: u64) -> Option<u64> {
        let stuck = (!self.backlog.is_empty()).then(|| self.stalled_since.saturating_add(STALL_MS));
        let stuck = stuck.or(self.progress.deadline(STALL_MS));
        // If the time is there, it is a path that is waited for.
        let again = self.machine.retry_at();
        let again = again.filter(|until| self.wanted && *until > now);
        let again = again.or((self.hope_again > now).then_some(self.hope_again));
        match (self.machine.deadline().or(again), stuck) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}

impl Shared {
    /// Whether somebody has to look at what waits.
    #[inline]
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled.load(Relaxed)
    }

    /// Whether the queue is to stay stopped, since so much waits.
    #[inline]
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked.load(Relaxed)
    }
}
