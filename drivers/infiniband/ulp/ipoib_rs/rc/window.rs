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
    /// So many, of which none are set aside.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(buffers: u32) -> Result<Arc<Self>> {
        let free = Atomic::new(buffers);
        Ok(Arc::new(Self { free }, GFP_KERNEL)?)
    }

    /// Sets the buffers of a new connection aside, as [`credit::window`] says. None: there are too few.
    ///
    /// # Context
    ///
    /// Any; only one caller at a time.
    pub(crate) fn take(self: &Arc<Self>, most: u16, others: u32) -> Option<Window> {
        // It may become more meanwhile, but not less.
        let width = credit::window(self.free.load(Relaxed), most, others)?;
        Some(self.window(width))
    }

    /// A window for a peer that knows no credit: it takes what buffers there are.
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

/// The messages that a peer may have on their way to us. Buffers are set aside for them as long as this lives.
pub(crate) struct Window {
    /// How many messages.
    pub(crate) width: u16,
    buffers: Arc<Buffers>,
}

impl Drop for Window {
    fn drop(&mut self) {
        let cost = credit::cost(self.width);
        self.buffers.free.fetch_add(cost, Relaxed);
    }
}
