// SPDX-License-Identifier: GPL-2.0

//! A simulated subnet: nodes, cables, and packets that walk from one to the next.

use std::collections::BTreeMap;

use ib_fabric::ud::port_accepts;
use ib_fabric::{Arrival, Forward, Guid, Hca, Lid, LinkOffer, Mad, Memory, Mtu, Packet};
use ib_fabric::{PhysState, Port, Switch, SwitchConfig, TrapDue, Verdict};

use super::adapter;

/// The cables that a packet may cross.
const HOPS: u32 = 200;

/// Tables of switches in vectors.
pub(crate) struct Vectors;

impl Memory for Vectors {
    type Ports = Vec<Port>;
    type Routes = Vec<u8>;
    type Groups = Vec<u64>;
    type Lanes = Vec<[u8; 8]>;
}

/// Makes the constants of a switch.
pub(crate) fn switch_config(node: u64, ports: u8) -> SwitchConfig {
    SwitchConfig {
        node_guid: Guid::new(node),
        system_guid: Guid::new(node),
        ports,
        pkeys: 64,
        mtu: Mtu::B4096,
        vendor_id: 0x00_0123,
        device_id: 0x4567,
        revision: 0x89ab_cdef,
    }
}

/// Makes a switch with 1024 routes and 64 groups.
pub(crate) fn switch(config: &SwitchConfig) -> Switch<Vectors> {
    let ports = (0..=config.ports).map(|port| Switch::<Vectors>::port_template(config, port));
    let lanes = vec![[0; 8]; config.lane_count()];
    Switch::new(config, ports.collect(), vec![0; 1024], vec![0; 64], lanes).unwrap()
}

pub(crate) enum Node {
    Host(Box<Hca>),
    Switch(Box<Switch<Vectors>>),
}

/// A node's port.
pub(crate) type End = (usize, u8);

/// A packet that came to a host and is not for its management agents.
pub(crate) struct Arrived {
    pub(crate) node: usize,
    pub(crate) packet: Packet,
    pub(crate) mad: Option<Mad>,
}

#[derive(Default)]
pub(crate) struct Net {
    pub(crate) nodes: Vec<Node>,
    pub(crate) cables: BTreeMap<End, End>,
    /// The packets that crossed too many cables.
    pub(crate) looped: usize,
}

impl Net {
    /// Adds a host with one port. Returns its place.
    pub(crate) fn host(&mut self) -> usize {
        let place = self.nodes.len();
        let hca = adapter(0x1000 + 16 * place as u64, 1);
        self.nodes.push(Node::Host(Box::new(hca)));
        place
    }

    /// Adds a switch. Returns its place.
    pub(crate) fn switch(&mut self, ports: u8) -> usize {
        let place = self.nodes.len();
        let config = switch_config(0x1000 + 16 * place as u64, ports);
        self.nodes.push(Node::Switch(Box::new(switch(&config))));
        place
    }

    /// Makes one switch, at place 0, with hosts at all ports.
    pub(crate) fn star(hosts: u8) -> Net {
        let mut net = Net::default();
        let switch = net.switch(hosts);
        for port in 1..=hosts {
            let host = net.host();
            net.plug((host, 1), (switch, port));
        }
        net
    }

    /// Returns the places of all hosts.
    pub(crate) fn hosts(&self) -> Vec<usize> {
        let is_host = |&place: &usize| matches!(self.nodes[place], Node::Host(_));
        (0..self.nodes.len()).filter(is_host).collect()
    }

    pub(crate) fn get_host(&mut self, place: usize) -> &mut Hca {
        match &mut self.nodes[place] {
            Node::Host(hca) => hca,
            Node::Switch(_) => panic!("a switch"),
        }
    }

    pub(crate) fn get_switch(&mut self, place: usize) -> &mut Switch<Vectors> {
        match &mut self.nodes[place] {
            Node::Switch(switch) => switch,
            Node::Host(_) => panic!("a host"),
        }
    }

    pub(crate) fn port(&self, (node, port): End) -> &Port {
        match &self.nodes[node] {
            Node::Host(hca) => hca.port(port).unwrap(),
            Node::Switch(switch) => switch.port(port).unwrap(),
        }
    }

    fn offer(&self, (node, port): End) -> LinkOffer {
        match &self.nodes[node] {
            Node::Host(hca) => hca.offer(port),
            Node::Switch(switch) => switch.offer(port),
        }
    }

    fn up(&mut self, (node, port): End, peer: &LinkOffer) {
        match &mut self.nodes[node] {
            Node::Host(hca) => {
                hca.link_up(port, peer);
            }
            Node::Switch(switch) => switch.link_up(port, peer),
        }
    }

    fn down(&mut self, (node, port): End) {
        match &mut self.nodes[node] {
            Node::Host(hca) => {
                hca.link_down(port);
            }
            Node::Switch(switch) => switch.link_down(port),
        }
    }

    /// Connects two ports by a cable and trains the link.
    pub(crate) fn plug(&mut self, one: End, other: End) {
        assert!(self.cables.insert(one, other).is_none());
        assert!(self.cables.insert(other, one).is_none());
        self.train(one, other);
    }

    /// Pulls the cable of a port.
    pub(crate) fn pull(&mut self, one: End) {
        let other = self.cables.remove(&one).unwrap();
        self.cables.remove(&other);
        self.down(one);
        self.down(other);
    }

    fn train(&mut self, one: End, other: End) {
        let can = |end| PhysState::can_train(self.port(end).phys_state());
        if can(one) && can(other) {
            let (ours, theirs) = (self.offer(one), self.offer(other));
            self.up(one, &theirs);
            self.up(other, &ours);
        }
    }

    /// Lets a packet leave by a port and walk on, as do the answers to it. Returns all that
    /// came to hosts.
    pub(crate) fn walk(&mut self, from: End, packet: Packet, mad: Option<Mad>) -> Vec<Arrived> {
        let mut arrived = Vec::new();
        let mut retrain = Vec::new();
        let mut under_way = vec![(from, packet, mad, HOPS)];
        while let Some((out, mut packet, mut mad, hops)) = under_way.pop() {
            let Some(&(node, port)) = self.cables.get(&out) else {
                continue;
            };
            let Some(hops) = hops.checked_sub(1) else {
                self.looped += 1;
                continue;
            };
            match &mut self.nodes[node] {
                Node::Switch(switch) => match switch.forward(port, &packet) {
                    Forward::Out(out) => under_way.push(((node, out), packet, mad, hops)),
                    Forward::Flood(outs) => {
                        assert!(!outs.is_empty() && !outs.contains(port));
                        under_way.extend(outs.map(|out| ((node, out), packet, mad, hops)));
                    }
                    Forward::Manage => {
                        let mut bytes = mad.unwrap_or([0; 256]);
                        let managed = switch.manage(port, &mut packet, &mut bytes);
                        retrain.extend(managed.retrain.map(|port| (node, port)));
                        let onward = managed.out.map(|out| ((node, out), packet));
                        under_way
                            .extend(onward.map(|(out, packet)| (out, packet, Some(bytes), hops)));
                    }
                    Forward::Drop => {}
                },
                Node::Host(hca) => {
                    if port_accepts(hca, port, &packet).is_err() {
                        continue;
                    }
                    if !packet.management {
                        hca.data_arrived(port);
                    } else if let Some(mad) = &mut mad {
                        match manage(hca, port, &mut packet, mad) {
                            Verdict::Pass => {}
                            Verdict::Consume => continue,
                            Verdict::Reply => {
                                under_way.push(((node, port), packet, Some(*mad), hops));
                                continue;
                            }
                        }
                    }
                    arrived.push(Arrived { node, packet, mad });
                }
            }
        }
        for end in retrain {
            self.retrain(end);
        }
        arrived
    }

    fn retrain(&mut self, one: End) {
        let Some(&other) = self.cables.get(&one) else {
            return;
        };
        self.down(one);
        self.down(other);
        self.train(one, other);
    }

    /// Sends the traps that are due at a time. Returns those that came to hosts, and the
    /// earliest time for the next one.
    pub(crate) fn traps(&mut self, now_ms: u64) -> (Vec<Arrived>, Option<u64>) {
        let mut arrived = Vec::new();
        let mut next = None;
        for node in 0..self.nodes.len() {
            loop {
                let mut mad = [0xee; 256];
                let due = match &mut self.nodes[node] {
                    Node::Host(hca) => hca.trap(1, now_ms, &mut mad),
                    Node::Switch(switch) => switch.trap(now_ms, &mut mad),
                };
                match due {
                    TrapDue::Send { out, packet } => {
                        arrived.extend(self.walk((node, out), packet, Some(mad)));
                    }
                    TrapDue::At(at) => {
                        assert!(at > now_ms);
                        next = Some(next.map_or(at, |next: u64| next.min(at)));
                        break;
                    }
                    TrapDue::Never => break,
                }
            }
        }
        (arrived, next)
    }
}

/// Hands a subnet management packet to a host's agent, as ib_mad does. With
/// [`Verdict::Reply`], packet and datagram are the answer now, and leave by the port; with
/// [`Verdict::Pass`], they are for a manager there.
fn manage(hca: &mut Hca, port: u8, packet: &mut Packet, mad: &mut Mad) -> Verdict {
    let directed = mad[1] == 0x81;
    let (pointer, count) = (mad[6], mad[7]);
    if directed && mad[4] & 0x80 == 0 && pointer == count && count != 0 {
        mad[192 + usize::from(pointer)] = port;
        mad[6] += 1;
    } else if directed && mad[4] & 0x80 != 0 && pointer == 1 {
        mad[6] = 0;
    }
    let arrival = Arrival {
        local: false,
        slid: packet.slid,
        src_qp: packet.source_qp(),
        pkey_index: 0,
    };
    let mut reply = [0; 256];
    let outcome = hca.process_mad(port, &arrival, mad, &mut reply);
    if outcome.verdict != Verdict::Reply {
        return outcome.verdict;
    }
    *mad = reply;
    packet.dlid = packet.slid;
    packet.slid = hca.port(port).unwrap().lid();
    if directed && packet.dlid == Lid::PERMISSIVE {
        packet.slid = Lid::PERMISSIVE;
        mad[6] -= 1;
    }
    Verdict::Reply
}
