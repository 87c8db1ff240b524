// SPDX-License-Identifier: GPL-2.0

//! Notices (sections 13.4.8.2 and 14.2.5.1): the data of a trap.

use crate::addr::Lid;
use crate::bits::copy;
use crate::mad::{class, m_key, return_path, DirectedRoute, Header, Mad};
use crate::nodeinfo::NodeType;
use crate::packet::Packet;

/// The link state of at least one port of a switch has changed.
pub(crate) const LINK_STATE: u16 = 128;
/// Packets with a wrong CRC have come to a port, more than its threshold.
pub(crate) const LINK_INTEGRITY: u16 = 129;
/// A port has run out of room for what came, time and again.
pub(crate) const BUFFER_OVERRUN: u16 = 130;
/// The other end of a port's link has told of no credits for too long.
pub(crate) const FLOW_CONTROL: u16 = 131;
/// CapabilityMask, NodeDescription or another property of a port has changed.
pub(crate) const PROPERTIES: u16 = 144;
/// A subnet management packet had another M_Key.
pub(crate) const BAD_M_KEY: u16 = 256;
/// A packet had a P_Key that the port does not have.
pub(crate) const BAD_P_KEY: u16 = 257;
/// A packet had another Q_Key than the queue pair.
pub(crate) const BAD_Q_KEY: u16 = 258;
/// A packet had a P_Key that an external port of a switch does not let through.
pub(crate) const BAD_SWITCH_P_KEY: u16 = 259;

/// The bit of trap 144 for a new NodeDescription.
pub(crate) const NODE_DESCRIPTION: u16 = 1 << 0;

/// The bytes of DataDetails.
const DETAILS: usize = 54;

/// The hops of a directed route that trap 256 has room for, with the unused first one.
const HOPS: u8 = 30;

/// The fields before DataDetails.
mod field {
    use crate::bits::Field;

    pub(super) const IS_GENERIC: Field = Field::bits(0, 7, 1);
    pub(super) const TYPE: Field = Field::bits(0, 0, 7);
    pub(super) const PRODUCER_TYPE: Field = Field::bytes(1, 3);
    pub(super) const TRAP_NUMBER: Field = Field::bytes(4, 2);
    pub(super) const ISSUER_LID: Field = Field::bytes(6, 2);
}

/// The fields of DataDetails, by trap.
mod details {
    use crate::bits::Field;

    /// LIDADDR of trap 128.
    pub(super) const SWITCH_LID: Field = Field::bytes(0, 2);
    /// LIDADDR of traps 129 to 131, 144 and 256, LIDADDR1 of traps 257 to 259.
    pub(super) const LID: Field = Field::bytes(2, 2);

    /// PORTNO of traps 129 to 131.
    pub(super) const PORT: Field = Field::bytes(4, 1);

    pub(super) const OTHER_LOCAL_CHANGES: Field = Field::bits(5, 0, 1);
    pub(super) const CAPABILITY_MASK: Field = Field::bytes(6, 4);
    pub(super) const CHANGES: Field = Field::bytes(10, 2);

    pub(super) const DR_SLID: Field = Field::bytes(4, 2);
    pub(super) const METHOD: Field = Field::bytes(6, 1);
    pub(super) const ATTRIBUTE: Field = Field::bytes(8, 2);
    pub(super) const MODIFIER: Field = Field::bytes(10, 4);
    pub(super) const M_KEY: Field = Field::bytes(14, 8);
    pub(super) const DR_NOTICE: Field = Field::bits(23, 7, 1);
    pub(super) const DR_PATH_TRUNCATED: Field = Field::bits(23, 6, 1);
    pub(super) const DR_HOP_COUNT: Field = Field::bits(23, 0, 6);
    /// The first byte of DRNoticeReturnPath.
    pub(super) const DR_RETURN_PATH: usize = 24;

    /// LIDADDR2 of traps 257 to 259.
    pub(super) const LID_2: Field = Field::bytes(4, 2);
    pub(super) const KEY: Field = Field::bytes(6, 4);

    pub(super) const DATA_VALID: Field = Field::bytes(0, 2);
    pub(super) const SWITCH_P_KEY: Field = Field::bytes(6, 2);
    pub(super) const REFUSING_LID: Field = Field::bytes(48, 2);
    pub(super) const REFUSING_PORT: Field = Field::bytes(50, 1);
    /// All fields before the GIDs, and the GIDs.
    pub(super) const VALID: u16 = 0x3f;
    pub(super) const VALID_GIDS: u16 = 0xc0;
}

/// A notice without the fields that are the same for all traps of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notice {
    pub(crate) number: u16,
    details: [u8; DETAILS],
}

impl Default for Notice {
    fn default() -> Notice {
        Notice::new(0)
    }
}

impl Notice {
    fn new(number: u16) -> Notice {
        Notice {
            number,
            details: [0; DETAILS],
        }
    }

    /// Returns the type: urgent, security or informational.
    fn severity(&self) -> u8 {
        match self.number {
            LINK_STATE..=FLOW_CONTROL => 1,
            PROPERTIES => 4,
            _ => 2,
        }
    }

    /// Writes the attribute into `data`, which is zero before.
    pub(crate) fn write(&self, producer: NodeType, issuer: Lid, data: &mut [u8; 64]) {
        field::IS_GENERIC.put(data, 1u8);
        field::TYPE.put(data, self.severity());
        field::PRODUCER_TYPE.put(data, producer as u8);
        field::TRAP_NUMBER.put(data, self.number);
        field::ISSUER_LID.put(data, issuer.get());
        let [_, _, _, _, _, _, _, _, _, _, rest @ ..] = data;
        copy(&self.details, rest);
    }
}

/// Returns the number of the trap that a notice is of.
pub(crate) fn number(data: &[u8]) -> u16 {
    field::TRAP_NUMBER.u16(data)
}

/// Makes trap 128 of a switch.
pub(crate) fn link_state(lid: Lid) -> Notice {
    let mut notice = Notice::new(LINK_STATE);
    details::SWITCH_LID.put(&mut notice.details, lid.get());
    notice
}

/// Makes one of traps 129 to 131, about a port of the node that has this LID.
pub(crate) fn link_error(number: u16, lid: Lid, port: u8) -> Notice {
    let mut notice = Notice::new(number);
    let data = &mut notice.details;
    details::LID.put(data, lid.get());
    details::PORT.put(data, port);
    notice
}

/// Makes trap 144 of a port: its CapabilityMask, and bits for other things that changed.
pub(crate) fn properties(lid: Lid, cap_mask: u32, changes: u16) -> Notice {
    let mut notice = Notice::new(PROPERTIES);
    let data = &mut notice.details;
    details::LID.put(data, lid.get());
    details::OTHER_LOCAL_CHANGES.put(data, u8::from(changes != 0));
    details::CAPABILITY_MASK.put(data, cap_mask);
    details::CHANGES.put(data, changes);
    notice
}

/// Makes trap 256 of a request from `slid`.
pub(crate) fn bad_m_key(slid: Lid, request: &Mad) -> Notice {
    let mut notice = Notice::new(BAD_M_KEY);
    let data = &mut notice.details;
    let header = Header::parse(request);
    details::LID.put(data, slid.get());
    details::METHOD.put(data, header.method);
    details::ATTRIBUTE.put(data, header.attribute);
    details::MODIFIER.put(data, header.modifier);
    details::M_KEY.put(data, m_key(request));
    if header.class == class::SUBNET_DIRECTED {
        let route = DirectedRoute::parse(request);
        let hops = route.hop_count.min(HOPS.saturating_sub(1));
        details::DR_SLID.put(data, route.slid.get());
        details::DR_NOTICE.put(data, 1u8);
        details::DR_PATH_TRUNCATED.put(data, u8::from(hops != route.hop_count));
        details::DR_HOP_COUNT.put(data, hops);
        let path = return_path(request).iter().take(usize::from(HOPS));
        let room = data.iter_mut().skip(details::DR_RETURN_PATH);
        for (to, from) in room.zip(path) {
            *to = *from;
        }
    }
    notice
}

/// Makes trap 257 or 258 of a packet.
pub(crate) fn bad_key(number: u16, key: u32, packet: &Packet) -> Notice {
    let mut notice = Notice::new(number);
    let data = &mut notice.details;
    details::LID.put(data, packet.slid.get());
    details::LID_2.put(data, packet.dlid.get());
    details::KEY.put(data, key);
    let [_, _, _, _, _, _, _, _, _, _, rest @ ..] = data;
    write_ends(packet, rest);
    notice
}

/// Makes trap 259 of a packet that was refused by a port of the switch with this LID.
pub(crate) fn bad_switch_p_key(lid: Lid, port: u8, packet: &Packet) -> Notice {
    let mut notice = Notice::new(BAD_SWITCH_P_KEY);
    let data = &mut notice.details;
    let gids = packet.grh.map_or(0, |_| details::VALID_GIDS);
    details::DATA_VALID.put(data, details::VALID | gids);
    details::LID.put(data, packet.slid.get());
    details::LID_2.put(data, packet.dlid.get());
    details::SWITCH_P_KEY.put(data, packet.pkey);
    details::REFUSING_LID.put(data, lid.get());
    details::REFUSING_PORT.put(data, port);
    let [_, _, _, _, _, _, _, _, rest @ ..] = data;
    write_ends(packet, rest);
    notice
}

/// Writes SL, queue pairs and GIDs, which lie together in traps 257 to 259.
fn write_ends(packet: &Packet, data: &mut [u8]) {
    use crate::bits::Field;

    const SL: Field = Field::bits(0, 4, 4);
    const QP_1: Field = Field::bytes(1, 3);
    const QP_2: Field = Field::bytes(5, 3);
    SL.put(data, packet.sl);
    QP_1.put(data, packet.source_qp());
    QP_2.put(data, packet.dest_qp);
    if let Some(grh) = &packet.grh {
        let gids = grh.sgid.bytes().iter().chain(grh.dgid.bytes());
        for (to, from) in data.iter_mut().skip(8).zip(gids) {
            *to = *from;
        }
    }
}
