// SPDX-License-Identifier: GPL-2.0

//! Counters of a port (section 16.1.3.5 PortCounters and 16.1.4.11 PortCountersExtended).
//!
//! The two sets are apart: to clear one leaves the other. No counter wraps; it stops at the
//! largest number that its field holds.

use crate::bits::Field;

/// Packets that pass a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Their number.
    pub packets: u32,
    /// The length of all of them from the first header to the ICRC, in bytes.
    pub bytes: u32,
    /// True if they are for a multicast group.
    pub multicast: bool,
}

impl Traffic {
    /// One unicast packet of so many bytes.
    pub const fn unicast(bytes: u32) -> Traffic {
        Traffic {
            packets: 1,
            bytes,
            multicast: false,
        }
    }

    /// One multicast packet of so many bytes.
    pub const fn multicast(bytes: u32) -> Traffic {
        Traffic {
            multicast: true,
            ..Traffic::unicast(bytes)
        }
    }
}

/// A thing that a port counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Packets that left, one after the other.
    Sent(Traffic),
    /// Packets that came, one after the other.
    Received(Traffic),
    /// A packet that came with an error, such as more payload than the MTU.
    ReceiveError,
    /// A packet that came with a wrong CRC.
    Corrupt,
    /// Time in which there was something to send and it had to wait.
    Waited {
        /// Ticks, of which each is a microsecond.
        ticks: u32,
    },
    /// A packet that could not be sent, because the port was down or the queue full.
    Discarded,
    /// A packet that came and that the switch could not forward: no port, no virtual lane, or
    /// back where it came from.
    RelayError,
    /// A packet that was not sent because the port does not let its P_Key out.
    SentConstraint,
    /// A packet that came with a P_Key that the port does not let in.
    ReceivedConstraint,
    /// A subnet management packet that found no room.
    VL15Dropped,
    /// A packet whose P_Key the queue pair does not have.
    PKeyViolation,
    /// A packet whose Q_Key the queue pair does not have.
    QKeyViolation,
}

/// An error of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkError {
    /// More packets have come with a wrong CRC than LocalPhyErrors allows.
    Integrity,
    /// The port has run out of room for what came, time and again.
    Overrun,
    /// The other end has told of no credits for too long.
    FlowControl,
}

/// The index of each counter of PortCounters: its bit in CounterSelect.
mod index {
    pub(super) const SYMBOL_ERRORS: usize = 0;
    pub(super) const LINK_RECOVERIES: usize = 1;
    pub(super) const LINK_DOWNED: usize = 2;
    pub(super) const RECEIVE_ERRORS: usize = 3;
    pub(super) const RELAY_ERRORS: usize = 5;
    pub(super) const SEND_DISCARDS: usize = 6;
    pub(super) const SEND_CONSTRAINTS: usize = 7;
    pub(super) const RECEIVE_CONSTRAINTS: usize = 8;
    pub(super) const LINK_INTEGRITY: usize = 9;
    pub(super) const BUFFER_OVERRUNS: usize = 10;
    pub(super) const VL15_DROPPED: usize = 11;
    pub(super) const SENT_DATA: usize = 12;
    pub(super) const RECEIVED_DATA: usize = 13;
    pub(super) const SENT_PACKETS: usize = 14;
    pub(super) const RECEIVED_PACKETS: usize = 15;
}

/// The fields of PortCounters in the order of CounterSelect.
const FIELDS: [Field; 16] = [
    Field::bytes(4, 2),    // SymbolErrorCounter
    Field::bytes(6, 1),    // LinkErrorRecoveryCounter
    Field::bytes(7, 1),    // LinkDownedCounter
    Field::bytes(8, 2),    // PortRcvErrors
    Field::bytes(10, 2),   // PortRcvRemotePhysicalErrors
    Field::bytes(12, 2),   // PortRcvSwitchRelayErrors
    Field::bytes(14, 2),   // PortXmitDiscards
    Field::bytes(16, 1),   // PortXmitConstraintErrors
    Field::bytes(17, 1),   // PortRcvConstraintErrors
    Field::bits(19, 4, 4), // LocalLinkIntegrityErrors
    Field::bits(19, 0, 4), // ExcessiveBufferOverrunErrors
    Field::bytes(22, 2),   // VL15Dropped
    Field::bytes(24, 4),   // PortXmitData
    Field::bytes(28, 4),   // PortRcvData
    Field::bytes(32, 4),   // PortXmitPkts
    Field::bytes(36, 4),   // PortRcvPkts
];

/// CounterSelect2 of PortCounters, whose lowest bit stands for PortXmitWait.
const SELECT2: Field = Field::bytes(18, 1);

/// PortXmitWait.
const SEND_WAIT: Field = Field::bytes(40, 4);

/// The fields of PortCountersExtended in the order of CounterSelect.
const EXTENDED: [Field; 8] = [
    Field::bytes(8, 8),  // PortXmitData
    Field::bytes(16, 8), // PortRcvData
    Field::bytes(24, 8), // PortXmitPkts
    Field::bytes(32, 8), // PortRcvPkts
    Field::bytes(40, 8), // PortUnicastXmitPkts
    Field::bytes(48, 8), // PortUnicastRcvPkts
    Field::bytes(56, 8), // PortMulticastXmitPkts
    Field::bytes(64, 8), // PortMulticastRcvPkts
];

/// The counters of one port.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    short: [u32; 16],
    send_wait: u32,
    extended: [u64; 8],
}

impl Counters {
    /// Counts a link that went down by itself.
    pub(crate) fn link_downed(&mut self) {
        self.add(index::LINK_DOWNED, 1);
    }

    /// Counts an error of the link.
    pub(crate) fn link_failed(&mut self, error: LinkError) {
        match error {
            // The link recovers, which takes no time.
            LinkError::Integrity => {
                self.add(index::LINK_INTEGRITY, 1);
                self.add(index::LINK_RECOVERIES, 1);
            }
            LinkError::Overrun => self.add(index::BUFFER_OVERRUNS, 1),
            // It has no counter.
            LinkError::FlowControl => {}
        }
    }

    /// Counts a packet or an error. Violations of keys are PortInfo's, not counted here.
    pub(crate) fn count(&mut self, what: Counted) {
        match what {
            Counted::Sent(traffic) => self.sent(&traffic),
            Counted::Received(traffic) => self.received(&traffic),
            Counted::ReceiveError => self.add(index::RECEIVE_ERRORS, 1),
            Counted::Corrupt => {
                self.add(index::SYMBOL_ERRORS, 1);
                self.add(index::RECEIVE_ERRORS, 1);
            }
            Counted::Waited { ticks } => self.send_wait = self.send_wait.saturating_add(ticks),
            Counted::Discarded => self.add(index::SEND_DISCARDS, 1),
            Counted::RelayError => self.add(index::RELAY_ERRORS, 1),
            Counted::SentConstraint => self.add(index::SEND_CONSTRAINTS, 1),
            Counted::ReceivedConstraint => self.add(index::RECEIVE_CONSTRAINTS, 1),
            Counted::VL15Dropped => self.add(index::VL15_DROPPED, 1),
            Counted::PKeyViolation | Counted::QKeyViolation => {}
        }
    }

    fn sent(&mut self, traffic: &Traffic) {
        self.add(index::SENT_DATA, traffic.words());
        self.add(index::SENT_PACKETS, traffic.packets);
        let [data, _, packets, _, unicasts, _, multicasts, _] = &mut self.extended;
        traffic.add_to(data, packets, [unicasts, multicasts]);
    }

    fn received(&mut self, traffic: &Traffic) {
        self.add(index::RECEIVED_DATA, traffic.words());
        self.add(index::RECEIVED_PACKETS, traffic.packets);
        let [_, data, _, packets, _, unicasts, _, multicasts] = &mut self.extended;
        traffic.add_to(data, packets, [unicasts, multicasts]);
    }

    fn add(&mut self, index: usize, n: u32) {
        if let (Some(counter), Some(field)) = (self.short.get_mut(index), FIELDS.get(index)) {
            *counter = counter.saturating_add(n).min(field.max() as u32);
        }
    }

    /// Adds the counters of another port.
    pub(crate) fn add_all(&mut self, other: &Counters) {
        for (i, &n) in (0..).zip(&other.short) {
            self.add(i, n);
        }
        self.send_wait = self.send_wait.saturating_add(other.send_wait);
        for (counter, &n) in self.extended.iter_mut().zip(&other.extended) {
            *counter = counter.saturating_add(n);
        }
    }

    /// Writes PortCounters.
    pub(crate) fn read(&self, data: &mut [u8]) {
        for (field, &counter) in FIELDS.iter().zip(&self.short) {
            field.put(data, counter);
        }
        SEND_WAIT.put(data, self.send_wait);
    }

    /// Takes the selected counters from PortCounters.
    pub(crate) fn write(&mut self, select: u16, data: &[u8]) {
        for (i, (field, counter)) in (0..16).zip(FIELDS.iter().zip(&mut self.short)) {
            if select.wrapping_shr(i) & 1 != 0 {
                *counter = field.u32(data);
            }
        }
        if SELECT2.u8(data) & 1 != 0 {
            self.send_wait = SEND_WAIT.u32(data);
        }
    }

    /// Writes PortCountersExtended.
    pub(crate) fn read_extended(&self, data: &mut [u8]) {
        for (field, &counter) in EXTENDED.iter().zip(&self.extended) {
            field.put(data, counter);
        }
    }

    /// Takes the selected counters from PortCountersExtended.
    pub(crate) fn write_extended(&mut self, select: u16, data: &[u8]) {
        for (i, (field, counter)) in (0..16).zip(EXTENDED.iter().zip(&mut self.extended)) {
            if select.wrapping_shr(i) & 1 != 0 {
                *counter = field.u64(data);
            }
        }
    }
}

impl Traffic {
    /// Data is counted in units of four bytes; packets are padded to whole ones.
    const fn words(&self) -> u32 {
        self.bytes.div_ceil(4)
    }

    fn add_to(&self, data: &mut u64, packets: &mut u64, kinds: [&mut u64; 2]) {
        let [unicasts, multicasts] = kinds;
        let kind = if self.multicast { multicasts } else { unicasts };
        for (counter, n) in [
            (data, self.words()),
            (packets, self.packets),
            (kind, self.packets),
        ] {
            *counter = counter.saturating_add(u64::from(n));
        }
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_counters))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    #[test]
    fn runs_are_as_many_packets() {
        let mut counters = [Counters::default(), Counters::default()];
        let [single, run] = &mut counters;
        for _ in 0..3 {
            single.count(Counted::Sent(Traffic::unicast(280)));
            single.count(Counted::Received(Traffic::unicast(24)));
        }
        let three = |bytes| Traffic {
            packets: 3,
            ..Traffic::unicast(bytes)
        };
        run.count(Counted::Sent(three(840)));
        run.count(Counted::Received(three(72)));
        assert_eq!(single.short, run.short);
        assert_eq!(single.extended, run.extended);
    }

    #[test]
    fn packets_and_words() {
        let mut counters = Counters::default();
        counters.count(Counted::Sent(Traffic::unicast(280)));
        counters.count(Counted::Sent(Traffic::multicast(21)));
        counters.count(Counted::Received(Traffic::unicast(4)));
        counters.count(Counted::Received(Traffic::multicast(8)));
        counters.count(Counted::Received(Traffic::multicast(0)));

        let mut data = [0; 192];
        counters.read(&mut data);
        assert_eq!(data[24..28], [0, 0, 0, 76]);
        assert_eq!(data[28..32], [0, 0, 0, 3]);
        assert_eq!(data[32..36], [0, 0, 0, 2]);
        assert_eq!(data[36..40], [0, 0, 0, 3]);

        let mut data = [0; 192];
        counters.read_extended(&mut data);
        let low_bytes: [u8; 8] = core::array::from_fn(|i| data[15 + 8 * i]);
        assert_eq!(low_bytes, [76, 3, 2, 3, 1, 1, 1, 2]);
    }

    #[test]
    fn errors_have_their_places() {
        // thing, place of its low byte
        let cases = [
            (Counted::ReceiveError, 9),
            (Counted::RelayError, 13),
            (Counted::Discarded, 15),
            (Counted::SentConstraint, 16),
            (Counted::ReceivedConstraint, 17),
            (Counted::VL15Dropped, 23),
        ];
        for (what, place) in cases {
            let mut counters = Counters::default();
            counters.count(what);
            let mut data = [0; 192];
            counters.read(&mut data);
            assert_eq!(data[place], 1);
            data[place] = 0;
            assert_eq!(data, [0; 192]);
        }
    }

    #[test]
    fn errors_of_links_have_their_places() {
        let cases = [
            (LinkError::Integrity, (1, 0x10)),
            (LinkError::Overrun, (0, 0x01)),
            (LinkError::FlowControl, (0, 0)),
        ];
        for (error, seen) in cases {
            let mut counters = Counters::default();
            counters.link_failed(error);
            let mut data = [0; 192];
            counters.read(&mut data);
            assert_eq!((data[6], data[19]), seen);
            (data[6], data[19]) = (0, 0);
            assert_eq!(data, [0; 192]);
        }
    }

    #[test]
    fn wrong_crcs_and_waiting() {
        let mut counters = Counters::default();
        counters.count(Counted::Corrupt);
        counters.count(Counted::Waited { ticks: 0x0102_0300 });
        counters.count(Counted::Waited { ticks: 4 });
        let mut sum = counters.clone();
        sum.add_all(&counters);
        for (counters, n) in [(&counters, 1), (&sum, 2)] {
            let mut data = [0; 192];
            counters.read(&mut data);
            assert_eq!((data[5], data[9]), (n, n));
            assert_eq!(data[40..44], [n, 2 * n, 3 * n, 4 * n]);
        }
        // CounterSelect2 picks PortXmitWait.
        let mut zeros = [0; 192];
        counters.write(0xffff, &zeros);
        assert_eq!((counters.short[0], counters.send_wait), (0, 0x0102_0304));
        counters.count(Counted::Waited { ticks: u32::MAX });
        assert_eq!(counters.send_wait, u32::MAX);
        zeros[18] = 1;
        counters.write(0, &zeros);
        assert_eq!(counters.send_wait, 0);
    }

    #[test]
    fn counters_stop_at_the_top() {
        let mut counters = Counters::default();
        counters.write(0xffff, &[0xff; 192]);
        counters.write_extended(0xffff, &[0xff; 192]);
        let full = counters.clone();
        counters.link_downed();
        counters.count(Counted::Sent(Traffic::unicast(100)));
        counters.count(Counted::Received(Traffic::multicast(100)));
        counters.count(Counted::VL15Dropped);
        assert_eq!(counters.short, full.short);
        assert_eq!(counters.extended, full.extended);

        let mut counters = Counters::default();
        for _ in 0..300 {
            counters.link_downed();
        }
        assert_eq!(counters.short[index::LINK_DOWNED], 255);
    }

    #[test]
    fn select_picks_single_counters() {
        for bit in 0..16 {
            let mut counters = Counters::default();
            counters.write(1 << bit, &[0xff; 192]);
            for (i, &counter) in counters.short.iter().enumerate() {
                let expected = if i == bit { FIELDS[i].max() as u32 } else { 0 };
                assert_eq!(counter, expected);
            }
            let mut counters = Counters::default();
            counters.write_extended(1 << bit, &[0xff; 192]);
            for (i, &counter) in counters.extended.iter().enumerate() {
                assert_eq!(counter, if i == bit { u64::MAX } else { 0 });
            }
        }
    }

    #[test]
    fn the_two_sets_are_apart() {
        let mut counters = Counters::default();
        counters.count(Counted::Sent(Traffic::unicast(4)));
        counters.write(0xffff, &[0; 192]);
        assert_eq!(counters.short, [0; 16]);
        assert_eq!(counters.extended[0], 1);
    }
}
