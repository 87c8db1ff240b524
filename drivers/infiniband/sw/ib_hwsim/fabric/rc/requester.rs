// SPDX-License-Identifier: GPL-2.0

//! The requester: the sending half of a reliable connection (section 9.7.2).

mod answers;

use super::header::{Bth, Op, Part, Reth, Tail};
use super::request::{Next, Request, RequesterSetup, Requests, Work};
use super::tally::RequesterTally;
use super::{ack_timeout, packets, Psn};

/// Packets of one run at most: what a receiver takes without letting anybody else do something.
pub const RUN: u32 = 64;

/// Packets that may wait for an acknowledgement when a request begins.
const WINDOW: i32 = 1 << 22;

/// A wait before anything is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pause {
    No,
    Until(u64),
}

/// The requester of a queue pair.
///
/// Requests are counted from the oldest one that is not done. The cursor is `at`, `packet` and
/// `psn`: the packet to be sent next, which may have been sent before.
#[derive(Clone, Debug)]
pub struct Requester {
    mtu: u32,
    timeout: Option<u64>,
    retries: u8,
    rnr_retries: u8,
    max_reads: u32,
    /// First PSN of the oldest request.
    oldest: Psn,
    /// Packets of the oldest request that are done.
    acked: u32,
    /// Index of the request.
    at: usize,
    /// Packet in it.
    packet: u32,
    psn: Psn,
    /// PSN after the highest one that was sent.
    top: Psn,
    /// Requests that have been sent as a whole, or carried out, at least once.
    passed: usize,
    /// READ requests and atomic operations before the cursor.
    reads: u32,
    retries_left: u8,
    rnr_left: u8,
    pause: Pause,
    /// Time by which an answer has to have come.
    deadline: Option<u64>,
    /// Data were missing that have been asked for again.
    missed: bool,
    tally: RequesterTally,
}

impl Requester {
    /// Makes one that has sent nothing.
    pub fn new(setup: &RequesterSetup) -> Requester {
        Requester {
            mtu: setup.mtu.bytes(),
            timeout: ack_timeout(setup.timeout),
            retries: setup.retries,
            rnr_retries: setup.rnr_retries,
            max_reads: setup.reads.into(),
            oldest: setup.psn,
            acked: 0,
            at: 0,
            packet: 0,
            psn: setup.psn,
            top: setup.psn,
            passed: 0,
            reads: 0,
            retries_left: setup.retries,
            rnr_left: setup.rnr_retries,
            pause: Pause::No,
            deadline: None,
            missed: false,
            tally: RequesterTally::default(),
        }
    }

    /// Returns what has gone wrong so far.
    pub fn tally(&self) -> &RequesterTally {
        &self.tally
    }

    /// Returns the first PSN that has not been acknowledged.
    fn una(&self) -> Psn {
        self.oldest.plus(self.acked)
    }

    /// Returns the PSNs that a request takes.
    fn psns(&self, request: &Request) -> u32 {
        match request.work {
            Work::Local { .. } => 0,
            Work::Atomic { .. } => 1,
            Work::Send(_) | Work::Write { .. } | Work::Read { .. } => {
                packets(request.len, self.mtu)
            }
        }
    }

    /// Returns true if something was sent that has not been acknowledged.
    pub fn is_waiting(&self) -> bool {
        self.top != self.una()
    }

    /// Returns true if all that was begun is done; what is asked of a send queue that drains.
    pub fn is_drained(&self) -> bool {
        !self.is_waiting() && self.packet == 0
    }

    /// Returns true if there may be something to do next, now.
    pub fn is_eager(&self, requests: &impl Requests) -> bool {
        self.pause == Pause::No && requests.get(self.at).is_some()
    }

    /// Returns the time at which [`Requester::expire`] has to be called.
    pub fn deadline(&self) -> Option<u64> {
        match self.pause {
            Pause::No => self.deadline,
            Pause::Until(time) => Some(time),
        }
    }

    /// Returns what is to be done next, and takes it for done. If the queue drains, no request is
    /// begun.
    pub fn next(&mut self, now: u64, drains: bool, requests: &impl Requests) -> Next {
        if let Pause::Until(time) = self.pause {
            if now < time {
                return Next::Idle;
            }
            self.pause = Pause::No;
        }
        loop {
            let Some(request) = requests.get(self.at) else {
                return Next::Idle;
            };
            let begins = self.packet == 0 && self.psn == self.top;
            let Work::Local { last } = request.work else {
                if begins && !self.may_begin(&request, drains) {
                    return Next::Idle;
                }
                return self.run(now, &request);
            };
            let index = self.at;
            let is_new = index >= self.passed;
            if is_new && (drains || last && index > 0 || request.fence && self.reads > 0) {
                return Next::Idle;
            }
            self.at = index.saturating_add(1);
            if is_new {
                self.passed = self.at;
                return Next::Local(index);
            }
        }
    }

    /// Returns true if a request may be begun that was not before.
    fn may_begin(&self, request: &Request, drains: bool) -> bool {
        let has_reads = self.reads > 0;
        let full = self.reads >= self.max_reads;
        let has_to_wait = drains || request.fence && has_reads || request.work.is_read() && full;
        !has_to_wait && self.psn.since(self.una()) < WINDOW
    }

    /// Makes the next run of the request at the cursor.
    fn run(&mut self, now: u64, request: &Request) -> Next {
        let (index, packet, psn) = (self.at, self.packet, self.psn);
        let offset = packet.saturating_mul(self.mtu);
        let left = self.psns(request).saturating_sub(packet);
        // Answers come for all of a READ request.
        let n = if request.work.is_read() {
            left
        } else {
            left.min(RUN)
        };
        let last = n == left;
        let rest = request.len.saturating_sub(offset);
        let bytes = if last {
            rest
        } else {
            n.saturating_mul(self.mtu)
        };
        let part = Part {
            first: packet == 0,
            last,
        };
        let Some(op) = operation(request, part, offset) else {
            return Next::Idle;
        };
        let (packets, bytes) = if request.work.is_read() {
            (1, 0)
        } else {
            (n, bytes)
        };
        self.psn = psn.plus(n);
        if last {
            self.at = index.saturating_add(1);
            self.packet = 0;
            self.passed = self.passed.max(self.at);
            if request.work.is_read() {
                self.reads = self.reads.saturating_add(1);
            }
        } else {
            self.packet = packet.saturating_add(n);
        }
        if self.psn.since(self.top) > 0 {
            self.top = self.psn;
        }
        if self.deadline.is_none() {
            self.wait_from(now);
        }
        Next::Run {
            index,
            offset,
            bth: Bth {
                psn,
                packets,
                bytes,
                ack_request: true,
                solicited: request.solicited && last,
                op,
            },
        }
    }

    /// Starts the timer, if something is waiting.
    fn wait_from(&mut self, now: u64) {
        let timeout = self.timeout.filter(|_| self.is_waiting());
        self.deadline = timeout.map(|timeout| now.saturating_add(timeout));
    }
}

/// Returns the operation of a part of a request whose payload begins at `offset`; `None` of a local one.
fn operation(request: &Request, part: Part, offset: u32) -> Option<Op> {
    let of_end = |tail| if part.last { tail } else { Tail::Plain };
    Some(match request.work {
        Work::Send(tail) => Op::Send {
            part,
            tail: of_end(tail),
        },
        Work::Write { address, key, tail } => {
            let len = request.len;
            let to = Reth { address, key, len };
            Op::Write {
                part,
                to: part.first.then_some(to),
                tail: of_end(tail),
            }
        }
        Work::Read { address, key } => Op::Read(Reth {
            address: address.wrapping_add(offset.into()),
            key,
            len: request.len.saturating_sub(offset),
        }),
        Work::Atomic { address, key, op } => Op::Atomic { address, key, op },
        Work::Local { .. } => return None,
    })
}
