// SPDX-License-Identifier: GPL-2.0

//! Asynchronous events of a device.

use ipoib_sys::bindings;
use kernel::ffi::{c_int, c_ulong, c_void};
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::types::Opaque;

use crate::device::Device;

/// An event of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A port can carry data.
    PortActive(u32),
    /// A port cannot carry data any more.
    PortError(u32),
    /// A port's GID table has changed.
    GidChange(u32),
    /// A port's P_Key table has changed.
    PkeyChange(u32),
    /// The speed of one of its ports may have changed.
    SpeedChange,
    /// A port's local identifier has changed.
    LidChange(u32),
    /// A port's subnet manager is another one, or elsewhere.
    SmChange(u32),
    /// A port's subnet manager has forgotten the port's group memberships, and paths may lead elsewhere.
    ClientReregister(u32),
    /// A network device that a port has GIDs of has got or lost an IPv6 address. The GIDs may be those of before.
    AddressChange,
    /// The device is broken.
    DeviceFatal,
    /// Anything else.
    Other,
}

/// A receiver of events.
pub trait EventSink: Send + Sync + 'static {
    /// Handles an event.
    ///
    /// # Context
    ///
    /// Any, for [`Event::AddressChange`]; process context for others, but it delays all other users' events: leave the
    /// work to a work item.
    fn event(&self, event: Event);
}

/// A registered receiver of events, until it is dropped.
///
/// # Invariants
///
/// `handler` is registered with `dev`, `addresses` with the notifiers of IPv6 addresses, and both lie in a pinned value of
/// this type.
#[pin_data(PinnedDrop)]
pub struct EventHandler<T: EventSink> {
    #[pin]
    addresses: Opaque<bindings::notifier_block>,
    #[pin]
    handler: Opaque<bindings::ib_event_handler>,
    sink: Arc<T>,
    dev: Device,
}

// SAFETY: The list nodes are only touched under the locks of their lists; the rest is `Send`.
unsafe impl<T: EventSink> Send for EventHandler<T> {}
// SAFETY: As above, and `Sync`.
unsafe impl<T: EventSink> Sync for EventHandler<T> {}

impl<T: EventSink> EventHandler<T> {
    /// Registers `sink` for the events of `dev`.
    ///
    /// # Context
    ///
    /// Process context, not from [`EventSink::event`]; may sleep.
    pub fn new(dev: &Device, sink: Arc<T>) -> impl PinInit<Self, Error> {
        let dev = dev.clone();
        let device = dev.as_raw();
        // The handlers come last: as soon as they are registered, the rest must be there.
        try_pin_init!(Self {
            sink,
            dev,
            addresses <- Opaque::ffi_init(|block: *mut bindings::notifier_block| {
                // SAFETY: `block` is writable and pinned until `drop` has unregistered it.
                unsafe {
                    block.write(bindings::notifier_block {
                        notifier_call: Some(address_changed::<T>),
                        ..pin_init::zeroed()
                    });
                    // It has always succeeded.
                    bindings::register_inet6addr_notifier(block);
                }
            }),
            handler <- Opaque::ffi_init(|handler: *mut bindings::ib_event_handler| {
                // SAFETY: `handler` is writable and pinned until `drop` has unregistered it; the
                // device is registered.
                unsafe {
                    bindings::ipoib_rs_ib_event_handler_init(handler, device, Some(handle::<T>));
                    bindings::ib_register_event_handler(handler);
                }
            }),
        })
    }
}

#[pinned_drop]
impl<T: EventSink> PinnedDrop for EventHandler<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: Registered by the type invariant. On return no callback runs.
        unsafe {
            bindings::ib_unregister_event_handler(self.handler.get());
            bindings::unregister_inet6addr_notifier(self.addresses.get());
        }
    }
}

/// # Safety
///
/// Called by the RDMA core with a handler that lies in an [`EventHandler<T>`].
unsafe extern "C" fn handle<T: EventSink>(
    handler: *mut bindings::ib_event_handler,
    event: *mut bindings::ib_event,
) {
    let field = Opaque::cast_from(handler);
    // SAFETY: By this function's requirements; `EventHandler` was complete when it was registered.
    let this = unsafe { &*kernel::container_of!(field, EventHandler<T>, handler) };
    // SAFETY: The core passes a valid event; the port number is what port events carry, and any
    // bytes are a valid integer.
    let (kind, port) = unsafe { ((*event).event, (*event).element.port_num) };
    this.sink.event(match kind {
        bindings::ib_event_type_IB_EVENT_PORT_ACTIVE => Event::PortActive(port),
        bindings::ib_event_type_IB_EVENT_PORT_ERR => Event::PortError(port),
        bindings::ib_event_type_IB_EVENT_GID_CHANGE => Event::GidChange(port),
        bindings::ib_event_type_IB_EVENT_PKEY_CHANGE => Event::PkeyChange(port),
        bindings::ib_event_type_IB_EVENT_DEVICE_SPEED_CHANGE => Event::SpeedChange,
        bindings::ib_event_type_IB_EVENT_LID_CHANGE => Event::LidChange(port),
        bindings::ib_event_type_IB_EVENT_SM_CHANGE => Event::SmChange(port),
        bindings::ib_event_type_IB_EVENT_CLIENT_REREGISTER => Event::ClientReregister(port),
        bindings::ib_event_type_IB_EVENT_DEVICE_FATAL => Event::DeviceFatal,
        _ => Event::Other,
    });
}

/// # Safety
///
/// Called by the chain of IPv6 addresses, in any context, with a block that lies in an [`EventHandler<T>`], and a valid
/// address.
unsafe extern "C" fn address_changed<T: EventSink>(
    block: *mut bindings::notifier_block,
    _event: c_ulong,
    address: *mut c_void,
) -> c_int {
    let field = Opaque::cast_from(block);
    // SAFETY: By this function's requirements; the value has a sink and a device since before it was registered. An address
    // has a device, which is held meanwhile.
    let (this, has_gids) = unsafe {
        let this = &*kernel::container_of!(field, EventHandler<T>, addresses);
        let netdev = (*(*address.cast::<bindings::inet6_ifaddr>()).idev).dev;
        let has_gids = bindings::ipoib_rs_ib_has_gids_of(this.dev.as_raw(), netdev);
        (this, has_gids)
    };
    if has_gids {
        this.sink.event(Event::AddressChange);
    }
    bindings::NOTIFY_DONE as c_int
}
