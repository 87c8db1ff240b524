// SPDX-License-Identifier: GPL-2.0

//! `make clean`.

use crate::layout::Layout;
use crate::step::say;
use anyhow::{Context, Result};
use std::fs;

/// Removes what was built from this checkout; kernels and the root stay, since others share them.
pub fn run(layout: &Layout) -> Result<()> {
    for dir in [layout.own.clone(), layout.build()] {
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| dir.display().to_string())?;
        }
    }
    say(&format!(
        "this checkout's builds are gone; kernels and the root stay in {} for the next run \
         (remove that directory to have the disk back)",
        layout.cache.display()
    ));
    Ok(())
}
