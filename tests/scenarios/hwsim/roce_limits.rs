// SPDX-License-Identifier: GPL-2.0

//! This checkout's driver over Ethernet ports of HCAs that can do less than others, or say so.

use super::roce::{file, live, make, ping, up, write};
use super::roce_devices::wrong_checksums_found;
use crate::order::counter;
use anyhow::{Result, ensure};
use lab::bed::Host;
use lab::scenario;
use std::time::Duration;

/// Returns true if `ethtool -k` shows this line.
fn shows(host: &Host, line: &str) -> Result<()> {
    let text = host.ok("ethtool -k ib0")?;
    ensure!(text.lines().any(|l| l == line), "no {line} in {text}");
    Ok(())
}

scenario! {
    /// Without multicast there is no link: that is said when an interface is to be made.
    #[on(lockdep, races)]
    fn a_device_without_multicast_is_refused(bed) {
        let bed = bed.one_machine().up()?;
        make(&bed)?;
        let (a, b) = bed.pair()?;
        write(a, "multicast", "0")?;
        live(&bed)?;
        a.ok("modprobe ipoib_rs")?;
        for mode in ["datagram", "connected"] {
            let text = a
                .run(&format!("ip link add link eth0 name ib0 type ipoib_rs mode {mode}"))?
                .refused()?;
            ensure!(text.contains("multicast"), "no reason given: {text}");
        }
        a.run("ip link show ib0")?.refused()?;
        b.ib_add("")?;
        bed.finish()
    }
}

scenario! {
    /// A device that verifies checksums is believed while its user wants that, which is to be said where the port is an
    /// Ethernet one. What it has not found right, the stack verifies: a wrong packet is dropped in either case.
    #[on(lockdep, races)]
    fn checksums_are_verified_by_a_device_that_can(bed) {
        let bed = bed.one_machine().up()?;
        up(&bed, "", |bed| bed.hosts.iter().try_for_each(|host| write(host, "checksum", "1")))?;
        let (a, b) = bed.pair()?;
        shows(b, "rx-checksumming: off")?;
        ping(a, b)?;
        b.ok("ethtool -K ib0 rx on")?;
        shows(b, "rx-checksumming: on")?;
        ping(a, b)?;
        let (found, story) = wrong_checksums_found(&bed)?;
        ensure!(found == 10, "rx on: {found} found, {story}");
        b.ok("ip link set ib0 type ipoib_rs mode connected && ip link set ib0 type ipoib_rs mode datagram")?;
        shows(b, "rx-checksumming: on")?;
        b.ok("ethtool -K ib0 rx off")?;
        b.ok("ip link set ib0 type ipoib_rs mode connected && ip link set ib0 type ipoib_rs mode datagram")?;
        shows(b, "rx-checksumming: off")?;
        let (found, story) = wrong_checksums_found(&bed)?;
        ensure!(found == 10, "rx off: {found} found, {story}");
        bed.finish()
    }
}

/// The lines of `ethtool -g` that begin with `name`: the most, and as it is.
fn ring(host: &Host, name: &str) -> Result<(u32, u32)> {
    let text = host.ok("ethtool -g ib0")?;
    let prefix = format!("{name}:");
    let numbers: Vec<u32> = text
        .lines()
        .filter_map(|line| line.strip_prefix(&prefix)?.trim().parse().ok())
        .collect();
    match numbers[..] {
        [most, now] => Ok((most, now)),
        _ => anyhow::bail!("{name} in {text}"),
    }
}

scenario! {
    /// A device has room for fewer sends of 18 elements than it says: the rings are as large as there is room for,
    /// and that is said.
    #[on(lockdep, races)]
    fn rings_are_as_large_as_the_device_has_room_for(bed) {
        let bed = bed.one_machine().up()?;
        make(&bed)?;
        let (a, b) = bed.pair()?;
        write(a, "faults", "send_elements 5000\\n")?;
        write(b, "faults", "send_elements 20000\\n")?;
        live(&bed)?;
        for host in [a, b] {
            host.ib_add("")?;
            host.ib_up()?;
        }
        ensure!(ring(a, "TX")? == (256, 256) && ring(a, "RX")? == (2048, 512));
        ensure!(ring(b, "TX")? == (1024, 512) && ring(b, "RX")? == (2048, 512));
        let log = a.outside().ok("dmesg")?;
        let said = log.matches("has room for rings of 2048 and 256 frames").count();
        ensure!(said == 1, "said {said} times");
        ping(a, b)?;
        a.ok(&format!("ping -q -f -c 2000 {}", b.ip4()))?;
        a.run("ethtool -G ib0 tx 512")?.refused()?;
        a.ok("ethtool -G ib0 tx 128 rx 2048")?;
        b.ok("ethtool -G ib0 tx 1024")?;
        a.ok(&format!("ping -q -f -c 2000 {}", b.ip4()))?;
        bed.finish()
    }
}

scenario! {
    /// A device whose queues are shorter than the smallest ring is refused in words.
    #[on(lockdep, races)]
    fn a_device_with_tiny_queues_is_refused(bed) {
        let bed = bed.one_machine().up()?;
        make(&bed)?;
        let (a, _) = bed.pair()?;
        write(a, "max_qp_wr", "63")?;
        live(&bed)?;
        a.ok("modprobe ipoib_rs")?;
        let text = a.run("ip link add link eth0 name ib0 type ipoib_rs")?.refused()?;
        ensure!(text.contains("queues"), "no reason given: {text}");
        ensure!(a.outside().ok(&format!("cat {}", file(a, "max_qp_wr")))?.trim() == "63");
        bed.finish()
    }
}

const SINK: &str = include_str!("../../guest/hwsim/roce_limits/sink.py");

const SENDFILE: &str = include_str!("../../guest/hwsim/roce_limits/sendfile.py");

scenario! {
    /// Where a request has few elements, a large packet in many pieces is segmented: it would take one block of
    /// memory of 64 KiB to send it whole.
    #[on(lockdep, races)]
    fn packets_of_many_pieces_are_segmented(bed) {
        let bed = bed.one_machine().up()?;
        up(&bed, "mode connected", |bed| {
            bed.hosts.iter().try_for_each(|host| write(host, "max_send_sge", "4"))
        })?;
        let (a, b) = bed.pair()?;
        let connected = "ethtool -S ib0 | grep -q 'rc_tx_frames: [1-9]'";
        a.wait_until(&format!("ping -q -c 1 -W 1 {} && {connected}", b.ip4()), Duration::from_secs(30))?;
        let sink = b.spawn_python(SINK, &[&b.ip4()])?;
        sink.wait_for("ready", b.scaled(Duration::from_secs(10)))?;
        let before = counter(a, "tx_cut")?;
        a.python(SENDFILE, &[&b.ip4()])?.ok()?;
        let received = sink.wait(b.scaled(Duration::from_secs(60)))?.ok()?;
        ensure!(received.trim().ends_with(&(8 << 20).to_string()), "{received}");
        // 128 packets are as large as can be; a slow sender makes some of three pieces, which go whole.
        let cut = counter(a, "tx_cut")? - before;
        ensure!(cut >= 32, "{cut} packets were segmented");
        ensure!(counter(a, "tx_drop_no_memory")? == 0);
        bed.finish()
    }
}

scenario! {
    /// An interface does not hear its own multicast where the device can keep it from that, and passes it over where
    /// the device cannot.
    #[on(lockdep, races)]
    fn own_multicast_is_kept_away_by_the_device(bed) {
        let bed = bed.one_machine().up()?;
        up(&bed, "", |bed| write(bed.pair()?.1, "block_loopback", "0"))?;
        let (a, b) = bed.pair()?;
        for (host, other) in [(a, b), (b, a)] {
            host.ok("ip neigh flush dev ib0")?;
            ping(host, other)?;
            host.ok("ping -q -c 5 -i 0.2 -W 1 -I ib0 ff02::1")?;
        }
        let own = |host| counter(host, "rx_drop_own_multicast");
        ensure!(own(a)? == 0 && own(b)? > 0, "{} and {}", own(a)?, own(b)?);
        bed.finish()
    }
}

scenario! {
    /// A device that does not say of datagrams that they have a network header is known better: they are from
    /// somebody, and our own are our own.
    #[on(lockdep, races)]
    fn a_network_header_need_not_be_announced(bed) {
        let bed = bed.one_machine().up()?;
        up(&bed, "", |bed| {
            bed.hosts.iter().try_for_each(|host| write(host, "block_loopback", "0"))
        })?;
        let (a, b) = bed.pair()?;
        write(b, "faults", "no_grh_flag\\n")?;
        ping(a, b)?;
        let before = (counter(b, "rx_seq_in_order")?, counter(b, "rx_drop_own_multicast")?);
        a.ok(&format!("ping -q -c 5 -i 0.1 -W 5 {}", b.ip4()))?;
        b.ok("ping -q -c 5 -i 0.2 -W 1 -I ib0 ff02::1")?;
        ensure!(counter(b, "rx_seq_in_order")? >= before.0 + 5);
        ensure!(counter(b, "rx_drop_own_multicast")? >= before.1 + 5);
        bed.finish()
    }
}
