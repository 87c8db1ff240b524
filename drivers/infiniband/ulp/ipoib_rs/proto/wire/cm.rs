// SPDX-License-Identifier: GPL-2.0

//! Private data in messages of the InfiniBand communication manager (RFC 4755): the interface that a
//! connection is for, and the sizes and features that its ends accept.
//!
//! The private data of REQ and REP (section 6) are 8 bytes: one reserved, 24 bits of the sender's UD
//! QPN, 32 bits of the largest message that it receives. Behind them, where RFC 4755 has nothing and
//! its implementations look at nothing, one of ours puts 16 more:
//!
//! | bytes | field |
//! |---|---|
//! | 8 to 11 | [`MAGIC`] |
//! | 12 | version, 3: an end sends only by connections that it has requested |
//! | 13 | what it takes: [`Flags::SEQ`] and [`Flags::ICRC`] as in the hardware address |
//! | 14, 15 | in a REP, messages that it can receive now, the first credit of the asker; in a REQ 0 |
//! | 16 to 19 | the largest message that it receives, extended frames included |
//! | 20 | channel: which of several connections of the same two ends, below [`MAX_CHANNELS`] |
//! | 21 to 23 | 0 |
//!
//! A rejection has the sender's UD QPN (section 3.2) as the first 4 bytes do, 4 bytes of 0, and, from
//! one of ours, [`MAGIC`] and a [`Refusal`].

use crate::wire::header::Header;
use crate::wire::hwaddr::{Flags, Qpn};

/// Magic number of our private data: "iprs".
pub const MAGIC: [u8; 4] = *b"iprs";
const VERSION: u8 = 3;

/// Features that an end can announce.
const FEATURES: Flags = Flags::SEQ.union(Flags::ICRC);

/// The length of RFC 4755's private data in bytes.
pub const BASE_LEN: usize = 8;
/// The length of ours.
pub const LEN: usize = 24;
/// The length of those of our rejections.
pub const REFUSAL_LEN: usize = 13;
/// The most connections that the same two ends have.
pub const MAX_CHANNELS: usize = 8;

/// The smallest message that an end must take: RFC 4755, section 5, has an MTU of 2044 by default,
/// but over a RoCE port with an InfiniBand MTU of 1024 there is no such thing; this is what a link for
/// IPv4 needs at least.
const MIN_MESSAGE: u32 = crate::wire::mtu::MIN_IPV4 + Header::LEN as u32;

/// The service of an interface as the RFC defines it (section 3.5): 0x01, a type of 0, 24 reserved
/// bits and the UD QPN.
pub const fn rfc_service_id(qpn: Qpn) -> u64 {
    let [_, q0, q1, q2] = qpn.get().to_be_bytes();
    u64::from_be_bytes([0x01, 0, 0, 0, 0, q0, q1, q2])
}

/// The service of an interface as Linux has it since it has connected mode.
pub const fn linux_service_id(qpn: Qpn) -> u64 {
    let [_, q0, q1, q2] = qpn.get().to_be_bytes();
    u64::from_be_bytes([0x10, 0, 0, 0, 0, q0, q1, q2])
}

/// Fields beyond RFC 4755, which one of ours adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension {
    /// Features that it accepts: [`Flags::SEQ`] and [`Flags::ICRC`].
    pub flags: Flags,
    /// In a REP, messages that the asker may send at first; 0 in a REQ.
    pub credits: u16,
    /// The largest message that it receives, in bytes, extended frames included.
    pub max_message: u32,
    /// Channel: which of several connections of the same two ends this is.
    pub channel: u8,
}

/// The private data of a REQ or a REP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrivateData {
    /// The UD QPN of the interface that sent it.
    pub qpn: Qpn,
    /// The largest message that it receives, in bytes, with the encapsulation header.
    pub receive_mtu: u32,
    /// There if the sender is one of ours and its extensions are on.
    pub extension: Option<Extension>,
}

impl PrivateData {
    /// Reads them. What is behind is ignored: the messages' fields are longer, and filled with
    /// anything.
    ///
    /// # Errors
    ///
    /// [`Refusal::Data`].
    pub fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let Some((base, rest)) = bytes.split_first_chunk::<BASE_LEN>() else {
            return Err(Refusal::Data);
        };
        let [_, q0, q1, q2, mtu @ ..] = *base;
        let qpn = Qpn::unicast(u32::from_be_bytes([0, q0, q1, q2])).ok_or(Refusal::Data)?;
        let receive_mtu = u32::from_be_bytes(mtu);
        if receive_mtu < MIN_MESSAGE {
            return Err(Refusal::Data);
        }
        Ok(PrivateData {
            qpn,
            receive_mtu,
            extension: extension(rest, receive_mtu)?,
        })
    }

    /// Writes them, and says how many bytes are to be sent.
    pub fn encode(&self) -> ([u8; LEN], usize) {
        let mut bytes = [0; LEN];
        let [_, q0, q1, q2] = self.qpn.get().to_be_bytes();
        let [m0, m1, m2, m3] = self.receive_mtu.to_be_bytes();
        let (base, rest) = bytes.split_at_mut(BASE_LEN);
        base.copy_from_slice(&[0, q0, q1, q2, m0, m1, m2, m3]);
        let Some(extension) = self.extension else {
            return (bytes, BASE_LEN);
        };
        let [i, p, r, s] = MAGIC;
        let [c0, c1] = extension.credits.to_be_bytes();
        let [x0, x1, x2, x3] = extension.max_message.to_be_bytes();
        let flags = extension.flags.0;
        let channel = extension.channel;
        rest.copy_from_slice(&[
            i, p, r, s, VERSION, flags, c0, c1, x0, x1, x2, x3, channel, 0, 0, 0,
        ]);
        (bytes, LEN)
    }
}

/// Reads the fields behind RFC 4755's private data, if they are ours and of a version that we know.
fn extension(bytes: &[u8], receive_mtu: u32) -> Result<Option<Extension>, Refusal> {
    let Some((magic, rest)) = bytes.split_first_chunk::<4>() else {
        return Ok(None);
    };
    if *magic != MAGIC {
        return Ok(None);
    }
    let [version, flags, c0, c1, x0, x1, x2, x3, channel, ..] = *rest else {
        return Err(Refusal::Data);
    };
    if version != VERSION {
        // Another version, which falls back to RFC 4755.
        return Ok(None);
    }
    let max_message = u32::from_be_bytes([x0, x1, x2, x3]);
    if max_message < receive_mtu || usize::from(channel) >= MAX_CHANNELS {
        return Err(Refusal::Data);
    }
    Ok(Some(Extension {
        flags: Flags(flags & FEATURES.0),
        credits: u16::from_be_bytes([c0, c1]),
        max_message,
        channel,
    }))
}

/// Reason for which one of ours rejects a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Refusal {
    /// There are no connections at present.
    Closed = 1,
    // 2 was a request that crossed one of ours.
    /// There is no room for another connection.
    Full = 3,
    /// The partition is not that of the interface.
    Partition = 4,
    /// The request is not sent to the GID of the interface.
    Gid = 5,
    /// The private data make no sense.
    Data = 6,
}

impl Refusal {
    /// The private data of the rejection that the interface with `qpn` sends.
    pub const fn encode(self, qpn: Qpn) -> [u8; REFUSAL_LEN] {
        let [_, q0, q1, q2] = qpn.get().to_be_bytes();
        let [i, p, r, s] = MAGIC;
        [0, q0, q1, q2, 0, 0, 0, 0, i, p, r, s, self as u8]
    }

    /// Reads the private data of a rejection; None if it is not from one of ours.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.get(BASE_LEN..)?.strip_prefix(&MAGIC)?;
        Some(match *rest.first()? {
            1 => Refusal::Closed,
            3 => Refusal::Full,
            4 => Refusal::Partition,
            5 => Refusal::Gid,
            6 => Refusal::Data,
            _ => return None,
        })
    }
}

/// The MTU of a connection (RFC 4755, section 5.1): what both ends receive, less the encapsulation
/// header.
pub fn connection_mtu(ours: u32, theirs: u32) -> u32 {
    ours.min(theirs).saturating_sub(Header::LEN as u32)
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_cm))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    const RFC: [u8; 8] = [0, 0x01, 0x02, 0x03, 0, 0, 0xff, 0xf4];
    const OURS: [u8; 24] = [
        0, 0x01, 0x02, 0x03, 0, 0, 0xff, 0xf4, b'i', b'p', b'r', b's', 3, 0x30, 0x01, 0x00, 0, 1,
        0x10, 0, 3, 0, 0, 0,
    ];

    fn qpn() -> Qpn {
        Qpn::unicast(0x010203).unwrap_or(Qpn::MULTICAST)
    }

    fn ours() -> PrivateData {
        PrivateData {
            qpn: qpn(),
            receive_mtu: 65524,
            extension: Some(Extension {
                flags: Flags(0x30),
                credits: 256,
                max_message: 0x11000,
                channel: 3,
            }),
        }
    }

    /// The smallest MTU that an end may have holds a packet that each link for IPv4 must carry, and its header; what
    /// an end takes beyond RFC 4755 is no less.
    #[test]
    fn the_smallest_messages() {
        for (mtu, is_taken) in [(71, false), (72, true)] {
            let mut bytes = RFC;
            bytes[4..].copy_from_slice(&u32::to_be_bytes(mtu));
            assert!(PrivateData::parse(&bytes).is_ok() == is_taken);
        }
        for (max_message, is_taken) in [(65523, false), (65524, true)] {
            let mut bytes = OURS;
            bytes[16..20].copy_from_slice(&u32::to_be_bytes(max_message));
            assert!(PrivateData::parse(&bytes).is_ok() == is_taken);
        }
    }

    /// RFC 4755, section 6.
    #[test]
    fn rfc4755_6_private_data() {
        let plain = PrivateData {
            extension: None,
            ..ours()
        };
        assert!(PrivateData::parse(&RFC) == Ok(plain));
        let (bytes, len) = plain.encode();
        assert!(bytes[..len] == RFC);
        // The reserved byte is ignored, and so is what is behind.
        let mut long = [0xa5; 92];
        long[1..8].copy_from_slice(&RFC[1..]);
        assert!(PrivateData::parse(&long) == Ok(plain));
    }

    #[test]
    fn private_data_of_ours() {
        assert!(PrivateData::parse(&OURS) == Ok(ours()));
        let (bytes, len) = ours().encode();
        assert!(len == LEN && bytes == OURS);
    }

    /// Undefined values are not believed.
    #[test]
    fn unknown_flags_and_versions() {
        let mut bytes = OURS;
        bytes[13] = 0xff;
        assert!(PrivateData::parse(&bytes) == Ok(ours()));
        // Versions 1 and 2 send by what the other end asked for, too.
        for version in [0, 1, 2, 4] {
            bytes[12] = version;
            assert!(PrivateData::parse(&bytes).is_ok_and(|data| data.extension.is_none()));
        }
    }

    #[test]
    fn what_is_of_no_use() {
        for len in 0..BASE_LEN {
            assert!(PrivateData::parse(&OURS[..len]) == Err(Refusal::Data));
        }
        for len in BASE_LEN + 4..BASE_LEN + 13 {
            assert!(PrivateData::parse(&OURS[..len]) == Err(Refusal::Data));
        }
        for (at, value, error) in [
            (4, [0, 0, 0, 71], Refusal::Data),
            (0, [0, 0, 0, 0], Refusal::Data),
            (0, [0, 0, 0, 1], Refusal::Data),
            (0, [0, 0xff, 0xff, 0xff], Refusal::Data),
            (16, [0, 0, 0xff, 0xf3], Refusal::Data),
            (20, [8, 0, 0, 0], Refusal::Data),
            (20, [0xff, 0, 0, 0], Refusal::Data),
        ] {
            let mut bytes = OURS;
            bytes[at..at + 4].copy_from_slice(&value);
            assert!(PrivateData::parse(&bytes) == Err(error));
        }
    }

    /// RFC 4755, section 3.2: a rejection says whose it is.
    #[test]
    fn rfc4755_3_2_rejections() {
        for refusal in [
            Refusal::Closed,
            Refusal::Full,
            Refusal::Partition,
            Refusal::Gid,
            Refusal::Data,
        ] {
            let bytes = refusal.encode(qpn());
            assert!(bytes[1..4] == [1, 2, 3]);
            assert!(Refusal::parse(&bytes) == Some(refusal));
            let mut long = [0; 148];
            long[..REFUSAL_LEN].copy_from_slice(&bytes);
            assert!(Refusal::parse(&long) == Some(refusal));
            assert!(Refusal::parse(&bytes[..REFUSAL_LEN - 1]).is_none());
        }
        // Linux says nothing, and a later version may say something else.
        assert!(Refusal::parse(&[0; 148]).is_none() && Refusal::parse(&[]).is_none());
        let mut bytes = Refusal::Data.encode(qpn());
        bytes[12] = 99;
        assert!(Refusal::parse(&bytes).is_none());
    }

    /// RFC 4755, section 3.5, and what Linux does instead.
    #[test]
    fn rfc4755_3_5_service_ids() {
        assert!(rfc_service_id(qpn()) == 0x0100_0000_0001_0203);
        assert!(linux_service_id(qpn()) == 0x1000_0000_0001_0203);
    }

    /// RFC 4755, section 5.1.
    #[test]
    fn rfc4755_5_1_connection_mtu() {
        assert!(connection_mtu(65524, 2048) == 2044);
        assert!(connection_mtu(4096, 65524) == 4092);
        assert!(connection_mtu(65524, 65524) == 65520);
    }
}
