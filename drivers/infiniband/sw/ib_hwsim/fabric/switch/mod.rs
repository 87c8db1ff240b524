// SPDX-License-Identifier: GPL-2.0

//! A switch (chapter 18): ports 1 to 64 with a link each, tables by which packets leave, and the
//! management port 0, at which a subnet manager finds the switch.
//!
//! The driver carries packets. It asks [`Switch::forward`] of each that comes in by a port, and
//! gives those that are for management to [`Switch::manage`], which also moves packets of
//! directed routes on. All counters are counted here.
//!
//! Port 0 is a base one: it has one LID, its link is always Active, no host is behind it, and of
//! general services it has performance management only. It is a member of no multicast group;
//! its bit in MulticastForwardingTable reads as zero. Its traps are 128 (a link has come up or
//! gone), 144 (NodeDescription; its CapabilityMask never changes), 256 to 258 (keys refused at
//! port 0) and 259 (P_Keys refused at an external port, for the switch can enforce partitions).
//!
//! Forwarding is linear. There is no RandomForwardingTable; DefaultPort, which belongs to it, is
//! stored only.

mod directed;
mod general;
mod info;
mod manage;
mod mask;
mod memory;
mod relay;
mod sma;
mod tables;

use crate::config::SwitchConfig;
use crate::counters::{Counted, LinkError};
use crate::link::LinkOffer;
use crate::mad::Mad;
use crate::nodeinfo::NodeType;
use crate::notice;
use crate::port::{Port, Role};
use crate::trap::{TrapDue, Traps};
use info::SwitchInfo;
use memory::tables_fit;

pub use manage::Managed;
pub use mask::PortMask;
pub use memory::{Mapping, Memory, MAX_GROUPS, MAX_ROUTES};
pub use relay::Forward;

/// The entry of a linear forwarding table that stands for no port.
const NO_PORT: u8 = 0xff;

/// A switch with its ports and tables.
pub struct Switch<M: Memory> {
    config: SwitchConfig,
    description: [u8; 64],
    info: SwitchInfo,
    traps: Traps,
    ports: M::Ports,
    routes: M::Routes,
    groups: M::Groups,
    lanes: M::Lanes,
}

impl<M: Memory> Switch<M> {
    /// Makes a switch as it is at power-on, with all links down and no routes.
    ///
    /// `ports` are those of [`Switch::port_template`], in order; the other tables need the right
    /// lengths ([`Memory`]) and are written here. `None` if they have not, or there cannot be such a switch.
    pub fn new(
        config: &SwitchConfig,
        ports: M::Ports,
        mut routes: M::Routes,
        mut groups: M::Groups,
        mut lanes: M::Lanes,
    ) -> Option<Switch<M>> {
        if !config.is_possible() || !tables_fit::<M>(config, &ports, &routes, &groups, &lanes) {
            return None;
        }
        routes.fill(NO_PORT);
        groups.fill(0);
        lanes.fill([0; 8]);
        Some(Switch {
            config: *config,
            description: [0; 64],
            info: SwitchInfo::default(),
            traps: Traps::default(),
            ports,
            routes,
            groups,
            lanes,
        })
    }

    /// Makes a port for [`Memory::Ports`]: number 0 is the management port.
    pub fn port_template(config: &SwitchConfig, number: u8) -> Port {
        Port::of_switch(config, number)
    }

    /// Takes an external port to Init after training with what the other end offers.
    ///
    /// A port that is up already or disabled, or has nothing in common with the other end, stays
    /// as it is. A change is a trap, so that [`Switch::trap`] is to be asked.
    pub fn link_up(&mut self, port: u8, peer: &LinkOffer) {
        self.change_link(port, |port| port.link_up(peer));
    }

    /// Takes an external port to Down, because the cable or the other end is gone.
    ///
    /// A change is a trap, so that [`Switch::trap`] is to be asked.
    pub fn link_down(&mut self, port: u8) {
        self.change_link(port, Port::link_down);
    }

    /// Lets a link change its state, and notes that for the subnet manager. Changes that it
    /// asked for itself do not come this way.
    fn change_link(&mut self, port: u8, change: impl FnOnce(&mut Port) -> crate::Events) {
        let Some(port) = self.external_mut(port) else {
            return;
        };
        let before = port.state;
        change(port);
        if port.state != before {
            self.info.port_state_change = true;
            if let Some(own) = self.ports.first() {
                self.traps.link_changed(own);
            }
        }
    }

    /// Returns what an external port offers at training: nothing, if there is no such port.
    pub fn offer(&self, port: u8) -> LinkOffer {
        let external = self.port(port).filter(|port| port.role == Role::External);
        external.map_or(LinkOffer::NONE, Port::offer)
    }

    /// Returns a port: 0 is the management port.
    #[inline]
    pub fn port(&self, port: u8) -> Option<&Port> {
        self.ports.get(usize::from(port))
    }

    #[inline]
    fn port_mut(&mut self, port: u8) -> Option<&mut Port> {
        self.ports.get_mut(usize::from(port))
    }

    /// Returns an external port.
    #[inline]
    fn external_mut(&mut self, port: u8) -> Option<&mut Port> {
        self.port_mut(port)
            .filter(|port| port.role == Role::External)
    }

    /// Returns the set of all external ports.
    fn external(&self) -> PortMask {
        PortMask::up_to(self.config.ports)
    }

    /// Returns the constants of the switch.
    pub fn identity(&self) -> &SwitchConfig {
        &self.config
    }

    /// Sets the NodeDescription: UTF-8, filled up with zeros. A change is a trap, so that
    /// [`Switch::trap`] is to be asked.
    pub fn set_description(&mut self, text: &[u8; 64]) {
        if self.description != *text {
            self.description = *text;
            if let Some(own) = self.ports.first() {
                self.traps.properties_changed(own, notice::NODE_DESCRIPTION);
            }
        }
    }

    /// Returns the NodeDescription.
    pub fn description(&self) -> &[u8; 64] {
        &self.description
    }

    /// Counts something at a port that [`Switch::forward`] and [`Switch::manage`] do not know
    /// of, such as a packet that found a queue full.
    pub fn count(&mut self, port: u8, what: Counted) {
        if let Some(port) = self.port_mut(port) {
            port.count(what);
        }
    }

    /// Counts a packet that came to an external port with a wrong CRC. True if that is one too many:
    /// a trap, so that [`Switch::trap`] is to be asked.
    pub fn count_corrupt(&mut self, port: u8) -> bool {
        let failed = self.external_mut(port).is_some_and(Port::count_corrupt);
        if let (true, Some(own)) = (failed, self.ports.first()) {
            self.traps.link_failed(own, port, LinkError::Integrity);
        }
        failed
    }

    /// Lets time go by for the lease of the management key (section 14.2.4.2), in seconds.
    pub fn elapse(&mut self, seconds: u16) {
        if let Some(own) = self.ports.first_mut() {
            own.m_key.elapse(seconds);
        }
    }

    /// Writes the trap that is to leave now, if there is one.
    ///
    /// `now_ms` is the time in milliseconds since some epoch; it does not go back. `mad` has no
    /// meaning unless the answer is [`TrapDue::Send`]. A trap that finds no way to the subnet
    /// manager is tried again later, like one that got lost.
    pub fn trap(&mut self, now_ms: u64, mad: &mut Mad) -> TrapDue {
        loop {
            let Some(own) = self.ports.first() else {
                return TrapDue::Never;
            };
            match self.traps.due(now_ms, own, NodeType::Switch, mad) {
                TrapDue::Send { packet, .. } => {
                    if let Some(out) = self.leave_by_lid(&packet) {
                        return TrapDue::Send { out, packet };
                    }
                }
                due => return due,
            }
        }
    }
}
