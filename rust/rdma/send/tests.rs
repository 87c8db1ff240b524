// SPDX-License-Identifier: GPL-2.0

//! Tests of a send ring on a device that maps memory: frames are mapped for as long as it has them, and no longer.

use ipoib_netdev::skb::TxSkb;
use ipoib_sys::bindings;
use kernel::prelude::*;
use kernel::sync::Arc;

use super::{send_ring, Drained, SendCompletions, Sender};
use crate::ah::{Ah, AhOptions};
use crate::cq::Cq;
use crate::deferred::Reaper;
use crate::fake::frames::{frame, parts, HEAD};
use crate::fake::{Fake, Gid, Sent};
use crate::flush_time::FlushTime;
use crate::pd::Pd;
use crate::qp::{QpCaps, UdInit, UdQp};
use crate::sa::Notify;

/// Frames that the ring takes.
const SLOTS: u32 = 32;
/// Elements of a request: as many as a frame of the tests has parts.
const PARTS: u32 = 3;
/// Queue pair of the peer.
const QPN: u32 = 7;

/// Receiver of news that needs none.
struct Deaf;

impl Notify for Deaf {
    fn notify(&self) {}
}

/// A ring of a queue pair that sends, and what it is made of, in the order in which that goes.
struct Bed {
    sender: Sender,
    completions: SendCompletions,
    ahs: KVec<Arc<Ah>>,
    qp: Arc<UdQp>,
    reaper: Reaper,
    _gid: Gid,
    fake: Fake,
}

impl Bed {
    fn new() -> Result<Self> {
        let fake = Fake::new()?;
        fake.speak(bindings::RDMA_CORE_PORT_IBA_ROCE_UDP_ENCAP);
        let gid = fake.gid([1; 16])?;
        let reaper = Reaper::new()?;
        let dev = fake.device();
        let pd = Pd::new(dev, &reaper)?;
        let init = UdInit {
            pd: &pd,
            send_cq: &Cq::new(dev, SLOTS, 0, (), ())?,
            recv_cq: &Cq::new(dev, 1, 0, (), ())?,
            caps: QpCaps {
                send_wr: SLOTS,
                recv_wr: 1,
                send_sge: PARTS,
                recv_sge: 1,
            },
            port: 1,
            offloads: false,
        };
        let qp = UdQp::new(init, ())?;
        qp.to_init(0, 0)?;
        qp.start(0)?;
        let (sender, completions) = send_ring(&qp, SLOTS, PARTS, 0)?;
        let deaf = Arc::new(Deaf, GFP_KERNEL)?;
        let mut ahs = KVec::new();
        for group in 1..=2 {
            let ah = Ah::new(
                &pd,
                &gid.reference,
                [0xff, group, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
                AhOptions::default(),
                deaf.clone(),
            )?;
            ahs.push(ah, GFP_KERNEL)?;
        }
        Ok(Self {
            sender,
            completions,
            ahs,
            qp,
            reaper,
            _gid: gid,
            fake,
        })
    }

    /// Puts a frame on the ring, for the first destination or another one.
    fn post_to(&mut self, skb: TxSkb, to: usize) -> Result {
        let ah = self.ahs.get(to).ok_or(EINVAL)?;
        let posted = self.sender.post(skb, false, ah, QPN);
        posted.map_err(|(_, error)| error)
    }

    /// Puts a frame in three parts on the ring.
    fn post(&mut self) -> Result {
        self.post_to(frame(HEAD)?, 0)
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

/// Returns true if the device finds the parts of a frame, whose kernel addresses these are, where a send says, and so
/// many of them are mapped.
fn finds(fake: &Fake, sent: &Sent, at: &[u64]) -> Result<bool> {
    let elements = sent.elements();
    let mapped = fake.mapped()?;
    let is_mapped = |sge: &bindings::ib_sge| {
        let mut mapped = mapped.iter();
        mapped.any(|part| (part.addr, part.len) == (sge.addr, sge.length as usize))
    };
    let mut found = elements.iter().zip(at);
    Ok(elements.len() == at.len()
        && found.all(|(sge, at)| is_mapped(sge) && fake.find(sge.addr) == Some(*at)))
}

#[kunit_tests(rust_rdma_send)]
mod cases {
    use super::*;

    const SUCCESS: bindings::ib_wc_status = bindings::ib_wc_status_IB_WC_SUCCESS;

    /// Each part is where the device is told that it is, and mapped until the device has sent the frame, or has failed to.
    #[test]
    fn frames_are_mapped_until_they_are_sent() -> Result {
        let mut bed = Bed::new()?;
        for status in [SUCCESS, bindings::ib_wc_status_IB_WC_LOC_QP_OP_ERR] {
            for head in [0, HEAD] {
                let skb = frame(head)?;
                let (len, at) = (skb.len(), parts(&skb)?);
                assert_eq!(bed.post_to(skb, 0), Ok(()));
                assert!(bed.sender.flush());
                let sent = bed.fake.take_send()?;
                assert!(finds(&bed.fake, &sent, &at)?);
                assert_eq!(bed.fake.mapped()?.len(), at.len());
                // Until the ring looks, the device may not be done.
                bed.fake.complete_send(&sent, status)?;
                assert_eq!(bed.fake.mapped()?.len(), at.len());
                let reaped = bed.completions.reap(None);
                assert!(bed.fake.mapped()?.is_empty());
                let failed = bed
                    .completions
                    .take_report()
                    .map_or(0, |report| report.errors);
                assert_eq!(
                    (reaped.sent.frames, failed),
                    if status == SUCCESS { (1, 0) } else { (0, 1) }
                );
                assert_eq!((reaped.released.frames, reaped.released.bytes), (1, len));
            }
        }
        Ok(())
    }

    /// One completion stands for those in front of it, whose frames are all unmapped: all of a chain, or those in front of
    /// one that has failed.
    #[test]
    fn one_completion_unmaps_a_chain() -> Result {
        let mut bed = Bed::new()?;
        for (count, status, sent) in [
            (16, SUCCESS, 16),
            (5, bindings::ib_wc_status_IB_WC_LOC_QP_OP_ERR, 4),
        ] {
            for _ in 0..count {
                bed.post()?;
            }
            bed.sender.flush();
            assert_eq!(bed.fake.mapped()?.len(), count * PARTS as usize);
            bed.complete(status)?;
            assert_eq!(bed.completions.reap(None).sent.frames, sent);
            assert!(bed.fake.mapped()?.is_empty());
        }
        Ok(())
    }

    /// If a part cannot be mapped, those in front of it are not mapped any more, the frame comes back, and the next one goes.
    #[test]
    fn what_cannot_be_mapped_is_undone() -> Result {
        let mut bed = Bed::new()?;
        for nth in 1..=PARTS {
            bed.fake.fail_mapping(nth);
            assert_eq!(bed.post(), Err(EIO));
            assert!(bed.fake.mapped()?.is_empty());
            assert!(!bed.sender.is_pending());
            assert_eq!(bed.post(), Ok(()));
            bed.sender.flush();
            bed.complete(SUCCESS)?;
            assert_eq!(bed.completions.reap(None).sent.frames, 1);
            assert!(bed.fake.mapped()?.is_empty());
        }
        Ok(())
    }

    /// Frames that the device refuses are unmapped at once, and reported; those in front of them stay until they are sent.
    #[test]
    fn refused_frames_are_unmapped() -> Result {
        let mut bed = Bed::new()?;
        for taken in [0, 1, 3] {
            bed.fake.take_sends(taken);
            for _ in 0..4 {
                bed.post()?;
            }
            assert_eq!(bed.sender.flush(), taken > 0);
            let refusal = bed.sender.take_refusal().ok_or(EINVAL)?;
            assert_eq!(
                (refusal.frames, refusal.unsignalled),
                (4 - taken, taken > 0)
            );
            assert_eq!(bed.fake.mapped()?.len() as u32, taken * PARTS);
            // The last one of them was not to be signalled, so that the next chain's completion stands for it.
            bed.fake.take_sends(u32::MAX);
            bed.post()?;
            bed.sender.flush();
            bed.complete(SUCCESS)?;
            let reaped = bed.completions.reap(None);
            assert_eq!((reaped.sent.frames, reaped.released.frames), (taken + 1, 5));
            assert!(bed.fake.mapped()?.is_empty());
        }
        Ok(())
    }

    /// A ring that is full takes no frame, and maps none.
    #[test]
    fn a_full_ring_maps_nothing() -> Result {
        let mut bed = Bed::new()?;
        for _ in 0..SLOTS {
            bed.post()?;
        }
        assert_eq!(bed.post(), Err(EBUSY));
        assert_eq!(bed.fake.mapped()?.len() as u32, SLOTS * PARTS);
        Ok(())
    }

    /// Frames under way at the end of a queue pair, and those that the device does not have yet, are lost and unmapped,
    /// whether the device flushes its requests or forgets them.
    #[test]
    fn a_ring_ends_with_nothing_mapped() -> Result {
        for silent in [false, true] {
            let mut bed = Bed::new()?;
            if silent {
                bed.fake.silence();
            }
            for _ in 0..5 {
                bed.post()?;
            }
            bed.sender.flush();
            for _ in 0..2 {
                bed.post()?;
            }
            let mut all = Drained::default();
            let Bed {
                sender,
                completions,
                ..
            } = &mut bed;
            let drained = completions.drain(sender, &mut FlushTime::of(20), &mut all);
            assert_eq!((drained, all.lost, all.sent.frames), (Ok(()), 7, 0));
            assert!(bed.fake.mapped()?.is_empty());
        }
        Ok(())
    }

    /// A ring that is dropped resets its queue pair. If that fails, its frames stay mapped until the queue pair is destroyed.
    #[test]
    fn frames_are_mapped_as_long_as_the_device_has_them() -> Result {
        for rigid in [false, true] {
            let mut bed = Bed::new()?;
            for _ in 0..3 {
                bed.post()?;
            }
            bed.sender.flush();
            bed.fake.stiffen(rigid);
            let Bed {
                sender,
                completions,
                ahs,
                qp,
                reaper,
                _gid,
                fake,
            } = bed;
            drop((sender, completions));
            let left = if rigid { 3 * PARTS as usize } else { 0 };
            assert_eq!(fake.mapped()?.len(), left);
            fake.stiffen(false);
            drop(qp);
            assert!(fake.mapped()?.is_empty());
            drop((ahs, reaper, _gid, fake));
        }
        Ok(())
    }

    /// An address handle that nobody else has any more is there until the last frame that uses it was sent, and no longer.
    #[test]
    fn address_handles_outlive_their_frames() -> Result {
        let mut bed = Bed::new()?;
        bed.post_to(frame(HEAD)?, 0)?;
        bed.post_to(frame(HEAD)?, 1)?;
        bed.sender.flush();
        bed.ahs.clear();
        bed.reaper.flush();
        assert!(bed.fake.sends_are_addressed());
        assert_eq!(bed.fake.handles(), 2);
        bed.complete(SUCCESS)?;
        assert_eq!(bed.completions.reap(None).sent.frames, 2);
        bed.reaper.flush();
        // That of the last frame is kept for the next one.
        assert_eq!(bed.fake.handles(), 1);
        drop((bed.sender, bed.completions));
        bed.reaper.flush();
        assert_eq!(bed.fake.handles(), 0);
        Ok(())
    }
}
