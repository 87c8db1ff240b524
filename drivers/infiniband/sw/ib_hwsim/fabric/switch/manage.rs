// SPDX-License-Identifier: GPL-2.0

//! Management datagrams that come to a switch: which agent gets them, and where the answer goes.

use super::directed::{self, Step};
use super::{Memory, Switch};
use crate::addr::Lid;
use crate::counters::Counted;
use crate::keys::Qpn;
use crate::mad::{class, initial_path, return_path, set_return_port};
use crate::mad::{DirectedRoute, Header, Mad};
use crate::packet::Packet;

/// The result of a management datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Managed {
    /// The port by which packet and datagram leave as they are now. `None` if there is nothing
    /// to send: then their contents have no meaning.
    pub out: Option<u8>,
    /// The port that the subnet manager took down. After the reply has left, its link goes down
    /// at both ends, and is trained again if [`PhysState::can_train`] says so for both.
    ///
    /// [`PhysState::can_train`]: crate::link::PhysState::can_train
    pub retrain: Option<u8>,
}

impl Managed {
    /// Nothing is sent.
    pub(super) const DROP: Managed = Managed {
        out: None,
        retrain: None,
    };
}

/// An answer that an agent has written.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Answer {
    pub(super) retrain: Option<u8>,
}

impl<M: Memory> Switch<M> {
    /// Takes a management datagram that came in by a port, and that [`Switch::forward`] sent
    /// here: moves it on over its directed route, or answers it. `packet` and `mad` are changed
    /// in place to what leaves.
    ///
    /// Afterwards, [`Switch::trap`] is to be asked.
    pub fn manage(&mut self, ingress: u8, packet: &mut Packet, mad: &mut Mad) -> Managed {
        if packet.len as usize != mad.len() {
            self.count(ingress, Counted::ReceiveError);
            return Managed::DROP;
        }
        if !packet.management {
            return self.manage_general(packet, mad);
        }
        if packet.dest_qp != Qpn::SMI.get()
            || packet.source_qp() != Qpn::SMI.get()
            || packet.grh.is_some()
        {
            return Managed::DROP;
        }
        match Header::parse(mad).class {
            class::SUBNET_LID => self.manage_by_lid(ingress, packet, mad),
            class::SUBNET_DIRECTED => self.manage_directed(ingress, packet, mad),
            _ => Managed::DROP,
        }
    }

    /// Answers a subnet management packet routed by LID.
    fn manage_by_lid(&mut self, ingress: u8, packet: &mut Packet, mad: &mut Mad) -> Managed {
        let Some(answer) = self.answer_smp(ingress, packet.slid, mad) else {
            return Managed::DROP;
        };
        self.reply(ingress, packet, answer)
    }

    /// Sends an answer back by LID, or to the neighbour if that has none.
    fn reply(&mut self, ingress: u8, packet: &mut Packet, answer: Answer) -> Managed {
        let neighbour = !packet.slid.is_unicast();
        packet.dlid = packet.slid;
        packet.slid = self.own_lid();
        let out = if neighbour {
            packet.dlid = Lid::PERMISSIVE;
            Some(ingress)
        } else {
            self.route(packet.dlid)
        };
        self.send(out, packet, answer)
    }

    /// Moves a packet on over its directed route (section 14.2.2), or answers it.
    fn manage_directed(&mut self, ingress: u8, packet: &mut Packet, mad: &mut Mad) -> Managed {
        let route = DirectedRoute::parse(mad);
        let by_lid = packet.dlid != Lid::PERMISSIVE;
        let own = self.own_lid();
        let Some(step) = directed::step(&route, by_lid, own) else {
            self.count(ingress, Counted::RelayError);
            return Managed::DROP;
        };
        if let Some(hop) = step.note_return {
            set_return_port(mad, hop, ingress);
        }
        DirectedRoute::set_hop_pointer(mad, step.hop_pointer);
        match step.step {
            Step::Forth(hop) => {
                let out = initial_path(mad).get(usize::from(hop)).copied();
                self.send_directed(ingress, out, packet, Answer::default())
            }
            Step::Back(hop) => {
                let out = return_path(mad).get(usize::from(hop)).copied();
                self.send_directed(ingress, out, packet, Answer::default())
            }
            Step::ByLid(lid) => {
                packet.slid = own;
                packet.dlid = lid;
                let out = self.route(lid);
                self.send(out, packet, Answer::default())
            }
            Step::Here => {
                let Some(answer) = self.answer_smp(ingress, packet.slid, mad) else {
                    return Managed::DROP;
                };
                if by_lid && route.hop_count != 0 {
                    return self.reply(ingress, packet, answer);
                }
                // The agent is the sender now: it takes the first step back.
                if route.hop_count == 0 {
                    DirectedRoute::set_hop_pointer(mad, 0);
                    packet.slid = route.slid;
                    return self.reply(ingress, packet, answer);
                }
                DirectedRoute::set_hop_pointer(mad, route.hop_count);
                let hop = usize::from(route.hop_count);
                let out = return_path(mad).get(hop).copied();
                self.send_directed(ingress, out, packet, answer)
            }
        }
    }

    /// Sends a packet over a hop of a directed route.
    fn send_directed(
        &mut self,
        ingress: u8,
        out: Option<u8>,
        packet: &mut Packet,
        answer: Answer,
    ) -> Managed {
        packet.slid = Lid::PERMISSIVE;
        packet.dlid = Lid::PERMISSIVE;
        let out = out.filter(|&out| self.external().contains(out));
        if out.is_none() {
            self.count(ingress, Counted::RelayError);
        }
        self.send(out, packet, answer)
    }

    /// Sends a packet of the switch's own by a port, if there is one and its link is up. That
    /// which the answer itself took down is up until the answer has left.
    pub(super) fn send(&mut self, out: Option<u8>, packet: &Packet, answer: Answer) -> Managed {
        let retrain = answer.retrain;
        let out = out.and_then(|out| {
            if retrain == Some(out) {
                self.count(out, packet.sent());
                Some(out)
            } else {
                self.leave_by(out, packet)
            }
        });
        Managed { out, retrain }
    }

    /// Returns the LID of port 0, the permissive one if it has none.
    pub(super) fn own_lid(&self) -> Lid {
        let own = self.port(0).map_or(Lid::NONE, |own| own.lid);
        if own == Lid::NONE {
            Lid::PERMISSIVE
        } else {
            own
        }
    }
}
