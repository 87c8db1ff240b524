// SPDX-License-Identifier: GPL-2.0

//! A packet of RoCEv2, or of neighbour discovery, which its addresses need: what is known about it.

use super::{Family, Hook, Key, Value};
use std::net::IpAddr;

/// The UDP port of RoCEv2.
const PORT: u128 = 4791;
/// The UDP ports that it is sent from.
const PORTS: (u128, u128) = (0xc000, 0xffff);
const UDP: u128 = 17;
const ICMPV6: u128 = 58;
const LINK_LOCAL: (u128, u128) = (0xfe80 << 112, (0xfec0 << 112) - 1);
/// The groups of IPoIB on RoCEv2: ff12:401b:… and ff12:601b:….
const GROUPS: (u128, u128) = (0xff12_401b << 96, (0xff12_601c << 96) - 1);

/// The groups that are asked for an address (RFC 4291, section 2.7.1).
const ASKED: (u128, u128) = {
    let first = (0xff02 << 112) | (0x1_ff00_0000);
    (first, first | 0xff_ffff)
};

/// Use of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Roce,
    /// A neighbour solicitation, and the advertisement that answers it.
    Solicitation,
    Advertisement,
}

/// Direction of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    In,
    Out,
}

/// A packet to or from a host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packet<'a> {
    pub(crate) kind: Kind,
    pub(crate) way: Way,
    pub(crate) multicast: bool,
    /// The host's address.
    pub(crate) own: IpAddr,
    /// The interface that it passes.
    pub(crate) interface: &'a str,
    /// The master of the interface, which may stand in its place.
    pub(crate) master: Option<&'a str>,
    /// The interface is a bridge, whose ports cannot be told.
    pub(crate) bridge: bool,
}

/// Knowledge of a key's value.
pub(super) enum Fact<'a> {
    Unknown,
    /// It is in a range.
    Number(u128, u128),
    /// It has these names, or the number.
    Names(&'a [&'a str], Option<u128>),
    /// It may have any of these names.
    OneOf(&'a [&'a str]),
}

/// Whether something holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Holds {
    No,
    Maybe,
    Yes,
}

impl Holds {
    pub(super) fn not(self) -> Holds {
        match self {
            Holds::No => Holds::Yes,
            Holds::Maybe => Holds::Maybe,
            Holds::Yes => Holds::No,
        }
    }
}

impl From<bool> for Holds {
    fn from(value: bool) -> Holds {
        if value { Holds::Yes } else { Holds::No }
    }
}

impl Fact<'_> {
    /// Whether it is the value.
    pub(super) fn is(&self, value: &Value) -> Holds {
        let word = |name: &str| match value {
            Value::Word(word) => word.eq_ignore_ascii_case(name),
            Value::Prefix(begin) => name.starts_with(begin.as_str()),
            Value::Any => true,
            Value::Range(..) => false,
        };
        match (self, value) {
            (Fact::Unknown, _) => Holds::Maybe,
            (Fact::Number(low, high), Value::Range(from, to)) => {
                if from <= low && high <= to {
                    Holds::Yes
                } else if high < from || to < low {
                    Holds::No
                } else {
                    Holds::Maybe
                }
            }
            // A name, of a service for example.
            (Fact::Number(..), _) => Holds::Maybe,
            (Fact::Names(_, number), Value::Range(from, to)) => {
                number.is_some_and(|n| *from <= n && n <= *to).into()
            }
            (Fact::Names(names, _), _) => names.iter().any(|name| word(name)).into(),
            (Fact::OneOf(names), _) => match names.iter().filter(|name| word(name)).count() {
                0 => Holds::No,
                all if all == names.len() => Holds::Yes,
                _ => Holds::Maybe,
            },
        }
    }
}

/// Changes that rules have made to the packet on its way.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Changed {
    /// Connection tracking has not seen it yet.
    pub(super) early: bool,
    /// A rule may have given it a mark.
    pub(super) mark: bool,
    /// Connection tracking leaves it alone.
    pub(super) untracked: bool,
    pub(super) perhaps_untracked: bool,
}

impl Packet<'_> {
    /// The hooks that it passes.
    pub(super) fn hooks(&self) -> &'static [Hook] {
        match self.way {
            Way::In => &[Hook::Ingress, Hook::Prerouting, Hook::Input],
            Way::Out => &[Hook::Output, Hook::Postrouting, Hook::Egress],
        }
    }

    pub(super) fn version(&self) -> u8 {
        if self.own.is_ipv4() { 4 } else { 6 }
    }

    /// Returns true if tables of a family see it.
    pub(super) fn is_of(&self, family: Family) -> bool {
        match family {
            Family::Inet | Family::Netdev => true,
            Family::Ip => self.version() == 4,
            Family::Ip6 => self.version() == 6,
            Family::Bridge => self.bridge,
            Family::Other => false,
        }
    }

    fn own_address(&self) -> Fact<'static> {
        let bits = match self.own {
            IpAddr::V4(ip) => u128::from(ip.to_bits()),
            IpAddr::V6(ip) => ip.to_bits(),
        };
        Fact::Number(bits, bits)
    }

    /// A peer's address: link-local if the host's own is.
    fn peer(&self) -> Fact<'static> {
        let is_local = matches!(self.own, IpAddr::V6(ip) if ip.is_unicast_link_local());
        if is_local {
            Fact::Number(LINK_LOCAL.0, LINK_LOCAL.1)
        } else {
            Fact::Unknown
        }
    }

    fn group(&self) -> Fact<'static> {
        if self.kind != Kind::Roce {
            Fact::Number(ASKED.0, ASKED.1)
        } else if self.version() == 6 {
            Fact::Number(GROUPS.0, GROUPS.1)
        } else {
            Fact::Unknown
        }
    }

    /// The fact about a key of the header behind that of IP.
    fn inner(&self, key: Key) -> Fact<'static> {
        match (key, self.kind) {
            (Key::Protocol, Kind::Roce) => Fact::Names(&["udp"], Some(UDP)),
            (Key::Protocol, _) => Fact::Names(&["ipv6-icmp", "icmpv6"], Some(ICMPV6)),
            (Key::SourcePort, Kind::Roce) => Fact::Number(PORTS.0, PORTS.1),
            (Key::Port, Kind::Roce) => Fact::Number(PORT, PORT),
            (Key::IcmpType, Kind::Solicitation) => Fact::Names(
                &[
                    "nd-neighbor-solicit",
                    "neighbour-solicitation",
                    "neighbor-solicitation",
                ],
                Some(135),
            ),
            (Key::IcmpType, Kind::Advertisement) => Fact::Names(
                &[
                    "nd-neighbor-advert",
                    "neighbour-advertisement",
                    "neighbor-advertisement",
                ],
                Some(136),
            ),
            (Key::HopLimit, Kind::Roce) => Fact::Unknown,
            (Key::HopLimit, _) => Fact::Number(255, 255),
            _ => Fact::Names(&[], None),
        }
    }

    pub(super) fn fact<'a>(
        &'a self,
        key: Key,
        changed: &Changed,
        interface: &'a [&'a str],
    ) -> Fact<'a> {
        let is_in = self.way == Way::In;
        let own_interface = || {
            if self.bridge {
                Fact::Unknown
            } else {
                Fact::OneOf(interface)
            }
        };
        match key {
            Key::In if is_in => own_interface(),
            Key::Out if !is_in => own_interface(),
            Key::In | Key::Out => Fact::Names(&[], None),
            Key::Version if self.version() == 4 => Fact::Names(&["ipv4"], Some(2)),
            Key::Version => Fact::Names(&["ipv6"], Some(10)),
            Key::EtherType if self.version() == 4 => Fact::Names(&["ip"], Some(0x800)),
            Key::EtherType => Fact::Names(&["ip6"], Some(0x86dd)),
            Key::Protocol | Key::SourcePort | Key::Port | Key::IcmpType | Key::HopLimit => {
                self.inner(key)
            }
            Key::Source if is_in => self.peer(),
            Key::Source => self.own_address(),
            Key::Destination if self.multicast => self.group(),
            Key::Destination if is_in => self.own_address(),
            Key::Destination => self.peer(),
            // Each way has a flow of its own, whose other direction nobody uses: it stays new.
            Key::State if changed.early => Fact::Names(&["invalid"], None),
            Key::Direction if changed.early => Fact::Names(&[], None),
            // Neighbour discovery is not tracked.
            Key::State if self.kind != Kind::Roce => Fact::Names(&["untracked"], None),
            Key::State if changed.perhaps_untracked => Fact::OneOf(&["new", "untracked"]),
            Key::State if changed.untracked => Fact::Names(&["untracked"], None),
            Key::State => Fact::Names(&["new"], None),
            Key::Status => Fact::Names(&[], Some(0)),
            Key::Direction => Fact::Names(&["original"], Some(0)),
            Key::Mark if changed.mark => Fact::Unknown,
            Key::Mark => Fact::Number(0, 0),
            Key::PacketType if self.multicast => Fact::Names(&["multicast"], Some(2)),
            Key::PacketType => Fact::Names(&["host", "unicast"], Some(0)),
            Key::SourceType if is_in => Fact::Names(&["unicast"], Some(1)),
            Key::SourceType => Fact::Names(&["local"], Some(2)),
            Key::DestinationType if self.multicast => Fact::Names(&["multicast"], Some(5)),
            Key::DestinationType if is_in => Fact::Names(&["local"], Some(2)),
            Key::DestinationType => Fact::Names(&["unicast"], Some(1)),
            // Peers are on the link.
            Key::Back => Fact::Names(&["exists"], None),
            Key::Unknown => Fact::Unknown,
        }
    }
}
