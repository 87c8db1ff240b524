// SPDX-License-Identifier: GPL-2.0

//! Texts of single values, as users write them. White space around them does not count.

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
