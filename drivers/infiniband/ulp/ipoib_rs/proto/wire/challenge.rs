// SPDX-License-Identifier: GPL-2.0

//! The challenge by which a peer that has asked for a connection proves whose it is.
//!
//! A REQ bears the address of whoever sends it, but on InfiniBand any user of a host may send one that names an interface of
//! that host, and take the answer. No user receives what is sent to the interface, nor has its queue pairs. So the end
//! that was asked sends a random number to the address, by UD, and the driver there sends the message back by the
//! connection, if it is one that it has asked for itself.
//!
//! Both messages are 16 bytes: the encapsulation header with an EtherType of its own, one byte of 0, 24 bits of the
//! asker's RC QPN, which tell its connections apart, and the number.

use crate::wire::header::{EtherType, Header};
use crate::wire::rx::GRH_LEN;

/// The length of a challenge, and of its answer, in bytes.
pub const LEN: usize = 16;

/// Time after a challenge for which further challenges of that connection are not answered, in milliseconds. An answer
/// costs us more than the challenge costs the peer, which repeats it once a second.
pub const PAUSE_MS: u64 = 500;

/// A challenge, or its answer, which is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// The asker's RC queue pair, 24 bits.
    pub qpn: u32,
    /// A number that nobody can guess.
    pub nonce: u64,
}

impl Challenge {
    /// Writes the message.
    pub const fn encode(self) -> [u8; LEN] {
        let [t0, t1, r0, r1] = Header::new(EtherType::CHALLENGE).to_bytes();
        let [_, q0, q1, q2] = self.qpn.to_be_bytes();
        let [a, b, c, d, e, f, g, h] = self.nonce.to_be_bytes();
        [t0, t1, r0, r1, 0, q0, q1, q2, a, b, c, d, e, f, g, h]
    }

    /// Reads a message of `len` bytes, which begins with `head`. None: it is another one, or malformed.
    pub fn parse(head: &[u8], len: usize) -> Option<Self> {
        let [t0, t1, _, _, _, q0, q1, q2, nonce @ ..] = *head.first_chunk::<LEN>()?;
        let ours = EtherType(u16::from_be_bytes([t0, t1])) == EtherType::CHALLENGE;
        (ours && len == LEN).then_some(Self {
            qpn: u32::from_be_bytes([0, q0, q1, q2]),
            nonce: u64::from_be_bytes(nonce),
        })
    }

    /// Reads the message of a datagram, with all that the device wrote. None as of [`Self::parse`].
    pub fn of_datagram(packet: &[u8]) -> Option<Self> {
        let message = packet.get(GRH_LEN..)?;
        Self::parse(message, message.len())
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_challenge))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    const CHALLENGE: Challenge = Challenge {
        qpn: 0x12_3456,
        nonce: 0x0102_0304_0506_0708,
    };
    const BYTES: [u8; LEN] = [
        0x01, 0x06, 0, 0, 0, 0x12, 0x34, 0x56, 1, 2, 3, 4, 5, 6, 7, 8,
    ];

    #[test]
    fn layout() {
        assert_eq!(CHALLENGE.encode(), BYTES);
        assert_eq!(Challenge::parse(&BYTES, LEN), Some(CHALLENGE));
        // RFC 4391, section 6: the reserved field is ignored on receipt. So is the byte in front of the QPN.
        let mut other = BYTES;
        other[2..5].copy_from_slice(&[0xab, 0xcd, 0xef]);
        assert_eq!(Challenge::parse(&other, LEN), Some(CHALLENGE));
    }

    #[test]
    fn what_is_none() {
        for ether_type in [0x0101u16, 0x0105, 0x0107, 0x0800, 0x0601] {
            let mut other = BYTES;
            other[..2].copy_from_slice(&ether_type.to_be_bytes());
            assert!(Challenge::parse(&other, LEN).is_none());
        }
        for len in 0..LEN {
            assert!(Challenge::parse(&BYTES[..len], len).is_none());
            assert!(Challenge::parse(&BYTES[..len], LEN).is_none());
            assert!(Challenge::parse(&BYTES, len).is_none());
        }
        for len in [LEN + 1, usize::MAX] {
            assert!(Challenge::parse(&BYTES, len).is_none());
        }
    }

    #[test]
    fn in_a_datagram() {
        let mut packet = [0xee; GRH_LEN + LEN];
        packet[GRH_LEN..].copy_from_slice(&BYTES);
        assert_eq!(Challenge::of_datagram(&packet), Some(CHALLENGE));
        for len in 0..packet.len() {
            assert!(Challenge::of_datagram(&packet[..len]).is_none());
        }
        let mut longer = [0; GRH_LEN + LEN + 1];
        longer[..packet.len()].copy_from_slice(&packet);
        assert!(Challenge::of_datagram(&longer).is_none());
    }
}
