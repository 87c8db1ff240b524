// SPDX-License-Identifier: GPL-2.0

//! Messages of connections, of which the device shows the first bytes, and says how long they are.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../../drivers/infiniband/ulp/ipoib_rs/proto/tests/checks/message.rs"]
mod message;

fuzz_target!(|input: (u16, &[u8])| {
    let (more, bytes) = input;
    message::read_one_way(bytes, bytes.len());
    message::read_one_way(bytes, bytes.len() + usize::from(more));
    message::read_one_way(bytes, usize::from(more));
});
