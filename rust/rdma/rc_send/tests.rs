// SPDX-License-Identifier: GPL-2.0

//! Tests of the send rings of connections on a device that maps memory: frames are mapped for as long as it has them, and no
//! longer.

use ipoib_netdev::live::Ends;
use ipoib_sys::bindings;
use kernel::ffi::c_int;
use kernel::prelude::*;
use kernel::sync::Arc;

use super::{rc_sends, Lane, RcCompletions, RcSender};
use crate::cq::Cq;
use crate::deferred::Reaper;
use crate::fake::frames::{frame, parts, HEAD};
use crate::fake::Fake;
use crate::flush_time::FlushTime;
use crate::intake::Intake;
use crate::pd::Pd;
use crate::qp::QpCaps;
use crate::rc::{RcInit, RcQp};

/// Frames that a ring takes.
const SLOTS: u32 = 32;
/// Elements of a request: as many as a frame of the tests has parts.
const PARTS: u32 = 3;

/// Two lanes, the first of which carries frames, and the second as it is told, and what they are made of, in the order in
/// which that goes.
struct Bed {
    sender: RcSender,
    /// Lanes belong to their numbers.
    completions: RcCompletions<usize>,
    lanes: [Arc<Lane>; 2],
    reaper: Reaper,
    fake: Fake,
}

/// Makes a lane, whose queue pair is connected.
fn lane(pd: &Arc<Pd>, send_cq: &Arc<Cq>, carries_frames: bool) -> Result<Arc<Lane>> {
    let init = RcInit {
        pd,
        send_cq,
        recv_cq: &Cq::new(pd.device(), 1, 0, (), ())?,
        intake: &Intake::separate(pd, 1, 1)?,
        caps: QpCaps {
            send_wr: SLOTS,
            recv_wr: 1,
            send_sge: PARTS,
            recv_sge: 1,
        },
    };
    let qp = RcQp::new(init)?;
    let mut attr = bindings::ib_qp_attr {
        qp_state: bindings::ib_qp_state_IB_QPS_RTS,
        ..Default::default()
    };
    let mask = bindings::ib_qp_attr_mask_IB_QP_STATE as c_int;
    // SAFETY: There is no address.
    unsafe { qp.modify(&mut attr, mask) }?;
    Lane::new(&qp, carries_frames)
}

impl Bed {
    fn new() -> Result<Self> {
        Self::with(true)
    }

    fn with(second_carries_frames: bool) -> Result<Self> {
        let fake = Fake::new()?;
        let reaper = Reaper::new()?;
        let dev = fake.device();
        let pd = Pd::new(dev, &reaper)?;
        let cq = Cq::new(dev, 2 * SLOTS, 0, (), ())?;
        let lanes = [
            lane(&pd, &cq, true)?,
            lane(&pd, &cq, second_carries_frames)?,
        ];
        let (sender, mut completions) = rc_sends(&pd, &cq, PARTS, 2)?;
        for (number, lane) in lanes.iter().enumerate() {
            completions.begin(lane.clone(), number)?;
        }
        Ok(Self {
            sender,
            completions,
            lanes,
            reaper,
            fake,
        })
    }

    /// Puts a frame in three parts on the ring of one of the lanes.
    fn post(&mut self, lane: usize) -> Result {
        let lane = self.lanes.get(lane).ok_or(EINVAL)?;
        let posted = self.sender.post(frame(HEAD)?, lane);
        posted.map_err(|(_, error)| error)
    }

    /// Takes completions: how many frames were sent, and how many lost.
    fn reap(&mut self) -> (u32, u32) {
        let reaped = self.completions.reap(None, |_| ());
        (reaped.sent.frames, reaped.lost)
    }

    /// Has the device complete the sends that it has, the last one with a status.
    fn complete(&self, status: bindings::ib_wc_status) -> Result {
        let mut last = self.fake.take_send()?;
        while let Ok(next) = self.fake.take_send() {
            self.fake
                .complete_send(&last, bindings::ib_wc_status_IB_WC_SUCCESS)?;
            last = next;
        }
        self.fake.complete_send(&last, status)
    }
}

#[kunit_tests(rust_rdma_rc_send)]
mod cases {
    use super::*;

    const SUCCESS: bindings::ib_wc_status = bindings::ib_wc_status_IB_WC_SUCCESS;
    const FAILURE: bindings::ib_wc_status = bindings::ib_wc_status_IB_WC_RETRY_EXC_ERR;

    /// Each part is where the device is told that it is, and mapped until the device has sent the frame, or has failed to.
    #[test]
    fn frames_are_mapped_until_they_are_sent() -> Result {
        let mut bed = Bed::new()?;
        for status in [SUCCESS, FAILURE] {
            let skb = frame(HEAD)?;
            let (len, at) = (skb.len(), parts(&skb)?);
            assert!(bed.sender.post(skb, &bed.lanes[1]).is_ok());
            assert!(bed.sender.flush());
            let sent = bed.fake.take_send()?;
            let mapped = bed.fake.mapped()?;
            assert_eq!((sent.elements().len(), mapped.len(), at.len()), (3, 3, 3));
            for ((sge, part), at) in sent.elements().iter().zip(&mapped).zip(&at) {
                assert_eq!((sge.addr, sge.length as usize), (part.addr, part.len));
                assert_eq!(bed.fake.find(sge.addr), Some(*at));
            }
            bed.fake.complete_send(&sent, status)?;
            assert_eq!(bed.fake.mapped()?.len(), 3);
            let mut failed = None;
            let reaped = bed.completions.reap(None, |number| failed = Some(*number));
            assert!(bed.fake.mapped()?.is_empty());
            assert_eq!(
                (reaped.sent.frames, reaped.sent.bytes, reaped.lost, failed),
                if status == SUCCESS {
                    (1, len, 0, None)
                } else {
                    (0, 0, 1, Some(1))
                }
            );
        }
        Ok(())
    }

    /// One completion stands for those of its chain in front of it, whose frames are all unmapped, and for no other lane's.
    #[test]
    fn one_completion_unmaps_a_chain() -> Result {
        let mut bed = Bed::new()?;
        for _ in 0..10 {
            bed.post(0)?;
        }
        bed.post(1)?;
        bed.sender.flush();
        let other = 10;
        for _ in 0..other {
            let sent = bed.fake.take_send()?;
            bed.fake.complete_send(&sent, SUCCESS)?;
        }
        assert_eq!(bed.reap(), (other, 0));
        assert_eq!(bed.fake.mapped()?.len() as u32, PARTS);
        assert_eq!((bed.lanes[0].in_flight(), bed.lanes[1].in_flight()), (0, 1));
        bed.complete(SUCCESS)?;
        assert_eq!(bed.reap(), (1, 0));
        assert!(bed.fake.mapped()?.is_empty());
        Ok(())
    }

    /// Those in front of a failed request were sent, and those behind it are not done.
    #[test]
    fn a_failure_is_one_frames() -> Result {
        let mut bed = Bed::new()?;
        for _ in 0..5 {
            bed.post(0)?;
        }
        bed.sender.flush();
        for _ in 0..3 {
            bed.fake.take_send()?;
        }
        let failed = bed.fake.take_send()?;
        bed.fake.complete_send(&failed, FAILURE)?;
        assert_eq!(bed.reap(), (3, 1));
        assert!(bed.lanes[0].has_worked());
        assert_eq!(bed.lanes[0].in_flight(), 1);
        assert_eq!(bed.fake.mapped()?.len() as u32, PARTS);
        Ok(())
    }

    /// A lane is full by itself, and what completes makes room.
    #[test]
    fn rings_are_full_one_by_one() -> Result {
        let mut bed = Bed::new()?;
        for _ in 0..SLOTS {
            assert!(bed.sender.has_room(&bed.lanes[0]));
            bed.post(0)?;
        }
        assert!(!bed.sender.has_room(&bed.lanes[0]));
        assert_eq!(bed.post(0), Err(EBUSY));
        assert!(bed.sender.has_room(&bed.lanes[1]));
        assert_eq!(bed.post(1), Ok(()));
        assert_eq!(bed.sender.in_flight(&bed.lanes[0]), SLOTS);
        bed.sender.flush();
        bed.complete(SUCCESS)?;
        assert_eq!(bed.reap(), (SLOTS + 1, 0));
        assert!(bed.sender.has_room(&bed.lanes[0]));
        assert_eq!(bed.sender.in_flight(&bed.lanes[0]), 0);
        Ok(())
    }

    /// Messages of the driver's own are in flight, and make room, but no count includes them.
    #[test]
    fn own_messages_are_not_counted() -> Result {
        let mut bed = Bed::with(false)?;
        bed.post(1)?;
        bed.sender.flush();
        assert_eq!(
            (
                bed.lanes[1].in_flight(),
                bed.sender.in_flight(&bed.lanes[1])
            ),
            (1, 0)
        );
        bed.complete(SUCCESS)?;
        assert_eq!(bed.reap(), (0, 0));
        bed.post(1)?;
        bed.sender.flush();
        bed.complete(FAILURE)?;
        let mut failed = None;
        let reaped = bed.completions.reap(None, |number| failed = Some(*number));
        assert_eq!((reaped.lost, failed), (0, Some(1)));
        assert_eq!(bed.lanes[1].in_flight(), 0);
        bed.fake.take_sends(0);
        bed.post(1)?;
        bed.sender.flush();
        assert_eq!(bed.sender.take_refused(), Some(0));
        Ok(())
    }

    /// If a part cannot be mapped, those in front of it are not mapped any more, the frame comes back, and the next one goes.
    #[test]
    fn what_cannot_be_mapped_is_undone() -> Result {
        let mut bed = Bed::new()?;
        for nth in 1..=PARTS {
            bed.fake.fail_mapping(nth);
            assert_eq!(bed.post(0), Err(EIO));
            assert!(bed.fake.mapped()?.is_empty());
            assert_eq!(bed.sender.in_flight(&bed.lanes[0]), 0);
            assert_eq!(bed.post(0), Ok(()));
            bed.sender.flush();
            bed.complete(SUCCESS)?;
            assert_eq!(bed.reap(), (1, 0));
            assert!(bed.fake.mapped()?.is_empty());
        }
        Ok(())
    }

    /// Frames that the device refuses are unmapped at once; those in front of them stay until their lane has ended.
    #[test]
    fn refused_frames_are_unmapped() -> Result {
        for taken in [0, 1, 3] {
            let mut bed = Bed::new()?;
            bed.fake.take_sends(taken);
            for _ in 0..4 {
                bed.post(0)?;
            }
            bed.sender.flush();
            assert_eq!(bed.sender.take_refused(), Some(4 - taken));
            assert_eq!(bed.fake.mapped()?.len() as u32, taken * PARTS);
            assert!(bed.lanes[0].has_refused() && !bed.lanes[1].has_refused());
            assert_eq!(bed.lanes[0].qp().to_error(), Ok(()));
            assert_eq!(bed.reap(), (0, taken));
            assert!(bed.fake.mapped()?.is_empty());
        }
        Ok(())
    }

    /// Frames of a queue pair that was reset never complete: they are dropped and unmapped with their lane, and no others.
    #[test]
    fn frames_of_a_reset_queue_pair_are_unmapped() -> Result {
        let mut bed = Bed::new()?;
        for at in [0, 0, 1] {
            bed.post(at)?;
        }
        bed.sender.flush();
        let lane = bed.lanes[0].clone();
        assert_eq!(lane.qp().to_reset(), Ok(()));
        // The sender has not closed the lane yet.
        assert_eq!(bed.completions.end(&lane), None);
        bed.sender.close(&lane);
        assert_eq!(bed.completions.end(&lane), Some((0, 2)));
        assert_eq!(bed.post(0), Err(EINVAL));
        assert_eq!(bed.fake.mapped()?.len() as u32, PARTS);
        bed.complete(SUCCESS)?;
        assert_eq!(bed.reap(), (1, 0));
        assert!(bed.fake.mapped()?.is_empty());
        Ok(())
    }

    /// A lane that has requests in flight stays, though nothing more is posted to it.
    #[test]
    fn a_lane_ends_when_nothing_is_in_flight() -> Result {
        let mut bed = Bed::new()?;
        let lane = bed.lanes[1].clone();
        bed.post(1)?;
        bed.sender.close(&lane);
        assert_eq!(bed.completions.end(&lane), None);
        bed.complete(SUCCESS)?;
        assert_eq!(bed.reap(), (1, 0));
        // Nor is it ended by one of another queue, with the same tag.
        let cq = Cq::new(bed.fake.device(), 2 * SLOTS, 0, (), ())?;
        let others = [
            super::lane(lane.qp().pd(), &cq, true)?,
            super::lane(lane.qp().pd(), &cq, true)?,
        ];
        assert_eq!(others[1].ring.tag(), lane.ring.tag());
        assert_eq!(bed.completions.end(&others[1]), None);
        assert_eq!(bed.completions.end(&lane), Some((1, 0)));
        assert_eq!(bed.completions.end(&lane), None);
        Ok(())
    }

    /// A completion of what is in no ring does nothing, whatever ring or slot it names.
    #[test]
    fn strays_are_nobodys() -> Result {
        let mut bed = Bed::new()?;
        bed.post(0)?;
        bed.post(1)?;
        bed.sender.flush();
        let (first, second) = (bed.fake.take_send()?, bed.fake.take_send()?);
        bed.fake.complete_send(&first, SUCCESS)?;
        bed.fake.complete_send(&first, SUCCESS)?;
        bed.fake.complete_send(&first, FAILURE)?;
        let reaped = bed.completions.reap(None, |_| ());
        assert_eq!((reaped.sent.frames, reaped.lost, reaped.unknown), (1, 0, 2));
        let (ring, next) = (&bed.lanes[1].ring, bed.lanes[1].ring.shared.head());
        let wrong = [
            ring.tag() | u64::from(next),
            ring.tag() | u64::from(next.wrapping_sub(2)),
            ring.tag().wrapping_add(1 << 32) | u64::from(next.wrapping_sub(1)),
            u64::from(next.wrapping_sub(1)) | (0xffff << 32),
        ];
        for id in wrong {
            bed.fake.complete_send(&second.with_id(id), SUCCESS)?;
        }
        let reaped = bed.completions.reap(None, |_| ());
        assert_eq!((reaped.sent.frames, reaped.lost, reaped.unknown), (0, 0, 4));
        bed.fake.complete_send(&second, SUCCESS)?;
        assert_eq!(bed.reap(), (1, 0));
        Ok(())
    }

    /// A completion queue has room for all that its queue pairs may send, or there is none for another one.
    #[test]
    fn queue_pairs_share_the_room_of_their_queue() -> Result {
        let mut bed = Bed::new()?;
        let (pd, cq) = {
            let qp = bed.lanes[0].qp();
            (qp.pd().clone(), qp.send_cq().clone())
        };
        let full = lane(&pd, &cq, true);
        assert_eq!(full.map(drop), Err(ENOSPC));
        // A queue pair has one ring.
        let second = Lane::new(bed.lanes[1].qp(), true);
        assert_eq!(second.map(drop), Err(EBUSY));
        let first = bed.lanes[0].clone();
        bed.sender.close(&first);
        assert_eq!(bed.completions.end(&first), Some((0, 0)));
        bed.lanes[0] = bed.lanes[1].clone();
        drop(first);
        bed.reaper.flush();
        assert!(lane(&pd, &cq, true).is_ok());
        Ok(())
    }

    /// Frames under way as everything ends, and those that the device does not have yet, are lost and unmapped, whether the
    /// device flushes its requests or forgets them.
    #[test]
    fn rings_end_with_nothing_mapped() -> Result {
        for silent in [false, true] {
            let mut bed = Bed::new()?;
            if silent {
                bed.fake.silence();
            }
            for at in [0, 1, 0] {
                bed.post(at)?;
            }
            // That of the last lane is still in the chain.
            assert_eq!(bed.sender.clear(), 1);
            assert_eq!(bed.fake.mapped()?.len() as u32, 2 * PARTS);
            for lane in &bed.lanes {
                assert_eq!(lane.qp().to_error(), Ok(()));
            }
            drop(bed.sender);
            let reaped = bed.completions.drain(&mut FlushTime::of(20));
            assert_eq!((reaped.lost, reaped.sent.frames), (2, 0));
            assert!(bed.fake.mapped()?.is_empty());
        }
        Ok(())
    }

    /// Frames of a queue pair that cannot be reset stay until it is destroyed.
    #[test]
    fn frames_stay_with_a_queue_pair_that_stays() -> Result {
        let (mut bed, ends) = (Bed::new()?, Ends::begin());
        let posted = bed.sender.post(Ends::watch(frame(HEAD)?), &bed.lanes[0]);
        assert!(posted.is_ok());
        bed.sender.flush();
        bed.fake.stiffen(true);
        let Bed {
            sender,
            mut completions,
            lanes,
            reaper,
            fake,
        } = bed;
        drop(sender);
        let reaped = completions.drain(&mut FlushTime::of(20));
        assert_eq!((reaped.lost, reaped.sent.frames), (1, 0));
        let qp = lanes[0].qp().clone();
        drop((completions, lanes));
        assert_eq!((fake.mapped()?.len() as u32, ends.count()), (PARTS, 0));
        drop(qp);
        reaper.flush();
        assert_eq!(ends.count(), 1);
        drop((reaper, fake));
        Ok(())
    }
}
