// SPDX-License-Identifier: GPL-2.0

//! Tests of a receive ring on a device that maps memory: datagrams are where the device has put them.

use ipoib_netdev::page_pool::FilledBuf;
use ipoib_sys::bindings;
use kernel::prelude::*;
use kernel::sync::Arc;

use super::GRH_LEN;
use crate::cq::Cq;
use crate::deferred::Reaper;
use crate::fake::{Fake, Posted, Synced};
use crate::flush_time::FlushTime;
use crate::pd::Pd;
use crate::qp::{QpCaps, UdInit, UdQp};
use ipoib_netdev::faults::each_allocation_fails;

type RecvRing = super::RecvRing<GRH_LEN>;

/// Buffers of the ring.
const SLOTS: u32 = 4;
/// Bytes that a buffer takes.
const BUF_LEN: usize = 2000;

/// A ring whose buffers are posted, and what it is made of, in the order in which that goes.
struct Bed {
    ring: RecvRing,
    qp: Arc<UdQp>,
    _reaper: Reaper,
    fake: Fake,
}

/// Objects of a device that a [`Bed`] has, to be dropped in this order.
fn make(fake: &Fake) -> Result<(RecvRing, Arc<UdQp>, Reaper)> {
    let (qp, reaper) = make_qp(fake)?;
    qp.to_init(0, 0)?;
    qp.start(0)?;
    let mut ring = RecvRing::new(&qp, BUF_LEN, SLOTS)?;
    ring.fill()?;
    Ok((ring, qp, reaper))
}

/// A queue pair that is reset.
fn make_qp(fake: &Fake) -> Result<(Arc<UdQp>, Reaper)> {
    let reaper = Reaper::new()?;
    let dev = fake.device();
    let pd = Pd::new(dev, &reaper)?;
    let send_cq = Cq::new(dev, 1, 0, (), ())?;
    let recv_cq = Cq::new(dev, SLOTS, 0, (), ())?;
    let init = UdInit {
        pd: &pd,
        send_cq: &send_cq,
        recv_cq: &recv_cq,
        caps: QpCaps {
            send_wr: 1,
            recv_wr: SLOTS,
            send_sge: 1,
            recv_sge: 1,
        },
        port: 1,
        offloads: false,
    };
    Ok((UdQp::new(init, ())?, reaper))
}

impl Bed {
    fn new() -> Result<Self> {
        let fake = Fake::new()?;
        let (ring, qp, reaper) = make(&fake)?;
        Ok(Self {
            ring,
            qp,
            _reaper: reaper,
            fake,
        })
    }

    /// Has the device complete a receive, and polls. Returns what was received.
    fn receive(
        &mut self,
        posted: &Posted,
        len: usize,
        change: impl FnOnce(&mut bindings::ib_wc),
    ) -> Result<Option<FilledBuf<GRH_LEN>>> {
        let cq = self.qp.recv_cq();
        self.fake.complete(cq, posted, len, change)?;
        let mut buf = None;
        let done = self.ring.poll_sleeping(|received| buf = Some(received.buf));
        (done == 1).then_some(buf).ok_or(EIO)
    }
}

/// The bytes of datagram `n`.
fn bytes(n: usize, len: usize) -> Result<KVec<u8>> {
    let mut bytes = KVec::with_capacity(len, GFP_KERNEL)?;
    for at in 0..len {
        bytes.push((n * 31 + at * 7 + at / 251) as u8, GFP_KERNEL)?;
    }
    Ok(bytes)
}

#[kunit_tests(rust_rdma_recv)]
mod cases {
    use super::*;

    /// The device is told where the buffer is that is in the slot now, and the CPU is lent as much as was received,
    /// before anybody looks.
    #[test]
    fn datagrams_are_where_the_device_puts_them() -> Result {
        let mut bed = Bed::new()?;
        let mut kept = KVec::new();
        for n in 0..40 {
            let len = [41, 100, 1500, BUF_LEN][n % 4];
            let sent = bytes(n, len)?;
            let posted = bed.fake.begin()?;
            bed.fake.write(&posted, &sent)?;
            assert!(bed.fake.syncs()?.is_empty());
            let mut lent = Err(EINVAL);
            bed.fake.complete(bed.qp.recv_cq(), &posted, len, |_| ())?;
            let Bed { ring, fake, .. } = &mut bed;
            ring.poll_sleeping(|received| lent = fake.syncs().map(|syncs| (syncs, received.buf)));
            let (syncs, buf) = lent?;
            let sync = Synced {
                addr: posted.sges[0].addr,
                len,
                for_cpu: true,
            };
            assert!(syncs[..] == [sync]);
            // The pool gives back to the device what returns.
            assert!(bed.fake.syncs()?.is_empty());
            assert!(buf.bytes() == &sent[..]);
            kept.push((buf, sent), GFP_KERNEL)?;
        }
        // Nothing was received into what was given away.
        for (buf, sent) in &kept {
            assert!(buf.bytes() == &sent[..]);
        }
        Ok(())
    }

    /// A receive that brings nothing lends nothing to anybody, and its buffer is posted again.
    #[test]
    fn failed_receives_keep_their_buffers() -> Result {
        let mut bed = Bed::new()?;
        for (len, status) in [
            (100, bindings::ib_wc_status_IB_WC_LOC_LEN_ERR),
            (BUF_LEN + 1, bindings::ib_wc_status_IB_WC_SUCCESS),
        ] {
            let posted = bed.fake.begin()?;
            let change = |wc: &mut bindings::ib_wc| wc.status = status;
            assert!(bed.receive(&posted, len, change)?.is_none());
            assert!(bed.fake.syncs()?.is_empty());
            // The other ones come first.
            for _ in 1..SLOTS {
                let other = bed.fake.begin()?;
                assert!(other.addresses() != posted.addresses());
                assert!(bed.receive(&other, 100, |_| ())?.is_some());
            }
            let again = bed.fake.begin()?;
            assert!(again.addresses() == posted.addresses());
            assert!(bed.receive(&again, 100, |_| ())?.is_some());
            bed.fake.syncs()?;
        }
        let report = bed.ring.take_report().ok_or(EINVAL)?;
        assert_eq!((report.errors, report.malformed), (1, 1));
        Ok(())
    }

    /// Completions of receives that were never posted, or have completed already, are counted and change nothing.
    #[test]
    fn completions_of_nobody_are_told_of() -> Result {
        let mut bed = Bed::new()?;
        let posted = bed.fake.begin()?;
        assert!(bed.receive(&posted, 100, |_| ())?.is_some());
        bed.fake.syncs()?;
        let strangers: [fn(&mut bindings::ib_wc); 3] = [
            |_| (),
            |wc| wc.__bindgen_anon_1.wr_id = u64::MAX,
            |wc| wc.__bindgen_anon_1.wr_id = u64::from(SLOTS),
        ];
        for stranger in strangers {
            assert!(bed.receive(&posted, 100, stranger)?.is_none());
        }
        assert!(bed.fake.syncs()?.is_empty());
        assert_eq!(bed.ring.take_report().ok_or(EINVAL)?.unknown, 3);
        // The device has all of them.
        assert_eq!(bed.fake.posted(), SLOTS as usize);
        Ok(())
    }

    /// The device's word on checksums is the flag of the completion, and no other one.
    #[test]
    fn checksums_are_right_if_the_device_says_so() -> Result {
        let mut bed = Bed::new()?;
        let right = bindings::ib_wc_flags_IB_WC_IP_CSUM_OK as i32;
        let others =
            (bindings::ib_wc_flags_IB_WC_GRH | bindings::ib_wc_flags_IB_WC_WITH_VLAN) as i32;
        for (flags, is_right) in [
            (0, false),
            (right, true),
            (others, false),
            (right | others, true),
        ] {
            let posted = bed.fake.begin()?;
            let cq = bed.qp.recv_cq();
            bed.fake
                .complete(cq, &posted, 100, |wc| wc.wc_flags = flags)?;
            let mut told = None;
            bed.ring
                .poll_sleeping(|received| told = Some(received.completion.csum_ok()));
            assert_eq!(told, Some(is_right));
        }
        Ok(())
    }

    /// Receives that the device refuses are told of, since no completion may bring the poll that posts them: the device
    /// has none of them left.
    #[test]
    fn refused_receives_are_told_of() -> Result {
        let mut bed = Bed::new()?;
        bed.fake.refuse(true);
        for _ in 0..SLOTS {
            let posted = bed.fake.begin()?;
            assert!(bed.receive(&posted, 100, |_| ())?.is_some());
            let report = bed.ring.take_report().ok_or(EINVAL)?;
            assert_eq!(report.refused, 1);
        }
        assert!(bed.fake.begin().is_err());
        bed.fake.refuse(false);
        bed.ring.poll_sleeping(|_| ());
        assert!(bed.ring.take_report().is_none());
        for _ in 0..SLOTS {
            bed.fake.begin()?;
        }
        Ok(())
    }

    /// A poll takes no more than half of a small ring's buffers, so that the device has the others until it posts them
    /// again.
    #[test]
    fn a_poll_leaves_half_of_a_ring() -> Result {
        let mut bed = Bed::new()?;
        let mut numbers = KVec::with_capacity(SLOTS as usize, GFP_KERNEL)?;
        for n in 0..SLOTS as usize {
            let posted = bed.fake.begin()?;
            bed.fake.write(&posted, &bytes(n, 100)?)?;
            bed.fake.complete(bed.qp.recv_cq(), &posted, 100, |_| ())?;
        }
        assert!(bed.fake.begin().is_err());
        let half = SLOTS as usize / 2;
        assert_eq!(bed.ring.batch(), half);
        for polls in 1..=2 {
            let done = bed.ring.poll_sleeping(|received| {
                let first = received.buf.bytes().first().copied();
                let _ = numbers.push_within_capacity(first);
            });
            assert_eq!((done, numbers.len()), (half, half * polls));
            for _ in 0..half {
                bed.fake.begin()?;
            }
            assert!(bed.fake.begin().is_err());
        }
        for (n, first) in numbers.iter().enumerate() {
            assert_eq!(*first, bytes(n, 1)?.first().copied());
        }
        Ok(())
    }

    /// The buffers are mapped for as long as the device has them, and no longer.
    #[test]
    fn buffers_are_unmapped_in_the_end() -> Result {
        let bed = Bed::new()?;
        let mut pages = KVec::new();
        for _ in 0..SLOTS {
            let addr = bed.fake.begin()?.sges[0].addr;
            pages.push(bed.fake.hold(addr)?, GFP_KERNEL)?;
        }
        assert!(pages.iter().all(|page| page.is_mapped()));
        drop(bed.ring);
        assert!(!pages.iter().any(|page| page.is_mapped()));
        Ok(())
    }

    /// A device that takes buffers while the queue pair is reset forgets them before they are freed. Otherwise the ring
    /// resets the queue pair once only.
    #[test]
    fn what_is_posted_while_reset_is_taken_back() -> Result {
        let fake = Fake::new()?;
        let (qp, _reaper) = make_qp(&fake)?;
        let mut ring = RecvRing::new(&qp, BUF_LEN, SLOTS)?;
        ring.fill()?;
        drop(ring);
        assert!(fake.begin().is_err());
        let mut ring = RecvRing::new(&qp, BUF_LEN, SLOTS)?;
        ring.fill()?;
        ring.drain(&mut FlushTime::of(20), &mut 0)?;
        assert!(fake.begin().is_err());
        let before = fake.changes();
        ring.drain(&mut FlushTime::of(20), &mut 0)?;
        assert_eq!(fake.changes() - before, 1);
        qp.to_init(0, 0)?;
        ring.fill()?;
        let before = fake.changes();
        drop(ring);
        assert!(fake.begin().is_err());
        assert_eq!(fake.changes() - before, 1);
        Ok(())
    }

    /// Whatever there is no memory for, what was made before goes.
    #[test]
    fn a_ring_is_made_or_nothing_is() -> Result {
        let fake = Fake::new()?;
        each_allocation_fails(|| make(&fake).map(drop))
    }

    /// A ring is emptied in some time, whatever the device says has completed meanwhile.
    #[test]
    fn a_full_queue_keeps_no_ring_from_its_end() -> Result {
        const POLLS: u32 = 100_000;
        let mut bed = Bed::new()?;
        bed.fake.flood(POLLS);
        let mut done = 0;
        bed.ring.drain(&mut FlushTime::of(20), &mut done)?;
        assert!(bed.fake.flood_left() > POLLS / 2);
        bed.fake.flood(0);
        // Flushed buffers are posted again.
        bed.qp.to_init(0, 0)?;
        bed.ring.fill()?;
        for _ in 0..SLOTS {
            bed.fake.begin()?;
        }
        assert!(bed.fake.begin().is_err());
        Ok(())
    }
}
