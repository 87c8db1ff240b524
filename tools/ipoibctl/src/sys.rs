// SPDX-License-Identifier: GPL-2.0

//! System calls that the standard library has no functions for.
//!
//! All `unsafe` code of the tool is here and in `ethtool`.

use anyhow::{Result, ensure};
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

/// The width of the terminal that is standard output; none if it is another file, or does not tell.
pub(crate) fn columns() -> Option<usize> {
    // SAFETY: All zeroes is a valid `winsize`.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    let out = std::io::stdout().as_raw_fd();
    // SAFETY: The kernel writes a `winsize`, which `size` is.
    let result = unsafe { libc::ioctl(out, libc::TIOCGWINSZ, &raw mut size) };
    (result == 0 && size.ws_col > 0).then_some(usize::from(size.ws_col))
}
