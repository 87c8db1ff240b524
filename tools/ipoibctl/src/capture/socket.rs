// SPDX-License-Identifier: GPL-2.0

//! Packet socket on an Ethernet interface, with a filter for RoCEv2.

use super::decode::ROCE_PORT;
use crate::sys;
use anyhow::{Context, Result, ensure};
use std::io::{Error, ErrorKind};
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// The longest packet: no RoCE packet is longer than the MTU of an Ethernet interface.
pub(super) const MOST: usize = 1 << 16;
/// Bytes that wait in the socket. At 100 Gbit/s, they last for 5 ms.
const BUFFER: libc::c_int = 64 << 20;
/// Room for control messages: one with a time.
const CONTROL: usize = 64;

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
    fd: OwnedFd,
}

/// Instruction of the filter: load, compare, return.
fn filter() -> Vec<libc::sock_filter> {
    const LDH: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_ABS;
    const LDB: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
    const LDH_X: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_IND;
    const IP_LEN: u32 = libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH;
    const IS: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const HAS: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    let port = u32::from(ROCE_PORT);
    // Operation, instructions to skip if it is so and if not, operand.
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
    .map(|(code, jt, jf, k)| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    })
    .to_vec()
}

impl Socket {
    /// On the interface with this index.
    ///
    /// # Errors
    ///
    /// The process may not do that, or there is no such interface.
    pub(super) fn new(index: u32) -> Result<Socket> {
        // No protocol yet: without a filter, it would get all packets of all interfaces.
        let fd = sys::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, 0)?;
        let socket = Socket { fd };
        let mut program = filter();
        let program = libc::sock_fprog {
            len: u16::try_from(program.len())?,
            filter: program.as_mut_ptr(),
        };
        // SAFETY: The kernel reads a `sock_fprog`, whose instructions outlive the call.
        unsafe { socket.set(libc::SO_ATTACH_FILTER, &program) }.context("filter")?;
        let one: libc::c_int = 1;
        // SAFETY: The kernel reads an int.
        unsafe { socket.set(libc::SO_TIMESTAMPNS, &one) }.context("timestamps")?;
        // SAFETY: The kernel reads an int. It may refuse: there is a limit for who has no right to go beyond it.
        let _ = unsafe { socket.set(libc::SO_RCVBUFFORCE, &BUFFER) };
        // SAFETY: All zeroes is a valid `sockaddr_ll`.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = u16::try_from(libc::AF_PACKET)?;
        address.sll_protocol = u16::try_from(libc::ETH_P_ALL)?.to_be();
        address.sll_ifindex = i32::try_from(index)?;
        let length = libc::socklen_t::try_from(size_of::<libc::sockaddr_ll>())?;
        // SAFETY: The kernel reads `length` bytes, which `address` has.
        let result =
            unsafe { libc::bind(socket.fd.as_raw_fd(), (&raw const address).cast(), length) };
        ensure!(result == 0, "bind: {}", Error::last_os_error());
        Ok(socket)
    }

    /// Sets an option.
    ///
    /// # Safety
    ///
    /// The option has to be one that takes a `T`, whose pointers are valid.
    unsafe fn set<T>(&self, option: libc::c_int, value: &T) -> std::io::Result<()> {
        let length = size_of::<T>() as libc::socklen_t;
        // SAFETY: The kernel reads a `T` by this function's requirements.
        let result = unsafe {
            let value = std::ptr::from_ref(value).cast();
            libc::setsockopt(self.fd.as_raw_fd(), libc::SOL_SOCKET, option, value, length)
        };
        if result == 0 {
            Ok(())
        } else {
            Err(Error::last_os_error())
        }
    }

    /// The next packet; none if none is there.
    ///
    /// # Errors
    ///
    /// The interface is gone, or down.
    pub(super) fn receive<'a>(&self, room: &'a mut [u8; MOST]) -> Result<Option<Packet<'a>>> {
        // SAFETY: All zeroes is a valid `sockaddr_ll`, and a valid `msghdr`.
        let (mut address, mut message): (libc::sockaddr_ll, libc::msghdr) =
            unsafe { (zeroed(), zeroed()) };
        let mut control = [0_u64; CONTROL / 8];
        let mut part = libc::iovec {
            iov_base: room.as_mut_ptr().cast(),
            iov_len: room.len(),
        };
        message.msg_name = (&raw mut address).cast();
        message.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = CONTROL as _;
        // SAFETY: All that `message` points to has the size that it says, and outlives the call.
        let length =
            unsafe { libc::recvmsg(self.fd.as_raw_fd(), &raw mut message, libc::MSG_TRUNC) };
        let Ok(length) = usize::try_from(length) else {
            let error = Error::last_os_error();
            return match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(None),
                _ => Err(error.into()),
            };
        };
        Ok(Some(Packet {
            time: time(&message).context("a packet without a time")?,
            outgoing: address.sll_pkttype == libc::PACKET_OUTGOING,
            bytes: &room[..length.min(MOST)],
            length,
        }))
    }

    /// Packets that were lost since the last call, since the socket had no room.
    pub(super) fn lost(&self) -> u64 {
        // SAFETY: All zeroes is a valid `tpacket_stats`.
        let mut stats: libc::tpacket_stats = unsafe { zeroed() };
        let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: The kernel writes no more than `length` bytes, which `stats` has.
        let result = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
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
        self.fd.as_fd()
    }
}

/// The time in the control messages of a message that was received.
fn time(message: &libc::msghdr) -> Option<Duration> {
    // SAFETY: The kernel has filled `message` in, and the memory of its control messages is still there.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: It points to a header in that memory.
        let found = unsafe { &*header };
        if (found.cmsg_level, found.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) {
            // SAFETY: Messages of this type hold a `timespec`.
            let time: libc::timespec = unsafe {
                libc::CMSG_DATA(header)
                    .cast::<libc::timespec>()
                    .read_unaligned()
            };
            let nanoseconds = u32::try_from(time.tv_nsec).ok()?;
            return Some(Duration::new(time.tv_sec.try_into().ok()?, nanoseconds));
        }
        // SAFETY: `header` is one of the messages of `message`.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    None
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
            let libc::sock_filter { code, jt, jf, k } = program[at];
            let code = u32::from(code);
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
