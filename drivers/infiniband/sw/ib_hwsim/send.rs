// SPDX-License-Identifier: GPL-2.0

//! The way of datagrams from a send request to the cable, and to queue pairs of the same port.

use ib_fabric::roce::{self, Ways};
use ib_fabric::{Hca, Lid, Packet, Port, Transport};
use rdma_provider::{Kind, Payload, Qp, Send, Status, Wakeups};

use crate::carry::depart;
use crate::deliver::{arrive, grh, Incoming};
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
        let (packet, mut way) = match outgoing(&managed.hca, qp.kind(), qp.number(), request) {
            Ok(ready) => ready,
            Err(status) => return status,
        };
        // The answer to what takes a port down still leaves by it.
        let last = managed.retrains.contains(port) && packet.management && is_answer(payload);
        way.wire |= last && !way.local;
        if !way.wire && !way.local {
            managed.unsent(port, packet.packets());
        }
        let leaves = way.wire.then(|| managed.leave(port, &packet, None));
        (packet, way.local, leaves.flatten())
    };
    if local {
        arrive(
            host,
            Incoming::own(Some(qp), port, &packet, payload),
            wakeups,
        );
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

/// Returns true if a management datagram answers another one (IB specification, section 13.4.3).
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
        wire: !ours && port.state().sends(management),
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
