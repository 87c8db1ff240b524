// SPDX-License-Identifier: GPL-2.0

//! Two ends of connections, each of which asks for one to send by, and a network that loses, delays and reorders what their
//! communication managers say to each other.
//!
//! Whatever happens, each connection that was made is destroyed once or is in use; and when the network is good again and
//! both ends have something to send, each has a connection that the other one receives by. Nothing is ever sent by a
//! connection that somebody else has asked for.

use ipoib_proto::connection::Connection;
use ipoib_proto::inbound::Inbound;
use ipoib_proto::ticket::Ticket;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// A connection at one end: the end, and a number.
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
    /// A frame by the connection.
    Data {
        to: Id,
    },
    Rej {
        to: Id,
    },
    Dreq {
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
    /// An end loses the connection that it sends by: an error, or too many.
    Evict(usize),
    /// An end forgets everything, as by a restart.
    Restart(usize),
    /// Somebody else asks an end, in the other one's name.
    Forge(usize),
}

#[derive(Default)]
struct End {
    machine: Option<Connection<Id>>,
    /// Connections that the other end has asked for, or somebody in its name, and how many frames have come by each.
    inbound: BTreeMap<Id, (Inbound, u64)>,
    /// The other end's connection of each of ours, where it is known.
    partners: BTreeMap<Id, Id>,
    tickets: BTreeMap<Id, Ticket>,
}

impl End {
    fn machine(&mut self) -> &mut Connection<Id> {
        self.machine.get_or_insert(Connection::new(60_000, 0))
    }
}

#[derive(Default)]
struct World {
    ends: [End; 2],
    wire: Vec<Message>,
    alive: BTreeSet<Id>,
    made: u32,
    now: u64,
}

impl World {
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
        end.inbound.remove(&id);
        if let Some(to) = end.partners.remove(&id) {
            self.wire.push(Message::Dreq { to });
        }
    }

    fn want(&mut self, end: usize) {
        let now = self.now;
        let this = &mut self.ends[end];
        if let Some(id) = this.machine().transmit(now).copied() {
            let to = this.partners[&id];
            self.wire.push(Message::Data { to });
            return;
        }
        let Some(ticket) = this.machine().want(now) else {
            return;
        };
        let id = self.make(end);
        self.ends[end].tickets.insert(id, ticket);
        let unwanted = self.ends[end].machine().requested(ticket, id, now);
        self.destroy(unwanted);
        self.wire.push(Message::Req { from: id });
    }

    /// The connection of an end that sends has failed, or the peer has ended it.
    fn failed(&mut self, id: Id) {
        let now = self.now;
        let end = &mut self.ends[id.0];
        end.partners.remove(&id);
        let ended = match end.tickets.get(&id).copied() {
            Some(ticket) => end.machine().failed(ticket, now),
            None => end.inbound.remove(&id).map(|_| id),
        };
        self.destroy(ended);
    }

    fn deliver(&mut self, message: Message) {
        let now = self.now;
        match message {
            Message::Req { from } => {
                let id = self.make(1 - from.0);
                let end = &mut self.ends[id.0];
                end.partners.insert(id, from);
                end.inbound.insert(id, (Inbound::new(now), 0));
                self.wire.push(Message::Rep { from: id, to: from });
            }
            Message::Rep { from, to } => {
                let end = &mut self.ends[to.0];
                let ticket = end.tickets.get(&to).copied();
                if ticket.is_some_and(|ticket| end.machine().accepted(ticket, now)) {
                    end.partners.insert(to, from);
                    self.wire.push(Message::Rtu { to: from });
                } else if end.partners.get(&to) != Some(&from) {
                    self.wire.push(Message::Rej { to: from });
                }
            }
            Message::Rtu { to } => {
                let end = &mut self.ends[to.0];
                for (id, (inbound, frames)) in &mut end.inbound {
                    match *id == to {
                        true => inbound.confirm(),
                        false => inbound.supersede(*frames, now),
                    }
                }
            }
            Message::Data { to } => {
                if let Some((inbound, frames)) = self.ends[to.0].inbound.get_mut(&to) {
                    *frames += 1;
                    inbound.look(*frames, now);
                }
            }
            Message::Rej { to } | Message::Dreq { to } => self.failed(to),
        }
    }

    fn tick(&mut self, milliseconds: u64) {
        self.now += milliseconds;
        let now = self.now;
        for end in 0..2 {
            let ended = self.ends[end].machine().poll(now);
            self.destroy(ended);
            let inbound = self.ends[end].inbound.iter();
            let over = inbound.filter(|(_, (state, _))| now >= state.deadline());
            for id in over.map(|(id, _)| *id).collect::<Vec<_>>() {
                self.destroy(Some(id));
            }
        }
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
                let ended = self.ends[end].machine().evict();
                self.destroy(ended);
            }
            Event::Restart(end) => {
                // Nothing is said: the host is gone.
                self.ends[end] = End::default();
                self.alive.retain(|id| id.0 != end);
            }
            Event::Forge(end) => {
                self.made += 1;
                let from = (1 - end, self.made);
                self.wire.push(Message::Req { from });
            }
        }
        self.check();
    }

    fn check(&self) {
        for end in &self.ends {
            // At most one that frames go by, which this end has asked for; no other is known.
            let own = end.machine.as_ref().and_then(Connection::present);
            assert!(end.tickets.keys().eq(own));
            // It is one that the other end has made for this request, if that knows of it.
            let partner = own.and_then(|own| Some((own, end.partners.get(own)?)));
            if let Some((own, partner)) =
                partner.filter(|(_, partner)| self.alive.contains(partner))
            {
                assert_eq!(self.ends[partner.0].partners.get(partner), Some(own));
            }
        }
    }

    /// The connection that an end sends by, and its partner.
    fn up(&mut self, end: usize) -> Option<(Id, Id)> {
        let now = self.now;
        let id = *self.ends[end].machine().transmit(now)?;
        Some((id, self.ends[end].partners[&id]))
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
            let up = [self.up(0), self.up(1)];
            let lost = |(_, partner): &(Id, Id)| !self.alive.contains(partner);
            let lost: Vec<Id> = up
                .iter()
                .flatten()
                .filter(|up| lost(up))
                .map(|up| up.0)
                .collect();
            if lost.is_empty() && up.iter().all(Option::is_some) {
                return;
            }
            // An end does not know that its partner is gone: its frames are not acknowledged.
            for id in lost {
                self.failed(id);
            }
            self.tick(500);
        }
        let [a, b] = &mut self.ends;
        let (a, b) = (a.machine().state(), b.machine().state());
        panic!("no connection: {a} and {b}");
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
        1 => end.prop_map(Event::Forge),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    #[test]
    fn each_end_has_a_connection(events in proptest::collection::vec(event(), 0..60)) {
        let mut world = World::default();
        for event in events {
            world.apply(event);
        }
        world.calm_down();
        // Connections that are unconfirmed, or that no end sends by, end after a while.
        for _ in 0..70 {
            world.tick(10_000);
            world.calm_down();
        }
        let in_use = [0, 1].map(|end| world.up(end));
        for (id, partner) in in_use.into_iter().flatten() {
            prop_assert!(world.alive.remove(&id) && world.alive.remove(&partner));
        }
        prop_assert!(world.alive.is_empty(), "{:?} are left", world.alive);
    }
}
