// SPDX-License-Identifier: GPL-2.0

//! Multicast groups that queue pairs of an adapter are attached to.

use kernel::prelude::*;
use kernel::sync::Arc;
use rdma_provider::Qp;

/// Groups that an adapter has room for.
pub(crate) const GROUPS: usize = 256;

/// Queue pairs that one group has room for.
pub(crate) const MEMBERS: usize = 32;

/// A group and its members.
struct Group {
    mgid: [u8; 16],
    mlid: u16,
    members: [Option<Arc<Qp>>; MEMBERS],
}

/// Groups with at least one member.
pub(crate) struct Groups {
    groups: KVVec<Group>,
}

impl Groups {
    /// An empty table, with room for [`GROUPS`] groups.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            groups: KVVec::with_capacity(GROUPS, GFP_KERNEL)?,
        })
    }

    /// Adds a member. Adding one twice does no harm.
    pub(crate) fn attach(&mut self, qp: &Arc<Qp>, mgid: [u8; 16], mlid: u16) -> Result {
        let same = |group: &&mut Group| group.mgid == mgid && group.mlid == mlid;
        if let Some(group) = self.groups.iter_mut().find(same) {
            if group.members.iter().flatten().any(|m| Arc::ptr_eq(m, qp)) {
                return Ok(());
            }
            let free = group.members.iter_mut().find(|m| m.is_none());
            *free.ok_or(ENOMEM)? = Some(qp.clone());
            return Ok(());
        }
        let mut members = [const { None }; MEMBERS];
        members[0] = Some(qp.clone());
        self.groups
            .push_within_capacity(Group {
                mgid,
                mlid,
                members,
            })
            .map_err(|_| ENOMEM)
    }

    /// Removes a member, and returns the reference: drop it without a lock.
    pub(crate) fn detach(&mut self, qp: &Arc<Qp>, mgid: [u8; 16], mlid: u16) -> Option<Arc<Qp>> {
        let same = |group: &Group| group.mgid == mgid && group.mlid == mlid;
        let at = self.groups.iter().position(same)?;
        let members = &mut self.groups[at].members;
        let member = members
            .iter_mut()
            .find(|m| m.as_ref().is_some_and(|m| Arc::ptr_eq(m, qp)))?;
        let gone = member.take();
        if members.iter().all(Option::is_none) {
            let last = self.groups.len() - 1;
            self.groups.swap(at, last);
            self.groups.truncate(last);
        }
        gone
    }

    /// Members of a group.
    pub(crate) fn members(&self, mgid: &[u8; 16], mlid: u16) -> [Option<Arc<Qp>>; MEMBERS] {
        let same = |group: &&Group| group.mgid == *mgid && group.mlid == mlid;
        self.groups
            .iter()
            .find(same)
            .map_or([const { None }; MEMBERS], |group| group.members.clone())
    }
}
