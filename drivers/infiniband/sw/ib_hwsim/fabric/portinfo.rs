// SPDX-License-Identifier: GPL-2.0

//! PortInfo (section 14.2.5.6): the settings of a port, as a subnet manager reads them.
//!
//! An external port of a switch has neither addresses nor a management key; there, the fields of
//! these are zero. [`crate::settings`] has the other direction.

use crate::link::{SPEEDS, WIDTHS};
use crate::port::Port;
use crate::tables::ARBITRATION_ENTRIES;

/// The fields, by the names of the specification.
pub(crate) mod field {
    use crate::bits::Field;

    pub(crate) const M_KEY: Field = Field::bytes(0, 8);
    pub(crate) const GID_PREFIX: Field = Field::bytes(8, 8);
    pub(crate) const LID: Field = Field::bytes(16, 2);
    pub(crate) const MASTER_SM_LID: Field = Field::bytes(18, 2);
    pub(crate) const CAPABILITY_MASK: Field = Field::bytes(20, 4);
    pub(crate) const M_KEY_LEASE_PERIOD: Field = Field::bytes(26, 2);
    pub(crate) const LOCAL_PORT_NUM: Field = Field::bytes(28, 1);
    pub(crate) const LINK_WIDTH_ENABLED: Field = Field::bytes(29, 1);
    pub(crate) const LINK_WIDTH_SUPPORTED: Field = Field::bytes(30, 1);
    pub(crate) const LINK_WIDTH_ACTIVE: Field = Field::bytes(31, 1);
    pub(crate) const LINK_SPEED_SUPPORTED: Field = Field::bits(32, 4, 4);
    pub(crate) const PORT_STATE: Field = Field::bits(32, 0, 4);
    pub(crate) const PORT_PHYSICAL_STATE: Field = Field::bits(33, 4, 4);
    pub(crate) const LINK_DOWN_DEFAULT_STATE: Field = Field::bits(33, 0, 4);
    pub(crate) const M_KEY_PROTECT_BITS: Field = Field::bits(34, 6, 2);
    pub(crate) const LMC: Field = Field::bits(34, 0, 3);
    pub(crate) const LINK_SPEED_ACTIVE: Field = Field::bits(35, 4, 4);
    pub(crate) const LINK_SPEED_ENABLED: Field = Field::bits(35, 0, 4);
    pub(crate) const NEIGHBOR_MTU: Field = Field::bits(36, 4, 4);
    pub(crate) const MASTER_SM_SL: Field = Field::bits(36, 0, 4);
    pub(crate) const VL_CAP: Field = Field::bits(37, 4, 4);
    pub(crate) const VL_HIGH_LIMIT: Field = Field::bytes(38, 1);
    pub(crate) const VL_ARBITRATION_HIGH_CAP: Field = Field::bytes(39, 1);
    pub(crate) const VL_ARBITRATION_LOW_CAP: Field = Field::bytes(40, 1);
    pub(crate) const MTU_CAP: Field = Field::bits(41, 0, 4);
    /// VLStallCount and HOQLife.
    pub(crate) const STALL_AND_LIFE: Field = Field::bytes(42, 1);
    pub(crate) const OPERATIONAL_VLS: Field = Field::bits(43, 4, 4);
    /// PartitionEnforcementInbound and -Outbound, FilterRawInbound and -Outbound.
    pub(crate) const ENFORCEMENT: Field = Field::bits(43, 0, 4);
    pub(crate) const M_KEY_VIOLATIONS: Field = Field::bytes(44, 2);
    pub(crate) const P_KEY_VIOLATIONS: Field = Field::bytes(46, 2);
    pub(crate) const Q_KEY_VIOLATIONS: Field = Field::bytes(48, 2);
    pub(crate) const GUID_CAP: Field = Field::bytes(50, 1);
    pub(crate) const CLIENT_REREGISTER: Field = Field::bits(51, 7, 1);
    pub(crate) const SUBNET_TIMEOUT: Field = Field::bits(51, 0, 5);
    pub(crate) const RESP_TIME_VALUE: Field = Field::bits(52, 0, 5);
    /// LocalPhyErrors and OverrunErrors.
    pub(crate) const ERROR_THRESHOLDS: Field = Field::bytes(53, 1);
}

/// The time that the agent may take to answer: 4.096 µs times two to this power, 0.27 s.
pub(crate) const RESPONSE_TIME: u8 = 16;

/// Writes PortInfo of a port into `data`, which is zero before.
///
/// `ingress` is the port that the request came in by. `m_key` is the management key as the
/// requester may see it.
pub(crate) fn read(port: &Port, ingress: u8, m_key: u64, data: &mut [u8]) {
    if port.role.has_agent() {
        read_agent(port, m_key, data);
    }
    field::LOCAL_PORT_NUM.put(data, ingress);
    field::LINK_WIDTH_ENABLED.put(data, port.widths_enabled);
    field::LINK_WIDTH_SUPPORTED.put(data, WIDTHS);
    field::LINK_WIDTH_ACTIVE.put(data, port.width_active);
    field::LINK_SPEED_SUPPORTED.put(data, SPEEDS);
    field::PORT_STATE.put(data, port.state as u8);
    field::PORT_PHYSICAL_STATE.put(data, port.phys as u8);
    field::LINK_DOWN_DEFAULT_STATE.put(data, port.down_default as u8);
    field::LINK_SPEED_ACTIVE.put(data, port.speed_active);
    field::LINK_SPEED_ENABLED.put(data, port.speeds_enabled);
    field::NEIGHBOR_MTU.put(data, port.neighbor_mtu as u8);
    field::VL_CAP.put(data, port.vl_cap());
    field::VL_HIGH_LIMIT.put(data, port.lanes.high_limit);
    field::VL_ARBITRATION_HIGH_CAP.put(data, ARBITRATION_ENTRIES);
    field::VL_ARBITRATION_LOW_CAP.put(data, ARBITRATION_ENTRIES);
    field::MTU_CAP.put(data, port.mtu_cap as u8);
    field::STALL_AND_LIFE.put(data, port.stall_and_life);
    field::OPERATIONAL_VLS.put(data, port.lanes.operational());
    field::P_KEY_VIOLATIONS.put(data, port.pkey_violations);
    field::ERROR_THRESHOLDS.put(data, port.error_thresholds);
    field::ENFORCEMENT.put(data, port.enforcement);
}

/// Writes the fields of the agent.
fn read_agent(port: &Port, m_key: u64, data: &mut [u8]) {
    field::M_KEY.put(data, m_key);
    field::GID_PREFIX.put(data, port.prefix);
    field::LID.put(data, port.lid.get());
    field::MASTER_SM_LID.put(data, port.sm_lid.get());
    field::CAPABILITY_MASK.put(data, port.cap_mask);
    field::M_KEY_LEASE_PERIOD.put(data, port.m_key.lease_period);
    field::M_KEY_PROTECT_BITS.put(data, port.m_key.protection);
    field::LMC.put(data, port.lmc);
    field::MASTER_SM_SL.put(data, port.sm_sl);
    field::M_KEY_VIOLATIONS.put(data, port.m_key.violations);
    field::Q_KEY_VIOLATIONS.put(data, port.qkey_violations);
    field::GUID_CAP.put(data, port.addresses.capacity());
    field::SUBNET_TIMEOUT.put(data, port.subnet_timeout);
    field::RESP_TIME_VALUE.put(data, RESPONSE_TIME);
}
