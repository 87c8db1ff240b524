// SPDX-License-Identifier: GPL-2.0

//! Checks of a connection on whose wire a stranger forges packets. The fuzz targets in `tests/fuzz` use them as well.

use crate::connection::{Bed, Faults, Plan, BASE, KEY};
use ib_fabric::rc::{AtomicOp, Bth, Op, Tail, Work};

/// Gives both sides of a connection forged packets, each with the side that gets it. A forged packet may say that a message
/// has arrived; without the key, it may not make either side write to its memory.
pub(crate) fn any_packets(packets: &[(usize, Bth)], holds: bool) {
    let mut bed = Bed::new(
        &Plan {
            holds,
            ..Plan::USUAL
        },
        Faults::default(),
        1,
    );
    let untouched = bed.sides[0].inbox.memory.clone();
    for side in 0..2 {
        bed.post(side, Work::Send(Tail::Plain), &[side as u8; 700]);
        let (address, key) = (BASE, KEY);
        bed.post(side, Work::Read { address, key }, &[0; 700]);
        bed.post(side, Work::Local { last: false }, &[]);
        let op = AtomicOp::FetchAdd(1);
        bed.post(side, Work::Atomic { address, key, op }, &[0; 8]);
        bed.post_fenced(side, Work::Send(Tail::Plain), &[], true);
        bed.post_receive(side, 700);
    }
    for (to, bth) in packets {
        let payload = vec![7; bth.bytes as usize];
        bed.arrive(*to, bth, payload);
        bed.step();
    }
    for _ in 0..200 {
        bed.step();
    }
    let has_key = packets.iter().any(|(_, bth)| match &bth.op {
        Op::Write { to, .. } => to.as_ref().is_some_and(|to| to.key == KEY),
        Op::Atomic { key, .. } => *key == KEY,
        _ => false,
    });
    for side in &bed.sides {
        // The atomic operation that was posted is for the first eight bytes.
        assert!(has_key || side.inbox.memory[8..] == untouched[8..]);
        assert!(side.inbox.received.len() <= 1);
        assert!(side.done.len() <= 5);
    }
}
