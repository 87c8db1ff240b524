// SPDX-License-Identifier: GPL-2.0

//! What an interface counts, and the names of `ethtool -S`.
//!
//! Each counter has one writer at a time: a NAPI, the transmit lock, or the work items, which is
//! why the groups below are apart and cache-line aligned.

use core::mem::offset_of;

use ipoib_netdev::stats::{Counter, LinkStats};
use ipoib_proto::drop::DropReason;
use ipoib_proto::{reorder, source};
use ipoib_rdma::ReceiveReport;

// Groups with different writers for each frame have cache lines of their own: so many octets are one.
const _: () = {
    let groups = [
        offset_of!(Counters, rx),
        offset_of!(Counters, tx),
        offset_of!(Counters, done),
    ];
    assert!(groups[0] / 64 != groups[1] / 64 && groups[1] / 64 != groups[2] / 64);
    assert!(groups[0] / 64 != groups[2] / 64 && align_of::<Counters>() % 64 == 0);
    assert!(offset_of!(Connected, rx) / 64 != offset_of!(Connected, tx) / 64);
};

/// Written by the receive NAPI.
#[repr(align(64))]
pub(crate) struct Rx {
    pub(crate) frames: Counter,
    pub(crate) bytes: Counter,
    pub(crate) multicast: Counter,
    pub(crate) polls: Counter,
}

/// What became of numbered frames. Written by the receive NAPI.
#[repr(align(64))]
pub(crate) struct Sequence {
    pub(crate) in_order: Counter,
    /// In the order of [`reorder::Counts::values`], whose first is `in_order`.
    counts: [Counter; reorder::Counts::LEN],
    evicted: Counter,
    expired: Counter,
    refused: Counter,
    no_ring: Counter,
    reclaimed: Counter,
    /// How many there are.
    pub(crate) sources: Counter,
}

impl Sequence {
    const fn new() -> Self {
        Self {
            in_order: Counter::new(),
            counts: [const { Counter::new() }; reorder::Counts::LEN],
            evicted: Counter::new(),
            expired: Counter::new(),
            refused: Counter::new(),
            no_ring: Counter::new(),
            reclaimed: Counter::new(),
            sources: Counter::new(),
        }
    }

    /// Adds what was counted meanwhile, and takes note of the number of sources.
    #[cold]
    pub(crate) fn add(&self, counts: &reorder::Counts, events: &source::Events, sources: usize) {
        for (counter, n) in self.counts.iter().zip(counts.values()) {
            counter.add(n);
        }
        self.evicted.add(events.evicted);
        self.expired.add(events.expired);
        self.refused.add(events.refused);
        self.no_ring.add(events.no_ring);
        self.reclaimed.add(events.reclaimed);
        let before = self.sources.get();
        self.sources.add((sources as u64).wrapping_sub(before));
    }
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

/// Written by the work items, and at times from elsewhere.
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
    /// Multicast packets that were refused before they were frames.
    pub(crate) multicast_too_big: Counter,
}

/// Frames that go by connections.
#[repr(align(64))]
pub(crate) struct ByConnection {
    pub(crate) frames: Counter,
    pub(crate) bytes: Counter,
    pub(crate) large: Counter,
    pub(crate) partial: Counter,
}

impl ByConnection {
    const fn new() -> Self {
        Self {
            frames: Counter::new(),
            bytes: Counter::new(),
            large: Counter::new(),
            partial: Counter::new(),
        }
    }
}

/// Counters of connections and their frames. Written from everywhere, except for those of frames.
#[repr(align(64))]
pub(crate) struct Connected {
    pub(crate) connected: Counter,
    pub(crate) requests_sent: Counter,
    pub(crate) requests_received: Counter,
    pub(crate) accepted: Counter,
    pub(crate) refused: Counter,
    pub(crate) refused_pkey: Counter,
    pub(crate) refused_gid: Counter,
    pub(crate) refused_data: Counter,
    pub(crate) refused_full: Counter,
    pub(crate) refused_crossing: Counter,
    pub(crate) refused_closed: Counter,
    pub(crate) failed: Counter,
    pub(crate) disconnected: Counter,
    pub(crate) idle: Counter,
    pub(crate) evicted: Counter,
    pub(crate) stuck: Counter,
    pub(crate) no_room: Counter,
    /// How many there are.
    pub(crate) current: Counter,
    /// Written by the receive NAPI.
    pub(crate) rx: ByConnection,
    /// Written under the transmit lock.
    pub(crate) tx: ByConnection,
    pub(crate) fallback: Counter,
    pub(crate) credit_stalls: Counter,
    pub(crate) grants: Counter,
    pub(crate) too_big: Counter,
}

impl Connected {
    const COUNT: usize = 30;

    const NAMES: [&'static str; Self::COUNT] = [
        "rc_connected",
        "rc_requests_sent",
        "rc_requests_received",
        "rc_accepted",
        "rc_refused",
        "rc_refused_pkey",
        "rc_refused_gid",
        "rc_refused_data",
        "rc_refused_full",
        "rc_refused_crossing",
        "rc_refused_closed",
        "rc_failed",
        "rc_disconnected",
        "rc_idle",
        "rc_evicted",
        "rc_stuck",
        "rc_no_room",
        "rc_current",
        "rc_rx_frames",
        "rc_rx_bytes",
        "rc_rx_large",
        "rc_rx_partial",
        "rc_tx_frames",
        "rc_tx_bytes",
        "rc_tx_large",
        "rc_tx_partial",
        "rc_fallback",
        "rc_credit_stalls",
        "rc_grants",
        "tx_too_big",
    ];

    const fn new() -> Self {
        Self {
            connected: Counter::new(),
            requests_sent: Counter::new(),
            requests_received: Counter::new(),
            accepted: Counter::new(),
            refused: Counter::new(),
            refused_pkey: Counter::new(),
            refused_gid: Counter::new(),
            refused_data: Counter::new(),
            refused_full: Counter::new(),
            refused_crossing: Counter::new(),
            refused_closed: Counter::new(),
            failed: Counter::new(),
            disconnected: Counter::new(),
            idle: Counter::new(),
            evicted: Counter::new(),
            stuck: Counter::new(),
            no_room: Counter::new(),
            current: Counter::new(),
            rx: ByConnection::new(),
            tx: ByConnection::new(),
            fallback: Counter::new(),
            credit_stalls: Counter::new(),
            grants: Counter::new(),
            too_big: Counter::new(),
        }
    }

    /// In the order of [`Self::NAMES`].
    fn all(&self) -> [&Counter; Self::COUNT] {
        [
            &self.connected,
            &self.requests_sent,
            &self.requests_received,
            &self.accepted,
            &self.refused,
            &self.refused_pkey,
            &self.refused_gid,
            &self.refused_data,
            &self.refused_full,
            &self.refused_crossing,
            &self.refused_closed,
            &self.failed,
            &self.disconnected,
            &self.idle,
            &self.evicted,
            &self.stuck,
            &self.no_room,
            &self.current,
            &self.rx.frames,
            &self.rx.bytes,
            &self.rx.large,
            &self.rx.partial,
            &self.tx.frames,
            &self.tx.bytes,
            &self.tx.large,
            &self.tx.partial,
            &self.fallback,
            &self.credit_stalls,
            &self.grants,
            &self.too_big,
        ]
    }

    /// Takes note of how many connections there are.
    pub(crate) fn set_current(&self, count: usize) {
        let before = self.current.get();
        self.current.add((count as u64).wrapping_sub(before));
    }
}

/// All counters of an interface.
pub(crate) struct Counters {
    pub(crate) rx: Rx,
    pub(crate) sequence: Sequence,
    pub(crate) tx: Tx,
    pub(crate) done: Done,
    pub(crate) slow: Slow,
    pub(crate) connected: Connected,
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
            sequence: Sequence::new(),
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
                multicast_too_big: Counter::new(),
            },
            connected: Connected::new(),
            drops: [const { Counter::new() }; DropReason::COUNT],
        }
    }

    /// Counts `n` frames dropped for `reason`; from any context.
    #[cold]
    pub(crate) fn dropped(&self, reason: DropReason, n: u64) {
        self.drops[reason.index()].add_shared(n);
    }

    /// Counts what completed and was not received.
    #[cold]
    pub(crate) fn not_received(&self, report: &ReceiveReport) {
        for (reason, n) in [
            (DropReason::BadStatus, report.errors),
            (DropReason::BadCompletion, report.unknown),
            (DropReason::Oversized, report.malformed),
            (DropReason::NoBuffer, report.no_buffer),
        ] {
            if n > 0 {
                self.dropped(reason, u64::from(n));
            }
        }
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
            rx_packets: self.rx.frames.get() + self.connected.rx.frames.get(),
            rx_bytes: self.rx.bytes.get() + self.connected.rx.bytes.get(),
            rx_errors: lengths
                + self.drops_of(&[BadGrh, BadSource, BadStatus, BadCompletion, BadExtended]),
            rx_dropped: self.drops_of(&[EtherType, NoBuffer, NoConnection]),
            rx_length_errors: lengths,
            multicast: self.rx.multicast.get(),
            tx_packets: self.done.frames.get() + self.connected.tx.frames.get(),
            tx_bytes: self.done.bytes.get() + self.connected.tx.bytes.get(),
            tx_errors,
            tx_dropped: tx_drops - tx_errors,
        }
    }

    /// For `ethtool -S`, in the order of [`NAMES`].
    pub(crate) fn fill(&self, out: &mut [u64]) {
        let counters = self
            .named()
            .into_iter()
            .chain(self.connected.all())
            .chain(self.drops.iter());
        for (out, counter) in out.iter_mut().zip(counters) {
            *out = counter.get();
        }
    }

    fn named(&self) -> [&Counter; NAMED] {
        let [_, reordered, late, held, filled, moved, timed_out, duplicates, resyncs] =
            &self.sequence.counts;
        [
            &self.rx.frames,
            &self.rx.bytes,
            &self.rx.multicast,
            &self.rx.polls,
            &self.sequence.in_order,
            reordered,
            late,
            held,
            filled,
            moved,
            timed_out,
            duplicates,
            resyncs,
            &self.sequence.sources,
            &self.sequence.evicted,
            &self.sequence.expired,
            &self.sequence.refused,
            &self.sequence.no_ring,
            &self.sequence.reclaimed,
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
            &self.slow.multicast_too_big,
        ]
    }
}

const NAMED: usize = 34;

/// The names of [`Counters::named`].
const NAMED_NAMES: [&str; NAMED] = [
    "rx_frames",
    "rx_bytes",
    "rx_multicast",
    "rx_polls",
    "rx_seq_in_order",
    "rx_seq_reordered",
    "rx_seq_late",
    "rx_seq_held",
    "rx_seq_filled",
    "rx_seq_moved",
    "rx_seq_timed_out",
    "rx_seq_duplicates",
    "rx_seq_resyncs",
    "rx_seq_sources",
    "rx_seq_evicted",
    "rx_seq_expired",
    "rx_seq_refused",
    "rx_seq_no_ring",
    "rx_seq_reclaimed",
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
    "multicast_too_big",
];

/// Names for `ethtool -S`: [`NAMED_NAMES`], those of [`Connected`], then one for each drop reason.
pub(crate) static NAMES: [&str; NAMED + Connected::COUNT + DropReason::COUNT] = {
    let mut names = [""; NAMED + Connected::COUNT + DropReason::COUNT];
    let mut i = 0;
    while i < NAMED {
        names[i] = NAMED_NAMES[i];
        i += 1;
    }
    let mut i = 0;
    while i < Connected::COUNT {
        names[NAMED + i] = Connected::NAMES[i];
        i += 1;
    }
    let mut i = 0;
    while i < DropReason::COUNT {
        names[NAMED + Connected::COUNT + i] = DropReason::ALL[i].name();
        i += 1;
    }
    names
};
