// SPDX-License-Identifier: GPL-2.0

//! Membership in multicast groups.

use core::ptr::NonNull;

use ipoib_sys::bindings;
use kernel::error::{from_err_ptr, to_result};
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::device::Device;
use crate::members::{Member, Role};
use crate::qp::UdQp;

/// A queue pair's membership in a group, until it is dropped.
///
/// # Invariants
///
/// `qp` is attached to the group; `ip`, if any, is the IPv6 side of a netdev, with a reference, which
/// has joined the group for us.
pub struct Membership {
    qp: Arc<UdQp>,
    mgid: [u8; 16],
    mlid: u16,
    ip: Option<NonNull<bindings::inet6_dev>>,
    /// On RoCE, dropped behind that.
    _member: Option<Member>,
}

// SAFETY: The queue pair may be used by any thread, and so may the IPv6 side of a netdev.
unsafe impl Send for Membership {}
// SAFETY: As above.
unsafe impl Sync for Membership {}

/// Returns true if a user other than this crate has joined the group `mgid` on the netdev of RoCE port `port`.
///
/// # Context
///
/// Process context; may sleep.
pub fn has_other_members(dev: &Device, port: u32, mgid: &[u8; 16]) -> bool {
    let gid = as_gid(*mgid);
    // SAFETY: The device is registered; the GID is ours.
    let all = unsafe { bindings::ipoib_rs_ib_ip_members(dev.as_raw(), port, &raw const gid) };
    all as usize > dev.members().count(port, mgid, Role::Receiver)
}

fn as_gid(raw: [u8; 16]) -> bindings::ib_gid {
    bindings::ib_gid { raw }
}

impl Membership {
    /// Attaches `qp` to the group `mgid`, whose multicast LID is `mlid` (0 on RoCE).
    ///
    /// On RoCE, the IP stack of the port's netdev, which the packets pass, joins the group as well.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a GID or LID that is none of a group's; `ENODEV` if the port has no netdev, or
    /// if that is going away; `EAFNOSUPPORT` if that has no IPv6, because it is turned off or the
    /// MTU is below 1280; `ENOMEM`; whatever the device says.
    ///
    /// # Context
    ///
    /// Process context; may sleep. So must be dropping it.
    pub fn join(qp: &Arc<UdQp>, mgid: [u8; 16], mlid: u16) -> Result<Self> {
        let (dev, port) = (qp.pd().device(), qp.port());
        let is_roce = dev.is_roce(port);
        let member = is_roce
            .then(|| dev.members().add(port, mgid, Role::Receiver))
            .transpose()?;
        let mut gid = as_gid(mgid);
        // SAFETY: The queue pair is valid, the GID is ours.
        to_result(unsafe { bindings::ib_attach_mcast(qp.as_raw(), &raw mut gid, mlid) })?;
        // INVARIANT: Attached; an error from here on drops the value, which undoes that.
        let mut membership = Self {
            qp: qp.clone(),
            mgid,
            mlid,
            ip: None,
            _member: member,
        };
        if is_roce {
            // SAFETY: The device is registered; the GID is ours.
            let ip = from_err_ptr(unsafe {
                bindings::ipoib_rs_ib_ip_join(dev.as_raw(), port, &raw const gid)
            })?;
            // INVARIANT: Joined there; the reference comes with it.
            membership.ip = NonNull::new(ip);
        }
        Ok(membership)
    }

    /// Returns true if nobody took the netdev's IPv6 away since, and all of its memberships with it.
    ///
    /// # Context
    ///
    /// Any.
    pub fn stands(&self) -> bool {
        self.ip.is_none_or(|ip| {
            // SAFETY: Referenced by the type invariant.
            unsafe { bindings::ipoib_rs_ip_stands(ip.as_ptr()) }
        })
    }

    /// The group.
    pub fn mgid(&self) -> [u8; 16] {
        self.mgid
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut gid = as_gid(self.mgid);
        if let Some(ip) = self.ip {
            // SAFETY: Joined by the type invariant, whose reference is given up here; the GID is ours.
            unsafe { bindings::ipoib_rs_ib_ip_leave(ip.as_ptr(), &raw const gid) };
        }
        // SAFETY: Attached by the type invariant.
        let err = unsafe { bindings::ib_detach_mcast(self.qp.as_raw(), &raw mut gid, self.mlid) };
        if err != 0 {
            pr_err!("queue pair not detached from its group: {}\n", err);
        }
    }
}
