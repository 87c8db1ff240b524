// SPDX-License-Identifier: GPL-2.0

//! RDMA devices.
//!
//! C headers: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h).

use core::num::NonZero;
use core::ops::RangeInclusive;
use core::ptr::{self, NonNull};

use ipoib_netdev::device::{Device as NetDevice, Driver, RawDevice};
use ipoib_netdev::net::Net;
use ipoib_netdev::rtnl::Rtnl;
use ipoib_sys::bindings;
use kernel::prelude::*;
use kernel::str::CStr;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::{Arc, Completion};

#[cfg(CONFIG_KUNIT = "y")]
use crate::deferred;
use crate::deferred::{DeferredDrop, Reaper};
use crate::flush_time::{FlushTime, Late};
use crate::members::Members;

/// As much as a device writes of its firmware's version.
pub const FIRMWARE_LEN: usize = bindings::IB_FW_VERSION_NAME_MAX as usize;

/// Room for a device's name, its terminating zero included.
pub const NAME_LEN: usize = bindings::IB_DEVICE_NAME_MAX as usize;

/// A reference to a registered RDMA device.
///
/// The removal of the client ([`crate::Client::remove`]) waits until all of them are gone, those that resources hold
/// included. So a resource never sees the device without what other clients have for it, such as the connection
/// manager, nor unregistered.
///
/// # Invariants
///
/// `raw` is `hold`'s device.
#[derive(Clone)]
pub struct Device {
    raw: NonNull<bindings::ib_device>,
    hold: Arc<Hold>,
}

/// The reference that all [`Device`]s of a client share.
///
/// # Invariants
///
/// `raw` is a registered device, on which one reference (`ib_device_try_get`) is held.
struct Hold {
    raw: NonNull<bindings::ib_device>,
    client: &'static CStr,
    gone: Arc<Gone>,
    patient: Arc<DeferredDrop>,
    members: Arc<Members>,
    late: Late,
}

/// The end of all [`Device`]s of a client.
#[pin_data]
struct Gone {
    /// Their users are to make an end.
    awaited: Atomic<bool>,
    #[pin]
    done: Completion,
}

/// End of all [`Device`]s of a client, and of what waits for the device when it is destroyed.
pub(crate) struct Ending {
    client: &'static CStr,
    patient: Reaper,
    gone: Arc<Gone>,
    members: Arc<Members>,
}

impl Ending {
    /// For a device of which the client of that name has no reference yet.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub(crate) fn new(client: &'static CStr) -> Result<Self> {
        let gone = pin_init!(Gone {
            awaited: Atomic::new(false),
            done <- Completion::new()
        });
        Ok(Self {
            client,
            patient: Reaper::patient()?,
            gone: Arc::pin_init(gone, GFP_KERNEL)?,
            members: Members::new()?,
        })
    }

    /// Waits until all of them are gone.
    ///
    /// # Context
    ///
    /// Process context without RTNL; sleeps for as long as anybody has one.
    pub(crate) fn wait(self) {
        let Self { patient, gone, .. } = self;
        gone.awaited.store(true, Relaxed);
        drop(patient);
        gone.done.wait_for_completion();
    }

    /// Waits for a test, which has so many milliseconds for that: whatever still has the device is leaked then.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT`.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) fn wait_for(self, limit_ms: i64) -> Result {
        let Self { patient, gone, .. } = self;
        gone.awaited.store(true, Relaxed);
        patient.end_in(limit_ms)?;
        deferred::wait_for(&gone.done, limit_ms)
    }

    #[cfg(CONFIG_KUNIT = "y")]
    fn is_done(&self) -> bool {
        deferred::is_done(&self.gone.done)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // SAFETY: Held by the type invariant, and given back once.
        unsafe { bindings::ib_device_put(self.raw.as_ptr()) };
        self.gone.done.complete_all();
    }
}

// SAFETY: An `ib_device` may be used and its references be given back by any thread.
unsafe impl Send for Hold {}
// SAFETY: As above.
unsafe impl Sync for Hold {}
// SAFETY: As above.
unsafe impl Send for Device {}
// SAFETY: As above.
unsafe impl Sync for Device {}

impl Device {
    /// Takes a reference to a device, whose end and that of its clones `ending` waits for; if there is an error, there
    /// is none.
    ///
    /// # Safety
    ///
    /// `raw` must be a device that stays allocated meanwhile.
    ///
    /// # Errors
    ///
    /// `ENODEV` if it is not registered any more; `ENOMEM`.
    pub(crate) unsafe fn try_get(raw: *mut bindings::ib_device, ending: &Ending) -> Result<Self> {
        let raw = NonNull::new(raw).ok_or(ENODEV)?;
        // SAFETY: Allocated by this function's requirements.
        if !unsafe { bindings::ipoib_rs_ib_device_try_get(raw.as_ptr()) } {
            return Err(ENODEV);
        }
        // INVARIANT: The reference was just taken.
        let hold = Hold {
            raw,
            client: ending.client,
            gone: ending.gone.clone(),
            patient: ending.patient.deferred_drop().clone(),
            members: ending.members.clone(),
            late: Late::never(),
        };
        // INVARIANT: It is that device.
        Ok(Self {
            raw,
            hold: Arc::new(hold, GFP_KERNEL)?,
        })
    }

    /// The C side.
    #[inline]
    pub fn as_raw(&self) -> *mut bindings::ib_device {
        self.raw.as_ptr()
    }

    /// Name of the client that has this reference, under which the RDMA core lists what is made with it
    /// (`rdma resource`).
    pub(crate) fn client(&self) -> &'static CStr {
        self.hold.client
    }

    /// Destroys what waits for the device, whatever interface has dropped it. The device stays until it has.
    pub(crate) fn patient(&self) -> &Arc<DeferredDrop> {
        &self.hold.patient
    }

    /// The members of multicast groups by this crate.
    pub(crate) fn members(&self) -> &Arc<Members> {
        &self.hold.members
    }

    /// Returns true if the client has given it up, so that nothing may be waited for.
    pub(crate) fn is_given_up(&self) -> bool {
        self.hold.gone.awaited.load(Relaxed)
    }

    /// The version of its firmware, written to `text`; empty if it has none.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn firmware<'a>(&self, text: &'a mut [u8; FIRMWARE_LEN]) -> &'a [u8] {
        // SAFETY: Registered by the type invariant; there is room for as much as a device may write.
        unsafe { bindings::ib_get_device_fw_str(self.as_raw(), text.as_mut_ptr().cast()) };
        let end = text.iter().position(|byte| *byte == 0);
        &text[..end.unwrap_or(FIRMWARE_LEN)]
    }

    /// The numbers of its ports.
    pub fn ports(&self) -> RangeInclusive<u32> {
        // SAFETY: Registered by the type invariant.
        unsafe {
            bindings::ipoib_rs_ib_start_port(self.as_raw())
                ..=bindings::ipoib_rs_ib_end_port(self.as_raw())
        }
    }

    /// Returns true if `port` exists and speaks RoCE.
    pub fn is_roce(&self, port: u32) -> bool {
        // SAFETY: Registered by the type invariant.
        unsafe { bindings::ipoib_rs_ib_is_roce(self.as_raw(), port) }
    }

    /// Returns true if a packet on RoCE goes to the Ethernet address that its path or address handle has. Soft-RoCE sends it
    /// by an IP route to the GID.
    pub(crate) fn sends_to_macs(&self) -> bool {
        // SAFETY: Registered by the type invariant; the driver's number does not change.
        unsafe { (*self.as_raw()).ops.driver_id != bindings::rdma_driver_id_RDMA_DRIVER_RXE }
    }

    /// Returns true if `port` exists and is one of InfiniBand, not of Omni-Path.
    pub fn is_infiniband(&self, port: u32) -> bool {
        // SAFETY: Registered by the type invariant.
        unsafe { bindings::ipoib_rs_ib_is_ib(self.as_raw(), port) }
    }

    /// The namespace that the device is in: that of the host, unless RDMA keeps namespaces apart.
    pub fn net(&self) -> &Net {
        // SAFETY: Registered by the type invariant. The core takes a device from its clients, and so from all
        // references, before it moves it to another namespace, or its own one ends.
        unsafe { Net::from_raw(bindings::ipoib_rs_ib_net(self.as_raw())) }
    }

    /// Returns true if the device has a name in `net`. All devices have one in each namespace, unless RDMA is told
    /// to keep namespaces apart (`rdma system set netns exclusive`).
    pub fn is_visible(&self, net: &Net) -> bool {
        // SAFETY: Registered by the type invariant; both are only looked at.
        unsafe { bindings::ipoib_rs_ib_is_visible(self.as_raw(), net.as_raw()) }
    }

    /// Returns true if the caller may configure the network that the device is in, and so the device.
    ///
    /// # Context
    ///
    /// In a system call.
    pub fn may_configure(&self) -> bool {
        // SAFETY: Registered by the type invariant.
        unsafe { bindings::ipoib_rs_ib_may_configure(self.as_raw()) }
    }

    /// Returns true if `ndev` is an IPoIB interface on `port`, of whatever driver, as far as it can be told by where it
    /// sits: where the RDMA device has a parent such as a PCI function.
    ///
    /// # Context
    ///
    /// Process context.
    pub fn carries(&self, port: u32, ndev: &RawDevice) -> bool {
        // SAFETY: Registered by the type invariant; `ndev` is only looked at.
        unsafe { bindings::ipoib_rs_ib_carries(self.as_raw(), port, ndev.as_raw()) }
    }

    /// Returns true if another driver than that of `own`, which is an IPoIB interface on InfiniBand `port`, has one there, too;
    /// and if a group is named, one that is up and listens to that.
    ///
    /// # Context
    ///
    /// Process context.
    pub(crate) fn is_shared(&self, port: u32, own: &RawDevice, mgid: Option<&[u8; 16]>) -> bool {
        let mgid = mgid.map_or(ptr::null(), |mgid| ptr::from_ref(mgid).cast());
        // SAFETY: Registered by the type invariant; interfaces are only looked at, and so is the group, whose GID is
        // valid.
        unsafe { bindings::ipoib_rs_ib_is_shared(self.as_raw(), port, own.as_raw(), mgid) }
    }

    /// Returns true if it is a virtual function itself.
    pub fn is_virtual_function(&self) -> bool {
        let capability = u64::from(bindings::ib_kernel_cap_flags_IBK_VIRTUAL_FUNCTION);
        self.attrs().kernel_cap_flags & capability != 0
    }

    /// Time for its queue pairs to flush, from now on.
    pub fn flush_time(&self) -> FlushTime<'_> {
        FlushTime::new(&self.hold.late)
    }

    fn attrs(&self) -> &bindings::ib_device_attr {
        // SAFETY: Registered by the type invariant; the attributes are constant from then on.
        unsafe { &(*self.as_raw()).attrs }
    }

    #[inline]
    pub(crate) fn ops(&self) -> &bindings::ib_device_ops {
        // SAFETY: Registered by the type invariant; the operations are constant.
        unsafe { &(*self.as_raw()).ops }
    }

    /// Returns true if its queue pairs can be attached to multicast groups.
    pub fn has_multicast(&self) -> bool {
        let ops = self.ops();
        ops.attach_mcast.is_some() && ops.detach_mcast.is_some()
    }

    /// Returns true if it makes the checksums of TCP and UDP over IPv4 in datagrams that are sent
    /// ([`crate::UdInit::offloads`]), and says of a received one, [`crate::Completion::csum_ok`], that the checksums in
    /// it are good.
    pub fn checks_checksums(&self) -> bool {
        let capability = bindings::ib_device_cap_flags_IB_DEVICE_UD_IP_CSUM as u64;
        self.attrs().device_cap_flags & capability != 0
    }

    /// Returns true if it segments what TCP sends by queue pairs that are made for that ([`crate::UdInit::offloads`]).
    pub fn segments(&self) -> bool {
        let capability = u64::from(bindings::ib_kernel_cap_flags_IBK_UD_TSO);
        self.attrs().kernel_cap_flags & capability != 0
    }

    /// Returns true if it can keep a queue pair from hearing what that sends to its own groups.
    pub(crate) fn blocks_loopback(&self) -> bool {
        let capability = u64::from(bindings::ib_kernel_cap_flags_IBK_BLOCK_MULTICAST_LOOPBACK);
        self.attrs().kernel_cap_flags & capability != 0
    }

    /// The most shared receive queues that it has; 0 if there is no such thing.
    pub fn max_srq(&self) -> u32 {
        self.attrs().max_srq
    }

    /// The most receives that a shared receive queue takes.
    pub fn max_srq_wr(&self) -> u32 {
        self.attrs().max_srq_wr
    }

    /// The most elements that a receive of a shared receive queue may scatter to.
    pub fn max_srq_sge(&self) -> u32 {
        self.attrs().max_srq_sge
    }

    /// The most work requests that a queue takes, and that a completion queue holds completions of. Those with
    /// several elements may be fewer.
    pub fn max_queue(&self) -> u32 {
        let attrs = self.attrs();
        attrs.max_qp_wr.min(attrs.max_cqe)
    }

    /// The most completions that a completion queue holds.
    pub fn max_cqe(&self) -> u32 {
        self.attrs().max_cqe
    }

    /// The most elements that a send may gather from.
    pub fn max_sge(&self) -> u32 {
        self.attrs().max_send_sge
    }

    /// The most elements that a receive of a queue pair may scatter to.
    pub fn max_recv_sge(&self) -> u32 {
        self.attrs().max_recv_sge
    }

    /// How many vectors completion interrupts can be spread over.
    pub fn completion_vectors(&self) -> NonZero<u32> {
        // SAFETY: Registered by the type invariant; constant from then on.
        let vectors = unsafe { (*self.as_raw()).num_comp_vectors };
        u32::try_from(vectors)
            .ok()
            .and_then(NonZero::new)
            .unwrap_or(NonZero::<u32>::MIN)
    }

    /// The interface index of the netdev that a RoCE `port` runs over, in the netdev's own namespace.
    ///
    /// # Context
    ///
    /// Process context.
    pub fn netdev_ifindex(&self, port: u32) -> Option<i32> {
        // SAFETY: Registered by the type invariant.
        match unsafe { bindings::ipoib_rs_ib_netdev_ifindex(self.as_raw(), port) } {
            0 => None,
            ifindex => Some(ifindex),
        }
    }

    /// Calls `f` with the netdev that a RoCE `port` runs over, if it has one.
    ///
    /// # Context
    ///
    /// Process context; does not sleep unless `f` does.
    pub fn with_netdev(&self, port: u32, f: &mut dyn FnMut(&RawDevice)) {
        // SAFETY: Registered by the type invariant; what is found comes with a reference, which is
        // given back after the last use.
        unsafe {
            let ndev = bindings::ipoib_rs_ib_netdev(self.as_raw(), port);
            if !ndev.is_null() {
                f(RawDevice::from_raw(ndev));
                bindings::ipoib_rs_dev_put(ndev);
            }
        }
    }

    /// Returns true if `ndev` is the netdev that a RoCE `port` runs over.
    ///
    /// # Context
    ///
    /// Process context.
    pub fn is_netdev(&self, port: u32, ndev: &RawDevice) -> bool {
        // SAFETY: Registered by the type invariant; `ndev` is only compared.
        unsafe { bindings::ipoib_rs_ib_is_netdev(self.as_raw(), port, ndev.as_raw()) }
    }

    /// Calls `f` with the name of the device's parent, such as a PCI function's address, if it has one.
    pub fn with_parent_name<R>(&self, f: impl FnOnce(Option<&[u8]>) -> R) -> R {
        // SAFETY: Registered by the type invariant, and so is the parent meanwhile. Those that an RDMA device has
        // keep their names.
        let name = unsafe {
            let name = bindings::ipoib_rs_ib_parent_name(self.as_raw());
            (!name.is_null()).then(|| CStr::from_char_ptr(name))
        };
        f(name.map(CStr::to_bytes))
    }

    /// Notes in sysfs that `ndev` sits on `port` of this device: `dev_port`, `dev_id` and, where the
    /// RDMA device has a parent such as a PCI function, `device`. While `ndev` is being registered;
    /// later it has no effect.
    pub fn place<T: Driver>(&self, port: u32, ndev: &NetDevice<T>, _rtnl: &mut Rtnl) {
        // SAFETY: Registered by the type invariant, and so is the parent meanwhile, of which the
        // device takes a reference when it is added; RTNL is held.
        unsafe { bindings::ipoib_rs_ib_place(self.as_raw(), port, ndev.as_raw()) };
    }

    /// Returns true if this is the same device.
    #[inline]
    pub fn same(&self, other: &Self) -> bool {
        self.raw == other.raw
    }

    /// Returns true if a DMA address of this device is just a kernel address.
    pub(crate) fn virt_dma(&self) -> bool {
        self.dma_device().is_null()
    }

    /// The device that memory is mapped for; null if a DMA address of this device is just a kernel address.
    pub(crate) fn dma_device(&self) -> *mut bindings::device {
        // SAFETY: Registered by the type invariant.
        unsafe { bindings::ipoib_rs_ib_dma_device(self.as_raw()) }
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[kunit_tests(rust_rdma_device)]
mod tests {
    use super::*;
    use crate::cq::Cq;
    use crate::dummy::Dummy;
    use ipoib_netdev::faults::{none_failed, with_failing};
    use kernel::alloc::flags::__GFP_ZERO;

    /// The reference goes with the last clone, and whoever waits for that goes on.
    #[test]
    fn the_last_one_ends_the_wait() -> Result {
        let mut memory = KBox::<bindings::ib_device>::new_uninit(GFP_KERNEL | __GFP_ZERO)?;
        let raw = memory.as_mut_ptr();
        let ending = Ending::new(c"kunit")?;
        // SAFETY: It is ours and zeroed, as which it is plain data. It has a reference of its own, so that giving back
        // ours tells nobody.
        let dev = unsafe {
            (*raw).refcount.refs.counter = 1;
            Device::try_get(raw, &ending)?
        };
        // SAFETY: As above.
        let references = || unsafe { (*raw).refcount.refs.counter };
        let other = dev.clone();
        drop(dev);
        assert!(references() == 2 && !ending.is_done());
        drop(other);
        assert!(references() == 1 && ending.is_done());
        ending.wait();
        Ok(())
    }

    /// Without memory for it there is no reference, and nobody waits for one.
    #[test]
    fn no_memory_holds_no_device() -> Result {
        let mut memory = KBox::<bindings::ib_device>::new_uninit(GFP_KERNEL | __GFP_ZERO)?;
        let raw = memory.as_mut_ptr();
        let ending = Ending::new(c"kunit")?;
        // SAFETY: As above.
        unsafe { (*raw).refcount.refs.counter = 1 };
        // SAFETY: As above. What cannot be allocated is the reference.
        let (dev, failed) = with_failing(1, || unsafe { Device::try_get(raw, &ending) });
        // SAFETY: As above.
        let references = unsafe { (*raw).refcount.refs.counter };
        if failed {
            assert_eq!(dev.err(), Some(ENOMEM));
            assert!(references == 1 && ending.is_done());
        } else {
            none_failed();
        }
        Ok(())
    }

    /// RDMA core warns of a completion queue without entries.
    #[test]
    fn a_completion_queue_has_entries() -> Result {
        let dummy = Dummy::new()?;
        let none = Cq::new(dummy.device(), 0, 0, (), ());
        assert_eq!(none.err(), Some(EINVAL));
        Ok(())
    }

    /// Soft-RoCE has no parent and one port, so that no interface on it shows either.
    #[test]
    fn a_network_device_has_the_port_and_the_parent() -> Result {
        let flags = GFP_KERNEL | __GFP_ZERO;
        let mut device = KBox::<bindings::ib_device>::new_uninit(flags)?;
        let mut parent = KBox::<bindings::device>::new_uninit(flags)?;
        let mut ndev = KBox::<bindings::net_device>::new_uninit(flags)?;
        let (device, parent, ndev) = (device.as_mut_ptr(), parent.as_mut_ptr(), ndev.as_mut_ptr());
        // SAFETY: All of them are ours and zeroed, as which the helper takes them: it reads the
        // parent's address, and writes plain fields.
        let placed = unsafe {
            (*device).__bindgen_anon_1.dev.parent = parent;
            bindings::ipoib_rs_ib_place(device, 2, ndev);
            ((*ndev).dev.parent, (*ndev).dev_port, (*ndev).dev_id)
        };
        assert_eq!(placed, (parent, 1, 1));

        // SAFETY: As above.
        let placed = unsafe {
            (*ndev).reg_state = bindings::netdev_reg_state_NETREG_REGISTERED as u8;
            bindings::ipoib_rs_ib_place(device, 3, ndev);
            (*ndev).dev_port
        };
        assert_eq!(placed, 1);
        Ok(())
    }
}
