// SPDX-License-Identifier: GPL-2.0

//! RTNL, the lock of network configuration, as a token.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

use ipoib_sys::bindings;
use kernel::prelude::*;

/// Proof that the caller holds RTNL.
///
/// # Invariants
///
/// While a value of this type is reachable, the current task holds RTNL, and no second value of
/// this type is usable: whoever calls back into code that may make one (registering a device,
/// say) gives up its own by passing it as `&mut`.
pub struct Rtnl {
    _not_send: PhantomData<*mut ()>,
}

impl Rtnl {
    /// Makes the token in a callback that C runs under RTNL.
    ///
    /// # Safety
    ///
    /// The current task must hold RTNL until the value is gone, and code that holds another token
    /// must have passed it as `&mut` to the function that led here.
    pub(crate) unsafe fn assume() -> Self {
        // INVARIANT: By this function's requirements.
        Self {
            _not_send: PhantomData,
        }
    }

    /// Takes RTNL until the guard is dropped, unless somebody has it.
    ///
    /// # Context
    ///
    /// Process context. Must not be called with RTNL held.
    pub fn try_lock() -> Option<RtnlGuard> {
        // SAFETY: May be called from any process context.
        if unsafe { bindings::rtnl_trylock() } == 0 {
            return None;
        }
        Some(RtnlGuard {
            // SAFETY: As in `lock`.
            token: unsafe { Rtnl::assume() },
        })
    }

    /// Takes RTNL until the guard is dropped.
    ///
    /// # Context
    ///
    /// May sleep. Must not be called with RTNL held, nor from a [`crate::device::Driver::task`]:
    /// those are waited for under RTNL.
    pub fn lock() -> RtnlGuard {
        // SAFETY: Process context by this function's contract.
        unsafe { bindings::rtnl_lock() };
        RtnlGuard {
            // SAFETY: RTNL was just taken and is held until the guard is dropped; the task held no
            // token before, since it did not hold RTNL.
            token: unsafe { Rtnl::assume() },
        }
    }
}

/// The error that has a system call made again: what it waits for cannot be waited for here.
///
/// # Context
///
/// In a system call, which ends with this error.
pub fn retry() -> Error {
    // SAFETY: We are in a system call.
    Error::from_errno(unsafe { bindings::ipoib_rs_restart_syscall() })
}

/// RTNL, held until this value is dropped.
///
/// Dropping it also waits for the devices that were unregistered under it.
#[must_use = "RTNL is released when the guard is dropped"]
pub struct RtnlGuard {
    token: Rtnl,
}

impl Deref for RtnlGuard {
    type Target = Rtnl;

    fn deref(&self) -> &Rtnl {
        &self.token
    }
}

impl DerefMut for RtnlGuard {
    fn deref_mut(&mut self) -> &mut Rtnl {
        &mut self.token
    }
}

impl Drop for RtnlGuard {
    fn drop(&mut self) {
        // SAFETY: The guard took RTNL in `Rtnl::lock` and nobody else released it.
        unsafe { bindings::rtnl_unlock() };
    }
}

/// A value that RTNL protects.
pub struct RtnlCell<T> {
    value: UnsafeCell<T>,
}

// SAFETY: The value is reached only through the one usable `Rtnl` token, which exists in one task
// at a time, so sharing the cell moves access to `T` between tasks: `T: Send` is what that needs.
unsafe impl<T: Send> Sync for RtnlCell<T> {}

impl<T> RtnlCell<T> {
    /// Wraps `value`.
    pub const fn new(value: T) -> Self {
        Self {
            value: UnsafeCell::new(value),
        }
    }

    /// The value, for as long as the token is borrowed.
    pub fn get<'a>(&'a self, _rtnl: &'a mut Rtnl) -> &'a mut T {
        // SAFETY: The token is unique and borrowed mutably for as long as the result lives, so no
        // second reference to the value can be made meanwhile.
        unsafe { &mut *self.value.get() }
    }
}

#[kunit_tests(rust_netdev_rtnl)]
mod tests {
    use super::*;

    /// The token proves that the lock is held; nobody else can take it until the guard is dropped.
    #[test]
    fn the_token_is_the_lock() {
        for _ in 0..2 {
            let mut held = Rtnl::lock();
            // SAFETY: May be asked anywhere.
            assert!(unsafe { bindings::rtnl_is_locked() } != 0);
            assert!(Rtnl::try_lock().is_none());
            let cell = RtnlCell::new(1);
            *cell.get(&mut held) += 1;
            assert_eq!(*cell.get(&mut held), 2);
        }
    }
}
