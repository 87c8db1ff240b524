// SPDX-License-Identifier: GPL-2.0

//! Formatting that works in both worlds.
//!
//! The kernel's `fmt!` takes its own `Display` trait instead of `core::fmt::Display`, so that it
//! can format foreign types; a type that wants to be printed by both has to have both.

/// Implements `Display` for a type, in the kernel also the kernel's own.
///
/// The closure-like argument names the value and the formatter.
macro_rules! impl_display {
    ($ty:ty, |$this:ident, $f:ident| $body:expr) => {
        impl core::fmt::Display for $ty {
            fn fmt(&self, $f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                let $this = self;
                $body
            }
        }

        #[cfg(CONFIG_RUST)]
        impl kernel::fmt::Display for $ty {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Display::fmt(self, f)
            }
        }
    };
}
