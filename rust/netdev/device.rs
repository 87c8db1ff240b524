// SPDX-License-Identifier: GPL-2.0

//! Network devices.
//!
//! C headers: [`include/linux/netdevice.h`](srctree/include/linux/netdevice.h).
//!
//! A [`Device<T>`] is a `net_device` whose private area holds a `T`, the driver's own data, beside
//! what the driver's callbacks need exclusive: [`Driver::Tx`], which the transmit lock protects,
//! and the device's work items. The private area is filled by [`crate::link`] before the device is
//! registered and dropped when its last reference is gone, so every callback finds a live `T`.

use core::any::Any;
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ops::Deref;

use ipoib_sys::bindings;
use kernel::error::VTABLE_DEFAULT_ERROR;
use kernel::prelude::*;
use kernel::str::CStr;
use kernel::types::Opaque;

use crate::address::AddressList;
use crate::header::Outgoing;
use crate::napi::Polled;
pub use crate::raw_device::{DeviceRef, RawDevice};
use crate::rtnl::{Rtnl, RtnlCell};
use crate::skb::TxSkb;
use crate::stats::{LinkStats, QueueStats};

/// The stack is told that the driver took a frame, as it always does: it stops the queue before that is
/// full.
#[must_use]
#[repr(transparent)]
pub struct Taken(bindings::netdev_tx_t);

impl Taken {
    /// The driver took the frame.
    pub const TAKEN: Self = Self(bindings::netdev_tx_NETDEV_TX_OK);

    #[inline]
    pub(crate) fn into_raw(self) -> bindings::netdev_tx_t {
        self.0
    }
}

/// Fixed properties of a kind of device.
pub struct Layout {
    /// `ARPHRD_*`.
    pub arp_type: u16,
    /// Frames that a queueing discipline may hold.
    pub tx_queue_len: u16,
    /// Milliseconds after which a stopped queue counts as hung.
    pub watchdog_ms: u32,
}

/// A fixed number of bytes: a link-layer address or header, for which the kernel has room.
///
/// # Safety
///
/// The type must be an array of no more than `MAX_ADDR_LEN` `u8`s.
pub unsafe trait Bytes: Copy {}

macro_rules! bytes {
    ($($len:literal)*) => {
        $(
            // SAFETY: That is what it is, as is asserted.
            unsafe impl Bytes for [u8; $len] {}
            const _: () = assert!(bindings::MAX_ADDR_LEN as usize >= size_of::<[u8; $len]>());
        )*
    };
}

bytes!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32);

/// A network device driver.
///
/// Callbacks under RTNL get the token; the others say their context. Those with a default are optional: the
/// network core does without those that an implementation, which has the attribute `#[vtable]`, leaves out.
///
/// # Examples
///
/// A whole driver is in `samples/rust_loopback`.
#[vtable]
pub trait Driver: Sized + Send + Sync + 'static {
    /// The driver's name, for `ethtool -i`.
    const NAME: &'static CStr;

    /// Fixed properties.
    const LAYOUT: Layout;

    /// State that the transmit lock protects.
    type Tx: Send;

    /// State of the device's configuration, which RTNL protects.
    type Control: Send;

    /// A value at the beginning of the private area, for other modules that look there; `()` if there are none.
    type Front: Default + Send + Sync;

    /// A link-layer address.
    type Address: Bytes + PartialEq;

    /// The wire's own header of a frame. In front of it, the stack's frames have the destination's address.
    type Header: Bytes;

    /// Makes the wire's own header of packets whose EtherType is `proto`. Without it, frames have no link-layer
    /// header.
    ///
    /// # Context
    ///
    /// Softirq or process context, under a neighbour's locks or none; several at once.
    fn header(_proto: u16) -> Self::Header {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Returns true if [`Driver::admit`] is to see each packet for `dest`. Otherwise the stack may keep the header,
    /// as long as the device keeps its address, and send all of them.
    ///
    /// # Context
    ///
    /// As for [`Driver::header`].
    fn inspects(_dev: &Device<Self>, _dest: &Self::Address) -> bool {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Admits `packet`, whose EtherType is `proto`, to a destination that [`Driver::inspects`] names, or refuses it and
    /// accounts for it: returns false, and a sender on this host is told so (`EINVAL`).
    ///
    /// # Context
    ///
    /// Softirq or process context, without any lock; several at once.
    fn admit(_dev: &Device<Self>, _packet: &Outgoing<'_>, _proto: u16) -> bool {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Prepares a device that is being registered. [`Driver::uninit`] follows, also if this fails.
    ///
    /// # Errors
    ///
    /// Whatever keeps the device from being registered.
    fn init(_dev: &Device<Self>, _rtnl: &mut Rtnl) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Gives everything back when the device was unregistered, or [`Driver::init`] has failed. The device is
    /// down, and its work items have ended for good. References to the device are waited for before the
    /// driver's data are dropped.
    fn uninit(_dev: &Device<Self>, _rtnl: &mut Rtnl) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Brings the interface up.
    ///
    /// # Errors
    ///
    /// Whatever keeps it down.
    fn open(dev: &Device<Self>, rtnl: &mut Rtnl) -> Result;

    /// Takes the interface down.
    fn stop(dev: &Device<Self>, rtnl: &mut Rtnl);

    /// Sends a frame, whose data starts at the header that [`Driver::header`] made. There is no `tx` while the interface
    /// is up without queues.
    ///
    /// # Context
    ///
    /// Softirq or process context with BH off, under the transmit lock.
    fn transmit(dev: &Device<Self>, tx: Option<&mut Self::Tx>, skb: TxSkb) -> Taken;

    /// The queue has been stopped for longer than the watchdog allows.
    ///
    /// # Context
    ///
    /// Timer softirq.
    fn transmit_timeout(_dev: &Device<Self>) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Receives the multicast addresses in `groups` from now on, and no others.
    ///
    /// # Errors
    ///
    /// The stack tries again later.
    ///
    /// # Context
    ///
    /// Process context under RTNL; may sleep.
    fn set_rx_mode(_dev: &Device<Self>, _groups: &AddressList<'_>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Changes the MTU to one that the stack has checked against the limits. The device gets the one that this returns,
    /// which may be smaller.
    ///
    /// # Errors
    ///
    /// Whatever forbids it.
    fn change_mtu(_dev: &Device<Self>, _mtu: u32, _rtnl: &mut Rtnl) -> Result<u32> {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Takes `address`, which a user has chosen and nobody has checked, for the device's own. The stack is told
    /// afterwards; the driver itself has set it by [`Device::set_address`].
    ///
    /// # Errors
    ///
    /// Whatever forbids it; nothing has changed then.
    fn take_address(_dev: &Device<Self>, _address: &Self::Address, _rtnl: &mut Rtnl) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Returns the interface index of the device underneath.
    ///
    /// # Context
    ///
    /// Any, softirq and other people's locks included.
    fn lower_ifindex(_dev: &Device<Self>) -> i32 {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Calls `f` with the device underneath, if that can be in another namespace.
    ///
    /// # Context
    ///
    /// Under RTNL, RCU or both: must not sleep.
    fn with_lower(_dev: &Device<Self>, _f: &mut dyn FnMut(&RawDevice)) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Returns the counters of `ip -s link`.
    ///
    /// # Context
    ///
    /// Any but hard interrupt. Must not sleep: `/proc/net/dev` reads them under RCU, bonding under a
    /// spinlock.
    fn stats(_dev: &Device<Self>) -> LinkStats {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Returns the counters of the queues.
    ///
    /// # Context
    ///
    /// Process context under RTNL.
    fn queue_stats(_dev: &Device<Self>) -> QueueStats {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

/// The work items of a driver's devices.
#[vtable]
pub trait Tasks: Driver {
    /// How many work items a device has, at most [`MAX_TASKS`].
    const TASKS: usize = 0;

    /// Runs work item `id`, below [`Tasks::TASKS`], which [`Device::queue_task`] queued.
    ///
    /// # Context
    ///
    /// Process context without any lock; may sleep. It is waited for under RTNL, so it must not
    /// take RTNL nor wait for one who does.
    fn task(_dev: &Device<Self>, _id: usize) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

/// The most work items that a device may have.
pub const MAX_TASKS: usize = 4;

/// A network device of this crate's driver `T`.
#[repr(transparent)]
pub struct Device<T: Driver> {
    raw: RawDevice,
    _driver: PhantomData<T>,
}

impl<T: Driver> Deref for Device<T> {
    type Target = RawDevice;

    #[inline]
    fn deref(&self) -> &RawDevice {
        &self.raw
    }
}

/// The private area of a device.
///
/// # Invariants
///
/// All zero until [`Device::fill`], then `filled`, until [`Device::empty`]. While it is filled,
/// `data` is initialised and pinned, and the first [`Tasks::TASKS`] of `tasks` are initialised.
#[repr(C)]
pub(crate) struct Private<T: Driver> {
    front: UnsafeCell<T::Front>,
    filled: UnsafeCell<bool>,
    /// Protected by the transmit lock.
    pub(crate) tx: UnsafeCell<Option<T::Tx>>,
    /// Sysctls and debugfs files (`named::Named`, of a layer above), to be dropped only. Protected by RTNL.
    named: UnsafeCell<Option<KBox<dyn Any>>>,
    control: RtnlCell<Option<T::Control>>,
    /// Instances that the queues refer to, protected by RTNL.
    pub(crate) polled: UnsafeCell<Polled>,
    tasks: [Task; MAX_TASKS],
    data: UnsafeCell<MaybeUninit<T>>,
}

/// A work item of a device.
#[repr(C)]
struct Task {
    work: Opaque<bindings::delayed_work>,
    dev: UnsafeCell<*mut bindings::net_device>,
    id: UnsafeCell<usize>,
}

impl<T: Driver> Device<T> {
    /// Bytes in front of a frame of the stack's: the destination's address and the wire's own header.
    pub(crate) const HEADER_LEN: usize = size_of::<T::Address>() + size_of::<T::Header>();

    /// Size of the private area.
    pub(crate) const PRIVATE_SIZE: usize = core::mem::size_of::<Private<T>>();

    /// Wraps a pointer.
    ///
    /// # Safety
    ///
    /// `dev` must be a `net_device` with a filled private area of `T`'s, and stay so during `'a`.
    #[inline]
    pub(crate) unsafe fn from_raw<'a>(dev: *mut bindings::net_device) -> &'a Self {
        // SAFETY: `Device` is transparent over `net_device`; validity by the requirements.
        unsafe { &*dev.cast() }
    }

    #[inline]
    fn private_of(dev: *mut bindings::net_device) -> *mut Private<T> {
        // The private area is the device's trailing flexible array, aligned as the device is: to what the
        // machine has for a cache line.
        const {
            let align = core::mem::align_of::<Private<T>>();
            assert!(align <= core::mem::align_of::<bindings::net_device>());
            assert!(core::mem::offset_of!(bindings::net_device, priv_) % align == 0);
        }
        // SAFETY: Computing a field's address does not read it.
        unsafe { (&raw mut (*dev).priv_).cast() }
    }

    #[inline]
    pub(crate) fn private(&self) -> &Private<T> {
        // SAFETY: Filled by `from_raw`'s requirements.
        unsafe { &*Self::private_of(self.as_raw()) }
    }

    /// The driver's data.
    #[inline]
    pub fn data(&self) -> Pin<&T> {
        // SAFETY: Initialised by the invariant of a filled private area, which does not move.
        unsafe { Pin::new_unchecked((*self.private().data.get()).assume_init_ref()) }
    }

    /// State that RTNL protects: none until [`Driver::init`] puts it there, and none after [`Driver::uninit`] has
    /// to take it away.
    pub fn control<'a>(&'a self, rtnl: &'a mut Rtnl) -> &'a mut Option<T::Control> {
        self.private().control.get(rtnl)
    }

    /// Drops the driver's data, if it is there, when nobody refers to the device any more. The core waits for
    /// that only if it had registered the device; if registration fails, it frees the device at once.
    ///
    /// # Safety
    ///
    /// `dev` must be a device of `T`'s on whose way out `uninit` has run, or whose `init` has not, so that only
    /// references that were counted can reach it.
    ///
    /// # Context
    ///
    /// Process context; sleeps.
    pub(crate) unsafe fn empty(dev: *mut bindings::net_device) {
        let private = Self::private_of(dev);
        // SAFETY: Only we and those whom we wait for use the device; `filled` says whether there is something.
        unsafe {
            if !*(*private).filled.get() {
                return;
            }
            bindings::ipoib_rs_netdev_wait_unused(dev);
            *(*private).filled.get() = false;
            bindings::ipoib_rs_wq_put();
            (*(*private).tx.get()).take();
            core::ptr::drop_in_place(&raw mut (*private).control);
            *(*private).polled.get() = Polled::default();
            core::ptr::drop_in_place((*private).data.get().cast::<T>());
            core::ptr::drop_in_place(&raw mut (*private).front);
        }
    }

    /// The objects that bear the device's name, protected by RTNL.
    pub(crate) fn named(&self) -> *mut Option<KBox<dyn Any>> {
        self.private().named.get()
    }

    /// Sets the MTU and its upper limit.
    pub fn set_mtu_limit(&self, max: u32, _rtnl: &mut Rtnl) {
        // SAFETY: RTNL is held, which is what protects the limit.
        unsafe { core::ptr::write_volatile(&raw mut (*self.as_raw()).max_mtu, max) };
    }

    /// Changes the MTU as `ip link set mtu` does, telling everyone.
    ///
    /// # Errors
    ///
    /// Those of [`Driver::change_mtu`], `EINVAL` outside the limits, and `ENODEV` for a device that is not registered.
    pub fn set_mtu(&self, mtu: u32, rtnl: &mut Rtnl) -> Result {
        if !self.is_registered(rtnl) {
            return Err(ENODEV);
        }
        // SAFETY: RTNL is held, and the device is registered, so that its namespace is there.
        kernel::error::to_result(unsafe {
            bindings::dev_set_mtu(self.as_raw(), mtu as kernel::ffi::c_int)
        })
    }

    /// Takes the interface up or down, as a user does; nothing happens to one that is.
    ///
    /// # Errors
    ///
    /// `ENODEV` for a device that is to go up and is not registered, or about to go; those of the driver, and of those
    /// who may refuse.
    // Not for any device: others may be locked while a notifier knows them.
    pub fn set_up(&self, up: bool, rtnl: &mut Rtnl) -> Result {
        if up && !self.is_registered(rtnl) {
            return Err(ENODEV);
        }
        // SAFETY: RTNL is held, and our token not used while the core calls back.
        kernel::error::to_result(unsafe { bindings::ipoib_rs_netdev_set_up(self.as_raw(), up) })
    }

    /// Takes a running interface down and up again.
    ///
    /// # Errors
    ///
    /// Those of [`Driver::open`]; the interface stays up for user space then, but nothing runs, and [`Driver::stop`]
    /// will be called all the same.
    pub fn restart(&self, _rtnl: &mut Rtnl) -> Result {
        // SAFETY: RTNL is held.
        kernel::error::to_result(unsafe { bindings::ipoib_rs_restart(self.as_raw()) })
    }

    /// Sets the initial MTU, its limits, and whether frames may be scattered; during registration.
    pub fn set_limits(&self, mtu: u32, min: u32, max: u32, sg: bool, _rtnl: &mut Rtnl) {
        let dev = self.as_raw();
        // SAFETY: RTNL is held and the device is not registered yet.
        unsafe {
            (*dev).mtu = mtu;
            (*dev).min_mtu = min;
            (*dev).max_mtu = max;
            let features = u64::from(sg) << bindings::NETIF_F_SG_BIT;
            (*dev).features |= features;
            (*dev).hw_features |= features;
        }
    }

    /// A counted reference, as [`RawDevice::get`].
    pub fn get_typed(&self) -> OwnedDevice<T> {
        OwnedDevice {
            dev: self.raw.get(),
            _driver: PhantomData,
        }
    }
}

impl<T: Tasks> Device<T> {
    /// Fills the private area.
    ///
    /// # Safety
    ///
    /// `dev` must be a fresh device with a zeroed private area of `PRIVATE_SIZE` bytes.
    pub(crate) unsafe fn fill(
        dev: *mut bindings::net_device,
        init: impl PinInit<T, Error>,
    ) -> Result {
        const {
            assert!(T::TASKS <= MAX_TASKS);
        }
        let private = Self::private_of(dev);
        // SAFETY: Nobody else knows the device yet; writes go to fields of a zeroed private area,
        // whose all-zero options are written before use.
        unsafe {
            (&raw mut (*private).front).write(UnsafeCell::default());
            (&raw mut (*private).tx).write(UnsafeCell::new(None));
            (&raw mut (*private).named).write(UnsafeCell::new(None));
            (&raw mut (*private).control).write(RtnlCell::new(None));
            (&raw mut (*private).polled).write(UnsafeCell::default());
            pin_init::raw_try_init((&raw mut (*private).data).cast::<T>(), init)?;
            for id in 0..T::TASKS {
                let task = &raw mut (*private).tasks[id];
                (&raw mut (*task).dev).write(UnsafeCell::new(dev));
                (&raw mut (*task).id).write(UnsafeCell::new(id));
                bindings::ipoib_rs_device_work_init(
                    Opaque::cast_into(&raw const (*task).work),
                    Some(run_task::<T>),
                );
            }
            bindings::ipoib_rs_wq_get();
            (&raw mut (*private).filled).write(UnsafeCell::new(true));
        }
        Ok(())
    }

    /// Waits for the work items and keeps them from ever running again.
    pub(crate) fn end_tasks(&self) {
        for task in &self.private().tasks[..T::TASKS] {
            // SAFETY: Initialised by the invariant; process context by the callers.
            unsafe { bindings::disable_delayed_work_sync(task.work.get()) };
        }
    }

    /// Queues work item `id` to run in `delay_ms`; one that is queued already keeps its time if that
    /// is earlier.
    ///
    /// # Context
    ///
    /// Any.
    pub fn queue_task(&self, id: usize, delay_ms: u32) {
        let Some(task) = self.private().tasks[..T::TASKS].get(id) else {
            return;
        };
        // SAFETY: Initialised by the invariant.
        unsafe {
            bindings::ipoib_rs_delayed_work_queue(
                bindings::ipoib_rs_wq_IPOIB_RS_WQ_DEVICE,
                task.work.get(),
                delay_ms,
            )
        };
    }

    /// Waits for work item `id` and takes it off the queue; it can be queued again.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn cancel_task(&self, id: usize) {
        if let Some(task) = self.private().tasks[..T::TASKS].get(id) {
            // SAFETY: Initialised by the invariant.
            unsafe { bindings::cancel_delayed_work_sync(task.work.get()) };
        }
    }
}

/// # Safety
///
/// Called by the workqueue for the work of a [`Task`] of a device of `T`'s that is alive: on all ways out,
/// [`Device::end_tasks`] waits for the work before the device can go.
unsafe extern "C" fn run_task<T: Tasks>(work: *mut bindings::work_struct) {
    // SAFETY: `work` lies in a `delayed_work`, which lies in a `Task`, by the requirements.
    let (dev, id) = unsafe {
        let delayed = kernel::container_of!(work, bindings::delayed_work, work);
        let task = kernel::container_of!(Opaque::cast_from(delayed), Task, work);
        (*(*task).dev.get(), *(*task).id.get())
    };
    // SAFETY: Alive and filled by the requirements.
    T::task(unsafe { Device::<T>::from_raw(dev) }, id);
}

/// A counted reference to a device of driver `T`'s.
pub struct OwnedDevice<T: Driver> {
    dev: DeviceRef,
    _driver: PhantomData<T>,
}

impl<T: Driver> Deref for OwnedDevice<T> {
    type Target = Device<T>;

    #[inline]
    fn deref(&self) -> &Device<T> {
        // SAFETY: Made by `Device::get_typed` only, from a filled device of `T`'s; `Device::empty` waits
        // for this reference.
        unsafe { Device::from_raw(self.dev.as_raw()) }
    }
}
