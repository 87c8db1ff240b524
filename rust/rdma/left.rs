// SPDX-License-Identifier: GPL-2.0

//! Objects that a device does not destroy.
//!
//! A device may refuse to destroy a queue pair or a completion queue. The memory that it may still access,
//! and the handlers that it may still call, are leaked then. All else is dropped: nothing that waits for a
//! reference, such as the unregistration of an interface or of the device, may wait forever.

use ipoib_sys::bindings;
use kernel::revocable::Revocable;
use kernel::sync::Arc;

/// Memory of a dropped ring that the device may access until the queue pair is destroyed, and that is dropped
/// then.
pub(crate) trait Left: Send {
    /// Leaks the memory that the device may access, since the queue pair will never be destroyed. All else is
    /// still dropped.
    fn abandon(&mut self);
}

/// A handler that the device calls.
pub(crate) trait Told: Send + Sync {
    /// Ends the calls. On return the handler does not run, and is dropped.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    fn revoke(&self);
}

impl<H: Send + Sync> Told for Revocable<H> {
    fn revoke(&self) {
        Revocable::revoke(self);
    }
}

/// Gives up the handler of an object that was not destroyed. The device may still call: the callback stays,
/// and finds the handler gone.
///
/// # Context
///
/// Process context; may sleep.
pub(crate) fn abandon(told: Arc<dyn Told>) {
    told.revoke();
    core::mem::forget(told);
    // SAFETY: This is code of the module, which is loaded.
    unsafe { bindings::ipoib_rs_keep_module() };
}
