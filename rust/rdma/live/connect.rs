// SPDX-License-Identifier: GPL-2.0

//! A service of the port's, and a caller on the same port.

use ipoib_netdev::live::{same, until};
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::{Arc, Mutex, SpinLock};
use kernel::{new_mutex, new_spinlock};

use super::{Deaf, Live, PKEY, PORT};
use crate::ah::{Ah, AhOptions};
use crate::cm::{
    CmEvent, CmHandler, CmId, CmTimeouts, Incoming, Listen, Listener, RejectReason, Request,
};
use crate::rc::RcQp;

/// Private data of requests, replies and refusals.
pub(super) const REQUEST: [u8; 8] = *b"may I   ";
pub(super) const REPLY: [u8; 8] = *b"you may ";
const REFUSAL: [u8; 8] = *b"you don'";

/// The service.
pub(super) const SERVICE: u64 = 0x6b75_6e69_7400_0001;

/// Short enough for a test that waits until a peer is given up: a packet is sent again after 134 ms.
const TIMEOUTS: CmTimeouts = CmTimeouts {
    packet_life_time: 13,
    response: 18,
    retries: 7,
};

/// The connection manager's news of a connection.
#[pin_data]
pub(super) struct Ears {
    accepted: Atomic<bool>,
    confirmed: Atomic<bool>,
    disconnected: Atomic<bool>,
    over: Atomic<bool>,
    /// The reason of a refusal.
    refused: Atomic<u32>,
    /// The private data that came last.
    #[pin]
    heard: SpinLock<[u8; 8]>,
}

impl Ears {
    fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                accepted: Atomic::new(false),
                confirmed: Atomic::new(false),
                disconnected: Atomic::new(false),
                over: Atomic::new(false),
                refused: Atomic::new(0),
                heard <- new_spinlock!([0; 8]),
            }),
            GFP_KERNEL,
        )
    }

    pub(super) fn heard(&self) -> [u8; 8] {
        *self.heard.lock()
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    pub(super) fn is_disconnected(&self) -> bool {
        self.disconnected.load(Relaxed)
    }

    fn hear(&self, data: &[u8]) {
        if let Some(data) = data.first_chunk() {
            *self.heard.lock() = *data;
        }
    }
}

impl CmHandler for Ears {
    fn event(&self, event: CmEvent<'_>) {
        match event {
            CmEvent::Accepted { private_data } => {
                self.hear(private_data);
                self.accepted.store(true, Relaxed);
            }
            CmEvent::Confirmed => self.confirmed.store(true, Relaxed),
            CmEvent::Rejected {
                reason,
                private_data,
            } => {
                self.hear(private_data);
                self.refused.store(reason.into(), Relaxed);
            }
            CmEvent::Disconnected => self.disconnected.store(true, Relaxed),
            CmEvent::Over => self.over.store(true, Relaxed),
            CmEvent::NoAnswer => {}
        }
    }
}

/// A service that keeps a request to be answered elsewhere, or refuses all.
#[pin_data]
pub(super) struct Door {
    refuses: bool,
    ears: Arc<Ears>,
    #[pin]
    taken: Mutex<Option<CmId<Ears>>>,
}

impl Listen for Door {
    fn request(&self, incoming: Incoming<'_>) {
        self.ears.hear(incoming.private_data());
        if self.refuses {
            return incoming.reject(RejectReason::ConsumerDefined, &REFUSAL);
        }
        if let Ok(id) = incoming.take(self.ears.clone()) {
            *self.taken.lock() = Some(id);
        }
    }
}

/// A request for a connection, and the service that it is for.
pub(super) struct Caller {
    id: CmId<Ears>,
    ears: Arc<Ears>,
    listener: Listener<Door>,
    door: Arc<Door>,
}

/// Both ends of a connection, what they were told, and the service.
pub(super) type Connected = ([CmId<Ears>; 2], [Arc<Ears>; 2], Listener<Door>);

impl Caller {
    /// Offers the service, and requests a connection for `qp`.
    pub(super) fn call(live: &Live, qp: &RcQp, refuses: bool) -> Result<Self> {
        let door = Arc::pin_init(
            pin_init!(Door {
                refuses,
                ears: Ears::new()?,
                taken <- new_mutex!(None),
            }? Error),
            GFP_KERNEL,
        )?;
        let listener = Listener::new(&live.pd, SERVICE, door.clone())?;
        let ears = Ears::new()?;
        let id = CmId::new(&live.pd, ears.clone())?;
        let (gid, deaf) = (&live.gid, Arc::new(Deaf, GFP_KERNEL)?);
        let path = Ah::new(&live.pd, gid, gid.raw(), AhOptions::default(), deaf)?;
        let request = Request {
            path: &path,
            service_id: SERVICE,
            pkey: PKEY,
            mtu: live.device.query_port(PORT)?.active_mtu_bytes,
            timeouts: TIMEOUTS,
            private_data: &REQUEST,
        };
        id.request(qp, &request)?;
        // One ID requests once.
        same(id.request(qp, &request), Err(EBUSY))?;
        Ok(Self {
            id,
            ears,
            listener,
            door,
        })
    }

    /// Answers the request, for `qp`.
    pub(super) fn answered(&self, qp: &RcQp) -> Result<CmId<Ears>> {
        let mut taken = None;
        until(|| {
            taken = self.door.taken.lock().take();
            taken.is_some()
        })?;
        let id = taken.ok_or(ENOMSG)?;
        id.ready(qp)?;
        id.accept(qp, &REPLY)?;
        Ok(id)
    }

    /// Confirms the connection for `qp`, with the service's `other` end.
    pub(super) fn connected(self, qp: &RcQp, other: CmId<Ears>) -> Result<Connected> {
        until(|| self.ears.accepted.load(Relaxed))?;
        self.id.ready(qp)?;
        self.id.confirm()?;
        until(|| self.door.ears.confirmed.load(Relaxed))?;
        let ears = [self.ears, self.door.ears.clone()];
        Ok(([self.id, other], ears, self.listener))
    }

    /// Waits until the service has refused.
    pub(super) fn refused(&self) -> Result {
        until(|| self.ears.refused.load(Relaxed) != 0)?;
        let reason = RejectReason::ConsumerDefined as u32;
        same(self.ears.refused.load(Relaxed), reason)?;
        same(self.ears.heard(), REFUSAL)
    }
}
