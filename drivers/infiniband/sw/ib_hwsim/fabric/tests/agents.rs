// SPDX-License-Identifier: GPL-2.0

//! The agents of an adapter, byte by byte: golden answers, refusals, keys and counters.

mod manager;

use ib_fabric::{Arrival, Counted, Hca, Lid, Mad, Traffic, Verdict};
use manager::*;

/// NodeInfo of section 14.2.5.3, written out by hand: what `adapter(0x10, 2)` has, by port 2.
#[rustfmt::skip]
const NODE_INFO_BYTES: [u8; 40] = [
    0x01, 0x01, 0x01, 0x02,                         // versions, channel adapter, ports
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x10, // SystemImageGUID
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x10, // NodeGUID
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x12, // PortGUID
    0x00, 0x80, 0x45, 0x67,                         // PartitionCap, DeviceID
    0x89, 0xab, 0xcd, 0xef,                         // Revision
    0x02, 0x00, 0x01, 0x23,                         // LocalPortNum, VendorID
];

/// PortInfo of section 14.2.5.6, written out by hand: a port in Init with LID 0x1234, LMC 2.
#[rustfmt::skip]
const PORT_INFO_BYTES: [u8; 64] = [
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x07, // M_Key
    0xfe, 0x80, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, // GidPrefix
    0x12, 0x34, 0x00, 0x01,                         // LID, MasterSMLID
    0x06, 0x61, 0x08, 0x48,                         // CapabilityMask
    0x00, 0x00, 0x00, 0x3c,                         // DiagCode, M_KeyLeasePeriod
    0x01, 0x03, 0x03, 0x02,                         // LocalPortNum, LinkWidth (three fields)
    0x72,                                           // LinkSpeedSupported, PortState
    0x52,                                           // PortPhysicalState, LinkDownDefaultState
    0x42,                                           // M_KeyProtectBits 1, LMC 2
    0x47,                                           // LinkSpeedActive, LinkSpeedEnabled
    0x43,                                           // NeighborMTU, MasterSMSL
    0x40,                                           // VLCap, InitType
    0x05, 0x08, 0x08,                               // VLHighLimit, VLArbitrationHighCap, LowCap
    0x05,                                           // InitTypeReply, MTUCap
    0xf2,                                           // VLStallCount 7, HOQLife 18
    0x20,                                           // OperationalVLs, enforcement and filters
    0x00, 0x00, 0x00, 0x01, 0x00, 0x02,             // M_Key, P_Key and Q_Key violations
    0x20,                                           // GUIDCap
    0x12,                                           // ClientReregister, SubnetTimeOut 18
    0x10,                                           // RespTimeValue
    0x8f,                                           // LocalPhyErrors, OverrunErrors
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, // MaxCreditHint, LinkRoundTripLatency
    0x00, 0x00,                                     // CapabilityMask2, extended speeds
];

fn trained() -> Hca {
    let (mut a, mut b) = (adapter(0x10, 2), adapter(0x20, 1));
    connect(&mut a, &mut b);
    a
}

#[test]
fn node_info_of_14_2_5_3() {
    let (status, data, _) = exchange(&mut trained(), 2, &smp(GET, NODE_INFO, 0, &[]));
    assert_eq!(status, 0);
    assert_eq!(data[..40], NODE_INFO_BYTES);
    assert_eq!(data[40..], [0; 24]);
}

#[test]
fn port_info_of_14_2_5_6() {
    let mut hca = trained();
    hca.set_cap_mask(1, 1 << 16, 0);
    let mut wanted = PORT_INFO_BYTES;
    wanted[32] &= 0xf0;
    wanted[33] &= 0x0f;
    assert_eq!(set(&mut hca, PORT_INFO, 1, &wanted).0, 0);
    hca.count(1, Counted::PKeyViolation);
    hca.count(1, Counted::QKeyViolation);
    hca.count(1, Counted::QKeyViolation);
    let mut request = smp(GET, PORT_INFO, 1, &[]);
    request[31] = 7;
    assert_eq!(exchange(&mut hca, 1, &request).1, PORT_INFO_BYTES);

    let port = hca.port(1).unwrap();
    assert_eq!((port.lid().get(), port.lmc), (0x1234, 2));
    assert_eq!((port.sm_lid.get(), port.sm_sl), (1, 3));
    assert_eq!(port.active_mtu().bytes(), 2048);
    assert_eq!(port.mtu_cap.bytes(), 4096);
    assert_eq!((port.width_active, port.speed_active), (2, 4));
    assert_eq!(port.cap_mask, 0x0661_0848);
    assert_eq!((port.pkey_violations, port.qkey_violations), (1, 2));
}

#[test]
fn node_description() {
    let mut hca = trained();
    let mut text = [0; 64];
    text[..5].copy_from_slice(b"host1");
    hca.set_description(&text);
    assert_eq!(get(&mut hca, NODE_DESCRIPTION, 0), text);
}

/// The modifier of PortInfo: zero is the port of arrival, bit 31 a hint of the manager.
#[test]
fn port_info_of_other_ports() {
    let mut hca = trained();
    // arrival, modifier, LinkWidthActive and state of the port that is shown
    for (ingress, modifier, state) in [
        (1, 0, INIT),
        (1, 1, INIT),
        (2, 0, DOWN),
        (1, 2, DOWN),
        (2, 0x8000_0001, INIT),
    ] {
        let request = smp(GET, PORT_INFO, modifier, &[]);
        let (status, data, outcome) = exchange(&mut hca, ingress, &request);
        assert_eq!((status, data[32] & 0xf), (0, state));
        assert_eq!(data[28], ingress);
        assert_eq!(outcome.port, if state == INIT { 1 } else { 2 });
    }
    for modifier in [3, 0xff, 0x100, 0x0001_0001, u32::MAX] {
        let request = smp(GET, PORT_INFO, modifier, &[]);
        assert_eq!(exchange(&mut hca, 1, &request).0, 0x1c);
    }
}

/// Events are those of the port that was set, not of the one the packet came in by.
#[test]
fn events_of_another_port() {
    let mut hca = trained();
    let mut info = get(&mut hca, PORT_INFO, 2);
    (info[17], info[19]) = (9, 1);
    (info[32], info[33]) = (0x70, 0x02);
    let (status, _, outcome) = exchange(&mut hca, 1, &smp(SET, PORT_INFO, 2, &info));
    assert_eq!(
        (status, outcome.port, outcome.events.iter().count()),
        (0, 2, 2)
    );
    assert_eq!(hca.port(2).unwrap().lid(), Lid::new(9));
    assert_eq!(hca.port(1).unwrap().lid(), Lid::NONE);
}

#[test]
fn refusals() {
    let with = |mut mad: Mad, offset: usize, byte: u8| {
        mad[offset] = byte;
        mad
    };
    // request, status
    let cases = [
        (with(smp(GET, NODE_INFO, 0, &[]), 0, 2), 0x04),
        (with(smp(GET, NODE_INFO, 0, &[]), 2, 2), 0x04),
        (with(smp(GET, 0x99, 0, &[]), 2, 2), 0x04),
        (smp(GET, 0x02, 0, &[]), 0x0c),
        (smp(GET, 0x12, 0, &[]), 0x0c),
        (smp(GET, 0x19, 0, &[]), 0x0c),
        (smp(GET, 0xffff, 0, &[]), 0x0c),
        (smp(SET, NODE_INFO, 0, &[]), 0x0c),
        (smp(SET, NODE_DESCRIPTION, 0, &[]), 0x0c),
        (smp(GET, P_KEY_TABLE, 4, &[]), 0x1c),
        (smp(GET, GUID_INFO, 4, &[]), 0x1c),
        (smp(GET, VL_ARBITRATION, 0, &[]), 0x1c),
    ];
    for (request, expected) in cases {
        for class in [0x01, 0x81] {
            let mut hca = trained();
            let request = with(request, 1, class);
            let (outcome, reply) = ask(&mut hca, 1, &request);
            let reply = reply.expect("an answer");
            assert_eq!((reply[0], reply[2], reply[3]), (1, 1, 0x81));
            assert_eq!(reply[4..6], [class & 0x80, expected]);
            assert_eq!(reply[64..128], request[64..128]);
            assert!(outcome.events.is_empty());
        }
    }
}

/// Methods, attributes and classes that belong to others.
#[test]
fn what_the_host_gets() {
    let mut hca = trained();
    for class in [0x01, 0x81, 0x04] {
        for method in (0..=255).filter(|&method| method != GET && method != SET) {
            let mut request = smp(method, NODE_INFO, 0, &[]);
            request[1] = class;
            assert_eq!(ask(&mut hca, 1, &request).0.verdict, Verdict::Pass);
        }
    }
    for class in (0..=255).filter(|class| ![0x01, 0x04, 0x81].contains(class)) {
        let mut request = smp(GET, NODE_INFO, 0, &[]);
        request[1] = class;
        assert_eq!(ask(&mut hca, 1, &request).0.verdict, Verdict::Pass);
    }
    for method in [GET, SET] {
        let sm_info = smp(method, 0x20, 0, &[]);
        assert_eq!(ask(&mut hca, 1, &sm_info).0.verdict, Verdict::Pass);
    }
    let mut returning = smp(GET, NODE_INFO, 0, &[]);
    returning[4] = 0x80;
    assert_eq!(ask(&mut hca, 1, &returning).0.verdict, Verdict::Pass);
}

#[test]
fn packets_that_are_dropped() {
    let mut hca = trained();
    let request = smp(GET, NODE_INFO, 0, &[]);
    // Not at the end of the route.
    let mut early = request;
    early[6] = 1;
    assert_eq!(ask(&mut hca, 1, &early).0.verdict, Verdict::Consume);
    // No such port.
    for port in [0, 3, 255] {
        assert_eq!(ask(&mut hca, port, &request).0.verdict, Verdict::Consume);
    }
    // Not from a subnet management interface, unless the host vouches for it.
    for (local, verdict) in [(false, Verdict::Consume), (true, Verdict::Reply)] {
        let arrival = Arrival {
            local,
            src_qp: 1,
            ..WIRE
        };
        let outcome = hca.process_mad(1, &arrival, &request, &mut [0; 256]);
        assert_eq!(outcome.verdict, verdict);
    }
}

/// Section 14.2.4: who knows the key, and who does not.
#[test]
fn management_key() {
    let key = |mut mad: Mad, key: u8| {
        mad[31] = key;
        mad
    };
    // protection, whether a stranger reads, key as the stranger sees it
    for (protection, reads, seen) in [(0, true, 7), (1, true, 0), (2, false, 0), (3, false, 0)] {
        let mut hca = trained();
        let mut info = port_info(&mut hca);
        info[7] = 7;
        info[27] = 5;
        info[34] = protection << 6;
        let (status, data, _) = set(&mut hca, PORT_INFO, 1, &info);
        assert_eq!((status, data[7]), (0, 7), "whoever sets a key sees it");

        let read = smp(GET, PORT_INFO, 1, &[]);
        let write = smp(SET, PORT_INFO, 1, &info);
        let (outcome, reply) = ask(&mut hca, 1, &key(read, 6));
        assert_eq!(outcome.verdict == Verdict::Reply, reads);
        if let Some(reply) = reply {
            assert_eq!(reply[64 + 7], seen);
        }
        let refused = ask(&mut hca, 1, &key(write, 6)).0;
        assert_eq!(refused.verdict, Verdict::Consume);

        let (status, data, _) = exchange(&mut hca, 1, &key(read, 7));
        assert_eq!((status, data[7]), (0, 7));
        assert_eq!(data[45], if reads { 1 } else { 2 }, "violations");

        // The lease ends, and the key is there to be read.
        ask(&mut hca, 1, &key(write, 6));
        hca.elapse(4);
        hca.elapse(1);
        assert_eq!(exchange(&mut hca, 1, &key(read, 6)).1[7], 7);
    }
}

/// The key of the port that is asked for protects it from the other one.
#[test]
fn management_key_of_another_port() {
    let mut hca = trained();
    let mut info = get(&mut hca, PORT_INFO, 2);
    info[7] = 7;
    (info[32], info[33]) = (0x70, 0x02);
    assert_eq!(exchange(&mut hca, 1, &smp(SET, PORT_INFO, 2, &info)).0, 0);
    let mut write = smp(SET, PORT_INFO, 2, &info);
    assert_eq!(ask(&mut hca, 1, &write).0.verdict, Verdict::Consume);
    write[31] = 7;
    assert_eq!(exchange(&mut hca, 1, &write).0, 0);
}

/// A performance management request.
fn pm(method: u8, attribute: u16, select: u8, counters: u16) -> Mad {
    let mut mad = [0; 256];
    mad[..4].copy_from_slice(&[1, 4, 1, method]);
    mad[15] = 0x77;
    mad[16..18].copy_from_slice(&attribute.to_be_bytes());
    mad[65] = select;
    mad[66..68].copy_from_slice(&counters.to_be_bytes());
    mad
}

/// Carries out a performance management request. Returns status and data.
fn pm_exchange(hca: &mut Hca, request: &Mad) -> (u16, Vec<u8>) {
    let (outcome, reply) = ask(hca, 1, request);
    assert!(outcome.events.is_empty());
    let reply = reply.expect("an answer");
    assert_eq!((reply[3], reply[15]), (0x81, 0x77));
    (
        u16::from_be_bytes([reply[4], reply[5]]),
        reply[64..].to_vec(),
    )
}

/// Section 16.1: both sets of counters, read and cleared apart.
#[test]
fn counters() {
    let mut hca = trained();
    for _ in 0..3 {
        hca.count(1, Counted::Sent(Traffic::unicast(280)));
        hca.count(1, Counted::Received(Traffic::multicast(2048)));
    }
    hca.count(1, Counted::VL15Dropped);
    hca.count(2, Counted::Discarded);
    hca.link_down(1);

    let mut expected = [0; 192];
    expected[1] = 1;
    expected[7] = 1; // LinkDownedCounter
    expected[23] = 1; // VL15Dropped
    expected[27] = 210; // PortXmitData, words
    expected[30..32].copy_from_slice(&1536_u16.to_be_bytes());
    expected[35] = 3;
    expected[39] = 3;
    let read = pm(GET, 0x12, 1, 0);
    assert_eq!(pm_exchange(&mut hca, &read), (0, expected.to_vec()));

    // Only what is selected is written: PortXmitData to zero, here.
    expected[27] = 0;
    expected[2] = 0x10;
    let clear = pm(SET, 0x12, 1, 0x1000);
    assert_eq!(pm_exchange(&mut hca, &clear), (0, expected.to_vec()));

    let mut expected = [0; 192];
    expected[1] = 1;
    expected[15] = 210;
    expected[22..24].copy_from_slice(&1536_u16.to_be_bytes());
    for place in [31, 39, 47, 71] {
        expected[place] = 3;
    }
    let read = pm(GET, 0x1d, 1, 0);
    assert_eq!(pm_exchange(&mut hca, &read), (0, expected.to_vec()));
    let (status, data) = pm_exchange(&mut hca, &pm(SET, 0x1d, 1, 0xffff));
    assert_eq!((status, &data[8..]), (0, &[0; 184][..]));

    let (_, data) = pm_exchange(&mut hca, &pm(GET, 0x12, 2, 0));
    assert_eq!((data[1], data[15]), (2, 1));
}

/// PortSelect 255 is the sum of all ports, and writes to each.
#[test]
fn counters_of_all_ports() {
    let mut hca = trained();
    hca.count(1, Counted::Sent(Traffic::unicast(4)));
    hca.count(2, Counted::Sent(Traffic::unicast(8)));
    for (attribute, place) in [(0x12, 27), (0x1d, 15)] {
        let (status, data) = pm_exchange(&mut hca, &pm(GET, attribute, 0xff, 0));
        assert_eq!((status, data[1], data[place]), (0, 0xff, 3));
        assert_eq!(
            pm_exchange(&mut hca, &pm(SET, attribute, 0xff, 0xffff)).0,
            0
        );
        for port in [1, 2] {
            let (_, data) = pm_exchange(&mut hca, &pm(GET, attribute, port, 0));
            assert_eq!(data[place], 0);
        }
    }
}

#[test]
fn class_port_info_of_performance_management() {
    let (status, data) = pm_exchange(&mut adapter(0x10, 2), &pm(GET, 0x01, 0, 0));
    assert_eq!((status, &data[..8]), (0, &[1, 1, 0x13, 0, 0, 0, 0, 16][..]));
    assert_eq!(data[8..], [0; 184]);
}

#[test]
fn refusals_of_performance_management() {
    let with = |mut mad: Mad, offset: usize, byte: u8| {
        mad[offset] = byte;
        mad
    };
    // request, status with one port, status with two
    let cases = [
        (pm(GET, 0x12, 0xff, 0), 0, 0),
        (pm(GET, 0x1d, 0xff, 0), 0, 0),
        (pm(GET, 0x12, 2, 0), 0x1c, 0),
        (pm(GET, 0x12, 0, 0), 0x1c, 0x1c),
        (pm(SET, 0x12, 3, 0xffff), 0x1c, 0x1c),
        (with(pm(GET, 0x12, 1, 0), 23, 1), 0x1c, 0x1c),
        (with(pm(GET, 0x12, 1, 0), 2, 2), 0x04, 0x04),
        (pm(SET, 0x01, 0, 0), 0x0c, 0x0c),
        (pm(GET, 0x10, 1, 0), 0x0c, 0x0c),
        (pm(GET, 0x15, 1, 0), 0x0c, 0x0c),
    ];
    for (request, one, two) in cases {
        for (ports, expected) in [(1, one), (2, two)] {
            let mut hca = adapter(0x10, ports);
            assert_eq!(pm_exchange(&mut hca, &request).0, expected);
        }
    }
}
