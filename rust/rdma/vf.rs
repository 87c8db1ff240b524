// SPDX-License-Identifier: GPL-2.0

//! Virtual functions of an RDMA device, which its driver configures.
//!
//! All of these return `EOPNOTSUPP` where the driver cannot, or there are no functions, and `EINVAL` for a number that no
//! function has. They are called in process context, and may sleep.

use ipoib_netdev::vf::{Config, Guid, Stats};
use ipoib_sys::bindings;
use kernel::error::to_result;
use kernel::prelude::*;

use crate::device::Device;

impl Device {
    /// Checks that the device has a function of that number.
    ///
    /// Drivers trust it: mlx5 has an array of functions, and looks at no more than the lower bits of what is wrong.
    fn check_vf(&self, vf: i32) -> Result {
        // SAFETY: Registered by the type invariant, and so is the parent meanwhile.
        match unsafe { bindings::ipoib_rs_ib_num_vf(self.as_raw()) } {
            0 => Err(EOPNOTSUPP),
            count if (0..count).contains(&vf) => Ok(()),
            _ => Err(EINVAL),
        }
    }

    /// Sets the state of a function's link on `port`, an `IFLA_VF_LINK_STATE_*`.
    ///
    /// # Errors
    ///
    /// Those of the device.
    pub fn set_vf_link_state(&self, port: u32, vf: i32, state: i32) -> Result {
        self.check_vf(vf)?;
        // SAFETY: Registered by the type invariant, and it has such a function.
        to_result(unsafe { bindings::ib_set_vf_link_state(self.as_raw(), vf, port, state) })
    }

    /// Says how a function is configured.
    ///
    /// # Errors
    ///
    /// Those of the device.
    pub fn vf_config(&self, port: u32, vf: i32, config: &mut Config<'_>) -> Result {
        self.check_vf(vf)?;
        // SAFETY: As in `set_vf_link_state`; the answer has room.
        to_result(unsafe { bindings::ib_get_vf_config(self.as_raw(), vf, port, config.as_raw()) })
    }

    /// Says what a function has sent and received.
    ///
    /// # Errors
    ///
    /// Those of the device.
    pub fn vf_stats(&self, port: u32, vf: i32, stats: &mut Stats<'_>) -> Result {
        self.check_vf(vf)?;
        // SAFETY: As in `vf_config`.
        to_result(unsafe { bindings::ib_get_vf_stats(self.as_raw(), vf, port, stats.as_raw()) })
    }

    /// Says a function's GUIDs.
    ///
    /// # Errors
    ///
    /// Those of the device.
    pub fn vf_guids(
        &self,
        port: u32,
        vf: i32,
        of_node: &mut Guid<'_>,
        of_port: &mut Guid<'_>,
    ) -> Result {
        self.check_vf(vf)?;
        // SAFETY: As in `vf_config`.
        to_result(unsafe {
            bindings::ib_get_vf_guid(self.as_raw(), vf, port, of_node.as_raw(), of_port.as_raw())
        })
    }

    /// Gives a function another GUID, by `kind` that of its node or of its port.
    ///
    /// # Errors
    ///
    /// `EINVAL` for another kind; those of the device.
    pub fn set_vf_guid(&self, port: u32, vf: i32, guid: u64, kind: i32) -> Result {
        let kinds = [
            bindings::IFLA_VF_IB_NODE_GUID,
            bindings::IFLA_VF_IB_PORT_GUID,
        ];
        if !kinds.iter().any(|known| u32::try_from(kind) == Ok(*known)) {
            return Err(EINVAL);
        }
        self.check_vf(vf)?;
        // SAFETY: As in `set_vf_link_state`.
        to_result(unsafe { bindings::ib_set_vf_guid(self.as_raw(), vf, port, guid, kind) })
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[kunit_tests(rust_rdma_vf)]
mod tests {
    use core::mem::MaybeUninit;

    use kernel::alloc::flags::__GFP_ZERO;
    use kernel::ffi::c_int;
    use kernel::sync::atomic::{Atomic, Relaxed};

    use super::*;
    use crate::dummy::Dummy;

    /// The function, the port and the value that something was set to last.
    static SET: [Atomic<u64>; 3] = [const { Atomic::new(0) }; 3];

    fn note(vf: c_int, port: u32, value: u64) -> c_int {
        for (place, number) in SET.iter().zip([vf as u64, port.into(), value]) {
            place.store(number, Relaxed);
        }
        0
    }

    fn noted() -> [u64; 3] {
        [0, 1, 2].map(|at: usize| SET[at].load(Relaxed))
    }

    /// # Safety
    ///
    /// None is needed; a device's driver has operations of this type. The same goes for those that set.
    unsafe extern "C" fn set_state(
        _device: *mut bindings::ib_device,
        vf: c_int,
        port: u32,
        state: c_int,
    ) -> c_int {
        note(vf, port, state as u64)
    }

    /// # Safety
    ///
    /// As for [`set_state`].
    unsafe extern "C" fn set_guid(
        _device: *mut bindings::ib_device,
        vf: c_int,
        port: u32,
        guid: u64,
        kind: c_int,
    ) -> c_int {
        note(vf, port, guid + kind as u64)
    }

    /// # Safety
    ///
    /// There has to be room for the answer. The same goes for the others that answer.
    unsafe extern "C" fn get_config(
        _device: *mut bindings::ib_device,
        vf: c_int,
        port: u32,
        info: *mut bindings::ifla_vf_info,
    ) -> c_int {
        // SAFETY: By this function's requirements.
        unsafe { (*info).linkstate = 10 * vf as u32 + port };
        0
    }

    /// # Safety
    ///
    /// As for [`get_config`].
    unsafe extern "C" fn get_stats(
        _device: *mut bindings::ib_device,
        vf: c_int,
        port: u32,
        stats: *mut bindings::ifla_vf_stats,
    ) -> c_int {
        // SAFETY: By this function's requirements.
        unsafe { (*stats).rx_packets = 100 * vf as u64 + u64::from(port) };
        0
    }

    /// # Safety
    ///
    /// As for [`get_config`].
    unsafe extern "C" fn get_guid(
        _device: *mut bindings::ib_device,
        vf: c_int,
        port: u32,
        of_node: *mut bindings::ifla_vf_guid,
        of_port: *mut bindings::ifla_vf_guid,
    ) -> c_int {
        // SAFETY: By this function's requirements.
        unsafe { ((*of_node).guid, (*of_port).guid) = (vf as u64, port.into()) };
        0
    }

    /// # Safety
    ///
    /// None is needed; a bus has an operation of this type.
    unsafe extern "C" fn eight(_parent: *mut bindings::device) -> c_int {
        8
    }

    /// An RDMA device below one with eight functions.
    struct Parent {
        _device: KBox<MaybeUninit<bindings::device>>,
        _bus: KBox<MaybeUninit<bindings::bus_type>>,
    }

    impl Parent {
        /// Gives a dummy one, which must not be used for longer than that.
        fn of(dummy: &Dummy) -> Result<Self> {
            let flags = GFP_KERNEL | __GFP_ZERO;
            let mut bus = KBox::<bindings::bus_type>::new_uninit(flags)?;
            let mut device = KBox::<bindings::device>::new_uninit(flags)?;
            // SAFETY: They are ours and zeroed, as which they are plain data; the dummy is the test's, and nobody else
            // uses it.
            unsafe {
                (*bus.as_mut_ptr()).num_vf = Some(eight);
                (*device.as_mut_ptr()).bus = bus.as_ptr();
                (*dummy.device().as_raw()).__bindgen_anon_1.dev.parent = device.as_mut_ptr();
            }
            Ok(Self {
                _device: device,
                _bus: bus,
            })
        }
    }

    /// A driver that configures no functions says so, and so does a device that has none.
    #[test]
    fn a_device_without_functions() -> Result {
        let dummy = Dummy::new()?;
        let device = dummy.device();
        // SAFETY: It is the test's, and nobody else uses it.
        unsafe { (*device.as_raw()).ops.set_vf_link_state = Some(set_state) };
        assert!(device.set_vf_link_state(1, 0, 0) == Err(EOPNOTSUPP));
        let _parent = Parent::of(&dummy)?;
        device.set_vf_link_state(1, 0, 0)?;
        // SAFETY: As above.
        unsafe { (*device.as_raw()).ops.set_vf_link_state = None };
        let kind = bindings::IFLA_VF_IB_NODE_GUID as i32;
        let mut info = bindings::ifla_vf_info::default();
        // SAFETY: It is ours, for longer than the answer.
        let mut config = unsafe { Config::from_raw(&raw mut info) };
        assert!(device.set_vf_link_state(1, 0, 0) == Err(EOPNOTSUPP));
        assert!(device.set_vf_guid(1, 0, 7, kind) == Err(EOPNOTSUPP));
        assert!(device.vf_config(1, 0, &mut config) == Err(EOPNOTSUPP));
        Ok(())
    }

    /// Each request comes to the driver's operation, with function, port and value in their places.
    #[test]
    fn requests_come_to_the_driver() -> Result {
        let dummy = Dummy::new()?;
        let _parent = Parent::of(&dummy)?;
        let device = dummy.device();
        // SAFETY: It is the test's, and nobody else uses it.
        unsafe {
            let ops = &raw mut (*device.as_raw()).ops;
            (*ops).set_vf_link_state = Some(set_state);
            (*ops).set_vf_guid = Some(set_guid);
            (*ops).get_vf_config = Some(get_config);
            (*ops).get_vf_stats = Some(get_stats);
            (*ops).get_vf_guid = Some(get_guid);
        }
        device.set_vf_link_state(2, 5, 1)?;
        assert_eq!(noted(), [5, 2, 1]);
        for kind in [
            bindings::IFLA_VF_IB_NODE_GUID,
            bindings::IFLA_VF_IB_PORT_GUID,
        ] {
            device.set_vf_guid(1, 6, 0x0200_5eff_fe00_5300, kind as i32)?;
            assert_eq!(noted(), [6, 1, 0x0200_5eff_fe00_5300 + u64::from(kind)]);
        }
        // No GUID of anything that there is.
        let other = bindings::IFLA_VF_IB_PORT_GUID as i32 + 1;
        assert!(device.set_vf_guid(1, 7, 9, other) == Err(EINVAL) && noted()[0] == 6);

        let mut info = bindings::ifla_vf_info::default();
        let mut counts = bindings::ifla_vf_stats::default();
        let mut guids = [bindings::ifla_vf_guid::default(); 2];
        let [of_node, of_port] = &mut guids;
        // SAFETY: They are ours, for longer than the answers.
        unsafe {
            device.vf_config(2, 3, &mut Config::from_raw(&raw mut info))?;
            device.vf_stats(2, 3, &mut Stats::from_raw(&raw mut counts))?;
            let (mut node, mut port) = (Guid::from_raw(of_node), Guid::from_raw(of_port));
            device.vf_guids(2, 3, &mut node, &mut port)?;
        }
        assert_eq!((info.linkstate, counts.rx_packets), (32, 302));
        // The driver sees no number that no function has.
        let kind = bindings::IFLA_VF_IB_NODE_GUID as i32;
        for vf in [8, 0x1_0000, i32::MAX, -1, i32::MIN] {
            assert!(device.set_vf_link_state(2, vf, 1) == Err(EINVAL));
            assert!(device.set_vf_guid(1, vf, 9, kind) == Err(EINVAL) && noted()[0] == 6);
            let [of_node, of_port] = &mut guids;
            // SAFETY: As above.
            unsafe {
                let mut config = Config::from_raw(&raw mut info);
                assert!(device.vf_config(2, vf, &mut config) == Err(EINVAL));
                let mut stats = Stats::from_raw(&raw mut counts);
                assert!(device.vf_stats(2, vf, &mut stats) == Err(EINVAL));
                let (mut node, mut port) = (Guid::from_raw(of_node), Guid::from_raw(of_port));
                assert!(device.vf_guids(2, vf, &mut node, &mut port) == Err(EINVAL));
            }
        }
        assert_eq!(guids.map(|guid| guid.guid), [3, 2]);
        Ok(())
    }
}
