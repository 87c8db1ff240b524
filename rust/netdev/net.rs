// SPDX-License-Identifier: GPL-2.0

//! Network namespaces.

use ipoib_sys::bindings;
use kernel::types::Opaque;

/// A network namespace.
///
/// # Invariants
///
/// A reference to this is a reference to a `struct net` that stays allocated meanwhile.
#[repr(transparent)]
pub struct Net(Opaque<bindings::net>);

impl Net {
    /// Wraps a pointer.
    ///
    /// # Safety
    ///
    /// `net` must be a namespace that stays allocated during `'a`.
    pub unsafe fn from_raw<'a>(net: *mut bindings::net) -> &'a Self {
        // SAFETY: `Net` is transparent over `net`; validity by the requirements.
        unsafe { &*net.cast() }
    }

    /// The C namespace.
    pub fn as_raw(&self) -> *mut bindings::net {
        self.0.get()
    }
}
