// SPDX-License-Identifier: GPL-2.0

//! `/sys/kernel/debug/ipoib_rs/<interface>/`: what an interface knows of others.
//!
//! Each file is a table with a heading. What is shown is copied first, where its owner allows that,
//! and printed when nobody waits.

use ipoib_netdev::clock::now_ms;
use ipoib_netdev::debugfs::Inspect;
use ipoib_netdev::device::Device;
use ipoib_proto::hwaddr::HwAddr;
use ipoib_proto::mgid::Mgid;
use ipoib_proto::reorder::Counts;
use kernel::prelude::*;
use kernel::seq_file::SeqFile;
use kernel::seq_print;
use kernel::str::CStr;

use crate::interface::Interface;
use crate::order;
use crate::paths::Destinations;

/// Rows that may come in addition between counting and copying.
const SPARE: usize = 16;

const SOURCES: usize = 0;
const PATHS: usize = 1;
const GROUPS: usize = 2;

/// A source of numbered frames.
struct Source {
    address: HwAddr,
    counts: Counts,
    holding: usize,
    established: bool,
    idle_ms: u64,
}

/// A copy of what is known about sources.
pub(crate) struct Sources(KVVec<Source>);

impl Sources {
    /// With room for a few more than `known`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(known: usize) -> Result<Self> {
        Ok(Self(with_room(known)?))
    }

    /// Copies as many as there is room for.
    pub(crate) fn note<'a>(
        &mut self,
        sources: impl Iterator<Item = (&'a HwAddr, &'a order::Source)>,
    ) {
        let now = now_ms();
        for (address, source) in sources {
            let row = Source {
                address: *address,
                counts: *source.window().counts(),
                holding: source.window().held(),
                established: source.is_established(),
                idle_ms: source.idle_for(now),
            };
            if self.0.push_within_capacity(row).is_err() {
                break;
            }
        }
    }

    fn show(&self, out: &SeqFile) {
        seq_print!(
            out,
            "gid qpn in_order reordered late held filled moved timed_out duplicates resyncs \
             holding established idle_ms\n"
        );
        for row in &self.0 {
            seq_print!(out, "{} {}", row.address.gid(), row.address.qpn());
            for value in row.counts.values() {
                seq_print!(out, " {value}");
            }
            let (holding, established) = (row.holding, u8::from(row.established));
            seq_print!(out, " {holding} {established} {}\n", row.idle_ms);
        }
    }
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

/// Copies `len` rows of what is known about destinations, and a few more, while the transmit lock
/// protects them. None while the interface is down.
fn copy<T>(
    dev: &Device<Interface>,
    len: impl Fn(&Destinations) -> usize,
    each: impl Fn(&Destinations, &mut dyn FnMut(T) -> bool),
) -> Result<KVVec<T>> {
    let known = dev.lock_tx().as_ref().map_or(0, |tx| len(&tx.destinations));
    let mut rows = with_room(known)?;
    if let Some(tx) = dev.lock_tx().as_ref() {
        each(&tx.destinations, &mut |row| {
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

fn show_groups(dev: &Device<Interface>, out: &SeqFile) -> Result {
    let rows = copy(dev, Destinations::group_count, |destinations, note| {
        let _ = destinations.groups().all(|group| {
            note(Group {
                mgid: *group.mgid(),
                state: group.state(),
                wanted: group.is_wanted(),
                waiting: group.waiting(),
            })
        });
    })?;
    seq_print!(out, "mgid state wanted waiting\n");
    for row in &rows {
        let (mgid, wanted) = (row.mgid.gid(), u8::from(row.wanted));
        seq_print!(out, "{mgid} {} {wanted} {}\n", row.state, row.waiting);
    }
    Ok(())
}

impl Inspect for Interface {
    const FILES: &'static [&'static CStr] = &[c"sources", c"paths", c"groups"];

    fn show(dev: &Device<Self>, id: usize, out: &SeqFile) -> Result {
        match id {
            SOURCES => {
                let sources = match dev.data().sources() {
                    Err(error) if error == ENETDOWN => Sources(KVVec::new()),
                    other => other?,
                };
                sources.show(out);
                Ok(())
            }
            PATHS => show_paths(dev, out),
            GROUPS => show_groups(dev, out),
            _ => Err(EINVAL),
        }
    }
}
