// SPDX-License-Identifier: GPL-2.0

//! Reasons to drop a frame: one closed list, for counters, drop reasons and tests alike.

/// Defines [`DropReason`] together with everything that has to stay in step with it.
macro_rules! drop_reasons {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// Reason to drop a frame.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum DropReason {
            $($(#[$doc])* $variant,)*
        }

        impl DropReason {
            /// All reasons in the order of their index.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$variant),*];

            /// How many reasons there are: the length of an array of counters.
            pub const COUNT: usize = Self::ALL.len();

            /// Returns the stable name of the counter: snake case, short enough for ethtool.
            pub const fn name(self) -> &'static str {
                match self {
                    $(DropReason::$variant => $name,)*
                }
            }
        }
    };
}

drop_reasons! {
    /// Received: no room for the encapsulation header and at least one byte of payload.
    Short = "rx_drop_short",
    /// Received: the device says that it wrote more than the buffer holds.
    Oversized = "rx_drop_oversized",
    /// Received: shorter than the 40 bytes that every UD receive begins with.
    TruncatedGrh = "rx_drop_truncated_grh",
    /// Received: what stands in place of the GRH is neither one nor an IPv4 header.
    BadGrh = "rx_drop_bad_grh",
    /// Received: the source cannot be a peer (a reserved queue pair or a multicast GID).
    BadSource = "rx_drop_bad_source",
    /// Received: a payload type that the link does not carry.
    EtherType = "rx_drop_ether_type",
    /// Received: our own multicast, looped back by the fabric.
    OwnMulticast = "rx_drop_own_multicast",
    /// Received: the completion carries an error status.
    BadStatus = "rx_drop_bad_status",
    /// Received: the completion names a buffer that was not posted.
    BadCompletion = "rx_drop_bad_completion",
    /// Received: no memory for a replacement, so that the buffer was posted again.
    NoBuffer = "rx_drop_no_buffer",
    /// Received: an extended frame whose header and packet contradict each other.
    BadExtended = "rx_drop_bad_extended",
    /// Received: on a connection that nobody knows any more.
    NoConnection = "rx_drop_no_connection",
    /// Transmit: the link-layer address is no valid destination.
    BadAddress = "tx_drop_bad_address",
    /// Transmit: a payload type that the link does not carry.
    TxEtherType = "tx_drop_ether_type",
    /// Transmit: shorter than its own headers.
    Runt = "tx_drop_runt",
    /// Transmit: larger than the MTU.
    TooBig = "tx_drop_too_big",
    /// Transmit: no path to the destination could be found, or not yet again.
    NoPath = "tx_drop_no_path",
    /// Transmit: too many frames wait for the path already.
    QueueFull = "tx_drop_queue_full",
    /// Transmit: too many destinations are in use already.
    TableFull = "tx_drop_table_full",
    /// Transmit: the multicast group could not be attached, or not yet again.
    NoGroup = "tx_drop_no_group",
    /// Transmit: the ring has no free slot although the queue was not stopped.
    Ring = "tx_drop_ring",
    /// Transmit: no memory.
    NoMemory = "tx_drop_no_memory",
    /// Transmit: the frame could not be mapped for DMA.
    MapFailed = "tx_drop_map_failed",
    /// Transmit: the device refused the work request.
    PostFailed = "tx_drop_post_failed",
    /// Transmit: the completion carries an error status.
    SendFailed = "tx_drop_send_failed",
    /// Transmit: the port is down.
    LinkDown = "tx_drop_link_down",
    /// Transmit: flushed because the interface or the path went away.
    Flushed = "tx_drop_flushed",
}

impl DropReason {
    /// Returns the position of the reason in an array of [`DropReason::COUNT`] counters.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_drop))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::DropReason;

    #[test]
    fn index_is_the_position_in_all() {
        for (position, reason) in DropReason::ALL.iter().enumerate() {
            assert_eq!(reason.index(), position);
        }
        assert_eq!(DropReason::ALL.len(), DropReason::COUNT);
    }

    /// ETH_GSTRING_LEN is 32 with the terminator.
    #[test]
    fn names_fit_ethtool_and_are_unique() {
        for (i, reason) in DropReason::ALL.iter().enumerate() {
            let name = reason.name();
            assert!(name.len() < 32);
            assert!(name.bytes().all(|b| b == b'_' || b.is_ascii_lowercase()));
            for other in &DropReason::ALL[..i] {
                assert!(other.name() != name);
            }
        }
    }
}
