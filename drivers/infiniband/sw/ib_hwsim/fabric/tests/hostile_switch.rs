// SPDX-License-Identifier: GPL-2.0

//! Property tests: no packet and no datagram makes a switch panic or break its own rules.

#[path = "checks/switch.rs"]
mod checks;
mod manager;

use checks::{check, feed, Input};

use ib_fabric::{Lid, LinkOffer, Mad, Mtu, Packet, Transport};
use manager::net::{switch, switch_config, Net};
use manager::sweep::{directed, smi_packet};
use manager::*;
use proptest::prelude::*;

/// A port number, most often one that exists.
fn number() -> impl Strategy<Value = u8> {
    prop_oneof![9 => 0u8..6, 1 => any::<u8>()]
}

fn lid() -> impl Strategy<Value = Lid> {
    let raw = prop_oneof![
        4 => Just(0xffff),
        4 => 0u16..4,
        2 => 0xc000u16..0xc004,
        1 => any::<u16>(),
    ];
    raw.prop_map(Lid::new)
}

fn packet() -> impl Strategy<Value = Packet> {
    let qp = || prop_oneof![3 => Just(0u32), 3 => Just(1), 1 => any::<u32>()];
    let len = prop_oneof![8 => Just(256u32), 1 => any::<u32>()];
    let pkey = prop_oneof![4 => Just(0xffffu16), 1 => any::<u16>()];
    let qkey = prop_oneof![4 => Just(0x8001_0000u32), 1 => any::<u32>()];
    (
        lid(),
        lid(),
        any::<u8>(),
        (qp(), qp()),
        (pkey, qkey),
        len,
        any::<bool>(),
    )
        .prop_map(
            |(slid, dlid, sl, (dest_qp, src_qp), (pkey, qkey), len, management)| Packet {
                slid,
                dlid,
                sl,
                pkey,
                dest_qp,
                transport: Transport::datagram(src_qp, qkey),
                len,
                management,
                ..smi_packet(0, 0)
            },
        )
}

/// Any 256 bytes, bytes with a header that some agent listens to, and settings.
fn mad() -> impl Strategy<Value = Box<Mad>> {
    let any_bytes = || {
        let bytes = prop::collection::vec(any::<u8>(), 256);
        bytes.prop_map(|bytes| Box::new(Mad::try_from(bytes).unwrap()))
    };
    let likely = (
        any_bytes(),
        prop::sample::select(vec![0x01u8, 0x81, 0x04]),
        prop::sample::select(vec![GET, SET, SET, 0x07, 0x81]),
        0x10u16..0x1f,
        (
            0u32..6,
            0u32..6,
            prop::sample::select(vec![0u32, 8, 16, 28]),
        ),
        (0u8..4, 0u8..4, any::<bool>(), 0u8..6),
    );
    let likely = likely.prop_map(
        |(mut mad, class, method, attribute, (low, high, shift), (pointer, count, back, out))| {
            mad[..4].copy_from_slice(&[1, class, 1, method]);
            mad[4] = if back { 0x80 } else { 0 };
            (mad[6], mad[7]) = (pointer, count);
            mad[16..18].copy_from_slice(&attribute.to_be_bytes());
            mad[20..24].copy_from_slice(&(low | (high << shift)).to_be_bytes());
            mad[24..32].fill(0);
            mad[32..36].fill(0xff);
            mad[128..].fill(out);
            mad
        },
    );
    let settings = (number(), 0u8..5, 0u8..4, 0u8..4, 0u8..16);
    let settings = settings.prop_map(|(port, state, lid, sm_lid, low)| {
        let mut data = [0; 64];
        (data[17], data[19]) = (lid, sm_lid);
        (data[32], data[36], data[43]) = (state, 0x50, low);
        let mut mad = smp(SET, PORT_INFO, u32::from(port), &data);
        (mad[1], mad[6], mad[7]) = (1, 0, 0);
        Box::new(mad)
    });
    prop_oneof![1 => any_bytes(), 5 => likely, 4 => settings]
}

fn input() -> impl Strategy<Value = Input> {
    let mtu = (1u8..=5).prop_map(|code| Mtu::from_code(code).unwrap());
    let mask = || prop_oneof![4 => Just(0xff), 1 => any::<u8>()];
    let offer = (mask(), mask(), mtu, mask()).prop_map(|(widths, speeds, mtu, vl_cap)| LinkOffer {
        widths,
        speeds,
        mtu,
        vl_cap,
    });
    prop_oneof![
        12 => (number(), packet(), mad()).prop_map(|(port, p, mad)| Input::Packet(port, p, mad)),
        2 => (number(), packet(), mad()).prop_map(|(port, p, mad)| Input::Manage(port, p, mad)),
        4 => (number(), offer).prop_map(|(port, offer)| Input::Up(port, offer)),
        1 => number().prop_map(Input::Down),
        1 => any::<u8>().prop_map(Input::Describe),
        1 => any::<u16>().prop_map(Input::Elapse),
        2 => any::<u16>().prop_map(Input::Trap),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_history(inputs in prop::collection::vec(input(), 0..150), ports in 1u8..=5) {
        let mut switch = switch(&switch_config(0x10, ports));
        let mut now = 0;
        for port in 1..=ports {
            let offer = switch.offer(port);
            switch.link_up(port, &offer);
        }
        for input in &inputs {
            feed(&mut switch, &mut now, input);
            check(&switch);
        }
    }

    /// Tables of random bytes name no port that does not exist.
    #[test]
    fn any_tables(
        routes in prop::collection::vec(any::<u8>(), 64),
        groups in prop::collection::vec(any::<u8>(), 64),
        ports in 1u8..=64,
        ingress in 1u8..=64,
        lids in prop::collection::vec(lid(), 20),
    ) {
        let mut switch = switch(&switch_config(0x10, ports));
        for port in 1..=ports {
            let offer = switch.offer(port);
            switch.link_up(port, &offer);
        }
        let mut ask = |attribute, modifier: u32, data: &[u8]| {
            let mut mad = smp(SET, attribute, modifier, data);
            mad[1] = 1;
            switch.manage(1, &mut smi_packet(0xffff, 0xffff), &mut mad);
        };
        ask(LINEAR_FORWARDING, 0, &routes);
        for position in 0..5 {
            ask(MULTICAST_FORWARDING, position << 28, &groups);
        }
        let mut top = [0; 64];
        top[7] = 63;
        ask(SWITCH_INFO, 0, &top);
        for port in 1..=ports {
            for state in [ARMED, ACTIVE] {
                let mut info = [0; 64];
                (info[32], info[36]) = (state, 0x50);
                ask(PORT_INFO, u32::from(port), &info);
            }
        }
        for dlid in lids {
            let packet = Packet { dlid, management: false, ..smi_packet(9, 0) };
            feed(&mut switch, &mut 0, &Input::Packet(ingress, packet, Box::new([0; 256])));
        }
    }

    /// A packet on any directed route crosses as many cables as that has hops, and comes to an
    /// end.
    #[test]
    fn any_route(
        path in prop::collection::vec(0u8..5, 1..80),
        pointer in prop_oneof![9 => Just(1u8), 1 => any::<u8>()],
        status in prop_oneof![9 => Just(0u8), 1 => any::<u8>()],
    ) {
        let mut net = Net::default();
        let switches: Vec<_> = (0..4).map(|_| net.switch(4)).collect();
        for i in 0..4 {
            net.plug((switches[i], 1), (switches[(i + 1) % 4], 2));
        }
        let host = net.host();
        net.plug((host, 1), (switches[0], 3));
        net.plug((switches[1], 3), (switches[2], 4));
        let kept = path.len().min(63);
        let mut mad = directed(&path[..kept], &smp(GET, NODE_INFO, 0, &[]));
        mad[7] = path.len() as u8;
        mad[6] = pointer;
        mad[4] = status;
        let arrived = net.walk((host, 1), smi_packet(0xffff, 0xffff), Some(mad));
        prop_assert!(arrived.len() <= 1);
        prop_assert_eq!(net.looped, 0);
    }
}
