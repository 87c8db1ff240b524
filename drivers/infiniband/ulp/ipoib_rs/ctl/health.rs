// SPDX-License-Identifier: GPL-2.0

//! Work items that look after the send queue of datagrams.

use ipoib_netdev::device::Device;
use ipoib_netdev::netdev_log;
use ipoib_rdma::QpState;
use kernel::sync::atomic::Relaxed;

use crate::base::interface::Interface;
use crate::data::rx;
use crate::rc::rx::RcRx;

/// Brings the QP back to life after a send that failed. Replaces what is broken, and the buffers of connections that
/// are gone. The polls ask again for what the device has refused: receives, or an event.
pub(crate) fn recover(dev: &Device<Interface>) {
    if dev.data().broken.load(Relaxed) {
        return Interface::restart_soon(dev);
    }
    let Some(endpoint) = dev.lock_tx().as_ref().map(|tx| tx.endpoint.clone()) else {
        return;
    };
    match endpoint.qp.state() {
        Ok(QpState::SendError) if endpoint.qp.recover_sqe() == Ok(true) => {
            dev.data().counters.slow.recoveries.add_shared(1);
            netdev_log!(dev, Info, limited, "send queue recovered after an error\n");
        }
        // Soft-RoCE leaves the QP in error whenever the network stack refuses a packet.
        Ok(QpState::SendError | QpState::Error) | Err(_) => return Interface::restart_soon(dev),
        Ok(_) => {}
    }
    if let Some(tx) = dev.lock_tx().as_ref() {
        tx.rx.schedule();
        tx.ud.ring.wake_completions();
    }
    rx::replace(dev, RcRx::replaced_in);
}

/// Looks whether the device sends what it was given. As long as there is room, the queue is not stopped and
/// the stack does not look; but a socket waits for its frame to be sent before it sends that again. Soft-RoCE
/// may miss that it can go on, until it is given more.
pub(crate) fn watch(dev: &Device<Interface>) {
    let found = dev.lock_tx().as_mut().map(|tx| tx.ud.ring.look());
    let Some((done, under_way)) = found else {
        return;
    };
    let stuck = dev.data().watch.lock().look(done, under_way);
    // The stack's watchdog knows nothing of restarts that do not help. But if no datagram is under way, nobody else finds
    // that the queue stays stopped.
    let stopped = dev.data().timed_out.xchg(false, Relaxed) && !under_way;
    if stuck || stopped {
        Interface::restart_stuck(dev);
    }
    if under_way {
        Interface::watch_sends(dev);
    }
}
