// SPDX-License-Identifier: GPL-2.0

//! Traffic that checks itself: numbered datagrams from each host to each other one and to a multicast group, by IPv4, IPv6
//! and child interfaces, and transfers by TCP, all of whose bytes are known. One thread does it all.

mod datagrams;
mod pattern;
mod transfers;

use crate::host::{ip4, ip6, name};
use crate::program::inside;
use crate::world::{World, lock};
use anyhow::{Result, bail};
use datagrams::Datagrams;
use pattern::Pattern;
use sim::plan::{Host, Interface};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use transfers::Transfers;

/// Time between two looks at all sockets.
const TICK: Duration = Duration::from_millis(50);

/// The port of all traffic.
const PORT: u16 = 7;

/// An experimental protocol number (RFC 3692), that of noise.
const NOISE: i32 = 253;

/// All traffic.
struct State {
    datagrams: Datagrams,
    transfers: Transfers,
    /// The first error.
    wrong: Option<String>,
    stop: bool,
}

/// The thread of the traffic.
pub(crate) struct Traffic {
    state: Arc<Mutex<State>>,
    thread: JoinHandle<()>,
}

impl Traffic {
    /// Starts all traffic.
    pub(crate) fn start(world: &Arc<World>) -> Result<Traffic> {
        let state = Arc::new(Mutex::new(State {
            datagrams: Datagrams::new(world)?,
            transfers: Transfers::new(world)?,
            wrong: None,
            stop: false,
        }));
        let (shared, world) = (Arc::clone(&state), Arc::clone(world));
        let thread = thread::spawn(move || {
            loop {
                {
                    let mut state = lock(&shared);
                    if state.stop {
                        return;
                    }
                    state.tick(&world);
                }
                thread::sleep(TICK);
            }
        });
        Ok(Traffic { state, thread })
    }

    /// Waits until each host has got from each other one, in each way, something that was sent from now on.
    ///
    /// # Errors
    ///
    /// Some did not within `limit`, or something wrong has come.
    pub(crate) fn all_reached(&self, limit: Duration) -> Result<()> {
        lock(&self.state).mark();
        let deadline = Instant::now() + limit;
        loop {
            thread::sleep(TICK);
            let state = lock(&self.state);
            state.right()?;
            let missing = state.missing();
            if missing.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("not reached: {}", missing.join(", "));
            }
        }
    }

    /// Sends so many bytes by TCP, beside what is sent anyway.
    pub(crate) fn burst(&self, from: Host, bytes: u32) {
        lock(&self.state).transfers.more(from, bytes);
    }

    /// Ends all traffic, when what is under way had time to arrive.
    pub(crate) fn stop(&self) -> Result<()> {
        {
            let mut state = lock(&self.state);
            state.datagrams.pause();
            state.transfers.pause();
        }
        thread::sleep(Duration::from_millis(500));
        lock(&self.state).stop = true;
        while !self.thread.is_finished() {
            thread::sleep(TICK);
        }
        lock(&self.state).right()
    }
}

impl State {
    /// Receives and sends what there is to receive and to send.
    fn tick(&mut self, world: &World) {
        let result = self.datagrams.tick().and_then(|()| self.transfers.tick());
        if let (Err(e), None) = (result, &self.wrong) {
            world.log(&format!("traffic: {e:#}"));
            self.wrong = Some(format!("{e:#}"));
        }
    }

    /// Fails if something wrong has come.
    fn right(&self) -> Result<()> {
        match &self.wrong {
            Some(wrong) => bail!("{wrong}"),
            None => Ok(()),
        }
    }

    /// Counts what is sent from now on.
    fn mark(&mut self) {
        self.datagrams.mark();
        self.transfers.mark();
    }

    /// The ways in which a host has not been reached.
    fn missing(&self) -> Vec<String> {
        let mut missing = self.datagrams.missing();
        missing.extend(self.transfers.missing());
        missing
    }
}

/// Sends frames of random length and content, with IP headers that are right: to a host, or to all.
pub(crate) fn noise(
    world: &World,
    host: Host,
    interface: Interface,
    to: Option<Host>,
    frames: u32,
) -> Result<()> {
    let to = match to {
        Some(to) => ip4(to, interface),
        None => {
            let [a, b, c, _] = ip4(host, interface).octets();
            Ipv4Addr::new(a, b, c, 255)
        }
    };
    inside(host, || {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(NOISE)))?;
        socket.set_broadcast(true)?;
        socket.bind_device(Some(name(interface).as_bytes()))?;
        socket.set_nonblocking(true)?;
        let to = SockAddr::from(SocketAddr::from((to, 0)));
        for frame in 0..frames {
            let pattern = Pattern::of(
                world.setting.seed,
                (u64::from(host) << 32) | u64::from(frame),
            );
            let length = pattern.length(9000);
            // A queue that is full, or no route: noise need not arrive.
            let _ = socket.send_to(&pattern.bytes(length), &to);
        }
        Ok(())
    })
}

/// The address of a host's interface with the port of all traffic.
fn address(host: Host, interface: Interface, v6: bool) -> SocketAddr {
    if v6 {
        (ip6(host, interface), PORT).into()
    } else {
        (ip4(host, interface), PORT).into()
    }
}
