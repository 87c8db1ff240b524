// SPDX-License-Identifier: GPL-2.0

//! The staging area of a kernel for this checkout: its image, and a modules tree that holds the
//! kernel's own modules beside the checkout's. Guests boot from here.

use crate::layout::Layout;
use crate::machine::{Kernel, Lane};
use std::path::PathBuf;

/// A staging area.
#[derive(Debug, Clone)]
pub struct Stage {
    dir: PathBuf,
}

impl Stage {
    /// The one for a lane and kernel.
    #[must_use]
    pub fn of(layout: &Layout, lane: Lane, kernel: Kernel) -> Stage {
        Stage {
            dir: layout.own.join("stage").join(format!("{lane}-{kernel}")),
        }
    }

    /// Its directory.
    #[must_use]
    pub fn dir(&self) -> PathBuf {
        self.dir.clone()
    }

    /// The kernel image.
    #[must_use]
    pub fn image(&self) -> PathBuf {
        self.dir.join("image")
    }

    /// The initramfs, if the kernel needs one to mount its root.
    #[must_use]
    pub fn initramfs(&self) -> PathBuf {
        self.dir.join("initramfs")
    }

    /// The directory that holds `lib/modules/<release>`.
    #[must_use]
    pub fn modules(&self) -> PathBuf {
        self.dir.join("root")
    }
}
