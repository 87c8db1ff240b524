// SPDX-License-Identifier: GPL-2.0

//! PortInfo (section 14.2.5.6): the settings of a port, as a subnet manager reads and writes them.

use crate::addr::Lid;
use crate::event::{Event, Events};
use crate::link::{PhysState, PortState, Step, SPEEDS, VL_CAP, WIDTHS};
use crate::mtu::Mtu;
use crate::port::Port;
use crate::tables::ARBITRATION_ENTRIES;

/// The fields, by the names of the specification.
mod field {
    use crate::bits::Field;

    pub(super) const M_KEY: Field = Field::bytes(0, 8);
    pub(super) const GID_PREFIX: Field = Field::bytes(8, 8);
    pub(super) const LID: Field = Field::bytes(16, 2);
    pub(super) const MASTER_SM_LID: Field = Field::bytes(18, 2);
    pub(super) const CAPABILITY_MASK: Field = Field::bytes(20, 4);
    pub(super) const M_KEY_LEASE_PERIOD: Field = Field::bytes(26, 2);
    pub(super) const LOCAL_PORT_NUM: Field = Field::bytes(28, 1);
    pub(super) const LINK_WIDTH_ENABLED: Field = Field::bytes(29, 1);
    pub(super) const LINK_WIDTH_SUPPORTED: Field = Field::bytes(30, 1);
    pub(super) const LINK_WIDTH_ACTIVE: Field = Field::bytes(31, 1);
    pub(super) const LINK_SPEED_SUPPORTED: Field = Field::bits(32, 4, 4);
    pub(super) const PORT_STATE: Field = Field::bits(32, 0, 4);
    pub(super) const PORT_PHYSICAL_STATE: Field = Field::bits(33, 4, 4);
    pub(super) const LINK_DOWN_DEFAULT_STATE: Field = Field::bits(33, 0, 4);
    pub(super) const M_KEY_PROTECT_BITS: Field = Field::bits(34, 6, 2);
    pub(super) const LMC: Field = Field::bits(34, 0, 3);
    pub(super) const LINK_SPEED_ACTIVE: Field = Field::bits(35, 4, 4);
    pub(super) const LINK_SPEED_ENABLED: Field = Field::bits(35, 0, 4);
    pub(super) const NEIGHBOR_MTU: Field = Field::bits(36, 4, 4);
    pub(super) const MASTER_SM_SL: Field = Field::bits(36, 0, 4);
    pub(super) const VL_CAP: Field = Field::bits(37, 4, 4);
    pub(super) const VL_HIGH_LIMIT: Field = Field::bytes(38, 1);
    pub(super) const VL_ARBITRATION_HIGH_CAP: Field = Field::bytes(39, 1);
    pub(super) const VL_ARBITRATION_LOW_CAP: Field = Field::bytes(40, 1);
    pub(super) const MTU_CAP: Field = Field::bits(41, 0, 4);
    /// VLStallCount and HOQLife.
    pub(super) const STALL_AND_LIFE: Field = Field::bytes(42, 1);
    pub(super) const OPERATIONAL_VLS: Field = Field::bits(43, 4, 4);
    pub(super) const M_KEY_VIOLATIONS: Field = Field::bytes(44, 2);
    pub(super) const P_KEY_VIOLATIONS: Field = Field::bytes(46, 2);
    pub(super) const Q_KEY_VIOLATIONS: Field = Field::bytes(48, 2);
    pub(super) const GUID_CAP: Field = Field::bytes(50, 1);
    pub(super) const CLIENT_REREGISTER: Field = Field::bits(51, 7, 1);
    pub(super) const SUBNET_TIMEOUT: Field = Field::bits(51, 0, 5);
    pub(super) const RESP_TIME_VALUE: Field = Field::bits(52, 0, 5);
    /// LocalPhyErrors and OverrunErrors.
    pub(super) const ERROR_THRESHOLDS: Field = Field::bytes(53, 1);
}

/// The time that the agent may take to answer: 4.096 µs times two to this power, 0.27 s.
pub(crate) const RESPONSE_TIME: u8 = 16;

/// Writes PortInfo of a port into `data`, which is zero before.
///
/// `ingress` is the port that the request came in by. `m_key` is the management key as the
/// requester may see it.
pub(crate) fn read(port: &Port, ingress: u8, m_key: u64, data: &mut [u8]) {
    field::M_KEY.put(data, m_key);
    field::GID_PREFIX.put(data, port.prefix);
    field::LID.put(data, port.lid.get());
    field::MASTER_SM_LID.put(data, port.sm_lid.get());
    field::CAPABILITY_MASK.put(data, port.cap_mask);
    field::M_KEY_LEASE_PERIOD.put(data, port.m_key.lease_period);
    field::LOCAL_PORT_NUM.put(data, ingress);
    field::LINK_WIDTH_ENABLED.put(data, port.widths_enabled);
    field::LINK_WIDTH_SUPPORTED.put(data, WIDTHS);
    field::LINK_WIDTH_ACTIVE.put(data, port.width_active);
    field::LINK_SPEED_SUPPORTED.put(data, SPEEDS);
    field::PORT_STATE.put(data, port.state.code());
    field::PORT_PHYSICAL_STATE.put(data, port.phys.code());
    field::LINK_DOWN_DEFAULT_STATE.put(data, port.down_default.code());
    field::M_KEY_PROTECT_BITS.put(data, port.m_key.protection);
    field::LMC.put(data, port.lmc);
    field::LINK_SPEED_ACTIVE.put(data, port.speed_active);
    field::LINK_SPEED_ENABLED.put(data, port.speeds_enabled);
    field::NEIGHBOR_MTU.put(data, port.neighbor_mtu.code());
    field::MASTER_SM_SL.put(data, port.sm_sl);
    field::VL_CAP.put(data, VL_CAP);
    field::VL_HIGH_LIMIT.put(data, port.lanes.high_limit);
    field::VL_ARBITRATION_HIGH_CAP.put(data, ARBITRATION_ENTRIES);
    field::VL_ARBITRATION_LOW_CAP.put(data, ARBITRATION_ENTRIES);
    field::MTU_CAP.put(data, port.mtu_cap.code());
    field::STALL_AND_LIFE.put(data, port.stall_and_life);
    field::OPERATIONAL_VLS.put(data, port.lanes.operational());
    field::M_KEY_VIOLATIONS.put(data, port.m_key.violations);
    field::P_KEY_VIOLATIONS.put(data, port.pkey_violations);
    field::Q_KEY_VIOLATIONS.put(data, port.qkey_violations);
    field::GUID_CAP.put(data, port.guids.capacity());
    field::SUBNET_TIMEOUT.put(data, port.subnet_timeout);
    field::RESP_TIME_VALUE.put(data, RESPONSE_TIME);
    field::ERROR_THRESHOLDS.put(data, port.error_thresholds);
}

/// The settings of Set(PortInfo) that can be refused, after none was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checked {
    lid: Lid,
    lmc: u8,
    sm_lid: Lid,
    prefix: u64,
    neighbor_mtu: Mtu,
    operational_vls: u8,
    widths_enabled: u8,
    speeds_enabled: u8,
    down_default: PhysState,
    step: Step,
}

impl Checked {
    /// Checks Set(PortInfo) against the port. `None` if a field has a value that it cannot take.
    pub(crate) fn new(port: &Port, data: &[u8]) -> Option<Checked> {
        let down_default = match field::LINK_DOWN_DEFAULT_STATE.u8(data) {
            0 => port.down_default,
            1 => PhysState::Sleep,
            2 => PhysState::Polling,
            _ => return None,
        };
        let step = Step::requested(
            port.state,
            port.phys,
            down_default,
            field::PORT_STATE.u8(data),
            field::PORT_PHYSICAL_STATE.u8(data),
        )?;
        let upwards = matches!(step, Step::Arm | Step::Activate);
        let address = |wanted, present| checked_lid(wanted, present, upwards);
        let lid = address(field::LID.u16(data), port.lid)?;
        let lmc = field::LMC.u8(data);
        let last = lid.get() | !u16::MAX.wrapping_shl(u32::from(lmc));
        let aligned = lid.base(lmc) == lid && (lid == Lid::NONE || Lid::new(last).is_unicast());

        let neighbor_mtu = Mtu::from_code(field::NEIGHBOR_MTU.u8(data))?;
        let operational_vls = match field::OPERATIONAL_VLS.u8(data) {
            0 => port.lanes.operational(),
            vls => vls,
        };
        let prefix = field::GID_PREFIX.u64(data);
        // With such a prefix the port's GIDs would be those of groups.
        let multicast_prefix = prefix >> 56 == 0xff;

        let valid = aligned
            && neighbor_mtu <= port.mtu_cap
            && operational_vls <= VL_CAP
            && !multicast_prefix;
        valid.then_some(Checked {
            lid,
            lmc,
            sm_lid: address(field::MASTER_SM_LID.u16(data), port.sm_lid)?,
            prefix,
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
            step,
        })
    }

    /// Carries out Set(PortInfo). Returns the events, and whether the link is to be trained anew
    /// or to stay down.
    pub(crate) fn apply(&self, port: &mut Port, data: &[u8]) -> (Events, bool) {
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
        port.neighbor_mtu = self.neighbor_mtu;
        port.lanes.set_operational(self.operational_vls);
        port.lanes.high_limit = field::VL_HIGH_LIMIT.u8(data);
        port.widths_enabled = self.widths_enabled;
        port.speeds_enabled = self.speeds_enabled;
        port.down_default = self.down_default;
        port.subnet_timeout = field::SUBNET_TIMEOUT.u8(data);
        port.stall_and_life = field::STALL_AND_LIFE.u8(data);
        port.error_thresholds = field::ERROR_THRESHOLDS.u8(data);
        port.m_key.key = field::M_KEY.u64(data);
        port.m_key.protection = field::M_KEY_PROTECT_BITS.u8(data);
        port.m_key.lease_period = field::M_KEY_LEASE_PERIOD.u16(data);
        // Only zero is written to the counters of violations.
        for (counter, field) in [
            (&mut port.m_key.violations, field::M_KEY_VIOLATIONS),
            (&mut port.pkey_violations, field::P_KEY_VIOLATIONS),
            (&mut port.qkey_violations, field::Q_KEY_VIOLATIONS),
        ] {
            if field.u16(data) == 0 {
                *counter = 0;
            }
        }
        let (error, active) = self.take_step(port);
        events.add_if(error, Event::PortError);
        events.add_if(active, Event::PortActive);
        (events, matches!(self.step, Step::Down(_)))
    }

    /// Moves the port to its new state. Returns whether it left, and whether it reached, the
    /// states that are reported.
    fn take_step(&self, port: &mut Port) -> (bool, bool) {
        match self.step {
            Step::Stay => (false, false),
            Step::Down(phys) => (port.go_down(phys).contains(Event::PortError), false),
            Step::Arm => {
                port.state = PortState::Armed;
                (false, false)
            }
            Step::Activate => {
                port.state = PortState::Active;
                (false, true)
            }
        }
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

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_portinfo))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;
    use crate::addr::Guid;
    use crate::config::Config;

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
            let enabled = checked.map(|c| (c.widths_enabled, c.speeds_enabled));
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
}
