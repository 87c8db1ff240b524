// SPDX-License-Identifier: GPL-2.0

//! The global route header (section 8.3), which is an IPv6 header.

use crate::addr::Gid;
use crate::bits::copy;

mod field {
    use crate::bits::Field;

    pub(super) const IP_VERSION: Field = Field::within(0, 4, 28, 4);
    pub(super) const TRAFFIC_CLASS: Field = Field::within(0, 4, 20, 8);
    pub(super) const FLOW_LABEL: Field = Field::within(0, 4, 0, 20);
    pub(super) const PAYLOAD_LENGTH: Field = Field::bytes(4, 2);
    pub(super) const NEXT_HEADER: Field = Field::bytes(6, 1);
    pub(super) const HOP_LIMIT: Field = Field::bytes(7, 1);
}

/// A global route header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grh {
    /// The traffic class.
    pub traffic_class: u8,
    /// The flow label, 20 bits.
    pub flow_label: u32,
    /// The number of routers that the packet may still pass.
    pub hop_limit: u8,
    /// The GID of the sender.
    pub sgid: Gid,
    /// The GID of the receiving port or group.
    pub dgid: Gid,
}

impl Grh {
    /// The length in bytes.
    pub const LEN: usize = 40;

    /// The version of IP.
    pub(crate) const IP_VERSION: u8 = 6;

    /// The next header: a base transport header of InfiniBand.
    pub(crate) const NEXT_HEADER: u8 = 0x1b;

    /// Writes the header in wire order. `following` is the number of bytes behind it, from the
    /// base transport header to the ICRC.
    pub fn write(&self, following: u16) -> [u8; Grh::LEN] {
        self.write_as(Grh::NEXT_HEADER, following)
    }

    /// Writes the header with another next header than a base transport header.
    pub(crate) fn write_as(&self, next_header: u8, following: u16) -> [u8; Grh::LEN] {
        let mut bytes = [0; Grh::LEN];
        field::IP_VERSION.put(&mut bytes, Grh::IP_VERSION);
        field::TRAFFIC_CLASS.put(&mut bytes, self.traffic_class);
        field::FLOW_LABEL.put(&mut bytes, self.flow_label);
        field::PAYLOAD_LENGTH.put(&mut bytes, following);
        field::NEXT_HEADER.put(&mut bytes, next_header);
        field::HOP_LIMIT.put(&mut bytes, self.hop_limit);
        let (_, gids) = bytes.split_at_mut(8);
        let (sgid, dgid) = gids.split_at_mut(16);
        copy(self.sgid.bytes(), sgid);
        copy(self.dgid.bytes(), dgid);
        bytes
    }
}

/// A global route header as it was received, whatever is in it.
pub(crate) struct Received {
    pub(crate) version: u8,
    pub(crate) next_header: u8,
    /// The number of bytes behind it that it tells of.
    pub(crate) following: u16,
    pub(crate) grh: Grh,
}

impl Received {
    /// Reads a header in wire order.
    pub(crate) fn read(bytes: &[u8; Grh::LEN]) -> Received {
        let mut gids = [[0; 16]; 2];
        let (_, from) = bytes.split_at(8);
        for (gid, from) in gids.iter_mut().zip(from.chunks_exact(16)) {
            copy(from, gid);
        }
        let [sgid, dgid] = gids.map(Gid::from_bytes);
        Received {
            version: field::IP_VERSION.u8(bytes),
            next_header: field::NEXT_HEADER.u8(bytes),
            following: field::PAYLOAD_LENGTH.u16(bytes),
            grh: Grh {
                traffic_class: field::TRAFFIC_CLASS.u8(bytes),
                flow_label: field::FLOW_LABEL.u32(bytes),
                hop_limit: field::HOP_LIMIT.u8(bytes),
                sgid,
                dgid,
            },
        }
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_grh))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;
    use crate::addr::Guid;

    #[test]
    fn bytes_of_section_8_3() {
        let grh = Grh {
            traffic_class: 0xab,
            flow_label: 0xffc_1234,
            hop_limit: 0x40,
            sgid: Gid::from_parts(Gid::DEFAULT_PREFIX, Guid::new(0x0102_0304_0506_0708)),
            dgid: Gid::from_bytes([0xff; 16]),
        };
        let bytes = grh.write(0x0814);
        assert_eq!(bytes[..8], [0x6a, 0xbc, 0x12, 0x34, 0x08, 0x14, 0x1b, 0x40]);
        assert_eq!(
            bytes[8..24],
            [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]
        );
        assert_eq!(bytes[24..], [0xff; 16]);
    }
}
