// SPDX-License-Identifier: GPL-2.0

//! Interfaces that come by themselves, as the module parameter `ports` says, and go with their ports.

use anyhow::{Result, ensure};
use lab::bed::Host;
use lab::scenario;
use std::time::Duration;

/// Names of the interfaces of both types.
fn interfaces(host: &Host) -> Result<String> {
    let text = host.ok("ls /sys/class/net")?;
    let names = text
        .split_whitespace()
        .filter(|name| name.starts_with("ib"));
    Ok(names.collect::<Vec<_>>().join(" "))
}

/// Returns true if there is none.
fn none(host: &Host) -> Result<()> {
    let names = interfaces(host)?;
    ensure!(names.is_empty(), "{names}");
    Ok(())
}

/// The port that `ib0` says it is on.
fn place(host: &Host) -> Result<String> {
    let links: serde_json::Value = serde_json::from_str(&host.ok("ip -j -d link show ib0")?)?;
    let data = &links[0]["linkinfo"]["info_data"];
    let text = |key: &str| data[key].as_str().unwrap_or_default().to_owned();
    Ok(format!("{}:{}", text("device"), text("port")))
}

scenario! {
    /// A port that is named has its interface as soon as it and the driver are there, whichever comes first; it goes
    /// with either.
    #[on(both)]
    fn ports_in_the_list_have_an_interface(bed) {
        let bed = bed.hosts(1).up()?;
        let host = &bed.hosts[0];
        let (rxe, outside) = (host.rxe(), host.outside());
        outside.ok(&format!("modprobe ipoib_rs ports=nosuch0:1,{rxe}:1,{rxe}:2"))?;
        ensure!(outside.ok("cat /sys/module/ipoib_rs/parameters/ports")?.contains(&rxe));
        none(&outside)?;
        for _ in 0..3 {
            host.rxe_up()?;
            // In the namespace of the RDMA device, which has one of its own only if RDMA is told so.
            ensure!(interfaces(&outside)? == "ib0");
            ensure!(place(&outside)? == format!("{rxe}:1"));
            // NET_NAME_ENUM: udev may find a better one.
            ensure!(outside.ok("cat /sys/class/net/ib0/name_assign_type")?.trim() == "1");
            outside.ok("ip link set ib0 up")?;
            host.ok(&format!("rdma link del {rxe}"))?;
            none(&outside)?;
        }
        outside.ok("modprobe -r ipoib_rs")?;
        host.rxe_up()?;
        for _ in 0..3 {
            outside.ok(&format!("modprobe ipoib_rs ports={rxe}:1"))?;
            ensure!(interfaces(&outside)? == "ib0");
            outside.ok("ip link set ib0 up && modprobe -r ipoib_rs")?;
            none(&outside)?;
        }
        bed.finish()
    }
}

scenario! {
    /// One that a user deletes stays deleted; a device that gets a name in the list gets its interface.
    fn a_deleted_one_stays_deleted(bed) {
        let bed = bed.hosts(1).up()?;
        let host = &bed.hosts[0];
        let (rxe, outside) = (host.rxe(), host.outside());
        host.rxe_up()?;
        outside.ok(&format!("modprobe ipoib_rs ports={rxe}:1,other0:1"))?;
        outside.ok("ip link set ib0 up && ip link del ib0")?;
        host.ok("ip link set eth0 mtu 3000 && ip link set eth0 mtu 4400")?;
        std::thread::sleep(host.scaled(Duration::from_millis(500)));
        none(&outside)?;
        outside.ok(&format!("ip link add name ib0 type ipoib_rs device {rxe} && ip link del ib0"))?;
        host.ok(&format!("rdma link del {rxe}"))?;

        host.ok("rdma link add first0 type rxe netdev eth0")?;
        none(&outside)?;
        outside.ok("rdma dev set first0 name other0")?;
        outside.wait_until("test -e /sys/class/net/ib0", Duration::from_secs(10))?;
        ensure!(place(&outside)? == "other0:1");
        bed.finish()
    }
}

scenario! {
    /// It can move to a namespace; when that ends, the port has another one where the first came up.
    fn it_outlives_a_namespace(bed) {
        let bed = bed.hosts(1).up()?;
        let host = &bed.hosts[0];
        let (rxe, outside) = (host.rxe(), host.outside());
        host.rxe_up()?;
        outside.ok(&format!("modprobe ipoib_rs ports={rxe}:1"))?;
        for _ in 0..3 {
            outside.ok("ip netns add guest && ip link set ib0 netns guest && ip -n guest link set ib0 up")?;
            none(&outside)?;
            let before = outside.ok("ip -n guest -o link show ib0")?;
            outside.ok("ip netns del guest")?;
            outside.wait_until("test -e /sys/class/net/ib0", Duration::from_secs(10))?;
            let after = outside.ok("ip -o link show ib0")?;
            ensure!(after != before && place(&outside)? == format!("{rxe}:1"), "{after}");
        }
        bed.finish()
    }
}

scenario! {
    /// Without the parameter there is none, and with replace=1 none for RoCE ports; what is no list is refused.
    fn none_come_unasked(bed) {
        let bed = bed.hosts(1).up()?;
        let host = &bed.hosts[0];
        let outside = host.outside();
        host.rxe_up()?;
        for parameters in ["", "replace=1", "ports=all", "ports=none replace=1", "ports=rxe9:1"] {
            outside.ok(&format!("modprobe ipoib_rs {parameters}"))?;
            none(&outside)?;
            outside.ok("modprobe -r ipoib_rs")?;
        }
        for ports in ["", ",", "rxe0", "rxe0:0", "rxe0:1,", "rxe0:1,all", "rxe0:-1", "ALL"] {
            let text = outside.run(&format!("modprobe ipoib_rs ports={ports}"))?.refused()?;
            ensure!(text.contains("Invalid argument"), "{ports}: {text}");
        }
        let log = outside.ok("dmesg")?;
        ensure!(log.contains("ipoib_rs: ports=rxe0:1,all: must be none, all, or a list"), "{log}");
        bed.finish()
    }
}
