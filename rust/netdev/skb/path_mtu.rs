// SPDX-License-Identifier: GPL-2.0

//! Telling whoever sends a frame that it is too long for the way.

use ipoib_sys::bindings;

use super::TxSkb;
use crate::device::RawDevice;

impl TxSkb {
    /// Takes note, in the route that the frame has come, that packets of more than `mtu` bytes do
    /// not get through; later ones of this host's are fragmented or refused at once.
    ///
    /// The packet must not have been pulled off the data. Frames that keep no route of their own
    /// family, as all but those of IP, and those of a device that does not keep routes
    /// ([`crate::device::Device::keep_routes`]), change nothing.
    ///
    /// # Context
    ///
    /// Softirq or process context.
    pub fn update_path_mtu(&mut self, mtu: u32) {
        // SAFETY: Valid and owned by the type invariant.
        unsafe { bindings::ipoib_rs_skb_update_mtu(self.as_raw(), mtu) };
    }

    /// Drops the frame, which was to leave by `dev`, and tells its sender, this host or another,
    /// that packets of more than `mtu` bytes do not get through: by ICMP (destination unreachable,
    /// fragmentation needed) or ICMPv6 (packet too big).
    ///
    /// The packet must not have been pulled off the data. Of IPv4 the sender is told only if the
    /// frame has its route yet, as for [`Self::update_path_mtu`].
    ///
    /// # Context
    ///
    /// Softirq or process context, without the transmit lock, since the answer may leave by the
    /// same device: from a work item.
    pub fn answer_too_big(self, dev: &RawDevice, mtu: u32) {
        // SAFETY: Owned by the type invariant and given up; the device is valid for the call.
        unsafe { bindings::ipoib_rs_skb_too_big(self.into_raw(), dev.as_raw(), mtu) };
    }
}
