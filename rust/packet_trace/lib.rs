// SPDX-License-Identifier: GPL-2.0

//! Tracepoints of ib_hwsim: packets that leave a port, come to one, or are dropped.
//!
//! They are those of `events.h`. A tracepoint that is off costs [a load and a branch](ipoib_sys::tracepoint_is_on).

#![crate_name = "packet_trace"]

use ib_fabric::{Packet, Transport};
use ipoib_sys::bindings;
use ipoib_sys::tracepoint_is_on;
#[cfg(CONFIG_TRACEPOINTS)]
use ipoib_sys::tracepoint_keys;
use kernel::prelude::*;

#[cfg(CONFIG_TRACEPOINTS)]
tracepoint_keys!(
    __tracepoint_packet_tx,
    __tracepoint_packet_rx,
    __tracepoint_packet_drop,
);

/// A port, by the name of its node and its number.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// Name of the node.
    pub node: &'a CStr,
    /// Number of the port.
    pub port: u8,
}

/// The packet leaves by a port. `src_qp` is the queue pair that sends it, if it is known.
///
/// # Context
///
/// Any.
#[inline(always)]
pub fn tx(place: Place<'_>, packet: &Packet, src_qp: Option<u32>) {
    if tracepoint_is_on!(__tracepoint_packet_tx) {
        emit(place, packet, src_qp, None, bindings::packet_trace_tx);
    }
}

/// The packet comes in by a port.
///
/// # Context
///
/// Any.
#[inline(always)]
pub fn rx(place: Place<'_>, packet: &Packet) {
    if tracepoint_is_on!(__tracepoint_packet_rx) {
        emit(place, packet, None, None, bindings::packet_trace_rx);
    }
}

/// The packet is dropped at a port.
///
/// # Context
///
/// Any.
#[inline(always)]
pub fn dropped(place: Place<'_>, packet: &Packet, reason: &CStr) {
    if tracepoint_is_on!(__tracepoint_packet_drop) {
        let reason = Some(reason);
        emit(place, packet, None, reason, bindings::packet_trace_drop);
    }
}

/// Gives a packet to a tracepoint. What is no packet is left out.
#[cold]
#[inline(never)]
fn emit(
    place: Place<'_>,
    packet: &Packet,
    src_qp: Option<u32>,
    reason: Option<&CStr>,
    trace: unsafe extern "C" fn(*const bindings::packet_trace),
) {
    let Some(opcode) = packet.opcode() else {
        return;
    };
    let (kind, psn) = match &packet.transport {
        Transport::Rc(bth) => (bindings::packet_trace_kind_PACKET_TRACE_RC, bth.psn.get()),
        Transport::Ud { .. } if packet.management => {
            (bindings::packet_trace_kind_PACKET_TRACE_SMP, 0)
        }
        Transport::Ud { .. } => (bindings::packet_trace_kind_PACKET_TRACE_UD, 0),
    };
    let event = bindings::packet_trace {
        node: place.node.as_char_ptr(),
        reason: reason.map_or(core::ptr::null(), |reason| reason.as_char_ptr()),
        length: packet.wire_bytes(),
        packets: packet.packets(),
        psn,
        src_qp: src_qp.unwrap_or(packet.source_qp()),
        dest_qp: packet.dest_qp,
        slid: packet.slid.get(),
        dlid: packet.dlid.get(),
        port: place.port,
        kind: kind as u8,
        sl: packet.sl,
        opcode,
    };
    // SAFETY: The strings are that, and all of it exists until this returns.
    unsafe { trace(&event) };
}
