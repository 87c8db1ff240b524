// SPDX-License-Identifier: GPL-2.0

//! Requests for connections that no honest peer sends, put on the wire by hand.

use super::{LARGE, connect, queue_pairs, set_mode, story, up};
use crate::capture::{Capture, Datagram, RcSend};
use crate::inspect::{directory, identity};
use crate::order::{counter, set};
use crate::transfer::{Transfer, transfer};
use anyhow::{Context, Result, bail, ensure};
use lab::bed::{Host, Netem};
use lab::task::Task;
use lab::{forge, scenario};
use std::collections::BTreeSet;
use std::time::Duration;

pub(crate) const REQUEST: &str = include_str!("../../guest/connected/forged/request.py");

const NONSENSE: &str = include_str!("../../guest/connected/forged/nonsense.py");

const FLOOD: &str = include_str!("../../guest/connected/forged/flood.py");

const STALE: &str = include_str!("../../guest/connected/forged/stale.py");

const STREAM: &str = include_str!("../../guest/connected/forged/stream.py");

fn wait_for_more(host: &Host, name: &str, than: u64) -> Result<()> {
    let script = format!("[ $(ethtool -S ib0 | sed -n 's/^ *{name}: //p') -gt {than} ]");
    host.wait_until(&script, Duration::from_secs(10))
        .with_context(|| story(host))
}

fn forge(forger: &Host, victim: &Host, target: &Host, what: &str) -> Result<()> {
    let (gid, qpn) = identity(victim)?;
    let program = forge::program(forger, target, &format!("{REQUEST}{what}"))?;
    forger.python(&program, &[&gid, &qpn])?.ok()?;
    Ok(())
}

scenario! {
    /// Requests with private data that make no sense, for somebody else, in another partition: refused and
    /// counted, or not even passed on by the CM.
    #[on(races)]
    fn requests_that_make_no_sense_are_refused(bed) {
        let bed = bed.hosts(3).up()?;
        up(&bed)?;
        let [a, b, c] = bed.hosts.as_slice() else {
            bail!("no three hosts");
        };
        for (host, name) in [(a, "fd77::1"), (b, "fd77::2")] {
            host.ok(&format!("ip addr add {name}/64 dev eth0 nodad"))?;
            let gids = "/sys/class/infiniband/*/ports/1/gids/*";
            host.wait_until(&format!("cat {gids} 2>/dev/null | grep -q ^fd77:"), Duration::from_secs(10))?;
        }
        connect(a, b)?;
        forge(c, a, b, NONSENSE)?;
        for (name, least) in [("rc_refused_data", 18), ("rc_refused_gid", 3), ("rc_refused_pkey", 3)] {
            b.wait_until(
                &format!("[ $(ethtool -S ib0 | sed -n 's/^ *{name}: //p') -ge {least} ]"),
                Duration::from_secs(10),
            )
            .with_context(|| story(b))?;
        }
        for host in [a, b] {
            ensure!(counter(host, "rc_connected")? == 2 && queue_pairs(host)? == 2, "{}", story(host));
        }
        transfer(a, b, &b.ip4(), 1)?;
        bed.finish()
    }
}

scenario! {
    /// Anybody can ask in a peer's name. Requests that nobody confirms do not end the connection that
    /// there is, whose flows go on; they take a few queue pairs, for some seconds; and an honest peer
    /// gets its connection afterwards.
    #[on(races)]
    fn forged_requests_end_nothing(bed) {
        // An emulated CM with everything checked takes a quarter of the requests in the time.
        let least = if bed.kernel().is_checked() { 10 } else { 100 };
        let bed = bed.hosts(3).up()?;
        up(&bed)?;
        let [a, b, c] = bed.hosts.as_slice() else {
            bail!("no three hosts");
        };
        // Where all is slow, the flood takes longer than a connection may be idle.
        for host in [a, b] {
            set(host, "rc_idle_s", 3600)?;
        }
        connect(a, b)?;
        let accepted = counter(b, "rc_accepted")?;
        let flows = [
            Transfer::start(a, b, &b.ip4(), 1, 5)?,
            Transfer::start(b, a, &a.ip4(), 1, 5)?,
        ];
        forge(c, a, b, FLOOD)?;
        let most = queue_pairs(b)?;
        // The connections, what may take their place, and those of which nobody knows whose they are.
        ensure!(most <= 2 + 16 + 16, "{most} queue pairs: {}", story(b));
        for flow in flows {
            flow.finish()?;
        }
        ensure!(counter(b, "rc_accepted")? > accepted, "none got through: {}", story(b));
        ensure!(counter(b, "rc_refused_full")? > least, "{}", story(b));
        for host in [a, b] {
            ensure!(counter(host, "rc_connected")? == 2, "{}", story(host));
            ensure!(counter(host, "rc_stuck")? == 0 && counter(host, "rc_disconnected")? == 0, "{}", story(host));
        }
        b.wait_until(
            &format!("[ $(rdma resource show qp link {}/1 | grep -c 'type RC') = 2 ]", b.rxe()),
            Duration::from_secs(60),
        )?;
        connect(c, b)?;
        transfer(c, b, &b.ip4(), 1)?;
        bed.finish()
    }
}

scenario! {
    /// Requests in each other's name to two that have no connection yet, on both sides: they are accepted,
    /// as far as there is room, since they may be the peer's own, and nobody confirms that. What either
    /// asks for itself comes all the same, and soon.
    #[on(races)]
    fn forged_requests_keep_no_peers_apart(bed) {
        let bed = bed.hosts(3).up()?;
        up(&bed)?;
        let [a, b, c] = bed.hosts.as_slice() else {
            bail!("no three hosts");
        };
        let forge = |to: &Host, victim: &Host| -> Result<Task> {
            let (gid, qpn) = identity(victim)?;
            let program = forge::program(c, to, &format!("{REQUEST}{STREAM}"))?;
            // Not more than whom they are sent to can refuse: here it is not time that counts, but places.
            let wait = c.scaled(Duration::from_millis(50)).as_secs_f64().to_string();
            let task = c.spawn_python(&program, &[&gid, &qpn, &wait])?;
            task.wait_for("ready", c.scaled(Duration::from_secs(10)))?;
            Ok(task)
        };
        let forgers = [forge(a, b)?, forge(b, a)?];
        for (asks, other) in [(a, b), (b, a)] {
            for host in [a, b] {
                wait_for_more(host, "rc_accepted", counter(host, "rc_accepted")?)?;
            }
            let table = format!("{}/connections", directory(asks, "ib0")?);
            let (gid, qpn) = identity(other)?;
            let up = format!("grep -q '^{gid} {qpn} 0 up ' {table}");
            asks.wait_until(&format!("ping -q -c 1 -W 1 {}; {up}", other.ip4()), Duration::from_secs(8))
                .with_context(|| format!("{}{}", story(a), story(b)))?;
            transfer(asks, other, &other.ip4(), 1)?;
            for host in [a, b] {
                wait_for_more(host, "rc_requests_received", counter(host, "rc_requests_received")?)?;
            }
            for host in [a, b] {
                set_mode(host, "datagram")?;
            }
            for host in [a, b] {
                set_mode(host, "connected")?;
                host.ok(&format!("ip link set ib0 mtu {LARGE}"))?;
            }
        }
        for forger in forgers {
            forger.stop()?;
        }
        bed.finish()
    }
}

/// Of a REQ or a REP (IBA volume 1, sections 12.6.5 and 12.6.8): the first packet that is to come back.
fn beginning(datagram: &Datagram) -> Option<RcSend> {
    let (mad, body) = datagram.payload.split_at_checked(24)?;
    let word = |at: usize| {
        body.get(at..at + 4)?
            .try_into()
            .ok()
            .map(u32::from_be_bytes)
    };
    let (qpn, psn) = match (mad[1], &mad[16..18]) {
        (7, [0, 0x10]) => (word(32)?, word(44)?),
        (7, [0, 0x13]) => (word(12)?, word(20)?),
        _ => return None,
    };
    Some(RcSend {
        destination: datagram.source,
        traffic_class: datagram.traffic_class,
        service_level: datagram.service_level,
        length: 0,
        is_whole: true,
        qpn: qpn >> 8,
        psn: psn >> 8,
    })
}

scenario! {
    /// A packet forged into a connection needs the right number (ReDMArk): each begins with
    /// another one in either direction, drawn from all that there are.
    #[on(races)]
    fn packet_numbers_are_not_to_be_guessed(bed) {
        let bed = bed.up()?;
        up(&bed)?;
        let (a, b) = bed.pair()?;
        let capture = Capture::start(b)?;
        for _ in 0..5 {
            connect(a, b)?;
            a.ok(&format!("ping -q -c 1 -W 5 {}", b.ip4()))?;
            set_mode(a, "datagram")?;
            b.wait_until("ethtool -S ib0 | grep -q ' rc_current: 0'", Duration::from_secs(10))?;
            set_mode(a, "connected")?;
        }
        let (datagrams, sends) = capture.stop_with_sends()?;
        // Once each, though a message may be repeated.
        let begun: BTreeSet<_> = datagrams.iter().filter_map(beginning).collect();
        let begun: Vec<_> = begun.into_iter().collect();
        ensure!(begun.len() >= 10, "{begun:x?}");
        let mut used = 0;
        for expected in &begun {
            let queue_pair = |send: &RcSend| (send.destination, send.qpn);
            let mut to_it = sends.iter().filter(|send| queue_pair(send) == queue_pair(expected));
            if let Some(first) = to_it.next() {
                let told = |send: &RcSend| (send.traffic_class, send.psn);
                ensure!(told(first) == told(expected), "{first:x?} is not {expected:x?}");
                used += 1;
            }
        }
        ensure!(used >= 10, "{used} of {begun:x?}");
        let numbers: BTreeSet<u32> = begun.iter().map(|first| first.psn).collect();
        ensure!(numbers.len() == begun.len(), "twice the same: {begun:x?}");
        // That ten random ones are closer together happens once in 10^10 times.
        let spread = numbers.last().zip(numbers.first()).map_or(0, |(last, first)| last - first);
        ensure!(spread > 1 << 20, "{begun:x?}");
        bed.finish()
    }
}

/// Disconnections that the CM of a host has sent, the repeated ones not counted.
fn disconnections(host: &Host) -> String {
    format!(
        "$(cat /sys/class/infiniband/{}/ports/1/cm_tx_msgs/dreq)",
        host.rxe()
    )
}

/// Has the CM of `target` believe that its connection with `victim` is an old one: the queue pair is to be connected
/// again, as the forger says in the victim's name.
fn make_stale(forger: &Host, victim: &Host, target: &Host) -> Result<()> {
    let pairs = victim.ok(&format!(
        "rdma resource show qp link {}/1 | sed -n '/type RC/s/.* lqpn \\([0-9]*\\) .*/\\1/p'",
        victim.rxe()
    ))?;
    let node = victim.ok(&format!(
        "cat /sys/class/infiniband/{}/node_guid",
        victim.rxe()
    ))?;
    let (gid, qpn) = identity(victim)?;
    let program = forge::program(forger, target, &format!("{REQUEST}{STALE}"))?;
    let sent = disconnections(target);
    let before = target.ok(&format!("echo {sent}"))?;
    for pair in pairs.split_whitespace() {
        let arguments = [&*gid, &*qpn, node.trim(), pair];
        forger.python(&program, &arguments)?.ok()?;
    }
    let script = format!("[ {sent} -gt {} ]", before.trim());
    target
        .wait_until(&script, Duration::from_secs(10))
        .with_context(|| story(target))
}

scenario! {
    /// The CM disconnects by itself if a queue pair is said to be connected again, which anybody can say. That
    /// connection ends on both sides, and there is a new one; without an answer it ends, too, and an interface can go
    /// meanwhile.
    #[on(races)]
    fn connections_that_the_cm_ends(bed) {
        let bed = bed.hosts(3).lifetime(Duration::from_secs(180)).up()?;
        up(&bed)?;
        let [a, b, c] = bed.hosts.as_slice() else {
            bail!("no three hosts");
        };
        for host in [a, b] {
            set(host, "rc_idle_s", 3600)?;
        }
        a.netem(Netem::default())?;
        connect(a, b)?;
        let before = [counter(a, "rc_connected")?, counter(b, "rc_connected")?];
        make_stale(c, a, b)?;
        for (host, other, before) in [(a, b, before[0]), (b, a, before[1])] {
            let again = format!(
                "ping -q -c 1 -W 1 {}; [ $(ethtool -S ib0 | sed -n 's/^ *rc_connected: //p') -gt {before} ]",
                other.ip4()
            );
            host.wait_until(&again, Duration::from_secs(20)).with_context(|| story(host))?;
        }
        transfer(a, b, &b.ip4(), 1)?;
        for act in ["ip link set ib0 down && ip link set ib0 up", "ip link del ib0", ""] {
            connect(a, b)?;
            a.netem(Netem { loss: 100.0, ..Netem::default() })?;
            make_stale(c, a, b)?;
            if act.is_empty() {
                // Eight messages of 1.5 s each, and the CM's own wait behind them.
                b.wait_until("ethtool -S ib0 | grep -q ' rc_current: 0'", Duration::from_secs(30)).with_context(|| story(b))?;
            } else {
                b.run_for(act, Duration::from_secs(10))?.ok()?;
            }
            a.netem(Netem::default())?;
            // It would take a while to find out that its connection is over.
            a.ok("ip link set ib0 down && ip link set ib0 up")?;
            if act.contains("del") {
                b.ib_add("mode connected")?;
                b.ok(&format!("ip link set ib0 mtu {LARGE}"))?;
                b.ib_up()?;
            }
            a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), Duration::from_secs(30))?;
        }
        connect(a, b)?;
        transfer(a, b, &b.ip4(), 1)?;
        for host in [a, b] {
            ensure!(counter(host, "restarts")? == 0, "{}", story(host));
        }
        bed.finish()
    }
}
