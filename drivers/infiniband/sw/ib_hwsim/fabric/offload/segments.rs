// SPDX-License-Identifier: GPL-2.0

//! Large send offload: one request of TCP's as several datagrams.

use core::ops::Range;

use super::headers::{Network, TCP, TCP_LEAST};
use super::HEAD;
use crate::bits::Field;

/// Fields of a TCP header.
mod field {
    use crate::bits::Field;

    pub(super) const SEQUENCE: Field = Field::bytes(4, 4);
    pub(super) const WORDS: Field = Field::bits(12, 4, 4);
    pub(super) const CWR: Field = Field::bits(13, 7, 1);
    pub(super) const PSH: Field = Field::bits(13, 3, 1);
    pub(super) const FIN: Field = Field::bits(13, 0, 1);
}

/// The segments of a message, whose headers are made from one template.
#[derive(Clone, Copy, Debug)]
pub struct Segments {
    network: Network,
    /// Bytes of the template.
    header: usize,
    /// Bytes of payload in each segment but the last.
    mss: usize,
    /// Bytes of payload.
    payload: usize,
}

impl Segments {
    /// Plans the segments of `payload` bytes with up to `mss` in each. `None` if the template is anything but the
    /// headers of encapsulation, IP and TCP, or if a segment would be longer than an IP datagram.
    ///
    /// The lengths and checksums of the template do not count.
    pub fn new(template: &[u8], mss: usize, payload: usize) -> Option<Segments> {
        if template.len() > HEAD || mss == 0 {
            return None;
        }
        let network = Network::parse(template)?;
        let tcp = template.get(network.end..)?;
        let words = usize::from(field::WORDS.u8(tcp));
        let whole = tcp.len() >= TCP_LEAST && words.checked_mul(4)? == tcp.len();
        network.length(tcp.len().checked_add(mss.min(payload))?)?;
        let possible = whole && network.protocol == TCP && !network.fragment;
        possible.then_some(Segments {
            network,
            header: template.len(),
            mss,
            payload,
        })
    }

    /// Returns the number of segments: 1, if there is no payload.
    pub fn count(&self) -> usize {
        self.payload.div_ceil(self.mss).max(1)
    }

    /// Returns the places of a segment's bytes in the payload; `None` behind the last one.
    pub fn range(&self, index: usize) -> Option<Range<usize>> {
        if index >= self.count() {
            return None;
        }
        let start = index.checked_mul(self.mss)?;
        let end = start.saturating_add(self.mss).min(self.payload);
        Some(start..end)
    }

    /// Makes the header of a segment of a copy of the template: its length, the identification of
    /// IPv4, which is another one for each segment, and the sequence number. FIN and PSH are for the
    /// last one, and CWR is for the first (RFC 3168, section 6.1.2). The checksums are left to be
    /// filled in.
    pub fn write(&self, index: usize, header: &mut [u8]) {
        let Some(range) = self.range(index) else {
            return;
        };
        let tcp_header = self.header.saturating_sub(self.network.end);
        let bytes = tcp_header.saturating_add(range.len());
        // The longest segment has one.
        let length = self.network.length(bytes).unwrap_or(u16::MAX);
        self.network.set_length(header, length);
        self.network.advance_id(header, index as u16);
        let Some(tcp) = header.get_mut(self.network.end..) else {
            return;
        };
        let sequence = field::SEQUENCE.u32(tcp);
        field::SEQUENCE.put(tcp, sequence.wrapping_add(range.start as u32));
        let clear = |tcp: &mut [u8], flags: &[Field]| {
            flags.iter().for_each(|flag| flag.put(tcp, 0u8));
        };
        if index > 0 {
            clear(tcp, &[field::CWR]);
        }
        if range.end < self.payload {
            clear(tcp, &[field::PSH, field::FIN]);
        }
    }
}
