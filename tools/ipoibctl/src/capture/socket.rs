// SPDX-License-Identifier: GPL-2.0

//! Packet socket on an Ethernet interface, with a filter for RoCEv2.

use super::decode::ROCE_PORT;
use anyhow::{Context, Result};
use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, LinkAddr, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use socket2::{Domain, SockAddr, SockFilter, Type};
use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

/// The longest packet: no RoCE packet is longer than the MTU of an Ethernet interface.
pub(super) const MOST: usize = 1 << 16;
/// Bytes that wait in the socket. At 100 Gbit/s, they last for 5 ms.
const BUFFER: usize = 64 << 20;

/// A packet, from the Ethernet header on.
pub(super) struct Packet<'a> {
    pub(super) bytes: &'a [u8],
    /// Its length on the link.
    pub(super) length: usize,
    /// Since 1970.
    pub(super) time: Duration,
    /// This host sends it.
    pub(super) outgoing: bool,
}

/// A socket that gets the RoCEv2 packets that an interface sends and receives.
pub(super) struct Socket {
    socket: socket2::Socket,
    /// Room for a control message with a time.
    control: Vec<u8>,
}

/// The filter: operation, instructions to skip if it is so and if not, operand.
fn filter() -> [(u32, u8, u8, u32); 16] {
    const LDH: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_ABS;
    const LDB: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
    const LDH_X: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_IND;
    const IP_LEN: u32 = libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH;
    const IS: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const HAS: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    let port = u32::from(ROCE_PORT);
    [
        (LDH, 0, 0, 12),
        (IS, 0, 4, 0x86dd),
        (LDB, 0, 0, 14 + 6),
        (IS, 0, 11, 17),
        (LDH, 0, 0, 14 + 40 + 2),
        (IS, 8, 9, port),
        (IS, 0, 8, 0x0800),
        (LDB, 0, 0, 14 + 9),
        (IS, 0, 6, 17),
        // Only the first fragment has a port.
        (LDH, 0, 0, 14 + 6),
        (HAS, 4, 0, 0x1fff),
        (IP_LEN, 0, 0, 14),
        (LDH_X, 0, 0, 14 + 2),
        (IS, 0, 1, port),
        (RETURN, 0, 0, u32::MAX),
        (RETURN, 0, 0, 0),
    ]
}

impl Socket {
    /// On the interface with this index.
    ///
    /// # Errors
    ///
    /// The process may not do that, or there is no such interface.
    pub(super) fn new(index: u32) -> Result<Socket> {
        // No protocol yet: without a filter, it would get all packets of all interfaces.
        let socket = socket2::Socket::new(Domain::PACKET, Type::RAW.nonblocking(), None)?;
        let filter = filter().map(|(code, yes, no, k)| SockFilter::new(code as u16, yes, no, k));
        socket.attach_filter(&filter).context("filter")?;
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true).context("timestamps")?;
        // It may be refused: there is a limit for who has no right to go beyond it.
        let _ = setsockopt(&socket, sockopt::RcvBufForce, &BUFFER);
        socket.bind(&address(index)?).context("bind")?;
        let control = cmsg_space!(TimeSpec);
        Ok(Socket { socket, control })
    }

    /// The next packet; none if none is there.
    ///
    /// # Errors
    ///
    /// The interface is gone, or down.
    pub(super) fn receive<'a>(&mut self, room: &'a mut [u8; MOST]) -> Result<Option<Packet<'a>>> {
        let mut parts = [IoSliceMut::new(room)];
        let control = Some(&mut self.control[..]);
        let fd = self.socket.as_raw_fd();
        let message = match recvmsg::<LinkAddr>(fd, &mut parts, control, MsgFlags::MSG_TRUNC) {
            Ok(message) => message,
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let from = message.address.context("a packet without an address")?;
        let time = message.cmsgs()?.find_map(|message| match message {
            ControlMessageOwned::ScmTimestampns(time) => Some(Duration::from(time)),
            _ => None,
        });
        let time = time.context("a packet without a time")?;
        let length = message.bytes;
        Ok(Some(Packet {
            time,
            outgoing: from.pkttype() == libc::PACKET_OUTGOING,
            bytes: &room[..length.min(MOST)],
            length,
        }))
    }

    /// Packets that were lost since the last call, since the socket had no room.
    pub(super) fn lost(&self) -> u64 {
        let mut stats = libc::tpacket_stats {
            tp_packets: 0,
            tp_drops: 0,
        };
        let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: The kernel writes no more than `length` bytes, which `stats` has.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut stats).cast(),
                &raw mut length,
            )
        };
        if result == 0 {
            stats.tp_drops.into()
        } else {
            0
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The address of all packets of the interface with this index.
fn address(index: u32) -> Result<SockAddr> {
    let family = u16::try_from(libc::AF_PACKET)?;
    let protocol = u16::try_from(libc::ETH_P_ALL)?.to_be();
    let index = i32::try_from(index)?;
    // SAFETY: The storage is zeroed and longer than a `sockaddr_ll`, as which it is written, and so is the length.
    let ((), address) = unsafe {
        SockAddr::try_init(|storage, length| {
            let address = storage.cast::<libc::sockaddr_ll>();
            (*address).sll_family = family;
            (*address).sll_protocol = protocol;
            (*address).sll_ifindex = index;
            *length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            Ok(())
        })
    }?;
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::super::decode::tests::{ethernet, transport};
    use super::*;

    /// Runs the filter on a packet as the kernel does. Returns true if it passes.
    fn passes(packet: &[u8]) -> bool {
        let (program, mut at, mut a, mut x) = (filter(), 0, 0_u32, 0_u32);
        let load = |at: u32, len: usize| {
            let bytes = packet.get(at as usize..)?.get(..len)?;
            Some(
                bytes
                    .iter()
                    .fold(0, |value, byte| (value << 8) | u32::from(*byte)),
            )
        };
        loop {
            let (code, jt, jf, k) = program[at];
            at += 1;
            let jump = |so: bool| usize::from(if so { jt } else { jf });
            // A load from behind the packet's end drops it.
            let loaded = match code & 0x07 {
                libc::BPF_RET => return k != 0,
                libc::BPF_JMP if code & 0xf0 == libc::BPF_JEQ => {
                    at += jump(a == k);
                    continue;
                }
                libc::BPF_JMP => {
                    at += jump(a & k != 0);
                    continue;
                }
                libc::BPF_LDX => load(k, 1).map(|byte| x = (byte & 15) * 4),
                _ => {
                    let offset = if code & 0xe0 == libc::BPF_IND { x } else { 0 };
                    let len = if code & 0x18 == libc::BPF_B { 1 } else { 2 };
                    load(k + offset, len).map(|value| a = value)
                }
            };
            if loaded.is_none() {
                return false;
            }
        }
    }

    #[test]
    fn only_roce_passes_the_filter() {
        let v6 = ethernet(&transport(0x64, 0x12, &[8, 0, 0, 0]));
        let mut v4 = vec![0; 12];
        v4.extend([8, 0, 0x46, 0, 0, 60, 0, 0, 0x40, 0, 64, 17, 0, 0]);
        v4.extend([0; 12]);
        v4.extend(&v6[54..]);
        assert!(passes(&v6) && passes(&v4));
        for (frame, at, byte) in [
            (&v6, 13, 0),
            (&v6, 20, 6),
            (&v6, 57, 0xb8),
            (&v4, 23, 6),
            (&v4, 21, 1),
            (&v4, 41, 0xb8),
        ] {
            let mut other = frame.clone();
            other[at] = byte;
            assert!(!passes(&other), "{at}");
        }
        for end in 0..58 {
            assert!(!passes(&v6[..end]));
        }
    }
}
