// SPDX-License-Identifier: GPL-2.0

//! Extended frames between two of ours, beside packets as they are: segments that are to be made
//! yet, and checksums that are left out.

use super::{LARGE, RC, amount, connect, connected, set_mode, story, up};
use crate::capture::Capture;
use crate::order::{counter, set};
use crate::transfer::{RECEIVER, Transfer, behind, transfer};
use crate::wire::hardware_address;
use anyhow::ensure;
use lab::bed::Netem;
use lab::machine::{Kernel, Lane};
use lab::scenario;
use regex::Regex;
use std::time::Duration;

scenario! {
    /// Without the extensions on either side, or on one, connections are those of RFC 4755: no large
    /// frame, and every checksum there.
    #[on(races, infiniband)]
    fn connections_without_extensions(bed) {
        let mib = amount(&bed, 4);
        let bed = bed.up()?;
        up(&bed)?;
        let (a, b) = bed.pair()?;
        for without in [vec![a, b], vec![b], vec![a]] {
            for host in [a, b] {
                let extensions = !without.iter().any(|w| w.number() == host.number());
                set_mode(host, "datagram")?;
                set(host, "extensions", u32::from(extensions))?;
                set_mode(host, "connected")?;
                host.ok(&format!("ip link set ib0 mtu {LARGE}"))?;
                let flags = hardware_address(host)?[0];
                ensure!(flags & RC == RC && (flags == RC) != extensions, "{flags:#x}");
            }
            connect(a, b)?;
            // At a small MTU, where large frames would be worth most.
            for mtu in [LARGE, 2044] {
                for host in [a, b] {
                    host.ok(&format!("ip link set ib0 mtu {mtu}"))?;
                }
                transfer(a, b, &b.ip4(), mib)?;
                transfer(b, a, &a.ip6(), mib)?;
            }
            for host in [a, b] {
                for name in ["rc_tx_large", "rc_rx_large", "rc_tx_partial", "rc_rx_partial"] {
                    ensure!(counter(host, name)? == 0, "{name} on {}", host.number());
                }
                ensure!(counter(host, "rc_tx_frames")? > 100);
            }
        }
        bed.finish()
    }
}

scenario! {
    /// A packet of the InfiniBand MTU, less the header of RFC 4391, takes one InfiniBand packet also between two of
    /// ours, over IPv4 and IPv6: an extended header would cost another one.
    #[on(both)]
    fn a_packet_of_the_mtu_is_one_infiniband_packet(bed) {
        let mib = amount(&bed, 4);
        let bed = bed.up()?;
        bed.rxe()?;
        for host in &bed.hosts {
            host.ib_add("mode connected")?;
            host.ib_up()?;
            set(host, "large_frames", 0)?;
            host.ok("ip link set ib0 mtu 4092")?;
        }
        let (a, b) = bed.pair()?;
        connect(a, b)?;
        for address in [b.ip4(), b.ip6()] {
            let before = counter(b, "rc_rx_partial")?;
            let capture = Capture::start(b)?;
            transfer(a, b, &address, mib)?;
            let (_, sends) = capture.stop_with_sends()?;
            let cut = sends.iter().filter(|send| !send.is_whole).count();
            ensure!(cut == 0 && sends.len() > 100, "{cut} of {} for {address}", sends.len());
            ensure!(counter(b, "rc_rx_partial")? - before > 100, "{}", story(b));
        }
        for host in [a, b] {
            ensure!(counter(host, "rx_drop_bad_extended")? == 0, "{}", story(host));
        }
        bed.finish()
    }
}

scenario! {
    /// Large frames that are forwarded out of an Ethernet leave as segments of its size with right
    /// checksums, whether that Ethernet cuts them up itself or not.
    #[on(races, infiniband)]
    fn large_frames_are_forwarded_as_segments(bed) {
        let mib = amount(&bed, 16);
        let bed = bed.up()?;
        let (a, b) = connected(&bed)?;
        let outside = b.outside();
        let holder = behind(b, a, 1500)?;
        outside.ok("ip netns exec inner ethtool -K veth1 tx off tso off gso off gro off")?;
        outside.machine().write("/tmp/receive.py", RECEIVER)?;
        let receiver = || outside.spawn("ip netns exec inner python3 -u /tmp/receive.py");

        let before = (counter(a, "rc_tx_large")?, counter(b, "rc_rx_large")?);
        // The veth passes them on whole.
        Transfer::begin(a, receiver()?, "10.3.0.2", mib, 0)?.finish()?;
        ensure!(counter(a, "rc_tx_large")? > before.0 && counter(b, "rc_rx_large")? > before.1,
            "no large frame: {}", story(a));

        // They are cut up, and their checksums made.
        b.ok("ethtool -K veth0 tx off tso off gso off gro off")?;
        let capture = outside.spawn(
            "ip netns exec inner tcpdump -i veth1 -U --immediate-mode -s 0 -w /tmp/inner.pcap tcp",
        )?;
        capture.wait_for("listening on", b.scaled(Duration::from_secs(10)))?;
        let before = counter(b, "rc_rx_large")?;
        Transfer::begin(a, receiver()?, "10.3.0.2", mib, 0)?.finish()?;
        ensure!(counter(b, "rc_rx_large")? > before);
        std::thread::sleep(b.scaled(Duration::from_millis(300)));
        capture.stop()?;
        let text = outside
            .run_for("tcpdump -r /tmp/inner.pcap -n -vv -s 0 2>/dev/null | grep -E 'proto TCP|cksum'", Duration::from_secs(60))?
            .ok()?;
        let length = Regex::new(r"proto TCP \(6\), length (\d+)\)")?;
        let lengths: Vec<u32> = length
            .captures_iter(&text)
            .filter_map(|c| c[1].parse().ok())
            .collect();
        let correct = text.matches("(correct)").count();
        let wrong: Vec<&str> = text.lines().filter(|line| line.contains("incorrect")).collect();
        ensure!(wrong.is_empty(), "{} of {correct}: {}", wrong.len(), wrong[0]);
        let full = lengths.iter().filter(|n| **n == 1500).count();
        ensure!(lengths.iter().all(|n| *n <= 1500) && full > 500 && correct >= full,
            "{full} full segments of {}, {correct} correct, longest {:?}", lengths.len(), lengths.iter().max());
        holder.stop()?;
        outside.ok("ip netns del inner")?;
        bed.finish()
    }
}

scenario! {
    /// Checksums that are left to the fabric: bits flip on the wire, and no wrong byte gets through. With
    /// `icrc=0` they are made again.
    #[on(races)]
    fn flipped_bits_do_not_get_through(bed) {
        // Some 130 flips where it does not take for ever. How many bits flip counts, not how many do not: each
        // costs the transport a repetition.
        let mib = match (bed.lane(), bed.kernel()) {
            (Lane::Uml, Kernel::Base) => 128,
            (Lane::Qemu, Kernel::Debug | Kernel::Kcsan) => 1,
            _ => 4,
        };
        let bed = bed.lifetime(Duration::from_secs(1500)).up()?;
        let (a, b) = connected(&bed)?;
        for host in [a, b] {
            host.netem(Netem {
                corrupt: 0.4,
                ..Netem::default()
            })?;
        }
        transfer(a, b, &b.ip4(), mib)?;
        transfer(b, a, &a.ip6(), mib.div_ceil(8))?;
        for host in [a, b] {
            ensure!(counter(host, "rc_tx_partial")? > 0 && counter(host, "rc_rx_partial")? > 0,
                "{}", story(host));
            host.netem(Netem::default())?;
        }
        for host in [a, b] {
            set_mode(host, "datagram")?;
            set(host, "icrc", 0)?;
            set_mode(host, "connected")?;
        }
        connect(a, b)?;
        let before = (counter(a, "rc_tx_partial")?, counter(b, "rc_tx_partial")?);
        transfer(a, b, &b.ip4(), 2)?;
        ensure!((counter(a, "rc_tx_partial")?, counter(b, "rc_tx_partial")?) == before);
        bed.finish()
    }
}
