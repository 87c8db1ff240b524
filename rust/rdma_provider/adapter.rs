// SPDX-License-Identifier: GPL-2.0

//! The operations of a device.

use ib_fabric::{Arrival, LinkLayer, Mad, Verdict};
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::attributes::{Capabilities, PortAttributes};
use crate::faults::Faults;
use crate::handle::Handle;
use crate::netns::NetdevName;
use crate::qp::{Kind, Qp};

/// A channel adapter, as its driver sees it.
///
/// RDMA core checks port numbers and reference counts before it asks. Unless a method says otherwise, it is
/// called in process context, and several may run at a time.
pub trait Adapter: Send + Sync + 'static {
    /// Name of its devices, in which `%d` stands for a number.
    const NAME: &'static CStr;

    /// The way to RDMA core, which is open while the adapter is registered.
    fn handle(&self) -> &Handle;

    /// Faults that the device has been given.
    fn faults(&self) -> &Arc<Faults>;

    /// Number of ports, 1 or more; it does not change.
    fn ports(&self) -> u8;

    /// Link layer of all ports; it does not change.
    fn link_layer(&self) -> LinkLayer;

    /// Network device that an Ethernet port is to have.
    fn netdev(&self, port: u8) -> Option<NetdevName>;

    /// An Ethernet port's network device has this MTU now; or it does not run, has no carrier, or is gone.
    ///
    /// # Context
    ///
    /// Process context, under RTNL.
    fn netdev_changed(&self, port: u8, mtu: Option<u32>);

    /// Sets an entry of an Ethernet port's GID table, which RDMA core keeps; all zero for an unused one.
    ///
    /// # Errors
    ///
    /// `EINVAL` beyond the end of the table.
    fn set_gid(&self, port: u8, index: u16, gid: [u8; 16]) -> Result;

    /// Capabilities and limits; they do not change.
    fn capabilities(&self) -> Capabilities;

    /// Present attributes of a port.
    fn port(&self, port: u8) -> Result<PortAttributes>;

    /// Entry of an InfiniBand port's GID table. An unused one has the subnet prefix, and 0 for the GUID.
    ///
    /// # Errors
    ///
    /// `EINVAL` beyond the end of the table.
    fn gid(&self, port: u8, index: u32) -> Result<[u8; 16]>;

    /// Entry of a port's P_Key table, in host order; 0 if unused.
    ///
    /// # Errors
    ///
    /// `EINVAL` beyond the end of the table.
    fn pkey(&self, port: u8, index: u16) -> Result<u16>;

    /// Sets and clears bits of a port's CapabilityMask.
    fn set_capabilities(&self, port: u8, set: u32, clear: u32) -> Result;

    /// Sets the node description, which is padded with zeroes.
    fn set_description(&self, text: &[u8; 64]);

    /// The node description, padded with zeroes.
    fn description(&self) -> [u8; 64];

    /// Handles a management datagram that has come to a port, or that the host sends to itself.
    ///
    /// # Context
    ///
    /// Any; must not sleep.
    fn process_mad(&self, port: u8, arrival: &Arrival, request: &Mad, reply: &mut Mad) -> Verdict;

    /// Chooses the number of a queue pair that is being made.
    ///
    /// # Errors
    ///
    /// `EBUSY` for the second one of a special kind on a port, and `EINVAL` for one that such a port does not have;
    /// `ENOMEM` if there are no more.
    fn reserve_qp(&self, kind: Kind, port: u8) -> Result<u32>;

    /// Gives a number back whose queue pair was not made, or is gone. The arguments are those of the
    /// reservation.
    fn release_qp(&self, number: u32, kind: Kind, port: u8);

    /// A queue pair has been made, with a number that was reserved.
    fn add_qp(&self, qp: &Arc<Qp>);

    /// A queue pair has something to send: call [`Qp::transmit`] soon, from another context.
    ///
    /// # Context
    ///
    /// Any, possibly with interrupts disabled and locks of the ULP's held; must not sleep.
    fn ready(&self, qp: &Arc<Qp>);

    /// Lets a queue pair receive what is sent to a multicast group.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there is no more room for groups or members.
    fn attach(&self, qp: &Arc<Qp>, mgid: [u8; 16], mlid: u16) -> Result;

    /// Ends that.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the queue pair is not attached.
    fn detach(&self, qp: &Arc<Qp>, mgid: [u8; 16], mlid: u16) -> Result;

    /// RDMA core has let go of the device: call [`Qp::abandon`] for all queue pairs that there still are. Their ULPs
    /// could not destroy them.
    ///
    /// # Context
    ///
    /// As for [`Qp::abandon`]: call that without a lock.
    fn abandon(&self);
}
