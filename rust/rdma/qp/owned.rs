// SPDX-License-Identifier: GPL-2.0

//! Ownership of a queue pair of any kind.

use core::ptr::{self, NonNull};

use ipoib_sys::bindings;
use kernel::error::{from_err_ptr, to_result};
use kernel::prelude::*;
use kernel::str::CStrExt;
use kernel::sync::{Arc, SetOnce};

use crate::left::{self, Object, Told};
use crate::pd::Pd;

/// A queue pair as the device has it.
///
/// # Invariants
///
/// * `raw` is a queue pair, owned by this value, until `end` is what came of destroying it.
/// * `told` is the handler of its events.
pub(crate) struct OwnedQp {
    raw: NonNull<bindings::ib_qp>,
    end: SetOnce<Result>,
    told: Option<Arc<dyn Told>>,
}

// SAFETY: A queue pair may be used and destroyed by any thread.
unsafe impl Send for OwnedQp {}
// SAFETY: As above.
unsafe impl Sync for OwnedQp {}

impl OwnedQp {
    /// Makes a queue pair of `pd`, with `told` as the handler of its events.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; whatever the device says.
    ///
    /// # Safety
    ///
    /// All that the attributes refer to must be valid, and outlive the queue pair.
    pub(crate) unsafe fn new(
        pd: &Pd,
        attr: &mut bindings::ib_qp_init_attr,
        told: Option<Arc<dyn Told>>,
    ) -> Result<Self> {
        let owner = pd.device().client().as_char_ptr();
        // SAFETY: By this function's requirements; the name lives for ever.
        let raw = from_err_ptr(unsafe { bindings::ib_create_qp_kernel(pd.as_raw(), attr, owner) })?;
        // INVARIANT: It was just made.
        Ok(Self {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
            end: SetOnce::new(),
            told,
        })
    }

    #[inline]
    pub(crate) fn as_raw(&self) -> *mut bindings::ib_qp {
        self.raw.as_ptr()
    }

    /// Destroys it before its owner is dropped. That is tried once.
    ///
    /// # Errors
    ///
    /// Whatever the device says, or said; it may still reach what was posted.
    ///
    /// # Safety
    ///
    /// Only one thread may do this. The queue pair must not be in use, nor be used any more.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub(crate) unsafe fn destroy(&self) -> Result {
        if let Some(end) = self.end.copy() {
            return end;
        }
        // SAFETY: Owned by the type invariant; nobody uses it by this function's requirements.
        let err = unsafe { bindings::ib_destroy_qp_user(self.as_raw(), ptr::null_mut()) };
        if err != 0 {
            pr_err!("queue pair not destroyed: {}\n", err);
        }
        let end = to_result(err);
        // INVARIANT: That came of it.
        self.end.populate(end);
        end
    }
}

impl Drop for OwnedQp {
    fn drop(&mut self) {
        // SAFETY: What uses it holds a reference to the owner, which is gone.
        if unsafe { self.destroy() }.is_err() {
            // SAFETY: It is there, and was ours.
            unsafe { left::leave(Object::Qp(self.raw), self.told.take()) };
        }
    }
}
