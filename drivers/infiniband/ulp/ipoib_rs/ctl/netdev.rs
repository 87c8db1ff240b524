// SPDX-License-Identifier: GPL-2.0

//! The `net_device`: the callbacks of the stack.

use ipoib_netdev::address::AddressList;
use ipoib_netdev::device::{Device, Driver, Layout, RawDevice, Taken, Tasks};
use ipoib_netdev::ethtool::{Ethtool, Identity, Moderation, RingSizes};
use ipoib_netdev::header::Outgoing;
use ipoib_netdev::link::Extack;
use ipoib_netdev::netdev_log;
use ipoib_netdev::rtnl::Rtnl;
use ipoib_netdev::skb::TxSkb;
use ipoib_netdev::stats::{LinkStats, QueueStats};
use ipoib_proto::header::{EtherType, Header};
use ipoib_proto::hwaddr::HwAddr;
use ipoib_proto::mtu;
use ipoib_proto::pace::Pace;
use ipoib_proto::sizes::Sizes;
use ipoib_rdma::device::FIRMWARE_LEN;
use kernel::prelude::*;
use kernel::str::CStr;
use kernel::sync::atomic::Relaxed;

use crate::base::counters;
use crate::base::interface::{Interface, RETRY_MS};
use crate::base::work::Work;
use crate::ctl::changes::{self, Control};
use crate::ctl::verbs::Verbs;
use crate::ctl::{children, connect, health, ports, resolve};
use crate::data::tx::Tx;

#[vtable]
impl Driver for Interface {
    const NAME: &'static CStr = c"ipoib_rs";
    const LAYOUT: Layout = Layout {
        arp_type: HwAddr::ARP_TYPE,
        tx_queue_len: 1000,
        watchdog_ms: 10_000,
    };

    type Tx = Tx;
    type Control = Control;
    type Front = ipoib_module::Decoy;
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
    fn admit(dev: &Device<Self>, packet: &Outgoing<'_>, proto: u16) -> bool {
        dev.data().admit_multicast(packet, EtherType(proto))
    }

    fn init(dev: &Device<Self>, rtnl: &mut Rtnl) -> Result {
        let this = dev.data();
        let attributes = this.port.attributes(rtnl);
        let verbs = Verbs::new(dev, rtnl)?;
        let sg = verbs.max_sge > 1;
        let qpn = verbs.qpn;
        if this.is_connected() {
            Self::check_connected(dev, &verbs)?;
        }
        *dev.control(rtnl) = Some(Control {
            verbs,
            admin_mtu: this.initial_mtu,
            pace: Pace::NEW,
            lid: attributes.lid,
        });

        let mtu = this.mtu_for(this.initial_mtu, &attributes);
        let max = this.mtu_limit(&attributes);
        dev.set_limits(mtu, mtu::MIN_IPV4, max, sg, rtnl);
        this.set_multicast_limit(&attributes);
        Self::set_offloads(dev, rtnl);
        this.follow_scope(&HwAddr(dev.broadcast(rtnl)), rtnl);
        dev.set_broadcast(this.broadcast().to_hwaddr().as_bytes(), rtnl);
        let given = HwAddr(dev.address()).gid().guid();
        // systemd-networkd makes one up, which the port will never have.
        let is_known = given != 0 && this.port.gid(given, attributes.gid).is_ok();
        if is_known && this.port.is_infiniband() {
            this.set_guid(given, &attributes);
        }
        let address = HwAddr::new(this.flags(), qpn, this.own_gid(attributes.gid));
        dev.set_address(address.as_bytes(), rtnl);
        // mlx4 and mlx5 take what is at this place for the Ethernet device of a RoCE port, and a child would have the name
        // of its parent.
        if this.port.is_infiniband() && !this.is_child() {
            this.port.device().place(this.port.number(), dev, rtnl);
        }
        dev.set_carrier(false);
        ports::add(dev, rtnl)
    }

    fn uninit(dev: &Device<Self>, rtnl: &mut Rtnl) {
        if ports::remove(dev, rtnl) {
            children::tend_soon(rtnl);
        }
        dev.control(rtnl).take();
        // They refer to the device.
        dev.data().reaper.flush();
        dev.data().forget_parent();
        // For tests, which add them up.
        if cfg!(debug_assertions) {
            let mut values = [0; counters::NAMES.len()];
            <Self as Ethtool>::counters(dev, &mut values);
            counters::tell(dev, &values);
        }
    }

    fn open(dev: &Device<Self>, rtnl: &mut Rtnl) -> Result {
        let this = dev.data();
        let attributes = this.port.attributes(rtnl);
        let control = dev.control(rtnl).as_mut().ok_or(ENODEV)?;
        Self::watch_gid(dev, &attributes);
        if this.lacks_pkey() {
            netdev_log!(
                dev,
                Info,
                limited,
                "no carrier: the port is not a member of partition {:#06x}\n",
                this.pkey().get()
            );
            // An event says when it is.
            return Ok(());
        }
        if this.lacks_gid(attributes.gid) {
            Self::tell_no_gid(dev);
            // Rings just taken down may have held the place of another GID.
            this.port.refresh(RETRY_MS);
            return Ok(());
        }
        let gid = control.verbs.start(dev, &attributes)?;
        Self::set_address(dev, gid, rtnl);
        dev.start_queue();
        Self::queue(dev, Work::Paths, 0);
        Ok(())
    }

    fn stop(dev: &Device<Self>, rtnl: &mut Rtnl) {
        dev.set_carrier(false);
        dev.disable_queue();
        if let Some(control) = dev.control(rtnl) {
            control.verbs.stop(dev);
        }
        // The work item may have set it once more before it ended.
        dev.set_carrier(false);
    }

    #[inline]
    fn transmit(dev: &Device<Self>, tx: Option<&mut Tx>, skb: TxSkb) -> Taken {
        match tx {
            Some(tx) => tx.transmit(dev, skb),
            None => Tx::no_queue(dev, skb),
        }
    }

    fn transmit_timeout(dev: &Device<Self>) {
        dev.data().timed_out.store(true, Relaxed);
        Self::watch_sends(dev);
    }

    fn set_rx_mode(dev: &Device<Self>, groups: &AddressList<'_>) -> Result {
        dev.data().groups.lock().want(groups)?;
        changes::want_groups(dev);
        Self::queue(dev, Work::Paths, 0);
        Ok(())
    }

    /// Remembers an MTU that the broadcast group does not allow yet, and sets it when the group does.
    fn change_mtu(dev: &Device<Self>, mtu: u32, rtnl: &mut Rtnl) -> Result<u32> {
        let this = dev.data();
        let attributes = this.port.attributes(rtnl);
        if mtu > this.mtu_limit(&attributes) || mtu < mtu::MIN_IPV4 {
            return Err(EINVAL);
        }
        let limit = this.datagram_mtu(attributes.ib_mtu);
        if let Some(control) = dev.control(rtnl) {
            control.admin_mtu = (mtu != limit).then_some(mtu);
        }
        let mtu = this.mtu_for(Some(mtu), &attributes);
        changes::set_mtu(dev, mtu, limit);
        Ok(mtu)
    }

    fn take_address(dev: &Device<Self>, address: &[u8; HwAddr::LEN], rtnl: &mut Rtnl) -> Result {
        children::set_guid(dev, &HwAddr(*address), rtnl)
    }

    fn lower_ifindex(dev: &Device<Self>) -> i32 {
        // One that stands on no other interface has its own, as the stack has it.
        match dev.data().lower_ifindex() {
            0 => dev.ifindex(),
            lower => lower,
        }
    }

    fn with_lower(dev: &Device<Self>, f: &mut dyn FnMut(&RawDevice)) {
        let this = dev.data();
        if this.is_child() {
            this.with_parent(f);
        } else {
            this.port.device().with_netdev(this.port.number(), f);
        }
    }

    fn stats(dev: &Device<Self>) -> LinkStats {
        dev.data().counters.link_stats()
    }

    fn queue_stats(dev: &Device<Self>) -> QueueStats {
        dev.data().counters.queue_stats()
    }
}

#[vtable]
impl Ethtool for Interface {
    const COUNTERS: &'static [&'static str] = &counters::NAMES;

    fn counters(dev: &Device<Self>, out: &mut [u64]) {
        let counters = &dev.data().get_ref().counters;
        {
            let mut tx = dev.lock_tx();
            let (waiting, posted) = tx.as_mut().map_or((0, 0), Tx::now);
            counters.tx.set_now(waiting, posted);
        }
        counters.fill(out);
    }

    fn identity(dev: &Device<Self>, identity: &mut Identity<'_>) {
        let this = dev.data();
        // Soft-RoCE sits on no bus.
        this.port.device().with_parent_name(|parent| match parent {
            Some(parent) => identity.set_bus(parent),
            None => this.port.shared().with_name(|name| identity.set_bus(name)),
        });
        identity.set_firmware(this.port.device().firmware(&mut [0; FIRMWARE_LEN]));
    }

    fn speed_mbps(dev: &Device<Self>, rtnl: &mut Rtnl) -> u32 {
        if !dev.can_send() {
            return 0;
        }
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
        let control = dev.control(rtnl).as_ref().ok_or(ENODEV)?;
        let before = this.settings.moderation();
        if moderation == before {
            return Ok(());
        }
        control
            .verbs
            .moderate(moderation, before)
            .map_err(|error| {
                extack.refuse(
                    c"The RDMA device does not moderate completions; napi_defer_hard_irqs may help",
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
        if !dev.data().settings.queue_limits().allow(sizes) {
            let text = c"Ring sizes must be powers of two, at least 64";
            return Err(extack.refuse(text, EINVAL));
        }
        Self::resize(dev, sizes, rtnl).inspect_err(|_| {
            extack.say(c"Cannot make rings of this size");
        })
    }
}

#[vtable]
impl Tasks for Interface {
    const TASKS: usize = Work::ALL.len();

    fn task(dev: &Device<Self>, id: usize) {
        match Work::ALL.get(id) {
            Some(Work::Paths) => resolve::run(dev),
            Some(Work::Recover) => health::recover(dev),
            Some(Work::Connections) => connect::run(dev),
            Some(Work::Watch) => health::watch(dev),
            None => {}
        }
    }
}
