// SPDX-License-Identifier: GPL-2.0

//! Work requests, and the queues that they wait in.

use core::ptr;

use ipoib_sys::bindings;
use kernel::prelude::*;

use crate::ah::AddressVector;

/// Outcome of a work request (IB specification, section 11.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It is done.
    Success,
    /// The message is longer than may be sent.
    LocalLength,
    /// Something in the request or the queue pair forbids it.
    LocalOperation,
    /// The buffers are not the ULP's to use.
    LocalProtection,
    /// The queue was in error, or the queue pair.
    Flushed,
}

impl Status {
    pub(crate) fn as_raw(self) -> bindings::ib_wc_status {
        match self {
            Status::Success => bindings::ib_wc_status_IB_WC_SUCCESS,
            Status::LocalLength => bindings::ib_wc_status_IB_WC_LOC_LEN_ERR,
            Status::LocalOperation => bindings::ib_wc_status_IB_WC_LOC_QP_OP_ERR,
            Status::LocalProtection => bindings::ib_wc_status_IB_WC_LOC_PROT_ERR,
            Status::Flushed => bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR,
        }
    }
}

/// A piece of a ULP's memory.
///
/// # Invariants
///
/// While its request is in a queue, these are `len` bytes that the ULP has lent the device: to read those
/// of a send request, to write those of a receive request.
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    at: *mut u8,
    len: usize,
    lkey: u32,
}

// SAFETY: It may be read or written by any thread, by the type invariant.
unsafe impl core::marker::Send for Piece {}
// SAFETY: As above.
unsafe impl Sync for Piece {}

impl Piece {
    pub(crate) const NONE: Piece = Piece {
        at: ptr::null_mut(),
        len: 0,
        lkey: 0,
    };

    /// Copies a ULP's list into `pieces`; its number of elements and its length in bytes.
    ///
    /// # Errors
    ///
    /// `EINVAL` for more elements than `pieces` has.
    ///
    /// # Safety
    ///
    /// `list` has to point to `n` elements. Each has to be memory that is lent to the device until the
    /// request has completed, or the queue pair was reset or destroyed.
    pub(crate) unsafe fn read(
        pieces: &mut [Piece],
        list: *const bindings::ib_sge,
        n: i32,
    ) -> Result<(usize, usize)> {
        let n = usize::try_from(n).map_err(|_| EINVAL)?;
        let mut bytes = 0usize;
        for (i, piece) in pieces.get_mut(..n).ok_or(EINVAL)?.iter_mut().enumerate() {
            // SAFETY: `i` is below `n`; by the safety requirement.
            let sge = unsafe { *list.add(i) };
            // INVARIANT: By the safety requirement. The address is a kernel virtual one, since the device
            // has no DMA.
            *piece = Piece {
                at: ptr::with_exposed_provenance_mut(sge.addr as usize),
                len: sge.length as usize,
                lkey: sge.lkey,
            };
            bytes += piece.len;
        }
        Ok((n, bytes))
    }
}

/// Whether all pieces are named by the key that the device has for all of memory.
pub(crate) fn permitted(pieces: &[Piece]) -> bool {
    pieces.iter().all(|piece| piece.lkey == LOCAL_DMA_LKEY)
}

/// The key that names all of memory.
pub(crate) const LOCAL_DMA_LKEY: u32 = 0;

/// Bytes in all pieces.
pub(crate) fn length(pieces: &[Piece]) -> usize {
    pieces.iter().map(|piece| piece.len).sum()
}

/// Cursor through the memory of a list of pieces.
struct Cursor<'a> {
    pieces: &'a [Piece],
    done: usize,
}

impl Cursor<'_> {
    /// The rest of the present piece, which is not empty.
    fn rest(&mut self) -> Option<(*mut u8, usize)> {
        while let Some((piece, later)) = self.pieces.split_first() {
            if self.done < piece.len {
                return Some((piece.at.wrapping_add(self.done), piece.len - self.done));
            }
            self.pieces = later;
            self.done = 0;
        }
        None
    }
}

/// Copies `header` and then all of `from` to `to`, which has room.
///
/// # Safety
///
/// `from` has to be the pieces of a send request that is in its queue, `to` those of a receive request that is
/// in its queue, and no header may overlap `to`.
pub(crate) unsafe fn copy(header: &[u8], from: &[Piece], to: &[Piece]) {
    let mut to = Cursor {
        pieces: to,
        done: 0,
    };
    let mut put = |mut at: *const u8, mut len: usize| {
        while len > 0 {
            let Some((room, size)) = to.rest() else {
                return;
            };
            let n = size.min(len);
            // SAFETY: `at` has `len` bytes to read and `room` has `size` to write, by the invariant of `Piece`;
            // two ULPs may have lent the same memory, so that they may overlap.
            unsafe { ptr::copy(at, room, n) };
            at = at.wrapping_add(n);
            len -= n;
            to.done += n;
        }
    };
    put(header.as_ptr(), header.len());
    for piece in from {
        put(piece.at, piece.len);
    }
}

/// A send request, as the driver sees it.
#[derive(Clone, Copy, Debug)]
pub struct Send {
    /// Destination.
    pub to: AddressVector,
    /// Queue pair there.
    pub remote_qp: u32,
    /// Q_Key to send with.
    pub qkey: u32,
    /// Index of the P_Key to send with.
    pub pkey_index: u16,
    /// Immediate data, in network order.
    pub immediate: Option<[u8; 4]>,
    /// Whether the receiver is to be told.
    pub solicited: bool,
    /// Bytes of payload.
    pub len: usize,
}
