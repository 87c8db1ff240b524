// SPDX-License-Identifier: GPL-2.0

//! Members of multicast groups by this crate, on each port of a device. The RDMA core and the IP stack tell of a group that
//! a port is in it, but not who has joined it.

use kernel::new_mutex;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::{Arc, Mutex};

/// Part that a member has in a group.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A queue pair receives from it.
    Receiver,
    /// It is a full member of the subnet administrator's, but only sends.
    Sender,
    /// It has joined to send only.
    SendOnly,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Entry {
    port: u32,
    mgid: [u8; 16],
    role: Role,
    /// It has begun to leave.
    left: bool,
}

impl Entry {
    /// Returns true if both are in one group, by one port.
    fn is_beside(&self, other: &Entry) -> bool {
        self.port == other.port && self.mgid == other.mgid
    }
}

/// All members on a device.
#[pin_data]
pub(crate) struct Members {
    #[pin]
    list: Mutex<KVec<Entry>>,
}

/// One member, for as long as this lives.
///
/// # Invariants
///
/// `entry` is in the list, but that it has left there if `left` is set.
pub(crate) struct Member {
    members: Arc<Members>,
    entry: Entry,
    left: Atomic<bool>,
}

impl Members {
    /// Makes an empty list.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                list <- new_mutex!(KVec::new()),
            }),
            GFP_KERNEL,
        )
    }

    /// Adds a member.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    ///
    /// # Context
    ///
    /// Process context; may sleep. So must be dropping it.
    pub(crate) fn add(self: &Arc<Self>, port: u32, mgid: [u8; 16], role: Role) -> Result<Member> {
        let entry = Entry {
            port,
            mgid,
            role,
            left: false,
        };
        self.list.lock().push(entry, GFP_KERNEL)?;
        // INVARIANT: It was just added.
        Ok(Member {
            members: self.clone(),
            entry,
            left: Atomic::new(false),
        })
    }

    /// Returns the number of members with a role that a group has on a port.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub(crate) fn count(&self, port: u32, mgid: &[u8; 16], role: Role) -> usize {
        let list = self.list.lock();
        let same = |entry: &&Entry| entry.port == port && entry.role == role && entry.mgid == *mgid;
        list.iter().filter(same).count()
    }
}

impl Member {
    /// Returns true if it has this role.
    pub(crate) fn is(&self, role: Role) -> bool {
        self.entry.role == role
    }

    /// Begins to leave. With `stays`, the last full member of the group stays; returns false then.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub(crate) fn leave(&self, stays: bool) -> bool {
        let mut list = self.members.list.lock();
        let is_full = |entry: &Entry| entry.role != Role::SendOnly && !entry.left;
        let full = list
            .iter()
            .filter(|entry| entry.is_beside(&self.entry) && is_full(entry));
        if stays && full.count() < 2 {
            return false;
        }
        if let Some(entry) = list.iter_mut().find(|entry| **entry == self.entry) {
            entry.left = true;
            self.left.store(true, Relaxed);
        }
        true
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut list = self.members.list.lock();
        let left = self.left.load(Relaxed);
        let entry = Entry { left, ..self.entry };
        if let Some(at) = list.iter().position(|other| *other == entry) {
            let _ = list.remove(at);
        }
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[kunit_tests(rust_rdma_members)]
mod tests {
    use super::*;

    /// Members are counted by port, group and role, equal ones each.
    #[test]
    fn members_are_counted() -> Result {
        let members = Members::new()?;
        let count = |port, mgid, role| members.count(port, &[mgid; 16], role);
        let first = members.add(1, [1; 16], Role::Receiver)?;
        let second = members.add(1, [1; 16], Role::Receiver)?;
        let _others = [
            members.add(2, [1; 16], Role::Receiver)?,
            members.add(1, [2; 16], Role::Receiver)?,
            members.add(1, [1; 16], Role::SendOnly)?,
        ];
        assert_eq!(count(1, 1, Role::Receiver), 2);
        assert_eq!(count(1, 1, Role::Sender), 0);
        drop(first);
        assert_eq!(count(1, 1, Role::Receiver), 1);
        drop(second);
        assert_eq!(count(1, 1, Role::Receiver), 0);
        assert_eq!(count(1, 1, Role::SendOnly), 1);
        Ok(())
    }

    /// Of full members that leave while others only send, the last one stays: a crowd that comes and goes leaves one behind.
    #[test]
    fn the_last_full_member_stays() -> Result {
        let members = Members::new()?;
        let add = |mgid, role| members.add(1, [mgid; 16], role);
        let (first, second) = (add(1, Role::Receiver)?, add(1, Role::Sender)?);
        let others = [add(1, Role::SendOnly)?, add(2, Role::Receiver)?];
        assert!(first.leave(true) && !second.leave(true));
        for _ in 0..3 {
            let next = add(1, Role::Receiver)?;
            assert!(next.leave(true) && !second.leave(true));
        }
        assert_eq!(members.count(1, &[1; 16], Role::Receiver), 1);
        drop(first);
        assert!(second.leave(false) && others[0].leave(false));
        assert!(!others[1].leave(true));
        drop((second, others));
        assert!(members.list.lock().is_empty());
        Ok(())
    }
}
