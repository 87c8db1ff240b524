// SPDX-License-Identifier: GPL-2.0

//! Metadata of a received frame: its link-layer header, its EtherType, whom it is for.

use ipoib_sys::bindings;

use super::{PacketType, RxSkb};
use crate::packet::Packet;
use crate::page_pool::Frame;

impl RxSkb {
    /// Writes the link-layer header, in front of the packet.
    #[inline(always)]
    pub fn set_link_header<const N: usize>(&mut self, link: &[u8; N]) {
        let raw = self.as_raw();
        // SAFETY: Valid by the type invariant; that is the distance.
        unsafe { self.set_link_header_at((*raw).data.offset_from((*raw).head) as u16, link) };
    }

    /// Writes the link-layer header, in front of the packet, which is `offset` bytes behind the skb's head.
    ///
    /// # Safety
    ///
    /// `offset` must be the distance from the skb's head to its data.
    #[inline(always)]
    pub(crate) unsafe fn set_link_header_at<const N: usize>(
        &mut self,
        offset: u16,
        link: &[u8; N],
    ) {
        const { assert!(N <= bindings::IPOIB_RS_LINK_ROOM as usize) };
        let raw = self.as_raw();
        // SAFETY: Valid by the type invariant, with that much room; every view of the union holds integers only.
        unsafe {
            core::ptr::copy_nonoverlapping(link.as_ptr(), (*raw).data.sub(N), N);
            let headers = (*raw).__bindgen_anon_4.headers.as_mut();
            headers.mac_header = offset.wrapping_sub(N as u16);
        }
    }

    /// Sets the protocol, network header and checksum fields of a packet that starts `at` bytes into the buffer.
    ///
    /// # Safety
    ///
    /// `at` must be the distance from the skb's head to its data, which are the packet. Nothing must have been said of its
    /// checksum.
    #[inline(always)]
    pub(crate) unsafe fn set_packet(&mut self, packet: &Packet, at: u16) {
        self.set_protocol(packet.protocol());
        // SAFETY: Valid by the type invariant; every view of the unions holds integers only.
        let headers = unsafe { (*self.as_raw()).__bindgen_anon_4.headers.as_mut() };
        headers.network_header = at;
        if packet.csum_start() == 0 {
            return;
        }
        let start = at.wrapping_add(packet.csum_start());
        headers.__bindgen_anon_1.__bindgen_anon_1.csum_start = start;
        headers.__bindgen_anon_1.__bindgen_anon_1.csum_offset = packet.csum_offset();
        // Segmentation looks for the transport header, which is there.
        headers.transport_header = start;
        // SAFETY: By this function's requirements.
        unsafe { self.set_checksum(bindings::CHECKSUM_PARTIAL) };
    }

    /// Sets the EtherType, given in host order.
    #[inline(always)]
    fn set_protocol(&mut self, ether_type: u16) {
        // SAFETY: Valid by the type invariant; every view of the unions holds integers only.
        let headers = unsafe { (*self.as_raw()).__bindgen_anon_4.headers.as_mut() };
        headers.protocol = ether_type.to_be();
    }

    /// Sets the protocol of a frame, and whether its checksums are verified.
    ///
    /// # Safety
    ///
    /// Nothing must have been said of its checksums.
    #[inline(always)]
    pub(crate) unsafe fn describe(&mut self, frame: &Frame) {
        self.set_protocol(frame.protocol);
        if frame.verified {
            // SAFETY: By this function's requirements.
            unsafe { self.set_checksum(bindings::CHECKSUM_UNNECESSARY) };
        }
    }

    /// Says how far the checksums are made or verified.
    ///
    /// # Safety
    ///
    /// Nothing must have been said of them.
    #[inline(always)]
    unsafe fn set_checksum(&mut self, summed: u32) {
        // SAFETY: Valid by the type invariant; every view of the unions holds integers only.
        let headers = unsafe { (*self.as_raw()).__bindgen_anon_4.headers.as_mut() };
        let none = u32::from(headers.ip_summed()) == bindings::CHECKSUM_NONE;
        // SAFETY: By this function's requirements. So bits of a byte are set, by one instruction, and none is cleared.
        unsafe { core::hint::assert_unchecked(none) };
        headers.set_ip_summed(summed as u8);
    }

    /// Sets whom the frame is for.
    #[inline]
    pub fn set_packet_type(&mut self, packet_type: PacketType) {
        // SAFETY: Valid and owned by the type invariant.
        unsafe {
            let headers = (*self.as_raw()).__bindgen_anon_4.headers.as_mut();
            headers.set_pkt_type(packet_type.as_raw());
        }
    }
}
