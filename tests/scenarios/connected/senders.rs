// SPDX-License-Identifier: GPL-2.0

//! Peers that only send, as those with another driver do, and mean no good, made by hand.

use super::credit::few_buffers;
use super::forged::REQUEST;
use super::{connect, queue_pairs, story, up};
use crate::inspect::{directory, identity, table};
use crate::order::{counter, set};
use crate::transfer::transfer;
use anyhow::{Context, Result, bail, ensure};
use lab::bed::{Bed, Host};
use lab::task::Task;
use lab::{forge, scenario};
use std::time::{Duration, Instant};

const SENDERS: &str = include_str!("../../guest/connected/hostile/senders.py");

pub(crate) const HOLD: &str = include_str!("../../guest/connected/hostile/hold.py");

const CROWD: &str = include_str!("../../guest/connected/hostile/crowd.py");

const DOUBLE: &str = include_str!("../../guest/connected/hostile/double.py");

const GREEDY: &str = include_str!("../../guest/connected/credit/greedy.py");

const NUMBERS: &str = include_str!("../../guest/connected/hostile/numbers.py");

const CHURN: &str = include_str!("../../guest/connected/hostile/churn.py");

/// Names that nobody else answers in.
pub(crate) const NAMES: [&str; 4] = ["fe80::bad:1", "fe80::bad:2", "fe80::bad:3", "fe80::bad:4"];

/// Has a host act in several names towards another one, by a program that follows `senders.py`.
pub(crate) fn act(
    forger: &Host,
    target: &Host,
    names: &[&str],
    what: &str,
    argument: &str,
) -> Result<Task> {
    let mac = forger.ok("cat /sys/class/net/eth0/address")?;
    for name in names {
        target.ok(&format!(
            "ip neigh replace {name} lladdr {} dev eth0 nud permanent",
            mac.trim()
        ))?;
    }
    let program = forge::program(forger, target, &format!("{REQUEST}{SENDERS}{what}"))?;
    let (gid, qpn) = identity(forger)?;
    forger.spawn_python(&program, &[&gid, &qpn, &names.join(","), argument])
}

/// Time that a stream of some MiB takes.
fn time(from: &Host, to: &Host) -> Result<Duration> {
    let begun = Instant::now();
    transfer(from, to, &to.ip4(), 8)?;
    Ok(begun.elapsed())
}

/// Sends large packets, all of which are to arrive; only a connection carries them whole.
fn passes(from: &Host, to: &Host) -> Result<()> {
    let ping = format!(
        "ping -q -c 200 -i 0.01 -W 5 -s 20000 {} | grep -q ' 0% packet loss'",
        to.ip4()
    );
    from.run_for(&ping, Duration::from_secs(30))?.ok()?;
    Ok(())
}

/// A host, another one that has a connection to it, and a third one; 64 buffers each.
fn three(bed: &Bed) -> Result<[&Host; 3]> {
    few_buffers(bed)?;
    up(bed)?;
    let [a, b, c] = bed.hosts.as_slice() else {
        bail!("no three hosts");
    };
    for host in [a, b] {
        set(host, "rc_idle_s", 3600)?;
    }
    connect(a, b)?;
    Ok([a, b, c])
}

/// An honest peer goes on by its connection as before, and at no less than a third of the speed, but for two seconds that a
/// busy machine may take.
fn goes_on(from: &Host, to: &Host, before: Duration) -> Result<()> {
    let tell = || format!("{}{}", story(from), story(to));
    let connected = counter(from, "rc_connected")?;
    passes(from, to).with_context(tell)?;
    let during = time(from, to).with_context(tell)?;
    let limit = before * 3 + Duration::from_secs(2);
    ensure!(during < limit, "{during:?} instead of {before:?}");
    let is_same = counter(from, "rc_connected")? == connected && counter(from, "rc_stuck")? == 0;
    ensure!(is_same && counter(to, "restarts")? == 0, "{}", tell());
    Ok(())
}

scenario! {
    /// Peers that begin a message by each connection that they get, and never end one, keep a buffer each. They get half of
    /// all buffers and no more, a quarter of that for each GID, and an honest peer goes on as before. Soft-RoCE gives buffers
    /// back only if the queue is made anew.
    #[on(timed)]
    fn senders_keep_half_of_the_buffers(bed) {
        let bed = bed.hosts(3).lifetime(Duration::from_secs(240)).up()?;
        let [a, b, c] = three(&bed)?;
        let before = time(a, b)?;
        let forger = act(c, b, &NAMES, HOLD, "")?;
        let held = forger.wait_for("held", c.scaled(Duration::from_secs(60)));
        held.with_context(|| story(b))?;
        let connections = format!("{}/connections", directory(b, "ib0")?);
        let rows = table(b, &connections)?;
        // That of the honest peer is one of 32, unless it was the least recently used one.
        let counts = NAMES.map(|name| {
            let its = rows.iter().filter(|row| row["gid"] == name && row["state"] == "receiving");
            its.count()
        });
        let is_fair = counts.iter().all(|count| *count <= 8) && counts.iter().sum::<usize>() >= 31;
        ensure!(is_fair, "{counts:?}: {}", story(b));
        // A few may have made room for others.
        let text = forger.peek()?.stdout;
        let held = text.split_whitespace().nth(1).and_then(|word| word.parse::<u32>().ok());
        ensure!(held.is_some_and(|held| (31..48).contains(&held)), "{text}");
        connect(a, b)?;
        goes_on(a, b, before)?;
        forger.stop()?;
        let gone = format!("! grep -q bad: {connections} && [ $(ethtool -S ib0 | sed -n 's/^ *rc_current: //p') = 2 ]");
        b.wait_until(&gone, Duration::from_secs(30)).with_context(|| story(b))?;
        ensure!(queue_pairs(b)? == 2, "{}", story(b));
        // Those buffers are gone: with traffic, that is seen.
        bed.heals(&["self_restarts"]);
        let anew = format!("ping -q -f -c 1000 {} >/dev/null; ethtool -S ib0 | grep -q ' restarts: 1'", a.ip4());
        b.wait_until(&anew, Duration::from_secs(90)).with_context(|| story(b))?;
        connect(a, b)?;
        passes(a, b)?;
        bed.finish()
    }
}

/// Returns true if a host has fewer queue pairs for connections than hostile peers should be able to make it have: the places
/// that there are, those that nobody has confirmed, those that are ending, and an honest peer's.
fn has_few(host: &Host) -> Result<bool> {
    Ok(queue_pairs(host)? <= 32 + 16 + 16 + 2)
}

scenario! {
    /// Peers that come, send a frame and go, many at a time and as fast as they can. An honest peer goes on as before, and
    /// one that has no connection gets one soon: where a kernel with checkers takes all of the processor to refuse the others,
    /// it is not soon. Nothing is left of the others.
    #[on(base)]
    fn senders_come_and_go(bed) {
        let bed = bed.hosts(3).lifetime(Duration::from_secs(240)).up()?;
        let [a, b, c] = three(&bed)?;
        let before = time(a, b)?;
        let forger = act(c, b, &NAMES, CHURN, "send")?;
        forger.wait_for("ready", c.scaled(Duration::from_secs(10)))?;
        goes_on(a, b, before)?;
        ensure!(has_few(b)?, "{}", story(b));
        for _ in 0..3 {
            a.ok("ip link set ib0 down && ip link set ib0 up")?;
            let again = format!("ping -q -c 1 -W 1 {}; grep -q ' up ' {}/connections", b.ip4(), directory(a, "ib0")?);
            a.wait_until(&again, Duration::from_secs(10)).with_context(|| format!("{}{}", story(a), story(b)))?;
            ensure!(has_few(b)?, "{}", story(b));
        }
        let text = forger.stop()?.stdout;
        let had = text.split_whitespace().filter_map(|word| word.parse::<u32>().ok()).next();
        ensure!(had > Some(200), "{text}");
        let two = format!("[ $(rdma resource show qp link {}/1 | grep -c 'type RC') = 2 ]", b.rxe());
        b.wait_until(&two, Duration::from_secs(30)).with_context(|| story(b))?;
        passes(a, b)?;
        bed.finish()
    }
}

scenario! {
    /// Requests that nobody confirms take all places again and again, and a peer that confirms gets one all the same.
    #[on(timed)]
    fn a_crowd_keeps_nobody_out(bed) {
        let bed = bed.hosts(3).lifetime(Duration::from_secs(240)).up()?;
        let [a, b, c] = three(&bed)?;
        let forger = act(c, b, &NAMES, CROWD, "")?;
        let text = forger.wait(c.scaled(Duration::from_secs(90)))?.ok().with_context(|| story(b))?;
        let got = text.split_whitespace().nth(1).and_then(|word| word.parse::<u32>().ok());
        ensure!(got >= Some(8), "{text} {}", story(b));
        // They were full, and others made room.
        ensure!(counter(b, "rc_refused")? > 0 && counter(b, "rc_failed")? > 50, "{}", story(b));
        passes(a, b)?;
        bed.finish()
    }
}

scenario! {
    /// Peers send without end, and acknowledge nothing. They get few credit limits, which take neither
    /// the ring of connections nor the limit of bytes that all senders share: an honest peer goes on, as a datagram does.
    #[on(timed)]
    fn strangers_get_few_grants(bed) {
        let bed = bed.hosts(3).lifetime(Duration::from_secs(240)).up()?;
        let [a, b, c] = three(&bed)?;
        let before = counter(b, "rc_grants")?;
        let forger = act(c, b, &NAMES[..1], GREEDY, "")?;
        forger.wait_for("confirmed 8", c.scaled(Duration::from_secs(20))).with_context(|| story(b))?;
        for to in [a, c] {
            // Those that come first may have to wait for an address.
            let ping = format!("ping -q -c 100 -i 0.05 -W 2 {} | tee /dev/stderr | grep -q ' 0% packet loss'", to.ip4());
            b.run_for(&ping, Duration::from_secs(60))?.ok().with_context(|| story(b))?;
        }
        forger.stop()?;
        // Four for each connection in five seconds, and those that an honest peer gets.
        let grants = counter(b, "rc_grants")? - before;
        ensure!((8..500).contains(&grants), "{grants}: {}", story(b));
        bed.finish()
    }
}

scenario! {
    /// Somebody asks for a connection in the name of a peer that has one, and confirms it. That of the peer stays as long as
    /// frames come by it.
    #[on(timed)]
    fn a_forged_request_ends_nothing(bed) {
        let bed = bed.hosts(3).lifetime(Duration::from_secs(240)).up()?;
        let [_, b, c] = three(&bed)?;
        let before = counter(b, "rc_rx_frames")?;
        let forger = act(c, b, &NAMES[..1], DOUBLE, "")?;
        forger.wait_for("done", c.scaled(Duration::from_secs(30))).with_context(|| story(b))?;
        let text = forger.peek()?.stdout;
        ensure!(text.contains("doubled 1"), "{text} {}", story(b));
        // Those behind the forged request, too.
        let frames = counter(b, "rc_rx_frames")? - before;
        ensure!(frames >= 28, "{frames} frames {}", story(b));
        ensure!(counter(b, "rc_replaced")? == 0 && counter(b, "rc_current")? == 4, "{}", story(b));
        let text = forger.wait(c.scaled(Duration::from_secs(20)))?.ok()?;
        ensure!(text.contains("third 1"), "{text} {}", story(b));
        let gone = "ethtool -S ib0 | grep -q ' rc_replaced: 2'";
        b.wait_until(gone, Duration::from_secs(30)).with_context(|| story(b))?;
        ensure!(counter(b, "rc_current")? == 3, "{}", story(b));
        bed.finish()
    }
}

scenario! {
    /// Peers that come, begin a message and go: on soft-RoCE, each takes a buffer with it. When there is none left, frames go
    /// as datagrams. The buffers are replaced, but not more often than once a minute, and connections work again.
    #[on(timed)]
    fn senders_go_with_the_buffers(bed) {
        let bed = bed.hosts(3).lifetime(Duration::from_secs(300)).up()?;
        let [a, b, c] = three(&bed)?;
        let forger = act(c, b, &NAMES, CHURN, "begin")?;
        forger.wait_for("ready", c.scaled(Duration::from_secs(10)))?;
        // It takes a while until the peer is given up.
        let small = format!("ping -q -c 5 -i 0.2 -W 1 {} | grep -q ' 0% packet loss'", b.ip4());
        a.wait_until(&format!("{small} && ethtool -S ib0 | grep -q ' rc_stuck: [1-9]'"), Duration::from_secs(40))
            .with_context(|| format!("{}{}", story(a), story(b)))?;
        forger.stop()?;
        bed.heals(&["self_restarts"]);
        let anew = "ethtool -S ib0 | grep -q ' restarts: 1'";
        b.wait_until(&format!("ping -q -c 1 -W 1 {}; {anew}", a.ip4()), Duration::from_secs(90))
            .with_context(|| story(b))?;
        connect(a, b)?;
        passes(a, b)?;
        ensure!(counter(b, "restarts")? == 1, "{}", story(b));
        bed.finish()
    }
}

scenario! {
    /// All buffers are gone before they may be replaced, and nothing happens any more: no peer sends, and no connection ends.
    /// They are replaced all the same, after a minute, and connections work again.
    #[on(timed)]
    fn buffers_are_replaced_without_traffic(bed) {
        let bed = bed.hosts(3).lifetime(Duration::from_secs(300)).up()?;
        let [a, b, c] = three(&bed)?;
        let forger = act(c, b, &NAMES, CHURN, "begin")?;
        // The third time, 32 begin, of 64 buffers.
        let gone = "[ $(ethtool -S ib0 | sed -n 's/^ *rc_accepted: //p') -gt 80 ]";
        b.wait_until(gone, Duration::from_secs(45)).with_context(|| story(b))?;
        forger.stop()?;
        ensure!(counter(b, "restarts")? == 0, "{}", story(b));
        bed.heals(&["self_restarts"]);
        b.wait_until("ethtool -S ib0 | grep -q ' restarts: 1'", Duration::from_secs(90)).with_context(|| story(b))?;
        connect(a, b)?;
        passes(a, b)?;
        bed.finish()
    }
}

scenario! {
    /// A peer whose driver knows no numbers has something in the reserved field, which means nothing there: its frames are
    /// passed up as they come.
    #[on(races)]
    fn numbers_are_agreed_on(bed) {
        let bed = bed.hosts(2).up()?;
        up(&bed)?;
        let (c, b) = bed.pair()?;
        let before = counter(b, "rc_rx_frames")?;
        let forger = act(c, b, &NAMES[..1], NUMBERS, "")?;
        forger.wait(c.scaled(Duration::from_secs(20)))?.ok().with_context(|| story(b))?;
        let came = format!("[ $(ethtool -S ib0 | sed -n 's/^ *rc_rx_frames: //p') = {} ]", before + 6);
        b.wait_until(&came, Duration::from_secs(10)).with_context(|| story(b))?;
        let sources = table(b, &format!("{}/sources", directory(b, "ib0")?))?;
        let is_known = sources.iter().any(|row| row["gid"] == NAMES[0]);
        ensure!(!is_known && counter(b, "rx_seq_held")? == 0, "{sources:?} {}", story(b));
        bed.finish()
    }
}
