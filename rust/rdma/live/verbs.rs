// SPDX-License-Identifier: GPL-2.0

//! Facts that soft-RoCE tells of itself, refusals, and the states of queue pairs.

use ipoib_netdev::live::same;
use kernel::prelude::*;
use kernel::sync::Arc;

use super::connect::SERVICE;
use super::{on_soft_roce, Deaf, Live, PKEY, PORT};
use crate::ah::{Ah, AhOptions};
use crate::cm::{Incoming, Listen, Listener, RejectReason};
use crate::cq::Cq;
use crate::intake::Intake;
use crate::qp::{QpCaps, QpState, UdInit, UdQp};
use crate::rc::{RcInit, RcQp};

/// Sizes that any device has.
const SMALL: QpCaps = QpCaps {
    send_wr: 16,
    recv_wr: 16,
    send_sge: 1,
    recv_sge: 1,
};

/// Sizes of which each has one that no device has.
const HUGE: [QpCaps; 4] = [
    QpCaps {
        send_wr: 1 << 30,
        ..SMALL
    },
    QpCaps {
        recv_wr: 1 << 30,
        ..SMALL
    },
    QpCaps {
        send_sge: 1 << 20,
        ..SMALL
    },
    QpCaps {
        recv_sge: 1 << 20,
        ..SMALL
    },
];

/// Makes a queue pair for datagrams.
fn ud(live: &Live, caps: QpCaps, port: u32) -> Result<Arc<UdQp>> {
    let cq = Cq::new(&live.device, 16, 0, (), ())?;
    let init = UdInit {
        pd: &live.pd,
        send_cq: &cq,
        recv_cq: &cq,
        caps,
        port,
        offloads: false,
    };
    UdQp::new(init, ())
}

/// Makes a queue pair for a connection.
fn rc(live: &Live, caps: QpCaps, shared: bool) -> Result<Arc<RcQp>> {
    let cq = Cq::new(&live.device, 16, 0, (), ())?;
    let intake = if shared {
        Intake::shared(&live.pd, 16, 1, ())?
    } else {
        Intake::separate(&live.pd, 16, 1)?
    };
    let init = RcInit {
        pd: &live.pd,
        send_cq: &cq,
        recv_cq: &cq,
        intake: &intake,
        caps,
    };
    RcQp::new(init)
}

struct Closed;

impl Listen for Closed {
    fn request(&self, incoming: Incoming<'_>) {
        incoming.reject(RejectReason::NoResources, &[]);
    }
}

#[kunit_tests(rust_rdma_verbs_live)]
mod cases {
    use super::*;

    /// The device and its port are what soft-RoCE is.
    #[test]
    fn a_device_says_what_it_is() -> Result {
        on_soft_roce(|live| {
            let dev = &live.device;
            same(dev.ports(), PORT..=PORT)?;
            same((dev.is_roce(PORT), dev.is_infiniband(PORT)), (true, false))?;
            same((dev.is_roce(0), dev.is_roce(PORT + 1)), (false, false))?;
            same((dev.has_multicast(), dev.virt_dma()), (true, true))?;
            same((dev.checks_checksums(), dev.segments()), (false, false))?;
            same(dev.netdev_ifindex(PORT).is_some(), true)?;
            same((dev.max_srq() > 0, dev.max_sge() >= 18), (true, true))?;
            same(dev.query_port(PORT)?.active_mtu_bytes >= 256, true)?;
            same(dev.query_port(PORT + 1).err(), Some(EINVAL))?;
            same(dev.find_pkey(PORT, PKEY), Ok(0))?;
            same(dev.find_pkey(PORT, 0x8123), Err(ENOENT))?;
            same(dev.pkey_at(PORT, 0), Ok(PKEY))?;
            let gid = dev.gid(PORT, live.gid.index())?;
            same((gid.raw(), gid.stands()), (live.gid.raw(), true))?;
            same(dev.gid(PORT + 1, 0).err(), Some(EINVAL))
        })
    }

    /// A device refuses what is more than it has, and nothing is left of it.
    #[test]
    fn what_is_too_large_is_refused() -> Result {
        on_soft_roce(|live| {
            let (dev, pd) = (&live.device, &live.pd);
            for entries in [0, 1 << 30, u32::MAX] {
                same(Cq::new(dev, entries, 0, (), ()).err(), Some(EINVAL))?;
            }
            for caps in HUGE {
                same(ud(live, caps, PORT).is_err(), true)?;
            }
            // The receives of a connection are those of the intake: only its sends count.
            for caps in [HUGE[0], HUGE[2]] {
                for shared in [true, false] {
                    same(rc(live, caps, shared).is_err(), true)?;
                }
            }
            for caps in [HUGE[1], HUGE[3]] {
                same(rc(live, caps, true).is_ok(), true)?;
                same(rc(live, caps, false).is_err(), true)?;
            }
            for (wr, sge) in [(0, 1), (1, 0), (u32::MAX, 1), (1, u32::MAX)] {
                same(Intake::shared(pd, wr, sge, ()).err(), Some(EINVAL))?;
            }
            for port in [0, PORT + 1] {
                same(ud(live, SMALL, port).err(), Some(EINVAL))?;
            }
            same(ud(live, SMALL, PORT).is_ok(), true)
        })
    }

    /// A queue pair goes through its states in their order, and not in another.
    #[test]
    fn queue_pairs_have_states() -> Result {
        on_soft_roce(|live| {
            let qp = ud(live, SMALL, PORT)?;
            for _ in 0..2 {
                same(qp.state(), Ok(QpState::Reset))?;
                same(qp.start(7), Err(EINVAL))?;
                same(qp.set_qkey(1), Err(EINVAL))?;
                qp.to_init(0, 1)?;
                same(qp.state(), Ok(QpState::Init))?;
                qp.start(7)?;
                same(qp.state(), Ok(QpState::ReadyToSend))?;
                same(qp.recover_sqe(), Ok(false))?;
                same(qp.to_init(0, 1), Err(EINVAL))?;
                qp.to_error()?;
                same(qp.state(), Ok(QpState::Error))?;
                same(qp.start(7), Err(EINVAL))?;
                qp.to_reset(None)?;
            }
            let qp = rc(live, SMALL, true)?;
            // A queue pair that ends before it is connected cannot be connected any more.
            qp.to_error()?;
            same((qp.is_reset(), qp.to_error()), (true, Err(ENODEV)))
        })
    }

    /// Queue pairs that there are at a time have numbers of their own.
    #[test]
    fn queue_pairs_have_numbers() -> Result {
        on_soft_roce(|live| {
            let (one, other) = (ud(live, SMALL, PORT)?, rc(live, SMALL, true)?);
            same(one.qpn() != other.qpn(), true)?;
            same((one.qpn() | other.qpn()) >> 24, 0)?;
            same(one.qpn() > 1 && other.qpn() > 1, true)
        })
    }

    /// A service ID has one listener at a time.
    #[test]
    fn a_service_is_offered_once() -> Result {
        on_soft_roce(|live| {
            let closed = Arc::new(Closed, GFP_KERNEL)?;
            let listener = Listener::new(&live.pd, SERVICE, closed.clone())?;
            let other = Listener::new(&live.pd, SERVICE, closed.clone());
            same(other.err(), Some(EBUSY))?;
            drop(listener);
            same(Listener::new(&live.pd, SERVICE, closed).is_ok(), true)
        })
    }

    /// There is no address handle for a host that the IP stack knows no way to.
    #[test]
    fn a_host_without_a_way_has_no_handle() -> Result {
        on_soft_roce(|live| {
            let deaf = Arc::new(Deaf, GFP_KERNEL)?;
            let mut nobody = [0; 16];
            nobody[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
            same(Ah::asks_for(&nobody), true)?;
            let ah = Ah::new(&live.pd, &live.gid, nobody, AhOptions::default(), deaf);
            same(ah.is_err(), true)
        })
    }
}
