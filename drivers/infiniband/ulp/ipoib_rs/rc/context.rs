// SPDX-License-Identifier: GPL-2.0

//! Objects that all connections of an interface share while it is up, and the terms that both ends of one agree on.

use ipoib_proto::cm::{self, Extension, PrivateData};
use ipoib_proto::credit;
use ipoib_proto::gid::Gid;
use ipoib_proto::header::Header;
use ipoib_proto::hwaddr::{Flags, Qpn};
use ipoib_proto::mtu;
use ipoib_proto::pkey::PKey;
use ipoib_proto::rc::EXTENDED_HEADERS;
use ipoib_rdma::{Cq, Intake, Pd};
use kernel::sync::Arc;

use crate::base::settings::Settings;

/// The longest message that we receive: the largest IP packet behind an extended header.
pub(crate) const MAX_MESSAGE: u32 = 65_535 + EXTENDED_HEADERS as u32;

/// Objects that all connections of an interface share while it is up.
pub(crate) struct RcContext {
    pub(crate) pd: Arc<Pd>,
    pub(crate) intake: Arc<Intake>,
    pub(crate) send_cq: Arc<Cq>,
    pub(crate) recv_cq: Arc<Cq>,
    pub(crate) max_sge: u32,
    pub(crate) settings: Arc<Settings>,
    /// Our GID and UD queue pair.
    pub(crate) gid: Gid,
    pub(crate) qpn: Qpn,
    pub(crate) pkey: PKey,
    /// The port's IB MTU in bytes.
    pub(crate) ib_mtu: u32,
}

impl RcContext {
    /// Private data for a connection, with the extension if it is to be `extended`. `width` is the number of messages that the
    /// peer may send at first; 0 if we asked.
    pub(crate) fn private_data(&self, width: u16, number: u8, extended: bool) -> PrivateData {
        let settings = &self.settings;
        let flags = Flags::SEQ.union(if settings.icrc() {
            Flags::ICRC
        } else {
            Flags::NONE
        });
        PrivateData {
            qpn: self.qpn,
            receive_mtu: mtu::MAX_CONNECTED + Header::LEN as u32,
            extension: extended.then_some(Extension {
                flags,
                credits: width,
                max_message: MAX_MESSAGE,
                channel: number,
            }),
        }
    }

    /// Terms that both ends support.
    pub(crate) fn terms(&self, peer: &PrivateData) -> Negotiated {
        let mtu = cm::connection_mtu(mtu::MAX_CONNECTED + Header::LEN as u32, peer.receive_mtu);
        let settings = &self.settings;
        let extension = peer
            .extension
            .filter(|extension| settings.extensions() && extension.flags.contains(Flags::SEQ));
        let Some(extension) = extension else {
            return Negotiated {
                mtu,
                ..Negotiated::NONE
            };
        };
        let icrc = settings.icrc() && extension.flags.contains(Flags::ICRC);
        let largest = extension.max_message.min(MAX_MESSAGE);
        Negotiated {
            mtu,
            extended: true,
            icrc,
            // Each segment gets a checksum of its own, so that one goes with the other.
            max_large: if icrc && settings.large_frames() {
                largest.saturating_sub(EXTENDED_HEADERS as u32)
            } else {
                0
            },
            max_pieces: self.max_sge,
            credits: extension.credits.min(credit::MAX_WIDTH),
        }
    }
}

/// Terms that both ends of a connection have agreed on.
#[derive(Clone, Copy)]
pub(crate) struct Negotiated {
    /// The largest IP packet.
    pub(crate) mtu: u32,
    /// The other end takes extended frames, and limits what we may send.
    pub(crate) extended: bool,
    /// The other end takes packets whose checksum was not computed.
    pub(crate) icrc: bool,
    /// The largest IP packet that the other end may have to segment; 0 for none.
    pub(crate) max_large: u32,
    /// The most pieces of memory that such a one is sent from.
    pub(crate) max_pieces: u32,
    /// Messages that may be sent at first.
    pub(crate) credits: u16,
}

impl Negotiated {
    /// Before anything is agreed on.
    pub(crate) const NONE: Negotiated = Negotiated {
        mtu: 0,
        extended: false,
        icrc: false,
        max_large: 0,
        max_pieces: 0,
        credits: 0,
    };
}
