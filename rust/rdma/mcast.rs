// SPDX-License-Identifier: GPL-2.0

//! Membership in multicast groups.

use ipoib_sys::bindings;
use kernel::error::to_result;
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::device::Device;
use crate::qp::UdQp;

/// A queue pair's membership in a group, until it is dropped.
///
/// # Invariants
///
/// `qp` is attached to the group; `ifindex`, if any, is the netdev of its port on which the IP
/// stack has joined the group for us.
pub struct Membership {
    qp: Arc<UdQp>,
    mgid: [u8; 16],
    mlid: u16,
    ifindex: Option<i32>,
}

/// Whether the netdev of RoCE port `port` is a member of the group `mgid`. Before we join it, that
/// means that somebody else has; afterwards, that nobody took the netdev's IPv6 away.
///
/// # Context
///
/// Process context.
pub fn is_joined_on_netdev(dev: &Device, port: u32, mgid: &[u8; 16]) -> bool {
    let gid = as_gid(*mgid);
    // SAFETY: The device is registered; the GID is ours.
    unsafe { bindings::ipoib_rs_ib_ip_joined(dev.as_raw(), port, &raw const gid) }
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
        let dev = qp.pd().device();
        let mut gid = as_gid(mgid);
        // SAFETY: The queue pair is valid, the GID is ours.
        to_result(unsafe { bindings::ib_attach_mcast(qp.as_raw(), &raw mut gid, mlid) })?;
        // INVARIANT: Attached; an error from here on drops the value, which undoes that.
        let mut membership = Self {
            qp: qp.clone(),
            mgid,
            mlid,
            ifindex: None,
        };
        if dev.is_roce(qp.port()) {
            let mut ifindex = 0;
            // SAFETY: The device is registered; the GID and the index are ours.
            to_result(unsafe {
                bindings::ipoib_rs_ib_ip_join(
                    dev.as_raw(),
                    qp.port(),
                    &raw const gid,
                    &raw mut ifindex,
                )
            })?;
            // INVARIANT: Joined there.
            membership.ifindex = Some(ifindex);
        }
        Ok(membership)
    }

    /// The group.
    pub fn mgid(&self) -> [u8; 16] {
        self.mgid
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut gid = as_gid(self.mgid);
        if let Some(ifindex) = self.ifindex {
            // SAFETY: The device is registered, the GID is ours.
            unsafe {
                bindings::ipoib_rs_ib_ip_leave(
                    self.qp.pd().device().as_raw(),
                    self.qp.port(),
                    &raw const gid,
                    ifindex,
                );
            }
        }
        // SAFETY: Attached by the type invariant.
        let err = unsafe { bindings::ib_detach_mcast(self.qp.as_raw(), &raw mut gid, self.mlid) };
        if err != 0 {
            pr_err!("queue pair not detached from its group: {}\n", err);
        }
    }
}
