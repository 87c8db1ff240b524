// SPDX-License-Identifier: GPL-2.0

//! A small user of `rust/rdma`: on each active RoCE port, a UD queue pair sends one datagram to itself.
//!
//! `Documentation/rdma.rst` walks through it.

#![forbid(unsafe_code)]

use ipoib_netdev::skb::TxSkb;
use ipoib_rdma::{
    random_psn, recv::GRH_LEN, send_ring, Ah, AhOptions, Client, Cq, Device, GidRef, Notify, Pd,
    QpCaps, Reaper, RecvRing, Registration, UdInit, UdQp,
};
use kernel::prelude::*;
use kernel::str::CStr;
use kernel::sync::Arc;
use kernel::time::{delay::fsleep, Delta};

module! {
    type: Module,
    name: "ud_loopback",
    authors: ["The ipoib_rs developers"],
    description: "Sends a UD datagram to itself on each active RoCE port",
    license: "GPL",
}

/// The datagram.
const TEXT: &[u8] = b"a datagram to myself";
/// The full member of the default partition.
const PKEY: u16 = 0xffff;
/// The key that both ends of a datagram agree on.
const QKEY: u32 = 0x1234;
/// Requests that each queue takes.
const SIZE: u32 = 4;
/// The longest time for the datagram to come back, in milliseconds.
const TIMEOUT_MS: u32 = 1000;

/// A listener that ignores its notifications.
struct Nobody;

impl Notify for Nobody {
    fn notify(&self) {}
}

/// Sends a datagram from a port to itself, and waits for it.
fn loop_back(dev: &Device, port: u32) -> Result {
    // Dropped last: it waits until all that follows is destroyed.
    let reaper = Reaper::new()?;
    let gid = dev.gids(port).find(GidRef::is_rocev2).ok_or(ENODEV)?;
    let pd = Pd::new(dev, &reaper)?;
    let send_cq = Cq::new(dev, SIZE, 0, (), ())?;
    let recv_cq = Cq::new(dev, SIZE, 0, (), ())?;
    let init = UdInit {
        pd: &pd,
        send_cq: &send_cq,
        recv_cq: &recv_cq,
        caps: QpCaps {
            send_wr: SIZE,
            recv_wr: SIZE,
            send_sge: 1,
            recv_sge: 1,
        },
        port,
        offloads: false,
    };
    let qp = UdQp::new(init, ())?;

    // Receives are posted in the state Init, before anything can come.
    let mut receive = RecvRing::<GRH_LEN>::new(&qp, GRH_LEN + TEXT.len(), SIZE)?;
    qp.to_init(dev.find_pkey(port, PKEY)?, QKEY)?;
    receive.fill()?;
    qp.start(random_psn())?;

    let (mut sender, mut completions) = send_ring(&qp, SIZE, 1, QKEY)?;
    // Nobody has to be told of a neighbour: it is this port.
    let nobody = Arc::new(Nobody, GFP_KERNEL)?;
    let ah = Ah::new(&pd, &gid, gid.raw(), AhOptions::default(), nobody)?;
    let datagram = TxSkb::new(TEXT)?;
    sender
        .post(datagram, false, &ah, qp.qpn())
        .map_err(|(_, error)| error)?;
    sender.flush();

    let mut came = false;
    for _ in 0..TIMEOUT_MS {
        receive.poll_sleeping(|received| {
            came |= received.buf.bytes().get(GRH_LEN..) == Some(TEXT);
        });
        if came && completions.reap(None).sent.frames == 1 {
            return Ok(());
        }
        fsleep(Delta::from_millis(1));
    }
    Err(ETIMEDOUT)
}

/// The client, which keeps nothing for a device.
struct Loopback;

impl Client for Loopback {
    type Data = ();
    const NAME: &'static CStr = c"ud_loopback";

    fn add(dev: &Device, name: &CStr) -> Result<Arc<()>> {
        for port in dev.ports().filter(|port| dev.is_roce(*port)) {
            if !dev.query_port(port)?.active {
                continue;
            }
            match loop_back(dev, port) {
                Ok(()) => pr_info!("{name:?} port {port}: the datagram came back\n"),
                Err(error) => pr_err!("{name:?} port {port}: no datagram: {error:?}\n"),
            }
        }
        // Nothing is kept, so that there is nothing to remove.
        Err(EOPNOTSUPP)
    }

    fn renamed(_data: &(), _name: &CStr) {}

    fn remove(_data: Arc<()>) {}
}

#[pin_data]
struct Module {
    #[pin]
    _client: Registration<Loopback>,
}

impl kernel::InPlaceModule for Module {
    fn init(_module: &'static ThisModule) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            _client <- Registration::new(),
        })
    }
}
