// SPDX-License-Identifier: GPL-2.0

//! Creation of devices by `ip link add … type <kind>`.
//!
//! C headers: [`include/net/rtnetlink.h`](srctree/include/net/rtnetlink.h).

use core::marker::PhantomData;

use ipoib_sys::bindings;
use ipoib_sys::text::TextRef;
use kernel::error::{from_err_ptr, from_result, to_result, VTABLE_DEFAULT_ERROR};
use kernel::ffi::c_int;
use kernel::prelude::*;
use kernel::str::CStr;
use kernel::sync::Arc;
use kernel::types::Opaque;

use crate::attributes;
pub use crate::attributes::{are_distinct, Attributes, Message, Policy, Text, Type, Value};
use crate::device::{Device, OwnedDevice, RawDevice, Tasks};
use crate::ethtool::{self, Ethtool};
pub use crate::extack::Extack;
use crate::files::{self, Files};
use crate::net::Net;
use crate::ops::Tables;
use crate::optional::optional;
use crate::rtnl::{Rtnl, RtnlCell, RtnlGuard};
use crate::vf::Functions;

/// Parameters of a new device.
pub struct Request<'a> {
    /// The device that it is to stand on (`link`).
    pub lower: Option<&'a RawDevice>,
    /// The namespace that names in the request are of, in which the caller may configure the network.
    pub net: &'a Net,
    /// Its MTU, if one was asked for.
    pub mtu: Option<u32>,
    /// The kind's own attributes.
    pub attributes: &'a Attributes<'a>,
    /// Where to say what is wrong.
    pub extack: &'a Extack<'a>,
}

/// A driver whose devices are made by netlink.
///
/// # Examples
///
/// `samples/rust_loopback` registers a kind of link.
#[vtable]
pub trait Link: Ethtool + Files + Functions + Tasks {
    /// The kind's own attributes, as [`link_attributes`](crate::link_attributes) declares them.
    const ATTRIBUTES: Policy = &[];

    /// Checks a request before anything is made.
    ///
    /// # Errors
    ///
    /// `EINVAL` or another error, with a text.
    fn validate(_attributes: &Attributes<'_>, _extack: &Extack<'_>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Makes the driver's data for a new device.
    ///
    /// # Errors
    ///
    /// Why there is to be no such device, with a text.
    fn create(request: &Request<'_>, rtnl: &mut Rtnl) -> Result<impl PinInit<Self, Error>>;

    /// Changes a device.
    ///
    /// # Errors
    ///
    /// The error of a change that is not possible, with a text; nothing has changed then.
    fn change(
        _dev: &Device<Self>,
        _attributes: &Attributes<'_>,
        _extack: &Extack<'_>,
        _rtnl: &mut Rtnl,
    ) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Calls `f` for each device that has to go when `dev` goes, `dev` itself not included. Those that are not
    /// registered any more may be among them.
    fn dependents(_dev: &Device<Self>, _rtnl: &mut Rtnl, _f: &mut dyn FnMut(&Device<Self>)) {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Describes a device.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE`: no room.
    fn describe(_dev: &Device<Self>, _message: &mut Message<'_>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

impl<T: Link> OwnedDevice<T> {
    /// Unregisters the device, if it still is registered, and gives the reference back. The device
    /// is gone when RTNL has been released.
    ///
    /// # Context
    ///
    /// Under RTNL that the caller has taken itself; not in a callback, after which the stack goes on using the
    /// device. Sleeps. Not in a write to a file or a sysctl of the device: this waits for such writes.
    pub fn unregister(self, _rtnl: &mut RtnlGuard) {
        // SAFETY: RTNL is held, and we hold a reference.
        unsafe { bindings::ipoib_rs_netdev_unregister(self.as_raw(), core::ptr::null_mut()) };
    }
}

/// The namespace of a new device.
pub enum Home<'a> {
    /// This one.
    Net(&'a Net),
    /// That of another device.
    Of(&'a RawDevice),
}

/// A registered kind of link. Dropping it deletes all its devices.
///
/// # Context
///
/// Made and dropped in process context without RTNL.
pub struct Registration<T: Link>(Kind<T>, TextRef);

/// A kind of link, which may have ended since.
///
/// # Invariants
///
/// `ops` is registered for devices of `T`'s while its `open` is true, and its devices are deleted afterwards.
pub struct Kind<T: Link> {
    ops: Arc<LinkOps>,
    _driver: PhantomData<fn() -> T>,
}

#[pin_data]
struct LinkOps {
    #[pin]
    ops: Opaque<bindings::ipoib_rs_kind>,
    policy: KVec<bindings::nla_policy>,
    files: files::Group,
    /// True if devices may be made.
    open: RtnlCell<bool>,
}

// SAFETY: Rtnetlink does its own locking.
unsafe impl Send for LinkOps {}
// SAFETY: As above.
unsafe impl Sync for LinkOps {}

impl<T: Link> Registration<T> {
    /// Fails to compile if the core would refuse what the driver is made of, or warn of it.
    const IS_POSSIBLE: () = {
        assert!(
            T::FILES.is_empty() || T::HAS_SHOW && T::HAS_STORE,
            "files are read and written"
        );
        assert!(
            attributes::highest(T::ATTRIBUTES) <= attributes::MAX,
            "rtnetlink knows no higher number"
        );
        assert!(
            attributes::are_distinct(T::ATTRIBUTES),
            "netlink checks a number as one type"
        );
        assert!(
            files::may_be(T::FILES),
            "sysfs lets nobody else write or run a file"
        );
    };

    /// Returns the operations that devices of this kind refer to.
    pub(crate) fn as_raw(&self) -> *const bindings::rtnl_link_ops {
        self.0.as_raw()
    }

    /// The kind, for those who make devices of it.
    pub fn kind(&self) -> Kind<T> {
        self.0.clone()
    }

    /// Registers `kind`.
    ///
    /// # Errors
    ///
    /// `EEXIST`: another driver has that kind.
    pub fn new(kind: &'static CStr) -> Result<Self> {
        let () = Self::IS_POSSIBLE;
        let policy = attributes::table(T::ATTRIBUTES)?;
        let table = policy.as_ptr();
        let files = files::Group::new::<T>()?;
        let group = if T::FILES.is_empty() {
            core::ptr::null()
        } else {
            files.as_raw()
        };
        let ops = Arc::pin_init(
            try_pin_init!(LinkOps {
                ops <- Opaque::ffi_init(|slot: *mut bindings::ipoib_rs_kind| {
                    let ops = bindings::rtnl_link_ops {
                        kind: kind.as_char_ptr(),
                        priv_size: Device::<T>::PRIVATE_SIZE,
                        setup: Some(setup::<T>),
                        maxtype: u32::from(attributes::highest(T::ATTRIBUTES)),
                        policy: table,
                        validate: optional!(HAS_VALIDATE, validate::<T>),
                        newlink: Some(newlink::<T>),
                        changelink: optional!(HAS_CHANGE, changelink::<T>),
                        dellink: Some(dellink::<T>),
                        get_size: Some(size::<T>),
                        fill_info: optional!(HAS_DESCRIBE, fill_info::<T>),
                        get_link_net: optional!(HAS_WITH_LOWER, link_net::<T>),
                        ..pin_init::zeroed()
                    };
                    // SAFETY: `slot` is valid for writes.
                    unsafe {
                        slot.write(bindings::ipoib_rs_kind {
                            ops,
                            files: group,
                            has: Some(files::has::<T>),
                            show: optional!(HAS_SHOW, files::show::<T>),
                            store: optional!(HAS_STORE, files::store::<T>),
                        });
                    }
                }),
                policy,
                files,
                open: RtnlCell::new(false),
            }? Error),
            GFP_KERNEL,
        )?;
        // SAFETY: The table is pinned, with its policy, until `Drop` unregistered it.
        to_result(unsafe { bindings::rtnl_link_register(&raw mut (*ops.ops.get()).ops) })?;
        *ops.open.get(&mut Rtnl::lock()) = true;
        // INVARIANT: Just registered.
        let kind = Kind {
            ops,
            _driver: PhantomData,
        };
        Ok(Self(kind, TextRef::new()))
    }
}

/// Declares a module that is no more than a driver of links, whose kind is [`Driver::NAME`](crate::device::Driver::NAME):
/// loading it registers the kind, and unloading it deletes its devices.
///
/// # Examples
///
/// `samples/rust_loopback` is such a module.
#[macro_export]
macro_rules! module_link_driver {
    (type: $driver:ty, $($info:tt)*) => {
        struct LinkDriverModule {
            _links: $crate::link::Registration<$driver>,
        }

        impl ::kernel::Module for LinkDriverModule {
            fn init(_module: &'static ::kernel::ThisModule) -> ::kernel::error::Result<Self> {
                let kind = <$driver as $crate::device::Driver>::NAME;
                let links = $crate::link::Registration::new(kind)?;
                Ok(Self { _links: links })
            }
        }

        ::kernel::prelude::module! {
            type: LinkDriverModule,
            $($info)*
        }
    };
}

impl<T: Link> Drop for Registration<T> {
    fn drop(&mut self) {
        let ops = &self.0.ops;
        *ops.open.get(&mut Rtnl::lock()) = false;
        // SAFETY: Registered by `new`. It deletes the devices that there are, and no more are made.
        unsafe { bindings::rtnl_link_unregister(&raw mut (*ops.ops.get()).ops) };
    }
}

impl<T: Link> Clone for Kind<T> {
    fn clone(&self) -> Self {
        // INVARIANT: That of `self`.
        Self {
            ops: self.ops.clone(),
            _driver: PhantomData,
        }
    }
}

impl<T: Link> Kind<T> {
    fn as_raw(&self) -> *const bindings::rtnl_link_ops {
        // SAFETY: Computing a field's address does not read it.
        unsafe { &raw const (*self.ops.ops.get()).ops }
    }

    /// Makes and registers a device that nobody has asked for by netlink. A `%d` in `name` becomes the lowest
    /// number that is free.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the kind or the namespace has ended; `ENOMEM`, `EEXIST`, `EINVAL` for a name that cannot be; those of `init` and
    /// of [`Driver::init`](crate::device::Driver::init).
    pub fn make(
        &self,
        name: &CStr,
        home: Home<'_>,
        init: impl PinInit<T, Error>,
        rtnl: &mut Rtnl,
    ) -> Result<OwnedDevice<T>> {
        if !*self.ops.open.get(rtnl) {
            return Err(ENODEV);
        }
        // The kernel stops for a name that is too long.
        if name.to_bytes().len() >= bindings::IFNAMSIZ as usize {
            return Err(EINVAL);
        }
        let net = match home {
            Home::Net(net) => net.as_raw(),
            Home::Of(dev) if !dev.is_registered(rtnl) => return Err(ENODEV),
            // SAFETY: A registered device is in some namespace, which RTNL keeps there.
            Home::Of(dev) => unsafe { bindings::ipoib_rs_netdev_net(dev.as_raw()) },
        };
        // SAFETY: The namespace is alive; under RTNL, one that has not ended takes the device with it if it ends.
        if unsafe { bindings::ipoib_rs_net_ends(net) } {
            return Err(ENODEV);
        }
        // SAFETY: The private area has the size that `setup` wants; the name is copied, and short enough; the namespace
        // is alive.
        // The table stays registered while there are devices that refer to it, by the type invariant.
        let dev = unsafe {
            bindings::ipoib_rs_netdev_alloc(
                Device::<T>::PRIVATE_SIZE as c_int,
                name.as_char_ptr(),
                Some(setup::<T>),
                net,
                self.as_raw(),
            )
        };
        if dev.is_null() {
            return Err(ENOMEM);
        }
        // SAFETY: `setup` has seen it, nobody else knows it, RTNL is held, and our token is not used meanwhile.
        if let Err(error) = unsafe { register(dev, init) } {
            // SAFETY: Registration has failed, and nobody else frees it.
            unsafe { bindings::free_netdev(dev) };
            return Err(error);
        }
        // SAFETY: Registered, and filled by `register`.
        Ok(unsafe { Device::<T>::from_raw(dev) }.get_typed())
    }
}

/// # Safety
///
/// Called by `alloc_netdev` for a device that has no driver yet.
pub(crate) unsafe extern "C" fn setup<T: Link>(dev: *mut bindings::net_device) {
    let layout = bindings::ipoib_rs_layout {
        arp_type: T::LAYOUT.arp_type,
        addr_len: size_of::<T::Address>() as u8,
        header_len: Device::<T>::HEADER_LEN as u8,
        tx_queue_len: T::LAYOUT.tx_queue_len,
        watchdog_jiffies: kernel::time::msecs_to_jiffies(T::LAYOUT.watchdog_ms) as c_int,
    };
    // SAFETY: The device is being set up and nobody else knows it; the tables are constants.
    unsafe {
        bindings::ipoib_rs_netdev_setup(dev, &layout);
        (*dev).netdev_ops = const { &Tables::<T>::NETDEV };
        if T::HAS_HEADER {
            (*dev).header_ops = const { &Tables::<T>::HEADER };
        }
        if T::HAS_QUEUE_STATS {
            (*dev).stat_ops = const { &Tables::<T>::STAT };
        }
        (*dev).ethtool_ops = const { &ethtool::Table::<T>::OPS };
        (*dev).priv_destructor = Some(destroy::<T>);
    }
}

/// # Safety
///
/// Called by the network core after `ndo_uninit`, under RTNL if the device's registration failed.
unsafe extern "C" fn destroy<T: Link>(dev: *mut bindings::net_device) {
    // SAFETY: `ndo_uninit` has run by this function's requirements.
    unsafe { Device::<T>::empty(dev) };
}

/// # Safety
///
/// Called by rtnetlink, with parsed attributes.
unsafe extern "C" fn validate<T: Link>(
    _tb: *mut *mut bindings::nlattr,
    data: *mut *mut bindings::nlattr,
    extack: *mut bindings::netlink_ext_ack,
) -> c_int {
    from_result(|| {
        // SAFETY: By this function's requirements.
        let (attributes, extack) = unsafe { request::<T>(data, extack) };
        T::validate(&attributes, &extack)?;
        Ok(0)
    })
}

/// # Safety
///
/// Called by rtnetlink under RTNL, with parsed attributes, for a device that [`setup`] saw.
unsafe extern "C" fn newlink<T: Link>(
    dev: *mut bindings::net_device,
    params: *mut bindings::rtnl_newlink_params,
    extack: *mut bindings::netlink_ext_ack,
) -> c_int {
    from_result(|| {
        // SAFETY: By this function's requirements.
        let (mut rtnl, (attributes, extack), lower, net) = unsafe {
            (
                Rtnl::assume(),
                request::<T>((*params).data, extack),
                bindings::ipoib_rs_newlink_lower(params),
                Net::from_raw(bindings::ipoib_rs_newlink_net(params)),
            )
        };
        let lower = from_err_ptr(lower)
            .map_err(|error| extack.refuse(c"The link does not exist", error))?;
        // SAFETY: RTNL keeps the device that was found.
        let lower = (!lower.is_null()).then(|| unsafe { RawDevice::from_raw(lower) });
        // SAFETY: By this function's requirements.
        let mtu = unsafe { bindings::ipoib_rs_newlink_mtu(params) };
        let request = Request {
            lower,
            net,
            mtu: (mtu != 0).then_some(mtu),
            attributes: &attributes,
            extack: &extack,
        };
        // SAFETY: By this function's requirements.
        let queues = unsafe { ((*dev).num_tx_queues, (*dev).num_rx_queues) };
        // A frame may be sent by any queue that was allocated, and there is one transmit lock.
        if queues != (1, 1) {
            extack.say(c"The interface has one queue in each direction");
            return Err(EINVAL);
        }
        let init = T::create(&request, &mut rtnl)?;
        // SAFETY: `setup` made the device, and nobody else knows it. Our token is not used meanwhile.
        unsafe { register(dev, init) }.inspect_err(|_| {
            extack.say(c"The interface cannot be registered; the kernel log may say why");
        })?;
        Ok(0)
    })
}

/// Fills and registers a device.
///
/// # Errors
///
/// Those of `init` and of registration; the device has no data of the driver's then, and can be freed, or
/// will have none when it is freed.
///
/// # Safety
///
/// [`setup`] must have seen the device, which nobody else knows. RTNL must be held, and no token be used
/// while the core calls back.
pub(crate) unsafe fn register<T: Link>(
    dev: *mut bindings::net_device,
    init: impl PinInit<T, Error>,
) -> Result {
    // SAFETY: By this function's requirements.
    unsafe {
        Device::<T>::fill(dev, init)?;
        if !(*dev).rtnl_link_ops.is_null() {
            bindings::ipoib_rs_netdev_add_files(dev);
        }
        let result = to_result(bindings::register_netdevice(dev));
        let is_fresh =
            u32::from((*dev).reg_state) == bindings::netdev_reg_state_NETREG_UNINITIALIZED;
        if result.is_err() && is_fresh {
            // `ndo_init` has failed, or did not run. Otherwise the core has called the destructor, or
            // will when nobody refers to the device any more.
            Device::<T>::empty(dev);
        }
        result
    }
}

/// # Safety
///
/// Called by rtnetlink under RTNL, with parsed attributes, for a registered device of `T`'s.
unsafe extern "C" fn changelink<T: Link>(
    dev: *mut bindings::net_device,
    _tb: *mut *mut bindings::nlattr,
    data: *mut *mut bindings::nlattr,
    extack: *mut bindings::netlink_ext_ack,
) -> c_int {
    from_result(|| {
        // SAFETY: By this function's requirements.
        let (dev, mut rtnl, (attributes, extack)) = unsafe {
            (
                Device::<T>::from_raw(dev),
                Rtnl::assume(),
                request::<T>(data, extack),
            )
        };
        T::change(dev, &attributes, &extack, &mut rtnl)?;
        Ok(0)
    })
}

/// # Safety
///
/// Called by rtnetlink under RTNL for a registered device of `T`'s, with a list to collect on.
unsafe extern "C" fn dellink<T: Link>(
    dev: *mut bindings::net_device,
    list: *mut bindings::list_head,
) {
    // SAFETY: By this function's requirements.
    let (typed, mut rtnl) = unsafe { (Device::<T>::from_raw(dev), Rtnl::assume()) };
    if T::HAS_DEPENDENTS {
        T::dependents(typed, &mut rtnl, &mut |dependent| {
            // SAFETY: RTNL is held; with a list this only collects and calls nobody back.
            unsafe { bindings::ipoib_rs_netdev_unregister(dependent.as_raw(), list) };
        });
    }
    // SAFETY: As above.
    unsafe { bindings::unregister_netdevice_queue(dev, list) };
}

/// # Safety
///
/// Called by rtnetlink.
unsafe extern "C" fn size<T: Link>(_dev: *const bindings::net_device) -> usize {
    attributes::room(T::ATTRIBUTES)
}

/// # Safety
///
/// Called by rtnetlink under RTNL for a device of `T`'s, with a message under construction.
unsafe extern "C" fn fill_info<T: Link>(
    skb: *mut bindings::sk_buff,
    dev: *const bindings::net_device,
) -> c_int {
    from_result(|| {
        // SAFETY: By this function's requirements.
        let (dev, mut message) = unsafe {
            (
                Device::<T>::from_raw(dev.cast_mut()),
                Message::from_raw(skb),
            )
        };
        T::describe(dev, &mut message)?;
        Ok(0)
    })
}

/// # Safety
///
/// Called by rtnetlink under RTNL for a device of `T`'s.
unsafe extern "C" fn link_net<T: Link>(dev: *const bindings::net_device) -> *mut bindings::net {
    // SAFETY: By this function's requirements; any device is in some namespace. The token is of use only in between.
    let (dev, mut net, mut rtnl) = unsafe {
        (
            Device::<T>::from_raw(dev.cast_mut()),
            bindings::ipoib_rs_netdev_net(dev),
            Rtnl::assume(),
        )
    };
    T::with_lower(dev, &mut |lower| {
        // One that was unregistered does not keep its namespace.
        if lower.is_registered(&mut rtnl) {
            // SAFETY: A reference to a registered device.
            net = unsafe { bindings::ipoib_rs_netdev_net(lower.as_raw()) };
        }
    });
    net
}

/// # Safety
///
/// `data` and `extack` must be as rtnetlink passes them, and stay so during `'a`.
unsafe fn request<'a, T: Link>(
    data: *mut *mut bindings::nlattr,
    extack: *mut bindings::netlink_ext_ack,
) -> (Attributes<'a>, Extack<'a>) {
    // SAFETY: Rtnetlink allocates `maxtype + 1` pointers and has checked them against the policy; the rest by
    // this function's requirements.
    unsafe {
        (
            Attributes::from_raw(data, T::ATTRIBUTES),
            Extack::from_raw(extack),
        )
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[kunit_tests(rust_netdev_link)]
mod tests {
    use kernel::sync::atomic::Relaxed;

    use super::*;
    use crate::dummy::{Dummy, Registered, Seen};

    /// The kernel stops for a name that is too long; others that cannot be it refuses by itself.
    #[test]
    fn long_names_are_refused() -> Result {
        let registered = Registered::new(&Seen::new()?, |_| Ok(()))?;
        let links = Registration::<Dummy>::new(c"kunit")?;
        for (name, expected) in [
            (c"kunit_net_device", Some(EINVAL)),
            (c"kunit/device", Some(EINVAL)),
            (c"kunit_net_devic", None),
        ] {
            let dummy = Dummy::new(&Seen::new()?, |_| Ok(()));
            let home = Home::Of(registered.device());
            let made = links.kind().make(name, home, Ok(dummy), &mut Rtnl::lock());
            assert_eq!(made.map(drop).err(), expected);
        }
        Ok(())
    }

    /// A device that goes by itself is not unregistered once more.
    #[test]
    fn a_dependent_that_is_gone_goes_once() -> Result {
        let seen = Seen::new()?;
        let parent = Registered::new(&seen, |_| Ok(()))?;
        let child = Registered::new(&seen, |_| Ok(()))?;
        let mut rtnl = Rtnl::lock();
        let dependent = child.device().get_typed();
        *parent.device().data().dependent.get(&mut rtnl) = Some(dependent);
        child.device().get_typed().unregister(&mut rtnl);
        let mut list = bindings::list_head::default();
        list.next = &raw mut list;
        list.prev = list.next;
        // SAFETY: RTNL is held, the device is registered, and the list is empty.
        unsafe {
            dellink::<Dummy>(parent.device().as_raw(), &raw mut list);
            bindings::unregister_netdevice_many(&raw mut list);
        }
        // Both are unregistered.
        core::mem::forget((parent, child));
        drop(rtnl);
        assert_eq!(seen.drops.load(Relaxed), 2);
        Ok(())
    }

    /// A device that is on rtnetlink's list stays there, to be unregistered with the others, once.
    #[test]
    fn a_queued_device_goes_with_its_list() -> Result {
        let seen = Seen::new()?;
        let parent = Registered::new(&seen, |_| Ok(()))?;
        let child = Registered::new(&seen, |_| Ok(()))?;
        let mut rtnl = Rtnl::lock();
        let dependent = child.device().get_typed();
        *parent.device().data().dependent.get(&mut rtnl) = Some(dependent);
        let mut list = bindings::list_head::default();
        list.next = &raw mut list;
        list.prev = list.next;
        // SAFETY: RTNL is held, the devices are registered, and the list is empty.
        unsafe { dellink::<Dummy>(parent.device().as_raw(), &raw mut list) };
        child.device().get_typed().unregister(&mut rtnl);
        let stays = child.device().is_registered(&mut rtnl);
        let first = list.next;
        // SAFETY: RTNL is held, and the list is of devices that are registered.
        unsafe { bindings::unregister_netdevice_many(&raw mut list) };
        core::mem::forget((parent, child));
        drop(rtnl);
        assert!(stays && !core::ptr::eq(first, &raw mut list));
        assert_eq!(seen.drops.load(Relaxed), 2);
        Ok(())
    }
}
