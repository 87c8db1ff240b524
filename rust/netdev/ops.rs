// SPDX-License-Identifier: GPL-2.0

//! The C side of [`Driver`]: `net_device_ops` and `header_ops`.

use core::marker::PhantomData;

use ipoib_sys::bindings;
use kernel::error::from_result;
use kernel::ffi::{c_int, c_uint, c_ushort, c_void};
use kernel::prelude::*;

use crate::address::AddressList;
use crate::device::{Device, Driver, ADDR_LEN, HEADER_LEN};
use crate::header::Outgoing;
use crate::rtnl::Rtnl;
use crate::skb::TxSkb;

/// The tables of driver `T`.
pub(crate) struct Tables<T: Driver>(PhantomData<T>);

impl<T: Driver> Tables<T> {
    /// `dev->netdev_ops`.
    pub(crate) const NETDEV: bindings::net_device_ops = bindings::net_device_ops {
        ndo_init: Some(Self::init),
        ndo_uninit: Some(Self::uninit),
        ndo_open: Some(Self::open),
        ndo_stop: Some(Self::stop),
        ndo_start_xmit: Some(Self::transmit),
        ndo_tx_timeout: Some(Self::transmit_timeout),
        ndo_set_rx_mode_async: Some(Self::set_rx_mode),
        ndo_change_mtu: Some(Self::change_mtu),
        ndo_get_iflink: Some(Self::lower_ifindex),
        ndo_get_stats64: Some(Self::stats),
        ..pin_init::zeroed()
    };

    /// `dev->header_ops`.
    pub(crate) const HEADER: bindings::header_ops = bindings::header_ops {
        create: Some(Self::header),
        ..pin_init::zeroed()
    };

    /// # Safety
    ///
    /// Called by the network core for a filled device of `T`'s under RTNL.
    unsafe extern "C" fn init(dev: *mut bindings::net_device) -> c_int {
        from_result(|| {
            // SAFETY: By this function's requirements; whoever registers passed its token on.
            let (dev, mut rtnl) = unsafe { (Device::<T>::from_raw(dev), Rtnl::assume()) };
            T::init(dev, &mut rtnl)?;
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// As [`Self::init`].
    unsafe extern "C" fn uninit(dev: *mut bindings::net_device) {
        // SAFETY: By this function's requirements; whoever unregisters passed its token on.
        let (dev, mut rtnl) = unsafe { (Device::<T>::from_raw(dev), Rtnl::assume()) };
        dev.end_tasks();
        T::uninit(dev, &mut rtnl);
    }

    /// # Safety
    ///
    /// As [`Self::init`].
    unsafe extern "C" fn open(dev: *mut bindings::net_device) -> c_int {
        from_result(|| {
            // SAFETY: By this function's requirements.
            let (dev, mut rtnl) = unsafe { (Device::<T>::from_raw(dev), Rtnl::assume()) };
            T::open(dev, &mut rtnl)?;
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// As [`Self::init`].
    unsafe extern "C" fn stop(dev: *mut bindings::net_device) -> c_int {
        // SAFETY: By this function's requirements.
        let (dev, mut rtnl) = unsafe { (Device::<T>::from_raw(dev), Rtnl::assume()) };
        T::stop(dev, &mut rtnl);
        0
    }

    /// # Safety
    ///
    /// Called by the network core for a filled device of `T`'s under its transmit lock, with a
    /// frame that becomes ours.
    unsafe extern "C" fn transmit(
        skb: *mut bindings::sk_buff,
        dev: *mut bindings::net_device,
    ) -> bindings::netdev_tx_t {
        // SAFETY: By this function's requirements.
        let (dev, skb) = unsafe { (Device::<T>::from_raw(dev), TxSkb::from_raw(skb)) };
        // SAFETY: The core holds the transmit lock, and this is the one reference made under it.
        let Some(tx) = (unsafe { dev.tx_unlocked() }) else {
            skb.drop_reason(crate::skb::DropReason::DevReady);
            return bindings::netdev_tx_NETDEV_TX_OK;
        };
        T::transmit(dev, tx, skb).into_raw()
    }

    /// # Safety
    ///
    /// Called by the network core for a filled device of `T`'s.
    unsafe extern "C" fn transmit_timeout(dev: *mut bindings::net_device, _queue: c_uint) {
        // SAFETY: By this function's requirements.
        T::transmit_timeout(unsafe { Device::<T>::from_raw(dev) });
    }

    /// # Safety
    ///
    /// As [`Self::init`]; the lists are snapshots that are valid for the call.
    unsafe extern "C" fn set_rx_mode(
        dev: *mut bindings::net_device,
        _unicast: *mut bindings::netdev_hw_addr_list,
        multicast: *mut bindings::netdev_hw_addr_list,
    ) -> c_int {
        from_result(|| {
            // SAFETY: By this function's requirements.
            let (dev, groups) =
                unsafe { (Device::<T>::from_raw(dev), AddressList::from_raw(multicast)) };
            T::set_rx_mode(dev, &groups)?;
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// As [`Self::init`].
    unsafe extern "C" fn change_mtu(dev: *mut bindings::net_device, mtu: c_int) -> c_int {
        from_result(|| {
            // SAFETY: By this function's requirements; `RawDevice::set_mtu` passed its token on.
            let (raw, mut rtnl) = unsafe { (Device::<T>::from_raw(dev), Rtnl::assume()) };
            let mtu = u32::try_from(mtu).map_err(|_| EINVAL)?;
            T::change_mtu(raw, mtu, &mut rtnl)?;
            // SAFETY: RTNL is held; readers use a volatile read.
            unsafe { core::ptr::write_volatile(&raw mut (*dev).mtu, mtu) };
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Called by the network core for a filled device of `T`'s.
    unsafe extern "C" fn lower_ifindex(dev: *const bindings::net_device) -> c_int {
        // SAFETY: By this function's requirements.
        T::lower_ifindex(unsafe { Device::<T>::from_raw(dev.cast_mut()) })
    }

    /// # Safety
    ///
    /// Called by the network core for a filled device of `T`'s, with a valid `out`.
    unsafe extern "C" fn stats(
        dev: *mut bindings::net_device,
        out: *mut bindings::rtnl_link_stats64,
    ) {
        // SAFETY: By this function's requirements.
        let (dev, out) = unsafe { (Device::<T>::from_raw(dev), &mut *out) };
        T::stats(dev).fill(out);
    }

    /// # Safety
    ///
    /// Called by the network core for a filled device of `T`'s, with an skb that has
    /// `hard_header_len` of headroom and whose data begins with a packet that is or will be of
    /// `len` octets; `dest` is null or `addr_len` octets.
    unsafe extern "C" fn header(
        skb: *mut bindings::sk_buff,
        dev: *mut bindings::net_device,
        proto: c_ushort,
        dest: *const c_void,
        _source: *const c_void,
        len: c_uint,
    ) -> c_int {
        if dest.is_null() {
            // AF_PACKET may send without naming a destination: there is no header for that.
            return -(HEADER_LEN as c_int);
        }
        // SAFETY: By this function's requirements; nobody else has the skb.
        let (dev, packet, dest) = unsafe {
            (
                Device::<T>::from_raw(dev),
                Outgoing::from_raw(skb, len),
                &*dest.cast::<[u8; ADDR_LEN]>(),
            )
        };
        let Some(header) = T::header(dev, &packet, proto, dest) else {
            return -(HEADER_LEN as c_int);
        };
        // SAFETY: There is headroom for it by this function's requirements, and `skb_push` returns
        // where the pushed octets lie.
        unsafe {
            bindings::skb_push(skb, HEADER_LEN as c_uint)
                .cast::<[u8; HEADER_LEN]>()
                .write_unaligned(header);
        }
        HEADER_LEN as c_int
    }
}
