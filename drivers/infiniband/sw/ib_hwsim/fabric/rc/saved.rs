// SPDX-License-Identifier: GPL-2.0

//! Answers that a responder owes, or may be asked for again (section 9.7.5.1.5).

use super::header::{Bth, Op, Part, Reth};
use super::reception::Response;
use super::Psn;

/// Answers that are kept at most.
const ROOM: usize = 16;

/// An answer that is more than an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Of a READ request: the memory, which is read again if it has to be.
    Read(Reth),
    /// Of an atomic operation: the number that was there.
    Atomic(u64),
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    psn: Psn,
    packets: u32,
    answer: Answer,
    /// Packets that have been sent, or were not asked for.
    sent: u32,
    /// First packet that was asked for.
    first: u32,
}

impl Entry {
    fn is_pending(&self) -> bool {
        self.sent < self.packets
    }
}

/// The latest answers, oldest first.
#[derive(Clone, Debug)]
pub(super) struct Saved {
    entries: [Option<Entry>; ROOM],
    room: usize,
    /// Place of the oldest one, which is that for the next.
    oldest: usize,
    /// Answers of which something is to be sent.
    pending: usize,
}

impl Saved {
    /// Makes an empty list with room for so many.
    pub(super) fn new(room: u8) -> Saved {
        Saved {
            entries: [const { None }; ROOM],
            room: usize::from(room).min(ROOM),
            oldest: 0,
            pending: 0,
        }
    }

    pub(super) fn is_pending(&self) -> bool {
        self.pending > 0
    }

    /// Returns true if the place for the next one is free: it has been sent, and nobody may ask for it.
    pub(super) fn has_room(&self) -> bool {
        let entry = self.entries.get(self.oldest).copied().flatten();
        self.room > 0 && !entry.is_some_and(|entry| entry.is_pending())
    }

    /// Adds an answer that is owed; false if there is no room.
    pub(super) fn add(&mut self, psn: Psn, packets: u32, answer: Answer) -> bool {
        if !self.has_room() {
            return false;
        }
        if let Some(place) = self.entries.get_mut(self.oldest) {
            *place = Some(Entry {
                psn,
                packets,
                answer,
                sent: 0,
                first: 0,
            });
            self.pending = self.pending.saturating_add(1);
        }
        self.oldest = self.oldest.saturating_add(1);
        if self.oldest >= self.room {
            self.oldest = 0;
        }
        true
    }

    /// Finds the answer that has this PSN.
    fn find(&mut self, psn: Psn) -> Option<(&mut Entry, u32, &mut usize)> {
        let pending = &mut self.pending;
        self.entries
            .iter_mut()
            .flatten()
            .find_map(|entry| {
                let skip = u32::try_from(psn.since(entry.psn)).ok()?;
                (skip < entry.packets).then_some((entry, skip))
            })
            .map(|(entry, skip)| (entry, skip, pending))
    }

    /// Answers a READ request again, or the rest of it. One that does not fit the first is dropped.
    pub(super) fn again(&mut self, psn: Psn, from: &Reth, mtu: u32) {
        let Some((entry, skip, pending)) = self.find(psn) else {
            return;
        };
        let Answer::Read(old) = entry.answer else {
            return;
        };
        let offset = skip.saturating_mul(mtu);
        let rest = Reth {
            address: old.address.wrapping_add(offset.into()),
            len: old.len.saturating_sub(offset),
            ..old
        };
        if rest != *from {
            return;
        }
        if !entry.is_pending() {
            *pending = pending.saturating_add(1);
        }
        entry.sent = skip;
        entry.first = skip;
    }

    /// Answers an atomic operation again, without doing it.
    pub(super) fn atomic_again(&mut self, psn: Psn) {
        let Some((entry, _, pending)) = self.find(psn) else {
            return;
        };
        if matches!(entry.answer, Answer::Atomic(_)) && !entry.is_pending() {
            *pending = pending.saturating_add(1);
            entry.sent = 0;
        }
    }

    /// Owes none of them any more.
    pub(super) fn forget_pending(&mut self) {
        for entry in self.entries.iter_mut().flatten() {
            entry.sent = entry.packets;
        }
        self.pending = 0;
    }

    /// Returns the next run of an answer, of `most` packets at most.
    pub(super) fn respond(&mut self, mtu: u32, most: u32) -> Option<Response> {
        if self.pending == 0 {
            return None;
        }
        let (newer, older) = self.entries.split_at_mut_checked(self.oldest)?;
        let entry = older
            .iter_mut()
            .chain(newer)
            .flatten()
            .find(|entry| entry.is_pending())?;
        let psn = entry.psn.plus(entry.sent);
        let response = match entry.answer {
            Answer::Atomic(old) => {
                entry.sent = entry.packets;
                Response {
                    bth: Bth {
                        bytes: 0,
                        ..Bth::bare(psn, Op::AtomicResponse(old))
                    },
                    source: None,
                }
            }
            Answer::Read(from) => {
                let left = entry.packets.saturating_sub(entry.sent);
                let n = left.min(most);
                let offset = entry.sent.saturating_mul(mtu);
                let rest = from.len.saturating_sub(offset);
                let part = Part {
                    first: entry.sent == entry.first,
                    last: n == left,
                };
                entry.sent = entry.sent.saturating_add(n);
                let bytes = rest.min(n.saturating_mul(mtu));
                let source = (from.key, from.address.wrapping_add(offset.into()));
                Response {
                    bth: Bth {
                        packets: n,
                        bytes,
                        ..Bth::bare(psn, Op::ReadResponse { part })
                    },
                    source: (bytes > 0).then_some(source),
                }
            }
        };
        if !entry.is_pending() {
            self.pending = self.pending.saturating_sub(1);
        }
        Some(response)
    }
}
