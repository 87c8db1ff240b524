// SPDX-License-Identifier: GPL-2.0

//! Packets (section 5.2): the headers that route them, and those of their transport.

use crate::addr::Lid;
use crate::counters::{Counted, Traffic};
use crate::grh::Grh;
use crate::keys::PKey;
use crate::rc::Bth;
use crate::roce::header::{is_group, route_bytes};

/// Bytes of a local route header.
const LRH: u32 = 8;

/// Bytes of a local and a global route header.
const ROUTED: u32 = LRH + Grh::LEN as u32;

/// Bytes of a base transport header and of the ICRC.
const BTH: u32 = 12 + 4;

/// Bytes of a datagram extended transport header.
const DETH: u32 = 8;

/// Bytes of immediate data.
const IMMEDIATE: u32 = 4;

/// Headers of a packet, or of a run of packets of one message. All numbers are in host byte order.
///
/// The packets of a run follow each other with nothing between them. They have the same route, so
/// that nothing on the way needs to look at each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The LID of the sender.
    pub slid: Lid,
    /// The LID of the receiving port or group.
    pub dlid: Lid,
    /// The service level.
    pub sl: u8,
    /// The partition key.
    pub pkey: u16,
    /// The receiving queue pair.
    pub dest_qp: u32,
    /// The global route header, if there is one.
    pub grh: Option<Grh>,
    /// The length of the payload in bytes; in a run, that of its longest packet.
    pub len: u32,
    /// True if it came on virtual lane 15, that of subnet management.
    pub management: bool,
    /// The headers that the queue pairs look at.
    pub transport: Transport,
}

/// Headers of a transport service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// An unreliable datagram (section 9.8.3).
    Ud {
        /// The queue key.
        qkey: u32,
        /// The queue pair of the sender.
        src_qp: u32,
        /// The immediate data, if there are any.
        immediate: Option<u32>,
        /// True if the receiver's solicited event is asked for.
        solicited: bool,
    },
    /// A reliable connection (section 9.7).
    Rc(Bth),
}

impl Transport {
    /// Makes the headers of a datagram without immediate data.
    pub const fn datagram(src_qp: u32, qkey: u32) -> Transport {
        Transport::Ud {
            qkey,
            src_qp,
            immediate: None,
            solicited: false,
        }
    }
}

impl Packet {
    /// Makes the headers of a packet without GRH and payload, on service level 0 in the default partition.
    pub const fn new(slid: Lid, dlid: Lid, dest_qp: u32, transport: Transport) -> Packet {
        Packet {
            slid,
            dlid,
            sl: 0,
            pkey: PKey::DEFAULT.get(),
            dest_qp,
            grh: None,
            len: 0,
            management: false,
            transport,
        }
    }

    /// Returns the queue pair of the sender, which only datagrams name; 0 for others.
    pub fn source_qp(&self) -> u32 {
        match self.transport {
            Transport::Ud { src_qp, .. } => src_qp,
            Transport::Rc(_) => 0,
        }
    }

    /// Returns the queue key, which only datagrams have; 0 for others.
    pub fn qkey(&self) -> u32 {
        match self.transport {
            Transport::Ud { qkey, .. } => qkey,
            Transport::Rc(_) => 0,
        }
    }

    /// Returns what a port counts that sends it.
    pub fn sent(&self) -> Counted {
        Counted::Sent(self.traffic())
    }

    /// Returns true if the packet is one of RoCE v2: it has no LIDs.
    pub fn is_ethernet(&self) -> bool {
        self.dlid == Lid::NONE && self.grh.is_some()
    }

    /// Returns true if the destination is a multicast group: by the DLID, or by the DGID where there are no LIDs.
    pub fn is_multicast(&self) -> bool {
        match &self.grh {
            Some(grh) if self.dlid == Lid::NONE => is_group(&grh.dgid),
            _ => self.dlid.is_multicast(),
        }
    }

    /// Returns what a port counts that it comes to.
    pub fn received(&self) -> Counted {
        Counted::Received(self.traffic())
    }

    fn traffic(&self) -> Traffic {
        Traffic {
            packets: self.packets(),
            bytes: self.wire_bytes(),
            multicast: self.is_multicast(),
        }
    }

    /// Returns the number of packets in the run; 1 if it is a single packet.
    pub fn packets(&self) -> u32 {
        match &self.transport {
            Transport::Ud { .. } => 1,
            Transport::Rc(bth) => bth.packets,
        }
    }

    /// Returns the bytes behind the route headers, from BTH to ICRC, of all packets of the run. Each
    /// payload is padded to whole words.
    pub fn transport_bytes(&self) -> u32 {
        let padded = |bytes: u32| bytes.checked_next_multiple_of(4).unwrap_or(u32::MAX);
        match &self.transport {
            Transport::Ud { immediate, .. } => {
                let headers = if immediate.is_some() {
                    BTH + DETH + IMMEDIATE
                } else {
                    BTH + DETH
                };
                padded(self.len).saturating_add(headers)
            }
            Transport::Rc(bth) => padded(bth.bytes)
                .saturating_add(bth.extended_bytes())
                .saturating_add(BTH.saturating_mul(bth.packets)),
        }
    }

    /// Returns the bytes on the wire, from LRH or the Ethernet header to ICRC, of all packets of the run.
    pub fn wire_bytes(&self) -> u32 {
        let route = match &self.grh {
            Some(grh) if self.is_ethernet() => route_bytes(grh),
            Some(_) => ROUTED,
            None => LRH,
        };
        route
            .saturating_mul(self.packets())
            .saturating_add(self.transport_bytes())
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_packet))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;
    use crate::addr::Gid;
    use crate::rc::{Op, Part, Psn, Tail};

    const DATAGRAM: Packet = Packet {
        len: 5,
        ..Packet::new(Lid::new(1), Lid::new(2), 0x48, Transport::datagram(0x49, 0))
    };

    #[test]
    fn bytes_on_the_wire() {
        let grh = Grh {
            traffic_class: 0,
            flow_label: 0,
            hop_limit: 0,
            sgid: Gid::from_bytes([0; 16]),
            dgid: Gid::from_bytes([0; 16]),
        };
        let run = Bth {
            psn: Psn::new(7),
            packets: 3,
            bytes: 2 * 256 + 2,
            ack_request: true,
            solicited: false,
            op: Op::Send {
                part: Part::ONLY,
                tail: Tail::Immediate(1),
            },
        };
        let immediate = Transport::Ud {
            qkey: 0,
            src_qp: 0,
            immediate: Some(0),
            solicited: false,
        };
        for (transport, packets, bytes) in [
            (DATAGRAM.transport, 1, 8 + 12 + 8 + 8 + 4),
            (immediate, 1, 8 + 12 + 8 + 4 + 8 + 4),
            (Transport::Rc(run), 3, 3 * (8 + 12 + 4) + 4 + 516),
        ] {
            let mut packet = Packet {
                transport,
                ..DATAGRAM
            };
            assert_eq!((packet.packets(), packet.wire_bytes()), (packets, bytes));
            packet.grh = Some(grh);
            assert_eq!(packet.wire_bytes(), bytes + 40 * packets);
        }
    }
}
