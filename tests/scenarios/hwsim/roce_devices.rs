// SPDX-License-Identifier: GPL-2.0

//! This checkout's driver over HCAs that differ from those that it was made on, or fail.

use super::hca;
use super::roce::{fabric, file, interfaces, live, make, ping, plug, up, write};
use crate::connected::{connect, set_mode, story};
use crate::multicast::exchange;
use crate::order::{counter, set};
use crate::streams::iperf3;
use crate::transfer::transfer;
use anyhow::{Context, Result, ensure};
use lab::bed::{Bed, Host};
use lab::machine::Kernel;
use lab::scenario;
use std::time::{Duration, Instant};

/// Switches the HCA of a host off, with which its `ib0` goes.
pub(super) fn switch_off(host: &Host) -> Result<()> {
    let off = format!("echo 0 >{}", file(host, "power"));
    host.outside()
        .run_for(&off, Duration::from_secs(60))?
        .ok()?;
    host.run("ip link show ib0")?.refused()?;
    Ok(())
}

/// Switches the HCA of a host off and on again, without rules, and gives the host a new `ib0`.
pub(super) fn heal(bed: &Bed, host: &Host) -> Result<()> {
    switch_off(host)?;
    let (power, faults) = (file(host, "power"), file(host, "faults"));
    host.outside()
        .ok(&format!("echo clear >{faults} && echo 1 >{power}"))?;
    plug(bed, true)?;
    host.ib_add("")?;
    host.ib_up()
}

/// Reports of what is left: the driver's own, and RDMA core's, which takes it for granted that objects of the kernel go.
pub(super) const LEFT: &str =
    "^ipoib_rdma: .* not (destroyed|detached)|^WARNING: (.*/)?include/rdma/ib_verbs.h:";

/// The driver's reports of queues that do not let go of what they have.
pub(super) const HELD: &str = ": (send|receive) ring does not drain: |: queue pair does not reset: |: connection does not end: ";

/// RDMA core's reports of all that is still there when the device goes, and of the GIDs that are in use.
pub(super) const STILL_THERE: &str = "^WARNING: (.*/)?drivers/infiniband/core/(restrack.c:.* at rdma_restrack_clean|cache.c:.* at gid_table_release_one)";

/// Waits until a ping passes to a host whose address may have changed, of which nobody is told.
pub(super) fn find(from: &Host, to: &Host) -> Result<()> {
    // Frames that are sent meanwhile find neighbours again.
    from.wait_until("ip neigh flush dev ib0", Duration::from_secs(10))?;
    ping(from, to)
}

scenario! {
    /// Without multicast there is no broadcast, and so no interface: the refusal says so.
    #[on(lockdep, races)]
    fn an_hca_without_multicast_is_refused(bed) {
        let bed = bed.one_machine().up()?;
        make(&bed)?;
        let (a, b) = bed.pair()?;
        write(a, "multicast", "0")?;
        live(&bed)?;
        let text = a.run("modprobe ipoib_rs; ip link add link eth0 name ib0 type ipoib_rs")?.refused()?;
        ensure!(text.contains("does not support multicast"), "{text}");
        let off = format!("echo 0 >{}/live", fabric());
        a.outside().ok(&off)?;
        write(a, "multicast", "1")?;
        live(&bed)?;
        interfaces(&bed, "")?;
        ping(a, b)?;
        bed.finish()
    }
}

scenario! {
    /// Few elements in a request: frames in many pieces arrive whole, by datagrams and by connections.
    #[on(lockdep, races)]
    fn an_hca_with_few_elements(bed) {
        let bed = bed.one_machine().up()?;
        up(&bed, "", |bed| {
            let (a, b) = bed.pair()?;
            write(a, "max_send_sge", "4")?;
            write(b, "max_send_sge", "2")
        })?;
        let (a, b) = bed.pair()?;
        ping(a, b)?;
        for mode in ["datagram", "connected"] {
            if mode == "connected" {
                for host in [a, b] {
                    set_mode(host, mode)?;
                    host.ok("ip link set ib0 mtu 65520")?;
                }
                connect(a, b)?;
            }
            for (from, to) in [(a, b), (b, a)] {
                from.ok(&format!("ping -q -c 3 -i 0.05 -W 5 -s 60000 {}", to.ip4()))?;
                transfer(from, to, &to.ip4(), 16)?;
            }
        }
        bed.finish()
    }
}

scenario! {
    /// Completions without IB_WC_GRH are those of packets that have such a header, as all of RoCE's do.
    #[on(lockdep, races)]
    fn completions_do_not_say_that_there_is_a_header(bed) {
        let bed = bed.one_machine().up()?;
        up(&bed, "", |bed| {
            bed.hosts.iter().try_for_each(|host| write(host, "faults", "no_grh_flag"))
        })?;
        let (a, b) = bed.pair()?;
        ping(a, b)?;
        exchange(&bed, "239.1.2.3", "64")?;
        transfer(a, b, &b.ip6(), 4)?;
        bed.finish()
    }
}

const SERVER: &str = include_str!("../../guest/hwsim/roce_devices/server.py");
const WRONG: &str = include_str!("../../guest/hwsim/roce_devices/wrong.py");

/// Datagrams of UDP that a host has dropped for their checksum.
fn wrong_checksums(host: &Host) -> Result<u32> {
    let text = host.ok("nstat -asz UdpInCsumErrors | grep UdpInCsumErrors")?;
    let count = text.split_whitespace().nth(1).context("no counter")?;
    Ok(count.parse()?)
}

/// Sends ten wrong checksums to the second host, whose device says that they are right. How many its stack has found,
/// and what became of the socket that they were for.
pub(super) fn wrong_checksums_found(bed: &Bed) -> Result<(u32, String)> {
    let (a, b) = bed.pair()?;
    let server = b.spawn_python(SERVER, &[])?;
    server.wait_for("ready", b.scaled(Duration::from_secs(10)))?;
    let before = wrong_checksums(b)?;
    a.python(WRONG, &[&b.ip4()])?.ok()?;
    ping(a, b)?;
    // It has ended if it was sent one.
    Ok((wrong_checksums(b)? - before, server.end()?.describe()))
}

/// Has each of ten wrong checksums found by the stack, though the device of the second host says that they are right.
fn checksums_are_verified(bed: &Bed) -> Result<()> {
    let (a, b) = bed.pair()?;
    ping(a, b)?;
    b.ok("ethtool -k ib0 | grep -q 'rx-checksumming: off'")?;
    let (dropped, story) = wrong_checksums_found(bed)?;
    ensure!(dropped == 10, "{dropped} dropped, {story}");
    Ok(())
}

scenario! {
    /// A device may say of any frame that its checksums are right: without the capability that means nothing.
    #[on(lockdep, races)]
    fn checksums_that_nobody_has_checked(bed) {
        let bed = bed.one_machine().up()?;
        up(&bed, "", |bed| write(bed.pair()?.1, "faults", "csum_flag"))?;
        checksums_are_verified(&bed)?;
        bed.finish()
    }
}

scenario! {
    /// With the capability, a device with an Ethernet port may mean the checksums of the packet around the frame.
    #[on(lockdep, races)]
    fn checksums_of_the_packet_around(bed) {
        let bed = bed.one_machine().up()?;
        up(&bed, "", |bed| {
            let (_, b) = bed.pair()?;
            write(b, "checksum", "1")?;
            write(b, "faults", "csum_flag")
        })?;
        checksums_are_verified(&bed)?;
        bed.finish()
    }
}

scenario! {
    /// A device that has failed for good takes nobody with it: interfaces go down, are deleted, and come again with it.
    #[on(lockdep, races)]
    fn a_device_fails_for_good(bed) {
        let bed = bed.one_machine().lifetime(Duration::from_secs(120)).up()?;
        up(&bed, "mode connected", |_| Ok(()))?;
        let (a, b) = bed.pair()?;
        connect(a, b)?;
        let ends = ["sleep 1", "ip link set ib0 down", "ip link del ib0", "ip link set ib0 mtu 2000"];
        for end in ends {
            let flood = a.spawn(&format!("ping -f -q {}", b.ip4()))?;
            // The driver reports its rings, unless the interface is deleted first.
            b.tolerating(HELD, || {
                b.outside().ok(&format!("echo device_fatal >{}", file(b, "event")))?;
                b.run_for(end, Duration::from_secs(30))?;
                flood.stop()?;
                heal(&bed, b)
            })?;
            ping(a, b)?;
        }
        bed.may_heal(&["self_restarts"], "the interface asks for a restart that cannot work");
        bed.finish()
    }
}

scenario! {
    /// The name of an RDMA device changes while it is asked for, and `ip -d link` has the new one. `ethtool -i` tells
    /// what the device sits on. The interface does not: by that, `mlx4_ib` would take it for the port's Ethernet device.
    #[on(lockdep, races)]
    fn an_hca_is_renamed_under_ip(bed) {
        let bed = bed.one_machine().up()?;
        up(&bed, "", |_| Ok(()))?;
        let (a, b) = bed.pair()?;
        let asking = a.repeat("ip -d link show ib0 >/dev/null || exit 1")?;
        let mut name = hca(a);
        for new in ["fabric-of-a", "x", "a-longer-name-than-before", &hca(a)] {
            a.outside().ok(&format!("rdma dev set {name} name {new}"))?;
            a.ok(&format!("ip -d link show ib0 | grep -q 'device {new} port 1 '"))?;
            let parent = a.ok(&format!("basename $(readlink /sys/class/infiniband/{new}/device)"))?;
            a.ok(&format!("ethtool -i ib0 | grep -qx 'bus-info: {}'", parent.trim()))?;
            ping(b, a)?;
            name = new.to_owned();
        }
        a.ok("! test -e /sys/class/net/ib0/device")?;
        asking.stop().context("a question went unanswered")?;
        bed.finish()
    }
}

scenario! {
    /// Objects that cannot be destroyed are left: deleting an interface takes no time, and the next
    /// one works. RDMA core warns of some, and of all that are still there when the device goes.
    #[on(lockdep, races)]
    fn objects_that_cannot_be_destroyed(bed) {
        let bed = bed.one_machine().lifetime(Duration::from_secs(120)).up()?;
        up(&bed, "", |_| Ok(()))?;
        let (a, b) = bed.pair()?;
        for (mode, verb) in [
            ("datagram", "destroy_cq"),
            ("datagram", "destroy_qp"),
            ("datagram", "destroy_ah"),
            ("datagram", "dealloc_pd"),
            ("datagram", "detach_mcast"),
            ("connected", "destroy_qp"),
            ("connected", "destroy_srq"),
        ] {
            if mode == "connected" {
                set_mode(a, mode)?;
                set_mode(b, mode)?;
                connect(a, b)?;
            }
            find(a, b)?;
            let flood = a.spawn(&format!("ping -f -q {}", b.ip4()))?;
            write(b, "faults", &format!("clear\\n{verb} EBUSY at 1"))?;
            b.expecting(&[LEFT], || {
                b.run_for("ip link del ib0", Duration::from_secs(20))?.ok()?;
                let rule = format!("grep -q '^{verb} .*struck 1' {}", file(b, "faults"));
                b.outside().wait_until(&rule, Duration::from_secs(20))
            })?;
            flood.stop()?;
            ensure!(left(b)?, "{verb}: {}", resources(b)?);
            b.ib_add("")?;
            b.ib_up()?;
            find(a, b)?;
            b.expecting(&[STILL_THERE], || heal(&bed, b))?;
        }
        bed.finish()
    }
}

scenario! {
    /// Queue pairs that cannot be reset are destroyed: the interface goes down, comes up and is deleted under traffic,
    /// and nothing waits for what they have.
    #[on(lockdep, races)]
    fn queue_pairs_that_cannot_be_reset(bed) {
        let bed = bed.one_machine().lifetime(Duration::from_secs(120)).up()?;
        up(&bed, "mode connected", |_| Ok(()))?;
        let (a, b) = bed.pair()?;
        for mode in ["connected", "datagram"] {
            set_mode(a, mode)?;
            find(a, b)?;
            let flood = a.spawn(&format!("ping -f -q -s 4000 {}", b.ip4()))?;
            write(b, "faults", "modify_qp:reset EIO from 1")?;
            for act in ["ip link set ib0 down && ip link set ib0 up", "ip link del ib0"] {
                b.expecting(&[HELD], || b.run_for(act, Duration::from_secs(20))?.ok())?;
            }
            flood.stop()?;
            write(b, "faults", "clear")?;
            b.ib_add("mode connected")?;
            b.ib_up()?;
            find(a, b)?;
        }
        bed.finish()
    }
}

scenario! {
    /// Where a queue pair leaves the state Reset once only, an interface comes up as often as anywhere.
    #[on(lockdep, races)]
    fn queue_pairs_that_leave_reset_once(bed) {
        let bed = bed.one_machine().up()?;
        up(&bed, "", |bed| write(bed.pair()?.1, "faults", "reset_once"))?;
        let (a, b) = bed.pair()?;
        for _ in 0..3 {
            find(a, b)?;
            b.ok("ip link set ib0 down && ip link set ib0 up")?;
        }
        find(a, b)?;
        bed.finish()
    }
}

scenario! {
    /// Where connections have receive queues of their own and completions do not come, what was to be sent comes back
    /// when its queue pair is destroyed. All queues together are waited for as long as one, two seconds.
    #[on(lockdep, races)]
    fn queue_pairs_of_their_own_buffers_that_cannot_be_reset(bed) {
        let bed = bed.one_machine().lifetime(Duration::from_secs(120)).up()?;
        up(&bed, "mode connected", |bed| write(bed.pair()?.1, "max_srq", "0"))?;
        let (a, b) = bed.pair()?;
        connect(a, b)?;
        write(b, "faults", "hold\\nmodify_qp:reset EIO from 1")?;
        let flood = b.spawn(&format!("ping -q -i 0.01 -s 4000 {}", a.ip4()))?;
        std::thread::sleep(b.scaled(Duration::from_millis(300)));
        let begun = Instant::now();
        b.expecting(&[HELD], || b.run_for("ip link set ib0 down", Duration::from_secs(20))?.ok())?;
        let took = begun.elapsed();
        ensure!(took < Duration::from_secs(3) + b.scaled(Duration::from_millis(500)), "{took:?}");
        flood.stop()?;
        // The connection manager waits for its messages, and the interface does not wait for it.
        let begun = Instant::now();
        b.expecting(&[HELD], || b.run_for("ip link set ib0 up && ip link set ib0 down", Duration::from_secs(20))?.ok())?;
        let took = begun.elapsed();
        ensure!(took < Duration::from_secs(6) + b.scaled(Duration::from_millis(500)), "{took:?}");
        write(b, "faults", "clear")?;
        b.run_for("ip link del ib0", Duration::from_secs(20))?.ok()?;
        let log = b.outside().ok("dmesg")?;
        ensure!(!log.contains("frames left to queue pairs"), "{log}");
        b.ib_add("mode connected")?;
        b.ib_up()?;
        find(a, b)?;
        bed.finish()
    }
}

scenario! {
    /// The device refuses a request in the middle of a chain: that ends its connection, and the interface and all
    /// others go on.
    #[on(lockdep, races)]
    fn a_chain_is_refused_in_part(bed) {
        let bed = bed.one_machine().lifetime(Duration::from_secs(120)).up()?;
        up(&bed, "mode connected", |_| Ok(()))?;
        let (a, b) = bed.pair()?;
        // Segments of one large frame go in chains.
        for host in [a, b] {
            set(host, "large_frames", 0)?;
        }
        for n in [3, 10, 25, 40] {
            connect(a, b)?;
            write(a, "faults", &format!("clear\\npost_send EIO at {n}"))?;
            iperf3(&bed, &b.ip4(), "-P 2")?;
            a.outside().ok(&format!("grep -q 'struck 1' {}", file(a, "faults")))?;
        }
        bed.heals(&["tx_drop_post_failed"]);
        ensure!(counter(a, "tx_drop_post_failed")? > 0 && counter(a, "rc_failed")? > 0, "{}", story(a));
        ensure!(counter(a, "restarts")? == 0, "{}", story(a));
        // The rest of the refused chains on the ring is swept within two seconds.
        connect(a, b)?;
        let one = format!("[ $(rdma resource show qp link {}/1 | grep 'type RC' | grep -c 'ipoib_rs') -le 2 ]", hca(a));
        a.wait_until(&one, Duration::from_secs(20))?;
        transfer(a, b, &b.ip4(), 4)?;
        bed.finish()
    }
}

/// The number of a queue pair of the driver's.
fn queue_pair(host: &Host, kind: &str) -> Result<String> {
    let text = host.ok(&format!(
        "rdma resource show qp link {}/1 | sed -n '/type {kind} .*ipoib_rs/s/.* lqpn \\([0-9]*\\) .*/\\1/p' | head -n 1",
        hca(host)
    ))?;
    ensure!(!text.trim().is_empty(), "no queue pair of type {kind}");
    Ok(text.trim().to_owned())
}

scenario! {
    /// Queues that fail are made anew, and what they were made of is gone: those of datagrams by taking the interface
    /// down and up, which counts as a restart, a connection's queue pair with the connection.
    #[on(lockdep, races)]
    fn queues_that_fail_are_made_anew(bed) {
        let bed = bed.one_machine().lifetime(Duration::from_secs(120)).up()?;
        up(&bed, "mode connected", |_| Ok(()))?;
        let (a, b) = bed.pair()?;
        connect(a, b)?;
        let before = objects(b)?;
        bed.heals(&["self_restarts"]);
        for (event, kind, watched) in [
            ("cq_error", "UD", "restarts"),
            ("qp_fatal", "UD", "restarts"),
            ("cq_error", "RC", "restarts"),
            ("qp_fatal", "RC", "rc_connected"),
            ("srq_error", "RC", "restarts"),
        ] {
            let count = counter(b, watched)?;
            let flood = a.spawn(&format!("ping -f -q {}", b.ip4()))?;
            let number = queue_pair(b, kind)?;
            write(b, "event", &format!("{event} {number}"))?;
            let more = format!("[ $(ethtool -S ib0 | sed -n 's/^ *{watched}: //p') -gt {count} ]");
            b.wait_until(&more, Duration::from_secs(20)).with_context(|| format!("{event} {kind}: {}", story(b)))?;
            flood.stop()?;
            find(a, b)?;
            connect(a, b)?;
            b.until(Duration::from_secs(20), || Ok(objects(b)? == before))
                .with_context(|| format!("{event} {kind}: {:?} was {before}", objects(b)))?;
        }
        transfer(a, b, &b.ip4(), 4)?;
        bed.finish()
    }
}

const RTNL: &str = include_str!("../../guest/hwsim/roce_devices/rtnl.sh");

scenario! {
    /// On an HCA that completes nothing, seven interfaces restart, each of which waits for two seconds. RTNL is free in
    /// between, and one that is deleted meanwhile is gone at once.
    fn rtnl_is_free_between_interfaces(bed) {
        let bed = bed.one_machine().lifetime(Duration::from_secs(120)).up()?;
        up(&bed, "", |_| Ok(()))?;
        let (a, b) = bed.pair()?;
        ping(a, b)?;
        for number in 1..7 {
            b.ok(&format!("ip link add link eth0 name ib{number} type ipoib_rs && ip link set ib{number} up"))?;
        }
        let ready = "[ $(ip -o link show up | grep -c ': ib.*LOWER_UP') = 7 ]";
        b.wait_until(ready, Duration::from_secs(20))?;
        write(b, "faults", "hold")?;
        bed.heals(&["tx_timeouts", "self_restarts"]);
        let longest = b.expecting(&[": NETDEV WATCHDOG: "], || b.sh_for(RTNL, &["ib6"], Duration::from_secs(60))?.ok())?;
        let longest = Duration::from_millis(longest.trim().parse()?);
        ensure!(longest > Duration::from_secs(1) && longest < b.scaled(Duration::from_secs(8)), "{longest:?}");
        let log = b.outside().ok("dmesg")?;
        ensure!(!log.contains("to become free"), "{log}");
        write(b, "faults", "clear")?;
        find(a, b)?;
        bed.finish()
    }
}

scenario! {
    /// On an HCA that completes nothing, an interface and its six children are deleted, and then as many interfaces go with the
    /// module. All of them together are waited for as long as one.
    fn many_interfaces_leave_a_stuck_device(bed) {
        let bed = bed.one_machine().lifetime(Duration::from_secs(120)).up()?;
        up(&bed, "", |_| Ok(()))?;
        let (a, b) = bed.pair()?;
        ping(a, b)?;
        let ready = |b: &Host| {
            let all = "[ $(ip -o link show up | grep -c ': ib.*LOWER_UP') = 7 ]";
            b.wait_until(all, Duration::from_secs(20))
        };
        let add = |link: &str| -> Result<()> {
            for number in 1..7 {
                b.ok(&format!("ip link add link {link} name ib{number} type ipoib_rs && ip link set ib{number} up"))?;
            }
            ready(b)
        };
        // Each has sent something that never completes.
        let timed = |host: &Host, command: &str| -> Result<()> {
            write(b, "faults", "hold")?;
            b.ok("for n in $(seq 0 6); do
                      ip addr add 10.9.$n.1/24 dev ib$n
                      ping -q -c 1 -W 0.1 10.9.$n.2 >/dev/null || true
                  done")?;
            let begin = Instant::now();
            host.run_for(command, Duration::from_secs(60))?.ok()?;
            let took = begin.elapsed();
            ensure!(took > Duration::from_secs(1) && took < Duration::from_secs(8), "{command}: {took:?}");
            write(b, "faults", "clear")
        };
        add("ib0")?;
        timed(b, "ip link del ib0")?;
        b.ok("ip link add link eth0 name ib0 type ipoib_rs && ip link set ib0 up")?;
        add("eth0")?;
        // Those before have shown that the device is slow; this is forgotten soon.
        b.ok("sleep 2.5")?;
        timed(&b.outside(), "modprobe -r ipoib_rs")?;
        let log = b.outside().ok("dmesg")?;
        ensure!(!log.contains("to become free"), "{log}");
        bed.finish()
    }
}

/// Counts of a host's RDMA objects.
pub(super) fn objects(host: &Host) -> Result<String> {
    host.ok(&format!("rdma resource show {}", hca(host)))
}

scenario! {
    /// The speed of an interface is that of its port, which is read again when that may have changed.
    #[on(lockdep, races)]
    fn the_speed_of_a_port_is_read_again(bed) {
        let bed = bed.one_machine().up()?;
        up(&bed, "", |bed| {
            bed.pair()?.0.outside().ok(&format!("echo ddr >{}/cables/c1/speed", fabric()))?;
            Ok(())
        })?;
        let (a, b) = bed.pair()?;
        ping(a, b)?;
        let shows = |mbps: u32| format!("ethtool ib0 | grep -q 'Speed: {mbps}Mb/s'");
        a.ok(&shows(20000))?;
        for (rule, before, now) in [("one_lane", 20000, 5000), ("clear", 5000, 20000)] {
            write(a, "faults", rule)?;
            a.ok(&shows(before))?;
            write(a, "event", "speed_change")?;
            a.wait_until(&shows(now), Duration::from_secs(10))?;
        }
        ensure!(a.ok("cat /sys/class/net/ib0/speed")?.trim() == "20000");
        ping(a, b)?;
        // Without a carrier there is none.
        a.ok("ip link set ib0 down")?;
        let text = a.ok("ethtool ib0")?;
        ensure!(text.contains("Speed: Unknown!") && text.contains("Duplex: Unknown!"), "{text}");
        bed.finish()
    }
}

scenario! {
    /// The sample of rust/rdma sends a datagram from each port to itself, and leaves nothing behind.
    fn a_sample_sends_to_itself(bed) {
        if bed.kernel() == Kernel::Stock {
            // Its modules are those of the packages.
            return Ok(());
        }
        let bed = bed.one_machine().up()?;
        up(&bed, "", |_| Ok(()))?;
        let (a, b) = bed.pair()?;
        let before = objects(a)?;
        for _ in 0..3 {
            a.outside().ok("dmesg -C; modprobe ud_loopback && [ ! -e /sys/module/ud_loopback/parameters ] && modprobe -r ud_loopback")?;
            let log = a.outside().ok("dmesg")?;
            ensure!(log.matches("the datagram came back").count() == 2, "{log}");
        }
        ensure!(objects(a)? == before, "{} was {before}", objects(a)?);
        ping(a, b)?;
        bed.finish()
    }
}

/// Objects of RDMA core that a host's HCA has, with the module that has made each.
pub(super) fn resources(host: &Host) -> Result<String> {
    host.ok(&format!(
        "for kind in pd cq qp srq; do rdma resource show $kind; done | sed -n '/ {}[/ ]/p'",
        hca(host)
    ))
}

/// Returns true if some of them are this checkout's driver's, by the name that RDMA core was told.
pub(super) fn left(host: &Host) -> Result<bool> {
    Ok(resources(host)?.contains("[ipoib_rs]"))
}

scenario! {
    /// A queue pair that is left, and its completion queues, still have events: nobody hears of them who is gone.
    #[on(lockdep, races)]
    fn what_is_left_calls_nobody(bed) {
        let bed = bed.one_machine().up()?;
        up(&bed, "", |_| Ok(()))?;
        let (a, b) = bed.pair()?;
        let number = queue_pair(b, "UD")?;
        write(b, "faults", "destroy_qp EBUSY at 1")?;
        b.expecting(&[LEFT], || {
            b.run_for("ip link del ib0", Duration::from_secs(20))?.ok()?;
            let struck = format!("grep -q '^destroy_qp .*struck 1' {}", file(b, "faults"));
            b.outside().wait_until(&struck, Duration::from_secs(20))
        })?;
        ensure!(queue_pair(b, "UD")? == number, "{}", resources(b)?);
        // What had the events is freed by now.
        std::thread::sleep(Duration::from_millis(200));
        for event in ["cq_error", "qp_fatal"] {
            write(b, "event", &format!("{event} {number}"))?;
        }
        b.expecting(&[STILL_THERE], || heal(&bed, b))?;
        find(a, b)?;
        bed.finish()
    }
}

scenario! {
    /// Leftovers of an interface keep the module, to which RDMA core and the device still refer.
    #[on(lockdep, races)]
    fn objects_that_are_left_keep_the_module(bed) {
        let bed = bed.one_machine().lifetime(Duration::from_secs(120)).up()?;
        up(&bed, "", |_| Ok(()))?;
        let (a, b) = bed.pair()?;
        write(b, "faults", "dealloc_pd EBUSY at 1")?;
        b.expecting(&[LEFT], || {
            b.ok("ip link del ib0")?;
            b.outside().wait_until(&format!("grep -q '^dealloc_pd .*struck 1' {}", file(b, "faults")), Duration::from_secs(20))
        })?;
        b.outside().run("modprobe -r ipoib_rs")?.refused()?;
        ensure!(left(b)?, "{}", resources(b)?);
        b.expecting(&[STILL_THERE], || heal(&bed, b))?;
        find(a, b)?;
        bed.finish()
    }
}

scenario! {
    /// Objects that cannot be destroyed while the module is unloaded stay without it: RDMA core shows whose they were.
    #[on(lockdep, races)]
    fn objects_that_outlive_the_module(bed) {
        let bed = bed.one_machine().lifetime(Duration::from_secs(120)).up()?;
        up(&bed, "mode connected", |_| Ok(()))?;
        let (a, b) = bed.pair()?;
        for verb in ["destroy_qp", "destroy_srq", "destroy_cq", "dealloc_pd"] {
            find(a, b)?;
            connect(a, b)?;
            write(b, "faults", &format!("clear\\n{verb} EBUSY at 1"))?;
            b.expecting(&[LEFT], || b.outside().run_for("modprobe -r ipoib_rs", Duration::from_secs(60))?.ok())?;
            ensure!(left(b)?, "{verb}: {}", resources(b)?);
            b.expecting(&[STILL_THERE], || heal(&bed, b))?;
            b.ok("ip link del ib0")?;
            interfaces(&bed, "mode connected")?;
        }
        bed.finish()
    }
}

scenario! {
    /// A queue pair is changed by one at a time, whatever a change costs: connections come and go while interfaces
    /// go down and up, and a send queue that has failed is recovered. The device warns of any two.
    #[on(lockdep, races, parallel)]
    fn queue_pairs_are_changed_one_at_a_time(bed) {
        let bed = bed.one_machine().cpus(2).lifetime(Duration::from_secs(240)).up()?;
        up(&bed, "mode connected", |_| Ok(()))?;
        let (a, b) = bed.pair()?;
        connect(a, b)?;
        for host in [a, b] {
            write(host, "faults", "modify_time 40\\nsend LOC_QP_OP_ERR at 30")?;
        }
        bed.heals(&["qp_recoveries"]);
        let flood = a.spawn(&format!("ping -q -i 0.02 -s 4000 {}", b.ip4()))?;
        for host in [a, b] {
            // A connection takes three changes of each queue pair, and the interface goes down at any of them.
            for after in (0..500).step_by(25) {
                let act = format!("ip link set ib0 down && ip link set ib0 up && sleep 0.{after:03}");
                host.run_for(&act, Duration::from_secs(30))?.ok()?;
            }
        }
        flood.stop()?;
        for host in [a, b] {
            write(host, "faults", "clear")?;
        }
        find(a, b)?;
        connect(a, b)?;
        transfer(a, b, &b.ip4(), 1)?;
        bed.finish()
    }
}
