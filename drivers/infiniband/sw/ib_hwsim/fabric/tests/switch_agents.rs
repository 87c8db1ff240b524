// SPDX-License-Identifier: GPL-2.0

//! The subnet management agent of a switch, byte by byte: golden answers, refusals and keys.

mod manager;

use ib_fabric::switch::{MAX_GROUPS, MAX_ROUTES};
use ib_fabric::Switch;
use manager::net::{switch_config, Net, Vectors};
use manager::sweep::{directed, smi_packet, Manager};
use manager::*;

/// The path from the manager's host to the switch.
const PATH: &[u8] = &[1];

fn star() -> (Net, Manager) {
    let mut net = Net::star(3);
    let manager = Manager::of(&mut net);
    (net, manager)
}

/// NodeInfo of section 14.2.5.3, by port 1.
#[rustfmt::skip]
const NODE_INFO_BYTES: [u8; 40] = [
    0x01, 0x01, 0x02, 0x03,                         // versions, switch, ports
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x10, 0x00, // SystemImageGUID
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x10, 0x00, // NodeGUID
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x10, 0x00, // PortGUID
    0x00, 0x40, 0x45, 0x67,                         // PartitionCap, DeviceID
    0x89, 0xab, 0xcd, 0xef,                         // Revision
    0x01, 0x00, 0x01, 0x23,                         // LocalPortNum, VendorID
];

/// PortInfo of section 14.2.5.6 of an external port that is Active, asked for by port 1.
#[rustfmt::skip]
const EXTERNAL_PORT: [u8; 64] = [
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, // M_Key
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, // GidPrefix
    0x00, 0x00, 0x00, 0x00,                         // LID, MasterSMLID
    0x00, 0x00, 0x00, 0x00,                         // CapabilityMask
    0x00, 0x00, 0x00, 0x00,                         // DiagCode, M_KeyLeasePeriod
    0x01, 0x03, 0x03, 0x02,                         // LocalPortNum, LinkWidth (three fields)
    0x74, 0x52,                                     // LinkSpeedSupported, states
    0x00, 0x47,                                     // M_KeyProtectBits and LMC, LinkSpeed
    0x50, 0x40,                                     // NeighborMTU, VLCap
    0x00, 0x08, 0x08,                               // VLHighLimit, VLArbitration caps
    0x05, 0x00,                                     // MTUCap, VLStallCount and HOQLife
    0x4c,                                           // OperationalVLs, both enforcements
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00,             // violations
    0x00, 0x00, 0x00, 0x00,                         // GUIDCap, timeouts, thresholds
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, // MaxCreditHint, LinkRoundTripLatency
    0x00, 0x00,                                     // CapabilityMask2, extended speeds
];

/// PortInfo of the management port.
#[rustfmt::skip]
const MANAGEMENT_PORT: [u8; 64] = [
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, // M_Key
    0xfe, 0x80, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, // GidPrefix
    0x00, 0x02, 0x00, 0x01,                         // LID, MasterSMLID
    0x04, 0x60, 0x18, 0x48,                         // CapabilityMask
    0x00, 0x00, 0x00, 0x00,                         // DiagCode, M_KeyLeasePeriod
    0x01, 0x03, 0x03, 0x02,                         // LocalPortNum, LinkWidth (three fields)
    0x74, 0x52,                                     // LinkSpeedSupported, states
    0x00, 0x47,                                     // M_KeyProtectBits and LMC, LinkSpeed
    0x50, 0x10,                                     // NeighborMTU, VLCap
    0x00, 0x08, 0x08,                               // VLHighLimit, VLArbitration caps
    0x05, 0x00,                                     // MTUCap, VLStallCount and HOQLife
    0x10,                                           // OperationalVLs
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00,             // violations
    0x01, 0x12, 0x10, 0x00,                         // GUIDCap, timeouts, thresholds
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, // MaxCreditHint, LinkRoundTripLatency
    0x00, 0x00,                                     // CapabilityMask2, extended speeds
];

#[test]
fn golden_answers() {
    let (mut net, manager) = star();
    let info = manager.get(&mut net, PATH, NODE_INFO, 0);
    assert_eq!(info[..40], NODE_INFO_BYTES);
    manager.change_port(&mut net, PATH, 2, |info| info[43] |= 0xf);
    assert_eq!(manager.get(&mut net, PATH, PORT_INFO, 2), EXTERNAL_PORT);
    assert_eq!(manager.get(&mut net, PATH, PORT_INFO, 0), MANAGEMENT_PORT);

    let mut text = [0; 64];
    text[..2].copy_from_slice(b"s1");
    net.get_switch(0).set_description(&text);
    assert_eq!(manager.get(&mut net, PATH, NODE_DESCRIPTION, 0), text);

    let mut guids = [0; 64];
    guids[6] = 0x10;
    assert_eq!(manager.get(&mut net, PATH, GUID_INFO, 0), guids);
    assert_eq!(manager.set(&mut net, PATH, GUID_INFO, 0, &[9; 64]), guids);

    let info = manager.get(&mut net, PATH, SWITCH_INFO, 0);
    let expected = [4, 0, 0, 0, 0, 64, 0, 4, 0, 0, 0, 0, 0, 0, 0, 64, 0xc0, 0];
    assert_eq!(info[..18], expected);
}

/// The tables that each port has of its own, and their modifiers.
#[test]
fn tables_of_ports() {
    let (mut net, manager) = star();
    for port in 0..=3 {
        let fill = [port as u8 + 1; 64];
        for (attribute, modifier, len) in [
            (P_KEY_TABLE, port << 16, 64),
            (P_KEY_TABLE, (port << 16) | 1, 64),
            (VL_ARBITRATION, (1 << 16) | port, 16),
            (VL_ARBITRATION, (3 << 16) | port, 16),
            (SL_TO_VL, (port << 8) | 1, 8),
        ] {
            let data = manager.set(&mut net, PATH, attribute, modifier, &fill);
            assert_eq!(data[..len], fill[..len]);
        }
    }
    for port in 0..=3 {
        for (attribute, modifier) in [
            (P_KEY_TABLE, port << 16),
            (VL_ARBITRATION, (1 << 16) | port),
            (SL_TO_VL, (port << 8) | 1),
        ] {
            let data = manager.get(&mut net, PATH, attribute, modifier);
            assert_eq!(data[0], port as u8 + 1);
        }
    }
}

#[test]
fn refusals() {
    let (mut net, manager) = star();
    // attribute, modifier, status
    let cases = [
        (PORT_INFO, 4, 0x1c),
        (PORT_INFO, 0x100, 0x1c),
        (P_KEY_TABLE, 2, 0x1c),
        (P_KEY_TABLE, 4 << 16, 0x1c),
        (P_KEY_TABLE, 0x100 << 16, 0x1c),
        (SL_TO_VL, 0x0104, 0x1c),
        (SL_TO_VL, 0x0401, 0x1c),
        (SL_TO_VL, 0x1_0101, 0x1c),
        (VL_ARBITRATION, 4, 0x1c),
        (VL_ARBITRATION, 1, 0x1c),
        (VL_ARBITRATION, (2 << 16) | 1, 0x1c),
        (GUID_INFO, 1, 0x1c),
        (LINEAR_FORWARDING, 16, 0x1c),
        (LINEAR_FORWARDING, u32::MAX, 0x1c),
        (MULTICAST_FORWARDING, 2, 0x1c),
        (MULTICAST_FORWARDING, 1 << 28, 0x1c),
        (MULTICAST_FORWARDING, 9 << 28, 0x1c),
        (0x1a, 0, 0x0c),
        (0x20, 0, 0x0c),
        (0x02, 0, 0x0c),
        (0xffff, 0, 0x0c),
    ];
    for (attribute, modifier, expected) in cases {
        for method in [GET, SET] {
            let request = smp(method, attribute, modifier, &[1; 64]);
            let (status, data) = manager.try_ask(&mut net, PATH, &request).unwrap();
            assert_eq!(status, expected, "{attribute:x} {modifier:x}");
            assert_eq!(data, [1; 64]);
        }
    }
    for (attribute, expected) in [
        (NODE_INFO, 0x0c),
        (NODE_DESCRIPTION, 0x0c),
        (SWITCH_INFO, 0x1c),
    ] {
        let request = smp(SET, attribute, 0, &[0xff; 64]);
        let (status, _) = manager.try_ask(&mut net, PATH, &request).unwrap();
        assert_eq!(status, expected);
    }
    let mut version = smp(GET, NODE_INFO, 0, &[]);
    version[2] = 2;
    assert_eq!(manager.try_ask(&mut net, PATH, &version).unwrap().0, 0x04);
}

/// The key of port 0 protects all ports.
#[test]
fn management_key() {
    let (mut net, manager) = star();
    manager.change_port(&mut net, PATH, 0, |info| {
        (info[7], info[27], info[34]) = (7, 5, 2 << 6);
    });
    for (attribute, modifier) in [(PORT_INFO, 0), (PORT_INFO, 2), (SWITCH_INFO, 0)] {
        let mut request = smp(GET, attribute, modifier, &[]);
        assert!(manager.try_ask(&mut net, PATH, &request).is_none());
        request[31] = 7;
        assert_eq!(manager.try_ask(&mut net, PATH, &request).unwrap().0, 0);
    }
    // A packet that only passes needs no key.
    manager.get(&mut net, &[1, 2], NODE_INFO, 0);
    // The lease ends.
    let request = smp(SET, PORT_INFO, 2, &[]);
    assert!(manager.try_ask(&mut net, PATH, &request).is_none());
    net.get_switch(0).elapse(5);
    assert_eq!(manager.get(&mut net, PATH, PORT_INFO, 0)[7], 7);
}

/// Datagrams that nobody on a switch listens to, and packets that are none.
#[test]
fn datagrams_that_are_dropped() {
    let (mut net, _) = star();
    type Change = fn(&mut ib_fabric::Packet, &mut ib_fabric::Mad);
    let cases: [Change; 12] = [
        |_, mad| mad[1] = 4,
        |_, mad| mad[1] = 0x0a,
        |_, mad| mad[3] = 0x81,
        |_, mad| mad[3] = 0x05,
        |_, mad| mad[3] = 0x07,
        |p, _| p.transport = ib_fabric::Transport::datagram(1, 0),
        |p, _| p.dest_qp = 1,
        |p, _| p.len = 255,
        |p, _| p.len = 4096,
        |_, mad| (mad[6], mad[7]) = (64, 64),
        |_, mad| mad[129 + 1] = 0,
        |_, mad| mad[129 + 1] = 4,
    ];
    for change in cases {
        for path in [&[1][..], &[1, 2]] {
            let mut mad = directed(path, &smp(GET, NODE_INFO, 0, &[]));
            let mut packet = smi_packet(0xffff, 0xffff);
            change(&mut packet, &mut mad);
            let arrived = net.walk((1, 1), packet, Some(mad));
            // A method that is not the switch's may be one that the host at the end answers.
            let answered = arrived.iter().filter(|arrived| arrived.node == 1).count();
            let touches_path = mad[130] != 2;
            let expected = usize::from(path.len() == 1 && touches_path && mad[7] == 1);
            let plain = mad[1] == 0x81 && mad[3] == GET && packet == smi_packet(0xffff, 0xffff);
            assert_eq!(answered, if plain { expected } else { 0 });
        }
    }
}

/// The link of the reply goes down after the reply.
#[test]
fn reply_leaves_by_the_port_it_took_down() {
    let (mut net, manager) = star();
    manager.change_port(&mut net, PATH, 1, |info| (info[32], info[33]) = (1, 0x32));
    assert_eq!(net.port((1, 1)).state() as u8, DOWN);
}

#[test]
fn lengths_of_tables() {
    let config = switch_config(1, 4);
    let ports = |n: u8| -> Vec<_> {
        let template = |port| Switch::<Vectors>::port_template(&config, port);
        (0..n).map(template).collect()
    };
    // ports, routes, groups, lanes, whether they fit
    let cases = [
        (5, MAX_ROUTES, MAX_GROUPS, 25, true),
        (5, 64, 32, 25, true),
        (4, 64, 32, 25, false),
        (6, 64, 32, 25, false),
        (5, 63, 32, 25, false),
        (5, 0, 32, 25, false),
        (5, MAX_ROUTES + 64, 32, 25, false),
        (5, 64, 33, 25, false),
        (5, 64, 0, 25, false),
        (5, 64, MAX_GROUPS + 32, 25, false),
        (5, 64, 32, 24, false),
    ];
    for (count, routes, groups, lanes, fits) in cases {
        let made = Switch::<Vectors>::new(
            &config,
            ports(count),
            vec![0; routes],
            vec![0; groups],
            vec![[0; 8]; lanes],
        );
        assert_eq!(made.is_some(), fits);
    }
    let mut shuffled = ports(5);
    shuffled.swap(1, 2);
    let made = Switch::<Vectors>::new(
        &config,
        shuffled,
        vec![0; 64],
        vec![0; 32],
        vec![[0; 8]; 25],
    );
    assert!(made.is_none());
}
