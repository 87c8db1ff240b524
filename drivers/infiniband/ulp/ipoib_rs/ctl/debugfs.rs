// SPDX-License-Identifier: GPL-2.0

//! `/sys/kernel/debug/ipoib_rs/<interface>/`: tables of an interface's peers.
//!
//! Each file is a table with a heading. Rows are copied while their owner is locked, and printed afterwards.

use ipoib_netdev::clock::now_ms;
use ipoib_netdev::debugfs::{Inspect, Show};
use ipoib_netdev::device::Device;
use ipoib_proto::admission::Origin;
use ipoib_proto::gid::Gid;
use ipoib_proto::hwaddr::HwAddr;
use ipoib_proto::mgid::Mgid;
use ipoib_rdma::ah::Route;
use kernel::fmt;
use kernel::prelude::*;
use kernel::seq_file::SeqFile;
use kernel::seq_print;
use kernel::str::{BStr, CStr};

use crate::base::interface::Interface;
use crate::data::rx;
use crate::rc::conn::Conn;
use crate::rc::table::MOST;
use crate::ud::paths::Destinations;

/// Room for rows that are added between counting and copying.
const SPARE: usize = 16;

/// Shows the sources of numbered frames. One that is named by its LID is shown with the GID of its connection, if it has
/// one.
fn show_sources(dev: &Device<Interface>, out: &SeqFile) -> Result {
    let known = dev.data().counters.sequence.sources.get();
    let mut sources = with_room(usize::try_from(known)?)?;
    let mut gids = with_room(MOST)?;
    // None while the interface is down.
    let _ = rx::ask(dev, |poll| {
        poll.order().note_sources(&mut sources);
        if let Some(connections) = poll.connections() {
            connections.note_gids(&mut gids);
        }
    });
    seq_print!(
        out,
        "gid qpn in_order reordered late held filled moved timed_out duplicates resyncs \
         holding established idle_ms\n"
    );
    for row in &sources {
        let gid = gids.iter().find(|(source, _)| *source == row.address);
        let gid = gid.map_or(row.address.gid(), |(_, gid)| *gid);
        seq_print!(out, "{gid} {}", row.address.qpn());
        for value in row.counts.values() {
            seq_print!(out, " {value}");
        }
        let (holding, established) = (row.holding, u8::from(row.established));
        seq_print!(out, " {holding} {established} {}\n", row.idle_ms);
    }
    Ok(())
}

/// The path to a peer.
struct Path {
    address: HwAddr,
    state: &'static str,
    waiting: usize,
    idle_ms: u64,
}

/// A multicast group.
struct Group {
    mgid: Mgid,
    state: &'static str,
    wanted: bool,
    waiting: usize,
}

fn with_room<T>(known: usize) -> Result<KVVec<T>> {
    Ok(KVVec::with_capacity(
        known.saturating_add(SPARE),
        GFP_KERNEL,
    )?)
}

/// Copies `len` rows about destinations, and a few more, under the transmit lock. There are none while the
/// interface is down.
fn copy<T>(
    dev: &Device<Interface>,
    len: impl Fn(&Destinations) -> usize,
    each: impl Fn(&Destinations, &mut dyn FnMut(T) -> bool),
) -> Result<KVVec<T>> {
    let known = dev
        .lock_tx()
        .as_ref()
        .map_or(0, |tx| len(&tx.ud.destinations));
    let mut rows = with_room(known)?;
    if let Some(tx) = dev.lock_tx().as_ref() {
        each(&tx.ud.destinations, &mut |row| {
            rows.push_within_capacity(row).is_ok()
        });
    }
    Ok(rows)
}

fn show_paths(dev: &Device<Interface>, out: &SeqFile) -> Result {
    let now = now_ms();
    let rows = copy(dev, Destinations::path_count, |destinations, note| {
        let _ = destinations.paths().all(|path| {
            note(Path {
                address: *path.addr(),
                state: path.state(),
                waiting: path.waiting(),
                idle_ms: path.unused_for(now),
            })
        });
    })?;
    seq_print!(out, "gid qpn flags state waiting idle_ms\n");
    for row in &rows {
        let Path { address, state, .. } = row;
        seq_print!(out, "{} {} ", address.gid(), address.qpn());
        let (flags, waiting) = (address.flags().0, row.waiting);
        seq_print!(out, "{flags:#04x} {state} {waiting} {}\n", row.idle_ms);
    }
    Ok(())
}

fn groups(dev: &Device<Interface>) -> Result<KVVec<Group>> {
    copy(dev, Destinations::group_count, |destinations, note| {
        let _ = destinations.groups().all(|group| {
            note(Group {
                mgid: *group.mgid(),
                state: group.state(),
                wanted: group.is_wanted(),
                waiting: group.waiting(),
            })
        });
    })
}

fn show_groups(dev: &Device<Interface>, out: &SeqFile) -> Result {
    let rows = groups(dev)?;
    seq_print!(out, "mgid state wanted waiting\n");
    for row in &rows {
        let (mgid, wanted) = (row.mgid.gid(), u8::from(row.wanted));
        seq_print!(out, "{mgid} {} {wanted} {}\n", row.state, row.waiting);
    }
    Ok(())
}

/// A GID as the C driver prints it: eight groups of digits, none left out.
struct Plain(Gid);

impl fmt::Display for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, pair) in self.0 .0.chunks_exact(2).enumerate() {
            let [high, low] = *pair else {
                continue;
            };
            let colon = if at == 0 { "" } else { ":" };
            write!(f, "{colon}{:x}", u16::from_be_bytes([high, low]))?;
        }
        Ok(())
    }
}

/// Shows the groups in the format of the C driver's `<interface>_mcg`, less the time when they were made.
fn show_mcg(dev: &Device<Interface>, out: &SeqFile) -> Result {
    let yes_or_no = |yes| if yes { "yes" } else { "no" };
    for row in &groups(dev)? {
        let (complete, send_only) = match row.state {
            "joined" => (true, false),
            "send-only" => (true, true),
            _ => (false, !row.wanted),
        };
        seq_print!(out, "GID: {}\n", Plain(row.mgid.gid()));
        seq_print!(out, "  queuelen: {:9}\n", row.waiting);
        seq_print!(out, "  complete: {:>9}\n", yes_or_no(complete));
        seq_print!(out, "  send_only: {:>8}\n\n", yes_or_no(send_only));
    }
    Ok(())
}

/// Shows the paths in the format of the C driver's `<interface>_path`.
fn show_path(dev: &Device<Interface>, out: &SeqFile) -> Result {
    let rows = copy(dev, Destinations::path_count, |destinations, note| {
        let _ = destinations.paths().all(|path| {
            let route = path.handle().map(|ah| *ah.route());
            note((path.addr().gid(), route))
        });
    })?;
    for (gid, route) in &rows {
        let complete = if route.is_some() { "yes" } else { "no" };
        seq_print!(out, "GID: {}\n  complete: {complete:>6}\n", Plain(*gid));
        if let Some(Route::Path(record)) = route {
            let (mbps, sl) = (record.rate_mbps(), record.sl());
            seq_print!(out, "  DLID:     {:#06x}\n  SL: {sl:12}\n", record.dlid());
            seq_print!(out, "  rate: {:8}.{} Gb/sec\n", mbps / 1000, mbps % 1000);
        }
        seq_print!(out, "\n");
    }
    Ok(())
}

/// A reliable connection, or a peer without one.
struct Connection {
    address: HwAddr,
    number: u8,
    state: &'static str,
    age_ms: u64,
    mtu: u32,
    may_send: u16,
    window: u16,
    waiting: usize,
    tx_frames: u64,
    tx_bytes: u64,
    rx_frames: u64,
    rx_bytes: u64,
    /// Where the request came from, on InfiniBand.
    lid: Option<u16>,
}

impl Connection {
    fn new(address: HwAddr, number: u8, state: &'static str, rc: Option<&Conn>, now: u64) -> Self {
        let mut row = Connection {
            address,
            number,
            state,
            age_ms: 0,
            mtu: 0,
            may_send: 0,
            window: 0,
            waiting: 0,
            tx_frames: 0,
            tx_bytes: 0,
            rx_frames: 0,
            rx_bytes: 0,
            lid: None,
        };
        if let Some(rc) = rc {
            if let Some(Origin::Lid(lid)) = rc.id.origin {
                row.lid = Some(lid);
            }
            row.age_ms = now.saturating_sub(rc.since);
            row.window = rc.window.width;
            row.tx_frames = rc.flow.sent.frames.get();
            row.tx_bytes = rc.flow.sent.bytes.get();
            row.rx_frames = rc.flow.received.frames.get();
            row.rx_bytes = rc.flow.received.bytes.get();
        }
        row
    }
}

fn show_connections(dev: &Device<Interface>, out: &SeqFile) -> Result {
    let now = now_ms();
    let mut rows = with_room(MOST)?;
    if let Some(connections) = dev
        .lock_tx()
        .as_ref()
        .and_then(|tx| Some(&tx.rc.as_ref()?.connections))
    {
        for channel in connections.iter() {
            let (machine, rc) = (&channel.machine, channel.machine.present());
            let rc = rc.map(|rc| &**rc);
            let (address, number) = (channel.address, channel.number);
            let mut row = Connection::new(address, number, machine.state(), rc, now);
            row.mtu = channel.terms.mtu;
            row.waiting = channel.backlog.len();
            row.may_send = rc.map_or(0, |rc| rc.flow.credit_limit().wrapping_sub(channel.sent));
            let _ = rows.push_within_capacity(row);
        }
        for rc in connections.senders.iter() {
            let row = Connection::new(rc.id.peer, rc.id.number, "receiving", Some(rc), now);
            let _ = rows.push_within_capacity(row);
        }
    }
    seq_print!(
        out,
        "gid qpn number state age_ms mtu may_send window waiting tx_frames tx_bytes rx_frames rx_bytes lid\n"
    );
    for row in &rows {
        let Connection { address, state, .. } = row;
        seq_print!(out, "{} {} {} ", address.gid(), address.qpn(), row.number);
        seq_print!(out, "{state} {} {} {} ", row.age_ms, row.mtu, row.may_send);
        seq_print!(out, "{} {} ", row.window, row.waiting);
        seq_print!(out, "{} {} ", row.tx_frames, row.tx_bytes);
        seq_print!(out, "{} {} ", row.rx_frames, row.rx_bytes);
        match row.lid {
            Some(lid) => seq_print!(out, "{lid}\n"),
            None => seq_print!(out, "-\n"),
        }
    }
    Ok(())
}

/// Shows the RDMA device, and the receive buffers that the connections of the interface share.
fn show_device(dev: &Device<Interface>, out: &SeqFile) -> Result {
    let port = &dev.data().get_ref().port;
    let guard = dev.lock_tx();
    let connections = guard
        .as_ref()
        .and_then(|tx| Some(&tx.rc.as_ref()?.connections));
    let buffers = connections.map_or(0, |connections| connections.rc_context.intake.max_wr());
    drop(guard);
    seq_print!(out, "device buffers\n");
    port.shared()
        .with_name(|name| seq_print!(out, "{}", BStr::from_bytes(name)));
    seq_print!(out, " {buffers}\n");
    Ok(())
}

impl Inspect for Interface {
    const FILES: &'static [(&'static CStr, Show<Self>)] = &[
        (c"sources", show_sources),
        (c"paths", show_paths),
        (c"groups", show_groups),
        (c"connections", show_connections),
        (c"device", show_device),
        (c"mcg", show_mcg),
        (c"path", show_path),
    ];
}
