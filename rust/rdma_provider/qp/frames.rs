// SPDX-License-Identifier: GPL-2.0

//! Frames of IP over InfiniBand, whose checksums the device fills in and checks, and that it makes of larger ones.
//!
//! A frame that goes out has its headers in memory of the device's, and the rest where the ULP has it. That is read
//! once for the sum and once more as it is copied: if somebody writes to it in between, the checksum is wrong, and the
//! receiver sees it.

use ib_fabric::offload::{Checksums, Segments, Sum, HEAD};
use ipoib_sys::bindings;
use kernel::prelude::*;

use super::abilities::Abilities;
use super::payload::Payload;
use super::store::Store;
use crate::domain::Domain;
use crate::memory::{self, Cursor, Denied, Piece};
use crate::region::Right;
use crate::work::{Send, Status};

/// Room in front of a datagram for a global route header (IB specification, section 11.4.1.2).
pub(super) const ROUTE_ROOM: usize = 40;

/// Segments in a row, with interrupts disabled.
const SEGMENTS: usize = 16;

/// Work on a datagram that its request asks for.
#[derive(Clone, Copy)]
pub(super) struct Offload {
    /// Checksums are to be filled in.
    checksum: bool,
    /// Bytes of the header that the store has; 0 if the datagram is not to be segmented.
    header: usize,
    /// Bytes of payload behind each.
    mss: usize,
    /// Segments that were sent.
    pub(super) sent: usize,
}

/// State of a request after some of its datagrams were sent.
pub(super) enum Progress {
    /// The request has ended.
    Done(Status),
    /// Number of datagrams that were sent.
    Sent(usize),
}

impl Offload {
    /// No work, or to fill in checksums.
    pub(super) fn checksum(checksum: bool) -> Offload {
        Offload {
            checksum,
            header: 0,
            mss: 0,
            sent: 0,
        }
    }

    /// Returns true if there is nothing to do.
    pub(super) fn is_none(&self) -> bool {
        !self.checksum && self.header == 0
    }

    /// Bytes of the headers of all segments of `len` bytes of payload.
    pub(super) fn headers(&self, len: usize) -> u64 {
        if self.header == 0 {
            return 0;
        }
        let segments = len.div_ceil(self.mss.max(1)).max(1);
        (segments as u64).saturating_mul(self.header as u64)
    }

    /// Reads how a request with `len` bytes of payload is to be segmented, and keeps its header in a slot.
    ///
    /// # Errors
    ///
    /// `EINVAL` if that cannot be done, or if the queue pair was not made for it.
    ///
    /// # Safety
    ///
    /// The header of the request has to be null or to be as long as it says.
    pub(super) unsafe fn segment(
        &mut self,
        ud: &bindings::ib_ud_wr,
        len: usize,
        abilities: &Abilities,
        store: &mut Store,
        slot: usize,
    ) -> Result {
        let bytes = usize::try_from(ud.hlen).map_err(|_| EINVAL)?;
        let mss = usize::try_from(ud.mss).map_err(|_| EINVAL)?;
        if len > abilities.lso as usize {
            return Err(EINVAL);
        }
        // SAFETY: By the safety requirement.
        let header = unsafe { store.put_header(slot, ud.header.cast(), bytes)? };
        Segments::new(header, mss, len).ok_or(EINVAL)?;
        self.header = bytes;
        self.mss = mss;
        Ok(())
    }

    /// Sends datagrams of a request, whose header is the beginning of `header`: each is given to `deliver`, which says
    /// how it ended.
    #[inline(never)]
    pub(super) fn send(
        &self,
        header: &[u8],
        request: &Send,
        payload: &Payload<'_>,
        deliver: &mut dyn FnMut(&Send, &Payload<'_>) -> Status,
    ) -> Progress {
        if self.header == 0 {
            return Progress::Done(send_one(request, payload, deliver));
        }
        let template = header.get(..self.header).unwrap_or(&[]);
        let Some(segments) = Segments::new(template, self.mss, request.len) else {
            return Progress::Done(Status::LocalOperation);
        };
        for index in self.sent..segments.count().min(self.sent + SEGMENTS) {
            let Some(range) = segments.range(index) else {
                break;
            };
            let mut head = [0; HEAD];
            let head = &mut head[..self.header];
            head.copy_from_slice(template);
            segments.write(index, head);
            if self.checksum && fill(payload, head, range.start, range.len()).is_err() {
                return Progress::Done(Status::LocalProtection);
            }
            let segment = payload.behind(head, range.start, range.len());
            let len = segment.len();
            let status = deliver_whole(&Send { len, ..*request }, &segment, deliver);
            if status != Status::Success || index + 1 == segments.count() {
                return Progress::Done(status);
            }
        }
        Progress::Sent(self.sent + SEGMENTS)
    }
}

/// Sends a datagram with its checksums.
fn send_one(
    request: &Send,
    payload: &Payload<'_>,
    deliver: &mut dyn FnMut(&Send, &Payload<'_>) -> Status,
) -> Status {
    let mut head = [0; HEAD];
    let n = payload.len().min(HEAD);
    let head = &mut head[..n];
    let rest = payload.len() - n;
    let read = payload.try_read(head);
    if read.is_err() || fill(payload, head, n, rest).is_err() {
        return Status::LocalProtection;
    }
    deliver_whole(request, &payload.behind(head, n, rest), deliver)
}

/// Delivers a datagram. If it could not be read to its end, the sender's memory is not its to use any more.
fn deliver_whole(
    request: &Send,
    frame: &Payload<'_>,
    deliver: &mut dyn FnMut(&Send, &Payload<'_>) -> Status,
) -> Status {
    let status = deliver(request, frame);
    if frame.is_cut_off() {
        Status::LocalProtection
    } else {
        status
    }
}

/// Fills in the checksums of a frame that begins with `head`, and goes on with `len` bytes of the pieces of a payload.
fn fill(payload: &Payload<'_>, head: &mut [u8], offset: usize, len: usize) -> Result<(), Denied> {
    let Some(checksums) = Checksums::find(head, head.len() + len) else {
        return Ok(());
    };
    let mut sum = checksums.begin(head);
    memory::add(&mut payload.cursor(offset), checksums.rest(), &mut sum)?;
    checksums.fill(head, &sum);
    Ok(())
}

/// Returns true if the frame of `len` bytes that was received into these pieces has checksums, and they are right.
///
/// # Safety
///
/// The pieces have to be those of a receive request that is in its queue, whose lock is held.
#[inline(never)]
pub(super) unsafe fn is_right(domain: &Domain, pieces: &[Piece], len: usize) -> bool {
    let mut head = [0; HEAD];
    let n = len.min(HEAD);
    let head = &mut head[..n];
    // SAFETY: By the safety requirement. The frame was written by the same right.
    let mut frame = unsafe { Cursor::new(Some(domain), Right::LocalWrite, pieces, ROUTE_ROOM) };
    if Cursor::over(head, |to| memory::copy(&mut frame, to, n)).is_err() {
        return false;
    }
    let Some(checksums) = Checksums::find(head, len) else {
        return false;
    };
    checksums.check(head).is_some_and(|mut sum: Sum| {
        memory::add(&mut frame, checksums.rest(), &mut sum).is_ok() && sum.is_right()
    })
}
