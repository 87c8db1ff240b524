// SPDX-License-Identifier: GPL-2.0

//! Objects that a device does not destroy.
//!
//! A device may refuse to destroy a queue pair, a queue or a protection domain. The memory that it may still access,
//! and the handlers that it may still call, are leaked then. All else is dropped: nothing that waits for a
//! reference, such as the unregistration of an interface or of the device, may wait forever.
//!
//! The object stays with the RDMA core, which shows it and its name to users. What it is made of stays, too.

use core::mem::transmute;
use core::ptr::NonNull;

use ipoib_sys::bindings;
use ipoib_sys::text::TextRef;
use kernel::ffi::c_void;
use kernel::revocable::Revocable;
use kernel::sync::Arc;

/// Memory of a dropped ring that the device may access until the queue pair is destroyed, and that is dropped
/// then.
pub(crate) trait Left: Send {
    /// Leaks the memory that the device may access, since the queue pair will never be destroyed. All else is
    /// still dropped.
    fn abandon(&mut self);
}

/// A handler that the device calls.
pub(crate) trait Told: Send + Sync {
    /// Ends the calls, other than those of a [`CompletionHandler`](crate::cq::CompletionHandler). On return the
    /// handler does not run, and is dropped.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    fn revoke(&self);
}

impl<H: Send + Sync> Told for Revocable<H> {
    fn revoke(&self) {
        Revocable::revoke(self);
    }
}

/// The types of handlers in C.
type CompletionHandler = Option<unsafe extern "C" fn(*mut bindings::ib_cq, *mut c_void)>;
type EventHandler = Option<unsafe extern "C" fn(*mut bindings::ib_event, *mut c_void)>;

/// An object that was not destroyed.
pub(crate) enum Object {
    Pd(NonNull<bindings::ib_pd>),
    Cq(NonNull<bindings::ib_cq>),
    Srq(NonNull<bindings::ib_srq>),
    Qp(NonNull<bindings::ib_qp>),
}

impl Object {
    /// Has the device call a function that does nothing, and returns the object's entry among the RDMA core's resources.
    ///
    /// # Safety
    ///
    /// The object must be there, and nobody use it but the device and the RDMA core.
    unsafe fn detach(self) -> *mut bindings::rdma_restrack_entry {
        // SAFETY: By this function's requirements. Handlers are words that are read without a lock, more than once for a
        // call. The function looks at no argument, and stays.
        unsafe {
            let noop = bindings::ipoib_rs_noop();
            let on_event: EventHandler = transmute(noop);
            match self {
                Self::Pd(pd) => &raw mut (*pd.as_ptr()).res,
                Self::Cq(cq) => {
                    let cq = cq.as_ptr();
                    let on_completion: CompletionHandler = transmute(noop);
                    (&raw mut (*cq).comp_handler).write_volatile(on_completion);
                    (&raw mut (*cq).event_handler).write_volatile(on_event);
                    &raw mut (*cq).res
                }
                Self::Srq(srq) => {
                    let srq = srq.as_ptr();
                    (&raw mut (*srq).event_handler).write_volatile(on_event);
                    &raw mut (*srq).res
                }
                Self::Qp(qp) => {
                    let qp = qp.as_ptr();
                    // The other one is the RDMA core's.
                    (&raw mut (*qp).registered_event_handler).write_volatile(on_event);
                    &raw mut (*qp).res
                }
            }
        }
    }
}

/// Leaves an object to the RDMA core and the device, without the handler that it has. The device may still call:
/// the callback stays with the module, and finds the handler gone, or one of completions that was leaked. If the
/// module is already being unloaded, nothing of the object refers to it any more.
///
/// # Safety
///
/// The object must be there, and nobody use it but the device and the RDMA core.
///
/// # Context
///
/// Process context; may sleep.
pub(crate) unsafe fn leave(object: Object, told: Option<Arc<dyn Told>>) {
    if let Some(told) = told {
        told.revoke();
        core::mem::forget(told);
    }
    // SAFETY: This is code of the module, which is loaded. All else by this function's requirements.
    unsafe {
        if !bindings::ipoib_rs_keep_module() {
            bindings::ipoib_rs_copy_name(object.detach());
            // Soft-RoCE, for one, calls handlers of shared receive queues in work that can be preempted.
            if !bindings::ipoib_rs_wait_for_calls() {
                core::mem::forget(TextRef::new());
            }
        }
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[kernel::prelude::kunit_tests(rust_rdma_left)]
mod tests {
    use super::*;
    use ipoib_netdev::clock::now_ms;
    use ipoib_netdev::task::{Queue, Run, Task};
    use kernel::alloc::flags::__GFP_ZERO;
    use kernel::prelude::*;
    use kernel::str::{CStr, CStrExt};
    use kernel::sync::atomic::{Atomic, Relaxed};
    use kernel::time::{delay::fsleep, Delta};

    /// The name of a client.
    const NAME: &CStr = c"kunit";

    /// # Safety
    ///
    /// `context` must be a `bool`, which is set.
    unsafe extern "C" fn completion(_cq: *mut bindings::ib_cq, context: *mut c_void) {
        // SAFETY: By this function's requirements.
        unsafe { *context.cast::<bool>() = true };
    }

    /// # Safety
    ///
    /// As of [`completion`].
    unsafe extern "C" fn event(_event: *mut bindings::ib_event, context: *mut c_void) {
        // SAFETY: By this function's requirements.
        unsafe { *context.cast::<bool>() = true };
    }

    /// An object of the RDMA core's, zeroed.
    fn object<T>() -> Result<NonNull<T>> {
        let object = KBox::<T>::new_uninit(GFP_KERNEL | __GFP_ZERO)?;
        NonNull::new(KBox::into_raw(object).cast()).ok_or(EINVAL)
    }

    /// Work in the middle of a call, which can be preempted, as that of a device can.
    struct Caller {
        begun: Arc<Atomic<u32>>,
        ended: Arc<Atomic<u32>>,
    }

    impl Run for Caller {
        fn run(&self, _task: &Queue<'_>) {
            let begin = now_ms();
            self.begun.store(1, Relaxed);
            while now_ms() - begin < 100 {
                core::hint::spin_loop();
            }
            self.ended.store(1, Relaxed);
        }
    }

    /// The text of a handler stays until calls of it that have begun are over, in work, too.
    #[test]
    fn calls_are_waited_for() -> Result {
        let (begun, ended) = (
            Arc::new(Atomic::new(0), GFP_KERNEL)?,
            Arc::new(Atomic::new(0), GFP_KERNEL)?,
        );
        let task = Task::new(Caller {
            begun: begun.clone(),
            ended: ended.clone(),
        })?;
        task.queue(0);
        while begun.load(Relaxed) == 0 {
            fsleep(Delta::from_millis(1));
        }
        // SAFETY: Process context.
        let waited = unsafe { bindings::ipoib_rs_wait_for_calls() };
        assert!(!waited || ended.load(Relaxed) == 1);
        Ok(())
    }

    /// Nothing of what is left refers to the module, which may be gone. A device may call it all the same.
    #[test]
    fn what_is_left_calls_nobody() -> Result {
        let (pd, cq) = (object::<bindings::ib_pd>()?, object::<bindings::ib_cq>()?);
        let (srq, qp) = (object::<bindings::ib_srq>()?, object::<bindings::ib_qp>()?);
        // SAFETY: They are ours, and zeroed, as which they are plain data; boxes are freed as what they are.
        unsafe {
            let (raw_cq, raw_srq, raw_qp) = (cq.as_ptr(), srq.as_ptr(), qp.as_ptr());
            (*raw_cq).comp_handler = Some(completion);
            (*raw_cq).event_handler = Some(event);
            (*raw_srq).event_handler = Some(event);
            (*raw_qp).registered_event_handler = Some(event);
            let objects = [
                Object::Pd(pd),
                Object::Cq(cq),
                Object::Srq(srq),
                Object::Qp(qp),
            ];
            for object in objects {
                let res = object.detach();
                (*res).kern_name = NAME.as_char_ptr();
                bindings::ipoib_rs_copy_name(res);
                let name = (*res).kern_name;
                assert!(!core::ptr::eq(name, NAME.as_char_ptr()));
                assert!(CStr::from_char_ptr(name).to_bytes() == NAME.to_bytes());
                bindings::kfree(name.cast());
            }
            let mut called = false;
            let context = (&raw mut called).cast();
            let on_completion = (*raw_cq).comp_handler.ok_or(EINVAL)?;
            on_completion(raw_cq, context);
            let handlers = [
                (*raw_cq).event_handler,
                (*raw_srq).event_handler,
                (*raw_qp).registered_event_handler,
            ];
            for on_event in handlers {
                on_event.ok_or(EINVAL)?(core::ptr::null_mut(), context);
            }
            assert!(!called);
            drop(KBox::from_raw(pd.as_ptr()));
            drop(KBox::from_raw(cq.as_ptr()));
            drop(KBox::from_raw(srq.as_ptr()));
            drop(KBox::from_raw(qp.as_ptr()));
        }
        Ok(())
    }
}
