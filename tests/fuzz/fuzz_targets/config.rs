// SPDX-License-Identifier: GPL-2.0

//! The record of ipoibctl tune, and lines of sysctl's configuration.

#![no_main]

use ipoibctl::checks;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    checks::record(text);
    text.lines().for_each(checks::line);
});
