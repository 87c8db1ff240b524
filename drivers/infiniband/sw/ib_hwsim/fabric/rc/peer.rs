// SPDX-License-Identifier: GPL-2.0

//! The rules by which a connected queue pair takes a packet or drops it (sections 9.6.1.2 to
//! 9.6.1.5).

use crate::addr::{Gid, Lid};
use crate::discard::Discard;
use crate::keys::PKey;
use crate::packet::{Packet, Transport};
use crate::port::Port;

/// The other end of a connection, as a queue pair knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The LID.
    pub lid: Lid,
    /// The low bits of the own LID that it sends to.
    pub path_bits: u8,
    /// The index of the P_Key.
    pub pkey_index: u16,
    /// The index of the own GID, and the other end's GID, if packets have global route headers.
    pub route: Option<(u8, Gid)>,
}

/// Checks a packet, which the port has accepted, at a queue pair.
///
/// # Errors
///
/// [`Discard::NotForUs`], [`Discard::PKey`], or [`Discard::NoQp`] for a packet of another transport.
pub fn accepts(port: &Port, peer: &Peer, packet: &Packet) -> Result<(), Discard> {
    if !matches!(packet.transport, Transport::Rc(_)) {
        return Err(Discard::NoQp);
    }
    let own = port.lid_with(peer.path_bits);
    if packet.slid != peer.lid || packet.dlid != own || !accepts_route(port, peer, packet) {
        return Err(Discard::NotForUs);
    }
    let key = port.pkey(peer.pkey_index).map(PKey::new);
    if key.is_some_and(|key| key.matches(PKey::new(packet.pkey))) {
        Ok(())
    } else {
        Err(Discard::PKey)
    }
}

fn accepts_route(port: &Port, peer: &Peer, packet: &Packet) -> bool {
    match (&peer.route, &packet.grh) {
        (None, None) => true,
        (Some((index, gid)), Some(grh)) => grh.sgid == *gid && port.gid(*index) == Some(grh.dgid),
        _ => false,
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_rc_peer))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;
    use crate::addr::Guid;
    use crate::config::Config;
    use crate::grh::Grh;
    use crate::rc::{Bth, Op, Psn};

    const REMOTE: Gid = Gid::from_parts(Gid::DEFAULT_PREFIX, Guid::new(0x99));
    const OWN: Gid = Gid::from_parts(Gid::DEFAULT_PREFIX, Guid::new(0x11));

    const PEER: Peer = Peer {
        lid: Lid::new(5),
        path_bits: 1,
        pkey_index: 1,
        route: None,
    };

    const GOOD: Packet = Packet {
        slid: Lid::new(5),
        dlid: Lid::new(0x11),
        sl: 0,
        pkey: 0x8001,
        dest_qp: 0x48,
        grh: None,
        len: 0,
        management: false,
        transport: Transport::Rc(Bth::bare(Psn::new(0), Op::Resume)),
    };

    const GRH: Grh = Grh {
        traffic_class: 0,
        flow_label: 0,
        hop_limit: 0,
        sgid: REMOTE,
        dgid: OWN,
    };

    type Change = fn(&mut Packet, &mut Peer);

    #[test]
    fn packets_at_a_connection() {
        let datagram = |packet: &mut Packet, _: &mut Peer| {
            packet.transport = Transport::Ud {
                qkey: 0,
                src_qp: 0,
                immediate: None,
                solicited: false,
            };
        };
        let cases: [(Change, Result<(), Discard>); 13] = [
            (|_, _| {}, Ok(())),
            (datagram, Err(Discard::NoQp)),
            (|p, _| p.slid = Lid::new(6), Err(Discard::NotForUs)),
            (|p, _| p.dlid = Lid::new(0x10), Err(Discard::NotForUs)),
            (|_, q| q.path_bits = 0, Err(Discard::NotForUs)),
            (|_, q| q.path_bits = 0x83, Ok(())),
            (|p, _| p.pkey = 0x8002, Err(Discard::PKey)),
            (|p, _| p.pkey = 0x0001, Err(Discard::PKey)),
            (|_, q| q.pkey_index = 9, Err(Discard::PKey)),
            (|p, _| p.grh = Some(GRH), Err(Discard::NotForUs)),
            (|_, q| q.route = Some((0, REMOTE)), Err(Discard::NotForUs)),
            (
                |p, q| (p.grh, q.route) = (Some(GRH), Some((0, REMOTE))),
                Ok(()),
            ),
            (
                |p, q| (p.grh, q.route) = (Some(GRH), Some((0, OWN))),
                Err(Discard::NotForUs),
            ),
        ];
        let mut port = Port::new(&Config::EXAMPLE, 1, Guid::new(0x11));
        port.pkeys.write(0, &[0xff, 0xff, 0x00, 0x01]);
        (port.lid, port.lmc) = (Lid::new(0x10), 1);
        for (change, expected) in cases {
            let (mut packet, mut peer) = (GOOD, PEER);
            change(&mut packet, &mut peer);
            assert_eq!(accepts(&port, &peer, &packet), expected);
        }
    }
}
