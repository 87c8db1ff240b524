// SPDX-License-Identifier: GPL-2.0

//! Tallies of a node's ports, and tracepoints.

use ib_fabric::{Discard, Packet, PhysState, Port, PortState, Tally};
use kernel::prelude::*;
use kernel::str::CString;
use packet_trace::Place;

/// Tallies of a node's ports. They are counted under a lock that is held there anyway.
pub(crate) struct Stats {
    /// Name in traces: that of the fabric, a slash, and that of the node.
    name: CString,
    /// By the number of the port, from 0; the last one is of ports that do not exist.
    ports: KVec<Tally>,
}

impl Stats {
    /// Tallies of a node with ports up to a number.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(name: CString, ports: u8) -> Result<Self> {
        let ports = KVec::from_elem(Tally::default(), usize::from(ports) + 2, GFP_KERNEL)?;
        Ok(Self { name, ports })
    }

    fn place(&self, port: u8) -> Place<'_> {
        let node = &self.name;
        Place { node, port }
    }

    /// The tallies of a port.
    #[inline]
    pub(crate) fn of(&mut self, port: u8) -> &mut Tally {
        let last = self.ports.len() - 1;
        &mut self.ports[usize::from(port).min(last)]
    }

    /// A packet leaves by a port. `src_qp` is the sender's queue pair where the packet does not name it.
    pub(crate) fn sent(&mut self, port: u8, packet: &Packet, src_qp: Option<u32>) {
        packet_trace::tx(self.place(port), packet, src_qp);
        self.of(port).sent(packet);
    }

    /// A packet comes in by a port.
    pub(crate) fn received(&mut self, port: u8, packet: &Packet) {
        packet_trace::rx(self.place(port), packet);
        self.of(port).received(packet);
    }

    /// A packet is dropped at a port.
    pub(crate) fn dropped(&mut self, port: u8, reason: Discard, packet: &Packet) {
        packet_trace::dropped(self.place(port), packet, reason.as_c_str());
        self.of(port).dropped(reason, packet);
    }

    /// A port's link has gone down, if it was up before.
    pub(crate) fn link_down(&mut self, port: u8, before: Option<PortState>) {
        if before.is_some_and(|state| state != PortState::Down) {
            self.of(port).link_down();
        }
    }

    /// A copy of a port, and of its tallies.
    pub(crate) fn view(&self, port: Option<&Port>, number: u8) -> Option<View> {
        let port = port?;
        Some(View {
            state: port.state(),
            phys: port.phys_state(),
            lid: port.lid().get(),
            tally: self.ports.get(usize::from(number))?.clone(),
        })
    }
}

/// A port at a moment.
pub(crate) struct View {
    pub(crate) state: PortState,
    pub(crate) phys: PhysState,
    pub(crate) lid: u16,
    pub(crate) tally: Tally,
}
