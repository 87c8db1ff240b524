// SPDX-License-Identifier: GPL-2.0

//! Cables.

use ib_fabric::impair::Impairments;
use ib_fabric::topology::{CablePlan, Name};
use ib_fabric::{Events, LinkOffer};
use kernel::prelude::*;
use kernel::sync::{new_spinlock_irq, Arc, SpinLockIrq};
use rdma_provider::{BhWork, Trigger};

use crate::impaired::Pipes;
use crate::node::{Link, Node};

/// A cable between two ports.
#[pin_data]
pub(crate) struct Wire {
    ends: [(Node, u8); 2],
    limits: LinkOffer,
    /// True if it is plugged in. Its links change under this lock, which is taken before those of the nodes.
    #[pin]
    plugged: SpinLockIrq<bool>,
    #[pin]
    pipes: Pipes,
}

impl Wire {
    /// One of the ends, 0 or 1: the node and the port.
    pub(crate) fn end(&self, side: usize) -> &(Node, u8) {
        &self.ends[side & 1]
    }

    /// The faults.
    pub(crate) fn pipes(&self) -> &Pipes {
        &self.pipes
    }

    /// Lets the link go down, and come up if neither end is disabled.
    ///
    /// # Context
    ///
    /// Any. Hold no lock of a node's.
    pub(crate) fn retrain(&self) {
        let (lost, gained) = {
            let plugged = self.plugged.lock();
            if !*plugged {
                return;
            }
            (self.lose(), self.train())
        };
        self.tell(lost);
        self.tell(gained);
    }

    /// The limits of links by it.
    pub(crate) fn limits(&self) -> &LinkOffer {
        &self.limits
    }

    /// Trains the link; the events at both ends.
    fn train(&self) -> [Events; 2] {
        let [(a, a_port), (b, b_port)] = &self.ends;
        let (Some(from_a), Some(from_b)) = (a.offer(*a_port), b.offer(*b_port)) else {
            return [Events::NONE; 2];
        };
        [
            a.link_up(*a_port, &from_b.limited(&self.limits)),
            b.link_up(*b_port, &from_a.limited(&self.limits)),
        ]
    }

    /// Takes the link down; the events at both ends.
    fn lose(&self) -> [Events; 2] {
        let [(a, a_port), (b, b_port)] = &self.ends;
        [a.link_down(*a_port), b.link_down(*b_port)]
    }

    fn tell(&self, events: [Events; 2]) {
        for ((node, port), events) in self.ends.iter().zip(events) {
            node.tell(*port, events);
        }
    }
}

/// A cable that is plugged in. Dropping this pulls it.
pub(crate) struct Cable {
    name: Name,
    wire: Arc<Wire>,
    /// Delivers packets that were delayed.
    _carrier: BhWork<Wire>,
}

impl Cable {
    /// Connects two ports, and trains the link. Faults of the cable are drawn from the seed.
    ///
    /// # Errors
    ///
    /// `EINVAL` if a port does not exist, or both are the same; `EBUSY` if one has a cable; `ENOMEM`.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub(crate) fn plug(ends: [(&Node, u8); 2], plan: &CablePlan, seed: u64) -> Result<Self> {
        let [(a, a_port), (b, b_port)] = ends;
        if a.is(b) && a_port == b_port {
            return Err(EINVAL);
        }
        let (limits, held) = (plan.limits(), [(a.clone(), a_port), (b.clone(), b_port)]);
        let trigger = Trigger::new()?;
        let name = plan.name();
        let pipes = Pipes::new(plan.impairments(), seed, name, trigger.clone())?;
        let wire = Arc::pin_init(
            pin_init!(Wire {
                ends: held,
                limits,
                plugged <- new_spinlock_irq!(true, "ib_hwsim::cable"),
                pipes <- pipes,
            }),
            GFP_KERNEL,
        )?;
        let carrier = BhWork::new(trigger, wire.clone())?;
        let link = |side| {
            let wire = wire.clone();
            Link { wire, side }
        };
        a.connect(a_port, link(0))?;
        if let Err(e) = b.connect(b_port, link(1)) {
            a.disconnect(a_port);
            return Err(e);
        }
        wire.retrain();
        Ok(Self {
            name,
            wire,
            _carrier: carrier,
        })
    }

    /// Changes the faults.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; nothing changes.
    ///
    /// # Context
    ///
    /// Process context; may sleep. One at a time.
    pub(crate) fn change(&self, impairments: &Impairments) -> Result {
        self.wire.pipes.change(impairments)
    }

    /// Restarts the sequence of faults from a seed.
    pub(crate) fn begin(&self, seed: u64) {
        self.wire.pipes.begin(seed, self.name);
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        let events = {
            let mut plugged = self.wire.plugged.lock();
            *plugged = false;
            self.wire.lose()
        };
        // The nodes hold each other as long as there is a cable.
        for (node, port) in &self.wire.ends {
            node.disconnect(*port);
        }
        for ((node, port), lost) in self.wire.ends.iter().zip(self.wire.pipes.clear()) {
            node.lost(*port, lost);
        }
        self.wire.tell(events);
    }
}
