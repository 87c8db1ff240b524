// SPDX-License-Identifier: GPL-2.0

//! The way of a datagram, from a send request to the receive requests it is for.

use ib_fabric::ud::{find_pkey, port_accepts, qp_accepts};
use ib_fabric::{Counted, Discard, Events, Gid, Grh, Hca, Lid, Packet, Port, PortState};
use kernel::prelude::*;
use rdma_provider::{Event, Kind, Meta, Payload, Qp, Refused, Send, Status, Wakeups};

use crate::node::{Node, PORT};

/// P_Key of packets between subnet management interfaces, which nobody looks at (IB specification, 9.2.4).
const DEFAULT_PKEY: u16 = 0xffff;

/// Bytes of a local route header.
const LRH: u32 = 8;

/// Bytes of a global route header.
const GRH: u32 = 40;

/// Bytes of BTH, DETH and ICRC.
const TRANSPORT: u32 = 12 + 8 + 4;

/// Bytes of immediate data.
const IMMEDIATE: u32 = 4;

/// Bytes of a packet behind its route headers, from BTH to ICRC; the payload is padded to whole words.
fn transport_bytes(packet: &Packet) -> u32 {
    let immediate = packet.immediate.map_or(0, |_| IMMEDIATE);
    packet.len.next_multiple_of(4) + TRANSPORT + immediate
}

/// Bytes of a packet on the wire, from LRH to ICRC.
fn wire_bytes(packet: &Packet) -> u32 {
    let route = packet.grh.as_ref().map_or(0, |_| GRH);
    LRH + route + transport_bytes(packet)
}

/// Sends one message, and returns how its request ends: with success, too, if the message is lost on the way.
pub(crate) fn send(
    node: &Node,
    qp: &Qp,
    request: &Send,
    payload: &Payload<'_>,
    wakeups: &mut Wakeups,
) -> Status {
    let (packet, way) = {
        let mut hca = node.hca.lock();
        let (packet, way) = match outgoing(&hca, qp.kind(), qp.number(), request) {
            Ok(ready) => ready,
            Err(status) => return status,
        };
        if way.wire {
            let bytes = wire_bytes(&packet);
            let sent = if packet.dlid.is_multicast() {
                Counted::SentMulticast { bytes }
            } else {
                Counted::Sent { bytes }
            };
            hca.count(PORT, sent);
        } else if !way.local {
            hca.count(PORT, Counted::Discarded);
        }
        (packet, way)
    };
    if way.local {
        arrive(node, Some(qp), &packet, payload, wakeups);
    }
    if way.wire {
        if let Some(peer) = node.peer() {
            arrive(&peer, None, &packet, payload, wakeups);
        }
    }
    Status::Success
}

/// Where a packet goes.
struct Way {
    /// To queue pairs of this adapter.
    local: bool,
    /// Out of the port.
    wire: bool,
}

impl Way {
    /// The port has no lane for it.
    const NOWHERE: Way = Way {
        local: false,
        wire: false,
    };
}

/// Makes the headers of a message, and finds its way.
fn outgoing(hca: &Hca, kind: Kind, src_qp: u32, request: &Send) -> Result<(Packet, Way), Status> {
    let port = hca.port(PORT).ok_or(Status::LocalOperation)?;
    let management = kind == Kind::Smi;
    if request.to.port != PORT {
        return Err(Status::LocalOperation);
    }
    if request.len > port.active_mtu().bytes() as usize {
        return Err(Status::LocalLength);
    }
    let pkey = if management {
        DEFAULT_PKEY
    } else {
        let pkey = port.pkey(request.pkey_index).unwrap_or(0);
        if pkey & 0x7fff == 0 {
            return Err(Status::LocalOperation);
        }
        pkey
    };
    let grh = match &request.to.route {
        None => None,
        Some(route) => Some(Grh {
            traffic_class: route.traffic_class,
            flow_label: route.flow_label,
            hop_limit: route.hop_limit,
            sgid: port.gid(route.sgid_index).ok_or(Status::LocalOperation)?,
            dgid: Gid::from_bytes(route.dgid),
        }),
    };
    let dlid = Lid::new(request.to.dlid);
    let mask = (1u16 << port.lmc()) - 1;
    let lid = port.lid();
    let packet = Packet {
        // A directed route begins and ends at the permissive LID, and so does all before there is one.
        slid: if lid.is_unicast() && dlid != Lid::PERMISSIVE {
            Lid::new(lid.get() | u16::from(request.to.path_bits) & mask)
        } else {
            Lid::PERMISSIVE
        },
        dlid,
        sl: request.to.sl,
        pkey,
        qkey: request.qkey,
        dest_qp: request.remote_qp,
        src_qp,
        grh,
        immediate: request.immediate.map(u32::from_be_bytes),
        solicited: request.solicited,
        len: request.len as u32,
        management,
    };
    if !management && port.virtual_lane(request.to.sl).is_none() {
        return Ok((packet, Way::NOWHERE));
    }
    let ours = dlid.is_unicast() && lid.is_unicast() && dlid.get() & !mask == lid.get();
    let way = Way {
        local: ours || dlid.is_multicast(),
        wire: !ours && carries(port, management),
    };
    Ok((packet, way))
}

/// Whether the link carries such packets: management ones as soon as it is up, data when it is Active.
fn carries(port: &Port, management: bool) -> bool {
    match port.state() {
        PortState::Down => false,
        PortState::Init | PortState::Armed => management,
        PortState::Active => true,
    }
}

/// Takes a packet to the queue pairs of a node that it is for. One from this very adapter comes with its sender.
fn arrive(
    node: &Node,
    sender: Option<&Qp>,
    packet: &Packet,
    payload: &Payload<'_>,
    wakeups: &mut Wakeups,
) {
    let events = {
        let mut hca = node.hca.lock();
        if let Err(reason) = port_accepts(&hca, PORT, packet) {
            if let Some(what) = reason.counted(packet) {
                hca.count(PORT, what);
            }
            return;
        }
        if sender.is_none() {
            from_wire(&mut hca, packet)
        } else {
            Events::NONE
        }
    };
    node.tell(events);
    if packet.dlid.is_multicast() {
        let Some(grh) = &packet.grh else {
            return;
        };
        let members = node
            .groups
            .lock()
            .members(grh.dgid.bytes(), packet.dlid.get());
        for member in members.iter().flatten() {
            let echo = sender.is_some_and(|s| s.is_deaf() && s.number() == member.number());
            if !echo {
                hand_over(node, member, packet, payload, wakeups);
            }
        }
    } else {
        let qp = node.qps.lock().find(packet.dest_qp);
        match qp {
            Some(qp) => hand_over(node, &qp, packet, payload, wakeups),
            None => drop_packet(node, packet, Discard::NoQp),
        }
    }
}

/// Counts a packet that came by the wire; the events that it brings about.
fn from_wire(hca: &mut Hca, packet: &Packet) -> Events {
    let bytes = wire_bytes(packet);
    let received = if packet.dlid.is_multicast() {
        Counted::ReceivedMulticast { bytes }
    } else {
        Counted::Received { bytes }
    };
    hca.count(PORT, received);
    if packet.management {
        Events::NONE
    } else {
        hca.data_arrived(PORT)
    }
}

/// Gives a packet to a queue pair.
fn hand_over(node: &Node, qp: &Qp, packet: &Packet, payload: &Payload<'_>, wakeups: &mut Wakeups) {
    let received = qp.receive(wakeups, payload, |pkey_index, qkey| {
        let hca = node.hca.lock();
        let port = hca.port(PORT).ok_or(Discard::PortDown)?;
        qp_accepts(port, pkey_index, qkey, packet)?;
        let index = match qp.kind() {
            Kind::Gsi => find_pkey(port, packet.pkey).unwrap_or(0),
            Kind::Smi | Kind::Ud => pkey_index,
        };
        let mask = if packet.dlid.is_unicast() {
            (1u16 << port.lmc()) - 1
        } else {
            0
        };
        Ok(Meta {
            src_qp: packet.src_qp,
            slid: packet.slid.get(),
            sl: packet.sl,
            path_bits: (packet.dlid.get() & mask) as u8,
            pkey_index: index,
            immediate: packet.immediate.map(u32::to_be_bytes),
            solicited: packet.solicited,
            route: packet
                .grh
                .as_ref()
                .map(|grh| grh.write(transport_bytes(packet) as u16)),
        })
    });
    let reason = match received {
        Ok(()) => return,
        Err(Refused::Driver(reason)) => reason,
        Err(Refused::State) => Discard::NoQp,
        Err(Refused::NoRequest) => Discard::NoReceive,
        Err(Refused::TooLong) => Discard::ShortBuffer,
        // The receiver has been told.
        Err(Refused::Protection) => return,
    };
    drop_packet(node, packet, reason);
}

/// Counts a packet that was dropped.
fn drop_packet(node: &Node, packet: &Packet, reason: Discard) {
    if let Some(what) = reason.counted(packet) {
        node.hca.lock().count(PORT, what);
    }
}

/// Name of the fabric's event in RDMA core.
pub(crate) fn event(event: ib_fabric::Event) -> Event {
    use ib_fabric::Event as Fabric;
    match event {
        Fabric::PortActive => Event::PortActive,
        Fabric::PortError => Event::PortError,
        Fabric::LidChange => Event::LidChange,
        Fabric::SmChange => Event::SmChange,
        Fabric::ClientReregister => Event::ClientReregister,
        Fabric::PKeyChange => Event::PKeyChange,
        Fabric::GidChange => Event::GidChange,
    }
}
