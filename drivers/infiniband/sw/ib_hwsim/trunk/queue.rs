// SPDX-License-Identifier: GPL-2.0

//! Frames that wait to be sent.

use kernel::prelude::*;
use raw_ether::Frame;

/// Frames that there is room for: more than all messages that one interface of `ib_ipoib` sends at a time have packets.
const ROOM: usize = 8192;

/// Frames in the order in which they are to be sent, with their sessions.
pub(super) struct Queue {
    frames: KVVec<Option<(u32, Frame)>>,
    head: usize,
    len: usize,
}

impl Queue {
    /// An empty one.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new() -> Result<Self> {
        let mut frames = KVVec::with_capacity(ROOM, GFP_KERNEL)?;
        for _ in 0..ROOM {
            frames.push(None, GFP_KERNEL)?;
        }
        Ok(Self {
            frames,
            head: 0,
            len: 0,
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a frame. False if there is no room, and it is gone.
    pub(super) fn push(&mut self, frame: (u32, Frame)) -> bool {
        if self.len == ROOM {
            return false;
        }
        match self.frames.get_mut((self.head + self.len) % ROOM) {
            Some(place) => *place = Some(frame),
            None => return false,
        }
        self.len += 1;
        true
    }

    /// Takes the oldest one.
    pub(super) fn pop(&mut self) -> Option<(u32, Frame)> {
        let frame = self.frames.get_mut(self.head)?.take()?;
        self.head = (self.head + 1) % ROOM;
        self.len -= 1;
        Some(frame)
    }
}
