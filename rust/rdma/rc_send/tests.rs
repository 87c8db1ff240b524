// SPDX-License-Identifier: GPL-2.0

//! Tests of the send ring of connections on a device that maps memory: frames are mapped for as long as it has them, and no
//! longer.

use ipoib_sys::bindings;
use kernel::ffi::c_int;
use kernel::prelude::*;
use kernel::sync::Arc;

use super::{rc_ring, Lane, RcCompletions, RcSender};
use crate::cq::Cq;
use crate::deferred::Reaper;
use crate::fake::frames::{frame, parts, HEAD};
use crate::fake::Fake;
use crate::flush_time::FlushTime;
use crate::intake::Intake;
use crate::pd::Pd;
use crate::qp::QpCaps;
use crate::rc::{RcInit, RcQp};

/// Frames that the ring takes.
const SLOTS: u32 = 32;
/// Elements of a request: as many as a frame of the tests has parts.
const PARTS: u32 = 3;

/// A ring with two lanes, and what it is made of, in the order in which that goes.
struct Bed {
    sender: RcSender,
    completions: RcCompletions,
    lanes: [Arc<Lane>; 2],
    _reaper: Reaper,
    fake: Fake,
}

/// Makes a lane, whose queue pair is connected.
fn lane(pd: &Arc<Pd>, send_cq: &Arc<Cq>) -> Result<Arc<Lane>> {
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
    Lane::new(qp)
}

impl Bed {
    fn new() -> Result<Self> {
        let fake = Fake::new()?;
        let reaper = Reaper::new()?;
        let dev = fake.device();
        let pd = Pd::new(dev, &reaper)?;
        let cq = Cq::new(dev, SLOTS, 0, (), ())?;
        let lanes = [lane(&pd, &cq)?, lane(&pd, &cq)?];
        let (sender, completions) = rc_ring(&pd, &cq, SLOTS, PARTS)?;
        Ok(Self {
            sender,
            completions,
            lanes,
            _reaper: reaper,
            fake,
        })
    }

    /// Puts a frame in three parts on the ring, for one of the lanes.
    fn post(&mut self, lane: usize) -> Result {
        let lane = self.lanes.get(lane).ok_or(EINVAL)?;
        let posted = self.sender.post(frame(HEAD)?, lane, false);
        posted.map(drop).map_err(|(_, error)| error)
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

    /// Each part is where the device is told that it is, and mapped until the device has sent the frame, or has failed to.
    #[test]
    fn frames_are_mapped_until_they_are_sent() -> Result {
        let mut bed = Bed::new()?;
        for status in [SUCCESS, bindings::ib_wc_status_IB_WC_RETRY_EXC_ERR] {
            let skb = frame(HEAD)?;
            let (len, at) = (skb.len(), parts(&skb)?);
            assert!(bed
                .sender
                .post(skb, &bed.lanes[0], false)
                .is_ok_and(|charged| charged));
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
            let mut failed = 0;
            let (reaped, _) = bed.completions.reap(None, |_| failed += 1);
            assert!(bed.fake.mapped()?.is_empty());
            let is_sent = status == SUCCESS;
            assert_eq!(
                (reaped.frames, failed),
                (u32::from(is_sent), u32::from(!is_sent))
            );
            assert_eq!(reaped.bytes, if is_sent { len } else { 0 });
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
        assert_eq!(bed.completions.reap(None, |_| ()).0.frames, other);
        assert_eq!(bed.fake.mapped()?.len() as u32, PARTS);
        assert_eq!((bed.lanes[0].in_flight(), bed.lanes[1].in_flight()), (0, 1));
        bed.complete(SUCCESS)?;
        assert_eq!(bed.completions.reap(None, |_| ()).0.frames, 1);
        assert!(bed.fake.mapped()?.is_empty());
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
            assert_eq!(bed.lanes[0].in_flight(), 0);
            assert_eq!(bed.post(0), Ok(()));
            bed.sender.flush();
            bed.complete(SUCCESS)?;
            assert_eq!(bed.completions.reap(None, |_| ()).0.frames, 1);
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
            let lane = bed.sender.take_refusing().ok_or(EINVAL)?;
            assert_eq!(lane.qp().to_error(), Ok(()));
            let (sent, _) = bed.completions.reap(None, |_| ());
            let lost = bed.completions.take_unusual().ok_or(EINVAL)?;
            assert_eq!(
                (sent.frames, lost.lost, lost.released.frames),
                (0, taken, 4)
            );
            assert!(bed.fake.mapped()?.is_empty());
        }
        Ok(())
    }

    /// Frames of a queue pair that was reset never complete: they are dropped and unmapped, and no others.
    #[test]
    fn frames_of_a_reset_queue_pair_are_unmapped() -> Result {
        let mut bed = Bed::new()?;
        for at in [0, 0, 1] {
            bed.post(at)?;
        }
        bed.sender.flush();
        assert_eq!(bed.lanes[0].qp().to_reset(), Ok(()));
        let Bed {
            sender,
            completions,
            ..
        } = &mut bed;
        assert_eq!(completions.sweep(sender).lost, 2);
        assert_eq!(bed.fake.mapped()?.len() as u32, PARTS);
        bed.complete(SUCCESS)?;
        assert_eq!(bed.completions.reap(None, |_| ()).0.frames, 1);
        assert!(bed.fake.mapped()?.is_empty());
        Ok(())
    }

    /// Frames under way as the ring ends, and those that the device does not have yet, are lost and unmapped, whether the
    /// device flushes its requests or forgets them.
    #[test]
    fn a_ring_ends_with_nothing_mapped() -> Result {
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
            assert_eq!(bed.fake.mapped()?.is_empty(), !silent);
            drop(bed.completions);
            assert!(bed.fake.mapped()?.is_empty());
        }
        Ok(())
    }
}
