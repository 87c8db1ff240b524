// SPDX-License-Identifier: GPL-2.0

//! The work item that makes and ends connections, and answers those whose packets are too big.

use ipoib_netdev::clock::now_ms;
use ipoib_netdev::device::Device;
use ipoib_netdev::netdev_log;
use ipoib_proto::cm::{linux_service_id, rfc_service_id};
use ipoib_proto::drop::DropReason;
use ipoib_proto::ending::{Ending, Step};
use ipoib_proto::hwaddr::{Flags, HwAddr};
use ipoib_proto::queue::Waiting;
use ipoib_proto::subnet;
use ipoib_rdma::{Ah, CmId, CmTimeouts, Request, Route};
use kernel::prelude::*;
use kernel::sync::atomic::Relaxed;
use kernel::sync::Arc;

use crate::base::interface::Interface;
use crate::base::work::Work;
use crate::ctl::cm;
use crate::data::rx;
use crate::rc::conn::{Conn, ConnId, Role, Room};
use crate::rc::context::RcContext;
use crate::rc::table::{Ended, Job, Wanted};

/// How often the receive poll is asked in a row whether it has taken all: three times will do unless it is busy.
const ASKS: u32 = 4;

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
            (job, rc.connections.rc_context().clone())
        };
        match job {
            Job::Ask(wanted, room) => ask(dev, &rc_context, &wanted, room),
            Job::End(ended) => end(dev, ended),
            Job::Wait(None) => return,
            Job::Wait(Some(wait)) => {
                let wait = u32::try_from(wait).unwrap_or(u32::MAX);
                return Interface::queue(dev, Work::Connections, wait.max(1));
            }
        }
    }
}

/// Goes on to end a connection.
fn end(dev: &Device<Interface>, mut ended: Ended) {
    if ended.ending.is_none() {
        begin_to_end(dev, &ended.rc);
    }
    let now = now_ms();
    let ending = ended.ending.get_or_insert(Ending::new(now));
    let wait = go_on_to_end(dev, &ended.rc, ending, now);
    // The device does not give its frames back. If it does not forget them either, the ring holds the queue
    // pair until it is made anew.
    let kept = wait.is_none() && ended.rc.lane.in_flight() > 0;
    let stays = kept && ended.rc.qp().to_reset().is_err();
    if let Some(tx) = dev.lock_tx().as_mut() {
        if wait.is_some() && ended.rc.lane.in_flight() > 0 {
            // bnxt_re flushes a queue pair as its completion queue is polled, and announces nothing.
            tx.ud.ring.wake_completions();
        }
        match (wait, tx.connections()) {
            (Some(wait), Some(connections)) => {
                // Asking may have taken longer than that, and others have their turn.
                connections.keep_ending(ended, now_ms().saturating_add(wait));
            }
            _ => tx.connection_over(&ended.rc),
        }
    }
    if stays {
        Interface::restart_soon(dev);
    }
}

/// Begins to end it: the peer is told, what was sent comes back, what was received is passed up.
///
/// # Context
///
/// Process context; sleeps. Nobody sends by it any more.
fn begin_to_end(dev: &Device<Interface>, rc: &Conn) {
    // One that was not established, or that the peer has ended, needs no more.
    let _ = rc.cm.disconnect();
    if let Err(error) = rc.qp().to_error() {
        netdev_log!(dev, Warn, "connection does not end: {error:?}\n");
    }
}

/// Goes on to end it, and says when there is more to do for that. None: it is over.
///
/// # Context
///
/// Process context; sleeps while the receive poll is asked.
fn go_on_to_end(dev: &Device<Interface>, rc: &Conn, ending: &mut Ending, now: u64) -> Option<u64> {
    let qp = rc.qp();
    let may_receive = qp.may_receive();
    let mut step = ending.step(now, rc.lane.in_flight() > 0 || may_receive);
    if may_receive && step == Step::Ask {
        // It has had its time.
        qp.give_up_report();
    }
    for _ in 0..ASKS {
        if step != Step::Ask {
            break;
        }
        let Ok(Some(left)) = rx::ask(dev, |poll| Some(poll.connections()?.left(qp.key()))) else {
            step = Step::Over;
            break;
        };
        step = ending.looked(now, left.passes, left.held);
    }
    match step {
        Step::Wait(ms) => return Some(ms),
        // Others keep the poll busy.
        Step::Ask => return Some(ending.pause(now)),
        Step::Over => {}
    }
    rx::forget(dev, rc);
    None
}

/// Asks a peer for a connection.
fn ask(dev: &Device<Interface>, rc_context: &Arc<RcContext>, wanted: &Wanted, room: Room) {
    let (width, address) = (room.width, &wanted.address);
    let connected = &dev.data().get_ref().counters.connected;
    let path = dev
        .lock_tx()
        .as_ref()
        .and_then(|tx| tx.ud.destinations.handle(address));
    let made = path
        .ok_or(EHOSTUNREACH)
        .and_then(|path| Ok((make(dev, rc_context, wanted, room, &path)?, path)));
    let (rc, path) = match made {
        Ok(made) => made,
        Err(error) => {
            log(dev, address, error);
            connected.failed.add_shared(1);
            if let Some(tx) = dev.lock_tx().as_mut() {
                tx.not_asked(dev, wanted, width, now_ms());
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
            cm::give_up(&rc.id);
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
    room: Room,
    path: &Ah,
) -> Result<Arc<Conn>> {
    let id = Arc::new(
        ConnId {
            dev: dev.get_typed(),
            rc_context: rc_context.clone(),
            peer: wanted.address.with_flags(Flags::NONE),
            number: wanted.number,
            origin: None,
            role: Role::Asked,
            ib_mtu: path_mtu(path, rc_context.ib_mtu),
        },
        GFP_KERNEL,
    )?;
    Conn::new(rc_context, id, room, |id| CmId::new(&rc_context.pd, id))
}

/// Bytes in a packet along a path from a port that takes `port` bytes. A path is narrower where a switch is.
fn path_mtu(path: &Ah, port: u32) -> u32 {
    match path.route() {
        Route::Path(record) => {
            subnet::mtu_bytes(record.mtu_code()).map_or(port, |mtu| mtu.min(port))
        }
        Route::Roce { .. } | Route::Group => port,
    }
}

fn request(rc_context: &RcContext, rc: &Conn, path: &Ah, address: HwAddr) -> Result {
    let (bytes, len) = rc_context.private_data(rc.width, rc.id.number).encode();
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

/// The services of an interface.
pub(crate) fn services(rc_context: &RcContext) -> [u64; 2] {
    [
        linux_service_id(rc_context.qpn),
        rfc_service_id(rc_context.qpn),
    ]
}

/// Answers the packets that were too big for their peers.
fn answer_too_big(dev: &Device<Interface>) {
    loop {
        let Some((skb, mtu)) = dev.lock_tx().as_mut().and_then(|tx| tx.too_big.pop()) else {
            return;
        };
        let counters = &dev.data().get_ref().counters;
        counters.dropped(dev, DropReason::TooBig, 1, skb.len());
        skb.answer_too_big(dev, mtu);
    }
}
