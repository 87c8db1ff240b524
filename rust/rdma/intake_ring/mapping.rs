// SPDX-License-Identifier: GPL-2.0

//! DMA addresses of the buffers of a receive ring, which their pool maps, and who owns them.

use ipoib_netdev::parts::{Exchange, Parts, HEAD_LEN, MAX_PARTS};
use ipoib_sys::bindings;
use kernel::sync::Arc;

use crate::pd::Pd;

/// The device that the buffers are mapped for.
pub(super) struct Mapping {
    /// Not at all: the device uses the CPU's addresses.
    pub(super) virt_dma: bool,
    pub(super) pd: Arc<Pd>,
}

impl Mapping {
    /// Returns where the device finds the parts of a buffer.
    #[inline(always)]
    pub(super) fn addresses(&self, parts: &Parts) -> [u64; MAX_PARTS] {
        if self.virt_dma {
            parts.all().map(|va| va as u64)
        } else {
            parts.dma()
        }
    }

    /// Lends the CPU the head of a message of `len` bytes, which the device has no more. Returns its address
    /// if the device may notice.
    #[inline]
    pub(super) fn lend(&self, sge: &[bindings::ib_sge; MAX_PARTS], len: usize) -> Option<u64> {
        if self.virt_dma {
            return None;
        }
        self.sync(&sge[0], len.min(HEAD_LEN), true);
        Some(sge[0].addr)
    }

    /// Lends the CPU the first `len` bytes of a part that the device has no more, or gives them back.
    #[inline(never)]
    pub(super) fn sync(&self, sge: &bindings::ib_sge, len: usize, for_cpu: bool) {
        if !self.virt_dma && 0 < len && len <= sge.length as usize {
            let raw = self.pd.device().as_raw();
            // SAFETY: The device is registered, and the part is mapped there for that much.
            unsafe { bindings::ipoib_rs_ib_sync_rx(raw, sge.addr, len, for_cpu) };
        }
    }
}

/// The elements of a slot, whose buffer's parts are exchanged.
pub(super) struct Elements<'a> {
    pub(super) sge: &'a mut [bindings::ib_sge; MAX_PARTS],
    pub(super) mapping: &'a Mapping,
}

impl Exchange for Elements<'_> {
    #[inline(always)]
    fn lend(&mut self, len: usize) {
        if !self.mapping.virt_dma {
            self.mapping.lend_bodies(self.sge, len);
        }
    }

    #[inline(always)]
    fn follow(&mut self, parts: &Parts, len: usize) {
        if !self.mapping.virt_dma {
            return self.mapping.follow_mapped(self.sge, parts, len);
        }
        let [head, bodies @ ..] = parts.all();
        let [first, others @ ..] = &mut *self.sge;
        first.addr = head as u64;
        if len > HEAD_LEN {
            for (sge, at) in others.iter_mut().zip(bodies) {
                sge.addr = at as u64;
            }
        }
    }
}

// Kept apart, so that what needs no mapping saves no registers for this.
impl Mapping {
    #[inline(never)]
    fn lend_bodies(&self, sge: &[bindings::ib_sge; MAX_PARTS], len: usize) {
        let mut rest = len.saturating_sub(HEAD_LEN);
        for sge in &sge[1..] {
            let n = rest.min(sge.length as usize);
            self.sync(sge, n, true);
            rest -= n;
        }
    }

    #[inline(never)]
    fn follow_mapped(&self, sge: &mut [bindings::ib_sge; MAX_PARTS], parts: &Parts, len: usize) {
        let mut rest = len.saturating_sub(HEAD_LEN);
        for (i, (sge, addr)) in sge.iter_mut().zip(parts.dma()).enumerate() {
            let n = if i == 0 {
                0
            } else {
                rest.min(sge.length as usize)
            };
            rest -= n;
            // New memory is not where the old was, which was given away later.
            if sge.addr == addr {
                self.sync(sge, n, false);
            }
            sge.addr = addr;
        }
    }
}
