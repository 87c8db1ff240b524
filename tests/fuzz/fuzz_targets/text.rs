// SPDX-License-Identifier: GPL-2.0

//! Texts for the files of an interface and the parameters of the module.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../../drivers/infiniband/ulp/ipoib_rs/proto/tests/checks/text.rs"]
mod text;

fuzz_target!(|bytes: &[u8]| {
    text::is_a_number(bytes);
    text::is_a_selection(bytes);
    let pkey = bytes
        .first_chunk()
        .map_or(0, |key| u16::from_be_bytes(*key));
    text::is_a_name(bytes, pkey);
});
