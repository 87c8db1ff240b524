// SPDX-License-Identifier: GPL-2.0

//! Refers to the kernel crate, so that the symbols of its object file tell whether the metadata
//! belongs to the kernel that exports them.

use kernel::prelude::*;

const __LOG_PREFIX: &[u8] = b"probe\0";

/// Links against a function that the kernel exports.
pub fn probe() {
    pr_info!("{}\n", 0);
}
