// SPDX-License-Identifier: GPL-2.0

//! Neighbours on RoCE: the Ethernet address behind a GID, which the IP stack knows, or asks its own neighbours for.
//!
//! C headers: [`include/rdma/ib_addr.h`](srctree/include/rdma/ib_addr.h).

use ipoib_sys::bindings;
use kernel::error::to_result;
use kernel::ffi::{c_int, c_void};
use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, Relaxed, Release};
use kernel::sync::Arc;
use kernel::types::Opaque;

use crate::gid::GidRef;
use crate::sa::Notify;

/// The length of an Ethernet address.
const MAC_LEN: usize = 6;

/// A status that the IP stack does not answer with.
const NO_ANSWER: c_int = 1;

/// A neighbour whose Ethernet address is watched until this is dropped.
///
/// # Invariants
///
/// `raw` was initialised by `ipoib_rs_neighbour_watch`, and is in its table or in none.
#[pin_data(PinnedDrop)]
pub(crate) struct Neighbour {
    #[pin]
    raw: Opaque<bindings::ipoib_rs_neighbour>,
    moved: Atomic<bool>,
    notify: Arc<dyn Notify>,
}

// SAFETY: The C part is protected by a lock of its own, and its address does not change once it is watched.
unsafe impl Send for Neighbour {}
// SAFETY: As above.
unsafe impl Sync for Neighbour {}

impl Neighbour {
    /// Finds the neighbour that has a GID, or that leads to it, and watches it: `notify` is told when it has another
    /// Ethernet address, or is lost. If the IP stack does not know it, it asks for it; until it has an answer, the address is
    /// `presumed`.
    ///
    /// # Errors
    ///
    /// `EHOSTUNREACH` if it is not known and nothing is presumed; `ENETUNREACH` and the like; `ENOMEM`.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub(crate) fn watch(
        gid: &GidRef,
        to: [u8; 16],
        presumed: Option<[u8; MAC_LEN]>,
        notify: Arc<dyn Notify>,
    ) -> Result<Pin<KBox<Self>>> {
        let to = bindings::ib_gid { raw: to };
        KBox::pin_init(
            try_pin_init!(Self {
                moved: Atomic::new(false),
                notify,
                raw <- Opaque::try_ffi_init(|raw: *mut bindings::ipoib_rs_neighbour| {
                    // SAFETY: The memory is writable and stays where it is until `drop`; zero is valid for all of its
                    // fields but the callback. The GID is referenced. The rest of the value is there already.
                    to_result(unsafe {
                        raw.write(bindings::ipoib_rs_neighbour {
                            mac: presumed.unwrap_or_default(),
                            changed: Some(changed),
                            ..Default::default()
                        });
                        let presumed = presumed.is_some();
                        bindings::ipoib_rs_neighbour_watch(raw, gid.as_raw(), &raw const to, presumed)
                    })
                }),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// Its Ethernet address.
    pub(crate) fn mac(&self) -> [u8; MAC_LEN] {
        // SAFETY: Nobody writes it any more.
        unsafe { (*self.raw.get()).mac }
    }

    /// Returns true if it has got another Ethernet address, or was lost, since this was last asked.
    pub(crate) fn take_moved(&self) -> bool {
        self.moved.load(Relaxed) && self.moved.xchg(false, Relaxed)
    }
}

#[pinned_drop]
impl PinnedDrop for Neighbour {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariant. On return, `changed` neither runs nor will.
        unsafe { bindings::ipoib_rs_neighbour_forget(self.raw.get()) };
    }
}

/// Notes that a neighbour has moved.
///
/// # Safety
///
/// Called for the C part of a [`Neighbour`] that is complete.
unsafe extern "C" fn changed(raw: *mut bindings::ipoib_rs_neighbour) {
    let field = Opaque::cast_from(raw);
    // SAFETY: By this function's requirements.
    let this = unsafe { &*kernel::container_of!(field, Neighbour, raw) };
    this.moved.store(true, Relaxed);
    this.notify.notify();
}

/// Memory that the IP stack writes to, and its answer.
#[pin_data]
struct Asked {
    #[pin]
    address: Opaque<bindings::rdma_dev_addr>,
    status: Atomic<c_int>,
    notify: Arc<dyn Notify>,
}

/// A question for a neighbour. Dropping it cancels it.
///
/// # Invariants
///
/// The IP stack may use `asked` and the GID until the question was cancelled, or is answered.
pub struct NeighbourQuery {
    asked: Pin<KBox<Asked>>,
    _gid: GidRef,
}

// SAFETY: A question may be cancelled by any thread.
unsafe impl Send for NeighbourQuery {}
// SAFETY: As above; what is shared is atomic.
unsafe impl Sync for NeighbourQuery {}

impl NeighbourQuery {
    /// Asks for the neighbour that has a GID, or that leads to it; `notify` is told of the answer, which may come
    /// before this returns. Once there is one, [`Ah::new`](crate::Ah::new) finds it, as a rule.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if `gid` is none of RoCE; `EINVAL` if one of the GIDs is an IPv4 address and the other is not;
    /// `ENETUNREACH` and the like; `ENOMEM`.
    ///
    /// # Context
    ///
    /// Process context; may sleep. So must be dropping it, which waits for [`Notify::notify`].
    pub fn new(
        gid: &GidRef,
        to: [u8; 16],
        timeout_ms: u32,
        notify: Arc<dyn Notify>,
    ) -> Result<Self> {
        if !gid.device().is_roce(gid.port()) {
            return Err(EOPNOTSUPP);
        }
        let asked = KBox::pin_init(
            pin_init!(Asked {
                address: Opaque::zeroed(),
                status: Atomic::new(NO_ANSWER),
                notify,
            }),
            GFP_KERNEL,
        )?;
        let to = bindings::ib_gid { raw: to };
        let context = (&raw const *asked).cast_mut().cast::<c_void>();
        // INVARIANT: Dropping it cancels the question. If there is none, that does nothing.
        let query = Self {
            asked,
            _gid: gid.clone(),
        };
        // SAFETY: The GID is referenced, and both it and the memory stay until `drop` has cancelled the question.
        to_result(unsafe {
            bindings::ipoib_rs_neighbour_ask(
                query.asked.address.get(),
                gid.as_raw(),
                &raw const to,
                timeout_ms,
                Some(answered),
                context,
            )
        })?;
        Ok(query)
    }

    /// The answer, if it has come: `ETIMEDOUT` if there is no such neighbour; `ENETUNREACH` and the like.
    pub fn answer(&self) -> Option<Result> {
        match self.asked.status.load(Acquire) {
            NO_ANSWER => None,
            status => Some(to_result(status)),
        }
    }
}

impl Drop for NeighbourQuery {
    fn drop(&mut self) {
        // SAFETY: The memory is that of the question, if there is one. On return, `answered` neither runs nor will.
        unsafe { bindings::rdma_addr_cancel(self.asked.address.get()) };
    }
}

/// Keeps the answer to a question.
///
/// # Safety
///
/// Called by the IP stack, once, for a question of [`NeighbourQuery::new`], with its context.
unsafe extern "C" fn answered(
    status: c_int,
    _from: *mut bindings::sockaddr,
    _address: *mut bindings::rdma_dev_addr,
    context: *mut c_void,
) {
    // SAFETY: By this function's requirements. Whoever drops the question waits for this.
    let asked = unsafe { &*context.cast_const().cast::<Asked>() };
    asked.status.store(status.min(0), Release);
    asked.notify.notify();
}

#[cfg(CONFIG_KUNIT = "y")]
#[kunit_tests(rust_rdma_neighbour)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use ipoib_netdev::faults::each_allocation_fails;

    /// A caller that wants no answer.
    struct Deaf;

    impl Notify for Deaf {
        fn notify(&self) {}
    }

    /// Without memory nobody is asked, and nothing is kept. The IP stack does not know IPv6 neighbours of IPv4 addresses,
    /// which it says last.
    #[test]
    fn no_memory_asks_for_no_neighbour() -> Result {
        let fake = Fake::new()?;
        fake.speak(bindings::RDMA_CORE_PORT_IBA_ROCE_UDP_ENCAP);
        let mut v4 = [0; 16];
        v4[10..].copy_from_slice(&[0xff, 0xff, 10, 1, 0, 1]);
        let gid = fake.gid(v4)?;
        let deaf = Arc::new(Deaf, GFP_KERNEL)?;
        let mut tries = 0;
        each_allocation_fails(|| {
            tries += 1;
            match NeighbourQuery::new(&gid.reference, [0xfe; 16], 1, deaf.clone()) {
                Err(EINVAL) => Ok(()),
                Err(error) => Err(error),
                Ok(_) => Err(EIO),
            }
        })?;
        // The memory for the answer, and the question, where faults are injected.
        assert!(matches!(tries, 1 | 3..));
        assert!(Arc::into_unique_or_drop(deaf).is_some());
        Ok(())
    }
}
