// SPDX-License-Identifier: GPL-2.0

//! Counters of an interface, for `ethtool -S` and `ip -s link`.
//!
//! Each counter has one writer at a time: a NAPI, the transmit lock, or the work items. Counters are therefore
//! grouped by writer, and each group has cache lines of its own.

use core::mem::offset_of;

use ipoib_netdev::device::RawDevice;
use ipoib_netdev::netdev_log;
use ipoib_netdev::stats::{Counter, LinkStats, QueueStats};
use ipoib_proto::drop::DropReason;
use ipoib_proto::header::Header;
use ipoib_proto::{reorder, source};
use ipoib_rdma::ReceiveReport;
use kernel::fmt;

/// Declares all counters in the order of `ethtool -S`: group, field, name there. The comments stand in
/// Documentation/ as well.
macro_rules! counters {
    ($(
        $(#[$group_doc:meta])*
        $group:ident: $Group:ident {
            $($(#[$doc:meta])* $field:ident = $name:literal,)*
        }
    )*) => {
        $(
            $(#[$group_doc])*
            #[repr(align(64))]
            pub(crate) struct $Group {
                $($(#[$doc])* pub(crate) $field: Counter,)*
            }
        )*

        /// All counters of an interface.
        pub(crate) struct Counters {
            $($(#[$group_doc])* pub(crate) $group: $Group,)*
            /// By [`DropReason::index`]; written from everywhere, since drops are rare.
            drops: [Counter; DropReason::COUNT],
        }

        impl Counters {
            /// All at zero.
            pub(crate) const fn new() -> Self {
                Self {
                    $($group: $Group { $($field: Counter::new(),)* },)*
                    drops: [const { Counter::new() }; DropReason::COUNT],
                }
            }

            /// Copies all values, in the order of [`NAMES`].
            pub(crate) fn fill(&self, out: &mut [u64]) {
                let grouped = [$($(&self.$group.$field,)*)*];
                for (out, counter) in out.iter_mut().zip(grouped.into_iter().chain(&self.drops)) {
                    *out = counter.get();
                }
            }
        }

        const GROUPED: &[&str] = &[$($($name,)*)*];

        // No two groups share a cache line.
        const _: () = {
            $(assert!(offset_of!(Counters, $group) % 64 == 0 && size_of::<$Group>() % 64 == 0);)*
        };
    };
}

counters! {
    /// Received datagrams. Written by the receive NAPI.
    rx: Rx {
        /// Receive completions that the RDMA device reported.
        completions = "rx_completions",
        /// Receives that the RDMA device gave back unused.
        flushed = "rx_flushed",
        /// Datagrams received.
        frames = "rx_frames",
        /// Bytes of their IP packets.
        bytes = "rx_bytes",
        /// Multicast datagrams received.
        multicast = "rx_multicast",
        /// Receive polls.
        polls = "rx_polls",
    }

    /// Numbered frames and their sources. Written by the receive NAPI.
    sequence: Sequence {
        /// Frames passed up as they came: multicast, without a number, or without a window.
        unordered = "rx_seq_unordered",
        /// Numbered frames that arrived as expected.
        in_order = "rx_seq_in_order",
        /// Frames that arrived after a later one: the disorder of the fabric.
        reordered = "rx_seq_reordered",
        /// Frames passed up after a later one: the disorder that the window left.
        late = "rx_seq_late",
        /// Frames held until those before them came.
        held = "rx_seq_held",
        /// Held frames released because the gap before them filled.
        filled = "rx_seq_filled",
        /// Held frames released because the window moved on.
        moved = "rx_seq_moved",
        /// Held frames released by the timeout.
        timed_out = "rx_seq_timed_out",
        /// Frames held now.
        holding = "rx_seq_holding",
        /// Frames that arrived a second time.
        duplicates = "rx_seq_duplicates",
        /// Sources that began a new sequence.
        resyncs = "rx_seq_resyncs",
        /// Sources in the table now, at most 2048.
        sources = "rx_seq_sources",
        /// Sources that lost their place to others.
        evicted = "rx_seq_evicted",
        /// Sources forgotten because they were idle.
        expired = "rx_seq_expired",
        /// Frames whose source got no place.
        refused = "rx_seq_refused",
        /// Frames not held because too many sources held some.
        no_ring = "rx_seq_no_ring",
        /// Sources that released their frames in favour of another.
        reclaimed = "rx_seq_reclaimed",
    }

    /// Frames sent. Written by the completion NAPI.
    done: Done {
        /// Datagrams sent.
        frames = "tx_frames",
        /// Bytes of these, encapsulation headers included.
        bytes = "tx_bytes",
        /// Frames sent on connections.
        rc_frames = "rc_tx_frames",
        /// Bytes of their IP packets.
        rc_bytes = "rc_tx_bytes",
        /// Send completions of unknown requests.
        unknown = "tx_bad_completions",
    }

    /// The transmit queue. Written under the transmit lock, but for `wakes`, which the completion NAPI writes.
    tx: Tx {
        /// Frames that the stack handed over.
        handed = "tx_handed",
        /// Frames that were cut up, into segments or fragments.
        cut = "tx_cut",
        /// Segments and fragments that they were cut into.
        pieces = "tx_pieces",
        /// Frames that wait now, for a path, a group or a connection, or to be answered as too big.
        waiting = "tx_waiting",
        /// Frames that the RDMA device has now.
        posted = "tx_posted",
        /// Frames queued until their path or multicast group was ready.
        queued = "tx_path_queued",
        /// Doorbells rung for new work requests.
        doorbells = "tx_doorbells",
        /// Times that the queue was stopped.
        stops = "tx_stops",
        /// Times that the queue was woken.
        wakes = "tx_wakes",
        /// Frames sent whose checksum the device makes.
        partial = "tx_partial",
        /// Frames sent that the device segments.
        large = "tx_large",
        /// Packets kept for an answer by ICMP: they were larger than the path or the peer takes.
        too_big = "tx_too_big",
    }

    /// Rare events. Written by the work items, and at times from elsewhere.
    slow: Slow {
        /// Paths resolved, those that are asked for anew included.
        paths_resolved = "paths_resolved",
        /// Paths that could not be resolved.
        paths_failed = "paths_failed",
        /// Paths forgotten because they were idle.
        paths_expired = "paths_expired",
        /// Multicast groups joined.
        groups_joined = "groups_joined",
        /// Multicast groups that could not be joined.
        groups_failed = "groups_failed",
        /// Times that the device sent nothing for ten seconds; the interface restarts.
        timeouts = "tx_timeouts",
        /// Times that the queue pair was recovered after a send failed.
        recoveries = "qp_recoveries",
        /// Restarts of the interface, for whatever reason.
        restarts = "restarts",
        /// Restarts because a queue was stuck, broken or in error.
        self_restarts = "self_restarts",
        /// Multicast packets refused because they were larger than a datagram.
        multicast_too_big = "multicast_too_big",
    }

    /// Connections. Written from everywhere.
    connected: Connected {
        /// Connections established.
        connected = "rc_connected",
        /// Connection requests sent.
        requests_sent = "rc_requests_sent",
        /// Connection requests received.
        requests_received = "rc_requests_received",
        /// Connection requests accepted.
        accepted = "rc_accepted",
        /// Connection requests refused, for any of the following reasons.
        refused = "rc_refused",
        /// Requests in another partition.
        refused_pkey = "rc_refused_pkey",
        /// Requests to another GID.
        refused_gid = "rc_refused_gid",
        /// Requests with invalid private data.
        refused_data = "rc_refused_data",
        /// Requests for which there was no room.
        refused_full = "rc_refused_full",
        /// Requests while the interface was down or in datagram mode.
        refused_closed = "rc_refused_closed",
        /// Connections that failed, or did not come about.
        failed = "rc_failed",
        /// Connections ended by the peer.
        disconnected = "rc_disconnected",
        /// Connections ended because they were idle.
        idle = "rc_idle",
        /// Connections ended to make room for another.
        evicted = "rc_evicted",
        /// Connections ended because the peer let too little through.
        stuck = "rc_stuck",
        /// Connections that broke.
        broken = "rc_broken",
        /// Connections that the peer replaced by another.
        replaced = "rc_replaced",
        /// Connections ended with the interface, its mode or its settings.
        closed = "rc_closed",
        /// Times that there was no room for one more connection.
        no_room = "rc_no_room",
        /// Connections established now.
        current = "rc_current",
    }

    /// Frames received on connections. Written by the receive NAPI.
    rc_rx: ConnectedRx {
        /// Frames received on connections.
        frames = "rc_rx_frames",
        /// Bytes of their IP packets.
        bytes = "rc_rx_bytes",
        /// Messages received that carried a credit limit alone.
        grants = "rc_rx_grants",
        /// Large frames received, which the stack segments if it has to.
        large = "rc_rx_large",
        /// Frames received whose checksum was left out.
        partial = "rc_rx_partial",
    }

    /// Frames for connections. Written under the transmit lock.
    rc_tx: ConnectedTx {
        /// Large frames sent whole.
        large = "rc_tx_large",
        /// Frames sent whose checksum was left out.
        partial = "rc_tx_partial",
        /// Frames sent as datagrams because there was no connection.
        fallback = "rc_fallback",
        /// Frames that had to wait for credit.
        credit_stalls = "rc_credit_stalls",
        /// Messages that carried a credit limit alone.
        grants = "rc_grants",
    }
}

/// Names for `ethtool -S`: those declared above, then one for each drop reason.
pub(crate) static NAMES: [&str; GROUPED.len() + DropReason::COUNT] = {
    let mut names = [""; GROUPED.len() + DropReason::COUNT];
    let mut i = 0;
    while i < names.len() {
        names[i] = match i.checked_sub(GROUPED.len()) {
            None => GROUPED[i],
            Some(reason) => DropReason::ALL[reason].name(),
        };
        i += 1;
    }
    names
};

/// Receives that have failed, by the reasons that they are counted for.
fn failures(report: &ReceiveReport) -> [(DropReason, u32); 5] {
    [
        (DropReason::BadStatus, report.errors),
        (DropReason::BadCompletion, report.unknown),
        (DropReason::Oversized, report.malformed),
        (DropReason::NoBuffer, report.no_buffer),
        (DropReason::Stopped, report.stopped),
    ]
}

/// Number of counters in a line of the log; they fit whatever their values.
const PER_LINE: usize = 16;

/// Counters, in a line.
struct Values<'a>(&'a [&'static str], &'a [u64]);

impl fmt::Display for Values<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = self.0.iter().zip(self.1);
        all.try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}

/// Tells the log of all counters of an interface that goes: nothing else keeps them.
pub(crate) fn tell(dev: &RawDevice, values: &[u64]) {
    let of = NAMES.len().div_ceil(PER_LINE);
    let lines = NAMES.chunks(PER_LINE).zip(values.chunks(PER_LINE));
    for (line, (names, values)) in (1..).zip(lines) {
        let values = Values(names, values);
        netdev_log!(dev, Debug, "counters at the end, {line} of {of}:{values}\n");
    }
}

/// Stores the value of a counter that says how many of something there are.
fn set(counter: &Counter, count: usize) {
    counter.add((count as u64).wrapping_sub(counter.get()));
}

impl Sequence {
    /// Adds changes since the last call.
    #[cold]
    pub(crate) fn add(&self, counts: &reorder::Counts, events: &source::Events) {
        self.reordered.add(counts.reordered);
        self.late.add(counts.late);
        self.held.add(counts.held);
        self.filled.add(counts.filled);
        self.moved.add(counts.moved);
        self.timed_out.add(counts.timed_out);
        self.duplicates.add(counts.duplicates);
        self.resyncs.add(counts.resyncs);
        self.evicted.add(events.evicted);
        self.expired.add(events.expired);
        self.refused.add(events.refused);
        self.no_ring.add(events.no_ring);
        self.reclaimed.add(events.reclaimed);
    }

    /// Stores the number of sources, and of the frames that they hold.
    #[cold]
    pub(crate) fn set_now(&self, sources: usize, holding: usize) {
        set(&self.sources, sources);
        set(&self.holding, holding);
    }
}

impl Tx {
    /// Stores the numbers of frames that wait, and that the device has.
    pub(crate) fn set_now(&self, waiting: usize, posted: usize) {
        set(&self.waiting, waiting);
        set(&self.posted, posted);
    }
}

impl Connected {
    /// Stores the number of connections.
    pub(crate) fn set_current(&self, count: usize) {
        set(&self.current, count);
    }
}

impl Counters {
    /// Counts frames that `dev` drops for `reason`, from any context. Of a single frame the length is told to whom
    /// traces.
    #[cold]
    pub(crate) fn dropped(&self, dev: &RawDevice, reason: DropReason, frames: u64, length: usize) {
        if frames > 0 {
            self.drops[reason.index()].add_shared(frames);
            ipoib_trace::dropped(dev, reason.name(), frames, length);
        }
    }

    /// Counts receive completions that brought no frame, as the receive NAPI.
    #[cold]
    pub(crate) fn not_received(&self, dev: &RawDevice, report: &ReceiveReport) {
        self.rx.flushed.add(u64::from(report.flushed));
        for (reason, n) in failures(report) {
            self.dropped(dev, reason, u64::from(n), 0);
        }
    }

    fn drops_of(&self, reasons: &[DropReason]) -> u64 {
        reasons.iter().map(|r| self.drops[r.index()].get()).sum()
    }

    /// Frames dropped for reasons whose names begin with `direction`.
    fn drops_by(&self, direction: &str) -> u64 {
        let reasons = DropReason::ALL.iter();
        reasons
            .filter(|r| r.name().starts_with(direction))
            .map(|r| self.drops[r.index()].get())
            .sum()
    }

    /// Counters for netdev-genl.
    pub(crate) fn queue_stats(&self) -> QueueStats {
        use DropReason::*;
        let link = self.link_stats();
        QueueStats {
            rx_packets: link.rx_packets,
            rx_bytes: link.rx_bytes,
            rx_alloc_fail: self.drops_of(&[NoBuffer]),
            rx_drops: self.drops_by("rx_"),
            tx_packets: link.tx_packets,
            tx_bytes: link.tx_bytes,
            tx_drops: self.drops_by("tx_"),
            tx_errors: link.tx_errors,
            tx_needs_csum: self.tx.partial.get() + self.rc_tx.partial.get(),
            tx_stops: self.tx.stops.get(),
            tx_wakes: self.tx.wakes.get(),
        }
    }

    /// Counters for `ip -s link`.
    pub(crate) fn link_stats(&self) -> LinkStats {
        use DropReason::*;
        let lengths = self.drops_of(&[Short, Oversized, TruncatedGrh]);
        let tx_errors = self.drops_of(&[MapFailed, PostFailed, SendFailed]);
        let tx_drops = self.drops_by("tx_");
        // With the wire's headers, as those of datagrams.
        let headers = Header::LEN as u64 * self.done.rc_frames.get();
        let rc_bytes = self.done.rc_bytes.get() + headers;
        LinkStats {
            rx_packets: self.rx.frames.get() + self.rc_rx.frames.get(),
            rx_bytes: self.rx.bytes.get() + self.rc_rx.bytes.get(),
            rx_errors: lengths
                + self.drops_of(&[BadGrh, BadSource, BadStatus, BadCompletion, BadExtended]),
            rx_dropped: self.drops_of(&[EtherType, NoBuffer, Stopped]),
            rx_length_errors: lengths,
            multicast: self.rx.multicast.get(),
            tx_packets: self.done.frames.get() + self.done.rc_frames.get(),
            tx_bytes: self.done.bytes.get() + rc_bytes,
            tx_errors,
            tx_dropped: tx_drops - tx_errors,
        }
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[kernel::prelude::kunit_tests(ipoib_rs_counters)]
mod tests {
    use super::*;

    /// A receive that has failed counts for what was wrong with it.
    #[test]
    fn each_failure_has_its_reason() {
        let mut report = ReceiveReport::default();
        report.errors = 1;
        report.unknown = 2;
        report.malformed = 3;
        report.no_buffer = 4;
        report.stopped = 5;
        report.flushed = 6;
        report.refused = 7;
        let named = failures(&report).map(|(reason, count)| (reason.name(), count));
        assert_eq!(
            named,
            [
                ("rx_drop_bad_status", 1),
                ("rx_drop_bad_completion", 2),
                ("rx_drop_oversized", 3),
                ("rx_drop_no_buffer", 4),
                ("rx_drop_stopped", 5),
            ]
        );
    }
}
