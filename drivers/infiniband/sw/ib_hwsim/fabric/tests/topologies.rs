// SPDX-License-Identifier: GPL-2.0

//! A subnet manager brings up subnets of many shapes; all reach all.

mod manager;

use ib_fabric::{Gid, Grh, Guid};
use manager::net::Net;
use manager::sweep::{data_packet, smi_packet, Manager};
use manager::*;

/// Makes a chain of switches with a host at each.
fn chain(switches: usize) -> Net {
    let mut net = Net::default();
    let mut before = None;
    for _ in 0..switches {
        let (host, switch) = (net.host(), net.switch(3));
        net.plug((host, 1), (switch, 1));
        if let Some(before) = before {
            net.plug((before, 3), (switch, 2));
        }
        before = Some(switch);
    }
    net
}

/// Makes a chain whose ends are connected.
fn ring(switches: usize) -> Net {
    let mut net = chain(switches);
    net.plug((1, 2), (2 * switches - 1, 3));
    net
}

/// Makes leaves with half of their ports down to hosts, and spines that connect them.
fn fat_tree(hosts: usize, radix: u8) -> Net {
    let mut net = Net::default();
    let half = radix / 2;
    let leaves = hosts.div_ceil(usize::from(half));
    let spines: Vec<_> = (0..leaves.div_ceil(2)).map(|_| net.switch(radix)).collect();
    let mut used = vec![0; spines.len()];
    for _ in 0..leaves {
        let leaf = net.switch(radix);
        for port in 1..=half {
            let host = net.host();
            net.plug((host, 1), (leaf, port));
            let spine = usize::from(port) % spines.len();
            used[spine] += 1;
            net.plug((leaf, half + port), (spines[spine], used[spine]));
        }
    }
    net
}

/// Checks that each node answers by its LID, with its own GUID.
fn check_by_lid(net: &mut Net, manager: &Manager) {
    let from = manager.found[0].lid;
    for found in &manager.found[1..] {
        let mut request = smp(GET, NODE_INFO, 0, &[]);
        request[1] = 1;
        let packet = smi_packet(from, found.lid);
        let arrived = net.walk((manager.host, 1), packet, Some(request));
        let [answer] = &arrived[..] else {
            panic!("{} answers of LID {}", arrived.len(), found.lid);
        };
        let mad = answer.mad.unwrap();
        assert_eq!((answer.node, mad[1], mad[3]), (manager.host, 1, 0x81));
        assert_eq!(mad[76..84], found.guid.to_be_bytes());
        assert_eq!(answer.packet.slid.get(), found.lid);
    }
}

/// Checks that a packet from each host to each comes once and nowhere else.
fn check_unicast(net: &mut Net, manager: &Manager) {
    let hosts = net.hosts();
    for &from in &hosts {
        for &to in hosts.iter().filter(|&&to| to != from) {
            let packet = data_packet(manager.lid(net, from), manager.lid(net, to));
            let arrived = net.walk((from, 1), packet, None);
            assert_eq!(arrived.len(), 1);
            assert_eq!(arrived[0].node, to);
        }
    }
}

/// Checks that packets to a group come once to each member but the sender.
fn check_group(net: &mut Net, manager: &Manager, members: &[usize]) {
    manager.write_group(net, 0xc021, members);
    let dgid = Gid::from_parts(0xff12 << 48, Guid::new(1));
    let grh = Grh {
        traffic_class: 0,
        flow_label: 0,
        hop_limit: 0,
        sgid: dgid,
        dgid,
    };
    for &from in members {
        let mut packet = data_packet(manager.lid(net, from), 0xc021);
        packet.dest_qp = 0xff_ffff;
        packet.grh = Some(grh);
        let arrived = net.walk((from, 1), packet, None);
        let mut reached: Vec<_> = arrived.iter().map(|arrived| arrived.node).collect();
        reached.sort_unstable();
        let others: Vec<_> = members.iter().copied().filter(|&m| m != from).collect();
        assert_eq!(reached, others);
    }
}

/// Checks all of a subnet.
fn check(mut net: Net) {
    let manager = Manager::of(&mut net);
    check_by_lid(&mut net, &manager);
    check_unicast(&mut net, &manager);
    let all = net.hosts();
    check_group(&mut net, &manager, &all);
    let some: Vec<_> = all.iter().copied().step_by(3).collect();
    check_group(&mut net, &manager, &some);
    assert_eq!(net.looped, 0);
}

#[test]
fn one_switch() {
    check(Net::star(2));
}

#[test]
fn chain_of_five() {
    check(chain(5));
}

/// The longest directed route has 63 hops.
#[test]
fn chain_of_sixty() {
    let mut net = chain(60);
    let manager = Manager::of(&mut net);
    let longest = manager.found.iter().map(|found| found.path.len()).max();
    assert_eq!(longest, Some(61));
    check_by_lid(&mut net, &manager);
}

#[test]
fn rings() {
    check(ring(3));
    check(ring(8));
}

#[test]
fn star_of_64() {
    check(Net::star(64));
}

#[test]
fn fat_tree_of_72() {
    check(fat_tree(72, 36));
}

#[test]
fn two_links_between_two_switches() {
    let mut net = chain(2);
    let spare = net.switch(4);
    net.plug((1, 2), (spare, 1));
    net.plug((3, 3), (spare, 2));
    let (a, b) = (net.switch(4), net.switch(4));
    for port in 1..=3 {
        net.plug((a, port), (b, port));
    }
    net.plug((a, 4), (spare, 3));
    let host = net.host();
    net.plug((host, 1), (b, 4));
    check(net);
}

/// Each port of each switch is there, by directed route and by LID, with the same settings.
#[test]
fn every_port_answers() {
    let mut net = fat_tree(8, 4);
    let manager = Manager::of(&mut net);
    for found in &manager.found {
        if !found.is_switch {
            continue;
        }
        for port in 0..=found.ports {
            let mut request = smp(GET, PORT_INFO, u32::from(port), &[]);
            let (status, by_route) = manager.try_ask(&mut net, &found.path, &request).unwrap();
            assert_eq!(status, 0);
            request[1] = 1;
            let packet = smi_packet(manager.found[0].lid, found.lid);
            let arrived = net.walk((manager.host, 1), packet, Some(request));
            let mut by_lid = arrived[0].mad.unwrap();
            // LocalPortNum is that of the way of the request.
            by_lid[92] = by_route[28];
            assert_eq!(by_lid[64..128], by_route);
            let linked = port == 0 || found.links.contains_key(&port);
            let state = if linked { ACTIVE } else { DOWN };
            assert_eq!(by_route[32] & 0xf, state);
            let lid = u16::from_be_bytes([by_route[16], by_route[17]]);
            assert_eq!(lid, if port == 0 { found.lid } else { 0 });
        }
        let beyond = smp(GET, PORT_INFO, u32::from(found.ports) + 1, &[]);
        let (status, _) = manager.try_ask(&mut net, &found.path, &beyond).unwrap();
        assert_eq!(status, 0x1c);
    }
}

/// After a cable was pulled and another one plugged in, a second sweep finds the new ways.
#[test]
fn ring_survives_a_lost_link() {
    let mut net = ring(5);
    let mut manager = Manager::of(&mut net);
    net.pull((3, 3));
    manager.discover(&mut net);
    assert_eq!(manager.found.len(), net.nodes.len());
    manager.bring_up(&mut net);
    check_by_lid(&mut net, &manager);
    check_unicast(&mut net, &manager);
}

/// Ways with parts by LID before and after the directed one (section 14.2.2).
#[test]
fn mixed_routes() {
    let mut net = chain(4);
    let manager = Manager::of(&mut net);
    let from = manager.found[0].lid;
    let (first, last) = (manager.lid(&mut net, 1), manager.lid(&mut net, 7));
    let guid_of = |net: &mut Net, node| manager.found[manager.by_place(net, node)].guid;
    // where the part by LID leads to, path from there, LID after it, node that answers
    let host = manager.lid(&mut net, 6);
    let cases: [(u16, &[u8], u16, usize); 7] = [
        (first, &[3, 3], 0xffff, 5),
        (first, &[3, 1], 0xffff, 2),
        (first, &[3], last, 7),
        (first, &[3], host, 6),
        (last, &[], 0xffff, 7),
        (last, &[1], 0xffff, 6),
        (0xffff, &[1, 3], last, 7),
    ];
    for (lid, path, after, node) in cases {
        let mut mad = sweep::directed(path, &smp(GET, NODE_INFO, 0, &[]));
        if lid != 0xffff {
            mad[6] = 0;
            mad[32..34].copy_from_slice(&from.to_be_bytes());
        }
        mad[34..36].copy_from_slice(&after.to_be_bytes());
        let slid = if lid == 0xffff { 0xffff } else { from };
        let arrived = net.walk((0, 1), smi_packet(slid, lid), Some(mad));
        assert_eq!(arrived.len(), 1, "{lid} {path:?} {after}");
        let mad = arrived[0].mad.unwrap();
        assert_eq!(
            (arrived[0].node, mad[3], mad[4], mad[6]),
            (0, 0x81, 0x80, 0)
        );
        assert_eq!(mad[76..84], guid_of(&mut net, node).to_be_bytes());
    }
}
