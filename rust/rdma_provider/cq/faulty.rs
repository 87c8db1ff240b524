// SPDX-License-Identifier: GPL-2.0

//! Completion queues of a device that has faults.

use kernel::sync::atomic::Release;

use super::{Armed, Cq, Wake};

impl Cq {
    /// Shows completions that were held back: all, or those that have waited long enough at the begin of a turn.
    pub(crate) fn show(&self, turn: Option<u32>) -> Wake {
        let mut ring = self.ring.lock();
        let any = match turn {
            Some(turn) => ring.gate.pass(turn),
            None => ring.gate.open(),
        };
        let completion = any
            && match ring.armed {
                Armed::No => false,
                Armed::Solicited => ring.gate.solicited(),
                Armed::Next => true,
            };
        if completion {
            ring.armed = Armed::No;
        }
        Wake {
            completion,
            ..Wake::default()
        }
    }

    /// Tells the ULP that the queue has failed. Hold no lock of this crate's.
    pub(crate) fn report_error(&self) {
        self.tell_error();
    }

    /// Ends the use of the `ib_cq`. A grace period of RCU later, no handler of the queue's is running any more.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub(crate) fn abandon(&self) {
        self.open.store(false, Release);
        self.bell.end();
    }
}
