// SPDX-License-Identifier: GPL-2.0

//! Two queue pairs with a reliable connection, and a wire between them that has faults from a seed.

use ib_fabric::completion::Status;
use ib_fabric::impair::{Fate, Pipe, Singles};
use ib_fabric::rc::{
    Access, AtomicOp, Bth, Fault, Next, Outcome, Purpose, Put, Received, Receiver, Request,
    Requester, RequesterSetup, Requests, Responder, ResponderSetup, Taken, Work,
};
use ib_fabric::rc::{Op, Psn};
use ib_fabric::{Lid, Mtu, Packet, Transport};
use std::collections::{BTreeMap, VecDeque};

/// Key of a side's memory, and its first address.
pub(crate) const KEY: u32 = 0x1234_5601;
pub(crate) const BASE: u64 = 0x1_0000;

/// A sequence of numbers from a seed (SplitMix64).
pub(crate) struct Dice(pub u64);

impl Dice {
    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.roll(256) as u8).collect()
    }

    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }

    /// Returns true if something happens that does in `percent` cases of a hundred.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.roll(100) < percent
    }
}

/// A send request with its memory.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) request: Request,
    pub(crate) data: Vec<u8>,
}

#[derive(Default)]
struct Queue(VecDeque<Sent>);

impl Requests for Queue {
    fn get(&self, index: usize) -> Option<Request> {
        self.0.get(index).map(|sent| sent.request)
    }
}

/// State of a receiver.
pub(crate) struct Inbox {
    /// Rooms of the receive requests that are posted.
    pub(crate) posted: VecDeque<usize>,
    current: Option<Vec<u8>>,
    /// Messages that have come.
    pub(crate) received: Vec<(Received, Vec<u8>)>,
    pub(crate) memory: Vec<u8>,
    pub(crate) key: u32,
    payload: Vec<u8>,
    /// The payload cannot be read beyond this byte: the sender's memory is gone.
    pub(crate) readable: usize,
}

impl Inbox {
    fn range(&self, key: u32, address: u64, bytes: u32) -> Option<std::ops::Range<usize>> {
        let start = usize::try_from(address.checked_sub(BASE)?).ok()?;
        let end = start.checked_add(bytes as usize)?;
        (key == self.key && end <= self.memory.len()).then_some(start..end)
    }
}

/// Copies as much as can be read.
fn copy(from: &[u8], to: &mut [u8], readable: usize) -> Put {
    let n = from.len().min(readable);
    to[..n].copy_from_slice(&from[..n]);
    if n == from.len() {
        Put::All
    } else {
        Put::CutOff
    }
}

impl Receiver for Inbox {
    fn claim(&mut self) -> bool {
        if self.current.is_none() {
            self.current = self.posted.pop_front().map(|room| vec![0; room]);
        }
        self.current.is_some()
    }

    fn put(&mut self, offset: u32, from: u32, bytes: u32) -> Result<Put, Fault> {
        let current = self.current.as_mut().expect("a claimed request");
        let (at, from, n) = (offset as usize, from as usize, bytes as usize);
        let place = current.get_mut(at..at + n).ok_or(Fault::Length)?;
        Ok(copy(&self.payload[from..from + n], place, self.readable))
    }

    fn complete(&mut self, message: &Received) {
        let mut data = self.current.take().expect("a claimed request");
        data.truncate(if message.is_write {
            0
        } else {
            message.bytes as usize
        });
        self.received.push((*message, data));
    }

    fn allows(&self, key: u32, address: u64, bytes: u32, _purpose: Purpose) -> bool {
        self.range(key, address, bytes).is_some()
    }

    fn write(&mut self, key: u32, address: u64, from: u32, bytes: u32) -> Result<Put, Fault> {
        let range = self.range(key, address, bytes).ok_or(Fault::Access)?;
        let (from, n) = (from as usize, bytes as usize);
        let place = &mut self.memory[range];
        Ok(copy(&self.payload[from..from + n], place, self.readable))
    }

    fn atomic(&mut self, key: u32, address: u64, op: AtomicOp) -> Result<u64, Fault> {
        let range = self.range(key, address, 8).ok_or(Fault::Access)?;
        let old = u64::from_ne_bytes(self.memory[range.clone()].try_into().unwrap());
        let new = match op {
            AtomicOp::CompareSwap { compare, swap } if compare == old => swap,
            AtomicOp::CompareSwap { .. } => old,
            AtomicOp::FetchAdd(n) => old.wrapping_add(n),
        };
        self.memory[range].copy_from_slice(&new.to_ne_bytes());
        Ok(old)
    }

    fn invalidate(&mut self, key: u32) -> Result<(), Fault> {
        (key == self.key).then_some(()).ok_or(Fault::Access)
    }
}

/// A queue pair.
pub(crate) struct Side {
    pub(crate) requester: Requester,
    queue: Queue,
    /// Requests that are done, in order.
    pub(crate) done: Vec<Sent>,
    pub(crate) failure: Option<Status>,
    pub(crate) responder: Responder,
    pub(crate) inbox: Inbox,
    pub(crate) fault: Option<Fault>,
    /// The send queue drains.
    pub(crate) drains: bool,
}

/// Faults of the wire, in percent of the packets.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Faults {
    pub(crate) lost: u64,
    pub(crate) twice: u64,
    /// Packets of which each may overtake others.
    pub(crate) late: u64,
}

/// How the queue pairs are set up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) mtu: Mtu,
    pub(crate) psn: u32,
    pub(crate) timeout: u8,
    pub(crate) retries: u8,
    pub(crate) rnr_retries: u8,
    pub(crate) rnr_timer: u8,
    pub(crate) reads: u8,
    pub(crate) resources: u8,
    pub(crate) holds: bool,
    pub(crate) access: Access,
}

impl Plan {
    pub(crate) const USUAL: Plan = Plan {
        mtu: Mtu::B256,
        psn: 0xff_fffa,
        timeout: 8,
        retries: 7,
        rnr_retries: 7,
        rnr_timer: 1,
        reads: 4,
        resources: 4,
        holds: false,
        access: Access {
            read: true,
            write: true,
            atomic: true,
        },
    };
}

pub(crate) struct Bed {
    pub(crate) sides: [Side; 2],
    wire: BTreeMap<(u64, u64), (usize, Bth, Vec<u8>)>,
    pub(crate) now: u64,
    mtu: u32,
    serial: u64,
    faults: Faults,
    /// Cables that take the place of the faults: the one to each side.
    cables: Option<[Pipe; 2]>,
    pub(crate) dice: Dice,
    /// Packets that were sent, lost ones included.
    pub(crate) packets: u64,
}

impl Bed {
    pub(crate) fn new(plan: &Plan, faults: Faults, seed: u64) -> Bed {
        let mut responder = Responder::new(&ResponderSetup {
            psn: Psn::new(plan.psn),
            mtu: plan.mtu,
            rnr_timer: plan.rnr_timer,
            resources: plan.resources,
            access: plan.access,
        });
        responder.set_holds(plan.holds);
        let side = || Side {
            requester: Requester::new(&RequesterSetup {
                psn: Psn::new(plan.psn),
                mtu: plan.mtu,
                timeout: plan.timeout,
                retries: plan.retries,
                rnr_retries: plan.rnr_retries,
                reads: plan.reads,
            }),
            queue: Queue::default(),
            done: Vec::new(),
            failure: None,
            responder: responder.clone(),
            inbox: Inbox {
                posted: VecDeque::new(),
                current: None,
                received: Vec::new(),
                memory: (0..4096u32).map(|i| (i * 7 % 251) as u8).collect(),
                key: KEY,
                payload: Vec::new(),
                readable: usize::MAX,
            },
            fault: None,
            drains: false,
        };
        Bed {
            sides: [side(), side()],
            wire: BTreeMap::new(),
            now: 0,
            mtu: plan.mtu.bytes(),
            serial: 0,
            faults,
            cables: None,
            dice: Dice(seed),
            packets: 0,
        }
    }

    pub(crate) fn post(&mut self, side: usize, work: Work, data: &[u8]) {
        self.post_fenced(side, work, data, false);
    }

    pub(crate) fn post_fenced(&mut self, side: usize, work: Work, data: &[u8], fence: bool) {
        self.sides[side].queue.0.push_back(Sent {
            request: Request {
                work,
                len: data.len() as u32,
                fence,
                solicited: false,
            },
            data: data.to_vec(),
        });
    }

    pub(crate) fn post_receive(&mut self, side: usize, room: usize) {
        self.sides[side].inbox.posted.push_back(room);
        self.sides[side].responder.posted();
    }

    /// Requests that wait or are under way.
    pub(crate) fn queued(&self, side: usize) -> usize {
        self.sides[side].queue.0.len()
    }

    /// Connects the sides by a cable with faults: its pipe to each of them.
    pub(crate) fn connect(&mut self, cables: [Pipe; 2]) {
        self.cables = Some(cables);
    }

    /// Puts a run on the cable.
    fn send(&mut self, to: usize, bth: Bth, payload: &[u8]) -> bool {
        let Some(cables) = &mut self.cables else {
            return false;
        };
        let run = Packet {
            slid: Lid::new(1),
            dlid: Lid::new(2),
            sl: 0,
            pkey: 0xffff,
            dest_qp: 2,
            grh: None,
            len: bth.bytes.min(self.mtu),
            management: false,
            transport: Transport::Rc(bth),
        };
        for (single, from) in Singles::new(&run) {
            let Transport::Rc(bth) = single.transport else {
                unreachable!();
            };
            self.packets += u64::from(bth.packets);
            let Fate::Arrives {
                first,
                again,
                intact: true,
            } = cables[to].send(self.now, &single).fate
            else {
                continue;
            };
            let payload = &payload[from as usize..][..bth.bytes as usize];
            for arrival in [Some(first), again].into_iter().flatten() {
                let at = (arrival.at, arrival.serial * 2 + to as u64);
                self.wire.insert(at, (to, bth, payload.to_vec()));
            }
        }
        true
    }

    /// Puts a run on the wire, whole or packet by packet.
    fn launch(&mut self, to: usize, bth: Bth, payload: Vec<u8>) {
        if self.send(to, bth, &payload) {
            return;
        }
        let (mut bth, mut payload) = (bth, payload);
        while bth.packets > 1 && self.faults_exist() {
            let n = 1 + self.dice.roll(u64::from(bth.packets) - 1) as u32;
            let Some((front, back)) = bth.split(n, self.mtu) else {
                break;
            };
            let rest = payload.split_off(front.bytes as usize);
            self.fly(to, front, payload);
            (bth, payload) = (back, rest);
        }
        self.fly(to, bth, payload);
    }

    fn faults_exist(&self) -> bool {
        self.faults.lost + self.faults.twice + self.faults.late > 0
    }

    fn fly(&mut self, to: usize, bth: Bth, payload: Vec<u8>) {
        self.packets += u64::from(bth.packets);
        let copies = match &bth.op {
            // No packet: it cannot get lost.
            Op::Resume => 1,
            _ if self.dice.chance(self.faults.lost) => 0,
            _ if self.dice.chance(self.faults.twice) => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let late = if self.dice.chance(self.faults.late) {
                self.dice.roll(100_000)
            } else {
                0
            };
            self.serial += 1;
            let at = (self.now + 1000 + late, self.serial);
            self.wire.insert(at, (to, bth, payload.clone()));
        }
    }

    /// Sends all that can be sent.
    fn pump(&mut self, me: usize) {
        while let Some(response) = self.sides[me].responder.respond() {
            let inbox = &self.sides[me].inbox;
            let payload = match response.source {
                None => Vec::new(),
                Some((key, address)) => match inbox.range(key, address, response.bth.bytes) {
                    Some(range) => inbox.memory[range].to_vec(),
                    None => {
                        self.sides[me].responder.fail_read(response.bth.psn);
                        continue;
                    }
                },
            };
            assert_eq!(payload.len(), response.bth.bytes as usize);
            self.launch(1 - me, response.bth, payload);
        }
        while self.sides[me].failure.is_none() {
            let side = &mut self.sides[me];
            match side.requester.next(self.now, side.drains, &side.queue) {
                Next::Idle => break,
                Next::Local(_) => {
                    let n = side.requester.settle(&side.queue);
                    self.finish(me, n);
                }
                Next::Run { index, offset, bth } => {
                    let from = offset as usize;
                    let data = &side.queue.0[index].data;
                    let payload = data[from..from + bth.bytes as usize].to_vec();
                    self.launch(1 - me, bth, payload);
                }
            }
        }
    }

    fn finish(&mut self, me: usize, n: usize) {
        let side = &mut self.sides[me];
        side.done.extend(side.queue.0.drain(..n));
    }

    fn conclude(&mut self, me: usize, outcome: Outcome, payload: &[u8]) {
        self.finish(me, outcome.done);
        if let Some(data) = outcome.data {
            let (from, at, n) = (
                data.from as usize,
                data.offset as usize,
                data.bytes as usize,
            );
            let place = &mut self.sides[me].queue.0[0].data[at..at + n];
            place.copy_from_slice(&payload[from..from + n]);
        }
        self.finish(me, outcome.done_then);
        if outcome.failure.is_some() {
            self.sides[me].failure = outcome.failure;
        }
    }

    /// Takes the runs that a side can send now, with their payload, from the wire.
    pub(crate) fn all_runs(&mut self, side: usize) -> Vec<(Bth, Vec<u8>)> {
        self.pump(side);
        let runs = std::mem::take(&mut self.wire).into_values();
        runs.map(|(_, bth, payload)| (bth, payload)).collect()
    }

    /// Lets a packet come to a side.
    pub(crate) fn arrive(&mut self, me: usize, bth: &Bth, mut payload: Vec<u8>) {
        let now = self.now;
        let side = &mut self.sides[me];
        if bth.is_request() {
            payload.resize(bth.bytes as usize, 0);
            side.inbox.payload = payload;
            if self.cables.is_some() {
                // As in the driver: its sender has gone on.
                side.responder.set_holds(false);
            }
            match side.responder.request(now, bth, &mut side.inbox) {
                Taken::Done | Taken::CutOff => {}
                Taken::Held => {
                    let sender = &mut self.sides[1 - me];
                    sender.requester.hold(now, &sender.queue);
                }
                Taken::Failed(fault) => side.fault = Some(fault),
            }
        } else if side.failure.is_none() {
            let outcome = side.requester.answer(now, bth, &side.queue);
            if let Op::AtomicResponse(old) = bth.op {
                payload = old.to_ne_bytes().to_vec();
            }
            self.conclude(me, outcome, &payload);
        }
    }

    /// Does what comes next; false if nothing does.
    pub(crate) fn step(&mut self) -> bool {
        self.pump(0);
        self.pump(1);
        let deadlines = (0..2).flat_map(|me| {
            let side = &self.sides[me];
            let alive = side.failure.is_none();
            let requester = side.requester.deadline().filter(|_| alive);
            [
                (requester, me, true),
                (side.responder.deadline(), me, false),
            ]
        });
        let due = deadlines
            .filter_map(|(time, me, of_requester)| Some((time?, me, of_requester)))
            .min();
        let flight = self.wire.keys().next().copied();
        match (flight, due) {
            (Some(at), due) if due.is_none_or(|(time, ..)| at.0 <= time) => {
                self.now = self.now.max(at.0);
                let (to, bth, payload) = self.wire.remove(&at).unwrap();
                self.arrive(to, &bth, payload);
            }
            (_, Some((time, me, of_requester))) => {
                self.now = self.now.max(time);
                let side = &mut self.sides[me];
                if of_requester {
                    let outcome = side.requester.expire(self.now, &side.queue);
                    self.conclude(me, outcome, &[]);
                } else {
                    side.responder.expire(self.now);
                }
            }
            _ => return false,
        }
        true
    }

    /// Runs until nothing happens any more.
    pub(crate) fn run(&mut self) {
        for _ in 0..200_000 {
            if !self.step() {
                return;
            }
        }
        panic!("no end");
    }
}
