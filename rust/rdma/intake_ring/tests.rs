// SPDX-License-Identifier: GPL-2.0

//! Tests of a receive ring of messages on a device that maps memory: their parts are where the device has put them, and
//! are its own again when they are posted.

use ipoib_netdev::napi::as_a_poll;
use ipoib_netdev::parts::{Packet, HEAD_LEN, MAX_PARTS};
use ipoib_netdev::skb::RxSkb;
use ipoib_sys::bindings;
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;
use kernel::sync::Arc;

use super::{IntakeRing, MessagePool};
use crate::cq::Cq;
use crate::deferred::Reaper;
use crate::fake::{Fake, Posted, Synced};
use crate::intake::Intake;
use crate::pd::Pd;
use crate::qp::QpCaps;
use crate::rc::{QpKey, RcInit, RcQp};
use ipoib_netdev::faults::each_allocation_fails;

/// The longest message.
const IP_MESSAGE: usize = 65_535 + 16;
/// Bytes of link headers in front of a packet.
const STRIP: u16 = 4;

/// A ring whose buffers are posted, and what it is made of, in the order in which that goes.
struct Bed {
    ring: IntakeRing,
    cq: Arc<Cq>,
    intake: Arc<Intake>,
    reaper: Reaper,
    fake: Fake,
}

/// An error unless `is_so`: a panic would end all tests.
fn ensure(is_so: bool) -> Result {
    is_so.then_some(()).ok_or(EPROTO)
}

/// Objects of a device that a [`Bed`] has, to be dropped in this order.
type Made = (IntakeRing, Arc<Cq>, Arc<Intake>, Reaper);

/// Makes it, with `slots` buffers in `parts` parts.
fn make(fake: &Fake, slots: u32, parts: usize) -> Result<Made> {
    let reaper = Reaper::new()?;
    let dev = fake.device();
    let pd = Pd::new(dev, &reaper)?;
    let cq = Cq::new(dev, slots, 0, (), ())?;
    let intake = Intake::shared(&pd, slots, parts as u32, ())?;
    let pool = MessagePool::new(dev, IP_MESSAGE, parts, slots as usize)?;
    ensure(pool.parts() == parts)?;
    let mut ring = IntakeRing::new(&intake, &cq, pool, slots)?;
    ring.fill()?;
    Ok((ring, cq, intake, reaper))
}

impl Bed {
    /// One of `slots` buffers in `parts` parts.
    fn new(slots: u32, parts: usize) -> Result<Self> {
        let fake = Fake::new()?;
        let (ring, cq, intake, reaper) = make(&fake, slots, parts)?;
        Ok(Self {
            ring,
            cq,
            intake,
            reaper,
            fake,
        })
    }

    /// Has the device receive `sent` into what was posted first, and say that it is `len` bytes.
    fn deliver(&mut self, sent: &[u8], len: usize) -> Result<Posted> {
        let posted = self.fake.begin()?;
        self.fake.write(&posted, sent)?;
        self.fake.complete(&self.cq, &posted, len, |_| ())?;
        ensure(self.ring.fetch(1) == 1)?;
        Ok(posted)
    }

    /// Makes a frame of the message that was fetched, with `strip` bytes of link headers.
    fn take(&mut self, strip: u16) -> Result<RxSkb> {
        let message = self.ring.message(0, |_| ()).ok_or(ENOMSG)?;
        let packet = Packet::new(strip, bindings::ETH_P_IP as u16);
        // SAFETY: The instance only says whose the pool is, which is nobody's.
        unsafe { as_a_poll(|context| message.into_frame(context, packet, &[0; 20])) }?
    }

    /// Takes a message of the bytes `sent`, posts its buffer again, and checks what was lent and given back.
    fn receive(&mut self, sent: &[u8]) -> Result<Received> {
        let posted = self.deliver(sent, sent.len())?;
        let skb = self.take(STRIP)?;
        self.ring.post();
        let (lent, returned) = halves(self.fake.syncs()?)?;
        ensure(lent[..] == reached(&posted, sent.len())?[..])?;
        Ok(Received {
            skb,
            posted,
            returned,
        })
    }
}

/// A message that was received.
struct Received {
    skb: RxSkb,
    /// Where the device has put it.
    posted: Posted,
    /// Memory that was given back to the device.
    returned: KVec<Synced>,
}

/// The parts of a buffer that a message of `len` bytes reaches, lent to the CPU.
fn reached(posted: &Posted, len: usize) -> Result<KVec<Synced>> {
    let mut reached = KVec::new();
    let mut rest = len;
    for sge in &posted.sges {
        let len = rest.min(sge.length as usize);
        rest -= len;
        if len > 0 {
            let (addr, for_cpu) = (sge.addr, true);
            reached.push(Synced { addr, len, for_cpu }, GFP_KERNEL)?;
        }
    }
    Ok(reached)
}

/// The syncs for the CPU, and then those for the device.
fn halves(syncs: KVec<Synced>) -> Result<(KVec<Synced>, KVec<Synced>)> {
    let (mut lent, mut returned) = (KVec::new(), KVec::new());
    for sync in syncs {
        if sync.for_cpu {
            ensure(returned.is_empty())?;
            lent.push(sync, GFP_KERNEL)?;
        } else {
            returned.push(sync, GFP_KERNEL)?;
        }
    }
    Ok((lent, returned))
}

/// The bytes of message `n`.
fn bytes(n: usize, len: usize) -> Result<KVVec<u8>> {
    let mut bytes = KVVec::with_capacity(len, GFP_KERNEL)?;
    for at in 0..len {
        bytes.push((n * 31 + at * 7 + at / 251) as u8, GFP_KERNEL)?;
    }
    Ok(bytes)
}

/// Returns true if a frame is a message, without its link headers.
fn holds(skb: &RxSkb, sent: &[u8]) -> Result<bool> {
    let sent = sent.get(usize::from(STRIP)..).ok_or(EINVAL)?;
    let mut got = KVVec::from_elem(0u8, sent.len(), GFP_KERNEL)?;
    if skb.len() != sent.len() {
        return Ok(false);
    }
    // SAFETY: The frame is valid, and there is room for all of it.
    let err = unsafe {
        bindings::skb_copy_bits(skb.as_raw(), 0, got.as_mut_ptr().cast(), sent.len() as i32)
    };
    Ok(err == 0 && got[..] == *sent)
}

#[kunit_tests(rust_rdma_intake_ring)]
mod cases {
    use super::*;

    /// However long messages are, the device finds the parts that are in the slots now, and what it writes there is
    /// what is received.
    #[test]
    fn messages_are_where_the_device_puts_them() -> Result {
        let mut bed = Bed::new(4, MAX_PARTS)?;
        let mut kept = KVec::new();
        for n in 0..24 {
            let len = [100, 580, 2048, 8192, 9004, 16_384, 40_000, 65_524][n % 8];
            let sent = bytes(n, len)?;
            let received = bed.receive(&sent)?;
            assert!(holds(&received.skb, &sent)?);
            kept.push((received.skb, sent), GFP_KERNEL)?;
        }
        // Nothing was received into what was given away.
        for (skb, sent) in &kept {
            assert!(holds(skb, sent)?);
        }
        Ok(())
    }

    /// A part that a frame takes away is another one at another address then. What is copied stays where it is, and is
    /// given back to the device, and so is nothing else.
    #[test]
    fn parts_that_stay_are_given_back() -> Result {
        let (mut moved, mut stayed) = (0, 0);
        for parts in [2, MAX_PARTS] {
            let mut bed = Bed::new(1, parts)?;
            for (n, len) in [100, 600, 2048, 4096, 9004, 16_384, 50_000, 65_524]
                .into_iter()
                .enumerate()
            {
                let sent = bytes(n, len)?;
                let received = bed.receive(&sent)?;
                assert!(holds(&received.skb, &sent)?);
                // There is one slot.
                let next = bed.deliver(&[], 0)?;
                assert!(next.sges[0].addr != received.posted.sges[0].addr);
                let mut rest = len.saturating_sub(HEAD_LEN);
                let mut back = received.returned.iter();
                for (old, new) in received.posted.sges.iter().zip(&next.sges).skip(1) {
                    let len = rest.min(old.length as usize);
                    rest -= len;
                    if len > 0 && old.addr == new.addr {
                        let (addr, for_cpu) = (old.addr, false);
                        assert!(back.next() == Some(&Synced { addr, len, for_cpu }));
                        stayed += 1;
                    } else if old.addr != new.addr {
                        assert!(len > 0);
                        moved += 1;
                    }
                }
                assert!(back.next().is_none());
                assert!(bed.ring.message(0, |_| ()).is_some());
                bed.ring.post();
            }
        }
        assert!(moved > 0 && (stayed > 0 || PAGE_SIZE > 4096));
        Ok(())
    }

    /// The CPU is lent the head of a message that nobody takes, and then it is the device's again.
    #[test]
    fn messages_that_are_dropped_are_given_back() -> Result {
        let mut bed = Bed::new(1, MAX_PARTS)?;
        for (n, len) in [100, HEAD_LEN, HEAD_LEN + 1, 20_000]
            .into_iter()
            .enumerate()
        {
            for refused in [false, true] {
                let sent = bytes(n, len)?;
                let posted = bed.deliver(&sent, len)?;
                if refused {
                    // No head holds so many bytes of link headers.
                    let result = bed.take(HEAD_LEN as u16 + 1);
                    assert_eq!(result.err(), Some(EINVAL));
                } else {
                    let message = bed.ring.message(0, |_| ()).ok_or(ENOMSG)?;
                    assert!(message.head() == &sent[..len.min(HEAD_LEN)]);
                }
                let head = |for_cpu| Synced {
                    addr: posted.sges[0].addr,
                    len: len.min(HEAD_LEN),
                    for_cpu,
                };
                assert!(bed.fake.syncs()?[..] == [head(true), head(false)]);
                bed.ring.post();
                let again = bed.deliver(&[], 0)?;
                assert!(again.addresses() == posted.addresses());
                // Of no bytes, nothing is lent.
                assert!(bed.ring.message(0, |_| ()).is_some());
                assert!(bed.fake.syncs()?.is_empty());
                bed.ring.post();
            }
        }
        Ok(())
    }

    /// A message that is longer than its buffer, or is none, is not lent to anybody.
    #[test]
    fn lies_are_not_looked_at() -> Result {
        let mut bed = Bed::new(1, MAX_PARTS)?;
        let capacity = (0..MAX_PARTS).map(|i| bed.ring.memory.pool.part_len(i));
        let capacity: usize = capacity.sum();
        let posted = bed.deliver(&[], capacity + 1)?;
        assert!(bed.ring.message(0, |_| ()).is_none());
        bed.ring.post();
        let again = bed.fake.begin()?;
        assert!(again.addresses() == posted.addresses());
        let with_imm = bindings::ib_wc_opcode_IB_WC_RECV_RDMA_WITH_IMM;
        bed.fake
            .complete(&bed.cq, &again, 100, |wc| wc.opcode = with_imm)?;
        assert_eq!(bed.ring.fetch(1), 1);
        assert!(bed.ring.message(0, |_| ()).is_none());
        assert!(bed.fake.syncs()?.is_empty());
        let report = bed.ring.take_report().ok_or(EINVAL)?;
        assert_eq!(report.malformed, 2);
        Ok(())
    }

    /// Completions of an earlier fetch are none of the last one, even once a receive has the same number again.
    #[test]
    fn only_the_last_fetch_counts() -> Result {
        let mut bed = Bed::new(1, MAX_PARTS)?;
        bed.receive(&[1; 100])?;
        assert_eq!(bed.ring.fetch(1), 0);
        let id = bed.ring.memory.slots.first().ok_or(EINVAL)?.wr.id();
        bed.ring.wcs[0].__bindgen_anon_1.wr_id = id;
        assert!(bed.ring.message(0, |_| ()).is_none());
        assert!(bed.ring.take_report().is_none());
        // The device has the slot still.
        bed.receive(&[2; 100])?;
        Ok(())
    }

    /// A slot waits for another one, so that one call posts both, but not once a queue pair has ended: it may have taken all
    /// others with it.
    #[test]
    fn slots_are_posted_together() -> Result {
        let mut bed = Bed::new(64, MAX_PARTS)?;
        assert_eq!(IntakeRing::most_waiting(&bed.ring.intake, 64), 1);
        for posted in [63, 64, 63, 64, 63] {
            bed.receive(&[1; 100])?;
            assert_eq!(bed.fake.posted(), posted);
        }
        let other = QpKey::of(core::ptr::null());
        bed.ring.end(other);
        // Until two looks at the slots, each after four rounds, have found none missing.
        let mut alone = 0;
        while bed.fake.posted() == 64 && alone < 1000 {
            bed.receive(&[1; 100])?;
            alone += 1;
        }
        assert!((4 * 64 + 1..=2 * 4 * 64 + 1).contains(&alone));
        // That the device refuses it is told of: no completion may bring the poll that posts it.
        bed.fake.refuse(true);
        bed.ring.end(other);
        assert!(
            bed.ring.is_due()
                && bed
                    .ring
                    .take_report()
                    .is_some_and(|report| report.refused == 1)
        );
        bed.fake.refuse(false);
        bed.ring.post();
        assert_eq!(bed.fake.posted(), 64);
        Ok(())
    }

    /// Receives that the device refuses are told of, since no completion may bring the poll that posts them.
    #[test]
    fn refused_receives_are_told_of() -> Result {
        let mut bed = Bed::new(1, MAX_PARTS)?;
        bed.deliver(&[1; 100], 100)?;
        assert!(bed.ring.message(0, |_| ()).is_some());
        bed.fake.refuse(true);
        for _ in 0..2 {
            bed.ring.post();
            let report = bed.ring.take_report().ok_or(EINVAL)?;
            assert_eq!(report.refused, 1);
            assert!(bed.fake.begin().is_err());
        }
        bed.fake.refuse(false);
        bed.ring.post();
        assert!(bed.ring.take_report().is_none());
        bed.fake.begin()?;
        Ok(())
    }

    /// A queue pair that refuses a receive of its own queue is named once, and another one gets its buffers.
    #[test]
    fn a_queue_pair_that_refuses_is_named() -> Result {
        const SLOTS: u32 = 4;
        let fake = Fake::new()?;
        let (dev, reaper) = (fake.device(), Reaper::new()?);
        let pd = Pd::new(dev, &reaper)?;
        let cq = Cq::new(dev, SLOTS, 0, (), ())?;
        let intake = Intake::separate(&pd, SLOTS, MAX_PARTS as u32)?;
        let pool = MessagePool::new(dev, IP_MESSAGE, MAX_PARTS, SLOTS as usize)?;
        let mut ring = IntakeRing::new(&intake, &cq, pool, SLOTS)?;
        let new_qp = || {
            let init = RcInit {
                pd: &pd,
                send_cq: &cq,
                recv_cq: &cq,
                intake: &intake,
                caps: QpCaps {
                    send_wr: 1,
                    recv_wr: SLOTS,
                    send_sge: 1,
                    recv_sge: MAX_PARTS as u32,
                },
            };
            RcQp::new(init)
        };
        let (first, second) = (new_qp()?, new_qp()?);
        fake.refuse(true);
        assert!(ring.begin(&first).is_err());
        assert_eq!(ring.take_refused(), Some(first.key()));
        assert_eq!(ring.take_refused(), None);
        fake.refuse(false);
        ring.end(first.key());
        ring.begin(&second)?;
        assert_eq!(
            (fake.posted(), ring.held(second.key())),
            (SLOTS as usize, SLOTS)
        );
        assert_eq!(ring.take_refused(), None);
        Ok(())
    }

    /// Whatever there is no memory for, what was made before goes.
    #[test]
    fn a_ring_is_made_or_nothing_is() -> Result {
        let fake = Fake::new()?;
        each_allocation_fails(|| make(&fake, 2, MAX_PARTS).map(drop))
    }

    /// Memory that the device may still write to is mapped until the queue is destroyed, and no longer.
    #[test]
    fn parts_are_unmapped_in_the_end() -> Result {
        let mut bed = Bed::new(2, MAX_PARTS)?;
        let sent = bytes(0, 65_524)?;
        let skb = bed.receive(&sent)?.skb;
        let mut pages = KVec::new();
        for _ in 0..2 {
            for addr in bed.fake.begin()?.addresses() {
                pages.push(bed.fake.hold(addr)?, GFP_KERNEL)?;
            }
        }
        let Bed {
            ring,
            cq,
            intake,
            reaper,
            fake,
        } = bed;
        drop(ring);
        assert!(pages.iter().all(|page| page.is_mapped()));
        drop((cq, intake));
        reaper.flush();
        // A frame outlives the pool, and keeps the page that its head is in.
        assert!(holds(&skb, &sent)?);
        drop(skb);
        assert!(!pages.iter().any(|page| page.is_mapped()));
        drop((reaper, fake));
        Ok(())
    }
}
