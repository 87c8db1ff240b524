// SPDX-License-Identifier: GPL-2.0

//! Use of RDMA core's objects by others, and its end.

use ipoib_sys::bindings;
use kernel::ffi::c_void;
use kernel::sync::atomic::{Acquire, Atomic};
use kernel::sync::rcu;

/// An object's device, the handler of its events, and the handler's context.
type Owner = (
    *mut bindings::ib_device,
    Option<unsafe extern "C" fn(*mut bindings::ib_event, *mut c_void)>,
    *mut c_void,
);

/// Reports an event of an object to its ULP, unless the object is not `open` any more.
///
/// # Safety
///
/// While `open` is true, and for a grace period of RCU after that, the handler that `owner` finds may be called with
/// `event`, in any context.
pub(crate) unsafe fn report(
    open: &Atomic<bool>,
    mut event: bindings::ib_event,
    owner: impl FnOnce() -> Owner,
) {
    let _rcu = rcu::read_lock();
    if !open.load(Acquire) {
        return;
    }
    let (device, handler, context) = owner();
    event.device = device;
    if let Some(handler) = handler {
        // SAFETY: By the safety requirement.
        unsafe { handler(&raw mut event, context) };
    }
}

/// Waits until all sections that RCU protects, softirqs among them, have ended that have begun before this.
///
/// # Context
///
/// Process context; may sleep.
pub(crate) fn wait_for_readers() {
    // SAFETY: It may be called wherever it is allowed to sleep.
    unsafe { bindings::rdma_provider_wait_for_readers() };
}
