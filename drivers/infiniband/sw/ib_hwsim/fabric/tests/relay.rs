// SPDX-License-Identifier: GPL-2.0

//! The rules by which a switch forwards and drops packets, and how that is counted.

mod manager;

use ib_fabric::{Discard, Forward, Gid, Grh, Guid, Lid, Packet, PortMask, PortState, Transport};
use manager::net::Net;
use manager::sweep::{data_packet, smi_packet, Manager};
use manager::*;

/// The LIDs of a star with three hosts: the switch, and the hosts at ports 1 to 3.
const SWITCH: u16 = 2;
const HOSTS: [u16; 3] = [1, 3, 4];

/// The path from the manager's host to the switch.
const PATH: &[u8] = &[1];

fn star() -> (Net, Manager) {
    let mut net = Net::star(3);
    let manager = Manager::of(&mut net);
    assert_eq!(manager.lid(&mut net, 0), SWITCH);
    (net, manager)
}

/// Sends a performance management request to the switch. Returns the answers.
fn pm(net: &mut Net, change: impl FnOnce(&mut Packet, &mut ib_fabric::Mad)) -> Vec<net::Arrived> {
    let mut mad = [0; 256];
    mad[..4].copy_from_slice(&[1, 4, 1, GET]);
    mad[17] = 0x12;
    let mut packet = data_packet(HOSTS[0], SWITCH);
    (packet.dest_qp, packet.len) = (1, 256);
    packet.transport = Transport::datagram(7, 0x8001_0000);
    change(&mut packet, &mut mad);
    net.walk((1, 1), packet, Some(mad))
}

/// Reads PortCounters of a port of the switch.
fn counters(net: &mut Net, port: u8) -> [u8; 192] {
    let arrived = pm(net, |_, mad| mad[65] = port);
    let mad = arrived[0].mad.unwrap();
    assert_eq!((mad[3], mad[4], mad[5]), (0x81, 0, 0));
    mad[64..].try_into().unwrap()
}

/// Writes the port of a LID.
fn set_route(net: &mut Net, manager: &Manager, lid: usize, port: u8) {
    let mut block = manager.get(net, PATH, LINEAR_FORWARDING, 0);
    block[lid] = port;
    manager.set(net, PATH, LINEAR_FORWARDING, 0, &block);
}

/// Forwards a packet; the decision on it, and the ports that drop it.
fn drops(net: &mut Net, port: u8, packet: &Packet) -> (Forward, Vec<(u8, Discard)>) {
    let mut drops = Vec::new();
    let forward = net.get_switch(0).forward_by(
        port,
        packet,
        |_, out| out,
        |port, reason| drops.push((port, reason)),
    );
    (forward, drops)
}

#[test]
fn drops_are_counted() {
    const RELAY: usize = 13;
    const RECEIVE: usize = 9;
    const DISCARD: usize = 15;
    type Change = fn(&mut Net, &Manager, &mut Packet);
    use Discard::{NoLane, NoRoute, NotForUs, PortDown, TooLong};
    // change, port that counts, place in its counters, reason
    let cases: [(Change, u8, usize, Discard); 15] = [
        (|_, _, p| p.dlid = Lid::new(100), 1, RELAY, NoRoute),
        (|_, _, p| p.dlid = Lid::new(0xbfff), 1, RELAY, NoRoute),
        (|_, _, p| p.dlid = Lid::NONE, 1, RELAY, NoRoute),
        (|_, _, p| p.dlid = Lid::new(HOSTS[0]), 1, RELAY, NoRoute),
        (|_, _, p| p.dlid = Lid::new(0xc000), 1, RELAY, NoRoute),
        (|_, _, p| p.dlid = Lid::new(0xfffe), 1, RELAY, NoRoute),
        (|_, _, p| p.dlid = Lid::PERMISSIVE, 1, RECEIVE, NotForUs),
        (|_, _, p| p.len = 4097, 1, RECEIVE, TooLong),
        (|net, m, _| set_route(net, m, 3, 0xff), 1, RELAY, NoRoute),
        (|net, m, _| set_route(net, m, 3, 0), 1, RELAY, NoRoute),
        (|net, m, _| set_route(net, m, 3, 4), 1, RELAY, NoRoute),
        (|net, _, _| net.pull((0, 2)), 2, DISCARD, PortDown),
        (
            |net, m, _| m.change_port(net, PATH, 2, |info| info[36] = 0x30),
            2,
            DISCARD,
            TooLong,
        ),
        (
            |net, m, p| {
                m.set(net, PATH, SL_TO_VL, 0x0102, &[0x0f; 8]);
                p.sl = 1;
            },
            1,
            RELAY,
            NoLane,
        ),
        (
            |net, m, p| {
                m.set(net, PATH, SL_TO_VL, 0x0102, &[0x70; 8]);
                m.change_port(net, PATH, 2, |info| info[43] = 3 << 4);
                p.sl = 0;
            },
            1,
            RELAY,
            NoLane,
        ),
    ];
    for (case, (change, port, place, reason)) in cases.into_iter().enumerate() {
        let (mut net, manager) = star();
        let mut packet = data_packet(HOSTS[0], HOSTS[1]);
        assert_eq!(net.get_switch(0).forward(1, &packet), Forward::Out(2));
        change(&mut net, &manager, &mut packet);
        let before = counters(&mut net, port);
        let drops = drops(&mut net, 1, &packet);
        assert_eq!(drops, (Forward::Drop, vec![(port, reason)]), "case {case}");
        let after = counters(&mut net, port);
        assert_eq!(after[place], before[place] + 1, "case {case}");
    }
}

/// The lane is that of input port, output port and service level; other ways have their own.
#[test]
fn lanes_of_one_way() {
    let (mut net, manager) = star();
    manager.set(&mut net, PATH, SL_TO_VL, 0x0102, &[0xff; 8]);
    for (from, to, expected) in [
        (1, HOSTS[1], Forward::Drop),
        (3, HOSTS[1], Forward::Out(2)),
        (2, HOSTS[0], Forward::Out(1)),
    ] {
        let packet = data_packet(9, to);
        assert_eq!(net.get_switch(0).forward(from, &packet), expected);
    }
    // Subnet management has a lane of its own.
    let packet = smi_packet(9, HOSTS[1]);
    assert_eq!(net.get_switch(0).forward(1, &packet), Forward::Out(2));
}

/// Section 7.2.7: the states of the two links that a packet uses.
#[test]
fn link_states() {
    let (mut net, manager) = star();
    let data = data_packet(HOSTS[1], HOSTS[0]);
    let smp = smi_packet(HOSTS[1], HOSTS[0]);
    let back = data_packet(HOSTS[0], HOSTS[1]);
    let state = |net: &mut Net| net.port((0, 2)).state();
    manager.change_port(&mut net, PATH, 2, |info| info[32] |= DOWN);
    // Retrained at once.
    assert_eq!(state(&mut net), PortState::Init);
    let switch = net.get_switch(0);
    assert_eq!(switch.forward(2, &data), Forward::Drop);
    assert_eq!(switch.forward(1, &back), Forward::Drop);
    assert_eq!(switch.forward(2, &smp), Forward::Out(1));
    assert_eq!(switch.forward(1, &smi_packet(1, HOSTS[1])), Forward::Out(2));
    manager.change_port(&mut net, PATH, 2, |info| info[32] |= ARMED);
    assert_eq!(net.get_switch(0).forward(1, &back), Forward::Drop);
    assert_eq!(net.get_switch(0).forward(2, &smp), Forward::Out(1));
    assert_eq!(state(&mut net), PortState::Armed);
    // The first data packet shows that the other end is active.
    assert_eq!(net.get_switch(0).forward(2, &data), Forward::Out(1));
    assert_eq!(state(&mut net), PortState::Active);
    assert_eq!(net.get_switch(0).forward(1, &back), Forward::Out(2));
    net.pull((0, 2));
    for packet in [data, smp] {
        assert_eq!(net.get_switch(0).forward(2, &packet), Forward::Drop);
    }
    for port in [0, 4, 255] {
        assert_eq!(net.get_switch(0).forward(port, &back), Forward::Drop);
    }
}

/// Section 18.2.4.3.3: packets to groups that nobody is in.
#[test]
fn default_multicast_ports() {
    let (mut net, manager) = star();
    let packet = data_packet(HOSTS[0], 0xc005);
    let mut info = manager.get(&mut net, PATH, SWITCH_INFO, 0);
    info[9..11].copy_from_slice(&[3, 2]);
    manager.set(&mut net, PATH, SWITCH_INFO, 0, &info);
    let switch = net.get_switch(0);
    let flood = |port| Forward::Flood(PortMask::of(port));
    assert_eq!(switch.forward(1, &packet), flood(3));
    assert_eq!(switch.forward(3, &packet), flood(2));
    manager.write_group(&mut net, 0xc005, &[1, 2]);
    assert_eq!(net.get_switch(0).forward(1, &packet), flood(2));
    assert_eq!(net.get_switch(0).forward(2, &packet), flood(1));
    // A port that is down is left out; the only member hears nothing, and that is no error.
    net.pull((0, 2));
    let down = vec![(2, Discard::PortDown)];
    assert_eq!(drops(&mut net, 1, &packet), (Forward::Drop, down.clone()));
    assert_eq!(counters(&mut net, 1)[13], 0);
    manager.write_group(&mut net, 0xc005, &[1, 2, 3]);
    assert_eq!(drops(&mut net, 1, &packet), (flood(3), down));
    manager.write_group(&mut net, 0xc005, &[1]);
    assert_eq!(drops(&mut net, 1, &packet), (Forward::Drop, vec![]));
}

/// Sections 10.9 and 14.2.5.4: partitions at external ports, into and out of the switch.
#[test]
fn partition_enforcement() {
    const IN: u8 = 8;
    const OUT: u8 = 4;
    // enforcement, entry of the table, packet's key, whether it gets in and out by port 2
    let cases = [
        (0, 0x8001, 0xffff, true, true),
        (IN | OUT, 0x8001, 0x8001, true, true),
        (IN | OUT, 0x8001, 0x0001, true, true),
        (IN | OUT, 0x8001, 0xffff, false, false),
        (IN, 0x8001, 0xffff, false, true),
        (OUT, 0x8001, 0xffff, true, false),
        (IN | OUT, 0x0001, 0x0001, true, false),
        (IN | OUT, 0x0001, 0x8001, true, true),
        (IN | OUT, 0x8001, 0x8000, false, false),
    ];
    for (enforcement, entry, pkey, gets_in, gets_out) in cases {
        let (mut net, manager) = star();
        let table = u16::to_be_bytes(entry);
        manager.set(&mut net, PATH, P_KEY_TABLE, 2 << 16, &table);
        manager.change_port(&mut net, PATH, 2, |info| info[43] |= enforcement);
        for (from, to, passes, place) in [(2, 0, gets_in, 17), (1, 1, gets_out, 16)] {
            let before = manager.get(&mut net, PATH, PORT_INFO, 2)[47];
            let mut packet = data_packet(9, HOSTS[to]);
            packet.pkey = pkey;
            let (forward, drops) = drops(&mut net, from, &packet);
            assert_eq!(forward != Forward::Drop, passes, "{pkey:x} from {from}");
            let refused = vec![(2, Discard::PKey)];
            assert_eq!(drops, if passes { vec![] } else { refused });
            assert_eq!(counters(&mut net, 2)[place], u8::from(!passes));
            let violations = manager.get(&mut net, PATH, PORT_INFO, 2)[47];
            assert_eq!(violations, before + u8::from(!passes));
        }
        // Subnet management is of no partition.
        let mut smp = smi_packet(9, HOSTS[0]);
        smp.pkey = 0;
        assert_eq!(net.get_switch(0).forward(2, &smp), Forward::Out(1));
    }
}

#[test]
fn packets_are_counted_on_both_sides() {
    let (mut net, manager) = star();
    manager.write_group(&mut net, 0xc001, &[1, 2, 3]);
    for port in 1..=3 {
        let mut mad = [0; 256];
        mad[..4].copy_from_slice(&[1, 4, 1, SET]);
        (mad[17], mad[65], mad[66], mad[67]) = (0x1d, port, 0xff, 0xff);
        pm(&mut net, |_, request| *request = mad);
    }
    let switch = net.get_switch(0);
    switch.forward(3, &data_packet(HOSTS[2], HOSTS[1]));
    switch.forward(3, &data_packet(HOSTS[2], 0xc001));
    // port; packets out, in, unicast out, in, multicast out, in
    for (port, expected) in [(2, [2, 0, 1, 0, 1, 0]), (3, [0, 2, 0, 1, 0, 1])] {
        let arrived = pm(&mut net, |_, mad| (mad[17], mad[65]) = (0x1d, port));
        let mad = arrived[0].mad.unwrap();
        let read: Vec<_> = (0..6).map(|i| mad[64 + 31 + 8 * i]).collect();
        assert_eq!(read, expected);
        // 2048 bytes and 32 of headers, twice, in words.
        let words = u16::from_be_bytes([mad[64 + 14], mad[64 + 15]]);
        assert_eq!(words, if port == 2 { 2 * 520 } else { 0 });
    }
}

/// Performance management of the switch, by its LID.
#[test]
fn performance_agent() {
    let (mut net, _) = star();
    // PortSelect 255 is the sum.
    let each: u32 = (0..=3)
        .map(|port| u32::from(counters(&mut net, port)[13]))
        .sum();
    net.get_switch(0).forward(2, &data_packet(9, 100));
    net.get_switch(0).forward(3, &data_packet(9, 100));
    assert_eq!(u32::from(counters(&mut net, 255)[13]), each + 2);

    let arrived = pm(&mut net, |packet, mad| {
        (mad[17], mad[65]) = (1, 0);
        packet.pkey = 0x7fff;
        packet.grh = Some(Grh {
            traffic_class: 0,
            flow_label: 0,
            hop_limit: 0,
            sgid: Gid::from_parts(Gid::DEFAULT_PREFIX, Guid::new(0x1011)),
            dgid: Gid::from_parts(3, Guid::new(4)),
        });
    });
    let (mad, packet) = (arrived[0].mad.unwrap(), arrived[0].packet);
    assert_eq!(mad[64..72], [1, 1, 0x13, 0, 0, 0, 0, 16]);
    assert_eq!((packet.slid.get(), packet.dlid.get()), (SWITCH, HOSTS[0]));
    assert_eq!((packet.dest_qp, packet.source_qp()), (7, 1));
    assert_eq!((packet.pkey, packet.qkey()), (0xffff, 0x8001_0000));
    let grh = packet.grh.unwrap();
    let gid = |guid| Gid::from_parts(Gid::DEFAULT_PREFIX, Guid::new(guid));
    assert_eq!((grh.sgid, grh.dgid), (gid(0x1000), gid(0x1011)));

    // A refusal is an answer, too.
    for (attribute, select, status) in [(0x12, 4, 0x1c), (0x1d, 4, 0x1c), (0x13, 1, 0x0c)] {
        let arrived = pm(&mut net, |_, mad| (mad[17], mad[65]) = (attribute, select));
        assert_eq!(arrived[0].mad.unwrap()[5], status);
    }
}

#[test]
fn general_datagrams_that_are_dropped() {
    let (mut net, manager) = star();
    let cases: [fn(&mut Packet, &mut ib_fabric::Mad); 8] = [
        |_, mad| mad[1] = 3,
        |_, mad| mad[1] = 0x81,
        |_, mad| mad[3] = 0x81,
        |p, _| p.dest_qp = 2,
        |p, _| p.dest_qp = 0,
        |p, _| p.len = 255,
        |p, _| p.pkey = 0x8001,
        |p, _| p.transport = Transport::datagram(7, 0),
    ];
    for change in cases {
        assert!(pm(&mut net, change).is_empty());
    }
    let info = manager.get(&mut net, PATH, PORT_INFO, 0);
    assert_eq!(
        info[46..50],
        [0, 1, 0, 1],
        "one wrong P_Key, one wrong Q_Key"
    );
}

/// A packet may leave by a port that the forwarding table has not, and is checked and counted there.
#[test]
fn another_port_is_chosen() {
    let (mut net, _) = star();
    let sent = |net: &mut Net| [2, 3].map(|port| counters(net, port)[35]);
    let before = sent(&mut net);
    let packet = data_packet(HOSTS[0], HOSTS[1]);
    let switch = net.get_switch(0);
    let up = switch.active(PortMask::up_to(8));
    assert_eq!(up, PortMask::up_to(3));
    let choose = |_: &_, out| {
        assert_eq!(out, 2);
        3
    };
    let chosen = switch.forward_by(1, &packet, choose, |_, _| panic!("dropped"));
    assert_eq!(chosen, Forward::Out(3));
    let after = sent(&mut net);
    assert_eq!((after[0], after[1]), (before[0], before[1] + 1));
    // Not without a route, and only unicast packets that leave.
    for dlid in [77, SWITCH, 0xc001] {
        let packet = data_packet(HOSTS[0], dlid);
        net.get_switch(0)
            .forward_by(1, &packet, |_, _| panic!("{dlid}"), |_, _| {});
    }
    // A port that is down discards what is to leave by it.
    net.get_switch(0).link_down(3);
    let dropped = net
        .get_switch(0)
        .forward_by(1, &packet, |_, _| 3, |_, _| {});
    assert_eq!(dropped, Forward::Drop);
    assert_eq!(counters(&mut net, 3)[15], 1);
}
