// SPDX-License-Identifier: GPL-2.0

//! Parts of tests on devices that are there, and not made up: what they expect, for how long they wait, and frames whose
//! end is counted.
//!
//! A failed assertion ends its thread at once, with all that the test has of the device. So these tests return errors.

use core::fmt::Debug;
use core::panic::Location;

use ipoib_sys::bindings;
use kernel::prelude::*;
use kernel::str::{CStr, CStrExt};
use kernel::time::{delay::fsleep, Delta};

use crate::clock::now_ms;
use crate::skb::TxSkb;

/// The longest that a test waits for anything, in milliseconds: an emulated machine is slow.
pub const LIMIT_MS: u32 = 20_000;

/// Has the running test count as skipped.
pub fn skip(why: &CStr) {
    // SAFETY: A string that ends in 0, which is copied.
    unsafe { bindings::ipoib_rs_mark_skipped(why.as_char_ptr()) };
}

/// Checks that something is what it is to be.
///
/// # Errors
///
/// `EPROTO`, with a line in the log.
#[track_caller]
pub fn same<T: PartialEq + Debug>(is: T, wanted: T) -> Result {
    if is == wanted {
        return Ok(());
    }
    let at = Location::caller();
    pr_err!("{}:{}: {is:?} is not {wanted:?}\n", at.file(), at.line());
    Err(EPROTO)
}

/// Waits until something is so.
///
/// # Errors
///
/// `ETIMEDOUT`, with a line in the log.
///
/// # Context
///
/// Process context; sleeps.
#[track_caller]
pub fn until(mut is_so: impl FnMut() -> bool) -> Result {
    let begin = now_ms();
    while !is_so() {
        if now_ms() - begin > u64::from(LIMIT_MS) {
            let at = Location::caller();
            pr_err!("{}:{}: waited in vain\n", at.file(), at.line());
            return Err(ETIMEDOUT);
        }
        fsleep(Delta::from_millis(1));
    }
    Ok(())
}

/// Counts the ends of frames, from when it begins.
pub struct Ends(u32);

impl Ends {
    /// Begins to count.
    pub fn begin() -> Self {
        // SAFETY: It reads a number.
        Self(unsafe { bindings::ipoib_rs_freed() })
    }

    /// Counts the frame when it ends.
    pub fn watch(skb: TxSkb) -> TxSkb {
        // SAFETY: The frame is valid and ours by the type invariant. Orphaning it calls the destructor of a previous owner.
        unsafe { bindings::ipoib_rs_watch_free(skb.as_raw()) };
        skb
    }

    /// Number of frames that have ended since.
    pub fn count(&self) -> u32 {
        // SAFETY: It reads a number.
        unsafe { bindings::ipoib_rs_freed() }.wrapping_sub(self.0)
    }
}
