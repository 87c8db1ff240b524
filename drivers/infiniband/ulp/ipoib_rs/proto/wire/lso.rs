// SPDX-License-Identifier: GPL-2.0

//! Frames of TCP that a device can segment (large send offload).
//!
//! A device makes the headers of all segments of those of the frame, which it parses for that. It may be
//! asked for frames that it understands only: TCP over IPv4, with whatever options, and over IPv6 without
//! extension headers. No more bytes than [`MAX_HEADERS`] are in front of their payload.

use crate::wire::header::{EtherType, Header};

/// The most bytes of the headers of encapsulation, IPv4 and TCP.
pub const MAX_HEADERS: usize = Header::LEN + 60 + 60;

const TCP: u8 = 6;
const V4_LEAST: usize = 20;
const V6_LEN: usize = 40;
const TCP_LEAST: usize = 20;
/// The flag More Fragments, and the offset (RFC 791, section 3.1).
const FRAGMENT: u16 = 0x3fff;

/// Returns the bytes in front of the payload of TCP, the encapsulation header's among them; `head` has
/// at least these bytes of a frame, from that header on. None: it is no frame that a device can segment, or
/// `head` has not all of the headers.
#[inline]
pub fn headers_len(head: &[u8]) -> Option<usize> {
    let (header, packet) = head.split_first_chunk::<{ Header::LEN }>()?;
    let ether_type = EtherType(u16::from_be_bytes([header[0], header[1]]));
    let (network, protocol) = match (ether_type, packet.first()? >> 4) {
        (EtherType::IPV4, 4) => v4(packet)?,
        (EtherType::IPV6, 6) => (V6_LEN, *packet.get(6)?),
        _ => return None,
    };
    if protocol != TCP {
        return None;
    }
    let transport = usize::from(packet.get(network..)?.get(12)? >> 4).checked_mul(4)?;
    let len = Header::LEN.checked_add(network)?.checked_add(transport)?;
    (transport >= TCP_LEAST && len <= head.len()).then_some(len)
}

/// Returns the bytes in front of the payload as [`headers_len`], of a frame that a device can segment into segments of
/// `size` bytes of payload, if these with their headers are no longer than `max`.
#[inline]
pub fn segmentable(head: &[u8], size: usize, max: usize) -> Option<usize> {
    let headers = headers_len(head)?;
    (headers.checked_add(size)? <= max).then_some(headers)
}

/// Returns length and protocol of a header of IPv4, which is no fragment's.
#[inline]
fn v4(packet: &[u8]) -> Option<(usize, u8)> {
    let head = packet.first_chunk::<V4_LEAST>()?;
    let len = usize::from(head[0] & 0xf).checked_mul(4)?;
    let fragment = u16::from_be_bytes([head[6], head[7]]) & FRAGMENT;
    (len >= V4_LEAST && fragment == 0).then_some((len, head[9]))
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_lso))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    /// A frame of TCP over IPv4 with the most options, and some payload.
    fn longest() -> [u8; MAX_HEADERS + 8] {
        let mut frame = [0; MAX_HEADERS + 8];
        frame[0] = 0x08;
        frame[4] = 0x4f;
        frame[10] = 0x40;
        frame[13] = TCP;
        frame[4 + 60 + 12] = 0xf0;
        frame
    }

    fn v6() -> [u8; 4 + 40 + 32 + 8] {
        let mut frame = [0; 4 + 40 + 32 + 8];
        frame[..2].copy_from_slice(&[0x86, 0xdd]);
        frame[4] = 0x60;
        frame[10] = TCP;
        frame[4 + 40 + 12] = 0x80;
        frame
    }

    #[test]
    fn headers_of_both_versions() {
        assert_eq!(headers_len(&longest()), Some(MAX_HEADERS));
        assert_eq!(headers_len(&v6()), Some(4 + 40 + 32));
        let mut least = longest();
        least[4] = 0x45;
        least[4 + 20 + 12] = 0x50;
        assert_eq!(headers_len(&least), Some(44));
        // The reserved bytes are not looked at.
        least[2] = 1;
        assert_eq!(headers_len(&least), Some(44));
    }

    #[test]
    fn no_less_than_all_headers() {
        let frame = longest();
        for len in 0..frame.len() {
            let expected = (len >= MAX_HEADERS).then_some(MAX_HEADERS);
            assert_eq!(headers_len(&frame[..len]), expected);
        }
        let frame = v6();
        for len in 0..frame.len() {
            assert_eq!(headers_len(&frame[..len]), (len >= 76).then_some(76));
        }
    }

    /// A segment with all its headers is as long as a datagram may be, and no longer.
    #[test]
    fn segments_that_fit() {
        let frame = v6();
        for (size, max, fits) in [
            (2048 - 76, 2048, true),
            (2048 - 75, 2048, false),
            (2048 - 76, 2047, false),
            (usize::MAX, 2048, false),
        ] {
            assert_eq!(segmentable(&frame, size, max), fits.then_some(76));
        }
        assert_eq!(segmentable(&frame[..60], 100, 2048), None);
    }

    #[test]
    fn nothing_that_a_device_would_misread() {
        // The place and value of a byte that makes something else of the frame.
        for (at, byte) in [
            (1, 6),     // ARP
            (0, 0x86),  // no type
            (4, 0x65),  // not the version of the type
            (4, 0x44),  // a header of 16 bytes
            (10, 0x20), // the first fragment
            (11, 1),    // a fragment behind it
            (13, 17),   // UDP
            (76, 0x40), // a header of TCP of 16 bytes
        ] {
            let mut frame = longest();
            frame[at] = byte;
            assert_eq!(headers_len(&frame), None);
        }
        // Extension headers, and another version.
        for (at, byte) in [(10, 0), (10, 44), (4, 0x40), (56, 0x40)] {
            let mut frame = v6();
            frame[at] = byte;
            assert_eq!(headers_len(&frame), None);
        }
    }
}
