// SPDX-License-Identifier: GPL-2.0

//! Admission of requests for connections.

use ipoib_proto::admission::{gives_way, Origin, MAX_ENDING};
use ipoib_proto::cm::{PrivateData, Refusal};
use ipoib_proto::credit::RESERVE;
use ipoib_proto::hwaddr::HwAddr;
use kernel::sync::Arc;

use crate::rc::conn::{Among, Cause, Conn};
use crate::rc::context::Negotiated;
use crate::rc::table::Connections;
use crate::rc::window::Window;

/// A request for a connection.
pub(crate) struct Request {
    /// The address of the peer that asks, without flags, as the request gives it.
    pub(crate) peer: HwAddr,
    /// Where it came from.
    pub(crate) origin: Origin,
    pub(crate) data: PrivateData,
}

/// A request that may be accepted.
pub(crate) struct Admitted {
    pub(crate) window: Window,
    pub(crate) terms: Negotiated,
    /// A connection may be evicted for it.
    pub(crate) may_evict: bool,
}

impl Connections {
    /// Finds a request that nobody has confirmed and that may end for a new one from `origin`. Returns its place among the
    /// senders.
    fn gives_way(&self, origin: Origin, now: u64) -> Option<usize> {
        // Those that end take room that others, who are wanted, need as well.
        if self.ended.count() >= MAX_ENDING / 2 {
            return None;
        }
        let mut unconfirmed = self.senders.unconfirmed();
        let requests = unconfirmed.clone().map(|(_, request)| request);
        let place = gives_way(requests, origin, now)?;
        unconfirmed.nth(place).map(|(at, _)| at)
    }

    /// Admits a peer's request, for which other connections may be ended.
    ///
    /// # Errors
    ///
    /// Why it is refused.
    pub(crate) fn admit(&mut self, request: &Request, now: u64) -> Result<Admitted, Refusal> {
        let origin = request.origin;
        // A frame confirms a connection, too.
        self.senders.look(now);
        let load = self.senders.load(origin, self.ended.count());
        let admits = load.admits();
        let other = match admits {
            true => None,
            false => Some(self.gives_way(origin, now).ok_or(Refusal::Full)?),
        };
        let terms = self.rc_context.terms(&request.data);
        let crowd = self.senders.crowd(origin, self.rc_context.intake.max_wr());
        let has_place = self.has_place();
        let fits = crowd.is_none() && has_place;
        let window = fits
            .then(|| self.take_window(origin, terms.extended))
            .flatten();
        // Only the first pending request of an origin may evict connections of others.
        let may_evict = admits && load.of_origin == 0;
        if window.is_none() && may_evict {
            let others = if has_place {
                Among::Holders
            } else {
                Among::All
            };
            self.make_room(crowd.unwrap_or(others), now);
        }
        // If there is no window now, the end of the other one makes room for the next attempt, unless the asker's own host has
        // its part already.
        let has_part = matches!(crowd, Some(Among::SendersOf(_)));
        let helps = window.is_some() || (self.ended.count() == 0 && !has_part);
        if let Some(at) = other.filter(|_| helps) {
            if let Some(rc) = self.senders.take(at) {
                self.end(rc, Cause::Idle);
            }
        }
        let window = window.ok_or(Refusal::Full)?;
        Ok(Admitted {
            window,
            terms,
            may_evict,
        })
    }

    /// Sets buffers aside for the connection of a peer that asks.
    fn take_window(&self, origin: Origin, knows_credit: bool) -> Option<Window> {
        if !knows_credit && self.rc_context.intake.is_shared() {
            // Its messages take those that there are, and wait if there are none.
            return Some(self.buffers.unbounded());
        }
        // Leave room for all connections that we may still ask for, and a message for each peer that may still ask us.
        let own = self.cap.saturating_sub(self.count_own()) as u32;
        let others = self.cap.saturating_sub(self.senders.len() + 1) as u32;
        let kept = own.saturating_mul(RESERVE.into()).saturating_add(others);
        let has = self.senders.buffers_of(origin);
        self.buffers.take(kept, has, knows_credit)
    }

    /// A request was accepted: the work item, which the caller wakes, looks after it.
    ///
    /// # Errors
    ///
    /// Why it is to be refused after all: things have changed since it was admitted.
    pub(crate) fn accepted(&mut self, rc: Arc<Conn>, now: u64) -> Result<(), Refusal> {
        rc.trace("accepted", "receiving");
        self.senders.add(rc, now).ok_or(Refusal::Full)
    }
}
