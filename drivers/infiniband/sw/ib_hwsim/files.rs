// SPDX-License-Identifier: GPL-2.0

//! The files in the directories of fabrics, nodes and cables.

use core::fmt::Write;

use configfs_tree::{File, Show, Store, Text};
use ib_fabric::topology::{flag, CableSetting, NodeSetting};
use kernel::module::this_module;
use kernel::prelude::*;

use crate::tree::{CableDirectory, FabricDirectory, Hcas, Kind, NodeDirectory, Switches};
use crate::LocalModule;

/// The files of a fabric.
pub(crate) const FABRIC: &[File<FabricDirectory>] = &[File::writable::<Live>()];

/// The files of an adapter.
pub(crate) const HCA: &[File<NodeDirectory<Hcas>>] = &[
    File::writable::<Ports>(),
    File::writable::<NodeGuid>(),
    File::writable::<Mtu>(),
    File::writable::<PKeys>(),
    File::writable::<Gids>(),
    File::writable::<Power>(),
    File::read_only::<Device>(),
];

/// The files of a switch.
pub(crate) const SWITCH: &[File<NodeDirectory<Switches>>] = &[
    File::writable::<Ports>(),
    File::writable::<NodeGuid>(),
    File::writable::<Mtu>(),
    File::writable::<PKeys>(),
    File::writable::<Power>(),
];

/// The files of a cable.
pub(crate) const CABLE: &[File<CableDirectory>] = &[
    File::writable::<Ends>(),
    File::writable::<Width>(),
    File::writable::<Speed>(),
    File::writable::<Plugged>(),
];

fn print_flag(out: &mut Text<'_>, flag: bool) -> Result {
    Ok(write!(out, "{}", u8::from(flag))?)
}

fn parse_flag(text: &str) -> Result<bool> {
    flag(text).ok_or(EINVAL)
}

/// Whether a fabric is live.
pub(crate) struct Live;

impl Show<FabricDirectory> for Live {
    const NAME: &'static CStr = c"live";

    fn show(directory: &FabricDirectory, out: &mut Text<'_>) -> Result {
        print_flag(out, directory.0.topology.lock().live())
    }
}

impl Store<FabricDirectory> for Live {
    fn store(directory: &FabricDirectory, text: &str) -> Result {
        let live = parse_flag(text)?;
        let mut topology = directory.0.topology.lock();
        if live {
            return topology.go_live(this_module::<LocalModule>());
        }
        topology.go_down();
        Ok(())
    }
}

/// Whether a node is switched on.
pub(crate) struct Power;

impl<K: Kind> Show<NodeDirectory<K>> for Power {
    const NAME: &'static CStr = c"power";

    fn show(directory: &NodeDirectory<K>, out: &mut Text<'_>) -> Result {
        let topology = directory.fabric.topology.lock();
        print_flag(out, topology.powered(directory.name)?)
    }
}

impl<K: Kind> Store<NodeDirectory<K>> for Power {
    fn store(directory: &NodeDirectory<K>, text: &str) -> Result {
        let on = parse_flag(text)?;
        let mut topology = directory.fabric.topology.lock();
        topology.set_power(directory.name, on, this_module::<LocalModule>())
    }
}

/// The name of an adapter's RDMA device; nothing if it is switched off.
pub(crate) struct Device;

impl Show<NodeDirectory<Hcas>> for Device {
    const NAME: &'static CStr = c"device";

    fn show(directory: &NodeDirectory<Hcas>, out: &mut Text<'_>) -> Result {
        let device = directory.fabric.topology.lock().device(directory.name)?;
        match device {
            Some(name) => Ok(out.write_str(name.to_str().map_err(|_| EINVAL)?)?),
            None => Ok(()),
        }
    }
}

/// Whether a cable is plugged.
pub(crate) struct Plugged;

impl Show<CableDirectory> for Plugged {
    const NAME: &'static CStr = c"plugged";

    fn show(directory: &CableDirectory, out: &mut Text<'_>) -> Result {
        let topology = directory.fabric.topology.lock();
        print_flag(out, topology.plugged(directory.name)?)
    }
}

impl Store<CableDirectory> for Plugged {
    fn store(directory: &CableDirectory, text: &str) -> Result {
        let plugged = parse_flag(text)?;
        let mut topology = directory.fabric.topology.lock();
        topology.set_plugged(directory.name, plugged)
    }
}

macro_rules! node_settings {
    ($($(#[$doc:meta])* $file:ident = $name:literal;)*) => {$(
        $(#[$doc])*
        pub(crate) struct $file;

        impl<K: Kind> Show<NodeDirectory<K>> for $file {
            const NAME: &'static CStr = $name;

            fn show(directory: &NodeDirectory<K>, out: &mut Text<'_>) -> Result {
                let topology = directory.fabric.topology.lock();
                let plan = topology.node_plan(directory.name)?;
                Ok(plan.print(NodeSetting::$file, out)?)
            }
        }

        impl<K: Kind> Store<NodeDirectory<K>> for $file {
            fn store(directory: &NodeDirectory<K>, text: &str) -> Result {
                let mut topology = directory.fabric.topology.lock();
                topology.set_node(directory.name, NodeSetting::$file, text)
            }
        }
    )*};
}

node_settings! {
    /// The number of a node's ports.
    Ports = c"ports";
    /// The node GUID.
    NodeGuid = c"node_guid";
    /// The largest MTU in bytes.
    Mtu = c"mtu";
    /// The entries in the P_Key table of a port.
    PKeys = c"pkeys";
    /// The entries in the GID table of an adapter's port.
    Gids = c"gids";
}

macro_rules! cable_settings {
    ($($(#[$doc:meta])* $file:ident = $name:literal;)*) => {$(
        $(#[$doc])*
        pub(crate) struct $file;

        impl Show<CableDirectory> for $file {
            const NAME: &'static CStr = $name;

            fn show(directory: &CableDirectory, out: &mut Text<'_>) -> Result {
                let topology = directory.fabric.topology.lock();
                let plan = topology.cable_plan(directory.name)?;
                Ok(plan.print(CableSetting::$file, out)?)
            }
        }

        impl Store<CableDirectory> for $file {
            fn store(directory: &CableDirectory, text: &str) -> Result {
                let mut topology = directory.fabric.topology.lock();
                topology.set_cable(directory.name, CableSetting::$file, text)
            }
        }
    )*};
}

cable_settings! {
    /// The ends of a cable.
    Ends = c"ends";
    /// The lanes of a cable.
    Width = c"width";
    /// The speed of a cable's lane.
    Speed = c"speed";
}
