// SPDX-License-Identifier: GPL-2.0

//! Reliable connection queue pairs.

use ipoib_sys::bindings;
use kernel::ffi::{c_int, c_void};
use kernel::new_mutex;
use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, Relaxed, Release};
use kernel::sync::{Arc, Mutex};

use crate::cq::{Cq, Room};
use crate::deferred::{DeferDrop, Deferred, Reserved};
use crate::device::Device;
use crate::intake::{Intake, Reports};
use crate::left::{Left, Told};
use crate::pd::Pd;
use crate::qp::{self, query_state, OwnedQp, QpCaps, QpState};
use crate::send::ring::SendQp;

/// The queue pair of a completion, by its address, which is never dereferenced.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct QpKey(usize);

impl QpKey {
    /// The key of a queue pair, which a completion names.
    #[inline]
    pub(crate) fn of(raw: *const bindings::ib_qp) -> Self {
        Self(raw.addr())
    }
}

/// The end of a queue pair, as far as it has come.
#[pin_data]
pub(crate) struct Fate {
    /// The device has said that it takes no more receives from the shared receive queue.
    last_receive: Atomic<bool>,
    destroyed: Atomic<bool>,
    reports: Arc<Reports>,
    /// Memory of its send ring that the device may access. It does not hold the queue pair.
    #[pin]
    left: Mutex<Option<KBox<dyn Left>>>,
}

impl Fate {
    fn new(intake: &Intake) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                last_receive: Atomic::new(false),
                destroyed: Atomic::new(false),
                reports: intake.reports().clone(),
                left <- new_mutex!(None),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns true if it is destroyed, so that the device has none of what was posted to it.
    pub(crate) fn is_destroyed(&self) -> bool {
        self.destroyed.load(Acquire)
    }
}

impl Told for Fate {
    fn revoke(&self) {
        // There is no handler.
    }
}

/// A reliable connection queue pair, which receives through an [`Intake`].
///
/// A [`crate::CmId`] connects it. Dropping it destroys it; the completion queues and the intake are held
/// until that has happened.
///
/// # Invariants
///
/// * The state of the queue pair is only changed with `life` locked. That is an error once it was reset, or could not be
///   reset.
/// * Once `is_reset` is true, it is in the state Reset, for good.
/// * `qpn` is its number.
#[pin_data]
pub struct RcQp {
    qpn: u32,
    caps: QpCaps,
    inline: u32,
    /// True if it may have taken receives.
    receives: Atomic<bool>,
    is_reset: Atomic<bool>,
    has_ring: Atomic<bool>,
    #[pin]
    life: Mutex<Result>,
    body: Deferred<Body>,
}

/// A queue pair that is to be destroyed when nobody uses it any more.
///
/// # Invariants
///
/// `qp` is an RC queue pair of `pd`, the queue of `sends`, `recv_cq` and `intake`, which are all of one device. The
/// context of its events is `fate`'s value. It is destroyed before all else is dropped.
struct Body {
    qp: OwnedQp,
    fate: Arc<Fate>,
    sends: Room,
    recv_cq: Arc<Cq>,
    intake: Arc<Intake>,
    pd: Arc<Pd>,
}

impl DeferDrop for Body {}

impl Drop for Body {
    fn drop(&mut self) {
        // SAFETY: Nobody has a reference to it any more; what uses it holds an `Arc`.
        let end = unsafe { self.qp.destroy() };
        let left = self.fate.left.lock().take();
        match end {
            Ok(()) => self.fate.destroyed.store(true, Release),
            Err(_) => {
                self.intake.give_up();
                if let Some(mut left) = left {
                    left.abandon();
                }
            }
        }
    }
}

/// The objects that a reliable connection queue pair is made of.
pub struct RcInit<'a> {
    /// The protection domain.
    pub pd: &'a Arc<Pd>,
    /// The completion queue of its sends.
    pub send_cq: &'a Arc<Cq>,
    /// The completion queue of its receives.
    pub recv_cq: &'a Arc<Cq>,
    /// The buffers that it receives into.
    pub intake: &'a Arc<Intake>,
    /// The sizes of its queues. Those of the receive queue do not count where the intake is shared.
    pub caps: QpCaps,
}

impl RcQp {
    /// Makes a queue pair.
    ///
    /// # Errors
    ///
    /// `EINVAL` for objects of different devices, or more than the device can; `ENOSPC` if the completion queue has no room
    /// for as many sends; `ESHUTDOWN` after the [`crate::Reaper`] was dropped; `ENOMEM`; whatever the device says.
    ///
    /// # Context
    ///
    /// Process context; may sleep. Dropping it is fine in softirq.
    pub fn new(mut init: RcInit<'_>) -> Result<Arc<Self>> {
        let dev = init.pd.device();
        let intake = init.intake;
        if !dev.same(init.send_cq.device())
            || !dev.same(init.recv_cq.device())
            || !dev.same(intake.pd().device())
            || (!intake.is_shared() && init.caps.recv_sge < intake.max_sge())
        {
            return Err(EINVAL);
        }
        if intake.is_shared() {
            (init.caps.recv_wr, init.caps.recv_sge) = (0, 0);
        }
        intake.bind(init.recv_cq)?;
        let sends = init.send_cq.reserve(init.caps.send_wr)?;
        let fate = Fate::new(intake)?;
        let kind = bindings::ib_qp_type_IB_QPT_RC;
        let mut attr = bindings::ib_qp_init_attr {
            event_handler: Some(event),
            qp_context: Arc::as_ptr(&fate).cast_mut().cast(),
            srq: intake.as_raw(),
            ..qp::attributes(kind, init.send_cq, init.recv_cq, init.caps)
        };
        let reserved = Reserved::new(init.pd.deferred_drop())?;
        // SAFETY: All that the attributes refer to is valid, and outlives the queue pair by the
        // type invariants.
        let qp = unsafe { OwnedQp::new(init.pd, &mut attr, Some(fate.clone())) }?;
        // SAFETY: It was just made.
        let qpn = unsafe { (*qp.as_raw()).qp_num };
        // INVARIANT: As was just made.
        let body = reserved.fill(Body {
            qp,
            fate,
            sends,
            recv_cq: init.recv_cq.clone(),
            intake: intake.clone(),
            pd: init.pd.clone(),
        });
        Arc::pin_init(
            pin_init!(Self {
                qpn,
                // The device may round up; what was asked for is what rings rely on.
                caps: init.caps,
                inline: inline(init.pd.device(), &attr.cap),
                receives: Atomic::new(false),
                is_reset: Atomic::new(false),
                has_ring: Atomic::new(false),
                life <- new_mutex!(Ok(())),
                body,
            }),
            GFP_KERNEL,
        )
    }

    #[inline]
    pub(crate) fn as_raw(&self) -> *mut bindings::ib_qp {
        self.body.qp.as_raw()
    }

    /// Bytes of a message that may be sent with `IB_SEND_INLINE`.
    pub(crate) fn inline(&self) -> u32 {
        self.inline
    }

    /// The number, 24 bits, by which the peer addresses it.
    pub fn qpn(&self) -> u32 {
        self.qpn
    }

    /// The key by which completions name it. A later queue pair may have the same once this one is destroyed.
    #[inline]
    pub fn key(&self) -> QpKey {
        QpKey::of(self.as_raw())
    }

    /// Its sizes; there are no receives of its own where the intake is shared.
    #[inline]
    pub fn caps(&self) -> QpCaps {
        self.caps
    }

    /// The protection domain.
    #[inline]
    pub fn pd(&self) -> &Arc<Pd> {
        &self.body.pd
    }

    /// The completion queue of its sends.
    pub fn send_cq(&self) -> &Arc<Cq> {
        &self.body.sends.cq
    }

    /// The completion queue of its receives.
    pub fn recv_cq(&self) -> &Arc<Cq> {
        &self.body.recv_cq
    }

    /// The intake whose buffers it receives into.
    pub fn intake(&self) -> &Arc<Intake> {
        &self.body.intake
    }

    /// Claims it for the caller, the only ring that ever sends by it.
    ///
    /// # Errors
    ///
    /// `EBUSY` if there is one, or was.
    pub(crate) fn claim(&self) -> Result {
        let claimed = self.has_ring.cmpxchg(false, true, Relaxed);
        claimed.map(drop).map_err(|_| EBUSY)
    }

    /// The fate of the queue pair, which outlives it.
    pub(crate) fn fate(&self) -> &Arc<Fate> {
        &self.body.fate
    }

    /// Changes its state, and the attributes that `mask` names.
    ///
    /// # Safety
    ///
    /// The GID that an address in the attributes refers to, if `mask` names that, must be
    /// referenced by somebody.
    pub(crate) unsafe fn modify(&self, attr: &mut bindings::ib_qp_attr, mask: c_int) -> Result {
        if attr.qp_state == bindings::ib_qp_state_IB_QPS_RTR {
            self.receives.store(true, Relaxed);
        }
        // Neither the RDMA core nor every device driver has a lock of its own for this.
        let mut life = self.life.lock();
        // SAFETY: By the type invariant, and this function's requirements.
        unsafe { qp::modify(self.as_raw(), &mut life, attr, mask) }
    }

    /// Moves it to the state Error: everything posted is flushed, and nothing is sent or received any more. One that is still
    /// in the state Reset stays there, for good.
    ///
    /// # Errors
    ///
    /// `ENODEV` if it has ended; whatever the device says.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn to_error(&self) -> Result {
        {
            let mut life = self.life.lock();
            (*life)?;
            // SAFETY: By the type invariant; it is not destroyed while `life` is locked.
            if unsafe { query_state(self.as_raw()) }? == QpState::Reset {
                // Nothing was posted, and it cannot go to Error.
                //
                // INVARIANT: Its state is not changed any more, lest somebody who is about to connect it go on.
                *life = Err(ENODEV);
                self.is_reset.store(true, Release);
                return Ok(());
            }
        }
        let mut attr = bindings::ib_qp_attr {
            qp_state: bindings::ib_qp_state_IB_QPS_ERR,
            ..Default::default()
        };
        // SAFETY: There is no address.
        unsafe { self.modify(&mut attr, bindings::ib_qp_attr_mask_IB_QP_STATE as c_int) }
    }

    /// Returns true if it may still take receives from a shared receive queue, or have taken one that is not
    /// completed: in error, until the device says otherwise. What has completed is in the completion
    /// queue then.
    ///
    /// A device may never say so: see [`Self::give_up_report`].
    pub fn may_receive(&self) -> bool {
        let fate = &self.body.fate;
        self.body.intake.is_shared()
            && self.receives.load(Relaxed)
            && !fate.last_receive.load(Acquire)
            && fate.reports.are_made()
    }

    /// Notes that the device has not said in time that it takes no more receives. If it has never said so of a queue pair
    /// of the intake, none has to wait for that from now on, until it does.
    pub fn give_up_report(&self) {
        self.body.fate.reports.note_missing();
    }

    /// Resets it for good: the device forgets everything posted. No change of its state succeeds any more.
    ///
    /// # Errors
    ///
    /// Whatever the device says. The queue pair is only good to be destroyed then.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn to_reset(&self) -> Result {
        let mut life = self.life.lock();
        if self.is_reset() {
            return Ok(());
        }
        let mut attr = bindings::ib_qp_attr {
            qp_state: bindings::ib_qp_state_IB_QPS_RESET,
            ..Default::default()
        };
        let mask = bindings::ib_qp_attr_mask_IB_QP_STATE as c_int;
        // SAFETY: By the type invariant; there is no address.
        unsafe { qp::modify(self.as_raw(), &mut life, &mut attr, mask) }?;
        // INVARIANT: Its state is not changed any more.
        *life = Err(ENODEV);
        self.is_reset.store(true, Release);
        Ok(())
    }

    /// Returns true if it is in the state Reset for good, so that the device has none of the requests that were posted.
    pub(crate) fn is_reset(&self) -> bool {
        self.is_reset.load(Acquire)
    }
}

impl SendQp for RcQp {
    type Kept = ();
    type Held = ();

    fn raw(&self) -> *mut bindings::ib_qp {
        self.as_raw()
    }

    fn forget_sends(&self) -> Result {
        self.to_reset()
    }

    fn keep(&self, left: KBox<dyn Left>) {
        let before = self.body.fate.left.lock().replace(left);
        // A queue pair has one ring.
        debug_assert!(before.is_none());
        core::mem::forget(before);
    }
}

/// # Safety
///
/// Called by the device, with a valid event and the context of an [`RcQp`].
unsafe extern "C" fn event(event: *mut bindings::ib_event, context: *mut c_void) {
    // SAFETY: By this function's requirements; the queue pair holds what the device reports to.
    let (event, fate) = unsafe { (&*event, &*context.cast_const().cast::<Fate>()) };
    if event.event == bindings::ib_event_type_IB_EVENT_QP_LAST_WQE_REACHED {
        fate.last_receive.store(true, Release);
        fate.reports.note();
    }
}

/// Bytes of a message that a device takes as it is posted (`IB_SEND_INLINE`), from where it would find them otherwise. 0 if
/// addresses are mapped for the device: the flag has the device driver take them for the kernel's own.
fn inline(device: &Device, caps: &bindings::ib_qp_cap) -> u32 {
    if device.virt_dma() {
        caps.max_inline_data
    } else {
        0
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[kunit_tests(rust_rdma_rc)]
mod tests {
    use super::*;
    use crate::deferred::Reaper;
    use crate::fake::Fake;
    use crate::flush_time::FlushTime;
    use crate::rc_send::{rc_sends, Lane};

    /// Sends of the ring, and receives of the queue pair.
    const SIZE: u32 = 4;

    /// A queue pair, and what it is made of, in the order in which that goes.
    struct Bed {
        qp: Arc<RcQp>,
        _reaper: Reaper,
        fake: Fake,
    }

    impl Bed {
        fn new() -> Result<Self> {
            let fake = Fake::new()?;
            let reaper = Reaper::new()?;
            let dev = fake.device();
            let pd = Pd::new(dev, &reaper)?;
            let init = RcInit {
                pd: &pd,
                send_cq: &Cq::new(dev, SIZE, 0, (), ())?,
                recv_cq: &Cq::new(dev, SIZE, 0, (), ())?,
                intake: &Intake::separate(&pd, SIZE, 1)?,
                caps: QpCaps {
                    send_wr: SIZE,
                    recv_wr: SIZE,
                    send_sge: 1,
                    recv_sge: 1,
                },
            };
            let qp = RcQp::new(init)?;
            Ok(Self {
                qp,
                _reaper: reaper,
                fake,
            })
        }

        /// Moves the queue pair to the state Init, as one does who connects it.
        fn connect(&self) -> Result {
            let mut attr = bindings::ib_qp_attr {
                qp_state: bindings::ib_qp_state_IB_QPS_INIT,
                ..Default::default()
            };
            let mask = bindings::ib_qp_attr_mask_IB_QP_STATE as c_int;
            // SAFETY: There is no address.
            unsafe { self.qp.modify(&mut attr, mask) }
        }
    }

    /// A queue pair that was never connected ends where it is, for good: whoever is about to connect it does not.
    #[test]
    fn a_reset_queue_pair_ends_for_good() -> Result {
        let bed = Bed::new()?;
        assert!(!bed.qp.is_reset());
        assert_eq!(bed.qp.to_error(), Ok(()));
        assert!(bed.qp.is_reset());
        assert_eq!(bed.connect(), Err(ENODEV));
        assert_eq!(bed.qp.to_error(), Err(ENODEV));
        assert_eq!(bed.qp.to_reset(), Ok(()));
        assert_eq!(bed.fake.changes(), 0);
        Ok(())
    }

    /// One that was connected goes to the state Error, from which it is reset, once.
    #[test]
    fn a_connected_queue_pair_flushes_first() -> Result {
        let bed = Bed::new()?;
        bed.connect()?;
        assert_eq!(bed.qp.to_error(), Ok(()));
        assert!(!bed.qp.is_reset());
        // SAFETY: It is there.
        assert!(unsafe { query_state(bed.qp.as_raw()) } == Ok(QpState::Error));
        assert_eq!((bed.qp.to_reset(), bed.fake.changes()), (Ok(()), 3));
        assert!(bed.qp.is_reset());
        assert_eq!((bed.qp.to_reset(), bed.fake.changes()), (Ok(()), 3));
        assert_eq!(bed.connect(), Err(ENODEV));
        Ok(())
    }

    /// Nothing is taken as it is posted by a device that does not use the kernel's addresses, whatever it says.
    #[test]
    fn mapped_messages_are_taken_later() -> Result {
        assert_eq!(Bed::new()?.qp.inline(), 0);
        Ok(())
    }

    /// A send ring is emptied in some time, whatever the device says has completed meanwhile.
    #[test]
    fn a_full_queue_keeps_no_ring_from_its_end() -> Result {
        const POLLS: u32 = 100_000;
        let bed = Bed::new()?;
        let (sender, mut completions) = rc_sends::<()>(bed.qp.pd(), bed.qp.send_cq(), 1, 1)?;
        completions.begin(Lane::new(&bed.qp, true)?, ())?;
        drop(sender);
        bed.fake.flood(POLLS);
        let reaped = completions.drain(&mut FlushTime::of(20));
        assert!(reaped.unknown > 0 && reaped.lost == 0);
        assert!(bed.fake.flood_left() > POLLS / 2);
        bed.fake.flood(0);
        Ok(())
    }
}
