// SPDX-License-Identifier: GPL-2.0

//! One port of a channel adapter or a switch: its settings, its link and its tables.

use crate::addr::{Gid, Guid, Lid};
use crate::addresses::Addresses;
use crate::capability;
use crate::config::{Config, LinkLayer, SwitchConfig};
use crate::counters::{Counted, Counters, LinkError};
use crate::keys::PKey;
use crate::link::{PhysState, PortState, SPEEDS, VL_CAP, WIDTHS};
use crate::mkey::MKey;
use crate::mtu::Mtu;
use crate::tables::{PKeyTable, VirtualLanes};

/// The place of a port in its node, on which the meaning of PortInfo depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A port of a channel adapter: an agent and a link.
    Adapter,
    /// Base port 0 of a switch: an agent, and a link within the switch that is always up.
    Management,
    /// An external port of a switch: a link, and no agent.
    External,
}

impl Role {
    /// Returns true if the port has an agent, and with it addresses and a management key.
    pub(crate) fn has_agent(self) -> bool {
        self != Role::External
    }

    /// Returns true if the port has a link whose settings can be changed.
    pub(crate) fn has_link(self) -> bool {
        self != Role::Management
    }
}

/// A port of a channel adapter or a switch.
#[derive(Clone, Debug)]
pub struct Port {
    pub(crate) number: u8,
    pub(crate) role: Role,
    /// PartitionEnforcementInbound, PartitionEnforcementOutbound and two more bits that no port
    /// here has, as in PortInfo.
    pub(crate) enforcement: u8,
    pub(crate) state: PortState,
    pub(crate) phys: PhysState,
    pub(crate) down_default: PhysState,
    pub(crate) lid: Lid,
    /// The number of low bits of a LID that tell paths apart, 0 to 7.
    pub lmc: u8,
    /// The LID of the master subnet manager.
    pub sm_lid: Lid,
    /// The service level on which the master subnet manager is reached.
    pub sm_sl: u8,
    /// The subnet prefix in host byte order.
    pub prefix: u64,
    /// The longest way through the subnet: 4.096 µs times two to this power.
    pub subnet_timeout: u8,
    /// CapabilityMask, in the bits of [`crate::capability`].
    pub cap_mask: u32,
    /// The largest MTU of the port.
    pub mtu_cap: Mtu,
    pub(crate) neighbor_mtu: Mtu,
    pub(crate) widths_enabled: u8,
    /// LinkWidthActive: 1 is 1x, 2 is 4x, 4 is 8x, 8 is 12x.
    pub width_active: u8,
    pub(crate) speeds_enabled: u8,
    /// LinkSpeedActive of a lane: 1 is 2.5, 2 is 5, 4 is 10 Gbit/s.
    pub speed_active: u8,
    pub(crate) stall_and_life: u8,
    /// LocalPhyErrors and OverrunErrors, as in PortInfo.
    pub(crate) error_thresholds: u8,
    /// Packets with a wrong CRC, less those without an error that have come since.
    physical_errors: u32,
    /// The number of packets with a P_Key that did not match, since the subnet manager
    /// cleared it.
    pub pkey_violations: u16,
    /// The number of packets with a Q_Key that did not match, since the subnet manager
    /// cleared it.
    pub qkey_violations: u16,
    pub(crate) m_key: MKey,
    pub(crate) lanes: VirtualLanes,
    pub(crate) counters: Counters,
    pub(crate) pkeys: PKeyTable,
    pub(crate) addresses: Addresses,
}

// The driver moves it by value while it fills a vector.
const _: () = assert!(size_of::<Port>() <= 1024);

impl Port {
    /// PartitionEnforcementInbound.
    pub(crate) const INBOUND: u8 = 1 << 3;

    /// PartitionEnforcementOutbound.
    pub(crate) const OUTBOUND: u8 = 1 << 2;

    /// Makes a port of an adapter as it is at power-on. `config` has been checked.
    pub(crate) fn new(config: &Config, number: u8, guid: Guid) -> Port {
        let mut cap_mask =
            capability::SL_MAPPING | capability::CLIENT_REREGISTRATION | capability::OF_TRAPS;
        if config.system_guid != Guid::NONE {
            cap_mask |= capability::SYSTEM_IMAGE_GUID;
        }
        let (addresses, phys) = match config.link_layer {
            LinkLayer::InfiniBand => (Addresses::guids(config.guids, guid), PhysState::Polling),
            // Until its network device is up.
            LinkLayer::Ethernet => (Addresses::gids(config.guids), PhysState::Disabled),
        };
        Port {
            number,
            role: Role::Adapter,
            enforcement: 0,
            state: PortState::Down,
            phys,
            down_default: phys,
            lid: Lid::NONE,
            lmc: 0,
            sm_lid: Lid::NONE,
            sm_sl: 0,
            prefix: Gid::DEFAULT_PREFIX,
            subnet_timeout: 0,
            cap_mask,
            mtu_cap: config.mtu,
            neighbor_mtu: Mtu::B256,
            widths_enabled: WIDTHS,
            width_active: 2,
            speeds_enabled: SPEEDS,
            speed_active: 1,
            stall_and_life: 0,
            error_thresholds: 0,
            physical_errors: 0,
            pkey_violations: 0,
            qkey_violations: 0,
            m_key: MKey::default(),
            lanes: VirtualLanes::new(),
            counters: Counters::default(),
            pkeys: PKeyTable::new(config.pkeys),
            addresses,
        }
    }

    /// Makes a port of a switch as it is at power-on: its management port for number 0.
    pub(crate) fn of_switch(config: &SwitchConfig, number: u8) -> Port {
        let mut port = Port::new(&config.as_adapter(), number, config.node_guid);
        port.prefix = Gid::DEFAULT_PREFIX;
        if number == 0 {
            port.role = Role::Management;
            port.cap_mask &= !capability::CLIENT_REREGISTRATION;
            port.cap_mask |= capability::P_KEY_SWITCH_EXTERNAL_PORT_TRAP;
            port.state = PortState::Active;
            port.phys = PhysState::LinkUp;
            port.neighbor_mtu = port.mtu_cap;
            port.speed_active = 4;
        } else {
            port.role = Role::External;
            port.cap_mask = 0;
        }
        port
    }

    /// Returns the number of the port, from 1; 0 for the management port of a switch.
    #[inline]
    pub fn number(&self) -> u8 {
        self.number
    }

    /// Returns the GUID that the port was made with; none on Ethernet.
    #[inline]
    pub fn guid(&self) -> Guid {
        self.addresses.own()
    }

    /// Returns true if the port is one of RoCE v2, with GIDs in place of GUIDs.
    #[inline]
    pub fn is_ethernet(&self) -> bool {
        matches!(self.addresses, Addresses::Gids(_))
    }

    /// Returns the link state.
    #[inline]
    pub fn state(&self) -> PortState {
        self.state
    }

    /// Returns the physical state.
    #[inline]
    pub fn phys_state(&self) -> PhysState {
        self.phys
    }

    /// Returns the base LID; [`Lid::NONE`] until a subnet manager has assigned one.
    #[inline]
    pub fn lid(&self) -> Lid {
        self.lid
    }

    /// Returns the MTU in use, NeighborMTU.
    #[inline]
    pub fn active_mtu(&self) -> Mtu {
        self.neighbor_mtu
    }

    /// Returns VLCap, the code of the highest virtual lane: 4 is VL 7.
    #[inline]
    pub fn vl_cap(&self) -> u8 {
        match self.role {
            Role::Management => 1,
            Role::Adapter | Role::External => VL_CAP,
        }
    }

    /// Returns an entry of the P_Key table; `None` beyond its end.
    #[inline]
    pub fn pkey(&self, index: u16) -> Option<u16> {
        self.pkeys.get(index)
    }

    /// Returns an entry of the GID table; `None` beyond its end. Unused entries have the subnet
    /// prefix and no GUID, and are [`Gid::NONE`] on Ethernet.
    #[inline]
    pub fn gid(&self, index: u8) -> Option<Gid> {
        self.addresses.gid(self.prefix, index)
    }

    /// Returns the virtual lane of packets of a service level (section 7.6.6). `None` if they
    /// have none and are to be dropped.
    #[inline]
    pub fn virtual_lane(&self, sl: u8) -> Option<u8> {
        self.lanes.of(sl)
    }

    /// Returns the LID that packets with these path bits have.
    #[inline]
    pub fn lid_with(&self, path_bits: u8) -> Lid {
        Lid::new(self.lid.get() | u16::from(path_bits) & self.path_mask())
    }

    /// Returns the path bits of one of its LIDs.
    #[inline]
    pub fn path_bits(&self, lid: Lid) -> u8 {
        (lid.get() & self.path_mask()) as u8
    }

    fn path_mask(&self) -> u16 {
        !u16::MAX.wrapping_shl(u32::from(self.lmc))
    }

    /// Returns true if a LID is one of this port's 2^LMC.
    #[inline]
    pub fn has_lid(&self, lid: Lid) -> bool {
        self.lid != Lid::NONE && lid.is_unicast() && lid.base(self.lmc) == self.lid
    }

    /// Returns true if a GID is one of this port's, with the subnet's prefix or the default one, which
    /// every port answers to (section 4.1.1).
    pub fn has_gid(&self, gid: &Gid) -> bool {
        self.addresses.contains(self.prefix, gid)
    }

    /// Counts something that the port has seen.
    pub(crate) fn count(&mut self, what: Counted) {
        let violations = match what {
            Counted::PKeyViolation => &mut self.pkey_violations,
            Counted::QKeyViolation => &mut self.qkey_violations,
            Counted::Received(traffic) => {
                self.physical_errors = self.physical_errors.saturating_sub(traffic.packets);
                return self.counters.count(what);
            }
            _ => return self.counters.count(what),
        };
        *violations = violations.saturating_add(1);
    }

    /// Counts a packet with a wrong CRC (section 7.12.2). True if that is one too many: an error of the link.
    pub(crate) fn count_corrupt(&mut self) -> bool {
        self.count(Counted::Corrupt);
        self.physical_errors = self.physical_errors.saturating_add(1);
        let failed = self.physical_errors > u32::from(self.error_thresholds >> 4);
        if failed {
            self.physical_errors = 0;
            self.counters.link_failed(LinkError::Integrity);
        }
        failed
    }

    /// Returns true if the partitions of an external port let a packet in, by PartitionEnforcementInbound.
    ///
    /// A limited member's packets pass by its own key, so that the membership bits do not count.
    pub(crate) fn lets_in(&self, key: PKey) -> bool {
        self.enforcement & Port::INBOUND == 0 || self.pkeys.admits(key, true)
    }

    /// Returns true if the partitions of an external port let a packet out, by
    /// PartitionEnforcementOutbound: if the receiver at the other end may take it.
    pub(crate) fn lets_out(&self, key: PKey) -> bool {
        self.enforcement & Port::OUTBOUND == 0 || self.pkeys.admits(key, false)
    }

    /// Finds the entry of the P_Key table that matches a packet's key; a full member's first.
    pub fn find_pkey(&self, key: PKey) -> Option<u16> {
        self.pkeys.find(key)
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_port))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;
    use crate::counters::Traffic;

    fn port() -> Port {
        Port::new(&Config::EXAMPLE, 1, Guid::new(0x11))
    }

    #[test]
    fn power_on() {
        let port = port();
        assert_eq!(port.state(), PortState::Down);
        assert_eq!(port.phys_state(), PhysState::Polling);
        assert_eq!((port.lid(), port.sm_lid), (Lid::NONE, Lid::NONE));
        assert_eq!(port.pkey(0), Some(0xffff));
        assert_eq!(port.pkey(1), Some(0));
        assert_eq!(
            port.gid(0),
            Some(Gid::from_parts(Gid::DEFAULT_PREFIX, Guid::new(0x11)))
        );
        let unused = Some(Gid::from_parts(Gid::DEFAULT_PREFIX, Guid::NONE));
        assert_eq!(port.gid(1), unused);
        assert_eq!(port.gid(Config::EXAMPLE.guids), None);
    }

    #[test]
    fn lids_of_a_port() {
        let mut port = port();
        port.lmc = 3;
        assert!(!port.has_lid(Lid::NONE) && !port.has_lid(Lid::new(1)));
        port.lid = Lid::new(0x10);
        port.lmc = 2;
        for (lid, own) in [(0x0f, false), (0x10, true), (0x13, true), (0x14, false)] {
            assert_eq!(port.has_lid(Lid::new(lid)), own);
        }
    }

    #[test]
    fn default_prefix_always_reaches_a_port() {
        let mut port = port();
        port.prefix = 0xfec0_0000_0000_0001;
        let gid = |prefix, guid| Gid::from_parts(prefix, Guid::new(guid));
        assert!(port.has_gid(&gid(0xfec0_0000_0000_0001, 0x11)));
        assert!(port.has_gid(&gid(Gid::DEFAULT_PREFIX, 0x11)));
        assert!(!port.has_gid(&gid(Gid::DEFAULT_PREFIX, 0)));
        assert!(!port.has_gid(&gid(0xfec0_0000_0000_0002, 0x11)));
        assert!(!port.has_gid(&gid(0xfec0_0000_0000_0001, 0x12)));
    }

    /// Section 7.12.2: packets without an error make up for those with one.
    #[test]
    fn too_many_corrupt_packets() {
        let mut port = port();
        port.error_thresholds = 0x2f;
        let good = Counted::Received(Traffic::unicast(100));
        for _ in 0..3 {
            assert!(!port.count_corrupt() && !port.count_corrupt());
            port.count(good);
            assert!(!port.count_corrupt());
            assert!(port.count_corrupt());
        }
        port.error_thresholds = 0xf0;
        for _ in 0..100 {
            assert!(!port.count_corrupt());
            port.count(good);
            port.count(good);
        }
        port.error_thresholds = 0;
        assert!(port.count_corrupt() && port.count_corrupt());
    }

    #[test]
    fn violations_stop_at_the_top() {
        let mut port = port();
        port.count(Counted::PKeyViolation);
        port.qkey_violations = u16::MAX;
        port.count(Counted::QKeyViolation);
        assert_eq!(port.pkey_violations, 1);
        assert_eq!(port.qkey_violations, u16::MAX);
    }
}
