// SPDX-License-Identifier: GPL-2.0

//! Queue of work requests.

use ipoib_sys::bindings;
use kernel::prelude::*;

use crate::work::{Piece, Send};

/// A request in a send queue.
#[derive(Clone, Copy)]
pub(super) struct SendEntry {
    pub(super) wr_id: u64,
    /// It completes even if it succeeds.
    pub(super) signaled: bool,
    pub(super) request: Send,
    pieces: usize,
}

/// A request in a receive queue.
#[derive(Clone, Copy)]
pub(super) struct ReceiveEntry {
    pub(super) wr_id: u64,
    pieces: usize,
}

/// A request whose list has a length.
pub(super) trait Entry: Copy {
    /// Elements in its list.
    fn pieces(&self) -> usize;
}

impl Entry for SendEntry {
    fn pieces(&self) -> usize {
        self.pieces
    }
}

impl Entry for ReceiveEntry {
    fn pieces(&self) -> usize {
        self.pieces
    }
}

/// Requests in the order in which they were posted, with their lists.
///
/// # Invariants
///
/// * There are `pieces.len() / sges` slots, of which `len` from `head` on are taken; `sges` is not 0.
/// * The entry in slot `n` is `entries[n]`, and its list the first of `pieces[n * sges..][..sges]`.
pub(super) struct WorkQueue<E> {
    entries: KVVec<Option<E>>,
    pieces: KVVec<Piece>,
    sges: usize,
    head: usize,
    len: usize,
}

impl<E: Entry> WorkQueue<E> {
    /// Makes one for `size` requests with lists of `sges` elements.
    pub(super) fn new(size: usize, sges: usize) -> Result<Self> {
        let sges = sges.max(1);
        let mut entries = KVVec::with_capacity(size, GFP_KERNEL)?;
        let mut pieces = KVVec::with_capacity(size * sges, GFP_KERNEL)?;
        for _ in 0..size {
            entries.push(None, GFP_KERNEL)?;
        }
        for _ in 0..size * sges {
            pieces.push(Piece::NONE, GFP_KERNEL)?;
        }
        // INVARIANT: No slot is taken.
        Ok(Self {
            entries,
            pieces,
            sges,
            head: 0,
            len: 0,
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The oldest request and its list.
    pub(super) fn first(&self) -> Option<(&E, &[Piece])> {
        if self.len == 0 {
            return None;
        }
        let entry = self.entries.get(self.head)?.as_ref()?;
        let list = self.pieces.get(self.head * self.sges..)?;
        Some((entry, list.get(..entry.pieces())?))
    }

    /// Removes the oldest request.
    pub(super) fn pop(&mut self) {
        if self.len > 0 {
            self.entries[self.head] = None;
            self.head = (self.head + 1) % self.entries.len();
            self.len -= 1;
        }
    }

    /// Removes all of them.
    pub(super) fn clear(&mut self) {
        while self.len > 0 {
            self.pop();
        }
    }

    /// The slot for the next request.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there is none.
    fn free(&self) -> Result<usize> {
        if self.len == self.entries.len() {
            return Err(ENOMEM);
        }
        Ok((self.head + self.len) % self.entries.len())
    }

    fn list(&mut self, slot: usize) -> &mut [Piece] {
        let at = slot * self.sges;
        &mut self.pieces[at..at + self.sges]
    }

    fn put(&mut self, slot: usize, entry: E) {
        self.entries[slot] = Some(entry);
        self.len += 1;
    }
}

impl WorkQueue<SendEntry> {
    /// Adds a request.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if the queue is full; `EINVAL` for what a datagram cannot be.
    ///
    /// # Safety
    ///
    /// As for [`Piece::read`], and `wr` has to be a request to send a datagram, with an address handle of this
    /// device's.
    pub(super) unsafe fn push_send(
        &mut self,
        wr: *const bindings::ib_send_wr,
        signal_all: bool,
    ) -> Result {
        let slot = self.free()?;
        // SAFETY: A request for a queue pair of this kind is the first field of an `ib_ud_wr`.
        let ud = unsafe { &*wr.cast::<bindings::ib_ud_wr>() };
        let immediate = match ud.wr.opcode {
            bindings::ib_wr_opcode_IB_WR_SEND => None,
            bindings::ib_wr_opcode_IB_WR_SEND_WITH_IMM => {
                // SAFETY: The opcode says that this is the union's field.
                Some(unsafe { ud.wr.ex.imm_data }.to_ne_bytes())
            }
            _ => return Err(EINVAL),
        };
        let flags = ud.wr.send_flags;
        // No capability says that it computes checksums or takes inline data.
        let known = bindings::ib_send_flags_IB_SEND_FENCE
            | bindings::ib_send_flags_IB_SEND_SIGNALED
            | bindings::ib_send_flags_IB_SEND_SOLICITED;
        if flags & !known != 0 || ud.ah.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: The handle is one of this device's.
        let to = unsafe { crate::verbs::address(ud.ah) };
        // SAFETY: By the safety requirement.
        let (pieces, len) = unsafe { Piece::read(self.list(slot), ud.wr.sg_list, ud.wr.num_sge)? };
        let entry = SendEntry {
            // SAFETY: Both fields of the union are as large, and any bits are an integer.
            wr_id: unsafe { ud.wr.__bindgen_anon_1.wr_id },
            signaled: signal_all || flags & bindings::ib_send_flags_IB_SEND_SIGNALED != 0,
            request: Send {
                to,
                remote_qp: ud.remote_qpn & 0xff_ffff,
                qkey: ud.remote_qkey,
                pkey_index: ud.pkey_index,
                immediate,
                solicited: flags & bindings::ib_send_flags_IB_SEND_SOLICITED != 0,
                len,
            },
            pieces,
        };
        self.put(slot, entry);
        Ok(())
    }
}

impl WorkQueue<ReceiveEntry> {
    /// Adds a request.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if the queue is full; `EINVAL` for a list that is too long.
    ///
    /// # Safety
    ///
    /// As for [`Piece::read`], and `wr` has to be a request to receive.
    pub(super) unsafe fn push_receive(&mut self, wr: *const bindings::ib_recv_wr) -> Result {
        let slot = self.free()?;
        // SAFETY: By the safety requirement.
        let wr = unsafe { &*wr };
        // SAFETY: By the safety requirement.
        let (pieces, _) = unsafe { Piece::read(self.list(slot), wr.sg_list, wr.num_sge)? };
        let entry = ReceiveEntry {
            // SAFETY: Both fields of the union are as large, and any bits are an integer.
            wr_id: unsafe { wr.__bindgen_anon_1.wr_id },
            pieces,
        };
        self.put(slot, entry);
        Ok(())
    }
}
