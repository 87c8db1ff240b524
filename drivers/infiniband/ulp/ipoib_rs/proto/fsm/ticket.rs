// SPDX-License-Identifier: GPL-2.0

//! Tickets, which match answers with requests.

/// Names one request of a state machine, so that an answer that comes too late is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Ticket(u32);

/// Hands out tickets: no two among 2^32 in a row are the same.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tickets(u32);

impl Tickets {
    /// Makes a source of tickets.
    pub(crate) const fn new() -> Tickets {
        Tickets(0)
    }

    /// Returns a new ticket.
    pub(crate) fn issue(&mut self) -> Ticket {
        self.0 = self.0.wrapping_add(1);
        Ticket(self.0)
    }
}
