// SPDX-License-Identifier: GPL-2.0

//! Payload of messages.

use core::slice;

use crate::domain::Domain;
use crate::memory::{self, Cursor, Piece};
use crate::region::Right;

/// The payload of a message that is being sent, or of a part of it. It can be received any number of times.
///
/// # Invariants
///
/// `pieces` are those of a send request that is in its queue, whose lock is held; or memory that is borrowed.
pub struct Payload<'a> {
    pub(super) domain: Option<&'a Domain>,
    pub(super) pieces: &'a [Piece],
    /// Where in the message it begins.
    pub(super) offset: usize,
    pub(super) len: usize,
}

impl Payload<'_> {
    /// Calls `f` with the payload of a message of the driver's own.
    pub fn with<R>(bytes: &[u8], f: impl FnOnce(&Payload<'_>) -> R) -> R {
        let piece = Piece::of(bytes);
        // INVARIANT: The memory is borrowed until this returns.
        f(&Payload {
            domain: None,
            pieces: slice::from_ref(&piece),
            offset: 0,
            len: bytes.len(),
        })
    }

    /// Copies as much of it as there is room for, unless the sender's memory is not its to use any more.
    pub fn read(&self, out: &mut [u8]) {
        let piece = Piece::of_mut(out);
        let list = slice::from_ref(&piece);
        // SAFETY: `out` is borrowed.
        let mut to = unsafe { Cursor::new(None, Right::LocalWrite, list, 0) };
        let _ = memory::copy(&mut self.cursor(0), &mut to, self.len);
    }

    /// Bytes in it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A cursor at a place in it.
    pub(super) fn cursor(&self, from: usize) -> Cursor<'_> {
        // SAFETY: The request is in its queue, or the memory borrowed, as long as this exists, by the type invariant.
        unsafe {
            Cursor::new(
                self.domain,
                Right::LocalRead,
                self.pieces,
                self.offset + from,
            )
        }
    }
}
