// SPDX-License-Identifier: GPL-2.0

//! Devices that fail: verbs, completions and whole HCAs, under the kernel's own `ib_ipoib`.

use super::fabric::CONFIGFS;
use super::{EXCLUSIVE, active, hca, ipoib_up};
use crate::quiet::pin;
use crate::streams::iperf3;
use anyhow::{Context, Result, ensure};
use lab::bed::{Bed, Host};
use lab::scenario;
use std::time::Duration;

/// A file of the HCA of a host.
fn file(host: &Host, name: &str) -> String {
    format!("{CONFIGFS}/star/hcas/h{}/{name}", host.number())
}

/// The cable of that HCA: `plugged` is in it.
fn cable(host: &Host) -> String {
    format!("{CONFIGFS}/star/cables/c{}", host.number())
}

/// Writes to a file of the HCA of a host.
fn write(host: &Host, name: &str, text: &str) -> Result<()> {
    // A text may be of several lines, and a file takes it in one piece.
    host.outside()
        .ok(&format!("printf '{text}' >{}", file(host, name)))?;
    Ok(())
}

/// Reads a file of the HCA of a host.
fn read(host: &Host, name: &str) -> Result<String> {
    host.outside().ok(&format!("cat {}", file(host, name)))
}

/// How often the rule for an item has struck.
fn struck(host: &Host, item: &str) -> Result<u32> {
    struck_in(&read(host, "faults")?, item)
}

/// How often that has which is among these rules, as `faults` shows them.
pub(super) fn struck_in(rules: &str, item: &str) -> Result<u32> {
    let rule = rules
        .lines()
        .find(|line| line.split(' ').next() == Some(item));
    let count = rule
        .and_then(|rule| rule.rsplit(' ').next())
        .with_context(|| format!("no {item} in {rules}"))?;
    Ok(count.parse()?)
}

fn ping(from: &Host, to: &Host) -> Result<()> {
    from.wait_until(
        &format!("ping -q -c 1 -W 1 {}", to.ip4()),
        Duration::from_secs(30),
    )
}

fn no_ping(from: &Host, to: &Host) -> Result<()> {
    from.run(&format!("ping -q -c 3 -i 0.2 -W 2 {}", to.ip4()))?
        .refused()?;
    Ok(())
}

/// Switches the HCA of a host off and on, without rules, and gives the host its interface again.
fn heal(host: &Host) -> Result<()> {
    let outside = host.outside();
    let netns = host.netns().context("a host without a namespace")?;
    outside
        .run_for(
            &format!("echo 0 >{}", file(host, "power")),
            Duration::from_secs(60),
        )?
        .ok()?;
    outside.ok(&format!(
        "set -e
         echo clear >{}
         echo 1 >{}
         echo 1 >{}/plugged",
        file(host, "faults"),
        file(host, "power"),
        cable(host)
    ))?;
    // Its number is free again, but may not be the lowest one in that network namespace.
    let (name, ours) = (read(host, "device")?, hca(host));
    let name = name.trim();
    outside.ok(&format!("rdma dev set {name} netns {netns}"))?;
    if name != ours {
        host.ok(&format!("rdma dev set {name} name {ours}"))?;
    }
    active(host, &hca(host))?;
    host.ib_up()
}

/// Two hosts that ping each other.
fn up(bed: &Bed) -> Result<super::Manager> {
    let manager = ipoib_up(bed, "star 2")?;
    let (a, b) = bed.pair()?;
    ping(a, b)?;
    Ok(manager)
}

const SWEEP: &str = include_str!("../../guest/hwsim/device_failures/sweep.py");

/// Verbs that a bring-up calls at least once, and an end does not need.
const BRING_UP: &str = "query_device query_port query_pkey query_gid alloc_pd create_cq create_srq
    post_srq_recv create_qp modify_qp modify_qp:init modify_qp:rtr modify_qp:rts post_recv req_notify_cq poll_cq post_send create_ah";

scenario! {
    /// An HCA is switched on, and its interface brought up, with each verb failing at its first call, at its second, and
    /// some from the first one on: nothing hangs, nothing warns, and without rules all works again.
    #[on(lockdep)]
    fn each_verb_fails(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).lifetime(Duration::from_secs(180)).up()?;
        let manager = up(&bed)?;
        let (a, b) = bed.pair()?;
        let outside = b.outside();
        outside.ok(&format!("echo 0 >{}", file(b, "power")))?;
        let mut rules = Vec::new();
        for verb in BRING_UP.split_whitespace() {
            for when in ["at 1", "at 2"] {
                rules.push(format!("{verb} EIO {when}"));
            }
        }
        for verb in ["alloc_pd", "create_cq", "create_qp", "modify_qp", "post_recv", "query_port"] {
            rules.push(format!("{verb} EIO from 1"));
        }
        // An interface goes by these two; it waits 5 s for its requests if it cannot flush them.
        rules.extend(["modify_qp:error EIO at 1", "modify_qp:reset EIO from 1"].map(str::to_owned));
        let (dir, cable) = (file(b, ""), cable(b));
        let mut arguments = vec![dir.trim_end_matches('/'), &cable];
        arguments.extend(rules.iter().map(|rule| &**rule));
        let task = outside.spawn_python(SWEEP, &arguments)?;
        let text = task.wait(outside.scaled(Duration::from_secs(90)))?.ok()?;
        ensure!(text.lines().count() == rules.len(), "{text}");
        for verb in BRING_UP.split_whitespace() {
            let rule = format!("{verb} EIO at 1 #");
            let line = text.lines().find(|line| line.starts_with(&rule));
            ensure!(line.is_some_and(|line| line.contains("struck 1 ")), "{verb} has not failed: {text}");
        }
        heal(b)?;
        ping(a, b)?;
        manager.kill()?;
        bed.finish()
    }
}

scenario! {
    /// Rules are taken, counted and shown while the HCA is on, and stay when it is off. What is none is refused.
    #[on(lockdep)]
    fn rules_are_shown(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = up(&bed)?;
        let (a, b) = bed.pair()?;
        ensure!(read(b, "faults")?.trim().is_empty() && read(b, "event")?.trim().is_empty());
        write(b, "faults", "query_port EBUSY from 2 # comment\\n\\ncsum_flag\\n")?;
        let state = format!("cat /sys/class/infiniband/{}/ports/1/state", hca(b));
        b.ok(&state)?;
        b.run(&state)?.refused()?;
        ensure!(struck(b, "query_port")? >= 1);
        let rules = read(b, "faults")?;
        ensure!(rules.starts_with("query_port EBUSY from 2 # calls ") && rules.ends_with("\ncsum_flag\n"), "{rules}");
        for (name, text) in [
            ("faults", "query_port EBUSY"),
            ("faults", "clear\\nnothing"),
            ("event", "qp_fatal"),
            ("event", "port_active 2"),
            ("event", "qp_fatal 0xabcdef"),
        ] {
            b.outside().run(&format!("printf '{text}' >{}", file(b, name)))?.refused()?;
        }
        ensure!(read(b, "faults")?.ends_with("\ncsum_flag\n"));
        write(b, "faults", "clear query_port")?;
        b.ok(&state)?;
        ping(a, b)?;
        write(b, "power", "0")?;
        write(b, "power", "1")?;
        ensure!(read(b, "faults")? == "csum_flag\n");
        write(b, "power", "0")?;
        ensure!(read(b, "faults")? == "csum_flag\n");
        b.outside().run(&format!("echo port_active >{}", file(b, "event")))?.refused()?;
        manager.kill()?;
        bed.finish()
    }
}

scenario! {
    /// An HCA fails for good under traffic: its verbs do, its peer hears nothing, and a power cycle heals it.
    #[on(lockdep)]
    fn a_fatal_error_under_traffic(bed) {
        let bed = bed.leaks().one_machine().append(EXCLUSIVE).up()?;
        let manager = up(&bed)?;
        let (a, b) = bed.pair()?;
        for _ in 0..2 {
            let pings = [
                a.spawn(&format!("ping -f -q {}", b.ip4()))?,
                b.spawn(&format!("ping -f -q {}", a.ip4()))?,
            ];
            std::thread::sleep(a.scaled(Duration::from_millis(300)));
            write(b, "event", "device_fatal")?;
            ensure!(read(b, "event")?.trim() == "device_fatal");
            b.run(&format!("cat /sys/class/infiniband/{}/ports/1/state", hca(b)))?.refused()?;
            no_ping(a, b)?;
            for ping in pings {
                ping.stop()?;
            }
            heal(b)?;
            ensure!(read(b, "event")?.trim().is_empty());
            ping(a, b)?;
            ping(b, a)?;
        }
        manager.kill()?;
        bed.finish()
    }
}

scenario! {
    /// Completions that are held back come when they are let go, none is lost, and late ones are late. An HCA with such
    /// ones can be switched off under traffic.
    #[on(lockdep)]
    fn completions_stuck_and_late(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = up(&bed)?;
        let (a, b) = bed.pair()?;
        write(b, "faults", "hold")?;
        let waiting = a.spawn(&format!("ping -q -c 6 -i 0.05 -W 30 {}", b.ip4()))?;
        no_ping(a, b)?;
        write(b, "faults", "clear hold")?;
        let all = waiting.wait(a.scaled(Duration::from_secs(40)))?.ok()?;
        ensure!(all.contains(" 0% packet loss"), "{all}");

        write(b, "faults", "delay 60")?;
        let late = a.ok(&format!("ping -q -c 5 -i 0.1 -W 10 {}", b.ip4()))?;
        let least: f64 = late
            .rsplit_once("= ")
            .and_then(|(_, times)| times.split('/').next()?.parse().ok())
            .with_context(|| late.clone())?;
        ensure!(least >= 60.0 && late.contains(" 0% packet loss"), "{late}");
        write(b, "faults", "clear")?;
        ping(a, b)?;
        for rule in ["hold", "delay 500"] {
            write(b, "faults", rule)?;
            let pings = [
                a.spawn(&format!("ping -f -q {}", b.ip4()))?,
                b.spawn(&format!("ping -f -q {}", a.ip4()))?,
            ];
            std::thread::sleep(a.scaled(Duration::from_millis(300)));
            heal(b)?;
            for ping in pings {
                ping.stop()?;
            }
            ping(a, b)?;
        }
        manager.kill()?;
        bed.finish()
    }
}

/// Numbers of the queue pairs of a host's connections.
fn connections(host: &Host) -> Result<String> {
    host.ok(&format!(
        "rdma res show qp link {} type RC | sed -n 's/.* lqpn \\([0-9]*\\) .*/\\1/p' | sort",
        hca(host)
    ))
}

scenario! {
    /// Requests that complete in error: a datagram queue pair goes on after one to send, and needs its interface down
    /// and up after one to receive; a connection is made again.
    #[on(lockdep)]
    fn completions_in_error(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = up(&bed)?;
        let (a, b) = bed.pair()?;
        let kernel = a.outside();
        kernel.ok("dmesg -C")?;
        write(a, "faults", "send LOC_QP_OP_ERR at 5")?;
        a.run(&format!("ping -q -c 20 -i 0.02 -W 1 {}", b.ip4()))?;
        ping(a, b)?;
        ensure!(struck(a, "send")? == 1);
        write(a, "faults", "clear\\nreceive LOC_LEN_ERR at 5")?;
        a.run(&format!("ping -q -c 20 -i 0.02 -W 1 {}", b.ip4()))?;
        ensure!(struck(a, "receive")? == 1);
        let log = kernel.ok("dmesg")?;
        for told in ["failed send event (status=2,", "failed recv event (status=1,"] {
            ensure!(log.contains(told), "no {told:?} in {log}");
        }
        a.ok("ip link set ib0 down && ip link set ib0 up")?;
        ping(a, b)?;

        write(a, "faults", "clear")?;
        for host in [a, b] {
            host.ok("echo connected >/sys/class/net/ib0/mode && ip link set ib0 mtu 65520")?;
        }
        let large = format!("ping -q -c 1 -W 1 -s 60000 {}", b.ip4());
        a.wait_until(&large, Duration::from_secs(30))?;
        // All that is sent goes by a connection.
        for host in [a, b] {
            pin(host)?;
        }
        for (host, rule, item) in [
            (a, "send RETRY_EXC_ERR at 5", "send"),
            (b, "receive REM_OP_ERR at 5", "receive"),
        ] {
            let before = connections(host)?;
            ensure!(!before.is_empty(), "no connection");
            write(host, "faults", rule)?;
            a.run(&format!("ping -q -c 20 -i 0.02 -W 1 -s 60000 {}", b.ip4()))?;
            ensure!(struck(host, item)? == 1, "{rule}");
            write(host, "faults", "clear")?;
            a.wait_until(&large, Duration::from_secs(60))?;
            ensure!(connections(host)? != before, "{rule}: still {before}");
        }
        for host in [a, b] {
            host.ok("ip link set ib0 down")?;
        }
        std::thread::sleep(a.scaled(Duration::from_secs(1)));
        manager.kill()?;
        bed.finish()
    }
}

/// Events that change nothing.
const HARMLESS: &str = "port_active lid_change sm_change client_reregister pkey_change gid_change speed_change port_error
    comm_established:all sq_drained:all path_migrated:all path_migration_error:all last_wqe_reached:all
    cq_error:all srq_error:all srq_limit:all port_active";

scenario! {
    /// Events on demand under traffic crash nothing; those that a queue pair does not survive are healed by its
    /// interface, and by a power cycle.
    #[on(lockdep)]
    fn events_on_demand(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = up(&bed)?;
        let (a, b) = bed.pair()?;
        let flood = a.spawn(&format!("ping -f -q {}", b.ip4()))?;
        for _ in 0..3 {
            for event in HARMLESS.split_whitespace() {
                let event = event.replace(':', " ");
                write(b, "event", &event)?;
                let shown = read(b, "event")?;
                ensure!(shown.starts_with(&event), "{shown} is not {event}");
            }
        }
        ping(a, b)?;
        for event in ["qp_fatal", "qp_request_error", "qp_access_error"] {
            let number = b.ok(&format!(
                "rdma res show qp link {} type UD | sed -n 's/.* lqpn \\([0-9]*\\) .*/\\1/p'",
                hca(b)
            ))?;
            write(b, "event", &format!("{event} {}", number.trim()))?;
            no_ping(a, b)?;
            b.ok("ip link set ib0 down && ip link set ib0 up")?;
            ping(a, b)?;
        }
        flood.stop()?;
        write(b, "event", "qp_fatal all")?;
        no_ping(a, b)?;
        heal(b)?;
        ping(a, b)?;
        manager.kill()?;
        bed.finish()
    }
}

const KINDS: &str = include_str!("../../guest/hwsim/device_failures/kinds.py");

/// Kinds of the packets in which a host is asked for its address.
fn asked(from: &Host, to: &Host) -> Result<String> {
    let task = to.spawn_python(KINDS, &[])?;
    task.wait_for("ready", to.scaled(Duration::from_secs(10)))?;
    // Frames that are sent meanwhile find neighbours again.
    from.wait_until("ip neigh flush dev ib0", Duration::from_secs(10))?;
    ping(from, to)?;
    task.wait(to.scaled(Duration::from_secs(20)))?.ok()
}

scenario! {
    /// Quirks of some hardware, as ib_ipoib sees them.
    #[on(lockdep)]
    fn quirks_show(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).lifetime(Duration::from_secs(120)).up()?;
        let manager = up(&bed)?;
        let (a, b) = bed.pair()?;
        // PACKET_BROADCAST is 1, and PACKET_HOST is 0.
        ensure!(asked(a, b)?.contains('1'));
        write(b, "faults", "no_grh_flag")?;
        let kinds = asked(a, b)?;
        ensure!(kinds.contains('0') && !kinds.contains('1'), "{kinds}");

        // A queue pair that has left Reset does not again.
        write(b, "faults", "clear\\nreset_once")?;
        b.ok("ip link set ib0 down")?;
        b.run("ip link set ib0 up")?;
        no_ping(a, b)?;
        heal(b)?;
        ping(a, b)?;

        // Reset fails, and the rest does not need it.
        write(b, "faults", "modify_qp:reset EIO from 1")?;
        b.ok("ip link set ib0 down")?;
        ensure!(struck(b, "modify_qp:reset")? >= 1);
        heal(b)?;
        ping(a, b)?;

        for (rule, seen) in [
            // The special queue pairs are there, of which each wants 256 elements.
            ("send_elements 64", "! ip link show ib0 && ! dmesg | grep 'create ib_mad QP'"),
            (
                "attach_mcast EOPNOTSUPP from 1",
                "ip link show ib0 && ip link set ib0 up && sleep 1 && ! ip -o link show ib0 | grep LOWER_UP",
            ),
        ] {
            write(b, "power", "0")?;
            write(b, "faults", &format!("clear\\n{rule}"))?;
            write(b, "power", "1")?;
            b.outside().ok(&format!("echo 1 >{}/plugged", cable(b)))?;
            b.outside().ok(seen).with_context(|| rule.to_owned())?;
        }
        heal(b)?;
        ping(a, b)?;
        manager.kill()?;
        bed.finish()
    }
}

scenario! {
    /// LAST_WQE_REACHED late, or never: ib_ipoib waits for it when an interface with connections goes down, and
    /// gives up after 5 s.
    #[on(lockdep)]
    fn the_last_request_is_reported_late_or_never(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).lifetime(Duration::from_secs(120)).up()?;
        let manager = up(&bed)?;
        let (a, b) = bed.pair()?;
        for (rule, in_vain) in [("clear", false), ("last_wqe_delay 500", false), ("no_last_wqe", true)] {
            for host in [a, b] {
                host.ok("echo connected >/sys/class/net/ib0/mode && ip link set ib0 mtu 65520 && ip link set ib0 up")?;
            }
            a.wait_until(&format!("ping -q -c 1 -W 1 -s 60000 {}", b.ip4()), Duration::from_secs(60))?;
            write(b, "faults", rule)?;
            b.outside().ok("dmesg -C")?;
            b.run_for("ip link set ib0 down", Duration::from_secs(30))?.ok()?;
            let log = b.outside().ok("dmesg")?;
            ensure!(log.contains("timing out") == in_vain, "{rule}: {log}");
            write(b, "faults", "clear")?;
        }
        manager.kill()?;
        bed.finish()
    }
}

scenario! {
    /// Objects that cannot be destroyed. RDMA core warns of each (`ib_destroy_cq()` and the like, and
    /// `rdma_restrack_clean()` of what is left when the device goes), since it takes it for granted that the kernel's
    /// own go. All else goes on, and so does the next HCA.
    #[on(lockdep)]
    fn what_cannot_be_destroyed_is_left(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).lifetime(Duration::from_secs(120)).up()?;
        let manager = up(&bed)?;
        let (a, b) = bed.pair()?;
        for verb in ["destroy_cq", "destroy_qp", "destroy_srq", "destroy_ah", "dealloc_pd", "detach_mcast"] {
            write(b, "faults", &format!("{verb} EBUSY at 1"))?;
            let flood = a.spawn(&format!("ping -f -q {}", b.ip4()))?;
            b.expecting(&["^WARNING: (.*/)?(include/rdma/ib_verbs.h|drivers/infiniband/core/)"], || {
                b.run("ip link set ib0 down")?;
                b.outside().run_for(&format!("echo 0 >{}", file(b, "power")), Duration::from_secs(60))?.ok()
            })?;
            ensure!(struck(b, verb)? == 1, "{verb}");
            heal(b)?;
            flood.stop()?;
            ping(a, b)?;
        }
        manager.kill()?;
        bed.finish()
    }
}

scenario! {
    /// An RDMA device gets another name under traffic, and another: nobody minds, and configfs has the new one.
    #[on(lockdep)]
    fn a_device_is_renamed_in_use(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = up(&bed)?;
        let (a, b) = bed.pair()?;
        let flood = b.spawn(&format!("ping -f -q {}", a.ip4()))?;
        let mut name = hca(b);
        for new in ["fabric-of-b", "hwsim7", "x", &hca(b)] {
            b.ok(&format!("rdma dev set {name} name {new}"))?;
            ensure!(read(b, "device")?.trim() == new);
            b.ok(&format!(
                "ibstat {new} 1 | grep -q 'State: Active' && rdma res show qp link {new} | grep -q ib_ipoib"
            ))?;
            ping(b, a)?;
            name = new.to_owned();
        }
        iperf3(&bed, &b.ip4(), "")?;
        b.ok(&format!("rdma dev set {name} name goes-away"))?;
        flood.stop()?;
        heal(b)?;
        ping(a, b)?;
        manager.kill()?;
        bed.finish()
    }
}
