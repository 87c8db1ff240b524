// SPDX-License-Identifier: GPL-2.0

//! The checksums of a frame: of the header of IPv4, and of TCP or UDP.

use core::ops::Range;

use super::headers::{Network, TCP, TCP_LEAST, UDP, UDP_HEADER};
use super::sum::Sum;
use crate::bits::copy;

/// Checksums that a frame has, and the places of all that they are over.
///
/// One that it has is filled in, or checked, whatever was there before: adapters do not take the sum of the pseudo
/// header from the field as a start.
#[derive(Clone, Copy, Debug)]
pub struct Checksums {
    network: Network,
    transport: Option<Transport>,
}

/// TCP or UDP in a frame.
#[derive(Clone, Copy, Debug)]
struct Transport {
    udp: bool,
    /// Place in the frame of its header.
    start: usize,
    /// Place in the frame behind its payload.
    end: usize,
    /// Place in the frame of its checksum.
    checksum: usize,
    /// Bytes of it that are behind the head of the frame.
    rest: usize,
}

impl Transport {
    /// Finds the protocol behind an IP header, whose datagram ends at `end`.
    fn parse(network: &Network, head: &[u8], end: usize) -> Option<Transport> {
        let start = network.end;
        let room = end.checked_sub(start)?;
        let (udp, len, field) = match network.protocol {
            _ if network.fragment => return None,
            TCP if room >= TCP_LEAST => (false, room, 16usize),
            UDP if room >= UDP_HEADER => {
                let &[_, _, _, _, high, low, ..] = head.get(start..)? else {
                    return None;
                };
                // There may be other things behind it in the datagram.
                let len = usize::from(u16::from_be_bytes([high, low]));
                (true, len, 6)
            }
            _ => return None,
        };
        let checksum = start.checked_add(field)?;
        let fits = !udp || (UDP_HEADER..=room).contains(&len);
        // All of the header has to be in the head, with its checksum.
        if !fits || checksum.checked_add(2)? > head.len() {
            return None;
        }
        let end = start.checked_add(len)?;
        Some(Transport {
            udp,
            start,
            end,
            checksum,
            rest: end.saturating_sub(head.len()),
        })
    }

    /// Returns the bytes that are in the head.
    fn part<'a>(&self, head: &'a [u8]) -> Option<&'a [u8]> {
        head.get(self.start..self.end.min(head.len()))
    }

    /// Returns the place of the checksum in the head.
    fn field(&self) -> Range<usize> {
        self.checksum..self.checksum.saturating_add(2)
    }

    /// Returns the sum of the pseudo header (RFC 9293, section 3.1; RFC 8200, section 8.1) and of what is in the head.
    fn begin(&self, network: &Network, head: &[u8]) -> Option<Sum> {
        let mut sum = Sum::new();
        sum.add(network.addresses(head)?);
        sum.add_word(network.protocol.into());
        // The upper half of IPv6's length is 0.
        sum.add_word(u16::try_from(self.end.checked_sub(self.start)?).ok()?);
        sum.add(self.part(head)?);
        Some(sum)
    }
}

impl Checksums {
    /// Finds the checksums of a frame of `len` bytes that begins with `head`, which has all headers:
    /// [`HEAD`](super::HEAD) bytes do in any case, and the whole frame if it is shorter. `None` if it
    /// is no frame of IP.
    pub fn find(head: &[u8], len: usize) -> Option<Checksums> {
        let network = Network::parse(head)?;
        let end = network.datagram_end(head, len)?;
        Some(Checksums {
            network,
            transport: Transport::parse(&network, head, end),
        })
    }

    /// Returns how many bytes behind the head go into the sum.
    pub fn rest(&self) -> usize {
        self.transport.map_or(0, |transport| transport.rest)
    }

    /// Clears the checksums of the head, and returns the sum that the rest is to be added to.
    pub fn begin(&self, head: &mut [u8]) -> Sum {
        let Some(transport) = &self.transport else {
            return Sum::new();
        };
        if let Some(field) = head.get_mut(transport.field()) {
            field.fill(0);
        }
        transport.begin(&self.network, head).unwrap_or_default()
    }

    /// Fills the checksums in. `sum` is from [`Checksums::begin`], and has the rest in it.
    pub fn fill(&self, head: &mut [u8], sum: &Sum) {
        if let Some((_, field)) = self.network.checked(head) {
            field.put(head, 0u16);
            let mut own = Sum::new();
            if let Some((bytes, _)) = self.network.checked(head) {
                own.add(bytes);
            }
            field.put(head, own.checksum());
        }
        let Some(transport) = &self.transport else {
            return;
        };
        let checksum = match sum.checksum() {
            // 0 says that there is none (RFC 768).
            0 if transport.udp => 0xffff,
            checksum => checksum,
        };
        if let Some(field) = head.get_mut(transport.field()) {
            copy(&checksum.to_be_bytes(), field);
        }
    }

    /// Returns the sum that the rest is to be added to, and that [`Sum::is_right`] then, if the checksum of TCP or UDP
    /// is right. `None` if there is no such, or if that of the IP header is wrong.
    pub fn check(&self, head: &[u8]) -> Option<Sum> {
        let transport = self.transport.as_ref()?;
        if let Some((bytes, _)) = self.network.checked(head) {
            let mut own = Sum::new();
            own.add(bytes);
            if !own.is_right() {
                return None;
            }
        }
        let without = transport.udp && head.get(transport.field())? == [0, 0];
        if without {
            return None;
        }
        transport.begin(&self.network, head)
    }
}
