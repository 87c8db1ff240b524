// SPDX-License-Identifier: GPL-2.0

//! An interface's data, whatever state it is in.

use ipoib_netdev::device::{Device, DeviceRef, RawDevice};
use ipoib_netdev::header::Outgoing;
use ipoib_netdev::netdev_log;
use ipoib_netdev::rtnl::Rtnl;
use ipoib_proto::fragment;
use ipoib_proto::gid::Gid;
use ipoib_proto::header::EtherType;
use ipoib_proto::hwaddr::{Flags, HwAddr};
use ipoib_proto::mgid::{self, Mgid, Scope};
use ipoib_proto::mtu;
use ipoib_proto::pkey::PKey;
use ipoib_proto::qkey::QKey;
use ipoib_proto::stall::{Watch, LOOK_MS};
use ipoib_rdma::{Alarm, GidRef, Reaper};
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::{Arc, Mutex, SpinLock};
use kernel::{new_mutex, new_spinlock};

use crate::base::counters::Counters;
use crate::base::groups::Groups;
use crate::base::params;
use crate::base::port::{Attributes, LinkLayer, Port, REREAD_MS};
use crate::base::settings::Settings;
use crate::base::subnet::Subnet;
use crate::base::work::Work;

/// Milliseconds before a restart, or before the device is asked again, so that a cause that persists does not keep a CPU busy.
pub(crate) const RETRY_MS: u32 = 50;

/// The data of an interface.
#[pin_data]
pub(crate) struct Interface {
    /// The port that it uses.
    pub(crate) port: Arc<Port>,
    /// Its partition, with the full-member bit (RFC 4391, section 4.1); RTNL protects changes.
    pkey: Atomic<u32>,
    /// The scope of its groups; RTNL protects changes.
    scope: Atomic<u32>,
    /// It is in the partition that comes first in the port's table, whichever that is.
    follows_table: bool,
    pub(crate) counters: Arc<Counters>,
    pub(crate) settings: Arc<Settings>,
    /// The multicast groups that it is a member of or wants to join.
    #[pin]
    pub(crate) groups: Mutex<Groups>,
    /// Questions to the administrator of an InfiniBand subnet, or to the IP stack.
    #[pin]
    pub(crate) subnet: Mutex<Subnet>,
    /// The Q_Key of all packets: of InfiniBand's broadcast group once that was joined.
    qkey: Atomic<u32>,
    /// The largest IP packet that InfiniBand's broadcast group takes.
    group_mtu: Atomic<u32>,
    /// Watches whether the device sends datagrams.
    #[pin]
    pub(crate) watch: Mutex<Watch>,
    /// The stack's watchdog has found the queue stopped for long, and the watch has not looked since.
    pub(crate) timed_out: Atomic<bool>,
    /// Leaves groups alone that another user of the port has joined (the `umcast` flag).
    pub(crate) umcast: Atomic<bool>,
    /// The longest IP packet that a multicast group takes; longer ones are fragmented or refused.
    multicast_limit: Atomic<u32>,
    /// In connected mode (RFC 4755).
    pub(crate) connected: Atomic<bool>,
    /// A restart is pending, which needs RTNL.
    pub(crate) stuck: Atomic<bool>,
    /// The device has reported that a queue of the interface is broken.
    pub(crate) broken: Arc<Atomic<bool>>,
    /// Our address has changed, and the neighbours have yet to be told.
    pub(crate) moved: Atomic<bool>,
    /// It is yet to be told that something about its port has changed.
    pub(crate) untold: Atomic<bool>,
    /// There was a path that takes less than the link.
    pub(crate) narrow: Atomic<bool>,
    /// Work items leave their work to a later run.
    pub(crate) pausing: Atomic<bool>,
    /// The GUID that a user has chosen for its address, or 0.
    guid: Atomic<u64>,
    /// The GUID for which `identify` has last decided how IPv6 makes interface identifiers: the one that a user
    /// has chosen, or 1 for the port's; 0 if that is yet to be decided. RTNL protects changes.
    pub(crate) identified: Atomic<u64>,
    /// IPv6 makes interface identifiers at random. RTNL protects changes.
    pub(crate) distinct: Atomic<bool>,
    /// Its maker.
    pub(crate) origin: Origin,
    /// It is to be deleted as soon as RTNL can be had.
    pub(crate) doomed: Atomic<bool>,
    /// The interface that this is a P_Key child of: a child is deleted with its parent.
    parent: Option<Parent>,
    /// A reference to it, until the child is unregistered.
    #[pin]
    parent_dev: SpinLock<Option<DeviceRef>>,
    /// The MTU that `ip link add` asked for.
    pub(crate) initial_mtu: Option<u32>,
    /// Destroys what was dropped of its verbs objects. Dropped with these data, without RTNL, since it waits for the CM.
    pub(crate) reaper: Reaper,
}

/// The maker of an interface.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A user, by netlink.
    Link,
    /// A user, by its parent's file `create_child`.
    File,
    /// The driver, when the port came.
    Port,
}

/// The parent of a P_Key child.
struct Parent {
    /// [`RawDevice::id`].
    id: usize,
    /// Its index, which may be another one in another namespace.
    ifindex: Atomic<i32>,
}

/// Options of a new interface.
pub(crate) struct Options<'a> {
    /// The interface that it is to be a P_Key child of.
    pub(crate) parent: Option<&'a Device<Interface>>,
    /// None: the partition that comes first in the port's table.
    pub(crate) pkey: Option<PKey>,
    pub(crate) mtu: Option<u32>,
    pub(crate) umcast: bool,
    pub(crate) connected: bool,
    pub(crate) origin: Origin,
}

impl Interface {
    /// Creates the data of an interface on `port`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(port: Arc<Port>, options: &Options<'_>) -> Result<impl PinInit<Self, Error>> {
        let parent = options.parent.map(|dev| Parent {
            id: dev.id(),
            ifindex: Atomic::new(dev.ifindex()),
        });
        let counters = Arc::new(Counters::new(), GFP_KERNEL)?;
        let settings = Arc::new(Settings::new(), GFP_KERNEL)?;
        let reaper = Reaper::new()?;
        let broken = Arc::new(Atomic::new(false), GFP_KERNEL)?;
        let &Options {
            pkey,
            mtu,
            umcast,
            connected,
            origin,
            ..
        } = options;
        let parent_dev = options.parent.map(|dev| dev.get());
        let guid = options.parent.map_or(0, |dev| dev.data().guid());
        let follows_table = pkey.is_none();
        let pkey = pkey.or_else(|| port.first_pkey()).unwrap_or(PKey::DEFAULT);
        let broadcast = mgid::broadcast(pkey, Scope::LINK_LOCAL);
        let qkey = match port.layer() {
            LinkLayer::Roce => params::qkey(),
            LinkLayer::Infiniband => QKey(0),
        };
        Ok(try_pin_init!(Self {
            port,
            pkey: Atomic::new(pkey.get().into()),
            scope: Atomic::new(Scope::LINK_LOCAL.get().into()),
            follows_table,
            counters,
            settings,
            groups <- new_mutex!(Groups::new(broadcast)),
            subnet <- new_mutex!(Subnet::new()),
            qkey: Atomic::new(qkey.0),
            group_mtu: Atomic::new(u32::MAX),
            watch <- new_mutex!(Watch::NEW),
            timed_out: Atomic::new(false),
            umcast: Atomic::new(umcast),
            // The MTU is the limit.
            multicast_limit: Atomic::new(u32::MAX),
            connected: Atomic::new(connected),
            stuck: Atomic::new(false),
            broken,
            moved: Atomic::new(false),
            untold: Atomic::new(false),
            narrow: Atomic::new(false),
            pausing: Atomic::new(false),
            guid: Atomic::new(guid),
            identified: Atomic::new(0),
            distinct: Atomic::new(false),
            origin,
            doomed: Atomic::new(false),
            parent,
            parent_dev <- new_spinlock!(parent_dev),
            initial_mtu: mtu,
            reaper,
        }))
    }

    /// Queues a work item to run in `delay_ms`; one that is queued already keeps its time if that is earlier.
    ///
    /// # Context
    ///
    /// Any.
    pub(crate) fn queue(dev: &Device<Self>, work: Work, delay_ms: u32) {
        dev.queue_task(work as usize, delay_ms);
    }

    /// Waits for a work item and takes it off the queue; it can be queued again.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub(crate) fn cancel(dev: &Device<Self>, work: Work) {
        dev.cancel_task(work as usize);
    }

    /// Restarts the interface as soon as RTNL can be had.
    ///
    /// # Context
    ///
    /// Any.
    pub(crate) fn restart_soon(dev: &Device<Self>) {
        let this = dev.data();
        this.stuck.store(true, Relaxed);
        this.port.refresh(RETRY_MS);
    }

    /// Restarts the interface, since the device has not sent for long what it was given.
    pub(crate) fn restart_stuck(dev: &Device<Self>) {
        let this = dev.data();
        this.counters.slow.timeouts.add_shared(1);
        netdev_log!(dev, Warn, limited, "transmit queue is stuck, restarting\n");
        Self::restart_soon(dev);
    }

    /// Looks in [`LOOK_MS`] whether the device has sent what it was given.
    pub(crate) fn watch_sends(dev: &Device<Self>) {
        Self::queue(dev, Work::Watch, LOOK_MS);
    }

    /// Has the polls ask again for what the device has refused: receives, or an event. Nothing else may bring them.
    ///
    /// # Context
    ///
    /// Any.
    #[cold]
    pub(crate) fn poll_later(dev: &Device<Self>) {
        netdev_log!(
            dev,
            Warn,
            limited,
            "device refused receive or event requests, asking again\n"
        );
        Self::queue(dev, Work::Recover, RETRY_MS);
    }

    /// Handler of the failure of a queue of the interface: what is broken is replaced.
    pub(crate) fn alarm(dev: &Device<Self>) -> Alarm<Self> {
        Alarm::new(dev, Work::Recover as usize, dev.data().broken.clone())
    }

    /// Admits a multicast packet that can be sent, whole or in fragments, and counts any other. Out of the way of the
    /// others.
    #[inline(never)]
    pub(crate) fn admit_multicast(&self, packet: &Outgoing<'_>, ether_type: EtherType) -> bool {
        let admitted = packet.fits(self.multicast_limit.load(Relaxed))
            || fragment::is_allowed(ether_type, packet.linear(), packet.ignores_df());
        if !admitted {
            self.counters.slow.multicast_too_big.add_shared(1);
        }
        admitted
    }

    /// Its partition, with the full-member bit.
    pub(crate) fn pkey(&self) -> PKey {
        PKey::new(self.pkey.load(Relaxed) as u16).unwrap_or(PKey::DEFAULT)
    }

    /// Its broadcast group.
    pub(crate) fn broadcast(&self) -> Mgid {
        let scope = Scope::new(self.scope.load(Relaxed) as u8);
        mgid::broadcast(self.pkey(), scope.unwrap_or(Scope::LINK_LOCAL))
    }

    /// Takes the scope of its groups from a broadcast address. True: it is another one.
    ///
    /// # Context
    ///
    /// Process context under RTNL. A running interface has the one before until it restarts.
    pub(crate) fn follow_scope(&self, address: &HwAddr, _rtnl: &mut Rtnl) -> bool {
        let group = Mgid::from_hwaddr(address).filter(Mgid::is_broadcast);
        let Some(scope) = group.map(|group| u32::from(group.scope().get())) else {
            return false;
        };
        let changed = self.scope.load(Relaxed) != scope;
        self.scope.store(scope, Relaxed);
        self.groups.lock().set_broadcast(self.broadcast());
        changed
    }

    /// Follows the port's table to another partition, if it is in the first one there. True: it has changed.
    ///
    /// # Context
    ///
    /// Process context under RTNL.
    pub(crate) fn follow_table(&self, _rtnl: &mut Rtnl) -> bool {
        let first = self.follows_table.then(|| self.port.first_pkey()).flatten();
        let Some(pkey) = first.filter(|first| *first != self.pkey()) else {
            return false;
        };
        self.pkey.store(pkey.get().into(), Relaxed);
        self.groups.lock().set_broadcast(self.broadcast());
        true
    }

    /// Returns true if this is a P_Key child.
    pub(crate) fn is_child(&self) -> bool {
        self.parent.is_some()
    }

    /// Returns true if this is a P_Key child of `dev`.
    pub(crate) fn is_child_of(&self, dev: &RawDevice) -> bool {
        self.parent
            .as_ref()
            .is_some_and(|parent| parent.id == dev.id())
    }

    /// Notes the index of `dev`, if this is a P_Key child of that.
    pub(crate) fn note_parent_ifindex(&self, dev: &RawDevice) {
        if let Some(parent) = self.parent.as_ref().filter(|parent| parent.id == dev.id()) {
            parent.ifindex.store(dev.ifindex(), Relaxed);
        }
    }

    /// Calls `f` with the parent, if it has one that is still there.
    ///
    /// # Context
    ///
    /// Process context, under other locks or not; `f` must not sleep.
    pub(crate) fn with_parent(&self, f: &mut dyn FnMut(&RawDevice)) {
        if let Some(parent) = self.parent_dev.lock().as_ref() {
            f(parent);
        }
    }

    /// Gives the reference to the parent back.
    pub(crate) fn forget_parent(&self) {
        self.parent_dev.lock().take();
    }

    /// The interface index of the parent or, without one, of the port's netdev.
    pub(crate) fn lower_ifindex(&self) -> i32 {
        match &self.parent {
            Some(parent) => parent.ifindex.load(Relaxed),
            None => self.port.lower_ifindex(),
        }
    }

    /// The flags of our address.
    pub(crate) fn flags(&self) -> Flags {
        let mut flags = Flags::NONE;
        if self.is_connected() {
            flags = flags.union(Flags::RC);
        }
        if self.settings.extensions() {
            flags = flags.union(Flags::SEQ);
            if self.is_connected() && self.settings.icrc() {
                flags = flags.union(Flags::ICRC);
            }
        }
        flags
    }

    /// Returns true if the interface is in connected mode.
    pub(crate) fn is_connected(&self) -> bool {
        self.connected.load(Relaxed)
    }

    /// Returns true if the port is not a member of the partition now, as can be on InfiniBand.
    pub(crate) fn lacks_pkey(&self) -> bool {
        self.port.is_infiniband() && self.port.find_pkey(self.pkey()).is_err()
    }

    /// The GUID that a user has chosen; 0 for the port's own.
    pub(crate) fn guid(&self) -> u64 {
        self.guid.load(Relaxed)
    }

    /// Notes the GUID that a user has chosen. The port's own is none: that one follows the port.
    pub(crate) fn set_guid(&self, guid: u64, port: &Attributes) {
        let own = guid == port.gid.guid();
        self.guid.store(if own { 0 } else { guid }, Relaxed);
    }

    /// The GID of its address, where that of the port is `gid`.
    pub(crate) fn own_gid(&self, gid: Gid) -> Gid {
        match self.guid.load(Relaxed) {
            0 => gid,
            _ if gid == Gid::ZERO => gid,
            guid => gid.with_guid(guid),
        }
    }

    /// The GID to send from, where that of the port is `port`.
    ///
    /// # Errors
    ///
    /// Those of [`Port::gid`].
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn gid(&self, port: Gid) -> Result<GidRef> {
        self.port.gid(self.guid.load(Relaxed), port)
    }

    /// Returns true if the port lacks the GID to send from: on InfiniBand that of the GUID that a user has chosen, which
    /// the subnet manager may yet give it; on RoCE any that would do.
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn lacks_gid(&self, port: Gid) -> bool {
        let may_lack = !self.port.is_infiniband() || self.guid.load(Relaxed) != 0;
        may_lack && self.gid(port).is_err()
    }

    /// Says that there is no carrier for want of a GID.
    pub(crate) fn tell_no_gid(dev: &Device<Self>) {
        let why = if dev.data().port.is_infiniband() {
            "the port does not have the GID of the address"
        } else {
            "the Ethernet interface has none of the port's GIDs as an IPv6 address"
        };
        netdev_log!(dev, Info, limited, "no carrier: {why}\n");
    }

    /// Reads the port again in [`REREAD_MS`] while an interface is up with a GUID that a user has chosen, or the port is
    /// without a GID. The RDMA core does not pass `IB_EVENT_GID_CHANGE` of InfiniBand ports on to its clients
    /// (`ib_cache_event_task()`), and does not say when there is room for a GID of a RoCE port again.
    ///
    /// # Context
    ///
    /// Any.
    pub(crate) fn watch_gid(dev: &Device<Self>, port: &Attributes) {
        let this = dev.data();
        if dev.is_running() && (port.gid == Gid::ZERO || this.guid.load(Relaxed) != 0) {
            this.port.refresh(REREAD_MS);
        }
    }

    /// The Q_Key of all packets.
    pub(crate) fn qkey(&self) -> QKey {
        QKey(self.qkey.load(Relaxed))
    }

    /// Notes the Q_Key of the broadcast group.
    pub(crate) fn set_qkey(&self, qkey: QKey) {
        self.qkey.store(qkey.0, Relaxed);
    }

    /// Notes the largest IP packet that the broadcast group takes. True: it is another one than before.
    pub(crate) fn set_group_mtu(&self, mtu: u32) -> bool {
        self.group_mtu.xchg(mtu, Relaxed) != mtu
    }

    /// Returns true if the broadcast group allows an MTU.
    pub(crate) fn suits_group(&self, mtu: u32) -> bool {
        self.is_connected() || mtu <= self.group_mtu.load(Relaxed)
    }

    /// The largest IP packet in a datagram, where the port's IB MTU is `ib_mtu` (RFC 4391, section 7).
    pub(crate) fn datagram_mtu(&self, ib_mtu: u32) -> u32 {
        mtu::ip_mtu(ib_mtu).min(self.group_mtu.load(Relaxed))
    }

    /// The largest MTU that may be asked for: in datagram mode that of the port's largest IB MTU, whatever the broadcast
    /// group takes now.
    pub(crate) fn mtu_limit(&self, attributes: &Attributes) -> u32 {
        if self.is_connected() {
            mtu::MAX_CONNECTED
        } else {
            mtu::ip_mtu(attributes.max_ib_mtu)
        }
    }

    /// The MTU that it has if `wanted` is asked for, or none.
    pub(crate) fn mtu_for(&self, wanted: Option<u32>, attributes: &Attributes) -> u32 {
        let datagram = self.datagram_mtu(attributes.ib_mtu);
        let limit = if self.is_connected() {
            mtu::MAX_CONNECTED
        } else {
            datagram
        };
        wanted.unwrap_or(datagram).min(limit)
    }

    /// Limits multicast packets, which always go by UD, to the port's MTU.
    pub(crate) fn set_multicast_limit(&self, attributes: &Attributes) {
        let limit = if self.is_connected() {
            self.datagram_mtu(attributes.ib_mtu)
        } else {
            u32::MAX
        };
        self.multicast_limit.store(limit, Relaxed);
    }
}
