// SPDX-License-Identifier: GPL-2.0

//! The module, and causes in Ethernet and soft-RoCE.

use super::{Hidden, Injection, hidden, named, only, pairs, singles};
use crate::connected::senders::{HOLD, NAMES, act};
use crate::ipoibctl::{LIMIT, well};
use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::layout::Layout;
use lab::scenario;
use lab::task::Task;
use std::time::Duration;

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

/// Programs that list rules of a packet filter, which the guests' kernels do not have.
const NFT: &str = include_str!("../../../guest/ipoibctl/nft.sh");
const IP6TABLES: &str = include_str!("../../../guest/ipoibctl/ip6tables.sh");

/// A rule set that drops what soft-RoCE sends, as a program lists it.
fn filter<'a>(a: &'a Host, program: &str, listing: &str) -> Injection<'a> {
    let path = format!("/usr/local/bin/{program}");
    let breaks = format!("cat >{path} <<'END'\n{listing}END\nchmod +x {path}");
    Injection::new(a, "firewall", breaks).by_hand(format!("rm {path}"))
}

/// Causes in Ethernet and soft-RoCE.
fn ethernet<'a>(a: &'a Host, b: &'a Host) -> Vec<Injection<'a>> {
    let ping = format!("ping -q -c 1 -W 1 {}", b.ip4());
    vec![
        filter(a, "nft", NFT),
        Injection::new(a, "netem", "tc qdisc replace dev eth0 root netem delay 1ms"),
        Injection::new(a, "ethernet-down", "ip link set eth0 down"),
        Injection::new(
            a,
            "ethernet-ipv6-off",
            "echo 1 >/proc/sys/net/ipv6/conf/eth0/disable_ipv6",
        ),
        Injection::new(a, "no-gid-address", "ip -6 addr flush dev eth0"),
        Injection::new(a, "ethernet-mtu", "ip link set eth0 mtu 1500"),
        Injection::new(a, "mtu-below-ipv6", "ip link set ib0 mtu 1000"),
        Injection::new(
            a,
            "ethernet-enslaved",
            "ip link add bond9 mtu $(cat /sys/class/net/eth0/mtu) type bond mode active-backup miimon 100 &&
             ip link set eth0 down && ip link set eth0 master bond9 && ip link set bond9 up",
        )
        .by_hand(format!(
            "ip link set eth0 nomaster && ip link del bond9 && ip link set eth0 up && until {ping}; do :; done"
        )),
        Injection::new(b, "no-cable", "ip link set eth0 down").by_hand("ip link set eth0 up"),
    ]
}

const PAIRS: &[[&str; 2]] = &[
    ["ethernet-ipv6-off", "firewall"],
    ["ethernet-mtu", "netem"],
    ["no-cable", "ethernet-ipv6-off"],
    ["ethernet-down", "firewall"],
    ["ethernet-enslaved", "netem"],
];

const HIDDEN: &[Hidden] = &[
    // One that is down has never a carrier.
    Hidden {
        by: "ethernet-down",
        hidden: "no-cable",
        stays: true,
    },
    // The interface could have no more; when it can, it still has the MTU that it was given.
    Hidden {
        by: "ethernet-mtu",
        hidden: "mtu-below-ipv6",
        stays: true,
    },
];

/// Gives two hosts new interfaces, in connected mode.
fn connected(a: &Host, b: &Host) -> Result<()> {
    for host in [a, b] {
        host.ib_add("mode connected")?;
        host.ib_up()?;
    }
    a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), LIMIT)
}

/// Has a host ask another one for as many connections to send by as it gets with one GID.
fn send_by_many(from: &Host, to: &Host) -> Result<Task> {
    let senders = act(from, to, &NAMES[..1], HOLD, "")?;
    senders.wait_for("held", from.scaled(Duration::from_secs(60)))?;
    Ok(senders)
}

/// Peers that only send have all places that one GID may have. Doctor's command gives them more, and whoever uses the
/// interfaces is to run it.
fn senders_full(a: &Host, b: &Host) -> Result<()> {
    connected(a, b)?;
    well(a).context("before others send")?;
    let senders = send_by_many(b, a)?;
    let found = named(a, "senders-full")?;
    senders.stop()?;
    ensure!(found[0]["safe"] == false, "{}", found[0]);
    for host in [a, b] {
        host.ok("ip link del ib0")?;
    }
    let fix = found[0]["fix"].as_str().context("no command")?;
    a.outside().ok(fix)?;
    connected(a, b)?;
    let senders = send_by_many(b, a)?;
    well(a).context("with more buffers")?;
    senders.stop()?;
    Ok(())
}

scenario! {
    /// From a host without a module to an interface by doctor's own commands; then causes in Ethernet and in soft-RoCE.
    #[on(uml, timed)]
    fn causes_under_roce_are_named(bed) {
        let bed = bed.up()?;
        bed.loses_ethernet();
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
        singles(a, &[filter(a, "ip6tables-save", IP6TABLES)])?;
        pairs(a, &all, PAIRS)?;
        hidden(a, &all, HIDDEN)?;
        // Its link-local address would be that of its parent, which is in the same partition.
        a.ok("ip link add link ib0 name ib0.ffff type ipoib_rs pkey 0xffff && ip link set ib0.ffff addrgenmode none && ip addr add 10.2.0.1/24 dev ib0.ffff && ip link set ib0.ffff up")?;
        well(a).context("after a child")?;
        let flux = "echo connected >/sys/class/net/ib0.ffff/mode";
        singles(a, &[Injection::new(a, "arp-flux", flux)])?;
        // A peer has the address as well, but first there is the sibling, which keeps it.
        b.ok("ip addr add fe80::77/64 dev ib0 nodad")?;
        let twice = "ip addr add fe80::77/64 dev ib0 nodad && ip addr add fe80::77/64 dev ib0.ffff";
        singles(a, &[Injection::new(a, "duplicate-address", twice)])?;
        a.ok("ip -6 -o addr show dev ib0.ffff scope link | grep -q .")?;
        for host in [a, b] {
            host.ok("ip addr del fe80::77/64 dev ib0")?;
        }
        a.ok("ip link set ib0 down")?;
        only(a, &["interface-down", "parent-down"])?;
        a.ok("ip link del ib0.ffff; ip link set ib0 up")?;
        well(a).context("after parent-down")?;

        for host in [a, b] {
            host.ok("ip link del ib0")?;
        }
        senders_full(a, b).context("senders-full")?;
        bed.finish()
    }
}
