// SPDX-License-Identifier: GPL-2.0

//! Bytes that send requests bring along, and that are copied as they are posted.

use core::ptr;

use ib_fabric::offload::HEAD;
use ipoib_sys::bindings;
use kernel::prelude::*;

use super::abilities::Abilities;
use crate::memory::Piece;

/// Memory for a header and for inline data in each slot of a send queue.
pub(super) struct Store {
    bytes: KVVec<u8>,
    /// Bytes for a header; 0 if there is none.
    header: usize,
    /// Bytes for inline data.
    inline: usize,
}

impl Store {
    /// Nothing for any slot.
    pub(super) const NONE: Store = Store {
        bytes: KVVec::new(),
        header: 0,
        inline: 0,
    };

    /// Memory for a send queue.
    pub(super) fn new(cap: &bindings::ib_qp_cap, abilities: &Abilities) -> Result<Store> {
        let header = if abilities.lso > 0 { HEAD } else { 0 };
        let inline = cap.max_inline_data as usize;
        let len = cap.max_send_wr as usize * (header + inline);
        let bytes = KVVec::from_elem(0, len, GFP_KERNEL)?;
        Ok(Store {
            bytes,
            header,
            inline,
        })
    }

    /// The header of a slot, and whatever is behind it.
    pub(super) fn header(&self, slot: usize) -> &[u8] {
        let at = slot * (self.header + self.inline);
        self.bytes.get(at..at + self.header).unwrap_or(&[])
    }

    /// Copies a header of `len` bytes into a slot, and returns it.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no room for it.
    ///
    /// # Safety
    ///
    /// `header` has to be null or to point to so many bytes.
    pub(super) unsafe fn put_header(
        &mut self,
        slot: usize,
        header: *const u8,
        len: usize,
    ) -> Result<&[u8]> {
        let at = slot * (self.header + self.inline);
        let room = self.bytes.get_mut(at..at + self.header).ok_or(EINVAL)?;
        let room = room.get_mut(..len).ok_or(EINVAL)?;
        if header.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: By the safety requirement; `room` is as long.
        unsafe { ptr::copy(header, room.as_mut_ptr(), len) };
        Ok(room)
    }

    /// Copies what the `n` elements of a list point to into a slot, and returns where it is and its length in bytes.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is too long.
    ///
    /// # Safety
    ///
    /// As for [`Piece::read`]. The addresses have to be kernel virtual ones, whatever the keys are.
    pub(super) unsafe fn put_inline(
        &mut self,
        slot: usize,
        list: *const bindings::ib_sge,
        n: usize,
    ) -> Result<(Piece, usize)> {
        let at = slot * (self.header + self.inline) + self.header;
        let room = self.bytes.get_mut(at..at + self.inline).ok_or(EINVAL)?;
        let mut len = 0;
        for i in 0..n {
            // SAFETY: `i` is below `n`; by the safety requirement.
            let sge = unsafe { *list.add(i) };
            let bytes = sge.length as usize;
            let to = room.get_mut(len..len + bytes).ok_or(EINVAL)?;
            let from = ptr::with_exposed_provenance::<u8>(sge.addr as usize);
            // SAFETY: By the safety requirement; `to` is as long.
            unsafe { ptr::copy(from, to.as_mut_ptr(), bytes) };
            len += bytes;
        }
        // INVARIANT: The memory is the queue's own, which keeps it as it is until the slot is free again.
        Ok((Piece::of_mut(room.get_mut(..len).ok_or(EINVAL)?), len))
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[kunit_tests(rdma_provider_store)]
mod tests {
    use super::*;
    use crate::memory::{self, Cursor};
    use crate::qp::queue::SendEntry;
    use crate::qp::WorkQueue;
    use crate::region::Right;
    use core::slice;

    /// A send queue for requests that have up to eight bytes in themselves, and two elements.
    fn queue() -> Result<WorkQueue<SendEntry>> {
        let cap = bindings::ib_qp_cap {
            max_send_wr: 3,
            max_send_sge: 2,
            max_inline_data: 8,
            ..pin_init::zeroed()
        };
        let abilities = Abilities {
            block_loopback: false,
            checksum: false,
            lso: 1000,
        };
        WorkQueue::for_sends(&cap, &abilities)
    }

    /// Posts a request of a connection with these bytes in itself, in two elements, which it forgets then.
    fn post(
        queue: &mut WorkQueue<SendEntry>,
        opcode: bindings::ib_wr_opcode,
        bytes: &[u8],
    ) -> Result {
        let mut copy = KVec::new();
        copy.extend_from_slice(bytes, GFP_KERNEL)?;
        let (one, other) = copy.split_at(bytes.len() / 2);
        let element = |bytes: &[u8]| bindings::ib_sge {
            addr: bytes.as_ptr().expose_provenance() as u64,
            length: bytes.len() as u32,
            // No region has this key.
            lkey: 0xffff_ff00,
        };
        let mut list = [element(one), element(other)];
        let mut request: bindings::ib_rdma_wr = pin_init::zeroed();
        request.wr.opcode = opcode;
        request.wr.send_flags = bindings::ib_send_flags_IB_SEND_INLINE;
        request.wr.sg_list = list.as_mut_ptr();
        request.wr.num_sge = 2;
        // SAFETY: It is a request for a connection, whose elements point to memory, and has no handle or region.
        let posted = unsafe { queue.push_message(&raw const request.wr, false, true) };
        copy.iter_mut().for_each(|byte| *byte = 0xff);
        posted
    }

    /// Reads what a request has to send.
    fn message(queue: &WorkQueue<SendEntry>, index: usize) -> Option<([u8; 8], u32)> {
        let (entry, pieces) = queue.get(index)?;
        let mut bytes = [0; 8];
        let room = Piece::of_mut(&mut bytes);
        // SAFETY: The request is in its queue, and `bytes` is borrowed.
        let (mut from, mut to) = unsafe {
            (
                Cursor::new(None, Right::LocalRead, pieces, 0),
                Cursor::new(None, Right::LocalWrite, slice::from_ref(&room), 0),
            )
        };
        memory::copy(&mut from, &mut to, 8).ok()?;
        Some((bytes, entry.len()))
    }

    #[test]
    fn inline_data_are_copied_as_they_are_posted() -> Result {
        let mut queue = queue()?;
        let send = bindings::ib_wr_opcode_IB_WR_SEND;
        for bytes in [&b"12345678"[..], b"", b"abc"] {
            post(&mut queue, send, bytes)?;
        }
        assert_eq!(message(&queue, 0), Some((*b"12345678", 8)));
        assert_eq!(message(&queue, 1), Some(([0; 8], 0)));
        assert_eq!(message(&queue, 2), Some((*b"abc\0\0\0\0\0", 3)));
        queue.pop();
        post(&mut queue, send, b"ABCDEFG")?;
        assert_eq!(message(&queue, 1), Some((*b"abc\0\0\0\0\0", 3)));
        assert_eq!(message(&queue, 2), Some((*b"ABCDEFG\0", 7)));
        Ok(())
    }

    #[test]
    fn not_all_can_be_inline() -> Result {
        let mut queue = queue()?;
        let too_long = post(&mut queue, bindings::ib_wr_opcode_IB_WR_SEND, b"123456789");
        assert_eq!(too_long, Err(EINVAL));
        let answer = post(&mut queue, bindings::ib_wr_opcode_IB_WR_RDMA_READ, b"1234");
        assert_eq!(answer, Err(EINVAL));
        assert!(queue.is_empty());
        Ok(())
    }

    #[test]
    fn headers_have_room_of_their_own() -> Result {
        let cap = bindings::ib_qp_cap {
            max_send_wr: 2,
            max_send_sge: 1,
            ..pin_init::zeroed()
        };
        let abilities = Abilities {
            block_loopback: false,
            checksum: false,
            lso: 1,
        };
        let mut store = Store::new(&cap, &abilities)?;
        let headers = [[1u8; HEAD], [2; HEAD]];
        for (slot, header) in headers.iter().enumerate() {
            // SAFETY: They are so many bytes.
            unsafe { store.put_header(slot, header.as_ptr(), HEAD)? };
        }
        assert_eq!(store.header(0), headers[0]);
        assert_eq!(store.header(1), headers[1]);
        // SAFETY: None of them is read.
        let refused = unsafe {
            [
                store.put_header(0, headers[1].as_ptr(), HEAD + 1).is_err(),
                store.put_header(0, ptr::null(), 4).is_err(),
                store.put_header(2, headers[1].as_ptr(), 4).is_err(),
            ]
        };
        assert_eq!(refused, [true; 3]);
        assert_eq!(store.header(0), headers[0]);
        Ok(())
    }
}
