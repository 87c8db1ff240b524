// SPDX-License-Identifier: GPL-2.0

//! Checks of bytes that anybody may have sent: as packets, and at the ports that get them. The fuzz
//! targets in `tests/fuzz` use them as well.

use crate::manager::net::{switch, switch_config, Vectors};
use crate::manager::{adapter, bring_up};
use ib_fabric::ud::{port_accepts, qp_accepts};
use ib_fabric::wire::{parse, Head, Malformed};
use ib_fabric::{Arrival, Forward, Hca, PKey, Packet, PortState, Switch, Verdict};

/// Makes the bytes of a single packet.
pub(crate) fn bytes_of(packet: &Packet, payload: &[u8]) -> Vec<u8> {
    let head = Head::new(packet, 0).expect("a packet");
    let mut bytes = vec![0xee; head.len()];
    let done = head.write(&mut bytes, |from, place| {
        place.copy_from_slice(&payload[from..from + place.len()]);
        true
    });
    assert!(done);
    bytes
}

/// Checks that bytes that parse are written as a packet that parses to the same one.
pub(crate) fn reads_as_written(bytes: &[u8]) {
    let parsed = match parse(bytes) {
        Ok(parsed) => parsed,
        Err(reason) => {
            assert!(Malformed::ALL.contains(&reason));
            return;
        }
    };
    assert!(parsed.len <= bytes.len() && parsed.payload.end <= parsed.len);
    assert_eq!(parsed.packet.packets(), 1);
    let again = bytes_of(&parsed.packet, &bytes[parsed.payload.clone()]);
    assert_eq!(again.len(), parsed.len);
    assert_eq!(parse(&again), Ok(parsed));
}

/// An adapter with LID 2 and a switch, whose ports get the packets.
pub(crate) struct Nodes {
    hca: Hca,
    switch: Switch<Vectors>,
}

impl Nodes {
    pub(crate) fn new() -> Nodes {
        let mut hca = adapter(0x10, 1);
        let offer = hca.offer(1);
        hca.link_up(1, &offer);
        bring_up(&mut hca, 2);
        let mut switch = switch(&switch_config(0x20, 3));
        for port in 1..=3 {
            let offer = switch.offer(port);
            switch.link_up(port, &offer);
        }
        Nodes { hca, switch }
    }

    /// Gives both nodes what came by a cable, and checks what leaves.
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        let Ok(parsed) = parse(bytes) else {
            return;
        };
        let payload = &bytes[parsed.payload];
        self.at_adapter(&parsed.packet, payload);
        self.at_switch(&parsed.packet, payload);
    }

    fn at_adapter(&mut self, packet: &Packet, payload: &[u8]) {
        if let Err(reason) = port_accepts(&self.hca, 1, packet) {
            self.hca.discard(1, reason, packet);
            return;
        }
        self.hca.count(1, packet.received());
        let port = self.hca.port(1).expect("port 1");
        assert!(packet.len <= port.active_mtu().bytes());
        let _ = qp_accepts(port, 0, 0x0b1b, packet);
        let Ok(mad) = payload.try_into() else {
            assert!(packet.dest_qp > 1);
            return;
        };
        let arrival = Arrival {
            local: false,
            slid: packet.slid,
            src_qp: packet.source_qp(),
            pkey_index: port.find_pkey(PKey::new(packet.pkey)).unwrap_or(0),
        };
        let mut reply = [0; 256];
        let outcome = self.hca.process_mad(1, &arrival, mad, &mut reply);
        if let Some(port) = outcome.retrain {
            self.hca.link_down(port);
            let offer = self.hca.offer(port);
            self.hca.link_up(port, &offer);
        }
        if outcome.verdict == Verdict::Reply {
            reads_as_written(&bytes_of(packet, &reply[..payload.len()]));
        }
    }

    fn at_switch(&mut self, packet: &Packet, payload: &[u8]) {
        match self.switch.forward(1, packet) {
            Forward::Out(out) => self.is_up(out),
            Forward::Flood(ports) => {
                for port in ports {
                    self.is_up(port);
                }
            }
            Forward::Manage => {
                let mut mad = [0; 256];
                for (to, from) in mad.iter_mut().zip(payload) {
                    *to = *from;
                }
                let mut packet = *packet;
                let managed = self.switch.manage(1, &mut packet, &mut mad);
                if managed.out.is_some() {
                    reads_as_written(&bytes_of(&packet, &mad));
                }
                if let Some(port) = managed.retrain {
                    let offer = self.switch.offer(port);
                    self.switch.link_up(port, &offer);
                }
            }
            Forward::Drop => {}
        }
    }

    fn is_up(&self, port: u8) {
        let port = self.switch.port(port).expect("a port of the switch");
        assert!(port.state() > PortState::Down);
    }
}
