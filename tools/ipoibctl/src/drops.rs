// SPDX-License-Identifier: GPL-2.0

//! Counters of dropped frames, in words: those of the driver's own table.

use crate::facts::Interface;
use ipoib_proto::drop::DropReason;

/// Counters of dropped frames that are not 0, and the reason of each. Our own multicast that comes back is none: that is
/// what fabrics do.
pub(crate) fn of(interface: &Interface) -> impl Iterator<Item = (&'static str, u64, &'static str)> {
    let reasons = DropReason::ALL.iter();
    reasons
        .filter(|reason| **reason != DropReason::OwnMulticast)
        .map(|reason| {
            (
                reason.name(),
                interface.counter(reason.name()),
                reason.words(),
            )
        })
        .filter(|(_, value, _)| *value > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_that_count() {
        let mut interface = Interface::default();
        for (name, value) in [
            ("rx_drop_own_multicast", 7),
            ("tx_drop_runt", 0),
            ("tx_drop_no_memory", 2),
            ("tx_frames", 9),
        ] {
            interface.counters.insert(name.into(), value);
        }
        let found: Vec<_> = of(&interface).collect();
        assert_eq!(found, [("tx_drop_no_memory", 2, "No memory.")]);
    }
}
