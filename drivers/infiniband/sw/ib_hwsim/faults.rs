// SPDX-License-Identifier: GPL-2.0

//! Faults of an adapter that is on: completions that are held back, and events on demand.

use ib_fabric::fault::{EventName, Order, Target};
use ib_fabric::{Event, LinkError};
use kernel::prelude::*;
use rdma_provider::{now, Again, Wakeups, MILLISECOND};

use crate::host::Host;
use crate::timers::again_after;

impl Host {
    /// Acts on a change of the rules.
    pub(crate) fn faults_changed(&self) {
        if self.faults.is_gated() {
            // Completions may be late from now on.
            self.trigger.schedule();
        } else {
            self.show_all(&mut Wakeups::new(), None);
        }
    }

    /// Releases the completions that are held back; of those that are late, the ones due as a turn begins.
    fn show_all(&self, wakeups: &mut Wakeups, turn: Option<u32>) {
        self.each_qp(|qp| {
            qp.show(wakeups, turn);
            wakeups.flush_if_many();
        });
    }

    /// Releases completions that are held back before the adapter goes: ULPs wait for them.
    pub(crate) fn leave(&self) {
        self.faults.end();
        self.show_all(&mut Wakeups::new(), None);
    }

    /// Begins the next turn if it is time. Returns when to ask again.
    ///
    /// The adapter's job calls it, so that there is one call at a time.
    #[cold]
    pub(crate) fn pass_turn(&self, wakeups: &mut Wakeups) -> Again {
        let Some(delay) = self.faults.delay() else {
            return Again::Idle;
        };
        let delay = u64::from(delay) * MILLISECOND;
        let (left, begun) = self.turns.pass(now(), delay);
        if begun.is_some() {
            self.show_all(wakeups, begun);
        }
        again_after(left)
    }

    /// Reports an event.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no such port; `EOPNOTSUPP` for an error of an Ethernet port's link; `ENOENT` if there is no
    /// such queue pair.
    pub(crate) fn obey(&self, order: &Order) -> Result {
        match order.target {
            Target::Device => self.fail(),
            Target::Port(port) => {
                if let Some(error) = link_error(order.event) {
                    self.fail_link(port, error)?;
                } else {
                    self.managed.lock().hca.port(port).ok_or(EINVAL)?;
                    let event = port_event(order.event).ok_or(EINVAL)?;
                    self.handle.dispatch(port, event);
                }
            }
            Target::AllQps | Target::Qp(_) => {
                let mut found = order.target == Target::AllQps;
                let mut wakeups = Wakeups::new();
                self.each_qp(|qp| {
                    if order.is_for(qp.number()) {
                        qp.report(&mut wakeups, order.event);
                        wakeups.flush();
                        found = true;
                    }
                });
                if !found {
                    return Err(ENOENT);
                }
            }
        }
        self.faults.note(*order);
        Ok(())
    }

    /// Lets the link of a port have an error, which the subnet manager hears of.
    fn fail_link(&self, port: u8, error: LinkError) -> Result {
        {
            let hca = &mut self.managed.lock().hca;
            if hca.port(port).ok_or(EINVAL)?.is_ethernet() {
                return Err(EOPNOTSUPP);
            }
            hca.fail_link(port, error);
        }
        self.check_traps();
        Ok(())
    }

    /// Fails for good: verbs fail from now on, and the requests of all queue pairs are flushed.
    fn fail(&self) {
        self.faults.fail();
        let mut wakeups = Wakeups::new();
        self.each_qp(|qp| {
            qp.break_down(&mut wakeups);
            wakeups.flush();
        });
        self.handle.dispatch(1, Event::DeviceFatal);
    }
}

fn link_error(name: EventName) -> Option<LinkError> {
    Some(match name {
        EventName::LinkIntegrity => LinkError::Integrity,
        EventName::BufferOverrun => LinkError::Overrun,
        EventName::FlowControl => LinkError::FlowControl,
        _ => return None,
    })
}

fn port_event(name: EventName) -> Option<Event> {
    Some(match name {
        EventName::PortActive => Event::PortActive,
        EventName::PortError => Event::PortError,
        EventName::LidChange => Event::LidChange,
        EventName::SmChange => Event::SmChange,
        EventName::ClientReregister => Event::ClientReregister,
        EventName::PKeyChange => Event::PKeyChange,
        EventName::GidChange => Event::GidChange,
        EventName::SpeedChange => Event::SpeedChange,
        _ => return None,
    })
}
