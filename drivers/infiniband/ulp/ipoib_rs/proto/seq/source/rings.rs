// SPDX-License-Identifier: GPL-2.0

//! The rings that the sources share, and the list of the sources that hold frames in one.

use core::borrow::BorrowMut;
use core::marker::PhantomData;

use crate::wire::hwaddr::HwAddr;

/// A place for a ring that holds nothing, and, apart from that, for the address of a source that
/// holds something. The caller provides an array of them, one for each ring.
#[derive(Debug)]
pub struct Place<B> {
    ring: Option<B>,
    holder: Option<HwAddr>,
}

impl<B> Place<B> {
    /// A place with a ring, which is empty.
    pub const fn new(ring: B) -> Self {
        Place {
            ring: Some(ring),
            holder: None,
        }
    }
}

/// All rings. The first `free` places have one.
pub(super) struct Rings<B, P> {
    places: P,
    free: usize,
    ring: PhantomData<B>,
}

impl<B, P: BorrowMut<[Place<B>]>> Rings<B, P> {
    /// All places have a ring.
    pub(super) fn new(places: P) -> Self {
        let free = places.borrow().len();
        Rings {
            places,
            free,
            ring: PhantomData,
        }
    }

    /// How many rings there are, those in use included.
    pub(super) fn len(&self) -> usize {
        self.places.borrow().len()
    }

    /// Returns true if all rings are in use.
    pub(super) fn is_empty(&self) -> bool {
        self.free == 0
    }

    /// Takes a ring, if `reserve` of them remain then.
    pub(super) fn take(&mut self, reserve: usize) -> Option<B> {
        let last = self.free.checked_sub(1).filter(|last| *last >= reserve)?;
        self.free = last;
        self.places.borrow_mut().get_mut(last)?.ring.take()
    }

    /// Puts a ring back.
    pub(super) fn put(&mut self, ring: B) {
        if let Some(place) = self.places.borrow_mut().get_mut(self.free) {
            place.ring = Some(ring);
            self.free = self.free.saturating_add(1);
        }
    }

    /// Puts a source on the list of those that hold something, or takes it off.
    #[inline(never)]
    pub(super) fn note_holding(&mut self, from: &HwAddr, holding: bool) {
        let wanted = if holding { None } else { Some(*from) };
        let mut places = self.places.borrow_mut().iter_mut();
        if let Some(place) = places.find(|place| place.holder == wanted) {
            place.holder = holding.then_some(*from);
        }
    }

    /// Address of the source on the list at place `at`.
    pub(super) fn holder(&self, at: usize) -> Option<HwAddr> {
        self.places.borrow().get(at)?.holder
    }

    /// Takes the source at place `at` off the list.
    pub(super) fn forget_holder(&mut self, at: usize) {
        if let Some(place) = self.places.borrow_mut().get_mut(at) {
            place.holder = None;
        }
    }
}
