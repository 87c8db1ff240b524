// SPDX-License-Identifier: GPL-2.0

//! Messages of one connection, counted by both directions, and how many each end may send.

use core::mem::offset_of;

use ipoib_netdev::relaxed::Relax;
use ipoib_netdev::stats::Counter;
use ipoib_proto::credit;
use ipoib_rings::line::{self, Line};
use kernel::sync::atomic::{Atomic, Relaxed};

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
    /// The peer's credit limit, modulo 2^16.
    credit_limit: Atomic<u32>,
    /// How many of its messages we have received; modulo 2^16.
    messages: Atomic<u32>,
    /// The number in the peer's challenge, which waits for its answer; 0 if there is none.
    challenge: Atomic<u64>,
    /// The peer has answered our challenge.
    proven: Atomic<bool>,
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
    pub(crate) fn new() -> Self {
        Self {
            received: Line::new(Received {
                credit_limit: Atomic::new(0),
                messages: Atomic::new(0),
                challenge: Atomic::new(0),
                proven: Atomic::new(false),
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

    /// Counts a message. True: service is due under the transmit lock, since the message may be the first, which
    /// confirms the connection, or the peer is to learn that there is room for `width` again, if it knows credit at all.
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

    /// Returns true if a message has come (modulo 2^16).
    pub(crate) fn has_received(&self) -> bool {
        self.received.messages.get() != 0
    }

    /// Notes a challenge; it replaces one without an answer.
    pub(super) fn challenged(&self, nonce: u64) {
        self.received.challenge.set(nonce);
    }

    /// Returns true if the peer's challenge waits for its answer.
    pub(super) fn is_challenged(&self) -> bool {
        self.received.challenge.get() != 0
    }

    /// Takes the number to be answered.
    pub(super) fn take_challenge(&self) -> u64 {
        self.received.challenge.xchg(0, Relaxed)
    }

    /// The peer has answered our challenge.
    pub(super) fn prove(&self) {
        self.received.proven.set(true);
    }

    /// Returns true if the peer has answered our challenge.
    pub(super) fn is_proven(&self) -> bool {
        self.received.proven.get()
    }

    /// Credit limit of the peer: there is room for `width` messages.
    #[inline]
    fn own_limit(&self, width: u16) -> u16 {
        credit::limit(self.received.messages.get() as u16, width)
    }

    /// Returns true if the limit is to go along with a frame.
    #[inline(always)]
    pub(crate) fn has_news(&self, width: u16) -> bool {
        credit::is_worth_a_header(
            self.own_limit(width),
            self.sent.advertised.get() as u16,
            width,
        )
    }

    /// Notes that the limit is advertised, and returns it.
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

    /// Returns true if the limit is to be advertised in a message of its own.
    #[inline]
    pub(crate) fn is_due(&self, width: u16) -> bool {
        credit::is_due(
            self.own_limit(width),
            self.sent.advertised.get() as u16,
            width,
        )
    }
}
