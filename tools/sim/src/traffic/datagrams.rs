// SPDX-License-Identifier: GPL-2.0

//! Datagrams that are numbered: each comes once at most, with the bytes that were sent.

use super::{PORT, Pattern, address};
use crate::host::{ip4, name};
use crate::program::{enter, inside};
use crate::world::World;
use anyhow::{Context, Result, ensure};
use nix::net::if_::if_nametoindex;
use sim::plan::{Host, Interface};
use socket2::{Domain, InterfaceIndexOrAddress, SockAddr, Socket, Type};
use std::collections::BTreeMap;
use std::io::Read;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// The groups of all hosts' `ib0`.
const GROUP4: Ipv4Addr = Ipv4Addr::new(239, 27, 0, 1);
const GROUP6: Ipv6Addr = Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0, 0x1b01);

/// Bytes in front of the pattern: the flow's number, and the datagram's.
const HEADER: usize = 6;

/// The most bytes of a datagram.
const MOST: u64 = 12_000;

/// Ticks between two times that the groups are joined, lest an interface has come back without its memberships.
const JOINED: u32 = 40;

/// Ticks between two datagrams of a flow.
const PERIOD: u32 = 4;

/// Datagrams from a host to another one, or to the group.
struct Flow {
    from: Host,
    /// A host, or all that are members of the group.
    to: Option<Host>,
    interface: Interface,
    v6: bool,
    /// The number of the next datagram.
    next: u32,
    /// The latest number that each host has got.
    latest: BTreeMap<Host, u32>,
    /// Those before the latest that have come, as bits: the lowest is that of the latest itself.
    seen: BTreeMap<Host, u128>,
    /// The first number that counts.
    mark: u32,
}

/// A socket of a host.
struct End {
    host: Host,
    v6: bool,
    socket: Socket,
    /// The index of the `ib0` with which it has joined the group.
    joined: u32,
}

/// All flows and sockets.
pub(super) struct Datagrams {
    seed: u64,
    flows: Vec<Flow>,
    ends: Vec<End>,
    ticks: u32,
    paused: bool,
    /// Several cables join the switches.
    has_circles: bool,
    /// Cables may have brought packets twice.
    doubles: Arc<AtomicBool>,
}

impl Datagrams {
    /// All flows of a world, and their sockets.
    pub(super) fn new(world: &World) -> Result<Datagrams> {
        let mut flows = Vec::new();
        let mut ends = Vec::new();
        for (from, setting) in world.hosts() {
            for v6 in [false, true] {
                ends.push(inside(from, || End::new(from, v6))?);
                let mut flow = |to, interface| {
                    flows.push(Flow {
                        from,
                        to,
                        interface,
                        v6,
                        next: 0,
                        latest: BTreeMap::new(),
                        seen: BTreeMap::new(),
                        mark: 0,
                    });
                };
                flow(None, Interface::Parent);
                for (to, other) in world.hosts().filter(|(to, _)| *to != from) {
                    flow(Some(to), Interface::Parent);
                    if setting.child && other.child && !v6 {
                        flow(Some(to), Interface::Child);
                    }
                }
            }
        }
        Ok(Datagrams {
            seed: world.setting.seed,
            flows,
            ends,
            ticks: 0,
            paused: false,
            has_circles: world.setting.trunks > 1,
            doubles: Arc::clone(&world.doubles),
        })
    }

    /// Sends no more.
    pub(super) fn pause(&mut self) {
        self.paused = true;
    }

    /// Counts only datagrams that are sent from now on.
    pub(super) fn mark(&mut self) {
        for flow in &mut self.flows {
            flow.mark = flow.next;
        }
        self.ticks = 0;
    }

    /// The flows of which a host has received nothing that counts.
    pub(super) fn missing(&self) -> Vec<String> {
        let hosts: Vec<Host> = self.ends.iter().filter(|e| !e.v6).map(|e| e.host).collect();
        let mut missing = Vec::new();
        for flow in &self.flows {
            let to = hosts.iter().filter(|host| match flow.to {
                Some(to) => to == **host,
                None => flow.from != **host,
            });
            for host in to {
                if flow.latest.get(host).is_none_or(|n| *n < flow.mark) {
                    let family = if flow.v6 { "IPv6" } else { "IPv4" };
                    let group = if flow.to.is_none() { ", multicast" } else { "" };
                    missing.push(format!(
                        "{} to {host} by {family} on {}{group}",
                        flow.from,
                        name(flow.interface)
                    ));
                }
            }
        }
        missing
    }

    /// Receives what has come, and sends what is due.
    pub(super) fn tick(&mut self) -> Result<()> {
        self.ticks += 1;
        for index in 0..self.ends.len() {
            while let Some((host, data)) = self.ends[index].receive()? {
                self.take(host, &data)?;
            }
        }
        if self.ticks % JOINED == 1 {
            let ends = &mut self.ends;
            thread::scope(|scope| {
                scope
                    .spawn(|| ends.iter_mut().try_for_each(End::join))
                    .join()
                    .ok()
                    .context("a thread has panicked")?
            })?;
        }
        if self.paused {
            return Ok(());
        }
        for (number, flow) in (0u32..).zip(&mut self.flows) {
            if (self.ticks + number) % PERIOD == 0 {
                let data = datagram(self.seed, number, flow.next);
                flow.next += 1;
                let end = self
                    .ends
                    .iter()
                    .find(|end| end.host == flow.from && end.v6 == flow.v6);
                end.context("no socket")?.send(flow, &data);
            }
        }
        Ok(())
    }

    /// Checks a datagram.
    fn take(&mut self, host: Host, data: &[u8]) -> Result<()> {
        let (Some(flow), Some(number)) = (data.get(..2), data.get(2..HEADER)) else {
            anyhow::bail!("host {host} has got a datagram of {} bytes", data.len());
        };
        let index = u16::from_be_bytes([flow[0], flow[1]]);
        let number = u32::from_be_bytes([number[0], number[1], number[2], number[3]]);
        let flow = self
            .flows
            .get_mut(usize::from(index))
            .with_context(|| format!("host {host} has got a datagram of no flow, {index}"))?;
        let what = || {
            format!(
                "datagram {number} from host {} to host {host}, flow {index}",
                flow.from
            )
        };
        let is_for_it = flow.to.map_or(flow.from != host, |to| to == host);
        ensure!(is_for_it, "{}: came to the wrong host", what());
        ensure!(number < flow.next, "{}: was not sent", what());
        ensure!(
            data == datagram(self.seed, index.into(), number),
            "{}: {} bytes are not those that were sent",
            what(),
            data.len()
        );
        let latest = flow.latest.get(&host).copied();
        let seen = flow.seen.entry(host).or_default();
        match latest {
            Some(latest) if number <= latest => {
                let bit = 1u128.checked_shl(latest - number).unwrap_or(0);
                // While a subnet manager changes the trees of groups, switches may send them in circles.
                let may_double =
                    self.doubles.load(Ordering::Relaxed) || (self.has_circles && flow.to.is_none());
                ensure!(
                    *seen & bit == 0 || may_double,
                    "datagram {number} from host {} has come to host {host} twice, flow {index}",
                    flow.from
                );
                *seen |= bit;
            }
            _ => {
                let by = latest.map_or(u32::MAX, |latest| number - latest);
                *seen = seen.checked_shl(by).unwrap_or(0) | 1;
                flow.latest.insert(host, number);
            }
        }
        Ok(())
    }
}

/// The bytes of a flow's datagram.
fn datagram(seed: u64, flow: u32, number: u32) -> Vec<u8> {
    let pattern = Pattern::of(seed, (u64::from(flow) << 32) | u64::from(number));
    let mut data = Vec::new();
    data.extend((flow as u16).to_be_bytes());
    data.extend(number.to_be_bytes());
    data.extend(pattern.bytes(pattern.length(MOST)));
    data
}

impl End {
    fn new(host: Host, v6: bool) -> Result<End> {
        let domain = if v6 { Domain::IPV6 } else { Domain::IPV4 };
        let socket = Socket::new(domain, Type::DGRAM, None)?;
        let any: SocketAddr = if v6 {
            socket.set_only_v6(true)?;
            socket.set_multicast_loop_v6(false)?;
            (Ipv6Addr::UNSPECIFIED, PORT).into()
        } else {
            socket.set_multicast_loop_v4(false)?;
            (Ipv4Addr::UNSPECIFIED, PORT).into()
        };
        socket.bind(&SockAddr::from(any))?;
        socket.set_nonblocking(true)?;
        Ok(End {
            host,
            v6,
            socket,
            joined: 0,
        })
    }

    /// Joins the group by the `ib0` that there is. Takes the calling thread into the host's namespace.
    fn join(&mut self) -> Result<()> {
        enter(self.host)?;
        let index = if_nametoindex("ib0").unwrap_or(0);
        if !self.v6 {
            // The kernel finds the interface by its address, while it has that.
            let address = ip4(self.host, Interface::Parent);
            let _ = self.socket.set_multicast_if_v4(&address);
        }
        // A socket stays a member by an index after the interface is gone, which may come back with it.
        let _ = if self.v6 {
            self.socket.leave_multicast_v6(&GROUP6, self.joined)
        } else {
            let by = InterfaceIndexOrAddress::Index(self.joined);
            self.socket.leave_multicast_v4_n(&GROUP4, &by)
        };
        self.joined = index;
        let by = InterfaceIndexOrAddress::Index(index);
        let joined = if self.v6 {
            self.socket
                .join_multicast_v6(&GROUP6, index)
                .and_then(|()| self.socket.set_multicast_if_v6(index))
        } else {
            self.socket.join_multicast_v4_n(&GROUP4, &by)
        };
        // The interface may go at any time.
        drop(joined);
        Ok(())
    }

    /// Sends a datagram of a flow, which may fail: there may be no interface, or no route.
    fn send(&self, flow: &Flow, data: &[u8]) {
        let to: SocketAddr = match (flow.to, flow.v6) {
            (Some(to), v6) => address(to, flow.interface, v6),
            (None, false) => (GROUP4, PORT).into(),
            (None, true) => (GROUP6, PORT).into(),
        };
        let _ = self.socket.send_to(data, &SockAddr::from(to));
    }

    /// A datagram that has come, if any.
    fn receive(&mut self) -> Result<Option<(Host, Vec<u8>)>> {
        let mut buffer = vec![0; 65_536];
        match (&self.socket).read(&mut buffer) {
            Ok(length) => {
                buffer.truncate(length);
                Ok(Some((self.host, buffer)))
            }
            // An error of a datagram that was sent, such as no route, is none of the socket.
            Err(_) => Ok(None),
        }
    }
}
