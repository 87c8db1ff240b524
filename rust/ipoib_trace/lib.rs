// SPDX-License-Identifier: GPL-2.0

//! Tracepoints of ipoib_rs: frames that are dropped or held, and what becomes of paths, groups and connections.
//!
//! They are those of `events.h`. Of one that is off, nothing is left but [a load and a branch](ipoib_sys::tracepoint_is_on).

#![crate_name = "ipoib_trace"]

use ipoib_netdev::device::RawDevice;
use ipoib_sys::bindings::{self, ipoib_trace_text, ipoib_trace_who};
use ipoib_sys::tracepoint_is_on;
#[cfg(CONFIG_TRACEPOINTS)]
use ipoib_sys::tracepoint_keys;

#[cfg(CONFIG_TRACEPOINTS)]
tracepoint_keys!(
    __tracepoint_drop,
    __tracepoint_path,
    __tracepoint_group,
    __tracepoint_connection,
    __tracepoint_held,
);

/// Somebody on the link.
#[derive(Clone, Copy)]
pub struct Who {
    /// GID of the port or of the group.
    pub gid: [u8; 16],
    /// Number of the queue pair.
    pub qpn: u32,
}

/// An event in the life of a path, a group or a connection.
#[derive(Clone, Copy)]
pub struct News<'a> {
    /// Whose it is.
    pub who: Who,
    /// Name of the event.
    pub event: &'a str,
    /// The state that it is in since.
    pub state: &'a str,
    /// Frames that wait for it.
    pub waiting: usize,
}

fn text(text: &[u8]) -> ipoib_trace_text {
    ipoib_trace_text {
        text: text.as_ptr().cast(),
        // An interface's name, or a word of the driver's.
        length: text.len() as u32,
    }
}

type Emit = unsafe extern "C" fn(
    *const ipoib_trace_who,
    *const ipoib_trace_text,
    *const ipoib_trace_text,
    u32,
);

/// Gives news to a tracepoint.
#[cold]
#[inline(never)]
fn tell(dev: &RawDevice, news: News<'_>, emit: Emit) {
    dev.with_name(|name| {
        let who = ipoib_trace_who {
            interface: text(name),
            gid: news.who.gid.as_ptr(),
            qpn: news.who.qpn,
        };
        let (event, state) = (text(news.event.as_bytes()), text(news.state.as_bytes()));
        // SAFETY: All texts and the GID exist until this returns.
        unsafe { emit(&who, &event, &state, news.waiting as u32) };
    });
}

/// `frames` frames are dropped; `length` are the bytes of it, if it is one and that is known.
///
/// # Context
///
/// Any.
#[inline(always)]
pub fn dropped(dev: &RawDevice, reason: &str, frames: u64, length: usize) {
    if tracepoint_is_on!(__tracepoint_drop) {
        tell_dropped(dev, reason, frames, length);
    }
}

#[cold]
#[inline(never)]
fn tell_dropped(dev: &RawDevice, reason: &str, frames: u64, length: usize) {
    dev.with_name(|name| {
        let (name, reason) = (text(name), text(reason.as_bytes()));
        // SAFETY: Both texts exist until this returns.
        unsafe { bindings::ipoib_trace_drop(&name, &reason, frames as u32, length as u32) };
    });
}

/// A path has come to a state.
///
/// # Context
///
/// Any.
#[inline(always)]
pub fn path<'a>(dev: &RawDevice, news: impl FnOnce() -> News<'a>) {
    if tracepoint_is_on!(__tracepoint_path) {
        tell(dev, news(), bindings::ipoib_trace_path);
    }
}

/// A multicast group has come to a state.
///
/// # Context
///
/// Any.
#[inline(always)]
pub fn group<'a>(dev: &RawDevice, news: impl FnOnce() -> News<'a>) {
    if tracepoint_is_on!(__tracepoint_group) {
        tell(dev, news(), bindings::ipoib_trace_group);
    }
}

/// A connection has come to a state.
///
/// # Context
///
/// Any.
#[inline(always)]
pub fn connection<'a>(dev: &RawDevice, news: impl FnOnce() -> News<'a>) {
    if tracepoint_is_on!(__tracepoint_connection) {
        tell(dev, news(), bindings::ipoib_trace_connection);
    }
}

/// Returns true if somebody wants to know of frames that are held.
#[inline(always)]
pub fn wants_held() -> bool {
    tracepoint_is_on!(__tracepoint_held)
}

/// A numbered frame is held, or passed up after `waited_us` microseconds.
///
/// # Context
///
/// Any.
#[cold]
#[inline(never)]
pub fn held(dev: &RawDevice, who: Who, event: &str, msg_id: u16, waited_us: u64) {
    dev.with_name(|name| {
        let who = ipoib_trace_who {
            interface: text(name),
            gid: who.gid.as_ptr(),
            qpn: who.qpn,
        };
        let (event, waited) = (text(event.as_bytes()), waited_us.min(u32::MAX.into()));
        // SAFETY: All texts and the GID exist until this returns.
        unsafe { bindings::ipoib_trace_held(&who, &event, msg_id.into(), waited as u32) };
    });
}
