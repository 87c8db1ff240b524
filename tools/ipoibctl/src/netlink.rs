// SPDX-License-Identifier: GPL-2.0

//! Interfaces, addresses and neighbours, from rtnetlink.

#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod checks;

use crate::facts::{Address, Link, Neighbour};
use crate::sys;
use anyhow::{Context, Result, bail, ensure};
use std::fs::File;
use std::io::{Error, Read, Write};
use std::net::{IpAddr, Ipv6Addr};

/// Room for the largest datagram of a dump.
const DATAGRAM: usize = 64 * 1024;
/// Attributes of the link type ipoib_rs.
const DEVICE: u16 = 32;
const PORT: u16 = 33;
/// The mode of a macvlan, and those of its bits that keep it from others on the interface below: private, and VEPA.
const MODE: u16 = 1;
const ISOLATED: u32 = 1 | 2;
/// Kinds of links that can have no larger MTU than the one below.
const BOUND: [&str; 4] = ["macvlan", "macvtap", "ipvlan", "vlan"];
/// Attributes of a bridge: whether it filters VLANs, and its default one.
const VLAN_FILTERING: u16 = 7;
const DEFAULT_VLAN: u16 = 39;
/// Length of `struct nlmsghdr`.
const HEADER: usize = 16;
/// Lengths of `struct ifinfomsg`, `struct ifaddrmsg` and `struct ndmsg`, which messages begin with.
const LINK: usize = 16;
const ADDRESS: usize = 8;
const NEIGHBOUR: usize = 12;
/// The upper two bits of an attribute's type say how it is encoded.
const TYPE: u16 = 0x3fff;

/// A link, and what only IPoIB interfaces have.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) link: Link,
    pub(crate) infiniband: bool,
    /// The link-layer address: flags, QPN, GID.
    pub(crate) hardware: Vec<u8>,
    pub(crate) device: String,
    pub(crate) port: u32,
}

/// A number of two or four bytes at an offset, in the order of the host.
fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Text up to its NUL.
fn text(bytes: &[u8]) -> String {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// Asks for all objects of a kind. `each` gets the messages without their headers.
///
/// `length` is that of the structure which the request begins with, all zeroes.
fn dump(kind: u16, length: usize, mut each: impl FnMut(&[u8])) -> Result<()> {
    let socket = sys::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE);
    let mut socket = File::from(socket.context("netlink")?);
    let flags = u16::try_from(libc::NLM_F_REQUEST | libc::NLM_F_DUMP)?;
    let mut request = u32::try_from(HEADER + length)?.to_ne_bytes().to_vec();
    request.extend(kind.to_ne_bytes());
    request.extend(flags.to_ne_bytes());
    request.resize(HEADER + length, 0);
    // A message without an address goes to the kernel.
    socket.write_all(&request).context("netlink")?;

    let mut room = vec![0; DATAGRAM];
    loop {
        let read = socket.read(&mut room).context("netlink")?;
        if messages(&room[..read], &mut each)? {
            return Ok(());
        }
    }
}

/// Calls `each` with the messages of a datagram, without their headers. Returns true if the last one ends the dump.
fn messages(mut datagram: &[u8], each: &mut impl FnMut(&[u8])) -> Result<bool> {
    while !datagram.is_empty() {
        let length = word(datagram, 0).context("netlink: a message without a header")?;
        let length = usize::try_from(length)?;
        ensure!(
            (HEADER..=datagram.len()).contains(&length),
            "netlink: a message of {length} bytes"
        );
        let body = &datagram[HEADER..length];
        match half(datagram, 4).map(i32::from) {
            Some(libc::NLMSG_DONE) => return Ok(true),
            Some(libc::NLMSG_ERROR) => {
                let error = body.first_chunk().map_or(0, |e| i32::from_ne_bytes(*e));
                bail!(
                    "netlink: {}",
                    Error::from_raw_os_error(error.saturating_neg())
                );
            }
            _ => each(body),
        }
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    }
    Ok(false)
}

/// Attributes behind each other, each a length, a type and a value.
fn attributes(mut bytes: &[u8]) -> Vec<(u16, &[u8])> {
    let mut found = Vec::new();
    while let (Some(length), Some(kind)) = (half(bytes, 0), half(bytes, 2)) {
        let length = usize::from(length);
        let Some(value) = bytes.get(4..length) else {
            break;
        };
        found.push((kind & TYPE, value));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    }
    found
}

fn read_info(info: &[u8], found: &mut Found) {
    for (part, value) in attributes(info) {
        match part {
            libc::IFLA_INFO_KIND => found.link.kind = text(value),
            libc::IFLA_INFO_DATA if found.link.kind == "macvlan" => {
                let mode = attributes(value)
                    .into_iter()
                    .find(|(kind, _)| *kind == MODE);
                let mode = mode.and_then(|(_, value)| word(value, 0));
                found.link.isolated = mode.is_some_and(|mode| mode & ISOLATED != 0);
            }
            libc::IFLA_INFO_DATA if found.link.kind == "bridge" => {
                let all = attributes(value);
                let of = |kind| {
                    all.iter()
                        .find(|(k, _)| *k == kind)
                        .map(|(_, value)| *value)
                };
                let filters = of(VLAN_FILTERING).is_some_and(|value| value.first() == Some(&1));
                let default = of(DEFAULT_VLAN).and_then(|value| half(value, 0));
                found.link.filters_vlans = filters && default == Some(0);
            }
            libc::IFLA_INFO_DATA => {
                for (kind, value) in attributes(value) {
                    match kind {
                        DEVICE => found.device = text(value),
                        PORT => found.port = word(value, 0).unwrap_or(0),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
}

/// A link, from a message that begins with a `struct ifinfomsg`.
fn link(message: &[u8]) -> Option<Found> {
    let flags = i32::from_ne_bytes(word(message, 8)?.to_ne_bytes());
    let mut found = Found {
        infiniband: half(message, 2)? == libc::ARPHRD_INFINIBAND,
        ..Found::default()
    };
    let mut is_below_elsewhere = false;
    found.link.index = word(message, 4)?;
    found.link.up = flags & libc::IFF_UP != 0;
    found.link.arp = flags & libc::IFF_NOARP == 0;
    found.link.multicast = flags & libc::IFF_MULTICAST != 0;
    for (kind, value) in attributes(message.get(LINK..)?) {
        match kind {
            libc::IFLA_IFNAME => found.link.name = text(value),
            libc::IFLA_MTU => found.link.mtu = word(value, 0)?,
            libc::IFLA_MAX_MTU => found.link.max_mtu = word(value, 0)?,
            libc::IFLA_QDISC => found.link.qdisc = text(value),
            libc::IFLA_LINK => found.link.below = word(value, 0),
            libc::IFLA_LINK_NETNSID => is_below_elsewhere = true,
            libc::IFLA_CARRIER => found.link.carrier = value.first() == Some(&1),
            libc::IFLA_MASTER => found.link.master = word(value, 0),
            libc::IFLA_ADDRESS => found.hardware = value.to_vec(),
            libc::IFLA_LINKINFO => read_info(value, &mut found),
            _ => {}
        }
    }
    // Its index is one of that namespace, and may be another link's here.
    if is_below_elsewhere {
        found.link.below = None;
        found.link.bound_elsewhere = BOUND.contains(&found.link.kind.as_str());
    }
    Some(found)
}

/// An IP address of either family.
fn ip(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

/// An address and the index of its link, from a message that begins with a `struct ifaddrmsg`.
fn address(message: &[u8]) -> Option<(u32, Address)> {
    let (mut far, mut local, mut duplicate) = (None, None, false);
    for (kind, value) in attributes(message.get(ADDRESS..)?) {
        match kind {
            libc::IFA_ADDRESS => far = ip(value),
            libc::IFA_LOCAL => local = ip(value),
            libc::IFA_FLAGS => duplicate = word(value, 0)? & libc::IFA_F_DADFAILED != 0,
            _ => {}
        }
    }
    let address = Address {
        // On a point-to-point link, the other one is the peer's.
        ip: local.or(far)?,
        prefix: message[1],
        duplicate,
    };
    Some((word(message, 4)?, address))
}

/// A GID as the kernel prints it in the tables of the driver.
pub(crate) fn gid(bytes: &[u8]) -> String {
    match <[u8; 16]>::try_from(bytes) {
        Ok(bytes) => Ipv6Addr::from(bytes).to_string(),
        Err(_) => String::new(),
    }
}

/// Flags, QPN and GID of a link-layer address of 20 bytes.
pub(crate) fn parts(hardware: &[u8]) -> (u8, u32, String) {
    match hardware {
        [flags, a, b, c, rest @ ..] => (*flags, u32::from_be_bytes([0, *a, *b, *c]), gid(rest)),
        _ => (0, 0, String::new()),
    }
}

fn state(state: u16) -> &'static str {
    match state {
        libc::NUD_INCOMPLETE => "incomplete",
        libc::NUD_REACHABLE => "reachable",
        libc::NUD_STALE => "stale",
        libc::NUD_DELAY => "delay",
        libc::NUD_PROBE => "probe",
        libc::NUD_FAILED => "failed",
        libc::NUD_NOARP => "noarp",
        libc::NUD_PERMANENT => "permanent",
        _ => "none",
    }
}

/// A neighbour and the index of its link, from a message that begins with a `struct ndmsg`. Multicast has none.
fn neighbour(message: &[u8]) -> Option<(u32, Neighbour)> {
    let (mut destination, mut hardware) = (None, &[][..]);
    for (kind, value) in attributes(message.get(NEIGHBOUR..)?) {
        match kind {
            libc::NDA_DST => destination = ip(value),
            libc::NDA_LLADDR => hardware = value,
            _ => {}
        }
    }
    let (flags, qpn, gid) = parts(hardware);
    let state = state(half(message, 8)?).to_owned();
    let neighbour = Neighbour {
        ip: destination.filter(|ip| !ip.is_multicast() && state != "noarp")?,
        state,
        flags,
        gid,
        qpn,
    };
    Some((word(message, 4)?, neighbour))
}

/// All links with their addresses.
///
/// # Errors
///
/// The kernel does not answer.
pub(crate) fn links() -> Result<Vec<Found>> {
    let mut found: Vec<Found> = Vec::new();
    dump(libc::RTM_GETLINK, LINK, |message| {
        found.extend(link(message))
    })?;
    dump(libc::RTM_GETADDR, ADDRESS, |message| {
        let Some((index, address)) = address(message) else {
            return;
        };
        if let Some(of) = found.iter_mut().find(|f| f.link.index == index) {
            of.link.addresses.push(address);
        }
    })?;
    Ok(found)
}

/// The neighbours of all links, with the index of theirs.
///
/// # Errors
///
/// The kernel does not answer.
pub(crate) fn neighbours() -> Result<Vec<(u32, Neighbour)>> {
    let mut found = Vec::new();
    dump(libc::RTM_GETNEIGH, NEIGHBOUR, |message| {
        found.extend(neighbour(message))
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_end_where_they_are_cut() {
        let bytes = [6, 0, 32, 0, b'a', 0, 0, 0, 8, 0, 33, 0, 1, 0, 0, 0];
        assert_eq!(
            attributes(&bytes),
            [(32, &b"a\0"[..]), (33, &[1, 0, 0, 0][..])]
        );
        assert_eq!(attributes(&bytes[..14]).len(), 1);
        assert!(attributes(&[3, 0, 1, 0]).is_empty());
        assert!(attributes(&[0, 0, 1, 0, 0]).is_empty());
    }

    #[test]
    fn an_address_has_three_parts() {
        let mut bytes = vec![0xa0, 0, 1, 2];
        bytes.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
        assert_eq!(parts(&bytes), (0xa0, 0x102, "fe80::7".to_owned()));
        assert_eq!(parts(&bytes[..10]), (0xa0, 0x102, String::new()));
        assert_eq!(parts(&[1]), (0, 0, String::new()));
    }

    /// An attribute as the kernel lays it out.
    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(4 + value.len()).expect("it is short");
        let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn a_link_of_ours_is_read() {
        let data = [
            attribute(DEVICE, b"dev0\0"),
            attribute(PORT, &1u32.to_ne_bytes()),
        ]
        .concat();
        let info = [
            attribute(libc::IFLA_INFO_KIND, b"ipoib_rs\0"),
            attribute(0x8000 | libc::IFLA_INFO_DATA, &data),
        ];
        let mut message = vec![0, 0];
        message.extend(libc::ARPHRD_INFINIBAND.to_ne_bytes());
        message.extend(7u32.to_ne_bytes());
        message.extend((libc::IFF_UP | libc::IFF_NOARP).to_ne_bytes());
        message.extend([0; 4]);
        for (kind, value) in [
            (libc::IFLA_IFNAME, &b"ib0\0"[..]),
            (libc::IFLA_MTU, &4092u32.to_ne_bytes()),
            (libc::IFLA_LINK, &2u32.to_ne_bytes()),
            (libc::IFLA_CARRIER, &[1]),
            (libc::IFLA_LINKINFO, &info.concat()),
        ] {
            message.extend(attribute(kind, value));
        }
        let found = link(&message).expect("a link");
        assert!(found.infiniband && found.link.up && found.link.carrier);
        assert!(!found.link.arp && !found.link.multicast && found.link.master.is_none());
        assert_eq!(
            (found.link.index, found.link.mtu, found.link.below),
            (7, 4092, Some(2))
        );
        assert_eq!((&*found.link.name, &*found.link.kind), ("ib0", "ipoib_rs"));
        assert_eq!((&*found.device, found.port), ("dev0", 1));
        assert!(link(&message[..10]).is_none());

        message.extend(attribute(libc::IFLA_LINK_NETNSID, &[0; 4]));
        let elsewhere = link(&message).expect("a link").link;
        assert_eq!((elsewhere.below, elsewhere.bound_elsewhere), (None, false));
    }

    /// A link of a kind, with these attributes.
    fn other(kind: &[u8], data: &[(u16, &[u8])]) -> Link {
        let data = data
            .iter()
            .flat_map(|(kind, value)| attribute(*kind, value));
        let data: Vec<u8> = data.collect();
        let info = [
            attribute(libc::IFLA_INFO_KIND, kind),
            attribute(0x8000 | libc::IFLA_INFO_DATA, &data),
        ];
        let mut message = vec![0; LINK];
        message.extend(attribute(libc::IFLA_MASTER, &9u32.to_ne_bytes()));
        message.extend(attribute(libc::IFLA_LINKINFO, &info.concat()));
        link(&message).expect("a link").link
    }

    #[test]
    fn macvlans_and_bridges_are_read() {
        let mut message = vec![0; LINK];
        message.extend(attribute(libc::IFLA_LINK_NETNSID, &[0; 4]));
        let info = attribute(libc::IFLA_INFO_KIND, b"macvlan\0");
        message.extend(attribute(libc::IFLA_LINKINFO, &info));
        assert!(link(&message).expect("a link").link.bound_elsewhere);
        for (mode, isolated) in [(1u32, true), (2, true), (4, false), (8, false), (16, false)] {
            let macvlan = other(b"macvlan\0", &[(MODE, &mode.to_ne_bytes())]);
            assert_eq!(
                (macvlan.isolated, macvlan.master),
                (isolated, Some(9)),
                "{mode}"
            );
        }
        for (filters, default, expected) in [(1, 0u16, true), (1, 1, false), (0, 0, false)] {
            let default = default.to_ne_bytes();
            let attributes: [(u16, &[u8]); 2] =
                [(VLAN_FILTERING, &[filters]), (DEFAULT_VLAN, &default)];
            assert_eq!(other(b"bridge\0", &attributes).filters_vlans, expected);
        }
    }

    #[test]
    fn an_address_and_a_neighbour_are_read() {
        let mut message = vec![2, 24, 0, 0];
        message.extend(7u32.to_ne_bytes());
        message.extend(attribute(libc::IFA_ADDRESS, &[10, 1, 0, 9]));
        message.extend(attribute(libc::IFA_LOCAL, &[10, 1, 0, 1]));
        message.extend(attribute(
            libc::IFA_FLAGS,
            &libc::IFA_F_DADFAILED.to_ne_bytes(),
        ));
        let (index, found) = address(&message).expect("an address");
        assert_eq!(
            (index, found.ip.to_string(), found.prefix),
            (7, "10.1.0.1".into(), 24)
        );
        assert!(found.duplicate);
        assert!(address(&message[..8]).is_none() && address(&message[..3]).is_none());

        let neighbour_of = |ip: &[u8], state: u16| {
            let mut message = vec![10, 0, 0, 0];
            message.extend(7u32.to_ne_bytes());
            message.extend(state.to_ne_bytes());
            message.extend([0; 2]);
            message.extend(attribute(libc::NDA_DST, ip));
            neighbour(&message)
        };
        let (index, found) = neighbour_of(&[10, 1, 0, 2], libc::NUD_FAILED).expect("a neighbour");
        assert_eq!((index, &*found.state, &*found.gid), (7, "failed", ""));
        assert!(neighbour_of(&[224, 0, 0, 1], libc::NUD_REACHABLE).is_none());
        assert!(neighbour_of(&[10, 1, 0, 2], libc::NUD_NOARP).is_none());
        assert!(neighbour_of(&[1, 2, 3], libc::NUD_REACHABLE).is_none());
    }

    /// The kernel that runs the test answers, and has a loopback interface.
    #[test]
    fn this_host_has_links() {
        let links = links().expect("links");
        assert!(
            links
                .iter()
                .any(|found| found.link.name == "lo" && !found.infiniband)
        );
        neighbours().expect("neighbours");
        assert!(dump(u16::MAX, 0, |_| ()).is_err());
    }
}
