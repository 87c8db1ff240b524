// SPDX-License-Identifier: GPL-2.0

//! Services of which other hosts request connections.

use core::cell::Cell;
use core::marker::PhantomData;
use core::ptr::NonNull;

use ipoib_sys::bindings;
use kernel::error::{from_err_ptr, to_result};
use kernel::ffi::c_int;
use kernel::new_mutex;
use kernel::prelude::*;
use kernel::sync::{Arc, Mutex};

use super::id::{CmId, Room};
use super::report::{as_context, event};
use super::{private_data, send_reject, CmHandler, RejectReason, REQUEST_DATA};
use crate::pd::Pd;

/// Handler of requests for a service.
pub trait Listen: Send + Sync + 'static {
    /// Handles a request for a connection. Requests come one by one.
    ///
    /// # Context
    ///
    /// Process context; may sleep. The [`Listener`] must not be dropped in here, and who drops it
    /// must not hold a lock that is taken in here.
    fn request(&self, incoming: Incoming<'_>);
}

/// The context of a listener, which the CM passes to [`incoming`].
#[pin_data]
struct Door<L> {
    #[pin]
    open: Mutex<bool>,
    listen: Arc<L>,
    pd: Arc<Pd>,
}

/// A service on offer, until this value is dropped.
///
/// # Invariants
///
/// `raw` is owned by this value. Its handler is `incoming::<L>`, its context is `door`'s value.
pub struct Listener<L: Listen> {
    raw: NonNull<bindings::ib_cm_id>,
    door: Arc<Door<L>>,
}

// SAFETY: It is only kept and dropped, which any thread may do.
unsafe impl<L: Listen> Send for Listener<L> {}
// SAFETY: As above.
unsafe impl<L: Listen> Sync for Listener<L> {}

impl<L: Listen> Listener<L> {
    /// Offers the service `service_id`, on all ports of the device; `listen` is told of requests.
    ///
    /// # Errors
    ///
    /// `EBUSY` if somebody offers it already; `EINVAL` for an ID that is not for us to choose;
    /// `ENOMEM`.
    ///
    /// # Context
    ///
    /// Process context; may sleep. So must be dropping it, which waits for [`Listen::request`].
    pub fn new(pd: &Arc<Pd>, service_id: u64, listen: Arc<L>) -> Result<Self> {
        let pd = pd.clone();
        let door = Arc::pin_init(
            pin_init!(Door {
                open <- new_mutex!(true),
                listen,
                pd,
            }),
            GFP_KERNEL,
        )?;
        // SAFETY: The device is registered, and the context lives until the ID is destroyed.
        let raw = from_err_ptr(unsafe {
            bindings::ib_create_cm_id(
                door.pd.device().as_raw(),
                Some(incoming::<L>),
                as_context(&door),
            )
        })?;
        // INVARIANT: It was just made.
        let listener = Self {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
            door,
        };
        // SAFETY: Owned by the type invariant.
        to_result(unsafe { bindings::ib_cm_listen(listener.raw.as_ptr(), service_id.to_be()) })?;
        Ok(listener)
    }
}

impl<L: Listen> Drop for Listener<L> {
    fn drop(&mut self) {
        // The CM waits as well, but logs that.
        *self.door.open.lock() = false;
        // SAFETY: Owned by the type invariant. On return no request is reported.
        unsafe { bindings::ib_destroy_cm_id(self.raw.as_ptr()) };
    }
}

/// # Safety
///
/// Called by the CM for the ID of a [`Listener<L>`], which is held meanwhile, with a valid event and
/// a new ID.
unsafe extern "C" fn incoming<L: Listen>(
    id: *mut bindings::ib_cm_id,
    event: *const bindings::ib_cm_event,
) -> c_int {
    // SAFETY: By this function's requirements; the new ID has the listener's context.
    let door = unsafe { &*(*id).context.cast_const().cast::<Door<L>>() };
    // SAFETY: By this function's requirements.
    let event = unsafe { &*event };
    // Returning an error destroys the new ID: that has no owner yet.
    let refused = EINVAL.to_errno();
    if event.event != bindings::ib_cm_event_type_IB_CM_REQ_RECEIVED {
        // A request for a service's queue pair, without a connection (SIDR).
        return refused;
    }
    // SAFETY: That is what this event comes with.
    let req = unsafe { &event.param.req_rcvd };
    let port = u32::from(req.port);
    // SAFETY: The event comes with a path, which is as long-lived.
    let path = unsafe { &*req.primary_path };
    let gid = if door.pd.device().is_roce(port) {
        if req.ppath_sgid_attr.is_null() {
            return refused;
        }
        // SAFETY: The GID is referenced by the new ID's path.
        unsafe { (*req.ppath_sgid_attr).gid }
    } else {
        path.sgid
    };
    let Some(raw) = NonNull::new(id) else {
        return refused;
    };
    let verdict = Cell::new(refused);
    // INVARIANT: As this function's requirements say.
    let incoming = Incoming {
        raw,
        verdict: &verdict,
        pd: &door.pd,
        port,
        // SAFETY: Every view of the union is plain bytes.
        local_gid: unsafe { gid.raw },
        path,
        req,
        // SAFETY: That is what this event comes with.
        private_data: unsafe { private_data(event, REQUEST_DATA) },
        _thread: PhantomData,
    };
    let open = door.open.lock();
    if *open {
        door.listen.request(incoming);
    }
    verdict.get()
}

/// A request for a connection. Dropping it rejects the request.
///
/// # Invariants
///
/// `raw` is the new ID of a request that is being reported; it has no owner, and the CM destroys it after the report if `verdict` is not 0 then.
pub struct Incoming<'a> {
    raw: NonNull<bindings::ib_cm_id>,
    verdict: &'a Cell<c_int>,
    pd: &'a Arc<Pd>,
    port: u32,
    local_gid: [u8; 16],
    path: &'a bindings::sa_path_rec,
    req: &'a bindings::ib_cm_req_event_param,
    private_data: &'a [u8],
    /// It belongs to the report, and so to its thread.
    _thread: PhantomData<*mut ()>,
}

impl Incoming<'_> {
    /// The GID that it came to.
    pub fn local_gid(&self) -> [u8; 16] {
        self.local_gid
    }

    /// The GID that it came from, as the peer says.
    pub fn remote_gid(&self) -> [u8; 16] {
        // SAFETY: Every view of the union is plain bytes.
        unsafe { self.path.dgid.raw }
    }

    /// On InfiniBand, the base LID of the port that it came from: what the fabric says, not the peer. A port has 2^LMC
    /// LIDs; the peer's LMC is taken to be ours. `None` on other ports.
    pub fn remote_lid(&self) -> Option<u16> {
        if self.path.rec_type != bindings::sa_path_rec_type_SA_PATH_REC_TYPE_IB {
            return None;
        }
        // SAFETY: That is the view of the union for this type.
        let lid = u16::from_be(unsafe { self.path.__bindgen_anon_1.ib.dlid });
        let (device, mut lmc) = (self.pd.device().as_raw(), 0);
        // SAFETY: The device is registered while its requests are reported; there is room for the answer.
        let err = unsafe { bindings::ib_get_cached_lmc(device, self.port, &raw mut lmc) };
        Some(base_lid(lid, if err == 0 { lmc.into() } else { 0 }))
    }

    /// On RoCE, the Ethernet address that the answer goes to, be it that of a router: that of the GID which the request came
    /// from as the network says, not the peer. `None` on other ports, and where the device sends to the GID itself.
    pub fn remote_mac(&self) -> Option<[u8; 6]> {
        self.pd.device().sends_to_macs().then_some(())?;
        mac_of(self.path)
    }

    /// The requested service.
    pub fn service_id(&self) -> u64 {
        u64::from_be(self.path.service_id)
    }

    /// The partition that the connection is to be in.
    pub fn pkey(&self) -> u16 {
        u16::from_be(self.path.pkey)
    }

    /// The port that it came to.
    pub fn port(&self) -> u32 {
        self.port
    }

    /// The requested MTU in bytes; `None` if there is none such.
    pub fn mtu(&self) -> Option<u32> {
        // The message has 4 bits for it.
        let mtu = bindings::ib_mtu::from(self.path.mtu);
        (bindings::ib_mtu_IB_MTU_256..=bindings::ib_mtu_IB_MTU_4096)
            .contains(&mtu)
            .then(|| 128 << mtu)
    }

    /// Returns true if that is a reliable connection one.
    pub fn is_rc(&self) -> bool {
        self.req.qp_type == bindings::ib_qp_type_IB_QPT_RC
    }

    /// The peer's private data, [`REQUEST_DATA`] bytes.
    pub fn private_data(&self) -> &[u8] {
        self.private_data
    }

    /// Rejects the request.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn reject(self, reason: RejectReason, private_data: &[u8]) {
        // If it fails, the CM tries to reject it without a reason.
        //
        // SAFETY: Valid by the type invariant.
        let _ = unsafe { send_reject(self.raw, reason, private_data) };
    }

    /// Takes the request over: the returned ID answers it, and `handler` is told of its events from here on.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, of which the peer is not told, so that it sends the request again; `ESHUTDOWN` after the
    /// [`crate::Reaper`] was dropped.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn take<H: CmHandler>(self, handler: Arc<H>) -> Result<CmId<H>> {
        let room =
            Room::new(self.pd, handler).inspect_err(|err| self.verdict.set(err.to_errno()))?;
        // SAFETY: Valid by the type invariant. Until it is answered nothing happens on the ID but
        // this report, after which the CM looks at these again.
        unsafe {
            (*self.raw.as_ptr()).context = as_context(&room.context);
            (*self.raw.as_ptr()).cm_handler = Some(event::<H>);
        }
        // From here on it has an owner, so that the CM must not destroy it.
        self.verdict.set(0);
        // SAFETY: It is the listener's device's, has just got the handler and the context, and is not used here
        // any more.
        Ok(unsafe { CmId::own(self.raw, true, room, self.pd) })
    }
}

/// The Ethernet address of a path, if it has one.
fn mac_of(path: &bindings::sa_path_rec) -> Option<[u8; 6]> {
    match path.rec_type {
        bindings::sa_path_rec_type_SA_PATH_REC_TYPE_ROCE_V1
        | bindings::sa_path_rec_type_SA_PATH_REC_TYPE_ROCE_V2 => {
            // SAFETY: That is the view of the union for these types.
            Some(unsafe { path.__bindgen_anon_1.roce.dmac })
        }
        _ => None,
    }
}

/// The first of the 2^`lmc` LIDs of a port (IBA volume 1, section 4.1.3), of which `lid` is one.
fn base_lid(lid: u16, lmc: u32) -> u16 {
    lid & u16::MAX.checked_shl(lmc).unwrap_or(0)
}

#[cfg(CONFIG_KUNIT = "y")]
#[kunit_tests(rust_rdma_cm_listen)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    /// An answer goes to an Ethernet address on RoCE only, unless the device finds the way by the GID.
    #[test]
    fn an_answer_goes_to_a_mac_on_roce() -> Result {
        let mut path = KBox::<bindings::sa_path_rec>::zeroed(GFP_KERNEL)?;
        path.__bindgen_anon_1.roce.dmac = [2, 0, 0, 0, 0, 7];
        path.rec_type = bindings::sa_path_rec_type_SA_PATH_REC_TYPE_ROCE_V2;
        assert_eq!(mac_of(&path), Some([2, 0, 0, 0, 0, 7]));
        path.rec_type = bindings::sa_path_rec_type_SA_PATH_REC_TYPE_IB;
        assert_eq!(mac_of(&path), None);
        let fake = Fake::new()?;
        assert!(fake.device().sends_to_macs());
        // SAFETY: The device is the test's, and nobody else looks.
        unsafe {
            (*fake.device().as_raw()).ops.driver_id = bindings::rdma_driver_id_RDMA_DRIVER_RXE
        };
        assert!(!fake.device().sends_to_macs());
        Ok(())
    }

    #[test]
    fn a_port_has_one_base_lid() {
        for (lid, lmc, base) in [
            (7, 0, 7),
            (7, 1, 6),
            (7, 3, 0),
            (0xbfff, 7, 0xbf80),
            (9, 16, 0),
        ] {
            assert_eq!(base_lid(lid, lmc), base);
        }
    }
}
