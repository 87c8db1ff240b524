// SPDX-License-Identifier: GPL-2.0

//! A driver whose devices do what a test wants, and note what happens to them.

use core::ptr::NonNull;

use ipoib_sys::bindings;
use kernel::ffi::c_int;
use kernel::prelude::*;
use kernel::str::CStr;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::Arc;

use crate::device::{Device, Driver, Layout, OwnedDevice, Taken, Tasks};
use crate::ethtool::Ethtool;
use crate::files::Files;
use crate::header::Outgoing;
use crate::link::{self, Link, Request};
use crate::rtnl::{Rtnl, RtnlCell};
use crate::skb::{DropReason, TxSkb};
use crate::vf::{Config, Functions, Guid, Stats};

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
    /// A device that has to go when this one goes.
    pub(crate) dependent: RtnlCell<Option<OwnedDevice<Dummy>>>,
}

impl Dummy {
    pub(crate) fn new(seen: &Arc<Seen>, init: Init) -> Self {
        Self {
            seen: seen.clone(),
            init,
            dependent: RtnlCell::new(None),
        }
    }
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
        Self::with_queues(seen, init, 1)
    }

    /// Makes one with `transmit` queues for sending, of which it uses one, and registers it.
    pub(crate) fn with_queues(seen: &Arc<Seen>, init: Init, transmit: u32) -> Result<Self> {
        let _rtnl = Rtnl::lock();
        // SAFETY: The private area has the size that `setup` wants.
        let raw = NonNull::new(unsafe {
            bindings::alloc_netdev_mqs(
                Device::<Dummy>::PRIVATE_SIZE as c_int,
                c"kunit%d".as_char_ptr(),
                bindings::NET_NAME_ENUM as u8,
                Some(link::setup::<Dummy>),
                transmit,
                1,
            )
        })
        .ok_or(ENOMEM)?;
        // SAFETY: `setup` has seen it, nobody else knows it, and RTNL is held.
        unsafe { link::register(raw.as_ptr(), Ok(Dummy::new(seen, init))) }
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

/// The module that `#[vtable]` looks for, in a crate that is none.
pub(crate) struct LocalModule;

impl kernel::ModuleMetadata for LocalModule {
    const NAME: &'static CStr = c"kunit";
    const THIS_MODULE: kernel::ThisModule = {
        // SAFETY: Null stands for the kernel itself, which is not unloaded.
        unsafe { kernel::ThisModule::from_ptr(core::ptr::null_mut()) }
    };
}

/// Bytes of its addresses.
pub(crate) const ADDR_LEN: usize = 20;
/// Bytes in front of its frames.
pub(crate) const HEADER_LEN: usize = ADDR_LEN + 4;

#[vtable]
impl Driver for Dummy {
    const NAME: &'static CStr = c"kunit";
    const LAYOUT: Layout = Layout {
        arp_type: bindings::ARPHRD_VOID as u16,
        tx_queue_len: 16,
        watchdog_ms: 10_000,
    };
    type Tx = ();
    type Address = [u8; ADDR_LEN];
    type Header = [u8; HEADER_LEN - ADDR_LEN];
    type Control = ();
    type Front = ();

    fn header(proto: u16) -> Self::Header {
        let [high, low] = proto.to_be_bytes();
        [high, low, 0, 0]
    }

    /// Those whose first byte is odd.
    fn inspects(_dev: &Device<Self>, dest: &[u8; ADDR_LEN]) -> bool {
        dest[0] & 1 != 0
    }

    fn admit(_dev: &Device<Self>, packet: &Outgoing<'_>, _proto: u16) -> bool {
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

    fn transmit(_dev: &Device<Self>, _tx: Option<&mut ()>, skb: TxSkb) -> Taken {
        skb.drop_reason(DropReason::Other);
        Taken::TAKEN
    }
}

#[vtable]
impl Tasks for Dummy {
    const TASKS: usize = 1;

    fn task(dev: &Device<Self>, _id: usize) {
        dev.data().seen.tasks.fetch_add(1, Relaxed);
    }
}

#[vtable]
impl Ethtool for Dummy {}

#[vtable]
impl Files for Dummy {}

/// Answers tell the function that was asked for; what is set has to be what a test sets.
#[vtable]
impl Functions for Dummy {
    fn set_link_state(_dev: &Device<Self>, vf: i32, state: i32) -> Result {
        ((vf, state) == (4, 2)).then_some(()).ok_or(EINVAL)
    }

    fn config(_dev: &Device<Self>, vf: i32, config: &mut Config<'_>) -> Result {
        // SAFETY: There is room by the type invariant.
        unsafe { (*config.as_raw()).linkstate = 10 * vf as u32 };
        Ok(())
    }

    fn function_stats(_dev: &Device<Self>, vf: i32, stats: &mut Stats<'_>) -> Result {
        // SAFETY: As above.
        unsafe { (*stats.as_raw()).tx_packets = 10 * vf as u64 };
        Ok(())
    }

    fn guids(_dev: &Device<Self>, vf: i32, node: &mut Guid<'_>, port: &mut Guid<'_>) -> Result {
        // SAFETY: As above.
        unsafe {
            (*node.as_raw()).guid = vf as u64;
            (*port.as_raw()).guid = 10 * vf as u64;
        }
        Ok(())
    }

    fn set_guid(_dev: &Device<Self>, vf: i32, guid: u64, kind: i32) -> Result {
        ((vf, guid, kind) == (4, 77, 12))
            .then_some(())
            .ok_or(EINVAL)
    }
}

#[vtable]
impl Link for Dummy {
    fn create(_request: &Request<'_>, _rtnl: &mut Rtnl) -> Result<impl PinInit<Self, Error>> {
        Ok(Ok(Self::new(&Seen::new()?, |_| Ok(()))))
    }

    fn dependents(dev: &Device<Self>, rtnl: &mut Rtnl, f: &mut dyn FnMut(&Device<Self>)) {
        if let Some(dependent) = dev.data().get_ref().dependent.get(rtnl).take() {
            f(&dependent);
        }
    }
}
