// SPDX-License-Identifier: GPL-2.0

//! IP multicast between a sender and a receiver.

use crate::hwsim::ours::rdmacm::UCM;
use crate::order::counter;
use anyhow::{Context, Result, ensure};
use lab::bed::{Bed, Host};
use lab::machine::Task;
use lab::scenario;
use std::time::{Duration, Instant};

const RECEIVER: &str = include_str!("../guest/multicast/receiver.py");

const SENDER: &str = include_str!("../guest/multicast/sender.py");

pub(crate) const COUNT: &str = "100";

pub(crate) fn receive(host: &Host, group: &str) -> Result<Task> {
    let task = host.spawn_python(RECEIVER, &[group, COUNT])?;
    task.wait_for("joined", host.scaled(Duration::from_secs(10)))?;
    Ok(task)
}

/// Waits until what a host sends to a group reaches a receiver. On InfiniBand a new group begins to work a moment after
/// both have joined it, when the subnet manager has told the switches.
pub(crate) fn works(from: &Host, group: &str, receivers: &[&Task]) -> Result<()> {
    if !from.is_infiniband() {
        return Ok(());
    }
    let begin = Instant::now();
    for receiver in receivers {
        while !receiver.peek()?.stdout.contains("warm") {
            let limit = from.scaled(Duration::from_secs(10));
            ensure!(begin.elapsed() < limit, "{group} does not work");
            from.python(SENDER, &[group, "warm", "32"])?.ok()?;
        }
    }
    Ok(())
}

/// Checks that a host gets all that the other one sends to a group.
pub(crate) fn exchange(bed: &Bed, group: &str, size: &str) -> Result<()> {
    let (a, b) = bed.pair()?;
    let receiver = receive(b, group)?;
    works(a, group, &[&receiver])?;
    a.python(SENDER, &[group, COUNT, size])?.ok()?;
    let output = receiver.wait(b.scaled(Duration::from_secs(15)))?;
    ensure!(
        output.stdout.contains("received 100"),
        "{group}: {}",
        output.describe()
    );
    Ok(())
}

scenario! {
    /// Everything sent to a group arrives at its member, IPv4 and IPv6, small and large.
    #[on(infiniband)]
    fn a_member_receives_all(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        for group in ["239.1.2.3", "224.0.1.99", "ff05::4711", "ff02::4711"] {
            for size in ["32", "4000"] {
                exchange(&bed, group, size)?;
            }
        }
        bed.finish()
    }
}

const CROWD: &str = include_str!("../guest/multicast/crowd.py");

scenario! {
    /// Groups that find no place are told of in the log, and joined when others are left.
    fn too_many_groups_are_told_of(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        b.ok("sysctl -qw net.ipv4.igmp_max_memberships=9000")?;
        let crowd = b.spawn_python(CROWD, &["6000"])?;
        crowd.wait_for("joined", b.scaled(Duration::from_secs(20)))?;
        let told = "dmesg | grep -q 'ib0: too many multicast groups'";
        b.outside().wait_until(told, Duration::from_secs(20))?;
        let receiver = b.spawn_python(RECEIVER, &["239.1.2.3", COUNT])?;
        receiver.wait_for("joined", b.scaled(Duration::from_secs(10)))?;
        crowd.stop()?;
        b.wait_until("[ $(ip -4 maddr show dev ib0 | grep -c inet) -lt 10 ]", Duration::from_secs(20))?;
        let end = Instant::now() + b.scaled(Duration::from_secs(30));
        while !receiver.peek()?.stdout.contains("warm") {
            ensure!(Instant::now() < end, "the group was never joined");
            a.python(SENDER, &["239.1.2.3", "warm", "32"])?.ok()?;
        }
        receiver.stop()?;
        bed.finish()
    }
}

scenario! {
    /// Groups have the scope of a broadcast address that is set, of which nothing else is taken over. One that is
    /// joined after that leaves no address behind, whether the interface was up or not.
    #[on(infiniband)]
    fn groups_follow_the_broadcast_address(bed) {
        let bed = bed.up()?;
        bed.ports()?;
        let (a, _) = bed.pair()?;
        a.ib_add("")?;
        for (state, scope) in [("down", 5), ("up", 8), ("up", 2)] {
            let begin = format!("00:ff:ff:ff:ff:1{scope}:40:1b");
            a.ok(&format!(
                "ip link set ib0 {state}
                 ip link set ib0 broadcast {begin}:81:23:00:00:00:00:00:00:ff:ff:ff:ff
                 ip addr add 239.1.2.3/32 dev ib0 autojoin
                 ip link set ib0 up"
            ))?;
            let link = a.ok("ip link show ib0")?;
            ensure!(link.contains(&format!("brd {begin}:ff:ff:00:00:00:00:00:00:ff:ff:ff:ff")), "{link}");
            let joined = a.ok("ip maddr show dev ib0")?;
            let own = "00:00:00:00:00:00:0f:01:02:03";
            ensure!(joined.contains(&format!("{begin}:ff:ff:{own}")), "{joined}");
            a.ok("ip addr del 239.1.2.3/32 dev ib0")?;
            let left = a.ok("ip maddr show dev ib0")?;
            ensure!(!left.contains(":0f:01:02:03"), "{state}: {left}");
        }
        bed.finish()
    }
}

scenario! {
    /// The sender is a member, too: it hears itself through the stack once, not twice through the wire.
    #[on(infiniband)]
    fn a_sending_member_is_not_echoed(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        let own = receive(a, "239.9.9.9")?;
        let other = receive(b, "239.9.9.9")?;
        works(a, "239.9.9.9", &[&other])?;
        let before = packets_received(a)?;
        a.python(SENDER, &["239.9.9.9", COUNT, "64"])?.ok()?;
        for task in [own, other] {
            let output = task.wait(a.scaled(Duration::from_secs(15)))?;
            ensure!(output.stdout.contains("received 100"), "{}", output.describe());
        }
        let from_wire = packets_received(a)? - before;
        ensure!(from_wire < 50, "{from_wire} of our own datagrams came back");
        bed.finish()
    }
}

fn packets_received(host: &Host) -> Result<i64> {
    Ok(host
        .ok("cat /sys/class/net/ib0/statistics/rx_packets")?
        .trim()
        .parse()?)
}

scenario! {
    /// Membership survives ib0 going down and up.
    #[on(infiniband)]
    fn groups_are_joined_again_after_down_and_up(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        let receiver = receive(b, "239.3.3.3")?;
        b.ok("ip link set ib0 down && ip link set ib0 up")?;
        b.wait_until("ip -o link show ib0 | grep -q LOWER_UP", Duration::from_secs(10))?;
        works(a, "239.3.3.3", &[&receiver])?;
        a.python(SENDER, &["239.3.3.3", COUNT, "64"])?.ok()?;
        let output = receiver.wait(b.scaled(Duration::from_secs(15)))?;
        ensure!(output.stdout.contains("received 100"), "{}", output.describe());
        bed.finish()
    }
}

const ETHERNET_MEMBER: &str = include_str!("../guest/multicast/ethernet_member.py");

const CM_MEMBER: &str = include_str!("../guest/multicast/member.py");

/// A program that has joined 239.1.2.3 on the port of a host: on RoCE on the Ethernet, on InfiniBand by the RDMA connection
/// manager.
fn user_space(host: &Host) -> Result<Task> {
    if !host.is_infiniband() {
        let task = host.spawn_python(ETHERNET_MEMBER, &[])?;
        task.wait_for("joined", host.scaled(Duration::from_secs(10)))?;
        return Ok(task);
    }
    host.ok("modprobe rdma_ucm")?;
    let task = host.spawn_python(&format!("{UCM}{CM_MEMBER}"), &[&host.ip4(), "239.1.2.3"])?;
    task.wait_for("multicast-joined", host.scaled(Duration::from_secs(10)))?;
    Ok(task)
}

scenario! {
    /// With `umcast`, a group that user space has joined on the port is left to it; without, ib0 joins it as well.
    #[on(infiniband)]
    fn umcast_leaves_a_group_to_others(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        let other = user_space(b)?;
        b.ok("ip link set ib0 type ipoib_rs umcast 1")?;
        ensure!(b.ok("ip -d link show ib0")?.contains("umcast 0001"), "{}", b.ok("ip -d link show ib0")?);
        let receiver = receive(b, "239.1.2.3")?;
        let before = counter(b, "rx_multicast")?;
        a.python(SENDER, &["239.1.2.3", COUNT, "64"])?.ok()?;
        let came = counter(b, "rx_multicast")? - before;
        ensure!(came < 50 && !receiver.peek()?.stdout.contains("received"), "{came} came");

        b.ok("ip link set ib0 type ipoib_rs umcast 0")?;
        for _ in 0..5 {
            a.python(SENDER, &["239.1.2.3", COUNT, "64"])?.ok()?;
            if receiver.peek()?.stdout.contains("received") {
                break;
            }
        }
        let output = receiver.wait(b.scaled(Duration::from_secs(5)))?;
        ensure!(output.stdout.contains("received 100"), "{}", output.describe());
        other.stop()?;
        bed.finish()
    }
}

scenario! {
    /// With `umcast`, groups that another interface of the port has joined are none of user space's: both interfaces receive,
    /// and IPv6 finds an address of the second one that has the same solicited-node group as one of the first.
    #[on(infiniband)]
    fn umcast_knows_siblings(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        let (_holder, pid) = b.netns_add("inner")?;
        let link = b.link("umcast 1");
        b.ok(&format!("ip link add name ib1 {link} && ip link set ib1 netns {pid} name ib0"))?;
        let inner = b.inside("inner", 3);
        inner.ip("link set lo up\nlink set ib0 addrgenmode random")?;
        inner.ib_up()?;
        // The last three bytes are those of b's address.
        inner.ok("ip addr add fd00:3::2/64 dev ib0 nodad")?;
        a.ok("ip addr add fd00:3::1/64 dev ib0 nodad")?;
        a.wait_until("ping -6 -q -c 1 -W 1 fd00:3::2", Duration::from_secs(5))?;
        a.ok(&format!("ping -6 -q -c 1 -W 5 {}", b.ip6()))?;
        let receivers = [receive(b, "239.9.9.9")?, receive(&inner, "239.9.9.9")?];
        let [first, second] = &receivers;
        works(a, "239.9.9.9", &[first, second])?;
        a.python(SENDER, &["239.9.9.9", COUNT, "64"])?.ok()?;
        for task in receivers {
            let output = task.wait(a.scaled(Duration::from_secs(15)))?;
            ensure!(output.stdout.contains("received 100"), "{}", output.describe());
        }
        bed.finish()
    }
}

const APPEAR: &str = include_str!("../guest/multicast/peers_send.py");

scenario! {
    /// A thousand new IPv6 peers, each of whose groups is sent to, are all reached at once: each is asked for three times, a
    /// second apart.
    #[on(timed, infiniband)]
    fn a_thousand_peers_appear_together(bed) {
        let bed = bed.hosts(6).up()?;
        bed.ib()?;
        let (a, others) = bed.hosts.split_first().context("no host")?;
        // An HCA of the simulated fabric has room for 256 groups.
        let (peers, each) = (1000, 200);
        a.ok("ip -6 route add fd00:9::/64 dev ib0")?;
        let limit = "net.ipv6.neigh.default.gc_thresh";
        a.outside().ok(&format!("sysctl -qw {limit}2=4096 {limit}3=8192"))?;
        for (host, first) in others.iter().zip((1..).step_by(each)) {
            let joined = counter(host, "groups_joined")?;
            let addresses: Vec<String> = (first..first + each)
                .map(|n| format!("addr add fd00:9::{n:x}/128 dev ib0 nodad\n"))
                .collect();
            host.ip(&addresses.concat())?;
            let condition = format!(
                "[ $(ethtool -S ib0 | sed -n 's/^ *groups_joined: //p') -ge {} ]",
                joined + each as u64
            );
            host.wait_until(&condition, Duration::from_secs(60))?;
        }
        a.python(APPEAR, &[&peers.to_string()])?.ok()?;
        // One that does not answer the third question has failed, and nobody asks again.
        let known = format!("[ $(ip -6 neigh show dev ib0 | grep -c '^fd00:9:.* lladdr ') = {peers} ]");
        a.wait_until(&known, Duration::from_millis(3500))
            .with_context(|| a.ok("ethtool -S ib0").unwrap_or_default())?;
        ensure!(counter(a, "tx_drop_table_full")? == 0, "{}", a.ok("ethtool -S ib0")?);
        bed.finish()
    }
}
