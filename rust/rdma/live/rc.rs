// SPDX-License-Identifier: GPL-2.0

//! Two queue pairs of a port that the connection manager connects, their send ring, and their intake.

use ipoib_netdev::live::{same, until, Ends};
use kernel::prelude::*;
use kernel::sync::Arc;

use super::connect::{Caller, Door, Ears, REPLY, REQUEST};
use super::frames::{frame, is_whole};
use super::{on_soft_roce, Live};
use crate::cm::{CmId, Listener};
use crate::cq::Cq;
use crate::flush_time::FlushTime;
use crate::intake::Intake;
use crate::intake_ring::{IntakeRing, MessagePool};
use crate::qp::QpCaps;
use crate::rc::{QpKey, RcInit, RcQp};
use crate::rc_send::{rc_sends, Lane, RcCompletions, RcSender};

/// Frames that a send ring takes, and messages that the intake does.
const SIZE: u32 = 64;
/// The longest message.
const LONGEST: usize = 65_536;
/// Bytes of its head; the rest is in pages.
const HEAD: usize = 100;
/// Parts of such a frame.
const PARTS: u32 = 17;
/// Parts of a buffer.
const BUFFER_PARTS: u32 = 3;

/// Objects that both queue pairs have.
struct Base {
    send_cq: Arc<Cq>,
    recv_cq: Arc<Cq>,
    intake: Arc<Intake>,
}

/// Two connected queue pairs, in the order in which that goes.
struct Bed {
    ids: [CmId<Ears>; 2],
    sender: RcSender,
    completions: RcCompletions<()>,
    ring: IntakeRing,
    lanes: [Arc<Lane>; 2],
    ears: [Arc<Ears>; 2],
    _listener: Listener<Door>,
}

impl Base {
    fn new(live: &Live, shared: bool) -> Result<Self> {
        let dev = &live.device;
        Ok(Self {
            send_cq: Cq::new(dev, 2 * SIZE, 0, (), ())?,
            recv_cq: Cq::new(dev, SIZE, 0, (), ())?,
            intake: if shared {
                Intake::shared(&live.pd, SIZE, BUFFER_PARTS, ())?
            } else {
                Intake::separate(&live.pd, SIZE, BUFFER_PARTS)?
            },
        })
    }

    fn lane(&self, live: &Live) -> Result<Arc<Lane>> {
        let init = RcInit {
            pd: &live.pd,
            send_cq: &self.send_cq,
            recv_cq: &self.recv_cq,
            intake: &self.intake,
            caps: QpCaps {
                send_wr: SIZE,
                recv_wr: SIZE / 2,
                send_sge: PARTS,
                recv_sge: BUFFER_PARTS,
            },
        };
        Lane::new(&RcQp::new(init)?, true)
    }
}

impl Bed {
    /// With a shared receive queue, or with one for each.
    fn new(live: &Live, shared: bool) -> Result<Self> {
        let base = Base::new(live, shared)?;
        let (sender, mut completions) = rc_sends(&live.pd, &base.send_cq, PARTS, 2)?;
        let parts = BUFFER_PARTS as usize;
        let pool = MessagePool::new(&live.device, LONGEST, parts, SIZE as usize)?;
        let mut ring = IntakeRing::new(&base.intake, &base.recv_cq, pool, SIZE)?;
        let lanes = [base.lane(live)?, base.lane(live)?];
        ring.fill()?;
        let caller = Caller::call(live, lanes[0].qp(), false)?;
        let door = caller.answered(lanes[1].qp())?;
        for lane in &lanes {
            ring.begin(lane.qp())?;
            completions.begin(lane.clone(), ())?;
        }
        let (ids, ears, listener) = caller.connected(lanes[0].qp(), door)?;
        Ok(Self {
            ids,
            sender,
            completions,
            ring,
            lanes,
            ears,
            _listener: listener,
        })
    }

    /// Sends a frame in parts from one of them to the other, and so many bytes.
    fn send(&mut self, from: usize, len: usize) -> Result {
        let lane = self.lanes.get(from).ok_or(EINVAL)?;
        let skb = frame(len.min(HEAD), len.saturating_sub(HEAD))?;
        let posted = self.sender.post(skb, lane);
        same(posted.map_err(|(_, error)| error), Ok(()))?;
        self.sender.flush();
        Ok(())
    }

    /// Waits until `count` messages have come, and passes the queue pairs that they came to, and their lengths to `see`. They
    /// are whole.
    fn receive(&mut self, count: usize, mut see: impl FnMut(QpKey, usize)) -> Result {
        let (mut came, mut whole) = (0, true);
        until(|| {
            let n = self.ring.fetch(IntakeRing::BATCH);
            for i in 0..n {
                if let Some(message) = self.ring.message(i, |_| ()) {
                    came += 1;
                    // SAFETY: The device is one of soft-RoCE.
                    whole &= unsafe { message.is_like(|at, bytes| is_whole(bytes, at)) };
                    see(message.qp, message.len());
                }
            }
            self.ring.post();
            came >= count
        })?;
        same((came, whole), (count, true))
    }

    /// Waits until `count` frames have left the ring: how many were sent, and how many lost.
    fn left(&mut self, count: u32) -> Result<(u32, u32)> {
        let (mut sent, mut lost) = (0, 0);
        until(|| {
            let reaped = self.completions.reap(None, |()| ());
            sent += reaped.sent.frames;
            lost += reaped.lost;
            sent + lost >= count
        })?;
        Ok((sent, lost))
    }

    fn key(&self, end: usize) -> Result<QpKey> {
        Ok(self.lanes.get(end).ok_or(EINVAL)?.qp().key())
    }
}

#[kunit_tests(rust_rdma_rc_live)]
mod cases {
    use super::*;

    /// Both sides of a connection have what the other one said of it.
    #[test]
    fn private_data_reach_the_other_side() -> Result {
        on_soft_roce(|live| {
            let bed = Bed::new(live, true)?;
            same(bed.ears[0].heard(), REPLY)?;
            same(bed.ears[1].heard(), REQUEST)
        })
    }

    /// Messages come whole, in the order of their queue pair, to the other one; each frame ends once.
    #[test]
    fn messages_reach_the_other_side() -> Result {
        on_soft_roce(|live| {
            for shared in [true, false] {
                let (mut bed, ends) = (Bed::new(live, shared)?, Ends::begin());
                for from in [0, 1] {
                    let to = bed.key(1 - from)?;
                    for len in [1, HEAD, 5000, LONGEST] {
                        bed.send(from, len)?;
                        let mut got = None;
                        bed.receive(1, |qp, len| got = Some((qp, len)))?;
                        same(got, Some((to, len)))?;
                        same(bed.left(1)?, (1, 0))?;
                    }
                }
                same(ends.count(), 8)?;
                for round in 0..8 {
                    for n in 1..=16 {
                        bed.send(0, 16 * round + n)?;
                    }
                    let mut next = 16 * round;
                    let mut in_order = true;
                    bed.receive(16, |_, len| {
                        next += 1;
                        in_order &= len == next;
                    })?;
                    same((in_order, bed.left(16)?), (true, (16, 0)))?;
                }
                same(bed.lanes[0].in_flight() + bed.lanes[1].in_flight(), 0)?;
                same(bed.ring.take_report().is_none(), true)?;
                same(ends.count(), 8 + 128)?;
            }
            Ok(())
        })
    }

    /// A refusal reaches the one who has called, with its reason.
    #[test]
    fn a_refusal_has_a_reason() -> Result {
        on_soft_roce(|live| {
            let base = Base::new(live, true)?;
            let lane = base.lane(live)?;
            let caller = Caller::call(live, lane.qp(), true)?;
            caller.refused()
        })
    }

    /// Both sides hear of a disconnection: one that it is over, the other one that it was disconnected.
    #[test]
    fn a_connection_ends_on_both_sides() -> Result {
        on_soft_roce(|live| {
            let bed = Bed::new(live, true)?;
            bed.ids[0].disconnect()?;
            until(|| bed.ears[0].is_over() && bed.ears[1].is_disconnected())?;
            same(bed.ids[0].disconnect(), Err(EINVAL))
        })
    }

    /// A queue pair in error loses what is posted to it, whose frames end once. It takes no more of a shared receive queue;
    /// one of its own gives all back.
    #[test]
    fn an_error_gives_everything_back() -> Result {
        on_soft_roce(|live| {
            for shared in [true, false] {
                let (mut bed, ends) = (Bed::new(live, shared)?, Ends::begin());
                let (qp, key) = (bed.lanes[0].qp().clone(), bed.key(0)?);
                same(qp.may_receive(), shared)?;
                same(bed.ring.held(key) > 0, !shared)?;
                qp.to_error()?;
                for _ in 0..10 {
                    bed.send(0, 3000)?;
                }
                same(bed.left(10)?, (0, 10))?;
                same((ends.count(), bed.lanes[0].in_flight()), (10, 0))?;
                bed.ring.end(key);
                until(|| {
                    for i in 0..bed.ring.fetch(IntakeRing::BATCH) {
                        let _ = bed.ring.message(i, |_| ());
                    }
                    bed.ring.post();
                    !qp.may_receive() && bed.ring.held(key) == 0
                })?;
            }
            Ok(())
        })
    }

    /// A peer that does not answer loses what is sent to it, in the end.
    #[test]
    fn frames_for_nobody_are_lost() -> Result {
        on_soft_roce(|live| {
            let (mut bed, ends) = (Bed::new(live, true)?, Ends::begin());
            bed.lanes[1].qp().to_reset()?;
            for _ in 0..3 {
                bed.send(0, 5000)?;
            }
            same(bed.left(3)?, (0, 3))?;
            same(ends.count(), 3)
        })
    }

    /// Frames under way when all of it ends do so, too, each once.
    #[test]
    fn frames_end_with_their_connection() -> Result {
        on_soft_roce(|live| {
            let ends = Ends::begin();
            for shared in [true, false] {
                let mut bed = Bed::new(live, shared)?;
                for _ in 0..10 {
                    bed.send(0, LONGEST)?;
                    bed.send(1, LONGEST)?;
                }
                let Bed {
                    ids,
                    mut sender,
                    mut completions,
                    ring,
                    lanes,
                    ears: _,
                    _listener,
                } = bed;
                for lane in &lanes {
                    lane.qp().to_error()?;
                    sender.close(lane);
                }
                drop((ids, sender));
                let all = completions.drain(&mut FlushTime::of(5000));
                same(all.sent.frames + all.lost, 20)?;
                drop((ring, completions, lanes));
            }
            until(|| ends.count() >= 40)?;
            same(ends.count(), 40)
        })
    }
}
