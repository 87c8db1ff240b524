// SPDX-License-Identifier: GPL-2.0

//! Events that an adapter is to report (section 11.6.3).

use core::fmt::{self, Display, Formatter};

use crate::text::{self, words};

words! {
    /// An event.
    pub enum EventName {
        /// The adapter has failed.
        DeviceFatal = "device_fatal",
        /// The link of a port has become active.
        PortActive = "port_active",
        /// The link of a port is not active any more.
        PortError = "port_error",
        /// A LID has changed.
        LidChange = "lid_change",
        /// The subnet manager has changed.
        SmChange = "sm_change",
        /// The subnet manager wants subscriptions and memberships anew.
        ClientReregister = "client_reregister",
        /// A P_Key table has changed.
        PKeyChange = "pkey_change",
        /// A GID table has changed.
        GidChange = "gid_change",
        /// The speed of a link has changed.
        SpeedChange = "speed_change",
        /// Too many packets have come to a port with a wrong CRC.
        LinkIntegrity = "link_integrity",
        /// A port has run out of room for what came, time and again.
        BufferOverrun = "buffer_overrun",
        /// The other end of a port's link has told of no credits for too long.
        FlowControl = "flow_control",
        /// A queue pair has failed.
        QpFatal = "qp_fatal",
        /// The other end of a queue pair has asked for what cannot be done.
        QpRequest = "qp_request_error",
        /// The other end of a queue pair has asked for memory that is not its to use.
        QpAccess = "qp_access_error",
        /// The first packet of a connection has come.
        Established = "comm_established",
        /// A send queue has drained.
        Drained = "sq_drained",
        /// A connection has migrated to its alternate path.
        Migrated = "path_migrated",
        /// A connection could not.
        MigrationError = "path_migration_error",
        /// A queue pair takes no more requests from its shared receive queue.
        LastWqe = "last_wqe_reached",
        /// The completion queues of a queue pair have failed.
        CqError = "cq_error",
        /// The shared receive queue of a queue pair has failed.
        SrqError = "srq_error",
        /// The shared receive queue of a queue pair runs empty.
        SrqLimit = "srq_limit",
    }
}

impl EventName {
    const fn scope(self) -> Scope {
        match self {
            EventName::DeviceFatal => Scope::Device,
            EventName::PortActive
            | EventName::PortError
            | EventName::LidChange
            | EventName::SmChange
            | EventName::ClientReregister
            | EventName::PKeyChange
            | EventName::GidChange
            | EventName::SpeedChange
            | EventName::LinkIntegrity
            | EventName::BufferOverrun
            | EventName::FlowControl => Scope::Port,
            _ => Scope::Qp,
        }
    }
}

/// Kind of object that an event concerns.
enum Scope {
    Device,
    Port,
    Qp,
}

/// That of an adapter which an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The adapter as a whole.
    Device,
    /// A port, from 1; there may not be one of that number.
    Port(u8),
    /// All queue pairs.
    AllQps,
    /// The queue pair with a number of 24 bits; there may be none, or one on each port.
    Qp(u32),
}

/// An event that is to be reported. As a text, the name; and behind one of a port, its number (1 if it is
/// left out), behind one of a queue pair its number, decimal or behind `0x` hexadecimal, or `all`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// The event.
    pub event: EventName,
    /// The object that it concerns.
    pub target: Target,
}

impl Order {
    /// Parses the text.
    pub fn parse(text: &str) -> Option<Order> {
        let mut words = text.split_ascii_whitespace();
        let event = EventName::parse(words.next()?)?;
        let target = match (event.scope(), words.next()) {
            (Scope::Device, None) => Target::Device,
            (Scope::Device, Some(_)) | (Scope::Qp, None) => return None,
            (Scope::Port, None) => Target::Port(1),
            (Scope::Port, Some(port)) => {
                Target::Port(u8::try_from(text::number(port, 1..=u8::MAX.into())?).ok()?)
            }
            (Scope::Qp, Some("all")) => Target::AllQps,
            (Scope::Qp, Some(number)) => Target::Qp(qp_number(number)?),
        };
        words.next().is_none().then_some(Order { event, target })
    }

    /// Returns whether the event is about a queue pair with this number.
    pub fn is_for(&self, number: u32) -> bool {
        match self.target {
            Target::AllQps => true,
            Target::Qp(wanted) => wanted == number,
            Target::Device | Target::Port(_) => false,
        }
    }
}

impl Display for Order {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let event = self.event;
        match self.target {
            Target::Device => write!(f, "{event}"),
            Target::Port(port) => write!(f, "{event} {port}"),
            Target::AllQps => write!(f, "{event} all"),
            Target::Qp(number) => write!(f, "{event} {number:#x}"),
        }
    }
}

/// Parses the number of a queue pair.
fn qp_number(text: &str) -> Option<u32> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    if !digits.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return None;
    }
    let number = u32::from_str_radix(digits, radix).ok()?;
    (number < 1 << 24).then_some(number)
}
