// SPDX-License-Identifier: GPL-2.0

//! The relay of a switch (section 18.2.4): by which ports a packet leaves.
//!
//! The work for a packet does not grow with the number of ports or LIDs; that for a multicast
//! packet grows with the ports that it leaves by. A port that enforces partitions looks through
//! its P_Keys.

use super::{Memory, PortMask, Switch};
use crate::addr::Lid;
use crate::counters::Counted;
use crate::keys::{PKey, Qpn};
use crate::link::PortState;
use crate::packet::Packet;

/// A decision on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forward {
    /// It leaves by this port.
    Out(u8),
    /// It is a multicast packet and leaves by these ports, at least one.
    Flood(PortMask),
    /// It is a management datagram that goes to [`Switch::manage`].
    Manage,
    /// It is dropped, and that is counted.
    Drop,
}

/// A reason to drop a packet, by what is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// Nothing is.
    Silent,
    /// Something at the port it came in by.
    At(Counted),
    /// Something at the port it was to leave by.
    Beyond(u8, Counted),
}

/// Multicast LIDs begin here.
const FIRST_GROUP: u16 = 0xc000;

impl<M: Memory> Switch<M> {
    /// Decides on a packet that came in by an external port, and counts it there and where it
    /// leaves.
    pub fn forward(&mut self, ingress: u8, packet: &Packet) -> Forward {
        self.relay(ingress, packet).unwrap_or_else(|loss| {
            self.lose(ingress, packet, loss);
            Forward::Drop
        })
    }

    fn relay(&mut self, ingress: u8, packet: &Packet) -> Result<Forward, Loss> {
        self.admit(ingress, packet)?;
        if packet.dlid.is_multicast() {
            return self.flood(ingress, packet);
        }
        if packet.dlid == Lid::PERMISSIVE {
            // Only subnet management has it.
            let error = Loss::At(Counted::ReceiveError);
            return packet.management.then_some(Forward::Manage).ok_or(error);
        }
        if self.port(0).is_some_and(|own| own.has_lid(packet.dlid)) {
            let agent = packet.management || packet.dest_qp == Qpn::GSI.get();
            return agent.then_some(Forward::Manage).ok_or(Loss::Silent);
        }
        let looping = |out: &u8| *out != ingress;
        let out = self.route(packet.dlid).filter(looping);
        let out = out.ok_or(Loss::At(Counted::RelayError))?;
        self.leave(ingress, out, packet)?;
        Ok(Forward::Out(out))
    }

    /// Checks and counts a packet at the port it came in by.
    fn admit(&mut self, ingress: u8, packet: &Packet) -> Result<(), Loss> {
        let port = self.external_mut(ingress).ok_or(Loss::Silent)?;
        let lowest = if packet.management {
            PortState::Init
        } else {
            PortState::Armed
        };
        if port.state < lowest {
            return Err(Loss::Silent);
        }
        if packet.len > port.neighbor_mtu.bytes() {
            return Err(Loss::At(Counted::ReceiveError));
        }
        port.count(packet.received());
        if !packet.management {
            port.data_arrived();
            if !port.lets_in(PKey::new(packet.pkey)) {
                return Err(Loss::At(Counted::ReceivedConstraint));
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
        let port = self.external_mut(out).ok_or(Loss::Silent)?;
        let lowest = if packet.management {
            PortState::Init
        } else {
            PortState::Active
        };
        if port.state < lowest || packet.len > port.neighbor_mtu.bytes() {
            return Err(Loss::Beyond(out, Counted::Discarded));
        }
        if !packet.management {
            if port.lanes.mapped(&mapping, packet.sl).is_none() {
                return Err(Loss::At(Counted::RelayError));
            }
            if !port.lets_out(PKey::new(packet.pkey)) {
                return Err(Loss::Beyond(out, Counted::SentConstraint));
            }
        }
        port.count(packet.sent());
        Ok(())
    }

    /// Decides on a multicast packet (section 18.2.4.3.3).
    fn flood(&mut self, ingress: u8, packet: &Packet) -> Result<Forward, Loss> {
        if packet.management {
            return Err(Loss::At(Counted::ReceiveError));
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
                return Err(Loss::At(Counted::RelayError));
            }
        }
        let members = members.without(ingress);
        let mut left = members;
        for out in members {
            if let Err(loss) = self.leave(ingress, out, packet) {
                self.lose(ingress, packet, loss);
                left = left.without(out);
            }
        }
        if left.is_empty() {
            // Each loss has been counted; a sender that is the only member loses nothing.
            return Err(Loss::Silent);
        }
        Ok(Forward::Flood(left))
    }

    /// Counts a packet that is dropped, and notes the trap for a refused P_Key.
    pub(super) fn lose(&mut self, ingress: u8, packet: &Packet, loss: Loss) {
        let (number, what) = match loss {
            Loss::Silent => return,
            Loss::At(what) => (ingress, what),
            Loss::Beyond(out, what) => (out, what),
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
