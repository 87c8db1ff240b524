// SPDX-License-Identifier: GPL-2.0

//! Multicast groups to receive: those that the stack wants, and those that are joined.
//!
//! The state machine of each group, which decides when to join and leave, is with the transmit
//! state ([`crate::ud::paths`]), since frames wait for it. Here is what only process context may
//! touch: leaving a group sleeps.

use ipoib_netdev::address::AddressList;
use ipoib_proto::hwaddr::HwAddr;
use ipoib_proto::mgid::Mgid;
use ipoib_rdma::mcast::Membership;
use ipoib_rdma::{Join, JoinState};
use kernel::prelude::*;

/// A group that is joined.
pub(crate) struct Joined {
    // In this order: first nothing comes any more, then the subnet's administrator is told.
    attached: Option<Membership>,
    member: Option<Join>,
    /// The administrator has forgotten the membership, which was noted.
    lost: bool,
}

impl Joined {
    /// A group to which the QP is attached, if it is to receive, and which the administrator of an InfiniBand subnet
    /// knows us as a member of.
    pub(crate) const fn new(attached: Option<Membership>, member: Option<Join>) -> Self {
        Self {
            attached,
            member,
            lost: false,
        }
    }

    fn is_member(&self) -> bool {
        self.member
            .as_ref()
            .is_none_or(|join| matches!(join.state(), JoinState::Member(_)))
    }

    fn stands(&self) -> bool {
        self.attached.as_ref().is_none_or(Membership::stands) && self.is_member()
    }
}

/// The groups of an interface.
pub(crate) struct Groups {
    broadcast: Mgid,
    /// Groups that the stack wants, without the broadcast group.
    wanted: KVec<Mgid>,
    /// Groups that are joined. One that has made room for another may be joined anew before it is left.
    joined: KVec<(Mgid, Joined)>,
}

impl Groups {
    /// None but `broadcast`.
    pub(crate) const fn new(broadcast: Mgid) -> Self {
        Self {
            broadcast,
            wanted: KVec::new(),
            joined: KVec::new(),
        }
    }

    /// The interface is in another partition.
    pub(crate) fn set_broadcast(&mut self, broadcast: Mgid) {
        self.broadcast = broadcast;
    }

    /// The stack wants these, and no others. Addresses that are no MGID of our link are passed
    /// over, as nobody could send to them.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; nothing has changed then.
    pub(crate) fn want(&mut self, groups: &AddressList<'_>) -> Result {
        let mut wanted = KVec::new();
        for address in groups.iter() {
            if let Some(mgid) = Mgid::from_hwaddr(&HwAddr(address)) {
                if mgid.matches_broadcast(&self.broadcast) && mgid != self.broadcast {
                    wanted.push(mgid, GFP_KERNEL)?;
                }
            }
        }
        self.wanted = wanted;
        Ok(())
    }

    /// Groups that the stack wants, without the broadcast group.
    pub(crate) fn wanted(&self) -> impl Iterator<Item = Mgid> + '_ {
        self.wanted.iter().copied()
    }

    /// A group that the subnet's administrator has forgotten our membership in; each one once.
    pub(crate) fn take_lost(&mut self) -> Option<Mgid> {
        let lost = |(_, joined): &&mut (Mgid, Joined)| !joined.lost && !joined.is_member();
        let (mgid, joined) = self.joined.iter_mut().find(lost)?;
        joined.lost = true;
        Some(*mgid)
    }

    /// Keeps a membership.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; the group is left again then.
    pub(crate) fn joined(&mut self, mgid: Mgid, joined: Joined) -> Result {
        Ok(self.joined.push((mgid, joined), GFP_KERNEL)?)
    }

    /// Returns true if a group is joined, and the port still receives its packets.
    pub(crate) fn is_in(&self, mgid: Mgid) -> bool {
        self.joined
            .iter()
            .any(|(other, joined)| *other == mgid && joined.stands())
    }

    /// Leaves a group, if it is joined.
    pub(crate) fn leave(&mut self, mgid: Mgid) {
        if let Some(at) = self.joined.iter().position(|(other, _)| *other == mgid) {
            let _ = self.joined.remove(at);
        }
    }

    /// Leaves all groups.
    pub(crate) fn leave_all(&mut self) {
        self.joined.clear();
    }
}
