// SPDX-License-Identifier: GPL-2.0

//! Membership in the multicast groups that the subnet administrator keeps.

use core::ptr::NonNull;

use ipoib_sys::bindings;
use kernel::error::{from_err_ptr, to_result};
use kernel::ffi::c_int;
use kernel::new_spinlock;
use kernel::prelude::*;
use kernel::sync::{Arc, SpinLock};

use super::{Notify, SaClient};
use crate::device::Device;
use crate::gid::GidRef;

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

/// How to be a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemberKind {
    /// To receive from the group and to send to it.
    Full,
    /// To send to it only; it lives as long as that, as with full members.
    SendOnlyFull,
}

impl MemberKind {
    /// Bit in JoinState.
    fn join_state(self) -> u8 {
        1 << match self {
            Self::Full => bindings::ib_sa_mc_join_states_FULLMEMBER_JOIN,
            Self::SendOnlyFull => bindings::ib_sa_mc_join_states_SENDONLY_FULLMEMBER_JOIN,
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
    /// How to be a member.
    pub kind: MemberKind,
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
struct Member {
    #[pin]
    state: SpinLock<JoinState>,
    notify: Arc<dyn Notify>,
}

/// A membership, or a request for it. Dropping it leaves the group, or cancels the request.
///
/// # Invariants
///
/// `raw` is a request, owned by this value, whose context is `member`.
pub struct Join {
    raw: NonNull<bindings::ib_sa_multicast>,
    member: Arc<Member>,
    _client: Arc<SaClient>,
    _device: Device,
}

// SAFETY: A request may be given up by any thread.
unsafe impl Send for Join {}
// SAFETY: As above.
unsafe impl Sync for Join {}

impl Join {
    /// Asks to join a group; `notify` is told of each change of [`Self::state`], the first of which may come before
    /// this returns.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the device has no SA, as on RoCE; `ENOMEM`.
    ///
    /// # Context
    ///
    /// Process context; may sleep. So must be dropping it, which waits for [`Notify::notify`].
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
        let member = Arc::pin_init(
            pin_init!(Member {
                state <- new_spinlock!(JoinState::Joining),
                notify,
            }),
            GFP_KERNEL,
        )?;
        let join = bindings::ipoib_rs_sa_join {
            mgid: bindings::ib_gid { raw: request.mgid },
            port_gid: bindings::ib_gid {
                raw: request.from.raw(),
            },
            pkey: request.pkey,
            join_state: request.kind.join_state(),
            like: request.like.map_or(core::ptr::null(), GroupRecord::as_raw),
        };
        // SAFETY: The client and the device are registered, and the port is one of InfiniBand. The context lives
        // until `drop`, after which there are no callbacks.
        let raw = from_err_ptr(unsafe {
            bindings::ipoib_rs_sa_join(
                client.as_raw(),
                device.as_raw(),
                port,
                &raw const join,
                Some(changed),
                Arc::as_ptr(&member).cast_mut().cast(),
            )
        })?;
        // INVARIANT: It was just made.
        Ok(Self {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
            member,
            _client: client.clone(),
            _device: device.clone(),
        })
    }

    /// Its result so far.
    ///
    /// # Context
    ///
    /// Process context.
    pub fn state(&self) -> JoinState {
        *self.member.state.lock()
    }
}

impl Drop for Join {
    fn drop(&mut self) {
        // SAFETY: Owned by the type invariant; this is not its callback, which drops nothing. On return, no
        // callback runs.
        unsafe { bindings::ib_sa_free_multicast(self.raw.as_ptr()) };
    }
}

/// # Safety
///
/// Called by the SA for a request of [`Join::new`] that is not given up.
unsafe extern "C" fn changed(status: c_int, multicast: *mut bindings::ib_sa_multicast) -> c_int {
    // SAFETY: By this function's requirements. The context lives until the request is given up, which waits for
    // this.
    let (member, rec) = unsafe {
        let member = &*(*multicast).context.cast_const().cast::<Member>();
        (member, (*multicast).rec)
    };
    *member.state.lock() = match to_result(status) {
        Ok(()) => JoinState::Member(GroupRecord(rec)),
        Err(error) if error == ENETRESET => JoinState::Reset,
        Err(error) => JoinState::Failed(error),
    };
    member.notify.notify();
    // An error would give it up, which is for its owner to do.
    0
}

/// Returns true if a port is a full member of a group, whoever has joined it.
///
/// A group that is only sent to, or that is being left, is still known to the core: nobody receives from it.
///
/// # Context
///
/// Any.
pub fn is_joined(gid: &GidRef, mgid: [u8; 16]) -> bool {
    let device = gid.device();
    if !device.is_infiniband(gid.port()) {
        return false;
    }
    let mut mgid = bindings::ib_gid { raw: mgid };
    let mut rec = bindings::ib_sa_mcmember_rec::default();
    // SAFETY: The device is registered, and the port is one of InfiniBand; the GID and the record are ours.
    let err = unsafe {
        bindings::ib_sa_get_mcmember_rec(device.as_raw(), gid.port(), &raw mut mgid, &raw mut rec)
    };
    err == 0 && rec.join_state & MemberKind::Full.join_state() != 0
}
