// SPDX-License-Identifier: GPL-2.0

//! Counters.

use ipoib_sys::bindings;
use kernel::sync::atomic::{Atomic, Relaxed};

use crate::relaxed::Relax;

/// A counter that one context writes at a time and any may read.
///
/// [`Counter::add`] is a load and a store, not a locked instruction: two writers at once would
/// lose counts (never more than that). Each counter therefore belongs to one context: the transmit
/// lock, one NAPI, or one work item. [`Counter::add_shared`] is for the rare ones that do not.
pub struct Counter(Atomic<u64>);

impl Counter {
    /// A counter at zero.
    pub const fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Adds `n`, from the context that owns the counter.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.set(self.0.get().wrapping_add(n));
    }

    /// Adds `n`, from any context.
    #[inline]
    pub fn add_shared(&self, n: u64) {
        self.0.add(n, Relaxed);
    }

    /// The count.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl Default for Counter {
    fn default() -> Self {
        Self::new()
    }
}

/// Counters of an interface as `ip -s link` shows them, in the kernel's terms.
#[derive(Default)]
pub struct LinkStats {
    /// Frames received.
    pub rx_packets: u64,
    /// Bytes received, link-layer header included.
    pub rx_bytes: u64,
    /// Frames that arrived damaged or with an error status.
    pub rx_errors: u64,
    /// Good frames that were dropped.
    pub rx_dropped: u64,
    /// Frames too short or too long.
    pub rx_length_errors: u64,
    /// Multicast frames received.
    pub multicast: u64,
    /// Frames sent.
    pub tx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Frames that the device failed to send.
    pub tx_errors: u64,
    /// Frames dropped before the device saw them.
    pub tx_dropped: u64,
}

/// Counters of the queues, of which there is one each way, as netdev-genl shows them (`qstats-get`).
#[derive(Default)]
pub struct QueueStats {
    /// Frames received.
    pub rx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Frames that were lost for want of memory.
    pub rx_alloc_fail: u64,
    /// Frames that the device or its driver dropped on their way in.
    pub rx_drops: u64,
    /// Frames sent.
    pub tx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Frames that the device or its driver dropped on their way out.
    pub tx_drops: u64,
    /// Those among them that the device failed to send.
    pub tx_errors: u64,
    /// Frames sent whose checksum was left to others.
    pub tx_needs_csum: u64,
    /// Times that the queue was stopped.
    pub tx_stops: u64,
    /// Times that the queue was woken.
    pub tx_wakes: u64,
}

impl QueueStats {
    /// Copies those of the receive queue into the kernel's form.
    pub(crate) fn fill_rx(&self, out: &mut bindings::netdev_queue_stats_rx) {
        out.packets = self.rx_packets;
        out.bytes = self.rx_bytes;
        out.alloc_fail = self.rx_alloc_fail;
        out.hw_drops = self.rx_drops;
    }

    /// Copies those of the transmit queue.
    pub(crate) fn fill_tx(&self, out: &mut bindings::netdev_queue_stats_tx) {
        out.packets = self.tx_packets;
        out.bytes = self.tx_bytes;
        out.hw_drops = self.tx_drops;
        out.hw_drop_errors = self.tx_errors;
        out.needs_csum = self.tx_needs_csum;
        out.stop = self.tx_stops;
        out.wake = self.tx_wakes;
    }
}

impl LinkStats {
    /// Copies into the kernel's form.
    pub(crate) fn fill(&self, out: &mut bindings::rtnl_link_stats64) {
        out.rx_packets = self.rx_packets;
        out.rx_bytes = self.rx_bytes;
        out.rx_errors = self.rx_errors;
        out.rx_dropped = self.rx_dropped;
        out.rx_length_errors = self.rx_length_errors;
        out.multicast = self.multicast;
        out.tx_packets = self.tx_packets;
        out.tx_bytes = self.tx_bytes;
        out.tx_errors = self.tx_errors;
        out.tx_dropped = self.tx_dropped;
    }
}
