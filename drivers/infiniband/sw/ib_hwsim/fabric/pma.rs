// SPDX-License-Identifier: GPL-2.0

//! The performance management agent of a node (section 16.1).

use crate::bits::{copy, Field};
use crate::counters::Counters;
use crate::event::Events;
use crate::hca::{Hca, Outcome};
use crate::mad::{attribute, pm_data, pm_data_mut, Header, Mad, Status};
use crate::mad::{BASE_VERSION, CLASS_VERSION};
use crate::port::Port;
use crate::portinfo::RESPONSE_TIME;

/// The fields of ClassPortInfo (section 13.4.8.1) that are not zero.
mod class_port_info {
    use super::Field;

    pub(super) const BASE_VERSION: Field = Field::bytes(0, 1);
    pub(super) const CLASS_VERSION: Field = Field::bytes(1, 1);
    pub(super) const CAPABILITY_MASK: Field = Field::bytes(2, 2);
    pub(super) const RESP_TIME_VALUE: Field = Field::bits(7, 0, 5);

    /// PortSelect 255 stands for all ports.
    pub(super) const ALL_PORT_SELECT: u16 = 1 << 8;
    /// PortCounters has PortXmitWait.
    pub(super) const XMIT_WAIT: u16 = 1 << 12;
    /// PortCountersExtended exists.
    pub(super) const EXTENDED_WIDTH: u16 = 1 << 9;
}

/// PortSelect, at one place in both attributes of counters.
const PORT_SELECT: Field = Field::bytes(1, 1);

/// The PortSelect that stands for all ports: their counters are summed up, or all written.
const ALL_PORTS: u8 = 0xff;

/// CounterSelect, at one place in both attributes of counters.
const COUNTER_SELECT: Field = Field::bytes(2, 2);

/// Answers a performance management datagram that came in by port `ingress`, which exists.
pub(crate) fn process(
    hca: &mut Hca,
    ingress: u8,
    header: &Header,
    request: &Mad,
    reply: &mut Mad,
) -> Outcome {
    let Some(is_set) = header.is_set() else {
        return Outcome::pass(ingress);
    };
    let mut data = [0; 192];
    match answer(hca.ports_mut(), header, is_set, pm_data(request), &mut data) {
        Ok(()) => {
            *reply = *request;
            header.response(None).write(reply);
            copy(&data, pm_data_mut(reply));
            Outcome::reply(ingress, Events::NONE, false)
        }
        Err(status) => Outcome::refuse(ingress, header, status, request, reply),
    }
}

/// Carries out a Set, then reads the attribute into `data`, which is zero before.
///
/// # Errors
///
/// The reason to refuse the request.
pub(crate) fn answer(
    ports: &mut [Port],
    header: &Header,
    is_set: bool,
    request: &[u8],
    data: &mut [u8],
) -> Result<(), Status> {
    if !header.version_matches() {
        return Err(Status::BadVersion);
    }
    let extended = match (header.attribute, is_set) {
        (attribute::PORT_COUNTERS, _) => Some(false),
        (attribute::PORT_COUNTERS_EXTENDED, _) => Some(true),
        (attribute::CLASS_PORT_INFO, false) => None,
        _ => return Err(Status::MethodAttribute),
    };
    if header.modifier != 0 {
        return Err(Status::InvalidField);
    }
    let Some(extended) = extended else {
        read_class_port_info(data);
        return Ok(());
    };
    let select = PORT_SELECT.u8(request);
    let picked = COUNTER_SELECT.u16(request);
    let mut sum = Counters::default();
    let mut found = false;
    let chosen = |port: &&mut Port| select == ALL_PORTS || port.number() == select;
    for port in ports.iter_mut().filter(chosen) {
        match (extended, is_set) {
            (false, true) => port.counters.write(picked, request),
            (true, true) => port.counters.write_extended(picked, request),
            _ => {}
        }
        sum.add_all(&port.counters);
        found = true;
    }
    if !found {
        return Err(Status::InvalidField);
    }
    PORT_SELECT.put(data, select);
    COUNTER_SELECT.put(data, picked);
    if extended {
        sum.read_extended(data);
    } else {
        sum.read(data);
    }
    Ok(())
}

/// Writes ClassPortInfo.
fn read_class_port_info(data: &mut [u8]) {
    let capabilities = class_port_info::ALL_PORT_SELECT
        | class_port_info::EXTENDED_WIDTH
        | class_port_info::XMIT_WAIT;
    class_port_info::BASE_VERSION.put(data, BASE_VERSION);
    class_port_info::CLASS_VERSION.put(data, CLASS_VERSION);
    class_port_info::CAPABILITY_MASK.put(data, capabilities);
    class_port_info::RESP_TIME_VALUE.put(data, RESPONSE_TIME);
}
