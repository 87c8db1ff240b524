// SPDX-License-Identifier: GPL-2.0

//! Counts of a connection's messages, and its credit.

use core::mem::offset_of;

use ipoib_netdev::relaxed::Relax;
use ipoib_netdev::stats::Counter;
use ipoib_proto::credit;
use ipoib_rings::line::{self, Line};
use kernel::sync::atomic::Atomic;

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

    /// Counts a message. Returns true if a credit limit is due to the peer, who may have `width` messages in flight.
    #[inline]
    pub(crate) fn note_received(&self, width: u16) -> bool {
        let received = (self.received.messages.get() as u16).wrapping_add(1);
        self.received.messages.set(received.into());
        self.is_due(width)
    }

    /// Credit limit of the peer: there is room for `width` messages.
    #[inline]
    fn own_limit(&self, width: u16) -> u16 {
        credit::limit(self.received.messages.get() as u16, width)
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

    /// Returns true if the limit is to be advertised.
    #[inline]
    pub(crate) fn is_due(&self, width: u16) -> bool {
        let advertised = self.sent.advertised.get() as u16;
        width != 0 && credit::is_due(self.own_limit(width), advertised, width)
    }
}
