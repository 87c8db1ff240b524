// SPDX-License-Identifier: GPL-2.0

//! Network devices that frames are sent by.

use core::ptr::{self, NonNull};

use ipoib_sys::bindings;
use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, Full, Release};
use kernel::sync::{rcu, Arc};

use crate::{Address, Frame};

/// A network device, while it is attached.
///
/// # Invariants
///
/// `dev` is null, or a network device to which the [`crate::Attachment`] owns a reference, until a grace period of RCU
/// after it was set to null.
pub struct Interface {
    ether_type: u16,
    dev: Atomic<*mut bindings::net_device>,
}

impl Interface {
    /// An interface without a device, for frames of an EtherType.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new(ether_type: u16) -> Result<Arc<Self>> {
        // INVARIANT: It is null.
        Ok(Arc::new(
            Self {
                ether_type,
                dev: Atomic::new(ptr::null_mut()),
            },
            GFP_KERNEL,
        )?)
    }

    /// Calls `f` with the device, if there is one.
    fn with<R>(&self, f: impl FnOnce(*mut bindings::net_device) -> R) -> Option<R> {
        let _rcu = rcu::read_lock();
        let dev = self.dev.load(Acquire);
        (!dev.is_null()).then(|| f(dev))
    }

    /// Returns true if the device is up and has a carrier.
    pub fn is_ready(&self) -> bool {
        // SAFETY: RCU keeps the device, by the type invariant.
        self.with(|dev| unsafe { bindings::raw_ether_is_ready(dev) }) == Some(true)
    }

    /// Bytes that a frame may have behind the Ethernet header; 0 without a device.
    pub fn mtu(&self) -> u32 {
        // SAFETY: As above.
        let mtu = self.with(|dev| unsafe { bindings::raw_ether_mtu(dev) });
        mtu.unwrap_or(0)
    }

    /// Sends a frame to an address, or to all if there is none. False if it is known to be lost.
    ///
    /// # Context
    ///
    /// Process context or softirq, with interrupts enabled. Hold no lock that a [`crate::Listen`] takes.
    pub fn send(&self, frame: Frame, to: Option<Address>) -> bool {
        let sent = self.with(|dev| {
            let to = to.as_ref();
            let to = to.map_or_else(
                // SAFETY: RCU keeps the device, by the type invariant.
                || unsafe { bindings::raw_ether_broadcast(dev) },
                |address| address.as_ptr(),
            );
            // SAFETY: As above; `to` points to an address of Ethernet, which is copied, and the buffer was owned by the
            // frame.
            unsafe { bindings::raw_ether_send(dev, frame.into_raw(), self.ether_type, to) }
        });
        sent == Some(true)
    }

    pub(crate) fn ether_type(&self) -> u16 {
        self.ether_type
    }

    /// Returns true if this is the device.
    pub(crate) fn is(&self, dev: *mut bindings::net_device) -> bool {
        ptr::eq(self.dev.load(Acquire), dev)
    }

    /// Sets the device. False if there is one.
    ///
    /// # Safety
    ///
    /// The caller has to own a reference to the device until a grace period of RCU after [`Interface::take`] has
    /// returned it.
    pub(crate) unsafe fn set(&self, dev: NonNull<bindings::net_device>) -> bool {
        // INVARIANT: By the safety requirement.
        let set = self.dev.cmpxchg(ptr::null_mut(), dev.as_ptr(), Release);
        set.is_ok()
    }

    /// Takes the device away.
    pub(crate) fn take(&self) -> Option<NonNull<bindings::net_device>> {
        NonNull::new(self.dev.xchg(ptr::null_mut(), Full))
    }
}

// SAFETY: The device is used as the type invariant says, by any thread.
unsafe impl Send for Interface {}
// SAFETY: As above.
unsafe impl Sync for Interface {}
