// SPDX-License-Identifier: GPL-2.0

//! Remains of an object that its device does not let go.
//!
//! A device may refuse to destroy a queue pair or a completion queue. What it may still read, write
//! or call then stays for ever. Nothing else does: whatever waits for a reference, such as the
//! unregistration of an interface or of the device, must end.

use ipoib_sys::bindings;
use kernel::revocable::Revocable;
use kernel::sync::Arc;

/// Memory of a ring that is gone, which the device may reach until the queue pair is destroyed. It is
/// dropped then.
pub(crate) trait Left: Send {
    /// The queue pair was not destroyed, and never will be: keeps for ever what the device may reach,
    /// and leaves all else to be dropped.
    fn abandon(&mut self);
}

/// Whom the device tells of an object's events.
pub(crate) trait Told: Send + Sync {
    /// Tells nobody any more. On return nobody is being told, and who was is dropped.
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

/// Gives up whom the device tells of an object that was not destroyed. It can still call: what it
/// calls stays, and finds nobody to tell.
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
