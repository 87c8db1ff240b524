// SPDX-License-Identifier: GPL-2.0

//! Frames that the device has refused.
//!
//! The producer drops them; the consumer reports them to BQL, with all others.

use crate::ops::{Add, Ops};
use crate::sync::{AtomicU32, AtomicUsize};

/// A number of frames and of their bytes, both wrapping around.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Tally {
    /// Frames.
    pub frames: u32,
    /// Bytes of the frames.
    pub bytes: usize,
}

impl Tally {
    /// Adds a frame.
    #[inline]
    pub fn add(&mut self, bytes: usize) {
        self.merge(Self { frames: 1, bytes });
    }

    /// Adds another tally.
    #[inline]
    pub fn merge(&mut self, other: Self) {
        self.frames = self.frames.wrapping_add(other.frames);
        self.bytes = self.bytes.wrapping_add(other.bytes);
    }
}

/// Frames and bytes that the consumer does not know of.
pub struct Unsent {
    frames: AtomicU32,
    bytes: AtomicUsize,
}

impl Unsent {
    /// None.
    pub fn new() -> Self {
        Self {
            frames: AtomicU32::new(0),
            bytes: AtomicUsize::new(0),
        }
    }

    /// Notes a frame, as the producer.
    pub fn add(&self, bytes: usize) {
        // Whoever sees the frame sees its bytes.
        self.bytes.add_full(bytes);
        self.frames.add_full(1);
    }

    /// Returns true if there are any.
    #[inline]
    pub fn has_some(&self) -> bool {
        self.frames.get() != 0
    }

    /// Takes the frames and their bytes, as the consumer.
    #[inline]
    pub fn take(&self) -> Tally {
        if !self.has_some() {
            return Tally::default();
        }
        let frames = self.frames.swap_full(0);
        Tally {
            frames,
            bytes: self.bytes.swap_full(0),
        }
    }
}

impl Default for Unsent {
    fn default() -> Self {
        Self::new()
    }
}
