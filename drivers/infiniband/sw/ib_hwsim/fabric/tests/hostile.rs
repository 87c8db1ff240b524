// SPDX-License-Identifier: GPL-2.0

//! Property tests: no bytes from anywhere make an adapter panic or break its own rules.

#[path = "checks/adapter.rs"]
mod adapter;
mod manager;

use adapter::{check, feed, Input};

use ib_fabric::ud::{port_accepts, qp_accepts};
use ib_fabric::{
    Arrival, Config, Gid, Grh, Guid, Hca, Lid, LinkOffer, Mad, Mtu, PKey, Packet, Transport,
    Verdict,
};
use manager::{GET, SET};
use proptest::prelude::*;

fn mtu() -> impl Strategy<Value = Mtu> {
    (1u8..=5).prop_map(|code| Mtu::from_code(code).unwrap())
}

/// A port number, most often one that exists.
fn number() -> impl Strategy<Value = u8> {
    prop_oneof![6 => Just(1u8), 3 => Just(2u8), 1 => any::<u8>()]
}

fn arrival() -> impl Strategy<Value = Arrival> {
    (
        any::<bool>(),
        any::<u16>(),
        prop_oneof![9 => Just(0), 1 => any::<u32>()],
        any::<u16>(),
    )
        .prop_map(|(local, slid, src_qp, pkey_index)| Arrival {
            local,
            slid: Lid::new(slid),
            src_qp,
            pkey_index,
        })
}

/// Any 256 bytes, and bytes with a header that some agent listens to.
fn mad() -> impl Strategy<Value = Box<Mad>> {
    let any_bytes = || {
        let bytes = prop::collection::vec(any::<u8>(), 256);
        bytes.prop_map(|bytes| Box::new(Mad::try_from(bytes).unwrap()))
    };
    let likely = (
        any_bytes(),
        prop::sample::select(vec![0x01u8, 0x81, 0x04]),
        prop::sample::select(vec![GET, SET]),
        0x10u16..0x1f,
        0u32..6,
        any::<bool>(),
    );
    let likely = likely.prop_map(|(mut mad, class, method, attribute, modifier, high)| {
        let modifier = if high { modifier << 16 } else { modifier };
        mad[..4].copy_from_slice(&[1, class, 1, method]);
        mad[4] &= 0x7f;
        (mad[6], mad[7]) = (2, 1);
        mad[16..18].copy_from_slice(&attribute.to_be_bytes());
        mad[20..24].copy_from_slice(&modifier.to_be_bytes());
        mad
    });
    prop_oneof![1 => any_bytes(), 3 => likely, 6 => settings().prop_map(Box::new)]
}

/// Set(PortInfo) that a port may well accept.
fn settings() -> impl Strategy<Value = Mad> {
    let states = (
        prop_oneof![3 => 3u8..=4, 2 => 0u8..=4],
        prop_oneof![9 => Just(0u8), 1 => 1u8..4],
    );
    let lid = || prop_oneof![1 => Just(0u8), 9 => 1u8..9];
    let lids = (lid(), lid(), prop_oneof![4 => Just(0u8), 1 => 1u8..3]);
    (
        0u32..3,
        states,
        lids,
        prop_oneof![1u8..=5, Just(1u8)],
        any::<[u8; 2]>(),
    )
        .prop_map(
            |(port, (state, phys), (lid, sm_lid, lmc), mtu, [timeout, violations])| {
                let mut data = [0; 64];
                data[17] = lid;
                data[19] = sm_lid;
                data[32] = state;
                data[33] = phys << 4;
                data[34] = lmc;
                data[36] = mtu << 4;
                data[47] = violations;
                data[51] = timeout;
                manager::smp(SET, manager::PORT_INFO, port, &data)
            },
        )
}

fn input() -> impl Strategy<Value = Input> {
    let mask = || prop_oneof![Just(0xff), any::<u8>()];
    let offer = (mask(), mask(), mtu(), mask());
    let offer = offer.prop_map(|(widths, speeds, mtu, vl_cap)| LinkOffer {
        widths,
        speeds,
        mtu,
        vl_cap,
    });
    prop_oneof![
        10 => (number(), arrival(), mad()).prop_map(|(port, how, mad)| Input::Mad(port, how, mad)),
        3 => (number(), offer).prop_map(|(port, offer)| Input::Up(port, offer)),
        1 => number().prop_map(Input::Down),
        1 => number().prop_map(Input::Data),
        1 => (number(), any::<u32>(), any::<u32>())
            .prop_map(|(port, set, clear)| Input::Capabilities(port, set, clear)),
        1 => (number(), any::<u32>()).prop_map(|(port, bytes)| Input::Count(port, bytes)),
        1 => any::<u16>().prop_map(Input::Elapse),
    ]
}

fn config() -> impl Strategy<Value = Config> {
    (1u8..=2, 1u16..=128, 1u8..=32, mtu()).prop_map(|(ports, pkeys, guids, mtu)| Config {
        link_layer: ib_fabric::LinkLayer::InfiniBand,
        node_guid: Guid::new(0x10),
        system_guid: Guid::NONE,
        port_guids: [Guid::new(0x11), Guid::new(0x12)],
        ports,
        pkeys,
        guids,
        mtu,
        vendor_id: 1,
        device_id: 2,
        revision: 3,
    })
}

fn packet() -> impl Strategy<Value = Packet> {
    let grh = (
        any::<u8>(),
        any::<u32>(),
        any::<u8>(),
        any::<[u8; 16]>(),
        any::<[u8; 16]>(),
    );
    let grh = grh.prop_map(|(traffic_class, flow_label, hop_limit, sgid, dgid)| Grh {
        traffic_class,
        flow_label,
        hop_limit,
        sgid: Gid::from_bytes(sgid),
        dgid: Gid::from_bytes(dgid),
    });
    let addresses = (any::<u16>(), any::<u16>(), any::<u32>(), any::<u32>());
    let keys = (any::<u16>(), any::<u32>(), any::<u8>(), any::<u32>());
    (addresses, keys, prop::option::of(grh), any::<bool>()).prop_map(
        |((slid, dlid, dest_qp, src_qp), (pkey, qkey, sl, len), grh, management)| Packet {
            slid: Lid::new(slid),
            dlid: Lid::new(dlid),
            sl,
            pkey,
            dest_qp,
            grh,
            len,
            management,
            transport: Transport::Ud {
                qkey,
                src_qp,
                immediate: None,
                solicited: false,
            },
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_bytes_at_any_port(port: u8, how in arrival(), mad in mad(), config in config()) {
        let mut hca = Hca::new(&config).unwrap();
        feed(&mut hca, &Input::Mad(port, how, mad));
        check(&hca, &config);
    }

    #[test]
    fn any_history(inputs in prop::collection::vec(input(), 0..100), config in config()) {
        let mut hca = Hca::new(&config).unwrap();
        for input in &inputs {
            feed(&mut hca, input);
            check(&hca, &config);
        }
    }

    /// A request that is refused or only reads changes nothing that can be read.
    #[test]
    fn refusals_change_nothing(mads in prop::collection::vec(mad(), 1..20), config in config()) {
        let mut hca = Hca::new(&config).unwrap();
        let offer = hca.offer(1);
        hca.link_up(1, &offer);
        for mad in &mads {
            let before = format!("{hca:?}");
            let mut reply = [0; 256];
            let outcome = hca.process_mad(1, &manager::WIRE, mad, &mut reply);
            // A wrong key, though, is counted and starts the lease that the right one stops.
            let may_change = match outcome.verdict {
                Verdict::Pass => false,
                Verdict::Consume => true,
                Verdict::Reply => mad[3] == SET && reply[5] == 0,
            };
            if !may_change && !before.contains("lease_left: Some") {
                prop_assert_eq!(format!("{hca:?}"), before);
            }
        }
    }

    #[test]
    fn any_packet(packet in packet(), index: u16, qkey: u32, lid in 1u16..0xc000, port: u8) {
        let mut hca = manager::adapter(0x10, 1);
        let offer = hca.offer(1);
        hca.link_up(1, &offer);
        manager::bring_up(&mut hca, lid);
        if port_accepts(&hca, port, &packet).is_ok() {
            prop_assert!(port == 1 && packet.len <= 4096);
        }
        let port = hca.port(1).unwrap();
        if qp_accepts(port, index, qkey, &packet).is_ok() && packet.dest_qp != 0 {
            let Transport::Ud { qkey: sent, .. } = packet.transport else {
                panic!("{packet:?}");
            };
            prop_assert_eq!(sent, qkey);
            prop_assert!(port.find_pkey(PKey::new(packet.pkey)).is_some());
        }
        if let Some(found) = port.find_pkey(PKey::new(packet.pkey)) {
            let own = PKey::new(port.pkey(found).unwrap());
            prop_assert!(own.matches(PKey::new(packet.pkey)));
        }
    }
}
