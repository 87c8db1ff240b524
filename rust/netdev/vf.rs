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
    pub(crate) unsafe fn from_raw<'a>(raw: *mut C) -> Answer<'a, C> {
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
