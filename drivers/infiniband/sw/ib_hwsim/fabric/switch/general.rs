// SPDX-License-Identifier: GPL-2.0

//! General services at port 0: performance management, and nothing else.

use super::manage::Answer;
use super::{Managed, Memory, Switch};
use crate::bits::copy;
use crate::counters::Counted;
use crate::keys::{PKey, QKey, Qpn};
use crate::mad::{class, pm_data, pm_data_mut, Header, Mad};
use crate::packet::{Packet, Transport};
use crate::pma;

impl<M: Memory> Switch<M> {
    /// Answers a general management datagram (section 16.1), of which the header is right but
    /// for queue pairs and keys.
    pub(super) fn manage_general(&mut self, packet: &mut Packet, mad: &mut Mad) -> Managed {
        let Some(pkey) = self.check_keys(packet) else {
            return Managed::DROP;
        };
        let header = Header::parse(mad);
        if packet.dest_qp != Qpn::GSI.get() || header.class != class::PERFORMANCE {
            return Managed::DROP;
        }
        let Some(is_set) = header.is_set() else {
            return Managed::DROP;
        };
        let mut data = [0; 192];
        let done = pma::answer(&mut self.ports, &header, is_set, pm_data(mad), &mut data);
        header.response(done.err()).write(mad);
        if done.is_ok() {
            copy(&data, pm_data_mut(mad));
        }

        packet.dlid = packet.slid;
        packet.slid = self.own_lid();
        packet.pkey = pkey;
        packet.dest_qp = packet.source_qp();
        packet.transport = Transport::datagram(Qpn::GSI.get(), QKey::GSI.get());
        if let Some(grh) = &mut packet.grh {
            grh.dgid = grh.sgid;
            grh.sgid = self.port(0).and_then(|own| own.gid(0)).unwrap_or_default();
        }
        let out = self.route(packet.dlid);
        self.send(out, packet, Answer::default())
    }

    /// Checks the P_Key and the Q_Key. Returns the P_Key of the answer.
    fn check_keys(&mut self, packet: &Packet) -> Option<u16> {
        let own = self.ports.first_mut()?;
        let index = own.find_pkey(PKey::new(packet.pkey));
        let Some(pkey) = index.and_then(|index| own.pkey(index)) else {
            own.count(Counted::PKeyViolation);
            self.traps.pkey_refused(own, packet);
            return None;
        };
        if packet.qkey() != QKey::GSI.get() {
            own.count(Counted::QKeyViolation);
            self.traps.qkey_refused(own, packet);
            return None;
        }
        Some(pkey)
    }
}
