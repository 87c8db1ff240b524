// SPDX-License-Identifier: GPL-2.0

//! Peers and groups that frames go to by UD, and frames that are too large for that.

use super::{connect, connected, set_mode, story, up};
use crate::multicast;
use crate::order::{counter, set};
use crate::transfer::transfer;
use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::scenario;
use std::time::Duration;

const UDP_SENDER: &str = include_str!("../../guest/connected/mtu/udp_sender.py");

pub(crate) const UDP_RECEIVER: &str = include_str!("../../guest/connected/mtu/udp_receiver.py");

pub(crate) const UDP_SEGMENTS: &str = include_str!("../../guest/connected/mtu/udp_segments.py");

const PACKET_SOCKET: &str = include_str!("../../guest/connected/mtu/packet_socket.py");

/// `IP_MTU_DISCOVER`: no DF; DF as long as the path's MTU allows, which is the default; always DF.
const DONT: &str = "0";
const WANT: &str = "1";
const DO: &str = "2";

/// Sends fifty large UDP datagrams to a host: those arrive that the path has not refused for their size.
pub(crate) fn large_datagrams(from: &Host, to: &Host) -> Result<()> {
    let before = counter(from, "tx_drop_too_big")?;
    let receiver = to.spawn_python(UDP_RECEIVER, &[])?;
    receiver.wait_for("ready", to.scaled(Duration::from_secs(10)))?;
    from.python(UDP_SENDER, &[&to.ip4(), "50", "30000", WANT])?
        .ok()?;
    let output = receiver.wait(to.scaled(Duration::from_secs(30)))?.ok()?;
    let (_, came) = output.trim().rsplit_once(' ').context("no count")?;
    let refused = counter(from, "tx_drop_too_big")? - before;
    // Datagrams are 20 ms apart, and the first refusal lowers the path's MTU.
    ensure!(
        refused <= 5 && came.parse() == Ok(50 - refused),
        "{came} came, {refused} were refused"
    );
    Ok(())
}

scenario! {
    /// One side connected with a large MTU, the other in datagram mode: the path's MTU is found, for TCP
    /// and for UDP, and for pings of every size.
    #[on(races, infiniband)]
    fn the_path_to_a_datagram_peer_has_its_mtu(bed) {
        let bed = bed.up()?;
        up(&bed)?;
        let (a, b) = bed.pair()?;
        set_mode(b, "datagram")?;
        a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), Duration::from_secs(20))?;
        transfer(a, b, &b.ip4(), 2)?;
        transfer(a, b, &b.ip6(), 2)?;
        transfer(b, a, &a.ip4(), 2)?;
        for size in [100, 4064, 4065, 30000, 65507] {
            for target in [b.ip4(), b.ip6()] {
                // The first one may be what is found too large.
                a.ok(&format!("ping -q -c 5 -i 0.2 -W 5 -s {size} {target}"))?;
            }
        }
        large_datagrams(a, b)?;
        ensure!(counter(a, "tx_too_big")? > 0, "{}", story(a));
        ensure!(counter(a, "rc_tx_frames")? == 0 && counter(a, "rc_current")? == 0);
        bed.finish()
    }
}

scenario! {
    /// The wire's MTU shrinks and grows under connections: there are new ones, with packets that pass, and
    /// they stay. So do large datagrams.
    #[on(races)]
    fn the_wire_changes_its_mtu(bed) {
        let bed = bed.up()?;
        let (a, b) = connected(&bed)?;
        // Where all is slow, one side has nothing to send for longer than a connection may be idle.
        for host in [a, b] {
            set(host, "rc_idle_s", 3600)?;
        }
        for mtu in [1500, 4200] {
            for host in [a, b] {
                let restarts = counter(host, "restarts")?;
                host.ok(&format!("ip link set eth0 mtu {mtu}"))?;
                let more = format!("[ $(ethtool -S ib0 | sed -n 's/^ *restarts: //p') -gt {restarts} ]");
                host.wait_until(&more, Duration::from_secs(10))?;
            }
            transfer(a, b, &b.ip4(), 1)?;
            connect(a, b)?;
            let before = (counter(a, "rc_connected")?, counter(a, "rc_failed")?);
            transfer(a, b, &b.ip4(), 2)?;
            transfer(b, a, &a.ip6(), 2)?;
            large_datagrams(a, b)?;
            let after = (counter(a, "rc_connected")?, counter(a, "rc_failed")?);
            ensure!(after == before, "mtu {mtu}: {}{}", story(a), story(b));
            let errors = a.python(UDP_SENDER, &["239.1.2.4", "20", "3000", DONT])?.ok()?;
            ensure!(errors.trim().is_empty(), "mtu {mtu}: {errors}");
        }
        bed.finish()
    }
}

scenario! {
    /// A packet that goes to a peer in datagram mode in a hundred segments finds room for all of them in the send ring.
    #[on(infiniband)]
    fn segments_find_room(bed) {
        let bed = bed.up()?;
        up(&bed)?;
        let (a, b) = bed.pair()?;
        set_mode(b, "datagram")?;
        a.ok("ethtool -G ib0 tx 256")?;
        // Byte queue limits stop the queue at their own pace.
        a.ok("echo 100000000 >/sys/class/net/ib0/queues/tx-0/byte_queue_limits/limit_min")?;
        a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), Duration::from_secs(20))?;
        let (cut, frames) = (counter(a, "tx_cut")?, counter(a, "tx_frames")?);
        a.python(UDP_SEGMENTS, &[&b.ip4(), "500"])?.ok()?;
        ensure!(counter(a, "tx_cut")? > cut + 100, "{}", story(a));
        ensure!(counter(a, "tx_frames")? > frames + 10_000, "{}", story(a));
        ensure!(counter(a, "tx_drop_ring")? == 0, "{}", story(a));
        bed.finish()
    }
}

scenario! {
    /// Multicast goes by UD and is no larger than that: what may be cut up arrives in pieces, and what may
    /// not is refused to the sender.
    #[on(races, infiniband)]
    fn large_multicast_is_cut_up_or_refused(bed) {
        let bed = bed.up()?;
        let (a, b) = connected(&bed)?;
        // DF: the sender hears of it, at the latest with the next one.
        let before = counter(a, "multicast_too_big")?;
        let errors = a.python(UDP_SENDER, &["239.1.2.4", "20", "10000", DO])?.ok()?;
        // EINVAL or EMSGSIZE
        ensure!(errors.split_whitespace().any(|e| e == "22" || e == "90"), "errors: {errors}");
        ensure!(counter(a, "multicast_too_big")? > before, "{}", story(a));

        // The default, too, leaves it to the system.
        for (group, discover) in [("239.1.2.3", DONT), ("239.1.2.5", WANT)] {
            let receiver = multicast::receive(b, group)?;
            multicast::works(a, group, &[&receiver])?;
            let errors = a.python(UDP_SENDER, &[group, multicast::COUNT, "10000", discover])?.ok()?;
            ensure!(errors.trim().is_empty(), "{group}: {errors}");
            let output = receiver.wait(b.scaled(Duration::from_secs(70)))?;
            ensure!(output.stdout.contains("received 100"), "{group}: {}", output.describe());
        }
        bed.finish()
    }
}

scenario! {
    /// A packet socket asks for the link-layer header before it writes the packet: whether one of multicast is too large
    /// depends on its length only, and not on what was in its memory before.
    #[on(infiniband)]
    fn packet_sockets_are_refused_by_length(bed) {
        let bed = bed.up()?;
        let (a, b) = connected(&bed)?;
        let broadcast = a.ok("cat /sys/class/net/ib0/broadcast")?;
        let errors = a.python(PACKET_SOCKET, &[broadcast.trim()])?.ok()?;
        // EINVAL
        let expected = "fragmentable 22\nunfragmentable 22\nempty 22\nsmall 0\n";
        ensure!(errors == expected, "{errors}");
        transfer(a, b, &b.ip4(), 1)?;
        bed.finish()
    }
}
