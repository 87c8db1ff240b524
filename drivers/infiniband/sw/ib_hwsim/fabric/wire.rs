// SPDX-License-Identifier: GPL-2.0

//! The bytes of packets as links carry them (section 5.2): from LRH to VCRC.
//!
//! Inside a kernel, no packet is built: nodes hand each other a [`Packet`] and a way to read the
//! payload. Bytes are needed where a packet leaves the kernel, in a capture or by a cable that
//! leads through a network device. [`Head`] writes one packet of a run, [`parse`] reads one.
//!
//! Some fields have no counterpart in a [`Packet`], and are written so:
//!
//! * ICRC and VCRC are zero: no CRC is computed, and none is checked.
//! * The virtual lane is 15 for subnet management, and 0 for all others.
//! * The PSN of a datagram is zero, as is the MSN of an answer to a READ request or to an atomic
//!   operation. Their syndrome is an acknowledgement without a credit count.
//! * MigReq is set, as it is where there is no alternate path.
//!
//! Reserved fields are zero when sent and not looked at when received, as the specification has it.
//! Values that it reserves of a field that it defines are refused.

mod extended;
mod fields;
mod malformed;
mod parse;
pub mod pcap;
mod write;

pub use malformed::Malformed;
pub use parse::{parse, Parsed};
pub use write::Head;

/// The most bytes of headers that a packet has: LRH, GRH, BTH and AtomicETH.
pub const MAX_HEAD: usize = 8 + 40 + 12 + 28;

/// The most bytes around a payload that is not empty: LRH, GRH, BTH, RETH, ImmDt, ICRC and VCRC.
pub const OVERHEAD: usize = 8 + 40 + 12 + 16 + 4 + CRCS;

/// The largest payload.
const MAX_PAYLOAD: usize = 4096;

/// The most bytes of a packet.
pub const MAX_PACKET: usize = OVERHEAD + MAX_PAYLOAD;

/// Bytes of a local route header.
const LRH: usize = 8;

/// Bytes of the invariant CRC.
const ICRC: usize = 4;

/// Bytes of both CRCs.
const CRCS: usize = ICRC + 2;

/// The virtual lane of subnet management (section 3.5.7).
const MANAGEMENT_LANE: u8 = 15;
