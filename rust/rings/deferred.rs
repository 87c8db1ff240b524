// SPDX-License-Identifier: GPL-2.0

//! A list of values that are to be dropped, to which any context adds, and a count of those who may add.

use core::ptr::{self, NonNull};

use crate::ops::{Add, Ops};
use crate::sync::{AtomicPtr, AtomicU32, Cell};

/// The first field of an element of a list.
pub struct Link {
    next: Cell<*mut Link>,
}

impl Link {
    /// Of an element that is on no list.
    pub fn new() -> Self {
        Self {
            next: Cell::new(ptr::null_mut()),
        }
    }
}

impl Default for Link {
    fn default() -> Self {
        Self::new()
    }
}

/// Elements that nobody else owns.
///
/// # Invariants
///
/// `first` is null or the first of a list of owned elements.
pub struct List {
    first: AtomicPtr<Link>,
}

impl List {
    /// Nothing.
    pub fn new() -> Self {
        Self {
            first: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Adds an element.
    ///
    /// # Safety
    ///
    /// The element must be owned, which is given up here, and be on no list.
    pub unsafe fn push(&self, link: NonNull<Link>) {
        let link = link.as_ptr();
        let mut first = self.first.get();
        loop {
            // SAFETY: The element is ours until it is on the list.
            let next = unsafe { &(*link).next };
            next.with_mut(|next| {
                // SAFETY: As above.
                unsafe { *next = first };
            });
            // The list is only ever taken as a whole, so that a first element that was taken and came
            // back is no harm: it still is the first.
            match self.first.replace_full(first, link) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }

    /// Takes all elements, the last first: they are the caller's.
    pub fn take(&self) -> Taken {
        // INVARIANT: The list's elements were owned, and are this value's now.
        Taken(self.first.swap_full(ptr::null_mut()))
    }
}

impl Default for List {
    fn default() -> Self {
        Self::new()
    }
}

/// Elements that were taken off a list.
///
/// # Invariants
///
/// Null or the first of a list of elements, owned by this value.
pub struct Taken(*mut Link);

impl Taken {
    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_null()
    }
}

impl Iterator for Taken {
    type Item = NonNull<Link>;

    fn next(&mut self) -> Option<NonNull<Link>> {
        let link = NonNull::new(self.0)?;
        // SAFETY: Owned by the type invariant.
        let next = unsafe { &link.as_ref().next };
        // INVARIANT: The caller owns the first, this value those behind it.
        self.0 = next.with(|next| {
            // SAFETY: As above.
            unsafe { *next }
        });
        Some(link)
    }
}

/// How many use something that ends with the last of them.
///
/// # Invariants
///
/// Once the count is 0 it stays so.
pub struct Users(AtomicU32);

impl Users {
    /// One.
    pub fn new() -> Self {
        Self(AtomicU32::new(1))
    }

    /// Adds one. False: the last one has gone, or there are too many.
    pub fn enter(&self) -> bool {
        let mut users = self.0.get();
        loop {
            if users == 0 || users == u32::MAX {
                return false;
            }
            match self.0.replace_full(users, users.wrapping_add(1)) {
                Ok(_) => return true,
                Err(now) => users = now,
            }
        }
    }

    /// Takes away one, which was added. True: that was the last.
    pub fn leave(&self) -> bool {
        // `u32::MAX` is -1.
        self.0.add_full(u32::MAX) == 1
    }
}

impl Default for Users {
    fn default() -> Self {
        Self::new()
    }
}
