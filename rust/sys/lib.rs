// SPDX-License-Identifier: GPL-2.0

//! Raw bindings to the kernel's network, RDMA and configfs interfaces.
//!
//! The `kernel` crate's own bindings hold neither `net_device` nor `ib_*`, so this crate generates
//! its own with bindgen, once: a crate that generated a second copy would get different types. The
//! C inlines and macros that a safe abstraction needs are wrapped in `helpers_*.c`.
//!
//! Only the crates in `rust/` may use it. The driver crates do not name it.

#![crate_name = "ipoib_sys"]
#![allow(
    clippy::all,
    clippy::as_underscore,
    clippy::cast_lossless,
    clippy::ptr_as_ptr,
    clippy::ptr_cast_constness,
    clippy::ref_as_ptr,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    improper_ctypes,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_op_in_unsafe_fn
)]

// Callbacks with enums have other types in Rust than C checks for: the first one would end the kernel.
#[cfg(CONFIG_CFI)]
compile_error!("CONFIG_CFI is not supported");

pub mod text;

/// The output of bindgen.
pub mod bindings {
    use kernel::ffi;
    use pin_init::{MaybeZeroable, Zeroable};

    // The kernel's bindgen parameters block these so that they can be given by hand.
    type __kernel_size_t = usize;
    type __kernel_ssize_t = isize;
    type __kernel_ptrdiff_t = isize;

    // SAFETY: `__BindgenBitfieldUnit<Storage>` is a newtype around `Storage`.
    unsafe impl<Storage> Zeroable for __BindgenBitfieldUnit<Storage> where Storage: Zeroable {}

    include!(env!("IPOIB_RS_GENERATED"));
}

/// Declares static keys of tracepoints, which C defines, for [`tracepoint_is_on`].
///
/// The kernel crate's `declare_trace!` looks for them in bindings of its own.
#[macro_export]
macro_rules! tracepoint_keys {
    ($($key:ident),* $(,)?) => {
        mod keys {
            #![allow(non_upper_case_globals)]
            use kernel::bindings::tracepoint;

            extern "C" {
                $(pub(super) static $key: tracepoint;)*
            }
        }
    };
}

/// Evaluates to true if somebody uses a tracepoint whose key [`tracepoint_keys`] has declared.
///
/// A branch that is patched into the code would need a file of the kernel's build that no header package has.
#[macro_export]
macro_rules! tracepoint_is_on {
    ($key:ident) => {{
        #[cfg(CONFIG_TRACEPOINTS)]
        // SAFETY: C has defined it, and changes the counter of its users atomically; nobody orders anything by it.
        let on =
            unsafe { core::ptr::read_volatile(&raw const keys::$key.key.key.enabled.counter) } != 0;
        #[cfg(not(CONFIG_TRACEPOINTS))]
        let on = false;
        on
    }};
}
