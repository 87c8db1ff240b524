// SPDX-License-Identifier: GPL-2.0

//! The MTU of a link (RFC 4391, section 7). All sizes are in bytes.

use core::ffi::CStr;

use crate::wire::header::Header;

/// The largest IP packet that a connection carries (RFC 4755): the limit of Linux, too.
pub const MAX_CONNECTED: u32 = 65_520;

/// The smallest MTU of an IPv4 link (RFC 791).
pub const MIN_IPV4: u32 = 68;

/// The smallest MTU of an IPv6 link (RFC 8200).
pub const MIN_IPV6: u32 = 1280;

/// Returns the largest IP packet for an InfiniBand MTU: what the encapsulation header leaves.
#[inline]
pub const fn ip_mtu(ib_mtu: u32) -> u32 {
    ib_mtu.saturating_sub(Header::LEN as u32)
}

/// Reason for which an MTU is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MtuError {
    /// Smaller than IPv4 allows.
    TooSmall,
    /// Larger than a datagram of the port can carry.
    TooBig,
    /// The port's MTU is so small that no MTU is allowed.
    PortTooSmall,
}

impl MtuError {
    /// Returns a text for the netlink extended acknowledgment.
    pub const fn message(&self) -> &'static CStr {
        match self {
            MtuError::TooSmall => c"MTU is below the minimum of IPv4, 68 bytes",
            MtuError::TooBig => c"MTU exceeds the port's largest IB MTU less 4 bytes",
            MtuError::PortTooSmall => c"The port's IB MTU is too small for IP",
        }
    }
}

/// Checks an IP MTU in datagram mode against the port's largest InfiniBand MTU.
///
/// # Errors
///
/// See [`MtuError`]. An MTU below IPv6's minimum of 1280 is allowed: the stack itself turns IPv6 off then.
pub const fn check(requested: u32, largest: u32) -> Result<u32, MtuError> {
    let max = ip_mtu(largest);
    if max < MIN_IPV4 {
        Err(MtuError::PortTooSmall)
    } else if requested < MIN_IPV4 {
        Err(MtuError::TooSmall)
    } else if requested > max {
        Err(MtuError::TooBig)
    } else {
        Ok(requested)
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_mtu))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    /// RFC 4391, section 7: the IP MTU is the InfiniBand MTU less 4; 2044 by default.
    #[test]
    fn rfc4391_7_four_bytes_less() {
        assert_eq!([2048, 4096, 1024].map(ip_mtu), [2044, 4092, 1020]);
    }

    #[test]
    fn limits() {
        assert_eq!(check(2044, 2048), Ok(2044));
        assert_eq!(check(68, 2048), Ok(68));
        assert_eq!(check(67, 2048), Err(MtuError::TooSmall));
        assert_eq!(check(2045, 2048), Err(MtuError::TooBig));
        assert_eq!(check(u32::MAX, 4096), Err(MtuError::TooBig));
    }

    #[test]
    fn a_port_without_mtu_allows_nothing() {
        assert_eq!(check(68, 0), Err(MtuError::PortTooSmall));
        assert_eq!(check(68, 71), Err(MtuError::PortTooSmall));
        assert_eq!(check(68, 72), Ok(68));
    }
}
