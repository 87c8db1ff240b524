// SPDX-License-Identifier: GPL-2.0

//! Changes of a port's state that do not come from the subnet manager (section 7.2.7).

use crate::event::{Event, Events};
use crate::link::{LinkOffer, PhysState, PortState, VL_CAP};
use crate::port::Port;

impl Port {
    /// Returns what this end offers at training.
    pub(crate) fn offer(&self) -> LinkOffer {
        LinkOffer {
            widths: self.widths_enabled,
            speeds: self.speeds_enabled,
            mtu: self.mtu_cap,
            vl_cap: VL_CAP,
        }
    }

    /// Takes the link up, if the port waits for that and both ends have something in common. On Ethernet, it is Active
    /// at once, and its MTU that of the network device.
    pub(crate) fn link_up(&mut self, peer: &LinkOffer) -> Events {
        let mut events = Events::NONE;
        if self.state == PortState::Down && self.phys.can_train() {
            if let Some(trained) = self.offer().negotiate(peer) {
                self.state = if self.is_ethernet() {
                    events.add_if(true, Event::PortActive);
                    PortState::Active
                } else {
                    self.neighbor_mtu = trained.mtu;
                    PortState::Init
                };
                self.phys = PhysState::LinkUp;
                self.width_active = trained.width;
                self.speed_active = trained.speed;
                self.lanes.set_operational(trained.vls);
            }
        }
        events
    }

    /// Takes the link down because the other end is gone.
    ///
    /// LID, prefix, keys and tables stay: only the subnet manager and power-on change them.
    pub(crate) fn link_down(&mut self) -> Events {
        if self.state == PortState::Down {
            return Events::NONE;
        }
        self.counters.link_downed();
        self.go_down(self.down_default)
    }

    /// Moves the port to Down.
    pub(crate) fn go_down(&mut self, phys: PhysState) -> Events {
        let mut events = Events::NONE;
        events.add_if(self.state >= PortState::Armed, Event::PortError);
        self.state = PortState::Down;
        self.phys = phys;
        events
    }

    /// Moves an armed port to Active, for the first data packet shows that the other end is
    /// (section 7.2.7).
    pub(crate) fn data_arrived(&mut self) -> Events {
        if self.state != PortState::Armed {
            return Events::NONE;
        }
        self.state = PortState::Active;
        Events::from(Event::PortActive)
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_transition))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;
    use crate::addr::{Guid, Lid};
    use crate::config::Config;

    fn port() -> Port {
        Port::new(&Config::EXAMPLE, 1, Guid::new(0x11))
    }

    #[test]
    fn training_needs_something_in_common() {
        let mut port = port();
        let peer = LinkOffer {
            speeds: 8,
            ..port.offer()
        };
        assert!(port.link_up(&peer).is_empty());
        assert_eq!(port.state(), PortState::Down);
        let peer = port.offer();
        assert!(port.link_up(&peer).is_empty());
        assert_eq!(port.state(), PortState::Init);
        assert_eq!(port.phys_state(), PhysState::LinkUp);
        assert_eq!(port.active_mtu(), port.mtu_cap);
    }

    #[test]
    fn disabled_port_does_not_train() {
        let mut port = port();
        port.phys = PhysState::Disabled;
        let peer = port.offer();
        port.link_up(&peer);
        assert_eq!(port.state(), PortState::Down);
    }

    #[test]
    fn loss_of_the_link_is_an_error_of_a_configured_port_only() {
        for (state, error) in [
            (PortState::Down, false),
            (PortState::Init, false),
            (PortState::Armed, true),
            (PortState::Active, true),
        ] {
            let mut port = port();
            port.state = state;
            port.lid = Lid::new(5);
            let events = port.link_down();
            assert_eq!(events.contains(Event::PortError), error);
            assert_eq!(events.iter().count(), usize::from(error));
            assert_eq!(port.lid(), Lid::new(5));
            assert!(port.link_down().is_empty());
        }
    }

    #[test]
    fn first_data_packet_activates_an_armed_port() {
        let mut port = port();
        for (state, after) in [
            (PortState::Down, PortState::Down),
            (PortState::Init, PortState::Init),
            (PortState::Armed, PortState::Active),
            (PortState::Active, PortState::Active),
        ] {
            port.state = state;
            let events = port.data_arrived();
            assert_eq!(port.state(), after);
            assert_eq!(events.contains(Event::PortActive), state != after);
        }
    }
}
