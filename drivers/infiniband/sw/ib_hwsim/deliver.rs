// SPDX-License-Identifier: GPL-2.0

//! Delivery of datagrams that come to a port, to the receive requests that take them.

use ib_fabric::roce::{self, Network};
use ib_fabric::ud::qp_accepts;
use ib_fabric::{Discard, Gid, Grh, PKey, Packet, Port, Transport};
use kernel::sync::Arc;
use rdma_provider::{GlobalRoute, Kind, Meta, Payload, Qp, Refused, Wakeups};

use crate::host::Host;

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

    /// One that a queue pair, or an agent, of the adapter has sent.
    pub(crate) fn own(
        sender: Option<&'a Qp>,
        port: u8,
        packet: &'a Packet,
        payload: &'a Payload<'a>,
    ) -> Self {
        Self {
            origin: Origin::Own(sender),
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
            host.managed.lock().stats.of(port).copied(packet, receivers);
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
            Kind::Gsi => port.find_pkey(PKey::new(packet.pkey)).unwrap_or(0),
            Kind::Smi | Kind::Ud | Kind::Rc => pkey_index,
        };
        let path_bits = if packet.dlid.is_unicast() {
            port.path_bits(packet.dlid)
        } else {
            0
        };
        managed.stats.of(number).delivered(packet);
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
