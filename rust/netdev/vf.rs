// SPDX-License-Identifier: GPL-2.0

//! Virtual functions of the device under an interface, which `ip link set … vf` configures.

use core::marker::PhantomData;

use ipoib_sys::bindings;
use kernel::error::VTABLE_DEFAULT_ERROR;
use kernel::prelude::*;

use crate::device::{Device, Driver};

/// Room for an answer about a virtual function, which C code fills.
///
/// # Invariants
///
/// `raw` is valid for reads and writes during `'a`.
pub struct Answer<'a, C> {
    raw: *mut C,
    _lifetime: PhantomData<&'a mut C>,
}

impl<C> Answer<'_, C> {
    /// Wraps a pointer.
    ///
    /// # Safety
    ///
    /// `raw` must be valid for reads and writes during the new lifetime.
    pub unsafe fn from_raw<'a>(raw: *mut C) -> Answer<'a, C> {
        // INVARIANT: By this function's requirements.
        Answer {
            raw,
            _lifetime: PhantomData,
        }
    }

    /// The C side.
    pub fn as_raw(&mut self) -> *mut C {
        self.raw
    }
}

/// Configuration of a virtual function.
pub type Config<'a> = Answer<'a, bindings::ifla_vf_info>;
/// Counters of a virtual function.
pub type Stats<'a> = Answer<'a, bindings::ifla_vf_stats>;
/// A GUID of a virtual function.
pub type Guid<'a> = Answer<'a, bindings::ifla_vf_guid>;

/// A driver of devices that may have virtual functions. All callbacks are optional, and run under RTNL in process
/// context; `vf` is a number from user space, which nobody has checked.
#[vtable]
pub trait Functions: Driver {
    /// Sets the state of a function's link, an `IFLA_VF_LINK_STATE_*`.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` where there are no functions, and those of the device.
    fn set_link_state(_dev: &Device<Self>, _vf: i32, _state: i32) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Says how a function is configured. Its number and its address, which is the interface's, are filled in
    /// afterwards.
    ///
    /// # Errors
    ///
    /// As [`Functions::set_link_state`].
    fn config(_dev: &Device<Self>, _vf: i32, _config: &mut Config<'_>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Says what a function has sent and received.
    ///
    /// # Errors
    ///
    /// As [`Functions::set_link_state`].
    fn function_stats(_dev: &Device<Self>, _vf: i32, _stats: &mut Stats<'_>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Says a function's GUIDs.
    ///
    /// # Errors
    ///
    /// As [`Functions::set_link_state`].
    fn guids(_dev: &Device<Self>, _vf: i32, _node: &mut Guid<'_>, _port: &mut Guid<'_>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Gives a function another GUID, an `IFLA_VF_IB_*_GUID` by its `kind`.
    ///
    /// # Errors
    ///
    /// As [`Functions::set_link_state`].
    fn set_guid(_dev: &Device<Self>, _vf: i32, _guid: u64, _kind: i32) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[kunit_tests(rust_netdev_vf)]
mod tests {
    use super::*;
    use crate::dummy::{Registered, Seen};
    use crate::rtnl::Rtnl;

    /// Questions of rtnetlink about a function come to the driver, and the answers come back, with what the stack knows of the
    /// device filled in.
    #[test]
    fn requests_come_to_the_driver() -> Result {
        let registered = Registered::new(&Seen::new()?, |_| Ok(()))?;
        let raw = registered.device().as_raw();
        let _rtnl = Rtnl::lock();
        let mut info = bindings::ifla_vf_info::default();
        let mut counts = bindings::ifla_vf_stats::default();
        let mut guids = [bindings::ifla_vf_guid::default(); 2];
        let [of_node, of_port] = &mut guids;
        // SAFETY: The device is registered, RTNL is held, and there is room for the answers.
        let (refused, results) = unsafe {
            let ops = &*(*raw).netdev_ops;
            let set_state = ops.ndo_set_vf_link_state.ok_or(EINVAL)?;
            let set_guid = ops.ndo_set_vf_guid.ok_or(EINVAL)?;
            let results = [
                set_state(raw, 4, 2),
                set_guid(raw, 4, 77, 12),
                ops.ndo_get_vf_config.ok_or(EINVAL)?(raw, 5, &raw mut info),
                ops.ndo_get_vf_stats.ok_or(EINVAL)?(raw, 6, &raw mut counts),
                ops.ndo_get_vf_guid.ok_or(EINVAL)?(raw, 7, of_node, of_port),
            ];
            ([set_state(raw, 4, 3), set_guid(raw, 4, 78, 12)], results)
        };
        assert_eq!(results, [0; 5]);
        assert_eq!(refused, [EINVAL.to_errno(); 2]);
        assert_eq!((info.vf, info.linkstate), (5, 50));
        assert_eq!(info.mac[..20], registered.device().address());
        assert_eq!(counts.tx_packets, 60);
        assert_eq!(guids.map(|guid| guid.guid), [7, 70]);
        Ok(())
    }
}
