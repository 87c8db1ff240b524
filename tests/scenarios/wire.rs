// SPDX-License-Identifier: GPL-2.0

//! Frames of the driver on the wire, checked against RFC 4391 word for word.

use crate::capture::{Capture, Datagram};
use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::scenario;
use std::net::IpAddr;

const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;
/// RFC 4391 §4, scope link-local, P_Key 0xffff: all hosts.
const BROADCAST: &str = "ff12:401b:ffff::ffff:ffff";
/// IPv6 next header and ICMPv6 type of a neighbour solicitation.
const ICMPV6: u8 = 58;
const SOLICITATION: u8 = 135;
/// The P_Key of soft-RoCE's only partition.
const PKEY: u16 = 0xffff;
/// Of multicast datagrams.
const MULTICAST_QPN: u32 = 0xff_ffff;

/// The bytes of a host's `ib0` address.
pub(crate) fn hardware_address(host: &Host) -> Result<Vec<u8>> {
    host.ok("cat /sys/class/net/ib0/address")?
        .trim()
        .split(':')
        .map(|o| u8::from_str_radix(o, 16).context("hardware address"))
        .collect()
}

/// The Q_Key of a host's link: on RoCE a controlled one, with which user space cannot send, and on InfiniBand opensm's.
fn qkey(host: &Host) -> u32 {
    if host.is_infiniband() {
        0xb1b
    } else {
        0x8001_0b1b
    }
}

fn to(datagrams: &[Datagram], group: &str, ether_type: u16) -> Result<Vec<Datagram>> {
    let group: IpAddr = group.parse()?;
    let found: Vec<Datagram> = datagrams
        .iter()
        .filter(|d| d.destination == group && d.ether_type() == ether_type)
        .cloned()
        .collect();
    ensure!(
        !found.is_empty(),
        "nothing of type {ether_type:#06x} to {group} in {datagrams:#?}"
    );
    Ok(found)
}

scenario! {
    /// RFC 4391 §4, §6, §9.1, §9.2: the ARP request goes to the broadcast group, with hardware type
    /// 32 and 20-byte addresses.
    #[on(infiniband)]
    fn arp_goes_to_the_broadcast_group(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        let address = hardware_address(a)?;
        ensure!(address.len() == 20, "{address:?}");
        let capture = Capture::start(b)?;
        a.ok("ip neigh flush dev ib0")?;
        a.ok(&format!("ping -c 1 -W 5 {}", b.ip4()))?;
        let requests = to(&capture.stop()?, BROADCAST, ARP)?;
        let request = &requests[0];
        ensure!(request.reserved() == 0 && request.qpn == MULTICAST_QPN && request.pkey == PKEY, "{request:?}");
        ensure!(request.qkey == qkey(a), "Q_Key {:#x}", request.qkey);
        let arp = &request.payload[4..];
        ensure!(arp[..8] == [0, 32, 8, 0, 20, 4, 0, 1], "{arp:x?}");
        ensure!(arp[8..28] == address, "{arp:x?} is not from {address:x?}");
        ensure!(arp[28..32] == [10, 1, 0, 1] && arp[52..56] == [10, 1, 0, 2], "{arp:x?}");
        let qpn = u32::from_be_bytes([0, address[1], address[2], address[3]]);
        ensure!(request.source_qpn == qpn, "{:#x} is not {qpn:#x}", request.source_qpn);
        bed.finish()
    }
}

scenario! {
    /// RFC 4391 §4, §9.3: the solicitation goes to the solicited-node group; the link-layer address
    /// option is three units long, with two bytes of padding before the address.
    #[on(infiniband)]
    fn neighbour_discovery_goes_to_the_solicited_node_group(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        let address = hardware_address(a)?;
        let capture = Capture::start(b)?;
        a.ok("ip -6 neigh flush dev ib0")?;
        a.ok(&format!("ping -6 -c 1 -W 5 {}", b.ip6()))?;
        let solicited = to(&capture.stop()?, "ff12:601b:ffff::1:ff00:2", IPV6)?;
        let option = solicited
            .iter()
            .map(|d| &d.payload[4..])
            .filter(|ip| ip.len() >= 40 + 24 + 24 && ip[6] == ICMPV6 && ip[40] == SOLICITATION)
            .map(|ip| ip[64..88].to_vec())
            .next()
            .context("no solicitation with a link-layer address")?;
        ensure!(option[..4] == [1, 3, 0, 0] && option[4..] == address, "{option:x?}");
        bed.finish()
    }
}

scenario! {
    /// RFC 4391 §6, §9.1.2: unicast datagrams carry the broadcast group's Q_Key and go to the QPN in
    /// the neighbour's address; the reserved field has our number (`order.rs`), or is clear.
    #[on(both, infiniband)]
    fn unicast_goes_to_the_neighbours_qp(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        let address = hardware_address(b)?;
        a.ok(&format!("ping -c 1 -W 5 {}", b.ip4()))?;
        let capture = Capture::start(b)?;
        a.ok(&format!("ping -c 1 -W 5 {}", b.ip4()))?;
        let datagrams = capture.stop()?;
        let request = datagrams
            .iter()
            .find(|d| d.ether_type() == 0x0800 && d.payload.get(4 + 20) == Some(&8))
            .context("no echo request")?;
        let qpn = u32::from_be_bytes([0, address[1], address[2], address[3]]);
        ensure!(request.qpn == qpn && request.pkey == PKEY, "{request:?}");
        ensure!(request.qkey == qkey(a), "Q_Key {:#x}", request.qkey);
        bed.finish()
    }
}
