// SPDX-License-Identifier: GPL-2.0

//! Management datagrams: the common header (section 13.4.3), subnet management packets by LID
//! (14.2.1.1) and by directed route (14.2.1.2), and where performance management has its data.

use crate::addr::Lid;
use crate::bits::Field;

/// A management datagram as it stands on the wire.
pub type Mad = [u8; 256];

/// The base version of all management datagrams.
pub const BASE_VERSION: u8 = 1;

/// The version of the subnet management and the performance management class.
pub const CLASS_VERSION: u8 = 1;

/// A management class that a node answers itself (section 13.4.4).
pub mod class {
    /// Subnet management, routed by LID.
    pub const SUBNET_LID: u8 = 0x01;
    /// Performance management.
    pub const PERFORMANCE: u8 = 0x04;
    /// Subnet management by directed route.
    pub const SUBNET_DIRECTED: u8 = 0x81;
}

/// A method that a node answers itself, or that it uses (section 13.4.5).
pub mod method {
    /// Reads an attribute.
    pub const GET: u8 = 0x01;
    /// Writes an attribute.
    pub const SET: u8 = 0x02;
    /// Tells the subnet manager of something.
    pub const TRAP: u8 = 0x05;
    /// Answers that, so that it is not told again.
    pub const TRAP_REPRESS: u8 = 0x07;
    /// Answers Get or Set.
    pub const GET_RESP: u8 = 0x81;
}

/// An attribute of subnet management (section 14.2.5) or performance management (16.1.3).
pub mod attribute {
    /// Abilities of a class agent.
    pub const CLASS_PORT_INFO: u16 = 0x0001;
    /// Data of a trap.
    pub const NOTICE: u16 = 0x0002;
    /// Name of the node.
    pub const NODE_DESCRIPTION: u16 = 0x0010;
    /// Constants of the node.
    pub const NODE_INFO: u16 = 0x0011;
    /// Counters of a port, of up to 32 bits.
    pub const PORT_COUNTERS: u16 = 0x0012;
    /// Constants and settings of a switch; the number means this in subnet management.
    pub const SWITCH_INFO: u16 = 0x0012;
    /// GUIDs of a port.
    pub const GUID_INFO: u16 = 0x0014;
    /// Settings of a port.
    pub const PORT_INFO: u16 = 0x0015;
    /// Partition keys of a port.
    pub const P_KEY_TABLE: u16 = 0x0016;
    /// Virtual lanes of the service levels.
    pub const SL_TO_VL: u16 = 0x0017;
    /// Weights of the virtual lanes.
    pub const VL_ARBITRATION: u16 = 0x0018;
    /// Ports of unicast LIDs.
    pub const LINEAR_FORWARDING: u16 = 0x0019;
    /// Ports of multicast LIDs.
    pub const MULTICAST_FORWARDING: u16 = 0x001b;
    /// Counters of a port, of 64 bits.
    pub const PORT_COUNTERS_EXTENDED: u16 = 0x001d;
    /// State of a subnet manager.
    pub const SM_INFO: u16 = 0x0020;
}

/// A reason to refuse a request: the code in the status of the response (section 13.4.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Status {
    /// The agent has another base or class version.
    BadVersion = 0x04,
    /// The attribute does not exist or does not have this method.
    MethodAttribute = 0x0c,
    /// A field of the attribute or its modifier has an invalid value.
    InvalidField = 0x1c,
}

/// The status bit of a directed-route packet on its way back (section 14.2.1.2).
pub const DIRECTION: u16 = 0x8000;

/// The header that all management datagrams begin with. All numbers are in host byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The base version.
    pub base_version: u8,
    /// The management class.
    pub class: u8,
    /// The version of the class.
    pub class_version: u8,
    /// The method, including the response bit.
    pub method: u8,
    /// The status; in directed-route packets, bit 15 is the direction.
    pub status: u16,
    /// The two bytes that each class defines: hop pointer and hop count of a directed route.
    pub class_specific: u16,
    /// The transaction, chosen by the requester.
    pub transaction: u64,
    /// The attribute.
    pub attribute: u16,
    /// The modifier of the attribute.
    pub modifier: u32,
}

mod field {
    use super::Field;

    pub(super) const BASE_VERSION: Field = Field::bytes(0, 1);
    pub(super) const CLASS: Field = Field::bytes(1, 1);
    pub(super) const CLASS_VERSION: Field = Field::bytes(2, 1);
    pub(super) const METHOD: Field = Field::bytes(3, 1);
    pub(super) const STATUS: Field = Field::bytes(4, 2);
    pub(super) const CLASS_SPECIFIC: Field = Field::bytes(6, 2);
    pub(super) const HOP_POINTER: Field = Field::bytes(6, 1);
    pub(super) const HOP_COUNT: Field = Field::bytes(7, 1);
    pub(super) const TRANSACTION: Field = Field::bytes(8, 8);
    pub(super) const ATTRIBUTE: Field = Field::bytes(16, 2);
    pub(super) const MODIFIER: Field = Field::bytes(20, 4);
    pub(super) const M_KEY: Field = Field::bytes(24, 8);
    pub(super) const DR_SLID: Field = Field::bytes(32, 2);
    pub(super) const DR_DLID: Field = Field::bytes(34, 2);
}

impl Header {
    /// Reads the header of a datagram. All values of all fields are possible.
    pub fn parse(mad: &Mad) -> Header {
        Header {
            base_version: field::BASE_VERSION.u8(mad),
            class: field::CLASS.u8(mad),
            class_version: field::CLASS_VERSION.u8(mad),
            method: field::METHOD.u8(mad),
            status: field::STATUS.u16(mad),
            class_specific: field::CLASS_SPECIFIC.u16(mad),
            transaction: field::TRANSACTION.u64(mad),
            attribute: field::ATTRIBUTE.u16(mad),
            modifier: field::MODIFIER.u32(mad),
        }
    }

    /// Writes the header into a datagram; its reserved bytes stay.
    pub fn write(&self, mad: &mut Mad) {
        field::BASE_VERSION.put(mad, self.base_version);
        field::CLASS.put(mad, self.class);
        field::CLASS_VERSION.put(mad, self.class_version);
        field::METHOD.put(mad, self.method);
        field::STATUS.put(mad, self.status);
        field::CLASS_SPECIFIC.put(mad, self.class_specific);
        field::TRANSACTION.put(mad, self.transaction);
        field::ATTRIBUTE.put(mad, self.attribute);
        field::MODIFIER.put(mad, self.modifier);
    }

    /// Returns true if the versions are those of the classes here.
    pub fn version_matches(&self) -> bool {
        (self.base_version, self.class_version) == (BASE_VERSION, CLASS_VERSION)
    }

    /// Returns whether it is a Set; `None` if it is no Get either.
    pub fn is_set(&self) -> Option<bool> {
        match self.method {
            method::GET => Some(false),
            method::SET => Some(true),
            _ => None,
        }
    }

    /// Returns the header of the response. A directed route gets the direction bit, and its hop
    /// pointer stays where the request has it: the sender moves it.
    pub fn response(&self, status: Option<Status>) -> Header {
        let direction = if self.class == class::SUBNET_DIRECTED {
            DIRECTION
        } else {
            0
        };
        Header {
            base_version: BASE_VERSION,
            class_version: CLASS_VERSION,
            method: method::GET_RESP,
            status: direction | status.map_or(0, |status| status as u16),
            ..*self
        }
    }
}

/// The route of a directed-route packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectedRoute {
    /// The position on the route.
    pub hop_pointer: u8,
    /// The length of the route.
    pub hop_count: u8,
    /// The LID at which the route begins; permissive if there is no LID-routed part before it.
    pub slid: Lid,
    /// The LID to which the packet goes at the end; permissive if there is no such part.
    pub dlid: Lid,
    /// True if the packet is on its way back.
    pub returning: bool,
}

impl DirectedRoute {
    /// The longest route (section 14.2.2, C14-6).
    pub const MAX_HOPS: u8 = 63;

    /// Reads the route of a directed-route packet.
    pub fn parse(mad: &Mad) -> DirectedRoute {
        DirectedRoute {
            hop_pointer: field::HOP_POINTER.u8(mad),
            hop_count: field::HOP_COUNT.u8(mad),
            slid: Lid::new(field::DR_SLID.u16(mad)),
            dlid: Lid::new(field::DR_DLID.u16(mad)),
            returning: field::STATUS.u16(mad) & DIRECTION != 0,
        }
    }

    /// Writes the position on the route into a directed-route packet.
    pub fn set_hop_pointer(mad: &mut Mad, hop_pointer: u8) {
        field::HOP_POINTER.put(mad, hop_pointer);
    }

    /// Returns true if an outgoing packet has come to the end of its route, beyond the last hop: the
    /// agent there answers it (section 14.2.2.2, C14-9:4).
    pub fn has_arrived(&self) -> bool {
        !self.returning
            && self.hop_count <= DirectedRoute::MAX_HOPS
            && self.hop_pointer == self.hop_count.saturating_add(1)
    }
}

/// Returns the management key of a subnet management packet.
pub fn m_key(mad: &Mad) -> u64 {
    field::M_KEY.u64(mad)
}

/// Returns the ports by which a directed-route packet leaves; the first is unused.
pub fn initial_path(mad: &Mad) -> &[u8] {
    mad.get(128..192).unwrap_or_default()
}

/// Returns the ports by which a directed-route packet goes back; the first is unused.
pub fn return_path(mad: &Mad) -> &[u8] {
    mad.get(192..256).unwrap_or_default()
}

/// Notes the port by which a directed-route packet goes back over a hop.
pub fn set_return_port(mad: &mut Mad, hop: u8, port: u8) {
    let path = mad.get_mut(192..256).unwrap_or_default();
    if let Some(place) = path.get_mut(usize::from(hop)) {
        *place = port;
    }
}

/// Returns the 64 bytes of data of a subnet management packet, on either route.
pub fn smp_data(mad: &Mad) -> &[u8] {
    mad.get(64..128).unwrap_or_default()
}

/// Returns the 64 bytes of data of a subnet management packet, on either route.
pub fn smp_data_mut(mad: &mut Mad) -> &mut [u8] {
    mad.get_mut(64..128).unwrap_or_default()
}

/// Returns the 192 bytes of data of a performance management datagram (section 16.1.1).
pub fn pm_data(mad: &Mad) -> &[u8] {
    mad.get(64..256).unwrap_or_default()
}

/// Returns the 192 bytes of data of a performance management datagram (section 16.1.1).
pub fn pm_data_mut(mad: &mut Mad) -> &mut [u8] {
    mad.get_mut(64..256).unwrap_or_default()
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_mad))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    /// Get(PortInfo) by directed route after two hops, written out by hand.
    fn request() -> Mad {
        let mut mad = [0; 256];
        mad[..24].copy_from_slice(&[
            0x01, 0x81, 0x01, 0x01, 0x00, 0x00, 0x03, 0x02, // versions, method, status, hops
            0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, // transaction
            0x00, 0x15, 0xab, 0xcd, 0x80, 0x00, 0x00, 0x01, // attribute, reserved, modifier
        ]);
        mad[24..32].copy_from_slice(&[0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 7]);
        mad[32..36].copy_from_slice(&[0xff, 0xff, 0x00, 0x09]);
        mad
    }

    #[test]
    fn header_of_section_13_4_3() {
        let header = Header::parse(&request());
        assert_eq!(header.class, class::SUBNET_DIRECTED);
        assert_eq!(header.method, method::GET);
        assert_eq!(header.class_specific, 0x0302);
        assert_eq!(header.transaction, 0x1122_3344_5566_7788);
        assert_eq!(header.attribute, attribute::PORT_INFO);
        assert_eq!(header.modifier, 0x8000_0001);
        assert!(header.version_matches());

        let mut copy = request();
        header.write(&mut copy);
        assert_eq!(copy, request());
    }

    #[test]
    fn response_keeps_all_but_method_and_status() {
        let request = request();
        let mut response = request;
        let refusal = Some(Status::InvalidField);
        Header::parse(&request)
            .response(refusal)
            .write(&mut response);
        assert_eq!(response[3..6], [0x81, 0x80, 0x1c]);
        response[3..6].copy_from_slice(&request[3..6]);
        assert_eq!(response, request);

        let by_lid = Header {
            class: class::SUBNET_LID,
            ..Header::parse(&request)
        };
        assert_eq!(by_lid.response(None).status, 0);
    }

    #[test]
    fn route_of_section_14_2_1_2() {
        let route = DirectedRoute::parse(&request());
        assert_eq!((route.hop_pointer, route.hop_count), (3, 2));
        assert_eq!(route.slid, Lid::PERMISSIVE);
        assert_eq!(route.dlid, Lid::new(9));
        assert!(!route.returning);
        assert_eq!(m_key(&request()), 0xdead_beef_0000_0007);
    }

    #[test]
    fn arrival_is_one_beyond_the_last_hop() {
        // hop pointer, hop count, returning, whether arrived
        let cases = [
            (1, 0, false, true),
            (3, 2, false, true),
            (64, 63, false, true),
            (65, 64, false, false),
            (255, 255, false, false),
            (2, 2, false, false),
            (0, 0, false, false),
            (3, 2, true, false),
        ];
        for (hop_pointer, hop_count, returning, arrived) in cases {
            let route = DirectedRoute {
                hop_pointer,
                hop_count,
                returning,
                ..DirectedRoute::parse(&request())
            };
            assert_eq!(route.has_arrived(), arrived);
        }
    }

    #[test]
    fn data_lies_where_the_classes_have_it() {
        let mut mad = [0; 256];
        smp_data_mut(&mut mad).fill(1);
        assert_eq!((mad[63], mad[64], mad[127], mad[128]), (0, 1, 1, 0));
        assert_eq!(smp_data(&mad).len(), 64);
        pm_data_mut(&mut mad).fill(2);
        assert_eq!((mad[63], mad[64], mad[255]), (0, 2, 2));
        assert_eq!(pm_data(&mad).len(), 192);
    }
}
