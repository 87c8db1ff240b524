// SPDX-License-Identifier: GPL-2.0

//! Work that an HCA does for datagrams: checksums, and the segments of what TCP sends.

use super::super::EXCLUSIVE;
use super::super::caps::{features, sent, wrong_checksums};
use super::{CONFIGFS, Driver, Kind, PARALLEL, up_made, up_with};
use crate::connected::mtu::{UDP_RECEIVER, UDP_SEGMENTS};
use crate::ipoibctl::ask;
use crate::order::counter;
use crate::streams::iperf3;
use crate::transfer::{RECEIVER, Transfer, behind, transfer};
use anyhow::{Context, Result, ensure};
use lab::bed::{Bed, Host};
use lab::scenario;
use lab::task::Task;
use serde_json::Value;
use std::time::Duration;

const BOTH: &[(&str, &str)] = &[("checksum", "1"), ("lso", "65536")];
const OURS: Kind = (Driver::Ours, "datagram");
const THEIRS: Kind = (Driver::C, "datagram");

/// Has the device do for IPv6 what it does for IPv4, or no more.
fn switch_v6(host: &Host, on: bool) -> Result<()> {
    let on = if on { "on" } else { "off" };
    host.ok(&format!(
        "ethtool -K ib0 tx-checksum-ipv6 {on} tx-tcp6-segmentation {on}"
    ))?;
    Ok(())
}

/// Returns true if a feature of `ib0` is on.
fn is_on(host: &Host, feature: &str) -> Result<bool> {
    let text = host.ok(&format!("ethtool -k ib0 | grep '^[[:space:]]*{feature}:'"))?;
    Ok(text.contains(": on"))
}

/// Finding of doctor about segments that carry no numbers.
fn unordered(host: &Host) -> Result<Option<Value>> {
    let (report, _) = ask(host, "doctor")?;
    let found = report["findings"].as_array().context("no findings")?;
    let found = found
        .iter()
        .find(|finding| finding["cause"] == "lso-unordered");
    Ok(found.cloned())
}

scenario! {
    /// On a fabric that reorders, nothing puts in order what an HCA segments; doctor says so once there is any, and its
    /// command has the segments numbered.
    fn doctor_knows_of_unordered_segments(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = up_made(&bed, "", &[OURS, OURS], |outside| {
            outside.ok("modprobe ib_hwsim && mount -t configfs configfs /sys/kernel/config")?;
            outside.ok(PARALLEL)?;
            outside.ok(&format!(
                "cd {CONFIGFS}/twin && echo 0 >live
                 for hca in h1 h2; do echo 1 >hcas/$hca/checksum; echo 65536 >hcas/$hca/lso; done
                 echo 1 >live"
            ))?;
            Ok(())
        })?;
        let (a, b) = bed.pair()?;
        a.ok(&format!("ping -q -c 3 -i 0.1 -W 10 {}", b.ip4()))?;
        transfer(a, b, &b.ip4(), 1)?;
        ensure!(counter(a, "tx_large")? > 0, "{}", a.ok("ethtool -k ib0")?);
        ensure!(unordered(a)?.is_none(), "the fabric reorders nothing yet");
        a.outside().ok(&format!(
            "cd {CONFIGFS}/twin && echo 300 >cables/slow/delay && echo packet >switches/s1/adaptive && echo packet >switches/s2/adaptive"
        ))?;
        let numbered = counter(b, "rx_seq_in_order")?;
        transfer(a, b, &b.ip4(), 8)?;
        let unnumbered = counter(b, "rx_seq_in_order")? - numbered;
        let found = unordered(a)?.context("no lso-unordered")?;
        ensure!(found["safe"] == true, "{found}");
        a.ok(found["fix"].as_str().context("no command")?)?;
        ensure!(unordered(a)?.is_none(), "{found}");
        let (held, numbered) = (counter(b, "rx_seq_held")?, counter(b, "rx_seq_in_order")?);
        transfer(a, b, &b.ip4(), 8)?;
        let (held, numbered) = (counter(b, "rx_seq_held")? - held, counter(b, "rx_seq_in_order")? - numbered);
        ensure!(held > 50 && numbered > 2 * unnumbered, "{held} held, {numbered} and {unnumbered} in order");
        manager.end()?;
        bed.finish()
    }
}

/// Packets that are handed over and that go out, and super-frames among them, as `from` sends a stream.
fn counted(from: &Host, to: &Host, target: &str) -> Result<[u64; 3]> {
    let before = [sent(from)?[0], sent(from)?[1], counter(from, "tx_large")?];
    transfer(from, to, target, 8)?;
    let after = [sent(from)?[0], sent(from)?[1], counter(from, "tx_large")?];
    Ok(std::array::from_fn(|i| after[i] - before[i]))
}

/// Streams of UDP, which lose nothing but what a full queue does, and no checksum is wrong.
fn datagrams(bed: &Bed) -> Result<()> {
    let (a, b) = bed.pair()?;
    for target in [b.ip4(), b.ip6()] {
        for options in ["-u -b 4M -l 1400", "-u -b 4M -l 1400 -R"] {
            let end: Value = iperf3(bed, &target, options)?;
            let bytes = end.pointer("/sum/bytes").and_then(Value::as_f64);
            ensure!(bytes.is_some_and(|bytes| bytes > 1e5), "{options}: {end}");
        }
    }
    for host in [a, b] {
        ensure!(wrong_checksums(host)? == 0, "{}", host.ok("nstat -as")?);
    }
    Ok(())
}

scenario! {
    /// With checksums and LSO, both are left to the HCA, of IPv4 by default and of IPv6 if a user says so; switched off,
    /// neither is. What TCP sends arrives whole at `ib_ipoib` in each case.
    #[on(lockdep, races)]
    fn checksums_and_segments_by_the_hca(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = up_with(&bed, BOTH, &[OURS, THEIRS])?;
        let (a, b) = bed.pair()?;
        ensure!(features(a)? == [true; 3], "{}", a.ok("ethtool -k ib0")?);
        for (feature, on) in [("tx-checksum-ipv6", false), ("tx-tcp6-segmentation", false), ("tx-udp-segmentation", false)] {
            ensure!(is_on(a, feature)? == on, "{}", a.ok("ethtool -k ib0")?);
        }
        for size in [0, 1, 2016, 2017, 65507] {
            a.ok(&format!("ping -q -c 2 -i 0.05 -W 5 -s {size} {}", b.ip4()))?;
            a.ok(&format!("ping -6 -q -c 2 -i 0.05 -W 5 -s {size} {}", b.ip6()))?;
        }
        let v4 = b.ip4();
        let v6 = b.ip6();
        // An MSS is less than 2044 bytes.
        let [handed, went, large] = counted(a, b, &v4)?;
        ensure!(went > (8 << 20) / 2044 && went > handed + large / 2 && large > 50, "{handed} {went} {large}");
        let [handed, went, large] = counted(a, b, &v6)?;
        ensure!(large == 0 && handed > went / 2, "{handed} {went} {large}");
        switch_v6(a, true)?;
        let [handed, went, large] = counted(a, b, &v6)?;
        ensure!(went > handed + large / 2 && large > 50, "{handed} {went} {large}");
        let partial = counter(a, "tx_partial")?;
        datagrams(&bed)?;
        ensure!(counter(a, "tx_partial")? > partial + 50, "no checksum was left to the HCA");
        transfer(b, a, &a.ip4(), 8)?;
        transfer(b, a, &a.ip6(), 8)?;

        a.ok("ethtool -K ib0 tso off")?;
        let [handed, went, large] = counted(a, b, &v4)?;
        ensure!(large == 0 && handed > went / 2, "{handed} {went} {large}");
        a.ok("ethtool -K ib0 tx off rx off")?;
        ensure!(features(a)? == [false; 3], "{}", a.ok("ethtool -k ib0")?);
        let partial = counter(a, "tx_partial")?;
        transfer(a, b, &v4, 2)?;
        transfer(a, b, &v6, 2)?;
        transfer(b, a, &a.ip4(), 2)?;
        datagrams(&bed)?;
        ensure!(counter(a, "tx_partial")? == partial, "a checksum was left to the HCA");

        // Each mode begins with its own, whatever was chosen in the other; `rx` is of both.
        for (mode, of_both, tso6) in [("connected", "tx-checksum-ip-generic", true), ("datagram", "tx-checksum-ipv4", false)] {
            a.ok(&format!("echo {mode} >/sys/class/net/ib0/mode"))?;
            let features = a.ok("ethtool -k ib0")?;
            ensure!(is_on(a, of_both)? && is_on(a, "tx-tcp6-segmentation")? == tso6, "{mode}: {features}");
            ensure!(is_on(a, "tx-tcp-segmentation")? && !is_on(a, "rx-checksumming")?, "{mode}: {features}");
        }
        manager.end()?;
        bed.finish()
    }
}

pub(super) const CRAFT: &str = include_str!("../../../guest/hwsim/offload/craft.py");
const RECORD: &str = include_str!("../../../guest/hwsim/offload/record.py");

/// Frames of all kinds, and those whose segments are about as long as an MTU.
const KINDS: &str = include_str!("../../../guest/hwsim/offload/kinds.py");
const LONG: &str = include_str!("../../../guest/hwsim/offload/long.py");

/// Has `from` send the frames of a program; what `to` receives.
fn recorded(from: &Host, to: &Host, (program, arguments): (&str, &[&str])) -> Result<Vec<String>> {
    let limit = to.scaled(Duration::from_secs(20));
    let record = to.spawn_python(RECORD, &[])?;
    record.wait_for("recording", limit)?;
    from.ok(&format!("ping -q -c 1 -W 5 {}", to.ip4()))?;
    let address = to.ok("cat /sys/class/net/ib0/address")?;
    let arguments = [&[address.trim()], arguments].concat();
    from.python(&format!("{CRAFT}{program}"), &arguments)?
        .ok()?;
    record.wait_for("end", limit)?;
    let text = record.wait(limit)?.ok()?;
    let frames = text
        .lines()
        .filter(|line| line.starts_with('4') || line.starts_with('6'));
    Ok(frames.map(str::to_owned).collect())
}

scenario! {
    /// Segments and checksums of the HCA are those of the stack, byte for byte: TCP and UDP over IPv4 and IPv6, with
    /// options, numbers that wrap and checksums that come to 0.
    #[on(lockdep)]
    fn the_hca_does_what_the_stack_does(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = up_with(&bed, BOTH, &[OURS, OURS])?;
        let (a, b) = bed.pair()?;
        b.ok("ethtool -K ib0 gro off")?;
        a.ok("ethtool -K ib0 tx off")?;
        let large = counter(a, "tx_large")?;
        let by_stack = recorded(a, b, (KINDS, &[]))?;
        ensure!(counter(a, "tx_large")? == large, "the HCA has segmented");
        a.ok("ethtool -K ib0 tx on tso on")?;
        switch_v6(a, true)?;
        let by_hca = recorded(a, b, (KINDS, &[]))?;
        ensure!(counter(a, "tx_large")? == large + 9, "the stack has segmented");
        // 15 segments, 3, 61 and 11, and six packets, of each version, and six with all options.
        ensure!(by_stack.len() == 2 * (15 + 3 + 61 + 11 + 6) + 6, "{} frames", by_stack.len());
        let differs = by_stack.iter().zip(&by_hca).find(|(a, b)| a != b);
        ensure!(by_stack == by_hca, "{} frames, first {differs:?}", by_hca.len());
        manager.end()?;
        bed.finish()
    }
}

scenario! {
    /// An interface whose MTU is less than that of its peers gets super-frames whose segments it cannot send: the HCA is not
    /// asked to, what the segments leave over is sent by the stack, and the others are answered. Those that just fit are the HCA's.
    #[on(lockdep)]
    fn segments_longer_than_a_datagram(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = up_with(&bed, BOTH, &[OURS, OURS])?;
        let (a, b) = bed.pair()?;
        b.ok("ethtool -K ib0 gro off")?;
        switch_v6(a, true)?;
        for mtu in ["1500", "2044"] {
            a.ok(&format!("ip link set ib0 mtu {mtu}"))?;
            let program = (LONG, &[mtu][..]);
            a.ok("ethtool -K ib0 tx off")?;
            let by_stack = recorded(a, b, program)?;
            a.ok("ethtool -K ib0 tx on tso on")?;
            switch_v6(a, true)?;
            let counts = || -> Result<[u64; 3]> {
                Ok([counter(a, "tx_large")?, counter(a, "tx_drop_too_big")?, counter(a, "tx_too_big")?])
            };
            let before = counts()?;
            let by_hca = recorded(a, b, program)?;
            // Of each version, three that fit and the end of what does not.
            ensure!(by_stack.len() == 2 * (3 + 1), "{} frames", by_stack.len());
            let differs = by_stack.iter().zip(&by_hca).find(|(a, b)| a != b);
            ensure!(by_stack == by_hca, "{} frames, first {differs:?}", by_hca.len());
            let after = counts()?;
            let [large, dropped, answered] = [0, 1, 2].map(|i| after[i] - before[i]);
            ensure!(large == 2 && dropped == 4 && answered == 4, "{large} {dropped} {answered}");
        }
        manager.end()?;
        bed.finish()
    }
}

/// A host with a namespace behind it, on the machine, and another one that it forwards for.
struct Router<'a> {
    outside: Host,
    router: &'a Host,
    peer: &'a Host,
}

impl Router<'_> {
    /// Takes the programs to the machine: what is sent and received by.
    fn prepare(&self) -> Result<()> {
        for (name, program) in [
            ("send.py", crate::transfer::SENDER),
            ("receive.py", RECEIVER),
            ("segments.py", UDP_SEGMENTS),
            ("count.py", UDP_RECEIVER),
        ] {
            self.outside
                .machine()
                .write(&format!("/tmp/{name}"), program)?;
        }
        Ok(())
    }

    /// Starts one of them in the namespace.
    fn inside(&self, command: &str) -> Result<Task> {
        let command = format!("ip netns exec inner python3 -u /tmp/{command}");
        self.outside.spawn(&command)
    }

    /// A stream to the namespace, of which GRO makes large frames.
    fn stream_in(&self, inner: &str) -> Result<()> {
        Transfer::begin(self.peer, self.inside("receive.py")?, inner, 8, 0)?.finish()?;
        Ok(())
    }

    /// A stream out of it, whose sender learns the MTU of the path, and of which the HCA segments large frames.
    fn stream_out(&self, target: &str) -> Result<()> {
        let [handed, went] = sent(self.router)?;
        let large = counter(self.router, "tx_large")?;
        let receiver = self.peer.spawn_python(RECEIVER, &[])?;
        receiver.wait_for("listening", self.peer.scaled(Duration::from_secs(10)))?;
        let sender = self.inside(&format!("send.py {target} 8 0"))?;
        let limit = self.peer.scaled(Duration::from_secs(60));
        let (sent_text, received) = (sender.wait(limit)?.ok()?, receiver.wait(limit)?.ok()?);
        ensure!(
            sent_text.lines().last() == received.lines().last(),
            "{received} is not {sent_text}"
        );
        let [handed, went] = [sent(self.router)?[0] - handed, sent(self.router)?[1] - went];
        let large = counter(self.router, "tx_large")? - large;
        ensure!(
            went > handed + large / 2 && large > 50,
            "{handed} {went} {large}"
        );
        Ok(())
    }

    /// Packets that the router has received from the namespace, and sent to it.
    fn packets(&self) -> Result<[u64; 2]> {
        let directory = "/sys/class/net/veth0/statistics";
        let text = self
            .router
            .ok(&format!("cd {directory} && cat rx_packets tx_packets"))?;
        let numbers = text
            .lines()
            .map(|line| Ok(line.parse()?))
            .collect::<Result<Vec<u64>>>()?;
        numbers.try_into().map_err(|_| anyhow::anyhow!("{text}"))
    }

    /// Datagrams either way, many in a packet on the way between router and namespace: all arrive.
    fn datagrams(&self, inner: &str, target: &str) -> Result<()> {
        const COUNT: &str = "4000";
        let limit = self.peer.scaled(Duration::from_secs(60));
        let came = |receiver: Task| -> Result<u64> {
            let text = receiver.wait(limit)?.ok()?;
            let (_, count) = text.trim().rsplit_once(' ').context("no count")?;
            Ok(count.parse()?)
        };
        let before = self.packets()?;
        let receiver = self.peer.spawn_python(UDP_RECEIVER, &[COUNT])?;
        receiver.wait_for("ready", limit)?;
        self.inside(&format!("segments.py {target} 40 0.05"))?
            .wait(limit)?
            .ok()?;
        let out = came(receiver)?;
        let receiver = self.inside(&format!("count.py {COUNT}"))?;
        receiver.wait_for("ready", limit)?;
        self.peer
            .python(UDP_SEGMENTS, &[inner, "40", "0.05"])?
            .ok()?;
        let into = came(receiver)?;
        let after = self.packets()?;
        let [from, to] = [after[0] - before[0], after[1] - before[1]];
        ensure!(
            out == 4000 && from < 400,
            "{out} of 4000 by {from} packets to {target}"
        );
        ensure!(
            into == 4000 && to < 3000,
            "{into} of 4000 by {to} packets to {inner}"
        );
        Ok(())
    }
}

scenario! {
    /// Super-frames of TCP and UDP, over IPv4 and IPv6, that a host forwards from an interface of another MTU leave as
    /// segments with right checksums, and what it forwards in turn, too.
    #[on(lockdep)]
    fn forwarded_frames_are_segmented(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = up_with(&bed, BOTH, &[OURS, THEIRS])?;
        let (a, b) = bed.pair()?;
        let holder = behind(a, b, 9000)?;
        let way = Router { outside: a.outside(), router: a, peer: b };
        way.prepare()?;
        switch_v6(a, true)?;
        a.ok("ethtool -K ib0 rx-udp-gro-forwarding on")?;
        for (inner, target) in [("10.3.0.2", b.ip4()), ("fd00:3::2", b.ip6())] {
            way.stream_in(inner)?;
            way.stream_out(&target)?;
            let partial = counter(a, "tx_partial")?;
            way.datagrams(inner, &target)?;
            ensure!(counter(a, "tx_partial")? >= partial + 4000, "checksums were not left to the HCA");
        }
        for host in [a, b] {
            ensure!(wrong_checksums(host)? == 0, "{}", host.ok("nstat -as")?);
        }
        let wrong = way.outside.ok("ip netns exec inner nstat -asz | awk '/CsumErrors|InHdrErrors/ && $2 != 0'")?;
        ensure!(wrong.is_empty(), "{wrong}");
        holder.stop()?;
        manager.end()?;
        bed.finish()
    }
}

scenario! {
    /// HCAs that have checksums alone, LSO alone or neither, and one that gathers too few pieces for super-frames: what
    /// they lack is not offered, and cannot be switched on. Connected mode has its own, as ever.
    #[on(timed, lockdep)]
    fn what_an_hca_lacks_is_not_offered(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let (a, b) = bed.pair()?;
        let outside = a.outside();
        for (attributes, expected) in [
            (&[("checksum", "1")][..], [true, true, false]),
            (&[("lso", "65536")], [false; 3]),
            (&[], [false; 3]),
            (&[("checksum", "1"), ("lso", "65536"), ("max_send_sge", "4")], [true, true, false]),
        ] {
            let manager = up_with(&bed, attributes, &[OURS, OURS])?;
            let before = features(a)?;
            ensure!(before == expected, "{attributes:?} {}", a.ok("ethtool -k ib0")?);
            a.run("ethtool -K ib0 tx on rx on tso on")?;
            ensure!(features(a)? == expected, "{attributes:?} {}", a.ok("ethtool -k ib0")?);
            transfer(a, b, &b.ip4(), 1)?;
            transfer(b, a, &a.ip6(), 1)?;
            datagrams(&bed)?;
            ensure!(counter(a, "tx_large")? == 0, "the HCA has segmented");
            a.ok("echo connected >/sys/class/net/ib0/mode")?;
            ensure!(is_on(a, "tx-checksum-ip-generic")?, "{}", a.ok("ethtool -k ib0")?);
            a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), Duration::from_secs(10))?;
            transfer(a, b, &b.ip4(), 1)?;
            a.ok("echo datagram >/sys/class/net/ib0/mode")?;
            ensure!(features(a)? == expected, "{attributes:?} {}", a.ok("ethtool -k ib0")?);
            for host in [a, b] {
                host.ok("ip link set ib0 down")?;
            }
            manager.end()?;
            outside.ok("ib-hwsim down")?;
        }
        bed.finish()
    }
}

scenario! {
    /// An HCA segments less at a time than TCP hands over, and says so when it is asked to: what it refuses is segmented in
    /// software from then on, also after a restart.
    #[on(lockdep)]
    fn an_hca_refuses_large_requests(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = up_with(&bed, &[("checksum", "1"), ("lso", "16384")], &[OURS, THEIRS])?;
        let (a, b) = bed.pair()?;
        ensure!(features(a)? == [true; 3], "{}", a.ok("ethtool -k ib0")?);
        bed.heals(&["tx_drop_post_failed"]);
        transfer(a, b, &b.ip4(), 4)?;
        let refused = counter(a, "tx_drop_post_failed")?;
        // Those that were posted together with the first one.
        ensure!((1..=16).contains(&refused), "{}", a.ok("ethtool -S ib0")?);
        let large = counter(a, "tx_large")?;
        ensure!(large > 0 && a.outside().ok("dmesg")?.contains("refuses to segment large frames"), "{large}");
        a.ok("ip link set ib0 down && ip link set ib0 up")?;
        a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), Duration::from_secs(10))?;
        transfer(a, b, &b.ip4(), 4)?;
        transfer(b, a, &a.ip4(), 4)?;
        let after = [counter(a, "tx_drop_post_failed")?, counter(a, "tx_large")?];
        ensure!(after == [refused, large], "{refused} {large} {after:?}");
        for host in [a, b] {
            ensure!(wrong_checksums(host)? == 0, "{}", host.ok("nstat -as")?);
        }
        manager.end()?;
        bed.finish()
    }
}
