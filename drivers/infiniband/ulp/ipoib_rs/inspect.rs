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
use kernel::fmt;
use kernel::prelude::*;
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

    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "gid qpn in_order reordered late held filled moved timed_out duplicates resyncs \
             holding established idle_ms\n",
        )?;
        for row in &self.0 {
            write!(f, "{} {}", row.address.gid(), row.address.qpn())?;
            for value in row.counts.values() {
                write!(f, " {value}")?;
            }
            let (holding, established) = (row.holding, u8::from(row.established));
            writeln!(f, " {holding} {established} {}", row.idle_ms)?;
        }
        Ok(())
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

/// Copies rows of what is known about destinations, which the transmit lock protects: `each` passes
/// one after the other on. None while the interface is down.
fn copy<T>(
    dev: &Device<Interface>,
    each: impl Fn(&Destinations, &mut dyn FnMut(T)),
) -> Result<KVVec<T>> {
    let mut known = 0usize;
    if let Some(tx) = dev.lock_tx().as_ref() {
        each(&tx.destinations, &mut |_| known = known.saturating_add(1));
    }
    let mut rows = with_room(known)?;
    if let Some(tx) = dev.lock_tx().as_ref() {
        each(&tx.destinations, &mut |row| {
            // What came since and has no room is seen the next time.
            let _ = rows.push_within_capacity(row);
        });
    }
    Ok(rows)
}

fn show_paths(dev: &Device<Interface>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let now = now_ms();
    let rows = copy(dev, |destinations, note| {
        for path in destinations.paths() {
            note(Path {
                address: *path.addr(),
                state: path.state(),
                waiting: path.waiting(),
                idle_ms: path.unused_for(now),
            });
        }
    });
    f.write_str("gid qpn flags state waiting idle_ms\n")?;
    for row in &rows.map_err(|_| fmt::Error)? {
        let Path { address, state, .. } = row;
        write!(f, "{} {} ", address.gid(), address.qpn())?;
        writeln!(
            f,
            "{:#04x} {state} {} {}",
            address.flags().0,
            row.waiting,
            row.idle_ms
        )?;
    }
    Ok(())
}

fn show_groups(dev: &Device<Interface>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let rows = copy(dev, |destinations, note| {
        for group in destinations.groups() {
            note(Group {
                mgid: *group.mgid(),
                state: group.state(),
                wanted: group.is_wanted(),
                waiting: group.waiting(),
            });
        }
    });
    f.write_str("mgid state wanted waiting\n")?;
    for row in &rows.map_err(|_| fmt::Error)? {
        let (mgid, wanted) = (row.mgid.gid(), u8::from(row.wanted));
        writeln!(f, "{mgid} {} {wanted} {}", row.state, row.waiting)?;
    }
    Ok(())
}

impl Inspect for Interface {
    const FILES: &'static [&'static CStr] = &[c"sources", c"paths", c"groups"];

    fn show(dev: &Device<Self>, id: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match id {
            SOURCES => match dev.data().sources() {
                Ok(sources) => sources.show(f),
                Err(error) if error == ENETDOWN => Sources(KVVec::new()).show(f),
                Err(_) => Err(fmt::Error),
            },
            PATHS => show_paths(dev, f),
            GROUPS => show_groups(dev, f),
            _ => Err(fmt::Error),
        }
    }
}
