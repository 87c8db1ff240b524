// SPDX-License-Identifier: GPL-2.0

//! Two ends of a connection and a network that loses, delays and reorders what they and their communication
//! managers say to each other, and others who ask in their names.
//!
//! Whatever happens, each connection that was made is destroyed once or is in use; and when the network
//! is good again and both ends have something to send, both have a connection, and it is the same one. Nothing is
//! ever sent by a connection that another one than the other end has asked for.

use ipoib_proto::connection::{self, Connection, Proven, CONNECT_MS};
use ipoib_proto::gid::Gid;
use ipoib_proto::hwaddr::{Flags, HwAddr, Qpn};
use ipoib_proto::ticket::Ticket;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// A connection of an end: who made it, and a number.
type Id = (usize, u32);

#[derive(Clone, Copy, Debug)]
enum Message {
    Req {
        from: Id,
    },
    Rep {
        from: Id,
        to: Id,
    },
    Rtu {
        to: Id,
    },
    Rej {
        to: Id,
        crossing: bool,
    },
    Dreq {
        to: Id,
    },
    /// A frame by the connection.
    Data {
        to: Id,
    },
    /// A datagram to the other end, who is said to have asked by `to`.
    Challenge {
        nonce: Id,
        to: Id,
    },
    /// The answer to a challenge, by the connection.
    Answer {
        nonce: Id,
        to: Id,
    },
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// An end has something to send.
    Want(usize),
    /// A message arrives, of those on the way.
    Deliver(usize),
    /// A message is lost.
    Lose(usize),
    /// Time passes, in milliseconds.
    Tick(u64),
    /// An end loses its connection: an error, or too many.
    Evict(usize),
    /// An end forgets everything, as by a restart.
    Restart(usize),
    /// Somebody else asks an end, in the other one's name.
    Forge(usize),
    /// A user of the other end's host does, who sees the answer.
    Hijack(usize),
}

struct End {
    machine: Connection<Id>,
    /// The other end's connection of each of ours, where it is known.
    partners: BTreeMap<Id, Id>,
    tickets: BTreeMap<Id, Ticket>,
}

struct World {
    ends: [End; 2],
    wire: Vec<Message>,
    alive: BTreeSet<Id>,
    /// Connections that their ends have asked for.
    asked: BTreeSet<Id>,
    /// Those of users of an end's host.
    hijackers: BTreeSet<Id>,
    made: u32,
    now: u64,
}

fn address(end: usize) -> HwAddr {
    let mut gid = [0xfe; 16];
    gid[15] = end as u8;
    HwAddr::new(Flags::NONE, Qpn::unicast(0x11).expect("a QPN"), Gid(gid))
}

fn machine(end: usize, now: u64) -> Connection<Id> {
    Connection::new(&address(end), &address(1 - end), 60_000, now)
}

impl World {
    fn new() -> Self {
        World {
            ends: [0, 1].map(|end| End {
                machine: machine(end, 0),
                partners: BTreeMap::new(),
                tickets: BTreeMap::new(),
            }),
            wire: Vec::new(),
            alive: BTreeSet::new(),
            asked: BTreeSet::new(),
            hijackers: BTreeSet::new(),
            made: 0,
            now: 0,
        }
    }

    fn make(&mut self, end: usize) -> Id {
        self.made += 1;
        let id = (end, self.made);
        self.alive.insert(id);
        id
    }

    /// An end destroys a connection, and its communication manager tells the other one.
    fn destroy(&mut self, id: Option<Id>) {
        let Some(id) = id else { return };
        assert!(self.alive.remove(&id), "{id:?} is destroyed twice");
        let end = &mut self.ends[id.0];
        end.tickets.remove(&id);
        if let Some(to) = end.partners.remove(&id) {
            self.wire.push(Message::Dreq { to });
        }
    }

    fn want(&mut self, end: usize) {
        let now = self.now;
        if let Some(&mut id) = self.ends[end].machine.transmit(now) {
            if let Some(&to) = self.ends[end].partners.get(&id) {
                self.wire.push(Message::Data { to });
            }
            return;
        }
        let Some(ticket) = self.ends[end].machine.want(now) else {
            return;
        };
        let id = self.make(end);
        self.asked.insert(id);
        self.ends[end].tickets.insert(id, ticket);
        let unwanted = self.ends[end].machine.requested(ticket, id, now);
        self.destroy(unwanted);
        self.wire.push(Message::Req { from: id });
    }

    fn deliver(&mut self, message: Message) {
        self.handle(message);
        self.challenge();
    }

    fn handle(&mut self, message: Message) {
        let now = self.now;
        match message {
            Message::Req { from } => {
                let end = 1 - from.0;
                if !self.ends[end].machine.may_accept(now) {
                    self.wire.push(Message::Rej {
                        to: from,
                        crossing: true,
                    });
                    return;
                }
                let id = self.make(end);
                self.ends[end].partners.insert(id, from);
                let (ticket, before) = match self.ends[end].machine.accept(id, now) {
                    Ok(accepted) => accepted,
                    Err(_) => unreachable!("asked just now"),
                };
                self.ends[end].tickets.insert(id, ticket);
                self.destroy(before);
                self.wire.push(Message::Rep { from: id, to: from });
            }
            Message::Rep { from, to } if self.hijackers.contains(&to) => {
                self.wire
                    .extend([Message::Rtu { to: from }, Message::Data { to: from }]);
            }
            Message::Rep { from, to } => {
                let end = &mut self.ends[to.0];
                let ticket = end.tickets.get(&to).copied();
                if ticket.is_some_and(|ticket| end.machine.accepted(ticket, now)) {
                    end.partners.insert(to, from);
                    self.wire.push(Message::Rtu { to: from });
                } else if self.ends[to.0].partners.get(&to) != Some(&from) {
                    self.wire.push(Message::Rej {
                        to: from,
                        crossing: false,
                    });
                }
            }
            Message::Rtu { to } | Message::Data { to } => {
                let end = &mut self.ends[to.0];
                if let Some(&ticket) = end.tickets.get(&to) {
                    end.machine.confirmed(ticket, now);
                }
            }
            Message::Challenge { nonce, to } => {
                let end = &mut self.ends[to.0];
                let is_up = end.machine.is_up() && end.machine.present() == Some(&to);
                if let Some(&by) = end.partners.get(&to) {
                    if is_up && self.asked.contains(&to) {
                        self.wire.push(Message::Answer { nonce, to: by });
                    }
                }
            }
            Message::Answer { nonce, to } => {
                let end = &mut self.ends[to.0];
                if let (Some(&ticket), true) = (end.tickets.get(&to), nonce == to) {
                    match end.machine.proven(ticket, now) {
                        Proven::Up(before) => self.destroy(before),
                        Proven::Crossed(this) => self.destroy(Some(this)),
                        Proven::Nothing => {}
                    }
                }
            }
            Message::Rej { to, crossing } => {
                let end = &mut self.ends[to.0];
                if let Some(&ticket) = end.tickets.get(&to) {
                    let ended = if crossing {
                        end.machine.ended(ticket, connection::End::Yielded, now)
                    } else {
                        end.machine.failed(ticket, now)
                    };
                    self.ends[to.0].partners.remove(&to);
                    self.destroy(ended);
                }
            }
            Message::Dreq { to } => {
                self.ends[to.0].partners.remove(&to);
                if let Some(&ticket) = self.ends[to.0].tickets.get(&to) {
                    let ended = self.ends[to.0].machine.failed(ticket, now);
                    self.destroy(ended);
                }
            }
        }
    }

    /// The answer goes to who is said to have asked, who knows nothing of it.
    fn forge(&mut self, end: usize) {
        self.made += 1;
        let from = (1 - end, self.made);
        self.wire.push(Message::Req { from });
    }

    /// The answer goes to who has asked.
    fn hijack(&mut self, end: usize) {
        self.forge(end);
        self.hijackers.insert((1 - end, self.made));
    }

    /// Sends the challenges that are due.
    fn challenge(&mut self) {
        for end in &mut self.ends {
            let nonce = end.machine.challenge(self.now).copied();
            if let Some((nonce, &to)) = nonce.and_then(|id| Some((id, end.partners.get(&id)?))) {
                self.wire.push(Message::Challenge { nonce, to });
            }
        }
    }

    fn tick(&mut self, milliseconds: u64) {
        self.now += milliseconds;
        for end in 0..2 {
            while let Some(ended) = self.ends[end].machine.poll(self.now) {
                self.destroy(Some(ended));
            }
        }
        self.challenge();
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Want(end) => self.want(end),
            Event::Deliver(n) => {
                if !self.wire.is_empty() {
                    let message = self.wire.remove(n % self.wire.len());
                    self.deliver(message);
                }
            }
            Event::Lose(n) => {
                if !self.wire.is_empty() {
                    self.wire.remove(n % self.wire.len());
                }
            }
            Event::Tick(milliseconds) => self.tick(milliseconds),
            Event::Evict(end) => {
                while let Some(ended) = self.ends[end].machine.evict() {
                    self.destroy(Some(ended));
                }
            }
            Event::Restart(end) => {
                // Nothing is said: the host is gone.
                self.ends[end].partners.clear();
                self.ends[end].tickets.clear();
                self.alive.retain(|id| id.0 != end);
                self.ends[end].machine = machine(end, self.now);
            }
            Event::Forge(end) => self.forge(end),
            Event::Hijack(end) => self.hijack(end),
        }
        self.check();
    }

    fn check(&self) {
        for end in &self.ends {
            // At most one at a time, and one that may take its place; no other is known.
            let of_this = end.tickets.len();
            assert!(of_this <= 2, "{of_this} connections to one peer");
            let known = end.machine.all().map(|(ticket, id)| (*id, ticket));
            assert!(known.collect::<BTreeMap<_, _>>() == end.tickets);
            if let (true, Some(id)) = (end.machine.is_up(), end.machine.present()) {
                let partner = end.partners.get(id);
                assert!(!partner.is_some_and(|id| self.hijackers.contains(id)));
            }
        }
    }

    /// The connection that an end sends by, and its partner.
    fn up(&mut self, end: usize) -> Option<(Id, Option<Id>)> {
        let now = self.now;
        let id = *self.ends[end].machine.transmit(now)?;
        Some((id, self.ends[end].partners.get(&id).copied()))
    }

    /// From now on the network is good.
    fn calm_down(&mut self) {
        for _ in 0..400 {
            for end in 0..2 {
                self.want(end);
            }
            while !self.wire.is_empty() {
                let message = self.wire.remove(0);
                self.deliver(message);
            }
            if let (Some((a, Some(b))), Some((c, Some(d)))) = (self.up(0), self.up(1)) {
                if (a, b) == (d, c) {
                    return;
                }
                // One end does not know that its partner is gone: its frames are not acknowledged.
                for (id, partner) in [(a, b), (c, d)] {
                    if !self.alive.contains(&partner) {
                        let ticket = self.ends[id.0].tickets[&id];
                        let ended = self.ends[id.0].machine.failed(ticket, self.now);
                        self.ends[id.0].partners.remove(&id);
                        self.destroy(ended);
                    }
                }
            }
            self.tick(500);
        }
        panic!(
            "no connection: {} and {}",
            self.ends[0].machine.state(),
            self.ends[1].machine.state()
        );
    }
}

fn event() -> impl Strategy<Value = Event> {
    let end = 0usize..2;
    prop_oneof![
        4 => end.clone().prop_map(Event::Want),
        8 => any::<usize>().prop_map(Event::Deliver),
        2 => any::<usize>().prop_map(Event::Lose),
        2 => (1u64..3_000).prop_map(Event::Tick),
        1 => end.clone().prop_map(Event::Evict),
        1 => end.clone().prop_map(Event::Restart),
        1 => end.clone().prop_map(Event::Forge),
        1 => end.prop_map(Event::Hijack),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    #[test]
    fn both_ends_come_together(events in proptest::collection::vec(event(), 0..60)) {
        let mut world = World::new();
        for event in events {
            world.apply(event);
        }
        world.calm_down();
        // What was offered, and is not in use, goes after a while.
        world.tick(CONNECT_MS);
        world.calm_down();
        // What is not in use was destroyed.
        prop_assert_eq!(world.alive.len(), 2);
    }
}

/// Requests that cross become one connection at once, whichever arrives first.
#[test]
fn crossing_requests_are_one_connection() {
    for first in 0..2 {
        let mut world = World::new();
        world.want(0);
        world.want(1);
        let message = world.wire.remove(first);
        world.deliver(message);
        while !world.wire.is_empty() {
            let message = world.wire.remove(0);
            world.deliver(message);
        }
        let (a, b) = (world.up(0), world.up(1));
        assert!(
            matches!((a, b), (Some((a, Some(b))), Some((c, Some(d)))) if (a, b) == (d, c)),
            "{a:?}, {b:?}"
        );
        assert_eq!(world.alive.len(), 2);
    }
}

/// Somebody asks both ends all the time in the name of the other, and what they answer is lost, or confirmed by who
/// has asked: they come together, whoever has something to send, and stay so.
#[test]
fn forged_requests_do_not_keep_ends_apart() {
    for (busy, ask) in [&[0][..], &[1], &[0, 1]].into_iter().flat_map(|busy| {
        [
            (busy, World::forge as fn(&mut World, usize)),
            (busy, World::hijack),
        ]
    }) {
        let mut world = World::new();
        let (mut attempts, mut together) = (0, 0);
        while together < 1_000 {
            let made = world.made;
            for end in 0..2 {
                ask(&mut world, end);
            }
            for &end in busy {
                world.want(end);
            }
            while !world.wire.is_empty() {
                let message = world.wire.remove(0);
                let is_stray = matches!(message, Message::Rep { to, .. }
                    if !world.alive.contains(&to) && !world.hijackers.contains(&to));
                if !is_stray {
                    world.deliver(message);
                }
                world.check();
            }
            assert!(world.made - made <= 8, "queue pairs without end");
            let (a, b) = (world.up(0), world.up(1));
            if matches!((a, b), (Some((a, Some(b))), Some((c, Some(d)))) if (a, b) == (d, c)) {
                together += 1;
            } else {
                assert_eq!(together, 0, "apart again");
                attempts += 1;
                assert!(attempts < 100, "{busy:?}: {a:?}, {b:?}");
            }
            world.tick(100);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    /// Both ask, and what they say arrives in any order: they come together without losing a connection
    /// that was up.
    #[test]
    fn crossing_requests_end_nothing(order in proptest::collection::vec(any::<usize>(), 0..40)) {
        let mut world = World::new();
        let mut asks = vec![0, 1];
        let mut was_up = [None; 2];
        for n in order {
            if n % (asks.len() + world.wire.len()).max(1) < asks.len() {
                let end = asks.remove(n % asks.len());
                world.want(end);
            } else {
                world.apply(Event::Deliver(n));
            }
            for end in 0..2 {
                let up = world.up(end).map(|(id, _)| id);
                prop_assert!(was_up[end].is_none() || up == was_up[end], "{:?} is gone", was_up);
                was_up[end] = up;
            }
        }
        world.calm_down();
        world.tick(CONNECT_MS);
        world.calm_down();
        prop_assert_eq!(world.alive.len(), 2);
    }
}
