// SPDX-License-Identifier: GPL-2.0

//! A cable that leads through a network device to a port in another kernel, or in another fabric.
//!
//! Both ends send [`frame`]s. A packet travels in a frame of its own; hellos tell the other end what
//! the port offers at training, and that this end is there. The link is trained when both ends know of
//! each other, and goes down when either says so or is not heard any more ([`Trunk`]).
//!
//! A network device may lose frames, where a cable with the credits of section 7.9 does not. So that
//! neither end floods the other, there are at most [`WINDOW`] packets under way.

pub mod frame;
mod handshake;

pub use frame::{Frame, Header, Hello};
pub use handshake::{Address, Greeting, Heard, Outgoing, Step, Stranger, Trunk};
pub use handshake::{DEAD, HELLO, PAUSE, WINDOW};

use crate::mtu::Mtu;
use crate::wire;

/// Returns the largest MTU of a link through a network device that takes so many bytes behind its
/// own header; `None` if that is not even the smallest one.
pub fn largest_mtu(bytes: u32) -> Option<Mtu> {
    let around = frame::HEADER.saturating_add(wire::OVERHEAD) as u32;
    let fits = |mtu: &Mtu| mtu.bytes().saturating_add(around) <= bytes;
    (1..=5).rev().filter_map(Mtu::from_code).find(fits)
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_trunk))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    #[test]
    fn mtu_of_the_device() {
        for (bytes, mtu) in [
            (0, None),
            (357, None),
            (358, Some(Mtu::B256)),
            (1500, Some(Mtu::B1024)),
            (4197, Some(Mtu::B2048)),
            (4198, Some(Mtu::B4096)),
            (u32::MAX, Some(Mtu::B4096)),
        ] {
            assert_eq!(largest_mtu(bytes), mtu);
        }
    }
}
