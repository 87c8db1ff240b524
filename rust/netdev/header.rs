// SPDX-License-Identifier: GPL-2.0

//! A packet that is to get its link-layer header.

use core::marker::PhantomData;

use ipoib_sys::bindings;
use kernel::ffi::c_uint;

const ETH_P_IP: u16 = bindings::ETH_P_IP as u16;
const ETH_P_IPV6: u16 = bindings::ETH_P_IPV6 as u16;

/// A packet for which [`crate::device::Driver::header`] is to make a header.
///
/// # Invariants
///
/// `skb` is valid and unchanged during `'a`, and its data begins with the packet, as far as that is
/// there yet.
pub struct Outgoing<'a> {
    skb: *const bindings::sk_buff,
    len: u32,
    _lifetime: PhantomData<&'a bindings::sk_buff>,
}

impl Outgoing<'_> {
    /// Wraps a pointer; `len` is what the packet's length will be.
    ///
    /// # Safety
    ///
    /// `skb` must be as the type invariant says.
    #[inline]
    pub(crate) unsafe fn from_raw<'a>(skb: *const bindings::sk_buff, len: c_uint) -> Outgoing<'a> {
        // INVARIANT: By this function's requirements.
        Outgoing {
            skb,
            len,
            _lifetime: PhantomData,
        }
    }

    /// How long the packet will be. A super-frame's packets are shorter: see [`Self::fits`].
    #[inline]
    #[expect(clippy::len_without_is_empty)]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Returns true if no packet that is sent is longer than `limit`.
    #[inline]
    pub fn fits(&self, limit: u32) -> bool {
        self.len <= limit || self.segments_fit(limit)
    }

    /// Returns true if this is a super-frame of packets that are no longer than `limit`.
    #[cold]
    fn segments_fit(&self, limit: u32) -> bool {
        // SAFETY: Valid by the type invariant. In a super-frame the headers are in the head and
        // their places are known.
        unsafe {
            super::skb::is_gso(self.skb) && bindings::skb_gso_validate_network_len(self.skb, limit)
        }
    }

    /// Returns true if this host, which has made the packet, may fragment it though its header forbids that.
    #[inline]
    pub fn ignores_df(&self) -> bool {
        // SAFETY: Valid by the type invariant.
        unsafe { super::skb::ignores_df(self.skb) }
    }

    /// The bytes of a packet of IP that are in the head: at least its own header. None of a packet that
    /// its sender writes only when it has the header, as ARP and packet sockets do.
    #[inline]
    pub fn linear(&self) -> &[u8] {
        if !self.is_written() {
            return &[];
        }
        // SAFETY: Valid and unchanged by the type invariant; the head holds `headlen` bytes at `data`,
        // which are written.
        unsafe { core::slice::from_raw_parts((*self.skb).data, super::skb::headlen(self.skb)) }
    }

    /// Returns true if IP made the packet, which then comes here from a neighbour's output, where it is complete.
    /// `packet_snd` gives the skb a protocol only after it has copied what the user sends; the frames of
    /// `tpacket_fill_skb` have one, but nothing in the head.
    #[inline]
    fn is_written(&self) -> bool {
        // SAFETY: Valid by the type invariant; every view of the union holds integers only.
        let protocol = unsafe { (*self.skb).__bindgen_anon_4.headers.as_ref().protocol };
        protocol == ETH_P_IP.to_be() || protocol == ETH_P_IPV6.to_be()
    }
}
