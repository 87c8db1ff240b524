// SPDX-License-Identifier: GPL-2.0

//! Packets that ipoibctl captures, and ib_hwsim's files with such.

#![no_main]

use ipoibctl::checks;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, Vec<&[u8]>, &[u8])| {
    let (first, packets, file) = input;
    checks::packets(&packets);
    checks::growing(file, first.into());
});
