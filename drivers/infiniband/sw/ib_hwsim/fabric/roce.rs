// SPDX-License-Identifier: GPL-2.0

//! Ports of RDMA over converged Ethernet, RoCE v2 (annex A17): addresses are GIDs, which are IP addresses.
//!
//! There are no LIDs, no subnet manager and no queue pair 0. A packet has [`Lid::NONE`] for both LIDs,
//! and always a global route header, which stands for the header of IPv6 or IPv4 on the wire.

pub(crate) mod header;

use crate::addr::{Gid, Lid};
use crate::grh::Grh;
use crate::keys::Qpn;
use crate::link::{PhysState, PortState};
use crate::mtu::Mtu;
use crate::packet::Packet;
use crate::port::Port;
use header::is_group;

pub use header::{Header, Network};

/// Bytes of a frame's payload beside the message: GRH, UDP, BTH, XRC, atomic operation and ICRC.
const HEADERS: u32 = 40 + 8 + 12 + 4 + 28 + 4;

impl Mtu {
    /// Returns the largest MTU of a port whose network device has one of so many bytes; `None` if it carries no
    /// packets.
    pub fn over_ethernet(bytes: u32) -> Option<Mtu> {
        let most = bytes.checked_sub(HEADERS)?;
        let codes = (1..=Mtu::B4096 as u8).rev();
        codes
            .filter_map(Mtu::from_code)
            .find(|mtu| mtu.bytes() <= most)
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

/// Returns true if a packet is for an Ethernet port: for a group and all queue pairs attached to it, or for a queue
/// pair and one of the port's GIDs.
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
