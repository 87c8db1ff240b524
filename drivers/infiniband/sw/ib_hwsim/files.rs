// SPDX-License-Identifier: GPL-2.0

//! The files in the directories of fabrics, nodes and cables.

use core::fmt::Write;

use configfs_tree::{BinaryFile, Bytes, Directory, File, Read, Show, Store, Text};
use ib_fabric::impair::{Impairment, RoutingSetting};
use ib_fabric::text::{decimal, flag};
use ib_fabric::topology::{CableSetting, NodeSetting};
use ib_fabric::wire::pcap;
use ib_fabric::Limit;
use kernel::prelude::*;

use crate::directories::{CableDirectory, FabricDirectory, Hcas, Kind, NodeDirectory, Switches};

/// The files of a fabric.
pub(crate) const FABRIC: &[File<FabricDirectory>] =
    &[File::writable::<Live>(), File::writable::<Seed>()];

/// The files of an adapter.
pub(crate) const HCA: &[File<NodeDirectory<Hcas>>] = &[
    File::writable::<Ports>(),
    File::writable::<NodeGuid>(),
    File::writable::<Mtu>(),
    File::writable::<PKeys>(),
    File::writable::<Gids>(),
    File::writable::<Netdev>(),
    limit::<{ Limit::Qp as usize }>(),
    limit::<{ Limit::QpWr as usize }>(),
    limit::<{ Limit::SendSge as usize }>(),
    limit::<{ Limit::RecvSge as usize }>(),
    limit::<{ Limit::Cq as usize }>(),
    limit::<{ Limit::Cqe as usize }>(),
    limit::<{ Limit::Srq as usize }>(),
    limit::<{ Limit::Ah as usize }>(),
    limit::<{ Limit::Mr as usize }>(),
    limit::<{ Limit::InlineData as usize }>(),
    limit::<{ Limit::Multicast as usize }>(),
    limit::<{ Limit::BlockLoopback as usize }>(),
    limit::<{ Limit::GetNetdev as usize }>(),
    limit::<{ Limit::Checksum as usize }>(),
    limit::<{ Limit::Lso as usize }>(),
    limit::<{ Limit::Vectors as usize }>(),
    File::writable::<Power>(),
    File::read_only::<Device>(),
    File::writable::<CaptureSize>(),
    File::read_only::<CaptureDropped>(),
    File::writable::<FaultRules>(),
    File::writable::<LastEvent>(),
];

/// The file of a limit or an ability of an adapter.
const fn limit<const N: usize>() -> File<NodeDirectory<Hcas>> {
    File::writable::<Limited<N>>()
}

/// The files of an adapter that are no texts.
pub(crate) const HCA_BINARY: &[BinaryFile<NodeDirectory<Hcas>>] =
    &[BinaryFile::new::<CaptureFile>()];

/// The files of a switch.
pub(crate) const SWITCH: &[File<NodeDirectory<Switches>>] = &[
    File::writable::<Ports>(),
    File::writable::<NodeGuid>(),
    File::writable::<Mtu>(),
    File::writable::<PKeys>(),
    File::writable::<Power>(),
    File::writable::<Adaptive>(),
    File::writable::<FlowletGap>(),
];

/// The files of a cable.
pub(crate) const CABLE: &[File<CableDirectory>] = &[
    File::writable::<Ends>(),
    File::writable::<Width>(),
    File::writable::<Speed>(),
    File::writable::<Plugged>(),
    File::read_only::<Statistics>(),
    File::writable::<Loss>(),
    File::writable::<Duplicate>(),
    File::writable::<Corrupt>(),
    File::writable::<Delay>(),
    File::writable::<Jitter>(),
    File::writable::<Rate>(),
    File::writable::<Queue>(),
];

fn print_flag(out: &mut Text<'_>, flag: bool) -> Result {
    Ok(write!(out, "{}", u8::from(flag))?)
}

fn parse_flag(text: &str) -> Result<bool> {
    flag(text).ok_or(EINVAL)
}

/// The file that switches a fabric on: 1 if it is live.
struct Live;

impl Show<FabricDirectory> for Live {
    const NAME: &'static CStr = c"live";

    fn show(directory: &FabricDirectory, out: &mut Text<'_>) -> Result {
        print_flag(out, directory.0.topology.lock().live())
    }
}

impl Store<FabricDirectory> for Live {
    fn store(directory: &FabricDirectory, text: &str) -> Result {
        let live = parse_flag(text)?;
        let change = directory.0.change();
        if live {
            return change.go_live();
        }
        change.go_down();
        Ok(())
    }
}

/// The seed of a fabric.
struct Seed;

impl Show<FabricDirectory> for Seed {
    const NAME: &'static CStr = c"seed";

    fn show(directory: &FabricDirectory, out: &mut Text<'_>) -> Result {
        Ok(write!(out, "{}", directory.0.topology.lock().seed())?)
    }
}

impl Store<FabricDirectory> for Seed {
    fn store(directory: &FabricDirectory, text: &str) -> Result {
        let seed = decimal(text).ok_or(EINVAL)?;
        directory.0.change().topology().set_seed(seed)
    }
}

/// The file that switches a node on: 1 if it is.
struct Power;

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
        directory.fabric.change().set_power(directory.name, on)
    }
}

/// The name of an adapter's RDMA device; nothing if it is switched off.
struct Device;

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

/// The bytes that a capture at an adapter has room for, 0 if there is none. Each write begins a new one.
struct CaptureSize;

impl Show<NodeDirectory<Hcas>> for CaptureSize {
    const NAME: &'static CStr = c"capture";

    fn show(directory: &NodeDirectory<Hcas>, out: &mut Text<'_>) -> Result {
        let host = directory.fabric.topology.lock().host(directory.name);
        let size = host.map_or(0, |host| host.capture.size());
        Ok(write!(out, "{size}")?)
    }
}

impl Store<NodeDirectory<Hcas>> for CaptureSize {
    fn store(directory: &NodeDirectory<Hcas>, text: &str) -> Result {
        let size = text.trim_ascii().parse().map_err(|_| EINVAL)?;
        let topology = directory.fabric.topology.lock();
        topology.host(directory.name)?.capture.begin(size)
    }
}

/// The packets that the capture at an adapter has had no room for.
struct CaptureDropped;

impl Show<NodeDirectory<Hcas>> for CaptureDropped {
    const NAME: &'static CStr = c"capture_dropped";

    fn show(directory: &NodeDirectory<Hcas>, out: &mut Text<'_>) -> Result {
        let host = directory.fabric.topology.lock().host(directory.name);
        let dropped = host.map_or(0, |host| host.capture.dropped());
        Ok(write!(out, "{dropped}")?)
    }
}

/// The capture at an adapter, as a file. One that is off has no packets.
struct CaptureFile;

impl Read<NodeDirectory<Hcas>> for CaptureFile {
    const NAME: &'static CStr = c"capture.pcap";

    fn len(directory: &NodeDirectory<Hcas>) -> Result<usize> {
        let host = directory.fabric.topology.lock().host(directory.name);
        Ok(host.map_or(pcap::FILE, |host| host.capture.file_len()))
    }

    fn read(directory: &NodeDirectory<Hcas>, out: &mut Bytes<'_>) -> Result {
        out.push(&pcap::file());
        let topology = directory.fabric.topology.lock();
        if let Ok(host) = topology.host(directory.name) {
            out.push(&host.capture.copy(out.room())?);
        }
        Ok(())
    }
}

/// The rules for an adapter's faults.
struct FaultRules;

impl Show<NodeDirectory<Hcas>> for FaultRules {
    const NAME: &'static CStr = c"faults";

    fn show(directory: &NodeDirectory<Hcas>, out: &mut Text<'_>) -> Result {
        let topology = directory.fabric.topology.lock();
        topology.faults(directory.name)?.print(out)
    }
}

impl Store<NodeDirectory<Hcas>> for FaultRules {
    fn store(directory: &NodeDirectory<Hcas>, text: &str) -> Result {
        let topology = directory.fabric.topology.lock();
        topology.set_faults(directory.name, text)
    }
}

/// The last event that an adapter was to report; nothing if there was none since it was switched on.
struct LastEvent;

impl Show<NodeDirectory<Hcas>> for LastEvent {
    const NAME: &'static CStr = c"event";

    fn show(directory: &NodeDirectory<Hcas>, out: &mut Text<'_>) -> Result {
        let topology = directory.fabric.topology.lock();
        match topology.faults(directory.name)?.noted() {
            Some(order) => Ok(write!(out, "{order}")?),
            None => Ok(()),
        }
    }
}

impl Store<NodeDirectory<Hcas>> for LastEvent {
    fn store(directory: &NodeDirectory<Hcas>, text: &str) -> Result {
        let topology = directory.fabric.topology.lock();
        topology.order(directory.name, text)
    }
}

/// The file that plugs a cable in: 1 if it is.
struct Plugged;

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
        directory
            .fabric
            .change()
            .set_plugged(directory.name, plugged)
    }
}

/// Counters of a cable through a network device, a name and a number in each line; nothing for others.
struct Statistics;

impl Show<CableDirectory> for Statistics {
    const NAME: &'static CStr = c"statistics";

    fn show(directory: &CableDirectory, out: &mut Text<'_>) -> Result {
        let topology = directory.fabric.topology.lock();
        let printed = topology.trunk(directory.name, |trunk| trunk.print(out))?;
        printed.unwrap_or(Ok(()))
    }
}

/// A directory whose node or cable has settings.
trait Settings: Directory {
    /// A setting.
    type Setting;

    fn print(&self, setting: Self::Setting, out: &mut Text<'_>) -> Result;

    fn set(&self, setting: Self::Setting, text: &str) -> Result;
}

impl<K: Kind> Settings for NodeDirectory<K> {
    type Setting = NodeSetting;

    fn print(&self, setting: NodeSetting, out: &mut Text<'_>) -> Result {
        let topology = self.fabric.topology.lock();
        Ok(topology.node_plan(self.name)?.print(setting, out)?)
    }

    fn set(&self, setting: NodeSetting, text: &str) -> Result {
        let change = self.fabric.change();
        let mut topology = change.topology();
        topology.set_node(self.name, setting, text)
    }
}

impl Settings for CableDirectory {
    type Setting = CableSetting;

    fn print(&self, setting: CableSetting, out: &mut Text<'_>) -> Result {
        let topology = self.fabric.topology.lock();
        Ok(topology.cable_plan(self.name)?.print(setting, out)?)
    }

    fn set(&self, setting: CableSetting, text: &str) -> Result {
        let change = self.fabric.change();
        let mut topology = change.topology();
        topology.set_cable(self.name, setting, text)
    }
}

/// Defines the files of settings.
macro_rules! settings {
    ($kind:ty: $($(#[$doc:meta])* $file:ident = $name:expr, $setting:expr;)*) => {$(
        $(#[$doc])*
        struct $file;

        impl<D: Settings<Setting = $kind>> Show<D> for $file {
            const NAME: &'static CStr = $name;

            fn show(directory: &D, out: &mut Text<'_>) -> Result {
                directory.print($setting, out)
            }
        }

        impl<D: Settings<Setting = $kind>> Store<D> for $file {
            fn store(directory: &D, text: &str) -> Result {
                directory.set($setting, text)
            }
        }
    )*};
}

settings! {
    NodeSetting:
    /// The number of a node's ports.
    Ports = c"ports", NodeSetting::Ports;
    /// The node GUID.
    NodeGuid = c"node_guid", NodeSetting::NodeGuid;
    /// The largest MTU in bytes.
    Mtu = c"mtu", NodeSetting::Mtu;
    /// The entries in the P_Key table of a port.
    PKeys = c"pkeys", NodeSetting::PKeys;
    /// The entries in the GID table of an adapter's port.
    Gids = c"gids", NodeSetting::Gids;
    /// The network devices of an adapter's ports.
    Netdev = c"netdev", NodeSetting::Netdev;
    /// The mode of adaptive routing.
    Adaptive = c"adaptive", NodeSetting::Routing(RoutingSetting::Adaptive);
    /// The gap between two flowlets in microseconds.
    FlowletGap = c"flowlet_gap", NodeSetting::Routing(RoutingSetting::FlowletGap);
}

settings! {
    CableSetting:
    /// The ends of a cable.
    Ends = c"ends", CableSetting::Ends;
    /// The lanes of a cable.
    Width = c"width", CableSetting::Width;
    /// The speed of a cable's lane.
    Speed = c"speed", CableSetting::Speed;
    /// The packets of a million that are lost.
    Loss = c"loss", CableSetting::Impairments(Impairment::Loss);
    /// Those that arrive twice.
    Duplicate = c"duplicate", CableSetting::Impairments(Impairment::Duplicate);
    /// Those that arrive with a wrong CRC.
    Corrupt = c"corrupt", CableSetting::Impairments(Impairment::Corrupt);
    /// The delay in microseconds.
    Delay = c"delay", CableSetting::Impairments(Impairment::Delay);
    /// The most microseconds by which a packet is later than others.
    Jitter = c"jitter", CableSetting::Impairments(Impairment::Jitter);
    /// The rate in Mbit/s.
    Rate = c"rate", CableSetting::Impairments(Impairment::Rate);
    /// The data in KiB that may wait for the rate.
    Queue = c"queue", CableSetting::Impairments(Impairment::Queue);
}

/// A limit or an ability of an adapter: the one with this number.
struct Limited<const N: usize>;

impl<D: Settings<Setting = NodeSetting>, const N: usize> Show<D> for Limited<N> {
    const NAME: &'static CStr = Limit::ALL[N].name();

    fn show(directory: &D, out: &mut Text<'_>) -> Result {
        directory.print(NodeSetting::Limit(Limit::ALL[N]), out)
    }
}

impl<D: Settings<Setting = NodeSetting>, const N: usize> Store<D> for Limited<N> {
    fn store(directory: &D, text: &str) -> Result {
        directory.set(NodeSetting::Limit(Limit::ALL[N]), text)
    }
}
