// SPDX-License-Identifier: GPL-2.0

//! Texts of sysfs, sysctl and debugfs, as ipoibctl judges and shows them.

#![no_main]

use ipoibctl::checks;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (bool, Vec<(u8, &str)>)| checks::texts(input.0, &input.1));
