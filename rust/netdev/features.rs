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

/// Work on frames that are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TxOffload {
    /// Frames come complete.
    #[default]
    None,
    /// Checksums of whatever protocol, and segmentation of TCP and UDP. The stack has the latter only with scattered
    /// frames.
    Any,
    /// Checksums of TCP and UDP, and segmentation of TCP: over IPv4, and over IPv6 without extension headers, which
    /// is offered; a user has to say that the device does it.
    Ip {
        /// It segments.
        segments: bool,
    },
}

/// Offloads that a driver has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Offloads {
    /// Work on frames that are sent.
    pub tx: TxOffload,
    /// Verified checksums of received frames, as long as [`RawDevice::trusts_checksums`].
    pub rx_checksum: RxChecksum,
}

const fn bit(number: u32) -> u64 {
    1 << number
}

impl Offloads {
    /// Features that are offered, and those of them that are on unless a user says otherwise (`NETIF_F_*`).
    fn features(self) -> (u64, u64) {
        const TSO: u64 = bit(bindings::NETIF_F_TSO_BIT);
        const TSO6: u64 = bit(bindings::NETIF_F_TSO6_BIT);
        const ANY: u64 = bit(bindings::NETIF_F_HW_CSUM_BIT)
            | TSO
            | TSO6
            | bit(bindings::NETIF_F_TSO_ECN_BIT)
            | bit(bindings::NETIF_F_GSO_UDP_L4_BIT);
        const IP: u64 = bit(bindings::NETIF_F_IP_CSUM_BIT);
        const IPV6: u64 = bit(bindings::NETIF_F_IPV6_CSUM_BIT);
        const RX: u64 = bit(bindings::NETIF_F_RXCSUM_BIT);

        let (tx, tx_on) = match self.tx {
            TxOffload::None => (0, 0),
            TxOffload::Any => (ANY, ANY),
            TxOffload::Ip { segments: false } => (IP | IPV6, IP),
            TxOffload::Ip { segments: true } => (IP | IPV6 | TSO | TSO6, IP | TSO),
        };
        let (rx, rx_on) = match self.rx_checksum {
            RxChecksum::No => (0, 0),
            RxChecksum::Offered => (RX, 0),
            RxChecksum::Yes => (RX, RX),
        };
        (tx | rx, tx_on | rx_on)
    }
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
        let (offered, defaults) = offloads.features();
        // SAFETY: RTNL is held. Our token is not used while the core calls back.
        unsafe { bindings::ipoib_rs_netdev_set_offloads(self.as_raw(), offered, defaults) };
    }

    /// Lets frames have their routes when they are handed over, which costs the stack a reference
    /// each; a bond over the device does likewise. There is no way back, since a queueing discipline may rely on it from
    /// then on.
    pub fn keep_routes(&self, _rtnl: &mut Rtnl) {
        // SAFETY: RTNL is held.
        unsafe { bindings::ipoib_rs_netdev_keep_dst(self.as_raw()) };
    }
}
