// SPDX-License-Identifier: GPL-2.0

//! Payload of messages.

use core::cell::Cell;
use core::slice;

use crate::domain::Domain;
use crate::memory::{self, Cursor, Denied, Piece, Side};
use crate::region::Right;

/// The payload of a message that is being sent, or of a part of it. It can be received any number of times.
///
/// It begins with a head that the device has written, if there is one, and is otherwise in the memory of its sender.
///
/// # Invariants
///
/// `pieces` are those of a send request that is in its queue, whose lock is held; or memory that is borrowed; or they
/// name regions only.
pub struct Payload<'a> {
    domain: Option<&'a Domain>,
    /// Right to read the pieces.
    right: Right,
    head: &'a [u8],
    pieces: &'a [Piece],
    /// Offset in the pieces at which the payload goes on behind the head.
    offset: usize,
    /// Bytes in it, those of the head included.
    len: usize,
    /// A copy found that the sender's memory is not its to use any more.
    cut_off: Cell<bool>,
}

impl<'a> Payload<'a> {
    /// `len` bytes of the pieces, from a place in them on.
    ///
    /// # Safety
    ///
    /// The pieces have to be those of a send request that stays in its queue as long as this exists, memory that the
    /// caller has borrowed for so long, or made by [`Piece::remote`], so that they name regions.
    pub(super) unsafe fn new(
        domain: Option<&'a Domain>,
        right: Right,
        pieces: &'a [Piece],
        offset: usize,
        len: usize,
    ) -> Self {
        // INVARIANT: By the safety requirement.
        Self {
            domain,
            right,
            head: &[],
            pieces,
            offset,
            len,
            cut_off: Cell::new(false),
        }
    }

    /// A head, and behind it `len` bytes of the sender's memory, from a place in it on.
    pub(super) fn behind(&self, head: &'a [u8], offset: usize, len: usize) -> Self {
        // INVARIANT: The pieces are those of `self`.
        Self {
            head,
            offset: self.offset + offset,
            len: head.len() + len,
            cut_off: Cell::new(false),
            ..*self
        }
    }
}

impl Payload<'_> {
    /// Calls `f` with the payload of a message of the driver's own.
    pub fn with<R>(bytes: &[u8], f: impl FnOnce(&Payload<'_>) -> R) -> R {
        let piece = Piece::of(bytes);
        let list = slice::from_ref(&piece);
        // SAFETY: The memory is borrowed until this returns.
        f(&unsafe { Payload::new(None, Right::LocalRead, list, 0, bytes.len()) })
    }

    /// Copies as much of it as there is room for, unless the sender's memory is not its to use any more.
    pub fn read(&self, out: &mut [u8]) {
        let _ = self.try_read(out);
    }

    /// As [`Self::read`], and says whose memory is not to be used.
    pub(super) fn try_read(&self, out: &mut [u8]) -> Result<(), Side> {
        Cursor::over(out, |to| self.copy(0, to, self.len))
    }

    /// Copies `len` bytes of it, from a place in it on, or as many as there are and there is room for.
    ///
    /// # Errors
    ///
    /// See [`memory::copy`].
    pub(super) fn copy(&self, from: usize, to: &mut Cursor<'_>, len: usize) -> Result<(), Side> {
        let head = self.head.get(from..).unwrap_or(&[]);
        let head = head.get(..len).unwrap_or(head);
        if !head.is_empty() {
            to.put(head).map_err(|Denied| Side::To)?;
        }
        let behind = from.saturating_sub(self.head.len());
        let copied = memory::copy(&mut self.cursor(behind), to, len - head.len());
        if copied == Err(Side::From) {
            self.cut_off.set(true);
        }
        copied
    }

    /// Returns true if somebody could not read it to its end, since the sender's memory is not its to use any more.
    pub(super) fn is_cut_off(&self) -> bool {
        self.cut_off.get()
    }

    /// Copies the part of it that begins at `from` and fills `out`. False if it has no such part, or if the sender's
    /// memory is not its to use any more.
    pub fn copy_part(&self, from: usize, out: &mut [u8]) -> bool {
        let rest = self.len.checked_sub(from);
        if rest.is_none_or(|rest| rest < out.len()) {
            return false;
        }
        let len = out.len();
        Cursor::over(out, |to| self.copy(from, to, len)).is_ok()
    }

    /// Bytes in it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A cursor at a place in the sender's memory, counted from the end of the head.
    pub(super) fn cursor(&self, behind: usize) -> Cursor<'_> {
        // SAFETY: The request is in its queue, or the memory borrowed, or there is none but that of regions, as long as
        // this exists, by the type invariant.
        unsafe { Cursor::new(self.domain, self.right, self.pieces, self.offset + behind) }
    }
}
