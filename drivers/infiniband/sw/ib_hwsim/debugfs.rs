// SPDX-License-Identifier: GPL-2.0

//! Files of nodes in debugfs: tallies of ports, and queue pairs.

use core::fmt::{self, Write};

use debugfs_files::{Dir, File, Show, Text};
use kernel::prelude::*;
use kernel::str::CString;
use kernel::sync::Arc;
use rdma_provider::{Kind, QpTally, State};

use crate::host::Host;
use crate::node::Node;
use crate::qps::ROOM;
use crate::LocalModule;

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

/// A column: its name, and its number.
type Column = (&'static str, fn(&QpTally) -> u64);

/// Its columns behind the first four, which are as wide as their names or as ten digits.
const COLUMNS: [Column; 16] = [
    ("sends_posted", |tally| tally.sends.posted),
    ("sends_completed", |tally| tally.sends.completed),
    ("sends_flushed", |tally| tally.sends.flushed),
    ("bytes_sent", |tally| tally.sends.bytes),
    ("receives_posted", |tally| tally.receives.posted),
    ("receives_completed", |tally| tally.receives.completed),
    ("receives_flushed", |tally| tally.receives.flushed),
    ("bytes_received", |tally| tally.receives.bytes),
    ("retries", |tally| tally.requester.retries),
    ("timeouts", |tally| tally.requester.timeouts),
    ("rnr_naks_received", |tally| tally.requester.rnr_naks),
    ("rnr_naks_sent", |tally| tally.responder.rnr_naks),
    ("seq_naks_received", |tally| tally.requester.sequence_naks),
    ("seq_naks_sent", |tally| tally.responder.sequence_naks),
    ("early", |tally| tally.responder.early),
    ("duplicates", |tally| tally.responder.duplicates),
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
        for (name, _) in COLUMNS {
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
            for (name, number) in COLUMNS {
                write!(out, " {:>1$}", number(&tally), width(name))?;
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
