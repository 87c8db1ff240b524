// SPDX-License-Identifier: GPL-2.0

//! A reliable connection: its queue pair, its CM ID, what both ends have agreed on, and how much each may
//! send.

use core::mem::offset_of;

use ipoib_netdev::clock::now_ms;
use ipoib_netdev::device::{Device, OwnedDevice};
use ipoib_netdev::napi::Handle;
use ipoib_netdev::netdev_log;
use ipoib_netdev::relaxed::Relax;
use ipoib_netdev::stats::Counter;
use ipoib_proto::cm::{self, Extension, PrivateData};
use ipoib_proto::credit;
use ipoib_proto::ending::{Ending, Step};
use ipoib_proto::gid::Gid;
use ipoib_proto::header::Header;
use ipoib_proto::hwaddr::{Flags, Qpn};
use ipoib_proto::pkey::PKey;
use ipoib_proto::rc::EXTENDED_HEADERS;
use ipoib_rdma::{CmId, Cq, Intake, Lane, Pd, QpCaps, RcInit, RcQp};
use ipoib_rings::line::{self, Line};
use kernel::prelude::*;
use kernel::sync::atomic::Atomic;
use kernel::sync::Arc;

use crate::base::quota::Permit;
use crate::base::settings::Settings;
use crate::ctl::cm::Caller;
use crate::ctl::netdev::Interface;
use crate::data::rx::{Question, RxPoll};

/// The largest IP packet that a connection carries by RFC 4755: what Linux has, too.
pub(crate) const MAX_MTU: u32 = 65_520;
/// The longest message that we receive: the largest IP packet behind an extended header.
pub(crate) const MAX_MESSAGE: u32 = 65_535 + EXTENDED_HEADERS as u32;
/// Sends that a queue pair holds, if the device has room for so many.
pub(crate) const SEND_WR: u32 = 128;
/// How often the receive poll is asked in a row whether it has found nothing more: three times will do
/// unless it is busy.
const ASKS: u32 = 4;

/// What the connections of an interface have in common while it is up.
pub(crate) struct Reliable {
    pub(crate) pd: Arc<Pd>,
    pub(crate) intake: Arc<Intake>,
    pub(crate) send_cq: Arc<Cq>,
    pub(crate) recv_cq: Arc<Cq>,
    pub(crate) max_sge: u32,
    pub(crate) rx: Handle<RxPoll>,
    pub(crate) settings: Arc<Settings>,
    /// Our GID and UD queue pair.
    pub(crate) gid: Gid,
    pub(crate) qpn: Qpn,
    pub(crate) pkey: PKey,
    /// The port's IB MTU in octets.
    pub(crate) ib_mtu: u32,
}

impl Reliable {
    /// What we tell a peer about a connection on which it may send `width` messages.
    pub(crate) fn private_data(&self, width: u16, number: u8) -> PrivateData {
        let settings = &self.settings;
        let flags = if settings.icrc() {
            Flags::SEQ.union(Flags::ICRC)
        } else {
            Flags::SEQ
        };
        PrivateData {
            qpn: self.qpn,
            receive_mtu: MAX_MTU + Header::LEN as u32,
            extension: settings.extensions().then_some(Extension {
                flags,
                credits: width,
                max_message: MAX_MESSAGE,
                channel: number,
            }),
        }
    }

    /// What both ends can do.
    pub(crate) fn terms(&self, peer: &PrivateData) -> Terms {
        let mtu = cm::connection_mtu(MAX_MTU + Header::LEN as u32, peer.receive_mtu);
        let settings = &self.settings;
        let extension = peer
            .extension
            .filter(|extension| settings.extensions() && extension.flags.contains(Flags::SEQ));
        let Some(extension) = extension else {
            return Terms { mtu, ..Terms::NONE };
        };
        let icrc = settings.icrc() && extension.flags.contains(Flags::ICRC);
        let header = EXTENDED_HEADERS as u32;
        Terms {
            mtu,
            extended: true,
            icrc,
            // Each segment gets a checksum of its own, so that one goes with the other.
            max_large: if icrc && settings.large_frames() {
                extension.max_message.min(MAX_MESSAGE) - header
            } else {
                0
            },
            max_pieces: self.max_sge,
            credits: extension.credits.min(credit::MAX_WIDTH),
        }
    }
}

/// What the ends of a connection have agreed on.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    /// The largest IP packet.
    pub(crate) mtu: u32,
    /// The other end takes extended frames, and both limit what the other one may send.
    pub(crate) extended: bool,
    /// The other end takes packets whose checksum was not computed.
    pub(crate) icrc: bool,
    /// The largest IP packet that the other end may have to segment; 0 for none.
    pub(crate) max_large: u32,
    /// The most pieces of memory that such a one is sent from.
    pub(crate) max_pieces: u32,
    /// Messages that may be sent at first.
    pub(crate) credits: u16,
}

impl Terms {
    /// Before anything is agreed on.
    pub(crate) const NONE: Terms = Terms {
        mtu: 0,
        extended: false,
        icrc: false,
        max_large: 0,
        max_pieces: 0,
        credits: 0,
    };
}

/// Counts that the receive poll and the transmit side exchange.
pub(crate) struct Flow {
    pub(crate) received: Line<Received>,
    pub(crate) sent: Line<Sent>,
}

// Each side writes to cache lines of its own, for every frame.
const _: () = assert!(
    offset_of!(Flow, received) / line::LEN != offset_of!(Flow, sent) / line::LEN
        && align_of::<Flow>() == line::LEN
);

/// Written by the receive poll.
pub(crate) struct Received {
    /// The peer's credit limit: messages that it lets us have sent, modulo 2^16.
    credit_limit: Atomic<u32>,
    /// How many of its messages we have received; modulo 2^16.
    messages: Atomic<u32>,
    pub(crate) frames: Counter,
    pub(crate) bytes: Counter,
}

/// Written under the transmit lock.
pub(crate) struct Sent {
    /// Credit limit that was advertised to the peer last.
    advertised: Atomic<u32>,
    pub(crate) frames: Counter,
    pub(crate) bytes: Counter,
}

impl Flow {
    fn new() -> Self {
        Self {
            received: Line::new(Received {
                credit_limit: Atomic::new(0),
                messages: Atomic::new(0),
                frames: Counter::new(),
                bytes: Counter::new(),
            }),
            sent: Line::new(Sent {
                advertised: Atomic::new(0),
                frames: Counter::new(),
                bytes: Counter::new(),
            }),
        }
    }

    /// Before anything is sent: the peer lets us send so many, and we let it send `width`.
    pub(crate) fn begin(&self, credits: u16, width: u16) {
        self.received.credit_limit.set(credits.into());
        self.sent.advertised.set(width.into());
    }

    /// The peer's credit limit: messages that we may have sent.
    #[inline]
    pub(crate) fn credit_limit(&self) -> u16 {
        self.received.credit_limit.get() as u16
    }

    /// The peer has advertised a credit limit. True: it is higher than before.
    #[inline]
    pub(crate) fn raise_credit_limit(&self, limit: u16) -> bool {
        let news = credit::is_higher(limit, self.credit_limit());
        if news {
            self.received.credit_limit.set(limit.into());
        }
        news
    }

    /// A message came that counts. True: something has to be done under the transmit lock, since it may
    /// be the first, which confirms the connection, or since the peer is due to learn that there is room
    /// for `width` again, if it knows credit at all.
    #[inline]
    pub(crate) fn note_received(&self, width: Option<u16>) -> bool {
        let before = self.received.messages.get() as u16;
        let received = before.wrapping_add(1);
        self.received.messages.set(received.into());
        let is_due = match width {
            Some(width) => {
                let limit = credit::limit(received, width);
                credit::is_due(limit, self.sent.advertised.get() as u16, width)
            }
            None => false,
        };
        before == 0 || is_due
    }

    /// Whether one came, of late at least.
    pub(crate) fn has_received(&self) -> bool {
        self.received.messages.get() != 0
    }

    /// Credit limit of the peer: there is room for `width` messages.
    #[inline]
    fn own_limit(&self, width: u16) -> u16 {
        credit::limit(self.received.messages.get() as u16, width)
    }

    /// The same limit, which is advertised now.
    #[inline]
    pub(crate) fn advertise(&self, width: u16) -> u16 {
        let limit = self.own_limit(width);
        self.sent.advertised.set(limit.into());
        limit
    }

    /// The limit was not sent after all: it is due again.
    pub(crate) fn readvertise(&self) {
        // Far behind.
        let received = self.received.messages.get() as u16;
        self.sent.advertised.set(received.into());
    }

    /// Whether the limit is to be advertised in a message of its own.
    #[inline]
    pub(crate) fn is_due(&self, width: u16) -> bool {
        credit::is_due(
            self.own_limit(width),
            self.sent.advertised.get() as u16,
            width,
        )
    }
}

/// What one more connection takes.
pub(crate) struct Room {
    /// Messages that the peer may have on their way to us.
    pub(crate) width: u16,
    /// Among those of the RDMA device.
    pub(crate) permit: Arc<Permit>,
}

/// A reliable connection, whatever state it is in.
pub(crate) struct Rc {
    pub(crate) lane: Arc<Lane>,
    pub(crate) cm: CmId<Caller>,
    pub(crate) caller: Arc<Caller>,
    pub(crate) flow: Flow,
    /// Messages that the peer may have on their way to us.
    pub(crate) width: u16,
    /// When it was made.
    pub(crate) since: u64,
    permit: Arc<Permit>,
}

impl Rc {
    /// Puts it together, with a new CM ID or that of a request.
    ///
    /// # Errors
    ///
    /// `ENOMEM` and those of the device and the CM.
    ///
    /// # Context
    ///
    /// Process context; sleeps.
    pub(crate) fn new(
        reliable: &Reliable,
        caller: Arc<Caller>,
        room: Room,
        cm: impl FnOnce(Arc<Caller>) -> Result<CmId<Caller>>,
    ) -> Result<Arc<Self>> {
        let Room { width, permit } = room;
        let init = RcInit {
            pd: &reliable.pd,
            send_cq: &reliable.send_cq,
            recv_cq: &reliable.recv_cq,
            intake: &reliable.intake,
            caps: QpCaps {
                send_wr: SEND_WR.min(reliable.settings.queue_limits().send),
                recv_wr: credit::cost(width),
                send_sge: reliable.max_sge,
                recv_sge: reliable.intake.max_sge(),
            },
        };
        let qp = RcQp::new(init, permit.clone())?;
        let lane = Lane::new(qp)?;
        let cm = cm(caller.clone())?;
        let rc = Self {
            lane,
            cm,
            caller,
            flow: Flow::new(),
            width,
            since: now_ms(),
            permit,
        };
        Ok(Arc::new(rc, GFP_KERNEL)?)
    }

    /// Nobody uses it any more: it will make room.
    pub(crate) fn mark_ending(&self) {
        self.permit.mark_ending();
    }

    /// Its queue pair.
    pub(crate) fn qp(&self) -> &Arc<RcQp> {
        self.lane.qp()
    }

    /// Brings the queue pair up, once the CM knows the other end's, and lets frames be received.
    ///
    /// # Errors
    ///
    /// Those of the device; `ENETDOWN`; `ENOSPC` if there are too many, or they have all buffers.
    ///
    /// # Context
    ///
    /// Process context; sleeps.
    pub(crate) fn bring_up(self: &Arc<Self>, reliable: &Reliable, terms: &Terms) -> Result {
        self.flow.begin(terms.credits, self.width);
        self.cm.ready(self.qp())?;
        // Before the other end is told, and sends: what came now would find nobody.
        let question = Question::learn(self.clone(), terms.extended);
        reliable.rx.ask(question)?.into_result()
    }

    /// Ends it, whatever becomes of what is on its way: the interface goes down.
    ///
    /// # Context
    ///
    /// Process context; sleeps.
    pub(crate) fn stop(&self) {
        let _ = self.cm.disconnect();
        // If that fails, it is reset before its frames are freed.
        let _ = self.qp().to_error();
    }

    /// Begins to end it: the peer is told, what was sent comes back, what was received is passed up.
    ///
    /// # Context
    ///
    /// Process context; sleeps. Nobody sends by it any more.
    pub(crate) fn begin_to_end(&self, dev: &Device<Interface>) {
        // One that was not established, or that the peer has ended, needs no more.
        let _ = self.cm.disconnect();
        if let Err(error) = self.qp().to_error() {
            netdev_log!(dev, Warn, "connection does not end: {error:?}\n");
        }
    }

    /// Goes on to end it, and says when there is more to do for that. None: it is over.
    ///
    /// # Context
    ///
    /// Process context; sleeps while the receive poll is asked.
    pub(crate) fn go_on_to_end(
        &self,
        ending: &mut Ending,
        rx: &Handle<RxPoll>,
        now: u64,
    ) -> Option<u64> {
        let qp = self.qp();
        let is_busy = self.lane.in_flight() > 0 || qp.may_receive();
        let mut step = ending.step(now, is_busy);
        for _ in 0..ASKS {
            if step != Step::Ask {
                break;
            }
            let Ok(Some(left)) = rx.ask(Question::left(qp.key())).map(Question::into_left) else {
                step = Step::Over;
                break;
            };
            step = ending.looked(now, left.times_empty, left.held);
        }
        match step {
            Step::Wait(ms) => return Some(ms),
            // Others keep the poll busy.
            Step::Ask => return Some(1),
            Step::Over => {}
        }
        let _ = rx.ask(Question::forget(qp.key()));
        None
    }
}

/// Whom a connection is with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// One of ours, or anybody that we asked: we send by it.
    Peer,
    /// Somebody who does as Linux: by the connection that it asked for it sends, and we do not.
    Sender,
}

/// A reference to an interface, for what is called from outside.
pub(crate) type Owner = OwnedDevice<Interface>;
