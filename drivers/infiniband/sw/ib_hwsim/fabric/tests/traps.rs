// SPDX-License-Identifier: GPL-2.0

//! Traps: what they say, when they are repeated, and how they end.

mod manager;

use ib_fabric::{Discard, LinkError, Mad};
use manager::net::Net;
use manager::sweep::{data_packet, smi_packet, Manager};
use manager::*;

/// SubnetTimeOut 18, in milliseconds: the shortest time between two traps of a node.
const PAUSE: u64 = 1074;

/// The path from the manager's host to the switch.
const PATH: &[u8] = &[1];

fn star() -> (Net, Manager) {
    let mut net = Net::star(3);
    let manager = Manager::of(&mut net);
    (net, manager)
}

/// Returns the one trap that comes to the manager's host now.
fn one_trap(net: &mut Net, now_ms: u64) -> Mad {
    let (arrived, next) = net.traps(now_ms);
    let [trap] = &arrived[..] else {
        panic!("{} traps at {now_ms}", arrived.len());
    };
    assert_eq!((trap.node, trap.packet.dlid.get()), (1, 1));
    assert!(next.is_some_and(|at| at == now_ms + PAUSE));
    let mad = trap.mad.unwrap();
    assert_eq!(mad[..8], [1, 1, 1, 5, 0, 0, 0, 0]);
    assert_eq!(mad[16..24], [0, 2, 0, 0, 0, 0, 0, 0]);
    mad
}

fn no_trap(net: &mut Net, now_ms: u64) -> Option<u64> {
    let (arrived, next) = net.traps(now_ms);
    assert!(arrived.is_empty());
    next
}

/// Answers a trap of the node with a LID.
fn repress(net: &mut Net, lid: u16, mut mad: Mad) {
    mad[3] = 7;
    assert!(net.walk((1, 1), smi_packet(1, lid), Some(mad)).is_empty());
}

fn port_state_change(net: &mut Net, manager: &Manager) -> bool {
    manager.get(net, PATH, SWITCH_INFO, 0)[11] & 4 != 0
}

#[test]
fn link_states_until_repressed() {
    let (mut net, manager) = star();
    assert_eq!(no_trap(&mut net, 5), None);
    assert!(!port_state_change(&mut net, &manager));
    net.pull((0, 3));
    assert!(port_state_change(&mut net, &manager));
    let first = one_trap(&mut net, 10);
    let mut notice = [0; 64];
    // Generic and urgent, from a switch, 128, LID of the issuer; LID of the switch.
    notice[..8].copy_from_slice(&[0x81, 0, 0, 2, 0, 128, 0, 2]);
    notice[11] = 2;
    assert_eq!(first[64..128], notice);

    assert_eq!(no_trap(&mut net, 10 + PAUSE - 1), Some(10 + PAUSE));
    assert_eq!(one_trap(&mut net, 10 + PAUSE), first, "the same again");
    // Answers to something else.
    for (place, byte) in [(15, 0xff), (8, 0), (17, 3), (69, 144)] {
        let mut other = first;
        other[place] = byte;
        repress(&mut net, 2, other);
    }
    assert_eq!(one_trap(&mut net, 5000), first);
    repress(&mut net, 2, first);
    assert_eq!(no_trap(&mut net, 50_000), None);
    repress(&mut net, 2, first);

    // The next change is another trap, though not too soon.
    net.plug((3, 1), (0, 3));
    let second = one_trap(&mut net, 50_000);
    assert_ne!(second[8..16], first[8..16]);
    net.pull((0, 3));
    assert_eq!(no_trap(&mut net, 50_001), Some(50_000 + PAUSE));
    // The answer to the old one does not end the new one.
    repress(&mut net, 2, second);
    let third = one_trap(&mut net, 60_000);
    assert_ne!(third[8..16], second[8..16]);
    repress(&mut net, 2, third);
    assert_eq!(no_trap(&mut net, 70_000), None);
}

#[test]
fn steps_of_the_manager_are_no_change() {
    let (mut net, manager) = star();
    // Disabled: this end goes down by request, and nothing comes up.
    manager.change_port(&mut net, PATH, 3, |info| (info[32], info[33]) = (1, 0x32));
    assert!(!port_state_change(&mut net, &manager));
    assert_eq!(no_trap(&mut net, 10), None);
    // Polling: the link comes up by itself.
    manager.change_port(&mut net, PATH, 3, |info| (info[32], info[33]) = (1, 0x22));
    assert!(port_state_change(&mut net, &manager));
    one_trap(&mut net, 10);
}

#[test]
fn nobody_to_tell() {
    let mut net = Net::star(3);
    net.get_switch(0).set_description(&[1; 64]);
    net.get_host(2).set_cap_mask(1, 2, 0);
    assert_eq!(no_trap(&mut net, 10), None);
    Manager::of(&mut net);
    assert_eq!(no_trap(&mut net, 20), None, "the manager has just read all");
}

/// A trap that finds no way is like one that got lost.
#[test]
fn way_to_the_manager_comes_back() {
    let (mut net, _) = star();
    net.pull((0, 1));
    assert_eq!(no_trap(&mut net, 10), Some(10 + PAUSE));
    assert_eq!(no_trap(&mut net, 10 + PAUSE), Some(10 + 2 * PAUSE));
    net.plug((1, 1), (0, 1));
    one_trap(&mut net, 10_000);
}

#[test]
fn properties() {
    let (mut net, _) = star();
    net.get_host(2).set_cap_mask(1, 2, 0);
    net.get_host(2).set_cap_mask(1, 2, 0);
    let trap = one_trap(&mut net, 10);
    let mut notice = [0; 64];
    // Generic and informational, from an adapter, 144; LID, CapabilityMask.
    notice[..8].copy_from_slice(&[0x84, 0, 0, 1, 0, 144, 0, 3]);
    notice[13] = 3;
    notice[16..20].copy_from_slice(&0x0660_084a_u32.to_be_bytes());
    let cap_mask = net.get_host(2).port(1).unwrap().cap_mask;
    assert_eq!(notice[16..20], cap_mask.to_be_bytes());
    assert_eq!(trap[64..128], notice);

    // The description has a bit, and the change before it is not forgotten.
    let mut text = [0; 64];
    text[..2].copy_from_slice(b"h2");
    net.get_host(2).set_description(&text);
    net.get_host(2).set_description(&text);
    let trap = one_trap(&mut net, 10 + PAUSE);
    (notice[15], notice[21]) = (1, 1);
    assert_eq!(trap[64..128], notice);
    repress(&mut net, 3, trap);
    assert_eq!(no_trap(&mut net, 20_000), None);
    net.get_host(2).set_description(&text);
    assert_eq!(no_trap(&mut net, 20_000), None, "nothing new");

    net.get_switch(0).set_description(&text);
    let trap = one_trap(&mut net, 30_000);
    assert_eq!(trap[64..72], [0x84, 0, 0, 2, 0, 144, 0, 2]);
    assert_eq!((trap[79], trap[85]), (1, 1));
}

#[test]
fn errors_of_links() {
    let (mut net, _) = star();
    let mut details = [0; 54];
    let errors = [
        (LinkError::Integrity, 129),
        (LinkError::Overrun, 130),
        (LinkError::FlowControl, 131),
    ];
    for (turn, (error, number)) in (1..).zip(errors) {
        net.get_host(2).fail_link(1, error);
        // Another one meanwhile counts only.
        net.get_host(2).fail_link(1, LinkError::Integrity);
        let trap = one_trap(&mut net, turn * 10_000);
        // Generic and urgent, from an adapter; LID and number of the port.
        assert_eq!(trap[64..72], [0x81, 0, 0, 1, 0, number, 0, 3]);
        details[2..5].copy_from_slice(&[0, 3, 1]);
        assert_eq!(trap[74..128], details);
        repress(&mut net, 3, trap);
        assert_eq!(no_trap(&mut net, turn * 10_000 + 5000), None);
    }
    // There is no such port.
    net.get_host(2).fail_link(2, LinkError::Integrity);
    net.get_host(2).fail_link(0, LinkError::Integrity);
    assert_eq!(no_trap(&mut net, 50_000), None);
}

/// More wrong CRCs than LocalPhyErrors allows are an error of the link, at either end.
#[test]
fn too_many_wrong_crcs() {
    let (mut net, manager) = star();
    let packet = data_packet(3, 4);
    for port in [2, 3] {
        manager.change_port(&mut net, PATH, port, |info| info[53] = 0x48);
    }
    manager.change_port(&mut net, &[1, 2], 1, |info| info[53] = 0x48);
    for _ in 0..4 {
        assert!(!net.get_host(2).discard(1, Discard::Crc, &packet));
        assert!(!net.get_switch(0).count_corrupt(3));
    }
    assert_eq!(no_trap(&mut net, 10), None);
    assert!(net.get_host(2).discard(1, Discard::Crc, &packet));
    let trap = one_trap(&mut net, 20);
    assert_eq!(trap[64..72], [0x81, 0, 0, 1, 0, 129, 0, 3]);
    assert_eq!(trap[76..79], [0, 3, 1]);
    repress(&mut net, 3, trap);

    assert!(net.get_switch(0).count_corrupt(3));
    let trap = one_trap(&mut net, 10_000);
    assert_eq!(trap[64..72], [0x81, 0, 0, 2, 0, 129, 0, 2]);
    assert_eq!(trap[76..79], [0, 2, 3]);
    // Neither the management port nor one that does not exist has a link.
    for port in [0, 4] {
        assert!((0..100).all(|_| !net.get_switch(0).count_corrupt(port)));
    }
}

#[test]
fn refused_management_keys() {
    for by_route in [false, true] {
        let (mut net, manager) = star();
        manager.change_port(&mut net, PATH, 0, |info| info[7] = 7);
        let mut request = smp(SET, PORT_INFO, 0x8000_0001, &[]);
        request[24..32].copy_from_slice(&0x0102_0304_0506_0708_u64.to_be_bytes());
        let mut details = [0; 54];
        details[6..14].copy_from_slice(&[SET, 0, 0, 0x15, 0x80, 0, 0, 1]);
        details[14..22].copy_from_slice(&request[24..32]);
        if by_route {
            assert!(manager.try_ask(&mut net, PATH, &request).is_none());
            details[2..6].fill(0xff);
            details[23..26].copy_from_slice(&[0x81, 0, 1]);
        } else {
            request[1] = 1;
            let packet = smi_packet(1, 2);
            assert!(net.walk((1, 1), packet, Some(request)).is_empty());
            details[3] = 1;
        }
        let trap = one_trap(&mut net, 10);
        assert_eq!(trap[64..72], [0x82, 0, 0, 2, 1, 0, 0, 2]);
        assert_eq!(trap[74..128], details);
    }
}

/// One refused key is told of; those that follow only count, until that is repressed.
#[test]
fn refused_keys_of_a_host() {
    let (mut net, _) = star();
    let mut packet = data_packet(3, 4);
    (packet.pkey, packet.sl) = (0x8009, 5);
    net.get_host(3).discard(1, Discard::PKey, &packet);
    net.get_host(3).discard(1, Discard::QKey, &packet);
    net.get_host(3).discard(1, Discard::NoQp, &packet);
    let trap = one_trap(&mut net, 10);
    let mut details = [0; 54];
    details[2..10].copy_from_slice(&[0, 3, 0, 4, 0, 0, 0x80, 0x09]);
    details[10..18].copy_from_slice(&[0x50, 0, 0, 0x48, 0, 0, 0, 0x48]);
    assert_eq!(trap[64..72], [0x82, 0, 0, 1, 1, 1, 0, 4]);
    assert_eq!(trap[74..128], details);
    repress(&mut net, 4, trap);
    assert_eq!(no_trap(&mut net, 20_000), None);
    let port = net.get_host(3).port(1).unwrap();
    assert_eq!((port.pkey_violations, port.qkey_violations), (1, 1));

    net.get_host(3).discard(1, Discard::QKey, &packet);
    let trap = one_trap(&mut net, 20_000);
    details[6..10].copy_from_slice(&0x0b1b_u32.to_be_bytes());
    assert_eq!(trap[68..70], [1, 2]);
    assert_eq!(trap[74..128], details);
}

#[test]
fn refused_keys_of_a_switch() {
    let (mut net, manager) = star();
    manager.change_port(&mut net, PATH, 2, |info| info[43] |= 8);
    let mut packet = data_packet(3, 4);
    packet.pkey = 0x8009;
    net.get_switch(0).forward(2, &packet);
    let trap = one_trap(&mut net, 10);
    let mut details = [0; 54];
    details[..8].copy_from_slice(&[0, 0x3f, 0, 3, 0, 4, 0x80, 0x09]);
    details[8..16].copy_from_slice(&[0, 0, 0, 0x48, 0, 0, 0, 0x48]);
    details[48..51].copy_from_slice(&[0, 2, 2]);
    assert_eq!(trap[64..72], [0x82, 0, 0, 2, 1, 3, 0, 2]);
    assert_eq!(trap[74..128], details);
}

/// Traps of different sorts take turns, and keep their distance.
#[test]
fn sorts_take_turns() {
    let (mut net, manager) = star();
    manager.change_port(&mut net, PATH, 2, |info| info[43] |= 8);
    let mut packet = data_packet(3, 4);
    packet.pkey = 0x8009;
    net.get_switch(0).forward(2, &packet);
    net.get_switch(0).set_description(&[1; 64]);
    net.pull((0, 3));
    let mut numbers = Vec::new();
    for turn in 0..6 {
        let trap = one_trap(&mut net, 10 + turn * PAUSE);
        numbers.push(u16::from_be_bytes([trap[68], trap[69]]));
    }
    assert_eq!(numbers[..3], numbers[3..]);
    numbers.sort_unstable();
    assert_eq!(numbers, [128, 128, 144, 144, 259, 259]);
}
