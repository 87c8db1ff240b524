// SPDX-License-Identifier: GPL-2.0

//! The beginning of an IPoIB interface's private area, where `ib_ipoib` looks.

use ipoib_sys::bindings;
use kernel::ffi::c_void;

/// A pointer for `ib_ipoib`, which takes any interface of its link-layer type for one of its own. What it finds there
/// makes it refuse to have a child on the interface.
#[repr(transparent)]
pub struct Decoy {
    _at: *const c_void,
}

// SAFETY: A pointer to memory that is never freed, and that nobody changes.
unsafe impl Send for Decoy {}
// SAFETY: As above.
unsafe impl Sync for Decoy {}

impl Default for Decoy {
    fn default() -> Self {
        Self {
            // SAFETY: It has no requirements.
            _at: unsafe { bindings::ipoib_rs_ib_decoy() },
        }
    }
}
