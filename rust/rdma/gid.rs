// SPDX-License-Identifier: GPL-2.0

//! GIDs of a port.
//!
//! C headers: [`include/rdma/ib_cache.h`](srctree/include/rdma/ib_cache.h).

use core::ptr::NonNull;

use ipoib_sys::bindings;
use kernel::error::from_err_ptr;
use kernel::ffi::c_int;
use kernel::prelude::*;

use crate::device::Device;

/// The network device of a RoCE GID.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GidOwner {
    /// The one that the port runs over.
    Port,
    /// The bond of that.
    Bond,
    /// Another on top of it, such as a VLAN, or none that still has the GID.
    Other,
}

/// State of a RoCE GID as an IPv6 address of its network device. Peers find only an assigned one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GidAddress {
    /// The network device has the address.
    Assigned,
    /// Duplicate address detection has yet to end; the device gets the address unless another host has it.
    Tentative,
    /// The network device does not have the address.
    Missing,
}

/// A reference to an entry of a port's GID table.
///
/// The entry stays as it is for as long as there is a reference, even if the GID itself is removed
/// from the port.
///
/// # Invariants
///
/// `attr` is an entry of `dev`'s, on which one reference is held.
pub struct GidRef {
    attr: NonNull<bindings::ib_gid_attr>,
    dev: Device,
}

// SAFETY: A GID table entry may be read and given back by any thread.
unsafe impl Send for GidRef {}
// SAFETY: As above.
unsafe impl Sync for GidRef {}

impl GidRef {
    pub(crate) fn attr(&self) -> &bindings::ib_gid_attr {
        // SAFETY: Referenced by the type invariant; the fields that we read are constant.
        unsafe { self.attr.as_ref() }
    }

    pub(crate) fn as_raw(&self) -> *const bindings::ib_gid_attr {
        self.attr.as_ptr()
    }

    /// The device that it is a GID of.
    pub fn device(&self) -> &Device {
        &self.dev
    }

    /// The GID.
    pub fn raw(&self) -> [u8; 16] {
        // SAFETY: Every view of the union is plain bytes.
        unsafe { self.attr().gid.raw }
    }

    /// The index in the table.
    pub fn index(&self) -> u16 {
        self.attr().index
    }

    /// The port that it is a GID of.
    pub fn port(&self) -> u32 {
        self.attr().port_num
    }

    /// Returns true if the port still has it. One that was removed and added again is another entry.
    ///
    /// # Context
    ///
    /// Any.
    pub fn stands(&self) -> bool {
        let now = self.dev.gid(self.port(), self.index());
        now.is_ok_and(|now| now.attr == self.attr)
    }

    /// Returns true if both are the same GID at the same place of a table, which may have been filled anew between them.
    pub fn is_like(&self, other: &Self) -> bool {
        self.dev.same(&other.dev)
            && (self.port(), self.index(), self.raw()) == (other.port(), other.index(), other.raw())
    }

    /// Returns true if packets with this GID are RoCEv2.
    pub fn is_rocev2(&self) -> bool {
        self.attr().gid_type == bindings::ib_gid_type_IB_GID_TYPE_ROCE_UDP_ENCAP
    }

    /// The network device that packets with this GID leave by, as it is now.
    ///
    /// # Context
    ///
    /// Process context.
    pub fn owner(&self) -> GidOwner {
        // SAFETY: Referenced by the type invariant.
        match unsafe { bindings::ipoib_rs_ib_gid_owner(self.as_raw()) } {
            bindings::ipoib_rs_gid_owner_IPOIB_RS_GID_OWN => GidOwner::Port,
            bindings::ipoib_rs_gid_owner_IPOIB_RS_GID_BOND => GidOwner::Bond,
            _ => GidOwner::Other,
        }
    }

    /// Tells neighbours who know it what Ethernet address it has now, if it is a GID of RoCE that is an address.
    ///
    /// # Context
    ///
    /// Process context.
    pub fn advertise(&self) {
        if self.dev.is_roce(self.port()) {
            // SAFETY: Referenced by the type invariant.
            unsafe { bindings::ipoib_rs_advertise(self.as_raw()) };
        }
    }

    /// Whether that network device has it as an address now.
    ///
    /// # Context
    ///
    /// Any.
    pub fn address(&self) -> GidAddress {
        // SAFETY: Referenced by the type invariant.
        match unsafe { bindings::ipoib_rs_ib_gid_address(self.as_raw()) } {
            bindings::ipoib_rs_gid_address_IPOIB_RS_GID_ADDRESS => GidAddress::Assigned,
            bindings::ipoib_rs_gid_address_IPOIB_RS_GID_TENTATIVE => GidAddress::Tentative,
            _ => GidAddress::Missing,
        }
    }
}

#[cfg(CONFIG_KUNIT = "y")]
impl GidRef {
    /// Takes a reference to an entry of a test's.
    ///
    /// # Safety
    ///
    /// `attr` must be in an entry of the core's that stays, with a reference of its own, until all references are gone,
    /// and which is of `dev`.
    pub(crate) unsafe fn of_entry(attr: NonNull<bindings::ib_gid_attr>, dev: &Device) -> Self {
        // SAFETY: By this function's requirements.
        unsafe { bindings::rdma_hold_gid_attr(attr.as_ptr()) };
        // INVARIANT: The reference was just taken.
        Self {
            attr,
            dev: dev.clone(),
        }
    }
}

impl Clone for GidRef {
    fn clone(&self) -> Self {
        // SAFETY: Referenced by the type invariant.
        unsafe { bindings::rdma_hold_gid_attr(self.as_raw()) };
        // INVARIANT: The reference was just taken.
        Self {
            attr: self.attr,
            dev: self.dev.clone(),
        }
    }
}

impl Drop for GidRef {
    fn drop(&mut self) {
        // SAFETY: The reference is held by the type invariant and given up here.
        unsafe { bindings::rdma_put_gid_attr(self.as_raw()) };
    }
}

impl Device {
    /// The GID at `index` of a port's table.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a port or an index that does not exist; `ENODATA` for an empty entry.
    ///
    /// # Context
    ///
    /// Any.
    pub fn gid(&self, port: u32, index: u16) -> Result<GidRef> {
        // SAFETY: The device is registered.
        let attr = unsafe { bindings::rdma_get_gid_attr(self.as_raw(), port, c_int::from(index)) };
        let attr = from_err_ptr(attr.cast_mut())?;
        // INVARIANT: The function took the reference.
        Ok(GidRef {
            attr: NonNull::new(attr).ok_or(ENODATA)?,
            dev: self.clone(),
        })
    }

    /// Walks over the GIDs of a port, in the order of its table; over none if there is no such port.
    ///
    /// # Context
    ///
    /// Any.
    pub fn gids(&self, port: u32) -> impl Iterator<Item = GidRef> + '_ {
        // SAFETY: The device is registered.
        let len = unsafe { bindings::ipoib_rs_ib_gid_table_len(self.as_raw(), port) };
        let len = u16::try_from(len.max(0)).unwrap_or(u16::MAX);
        (0..len).filter_map(move |index| self.gid(port, index).ok())
    }

    /// Has the RDMA core look for GIDs of a RoCE port that are not in its table, if it is one.
    ///
    /// The core looks by itself when there is a new address, but not when there is room again: the table has one place
    /// for the GID of an Ethernet address, which a GID that was removed keeps for as long as there is a reference to it.
    ///
    /// # Context
    ///
    /// Process context; takes RTNL, may sleep.
    pub fn rescan_gids(&self, port: u32) {
        if self.is_roce(port) {
            // SAFETY: The device is registered, and has the port.
            unsafe { bindings::rdma_roce_rescan_port(self.as_raw(), port) };
        }
    }
}
