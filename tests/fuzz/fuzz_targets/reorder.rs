// SPDX-License-Identifier: GPL-2.0

//! The reorder window beside its oracle, with histories that look for new paths through it.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;

#[path = "../../../drivers/infiniband/ulp/ipoib_rs/proto/tests/oracle/mod.rs"]
mod oracle;

/// An event; numbers are told from the one before, since those that are far from it are all
/// alike.
#[derive(Arbitrary, Debug)]
enum Step {
    Ahead(i8),
    Anywhere(u16),
    Tick(u16),
    Width(u8),
    Rings(bool),
}

fuzz_target!(|input: (u16, u8, Vec<Step>)| {
    let (mut last, width, steps) = input;
    let events: Vec<oracle::Event> = steps
        .into_iter()
        .map(|step| match step {
            Step::Ahead(by) => {
                let next = (i32::from(last.max(1)) - 1 + i32::from(by)).rem_euclid(65535) + 1;
                last = next as u16;
                oracle::Event::Frame(last)
            }
            Step::Anywhere(id) => {
                last = id;
                oracle::Event::Frame(id)
            }
            Step::Tick(us) => oracle::Event::Tick(us.into()),
            Step::Width(width) => oracle::Event::Width(width % 129),
            Step::Rings(rings) => oracle::Event::Rings(rings),
        })
        .collect();
    if let Err(error) = oracle::Play::new(width % 129).run(&events) {
        panic!("{error}\n{events:?}");
    }
});
