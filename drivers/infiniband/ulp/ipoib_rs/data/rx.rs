// SPDX-License-Identifier: GPL-2.0

//! Receiving: the NAPI that takes frames off the receive ring.

use ipoib_netdev::device::{Device, OwnedDevice, RawDevice};
use ipoib_netdev::napi::{Binding, Context, Poll};
use ipoib_netdev::netdev_log;
use ipoib_netdev::page_pool::Frame;
use ipoib_netdev::skb::PacketType;
use ipoib_proto::drop::DropReason;
use ipoib_proto::rx::{
    self, classify, classify_known, Destination, Local, Network, Route, RxMeta, PAYLOAD_OFFSET,
};
use ipoib_proto::turn::{self, Turn};
use ipoib_rdma::{Completion, FlushTime, NetworkHeader, Receive};
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::base::counters::Counters;
use crate::base::interface::Interface;
use crate::base::link_header;
use crate::base::order::Order;
use crate::base::settings::Settings;
use crate::base::work::Work;
use crate::data::events::{to_poll, Events};
use crate::rc::conn::Conn;
use crate::rc::rx::{Owner, RcRx};

/// Has the receive poll of an interface call `f` with its state, and waits for the result.
///
/// # Errors
///
/// `ENETDOWN` while the interface is down.
///
/// # Context
///
/// Process context, without the transmit lock; sleeps.
pub(crate) fn ask<R: Send>(
    dev: &Device<Interface>,
    f: impl FnOnce(&mut RxPoll) -> R + Send,
) -> Result<R> {
    let rx = dev.lock_tx().as_ref().map(|tx| tx.rx.clone());
    rx.ok_or(ENETDOWN)?.ask(f)
}

/// Has the receive poll take no more of a connection's frames. Replaces the buffers if such connections may have taken
/// all of them with them.
///
/// # Context
///
/// As [`ask`].
pub(crate) fn forget(dev: &Device<Interface>, rc: &Conn) {
    let key = rc.qp().key();
    replace(dev, |rc| rc.forget(key));
}

/// Replaces the buffers of connections, or has [`Work::Recover`] look again, as the receive poll finds by `f`.
///
/// # Context
///
/// As [`ask`].
pub(crate) fn replace(dev: &Device<Interface>, f: impl FnOnce(&mut RcRx) -> Option<u64> + Send) {
    // Without a poll there is nothing to forget.
    match ask(dev, |poll| f(poll.connections()?)) {
        Ok(Some(0)) => Interface::restart_soon(dev),
        // No longer than a minute.
        Ok(Some(wait)) => Interface::queue(dev, Work::Recover, wait as u32),
        Ok(None) | Err(_) => {}
    }
}

/// The ring of datagrams, whose packets are behind GRH and header.
pub(crate) type RecvRing = ipoib_rdma::RecvRing<PAYLOAD_OFFSET>;

type Received<'a> = ipoib_rdma::Received<'a, PAYLOAD_OFFSET>;

/// The state of the receive NAPI.
pub(crate) struct RxPoll {
    rc: Option<KBox<RcRx>>,
    turn: Turn,
    ring: RecvRing,
    sink: Sink,
    order: Order,
    dev: OwnedDevice<Interface>,
}

/// The interface as the owner of its connections.
struct Owned<'a>(&'a Device<Interface>);

impl Owner for Owned<'_> {
    fn connection_failed(&self, rc: &Conn) {
        if let Some(tx) = self.0.lock_tx().as_mut() {
            tx.connection_failed(self.0, rc);
        }
    }

    fn device(&self) -> &Device<Interface> {
        self.0
    }
}

/// Receives datagrams.
struct Sink {
    /// The port is one of InfiniBand, where packets have LIDs.
    infiniband: bool,
    link: Link,
    up: Up,
}

/// Addresses of this end, and the route of the last packet.
struct Link {
    local: Local,
    route: Route,
}

/// Passes up frames that were checked.
struct Up {
    /// Datagrams of up to so many bytes are copied; during this poll.
    copybreak: usize,
    /// True if the device's word on checksums is taken; during this poll.
    trusts_checksums: bool,
    settings: Arc<Settings>,
    counters: Arc<Counters>,
}

impl RxPoll {
    /// Creates the state of the poll.
    pub(crate) fn new(
        ring: RecvRing,
        rc: Option<KBox<RcRx>>,
        local: Local,
        order: Order,
        dev: OwnedDevice<Interface>,
    ) -> Self {
        let interface = dev.data().get_ref();
        let (settings, counters) = (interface.settings.clone(), interface.counters.clone());
        let infiniband = interface.port.is_infiniband();
        Self {
            rc,
            turn: Turn::new(),
            ring,
            sink: Sink {
                infiniband,
                link: Link {
                    local,
                    route: Route::NONE,
                },
                up: Up {
                    copybreak: 0,
                    trusts_checksums: false,
                    settings,
                    counters,
                },
            },
            order,
            dev,
        }
    }

    // As `poll_datagrams`.
    #[inline(always)]
    fn poll_connections(&mut self, context: &Context<'_>, budget: usize) -> usize {
        match &mut self.rc {
            Some(rc) => rc.poll(context, budget, &mut self.order, &Owned(&self.dev)),
            None => 0,
        }
    }

    /// Lets the transmit side go on.
    #[cold]
    fn serve(&mut self) {
        if let (Some(rc), Some(tx)) = (&mut self.rc, self.dev.lock_tx().as_mut()) {
            rc.take_due(|conn| tx.grant(&self.dev, conn));
            if rc.is_stalled() {
                tx.service(&self.dev);
            } else {
                tx.flush(&self.dev);
            }
        }
        if self.rc.as_ref().is_some_and(|rc| rc.is_short()) {
            Interface::restart_soon(&self.dev);
        }
    }

    /// Takes frames off both rings, each of which may have more than its share.
    #[cold]
    #[inline(never)]
    fn poll_both(&mut self, context: &Context<'_>, budget: usize) -> usize {
        let shares = self.turn.share(budget);
        let first = self.poll_datagrams(context, shares.first());
        let second = self.poll_connections(context, shares.second(first));
        shares.used(first, second)
    }

    /// Takes datagrams off the ring. Says how much of the budget that has used.
    // Its callers have saved all registers already.
    #[inline(always)]
    fn poll_datagrams(&mut self, context: &Context<'_>, budget: usize) -> usize {
        let Self {
            ring,
            sink,
            order,
            dev,
            ..
        } = self;
        let up = &mut sink.up;
        up.copybreak = PAYLOAD_OFFSET + up.settings.rx_copybreak() as usize;
        up.trusts_checksums = dev.trusts_checksums();
        let mut arrivals = Arrivals {
            context,
            sink,
            order,
        };
        let done = ring.poll(context, budget, &mut arrivals);
        let counters = &sink.up.counters;
        counters.rx.completions.add(done as u64);
        if let Some(report) = ring.take_report() {
            counters.not_received(dev, &report);
            if report.flushed > 0 {
                // The QP is in error, and receives nothing until it is brought up again.
                Interface::queue(dev, Work::Recover, 0);
            }
            if report.refused > 0 {
                Interface::poll_later(dev);
            }
        }
        turn::charge(budget, ring.batch(), done)
    }

    /// The receiving side of connections, in connected mode.
    pub(crate) fn connections(&mut self) -> Option<&mut RcRx> {
        self.rc.as_deref_mut()
    }

    /// The order of numbered frames.
    pub(crate) fn order(&self) -> &Order {
        &self.order
    }

    /// Passes up what is held, and frees the buffers of a QP that has stopped.
    pub(crate) fn drain(&mut self, dev: &RawDevice, time: &mut FlushTime<'_>) {
        let counters = &self.sink.up.counters;
        self.order.close(dev, &counters.sequence);
        let mut done = 0;
        if let Err(error) = self.ring.drain(time, &mut done) {
            netdev_log!(dev, Err, "receive ring does not drain: {error:?}\n");
        }
        counters.rx.completions.add(done as u64);
        if let Some(report) = self.ring.take_report() {
            counters.not_received(dev, &report);
        }
        if let Some(rc) = &mut self.rc {
            rc.drain(dev);
        }
    }
}

/// Contents of the GRH area, from the device's word on the network header.
#[inline(always)]
fn network(header: Option<NetworkHeader>, infiniband: bool) -> Option<Network> {
    match (header, infiniband) {
        (None, true) => None,
        (Some(NetworkHeader::Grh), _) | (Some(NetworkHeader::Unknown), true) => Some(Network::Grh),
        (Some(NetworkHeader::Ipv4), _) => Some(Network::Ipv4),
        (Some(NetworkHeader::Ipv6), _) => Some(Network::Ipv6),
        // On RoCE there is one, though bnxt_re does not report it.
        (Some(NetworkHeader::Unknown) | None, false) => Some(Network::Unknown),
    }
}

/// Datagrams of a poll.
struct Arrivals<'a, 'b> {
    context: &'a Context<'b>,
    sink: &'a mut Sink,
    order: &'a mut Order,
}

impl Receive<PAYLOAD_OFFSET> for Arrivals<'_, '_> {
    #[inline(always)]
    fn begin(&mut self, completions: usize) {
        self.order.set_alone(completions == 1);
    }

    // For every datagram; left to itself, the compiler calls it.
    #[inline(always)]
    fn receive(&mut self, datagram: Received<'_>) {
        self.sink.receive(self.context, datagram, self.order);
    }
}

/// The addresses of a datagram, from its completion.
#[inline(always)]
fn meta(completion: Completion<'_>, infiniband: bool) -> RxMeta {
    RxMeta {
        src_qp: completion.src_qp(),
        slid: completion.slid(),
        network: network(completion.network(), infiniband),
    }
}

impl Sink {
    /// Checks a datagram and passes its frame up.
    // For every datagram; left to itself, the compiler calls it.
    #[inline(always)]
    fn receive(&mut self, context: &Context<'_>, received: Received<'_>, order: &mut Order) {
        let Self {
            infiniband,
            link,
            up,
        } = self;
        let meta = || meta(received.completion, *infiniband);
        let datagram = received.buf.bytes();
        // Two calls: inlined, the first knows that the frame is unicast and of a known sender.
        if let Some(frame) = classify_known(datagram, meta, &link.route) {
            return up.pass(context, received, frame, order);
        }
        match link.check(datagram, meta()) {
            Ok(frame) => up.pass(context, received, frame, order),
            Err(reason) => {
                let (dev, length) = (context.device(), datagram.len());
                up.counters.dropped(dev, reason, 1, length);
            }
        }
    }
}

impl Link {
    /// Checks a datagram that has other addresses than the one before.
    ///
    /// # Errors
    ///
    /// Why it is dropped.
    #[inline(never)]
    fn check(&mut self, datagram: &[u8], meta: RxMeta) -> Result<rx::Frame<'_>, DropReason> {
        let Self { local, route } = self;
        classify(datagram, meta, local, route)
    }
}

impl Up {
    /// Makes an skb of a frame, and passes it up.
    // For every datagram; left to itself, the compiler calls it.
    #[inline(always)]
    fn pass(
        &self,
        context: &Context<'_>,
        received: Received<'_>,
        frame: rx::Frame<'_>,
        order: &mut Order,
    ) {
        let Received { buf, completion } = received;
        let description = Frame {
            offset: PAYLOAD_OFFSET as u16,
            protocol: frame.ether_type.0,
            // Not `&&`: a branch would cost more than what it skips.
            verified: self.trusts_checksums & completion.csum_ok(),
        };
        let link = link_header(frame.ether_type);
        let skb = if buf.bytes().len() <= self.copybreak {
            buf.copy_frame(context, description, &link)
        } else {
            buf.into_frame(context, description, &link)
        };
        let Ok(mut skb) = skb else {
            let (reason, length) = (DropReason::NoBuffer, frame.payload_len);
            self.counters.dropped(context.device(), reason, 1, length);
            return;
        };
        let rx = &self.counters.rx;
        rx.frames.add(1);
        rx.bytes.add(skb.len() as u64);
        if frame.dest == Destination::Unicast {
            return order.receive(context, frame.source, frame.reserved, skb);
        }
        if frame.dest == Destination::Multicast {
            rx.multicast.add(1);
            skb.set_packet_type(PacketType::Multicast);
        } else {
            skb.set_packet_type(PacketType::Broadcast);
        }
        order.pass_up(context, skb);
    }
}

impl Poll for RxPoll {
    const TX: bool = false;
    type Source = Events;

    fn bind_pools(&mut self, binding: &Binding<'_>) {
        self.ring.bind_pool(binding);
        if let Some(rc) = &mut self.rc {
            rc.bind_pool(binding);
        }
    }

    // Its caller is no more than a frame around it.
    #[inline(always)]
    fn poll(&mut self, context: &Context<'_>, budget: usize) -> usize {
        self.order.begin(context);
        let rc = self.rc.as_ref();
        let due = rc.map(|rc| (self.ring.is_due(), rc.is_due()));
        let done = match to_poll(due) {
            (true, false) => self.poll_datagrams(context, budget),
            (false, true) => self.poll_connections(context, budget),
            _ => self.poll_both(context, budget),
        };
        if self.rc.as_mut().is_some_and(|rc| rc.take_news()) {
            self.serve();
        }
        let counters = &self.sink.up.counters;
        self.order.end(context, done < budget, &counters.sequence);
        counters.rx.polls.add(1);
        done
    }
}
