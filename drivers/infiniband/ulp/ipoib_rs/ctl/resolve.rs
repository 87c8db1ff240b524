// SPDX-License-Identifier: GPL-2.0

//! The work item that resolves paths, and joins and leaves groups. It collects jobs under the transmit lock,
//! does them without it and brings back the answers.

use ipoib_netdev::clock::now_ms;
use ipoib_netdev::device::Device;
use ipoib_netdev::netdev_log;
use ipoib_proto::mgid::Mgid;
use ipoib_proto::multicast;
use ipoib_rdma::{mcast, Ah};
use kernel::prelude::*;
use kernel::sync::atomic::Relaxed;
use kernel::sync::Arc;

use crate::base::groups::Joined;
use crate::base::interface::Interface;
use crate::base::port::{LinkLayer, REREAD_MS};
use crate::base::work::Work;
use crate::ctl::answers::{attached, carrier_on, resolved};
use crate::ctl::connect::answer_too_big;
use crate::ctl::{changes, subnet};
use crate::ud::endpoint::Endpoint;
use crate::ud::paths::{Job, Jobs};

/// Multicast LIDs belong to InfiniBand.
const ROCE_MLID: u16 = 0;

/// Advances all destinations.
///
/// # Context
///
/// Process context; sleeps.
pub(crate) fn run(dev: &Device<Interface>) {
    let this = dev.data().get_ref();
    // Whoever sets it queues us again.
    while !this.pausing.load(Relaxed) {
        let Some(endpoint) = dev.lock_tx().as_ref().map(|tx| tx.endpoint.clone()) else {
            return;
        };
        subnet::collect(dev, &endpoint);
        let room = this.subnet.lock().room();
        // For one of a group, beside one of a path.
        let has_room = room > 1;
        let mut jobs = Jobs::new(room);
        let (wait, unplaced) = {
            let mut guard = dev.lock_tx();
            let Some(tx) = guard.as_mut() else {
                return;
            };
            let now = now_ms();
            let next = tx.ud.advance(dev, now, &mut jobs);
            (next.saturating_sub(now), tx.ud.destinations.needs_sync())
        };
        answer_too_big(dev);
        if jobs.is_empty() {
            // Leaving a group is a question, too: without room for one, wait for the next answer, which wakes us.
            if unplaced && has_room {
                if !changes::want_groups(dev) {
                    // All have a place, or one that is to be left.
                    continue;
                }
                netdev_log!(
                    dev,
                    Warn,
                    limited,
                    "too many multicast groups: some are not joined\n"
                );
            }
            carrier_on(dev);
            // A group without memory for its place gets another try.
            let wait = if unplaced {
                wait.min(REREAD_MS.into())
            } else {
                wait
            };
            if let Ok(wait) = u32::try_from(wait) {
                if has_room {
                    Interface::queue(dev, Work::Paths, wait.max(1));
                }
            }
            return;
        }
        for job in jobs.into_iter() {
            if dev.lock_tx().is_none() {
                // The interface is going down, and waits for us.
                return;
            }
            carry_out(dev, &endpoint, job);
        }
    }
}

fn carry_out(dev: &Device<Interface>, endpoint: &Endpoint, job: Job) {
    let this = dev.data().get_ref();
    let layer = this.port.layer();
    match job {
        Job::Resolve(address, ticket) => {
            let made = match layer {
                LinkLayer::Roce if !Ah::asks_for(&address.gid().0) => {
                    Some(endpoint.address_handle(&address))
                }
                LinkLayer::Roce => {
                    let asked = subnet::ask_neighbour(this, endpoint, address, ticket);
                    asked.err().map(Err)
                }
                LinkLayer::Infiniband => {
                    subnet::ask(this, endpoint, address, ticket).err().map(Err)
                }
            };
            if let Some(made) = made {
                resolved(dev, address, ticket, made);
            }
        }
        Job::Attach(mgid, kind, ticket) => {
            let made = match layer {
                LinkLayer::Roce => Some(join(this, endpoint, &mgid, kind)),
                LinkLayer::Infiniband => subnet::join(dev, endpoint, mgid, kind, ticket)
                    .err()
                    .map(Err),
            };
            if let Some(made) = made {
                attached(dev, &mgid, ticket, made);
            }
        }
        Job::Detach(mgid, kind) => {
            // On InfiniBand it is joined again at once, as a rule, without anybody noticing.
            if mgid.is_broadcast() && layer == LinkLayer::Roce {
                dev.set_carrier(false);
            }
            if kind == multicast::Membership::Full || layer == LinkLayer::Infiniband {
                this.groups.lock().leave(mgid);
            }
        }
    }
}

/// Joins a group on RoCE; sending to it needs no more than an address handle.
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
            && mcast::has_other_members(endpoint.port.device(), endpoint.port.number(), &gid);
        if !foreign {
            let membership = mcast::Membership::join(&endpoint.qp, gid, ROCE_MLID)?;
            let joined = Joined::new(Some(membership), None);
            this.groups.lock().joined(*mgid, joined)?;
        }
    }
    Ok(ah)
}
