// SPDX-License-Identifier: GPL-2.0

//! The way from an adapter to RDMA core, by which it tells of events.

use core::ptr;

use ib_fabric::Event;
use ipoib_sys::bindings;
use kernel::sync::atomic::{Acquire, Atomic, Release};
use kernel::sync::rcu;

use crate::readers::wait_for_readers;

/// The way from an adapter to RDMA core.
///
/// # Invariants
///
/// `device` is null; or [`CLOSED`], after which it never changes; or an `ib_device` that stays for a grace
/// period of RCU after it has become closed.
pub struct Handle {
    device: Atomic<*mut bindings::ib_device>,
}

/// A handle for good closed: no device has this address.
const CLOSED: *mut bindings::ib_device = ptr::without_provenance_mut(usize::MAX);

impl Handle {
    /// One that has not been opened.
    pub const fn new() -> Self {
        // INVARIANT: It is null.
        Self {
            device: Atomic::new(ptr::null_mut()),
        }
    }

    /// Opens it for a device that is registered and has no clients yet, unless it is open or closed.
    ///
    /// # Safety
    ///
    /// The device has to stay until the handle has been closed.
    pub(crate) unsafe fn open(&self, device: *mut bindings::ib_device) {
        // INVARIANT: By the safety requirement. RDMA core asks again when the device moves to another network
        // namespace, which may be while it is being unregistered.
        let _ = self.device.cmpxchg(ptr::null_mut(), device, Release);
    }

    /// Closes it for good. After this, nobody uses the device by it.
    pub(crate) fn close(&self) {
        self.device.store(CLOSED, Release);
        wait_for_readers();
    }

    /// Tells ULPs of an event, unless the adapter is not registered.
    ///
    /// # Context
    ///
    /// Any. Hold no lock that a method of [`Adapter`](crate::Adapter) takes.
    pub fn dispatch(&self, port: u8, event: Event) {
        let _rcu = rcu::read_lock();
        let device = self.device.load(Acquire);
        if device.is_null() || device == CLOSED {
            return;
        }
        let mut raw: bindings::ib_event = pin_init::zeroed();
        raw.device = device;
        raw.element.port_num = port.into();
        raw.event = as_raw(event);
        // SAFETY: The device exists as long as RCU is held. It is called in any context.
        unsafe { bindings::ib_dispatch_event(&raw const raw) };
    }
}

impl Default for Handle {
    fn default() -> Self {
        Self::new()
    }
}

/// The name that RDMA core has for an event.
fn as_raw(event: Event) -> bindings::ib_event_type {
    match event {
        Event::PortActive => bindings::ib_event_type_IB_EVENT_PORT_ACTIVE,
        Event::PortError => bindings::ib_event_type_IB_EVENT_PORT_ERR,
        Event::LidChange => bindings::ib_event_type_IB_EVENT_LID_CHANGE,
        Event::SmChange => bindings::ib_event_type_IB_EVENT_SM_CHANGE,
        Event::ClientReregister => bindings::ib_event_type_IB_EVENT_CLIENT_REREGISTER,
        Event::PKeyChange => bindings::ib_event_type_IB_EVENT_PKEY_CHANGE,
        Event::GidChange => bindings::ib_event_type_IB_EVENT_GID_CHANGE,
        Event::SpeedChange => bindings::ib_event_type_IB_EVENT_DEVICE_SPEED_CHANGE,
        Event::DeviceFatal => bindings::ib_event_type_IB_EVENT_DEVICE_FATAL,
    }
}
