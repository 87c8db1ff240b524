// SPDX-License-Identifier: GPL-2.0

//! An RDMA device for tests, which has queues, maps memory, and sends and receives when a test says so.
//!
//! RDMA core does not know of it: it was allocated, but is not registered.

use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};

use ipoib_netdev::mapper::Mapper;
use ipoib_sys::bindings;
use kernel::alloc::flags::__GFP_ZERO;
use kernel::ffi::c_void;
use kernel::new_spinlock;
use kernel::prelude::*;
use kernel::sync::SpinLock;

use crate::cq::Cq;
use crate::device::{Device, Ending};
use crate::gid::GidRef;

pub(crate) mod frames;
mod operations;
mod sent;

use operations::{fill_attributes, fill_operations, map_part, note_sync, unmap_part, State, ROOM};
pub(crate) use operations::{Part, Posted, Synced};
pub(crate) use sent::Sent;

/// The data of its port, by the number of that.
type Ports = [bindings::ib_port_data; 2];

/// The C side.
///
/// # Invariants
///
/// `raw` is an allocated device, whose driver's data are `state`'s value, and whose ports' are `_ports`'.
struct Allocated {
    raw: NonNull<bindings::ib_device>,
    state: Pin<KBox<SpinLock<State>>>,
    _ports: KBox<MaybeUninit<Ports>>,
}

/// An RDMA device. All that is made of it goes first.
pub(crate) struct Fake {
    /// In front of what it refers to.
    device: Device,
    _ending: Ending,
    allocated: Allocated,
    mapper: Mapper,
}

impl Fake {
    /// Makes one, and has it told of what is synced and mapped until the test ends.
    pub(crate) fn new() -> Result<Self> {
        let mapper = Mapper::new()?;
        let state = State {
            posted: KVec::with_capacity(ROOM, GFP_KERNEL)?,
            done: KVec::with_capacity(ROOM, GFP_KERNEL)?,
            syncs: KVec::with_capacity(ROOM, GFP_KERNEL)?,
            sends: KVec::with_capacity(ROOM, GFP_KERNEL)?,
            takes: u32::MAX,
            mapped: KVec::with_capacity(ROOM, GFP_KERNEL)?,
            unmappable: 0,
            strays: 0,
            handles: KVec::with_capacity(ROOM, GFP_KERNEL)?,
            silent: false,
            rigid: false,
            changes: 0,
            made: 0,
            flood: 0,
            refuses: false,
        };
        let state = KBox::pin_init(new_spinlock!(state), GFP_KERNEL)?;
        let mut ports = KBox::<Ports>::new_uninit(GFP_KERNEL | __GFP_ZERO)?;
        // SAFETY: The size is that of the structure, and the namespace is there for good.
        let raw = unsafe {
            bindings::_ib_alloc_device(
                size_of::<bindings::ib_device>(),
                &raw mut bindings::init_net,
            )
        };
        let raw = NonNull::new(raw).ok_or(ENOMEM)?;
        let dev = raw.as_ptr();
        // SAFETY: It is nobody else's. It has a reference of its own, so that giving back the last other one tells
        // nobody. Ports are zeroed, as which they speak nothing.
        unsafe {
            (*dev).__bindgen_anon_1.dev.driver_data =
                ptr::from_ref(&*state).cast_mut().cast::<c_void>();
            (*dev).port_data = ports.as_mut_ptr().cast();
            (*dev).phys_port_cnt = 1;
            (*dev).dma_device = mapper.as_raw();
            (*dev).refcount.refs.counter = 1;
            fill_attributes(&mut (*dev).attrs);
            fill_operations(&mut (*dev).ops);
            bindings::ipoib_rs_stub_sync_rx(Some(note_sync));
            bindings::ipoib_rs_stub_parts(Some(map_part), Some(unmap_part));
        }
        // INVARIANT: As was just written.
        let allocated = Allocated {
            raw,
            state,
            _ports: ports,
        };
        let ending = Ending::new(c"kunit")?;
        // SAFETY: It is allocated.
        let device = unsafe { Device::try_get(dev, &ending)? };
        Ok(Self {
            device,
            _ending: ending,
            allocated,
            mapper,
        })
    }

    /// The device.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Takes the receive that was posted first, for a message.
    pub(crate) fn begin(&self) -> Result<Posted> {
        let mut state = self.allocated.state.lock();
        state.posted.remove(0).map_err(|_| ENOBUFS)
    }

    /// The number of receives that it has.
    pub(crate) fn posted(&self) -> usize {
        self.allocated.state.lock().posted.len()
    }

    /// Writes a message to where the elements of a receive say.
    pub(crate) fn write(&self, posted: &Posted, mut bytes: &[u8]) -> Result {
        for sge in &posted.sges {
            let len = bytes.len().min(sge.length as usize);
            let (here, rest) = bytes.split_at(len);
            bytes = rest;
            if len > 0 {
                let at = self.mapper.find(sge.addr).ok_or(EFAULT)?;
                // SAFETY: Whoever has posted it has that much there, and does not use it meanwhile.
                unsafe { at.as_ptr().copy_from_nonoverlapping(here.as_ptr(), len) };
            }
        }
        bytes.is_empty().then_some(()).ok_or(EMSGSIZE)
    }

    /// Completes a receive with `len` bytes; `change` says how it was otherwise.
    pub(crate) fn complete(
        &self,
        cq: &Cq,
        posted: &Posted,
        len: usize,
        change: impl FnOnce(&mut bindings::ib_wc),
    ) -> Result {
        let mut wc = bindings::ib_wc {
            status: bindings::ib_wc_status_IB_WC_SUCCESS,
            opcode: bindings::ib_wc_opcode_IB_WC_RECV,
            byte_len: len as u32,
            ..Default::default()
        };
        wc.__bindgen_anon_1.wr_id = posted.id;
        change(&mut wc);
        let mut state = self.allocated.state.lock();
        let push = state.done.push_within_capacity((cq.as_raw(), wc));
        push.map_err(|_| ENOBUFS)
    }

    /// Takes the send that was posted first.
    pub(crate) fn take_send(&self) -> Result<Sent> {
        let mut state = self.allocated.state.lock();
        state.sends.remove(0).map_err(|_| ENOMSG)
    }

    /// Completes a send as it was asked to: one that is not signalled completes with a later one, unless it has failed.
    pub(crate) fn complete_send(&self, sent: &Sent, status: bindings::ib_wc_status) -> Result {
        if status == bindings::ib_wc_status_IB_WC_SUCCESS && !sent.signalled {
            return Ok(());
        }
        let mut wc = bindings::ib_wc {
            status,
            qp: sent.qp,
            ..Default::default()
        };
        wc.__bindgen_anon_1.wr_id = sent.id;
        // SAFETY: The queue pair is there as long as something is posted to it.
        let cq = unsafe { (*sent.qp).send_cq };
        let mut state = self.allocated.state.lock();
        let push = state.done.push_within_capacity((cq.cast_const(), wc));
        push.map_err(|_| ENOBUFS)
    }

    /// Has it take so many sends from now on, and refuse others.
    pub(crate) fn take_sends(&self, count: u32) {
        self.allocated.state.lock().takes = count;
    }

    /// Parts of frames that are mapped.
    ///
    /// # Errors
    ///
    /// `EFAULT` if something was unmapped that was not mapped.
    pub(crate) fn mapped(&self) -> Result<KVec<Part>> {
        let mut mapped = KVec::with_capacity(ROOM, GFP_KERNEL)?;
        let state = self.allocated.state.lock();
        for part in &state.mapped {
            mapped.push_within_capacity(*part).map_err(|_| ENOBUFS)?;
        }
        (state.strays == 0).then_some(mapped).ok_or(EFAULT)
    }

    /// Has the mapping of a part fail: the `nth` from now on, or none for 0.
    pub(crate) fn fail_mapping(&self, nth: u32) {
        self.allocated.state.lock().unmappable = nth;
    }

    /// Returns where the CPU finds what the device finds at `addr`.
    pub(crate) fn find(&self, addr: u64) -> Option<u64> {
        self.mapper.find(addr).map(|at| at.as_ptr() as u64)
    }

    /// The number of address handles that there are.
    pub(crate) fn handles(&self) -> usize {
        self.allocated.state.lock().handles.len()
    }

    /// Returns true if all sends that it has are to address handles that there are.
    pub(crate) fn sends_are_addressed(&self) -> bool {
        let state = self.allocated.state.lock();
        let mut sends = state.sends.iter();
        sends.all(|sent| sent.is_addressed(&state.handles))
    }

    /// Has it keep the requests of queue pairs in error without completing them.
    pub(crate) fn silence(&self) {
        self.allocated.state.lock().silent = true;
    }

    /// Has it refuse to change the state of a queue pair, or do so again.
    pub(crate) fn stiffen(&self, rigid: bool) {
        self.allocated.state.lock().rigid = rigid;
    }

    /// Takes the syncs since the last time, in their order.
    pub(crate) fn syncs(&self) -> Result<KVec<Synced>> {
        let next = KVec::with_capacity(ROOM, GFP_KERNEL)?;
        Ok(core::mem::replace(
            &mut self.allocated.state.lock().syncs,
            next,
        ))
    }

    /// Has its port speak what these flags of RDMA core's say (`RDMA_CORE_PORT_*`).
    pub(crate) fn speak(&self, flags: u32) {
        // SAFETY: The device is allocated, and has the port.
        unsafe {
            let port = (*self.allocated.raw.as_ptr()).port_data.add(1);
            (*port).immutable.core_cap_flags = flags;
        }
    }

    /// Makes a GID of its port, which is in no table.
    pub(crate) fn gid(&self, raw: [u8; 16]) -> Result<Gid> {
        let mut entry = Entry::new(bindings::ib_gid_attr {
            gid: bindings::ib_gid { raw },
            port_num: 1,
            ..Default::default()
        })?;
        let attr = NonNull::from(&mut entry.gid);
        Ok(Gid {
            // SAFETY: The entry goes behind this reference; whoever has another one gives that back before.
            reference: unsafe { GidRef::of_entry(attr, &self.device) },
            _entry: entry,
        })
    }

    /// How many times a queue pair's state was changed.
    pub(crate) fn changes(&self) -> u32 {
        self.allocated.state.lock().changes
    }

    /// Has so many polls find as many completions as they take, of requests that there are not.
    pub(crate) fn flood(&self, polls: u32) {
        self.allocated.state.lock().flood = polls;
    }

    /// Has it refuse receives, or take them again.
    pub(crate) fn refuse(&self, refuses: bool) {
        self.allocated.state.lock().refuses = refuses;
    }

    /// How many polls of a [flood](Self::flood) are left.
    pub(crate) fn flood_left(&self) -> u32 {
        self.allocated.state.lock().flood
    }

    /// Holds the page that is mapped at `addr`.
    pub(crate) fn hold(&self, addr: u64) -> Result<Held> {
        let va = self.mapper.find(addr).ok_or(EFAULT)?;
        // SAFETY: There is memory.
        unsafe { bindings::ipoib_rs_page_hold(va.as_ptr().cast()) };
        // INVARIANT: It was just taken.
        Ok(Held { va, addr })
    }
}

impl Drop for Allocated {
    fn drop(&mut self) {
        // SAFETY: Allocated by the type invariant, and all references are gone but its own. RDMA core does not look for
        // the ports of a device that has none.
        unsafe {
            let dev = self.raw.as_ptr();
            (*dev).refcount.refs.counter = 0;
            (*dev).port_data = ptr::null_mut();
            bindings::ib_dealloc_device(dev);
        }
    }
}

/// An entry of RDMA core's for a GID: in front of that there is room for what the core has there, a count of references,
/// wherever that is.
#[repr(C)]
pub(crate) struct Entry {
    counts: [u32; 128],
    pub(crate) gid: bindings::ib_gid_attr,
}

impl Entry {
    /// Makes one that has a reference.
    pub(crate) fn new(gid: bindings::ib_gid_attr) -> Result<KBox<Self>> {
        let counts = [1; 128];
        Ok(KBox::new(Self { counts, gid }, GFP_KERNEL)?)
    }

    /// Returns true if there is a reference besides that one.
    pub(crate) fn is_held(&self) -> bool {
        self.counts != [1; 128]
    }
}

/// A GID of a [`Fake`]'s.
pub(crate) struct Gid {
    /// In front of what it refers to.
    pub(crate) reference: GidRef,
    _entry: KBox<Entry>,
}

/// A page of a page pool's that stays, whoever gives it up.
///
/// # Invariants
///
/// There is a reference to the page at `va`.
pub(crate) struct Held {
    va: NonNull<u8>,
    addr: u64,
}

impl Held {
    /// Returns true if it is mapped, as far as its pool notes it.
    pub(crate) fn is_mapped(&self) -> bool {
        // SAFETY: The page is there by the type invariant.
        let addr = unsafe { bindings::ipoib_rs_page_pool_dma(self.va.as_ptr().cast()) };
        addr == self.addr
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: The reference is there by the type invariant, and is given back once.
        unsafe { bindings::ipoib_rs_page_release(self.va.as_ptr().cast()) };
    }
}
