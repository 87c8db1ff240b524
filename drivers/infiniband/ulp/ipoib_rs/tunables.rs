// SPDX-License-Identifier: GPL-2.0

//! What can be tuned while an interface runs: `net.ipoib.<interface>.*`.

use ipoib_netdev::device::Device;
use ipoib_netdev::rtnl::Rtnl;
use ipoib_netdev::sysctl::{Tunable, Variable};
use ipoib_proto::reorder;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};

use crate::interface::Interface;

/// How long a frame is held by default.
///
/// The paths of a fabric differ by much less, but on a busy host it can take milliseconds until the
/// one that is waited for is polled. TCP waits for an acknowledgement for much longer.
const DEFAULT_TIMEOUT_US: u32 = 5_000;
/// The longest: TCP's shortest retransmission timeout is not far above.
const MAX_TIMEOUT_US: u32 = 100_000;

/// The values, which one context writes, under RTNL, and the others read whenever they need them.
pub(crate) struct Tunables {
    reorder_window: Atomic<u32>,
    reorder_timeout_us: Atomic<u32>,
    extensions: Atomic<u32>,
}

impl Tunables {
    /// The defaults.
    pub(crate) const fn new() -> Self {
        Self {
            reorder_window: Atomic::new(reorder::DEFAULT_WIDTH as u32),
            reorder_timeout_us: Atomic::new(DEFAULT_TIMEOUT_US),
            extensions: Atomic::new(1),
        }
    }

    /// The width of the reorder window; 0: frames are passed up as they come.
    pub(crate) fn reorder_window(&self) -> u8 {
        // Never more than `MAX_WIDTH`.
        self.reorder_window.load(Relaxed) as u8
    }

    /// For how long a frame may be held, in microseconds; 0: until the end of the poll.
    pub(crate) fn reorder_timeout_us(&self) -> u32 {
        self.reorder_timeout_us.load(Relaxed)
    }

    /// Whether what RFC 4391 does not know may be used.
    pub(crate) fn extensions(&self) -> bool {
        self.extensions.load(Relaxed) != 0
    }

    fn variable(&self, id: usize) -> Option<&Atomic<u32>> {
        match id {
            REORDER_WINDOW => Some(&self.reorder_window),
            REORDER_TIMEOUT_US => Some(&self.reorder_timeout_us),
            EXTENSIONS => Some(&self.extensions),
            _ => None,
        }
    }
}

const REORDER_WINDOW: usize = 0;
const REORDER_TIMEOUT_US: usize = 1;
const EXTENSIONS: usize = 2;

impl Tunable for Interface {
    const DIRECTORY: &'static str = "ipoib";

    const VARIABLES: &'static [Variable] = &[
        Variable {
            name: c"reorder_window",
            min: 0,
            max: reorder::MAX_WIDTH as u32,
        },
        Variable {
            name: c"reorder_timeout_us",
            min: 0,
            max: MAX_TIMEOUT_US,
        },
        Variable {
            name: c"extensions",
            min: 0,
            max: 1,
        },
    ];

    fn get(dev: &Device<Self>, id: usize) -> u32 {
        let tunables = &dev.data().get_ref().tunables;
        tunables.variable(id).map_or(0, |value| value.load(Relaxed))
    }

    fn set(dev: &Device<Self>, id: usize, value: u32, rtnl: &mut Rtnl) -> Result {
        let tunables = &dev.data().get_ref().tunables;
        let variable = tunables.variable(id).ok_or(EINVAL)?;
        variable.store(value, Relaxed);
        if id == EXTENSIONS {
            Self::extensions_changed(dev, rtnl);
        }
        Ok(())
    }
}
