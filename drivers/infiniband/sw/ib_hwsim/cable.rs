// SPDX-License-Identifier: GPL-2.0

//! Cables.

use ib_fabric::{Events, LinkOffer};
use kernel::prelude::*;
use kernel::sync::{new_spinlock_irq, Arc, SpinLockIrq};

use crate::node::{Link, Node};

/// A cable between two ports.
#[pin_data]
pub(crate) struct Wire {
    ends: [(Node, u8); 2],
    limits: LinkOffer,
    /// Whether it is plugged in. Its links change under this lock, which is taken before those of the nodes.
    #[pin]
    plugged: SpinLockIrq<bool>,
}

impl Wire {
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
    wire: Arc<Wire>,
}

impl Cable {
    /// Connects two ports, and trains the link.
    ///
    /// # Errors
    ///
    /// `EINVAL` if a port does not exist, or both are the same; `EBUSY` if one has a cable; `ENOMEM`.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub(crate) fn plug(ends: [(&Node, u8); 2], limits: &LinkOffer) -> Result<Self> {
        let [(a, a_port), (b, b_port)] = ends;
        if a.is(b) && a_port == b_port {
            return Err(EINVAL);
        }
        let (limits, held) = (*limits, [(a.clone(), a_port), (b.clone(), b_port)]);
        let wire = Arc::pin_init(
            pin_init!(Wire {
                ends: held,
                limits,
                plugged <- new_spinlock_irq!(true, "ib_hwsim::cable"),
            }),
            GFP_KERNEL,
        )?;
        let link = |peer: &Node, port| Link {
            peer: peer.clone(),
            port,
            wire: wire.clone(),
        };
        a.connect(a_port, link(b, b_port))?;
        if let Err(e) = b.connect(b_port, link(a, a_port)) {
            a.disconnect(a_port);
            return Err(e);
        }
        wire.retrain();
        Ok(Self { wire })
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
        self.wire.tell(events);
    }
}
