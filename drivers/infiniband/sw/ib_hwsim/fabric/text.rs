// SPDX-License-Identifier: GPL-2.0

//! Texts of single values, as users write them. White space around numbers and switches does not count.

use core::ops::RangeInclusive;

/// Parses a switch: `0`, `n` or `off`; `1`, `y` or `on`.
pub fn flag(text: &str) -> Option<bool> {
    match text.trim_ascii() {
        "0" | "n" | "off" => Some(false),
        "1" | "y" | "on" => Some(true),
        _ => None,
    }
}

/// Parses a decimal number. A sign is none of its digits.
pub fn decimal(text: &str) -> Option<u64> {
    let digits = text.trim_ascii();
    let valid = digits.bytes().all(|byte| byte.is_ascii_digit());
    valid.then(|| digits.parse().ok())?
}

/// Parses a decimal number within limits.
pub fn number(text: &str, limits: RangeInclusive<u32>) -> Option<u32> {
    let number = u32::try_from(decimal(text)?).ok()?;
    limits.contains(&number).then_some(number)
}

/// Makes an enum whose values have words.
macro_rules! words {
    (
        $(#[$doc:meta])*
        pub enum $name:ident {
            $($(#[$about:meta])* $value:ident = $word:literal,)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$about])* $value,)*
        }

        impl $name {
            /// All values in their order.
            pub const ALL: &'static [$name] = &[$($name::$value,)*];

            /// Returns the word.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $($name::$value => $word,)*
                }
            }

            /// Returns the word as a string of C's.
            pub const fn as_c_str(self) -> &'static core::ffi::CStr {
                let bytes = match self {
                    $($name::$value => concat!($word, "\0").as_bytes(),)*
                };
                match core::ffi::CStr::from_bytes_with_nul(bytes) {
                    Ok(word) => word,
                    Err(_) => c"",
                }
            }

            /// Parses a word.
            pub fn parse(word: &str) -> Option<$name> {
                match word {
                    $($word => Some($name::$value),)*
                    _ => None,
                }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

pub(crate) use words;
