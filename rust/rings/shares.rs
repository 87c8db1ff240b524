// SPDX-License-Identifier: GPL-2.0

//! Slots that are shared out among users.
//!
//! Queue pairs with receive queues of their own get some of a ring's slots each. A user that has ended takes
//! no more, and its place is vacant when its last slot has come back.

use core::ops::DerefMut;

/// The user of a slot that is idle.
const NOBODY: u32 = u32::MAX;

/// A place for a user of slots; vacant at first.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    is_taken: bool,
    has_ended: bool,
    held: u32,
}

/// Slots, and who has them.
///
/// # Invariants
///
/// * `users` and `idle` have the same number of elements, fewer than 2^32.
/// * Each slot is once in the first `idle_len` elements of `idle`, and its user is [`NOBODY`]; or its user is
///   the number of a place that is taken.
/// * A place counts the slots whose user it is. One that has ended has some.
///
/// # Examples
///
/// ```
/// use ipoib_rings::shares::{Place, Shares};
///
/// let mut shares = Shares::new(vec![0; 4], vec![0; 4], vec![Place::default(); 2]).unwrap();
/// let user = shares.begin().unwrap();
/// let slot = shares.take(user).unwrap();
/// assert_eq!(shares.user(slot), Some(user));
/// assert!(!shares.end(user));
/// assert_eq!(shares.give_back(slot), Some((user, true)));
/// ```
pub struct Shares<S, P> {
    /// Of each slot, the number of the place of its user.
    users: S,
    /// Numbers of slots.
    idle: S,
    idle_len: usize,
    places: P,
}

impl<S: DerefMut<Target = [u32]>, P: DerefMut<Target = [Place]>> Shares<S, P> {
    /// Idle slots, as many as `users` and `idle` have elements, and vacant places. None unless these are
    /// equally many, or if there are more than 2^32 - 2 of anything. What was in them is of no effect.
    pub fn new(mut users: S, mut idle: S, mut places: P) -> Option<Self> {
        let most = NOBODY as usize;
        if users.len() != idle.len() || users.len() >= most || places.len() >= most {
            return None;
        }
        users.fill(NOBODY);
        for (n, place) in (0..).zip(idle.iter_mut()) {
            *place = n;
        }
        places.fill(Place::default());
        let idle_len = idle.len();
        // INVARIANT: All slots are idle.
        Some(Self {
            users,
            idle,
            idle_len,
            places,
        })
    }

    /// How many slots nobody has.
    #[inline]
    pub fn idle(&self) -> usize {
        self.idle_len
    }

    /// How many slots the user at a place has.
    pub fn held(&self, at: usize) -> u32 {
        self.places.get(at).map_or(0, |place| place.held)
    }

    /// The place of a slot's user; None if it is idle.
    #[inline]
    pub fn user(&self, index: usize) -> Option<usize> {
        let user = *self.users.get(index)?;
        (user != NOBODY).then_some(user as usize)
    }

    /// Returns true if [`Self::begin`] finds a place.
    pub fn has_vacancy(&self) -> bool {
        self.places.iter().any(|place| !place.is_taken)
    }

    /// Begins a user without slots at the first vacant place; None if none is vacant.
    pub fn begin(&mut self) -> Option<usize> {
        let at = self.places.iter().position(|place| !place.is_taken)?;
        // INVARIANT: It was vacant, so that no slot is its user's.
        self.places.get_mut(at)?.is_taken = true;
        Some(at)
    }

    /// Gives the user at a place an idle slot; None if there is none, or no such user who has not ended.
    pub fn take(&mut self, at: usize) -> Option<usize> {
        let place = self.places.get_mut(at)?;
        if !place.is_taken || place.has_ended {
            return None;
        }
        let last = self.idle_len.checked_sub(1)?;
        let index = *self.idle.get(last)? as usize;
        // INVARIANT: The slot is not idle any more, and counted.
        *self.users.get_mut(index)? = at as u32;
        self.idle_len = last;
        place.held = place.held.wrapping_add(1);
        Some(index)
    }

    /// Ends a user. Returns true if the place is vacant: nothing is to come back.
    pub fn end(&mut self, at: usize) -> bool {
        let Some(place) = self.places.get_mut(at).filter(|place| place.is_taken) else {
            return true;
        };
        place.has_ended = true;
        Self::vacate(place)
    }

    /// Makes a slot idle. Returns the place of its last user, and whether that is vacant now; None if it was idle.
    pub fn give_back(&mut self, index: usize) -> Option<(usize, bool)> {
        let at = self.user(index)?;
        let place = self.places.get_mut(at)?;
        // INVARIANT: The slot has no user, and is idle. There is room, since it was not.
        *self.idle.get_mut(self.idle_len)? = index as u32;
        *self.users.get_mut(index)? = NOBODY;
        self.idle_len = self.idle_len.wrapping_add(1);
        place.held = place.held.wrapping_sub(1);
        Some((at, Self::vacate(place)))
    }

    /// Makes the place of a user vacant who has ended and has nothing, and returns true then.
    fn vacate(place: &mut Place) -> bool {
        let is_over = place.has_ended && place.held == 0;
        if is_over {
            *place = Place::default();
        }
        is_over
    }
}
