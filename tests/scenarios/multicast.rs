// SPDX-License-Identifier: GPL-2.0

//! IP multicast between a sender and a receiver.

use crate::order::counter;
use anyhow::{Result, ensure};
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
        b.ok("sysctl -qw net.ipv4.igmp_max_memberships=3000")?;
        let crowd = b.spawn_python(CROWD, &["1500"])?;
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

/// Somebody else who has joined 239.1.2.3 on the port of a host.
struct Other {
    task: Task,
    counts: Option<(Host, &'static str)>,
}

impl Other {
    /// On RoCE somebody in user space; on InfiniBand an interface of `ib_ipoib`, in a namespace of its own, so that no
    /// socket of the host's hears it.
    fn join(host: &Host) -> Result<Other> {
        if !host.is_infiniband() {
            let task = host.spawn_python(ETHERNET_MEMBER, &[])?;
            task.wait_for("joined", host.scaled(Duration::from_secs(10)))?;
            return Ok(Other { task, counts: None });
        }
        host.ok("modprobe ib_ipoib && test -e /sys/class/net/ib1")?;
        let (task, pid) = host.netns_add("other")?;
        host.ok(&format!("ip link set ib1 netns {pid}"))?;
        let outside = host.outside();
        outside.ok(
            "ip -n other link set ib1 up && ip -n other addr add 10.8.0.1/24 dev ib1
             ip -n other addr add 239.1.2.3/32 dev ib1 autojoin",
        )?;
        outside.wait_until(
            "ip -n other -o link show ib1 | grep -q LOWER_UP",
            Duration::from_secs(10),
        )?;
        let counts = Some((
            outside,
            "ip netns exec other cat /sys/class/net/ib1/statistics/rx_packets",
        ));
        Ok(Other { task, counts })
    }

    /// Packets that have come to it, if anybody counts them.
    fn came(&self) -> Result<Option<u64>> {
        let Some((host, command)) = &self.counts else {
            return Ok(None);
        };
        Ok(Some(host.ok(command)?.trim().parse()?))
    }
}

scenario! {
    /// With `umcast`, a group that somebody else has joined on the port is left to him; without, ib0
    /// joins it as well.
    #[on(infiniband)]
    fn umcast_leaves_a_group_to_others(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        let other = Other::join(b)?;
        b.ok("ip link set ib0 type ipoib_rs umcast 1")?;
        ensure!(b.ok("ip -d link show ib0")?.contains("umcast 0001"), "{}", b.ok("ip -d link show ib0")?);
        let receiver = receive(b, "239.1.2.3")?;
        // It begins to work a moment later.
        let begin = Instant::now();
        while other.came()?.is_some_and(|came| came < 20) {
            ensure!(begin.elapsed() < b.scaled(Duration::from_secs(10)), "nothing comes to the other one");
            a.python(SENDER, &["239.1.2.3", "warm", "64"])?.ok()?;
        }
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
        other.task.stop()?;
        bed.finish()
    }
}
