// SPDX-License-Identifier: GPL-2.0

//! Where frames go: the paths to peers and the multicast groups, by link-layer address.
//!
//! The protocol's state machines (`proto/fsm/path.rs`, `proto/fsm/group.rs`) say what there is to do; this
//! file does it. They live under the transmit lock. What sleeps (making address handles, joining
//! groups) is done by the work item [`pump`], which collects jobs under the lock, does them
//! without it and brings back the answers.

use core::mem::MaybeUninit;

use ipoib_netdev::clock::now_ms;
use ipoib_netdev::device::Device;
use ipoib_netdev::netdev_log;
use ipoib_netdev::random::random;
use ipoib_netdev::skb::{self, TxSkb};
use ipoib_proto::drop::DropReason;
use ipoib_proto::hwaddr::{HwAddr, MULTICAST_QPN};
use ipoib_proto::mgid::Mgid;
use ipoib_proto::multicast::{self, GroupTable};
use ipoib_proto::path::{self, InsertError, PathTable, Seed, Slot};
use ipoib_proto::queue::Verdict;
use ipoib_proto::seq::Sequence;
use ipoib_proto::ticket::Ticket;
use ipoib_rdma::{mcast, Ah};
use kernel::prelude::*;
use kernel::sync::atomic::Relaxed;
use kernel::sync::Arc;

use crate::base::storage::Storage;
use crate::ctl::lifecycle::Endpoint;
use crate::ctl::netdev::{Interface, CONNECT, PUMP};
use crate::data::connected::Lanes;
use crate::data::tx::{self, Line};

/// Peers that an interface can talk to at once: half of the table's slots.
const PATH_SLOTS: usize = 8192;
/// Groups that it can be in or send to at once: half of the table's slots.
const GROUP_SLOTS: usize = 1024;
/// Groups that it can send to without being a member.
const SEND_ONLY: usize = 128;
/// Frames that wait for a path.
const PATH_WAITING: usize = 64;
/// Frames that wait for a group.
const GROUP_WAITING: usize = 8;
/// Multicast LIDs belong to InfiniBand.
const ROCE_MLID: u16 = 0;
/// How long the stack may take to notice a carrier, in milliseconds, before it is asked to send by it.
const ANNOUNCE_MS: u32 = 50;
/// Jobs that [`pump`] takes at a time.
///
/// Few: each path may take a second to resolve, and the interface cannot go down meanwhile.
const JOBS: usize = 4;

/// The path to a peer.
pub(crate) type Path = path::Path<Arc<Ah>, TxSkb, PATH_WAITING>;
type Paths = PathTable<KBox<Peer>, Storage<Slot<KBox<Peer>>>>;
/// A peer: the path to it, and where its connections are.
pub(crate) struct Peer {
    path: Path,
    lanes: Lanes,
}

/// What sending to a peer takes.
pub(crate) struct PeerRef<'a> {
    /// Its address handle.
    pub(crate) ah: &'a Arc<Ah>,
    /// The numbers of its frames.
    pub(crate) sequence: &'a mut Sequence,
    /// Where its connections are.
    pub(crate) lanes: &'a mut Lanes,
}

/// A multicast group.
pub(crate) type Group = multicast::Group<Arc<Ah>, TxSkb, GROUP_WAITING>;
type Groups = GroupTable<Arc<Ah>, TxSkb, GROUP_WAITING, Storage<Slot<Group>>>;

/// All destinations of an interface.
pub(crate) struct Destinations {
    paths: Paths,
    groups: Groups,
    broadcast: Mgid,
    /// Whether the port is active.
    up: bool,
}

/// What sleeps.
enum Job {
    Resolve(HwAddr, Ticket),
    Attach(Mgid, multicast::Membership, Ticket),
    Detach(Mgid, multicast::Membership),
}

impl Peer {
    /// One that nothing is known of yet; made where it stays, since it is large for a stack.
    // Apart, so that its stack frame is gone when anything is called that needs one.
    #[inline(never)]
    fn write(peer: KBox<MaybeUninit<Self>>, address: HwAddr, now: u64) -> Result<KBox<Self>> {
        let [start] = random();
        let sequence = Sequence::new(start as u16);
        peer.write_init(try_init!(Self {
            path: Path::new(address, sequence, now),
            lanes: Lanes::NONE,
        }))
    }
}

impl Destinations {
    /// None yet; the port is down until [`Self::set_up`].
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(broadcast: Mgid) -> Result<Self> {
        let paths = PathTable::new(
            Storage::new(PATH_SLOTS, || Ok(Slot::EMPTY))?,
            Seed(random()),
        );
        let groups = GroupTable::new(
            Storage::new(GROUP_SLOTS, || Ok(Slot::EMPTY))?,
            Seed(random()),
            SEND_ONLY,
            broadcast,
        );
        Ok(Self {
            paths: paths.ok_or(EINVAL)?,
            groups: groups.ok_or(EINVAL)?,
            broadcast,
            up: false,
        })
    }

    /// What sending to a peer takes, if that can be done right now.
    #[inline]
    pub(crate) fn peer(&mut self, address: &HwAddr, now: u64) -> Option<PeerRef<'_>> {
        let Peer { path, lanes } = &mut **self.paths.get_mut(address)?;
        let (ah, sequence) = path.transmit(now)?;
        Some(PeerRef {
            ah,
            sequence,
            lanes,
        })
    }

    /// Has the path to a peer resolved, for a connection.
    #[cold]
    pub(crate) fn want_path(&mut self, dev: &Device<Interface>, address: &HwAddr, now: u64) {
        if self.up && address.is_unicast() {
            if let Ok(path) = self.path_or_new(*address, now) {
                path.want(now);
                dev.queue_task(PUMP, 0);
            }
        }
    }

    /// The address handle of a peer, if there is one.
    pub(crate) fn handle(&self, address: &HwAddr) -> Option<Arc<Ah>> {
        self.paths.get(address)?.path.handle().cloned()
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
        Some(Mgid::from_hwaddr(address)?.set_pkey(self.broadcast.pkey()))
    }

    /// Whether the broadcast group can be sent to.
    pub(crate) fn is_ready(&self) -> bool {
        self.groups.is_ready()
    }

    /// The port went up or down.
    pub(crate) fn set_up(&mut self, up: bool) {
        if up == self.up {
            return;
        }
        self.up = up;
        if up {
            self.groups.port_up();
        } else {
            self.groups.port_down();
            for (_, path) in self.paths.iter_mut() {
                path.path.port_down();
            }
        }
    }

    /// All groups are to be joined anew.
    pub(crate) fn rejoin(&mut self) {
        self.groups.invalidate();
    }

    /// These are the groups that the stack wants to receive. True: not all had a place, and it is
    /// worth another try when the work item has made room.
    pub(crate) fn want(&mut self, wanted: impl Iterator<Item = Mgid>) -> bool {
        self.groups.sync(wanted) > 0
    }

    /// How many paths there are.
    pub(crate) fn path_count(&self) -> usize {
        self.paths.len()
    }

    /// How many groups there are.
    pub(crate) fn group_count(&self) -> usize {
        self.groups.len()
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
            let peer = KBox::new_uninit(GFP_ATOMIC).map_err(|_| DropReason::NoMemory)?;
            let peer = Peer::write(peer, address, now).map_err(|_| DropReason::NoMemory)?;
            if let Err((InsertError::Full, peer)) = self.paths.insert(address, peer) {
                // The longest idle of those in the way goes; none that frames wait for.
                let victim = self.paths.victim(&address, |peer| peer.path.idle_for(now));
                self.paths.remove(&victim.ok_or(DropReason::TableFull)?);
                self.paths
                    .insert(address, peer)
                    .map_err(|_| DropReason::TableFull)?;
            }
        }
        self.paths
            .get_mut(&address)
            .map(|peer| &mut peer.path)
            .ok_or(DropReason::TableFull)
    }

    /// Sends to a peer that there is no usable path to yet.
    #[cold]
    pub(crate) fn send_to_peer(
        &mut self,
        dev: &Device<Interface>,
        line: &mut Line,
        address: HwAddr,
        mut skb: TxSkb,
        now: u64,
    ) {
        if !self.up {
            return line.drop(dev, skb, DropReason::LinkDown);
        }
        if !address.is_unicast() {
            return line.drop(dev, skb, DropReason::BadAddress);
        }
        let path = match self.path_or_new(address, now) {
            Ok(path) => path,
            Err(reason) => return line.drop(dev, skb, reason),
        };
        let len = skb.len() as u32;
        let first = path.idle_for(now).is_some();
        line.number(&mut skb, &address, path.sequence());
        match path.send(skb, len, now) {
            Verdict::Transmit(skb) => {
                if let Some(ah) = path.handle() {
                    line.send(dev, skb, ah, address.qpn().get());
                } else {
                    line.drop(dev, skb, DropReason::NoPath);
                }
            }
            Verdict::Queued => queued(dev, line, first),
            Verdict::Drop(skb, reason) => line.drop(dev, skb, reason),
        }
    }

    /// Sends to a group that is not joined yet.
    #[cold]
    pub(crate) fn send_to_group(
        &mut self,
        dev: &Device<Interface>,
        line: &mut Line,
        mgid: &Mgid,
        skb: TxSkb,
        now: u64,
    ) {
        let len = skb.len() as u32;
        match self.groups.send(mgid, skb, len, now) {
            Verdict::Transmit(skb) => match self.groups.handle(mgid) {
                Some(ah) => line.send(dev, skb, ah, MULTICAST_QPN),
                None => line.drop(dev, skb, DropReason::NoGroup),
            },
            Verdict::Queued => queued(dev, line, true),
            Verdict::Drop(skb, reason) => {
                line.drop(dev, skb, reason);
                if reason == DropReason::TableFull {
                    // Somebody idle was asked to make room.
                    dev.queue_task(PUMP, 0);
                }
            }
        }
    }

    /// Does what needs no sleep and collects what does, until `jobs` is full. Returns when time
    /// alone brings more to do.
    fn work(&mut self, dev: &Device<Interface>, line: &mut Line, now: u64, jobs: &mut Jobs) -> u64 {
        // Groups first: a path may take a second, and without the broadcast group there is no link.
        while jobs.has_room() {
            let Some((mgid, action)) = self.groups.poll(now) else {
                break;
            };
            match action {
                multicast::Action::Attach(kind, ticket) => {
                    jobs.push(Job::Attach(mgid, kind, ticket));
                }
                multicast::Action::Detach(kind, ah) => {
                    drop(ah);
                    jobs.push(Job::Detach(mgid, kind));
                }
                multicast::Action::Transmit(skb) => match self.groups.handle(&mgid) {
                    Some(ah) => line.send(dev, skb, ah, MULTICAST_QPN),
                    None => line.drop(dev, skb, DropReason::NoGroup),
                },
                multicast::Action::Drop(skb, reason) => line.drop(dev, skb, reason),
            }
        }
        let mut next = self.groups.deadline().unwrap_or(u64::MAX);
        let mut rest = 0..self.paths.capacity();
        while let Some(at) = self.paths.first_in(rest.clone()) {
            rest.start = at + 1;
            let Some((key, peer)) = self.paths.slot_mut(at) else {
                break;
            };
            let path = &mut peer.path;
            let key = *key;
            let mut over = false;
            while jobs.has_room() {
                match path.poll(now) {
                    None => break,
                    Some(path::Action::Resolve(ticket)) => jobs.push(Job::Resolve(key, ticket)),
                    Some(path::Action::Transmit(skb)) => match path.handle() {
                        Some(ah) => line.send(dev, skb, ah, key.qpn().get()),
                        None => line.drop(dev, skb, DropReason::NoPath),
                    },
                    Some(path::Action::Drop(skb, reason)) => line.drop(dev, skb, reason),
                    Some(path::Action::Release(ah)) => drop(ah),
                    Some(path::Action::Remove) => {
                        over = true;
                        break;
                    }
                }
            }
            if over {
                self.paths.remove(&key);
                line.counters().slow.paths_expired.add(1);
            } else {
                next = next.min(path.deadline());
            }
        }
        line.flush(dev);
        next
    }
}

/// A frame waits. The work item is woken for the first one, and what was put on the ring before
/// goes out, since the stack may have said that more follows.
fn queued(dev: &Device<Interface>, line: &mut Line, first: bool) {
    line.counters().tx.queued.add(1);
    line.flush(dev);
    if first {
        dev.queue_task(PUMP, 0);
    }
}

/// A few jobs.
struct Jobs {
    list: [Option<Job>; JOBS],
    len: usize,
}

impl Jobs {
    fn new() -> Self {
        Self {
            list: [const { None }; JOBS],
            len: 0,
        }
    }

    fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn has_room(&self) -> bool {
        self.len < JOBS
    }

    fn push(&mut self, job: Job) {
        if let Some(slot) = self.list.get_mut(self.len) {
            *slot = Some(job);
            self.len += 1;
        }
    }
}

/// The work item: moves all destinations on.
///
/// # Context
///
/// Process context; sleeps.
pub(crate) fn pump(dev: &Device<Interface>) {
    // Who sets it wakes us again.
    while !dev.data().pausing.load(Relaxed) {
        let mut jobs = Jobs::new();
        let (endpoint, wait, refused) = {
            let mut guard = dev.lock_tx();
            let Some(tx) = guard.as_mut() else {
                return;
            };
            let now = now_ms();
            let next = tx.destinations.work(dev, &mut tx.line, now, &mut jobs);
            (
                tx.endpoint.clone(),
                next.saturating_sub(now),
                tx.destinations.groups.needs_sync(),
            )
        };
        if jobs.is_empty() {
            if refused && !tx::want_groups(dev) {
                // There is room now.
                continue;
            }
            if let Ok(wait) = u32::try_from(wait) {
                dev.queue_task(PUMP, wait.max(1));
            }
            return;
        }
        for job in jobs.list.into_iter().flatten() {
            if dev.lock_tx().is_none() {
                // The interface is going down, and waits for us.
                return;
            }
            match job {
                Job::Resolve(address, ticket) => resolve(dev, &endpoint, address, ticket),
                Job::Attach(mgid, kind, ticket) => attach(dev, &endpoint, &mgid, kind, ticket),
                Job::Detach(mgid, kind) => {
                    if mgid.is_broadcast() {
                        dev.set_carrier(false);
                    }
                    if kind == multicast::Membership::Full {
                        dev.data().groups.lock().leave(mgid);
                    }
                }
            }
        }
    }
}

fn resolve(dev: &Device<Interface>, endpoint: &Endpoint, address: HwAddr, ticket: Ticket) {
    let slow = &dev.data().get_ref().counters.slow;
    let made = endpoint.address_handle(&address);
    if let Err(error) = &made {
        slow.paths_failed.add(1);
        netdev_log!(
            dev,
            Warn,
            limited,
            "no path to {}: {error:?}\n",
            address.gid()
        );
    } else {
        slow.paths_resolved.add(1);
    }
    let mut guard = dev.lock_tx();
    if made.is_ok() && guard.as_ref().is_some_and(|tx| tx.connections.is_some()) {
        dev.queue_task(CONNECT, 0);
    }
    let path = guard
        .as_mut()
        .and_then(|tx| tx.destinations.paths.get_mut(&address));
    let Some(Peer { path, .. }) = path.map(|peer| &mut **peer) else {
        return;
    };
    match made {
        // An answer that came too late gives its handle back, which is then dropped.
        Ok(ah) => drop(path.resolved(ticket, ah)),
        Err(_) => path.resolve_failed(ticket, now_ms()),
    }
}

fn attach(
    dev: &Device<Interface>,
    endpoint: &Endpoint,
    mgid: &Mgid,
    kind: multicast::Membership,
    ticket: Ticket,
) {
    let this = dev.data().get_ref();
    let made = join(this, endpoint, mgid, kind);
    match &made {
        Ok(_) => this.counters.slow.groups_joined.add(1),
        Err(error) => {
            this.counters.slow.groups_failed.add(1);
            netdev_log!(
                dev,
                Warn,
                limited,
                "cannot join {}: {error:?}\n",
                mgid.gid()
            );
        }
    }
    let ready = {
        let mut guard = dev.lock_tx();
        let Some(tx) = guard.as_mut() else {
            return;
        };
        let groups = &mut tx.destinations.groups;
        match made {
            // There is one request at a time, so that none is ever refused here.
            Ok(ah) => drop(groups.attached(mgid, ticket, ah)),
            Err(_) => groups.attach_failed(mgid, ticket, now_ms()),
        }
        groups.is_ready()
    };
    // Not under the transmit lock: it tells the stack, which takes locks of its own. If the
    // interface goes down meanwhile, `stop` waits for us and takes the carrier off again.
    if mgid.is_broadcast() {
        dev.set_carrier(ready);
        if ready && this.moved.load(Relaxed) {
            // Once the stack has noticed, too.
            this.port.refresh(ANNOUNCE_MS);
        }
    }
}

/// Joins a group; sending to it needs no more than an address handle.
fn join(
    this: &Interface,
    endpoint: &Endpoint,
    mgid: &Mgid,
    kind: multicast::Membership,
) -> Result<Arc<Ah>> {
    let ah = endpoint.address_handle(&mgid.to_hwaddr())?;
    if kind == multicast::Membership::Full {
        let gid = mgid.gid().0;
        let foreign = this.umcast.load(Relaxed)
            && !mgid.is_broadcast()
            && mcast::is_joined_on_netdev(endpoint.port.device(), endpoint.port.number(), &gid);
        if !foreign {
            let membership = mcast::Membership::join(&endpoint.qp, gid, ROCE_MLID)?;
            this.groups.lock().joined(*mgid, membership)?;
        }
    }
    Ok(ah)
}

/// The kernel's name for one of our reasons.
pub(crate) fn kernel_reason(reason: DropReason) -> skb::DropReason {
    match reason {
        DropReason::TooBig => skb::DropReason::TooBig,
        DropReason::NoPath | DropReason::NoGroup => skb::DropReason::NeighbourFailed,
        DropReason::QueueFull | DropReason::TableFull => skb::DropReason::NeighbourQueueFull,
        DropReason::NoMemory => skb::DropReason::NoMemory,
        DropReason::TxEtherType => skb::DropReason::UnhandledProtocol,
        DropReason::Ring => skb::DropReason::RingFull,
        DropReason::BadAddress => skb::DropReason::DevHeader,
        DropReason::Runt => skb::DropReason::HeaderTruncated,
        DropReason::LinkDown => skb::DropReason::DevReady,
        DropReason::Flushed => skb::DropReason::QueuePurge,
        _ => skb::DropReason::Other,
    }
}
