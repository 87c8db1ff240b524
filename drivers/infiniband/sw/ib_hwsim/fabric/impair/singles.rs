// SPDX-License-Identifier: GPL-2.0

//! The packets of a run, one by one.

use crate::packet::{Packet, Transport};

/// The packets of a run, in order, each with the place of its payload in that of the run.
#[derive(Clone, Debug)]
pub struct Singles {
    rest: Option<Packet>,
    mtu: u32,
    from: u32,
}

impl Singles {
    /// Takes a run apart. What is a single packet, or none, stays as it is.
    pub fn new(run: &Packet) -> Singles {
        Singles {
            rest: Some(*run),
            // Each packet but the last one is as long as the longest one.
            mtu: run.len,
            from: 0,
        }
    }
}

impl Iterator for Singles {
    type Item = (Packet, u32);

    fn next(&mut self) -> Option<(Packet, u32)> {
        let rest = self.rest.take()?;
        let from = self.from;
        let Transport::Rc(bth) = rest.transport else {
            return Some((rest, from));
        };
        let of = |bth: crate::rc::Bth| Packet {
            len: bth.bytes.min(self.mtu),
            transport: Transport::Rc(bth),
            ..rest
        };
        match bth.split(1, self.mtu) {
            Some((front, back)) => {
                self.rest = Some(of(back));
                self.from = from.saturating_add(front.bytes);
                Some((of(front), from))
            }
            None => Some((of(bth), from)),
        }
    }
}
