// SPDX-License-Identifier: GPL-2.0

//! Attributes that RDMA core asks a device for.

use ib_fabric::{Limit, Limits};
use ipoib_sys::bindings;

use crate::qp::MAX_READS;

/// Pages of a memory region that send requests open and close.
pub(crate) const MAX_PAGES: u32 = 4096;

/// Protection domains of a device.
const MAX_DOMAINS: u32 = 65536;

/// Local CA ACK delay (IB specification, section 9.7.6.1.3): 4.096 us * 2^15 is 134 ms, in which a host that is busy
/// with something else comes back.
const ACK_DELAY: u8 = 15;

/// Capabilities and limits of a device (`struct ib_device_attr`).
#[derive(Clone, Copy, Debug)]
pub struct Capabilities {
    /// Node GUID, in host order.
    pub node_guid: u64,
    /// System image GUID, in host order.
    pub system_guid: u64,
    /// Vendor, an IEEE company identifier.
    pub vendor_id: u32,
    /// Device of that vendor.
    pub device_id: u32,
    /// Hardware revision.
    pub revision: u32,
    /// Firmware version: major, minor and patch level.
    pub firmware: (u16, u16, u16),
    /// Limits and abilities.
    pub limits: Limits,
    /// Multicast groups, if there is multicast.
    pub groups: u32,
    /// Queue pairs attached to one group.
    pub group_members: u32,
    /// Entries in a port's P_Key table.
    pub pkeys: u16,
}

impl Capabilities {
    pub(crate) fn fill(&self, attr: &mut bindings::ib_device_attr) {
        let (major, minor, patch) = self.firmware;
        attr.fw_ver = u64::from(major) << 32 | u64::from(minor) << 16 | u64::from(patch);
        attr.sys_image_guid = self.system_guid.to_be();
        attr.max_mr_size = u64::MAX;
        attr.page_size_cap = u64::from(u32::MAX) & !0xfff;
        attr.vendor_id = self.vendor_id;
        attr.vendor_part_id = self.device_id;
        attr.hw_ver = self.revision;
        let limit = |limit| self.limits.get(limit);
        attr.max_qp = limit(Limit::Qp);
        attr.max_qp_wr = limit(Limit::QpWr);
        attr.device_cap_flags = (bindings::ib_device_cap_flags_IB_DEVICE_PORT_ACTIVE_EVENT
            | bindings::ib_device_cap_flags_IB_DEVICE_SYS_IMAGE_GUID
            | bindings::ib_device_cap_flags_IB_DEVICE_BAD_PKEY_CNTR
            | bindings::ib_device_cap_flags_IB_DEVICE_BAD_QKEY_CNTR
            | bindings::ib_device_cap_flags_IB_DEVICE_RC_RNR_NAK_GEN
            | bindings::ib_device_cap_flags_IB_DEVICE_MEM_MGT_EXTENSIONS)
            as u64;
        if self.limits.has(Limit::Checksum) {
            attr.device_cap_flags |= bindings::ib_device_cap_flags_IB_DEVICE_UD_IP_CSUM as u64;
        }
        attr.kernel_cap_flags = self.kernel_caps();
        attr.max_send_sge = limit(Limit::SendSge);
        attr.max_recv_sge = limit(Limit::RecvSge);
        attr.max_cq = limit(Limit::Cq);
        attr.max_cqe = limit(Limit::Cqe);
        attr.max_pd = MAX_DOMAINS;
        attr.max_sge_rd = limit(Limit::SendSge);
        attr.max_qp_rd_atom = MAX_READS.into();
        attr.max_qp_init_rd_atom = MAX_READS.into();
        attr.max_res_rd_atom = limit(Limit::Qp).saturating_mul(MAX_READS.into());
        attr.atomic_cap = bindings::ib_atomic_cap_IB_ATOMIC_GLOB;
        attr.max_mr = limit(Limit::Mr);
        attr.max_fast_reg_page_list_len = MAX_PAGES;
        attr.max_srq = limit(Limit::Srq);
        if self.limits.has(Limit::Srq) {
            attr.max_srq_wr = limit(Limit::QpWr);
            attr.max_srq_sge = limit(Limit::RecvSge);
        }
        attr.local_ca_ack_delay = ACK_DELAY;
        if self.limits.has(Limit::Multicast) {
            attr.max_mcast_grp = self.groups;
            attr.max_mcast_qp_attach = self.group_members;
            attr.max_total_mcast_qp_attach = self.groups.saturating_mul(self.group_members);
        }
        attr.cq_caps.max_cq_moderation_count = u16::MAX;
        attr.cq_caps.max_cq_moderation_period = u16::MAX;
        attr.max_ah = limit(Limit::Ah);
        attr.max_pkeys = self.pkeys;
    }

    fn kernel_caps(&self) -> u64 {
        // A ULP needs no memory region to name its buffers.
        let mut caps = bindings::ib_kernel_cap_flags_IBK_LOCAL_DMA_LKEY;
        if self.limits.has(Limit::BlockLoopback) {
            caps |= bindings::ib_kernel_cap_flags_IBK_BLOCK_MULTICAST_LOOPBACK;
        }
        if self.limits.has(Limit::Lso) {
            caps |= bindings::ib_kernel_cap_flags_IBK_UD_TSO;
        }
        caps.into()
    }
}

/// Attributes of a port (`struct ib_port_attr`), in the encodings of PortInfo (IB specification,
/// section 14.2.5.6).
#[derive(Clone, Copy, Debug, Default)]
pub struct PortAttributes {
    /// Subnet prefix, in host order.
    pub subnet_prefix: u64,
    /// PortState: 1 Down to 4 Active.
    pub state: u8,
    /// PortPhysicalState: 5 is LinkUp.
    pub phys_state: u8,
    /// MTUCap.
    pub max_mtu: u8,
    /// NeighborMTU.
    pub active_mtu: u8,
    /// Entries in the GID table.
    pub gids: u8,
    /// Entries in the P_Key table.
    pub pkeys: u16,
    /// CapabilityMask.
    pub capabilities: u32,
    /// P_Key violations.
    pub bad_pkeys: u16,
    /// Q_Key violations.
    pub bad_qkeys: u16,
    /// LID.
    pub lid: u16,
    /// LID mask control.
    pub lmc: u8,
    /// LID of the master subnet manager.
    pub sm_lid: u16,
    /// Service level to reach it by.
    pub sm_sl: u8,
    /// SubnetTimeOut.
    pub subnet_timeout: u8,
    /// VLCap.
    pub vl_cap: u8,
    /// LinkWidthActive.
    pub width: u8,
    /// LinkSpeedActive.
    pub speed: u16,
    /// True if GIDs are IP addresses.
    pub ip_gids: bool,
}

impl PortAttributes {
    pub(crate) fn fill(&self, attr: &mut bindings::ib_port_attr) {
        attr.subnet_prefix = self.subnet_prefix;
        attr.state = self.state.into();
        attr.max_mtu = self.max_mtu.into();
        attr.active_mtu = self.active_mtu.into();
        attr.phys_mtu = 0;
        attr.gid_tbl_len = self.gids.into();
        attr.port_cap_flags = self.capabilities;
        attr.max_msg_sz = ib_fabric::rc::MAX_MESSAGE;
        attr.bad_pkey_cntr = self.bad_pkeys.into();
        attr.qkey_viol_cntr = self.bad_qkeys.into();
        attr.pkey_tbl_len = self.pkeys;
        attr.sm_lid = self.sm_lid.into();
        attr.lid = self.lid.into();
        attr.lmc = self.lmc;
        attr.max_vl_num = self.vl_cap;
        attr.sm_sl = self.sm_sl;
        attr.subnet_timeout = self.subnet_timeout;
        attr.active_width = self.width;
        attr.active_speed = self.speed;
        attr.phys_state = self.phys_state;
        attr.set_ip_gids(self.ip_gids.into());
    }
}
