// SPDX-License-Identifier: GPL-2.0

//! Receive buffers that are set aside for connections.

use ipoib_proto::credit;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::Arc;

/// The receive buffers that connections share.
pub(crate) struct Buffers {
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
        let free = Atomic::new(buffers);
        Ok(Arc::new(Self { free }, GFP_KERNEL)?)
    }

    /// Sets buffers aside for a new connection, as many as [`credit::window`] says, or returns None if too few are free.
    ///
    /// # Context
    ///
    /// Any; only one caller at a time.
    pub(crate) fn take(self: &Arc<Self>, most: u16, others: u32) -> Option<Window> {
        // Others only add to it.
        let width = credit::window(self.free.load(Relaxed), most, others)?;
        Some(self.window(width))
    }

    /// Returns a window for a peer that knows no credit. No buffers are set aside for it.
    pub(crate) fn unbounded(self: &Arc<Self>) -> Window {
        self.window(0)
    }

    fn window(self: &Arc<Self>, width: u16) -> Window {
        self.free.fetch_sub(credit::cost(width), Relaxed);
        Window {
            width,
            buffers: self.clone(),
        }
    }
}

/// Receive buffers that are set aside for a connection, and free again when this is dropped.
pub(crate) struct Window {
    /// Messages that the peer may have in flight; 0 if it knows no credit.
    pub(crate) width: u16,
    buffers: Arc<Buffers>,
}

impl Drop for Window {
    fn drop(&mut self) {
        let cost = credit::cost(self.width);
        self.buffers.free.fetch_add(cost, Relaxed);
    }
}
