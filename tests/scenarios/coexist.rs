// SPDX-License-Identifier: GPL-2.0

//! Beside the kernel's own driver, `ib_ipoib`: neither takes anything from the other.

use anyhow::{Context, Result, ensure};
use lab::bed::{Bed, Host};
use lab::machine::Kernel;
use lab::scenario;
use std::time::Duration;

const OURS: &str = "ipoib_rs";
const THEIRS: &str = "ib_ipoib";
/// Loads the modules that rdma-core has udev load for a port of an InfiniBand device.
const RDMA_CORE: &str = "/usr/lib/systemd/systemd-modules-load /etc/rdma/modules/infiniband.conf";

/// Returns true if a module is loaded.
fn loaded(host: &Host, module: &str) -> Result<bool> {
    Ok(host
        .run(&format!("test -d /sys/module/{module}"))?
        .success())
}

/// Checks which of the two are loaded.
fn expect_loaded(host: &Host, when: &str, modules: &[&str]) -> Result<()> {
    for module in [OURS, THEIRS] {
        ensure!(
            loaded(host, module)? == modules.contains(&module),
            "{when}: {module} is {}loaded",
            if modules.contains(&module) {
                "not "
            } else {
                ""
            }
        );
    }
    Ok(())
}

/// Checks that an interface is this driver's, of a link type.
fn expect_ours(host: &Host, interface: &str, kind: &str) -> Result<()> {
    let text = host.ok(&format!("ethtool -i {interface}"))?;
    ensure!(text.contains("driver: ipoib_rs"), "{interface}: {text}");
    let json: serde_json::Value =
        serde_json::from_str(&host.ok(&format!("ip -j -d link show {interface}"))?)?;
    ensure!(json[0]["linkinfo"]["info_kind"] == kind, "{json}");
    Ok(())
}

/// A host of each kernel: what one of these loads or unloads, it does for all that share the kernel.
fn kernels(bed: &Bed) -> &[Host] {
    &bed.hosts[..bed.machines().len()]
}

scenario! {
    /// Both orders of loading, both of unloading: who stays keeps what it has.
    #[on(both, infiniband)]
    fn loading_one_leaves_the_other(bed) {
        let bed = bed.up()?;
        bed.ports()?;
        let (a, b) = bed.pair()?;
        for (first, second) in [(THEIRS, OURS), (OURS, THEIRS)] {
            for host in kernels(&bed) {
                host.ok(&format!("modprobe {first} && modprobe {second}"))?;
            }
            expect_loaded(a, "at first", &[OURS, THEIRS])?;
            for host in [a, b] {
                if host.is_infiniband() {
                    // It has made one by itself.
                    host.ok("ip link set ib0 name ibc0")?;
                }
                host.ib_add("")?;
                host.ib_up()?;
                expect_ours(host, "ib0", "ipoib_rs")?;
            }
            a.ok(&format!("ping -q -c 3 -i 0.05 -W 5 {}", b.ip4()))?;

            for host in kernels(&bed) {
                host.ok("modprobe -r ib_ipoib")?;
            }
            expect_loaded(a, "without the C driver", &[OURS])?;
            a.run("ip link show ibc0")?.refused()?;
            a.ok(&format!("ping -q -c 3 -i 0.05 -W 5 {}", b.ip4()))?;

            for host in kernels(&bed) {
                host.ok("modprobe ib_ipoib && modprobe -r ipoib_rs")?;
            }
            for host in [a, b] {
                host.run("ip link show ib0")?.refused()?;
                if host.is_infiniband() {
                    host.ok("ip link show ib1")?;
                }
            }
            expect_loaded(a, "without this driver", &[THEIRS])?;
            for host in kernels(&bed) {
                host.ok("modprobe -r ib_ipoib")?;
            }
            expect_loaded(a, "at last", &[])?;
        }
        bed.finish()
    }
}

/// Brings up what `ib_ipoib` has made beside `ib0` on a port of InfiniBand, so that both are in the same groups.
fn join_groups(host: &Host) -> Result<()> {
    if !host.is_infiniband() {
        return Ok(());
    }
    // Linux answers ARP for the addresses of ib0 there, too, and would with an address that is gone soon.
    host.ok("sysctl -qw net.ipv4.conf.ib1.arp_ignore=1 && ip link set ib1 up")?;
    host.wait_until(
        "[ $(cat /sys/class/net/ib1/carrier) = 1 ]",
        Duration::from_secs(10),
    )
}

scenario! {
    /// `ib_ipoib` comes and goes, by modprobe and as udev has it loaded, and ib0 loses no packet and no group.
    #[on(infiniband)]
    fn traffic_passes_throughout(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        a.ok(&format!("ping -q -c 3 -i 0.2 -W 5 {}", b.ip4()))?;
        a.ok("test -s /etc/rdma/modules/infiniband.conf")
            .context("rdma-core's list of modules is not in the root")?;
        let index = a.ok("cat /sys/class/net/ib0/ifindex")?;
        let pings = a.spawn(&format!(
            "sh -c 'rounds=0
             while ! test -e /tmp/enough; do
                 rounds=$((rounds + 1))
                 ping -q -c 25 -i 0.02 -W 10 {} >/tmp/ping.log && grep \" 0% packet loss\" /tmp/ping.log && continue
                 cat /tmp/ping.log
                 exit 1
             done
             echo $rounds rounds done'",
            b.ip4()
        ))?;
        for load in ["modprobe ib_ipoib", RDMA_CORE, "modprobe rtnl-link-ipoib"] {
            for host in kernels(&bed) {
                host.outside().ok(load)?;
            }
            for host in [a, b] {
                expect_loaded(host, load, &[OURS, THEIRS])?;
                join_groups(host)?;
            }
            for host in kernels(&bed) {
                host.ok("modprobe -r ib_ipoib")?;
            }
            for host in [a, b] {
                expect_loaded(host, "unloaded", &[OURS])?;
                // They ask by the broadcast group, which ib_ipoib has left.
                host.ok("ip neigh flush dev ib0; ip -6 neigh flush dev ib0")?;
            }
            for address in [b.ip4(), b.ip6()] {
                a.ok(&format!("ping -q -c 2 -i 0.05 -W 5 {address}"))?;
            }
        }
        a.ok("touch /tmp/enough")?;
        let said = pings.wait(a.scaled(Duration::from_secs(30)))?.ok()?;
        ensure!(said.contains("rounds done") && !said.starts_with("0 "), "{said}");
        ensure!(a.ok("cat /sys/class/net/ib0/ifindex")? == index, "another ib0");
        bed.finish()
    }
}

scenario! {
    /// The alias of a link type loads the driver that has it, and no other.
    fn an_alias_loads_one_driver(bed) {
        let bed = bed.hosts(1).up()?;
        let host = &bed.hosts[0];
        for (alias, module) in [("rtnl-link-ipoib", THEIRS), ("rtnl-link-ipoib_rs", OURS)] {
            host.ok(&format!("modprobe {alias}"))?;
            expect_loaded(host, alias, &[module])?;
            host.ok(&format!("modprobe -r {module}"))?;
            expect_loaded(host, "unloaded", &[])?;
        }
        bed.finish()
    }
}

scenario! {
    /// `ip link add` with nothing loaded has the kernel load the driver of the type, and no other.
    fn ip_link_add_loads_one_driver(bed) {
        let bed = bed.up()?;
        bed.rxe()?;
        let (a, b) = bed.pair()?;
        expect_loaded(a, "at first", &[])?;
        for host in [a, b] {
            host.ok("ip link add link eth0 name ib0 type ipoib_rs")?;
            host.ib_up()?;
        }
        expect_loaded(a, "type ipoib_rs", &[OURS])?;
        a.ok(&format!("ping -q -c 3 -i 0.05 -W 5 {}", b.ip4()))?;
        for host in [a, b] {
            host.ok("modprobe -r ipoib_rs")?;
        }
        // It is loaded, and does not know RoCE.
        a.run("ip link add link eth0 name ib0 type ipoib")?.refused()?;
        expect_loaded(a, "type ipoib", &[THEIRS])?;
        a.ok("modprobe -r ib_ipoib")?;
        bed.finish()
    }
}

scenario! {
    /// `ib_ipoib` makes no child of an interface of this driver. A kernel without patch 0010 takes it for one of its own, and
    /// is unharmed.
    fn the_other_type_makes_no_child(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        let refused = match bed.builder().kernel() {
            Kernel::Stock => "Invalid argument",
            _ => "No such device",
        };
        a.ok("ip link add link ib0 name ib0.ffff type ipoib_rs")?;
        for parent in ["ib0", "ib0.ffff"] {
            for options in ["", "pkey 0xffff", "mode connected"] {
                let text = a
                    .run(&format!("ip link add link {parent} name child type ipoib {options}"))?
                    .refused()?;
                ensure!(text.contains(refused), "{text}");
                a.run("ip link show child")?.refused()?;
            }
        }
        expect_loaded(a, "type ipoib", &[OURS, THEIRS])?;
        a.ok(&format!("ping -q -c 3 -i 0.2 -W 5 {}", b.ip4()))?;
        bed.finish()
    }
}

scenario! {
    /// With replace=1 there are both link types, for the same interfaces.
    fn replace_adds_the_other_type(bed) {
        let bed = bed.up()?;
        bed.rxe()?;
        let (a, b) = bed.pair()?;
        for host in [a, b] {
            host.ok("modprobe ipoib_rs replace=1
                     ip link add link eth0 name ib0 type ipoib
                     ip link add link eth0 name ib1 type ipoib_rs
                     ip link add link ib1 name ib1.ffff type ipoib")?;
            host.ib_up()?;
            for (interface, kind) in [("ib0", "ipoib"), ("ib1", "ipoib_rs"), ("ib1.ffff", "ipoib")] {
                expect_ours(host, interface, kind)?;
                host.ok(&format!("test -e /proc/sys/net/ipoib/{interface}/reorder_window"))?;
            }
        }
        a.ok(&format!("ping -q -c 3 -i 0.05 -W 5 {}", b.ip4()))?;
        a.ok("ip link set ib0 type ipoib umcast 1 && ip -d link show ib0 | grep -q 'umcast 0*1'")?;

        // The C driver cannot have its type, and says so; nothing here is lost.
        let text = a.run("modprobe ib_ipoib")?.refused()?;
        ensure!(text.contains("resource busy"), "{text}");
        expect_loaded(a, "refused", &[OURS])?;
        a.ok(&format!("ping -q -c 3 -i 0.05 -W 5 {}", b.ip4()))?;

        a.ok("ip link del ib1")?;
        a.run("ip link show ib1.ffff")?.refused()?;
        for host in [a, b] {
            host.ok("modprobe -r ipoib_rs")?;
            host.run("ip link show ib0 || ip link show ib1")?.refused()?;
        }
        a.ok("modprobe ib_ipoib && modprobe -r ib_ipoib")?;
        bed.finish()
    }
}

scenario! {
    /// replace=1 is refused while `ib_ipoib` is loaded, with a line that says what to do.
    fn replace_takes_nothing_from_the_other(bed) {
        let bed = bed.hosts(1).up()?;
        bed.rxe()?;
        let host = &bed.hosts[0];
        host.ok("modprobe ib_ipoib")?;
        let text = host.run("modprobe ipoib_rs replace=1")?.refused()?;
        ensure!(text.contains("resource busy"), "{text}");
        expect_loaded(host, "replace=1", &[THEIRS])?;
        let said = |what: &str| -> Result<usize> {
            Ok(host.ok("dmesg")?.lines().filter(|line| line.contains(what)).count())
        };
        ensure!(said("ipoib_rs: replace=1: another driver has the link type ipoib")? == 1);
        ensure!(said("modprobe -r ib_ipoib")? == 1);
        host.run("ip link add link eth0 name ib0 type ipoib_rs && modprobe -r ipoib_rs")?.ok()?;
        host.ok("modprobe ipoib_rs && modprobe -r ipoib_rs && modprobe -r ib_ipoib")?;
        host.ok("modprobe ipoib_rs replace=1 && modprobe -r ipoib_rs")?;

        host.run("modprobe ipoib_rs replace=2")?.refused()?;
        ensure!(said("ipoib_rs: replace=2: must be 0 or 1")? == 1);
        host.run("modprobe ipoib_rs replace=yes")?.refused()?;
        expect_loaded(host, "refused", &[])?;
        bed.finish()
    }
}

scenario! {
    /// Three lines in modprobe.d make this driver the one for `type ipoib`, however that is asked for.
    fn modprobe_d_switches_replacing_on(bed) {
        let bed = bed.up()?;
        bed.rxe()?;
        let (a, b) = bed.pair()?;
        for host in [a, b] {
            // As in Documentation/using.rst.
            host.ok("printf '%s\\n' 'options ipoib_rs replace=1' 'blacklist ib_ipoib' \\
                         'alias rtnl-link-ipoib ipoib_rs' >/etc/modprobe.d/replace.conf")?;
            host.outside().ok(RDMA_CORE)?;
        }
        expect_loaded(a, RDMA_CORE, &[])?;
        for host in [a, b] {
            host.ok("ip link add link eth0 name ib0 type ipoib")?;
            host.outside().ok(RDMA_CORE)?;
            expect_ours(host, "ib0", "ipoib")?;
            expect_loaded(host, "type ipoib", &[OURS])?;
            host.ib_up()?;
        }
        a.ok(&format!("ping -q -c 3 -i 0.05 -W 5 {}", b.ip4()))?;
        bed.finish()
    }
}
