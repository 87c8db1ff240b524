// SPDX-License-Identifier: GPL-2.0

//! Faults that a device has been given.

use core::fmt::Write;

use ib_fabric::fault::{Direction, Errno, Order, Quirk, Setting, Table, Verb};
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::{new_spinlock_irq, Arc, SpinLockIrq};

use crate::bh_work::Trigger;
use crate::state::State;
use crate::work::Status;

/// Rules for the faults of a device, which may exist before and after it. All may be called at any time.
#[pin_data]
pub struct Faults {
    /// Kinds of rules that there are, by the constants below: 0 as long as the device is sound, and all that the
    /// verbs look at then.
    flags: Atomic<u32>,
    /// No other lock is taken under this one.
    #[pin]
    rules: SpinLockIrq<Rules>,
}

struct Rules {
    table: Table,
    /// The device has failed for good.
    fatal: bool,
    /// The device goes: completions are held back no longer.
    leaving: bool,
    /// The last event that it was to report.
    order: Option<Order>,
    /// Schedules the job that acts on the deadlines of queue pairs.
    trigger: Option<Arc<Trigger>>,
    /// A queue pair has an event to report later, which that job does not know of.
    late: bool,
}

/// Verbs may fail.
const VERBS: u32 = 1 << 0;
/// Requests may complete in error.
const COMPLETIONS: u32 = 1 << 1;
/// The device has quirks.
const QUIRKS: u32 = 1 << 2;
/// Completions are held back, or late.
const GATE: u32 = 1 << 3;
/// A queue pair has an event to report later.
const LATE: u32 = 1 << 4;

impl Rules {
    fn flags(&self) -> u32 {
        let active = self.table.active();
        let mut flags = 0;
        for (is_set, flag) in [
            (active.verbs || self.fatal, VERBS),
            (active.completions, COMPLETIONS),
            (active.quirks, QUIRKS),
            (active.gate && !self.leaving, GATE),
            (self.late, LATE),
        ] {
            flags |= if is_set { flag } else { 0 };
        }
        flags
    }

    /// Counts a call of a verb, which is one of this kind.
    fn call(&mut self, verb: Verb, kind: Verb) -> Result {
        if self.fatal && !kind.outlives_fatal() {
            return Err(EIO);
        }
        match self.table.call(verb) {
            Some(errno) => Err(error(errno)),
            None => Ok(()),
        }
    }
}

impl Faults {
    /// None.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new() -> Result<Arc<Self>> {
        let rules = Rules {
            table: Table::new(),
            fatal: false,
            leaving: false,
            order: None,
            trigger: None,
            late: false,
        };
        Arc::pin_init(
            pin_init!(Self {
                flags: Atomic::new(0),
                rules <- new_spinlock_irq!(rules, "rdma_provider::Faults"),
            }),
            GFP_KERNEL,
        )
    }

    fn update<R>(&self, change: impl FnOnce(&mut Rules) -> R) -> R {
        let mut rules = self.rules.lock();
        let result = change(&mut rules);
        self.flags.store(rules.flags(), Relaxed);
        result
    }

    /// Takes a text of rules (see [`Table::change`]).
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is none; nothing changes then.
    pub fn change(&self, text: &str) -> Result {
        self.update(|rules| rules.table.change(text)).ok_or(EINVAL)
    }

    /// Prints the rules.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no room for them.
    pub fn print(&self, out: &mut dyn Write) -> Result {
        Ok(self.rules.lock().table.print(out)?)
    }

    /// The device is there anew: it has not failed, and has not reported an event. Its job, which this trigger schedules,
    /// has to look at [`Faults::take_late`].
    pub fn begin(&self, trigger: &Arc<Trigger>) {
        self.update(|rules| {
            rules.fatal = false;
            rules.leaving = false;
            rules.order = None;
            rules.late = false;
            rules.trigger.replace(trigger.clone())
        });
    }

    /// The device goes: no more completions are held back. Call [`Qp::show`](crate::Qp::show) for those that are.
    pub fn end(&self) {
        self.update(|rules| rules.leaving = true);
    }

    /// The device fails for good: all verbs do but those of [`Verb::outlives_fatal`].
    pub fn fail(&self) {
        self.update(|rules| rules.fatal = true);
    }

    /// Notes an event that the device is to report.
    pub fn note(&self, order: Order) {
        self.update(|rules| rules.order = Some(order));
    }

    /// The last one.
    pub fn noted(&self) -> Option<Order> {
        self.rules.lock().order
    }

    fn has_rules(&self, kind: u32) -> bool {
        self.flags.load(Relaxed) & kind != 0
    }

    /// Counts a call of a verb.
    ///
    /// # Errors
    ///
    /// That with which it is to fail.
    #[inline]
    pub(crate) fn strike(&self, verb: Verb) -> Result {
        if !self.has_rules(VERBS) {
            return Ok(());
        }
        self.call(verb)
    }

    #[cold]
    #[inline(never)]
    fn call(&self, verb: Verb) -> Result {
        self.rules.lock().call(verb, verb)
    }

    /// Counts a change of a queue pair, which may be one of its state.
    ///
    /// # Errors
    ///
    /// As for [`Faults::strike`].
    pub(crate) fn strike_modify(&self, state: Option<State>) -> Result {
        if !self.has_rules(VERBS) {
            return Ok(());
        }
        let verb = match state {
            Some(State::Reset) => Verb::ModifyQpReset,
            Some(State::Init) => Verb::ModifyQpInit,
            Some(State::ReadyToReceive) => Verb::ModifyQpRtr,
            Some(State::ReadyToSend) => Verb::ModifyQpRts,
            Some(State::SendQueueDrained) => Verb::ModifyQpSqd,
            Some(State::Error) => Verb::ModifyQpError,
            Some(State::SendQueueError) | None => Verb::ModifyQp,
        };
        let mut rules = self.rules.lock();
        rules.call(Verb::ModifyQp, verb)?;
        if verb == Verb::ModifyQp {
            return Ok(());
        }
        rules.call(verb, verb)
    }

    /// Counts a request that completes; its status if it is to fail.
    #[inline]
    pub(crate) fn complete(&self, direction: Direction) -> Option<Status> {
        if !self.has_rules(COMPLETIONS) {
            return None;
        }
        self.failure(direction)
    }

    #[cold]
    #[inline(never)]
    fn failure(&self, direction: Direction) -> Option<Status> {
        self.rules.lock().table.complete(direction)
    }

    /// Returns true if the device has a quirk.
    #[inline]
    pub(crate) fn has(&self, quirk: Quirk) -> bool {
        self.has_rules(QUIRKS) && self.rules.lock().table.has(quirk)
    }

    /// Number of a quirk that the device has.
    #[inline]
    pub(crate) fn number(&self, setting: Setting) -> Option<u32> {
        if !self.has_rules(QUIRKS) {
            return None;
        }
        self.rules.lock().table.number(setting)
    }

    /// A queue pair has an event to report later.
    pub(crate) fn note_late(&self) {
        let trigger = self.update(|rules| {
            rules.late = true;
            rules.trigger.clone()
        });
        if let Some(trigger) = trigger {
            trigger.schedule();
        }
    }

    /// Returns true if a queue pair has got an event to report later since this was asked last:
    /// [`Qp::due`](crate::Qp::due) may be sooner than it was, of any.
    #[inline]
    pub fn take_late(&self) -> bool {
        self.has_rules(LATE) && self.update(|rules| core::mem::take(&mut rules.late))
    }

    /// Returns true if completions are held back, or late.
    #[inline]
    pub fn is_gated(&self) -> bool {
        self.has_rules(GATE)
    }

    /// Milliseconds that completions are late; `None` if they are not, or are held back.
    pub fn delay(&self) -> Option<u32> {
        if !self.is_gated() || self.has(Quirk::Hold) {
            return None;
        }
        self.number(Setting::Delay)
    }
}

fn error(errno: Errno) -> Error {
    match errno {
        Errno::Again => EAGAIN,
        Errno::Busy => EBUSY,
        Errno::Fault => EFAULT,
        Errno::Invalid => EINVAL,
        Errno::Io => EIO,
        Errno::NoDevice => ENODEV,
        Errno::NoMemory => ENOMEM,
        Errno::NoSpace => ENOSPC,
        Errno::NoSystem => ENOSYS,
        Errno::NotSupported => EOPNOTSUPP,
        Errno::NotPermitted => EPERM,
        Errno::TimedOut => ETIMEDOUT,
    }
}
