// SPDX-License-Identifier: GPL-2.0

//! The C side of [`Functions`].

use ipoib_sys::bindings;
use kernel::error::from_result;
use kernel::ffi::c_int;

use super::Tables;
use crate::device::{Device, Tasks};
use crate::vf::{Answer, Functions};

impl<T: Tasks + Functions> Tables<T> {
    /// # Safety
    ///
    /// Called by rtnetlink under RTNL for a registered device of `T`'s, as are all that follow.
    pub(super) unsafe extern "C" fn set_vf_link_state(
        dev: *mut bindings::net_device,
        vf: c_int,
        state: c_int,
    ) -> c_int {
        from_result(|| {
            // SAFETY: By this function's requirements.
            T::set_link_state(unsafe { Device::<T>::from_raw(dev) }, vf, state)?;
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// As [`Self::set_vf_link_state`], with a valid `info`.
    pub(super) unsafe extern "C" fn get_vf_config(
        dev: *mut bindings::net_device,
        vf: c_int,
        info: *mut bindings::ifla_vf_info,
    ) -> c_int {
        from_result(|| {
            // SAFETY: By this function's requirements.
            let (typed, mut config) =
                unsafe { (Device::<T>::from_raw(dev), Answer::from_raw(info)) };
            T::config(typed, vf, &mut config)?;
            // SAFETY: As above; RTNL keeps the device's address, and there is room for any.
            unsafe {
                (*info).vf = vf as u32;
                core::ptr::copy_nonoverlapping(
                    (*dev).dev_addr,
                    (&raw mut (*info).mac).cast(),
                    usize::from((*dev).addr_len),
                );
            }
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// As [`Self::set_vf_link_state`], with valid `stats`.
    pub(super) unsafe extern "C" fn get_vf_stats(
        dev: *mut bindings::net_device,
        vf: c_int,
        stats: *mut bindings::ifla_vf_stats,
    ) -> c_int {
        from_result(|| {
            // SAFETY: By this function's requirements.
            let (dev, mut stats) = unsafe { (Device::<T>::from_raw(dev), Answer::from_raw(stats)) };
            T::function_stats(dev, vf, &mut stats)?;
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// As [`Self::set_vf_link_state`], with valid GUIDs.
    pub(super) unsafe extern "C" fn get_vf_guid(
        dev: *mut bindings::net_device,
        vf: c_int,
        node: *mut bindings::ifla_vf_guid,
        port: *mut bindings::ifla_vf_guid,
    ) -> c_int {
        from_result(|| {
            // SAFETY: By this function's requirements.
            let (dev, mut node, mut port) = unsafe {
                (
                    Device::<T>::from_raw(dev),
                    Answer::from_raw(node),
                    Answer::from_raw(port),
                )
            };
            T::guids(dev, vf, &mut node, &mut port)?;
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// As [`Self::set_vf_link_state`].
    pub(super) unsafe extern "C" fn set_vf_guid(
        dev: *mut bindings::net_device,
        vf: c_int,
        guid: u64,
        kind: c_int,
    ) -> c_int {
        from_result(|| {
            // SAFETY: By this function's requirements.
            T::set_guid(unsafe { Device::<T>::from_raw(dev) }, vf, guid, kind)?;
            Ok(0)
        })
    }
}
