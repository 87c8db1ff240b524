// SPDX-License-Identifier: GPL-2.0

//! The files that say what goes wrong in a fabric.

use core::fmt::Write;

use configfs_tree::{Show, Store, Text};
use ib_fabric::topology::{CableSetting, NodeSetting};
use ib_fabric::weather::{seed, RoutingSetting, WeatherSetting};
use kernel::prelude::*;

use crate::tree::{CableDirectory, FabricDirectory, NodeDirectory, Switches};

/// The seed of a fabric.
pub(crate) struct Seed;

impl Show<FabricDirectory> for Seed {
    const NAME: &'static CStr = c"seed";

    fn show(directory: &FabricDirectory, out: &mut Text<'_>) -> Result {
        Ok(write!(out, "{}", directory.0.topology.lock().seed())?)
    }
}

impl Store<FabricDirectory> for Seed {
    fn store(directory: &FabricDirectory, text: &str) -> Result {
        let seed = seed(text).ok_or(EINVAL)?;
        directory.0.topology.lock().set_seed(seed)
    }
}

macro_rules! routing_settings {
    ($($(#[$doc:meta])* $file:ident = $name:literal;)*) => {$(
        $(#[$doc])*
        pub(crate) struct $file;

        impl Show<NodeDirectory<Switches>> for $file {
            const NAME: &'static CStr = $name;

            fn show(directory: &NodeDirectory<Switches>, out: &mut Text<'_>) -> Result {
                let topology = directory.fabric.topology.lock();
                let plan = topology.node_plan(directory.name)?;
                Ok(plan.print(NodeSetting::Routing(RoutingSetting::$file), out)?)
            }
        }

        impl Store<NodeDirectory<Switches>> for $file {
            fn store(directory: &NodeDirectory<Switches>, text: &str) -> Result {
                let setting = NodeSetting::Routing(RoutingSetting::$file);
                let mut topology = directory.fabric.topology.lock();
                topology.set_node(directory.name, setting, text)
            }
        }
    )*};
}

routing_settings! {
    /// The mode of adaptive routing.
    Adaptive = c"adaptive";
    /// The gap between two flowlets in microseconds.
    FlowletGap = c"flowlet_gap";
}

macro_rules! weather_settings {
    ($($(#[$doc:meta])* $file:ident = $name:literal;)*) => {$(
        $(#[$doc])*
        pub(crate) struct $file;

        impl Show<CableDirectory> for $file {
            const NAME: &'static CStr = $name;

            fn show(directory: &CableDirectory, out: &mut Text<'_>) -> Result {
                let topology = directory.fabric.topology.lock();
                let plan = topology.cable_plan(directory.name)?;
                Ok(plan.print(CableSetting::Weather(WeatherSetting::$file), out)?)
            }
        }

        impl Store<CableDirectory> for $file {
            fn store(directory: &CableDirectory, text: &str) -> Result {
                let setting = CableSetting::Weather(WeatherSetting::$file);
                let mut topology = directory.fabric.topology.lock();
                topology.set_cable(directory.name, setting, text)
            }
        }
    )*};
}

weather_settings! {
    /// The packets of a million that are lost.
    Loss = c"loss";
    /// Those that arrive twice.
    Duplicate = c"duplicate";
    /// Those that arrive with a wrong CRC.
    Corrupt = c"corrupt";
    /// The delay in microseconds.
    Delay = c"delay";
    /// The most microseconds by which a packet is later than others.
    Jitter = c"jitter";
    /// The rate in Mbit/s.
    Rate = c"rate";
    /// The data in KiB that may wait for the rate.
    Queue = c"queue";
}
