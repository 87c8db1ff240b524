// SPDX-License-Identifier: GPL-2.0

//! Reliable connections (section 9.7): the requester and the responder of a queue pair, sans I/O.
//!
//! A [`Requester`] says what to send of a send queue, and takes the answers. A [`Responder`] says
//! what becomes of the packets that come, and which answers are owed. Both count in packets, by
//! [`Psn`], and see no payload. The driver has the queues, the memory, the clock and the wire.
//!
//! They send runs: as many packets of a message in a row as the other side may take at
//! once. On the wire that is nothing but those packets: [`Bth::split`] takes a run apart, and the
//! machines do not care how often that was done.
//!
//! Times are nanoseconds since any moment in the past, the same for both calls of a machine.

mod header;
pub mod peer;
mod psn;
mod reception;
mod request;
mod requester;
mod responder;
mod saved;
mod tally;

pub use header::{Access, Aeth, AtomicOp, Bth, Nak, Op, Part, Reth, Syndrome, Tail};
pub use peer::Peer;
pub use psn::Psn;
pub use reception::{Fault, Purpose, Put, Received, Receiver, ResponderSetup, Response, Taken};
pub use request::{Data, Next, Outcome, Request, RequesterSetup, Requests, Work};
pub use requester::{Requester, RUN};
pub use responder::Responder;
pub use tally::{RequesterTally, ResponderTally};

/// Bytes that a message may have: it must not take more than half of the PSNs of a window.
pub const MAX_MESSAGE: u32 = 1 << 30;

/// RNR NAK timers in units of 10 µs, by their code (section 9.7.5.2.8, table 45).
const RNR_TIMERS: [u16; 32] = [
    65535, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// Returns the time in ns that an RNR NAK with this timer field asks for.
pub fn rnr_timer(code: u8) -> u64 {
    let units = RNR_TIMERS.get(usize::from(code & 0x1f));
    // The longest one is 655.36 ms.
    let units = units.map_or(65536, |&n| if n == 65535 { 65536 } else { u64::from(n) });
    units.saturating_mul(10_000)
}

/// Returns the local ACK timeout in ns, 4.096 µs × 2^`code`; `None` if there is none (section
/// 11.6.2).
pub fn ack_timeout(code: u8) -> Option<u64> {
    let code = u32::from(code & 0x1f);
    (code != 0).then(|| 4096u64.wrapping_shl(code))
}

/// Returns the number of packets of a message of `len` bytes at a path MTU. An empty one has one.
pub(crate) fn packets(len: u32, mtu: u32) -> u32 {
    len.div_ceil(mtu.max(1)).max(1)
}
