// SPDX-License-Identifier: GPL-2.0

//! From the headers of a run to the bytes of one of its packets.

use super::fields::{bth, lrh};
use super::{extended, CRCS, ICRC, LRH, MANAGEMENT_LANE, MAX_HEAD, MAX_PAYLOAD};
use crate::opcode::{End, Form};
use crate::packet::{Packet, Transport};
use crate::rc::{Aeth, Bth, Op, Syndrome, Tail};
use crate::Grh;

/// The bytes of a packet's headers, and where its payload is in that of the run.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    bytes: [u8; MAX_HEAD],
    len: usize,
    from: usize,
    payload: usize,
}

/// Pad bytes behind a payload.
const fn pad(payload: usize) -> usize {
    payload.wrapping_neg() & 3
}

impl Head {
    /// Writes the headers of a run's packet `n`, counted from 0.
    ///
    /// `None` if there is none: the run is shorter, its bytes are more than its packets have room for,
    /// or it is none that links carry ([`Op::Resume`]).
    pub fn new(packet: &Packet, n: u32) -> Option<Head> {
        let mut head = Head {
            bytes: [0; MAX_HEAD],
            len: 0,
            from: 0,
            payload: 0,
        };
        match &packet.transport {
            Transport::Ud {
                qkey,
                src_qp,
                immediate,
                solicited,
            } => {
                if n != 0 {
                    return None;
                }
                let end = match immediate {
                    None => End::Plain,
                    Some(_) => End::Immediate,
                };
                let base = Base {
                    form: Form::Datagram(end),
                    solicited: *solicited,
                    ack_request: false,
                    psn: 0,
                };
                head.begin(packet, packet.len, &base)?;
                head.add(&extended::deth(*qkey, *src_qp))?;
                if let Some(immediate) = immediate {
                    head.add(&immediate.to_be_bytes())?;
                }
            }
            Transport::Rc(run) => {
                let single = run.nth(n, packet.len)?;
                head.from = usize::try_from(n.checked_mul(packet.len)?).ok()?;
                let base = Base {
                    form: Form::of(&single.op)?,
                    solicited: single.solicited,
                    ack_request: single.ack_request,
                    psn: single.psn.get(),
                };
                head.begin(packet, single.bytes, &base)?;
                head.extend(&single)?;
            }
        }
        head.finish(packet)
    }

    /// Returns the headers.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Returns the length of the whole packet, from LRH to VCRC.
    // None of them is more than a few thousand.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
            .saturating_add(self.payload)
            .saturating_add(pad(self.payload))
            .saturating_add(CRCS)
    }

    /// Writes the packet to the beginning of `out`. `payload` gets a place in the payload of the run,
    /// and writes as many bytes from there as it is given room for; false if it cannot. It is not
    /// called for a packet without payload.
    ///
    /// False, with no meaning in `out`, if `payload` says so or the packet does not fit.
    pub fn write(&self, out: &mut [u8], payload: impl FnOnce(usize, &mut [u8]) -> bool) -> bool {
        let Some(out) = out.get_mut(..self.len()) else {
            return false;
        };
        let Some((head, rest)) = out.split_at_mut_checked(self.len) else {
            return false;
        };
        head.copy_from_slice(self.bytes());
        let Some((place, trailer)) = rest.split_at_mut_checked(self.payload) else {
            return false;
        };
        trailer.fill(0);
        place.is_empty() || payload(self.from, place)
    }

    /// Adds a header.
    fn add(&mut self, header: &[u8]) -> Option<()> {
        let end = self.len.checked_add(header.len())?;
        self.bytes.get_mut(self.len..end)?.copy_from_slice(header);
        self.len = end;
        Some(())
    }

    /// Writes LRH, GRH and BTH, without the lengths.
    fn begin(&mut self, packet: &Packet, payload: u32, base: &Base) -> Option<()> {
        self.payload = usize::try_from(payload).ok()?;
        if self.payload > MAX_PAYLOAD {
            return None;
        }
        let mut route = [0; LRH];
        let (lane, next) = (
            if packet.management {
                MANAGEMENT_LANE
            } else {
                0
            },
            if packet.grh.is_some() {
                lrh::GLOBAL
            } else {
                lrh::LOCAL
            },
        );
        lrh::LANE.put(&mut route, lane);
        lrh::SL.put(&mut route, packet.sl);
        lrh::NEXT.put(&mut route, next);
        lrh::DLID.put(&mut route, packet.dlid.get());
        lrh::SLID.put(&mut route, packet.slid.get());
        self.add(&route)?;
        if let Some(grh) = &packet.grh {
            self.add(&grh.write(0))?;
        }
        let mut header = [0; 12];
        bth::OPCODE.put(&mut header, base.form.opcode()?);
        bth::SOLICITED.put(&mut header, base.solicited);
        bth::MIGRATED.put(&mut header, true);
        bth::PAD.put(&mut header, pad(self.payload) as u8);
        bth::PKEY.put(&mut header, packet.pkey);
        bth::DEST_QP.put(&mut header, packet.dest_qp);
        bth::ACK_REQUEST.put(&mut header, base.ack_request);
        bth::PSN.put(&mut header, base.psn);
        self.add(&header)
    }

    /// Adds the extended headers of a connection's packet.
    fn extend(&mut self, single: &Bth) -> Option<()> {
        match &single.op {
            Op::Send { tail, .. } => self.add_tail(tail),
            Op::Write { part, to, .. } if part.first != to.is_some() => None,
            Op::Write { to, tail, .. } => {
                if let Some(to) = to {
                    self.add(&extended::reth(to))?;
                }
                self.add_tail(tail)
            }
            Op::Read(from) => self.add(&extended::reth(from)),
            Op::Atomic { address, key, op } => self.add(&extended::atomic(*address, *key, op)),
            Op::ReadResponse { part } if !part.first && !part.last => Some(()),
            Op::ReadResponse { .. } => self.add(&extended::aeth(&DONE)),
            Op::AtomicResponse(old) => {
                self.add(&extended::aeth(&DONE))?;
                self.add(&old.to_be_bytes())
            }
            Op::Acknowledge(aeth) => self.add(&extended::aeth(aeth)),
            Op::Resume => None,
        }
    }

    fn add_tail(&mut self, tail: &Tail) -> Option<()> {
        match tail {
            Tail::Plain => Some(()),
            Tail::Immediate(data) => self.add(&data.to_be_bytes()),
            Tail::Invalidate(key) => self.add(&key.to_be_bytes()),
        }
    }

    /// Writes the lengths.
    fn finish(mut self, packet: &Packet) -> Option<Head> {
        let bytes = self.len().checked_sub(CRCS.checked_sub(ICRC)?)?;
        let words = u16::try_from(bytes.checked_div(4)?).ok()?;
        lrh::LENGTH.put(&mut self.bytes, words);
        if let Some(grh) = &packet.grh {
            let following = bytes.checked_sub(LRH)?.checked_sub(Grh::LEN)?;
            let route = grh.write(u16::try_from(following).ok()?);
            let end = LRH.checked_add(Grh::LEN)?;
            self.bytes.get_mut(LRH..end)?.copy_from_slice(&route);
        }
        Some(self)
    }
}

/// The answer to a READ request or an atomic operation acknowledges it.
const DONE: Aeth = Aeth {
    syndrome: Syndrome::Ack,
    msn: 0,
};

/// Fields of a BTH.
struct Base {
    form: Form,
    solicited: bool,
    ack_request: bool,
    psn: u32,
}
