// SPDX-License-Identifier: GPL-2.0

//! Network devices of any driver, and counted references to them.

use core::ops::Deref;

use ipoib_sys::bindings;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::types::Opaque;

use crate::rtnl::Rtnl;

/// A network device of any driver.
///
/// # Invariants
///
/// A reference to this is a reference to a `net_device` that stays allocated meanwhile.
#[repr(transparent)]
pub struct RawDevice(Opaque<bindings::net_device>);

// SAFETY: The methods are ones that C allows from any thread.
unsafe impl Send for RawDevice {}
// SAFETY: As above.
unsafe impl Sync for RawDevice {}

impl RawDevice {
    /// Wraps a pointer.
    ///
    /// # Safety
    ///
    /// `dev` must be a `net_device` that stays allocated during `'a`.
    #[inline]
    pub unsafe fn from_raw<'a>(dev: *mut bindings::net_device) -> &'a Self {
        // SAFETY: `RawDevice` is transparent over `net_device`; validity by the requirements.
        unsafe { &*dev.cast() }
    }

    /// The C device.
    #[inline]
    pub fn as_raw(&self) -> *mut bindings::net_device {
        self.0.get()
    }

    /// A counted reference, which holds up the device's unregistration: give it back soon, or in
    /// [`Driver::uninit`] at the latest.
    pub fn get(&self) -> DeviceRef {
        DeviceRef::new(self)
    }

    /// The interface's index in its namespace.
    pub fn ifindex(&self) -> i32 {
        // SAFETY: The device is allocated; the index is an int that C reads without a lock too.
        unsafe { core::ptr::read_volatile(&raw const (*self.as_raw()).ifindex) }
    }

    /// Returns true if the interface's namespace is going away, and the interface with it. One that could not be registered
    /// goes for another reason.
    pub fn net_ends(&self, rtnl: &mut Rtnl) -> bool {
        // Others do not keep their namespace.
        let listed = bindings::netdev_reg_state_NETREG_REGISTERED
            ..=bindings::netdev_reg_state_NETREG_UNREGISTERING;
        if !listed.contains(&self.state(rtnl)) {
            return false;
        }
        // SAFETY: Such a device is in some namespace, which RTNL keeps there.
        unsafe { bindings::ipoib_rs_net_ends(bindings::ipoib_rs_netdev_net(self.as_raw())) }
    }

    /// Calls `f` with the interface's name, and returns what that does. Without RTNL, somebody may just be giving
    /// it another one.
    pub fn with_name<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        const LEN: usize = bindings::IFNAMSIZ as usize;
        // SAFETY: The device is allocated, and any bytes are an array of bytes.
        let name = unsafe {
            (&raw const (*self.as_raw()).name)
                .cast::<[u8; LEN]>()
                .read_volatile()
        };
        let len = name.iter().position(|byte| *byte == 0).unwrap_or(0);
        f(&name[..len])
    }

    /// Returns true if the device is registered, and nobody has begun to unregister it.
    pub(crate) fn is_registered(&self, rtnl: &mut Rtnl) -> bool {
        // SAFETY: The device is allocated; RTNL protects the flag, which is set before the state changes.
        let dismantle = unsafe { (*self.as_raw()).dismantle };
        self.state(rtnl) == bindings::netdev_reg_state_NETREG_REGISTERED && !dismantle
    }

    /// The stage of its registration, in the order of `enum netdev_reg_state`.
    fn state(&self, _rtnl: &mut Rtnl) -> bindings::netdev_reg_state {
        // SAFETY: The device is allocated; RTNL protects its state.
        u32::from(unsafe { (*self.as_raw()).reg_state })
    }

    /// A number that no other device has while this one exists.
    pub fn id(&self) -> usize {
        self.as_raw().addr()
    }

    /// Returns true if the two are the same device.
    pub fn is(&self, other: &RawDevice) -> bool {
        core::ptr::eq(self, other)
    }

    /// The MTU in force.
    #[inline]
    pub fn mtu(&self) -> u32 {
        // SAFETY: As in `ifindex`.
        unsafe { core::ptr::read_volatile(&raw const (*self.as_raw()).mtu) }
    }

    /// Returns true if the interface is up.
    pub fn is_running(&self) -> bool {
        // SAFETY: The device is allocated.
        unsafe { bindings::ipoib_rs_netif_running(self.as_raw()) }
    }

    /// Returns true if the stack hands over frames: there is a carrier, and the stack has noticed it. Without RTNL, the stack
    /// may notice at any time, and reports it by [`Event::Changed`](crate::notifier::Event).
    pub fn can_send(&self) -> bool {
        // SAFETY: The device is allocated, and so are its transmit queues, whose number is fixed.
        unsafe { bindings::ipoib_rs_netdev_can_send(self.as_raw()) }
    }

    /// Returns true if the stack was told that the link has a carrier.
    pub fn has_carrier(&self) -> bool {
        let bit = bindings::netdev_state_t___LINK_STATE_NOCARRIER;
        // SAFETY: The device is allocated; C reads the word without a lock, too.
        let state = unsafe { core::ptr::read_volatile(&raw const (*self.as_raw()).state) };
        state & (1 << bit) == 0
    }

    /// Tells the stack whether the link has a carrier. When the stack has noticed, there is
    /// [`Event::Changed`](crate::notifier::Event::Changed).
    ///
    /// # Context
    ///
    /// Any, but without the transmit lock.
    pub fn set_carrier(&self, on: bool) {
        // SAFETY: The device is allocated.
        unsafe {
            if on {
                bindings::netif_carrier_on(self.as_raw());
            } else {
                bindings::netif_carrier_off(self.as_raw());
            }
        }
    }
}

/// References that there are, forgotten ones included.
static HELD: Atomic<u32> = Atomic::new(0);

/// The most references, far more than any driver needs. The core's count of a device has 32 bits and must not wrap.
const MOST: u32 = 1 << 30;

/// Counts one more reference. Returns false if there are too many.
fn has_room(held: &Atomic<u32>) -> bool {
    held.fetch_add(1, Relaxed) < MOST
}

/// A counted reference to a device. One that is forgotten keeps the device, whose unregistration does not return.
///
/// # Invariants
///
/// `dev` is a `net_device` on which one reference is held, tracked by `tracker`.
pub struct DeviceRef {
    dev: *mut bindings::net_device,
    tracker: bindings::netdevice_tracker,
}

// SAFETY: References may be given back on any thread.
unsafe impl Send for DeviceRef {}
// SAFETY: `&DeviceRef` gives no more than `&RawDevice`.
unsafe impl Sync for DeviceRef {}

impl DeviceRef {
    fn new(dev: &RawDevice) -> Self {
        assert!(has_room(&HELD), "references are forgotten");
        let mut tracker = pin_init::zeroed();
        // SAFETY: The device is allocated and referenced by whoever gave us `dev`.
        unsafe { bindings::ipoib_rs_netdev_hold(dev.as_raw(), &mut tracker) };
        // INVARIANT: Just taken.
        Self {
            dev: dev.as_raw(),
            tracker,
        }
    }
}

impl Deref for DeviceRef {
    type Target = RawDevice;

    #[inline]
    fn deref(&self) -> &RawDevice {
        // SAFETY: Referenced by the invariant.
        unsafe { RawDevice::from_raw(self.dev) }
    }
}

impl Drop for DeviceRef {
    fn drop(&mut self) {
        // SAFETY: The reference is ours by the invariant.
        unsafe { bindings::ipoib_rs_netdev_put(self.dev, &mut self.tracker) };
        HELD.fetch_sub(1, Relaxed);
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[kernel::prelude::kunit_tests(rust_netdev_raw_device)]
mod tests {
    use kernel::alloc::flags::__GFP_ZERO;
    use kernel::prelude::*;

    use super::*;
    use crate::dummy::{Registered, Seen};

    /// One that is forgotten counts, and the last one before the count would come round is refused.
    #[test]
    fn forgotten_references_count() -> Result {
        let held = Atomic::new(MOST - 1);
        assert!(has_room(&held));
        assert!(!has_room(&held));
        let registered = Registered::new(&Seen::new()?, |_| Ok(()))?;
        let before = HELD.load(Relaxed);
        let reference = core::mem::ManuallyDrop::new(registered.device().get());
        let forgotten = HELD.load(Relaxed);
        // The device would stay for ever.
        drop(core::mem::ManuallyDrop::into_inner(reference));
        assert_eq!(forgotten, before + 1);
        assert_eq!(HELD.load(Relaxed), before);
        Ok(())
    }

    /// An interface that sysfs refuses never was in its namespace, which does not end for that.
    #[test]
    fn the_namespace_of_a_refused_interface_stays() -> Result {
        let mut dev = KBox::<bindings::net_device>::new_uninit(GFP_KERNEL | __GFP_ZERO)?;
        let dev = dev.as_mut_ptr();
        let mut rtnl = Rtnl::lock();
        for state in [
            bindings::netdev_reg_state_NETREG_UNINITIALIZED,
            bindings::netdev_reg_state_NETREG_REGISTERED,
            bindings::netdev_reg_state_NETREG_UNREGISTERING,
            bindings::netdev_reg_state_NETREG_UNREGISTERED,
        ] {
            // SAFETY: It is ours and zeroed, as which it is plain data, and the first namespace is always there.
            let ends = unsafe {
                (*dev).nd_net.net = &raw mut bindings::init_net;
                (*dev).reg_state = state as u8;
                RawDevice::from_raw(dev).net_ends(&mut rtnl)
            };
            assert!(!ends);
        }
        Ok(())
    }
}
