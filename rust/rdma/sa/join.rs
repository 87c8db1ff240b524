// SPDX-License-Identifier: GPL-2.0

//! Membership in the multicast groups that the subnet administrator keeps.
//!
//! It keeps one membership for each port, with a bit for full members and one for those that only send. The RDMA core
//! counts who wants which on a port, and sets and clears the bits. opensm takes a port that is no full member any more for
//! one that has left, if it was the last in the group, and then refuses the rest. So the bit of those that only send goes
//! before that of full members here: a sender is a full member, too, where the port is one or where another driver may make
//! it one, and a full member stays as long as others only send.

use core::ptr;

use ipoib_netdev::device::RawDevice;
use ipoib_sys::bindings;
use kernel::error::{from_err_ptr, to_result};
use kernel::ffi::c_int;
use kernel::new_spinlock;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::{Arc, SpinLock};

use super::{Notify, SaClient};
use crate::deferred::{DeferDrop, Deferred, Reserved};
use crate::device::Device;
use crate::gid::GidRef;
use crate::members::{self, Role};

/// A multicast group, as the SA tells it.
#[derive(Clone, Copy)]
pub struct GroupRecord(bindings::ib_sa_mcmember_rec);

impl GroupRecord {
    /// The group's GID.
    pub fn mgid(&self) -> [u8; 16] {
        // SAFETY: Every view of the union is plain bytes.
        unsafe { self.0.mgid.raw }
    }

    /// The group's LID.
    pub fn mlid(&self) -> u16 {
        u16::from_be(self.0.mlid)
    }

    /// The Q_Key of its packets.
    pub fn qkey(&self) -> u32 {
        u32::from_be(self.0.qkey)
    }

    /// The code of its IB MTU: 1 for 256 bytes, 2 for twice that, and so on; or anything else.
    pub fn mtu_code(&self) -> u8 {
        self.0.mtu
    }

    /// The traffic class of its packets.
    pub fn traffic_class(&self) -> u8 {
        self.0.traffic_class
    }

    pub(crate) fn as_raw(&self) -> *const bindings::ib_sa_mcmember_rec {
        &raw const self.0
    }
}

impl Role {
    /// Bit in JoinState.
    const fn join_state(self) -> u8 {
        1 << match self {
            Self::Receiver | Self::Sender => bindings::ib_sa_mc_join_states_FULLMEMBER_JOIN,
            Self::SendOnly => bindings::ib_sa_mc_join_states_SENDONLY_FULLMEMBER_JOIN,
        }
    }
}

/// A group to join.
#[derive(Clone, Copy)]
pub struct JoinRequest<'a> {
    /// The port's GID.
    pub from: &'a GidRef,
    /// The group.
    pub mgid: [u8; 16],
    /// The partition.
    pub pkey: u16,
    /// A queue pair is going to receive from it. Otherwise it is only sent to.
    pub receives: bool,
    /// The IPoIB interface that it is for.
    pub interface: &'a RawDevice,
    /// A group whose Q_Key, MTU, rate, SL, traffic class, flow label and hop limit this one has to have; it is
    /// made with these if there is none. None: it has to be there, whatever it is like.
    pub like: Option<&'a GroupRecord>,
}

/// Result of a request to join.
#[derive(Clone, Copy)]
pub enum JoinState {
    /// There is no answer yet.
    Joining,
    /// Member of this group.
    Member(GroupRecord),
    /// The SA has refused (`EINVAL`), did not answer (`ETIMEDOUT`), or could not be asked.
    Failed(Error),
    /// It was joined, and has to be joined anew: the port was down, its LID or its P_Key has changed, or the
    /// subnet manager is another one.
    Reset,
}

/// State of a request, which its callback changes.
#[pin_data]
struct Progress {
    #[pin]
    state: SpinLock<JoinState>,
    /// None once its owner has given it up.
    #[pin]
    notify: SpinLock<Option<Arc<dyn Notify>>>,
}

/// A membership, or a request for it. Dropping it leaves the group, or cancels the request: at once, unless others on the
/// port are to leave first.
pub struct Join {
    body: Deferred<Body>,
}

/// Parts of a membership that are there until the group was left.
///
/// # Invariants
///
/// `raw`, if it is not null, is a request, owned by this value, whose context is `progress`.
struct Body {
    raw: Atomic<*mut bindings::ib_sa_multicast>,
    /// It is the second time that it is to be dropped.
    again: bool,
    progress: Arc<Progress>,
    member: members::Member,
    port: u32,
    mgid: [u8; 16],
    _client: Arc<SaClient>,
    device: Device,
}

// SAFETY: A request may be given up by any thread.
unsafe impl Send for Body {}
// SAFETY: As above.
unsafe impl Sync for Body {}

impl Body {
    /// Leaves the group, unless it was left or that is too early: send-only members on the port have to leave before the
    /// last full one.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    fn leave(&self) {
        if self.raw.load(Relaxed).is_null() || !self.member.leave(self.has_senders()) {
            return;
        }
        let raw = self.raw.xchg(ptr::null_mut(), Relaxed);
        // SAFETY: Owned by the type invariant, and given up here, by its owner or the work item that the owner has left
        // it to; this is not its callback, which drops nothing. On return, no callback runs.
        unsafe { bindings::ib_sa_free_multicast(raw) };
    }

    /// Returns true if this is a full member, and the port a send-only one, too.
    fn has_senders(&self) -> bool {
        let is_over = matches!(
            *self.progress.state.lock(),
            JoinState::Failed(_) | JoinState::Reset
        );
        let (device, port, send_only) = (&self.device, self.port, Role::SendOnly);
        !is_over
            && !self.member.is(send_only)
            && !device.is_given_up()
            && (port_state(device, port, &self.mgid) & send_only.join_state() != 0
                || device.members().count(port, &self.mgid, send_only) > 0)
    }
}

impl DeferDrop for Body {
    fn prepare_drop(&mut self) -> bool {
        self.leave();
        // The core still counts the port as a member for a moment, and so does `member`.
        core::mem::replace(&mut self.again, true) && self.raw.load(Relaxed).is_null()
    }
}

impl Join {
    /// Asks to join a group; `notify` is told of each change of [`Self::state`], the first of which may come before
    /// this returns.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the device has no SA, as on RoCE; `ESHUTDOWN` if the device goes; `ENOMEM`.
    ///
    /// # Context
    ///
    /// Process context; may sleep. So must be dropping it.
    pub fn new(
        client: &Arc<SaClient>,
        request: &JoinRequest<'_>,
        notify: Arc<dyn Notify>,
    ) -> Result<Self> {
        let device = request.from.device();
        let port = request.from.port();
        if !device.is_infiniband(port) {
            return Err(ENODEV);
        }
        let role = role(request);
        let member = device.members().add(port, request.mgid, role)?;
        let room = Reserved::new(device.patient())?;
        let progress = Arc::pin_init(
            pin_init!(Progress {
                state <- new_spinlock!(JoinState::Joining),
                notify <- new_spinlock!(Some(notify)),
            }),
            GFP_KERNEL,
        )?;
        let join = bindings::ipoib_rs_sa_join {
            mgid: bindings::ib_gid { raw: request.mgid },
            port_gid: bindings::ib_gid {
                raw: request.from.raw(),
            },
            pkey: request.pkey,
            join_state: role.join_state(),
            like: request.like.map_or(ptr::null(), GroupRecord::as_raw),
        };
        // SAFETY: The client and the device are registered, and the port is one of InfiniBand. The context lives
        // until the group is left, after which there are no callbacks.
        let raw = from_err_ptr(unsafe {
            bindings::ipoib_rs_sa_join(
                client.as_raw(),
                device.as_raw(),
                port,
                &raw const join,
                Some(changed),
                Arc::as_ptr(&progress).cast_mut().cast(),
            )
        })?;
        // INVARIANT: It was just made.
        let body = Body {
            raw: Atomic::new(raw),
            again: false,
            progress,
            member,
            port,
            mgid: request.mgid,
            _client: client.clone(),
            device: device.clone(),
        };
        Ok(Self {
            body: room.fill(body),
        })
    }

    /// Its result so far.
    ///
    /// # Context
    ///
    /// Process context.
    pub fn state(&self) -> JoinState {
        *self.body.progress.state.lock()
    }
}

impl Drop for Join {
    fn drop(&mut self) {
        let notify = self.body.progress.notify.lock().take();
        // Not under the lock: it may hold an interface.
        drop(notify);
        self.body.leave();
    }
}

/// # Safety
///
/// Called by the SA for a request of [`Join::new`] that is not given up.
unsafe extern "C" fn changed(status: c_int, multicast: *mut bindings::ib_sa_multicast) -> c_int {
    // SAFETY: By this function's requirements. The context lives until the request is given up, which waits for
    // this.
    let (progress, rec) = unsafe {
        let progress = &*(*multicast).context.cast_const().cast::<Progress>();
        (progress, (*multicast).rec)
    };
    *progress.state.lock() = match to_result(status) {
        Ok(()) => JoinState::Member(GroupRecord(rec)),
        Err(error) if error == ENETRESET => JoinState::Reset,
        Err(error) => JoinState::Failed(error),
    };
    let notify = progress.notify.lock().clone();
    if let Some(notify) = notify {
        notify.notify();
    }
    // An error would give it up, which is for its owner to do.
    0
}

/// States by which a port is in a group, whoever has joined it. The core takes one back when it begins to leave.
fn port_state(device: &Device, port: u32, mgid: &[u8; 16]) -> u8 {
    if !device.is_infiniband(port) {
        return 0;
    }
    let mut mgid = bindings::ib_gid { raw: *mgid };
    let mut rec = bindings::ib_sa_mcmember_rec::default();
    // SAFETY: The device is registered, and the port is one of InfiniBand; the GID and the record are ours.
    let err = unsafe {
        bindings::ib_sa_get_mcmember_rec(device.as_raw(), port, &raw mut mgid, &raw mut rec)
    };
    if err == 0 {
        rec.join_state
    } else {
        0
    }
}

/// The part that a request is to have, so that nobody who only sends outlasts the port's full members.
fn role(request: &JoinRequest<'_>) -> Role {
    if request.receives {
        return Role::Receiver;
    }
    let (device, port, mgid) = (request.from.device(), request.from.port(), &request.mgid);
    let full = |role| device.members().count(port, mgid, role) > 0;
    if full(Role::Receiver)
        || full(Role::Sender)
        || port_state(device, port, mgid) & Role::Sender.join_state() != 0
        || device.is_shared(port, request.interface, None)
    {
        Role::Sender
    } else {
        Role::SendOnly
    }
}

/// Returns true if a user of the RDMA core other than the port's IPoIB interfaces, of which `own` is one, has joined a
/// group on the port to receive from it.
///
/// # Context
///
/// Process context; may sleep.
pub fn has_other_members(gid: &GidRef, mgid: &[u8; 16], own: &RawDevice) -> bool {
    let (device, port) = (gid.device(), gid.port());
    port_state(device, port, mgid) & Role::Receiver.join_state() != 0
        && device.members().count(port, mgid, Role::Receiver) == 0
        && device.members().count(port, mgid, Role::Sender) == 0
        && !device.is_shared(port, own, Some(mgid))
}
