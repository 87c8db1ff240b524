// SPDX-License-Identifier: GPL-2.0

//! SwitchInfo (section 14.2.5.4): the limits of a switch, and its settings.

use crate::addr::Lid;

/// The fields, by the names of the specification.
mod field {
    use crate::bits::Field;

    pub(super) const LINEAR_FDB_CAP: Field = Field::bytes(0, 2);
    pub(super) const MULTICAST_FDB_CAP: Field = Field::bytes(4, 2);
    pub(super) const LINEAR_FDB_TOP: Field = Field::bytes(6, 2);
    pub(super) const DEFAULT_PORT: Field = Field::bytes(8, 1);
    pub(super) const DEFAULT_MULTICAST_PRIMARY_PORT: Field = Field::bytes(9, 1);
    pub(super) const DEFAULT_MULTICAST_NOT_PRIMARY_PORT: Field = Field::bytes(10, 1);
    pub(super) const LIFE_TIME_VALUE: Field = Field::bits(11, 3, 5);
    pub(super) const PORT_STATE_CHANGE: Field = Field::bits(11, 2, 1);
    pub(super) const PARTITION_ENFORCEMENT_CAP: Field = Field::bytes(14, 2);
    pub(super) const INBOUND_ENFORCEMENT_CAP: Field = Field::bits(16, 7, 1);
    pub(super) const OUTBOUND_ENFORCEMENT_CAP: Field = Field::bits(16, 6, 1);
}

/// The settings of a switch.
#[derive(Clone, Debug, Default)]
pub(super) struct SwitchInfo {
    /// LinearFDBTop: packets to higher LIDs are dropped.
    pub(super) top: Lid,
    default_port: u8,
    /// DefaultMulticastPrimaryPort: packets to groups without members leave by it.
    pub(super) primary: u8,
    /// DefaultMulticastNotPrimaryPort: those that came in by the primary port leave by it.
    pub(super) not_primary: u8,
    life_time: u8,
    /// True if the state of a link has changed since the subnet manager cleared this.
    pub(super) port_state_change: bool,
}

/// The limits of a switch.
pub(super) struct Limits {
    /// The length of the linear forwarding table.
    pub(super) routes: usize,
    /// The length of the multicast forwarding table.
    pub(super) groups: usize,
    /// The capacity of the P_Key tables.
    pub(super) pkeys: u16,
}

impl SwitchInfo {
    /// Writes the attribute into `data`, which is zero before.
    pub(super) fn read(&self, limits: &Limits, data: &mut [u8]) {
        field::LINEAR_FDB_CAP.put(data, limits.routes as u64);
        field::MULTICAST_FDB_CAP.put(data, limits.groups as u64);
        field::LINEAR_FDB_TOP.put(data, self.top.get());
        field::DEFAULT_PORT.put(data, self.default_port);
        field::DEFAULT_MULTICAST_PRIMARY_PORT.put(data, self.primary);
        field::DEFAULT_MULTICAST_NOT_PRIMARY_PORT.put(data, self.not_primary);
        field::LIFE_TIME_VALUE.put(data, self.life_time);
        field::PORT_STATE_CHANGE.put(data, self.port_state_change);
        field::PARTITION_ENFORCEMENT_CAP.put(data, limits.pkeys);
        field::INBOUND_ENFORCEMENT_CAP.put(data, 1u8);
        field::OUTBOUND_ENFORCEMENT_CAP.put(data, 1u8);
    }

    /// Takes the settings from Set(SwitchInfo). `None` if LinearFDBTop lies beyond the table.
    pub(super) fn write(&mut self, limits: &Limits, data: &[u8]) -> Option<()> {
        let top = field::LINEAR_FDB_TOP.u16(data);
        if usize::from(top) >= limits.routes {
            return None;
        }
        self.top = Lid::new(top);
        self.default_port = field::DEFAULT_PORT.u8(data);
        self.primary = field::DEFAULT_MULTICAST_PRIMARY_PORT.u8(data);
        self.not_primary = field::DEFAULT_MULTICAST_NOT_PRIMARY_PORT.u8(data);
        self.life_time = field::LIFE_TIME_VALUE.u8(data);
        // Only one is written to it, and clears it.
        if field::PORT_STATE_CHANGE.u8(data) != 0 {
            self.port_state_change = false;
        }
        Some(())
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_switch_info))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        routes: 0xc000,
        groups: 0x400,
        pkeys: 0x80,
    };

    #[test]
    fn bytes_of_14_2_5_4() {
        let mut info = SwitchInfo::default();
        let mut data = [0; 64];
        data[6..12].copy_from_slice(&[0xbf, 0xff, 1, 2, 3, 18 << 3]);
        assert_eq!(info.write(&LIMITS, &data), Some(()));
        info.port_state_change = true;
        let mut read = [0; 64];
        info.read(&LIMITS, &mut read);
        #[rustfmt::skip]
        let expected = [
            0xc0, 0x00, 0x00, 0x00, 0x04, 0x00, // LinearFDBCap, RandomFDBCap, MulticastFDBCap
            0xbf, 0xff, 0x01, 0x02, 0x03, 0x94, // LinearFDBTop, default ports, LifeTime, change
            0x00, 0x00, 0x00, 0x80, 0xc0, 0x00, // LIDsPerPort, PartitionEnforcementCap, caps
        ];
        assert_eq!(read[..18], expected);
        assert_eq!(read[18..], [0; 46]);
    }

    #[test]
    fn one_clears_the_change() {
        let mut info = SwitchInfo {
            port_state_change: true,
            ..SwitchInfo::default()
        };
        let mut data = [0; 64];
        info.write(&LIMITS, &data);
        assert!(info.port_state_change);
        data[11] = 4;
        info.write(&LIMITS, &data);
        assert!(!info.port_state_change);
        info.write(&LIMITS, &data);
        assert!(!info.port_state_change);
    }

    #[test]
    fn top_stays_within_the_table() {
        let mut info = SwitchInfo::default();
        let limits = Limits {
            routes: 128,
            ..LIMITS
        };
        for (top, taken) in [(127, true), (128, false)] {
            let mut data = [0; 64];
            field::LINEAR_FDB_TOP.put(&mut data, top as u16);
            assert_eq!(info.write(&limits, &data).is_some(), taken);
        }
        assert_eq!(info.top, Lid::new(127));
    }
}
