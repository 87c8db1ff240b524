// SPDX-License-Identifier: GPL-2.0

//! A subnet manager on a host: it finds the nodes by directed routes, gives them LIDs, writes
//! the tables of the switches and brings the links to Active.

use std::collections::{BTreeMap, VecDeque};

use ib_fabric::{Lid, Mad, Packet, Transport};

use super::net::{Arrived, Net};
use super::*;

/// A node that the manager has found.
pub(crate) struct Found {
    pub(crate) guid: u64,
    pub(crate) is_switch: bool,
    pub(crate) ports: u8,
    pub(crate) path: Vec<u8>,
    pub(crate) lid: u16,
    /// The place and the port at the other end of each link.
    pub(crate) links: BTreeMap<u8, (usize, u8)>,
}

/// A subnet manager.
pub(crate) struct Manager {
    /// The host that it runs on.
    pub(crate) host: usize,
    pub(crate) found: Vec<Found>,
}

/// Makes the headers of a subnet management packet.
pub(crate) fn smi_packet(slid: u16, dlid: u16) -> Packet {
    Packet {
        slid: Lid::new(slid),
        dlid: Lid::new(dlid),
        sl: 0,
        pkey: 0xffff,
        dest_qp: 0,
        grh: None,
        transport: Transport::datagram(0, 0),
        len: 256,
        management: true,
    }
}

/// Makes the headers of a datagram.
pub(crate) fn data_packet(slid: u16, dlid: u16) -> Packet {
    Packet {
        dest_qp: 0x48,
        transport: Transport::datagram(0x48, 0x0b1b),
        len: 2048,
        management: false,
        ..smi_packet(slid, dlid)
    }
}

/// Makes a request by directed route as its sender hands it to the first link.
pub(crate) fn directed(path: &[u8], request: &Mad) -> Mad {
    let mut mad = *request;
    (mad[6], mad[7]) = (1, path.len() as u8);
    mad[128..].fill(0);
    mad[129..129 + path.len()].copy_from_slice(path);
    mad
}

/// Returns the status without the direction bit, and the data.
fn answer(mad: &Mad) -> (u16, [u8; 64]) {
    assert_eq!(mad[3], 0x81);
    let status = u16::from_be_bytes([mad[4] & 0x7f, mad[5]]);
    (status, mad[64..128].try_into().unwrap())
}

impl Manager {
    pub(crate) fn new(host: usize) -> Manager {
        Manager {
            host,
            found: Vec::new(),
        }
    }

    /// Brings a subnet up from its first host.
    pub(crate) fn of(net: &mut Net) -> Manager {
        let mut manager = Manager::new(net.hosts()[0]);
        manager.discover(net);
        assert_eq!(manager.found.len(), net.nodes.len());
        manager.bring_up(net);
        manager
    }

    /// Sends a request by directed route. Returns status and data of the answer, if one comes.
    pub(crate) fn try_ask(
        &self,
        net: &mut Net,
        path: &[u8],
        request: &Mad,
    ) -> Option<(u16, [u8; 64])> {
        if path.is_empty() {
            let (_, reply) = ask(net.get_host(self.host), 1, request);
            return reply.map(|reply| answer(&reply));
        }
        let mad = directed(path, request);
        let packet = smi_packet(0xffff, 0xffff);
        let mut arrived = net.walk((self.host, path[0]), packet, Some(mad));
        let Arrived { node, mad, .. } = arrived.pop()?;
        assert!(arrived.is_empty() && node == self.host);
        let mad = mad.unwrap();
        assert_eq!((mad[6], mad[7]), (0, path.len() as u8), "back at the start");
        assert_eq!(mad[8..16], request[8..16]);
        Some(answer(&mad))
    }

    pub(crate) fn get(
        &self,
        net: &mut Net,
        path: &[u8],
        attribute: u16,
        modifier: u32,
    ) -> [u8; 64] {
        let request = smp(GET, attribute, modifier, &[]);
        let (status, data) = self.try_ask(net, path, &request).expect("an answer");
        assert_eq!(status, 0);
        data
    }

    pub(crate) fn set(
        &self,
        net: &mut Net,
        path: &[u8],
        attribute: u16,
        modifier: u32,
        data: &[u8],
    ) -> [u8; 64] {
        let request = smp(SET, attribute, modifier, data);
        let (status, data) = self.try_ask(net, path, &request).expect("an answer");
        assert_eq!(status, 0);
        data
    }

    /// Finds all nodes that can be reached.
    pub(crate) fn discover(&mut self, net: &mut Net) {
        self.found.clear();
        self.visit(net, Vec::new());
        let mut next = 0;
        while next < self.found.len() {
            let (is_switch, ports) = (self.found[next].is_switch, self.found[next].ports);
            let path = self.found[next].path.clone();
            for port in 1..=ports {
                if !is_switch && next != 0 || self.found[next].links.contains_key(&port) {
                    continue;
                }
                let info = self.get(net, &path, PORT_INFO, u32::from(port));
                if info[32] & 0xf == DOWN {
                    continue;
                }
                let mut onward = path.clone();
                onward.push(port);
                let (other, other_port) = self.visit(net, onward);
                self.found[next].links.insert(port, (other, other_port));
                self.found[other].links.insert(other_port, (next, port));
            }
            next += 1;
        }
        for (place, found) in self.found.iter_mut().enumerate() {
            found.lid = place as u16 + 1;
        }
    }

    /// Looks at the node at the end of a path. Returns its place and the port of arrival.
    fn visit(&mut self, net: &mut Net, path: Vec<u8>) -> (usize, u8) {
        let info = self.get(net, &path, NODE_INFO, 0);
        let guid = u64::from_be_bytes(info[12..20].try_into().unwrap());
        let known = self.found.iter().position(|found| found.guid == guid);
        let place = known.unwrap_or_else(|| {
            self.found.push(Found {
                guid,
                is_switch: info[2] == 2,
                ports: info[3],
                path,
                lid: 0,
                links: BTreeMap::new(),
            });
            self.found.len() - 1
        });
        (place, info[36])
    }

    /// Returns the node with a LID.
    pub(crate) fn by_place(&self, net: &mut Net, node: usize) -> usize {
        let guid = match &net.nodes[node] {
            net::Node::Host(hca) => hca.identity().node_guid,
            net::Node::Switch(switch) => switch.identity().node_guid,
        };
        let same = |found: &Found| found.guid == guid.get();
        self.found.iter().position(same).unwrap()
    }

    /// Returns the LID of a node of the subnet.
    pub(crate) fn lid(&self, net: &mut Net, node: usize) -> u16 {
        self.found[self.by_place(net, node)].lid
    }

    /// Brings up all that was found: LIDs, routes, links.
    pub(crate) fn bring_up(&self, net: &mut Net) {
        for found in &self.found {
            let port = u32::from(!found.is_switch);
            self.change_port(net, &found.path, port, |info| {
                info[16..18].copy_from_slice(&found.lid.to_be_bytes());
                info[18..20].copy_from_slice(&self.found[0].lid.to_be_bytes());
                info[51] = 18;
            });
        }
        self.write_routes(net);
        for state in [ARMED, ACTIVE] {
            for found in &self.found {
                for &port in found.links.keys() {
                    let port = u32::from(port);
                    let info = self.get(net, &found.path, PORT_INFO, port);
                    if info[32] & 0xf < state {
                        self.change_port(net, &found.path, port, |info| info[32] |= state);
                    }
                }
            }
        }
    }

    /// Writes back PortInfo with a change.
    pub(crate) fn change_port(
        &self,
        net: &mut Net,
        path: &[u8],
        port: u32,
        change: impl FnOnce(&mut [u8; 64]),
    ) {
        let mut info = self.get(net, path, PORT_INFO, port);
        info[32] &= 0xf0;
        info[33] &= 0x0f;
        change(&mut info);
        self.set(net, path, PORT_INFO, port, &info);
    }

    /// Returns the number of links from each node to one of them.
    fn distances(&self, to: usize) -> Vec<usize> {
        let mut distances = vec![usize::MAX; self.found.len()];
        distances[to] = 0;
        let mut queue = VecDeque::from([to]);
        while let Some(place) = queue.pop_front() {
            // Nothing goes through a host.
            if place != to && !self.found[place].is_switch {
                continue;
            }
            for &(other, _) in self.found[place].links.values() {
                if distances[other] == usize::MAX {
                    distances[other] = distances[place] + 1;
                    queue.push_back(other);
                }
            }
        }
        distances
    }

    /// Writes the linear tables: shortest ways, spread over links of equal length.
    fn write_routes(&self, net: &mut Net) {
        let top = self.found.len();
        let mut tables = vec![vec![0xff; (top / 64 + 1) * 64]; top];
        for (to, target) in self.found.iter().enumerate() {
            let distances = self.distances(to);
            for (place, found) in self.found.iter().enumerate().filter(|(_, f)| f.is_switch) {
                let nearer =
                    |&(_, &(other, _)): &(&u8, &(usize, u8))| distances[other] < distances[place];
                let ways: Vec<u8> = found.links.iter().filter(nearer).map(|(&p, _)| p).collect();
                let lid = usize::from(target.lid);
                tables[place][lid] = if place == to {
                    0
                } else {
                    ways[lid % ways.len()]
                };
            }
        }
        for (found, table) in self.found.iter().zip(&tables).filter(|(f, _)| f.is_switch) {
            let mut info = self.get(net, &found.path, SWITCH_INFO, 0);
            info[6..8].copy_from_slice(&(top as u16).to_be_bytes());
            info[11] |= 4;
            self.set(net, &found.path, SWITCH_INFO, 0, &info);
            for (block, entries) in (0..).zip(table.chunks(64)) {
                let data = self.set(net, &found.path, LINEAR_FORWARDING, block, entries);
                assert_eq!(data[..], *entries);
            }
        }
    }

    /// Writes the multicast tables for a group, a tree that has these hosts as its leaves.
    pub(crate) fn write_group(&self, net: &mut Net, mlid: u16, hosts: &[usize]) {
        let root = self.found.iter().position(|found| found.is_switch).unwrap();
        let distances = self.distances(root);
        let mut members = vec![0u128; self.found.len()];
        for &host in hosts {
            let mut place = self.by_place(net, host);
            while place != root {
                let mut links = self.found[place].links.iter();
                let up = links.find(|(_, (other, _))| distances[*other] < distances[place]);
                let (&port, &(above, below)) = up.unwrap();
                members[place] |= 1 << port;
                members[above] |= 1 << below;
                place = above;
            }
        }
        let index = mlid - 0xc000;
        for (found, members) in self.found.iter().zip(members).filter(|(f, _)| f.is_switch) {
            for position in 0..=u32::from(found.ports) / 16 {
                let modifier = (position << 28) | u32::from(index / 32);
                let mut block = self.get(net, &found.path, MULTICAST_FORWARDING, modifier);
                let place = usize::from(index % 32) * 2;
                let bits = (members >> (16 * position)) as u16;
                block[place..place + 2].copy_from_slice(&bits.to_be_bytes());
                let data = self.set(net, &found.path, MULTICAST_FORWARDING, modifier, &block);
                assert_eq!(data, block);
            }
        }
    }
}
