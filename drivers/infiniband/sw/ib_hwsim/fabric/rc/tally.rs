// SPDX-License-Identifier: GPL-2.0

//! Tallies of a connection: counters for whoever debugs it, which nobody clears.

/// Retries, timeouts and NAKs of a requester.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequesterTally {
    /// Times that it has sent again what was not acknowledged.
    pub retries: u64,
    /// Times that no answer came in time.
    pub timeouts: u64,
    /// RNR NAKs that came.
    pub rnr_naks: u64,
    /// NAKs that came for a gap in the sequence.
    pub sequence_naks: u64,
}

/// Duplicate and early packets, and NAKs, of a responder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponderTally {
    /// Packets that came once more.
    pub duplicates: u64,
    /// Packets that came before one that was missing.
    pub early: u64,
    /// RNR NAKs that were sent.
    pub rnr_naks: u64,
    /// NAKs that were sent for a gap in the sequence.
    pub sequence_naks: u64,
}

impl RequesterTally {
    /// Adds that of an earlier requester of the same queue pair.
    pub fn add(&mut self, other: &RequesterTally) {
        self.retries = self.retries.wrapping_add(other.retries);
        self.timeouts = self.timeouts.wrapping_add(other.timeouts);
        self.rnr_naks = self.rnr_naks.wrapping_add(other.rnr_naks);
        self.sequence_naks = self.sequence_naks.wrapping_add(other.sequence_naks);
    }
}

impl ResponderTally {
    /// Adds that of an earlier responder of the same queue pair.
    pub fn add(&mut self, other: &ResponderTally) {
        self.duplicates = self.duplicates.wrapping_add(other.duplicates);
        self.early = self.early.wrapping_add(other.early);
        self.rnr_naks = self.rnr_naks.wrapping_add(other.rnr_naks);
        self.sequence_naks = self.sequence_naks.wrapping_add(other.sequence_naks);
    }
}
