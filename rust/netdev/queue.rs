// SPDX-License-Identifier: GPL-2.0

//! The queues of a device: one for each direction, and the lock of the one that sends.
//!
//! C headers: [`include/net/netdev_queues.h`](srctree/include/net/netdev_queues.h).

use core::ops::{Deref, DerefMut};

use ipoib_sys::bindings;
use kernel::prelude::*;
use kernel::types::NotThreadSafe;

use crate::device::{Device, Driver};
use crate::napi::{Context, Napi, Poll, Polled};
use crate::rtnl::Rtnl;

impl<T: Driver> Device<T> {
    /// Lets the stack transmit.
    pub fn start_queue(&self) {
        // SAFETY: The device is allocated.
        unsafe { bindings::ipoib_rs_tx_wake(self.as_raw()) };
    }

    /// Keeps the stack from transmitting; returns when no transmission runs.
    pub fn disable_queue(&self) {
        // SAFETY: The device is allocated; taking the transmit lock waits for a running one.
        unsafe {
            bindings::ipoib_rs_tx_lock(self.as_raw());
            bindings::ipoib_rs_tx_stop(self.as_raw());
            bindings::ipoib_rs_tx_unlock(self.as_raw());
        }
    }

    /// Stops the queue. A transmission may run, unless the caller has the transmit lock.
    pub fn stop_queue(&self) {
        // SAFETY: The device is allocated.
        unsafe { bindings::ipoib_rs_tx_stop(self.as_raw()) };
    }

    /// Accounts a frame to the queue's byte limit. True: ring the doorbell now, nothing follows.
    ///
    /// # Context
    ///
    /// Any. It accounts nothing, and nothing follows, without the transmit lock, and as long as the queue has no
    /// [instance](Self::set_queue_napi), which alone [completes](Self::completed) what is accounted.
    #[inline]
    pub fn sent(&self, bytes: u32) -> bool {
        // SAFETY: The device is allocated.
        unsafe { bindings::ipoib_rs_tx_sent(self.as_raw(), bytes) }
    }

    /// Returns true if the stack hands over another frame at once, so that the doorbell can wait.
    ///
    /// # Context
    ///
    /// Any. Without the transmit lock it is false.
    #[inline]
    pub fn more_follows(&self) -> bool {
        // SAFETY: The device is allocated.
        unsafe { bindings::ipoib_rs_tx_more(self.as_raw()) }
    }

    /// Takes completed frames off the queue's byte limit, and says whether the queue is stopped then. That
    /// and whatever the caller looks at afterwards is looked at behind a full memory barrier. Bytes that were not
    /// [sent](Self::sent) are of no effect, nor is a poll of another instance than the
    /// [queue's](Self::set_queue_napi): they would be taken off twice at a time. What is on the ring when that instance is
    /// disabled is off the limit then.
    #[inline]
    pub fn completed(&self, context: &Context<'_>, frames: u32, bytes: u32) -> bool {
        // SAFETY: The device is allocated. The context is that of a poll, and an instance is polled once at a time.
        unsafe { bindings::ipoib_rs_tx_completed(self.as_raw(), context.as_raw(), frames, bytes) }
    }
}

impl<T: Driver> Device<T> {
    /// Registers a NAPI instance with the device. Its polls do nothing until they have a state.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    // Not for any device: others may be locked while a notifier knows them.
    pub fn add_napi<P: Poll>(&self) -> Result<Napi<P>> {
        Napi::new(self)
    }

    /// Says which NAPI instance polls the queue, the one that sends if the instance polls for that only. User
    /// space sees it (netdev-genl). It stays so until [`Driver::uninit`].
    ///
    /// # Errors
    ///
    /// `EBUSY` if the queue has or had one; `EINVAL` if the instance is another device's.
    pub fn set_queue_napi<P: Poll>(&self, napi: &Napi<P>, _rtnl: &mut Rtnl) -> Result {
        if !core::ptr::eq(napi.device().as_raw(), self.as_raw()) {
            return Err(EINVAL);
        }
        // SAFETY: RTNL is held, and nobody has a reference to the slots.
        let polled = unsafe { &mut *self.private().polled.get() };
        let (slot, queue) = if P::TX {
            (&mut polled.transmit, TRANSMIT)
        } else {
            (&mut polled.receive, RECEIVE)
        };
        // The one before might still be polled.
        if polled.closed || slot.is_some() {
            return Err(EBUSY);
        }
        let instance = napi.instance();
        // SAFETY: RTNL is held, and there is a queue 0 of either kind. The slot keeps the instance in memory.
        unsafe { bindings::netif_queue_set_napi(self.as_raw(), 0, queue, instance.as_raw()) };
        *slot = Some(instance);
        Ok(())
    }

    /// Takes the instances off the queues.
    pub(crate) fn clear_queue_napi(&self, _rtnl: &mut Rtnl) {
        for queue in [RECEIVE, TRANSMIT] {
            // SAFETY: As in `set_queue_napi`; null stands for none.
            unsafe {
                bindings::netif_queue_set_napi(self.as_raw(), 0, queue, core::ptr::null_mut())
            };
        }
        let closed = Polled {
            closed: true,
            ..Polled::default()
        };
        // SAFETY: RTNL is held, nobody has a reference to the slots, and the queues refer to none.
        unsafe { *self.private().polled.get() = closed };
    }

    /// Takes the transmit lock.
    ///
    /// # Context
    ///
    /// Process context or softirq; not within [`Driver::transmit`], nor with a guard: whoever has the lock waits for itself.
    pub fn lock_tx(&self) -> TxGuard<'_, T> {
        // Where there is one CPU, spinlocks exclude nobody, and two guards would refer to the same state.
        assert!(cfg!(CONFIG_SMP) || !self.holds_tx());
        // SAFETY: The device is allocated.
        unsafe { bindings::ipoib_rs_tx_lock(self.as_raw()) };
        TxGuard {
            dev: self,
            _not_send: NotThreadSafe,
        }
    }

    /// Returns true if this context has the transmit lock.
    fn holds_tx(&self) -> bool {
        // SAFETY: The device is allocated.
        unsafe { bindings::ipoib_rs_tx_owned(self.as_raw()) }
    }

    /// State that the transmit lock protects, for a callback that runs under it.
    ///
    /// # Safety
    ///
    /// The caller must hold the transmit lock during the result's life and make no second
    /// reference.
    #[inline]
    #[expect(clippy::mut_from_ref)]
    pub(crate) unsafe fn tx_unlocked(&self) -> &mut Option<T::Tx> {
        // SAFETY: By this function's requirements.
        unsafe { &mut *self.private().tx.get() }
    }
}

const RECEIVE: bindings::netdev_queue_type = bindings::netdev_queue_type_NETDEV_QUEUE_TYPE_RX;
const TRANSMIT: bindings::netdev_queue_type = bindings::netdev_queue_type_NETDEV_QUEUE_TYPE_TX;

/// The transmit lock of a device, held until this value is dropped: on the CPU that took it, where softirqs
/// are off meanwhile.
#[must_use = "the lock is released when the guard is dropped"]
pub struct TxGuard<'a, T: Driver> {
    dev: &'a Device<T>,
    _not_send: NotThreadSafe,
}

// SAFETY: A shared guard gives no more than a shared reference to what the lock protects.
unsafe impl<T: Driver> Sync for TxGuard<'_, T> where T::Tx: Sync {}

impl<T: Driver> Deref for TxGuard<'_, T> {
    type Target = Option<T::Tx>;

    fn deref(&self) -> &Option<T::Tx> {
        // SAFETY: The guard holds the lock.
        unsafe { &*self.dev.private().tx.get() }
    }
}

impl<T: Driver> DerefMut for TxGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut Option<T::Tx> {
        // SAFETY: The guard holds the lock, and is borrowed mutably meanwhile.
        unsafe { &mut *self.dev.private().tx.get() }
    }
}

impl<T: Driver> Drop for TxGuard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: The guard took the lock.
        unsafe { bindings::ipoib_rs_tx_unlock(self.dev.as_raw()) };
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[kunit_tests(rust_netdev_queue)]
mod tests {
    use super::*;
    use crate::dummy::{Registered, Seen};

    /// A guard is noticed where the lock itself keeps nobody out.
    #[test]
    fn the_lock_has_a_holder() -> Result {
        let registered = Registered::new(&Seen::new()?, |_| Ok(()))?;
        let dev = registered.device();
        for _ in 0..2 {
            assert!(!dev.holds_tx());
            let guard = dev.lock_tx();
            let held = dev.holds_tx();
            // A test that fails ends below.
            drop(guard);
            assert!(held && !dev.holds_tx());
        }
        Ok(())
    }
}
