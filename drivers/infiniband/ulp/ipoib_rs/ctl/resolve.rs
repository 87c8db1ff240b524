// SPDX-License-Identifier: GPL-2.0

//! The work item that resolves paths, and joins and leaves groups. It collects jobs under the transmit lock,
//! does them without it and brings back the answers.

use ipoib_netdev::clock::now_ms;
use ipoib_netdev::device::Device;
use ipoib_netdev::netdev_log;
use ipoib_proto::hwaddr::HwAddr;
use ipoib_proto::mgid::Mgid;
use ipoib_proto::multicast;
use ipoib_proto::ticket::Ticket;
use ipoib_rdma::{mcast, Ah};
use kernel::prelude::*;
use kernel::sync::atomic::Relaxed;
use kernel::sync::Arc;

use crate::base::interface::{Interface, Work};
use crate::ctl::changes;
use crate::ud::endpoint::Endpoint;
use crate::ud::paths::{Job, Jobs};

/// Multicast LIDs belong to InfiniBand.
const ROCE_MLID: u16 = 0;
/// How long the stack may take to notice a carrier, in milliseconds, before it is asked to send by it.
const ANNOUNCE_MS: u32 = 50;

/// Advances all destinations.
///
/// # Context
///
/// Process context; sleeps.
pub(crate) fn run(dev: &Device<Interface>) {
    // Whoever sets it queues us again.
    while !dev.data().pausing.load(Relaxed) {
        let mut jobs = Jobs::new();
        let (endpoint, wait, refused) = {
            let mut guard = dev.lock_tx();
            let Some(tx) = guard.as_mut() else {
                return;
            };
            let now = now_ms();
            let next = tx.ud.advance(dev, now, &mut jobs);
            (
                tx.endpoint.clone(),
                next.saturating_sub(now),
                tx.ud.destinations.needs_sync(),
            )
        };
        if jobs.is_empty() {
            if refused && !changes::want_groups(dev) {
                // There is room now.
                continue;
            }
            if let Ok(wait) = u32::try_from(wait) {
                Interface::queue(dev, Work::Paths, wait.max(1));
            }
            return;
        }
        for job in jobs.into_iter() {
            if dev.lock_tx().is_none() {
                // The interface is going down, and waits for us.
                return;
            }
            match job {
                Job::Resolve(address, ticket) => resolve(dev, &endpoint, address, ticket),
                Job::Attach(mgid, kind, ticket) => attach(dev, &endpoint, &mgid, kind, ticket),
                Job::Detach(mgid, kind) => {
                    if mgid.is_broadcast() {
                        dev.set_carrier(false);
                    }
                    if kind == multicast::Membership::Full {
                        dev.data().groups.lock().leave(mgid);
                    }
                }
            }
        }
    }
}

fn resolve(dev: &Device<Interface>, endpoint: &Endpoint, address: HwAddr, ticket: Ticket) {
    let slow = &dev.data().get_ref().counters.slow;
    let made = endpoint.address_handle(&address);
    if let Err(error) = &made {
        slow.paths_failed.add(1);
        netdev_log!(
            dev,
            Warn,
            limited,
            "no path to {}: {error:?}\n",
            address.gid()
        );
    } else {
        slow.paths_resolved.add(1);
    }
    if let Some(tx) = dev.lock_tx().as_mut() {
        if made.is_ok() && tx.rc.is_some() {
            Interface::queue(dev, Work::Connections, 0);
        }
        tx.ud
            .destinations
            .resolved(&address, ticket, made, now_ms());
    }
}

fn attach(
    dev: &Device<Interface>,
    endpoint: &Endpoint,
    mgid: &Mgid,
    kind: multicast::Membership,
    ticket: Ticket,
) {
    let this = dev.data().get_ref();
    let made = join(this, endpoint, mgid, kind);
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
    let ready = {
        let mut guard = dev.lock_tx();
        let Some(tx) = guard.as_mut() else {
            return;
        };
        let destinations = &mut tx.ud.destinations;
        destinations.attached(mgid, ticket, made, now_ms());
        destinations.is_ready()
    };
    // Not under the transmit lock: it tells the stack, which takes locks of its own. If the
    // interface goes down meanwhile, `stop` waits for us and takes the carrier off again.
    if mgid.is_broadcast() {
        dev.set_carrier(ready);
        if ready && this.moved.load(Relaxed) {
            // Once the stack has noticed, too.
            this.port.refresh(ANNOUNCE_MS);
        }
    }
}

/// Joins a group; sending to it needs no more than an address handle.
fn join(
    this: &Interface,
    endpoint: &Endpoint,
    mgid: &Mgid,
    kind: multicast::Membership,
) -> Result<Arc<Ah>> {
    let ah = endpoint.address_handle(&mgid.to_hwaddr())?;
    if kind == multicast::Membership::Full {
        let gid = mgid.gid().0;
        let foreign = this.umcast.load(Relaxed)
            && !mgid.is_broadcast()
            && mcast::is_joined_on_netdev(endpoint.port.device(), endpoint.port.number(), &gid);
        if !foreign {
            let membership = mcast::Membership::join(&endpoint.qp, gid, ROCE_MLID)?;
            this.groups.lock().joined(*mgid, membership)?;
        }
    }
    Ok(ah)
}
