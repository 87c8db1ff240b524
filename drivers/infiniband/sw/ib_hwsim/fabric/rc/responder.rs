// SPDX-License-Identifier: GPL-2.0

//! The responder: the receiving half of a reliable connection (sections 9.7.4 and 9.7.5).

use super::header::{Access, Aeth, AtomicOp, Bth, Nak, Op, Part, Reth, Syndrome, Tail};
use super::reception::{Fault, Purpose, Put, Received, Receiver, ResponderSetup, Response, Taken};
use super::requester::RUN;
use super::saved::{Answer, Saved};
use super::tally::ResponderTally;
use super::{packets, rnr_timer, Psn, MAX_MESSAGE};
use crate::tally::add;

/// A message of which a part has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    None,
    Send { done: u32 },
    Write { to: Reth, done: u32 },
}

/// The packets of a run that have not come before.
struct Run {
    now: u64,
    psn: Psn,
    packets: u32,
    /// Offset of the packets in the payload of the run.
    from: u32,
    /// Bytes of their payload.
    bytes: u32,
    solicited: bool,
}

impl Run {
    /// The message that has come to its end with them.
    fn received(&self, bytes: u32, tail: Tail, is_write: bool) -> Received {
        Received {
            bytes,
            tail,
            is_write,
            solicited: self.solicited,
        }
    }
}

/// The responder of a queue pair.
#[derive(Clone, Debug)]
pub struct Responder {
    mtu: u32,
    rnr_timer: u8,
    access: Access,
    holds: bool,
    /// The next PSN.
    expected: Psn,
    /// Messages that are complete.
    msn: u32,
    message: Message,
    saved: Saved,
    /// An acknowledgement is owed of all that came.
    ack: bool,
    nak: Option<(Psn, Syndrome)>,
    /// The next PSN was asked for, so that what follows it is no news.
    asked: bool,
    /// The sender is owed an [`Op::Resume`].
    resume: bool,
    /// The sender would like to have one.
    starved: bool,
    /// Time until which a packet may wait for a receive request.
    held: Option<u64>,
    failed: bool,
    tally: ResponderTally,
}

impl Responder {
    /// Makes one that has received nothing.
    pub fn new(setup: &ResponderSetup) -> Responder {
        Responder {
            mtu: setup.mtu.bytes(),
            rnr_timer: setup.rnr_timer,
            access: setup.access,
            holds: false,
            expected: setup.psn,
            msn: 0,
            message: Message::None,
            saved: Saved::new(setup.resources),
            ack: false,
            nak: None,
            asked: false,
            resume: false,
            starved: false,
            held: None,
            failed: false,
            tally: ResponderTally::default(),
        }
    }

    /// Returns what has gone wrong so far.
    pub fn tally(&self) -> &ResponderTally {
        &self.tally
    }

    /// Returns true if a message has begun that has not come to its end, and that uses a receive request.
    pub fn is_receiving(&self) -> bool {
        matches!(self.message, Message::Send { .. })
    }

    /// Changes the attributes that may be changed while it receives.
    pub fn change(&mut self, access: Access, rnr_timer: u8) {
        self.access = access;
        self.rnr_timer = rnr_timer;
    }

    /// Sets whether a packet of the next request that finds no receive request may wait in the link for as long as the
    /// RNR timer, before an RNR NAK is sent. The sender has to learn of that at once, by [`Taken::Held`], and gets an
    /// [`Op::Resume`] later.
    pub fn set_holds(&mut self, holds: bool) {
        self.holds = holds;
    }

    /// Takes a request.
    pub fn request(&mut self, now: u64, bth: &Bth, receiver: &mut impl Receiver) -> Taken {
        if self.failed || !bth.is_request() || bth.packets == 0 {
            return Taken::Done;
        }
        let ahead = bth.psn.since(self.expected);
        if ahead > 0 {
            add(&mut self.tally.early, bth.packets);
            if !self.asked {
                self.refuse(Syndrome::Nak(Nak::Sequence));
            }
            return Taken::Done;
        }
        let old = ahead.unsigned_abs();
        add(&mut self.tally.duplicates, old.min(bth.packets));
        let skip = match bth.op {
            _ if old == 0 => 0,
            Op::Read(from) => {
                self.saved.again(bth.psn, &from, self.mtu);
                return Taken::Done;
            }
            Op::Atomic { .. } => {
                self.saved.atomic_again(bth.psn);
                return Taken::Done;
            }
            _ if old >= bth.packets => {
                self.ack = true;
                return Taken::Done;
            }
            _ => old,
        };
        let taken = self.execute(now, bth, skip, receiver);
        match taken {
            Ok(taken) => taken,
            Err(fault) => {
                self.fail(fault);
                Taken::Failed(fault)
            }
        }
    }

    /// Carries out a request from its packet `skip` on, which is the next one.
    fn execute(
        &mut self,
        now: u64,
        bth: &Bth,
        skip: u32,
        receiver: &mut impl Receiver,
    ) -> Result<Taken, Fault> {
        let from = skip.saturating_mul(self.mtu);
        let run = Run {
            now,
            psn: bth.psn,
            packets: bth.packets.saturating_sub(skip),
            from,
            bytes: bth.bytes.checked_sub(from).ok_or(Fault::Invalid)?,
            solicited: bth.solicited,
        };
        let rest = |part: Part| Part {
            first: part.first && skip == 0,
            ..part
        };
        let taken = match bth.op {
            Op::Send { part, tail } => self.send(&run, rest(part), tail, receiver)?,
            Op::Write { part, to, tail } => self.write(&run, rest(part), to, tail, receiver)?,
            Op::Read(from) => return self.read(&run, from, receiver),
            Op::Atomic { address, key, op } => {
                return self.atomic(&run, (address, key), op, receiver);
            }
            _ => return Ok(Taken::Done),
        };
        // A NAK of it is an answer, too.
        if taken == Taken::Done && bth.ack_request && self.nak.is_none() {
            self.ack = true;
        }
        Ok(taken)
    }

    /// Takes a part of a SEND.
    fn send(
        &mut self,
        run: &Run,
        part: Part,
        tail: Tail,
        receiver: &mut impl Receiver,
    ) -> Result<Taken, Fault> {
        self.check_shape(run, part)?;
        let done = match (part.first, self.message) {
            (true, Message::None) => 0,
            (false, Message::Send { done }) => done,
            _ => return Err(Fault::Invalid),
        };
        if part.first && !receiver.claim() {
            return Ok(self.not_ready(run.now));
        }
        if receiver.put(done, run.from, run.bytes)? == Put::CutOff {
            return Ok(Taken::CutOff);
        }
        let done = done.checked_add(run.bytes).ok_or(Fault::Length)?;
        if part.last {
            if let Tail::Invalidate(key) = tail {
                receiver.invalidate(key)?;
            }
            receiver.complete(&run.received(done, tail, false));
        }
        self.arrived(run.packets, part.last, Message::Send { done });
        Ok(Taken::Done)
    }

    /// Takes a part of an RDMA WRITE.
    fn write(
        &mut self,
        run: &Run,
        part: Part,
        to: Option<Reth>,
        tail: Tail,
        receiver: &mut impl Receiver,
    ) -> Result<Taken, Fault> {
        self.check_shape(run, part)?;
        let (to, done) = match (part.first, self.message, to) {
            (true, Message::None, Some(to)) => (to, 0),
            (false, Message::Write { to, done }, _) => (to, done),
            _ => return Err(Fault::Invalid),
        };
        self.check_write(&to, part, done, run.bytes, receiver)?;
        let uses_receive = matches!(tail, Tail::Immediate(_));
        if uses_receive && !part.last || matches!(tail, Tail::Invalidate(_)) {
            return Err(Fault::Invalid);
        }
        if uses_receive && !receiver.claim() {
            return Ok(self.not_ready(run.now));
        }
        if run.bytes > 0 {
            let address = to.address.wrapping_add(done.into());
            if receiver.write(to.key, address, run.from, run.bytes)? == Put::CutOff {
                return Ok(Taken::CutOff);
            }
        }
        let done = done.saturating_add(run.bytes);
        if uses_receive {
            receiver.complete(&run.received(done, tail, true));
        }
        self.arrived(run.packets, part.last, Message::Write { to, done });
        Ok(Taken::Done)
    }

    /// Takes an RDMA READ request.
    fn read(
        &mut self,
        run: &Run,
        from: Reth,
        receiver: &mut impl Receiver,
    ) -> Result<Taken, Fault> {
        let begins = self.message == Message::None && run.packets == 1;
        let fits = from.len <= MAX_MESSAGE && self.saved.has_room();
        if !self.access.read || !begins || !fits {
            return Err(Fault::Invalid);
        }
        let empty = from.len == 0;
        if !empty && !receiver.allows(from.key, from.address, from.len, Purpose::Read) {
            return Err(Fault::Access);
        }
        let n = packets(from.len, self.mtu);
        self.arrived(n, true, Message::None);
        self.save(run.psn, n, Answer::Read(from))
    }

    /// Carries out an atomic operation on the memory at an address with a key.
    fn atomic(
        &mut self,
        run: &Run,
        (address, key): (u64, u32),
        op: AtomicOp,
        receiver: &mut impl Receiver,
    ) -> Result<Taken, Fault> {
        let begins = self.message == Message::None && run.packets == 1;
        let aligned = address & 7 == 0;
        if !self.access.atomic || !begins || !aligned || !self.saved.has_room() {
            return Err(Fault::Invalid);
        }
        if !receiver.allows(key, address, 8, Purpose::Atomic) {
            return Err(Fault::Access);
        }
        let answer = Answer::Atomic(receiver.atomic(key, address, op)?);
        self.arrived(1, true, Message::None);
        self.save(run.psn, 1, answer)
    }

    /// Checks that the parts of a message are as long as they have to be (section 9.7.4.1.6).
    fn check_shape(&self, run: &Run, part: Part) -> Result<(), Fault> {
        let (n, bytes) = (run.packets, run.bytes);
        let full = n.checked_mul(self.mtu).ok_or(Fault::Invalid)?;
        let one_less = full.saturating_sub(self.mtu);
        let only = part == Part::ONLY && n == 1;
        let fits = if part.last {
            bytes <= full && (bytes > one_less || only)
        } else {
            bytes == full
        };
        fits.then_some(()).ok_or(Fault::Invalid)
    }

    /// Checks a part of an RDMA WRITE.
    fn check_write(
        &self,
        to: &Reth,
        part: Part,
        done: u32,
        bytes: u32,
        receiver: &mut impl Receiver,
    ) -> Result<(), Fault> {
        if !self.access.write || to.len > MAX_MESSAGE {
            return Err(Fault::Invalid);
        }
        let left = to.len.checked_sub(done).ok_or(Fault::Invalid)?;
        let fits = if part.last {
            bytes == left
        } else {
            bytes < left
        };
        if !fits {
            return Err(Fault::Invalid);
        }
        let all = !part.first
            || to.len == 0
            || receiver.allows(to.key, to.address, to.len, Purpose::Write);
        all.then_some(()).ok_or(Fault::Access)
    }

    /// `n` packets have arrived, and the message has come to its end with them or is now `message`.
    fn arrived(&mut self, n: u32, last: bool, message: Message) {
        self.expected = self.expected.plus(n);
        self.asked = false;
        self.nak = None;
        self.held = None;
        self.starved = false;
        if last {
            self.message = Message::None;
            self.msn = Psn::new(self.msn).plus(1).get();
        } else {
            self.message = message;
        }
    }

    fn save(&mut self, psn: Psn, n: u32, answer: Answer) -> Result<Taken, Fault> {
        let fits = self.saved.add(psn, n, answer);
        fits.then_some(Taken::Done).ok_or(Fault::Invalid)
    }

    /// There is no receive request for the packet that has come.
    fn not_ready(&mut self, now: u64) -> Taken {
        self.starved = self.holds;
        if self.holds {
            let wait = rnr_timer(self.rnr_timer);
            let until = *self.held.get_or_insert(now.saturating_add(wait));
            if now < until {
                // What follows will come again, too.
                self.asked = true;
                return Taken::Held;
            }
        }
        self.held = None;
        self.refuse(Syndrome::ReceiverNotReady(self.rnr_timer));
        Taken::Done
    }

    /// Owes a negative acknowledgement of the next packet.
    fn refuse(&mut self, syndrome: Syndrome) {
        self.nak = Some((self.expected, syndrome));
        self.asked = true;
    }

    fn fail(&mut self, fault: Fault) {
        let nak = match fault {
            Fault::Length | Fault::Invalid => Nak::InvalidRequest,
            Fault::Protection => Nak::RemoteOperation,
            Fault::Access => Nak::RemoteAccess,
        };
        self.refuse(Syndrome::Nak(nak));
        self.failed = true;
    }

    /// Fails a READ request whose memory can no longer be read.
    pub fn fail_read(&mut self, psn: Psn) {
        self.saved.forget_pending();
        self.fail(Fault::Access);
        self.nak = Some((psn, Syndrome::Nak(Nak::RemoteAccess)));
    }

    /// Owes no answer to a READ request or an atomic operation any more; it still owes an acknowledgement, of either
    /// kind.
    pub fn forget_answers(&mut self) {
        self.saved.forget_pending();
    }

    /// A receive request was posted. True: an answer is owed, since somebody waits for one.
    pub fn posted(&mut self) -> bool {
        let starved = core::mem::take(&mut self.starved);
        if starved {
            self.held = None;
            self.resume = true;
        }
        starved
    }

    /// Returns the time at which [`Responder::expire`] has to be called.
    pub fn deadline(&self) -> Option<u64> {
        self.held
    }

    /// Acts on a deadline that has passed.
    pub fn expire(&mut self, now: u64) {
        if self.held.is_some_and(|until| now >= until) {
            self.held = None;
            self.refuse(Syndrome::ReceiverNotReady(self.rnr_timer));
        }
    }

    /// Returns true if an answer is owed.
    pub fn owes(&self) -> bool {
        self.saved.is_pending() || self.ack || self.nak.is_some() || self.resume
    }

    /// Returns the next answer that is owed, and takes it for sent.
    pub fn respond(&mut self) -> Option<Response> {
        if let Some(response) = self.saved.respond(self.mtu, RUN) {
            return Some(response);
        }
        let acknowledge = |psn, syndrome| {
            let msn = self.msn;
            Response {
                bth: Bth::bare(psn, Op::Acknowledge(Aeth { syndrome, msn })),
                source: None,
            }
        };
        // A negative one acknowledges what was before.
        let ack = core::mem::take(&mut self.ack);
        if let Some((psn, syndrome)) = self.nak.take() {
            match syndrome {
                Syndrome::ReceiverNotReady(_) => add(&mut self.tally.rnr_naks, 1),
                Syndrome::Nak(Nak::Sequence) => add(&mut self.tally.sequence_naks, 1),
                Syndrome::Nak(_) | Syndrome::Ack => {}
            }
            return Some(acknowledge(psn, syndrome));
        }
        if ack {
            return Some(acknowledge(self.expected.before(), Syndrome::Ack));
        }
        core::mem::take(&mut self.resume).then_some(Response {
            bth: Bth::RESUME,
            source: None,
        })
    }
}
