// SPDX-License-Identifier: GPL-2.0

//! Cables that lead through a network device.

mod counters;
mod listen;
mod queue;

use core::fmt::Write;

use ib_fabric::topology::CablePlan;
use ib_fabric::trunk::frame::{ETHER_TYPE, HEADER};
use ib_fabric::trunk::{largest_mtu, Greeting, Header, Outgoing, Step};
use ib_fabric::wire::Head;
use ib_fabric::{Events, LinkOffer, Packet};
use kernel::prelude::*;
use kernel::sync::{new_spinlock_irq, Arc, SpinLockIrq};
use raw_ether::{Attachment, Frame, Interface};
use rdma_provider::{now, Again, BhWork, Job, Payload, Trigger};

use crate::cable::Cable;
use crate::node::{Links, Node};
use crate::timers::again_after;
use counters::{Counted, Counters};
use queue::Queue;

/// Frames that are sent in a row.
const BUDGET: usize = 64;

/// The end of a cable that is a network device. In the fabric, it stands for the node at the other end.
///
/// Its lock is like that of a node.
#[pin_data]
pub(crate) struct Trunk {
    #[pin]
    pub(crate) managed: SpinLockIrq<State>,
    interface: Arc<Interface>,
    /// Schedules [`Job::run`].
    trigger: Arc<Trigger>,
    counters: Counters,
}

pub(crate) struct State {
    end: ib_fabric::trunk::Trunk,
    /// The cable, and the port at its other end.
    pub(crate) links: Links,
    /// The offer of that port at the last training.
    offered: Option<LinkOffer>,
    /// Packets that are to be sent.
    queue: Queue,
}

impl Trunk {
    fn new() -> Result<Arc<Self>> {
        let managed = State {
            // Another one than before, if there was one.
            end: ib_fabric::trunk::Trunk::new(now() as u32),
            links: Links::new(1)?,
            offered: None,
            queue: Queue::new()?,
        };
        // Frames of one CPU stay in order.
        let (interface, trigger) = (Interface::new(ETHER_TYPE)?, Trigger::on_this_cpu()?);
        Arc::pin_init(
            pin_init!(Self {
                managed <- new_spinlock_irq!(managed, "ib_hwsim::trunk"),
                interface,
                trigger,
                counters: Counters::new(),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns true if the device carries all packets that a port with this offer may send. The subnet manager sets a
    /// link's MTU by what both ports are capable of, and knows of nothing between them.
    fn carries(&self, offer: &LinkOffer) -> bool {
        largest_mtu(self.interface.mtu()) >= Some(offer.mtu)
    }

    /// Offer of the port in this kernel, if that waits for training and the device carries its packets.
    ///
    /// # Context
    ///
    /// Any. Hold no lock of a node's.
    fn waiting(&self) -> Option<LinkOffer> {
        let link = self.managed.lock().links.get(1).cloned()?;
        let (peer, port) = link.peer();
        let offer = peer.offer(*port)?;
        self.carries(&offer)
            .then(|| offer.limited(link.wire.limits()))
    }

    /// Offer of the port in the other kernel, if both ports wait for training.
    pub(crate) fn offer(&self, _port: u8) -> Option<LinkOffer> {
        self.waiting()?;
        self.managed.lock().end.offer()
    }

    /// Tells the other kernel of the offer of this one's port, which is up.
    pub(crate) fn link_up(&self, _port: u8, offer: &LinkOffer) -> Events {
        let mut state = self.managed.lock();
        state.end.link_up();
        state.offered = Some(*offer);
        Events::NONE
    }

    /// Tells the other kernel that the link is down.
    pub(crate) fn link_down(&self, _port: u8) -> Events {
        self.managed.lock().end.link_down();
        Events::NONE
    }

    /// Tells the other kernel of what has changed, if anything has.
    pub(crate) fn tell(&self) {
        if self.managed.lock().end.has_news() {
            self.trigger.schedule();
        }
    }

    /// Sends a packet, or a run of packets, to the other kernel. It is lost if the link is down, or where there is no
    /// room.
    ///
    /// # Context
    ///
    /// As for [`crate::carry::carry`].
    pub(crate) fn send(&self, packet: &Packet, payload: &Payload<'_>) {
        let header = {
            let state = self.managed.lock();
            state.end.is_up().then(|| state.end.header())
        };
        let Some(header) = header else {
            return self.discard(packet);
        };
        for n in 0..packet.packets() {
            let frame = Head::new(packet, n).and_then(|head| make(&header, &head, payload));
            let sent =
                frame.is_some_and(|frame| self.managed.lock().queue.push((header.session, frame)));
            if !sent {
                self.counters.add(Counted::Dropped, 1);
            }
        }
        self.trigger.schedule();
    }

    /// Counts a packet, or a run of packets, that is lost here: its payload cannot be read, or has a wrong CRC.
    pub(crate) fn discard(&self, packet: &Packet) {
        self.counters.add(Counted::Dropped, packet.packets().into());
    }

    /// Sends frames that wait, within the budget. True if there may be more to be sent at once.
    fn transmit(&self) -> bool {
        for _ in 0..BUDGET {
            let next = {
                let State { end, queue, .. } = &mut *self.managed.lock();
                end.next_frame(|| queue.pop())
            };
            let sent = match next {
                None => return false,
                Some(Outgoing::Stale(_)) => false,
                Some(Outgoing::Send(header, to, mut frame)) => {
                    header.stamp(frame.bytes_mut());
                    let fits = frame.len() <= self.interface.mtu() as usize;
                    fits && self.interface.send(frame, Some(to))
                }
            };
            let counted = if sent {
                Counted::Sent
            } else {
                Counted::Dropped
            };
            self.counters.add(counted, 1);
        }
        true
    }

    /// Says hello.
    fn greet(&self, to: Greeting) {
        let waiting = self.waiting();
        let bytes = {
            let state = &mut *self.managed.lock();
            let offer = if state.end.is_up() {
                state.offered
            } else {
                waiting
            };
            state.end.say_hello(now(), to, offer)
        };
        if let Some(mut frame) = Frame::new(bytes.len()) {
            frame.bytes_mut().copy_from_slice(&bytes);
            let to = match to {
                Greeting::All => None,
                Greeting::Peer(address) => Some(address),
            };
            self.interface.send(frame, to);
        }
    }

    /// Prints the counters, one in a line.
    pub(crate) fn print(&self, out: &mut dyn Write) -> Result {
        let (up, lost) = {
            let state = self.managed.lock();
            (state.end.is_up(), state.end.lost())
        };
        write!(out, "up {}\nlost {lost}", u8::from(up))?;
        self.counters.print(out)
    }
}

/// Makes a frame with a packet of a run; `None` if there is no memory, or if the payload cannot be read.
fn make(header: &Header, head: &Head, payload: &Payload<'_>) -> Option<Frame> {
    let mut frame = Frame::new(HEADER + head.len())?;
    let (first, rest) = frame.bytes_mut().split_at_mut_checked(HEADER)?;
    first.copy_from_slice(&header.packet());
    let done = head.write(rest, |from, place| payload.copy_part(from, place));
    done.then_some(frame)
}

impl Job for Trunk {
    fn run(&self) -> Again {
        let ready = self.interface.is_ready();
        let (step, link) = {
            let state = &mut *self.managed.lock();
            let mut step = state.end.step(now(), ready);
            // The device's MTU was reduced.
            let carries = state.offered.is_none_or(|offer| self.carries(&offer));
            if step == Step::Stay && state.end.is_up() && !carries {
                step = Step::Lose;
            }
            (step, state.links.get(1).cloned())
        };
        if let (Step::Lose | Step::Train, Some(link)) = (step, link) {
            link.wire.retrain();
        }
        // What was sent before the link went down comes before the hello that tells so.
        let more = self.transmit();
        let due = self.managed.lock().end.greeting(now());
        if let Some(to) = due {
            self.greet(to);
        }
        if more {
            return Again::Now;
        }
        let left = self.managed.lock().end.hello_at().saturating_sub(now());
        again_after(left)
    }
}

/// A cable through a network device that is plugged in. Dropping this pulls it.
pub(crate) struct TrunkCable {
    // Fields are dropped in this order.
    cable: Option<Cable>,
    _attachment: Attachment<Trunk>,
    job: BhWork<Trunk>,
}

impl TrunkCable {
    /// Connects a port with the device of that name in the network namespace of the current task. The faults of the
    /// cable are those of packets that leave by the device.
    ///
    /// # Errors
    ///
    /// `ENODEV` if there is no such device; `EINVAL` if it is no Ethernet device; `EBUSY` if another cable leads
    /// through it; `EMSGSIZE` if its MTU is too small for
    /// packets of the port's; and those of [`Cable::plug`].
    ///
    /// # Context
    ///
    /// Process context without RTNL; may sleep.
    pub(crate) fn plug(
        near: (&Node, u8),
        device: &CStr,
        plan: &CablePlan,
        seed: u64,
    ) -> Result<Self> {
        let trunk = Trunk::new()?;
        let job = BhWork::new(trunk.trigger.clone(), trunk.clone())?;
        let attachment = Attachment::new(device, &trunk.interface, &trunk)?;
        let offer = near.0.offer(near.1);
        if offer.is_some_and(|offer| !trunk.carries(&offer)) {
            return Err(EMSGSIZE);
        }
        let far = Node::Trunk(trunk.clone());
        let cable = Cable::plug([near, (&far, 1)], plan, seed)?;
        trunk.trigger.schedule();
        Ok(Self {
            cable: Some(cable),
            _attachment: attachment,
            job,
        })
    }

    /// The cable, as long as it is plugged.
    pub(crate) fn cable(&self) -> Option<&Cable> {
        self.cable.as_ref()
    }

    /// The end that is a device.
    pub(crate) fn trunk(&self) -> &Trunk {
        self.job.job()
    }
}

impl Drop for TrunkCable {
    fn drop(&mut self) {
        self.cable = None;
        // The other end need not wait until nothing is heard of this one.
        self.trunk().greet(Greeting::All);
    }
}
