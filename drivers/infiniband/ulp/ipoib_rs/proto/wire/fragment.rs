// SPDX-License-Identifier: GPL-2.0

//! IPv4 fragmentation (RFC 791, section 3.2): of packets that the interface's MTU allows and the
//! way to where they go does not.

use crate::wire::header::EtherType;

/// The shortest header.
const MIN_HEADER: usize = 20;
/// The longest.
const MAX_HEADER: usize = 60;
/// The longest packet.
const MAX_PACKET: usize = 65_535;
/// Unit of offsets, in bytes.
const UNIT: usize = 8;

const RESERVED: u16 = 0x8000;
const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;

const OPTION_END: u8 = 0;
const OPTION_NOP: u8 = 1;
/// The option is in all fragments, not only in the first.
const OPTION_COPIED: u8 = 0x80;

/// Reason for which a packet cannot be fragmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FragmentError {
    /// Not IPv4, or a header that contradicts itself or its checksum.
    Malformed,
    /// Fewer bytes than the header says.
    Truncated,
    /// The packet is not to be fragmented (DF).
    Forbidden,
    /// A fragment of that size has no room for any payload.
    TooSmall,
}

/// Returns true if a packet, of which at least the header is given, is IPv4 that may be fragmented: DF is not set, or
/// `ignore_df`, since this host is the sender.
#[inline]
pub fn is_allowed(ether_type: EtherType, packet: &[u8], ignore_df: bool) -> bool {
    match *packet {
        [first, _, _, _, _, _, f0, f1, ..] if ether_type == EtherType::IPV4 => {
            first >> 4 == 4 && (ignore_df || u16::from_be_bytes([f0, f1]) & DONT_FRAGMENT == 0)
        }
        _ => false,
    }
}

/// The header of an IPv4 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Header {
    bytes: [u8; MAX_HEADER],
    /// In 32-bit words; 5 to 15.
    words: u8,
}

impl Ipv4Header {
    /// The bytes on the wire.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len()).unwrap_or(&[])
    }

    /// The number of fragments.
    #[inline]
    #[expect(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        usize::from(self.words).saturating_mul(4)
    }

    /// Takes the header off the front of `packet`.
    fn parse(packet: &[u8]) -> Result<Self, FragmentError> {
        let first = packet.first().ok_or(FragmentError::Truncated)?;
        let words = first & 0xf;
        let mut header = Ipv4Header {
            bytes: [0; MAX_HEADER],
            words,
        };
        if first >> 4 != 4 || header.len() < MIN_HEADER {
            return Err(FragmentError::Malformed);
        }
        let bytes = packet.get(..header.len());
        let bytes = bytes.ok_or(FragmentError::Truncated)?;
        for (to, from) in header.bytes.iter_mut().zip(bytes) {
            *to = *from;
        }
        if sum(header.as_bytes()) != 0xffff {
            return Err(FragmentError::Malformed);
        }
        Ok(header)
    }

    fn word(&self, at: usize) -> u16 {
        match self.bytes.get(at..).and_then(|rest| rest.first_chunk()) {
            Some(word) => u16::from_be_bytes(*word),
            None => 0,
        }
    }

    fn set_word(&mut self, at: usize, value: u16) {
        let place = self.bytes.get_mut(at..);
        if let Some(word) = place.and_then(|rest| rest.first_chunk_mut()) {
            *word = value.to_be_bytes();
        }
    }

    fn total_len(&self) -> usize {
        self.word(2).into()
    }

    /// The flags and the offset.
    fn place(&self) -> u16 {
        self.word(6)
    }

    /// The header of the packet's fragment with `payload` bytes, at `place`.
    fn of_fragment(mut self, payload: usize, place: u16) -> Self {
        // The caller's fragment is no longer than the packet.
        let total = self.len().saturating_add(payload);
        self.set_word(2, u16::try_from(total).unwrap_or(u16::MAX));
        self.set_word(6, place);
        self.set_word(10, 0);
        self.set_word(10, !sum(self.as_bytes()));
        self
    }

    /// The header of the fragments that are not the first: only some options are in it.
    fn of_the_rest(&self) -> Result<Self, FragmentError> {
        let mut rest = *self;
        let (fixed, options) = rest.bytes.split_at_mut(MIN_HEADER);
        options.fill(0);
        let mut left = self.as_bytes().get(MIN_HEADER..).unwrap_or(&[]);
        let mut used = 0usize;
        while let Some((kind, after)) = left.split_first() {
            left = match *kind {
                OPTION_END => break,
                OPTION_NOP => after,
                kind => {
                    let len = usize::from(*after.first().ok_or(FragmentError::Malformed)?);
                    // The kind and the length count.
                    if len < 2 {
                        return Err(FragmentError::Malformed);
                    }
                    let (option, next) =
                        left.split_at_checked(len).ok_or(FragmentError::Malformed)?;
                    if kind & OPTION_COPIED != 0 {
                        // There is room for all options that there are.
                        for (to, from) in options.iter_mut().skip(used).zip(option) {
                            *to = *from;
                        }
                        used = used.saturating_add(len);
                    }
                    next
                }
            };
        }
        let words = MIN_HEADER.saturating_add(used).div_ceil(4);
        rest.words = u8::try_from(words).unwrap_or(self.words);
        if let Some(first) = fixed.first_mut() {
            *first = 0x40 | rest.words;
        }
        Ok(rest)
    }
}

/// The sum of the 16-bit words of a header in ones' complement; all ones if its checksum is right.
fn sum(header: &[u8]) -> u16 {
    let mut sum = 0u32;
    for word in header.chunks_exact(2) {
        if let [high, low] = *word {
            sum = sum.wrapping_add(u16::from_be_bytes([high, low]).into());
        }
    }
    // Thirty words at most: what is carried out of 16 bits is carried back in twice.
    for _ in 0..2 {
        sum = (sum & 0xffff).wrapping_add(sum >> 16);
    }
    // Of 16 bits now.
    sum as u16
}

/// A fragment: its header, and what part of the packet follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// The header.
    pub header: Ipv4Header,
    /// Offset of the payload in the packet, whose header counts.
    pub offset: usize,
    /// Bytes of payload.
    pub len: usize,
}

/// The fragments of a packet, in order.
#[derive(Clone, Debug)]
pub struct Fragments {
    first: Ipv4Header,
    rest: Ipv4Header,
    mtu: usize,
    /// Bytes of the packet's payload.
    payload: usize,
    /// Bytes of it that are in fragments; None: all are.
    done: Option<usize>,
}

/// Splits a packet into fragments of at most `mtu` bytes each; one that is no longer stays whole.
///
/// `head` is the beginning of the packet, with the header at least, and `len` counts the bytes that
/// there are of it. The packet may be a fragment itself. If `ignore_df`, one that must not be
/// fragmented is, and its fragments do not say so: this host may do that with its own packets.
///
/// # Errors
///
/// See [`FragmentError`].
pub fn split(
    head: &[u8],
    len: usize,
    mtu: usize,
    ignore_df: bool,
) -> Result<Fragments, FragmentError> {
    let first = Ipv4Header::parse(head)?;
    let total = first.total_len();
    let payload = total
        .checked_sub(first.len())
        .ok_or(FragmentError::Malformed)?;
    if total > len {
        return Err(FragmentError::Truncated);
    }
    let whole = Fragments {
        first,
        rest: first,
        mtu: total,
        payload,
        done: Some(0),
    };
    if total <= mtu {
        return Ok(whole);
    }
    let place = first.place();
    if place & DONT_FRAGMENT != 0 && !ignore_df {
        return Err(FragmentError::Forbidden);
    }
    let before = usize::from(place & OFFSET).saturating_mul(UNIT);
    // A packet that no receiver could put together, or a fragment that no other can follow.
    if before.saturating_add(total) > MAX_PACKET
        || (place & MORE_FRAGMENTS != 0 && payload % UNIT != 0)
    {
        return Err(FragmentError::Malformed);
    }
    if mtu < first.len().saturating_add(UNIT) {
        return Err(FragmentError::TooSmall);
    }
    Ok(Fragments {
        rest: first.of_the_rest()?,
        mtu,
        ..whole
    })
}

impl Iterator for Fragments {
    type Item = Fragment;

    fn next(&mut self) -> Option<Fragment> {
        let done = self.done?;
        let header = if done == 0 { &self.first } else { &self.rest };
        let room = self.mtu.saturating_sub(header.len());
        let left = self.payload.saturating_sub(done);
        let (len, more) = if left <= room {
            (left, false)
        } else {
            // Not 0, since `split` has seen that there is room for one unit.
            (room & !7, true)
        };
        let place = self.first.place();
        // Stays within the 13 bits of the offset, since the packet ends within its longest.
        let units = done.checked_div(UNIT).unwrap_or(0) as u16;
        let mut new = (place & RESERVED) | ((place & OFFSET).wrapping_add(units) & OFFSET);
        if more || place & MORE_FRAGMENTS != 0 {
            new |= MORE_FRAGMENTS;
        }
        if !more && done == 0 {
            // The packet itself, which may have DF.
            new = place;
        }
        let fragment = Fragment {
            header: header.of_fragment(len, new),
            offset: self.first.len().saturating_add(done),
            len,
        };
        self.done = more.then_some(done.saturating_add(len));
        Some(fragment)
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_fragment))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::{is_allowed, split, sum, Fragment, FragmentError, DONT_FRAGMENT, MORE_FRAGMENTS};
    use crate::wire::header::EtherType;

    /// A header with `options`, for a packet of `total` bytes.
    fn header(options: &[u8], total: u16, place: u16) -> ([u8; 60], usize) {
        let len = 20 + options.len().next_multiple_of(4);
        let mut bytes = [0; 60];
        bytes[0] = 0x40 | (len / 4) as u8;
        bytes[2..4].copy_from_slice(&total.to_be_bytes());
        bytes[4..6].copy_from_slice(&[0x12, 0x34]);
        bytes[6..8].copy_from_slice(&place.to_be_bytes());
        bytes[8..10].copy_from_slice(&[64, 17]);
        bytes[12..20].copy_from_slice(&[192, 0, 2, 1, 224, 0, 0, 5]);
        bytes[20..20 + options.len()].copy_from_slice(options);
        let check = !sum(&bytes[..len]);
        bytes[10..12].copy_from_slice(&check.to_be_bytes());
        (bytes, len)
    }

    fn place(fragment: &Fragment) -> u16 {
        let bytes = fragment.header.as_bytes();
        u16::from_be_bytes([bytes[6], bytes[7]])
    }

    /// RFC 791, section 3.2: the example of its appendix A, less the header checksums that it does
    /// not give: 472 bytes, of which a network takes 280.
    #[test]
    fn rfc791_example_2() {
        let (head, len) = header(&[], 472, 0);
        let mut fragments = split(&head[..len], 472, 280, false).unwrap();
        let first = fragments.next().unwrap();
        assert_eq!((first.offset, first.len), (20, 256));
        assert_eq!(place(&first), MORE_FRAGMENTS);
        assert_eq!(first.header.as_bytes()[2..4], [1, 20]);
        let last = fragments.next().unwrap();
        assert_eq!((last.offset, last.len), (276, 196));
        assert_eq!(place(&last), 32);
        assert_eq!(last.header.as_bytes()[2..4], [0, 216]);
        assert_eq!(last.header.as_bytes()[4..6], [0x12, 0x34]);
        assert_eq!(fragments.next(), None);
        for fragment in [first, last] {
            assert_eq!(sum(fragment.header.as_bytes()), 0xffff);
        }
    }

    /// RFC 791, section 3.2: a fragment of a fragment goes on where that is, and is the last one
    /// only if that was.
    #[test]
    fn rfc791_3_2_fragment_of_a_fragment() {
        let (head, len) = header(&[], 20 + 80, MORE_FRAGMENTS | 100);
        let mut places = [0; 4];
        for (to, fragment) in places
            .iter_mut()
            .zip(split(&head[..len], 100, 60, false).unwrap())
        {
            *to = place(&fragment);
        }
        assert_eq!(places, [MORE_FRAGMENTS | 100, MORE_FRAGMENTS | 105, 0, 0]);

        let (head, len) = header(&[], 20 + 81, 100);
        let last = split(&head[..len], 101, 60, false).unwrap().last().unwrap();
        assert_eq!(place(&last), 110);
        assert_eq!(last.len, 1);
    }

    /// RFC 791, section 3.1: an option is in all fragments only if its copied flag says so.
    #[test]
    fn rfc791_3_1_copied_options() {
        // A record route of 7, a NOP, a router alert (copied), a security label of 3 (copied).
        let options = [7, 7, 4, 0, 0, 0, 0, 1, 0x94, 4, 0, 0, 0x82, 3, 9];
        let (head, len) = header(&options, 36 + 100, 0);
        assert_eq!(len, 36);
        let mut fragments = split(&head[..len], 136, 100, false).unwrap();
        let first = fragments.next().unwrap();
        assert_eq!(first.header.len(), 36);
        assert_eq!(first.header.as_bytes()[20..35], options);
        assert_eq!(first.len, 64);
        let last = fragments.next().unwrap();
        let bytes = last.header.as_bytes();
        assert_eq!(bytes[20..], [0x94, 4, 0, 0, 0x82, 3, 9, 0]);
        assert_eq!(bytes[0], 0x47);
        assert_eq!(bytes[2..4], [0, 28 + 36]);
        assert_eq!(sum(bytes), 0xffff);
        assert_eq!((last.offset, last.len), (100, 36));
        assert_eq!(fragments.next(), None);
    }

    #[test]
    fn options_that_contradict_themselves() {
        for options in [
            [0x94, 0, 0, 0],
            [0x94, 1, 0, 0],
            [0x94, 5, 0, 0],
            [1, 1, 1, 0x94],
        ] {
            let (head, len) = header(&options, 124, 0);
            let result = split(&head[..len], 124, 100, false);
            assert_eq!(result.err(), Some(FragmentError::Malformed));
        }
        // Bytes behind the end of the list are not read.
        let (head, len) = header(&[0, 0x94, 0, 0], 124, 0);
        assert!(split(&head[..len], 124, 100, false).is_ok());
    }

    #[test]
    fn a_packet_that_fits_stays_whole() {
        let (head, len) = header(&[0x94, 4, 0, 0], 100, DONT_FRAGMENT);
        let mut fragments = split(&head[..len], 108, 100, false).unwrap();
        let whole = fragments.next().unwrap();
        assert_eq!(whole.header.as_bytes(), &head[..len]);
        assert_eq!((whole.offset, whole.len), (24, 76));
        assert_eq!(fragments.next(), None);
    }

    #[test]
    fn what_is_refused() {
        let check = |head: &[u8], len, mtu| split(head, len, mtu, false).err();
        let (head, len) = header(&[], 100, DONT_FRAGMENT);
        assert_eq!(check(&head[..len], 100, 99), Some(FragmentError::Forbidden));
        let (head, len) = header(&[], 100, 0);
        assert_eq!(check(&head[..len], 99, 68), Some(FragmentError::Truncated));
        assert_eq!(check(&head[..19], 100, 68), Some(FragmentError::Truncated));
        assert_eq!(check(&[], 100, 68), Some(FragmentError::Truncated));
        assert_eq!(check(&head[..len], 100, 27), Some(FragmentError::TooSmall));
        assert_eq!(check(&head[..len], 100, 28), None);
        let mut odd = head;
        odd[8] ^= 1;
        assert_eq!(check(&odd[..len], 100, 68), Some(FragmentError::Malformed));
        for first in [0x65, 0x44, 0x40, 0] {
            odd[0] = first;
            assert_eq!(check(&odd[..len], 100, 68), Some(FragmentError::Malformed));
        }
        let (head, len) = header(&[], 19, 0);
        assert_eq!(check(&head[..len], 100, 68), Some(FragmentError::Malformed));
        // One more follows, at what would be no multiple of 8.
        let (head, len) = header(&[], 101, MORE_FRAGMENTS);
        assert_eq!(check(&head[..len], 101, 68), Some(FragmentError::Malformed));
        // It would end behind the longest packet.
        let (head, len) = header(&[], 100, 0x1fff);
        assert_eq!(check(&head[..len], 100, 68), Some(FragmentError::Malformed));
    }

    #[test]
    fn who_may_be_fragmented() {
        let (head, len) = header(&[], 100, 0);
        assert!(is_allowed(EtherType::IPV4, &head[..len], false));
        assert!(!is_allowed(EtherType::ARP, &head[..len], false));
        assert!(!is_allowed(EtherType::IPV4, &[], false));
        let (head, len) = header(&[], 100, DONT_FRAGMENT);
        assert!(!is_allowed(EtherType::IPV4, &head[..len], false));
        assert!(!is_allowed(EtherType::IPV4, &[0x60; 40], true));
        // This host may do with its own packets what it has forbidden others.
        assert!(is_allowed(EtherType::IPV4, &head[..len], true));
        let (head, len) = header(&[], 200, DONT_FRAGMENT);
        assert_eq!(
            split(&head[..len], 200, 100, false).err(),
            Some(FragmentError::Forbidden)
        );
        let fragments = split(&head[..len], 200, 100, true).unwrap();
        for (fragment, more) in fragments.zip([MORE_FRAGMENTS, MORE_FRAGMENTS, 0]) {
            assert_eq!(place(&fragment) & (DONT_FRAGMENT | MORE_FRAGMENTS), more);
        }
    }

    /// RFC 1071: what is carried out of 16 bits is carried back in.
    #[test]
    fn rfc1071_sums() {
        let words = |words: &[u16]| {
            let mut bytes = [0; 20];
            for (to, word) in bytes.chunks_exact_mut(2).zip(words) {
                to.copy_from_slice(&word.to_be_bytes());
            }
            sum(&bytes)
        };
        assert_eq!(words(&[0x0001, 0xf203, 0xf4f5, 0xf6f7]), 0xddf2);
        assert_eq!(words(&[0xffff; 10]), 0xffff);
        assert_eq!(words(&[0xffff, 0x0001]), 1);
        let many = [
            36208, 64223, 15801, 27956, 52067, 13392, 28610, 37083, 5078, 42289,
        ];
        assert_eq!(words(&many), 60567);
        assert_eq!(words(&[19306, 42910, 44977]), 41658);
    }

    /// A header with a good checksum that is none of IPv4's, or too short.
    #[test]
    fn another_version() {
        for first in [0x55, 0x44] {
            let (mut head, len) = header(&[], 100, 0);
            head[0] = first;
            head[10..12].fill(0);
            let check = !sum(&head[..usize::from(first & 0xf) * 4]);
            head[10..12].copy_from_slice(&check.to_be_bytes());
            let result = split(&head[..len], 100, 68, false);
            assert_eq!(result.err(), Some(FragmentError::Malformed));
        }
    }

    #[test]
    fn an_option_without_data() {
        let (head, len) = header(&[0x82, 2, 1, 1], 124, 0);
        let rest = split(&head[..len], 124, 100, false).unwrap().last();
        let header = rest.unwrap().header;
        assert_eq!(header.as_bytes()[20..], [0x82, 2, 0, 0]);
    }

    /// The last fragment of the longest packet.
    #[test]
    fn up_to_the_longest_packet() {
        for (total, fits) in [(103, true), (104, false)] {
            let (head, len) = header(&[], total, 65_432 / 8);
            let result = split(&head[..len], total.into(), 100, false);
            assert_eq!(result.is_ok(), fits);
        }
    }
}
