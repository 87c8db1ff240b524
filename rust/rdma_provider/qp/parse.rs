// SPDX-License-Identifier: GPL-2.0

//! Send requests as ULPs write them.

use crate::region::FastReg;
use ib_fabric::rc::{AtomicOp, Tail, Work};
use ipoib_sys::bindings;
use kernel::prelude::*;

/// Flags of a send request.
pub(super) struct Flags {
    pub(super) fence: bool,
    pub(super) signaled: bool,
    pub(super) solicited: bool,
    pub(super) inline: bool,
    pub(super) checksum: bool,
}

impl Flags {
    /// Reads them; `checksum` says whether the device computes checksums for such requests.
    ///
    /// # Errors
    ///
    /// `EINVAL` for others.
    pub(super) fn read(
        wr: &bindings::ib_send_wr,
        signal_all: bool,
        checksum: bool,
    ) -> Result<Self> {
        let flags = wr.send_flags as u32;
        let mut known = bindings::ib_send_flags_IB_SEND_FENCE
            | bindings::ib_send_flags_IB_SEND_SIGNALED
            | bindings::ib_send_flags_IB_SEND_SOLICITED
            | bindings::ib_send_flags_IB_SEND_INLINE;
        if checksum {
            known |= bindings::ib_send_flags_IB_SEND_IP_CSUM;
        }
        if flags & !(known as u32) != 0 {
            return Err(EINVAL);
        }
        let has = |flag| flags & flag as u32 != 0;
        Ok(Self {
            fence: has(bindings::ib_send_flags_IB_SEND_FENCE),
            signaled: signal_all || has(bindings::ib_send_flags_IB_SEND_SIGNALED),
            solicited: has(bindings::ib_send_flags_IB_SEND_SOLICITED),
            inline: has(bindings::ib_send_flags_IB_SEND_INLINE),
            checksum: has(bindings::ib_send_flags_IB_SEND_IP_CSUM),
        })
    }
}

/// Operation that a request of a connection asks for.
pub(super) enum Parsed {
    Message(Work),
    Register(FastReg),
    Invalidate(u32),
}

/// An atomic operation on the memory that a request names.
fn work_on(request: &bindings::ib_atomic_wr, op: AtomicOp) -> Work {
    let (address, key) = (request.remote_addr, request.rkey);
    Work::Atomic { address, key, op }
}

/// Reads a request to register memory.
///
/// # Safety
///
/// It has to name a region of the device's, which does not change before this returns.
unsafe fn registration(request: &bindings::ib_reg_wr) -> FastReg {
    // SAFETY: By the safety requirement.
    let (iova, len) = unsafe { ((*request.mr).iova, (*request.mr).length) };
    FastReg {
        key: request.key,
        access: request.access as u32,
        iova,
        len,
    }
}

/// Reads the operation of a request of a connection, and its name in a completion.
///
/// # Errors
///
/// `EINVAL` for an operation that is not known.
///
/// # Safety
///
/// `wr` has to be a request for a connection.
pub(super) unsafe fn parse(
    wr: *const bindings::ib_send_wr,
) -> Result<(bindings::ib_wc_opcode, Parsed)> {
    // SAFETY: By the safety requirement.
    let raw = unsafe { &*wr };
    // SAFETY: Both fields of the union are integers, and as large.
    let (immediate, invalid) = unsafe {
        let ex = raw.ex;
        (u32::from_be(ex.imm_data), ex.invalidate_rkey)
    };
    let message = |opcode, work| Ok((opcode, Parsed::Message(work)));
    let send = |tail| message(bindings::ib_wc_opcode_IB_WC_SEND, Work::Send(tail));
    let remote = || {
        // SAFETY: The opcodes for which this is called say that the request is the first field of this.
        let rdma = unsafe { &*wr.cast::<bindings::ib_rdma_wr>() };
        (rdma.remote_addr, rdma.rkey)
    };
    let write = |tail| {
        let (address, key) = remote();
        let work = Work::Write { address, key, tail };
        message(bindings::ib_wc_opcode_IB_WC_RDMA_WRITE, work)
    };
    // SAFETY: The opcodes for which this is called say that the request is the first field of this.
    let atomic = || unsafe { &*wr.cast::<bindings::ib_atomic_wr>() };
    match raw.opcode {
        bindings::ib_wr_opcode_IB_WR_SEND => send(Tail::Plain),
        bindings::ib_wr_opcode_IB_WR_SEND_WITH_IMM => send(Tail::Immediate(immediate)),
        bindings::ib_wr_opcode_IB_WR_SEND_WITH_INV => send(Tail::Invalidate(invalid)),
        bindings::ib_wr_opcode_IB_WR_RDMA_WRITE => write(Tail::Plain),
        bindings::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM => write(Tail::Immediate(immediate)),
        bindings::ib_wr_opcode_IB_WR_RDMA_READ => {
            let (address, key) = remote();
            let work = Work::Read { address, key };
            message(bindings::ib_wc_opcode_IB_WC_RDMA_READ, work)
        }
        bindings::ib_wr_opcode_IB_WR_ATOMIC_CMP_AND_SWP => {
            let atomic = atomic();
            let (compare, swap) = (atomic.compare_add, atomic.swap);
            let work = work_on(atomic, AtomicOp::CompareSwap { compare, swap });
            message(bindings::ib_wc_opcode_IB_WC_COMP_SWAP, work)
        }
        bindings::ib_wr_opcode_IB_WR_ATOMIC_FETCH_AND_ADD => {
            let work = work_on(atomic(), AtomicOp::FetchAdd(atomic().compare_add));
            message(bindings::ib_wc_opcode_IB_WC_FETCH_ADD, work)
        }
        bindings::ib_wr_opcode_IB_WR_REG_MR => {
            // SAFETY: The opcode says that the request is the first field of this. The ULP leaves the region as it is
            // until the request is posted.
            let request = unsafe { registration(&*wr.cast::<bindings::ib_reg_wr>()) };
            let opcode = bindings::ib_wc_opcode_IB_WC_REG_MR;
            Ok((opcode, Parsed::Register(request)))
        }
        bindings::ib_wr_opcode_IB_WR_LOCAL_INV => {
            let opcode = bindings::ib_wc_opcode_IB_WC_LOCAL_INV;
            Ok((opcode, Parsed::Invalidate(invalid)))
        }
        _ => Err(EINVAL),
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[kunit_tests(rdma_provider_parse)]
mod tests {
    use super::*;

    /// NFS changes the address of a region between its mapping and its registration.
    #[test]
    fn a_region_begins_where_it_does_when_it_is_registered() -> Result {
        let mut region: bindings::ib_mr = pin_init::zeroed();
        (region.iova, region.length) = (0x1234_5678_0000_0010, 5000);
        let mut request: bindings::ib_reg_wr = pin_init::zeroed();
        request.wr.opcode = bindings::ib_wr_opcode_IB_WR_REG_MR;
        (request.mr, request.key, request.access) = (&mut region, 0x205, 3);
        // SAFETY: It is such a request.
        let (opcode, parsed) = unsafe { parse(&request.wr)? };
        assert_eq!(opcode, bindings::ib_wc_opcode_IB_WC_REG_MR);
        let expected = FastReg {
            key: 0x205,
            access: 3,
            iova: 0x1234_5678_0000_0010,
            len: 5000,
        };
        assert!(matches!(parsed, Parsed::Register(request) if request == expected));
        Ok(())
    }
}
