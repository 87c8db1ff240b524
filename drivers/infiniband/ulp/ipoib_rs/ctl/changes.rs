// SPDX-License-Identifier: GPL-2.0

//! Changes of an interface while it runs: those of its port, its mode, its rings and its extensions.

use ipoib_netdev::clock::now_ms;
use ipoib_netdev::device::Device;
use ipoib_netdev::features::{Offloads, TxOffload};
use ipoib_netdev::netdev_log;
use ipoib_netdev::rtnl::Rtnl;
use ipoib_proto::gid::Gid;
use ipoib_proto::hwaddr::HwAddr;
use ipoib_proto::mtu;
use ipoib_proto::pace::Pace;
use ipoib_proto::sizes::Sizes;
use kernel::prelude::*;
use kernel::sync::atomic::Relaxed;

use crate::base::interface::{Interface, RETRY_MS};
use crate::base::port::{Attributes, Port};
use crate::base::work::Work;
use crate::ctl::verbs::{gathers_all, Running, Verbs};
use crate::rc::channel::STUCK_MS;

/// State of an interface's configuration, which RTNL protects, from registration to unregistration.
pub(crate) struct Control {
    pub(crate) verbs: Verbs,
    /// The MTU that a user has asked for, if it is not the largest that a datagram of the port takes. It may be larger
    /// than that.
    pub(crate) admin_mtu: Option<u32>,
    /// Limits how often the interface is restarted.
    pub(crate) pace: Pace,
    /// The LID of the port, as the interface has heard of it.
    pub(crate) lid: u16,
}

impl Interface {
    /// The port's attributes have changed, or may have.
    /// `paths`: what is known of paths may be out of date.
    pub(crate) fn port_changed(dev: &Device<Self>, paths: bool, rtnl: &mut Rtnl) {
        let this = dev.data();
        let attributes = this.port.attributes(rtnl);
        Self::follow_partition(dev, rtnl);
        Self::keep_routes(dev, rtnl);

        dev.set_mtu_limit(this.mtu_limit(&attributes), rtnl);
        this.set_multicast_limit(&attributes);
        let Some(control) = dev.control(rtnl) else {
            return;
        };
        let running = control.verbs.running;
        let relocated = core::mem::replace(&mut control.lid, attributes.lid) != attributes.lid;
        Self::watch_gid(dev, &attributes);
        Self::follow_mtu(dev, &attributes, rtnl);
        // In connected mode the MTU of the interface stays, but that of datagrams may change.
        set_mtu(dev, dev.mtu(), this.datagram_mtu(attributes.ib_mtu));

        let Some(running) = running else {
            Self::set_address(dev, attributes.gid, rtnl);
            if dev.is_running() && !this.lacks_pkey() && !this.lacks_gid(attributes.gid) {
                // The last restart failed, or the partition or the GID was not there.
                Self::restart_in_time(dev, rtnl);
            }
            return;
        };
        let moved = Self::gid_moved(dev, attributes.gid, rtnl);
        let pkey_index = this.port.find_pkey(running.pkey);
        let repartitioned = this.pkey() != running.pkey
            || (this.port.is_infiniband() && pkey_index != Ok(running.pkey_index));
        // Buffers are too small for a larger one; for a smaller one, the paths of connections are too wide.
        let narrower = attributes.active && attributes.ib_mtu < running.ib_mtu;
        let resized = attributes.ib_mtu > running.ib_mtu || (narrower && this.is_connected());
        if moved {
            // The neighbours are told when it can be used.
            this.moved.store(true, Relaxed);
        }
        if moved || resized || repartitioned {
            Self::restart(dev, rtnl);
            return;
        }
        if this.stuck.load(Relaxed) && Self::restart_in_time(dev, rtnl) {
            this.counters.slow.self_restarts.add_shared(1);
            return;
        }
        set_port_active(dev, attributes.active);
        follow_paths(dev, relocated, paths);
        if !attributes.active {
            Self::lose_carrier(dev, attributes.gid);
        } else if !this.port.is_infiniband() && !this.groups.lock().is_in(this.broadcast()) {
            // The netdev has lost its IPv6 meanwhile, and with it our membership.
            rejoin(dev);
        }
        Self::announce(dev, rtnl);
        Self::queue(dev, Work::Paths, 0);
    }

    /// There is no carrier while the port, whose GID is `gid`, is not active.
    fn lose_carrier(dev: &Device<Self>, gid: Gid) {
        if dev.has_carrier() && gid == Gid::ZERO {
            Self::tell_no_gid(dev);
        }
        dev.set_carrier(false);
    }

    /// Returns true if a running interface is to send from another GID than it does, since the one of the port is `gid`
    /// now, from the same one at another place of the port's table, or from none.
    fn gid_moved(dev: &Device<Self>, gid: Gid, rtnl: &mut Rtnl) -> bool {
        let this = dev.data();
        let Some(endpoint) = dev.lock_tx().as_ref().map(|tx| tx.endpoint.clone()) else {
            return false;
        };
        if !this.port.is_infiniband() {
            // Our GID may be another entry of the table by now: that of another Ethernet address, whose IPv6 address
            // has stayed. No path can be made from an entry that was removed, and the RDMA core has no place for another
            // one as long as somebody holds it.
            let other = gid != Gid(endpoint.gid.raw()) && gid != Gid::ZERO;
            return other || !endpoint.gid.stands();
        }
        let found = this
            .gid(gid)
            .and_then(|own| Ok((own, this.port.gid(0, gid)?)));
        let missed = found.is_err();
        let control = dev.control(rtnl).as_mut();
        let missed_before = control.is_some_and(|control| control.verbs.miss_gid(missed));
        match found {
            Ok((gid, member)) => !gid.is_like(&endpoint.gid) || !member.is_like(&endpoint.member),
            Err(_) if missed_before => true,
            // The RDMA core replaces all entries now and then, each of which is empty meanwhile.
            Err(_) => {
                this.port.refresh(RETRY_MS);
                false
            }
        }
    }

    /// Follows the port's table to another partition, whose groups are others. A running interface is in the one before
    /// until it restarts.
    fn follow_partition(dev: &Device<Self>, rtnl: &mut Rtnl) {
        let this = dev.data();
        if this.follow_table(rtnl) {
            netdev_log!(dev, Info, "now in partition {:#06x}\n", this.pkey().get());
            dev.change_broadcast(this.broadcast().to_hwaddr().as_bytes(), rtnl);
        }
    }

    /// Follows the broadcast address, which a user may have set, to another scope. Nothing else of it is his to choose.
    ///
    /// At once, since the stack makes the addresses of groups of it, and knows them by that when they are left.
    pub(super) fn follow_broadcast(dev: &Device<Self>, rtnl: &mut Rtnl) {
        let this = dev.data();
        let (given, own) = (HwAddr(dev.broadcast(rtnl)), this.broadcast().to_hwaddr());
        if given == own {
            return;
        }
        dev.set_broadcast(own.as_bytes(), rtnl);
        if !this.follow_scope(&given, rtnl) {
            return;
        }
        dev.change_broadcast(this.broadcast().to_hwaddr().as_bytes(), rtnl);
        if dev.is_running() {
            Self::restart(dev, rtnl);
        }
    }

    /// Keeps IPv6 from making the same interface identifiers on this interface as on another one of the link. Decides
    /// that once for the port's GUID and for each GUID that a user chooses, and again after a time without IPv6. A
    /// mode that a user sets in between stays.
    pub(super) fn identify(dev: &Device<Self>, rtnl: &mut Rtnl) {
        let this = dev.data();
        let possible = dev.mtu() >= mtu::MIN_IPV6 && !HwAddr(dev.address()).gid().is_zero();
        let guid = if possible { this.guid().max(1) } else { 0 };
        let before = this.identified.xchg(guid, Relaxed);
        if guid != 0 && guid != before {
            let random = before != 0 && this.distinct.load(Relaxed);
            this.distinct.store(dev.distinguish(random, rtnl), Relaxed);
        }
    }

    /// Takes the interface down and up, or postpones that if the last restart was recent. Returns true if it did.
    fn restart_in_time(dev: &Device<Self>, rtnl: &mut Rtnl) -> bool {
        let Some(control) = dev.control(rtnl) else {
            return false;
        };
        let wait = control.pace.ask(now_ms());
        if wait > 0 {
            dev.data()
                .port
                .refresh(u32::try_from(wait).unwrap_or(u32::MAX));
            return false;
        }
        Self::restart(dev, rtnl);
        true
    }

    /// Sets the MTU that the port allows now, as near to the one that a user has set as can be.
    fn follow_mtu(dev: &Device<Self>, attributes: &Attributes, rtnl: &mut Rtnl) {
        let admin_mtu = dev.control(rtnl).as_ref().and_then(|c| c.admin_mtu);
        let mtu = dev.data().mtu_for(admin_mtu, attributes);
        if mtu == dev.mtu() {
            return;
        }
        if let Err(error) = dev.set_mtu(mtu, rtnl) {
            netdev_log!(
                dev,
                Warn,
                "cannot follow the port to MTU {mtu}: {error:?}\n"
            );
        }
        // `change_mtu` took it for the user's wish.
        if let Some(control) = dev.control(rtnl) {
            control.admin_mtu = admin_mtu;
        }
    }

    /// Takes the interface down and up; if it does not come up, it is tried again.
    fn restart(dev: &Device<Self>, rtnl: &mut Rtnl) {
        if let Err(error) = Self::try_restart(dev, rtnl) {
            netdev_log!(dev, Err, limited, "cannot restart: {error:?}\n");
            dev.data().port.refresh(RETRY_MS);
        }
    }

    /// Takes the interface down and up, and counts that.
    ///
    /// # Errors
    ///
    /// Those of coming up; all is down then.
    fn try_restart(dev: &Device<Self>, rtnl: &mut Rtnl) -> Result {
        dev.data().counters.slow.restarts.add_shared(1);
        dev.restart(rtnl)
    }

    /// The receive poll is to do as much at a time as it says now.
    pub(crate) fn budget_changed(dev: &Device<Self>, rtnl: &mut Rtnl) {
        if let Some(control) = dev.control(rtnl) {
            control
                .verbs
                .rx
                .set_budget(dev.data().settings.napi_budget());
        }
    }

    /// Gives the rings other sizes. A running interface goes on with new ones: it loses what is on
    /// the wire at the time, and nothing else.
    ///
    /// # Errors
    ///
    /// Those of making rings; the sizes are as before then.
    pub(crate) fn resize(dev: &Device<Self>, sizes: Sizes, rtnl: &mut Rtnl) -> Result {
        let this = dev.data();
        let before = this.settings.queue_sizes();
        if before == sizes {
            return Ok(());
        }
        this.settings.set_queue_sizes(sizes);
        let result = Self::replace_rings(dev, rtnl);
        if result.is_err() {
            // The queues may have become smaller meanwhile.
            let limits = this.settings.queue_limits();
            this.settings.set_queue_sizes(before.min(limits));
            // Makes the rings of before again.
            Self::restart_soon(dev);
        }
        result
    }

    /// Makes new rings if the interface runs. If they cannot be replaced, it restarts.
    ///
    /// # Errors
    ///
    /// Those of a restart; all is down then.
    fn replace_rings(dev: &Device<Self>, rtnl: &mut Rtnl) -> Result {
        let control = dev.control(rtnl).as_mut();
        let Some(control) = control.filter(|control| control.verbs.running.is_some()) else {
            return Ok(());
        };
        dev.disable_queue();
        if let Err(error) = control.verbs.resize(dev) {
            netdev_log!(dev, Warn, limited, "no new rings, restarting: {error:?}\n");
            return Self::try_restart(dev, rtnl);
        }
        dev.start_queue();
        // It may fill the ring, and stop the queue.
        Self::queue(dev, Work::Paths, 0);
        Ok(())
    }

    /// State of the rings while the interface is up.
    fn running(dev: &Device<Self>, rtnl: &mut Rtnl) -> Option<Running> {
        dev.control(rtnl).as_ref()?.verbs.running
    }

    /// Sets the device's address: our QPN and `gid` (RFC 4391, section 9.1.1).
    pub(super) fn set_address(dev: &Device<Self>, gid: Gid, rtnl: &mut Rtnl) {
        if gid == Gid::ZERO {
            return;
        }
        let Some(qpn) = dev.control(rtnl).as_ref().map(|control| control.verbs.qpn) else {
            return;
        };
        let this = dev.data();
        let address = HwAddr::new(this.flags(), qpn, this.own_gid(gid));
        dev.change_address(address.as_bytes(), rtnl);
    }

    /// Work on datagrams that the device of a port does. It has to gather whole super-frames to segment them.
    fn datagram_offload(port: &Port) -> TxOffload {
        let device = port.device();
        // Verbs promise it of frames of IP over InfiniBand.
        if !port.is_infiniband() || !device.checks_checksums() {
            return TxOffload::None;
        }
        TxOffload::Ip {
            segments: device.segments() && gathers_all(device),
        }
    }

    /// Sets the features that the mode and the device allow.
    pub(super) fn set_offloads(dev: &Device<Self>, rtnl: &mut Rtnl) {
        let this = dev.data();
        let connected = this.is_connected();
        let rx_checksum = this.port.checks_checksums();
        let tx = if connected {
            TxOffload::Any
        } else {
            Self::datagram_offload(&this.port)
        };
        // Without offloads in between, those that the mode before lacked would stay off.
        for tx in [TxOffload::None, tx] {
            dev.set_offloads(Offloads { tx, rx_checksum }, rtnl);
        }
        Self::keep_routes(dev, rtnl);
    }

    /// Has frames keep their routes where senders may have to be told the MTU of their path.
    fn keep_routes(dev: &Device<Self>, rtnl: &mut Rtnl) {
        let this = dev.data();
        if this.is_connected() || this.narrow.load(Relaxed) {
            dev.keep_routes(rtnl);
        }
    }

    /// Changes the mode. A running interface has new rings; it keeps its groups and paths, and its MTU if it can.
    ///
    /// # Errors
    ///
    /// Those of the device, if it has not what connections need, and of making rings. The interface is as it was then,
    /// and a line in the log says why.
    pub(crate) fn set_connected(dev: &Device<Self>, connected: bool, rtnl: &mut Rtnl) -> Result {
        if dev.data().is_connected() == connected {
            return Ok(());
        }
        if connected {
            let control = dev.control(rtnl).as_ref().ok_or(ENODEV)?;
            Self::check_connected(dev, &control.verbs)?;
        }
        let mtu = dev.mtu();
        Self::change_mode(dev, connected, rtnl)?;
        if let Err(error) = Self::replace_rings(dev, rtnl) {
            netdev_log!(dev, Err, "cannot change the mode: {error:?}\n");
            // All is down, whatever else fails.
            Self::restart_soon(dev);
            Self::change_mode(dev, !connected, rtnl)?;
            if dev.mtu() != mtu {
                dev.set_mtu(mtu, rtnl)?;
            }
            Self::restart(dev, rtnl);
            return Err(error);
        }
        Self::renew_address(dev, rtnl);
        Ok(())
    }

    /// Packets are of another class from now on. A running interface goes down and up, since address handles and
    /// connections were made for the class before.
    pub(crate) fn class_changed(dev: &Device<Self>, rtnl: &mut Rtnl) {
        // The subnet's administrator chooses the class on InfiniBand.
        if !dev.data().port.is_infiniband() && Self::running(dev, rtnl).is_some() {
            Self::restart(dev, rtnl);
        }
    }

    /// Checks that there can be connections.
    pub(super) fn check_connected(dev: &Device<Self>, verbs: &Verbs) -> Result {
        verbs.try_connected(dev).inspect_err(|error| {
            netdev_log!(
                dev,
                Warn,
                limited,
                "no connected mode: the RDMA device refuses, or memory is short: {error:?}\n"
            );
        })
    }

    /// Is in the other mode from now on, with what that allows. A running interface needs other rings.
    ///
    /// # Errors
    ///
    /// Those of changing the MTU, which may be too large for it; all is as before then.
    fn change_mode(dev: &Device<Self>, connected: bool, rtnl: &mut Rtnl) -> Result {
        let this = dev.data();
        let attributes = this.port.attributes(rtnl);
        let datagram = this.datagram_mtu(attributes.ib_mtu);
        if !connected && dev.mtu() > datagram {
            // Still in the mode of the MTU before, which the core sets again if somebody refuses the new one.
            dev.set_mtu(datagram, rtnl)?;
        }
        this.connected.store(connected, Relaxed);
        Self::set_offloads(dev, rtnl);
        this.set_multicast_limit(&attributes);
        dev.set_mtu_limit(this.mtu_limit(&attributes), rtnl);
        Self::follow_mtu(dev, &attributes, rtnl);
        Ok(())
    }

    /// Ends all connections, since their settings were changed; frames make new ones.
    pub(crate) fn connections_changed(dev: &Device<Self>) {
        if let Some(tx) = dev.lock_tx().as_mut() {
            tx.end_connections(dev);
        }
    }

    /// The extensions were switched on or off: our address says so, and our neighbours are told.
    pub(crate) fn extensions_changed(dev: &Device<Self>, rtnl: &mut Rtnl) {
        if let Some(tx) = dev.lock_tx().as_mut() {
            tx.ud.ring.set_extensions(dev.data().settings.extensions());
            tx.end_connections(dev);
        }
        Self::renew_address(dev, rtnl);
    }

    /// Sets the address anew, whose flags have changed, and tells the neighbours.
    fn renew_address(dev: &Device<Self>, rtnl: &mut Rtnl) {
        let this = dev.data();
        let running = Self::running(dev, rtnl);
        let gid = running.map_or(this.port.attributes(rtnl).gid, |running| running.gid);
        Self::set_address(dev, gid, rtnl);
        this.moved.store(true, Relaxed);
        Self::announce(dev, rtnl);
    }

    /// Lets the stack tell the neighbours of our address if it has changed and frames can be sent. Otherwise that happens
    /// when they can: when we are ready ([`carrier_on`](crate::ctl::answers)), or the stack is.
    pub(super) fn announce(dev: &Device<Self>, rtnl: &mut Rtnl) {
        if dev.can_send() && is_ready(dev) && dev.data().moved.xchg(false, Relaxed) {
            dev.notify_peers(rtnl);
        }
    }
}

/// The port went up or down. Connections do not outlast a port that was down for so long that a peer has given them up: we
/// have not heard of that, and would blame the peer. After a shorter time, the queue pair that fails says so itself.
fn set_port_active(dev: &Device<Interface>, active: bool) {
    if let Some(tx) = dev.lock_tx().as_mut() {
        let was_down = tx.ud.destinations.set_up(active, now_ms());
        if was_down.is_some_and(|ms| ms >= STUCK_MS) {
            tx.end_connections(dev);
        }
    }
}

/// Paths, and groups that could not be joined, may be out of date. `relocated`: the port has another LID, and connections
/// keep the one before. Datagrams go on by the paths before until there are others: the manager may be gone.
fn follow_paths(dev: &Device<Interface>, relocated: bool, outdated: bool) {
    if !dev.data().port.is_infiniband() {
        return;
    }
    if let Some(tx) = dev.lock_tx().as_mut() {
        if relocated || outdated {
            tx.ud.destinations.refresh();
        }
        if relocated {
            tx.end_connections(dev);
        }
    }
}

/// Returns true if frames can be sent.
pub(super) fn is_ready(dev: &Device<Interface>) -> bool {
    let guard = dev.lock_tx();
    guard
        .as_ref()
        .is_some_and(|tx| tx.ud.destinations.is_ready())
}

/// The stack wants other multicast groups. True: there is no place for some.
pub(crate) fn want_groups(dev: &Device<Interface>) -> bool {
    let this = dev.data();
    let groups = this.groups.lock();
    let mut guard = dev.lock_tx();
    match guard.as_mut() {
        Some(tx) => tx.ud.destinations.want(groups.wanted()),
        None => false,
    }
}

/// Leaves groups alone that another user of the port has joined, or does not.
pub(crate) fn set_umcast(dev: &Device<Interface>, umcast: bool) {
    if dev.data().umcast.xchg(umcast, Relaxed) != umcast {
        rejoin(dev);
    }
}

/// All groups are to be joined anew.
pub(crate) fn rejoin(dev: &Device<Interface>) {
    if let Some(tx) = dev.lock_tx().as_mut() {
        tx.ud.destinations.rejoin();
    }
    Interface::queue(dev, Work::Paths, 0);
}

/// The MTU was changed; `limit` is that of a datagram.
pub(crate) fn set_mtu(dev: &Device<Interface>, mtu: u32, limit: u32) {
    if let Some(tx) = dev.lock_tx().as_mut() {
        tx.ud.ring.set_mtu(mtu.min(limit));
    }
}
