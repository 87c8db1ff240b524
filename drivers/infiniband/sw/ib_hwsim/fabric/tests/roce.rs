// SPDX-License-Identifier: GPL-2.0

//! Property tests: Ethernet ports keep their own rules, whatever happens to them and whatever comes.

use ib_fabric::roce::{ways, Header, Network};
use ib_fabric::ud::port_accepts;
use ib_fabric::*;
use proptest::prelude::*;

/// A thing that happens to an adapter.
#[derive(Clone, Debug)]
enum Input {
    Netdev(u8, Option<u32>),
    Gid(u8, u8, u8),
    Up(u8),
    Down(u8),
    Data(u8),
    Mad(u8, u8),
}

fn input() -> impl Strategy<Value = Input> {
    let port = 0u8..4;
    let mtu = prop::option::of(prop_oneof![0u32..6000, any::<u32>()]);
    prop_oneof![
        (port.clone(), mtu).prop_map(|(port, mtu)| Input::Netdev(port, mtu)),
        (port.clone(), 0u8..20, 0u8..4).prop_map(|(port, at, gid)| Input::Gid(port, at, gid)),
        port.clone().prop_map(Input::Up),
        port.clone().prop_map(Input::Down),
        port.clone().prop_map(Input::Data),
        (port, any::<u8>()).prop_map(|(port, class)| Input::Mad(port, class)),
    ]
}

fn adapter() -> Hca {
    Hca::new(&Config {
        link_layer: LinkLayer::Ethernet,
        node_guid: Guid::new(0x10),
        system_guid: Guid::NONE,
        port_guids: [Guid::new(0x11), Guid::new(0x12)],
        ports: 2,
        pkeys: 1,
        guids: 16,
        mtu: Mtu::B4096,
        vendor_id: 1,
        device_id: 2,
        revision: 3,
    })
    .unwrap()
}

/// One of a few GIDs: none, of IPv6, of IPv4, of a group.
fn gid(kind: u8) -> Gid {
    let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1];
    match kind {
        0 => Gid::NONE,
        1 => Gid::from_parts(Gid::DEFAULT_PREFIX, Guid::new(1)),
        2 => Gid::from_bytes(mapped),
        _ => Gid::from_parts(0xff12_401b_ffff_0000, Guid::new(1)),
    }
}

/// Lets something happen, and checks what is said of it.
fn feed(hca: &mut Hca, input: &Input) -> Result<(), TestCaseError> {
    let state = |hca: &Hca, port| hca.port(port).map(Port::state);
    let whole = Some(Mtu::B4096);
    match *input {
        Input::Netdev(port, mtu) => {
            let before = state(hca, port);
            hca.set_netdev(port, mtu);
            // The cable follows.
            prop_assert_eq!(state(hca, port), before);
        }
        Input::Gid(port, at, kind) => {
            let set = hca.set_gid(port, at, gid(kind));
            prop_assert_eq!(set.is_some(), (1..=2).contains(&port) && at < 16);
            let read = hca.port(port).and_then(|port| port.gid(at));
            prop_assert_eq!(read, set.map(|()| gid(kind)));
        }
        Input::Up(port) => {
            let trains = hca.port(port).map(|port| port.phys_state().can_train());
            let down = state(hca, port) == Some(PortState::Down);
            let offer = hca.offer(port);
            let events = hca.link_up(port, &offer);
            let up = down && trains == Some(true);
            prop_assert_eq!(events.contains(Event::PortActive), up);
        }
        Input::Down(port) => {
            let active = state(hca, port) == Some(PortState::Active);
            let events = hca.link_down(port);
            prop_assert_eq!(events.contains(Event::PortError), active);
        }
        Input::Data(port) => prop_assert!(hca.data_arrived(port).is_empty()),
        Input::Mad(port, class) => {
            let (mut mad, mut reply) = ([0; 256], [0; 256]);
            (mad[0], mad[1], mad[2], mad[3]) = (1, class, 1, 1);
            let how = Arrival {
                local: true,
                slid: Lid::NONE,
                src_qp: 0,
                pkey_index: 0,
            };
            let outcome = hca.process_mad(port, &how, &mad, &mut reply);
            let subnet = matches!(class, 0x01 | 0x81);
            prop_assert!(!subnet || outcome.verdict == Verdict::Consume);
            prop_assert!(matches!(hca.trap(port, 0, &mut mad), TrapDue::Never));
        }
    }
    for port in (1..=2).filter_map(|number| hca.port(number)) {
        let (state, phys) = (port.state(), port.phys_state());
        prop_assert!(matches!(state, PortState::Down | PortState::Active));
        prop_assert_eq!(state == PortState::Active, phys == PhysState::LinkUp);
        prop_assert!(port.is_ethernet() && port.lid() == Lid::NONE);
        prop_assert!(Some(port.active_mtu()) <= whole);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_history(inputs in prop::collection::vec(input(), 0..100)) {
        let mut hca = adapter();
        for input in &inputs {
            feed(&mut hca, input)?;
        }
    }

    /// A port takes what is for one of its GIDs, or for a group, and nothing without a global route header.
    #[test]
    fn any_packet(
        from in 0u8..4,
        to in 0u8..4,
        header: bool,
        lids in (0u16..2, 0u16..2),
        dest_qp in prop_oneof![0u32..3, Just(0xff_ffff), any::<u32>()],
        len in prop_oneof![Just(256u32), any::<u32>()],
        management: bool,
    ) {
        let mut hca = adapter();
        hca.set_gid(1, 3, gid(1)).unwrap();
        hca.set_netdev(1, Some(1500));
        let offer = hca.offer(1);
        hca.link_up(1, &offer);
        let grh = Grh {
            traffic_class: 0,
            flow_label: 0,
            hop_limit: 1,
            sgid: gid(from),
            dgid: gid(to),
        };
        let packet = Packet {
            slid: Lid::new(lids.0),
            dlid: Lid::new(lids.1),
            sl: 0,
            pkey: 0xffff,
            dest_qp,
            grh: header.then_some(grh),
            len,
            management,
            transport: Transport::datagram(1, 0),
        };
        prop_assert!(port_accepts(&hca, 2, &packet).is_err());
        if port_accepts(&hca, 1, &packet).is_ok() {
            prop_assert!(header && !management && lids == (0, 0) && len <= 1024);
            prop_assert!(to == 1 && dest_qp != 0 || to == 3 && dest_qp == 0xff_ffff);
            prop_assert_eq!(packet.is_multicast(), to == 3);
        }
        let ways = ways(hca.port(1).unwrap(), &grh);
        prop_assert_eq!(ways.local, from != 0 && matches!(to, 1 | 3));
        prop_assert_eq!(ways.wire, from != 0 && to != 1);
    }

    /// The header in front of a received datagram is valid, and of the IP version that is reported.
    #[test]
    fn any_header(
        from in 0u8..4,
        to in 0u8..4,
        traffic_class: u8,
        flow_label: u32,
        hop_limit: u8,
        following in 0u16..5000,
    ) {
        let grh = Grh { traffic_class, flow_label, hop_limit, sgid: gid(from), dgid: gid(to) };
        let (from_gid, to_gid) = (gid(from), gid(to));
        let header = Header::new(&grh, following);
        let number = |at: usize| u16::from_be_bytes([header.bytes[at], header.bytes[at + 1]]);
        if header.network == Network::V4 {
            prop_assert!(from == 2 && to == 2);
            prop_assert_eq!(&header.bytes[..20], &[0; 20]);
            prop_assert_eq!(header.bytes[20], 0x45);
            prop_assert_eq!(number(22), 20 + 8 + following);
            let sum = (20..40).step_by(2).fold(0u32, |sum, at| sum + u32::from(number(at)));
            prop_assert_eq!((sum >> 16) + (sum & 0xffff), 0xffff);
            prop_assert_eq!(&header.bytes[32..36], &from_gid.bytes()[12..]);
        } else {
            prop_assert_eq!(header.bytes[0] >> 4, 6);
            prop_assert_eq!((number(4), header.bytes[6]), (8 + following, 17));
            prop_assert_eq!(&header.bytes[8..24], from_gid.bytes());
            prop_assert_eq!(&header.bytes[24..], to_gid.bytes());
        }
    }
}
