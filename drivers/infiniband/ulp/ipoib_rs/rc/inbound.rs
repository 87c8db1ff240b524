// SPDX-License-Identifier: GPL-2.0

//! A connection that somebody else has asked for, to send by: as ib_ipoib does.

use kernel::sync::Arc;

use crate::rc::conn::Conn;

/// How long others may be silent on a connection that they have asked for, in milliseconds: they end it
/// themselves, unless they are gone.
const SENDER_IDLE_MS: u64 = 600_000;
/// How long they may take to confirm it: Linux asks for answers to be repeated every four seconds.
const SENDER_CONFIRM_MS: u64 = 15_000;

/// A connection that somebody else sends by.
pub(super) struct Sender {
    pub(super) rc: Arc<Conn>,
    /// The peer has confirmed that it asked, or has sent something.
    pub(super) confirmed: bool,
    /// Messages that had come when that was looked at, and since when there are no more.
    pub(super) seen: u64,
    pub(super) idle_since: u64,
}

impl Sender {
    /// When it ends, if nothing comes by it.
    pub(super) fn deadline(&self) -> u64 {
        let limit = if self.confirmed {
            SENDER_IDLE_MS
        } else {
            SENDER_CONFIRM_MS
        };
        self.idle_since.saturating_add(limit)
    }

    /// Takes note of whether something has come since the last time.
    pub(super) fn look(&mut self, now: u64) {
        let came = self.rc.flow.received.frames.get();
        if came != self.seen {
            self.seen = came;
            self.idle_since = now;
            self.confirmed = true;
        }
    }
}
