// SPDX-License-Identifier: GPL-2.0

//! Datagrams of a queue pair to itself, through its rings.

use ipoib_netdev::live::{same, until, Ends};
use ipoib_netdev::skb::TxSkb;
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::time::{delay::fsleep, Delta};

use super::frames::{frame, is_whole};
use super::{on_soft_roce, Deaf, Live, PKEY, PORT};
use crate::ah::{Ah, AhOptions};
use crate::cq::Cq;
use crate::flush_time::FlushTime;
use crate::mcast::Membership;
use crate::qp::{random_psn, QpCaps, QpState, UdInit, UdQp};
use crate::recv::{NetworkHeader, Received, RecvRing, GRH_LEN};
use crate::send::{send_ring, Drained, SendCompletions, Sender};

/// Frames that each ring takes: several chains.
const SIZE: u32 = 64;
/// Elements of a send.
const PARTS: u32 = 4;
/// The key that both ends of a datagram agree on.
const QKEY: u32 = 0x1234;
/// A group of the local network.
const GROUP: [u8; 16] = [0xff, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34];

/// The rings of a queue pair that runs, in the order in which they go.
struct Bed {
    sender: Sender,
    completions: SendCompletions,
    ring: RecvRing<GRH_LEN>,
    ah: Arc<Ah>,
    qp: Arc<UdQp>,
}

impl Bed {
    fn new(live: &Live) -> Result<Self> {
        let (dev, pd) = (&live.device, &live.pd);
        let init = UdInit {
            pd,
            send_cq: &Cq::new(dev, SIZE, 0, (), ())?,
            recv_cq: &Cq::new(dev, SIZE, 0, (), ())?,
            caps: QpCaps {
                send_wr: SIZE,
                recv_wr: SIZE,
                send_sge: PARTS,
                recv_sge: 1,
            },
            port: PORT,
            offloads: true,
        };
        let qp = UdQp::new(init, ())?;
        let mtu = dev.query_port(PORT)?.active_mtu_bytes as usize;
        let mut ring = RecvRing::new(&qp, GRH_LEN + mtu, SIZE)?;
        start(&qp, &mut ring, live)?;
        let (sender, completions) = send_ring(&qp, SIZE, PARTS, QKEY)?;
        Ok(Self {
            sender,
            completions,
            ring,
            ah: ah(live, live.gid.raw())?,
            qp,
        })
    }

    /// Puts a frame on the ring, for the queue pair itself.
    fn post(&mut self, skb: TxSkb) -> Result {
        let posted = self.sender.post(skb, false, &self.ah, self.qp.qpn());
        posted.map_err(|(_, error)| error)
    }

    /// Sends `count` frames of `len` bytes.
    fn send(&mut self, count: u32, len: usize) -> Result {
        for _ in 0..count {
            self.post(frame(len, 0)?)?;
        }
        same(self.sender.flush(), true)
    }

    /// Waits until `count` datagrams have come, and passes them to `see`.
    #[track_caller]
    fn receive(&mut self, count: usize, mut see: impl FnMut(Received<'_, GRH_LEN>)) -> Result {
        let mut came = 0;
        until(|| {
            self.ring.poll_sleeping(|received| {
                came += 1;
                see(received);
            });
            came >= count
        })?;
        same(came, count)
    }

    /// Waits until `count` frames were sent; their bytes.
    #[track_caller]
    fn sent(&mut self, count: u32) -> Result<usize> {
        let (mut frames, mut bytes) = (0, 0);
        until(|| {
            let reaped = self.completions.reap(None);
            frames += reaped.sent.frames;
            bytes += reaped.sent.bytes;
            frames >= count
        })?;
        same(frames, count)?;
        same(self.completions.take_report().is_none(), true)?;
        Ok(bytes)
    }
}

/// Has a queue pair that is reset receive and send.
fn start(qp: &UdQp, ring: &mut RecvRing<GRH_LEN>, live: &Live) -> Result {
    qp.to_init(live.device.find_pkey(PORT, PKEY)?, QKEY)?;
    ring.fill()?;
    qp.start(random_psn())
}

/// An address handle for a port, or a group.
fn ah(live: &Live, to: [u8; 16]) -> Result<Arc<Ah>> {
    let deaf = Arc::new(Deaf, GFP_KERNEL)?;
    Ah::new(&live.pd, &live.gid, to, AhOptions::default(), deaf)
}

/// A datagram, as far as its receiver knows: its length, its GIDs, whether it is whole, and where it is from.
type Seen = (usize, Option<[u8; 32]>, bool, u32, Option<NetworkHeader>);

fn seen(received: &Received<'_, GRH_LEN>) -> Seen {
    let bytes = received.buf.bytes();
    let (header, payload) = bytes.split_at(GRH_LEN.min(bytes.len()));
    let gids = header.get(8..).and_then(|gids| gids.try_into().ok());
    let completion = received.completion;
    (
        payload.len(),
        gids,
        is_whole(payload, 0),
        completion.src_qp(),
        completion.network(),
    )
}

/// The GIDs in the header of a datagram from `live` to `to`.
fn gids(live: &Live, to: [u8; 16]) -> Option<[u8; 32]> {
    let mut gids = [0; 32];
    gids[..16].copy_from_slice(&live.gid.raw());
    gids[16..].copy_from_slice(&to);
    Some(gids)
}

#[kunit_tests(rust_rdma_ud_live)]
mod cases {
    use super::*;

    /// A datagram comes with its length, and with the GIDs and the queue pair that it is from; its frame ends once.
    #[test]
    fn a_datagram_says_where_it_is_from() -> Result {
        on_soft_roce(|live| {
            let (mut bed, ends) = (Bed::new(live)?, Ends::begin());
            for len in [1, 60, 1000] {
                bed.send(1, len)?;
                let mut last = None;
                bed.receive(1, |received| last = Some(seen(&received)))?;
                let own = gids(live, live.gid.raw());
                let ip = Some(NetworkHeader::Ipv6);
                same(last, Some((len, own, true, bed.qp.qpn(), ip)))?;
                same(bed.sent(1)?, len)?;
            }
            same(ends.count(), 3)
        })
    }

    /// The parts of a frame are one datagram, in their order.
    #[test]
    fn a_frame_in_parts_is_one_datagram() -> Result {
        on_soft_roce(|live| {
            let mut bed = Bed::new(live)?;
            let mtu = live.device.query_port(PORT)?.active_mtu_bytes as usize;
            for (head, rest) in [(0, 900), (77, 900), (1, mtu - 1)] {
                let skb = frame(head, rest)?;
                same(skb.nr_frags() > 0 && skb.headlen() == head, true)?;
                bed.post(skb)?;
                bed.sender.flush();
                let mut last = None;
                bed.receive(1, |received| last = Some(seen(&received)))?;
                same(last.map(|seen| (seen.0, seen.2)), Some((head + rest, true)))?;
                same(bed.sent(1)?, head + rest)?;
            }
            Ok(())
        })
    }

    /// More datagrams than the rings take come in their order: buffers and slots are used again.
    #[test]
    fn rings_are_used_again_in_order() -> Result {
        on_soft_roce(|live| {
            let (mut bed, ends) = (Bed::new(live)?, Ends::begin());
            let (mut next, mut all) = (1, 0);
            for burst in [1, 15, 16, 17, 40, SIZE, SIZE, 3] {
                let first = next;
                for _ in 0..burst {
                    bed.post(frame(next, 0)?)?;
                    next += 1;
                }
                bed.sender.flush();
                let mut expected = first;
                let mut in_order = true;
                bed.receive(burst as usize, |received| {
                    let (len, _, whole, ..) = seen(&received);
                    in_order &= whole && len == expected;
                    expected += 1;
                })?;
                same(in_order, true)?;
                same(bed.sent(burst)?, (first..next).sum())?;
                same(bed.sender.free(), SIZE)?;
                all += burst;
            }
            same(bed.ring.take_report().is_none(), true)?;
            same(ends.count(), all)
        })
    }

    /// A ring that is full takes no frame, and takes some again when they were sent.
    #[test]
    fn a_full_ring_takes_no_frame() -> Result {
        on_soft_roce(|live| {
            let mut bed = Bed::new(live)?;
            bed.send(SIZE, 8)?;
            // They may have been sent, but nothing has reaped them.
            same(bed.post(frame(8, 0)?), Err(EBUSY))?;
            bed.sent(SIZE)?;
            bed.send(1, 8)?;
            bed.sent(1).map(drop)
        })
    }

    /// A queue pair in error gives back what is posted to it, each once: sends and receives.
    #[test]
    fn an_error_gives_everything_back() -> Result {
        on_soft_roce(|live| {
            let (mut bed, ends) = (Bed::new(live)?, Ends::begin());
            bed.qp.to_error()?;
            same(bed.qp.state()?, QpState::Error)?;
            bed.send(20, 100)?;
            let mut flushed = 0;
            until(|| {
                bed.completions.reap(None);
                let report = bed.completions.take_report().unwrap_or_default();
                flushed += report.flushed;
                report.errors + report.unknown > 0 || bed.sender.free() == SIZE
            })?;
            same((bed.sender.free(), ends.count(), flushed), (SIZE, 20, 20))?;
            let mut back = 0;
            until(|| {
                bed.ring.poll_sleeping(|_| ());
                let report = bed.ring.take_report().unwrap_or_default();
                back += report.flushed;
                back >= SIZE
            })?;
            same(back, SIZE)
        })
    }

    /// Rings that were drained under traffic are empty, and send and receive again.
    #[test]
    fn drained_rings_begin_again() -> Result {
        on_soft_roce(|live| {
            let mut bed = Bed::new(live)?;
            for _ in 0..3 {
                let ends = Ends::begin();
                bed.send(40, 500)?;
                bed.post(frame(8, 0)?)?;
                let mut time = FlushTime::of(5000);
                let mut all = Drained::default();
                bed.completions
                    .drain(&mut bed.sender, &mut time, &mut all)?;
                same(all.sent.frames + all.lost + all.errors, 41)?;
                bed.ring.drain(&mut time, &mut 0)?;
                same(bed.qp.state()?, QpState::Reset)?;
                same((bed.sender.free(), ends.count()), (SIZE, 41))?;
                start(&bed.qp, &mut bed.ring, live)?;
                bed.send(SIZE, 9)?;
                bed.receive(SIZE as usize, |_| ())?;
                bed.sent(SIZE)?;
                same(ends.count(), 41 + SIZE)?;
            }
            Ok(())
        })
    }

    /// Frames of rings that are dropped under traffic end, each once.
    #[test]
    fn frames_end_with_their_rings() -> Result {
        on_soft_roce(|live| {
            let ends = Ends::begin();
            for _ in 0..5 {
                let mut bed = Bed::new(live)?;
                bed.send(20, 1000)?;
                bed.post(frame(8, 0)?)?;
            }
            same(ends.count(), 5 * 21)
        })
    }

    /// A queue pair hears what is sent with its own key only, whichever that is now.
    #[test]
    fn another_key_is_not_heard() -> Result {
        on_soft_roce(|live| {
            let mut bed = Bed::new(live)?;
            bed.sender.set_qkey(QKEY + 1);
            bed.send(1, 10)?;
            bed.sent(1)?;
            fsleep(Delta::from_millis(20));
            same(bed.ring.poll_sleeping(|_| ()), 0)?;
            bed.qp.set_qkey(QKEY + 1)?;
            bed.send(1, 11)?;
            let mut len = 0;
            bed.receive(1, |received| len = seen(&received).0)?;
            same(len, 11)
        })
    }

    /// A member of a group hears what is sent to that, until it leaves.
    #[test]
    fn members_hear_their_group() -> Result {
        on_soft_roce(|live| {
            let mut bed = Bed::new(live)?;
            bed.ah = ah(live, GROUP)?;
            let membership = Membership::join(&bed.qp, GROUP, 0)?;
            same((membership.mgid(), membership.stands()), (GROUP, true))?;
            let send = |bed: &mut Bed| -> Result {
                let posted = bed.sender.post(frame(50, 0)?, false, &bed.ah, 0xff_ffff);
                posted.map_err(|(_, error)| error)?;
                bed.sender.flush();
                bed.sent(1).map(drop)
            };
            send(&mut bed)?;
            let mut last = None;
            bed.receive(1, |received| last = Some(seen(&received)))?;
            let ip = Some(NetworkHeader::Ipv6);
            same(last, Some((50, gids(live, GROUP), true, bed.qp.qpn(), ip)))?;
            drop(membership);
            send(&mut bed)?;
            fsleep(Delta::from_millis(20));
            same(bed.ring.poll_sleeping(|_| ()), 0)
        })
    }
}
