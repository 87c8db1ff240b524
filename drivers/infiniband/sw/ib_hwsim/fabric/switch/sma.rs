// SPDX-License-Identifier: GPL-2.0

//! The subnet management agent of a switch (chapter 14), which acts for all of its ports.

use super::info::Limits;
use super::manage::Answer;
use super::{tables, Mapping, Memory, Switch};
use crate::addr::Lid;
use crate::bits::copy;
use crate::mad::{attribute, m_key, method, smp_data, smp_data_mut, Header, Mad, Status};
use crate::nodeinfo::{NodeInfo, NodeType};
use crate::sma::port_in_modifier;
use crate::{portinfo, settings};

/// Returns a value that was found, or the refusal of a field.
fn valid<T>(found: Option<T>) -> Result<T, Status> {
    found.ok_or(Status::InvalidField)
}

impl<M: Memory> Switch<M> {
    /// Answers a subnet management packet in place. It came in by port `ingress` from the LID
    /// `slid`. `None` if there is no answer.
    pub(super) fn answer_smp(&mut self, ingress: u8, slid: Lid, mad: &mut Mad) -> Option<Answer> {
        let header = Header::parse(mad);
        let Some(is_set) = header.is_set() else {
            if header.method == method::TRAP_REPRESS {
                self.traps.repress(self.ports.first()?, &header, mad);
            }
            return None;
        };
        let mut data = [0; 64];
        let done = if header.version_matches() {
            let own = self.ports.first_mut()?;
            if !own.m_key.check(m_key(mad), is_set) {
                self.traps.m_key_refused(own, slid, mad);
                return None;
            }
            let set = if is_set {
                self.set(&header, smp_data(mad))
            } else {
                Ok(None)
            };
            set.and_then(|retrain| {
                self.get(ingress, &header, m_key(mad), &mut data)?;
                Ok(retrain)
            })
        } else {
            Err(Status::BadVersion)
        };
        header.response(done.err()).write(mad);
        if done.is_ok() {
            copy(&data, smp_data_mut(mad));
        }
        Some(Answer {
            retrain: done.unwrap_or_default(),
        })
    }

    /// Writes an attribute. Returns the port that goes down.
    fn set(&mut self, header: &Header, data: &[u8]) -> Result<Option<u8>, Status> {
        let modifier = header.modifier;
        match header.attribute {
            attribute::SWITCH_INFO => {
                let limits = self.limits();
                valid(self.info.write(&limits, data))?;
            }
            attribute::PORT_INFO => {
                let number = valid(port_in_modifier(modifier))?;
                let port = valid(self.port_mut(number))?;
                let checked = valid(settings::Checked::new(port, data))?;
                let (_, retrain) = checked.apply(port, data);
                return Ok(retrain.then_some(number));
            }
            attribute::P_KEY_TABLE => {
                let port = valid(self.port_mut(upper_port(modifier)?))?;
                valid(port.pkeys.write(modifier as u16, data))?;
            }
            attribute::GUID_INFO => {
                let own = valid(self.port_mut(0))?;
                valid(own.addresses.write(modifier, data))?;
            }
            attribute::SL_TO_VL => copy(data, valid(self.mapping_mut(modifier))?),
            attribute::VL_ARBITRATION => {
                let port = valid(self.port_mut(lower_port(modifier)?))?;
                let block = (modifier >> 16) as u16;
                valid(port.lanes.write_arbitration(block, data))?;
            }
            attribute::LINEAR_FORWARDING => {
                valid(tables::write_routes(&mut self.routes, modifier, data))?;
            }
            attribute::MULTICAST_FORWARDING => {
                let all = self.external();
                valid(tables::write_groups(&mut self.groups, all, modifier, data))?;
            }
            _ => return Err(Status::MethodAttribute),
        }
        Ok(None)
    }

    /// Reads an attribute into `data`, which is zero before.
    fn get(
        &mut self,
        ingress: u8,
        header: &Header,
        key: u64,
        data: &mut [u8; 64],
    ) -> Result<(), Status> {
        let modifier = header.modifier;
        match header.attribute {
            attribute::NODE_DESCRIPTION => *data = self.description,
            attribute::NODE_INFO => self.read_node_info(ingress, data),
            attribute::SWITCH_INFO => self.info.read(&self.limits(), data),
            attribute::PORT_INFO => {
                let number = valid(port_in_modifier(modifier))?;
                let port = valid(self.port(number))?;
                let is_set = header.method == method::SET;
                let shown = port.m_key.visible_to(key, is_set);
                portinfo::read(port, ingress, shown, data);
            }
            attribute::P_KEY_TABLE => {
                let port = valid(self.port(upper_port(modifier)?))?;
                valid(port.pkeys.read(modifier as u16, data))?;
            }
            attribute::GUID_INFO => {
                let own = valid(self.port(0))?;
                valid(own.addresses.read(modifier, data))?;
            }
            attribute::SL_TO_VL => copy(valid(self.mapping_mut(modifier))?, data),
            attribute::VL_ARBITRATION => {
                let port = valid(self.port(lower_port(modifier)?))?;
                let block = (modifier >> 16) as u16;
                valid(port.lanes.read_arbitration(block, data))?;
            }
            attribute::LINEAR_FORWARDING => {
                valid(tables::read_routes(&self.routes, modifier, data))?;
            }
            attribute::MULTICAST_FORWARDING => {
                let all = self.external();
                valid(tables::read_groups(&self.groups, all, modifier, data))?;
            }
            _ => return Err(Status::MethodAttribute),
        }
        Ok(())
    }

    fn limits(&self) -> Limits {
        Limits {
            routes: self.routes.len(),
            groups: self.groups.len(),
            pkeys: self.config.pkeys,
        }
    }

    /// Returns the lanes that the modifier of SLtoVLMappingTable names: input port in bits 8 to
    /// 15, output port below.
    fn mapping_mut(&mut self, modifier: u32) -> Option<&mut Mapping> {
        let [0, 0, input, output] = modifier.to_be_bytes() else {
            return None;
        };
        let count = self.config.port_count();
        let (input, output) = (usize::from(input), usize::from(output));
        let row = input.checked_mul(count).filter(|_| output < count)?;
        self.lanes.get_mut(row.checked_add(output)?)
    }

    /// Writes NodeInfo as it is seen through a port.
    fn read_node_info(&self, ingress: u8, data: &mut [u8]) {
        let info = NodeInfo {
            node_type: NodeType::Switch,
            config: &self.config.as_adapter(),
            port_guid: self.config.node_guid,
            ingress,
        };
        info.read(data);
    }
}

/// Returns the port number in the upper half of a modifier.
fn upper_port(modifier: u32) -> Result<u8, Status> {
    valid(u8::try_from(modifier >> 16).ok())
}

/// Returns the port number in the lower half of a modifier.
fn lower_port(modifier: u32) -> Result<u8, Status> {
    valid(u8::try_from(modifier & 0xffff).ok())
}
