// SPDX-License-Identifier: GPL-2.0

//! Capture files (draft-ietf-opsawg-pcap): a header, and records of packets with nanoseconds. All
//! numbers of the format are little-endian, whatever the machine.
//!
//! The link type is that of Endace's extensible record format, with which each packet has another
//! header. It is how Wireshark reads InfiniBand packets in such files: LINKTYPE_INFINIBAND (247) is
//! registered, but it does not know it.

use super::MAX_PACKET;
use crate::bits::{copy, Field};

/// The link type of packets with a header of the extensible record format.
const LINKTYPE_ERF: u32 = 197;

/// The type of an extensible record with an InfiniBand packet.
const ERF_INFINIBAND: u8 = 21;

/// The flag of an extensible record that is as long as its packet.
const ERF_VARYING: u8 = 0x04;

/// Bytes of the header of an extensible record.
const ERF: usize = 16;

/// The first number of a file whose times are in nanoseconds.
const MAGIC: u32 = 0xa1b2_3c4d;

/// Bytes of the header of a file.
pub const FILE: usize = 24;

/// Bytes of the headers of a record.
pub const RECORD: usize = 16 + ERF;

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// Writes numbers in their order, as far as there is room.
fn write(numbers: &[u32], bytes: &mut [u8]) {
    for (place, number) in bytes.chunks_exact_mut(4).zip(numbers) {
        copy(&number.to_le_bytes(), place);
    }
}

/// Makes the header of a file.
pub fn file() -> [u8; FILE] {
    let version = 2 | (4 << 16);
    let most = MAX_PACKET.saturating_add(ERF) as u32;
    let mut bytes = [0; FILE];
    write(&[MAGIC, version, 0, 0, most, LINKTYPE_ERF], &mut bytes);
    bytes
}

/// Makes the headers of a record with all of a packet: `time` in nanoseconds since 1970, and the
/// bytes that follow.
pub fn record(time: u64, len: u16) -> [u8; RECORD] {
    let (seconds, rest) = (time.wrapping_div(SECOND), time.wrapping_rem(SECOND));
    // In units of 2^-32 seconds.
    let fraction = (rest << 32).wrapping_div(SECOND);
    let with_header = len.saturating_add(ERF as u16);
    let all = u32::from(with_header);
    let mut bytes = [0; RECORD];
    let numbers = [
        seconds as u32,
        rest as u32,
        all,
        all,
        fraction as u32,
        seconds as u32,
    ];
    write(&numbers, &mut bytes);
    Field::bytes(24, 1).put(&mut bytes, ERF_INFINIBAND);
    Field::bytes(25, 1).put(&mut bytes, ERF_VARYING);
    Field::bytes(26, 2).put(&mut bytes, with_header);
    Field::bytes(30, 2).put(&mut bytes, len);
    bytes
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_wire_pcap))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    #[test]
    fn headers() {
        let expected = [
            0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x66, 0x10, 0, 0, 197, 0,
            0, 0,
        ];
        assert_eq!(file(), expected);
        // 2.5 seconds, 265 bytes; then 0x80000000, 2, type, flags, both lengths around the color.
        let expected = [
            2, 0, 0, 0, 0, 0x65, 0xcd, 0x1d, 25, 1, 0, 0, 25, 1, 0, 0, 0, 0, 0, 0x80, 2, 0, 0, 0,
            21, 4, 1, 25, 0, 0, 1, 9,
        ];
        assert_eq!(record(2 * SECOND + SECOND / 2, 265), expected);
    }
}
