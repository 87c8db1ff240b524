// SPDX-License-Identifier: GPL-2.0

//! Tallies of a node's ports in debugfs, and tracepoints.

use core::fmt::{self, Write};

use debugfs_files::{Dir, File, Show, Text};
use ib_fabric::{Discard, Packet, PhysState, Port, PortState, Tally};
use kernel::prelude::*;
use kernel::str::CString;
use kernel::sync::Arc;
use packet_trace::Place;
use rdma_provider::{Kind, State};

use crate::host::Host;
use crate::node::Node;
use crate::qps::ROOM;
use crate::LocalModule;

/// Tallies of a node's ports. They are counted under a lock that is held there anyway.
pub(crate) struct Stats {
    /// Name in traces: that of the fabric, a slash, and that of the node.
    name: CString,
    /// By the number of the port, from 0.
    ports: KVec<Tally>,
}

impl Stats {
    /// Tallies of a node with ports up to a number.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(name: CString, ports: u8) -> Result<Self> {
        let mut list = KVec::with_capacity(usize::from(ports) + 1, GFP_KERNEL)?;
        for _ in 0..=ports {
            list.push(Tally::default(), GFP_KERNEL)?;
        }
        Ok(Self { name, ports: list })
    }

    fn place(&self, port: u8) -> Place<'_> {
        let node = &self.name;
        Place { node, port }
    }

    fn with(&mut self, port: u8, count: impl FnOnce(&mut Tally)) {
        if let Some(tally) = self.ports.get_mut(usize::from(port)) {
            count(tally);
        }
    }

    /// A packet leaves by a port. `src_qp` is the sender's queue pair where the packet does not name it.
    pub(crate) fn sent(&mut self, port: u8, packet: &Packet, src_qp: Option<u32>) {
        packet_trace::tx(self.place(port), packet, src_qp);
        self.with(port, |tally| tally.sent(packet));
    }

    /// A packet comes in by a port.
    pub(crate) fn received(&mut self, port: u8, packet: &Packet) {
        packet_trace::rx(self.place(port), packet);
        self.with(port, |tally| tally.received(packet));
    }

    /// See [`Tally::own`].
    pub(crate) fn own(&mut self, port: u8, packet: &Packet) {
        self.with(port, |tally| tally.own(packet));
    }

    /// See [`Tally::copied`].
    pub(crate) fn copied(&mut self, port: u8, packet: &Packet, n: u32) {
        self.with(port, |tally| tally.copied(packet, n));
    }

    /// See [`Tally::delivered`].
    pub(crate) fn delivered(&mut self, port: u8, packet: &Packet) {
        self.with(port, |tally| tally.delivered(packet));
    }

    /// See [`Tally::not_delivered`].
    pub(crate) fn not_delivered(&mut self, port: u8, packet: &Packet) {
        self.with(port, |tally| tally.not_delivered(packet));
    }

    /// A packet is dropped at a port.
    pub(crate) fn dropped(&mut self, port: u8, reason: Discard, packet: &Packet) {
        packet_trace::dropped(self.place(port), packet, reason.label());
        self.with(port, |tally| tally.dropped(reason, packet));
    }

    /// See [`Tally::unsent`].
    pub(crate) fn unsent(&mut self, port: u8, n: u32) {
        self.with(port, |tally| tally.unsent(n));
    }

    /// See [`Tally::lost`].
    pub(crate) fn lost(&mut self, port: u8, n: u32) {
        self.with(port, |tally| tally.lost(n));
    }

    /// See [`Tally::doubled`].
    pub(crate) fn doubled(&mut self, port: u8) {
        self.with(port, Tally::doubled);
    }

    /// See [`Tally::trap`].
    pub(crate) fn trap(&mut self, port: u8) {
        self.with(port, Tally::trap);
    }

    /// A port's link has gone down, if it was up before.
    pub(crate) fn link_down(&mut self, port: u8, before: Option<PortState>) {
        if before.is_some_and(|state| state != PortState::Down) {
            self.with(port, Tally::link_down);
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
    state: PortState,
    phys: PhysState,
    lid: u16,
    tally: Tally,
}

/// A file of a port: a line for each counter, with a colon behind its name.
struct PortFile {
    node: Node,
    port: u8,
}

impl Show for PortFile {
    type Module = LocalModule;

    fn show(&self, out: &mut Text<'_>) -> fmt::Result {
        let Some(view) = self.node.view(self.port) else {
            return Ok(());
        };
        writeln!(out, "state: {:?}", view.state)?;
        writeln!(out, "phys_state: {:?}", view.phys)?;
        writeln!(out, "lid: {:#x}", view.lid)?;
        view.tally.print(out)
    }
}

/// The file of an adapter's queue pairs: a table with a line for each.
struct QpFile(Arc<Host>);

/// Names of its columns, which are as wide as these or as ten digits.
const COLUMNS: [&str; 16] = [
    "sends_posted",
    "sends_completed",
    "sends_flushed",
    "bytes_sent",
    "receives_posted",
    "receives_completed",
    "receives_flushed",
    "bytes_received",
    "retries",
    "timeouts",
    "rnr_naks_received",
    "rnr_naks_sent",
    "seq_naks_received",
    "seq_naks_sent",
    "early",
    "duplicates",
];

fn width(name: &str) -> usize {
    name.len().max(10)
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Smi => "SMI",
        Kind::Gsi => "GSI",
        Kind::Ud => "UD",
        Kind::Rc => "RC",
    }
}

/// The name that `rdma resource` has for a state.
fn state(state: State) -> &'static str {
    match state {
        State::Reset => "RESET",
        State::Init => "INIT",
        State::ReadyToReceive => "RTR",
        State::ReadyToSend => "RTS",
        State::SendQueueDrained => "SQD",
        State::SendQueueError => "SQE",
        State::Error => "ERR",
    }
}

impl Show for QpFile {
    type Module = LocalModule;

    fn show(&self, out: &mut Text<'_>) -> fmt::Result {
        write!(
            out,
            "{:>8} {:>4} {:>5} {:>4}",
            "qpn", "kind", "state", "port"
        )?;
        for name in COLUMNS {
            write!(out, " {name:>0$}", width(name))?;
        }
        writeln!(out)?;
        for place in 0..ROOM {
            let qp = self.0.qps.lock().at(place);
            let Some(qp) = qp else {
                continue;
            };
            let tally = qp.tally();
            let (number, port) = (qp.number(), qp.first_port());
            let (kind, state) = (kind(qp.kind()), state(tally.state));
            write!(out, "{number:#08x} {kind:>4} {state:>5} {port:>4}")?;
            let (sends, receives) = (tally.sends, tally.receives);
            let (requester, responder) = (tally.requester, tally.responder);
            let numbers = [
                sends.posted,
                sends.completed,
                sends.flushed,
                sends.bytes,
                receives.posted,
                receives.completed,
                receives.flushed,
                receives.bytes,
                requester.retries,
                requester.timeouts,
                requester.rnr_naks,
                responder.rnr_naks,
                requester.sequence_naks,
                responder.sequence_naks,
                responder.early,
                responder.duplicates,
            ];
            for (name, n) in COLUMNS.iter().zip(numbers) {
                write!(out, " {n:>0$}", width(name))?;
            }
            writeln!(out)?;
        }
        Ok(())
    }
}

/// The files of a node that is switched on.
pub(crate) struct NodeFiles {
    _ports: KVec<File<PortFile>>,
    _qps: Option<File<QpFile>>,
}

impl NodeFiles {
    /// Makes them in a new directory of the fabric's.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub(crate) fn new(fabric: &Arc<Dir>, name: &str, node: &Node, last: u8) -> Result<Self> {
        let name = CString::try_from_fmt(fmt!("{name}"))?;
        let dir = Dir::new(&name, Some(fabric))?;
        let (first, qps) = match node {
            Node::Host(host) => (1, Some(File::new(c"qps", &dir, QpFile(host.clone()))?)),
            Node::Switch(_) | Node::Trunk(_) => (0, None),
        };
        let mut ports = KVec::new();
        for port in first..=last {
            let name = CString::try_from_fmt(fmt!("port{port}"))?;
            let node = node.clone();
            let file = File::new(&name, &dir, PortFile { node, port })?;
            ports.push(file, GFP_KERNEL)?;
        }
        Ok(Self {
            _ports: ports,
            _qps: qps,
        })
    }
}
