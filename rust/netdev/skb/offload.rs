// SPDX-License-Identifier: GPL-2.0

//! Checksums and segmentation that the stack has left to the device.

use core::ptr;

use ipoib_sys::bindings;
use kernel::error::to_result;
use kernel::ffi::c_uint;
use kernel::prelude::*;

use super::{DropReason, TxSkb};
use crate::packet::{Gso, GsoKind, TCP_ECN, TCP_V4, TCP_V6, UDP_L4};

/// A bit of an unsigned field.
const DODGY: u32 = bindings::SKB_GSO_DODGY as u32;

/// A checksum that is yet to be made: over the bytes from `start` to the end of the packet, and
/// to be written `offset` bytes behind `start`, where its pseudo-header's sum stands now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartialChecksum {
    /// Offset at which the sum begins, counted from the first byte of the packet.
    pub start: u16,
    /// Offset of the checksum, counted from `start`.
    pub offset: u16,
}

/// How a super-frame of TCP is to be segmented.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcpSegments {
    /// Bytes of payload in a segment, the last one excepted.
    pub size: usize,
    /// Pieces of memory that the frame is in, its head and its fragments.
    pub pieces: usize,
}

/// Offloads that the frames which [`TxSkb::segment`] makes may need.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Keep {
    /// Payload in page fragments.
    pub fragments: bool,
    /// Checksums that are yet to be made.
    pub checksum: bool,
}

impl TxSkb {
    /// Returns true if the frame has a checksum that is yet to be made.
    #[inline]
    pub fn needs_checksum(&self) -> bool {
        let skb = self.as_raw();
        // SAFETY: Valid by the type invariant; every view of the union holds integers only.
        let summed = unsafe { (*skb).__bindgen_anon_4.headers.as_ref().ip_summed() };
        u32::from(summed) == bindings::CHECKSUM_PARTIAL
    }

    /// Returns true if a checksum is yet to be made that covers what is `start` bytes behind the begin of the data,
    /// and is stored `offset` bytes behind that. Whether the frame is as long is for the caller to see.
    #[inline]
    pub fn has_partial_checksum(&self, start: usize, offset: u16) -> bool {
        let skb = self.as_raw();
        // SAFETY: Valid by the type invariant; every view of the unions holds integers only.
        let sum = unsafe {
            (*skb)
                .__bindgen_anon_4
                .headers
                .as_ref()
                .__bindgen_anon_1
                .__bindgen_anon_1
        };
        self.needs_checksum()
            && usize::from(sum.csum_start) == self.headroom().wrapping_add(start)
            && sum.csum_offset == offset
    }

    /// The checksum that is yet to be made, in a frame with `from` bytes of data in front of the
    /// packet. None: there is none, or it is not within the packet's part in the head, so that
    /// [`Self::checksum_help`] alone may know what to do.
    #[inline]
    pub fn partial_checksum(&self, from: usize) -> Option<PartialChecksum> {
        if !self.needs_checksum() {
            return None;
        }
        let skb = self.as_raw();
        // SAFETY: Valid by the type invariant; every view of the unions holds integers only.
        let (start, offset) = unsafe {
            let headers = (*skb).__bindgen_anon_4.headers.as_ref();
            let sum = headers.__bindgen_anon_1.__bindgen_anon_1;
            (sum.csum_start, sum.csum_offset)
        };
        let start = usize::from(start)
            .checked_sub(self.headroom())?
            .checked_sub(from)?;
        let end = start + usize::from(offset) + core::mem::size_of::<u16>();
        if end > self.headlen().saturating_sub(from) {
            return None;
        }
        Some(PartialChecksum {
            // No more than `csum_start`.
            start: start as u16,
            offset,
        })
    }

    /// Makes the checksum that is yet to be made, if there is one.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, and `EINVAL` if it does not lie behind the start of the data; the frame has it yet
    /// to be made then.
    pub fn checksum_help(&mut self) -> Result {
        if !self.needs_checksum() {
            return Ok(());
        }
        if self.is_gso() || self.partial_checksum(0).is_none() {
            // The stack would report it as a bug.
            return Err(EINVAL);
        }
        // SAFETY: Valid and owned by the type invariant.
        to_result(unsafe { bindings::skb_checksum_help(self.as_raw()) })
    }

    /// Returns how the frame is to be segmented, if it is a super-frame of one of these kinds: not of tunnels, nor with
    /// untrusted headers, nor a list of frames. If whoever made it has not counted the segments, there are 0.
    #[inline]
    pub fn gso(&self) -> Option<Gso> {
        // SAFETY: The shared info is valid.
        let (kind, size, segments) = unsafe {
            let info = self.shared_info();
            ((*info).gso_type, (*info).gso_size, (*info).gso_segs)
        };
        let ecn = kind & TCP_ECN != 0;
        let kind = match kind & !TCP_ECN {
            TCP_V4 => GsoKind::TcpV4,
            TCP_V6 => GsoKind::TcpV6,
            UDP_L4 if !ecn => GsoKind::Udp,
            _ => return None,
        };
        (size > 0).then_some(Gso {
            kind,
            ecn,
            size,
            segments,
        })
    }

    /// Returns how the frame is to be segmented if it is a super-frame of TCP that plain TSO suits: its checksum is
    /// yet to be made, and it has none of `SKB_GSO_TCP_ECN`, tunnels and the like. Its headers may be untrusted
    /// (`SKB_GSO_DODGY`), as a virtual machine's are.
    #[inline]
    pub fn tcp_segments(&self) -> Option<TcpSegments> {
        // SAFETY: The shared info is valid.
        let (kind, size, fragments) = unsafe {
            let info = self.shared_info();
            ((*info).gso_type, (*info).gso_size, (*info).nr_frags)
        };
        let is_tcp = matches!(kind & !DODGY, TCP_V4 | TCP_V6);
        (is_tcp && size > 0 && self.needs_checksum()).then_some(TcpSegments {
            size: size.into(),
            pieces: usize::from(fragments).wrapping_add(1),
        })
    }

    /// Cuts a super-frame of IP up.
    ///
    /// Its data must begin with the whole link-layer header of `link` bytes, as the stack hands a frame over: what
    /// was taken off it has to be put back ([`Self::push`]) before. Each segment begins with a copy
    /// of that header, then. All but what `keep` says is done by the stack: checksums, and the
    /// copying of payload out of page fragments.
    ///
    /// # Errors
    ///
    /// The frame, whose headers may have changed, so that all that is left to do with it is to drop
    /// it; with `EINVAL` if it is no super-frame or does not begin with the link-layer header,
    /// `EPROTONOSUPPORT` if the stack cannot segment what is in it, or `ENOMEM`.
    ///
    /// # Context
    ///
    /// Softirq or process context.
    pub fn segment(self, link: usize, keep: Keep) -> core::result::Result<Segments, (Self, Error)> {
        if !self.is_gso() {
            return Err((self, EINVAL));
        }
        let mut first = ptr::null_mut();
        // SAFETY: Valid and owned by the type invariant.
        let result = to_result(unsafe {
            bindings::ipoib_rs_skb_segment(
                self.as_raw(),
                link as c_uint,
                keep.fragments,
                keep.checksum,
                &raw mut first,
            )
        });
        if let Err(error) = result {
            return Err((self, error));
        }
        // Where the first segment is the frame itself, that has one reference more.
        self.consume();
        // INVARIANT: The stack has made the list and given it to us.
        Ok(Segments { next: first })
    }

    /// A number that is the same for all frames of a flow, and for few others.
    #[inline]
    pub fn hash(&mut self) -> u32 {
        let skb = self.as_raw();
        // SAFETY: Valid by the type invariant; every view of the union holds integers only.
        let (known, hash) = unsafe {
            let headers = (*skb).__bindgen_anon_4.headers.as_ref();
            (headers.l4_hash() | headers.sw_hash(), headers.hash)
        };
        if known != 0 {
            return hash;
        }
        // SAFETY: Valid and owned by the type invariant.
        unsafe { bindings::ipoib_rs_skb_hash(skb) }
    }
}

/// Segments of a super-frame. Those that are left when this is dropped are freed.
///
/// # Invariants
///
/// `next` is null or the first of a list of owned skbs that are linked by their `next`.
#[must_use = "segments are dropped when this goes out of scope"]
pub struct Segments {
    next: *mut bindings::sk_buff,
}

// SAFETY: Owned skbs may be handled and freed by any thread.
unsafe impl Send for Segments {}
// SAFETY: A shared reference gives access to nothing.
unsafe impl Sync for Segments {}

impl Segments {
    /// Frees what is left of them; says how many.
    pub fn drop_reason(self, reason: DropReason) -> usize {
        let mut count = 0;
        for skb in self {
            skb.drop_reason(reason);
            count += 1;
        }
        count
    }
}

impl Iterator for Segments {
    type Item = TxSkb;

    #[inline]
    fn next(&mut self) -> Option<TxSkb> {
        let skb = self.next;
        if skb.is_null() {
            return None;
        }
        // SAFETY: Owned by the type invariant.
        unsafe {
            // INVARIANT: The successor is the first of what is left.
            self.next = (*skb).__bindgen_anon_1.__bindgen_anon_1.next;
            super::queue::set_next(skb, ptr::null_mut());
        }
        // SAFETY: Not null, and owned by the list, from which it was taken.
        Some(unsafe { TxSkb::from_raw(skb) })
    }
}

impl Drop for Segments {
    fn drop(&mut self) {
        for skb in self {
            drop(skb);
        }
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[kunit_tests(rust_netdev_offload)]
mod tests {
    use super::*;

    /// Leaves the checksum of what begins `start` bytes into the data to be made, and stored `offset` bytes behind that.
    fn leave(skb: &TxSkb, start: usize, offset: u16) {
        let start = (skb.headroom() + start) as u16;
        // SAFETY: The skb is ours alone; every view of the unions holds integers only.
        unsafe {
            let headers = (*skb.as_raw()).__bindgen_anon_4.headers.as_mut();
            headers.__bindgen_anon_1.__bindgen_anon_1.csum_start = start;
            headers.__bindgen_anon_1.__bindgen_anon_1.csum_offset = offset;
            headers.set_ip_summed(bindings::CHECKSUM_PARTIAL as u8);
        }
    }

    /// The place of a checksum counts from the packet, and its two bytes are within the head.
    #[test]
    fn a_checksum_is_within_its_packet() -> Result {
        let skb = TxSkb::new(&[0; 40])?;
        assert_eq!(skb.partial_checksum(0), None);
        for (from, at, offset, start) in [
            (0, 20, 16, Some(20)),
            (0, 22, 16, Some(22)),
            (0, 23, 16, None),
            (8, 20, 16, Some(12)),
            (8, 22, 16, Some(14)),
            (8, 23, 16, None),
            (8, 8, 30, Some(0)),
            (8, 7, 16, None),
            (48, 20, 16, None),
        ] {
            leave(&skb, at, offset);
            let wanted = start.map(|start| PartialChecksum { start, offset });
            assert_eq!(skb.partial_checksum(from), wanted);
            assert!(skb.has_partial_checksum(at, offset));
            assert!(!skb.has_partial_checksum(at + 1, offset));
            assert!(!skb.has_partial_checksum(at, offset + 1));
        }
        Ok(())
    }
}
