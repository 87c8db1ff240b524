// SPDX-License-Identifier: GPL-2.0

//! A subnet manager's view of nodes: nothing but bytes, at offsets from the specification.

#![allow(dead_code, reason = "each test program uses its own part")]

pub(crate) mod net;
pub(crate) mod sweep;

use ib_fabric::{Arrival, Config, Event, Events, Guid, Hca, Lid, Mad, Mtu, Outcome, Verdict};

pub(crate) const GET: u8 = 0x01;
pub(crate) const SET: u8 = 0x02;

pub(crate) const NODE_DESCRIPTION: u16 = 0x10;
pub(crate) const NODE_INFO: u16 = 0x11;
pub(crate) const SWITCH_INFO: u16 = 0x12;
pub(crate) const GUID_INFO: u16 = 0x14;
pub(crate) const PORT_INFO: u16 = 0x15;
pub(crate) const P_KEY_TABLE: u16 = 0x16;
pub(crate) const SL_TO_VL: u16 = 0x17;
pub(crate) const VL_ARBITRATION: u16 = 0x18;
pub(crate) const LINEAR_FORWARDING: u16 = 0x19;
pub(crate) const MULTICAST_FORWARDING: u16 = 0x1b;

pub(crate) const DOWN: u8 = 1;
pub(crate) const INIT: u8 = 2;
pub(crate) const ARMED: u8 = 3;
pub(crate) const ACTIVE: u8 = 4;

/// The way of packets from the wire.
pub(crate) const WIRE: Arrival = Arrival {
    local: false,
    slid: Lid::PERMISSIVE,
    src_qp: 0,
    pkey_index: 0,
};

/// Makes an adapter whose GUIDs count up from `node`.
pub(crate) fn adapter(node: u64, ports: u8) -> Hca {
    Hca::new(&Config {
        link_layer: ib_fabric::LinkLayer::InfiniBand,
        node_guid: Guid::new(node),
        system_guid: Guid::new(node),
        port_guids: [Guid::new(node + 1), Guid::new(node + 2)],
        ports,
        pkeys: 128,
        guids: 32,
        mtu: Mtu::B4096,
        vendor_id: 0x00_0123,
        device_id: 0x4567,
        revision: 0x89ab_cdef,
    })
    .unwrap()
}

/// Connects port 1 of two adapters.
pub(crate) fn connect(a: &mut Hca, b: &mut Hca) {
    let (offer_a, offer_b) = (a.offer(1), b.offer(1));
    assert!(a.link_up(1, &offer_b).is_empty());
    assert!(b.link_up(1, &offer_a).is_empty());
}

/// A request as it is after ib_mad has moved the hop pointer beyond the route.
pub(crate) fn smp(method: u8, attribute: u16, modifier: u32, data: &[u8]) -> Mad {
    let mut mad = [0; 256];
    mad[..4].copy_from_slice(&[1, 0x81, 1, method]);
    mad[6..8].copy_from_slice(&[2, 1]);
    mad[8..16].copy_from_slice(&0x0123_4567_89ab_cdef_u64.to_be_bytes());
    mad[16..18].copy_from_slice(&attribute.to_be_bytes());
    mad[20..24].copy_from_slice(&modifier.to_be_bytes());
    mad[32..36].fill(0xff);
    mad[64..64 + data.len()].copy_from_slice(data);
    mad[129] = 1; // initial path
    mad[193] = 1; // return path
    mad
}

/// The answer to a request: `None` unless there is one.
pub(crate) fn ask(hca: &mut Hca, port: u8, request: &Mad) -> (Outcome, Option<Mad>) {
    let mut reply = [0xee; 256];
    let outcome = hca.process_mad(port, &WIRE, request, &mut reply);
    if outcome.verdict == Verdict::Reply {
        (outcome, Some(reply))
    } else {
        assert_eq!(reply, [0xee; 256]);
        (outcome, None)
    }
}

/// Carries out a request that is to be answered, and checks all of the answer but its data.
/// Returns the status without the direction bit, the data and the outcome.
pub(crate) fn exchange(hca: &mut Hca, port: u8, request: &Mad) -> (u16, [u8; 64], Outcome) {
    let (outcome, reply) = ask(hca, port, request);
    let reply = reply.expect("an answer");
    assert_eq!(reply[3], 0x81);
    assert_eq!(reply[4] >> 7, request[1] >> 7, "the direction bit");
    let mut rest = reply;
    rest[3..6].copy_from_slice(&request[3..6]);
    rest[64..128].copy_from_slice(&request[64..128]);
    assert_eq!(&rest, request);
    let status = u16::from_be_bytes([reply[4] & 0x7f, reply[5]]);
    (status, reply[64..128].try_into().unwrap(), outcome)
}

/// Reads an attribute.
pub(crate) fn get(hca: &mut Hca, attribute: u16, modifier: u32) -> [u8; 64] {
    let (status, data, outcome) = exchange(hca, 1, &smp(GET, attribute, modifier, &[]));
    assert_eq!((status, outcome.retrain), (0, None));
    assert!(outcome.events.is_empty());
    data
}

/// Writes an attribute. Returns the status, the data of the answer and the events.
pub(crate) fn set(
    hca: &mut Hca,
    attribute: u16,
    modifier: u32,
    data: &[u8],
) -> (u16, [u8; 64], Events) {
    let (status, data, outcome) = exchange(hca, 1, &smp(SET, attribute, modifier, data));
    (status, data, outcome.events)
}

/// Reads PortInfo as a subnet manager writes it back: without any state.
pub(crate) fn port_info(hca: &mut Hca) -> [u8; 64] {
    let mut info = get(hca, PORT_INFO, 1);
    info[32] &= 0xf0;
    info[33] &= 0x0f;
    info
}

/// Writes PortInfo. Returns the status and the events.
pub(crate) fn set_port_info(hca: &mut Hca, info: &[u8; 64]) -> (u16, Events) {
    let (status, data, events) = set(hca, PORT_INFO, 1, info);
    if status == 0 {
        assert_eq!(data, get(hca, PORT_INFO, 1), "the resulting settings");
    }
    (status, events)
}

/// Gives a port its LID and the subnet manager's.
pub(crate) fn assign(hca: &mut Hca, lid: u16, sm_lid: u16) -> (u16, Events) {
    let mut info = port_info(hca);
    info[16..18].copy_from_slice(&lid.to_be_bytes());
    info[18..20].copy_from_slice(&sm_lid.to_be_bytes());
    set_port_info(hca, &info)
}

/// Asks for a port state.
pub(crate) fn set_state(hca: &mut Hca, state: u8) -> (u16, Events) {
    let mut info = port_info(hca);
    info[32] |= state;
    set_port_info(hca, &info)
}

/// Returns PortState and PortPhysicalState.
pub(crate) fn states(hca: &mut Hca) -> (u8, u8) {
    let info = get(hca, PORT_INFO, 1);
    (info[32] & 0xf, info[33] >> 4)
}

/// Brings one end of a trained link to Active.
pub(crate) fn bring_up(hca: &mut Hca, lid: u16) {
    assert_eq!(assign(hca, lid, 1).0, 0);
    assert_eq!(set_state(hca, ARMED).0, 0);
    assert_eq!(set_state(hca, ACTIVE).0, 0);
}

/// Checks a set of events, each of which is there once.
pub(crate) fn assert_events(events: Events, expected: &[Event]) {
    let found: Vec<_> = events.iter().collect();
    assert_eq!(found, expected);
}
