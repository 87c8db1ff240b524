// SPDX-License-Identifier: GPL-2.0

//! The management agents of a channel adapter, and the datagrams that are for each.

use crate::config::LinkLayer;
use crate::hca::{Arrival, Hca, Outcome};
use crate::mad::{class, Header, Mad};
use crate::{pma, sma};

impl Hca {
    /// Answers a management datagram that came in by a port, from 1.
    ///
    /// `reply` is written only if the verdict is [`Verdict::Reply`]. The datagrams that the
    /// adapter answers are Get and Set of subnet management, except SMInfo, and of performance
    /// management. It takes those TrapRepress that answer its own traps.
    pub fn process_mad(
        &mut self,
        port: u8,
        arrival: &Arrival,
        request: &Mad,
        reply: &mut Mad,
    ) -> Outcome {
        if self.port(port).is_none() {
            return Outcome::consume(port);
        }
        let header = Header::parse(request);
        let subnet = matches!(header.class, class::SUBNET_LID | class::SUBNET_DIRECTED);
        if subnet && self.identity().link_layer == LinkLayer::Ethernet {
            return Outcome::consume(port);
        }
        match header.class {
            class::SUBNET_LID | class::SUBNET_DIRECTED => {
                sma::process(self, port, arrival, request, reply)
            }
            class::PERFORMANCE => pma::process(self, port, &header, request, reply),
            _ => Outcome::pass(port),
        }
    }
}
