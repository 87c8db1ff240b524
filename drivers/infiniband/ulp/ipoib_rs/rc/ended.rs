// SPDX-License-Identifier: GPL-2.0

//! Connections that have come to an end, until they are over.

use ipoib_proto::ending::Ending;
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::rc::conn::Conn;

/// A connection that has come to an end.
pub(crate) struct Ended {
    pub(crate) rc: Arc<Conn>,
    /// How far it is; None: nobody but we know of it yet.
    pub(crate) ending: Option<Ending>,
    /// When there is more to do for it.
    due: u64,
}

/// All of them.
pub(crate) struct Endings {
    /// All but for one that the work item has in hand.
    list: KVec<Ended>,
    /// How many of the list the work item has yet to begin to end.
    new: usize,
    /// How many are not over yet.
    count: u32,
}

impl Endings {
    /// None yet, and room for so many.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(most: usize) -> Result<Self> {
        Ok(Self {
            list: KVec::with_capacity(most, GFP_KERNEL)?,
            new: 0,
            count: 0,
        })
    }

    /// Adds one that is not used any more. None: there is no room.
    #[must_use]
    pub(super) fn add(&mut self, rc: Arc<Conn>) -> Option<()> {
        let ended = Ended {
            rc,
            ending: None,
            due: 0,
        };
        self.list.push_within_capacity(ended).ok()?;
        self.new += 1;
        self.count += 1;
        Some(())
    }

    /// There is more to do for one whose end was begun, from `due` on. None: there is no room, and it is over.
    #[must_use]
    pub(super) fn keep(&mut self, ended: Ended, due: u64) -> Option<()> {
        let kept = self.list.push_within_capacity(Ended { due, ..ended });
        kept.map_err(|_| self.over()).ok()
    }

    /// Takes one for which there is something to do.
    pub(super) fn take_due(&mut self, now: u64) -> Option<Ended> {
        let new = self.list.iter().filter(|ended| ended.ending.is_none());
        debug_assert_eq!(self.new, new.count());
        let at = self.list.iter().position(|ended| now >= ended.due)?;
        let ended = self.list.remove(at).ok()?;
        self.new -= usize::from(ended.ending.is_none());
        Some(ended)
    }

    /// One is over.
    pub(super) fn over(&mut self) {
        self.count = self.count.saturating_sub(1);
    }

    /// Returns true if one has ended and the work item has yet to begin to end it.
    pub(crate) fn has_new(&self) -> bool {
        self.new > 0
    }

    /// How many are not over yet.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// When there is more to do for one.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.list.iter().map(|ended| ended.due).min()
    }

    pub(super) fn into_all(self) -> impl Iterator<Item = Arc<Conn>> {
        self.list.into_iter().map(|ended| ended.rc)
    }
}
