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
    list: KVec<Ended>,
    /// How many of the list the work item has yet to begin to end.
    new: usize,
    /// The one that `take_due` has returned, until `keep` or `put_down`.
    in_hand: Option<Arc<Conn>>,
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
            in_hand: None,
        })
    }

    /// Adds a connection that is to be ended. `Connections::has_place` was asked before the connection was made; without, it would be
    /// destroyed as it is.
    pub(super) fn add(&mut self, rc: Arc<Conn>) {
        let ended = Ended {
            rc,
            ending: None,
            due: 0,
        };
        let added = self.list.push_within_capacity(ended).is_ok();
        debug_assert!(added);
        self.new += usize::from(added);
    }

    /// Puts back a connection whose end goes on at `due`. There is room for it, as above.
    pub(super) fn keep(&mut self, ended: Ended, due: u64) {
        self.in_hand = None;
        let kept = self.list.push_within_capacity(Ended { due, ..ended });
        debug_assert!(kept.is_ok());
    }

    /// The connection that was taken is over. Returns what may be the last reference to it, to be dropped without a lock.
    pub(super) fn put_down(&mut self) -> Option<Arc<Conn>> {
        self.in_hand.take()
    }

    /// Takes a connection that is due. The one that was taken before is over or was put back.
    pub(super) fn take_due(&mut self, now: u64) -> Option<Ended> {
        debug_assert!(self.in_hand.is_none());
        let new = self.list.iter().filter(|ended| ended.ending.is_none());
        debug_assert_eq!(self.new, new.count());
        let at = self.list.iter().position(|ended| now >= ended.due)?;
        let ended = self.list.remove(at).ok()?;
        self.new -= usize::from(ended.ending.is_none());
        self.in_hand = Some(ended.rc.clone());
        Some(ended)
    }

    /// Returns true if one has ended and the work item has yet to begin to end it.
    pub(crate) fn has_new(&self) -> bool {
        self.new > 0
    }

    /// How many are not over yet.
    pub(super) fn count(&self) -> u32 {
        self.list.len() as u32 + u32::from(self.in_hand.is_some())
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Conn>> + '_ {
        let list = self.list.iter().map(|ended| &ended.rc);
        Iterator::chain(list, &self.in_hand)
    }

    /// When there is more to do for one.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.list.iter().map(|ended| ended.due).min()
    }

    pub(super) fn into_all(self) -> impl Iterator<Item = Arc<Conn>> {
        self.list.into_iter().map(|ended| ended.rc)
    }
}
