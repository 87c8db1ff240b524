// SPDX-License-Identifier: GPL-2.0

//! What an interface counts, and the names of `ethtool -S`.
//!
//! Each counter has one writer at a time: a NAPI, the transmit lock, or the work items, which is
//! why the groups below are apart and cache-line aligned.

use ipoib_netdev::stats::{Counter, LinkStats};
use ipoib_proto::drop::DropReason;

/// Written by the receive NAPI.
#[repr(align(64))]
pub(crate) struct Rx {
    pub(crate) frames: Counter,
    pub(crate) bytes: Counter,
    pub(crate) multicast: Counter,
    pub(crate) polls: Counter,
}

/// Written under the transmit lock.
#[repr(align(64))]
pub(crate) struct Tx {
    pub(crate) queued: Counter,
    pub(crate) doorbells: Counter,
    pub(crate) stops: Counter,
}

/// Written by the completion NAPI.
#[repr(align(64))]
pub(crate) struct Done {
    pub(crate) frames: Counter,
    pub(crate) bytes: Counter,
    pub(crate) wakes: Counter,
}

/// Written by the work items.
#[repr(align(64))]
pub(crate) struct Slow {
    pub(crate) paths_resolved: Counter,
    pub(crate) paths_failed: Counter,
    pub(crate) paths_expired: Counter,
    pub(crate) groups_joined: Counter,
    pub(crate) groups_failed: Counter,
    pub(crate) timeouts: Counter,
    pub(crate) recoveries: Counter,
    pub(crate) restarts: Counter,
}

/// All counters of an interface.
pub(crate) struct Counters {
    pub(crate) rx: Rx,
    pub(crate) tx: Tx,
    pub(crate) done: Done,
    pub(crate) slow: Slow,
    /// By [`DropReason::index`]; written from everywhere, since drops are rare.
    drops: [Counter; DropReason::COUNT],
}

impl Counters {
    /// All at zero.
    pub(crate) const fn new() -> Self {
        Self {
            rx: Rx {
                frames: Counter::new(),
                bytes: Counter::new(),
                multicast: Counter::new(),
                polls: Counter::new(),
            },
            tx: Tx {
                queued: Counter::new(),
                doorbells: Counter::new(),
                stops: Counter::new(),
            },
            done: Done {
                frames: Counter::new(),
                bytes: Counter::new(),
                wakes: Counter::new(),
            },
            slow: Slow {
                paths_resolved: Counter::new(),
                paths_failed: Counter::new(),
                paths_expired: Counter::new(),
                groups_joined: Counter::new(),
                groups_failed: Counter::new(),
                timeouts: Counter::new(),
                recoveries: Counter::new(),
                restarts: Counter::new(),
            },
            drops: [const { Counter::new() }; DropReason::COUNT],
        }
    }

    /// Counts `n` frames dropped for `reason`; from any context.
    pub(crate) fn dropped(&self, reason: DropReason, n: u64) {
        self.drops[reason.index()].add_shared(n);
    }

    fn drops_of(&self, reasons: &[DropReason]) -> u64 {
        reasons.iter().map(|r| self.drops[r.index()].get()).sum()
    }

    /// For `ip -s link`.
    pub(crate) fn link_stats(&self) -> LinkStats {
        use DropReason::*;
        let lengths = self.drops_of(&[Short, Oversized, TruncatedGrh]);
        let tx_errors = self.drops_of(&[MapFailed, PostFailed, SendFailed]);
        let tx_drops: u64 = DropReason::ALL
            .iter()
            .filter(|r| r.name().starts_with("tx_"))
            .map(|r| self.drops[r.index()].get())
            .sum();
        LinkStats {
            rx_packets: self.rx.frames.get(),
            rx_bytes: self.rx.bytes.get(),
            rx_errors: lengths + self.drops_of(&[BadGrh, BadSource, BadStatus, BadCompletion]),
            rx_dropped: self.drops_of(&[EtherType, NoBuffer]),
            rx_length_errors: lengths,
            multicast: self.rx.multicast.get(),
            tx_packets: self.done.frames.get(),
            tx_bytes: self.done.bytes.get(),
            tx_errors,
            tx_dropped: tx_drops - tx_errors,
        }
    }

    /// For `ethtool -S`, in the order of [`NAMES`].
    pub(crate) fn fill(&self, out: &mut [u64]) {
        let counters = self.named().into_iter().chain(self.drops.iter());
        for (out, counter) in out.iter_mut().zip(counters) {
            *out = counter.get();
        }
    }

    fn named(&self) -> [&Counter; NAMED] {
        [
            &self.rx.frames,
            &self.rx.bytes,
            &self.rx.multicast,
            &self.rx.polls,
            &self.done.frames,
            &self.done.bytes,
            &self.tx.queued,
            &self.tx.doorbells,
            &self.tx.stops,
            &self.done.wakes,
            &self.slow.paths_resolved,
            &self.slow.paths_failed,
            &self.slow.paths_expired,
            &self.slow.groups_joined,
            &self.slow.groups_failed,
            &self.slow.timeouts,
            &self.slow.recoveries,
            &self.slow.restarts,
        ]
    }
}

const NAMED: usize = 18;

/// The names of [`Counters::named`].
const NAMED_NAMES: [&str; NAMED] = [
    "rx_frames",
    "rx_bytes",
    "rx_multicast",
    "rx_polls",
    "tx_frames",
    "tx_bytes",
    "tx_path_queued",
    "tx_doorbells",
    "tx_stops",
    "tx_wakes",
    "paths_resolved",
    "paths_failed",
    "paths_expired",
    "groups_joined",
    "groups_failed",
    "tx_timeouts",
    "qp_recoveries",
    "restarts",
];

/// Names for `ethtool -S`: [`NAMED_NAMES`], then one for each drop reason.
pub(crate) static NAMES: [&str; NAMED + DropReason::COUNT] = {
    let mut names = [""; NAMED + DropReason::COUNT];
    let mut i = 0;
    while i < NAMED {
        names[i] = NAMED_NAMES[i];
        i += 1;
    }
    let mut i = 0;
    while i < DropReason::COUNT {
        names[NAMED + i] = DropReason::ALL[i].name();
        i += 1;
    }
    names
};
