// SPDX-License-Identifier: GPL-2.0

//! Registration of a device with RDMA core.

use core::ptr::{self, NonNull};

use ib_fabric::{Limit, LinkLayer};
use ipoib_sys::bindings;
use ipoib_sys::text::TextRef;
use kernel::device;
use kernel::error::to_result;
use kernel::ffi::c_int;
use kernel::prelude::*;
use kernel::str::CString;
use kernel::sync::Arc;

use crate::adapter::Adapter;
use crate::netdev::Netdevs;
use crate::readers::wait_for_readers;
use crate::verbs::{Holder, Operations};

/// A registered device; dropping this unregisters it.
///
/// # Invariants
///
/// `device` is a registered `ib_device`, the first field of a [`Holder`] whose adapter is this one.
pub struct Registration<A: Adapter> {
    device: NonNull<bindings::ib_device>,
    /// Those of Ethernet ports.
    netdevs: Option<Netdevs<A>>,
    adapter: Arc<A>,
    _text: TextRef,
}

// SAFETY: A device may be unregistered by any thread.
unsafe impl<A: Adapter> Send for Registration<A> {}
// SAFETY: A shared reference gives access to the adapter only, which is `Sync`.
unsafe impl<A: Adapter> Sync for Registration<A> {}

impl<A: Adapter> Registration<A> {
    /// Makes a device that is complete but for its network devices. The caller has to free it, if it does not register
    /// it.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    fn allocate(
        adapter: &Arc<A>,
        parent: &device::Device<device::Bound>,
        module: &'static ThisModule,
    ) -> Result<NonNull<bindings::ib_device>> {
        // SAFETY: The size is that of a type whose first field is the device.
        let raw = unsafe { bindings::rdma_provider_alloc(core::mem::size_of::<Holder<A>>()) };
        let device = NonNull::new(raw).ok_or(ENOMEM)?;
        // SAFETY: The memory is that of a `Holder`, whose other fields nobody has read. It is cleared, so that nothing is
        // counted.
        unsafe {
            (*raw.cast::<Holder<A>>()).faults = Arc::as_ptr(adapter.faults());
            (*raw.cast::<Holder<A>>()).adapter = Arc::as_ptr(adapter);
        }
        let limits = adapter.capabilities().limits;
        let operations = Operations::<A>::table(module, adapter.link_layer(), &limits);
        // `device::Device` is a transparent wrapper of the C type.
        let parent_raw = ptr::from_ref(parent).cast_mut().cast();
        // SAFETY: The device was just allocated; the table is copied.
        unsafe {
            bindings::ib_set_device_ops(raw, &raw const operations);
            bindings::rdma_provider_place(raw, parent_raw);
            (*raw).node_type = bindings::RDMA_NODE_IB_CA as u8;
            (*raw).phys_port_cnt = adapter.ports().into();
            (*raw).num_comp_vectors = limits.get(Limit::Vectors) as c_int;
            (*raw).local_dma_lkey = crate::memory::LOCAL_DMA_LKEY;
            (*raw).node_guid = adapter.capabilities().node_guid.to_be();
            (*raw).node_desc = adapter.description();
        }
        Ok(device)
    }

    /// Registers a device whose operations are the adapter's.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, and what RDMA core or its clients say; for Ethernet ports, `ENODEV`, `EINVAL` or `EBUSY` if there is no
    /// such network device, it is not Ethernet, or another RDMA device has it.
    ///
    /// # Context
    ///
    /// Process context; may sleep. The adapter's methods are called meanwhile.
    pub fn new(
        adapter: Arc<A>,
        parent: &device::Device<device::Bound>,
        module: &'static ThisModule,
    ) -> Result<Self> {
        let device = Self::allocate(&adapter, parent, module)?;
        let raw = device.as_ptr();
        let netdevs = match adapter.link_layer() {
            LinkLayer::InfiniBand => Ok(None),
            // SAFETY: They are dropped before the device is freed.
            LinkLayer::Ethernet => unsafe { Netdevs::new(raw, &adapter) }.map(Some),
        };
        let netdevs = netdevs.inspect_err(|_| {
            // SAFETY: It is not registered, and nobody else has it.
            unsafe { bindings::ib_dealloc_device(raw) }
        })?;
        // SAFETY: The device is complete. Without a DMA device, addresses are virtual ones.
        let registered = to_result(unsafe {
            bindings::ib_register_device(raw, A::NAME.as_char_ptr(), ptr::null_mut())
        });
        if let Err(e) = registered {
            // It may have failed after the handle was opened: events are told of later, by a work queue.
            adapter.handle().close();
            adapter.abandon();
            drop(netdevs);
            wait_for_readers();
            // SAFETY: It is not registered, and nobody else has it, nor will.
            unsafe {
                bindings::rdma_provider_flush_events();
                bindings::ib_dealloc_device(raw);
            }
            return Err(e);
        }
        // INVARIANT: It is registered.
        Ok(Self {
            device,
            netdevs,
            adapter,
            _text: TextRef::new(),
        })
    }

    /// Name of the device, which an administrator can change at any time.
    pub fn name(&self) -> Result<CString> {
        // SAFETY: By the type invariant. The array is as long as the device lives, and each byte of it may change
        // while it is copied; the last one is 0.
        let name = unsafe { (&raw const (*self.device.as_ptr()).name).read_volatile() };
        let name = CStr::from_bytes_until_nul(&name).map_err(|_| EINVAL)?;
        Ok(CString::try_from(name)?)
    }

    /// The adapter.
    pub fn adapter(&self) -> &Arc<A> {
        &self.adapter
    }
}

impl<A: Adapter> Drop for Registration<A> {
    fn drop(&mut self) {
        let raw = self.device.as_ptr();
        self.adapter.handle().close();
        // SAFETY: By the type invariant; this is the only owner. When it returns, no client uses it.
        unsafe { bindings::ib_unregister_device(raw) };
        self.netdevs = None;
        self.adapter.abandon();
        wait_for_readers();
        // SAFETY: It is not registered any more, and objects that RDMA core has kept do not use it.
        unsafe { bindings::ib_dealloc_device(raw) };
    }
}
