// SPDX-License-Identifier: GPL-2.0

//! The rules by which a port and a queue pair take an unreliable datagram or drop it (sections
//! 9.6.1 packet validation, 10.2.5 Q_Keys and 10.9.3 P_Keys).

use crate::addr::Lid;
use crate::discard::Discard;
use crate::hca::Hca;
use crate::keys::{PKey, Qpn};
use crate::packet::{Packet, Transport};
use crate::port::Port;
use crate::roce;

/// The payload of a management datagram in bytes, neither more nor less.
const MAD_BYTES: u32 = size_of::<crate::mad::Mad>() as u32;

/// Checks a packet at the port that it came to.
///
/// # Errors
///
/// [`Discard::PortDown`], [`Discard::NotForUs`], [`Discard::TooLong`] or [`Discard::BadLength`].
pub fn port_accepts(hca: &Hca, port: u8, packet: &Packet) -> Result<(), Discard> {
    let port = hca.port(port).ok_or(Discard::PortDown)?;
    if !port.state().receives(packet.management) {
        return Err(Discard::PortDown);
    }
    let addressed = if port.is_ethernet() {
        roce::accepts(port, packet)
    } else if packet.management {
        smi_accepts(port, packet)
    } else if packet.dlid.is_multicast() {
        group_accepts(packet)
    } else {
        unicast_accepts(port, packet)
    };
    if !addressed {
        return Err(Discard::NotForUs);
    }
    // Management datagrams fit the smallest MTU.
    if packet.len > port.active_mtu().bytes() {
        return Err(Discard::TooLong);
    }
    if packet.dest_qp <= Qpn::GSI.get() && packet.len != MAD_BYTES {
        return Err(Discard::BadLength);
    }
    Ok(())
}

/// Returns true if a packet on virtual lane 15 is one for this port's queue pair 0: never with a global
/// route header (section 13.5), by LID or by the permissive one.
fn smi_accepts(port: &Port, packet: &Packet) -> bool {
    packet.dest_qp == Qpn::SMI.get()
        && packet.grh.is_none()
        && (packet.dlid == Lid::PERMISSIVE || port.has_lid(packet.dlid))
}

/// Returns true if a packet to a multicast LID names a group and all queue pairs attached to it.
fn group_accepts(packet: &Packet) -> bool {
    packet.dest_qp == Qpn::MULTICAST.get() && packet.grh.is_some_and(|grh| grh.dgid.is_multicast())
}

/// Returns true if a data packet is for a single queue pair of this port: not for number 0, which
/// virtual lane 15 alone reaches, and with one of the port's GIDs if it has any.
fn unicast_accepts(port: &Port, packet: &Packet) -> bool {
    packet.dest_qp != Qpn::SMI.get()
        && packet.dest_qp < Qpn::MULTICAST.get()
        && port.has_lid(packet.dlid)
        && packet.grh.is_none_or(|grh| port.has_gid(&grh.dgid))
}

/// Checks a packet, which the port has accepted, at a queue pair.
///
/// `qp_pkey_index` and `qp_qkey` are the queue pair's. Queue pair 0 needs no key, and queue pair
/// 1 takes any P_Key of the port.
///
/// # Errors
///
/// [`Discard::PKey`], [`Discard::QKey`], or [`Discard::NoQp`] for a packet of another transport.
pub fn qp_accepts(
    port: &Port,
    qp_pkey_index: u16,
    qp_qkey: u32,
    packet: &Packet,
) -> Result<(), Discard> {
    if packet.dest_qp == Qpn::SMI.get() {
        return Ok(());
    }
    let Transport::Ud { qkey, .. } = packet.transport else {
        return Err(Discard::NoQp);
    };
    let key = PKey::new(packet.pkey);
    let member = if packet.dest_qp == Qpn::GSI.get() {
        port.find_pkey(key).is_some()
    } else {
        let own = port.pkey(qp_pkey_index);
        own.is_some_and(|own| PKey::new(own).matches(key))
    };
    if !member {
        Err(Discard::PKey)
    } else if qkey != qp_qkey {
        Err(Discard::QKey)
    } else {
        Ok(())
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_ud))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;
    use crate::addr::{Gid, Guid};
    use crate::config::Config;
    use crate::counters::Counted;
    use crate::grh::Grh;
    use crate::link::PortState;

    const QKEY: u32 = 0x0b1b;

    /// A unicast packet that an active port with LID 0x10 and LMC 1 takes.
    const GOOD: Packet = Packet {
        slid: Lid::new(1),
        dlid: Lid::new(0x11),
        sl: 0,
        pkey: 0xffff,
        dest_qp: 0x48,
        grh: None,
        len: 2048,
        management: false,
        transport: with_qkey(QKEY),
    };

    const fn with_qkey(qkey: u32) -> Transport {
        Transport::Ud {
            qkey,
            src_qp: 0x49,
            immediate: None,
            solicited: false,
        }
    }

    /// A subnet management packet by directed route.
    const SMP: Packet = Packet {
        dlid: Lid::PERMISSIVE,
        dest_qp: 0,
        len: 256,
        management: true,
        ..GOOD
    };

    const GROUP: Packet = Packet {
        dlid: Lid::new(0xc001),
        dest_qp: 0xff_ffff,
        grh: Some(grh(Gid::from_parts(0xff12 << 48, Guid::new(1)))),
        ..GOOD
    };

    const fn grh(dgid: Gid) -> Grh {
        Grh {
            traffic_class: 0,
            flow_label: 0,
            hop_limit: 0,
            sgid: dgid,
            dgid,
        }
    }

    /// Makes a global route header to a GID.
    fn to_gid(prefix: u64, guid: u64) -> Option<Grh> {
        Some(grh(Gid::from_parts(prefix, Guid::new(guid))))
    }

    /// A packet, a change to it, and what comes of that.
    type Case<T> = (&'static Packet, fn(&mut Packet), T);

    fn changed(packet: &Packet, change: fn(&mut Packet)) -> Packet {
        let mut packet = *packet;
        change(&mut packet);
        packet
    }

    /// Checks a packet at a port in a state.
    // An adapter takes most of what a function may have on the stack.
    #[inline(never)]
    fn at_port(state: PortState, packet: &Packet) -> Result<(), Discard> {
        let mut made = Hca::new(&Config::EXAMPLE);
        let Some(hca) = &mut made else {
            return Err(Discard::NoQp);
        };
        if let Some(port) = hca.port_mut(1) {
            let peer = port.offer();
            port.link_up(&peer);
            port.state = state;
            port.lid = Lid::new(0x10);
            port.lmc = 1;
            port.neighbor_mtu = crate::Mtu::B2048;
        }
        port_accepts(hca, 1, packet)
    }

    #[test]
    fn states_of_the_port() {
        use PortState::{Active, Armed, Down, Init};
        for (packet, taken) in [
            (SMP, [false, true, true, true]),
            (GOOD, [false, false, true, true]),
            (GROUP, [false, false, true, true]),
        ] {
            for (state, taken) in [Down, Init, Armed, Active].into_iter().zip(taken) {
                let expected = taken.then_some(()).ok_or(Discard::PortDown);
                assert_eq!(at_port(state, &packet), expected);
            }
        }
    }

    #[test]
    fn no_port_takes_nothing() {
        if let Some(hca) = &Hca::new(&Config::EXAMPLE) {
            for port in [0, 3, 255] {
                assert_eq!(port_accepts(hca, port, &SMP), Err(Discard::PortDown));
            }
        }
    }

    /// Section 9.6.1: addresses, numbers and headers that do not go together.
    #[test]
    fn addresses() {
        const MINE: u64 = Gid::DEFAULT_PREFIX;
        const GROUPS: u64 = 0xff12 << 48;
        let cases: [Case<bool>; 24] = [
            (&GOOD, |_| {}, true),
            (&GOOD, |p| p.dlid = Lid::new(0x10), true),
            (&GOOD, |p| p.dlid = Lid::new(0x12), false),
            (&GOOD, |p| p.dlid = Lid::PERMISSIVE, false),
            (&GOOD, |p| p.dlid = Lid::NONE, false),
            (&GOOD, |p| (p.dest_qp, p.len) = (0, 256), false),
            (&GOOD, |p| (p.dest_qp, p.len) = (1, 256), true),
            (&GOOD, |p| p.dest_qp = 0xff_ffff, false),
            (&GOOD, |p| p.dest_qp = u32::MAX, false),
            (&GOOD, |p| p.grh = to_gid(MINE, 0x11), true),
            (&GOOD, |p| p.grh = to_gid(MINE, 0x12), false),
            (&GOOD, |p| p.grh = to_gid(MINE, 0), false),
            (&GOOD, |p| p.grh = to_gid(GROUPS, 1), false),
            (&GROUP, |_| {}, true),
            (&GROUP, |p| p.grh = None, false),
            (&GROUP, |p| p.grh = to_gid(MINE, 0x11), false),
            (&GROUP, |p| p.dest_qp = 0x48, false),
            (&SMP, |_| {}, true),
            (&SMP, |p| p.dlid = Lid::new(0x10), true),
            (&SMP, |p| p.dlid = Lid::new(0x20), false),
            (&SMP, |p| p.dlid = Lid::new(0xc001), false),
            (&SMP, |p| p.dest_qp = 1, false),
            (&SMP, |p| p.dest_qp = 0x48, false),
            (&SMP, |p| p.grh = to_gid(MINE, 0x11), false),
        ];
        for (packet, change, taken) in cases {
            let expected = taken.then_some(()).ok_or(Discard::NotForUs);
            let packet = changed(packet, change);
            assert_eq!(at_port(PortState::Active, &packet), expected);
        }
    }

    #[test]
    fn lengths() {
        let cases: [Case<Result<(), Discard>>; 7] = [
            (&GOOD, |p| p.len = 0, Ok(())),
            (&GOOD, |p| p.len = 2049, Err(Discard::TooLong)),
            (&GROUP, |p| p.len = u32::MAX, Err(Discard::TooLong)),
            (&SMP, |p| p.len = 255, Err(Discard::BadLength)),
            (&SMP, |p| p.len = 257, Err(Discard::BadLength)),
            (&SMP, |p| p.len = 4096, Err(Discard::TooLong)),
            (&GOOD, |p| p.dest_qp = 1, Err(Discard::BadLength)),
        ];
        for (packet, change, expected) in cases {
            let packet = changed(packet, change);
            assert_eq!(at_port(PortState::Active, &packet), expected);
        }
    }

    /// A port with the P_Keys 0xffff, 0x0001 and 0x8002.
    fn port() -> Port {
        let mut port = Port::new(&Config::EXAMPLE, 1, Guid::new(0x11));
        port.pkeys.write(0, &[0xff, 0xff, 0x00, 0x01, 0x80, 0x02]);
        port
    }

    #[test]
    fn keys_at_a_queue_pair() {
        // queue pair's index, packet's P_Key and Q_Key, answer
        let cases = [
            (0, 0xffff, QKEY, Ok(())),
            (0, 0x7fff, QKEY, Ok(())),
            (0, 0x8001, QKEY, Err(Discard::PKey)),
            (1, 0x8001, QKEY, Ok(())),
            (1, 0x0001, QKEY, Err(Discard::PKey)),
            (3, 0x0000, QKEY, Err(Discard::PKey)),
            (3, 0x8000, QKEY, Err(Discard::PKey)),
            (4, 0xffff, QKEY, Err(Discard::PKey)),
            (0, 0xffff, QKEY + 1, Err(Discard::QKey)),
            (0, 0x8001, QKEY + 1, Err(Discard::PKey)),
        ];
        for (index, pkey, qkey, expected) in cases {
            for mut packet in [GOOD, GROUP] {
                (packet.pkey, packet.transport) = (pkey, with_qkey(qkey));
                assert_eq!(qp_accepts(&port(), index, QKEY, &packet), expected);
            }
        }
    }

    #[test]
    fn management_interfaces() {
        let qkey = crate::QKey::GSI.get();
        let mut gmp = GOOD;
        (gmp.dest_qp, gmp.transport, gmp.len) = (1, with_qkey(qkey), 256);
        for (pkey, expected) in [
            (0xffff, Ok(())),
            (0x8001, Ok(())),
            (0x0002, Ok(())),
            (0x0001, Err(Discard::PKey)),
            (0x8003, Err(Discard::PKey)),
        ] {
            gmp.pkey = pkey;
            assert_eq!(qp_accepts(&port(), 0, qkey, &gmp), expected);
        }
        (gmp.pkey, gmp.transport) = (0xffff, with_qkey(0));
        assert_eq!(qp_accepts(&port(), 0, qkey, &gmp), Err(Discard::QKey));
        let smp = changed(&SMP, |p| (p.pkey, p.transport) = (0, with_qkey(7)));
        assert_eq!(qp_accepts(&port(), 99, 0, &smp), Ok(()));
        assert_eq!(port().find_pkey(PKey::new(0x0002)), Some(2));
        assert_eq!(port().find_pkey(PKey::new(0x8003)), None);
    }

    #[test]
    fn reasons_that_a_port_counts() {
        let violation = Some(Counted::PKeyViolation);
        assert_eq!(Discard::PKey.counted(&GOOD), violation);
        assert_eq!(Discard::NoReceive.counted(&GOOD), None);
        let dropped = Some(Counted::VL15Dropped);
        assert_eq!(Discard::NoReceive.counted(&SMP), dropped);
    }
}
