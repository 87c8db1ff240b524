// SPDX-License-Identifier: GPL-2.0

//! An RDMA device for tests, which can do nothing.

use core::mem::MaybeUninit;

use ipoib_netdev::mapper::Mapper;
use ipoib_sys::bindings;
use kernel::alloc::flags::__GFP_ZERO;
use kernel::prelude::*;

use crate::device::{Device, Ending};

/// An RDMA device that maps memory.
pub(crate) struct Dummy {
    /// In front of what it refers to.
    device: Device,
    _ending: Ending,
    _raw: KBox<MaybeUninit<bindings::ib_device>>,
    _mapper: Mapper,
}

impl Dummy {
    /// Makes one.
    pub(crate) fn new() -> Result<Self> {
        let mapper = Mapper::new()?;
        let mut memory = KBox::<bindings::ib_device>::new_uninit(GFP_KERNEL | __GFP_ZERO)?;
        let raw = memory.as_mut_ptr();
        let ending = Ending::new(c"kunit")?;
        // SAFETY: It is ours and zeroed, as which it is plain data. It has a reference of its own, so that giving back
        // the last other one tells nobody.
        let device = unsafe {
            (*raw).dma_device = mapper.as_raw();
            (*raw).refcount.refs.counter = 1;
            Device::try_get(raw, &ending)?
        };
        Ok(Self {
            device,
            _ending: ending,
            _raw: memory,
            _mapper: mapper,
        })
    }

    /// The device.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }
}
