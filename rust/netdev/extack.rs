// SPDX-License-Identifier: GPL-2.0

//! Texts of errors, for who has sent a request by netlink.

use core::marker::PhantomData;

use ipoib_sys::bindings;
use kernel::prelude::*;
use kernel::str::CStr;

/// The extended acknowledgement of a netlink request: an error's text, which `ip` prints.
///
/// # Invariants
///
/// `extack` is null or valid during `'a`.
pub struct Extack<'a> {
    extack: *mut bindings::netlink_ext_ack,
    _lifetime: PhantomData<&'a mut bindings::netlink_ext_ack>,
}

impl Extack<'_> {
    /// Wraps a pointer.
    ///
    /// # Safety
    ///
    /// `extack` must be null, or valid during `'a`.
    pub(crate) unsafe fn from_raw<'a>(extack: *mut bindings::netlink_ext_ack) -> Extack<'a> {
        // INVARIANT: By this function's requirements.
        Extack {
            extack,
            _lifetime: PhantomData,
        }
    }

    /// Sets the text of an error that is returned.
    pub fn say(&self, text: &'static CStr) {
        // SAFETY: Null or valid by the invariant, and ours alone.
        if let Some(extack) = unsafe { self.extack.as_mut() } {
            extack._msg = text.as_char_ptr();
        }
    }

    /// Sets the text and gives `error` back, to be returned.
    pub fn refuse(&self, text: &'static CStr, error: Error) -> Error {
        self.say(text);
        error
    }
}
