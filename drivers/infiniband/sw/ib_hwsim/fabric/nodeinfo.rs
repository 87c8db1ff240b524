// SPDX-License-Identifier: GPL-2.0

//! NodeInfo (section 14.2.5.3): the constants of a node, as it is seen through a port.

use crate::addr::Guid;
use crate::config::Config;
use crate::mad::{BASE_VERSION, CLASS_VERSION};

/// The fields, by the names of the specification.
mod field {
    use crate::bits::Field;

    pub(super) const BASE_VERSION: Field = Field::bytes(0, 1);
    pub(super) const CLASS_VERSION: Field = Field::bytes(1, 1);
    pub(super) const NODE_TYPE: Field = Field::bytes(2, 1);
    pub(super) const NUM_PORTS: Field = Field::bytes(3, 1);
    pub(super) const SYSTEM_IMAGE_GUID: Field = Field::bytes(4, 8);
    pub(super) const NODE_GUID: Field = Field::bytes(12, 8);
    pub(super) const PORT_GUID: Field = Field::bytes(20, 8);
    pub(super) const PARTITION_CAP: Field = Field::bytes(28, 2);
    pub(super) const DEVICE_ID: Field = Field::bytes(30, 2);
    pub(super) const REVISION: Field = Field::bytes(32, 4);
    pub(super) const LOCAL_PORT_NUM: Field = Field::bytes(36, 1);
    pub(super) const VENDOR_ID: Field = Field::bytes(37, 3);
}

/// A NodeType, which is also a ProducerType of notices (section 13.4.8.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum NodeType {
    ChannelAdapter = 1,
    Switch = 2,
}

/// The constants of a node.
pub(crate) struct NodeInfo<'a> {
    pub(crate) node_type: NodeType,
    /// Those of an adapter; of a switch, see [`SwitchConfig::as_adapter`](crate::SwitchConfig::as_adapter).
    pub(crate) config: &'a Config,
    /// The GUID of the port that the request came in by; of a switch, of port 0.
    pub(crate) port_guid: Guid,
    /// The port that the request came in by.
    pub(crate) ingress: u8,
}

impl NodeInfo<'_> {
    /// Writes the attribute into `data`, which is zero before.
    pub(crate) fn read(&self, data: &mut [u8]) {
        field::BASE_VERSION.put(data, BASE_VERSION);
        field::CLASS_VERSION.put(data, CLASS_VERSION);
        field::NODE_TYPE.put(data, self.node_type as u8);
        field::NUM_PORTS.put(data, self.config.ports);
        field::SYSTEM_IMAGE_GUID.put(data, self.config.system_guid.get());
        field::NODE_GUID.put(data, self.config.node_guid.get());
        field::PORT_GUID.put(data, self.port_guid.get());
        field::PARTITION_CAP.put(data, self.config.pkeys);
        field::DEVICE_ID.put(data, self.config.device_id);
        field::REVISION.put(data, self.config.revision);
        field::LOCAL_PORT_NUM.put(data, self.ingress);
        field::VENDOR_ID.put(data, self.config.vendor_id);
    }
}
