// SPDX-License-Identifier: GPL-2.0

//! Properties that the broadcast group gives to a link (RFC 4391, sections 5 and 10), and packets that have them.

use super::super::fields::Fields;
use super::super::ipoib::{multicast_ping, send_to_group};
use super::super::manager::Manager;
use super::super::{fabric::CONFIGFS, hca, inhabit, make};
use super::{Driver, add};
use crate::capture::{Capture, RcSend};
use crate::connected::{connect, set_mode};
use crate::inspect::{directory, identity};
use anyhow::{Context, Result, bail, ensure};
use lab::bed::{Bed, Host};
use lab::scenario;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(10);

/// None of it is opensm's default: 4096 bytes, 20 Gbit/s. It makes the broadcast group with the scope of a link, and that of
/// a site as any other group.
const PARTITION: &str = "Default=0x7fff, ipoib, mtu=5, rate=6, sl=3, Q_Key=0x1234567 :
    mgid=ff15:401b::ffff:ffff, scope=5, TClass=0x20
    ALL=full;";
/// Without QoS, opensm has one SL only.
const OPTIONS: &str = "-Q -P /tmp/partitions.conf";
const QKEY: u32 = 0x0123_4567;
const SERVICE_LEVEL: u8 = 3;
const TRAFFIC_CLASS: u8 = 0x20;
/// Of codes, without the selectors in front.
const MTU: u64 = 5;
const RATE: u64 = 6;

/// Three hosts on a link with these properties, the last with `ib_ipoib`. The cable of the second is half as fast as the
/// others.
fn up(bed: &Bed) -> Result<Manager> {
    let outside = bed.hosts.first().context("no host")?.outside();
    outside.ok(&format!(
        "modprobe ipoib_rs && modprobe ib_ipoib && echo '{PARTITION}' >/tmp/partitions.conf"
    ))?;
    make(&outside, "star 3")?;
    outside.ok(&format!(
        "cd {CONFIGFS}/star && echo 0 >live && echo ddr >cables/c2/speed && echo 1 >live"
    ))?;
    let manager = inhabit(bed, OPTIONS)?;
    let kinds = [Driver::Ours, Driver::Ours, Driver::C];
    for (host, driver) in bed.hosts.iter().zip(kinds) {
        if driver == Driver::Ours {
            add(host, "")?;
        }
        host.ok(
            "sysctl -qw net.ipv4.icmp_echo_ignore_broadcasts=0
             ip link set ib0 broadcast 00:ff:ff:ff:ff:15:40:1b:ff:ff:00:00:00:00:00:00:ff:ff:ff:ff",
        )?;
        if driver == Driver::C {
            // The stack makes addresses of groups of the broadcast address that it finds as the interface goes up again. It
            // is to forget those from before, which it does when the link was ready; it has a link-local address then.
            host.ok("ip link set ib0 up")?;
            host.wait_until(
                "ip -6 -o addr show dev ib0 scope link | grep -q fe80",
                LIMIT,
            )?;
            host.ok("ip link set ib0 down")?;
        }
        host.ib_up()?;
        ensure!(host.ok("cat /sys/class/net/ib0/mtu")?.trim() == "4092");
    }
    Ok(manager)
}

/// Each reaches each other one, all at once by broadcast, and the members of groups of both versions of IP.
fn talk(hosts: &[Host]) -> Result<()> {
    for from in hosts {
        let others: Vec<Host> = hosts
            .iter()
            .filter(|host| host.number() != from.number())
            .cloned()
            .collect();
        for to in &others {
            from.ok(&format!("ping -q -c 2 -i 0.1 -W 5 -s 4064 {}", to.ip4()))?;
            from.wait_until(
                &format!(
                    "ping -b -c 2 -i 0.2 -W 2 10.1.0.255 2>&1 | grep -q 'from {}:'",
                    to.ip4()
                ),
                LIMIT,
            )?;
            multicast_ping(from, to)?;
        }
        send_to_group(from, &others)?;
    }
    Ok(())
}

/// Checks what the administrator knows of the groups of the link, one of which has only us as a member.
fn check_groups(hosts: &[Host]) -> Result<()> {
    let [first, ours, _] = hosts else {
        bail!("no three hosts");
    };
    ours.ok("ip addr add 239.7.7.7/32 dev ib0 autojoin")?;
    // Only those who know its key are told of members.
    let command = format!("saquery -C {} -P 1 --smkey 1 MCMR", hca(first));
    let own = "ff15:401b:ffff::f07:707";
    first.wait_until(&format!("{command} | grep -q '{own}'"), LIMIT)?;
    let records = Fields::of(first, &command)?.records("MGID");
    let mut seen = BTreeSet::new();
    for record in &records {
        let mgid = record.text("MGID")?;
        // Without members, as opensm makes it.
        if mgid == "ff12:401b:ffff::ffff:ffff" {
            continue;
        }
        ensure!(mgid.starts_with("ff15:"), "{record}");
        seen.insert(mgid);
        for (name, wanted) in [
            ("qkey", u64::from(QKEY)),
            ("SL", SERVICE_LEVEL.into()),
            ("TClass", TRAFFIC_CLASS.into()),
        ] {
            ensure!(record.number(name)? == wanted, "{name} of {record}");
        }
        for (name, wanted) in [("mtu", MTU), ("rate", RATE)] {
            ensure!(record.number(name)? & 0x3f == wanted, "{name} of {record}");
        }
    }
    for mgid in [own, "ff15:401b:ffff::ffff:ffff", "ff15:401b:ffff::f01:203"] {
        ensure!(seen.contains(mgid), "no {mgid} in {seen:?}");
    }
    Ok(())
}

/// Checks the datagrams that a host has sent: those to a group have a global route header, and the others none.
fn check_datagrams(host: &Host, capture: Capture) -> Result<()> {
    let (_, qpn) = identity(host)?;
    let mut sent = capture.stop()?;
    sent.retain(|datagram| format!("{:#08x}", datagram.source_qpn) == qpn);
    let mut groups = 0;
    for datagram in &sent {
        ensure!(
            datagram.qkey == QKEY && datagram.service_level == SERVICE_LEVEL,
            "{datagram:?}"
        );
        let is_group = datagram.qpn == 0xff_ffff;
        groups += u32::from(is_group);
        match datagram.destination {
            IpAddr::V6(gid) if is_group => ensure!(
                gid.octets()[..2] == [0xff, 0x15] && datagram.traffic_class == TRAFFIC_CLASS,
                "{datagram:?}"
            ),
            gid => ensure!(gid.is_unspecified(), "{datagram:?}"),
        }
    }
    let others = sent.len() - groups as usize;
    ensure!(groups > 20 && others > 5, "{groups}, {others}");
    Ok(())
}

/// Checks what is told of the paths of the first host, the rate of which is that of the slowest cable on the way.
fn check_paths(host: &Host) -> Result<()> {
    let text = host.ok(&format!("cat {}/path", directory(host, "ib0")?))?;
    for rate in ["20.0", "40.0"] {
        let wanted = format!("  SL: {SERVICE_LEVEL:12}\n  rate: {rate:>10} Gb/sec\n");
        ensure!(text.contains(&wanted), "{wanted} {text}");
    }
    Ok(())
}

scenario! {
    /// The partition has another Q_Key, SL, rate, MTU, traffic class and scope than by default: groups that we make have
    /// them, too, and so have our packets, of which only those to groups have a global route header.
    fn a_link_with_other_properties(bed) {
        let bed = bed.hosts(3).infiniband().up()?;
        let manager = up(&bed)?;
        let [a, b, _] = &bed.hosts[..] else {
            bail!("no three hosts");
        };
        let capture = Capture::start(a)?;
        talk(&bed.hosts)?;
        check_datagrams(a, capture)?;
        check_groups(&bed.hosts)?;
        check_paths(a)?;

        for host in [a, b] {
            set_mode(host, "connected")?;
            host.ok("ip link set ib0 mtu 65520")?;
        }
        connect(a, b)?;
        let capture = Capture::start(a)?;
        a.ok(&format!("ping -q -c 3 -i 0.1 -W 5 -s 20000 {}", b.ip4()))?;
        let (_, sends) = capture.stop_with_sends()?;
        let is_wrong = |send: &&RcSend| send.service_level != SERVICE_LEVEL || !send.destination.is_unspecified();
        let wrong = sends.iter().find(is_wrong);
        ensure!(wrong.is_none() && sends.len() >= 20, "{wrong:x?} of {}", sends.len());
        manager.end()?;
        bed.finish()
    }
}
