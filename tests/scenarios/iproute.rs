// SPDX-License-Identifier: GPL-2.0

//! `ip link … type ipoib_rs` with the iproute2 plugin, and without it.

use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::scenario;
use serde_json::{Value, json};

/// The environment of an `ip` that finds no plugin.
const BARE: &str = "IP_LIB_DIR=/nonexistent";

const ATTRIBUTES: &str = include_str!("../guest/iproute/attributes.py");

/// The line of `ip -d link show ib0` that describes the type, after its name.
fn details(host: &Host, kind: &str) -> Result<String> {
    let text = host.ok("ip -d link show ib0")?;
    let line = text
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(kind));
    Ok(line
        .with_context(|| format!("no {kind} in {text}"))?
        .to_owned())
}

/// Link type as `ip -j -d link show ib0` shows it.
fn info(host: &Host) -> Result<Value> {
    let links: Value = serde_json::from_str(&host.ok("ip -j -d link show ib0")?)?;
    Ok(links[0]["linkinfo"].clone())
}

scenario! {
    /// Each option at creation is shown, in words and as JSON.
    #[on(both)]
    fn options_are_taken_and_shown(bed) {
        let bed = bed.hosts(1).up()?;
        bed.rxe()?;
        let host = &bed.hosts[0];
        host.ok("modprobe ipoib_rs")?;
        for (options, mode, umcast) in [
            ("", "datagram", "0000"),
            ("pkey 0xffff", "datagram", "0000"),
            ("pkey 0x7fff", "datagram", "0000"),
            ("pkey 65535", "datagram", "0000"),
            ("mode datagram", "datagram", "0000"),
            ("mode connected", "connected", "0000"),
            ("umcast 0", "datagram", "0000"),
            ("umcast 1", "datagram", "0001"),
            ("umcast 1 pkey 0xffff mode connected", "connected", "0001"),
        ] {
            host.ok(&format!("ip link add link eth0 name ib0 type ipoib_rs {options}"))?;
            let text = details(host, "ipoib_rs ")?;
            let device = host.rxe();
            let shown = format!("pkey 0xffff mode {mode} umcast {umcast} device {device} port 1 ");
            ensure!(text.starts_with(&shown), "{options}: {text}");
            let expected = json!({
                "info_kind": "ipoib_rs",
                "info_data": { "key": "0xffff", "mode": mode, "umcast": umcast, "device": device, "port": "1" },
            });
            let info = info(host)?;
            ensure!(info == expected, "{options}: {info}");
            ensure!(host.ok("cat /sys/class/net/ib0/mode")?.trim() == mode, "{options}");
            host.ok("ip link del ib0")?;
        }
        bed.finish()
    }
}

scenario! {
    /// Options change alone and together; the P_Key cannot.
    fn options_are_changed(bed) {
        let bed = bed.hosts(1).up()?;
        bed.rxe()?;
        let host = &bed.hosts[0];
        host.ok("modprobe ipoib_rs")?;
        host.ok("ip link add link eth0 name ib0 type ipoib_rs")?;
        for (options, shown) in [
            ("mode connected", "mode connected umcast 0000 "),
            ("umcast 1", "mode connected umcast 0001 "),
            ("mode datagram umcast 0", "mode datagram umcast 0000 "),
            ("pkey 0xffff mode connected", "mode connected umcast 0000 "),
        ] {
            host.ok(&format!("ip link set ib0 type ipoib_rs {options}"))?;
            let text = details(host, "ipoib_rs ")?;
            ensure!(text.contains(shown), "{options}: {text}");
        }
        let text = host.run("ip link set ib0 type ipoib_rs pkey 0x8001")?.refused()?;
        ensure!(text.contains("P_Key"), "{text}");
        bed.finish()
    }
}

scenario! {
    /// The type ipoib and this one are described in the same words and fields, but for the port, which the other
    /// one does not have.
    fn it_is_shown_as_ipoib_is(bed) {
        let bed = bed.hosts(1).up()?;
        bed.rxe()?;
        let host = &bed.hosts[0];
        let mut seen = Vec::new();
        host.ok("modprobe ipoib_rs replace=1")?;
        for kind in ["ipoib", "ipoib_rs"] {
            host.ok(&format!("ip link add link eth0 name ib0 type {kind} pkey 0xffff mode connected umcast 1"))?;
            let (text, mut data) = (details(host, &format!("{kind} "))?, info(host)?["info_data"].clone());
            let place = format!("device {} port 1 ", host.rxe());
            ensure!(text.contains(&place) == (kind == "ipoib_rs"), "{kind}: {text}");
            if let Some(data) = data.as_object_mut() {
                data.retain(|key, _| !matches!(key.as_str(), "device" | "port"));
            }
            seen.push((text.replace(&place, ""), data));
            host.ok("ip link del ib0")?;
        }
        ensure!(seen[0] == seen[1], "{seen:?}");
        bed.finish()
    }
}

scenario! {
    /// An interface is made on a port that is named, without the interface under it; what does not exist or does
    /// not agree is refused in words.
    #[on(both)]
    fn the_port_is_named(bed) {
        let bed = bed.up()?;
        bed.rxe()?;
        let (a, b) = bed.pair()?;
        for host in [a, b] {
            let rxe = host.rxe();
            host.ok(&format!("modprobe ipoib_rs && ip link add name ib0 type ipoib_rs device {rxe}"))?;
            ensure!(details(host, "ipoib_rs ")?.contains(&format!(" device {rxe} port 1 ")));
            host.ok(&format!(
                "ip link add link eth0 name ib1 type ipoib_rs device {rxe} port 1 && ip link del ib1
                 ip link add link ib0 name ib1 type ipoib_rs port 1 device {rxe} && ip link del ib1
                 ip link set ib0 type ipoib_rs device {rxe} port 1"
            ))?;
            host.ib_up()?;
        }
        a.ok(&format!("ping -q -c 3 -i 0.2 -W 5 {}", b.ip4()))?;
        let rxe = a.rxe();
        for (options, reason) in [
            ("type ipoib_rs", "Specify link IFNAME"),
            ("type ipoib_rs port 1", "A port requires a device"),
            ("type ipoib_rs device nosuch0", "No usable RDMA device has that name"),
            (&format!("type ipoib_rs device {rxe}x"), "No usable RDMA device has that name"),
            (&format!("type ipoib_rs device {rxe} port 2"), "The RDMA device has no usable port"),
            (&format!("type ipoib_rs device {rxe} port 4294967295"), "The RDMA device has no usable port"),
            (&format!("type ipoib_rs device {rxe} port 0"), "port must be a number, from 1"),
            (&format!("type ipoib_rs device {}", "x".repeat(64)), "device must be the name of an RDMA device"),
            ("type ipoib_rs device", "option \"device\" needs a value"),
            ("link lo type ipoib_rs device rxe0", "The link is neither"),
            ("link if4711 type ipoib_rs", "The link does not exist"),
            (&format!("link if4711 type ipoib_rs device {rxe}"), "The link does not exist"),
        ] {
            let text = a.run(&format!("ip link add name ib7 {options}"))?.refused()?;
            ensure!(text.contains(reason), "{options}: {text}");
            a.run("ip link show ib7")?.refused()?;
        }
        let text = a.run("ip link set ib0 type ipoib_rs port 2")?.refused()?;
        ensure!(text.contains("port of an interface cannot be changed"), "{text}");
        bed.finish()
    }
}

scenario! {
    /// Attributes that no `ip` would send are refused: too short, too long, without an end, unknown.
    fn malformed_attributes_are_refused(bed) {
        let bed = bed.hosts(1).up()?;
        bed.rxe()?;
        let host = &bed.hosts[0];
        host.ok("modprobe ipoib_rs")?;
        let text = host.python(ATTRIBUTES, &[&host.rxe()])?.ok()?;
        ensure!(text.contains("16 requests answered"), "{text}");
        host.run("ip -o link show type ipoib_rs | grep .")?.refused()?;
        bed.finish()
    }
}

scenario! {
    /// `help` is there in both ways, without a kernel that has the type.
    fn help_is_there(bed) {
        let bed = bed.hosts(1).up()?;
        let host = &bed.hosts[0];
        let usage = "Usage: ... ipoib_rs [ device DEVICE [ port PORT ] ]";
        ensure!(host.ok("ip link help ipoib_rs")?.contains(usage));
        let text = host.run("ip link add name ib0 type ipoib_rs help")?.refused()?;
        ensure!(text.contains(usage), "{text}");
        bed.finish()
    }
}

scenario! {
    /// Nonsense is refused with a reason, by the plugin or by the kernel, and changes nothing.
    fn nonsense_is_refused(bed) {
        let bed = bed.hosts(1).up()?;
        bed.rxe()?;
        let host = &bed.hosts[0];
        host.ok("modprobe ipoib_rs")?;
        host.ok("ip link add link eth0 name ib0 type ipoib_rs")?;
        let before = details(host, "ipoib_rs ")?;
        for (options, reason) in [
            ("speed 7", "unknown option \"speed\""),
            ("pkey", "option \"pkey\" needs a value"),
            ("mode connected umcast", "option \"umcast\" needs a value"),
            ("pkey 0x10000", "pkey must be a number, at most 0xffff"),
            ("mode foo", "mode must be datagram or connected"),
            ("umcast 2", "umcast must be 0 or 1"),
            ("pkey 0x8000", "P_Key must not be 0x0000 or 0x8000"),
        ] {
            for command in [
                "ip link add link eth0 name ib7",
                "ip link set ib0",
            ] {
                let text = host.run(&format!("{command} type ipoib_rs {options}"))?.refused()?;
                ensure!(text.contains(reason), "{command}, {options}: {text}");
            }
        }
        host.run("ip link show ib7")?.refused()?;
        let after = details(host, "ipoib_rs ")?;
        ensure!(before == after, "{before} became {after}");
        bed.finish()
    }
}

scenario! {
    /// Without the plugin an interface is made with the default options and has the rest in sysfs;
    /// `ip` refuses the options itself.
    fn the_driver_works_without_it(bed) {
        let bed = bed.up()?;
        bed.rxe()?;
        let (a, b) = bed.pair()?;
        for host in [a, b] {
            host.ok("modprobe ipoib_rs")?;
            let text = host
                .run(&format!("{BARE} ip link add link eth0 name ib0 type ipoib_rs mode connected"))?
                .refused()?;
            ensure!(text.contains("Garbage instead of arguments"), "{text}");
            host.ok(&format!("{BARE} ip link add link eth0 name ib0 type ipoib_rs"))?;
            let text = host.ok(&format!("{BARE} ip -d link show ib0"))?;
            ensure!(text.contains("ipoib_rs") && !text.contains("pkey"), "{text}");
            host.ib_up()?;
        }
        a.ok(&format!("ping -c 1 -W 5 {}", b.ip4()))?;
        for host in [a, b] {
            host.ok("echo connected >/sys/class/net/ib0/mode")?;
            ensure!(details(host, "ipoib_rs ")?.contains("mode connected"));
        }
        a.wait_until(&format!("ping -c 1 -W 1 {}", b.ip4()), std::time::Duration::from_secs(15))?;
        bed.finish()
    }
}
