// SPDX-License-Identifier: GPL-2.0

//! A channel adapter, as management sees it.

use crate::addr::{Gid, Lid};
use crate::config::{Config, LinkLayer, MAX_PORTS};
use crate::counters::{Counted, LinkError};
use crate::discard::Discard;
use crate::event::Events;
use crate::link::LinkOffer;
use crate::mad::{Header, Mad, Status};
use crate::nodeinfo::NodeType;
use crate::packet::Packet;
use crate::port::Port;
use crate::trap::{TrapDue, Traps};
use crate::{capability, notice};

/// The way a management datagram came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// True if this host's own management layer handed it down, not the wire.
    pub local: bool,
    /// The LID of the sender.
    pub slid: Lid,
    /// The queue pair of the sender.
    pub src_qp: u32,
    /// The index of the entry of the P_Key table that matched; no meaning for queue pair 0.
    pub pkey_index: u16,
}

/// A decision on a management datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is not for the adapter: the host's own agents get it.
    Pass,
    /// It is dropped without an answer.
    Consume,
    /// It is answered with the reply.
    Reply,
}

/// The result of a management datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The decision on it.
    pub verdict: Verdict,
    /// The port that `events` concern: the one that was set, else the one it came in by.
    pub port: u8,
    /// The events that it brought about.
    pub events: Events,
    /// The port that the subnet manager took down. After the reply has left, its link goes down
    /// at both ends, and is trained again if [`PhysState::can_train`] says so for both.
    ///
    /// [`PhysState::can_train`]: crate::link::PhysState::can_train
    pub retrain: Option<u8>,
}

impl Outcome {
    fn silent(port: u8, verdict: Verdict) -> Outcome {
        Outcome {
            verdict,
            port,
            events: Events::NONE,
            retrain: None,
        }
    }

    /// Leaves the datagram to the host's agents.
    pub(crate) fn pass(port: u8) -> Outcome {
        Outcome::silent(port, Verdict::Pass)
    }

    /// Drops the datagram.
    pub(crate) fn consume(port: u8) -> Outcome {
        Outcome::silent(port, Verdict::Consume)
    }

    /// Answers with a refusal: the request with another method and status.
    pub(crate) fn refuse(
        port: u8,
        header: &Header,
        status: Status,
        request: &Mad,
        reply: &mut Mad,
    ) -> Outcome {
        *reply = *request;
        header.response(Some(status)).write(reply);
        Outcome::silent(port, Verdict::Reply)
    }

    /// Answers with the reply that was written.
    pub(crate) fn reply(port: u8, events: Events, retrain: bool) -> Outcome {
        Outcome {
            verdict: Verdict::Reply,
            port,
            events,
            retrain: retrain.then_some(port),
        }
    }
}

/// A channel adapter with its ports.
#[derive(Clone, Debug)]
pub struct Hca {
    config: Config,
    description: [u8; 64],
    ports: [Port; MAX_PORTS],
    traps: [Traps; MAX_PORTS],
}

// The driver moves it by value while it makes one.
const _: () = assert!(size_of::<Hca>() <= 2048);

impl Hca {
    /// Makes an adapter as it is at power-on, with all links down. `None` if there cannot be such an adapter.
    pub fn new(config: &Config) -> Option<Hca> {
        if !config.is_possible() {
            return None;
        }
        let [first, second] = config.port_guids;
        Some(Hca {
            config: *config,
            description: [0; 64],
            ports: [Port::new(config, 1, first), Port::new(config, 2, second)],
            traps: Default::default(),
        })
    }

    /// Takes a port to Init after training with what the other end offers.
    ///
    /// A port that is up already or disabled, or has nothing in common with the other end, stays
    /// as it is.
    pub fn link_up(&mut self, port: u8, peer: &LinkOffer) -> Events {
        self.port_mut(port)
            .map_or(Events::NONE, |port| port.link_up(peer))
    }

    /// Takes a port to Down, because the cable or the other end is gone.
    pub fn link_down(&mut self, port: u8) -> Events {
        self.port_mut(port).map_or(Events::NONE, Port::link_down)
    }

    /// Returns what a port offers at training: nothing, if there is no such port.
    pub fn offer(&self, port: u8) -> LinkOffer {
        self.port(port).map_or(LinkOffer::NONE, Port::offer)
    }

    /// Sets a GID of an Ethernet port, [`Gid::NONE`] for none. `None` if there is no such entry.
    pub fn set_gid(&mut self, port: u8, index: u8, gid: Gid) -> Option<()> {
        self.port_mut(port)?.set_gid(index, gid)
    }

    /// Notes what has become of the network device of an Ethernet port: its MTU, or `None` if it does not run or is
    /// gone. True if the link has to go down, and come up if both ends can.
    pub fn set_netdev(&mut self, port: u8, mtu: Option<u32>) -> bool {
        self.port_mut(port).is_some_and(|port| port.set_netdev(mtu))
    }

    /// Notes that a data packet, not one of subnet management, came in by a port. The first one
    /// takes an armed port to Active.
    pub fn data_arrived(&mut self, port: u8) -> Events {
        self.port_mut(port).map_or(Events::NONE, Port::data_arrived)
    }

    /// Returns a port, from 1.
    pub fn port(&self, port: u8) -> Option<&Port> {
        let index = usize::from(port).checked_sub(1)?;
        let ports = self.ports.get(..usize::from(self.config.ports))?;
        ports.get(index)
    }

    /// Returns a port, from 1.
    pub(crate) fn port_mut(&mut self, port: u8) -> Option<&mut Port> {
        let index = usize::from(port).checked_sub(1)?;
        self.ports_mut().get_mut(index)
    }

    /// Returns the ports.
    pub(crate) fn ports_mut(&mut self) -> &mut [Port] {
        let ports = self.ports.get_mut(..usize::from(self.config.ports));
        ports.unwrap_or_default()
    }

    /// Returns a port, from 1, with its traps.
    fn port_and_traps(&mut self, port: u8) -> Option<(&Port, &mut Traps)> {
        let index = usize::from(port).checked_sub(1)?;
        let ports = self.ports.get(..usize::from(self.config.ports))?;
        Some((ports.get(index)?, self.traps.get_mut(index)?))
    }

    /// Writes the trap that a port is to send now, if there is one: an error of its link (129 to
    /// 131), a change of its properties (144) or a refused key (256 to 258).
    ///
    /// `now_ms` is the time in milliseconds since some epoch; it does not go back. `mad` is
    /// written only with [`TrapDue::Send`], and goes from queue pair 0 out of the port.
    pub fn trap(&mut self, port: u8, now_ms: u64, mad: &mut Mad) -> TrapDue {
        if self.config.link_layer == LinkLayer::Ethernet {
            return TrapDue::Never;
        }
        let Some((source, traps)) = self.port_and_traps(port) else {
            return TrapDue::Never;
        };
        traps.due(now_ms, source, NodeType::ChannelAdapter, mad)
    }

    /// Takes TrapRepress. Whether it was the answer to a trap of this adapter.
    pub(crate) fn repress(&mut self, port: u8, header: &Header, mad: &Mad) -> bool {
        self.port_and_traps(port)
            .is_some_and(|(port, traps)| traps.repress(port, header, mad))
    }

    /// Notes a refused M_Key.
    pub(crate) fn note_m_key(&mut self, port: u8, slid: Lid, request: &Mad) {
        if let Some((port, traps)) = self.port_and_traps(port) {
            traps.m_key_refused(port, slid, request);
        }
    }

    /// Counts a packet that was dropped at a port. True if there may be a trap for that, a refused
    /// key or one CRC too many that is wrong, so that [`Hca::trap`] is to be asked.
    pub fn discard(&mut self, port: u8, reason: Discard, packet: &Packet) -> bool {
        if reason == Discard::Crc {
            let failed = self.port_mut(port).is_some_and(Port::count_corrupt);
            if failed {
                self.note_link_error(port, LinkError::Integrity);
            }
            return failed;
        }
        if let Some(what) = reason.counted(packet) {
            self.count(port, what);
        }
        if let Some((port, traps)) = self.port_and_traps(port) {
            match reason {
                Discard::PKey => traps.pkey_refused(port, packet),
                Discard::QKey => traps.qkey_refused(port, packet),
                _ => {}
            }
        }
        matches!(reason, Discard::PKey | Discard::QKey)
    }

    /// Lets the link of a port have an error, which is counted and a trap, so that [`Hca::trap`] is to be asked.
    pub fn fail_link(&mut self, port: u8, error: LinkError) {
        if let Some(port) = self.port_mut(port) {
            port.counters.link_failed(error);
        }
        self.note_link_error(port, error);
    }

    fn note_link_error(&mut self, number: u8, error: LinkError) {
        if let Some((port, traps)) = self.port_and_traps(number) {
            traps.link_failed(port, number, error);
        }
    }

    /// Returns the constants of the adapter.
    pub fn identity(&self) -> &Config {
        &self.config
    }

    /// Sets, then clears bits of a port's CapabilityMask, of those that tell of software
    /// ([`capability::OF_SOFTWARE`]); the others are the hardware's. No event of this adapter
    /// comes of it, but a change is a trap, so that [`Hca::trap`] is to be asked.
    pub fn set_cap_mask(&mut self, port: u8, set: u32, clear: u32) -> Events {
        let number = port;
        if let Some(port) = self.port_mut(number) {
            let before = port.cap_mask;
            port.cap_mask |= set & capability::OF_SOFTWARE;
            port.cap_mask &= !(clear & capability::OF_SOFTWARE);
            if port.cap_mask != before {
                if let Some((port, traps)) = self.port_and_traps(number) {
                    traps.properties_changed(port, 0);
                }
            }
        }
        Events::NONE
    }

    /// Sets the NodeDescription: UTF-8, filled up with zeros. A change is a trap, so that
    /// [`Hca::trap`] is to be asked.
    pub fn set_description(&mut self, text: &[u8; 64]) {
        if self.description == *text {
            return;
        }
        self.description = *text;
        for (port, traps) in self.ports.iter().zip(&mut self.traps) {
            traps.properties_changed(port, notice::NODE_DESCRIPTION);
        }
    }

    /// Returns the NodeDescription.
    pub fn description(&self) -> &[u8; 64] {
        &self.description
    }

    /// Counts a packet or an error of a port.
    pub fn count(&mut self, port: u8, what: Counted) {
        if let Some(port) = self.port_mut(port) {
            port.count(what);
        }
    }

    /// Lets time go by for the leases of management keys (section 14.2.4.2), in seconds.
    pub fn elapse(&mut self, seconds: u16) {
        for port in &mut self.ports {
            port.m_key.elapse(seconds);
        }
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_hca))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    // Not inlined: an adapter takes most of the stack that a function may have.
    #[inline(never)]
    fn has_ports(config: &Config, last: u8) {
        if let Some(hca) = &Hca::new(config) {
            for port in 0..=u8::MAX {
                let exists = (1..=last).contains(&port);
                assert_eq!(hca.port(port).is_some(), exists);
                assert_eq!((hca.offer(port).widths != 0), exists);
            }
        }
    }

    #[test]
    fn ports_count_from_one() {
        let mut one = Config::EXAMPLE;
        one.ports = 1;
        has_ports(&one, 1);
        has_ports(&Config::EXAMPLE, 2);
    }

    #[test]
    fn software_sets_its_own_capabilities_only() {
        let Some(mut hca) = Hca::new(&Config::EXAMPLE) else {
            return;
        };
        let mask = |hca: &Hca| hca.port(2).map_or(0, |port| port.cap_mask);
        let before = mask(&hca);
        assert!(hca.set_cap_mask(2, u32::MAX, 0).is_empty());
        assert_eq!(mask(&hca), before | capability::OF_SOFTWARE);
        assert!(hca.set_cap_mask(2, 0, u32::MAX).is_empty());
        assert_eq!(mask(&hca), before);
    }
}
