// SPDX-License-Identifier: GPL-2.0

//! Delivery of datagrams, from a send request to the receive requests that take them.

use ib_fabric::roce::{self, Network, Ways};
use ib_fabric::ud::{find_pkey, qp_accepts};
use ib_fabric::{Counted, Discard, Gid, Grh, Hca, Lid, Packet, Port, PortState, Transport};
use kernel::prelude::*;
use kernel::sync::Arc;
use rdma_provider::{Event, GlobalRoute, Kind, Meta, Payload, Qp, Refused, Send, Status, Wakeups};

use crate::carry::depart;
use crate::host::Host;

/// P_Key of packets between subnet management interfaces, which is not checked (IB specification, 9.2.4).
const DEFAULT_PKEY: u16 = 0xffff;

/// Sends one message, and returns how its request ends: with success, too, if the message is lost on the way.
pub(crate) fn send(
    host: &Host,
    qp: &Qp,
    request: &Send,
    payload: &Payload<'_>,
    wakeups: &mut Wakeups,
) -> Status {
    let port = request.to.port;
    let (packet, local, ahead) = {
        let managed = &mut *host.managed.lock();
        let (hca, stats) = (&mut managed.hca, &mut managed.stats);
        let (packet, mut way) = match outgoing(hca, qp.kind(), qp.number(), request) {
            Ok(ready) => ready,
            Err(status) => return status,
        };
        // The answer to what takes a port down still leaves by it.
        let last = managed.retrains.contains(port) && packet.management && is_answer(payload);
        way.wire |= last && !way.local;
        if way.wire {
            hca.count(port, packet.sent());
            stats.sent(port, &packet, None);
        } else if !way.local {
            hca.count(port, Counted::Discarded);
            stats.unsent(port, packet.packets());
        }
        let ahead = if way.wire {
            managed.links.next_hop(port)
        } else {
            None
        };
        if way.wire && ahead.is_none() {
            stats.lost(port, packet.packets());
        }
        (packet, way.local, ahead)
    };
    if local {
        let incoming = Incoming {
            port,
            origin: Origin::Own(Some(qp)),
            packet: &packet,
            payload,
        };
        arrive(host, incoming, wakeups);
    }
    if let Some(way) = ahead {
        host.capture.take(&packet, payload);
        depart(way, &packet, payload, wakeups);
    }
    if packet.management && is_answer(payload) {
        host.answer_left();
    }
    Status::Success
}

/// Whether a management datagram answers another one (IB specification, section 13.4.3).
fn is_answer(payload: &Payload<'_>) -> bool {
    let mut head = [0; 4];
    payload.read(&mut head);
    head[3] & 0x80 != 0
}

/// Makes the headers of a message, and looks up where it goes.
fn outgoing(hca: &Hca, kind: Kind, src_qp: u32, request: &Send) -> Result<(Packet, Ways), Status> {
    let port = hca.port(request.to.port).ok_or(Status::LocalOperation)?;
    let management = kind == Kind::Smi;
    if request.len > port.active_mtu().bytes() as usize {
        return Err(Status::LocalLength);
    }
    let pkey = if management {
        DEFAULT_PKEY
    } else {
        let pkey = port.pkey(request.pkey_index);
        pkey.filter(|pkey| pkey & 0x7fff != 0)
            .ok_or(Status::LocalOperation)?
    };
    let ethernet = port.is_ethernet();
    let grh = match &request.to.route {
        None if ethernet => return Err(Status::LocalOperation),
        None => None,
        Some(route) => Some(grh(port, route).ok_or(Status::LocalOperation)?),
    };
    let (slid, dlid) = lids(port, request);
    let packet = Packet {
        slid,
        dlid,
        sl: request.to.sl,
        pkey,
        dest_qp: request.remote_qp,
        grh,
        len: request.len as u32,
        management,
        transport: Transport::Ud {
            qkey: request.qkey,
            src_qp,
            immediate: request.immediate.map(u32::from_be_bytes),
            solicited: request.solicited,
        },
    };
    if let (true, Some(grh)) = (ethernet, &packet.grh) {
        return Ok((packet, roce::ways(port, grh)));
    }
    if !management && port.virtual_lane(request.to.sl).is_none() {
        return Ok((packet, Ways::NOWHERE));
    }
    let ours = port.has_lid(dlid);
    let ways = Ways {
        local: ours || dlid.is_multicast(),
        wire: !ours && carries(port, management),
    };
    Ok((packet, ways))
}

/// The source and destination LID of a message; none on Ethernet.
fn lids(port: &Port, request: &Send) -> (Lid, Lid) {
    if port.is_ethernet() {
        return (Lid::NONE, Lid::NONE);
    }
    let dlid = Lid::new(request.to.dlid);
    // A directed route begins and ends at the permissive LID, and so does all before there is one.
    let slid = if port.lid().is_unicast() && dlid != Lid::PERMISSIVE {
        port.lid_with(request.to.path_bits)
    } else {
        Lid::PERMISSIVE
    };
    (slid, dlid)
}

/// Makes the global route header of packets by a port; `None` if that has not the source GID.
pub(crate) fn grh(port: &Port, route: &GlobalRoute) -> Option<Grh> {
    Some(Grh {
        traffic_class: route.traffic_class,
        flow_label: route.flow_label,
        hop_limit: route.hop_limit,
        sgid: port.gid(route.sgid_index)?,
        dgid: Gid::from_bytes(route.dgid),
    })
}

/// Whether the link carries such packets: management ones as soon as it is up, data when it is Active.
pub(crate) fn carries(port: &Port, management: bool) -> bool {
    match port.state() {
        PortState::Down => false,
        PortState::Init | PortState::Armed => management,
        PortState::Active => true,
    }
}

/// Origin of a packet that comes to a port.
#[derive(Clone, Copy)]
enum Origin<'a> {
    /// The cable.
    Wire,
    /// This very adapter, and the queue pair of it that has sent the packet; an agent has none.
    Own(Option<&'a Qp>),
}

/// A packet that comes to a port.
#[derive(Clone, Copy)]
pub(crate) struct Incoming<'a> {
    port: u8,
    origin: Origin<'a>,
    packet: &'a Packet,
    payload: &'a Payload<'a>,
}

impl<'a> Incoming<'a> {
    /// One that comes by a cable.
    pub(crate) fn by_wire(port: u8, packet: &'a Packet, payload: &'a Payload<'a>) -> Self {
        Self {
            port,
            origin: Origin::Wire,
            packet,
            payload,
        }
    }

    /// One that an agent of the adapter has sent.
    pub(crate) fn of_agent(port: u8, packet: &'a Packet, payload: &'a Payload<'a>) -> Self {
        Self {
            origin: Origin::Own(None),
            ..Self::by_wire(port, packet, payload)
        }
    }
}

/// Takes a packet that came to a port to the queue pairs that it is for.
pub(crate) fn arrive(host: &Host, incoming: Incoming<'_>, wakeups: &mut Wakeups) {
    let Incoming {
        port,
        origin,
        packet,
        payload,
    } = incoming;
    let by_wire = matches!(origin, Origin::Wire);
    if !host.admit(port, by_wire, packet) {
        return;
    }
    if by_wire {
        host.capture.take(packet, payload);
    }
    if packet.is_multicast() {
        let Some(grh) = &packet.grh else {
            return;
        };
        let members = host
            .groups
            .lock()
            .members(grh.dgid.bytes(), packet.dlid.get());
        let mut receivers = 0;
        for member in members.iter().flatten() {
            let echo = match origin {
                Origin::Own(Some(sender)) => {
                    sender.blocks_loopback() && sender.number() == member.number()
                }
                _ => false,
            };
            if !echo {
                receivers += 1;
                hand_over(host, member, incoming, wakeups);
            }
        }
        if receivers != 1 {
            host.managed.lock().stats.copied(port, packet, receivers);
        }
    } else {
        let qp = host.qps.lock().find(packet.dest_qp, port);
        match qp {
            Some(qp) => hand_over(host, &qp, incoming, wakeups),
            None => host.discard(port, Discard::NoQp, packet),
        }
    }
}

/// Gives a packet to a queue pair.
fn hand_over(host: &Host, qp: &Arc<Qp>, incoming: Incoming<'_>, wakeups: &mut Wakeups) {
    let (number, packet) = (incoming.port, incoming.packet);
    let Transport::Ud {
        src_qp,
        immediate,
        solicited,
        ..
    } = packet.transport
    else {
        return;
    };
    if qp.kind() == Kind::Rc {
        return host.discard(number, Discard::NoQp, packet);
    }
    let received = qp.receive(wakeups, number, incoming.payload, |pkey_index, qkey| {
        let managed = &mut *host.managed.lock();
        let port = managed.hca.port(number).ok_or(Discard::PortDown)?;
        qp_accepts(port, pkey_index, qkey, packet)?;
        let index = match qp.kind() {
            Kind::Gsi => find_pkey(port, packet.pkey).unwrap_or(0),
            Kind::Smi | Kind::Ud | Kind::Rc => pkey_index,
        };
        let path_bits = if packet.dlid.is_unicast() {
            port.path_bits(packet.dlid)
        } else {
            0
        };
        managed.stats.delivered(number, packet);
        let (network, route) = header(packet);
        Ok(Meta {
            src_qp,
            slid: packet.slid.get(),
            sl: packet.sl,
            path_bits,
            pkey_index: index,
            immediate: immediate.map(u32::to_be_bytes),
            solicited,
            route,
            network,
        })
    });
    let reason = match received {
        Ok(()) => return,
        Err(Refused::Driver(reason)) => return host.discard(number, reason, packet),
        Err(Refused::State) => return host.discard(number, Discard::NoQp, packet),
        Err(Refused::NoRequest) => Discard::NoReceive,
        Err(Refused::TooLong) => Discard::ShortBuffer,
        Err(Refused::Protection) => {
            // The receiver has been told; its sends fail, too.
            host.mark(qp);
            Discard::Protection
        }
        // It was cut off on the wire.
        Err(Refused::Payload) => Discard::Protection,
    };
    // The queue pair had accepted it.
    host.take_back(number, reason, packet);
}

/// Returns the bytes that a receive request gets in front of a datagram: a global route header, or an IP header of the
/// version returned with it.
fn header(packet: &Packet) -> (Option<Network>, Option<[u8; Grh::LEN]>) {
    let Some(grh) = &packet.grh else {
        return (None, None);
    };
    let following = packet.transport_bytes() as u16;
    if packet.is_ethernet() {
        let header = roce::Header::new(grh, following);
        (Some(header.network), Some(header.bytes))
    } else {
        (None, Some(grh.write(following)))
    }
}

/// Maps an event of the fabric to RDMA core's.
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
