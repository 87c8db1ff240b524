// SPDX-License-Identifier: GPL-2.0

//! Callbacks that a driver may leave out.

/// Evaluates to a callback of `Self`, or to the function that is named, if driver `T` has the method behind it.
macro_rules! optional {
    ($has:ident, $callback:ident) => {
        optional!($has, Self::$callback)
    };
    ($has:ident, $($callback:tt)+) => {
        if T::$has {
            Some($($callback)+)
        } else {
            None
        }
    };
}

pub(crate) use optional;
