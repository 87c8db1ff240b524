// SPDX-License-Identifier: GPL-2.0

//! Answers of rtnetlink, as ipoibctl reads them.

#![no_main]

use ipoibctl::checks;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| checks::datagram(bytes));
