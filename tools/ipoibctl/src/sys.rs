// SPDX-License-Identifier: GPL-2.0

//! System calls that the standard library has no functions for.
//!
//! All `unsafe` code of the tool is here, in `ethtool` and in `capture::socket`.

use anyhow::{Result, ensure};
use std::fs::File;
use std::io::Error;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A new socket.
///
/// # Errors
///
/// The kernel has no such protocol, or the process may open no more files.
pub(crate) fn socket(
    domain: libc::c_int,
    kind: libc::c_int,
    protocol: libc::c_int,
) -> Result<OwnedFd> {
    // SAFETY: The call has no pointers.
    let fd = unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol) };
    ensure!(fd >= 0, "socket: {}", Error::last_os_error());
    // SAFETY: The descriptor was just opened, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Width and height of the terminal that is standard output; none if it is another file, or does not tell.
pub(crate) fn window() -> Option<(u16, u16)> {
    // SAFETY: All zeroes is a valid `winsize`.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    let out = std::io::stdout().as_raw_fd();
    // SAFETY: The kernel writes a `winsize`, which `size` is.
    let result = unsafe { libc::ioctl(out, libc::TIOCGWINSZ, &raw mut size) };
    let is_known = result == 0 && size.ws_col > 0 && size.ws_row > 0;
    is_known.then_some((size.ws_col, size.ws_row))
}

/// Time that this thread has had of a CPU.
#[cfg(test)]
pub(crate) fn cpu() -> std::time::Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: The kernel writes a `timespec`, which `time` is.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(result, 0);
    std::time::Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Locks a file, until it is closed, unless another process has done so.
pub(crate) fn try_lock(file: &File) -> std::io::Result<()> {
    // SAFETY: The call has no pointers.
    match unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}
