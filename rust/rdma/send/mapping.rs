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
    cells: KVVec<UnsafeCell<u64>>,
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
        let mut cells = KVVec::new();
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

    /// Maps a frame for slot `index()`, fills the elements from `sges` on with its parts, and says how many there are. The
    /// index is only computed if addresses are kept. The parts of a frame that has too many are joined.
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
        index: impl FnOnce() -> usize,
    ) -> Result<c_int> {
        // A frame in one part on a device without DMA: no call is needed.
        if self.virt_dma && skb.is_linear() && skb.len() > 0 {
            // SAFETY: There is an element, to which nobody has a reference.
            unsafe {
                (*sges).addr = skb.front() as u64;
                (*sges).length = skb.len() as u32;
            }
            return Ok(1);
        }
        // SAFETY: By this function's requirements and the type invariant.
        let n = unsafe {
            bindings::ipoib_rs_ib_map_skb(self.device, skb.as_raw(), sges, self.max_sge as c_uint)
        };
        if n < 0 {
            // SAFETY: By this function's requirements.
            return unsafe { self.map_linear(skb, sges, index(), Error::from_errno(n)) };
        }
        if !self.virt_dma {
            // SAFETY: The slot is the caller's, and that many elements were filled.
            unsafe { self.keep(index(), sges, n as usize) };
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
        unsafe { self.map(skb, sges, || index) }
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

#[cfg(CONFIG_KUNIT = "y")]
#[kunit_tests(rust_rdma_mapping)]
mod tests {
    use super::*;
    use crate::dummy::Dummy;
    use crate::fake::frames::{frame, parts, HEAD, REST};
    use kernel::page::PAGE_SIZE;

    /// Maps a frame for the last of two slots, compares what is told the device with where its parts are, and undoes
    /// it. Returns the lengths of the parts.
    fn map(mapping: &Mapping, skb: &mut TxSkb) -> Result<KVec<u32>> {
        let mut sges = [bindings::ib_sge::default(); 4];
        // SAFETY: There are as many elements, and nobody else uses the mapping.
        let n = unsafe { mapping.map(skb, sges.as_mut_ptr(), || 1)? } as usize;
        let at = parts(skb)?;
        assert_eq!(at.len(), n);
        let mut lens = KVec::new();
        for (i, sge) in sges.iter().enumerate() {
            if i < n {
                // All of the memory is mapped at one distance.
                assert_eq!(
                    sge.addr.wrapping_sub(at[i]),
                    sges[0].addr.wrapping_sub(at[0])
                );
                // SAFETY: As above.
                let kept = unsafe { *mapping.cells[mapping.max_sge + i].get() };
                assert_eq!(kept, sge.addr);
                lens.push(sge.length, GFP_KERNEL)?;
            } else {
                assert_eq!((sge.addr, sge.length), (0, 0));
            }
        }
        // SAFETY: The frame was just mapped for that slot.
        unsafe { mapping.unmap(1, skb) };
        Ok(lens)
    }

    /// Each part of a frame is an element, and its address is kept until it is unmapped.
    #[test]
    fn parts_are_mapped_one_by_one() -> Result {
        let dummy = Dummy::new()?;
        let mapping = Mapping::new(dummy.device(), 2, 3)?;
        let page = PAGE_SIZE as u32;
        let rest = REST as u32 - page;
        let lens = map(&mapping, &mut frame(HEAD)?)?;
        assert_eq!(&lens[..], &[HEAD as u32, page, rest]);
        // Without a head, the fragments are all.
        let lens = map(&mapping, &mut frame(0)?)?;
        assert_eq!(&lens[..], &[page, rest]);
        Ok(())
    }

    /// A frame of more parts than a request has elements is mapped as one.
    #[test]
    fn too_many_parts_are_joined() -> Result {
        let dummy = Dummy::new()?;
        for max_sge in [1, 2] {
            let mapping = Mapping::new(dummy.device(), 2, max_sge)?;
            let mut skb = frame(HEAD)?;
            let lens = map(&mapping, &mut skb)?;
            assert_eq!(&lens[..], &[(HEAD + REST) as u32]);
            assert_eq!(skb.nr_frags(), 0);
        }
        Ok(())
    }

    /// Where a DMA address is a kernel address, nothing is kept.
    #[test]
    fn kernel_addresses_need_no_room() -> Result {
        let dummy = Dummy::new()?;
        // SAFETY: The device is ours.
        unsafe { (*dummy.device().as_raw()).dma_device = core::ptr::null_mut() };
        let mapping = Mapping::new(dummy.device(), 2, 3)?;
        let mut sges = [bindings::ib_sge::default(); 3];
        let mut skb = frame(HEAD)?;
        // SAFETY: There are as many elements, and nobody else uses the mapping.
        let n = unsafe { mapping.map(&mut skb, sges.as_mut_ptr(), || 1)? };
        assert_eq!((n, sges[0].addr), (3, skb.front() as u64));
        assert!(mapping.cells.is_empty());
        // SAFETY: The frame was just mapped for that slot.
        unsafe { mapping.unmap(1, &skb) };
        Ok(())
    }
}
