// SPDX-License-Identifier: GPL-2.0

//! The C side of [`Driver`]: `net_device_ops` and `header_ops`.

mod vf;

use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ptr;

use ipoib_sys::bindings;
use kernel::error::from_result;
use kernel::ffi::{c_int, c_uchar, c_uint, c_ushort, c_void};
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Release};

use crate::address::AddressList;
use crate::device::{Bytes, Device, Tasks};
use crate::header::Outgoing;
use crate::optional::optional;
use crate::rtnl::Rtnl;
use crate::skb::TxSkb;
use crate::stats::QueueStats;
use crate::vf::Functions;

/// The receive queue, and the transmit queue, that is used.
const USED: c_int = 0;

/// The tables of driver `T`.
pub(crate) struct Tables<T: Tasks + Functions>(PhantomData<T>);

impl<T: Tasks + Functions> Tables<T> {
    const HEADER_LEN: usize = Device::<T>::HEADER_LEN;

    /// Where in `hh_data` the link-layer header stands: at its end, which is aligned (`HH_DATA_OFF`).
    const CACHED_AT: usize = {
        let at =
            Self::HEADER_LEN.next_multiple_of(bindings::HH_DATA_MOD as usize) - Self::HEADER_LEN;
        // `hh_data` is the last field.
        let data = core::mem::offset_of!(bindings::hh_cache, hh_data);
        assert!(data + at + Self::HEADER_LEN <= size_of::<bindings::hh_cache>());
        at
    };

    /// Returns the link-layer header in `hh`, of `HEADER_LEN` bytes.
    ///
    /// # Safety
    ///
    /// `hh` must be valid.
    unsafe fn cached_header(hh: *mut bindings::hh_cache) -> *mut c_void {
        // SAFETY: Valid by this function's requirements; it lies within, as was asserted.
        unsafe {
            (&raw mut (*hh).hh_data)
                .cast::<c_void>()
                .byte_add(Self::CACHED_AT)
        }
    }

    /// `dev->netdev_ops`.
    pub(crate) const NETDEV: bindings::net_device_ops = bindings::net_device_ops {
        ndo_init: Some(Self::init),
        ndo_uninit: Some(Self::uninit),
        ndo_open: Some(Self::open),
        ndo_stop: Some(Self::stop),
        ndo_start_xmit: Some(Self::transmit),
        ndo_tx_timeout: optional!(HAS_TRANSMIT_TIMEOUT, transmit_timeout),
        ndo_set_rx_mode_async: optional!(HAS_SET_RX_MODE, set_rx_mode),
        ndo_change_mtu: optional!(HAS_CHANGE_MTU, change_mtu),
        ndo_set_mac_address: optional!(HAS_TAKE_ADDRESS, take_address),
        ndo_get_iflink: optional!(HAS_LOWER_IFINDEX, lower_ifindex),
        ndo_get_stats64: optional!(HAS_STATS, stats),
        ndo_set_vf_link_state: optional!(HAS_SET_LINK_STATE, set_vf_link_state),
        ndo_get_vf_config: optional!(HAS_CONFIG, get_vf_config),
        ndo_get_vf_stats: optional!(HAS_FUNCTION_STATS, get_vf_stats),
        ndo_get_vf_guid: optional!(HAS_GUIDS, get_vf_guid),
        ndo_set_vf_guid: optional!(HAS_SET_GUID, set_vf_guid),
        ..pin_init::zeroed()
    };

    /// `dev->stat_ops`, where the driver has the counters.
    pub(crate) const STAT: bindings::netdev_stat_ops = bindings::netdev_stat_ops {
        get_queue_stats_rx: optional!(HAS_QUEUE_STATS, receive_stats),
        get_queue_stats_tx: optional!(HAS_QUEUE_STATS, transmit_stats),
        get_base_stats: optional!(HAS_QUEUE_STATS, base_stats),
    };

    /// `dev->header_ops`.
    pub(crate) const HEADER: bindings::header_ops = bindings::header_ops {
        create: Some(Self::header),
        cache: Some(Self::cache),
        cache_update: Some(Self::cache_update),
        ..pin_init::zeroed()
    };

    /// # Safety
    ///
    /// Called by the network core for a filled device of `T`'s under RTNL.
    unsafe extern "C" fn init(dev: *mut bindings::net_device) -> c_int {
        from_result(|| {
            // SAFETY: By this function's requirements; whoever registers passed its token on.
            let (dev, mut rtnl) = unsafe { (Device::<T>::from_raw(dev), Rtnl::assume()) };
            // The core does not call `ndo_uninit` when this fails.
            if T::HAS_INIT {
                T::init(dev, &mut rtnl).inspect_err(|_| Self::end(dev, &mut rtnl))?;
            }
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// As [`Self::init`].
    unsafe extern "C" fn uninit(dev: *mut bindings::net_device) {
        // SAFETY: By this function's requirements; whoever unregisters passed its token on.
        let (dev, mut rtnl) = unsafe { (Device::<T>::from_raw(dev), Rtnl::assume()) };
        Self::end(dev, &mut rtnl);
    }

    /// Ends what this crate runs for the device, and undoes `init`.
    fn end(dev: &Device<T>, rtnl: &mut Rtnl) {
        dev.end_tasks();
        dev.clear_queue_napi(rtnl);
        if T::HAS_UNINIT {
            T::uninit(dev, rtnl);
        }
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
        let tx = unsafe { dev.tx_unlocked() };
        T::transmit(dev, tx.as_mut(), skb).into_raw()
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
            let mtu = T::change_mtu(raw, mtu, &mut rtnl)?;
            // SAFETY: RTNL is held; readers use a volatile read.
            unsafe { core::ptr::write_volatile(&raw mut (*dev).mtu, mtu) };
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// As [`Self::init`], with a `sockaddr_storage`.
    unsafe extern "C" fn take_address(
        dev: *mut bindings::net_device,
        address: *mut c_void,
    ) -> c_int {
        from_result(|| {
            const {
                assert!(size_of::<T::Address>() <= bindings::MAX_ADDR_LEN as usize);
            }
            // SAFETY: By this function's requirements; the storage has room for the longest address there is.
            let (dev, mut rtnl, address) = unsafe {
                (
                    Device::<T>::from_raw(dev),
                    Rtnl::assume(),
                    bindings::ipoib_rs_address_of(address)
                        .cast::<T::Address>()
                        .read(),
                )
            };
            T::take_address(dev, &address, &mut rtnl)?;
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
    /// Called by netdev-genl under RTNL for a filled device of `T`'s, with a valid `out`.
    unsafe extern "C" fn receive_stats(
        dev: *mut bindings::net_device,
        queue: c_int,
        out: *mut bindings::netdev_queue_stats_rx,
    ) {
        // SAFETY: By this function's requirements.
        let (dev, out) = unsafe { (Device::<T>::from_raw(dev), &mut *out) };
        if queue == USED {
            T::queue_stats(dev).fill_rx(out);
        }
    }

    /// # Safety
    ///
    /// As [`Self::receive_stats`].
    unsafe extern "C" fn transmit_stats(
        dev: *mut bindings::net_device,
        queue: c_int,
        out: *mut bindings::netdev_queue_stats_tx,
    ) {
        // SAFETY: By this function's requirements.
        let (dev, out) = unsafe { (Device::<T>::from_raw(dev), &mut *out) };
        if queue == USED {
            T::queue_stats(dev).fill_tx(out);
        }
    }

    /// # Safety
    ///
    /// As [`Self::receive_stats`], for both.
    unsafe extern "C" fn base_stats(
        _dev: *mut bindings::net_device,
        rx: *mut bindings::netdev_queue_stats_rx,
        tx: *mut bindings::netdev_queue_stats_tx,
    ) {
        // SAFETY: By this function's requirements.
        let (rx, tx) = unsafe { (&mut *rx, &mut *tx) };
        // Says which there are: the queues have all that the device ever counted.
        QueueStats::default().fill_rx(rx);
        QueueStats::default().fill_tx(tx);
    }

    /// # Safety
    ///
    /// Called by the network core for a filled device of `T`'s, with an skb that has
    /// `hard_header_len` of headroom and whose data begins with a packet that is or will be of
    /// `len` bytes; `dest` is null or `addr_len` bytes.
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
            return -(Self::HEADER_LEN as c_int);
        }
        // SAFETY: By this function's requirements; nobody else has the skb. `dest` may be a neighbour's
        // address, which is copied: it may be written meanwhile, and the header is made again then, since
        // the caller is in a section of `ha_lock`, a seqlock.
        let (dev, packet, dest) = unsafe {
            (
                Device::<T>::from_raw(dev),
                Outgoing::from_raw(skb, len),
                read_changing(dest.cast::<T::Address>()),
            )
        };
        if T::HAS_INSPECTS && T::inspects(dev, &dest) && !T::admit(dev, &packet, proto) {
            return -(Self::HEADER_LEN as c_int);
        }
        // SAFETY: There is headroom for it by this function's requirements, and `skb_push` returns
        // where the pushed bytes lie.
        unsafe {
            Self::write_header(
                bindings::skb_push(skb, Self::HEADER_LEN as c_uint),
                proto,
                &dest,
            )
        };
        Self::HEADER_LEN as c_int
    }

    /// Writes the link-layer header of packets of type `proto` for `dest`.
    ///
    /// # Safety
    ///
    /// `to` must be valid for writes of `HEADER_LEN` bytes.
    #[inline(always)]
    unsafe fn write_header(to: *mut c_void, proto: u16, dest: &T::Address) {
        // SAFETY: By this function's requirements.
        unsafe {
            to.cast::<T::Address>().write(*dest);
            to.byte_add(size_of::<T::Address>())
                .cast::<T::Header>()
                .write(T::header(proto));
        }
    }

    /// # Safety
    ///
    /// Called by the neighbour subsystem for a neighbour on a filled device of `T`'s, which is locked for
    /// writing, so that its address does not change, with its own `hh`, which has no header yet.
    unsafe extern "C" fn cache(
        neighbour: *const bindings::neighbour,
        hh: *mut bindings::hh_cache,
        proto: bindings::__be16,
    ) -> c_int {
        // SAFETY: By this function's requirements; a neighbour's address takes `MAX_ADDR_LEN` bytes.
        let (dev, dest) = unsafe {
            (
                Device::<T>::from_raw((*neighbour).dev),
                (&raw const (*neighbour).ha).cast::<T::Address>().read(),
            )
        };
        if T::HAS_INSPECTS && T::inspects(dev, &dest) {
            return -1;
        }
        // SAFETY: By this function's requirements; nobody reads what `hh_len` does not count. It pairs with
        // the loads of `neigh_output` and `neigh_hh_output`.
        unsafe {
            Self::write_header(Self::cached_header(hh), u16::from_be(proto), &dest);
            Atomic::from_ptr(&raw mut (*hh).hh_len).store(Self::HEADER_LEN as c_uint, Release);
        }
        0
    }

    /// # Safety
    ///
    /// Called by the neighbour subsystem with a header that [`Self::cache`] made, whose `hh_lock`, a seqlock,
    /// is held for writing, and the neighbour's new address.
    unsafe extern "C" fn cache_update(
        hh: *mut bindings::hh_cache,
        _dev: *const bindings::net_device,
        address: *const c_uchar,
    ) {
        // SAFETY: By this function's requirements. Who reads meanwhile does so once more.
        unsafe {
            ptr::copy_nonoverlapping(
                address,
                Self::cached_header(hh).cast(),
                size_of::<T::Address>(),
            )
        };
    }
}

/// A word at any address.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Word(u32);

/// Reads what may be written meanwhile, a word at a time: the compiler would read all of it byte by byte.
///
/// # Safety
///
/// `from` must be valid for reads.
#[inline(always)]
unsafe fn read_changing<B: Bytes>(from: *const B) -> B {
    let mut value = MaybeUninit::<B>::uninit();
    let to = value.as_mut_ptr();
    let words = size_of::<B>() / size_of::<Word>();
    // SAFETY: By this function's requirements. So many words and bytes are the type's, an array of bytes, all of
    // which is written.
    unsafe {
        for i in 0..words {
            let word = from.cast::<Word>().add(i).read_volatile();
            to.cast::<Word>().add(i).write(word);
        }
        for i in words * size_of::<Word>()..size_of::<B>() {
            let byte = from.cast::<u8>().add(i).read_volatile();
            to.cast::<u8>().add(i).write(byte);
        }
        value.assume_init()
    }
}
