// SPDX-License-Identifier: GPL-2.0

//! How the buffers of a receive ring are mapped for DMA.

use ipoib_netdev::parts::{Exchange, Parts, HEAD_LEN, MAX_PARTS};
use ipoib_sys::bindings;
use kernel::sync::Arc;

use crate::pd::Pd;

/// How buffers are mapped for DMA.
pub(super) struct Mapping {
    /// Not at all: the device uses the CPU's addresses.
    pub(super) virt_dma: bool,
    /// Bytes that each part takes.
    pub(super) lens: [usize; MAX_PARTS],
    pub(super) pd: Arc<Pd>,
}

impl Mapping {
    /// Maps the first `n` parts of a buffer, or none.
    #[inline]
    pub(super) fn map(&self, parts: &Parts, n: usize) -> Option<[u64; MAX_PARTS]> {
        if self.virt_dma {
            Self::map_virt(parts, n)
        } else {
            self.map_dma(parts, n)
        }
    }

    /// Returns the CPU's addresses of the first `n` parts, for a device that uses those.
    #[inline(always)]
    fn map_virt(parts: &Parts, n: usize) -> Option<[u64; MAX_PARTS]> {
        let mut addrs = [0; MAX_PARTS];
        for (i, addr) in addrs.iter_mut().enumerate().take(n) {
            *addr = parts.part(i)?.as_ptr() as u64;
        }
        Some(addrs)
    }

    #[inline(never)]
    fn map_dma(&self, parts: &Parts, n: usize) -> Option<[u64; MAX_PARTS]> {
        let mut addrs = [0; MAX_PARTS];
        for i in 0..n {
            let mut failed = true;
            if let Some(va) = parts.part(i) {
                // SAFETY: The device is registered, and the part takes that much.
                addrs[i] = unsafe {
                    bindings::ipoib_rs_ib_map_rx(
                        self.pd.device().as_raw(),
                        va.as_ptr().cast(),
                        self.lens[i],
                        &raw mut failed,
                    )
                };
            }
            if failed {
                // SAFETY: So many were mapped just now, and nobody knows of them.
                unsafe { self.unmap(addrs, i, false) };
                return None;
            }
        }
        Some(addrs)
    }

    /// Unmaps `n` parts; if the CPU was lent the head, what is there stays as it was seen.
    ///
    /// # Safety
    ///
    /// `map` must have mapped the parts there. The device must not have them, and they must not be
    /// unmapped again.
    #[inline]
    pub(super) unsafe fn unmap(&self, addrs: [u64; MAX_PARTS], n: usize, lent: bool) {
        if self.virt_dma {
            return;
        }
        let device = self.pd.device().as_raw();
        for (i, (addr, len)) in addrs.into_iter().zip(self.lens).take(n).enumerate() {
            // SAFETY: The device is registered; the rest by this function's requirements.
            unsafe { bindings::ipoib_rs_ib_unmap_rx(device, addr, len, lent && i == 0) };
        }
    }

    /// Lends the CPU the head of a message of `len` bytes, which the device has no more; says where that
    /// is mapped, if it is.
    #[inline]
    pub(super) fn lend(&self, sge: &[bindings::ib_sge; MAX_PARTS], len: usize) -> Option<u64> {
        if self.virt_dma {
            return None;
        }
        self.sync(sge, 0, len.min(HEAD_LEN), true);
        Some(sge[0].addr)
    }

    /// Lends the CPU the first `len` bytes of a part that the device has no more, and gives them back.
    #[inline]
    pub(super) fn sync(&self, sge: &[bindings::ib_sge], part: usize, len: usize, for_cpu: bool) {
        match sge.get(part) {
            Some(sge) if !self.virt_dma && len <= sge.length as usize => {
                let raw = self.pd.device().as_raw();
                // SAFETY: The device is registered, and the part is mapped there for that much.
                unsafe { bindings::ipoib_rs_ib_sync_rx(raw, sge.addr, len, for_cpu) };
            }
            _ => {}
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
    fn is_direct(&self) -> bool {
        self.mapping.virt_dma
    }

    #[inline(always)]
    fn follow(&mut self, parts: &Parts) {
        for (sge, at) in self.sge.iter_mut().zip(parts.all()) {
            sge.addr = at as u64;
        }
    }

    fn take(&mut self, new: &Parts, n: usize) -> bool {
        if !self.mapping.virt_dma {
            return self.take_mapped(new, n);
        }
        match Mapping::map_virt(new, n) {
            Some(addrs) => {
                self.set(addrs, n);
                true
            }
            None => false,
        }
    }

    fn read(&mut self, part: usize, len: usize) {
        self.mapping.sync(self.sge, part, len, true);
    }

    fn leave(&mut self, part: usize, len: usize) {
        self.mapping.sync(self.sge, part, len, false);
    }
}

impl Elements<'_> {
    fn set(&mut self, addrs: [u64; MAX_PARTS], n: usize) {
        for (sge, addr) in self.sge.iter_mut().zip(addrs).take(n) {
            sge.addr = addr;
        }
    }

    /// `take` for a device that maps; kept apart, so that what needs no mapping saves no registers for this.
    #[inline(never)]
    fn take_mapped(&mut self, new: &Parts, n: usize) -> bool {
        let Some(addrs) = self.mapping.map_dma(new, n) else {
            return false;
        };
        // SAFETY: The slot's parts are mapped by the type invariant of `Memory`, and not the device's any
        // more. The elements refer to the new ones from now on.
        unsafe { self.mapping.unmap(self.sge.map(|sge| sge.addr), n, true) };
        self.set(addrs, n);
        true
    }
}
