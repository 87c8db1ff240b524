// SPDX-License-Identifier: GPL-2.0

//! Queue of work requests.

use ib_fabric::rc::{self, Work, MAX_MESSAGE};
use ipoib_sys::bindings;
use kernel::prelude::*;

use super::abilities::Abilities;
use super::frames::Offload;
use super::parse::{parse, Flags, Parsed};
use super::store::Store;
use crate::memory::Piece;
use crate::region::FastReg;
use crate::work::{Send, Status};

/// Counters of the work requests of one queue.
///
/// `posted` is `completed` plus those that wait, unless a change to the state Reset has dropped some.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueueTally {
    /// Requests that were posted; those of a shared receive queue count when they are taken from it.
    pub posted: u64,
    /// Requests that have come to their end, whether or not their ULP wanted to know.
    pub completed: u64,
    /// Requests among them that were flushed.
    pub flushed: u64,
    /// Bytes of the messages that were sent, or received, with success.
    pub bytes: u64,
}

/// A request in a send queue.
#[derive(Clone, Copy)]
pub(super) struct SendEntry {
    pub(super) wr_id: u64,
    /// The request completes even if it succeeds.
    pub(super) signaled: bool,
    /// The operation as a completion names it.
    pub(super) opcode: bindings::ib_wc_opcode,
    pub(super) what: What,
}

impl SendEntry {
    /// Bytes of its message.
    pub(super) fn len(&self) -> u32 {
        match &self.what {
            What::Datagram(send, _) => send.len as u32,
            What::Message(request) => request.len,
            What::Register(..) | What::Invalidate { .. } => 0,
        }
    }

    /// Bytes of all messages that are made of it.
    pub(super) fn sent_bytes(&self) -> u64 {
        let headers = match &self.what {
            What::Datagram(send, offload) => offload.headers(send.len),
            What::Message(_) | What::Register(..) | What::Invalidate { .. } => 0,
        };
        u64::from(self.len()).saturating_add(headers)
    }
}

/// An operation of a send request.
#[derive(Clone, Copy)]
pub(super) enum What {
    /// A datagram, or several that are to be made of it.
    Datagram(Send, Offload),
    /// A message of a connection.
    Message(rc::Request),
    /// A memory region is opened, behind a fence or not.
    Register(FastReg, bool),
    /// The memory region with this key is closed.
    Invalidate { key: u32, fence: bool },
}

/// A request in a receive queue.
#[derive(Clone, Copy)]
pub(crate) struct ReceiveEntry {
    pub(crate) wr_id: u64,
}

/// Requests in the order in which they were posted, with their lists.
///
/// # Invariants
///
/// * There are `pieces.len() / sges` slots, of which `len` from `head` on are taken; `sges` is not 0.
/// * The entry in slot `n` is that of `entries[n]`, and its list the first of `pieces[n * sges..][..sges]`, as many as
///   are next to the entry.
pub(crate) struct WorkQueue<E> {
    entries: KVVec<Option<(E, usize)>>,
    pieces: KVVec<Piece>,
    sges: usize,
    /// Headers and inline data of the requests, by their slots.
    store: Store,
    head: usize,
    len: usize,
    pub(super) tally: QueueTally,
}

impl<E: Copy> WorkQueue<E> {
    /// Makes one for `size` requests with lists of `sges` elements.
    pub(crate) fn new(size: usize, sges: usize) -> Result<Self> {
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
            store: Store::NONE,
            head: 0,
            len: 0,
            tally: QueueTally::default(),
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Requests in it.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The request before which `index` others are in the queue, and its list.
    pub(super) fn get(&self, index: usize) -> Option<(&E, &[Piece])> {
        if index >= self.len {
            return None;
        }
        let slot = (self.head + index) % self.entries.len();
        let (entry, pieces) = self.entries.get(slot)?.as_ref()?;
        let list = self.pieces.get(slot * self.sges..)?;
        Some((entry, list.get(..*pieces)?))
    }

    /// The oldest request and its list.
    pub(crate) fn first(&self) -> Option<(&E, &[Piece])> {
        self.get(0)
    }

    /// Removes the oldest request, which has come to its end.
    pub(crate) fn pop(&mut self) {
        let n = u64::from(self.len > 0);
        self.tally.completed = self.tally.completed.wrapping_add(n);
        self.remove();
    }

    /// Counts how a request has ended, whose message has so many bytes.
    pub(super) fn count_end(&mut self, status: Status, bytes: u64) {
        match status {
            Status::Success => self.tally.bytes = self.tally.bytes.wrapping_add(bytes),
            Status::Flushed => self.tally.flushed = self.tally.flushed.wrapping_add(1),
            _ => {}
        }
    }

    fn remove(&mut self) {
        if self.len > 0 {
            self.entries[self.head] = None;
            self.head = (self.head + 1) % self.entries.len();
            self.len -= 1;
        }
    }

    /// Removes all of them.
    pub(crate) fn clear(&mut self) {
        while self.len > 0 {
            self.remove();
        }
    }

    /// Moves the oldest request of another queue to the end of this one. False if there is none, or no room for it.
    pub(crate) fn take_from(&mut self, other: &mut WorkQueue<E>) -> bool {
        let (Some((entry, pieces)), Ok(slot)) = (other.first(), self.free()) else {
            return false;
        };
        let (entry, n) = (*entry, pieces.len());
        match self.list(slot).get_mut(..n) {
            Some(list) => list.copy_from_slice(pieces),
            None => return false,
        }
        self.put(slot, entry, n);
        other.pop();
        true
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

    fn put(&mut self, slot: usize, entry: E, pieces: usize) {
        self.entries[slot] = Some((entry, pieces));
        self.len += 1;
        self.tally.posted = self.tally.posted.wrapping_add(1);
    }
}

impl rc::Requests for WorkQueue<SendEntry> {
    fn get(&self, index: usize) -> Option<rc::Request> {
        let (entry, _) = self.get(index)?;
        let local = |last, fence| rc::Request {
            work: Work::Local { last },
            len: 0,
            fence,
            solicited: false,
        };
        Some(match entry.what {
            What::Message(request) => request,
            What::Register(_, fence) => local(false, fence),
            // Those before it may still have to read the region's memory, once more.
            What::Invalidate { fence, .. } => local(true, fence),
            What::Datagram(..) => return None,
        })
    }
}

impl WorkQueue<SendEntry> {
    /// Makes a send queue.
    pub(super) fn for_sends(cap: &bindings::ib_qp_cap, abilities: &Abilities) -> Result<Self> {
        let mut queue = Self::new(cap.max_send_wr as usize, cap.max_send_sge as usize)?;
        queue.store = Store::new(cap, abilities)?;
        Ok(queue)
    }

    /// Memory for the header that the oldest request brings along.
    pub(super) fn header(&self) -> &[u8] {
        self.store.header(self.head)
    }

    /// Notes that so many datagrams of the oldest request have been sent.
    pub(super) fn note_sent(&mut self, segments: usize) {
        if let Some(Some((entry, _))) = self.entries.get_mut(self.head) {
            if let What::Datagram(_, offload) = &mut entry.what {
                offload.sent = segments;
            }
        }
    }

    /// Reads the list of a request into a slot, or copies what it points to; its number of elements and its length in
    /// bytes.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is too long.
    ///
    /// # Safety
    ///
    /// As for [`Piece::read`].
    unsafe fn read_list(
        &mut self,
        slot: usize,
        wr: &bindings::ib_send_wr,
        inline: bool,
    ) -> Result<(usize, usize)> {
        if !inline {
            // SAFETY: By the safety requirement.
            return unsafe { Piece::read(self.list(slot), wr.sg_list, wr.num_sge) };
        }
        let n = usize::try_from(wr.num_sge).map_err(|_| EINVAL)?;
        if n > self.sges {
            return Err(EINVAL);
        }
        // SAFETY: By the safety requirement. Inline data have no key: their addresses are the CPU's.
        let (piece, len) = unsafe { self.store.put_inline(slot, wr.sg_list, n)? };
        self.pieces[slot * self.sges] = piece;
        Ok((1, len))
    }

    /// Adds a request to send a datagram.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if the queue is full; `EINVAL` for what a datagram cannot be.
    ///
    /// # Safety
    ///
    /// As for [`Piece::read`], and `wr` has to be a request to send a datagram, with an address handle of this
    /// device's.
    pub(super) unsafe fn push_datagram(
        &mut self,
        wr: *const bindings::ib_send_wr,
        signal_all: bool,
        abilities: &Abilities,
    ) -> Result {
        let slot = self.free()?;
        // SAFETY: A request for a queue pair of this kind is the first field of an `ib_ud_wr`.
        let ud = unsafe { &*wr.cast::<bindings::ib_ud_wr>() };
        let segmented = ud.wr.opcode == bindings::ib_wr_opcode_IB_WR_LSO;
        let immediate = match ud.wr.opcode {
            bindings::ib_wr_opcode_IB_WR_SEND | bindings::ib_wr_opcode_IB_WR_LSO => None,
            bindings::ib_wr_opcode_IB_WR_SEND_WITH_IMM => {
                // SAFETY: The opcode says that this is the union's field.
                Some(unsafe { ud.wr.ex.imm_data }.to_ne_bytes())
            }
            _ => return Err(EINVAL),
        };
        let flags = Flags::read(&ud.wr, signal_all, abilities.checksum)?;
        if ud.ah.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: The handle is one of this device's.
        let to = unsafe { crate::ah::address(ud.ah) };
        // SAFETY: By the safety requirement.
        let (pieces, len) = unsafe { self.read_list(slot, &ud.wr, flags.inline)? };
        let mut offload = Offload::checksum(flags.checksum);
        if segmented {
            // SAFETY: By the safety requirement, the request has a header as long as it says.
            unsafe { offload.segment(ud, len, abilities, &mut self.store, slot)? };
        }
        let entry = SendEntry {
            // SAFETY: Both fields of the union are as large, and any bits are an integer.
            wr_id: unsafe { ud.wr.__bindgen_anon_1.wr_id },
            signaled: flags.signaled,
            opcode: if segmented {
                bindings::ib_wc_opcode_IB_WC_LSO
            } else {
                bindings::ib_wc_opcode_IB_WC_SEND
            },
            what: What::Datagram(
                Send {
                    to,
                    remote_qp: ud.remote_qpn & 0xff_ffff,
                    qkey: ud.remote_qkey,
                    pkey_index: ud.pkey_index,
                    immediate,
                    solicited: flags.solicited,
                    len,
                },
                offload,
            ),
        };
        self.put(slot, entry, pieces);
        Ok(())
    }

    /// Adds a request of a connection.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if the queue is full; `EINVAL` for what cannot be done. `reads` says whether READ requests and
    /// atomic operations can.
    ///
    /// # Safety
    ///
    /// As for [`Piece::read`], and `wr` has to be a request for a connection. A region to be registered has to be
    /// this device's.
    pub(super) unsafe fn push_message(
        &mut self,
        wr: *const bindings::ib_send_wr,
        signal_all: bool,
        reads: bool,
    ) -> Result {
        let slot = self.free()?;
        // SAFETY: By the safety requirement.
        let raw = unsafe { &*wr };
        let flags = Flags::read(raw, signal_all, false)?;
        // SAFETY: By the safety requirement.
        let (opcode, parsed) = unsafe { parse(wr)? };
        let (pieces, len) = match parsed {
            // Their lists say where an answer goes.
            Parsed::Message(Work::Read { .. } | Work::Atomic { .. }) if flags.inline => {
                return Err(EINVAL);
            }
            Parsed::Message(_) => {
                // SAFETY: By the safety requirement.
                unsafe { self.read_list(slot, raw, flags.inline)? }
            }
            Parsed::Register(_) | Parsed::Invalidate(_) => (0, 0),
        };
        let len = u32::try_from(len).map_err(|_| EINVAL)?;
        let fence = flags.fence;
        let what = match parsed {
            Parsed::Message(work) => {
                let fits = match work {
                    Work::Atomic { .. } => reads && len == 8,
                    Work::Read { .. } => reads && len <= MAX_MESSAGE,
                    _ => len <= MAX_MESSAGE,
                };
                if !fits {
                    return Err(EINVAL);
                }
                What::Message(rc::Request {
                    work,
                    len,
                    fence,
                    solicited: flags.solicited,
                })
            }
            Parsed::Register(request) => What::Register(request, fence),
            Parsed::Invalidate(key) => What::Invalidate { key, fence },
        };
        let entry = SendEntry {
            // SAFETY: Both fields of the union are as large, and any bits are an integer.
            wr_id: unsafe { raw.__bindgen_anon_1.wr_id },
            signaled: flags.signaled,
            opcode,
            what,
        };
        self.put(slot, entry, pieces);
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
    pub(crate) unsafe fn push_receive(&mut self, wr: *const bindings::ib_recv_wr) -> Result {
        let slot = self.free()?;
        // SAFETY: By the safety requirement.
        let wr = unsafe { &*wr };
        // SAFETY: By the safety requirement.
        let (pieces, _) = unsafe { Piece::read(self.list(slot), wr.sg_list, wr.num_sge)? };
        let entry = ReceiveEntry {
            // SAFETY: Both fields of the union are as large, and any bits are an integer.
            wr_id: unsafe { wr.__bindgen_anon_1.wr_id },
        };
        self.put(slot, entry, pieces);
        Ok(())
    }
}
