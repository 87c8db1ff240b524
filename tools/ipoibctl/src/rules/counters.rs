// SPDX-License-Identifier: GPL-2.0

//! Causes that counters show. They count from the interface's beginning, so a few frames are no cause: it takes one in a
//! thousand, unless nothing harmless counts there.

use super::{Out, Severity};
use crate::facts::{Facts, Interface, Link};

/// A cause that counters show.
struct Told {
    counters: &'static [&'static str],
    cause: &'static str,
    /// It takes one in a thousand of the frames that were sent or received, and 20 at least.
    share: bool,
    what: &'static str,
}

const TOLD: &[Told] = &[
    Told {
        counters: &["tx_timeouts"],
        cause: "device-stuck",
        share: false,
        what: "The RDMA device sent nothing for ten seconds, and the interface was restarted.",
    },
    Told {
        counters: &[
            "tx_drop_post_failed",
            "rx_drop_bad_status",
            "rx_drop_bad_completion",
        ],
        cause: "device-errors",
        share: false,
        what: "The RDMA device refuses work requests or reports errors.",
    },
    // A send fails, too, if its P_Key has just left the table. One stops the queue: there are few of them.
    Told {
        counters: &["tx_drop_send_failed"],
        cause: "device-errors",
        share: true,
        what: "The RDMA device fails sends.",
    },
    Told {
        counters: &["rx_drop_oversized"],
        cause: "peer-mtu",
        share: false,
        what: "A peer sends frames larger than this end's receive buffers: its MTU is larger.",
    },
    Told {
        counters: &[
            "rx_drop_short",
            "rx_drop_truncated_grh",
            "rx_drop_bad_grh",
            "rx_drop_bad_source",
            "rx_drop_bad_extended",
        ],
        cause: "malformed-frames",
        share: false,
        what: "Frames arrive that no IPoIB driver sends: something else sends to this queue pair.",
    },
    Told {
        counters: &["rc_refused_pkey", "rc_refused_gid", "rc_refused_data"],
        cause: "strange-requests",
        share: false,
        what: "Connection requests arrive with a partition, GID or private data that no peer on this link sends.",
    },
    Told {
        counters: &["rc_stuck"],
        cause: "peer-stuck",
        share: false,
        what: "A peer took too little for too long, and its connection was ended.",
    },
    Told {
        counters: &["rx_drop_no_buffer", "tx_drop_no_memory"],
        cause: "no-memory",
        share: true,
        what: "Memory for frames ran out.",
    },
    Told {
        counters: &["tx_drop_table_full"],
        cause: "too-many-peers",
        share: false,
        what: "There are more peers or multicast groups than the tables hold.",
    },
    Told {
        counters: &["tx_drop_queue_full"],
        cause: "too-many-waiting",
        share: true,
        what: "Too many frames wait for paths and multicast groups that are being resolved.",
    },
    Told {
        counters: &["multicast_too_big"],
        cause: "multicast-too-big",
        share: false,
        what: "Programs send multicast packets that are larger than a datagram and may not be fragmented.",
    },
    Told {
        counters: &["rx_seq_refused", "rx_seq_no_ring"],
        cause: "too-many-sources",
        share: true,
        what: "More sources send out of order than the interface can put in order at a time.",
    },
    Told {
        counters: &["rx_seq_timed_out"],
        cause: "lossy-fabric",
        share: true,
        what: "The fabric loses frames: later ones were held until the timeout.",
    },
];

/// The largest MTU of a datagram on the port; that which subnet managers allow by default if it is not known.
fn datagram_mtu(facts: &Facts, link: &Link) -> u32 {
    facts
        .ethernet_of(link)
        .map_or(2044, super::ethernet::datagram_mtu)
}

pub(super) fn check(facts: &Facts, interface: &Interface, link: &Link, out: &mut Out<'_>) {
    let frames = ["rx_frames", "tx_frames", "rc_rx_frames", "rc_tx_frames"];
    let frames: u64 = frames.iter().map(|name| interface.counter(name)).sum();
    for told in TOLD {
        let counted: Vec<(&str, u64)> = told
            .counters
            .iter()
            .map(|name| (*name, interface.counter(name)))
            .filter(|(_, value)| *value > 0)
            .collect();
        let sum: u64 = counted.iter().map(|(_, value)| value).sum();
        if sum == 0 || (told.share && (sum < 20 || sum.saturating_mul(1000) < frames)) {
            continue;
        }
        let counted: Vec<String> = counted.iter().map(|(n, v)| format!("{n} is {v}")).collect();
        let fix = match told.cause {
            "multicast-too-big" => {
                format!(
                    "ip link set {} mtu {}",
                    link.name,
                    datagram_mtu(facts, link).min(2044)
                )
            }
            _ => String::new(),
        };
        out.add(
            Severity::Warning,
            told.cause,
            told.what,
            counted.join(", "),
            fix,
        );
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::tests::names;
    use super::*;
    use crate::healthy::healthy;

    /// Each counter with its cause, and a value that is enough for that.
    pub(in super::super) fn counters() -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        TOLD.iter().flat_map(|told| {
            let value = if told.share { 20 } else { 1 };
            let counters = told.counters.iter();
            counters.map(move |counter| (told.cause, *counter, value))
        })
    }

    #[test]
    fn each_counter_shows_its_cause() {
        for (cause, counter, value) in counters() {
            names(true, cause, |facts| {
                facts.interfaces[0].counters.insert(counter.into(), value);
            });
        }
    }

    /// The driver has the counters, by these names.
    #[test]
    fn they_are_the_drivers() {
        let using = include_str!("../../../../Documentation/using.rst");
        for counter in TOLD.iter().flat_map(|told| told.counters) {
            assert!(using.contains(&format!("``{counter}``")), "{counter}");
        }
    }

    #[test]
    fn a_few_losses_are_no_cause() {
        for told in TOLD.iter().filter(|told| told.share) {
            for (value, frames) in [(19, 0), (1000, 2_000_000)] {
                let mut facts = healthy(false);
                facts.interfaces[0]
                    .counters
                    .insert(told.counters[0].into(), value);
                facts.interfaces[0]
                    .counters
                    .insert("rx_frames".into(), frames);
                assert_eq!(super::super::judge(&facts), []);
            }
        }
    }
}
