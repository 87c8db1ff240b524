// SPDX-License-Identifier: GPL-2.0

//! Deferred destruction of resources.
//!
//! Address handles, connected queue pairs and connection IDs must be destroyed in process context without
//! locks, but a completion may drop the last reference in softirq. So dropping one only queues it, and a work
//! item destroys what is queued. A resource that cannot be destroyed yet stays queued, and delays no other.
//!
//! Each interface has a [`Reaper`]. What waits for others when it is destroyed, as connection IDs do, must not delay the
//! end of an interface: for that, each device of a client has one that is [patient](Reaper::patient).

use core::mem::MaybeUninit;
use core::ops::Deref;
use core::ptr::NonNull;

use ipoib_rings::deferred::{Link, List, Users};
use ipoib_sys::bindings;
use ipoib_sys::text::TextRef;
use kernel::ffi::c_long;
use kernel::prelude::*;
use kernel::sync::{Arc, Completion};
use kernel::time::msecs_to_jiffies;
use kernel::types::Opaque;

/// A value that the work item drops.
pub(crate) trait DeferDrop: Send + 'static {
    /// Prepares to be dropped. If it is not ready (false), it is called again after [`PAUSE_MS`].
    ///
    /// # Context
    ///
    /// Process context; may sleep, but delays everything else that is queued.
    fn prepare_drop(&mut self) -> bool {
        true
    }
}

/// Time before the work item tries again to destroy what was not ready, in milliseconds: seldom enough that a CPU which
/// is idle otherwise does not feel it.
pub(crate) const PAUSE_MS: u32 = 20;

/// The longest such time where what is not ready may stay so for as long as others like.
const LONG_PAUSE_MS: u32 = 160;

/// The beginning of every node, whatever its type.
#[repr(C)]
struct Header {
    link: Link,
    /// Drops this node, unless it is not ready; returns whether it did.
    free: unsafe fn(NonNull<Header>) -> bool,
}

/// A value with its link; on a list only once its [`Deferred`] was dropped.
#[repr(C)]
struct Node<T> {
    header: Header,
    value: T,
    /// Dropped last.
    user: User,
}

/// A node allocated in advance: what was made with success must not be lost for want of memory.
pub(crate) struct Reserved<T> {
    room: KBox<MaybeUninit<Node<T>>>,
    user: User,
}

impl<T: DeferDrop> Reserved<T> {
    /// Allocates a node, to be queued to `owner`.
    ///
    /// # Errors
    ///
    /// `ESHUTDOWN` after the [`Reaper`] was dropped; `ENOMEM`.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub(crate) fn new(owner: &Arc<DeferredDrop>) -> Result<Self> {
        Ok(Self {
            room: KBox::new_uninit(GFP_KERNEL)?,
            user: User::new(owner)?,
        })
    }

    /// Puts a value into the node.
    pub(crate) fn fill(self, value: T) -> Deferred<T> {
        let node = KBox::write(
            self.room,
            Node {
                header: Header {
                    link: Link::new(),
                    free: free::<T>,
                },
                value,
                user: self.user,
            },
        );
        // INVARIANT: The box is given up here.
        Deferred {
            // SAFETY: A box's pointer is not null.
            node: unsafe { NonNull::new_unchecked(KBox::into_raw(node)) },
        }
    }
}

/// Drops a node if its value is ready; returns whether it did.
///
/// # Safety
///
/// `header` must be the beginning of an owned `Node<T>`, whose ownership passes to this function if it returns
/// true.
unsafe fn free<T: DeferDrop>(header: NonNull<Header>) -> bool {
    let mut node = header.cast::<Node<T>>();
    // SAFETY: By this function's requirements; the header is the first field of a `repr(C)` structure.
    let prepare_drop = unsafe { node.as_mut() }.value.prepare_drop();
    if prepare_drop {
        // SAFETY: As above; all nodes come from boxes.
        drop(unsafe { KBox::from_raw(node.as_ptr()) });
    }
    prepare_drop
}

/// The owner of a value that the work item drops, in process context. The owner itself may be dropped in any
/// context but hard interrupt.
///
/// # Invariants
///
/// `node` is owned by this value, comes from a box and is not on a list.
pub(crate) struct Deferred<T: DeferDrop> {
    node: NonNull<Node<T>>,
}

// SAFETY: A box of a value that is dropped by another thread, the work item, in any case.
unsafe impl<T: DeferDrop> Send for Deferred<T> {}
// SAFETY: It gives out shared references only.
unsafe impl<T: DeferDrop + Sync> Sync for Deferred<T> {}

impl<T: DeferDrop> Deref for Deferred<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: Owned by the type invariant.
        unsafe { &self.node.as_ref().value }
    }
}

impl<T: DeferDrop> Drop for Deferred<T> {
    fn drop(&mut self) {
        // Once the node is queued, the work item may drop it, and with it the last other reference.
        //
        // SAFETY: Owned by the type invariant.
        let owner = unsafe { self.node.as_ref() }.user.0.clone();
        // There are users, the node's being one, so that there can be one more.
        let user = User::new(&owner);
        // SAFETY: Owned by the type invariant, and given up here; it is a user itself.
        unsafe { owner.push(self.node.cast()) };
        drop(user);
    }
}

/// Dropped resources of whoever has the [`Reaper`], and the work item that destroys them one after the other.
///
/// # Invariants
///
/// * `queued` owns its nodes.
/// * `users` counts the reaper, all nodes, and whoever is about to queue the work item. When the last one goes, `idle` is
///   completed, and the work item is not queued any more.
#[pin_data]
pub(crate) struct DeferredDrop {
    queued: List,
    #[pin]
    work: Opaque<bindings::work_struct>,
    /// True if the work item may run for as long as others like.
    patient: bool,
    users: Users,
    #[pin]
    idle: Completion,
    _text: TextRef,
}

// SAFETY: The list is atomic; its nodes hold values that are `Send`, and belong to whoever takes them off. The
// workqueue synchronises the work item; the rest is `Send`.
unsafe impl Send for DeferredDrop {}
// SAFETY: As above, and `Sync`.
unsafe impl Sync for DeferredDrop {}

impl DeferredDrop {
    fn put(&self) {
        if self.users.leave() {
            self.idle.complete_all();
        }
    }

    /// Waits for the work item, once there are no users.
    fn end(&self) {
        // SAFETY: The work was initialised; without users nobody queues it any more.
        unsafe { bindings::cancel_work_sync(self.work.get()) };
    }

    /// Has the work item drop a node.
    ///
    /// # Safety
    ///
    /// The caller must own the node, which passes to the list, and be a user.
    unsafe fn push(&self, node: NonNull<Link>) {
        // SAFETY: By this function's requirements; an owned node is on no list.
        unsafe { self.queued.push(node) };
        // SAFETY: The work was initialised, and stays for as long as there are users, of whom the
        // caller is one.
        unsafe { bindings::ipoib_rs_work_queue(self.work.get(), self.patient) };
    }

    fn empty(&self) {
        let mut pause_ms = PAUSE_MS;
        // Dropping a value may queue others, and some are not ready at first.
        loop {
            let queued = self.queued.take();
            if queued.is_empty() {
                return;
            }
            let mut all_dropped = true;
            for link in queued {
                let header = link.cast::<Header>();
                // SAFETY: The list's nodes are owned, and it is ours now; a node begins with its link.
                let free = unsafe { header.as_ref() }.free;
                // SAFETY: As above; a node's header names the function for its type.
                if !unsafe { free(header) } {
                    // SAFETY: It is still there, and on no list.
                    unsafe { self.queued.push(link) };
                    all_dropped = false;
                }
            }
            if !all_dropped {
                let pause = msecs_to_jiffies(pause_ms) as c_long;
                // It may go on for long, and is to count as no load.
                //
                // SAFETY: The work item may sleep.
                unsafe { bindings::schedule_timeout_idle(pause) };
                if self.patient {
                    pause_ms = (2 * pause_ms).min(LONG_PAUSE_MS);
                }
            }
        }
    }
}

/// # Safety
///
/// Called by the workqueue for the work of a [`DeferredDrop`].
unsafe extern "C" fn reap(work: *mut bindings::work_struct) {
    let field = Opaque::cast_from(work);
    // SAFETY: By this function's requirements; `Reaper::drop` waits for the work before the
    // `DeferredDrop` can go.
    unsafe { &*kernel::container_of!(field, DeferredDrop, work) }.empty();
}

/// One of the users of a [`DeferredDrop`].
struct User(Arc<DeferredDrop>);

impl User {
    fn new(owner: &Arc<DeferredDrop>) -> Result<Self> {
        if !owner.users.enter() {
            return Err(ESHUTDOWN);
        }
        Ok(Self(owner.clone()))
    }
}

impl Drop for User {
    fn drop(&mut self) {
        self.0.put();
    }
}

/// Destroys dropped resources. Who owns it drops it last.
pub struct Reaper {
    owner: Arc<DeferredDrop>,
}

impl Reaper {
    /// Makes a reaper.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn new() -> Result<Self> {
        Self::with(false)
    }

    /// Makes a reaper of what may wait for as long as others like when it is destroyed. It delays nothing but its own
    /// end.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub(crate) fn patient() -> Result<Self> {
        Self::with(true)
    }

    fn with(patient: bool) -> Result<Self> {
        let owner = Arc::pin_init(
            pin_init!(DeferredDrop {
                queued: List::new(),
                work <- Opaque::ffi_init(|work| {
                    // SAFETY: `work` is writable and pinned.
                    unsafe { bindings::ipoib_rs_work_init(work, Some(reap)) };
                }),
                patient,
                users: Users::new(),
                idle <- Completion::new(),
                _text: TextRef::new(),
            }),
            GFP_KERNEL,
        )?;
        Ok(Self { owner })
    }

    pub(crate) fn deferred_drop(&self) -> &Arc<DeferredDrop> {
        &self.owner
    }

    /// Waits until everything that was dropped before is destroyed, and what that alone had held as well: the
    /// shared receive queue of the last queue pair that used it, for example. A connection ID, which its device's reaper
    /// destroys, has nothing of anybody's by then.
    ///
    /// # Context
    ///
    /// Process context; may sleep. Not from where a value is dropped.
    pub fn flush(&self) {
        // SAFETY: The work was initialised.
        unsafe { bindings::flush_work(self.owner.work.get()) };
    }
}

#[cfg(CONFIG_KUNIT = "y")]
impl Reaper {
    /// Drops it, for a test that has so many milliseconds for that: what it waits for then is leaked.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT`.
    pub(crate) fn end_in(self, limit_ms: i64) -> Result {
        let this = core::mem::ManuallyDrop::new(self);
        this.owner.put();
        wait_for(&this.owner.idle, limit_ms)?;
        // SAFETY: It is not used again.
        let owner = unsafe { core::ptr::read(&raw const this.owner) };
        owner.end();
        Ok(())
    }
}

/// Waits so many milliseconds for a completion.
///
/// # Errors
///
/// `ETIMEDOUT`.
#[cfg(CONFIG_KUNIT = "y")]
pub(crate) fn wait_for(completion: &Completion, limit_ms: i64) -> Result {
    let mut time = crate::flush_time::FlushTime::of(limit_ms);
    while !is_done(completion) {
        if !time.wait() {
            return Err(ETIMEDOUT);
        }
    }
    Ok(())
}

/// Returns true if nobody has to wait for a completion any more.
#[cfg(CONFIG_KUNIT = "y")]
pub(crate) fn is_done(completion: &Completion) -> bool {
    let raw = core::ptr::from_ref(completion)
        .cast_mut()
        .cast::<bindings::completion>();
    // SAFETY: A `Completion` is a C completion, which was initialised.
    unsafe { bindings::completion_done(raw) }
}

impl Drop for Reaper {
    /// Waits until everything was dropped and is destroyed.
    fn drop(&mut self) {
        self.owner.put();
        self.owner.idle.wait_for_completion();
        self.owner.end();
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[kunit_tests(rust_rdma_deferred)]
mod tests {
    use super::*;
    use kernel::sync::atomic::{Atomic, Relaxed};

    /// A value that is dropped when somebody says so, or after some seconds, and counts those dropped before it.
    struct Stubborn {
        ready: Arc<Atomic<u32>>,
        visits: u32,
        gone: Arc<Atomic<u32>>,
        before: Arc<Atomic<u32>>,
    }

    impl DeferDrop for Stubborn {
        fn prepare_drop(&mut self) -> bool {
            self.visits += 1;
            self.ready.load(Relaxed) > 0 || self.visits == 250
        }
    }

    impl Drop for Stubborn {
        fn drop(&mut self) {
            self.before.store(self.gone.fetch_add(1, Relaxed), Relaxed);
        }
    }

    fn counter(value: u32) -> Result<Arc<Atomic<u32>>> {
        Ok(Arc::new(Atomic::new(value), GFP_KERNEL)?)
    }

    /// Drops a value; how many were dropped before it is known later.
    fn drop_one(
        reaper: &Reaper,
        ready: &Arc<Atomic<u32>>,
        gone: &Arc<Atomic<u32>>,
    ) -> Result<Arc<Atomic<u32>>> {
        let before = counter(9)?;
        let remains = Stubborn {
            ready: ready.clone(),
            visits: 0,
            gone: gone.clone(),
            before: before.clone(),
        };
        drop(Reserved::new(reaper.deferred_drop())?.fill(remains));
        Ok(before)
    }

    #[test]
    fn a_value_that_is_not_ready_delays_no_other() -> Result {
        let reaper = Reaper::new()?;
        let gone = counter(0)?;
        let first = drop_one(&reaper, &gone, &gone)?;
        let second = drop_one(&reaper, &counter(1)?, &gone)?;
        reaper.flush();
        assert_eq!(gone.load(Relaxed), 2);
        assert_eq!(first.load(Relaxed), 1);
        assert_eq!(second.load(Relaxed), 0);
        Ok(())
    }

    /// A reaper that is forgotten keeps the text of its work item.
    #[test]
    fn a_reaper_keeps_the_text() -> Result {
        assert!(TextRef::is_kept_by(Reaper::new)?);
        Ok(())
    }

    /// A reaper that waits delays the end of no other.
    #[test]
    fn a_patient_reaper_delays_no_other() -> Result {
        let (patient, reaper) = (Reaper::patient()?, Reaper::new()?);
        let (ready, gone) = (counter(0)?, counter(0)?);
        drop_one(&patient, &ready, &gone)?;
        drop_one(&reaper, &counter(1)?, &gone)?;
        drop(reaper);
        assert_eq!(gone.load(Relaxed), 1);
        ready.store(1, Relaxed);
        drop(patient);
        assert_eq!(gone.load(Relaxed), 2);
        Ok(())
    }
}
