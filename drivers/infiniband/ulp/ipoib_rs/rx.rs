// SPDX-License-Identifier: GPL-2.0

//! Receiving: the NAPI that takes frames off the receive ring.

use ipoib_netdev::device::{OwnedDevice, RawDevice};
use ipoib_netdev::napi::{Context, Poll};
use ipoib_netdev::netdev_log;
use ipoib_netdev::page_pool::Frame;
use ipoib_netdev::skb::PacketType;
use ipoib_proto::drop::DropReason;
use ipoib_proto::rx::{classify, Destination, Local, Network, RxMeta, GRH_LEN};
use ipoib_rdma::{NetworkHeader, Received, RecvRing};
use kernel::sync::Arc;

use crate::counters::Counters;
use crate::inspect::Sources;
use crate::interface::{Interface, RECOVER};
use crate::order::Order;
use crate::tunables::Tunables;
use crate::verbs::Events;

/// The state of the receive NAPI.
pub(crate) struct RxPoll {
    ring: RecvRing,
    sink: Sink,
    order: Order,
    dev: OwnedDevice<Interface>,
}

/// What one poll received.
#[derive(Default)]
struct Sums {
    frames: u64,
    bytes: u64,
    multicast: u64,
}

/// Where received frames go.
struct Sink {
    local: Local,
    /// Frames of up to so many octets are copied; during this poll.
    copybreak: usize,
    tunables: Arc<Tunables>,
    counters: Arc<Counters>,
}

impl RxPoll {
    /// Puts it together.
    pub(crate) fn new(
        ring: RecvRing,
        local: Local,
        order: Order,
        tunables: Arc<Tunables>,
        counters: Arc<Counters>,
        dev: OwnedDevice<Interface>,
    ) -> Self {
        Self {
            ring,
            sink: Sink {
                local,
                copybreak: 0,
                tunables,
                counters,
            },
            order,
            dev,
        }
    }

    /// Passes up what is held, and frees the buffers of a QP that has stopped.
    pub(crate) fn drain(mut self, dev: &RawDevice) {
        self.order.close(dev, &self.sink.counters.sequence);
        if let Err(error) = self.ring.drain() {
            netdev_log!(dev, Err, "receive ring does not drain: {error:?}\n");
        }
    }
}

impl Sink {
    /// Checks a frame and passes it up.
    #[inline]
    fn receive(
        &self,
        context: &Context<'_>,
        received: Received,
        order: &mut Order,
        sums: &mut Sums,
    ) {
        let meta = RxMeta {
            byte_len: received.buf.bytes().len() as u32,
            src_qp: received.src_qp,
            has_grh: received.has_grh,
            network: match received.network {
                NetworkHeader::Ipv4 => Network::Ipv4,
                NetworkHeader::Ipv6 => Network::Ipv6,
                NetworkHeader::Grh => Network::Grh,
                NetworkHeader::Unknown => Network::Unknown,
            },
        };
        let frame = match classify(received.buf.bytes(), &meta, &self.local) {
            Ok(frame) => frame,
            Err(reason) => {
                self.counters.dropped(reason, 1);
                return;
            }
        };
        let packet_type = match frame.dest {
            Destination::Unicast => PacketType::Host,
            Destination::Multicast => PacketType::Multicast,
            Destination::Broadcast => PacketType::Broadcast,
        };
        let description = Frame {
            offset: GRH_LEN,
            protocol: frame.ether_type.0,
            packet_type,
            csum_ok: received.csum_ok,
        };
        let skb = if frame.payload_len <= self.copybreak {
            received.buf.copy_frame(context, description)
        } else {
            received.buf.into_frame(description)
        };
        let Ok(skb) = skb else {
            self.counters.dropped(DropReason::NoBuffer, 1);
            return;
        };
        // None of them can overflow within one poll.
        sums.frames = sums.frames.wrapping_add(1);
        sums.bytes = sums.bytes.wrapping_add(frame.payload_len as u64);
        if packet_type == PacketType::Multicast {
            sums.multicast = sums.multicast.wrapping_add(1);
        }
        if packet_type == PacketType::Host {
            order.receive(
                context,
                frame.source_gid,
                frame.source_qpn,
                frame.reserved,
                skb,
            );
        } else {
            skb.gro_receive(context);
        }
    }
}

impl Poll for RxPoll {
    const TX: bool = false;
    type Source = Events;
    type Question = Sources;

    fn answer(&mut self, sources: &mut Sources) {
        sources.note(self.order.sources());
    }

    fn poll(&mut self, context: &Context<'_>, budget: usize) -> usize {
        let Self {
            ring,
            sink,
            order,
            dev,
        } = self;
        let mut sums = Sums::default();
        if budget > 0 {
            order.begin(context);
        }
        sink.copybreak = sink.tunables.rx_copybreak() as usize;
        let polled = ring.poll(budget, |received| {
            sink.receive(context, received, order, &mut sums)
        });
        if budget > 0 {
            order.end(context, polled.done < budget, &sink.counters.sequence);
        }
        let rx = &sink.counters.rx;
        rx.polls.add(1);
        rx.frames.add(sums.frames);
        rx.bytes.add(sums.bytes);
        if sums.multicast > 0 {
            rx.multicast.add(sums.multicast);
        }
        if polled.flushed > 0 {
            // The QP is in error, and receives nothing until it is brought up again.
            dev.queue_task(RECOVER, 0);
        }
        for (reason, n) in [
            (DropReason::BadStatus, polled.errors),
            (DropReason::BadCompletion, polled.unknown),
            (DropReason::Oversized, polled.malformed),
            (DropReason::NoBuffer, polled.no_buffer),
        ] {
            if n > 0 {
                sink.counters.dropped(reason, u64::from(n));
            }
        }
        polled.done
    }
}
