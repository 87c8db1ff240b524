// SPDX-License-Identifier: GPL-2.0

//! Causes that are brought about in guests, one at a time and in pairs.
//!
//! A guest is made to have many of them, one after the other, since each takes a few runs of the tool only. What doctor
//! says mends a cause has to mend it.

use super::{LIMIT, ask, findings, until, well};
use anyhow::{Context, Result, ensure};
use lab::bed::{Bed, Host};
use lab::layout::Layout;
use lab::scenario;
use serde_json::Value;
use std::collections::BTreeSet;

const PARTITIONS: &str = "/tmp/ipoibctl-partitions.conf";
const DEFAULT: &str = "Default=0x7fff, ipoib : ALL=full;";

/// A cause, and how it comes about.
struct Injection<'a> {
    cause: &'static str,
    /// The host that it comes about on; it may be another one than doctor's.
    on: &'a Host,
    breaks: String,
    /// Command that mends it, if doctor's is for people or there is none.
    by_hand: String,
    /// A condition on doctor's host which is waited for after either.
    then: String,
}

impl<'a> Injection<'a> {
    /// One that doctor's own command mends.
    fn new(on: &'a Host, cause: &'static str, breaks: impl Into<String>) -> Injection<'a> {
        Injection {
            cause,
            on,
            breaks: breaks.into(),
            by_hand: String::new(),
            then: "true".to_owned(),
        }
    }

    fn by_hand(mut self, command: impl Into<String>) -> Injection<'a> {
        self.by_hand = command.into();
        self
    }

    fn then(mut self, condition: &str) -> Injection<'a> {
        self.then = condition.to_owned();
        self
    }

    /// Brings the cause about.
    fn bring(&self, host: &Host) -> Result<()> {
        self.run(host, &self.breaks)
    }

    /// Mends the cause as doctor says among its findings.
    fn mend(&self, host: &Host, found: &[Value]) -> Result<()> {
        let finding = found.iter().find(|finding| finding["cause"] == self.cause);
        let finding = finding.context("it is not named")?;
        let is_safe = finding["safe"] == true;
        ensure!(is_safe == self.by_hand.is_empty(), "{finding}");
        if is_safe {
            let fix = finding["fix"].as_str().context("no command")?;
            host.ok(fix)?;
            host.wait_until(&self.then, LIMIT)
        } else {
            self.run(host, &self.by_hand)
        }
    }

    fn run(&self, host: &Host, command: &str) -> Result<()> {
        self.on.ok(command)?;
        host.wait_until(&self.then, LIMIT)
    }
}

/// Waits until a cause is named first. All findings then.
fn named(host: &Host, cause: &str) -> Result<Vec<Value>> {
    let first = |found: &[Value]| found.first().is_some_and(|f| f["cause"] == cause);
    until(host, &format!("{cause} is not the first"), first)
}

/// Waits until just these causes are named. All findings then.
fn only(host: &Host, causes: &[&str]) -> Result<Vec<Value>> {
    let wanted: BTreeSet<&str> = causes.iter().copied().collect();
    let are_all = |found: &[Value]| {
        let named = found.iter().filter_map(|finding| finding["cause"].as_str());
        named.collect::<BTreeSet<_>>() == wanted
    };
    until(host, &format!("not just {causes:?}"), are_all)
}

/// Brings each cause about and sees it named first. Mends it; then all is well.
fn singles(host: &Host, injections: &[Injection<'_>]) -> Result<()> {
    for injection in injections {
        let single = || -> Result<()> {
            injection.bring(host)?;
            injection.mend(host, &named(host, injection.cause)?)?;
            well(host)
        };
        single().with_context(|| injection.cause)?;
    }
    Ok(())
}

/// The injections of two causes.
fn two<'a, 'b>(
    injections: &'b [Injection<'a>],
    causes: [&str; 2],
) -> Result<[&'b Injection<'a>; 2]> {
    let of = |cause: &str| {
        let found = injections.iter().find(|injection| injection.cause == cause);
        found.with_context(|| cause.to_owned())
    };
    Ok([of(causes[0])?, of(causes[1])?])
}

/// Brings two causes at a time about: both are named, and nothing else. Mends them; then all is well.
fn pairs(host: &Host, injections: &[Injection<'_>], causes: &[[&str; 2]]) -> Result<()> {
    for causes in causes {
        let pair = || -> Result<()> {
            let [first, second] = two(injections, *causes)?;
            first.bring(host)?;
            second.bring(host)?;
            let found = only(host, causes)?;
            second.mend(host, &found)?;
            first.mend(host, &found)?;
            well(host)
        };
        pair().with_context(|| format!("{causes:?}"))?;
    }
    Ok(())
}

/// Two causes of which one hides the other.
struct Hidden {
    by: &'static str,
    hidden: &'static str,
    /// The hidden one is named as soon as the other is mended; else it is gone.
    stays: bool,
}

/// Brings a cause about, and another that hides it, which alone is named.
fn hidden(host: &Host, injections: &[Injection<'_>], all: &[Hidden]) -> Result<()> {
    for one in all {
        let pair = || -> Result<()> {
            let [by, below] = two(injections, [one.by, one.hidden])?;
            below.bring(host)?;
            only(host, &[one.hidden])?;
            by.bring(host)?;
            by.mend(host, &only(host, &[one.by])?)?;
            if one.stays {
                below.mend(host, &only(host, &[one.hidden])?)?;
            }
            well(host)
        };
        pair().with_context(|| format!("{} behind {}", one.hidden, one.by))?;
    }
    Ok(())
}

/// In both modes, with traffic: nothing is wrong, and status says so in words and in JSON.
fn healthy(a: &Host, b: &Host) -> Result<()> {
    let tool = Layout::from_env()?.ipoibctl();
    for mode in ["datagram", "connected"] {
        for host in [a, b] {
            host.ok(&format!("echo {mode} >/sys/class/net/ib0/mode"))?;
        }
        a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), LIMIT)?;
        a.ok(&format!("ping -q -c 50 -i 0.01 -s 3000 -W 5 {}", b.ip4()))?;
        for host in [a, b] {
            well(host).with_context(|| mode.to_owned())?;
            let (status, code) = ask(host, "status")?;
            let all = status["interfaces"].as_array().context("no interfaces")?;
            let ib0 = all.iter().find(|i| i["name"] == "ib0").context("no ib0")?;
            ensure!(code == 0 && ib0["mode"] == mode, "{status}");
            ensure!(ib0["driver"] == "ipoib_rs" && ib0["up"] == true, "{status}");
            ensure!(ib0["broadcast"] == "joined", "{status}");
            ensure!(ib0["port"]["state"] == "ACTIVE", "{status}");
            ensure!(ib0["counters"]["rx_frames"].as_u64() > Some(0), "{status}");
        }
        let (way, code) = ask(a, &format!("peers --why {}", b.ip4()))?;
        ensure!(code == 0, "{way}");
        let stops = if mode == "connected" { 4 } else { 3 };
        ensure!(way["way"].as_array().map(Vec::len) == Some(stops), "{way}");
    }
    let text = a.ok(&format!("{} status | cat", tool.display()))?;
    ensure!(
        text.contains("All is well.") && !text.contains('\x1b'),
        "{text}"
    );
    Ok(())
}

/// Causes in the interface and in the settings of the host.
fn settings(a: &Host) -> Vec<Injection<'_>> {
    let commands = [
        ("interface-down", "ip link set ib0 down"),
        ("arp-off", "ip link set ib0 arp off"),
        ("multicast-off", "ip link set ib0 multicast off"),
        ("mtu-below-ipv6", "ip link set ib0 mtu 1000"),
        ("netem", "tc qdisc replace dev ib0 root netem delay 1ms"),
        ("gso-off", "ethtool -K ib0 gso off"),
        ("gro-off", "ethtool -K ib0 gro off"),
        ("small-rings", "ethtool -G ib0 rx 64"),
    ];
    let variables = [
        ("window-off", "net/ipoib/ib0/reorder_window", "0"),
        (
            "no-time-to-reorder",
            "net/ipoib/ib0/reorder_timeout_us",
            "0",
        ),
        ("small-budget", "net/ipoib/ib0/napi_budget", "4"),
        ("extensions-off", "net/ipoib/ib0/extensions", "0"),
        ("checksums-on", "net/ipoib/ib0/icrc", "0"),
        ("large-frames-off", "net/ipoib/ib0/large_frames", "0"),
        ("arp-ignored", "net/ipv4/conf/ib0/arp_ignore", "8"),
        ("ipv6-off", "net/ipv6/conf/ib0/disable_ipv6", "1"),
        ("ping-ignored", "net/ipv4/icmp_echo_ignore_all", "1"),
        ("no-sack", "net/ipv4/tcp_sack", "0"),
        ("no-window-scaling", "net/ipv4/tcp_window_scaling", "0"),
        ("no-path-mtu", "net/ipv4/ip_no_pmtu_disc", "1"),
        (
            "small-receive-buffers",
            "net/ipv4/tcp_rmem",
            "4096 131072 262144",
        ),
        (
            "small-send-buffers",
            "net/ipv4/tcp_wmem",
            "4096 16384 262144",
        ),
    ];
    let commands = commands.map(|(cause, breaks)| Injection::new(a, cause, breaks));
    let variables = variables.map(|(cause, name, value)| {
        Injection::new(a, cause, format!("echo {value} >/proc/sys/{name}"))
    });
    commands.into_iter().chain(variables).collect()
}

/// Causes in addresses and on the way to a peer, which is connected.
fn peers<'a>(a: &'a Host, b: &'a Host) -> Vec<Injection<'a>> {
    let address = format!("{}/24", a.ip4());
    let other = b.ip4();
    let ping = format!("ping -q -c 1 -W 1 {other}");
    let mut all = vec![
        Injection::new(
            a,
            "no-address",
            format!("ip addr del {address} dev ib0; ip -6 addr flush dev ib0 scope global"),
        )
        .by_hand(format!("ip addr add {address} dev ib0")),
        Injection::new(a, "shared-network", "ip addr add 10.1.0.77/24 dev eth0")
            .by_hand("ip addr del 10.1.0.77/24 dev eth0"),
        Injection::new(a, "duplicate-address", "ip addr add fd00:7::1/64 dev ib0")
            .by_hand("ip addr del fd00:7::1/64 dev ib0"),
        Injection::new(a, "no-answer", "ping -c 1 -W 1 10.1.0.99 >/dev/null; true")
            .by_hand("ip neigh del 10.1.0.99 dev ib0"),
        Injection::new(
            a,
            "device-connections-full",
            "echo 1 >/sys/module/ipoib_rs/parameters/rc_max_device_connections",
        )
        .then(&ping),
        Injection::new(
            b,
            "peer-in-datagram-mode",
            "echo datagram >/sys/class/net/ib0/mode",
        )
        .by_hand("echo connected >/sys/class/net/ib0/mode")
        .then(&ping),
    ];
    // On InfiniBand, datagrams do not carry the GID of their source.
    if !a.is_infiniband() {
        let stale = format!(
            "{ping} &&
             address=$(ip neigh show {other} dev ib0 | sed 's/.*lladdr \\([^ ]*\\).*/\\1/') &&
             ip neigh replace {other} dev ib0 nud permanent lladdr $(echo $address | sed 's/^\\(..\\):..:..:../\\1:0a:bc:de/')"
        );
        all.push(Injection::new(a, "stale-address", stale));
    }
    all
}

/// Pairs of those. Each is in one at least.
const PAIRS: &[[&str; 2]] = &[
    ["interface-down", "small-rings"],
    ["device-connections-full", "arp-off"],
    ["gso-off", "multicast-off"],
    ["mtu-below-ipv6", "netem"],
    ["gro-off", "no-answer"],
    ["window-off", "no-sack"],
    ["no-time-to-reorder", "small-receive-buffers"],
    ["small-budget", "shared-network"],
    ["extensions-off", "checksums-on"],
    ["large-frames-off", "no-path-mtu"],
    ["ping-ignored", "duplicate-address"],
    ["no-window-scaling", "small-send-buffers"],
    ["ipv6-off", "no-address"],
    ["peer-in-datagram-mode", "arp-ignored"],
];

const HIDDEN: &[Hidden] = &[
    // An interface that goes down forgets its neighbours.
    Hidden {
        by: "interface-down",
        hidden: "no-answer",
        stays: false,
    },
    // So does IPv6 its variables, with an MTU that has no room for it.
    Hidden {
        by: "mtu-below-ipv6",
        hidden: "ipv6-off",
        stays: false,
    },
    // Without an address, it is in no network.
    Hidden {
        by: "no-address",
        hidden: "shared-network",
        stays: true,
    },
];

scenario! {
    /// Nothing is wrong with a pair; then each cause that any port may have is named, one at a time and in pairs, and
    /// mended.
    #[on(infiniband)]
    fn causes_are_named(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        healthy(a, b)?;
        b.ok("ip addr add fd00:7::1/64 dev ib0 nodad")?;
        let mut all = settings(a);
        all.extend(peers(a, b));
        singles(a, &all)?;
        for injection in &all {
            let is_paired = PAIRS.iter().flatten().any(|cause| *cause == injection.cause);
            ensure!(is_paired || injection.cause == "stale-address", "{} is in no pair", injection.cause);
        }
        pairs(a, &all, PAIRS)?;
        if !a.is_infiniband() {
            pairs(a, &all, &[["stale-address", "multicast-off"]])?;
        }
        hidden(a, &all, HIDDEN)?;
        bed.finish()
    }
}

/// Obstacles to loading the module, which hide each other; it loads by doctor's own command.
fn module(host: &Host) -> Result<()> {
    let tool = Layout::from_env()?.ipoibctl();
    let modules = "/lib/modules/$(uname -r)";
    // Mounts made inside of a network namespace are gone after the command.
    let outside = host.outside();
    named(host, "not-loaded")?;
    let obstacles = [
        Injection::new(
            &outside,
            "blacklisted",
            "echo 'blacklist ipoib_rs' >/etc/modprobe.d/z.conf",
        )
        .by_hand("rm /etc/modprobe.d/z.conf"),
        Injection::new(
            &outside,
            "not-installed",
            format!("mount -t tmpfs none {modules}"),
        )
        .by_hand(format!("umount {modules}")),
    ];
    for obstacle in &obstacles {
        obstacle.bring(host)?;
        obstacle.mend(host, &named(host, obstacle.cause)?)?;
    }
    // The first obstacle on the way is named: a module that is not there cannot be kept from loading.
    obstacles[0].bring(host)?;
    obstacles[1].bring(host)?;
    obstacles[1].mend(host, &only(host, &["not-installed"])?)?;
    obstacles[0].mend(host, &only(host, &["blacklisted"])?)?;

    // Doctor would have DKMS build it.
    outside.ok(&format!(
        "cp -r {modules}/modules.dep /tmp; mount -t tmpfs none /lib/modules; mkdir /lib/modules/7.3.0; mv /tmp/modules.dep /lib/modules/7.3.0"
    ))?;
    named(host, "wrong-kernel")?;
    outside.ok("umount /lib/modules")?;
    named(host, "not-loaded")?;
    host.run(&format!("{} doctor --fix --yes", tool.display()))?;
    named(host, "no-device")?;
    Ok(())
}

/// Causes in Ethernet and soft-RoCE.
fn ethernet<'a>(a: &'a Host, b: &'a Host) -> Vec<Injection<'a>> {
    let nft = "/usr/local/bin/nft";
    vec![
        Injection::new(a, "netem", "tc qdisc replace dev eth0 root netem delay 1ms"),
        Injection::new(a, "ethernet-down", "ip link set eth0 down"),
        Injection::new(
            a,
            "ethernet-ipv6-off",
            "echo 1 >/proc/sys/net/ipv6/conf/eth0/disable_ipv6",
        ),
        Injection::new(a, "ethernet-mtu", "ip link set eth0 mtu 1500"),
        Injection::new(a, "mtu-below-ipv6", "ip link set ib0 mtu 1000"),
        Injection::new(
            a,
            "firewall",
            format!("printf '#!/bin/sh\necho udp dport 4791 drop\n' >{nft}; chmod +x {nft}"),
        )
        .by_hand(format!("rm {nft}")),
        Injection::new(b, "no-cable", "ip link set eth0 down").by_hand("ip link set eth0 up"),
    ]
}

const ETHERNET_PAIRS: &[[&str; 2]] = &[
    ["ethernet-ipv6-off", "firewall"],
    ["ethernet-mtu", "netem"],
    ["no-cable", "ethernet-ipv6-off"],
    ["ethernet-down", "firewall"],
];

const ETHERNET_HIDDEN: &[Hidden] = &[
    // One that is down has never a carrier.
    Hidden {
        by: "ethernet-down",
        hidden: "no-cable",
        stays: true,
    },
    // The interface could have no more.
    Hidden {
        by: "ethernet-mtu",
        hidden: "mtu-below-ipv6",
        stays: false,
    },
];

scenario! {
    /// From a host without a module to an interface by doctor's own commands; then causes in Ethernet and in soft-RoCE.
    #[on(uml)]
    fn causes_under_roce_are_named(bed) {
        let bed = bed.up()?;
        let (a, b) = bed.pair()?;
        let tool = Layout::from_env()?.ipoibctl();
        module(a)?;
        bed.rxe()?;
        for cause in ["no-interface", "interface-down"] {
            named(a, cause)?;
            a.run(&format!("{} doctor --fix --yes", tool.display()))?;
        }
        named(a, "no-address")?;
        a.ok(&format!("ip addr add {}/24 dev ib0", a.ip4()))?;
        well(a).context("after the first address")?;
        b.ib_add("")?;
        b.ib_up()?;
        a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), LIMIT)?;
        well(a).context("after a peer")?;

        let all = ethernet(a, b);
        singles(a, &all)?;
        pairs(a, &all, ETHERNET_PAIRS)?;
        hidden(a, &all, ETHERNET_HIDDEN)?;
        // Its link-local address would be that of its parent, which is in the same partition.
        a.ok("ip link add link ib0 name ib0.ffff type ipoib_rs pkey 0xffff && ip link set ib0.ffff addrgenmode none && ip addr add 10.2.0.1/24 dev ib0.ffff && ip link set ib0.ffff up")?;
        well(a).context("after a child")?;
        a.ok("ip link set ib0 down")?;
        only(a, &["interface-down", "parent-down"])?;
        a.ok("ip link del ib0.ffff; ip link set ib0 up")?;
        well(a).context("after parent-down")?;
        bed.finish()
    }
}

/// Gives opensm its partitions, which it reads when it is told to, or begins.
fn partitions(text: &str) -> String {
    format!("echo '{text}' >{PARTITIONS}; pkill -HUP -x opensm || :")
}

/// Partitions with that of a child, for members of a kind.
fn blue(members: &str) -> String {
    partitions(&format!("{DEFAULT} Blue=0x0001, ipoib : ALL={members};"))
}

/// An interface on each host, and a subnet manager that comes late, and with the broadcast group later still. A child
/// on the second host.
fn infiniband_up(bed: &Bed) -> Result<(&Host, &Host)> {
    let (a, b) = bed.pair()?;
    let outside = a.outside();
    outside.ok("ib-hwsim star 2")?;
    for host in [a, b] {
        outside.ok(&format!(
            "rdma dev set {} netns {}",
            host.rdma_device(),
            host.netns().context("no namespace")?
        ))?;
        host.ib_add("")?;
        host.ok(&format!(
            "ip addr add {}/24 dev ib0 && ip link set ib0 up",
            host.ip4()
        ))?;
    }
    named(b, "no-subnet-manager")?;
    a.ok(&partitions("Default=0x7fff : ALL=full;"))?;
    a.ok(&format!(
        "mkdir -p /var/cache/opensm; opensm -B -P {PARTITIONS} -g $(sed 's/fe80:0000:0000:0000/0x/; s/://g' /sys/class/infiniband/{}/ports/1/gids/0)",
        a.rdma_device()
    ))?;
    named(b, "no-broadcast-group")?;
    a.ok(&blue("full"))?;
    well(b)?;
    b.wait_until(&format!("ping -q -c 1 -W 1 {}", a.ip4()), LIMIT)?;
    well(b)?;
    b.ok("ip link add link ib0 name ib0.8001 type ipoib_rs pkey 0x8001 && ip addr add 10.2.0.2/24 dev ib0.8001 && ip link set ib0.8001 up")?;
    well(b)?;
    Ok((a, b))
}

/// Causes in ports and partitions of InfiniBand. `outside` is the machine.
fn infiniband<'a>(a: &'a Host, b: &'a Host, outside: &'a Host) -> Vec<Injection<'a>> {
    let plug =
        |plugged: u8| format!("echo {plugged} >/sys/kernel/config/ib_hwsim/star/cables/c2/plugged");
    let nobody = "00:00:0a:bc:fe:80:00:00:00:00:00:00:00:00:00:00:00:00:de:ad";
    vec![
        Injection::new(b, "moderation", "ethtool -C ib0 rx-frames 512"),
        Injection::new(outside, "port-down", plug(0)).by_hand(plug(1)),
        Injection::new(a, "limited-member", blue("limited")).by_hand(blue("full")),
        Injection::new(a, "no-partition", partitions(DEFAULT)).by_hand(blue("full")),
        // A path that has failed is forgotten unless somebody sends.
        Injection::new(
            b,
            "no-path",
            format!(
                "ip neigh replace 10.1.0.50 dev ib0 nud permanent lladdr {nobody}
                 (ping -q -i 0.1 10.1.0.50 >/dev/null 2>&1 </dev/null &)"
            ),
        )
        .by_hand("pkill -x ping; ip neigh del 10.1.0.50 dev ib0; ip link set ib0 down; ip link set ib0 up"),
    ]
}

/// A peer that is asked for its address just now is not one that does not answer.
fn asked(a: &Host, b: &Host) -> Result<()> {
    let delay = |us: u32| {
        let file = "/sys/kernel/config/ib_hwsim/star/cables/c2/delay";
        a.outside().ok(&format!("echo {us} >{file}")).map(drop)
    };
    delay(50_000)?;
    b.ok(&format!(
        "ip neigh flush dev ib0; (ping -q -c 1 -W 5 {} >/dev/null 2>&1 </dev/null &)",
        a.ip4()
    ))?;
    let found = findings(b)?;
    ensure!(found.is_empty(), "{found:#?}");
    delay(0)
}

const INFINIBAND_PAIRS: &[[&str; 2]] = &[
    ["port-down", "moderation"],
    ["limited-member", "no-path"],
    ["no-partition", "moderation"],
];

const INFINIBAND_HIDDEN: &[Hidden] = &[
    // There is no path by a port that is down.
    Hidden {
        by: "port-down",
        hidden: "no-path",
        stays: true,
    },
];

scenario! {
    /// Causes in ports, subnet managers and partitions of InfiniBand.
    #[on(uml)]
    fn causes_on_infiniband_are_named(bed) {
        let bed = bed.infiniband().up()?;
        let (a, b) = infiniband_up(&bed)?;
        let outside = a.outside();
        let all = infiniband(a, b, &outside);
        asked(a, b)?;
        singles(b, &all)?;
        pairs(b, &all, INFINIBAND_PAIRS)?;
        hidden(b, &all, INFINIBAND_HIDDEN)?;

        b.ok("ip link del ib0.8001")?;
        outside.ok("pkill -KILL -x opensm")?;
        outside.ok("cd /sys/kernel/config/ib_hwsim/star/cables/c2 && echo 0 >plugged && echo 1 >plugged")?;
        named(b, "port-not-active")?;
        // For good: the programs that could switch it on do not open such a port.
        b.ok(&format!("ibportstate -C {} -P 1 -D 0 1 disable", b.rdma_device()))?;
        named(b, "port-disabled")?;
        bed.finish()
    }
}
