// SPDX-License-Identifier: GPL-2.0

//! The relay of a switch (section 18.2.4): by which ports a packet leaves.
//!
//! The work for a packet does not grow with the number of ports or LIDs; that for a multicast
//! packet grows with the ports that it leaves by. A port that enforces partitions looks through
//! its P_Keys.

use super::{Memory, PortMask, Switch};
use crate::addr::Lid;
use crate::counters::Counted;
use crate::discard::Discard;
use crate::keys::{PKey, Qpn};
use crate::link::PortState;
use crate::packet::Packet;

/// A decision on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forward {
    /// The packet leaves by this port.
    Out(u8),
    /// The packet is a multicast one and leaves by these ports, at least one.
    Flood(PortMask),
    /// The packet is a management datagram that goes to [`Switch::manage`].
    Manage,
    /// The packet is dropped, and that is counted.
    Drop,
}

/// A reason to drop a packet, and what is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// Nothing is.
    Silent(Discard),
    /// Something at the port it came in by.
    At(Counted, Discard),
    /// Something at the port it was to leave by.
    Beyond(u8, Counted, Discard),
    /// Already counted, for each port that it was to leave by.
    Counted,
}

/// Multicast LIDs begin here.
const FIRST_GROUP: u16 = 0xc000;

impl<M: Memory> Switch<M> {
    /// Decides on a packet that came in by an external port, and counts it there and where it
    /// leaves.
    pub fn forward(&mut self, ingress: u8, packet: &Packet) -> Forward {
        self.forward_by(ingress, packet, |_, out| out, |_, _| {})
    }

    /// Does what [`Switch::forward`] does. `choose` gets the port of the forwarding table, and returns
    /// that by which a unicast packet leaves: one that leads to the same neighbour, lest packets go
    /// round in circles, and not the one that the packet came in by. `dropped` is told of each port
    /// that drops the packet: the one that it came in by, or those that it was to leave by. Where that
    /// is not called and the packet is dropped, its sender is the only member of a group.
    pub fn forward_by(
        &mut self,
        ingress: u8,
        packet: &Packet,
        choose: impl FnOnce(&Self, u8) -> u8,
        mut dropped: impl FnMut(u8, Discard),
    ) -> Forward {
        self.relay(ingress, packet, choose, &mut dropped)
            .unwrap_or_else(|loss| {
                if let Some((port, reason)) = self.lose(ingress, packet, loss) {
                    dropped(port, reason);
                }
                Forward::Drop
            })
    }

    /// Returns those of the ports whose links are Active.
    pub fn active(&self, ports: PortMask) -> PortMask {
        let is_active = |&number: &u8| {
            let port = self.port(number);
            port.is_some_and(|port| port.state == PortState::Active)
        };
        let bits = ports
            .filter(is_active)
            .map(|port| PortMask::of(port).bits());
        PortMask::new(bits.fold(0, |all, bit| all | bit))
    }

    fn relay(
        &mut self,
        ingress: u8,
        packet: &Packet,
        choose: impl FnOnce(&Self, u8) -> u8,
        dropped: &mut impl FnMut(u8, Discard),
    ) -> Result<Forward, Loss> {
        self.admit(ingress, packet)?;
        if packet.dlid.is_multicast() {
            return self.flood(ingress, packet, dropped);
        }
        if packet.dlid == Lid::PERMISSIVE {
            // Only subnet management has it.
            let error = Loss::At(Counted::ReceiveError, Discard::NotForUs);
            return packet.management.then_some(Forward::Manage).ok_or(error);
        }
        if self.port(0).is_some_and(|own| own.has_lid(packet.dlid)) {
            let agent = packet.management || packet.dest_qp == Qpn::GSI.get();
            let error = Loss::Silent(Discard::NoQp);
            return agent.then_some(Forward::Manage).ok_or(error);
        }
        let looping = |out: &u8| *out != ingress;
        let out = self.route(packet.dlid).filter(looping);
        let error = Loss::At(Counted::RelayError, Discard::NoRoute);
        let out = choose(self, out.ok_or(error)?);
        self.leave(ingress, out, packet)?;
        Ok(Forward::Out(out))
    }

    /// Checks and counts a packet at the port it came in by.
    fn admit(&mut self, ingress: u8, packet: &Packet) -> Result<(), Loss> {
        let down = Loss::Silent(Discard::PortDown);
        let port = self.external_mut(ingress).ok_or(down)?;
        if !port.state.receives(packet.management) {
            return Err(down);
        }
        if packet.len > port.neighbor_mtu.bytes() {
            return Err(Loss::At(Counted::ReceiveError, Discard::TooLong));
        }
        port.count(packet.received());
        if !packet.management {
            port.data_arrived();
            if !port.lets_in(PKey::new(packet.pkey)) {
                return Err(Loss::At(Counted::ReceivedConstraint, Discard::PKey));
            }
        }
        Ok(())
    }

    /// Returns the external port of a LID.
    #[inline]
    pub(super) fn route(&self, lid: Lid) -> Option<u8> {
        if lid == Lid::NONE || lid > self.info.top {
            return None;
        }
        let out = *self.routes.get(usize::from(lid.get()))?;
        (out != 0 && out <= self.config.ports).then_some(out)
    }

    /// Checks and counts a packet at the port it leaves by. `ingress` is 0 for the switch's own.
    pub(super) fn leave(&mut self, ingress: u8, out: u8, packet: &Packet) -> Result<(), Loss> {
        let row = usize::from(ingress).wrapping_mul(self.config.port_count());
        let mapping = self.lanes.get(row.wrapping_add(usize::from(out)));
        let mapping = mapping.copied().unwrap_or_default();
        let down = Discard::PortDown;
        let port = self.external_mut(out).ok_or(Loss::Silent(down))?;
        if !port.state.sends(packet.management) {
            return Err(Loss::Beyond(out, Counted::Discarded, down));
        }
        if packet.len > port.neighbor_mtu.bytes() {
            return Err(Loss::Beyond(out, Counted::Discarded, Discard::TooLong));
        }
        if !packet.management {
            if port.lanes.mapped(&mapping, packet.sl).is_none() {
                return Err(Loss::At(Counted::RelayError, Discard::NoLane));
            }
            if !port.lets_out(PKey::new(packet.pkey)) {
                return Err(Loss::Beyond(out, Counted::SentConstraint, Discard::PKey));
            }
        }
        port.count(packet.sent());
        Ok(())
    }

    /// Decides on a multicast packet (section 18.2.4.3.3).
    fn flood(
        &mut self,
        ingress: u8,
        packet: &Packet,
        dropped: &mut impl FnMut(u8, Discard),
    ) -> Result<Forward, Loss> {
        if packet.management {
            return Err(Loss::At(Counted::ReceiveError, Discard::NotForUs));
        }
        let index = packet.dlid.get().wrapping_sub(FIRST_GROUP);
        let listed = self.groups.get(usize::from(index)).copied();
        let mut members = PortMask::new(listed.unwrap_or(0));
        if members.is_empty() {
            let default = if ingress == self.info.primary {
                self.info.not_primary
            } else {
                self.info.primary
            };
            members = PortMask::new(PortMask::of(default).bits() & self.external().bits());
            if members.without(ingress).is_empty() {
                return Err(Loss::At(Counted::RelayError, Discard::NoRoute));
            }
        }
        let members = members.without(ingress);
        let mut left = members;
        for out in members {
            if let Err(loss) = self.leave(ingress, out, packet) {
                if let Some((port, reason)) = self.lose(ingress, packet, loss) {
                    dropped(port, reason);
                }
                left = left.without(out);
            }
        }
        if left.is_empty() {
            // Each loss has been counted; a sender that is the only member loses nothing.
            return Err(Loss::Counted);
        }
        Ok(Forward::Flood(left))
    }

    /// Counts a packet that is dropped, and notes the trap for a refused P_Key. Returns the port that
    /// dropped it, and why.
    pub(super) fn lose(
        &mut self,
        ingress: u8,
        packet: &Packet,
        loss: Loss,
    ) -> Option<(u8, Discard)> {
        let (number, what, reason) = match loss {
            Loss::Counted => return None,
            Loss::Silent(reason) => return Some((ingress, reason)),
            Loss::At(what, reason) => (ingress, what, reason),
            Loss::Beyond(out, what, reason) => (out, what, reason),
        };
        let refused = matches!(what, Counted::SentConstraint | Counted::ReceivedConstraint);
        if let Some(port) = self.port_mut(number) {
            port.count(what);
            if refused {
                port.count(Counted::PKeyViolation);
            }
        }
        if let Some(own) = self.ports.first().filter(|_| refused) {
            self.traps.relay_refused(own, number, packet);
        }
        Some((number, reason))
    }

    /// Checks and counts a packet of the switch's own, which leaves by the port that leads to
    /// its LID: the one that a request came in by, too. Returns the port.
    pub(super) fn leave_by_lid(&mut self, packet: &Packet) -> Option<u8> {
        let out = self.route(packet.dlid)?;
        self.leave_by(out, packet)
    }

    /// Checks and counts a packet of the switch's own at a port. Returns the port.
    pub(super) fn leave_by(&mut self, out: u8, packet: &Packet) -> Option<u8> {
        match self.leave(0, out, packet) {
            Ok(()) => Some(out),
            Err(loss) => {
                self.lose(0, packet, loss);
                None
            }
        }
    }
}
