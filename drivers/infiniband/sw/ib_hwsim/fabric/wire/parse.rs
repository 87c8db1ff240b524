// SPDX-License-Identifier: GPL-2.0

//! From bytes to a packet. They may be anybody's.

use core::ops::Range;

use super::fields::{bth, lrh};
use super::{extended, Malformed, CRCS, ICRC, LRH, MANAGEMENT_LANE, MAX_PAYLOAD};
use crate::addr::Lid;
use crate::grh::{Grh, Received};
use crate::opcode::{End, Form};
use crate::packet::{Packet, Transport};
use crate::rc::{AtomicOp, Bth, Op, Psn, Syndrome, Tail};

/// A packet that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// The headers, of a run of one packet.
    pub packet: Packet,
    /// The place of the payload in the bytes.
    pub payload: Range<usize>,
    /// The length of the packet, from LRH to VCRC. There may be more bytes behind it.
    pub len: usize,
}

/// Bytes of headers that have not been read.
struct Rest<'a> {
    bytes: &'a [u8],
    /// Bytes before them.
    at: usize,
}

impl<'a> Rest<'a> {
    /// The bytes between LRH and ICRC of a packet that has so many bytes up to its VCRC.
    fn behind_route(bytes: &'a [u8], covered: usize) -> Result<Self, Malformed> {
        let end = covered.checked_sub(ICRC).ok_or(Malformed::PacketLength)?;
        let inner = bytes.get(..end).ok_or(Malformed::Short)?;
        Ok(Self {
            bytes: inner.get(LRH..).ok_or(Malformed::PacketLength)?,
            at: LRH,
        })
    }

    fn take<const N: usize>(&mut self) -> Result<&'a [u8; N], Malformed> {
        let (header, rest) = self
            .bytes
            .split_first_chunk()
            .ok_or(Malformed::PacketLength)?;
        self.bytes = rest;
        self.at = self.at.saturating_add(N);
        Ok(header)
    }

    fn word(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(*self.take()?))
    }
}

/// Reads the packet that `bytes` begin with.
///
/// The CRCs are not looked at. No rule of ports and queue pairs is applied.
///
/// # Errors
///
/// See [`Malformed`].
pub fn parse(bytes: &[u8]) -> Result<Parsed, Malformed> {
    let route: &[u8; LRH] = bytes.first_chunk().ok_or(Malformed::Short)?;
    if lrh::VERSION.u8(route) != 0 {
        return Err(Malformed::LinkVersion);
    }
    let is_global = match lrh::NEXT.u8(route) {
        lrh::LOCAL => false,
        lrh::GLOBAL => true,
        _ => return Err(Malformed::Raw),
    };
    let covered = usize::from(lrh::LENGTH.u16(route)).saturating_mul(4);
    let len = covered.saturating_add(CRCS.saturating_sub(ICRC));
    if bytes.len() < len {
        return Err(Malformed::Short);
    }
    let mut rest = Rest::behind_route(bytes, covered)?;
    let grh = if is_global {
        Some(read_grh(&mut rest)?)
    } else {
        None
    };
    let base = rest.take::<12>()?;
    if bth::VERSION.u8(base) != 0 {
        return Err(Malformed::TransportVersion);
    }
    let form = Form::of_opcode(bth::OPCODE.u8(base)).ok_or(Malformed::Opcode)?;
    let management = lrh::LANE.u8(route) == MANAGEMENT_LANE;
    if management && !matches!(form, Form::Datagram(_)) {
        return Err(Malformed::Lane);
    }
    let extension = extension(form, &mut rest)?;
    let pad = usize::from(bth::PAD.u8(base));
    // Headers are whole words, so that without a payload, there is no pad byte to take away.
    let len_of_payload = rest.bytes.len().checked_sub(pad).ok_or(Malformed::Pad)?;
    if len_of_payload > MAX_PAYLOAD {
        return Err(Malformed::PacketLength);
    }
    let payload = rest.at..rest.at.saturating_add(len_of_payload);
    let len_of_payload = len_of_payload as u32;
    let transport = extension.transport(base, len_of_payload)?;
    let packet = Packet {
        slid: Lid::new(lrh::SLID.u16(route)),
        dlid: Lid::new(lrh::DLID.u16(route)),
        sl: lrh::SL.u8(route),
        pkey: bth::PKEY.u16(base),
        dest_qp: bth::DEST_QP.u32(base),
        grh,
        len: len_of_payload,
        management,
        transport,
    };
    Ok(Parsed {
        packet,
        payload,
        len,
    })
}

fn read_grh(rest: &mut Rest<'_>) -> Result<Grh, Malformed> {
    let received = Received::read(rest.take()?);
    if received.version != Grh::IP_VERSION {
        return Err(Malformed::RouteVersion);
    }
    if received.next_header != Grh::NEXT_HEADER {
        return Err(Malformed::NextHeader);
    }
    if usize::from(received.following) != rest.bytes.len().saturating_add(ICRC) {
        return Err(Malformed::RouteLength);
    }
    Ok(received.grh)
}

/// The extended headers of a packet.
enum Extension {
    Datagram {
        qkey: u32,
        src_qp: u32,
        immediate: Option<u32>,
    },
    /// A part of a message, or of an answer.
    Part(Op),
    /// A packet without payload.
    Bare(Op),
}

impl Extension {
    /// Makes the headers of the transport, with the BTH and the bytes of the payload.
    fn transport(self, base: &[u8; 12], bytes: u32) -> Result<Transport, Malformed> {
        let solicited = bth::SOLICITED.u8(base) != 0;
        let op = match self {
            Extension::Datagram {
                qkey,
                src_qp,
                immediate,
            } => {
                return Ok(Transport::Ud {
                    qkey,
                    src_qp,
                    immediate,
                    solicited,
                })
            }
            Extension::Part(op) => op,
            Extension::Bare(op) if bytes == 0 => op,
            Extension::Bare(_) => return Err(Malformed::Payload),
        };
        Ok(Transport::Rc(Bth {
            psn: Psn::new(bth::PSN.u32(base)),
            packets: 1,
            bytes,
            ack_request: bth::ACK_REQUEST.u8(base) != 0,
            solicited,
            op,
        }))
    }
}

/// Reads the end of the headers of a message.
fn tail(end: End, rest: &mut Rest<'_>) -> Result<Tail, Malformed> {
    Ok(match end {
        End::Plain => Tail::Plain,
        End::Immediate => Tail::Immediate(rest.word()?),
        End::Invalidate => Tail::Invalidate(rest.word()?),
    })
}

/// Reads the extended headers of a datagram.
fn datagram(end: End, rest: &mut Rest<'_>) -> Result<Extension, Malformed> {
    let (qkey, src_qp) = extended::read_deth(rest.take()?);
    let immediate = match tail(end, rest)? {
        Tail::Immediate(data) => Some(data),
        Tail::Plain | Tail::Invalidate(_) => None,
    };
    Ok(Extension::Datagram {
        qkey,
        src_qp,
        immediate,
    })
}

/// Reads the extended headers.
fn extension(form: Form, rest: &mut Rest<'_>) -> Result<Extension, Malformed> {
    Ok(match form {
        Form::Datagram(end) => datagram(end, rest)?,
        Form::Send(part, end) => Extension::Part(Op::Send {
            part,
            tail: tail(end, rest)?,
        }),
        Form::Write(part, end) => {
            let to = if part.first {
                Some(extended::read_reth(rest.take()?))
            } else {
                None
            };
            let tail = tail(end, rest)?;
            Extension::Part(Op::Write { part, to, tail })
        }
        Form::Read => Extension::Bare(Op::Read(extended::read_reth(rest.take()?))),
        Form::CompareSwap => {
            let (address, key, swap, compare) = extended::read_atomic(rest.take()?);
            let op = AtomicOp::CompareSwap { compare, swap };
            Extension::Bare(Op::Atomic { address, key, op })
        }
        Form::FetchAdd => {
            let (address, key, add, _) = extended::read_atomic(rest.take()?);
            let op = AtomicOp::FetchAdd(add);
            Extension::Bare(Op::Atomic { address, key, op })
        }
        Form::ReadResponse(part) => {
            if part.first || part.last {
                acknowledges(rest)?;
            }
            Extension::Part(Op::ReadResponse { part })
        }
        Form::AtomicResponse => {
            acknowledges(rest)?;
            let old = u64::from_be_bytes(*rest.take()?);
            Extension::Bare(Op::AtomicResponse(old))
        }
        Form::Acknowledge => {
            let aeth = extended::read_aeth(rest.take()?)?;
            Extension::Bare(Op::Acknowledge(aeth))
        }
    })
}

/// Reads the AETH of an answer that is more than an acknowledgement, and is one, too.
fn acknowledges(rest: &mut Rest<'_>) -> Result<(), Malformed> {
    let aeth = extended::read_aeth(rest.take()?)?;
    let done = aeth.syndrome == Syndrome::Ack;
    done.then_some(()).ok_or(Malformed::Syndrome)
}
