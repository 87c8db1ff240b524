// SPDX-License-Identifier: GPL-2.0

//! Strings that are made of several.

use kernel::prelude::*;
use kernel::str::CStr;

/// A string made of several, which are names of devices and need not be UTF-8.
pub(crate) struct Joined(KVec<u8>);

impl Joined {
    /// Joins the strings.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(parts: &[&CStr]) -> Result<Self> {
        let mut joined = KVec::new();
        for part in parts {
            joined.extend_from_slice(part.to_bytes(), GFP_KERNEL)?;
        }
        joined.push(0, GFP_KERNEL)?;
        Ok(Self(joined))
    }

    /// The string.
    pub(crate) fn as_c_str(&self) -> &CStr {
        // None of the parts has a NUL.
        CStr::from_bytes_with_nul(&self.0).unwrap_or(c"")
    }
}
