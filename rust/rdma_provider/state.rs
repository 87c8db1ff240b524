// SPDX-License-Identifier: GPL-2.0

//! States of a queue pair.

use ipoib_sys::bindings;

/// State of a queue pair (IB specification, section 10.3.1), with its number in `enum ib_qp_state`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// Nothing can be posted.
    #[default]
    Reset = bindings::ib_qp_state_IB_QPS_RESET,
    /// Receives can be posted.
    Init = bindings::ib_qp_state_IB_QPS_INIT,
    /// The queue pair receives.
    ReadyToReceive = bindings::ib_qp_state_IB_QPS_RTR,
    /// The queue pair receives and sends.
    ReadyToSend = bindings::ib_qp_state_IB_QPS_RTS,
    /// The queue pair receives; sends wait.
    SendQueueDrained = bindings::ib_qp_state_IB_QPS_SQD,
    /// A send has failed: it receives, and sends are flushed.
    SendQueueError = bindings::ib_qp_state_IB_QPS_SQE,
    /// Whatever is posted is flushed.
    Error = bindings::ib_qp_state_IB_QPS_ERR,
}

impl State {
    /// State of that name in `enum ib_qp_state`, if it is one.
    pub(crate) fn from_raw(raw: bindings::ib_qp_state) -> Option<State> {
        let all = [
            State::Reset,
            State::Init,
            State::ReadyToReceive,
            State::ReadyToSend,
            State::SendQueueDrained,
            State::SendQueueError,
            State::Error,
        ];
        all.into_iter().find(|state| *state as u32 == raw)
    }

    /// Returns true if messages are delivered to it.
    pub(crate) fn receives(self) -> bool {
        matches!(
            self,
            State::ReadyToReceive
                | State::ReadyToSend
                | State::SendQueueDrained
                | State::SendQueueError
        )
    }

    /// Returns true if a receive request can be posted.
    pub(crate) fn takes_receives(self) -> bool {
        self != State::Reset
    }

    /// Returns true if a send request can be posted.
    pub(crate) fn takes_sends(self) -> bool {
        matches!(
            self,
            State::ReadyToSend | State::SendQueueDrained | State::SendQueueError | State::Error
        )
    }

    /// Returns true if send requests are flushed.
    pub(crate) fn flushes_sends(self) -> bool {
        matches!(self, State::SendQueueError | State::Error)
    }
}
