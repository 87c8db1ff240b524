// SPDX-License-Identifier: GPL-2.0

//! The module's text, which stays for as long as C may call into it.
//!
//! Whatever C calls back without a reference of its own to the module has a [`TextRef`]: registrations, work items,
//! files. A module that drops them as it is unloaded, as it should, is freed behind that. One that has
//! forgotten any (`mem::forget`, a cycle of `Arc`) is never freed: `rmmod` does not return. What belongs to a device needs
//! none, since the end of the device waits for it.

#[cfg(MODULE)]
use crate::bindings;

#[cfg(MODULE)]
extern "C" {
    static __this_module: bindings::module;
}

/// The module's kobject. The module loader frees no module whose kobject has other references.
#[cfg(MODULE)]
#[inline]
fn kobject() -> *mut bindings::kobject {
    // SAFETY: Computing a field's address does not read it.
    unsafe { &raw mut (*(&raw const __this_module).cast_mut()).mkobj.kobj }
}

/// A reference to the module's text. Where it is dropped, the text has to stay by other means until the
/// function returns.
///
/// # Invariants
///
/// A reference to the module's kobject is held, unless the code is linked into the kernel.
pub struct TextRef(());

impl TextRef {
    /// Takes a reference.
    ///
    /// # Context
    ///
    /// Any.
    #[inline]
    pub fn new() -> Self {
        #[cfg(MODULE)]
        // SAFETY: The kobject is there before the module's code runs, and for as long as it does.
        unsafe {
            bindings::kobject_get(kobject());
        }
        // INVARIANT: Just taken.
        Self(())
    }

    /// Returns the number of references; 0 if the code is linked into the kernel.
    #[cfg(CONFIG_KUNIT = "y")]
    fn count() -> i32 {
        #[cfg(MODULE)]
        // SAFETY: As in `new`. The count changes atomically.
        let count = unsafe { (&raw const (*kobject()).kref.refcount.refs.counter).read_volatile() };
        #[cfg(not(MODULE))]
        let count = 0;
        count
    }

    /// Returns true if the value that `make` returns holds a reference to the text until it is dropped. Always true in
    /// code that is linked into the kernel.
    ///
    /// # Errors
    ///
    /// Those of `make`.
    #[cfg(CONFIG_KUNIT = "y")]
    pub fn is_kept_by<T, E>(make: impl FnOnce() -> Result<T, E>) -> Result<bool, E> {
        let before = Self::count();
        let made = make()?;
        let during = Self::count();
        drop(made);
        // A module has the loader's reference, so that 0 means that this is none.
        Ok(Self::count() == before && during - before == i32::from(before > 0))
    }
}

impl Drop for TextRef {
    #[inline]
    fn drop(&mut self) {
        #[cfg(MODULE)]
        // SAFETY: Held by the type invariant. The loader has one itself until the module's exit function has returned.
        unsafe {
            bindings::kobject_put(kobject());
        }
    }
}
