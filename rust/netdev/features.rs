// SPDX-License-Identifier: GPL-2.0

//! Offloads: work that a device does in the stack's place, and may stop doing.

use ipoib_sys::bindings;

use crate::device::{Device, Driver, RawDevice};
use crate::rtnl::Rtnl;

/// Verification of received frames' checksums by a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RxChecksum {
    /// It does not.
    #[default]
    No,
    /// It may; a user has to say that it is to be believed.
    Offered,
    /// It does.
    Yes,
}

/// Offloads that a driver has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Offloads {
    /// Checksums, of whatever protocol.
    pub checksum: bool,
    /// Segmentation of TCP and UDP. The stack has it only with `checksum` and scattered frames.
    pub gso: bool,
    /// Verified checksums of received frames, as long as [`RawDevice::trusts_checksums`].
    pub rx_checksum: RxChecksum,
}

impl RawDevice {
    /// Returns true if a checksum that the driver found good need not be verified again (`ethtool -K rx`).
    #[inline]
    pub fn trusts_checksums(&self) -> bool {
        // SAFETY: The device is allocated; the features are a word that C reads without a lock too.
        let features = unsafe { core::ptr::read_volatile(&raw const (*self.as_raw()).features) };
        features & (1 << bindings::NETIF_F_RXCSUM_BIT) != 0
    }
}

impl<T: Driver> Device<T> {
    /// Says what the driver does from now on. What is new is switched on, unless it is only offered; what is
    /// not in `offloads` can be switched on no more; in between, a user may choose (`ethtool -K`).
    ///
    /// Frames that the stack has prepared before may come after: without the segmentation or the
    /// checksum that the driver did then.
    ///
    /// A super-frame is shorter than 65536, link-layer header included, which cannot be made more by a
    /// user. The packet in it is thus no longer than 65511.
    pub fn set_offloads(&self, offloads: Offloads, _rtnl: &mut Rtnl) {
        // SAFETY: RTNL is held. Our token is not used while the core calls back.
        unsafe {
            bindings::ipoib_rs_netdev_set_offloads(
                self.as_raw(),
                offloads.checksum,
                offloads.gso,
                offloads.rx_checksum != RxChecksum::No,
                offloads.rx_checksum == RxChecksum::Yes,
            );
        }
    }

    /// Lets frames have their routes when they are handed over, which costs the stack a reference
    /// each. There is no way back, since a queueing discipline may rely on it from then on.
    pub fn keep_routes(&self, _rtnl: &mut Rtnl) {
        // SAFETY: RTNL is held.
        unsafe { bindings::ipoib_rs_netdev_keep_dst(self.as_raw()) };
    }
}
