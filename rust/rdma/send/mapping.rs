// SPDX-License-Identifier: GPL-2.0

//! DMA mapping of the frames of a send ring.

use core::cell::UnsafeCell;

use ipoib_netdev::skb::TxSkb;
use ipoib_sys::bindings;
use kernel::ffi::{c_int, c_uint};
use kernel::prelude::*;

use crate::device::Device;

/// The addresses of a ring's frames, by slot; none are kept for devices that need no mapping.
///
/// # Invariants
///
/// * Unless `virt_dma`, `cells` has `max_sge` elements for each slot, which for a full slot are the
///   addresses at which its frame is mapped. They belong to whom the slot belongs.
/// * `device` is registered while this exists.
pub(crate) struct Mapping {
    cells: KVec<UnsafeCell<u64>>,
    max_sge: usize,
    device: *mut bindings::ib_device,
    virt_dma: bool,
    _device: Device,
}

impl Mapping {
    /// For `slots` frames of up to `max_sge` parts each.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(device: &Device, slots: u32, max_sge: u32) -> Result<Self> {
        let virt_dma = device.virt_dma();
        let mut cells = KVec::new();
        if !virt_dma {
            let len = slots as usize * max_sge as usize;
            cells.reserve(len, GFP_KERNEL)?;
            for _ in 0..len {
                cells.push(UnsafeCell::new(0), GFP_KERNEL)?;
            }
        }
        // INVARIANT: As was just made; the device is held.
        Ok(Self {
            cells,
            max_sge: max_sge as usize,
            device: device.as_raw(),
            virt_dma,
            _device: device.clone(),
        })
    }

    /// Maps a frame for slot `index`, fills the elements from `sges` on with its parts, and says how
    /// many there are. The parts of one that has too many are joined.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if its parts cannot be joined, `EIO` if it cannot be mapped.
    ///
    /// # Safety
    ///
    /// There must be `max_sge` elements to which nobody has a reference, and the slot must belong to
    /// the caller.
    #[inline(always)]
    pub(crate) unsafe fn map(
        &self,
        skb: &mut TxSkb,
        sges: *mut bindings::ib_sge,
        index: usize,
    ) -> Result<c_int> {
        // SAFETY: By this function's requirements and the type invariant.
        let n = unsafe {
            bindings::ipoib_rs_ib_map_skb(self.device, skb.as_raw(), sges, self.max_sge as c_uint)
        };
        if n < 0 {
            // SAFETY: By this function's requirements.
            return unsafe { self.map_linear(skb, sges, index, Error::from_errno(n)) };
        }
        if !self.virt_dma {
            // SAFETY: The slot is the caller's, and that many elements were filled.
            unsafe { self.keep(index, sges, n as usize) };
        }
        Ok(n)
    }

    /// Joins the parts of a frame that has too many, and tries again.
    ///
    /// # Safety
    ///
    /// As for [`Self::map`].
    #[cold]
    unsafe fn map_linear(
        &self,
        skb: &mut TxSkb,
        sges: *mut bindings::ib_sge,
        index: usize,
        err: Error,
    ) -> Result<c_int> {
        if err != EMSGSIZE {
            return Err(EIO);
        }
        skb.linearize()?;
        // Now it has one part, and there is an element for that.
        //
        // SAFETY: By this function's requirements.
        unsafe { self.map(skb, sges, index) }
    }

    /// # Safety
    ///
    /// The slot must belong to the caller, and there must be that many elements from `sges` on.
    #[inline(never)]
    unsafe fn keep(&self, index: usize, sges: *const bindings::ib_sge, count: usize) {
        let first = index * self.max_sge;
        for (i, cell) in self.cells[first..].iter().take(count).enumerate() {
            // SAFETY: It belongs to whom the slot belongs; there are that many elements.
            unsafe { *cell.get() = (*sges.add(i)).addr };
        }
    }

    /// Undoes the mapping of the frame that was in slot `index`.
    ///
    /// # Safety
    ///
    /// The slot must belong to the caller, and `skb` must be the frame that was mapped for it.
    #[inline]
    pub(crate) unsafe fn unmap(&self, index: usize, skb: &TxSkb) {
        if self.virt_dma {
            return;
        }
        let addrs = self.cells[index * self.max_sge..].as_ptr();
        // SAFETY: The device is registered, and the addresses are those that the frame was mapped
        // to. An `UnsafeCell` has the layout of what it holds.
        unsafe {
            bindings::ipoib_rs_ib_unmap_skb(self.device, skb.as_raw(), addrs.cast());
        }
    }
}
