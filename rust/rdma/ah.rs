// SPDX-License-Identifier: GPL-2.0

//! Address handles, and where they go when the last user drops them.
//!
//! An address handle must be destroyed in process context with no lock held, whereas its last
//! reference may well be dropped by a completion in softirq. So dropping one only puts it on a
//! list, and a work item destroys what is on the list.

use core::ptr::{self, NonNull};

use ipoib_sys::bindings;
use kernel::error::from_err_ptr;
use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, Full, Relaxed};
use kernel::sync::{Arc, Completion};
use kernel::types::Opaque;

use crate::gid::GidRef;
use crate::pd::Pd;

/// Properties of the packets that are sent with an address handle.
#[derive(Clone, Copy, Debug)]
pub struct AhOptions {
    /// Hop limit or time to live; 0 would be dropped on the way.
    pub hop_limit: u8,
    /// Traffic class, or type of service.
    pub traffic_class: u8,
    /// Service level.
    pub sl: u8,
}

impl Default for AhOptions {
    fn default() -> Self {
        Self {
            hop_limit: 64,
            traffic_class: 0,
            sl: 0,
        }
    }
}

/// An address handle: where a datagram goes.
///
/// # Invariants
///
/// * `grave` is owned by this value and holds `raw`, an address handle of its protection domain.
/// * One of the graveyard's users is this value.
pub struct Ah {
    raw: NonNull<bindings::ib_ah>,
    grave: NonNull<Grave>,
}

// SAFETY: An address handle may be used by any thread, and is destroyed by the work item.
unsafe impl Send for Ah {}
// SAFETY: As above.
unsafe impl Sync for Ah {}

/// What is left of an address handle that nobody uses any more.
struct Grave {
    raw: NonNull<bindings::ib_ah>,
    pd: Arc<Pd>,
    next: *mut Grave,
}

impl Ah {
    /// Makes an address handle that sends from `gid`, through its port, to `dgid`.
    ///
    /// On RoCE, the destination's Ethernet address is found by asking the network, which can take
    /// seconds.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `gid` is of another device than `pd` or has an index beyond 255;
    /// `ESHUTDOWN` after the [`Reaper`] was dropped; `EHOSTUNREACH`, `ENETUNREACH`, `ETIMEDOUT`
    /// and the like if the destination cannot be resolved; `ENOMEM`; whatever the device says.
    ///
    /// # Context
    ///
    /// Process context; may sleep. Never with RTNL held. Dropping it is fine in softirq.
    pub fn new(
        pd: &Arc<Pd>,
        gid: &GidRef,
        dgid: [u8; 16],
        options: AhOptions,
    ) -> Result<Arc<Self>> {
        if !gid.device().same(pd.device()) {
            return Err(EINVAL);
        }
        let mut attr = bindings::rdma_ah_attr {
            type_: if pd.device().is_roce(gid.port()) {
                bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE
            } else {
                bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_IB
            },
            ah_flags: bindings::ib_ah_flags_IB_AH_GRH as u8,
            port_num: gid.port(),
            sl: options.sl,
            grh: bindings::ib_global_route {
                sgid_attr: gid.as_raw(),
                sgid_index: u8::try_from(gid.index())?,
                dgid: bindings::ib_gid { raw: dgid },
                flow_label: 0,
                hop_limit: options.hop_limit,
                traffic_class: options.traffic_class,
            },
            ..Default::default()
        };

        let grave = KBox::<Grave>::new_uninit(GFP_KERNEL)?;
        let user = User::new(pd.graveyard())?;
        let mac = link_local_mac(&dgid);
        let raw = match mac {
            Some(mac) if attr.type_ == bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE => {
                attr.__bindgen_anon_1.roce.dmac = mac;
                // SAFETY: `pd` is valid, `attr` is complete and ours, and refers to a GID that is
                // referenced.
                unsafe {
                    bindings::rdma_create_ah(
                        pd.as_raw(),
                        &raw mut attr,
                        bindings::rdma_create_ah_flags_RDMA_CREATE_AH_SLEEPABLE,
                    )
                }
            }
            // Asks the IP stack where the GID is, which can take a second.
            //
            // SAFETY: As above. Without user data this is the kernel's own address handle.
            _ => unsafe {
                bindings::rdma_create_user_ah(pd.as_raw(), &raw mut attr, ptr::null_mut())
            },
        };
        let raw = from_err_ptr(raw)?;
        let raw = NonNull::new(raw).ok_or(ENOMEM)?;
        let grave = KBox::write(
            grave,
            Grave {
                raw,
                pd: pd.clone(),
                next: ptr::null_mut(),
            },
        );
        user.keep();
        // INVARIANT: All was just made; if the allocation fails, the value is dropped like others.
        let ah = Self {
            raw,
            // SAFETY: A box's pointer is not null.
            grave: unsafe { NonNull::new_unchecked(KBox::into_raw(grave)) },
        };
        Ok(Arc::new(ah, GFP_KERNEL)?)
    }

    #[inline]
    pub(crate) fn as_raw(&self) -> *mut bindings::ib_ah {
        self.raw.as_ptr()
    }

    /// The protection domain that it belongs to.
    #[inline]
    pub fn pd(&self) -> &Arc<Pd> {
        // SAFETY: Owned by the type invariant.
        unsafe { &self.grave.as_ref().pd }
    }
}

/// The Ethernet address in a link-local GID that was made from one, as every RoCE port's default
/// GID is (modified EUI-64, RFC 4291, appendix A).
fn link_local_mac(gid: &[u8; 16]) -> Option<[u8; 6]> {
    match *gid {
        [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a, b, c, 0xff, 0xfe, d, e, f] => {
            Some([a ^ 2, b, c, d, e, f])
        }
        _ => None,
    }
}

impl Drop for Ah {
    fn drop(&mut self) {
        // Held across all of this: once the grave is on the list, the work item may empty it, and
        // with it drop what else keeps the graveyard.
        let graveyard = self.pd().graveyard().clone();
        // There are users, this value being one, so that there can be one more.
        let user = User::new(&graveyard);
        graveyard.bury(self.grave);
        drop(user);
    }
}

/// Dropped address handles of all devices, and the work item that destroys them.
///
/// # Invariants
///
/// * `dead` is null or the first of a list of owned graves linked by `next`.
/// * `users` counts the reaper while it is there, the address handles that are not destroyed, and
///   those who are about to queue the work. When it becomes 0, `idle` is completed, and the work is
///   not queued any more.
#[pin_data]
pub(crate) struct Graveyard {
    dead: Atomic<*mut Grave>,
    users: Atomic<i32>,
    #[pin]
    idle: Completion,
    #[pin]
    work: Opaque<bindings::work_struct>,
}

// SAFETY: The list is atomic and its graves, which hold only things that are `Send`, belong to who
// takes them off; the work item is C's to synchronise.
unsafe impl Send for Graveyard {}
// SAFETY: As above.
unsafe impl Sync for Graveyard {}

impl Graveyard {
    fn bury(&self, grave: NonNull<Grave>) {
        let grave = grave.as_ptr();
        let mut head = self.dead.load(Relaxed);
        loop {
            // SAFETY: The grave is ours until it is on the list.
            unsafe { (*grave).next = head };
            // The list is only ever taken as a whole, so that a head that was taken and came back
            // is no harm: it still is the head.
            match self.dead.cmpxchg(head, grave, Full) {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        // SAFETY: The work was initialised, and stays for as long as there are users, of whom the
        // caller is one.
        unsafe { bindings::ipoib_rs_work_queue(self.work.get()) };
    }

    fn empty(&self) {
        let mut next = self.dead.xchg(ptr::null_mut(), Full);
        while let Some(grave) = NonNull::new(next) {
            // SAFETY: The list's graves are owned, and it is ours now. They come from boxes.
            let grave = unsafe { KBox::from_raw(grave.as_ptr()) };
            next = grave.next;
            // SAFETY: The address handle belonged to an `Ah`, which is gone.
            let err = unsafe {
                bindings::rdma_destroy_ah_user(
                    grave.raw.as_ptr(),
                    bindings::rdma_destroy_ah_flags_RDMA_DESTROY_AH_SLEEPABLE,
                    ptr::null_mut(),
                )
            };
            if err != 0 {
                pr_err!("address handle not destroyed: {}\n", err);
            }
            drop(grave);
            self.put();
        }
    }

    fn put(&self) {
        if self.users.fetch_sub(1, Full) == 1 {
            self.idle.complete_all();
        }
    }
}

/// # Safety
///
/// Called by the workqueue for the work of a [`Graveyard`].
unsafe extern "C" fn reap(work: *mut bindings::work_struct) {
    let field = Opaque::cast_from(work);
    // SAFETY: By this function's requirements; `Reaper::drop` waits for the work before the
    // graveyard can go.
    unsafe { &*kernel::container_of!(field, Graveyard, work) }.empty();
}

/// One of a graveyard's users.
struct User<'a>(&'a Graveyard);

impl<'a> User<'a> {
    fn new(graveyard: &'a Graveyard) -> Result<Self> {
        let mut users = graveyard.users.load(Acquire);
        loop {
            if users <= 0 || users == i32::MAX {
                return Err(ESHUTDOWN);
            }
            match graveyard.users.cmpxchg(users, users + 1, Full) {
                Ok(_) => return Ok(Self(graveyard)),
                Err(now) => users = now,
            }
        }
    }

    /// Leaves the use to an [`Ah`].
    fn keep(self) {
        core::mem::forget(self);
    }
}

impl Drop for User<'_> {
    fn drop(&mut self) {
        self.0.put();
    }
}

/// Destroys dropped address handles. The module owns it and drops it last.
pub struct Reaper {
    graveyard: Arc<Graveyard>,
}

impl Reaper {
    /// A reaper with nothing to do.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn new() -> Result<Self> {
        let graveyard = Arc::pin_init(
            pin_init!(Graveyard {
                dead: Atomic::new(ptr::null_mut()),
                users: Atomic::new(1),
                idle <- Completion::new(),
                work <- Opaque::ffi_init(|work| {
                    // SAFETY: `work` is writable and pinned.
                    unsafe { bindings::ipoib_rs_work_init(work, Some(reap)) };
                }),
            }),
            GFP_KERNEL,
        )?;
        Ok(Self { graveyard })
    }

    pub(crate) fn graveyard(&self) -> &Arc<Graveyard> {
        &self.graveyard
    }

    /// Waits until every address handle whose last reference was dropped before is destroyed, and
    /// does not hold its protection domain any more.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn flush(&self) {
        // SAFETY: The work was initialised.
        unsafe { bindings::flush_work(self.graveyard.work.get()) };
    }
}

impl Drop for Reaper {
    /// Waits until every address handle was dropped and is destroyed.
    fn drop(&mut self) {
        self.graveyard.put();
        self.graveyard.idle.wait_for_completion();
        // SAFETY: The work was initialised; without users nobody queues it any more.
        unsafe { bindings::cancel_work_sync(self.graveyard.work.get()) };
    }
}
