// SPDX-License-Identifier: GPL-2.0

//! Address handles.

use ipoib_sys::bindings;
use kernel::prelude::*;

use crate::object::own;

/// Destination of a datagram (IB specification, section 11.2.2.1).
#[derive(Clone, Copy, Debug, Default)]
pub struct AddressVector {
    /// Port to send by.
    pub port: u8,
    /// Destination LID.
    pub dlid: u16,
    /// Bits of the source LID below the LID mask.
    pub path_bits: u8,
    /// Service level.
    pub sl: u8,
    /// Static rate.
    pub static_rate: u8,
    /// Ethernet address, for an Ethernet port.
    pub mac: Option<[u8; 6]>,
    /// Global route header, if there is to be one.
    pub route: Option<GlobalRoute>,
}

/// Fields of a global route header (IB specification, section 8.3).
#[derive(Clone, Copy, Debug)]
pub struct GlobalRoute {
    /// Destination GID.
    pub dgid: [u8; 16],
    /// Index of the source GID.
    pub sgid_index: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class.
    pub traffic_class: u8,
}

impl AddressVector {
    /// Reads what RDMA core has checked.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an address of another link layer.
    pub(crate) fn from_raw(attr: &bindings::rdma_ah_attr) -> Result<Self> {
        let (dlid, path_bits, mac) = match attr.type_ {
            bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_IB => {
                // SAFETY: The type says that this is the union's field, and every bit pattern is one.
                let ib = unsafe { attr.__bindgen_anon_1.ib };
                (ib.dlid, ib.src_path_bits, None)
            }
            bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE => {
                // SAFETY: As above.
                let roce = unsafe { attr.__bindgen_anon_1.roce };
                (0, 0, Some(roce.dmac))
            }
            _ => return Err(EINVAL),
        };
        let grh = &attr.grh;
        let has_route = u32::from(attr.ah_flags) & bindings::ib_ah_flags_IB_AH_GRH != 0;
        let route = has_route.then_some(GlobalRoute {
            // SAFETY: Every bit pattern is a GID.
            dgid: unsafe { grh.dgid.raw },
            sgid_index: grh.sgid_index,
            flow_label: grh.flow_label,
            hop_limit: grh.hop_limit,
            traffic_class: grh.traffic_class,
        });
        Ok(Self {
            port: u8::try_from(attr.port_num).map_err(|_| EINVAL)?,
            dlid,
            path_bits,
            sl: attr.sl,
            static_rate: attr.static_rate,
            mac,
            route,
        })
    }

    /// Writes it as RDMA core reads it.
    pub(crate) fn to_raw(self) -> bindings::rdma_ah_attr {
        let mut attr: bindings::rdma_ah_attr = pin_init::zeroed();
        attr.port_num = self.port.into();
        attr.sl = self.sl;
        attr.static_rate = self.static_rate;
        if let Some(dmac) = self.mac {
            attr.type_ = bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE;
            attr.__bindgen_anon_1.roce = bindings::roce_ah_attr { dmac };
        } else {
            attr.type_ = bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_IB;
            attr.__bindgen_anon_1.ib = bindings::ib_ah_attr {
                dlid: self.dlid,
                src_path_bits: self.path_bits,
            };
        }
        if let Some(route) = &self.route {
            attr.ah_flags = bindings::ib_ah_flags_IB_AH_GRH as u8;
            attr.grh.dgid.raw = route.dgid;
            attr.grh.sgid_index = route.sgid_index;
            attr.grh.flow_label = route.flow_label;
            attr.grh.hop_limit = route.hop_limit;
            attr.grh.traffic_class = route.traffic_class;
        }
        attr
    }
}

/// The address that a handle stands for.
///
/// # Safety
///
/// `ah` has to be an address handle of a device of this crate's.
pub(crate) unsafe fn address(ah: *const bindings::ib_ah) -> AddressVector {
    // SAFETY: By the safety requirement.
    let address = unsafe { own::<_, AddressVector>(ah) };
    address.copied().unwrap_or_default()
}
