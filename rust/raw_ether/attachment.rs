// SPDX-License-Identifier: GPL-2.0

//! Listening at a network device, as long as that is there.

use core::ptr::NonNull;
use core::slice;

use ipoib_sys::bindings;
use kernel::ffi::c_int;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::Arc;
use kernel::types::Opaque;

use crate::notifier::{Follow, Notifier, Rtnl};
use crate::{Address, Interface};

/// A user of an interface.
pub trait Listen: Send + Sync + 'static {
    /// A frame has come; `bytes` are behind the Ethernet header, and may have padding at their end.
    ///
    /// # Context
    ///
    /// Softirq.
    fn received(&self, from: Address, bytes: &[u8]);

    /// Something about the device has changed, or it is gone: ask the interface.
    ///
    /// # Context
    ///
    /// Process context, under RTNL.
    fn changed(&self);
}

/// A connection of an interface with a device, until the device goes or stops being Ethernet. Dropping this ends it.
pub struct Attachment<L: Listen> {
    _inner: Notifier<Inner<L>>,
}

/// # Invariants
///
/// * `packets` is registered with the network core if, and only if, `attached` is true, or it is being registered or removed
///   under RTNL, or by `drop` when the notifier is gone. While `attached` is true, the interface's device is the one that
///   `packets` names, and this attachment has set it.
/// * Whoever takes the interface's device gives back the reference to it.
#[pin_data(PinnedDrop)]
struct Inner<L: Listen> {
    #[pin]
    packets: Opaque<bindings::packet_type>,
    interface: Arc<Interface>,
    listener: Arc<L>,
    /// Changes under RTNL, or when the notifier is gone.
    attached: Atomic<bool>,
}

// SAFETY: The network core does its own locking for what it is given; the rest is `Send` and `Sync`.
unsafe impl<L: Listen> Send for Inner<L> {}
// SAFETY: As above.
unsafe impl<L: Listen> Sync for Inner<L> {}

impl<L: Listen> Attachment<L> {
    /// Connects an interface with the Ethernet device of this name in the network namespace of the current task.
    ///
    /// # Errors
    ///
    /// `ENODEV` if there is no such device; `EINVAL` if it is not Ethernet; `EBUSY` if the interface has a device,
    /// or another one of this EtherType and listener's type has this device; `ENOMEM`.
    ///
    /// # Context
    ///
    /// Process context without RTNL.
    pub fn new(name: &CStr, interface: &Arc<Interface>, listener: &Arc<L>) -> Result<Self> {
        let (interface, listener) = (interface.clone(), listener.clone());
        // From here on, nothing that happens to the device is missed.
        let inner = Notifier::new(pin_init!(Inner {
            packets <- Opaque::ffi_init(|slot: *mut bindings::packet_type| {
                // SAFETY: `slot` is valid for writes.
                unsafe {
                    slot.write(bindings::packet_type {
                        func: Some(receive::<L>),
                        ..pin_init::zeroed()
                    });
                }
            }),
            interface,
            listener,
            attached: Atomic::new(false),
        }))?;
        inner.attach(name)?;
        Ok(Self { _inner: inner })
    }
}

impl<L: Listen> Inner<L> {
    fn attach(&self, name: &CStr) -> Result {
        let (packets, ether_type) = (self.packets.get(), self.interface.ether_type());
        let _rtnl = Rtnl::lock();
        // SAFETY: The name is a string; the current task has namespaces, as it is not exiting.
        let dev = unsafe { bindings::raw_ether_find(name.as_char_ptr()) };
        let dev = NonNull::new(dev).ok_or(ENODEV)?;
        // SAFETY: The device is there, by the reference that was just got. The packet type was initialised. RTNL keeps
        // others from being registered meanwhile.
        let taken = unsafe { bindings::raw_ether_is_taken(dev.as_ptr(), ether_type, packets) };
        // SAFETY: The device is there, as above.
        let result = if !unsafe { bindings::raw_ether_is_ethernet(dev.as_ptr()) } {
            Err(EINVAL)
        // SAFETY: The reference is given back by who takes the device from the interface, a grace period later.
        } else if taken || !unsafe { self.interface.set(dev) } {
            Err(EBUSY)
        } else {
            Ok(())
        };
        if result.is_err() {
            // SAFETY: The reference is this function's.
            unsafe { bindings::raw_ether_put(dev.as_ptr()) };
            return result;
        }
        // SAFETY: It is not registered, as `attached` is false, and pinned until it was removed.
        // INVARIANT: RTNL is held; then it is registered for the interface's device.
        unsafe {
            bindings::raw_ether_packet_type(packets, dev.as_ptr(), ether_type);
            bindings::dev_add_pack(packets);
        }
        self.attached.store(true, Relaxed);
        Ok(())
    }

    /// Lets go of the device, if there is one. Afterwards, nothing is received.
    ///
    /// # Context
    ///
    /// Process context; may sleep. Under RTNL, or when the notifier is gone.
    fn detach(&self) {
        // Another attachment may have the interface's device.
        if !self.attached.xchg(false, Relaxed) {
            return;
        }
        let Some(dev) = self.interface.take() else {
            return;
        };
        // SAFETY: It is registered, by the type invariant, since `attached` was true. This waits for a grace period of RCU, so that neither the
        // packet type nor the device is in use when it returns; the reference is owned, by the type invariant.
        unsafe {
            bindings::dev_remove_pack(self.packets.get());
            bindings::raw_ether_put(dev.as_ptr());
        }
    }
}

#[pinned_drop]
impl<L: Listen> PinnedDrop for Inner<L> {
    fn drop(self: Pin<&mut Self>) {
        self.detach();
    }
}

impl<L: Listen> Follow for Inner<L> {
    fn follow(&self, event: bindings::netdev_cmd, dev: *mut bindings::net_device) {
        if dev.is_null() || !self.attached.load(Relaxed) || !self.interface.is(dev) {
            return;
        }
        // A bond that gets an InfiniBand interface has longer addresses from then on.
        if matches!(
            event,
            bindings::netdev_cmd_NETDEV_UNREGISTER | bindings::netdev_cmd_NETDEV_PRE_TYPE_CHANGE
        ) {
            self.detach();
        }
        self.listener.changed();
    }
}

/// # Safety
///
/// Called by the network core for the packet type of an [`Inner<L>`], with a socket buffer that is given away.
unsafe extern "C" fn receive<L: Listen>(
    skb: *mut bindings::sk_buff,
    _dev: *mut bindings::net_device,
    packets: *mut bindings::packet_type,
    _first: *mut bindings::net_device,
) -> c_int {
    // SAFETY: The buffer is this function's to give away.
    let skb = unsafe { bindings::raw_ether_take(skb) };
    if skb.is_null() {
        return 0;
    }
    let field = packets.cast::<Opaque<bindings::packet_type>>();
    // SAFETY: By this function's requirements; who removes the packet type waits for this.
    let inner = unsafe { &*kernel::container_of!(field, Inner<L>, packets) };
    let mut from: Address = [0; 6];
    // SAFETY: The buffer is linear, its Ethernet header is there, and nobody else has it.
    let bytes = unsafe {
        let source = bindings::raw_ether_source(skb);
        core::ptr::copy_nonoverlapping(source, from.as_mut_ptr(), from.len());
        slice::from_raw_parts((*skb).data.cast_const(), (*skb).len as usize)
    };
    inner.listener.received(from, bytes);
    // SAFETY: The buffer is this function's, and `bytes` is not used any more.
    unsafe { bindings::raw_ether_consume(skb) };
    0
}

#[cfg(CONFIG_KUNIT = "y")]
#[kunit_tests(raw_ether)]
mod tests {
    use ipoib_sys::text::TextRef;
    use kernel::error::to_result;

    use super::*;

    const NAME: &CStr = c"raw_ether_kunit";
    static OPS: bindings::net_device_ops = pin_init::zeroed();

    /// A registered Ethernet device, which does nothing.
    struct Ethernet(NonNull<bindings::net_device>);

    impl Ethernet {
        fn new() -> Result<Self> {
            let (assigned, setup) = (bindings::NET_NAME_USER as u8, bindings::ether_setup);
            // SAFETY: The name is shorter than `IFNAMSIZ`, and there is no private area.
            let dev = unsafe {
                bindings::alloc_netdev_mqs(0, NAME.as_char_ptr(), assigned, Some(setup), 1, 1)
            };
            let dev = NonNull::new(dev).ok_or(ENOMEM)?;
            // SAFETY: Nobody else knows the device, which has a table of operations.
            unsafe {
                (*dev.as_ptr()).netdev_ops = &raw const OPS;
                to_result(bindings::register_netdev(dev.as_ptr()))
                    .inspect_err(|_| bindings::free_netdev(dev.as_ptr()))?;
            }
            Ok(Self(dev))
        }
    }

    impl Drop for Ethernet {
        fn drop(&mut self) {
            // SAFETY: Registered by `new`, and unregistering it waits for those who refer to it.
            unsafe {
                bindings::unregister_netdev(self.0.as_ptr());
                bindings::free_netdev(self.0.as_ptr());
            }
        }
    }

    struct Deaf;

    impl Listen for Deaf {
        fn received(&self, _from: Address, _bytes: &[u8]) {}

        fn changed(&self) {}
    }

    impl Follow for Deaf {
        fn follow(&self, _event: bindings::netdev_cmd, _dev: *mut bindings::net_device) {}
    }

    /// A bond tells of its new type before it has longer addresses.
    #[test]
    fn a_device_is_let_go_before_it_changes_its_type() -> Result {
        let device = Ethernet::new()?;
        let interface = Interface::new(0x88b5)?;
        let attachment = Attachment::new(NAME, &interface, &Arc::new(Deaf, GFP_KERNEL)?)?;
        let before = interface.mtu();
        {
            let _rtnl = Rtnl::lock();
            let event = bindings::netdev_cmd_NETDEV_PRE_TYPE_CHANGE as usize;
            // SAFETY: RTNL is held, and the device is registered.
            unsafe { bindings::call_netdevice_notifiers(event, device.0.as_ptr()) };
        }
        let after = interface.mtu();
        // A test that fails ends below.
        drop((attachment, device));
        assert_eq!(before, 1500);
        assert_eq!(after, 0);
        Ok(())
    }

    /// A notifier that is forgotten keeps the text that events come to.
    #[test]
    fn a_notifier_keeps_the_text() -> Result {
        assert!(TextRef::is_kept_by(|| Notifier::new(Deaf))?);
        Ok(())
    }

    /// One that is forgotten keeps the text that frames and events come to.
    #[test]
    fn an_attachment_keeps_the_text() -> Result {
        let device = Ethernet::new()?;
        let interface = Interface::new(0x88b5)?;
        let listener = Arc::new(Deaf, GFP_KERNEL)?;
        let is_kept = TextRef::is_kept_by(|| Attachment::new(NAME, &interface, &listener));
        // A test that fails ends below.
        drop(device);
        assert!(is_kept?);
        Ok(())
    }

    /// An attachment that is refused leaves the device to the one that has it.
    #[test]
    fn an_interface_has_one_attachment() -> Result {
        let device = Ethernet::new()?;
        let interface = Interface::new(0x88b5)?;
        let listener = Arc::new(Deaf, GFP_KERNEL)?;
        let attachment = Attachment::new(NAME, &interface, &listener)?;
        let refused = [NAME, c"lo"].map(|name| Attachment::new(name, &interface, &listener).err());
        let kept = interface.mtu();
        drop(attachment);
        let ended = interface.mtu();
        let again = Attachment::new(NAME, &interface, &listener).map(|_| interface.mtu());
        drop(device);
        assert_eq!(refused, [Some(EBUSY), Some(EINVAL)]);
        assert_eq!([kept, ended], [1500, 0]);
        assert_eq!(again, Ok(1500));
        Ok(())
    }
}
