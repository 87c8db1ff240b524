// SPDX-License-Identifier: GPL-2.0

//! ib0 as the tools see it: ip, ifconfig, ethtool, sysfs.

use anyhow::ensure;
use lab::scenario;
use std::time::Duration;

const TIMESTAMPS: &str = include_str!("../guest/link/timestamps.py");

scenario! {
    /// `ip -d link` tells kind, P_Key, mode and umcast; the address has 20 bytes.
    #[on(infiniband)]
    fn ip_link_tells_the_details(bed) {
        let bed = bed.hosts(1).up()?;
        bed.ib()?;
        let host = &bed.hosts[0];
        let text = host.ok("ip -d link show ib0")?;
        for part in ["link/infiniband", "ipoib_rs", "pkey", "0xffff", "mode", "datagram", "umcast", "mtu 4092"] {
            ensure!(text.contains(part), "no {part} in {text}");
        }
        let json: serde_json::Value = serde_json::from_str(&host.ok("ip -j -d link show ib0")?)?;
        ensure!(json[0]["linkinfo"]["info_kind"] == "ipoib_rs", "{json}");
        let address = json[0]["address"].as_str().unwrap_or_default();
        ensure!(address.split(':').count() == 20, "{address}");
        let broadcast = json[0]["broadcast"].as_str().unwrap_or_default();
        ensure!(broadcast == "00:ff:ff:ff:ff:12:40:1b:ff:ff:00:00:00:00:00:00:ff:ff:ff:ff", "{broadcast}");
        bed.finish()
    }
}

scenario! {
    /// The mode can be read and written in sysfs, as that of the kernel's own driver.
    #[on(infiniband)]
    fn the_mode_is_in_sysfs(bed) {
        let bed = bed.hosts(1).up()?;
        bed.ib()?;
        let host = &bed.hosts[0];
        let file = "/sys/class/net/ib0/mode";
        ensure!(host.ok(&format!("stat -c %a {file}"))?.trim() == "644");
        ensure!(host.ok(&format!("cat {file}"))? == "datagram\n");
        host.ok(&format!("echo datagram >{file} && printf datagram >{file}"))?;
        for mode in ["data", "connecte", "connected-", ""] {
            let text = host.run(&format!("echo {mode} | tee {file}"))?.refused()?;
            ensure!(text.contains("Invalid argument"), "{mode}: {text}");
        }
        host.ok(&format!("echo connected >{file}"))?;
        ensure!(host.ok(&format!("cat {file}"))? == "connected\n");
        host.ok(&format!("printf datagram >{file}"))?;
        ensure!(host.ok(&format!("cat {file}"))? == "datagram\n");
        host.run("ls /sys/class/net/eth0/mode")?.refused()?;
        bed.finish()
    }
}

scenario! {
    /// `ifconfig ib0 10.1.0.1/24 up` works and prints sensibly.
    fn ifconfig_works(bed) {
        let bed = bed.up()?;
        bed.rxe()?;
        let (a, b) = bed.pair()?;
        for host in [a, b] {
            host.ib_add("")?;
            host.ok(&format!("ifconfig ib0 {}/24 up", host.ip4()))?;
        }
        a.ok(&format!("ping -c 3 -i 0.3 -W 5 {}", b.ip4()))?;
        let text = a.ok("ifconfig ib0")?;
        for part in ["UP", "RUNNING", "BROADCAST", "MULTICAST", "mtu 4092", "inet 10.1.0.1", "255.255.255.0"] {
            ensure!(text.contains(part), "no {part} in {text}");
        }
        ensure!(text.contains("infiniband") || text.contains("unspec"), "{text}");
        bed.finish()
    }
}

scenario! {
    /// The MTU has limits, told in words when they are passed.
    #[on(infiniband)]
    fn the_mtu_has_limits(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        for mtu in [2044, 1280, 68, 4092] {
            a.ok(&format!("ip link set ib0 mtu {mtu}"))?;
            ensure!(a.ok("cat /sys/class/net/ib0/mtu")?.trim() == mtu.to_string());
        }
        for mtu in [67, 4093, 65520] {
            let text = a.run(&format!("ip link set ib0 mtu {mtu}"))?.refused()?;
            ensure!(text.contains("Error:") && text.contains("mtu"), "no reason given: {text}");
        }
        a.ok("ip addr replace fd00:1::1/64 dev ib0 nodad")?;
        a.ok(&format!("ping -c 1 -W 5 -s 65507 {}", b.ip4()))?;
        bed.finish()
    }
}

scenario! {
    /// A program learns when its datagram, and the first byte of its stream, went to the device, in both modes.
    #[on(infiniband)]
    fn sent_frames_have_a_software_timestamp(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        let text = a.ok("ethtool -T ib0")?;
        ensure!(text.contains("software-transmit") && text.contains("software-receive"), "{text}");
        let listener = b.spawn_python(TIMESTAMPS, &["listen"])?;
        listener.wait_for("listening", b.scaled(Duration::from_secs(10)))?;
        for mode in ["datagram", "connected"] {
            for host in [a, b] {
                host.ok(&format!("echo {mode} >/sys/class/net/ib0/mode"))?;
            }
            let ready = format!("ping -q -c 1 -W 1 {} && (test {mode} = datagram || ethtool -S ib0 | grep -q ' rc_current: [1-9]')", b.ip4());
            a.wait_until(&ready, Duration::from_secs(20))?;
            let stamped = a.python(TIMESTAMPS, &[&b.ip4()])?.ok()?;
            ensure!(stamped.trim() == "udp tcp", "{mode}: {stamped:?}");
        }
        bed.finish()
    }
}

scenario! {
    /// Over a 1500-byte Ethernet the IB MTU is 1024 and ib0's is 1020: IPv4 passes.
    fn a_small_wire_makes_a_small_mtu(bed) {
        let bed = bed.mtu(1500).up()?;
        bed.rxe()?;
        let (a, b) = bed.pair()?;
        for host in [a, b] {
            host.ib_add("")?;
            host.ok(&format!("ip addr add {}/24 dev ib0 && ip link set ib0 up", host.ip4()))?;
            ensure!(host.ok("cat /sys/class/net/ib0/mtu")?.trim() == "1020");
        }
        a.ok(&format!("ping -c 3 -i 0.3 -W 5 {}", b.ip4()))?;
        a.ok(&format!("ping -c 1 -W 5 -s 10000 {}", b.ip4()))?;
        bed.finish()
    }
}

scenario! {
    /// Options that cannot work are refused with a reason, and leave nothing behind.
    fn nonsense_is_refused_in_words(bed) {
        let bed = bed.hosts(1).up()?;
        bed.rxe()?;
        let host = &bed.hosts[0];
        host.ok("modprobe ipoib_rs")?;
        for arguments in [
            // No link; a link without an RDMA device; a P_Key that the port does not have; none at all; more queues than
            // there are.
            "name ib7 type ipoib_rs",
            "link lo name ib7 type ipoib_rs",
            "link eth0 name ib7 type ipoib_rs pkey 0x8123",
            "link eth0 name ib7 type ipoib_rs pkey 0x8000",
            "link eth0 name ib7 numtxqueues 4 type ipoib_rs",
            "link eth0 name ib7 numrxqueues 2 type ipoib_rs",
        ] {
            let text = host.run(&format!("ip link add {arguments}"))?.refused()?;
            ensure!(text.contains("Error: ") || text.contains("RTNETLINK answers: "), "{arguments}: {text}");
            host.run("ip link show ib7")?.refused()?;
        }
        bed.finish()
    }
}

scenario! {
    /// Addresses that are given when an interface or a child of one is made are ignored: it has its own.
    fn given_addresses_are_ignored(bed) {
        const GIVEN: &str = "80:12:34:56:fe:80:00:00:00:00:00:00:02:00:5e:ff:fe:00:53:01";
        let bed = bed.up()?;
        bed.rxe()?;
        let (a, b) = bed.pair()?;
        let field = |name: &str, field: &str| -> anyhow::Result<String> {
            Ok(a.ok(&format!("cat /sys/class/net/{name}/{field}"))?.trim().to_owned())
        };
        for host in [a, b] {
            host.ok(&format!(
                "modprobe ipoib_rs
                 ip link add link eth0 name ib0 address {GIVEN} broadcast {GIVEN} type ipoib_rs"
            ))?;
        }
        a.ok(&format!(
            "ip link add link eth0 name ib1 type ipoib_rs
             ip link add link ib0 name ib0.ffff address {GIVEN} broadcast {GIVEN} type ipoib_rs"
        ))?;
        let plain = field("ib1", "address")?;
        let broadcast = field("ib1", "broadcast")?;
        for name in ["ib0", "ib0.ffff"] {
            let address = field(name, "address")?;
            // The GID is the port's, and the QPN another one.
            ensure!(address[12..] == plain[12..] && address != plain, "{name}: {address}, {plain}");
            ensure!(!address.starts_with("80:12:34:56"), "{name}: {address}");
            ensure!(field(name, "broadcast")? == broadcast, "{name}");
            // NET_ADDR_PERM
            ensure!(field(name, "addr_assign_type")? == "0", "{name}");
        }
        a.run("ip link add link eth0 name ib2 address 02:00:5e:00:53:01 type ipoib_rs")?.refused()?;
        for host in [a, b] {
            host.ib_up()?;
        }
        a.ok(&format!("ping -q -c 3 -i 0.2 -W 5 {}", b.ip4()))?;
        bed.finish()
    }
}

scenario! {
    /// The port is in `dev_port` and `dev_id`, counted from 0. Soft-RoCE sits on no device.
    fn the_port_is_in_sysfs(bed) {
        let bed = bed.hosts(1).up()?;
        bed.ib()?;
        let host = &bed.hosts[0];
        host.ok("ip link add link ib0 name ib0.ffff type ipoib_rs")?;
        for name in ["ib0", "ib0.ffff"] {
            let directory = format!("/sys/class/net/{name}");
            ensure!(host.ok(&format!("cat {directory}/dev_port"))? == "0\n");
            ensure!(host.ok(&format!("cat {directory}/dev_id"))? == "0x0\n");
            host.run(&format!("readlink {directory}/device"))?.refused()?;
        }
        bed.finish()
    }
}

scenario! {
    /// ib0 is renamed, and goes on.
    #[on(infiniband)]
    fn a_rename_is_nothing_special(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        a.ok(&format!("ping -c 1 -W 5 {}", b.ip4()))?;
        a.ok("ip link set ib0 down && ip link set ib0 name fabric0 && ip link set fabric0 up")?;
        a.wait_until("ip -o link show fabric0 | grep -q LOWER_UP", std::time::Duration::from_secs(10))?;
        a.ok(&format!("ping -c 2 -W 5 {}", b.ip4()))?;
        bed.finish()
    }
}

scenario! {
    /// ethtool: driver and link.
    #[on(infiniband)]
    fn ethtool_tells_driver_and_link(bed) {
        let bed = bed.hosts(1).up()?;
        bed.ib()?;
        let host = &bed.hosts[0];
        ensure!(host.ok("ethtool -i ib0")?.contains("driver: ipoib_rs\n"));
        ensure!(host.ok("ethtool ib0")?.contains("Link detected: yes"));
        host.ok("ip link set ib0 down")?;
        ensure!(host.ok("ethtool ib0")?.contains("Link detected: no"));
        bed.finish()
    }
}

scenario! {
    /// The carrier follows the Ethernet below.
    fn the_carrier_follows_the_port(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        bed.loses_ethernet();
        let (a, b) = bed.pair()?;
        a.ok(&format!("ping -c 1 -W 5 {}", b.ip4()))?;
        a.ok("ip link set eth0 down")?;
        a.wait_until("ip -o link show ib0 | grep -q NO-CARRIER", std::time::Duration::from_secs(10))?;
        a.ok("ip link set eth0 up")?;
        a.wait_until("ip -o link show ib0 | grep -q LOWER_UP", std::time::Duration::from_secs(10))?;
        a.wait_until(&format!("ping -c 1 -W 1 {}", b.ip4()), std::time::Duration::from_secs(15))?;
        bed.finish()
    }
}
