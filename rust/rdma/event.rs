// SPDX-License-Identifier: GPL-2.0

//! Asynchronous events of a device.

use ipoib_sys::bindings;
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
    /// Process context, but it delays all other users' events: leave the work to a work item.
    fn event(&self, event: Event);
}

/// A registered receiver of events, until it is dropped.
///
/// # Invariants
///
/// `handler` is registered with `dev` and lies in a pinned value of this type.
#[pin_data(PinnedDrop)]
pub struct EventHandler<T: EventSink> {
    #[pin]
    handler: Opaque<bindings::ib_event_handler>,
    sink: Arc<T>,
    dev: Device,
}

// SAFETY: The list node is only touched under the device's lock; the rest is `Send`.
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
        // The handler comes last: as soon as it is registered, the rest must be there.
        try_pin_init!(Self {
            sink,
            dev,
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
        unsafe { bindings::ib_unregister_event_handler(self.handler.get()) };
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
