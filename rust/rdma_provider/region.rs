// SPDX-License-Identifier: GPL-2.0

//! Memory regions (IB specification, section 10.6).

use core::cell::UnsafeCell;
use core::ptr;

use ipoib_sys::bindings;
use kernel::prelude::*;
use kernel::processor::cpu_relax;
use kernel::sync::atomic::{Acquire, Atomic, Full, Relaxed, Release};
use kernel::sync::{new_spinlock_irq, Arc, SpinLockIrq};

/// Use of memory that a region may allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    /// The owner reads, which is always allowed.
    LocalRead,
    /// The owner writes.
    LocalWrite,
    /// The other side of a connection reads.
    RemoteRead,
    /// The other side of a connection writes.
    RemoteWrite,
    /// The other side of a connection does an atomic operation.
    RemoteAtomic,
}

impl Right {
    fn is_in(self, access: u32) -> bool {
        let flag = match self {
            Right::LocalRead => return true,
            Right::LocalWrite => bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE,
            Right::RemoteRead => bindings::ib_access_flags_IB_ACCESS_REMOTE_READ,
            Right::RemoteWrite => bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE,
            Right::RemoteAtomic => bindings::ib_access_flags_IB_ACCESS_REMOTE_ATOMIC,
        };
        access & flag != 0
    }
}

/// Pages of a region, all of the same size, which is a power of two.
struct Pages {
    list: KVVec<u64>,
    shift: u32,
}

/// The meaning of a region's addresses.
struct Mapping {
    key: u32,
    access: u32,
    /// First address.
    iova: u64,
    len: u64,
    /// Pages, of which the first has that address; none for a region of all memory.
    pages: Option<Pages>,
}

/// A registration as a ULP requests it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FastReg {
    pub(crate) key: u32,
    pub(crate) access: u32,
    /// First address. The ULP may have changed it after it drafted the pages, as NFS does, which has the number of its
    /// call there; the bits within a page stay.
    pub(crate) iova: u64,
    /// Bytes from there on.
    pub(crate) len: u64,
}

/// The pages of a registration that a ULP prepares.
struct Draft {
    pages: Pages,
    /// There will be no other registration.
    over: bool,
}

/// A memory region.
///
/// # Invariants
///
/// * `users` is the number of uses, with the sign bit set while the region is closed: then no new one begins.
/// * `mapping` changes only while `users` is [`CLOSED`], with the lock of `draft` held. While the region is open,
///   the memory that it names is lent to the device, to be used as its access flags say.
#[pin_data]
pub(crate) struct Region {
    place: u32,
    most: usize,
    users: Atomic<i32>,
    mapping: UnsafeCell<Mapping>,
    #[pin]
    draft: SpinLockIrq<Draft>,
}

// SAFETY: `mapping` is used as the type invariant says.
unsafe impl Send for Region {}
// SAFETY: As above.
unsafe impl Sync for Region {}

/// Number of users of a region that has none, and may have none.
const CLOSED: i32 = i32::MIN;

/// Bits of a key that the owner chooses.
const OWN_BITS: u32 = 8;

impl Region {
    /// A region of all memory, open.
    ///
    /// # Safety
    ///
    /// The ULP has to lend all memory that it, or whomever it tells the key, will name.
    pub(crate) unsafe fn of_all(place: u32, access: u32) -> Result<Arc<Self>> {
        let region = Self::new(place, 0)?;
        // INVARIANT: By the safety requirement.
        let _ = region.open(|mapping, _| {
            mapping.key = place << OWN_BITS;
            mapping.access = access;
            mapping.len = u64::MAX;
            mapping.pages = None;
        });
        Ok(region)
    }

    /// A region that is closed, with room for so many pages.
    pub(crate) fn new(place: u32, most: usize) -> Result<Arc<Self>> {
        let pages = || -> Result<Pages> {
            Ok(Pages {
                list: KVVec::with_capacity(most, GFP_KERNEL)?,
                shift: 0,
            })
        };
        let mapping = Mapping {
            key: place << OWN_BITS,
            access: 0,
            iova: 0,
            len: 0,
            pages: Some(pages()?),
        };
        let draft = Draft {
            pages: pages()?,
            over: false,
        };
        // INVARIANT: It is closed.
        Arc::pin_init(
            pin_init!(Self {
                place,
                most,
                users: Atomic::new(CLOSED),
                mapping: UnsafeCell::new(mapping),
                draft <- new_spinlock_irq!(draft, "rdma_provider::Region"),
            }),
            GFP_KERNEL,
        )
    }

    /// Place in the table, which is its key without the bits that the owner chooses.
    pub(crate) fn place(&self) -> u32 {
        self.place
    }

    /// Opens it with another mapping, unless it is open.
    fn open(&self, change: impl FnOnce(&mut Mapping, &mut Draft)) -> Result {
        let mut draft = self.draft.lock();
        if draft.over || self.users.load(Acquire) != CLOSED {
            return Err(EBUSY);
        }
        // SAFETY: It is closed and without users, and the lock keeps others from opening it.
        change(unsafe { &mut *self.mapping.get() }, &mut draft);
        // INVARIANT: The change is over.
        self.users.store(0, Release);
        Ok(())
    }

    /// Begins a list of pages, for the next registration.
    pub(crate) fn begin_draft(&self, page_size: u32) -> Result {
        if !page_size.is_power_of_two() {
            return Err(EINVAL);
        }
        let mut draft = self.draft.lock();
        draft.pages.list.clear();
        draft.pages.shift = page_size.trailing_zeros();
        Ok(())
    }

    /// Adds a page to it.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there are as many as there may be.
    pub(crate) fn add_page(&self, at: u64) -> Result {
        let mut draft = self.draft.lock();
        if draft.pages.list.len() >= self.most {
            return Err(ENOMEM);
        }
        let pushed = draft.pages.list.push_within_capacity(at);
        pushed.map_err(|_| ENOMEM)
    }

    /// Registers the memory that was drafted.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the region is open; `EINVAL` for a key that is not its.
    pub(crate) fn register(&self, request: FastReg) -> Result {
        if request.key >> OWN_BITS != self.place || self.most == 0 {
            return Err(EINVAL);
        }
        // INVARIANT: The ULP has lent the memory with the request to register it.
        self.open(|mapping, draft| {
            mapping.key = request.key;
            mapping.access = request.access;
            (mapping.iova, mapping.len) = (request.iova, request.len);
            if let Some(pages) = &mut mapping.pages {
                core::mem::swap(pages, &mut draft.pages);
            }
        })
    }

    /// Closes it, and waits until nobody uses it.
    ///
    /// # Context
    ///
    /// Any. Users hold no lock for which they wait, and it does not take them long.
    pub(crate) fn close(&self) {
        let mut old = self.users.load(Relaxed);
        while let Err(now) = self.users.cmpxchg(old, old | CLOSED, Full) {
            old = now;
        }
        // If it is open, it was closed and without users in the meantime.
        while (CLOSED + 1..0).contains(&self.users.load(Acquire)) {
            cpu_relax();
        }
    }

    /// Closes it for good.
    pub(crate) fn end(&self) {
        self.draft.lock().over = true;
        self.close();
    }

    /// Closes it if it is open with this key. False if it is not.
    pub(crate) fn invalidate(self: &Arc<Self>, key: u32) -> bool {
        let open = self.most > 0 && self.enter().is_some_and(|used| used.mapping().key == key);
        if open {
            self.close();
        }
        open
    }

    /// Begins a use, if it is open.
    fn enter(self: &Arc<Self>) -> Option<Use> {
        let mut old = self.users.load(Relaxed);
        loop {
            if old < 0 || old == i32::MAX {
                return None;
            }
            match self.users.cmpxchg(old, old + 1, Full) {
                Ok(_) => break,
                Err(now) => old = now,
            }
        }
        // INVARIANT: It was open, and this is counted.
        Some(Use {
            region: self.clone(),
        })
    }

    /// Begins a use of a kind, if it is open with this key and allows that.
    pub(crate) fn enter_with(self: &Arc<Self>, key: u32, right: Right) -> Option<Use> {
        let used = self.enter()?;
        let mapping = used.mapping();
        (mapping.key == key && right.is_in(mapping.access)).then_some(used)
    }
}

/// A use of a region, which is not closed before this is dropped.
///
/// # Invariants
///
/// It is counted in the region's `users`.
pub(crate) struct Use {
    region: Arc<Region>,
}

impl Use {
    fn mapping(&self) -> &Mapping {
        // SAFETY: It does not change as long as there is a user, by the invariants.
        unsafe { &*self.region.mapping.get() }
    }

    /// The memory that an address of the region means, and how many bytes there are in a row, 1 or more; `None`
    /// if `len` bytes from there on are not all in the region.
    pub(crate) fn memory(&self, address: u64, len: usize) -> Option<(*mut u8, usize)> {
        let mapping = self.mapping();
        let offset = address.checked_sub(mapping.iova)?;
        let left = mapping.len.checked_sub(offset)?;
        if left == 0 || left < len as u64 {
            return None;
        }
        let Some(pages) = &mapping.pages else {
            return Some((ptr::with_exposed_provenance_mut(address as usize), len));
        };
        let size = 1u64 << pages.shift;
        let position = (mapping.iova & (size - 1)).checked_add(offset)?;
        let page = pages
            .list
            .get(usize::try_from(position >> pages.shift).ok()?)?;
        let within = position & (size - 1);
        let n = (size - within).min(left);
        let at = ptr::with_exposed_provenance_mut(page.wrapping_add(within) as usize);
        Some((at, usize::try_from(n).ok()?))
    }

    /// Returns true if `len` bytes from an address on are all in the region.
    pub(crate) fn has(&self, address: u64, len: usize) -> bool {
        let mapping = self.mapping();
        let offset = address.checked_sub(mapping.iova);
        let left = offset.and_then(|offset| mapping.len.checked_sub(offset));
        left.is_some_and(|left| len as u64 <= left)
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.region.users.fetch_add(-1, Release);
    }
}
