// SPDX-License-Identifier: GPL-2.0

//! Protection domains.

use core::ptr::NonNull;

use ipoib_sys::bindings;
use kernel::error::{from_err_ptr, to_result};
use kernel::prelude::*;
use kernel::str::CStrExt;
use kernel::sync::Arc;

use crate::deferred::{DeferredDrop, Reaper};
use crate::device::Device;
use crate::left::{self, Object};

/// A protection domain.
///
/// # Invariants
///
/// `raw` is a protection domain of `dev`'s, owned by this value.
pub struct Pd {
    raw: NonNull<bindings::ib_pd>,
    deferred_drop: Arc<DeferredDrop>,
    dev: Device,
}

// SAFETY: A protection domain may be used and destroyed by any thread.
unsafe impl Send for Pd {}
// SAFETY: As above.
unsafe impl Sync for Pd {}

impl Pd {
    /// Makes a protection domain, of which `reaper` destroys what is dropped in softirq.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; whatever the device says.
    ///
    /// # Context
    ///
    /// Process context; may sleep. So must be dropping the last reference.
    pub fn new(dev: &Device, reaper: &Reaper) -> Result<Arc<Self>> {
        let owner = dev.client().as_char_ptr();
        // SAFETY: The device is registered; the name lives for ever.
        let raw = from_err_ptr(unsafe { bindings::__ib_alloc_pd(dev.as_raw(), 0, owner) })?;
        // INVARIANT: It was just made.
        let pd = Self {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
            deferred_drop: reaper.deferred_drop().clone(),
            dev: dev.clone(),
        };
        Ok(Arc::new(pd, GFP_KERNEL)?)
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.dev
    }

    pub(crate) fn deferred_drop(&self) -> &Arc<DeferredDrop> {
        &self.deferred_drop
    }

    pub(crate) fn as_raw(&self) -> *mut bindings::ib_pd {
        self.raw.as_ptr()
    }

    /// The key to all of the kernel's memory for the device's own use.
    pub(crate) fn local_dma_lkey(&self) -> u32 {
        // SAFETY: Owned by the type invariant; the key is constant.
        unsafe { (*self.as_raw()).local_dma_lkey }
    }
}

impl Pd {
    /// Destroys it, unless the device has refused to destroy something that was made of it.
    fn destroy(&self) -> Result {
        // SAFETY: Owned by the type invariant; C reads the count without a lock, too.
        let users = unsafe { (&raw const (*self.as_raw()).usecnt.counter).read_volatile() };
        if users != 0 {
            return Err(EBUSY);
        }
        // SAFETY: Owned by the type invariant. Whatever was made of it held an `Arc`, and none is left.
        to_result(unsafe { bindings::ib_dealloc_pd_user(self.as_raw(), core::ptr::null_mut()) })
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        if let Err(error) = self.destroy() {
            pr_err!("protection domain not destroyed: {}\n", error.to_errno());
            // SAFETY: It is there, and was ours.
            unsafe { left::leave(Object::Pd(self.raw), None) };
        }
    }
}
