// SPDX-License-Identifier: GPL-2.0

//! A reliable connection: its queue pair and its CM ID.

use ipoib_netdev::clock::now_ms;
use ipoib_netdev::device::OwnedDevice;
use ipoib_netdev::relaxed::Relax;
use ipoib_proto::admission::Origin;
use ipoib_proto::credit;
use ipoib_proto::hwaddr::HwAddr;
use ipoib_rdma::{CmId, Lane, QpCaps, RcInit, RcQp};
use ipoib_trace::News;
use kernel::prelude::*;
use kernel::sync::atomic::Atomic;
use kernel::sync::Arc;

use crate::base::counters::Connected;
use crate::base::interface::Interface;
use crate::base::trace::who;
use crate::rc::context::RcContext;
use crate::rc::flow::Flow;
use crate::rc::window::Window;

/// Frames that a connection has on its way, if the device has room for so many: as many as the widest window.
pub(crate) const SENDS: u32 = 64;

/// Identity of a connection, for the CM's events (`ctl/connect.rs`).
pub(crate) struct ConnId {
    pub(crate) dev: OwnedDevice<Interface>,
    pub(crate) rc_context: Arc<RcContext>,
    /// The peer's address, without flags.
    pub(crate) peer: HwAddr,
    /// The number among the connections to that peer.
    pub(crate) number: u8,
    /// Origin of the peer's request; None if we asked. Only the end that asked sends frames.
    pub(crate) origin: Option<Origin>,
    /// Bytes in an InfiniBand packet of the connection.
    pub(crate) ib_mtu: u32,
}

impl ConnId {
    pub(crate) fn counters(&self) -> &Connected {
        &self.dev.data().get_ref().counters.connected
    }
}

/// Connections of which one may go.
#[derive(Clone, Copy)]
pub(crate) enum Among {
    /// All of them.
    All,
    /// Those that have buffers set aside.
    Holders,
    /// Those of channels.
    Channels,
    /// Those that others send by.
    Senders,
    /// Those that others of this origin send by.
    SendersOf(Origin),
}

/// The place of the least recently used connection.
#[derive(Clone, Copy)]
pub(crate) enum Least {
    /// Among the channels.
    Channel(usize),
    /// Among those that others send by.
    Sender(usize),
}

/// A connection that may go.
pub(super) struct Used {
    /// When it was used last.
    pub(super) last: u64,
    pub(super) least: Least,
}

/// A reliable connection, whatever state it is in.
pub(crate) struct Conn {
    pub(crate) lane: Arc<Lane>,
    pub(crate) cm: CmId<ConnId>,
    pub(crate) id: Arc<ConnId>,
    pub(crate) flow: Flow,
    pub(crate) window: Window,
    /// When it was made.
    pub(crate) since: u64,
    /// It counts as established; the transmit lock protects it.
    established: Atomic<bool>,
}

/// Cause of a connection's end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The peer has ended it.
    Disconnected,
    /// It was idle, or the peer has never confirmed it.
    Idle,
    /// It had to make room.
    Evicted,
    /// The peer let too little through.
    Stuck,
    /// The device or the CM reports an error.
    Broken,
    /// Another one came in its place.
    Replaced,
    /// The interface, its mode or its settings have changed.
    Closed,
}

impl Cause {
    /// The cause in a word.
    const fn word(self) -> &'static str {
        match self {
            Self::Disconnected => "disconnected",
            Self::Idle => "idle",
            Self::Evicted => "evicted",
            Self::Stuck => "stuck",
            Self::Broken => "broken",
            Self::Replaced => "replaced",
            Self::Closed => "closed",
        }
    }
}

impl Conn {
    /// Creates a connection, with a new CM ID or that of a request.
    ///
    /// # Errors
    ///
    /// `ENOMEM` and those of the device and the CM.
    ///
    /// # Context
    ///
    /// Process context; sleeps.
    pub(crate) fn new(
        rc_context: &RcContext,
        id: Arc<ConnId>,
        window: Window,
        cm: impl FnOnce(Arc<ConnId>) -> Result<CmId<ConnId>>,
    ) -> Result<Arc<Self>> {
        let sends_frames = id.origin.is_none();
        let (send_wr, send_sge) = match sends_frames {
            true => (
                SENDS.min(rc_context.settings.queue_limits().send),
                rc_context.max_sge,
            ),
            // Credit limits.
            false => (credit::RESERVE.into(), 1),
        };
        let init = RcInit {
            pd: &rc_context.pd,
            send_cq: &rc_context.send_cq,
            recv_cq: &rc_context.recv_cq,
            intake: &rc_context.intake,
            caps: QpCaps {
                send_wr,
                recv_wr: window.cost,
                send_sge,
                recv_sge: rc_context.intake.max_sge(),
            },
        };
        let qp = RcQp::new(init)?;
        let lane = Lane::new(&qp, sends_frames)?;
        let cm = cm(id.clone())?;
        let rc = Self {
            lane,
            cm,
            id,
            flow: Flow::new(),
            window,
            since: now_ms(),
            established: Atomic::new(false),
        };
        Ok(Arc::new(rc, GFP_KERNEL)?)
    }

    /// Emits the tracepoint of connections.
    pub(crate) fn trace(&self, event: &str, state: &str) {
        let ConnId { dev, peer, .. } = &*self.id;
        ipoib_trace::connection(dev, || News {
            who: who(peer),
            event,
            state,
            waiting: 0,
        });
    }

    /// It is established: frames go by it. Counts it, once.
    pub(crate) fn establish(&self) {
        if !self.established.get() {
            self.established.set(true);
            self.id.counters().connected.add_shared(1);
            self.trace("established", "up");
        }
    }

    /// Counts its end, or that of an attempt at one that time alone ends.
    pub(super) fn conclude(&self, cause: Cause) {
        let was_up = self.established.get();
        self.established.set(false);
        self.trace(cause.word(), if was_up { "ended" } else { "failed" });
        let counters = self.id.counters();
        let counter = match (was_up, cause) {
            (true, Cause::Disconnected) => &counters.disconnected,
            (true, Cause::Idle) => &counters.idle,
            (true, Cause::Evicted) => &counters.evicted,
            (true, Cause::Stuck) => &counters.stuck,
            (true, Cause::Broken) => &counters.broken,
            (true, Cause::Replaced) => &counters.replaced,
            (true, Cause::Closed) => &counters.closed,
            (false, Cause::Idle) => &counters.failed,
            (false, _) => return,
        };
        counter.add_shared(1);
    }

    /// The queue pair.
    pub(crate) fn qp(&self) -> &Arc<RcQp> {
        self.lane.qp()
    }

    /// Ends the connection, whatever becomes of what is on its way: the interface goes down.
    ///
    /// # Context
    ///
    /// Process context; sleeps.
    pub(crate) fn stop(&self) {
        let _ = self.cm.disconnect();
        // If that fails, it is reset before its frames are freed.
        let _ = self.qp().to_error();
    }
}
