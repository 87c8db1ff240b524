// SPDX-License-Identifier: GPL-2.0

//! Receive buffers that are set aside for connections.

use ipoib_proto::credit;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::Arc;

/// The widest window of a connection.
const WIDEST: u16 = 64;

/// The receive buffers that connections share.
pub(crate) struct Buffers {
    all: u32,
    /// Those that are not set aside.
    free: Atomic<u32>,
}

impl Buffers {
    /// Creates the count, with all `buffers` free.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(buffers: u32) -> Result<Arc<Self>> {
        let buffers = Self {
            all: buffers,
            free: Atomic::new(buffers),
        };
        Ok(Arc::new(buffers, GFP_KERNEL)?)
    }

    /// Sets buffers aside for a new connection that a peer sends by, as many as [`credit::window`] says, or returns None if too
    /// few are free. The width is 0 unless the peer `knows_credit`.
    ///
    /// # Context
    ///
    /// Any; only one caller at a time.
    pub(crate) fn take(
        self: &Arc<Self>,
        kept: u32,
        has: u32,
        knows_credit: bool,
    ) -> Option<Window> {
        // Others only add to it.
        let free = self.free.load(Relaxed);
        let width = credit::window(self.all, free, kept, has, WIDEST)?;
        Some(self.window(if knows_credit { width } else { 0 }, width.into()))
    }

    /// Sets buffers aside for the credit limits that come by a connection that we send by. None if too few are free.
    ///
    /// # Context
    ///
    /// As [`Self::take`].
    pub(crate) fn reserve(self: &Arc<Self>) -> Option<Window> {
        let cost = u32::from(credit::RESERVE);
        (self.free.load(Relaxed) >= cost).then(|| self.window(0, cost))
    }

    /// Returns a window for a peer that knows no credit. No buffers are set aside for it.
    pub(crate) fn unbounded(self: &Arc<Self>) -> Window {
        self.window(0, 0)
    }

    fn window(self: &Arc<Self>, width: u16, cost: u32) -> Window {
        self.free.fetch_sub(cost, Relaxed);
        Window {
            width,
            cost,
            buffers: self.clone(),
        }
    }
}

/// Receive buffers that are set aside for a connection, and free again when this is dropped.
pub(crate) struct Window {
    /// Messages that the peer may have in flight to us; 0 if it knows no credit, or does not send by this connection.
    pub(crate) width: u16,
    /// Buffers that are set aside.
    pub(crate) cost: u32,
    buffers: Arc<Buffers>,
}

impl Drop for Window {
    fn drop(&mut self) {
        self.buffers.free.fetch_add(self.cost, Relaxed);
    }
}
