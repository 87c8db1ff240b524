// SPDX-License-Identifier: GPL-2.0

//! Reasons to drop a frame, each with its counter.

/// Declares all reasons with the names of their counters. The comments stand in Documentation/ as well, and programs print
/// them.
macro_rules! drop_reasons {
    ($(#[doc = $words:literal] $variant:ident = $name:literal,)*) => {
        /// Reason to drop a frame.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum DropReason {
            $(#[doc = $words] $variant,)*
        }

        impl DropReason {
            /// All reasons in the order of their index.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$variant),*];

            /// Number of reasons, and length of an array of their counters.
            pub const COUNT: usize = Self::ALL.len();

            /// Name of the counter.
            pub const fn name(self) -> &'static str {
                match self {
                    $(DropReason::$variant => $name,)*
                }
            }

            /// The reason in a sentence.
            pub const fn words(self) -> &'static str {
                match self {
                    $(DropReason::$variant => $words.trim_ascii(),)*
                }
            }
        }
    };
}

drop_reasons! {
    /// No room for the encapsulation header and a byte of payload.
    Short = "rx_drop_short",
    /// The device reports more bytes than the buffer holds.
    Oversized = "rx_drop_oversized",
    /// Shorter than the 40 bytes that every received UD message begins with.
    TruncatedGrh = "rx_drop_truncated_grh",
    /// Neither a GRH nor an IPv4 header in the first 40 bytes.
    BadGrh = "rx_drop_bad_grh",
    /// The source cannot be a peer: a reserved queue pair or a multicast GID.
    BadSource = "rx_drop_bad_source",
    /// A payload type that the link does not carry.
    EtherType = "rx_drop_ether_type",
    /// Our own multicast, looped back by the fabric.
    OwnMulticast = "rx_drop_own_multicast",
    /// The receive completion carries an error status.
    BadStatus = "rx_drop_bad_status",
    /// The completion names a buffer that was not posted, or a connection that is not there.
    BadCompletion = "rx_drop_bad_completion",
    /// No memory for a new buffer; the old one was posted again.
    NoBuffer = "rx_drop_no_buffer",
    /// An extended header, or EtherType, that does not match its packet.
    BadExtended = "rx_drop_bad_extended",
    /// Received when the interface went down or got other queues.
    Stopped = "rx_drop_stopped",
    /// The link-layer address is no valid destination.
    BadAddress = "tx_drop_bad_address",
    /// A payload type that the link does not carry.
    TxEtherType = "tx_drop_ether_type",
    /// Shorter than its own headers.
    Runt = "tx_drop_runt",
    /// Larger than the MTU, or than the path or the peer takes.
    TooBig = "tx_drop_too_big",
    /// The path to the destination could not be resolved.
    NoPath = "tx_drop_no_path",
    /// Too many frames are queued for the destination already, or for all together.
    QueueFull = "tx_drop_queue_full",
    /// Too many destinations are in use already.
    TableFull = "tx_drop_table_full",
    /// The multicast group could not be joined.
    NoGroup = "tx_drop_no_group",
    /// The ring had no free slot although the queue was not stopped.
    Ring = "tx_drop_ring",
    /// No memory.
    NoMemory = "tx_drop_no_memory",
    /// The frame could not be mapped for DMA.
    MapFailed = "tx_drop_map_failed",
    /// The device refused the work request.
    PostFailed = "tx_drop_post_failed",
    /// The send completion carries an error status.
    SendFailed = "tx_drop_send_failed",
    /// The port is down, or the interface has no queues.
    LinkDown = "tx_drop_link_down",
    /// Flushed because the interface, the path or the connection went away.
    Flushed = "tx_drop_flushed",
}

impl DropReason {
    /// Index in [`DropReason::ALL`] and in an array of counters.
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

    #[test]
    fn words_are_sentences() {
        assert_eq!(DropReason::NoMemory.words(), "No memory.");
        for reason in DropReason::ALL {
            let words = reason.words();
            assert!(words.starts_with(|c: char| c.is_ascii_uppercase()));
            assert!(words.ends_with('.'));
        }
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
