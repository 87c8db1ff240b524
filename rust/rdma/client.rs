// SPDX-License-Identifier: GPL-2.0

//! Clients of the RDMA core, which are told of devices as they come and go.

use core::marker::PhantomData;
use core::ptr::{self, NonNull};

use ipoib_netdev::device::RawDevice;
use ipoib_sys::bindings;
use ipoib_sys::text::TextRef;
use kernel::error::{from_result, to_result};
use kernel::ffi::{c_int, c_void};
use kernel::prelude::*;
use kernel::str::{CStr, CStrExt};
use kernel::sync::atomic::{Acquire, Atomic, Full, Release};
use kernel::sync::Arc;
use kernel::types::Opaque;

use crate::device::{Device, Ending, NAME_LEN};

/// A user of RDMA devices.
///
/// # Examples
///
/// `samples/ud_loopback.rs` sends a datagram from each port of each device to itself.
pub trait Client: 'static {
    /// The client's data for a device.
    type Data: Send + Sync + 'static;

    /// The client's name, unique in the kernel. The RDMA core lists its resources under it.
    const NAME: &'static CStr;

    /// There is a new device called `name`, or one that was there before the client.
    ///
    /// # Errors
    ///
    /// The client is not interested in the device, or failed; it will not hear of it again.
    /// `EOPNOTSUPP` is the usual one.
    ///
    /// # Context
    ///
    /// Process context without RTNL; may sleep.
    fn add(dev: &Device, name: &CStr) -> Result<Arc<Self::Data>>;

    /// The device is called `name` from now on.
    ///
    /// # Context
    ///
    /// As for [`Client::add`].
    fn renamed(data: &Self::Data, name: &CStr);

    /// The interface that a request for a connection by the RDMA connection manager comes to, if it is one of this
    /// client's.
    ///
    /// # Context
    ///
    /// Process context; may sleep. Must not wait for RTNL, whose holder may wait for this.
    fn interface(_data: &Self::Data, _sought: &Sought<'_>) -> Option<Found> {
        None
    }

    /// The device is going away: every [`Device`] of it, those that resources hold included, must
    /// be dropped now, or already be on its way to that. The removal waits for the last one.
    ///
    /// # Context
    ///
    /// As for [`Client::add`].
    fn remove(data: Arc<Self::Data>);
}

/// Properties of an interface that the RDMA connection manager looks for.
pub struct Sought<'a> {
    /// The port of the device.
    pub port: u32,
    /// The P_Key of the request, whatever its membership bit.
    pub pkey: u16,
    /// The GID that it came to, if it says so.
    pub gid: Option<[u8; 16]>,
    address: *const bindings::sockaddr,
    _lifetime: PhantomData<&'a bindings::sockaddr>,
}

impl Sought<'_> {
    /// `dev`, or the interface on top of it, such as a bond, that has the IP address which the request came to.
    ///
    /// # Context
    ///
    /// Process context.
    pub fn with_address(&self, dev: &RawDevice) -> Option<Found> {
        // SAFETY: The device is allocated, and the address, if there is one, valid while this is.
        Found::new(unsafe { bindings::ipoib_rs_ib_with_address(dev.as_raw(), self.address) })
    }

    /// `dev`, or the bond on top of it.
    ///
    /// # Context
    ///
    /// Process context.
    pub fn with_any(&self, dev: &RawDevice) -> Option<Found> {
        // SAFETY: The device is allocated.
        Found::new(unsafe { bindings::ipoib_rs_ib_topmost(dev.as_raw()) })
    }
}

/// An interface that was found.
///
/// # Invariants
///
/// A reference to it is held.
pub struct Found(NonNull<bindings::net_device>);

impl Found {
    /// Takes a reference over; `None` if it is null.
    fn new(dev: *mut bindings::net_device) -> Option<Self> {
        // INVARIANT: The C functions above give a reference with what they return.
        NonNull::new(dev).map(Self)
    }
}

impl Drop for Found {
    fn drop(&mut self) {
        // SAFETY: Held by the type invariant.
        unsafe { bindings::ipoib_rs_dev_put(self.0.as_ptr()) };
    }
}

/// The module's one registered client: the callback that tells of a new device does not say for
/// which client it is called.
static REGISTERED: Atomic<*mut bindings::ib_client> = Atomic::new(ptr::null_mut());

/// A client that is registered, until this value is dropped. A module can have one.
///
/// # Invariants
///
/// `client` is registered with the callbacks of `T`, and [`REGISTERED`] points to it.
#[pin_data(PinnedDrop)]
pub struct Registration<T: Client> {
    #[pin]
    client: Opaque<bindings::ib_client>,
    _client: PhantomData<fn() -> T>,
    _text: TextRef,
}

// SAFETY: It is only kept and dropped, which any thread may do.
unsafe impl<T: Client> Send for Registration<T> {}
// SAFETY: As above.
unsafe impl<T: Client> Sync for Registration<T> {}

impl<T: Client> Registration<T> {
    /// Registers the client; [`Client::add`] is called for the devices that are there.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the module has a registered client already; `ENOMEM`.
    ///
    /// # Context
    ///
    /// Process context without RTNL; may sleep.
    pub fn new() -> impl PinInit<Self, Error> {
        // INVARIANT: `ib_register_client` succeeded, or there is no value.
        try_pin_init!(Self {
            client <- Opaque::try_ffi_init(|client: *mut bindings::ib_client| {
                REGISTERED
                    .cmpxchg(ptr::null_mut(), client, Full)
                    .map_err(|_| EBUSY)?;
                // SAFETY: `client` is writable and pinned; zero is valid for all of its fields.
                let err = unsafe {
                    ptr::write_bytes(client, 0, 1);
                    (*client).name = T::NAME.as_char_ptr();
                    (*client).add = Some(add::<T>);
                    (*client).rename = Some(rename::<T>);
                    (*client).remove = Some(remove::<T>);
                    (*client).get_net_dev_by_params = Some(interface::<T>);
                    // Of a module's clients one is registered, and so are these.
                    match bindings::ipoib_rs_neighbours_register() {
                        0 => bindings::ib_register_client(client),
                        err => err,
                    }
                };
                to_result(err).inspect_err(|_| {
                    // SAFETY: It does not matter whether they are registered.
                    unsafe { bindings::ipoib_rs_neighbours_unregister() };
                    REGISTERED.store(ptr::null_mut(), Release);
                })
            }),
            _client: PhantomData,
            _text: TextRef::new(),
        })
    }
}

#[pinned_drop]
impl<T: Client> PinnedDrop for Registration<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: Registered by the type invariant. On return no callback runs, and `remove` was
        // called for every device.
        unsafe { bindings::ib_unregister_client(self.client.get()) };
        // SAFETY: They were registered with it.
        unsafe { bindings::ipoib_rs_neighbours_unregister() };
        REGISTERED.store(ptr::null_mut(), Release);
    }
}

/// A device of a client.
struct Member<T: Client> {
    data: Arc<T::Data>,
    ending: Ending,
}

/// The name of a device.
///
/// # Safety
///
/// The caller must be a callback of the RDMA core for that device, [`Client::add`] or
/// [`Client::renamed`]. The core holds the lock of names (`devices_rwsem`) meanwhile.
unsafe fn name_of<'a>(device: *mut bindings::ib_device) -> &'a CStr {
    // SAFETY: The name is an array of that many characters in the device. Nobody writes it during the
    // callback, by this function's requirements.
    let name = unsafe { &*(&raw const (*device).name).cast::<[u8; NAME_LEN]>() };
    CStr::from_bytes_until_nul(name).unwrap_or(c"")
}

/// # Safety
///
/// Called by the RDMA core for a client registered by a [`Registration<T>`], with a device that is
/// registered.
unsafe extern "C" fn add<T: Client>(device: *mut bindings::ib_device) -> c_int {
    from_result(|| {
        let room = KBox::<Member<T>>::new_uninit(GFP_KERNEL)?;
        let ending = Ending::new(T::NAME)?;
        // SAFETY: Allocated by this function's requirements.
        let dev = unsafe { Device::try_get(device, &ending) }?;
        // SAFETY: This is that callback.
        let data = T::add(&dev, unsafe { name_of(device) });
        drop(dev);
        let data = match data {
            Ok(data) => data,
            Err(error) => {
                ending.wait();
                return Err(error);
            }
        };
        let member = KBox::into_raw(KBox::write(room, Member { data, ending }));
        // SAFETY: The device is registered, and so is the client, since its callback runs. The data
        // are taken back in `remove`, which is called once for each `add` that returned 0.
        unsafe {
            bindings::ib_set_client_data(device, REGISTERED.load(Acquire), member.cast::<c_void>());
        }
        Ok(0)
    })
}

/// # Safety
///
/// Called by the RDMA core for a client registered by a [`Registration<T>`], with what its `add`
/// has set, between that and `remove`.
unsafe extern "C" fn rename<T: Client>(device: *mut bindings::ib_device, data: *mut c_void) {
    if data.is_null() {
        return;
    }
    // SAFETY: `add` made it of a `KBox<Member<T>>`, which `remove` has not taken back yet. This is a
    // callback that tells the name.
    unsafe { T::renamed(&(*data.cast::<Member<T>>()).data, name_of(device)) };
}

/// # Safety
///
/// As [`rename`], with a valid address, and a GID that is valid or null.
unsafe extern "C" fn interface<T: Client>(
    _device: *mut bindings::ib_device,
    port: u32,
    pkey: u16,
    gid: *const bindings::ib_gid,
    address: *const bindings::sockaddr,
    data: *mut c_void,
) -> *mut bindings::net_device {
    if data.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: By this function's requirements.
    let (data, gid) = unsafe {
        (
            &(*data.cast::<Member<T>>()).data,
            (!gid.is_null()).then(|| (*gid).raw),
        )
    };
    let sought = Sought {
        port,
        pkey,
        gid,
        address,
        _lifetime: PhantomData,
    };
    match T::interface(data, &sought) {
        Some(found) => {
            // The reference is the core's now.
            core::mem::ManuallyDrop::new(found).0.as_ptr()
        }
        None => ptr::null_mut(),
    }
}

/// # Safety
///
/// Called by the RDMA core for a client registered by a [`Registration<T>`], with what its `add`
/// has set.
unsafe extern "C" fn remove<T: Client>(_device: *mut bindings::ib_device, data: *mut c_void) {
    if data.is_null() {
        return;
    }
    // SAFETY: `add` made it of a box, and this is called once for it.
    let member = unsafe { KBox::from_raw(data.cast::<Member<T>>()) };
    let Member { data, ending } = KBox::into_inner(member);
    T::remove(data);
    // Somebody may be about to end an interface that was unregistered before. What RDMA core removes next, such as the
    // connection manager, has to be there until then: `ib_destroy_cm_id()` would never return.
    ending.wait();
}
