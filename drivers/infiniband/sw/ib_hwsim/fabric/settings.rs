// SPDX-License-Identifier: GPL-2.0

//! Set(PortInfo) (section 14.2.5.6): the settings of a port, as a subnet manager writes them.
//!
//! A field that the port does not have is ignored: those of the agent at an external port of a
//! switch, those of the link at its base port 0.

use crate::addr::Lid;
use crate::event::{Event, Events};
use crate::link::{PhysState, PortState, Step, SPEEDS, VL_CAP, WIDTHS};
use crate::mtu::Mtu;
use crate::port::{Port, Role};
use crate::portinfo::field;

/// The settings of the agent that can be refused.
#[derive(Clone, Copy, Debug)]
struct Agent {
    lid: Lid,
    lmc: u8,
    sm_lid: Lid,
    prefix: u64,
}

impl Agent {
    /// Checks the fields. With `upwards`, the port is to be armed or activated.
    fn checked(port: &Port, data: &[u8], upwards: bool) -> Option<Agent> {
        let address = |wanted, present| checked_lid(wanted, present, upwards);
        let lid = address(field::LID.u16(data), port.lid)?;
        let lmc = field::LMC.u8(data);
        let last = lid.get() | !u16::MAX.wrapping_shl(u32::from(lmc));
        let aligned = lid.base(lmc) == lid && (lid == Lid::NONE || Lid::new(last).is_unicast());
        // A base port 0 has one LID.
        let single = port.role == Role::Management && lmc != 0;
        let prefix = field::GID_PREFIX.u64(data);
        // With such a prefix the port's GIDs would be those of groups.
        let multicast_prefix = prefix >> 56 == 0xff;
        (aligned && !single && !multicast_prefix).then_some(Agent {
            lid,
            lmc,
            sm_lid: address(field::MASTER_SM_LID.u16(data), port.sm_lid)?,
            prefix,
        })
    }

    /// Carries out the settings, and those that cannot be refused.
    fn apply(&self, port: &mut Port, data: &[u8]) -> Events {
        let sm_sl = field::MASTER_SM_SL.u8(data);
        let mut events = Events::NONE;
        events.add_if(
            (self.lid, self.lmc) != (port.lid, port.lmc),
            Event::LidChange,
        );
        events.add_if(
            (self.sm_lid, sm_sl) != (port.sm_lid, port.sm_sl),
            Event::SmChange,
        );
        events.add_if(self.prefix != port.prefix, Event::GidChange);
        let reregister = field::CLIENT_REREGISTER.u8(data) != 0;
        events.add_if(reregister, Event::ClientReregister);

        port.lid = self.lid;
        port.lmc = self.lmc;
        port.sm_lid = self.sm_lid;
        port.sm_sl = sm_sl;
        port.prefix = self.prefix;
        port.subnet_timeout = field::SUBNET_TIMEOUT.u8(data);
        port.m_key.key = field::M_KEY.u64(data);
        port.m_key.protection = field::M_KEY_PROTECT_BITS.u8(data);
        port.m_key.lease_period = field::M_KEY_LEASE_PERIOD.u16(data);
        // Only zero is written to the counters of violations.
        for (counter, field) in [
            (&mut port.m_key.violations, field::M_KEY_VIOLATIONS),
            (&mut port.qkey_violations, field::Q_KEY_VIOLATIONS),
        ] {
            if field.u16(data) == 0 {
                *counter = 0;
            }
        }
        events
    }
}

/// The settings of the link that can be refused.
#[derive(Clone, Copy, Debug)]
struct Link {
    neighbor_mtu: Mtu,
    operational_vls: u8,
    widths_enabled: u8,
    speeds_enabled: u8,
    down_default: PhysState,
}

impl Link {
    /// Checks the fields, but not PortState and PortPhysicalState.
    fn checked(port: &Port, data: &[u8]) -> Option<Link> {
        let down_default = match field::LINK_DOWN_DEFAULT_STATE.u8(data) {
            0 => port.down_default,
            1 => PhysState::Sleep,
            2 => PhysState::Polling,
            _ => return None,
        };
        let neighbor_mtu = Mtu::from_code(field::NEIGHBOR_MTU.u8(data))?;
        let operational_vls = match field::OPERATIONAL_VLS.u8(data) {
            0 => port.lanes.operational(),
            vls => vls,
        };
        let valid = neighbor_mtu <= port.mtu_cap && operational_vls <= VL_CAP;
        valid.then_some(Link {
            neighbor_mtu,
            operational_vls,
            widths_enabled: enabled(
                field::LINK_WIDTH_ENABLED.u8(data),
                port.widths_enabled,
                0xff,
                WIDTHS,
            )?,
            speeds_enabled: enabled(
                field::LINK_SPEED_ENABLED.u8(data),
                port.speeds_enabled,
                0xf,
                SPEEDS,
            )?,
            down_default,
        })
    }

    /// Carries out the settings, and those that cannot be refused.
    fn apply(&self, port: &mut Port, data: &[u8]) {
        port.neighbor_mtu = self.neighbor_mtu;
        port.lanes.set_operational(self.operational_vls);
        port.lanes.high_limit = field::VL_HIGH_LIMIT.u8(data);
        port.widths_enabled = self.widths_enabled;
        port.speeds_enabled = self.speeds_enabled;
        port.down_default = self.down_default;
        port.stall_and_life = field::STALL_AND_LIFE.u8(data);
        port.error_thresholds = field::ERROR_THRESHOLDS.u8(data);
        if port.role == Role::External {
            port.enforcement = field::ENFORCEMENT.u8(data) & (Port::INBOUND | Port::OUTBOUND);
        }
    }
}

/// The settings of Set(PortInfo) that can be refused, after none was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checked {
    agent: Option<Agent>,
    link: Option<Link>,
    step: Step,
}

impl Checked {
    /// Checks Set(PortInfo) against the port. `None` if a field has a value that it cannot take.
    pub(crate) fn new(port: &Port, data: &[u8]) -> Option<Checked> {
        let (link, step) = if port.role.has_link() {
            let link = Link::checked(port, data)?;
            let step = Step::requested(
                port.state,
                port.phys,
                link.down_default,
                field::PORT_STATE.u8(data),
                field::PORT_PHYSICAL_STATE.u8(data),
            )?;
            (Some(link), step)
        } else {
            (None, Step::Stay)
        };
        let upwards = matches!(step, Step::Arm | Step::Activate);
        let agent = if port.role.has_agent() {
            Some(Agent::checked(port, data, upwards)?)
        } else {
            None
        };
        Some(Checked { agent, link, step })
    }

    /// Carries out Set(PortInfo). Returns the events, and whether the link is to be trained anew
    /// or to stay down.
    pub(crate) fn apply(&self, port: &mut Port, data: &[u8]) -> (Events, bool) {
        let agent = self.agent.map(|agent| agent.apply(port, data));
        let mut events = agent.unwrap_or_default();
        let enabled = (port.widths_enabled, port.speeds_enabled);
        if let Some(link) = self.link {
            link.apply(port, data);
        }
        // A port that found nothing in common with the other end tries again.
        let polls = port.state == PortState::Down
            && port.phys.can_train()
            && enabled != (port.widths_enabled, port.speeds_enabled);
        if field::P_KEY_VIOLATIONS.u16(data) == 0 {
            port.pkey_violations = 0;
        }
        match self.step {
            Step::Stay => {}
            Step::Down(phys) => {
                let error = port.go_down(phys).contains(Event::PortError);
                events.add_if(error, Event::PortError);
            }
            Step::Arm => port.state = PortState::Armed,
            Step::Activate => {
                port.state = PortState::Active;
                events.add_if(true, Event::PortActive);
            }
        }
        (events, polls || matches!(self.step, Step::Down(_)))
    }
}

/// Checks a LID. None (zero) is accepted from a port that has none, so that tools can write back
/// what they have read, but not on the way up.
fn checked_lid(wanted: u16, present: Lid, upwards: bool) -> Option<Lid> {
    let wanted = Lid::new(wanted);
    let unchanged = wanted == Lid::NONE && present == Lid::NONE && !upwards;
    (wanted.is_unicast() || unchanged).then_some(wanted)
}

/// Checks a mask of enabled widths or speeds: zero changes nothing, `all` enables what is
/// supported, and all else has to be supported.
fn enabled(wanted: u8, present: u8, all: u8, supported: u8) -> Option<u8> {
    match wanted {
        0 => Some(present),
        wanted if wanted == all => Some(supported),
        wanted => (wanted & !supported == 0).then_some(wanted),
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_settings))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;
    use crate::addr::{Gid, Guid};
    use crate::config::Config;
    use crate::config::SwitchConfig;
    use crate::portinfo::read;

    /// Makes a port with a trained link and the PortInfo that configures it.
    fn configured() -> (Port, [u8; 64]) {
        let mut port = Port::new(&Config::EXAMPLE, 1, Guid::new(0x11));
        let peer = port.offer();
        port.link_up(&peer);
        let mut data = [0; 64];
        read(&port, 1, 0, &mut data);
        field::LID.put(&mut data, 4u16);
        field::MASTER_SM_LID.put(&mut data, 1u16);
        field::PORT_STATE.put(&mut data, 0u8);
        field::PORT_PHYSICAL_STATE.put(&mut data, 0u8);
        (port, data)
    }

    /// Section 14.2.5.6: values that a field cannot take, one by one.
    #[test]
    fn invalid_fields() {
        let (port, good) = configured();
        assert!(Checked::new(&port, &good).is_some());
        let cases: [(_, u64); 17] = [
            (field::LID, 0xc000),
            (field::LID, 0xffff),
            (field::MASTER_SM_LID, 0xc000),
            (field::MASTER_SM_LID, 0xffff),
            (field::LMC, 3),
            (field::NEIGHBOR_MTU, 0),
            (field::NEIGHBOR_MTU, 6),
            (field::NEIGHBOR_MTU, 15),
            (field::OPERATIONAL_VLS, 5),
            (field::LINK_WIDTH_ENABLED, 4),
            (field::LINK_WIDTH_ENABLED, 0xfe),
            (field::LINK_SPEED_ENABLED, 8),
            (field::LINK_DOWN_DEFAULT_STATE, 3),
            (field::GID_PREFIX, 0xff12 << 48),
            (field::PORT_STATE, 2),
            (field::PORT_STATE, 4),
            (field::PORT_PHYSICAL_STATE, 5),
        ];
        for (field, value) in cases {
            let mut bad = good;
            field.put(&mut bad, value);
            assert!(Checked::new(&port, &bad).is_none());
        }
    }

    #[test]
    fn lid_zero_only_where_there_was_none_and_not_upwards() {
        let (mut port, good) = configured();
        for field in [field::LID, field::MASTER_SM_LID] {
            let mut data = good;
            field.put(&mut data, 0u16);
            assert!(Checked::new(&port, &data).is_some());
            field::PORT_STATE.put(&mut data, 3u8);
            assert!(Checked::new(&port, &data).is_none());
        }
        port.lid = Lid::new(4);
        let mut data = good;
        field::LID.put(&mut data, 0u16);
        assert!(Checked::new(&port, &data).is_none());
    }

    #[test]
    fn mtu_stays_within_the_ports() {
        let (mut port, mut data) = configured();
        port.mtu_cap = Mtu::B1024;
        for (code, valid) in [(1, true), (3, true), (4, false), (5, false)] {
            field::NEIGHBOR_MTU.put(&mut data, code as u8);
            assert_eq!(Checked::new(&port, &data).is_some(), valid);
        }
    }

    #[test]
    fn a_range_of_lids_stays_below_multicast() {
        let (port, mut data) = configured();
        field::LMC.put(&mut data, 7u8);
        field::LID.put(&mut data, 0xbf80u16);
        assert!(Checked::new(&port, &data).is_some());
        field::LID.put(&mut data, 0xbfc0u16);
        assert!(Checked::new(&port, &data).is_none());
    }

    #[test]
    fn masks_have_words_for_nothing_and_all() {
        let (mut port, mut data) = configured();
        port.widths_enabled = 1;
        port.speeds_enabled = 1;
        for (width, speed, expected) in [(0, 0, (1, 1)), (0xff, 0xf, (3, 7)), (2, 5, (2, 5))] {
            field::LINK_WIDTH_ENABLED.put(&mut data, width as u8);
            field::LINK_SPEED_ENABLED.put(&mut data, speed as u8);
            let checked = Checked::new(&port, &data);
            let link = checked.and_then(|checked| checked.link);
            let enabled = link.map(|link| (link.widths_enabled, link.speeds_enabled));
            assert_eq!(enabled, Some(expected));
        }
    }

    #[test]
    fn only_zero_clears_violations() {
        let (mut port, mut data) = configured();
        port.pkey_violations = 5;
        port.qkey_violations = 6;
        field::P_KEY_VIOLATIONS.put(&mut data, 9u16);
        Checked::new(&port, &data).map(|checked| checked.apply(&mut port, &data));
        assert_eq!((port.pkey_violations, port.qkey_violations), (5, 0));
    }

    #[test]
    fn the_same_again_is_no_event() {
        let (mut port, data) = configured();
        let mut events = [Events::NONE; 2];
        for events in &mut events {
            if let Some(checked) = Checked::new(&port, &data) {
                *events = checked.apply(&mut port, &data).0;
            }
        }
        assert!(events[0].contains(Event::LidChange) && events[0].contains(Event::SmChange));
        assert!(events[1].is_empty());
    }

    /// Writes all ones, with a few good values, to a port.
    fn flood(port: &mut Port, good: &[(crate::bits::Field, u64)]) -> bool {
        let mut data = [0xff; 64];
        for &(field, value) in good {
            field.put(&mut data, value);
        }
        let checked = Checked::new(port, &data);
        checked.map(|checked| checked.apply(port, &data)).is_some()
    }

    #[test]
    fn external_port_has_no_addresses() {
        let mut port = Port::of_switch(&SwitchConfig::EXAMPLE, 1);
        let link = [
            (field::NEIGHBOR_MTU, 4),
            (field::OPERATIONAL_VLS, 2),
            (field::LINK_DOWN_DEFAULT_STATE, 1),
            (field::PORT_STATE, 0),
            (field::PORT_PHYSICAL_STATE, 0),
        ];
        assert!(flood(&mut port, &link));
        assert_eq!((port.lid, port.sm_lid, port.lmc), (Lid::NONE, Lid::NONE, 0));
        assert_eq!(port.m_key.key, 0);
        assert_eq!(port.neighbor_mtu, Mtu::B2048);
        assert_eq!(port.enforcement, 0b1100);
        let mut shown = [0; 64];
        read(&port, 3, 0, &mut shown);
        assert_eq!(shown[..28], [0; 28]);
        assert_eq!((shown[28], shown[43]), (3, 0x2c));
    }

    #[test]
    fn management_port_has_no_link() {
        let mut port = Port::of_switch(&SwitchConfig::EXAMPLE, 0);
        let agent = [
            (field::LID, 4),
            (field::MASTER_SM_LID, 1),
            (field::LMC, 0),
            (field::GID_PREFIX, Gid::DEFAULT_PREFIX),
        ];
        assert!(flood(&mut port, &agent));
        assert_eq!((port.lid, port.sm_lid), (Lid::new(4), Lid::new(1)));
        assert_eq!(port.state, PortState::Active);
        assert_eq!(port.neighbor_mtu, Mtu::B4096);
        assert_eq!(port.enforcement, 0);
        let mut wrong = agent;
        wrong[2].1 = 1;
        assert!(!flood(&mut port, &wrong));
    }
}
