// SPDX-License-Identifier: GPL-2.0

//! Parts of ipoib_rs that have to be in C, made safe.
//!
//! These are a string parameter, which `module!` cannot declare, and the beginning of an interface's private area, where
//! `ib_ipoib` looks.

#![crate_name = "ipoib_module"]

use ipoib_sys::bindings;
use kernel::ffi::c_void;
use kernel::str::{CStr, CStrExt};

/// The ports that get an interface by themselves, if the parameter was given.
pub fn ports() -> Option<&'static CStr> {
    // SAFETY: Reads a variable that is always there, and does not change after the module was loaded.
    let ports = unsafe { bindings::ipoib_module_ports() };
    // SAFETY: A string that is kept for as long as the module.
    (!ports.is_null()).then(|| unsafe { CStr::from_char_ptr(ports) })
}

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
            _at: unsafe { bindings::ipoib_module_decoy() },
        }
    }
}
