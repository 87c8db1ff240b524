// SPDX-License-Identifier: GPL-2.0

//! The bytes of a frame, behind the header of the network device:
//!
//! ======  ==================================================================================
//! Bytes   Contents, numbers in network order
//! ======  ==================================================================================
//! 0       version, 1
//! 1       kind: 1 for a hello, 2 for a packet
//! 2-3     reserved: zero when sent, not looked at when received
//! 4-7     session of the sender, not 0; another one each time that the link goes down
//! 8-11    packets that the sender has sent, with this one
//! 12-15   number of the latest packet that the sender has received
//! ======  ==================================================================================
//!
//! In a packet, the bytes from LRH to VCRC follow; in a hello:
//!
//! ======  ==================================================================================
//! 16-19   session of the other end that the sender has heard last; 0 for none
//! 20      bit 0: the port takes part in training, and the next four bytes have a meaning
//! 21-24   widths and speeds as masks, MTU and VLs as codes (section 14.2.5.6)
//! 25-27   reserved
//! ======  ==================================================================================

use crate::link::LinkOffer;
use crate::mtu::Mtu;

/// An EtherType for experiments in a local network (IEEE 802).
pub const ETHER_TYPE: u16 = 0x88b5;

/// Bytes of the header.
pub const HEADER: usize = 16;

/// Bytes of a hello.
pub const HELLO_LEN: usize = 28;

/// The shortest payload that an Ethernet frame has: shorter ones are padded.
const SHORTEST: usize = 46;

const VERSION: u8 = 1;

mod kind {
    pub(super) const HELLO: u8 = 1;
    pub(super) const PACKET: u8 = 2;
}

mod field {
    use crate::bits::Field;

    pub(super) const VERSION: Field = Field::bytes(0, 1);
    pub(super) const KIND: Field = Field::bytes(1, 1);
    pub(super) const SESSION: Field = Field::bytes(4, 4);
    pub(super) const SENT: Field = Field::bytes(8, 4);
    pub(super) const SEEN: Field = Field::bytes(12, 4);
    pub(super) const HEARD: Field = Field::bytes(16, 4);
    pub(super) const OFFERS: Field = Field::bits(20, 0, 1);
    pub(super) const WIDTHS: Field = Field::bytes(21, 1);
    pub(super) const SPEEDS: Field = Field::bytes(22, 1);
    pub(super) const MTU: Field = Field::bytes(23, 1);
    pub(super) const VLS: Field = Field::bytes(24, 1);
}

/// Header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The session of the sender.
    pub session: u32,
    /// Packets that it has sent.
    pub sent: u32,
    /// Number of the latest packet that it has received.
    pub seen: u32,
}

/// Contents of a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The session of the receiver that the sender has heard last; 0 for none.
    pub heard: u32,
    /// The offer of the sender's port at training; `None` if it takes no part in that.
    pub offer: Option<LinkOffer>,
}

/// A frame that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A hello.
    Hello(Header, Hello),
    /// A packet, from LRH on. There may be padding behind it.
    Packet(Header, &'a [u8]),
}

impl Header {
    fn write(&self, kind: u8, bytes: &mut [u8]) {
        field::VERSION.put(bytes, VERSION);
        field::KIND.put(bytes, kind);
        field::SESSION.put(bytes, self.session);
        field::SENT.put(bytes, self.sent);
        field::SEEN.put(bytes, self.seen);
    }

    /// Makes the header of a frame with a packet.
    pub fn packet(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        self.write(kind::PACKET, &mut bytes);
        bytes
    }

    /// Writes the numbers that change as a frame waits to be sent into the header that it begins with.
    pub fn stamp(&self, frame: &mut [u8]) {
        field::SENT.put(frame, self.sent);
        field::SEEN.put(frame, self.seen);
    }
}

impl Hello {
    /// Makes a frame.
    pub fn frame(&self, header: &Header) -> [u8; HELLO_LEN] {
        let mut bytes = [0; HELLO_LEN];
        header.write(kind::HELLO, &mut bytes);
        field::HEARD.put(&mut bytes, self.heard);
        if let Some(offer) = &self.offer {
            field::OFFERS.put(&mut bytes, true);
            field::WIDTHS.put(&mut bytes, offer.widths);
            field::SPEEDS.put(&mut bytes, offer.speeds);
            field::MTU.put(&mut bytes, offer.mtu as u8);
            field::VLS.put(&mut bytes, offer.vl_cap);
        }
        bytes
    }

    fn parse(bytes: &[u8; HELLO_LEN]) -> Option<Hello> {
        let offer = if field::OFFERS.u8(bytes) != 0 {
            Some(LinkOffer {
                widths: field::WIDTHS.u8(bytes),
                speeds: field::SPEEDS.u8(bytes),
                mtu: Mtu::from_code(field::MTU.u8(bytes))?,
                vl_cap: field::VLS.u8(bytes),
            })
        } else {
            None
        };
        let heard = field::HEARD.u32(bytes);
        Some(Hello { heard, offer })
    }
}

/// Reads a frame, behind the header of the network device. `None` if the bytes are none: they end too early, are of
/// another version or another kind, or name no session; or a hello offers what there is not.
pub fn parse(bytes: &[u8]) -> Option<Frame<'_>> {
    let (head, rest) = bytes.split_at_checked(HEADER)?;
    if field::VERSION.u8(head) != VERSION {
        return None;
    }
    let header = Header {
        session: field::SESSION.u32(head),
        sent: field::SENT.u32(head),
        seen: field::SEEN.u32(head),
    };
    if header.session == 0 {
        return None;
    }
    match field::KIND.u8(head) {
        kind::HELLO => {
            let hello = bytes.first_chunk()?;
            Some(Frame::Hello(header, Hello::parse(hello)?))
        }
        kind::PACKET => Some(Frame::Packet(header, rest)),
        _ => None,
    }
}

/// Returns true if a frame of `all` bytes may have a packet of `len` bytes: there is nothing behind it but what
/// fills a short frame up.
pub fn fits(all: usize, len: usize) -> bool {
    let frame = len.saturating_add(HEADER);
    all == frame || all <= SHORTEST && frame <= all
}
