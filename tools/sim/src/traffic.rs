// SPDX-License-Identifier: GPL-2.0

//! Traffic that checks itself: numbered datagrams from each host to each other one and to a multicast group, by IPv4, IPv6
//! and child interfaces, and transfers by TCP, all of whose bytes are known. One thread does it all.

mod datagrams;
mod pattern;
mod transfers;

use crate::host::{ip4, ip6, name};
use crate::program::{inside, namespace, run};
use crate::world::{World, lock};
use anyhow::{Context, Result, bail};
use datagrams::Datagrams;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::bind;
use pattern::Pattern;
use sim::plan::{Host, Interface};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
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

/// Sends small datagrams to a host, which nobody receives, by as many sockets as it takes to fill a ring.
pub(crate) fn flood(host: Host, to: Host, datagrams: u32) -> Result<()> {
    const SOCKETS: usize = 8;
    const DISCARD: u16 = 9;
    let to = SockAddr::from(SocketAddr::from((ip4(to, Interface::Parent), DISCARD)));
    inside(host, || {
        let sockets = (0..SOCKETS).map(|_| {
            let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        let sockets = sockets.collect::<Result<Vec<_>>>()?;
        for socket in sockets.iter().cycle().take(datagrams as usize) {
            // A queue that is full, no route, or the answer to one before.
            let _ = socket.send_to(&[0; 64], &to);
        }
        Ok(())
    })
}

/// Hands frames of random type, length and content to an interface, as a program with CAP_NET_RAW can: for a host, or for all.
pub(crate) fn frames(
    world: &World,
    host: Host,
    interface: Interface,
    to: Option<Host>,
    frames: u32,
) -> Result<()> {
    let to = match to {
        Some(to) => link_addresses(to, interface)?.own,
        None => link_addresses(host, interface)?.broadcast,
    };
    inside(host, || {
        let socket = Socket::new(Domain::PACKET, Type::RAW, None)?;
        let mut all = getifaddrs()?.filter(|address| address.interface_name == name(interface));
        let address = all.find_map(|address| address.address?.as_link_addr().copied());
        bind(socket.as_raw_fd(), &address.context("no such interface")?)?;
        socket.set_nonblocking(true)?;
        let act = FRAME_ACTS.fetch_add(1, Ordering::Relaxed);
        for frame in 0..frames {
            let number = (act << 48) | (u64::from(host) << 32) | u64::from(frame);
            let pattern = Pattern::of(world.setting.seed, number);
            let mut data = pattern.bytes(4 + pattern.length(4096));
            // Most have the type of a protocol whose headers they lack.
            if let Some(kind) = TYPES.get(usize::from(data[2] % 8)) {
                data[..2].copy_from_slice(kind);
            }
            if data[3] % 8 > 0 {
                data[2..4].fill(0);
            }
            let _ = socket.send(&[&to, &data[..]].concat());
        }
        Ok(())
    })
}

/// How often frames were handed to an interface, from 1: each time, they are others.
static FRAME_ACTS: AtomicU64 = AtomicU64::new(1);

/// EtherTypes of frames: IPv4, IPv6, ARP, RARP, and none.
const TYPES: [[u8; 2]; 5] = [
    [0x08, 0x00],
    [0x86, 0xdd],
    [0x08, 0x06],
    [0x80, 0x35],
    [0, 0],
];

/// Link-layer addresses of an interface.
struct LinkAddresses {
    own: Vec<u8>,
    broadcast: Vec<u8>,
}

/// Those of a host's interface, by `ip`: `link/infiniband ADDRESS brd ADDRESS`.
fn link_addresses(host: Host, interface: Interface) -> Result<LinkAddresses> {
    let command = [
        "ip",
        "-n",
        &namespace(host),
        "-o",
        "link",
        "show",
        name(interface),
    ];
    let text = run(&command, "")?;
    let address = |before: &str| -> Result<Vec<u8>> {
        let mut words = text.split_whitespace().skip_while(|word| *word != before);
        let bytes = words.nth(1).context("no address")?.split(':');
        let bytes: Result<Vec<u8>, _> = bytes.map(|byte| u8::from_str_radix(byte, 16)).collect();
        bytes.context("an address")
    };
    Ok(LinkAddresses {
        own: address("link/infiniband")?,
        broadcast: address("brd")?,
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
