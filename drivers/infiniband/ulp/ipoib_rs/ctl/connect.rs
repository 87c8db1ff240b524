// SPDX-License-Identifier: GPL-2.0

//! Making connections: the work item that asks for them, events of the CM, and requests of others.

use ipoib_netdev::clock::now_ms;
use ipoib_netdev::device::{Device, OwnedDevice};
use ipoib_netdev::netdev_log;
use ipoib_proto::admission::Origin;
use ipoib_proto::cm::{linux_service_id, rfc_service_id, PrivateData, Refusal};
use ipoib_proto::connection::End;
use ipoib_proto::drop::DropReason;
use ipoib_proto::gid::Gid;
use ipoib_proto::hwaddr::{Flags, HwAddr};
use ipoib_proto::pkey::PKey;
use ipoib_rdma::{
    Ah, CmEvent, CmHandler, CmId, CmTimeouts, Incoming, Listen, RejectReason, Request,
};
use kernel::prelude::*;
use kernel::sync::atomic::Relaxed;
use kernel::sync::Arc;

use crate::base::interface::Interface;
use crate::base::work::Work;
use crate::ctl::disconnect;
use crate::data::tx::Tx;
use crate::data::{completions, rx};
use crate::rc::admission::{self, Admitted};
use crate::rc::conn::{Cause, Conn, ConnId};
use crate::rc::context::{Negotiated, RcContext};
use crate::rc::table::{Found, Job, Place, Wanted};
use crate::rc::window::Window;
use crate::ud::ring::path_mtu;
use crate::ud::unanswered::answer_some;

/// The work item.
///
/// # Context
///
/// Process context; sleeps.
pub(crate) fn run(dev: &Device<Interface>) {
    answer_too_big(dev);
    // Whoever sets it queues us again.
    while !dev.data().pausing.load(Relaxed) {
        let now = now_ms();
        let (job, rc_context) = {
            let mut guard = dev.lock_tx();
            let Some(tx) = guard.as_mut() else {
                return;
            };
            tx.service(dev);
            tx.give_up_stuck(dev, now);
            let Some(job) = tx.next_job(now) else {
                return;
            };
            let Some(rc) = &tx.rc else {
                return;
            };
            (job, rc.connections.rc_context.clone())
        };
        match job {
            Job::Ask(wanted, window) => ask(dev, &rc_context, &wanted, window),
            Job::End(ended) => disconnect::end(dev, ended),
            Job::Wait(None) => return,
            Job::Wait(Some(wait)) => {
                let wait = u32::try_from(wait).unwrap_or(u32::MAX);
                return Interface::queue(dev, Work::Connections, wait.max(1));
            }
        }
    }
}

/// Answers the packets that were too big for their peers, or for the paths to them. Those that come meanwhile have the work
/// item woken again, and it has other things to do.
///
/// # Context
///
/// Process context.
pub(super) fn answer_too_big(dev: &Device<Interface>) {
    answer_some(
        || dev.lock_tx().as_mut()?.ud.ring.next_too_big(),
        |(skb, mtu)| {
            let counters = &dev.data().get_ref().counters;
            counters.dropped(dev, DropReason::TooBig, 1, skb.len());
            skb.answer_too_big(dev, mtu);
        },
    );
}

/// Asks a peer for a connection.
fn ask(dev: &Device<Interface>, rc_context: &Arc<RcContext>, wanted: &Wanted, window: Window) {
    let address = &wanted.address;
    let connected = &dev.data().get_ref().counters.connected;
    let path = dev
        .lock_tx()
        .as_ref()
        .and_then(|tx| tx.ud.destinations.handle(address));
    let made = path
        .ok_or(EHOSTUNREACH)
        .and_then(|path| Ok((make(dev, rc_context, wanted, window, &path)?, path)));
    let (rc, path) = match made {
        Ok(made) => made,
        Err(error) => {
            let mut guard = dev.lock_tx();
            let tx = guard.as_mut();
            let failed = tx.is_none_or(|tx| tx.not_asked(dev, wanted, error, now_ms()));
            drop(guard);
            if failed {
                log(dev, address, error);
                connected.failed.add_shared(1);
            }
            return;
        }
    };
    // The answer may come before the call returns, and has to find it.
    {
        let mut guard = dev.lock_tx();
        let Some(tx) = guard.as_mut() else {
            return;
        };
        if !tx.asked(&rc, wanted.ticket, now_ms()) {
            return;
        }
    }
    let sent = request(rc_context, &rc, &path, *address);
    match sent {
        Ok(()) => connected.requests_sent.add_shared(1),
        Err(error) => {
            log(dev, address, error);
            connected.failed.add_shared(1);
            rc.id.give_up();
        }
    }
}

fn log(dev: &Device<Interface>, address: &HwAddr, error: Error) {
    netdev_log!(
        dev,
        Info,
        limited,
        "cannot ask {} {} for a connection: {error:?}\n",
        address.gid(),
        address.qpn()
    );
}

fn make(
    dev: &Device<Interface>,
    rc_context: &Arc<RcContext>,
    wanted: &Wanted,
    window: Window,
    path: &Ah,
) -> Result<Arc<Conn>> {
    let id = Arc::new(
        ConnId {
            dev: dev.get_typed(),
            rc_context: rc_context.clone(),
            peer: wanted.address.with_flags(Flags::NONE),
            number: wanted.number,
            origin: None,
            // A path is narrower where a switch is.
            ib_mtu: path_mtu(path).map_or(rc_context.ib_mtu, |mtu| mtu.min(rc_context.ib_mtu)),
        },
        GFP_KERNEL,
    )?;
    Conn::new(rc_context, id, window, |id| CmId::new(&rc_context.pd, id))
}

fn request(rc_context: &RcContext, rc: &Conn, path: &Ah, address: HwAddr) -> Result {
    let extended = rc_context.settings.extensions();
    let data = rc_context.private_data(0, rc.id.number, extended);
    let (bytes, len) = data.encode();
    // One of ours listens to both; everybody else has what Linux has, or follows the RFC.
    let service_id = linux_service_id(address.qpn());
    rc.cm.request(
        rc.qp(),
        &Request {
            path,
            service_id,
            pkey: rc_context.pkey.get(),
            mtu: rc.id.ib_mtu,
            timeouts: CmTimeouts::default(),
            private_data: bytes.get(..len).unwrap_or(&[]),
        },
    )
}

/// Brings the queue pair up, once the CM knows the other end's, and lets frames be sent and received.
///
/// # Errors
///
/// Those of the device; `ENETDOWN`; `ENOSPC` if there are too many, or they have all buffers.
///
/// # Context
///
/// Process context; sleeps.
fn bring_up(rc: &Arc<Conn>, terms: &Negotiated) -> Result {
    rc.flow.begin(terms.credits, rc.window.width);
    let lid = rc.cm.ready(rc.qp())?;
    // Before the other end is told, and sends: what came now would find nobody.
    let (learned, extended) = (rc.clone(), terms.extended);
    rx::ask(&rc.id.dev, |poll| {
        let connections = poll.connections().ok_or(ENETDOWN)?;
        connections.learn(learned, lid, extended)
    })??;
    let sends = rc.clone();
    completions::ask(&rc.id.dev, |poll| poll.learn(sends))?
}

impl ConnId {
    /// The connection of this CM ID, unless it was given up.
    fn find(&self) -> Option<Found> {
        let guard = self.dev.lock_tx();
        guard.as_ref()?.rc.as_ref()?.connections.find(self)
    }

    /// Ends the connection in the table.
    fn ended(&self, found: &Found, end: End, cause: Cause) {
        if let Some(tx) = self.dev.lock_tx().as_mut() {
            tx.connection_ended(&self.dev, found, end, cause);
        }
    }

    /// Ends it, unless somebody has ended it already.
    fn give_up(&self) {
        if let Some(found) = self.find() {
            self.ended(&found, found.end(), Cause::Broken);
        }
    }

    /// Our request was accepted.
    fn accepted(&self, found: &Found, data: &[u8]) -> Result {
        let rc = &found.rc;
        let Place::Channel(ticket) = found.place else {
            return Err(EINVAL);
        };
        let data = PrivateData::parse(data).map_err(|_| EPROTO)?;
        if data.qpn != self.peer.qpn() {
            // Somebody else answers.
            return Err(EPROTO);
        }
        let terms = self.rc_context.terms(&data);
        if terms.extended && terms.credits == 0 {
            // Nothing could ever be sent by it.
            return Err(EPROTO);
        }
        bring_up(rc, &terms)?;
        rc.cm.confirm()?;
        let mut guard = self.dev.lock_tx();
        let tx = guard.as_mut().ok_or(ENETDOWN)?;
        tx.connection_up(&self.dev, self, ticket, terms)
    }

    /// Ends a connection that the peer has accepted.
    fn not_usable(&self, found: &Found, error: Error) {
        // It may have ended before the polls were told of it.
        rx::forget(&self.dev, &found.rc);
        completions::forget(&self.dev, &found.rc);
        // It was given up.
        if self.find().is_none() {
            return;
        }
        let refusal = Refusal::Data.encode(self.rc_context.qpn);
        let _ = found.rc.cm.reject(RejectReason::ConsumerDefined, &refusal);
        netdev_log!(
            &self.dev,
            Info,
            limited,
            "connection not usable: {error:?}\n"
        );
        self.counters().failed.add_shared(1);
        self.ended(found, found.end(), Cause::Broken);
    }

    /// The peer does not take our request, or our answer to its own.
    fn failed(&self, found: &Found, what: &str) {
        self.counters().failed.add_shared(1);
        if self.origin.is_none() {
            netdev_log!(
                &self.dev,
                Info,
                limited,
                "connection to {} {}: {what}, frames go by UD\n",
                self.peer.gid(),
                self.peer.qpn()
            );
        }
        self.ended(found, found.end(), Cause::Broken);
    }
}

impl CmHandler for ConnId {
    fn event(&self, event: CmEvent<'_>) {
        // One that was given up is on its way to be destroyed, which says all that there is to say.
        let Some(found) = self.find() else {
            return;
        };
        match event {
            CmEvent::Accepted { private_data } => {
                if let Err(error) = self.accepted(&found, private_data) {
                    self.not_usable(&found, error);
                }
            }
            CmEvent::Confirmed => {
                if let Some(tx) = self.dev.lock_tx().as_mut() {
                    tx.confirmed(&found);
                }
            }
            CmEvent::Rejected { .. } => self.failed(&found, "refused"),
            CmEvent::NoAnswer => self.failed(&found, "no answer"),
            CmEvent::Disconnected => self.ended(&found, found.closed(), Cause::Disconnected),
            CmEvent::Over => self.ended(&found, found.end(), Cause::Broken),
        }
        // It counts those that are up, looks when they will have been idle for too long, and ends others.
        Interface::queue(&self.dev, Work::Connections, 0);
    }
}

/// The services of an interface.
pub(crate) fn services(rc_context: &RcContext) -> [u64; 2] {
    [
        linux_service_id(rc_context.qpn),
        rfc_service_id(rc_context.qpn),
    ]
}

/// Answers those who ask for a connection.
pub(crate) struct ConnListener {
    pub(crate) dev: OwnedDevice<Interface>,
    pub(crate) rc_context: Arc<RcContext>,
    pub(crate) port: u32,
}

impl ConnListener {
    /// Looks at a request: whose it is, and what its end can do.
    fn examine(&self, incoming: &Incoming<'_>) -> Result<admission::Request, Refusal> {
        let rc_context = &self.rc_context;
        let pkey = PKey::new(incoming.pkey()).map(PKey::to_full);
        if pkey != Some(rc_context.pkey) || !incoming.is_rc() {
            return Err(Refusal::Partition);
        }
        // On InfiniBand the service is this queue pair's, and its GID may have been another one before.
        let is_ours = self.dev.data().get_ref().port.is_infiniband()
            || incoming.local_gid() == rc_context.gid.0;
        if !is_ours || incoming.port() != self.port {
            return Err(Refusal::Gid);
        }
        // Packets that our port would not take.
        if incoming.mtu().is_none_or(|mtu| mtu > rc_context.ib_mtu) {
            return Err(Refusal::Data);
        }
        let data = PrivateData::parse(incoming.private_data())?;
        let peer = HwAddr::new(Flags::NONE, data.qpn, Gid(incoming.remote_gid()));
        let own = HwAddr::new(Flags::NONE, rc_context.qpn, rc_context.gid);
        if !peer.is_unicast() || peer == own {
            return Err(Refusal::Data);
        }
        let by_mac = incoming
            .remote_mac()
            .map_or(Origin::Gid(peer.gid()), Origin::Mac);
        let origin = incoming.remote_lid().map_or(by_mac, Origin::Lid);
        Ok(admission::Request { peer, origin, data })
    }

    /// Admits a request.
    fn admit(&self, request: &admission::Request) -> Result<Admitted, Refusal> {
        let mut guard = self.dev.lock_tx();
        let connections = guard.as_mut().and_then(Tx::connections);
        let connections = connections.ok_or(Refusal::Closed)?;
        let admitted = connections.admit(request, now_ms());
        if connections.ended.has_new() {
            // A connection was ended to make room.
            Interface::queue(&self.dev, Work::Connections, 0);
        }
        admitted
    }

    fn count_refused(&self, refusal: Refusal) {
        let counters = &self.dev.data().get_ref().counters.connected;
        counters.refused.add_shared(1);
        let reason = match refusal {
            Refusal::Closed => &counters.refused_closed,
            Refusal::Full => &counters.refused_full,
            Refusal::Partition => &counters.refused_pkey,
            Refusal::Gid => &counters.refused_gid,
            Refusal::Data => &counters.refused_data,
        };
        reason.add_shared(1);
    }

    /// Accepts it, or ends what it became and says why it was refused.
    ///
    /// # Errors
    ///
    /// No connection could be made, and the peer has no answer.
    fn accept(
        &self,
        incoming: Incoming<'_>,
        request: admission::Request,
        window: Window,
        terms: &Negotiated,
    ) -> Result<Option<Refusal>> {
        let admission::Request { peer, origin, data } = request;
        let rc_context = &self.rc_context;
        let number = data.extension.map_or(0, |extension| extension.channel);
        let id = Arc::new(
            ConnId {
                dev: self.dev.get_typed(),
                rc_context: rc_context.clone(),
                peer,
                number,
                origin: Some(origin),
                ib_mtu: incoming.mtu().unwrap_or(rc_context.ib_mtu),
            },
            GFP_KERNEL,
        )?;
        let rc = Conn::new(rc_context, id, window, |id| incoming.take(id))?;
        if let Err(refusal) = self.list(&rc, terms) {
            let data = refusal.encode(rc_context.qpn);
            let _ = rc.cm.reject(RejectReason::ConsumerDefined, &data);
            if let Some(connections) = self.dev.lock_tx().as_mut().and_then(Tx::connections) {
                connections.end(rc, Cause::Closed);
            }
            return Ok(Some(refusal));
        }
        if let Err(error) = self.reply(&rc, terms.extended) {
            self.log(&peer, error);
            rc.id.give_up();
        }
        Ok(None)
    }

    /// Puts it into the table.
    fn list(&self, rc: &Arc<Conn>, terms: &Negotiated) -> Result<(), Refusal> {
        bring_up(rc, terms).map_err(|error| {
            self.log(&rc.id.peer, error);
            Refusal::Full
        })?;
        let mut guard = self.dev.lock_tx();
        let connections = guard.as_mut().and_then(Tx::connections);
        let connections = connections.ok_or(Refusal::Closed)?;
        connections.accepted(rc.clone(), now_ms())
    }

    fn reply(&self, rc: &Conn, extended: bool) -> Result {
        let (width, number) = (rc.window.width, rc.id.number);
        let data = self.rc_context.private_data(width, number, extended);
        let (bytes, len) = data.encode();
        rc.cm.accept(rc.qp(), bytes.get(..len).unwrap_or(&[]))
    }

    fn log(&self, peer: &HwAddr, error: Error) {
        netdev_log!(
            &self.dev,
            Info,
            limited,
            "cannot accept a connection from {} {}: {error:?}\n",
            peer.gid(),
            peer.qpn()
        );
    }
}

impl Listen for ConnListener {
    fn request(&self, incoming: Incoming<'_>) {
        let counters = &self.dev.data().get_ref().counters.connected;
        counters.requests_received.add_shared(1);
        let admitted = self.examine(&incoming).and_then(|request| {
            let admitted = self.admit(&request)?;
            Ok((request, admitted))
        });
        let (request, admitted) = match admitted {
            Ok(admitted) => admitted,
            Err(refusal) => {
                self.count_refused(refusal);
                let data = refusal.encode(self.rc_context.qpn);
                return incoming.reject(RejectReason::ConsumerDefined, &data);
            }
        };
        let Admitted {
            window,
            terms,
            may_evict,
        } = admitted;
        let peer = request.peer;
        match self.accept(incoming, request, window, &terms) {
            Ok(None) => counters.accepted.add_shared(1),
            Ok(Some(refusal)) => self.count_refused(refusal),
            Err(error) => {
                self.log(&peer, error);
                self.count_refused(Refusal::Full);
                let mut guard = self.dev.lock_tx();
                let connections = guard.as_mut().and_then(Tx::connections);
                if let Some(connections) = connections.filter(|_| may_evict) {
                    // The peer asks again.
                    let _ = connections.make_room_on_device(error, now_ms());
                }
            }
        }
        // It looks after what was accepted, and ends what was not.
        Interface::queue(&self.dev, Work::Connections, 0);
    }
}
