// SPDX-License-Identifier: GPL-2.0

//! Ends of jobs of the work item that resolves paths and joins groups: what becomes of a path, of a group, and of the
//! carrier.

use ipoib_netdev::clock::now_ms;
use ipoib_netdev::device::Device;
use ipoib_netdev::netdev_log;
use ipoib_proto::hwaddr::HwAddr;
use ipoib_proto::mgid::Mgid;
use ipoib_proto::ticket::Ticket;
use ipoib_rdma::Ah;
use kernel::prelude::*;
use kernel::sync::atomic::Relaxed;
use kernel::sync::Arc;

use crate::base::interface::Interface;
use crate::base::work::Work;
use crate::ctl::changes;

/// Ends the resolution of a path.
pub(super) fn resolved(
    dev: &Device<Interface>,
    address: HwAddr,
    ticket: Ticket,
    made: Result<Arc<Ah>>,
) {
    let slow = &dev.data().get_ref().counters.slow;
    let error = made.as_ref().err().copied();
    match error {
        Some(_) => slow.paths_failed.add(1),
        None => slow.paths_resolved.add(1),
    }
    let is_usable = dev.lock_tx().as_mut().is_some_and(|tx| {
        if tx.rc.is_some() {
            Interface::queue(dev, Work::Connections, 0);
        }
        tx.ud.resolved(&address, ticket, made, now_ms());
        tx.ud.destinations.handle(&address).is_some()
    });
    if let Some(error) = error.filter(|_| !is_usable) {
        netdev_log!(
            dev,
            Warn,
            limited,
            "no path to {}: {error:?}\n",
            address.gid()
        );
    }
}

/// Ends the joining of a group.
pub(super) fn attached(
    dev: &Device<Interface>,
    mgid: &Mgid,
    ticket: Ticket,
    made: Result<Arc<Ah>>,
) {
    let this = dev.data().get_ref();
    match &made {
        Ok(_) => this.counters.slow.groups_joined.add(1),
        Err(error) => {
            this.counters.slow.groups_failed.add(1);
            netdev_log!(
                dev,
                Warn,
                limited,
                "cannot join {}: {error:?}\n",
                mgid.gid()
            );
        }
    }
    let failed = made.is_err();
    if let Some(tx) = dev.lock_tx().as_mut() {
        tx.ud.destinations.attached(mgid, ticket, made, now_ms());
    }
    // A member that cannot join anew keeps its carrier: peers that it knows need no group.
    if mgid.is_broadcast() && !failed {
        carrier_on(dev);
    }
}

/// Turns the carrier on if frames can be sent and the broadcast group takes packets of the interface's MTU.
pub(super) fn carrier_on(dev: &Device<Interface>) {
    let this = dev.data().get_ref();
    if !changes::is_ready(dev) || !this.suits_group(dev.mtu()) {
        return;
    }
    // Not under the transmit lock: it tells the stack, which takes locks of its own. If the
    // interface goes down meanwhile, `stop` waits for us and takes the carrier off again.
    dev.set_carrier(true);
    if !changes::is_ready(dev) {
        // The port went down meanwhile.
        dev.set_carrier(false);
    }
    // The stack reports when it begins to send; neighbours are told then. To read the port before would not help.
    if this.moved.load(Relaxed) && dev.can_send() {
        // Needs RTNL.
        this.port.refresh(0);
    }
}
