// SPDX-License-Identifier: GPL-2.0

//! Causes in ports, subnet managers and partitions of InfiniBand.

use super::{Hidden, Injection, hidden, named, pairs, singles};
use crate::ipoibctl::{LIMIT, findings, well};
use anyhow::{Context, Result, ensure};
use lab::bed::{Bed, Host};
use lab::scenario;

const PARTITIONS: &str = "/tmp/ipoibctl-partitions.conf";
const DEFAULT: &str = "Default=0x7fff, ipoib : ALL=full;";

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

const PAIRS: &[[&str; 2]] = &[
    ["port-down", "moderation"],
    ["limited-member", "no-path"],
    ["no-partition", "moderation"],
];

const HIDDEN: &[Hidden] = &[
    // There is no path by a port that is down.
    Hidden {
        by: "port-down",
        hidden: "no-path",
        stays: true,
    },
];

scenario! {
    /// Causes in ports, subnet managers and partitions of InfiniBand.
    #[on(uml, timed)]
    fn causes_on_infiniband_are_named(bed) {
        let bed = bed.infiniband().up()?;
        let (a, b) = infiniband_up(&bed)?;
        let outside = a.outside();
        let all = infiniband(a, b, &outside);
        asked(a, b)?;
        singles(b, &all)?;
        pairs(b, &all, PAIRS)?;
        hidden(b, &all, HIDDEN)?;

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
