// SPDX-License-Identifier: GPL-2.0

//! Packets that this host passes on as a router: fragments, and frames that a device segments.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../../drivers/infiniband/ulp/ipoib_rs/proto/tests/checks/packet.rs"]
mod packet;

fuzz_target!(|input: (u16, u16, bool, bool, &[u8])| {
    let (mtu, more, ignore_df, right, bytes) = input;
    let (mtu, len) = (usize::from(mtu), bytes.len() + usize::from(more));
    let mut bytes = bytes.to_vec();
    let header = bytes
        .first()
        .map_or(0, |first| usize::from(first & 0xf) * 4);
    // Random bytes hardly ever have a correct checksum.
    if right && header >= 20 && header <= bytes.len() {
        bytes[10..12].fill(0);
        let sum = packet::checksum(&bytes[..header]);
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    packet::is_split(&bytes, len, mtu, ignore_df);
    packet::is_segmented(&bytes, mtu, usize::from(more));
});
