// SPDX-License-Identifier: GPL-2.0

//! Bits of CapabilityMask (section 14.2.5.6).

/// A subnet manager runs here.
pub const SM: u32 = 1 << 1;
/// Traps are sent.
pub const TRAP: u32 = 1 << 3;
/// SLtoVLMappingTable exists.
pub const SL_MAPPING: u32 = 1 << 6;
/// NodeInfo has a system image GUID.
pub const SYSTEM_IMAGE_GUID: u32 = 1 << 11;
/// Trap 259 is sent for external ports of a switch.
pub const P_KEY_SWITCH_EXTERNAL_PORT_TRAP: u32 = 1 << 12;
/// Communication management runs here.
pub const COMMUNICATION_MANAGEMENT: u32 = 1 << 16;
/// An SNMP agent is reached by datagrams.
pub const SNMP_TUNNELING: u32 = 1 << 17;
/// Device management runs here.
pub const DEVICE_MANAGEMENT: u32 = 1 << 19;
/// A vendor class is served here.
pub const VENDOR_CLASS: u32 = 1 << 20;
/// Trap 256 tells of directed routes.
pub const DR_NOTICE: u32 = 1 << 21;
/// Trap 144 is sent for CapabilityMask.
pub const CAPABILITY_MASK_NOTICE: u32 = 1 << 22;
/// Boot management runs here.
pub const BOOT_MANAGEMENT: u32 = 1 << 23;
/// ClientReregister is honoured.
pub const CLIENT_REREGISTRATION: u32 = 1 << 25;
/// Trap 144 is sent for NodeDescription.
pub const OTHER_LOCAL_CHANGES_NOTICE: u32 = 1 << 26;

/// The bits of those traps that all nodes here send.
pub const OF_TRAPS: u32 = TRAP | DR_NOTICE | CAPABILITY_MASK_NOTICE | OTHER_LOCAL_CHANGES_NOTICE;

/// The bits that tell of software and that software sets.
pub const OF_SOFTWARE: u32 = SM
    | COMMUNICATION_MANAGEMENT
    | SNMP_TUNNELING
    | DEVICE_MANAGEMENT
    | VENDOR_CLASS
    | BOOT_MANAGEMENT;
