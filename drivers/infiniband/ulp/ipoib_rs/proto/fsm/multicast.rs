// SPDX-License-Identifier: GPL-2.0

//! The multicast groups of an interface: which there are, and in which order they come and go.
//!
//! - The broadcast group comes first: it defines the link, and nothing else may be joined before it
//!   (RFC 4391, section 5). Without it, everything else is left.
//! - Then the groups that the stack listens to: [`GroupTable::sync`] takes its list.
//! - Then the groups that somebody sends to: they come with the first frame, go when idle, and
//!   their number is bounded on its own, so that a sender cannot keep the stack from listening.

use core::borrow::BorrowMut;

use crate::drop::DropReason;
use crate::fsm::queue::{Verdict, Waiting};
use crate::fsm::ticket::Ticket;
use crate::table::{InsertError, Seed, Slot, Table};
use crate::wire::hwaddr::HwAddr;
use crate::wire::mgid::Mgid;

pub use crate::fsm::group::{Action, Group, Membership};

/// The groups of an interface. `S` is the storage: see [`Table`].
///
/// `A` is the driver's address handle, `W` what the frames to one group wait in.
pub struct GroupTable<A, W, S> {
    groups: Table<Group<A, W>, S>,
    max_send_only: usize,
    broadcast: Mgid,
    /// The port is active.
    up: bool,
    /// Where the last walk over the slots ended.
    cursor: usize,
    /// Not all of the stack's groups have a place yet.
    unplaced: bool,
}

impl<A, W, S> GroupTable<A, W, S>
where
    W: Waiting + Default,
    S: BorrowMut<[Slot<Group<A, W>>]>,
{
    /// Makes a table with nothing but the broadcast group, whose port is down.
    ///
    /// `max_send_only` bounds the groups that only sending keeps. `None` unless the number of
    /// slots is a power of two.
    pub fn new(storage: S, seed: Seed, max_send_only: usize, broadcast: Mgid) -> Option<Self> {
        let mut table = GroupTable {
            groups: Table::new(storage, seed)?,
            max_send_only,
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
        self.groups.iter().map(|(_, group)| group)
    }

    /// Returns the broadcast group's MGID.
    #[inline]
    pub const fn broadcast(&self) -> &Mgid {
        &self.broadcast
    }

    /// Returns a group, to show it.
    pub fn get(&self, mgid: &Mgid) -> Option<&Group<A, W>> {
        self.groups.get(&mgid.to_hwaddr())
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
        for (_, group) in self.groups.iter_mut() {
            group.invalidate();
        }
    }

    /// Event: who did not answer, or refused, may do otherwise now: what failed is tried again.
    pub fn retry(&mut self) {
        for (_, group) in self.groups.iter_mut() {
            group.retry();
        }
    }

    /// Event: the subnet administrator does not know our membership in one group any more.
    pub fn invalidate_one(&mut self, mgid: &Mgid) {
        if let Some(group) = self.groups.get_mut(&mgid.to_hwaddr()) {
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
        for (_, group) in self.groups.iter_mut() {
            group.listed = *group.mgid() == broadcast;
        }
        let mut unplaced: usize = 0;
        self.unplaced = false;
        for mgid in wanted {
            if mgid.matches_broadcast(&broadcast) && !self.want(mgid) {
                unplaced = unplaced.saturating_add(1);
            }
        }
        for (_, group) in self.groups.iter_mut() {
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
        let addr = mgid.to_hwaddr();
        if let Some(group) = self.groups.get_mut(&addr) {
            group.want(true);
            group.listed = true;
            return true;
        }
        let mut group = Group::new(mgid);
        group.want(true);
        group.listed = true;
        match self.groups.insert(addr, group) {
            Ok(_) | Err((InsertError::Exists, _)) => true,
            Err((InsertError::Full, group)) => self.displace(&addr, group),
        }
    }

    /// Has one that only sending keeps make room for a wanted group, at once unless it has to be left first. False: there
    /// is none.
    fn displace(&mut self, addr: &HwAddr, wanted: Group<A, W>) -> bool {
        let victim = self.groups.victim(addr, |group| group.idle_for(u64::MAX));
        let displaced = victim.and_then(|victim| {
            let group = self.groups.get_mut(&victim)?;
            group.displace();
            group.is_over(0).then_some(victim)
        });
        if let Some(displaced) = displaced {
            self.groups.remove(&displaced);
            return self.groups.insert(*addr, wanted).is_ok();
        }
        self.unplaced = true;
        victim.is_some()
    }

    /// Returns true if the broadcast group is joined, so that the link can carry traffic.
    pub fn is_ready(&self) -> bool {
        let broadcast = self.groups.get(&self.broadcast.to_hwaddr());
        self.up && broadcast.is_some_and(|group| group.handle().is_some())
    }

    /// Returns the address handle if a frame can be transmitted to the group right now: the hot
    /// path.
    #[inline]
    pub fn transmit(&mut self, mgid: &Mgid, now: u64) -> Option<&A> {
        self.groups.get_mut(&mgid.to_hwaddr())?.transmit(now)
    }

    /// Returns the address handle for a frame from [`Action::Transmit`].
    pub fn handle(&self, mgid: &Mgid) -> Option<&A> {
        self.groups.get(&mgid.to_hwaddr())?.handle()
    }

    /// How many groups only sending keeps.
    fn send_only(&self) -> usize {
        self.iter().fold(0, |count: usize, group| {
            count.saturating_add(usize::from(!group.is_wanted()))
        })
    }

    /// Event: a frame of `bytes` bytes is to be sent to a group.
    pub fn send(
        &mut self,
        mgid: &Mgid,
        frame: W::Frame,
        bytes: u32,
        now: u64,
    ) -> Verdict<W::Frame> {
        if !self.is_ready() {
            return Verdict::Drop(frame, DropReason::LinkDown);
        }
        if !mgid.matches_broadcast(&self.broadcast) {
            return Verdict::Drop(frame, DropReason::BadAddress);
        }
        let addr = mgid.to_hwaddr();
        if let Some(group) = self.groups.get_mut(&addr) {
            return group.send(frame, bytes, now);
        }
        let victim = if self.send_only() < self.max_send_only {
            match self.groups.insert(addr, Group::new(*mgid)) {
                Ok(group) => return group.send(frame, bytes, now),
                Err(_) => self.groups.victim(&addr, |group| group.idle_for(now)),
            }
        } else {
            self.idlest(now)
        };
        if let Some(group) = victim.and_then(|addr| self.groups.get_mut(&addr)) {
            group.stop_sending();
        }
        Verdict::Drop(frame, DropReason::TableFull)
    }

    /// The group that has been idle for longest.
    // A loop: the name of a chain of iterators is too long for objtool.
    fn idlest(&self, now: u64) -> Option<HwAddr> {
        let mut longest = None;
        for (addr, group) in self.groups.iter() {
            let Some(idle) = group.idle_for(now) else {
                continue;
            };
            if longest.is_none_or(|(most, _)| idle >= most) {
                longest = Some((idle, *addr));
            }
        }
        longest.map(|(_, addr)| addr)
    }

    /// Event: a join succeeded.
    ///
    /// # Errors
    ///
    /// As [`Group::attached`].
    pub fn attached(&mut self, mgid: &Mgid, ticket: Ticket, handle: A) -> Result<(), A> {
        match self.groups.get_mut(&mgid.to_hwaddr()) {
            Some(group) => group.attached(ticket, handle),
            None => Err(handle),
        }
    }

    /// Event: a join failed.
    pub fn attach_failed(&mut self, mgid: &Mgid, ticket: Ticket, now: u64) {
        if let Some(group) = self.groups.get_mut(&mgid.to_hwaddr()) {
            group.attach_failed(ticket, now);
        }
    }

    /// Says what there is to do at `now`, until it returns `None`; to be called after every
    /// event other than [`GroupTable::transmit`] and when [`GroupTable::deadline`] has come.
    ///
    /// The actions of one group have to be carried out in the order in which they come.
    pub fn poll(&mut self, now: u64) -> Option<(Mgid, Action<A, W::Frame>)> {
        self.poll_each(|group, open| group.poll(open, now), now)
    }

    /// As [`GroupTable::poll`], but without [`Action::Attach`] and [`Action::Detach`]: no more can be asked now.
    pub fn poll_frames(&mut self, now: u64) -> Option<(Mgid, Action<A, W::Frame>)> {
        self.poll_each(|group, open| group.poll_frames(open, now), now)
    }

    fn poll_each(
        &mut self,
        poll: impl Fn(&mut Group<A, W>, bool) -> Option<Action<A, W::Frame>>,
        now: u64,
    ) -> Option<(Mgid, Action<A, W::Frame>)> {
        let (broadcast, up) = (self.broadcast, self.up);
        if let Some(group) = self.groups.get_mut(&broadcast.to_hwaddr()) {
            if let Some(action) = poll(group, up) {
                return Some((broadcast, action));
            }
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
                let mgid = *group.mgid();
                let open = if mgid == broadcast { up } else { ready };
                if let Some(action) = poll(group, open) {
                    return Some((mgid, action));
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
            let broadcast = self.broadcast.to_hwaddr();
            return self.groups.get(&broadcast)?.deadline();
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
    type TestTable = GroupTable<u8, Queue<u8, 2>, [Slot<TestGroup>; SLOTS]>;

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
        let table = TestTable::new(storage, SEED, 2, broadcast());
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
        assert_eq!(table.send(&ipv4(1), 1, 100, 0), Verdict::Queued);
        let Some((mgid, Action::Attach(_, ticket))) = table.poll(0) else {
            return Err(());
        };
        assert_eq!(table.send(&ipv4(2), 2, 100, 0), Verdict::Queued);
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
        assert_eq!(table.send(&ipv4(1), 9, 100, 0), refused);
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
        assert_eq!(table.send(&foreign, 9, 100, 0), refused);
        Ok(())
    }

    #[test]
    fn a_sender_joins_with_its_first_frame() -> Result<(), ()> {
        let mut table = opened()?;
        run(&mut table, 0);
        assert_eq!(table.send(&ipv4(1), 9, 100, 0), Verdict::Queued);
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

    #[test]
    fn senders_cannot_crowd_out_the_stack() -> Result<(), ()> {
        let mut table = opened()?;
        run(&mut table, 0);
        assert_eq!(table.send(&ipv4(1), 1, 100, 0), Verdict::Queued);
        assert_eq!(table.send(&ipv4(2), 2, 100, 0), Verdict::Queued);
        run(&mut table, 5);
        let refused = Verdict::Drop(3, DropReason::TableFull);
        assert_eq!(table.send(&ipv4(3), 3, 100, 10), refused);
        // The longest idle one made room.
        run(&mut table, 10);
        assert_eq!(table.send(&ipv4(3), 3, 100, 10), Verdict::Queued);
        assert_eq!(table.sync((10..15).map(ipv4)), 0);
        assert_eq!(table.count(), SLOTS);
        Ok(())
    }

    #[test]
    fn the_stack_evicts_a_sender() -> Result<(), ()> {
        let mut table = opened()?;
        run(&mut table, 0);
        assert_eq!(table.send(&ipv4(1), 1, 100, 0), Verdict::Queued);
        run(&mut table, 0);
        assert_eq!(table.sync((10..17).map(ipv4)), 0);
        assert!(table.needs_sync());
        // It goes at once, whatever is sent to it.
        assert_eq!(table.transmit(&ipv4(1), 0), None);
        let refused = Verdict::Drop(2, DropReason::TableFull);
        assert_eq!(table.send(&ipv4(1), 2, 100, 0), refused);
        assert_eq!((table.poll_frames(0), table.deadline()), (None, Some(0)));
        run(&mut table, 0);
        assert_eq!(table.sync((10..17).map(ipv4)), 0);
        assert!(!table.needs_sync());
        assert_eq!(table.sync((10..18).map(ipv4)), 1);
        Ok(())
    }

    /// A group that has nothing to leave is displaced at once, with the failure that was to be remembered.
    #[test]
    fn the_stack_takes_the_place_of_a_failed_sender() -> Result<(), ()> {
        let mut table = opened()?;
        run(&mut table, 0);
        assert_eq!(table.send(&ipv4(1), 1, 100, 0), Verdict::Queued);
        let Some((_, Action::Attach(_, ticket))) = table.poll(0) else {
            return Err(());
        };
        // One that is being joined stays until that is answered.
        assert_eq!(table.sync((10..17).map(ipv4)), 1);
        table.attach_failed(&ipv4(1), ticket, 0);
        while let Some((_, Action::Drop(..))) = table.poll_frames(0) {}
        assert_eq!(table.sync((10..17).map(ipv4)), 0);
        assert!(!table.needs_sync());
        Ok(())
    }

    /// A group that is displaced and then wanted itself is left and joined, and frames wait for that.
    #[test]
    fn one_that_is_displaced_may_be_wanted() -> Result<(), ()> {
        let mut table = opened()?;
        run(&mut table, 0);
        assert_eq!(table.send(&ipv4(1), 1, 100, 0), Verdict::Queued);
        run(&mut table, 0);
        assert_eq!(table.sync((10..17).map(ipv4)), 0);
        assert_eq!(table.sync((1..2).map(ipv4)), 0);
        assert_eq!(table.send(&ipv4(1), 2, 100, 0), Verdict::Queued);
        table.invalidate_one(&ipv4(1));
        let left = (ipv4(1), Action::Detach(Membership::SendOnly, 7));
        assert_eq!(table.poll(0), Some(left));
        assert!(run(&mut table, 0).contains(&Some((ipv4(1), Membership::Full))));
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

    /// Groups whose joins failed leave their places to others, before they would be tried again.
    #[test]
    fn failed_senders_make_room() -> Result<(), ()> {
        let mut table = opened()?;
        run(&mut table, 0);
        for n in 1..=2 {
            assert_eq!(table.send(&ipv4(n), 1, 100, 0), Verdict::Queued);
            let Some((_, Action::Attach(Membership::SendOnly, ticket))) = table.poll(0) else {
                return Err(());
            };
            table.attach_failed(&ipv4(n), ticket, 0);
            let refused = Action::Drop(1, DropReason::NoGroup);
            assert_eq!(table.poll(0), Some((ipv4(n), refused)));
        }
        let refused = Verdict::Drop(2, DropReason::TableFull);
        assert_eq!(table.send(&ipv4(3), 2, 100, 1), refused);
        assert_eq!(table.poll(1), None);
        assert_eq!(table.send(&ipv4(3), 2, 100, 1), Verdict::Queued);
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
