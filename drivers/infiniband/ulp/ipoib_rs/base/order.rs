// SPDX-License-Identifier: GPL-2.0

//! Putting received frames in order: the table of sources with its timer, owned by the receive
//! NAPI.

use ipoib_netdev::clock;
use ipoib_netdev::device::RawDevice;
use ipoib_netdev::napi::Context;
use ipoib_netdev::random::random;
use ipoib_netdev::skb::RxSkb;
use ipoib_proto::deadline::Deadline;
use ipoib_proto::hwaddr::HwAddr;
use ipoib_proto::reorder::{Counts, Event, Held, MAX_WIDTH};
use ipoib_proto::seq::MsgId;
use ipoib_proto::source::{self, Numbered, Place, Sink, Sources};
use ipoib_proto::table::{Seed, Slot};
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::base::counters::Sequence;
use crate::base::settings::Settings;
use crate::base::storage::Storage;
use crate::base::trace::who;

/// Sources that can be put in order at a time: half of the table's slots.
const SOURCE_SLOTS: usize = 2048;
/// Sources that can hold frames at a time.
const RINGS: usize = 64;

type Ring = Storage<Option<Held<RxSkb>>>;
type Source = source::Source<RxSkb, Ring>;

/// Restores the order of received frames.
pub(crate) struct Order {
    sources: Sources<RxSkb, Ring, Storage<Slot<Source>>, Storage<Place<Ring>>>,
    settings: Arc<Settings>,
    deadline: Deadline,
    /// The width during this poll.
    width: u8,
    /// The time of this poll in milliseconds.
    now: u64,
    /// Frames that this poll has passed up as they came.
    unordered: u64,
    /// The frame at hand came with no others.
    alone: bool,
}

/// A copy of what is known about a source.
pub(crate) struct CopiedSource {
    pub(crate) address: HwAddr,
    pub(crate) counts: Counts,
    /// Frames that it holds.
    pub(crate) holding: usize,
    pub(crate) established: bool,
    pub(crate) idle_ms: u64,
}

/// Passes frames up from the poll; true if it is a single one that came with no others.
struct Up<'a, 'b>(&'a Context<'b>, bool);

impl Sink<RxSkb> for Up<'_, '_> {
    fn now_us(&mut self) -> u64 {
        clock::now_us()
    }

    #[inline]
    fn deliver(&mut self, skb: RxSkb) {
        skb.poll_receive(self.0, self.1);
    }

    #[inline]
    fn note(&mut self, from: &HwAddr, id: MsgId, event: Event, since: u64) {
        trace(self.0.device(), from, id, event, since);
    }
}

/// Emits the tracepoint of held frames.
#[inline]
fn trace(dev: &RawDevice, from: &HwAddr, id: MsgId, event: Event, since: u64) {
    if ipoib_trace::wants_held() {
        let waited = clock::now_us().saturating_sub(since);
        ipoib_trace::held(dev, who(from), event.word(), id.get(), waited);
    }
}

/// Passes frames up when there is no poll any more.
struct Last<'a>(&'a RawDevice);

impl Sink<RxSkb> for Last<'_> {
    fn now_us(&mut self) -> u64 {
        clock::now_us()
    }

    fn deliver(&mut self, skb: RxSkb) {
        skb.receive(self.0);
    }

    fn note(&mut self, from: &HwAddr, id: MsgId, event: Event, since: u64) {
        trace(self.0, from, id, event, since);
    }
}

impl Order {
    /// Without sources.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(settings: Arc<Settings>) -> Result<Self> {
        let slots = Storage::new(SOURCE_SLOTS, || Ok(Slot::EMPTY))?;
        let places = Storage::new(RINGS, || {
            Ok(Place::new(Ring::new(MAX_WIDTH.into(), || Ok(None))?))
        })?;
        let sources = Sources::new(slots, places, Seed(random())).ok_or(EINVAL)?;
        Ok(Self {
            sources,
            settings,
            deadline: Deadline::NONE,
            width: 0,
            now: 0,
            unordered: 0,
            alone: false,
        })
    }

    /// Copies what is known about the sources, as many as there is room for.
    pub(crate) fn note_sources(&self, rows: &mut KVVec<CopiedSource>) {
        let now = clock::now_ms();
        for (address, source) in self.sources.iter() {
            let row = CopiedSource {
                address: *address,
                counts: *source.window().counts(),
                holding: source.window().held(),
                established: source.is_established(),
                idle_ms: source.idle_for(now),
            };
            if rows.push_within_capacity(row).is_err() {
                break;
            }
        }
    }

    /// A poll begins.
    #[inline]
    pub(crate) fn begin(&mut self, context: &Context<'_>) {
        self.now = clock::now_ms();
        self.width = if self.settings.extensions() {
            self.settings.reorder_window()
        } else {
            0
        };
        if self.width == 0 && !self.sources.is_empty() {
            self.forget(context);
        }
    }

    /// Sets whether the frame at hand came with no others, so that GRO has nothing to merge it with.
    #[inline]
    pub(crate) fn set_alone(&mut self, alone: bool) {
        self.alone = alone;
    }

    /// No order is kept any more.
    #[cold]
    fn forget(&mut self, context: &Context<'_>) {
        self.sources.clear(&mut Up(context, false));
    }

    /// Passes a unicast frame up, now or when those before it have come. `number` is what its header
    /// has in the reserved field; without a source it is in no order.
    // For every frame, and short; left to itself, the compiler calls it.
    #[inline(always)]
    pub(crate) fn receive(
        &mut self,
        context: &Context<'_>,
        from: Option<&HwAddr>,
        number: u16,
        skb: RxSkb,
    ) {
        let (Some(id), Some(from), 1..) = (MsgId::new(number), from, self.width) else {
            return self.pass_up(context, skb);
        };
        if self.sources.receive_next(from, id, self.now) {
            return skb.poll_receive(context, self.alone);
        }
        let item = skb;
        self.receive_other(context, Numbered { from, id, item });
    }

    /// Takes in a frame that is not the next one of its source, and may be the one that held frames wait for.
    #[inline(never)]
    fn receive_other(&mut self, context: &Context<'_>, frame: Numbered<'_, RxSkb>) {
        let mut up = Up(context, self.alone && !self.deadline.is_set());
        let (width, now) = (self.width, self.now);
        if self.sources.receive_other(frame, width, now, &mut up) {
            self.hold(context);
        }
    }

    /// Passes a frame up that is in no order.
    #[inline]
    pub(crate) fn pass_up(&mut self, context: &Context<'_>, skb: RxSkb) {
        self.unordered = self.unordered.wrapping_add(1);
        skb.poll_receive(context, self.alone);
    }

    /// Something is held that was not before.
    #[cold]
    fn hold(&mut self, context: &Context<'_>) {
        let timeout = self.settings.reorder_timeout_us();
        if self.deadline.start(clock::now_us(), timeout.into()) && timeout > 0 {
            context.wake_in(timeout);
        }
    }

    /// A poll ends; `over`: it took all completions that there were.
    #[inline]
    pub(crate) fn end(&mut self, context: &Context<'_>, over: bool, counters: &Sequence) {
        if self.deadline.is_set() {
            self.expire(context, over);
        }
        self.sources.sweep(self.now, &mut Up(context, false));
        self.count(counters);
    }

    /// Adds what has changed to the counters.
    #[inline]
    fn count(&mut self, counters: &Sequence) {
        counters.in_order.add(self.sources.take_in_order());
        if self.unordered > 0 {
            counters.unordered.add(core::mem::take(&mut self.unordered));
        }
        if let Some((counts, events)) = self.sources.take_changes() {
            counters.add(&counts, &events);
            counters.set_now(self.sources.len(), self.sources.holding());
        }
    }

    #[cold]
    fn expire(&mut self, context: &Context<'_>, over: bool) {
        let timeout = self.settings.reorder_timeout_us();
        let mut up = Up(context, false);
        let now = clock::now_us();
        if !self.deadline.is_due(now, timeout.into(), over) {
            return;
        }
        if timeout == 0 {
            self.sources.flush(&mut up);
            self.deadline = Deadline::NONE;
            return;
        }
        let rest = self.sources.expire(timeout.into(), &mut up);
        self.deadline.again(now, rest);
        if let Some(rest) = rest {
            // No longer than the timeout.
            context.wake_in(rest as u32);
        }
    }

    /// Passes all up that is held: the interface goes down.
    pub(crate) fn close(&mut self, dev: &RawDevice, counters: &Sequence) {
        self.sources.clear(&mut Last(dev));
        self.count(counters);
    }
}
