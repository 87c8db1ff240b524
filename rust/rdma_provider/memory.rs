// SPDX-License-Identifier: GPL-2.0

//! Memory that work requests name, and copies from the memory of one to that of another.

use core::ptr;
use core::slice;

use ib_fabric::offload::Sum;
use ipoib_sys::bindings;
use kernel::prelude::*;
use kernel::sync::atomic::ordering;

use crate::domain::Domain;
use crate::region::{Right, Use};

/// The key that names all of memory, for the owner of the queue pair.
pub(crate) const LOCAL_DMA_LKEY: u32 = 0;

/// A piece of memory, as a work request or a packet names it.
///
/// Its address is a kernel virtual one if the key is [`LOCAL_DMA_LKEY`], and means what the key's region says
/// otherwise.
///
/// # Invariants
///
/// With the key [`LOCAL_DMA_LKEY`], and while its request is in a queue, these are `len` bytes that the ULP has
/// lent the device: to read those of a send request, to write those of a receive request, or of one that reads
/// remote memory. Or they are the queue's own, which has copied them from the ULP's. A piece without a request is
/// memory of the driver's, and does not outlive the borrow that it was made from.
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    at: u64,
    len: usize,
    key: u32,
}

impl Piece {
    pub(crate) const NONE: Piece = Piece {
        at: 0,
        len: 0,
        key: LOCAL_DMA_LKEY,
    };

    /// Names memory of the driver's, which is only to be read.
    pub(crate) fn of(bytes: &[u8]) -> Piece {
        // INVARIANT: The caller drops it before its borrow ends.
        Piece {
            at: bytes.as_ptr().expose_provenance() as u64,
            len: bytes.len(),
            key: LOCAL_DMA_LKEY,
        }
    }

    /// Names memory of the driver's, to be written.
    pub(crate) fn of_mut(bytes: &mut [u8]) -> Piece {
        // INVARIANT: The caller drops it before its borrow ends.
        Piece {
            at: bytes.as_mut_ptr().expose_provenance() as u64,
            len: bytes.len(),
            key: LOCAL_DMA_LKEY,
        }
    }

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
                at: sge.addr,
                len: sge.length as usize,
                key: sge.lkey,
            };
            bytes += piece.len;
        }
        Ok((n, bytes))
    }

    /// Memory that the other side of a connection names; `None` if the key means no region.
    pub(crate) fn remote(key: u32, at: u64, len: u32) -> Option<Piece> {
        let len = len as usize;
        // INVARIANT: It has another key.
        (key != LOCAL_DMA_LKEY).then_some(Piece { at, len, key })
    }
}

/// Bytes in all pieces.
pub(crate) fn length(pieces: &[Piece]) -> usize {
    pieces.iter().map(|piece| piece.len).sum()
}

/// The memory is not the requester's to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Denied;

/// Returns true if all pieces may be used so.
pub(crate) fn permitted(domain: &Domain, pieces: &[Piece], right: Right) -> bool {
    pieces.iter().all(|piece| {
        piece.len == 0
            || piece.key == LOCAL_DMA_LKEY
            || domain.allows(piece.key, piece.at, piece.len, right)
    })
}

/// Cursor through the memory of a list of pieces.
///
/// While it is within a piece of a region's, nobody can take that region away: it is a short time, in which no
/// lock is taken that is held by somebody who does that.
pub(crate) struct Cursor<'a> {
    /// The domain of the keys; the pieces have none without one.
    domain: Option<&'a Domain>,
    right: Right,
    pieces: &'a [Piece],
    /// Bytes of the first piece that are behind it.
    done: usize,
    /// Use of the region of the first piece.
    region: Option<Use>,
}

impl<'a> Cursor<'a> {
    /// A cursor at a place in a list.
    ///
    /// # Safety
    ///
    /// The pieces with the key [`LOCAL_DMA_LKEY`] have to be those of a request that stays in its queue as long as
    /// the cursor exists: of a send request to read, of another to write, as `right` says. Or they are memory that
    /// the caller has borrowed for so long.
    pub(crate) unsafe fn new(
        domain: Option<&'a Domain>,
        right: Right,
        pieces: &'a [Piece],
        offset: usize,
    ) -> Self {
        let mut cursor = Self {
            domain,
            right,
            pieces,
            done: offset,
            region: None,
        };
        while let Some((piece, later)) = cursor.pieces.split_first() {
            if cursor.done < piece.len {
                break;
            }
            cursor.done -= piece.len;
            cursor.pieces = later;
        }
        cursor
    }

    /// Calls `f` with a cursor at the beginning of memory of the driver's, to be written.
    pub(crate) fn over<R>(bytes: &mut [u8], f: impl FnOnce(&mut Cursor<'_>) -> R) -> R {
        let piece = Piece::of_mut(bytes);
        // SAFETY: The memory is borrowed until this returns.
        f(&mut unsafe { Cursor::new(None, Right::LocalWrite, slice::from_ref(&piece), 0) })
    }

    /// Returns true if it is at the end of the list.
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Goes on by so many bytes, within the present piece.
    pub(crate) fn skip(&mut self, bytes: usize) {
        self.done += bytes;
    }

    /// Enters the region of the present piece, if it is in one.
    pub(crate) fn enter(&mut self) -> Result<(), Denied> {
        match self.pieces.first() {
            Some(piece) if piece.key != LOCAL_DMA_LKEY && self.region.is_none() => {
                let domain = self.domain.ok_or(Denied)?;
                let used = domain.enter(piece.key, self.right).ok_or(Denied)?;
                self.region = Some(used);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The next bytes that are in a row, which are not none; `None` at the end.
    fn rest(&mut self) -> Result<Option<(*mut u8, usize)>, Denied> {
        while let Some((piece, later)) = self.pieces.split_first() {
            if self.done < piece.len {
                let left = piece.len - self.done;
                if piece.key == LOCAL_DMA_LKEY {
                    let at = ptr::with_exposed_provenance_mut::<u8>(piece.at as usize);
                    return Ok(Some((at.wrapping_add(self.done), left)));
                }
                self.enter()?;
                let used = self.region.as_ref().ok_or(Denied)?;
                let at = piece.at.wrapping_add(self.done as u64);
                let (at, len) = used.memory(at, left).ok_or(Denied)?;
                return Ok(Some((at, len.min(left))));
            }
            self.pieces = later;
            self.done = 0;
            self.region = None;
        }
        Ok(None)
    }

    /// Writes bytes, as far as there is room.
    ///
    /// # Errors
    ///
    /// [`Denied`], when some may have been written.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<(), Denied> {
        let (mut at, mut len) = (bytes.as_ptr(), bytes.len());
        while len > 0 {
            let Some((room, size)) = self.rest()? else {
                break;
            };
            let n = size.min(len);
            // SAFETY: `at` has `len` bytes to read. `room` has `size` to write, by the safety requirement of
            // `Cursor::new` or since the region is in use.
            unsafe { ptr::copy(at, room, n) };
            at = at.wrapping_add(n);
            len -= n;
            self.done += n;
        }
        Ok(())
    }
}

/// Side of a copy whose memory is not the requester's to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    From,
    To,
}

/// Copies `len` bytes, or as many as there are and there is room for.
///
/// # Errors
///
/// The side that is denied, when some may have been copied.
pub(crate) fn copy(from: &mut Cursor<'_>, to: &mut Cursor<'_>, mut len: usize) -> Result<(), Side> {
    while len > 0 {
        let source = from.rest().map_err(|Denied| Side::From)?;
        let room = to.rest().map_err(|Denied| Side::To)?;
        let (Some((source, available)), Some((room, size))) = (source, room) else {
            break;
        };
        let n = len.min(available).min(size);
        // SAFETY: `source` has `available` bytes to read and `room` has `size` to write, by the safety requirement
        // of `Cursor::new` or since the regions are in use. Two ULPs may have lent the same memory, so that they
        // may overlap.
        unsafe { ptr::copy(source, room, n) };
        from.done += n;
        to.done += n;
        len -= n;
    }
    Ok(())
}

/// Adds `len` bytes to a sum, or as many as there are.
///
/// # Errors
///
/// [`Denied`], when some may have been added.
pub(crate) fn add(from: &mut Cursor<'_>, mut len: usize, sum: &mut Sum) -> Result<(), Denied> {
    while len > 0 {
        let Some((at, available)) = from.rest()? else {
            break;
        };
        // The length is an `int` there.
        let n = len.min(available).min(1 << 30);
        // SAFETY: `at` has `available` bytes to read, by the safety requirement of `Cursor::new` or since the region
        // is in use. That they may change meanwhile makes the sum another one, and nothing else.
        let block = unsafe { bindings::csum_partial(at.cast(), n as i32, 0) };
        sum.add_block(block, n);
        from.done += n;
        len -= n;
    }
    Ok(())
}

/// Changes eight bytes of a region at once; returns the number that was there.
///
/// # Errors
///
/// [`Denied`] if they are not the requester's to change, or not in a row.
pub(crate) fn change(
    domain: &Domain,
    key: u32,
    address: u64,
    new: impl Fn(u64) -> u64,
) -> Result<u64, Denied> {
    if key == LOCAL_DMA_LKEY {
        return Err(Denied);
    }
    let used = domain.enter(key, Right::RemoteAtomic).ok_or(Denied)?;
    let (at, len) = used.memory(address, 8).ok_or(Denied)?;
    let at = at.cast::<u64>();
    if len < 8 || !at.is_aligned() {
        return Err(Denied);
    }
    // SAFETY: They are eight bytes of a region in use, aligned. Others may write to them, as to all memory that
    // was given to a device, but not by the CPU, other than by this.
    let number = unsafe { kernel::sync::atomic::Atomic::from_ptr(at) };
    let mut old = number.load(ordering::Relaxed);
    while let Err(now) = number.cmpxchg(old, new(old), ordering::Full) {
        old = now;
    }
    Ok(old)
}
