// SPDX-License-Identifier: GPL-2.0

//! IP multicast between a sender and a receiver.

use crate::hwsim::ours::rdmacm::UCM;
use crate::inspect::directory;
use crate::order::counter;
use crate::ping::lossless;
use anyhow::{Context, Result, ensure};
use lab::bed::{Bed, Host};
use lab::machine::Output;
use lab::scenario;
use lab::task::Task;
use std::time::Duration;

const RECEIVER: &str = include_str!("../guest/multicast/receiver.py");

pub(crate) const SENDER: &str = include_str!("../guest/multicast/sender.py");

pub(crate) const COUNT: &str = "100";

pub(crate) fn receive(host: &Host, group: &str) -> Result<Task> {
    let task = host.spawn_python(RECEIVER, &[group, COUNT])?;
    task.wait_for("joined", host.scaled(Duration::from_secs(10)))?;
    Ok(task)
}

/// Sends to a group on InfiniBand until something has come to each of its receivers, who say so. The subnet manager tells the
/// switches of a sender, or of a member, when it has answered that already, and tells nobody that it has.
pub(crate) fn reaches<'a>(
    from: &Host,
    receivers: impl IntoIterator<Item = &'a Task>,
    send: impl Fn() -> Result<Output>,
) -> Result<()> {
    for receiver in receivers {
        let came = || {
            let came = receiver.peek()?.stdout.contains("warm");
            if !came {
                send()?.ok()?;
            }
            Ok(came)
        };
        from.until(Duration::from_secs(15), came)
            .context("nothing comes to a receiver")?;
    }
    Ok(())
}

/// Waits until what a host sends to a group reaches its receivers. On RoCE it does as soon as these have joined.
pub(crate) fn works(from: &Host, group: &str, receivers: &[&Task]) -> Result<()> {
    if !from.is_infiniband() {
        return Ok(());
    }
    let send = || from.python(SENDER, &[group, "warm", "32"]);
    reaches(from, receivers.iter().copied(), send)
}

/// Waits until `ib0` of a host has joined 239.1.2.3.
pub(crate) fn joined(host: &Host) -> Result<()> {
    let groups = format!("{}/groups", directory(host, "ib0")?);
    host.wait_until(
        &format!("grep -q '^ff12:401b:ffff::f01:203 joined 1 ' {groups}"),
        Duration::from_secs(30),
    )
    .with_context(|| host.ok(&format!("cat {groups}")).unwrap_or_default())
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
        joined(b)?;
        a.python(SENDER, &["239.1.2.3", COUNT, "32"])?.ok()?;
        let output = receiver.wait(b.scaled(Duration::from_secs(15)))?;
        ensure!(output.stdout.contains("received 100"), "{}", output.describe());
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

pub(crate) const CM_MEMBER: &str = include_str!("../guest/multicast/member.py");

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
        joined(b)?;
        works(a, "239.1.2.3", &[&receiver])?;
        a.python(SENDER, &["239.1.2.3", COUNT, "64"])?.ok()?;
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
        lossless(a, "-c 1 -W 5 fd00:3::2")?;
        lossless(a, &format!("-c 1 -W 5 {}", b.ip6()))?;
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
/// The number in the first peer's address. No host has a group of these numbers for another address.
const FIRST_PEER: usize = 0x1000;

/// Has so many IPv6 peers appear together, and checks that the first host reaches all of them: each is asked for three times,
/// with this time in between. An HCA of the simulated fabric has room for 256 groups: the peers live on five hosts.
fn appear(bed: &Bed, peers: usize, between: Duration) -> Result<()> {
    let (a, others) = bed.hosts.split_first().context("no host")?;
    let each = peers / others.len();
    a.ok("ip -6 route add fd00:9::/64 dev ib0")?;
    let limit = "net.ipv6.neigh.default.gc_thresh";
    a.outside()
        .ok(&format!("sysctl -qw {limit}2=4096 {limit}3=8192"))?;
    for (host, first) in others.iter().zip((FIRST_PEER..).step_by(each)) {
        let addresses: Vec<String> = (first..first + each)
            .map(|n| format!("addr add fd00:9::{n:x}/128 dev ib0 nodad\n"))
            .collect();
        host.ip(&addresses.concat())?;
        let groups = format!("{}/groups", directory(host, "ib0")?);
        let joined = format!("[ $(grep -c '::1:ff00:1... joined ' {groups}) = {each} ]");
        host.wait_until(&joined, Duration::from_secs(60))?;
    }
    a.ok(&format!(
        "sysctl -qw net.ipv6.neigh.ib0.retrans_time_ms={}",
        between.as_millis()
    ))?;
    a.python(
        APPEAR,
        &["fd00:9", &FIRST_PEER.to_string(), &peers.to_string()],
    )?
    .ok()?;
    // One that does not answer the third question has failed, and nobody asks again.
    let known = format!("[ $(ip -6 neigh show dev ib0 | grep -c '^fd00:9:.* lladdr ') = {peers} ]");
    a.wait_until(&known, 3 * between + Duration::from_millis(500))
        .with_context(|| a.ok("ethtool -S ib0").unwrap_or_default())?;
    ensure!(
        counter(a, "tx_drop_table_full")? == 0,
        "{}",
        a.ok("ethtool -S ib0")?
    );
    Ok(())
}

scenario! {
    /// Three hundred new IPv6 peers, each of whose groups is sent to, are all reached by the stack's own three questions.
    #[on(timed, infiniband)]
    fn three_hundred_peers_appear_together(bed) {
        let bed = bed.hosts(6).up()?;
        bed.ib()?;
        appear(&bed, 300, Duration::from_secs(1))?;
        bed.finish()
    }
}

scenario! {
    /// A thousand are, too. A subnet manager makes groups as fast as it gets the processor: there, the questions are further
    /// apart.
    #[on(timed, infiniband)]
    fn a_thousand_peers_appear_together(bed) {
        let bed = bed.hosts(6).up()?;
        bed.ib()?;
        let second = Duration::from_secs(if bed.hosts[0].is_infiniband() { 4 } else { 1 });
        appear(&bed, 1000, second)?;
        bed.finish()
    }
}

scenario! {
    /// A host sends to more groups than its table has slots: the least used ones make room, and no frame is dropped. A
    /// simulated switch has 1,024 LIDs for groups: there are no more on InfiniBand.
    #[on(timed)]
    fn groups_that_are_sent_to_make_room(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, _) = bed.pair()?;
        let mut sent = 0;
        // The frames of one batch wait at a time; of more, some would be dropped.
        for first in (FIRST_PEER..).step_by(500).take(12) {
            a.python(APPEAR, &["ff05", &first.to_string(), "500"])?.ok()?;
            sent += 500;
            let all = format!("[ $(ethtool -S ib0 | awk '/ tx_frames:/ {{ print $2 }}') -ge {sent} ]");
            a.wait_until(&all, Duration::from_secs(30)).with_context(|| a.ok("ethtool -S ib0").unwrap_or_default())?;
        }
        for reason in ["table_full", "queue_full", "no_group"] {
            let dropped = counter(a, &format!("tx_drop_{reason}"))?;
            ensure!(dropped == 0, "{dropped} dropped: {reason}");
        }
        let groups = a.ok(&format!("grep -c ' send-only ' {}/groups", directory(a, "ib0")?))?;
        let groups: u32 = groups.trim().parse()?;
        ensure!((2048..=4096).contains(&groups), "{groups} groups");
        bed.finish()
    }
}
