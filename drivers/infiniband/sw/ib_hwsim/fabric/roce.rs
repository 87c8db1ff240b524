// SPDX-License-Identifier: GPL-2.0

//! Ports of RDMA over converged Ethernet, RoCE v2 (annex A17): addresses are GIDs, which are IP addresses.
//!
//! There are no LIDs, no subnet manager and no queue pair 0. A packet has [`Lid::NONE`] for both LIDs,
//! and always a global route header, which stands for the header of IPv6 or IPv4 on the wire.

use crate::addr::{Gid, Lid};
use crate::grh::Grh;
use crate::keys::Qpn;
use crate::link::{PhysState, PortState};
use crate::mtu::Mtu;
use crate::offload::Sum;
use crate::packet::Packet;
use crate::port::Port;

/// Bytes of a frame's payload beside the message: GRH, UDP, BTH, XRC, atomic operation and ICRC.
const HEADERS: u32 = 40 + 8 + 12 + 4 + 28 + 4;

/// Bytes of a UDP header.
const UDP: u16 = 8;

/// Bytes of an IPv4 header.
const IPV4: u16 = 20;

/// The place of an IPv4 header in the bytes that a receive request gets.
const IPV4_AT: usize = Grh::LEN - IPV4 as usize;

/// The protocol number of UDP.
const PROTOCOL: u8 = 17;

/// The 96 bits in front of an IPv4 address in a GID (RFC 4291, section 2.5.5.2).
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// A version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// The header of IP as a receive request gets it: 40 bytes, of which IPv4 has the last 20.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The version.
    pub network: Network,
    /// The bytes in wire order.
    pub bytes: [u8; Grh::LEN],
}

/// Bytes of an Ethernet header.
const ETHERNET: u32 = 14;

/// Returns the bytes in front of the base transport header, from the Ethernet header on.
pub(crate) fn route_bytes(grh: &Grh) -> u32 {
    let ip = match (ipv4(&grh.sgid), ipv4(&grh.dgid)) {
        (Some(_), Some(_)) => IPV4.into(),
        _ => Grh::LEN as u32,
    };
    ETHERNET.wrapping_add(ip).wrapping_add(UDP.into())
}

/// Returns the IPv4 address in a GID, if that is one.
fn ipv4(gid: &Gid) -> Option<[u8; 4]> {
    let (prefix, address) = gid.bytes().split_at(MAPPED.len());
    (*prefix == MAPPED).then_some(address)?.try_into().ok()
}

/// Whether a GID names a multicast group of IPv6 or IPv4.
fn is_group(gid: &Gid) -> bool {
    gid.is_multicast() || ipv4(gid).is_some_and(|[first, ..]| first & 0xf0 == 0xe0)
}

impl Header {
    /// Makes the header in front of `following` bytes from the base transport header to the ICRC.
    pub fn new(grh: &Grh, following: u16) -> Header {
        let following = following.saturating_add(UDP);
        match (ipv4(&grh.sgid), ipv4(&grh.dgid)) {
            (Some(from), Some(to)) => Header::v4(grh, from, to, following),
            _ => Header {
                network: Network::V6,
                bytes: grh.write_as(PROTOCOL, following),
            },
        }
    }

    fn v4(grh: &Grh, from: [u8; 4], to: [u8; 4], following: u16) -> Header {
        let [high, low] = following.saturating_add(IPV4).to_be_bytes();
        let [s0, s1, s2, s3] = from;
        let [d0, d1, d2, d3] = to;
        // Version and length, no identification, and not to be fragmented.
        let without_sum = [
            0x45,
            grh.traffic_class,
            high,
            low,
            0,
            0,
            0x40,
            0,
            grh.hop_limit,
            PROTOCOL,
            0,
            0,
            s0,
            s1,
            s2,
            s3,
            d0,
            d1,
            d2,
            d3,
        ];
        let mut sum = Sum::new();
        sum.add(&without_sum);
        let mut bytes = [0; Grh::LEN];
        let (_, header) = bytes.split_at_mut(IPV4_AT);
        header.copy_from_slice(&without_sum);
        if let [.., first, second, _, _, _, _, _, _, _, _] = header {
            [*first, *second] = sum.checksum().to_be_bytes();
        }
        Header {
            network: Network::V4,
            bytes,
        }
    }
}

impl Mtu {
    /// Returns the largest MTU of a port whose network device has one of so many bytes; `None` if it carries no
    /// packets.
    pub fn over_ethernet(bytes: u32) -> Option<Mtu> {
        let most = bytes.checked_sub(HEADERS)?;
        let codes = (1..=Mtu::B4096.code()).rev();
        codes
            .filter_map(Mtu::from_code)
            .find(|mtu| mtu.bytes() <= most)
    }
}

impl Packet {
    /// Whether the packet is one of RoCE v2: it has no LIDs.
    pub fn is_ethernet(&self) -> bool {
        self.dlid == Lid::NONE && self.grh.is_some()
    }

    /// Whether the destination is a multicast group: by the DLID, or by the DGID where there are no LIDs.
    pub fn is_multicast(&self) -> bool {
        match &self.grh {
            Some(grh) if self.dlid == Lid::NONE => is_group(&grh.dgid),
            _ => self.dlid.is_multicast(),
        }
    }
}

/// The ways of a packet that an Ethernet port sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ways {
    /// To queue pairs of this very port.
    pub local: bool,
    /// Out of the port.
    pub wire: bool,
}

impl Ways {
    /// The port does not send it.
    pub const NOWHERE: Ways = Ways {
        local: false,
        wire: false,
    };
}

/// Returns where a packet goes that an Ethernet port sends. Nowhere if the port is not Active, or the GID that it is
/// from is gone.
pub fn ways(port: &Port, grh: &Grh) -> Ways {
    let sends = port.state() == PortState::Active && grh.sgid != Gid::NONE;
    let ours = port.has_gid(&grh.dgid);
    Ways {
        local: sends && (ours || is_group(&grh.dgid)),
        wire: sends && !ours,
    }
}

/// Whether a packet is for an Ethernet port: for a group and all queue pairs attached to it, or for a queue pair and one
/// of the port's GIDs.
pub(crate) fn accepts(port: &Port, packet: &Packet) -> bool {
    let Some(grh) = &packet.grh else {
        return false;
    };
    if packet.management || packet.dlid != Lid::NONE || packet.slid != Lid::NONE {
        return false;
    }
    if is_group(&grh.dgid) {
        packet.dest_qp == Qpn::MULTICAST.get()
    } else {
        packet.dest_qp != Qpn::SMI.get()
            && packet.dest_qp < Qpn::MULTICAST.get()
            && port.has_gid(&grh.dgid)
    }
}

impl Port {
    /// Sets a GID of an Ethernet port, [`Gid::NONE`] for none. `None` beyond the end of the table.
    pub(crate) fn set_gid(&mut self, index: u8, gid: Gid) -> Option<()> {
        self.addresses.set_gid(index, gid)
    }

    /// Notes what has become of the network device of an Ethernet port: its MTU, or `None` if it does not run or is
    /// gone. True if the link has to be trained anew.
    pub(crate) fn set_netdev(&mut self, mtu: Option<u32>) -> bool {
        let mtu = mtu.and_then(Mtu::over_ethernet);
        if let Some(mtu) = mtu {
            self.neighbor_mtu = mtu.min(self.mtu_cap);
        }
        let resting = match mtu {
            Some(_) => PhysState::Polling,
            None => PhysState::Disabled,
        };
        if !self.is_ethernet() || self.down_default == resting {
            return false;
        }
        self.down_default = resting;
        if self.state == PortState::Down {
            self.phys = resting;
        }
        true
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_roce))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;
    use crate::addr::Guid;
    use crate::config::{Config, LinkLayer};
    use crate::event::Event;
    use crate::packet::Transport;

    const ONE: Gid = Gid::from_parts(Gid::DEFAULT_PREFIX, Guid::new(1));
    const TWO: Gid = Gid::from_parts(Gid::DEFAULT_PREFIX, Guid::new(2));
    const GROUP: Gid = Gid::from_parts(0xff12_401b_ffff_0000, Guid::new(1));

    const fn mapped(address: [u8; 4]) -> Gid {
        let [a, b, c, d] = address;
        Gid::from_bytes([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d])
    }

    const fn grh(sgid: Gid, dgid: Gid) -> Grh {
        Grh {
            traffic_class: 0x68,
            flow_label: 0x1_2345,
            hop_limit: 64,
            sgid,
            dgid,
        }
    }

    const PACKET: Packet = Packet {
        slid: Lid::NONE,
        dlid: Lid::NONE,
        sl: 0,
        pkey: 0xffff,
        dest_qp: 0x48,
        grh: Some(grh(TWO, ONE)),
        len: 100,
        management: false,
        transport: Transport::datagram(0x49, 0),
    };

    /// An Ethernet port with the first GID.
    fn port() -> Port {
        let mut config = Config::EXAMPLE;
        config.link_layer = LinkLayer::Ethernet;
        let mut port = Port::new(&config, 1, Guid::new(0x11));
        assert_eq!(port.set_gid(1, ONE), Some(()));
        port
    }

    /// A port whose link is Active.
    fn active() -> Port {
        let mut port = port();
        port.set_netdev(Some(1500));
        let peer = port.offer();
        assert_eq!(port.link_up(&peer), Event::PortActive.into());
        port
    }

    #[test]
    fn a_link_needs_the_network_device_and_no_manager() {
        let mut port = port();
        let peer = port.offer();
        assert_eq!(port.phys_state(), PhysState::Disabled);
        assert!(port.link_up(&peer).is_empty());
        assert_eq!(port.state(), PortState::Down);
        for mtu in [None, Some(0), Some(351)] {
            assert!(!port.set_netdev(mtu));
        }
        assert!(port.set_netdev(Some(1500)) && !port.set_netdev(Some(5000)));
        assert_eq!(port.phys_state(), PhysState::Polling);
        assert_eq!(port.link_up(&peer), Event::PortActive.into());
        assert_eq!(port.state(), PortState::Active);
        assert_eq!(port.active_mtu(), Mtu::B4096);
        // Its own MTU counts, not that of the other end.
        assert!(!port.set_netdev(Some(1500)));
        assert_eq!(port.active_mtu(), Mtu::B1024);

        assert!(port.set_netdev(None));
        assert_eq!(port.state(), PortState::Active);
        assert_eq!(port.link_down(), Event::PortError.into());
        assert_eq!(port.phys_state(), PhysState::Disabled);
        assert!(port.set_netdev(Some(352)));
        assert_eq!(port.phys_state(), PhysState::Polling);
    }

    #[test]
    fn infiniband_ports_have_no_network_device() {
        let mut port = Port::new(&Config::EXAMPLE, 1, Guid::new(0x11));
        assert!(!port.set_netdev(None));
        assert_eq!(port.phys_state(), PhysState::Polling);
        assert_eq!(port.set_gid(1, ONE), None);
    }

    #[test]
    fn mtus() {
        for (bytes, mtu) in [
            (4192, Some(Mtu::B4096)),
            (4191, Some(Mtu::B2048)),
            (1500, Some(Mtu::B1024)),
            (352, Some(Mtu::B256)),
            (351, None),
            (0, None),
            (u32::MAX, Some(Mtu::B4096)),
        ] {
            assert_eq!(Mtu::over_ethernet(bytes), mtu);
        }
    }

    #[test]
    fn who_takes_a_packet() {
        type Case = (fn(&mut Packet), bool);
        let cases: [Case; 13] = [
            (|_| {}, true),
            (|p| p.dest_qp = 1, true),
            (|p| p.dest_qp = 0, false),
            (|p| p.dest_qp = 0xff_ffff, false),
            (|p| p.grh = None, false),
            (|p| p.grh = Some(grh(ONE, TWO)), false),
            (|p| p.grh = Some(grh(ONE, Gid::NONE)), false),
            (|p| p.dlid = Lid::new(1), false),
            (|p| p.slid = Lid::new(1), false),
            (|p| p.management = true, false),
            (|p| p.grh = Some(grh(TWO, GROUP)), false),
            (
                |p| (p.grh, p.dest_qp) = (Some(grh(TWO, GROUP)), 0xff_ffff),
                true,
            ),
            (
                |p| (p.grh, p.dest_qp) = (Some(grh(TWO, mapped([239, 1, 2, 3]))), 0xff_ffff),
                true,
            ),
        ];
        let port = active();
        for (change, taken) in cases {
            let mut packet = PACKET;
            change(&mut packet);
            assert_eq!(accepts(&port, &packet), taken);
        }
    }

    #[test]
    fn where_a_packet_goes() {
        let mut port = active();
        let ways = |port: &Port, from, to| {
            let Ways { local, wire } = super::ways(port, &grh(from, to));
            (local, wire)
        };
        assert_eq!(ways(&port, ONE, TWO), (false, true));
        assert_eq!(ways(&port, ONE, ONE), (true, false));
        assert_eq!(ways(&port, ONE, GROUP), (true, true));
        assert_eq!(ways(&port, Gid::NONE, TWO), (false, false));
        port.link_down();
        for to in [ONE, TWO, GROUP] {
            assert_eq!(ways(&port, ONE, to), (false, false));
        }
    }

    #[test]
    fn groups_by_gid() {
        assert!(!PACKET.is_multicast() && PACKET.is_ethernet());
        for (gid, group) in [
            (GROUP, true),
            (mapped([224, 0, 0, 1]), true),
            (mapped([223, 255, 255, 255]), false),
            (mapped([240, 0, 0, 0]), false),
        ] {
            let mut packet = PACKET;
            packet.grh = Some(grh(TWO, gid));
            assert_eq!(packet.is_multicast(), group);
            // With a LID, that one counts.
            packet.dlid = Lid::new(5);
            assert!(!packet.is_multicast() && !packet.is_ethernet());
        }
    }

    #[test]
    fn bytes_on_the_wire() {
        let bth_deth_icrc = 12 + 8 + 4;
        assert_eq!(PACKET.wire_bytes(), 14 + 40 + 8 + bth_deth_icrc + 100);
        let mut packet = PACKET;
        packet.grh = Some(grh(mapped([192, 0, 2, 1]), mapped([192, 0, 2, 2])));
        assert_eq!(packet.wire_bytes(), 14 + 20 + 8 + bth_deth_icrc + 100);
    }

    #[test]
    fn headers_of_ip() {
        let header = Header::new(&grh(ONE, TWO), 32);
        assert_eq!(header.network, Network::V6);
        let [first, .., last] = header.bytes;
        assert_eq!((first, last), (0x66, 2));
        assert_eq!(header.bytes[4..8], [0, 40, 17, 64]);

        let header = Header::new(&grh(mapped([192, 0, 2, 1]), mapped([192, 0, 2, 2])), 32);
        assert_eq!(header.network, Network::V4);
        assert_eq!(header.bytes[..20], [0; 20]);
        let expected = [
            0x45, 0x68, 0, 60, 0, 0, 0x40, 0, 64, 17, 0xb6, 0x45, 192, 0, 2, 1, 192, 0, 2, 2,
        ];
        assert_eq!(header.bytes[20..], expected);

        // The header of IPv6 carries what is not both of IPv4.
        let mixed = Header::new(&grh(mapped([192, 0, 2, 1]), TWO), 32);
        assert_eq!(mixed.network, Network::V6);
    }
}
