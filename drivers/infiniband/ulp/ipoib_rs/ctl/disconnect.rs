// SPDX-License-Identifier: GPL-2.0

//! Ending connections: what is still to be sent and received before one may be destroyed.

use ipoib_netdev::clock::now_ms;
use ipoib_netdev::device::Device;
use ipoib_netdev::netdev_log;
use ipoib_proto::ending::{Ending, Step};

use crate::base::interface::Interface;
use crate::data::tx::Tx;
use crate::data::{completions, rx};
use crate::rc::conn::Conn;
use crate::rc::ended::Ended;

/// How often the receive poll is asked in a row whether it has taken all: three times will do unless it is busy.
const ASKS: u32 = 4;

/// Goes on to end a connection.
pub(super) fn end(dev: &Device<Interface>, mut ended: Ended) {
    if ended.ending.is_none() {
        begin_to_end(dev, &ended.rc);
    }
    let now = now_ms();
    let ending = ended.ending.get_or_insert(Ending::new(now));
    let wait = go_on_to_end(dev, &ended.rc, ending, now);
    let Some(wait) = wait else {
        return over(dev, ended);
    };
    if let Some(tx) = dev.lock_tx().as_mut() {
        if ended.rc.lane.in_flight() > 0 {
            // bnxt_re flushes a queue pair as its completion queue is polled, and announces nothing.
            tx.ud.ring.wake_completions();
        }
        if let Some(connections) = tx.connections() {
            // Asking may have taken longer than that, and others have their turn.
            connections.keep_ending(ended, now_ms().saturating_add(wait));
        }
    }
}

/// Has everybody forget a connection that is over.
///
/// # Context
///
/// Process context; sleeps.
fn over(dev: &Device<Interface>, ended: Ended) {
    // A device that does not give frames back forgets them as the queue pair is reset.
    if ended.rc.lane.in_flight() > 0 && ended.rc.qp().to_reset().is_err() {
        // They stay in flight until the queues are made anew.
        Interface::restart_soon(dev);
        if let Some(connections) = dev.lock_tx().as_mut().and_then(Tx::connections) {
            connections.keep_ending(ended, now_ms().saturating_add(1_000));
        }
        return;
    }
    completions::forget(dev, &ended.rc);
    ended.rc.trace("over", "gone");
    let mut guard = dev.lock_tx();
    let put_down = guard.as_mut().and_then(|tx| tx.connections()?.put_down());
    drop(guard);
    drop(put_down);
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
