// SPDX-License-Identifier: GPL-2.0

//! Cables through a network device: two fabrics in one kernel that a veth pair joins, each with an HCA, the
//! first one with a switch as well.

use super::fabric::CONFIGFS;
use super::live::wait_known;
use super::manager::Manager;
use super::observe::Tallies;
use super::rc::connect;
use super::weather::times;
use super::{EXCLUSIVE, Port, active, ipoib_up_made};
use crate::transfer::transfer;
use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::scenario;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);

const MAKE: &str = include_str!("../../guest/hwsim/trunk/make.sh");

/// Makes the veth pair and both fabrics; `hwsim0` is the HCA of the first one, and `hwsim1` that of the second.
fn make(host: &Host, mtu: u32) -> Result<()> {
    host.sh(MAKE, &[CONFIGFS, &mtu.to_string()])?;
    Ok(())
}

/// The counters of the cable in a fabric.
fn statistics(host: &Host, fabric: &str) -> Result<BTreeMap<String, u64>> {
    let text = host.ok(&format!("cat {CONFIGFS}/{fabric}/cables/trunk/statistics"))?;
    text.lines()
        .map(|line| {
            let (name, number) = line.split_once(' ').with_context(|| line.to_owned())?;
            Ok((name.to_owned(), number.parse()?))
        })
        .collect()
}

/// Waits until the link that the cable in a fabric makes is up, or down.
fn wait_up(host: &Host, fabric: &str, up: u8) -> Result<()> {
    let file = format!("{CONFIGFS}/{fabric}/cables/trunk/statistics");
    host.wait_until(&format!("grep -q '^up {up}$' {file}"), LIMIT)
}

/// Checks that each packet that left by the port at either end of the cable was sent by the device, or was dropped.
fn all_are_accounted_for(host: &Host) -> Result<()> {
    let limit = Instant::now() + host.scaled(LIMIT);
    for (fabric, port) in [("left", "s/port2"), ("right", "b/port1")] {
        loop {
            let tallies = Tallies::settled(host, fabric)?;
            let counters = statistics(host, fabric)?;
            let get = |name| tallies.get(port, name);
            let left = get("sent_packets")? + get("doubled")? - get("lost")?;
            if counters["sent"] + counters["dropped"] == left {
                break;
            }
            ensure!(
                Instant::now() < limit,
                "{fabric}: {left} packets left by {port}: {counters:?}"
            );
        }
    }
    Ok(())
}

scenario! {
    /// One opensm brings both fabrics up as one subnet; `ib_ipoib` passes packets from one to the other in both
    /// modes, and none is lost or malformed.
    #[on(lockdep)]
    fn two_fabrics_are_one_subnet(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = ipoib_up_made(&bed, "", |host| make(host, 4400))?;
        let (a, b) = bed.pair()?;
        let outside = a.outside();
        let nodes = a.ok("ibnetdiscover -C hwsim0 -P 1")?;
        ensure!(nodes.matches("caguid=").count() == 2 && nodes.matches("switchguid=").count() == 1, "{nodes}");
        for (from, to) in [(a, b), (b, a)] {
            for size in [0, 56, 2016, 20_000] {
                from.ok(&format!("ping -q -c 2 -i 0.05 -W 5 -s {size} {}", to.ip4()))?;
                from.ok(&format!("ping -6 -q -c 2 -i 0.05 -W 5 -s {size} {}", to.ip6()))?;
            }
        }
        transfer(a, b, &b.ip4(), 4)?;
        connect(&bed)?;
        for (from, to) in [(a, b), (b, a)] {
            for size in [0, 4093, 65_492] {
                from.wait_until(&format!("ping -q -c 2 -i 0.05 -W 5 -s {size} {}", to.ip4()), LIMIT)?;
            }
        }
        transfer(a, b, &b.ip4(), 16)?;
        transfer(b, a, &a.ip4(), 16)?;
        let rc = a.ok("rdma res show qp link hwsim0 type RC")?;
        ensure!(rc.contains("state RTS"), "{rc}");
        for fabric in ["left", "right"] {
            let counters = statistics(&outside, fabric)?;
            for (name, number) in &counters {
                match name.as_str() {
                    "sent" | "received" => ensure!(*number > 1000, "{counters:?}"),
                    "up" => ensure!(*number == 1, "{counters:?}"),
                    // Packets were sent before the other end was up, and when it went.
                    "dropped" | "stranger" => {}
                    _ => ensure!(*number == 0, "{counters:?}"),
                }
            }
        }
        manager.end()?;
        all_are_accounted_for(&outside)?;
        bed.finish()
    }
}

scenario! {
    /// The link follows the network device: it goes down and up with it, wants an MTU that is large enough, and is
    /// down for good when that is gone; nothing keeps the device.
    #[on(lockdep)]
    fn the_device_comes_and_goes(bed) {
        let bed = bed.one_machine().hosts(1).up()?;
        let host = bed.hosts[0].outside();
        make(&host, 4198)?;
        wait_up(&host, "left", 1)?;
        wait_up(&host, "right", 1)?;
        let manager = Manager::start(&host, "hwsim0", "")?;
        active(&host, "hwsim1")?;
        let info = host.ok("smpquery -C hwsim1 -P 1 -D portinfo 0 1")?;
        ensure!(info.contains("NeighborMTU:.....................4096"), "{info}");
        for _ in 0..2 {
            host.ok("ip link set t0 down")?;
            wait_up(&host, "left", 0)?;
            wait_up(&host, "right", 0)?;
            let port = Port::of(&host, "hwsim1")?;
            ensure!(port.state == "Down", "{port:?}");
            // A subnet manager that sweeps already may miss a change.
            wait_known(&host, "-C hwsim0 -P 1", port.guid, false)?;
            host.ok("ip link set t0 up")?;
            wait_up(&host, "left", 1)?;
            wait_up(&host, "right", 1)?;
            ensure!(Port::of(&host, "hwsim1")?.physical_state == "LinkUp");
            active(&host, "hwsim1")?;
        }
        // A device is the end of one cable only, whichever fabric that is in.
        host.ok(&format!(
            "cd {CONFIGFS} && mkdir third third/hcas/c third/cables/trunk && echo c dev:t0 >third/cables/trunk/ends"
        ))?;
        host.run(&format!("echo 1 >{CONFIGFS}/third/live"))?.refused()?;
        host.ok("dmesg | grep -qE 'third: trunk: cannot be plugged: (EBUSY|Error.16)'")?;
        // Either end is pulled, and the other one hears of it.
        for (fabric, other) in [("left", "right"), ("right", "left")] {
            let plugged = format!("{CONFIGFS}/{fabric}/cables/trunk/plugged");
            host.ok(&format!("echo 0 >{plugged}"))?;
            wait_up(&host, other, 0)?;
            host.ok(&format!("echo 1 >{plugged}"))?;
            wait_up(&host, other, 1)?;
            wait_up(&host, fabric, 1)?;
        }
        // Too small for the largest packets.
        host.ok("ip link set t0 mtu 4197")?;
        wait_up(&host, "left", 0)?;
        wait_up(&host, "right", 0)?;
        let plugged = format!("{CONFIGFS}/left/cables/trunk/plugged");
        host.ok(&format!("echo 0 >{plugged}"))?;
        host.run(&format!("echo 1 >{plugged}"))?.refused()?;
        host.ok(&format!("ip link set t0 mtu 4198 && echo 1 >{plugged}"))?;
        wait_up(&host, "left", 1)?;
        host.ok("ip link del t0")?;
        wait_up(&host, "left", 0)?;
        ensure!(Port::of(&host, "hwsim1")?.state == "Down");
        // A device that does not exist is no end.
        let again = format!("cd {CONFIGFS}/left/cables/trunk && echo 0 >plugged && echo 1 >plugged");
        host.run(&again)?.refused()?;
        ensure!(host.ok(&format!("cat {CONFIGFS}/left/cables/trunk/plugged"))?.trim() == "0");
        manager.kill()?;
        host.ok("ib-hwsim down && modprobe -r ib_hwsim")?;
        bed.finish()
    }
}

scenario! {
    /// Faults of such a cable are those of what leaves by it, datagrams and connections: a delay at one end is in
    /// each round trip once, and what has a wrong CRC does not leave.
    #[on(lockdep)]
    fn faults_are_those_of_what_leaves(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = ipoib_up_made(&bed, "", |host| make(host, 4400))?;
        let (a, b) = bed.pair()?;
        let outside = a.outside();
        let set = |fault: &str, value: u32| {
            outside.ok(&format!("echo {value} >{CONFIGFS}/left/cables/trunk/{fault}"))
        };
        let delayed = || -> Result<()> {
            set("delay", 300_000)?;
            for (from, to) in [(a, b), (b, a)] {
                let text = from.ok(&format!("ping -c 3 -i 0.05 -W 10 {}", to.ip4()))?;
                let times = times(&text)?;
                ensure!(times.len() == 3 && times.iter().all(|&time| time >= 300.0), "{text}");
                ensure!(times.iter().any(|&time| time < 600.0), "{text}");
            }
            set("delay", 0)?;
            Ok(())
        };
        a.ok(&format!("ping -q -c 3 -i 0.1 -W 10 {}", b.ip4()))?;
        delayed()?;
        let before = statistics(&outside, "left")?["dropped"];
        set("corrupt", 1_000_000)?;
        ensure!(a.run(&format!("ping -q -c 5 -i 0.1 -W 1 {}", b.ip4()))?.stdout.contains(" 0 received"));
        set("corrupt", 0)?;
        let counters = statistics(&outside, "left")?;
        ensure!(counters["dropped"] >= before + 5 && counters["lost"] == 0, "{counters:?}");

        connect(&bed)?;
        a.wait_until(&format!("ping -q -c 2 -i 0.05 -W 5 -s 30000 {}", b.ip4()), LIMIT)?;
        delayed()?;
        set("duplicate", 50_000)?;
        transfer(a, b, &b.ip4(), 4)?;
        transfer(b, a, &a.ip4(), 4)?;
        manager.kill()?;
        bed.finish()
    }
}

const HOSTILE: &str = include_str!("../../guest/hwsim/trunk/hostile.py");

scenario! {
    /// Frames that nobody should send are dropped and counted, and the subnet works as before; the kernel has
    /// nothing to say of them.
    #[on(lockdep)]
    fn hostile_frames_are_counted(bed) {
        let bed = bed.one_machine().hosts(1).up()?;
        let host = bed.hosts[0].outside();
        make(&host, 4400)?;
        let manager = Manager::start(&host, "hwsim0", "")?;
        active(&host, "hwsim0")?;
        active(&host, "hwsim1")?;
        let before = statistics(&host, "left")?;
        // By t1, so that they seem to be of the right end.
        let text = host.python(HOSTILE, &["t1"])?.ok()?;
        let after = statistics(&host, "left")?;
        let more = |prefix: &str| -> u64 {
            let of = |counters: &BTreeMap<String, u64>| -> u64 {
                counters.iter().filter(|(name, _)| name.starts_with(prefix)).map(|(_, n)| n).sum()
            };
            of(&after) - of(&before)
        };
        for line in text.lines() {
            let (name, number) = line.split_once(' ').context("a counter")?;
            ensure!(more(name) >= number.parse()?, "{name}: {before:?} {after:?} {text}");
        }
        // It may have taken the link down; it comes again.
        for fabric in ["left", "right"] {
            wait_up(&host, fabric, 1)?;
        }
        active(&host, "hwsim0")?;
        active(&host, "hwsim1")?;
        host.wait_until("smpquery -C hwsim0 -P 1 -D nodeinfo 0,1,2", LIMIT)?;
        manager.kill()?;
        bed.finish()
    }
}

/// Makes a fabric of one HCA, with a cable through `eth0` of the host, from within its network namespace.
fn make_on(host: &Host, guid: u64) -> Result<()> {
    let name = format!("f{}", host.number());
    host.ok(&format!(
        "set -e
         modprobe ib_hwsim
         mkdir -p /tmp/configfs
         mount -t configfs configfs /tmp/configfs
         cd /tmp/configfs/ib_hwsim
         mkdir {name} {name}/hcas/h{name} {name}/cables/out
         echo {guid:#018x} >{name}/hcas/h{name}/node_guid
         echo h{name} dev:eth0 >{name}/cables/out/ends
         echo 1 >{name}/live"
    ))?;
    Ok(())
}

/// The RDMA device of the HCA on a host.
fn device_on(host: &Host) -> Result<String> {
    let name = format!("f{}", host.number());
    let device = host.ok(&format!(
        "mountpoint -q /tmp/configfs || mount -t configfs configfs /tmp/configfs
         cat /tmp/configfs/ib_hwsim/{name}/hcas/h{name}/device"
    ))?;
    Ok(device.trim().to_owned())
}

scenario! {
    /// Two hosts whose Ethernet is the cable: machines of their own in the qemu lane, network namespaces with a
    /// bridge between them in the other one. Each looks the device up where it is.
    #[on(lockdep)]
    fn two_hosts_are_one_subnet(bed) {
        let bed = bed.append(EXCLUSIVE).up()?;
        let (a, b) = bed.pair()?;
        for host in [a, b] {
            host.outside().ok("modprobe ib_ipoib")?;
            make_on(host, 0x0a1b_7700_0000_0000 + 0x1_0000 * u64::from(host.number()))?;
        }
        let mut devices = Vec::new();
        for host in [a, b] {
            let device = device_on(host)?;
            if let Some(netns) = host.netns() {
                host.outside().ok(&format!("rdma dev set {device} netns {netns}"))?;
            }
            devices.push(device);
        }
        let manager = Manager::start(a, &devices[0], "")?;
        for (host, device) in bed.hosts.iter().zip(&devices) {
            active(host, device)?;
            host.ib_up()?;
        }
        for (from, to) in [(a, b), (b, a)] {
            for size in [0, 2016, 20_000] {
                from.ok(&format!("ping -q -c 2 -i 0.05 -W 5 -s {size} {}", to.ip4()))?;
            }
        }
        transfer(a, b, &b.ip4(), 4)?;
        connect(&bed)?;
        for (from, to) in [(a, b), (b, a)] {
            from.wait_until(&format!("ping -q -c 2 -i 0.05 -W 5 -s 60000 {}", to.ip4()), LIMIT)?;
            transfer(from, to, &to.ip4(), 8)?;
        }
        manager.end()?;
        bed.finish()
    }
}
