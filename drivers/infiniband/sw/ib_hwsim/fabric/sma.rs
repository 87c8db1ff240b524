// SPDX-License-Identifier: GPL-2.0

//! The subnet management agent of a channel adapter (chapter 14).

use crate::bits::copy;
use crate::event::{Event, Events};
use crate::hca::{Arrival, Hca, Outcome};
use crate::keys::Qpn;
use crate::mad::{attribute, class, method, DirectedRoute, Header, Mad, Status};
use crate::mad::{m_key, smp_data, smp_data_mut};
use crate::nodeinfo::{NodeInfo, NodeType};
use crate::port::Port;
use crate::{portinfo, settings};

/// The effects of a Set besides the new values.
#[derive(Default)]
struct Effects {
    events: Events,
    retrain: bool,
}

/// Returns the number in the modifier of PortInfo: the low 8 bits. Bit 31 says that the subnet
/// manager knows extended speeds, which these ports do not have.
pub(crate) fn port_in_modifier(modifier: u32) -> Option<u8> {
    u8::try_from(modifier & 0x7fff_ffff).ok()
}

/// Returns the port that the modifier of PortInfo names; zero stands for the one of arrival.
fn port_of_modifier(modifier: u32, ingress: u8) -> Option<u8> {
    match port_in_modifier(modifier)? {
        0 => Some(ingress),
        port => Some(port),
    }
}

/// The first of the ports whose M_Key forbids a request: that of the port that is asked counts as well as that of the
/// port that was reached.
fn locked(hca: &mut Hca, ports: [Option<u8>; 2], key: u64, is_set: bool) -> Option<u8> {
    let mut ports = ports.into_iter().flatten();
    ports.find(|&port| {
        let port = hca.port_mut(port);
        port.is_some_and(|port| !port.m_key.check(key, is_set))
    })
}

/// Answers a subnet management packet that came in by port `ingress`, which exists.
pub(crate) fn process(
    hca: &mut Hca,
    ingress: u8,
    arrival: &Arrival,
    request: &Mad,
    reply: &mut Mad,
) -> Outcome {
    let header = &Header::parse(request);
    let Some(is_set) = header.is_set() else {
        let ours = header.method == method::TRAP_REPRESS && hca.repress(ingress, header, request);
        return if ours {
            Outcome::consume(ingress)
        } else {
            Outcome::pass(ingress)
        };
    };
    let route = DirectedRoute::parse(request);
    let directed = header.class == class::SUBNET_DIRECTED;
    if header.attribute == attribute::SM_INFO || directed && route.returning {
        return Outcome::pass(ingress);
    }
    // Only the subnet management interface speaks to this agent (section 13.5).
    let foreign = !arrival.local && arrival.src_qp != Qpn::SMI.get();
    if foreign || directed && !route.has_arrived() {
        return Outcome::consume(ingress);
    }
    if !header.version_matches() {
        return Outcome::refuse(ingress, header, Status::BadVersion, request, reply);
    }
    let target = match header.attribute {
        attribute::PORT_INFO => port_of_modifier(header.modifier, ingress),
        _ => Some(ingress),
    };
    let key = m_key(request);
    if let Some(port) = locked(hca, [Some(ingress), target], key, is_set) {
        hca.note_m_key(port, arrival.slid, request);
        return Outcome::consume(ingress);
    }
    let effects = match target {
        Some(target) if is_set => set(hca, target, header, smp_data(request)),
        Some(_) => Ok(Effects::default()),
        None => Err(Status::InvalidField),
    };
    let target = target.unwrap_or(ingress);
    let mut data = [0; 64];
    let done = effects.and_then(|effects| {
        get(hca, (ingress, target), header, key, &mut data)?;
        Ok(effects)
    });
    match done {
        Ok(effects) => {
            *reply = *request;
            header.response(None).write(reply);
            copy(&data, smp_data_mut(reply));
            Outcome::reply(target, effects.events, effects.retrain)
        }
        Err(status) => Outcome::refuse(ingress, header, status, request, reply),
    }
}

/// Writes an attribute.
fn set(hca: &mut Hca, target: u8, header: &Header, data: &[u8]) -> Result<Effects, Status> {
    let port = hca.port_mut(target).ok_or(Status::InvalidField)?;
    let low = header.modifier as u16;
    let high = (header.modifier >> 16) as u16;
    let changed = |changed: Option<bool>, event| -> Result<Effects, Status> {
        let mut effects = Effects::default();
        effects
            .events
            .add_if(changed.ok_or(Status::InvalidField)?, event);
        Ok(effects)
    };
    match header.attribute {
        attribute::PORT_INFO => {
            let checked = settings::Checked::new(port, data).ok_or(Status::InvalidField)?;
            let (events, retrain) = checked.apply(port, data);
            Ok(Effects { events, retrain })
        }
        attribute::P_KEY_TABLE => changed(port.pkeys.write(low, data), Event::PKeyChange),
        attribute::GUID_INFO => changed(
            port.addresses.write(header.modifier, data),
            Event::GidChange,
        ),
        attribute::SL_TO_VL => {
            port.lanes.write_mapping(data);
            Ok(Effects::default())
        }
        attribute::VL_ARBITRATION => {
            let written = port.lanes.write_arbitration(high, data);
            written.ok_or(Status::InvalidField)?;
            Ok(Effects::default())
        }
        _ => Err(Status::MethodAttribute),
    }
}

/// Reads an attribute of a port into `data`, which is zero before. The request came in by port `ingress` with an M_Key.
fn get(
    hca: &Hca,
    (ingress, target): (u8, u8),
    header: &Header,
    key: u64,
    data: &mut [u8; 64],
) -> Result<(), Status> {
    let port = hca.port(target).ok_or(Status::InvalidField)?;
    let low = header.modifier as u16;
    let high = (header.modifier >> 16) as u16;
    let read = match header.attribute {
        attribute::NODE_DESCRIPTION => {
            *data = *hca.description();
            Some(())
        }
        attribute::NODE_INFO => {
            read_node_info(hca, port, data);
            Some(())
        }
        attribute::PORT_INFO => {
            let is_set = header.method == method::SET;
            let shown = port.m_key.visible_to(key, is_set);
            portinfo::read(port, ingress, shown, data);
            Some(())
        }
        attribute::SL_TO_VL => {
            port.lanes.read_mapping(data);
            Some(())
        }
        attribute::P_KEY_TABLE => port.pkeys.read(low, data),
        attribute::GUID_INFO => port.addresses.read(header.modifier, data),
        attribute::VL_ARBITRATION => port.lanes.read_arbitration(high, data),
        _ => return Err(Status::MethodAttribute),
    };
    read.ok_or(Status::InvalidField)
}

/// Writes NodeInfo as it is seen through a port.
fn read_node_info(hca: &Hca, port: &Port, data: &mut [u8]) {
    let info = NodeInfo {
        node_type: NodeType::ChannelAdapter,
        config: hca.identity(),
        port_guid: port.guid(),
        ingress: port.number(),
    };
    info.read(data);
}
