// SPDX-License-Identifier: GPL-2.0

//! Where resources go when their last user drops them.
//!
//! Address handles, connected queue pairs and connection IDs must be destroyed in process context
//! with no lock held, whereas their last reference may well be dropped by a completion in softirq.
//! So dropping one only puts it on a list, and a work item destroys what is on the list. What cannot be
//! destroyed yet stays there, and holds up nothing else.

use core::mem::MaybeUninit;
use core::ops::Deref;
use core::ptr::NonNull;

use ipoib_rings::graves::{Link, List, Users};
use ipoib_sys::bindings;
use kernel::prelude::*;
use kernel::sync::{Arc, Completion};
use kernel::time::{delay::fsleep, Delta};
use kernel::types::Opaque;

/// Remains of a resource that nobody uses any more. Dropping them destroys it.
pub(crate) trait Remains: Send + 'static {
    /// Whether they can be dropped now. If not, that is asked again in [`PAUSE_MS`].
    ///
    /// # Context
    ///
    /// Process context; may sleep, but everything else in the graveyard waits for that.
    fn may_go(&mut self) -> bool {
        true
    }
}

/// How long the work item sleeps before it looks again at what could not be destroyed, in milliseconds.
pub(crate) const PAUSE_MS: u32 = 1;

/// What every grave begins with, whatever is in it.
#[repr(C)]
struct Header {
    link: Link,
    /// Frees the grave that this is the beginning of, and drops what is in it, if that may go.
    free: unsafe fn(NonNull<Header>) -> bool,
}

/// Where a value lies, from the beginning; on a list only once its owner is gone.
#[repr(C)]
struct Grave<T> {
    header: Header,
    value: T,
    /// Dropped last.
    user: User,
}

/// Room for a value, taken before there is one: what was made cannot be buried for want of memory
/// then.
pub(crate) struct Plot<T> {
    room: KBox<MaybeUninit<Grave<T>>>,
    user: User,
}

impl<T: Remains> Plot<T> {
    /// Room in `graveyard`.
    ///
    /// # Errors
    ///
    /// `ESHUTDOWN` after the [`Reaper`] was dropped; `ENOMEM`.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub(crate) fn new(graveyard: &Arc<Graveyard>) -> Result<Self> {
        Ok(Self {
            room: KBox::new_uninit(GFP_KERNEL)?,
            user: User::new(graveyard)?,
        })
    }

    /// Puts a value into it.
    pub(crate) fn fill(self, value: T) -> Mortal<T> {
        let grave = KBox::write(
            self.room,
            Grave {
                header: Header {
                    link: Link::new(),
                    free: free::<T>,
                },
                value,
                user: self.user,
            },
        );
        // INVARIANT: The box is given up here.
        Mortal {
            // SAFETY: A box's pointer is not null.
            grave: unsafe { NonNull::new_unchecked(KBox::into_raw(grave)) },
        }
    }
}

/// Drops a grave, if what is in it may go. False: it is still there.
///
/// # Safety
///
/// `header` must be the beginning of an owned `Grave<T>`, which is given up here if this is true.
unsafe fn free<T: Remains>(header: NonNull<Header>) -> bool {
    let mut grave = header.cast::<Grave<T>>();
    // SAFETY: By this function's requirements; the header is the first field of a `repr(C)` structure.
    let may_go = unsafe { grave.as_mut() }.value.may_go();
    if may_go {
        // SAFETY: As above; all graves come from boxes.
        drop(unsafe { KBox::from_raw(grave.as_ptr()) });
    }
    may_go
}

/// The owner of a value that is dropped in process context, by the work item, wherever the owner
/// itself is dropped: in any context but hard interrupt.
///
/// # Invariants
///
/// `grave` is owned by this value, comes from a box and is not on a list.
pub(crate) struct Mortal<T: Remains> {
    grave: NonNull<Grave<T>>,
}

// SAFETY: It is a box whose content another thread, the work item, drops in any case.
unsafe impl<T: Remains> Send for Mortal<T> {}
// SAFETY: It gives out shared references only.
unsafe impl<T: Remains + Sync> Sync for Mortal<T> {}

impl<T: Remains> Deref for Mortal<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: Owned by the type invariant.
        unsafe { &self.grave.as_ref().value }
    }
}

impl<T: Remains> Drop for Mortal<T> {
    fn drop(&mut self) {
        // Held across all of this: once the grave is on the list, the work item may empty it, and
        // with it drop what else keeps the graveyard.
        //
        // SAFETY: Owned by the type invariant.
        let graveyard = unsafe { self.grave.as_ref() }.user.0.clone();
        // There are users, the grave's being one, so that there can be one more.
        let user = User::new(&graveyard);
        // SAFETY: Owned by the type invariant, and given up here; it is a user itself.
        unsafe { graveyard.bury(self.grave.cast()) };
        drop(user);
    }
}

/// Dropped resources of all devices, and the work item that destroys them.
///
/// # Invariants
///
/// * `dead` has owned graves.
/// * `users` are the reaper while it is there, the graves, empty ones included, and those who are
///   about to queue the work. When the last goes, `idle` is completed, and the work is not queued any
///   more.
#[pin_data]
pub(crate) struct Graveyard {
    dead: List,
    users: Users,
    #[pin]
    idle: Completion,
    #[pin]
    work: Opaque<bindings::work_struct>,
}

// SAFETY: The list is atomic and its graves, which hold only things that are `Send`, belong to who
// takes them off; the work item is C's to synchronise.
unsafe impl Send for Graveyard {}
// SAFETY: As above.
unsafe impl Sync for Graveyard {}

impl Graveyard {
    /// Has the work item free a grave.
    ///
    /// # Safety
    ///
    /// It must be owned, which is given up here, and the caller be a user.
    unsafe fn bury(&self, grave: NonNull<Link>) {
        // SAFETY: By this function's requirements; an owned grave is on no list.
        unsafe { self.dead.push(grave) };
        // SAFETY: The work was initialised, and stays for as long as there are users, of whom the
        // caller is one.
        unsafe { bindings::ipoib_rs_work_queue(self.work.get()) };
    }

    fn empty(&self) {
        // Again and again, since what is dropped may bury what it was made of, and some may go later.
        loop {
            let dead = self.dead.take();
            if dead.is_empty() {
                return;
            }
            let mut all_went = true;
            for link in dead {
                let header = link.cast::<Header>();
                // SAFETY: The list's graves are owned, and it is ours now; a grave begins with its link.
                let free = unsafe { header.as_ref() }.free;
                // SAFETY: As above; a grave's header names the function for its type.
                if !unsafe { free(header) } {
                    // SAFETY: It is still there, and on no list.
                    unsafe { self.dead.push(link) };
                    all_went = false;
                }
            }
            if !all_went {
                fsleep(Delta::from_millis(PAUSE_MS.into()));
            }
        }
    }

    fn put(&self) {
        if self.users.leave() {
            self.idle.complete_all();
        }
    }
}

/// # Safety
///
/// Called by the workqueue for the work of a [`Graveyard`].
unsafe extern "C" fn reap(work: *mut bindings::work_struct) {
    let field = Opaque::cast_from(work);
    // SAFETY: By this function's requirements; `Reaper::drop` waits for the work before the
    // graveyard can go.
    unsafe { &*kernel::container_of!(field, Graveyard, work) }.empty();
}

/// One of a graveyard's users.
struct User(Arc<Graveyard>);

impl User {
    fn new(graveyard: &Arc<Graveyard>) -> Result<Self> {
        if !graveyard.users.enter() {
            return Err(ESHUTDOWN);
        }
        Ok(Self(graveyard.clone()))
    }
}

impl Drop for User {
    fn drop(&mut self) {
        self.0.put();
    }
}

/// Destroys dropped resources. The module owns it and drops it last.
pub struct Reaper {
    graveyard: Arc<Graveyard>,
}

impl Reaper {
    /// A reaper with nothing to do.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn new() -> Result<Self> {
        let graveyard = Arc::pin_init(
            pin_init!(Graveyard {
                dead: List::new(),
                users: Users::new(),
                idle <- Completion::new(),
                work <- Opaque::ffi_init(|work| {
                    // SAFETY: `work` is writable and pinned.
                    unsafe { bindings::ipoib_rs_work_init(work, Some(reap)) };
                }),
            }),
            GFP_KERNEL,
        )?;
        Ok(Self { graveyard })
    }

    pub(crate) fn graveyard(&self) -> &Arc<Graveyard> {
        &self.graveyard
    }

    /// Waits until everything whose last reference was dropped before is destroyed, and does not
    /// hold its protection domain any more. That includes what was made of: the shared receive
    /// queue of the last queue pair that used it, too.
    ///
    /// # Context
    ///
    /// Process context; may sleep. Not from a [`crate::CmHandler`] or while one waits for the
    /// caller, since a connection ID is only destroyed when its handler has returned.
    pub fn flush(&self) {
        // SAFETY: The work was initialised.
        unsafe { bindings::flush_work(self.graveyard.work.get()) };
    }
}

impl Drop for Reaper {
    /// Waits until everything was dropped and is destroyed.
    fn drop(&mut self) {
        self.graveyard.put();
        self.graveyard.idle.wait_for_completion();
        // SAFETY: The work was initialised; without users nobody queues it any more.
        unsafe { bindings::cancel_work_sync(self.graveyard.work.get()) };
    }
}

#[cfg(CONFIG_KUNIT)]
#[kunit_tests(ipoib_rs_graveyard)]
mod tests {
    use super::*;
    use kernel::sync::atomic::{Atomic, Relaxed};

    /// Goes after another one, if it is to wait for that, and counts those that went before it.
    struct Stubborn {
        waits: bool,
        visits: u32,
        gone: Arc<Atomic<u32>>,
        before: Arc<Atomic<u32>>,
    }

    impl Remains for Stubborn {
        fn may_go(&mut self) -> bool {
            self.visits += 1;
            !self.waits || self.gone.load(Relaxed) > 0 || self.visits == 5000
        }
    }

    impl Drop for Stubborn {
        fn drop(&mut self) {
            self.before.store(self.gone.fetch_add(1, Relaxed), Relaxed);
        }
    }

    #[test]
    fn what_may_not_go_yet_holds_up_nothing_else() -> Result {
        let reaper = Reaper::new()?;
        let gone = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let orders = [
            Arc::new(Atomic::new(9), GFP_KERNEL)?,
            Arc::new(Atomic::new(9), GFP_KERNEL)?,
        ];
        for (before, waits) in orders.iter().zip([true, false]) {
            let remains = Stubborn {
                waits,
                visits: 0,
                gone: gone.clone(),
                before: before.clone(),
            };
            drop(Plot::new(reaper.graveyard())?.fill(remains));
        }
        reaper.flush();
        assert_eq!(gone.load(Relaxed), 2);
        assert_eq!(orders[0].load(Relaxed), 1);
        assert_eq!(orders[1].load(Relaxed), 0);
        Ok(())
    }
}
