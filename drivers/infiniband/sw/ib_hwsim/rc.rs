// SPDX-License-Identifier: GPL-2.0

//! Delivery of a connection's requests, and of the answers to them.

use ib_fabric::rc::{self, Bth, Response};
use ib_fabric::roce::{self, Ways};
use ib_fabric::{Discard, Gid, Hca, Lid, Packet, Port, Transport};
use kernel::prelude::*;
use kernel::sync::Arc;
use rdma_provider::{now, Arrival, Delivery, Kind, Path, Payload, Qp, Refused, Wakeups};

use crate::capture::Capture;
use crate::deliver::grh;
use crate::host::Host;
use crate::node::{End, Link, NextHop, Node, MAX_HOPS};
use crate::switch::Step;
use crate::trunk::Trunk;

/// Runs that a queue pair sends, or answers, in a row.
const BUDGET: usize = 16;

/// Acts on the deadlines of an adapter's queue pairs that have passed.
pub(crate) fn expire(host: &Host, wakeups: &mut Wakeups) {
    if host.faults.take_late() {
        host.each_qp(|qp| {
            host.deadlines.note(qp);
        });
    }
    let Some(now) = host.deadlines.take_passed() else {
        return;
    };
    host.deadlines.drain(|place| {
        let qp = host.qps.lock().at(place);
        let Some(qp) = qp else {
            return;
        };
        if qp.expire(wakeups, now) {
            host.mark(&qp);
        }
        host.deadlines.note(&qp);
        wakeups.flush_if_many();
    });
}

/// Sends what a connection has to send, answers first, within the budget. True if there is more.
pub(crate) fn drain(host: &Host, qp: &Arc<Qp>, wakeups: &mut Wakeups) -> bool {
    let now = now();
    let mut more = false;
    for _ in 0..BUDGET {
        let response = qp.respond(wakeups);
        more = response.is_some();
        if let Some((path, response)) = response {
            let path = &path;
            answer(Sender { host, qp, path }, &response, now, wakeups);
        }
        wakeups.flush_if_many();
        if !more {
            break;
        }
    }
    let mut rest = true;
    for _ in 0..BUDGET {
        rest = qp.request(wakeups, now, |wakeups, path, bth, payload| {
            Ok(request(
                Sender { host, qp, path },
                bth,
                payload,
                now,
                wakeups,
            ))
        });
        wakeups.flush_if_many();
        if !rest {
            break;
        }
    }
    note_deadline(host, qp);
    more || rest
}

/// Notes the deadline of a queue pair, and has the job of its adapter run then.
fn note_deadline(host: &Host, qp: &Qp) {
    if host.deadlines.note(qp) {
        host.trigger.schedule();
    }
}

/// The end of a connection that sends.
#[derive(Clone, Copy)]
struct Sender<'a> {
    host: &'a Host,
    qp: &'a Arc<Qp>,
    path: &'a Path,
}

/// Carries a request to the other end of a connection.
fn request(
    from: Sender<'_>,
    bth: &Bth,
    payload: &Payload<'_>,
    now: u64,
    wakeups: &mut Wakeups,
) -> Delivery {
    let mut held = false;
    let leave = |exit: &Exit, packet: &Packet| exit.send(0, packet, payload);
    let see = |capture: &Capture, packet: &Packet| capture.take(packet, payload);
    carry(from, bth, see, leave, |there, port, packet, qp| {
        let check = |path: &Path| check(there, port, path, packet);
        let holds = true;
        let arrival = Arrival { now, port, holds };
        let accepted = qp.accept(wakeups, arrival, bth, payload, check)?;
        if accepted.owes {
            there.mark(qp);
        }
        held = accepted.held;
        note_deadline(there, qp);
        Ok(())
    });
    if held {
        Delivery::Held
    } else {
        Delivery::Sent
    }
}

/// Carries an answer to the other end of a connection.
fn answer(from: Sender<'_>, response: &Response, now: u64, wakeups: &mut Wakeups) {
    let own = from.qp;
    let mut unreadable = false;
    let leave = |exit: &Exit, packet: &Packet| {
        let sent = own.with_payload(response, |payload| exit.send(0, packet, payload));
        unreadable = sent.is_none();
        if unreadable {
            exit.lose(packet);
        }
    };
    let see = |capture: &Capture, packet: &Packet| {
        own.with_payload(response, |payload| capture.take(packet, payload));
    };
    carry(
        from,
        &response.bth,
        see,
        leave,
        |there, port, packet, qp| {
            let check = |path: &Path| check(there, port, path, packet);
            let holds = false;
            let arrival = Arrival { now, port, holds };
            let answered = qp.answer(wakeups, arrival, response, own, check)?;
            if answered.ready {
                there.mark(qp);
            }
            if answered.denied {
                own.deny(wakeups, response);
            }
            note_deadline(there, qp);
            Ok(())
        },
    );
    if unreadable {
        own.deny(wakeups, response);
        // The other end gets a NAK.
        from.host.mark(own);
    }
}

/// Takes a packet of a connection, whose sender has gone on or is in another kernel, and which now comes in at `end`,
/// to the queue pair that it is for. It has passed so many cables with faults before.
///
/// # Context
///
/// Softirq, without any lock.
pub(crate) fn enter(
    end: End,
    passed: usize,
    packet: &Packet,
    payload: &Payload<'_>,
    wakeups: &mut Wakeups,
) {
    let Transport::Rc(bth) = &packet.transport else {
        return;
    };
    let (there, port) = match pass_switches(NextHop::End(end), packet) {
        Some(Far::Host(there, port)) => (there, port),
        Some(Far::Exit(exit)) => return exit.send(passed, packet, payload),
        None => return,
    };
    let now = now();
    let see = |capture: &Capture, packet: &Packet| capture.take(packet, payload);
    let arrive = |there: &Host, port, packet: &Packet, qp: &Arc<Qp>| {
        let check = |path: &Path| check(there, port, path, packet);
        // The sender of a request cannot be told to wait.
        let holds = false;
        let arrival = Arrival { now, port, holds };
        let ready = if bth.is_request() {
            qp.accept(wakeups, arrival, bth, payload, check)?.owes
        } else {
            qp.answer_copy(wakeups, arrival, bth, payload, check)?.ready
        };
        if ready {
            there.mark(qp);
        }
        note_deadline(there, qp);
        Ok(())
    };
    deliver(&there, port, Some(&see), packet, arrive);
}

/// Carries a run of packets to the queue pair that it is for, or to the cable that takes copies of them. It is counted
/// and checked at each port, and lost if one does not take it.
fn carry(
    from: Sender<'_>,
    bth: &Bth,
    see: impl Fn(&Capture, &Packet),
    leave: impl FnOnce(&Exit, &Packet),
    arrive: impl FnOnce(&Host, u8, &Packet, &Arc<Qp>) -> Result<(), Refused<Discard>>,
) {
    let Sender { host, qp, path } = from;
    let port = path.to.port;
    let (packet, ahead) = {
        let managed = &mut *host.managed.lock();
        let Some((packet, ours)) = outgoing(&managed.hca, path, bth) else {
            return managed.unsent(port, bth.packets);
        };
        if ours {
            (packet, None)
        } else {
            match managed.leave(port, &packet, Some(qp.number())) {
                Some(way) => (packet, Some(way)),
                None => return,
            }
        }
    };
    if ahead.is_some() && host.capture.is_on() {
        see(&host.capture, &packet);
    }
    match ahead {
        None => deliver(host, port, None, &packet, arrive),
        Some(way) => match pass_switches(way, &packet) {
            Some(Far::Host(there, port)) => deliver(&there, port, Some(&see), &packet, arrive),
            Some(Far::Exit(exit)) => leave(&exit, &packet),
            None => {}
        },
    }
}

/// Shows a capture a run of packets.
type See<'a> = &'a dyn Fn(&Capture, &Packet);

/// Takes a run of packets that came to a port to the queue pair that it is for. If it came by a cable, `wire` shows it
/// to a capture.
fn deliver(
    there: &Host,
    port: u8,
    wire: Option<See<'_>>,
    packet: &Packet,
    arrive: impl FnOnce(&Host, u8, &Packet, &Arc<Qp>) -> Result<(), Refused<Discard>>,
) {
    if !there.admit(port, wire.is_some(), packet) {
        return;
    }
    if let (true, Some(see)) = (there.capture.is_on(), wire) {
        see(&there.capture, packet);
    }
    let qp = there.qps.lock().find(packet.dest_qp, port);
    let taken = match &qp {
        Some(qp) if qp.kind() == Kind::Rc => arrive(there, port, packet, qp),
        _ => Err(Refused::State),
    };
    match taken {
        Ok(()) => {}
        Err(Refused::Driver(reason)) => there.discard(port, reason, packet),
        // It was cut off on the wire, after the queue pair had accepted it.
        Err(Refused::Payload) => there.take_back(port, Discard::Protection, packet),
        Err(_) => there.discard(port, Discard::NoQp, packet),
    }
}

/// A cable that takes copies of packets, which go on later, or elsewhere.
enum Exit {
    /// A cable with faults.
    Impaired(Link),
    /// A cable to another kernel.
    Trunk(Arc<Trunk>),
}

impl Exit {
    /// Sends a run of packets, which has passed so many cables with faults before.
    fn send(&self, passed: usize, packet: &Packet, payload: &Payload<'_>) {
        match self {
            Exit::Impaired(impaired) => impaired.send(passed, packet, payload),
            Exit::Trunk(trunk) => trunk.send(packet, payload),
        }
    }

    /// Counts a run of packets whose payload cannot be read, and that is lost here.
    fn lose(&self, packet: &Packet) {
        match self {
            Exit::Impaired(impaired) => impaired.lose(packet.packets()),
            Exit::Trunk(trunk) => trunk.discard(packet),
        }
    }
}

/// Destination of a run of packets.
enum Far {
    /// An adapter, and the port where they come in.
    Host(Arc<Host>, u8),
    /// A cable that takes copies.
    Exit(Exit),
}

/// Forwards a run of packets through the switches. `None` if it is lost there.
fn pass_switches(mut way: NextHop, packet: &Packet) -> Option<Far> {
    for _ in 0..MAX_HOPS {
        let (switch, port) = match way {
            NextHop::End((Node::Host(host), port)) => return Some(Far::Host(host, port)),
            NextHop::End((Node::Trunk(trunk), _)) => return Some(Far::Exit(Exit::Trunk(trunk))),
            NextHop::End((Node::Switch(switch), port)) => (switch, port),
            NextHop::Impaired(impaired) => return Some(Far::Exit(Exit::Impaired(impaired))),
        };
        match switch.forward(port, packet) {
            Step::Out(next) => way = next,
            Step::Flood(_) | Step::Manage | Step::Drop => return None,
        }
    }
    if let NextHop::End((Node::Switch(switch), port)) = way {
        switch.give_up(port, packet);
    }
    None
}

/// Makes the headers of a run of packets; whether they are for this very port. `None` if it cannot send them.
fn outgoing(hca: &Hca, path: &Path, bth: &Bth) -> Option<(Packet, bool)> {
    let port = hca.port(path.to.port)?;
    let pkey = port
        .pkey(path.pkey_index)
        .filter(|pkey| pkey & 0x7fff != 0)?;
    let grh = match &path.to.route {
        None => None,
        Some(route) => Some(grh(port, route)?),
    };
    let (slid, dlid, ours) = if port.is_ethernet() {
        let Ways { local, wire } = roce::ways(port, grh.as_ref()?);
        if !local && !wire {
            return None;
        }
        (Lid::NONE, Lid::NONE, local)
    } else {
        port.virtual_lane(path.to.sl)?;
        by_lid(port, path)?
    };
    if path.mtu > port.active_mtu().bytes() {
        return None;
    }
    let packet = Packet {
        slid,
        dlid,
        sl: path.to.sl,
        pkey,
        dest_qp: path.remote_qp,
        grh,
        len: bth.bytes.min(path.mtu),
        management: false,
        transport: Transport::Rc(*bth),
    };
    Some((packet, ours))
}

/// LIDs of a packet, and whether it is for this very port. `None` if that cannot send it.
fn by_lid(port: &Port, path: &Path) -> Option<(Lid, Lid, bool)> {
    let dlid = Lid::new(path.to.dlid);
    if !dlid.is_unicast() || !port.lid().is_unicast() {
        return None;
    }
    let ours = port.has_lid(dlid);
    let slid = port.lid_with(path.to.path_bits);
    (ours || port.state().sends(false)).then_some((slid, dlid, ours))
}

/// Checks a packet at the queue pair that has this other end.
fn check(host: &Host, port: u8, path: &Path, packet: &Packet) -> Result<(), Discard> {
    let number = port;
    let managed = &mut *host.managed.lock();
    let port = managed.hca.port(number).ok_or(Discard::PortDown)?;
    let route = path.to.route;
    let peer = rc::Peer {
        lid: Lid::new(path.to.dlid),
        path_bits: path.to.path_bits,
        pkey_index: path.pkey_index,
        route: route.map(|route| (route.sgid_index, Gid::from_bytes(route.dgid))),
    };
    rc::peer::accepts(port, &peer, packet)?;
    managed.stats.of(number).delivered(packet);
    Ok(())
}
