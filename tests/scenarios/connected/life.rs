// SPDX-License-Identifier: GPL-2.0

//! Connections that come to an end, and come again; how many there may be.

use super::{LARGE, amount, connect, connected, queue_pairs, sends_by, set_mode, story, up};
use crate::inspect::{directory, identity};
use crate::order::{counter, counters, set, values};
use crate::ping::lossless;
use crate::streams::iperf3;
use crate::transfer::{Transfer, transfer};
use anyhow::{Context, Result, bail, ensure};
use lab::bed::{Host, Netem};
use lab::machine::{Kernel, Lane};
use lab::scenario;
use serde_json::Value;
use std::time::Duration;

/// How many of each kind of RDMA object a host's device has.
fn resources(host: &Host) -> Result<String> {
    host.ok(&format!("rdma resource show {}", host.rdma_device()))
}

/// Counts of the objects that connections share: completion queues, shared receive queues with their buffers, memory
/// regions.
fn common(host: &Host) -> Result<Vec<String>> {
    let text = resources(host)?;
    let words: Vec<_> = text.split_whitespace().skip(2).collect();
    ensure!(words.contains(&"srq") && words.contains(&"mr"), "{text}");
    let kinds = words
        .chunks(2)
        .filter(|kind| !["qp", "cm_id"].contains(&kind[0]));
    Ok(kinds.map(|kind| kind.join(" ")).collect())
}

scenario! {
    /// From connected to datagram and back under traffic, again and again, either side first: no flow
    /// dies, and no byte is lost.
    #[on(races, infiniband)]
    fn modes_change_under_traffic(bed) {
        let bed = bed.up()?;
        let (a, b) = connected(&bed)?;
        let flows = [
            Transfer::start(a, b, &b.ip4(), 1, 12)?,
            Transfer::start(b, a, &a.ip6(), 1, 12)?,
        ];
        for round in 0..4 {
            let order = if round % 2 == 0 { [a, b] } else { [b, a] };
            for mode in ["datagram", "connected"] {
                for host in order {
                    set_mode(host, mode)?;
                    if mode == "connected" {
                        host.ok(&format!("ip link set ib0 mtu {LARGE}"))?;
                    }
                    std::thread::sleep(a.scaled(Duration::from_millis(300)));
                }
            }
        }
        for flow in flows {
            flow.finish()?;
        }
        connect(a, b)?;
        transfer(a, b, &b.ip4(), 1)?;
        bed.finish()
    }
}

scenario! {
    /// An interface whose address has changed with its mode tells its neighbours, as soon as it can send: until then they
    /// send to connections that it refuses.
    #[on(infiniband)]
    fn a_mode_is_announced(bed) {
        let bed = bed.up()?;
        let (a, b) = connected(&bed)?;
        for address in [a.ip4(), a.ip6()] {
            b.ok(&format!("ping -q -c 2 -i 0.1 -W 5 {address}"))?;
        }
        let losses = || a.ok("cat /sys/class/net/ib0/carrier_down_count");
        let before = losses()?;
        for mode in ["datagram", "connected"] {
            set_mode(a, mode)?;
            ensure!(losses()? == before, "{mode}: the carrier was lost");
            let own = a.ok("cat /sys/class/net/ib0/address")?;
            for address in [a.ip4(), a.ip6()] {
                let known = format!("ip neigh show to {address} dev ib0 | grep -q {}", own.trim());
                b.wait_until(&known, Duration::from_secs(2)).with_context(|| format!("{mode}, {address}"))?;
            }
        }
        bed.finish()
    }
}

scenario! {
    /// With its own mode, an interface forgets the addresses of its neighbours and asks for them: it may not have heard of
    /// a change of theirs.
    #[on(infiniband)]
    fn a_mode_that_was_not_heard_of_is_asked_for(bed) {
        let bed = bed.up()?;
        up(&bed)?;
        let (a, b) = bed.pair()?;
        // They are not asked for any other reason meanwhile.
        b.ok("for f in ipv4 ipv6; do echo 60 >/proc/sys/net/$f/neigh/ib0/delay_first_probe_time; done")?;
        connect(a, b)?;
        for address in [a.ip4(), a.ip6()] {
            b.ok(&format!("ping -q -c 2 -i 0.1 -W 5 {address}"))?;
        }
        let own = || a.ok("cat /sys/class/net/ib0/address").map(|text| text.trim().to_owned());
        let before = own()?;
        a.ok("tc qdisc replace dev ib0 root netem loss 100%")?;
        set_mode(a, "datagram")?;
        a.ok("tc qdisc del dev ib0 root")?;
        let known = || b.ok("ip neigh show dev ib0");
        let text = known()?;
        ensure!(text.matches(&before).count() >= 2, "b has heard of it: {text}");
        set_mode(b, "datagram")?;
        let text = known()?;
        ensure!(!text.contains(&before), "{text}");
        for address in [a.ip4(), a.ip6()] {
            let asked = format!("ping -q -c 1 -W 1 {address} && ip neigh show to {address} dev ib0 | grep -q {}", own()?);
            b.wait_until(&asked, Duration::from_secs(2)).context(address)?;
        }
        bed.finish()
    }
}

scenario! {
    /// The path along which a connection has ended is asked for at once, not only when the next frame finds it old.
    #[on(infiniband)]
    fn an_ended_connection_has_its_path_asked_for(bed) {
        let bed = bed.up()?;
        let (a, b) = connected(&bed)?;
        // No frame of a's asks for the path, and b cannot announce its new address. A path that was not used for five
        // seconds would be left alone.
        let silence = "tc qdisc replace dev ib0 root netem loss 100%";
        let text = a.ok(&format!("ping -q -c 1 -W 5 {} && {silence} && ethtool -S ib0", b.ip4()))?;
        b.ok(&format!("{silence} && ip link set ib0 type ipoib_rs mode datagram"))?;
        let [asked, sent] = values(&text, ["paths_resolved", "tx_handed"])?;
        a.until(Duration::from_secs(5), || {
            let [now, connections] = counters(a, ["paths_resolved", "rc_current"])?;
            Ok(now > asked && connections == 0)
        })
        .with_context(|| story(a))?;
        ensure!(counter(a, "tx_handed")? == sent, "{}", story(a));
        for host in [a, b] {
            host.ok("tc qdisc del dev ib0 root")?;
        }
        bed.finish()
    }
}

scenario! {
    /// The peer goes down and comes up under traffic: the flows wait for it, and have a connection again.
    #[on(races, infiniband)]
    fn a_peer_goes_down_and_comes_up(bed) {
        let bed = bed.up()?;
        let (a, b) = connected(&bed)?;
        let flows = [
            Transfer::start(a, b, &b.ip4(), 1, 10)?,
            Transfer::start(b, a, &a.ip4(), 1, 10)?,
        ];
        for _ in 0..3 {
            std::thread::sleep(a.scaled(Duration::from_millis(700)));
            b.ok("ip link set ib0 down")?;
            std::thread::sleep(a.scaled(Duration::from_millis(300)));
            b.ok("ip link set ib0 up")?;
        }
        for flow in flows {
            flow.finish()?;
        }
        connect(a, b)?;
        ensure!(counter(a, "rc_connected")? >= 2, "{}", story(a));
        bed.finish()
    }
}

scenario! {
    /// The peer's link is deleted and made again under traffic, and its address is another one: both
    /// find each other, and connect.
    #[on(races, infiniband)]
    fn a_peer_is_made_anew(bed) {
        let bed = bed.up()?;
        let (a, b) = connected(&bed)?;
        // The neighbour table believes what it knows already for as long as it was told to.
        a.ok("sysctl -qw net.ipv4.neigh.ib0.base_reachable_time_ms=5000 && ip neigh flush dev ib0")?;
        a.ok(&format!("ping -c 1 -W 5 {}", b.ip4()))?;
        let flood = a.spawn(&format!("ping -q -i 0.01 -s 20000 {}", b.ip4()))?;
        b.ok("ip link del ib0")?;
        b.ib_add("mode connected")?;
        b.ok(&format!("ip link set ib0 mtu {LARGE}"))?;
        b.ib_up()?;
        a.wait_until(&format!("ping -c 1 -W 1 {}", b.ip4()), Duration::from_secs(60))?;
        connect(a, b)?;
        flood.stop()?;
        transfer(a, b, &b.ip4(), 1)?;
        bed.finish()
    }
}

const TO_EACH: &str = include_str!("../../guest/connected/life/to_each.py");
pub(crate) const FLOOD: &str = include_str!("../../guest/connected/life/flood.py");

scenario! {
    /// A peer that is sent much to falls silent: those that are sent to as well do not wait until that
    /// connection is given up.
    #[on(races)]
    fn a_silent_peer_holds_up_nobody_else(bed) {
        let bed = bed.hosts(3).up()?;
        up(&bed)?;
        let [a, b, c] = bed.hosts.as_slice() else {
            bail!("no three hosts");
        };
        b.netem(Netem::default())?;
        connect(a, b)?;
        connect(a, c)?;
        let flood = a.spawn_python(FLOOD, &[&b.ip4(), "30000"])?;
        flood.wait_for("ready", a.scaled(Duration::from_secs(10)))?;
        let failed = counter(a, "rc_failed")?;
        b.netem(Netem {
            loss: 100.0,
            ..Netem::default()
        })?;
        let ping = format!("ping -q -i 0.1 -c 60 -W 5 {}", c.ip4());
        let text = a.run_for(&ping, Duration::from_secs(30))?.ok()?;
        ensure!(text.contains(" 0% packet loss"), "{text}");
        let worst = text.rsplit_once(" = ").and_then(|(_, times)| times.split('/').nth(2));
        let worst: f64 = worst.context("no times")?.parse()?;
        // Nobody waits behind a connection that has made no progress for half a second. Without that, it takes 4 s everywhere.
        ensure!(worst < 2000.0, "{text}{}", story(a));
        let more = format!("[ $(ethtool -S ib0 | sed -n 's/^ *rc_failed: //p') -gt {failed} ]");
        a.wait_until(&more, Duration::from_secs(20)).with_context(|| story(a))?;
        flood.stop()?;
        b.netem(Netem::default())?;
        a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), Duration::from_secs(20))?;
        connect(a, b)?;
        transfer(a, b, &b.ip4(), 1)?;
        bed.finish()
    }
}

/// Floods a peer that falls silent for so many seconds, and reaches it again.
fn pause(a: &Host, b: &Host, seconds: f32) -> Result<()> {
    // So many small ones wait that it is their number that counts.
    let flood = a.spawn_python(FLOOD, &[&b.ip4(), "1000"])?;
    flood.wait_for("ready", a.scaled(Duration::from_secs(10)))?;
    // In one go, however long it takes to say so.
    let loss = "tc qdisc change dev eth0 root netem limit 10000 loss";
    b.ok(&format!("{loss} 100% && sleep {seconds} && {loss} 0%"))?;
    flood.stop()?;
    // A connection is given up when it has made no progress for 5 s.
    std::thread::sleep(Duration::from_secs(7));
    a.wait_until(
        &format!("ping -q -c 1 -W 1 {}", b.ip4()),
        Duration::from_secs(20),
    )
}

scenario! {
    /// A peer that is sent much is silent for a moment, so that the queue is stopped for it: it keeps its
    /// connection. If it stays silent, there is one again when it is back.
    #[on(uml, base)]
    fn a_peer_that_pauses_is_forgiven(bed) {
        let bed = bed.lifetime(Duration::from_secs(240)).up()?;
        let (a, b) = connected(&bed)?;
        b.netem(Netem::default())?;
        let stops = counter(a, "tx_stops")?;
        let stopped = || -> Result<bool> {
            // Soft-RoCE repeats itself for 3 s.
            pause(a, b, 1.5)?;
            ensure!(counter(a, "rc_stuck")? == 0 && counter(a, "rc_connected")? == 2, "{}", story(a));
            Ok(counter(a, "tx_stops")? > stops)
        };
        // A sender that gets too little of the processor knows that the peer is silent before enough waits for it.
        let mut has_stopped = false;
        for _ in 0..4 {
            has_stopped = stopped()?;
            if has_stopped {
                break;
            }
        }
        ensure!(has_stopped, "the queue does not stop: {}", story(a));
        pause(a, b, 10.0)?;
        let stuck = counter(a, "rc_stuck")?;
        connect(a, b)?;
        transfer(a, b, &b.ip4(), 1)?;
        ensure!(counter(a, "rc_stuck")? == stuck, "{}", story(a));
        bed.finish()
    }
}

scenario! {
    /// Peers that announce connections and cannot be reached take up places in the table for a few seconds
    /// only.
    #[on(races, infiniband)]
    fn who_cannot_be_reached_is_forgotten(bed) {
        let bed = bed.up()?;
        up(&bed)?;
        let (a, b) = bed.pair()?;
        // Global GIDs, so that a path has to be resolved.
        let zeros = "00:".repeat(13);
        let neighbours: Vec<String> = (16..80)
            .map(|n| format!("neigh add 10.1.0.{n} lladdr 80:00:12:34:fd:88:{zeros}{n:02x} dev ib0 nud permanent"))
            .collect();
        a.ok(&format!("ip -batch - <<END\n{}\nEND", neighbours.join("\n")))?;
        a.python(TO_EACH, &["16", "80"])?.ok()?;
        let connections = format!("{}/connections", directory(a, "ib0")?);
        let there = a.ok(&format!("grep -c '^fd88:' {connections}"))?;
        ensure!(there.trim().parse::<u32>()? > 24, "{there} places");
        a.wait_until(&format!("! grep -q '^fd88:' {connections}"), Duration::from_secs(20))
            .with_context(|| story(a))?;
        connect(a, b)?;
        bed.finish()
    }
}

scenario! {
    /// Frames go to many peers that announce connections and do not answer, all the time: a connection in use stays, and
    /// a new peer gets a connection.
    fn who_does_not_answer_makes_room(bed) {
        let bed = bed.hosts(3).lifetime(Duration::from_secs(120)).up()?;
        up(&bed)?;
        let [a, b, c] = bed.hosts.as_slice() else {
            anyhow::bail!("three hosts");
        };
        connect(a, b)?;
        // GIDs that have an Ethernet address in them, to which soft-RoCE finds a way, and others.
        let gids = ["fe:80:00:00:00:00:00:00:02:00:00:ff:fe:00:00", "fd:88:00:00:00:00:00:00:00:00:00:00:00:00:00"];
        let mac = b.ok("cat /sys/class/net/eth0/address")?;
        let neighbours: Vec<String> = (16..116)
            .flat_map(|n| {
                let gid = gids[n % 2];
                let ours = format!("neigh add 10.1.0.{n} lladdr 80:00:12:34:{gid}:{n:02x} dev ib0 nud permanent");
                let below = format!("neigh add fe80::200:ff:fe00:{n:x} lladdr {} dev eth0 nud permanent", mac.trim());
                [ours, below]
            })
            .collect();
        a.ok(&format!("ip -batch - <<END\n{}\nEND", neighbours.join("\n")))?;
        let sender = a.spawn_python(TO_EACH, &["16", "116", "0.1"])?;
        sender.wait_for("ready", a.scaled(Duration::from_secs(10)))?;
        let used = a.spawn(&format!("ping -q -i 0.02 {}", b.ip4()))?;
        std::thread::sleep(a.scaled(Duration::from_secs(8)));
        let both = format!("ping -q -c 1 -W 1 {} && {}", c.ip4(), sends_by(a, "= 2")?);
        a.wait_until(&both, Duration::from_secs(20)).with_context(|| format!("{}{}{}", story(a), story(b), story(c)))?;
        ensure!(counter(b, "rc_current")? == 2 && counter(b, "rc_connected")? == 2, "{}", story(b));
        used.stop()?;
        sender.stop()?;
        bed.finish()
    }
}

scenario! {
    /// Many interfaces of one host have a quarter of the connections that others may send by, and go on by datagrams beyond
    /// that.
    #[on(infiniband)]
    fn one_host_has_a_part(bed) {
        let bed = bed.hosts(3).memory(3072).lifetime(Duration::from_secs(240)).up()?;
        let [a, b, c] = bed.hosts.as_slice() else {
            anyhow::bail!("three hosts");
        };
        a.outside().ok("modprobe -r ipoib_rs; modprobe ipoib_rs rc_recv_queue_size=128")?;
        up(&bed)?;
        // While the others are not there to answer for the first one.
        connect(a, b)?;
        for n in 1..20 {
            b.ok(&format!(
                "ip link add name ib{n} {} && ip link set ib{n} up && ip addr add fd00:2:{n}::2/64 dev ib{n} nodad",
                b.link("mode connected")
            ))?;
            a.ok(&format!("ip addr add fd00:2:{n}::1/64 dev ib0 nodad"))?;
        }
        for n in 1..20 {
            a.wait_until(&format!("ping -q -c 3 -i 0.1 -W 1 fd00:2:{n}::2"), Duration::from_secs(10))?;
        }
        // A quarter of half as many as there are buffers.
        let (gid, _) = identity(b)?;
        let table = format!("{}/connections", directory(a, "ib0")?);
        let part = format!("[ $(grep -c '^{gid} .* receiving ' {table}) = 16 ]");
        a.wait_until(&part, Duration::from_secs(10)).with_context(|| story(a))?;
        // The others had connections in turn: idle ones made room.
        ensure!(counter(a, "rc_evicted")? >= 2, "{}", story(a));
        let (gid, _) = identity(c)?;
        let both = format!("ping -q -c 1 -W 1 {} && grep -q '^{gid} .* receiving ' {table}", c.ip4());
        a.wait_until(&both, Duration::from_secs(10)).with_context(|| story(a))?;
        a.ok(&part.replace(" = ", " -le ")).with_context(|| story(a))?;
        bed.finish()
    }
}

scenario! {
    /// A wire that loses and reorders: the transport puts it right, or the frames go by UD; every
    /// byte arrives.
    #[on(races)]
    fn a_bad_wire_loses_no_byte(bed) {
        let mib = amount(&bed, 32);
        let bed = bed.lifetime(Duration::from_secs(480)).up()?;
        let (a, b) = connected(&bed)?;
        let bad = Netem {
            delay_ms: 1,
            loss: 0.2,
            reorder: 1.0,
            ..Netem::default()
        };
        for host in [a, b] {
            host.netem(bad)?;
        }
        transfer(a, b, &b.ip4(), mib)?;
        transfer(b, a, &a.ip4(), mib.div_ceil(4))?;
        ensure!(counter(a, "rc_tx_frames")? > 0);
        for host in [a, b] {
            host.netem(Netem::default())?;
        }
        connect(a, b)?;
        bed.finish()
    }
}

scenario! {
    /// A peer closes a connection that worked. It is asked for another one soon, so that few frames go as datagrams meanwhile.
    #[on(races, infiniband)]
    fn a_peer_that_closes_is_asked_again_soon(bed) {
        let bed = bed.up()?;
        let (a, b) = connected(&bed)?;
        a.ok(&format!("ping -q -c 2 -i 0.1 -W 5 {}", b.ip4()))?;
        let [closed, before] = counters(a, ["rc_disconnected", "rc_fallback"])?;
        let flood = a.spawn(&format!("ping -q -i 0.02 {}", b.ip4()))?;
        set(b, "rc_idle_s", 61)?;
        a.until(Duration::from_secs(10), || Ok(counter(a, "rc_disconnected")? > closed))
            .with_context(|| story(a))?;
        a.wait_until(&sends_by(a, "= 1")?, Duration::from_secs(10)).with_context(|| story(a))?;
        flood.stop()?;
        // Five in a tenth of a second, and some while it is made. A back-off of a second makes it more than thirty.
        let frames = counter(a, "rc_fallback")? - before;
        ensure!(frames < 25, "{frames}: {}", story(a));
        bed.finish()
    }
}

scenario! {
    /// A connection that carries nothing goes after `rc_idle_s`, and comes back with the next frame.
    #[on(races, infiniband)]
    fn idle_connections_go(bed) {
        let bed = bed.up()?;
        up(&bed)?;
        let (a, b) = bed.pair()?;
        // Long enough to be seen by who looks after the peer.
        let idle = a.scaled(Duration::from_secs(2)).as_secs() as u32;
        for host in [a, b] {
            set(host, "rc_idle_s", idle)?;
        }
        for round in 1..=3 {
            connect(a, b)?;
            for host in [a, b] {
                host.wait_until("ethtool -S ib0 | grep -q ' rc_current: 0'", Duration::from_secs(20))?;
                host.wait_until("! rdma resource show qp | grep -q 'type RC'", Duration::from_secs(10))?;
            }
            let idle = counter(a, "rc_idle")? + counter(b, "rc_idle")?;
            ensure!(idle >= round, "{idle} after {round} rounds");
        }
        // Under traffic it stays.
        connect(a, b)?;
        let before = counter(a, "rc_connected")?;
        a.ok(&format!("ping -q -c 30 -i 0.1 -W 5 {}", b.ip4()))?;
        ensure!(counter(a, "rc_connected")? == before && counter(a, "rc_current")? == 2);
        bed.finish()
    }
}

scenario! {
    /// A peer that is set to datagram mode takes no connection, though our neighbour table says that
    /// it does: frames go by UD, at its MTU.
    #[on(races, infiniband)]
    fn a_peer_in_datagram_mode_refuses(bed) {
        let bed = bed.up()?;
        let (a, b) = connected(&bed)?;
        let address = b.ok("cat /sys/class/net/ib0/address")?;
        a.ok(&format!(
            "ip neigh replace {} lladdr {} dev ib0 nud permanent",
            b.ip4(),
            address.trim()
        ))?;
        set_mode(b, "datagram")?;
        for host in [a, b] {
            host.wait_until("ethtool -S ib0 | grep -q ' rc_current: 0'", Duration::from_secs(10))?;
        }
        let (requests, fallback) = (counter(a, "rc_requests_sent")?, counter(a, "rc_fallback")?);
        a.wait_until(
            &format!(
                "ping -q -c 1 -W 5 {}; [ $(ethtool -S ib0 | sed -n 's/^ *rc_requests_sent: //p') -gt {requests} ]",
                b.ip4()
            ),
            Duration::from_secs(30),
        )?;
        transfer(a, b, &b.ip4(), 1)?;
        a.ok(&format!("ping -q -c 5 -i 0.2 -W 5 -s 4000 {}", b.ip4()))?;
        // After two refusals, what only a connection could carry does not wait for one: the sender hears what fits.
        a.wait_until(
            &format!(
                "ping -q -c 1 -W 5 {}; [ $(ethtool -S ib0 | sed -n 's/^ *rc_requests_sent: //p') -gt {} ]",
                b.ip4(),
                requests + 2
            ),
            Duration::from_secs(30),
        )?;
        a.ok("ip route flush cache")?;
        a.wait_until(&format!("ping -q -c 1 -W 1 -s 20000 {}", b.ip4()), Duration::from_secs(4))
            .with_context(|| story(a))?;
        ensure!(counter(a, "rc_fallback")? > fallback);
        ensure!(counter(a, "rc_failed")? + counter(b, "rc_refused")? > 0, "{}", story(a));
        for host in [a, b] {
            ensure!(counter(host, "rc_current")? == 0 && queue_pairs(host)? == 0);
        }
        // It changes its mind.
        set_mode(b, "connected")?;
        b.ok(&format!("ip link set ib0 mtu {LARGE}"))?;
        // After some refusals, nobody asks again at once.
        a.wait_until(
            &format!("ping -q -c 1 -W 1 {} && {}", b.ip4(), sends_by(a, "= 1")?),
            Duration::from_secs(90),
        )?;
        bed.finish()
    }
}

const ECHO: &str = include_str!("../../guest/connected/life/echo.py");

const CYCLES: &str = include_str!("../../guest/connected/life/cycles.py");

scenario! {
    /// Both ask at the same time, again and again: each gets its connection at once, and there are no other queue pairs.
    #[on(races, infiniband)]
    fn requests_that_cross_make_two_connections(bed) {
        let (rounds, more) = bed.rounds(amount(&bed, 64))?;
        let bed = bed.lifetime(Duration::from_secs(480) * more).up()?;
        up(&bed)?;
        let (a, b) = bed.pair()?;
        // Nobody has to be asked for an address, which would give one of them a start.
        for (host, other) in [(a, b), (b, a)] {
            let address = other.ok("cat /sys/class/net/ib0/address")?;
            host.ok(&format!(
                "ip neigh replace {} lladdr {} dev ib0 nud permanent",
                other.ip4(),
                address.trim()
            ))?;
        }
        for round in 0..rounds {
            // The host that listens first may be asked before it has something to send.
            let order = if round % 2 == 0 { [a, b] } else { [b, a] };
            for mode in ["datagram", "connected"] {
                for host in order {
                    set_mode(host, mode)?;
                }
            }
            let pings = [
                a.spawn(&format!("ping -q -c 1 -W 5 {}", b.ip4()))?,
                b.spawn(&format!("ping -q -c 1 -W 5 {}", a.ip4()))?,
            ];
            for ping in pings {
                let said = ping.wait(a.scaled(Duration::from_secs(10)))?.ok()?;
                ensure!(said.contains(" 1 received"), "{said}");
            }
            for host in order {
                host.wait_until("ethtool -S ib0 | grep -q ' rc_current: 2'", Duration::from_secs(2))
                    .and_then(|()| {
                        let two = format!(
                            "[ $(rdma resource show qp link {}/1 | grep -c 'type RC') = 2 ]",
                            host.rdma_device()
                        );
                        host.wait_until(&two, Duration::from_secs(2))
                    })
                    .with_context(|| format!("round {round}: {}{}", story(a), story(b)))?;
            }
        }
        let sum = |name: &str| -> Result<u64> { Ok(counter(a, name)? + counter(b, name)?) };
        ensure!(sum("rc_connected")? == 4 * u64::from(rounds), "{}{}", story(a), story(b));
        ensure!(sum("rc_failed")? == 0, "{}{}", story(a), story(b));
        bed.finish()
    }
}

scenario! {
    /// A thousand connections, one after the other: what the RDMA device has in the end is what it had
    /// in the beginning.
    #[on(races, infiniband)]
    fn connections_come_and_go(bed) {
        let rounds: u32 = match (bed.lane(), bed.kernel()) {
            (Lane::Uml, Kernel::Base) => 1000,
            (_, Kernel::Base | Kernel::Stock) => 200,
            (Lane::Uml, _) => 100,
            (Lane::Qemu, _) => 20,
        };
        let (rounds, more) = bed.rounds(rounds)?;
        let bed = bed.lifetime(Duration::from_secs(900) * more).up()?;
        up(&bed)?;
        let (a, b) = bed.pair()?;
        connect(a, b)?;
        let none = "ethtool -S ib0 | grep -q ' rc_current: 0'";
        set_mode(a, "datagram")?;
        b.wait_until(none, Duration::from_secs(10))?;
        let before = (resources(a)?, resources(b)?);
        let connections = format!("{}/connections", directory(a, "ib0")?);
        let echo = b.spawn_python(ECHO, &[])?;
        echo.wait_for("ready", b.scaled(Duration::from_secs(10)))?;
        let mut left = rounds;
        while left > 0 {
            // So that each command has an end.
            let some = left.min(100);
            left -= some;
            let cycles = a.spawn_python(CYCLES, &[&b.ip4(), &some.to_string(), &connections])?;
            let output = cycles.wait(a.scaled(Duration::from_secs(100)))?.ok();
            output.with_context(|| format!("{}{}", story(a), story(b)))?;
        }
        echo.stop()?;
        for host in [a, b] {
            host.wait_until(none, Duration::from_secs(10))?;
        }
        ensure!(counter(a, "rc_connected")? > u64::from(rounds), "{}", story(a));
        // A work item destroys the rest.
        let now = || anyhow::Ok((resources(a)?, resources(b)?));
        a.until(Duration::from_secs(5), || Ok(now()? == before))
            .with_context(|| format!("{:?} is not {before:?}", now()))?;
        bed.finish()
    }
}

scenario! {
    /// 16 flows to one peer: there are no more queue pairs than `rc_max_qps` allows each way, and every flow gets
    /// on. All queue pairs share their buffers.
    #[on(races, infiniband)]
    fn many_flows_share_few_connections(bed) {
        // Each is a thread at either end. Of 64, not all begin before the second is over.
        const FLOWS: usize = 16;
        let bed = bed.up()?;
        let (a, b) = connected(&bed)?;
        let before = (common(a)?, common(b)?);
        for limit in [1, 4] {
            for host in [a, b] {
                set(host, "rc_max_qps", limit)?;
            }
            // A block counts when all of it was written.
            let end = iperf3(&bed, &b.ip4(), &format!("-P {FLOWS} -l 4K"))?;
            let streams = end["streams"].as_array().context("no streams")?;
            ensure!(streams.len() == FLOWS, "{} streams", streams.len());
            let sent = |stream: &Value| stream.pointer("/sender/bytes").and_then(Value::as_u64);
            let sent: Vec<_> = streams.iter().map(sent).collect();
            ensure!(sent.iter().all(|bytes| bytes.is_some_and(|bytes| bytes > 0)), "{sent:?}");
            for host in [a, b] {
                let pairs = queue_pairs(host)?;
                ensure!((2..=2 * limit as usize).contains(&pairs), "{pairs} queue pairs, {limit} allowed");
                ensure!(counter(host, "rc_current")? <= 2 * u64::from(limit));
            }
        }
        // Flows of more than one kind are spread.
        ensure!(queue_pairs(a)? > 2, "{}", a.ok("rdma resource show qp")?);
        let after = (common(a)?, common(b)?);
        ensure!(after == before, "{after:?} is not {before:?}");
        bed.finish()
    }
}

scenario! {
    /// Two peers and room for one connection to send by: the one that was used least recently goes, and nothing is
    /// lost by it.
    #[on(races, infiniband)]
    fn the_least_recently_used_connection_goes(bed) {
        let bed = bed.hosts(3).up()?;
        up(&bed)?;
        let [a, b, c] = bed.hosts.as_slice() else {
            anyhow::bail!("no three hosts");
        };
        set(a, "rc_max_connections", 1)?;
        connect(a, b)?;
        let one = sends_by(a, "-le 1")?;
        // One that is in use is not taken away for another's first frame.
        let table = format!("{}/connections", directory(a, "ib0")?);
        for other in [c, b, c, b] {
            let (gid, _) = identity(other)?;
            a.wait_until(
                &format!(
                    "ping -q -c 1 -W 5 {} || exit 1; grep -q '^{gid} .* up ' {table}",
                    other.ip4()
                ),
                Duration::from_secs(30),
            )?;
            a.ok(&one).with_context(|| story(a))?;
            // Work items take a moment to destroy the rest. The peers have one each.
            a.wait_until(
                &format!("[ $(rdma resource show qp link {}/1 | grep -c 'type RC') -le 3 ]", a.rdma_device()),
                Duration::from_secs(10),
            )?;
            for host in [b, c] {
                lossless(a, &format!("-c 5 -i 0.05 -W 5 -s 10000 {}", host.ip4()))?;
            }
        }
        // Both at once.
        let flows = [
            Transfer::start(a, b, &b.ip4(), 1, 3)?,
            Transfer::start(a, c, &c.ip4(), 1, 3)?,
        ];
        for flow in flows {
            flow.finish()?;
        }
        a.ok(&one).with_context(|| story(a))?;
        ensure!(counter(a, "rc_evicted")? > 0, "{}", story(a));
        bed.finish()
    }
}
