// SPDX-License-Identifier: GPL-2.0

//! A driver whose devices do what a test wants, and note what happens to them.

use core::ptr::NonNull;

use ipoib_sys::bindings;
use kernel::ffi::c_int;
use kernel::prelude::*;
use kernel::str::CStr;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::Arc;

use crate::address::AddressList;
use crate::device::{Device, Driver, Layout, RawDevice, Taken, ADDR_LEN, HEADER_LEN};
use crate::ethtool::{Identity, Moderation, RingSizes};
use crate::header::Outgoing;
use crate::link::{self, Attributes, Extack, Link, Message, Request};
use crate::modes::Modes;
use crate::rtnl::Rtnl;
use crate::skb::{DropReason, TxSkb};
use crate::stats::LinkStats;

/// Counts of a device's events.
pub(crate) struct Seen {
    pub(crate) tasks: Atomic<u32>,
    pub(crate) uninits: Atomic<u32>,
    pub(crate) drops: Atomic<u32>,
}

impl Seen {
    /// Nothing yet.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let seen = Self {
            tasks: Atomic::new(0),
            uninits: Atomic::new(0),
            drops: Atomic::new(0),
        };
        Ok(Arc::new(seen, GFP_KERNEL)?)
    }
}

/// Callback that runs while a device is being registered.
pub(crate) type Init = fn(&Device<Dummy>) -> Result;

/// The data of such a device.
pub(crate) struct Dummy {
    pub(crate) seen: Arc<Seen>,
    init: Init,
}

impl Drop for Dummy {
    fn drop(&mut self) {
        self.seen.drops.fetch_add(1, Relaxed);
    }
}

/// A registered device. Dropping it unregisters it.
pub(crate) struct Registered(NonNull<bindings::net_device>);

impl Registered {
    /// Makes and registers one.
    pub(crate) fn new(seen: &Arc<Seen>, init: Init) -> Result<Self> {
        let _rtnl = Rtnl::lock();
        // SAFETY: The private area has the size that `setup` wants.
        let raw = NonNull::new(unsafe {
            bindings::alloc_netdev_mqs(
                Device::<Dummy>::PRIVATE_SIZE as c_int,
                c"ipoib_kunit%d".as_char_ptr(),
                bindings::NET_NAME_ENUM as u8,
                Some(link::setup::<Dummy>),
                1,
                1,
            )
        })
        .ok_or(ENOMEM)?;
        let seen = seen.clone();
        // SAFETY: `setup` has seen it, nobody else knows it, and RTNL is held.
        unsafe { link::register(raw.as_ptr(), Ok(Dummy { seen, init })) }
            // SAFETY: It is not registered, and has no data any more.
            .inspect_err(|_| unsafe { bindings::free_netdev(raw.as_ptr()) })?;
        Ok(Self(raw))
    }

    /// The device.
    pub(crate) fn device(&self) -> &Device<Dummy> {
        // SAFETY: Registered until this is dropped.
        unsafe { Device::from_raw(self.0.as_ptr()) }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let _rtnl = Rtnl::lock();
        // SAFETY: It is registered, and RTNL is held.
        unsafe { bindings::unregister_netdevice_queue(self.0.as_ptr(), core::ptr::null_mut()) };
    }
}

impl Driver for Dummy {
    const NAME: &'static CStr = c"ipoib_kunit";
    const LAYOUT: Layout = Layout {
        arp_type: bindings::ARPHRD_INFINIBAND as u16,
        addr_len: ADDR_LEN as u8,
        header_len: HEADER_LEN as u8,
        tx_queue_len: 16,
        watchdog_ms: 10_000,
    };
    const COUNTERS: &'static [&'static str] = &[];
    const TASKS: usize = 1;
    type Tx = ();
    type Control = ();

    fn header(proto: u16) -> [u8; HEADER_LEN - ADDR_LEN] {
        let [high, low] = proto.to_be_bytes();
        [high, low, 0, 0]
    }

    /// Those whose first octet is odd.
    fn inspects(_dev: &Device<Self>, dest: &[u8; ADDR_LEN]) -> bool {
        dest[0] & 1 != 0
    }

    fn admits(_dev: &Device<Self>, packet: &Outgoing<'_>, _proto: u16) -> bool {
        packet.fits(100)
    }

    fn init(dev: &Device<Self>, _rtnl: &mut Rtnl) -> Result {
        (dev.data().init)(dev)
    }

    fn uninit(dev: &Device<Self>, _rtnl: &mut Rtnl) {
        dev.data().seen.uninits.fetch_add(1, Relaxed);
    }

    fn open(_dev: &Device<Self>, _rtnl: &mut Rtnl) -> Result {
        Ok(())
    }

    fn stop(_dev: &Device<Self>, _rtnl: &mut Rtnl) {}

    fn transmit(_dev: &Device<Self>, _tx: &mut (), skb: TxSkb) -> Taken {
        skb.drop_reason(DropReason::Other);
        Taken::TAKEN
    }

    fn transmit_timeout(_dev: &Device<Self>) {}

    fn set_rx_mode(_dev: &Device<Self>, _groups: &AddressList<'_>) -> Result {
        Ok(())
    }

    fn change_mtu(_dev: &Device<Self>, _mtu: u32, _rtnl: &mut Rtnl) -> Result {
        Ok(())
    }

    fn lower_ifindex(_dev: &Device<Self>) -> i32 {
        0
    }

    fn with_lower(_dev: &Device<Self>, _f: &mut dyn FnMut(&RawDevice)) {}

    fn stats(_dev: &Device<Self>) -> LinkStats {
        LinkStats::default()
    }

    fn counters(_dev: &Device<Self>, _out: &mut [u64]) {}

    fn identity(_dev: &Device<Self>, _identity: &mut Identity<'_>) {}

    fn speed_mbps(_dev: &Device<Self>, _rtnl: &mut Rtnl) -> u32 {
        0
    }

    fn ring_sizes(_dev: &Device<Self>) -> RingSizes {
        RingSizes {
            receive: 1,
            transmit: 1,
            max_receive: 1,
            max_transmit: 1,
        }
    }

    fn moderation(_dev: &Device<Self>) -> Moderation {
        Moderation {
            usecs: 0,
            frames: 0,
        }
    }

    fn set_moderation(
        _dev: &Device<Self>,
        _moderation: Moderation,
        _extack: &Extack<'_>,
        _rtnl: &mut Rtnl,
    ) -> Result {
        Ok(())
    }

    fn set_ring_sizes(
        _dev: &Device<Self>,
        _receive: u32,
        _transmit: u32,
        _extack: &Extack<'_>,
        _rtnl: &mut Rtnl,
    ) -> Result {
        Ok(())
    }

    fn task(dev: &Device<Self>, _id: usize) {
        dev.data().seen.tasks.fetch_add(1, Relaxed);
    }
}

impl Modes for Dummy {
    fn mode(_dev: &Device<Self>) -> &'static CStr {
        c"only"
    }

    fn set_mode(_dev: &Device<Self>, _mode: &[u8], _rtnl: &mut Rtnl) -> Result {
        Err(EINVAL)
    }
}

impl Link for Dummy {
    const ATTRIBUTES: u16 = 0;

    fn validate(_attributes: &Attributes<'_>, _extack: &Extack<'_>) -> Result {
        Ok(())
    }

    fn create(_request: &Request<'_>, _rtnl: &mut Rtnl) -> Result<impl PinInit<Self, Error>> {
        let seen = Seen::new()?;
        let init: Init = |_| Ok(());
        Ok(Ok(Self { seen, init }))
    }

    fn change(
        _dev: &Device<Self>,
        _attributes: &Attributes<'_>,
        _extack: &Extack<'_>,
        _rtnl: &mut Rtnl,
    ) -> Result {
        Ok(())
    }

    fn dependents(_dev: &Device<Self>, _rtnl: &mut Rtnl, _f: &mut dyn FnMut(&Device<Self>)) {}

    fn describe(_dev: &Device<Self>, _message: &mut Message<'_>) -> Result {
        Ok(())
    }
}
