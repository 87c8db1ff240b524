// SPDX-License-Identifier: GPL-2.0

//! The InfiniBand link layer: paths and groups are the business of the subnet's administrator (SA), which is asked
//! by the work item of `resolve.rs` and answers later. So is the IP stack for neighbours on RoCE.

use ipoib_netdev::device::{Device, OwnedDevice};
use ipoib_netdev::netdev_log;
use ipoib_proto::gid::Gid;
use ipoib_proto::hwaddr::HwAddr;
use ipoib_proto::mgid::Mgid;
use ipoib_proto::mtu;
use ipoib_proto::multicast::Membership;
use ipoib_proto::qkey::QKey;
use ipoib_proto::subnet::{self, Link};
use ipoib_proto::ticket::Ticket;
use ipoib_rdma::{
    mcast, sa, Ah, GroupRecord, Join, JoinRequest, NeighbourQuery, Notify, PathQuery, PathRecord,
    PathRequest,
};
use kernel::prelude::*;
use kernel::sync::atomic::Relaxed;
use kernel::sync::Arc;

use crate::base::groups::Joined;
use crate::base::interface::Interface;
use crate::base::subnet::{Joining, Question, Way};
use crate::base::work::Work;
use crate::ctl::answers;
use crate::ud::endpoint::Endpoint;
use crate::ud::ring::path_mtu;

/// Time for the SA to answer a question for a path, in milliseconds: that of Linux's C driver; and for a neighbour to
/// answer the IP stack, which is that of the RDMA core.
const QUERY_MS: u32 = 1000;

/// Wakes the work item that is to look at an answer.
pub(super) struct Waker(pub(super) OwnedDevice<Interface>);

impl Notify for Waker {
    fn notify(&self) {
        Interface::queue(&self.0, Work::Paths, 0);
    }
}

/// Asks for the path to a peer.
///
/// # Errors
///
/// Those of asking; there is no answer then.
pub(super) fn ask(
    this: &Interface,
    endpoint: &Endpoint,
    address: HwAddr,
    ticket: Ticket,
) -> Result {
    let mut subnet = this.subnet.lock();
    let request = PathRequest {
        from: &endpoint.gid,
        to: address.gid().0,
        pkey: this.pkey().get(),
        traffic_class: subnet
            .link()
            .map_or(0, |(record, _)| record.traffic_class()),
        timeout_ms: QUERY_MS,
    };
    let query = PathQuery::new(&request, endpoint.notify.clone())?;
    subnet.asked(address, ticket, Question::Path(query))
}

/// Asks for the neighbour on RoCE that has the GID of a peer.
///
/// # Errors
///
/// Those of asking; there is no answer then.
pub(super) fn ask_neighbour(
    this: &Interface,
    endpoint: &Endpoint,
    address: HwAddr,
    ticket: Ticket,
) -> Result {
    let (gid, notify) = (address.gid().0, endpoint.notify.clone());
    let query = NeighbourQuery::new(&endpoint.gid, gid, QUERY_MS, notify)?;
    let mut subnet = this.subnet.lock();
    subnet.asked(address, ticket, Question::Neighbour(query))
}

/// Asks to join a group.
///
/// # Errors
///
/// Those of asking; there is no answer then.
pub(super) fn join(
    dev: &Device<Interface>,
    endpoint: &Endpoint,
    mgid: Mgid,
    kind: Membership,
    ticket: Ticket,
) -> Result {
    let this = dev.data().get_ref();
    let (member, gid) = (&endpoint.member, mgid.gid().0);
    // Where user space receives, we send only.
    let foreign = this.umcast.load(Relaxed)
        && !mgid.is_broadcast()
        && sa::has_other_members(member, &gid, dev);
    let receives = kind == Membership::Full && !foreign;
    let mut subnet = this.subnet.lock();
    // The others have its properties (RFC 4391, section 10).
    let like = subnet.link().filter(|_| !mgid.is_broadcast());
    let request = JoinRequest {
        from: member,
        mgid: gid,
        pkey: this.pkey().get(),
        receives,
        interface: dev,
        like: like.map(|(record, _)| record),
    };
    let client = &this.port.shared().sa;
    let join = Join::new(client, &request, endpoint.notify.clone())?;
    subnet.joining(Joining {
        mgid,
        receives,
        ticket,
        join,
    })
}

/// Takes what the SA and the IP stack have answered, and notes which groups the SA has forgotten.
///
/// # Context
///
/// The work item; sleeps.
pub(super) fn collect(dev: &Device<Interface>, endpoint: &Endpoint) {
    let this = dev.data().get_ref();
    // A task that takes the interface down, or replaces its rings, waits for this work item with RTNL held.
    while !this.pausing.load(Relaxed) && dev.lock_tx().is_some() {
        let answered = this.subnet.lock().next_path();
        let Some((address, ticket, way)) = answered else {
            break;
        };
        let made = way.and_then(|way| match way {
            Way::Path(record) => along(dev, endpoint, &address, &record),
            Way::Neighbour => endpoint.address_handle(&address),
        });
        answers::resolved(dev, address, ticket, made);
    }
    loop {
        let answered = this.subnet.lock().next_group();
        let Some((joining, record)) = answered else {
            break;
        };
        let (mgid, ticket) = (joining.mgid, joining.ticket);
        let made = record.and_then(|record| enter(dev, endpoint, joining, &record));
        answers::attached(dev, &mgid, ticket, made);
    }
    loop {
        // The state of a membership is not looked at under the transmit lock.
        let lost = this.groups.lock().take_lost();
        let Some(mgid) = lost else {
            break;
        };
        if let Some(tx) = dev.lock_tx().as_mut() {
            tx.ud.destinations.rejoin_one(&mgid);
        }
    }
}

/// Makes the address handle of a path.
fn along(
    dev: &Device<Interface>,
    endpoint: &Endpoint,
    address: &HwAddr,
    record: &PathRecord,
) -> Result<Arc<Ah>> {
    let this = dev.data().get_ref();
    let mtu = subnet::check_path(record.dlid(), record.mtu_code()).ok_or(EPROTO)?;
    let before = dev
        .lock_tx()
        .as_ref()
        .and_then(|tx| tx.ud.destinations.handle(address));
    let is_known = before.is_some_and(|ah| path_mtu(&ah) == Some(mtu));
    let link = this.subnet.lock().link().map(|(_, link)| link.ib_mtu);
    // RFC 4391, section 7: the group's MTU is one that all paths take.
    if let Some(link) = link.filter(|link| mtu < *link && !is_known) {
        netdev_log!(
            dev,
            Warn,
            limited,
            "the path to {} takes packets of {mtu} bytes, less than the link's {link}: longer multicast is lost\n",
            Gid(record.dgid())
        );
        note_narrow(this);
    }
    Ah::along(&endpoint.pd, &endpoint.gid, record)
}

/// Notes that a path takes less than the link.
fn note_narrow(this: &Interface) {
    if !this.narrow.xchg(true, Relaxed) {
        // For senders to be told, frames have to keep their routes, which needs RTNL.
        this.port.refresh(0);
    }
}

/// Enters a group that the SA has made us a member of.
fn enter(
    dev: &Device<Interface>,
    endpoint: &Endpoint,
    joining: Joining,
    record: &GroupRecord,
) -> Result<Arc<Ah>> {
    let this = dev.data().get_ref();
    let mgid = joining.mgid;
    let checked = subnet::GroupRecord {
        mgid: Gid(record.mgid()),
        mlid: record.mlid(),
        qkey: QKey(record.qkey()),
        mtu_code: record.mtu_code(),
    };
    let known = this.subnet.lock().link().map(|(_, link)| *link);
    let link = checked
        .check(&mgid, known.as_ref().filter(|_| !mgid.is_broadcast()))
        .ok_or(EPROTO)?;
    if mgid.is_broadcast() {
        adopt(dev, endpoint, record, link)?;
    }
    let attached = if joining.receives {
        let joined = mcast::Membership::join(&endpoint.qp, record.mgid(), record.mlid())?;
        Some(joined)
    } else {
        None
    };
    let ah = Ah::of_group(&endpoint.pd, &endpoint.gid, record)?;
    let joined = Joined::new(attached, Some(joining.join));
    this.groups.lock().joined(mgid, joined)?;
    Ok(ah)
}

/// Takes the link's properties over from the broadcast group (RFC 4391, section 5).
fn adopt(dev: &Device<Interface>, endpoint: &Endpoint, record: &GroupRecord, link: Link) -> Result {
    let this = dev.data().get_ref();
    if this.qkey() != link.qkey {
        endpoint.qp.set_qkey(link.qkey.0)?;
        this.set_qkey(link.qkey);
        netdev_log!(
            dev,
            Info,
            "Q_Key {:#010x}, IB MTU {} by the broadcast group\n",
            link.qkey.0,
            link.ib_mtu
        );
    }
    let limit = mtu::ip_mtu(link.ib_mtu);
    if let Some(tx) = dev.lock_tx().as_mut() {
        tx.ud.ring.set_qkey(link.qkey.0);
        // The interface's MTU follows later, since that takes RTNL.
        tx.ud.ring.reduce_mtu(limit);
        if tx.ud.destinations.narrowest() < link.ib_mtu as usize {
            note_narrow(this);
        }
    }
    this.subnet.lock().set_link(*record, link);
    if this.set_group_mtu(limit) {
        this.port.refresh(0);
    }
    Ok(())
}
