// SPDX-License-Identifier: GPL-2.0

//! Facts about a host, as they were read: no rule and no input or output is in here.

use crate::table::Row;
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

/// Everything that the rules judge.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Facts {
    pub(crate) module: Module,
    /// Ports of RDMA devices that the network namespace sees.
    pub(crate) ports: Vec<Port>,
    /// All network interfaces.
    pub(crate) links: Vec<Link>,
    /// Those of IPoIB, of this driver and of ib_ipoib.
    pub(crate) interfaces: Vec<Interface>,
    /// Variables below /proc/sys that rules look at, by path, and what is in them.
    pub(crate) sysctls: BTreeMap<String, String>,
    /// The kernel was booted with `ipv6.disable=1`.
    pub(crate) without_ipv6: bool,
    /// Rules of the packet filter.
    pub(crate) filter: Filter,
    /// Times that TCP has found segments reordered, on all interfaces.
    pub(crate) tcp_reordered: u64,
    /// Facts that could not be read, and why.
    pub(crate) unread: Vec<String>,
}

/// Rules of the packet filter, as the programs for them list them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Filter {
    pub(crate) nft: String,
    pub(crate) iptables: String,
    pub(crate) ip6tables: String,
}

/// The module, and what may keep it from loading.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Module {
    /// Release of the running kernel.
    pub(crate) release: String,
    pub(crate) loaded: bool,
    pub(crate) ib_ipoib_loaded: bool,
    /// It is installed for the running kernel.
    pub(crate) installed: bool,
    /// Other kernels that it is installed for.
    pub(crate) other_kernels: Vec<String>,
    /// The kernel loads signed modules only.
    pub(crate) signatures_enforced: bool,
    /// Lines of /etc/modprobe.d that name it or ib_ipoib.
    pub(crate) modprobe: Vec<String>,
}

/// A port of an RDMA device.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Port {
    pub(crate) device: String,
    pub(crate) number: u32,
    /// "InfiniBand" or "Ethernet".
    pub(crate) link_layer: String,
    /// It is no hardware, such as soft-RoCE: what it sends goes through the host's network stack.
    pub(crate) software: bool,
    /// Such as "ACTIVE", "DOWN", "INIT".
    pub(crate) state: String,
    /// Such as "LinkUp", "Disabled", "Polling".
    pub(crate) physical: String,
    pub(crate) rate: String,
    pub(crate) lid: u32,
    pub(crate) sm_lid: u32,
    /// Entries of the P_Key table that are in use.
    pub(crate) pkeys: Vec<u16>,
    pub(crate) gids: Vec<Gid>,
}

/// An entry of a port's GID table.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Gid {
    pub(crate) gid: String,
    /// Such as "RoCE v2", "IB/RoCE v1".
    pub(crate) kind: String,
    /// The network interface, empty on InfiniBand.
    pub(crate) netdev: String,
}

/// A network interface.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) name: String,
    /// Link type, empty for hardware.
    pub(crate) kind: String,
    pub(crate) up: bool,
    pub(crate) carrier: bool,
    pub(crate) arp: bool,
    pub(crate) multicast: bool,
    pub(crate) mtu: u32,
    /// The largest MTU that it can have; 0 if that is not known.
    pub(crate) max_mtu: u32,
    pub(crate) qdisc: String,
    /// Index of the bond, bridge or the like that it is a part of, which has the addresses.
    pub(crate) master: Option<u32>,
    /// It is a macvlan whose mode keeps it from others on the interface below.
    pub(crate) isolated: bool,
    /// It is a bridge that filters VLANs and has no default one.
    pub(crate) filters_vlans: bool,
    /// The interface below is in another network namespace, and has to have as large an MTU.
    pub(crate) bound_elsewhere: bool,
    /// Index of the interface below, if that is in this network namespace.
    pub(crate) below: Option<u32>,
    pub(crate) addresses: Vec<Address>,
}

/// An IP address.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Address {
    pub(crate) ip: IpAddr,
    pub(crate) prefix: u8,
    /// Duplicate address detection has found it elsewhere.
    pub(crate) duplicate: bool,
}

/// Properties that only an IPoIB interface has; the rest is in `links`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Interface {
    pub(crate) name: String,
    /// It is of ipoib_rs, and not of ib_ipoib.
    pub(crate) ours: bool,
    pub(crate) mode: String,
    pub(crate) pkey: u16,
    /// GID and QPN of its link-layer address.
    pub(crate) gid: String,
    pub(crate) qpn: u32,
    /// RDMA device and port, empty and 0 where they are not known.
    pub(crate) device: String,
    pub(crate) port: u32,
    /// Name of the interface that it is a child of.
    pub(crate) parent: Option<String>,
    pub(crate) counters: BTreeMap<String, u64>,
    pub(crate) ring: Option<Ring>,
    /// Frames after which the device reports what it received.
    pub(crate) rx_frames: u32,
    pub(crate) gso: bool,
    pub(crate) gro: bool,
    /// TCP leaves segmentation to the device.
    pub(crate) tso: bool,
    pub(crate) neighbours: Vec<Neighbour>,
    /// Tables of debugfs by name, whose rows are values by column.
    pub(crate) tables: BTreeMap<String, Vec<Row>>,
}

/// Sizes of the rings.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Ring {
    pub(crate) rx: u32,
    pub(crate) rx_max: u32,
    pub(crate) tx: u32,
    pub(crate) tx_max: u32,
}

/// A neighbour of an interface.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Neighbour {
    pub(crate) ip: IpAddr,
    /// Such as "reachable", "failed".
    pub(crate) state: String,
    /// Flags, GID and QPN of its link-layer address, if there is one.
    pub(crate) flags: u8,
    pub(crate) gid: String,
    pub(crate) qpn: u32,
}

impl Facts {
    /// The link of a name.
    pub(crate) fn link(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|link| link.name == name)
    }

    /// The parent of a child of IPoIB, if it is in this network namespace.
    pub(crate) fn parent_of(&self, link: &Link) -> Option<&Link> {
        self.below(link).filter(|below| self.is_ipoib(below))
    }

    /// The Ethernet interface that an interface of IPoIB runs on, or its parent does, if it is in this network namespace.
    pub(crate) fn ethernet_of(&self, link: &Link) -> Option<&Link> {
        let below = self.below(self.parent_of(link).unwrap_or(link));
        below.filter(|below| !self.is_ipoib(below))
    }

    /// The interface that another one is a part of.
    pub(crate) fn master_of(&self, link: &Link) -> Option<&Link> {
        self.links
            .iter()
            .find(|other| Some(other.index) == link.master)
    }

    /// The interface below another one, if it is in this network namespace.
    pub(crate) fn below(&self, link: &Link) -> Option<&Link> {
        self.links
            .iter()
            .find(|other| Some(other.index) == link.below)
    }

    fn is_ipoib(&self, link: &Link) -> bool {
        self.interfaces
            .iter()
            .any(|interface| interface.name == link.name)
    }

    /// The port that an interface is on.
    pub(crate) fn port_of(&self, interface: &Interface) -> Option<&Port> {
        self.ports
            .iter()
            .find(|p| p.device == interface.device && p.number == interface.port)
    }

    /// A variable below /proc/sys.
    pub(crate) fn sysctl(&self, path: &str) -> Option<&str> {
        self.sysctls.get(path).map(String::as_str)
    }

    /// A variable below /proc/sys that is a number.
    pub(crate) fn number(&self, path: &str) -> Option<u64> {
        self.sysctl(path)?.trim().parse().ok()
    }
}

impl Neighbour {
    /// Returns true if nobody has answered for it.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.state.as_str(), "failed" | "incomplete")
    }

    /// Returns true if its link-layer address may be one that it had before: nobody has confirmed it lately.
    pub(crate) fn is_stale(&self) -> bool {
        self.state == "stale"
    }

    /// GID and QPN of its link-layer address, as [`address`] has those of a row about it.
    pub(crate) fn address(&self) -> (&str, u32) {
        (&self.gid, self.qpn)
    }

    /// The GID that its link-layer address would have if it began two bytes later than it was read, if that is one of the
    /// subnet of `own`. It was announced without the two reserved bytes of an option for InfiniBand (RFC 4391, section 9.3).
    pub(crate) fn shifted(&self, own: &str) -> Option<Ipv6Addr> {
        let (own, read) = (
            own.parse::<Ipv6Addr>().ok()?,
            self.gid.parse::<Ipv6Addr>().ok()?,
        );
        let subnet = |gid: &Ipv6Addr| gid.to_bits() >> 64;
        // The last two bytes are behind its end.
        let first = u128::from(self.qpn & 0xffff) << 112;
        let gid = Ipv6Addr::from_bits(first | (read.to_bits() >> 16));
        let is_whole = read.to_bits() & 0xffff == 0;
        (is_whole && subnet(&read) != subnet(&own) && subnet(&gid) == subnet(&own)).then_some(gid)
    }
}

impl Port {
    /// Returns true on Ethernet.
    pub(crate) fn is_roce(&self) -> bool {
        self.link_layer == "Ethernet"
    }

    /// The Ethernet interface of a RoCE port.
    pub(crate) fn netdev(&self) -> Option<&str> {
        let named = self.gids.iter().map(|gid| gid.netdev.as_str());
        named.into_iter().find(|name| !name.is_empty())
    }
}

impl Interface {
    /// A counter; 0 if there is none of the name.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }

    /// State of its broadcast group, if debugfs shows it.
    pub(crate) fn broadcast(&self) -> Option<&str> {
        let mut rows = self.table("groups").iter();
        let found = rows.find(|row| {
            let mgid = column(row, "mgid");
            mgid.contains(":401b:") && mgid.ends_with(":ffff:ffff")
        });
        Some(column(found?, "state"))
    }

    /// Rows of a table in debugfs; none if it was not read.
    pub(crate) fn table(&self, name: &str) -> &[Row] {
        self.tables.get(name).map_or(&[], Vec::as_slice)
    }

    /// Path of its own variable `name`: one of /proc/sys/net/ipoib/<name>.
    pub(crate) fn sysctl(&self, name: &str) -> String {
        format!("net/ipoib/{}/{name}", self.name)
    }
}

/// A row's column, empty if it has none.
pub(crate) fn column<'a>(row: &'a Row, name: &str) -> &'a str {
    row.get(name).unwrap_or_default()
}

/// GID and QPN of the peer that a row is about; 0 if it has none.
pub(crate) fn address(row: &Row) -> (&str, u32) {
    let digits = column(row, "qpn").trim_start_matches("0x");
    let qpn = u32::from_str_radix(digits, 16).unwrap_or(0);
    (column(row, "gid"), qpn)
}
