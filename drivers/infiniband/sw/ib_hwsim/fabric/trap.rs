// SPDX-License-Identifier: GPL-2.0

//! Traps (sections 13.4.8.2 Notice, 13.4.9 and 14.3): datagrams by which a node tells the master
//! subnet manager of something, until that answers with TrapRepress.
//!
//! A node has at most one trap of each sort under way: link states (128), errors of links (129 to
//! 131), its own properties (144) and refused keys (256 to 259). A change while one is under way
//! is a new one; an error or a refused key is not, and shows in the counters only. SubnetTimeOut
//! limits the rate. A port without a LID or a subnet manager forgets its traps, for whoever comes
//! reads all anyway.

use crate::addr::Lid;
use crate::bits::copy;
use crate::counters::LinkError;
use crate::keys::Qpn;
use crate::link::PortState;
use crate::mad::{attribute, class, method, smp_data, smp_data_mut, Header, Mad};
use crate::mad::{BASE_VERSION, CLASS_VERSION};
use crate::nodeinfo::NodeType;
use crate::notice::{self, Notice};
use crate::packet::{Packet, Transport};
use crate::port::Port;

/// The shortest time between a trap and its repetition, in milliseconds.
const REPEAT_MS: u64 = 1000;

/// The upper half of the transactions, which those of the host's management layer do not have.
const TRANSACTIONS: u64 = 0x5452_4150 << 32;

/// An answer to the question for a trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrapDue {
    /// The packet, with the datagram that was written, is to leave by this port now; then the
    /// question is to be asked again.
    Send {
        /// The port: the adapter's, or the one that leads a switch to the subnet manager.
        out: u8,
        /// The headers.
        packet: Packet,
    },
    /// There is none before this time, in milliseconds of the asker's clock.
    At(u64),
    /// There is none until something happens: a change of a link, or a datagram or packet that
    /// the node refuses or that changes it.
    Never,
}

/// A sort of traps, of which one can be under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// Link states of a switch.
    Links = 0,
    /// CapabilityMask and NodeDescription.
    Properties = 1,
    /// Refused keys.
    Keys = 2,
    /// Errors of links.
    Errors = 3,
}

impl Sort {
    const ALL: [Sort; 4] = [Sort::Links, Sort::Properties, Sort::Keys, Sort::Errors];
}

/// The progress of a trap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Progress {
    /// There is nothing to tell.
    #[default]
    Idle,
    /// It has not been sent yet.
    New,
    /// It was sent, in this transaction, and is repeated until it is repressed.
    Sent(u32),
}

/// The traps of a port that has an agent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traps {
    progress: [Progress; 4],
    /// The sort that was sent last.
    last: u8,
    /// The time at which that was, in milliseconds.
    sent_at: Option<u64>,
    transaction: u32,
    /// The bits of trap 144 that say what changed.
    changes: u16,
    /// The refused key.
    refusal: Notice,
    /// The error, and the number of the port whose link has it.
    error: Option<(LinkError, u8)>,
}

/// Returns true if traps of a port can reach a subnet manager.
fn can_send(port: &Port) -> bool {
    port.state == PortState::Active && port.lid.is_unicast() && port.sm_lid.is_unicast()
}

/// Returns SubnetTimeOut in milliseconds, rounded up: the shortest time between two traps.
fn subnet_timeout_ms(port: &Port) -> u64 {
    4096u64
        .wrapping_shl(u32::from(port.subnet_timeout & 31))
        .div_ceil(1_000_000)
}

impl Traps {
    /// Notes that the state of a link has changed (trap 128).
    pub(crate) fn link_changed(&mut self, port: &Port) {
        self.note(Sort::Links, port);
    }

    /// Notes a change of CapabilityMask, or of others that `changes` has the bits of, from
    /// [`notice`] (trap 144).
    pub(crate) fn properties_changed(&mut self, port: &Port, changes: u16) {
        if self.get(Sort::Properties) == Progress::Idle {
            self.changes = 0;
        }
        self.changes |= changes;
        self.note(Sort::Properties, port);
    }

    /// Notes an error of a link at a port of the node, by number (traps 129 to 131).
    pub(crate) fn link_failed(&mut self, port: &Port, number: u8, error: LinkError) {
        if self.get(Sort::Errors) == Progress::Idle {
            self.error = Some((error, number));
            self.note(Sort::Errors, port);
        }
    }

    /// Notes a refused M_Key (trap 256).
    pub(crate) fn m_key_refused(&mut self, port: &Port, slid: Lid, request: &Mad) {
        self.refused(port, || notice::bad_m_key(slid, request));
    }

    /// Notes a packet whose P_Key the port refused (trap 257).
    pub(crate) fn pkey_refused(&mut self, port: &Port, packet: &Packet) {
        let number = notice::BAD_P_KEY;
        self.refused(port, || {
            notice::bad_key(number, u32::from(packet.pkey), packet)
        });
    }

    /// Notes a packet whose Q_Key the port refused (trap 258).
    pub(crate) fn qkey_refused(&mut self, port: &Port, packet: &Packet) {
        let number = notice::BAD_Q_KEY;
        self.refused(port, || notice::bad_key(number, packet.qkey(), packet));
    }

    /// Notes a packet whose P_Key external port `external` of a switch refused (trap 259).
    pub(crate) fn relay_refused(&mut self, port: &Port, external: u8, packet: &Packet) {
        self.refused(port, || {
            notice::bad_switch_p_key(port.lid, external, packet)
        });
    }

    fn refused(&mut self, port: &Port, notice: impl FnOnce() -> Notice) {
        if self.get(Sort::Keys) == Progress::Idle && can_send(port) {
            self.refusal = notice();
            self.note(Sort::Keys, port);
        }
    }

    fn note(&mut self, sort: Sort, port: &Port) {
        if can_send(port) {
            self.set(sort, Progress::New);
        }
    }

    fn get(&self, sort: Sort) -> Progress {
        let progress = self.progress.get(sort as usize);
        progress.copied().unwrap_or_default()
    }

    fn set(&mut self, sort: Sort, progress: Progress) {
        if let Some(place) = self.progress.get_mut(sort as usize) {
            *place = progress;
        }
    }

    /// Takes TrapRepress. Whether it was the answer to a trap of this port.
    pub(crate) fn repress(&mut self, port: &Port, header: &Header, mad: &Mad) -> bool {
        if header.attribute != attribute::NOTICE
            || header.transaction & !0xffff_ffff != TRANSACTIONS
        {
            return false;
        }
        let sent = Progress::Sent(header.transaction as u32);
        let asked = Sort::ALL.into_iter().find(|&sort| self.get(sort) == sent);
        let Some(sort) = asked else {
            return false;
        };
        let same = self.notice(sort, port).number == notice::number(smp_data(mad));
        if same {
            self.set(sort, Progress::Idle);
        }
        same
    }

    /// Writes the trap that is due, if there is one, to leave by the port itself.
    ///
    /// `now_ms` is the time in milliseconds; it does not go back.
    pub(crate) fn due(
        &mut self,
        now_ms: u64,
        port: &Port,
        producer: NodeType,
        mad: &mut Mad,
    ) -> TrapDue {
        if !can_send(port) {
            self.progress = Default::default();
        }
        let Some((sort, at)) = self.next(port) else {
            return TrapDue::Never;
        };
        if now_ms < at {
            return TrapDue::At(at);
        }
        let transaction = match self.get(sort) {
            Progress::Sent(transaction) => transaction,
            _ => {
                self.transaction = self.transaction.wrapping_add(1);
                self.transaction
            }
        };
        self.set(sort, Progress::Sent(transaction));
        self.last = sort as u8;
        self.sent_at = Some(now_ms);

        *mad = [0; 256];
        let header = Header {
            base_version: BASE_VERSION,
            class: class::SUBNET_LID,
            class_version: CLASS_VERSION,
            method: method::TRAP,
            status: 0,
            class_specific: 0,
            transaction: TRANSACTIONS | u64::from(transaction),
            attribute: attribute::NOTICE,
            modifier: 0,
        };
        header.write(mad);
        let mut data = [0; 64];
        self.notice(sort, port).write(producer, port.lid, &mut data);
        copy(&data, smp_data_mut(mad));
        TrapDue::Send {
            out: port.number(),
            packet: packet(port),
        }
    }

    /// Returns the trap that is to be sent next, and the time for that. New ones go before
    /// repetitions, and the sorts take turns.
    fn next(&self, port: &Port) -> Option<(Sort, u64)> {
        let find = |wanted: fn(Progress) -> bool| {
            let after = |sort: &Sort| *sort as u8 > self.last;
            let waits = |sort: &Sort| wanted(self.get(*sort));
            let mut later = Sort::ALL.into_iter().filter(after);
            let any = || Sort::ALL.into_iter().find(waits);
            later.find(waits).or_else(any)
        };
        let pause = subnet_timeout_ms(port);
        let new = find(|progress| progress == Progress::New).map(|sort| (sort, pause));
        let again = || {
            let sort = find(|progress| matches!(progress, Progress::Sent(_)))?;
            Some((sort, pause.max(REPEAT_MS)))
        };
        let (sort, pause) = new.or_else(again)?;
        Some((sort, self.sent_at.map_or(0, |at| at.saturating_add(pause))))
    }

    fn notice(&self, sort: Sort, port: &Port) -> Notice {
        match sort {
            Sort::Links => notice::link_state(port.lid),
            Sort::Properties => notice::properties(port.lid, port.cap_mask, self.changes),
            Sort::Keys => self.refusal,
            Sort::Errors => self.error.map_or(Notice::default(), |(error, number)| {
                notice::link_error(trap_of(error), port.lid, number)
            }),
        }
    }
}

const fn trap_of(error: LinkError) -> u16 {
    match error {
        LinkError::Integrity => notice::LINK_INTEGRITY,
        LinkError::Overrun => notice::BUFFER_OVERRUN,
        LinkError::FlowControl => notice::FLOW_CONTROL,
    }
}

/// Returns the headers of a packet to the subnet manager.
fn packet(port: &Port) -> Packet {
    let transport = Transport::datagram(Qpn::SMI.get(), 0);
    Packet {
        sl: port.sm_sl,
        len: size_of::<Mad>() as u32,
        management: true,
        ..Packet::new(port.lid, port.sm_lid, Qpn::SMI.get(), transport)
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_trap))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;
    use crate::config::SwitchConfig;

    /// Makes a management port with LID 4, whose subnet manager has LID 1.
    fn port() -> Port {
        let mut port = Port::of_switch(&SwitchConfig::EXAMPLE, 0);
        port.lid = Lid::new(4);
        port.sm_lid = Lid::new(1);
        port
    }

    /// Asks for a trap. Returns whether there is one, or the time of the next.
    fn ask(traps: &mut Traps, port: &Port, now_ms: u64, mad: &mut Mad) -> Result<(), Option<u64>> {
        match traps.due(now_ms, port, NodeType::Switch, mad) {
            TrapDue::Send { .. } => Ok(()),
            TrapDue::At(at) => Err(Some(at)),
            TrapDue::Never => Err(None),
        }
    }

    /// Section 14.2.5.6, SubnetTimeOut: 4.096 µs times two to its power.
    #[test]
    fn pauses() {
        let mut port = port();
        for (code, ms) in [(0, 1), (8, 2), (18, 1074), (31, 8_796_094)] {
            port.subnet_timeout = code;
            assert_eq!(subnet_timeout_ms(&port), ms);
        }
    }

    #[test]
    fn new_traps_come_sooner_than_repetitions() {
        let (port, mut traps, mut mad) = (port(), Traps::default(), [0; 256]);
        assert_eq!(ask(&mut traps, &port, 7, &mut mad), Err(None));
        traps.link_changed(&port);
        assert_eq!(ask(&mut traps, &port, 7, &mut mad), Ok(()));
        assert_eq!(ask(&mut traps, &port, 7, &mut mad), Err(Some(1007)));
        traps.properties_changed(&port, 0);
        assert_eq!(ask(&mut traps, &port, 7, &mut mad), Err(Some(8)));
        assert_eq!(ask(&mut traps, &port, 8, &mut mad), Ok(()));
        assert_eq!(notice::number(smp_data(&mad)), notice::PROPERTIES);
        assert_eq!(ask(&mut traps, &port, 1007, &mut mad), Err(Some(1008)));
        assert_eq!(ask(&mut traps, &port, 1008, &mut mad), Ok(()));
    }

    #[test]
    fn port_that_lost_its_manager_forgets() {
        let (mut port, mut traps, mut mad) = (port(), Traps::default(), [0; 256]);
        traps.link_changed(&port);
        port.sm_lid = Lid::NONE;
        assert_eq!(ask(&mut traps, &port, 0, &mut mad), Err(None));
        traps.link_changed(&port);
        port.sm_lid = Lid::new(1);
        assert_eq!(ask(&mut traps, &port, 0, &mut mad), Err(None));
    }

    #[test]
    fn only_its_own_answer_ends_a_trap() {
        let (port, mut traps, mut mad) = (port(), Traps::default(), [0; 256]);
        traps.link_changed(&port);
        assert_eq!(ask(&mut traps, &port, 0, &mut mad), Ok(()));
        let header = Header::parse(&mad);
        for place in [8, 15, 17, 69] {
            let mut other = mad;
            other[place] ^= 1;
            assert!(!traps.repress(&port, &Header::parse(&other), &other));
        }
        // A change meanwhile is a new trap.
        traps.link_changed(&port);
        assert!(!traps.repress(&port, &header, &mad));
        assert_eq!(ask(&mut traps, &port, 5, &mut mad), Ok(()));
        assert!(traps.repress(&port, &Header::parse(&mad), &mad));
        assert_eq!(ask(&mut traps, &port, 5000, &mut mad), Err(None));
    }
}
