// SPDX-License-Identifier: GPL-2.0

//! Private data of REQ, REP and REJ.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../../drivers/infiniband/ulp/ipoib_rs/proto/tests/checks/private.rs"]
mod private;

fuzz_target!(|bytes: &[u8]| {
    private::of_a_request(bytes);
    private::of_a_rejection(bytes);
});
