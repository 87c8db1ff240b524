// SPDX-License-Identifier: GPL-2.0

//! Scenarios: ordinary Rust tests, one for each lane and kernel.

use crate::bed::Builder;
use crate::layout::Layout;
use crate::machine::{Kernel, Lane};
use crate::slots;
use anyhow::{Context, Result};
use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

/// Runs a scenario in a lane with a kernel.
pub fn run(lane: Lane, kernel: Kernel, path: &str, body: fn(Builder) -> Result<()>) -> Result<()> {
    // The name of the test crate says nothing.
    let name = path
        .split_once("::")
        .map_or(path, |(_, rest)| rest)
        .replace("::", "-");
    let start = Instant::now();
    let result = body(Builder::new(&name, lane, kernel))
        .with_context(|| format!("{name} on the {lane} lane, {kernel} kernel"));
    // A list for people: that it cannot be written fails nothing.
    let _ = note_time(&name, lane, kernel, start.elapsed());
    result
}

/// Adds a line to the list of how long scenarios took, and how much of that they waited for slots.
fn note_time(name: &str, lane: Lane, kernel: Kernel, took: Duration) -> Result<()> {
    let dir = Layout::from_env()?.build().join("logs");
    let mut list = File::options()
        .append(true)
        .create(true)
        .open(dir.join(format!("times-{lane}-{kernel}")))?;
    let waited = slots::waited();
    // In one write: others write there, too.
    let line = format!(
        "{:8.2} {:8.2} {name}\n",
        took.saturating_sub(waited).as_secs_f32(),
        waited.as_secs_f32()
    );
    list.write_all(line.as_bytes())?;
    Ok(())
}

/// Makes a scenario a test for each lane and kernel: `fn name(bed: Builder) { … }` becomes the tests
/// `name::uml_base`, `name::uml_debug`, `name::uml_lockdep`, `name::qemu_base`, `name::qemu_debug`, `name::qemu_kcsan`
/// and `name::qemu_stock`.
///
/// Those that run only when asked for are ignored tests: the base kernel of the uml lane, since `make test` runs a
/// scenario once, and the debug and KCSAN kernels of the qemu lane, where a scenario takes a minute or more. Words
/// in an attribute `#[on(…)]` after the documentation change that, from left to right:
///
/// | word | meaning |
/// |---|---|
/// | `uml`, `qemu` | only in this lane |
/// | `base`, `stock` | only on this kernel |
/// | `debug` | only on kernels with fault injection |
/// | `patched` | not on Debian's kernel, which lacks `patches/linux-7.3` |
/// | `both` | `make test` runs it on the base kernel, too: a sample of what users run |
/// | `timed` | `make test` runs it on the base kernel instead: time is the point, or the debug kernel takes too much |
/// | `lockdep` | takes many locks: not ignored on the debug kernel of the qemu lane, which has lockdep; behind `qemu`, on that kernel of the uml lane, too |
/// | `infiniband` | also a test `name::infiniband::uml_base`, or `uml_debug` behind `debug`, and `uml_lockdep`, where each host has a port of InfiniBand and not of RoCE |
/// | `races` | has much traffic: not ignored on the KCSAN kernel, which finds data races |
#[macro_export]
macro_rules! scenario {
    ($(#[doc = $doc:literal])* $(#[on($($word:ident),+)])? fn $name:ident($bed:ident) $body:block) => {
        $(#[doc = $doc])*
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            fn body($bed: $crate::bed::Builder) -> ::anyhow::Result<()> $body

            $crate::scenario!(@on [$($($word)+)?] ignored run run run ignored ignored run);
        }
    };

    // Words, and what becomes of uml_base, uml_debug, uml_lockdep, qemu_base, qemu_debug, qemu_kcsan and qemu_stock.
    (@on [uml $($word:ident)*] $ub:ident $ud:ident $ul:ident $qb:ident $qd:ident $qk:ident $qs:ident) => {
        $crate::scenario!(@on [$($word)*] $ub $ud $ul none none none none);
    };
    (@on [qemu $($word:ident)*] $ub:ident $ud:ident $ul:ident $qb:ident $qd:ident $qk:ident $qs:ident) => {
        $crate::scenario!(@on [$($word)*] none none none $qb $qd $qk $qs);
    };
    (@on [base $($word:ident)*] $ub:ident $ud:ident $ul:ident $qb:ident $qd:ident $qk:ident $qs:ident) => {
        $crate::scenario!(@on [$($word)*] run none none $qb none none none);
    };
    (@on [debug infiniband $($word:ident)*] $ub:ident $ud:ident $ul:ident $qb:ident $qd:ident $qk:ident $qs:ident) => {
        mod infiniband {
            $crate::scenario!(@infiniband run uml_debug Debug);
            $crate::scenario!(@infiniband run uml_lockdep Lockdep);
        }
        $crate::scenario!(@on [debug $($word)*] $ub $ud $ul $qb $qd $qk $qs);
    };
    (@on [debug $($word:ident)*] $ub:ident $ud:ident $ul:ident $qb:ident $qd:ident $qk:ident $qs:ident) => {
        $crate::scenario!(@on [$($word)*] none run $ul none $qd none none);
    };
    (@on [stock $($word:ident)*] $ub:ident $ud:ident $ul:ident $qb:ident $qd:ident $qk:ident $qs:ident) => {
        $crate::scenario!(@on [$($word)*] none none none none none none run);
    };
    (@on [patched $($word:ident)*] $ub:ident $ud:ident $ul:ident $qb:ident $qd:ident $qk:ident $qs:ident) => {
        $crate::scenario!(@on [$($word)*] $ub $ud $ul $qb $qd $qk none);
    };
    (@on [both $($word:ident)*] $ub:ident $ud:ident $ul:ident $qb:ident $qd:ident $qk:ident $qs:ident) => {
        $crate::scenario!(@on [$($word)*] run $ud $ul $qb $qd $qk $qs);
    };
    (@on [timed $($word:ident)*] $ub:ident $ud:ident $ul:ident $qb:ident $qd:ident $qk:ident $qs:ident) => {
        $crate::scenario!(@on [$($word)*] run ignored $ul $qb $qd $qk $qs);
    };
    (@on [lockdep $($word:ident)*] $ub:ident $ud:ident $ul:ident $qb:ident $qd:ident $qk:ident $qs:ident) => {
        $crate::scenario!(@on [$($word)*] $ub $ud run $qb run $qk $qs);
    };
    (@on [races $($word:ident)*] $ub:ident $ud:ident $ul:ident $qb:ident $qd:ident $qk:ident $qs:ident) => {
        $crate::scenario!(@on [$($word)*] $ub $ud $ul $qb $qd run $qs);
    };
    (@on [infiniband $($word:ident)*] $ub:ident $ud:ident $ul:ident $qb:ident $qd:ident $qk:ident $qs:ident) => {
        mod infiniband {
            $crate::scenario!(@infiniband run uml_base Base);
            $crate::scenario!(@infiniband run #[ignore = "runs when asked for"] uml_debug Debug);
            $crate::scenario!(@infiniband run uml_lockdep Lockdep);
        }
        $crate::scenario!(@on [$($word)*] $ub $ud $ul $qb $qd $qk $qs);
    };
    (@on [] $ub:ident $ud:ident $ul:ident $qb:ident $qd:ident $qk:ident $qs:ident) => {
        $crate::scenario!(@test $ub uml_base Uml Base);
        $crate::scenario!(@test $ud uml_debug Uml Debug);
        $crate::scenario!(@test $ul uml_lockdep Uml Lockdep);
        $crate::scenario!(@test $qb qemu_base Qemu Base);
        $crate::scenario!(@test $qd qemu_debug Qemu Debug);
        $crate::scenario!(@test $qk qemu_kcsan Qemu Kcsan);
        $crate::scenario!(@test $qs qemu_stock Qemu Stock);
    };

    (@infiniband run $(#[$meta:meta])* $test:ident $kernel:ident) => {
        #[test]
        $(#[$meta])*
        fn $test() -> ::anyhow::Result<()> {
            use $crate::machine::{Kernel, Lane};
            $crate::scenario::run(Lane::Uml, Kernel::$kernel, module_path!(), |bed| super::body(bed.infiniband()))
        }
    };

    (@test none $test:ident $lane:ident $kernel:ident) => {};
    (@test ignored $test:ident $lane:ident $kernel:ident) => {
        $crate::scenario!(@test run #[ignore = "runs when asked for"] $test $lane $kernel);
    };
    (@test run $(#[$meta:meta])* $test:ident $lane:ident $kernel:ident) => {
        #[test]
        $(#[$meta])*
        fn $test() -> ::anyhow::Result<()> {
            use $crate::machine::{Kernel, Lane};
            $crate::scenario::run(Lane::$lane, Kernel::$kernel, module_path!(), body)
        }
    };
}
