// SPDX-License-Identifier: GPL-2.0

//! Offloads for IP over InfiniBand: checksums of a frame's headers, and the segmentation of what TCP sends.
//!
//! A frame is the payload of a datagram: the encapsulation header of RFC 4391, section 6, and an IP
//! datagram. Adapters parse it, as they have nothing else to go by. Frames that they do not
//! understand stay as they are, and nothing is said of their checksums: all but TCP and UDP,
//! fragments, and IPv6 with extension headers.
//!
//! The memory of a frame is the caller's. The first [`HEAD`] bytes have all headers; of the rest,
//! the caller hands in the sum.

mod checksums;
mod headers;
mod segments;
mod sum;

pub use checksums::Checksums;
pub use segments::Segments;
pub use sum::Sum;

/// Bytes at the beginning of a frame that have all headers: of encapsulation, IPv4 and TCP with all their options.
pub const HEAD: usize = 4 + 60 + 60;
