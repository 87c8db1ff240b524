// SPDX-License-Identifier: GPL-2.0

//! Transfers by TCP: each is a connection of its own, with a number of bytes that both ends know. One that makes no progress
//! is given up, and another one takes its place.

use super::{PORT, Pattern, address};
use crate::program::inside;
use crate::world::World;
use anyhow::{Result, ensure};
use sim::plan::{Host, Interface};
use socket2::{Domain, SockAddr, Socket, Type};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};
use std::time::{Duration, Instant};

/// The most bytes of a usual transfer.
const MOST: u64 = 100_000;

/// A transfer that makes no progress for so long is given up.
const PATIENCE: Duration = Duration::from_secs(4);

/// Time between two transfers of a pair.
const PAUSE: Duration = Duration::from_millis(1000);

/// Bytes in front of the pattern: the number of the transfer, and how many follow.
const HEADER: usize = 16;

/// The most that one call of a socket is asked for.
const PIECE: usize = 16_384;

/// Transfers from a host to another one, one at a time.
struct Pair {
    from: Host,
    to: Host,
    /// Sizes of transfers that were asked for.
    asked: VecDeque<u32>,
    current: Option<Sender>,
    /// The time at which the next one begins.
    next_at: Instant,
    /// Transfers that were begun: by IPv4 and IPv6 in turn.
    begun: u64,
    /// Some that counts has ended well by IPv4, and by IPv6.
    done: [bool; 2],
}

/// One end of a connection.
struct Sender {
    socket: Socket,
    data: Pattern,
    number: u64,
    length: usize,
    sent: usize,
    /// The time of the latest progress.
    last: Instant,
    v6: bool,
}

/// The other end.
struct Receiver {
    socket: Socket,
    header: Vec<u8>,
    got: usize,
    last: Instant,
}

/// All transfers.
pub(super) struct Transfers {
    seed: u64,
    numbers: u64,
    pairs: Vec<Pair>,
    listeners: Vec<Socket>,
    receivers: Vec<Receiver>,
}

impl Transfers {
    /// Transfers from each host of a world to the next one, and all listeners.
    pub(super) fn new(world: &World) -> Result<Transfers> {
        let hosts: Vec<Host> = world.hosts().map(|(host, _)| host).collect();
        let mut listeners = Vec::new();
        for host in &hosts {
            for v6 in [false, true] {
                listeners.push(inside(*host, || listener(v6))?);
            }
        }
        let pairs = hosts.iter().zip(hosts.iter().cycle().skip(1));
        let pairs = pairs.map(|(from, to)| Pair {
            from: *from,
            to: *to,
            asked: VecDeque::new(),
            current: None,
            next_at: Instant::now(),
            begun: 0,
            done: [false; 2],
        });
        Ok(Transfers {
            seed: world.setting.seed,
            numbers: 0,
            pairs: pairs.collect(),
            listeners,
            receivers: Vec::new(),
        })
    }

    /// Asks for a transfer of so many bytes from a host to the one that it sends to.
    pub(super) fn more(&mut self, from: Host, bytes: u32) {
        for pair in self.pairs.iter_mut().filter(|pair| pair.from == from) {
            pair.asked.push_back(bytes);
        }
    }

    /// Counts transfers that begin from now on.
    pub(super) fn mark(&mut self) {
        for pair in &mut self.pairs {
            pair.done = [false; 2];
            // A connection that was made before may be in a long pause of its own.
            pair.current = None;
            pair.asked.clear();
            pair.next_at = Instant::now();
        }
    }

    /// The pairs of which no transfer that counts has ended well.
    pub(super) fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        for pair in &self.pairs {
            for (done, family) in pair.done.iter().zip(["IPv4", "IPv6"]) {
                if !done {
                    missing.push(format!("{} to {} by TCP, {family}", pair.from, pair.to));
                }
            }
        }
        missing
    }

    /// Begins no more transfers.
    pub(super) fn pause(&mut self) {
        self.pairs.clear();
    }

    /// Goes on with all connections.
    pub(super) fn tick(&mut self) -> Result<()> {
        for listener in &self.listeners {
            while let Ok((socket, _)) = listener.accept() {
                socket.set_nonblocking(true)?;
                self.receivers.push(Receiver {
                    socket,
                    header: Vec::new(),
                    got: 0,
                    last: Instant::now(),
                });
            }
        }
        let seed = self.seed;
        let mut wrong = Ok(());
        self.receivers.retain_mut(|receiver| {
            receiver.go_on(seed).unwrap_or_else(|e| {
                wrong = Err(e);
                false
            })
        });
        wrong?;
        for pair in &mut self.pairs {
            pair.go_on(seed, &mut self.numbers)?;
        }
        Ok(())
    }
}

/// A socket that listens on all addresses of the calling thread's namespace.
fn listener(v6: bool) -> Result<Socket> {
    let domain = if v6 { Domain::IPV6 } else { Domain::IPV4 };
    let socket = Socket::new(domain, Type::STREAM, None)?;
    let any: SocketAddr = if v6 {
        socket.set_only_v6(true)?;
        (Ipv6Addr::UNSPECIFIED, PORT).into()
    } else {
        (Ipv4Addr::UNSPECIFIED, PORT).into()
    };
    socket.bind(&SockAddr::from(any))?;
    socket.listen(64)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// The header and the pattern of a transfer.
fn header(number: u64, length: usize) -> Vec<u8> {
    let mut header = number.to_be_bytes().to_vec();
    header.extend((length as u64).to_be_bytes());
    header
}

impl Pair {
    /// Goes on with the transfer, or begins one that is due.
    fn go_on(&mut self, seed: u64, numbers: &mut u64) -> Result<()> {
        let Some(sender) = &mut self.current else {
            if Instant::now() >= self.next_at {
                let number = *numbers;
                *numbers += 1;
                let asked = self.asked.pop_front();
                let (from, to, v6) = (self.from, self.to, self.begun % 2 == 1);
                self.begun += 1;
                self.current = inside(from, || Sender::start(seed, number, to, v6, asked))?;
                self.next_at = Instant::now() + PAUSE;
            }
            return Ok(());
        };
        match sender.go_on() {
            Progress::Done => self.done[usize::from(sender.v6)] = true,
            Progress::Failed => {}
            Progress::Waits => return Ok(()),
        }
        self.current = None;
        Ok(())
    }
}

/// How far a connection has come.
enum Progress {
    Done,
    Failed,
    Waits,
}

impl Sender {
    /// Begins a transfer from the calling thread's namespace, unless there is no route.
    fn start(
        seed: u64,
        number: u64,
        to: Host,
        v6: bool,
        asked: Option<u32>,
    ) -> Result<Option<Sender>> {
        let data = Pattern::of(seed, !number);
        let length = asked.map_or_else(|| data.length(MOST), |n| n as usize);
        let domain = if v6 { Domain::IPV6 } else { Domain::IPV4 };
        let socket = Socket::new(domain, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        let to = SockAddr::from(address(to, Interface::Parent, v6));
        match socket.connect(&to) {
            Ok(()) => {}
            Err(e) if e.raw_os_error() == Some(nix::errno::Errno::EINPROGRESS as i32) => {}
            Err(_) => return Ok(None),
        }
        Ok(Some(Sender {
            socket,
            data,
            number,
            length,
            sent: 0,
            last: Instant::now(),
            v6,
        }))
    }

    /// Sends what the socket takes, and then waits for the receiver's acknowledgement.
    fn go_on(&mut self) -> Progress {
        let all = HEADER + self.length;
        while self.sent < all {
            let piece = if self.sent < HEADER {
                header(self.number, self.length).split_off(self.sent)
            } else {
                let from = self.sent - HEADER;
                self.data.from(from, PIECE.min(self.length - from))
            };
            match (&self.socket).write(&piece) {
                Ok(n) => {
                    self.sent += n;
                    self.last = Instant::now();
                    if self.sent == all {
                        let _ = self.socket.shutdown(Shutdown::Write);
                    }
                }
                Err(e) => return self.waits(&e),
            }
        }
        let mut word = [0; 1];
        match (&self.socket).read(&mut word) {
            Ok(1) => Progress::Done,
            Ok(_) => Progress::Failed,
            Err(e) => self.waits(&e),
        }
    }

    /// Says whether the connection is given up for an error.
    fn waits(&self, error: &std::io::Error) -> Progress {
        let is_early = matches!(
            error.kind(),
            ErrorKind::WouldBlock | ErrorKind::NotConnected
        );
        if is_early && self.last.elapsed() < PATIENCE {
            Progress::Waits
        } else {
            Progress::Failed
        }
    }
}

impl Receiver {
    /// Receives what has come; returns false when the connection has ended.
    fn go_on(&mut self, seed: u64) -> Result<bool> {
        loop {
            let mut buffer = vec![0; PIECE];
            let length = match (&self.socket).read(&mut buffer) {
                Ok(0) => return self.end(),
                Ok(length) => length,
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    // Its sender gives up sooner.
                    return Ok(self.last.elapsed() < 8 * PATIENCE);
                }
                Err(_) => return Ok(false),
            };
            self.last = Instant::now();
            let mut bytes = &buffer[..length];
            let missing = (HEADER - self.header.len()).min(bytes.len());
            self.header.extend(&bytes[..missing]);
            bytes = &bytes[missing..];
            if bytes.is_empty() {
                continue;
            }
            let (number, all) = self.numbers();
            let wanted = Pattern::of(seed, !number).from(self.got, bytes.len());
            ensure!(
                wanted == bytes && self.got + bytes.len() <= all,
                "transfer {number} by TCP: bytes from {} on are not those that were sent",
                self.got
            );
            self.got += bytes.len();
        }
    }

    /// The number of the transfer and its length; the header is complete.
    fn numbers(&self) -> (u64, usize) {
        let word = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&self.header[at..at + 8]);
            u64::from_be_bytes(bytes)
        };
        (word(0), usize::try_from(word(8)).unwrap_or(usize::MAX))
    }

    /// Gives its word that all has come, if it has.
    fn end(&mut self) -> Result<bool> {
        if self.header.len() == HEADER && self.numbers().1 == self.got {
            let _ = (&self.socket).write(&[1]);
        }
        Ok(false)
    }
}
