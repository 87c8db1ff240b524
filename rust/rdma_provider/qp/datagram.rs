// SPDX-License-Identifier: GPL-2.0

//! Datagrams, from a send queue to a receive queue.

use ib_fabric::roce::Network;
use ipoib_sys::bindings;
use kernel::prelude::*;
use kernel::sync::Arc;

use super::frames::{self, Progress, ROUTE_ROOM};
use super::queue::What;
use super::{Kind, Payload, Qp, Refused, SendSide};
use crate::memory::{length, permitted, Cursor, Denied, Piece, Side};
use crate::region::Right;
use crate::state::State;
use crate::wakeups::Wakeups;
use crate::work::{as_raw, Send, Status};

/// Header fields of a message that a receive completion shows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meta {
    /// Source queue pair.
    pub src_qp: u32,
    /// Source LID.
    pub slid: u16,
    /// Service level.
    pub sl: u8,
    /// Bits of the destination LID below the LID mask.
    pub path_bits: u8,
    /// Index of the P_Key in the receiving port's table.
    pub pkey_index: u16,
    /// Immediate data, in network order.
    pub immediate: Option<[u8; 4]>,
    /// True if the sender wants the receiver told.
    pub solicited: bool,
    /// Global route header as it was on the wire, if there was one; on Ethernet, the header of IP.
    pub route: Option<[u8; 40]>,
    /// Version of IP, on Ethernet.
    pub network: Option<Network>,
}

impl Meta {
    /// Fills in the fields of a completion.
    fn fill(&self, wc: &mut bindings::ib_wc) {
        wc.opcode = bindings::ib_wc_opcode_IB_WC_RECV;
        wc.src_qp = self.src_qp;
        wc.slid = self.slid.into();
        wc.sl = self.sl;
        wc.dlid_path_bits = self.path_bits;
        wc.pkey_index = self.pkey_index;
        if self.route.is_some() {
            wc.wc_flags |= bindings::ib_wc_flags_IB_WC_GRH as i32;
        }
        if let Some(network) = self.network {
            wc.wc_flags |= bindings::ib_wc_flags_IB_WC_WITH_NETWORK_HDR_TYPE as i32;
            wc.network_hdr_type = match network {
                Network::V4 => bindings::rdma_network_type_RDMA_NETWORK_IPV4 as u8,
                Network::V6 => bindings::rdma_network_type_RDMA_NETWORK_IPV6 as u8,
            };
        }
        if let Some(immediate) = self.immediate {
            wc.wc_flags |= bindings::ib_wc_flags_IB_WC_WITH_IMM as i32;
            wc.ex.imm_data = u32::from_ne_bytes(immediate);
        }
    }
}

impl Qp {
    /// Sends the oldest request of the send queue: `deliver` gets it, with its payload, and says how it
    /// ended. One that is to be segmented is given in parts, each like a request of its own, and may take several
    /// calls. False if there is none to be sent.
    ///
    /// # Context
    ///
    /// Any. Hold no lock of this crate's, and none that `deliver` takes. `deliver` runs with interrupts
    /// disabled.
    pub fn transmit(
        &self,
        wakeups: &mut Wakeups,
        mut deliver: impl FnMut(&mut Wakeups, &Send, &Payload<'_>) -> Status,
    ) -> bool {
        let mut side = self.sends.lock();
        let side = &mut *side;
        self.catch_up(side, wakeups);
        if side.attributes.state != State::ReadyToSend {
            return false;
        }
        let Some((entry, pieces)) = side.queue.first() else {
            return false;
        };
        let What::Datagram(mut request, offload) = entry.what else {
            return false;
        };
        // The high bit says that the queue pair's own is meant (section 10.2.5).
        if request.qkey & 1 << 31 != 0 {
            request.qkey = side.attributes.qkey;
        }
        if self.fixed.kind != Kind::Gsi {
            request.pkey_index = side.attributes.pkey_index;
        }
        let status = if request.to.port != side.attributes.port {
            Status::LocalOperation
        } else if permitted(&self.fixed.domain, pieces, Right::LocalRead) {
            let domain = &self.fixed.domain;
            // SAFETY: The request is in its queue, whose lock is held.
            let payload =
                unsafe { Payload::new(Some(domain), Right::LocalRead, pieces, 0, request.len) };
            let status = if offload.is_none() {
                deliver(wakeups, &request, &payload)
            } else {
                let header = side.queue.header();
                let mut deliver =
                    |request: &Send, payload: &Payload<'_>| deliver(wakeups, request, payload);
                match offload.send(header, &request, &payload, &mut deliver) {
                    Progress::Done(status) => status,
                    Progress::Sent(segments) => {
                        side.queue.note_sent(segments);
                        return true;
                    }
                }
            };
            if payload.is_cut_off() {
                Status::LocalProtection
            } else {
                self.send_status(status)
            }
        } else {
            Status::LocalProtection
        };
        self.finish_sends(&mut side.queue, 1, status, wakeups);
        if status != Status::Success {
            self.fail_sends(side, wakeups);
        }
        true
    }

    /// Takes the queue pair to the state Send Queue Error, since a request has failed.
    fn fail_sends(&self, side: &mut SendSide, wakeups: &mut Wakeups) {
        side.attributes.state = State::SendQueueError;
        let mut other = self.receives.lock();
        if other.state != State::Error {
            other.state = State::SendQueueError;
        }
        drop(other);
        self.flush_sends(&mut side.queue, wakeups);
    }

    /// Puts a message that came to a port into the oldest receive request. `check` gets the index of the queue
    /// pair's P_Key and its Q_Key; it refuses the message, or returns the header fields for the completion.
    ///
    /// # Errors
    ///
    /// See [`Refused`]. The message is gone. After [`Refused::Protection`], call [`Qp::transmit`] for this queue pair
    /// soon, from another context.
    ///
    /// # Context
    ///
    /// In the callback of [`Qp::transmit`]. `check` runs with interrupts disabled.
    pub fn receive<E>(
        self: &Arc<Self>,
        wakeups: &mut Wakeups,
        port: u8,
        payload: &Payload<'_>,
        check: impl FnOnce(u16, u32) -> Result<Meta, E>,
    ) -> Result<(), Refused<E>> {
        let mut side = self.receives.lock();
        if !side.state.receives() || side.port != port {
            return Err(Refused::State);
        }
        let meta = check(side.path.pkey_index, side.qkey).map_err(Refused::Driver)?;
        let Some((&entry, pieces)) = side.queue.first() else {
            return Err(Refused::NoRequest);
        };
        let len = ROUTE_ROOM + payload.len();
        if len > length(pieces) {
            return Err(Refused::TooLong);
        }
        // SAFETY: The request is in its queue, whose lock is held.
        let allowed = match unsafe { self.put(pieces, &meta, payload) } {
            Ok(()) => true,
            Err(Side::To) => false,
            // The request is as good as before, and the sender's fails.
            Err(Side::From) => return Err(Refused::Payload),
        };
        let mut flags = 0;
        let status = if allowed {
            // SAFETY: The request is in its queue, whose lock is held.
            let check = || unsafe { frames::is_right(&self.fixed.domain, pieces, payload.len()) };
            if self.fixed.abilities.checksum && check() {
                flags = bindings::ib_wc_flags_IB_WC_IP_CSUM_OK as i32;
            }
            self.receive_status()
        } else {
            Status::LocalProtection
        };
        let allowed = status == Status::Success;
        side.queue.pop();
        side.queue.count_end(status, payload.len() as u64);
        let mut wc = bindings::ib_wc {
            status: as_raw(status),
            wc_flags: flags,
            byte_len: len as u32,
            qp: self.fixed.raw,
            ..pin_init::zeroed()
        };
        wc.__bindgen_anon_1.wr_id = entry.wr_id;
        meta.fill(&mut wc);
        self.distort(&mut wc);
        let wake = self.fixed.receive_cq.push(wc, meta.solicited || !allowed);
        wakeups.add(&self.fixed.receive_cq, wake);
        if allowed {
            return Ok(());
        }
        self.break_receives(&mut side, None, wakeups);
        // The lock of the sending half is not to be had here.
        side.broken = true;
        Err(Refused::Protection)
    }

    /// Writes a datagram and what is in front of it to the memory of a receive request.
    ///
    /// # Errors
    ///
    /// The side whose memory is not to be used.
    ///
    /// # Safety
    ///
    /// The request must be in its queue, and stay there meanwhile.
    unsafe fn put(&self, pieces: &[Piece], meta: &Meta, payload: &Payload<'_>) -> Result<(), Side> {
        if !permitted(&self.fixed.domain, pieces, Right::LocalWrite) {
            return Err(Side::To);
        }
        // SAFETY: By the safety requirement.
        let mut to = unsafe { Cursor::new(Some(&self.fixed.domain), Right::LocalWrite, pieces, 0) };
        let header = meta.route.unwrap_or([0; ROUTE_ROOM]);
        to.put(&header).map_err(|Denied| Side::To)?;
        payload.copy(0, &mut to, payload.len())
    }
}
