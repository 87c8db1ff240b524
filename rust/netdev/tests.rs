// SPDX-License-Identifier: GPL-2.0

//! Tests of devices, headers, NAPI and frames with what the core has of them.

use core::mem::MaybeUninit;

use ipoib_sys::bindings;
use ipoib_sys::text::TextRef;
use kernel::alloc::flags::__GFP_ZERO;
use kernel::error::to_result;
use kernel::ffi::{c_int, c_ulong, c_void};
use kernel::new_mutex;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::{Arc, Mutex};
use kernel::time::{delay::fsleep, Delta};

use crate::device::{Device, OwnedDevice, RawDevice};
use crate::dummy::{Dummy, Registered, Seen, ADDR_LEN, HEADER_LEN};
use crate::header::Outgoing;
use crate::joined::Joined;
use crate::link;
use crate::napi::{Context, Napi, Poll, Source};
use crate::notifier;
use crate::ops::Tables;
use crate::queue::TxGuard;
use crate::rtnl::Rtnl;
use crate::skb::{PacketType, RxSkb, TxSkb};
use crate::task::{Queue, Run, Task};

const ETH_P_IP: u16 = bindings::ETH_P_IP as u16;
/// Of whom all packets are inspected.
const INSPECTED: u8 = 0x01;

/// Holds a device, and gives it back when it runs.
#[pin_data]
struct Holder {
    #[pin]
    dev: Mutex<Option<OwnedDevice<Dummy>>>,
    gave_back: Atomic<u32>,
}

impl Run for Pin<KBox<Holder>> {
    fn run(&self, _task: &Queue<'_>) {
        if let Some(dev) = self.dev.lock().take() {
            // Whoever frees the device has time to be too early.
            fsleep(Delta::from_millis(20));
            // The data are still there.
            let drops = dev.data().seen.drops.load(Relaxed);
            self.gave_back.store(1 + drops, Relaxed);
        }
    }
}

/// Does nothing.
struct Deaf;

impl notifier::Listen for Deaf {
    fn event(&self, _dev: &RawDevice, _event: notifier::Event, _rtnl: &mut Rtnl) {}
}

impl Run for Deaf {
    fn run(&self, _task: &Queue<'_>) {}
}

/// The event of a device of the tests' that is refused, of all devices; 0 for none.
static REFUSED: Atomic<u32> = Atomic::new(0);

/// How many events were refused.
static REFUSALS: Atomic<u32> = Atomic::new(0);

/// A listener that refuses an event of the tests' devices until it is dropped.
struct Refusal(KBox<bindings::notifier_block>);

impl Refusal {
    fn new(event: bindings::netdev_cmd) -> Result<Self> {
        let block = bindings::notifier_block {
            notifier_call: Some(refuse),
            ..Default::default()
        };
        let mut this = Self(KBox::new(block, GFP_KERNEL)?);
        // SAFETY: The block stays where it is until it is unregistered.
        to_result(unsafe { bindings::register_netdevice_notifier(&raw mut *this.0) })?;
        REFUSED.store(event, Relaxed);
        Ok(this)
    }
}

impl Drop for Refusal {
    fn drop(&mut self) {
        REFUSED.store(0, Relaxed);
        // SAFETY: Registered by `new`.
        unsafe { bindings::unregister_netdevice_notifier(&raw mut *self.0) };
    }
}

/// # Safety
///
/// Called by the netdevice notifier chain.
unsafe extern "C" fn refuse(
    _block: *mut bindings::notifier_block,
    event: c_ulong,
    info: *mut c_void,
) -> c_int {
    // SAFETY: By this function's requirements; RTNL is held, under which the operations stay.
    let ops = unsafe { (*(*info.cast::<bindings::netdev_notifier_info>()).dev).netdev_ops };
    let is_ours = core::ptr::eq(ops, &Tables::<Dummy>::NETDEV);
    if is_ours && event as u32 == REFUSED.load(Relaxed) {
        REFUSALS.fetch_add(1, Relaxed);
        return bindings::NOTIFY_BAD as c_int;
    }
    bindings::NOTIFY_DONE as c_int
}

/// The link-layer header that the stack gets for a packet of `len` bytes.
fn header_for(dev: &Device<Dummy>, dest: &[u8; ADDR_LEN], len: u32) -> Result<[u8; HEADER_LEN]> {
    let skb = Skb::new(0)?;
    let create = Tables::<Dummy>::HEADER.create.ok_or(EINVAL)?;
    let to = dest.as_ptr().cast();
    // SAFETY: The skb has room for the header; the destination is an address.
    let made = unsafe { create(skb.0, dev.as_raw(), ETH_P_IP, to, core::ptr::null(), len) };
    if made != HEADER_LEN as i32 {
        return Err(EINVAL);
    }
    // SAFETY: That many bytes were just written there.
    Ok(unsafe { (*skb.0).data.cast::<[u8; HEADER_LEN]>().read() })
}

/// The header that a neighbour keeps, with the address that it has by then.
struct Kept {
    neighbour: KBox<bindings::neighbour>,
}

impl Kept {
    fn new(dev: &Device<Dummy>, dest: &[u8; ADDR_LEN]) -> Result<Self> {
        let neighbour = KBox::<bindings::neighbour>::new_uninit(GFP_KERNEL | __GFP_ZERO)?;
        // SAFETY: It is zeroed, as which it is plain data.
        let mut neighbour = unsafe { neighbour.assume_init() };
        neighbour.dev = dev.as_raw();
        neighbour.ha[..ADDR_LEN].copy_from_slice(dest);
        let hh = &raw mut neighbour.hh;
        let cache = Tables::<Dummy>::HEADER.cache.ok_or(EINVAL)?;
        // SAFETY: Nobody else knows the neighbour, whose device is registered.
        let declined = unsafe { cache(&raw const *neighbour, hh, ETH_P_IP.to_be()) } != 0;
        assert_eq!(declined, neighbour.hh.hh_len == 0);
        Ok(Self { neighbour })
    }

    fn update(&mut self, dest: &[u8; ADDR_LEN]) -> Result {
        let update = Tables::<Dummy>::HEADER.cache_update.ok_or(EINVAL)?;
        // SAFETY: Nobody else knows the header, which is there.
        unsafe {
            update(
                &raw mut self.neighbour.hh,
                self.neighbour.dev,
                dest.as_ptr(),
            )
        };
        Ok(())
    }

    /// Returns the header that `neigh_hh_output` puts in front of a packet.
    fn header(&self) -> Option<[u8; HEADER_LEN]> {
        let hh = &self.neighbour.hh;
        let len = hh.hh_len as usize;
        let aligned = len.next_multiple_of(bindings::HH_DATA_MOD as usize);
        let copied = &hh.hh_data.as_flattened_bytes()[..aligned];
        copied[aligned - len..].first_chunk().copied()
    }
}

/// The bytes of an array of words.
trait Flatten {
    fn as_flattened_bytes(&self) -> &[u8];
}

impl<const N: usize> Flatten for [usize; N] {
    fn as_flattened_bytes(&self) -> &[u8] {
        // SAFETY: Any bytes of words are bytes.
        unsafe { core::slice::from_raw_parts(self.as_ptr().cast(), size_of_val(self)) }
    }
}

/// An skb that is freed when this is dropped.
struct Skb(*mut bindings::sk_buff);

impl Skb {
    /// One of `len` bytes, with room for the link-layer header, and no protocol.
    fn new(len: usize) -> Result<Self> {
        let bytes = [0u8; 64];
        let bytes = bytes.get(..len).ok_or(EINVAL)?;
        // SAFETY: There are that many bytes, which are copied.
        let skb = unsafe { bindings::ipoib_rs_skb_new(bytes.as_ptr().cast(), len as u32) };
        Ok(Self(core::ptr::NonNull::new(skb).ok_or(ENOMEM)?.as_ptr()))
    }

    fn set_protocol(&self, protocol: u16) {
        // SAFETY: It is ours; every view of the union holds integers only.
        unsafe { (*self.0).__bindgen_anon_4.headers.as_mut().protocol = protocol.to_be() };
    }
}

impl Drop for Skb {
    fn drop(&mut self) {
        let reason = bindings::skb_drop_reason_SKB_CONSUMED;
        // SAFETY: It is ours.
        unsafe { bindings::sk_skb_reason_drop(core::ptr::null(), self.0, reason) };
    }
}

/// A clone of a frame of TCP's, with a header of 24 bytes. TCP has given up its headers.
fn clone_of(original: &Skb) -> Result<TxSkb> {
    // SAFETY: The original is valid, and has no other clone.
    let clone = unsafe {
        let info = (*original.0).head.add((*original.0).end as usize);
        let info = info.cast::<bindings::skb_shared_info>();
        (*original.0).set_nohdr(1);
        (*info).dataref.counter = 1 + (1 << bindings::SKB_DATAREF_SHIFT);
        bindings::skb_clone(original.0, 0)
    };
    if clone.is_null() {
        return Err(ENOMEM);
    }
    // SAFETY: It is valid, and nobody else's.
    let mut clone = unsafe { TxSkb::from_raw(clone) };
    clone.push(&[1; HEADER_LEN])?;
    Ok(clone)
}

/// A poll that counts, and what asks for it.
struct Counting(Arc<Atomic<u32>>);
struct Quiet;

impl Source for Quiet {
    fn arm(&self) -> bool {
        false
    }
}

impl Poll for Counting {
    const TX: bool = false;
    type Source = Quiet;

    fn poll(&mut self, _context: &Context<'_>, _budget: usize) -> usize {
        self.0.fetch_add(1, Relaxed);
        0
    }
}

/// A poll that rests a few times, and a source that counts how often it is armed.
struct Resting {
    polls: Arc<Atomic<u32>>,
    /// How long it rests, in microseconds.
    us: u32,
}
struct Armed(Arc<Atomic<u32>>);

/// Rests of [`Resting`].
const RESTS: u32 = 3;

impl Source for Armed {
    fn arm(&self) -> bool {
        self.0.fetch_add(1, Relaxed);
        false
    }
}

impl Poll for Resting {
    const TX: bool = true;
    type Source = Armed;

    fn poll(&mut self, context: &Context<'_>, _budget: usize) -> usize {
        if self.polls.fetch_add(1, Relaxed) < RESTS {
            context.rest(self.us);
        }
        0
    }
}

/// A poll that takes 60 bytes off its device's limit, whatever was sent.
struct Completing {
    dev: OwnedDevice<Dummy>,
    polls: Arc<Atomic<u32>>,
}

impl Poll for Completing {
    const TX: bool = true;
    type Source = Quiet;

    fn poll(&mut self, context: &Context<'_>, _budget: usize) -> usize {
        self.dev.completed(context, 1, 60);
        self.polls.fetch_add(1, Relaxed);
        0
    }
}

/// A poll that has its own instance enabled while it runs. As [`Arc`] is never null, an `Option` of it needs no room.
struct Reentrant {
    result: Arc<Atomic<i32>>,
    napi: *mut Napi<Reentrant>,
}

// SAFETY: Whoever has the instance leaves it to the poll until that has run.
unsafe impl Send for Reentrant {}

const _: () = assert!(size_of::<Option<Reentrant>>() == size_of::<Reentrant>());

impl Poll for Reentrant {
    const TX: bool = false;
    type Source = Quiet;

    fn poll(&mut self, _context: &Context<'_>, _budget: usize) -> usize {
        let at: *mut Self = self;
        // A poll may have its state in registers, and anything in its place meanwhile: zeroes, which make the `Option` that
        // it lies in None.
        //
        // SAFETY: It is put back before anybody looks. The instance is there, and its owner leaves it to the poll.
        unsafe {
            let own = at.read();
            at.cast::<MaybeUninit<Self>>()
                .write_volatile(MaybeUninit::zeroed());
            let other = Self {
                result: own.result.clone(),
                napi: own.napi,
            };
            let error = (*own.napi)
                .enable(other, Quiet)
                .err()
                .map_or(0, Error::to_errno);
            own.result.store(error, Relaxed);
            at.write(own);
        }
        0
    }
}

/// Returns true if the device has a NAPI instance.
fn has_napi(dev: &RawDevice) -> bool {
    // SAFETY: The device is registered. Only this test adds to its list and takes from it.
    unsafe {
        let list = &raw mut (*dev.as_raw()).napi_list;
        !core::ptr::eq((*list).next, list)
    }
}

/// Has a second meaning for what is [`Send`], so that it cannot be named there without one.
trait NotSend<Meaning> {
    const IS: () = ();
}

impl<T: ?Sized> NotSend<()> for T {}
impl<T: ?Sized + Send> NotSend<u8> for T {}

#[kunit_tests(rust_netdev)]
mod cases {
    use super::*;

    /// The core frees a device whose `ndo_init` fails at once: what that has queued must not run then, and
    /// what it has made goes.
    #[test]
    fn a_failed_init_leaves_nothing() -> Result {
        let seen = Seen::new()?;
        let registered = Registered::new(&seen, |dev| {
            dev.queue_task(0, 20);
            Err(EPROTO)
        });
        assert!(registered.is_err());
        fsleep(Delta::from_millis(60));
        assert_eq!(seen.tasks.load(Relaxed), 0);
        assert_eq!(seen.uninits.load(Relaxed), 1);
        assert_eq!(seen.drops.load(Relaxed), 1);
        Ok(())
    }

    /// A frame that is too long is refused before the kernel's lengths can wrap.
    #[test]
    fn a_frame_has_an_end() -> Result {
        let bytes = KVVec::from_elem(0u8, 1 << 16, GFP_KERNEL)?;
        assert!(TxSkb::new(&bytes).is_err_and(|error| error == EINVAL));
        match TxSkb::new(bytes.get(1..).ok_or(EINVAL)?) {
            Ok(skb) => assert_eq!(skb.len(), (1 << 16) - 1),
            // An allocation of that size, in one piece, may fail.
            Err(error) => assert_eq!(error, ENOMEM),
        }
        Ok(())
    }

    /// If registration fails behind `ndo_init`, what the device has queued does not run, and its data go, once.
    #[test]
    fn a_refused_registration_leaves_nothing() -> Result {
        for event in [
            bindings::netdev_cmd_NETDEV_POST_INIT,
            bindings::netdev_cmd_NETDEV_REGISTER,
        ] {
            let refusal = Refusal::new(event)?;
            let seen = Seen::new()?;
            let registered = Registered::new(&seen, |dev| {
                dev.queue_task(0, 20);
                Ok(())
            });
            assert_eq!(registered.err(), Some(EPERM));
            drop(refusal);
            fsleep(Delta::from_millis(60));
            assert_eq!(seen.tasks.load(Relaxed), 0);
            assert_eq!(seen.uninits.load(Relaxed), 1);
            assert_eq!(seen.drops.load(Relaxed), 1);
        }
        Ok(())
    }

    /// Whoever refers to a device finds its data, also when it could not be registered: because of itself, before
    /// others see it, and when they do.
    #[test]
    fn data_wait_for_references() -> Result {
        data_wait(0)?;
        data_wait(bindings::netdev_cmd_NETDEV_POST_INIT)?;
        data_wait(bindings::netdev_cmd_NETDEV_REGISTER)
    }

    /// Refuses `event` to a device to which there is a reference, or has its `ndo_init` fail if that is 0.
    fn data_wait(event: bindings::netdev_cmd) -> Result {
        // A function pointer takes nothing along.
        static HOLDER: Atomic<*mut Task<Pin<KBox<Holder>>>> = Atomic::new(core::ptr::null_mut());

        let holder = KBox::pin_init(
            pin_init!(Holder {
                dev <- new_mutex!(None),
                gave_back: Atomic::new(0),
            }),
            GFP_KERNEL,
        )?;
        let task = Task::new(holder)?;
        HOLDER.store(core::ptr::from_ref(&task).cast_mut(), Relaxed);
        let seen = Seen::new()?;
        let refusal = match event {
            0 => None,
            event => Some(Refusal::new(event)?),
        };
        let registered = Registered::new(&seen, |dev| {
            // SAFETY: The task is there as long as this can be called.
            let task = unsafe { &*HOLDER.load(Relaxed) };
            *task.dev.lock() = Some(dev.get_typed());
            task.queue(0);
            match REFUSED.load(Relaxed) {
                0 => Err(EPROTO),
                _ => Ok(()),
            }
        });
        assert!(registered.is_err());
        drop(refusal);
        assert_eq!(task.gave_back.load(Relaxed), 1);
        assert_eq!(seen.drops.load(Relaxed), 1);
        Ok(())
    }

    /// A lock of softirqs is given back on the CPU that took it: this does not compile otherwise.
    #[test]
    fn the_transmit_lock_stays_where_it_is() {
        let () = <TxGuard<'static, Dummy> as NotSend<_>>::IS;
    }

    #[test]
    fn a_device_comes_and_goes() -> Result {
        let seen = Seen::new()?;
        let registered = Registered::new(&seen, |_| Ok(()))?;
        // SAFETY: It is registered.
        let dev = unsafe { &*registered.device().as_raw() };
        // Packet sockets are to send all of the header, and know where the packet begins.
        assert_eq!(
            u32::from(dev.min_header_len),
            u32::from(dev.hard_header_len)
        );
        drop(registered);
        assert_eq!(seen.uninits.load(Relaxed), 1);
        assert_eq!(seen.drops.load(Relaxed), 1);
        Ok(())
    }

    /// The header that a neighbour caches is the one that would be built for each packet.
    #[test]
    fn a_kept_header_is_the_one_that_is_made() -> Result {
        let registered = Registered::new(&Seen::new()?, |_| Ok(()))?;
        let dev = registered.device();
        let (first, second) = ([2; ADDR_LEN], [4; ADDR_LEN]);
        let mut kept = Kept::new(dev, &first)?;
        assert_eq!(kept.header(), Some(header_for(dev, &first, 50)?));
        kept.update(&second)?;
        assert_eq!(kept.header(), Some(header_for(dev, &second, 50)?));
        Ok(())
    }

    /// Where each packet is inspected, none gets a header unseen.
    #[test]
    fn inspected_packets_have_no_kept_header() -> Result {
        let registered = Registered::new(&Seen::new()?, |_| Ok(()))?;
        let dev = registered.device();
        let dest = [INSPECTED; ADDR_LEN];
        assert_eq!(Kept::new(dev, &dest)?.header(), None);
        assert!(header_for(dev, &dest, 100).is_ok());
        assert_eq!(header_for(dev, &dest, 101), Err(EINVAL));
        assert!(header_for(dev, &[2; ADDR_LEN], 101).is_ok());
        Ok(())
    }

    /// A packet socket asks for the header first, and writes the packet then.
    #[test]
    fn what_is_not_written_is_not_shown() -> Result {
        let skb = Skb::new(40)?;
        // SAFETY: It is valid and does not change meanwhile.
        let shown = unsafe { Outgoing::from_raw(skb.0, 40) }.linear().len();
        assert_eq!(shown, 0);
        skb.set_protocol(bindings::ETH_P_ARP as u16);
        // SAFETY: As above.
        let shown = unsafe { Outgoing::from_raw(skb.0, 40) }.linear().len();
        assert_eq!(shown, 0);
        skb.set_protocol(ETH_P_IP);
        // SAFETY: As above.
        let shown = unsafe { Outgoing::from_raw(skb.0, 40) }.linear().len();
        assert_eq!(shown, 40);
        Ok(())
    }

    #[test]
    fn frames_say_whom_they_are_for() -> Result {
        let skb = Skb::new(10)?;
        let raw = core::ptr::NonNull::new(skb.0).ok_or(ENOMEM)?;
        core::mem::forget(skb);
        // SAFETY: It is nobody else's.
        let mut skb = unsafe { RxSkb::from_non_null(raw) };
        for (packet_type, number) in [
            (PacketType::Multicast, bindings::PACKET_MULTICAST),
            (PacketType::Broadcast, bindings::PACKET_BROADCAST),
        ] {
            skb.set_packet_type(packet_type);
            // SAFETY: Every view of the union holds integers only.
            let set = unsafe { (*raw.as_ptr()).__bindgen_anon_4.headers.as_ref().pkt_type() };
            assert_eq!(u32::from(set), number);
        }
        Ok(())
    }

    /// Whoever forwards a packet finds the checksum that is yet to be made.
    #[test]
    fn a_packet_has_its_headers_and_its_checksum() -> Result {
        for (start, offset, summed) in [
            (0, 0, bindings::CHECKSUM_NONE),
            (20, 16, bindings::CHECKSUM_PARTIAL),
        ] {
            let skb = Skb::new(60)?;
            let raw = core::ptr::NonNull::new(skb.0).ok_or(ENOMEM)?;
            core::mem::forget(skb);
            // SAFETY: It is nobody else's.
            let mut skb = unsafe { RxSkb::from_non_null(raw) };
            // SAFETY: The data lie behind the begin of the head.
            let at = unsafe { (*raw.as_ptr()).data.offset_from((*raw.as_ptr()).head) } as u16;
            let packet = crate::packet::Packet::new(0, ETH_P_IP).with_partial(start, offset);
            // SAFETY: The packet begins with the data, and nothing was said of its checksum.
            unsafe { skb.set_packet(&packet, at) };
            // SAFETY: Every view of the unions holds integers only.
            unsafe {
                let headers = (*raw.as_ptr()).__bindgen_anon_4.headers.as_ref();
                assert_eq!(u16::from_be(headers.protocol), ETH_P_IP);
                assert_eq!(headers.network_header, at);
                assert_eq!(u32::from(headers.ip_summed()), summed);
                if summed == bindings::CHECKSUM_PARTIAL {
                    let sum = headers.__bindgen_anon_1.__bindgen_anon_1;
                    assert_eq!((sum.csum_start, sum.csum_offset), (at + start, offset));
                    assert_eq!(headers.transport_header, at + start);
                }
            }
        }
        Ok(())
    }

    /// Headers of a clone are written in place; payload that it shares with TCP is copied first.
    #[test]
    fn shared_payload_is_not_written() -> Result {
        let original = Skb::new(40)?;
        let mut clone = clone_of(&original)?;
        let front = clone.front();
        clone.header_mut::<HEADER_LEN>()?.fill(2);
        assert_eq!(clone.front(), front);
        clone.overwrite(HEADER_LEN - 4, &[2; 4])?;
        assert_eq!(clone.front().addr(), front.addr() + HEADER_LEN - 4);
        clone.header_mut::<5>()?.fill(2);
        drop(clone);
        let mut clone = clone_of(&original)?;
        clone.overwrite(HEADER_LEN - 4, &[2; 5])?;
        drop(clone);
        // SAFETY: So many bytes are in its head, and nobody writes to them.
        let bytes = unsafe { core::slice::from_raw_parts((*original.0).data, 40) };
        assert!(bytes.iter().all(|byte| *byte == 0));
        Ok(())
    }

    /// A handle may be dropped last, and where nobody may sleep: all that has to be waited for is done then.
    #[test]
    fn a_handle_outlives_its_napi() -> Result {
        let registered = Registered::new(&Seen::new()?, |_| Ok(()))?;
        let dev = registered.device();
        let polls = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let mut napi = Napi::<Counting>::new(dev)?;
        let handle = napi.handle();
        assert!(has_napi(dev));
        napi.enable(Counting(polls.clone()), Quiet)?;
        let count = |poll: &mut Counting| poll.0.load(Relaxed);
        assert_eq!(handle.ask(count), Ok(0));
        drop(napi);
        assert!(!has_napi(dev));
        let before = polls.load(Relaxed);
        handle.schedule();
        assert_eq!(handle.ask(count), Err(ENETDOWN));
        fsleep(Delta::from_millis(5));
        assert_eq!(polls.load(Relaxed), before);
        // The handle does not hold the device.
        drop(registered);
        drop(handle);
        Ok(())
    }

    #[test]
    fn a_napi_runs_once() -> Result {
        let registered = Registered::new(&Seen::new()?, |_| Ok(()))?;
        let polls = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let mut napi = Napi::<Counting>::new(registered.device())?;
        assert!(napi.disable().is_none());
        napi.enable(Counting(polls.clone()), Quiet)?;
        assert_eq!(napi.enable(Counting(polls.clone()), Quiet), Err(EBUSY));
        assert!(napi.disable().is_some());
        assert!(napi.disable().is_none());
        napi.enable(Counting(polls), Quiet)?;
        Ok(())
    }

    /// A poll that rests runs again by itself, and its source is armed when it rests no more.
    #[test]
    fn a_poll_rests_without_events() -> Result {
        let registered = Registered::new(&Seen::new()?, |_| Ok(()))?;
        let polls = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let arms = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let mut napi = Napi::new(registered.device())?;
        let state = Resting {
            polls: polls.clone(),
            // Longer than a tick: not each kernel has finer timers.
            us: 20_000,
        };
        napi.enable(state, Armed(arms.clone()))?;
        napi.handle().schedule();
        for _ in 0..1000 {
            if arms.load(Relaxed) > 0 {
                break;
            }
            fsleep(Delta::from_millis(10));
        }
        assert!(napi.disable().is_some());
        assert_eq!((polls.load(Relaxed), arms.load(Relaxed)), (RESTS + 1, 1));
        Ok(())
    }

    /// Whoever has no room left ends a rest.
    #[test]
    fn a_rest_ends_when_the_poll_is_scheduled() -> Result {
        let registered = Registered::new(&Seen::new()?, |_| Ok(()))?;
        let polls = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let arms = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let mut napi = Napi::new(registered.device())?;
        // By itself it would go on in an hour.
        let state = Resting {
            polls: polls.clone(),
            us: u32::MAX,
        };
        napi.enable(state, Armed(arms.clone()))?;
        let waker = napi.handle().waker();
        for poll in 1..=RESTS + 1 {
            waker.wake();
            for _ in 0..1000 {
                if polls.load(Relaxed) == poll {
                    break;
                }
                fsleep(Delta::from_millis(10));
            }
            assert_eq!(polls.load(Relaxed), poll);
        }
        assert!(napi.disable().is_some());
        assert_eq!((polls.load(Relaxed), arms.load(Relaxed)), (RESTS + 1, 1));
        Ok(())
    }

    /// Whether an instance is enabled is not looked for in the state, which is the poll's alone while that runs.
    #[test]
    fn a_poll_has_its_state_alone() -> Result {
        const NOT_YET: i32 = 1;
        let registered = Registered::new(&Seen::new()?, |_| Ok(()))?;
        let result = Arc::new(Atomic::new(NOT_YET), GFP_KERNEL)?;
        let napi = KBox::into_raw(KBox::new(Napi::new(registered.device())?, GFP_KERNEL)?);
        let state = Reentrant {
            result: result.clone(),
            napi,
        };
        // SAFETY: It is ours until it is scheduled, and from when its poll has run.
        let mut napi = unsafe {
            let enabled = (*napi).enable(state, Quiet);
            let handle = (*napi).handle();
            handle.schedule();
            for _ in 0..1000 {
                if enabled.is_err() || result.load(Relaxed) != NOT_YET {
                    break;
                }
                fsleep(Delta::from_millis(10));
            }
            KBox::from_raw(napi)
        };
        assert_eq!(result.load(Relaxed), EBUSY.to_errno());
        assert!(napi.disable().is_some());
        Ok(())
    }

    /// The queues refer to the instances that poll them, until the device goes.
    #[test]
    fn queues_show_their_napi() -> Result {
        let registered = Registered::new(&Seen::new()?, |_| Ok(()))?;
        let dev = registered.device();
        let napi = Napi::<Counting>::new(dev)?;
        let raw = napi.instance().as_raw();
        {
            let mut rtnl = Rtnl::lock();
            let (set, again) = (
                dev.set_queue_napi(&napi, &mut rtnl),
                dev.set_queue_napi(&napi, &mut rtnl),
            );
            assert_eq!((set, again), (Ok(()), Err(EBUSY)));
            // SAFETY: RTNL protects both.
            let (receive, transmit) =
                unsafe { ((*(*dev.as_raw())._rx).napi, (*(*dev.as_raw())._tx).napi) };
            assert!(core::ptr::eq(receive, raw));
            assert!(transmit.is_null());
        }
        // The queue keeps the instance in memory.
        drop(napi);
        let mut rtnl = Rtnl::lock();
        // SAFETY: RTNL is held, and the queue refers to what is in memory.
        assert_eq!(unsafe { (*(*(*dev.as_raw())._rx).napi).list_owner }, -1);
        dev.clear_queue_napi(&mut rtnl);
        // SAFETY: RTNL is held.
        assert!(unsafe { (*(*dev.as_raw())._rx).napi.is_null() });
        drop(rtnl);
        let late = Napi::<Counting>::new(dev)?;
        assert_eq!(dev.set_queue_napi(&late, &mut Rtnl::lock()), Err(EBUSY));
        drop(late);
        let other = Registered::new(&Seen::new()?, |_| Ok(()))?;
        let foreign = Napi::<Counting>::new(other.device())?;
        assert_eq!(dev.set_queue_napi(&foreign, &mut Rtnl::lock()), Err(EINVAL));
        Ok(())
    }

    /// A device can have more queues than its driver uses. Nobody would wake those, and the watchdog looks at all of
    /// them.
    #[test]
    fn a_restart_stops_no_queue_for_good() -> Result {
        let registered = Registered::with_queues(&Seen::new()?, |_| Ok(()), 2)?;
        let dev = registered.device();
        let mut rtnl = Rtnl::lock();
        // SAFETY: RTNL is held, and the device is registered.
        to_result(unsafe { bindings::dev_open(dev.as_raw(), core::ptr::null_mut()) })?;
        dev.restart(&mut rtnl)?;
        // SAFETY: The device has two queues; the state is a word that C reads without a lock, too.
        let state = unsafe { (*(*dev.as_raw())._tx.add(1)).state };
        // A test that fails ends here.
        drop(rtnl);
        let stopped = 1 << bindings::netdev_queue_state_t___QUEUE_STATE_DRV_XOFF;
        assert_eq!(state & stopped, 0);
        Ok(())
    }

    /// Bytes that a device's limit knows of.
    fn in_flight(dev: &Device<Dummy>) -> u32 {
        // SAFETY: The device has a queue, whose counts only the test changes.
        unsafe {
            let limit = &(*(*dev.as_raw())._tx).dql;
            limit.num_queued.wrapping_sub(limit.num_completed)
        }
    }

    /// Has an instance poll once.
    fn poll_once(napi: &Napi<Completing>, polls: &Atomic<u32>) {
        let before = polls.load(Relaxed);
        napi.handle().schedule();
        for _ in 0..1000 {
            if polls.load(Relaxed) > before {
                break;
            }
            fsleep(Delta::from_millis(10));
        }
        assert_eq!(polls.load(Relaxed), before + 1);
    }

    /// The byte queue limit stops the kernel (BUG) if more bytes are completed than were sent, or by two at a time.
    #[test]
    fn no_more_is_completed_than_was_sent() -> Result {
        let registered = Registered::new(&Seen::new()?, |_| Ok(()))?;
        let dev = registered.device();
        let polls = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let mut instances = [Napi::new(dev)?, Napi::new(dev)?];
        let set = dev.set_queue_napi(&instances[0], &mut Rtnl::lock());
        assert_eq!(set, Ok(()));
        for napi in &mut instances {
            let state = Completing {
                dev: dev.get_typed(),
                polls: polls.clone(),
            };
            napi.enable(state, Quiet)?;
        }
        // Without the lock nothing is accounted.
        assert!(dev.sent(100));
        assert_eq!(in_flight(dev), 0);
        {
            let _tx = dev.lock_tx();
            dev.sent(100);
        }
        // That of the queue completes, and no other.
        for (i, left) in [(1, 100), (0, 40), (1, 40), (0, 0), (0, 0)] {
            poll_once(&instances[i], &polls);
            assert_eq!(in_flight(dev), left);
        }
        // Disabling the queue's instance empties the limit, of however many bytes.
        {
            let _tx = dev.lock_tx();
            dev.sent(u32::MAX);
        }
        let [mut first, mut second] = instances;
        assert!(in_flight(dev) > 0 && second.disable().is_some());
        assert!(in_flight(dev) > 0 && first.disable().is_some());
        assert_eq!(in_flight(dev), 0);
        Ok(())
    }

    /// Returns true if the limit keeps the stack from transmitting.
    fn is_held(dev: &Device<Dummy>) -> bool {
        let held = 1 << bindings::netdev_queue_state_t___QUEUE_STATE_STACK_XOFF;
        // SAFETY: The device has a queue; its state is a word that C reads without a lock, too.
        unsafe { (*(*dev.as_raw())._tx).state & held != 0 }
    }

    /// Nobody takes frames off the limit where no instance polls for what is sent: they would stop the queue for good.
    #[test]
    fn what_nobody_completes_is_not_accounted() -> Result {
        let registered = Registered::new(&Seen::new()?, |_| Ok(()))?;
        let dev = registered.device();
        let both = Napi::<Counting>::new(dev)?;
        let sends = Napi::<Completing>::new(dev)?;
        let send = || {
            let _tx = dev.lock_tx();
            assert!(dev.sent(u32::MAX));
            (in_flight(dev) > 0, is_held(dev))
        };
        assert_eq!(send(), (false, false));
        assert_eq!(dev.set_queue_napi(&both, &mut Rtnl::lock()), Ok(()));
        assert_eq!(send(), (false, false));
        assert_eq!(dev.set_queue_napi(&sends, &mut Rtnl::lock()), Ok(()));
        assert_eq!(send(), (true, true));
        Ok(())
    }

    /// A bond over the device drops the routes of frames until it hears of it.
    #[test]
    fn others_are_told_that_routes_are_kept() -> Result {
        let registered = Registered::new(&Seen::new()?, |_| Ok(()))?;
        let refusal = Refusal::new(bindings::netdev_cmd_NETDEV_FEAT_CHANGE)?;
        let before = REFUSALS.load(Relaxed);
        let mut rtnl = Rtnl::lock();
        for _ in 0..2 {
            registered.device().keep_routes(&mut rtnl);
            assert_eq!(REFUSALS.load(Relaxed) - before, 1);
        }
        drop(rtnl);
        drop(refusal);
        Ok(())
    }

    /// The core closes a device as it unregisters it, and not again.
    #[test]
    fn a_device_that_goes_stays_down() -> Result {
        let registered = Registered::new(&Seen::new()?, |_| Ok(()))?;
        let dev = registered.device().get_typed();
        core::mem::forget(registered);
        let mut rtnl = Rtnl::lock();
        dev.get_typed().unregister(&mut rtnl);
        let result = dev.set_up(true, &mut rtnl);
        // Releasing RTNL waits for this reference. A test that fails ends below.
        drop(dev);
        drop(rtnl);
        assert_eq!(result, Err(ENODEV));
        Ok(())
    }

    /// A carrier is there before the stack has noticed: what is sent meanwhile goes nowhere.
    #[test]
    fn a_new_carrier_sends_later() -> Result {
        let registered = Registered::new(&Seen::new()?, |_| Ok(()))?;
        let dev = registered.device();
        dev.set_carrier(false);
        let mut rtnl = Rtnl::lock();
        dev.set_up(true, &mut rtnl)?;
        let without = dev.can_send();
        dev.set_carrier(true);
        // Noticing takes RTNL.
        let unnoticed = dev.can_send();
        // A test that fails ends here.
        drop(rtnl);
        assert!(!without && !unnoticed);
        for _ in 0..3000 {
            if dev.can_send() {
                break;
            }
            fsleep(Delta::from_millis(1));
        }
        assert!(dev.can_send());
        Ok(())
    }

    /// Registrations and work items, which no device ends, keep the text if they are forgotten.
    #[test]
    fn what_is_forgotten_keeps_the_text() -> Result {
        let kind = || link::Registration::<Dummy>::new(c"kunit");
        assert!(TextRef::is_kept_by(kind)?);
        assert!(TextRef::is_kept_by(|| notifier::Registration::new(Deaf))?);
        assert!(TextRef::is_kept_by(|| Task::new(Deaf))?);
        Ok(())
    }

    /// Names of devices are any bytes but a few.
    #[test]
    fn names_need_not_be_utf_8() -> Result {
        let path = Joined::new(&[c"net/", c"ib\xff"])?;
        assert_eq!(path.as_c_str().to_bytes(), b"net/ib\xff");
        Ok(())
    }
}
