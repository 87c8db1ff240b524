// SPDX-License-Identifier: GPL-2.0

//! P_Key children, and the files of interfaces in sysfs that the C driver has, too.

use anyhow::ensure;
use lab::scenario;
use std::time::Duration;

scenario! {
    /// `pkey` and `umcast` tell what `ip -d link` does, and `umcast` can be written; nonsense is refused.
    #[on(infiniband)]
    fn sysfs_has_what_ip_shows(bed) {
        let bed = bed.hosts(1).up()?;
        bed.ib()?;
        let host = &bed.hosts[0];
        host.ok("ip link add link ib0 name ib0.ffff type ipoib_rs umcast 1")?;
        let file = |dev: &str, name: &str| format!("/sys/class/net/{dev}/{name}");
        for (dev, umcast) in [("ib0", "0\n"), ("ib0.ffff", "1\n")] {
            ensure!(host.ok(&format!("cat {}", file(dev, "pkey")))? == "0xffff\n");
            ensure!(host.ok(&format!("cat {}", file(dev, "umcast")))? == umcast);
            ensure!(host.ok(&format!("cat {}", file(dev, "mode")))? == "datagram\n");
            host.ok(&format!("echo 1 >{}", file(dev, "umcast")))?;
            ensure!(host.ok(&format!("ip -d link show {dev}"))?.contains("umcast 0001"));
            host.ok(&format!("echo 0x0 >{}", file(dev, "umcast")))?;
            ensure!(host.ok(&format!("cat {}", file(dev, "umcast")))? == "0\n");
            for text in ["", "-1", "on", "1x", "4294967296"] {
                let text = host.run(&format!("echo {text} | tee {}", file(dev, "umcast")))?.refused()?;
                ensure!(text.contains("Invalid argument"), "{text}");
            }
        }
        ensure!(host.ok(&format!("cat {}", file("ib0.ffff", "parent")))? == "ib0\n");
        host.ok("ip link set ib0 down && ip link set ib0 name fabric0")?;
        ensure!(host.ok(&format!("cat {}", file("ib0.ffff", "parent")))? == "fabric0\n");
        host.run(&format!("ls {}", file("fabric0", "parent")))?.refused()?;
        for name in ["create_child", "delete_child"] {
            ensure!(host.ok(&format!("stat -c %a {}", file("fabric0", name)))?.trim() == "200");
            host.run(&format!("ls {}", file("ib0.ffff", name)))?.refused()?;
        }
        bed.finish()
    }
}

scenario! {
    /// A text that names no partition of the port makes no child, and one that names no child deletes none.
    #[on(infiniband)]
    fn sysfs_refuses_nonsense(bed) {
        let bed = bed.hosts(1).up()?;
        bed.ib()?;
        let host = &bed.hosts[0];
        // The port of soft-RoCE is a member of the default partition only, in which ib0 is; on InfiniBand it may become one.
        let foreign: &[&str] = if host.is_infiniband() { &[] } else { &["0x8001", "1"] };
        // Made by netlink, and so not to be deleted in sysfs.
        host.ok("ip link add link ib0 name ib0.ffff type ipoib_rs")?;
        for (file, texts, reason) in [
            ("create_child", &["", "x", "0", "0x8000", "0x10000", "-1", "0x8001 1", "0x8001,0x8002"][..], "Invalid argument"),
            ("delete_child", &["", "x", "0", "0x8000", "0x10000", "-1", "0x8001 1"][..], "Invalid argument"),
            ("create_child", foreign, "Invalid argument"),
            ("create_child", &["0xffff", "0x7fff", "65535", "0177777"][..], "not unique"),
            ("delete_child", &["0x8001", "0xffff"][..], "No such device"),
        ] {
            for text in texts {
                let said = host.run(&format!("echo '{text}' | tee /sys/class/net/ib0/{file}"))?.refused()?;
                ensure!(said.contains(reason), "{file}, {text}: {said}");
            }
        }
        let links = host.ok("ip -o link show type ipoib_rs")?;
        ensure!(links.lines().count() == 2, "{links}");
        bed.finish()
    }
}

scenario! {
    /// Children are taken up and down with their parent, and can be the other way between.
    #[on(lockdep, both, infiniband)]
    fn children_follow_their_parent(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        let names = ["ib0.1", "ib0.2"];
        for host in [a, b] {
            for name in names {
                host.ok(&format!("ip link add link ib0 name {name} type ipoib_rs"))?;
            }
            host.ok(&format!("ip link add name ib9 {}", host.link("")))?;
        }
        let is_up = |name: &str| -> anyhow::Result<bool> {
            Ok(a.ok(&format!("cat /sys/class/net/{name}/flags"))?.trim().ends_with(['1', '3', '5', '7', '9', 'b', 'd', 'f']))
        };
        let expect = |up: bool| -> anyhow::Result<()> {
            for name in names {
                ensure!(is_up(name)? == up, "{name}");
            }
            ensure!(!is_up("ib9")?, "one that is no child");
            Ok(())
        };
        expect(false)?;
        for _ in 0..3 {
            a.ok("ip link set ib0 down")?;
            expect(false)?;
            a.ok("ip link set ib0 up")?;
            expect(true)?;
        }
        a.ok("ip link set ib0.1 down")?;
        ensure!(is_up("ib0")? && !is_up("ib0.1")? && is_up("ib0.2")?);
        // A restart is none of a user's.
        a.ok("echo connected >/sys/class/net/ib0/mode")?;
        ensure!(!is_up("ib0.1")? && is_up("ib0.2")?);
        a.ok("ip link set ib0 down && ip link set ib0.1 up")?;
        ensure!(!is_up("ib0")? && is_up("ib0.1")? && !is_up("ib0.2")?);
        for host in [a, b] {
            host.ok("ip link set ib0 down && ip link set ib0 up")?;
            host.ok(&format!("ip addr add 10.9.0.{}/24 dev ib0.1", host.number()))?;
        }
        a.wait_until("ping -c 1 -W 1 10.9.0.2", Duration::from_secs(15))?;
        for host in [a, b] {
            host.ok("ip link del ib0")?;
            host.run("ip link show ib0.1")?.refused()?;
        }
        bed.finish()
    }
}

scenario! {
    /// A child in another namespace tells the index of its parent and where that is.
    #[on(lockdep, infiniband)]
    fn a_child_elsewhere_names_its_parent(bed) {
        let bed = bed.hosts(1).up()?;
        bed.ib()?;
        let host = &bed.hosts[0];
        host.ok("ip link add link ib0 name ib0.1 type ipoib_rs")?;
        ensure!(!host.ok("ip -o link show ib0.1")?.contains("link-netns"));
        let index = host.ok("cat /sys/class/net/ib0/ifindex")?;
        let (holder, pid) = host.netns_add("guest")?;
        host.ok(&format!("ip link set ib0.1 netns {pid}"))?;
        let outside = host.outside();
        let link = outside.ok("ip -n guest -o link show ib0.1")?;
        ensure!(link.contains(&format!("ib0.1@if{}:", index.trim())) && link.contains("link-netns"), "{link}");
        ensure!(outside.ok("ip netns exec guest cat /sys/class/net/ib0.1/iflink")? == index);
        // The parent goes, and its child with it, wherever that is.
        host.ok("ip link del ib0")?;
        outside.run("ip -n guest link show ib0.1")?.refused()?;
        holder.stop()?;
        outside.ok("ip netns del guest")?;
        bed.finish()
    }
}

scenario! {
    /// A parent has another index in another namespace, where its own is taken: its child tells that one.
    #[on(lockdep, infiniband)]
    fn a_parent_elsewhere_has_another_index(bed) {
        let bed = bed.hosts(1).up()?;
        bed.ib()?;
        let host = &bed.hosts[0];
        host.ok("ip link add link ib0 name ib0.1 type ipoib_rs")?;
        let index = host.ok("cat /sys/class/net/ib0/ifindex")?;
        ensure!(host.ok("cat /sys/class/net/ib0.1/iflink")? == index);
        let (holder, pid) = host.netns_add("guest")?;
        let outside = host.outside();
        outside.ok(&format!("ip -n guest link add name other index {} type veth", index.trim()))?;
        host.ok(&format!("ip link set ib0 netns {pid}"))?;
        let moved = outside.ok("ip netns exec guest cat /sys/class/net/ib0/ifindex")?;
        ensure!(moved != index, "the index was free");
        ensure!(host.ok("cat /sys/class/net/ib0.1/iflink")? == moved);
        let link = host.ok("ip -o link show ib0.1")?;
        ensure!(link.contains(&format!("ib0.1@if{}:", moved.trim())) && link.contains("link-netns"), "{link}");
        outside.ok("ip -n guest link del ib0")?;
        host.run("ip link show ib0.1")?.refused()?;
        holder.stop()?;
        outside.ok("ip netns del guest")?;
        bed.finish()
    }
}
