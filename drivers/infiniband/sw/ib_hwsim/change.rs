// SPDX-License-Identifier: GPL-2.0

//! Changes of a fabric, one after the other: its nodes are switched on and off, and its cables plugged.

use debugfs_files::Dir;
use ib_fabric::topology::{Ends, FarEnd, Name, NodeKind, NodePlan};
use kernel::prelude::*;
use kernel::str::CString;
use kernel::sync::lock::mutex::MutexGuard;
use kernel::sync::{new_mutex, Arc, Mutex};

use crate::cable::Cable;
use crate::power::{HcaNode, Site, SwitchNode};
use crate::topology::{Plug, Power, Topology};
use crate::trunk::TrunkCable;

/// A fabric, which its directories have in common.
///
/// Whoever changes it takes `turn`, and `topology` under that for as long as it takes to look something up or to put
/// it down. Devices are registered and cables plugged without the latter: whoever reads does not wait for RDMA core.
#[pin_data]
pub(crate) struct Fabric {
    #[pin]
    turn: Mutex<()>,
    /// To be read; see [`Change::topology`].
    #[pin]
    pub(crate) topology: Mutex<Topology>,
}

impl Fabric {
    /// A new fabric, which is not live.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(name: Name, files: &Arc<Dir>) -> Result<Arc<Self>> {
        let topology = Topology::new(name, files.clone());
        Arc::pin_init(
            pin_init!(Self {
                turn <- new_mutex!((), "ib_hwsim::turn"),
                topology <- new_mutex!(topology, "ib_hwsim::topology"),
            }),
            GFP_KERNEL,
        )
    }

    /// Waits for all changes that have begun, and begins another one.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub(crate) fn change(&self) -> Change<'_> {
        Change {
            topology: &self.topology,
            _turn: self.turn.lock(),
        }
    }
}

/// A change of a fabric. There is no other one until this is dropped.
pub(crate) struct Change<'a> {
    topology: &'a Mutex<Topology>,
    _turn: MutexGuard<'a, ()>,
}

impl<'a> Change<'a> {
    /// The topology, for a change that needs no RDMA core.
    pub(crate) fn topology(&self) -> MutexGuard<'a, Topology> {
        self.topology.lock()
    }

    /// Makes the fabric live: switches all nodes on, and then plugs all cables. Where it is live already, nothing
    /// changes.
    ///
    /// # Errors
    ///
    /// `EINVAL` if such a fabric cannot be, with a line in the log; and those of making devices. Nothing is
    /// switched on then.
    pub(crate) fn go_live(&self) -> Result {
        {
            let mut topology = self.topology();
            if topology.live() {
                return Ok(());
            }
            topology.begin()?;
        }
        let done = self.raise();
        match done {
            Ok(()) => self.topology().went_live(),
            Err(_) => self.go_down(),
        }
        done
    }

    fn raise(&self) -> Result {
        for at in 0.. {
            let Some(plan) = self.topology().node_at(at) else {
                break;
            };
            self.switch_on(plan)?;
        }
        for at in 0.. {
            let Some(name) = self.topology().cable_at(at) else {
                break;
            };
            self.connect(name)?;
        }
        Ok(())
    }

    /// Ends the fabric: switches all nodes off, those that came last first.
    pub(crate) fn go_down(&self) {
        let nodes = self.topology().node_count();
        for at in (0..nodes).rev() {
            let plan = self.topology().node_at(at);
            if let Some(plan) = plan {
                self.switch_off(plan.name());
            }
        }
        let files = self.topology().end();
        // Without the lock.
        drop(files);
    }

    /// Switches a node of a live fabric on or off.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it cannot be switched on now, with a line in the log; and those of making devices.
    pub(crate) fn set_power(&self, name: Name, on: bool) -> Result {
        let plan = {
            let topology = self.topology();
            if on == topology.powered(name)? {
                return Ok(());
            }
            on.then(|| topology.may_be_on(name)).transpose()?
        };
        match plan {
            Some(plan) => self.switch_on(plan),
            None => {
                self.switch_off(name);
                Ok(())
            }
        }
    }

    /// Plugs a cable of a live fabric, or unplugs it.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it cannot be plugged now, with a line in the log; and those of plugging.
    pub(crate) fn set_plugged(&self, name: Name, plugged: bool) -> Result {
        {
            let topology = self.topology();
            if plugged == topology.plugged(name)? {
                return Ok(());
            }
            if plugged {
                topology.may_be_plugged(name)?;
            }
        }
        if plugged {
            return self.connect(name);
        }
        let plug = self.topology().pull(name);
        drop(plug);
        Ok(())
    }

    /// Removes a node: it is switched off, and its cables are unplugged.
    pub(crate) fn remove_node(&self, name: Name) {
        self.switch_off(name);
        self.topology().remove_node(name);
    }

    /// Removes a cable, which is unplugged.
    pub(crate) fn remove_cable(&self, name: Name) {
        let plug = self.topology().pull(name);
        drop(plug);
        self.topology().remove_cable(name);
    }

    /// Switches a node on that has been checked.
    fn switch_on(&self, plan: NodePlan) -> Result {
        let name = plan.name();
        let site = self.topology().site(name)?;
        let power = match plan.kind() {
            NodeKind::Hca => self.hca(&site, &plan).map(Power::Hca),
            NodeKind::Switch => SwitchNode::new(&site, &plan.switch()).map(Power::Switch),
        };
        let power = power.inspect_err(|e| {
            let topology = self.topology();
            topology.report(name, format_args!("cannot be switched on: {e:?}"));
        })?;
        let seed = self.topology().seed();
        power.route(plan.routing(), seed, name)?;
        self.topology().switched_on(name, power)
    }

    fn hca(&self, site: &Site, plan: &NodePlan) -> Result<HcaNode> {
        let (netns, faults) = {
            let topology = self.topology();
            let faults = topology.faults(plan.name())?.clone();
            (topology.netns(plan.name())?, faults)
        };
        HcaNode::new(site, plan, netns, &faults)
    }

    /// Switches a node off, if it is on, and unplugs its cables.
    ///
    /// That comes second, since ULPs leave their multicast groups as RDMA core lets go of a device, and wait for
    /// an answer.
    fn switch_off(&self, name: Name) {
        let power = self.topology().switch_off(name);
        drop(power);
        loop {
            let plug = self.topology().pull_from(name);
            if plug.is_none() {
                break;
            }
        }
    }

    /// Plugs a cable that has been checked.
    fn connect(&self, name: Name) -> Result {
        let (plan, seed, nodes) = {
            let topology = self.topology();
            let plan = *topology.cable_plan(name)?;
            let Ends(one, other) = plan.ends().ok_or(EINVAL)?;
            let far = match other {
                FarEnd::Port(other) => Some(topology.node(other.node)?),
                FarEnd::Device(_) => None,
            };
            (plan, topology.seed(), (topology.node(one.node)?, far))
        };
        let Ends(one, other) = plan.ends().ok_or(EINVAL)?;
        let near = (&nodes.0, one.port);
        let plug = match (other, &nodes.1) {
            (FarEnd::Port(other), Some(node)) => {
                Cable::plug([near, (node, other.port)], &plan, seed).map(Plug::Ports)
            }
            (FarEnd::Device(device), _) => {
                let device = CString::try_from_fmt(fmt!("{}", device.as_str()))?;
                TrunkCable::plug(near, &device, &plan, seed).map(Plug::Device)
            }
            (FarEnd::Port(_), None) => Err(EINVAL),
        };
        let plug = plug.inspect_err(|e| {
            let topology = self.topology();
            topology.report(name, format_args!("cannot be plugged: {e:?}"));
        })?;
        self.topology().plugged_in(name, plug)
    }
}
