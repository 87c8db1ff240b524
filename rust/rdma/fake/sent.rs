// SPDX-License-Identifier: GPL-2.0

//! Sends of the RDMA device for tests.

use core::ptr;

use ipoib_sys::bindings;
use kernel::ffi::c_int;

/// The most elements of a request.
pub(super) const MAX_SGE: usize = 4;

/// A send that was posted.
#[derive(Clone, Copy)]
pub(crate) struct Sent {
    pub(super) qp: *mut bindings::ib_qp,
    pub(super) id: u64,
    pub(super) signalled: bool,
    /// The address handle of a datagram.
    ah: *const bindings::ib_ah,
    sges: [bindings::ib_sge; MAX_SGE],
    num_sge: usize,
}

impl Sent {
    /// A send with another identifier, which nobody has posted.
    pub(crate) fn with_id(self, id: u64) -> Self {
        Self { id, ..self }
    }

    /// Copies a request.
    ///
    /// # Safety
    ///
    /// The request must be one of the queue pair's kind.
    pub(super) unsafe fn of(qp: *mut bindings::ib_qp, wr: *const bindings::ib_send_wr) -> Self {
        let mut sges = [bindings::ib_sge::default(); MAX_SGE];
        // SAFETY: By this function's requirements; every view of the union is plain bytes.
        unsafe {
            let num_sge = (*wr).num_sge as usize;
            for (i, sge) in sges.iter_mut().take(num_sge).enumerate() {
                *sge = *(*wr).sg_list.add(i);
            }
            let is_datagram = (*qp).qp_type == bindings::ib_qp_type_IB_QPT_UD;
            let signalled = bindings::ib_send_flags_IB_SEND_SIGNALED as c_int;
            Self {
                qp,
                id: (*wr).__bindgen_anon_1.wr_id,
                signalled: (*wr).send_flags & signalled != 0,
                ah: if is_datagram {
                    (*wr.cast::<bindings::ib_ud_wr>()).ah
                } else {
                    ptr::null()
                },
                sges,
                num_sge,
            }
        }
    }

    /// Returns true if its address handle is among those that there are.
    pub(super) fn is_addressed(&self, handles: &[*const bindings::ib_ah]) -> bool {
        handles.contains(&self.ah)
    }

    /// Its elements.
    pub(crate) fn elements(&self) -> &[bindings::ib_sge] {
        &self.sges[..self.num_sge]
    }
}
