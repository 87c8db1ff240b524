// SPDX-License-Identifier: GPL-2.0

//! An interface: the `net_device` and its life.

use ipoib_netdev::address::AddressList;
use ipoib_netdev::clock::now_ms;
use ipoib_netdev::device::{Device, Driver, Layout, RawDevice, Taken, Tasks};
use ipoib_netdev::ethtool::{Ethtool, Identity, Moderation, RingSizes};
use ipoib_netdev::features::Offloads;
use ipoib_netdev::header::Outgoing;
use ipoib_netdev::link::Extack;
use ipoib_netdev::napi::Handle;
use ipoib_netdev::netdev_log;
use ipoib_netdev::rtnl::{Rtnl, RtnlCell};
use ipoib_netdev::skb::TxSkb;
use ipoib_netdev::stats::LinkStats;
use ipoib_proto::fragment;
use ipoib_proto::gid::Gid;
use ipoib_proto::header::{EtherType, Header};
use ipoib_proto::hwaddr::{Flags, HwAddr};
use ipoib_proto::mgid::{self, Mgid, Scope};
use ipoib_proto::mtu;
use ipoib_proto::pace::Pace;
use ipoib_proto::pkey::PKey;
use ipoib_proto::sizes::Sizes;
use ipoib_proto::stall::Watch;
use ipoib_rdma::device::FIRMWARE_LEN;
use kernel::new_mutex;
use kernel::prelude::*;
use kernel::str::CStr;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::{Arc, Mutex};

use crate::base::counters::{self, Counters};
use crate::base::groups::Groups;
use crate::base::port::{Attributes, Port};
use crate::base::settings::Settings;
use crate::ctl::connect;
use crate::ctl::debugfs::Sources;
use crate::ctl::lifecycle::Verbs;
use crate::data::rx::{Question, RxPoll};
use crate::data::tx::{self, Tx};
use crate::rc::conn;
use crate::ud::paths;

/// Work item: resolves paths, joins and leaves groups, ends what is idle.
pub(crate) const PUMP: usize = 0;
/// Work item: brings the QP back after a failed send.
pub(crate) const RECOVER: usize = 1;
/// Work item: makes and ends connections.
pub(crate) const CONNECT: usize = 2;
/// Work item: looks whether datagrams that were handed to the device are sent.
pub(crate) const WATCH: usize = 3;

/// Milliseconds before a restart, so that a cause that persists does not keep a CPU busy.
const RESTART_MS: u32 = 50;

/// The driver's data of an interface.
#[pin_data]
pub(crate) struct Interface {
    /// The port it stands on.
    pub(crate) port: Arc<Port>,
    /// Its partition, with the full-member bit (RFC 4391, section 4.1).
    pub(crate) pkey: PKey,
    /// Where `pkey` stands in the port's table.
    pub(crate) pkey_index: u16,
    /// Its broadcast group.
    pub(crate) broadcast: Mgid,
    /// What it counts.
    pub(crate) counters: Arc<Counters>,
    /// What can be tuned.
    pub(crate) settings: Arc<Settings>,
    /// The multicast groups that it is or wants to be in.
    #[pin]
    pub(crate) groups: Mutex<Groups>,
    /// Whether datagrams are sent.
    #[pin]
    pub(crate) watch: Mutex<Watch>,
    /// Leaves groups alone that somebody else has joined on the port (the `umcast` flag).
    pub(crate) umcast: Atomic<bool>,
    /// The longest IP packet that a multicast group takes; longer ones are fragmented or refused.
    multicast_limit: Atomic<u32>,
    /// In connected mode (RFC 4755).
    connected: Atomic<bool>,
    /// A restart is asked for, which needs RTNL.
    pub(crate) stuck: Atomic<bool>,
    /// The device has said of what the interface has of it that it is broken.
    pub(crate) broken: Atomic<bool>,
    /// Our address has changed: the neighbours are told when that can be sent.
    pub(crate) moved: Atomic<bool>,
    /// How often it is restarted.
    pace: RtnlCell<Pace>,
    /// The work item is to leave what there is to do for later.
    pub(crate) pausing: Atomic<bool>,
    /// The interface that this is a P_Key child of: a child is deleted with its parent.
    parent: Option<Parent>,
    /// Whom to ask about received frames, from registration to unregistration.
    #[pin]
    rx: Mutex<Option<Handle<RxPoll>>>,
    /// From registration to unregistration.
    verbs: RtnlCell<Option<Verbs>>,
    /// What a user set the MTU to, if it is not the largest that the port allows.
    admin_mtu: RtnlCell<Option<u32>>,
}

/// The interface that a P_Key child stands on.
struct Parent {
    /// [`RawDevice::id`].
    id: usize,
    /// Its index when the child was made.
    ifindex: i32,
}

impl Interface {
    /// Makes the data of an interface on `port`, as a P_Key child of `parent` if there is one.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(
        port: Arc<Port>,
        parent: Option<&Device<Self>>,
        pkey: PKey,
        pkey_index: u16,
        mtu: Option<u32>,
        umcast: bool,
        connected: bool,
    ) -> Result<impl PinInit<Self, Error>> {
        let parent = parent.map(|dev| Parent {
            id: dev.id(),
            ifindex: dev.ifindex(),
        });
        let counters = Arc::new(Counters::new(), GFP_KERNEL)?;
        let settings = Arc::new(Settings::new(), GFP_KERNEL)?;
        let broadcast = mgid::broadcast(pkey, Scope::LINK_LOCAL);
        Ok(try_pin_init!(Self {
            port,
            pkey,
            pkey_index,
            broadcast,
            counters,
            settings,
            groups <- new_mutex!(Groups::new(*broadcast)),
            watch <- new_mutex!(Watch::NEW),
            umcast: Atomic::new(umcast),
            // The MTU is the limit.
            multicast_limit: Atomic::new(u32::MAX),
            connected: Atomic::new(connected),
            stuck: Atomic::new(false),
            broken: Atomic::new(false),
            moved: Atomic::new(false),
            pace: RtnlCell::new(Pace::NEW),
            pausing: Atomic::new(false),
            parent,
            rx <- new_mutex!(None),
            verbs: RtnlCell::new(None),
            admin_mtu: RtnlCell::new(mtu),
        }))
    }

    /// Whether a multicast packet can be sent, whole or in fragments. Out of the way of the others.
    #[inline(never)]
    fn takes_multicast(&self, packet: &Outgoing<'_>, ether_type: EtherType) -> bool {
        let takes = packet.fits(self.multicast_limit.load(Relaxed))
            || fragment::is_allowed(ether_type, packet.linear(), packet.ignores_df());
        if !takes {
            self.counters.slow.multicast_too_big.add_shared(1);
        }
        takes
    }

    /// Whether this is a P_Key child.
    pub(crate) fn is_child(&self) -> bool {
        self.parent.is_some()
    }

    /// Whether this is a P_Key child of `dev`.
    pub(crate) fn is_child_of(&self, dev: &RawDevice) -> bool {
        self.parent
            .as_ref()
            .is_some_and(|parent| parent.id == dev.id())
    }

    /// Takes the interface down and up, as soon as RTNL can be had.
    ///
    /// # Context
    ///
    /// Any.
    pub(crate) fn restart_soon(dev: &Device<Self>) {
        let this = dev.data();
        this.stuck.store(true, Relaxed);
        this.port.refresh(RESTART_MS);
    }

    /// The device has not sent for long what it was given.
    pub(crate) fn does_not_send(dev: &Device<Self>) {
        let this = dev.data();
        this.counters.slow.timeouts.add_shared(1);
        netdev_log!(dev, Warn, limited, "transmit queue is stuck, restarting\n");
        Self::restart_soon(dev);
    }

    /// The device says that a queue is broken, which is made anew.
    ///
    /// # Context
    ///
    /// Any.
    pub(crate) fn queue_failed(dev: &Device<Self>, queue: &str) {
        dev.data().broken.store(true, Relaxed);
        netdev_log!(dev, Warn, limited, "{queue} is broken, restarting\n");
        Self::restart_soon(dev);
    }

    /// The port's attributes have changed, or may have.
    pub(crate) fn port_changed(dev: &Device<Self>, rtnl: &mut Rtnl) {
        let this = dev.data();
        let attributes = this.port.attributes(rtnl);

        let limit = this.mtu_limit(&attributes);
        dev.set_mtu_limit(limit, rtnl);
        this.set_multicast_limit(&attributes);
        let wanted = match *this.admin_mtu.get(rtnl) {
            Some(mtu) => mtu.min(limit),
            None => attributes.ip_mtu(),
        };
        if wanted != dev.mtu() {
            let admin = *this.admin_mtu.get(rtnl);
            if let Err(error) = dev.set_mtu(wanted, rtnl) {
                netdev_log!(
                    dev,
                    Warn,
                    "cannot follow the port to MTU {wanted}: {error:?}\n"
                );
            }
            // `change_mtu` took it for the user's wish.
            *this.admin_mtu.get(rtnl) = admin;
        }

        let running = this.verbs.get(rtnl).as_ref().and_then(Verbs::running);
        let Some(running) = running else {
            Self::set_address(dev, attributes.gid, rtnl);
            if dev.is_running() {
                // The last restart failed.
                Self::restart_in_time(dev, rtnl);
            }
            return;
        };
        let moved = attributes.gid != running.gid && attributes.gid != Gid::ZERO;
        // Buffers are too small for a larger one; for a smaller one, the paths of connections are too wide.
        let narrower = attributes.active && attributes.ib_mtu < running.ib_mtu;
        let resized = attributes.ib_mtu > running.ib_mtu || (narrower && this.is_connected());
        if moved || resized {
            Self::restart(dev, rtnl);
            return;
        }
        if this.stuck.load(Relaxed) && Self::restart_in_time(dev, rtnl) {
            return;
        }
        if tx::is_ready(dev) && this.moved.xchg(false, Relaxed) {
            dev.notify_peers(rtnl);
        }
        tx::set_port_active(dev, attributes.active);
        if !attributes.active {
            dev.set_carrier(false);
        } else if !this.groups.lock().is_in(this.broadcast) {
            // The netdev has lost its IPv6 meanwhile, and with it our membership.
            tx::rejoin(dev);
        }
        dev.queue_task(PUMP, 0);
    }

    /// Takes the interface down and up, unless it was of late: later then. True: it was.
    fn restart_in_time(dev: &Device<Self>, rtnl: &mut Rtnl) -> bool {
        let this = dev.data();
        let wait = this.pace.get(rtnl).ask(now_ms());
        if wait > 0 {
            this.port.refresh(u32::try_from(wait).unwrap_or(u32::MAX));
            return false;
        }
        Self::restart(dev, rtnl);
        true
    }

    /// Takes the interface down and up; if it does not come up, it is tried again.
    fn restart(dev: &Device<Self>, rtnl: &mut Rtnl) {
        let this = dev.data();
        this.counters.slow.restarts.add_shared(1);
        if let Err(error) = dev.restart(rtnl) {
            netdev_log!(dev, Err, limited, "cannot restart: {error:?}\n");
            this.port.refresh(RESTART_MS);
        }
    }

    /// Asks the receive poll which sources there are.
    ///
    /// # Errors
    ///
    /// `ENETDOWN` while the interface is down, and `ENOMEM`.
    ///
    /// # Context
    ///
    /// Process context; sleeps.
    pub(crate) fn sources(&self) -> Result<Sources> {
        let rx = self.rx.lock().clone().ok_or(ENETDOWN)?;
        let known = self.counters.sequence.sources.get();
        let question = Question::Sources(Sources::new(usize::try_from(known)?)?);
        rx.ask(question)?.into_sources().ok_or(EINVAL)
    }

    /// The receive poll is to do as much at a time as it says now.
    pub(crate) fn budget_changed(dev: &Device<Self>, rtnl: &mut Rtnl) {
        let this = dev.data();
        if let Some(verbs) = this.verbs.get(rtnl).as_ref() {
            verbs.set_budget(this.settings.napi_budget());
        }
    }

    /// Gives the rings other sizes. A running interface goes on with new ones: it loses what is on
    /// the wire at the time, and nothing else.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a size that a ring cannot have, and those of making rings; the sizes are as
    /// before then.
    pub(crate) fn resize(dev: &Device<Self>, sizes: Sizes, rtnl: &mut Rtnl) -> Result {
        let this = dev.data();
        if !this.settings.queue_limits().allow(sizes) {
            return Err(EINVAL);
        }
        let before = this.settings.queue_sizes();
        if before == sizes {
            return Ok(());
        }
        this.settings.set_queue_sizes(sizes);
        let Some(verbs) = this
            .verbs
            .get(rtnl)
            .as_mut()
            .filter(|verbs| verbs.running().is_some())
        else {
            return Ok(());
        };
        dev.disable_queue();
        // What does not go on by itself begins anew.
        let result = verbs.resize(dev).or_else(|_| dev.restart(rtnl));
        if result.is_err() {
            // The queues may have become smaller meanwhile.
            let limits = this.settings.queue_limits();
            this.settings.set_queue_sizes(before.min(limits));
            // All is down: what there was before is made again.
            dev.set_carrier(false);
            Self::restart_soon(dev);
        }
        dev.start_queue();
        result
    }

    /// Sets the device's address: our QPN and `gid` (RFC 4391, section 9.1.1).
    fn set_address(dev: &Device<Self>, gid: Gid, rtnl: &mut Rtnl) {
        let this = dev.data();
        if gid == Gid::ZERO {
            return;
        }
        let Some(qpn) = this.verbs.get(rtnl).as_ref().map(Verbs::qpn) else {
            return;
        };
        let address = HwAddr::new(this.announced(), qpn, gid);
        dev.change_address(address.as_bytes(), rtnl);
    }

    /// What our address says of us.
    fn announced(&self) -> Flags {
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

    /// Whether it is in connected mode.
    pub(crate) fn is_connected(&self) -> bool {
        self.connected.load(Relaxed)
    }

    /// The largest MTU that it can have.
    fn mtu_limit(&self, attributes: &Attributes) -> u32 {
        if self.is_connected() {
            conn::MAX_MTU
        } else {
            attributes.ip_mtu()
        }
    }

    /// Multicast always goes by UD, whatever the MTU is.
    fn set_multicast_limit(&self, attributes: &Attributes) {
        let limit = if self.is_connected() {
            attributes.ip_mtu()
        } else {
            u32::MAX
        };
        self.multicast_limit.store(limit, Relaxed);
    }

    /// What is done in the stack's place.
    fn set_offloads(dev: &Device<Self>, rtnl: &mut Rtnl) {
        let connected = dev.data().is_connected();
        dev.set_offloads(
            Offloads {
                checksum: connected,
                gso: connected,
                rx_checksum: dev.data().port.device().checks_checksums(),
            },
            rtnl,
        );
        if connected {
            // To tell senders the MTU of their path.
            dev.keep_routes(rtnl);
        }
    }

    /// Changes the mode. A running interface goes down and up; its MTU stays as it is if it can.
    ///
    /// # Errors
    ///
    /// Those of the device, if it has not what connections need, and of coming up again. The interface is
    /// as it was then, and a line in the log says why.
    pub(crate) fn set_connected(dev: &Device<Self>, connected: bool, rtnl: &mut Rtnl) -> Result {
        if dev.data().is_connected() == connected {
            return Ok(());
        }
        if connected {
            Self::try_connected(dev, rtnl)?;
        }
        let mtu = dev.mtu();
        Self::change_mode(dev, connected, rtnl)?;
        let this = dev.data();
        let verbs = this.verbs.get(rtnl).as_ref();
        if verbs.and_then(Verbs::running).is_none() {
            let gid = this.port.attributes(rtnl).gid;
            Self::set_address(dev, gid, rtnl);
        } else {
            this.counters.slow.restarts.add_shared(1);
            if let Err(error) = dev.restart(rtnl) {
                netdev_log!(dev, Err, "cannot change the mode: {error:?}\n");
                Self::change_mode(dev, !connected, rtnl)?;
                if dev.mtu() != mtu {
                    dev.set_mtu(mtu, rtnl)?;
                }
                Self::restart(dev, rtnl);
                return Err(error);
            }
        }
        dev.notify_peers(rtnl);
        Ok(())
    }

    /// Packets are of another class from now on. A running interface goes down and up, since address handles and
    /// connections were made for the class before.
    pub(crate) fn class_changed(dev: &Device<Self>, rtnl: &mut Rtnl) {
        let this = dev.data();
        let verbs = this.verbs.get(rtnl).as_ref();
        if verbs.and_then(Verbs::running).is_some() {
            Self::restart(dev, rtnl);
        }
    }

    /// Whether there can be connections.
    fn try_connected(dev: &Device<Self>, rtnl: &mut Rtnl) -> Result {
        let this = dev.data();
        let verbs = this.verbs.get(rtnl).as_ref().ok_or(ENODEV)?;
        verbs.try_connected(dev).inspect_err(|error| {
            netdev_log!(
                dev,
                Warn,
                limited,
                "the RDMA device has not what connected mode needs: {error:?}\n"
            );
        })
    }

    /// Is in the other mode from now on, with what that allows. A running interface has to be restarted.
    ///
    /// # Errors
    ///
    /// Those of changing the MTU, which may be too large for it; all is as before then.
    fn change_mode(dev: &Device<Self>, connected: bool, rtnl: &mut Rtnl) -> Result {
        let this = dev.data();
        let attributes = this.port.attributes(rtnl);
        this.connected.store(connected, Relaxed);
        let limit = this.mtu_limit(&attributes);
        if dev.mtu() > limit {
            dev.set_mtu(limit, rtnl)
                .inspect_err(|_| this.connected.store(!connected, Relaxed))?;
        }
        Self::set_offloads(dev, rtnl);
        this.set_multicast_limit(&attributes);
        dev.set_mtu_limit(limit, rtnl);
        Ok(())
    }

    /// What connections may do was changed: those that there are end, and new ones are made.
    pub(crate) fn connections_changed(dev: &Device<Self>) {
        if let Some(tx) = dev.lock_tx().as_mut() {
            tx.end_connections(dev);
        }
    }

    /// The extensions were switched on or off: our address says so, and our neighbours are told.
    pub(crate) fn extensions_changed(dev: &Device<Self>, rtnl: &mut Rtnl) {
        let this = dev.data();
        tx::set_extensions(dev, this.settings.extensions());
        Self::connections_changed(dev);
        let running = this.verbs.get(rtnl).as_ref().and_then(Verbs::running);
        let gid = running.map_or(this.port.attributes(rtnl).gid, |running| running.gid);
        Self::set_address(dev, gid, rtnl);
        dev.notify_peers(rtnl);
    }
}

#[vtable]
impl Driver for Interface {
    const NAME: &'static CStr = c"ipoib_rs";
    const LAYOUT: Layout = Layout {
        arp_type: HwAddr::ARP_TYPE,
        tx_queue_len: 1000,
        watchdog_ms: 10_000,
    };

    type Tx = Tx;
    type Address = [u8; HwAddr::LEN];
    type Header = [u8; Header::LEN];

    /// RFC 4391, section 6. [`Driver::transmit`] takes the address in front of it off again.
    #[inline]
    fn header(proto: u16) -> Self::Header {
        Header::new(EtherType(proto)).to_bytes()
    }

    /// Multicast in connected mode, where the MTU is not its limit. A change of the mode is one of the
    /// address, with which the stack forgets the headers that it kept.
    #[inline]
    fn inspects(dev: &Device<Self>, dest: &Self::Address) -> bool {
        HwAddr(*dest).is_multicast() && dev.data().is_connected()
    }

    /// A multicast packet that does not get through ends here, where its sender is told.
    fn admits(dev: &Device<Self>, packet: &Outgoing<'_>, proto: u16) -> bool {
        dev.data().takes_multicast(packet, EtherType(proto))
    }

    fn init(dev: &Device<Self>, rtnl: &mut Rtnl) -> Result {
        let this = dev.data();
        let attributes = this.port.attributes(rtnl);
        let verbs = Verbs::new(dev, rtnl)?;
        let sg = verbs.max_sge() > 1;
        let qpn = verbs.qpn();
        let rx = verbs.rx();
        *this.verbs.get(rtnl) = Some(verbs);
        if this.is_connected() {
            Self::try_connected(dev, rtnl).inspect_err(|_| {
                this.verbs.get(rtnl).take();
            })?;
        }

        let limit = attributes.ip_mtu();
        let mtu = this.admin_mtu.get(rtnl).unwrap_or(limit);
        let max = this.mtu_limit(&attributes);
        dev.set_limits(mtu.min(max), mtu::MIN_IPV4, max, sg, rtnl);
        this.set_multicast_limit(&attributes);
        Self::set_offloads(dev, rtnl);
        dev.set_broadcast(this.broadcast.to_hwaddr().as_bytes(), rtnl);
        let address = HwAddr::new(this.announced(), qpn, attributes.gid);
        dev.set_address(address.as_bytes(), rtnl);
        if !this.is_child() {
            this.port.device().place(this.port.number(), dev, rtnl);
        }
        dev.set_carrier(false);
        this.port.add(dev, rtnl)?;
        *this.rx.lock() = Some(rx);
        Ok(())
    }

    fn uninit(dev: &Device<Self>, rtnl: &mut Rtnl) {
        let this = dev.data();
        this.port.remove(dev, rtnl);
        this.rx.lock().take();
        this.verbs.get(rtnl).take();
    }

    fn open(dev: &Device<Self>, rtnl: &mut Rtnl) -> Result {
        let this = dev.data();
        let attributes = this.port.attributes(rtnl);
        let verbs = this.verbs.get(rtnl).as_mut().ok_or(ENODEV)?;
        let gid = verbs.start(dev, &attributes)?;
        Self::set_address(dev, gid, rtnl);
        dev.start_queue();
        dev.queue_task(PUMP, 0);
        Ok(())
    }

    fn stop(dev: &Device<Self>, rtnl: &mut Rtnl) {
        let this = dev.data();
        dev.set_carrier(false);
        dev.disable_queue();
        if let Some(verbs) = this.verbs.get(rtnl).as_mut() {
            verbs.stop(dev);
        }
        // The work item may have set it once more before it ended.
        dev.set_carrier(false);
    }

    #[inline]
    fn transmit(dev: &Device<Self>, tx: &mut Tx, skb: TxSkb) -> Taken {
        tx.transmit(dev, skb)
    }

    fn transmit_timeout(dev: &Device<Self>) {
        Self::does_not_send(dev);
    }

    fn set_rx_mode(dev: &Device<Self>, groups: &AddressList<'_>) -> Result {
        dev.data().groups.lock().want(groups)?;
        tx::want_groups(dev);
        dev.queue_task(PUMP, 0);
        Ok(())
    }

    fn change_mtu(dev: &Device<Self>, mtu: u32, rtnl: &mut Rtnl) -> Result {
        let this = dev.data();
        let attributes = this.port.attributes(rtnl);
        if mtu > this.mtu_limit(&attributes) || mtu < mtu::MIN_IPV4 {
            return Err(EINVAL);
        }
        *this.admin_mtu.get(rtnl) = (mtu != attributes.ip_mtu()).then_some(mtu);
        tx::set_mtu(dev, mtu, attributes.ip_mtu());
        Ok(())
    }

    fn lower_ifindex(dev: &Device<Self>) -> i32 {
        let this = dev.data();
        if let Some(parent) = &this.get_ref().parent {
            return parent.ifindex;
        }
        this.port.lower_ifindex()
    }

    fn with_lower(dev: &Device<Self>, f: &mut dyn FnMut(&RawDevice)) {
        let this = dev.data();
        if !this.is_child() {
            this.port.device().with_netdev(this.port.number(), f);
        }
    }

    fn stats(dev: &Device<Self>) -> LinkStats {
        dev.data().counters.link_stats()
    }
}

#[vtable]
impl Ethtool for Interface {
    const COUNTERS: &'static [&'static str] = &counters::NAMES;

    fn counters(dev: &Device<Self>, out: &mut [u64]) {
        dev.data().counters.fill(out);
    }

    fn identity(dev: &Device<Self>, identity: &mut Identity<'_>) {
        let this = dev.data();
        this.port.shared().with_name(|name| identity.set_bus(name));
        identity.set_firmware(this.port.device().firmware(&mut [0; FIRMWARE_LEN]));
    }

    fn speed_mbps(dev: &Device<Self>, rtnl: &mut Rtnl) -> u32 {
        dev.data().port.attributes(rtnl).speed_mbps
    }

    fn ring_sizes(dev: &Device<Self>) -> RingSizes {
        let this = dev.data();
        let (sizes, limits) = (this.settings.queue_sizes(), this.settings.queue_limits());
        RingSizes {
            receive: sizes.receive,
            transmit: sizes.send,
            max_receive: limits.receive,
            max_transmit: limits.send,
        }
    }

    fn moderation(dev: &Device<Self>) -> Moderation {
        dev.data().settings.moderation()
    }

    fn set_moderation(
        dev: &Device<Self>,
        moderation: Moderation,
        extack: &Extack<'_>,
        rtnl: &mut Rtnl,
    ) -> Result {
        let this = dev.data();
        let verbs = this.verbs.get(rtnl).as_ref().ok_or(ENODEV)?;
        if moderation == this.settings.moderation() {
            return Ok(());
        }
        verbs.moderate(moderation).map_err(|error| {
            extack.refuse(
                c"The RDMA device does not moderate completions; napi_defer_hard_irqs may do",
                error,
            )
        })?;
        this.settings.set_moderation(moderation);
        Ok(())
    }

    fn set_ring_sizes(
        dev: &Device<Self>,
        receive: u32,
        transmit: u32,
        extack: &Extack<'_>,
        rtnl: &mut Rtnl,
    ) -> Result {
        let sizes = Sizes {
            receive,
            send: transmit,
        };
        Self::resize(dev, sizes, rtnl).inspect_err(|error| {
            if *error == EINVAL {
                extack.say(c"A ring's size is a power of two, 64 at least");
            }
        })
    }
}

#[vtable]
impl Tasks for Interface {
    const TASKS: usize = 4;

    fn task(dev: &Device<Self>, id: usize) {
        match id {
            PUMP => paths::pump(dev),
            RECOVER => tx::recover(dev),
            CONNECT => connect::run(dev),
            WATCH => tx::watch(dev),
            _ => {}
        }
    }
}
