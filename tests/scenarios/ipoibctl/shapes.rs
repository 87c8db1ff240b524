// SPDX-License-Identifier: GPL-2.0

//! Healthy hosts of many shapes, of which doctor has nothing to say.

use super::{LIMIT, findings_by};
use crate::programs::{LEASED6, SERVER};
use crate::random::Random;
use crate::transfer::transfer;
use anyhow::{Context, Result, ensure};
use lab::bed::{Bed, Builder, Host};
use lab::scenario;
use lab::task::Task;
use std::time::Duration;

const SEED: u64 = 19;
/// Asks for an IPv6 address without being told to by a router.
const CLIENT: &str = "dhcpcd -q -6 --noipv6rs --ia_na";
/// Says what a router would, too: which network is on the link.
const NETWORK: &str = "ip -6 route replace fd00:1::/64 dev ib0";
/// A condition on the machine: the driver is not about to connect again.
const NONE_WAITS: &str = r#"[ -z "$(awk '$4 == "waiting"' /run/debug/ipoib_rs/*/connections)" ]"#;
/// A condition on the machine: the driver is not about to join a group again.
const ALL_JOINED: &str = r#"[ -z "$(awk '$2 == "failed"' /run/debug/ipoib_rs/*/groups)" ]"#;
/// The namespace that a child may be in.
const GUEST: &str = "ip netns exec guest";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Four,
    Six,
    Both,
}

/// A child of the interface on each host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Child {
    None,
    Beside,
    /// Its parent has no address.
    Alone,
    /// In a namespace, beside a link with the index that its parent has in the other one.
    Elsewhere,
}

/// The kernel's own driver on the same ports, which have to be of InfiniBand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IbIpoib {
    Absent,
    Idle,
    InUse,
}

/// An event before doctor runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Nothing,
    Pings,
    Stream,
    Mode,
    Mtu,
    Rings,
    Extensions,
    DownAndUp,
    Cable,
    PeerAnew,
    Manager,
}

const CHILDREN: [Child; 5] = [
    Child::None,
    Child::None,
    Child::Beside,
    Child::Alone,
    Child::Elsewhere,
];
const IB_IPOIB: [IbIpoib; 4] = [
    IbIpoib::Absent,
    IbIpoib::Absent,
    IbIpoib::Idle,
    IbIpoib::InUse,
];
const EVENTS: [Event; 11] = [
    Event::Nothing,
    Event::Pings,
    Event::Stream,
    Event::Mode,
    Event::Mtu,
    Event::Rings,
    Event::Extensions,
    Event::DownAndUp,
    Event::Cable,
    Event::PeerAnew,
    Event::Manager,
];
const FEATURES: [&str; 4] = [
    "",
    "rx-gro-list on",
    "rx-udp-gro-forwarding on",
    "tx-nocache-copy on",
];

/// A shape that hosts may have, and in which they are well.
#[derive(Debug)]
struct Shape {
    mode: &'static str,
    mode_of_peers: &'static str,
    mtu: u32,
    peers: usize,
    family: Family,
    dhcp: bool,
    child: Child,
    ring: u32,
    /// Moderation, which soft-RoCE does not have.
    rx_frames: Option<u32>,
    feature: &'static str,
    ib_ipoib: IbIpoib,
    event: Event,
}

impl Shape {
    fn draw(random: &mut Random, infiniband: bool) -> Shape {
        let mode = random.one(&["datagram", "connected"]);
        let mtus: &[u32] = if mode == "connected" {
            &[1280, 2044, 9000, 65520]
        } else {
            &[1280, 1500, 2044]
        };
        let mut shape = Shape {
            mode,
            // The other way round, doctor has a hint.
            mode_of_peers: random.one(&[mode, mode, "connected"]),
            mtu: random.one(mtus),
            peers: random.one(&[0, 1, 1, 2]),
            family: random.one(&[Family::Four, Family::Six, Family::Both]),
            dhcp: random.below(2) == 0,
            child: random.one(&CHILDREN),
            ring: random.one(&[256, 512, 2048]),
            rx_frames: random.one(&[None, None, Some(16)]),
            feature: random.one(&FEATURES),
            ib_ipoib: random.one(&IB_IPOIB),
            event: random.one(&EVENTS),
        };
        // dhcpcd asks for IPv6 addresses only.
        shape.dhcp &= shape.peers > 0 && shape.family == Family::Six && shape.child != Child::Alone;
        if !infiniband {
            shape.ib_ipoib = IbIpoib::Absent;
            shape.rx_frames = None;
        }
        if !infiniband && shape.event == Event::Manager {
            shape.event = Event::Nothing;
        }
        shape
    }

    /// Addresses that the first host has to reach, with the command by which.
    fn targets(&self, bed: &Bed) -> Vec<(&'static str, String)> {
        let mut all = Vec::new();
        for host in &bed.hosts[1..=self.peers] {
            if self.child != Child::Alone {
                if self.family != Family::Six {
                    all.push(("", host.ip4()));
                }
                if self.family != Family::Four {
                    all.push(("", host.ip6()));
                }
            }
            match self.child {
                Child::None => {}
                Child::Beside | Child::Alone => all.push(("", child4(host))),
                Child::Elsewhere => all.push((GUEST, child4(host))),
            }
        }
        all
    }
}

fn child4(host: &Host) -> String {
    format!("10.2.0.{}", host.number())
}

/// Hosts that get one shape after the other.
struct Place<'a> {
    bed: &'a Bed,
    /// A process in the namespace for children.
    pid: String,
    _guest: Task,
}

impl<'a> Place<'a> {
    fn new(bed: &'a Bed) -> Result<Place<'a>> {
        bed.ports()?;
        let (guest, pid) = bed.hosts[0].netns_add("guest")?;
        Ok(Place {
            bed,
            pid,
            _guest: guest,
        })
    }

    fn first(&self) -> &'a Host {
        &self.bed.hosts[0]
    }

    /// Gives the hosts a shape.
    fn make(&self, shape: &Shape) -> Result<()> {
        self.doubt(shape)?;
        for host in &self.bed.hosts[..=shape.peers] {
            self.make_host(host, shape)?;
        }
        if shape.dhcp {
            self.lease()?;
        }
        if shape.ib_ipoib != IbIpoib::Absent {
            self.first().ok("modprobe ib_ipoib")?;
        }
        if shape.ib_ipoib == IbIpoib::InUse {
            // Its link-local address would be that of ib0, which is on the same port, and either would answer for the
            // other's addresses.
            self.first().ok("set -e
                 for name in ib0 ib1; do echo 1 >/proc/sys/net/ipv4/conf/$name/arp_ignore; done
                 ip link set ib1 addrgenmode none
                 ip addr add 10.4.0.1/24 dev ib1
                 ip link set ib1 up")?;
            carrier(self.first(), "", "ib1")?;
        }
        Ok(())
    }

    /// How long hosts believe that a neighbour still has its address. By default that is half a minute, in which they would
    /// not hear of a peer that comes anew. The machine's defaults are those of its network namespaces.
    fn doubt(&self, shape: &Shape) -> Result<()> {
        let (ms, s) = if shape.event == Event::PeerAnew {
            (1000, 1)
        } else {
            (30_000, 5)
        };
        let set = format!(
            "for f in ipv4 ipv6; do
                 echo {ms} >/proc/sys/net/$f/neigh/default/base_reachable_time_ms
                 echo {s} >/proc/sys/net/$f/neigh/default/delay_first_probe_time
             done"
        );
        self.first().outside().ok(&set).map(drop)
    }

    fn make_host(&self, host: &Host, shape: &Shape) -> Result<()> {
        let is_first = host.number() == 1;
        let mode = if is_first {
            shape.mode
        } else {
            shape.mode_of_peers
        };
        host.ib_add(&format!("mode {mode}"))?;
        host.ok(&format!(
            "ethtool -G ib0 rx {ring} tx {ring} && ip link set ib0 up",
            ring = shape.ring
        ))?;
        if let Some(frames) = shape.rx_frames {
            host.ok(&format!("ethtool -C ib0 rx-frames {frames}"))?;
        }
        if is_first && !shape.feature.is_empty() {
            host.ok(&format!("ethtool -K ib0 {}", shape.feature))?;
        }
        carrier(host, "", "ib0")?;
        host.ok(&format!("ip link set ib0 mtu {}", shape.mtu))?;
        addresses(host, shape)?;
        if shape.child != Child::None {
            self.make_child(host, is_first && shape.child == Child::Elsewhere)?;
        }
        Ok(())
    }

    fn make_child(&self, host: &Host, is_elsewhere: bool) -> Result<()> {
        // On soft-RoCE, there is one partition: its link-local address would be that of its parent.
        let (pkey, generated) = if host.is_infiniband() {
            ("pkey 0x8001", "eui64")
        } else {
            ("", "none")
        };
        // In one partition, either answers for the other's addresses otherwise, and they may be in different modes.
        host.ok(&format!(
            "set -e
             ip link add link ib0 name ib0.1 type ipoib_rs {pkey}
             for name in ib0 ib0.1; do echo 1 >/proc/sys/net/ipv4/conf/$name/arp_ignore; done"
        ))?;
        let by = if is_elsewhere {
            let index = host.ok("cat /sys/class/net/ib0/ifindex")?;
            host.ok(&format!("ip link set ib0.1 netns {}", self.pid))?;
            host.outside().ok(&format!(
                "ip -n guest link add name eth0 index {} type veth",
                index.trim()
            ))?;
            GUEST
        } else {
            ""
        };
        let inside = if is_elsewhere {
            host.outside()
        } else {
            host.clone()
        };
        inside.ok(&format!(
            "set -e
             {by} ip link set ib0.1 addrgenmode {generated}
             {by} ip addr add {}/24 dev ib0.1
             {by} ip link set ib0.1 up",
            child4(host)
        ))?;
        carrier(&inside, by, "ib0.1")
    }

    /// The first host has its address from a server on the second.
    fn lease(&self) -> Result<()> {
        let server = &self.bed.hosts[1];
        server.ok(&format!(
            "cat >/tmp/dnsmasq.conf <<'EOF'\n{}\nEOF\ndnsmasq --user=root --dhcp-leasefile=/tmp/leases -C /tmp/dnsmasq.conf",
            // Its router advertisements have the address in the wrong place, which is no healthy shape.
            SERVER.replace("enable-ra", "")
        ))?;
        self.first().ok(&format!("{CLIENT} ib0"))?;
        self.first().wait_until(LEASED6, 2 * LIMIT)?;
        self.first().ok(NETWORK).map(drop)
    }

    /// Takes all away that a shape has.
    fn clear(&self, shape: &Shape) -> Result<()> {
        if shape.dhcp {
            // The next server does not know the lease, and the client would ask for that one first.
            self.first().ok(&format!(
                "{CLIENT} -x ib0; pkill -x dnsmasq; rm -f /tmp/leases /var/lib/dhcpcd/ib0.lease6"
            ))?;
        }
        if shape.ib_ipoib != IbIpoib::Absent {
            self.first().ok("modprobe -r ib_ipoib")?;
        }
        for host in &self.bed.hosts[..=shape.peers] {
            host.ok("ip link del ib0")?;
        }
        if shape.child == Child::Elsewhere {
            self.first().outside().ok("ip -n guest link del eth0")?;
        }
        Ok(())
    }

    /// Waits until the first host reaches all that it has to, and no connection or group waits for its next attempt.
    fn settle(&self, shape: &Shape) -> Result<()> {
        for (by, target) in shape.targets(self.bed) {
            let host = if by.is_empty() {
                self.first().clone()
            } else {
                self.first().outside()
            };
            host.wait_until(
                &format!("{by} ping -q -c 1 -W 1 {target} && {NONE_WAITS}"),
                LIMIT,
            )?;
        }
        self.first().wait_until(ALL_JOINED, LIMIT)
    }

    /// Has something happen while the first host pings a peer, if it has one.
    fn happen(&self, shape: &Shape) -> Result<()> {
        let targets = shape.targets(self.bed);
        let target = targets.iter().find(|(by, _)| by.is_empty());
        let Some((_, target)) = target else {
            return self.change(shape);
        };
        if shape.event == Event::Nothing {
            return Ok(());
        }
        let a = self.first();
        let ping = a.spawn(&format!("ping -q -i 0.01 -s 1000 {target}"))?;
        match shape.event {
            Event::Pings => std::thread::sleep(Duration::from_millis(500)),
            Event::Stream => transfer(a, &self.bed.hosts[1], target, 1)?,
            _ => self.change(shape)?,
        }
        ping.stop()?;
        Ok(())
    }

    /// Changes something, and changes it back.
    fn change(&self, shape: &Shape) -> Result<()> {
        let a = self.first();
        let used = &self.bed.hosts[..=shape.peers];
        match shape.event {
            Event::Nothing | Event::Pings | Event::Stream => {}
            Event::Mode => {
                for mode in ["connected", "datagram"] {
                    each(used, &format!("echo {mode} >/sys/class/net/ib0/mode"))?;
                }
                let peers = format!("echo {} >/sys/class/net/ib0/mode", shape.mode_of_peers);
                a.ok(&format!("echo {} >/sys/class/net/ib0/mode", shape.mode))?;
                each(&used[1..], &peers)?;
            }
            Event::Mtu => {
                each(used, "ip link set ib0 mtu 1400")?;
                each(used, &format!("ip link set ib0 mtu {}", shape.mtu))?;
            }
            Event::Rings => {
                for size in [1024, shape.ring] {
                    a.ok(&format!("ethtool -G ib0 rx {size} tx {size}"))?;
                }
            }
            Event::Extensions => {
                for value in 0..=1 {
                    a.ok(&format!("echo {value} >/proc/sys/net/ipoib/ib0/extensions"))?;
                }
            }
            Event::DownAndUp => {
                a.ok("ip link set ib0 down && ip link set ib0 up")?;
                if shape.dhcp {
                    a.ok(NETWORK)?;
                } else {
                    a.ok("ip addr flush dev ib0 scope global")?;
                    addresses(a, shape)?;
                }
            }
            Event::Cable => plug_again(a)?,
            Event::PeerAnew => {
                if let Some(peer) = used.get(1) {
                    peer.ok("ip link del ib0")?;
                    self.make_host(peer, shape)?;
                }
            }
            Event::Manager => self.bed.subnet_manager()?,
        }
        if shape.ib_ipoib == IbIpoib::InUse {
            carrier(a, "", "ib1")?;
        }
        carrier(a, "", "ib0")
    }

    /// Runs doctor, which has nothing to say.
    fn judge(&self, shape: &Shape) -> Result<()> {
        let mut judged = vec![(self.first().clone(), "")];
        if shape.mode_of_peers == shape.mode {
            let peers = self.bed.hosts[1..=shape.peers].iter();
            judged.extend(peers.map(|host| (host.clone(), "")));
        }
        if shape.child == Child::Elsewhere {
            judged.push((self.first().outside(), GUEST));
        }
        for (host, by) in judged {
            let found = findings_by(&host, by)?;
            ensure!(
                found.is_empty(),
                "a false alarm on host {} {by}: {found:#?}",
                host.number()
            );
        }
        Ok(())
    }

    /// Doctor has nothing to say of a shape.
    fn is_well(&self, shape: &Shape) -> Result<()> {
        self.make(shape)?;
        self.settle(shape)?;
        self.happen(shape)?;
        self.settle(shape)?;
        self.judge(shape)?;
        self.clear(shape)
    }
}

fn each(hosts: &[Host], command: &str) -> Result<()> {
    hosts.iter().try_for_each(|host| host.ok(command).map(drop))
}

fn carrier(host: &Host, by: &str, name: &str) -> Result<()> {
    host.wait_until(
        &format!("{by} ip -o link show {name} | grep -q LOWER_UP"),
        LIMIT,
    )
    .with_context(|| format!("{name} of host {}", host.number()))
}

fn addresses(host: &Host, shape: &Shape) -> Result<()> {
    let is_first = host.number() == 1;
    let is_bare = is_first && (shape.child == Child::Alone || shape.dhcp);
    // A server of both families is on the second host.
    if !is_bare && (shape.family != Family::Six || shape.dhcp) {
        host.ok(&format!("ip addr add {}/24 dev ib0", host.ip4()))?;
    }
    if !is_bare && shape.family != Family::Four {
        host.ok(&format!("ip addr add {}/64 dev ib0 nodad", host.ip6()))?;
    }
    Ok(())
}

/// Pulls the cable of a host, or does what comes next to that, and plugs it again.
fn plug_again(host: &Host) -> Result<()> {
    if host.is_infiniband() {
        host.outside().ok(&format!(
            "cd /sys/kernel/config/ib_hwsim/star/cables/c{} && echo 0 >plugged && echo 1 >plugged",
            host.number()
        ))?;
    } else {
        host.ok("ip link set eth0 down && ip link set eth0 up")?;
    }
    Ok(())
}

/// Gives the hosts of a bed one shape after the other.
fn all_are_well(bed: Builder, shapes: &[(usize, &Shape)]) -> Result<()> {
    let bed = bed.up()?;
    if !bed.hosts[0].is_infiniband() {
        bed.loses_ethernet();
    }
    let place = Place::new(&bed)?;
    for (number, shape) in shapes {
        place
            .is_well(shape)
            .with_context(|| format!("shape {number} from seed {SEED}: {shape:?}"))?;
    }
    bed.finish()
}

scenario! {
    /// Doctor finds nothing wrong with ten healthy shapes (a hundred with ROUNDS=100): either kind of port, both modes,
    /// MTUs, rings, families of addresses, with and without peers, children and `ib_ipoib`, after this and that.
    #[on(uml, timed)]
    fn healthy_shapes_raise_no_alarm(bed) {
        let (rounds, factor) = bed.rounds(10)?;
        let bed = bed.hosts(3).lifetime(Duration::from_secs(240) * factor);
        let mut random = Random(SEED);
        let shapes: Vec<Shape> = (0..rounds).map(|n| Shape::draw(&mut random, n % 2 == 1)).collect();
        let of = |parity: usize| -> Vec<(usize, &Shape)> {
            shapes.iter().enumerate().filter(|(n, _)| n % 2 == parity).collect()
        };
        all_are_well(bed.clone(), &of(0))?;
        all_are_well(bed.infiniband(), &of(1))
    }
}
