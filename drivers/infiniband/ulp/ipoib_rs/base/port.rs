// SPDX-License-Identifier: GPL-2.0

//! A port of an RDMA device, and its attributes.
//!
//! `ib_query_port` takes RTNL on RoCE, so it is never called under RTNL: a work item ([`Refresh`]) reads a
//! port's attributes when the device comes and at each of its events, and stores them in [`Port`].

use ipoib_netdev::features::RxChecksum;
use ipoib_netdev::rtnl::{Rtnl, RtnlCell};
use ipoib_netdev::task::Task;
use ipoib_proto::gid::{self, Gid, Owner};
use ipoib_proto::pkey::PKey;
use ipoib_rdma::{Device as RdmaDevice, Event, EventSink, GidAddress, GidOwner, GidRef};
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::Arc;

use crate::base::shared::Shared;

/// Milliseconds until a port is read again that could not be read, or is without a GID.
pub(crate) const REREAD_MS: u32 = 1000;

/// Milliseconds until a port is read again whose GIDs are tentative addresses: the kernel has no notifier for the end
/// of duplicate address detection, which takes a second or two.
const DAD_MS: u32 = 100;

/// The IB MTU of a port that has never been active.
const SMALLEST_IB_MTU: u32 = 256;

/// Attributes of a port, which change with it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// True if the port can send and receive.
    pub(crate) active: bool,
    /// The active IB MTU: bytes of the largest UD message.
    pub(crate) ib_mtu: u32,
    /// The largest IB MTU that the port may get: on RoCE the active one, which is the netdev's.
    pub(crate) max_ib_mtu: u32,
    /// The GID that we send from; [`Gid::ZERO`] if there is none.
    pub(crate) gid: Gid,
    /// Link speed in Mbit/s.
    pub(crate) speed_mbps: u32,
    /// The port's LID; 0 for none.
    pub(crate) lid: u16,
}

/// The link layer of a port.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkLayer {
    /// GIDs are addresses of a netdev, and the IP stack knows the way to others and joins groups.
    Roce,
    /// The port has a GID by itself, and the subnet's administrator knows the way to others and keeps groups.
    Infiniband,
}

impl LinkLayer {
    /// That of a port, if it is one that interfaces can use.
    pub(crate) fn of(device: &RdmaDevice, number: u32) -> Option<Self> {
        if device.is_roce(number) {
            Some(Self::Roce)
        } else {
            device.is_infiniband(number).then_some(Self::Infiniband)
        }
    }
}

/// A port of an RDMA device.
pub(crate) struct Port {
    device: RdmaDevice,
    number: u32,
    layer: LinkLayer,
    refresher: Arc<Refresher>,
    shared: Arc<Shared>,
    /// The index of the port's netdev, or 0: asked for from any context, where the RDMA core
    /// cannot be.
    lower_ifindex: Atomic<i32>,
    attributes: RtnlCell<Attributes>,
}

impl Port {
    /// Creates the entry of port `number`, with what can be read of it now.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    ///
    /// # Context
    ///
    /// May sleep; never under RTNL.
    pub(crate) fn new(
        device: &RdmaDevice,
        (number, layer): (u32, LinkLayer),
        refresher: &Arc<Refresher>,
        shared: &Arc<Shared>,
    ) -> Result<Arc<Self>> {
        // A port without carrier may have no GID yet; it is read again at its events.
        let attributes = Self::read(device, (number, layer), Gid::ZERO).unwrap_or(Attributes {
            active: false,
            ib_mtu: SMALLEST_IB_MTU,
            max_ib_mtu: SMALLEST_IB_MTU,
            gid: Gid::ZERO,
            speed_mbps: 0,
            lid: 0,
        });
        let port = Self {
            device: device.clone(),
            number,
            layer,
            refresher: refresher.clone(),
            shared: shared.clone(),
            lower_ifindex: Atomic::new(device.netdev_ifindex(number).unwrap_or(0)),
            attributes: RtnlCell::new(attributes),
        };
        Ok(Arc::new(port, GFP_KERNEL)?)
    }

    /// The RDMA device.
    pub(crate) fn device(&self) -> &RdmaDevice {
        &self.device
    }

    /// Returns true if the device verifies the checksums of received datagrams. Where a datagram is an IP packet
    /// itself, as on Ethernet, it may mean those of that.
    pub(crate) fn checks_checksums(&self) -> RxChecksum {
        match (
            self.device.checks_checksums(),
            self.device.is_roce(self.number),
        ) {
            (false, _) => RxChecksum::No,
            (true, true) => RxChecksum::Offered,
            (true, false) => RxChecksum::Yes,
        }
    }

    /// The port's number, from 1.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// The link layer.
    pub(crate) fn layer(&self) -> LinkLayer {
        self.layer
    }

    /// Returns true if it is a port of InfiniBand.
    pub(crate) fn is_infiniband(&self) -> bool {
        self.layer == LinkLayer::Infiniband
    }

    /// The GID to send from: that of the GUID, unless it is 0. On RoCE, that is `in_use` if it will do.
    ///
    /// # Errors
    ///
    /// Those of [`choose_gid`]; `ENODEV` if the port has not the GUID.
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn gid(&self, guid: u64, in_use: Gid) -> Result<GidRef> {
        let own = choose_gid(&self.device, (self.number, self.layer), in_use)?;
        if guid == 0 {
            return Ok(own);
        }
        let wanted = Gid(own.raw()).with_guid(guid);
        let mut gids = self.device.gids(self.number);
        gids.find(|gid| Gid(gid.raw()) == wanted).ok_or(ENODEV)
    }

    /// The index of a partition in the port's table, whatever kind of member the port is.
    ///
    /// # Errors
    ///
    /// `ENOENT` if it is not there.
    pub(crate) fn find_pkey(&self, pkey: PKey) -> Result<u16> {
        self.device.find_pkey(self.number, pkey.get())
    }

    /// The partition that comes first in the port's table, as a full member; none while there is no key.
    pub(crate) fn first_pkey(&self) -> Option<PKey> {
        let raw = self.device.pkey_at(self.number, 0).ok()?;
        PKey::new(raw).map(PKey::to_full)
    }

    /// The index of the port's netdev when that was last looked at, or 0.
    pub(crate) fn lower_ifindex(&self) -> i32 {
        self.lower_ifindex.load(Relaxed)
    }

    /// State shared by all ports of its device.
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The attributes as last read.
    pub(crate) fn attributes(&self, rtnl: &mut Rtnl) -> Attributes {
        *self.attributes.get(rtnl)
    }

    /// Reads the attributes again, in `delay_ms`, and tells the interfaces.
    ///
    /// # Context
    ///
    /// Any.
    pub(crate) fn refresh(&self, delay_ms: u32) {
        self.refresher.queue(delay_ms);
    }

    /// Reads the attributes again. True: paths may lead elsewhere.
    ///
    /// # Context
    ///
    /// Takes RTNL; sleeps.
    pub(crate) fn update(&self) -> bool {
        let moved = self.refresher.take_moved(self.number);
        let place = (self.number, self.layer);
        let in_use = self.attributes(&mut Rtnl::lock()).gid;
        let mut read = Self::read(&self.device, place, in_use);
        let has_none = read.is_ok_and(|now| now.gid == Gid::ZERO);
        if has_none && self.has_tentative_gid() {
            self.refresh(DAD_MS);
        } else if has_none && in_use == Gid::ZERO {
            // The interfaces have heard of that, and do not hold the GID before any more.
            self.device.rescan_gids(self.number);
            read = Self::read(&self.device, place, in_use);
        }
        let ifindex = self.device.netdev_ifindex(self.number).unwrap_or(0);
        self.lower_ifindex.store(ifindex, Relaxed);
        let mut rtnl = Rtnl::lock();
        let known = self.attributes.get(&mut rtnl);
        match read {
            Ok(attributes) if attributes.active || self.layer == LinkLayer::Roce => {
                *known = attributes;
            }
            // The subnet manager has yet to set up the rest.
            Ok(attributes) => {
                known.active = false;
                known.gid = attributes.gid;
            }
            // The last state read is likely to hold still.
            Err(_) => self.refresh(REREAD_MS),
        }
        moved
    }

    /// Returns true if the port is to have a GID when duplicate address detection has ended.
    fn has_tentative_gid(&self) -> bool {
        let mut gids = self.device.gids(self.number).filter(GidRef::is_rocev2);
        gids.any(|gid| gid.address() == GidAddress::Tentative && rank(&gid, Gid::ZERO).is_some())
    }

    /// # Errors
    ///
    /// Those of the device. On InfiniBand `ENODATA`, too: while the RDMA core replaces the GID by itself.
    ///
    /// # Context
    ///
    /// May sleep; never under RTNL.
    fn read(
        device: &RdmaDevice,
        (number, layer): (u32, LinkLayer),
        in_use: Gid,
    ) -> Result<Attributes> {
        let attributes = device.query_port(number)?;
        // The kernel announces that it removes an address before the address is gone, and holds RTNL until then.
        drop(Rtnl::lock());
        let gid = match choose_gid(device, (number, layer), in_use) {
            Ok(gid) => Gid(gid.raw()),
            Err(error) if layer == LinkLayer::Infiniband => return Err(error),
            Err(_) => Gid::ZERO,
        };
        let (now, most) = (attributes.active_mtu_bytes, attributes.max_mtu_bytes);
        let (ib_mtu, max_ib_mtu) = match layer {
            // That of the netdev.
            LinkLayer::Roce => (now, now),
            LinkLayer::Infiniband if attributes.active => (now, most.max(now)),
            LinkLayer::Infiniband => (most, most),
        };
        Ok(Attributes {
            // Without a GID nothing can be sent.
            active: attributes.active && gid != Gid::ZERO,
            ib_mtu,
            max_ib_mtu,
            gid,
            speed_mbps: attributes.speed_mbps,
            lid: attributes.lid,
        })
    }
}

/// The GID to send from: on RoCE one that a network device has as an address, `in_use` if it does.
///
/// # Errors
///
/// `ENODEV` or `ENODATA` if there is none that would do; `EINVAL` if there is no such port.
///
/// # Context
///
/// Process context.
fn choose_gid(device: &RdmaDevice, (port, layer): (u32, LinkLayer), in_use: Gid) -> Result<GidRef> {
    if layer == LinkLayer::Infiniband {
        // That of the port's GUID, which the subnet's administrator knows.
        return device.gid(port, 0);
    }
    let mut best = None;
    for gid in device.gids(port).filter(GidRef::is_rocev2) {
        // Of equal ones the first in the table.
        if let Some(rank) = rank(&gid, in_use) {
            let better = best.as_ref().is_none_or(|(least, _)| rank > *least);
            if better && gid.address() == GidAddress::Assigned {
                best = Some((rank, gid));
            }
        }
    }
    Ok(best.ok_or(ENODEV)?.1)
}

/// Returns the rank of a GID as the one to send from, once a network device has it as an address; see [`gid::rank`].
fn rank(gid: &GidRef, in_use: Gid) -> Option<(bool, u8)> {
    let owner = match gid.owner() {
        GidOwner::Port => Owner::Port,
        GidOwner::Bond => Owner::Bond,
        GidOwner::Other => Owner::Other,
    };
    gid::rank(&Gid(gid.raw()), owner, &in_use)
}

/// The work item that keeps a device's ports up to date.
pub(crate) struct Refresher {
    task: Task<Refresh>,
    /// A bit for each port whose paths may lead elsewhere.
    moved: Atomic<u64>,
}

/// State of a [`Refresher`]; its work, which tells the interfaces, is in `ctl/ports.rs`.
pub(crate) struct Refresh {
    pub(crate) device: RdmaDevice,
}

impl Refresher {
    /// Creates the work item, not queued.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(device: &RdmaDevice) -> Result<Arc<Self>> {
        let task = Task::new(Refresh {
            device: device.clone(),
        })?;
        let moved = Atomic::new(0);
        Ok(Arc::new(Self { task, moved }, GFP_KERNEL)?)
    }

    /// Reads the ports in `delay_ms`.
    ///
    /// # Context
    ///
    /// Any.
    pub(crate) fn queue(&self, delay_ms: u32) {
        self.task.queue(delay_ms);
    }

    /// Waits for the work item and keeps it from running again.
    ///
    /// # Context
    ///
    /// Process context, without RTNL; sleeps.
    pub(crate) fn end(&self) {
        self.task.end();
    }
}

impl Refresher {
    /// The bit of a port; ports beyond the last one share it.
    fn bit(port: u32) -> u64 {
        1 << port.min(u64::BITS - 1)
    }

    fn set_moved(&self, port: u32) {
        self.change_moved(|moved| moved | Self::bit(port));
    }

    fn take_moved(&self, port: u32) -> bool {
        let bit = Self::bit(port);
        self.change_moved(|moved| moved & !bit) & bit != 0
    }

    /// Changes the bits of ports; returns what they were.
    fn change_moved(&self, change: impl Fn(u64) -> u64) -> u64 {
        let mut moved = self.moved.load(Relaxed);
        while let Err(other) = self.moved.cmpxchg(moved, change(moved), Relaxed) {
            moved = other;
        }
        moved
    }
}

impl EventSink for Refresher {
    fn event(&self, event: Event) {
        match event {
            Event::Other => return,
            Event::PortActive(port) | Event::LidChange(port) | Event::ClientReregister(port) => {
                self.set_moved(port);
            }
            _ => {}
        }
        self.queue(0);
    }
}
