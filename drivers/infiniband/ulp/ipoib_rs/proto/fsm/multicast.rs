// SPDX-License-Identifier: GPL-2.0

//! The multicast groups of an interface: which there are, and in which order they come and go.
//!
//! - The broadcast group comes first: it defines the link, and nothing else may be joined before it
//!   (RFC 4391, section 5). Without it, everything else is left.
//! - Then the groups that the stack listens to: [`GroupTable::sync`] takes its list.
//! - Then the groups that the host only sends to: they come with the first frame, and go when idle. The one that was
//!   sent to least recently makes room for any other group, at once.

use core::borrow::BorrowMut;

use crate::drop::DropReason;
use crate::fsm::queue::{Verdict, Waiting, MANY};
use crate::fsm::ticket::Ticket;
use crate::table::{InsertError, Seed, Slot, Table};
use crate::wire::mgid::Mgid;

pub use crate::fsm::group::{Action, Group, Membership};

/// Frames that wait for paths and groups together before no more groups are joined to send only.
const MOST: usize = 2 * MANY;

/// The groups of an interface. `S` is the storage: see [`Table`].
///
/// `A` is the driver's address handle, `W` what the frames to one group wait in, `V` what holds a group: memory of its
/// own, since most places are empty.
pub struct GroupTable<A, W, V, S> {
    groups: Table<V, S>,
    /// Makes what holds a group, if there is memory.
    hold: fn(Group<A, W>) -> Option<V>,
    broadcast: Mgid,
    /// The port is active.
    up: bool,
    /// Where the last walk over the slots ended.
    cursor: usize,
    /// Not all of the stack's groups have a place yet.
    unplaced: bool,
}

impl<A, W, V, S> GroupTable<A, W, V, S>
where
    W: Waiting + Default,
    V: BorrowMut<Group<A, W>>,
    S: BorrowMut<[Slot<V>]>,
{
    /// Makes a table with nothing but the broadcast group, whose port is down. `hold` makes what holds a group.
    ///
    /// `None` unless the number of slots is a power of two, and without memory.
    pub fn new(
        storage: S,
        seed: Seed,
        hold: fn(Group<A, W>) -> Option<V>,
        broadcast: Mgid,
    ) -> Option<Self> {
        let mut table = GroupTable {
            groups: Table::new(storage, seed)?,
            hold,
            broadcast,
            up: false,
            cursor: 0,
            unplaced: false,
        };
        table.want(broadcast).then_some(table)
    }

    /// How many groups there are.
    pub const fn count(&self) -> usize {
        self.groups.len()
    }

    /// Walks over the groups, to show them.
    pub fn iter(&self) -> impl Iterator<Item = &Group<A, W>> + '_ {
        self.groups.iter().map(|(_, group)| group.borrow())
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut Group<A, W>> + '_ {
        self.groups.iter_mut().map(|(_, group)| group.borrow_mut())
    }

    /// Returns the broadcast group's MGID.
    #[inline]
    pub const fn broadcast(&self) -> &Mgid {
        &self.broadcast
    }

    /// Returns a group, to show it.
    pub fn get(&self, mgid: &Mgid) -> Option<&Group<A, W>> {
        Some(self.groups.get(&mgid.to_hwaddr())?.borrow())
    }

    #[inline]
    fn get_mut(&mut self, mgid: &Mgid) -> Option<&mut Group<A, W>> {
        Some(self.groups.get_mut(&mgid.to_hwaddr())?.borrow_mut())
    }

    /// Event: the port became active. Wanted groups are joined (again).
    pub fn port_up(&mut self) {
        self.up = true;
    }

    /// Event: the port is no longer active. Everything is left, and stays wanted.
    pub fn port_down(&mut self) {
        self.up = false;
        self.invalidate();
    }

    /// Event: our GID, our P_Key index or the subnet manager changed: everything is joined anew.
    pub fn invalidate(&mut self) {
        for group in self.iter_mut() {
            group.invalidate();
        }
    }

    /// Event: who did not answer, or refused, may do otherwise now: what failed is tried again.
    pub fn retry(&mut self) {
        for group in self.iter_mut() {
            group.retry();
        }
    }

    /// Event: the subnet administrator does not know our membership in one group any more.
    pub fn invalidate_one(&mut self, mgid: &Mgid) {
        if let Some(group) = self.get_mut(mgid) {
            group.invalidate();
        }
    }

    /// Event: the stack listens to exactly these groups, and to broadcast.
    ///
    /// Groups that do not belong to the link (see [`Mgid::matches_broadcast`]) are passed over.
    /// Returns for how many groups there is no place. Where [`GroupTable::needs_sync`] says so, another
    /// call is worth it: for them, or for those whose places have yet to be left.
    pub fn sync(&mut self, wanted: impl Iterator<Item = Mgid>) -> usize {
        let broadcast = self.broadcast;
        for group in self.iter_mut() {
            group.listed = *group.mgid() == broadcast;
        }
        let mut unplaced: usize = 0;
        self.unplaced = false;
        for mgid in wanted {
            if mgid.matches_broadcast(&broadcast) && !self.want(mgid) {
                unplaced = unplaced.saturating_add(1);
            }
        }
        for group in self.iter_mut() {
            if group.is_wanted() && !group.listed {
                group.want(false);
            }
        }
        unplaced
    }

    /// Returns true if groups of the last [`GroupTable::sync`] have yet to get a place; to be asked when polling has come to its end,
    /// since that is what makes room.
    pub const fn needs_sync(&self) -> bool {
        self.unplaced
    }

    fn want(&mut self, mgid: Mgid) -> bool {
        let placed = self.place(&mgid, u64::MAX).is_ok();
        self.unplaced |= !placed;
        if let Some(group) = self.get_mut(&mgid) {
            group.want(true);
            group.listed = true;
        }
        placed
    }

    /// Finds a place for a group that has none: if need be, that of the one in the way that only sending keeps and that was
    /// sent to least recently.
    fn place(&mut self, mgid: &Mgid, now: u64) -> Result<(), DropReason> {
        let addr = mgid.to_hwaddr();
        if self.groups.get(&addr).is_some() {
            return Ok(());
        }
        let group = (self.hold)(Group::new(*mgid)).ok_or(DropReason::NoMemory)?;
        let Err((InsertError::Full, mut group)) = self.groups.insert(addr, group) else {
            return Ok(());
        };
        let victim = self
            .groups
            .victim(&addr, |group| group.borrow().idle_for(now));
        let old = victim.and_then(|victim| self.groups.remove(&victim));
        group
            .borrow_mut()
            .replace(old.ok_or(DropReason::TableFull)?.borrow_mut());
        let placed = self.groups.insert(addr, group);
        placed.map(|_| ()).map_err(|_| DropReason::TableFull)
    }

    /// Returns true if the broadcast group is joined, so that the link can carry traffic.
    pub fn is_ready(&self) -> bool {
        let broadcast = self.get(&self.broadcast);
        self.up && broadcast.is_some_and(|group| group.handle().is_some())
    }

    /// Returns the address handle if a frame can be transmitted to the group right now: the hot
    /// path.
    #[inline]
    pub fn transmit(&mut self, mgid: &Mgid, now: u64) -> Option<&A> {
        self.get_mut(mgid)?.transmit(now)
    }

    /// Returns the address handle for a frame from [`Action::Transmit`].
    pub fn handle(&self, mgid: &Mgid) -> Option<&A> {
        self.get(mgid)?.handle()
    }

    /// Event: a frame of `bytes` bytes is to be sent to a group, while `all` frames wait for paths and groups.
    pub fn send(
        &mut self,
        mgid: &Mgid,
        frame: W::Frame,
        bytes: u32,
        all: usize,
        now: u64,
    ) -> Verdict<W::Frame> {
        if !self.is_ready() {
            return Verdict::Drop(frame, DropReason::LinkDown);
        }
        if !mgid.matches_broadcast(&self.broadcast) {
            return Verdict::Drop(frame, DropReason::BadAddress);
        }
        // A flood to groups of which none is joined yet leaves places for the stack.
        if all >= MOST && self.get(mgid).is_none() {
            return Verdict::Drop(frame, DropReason::QueueFull);
        }
        if let Err(reason) = self.place(mgid, now) {
            return Verdict::Drop(frame, reason);
        }
        match self.get_mut(mgid) {
            Some(group) => group.send(frame, bytes, all, now),
            None => Verdict::Drop(frame, DropReason::TableFull),
        }
    }

    /// Event: a join succeeded.
    ///
    /// # Errors
    ///
    /// As [`Group::attached`].
    pub fn attached(&mut self, mgid: &Mgid, ticket: Ticket, handle: A) -> Result<(), A> {
        match self.get_mut(mgid) {
            Some(group) => group.attached(ticket, handle),
            None => Err(handle),
        }
    }

    /// Event: a join failed.
    pub fn attach_failed(&mut self, mgid: &Mgid, ticket: Ticket, now: u64) {
        if let Some(group) = self.get_mut(mgid) {
            group.attach_failed(ticket, now);
        }
    }

    /// Says what there is to do at `now`, until it returns `None`; to be called after every
    /// event other than [`GroupTable::transmit`] and when [`GroupTable::deadline`] has come.
    ///
    /// The actions of one group have to be carried out in the order in which they come.
    pub fn poll(&mut self, now: u64) -> Option<(Mgid, Action<A, W::Frame>)> {
        self.poll_each(
            |group, open| {
                let before = group.poll_before();
                before.or_else(|| Some((*group.mgid(), group.poll(open, now)?)))
            },
            now,
        )
    }

    /// As [`GroupTable::poll`], but without [`Action::Attach`] and [`Action::Detach`]: no more can be asked now.
    pub fn poll_frames(&mut self, now: u64) -> Option<(Mgid, Action<A, W::Frame>)> {
        self.poll_each(
            |group, open| Some((*group.mgid(), group.poll_frames(open, now)?)),
            now,
        )
    }

    fn poll_each(
        &mut self,
        poll: impl Fn(&mut Group<A, W>, bool) -> Option<(Mgid, Action<A, W::Frame>)>,
        now: u64,
    ) -> Option<(Mgid, Action<A, W::Frame>)> {
        let (broadcast, up) = (self.broadcast, self.up);
        if let Some(action) = self.get_mut(&broadcast).and_then(|group| poll(group, up)) {
            return Some(action);
        }
        let ready = self.is_ready();
        let cursor = self.cursor;
        for mut rest in [cursor..self.groups.capacity(), 0..cursor] {
            while let Some(at) = self.groups.first_in(rest.clone()) {
                rest.start = at.saturating_add(1);
                self.cursor = at;
                let Some((_, group)) = self.groups.slot_mut(at) else {
                    break;
                };
                let group = group.borrow_mut();
                let mgid = *group.mgid();
                let open = if mgid == broadcast { up } else { ready };
                if let Some(action) = poll(group, open) {
                    return Some(action);
                }
                if group.is_over(now) {
                    self.groups.remove(&mgid.to_hwaddr());
                }
            }
        }
        None
    }

    /// Returns when time alone gives [`GroupTable::poll`] something to do, once that has returned
    /// `None` and if no event comes before; `None` if only an event can.
    pub fn deadline(&self) -> Option<u64> {
        if !self.up {
            return None;
        }
        if !self.is_ready() {
            return self.get(&self.broadcast)?.deadline();
        }
        self.iter().filter_map(Group::deadline).min()
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_multicast))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;
    use crate::fsm::queue::Queue;
    use crate::wire::mgid::{self, Scope};
    use crate::wire::pkey::PKey;

    const SEED: Seed = Seed([1, 3, 5, 7, 11, 13]);
    const SLOTS: usize = 8;

    type TestGroup = Group<u8, Queue<u8, 2>>;
    type TestTable = GroupTable<u8, Queue<u8, 2>, TestGroup, [Slot<TestGroup>; SLOTS]>;

    fn broadcast() -> Mgid {
        mgid::broadcast(PKey::DEFAULT, Scope::LINK_LOCAL)
    }

    fn ipv4(last: u8) -> Mgid {
        let mut gid = broadcast().gid();
        gid.0[12..].copy_from_slice(&[0, 0, 0, last]);
        Mgid::parse(gid).unwrap_or(broadcast())
    }

    /// A table whose port is up.
    fn opened() -> Result<TestTable, ()> {
        let storage = [const { Slot::EMPTY }; SLOTS];
        let table = TestTable::new(storage, SEED, Some, broadcast());
        let mut table = table.ok_or(())?;
        table.port_up();
        Ok(table)
    }

    /// Answers all joins with success, drops everything else; returns what was joined.
    fn run(table: &mut TestTable, now: u64) -> [Option<(Mgid, Membership)>; SLOTS] {
        let mut joined = [None; SLOTS];
        let mut places = joined.iter_mut();
        while let Some((mgid, action)) = table.poll(now) {
            if let Action::Attach(membership, ticket) = action {
                if table.attached(&mgid, ticket, 7).is_ok() {
                    if let Some(place) = places.next() {
                        *place = Some((mgid, membership));
                    }
                }
            }
        }
        joined
    }

    /// Frames that wait for a group that was joined leave though nothing more may be asked.
    #[test]
    fn frames_leave_without_a_join() -> Result<(), ()> {
        let mut table = opened()?;
        run(&mut table, 0);
        assert_eq!(table.send(&ipv4(1), 1, 100, 0, 0), Verdict::Queued);
        let Some((mgid, Action::Attach(_, ticket))) = table.poll(0) else {
            return Err(());
        };
        assert_eq!(table.send(&ipv4(2), 2, 100, 0, 0), Verdict::Queued);
        assert_eq!(table.attached(&mgid, ticket, 7), Ok(()));
        let sent = Some((ipv4(1), Action::Transmit(1)));
        assert_eq!((table.poll_frames(0), table.poll_frames(0)), (sent, None));
        assert!(matches!(table.poll(0), Some((_, Action::Attach(..)))));
        Ok(())
    }

    /// RFC 4391, section 5: first the broadcast group, then the others.
    #[test]
    fn rfc4391_5_broadcast_first() -> Result<(), ()> {
        let mut table = opened()?;
        assert_eq!(table.sync([ipv4(1), ipv4(2)].into_iter()), 0);
        let Some((mgid, Action::Attach(Membership::Full, ticket))) = table.poll(0) else {
            return Err(());
        };
        assert_eq!(mgid, broadcast());
        // Nothing more before it is there.
        assert_eq!(table.poll(0), None);
        assert!(!table.is_ready());
        assert_eq!(table.attached(&mgid, ticket, 7), Ok(()));
        assert!(table.is_ready());
        let joined = run(&mut table, 0);
        assert_eq!(joined.iter().flatten().count(), 2);
        assert_eq!(table.count(), 3);
        Ok(())
    }

    /// RFC 4391, section 5: without the broadcast group there is no link.
    #[test]
    fn rfc4391_5_no_link_without_broadcast() -> Result<(), ()> {
        let mut table = opened()?;
        let refused = Verdict::Drop(9, DropReason::LinkDown);
        assert_eq!(table.send(&ipv4(1), 9, 100, 0, 0), refused);
        let Some((mgid, Action::Attach(_, ticket))) = table.poll(0) else {
            return Err(());
        };
        table.attach_failed(&mgid, ticket, 0);
        assert_eq!(table.poll(0), None);
        assert_eq!(table.deadline(), Some(1_000));
        assert_eq!(run(&mut table, 1_000).iter().flatten().count(), 1);
        assert!(table.is_ready());
        assert_eq!(table.deadline(), None);
        Ok(())
    }

    #[test]
    fn sync_joins_and_leaves() -> Result<(), ()> {
        let mut table = opened()?;
        run(&mut table, 0);
        assert_eq!(table.sync([ipv4(1), ipv4(2)].into_iter()), 0);
        run(&mut table, 0);
        assert_eq!(table.sync([ipv4(2), ipv4(3)].into_iter()), 0);
        run(&mut table, 0);
        assert_eq!(table.count(), 3);
        assert!(table.transmit(&ipv4(1), 0).is_none());
        assert!(table.transmit(&ipv4(2), 0).is_some());
        assert!(table.transmit(&ipv4(3), 0).is_some());
        assert!(table.transmit(&broadcast(), 0).is_some());
        Ok(())
    }

    /// RFC 4391, section 10: groups of another partition or scope are none of the link's.
    #[test]
    fn rfc4391_10_foreign_groups() -> Result<(), ()> {
        let mut table = opened()?;
        run(&mut table, 0);
        let other = PKey::new(0x8001).ok_or(())?;
        let foreign = mgid::broadcast(other, Scope::LINK_LOCAL);
        assert_eq!(table.sync([foreign].into_iter()), 0);
        assert_eq!(table.count(), 1);
        let refused = Verdict::Drop(9, DropReason::BadAddress);
        assert_eq!(table.send(&foreign, 9, 100, 0, 0), refused);
        Ok(())
    }

    #[test]
    fn a_sender_joins_with_its_first_frame() -> Result<(), ()> {
        let mut table = opened()?;
        run(&mut table, 0);
        assert_eq!(table.send(&ipv4(1), 9, 100, 0, 0), Verdict::Queued);
        let Some((mgid, Action::Attach(Membership::SendOnly, ticket))) = table.poll(0) else {
            return Err(());
        };
        assert_eq!(table.attached(&mgid, ticket, 7), Ok(()));
        assert_eq!(table.poll(0), Some((mgid, Action::Transmit(9))));
        assert_eq!(table.handle(&mgid), Some(&7));
        assert_eq!(table.deadline(), Some(60_000));
        run(&mut table, 60_000);
        assert_eq!(table.count(), 1);
        Ok(())
    }

    /// Sends to a group, which is joined; returns what else there was to do.
    fn send(table: &mut TestTable, last: u8, now: u64) -> Result<Option<Action<u8, u8>>, ()> {
        assert_eq!(table.send(&ipv4(last), last, 100, 0, now), Verdict::Queued);
        let mut before = None;
        while let Some((mgid, action)) = table.poll(now) {
            match action {
                Action::Attach(Membership::SendOnly, ticket) if mgid == ipv4(last) => {
                    table.attached(&mgid, ticket, last).map_err(|_| ())?;
                }
                Action::Transmit(frame) => assert_eq!((mgid, frame), (ipv4(last), last)),
                // It comes before the join.
                left if table.handle(&ipv4(last)).is_none() => before = Some(left),
                _ => return Err(()),
            }
        }
        Ok(before)
    }

    /// As many groups as there are places: the one that was sent to least recently makes room for any other at once, whose
    /// frame waits until it is left.
    #[test]
    fn the_least_used_sender_makes_room() -> Result<(), ()> {
        let mut table = opened()?;
        run(&mut table, 0);
        for n in 1..=7 {
            assert_eq!(send(&mut table, n, u64::from(n))?, None);
        }
        assert_eq!(table.count(), SLOTS);
        assert!(table.transmit(&ipv4(1), 8).is_some());
        for (n, oldest) in [(8, 2), (9, 3), (10, 4)] {
            let left = Action::Detach(Membership::SendOnly, oldest);
            assert_eq!(send(&mut table, n, u64::from(n) + 1)?, Some(left));
        }
        assert!(table.transmit(&ipv4(1), 20).is_some());
        Ok(())
    }

    /// Of many new groups at a time, each frame waits for its own, and none is dropped as long as there are places of those
    /// that are idle.
    #[test]
    fn a_crowd_is_sent_to_in_turn() -> Result<(), ()> {
        let mut table = opened()?;
        run(&mut table, 0);
        for first in [1, 8, 15] {
            for n in first..first + 7 {
                assert_eq!(table.send(&ipv4(n), n, 100, 0, 0), Verdict::Queued);
            }
            // Those that are being joined stay.
            let refused = Verdict::Drop(99, DropReason::TableFull);
            assert_eq!(table.send(&ipv4(99), 99, 100, 0, 0), refused);
            let mut sent = 0;
            while let Some((mgid, action)) = table.poll(0) {
                match action {
                    Action::Attach(_, ticket) => {
                        assert_eq!(table.attached(&mgid, ticket, 7), Ok(()))
                    }
                    Action::Transmit(_) => sent += 1,
                    other => assert_eq!(other, Action::Detach(Membership::SendOnly, 7)),
                }
            }
            assert_eq!(sent, 7);
        }
        Ok(())
    }

    /// While very many frames wait, no other group gets a place for the sake of one; those that have a place take frames.
    #[test]
    fn a_flood_leaves_places() -> Result<(), ()> {
        let mut table = opened()?;
        run(&mut table, 0);
        assert_eq!(send(&mut table, 1, 0)?, None);
        let refused = Verdict::Drop(2, DropReason::QueueFull);
        assert_eq!(table.send(&ipv4(2), 2, 100, MOST, 0), refused);
        assert_eq!(table.send(&ipv4(1), 1, 100, MOST, 0), Verdict::Transmit(1));
        assert_eq!(table.send(&ipv4(2), 2, 100, MOST - 1, 0), Verdict::Queued);
        Ok(())
    }

    /// One whose group could not be made for want of memory waits for another call.
    #[test]
    fn no_memory_for_a_group() -> Result<(), ()> {
        let mut table = opened()?;
        run(&mut table, 0);
        table.hold = |_| None;
        let refused = Verdict::Drop(1, DropReason::NoMemory);
        assert_eq!(table.send(&ipv4(1), 1, 100, 0, 0), refused);
        assert_eq!(table.sync([ipv4(1)].into_iter()), 1);
        assert!(table.needs_sync());
        table.hold = Some;
        assert_eq!(table.sync([ipv4(1)].into_iter()), 0);
        assert!(!table.needs_sync());
        Ok(())
    }

    /// Senders make room for the stack, those that have nothing to leave with the failure that was to be remembered; one that
    /// is being joined stays until that is answered.
    #[test]
    fn senders_cannot_crowd_out_the_stack() -> Result<(), ()> {
        let mut table = opened()?;
        run(&mut table, 0);
        assert_eq!(send(&mut table, 1, 0)?, None);
        assert_eq!(table.send(&ipv4(2), 2, 100, 0, 0), Verdict::Queued);
        let Some((_, Action::Attach(_, ticket))) = table.poll(0) else {
            return Err(());
        };
        assert_eq!(table.sync((10..17).map(ipv4)), 1);
        assert!(table.needs_sync());
        table.attach_failed(&ipv4(2), ticket, 0);
        while let Some((_, Action::Drop(..))) = table.poll_frames(0) {}
        assert_eq!(table.sync((10..17).map(ipv4)), 0);
        assert!(!table.needs_sync());
        let left = (ipv4(1), Action::Detach(Membership::SendOnly, 1));
        let mut actions = core::iter::from_fn(|| table.poll(0));
        assert!(actions.any(|action| action == left));
        assert_eq!(table.sync((10..18).map(ipv4)), 1);
        Ok(())
    }

    /// A group that has made room may come back before it is left, in another place.
    #[test]
    fn one_that_has_made_room_comes_back() -> Result<(), ()> {
        let mut table = opened()?;
        run(&mut table, 0);
        for n in 1..=7 {
            assert_eq!(send(&mut table, n, u64::from(n))?, None);
        }
        assert_eq!(table.send(&ipv4(8), 8, 100, 0, 8), Verdict::Queued);
        assert_eq!(table.send(&ipv4(1), 1, 100, 0, 8), Verdict::Queued);
        let (mut left, mut sent) = ([0; 2], 0);
        while let Some((mgid, action)) = table.poll(8) {
            match action {
                Action::Attach(_, ticket) => assert_eq!(table.attached(&mgid, ticket, 9), Ok(())),
                Action::Detach(Membership::SendOnly, n @ 1..=2) => left[usize::from(n) - 1] += 1,
                Action::Transmit(_) => sent += 1,
                _ => return Err(()),
            }
        }
        assert_eq!((left, sent, table.handle(&ipv4(1))), ([1, 1], 2, Some(&9)));
        Ok(())
    }

    #[test]
    fn port_down_leaves_and_port_up_joins() -> Result<(), ()> {
        let mut table = opened()?;
        assert_eq!(table.sync([ipv4(1)].into_iter()), 0);
        run(&mut table, 0);
        table.port_down();
        assert!(!table.is_ready());
        let mut left = 0;
        while let Some((_, action)) = table.poll(0) {
            assert!(matches!(action, Action::Detach(Membership::Full, 7)));
            left += 1;
        }
        assert_eq!(left, 2);
        assert_eq!(table.deadline(), None);
        table.port_up();
        assert_eq!(run(&mut table, 0).iter().flatten().count(), 2);
        Ok(())
    }

    /// Another subnet manager: everything is left and joined anew.
    #[test]
    fn invalidation_joins_anew() -> Result<(), ()> {
        let mut table = opened()?;
        assert_eq!(table.sync([ipv4(1)].into_iter()), 0);
        run(&mut table, 0);
        table.invalidate();
        assert!(!table.is_ready());
        let Some((mgid, Action::Detach(Membership::Full, 7))) = table.poll(0) else {
            return Err(());
        };
        assert_eq!(mgid, broadcast());
        assert_eq!(run(&mut table, 0).iter().flatten().count(), 2);
        assert!(table.is_ready());
        Ok(())
    }

    /// RFC 4391, section 10: groups have the properties of the broadcast group. One that was joined, or requested, before the
    /// broadcast group was rejoined may have others. It is left as soon as there is room for that.
    #[test]
    fn rfc4391_10_no_group_outlasts_the_link() -> Result<(), ()> {
        for answered_before in [true, false] {
            let mut table = opened()?;
            run(&mut table, 0);
            assert_eq!(table.sync([ipv4(1)].into_iter()), 0);
            let Some((mgid, Action::Attach(Membership::Full, old))) = table.poll(0) else {
                return Err(());
            };
            assert_eq!(mgid, ipv4(1));
            if answered_before {
                assert_eq!(table.attached(&ipv4(1), old, 7), Ok(()));
            }
            table.invalidate_one(&broadcast());
            assert_eq!(
                table.poll(0),
                Some((broadcast(), Action::Detach(Membership::Full, 7)))
            );
            let Some((mgid, Action::Attach(Membership::Full, new))) = table.poll(0) else {
                return Err(());
            };
            assert_eq!((mgid, table.poll_frames(0)), (broadcast(), None));
            assert_eq!(table.attached(&broadcast(), new, 7), Ok(()));
            if !answered_before {
                assert_eq!(table.attached(&ipv4(1), old, 7), Ok(()));
            }
            assert_eq!(
                table.poll(0),
                Some((ipv4(1), Action::Detach(Membership::Full, 7)))
            );
            assert_eq!(run(&mut table, 0).iter().flatten().count(), 1);
        }
        Ok(())
    }

    /// Another subnet manager may allow what the one before refused.
    #[test]
    fn what_failed_is_tried_again() -> Result<(), ()> {
        let mut table = opened()?;
        run(&mut table, 0);
        assert_eq!(table.sync([ipv4(1)].into_iter()), 0);
        let Some((_, Action::Attach(Membership::Full, ticket))) = table.poll(0) else {
            return Err(());
        };
        table.attach_failed(&ipv4(1), ticket, 0);
        assert_eq!(table.poll(0), None);
        table.retry();
        assert_eq!(run(&mut table, 0).iter().flatten().count(), 1);
        Ok(())
    }
}
