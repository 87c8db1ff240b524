// SPDX-License-Identifier: GPL-2.0

//! The C side of [`Driver`] for `ethtool`.

use core::marker::PhantomData;

use ipoib_sys::bindings;
use kernel::error::{from_result, VTABLE_DEFAULT_ERROR};
use kernel::ffi::{c_char, c_int};
use kernel::prelude::*;

use crate::device::{Device, Driver};
use crate::extack::Extack;
use crate::optional::optional;
use crate::rtnl::Rtnl;

/// The rings' sizes, as `ethtool -g` shows them.
pub struct RingSizes {
    /// Frames in the receive ring.
    pub receive: u32,
    /// Frames in the transmit ring.
    pub transmit: u32,
    /// The most that the receive ring can have.
    pub max_receive: u32,
    /// The most that the transmit ring can have.
    pub max_transmit: u32,
}

/// Interrupt moderation of received frames, as `ethtool -c` shows it: completions are reported when either
/// is reached.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Moderation {
    /// Microseconds after the first.
    pub usecs: u16,
    /// How many there are.
    pub frames: u16,
}

/// The texts of `ethtool -i` beside the driver's name.
pub struct Identity<'a> {
    bus: &'a mut [c_char],
    firmware: &'a mut [c_char],
}

impl Identity<'_> {
    /// Sets the bus address of the device.
    pub fn set_bus(&mut self, text: &[u8]) {
        copy(self.bus, text);
    }

    /// Sets the version of the firmware.
    pub fn set_firmware(&mut self, text: &[u8]) {
        copy(self.firmware, text);
    }
}

/// The ethtool operations of a driver's devices; all of them are optional.
///
/// All run under RTNL in process context, and may sleep.
#[vtable]
pub trait Ethtool: Driver {
    /// Names of the counters of `ethtool -S`, in the order of [`Ethtool::counters`].
    const COUNTERS: &'static [&'static str] = &[];

    /// Fills the counters of `ethtool -S`, one for each name in [`Ethtool::COUNTERS`].
    fn counters(_dev: &Device<Self>, _out: &mut [u64]) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Says where the device sits and its firmware's version, for `ethtool -i`.
    fn identity(_dev: &Device<Self>, _identity: &mut Identity<'_>) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Returns the link speed in Mbit/s; 0 for unknown, as without a carrier.
    fn speed_mbps(_dev: &Device<Self>, _rtnl: &mut Rtnl) -> u32 {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Returns the rings' sizes.
    fn ring_sizes(_dev: &Device<Self>) -> RingSizes {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Gives the rings other sizes, for `ethtool -G`; neither is above the most that
    /// [`Ethtool::ring_sizes`] says.
    ///
    /// # Errors
    ///
    /// Whatever forbids it; the sizes are as before then.
    fn set_ring_sizes(
        _dev: &Device<Self>,
        _receive: u32,
        _transmit: u32,
        _extack: &Extack<'_>,
        _rtnl: &mut Rtnl,
    ) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Returns the moderation in force.
    fn moderation(_dev: &Device<Self>) -> Moderation {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Changes the moderation, for `ethtool -C`.
    ///
    /// # Errors
    ///
    /// Whatever forbids it; nothing has changed then.
    fn set_moderation(
        _dev: &Device<Self>,
        _moderation: Moderation,
        _extack: &Extack<'_>,
        _rtnl: &mut Rtnl,
    ) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

/// Copies as much of `text` as fits in front of a terminating zero.
fn copy(out: &mut [c_char], text: &[u8]) {
    let Some(last) = out.len().checked_sub(1) else {
        return;
    };
    let n = text.len().min(last);
    for (to, from) in out.iter_mut().zip(&text[..n]) {
        *to = *from as c_char;
    }
    out[n] = 0;
}

/// The table of driver `T`.
pub(crate) struct Table<T: Ethtool>(PhantomData<T>);

impl<T: Ethtool> Table<T> {
    /// `dev->ethtool_ops`.
    pub(crate) const OPS: bindings::ethtool_ops = bindings::ethtool_ops {
        get_drvinfo: Some(Self::drvinfo),
        get_link: Some(bindings::ethtool_op_get_link),
        // `TxSkb::timestamp` makes them.
        get_ts_info: Some(bindings::ethtool_op_get_ts_info),
        get_sset_count: optional!(HAS_COUNTERS, sset_count),
        get_strings: optional!(HAS_COUNTERS, strings),
        get_ethtool_stats: optional!(HAS_COUNTERS, counters),
        get_link_ksettings: optional!(HAS_SPEED_MBPS, link_settings),
        get_ringparam: optional!(HAS_RING_SIZES, ring),
        set_ringparam: optional!(HAS_SET_RING_SIZES, set_ring),
        supported_coalesce_params: if T::HAS_SET_MODERATION {
            bindings::IPOIB_RS_COALESCE
        } else {
            0
        },
        get_coalesce: optional!(HAS_MODERATION, coalesce),
        set_coalesce: optional!(HAS_SET_MODERATION, set_coalesce),
        ..pin_init::zeroed()
    };

    /// # Safety
    ///
    /// Called by ethtool under RTNL for a filled device of `T`'s, with a valid `info`.
    unsafe extern "C" fn drvinfo(
        dev: *mut bindings::net_device,
        info: *mut bindings::ethtool_drvinfo,
    ) {
        // SAFETY: By this function's requirements.
        let (dev, info) = unsafe { (Device::<T>::from_raw(dev), &mut *info) };
        copy(&mut info.driver, T::NAME.to_bytes());
        if T::HAS_IDENTITY {
            let mut identity = Identity {
                bus: &mut info.bus_info,
                firmware: &mut info.fw_version,
            };
            T::identity(dev, &mut identity);
        }
    }

    /// # Safety
    ///
    /// Called by ethtool for a device of `T`'s.
    unsafe extern "C" fn sset_count(_dev: *mut bindings::net_device, set: c_int) -> c_int {
        if set == bindings::ethtool_stringset_ETH_SS_STATS as c_int {
            T::COUNTERS.len() as c_int
        } else {
            EOPNOTSUPP.to_errno()
        }
    }

    /// # Safety
    ///
    /// Called by ethtool for a device of `T`'s, with room for as many strings as
    /// [`Self::sset_count`] said.
    unsafe extern "C" fn strings(_dev: *mut bindings::net_device, set: u32, out: *mut u8) {
        if set != bindings::ethtool_stringset_ETH_SS_STATS {
            return;
        }
        const LEN: usize = bindings::ETH_GSTRING_LEN as usize;
        for (i, name) in T::COUNTERS.iter().enumerate() {
            // SAFETY: There is room for `COUNTERS.len()` strings of `LEN`, by the requirements.
            let out = unsafe { core::slice::from_raw_parts_mut(out.add(i * LEN), LEN) };
            copy(out, name.as_bytes());
        }
    }

    /// # Safety
    ///
    /// Called by ethtool under RTNL for a filled device of `T`'s, with room for as many numbers as
    /// [`Self::sset_count`] said.
    unsafe extern "C" fn counters(
        dev: *mut bindings::net_device,
        _stats: *mut bindings::ethtool_stats,
        out: *mut u64,
    ) {
        // SAFETY: By this function's requirements.
        let (dev, out) = unsafe {
            (
                Device::<T>::from_raw(dev),
                core::slice::from_raw_parts_mut(out, T::COUNTERS.len()),
            )
        };
        T::counters(dev, out);
    }

    /// # Safety
    ///
    /// Called by ethtool under RTNL for a filled device of `T`'s, with a valid `settings`.
    unsafe extern "C" fn link_settings(
        dev: *mut bindings::net_device,
        settings: *mut bindings::ethtool_link_ksettings,
    ) -> c_int {
        // SAFETY: By this function's requirements.
        let (dev, mut rtnl, base) = unsafe {
            (
                Device::<T>::from_raw(dev),
                Rtnl::assume(),
                &mut (*settings).base,
            )
        };
        let (speed, duplex) = match T::speed_mbps(dev, &mut rtnl) {
            0 => (bindings::SPEED_UNKNOWN as u32, bindings::DUPLEX_UNKNOWN),
            speed => (speed, bindings::DUPLEX_FULL),
        };
        base.speed = speed;
        base.duplex = duplex as u8;
        base.autoneg = bindings::AUTONEG_DISABLE as u8;
        base.port = bindings::PORT_OTHER as u8;
        0
    }

    /// # Safety
    ///
    /// Called by ethtool under RTNL for a filled device of `T`'s, with a valid `ring`.
    unsafe extern "C" fn ring(
        dev: *mut bindings::net_device,
        ring: *mut bindings::ethtool_ringparam,
        _kernel: *mut bindings::kernel_ethtool_ringparam,
        _extack: *mut bindings::netlink_ext_ack,
    ) {
        // SAFETY: By this function's requirements.
        let (dev, ring) = unsafe { (Device::<T>::from_raw(dev), &mut *ring) };
        let sizes = T::ring_sizes(dev);
        ring.rx_pending = sizes.receive;
        ring.rx_max_pending = sizes.max_receive;
        ring.tx_pending = sizes.transmit;
        ring.tx_max_pending = sizes.max_transmit;
    }

    /// # Safety
    ///
    /// As [`Self::ring`], with a valid `extack` or null.
    unsafe extern "C" fn set_ring(
        dev: *mut bindings::net_device,
        ring: *mut bindings::ethtool_ringparam,
        _kernel: *mut bindings::kernel_ethtool_ringparam,
        extack: *mut bindings::netlink_ext_ack,
    ) -> c_int {
        from_result(|| {
            // SAFETY: By this function's requirements.
            let (dev, ring, extack, mut rtnl) = unsafe {
                (
                    Device::<T>::from_raw(dev),
                    &*ring,
                    Extack::from_raw(extack),
                    Rtnl::assume(),
                )
            };
            T::set_ring_sizes(dev, ring.rx_pending, ring.tx_pending, &extack, &mut rtnl)?;
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// As [`Self::ring`], with a valid `coalesce`.
    unsafe extern "C" fn coalesce(
        dev: *mut bindings::net_device,
        coalesce: *mut bindings::ethtool_coalesce,
        _kernel: *mut bindings::kernel_ethtool_coalesce,
        _extack: *mut bindings::netlink_ext_ack,
    ) -> c_int {
        // SAFETY: By this function's requirements.
        let (dev, coalesce) = unsafe { (Device::<T>::from_raw(dev), &mut *coalesce) };
        let moderation = T::moderation(dev);
        coalesce.rx_coalesce_usecs = moderation.usecs.into();
        coalesce.rx_max_coalesced_frames = moderation.frames.into();
        0
    }

    /// # Safety
    ///
    /// As [`Self::coalesce`], with a valid `extack` or null.
    unsafe extern "C" fn set_coalesce(
        dev: *mut bindings::net_device,
        coalesce: *mut bindings::ethtool_coalesce,
        _kernel: *mut bindings::kernel_ethtool_coalesce,
        extack: *mut bindings::netlink_ext_ack,
    ) -> c_int {
        from_result(|| {
            // SAFETY: By this function's requirements.
            let (dev, coalesce, extack, mut rtnl) = unsafe {
                (
                    Device::<T>::from_raw(dev),
                    &*coalesce,
                    Extack::from_raw(extack),
                    Rtnl::assume(),
                )
            };
            let (Ok(usecs), Ok(frames)) = (
                coalesce.rx_coalesce_usecs.try_into(),
                coalesce.rx_max_coalesced_frames.try_into(),
            ) else {
                return Err(extack.refuse(c"Values must not exceed 65535", EINVAL));
            };
            T::set_moderation(dev, Moderation { usecs, frames }, &extack, &mut rtnl)?;
            Ok(0)
        })
    }
}
