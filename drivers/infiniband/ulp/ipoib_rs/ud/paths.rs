// SPDX-License-Identifier: GPL-2.0

//! The paths to peers and the multicast groups, by link-layer address, under the transmit lock.
//!
//! The protocol's state machines (`proto/fsm`) decide. Nothing here sends or sleeps: address handles are made
//! and groups are joined by a work item (`ctl/resolve.rs`), to which [`Jobs`] are handed.

use ipoib_netdev::clock::now_ms;
use ipoib_netdev::device::{Device, OwnedDevice, RawDevice};
use ipoib_netdev::random::random;
use ipoib_netdev::skb::{SkbQueue, TxSkb};
use ipoib_proto::cm::MAX_CHANNELS;
use ipoib_proto::drop::DropReason;
use ipoib_proto::hwaddr::HwAddr;
use ipoib_proto::mgid::Mgid;
use ipoib_proto::multicast::{self, GroupTable};
use ipoib_proto::path::{self, InsertError, PathTable, Seed, Slot};
use ipoib_proto::path_mtus::PathMtus;
use ipoib_proto::queue::Waiting;
use ipoib_proto::seq::Sequence;
use ipoib_proto::ticket::Ticket;
use ipoib_rdma::Ah;
use ipoib_trace::News;
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::base::interface::Interface;
use crate::base::storage::Storage;
use crate::base::subnet::MAX_QUESTIONS;
use crate::base::trace::who;
use crate::ud::ring::path_mtu;

/// Peers that an interface can talk to at once: half of the table's slots.
const PATH_SLOTS: usize = 8192;
/// Groups that it can be in or send to at once: half of the table's slots.
const GROUP_SLOTS: usize = 4096;
/// Frames that wait for a path, of as many bytes as by default for a neighbour entry (`unres_qlen_bytes`).
type PathWaiting = Frames<64, 212_992>;
/// Frames that wait for a group.
type GroupWaiting = Frames<64, 65_536>;
/// The most bytes that an idle peer may take, without its address handle.
const PEER_LEN: usize = 256;
/// Questions that are left to those who have no path: half of them.
const FIRST: usize = MAX_QUESTIONS / 2;
/// Jobs that the work item takes at a time.
///
/// Few: the interface cannot go down meanwhile.
const JOBS: usize = 4;

/// Up to `LEN` frames that wait, of `BYTES` bytes in all; one is taken whatever its length. They are linked, so that
/// nothing is set aside for those that may come.
pub(crate) struct Frames<const LEN: usize, const BYTES: usize>(SkbQueue);

impl<const LEN: usize, const BYTES: usize> Default for Frames<LEN, BYTES> {
    fn default() -> Self {
        Self(SkbQueue::new(LEN, BYTES))
    }
}

impl<const LEN: usize, const BYTES: usize> Waiting for Frames<LEN, BYTES> {
    type Frame = TxSkb;

    fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn push(&mut self, frame: TxSkb, _bytes: u32) -> Result<(), TxSkb> {
        self.0.push(frame)
    }

    fn pop(&mut self) -> Option<TxSkb> {
        self.0.pop()
    }
}

/// The path to a peer.
pub(crate) type Path = path::Path<Arc<Ah>, PathWaiting>;
type Paths = PathTable<KBox<Peer>, Storage<Slot<KBox<Peer>>>>;
/// The places of a peer's connections in the table of connections, or [`Channels::NOWHERE`].
#[derive(Clone, Copy)]
pub(crate) struct Channels(pub(crate) [u16; MAX_CHANNELS]);

impl Channels {
    /// The most connections to a peer.
    pub(crate) const COUNT: usize = MAX_CHANNELS;
    /// The place of a connection that does not exist.
    pub(crate) const NOWHERE: u16 = u16::MAX;

    const NONE: Channels = Channels([Self::NOWHERE; MAX_CHANNELS]);
}

/// A peer: the path to it, and where its connections are.
pub(crate) struct Peer {
    pub(super) path: Path,
    channels: Channels,
}

/// A peer that can be sent to.
pub(crate) struct PeerRef<'a> {
    /// Its address handle.
    pub(crate) ah: &'a Arc<Ah>,
    /// The numbers of its frames.
    pub(crate) sequence: &'a mut Sequence,
    /// Where its connections are.
    pub(crate) channels: &'a mut Channels,
}

/// A multicast group.
pub(crate) type Group = multicast::Group<Arc<Ah>, GroupWaiting>;
type Groups = GroupTable<Arc<Ah>, GroupWaiting, KBox<Group>, Storage<Slot<KBox<Group>>>>;

/// All destinations of an interface.
pub(crate) struct Destinations {
    pub(super) paths: Paths,
    pub(super) groups: Groups,
    /// The MTUs of all address handles that `paths` has.
    pub(super) mtus: PathMtus,
    /// The place of the first path that there was no room to ask for: it comes first the next time.
    pub(super) turn: Option<usize>,
    /// The number of paths in use at the last look at all of them.
    pub(super) in_use: usize,
    /// Since when the port is not active.
    down_since: Option<u64>,
    /// Paths are not to be resolved before the broadcast group is joined, which says how.
    after_group: bool,
    /// Frames that wait for paths and groups.
    pub(super) waiting: usize,
    dev: OwnedDevice<Interface>,
}

/// A job that sleeps.
pub(crate) enum Job {
    Resolve(HwAddr, Ticket),
    Attach(Mgid, multicast::Membership, Ticket),
    Detach(Mgid, multicast::Membership),
}

impl Peer {
    /// One that nothing is known of yet.
    fn new(address: HwAddr, now: u64) -> Self {
        const { assert!(size_of::<Self>() <= PEER_LEN) };
        let [start] = random();
        Self {
            path: Path::new(address, Sequence::new(start as u16), now),
            channels: Channels::NONE,
        }
    }
}

impl Destinations {
    /// None yet; the port is down until [`Self::set_up`]. With `after_group`, paths are resolved only when the
    /// broadcast group is joined.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(dev: &Device<Interface>, after_group: bool) -> Result<Self> {
        let broadcast = dev.data().broadcast();
        let paths = PathTable::new(
            Storage::new(PATH_SLOTS, || Ok(Slot::EMPTY))?,
            Seed(random()),
        );
        let groups = GroupTable::new(
            Storage::new(GROUP_SLOTS, || Ok(Slot::EMPTY))?,
            Seed(random()),
            |group| KBox::new(group, GFP_ATOMIC).ok(),
            broadcast,
        );
        Ok(Self {
            paths: paths.ok_or(EINVAL)?,
            groups: groups.ok_or(ENOMEM)?,
            mtus: PathMtus::new(),
            turn: None,
            in_use: 0,
            down_since: Some(now_ms()),
            after_group,
            waiting: 0,
            dev: dev.get_typed(),
        })
    }

    /// Address handle and sequence of a peer that can be sent to right now.
    #[inline]
    pub(crate) fn peer(&mut self, address: &HwAddr, now: u64) -> Option<PeerRef<'_>> {
        let Peer { path, channels } = &mut **self.paths.get_mut(address)?;
        let (ah, sequence) = path.transmit(now)?;
        Some(PeerRef {
            ah,
            sequence,
            channels,
        })
    }

    /// The address handle of a peer, if there is one.
    pub(crate) fn handle(&self, address: &HwAddr) -> Option<Arc<Ah>> {
        self.paths.get(address)?.path.handle().cloned()
    }

    /// The longest frame, our header included, that the narrowest path takes.
    pub(crate) fn narrowest(&self) -> usize {
        self.mtus.least().map_or(usize::MAX, |mtu| mtu as usize)
    }

    /// The address handle of a group that can be sent to right now.
    #[inline]
    pub(crate) fn group(&mut self, mgid: &Mgid, now: u64) -> Option<&Arc<Ah>> {
        self.groups.transmit(mgid, now)
    }

    /// The group that a multicast address names, with our P_Key in it: all groups of a link are in
    /// its partition (RFC 4391, section 10), whatever a raw socket wrote.
    #[inline]
    pub(crate) fn group_of(&self, address: &HwAddr) -> Option<Mgid> {
        Some(Mgid::from_hwaddr(address)?.set_pkey(self.groups.broadcast().pkey()))
    }

    /// Returns true if the broadcast group can be sent to.
    pub(crate) fn is_ready(&self) -> bool {
        self.groups.is_ready()
    }

    /// The port went up or down. Returns for how long it was down, in milliseconds, if it comes back.
    pub(crate) fn set_up(&mut self, up: bool, now: u64) -> Option<u64> {
        if up == self.is_up() {
            return None;
        }
        let since = self.down_since.take();
        if up {
            self.groups.port_up();
        } else {
            self.down_since = Some(now);
            self.groups.port_down();
            for (_, peer) in self.paths.iter_mut() {
                peer.path.port_down();
                trace_path(&self.dev, &peer.path, "port-down");
            }
        }
        since.map(|since| now.saturating_sub(since))
    }

    /// Returns true if paths can be resolved now; or dropped, since the port is down.
    pub(super) fn may_resolve(&self) -> bool {
        !self.after_group || !self.is_up() || self.is_ready()
    }

    /// Paths may have changed: each is asked for anew when it is used next. Groups that could not be joined are tried
    /// again.
    pub(crate) fn refresh(&mut self) {
        self.groups.retry();
        for (_, peer) in self.paths.iter_mut() {
            peer.path.refresh();
            trace_path(&self.dev, &peer.path, "refreshed");
        }
    }

    /// Has the path to a peer asked for anew if it is in use, since a connection along it has failed. Returns true if
    /// the caller has to queue the work item that resolves paths.
    pub(crate) fn doubt(&mut self, address: &HwAddr, now: u64) -> bool {
        self.paths.get_mut(address).is_some_and(|peer| {
            peer.path.doubt(now);
            trace_path(&self.dev, &peer.path, "doubted");
            peer.path.has_question()
        })
    }

    /// Returns true if there is a path to a peer, and no other answer is waited for.
    pub(crate) fn is_settled(&self, address: &HwAddr) -> bool {
        let peer = self.paths.get(address);
        peer.is_some_and(|peer| peer.path.is_settled())
    }

    /// Returns true if the port is up.
    pub(crate) fn is_up(&self) -> bool {
        self.down_since.is_none()
    }

    /// One group is to be joined anew.
    pub(crate) fn rejoin_one(&mut self, mgid: &Mgid) {
        self.groups.invalidate_one(mgid);
    }

    /// All groups are to be joined anew.
    pub(crate) fn rejoin(&mut self) {
        self.groups.invalidate();
    }

    /// These are the groups that the stack wants to receive. True: there is no place for some.
    pub(crate) fn want(&mut self, wanted: impl Iterator<Item = Mgid>) -> bool {
        self.groups.sync(wanted) > 0
    }

    /// How many frames wait for paths and groups.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// How many paths there are.
    pub(crate) fn path_count(&self) -> usize {
        self.paths.len()
    }

    /// How many groups there are.
    pub(crate) fn group_count(&self) -> usize {
        self.groups.count()
    }

    /// Walks over the paths.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> + '_ {
        self.paths.iter().map(|(_, peer)| &peer.path)
    }

    /// Walks over the groups.
    pub(crate) fn groups(&self) -> impl Iterator<Item = &Group> + '_ {
        self.groups.iter()
    }

    fn path_or_new(&mut self, address: HwAddr, now: u64) -> Result<&mut Path, DropReason> {
        if self.paths.get(&address).is_none() {
            let peer =
                KBox::new(Peer::new(address, now), GFP_ATOMIC).map_err(|_| DropReason::NoMemory)?;
            trace_path(&self.dev, &peer.path, "new");
            if let Err((InsertError::Full, peer)) = self.paths.insert(address, peer) {
                self.make_room(&address, now)?;
                self.paths
                    .insert(address, peer)
                    .map_err(|_| DropReason::TableFull)?;
            }
        }
        let peer = self.paths.get_mut(&address);
        peer.map(|peer| &mut peer.path).ok_or(DropReason::TableFull)
    }

    /// Takes out one of the paths that are in the way of a new one, with the frames that wait for it.
    fn make_room(&mut self, address: &HwAddr, now: u64) -> Result<(), DropReason> {
        let score = |peer: &KBox<Peer>| peer.path.eviction_score(now);
        let victim = self.paths.victim(address, score);
        let victim = self.paths.remove(&victim.ok_or(DropReason::TableFull)?);
        if let Some(Peer { path, .. }) = victim.as_deref() {
            trace_path(&self.dev, path, "evicted");
            self.mtus.remove(path.held().and_then(|ah| path_mtu(ah)));
            let frames = path.waiting();
            self.waiting -= frames;
            let counters = &self.dev.data().get_ref().counters;
            counters.dropped(&self.dev, DropReason::TableFull, frames as u64, 0);
        }
        Ok(())
    }

    /// The path to a peer, a new one if need be, to be resolved or sent by.
    ///
    /// # Errors
    ///
    /// Why there is none.
    pub(crate) fn path(&mut self, address: HwAddr, now: u64) -> Result<&mut Path, DropReason> {
        if !self.is_up() {
            return Err(DropReason::LinkDown);
        }
        if !address.is_unicast() {
            return Err(DropReason::BadAddress);
        }
        self.path_or_new(address, now)
    }

    /// Ends the resolution of a path. A late answer changes nothing.
    pub(super) fn resolved(
        &mut self,
        address: &HwAddr,
        ticket: Ticket,
        made: Result<Arc<Ah>>,
        now: u64,
    ) {
        let [start] = random();
        let Some(Peer { path, .. }) = self.paths.get_mut(address).map(|peer| &mut **peer) else {
            return;
        };
        let event = outcome(&made);
        match made {
            Ok(ah) => {
                self.mtus.add(path_mtu(&ah));
                let renew_at = path::renewal(self.in_use, start as u32, now);
                // The one before, or one that came too late, is given back and dropped.
                if let Some(ah) = path.resolved(ticket, ah, renew_at) {
                    self.mtus.remove(path_mtu(&ah));
                }
            }
            Err(_) => path.resolve_failed(ticket, now),
        }
        trace_path(&self.dev, path, event);
    }

    /// Ends the joining of a group.
    pub(crate) fn attached(
        &mut self,
        mgid: &Mgid,
        ticket: Ticket,
        made: Result<Arc<Ah>>,
        now: u64,
    ) {
        let event = outcome(&made);
        match made {
            // There is one request at a time, so that none is ever refused here.
            Ok(ah) => drop(self.groups.attached(mgid, ticket, ah)),
            Err(_) => self.groups.attach_failed(mgid, ticket, now),
        }
        self.trace_group(mgid, event);
    }

    /// Emits the tracepoint of groups.
    pub(super) fn trace_group(&self, mgid: &Mgid, event: &str) {
        ipoib_trace::group(&self.dev, || {
            let group = self.groups.get(mgid);
            News {
                who: who(&mgid.to_hwaddr()),
                event,
                state: group.map_or("gone", Group::state),
                waiting: group.map_or(0, Group::waiting),
            }
        });
    }

    /// Returns true if groups that the stack wants have yet to get a place, for which they are to be wanted again.
    pub(crate) fn needs_sync(&self) -> bool {
        self.groups.needs_sync()
    }
}

/// Emits the tracepoint of paths.
#[inline]
pub(super) fn trace_path(dev: &RawDevice, path: &Path, event: &str) {
    ipoib_trace::path(dev, || News {
        who: who(path.addr()),
        event,
        state: path.state(),
        waiting: path.waiting(),
    });
}

/// A path whose neighbour has moved is old.
pub(super) fn follow_neighbour(dev: &RawDevice, path: &mut Path) {
    if path.handle().is_some_and(|ah| ah.take_moved()) {
        path.refresh();
        trace_path(dev, path, "moved");
    }
}

/// The end of a question, in a word.
fn outcome(made: &Result<Arc<Ah>>) -> &'static str {
    match made {
        Ok(_) => "answered",
        Err(_) => "failed",
    }
}

impl Drop for Destinations {
    fn drop(&mut self) {
        let counters = &self.dev.data().get_ref().counters;
        let frames = self.waiting as u64;
        counters.dropped(&self.dev, DropReason::Flushed, frames, 0);
    }
}

/// A few jobs.
pub(crate) struct Jobs {
    list: [Option<Job>; JOBS],
    len: usize,
    /// How many of those to come may ask a question.
    questions: usize,
}

impl Jobs {
    /// None, of which at most so many are to ask a question.
    pub(crate) fn new(questions: usize) -> Self {
        Self {
            list: [const { None }; JOBS],
            len: 0,
            questions,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns true if there is room for a job that asks a question, for the first time or `anew`, or for one that does not.
    pub(super) fn has_room(&self, asks: bool, anew: bool) -> bool {
        let left = if anew { FIRST } else { 0 };
        self.len < JOBS && (!asks || self.questions > left)
    }

    /// Returns true if there is room for the job of a group beside one for a path: a thousand groups keep no peer waiting.
    pub(super) fn has_room_beside(&self, asks: bool) -> bool {
        self.len + 1 < JOBS && (!asks || self.questions > 1)
    }

    /// Adds a job, for which there has to be room.
    pub(super) fn push(&mut self, job: Job, asks: bool) {
        if let Some(slot) = self.list.get_mut(self.len) {
            *slot = Some(job);
            self.len += 1;
            self.questions = self.questions.saturating_sub(usize::from(asks));
        }
    }

    /// Takes the jobs, in order.
    pub(crate) fn into_iter(self) -> impl Iterator<Item = Job> {
        self.list.into_iter().flatten()
    }
}

#[kunit_tests(ipoib_rs_paths)]
mod tests {
    use super::*;
    use ipoib_proto::mgid::{broadcast, Scope};
    use ipoib_proto::pkey::PKey;

    /// However many paths are asked for anew, there is room to ask for those of which nothing is known.
    #[test]
    fn known_paths_leave_room_to_others() -> Result {
        let link = broadcast(
            PKey::new(0xffff).ok_or(EINVAL)?,
            Scope::new(2).ok_or(EINVAL)?,
        );
        let question = || Job::Detach(link, multicast::Membership::Full);
        let mut jobs = Jobs::new(FIRST + 1);
        assert!(jobs.has_room(true, true));
        jobs.push(question(), true);
        assert!(!jobs.has_room(true, true));
        assert!(jobs.has_room(true, false) && jobs.has_room(false, true));
        let mut jobs = Jobs::new(1);
        jobs.push(question(), true);
        assert!(!jobs.has_room(true, false) && jobs.has_room(false, false));
        Ok(())
    }

    /// Groups take neither the last job nor the last question.
    #[test]
    fn groups_leave_room_to_paths() -> Result {
        let link = broadcast(
            PKey::new(0xffff).ok_or(EINVAL)?,
            Scope::new(2).ok_or(EINVAL)?,
        );
        let mut jobs = Jobs::new(JOBS);
        while jobs.has_room_beside(false) {
            jobs.push(Job::Detach(link, multicast::Membership::Full), false);
        }
        assert!(!jobs.has_room_beside(true) && jobs.has_room(true, false));
        let jobs = Jobs::new(1);
        assert!(!jobs.has_room_beside(true) && jobs.has_room_beside(false));
        assert!(jobs.has_room(true, false));
        Ok(())
    }
}
