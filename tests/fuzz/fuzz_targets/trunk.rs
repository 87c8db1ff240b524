// SPDX-License-Identifier: GPL-2.0

//! Frames of strangers at the end of a cable through a network device, also of such as know the session.

#![no_main]

use arbitrary::Arbitrary;
use ib_fabric::trunk::Header;
use libfuzzer_sys::fuzz_target;

#[path = "../../../drivers/infiniband/sw/ib_hwsim/fabric/tests/checks/trunk.rs"]
mod trunk;

#[derive(Arbitrary, Debug)]
enum Frame<'a> {
    Bytes(&'a [u8]),
    /// A packet of the session: so many were sent, and so many seen.
    Packet(u32, u32),
}

/// A frame: its source, the time until it comes, and what it is.
type Input<'a> = (u8, u32, Frame<'a>);

fuzz_target!(|input: (bool, Vec<Input<'_>>)| {
    let (up, frames) = input;
    let mut end = trunk::End::new(1);
    let known = up.then(|| end.comes_up());
    for (from, time, frame) in frames {
        let from = [2, 0, 0, 0, 0, from % 4];
        match (frame, known) {
            (Frame::Bytes(bytes), _) => end.take(from, bytes),
            (Frame::Packet(sent, seen), Some(known)) => {
                let header = Header {
                    sent,
                    seen,
                    ..known
                };
                end.take(from, &header.packet());
            }
            (Frame::Packet(..), None) => {}
        }
        end.pass(time.into());
        end.send();
    }
    end.comes_up();
});
