// SPDX-License-Identifier: GPL-2.0

//! This checkout's interfaces on InfiniBand ports, as users see them: how they come and go, their children, their
//! addresses.

use super::fabric::CONFIGFS;
use super::mads::UMAD;
use super::manager::Manager;
use super::{EXCLUSIVE, Port, active, device, hca, inhabit, make};
use crate::interop::neighbour;
use crate::programs::udev;
use anyhow::{Context, Result, ensure};
use lab::bed::{Bed, Host};
use lab::scenario;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(15);
const PARTITIONS: &str = "/tmp/partitions.conf";

/// Interfaces that come by themselves on a fabric of a topology: each host's HCA has one in the host's namespace,
/// which is not up. The default partition and 0x0001 have all ports as members.
fn by_themselves(bed: &Bed, topology: &str, parameters: &str) -> Result<Manager> {
    let outside = bed.hosts.first().context("no host")?.outside();
    outside.ok(&format!(
        "modprobe ipoib_rs {parameters}
         printf 'Default=0x7fff, ipoib : ALL=full;\\nBlue=0x0001, ipoib : ALL=full;\\n' >{PARTITIONS}"
    ))?;
    make(&outside, topology)?;
    inhabit(bed, &format!("-P {PARTITIONS}"))
}

fn file(host: &Host, path: &str) -> Result<String> {
    Ok(host
        .ok(&format!("cat /sys/class/net/{path}"))?
        .trim()
        .to_owned())
}

/// Paths and groups in debugfs, in the C driver's format.
fn as_the_c_driver_shows(from: &Host, to: &Host) -> Result<()> {
    // A namespace's /sys has no debugfs.
    let outside = from.outside();
    let directory = outside.ok("ls -d /sys/kernel/debug/ipoib_rs/ib0*")?;
    let text = |name: &str| -> Result<String> {
        let inode = from.ok("stat -L -c %i /proc/self/ns/net")?;
        let mine = directory.lines().find(|line| line.ends_with(inode.trim()));
        outside.ok(&format!("cat {}/{name}", mine.context("no directory")?))
    };
    let (path, mcg) = (text("path")?, text("mcg")?);
    let guid = Port::of(to, &hca(to))?.guid;
    let groups = [48, 32, 16, 0]
        .map(|at| format!("{:x}", (guid >> at) & 0xffff))
        .join(":");
    let lid = Port::of(to, &hca(to))?.lid;
    let wanted = format!(
        "GID: fe80:0:0:0:{groups}\n  complete:    yes\n  DLID:     {lid:#06x}\n  SL:            0\n  rate: "
    );
    ensure!(path.contains(&wanted), "{wanted} {path}");
    let wanted = "GID: ff12:401b:ffff:0:0:0:ffff:ffff\n  queuelen:         0\n  complete:       yes\n  send_only:       no\n\n";
    ensure!(mcg.contains(wanted), "{mcg}");
    Ok(())
}

scenario! {
    /// With `replace=1` each InfiniBand port has an `ib0` of the type ipoib, as ib_ipoib gives it: in the namespace of
    /// its device, of the port's P_Key, on its device in sysfs. It goes with the device.
    #[on(lockdep, both)]
    fn ports_have_interfaces(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = by_themselves(&bed, "pair", "replace=1")?;
        let (a, b) = bed.pair()?;
        for host in [a, b] {
            let text = host.ok("ip -d link show ib0")?;
            ensure!(text.contains("ipoib pkey  0xffff") || text.contains("ipoib pkey 0xffff"), "{text}");
            ensure!(file(host, "ib0/dev_port")? == "0" && file(host, "ib0/dev_id")? == "0x0");
            ensure!(file(host, "ib0/ifindex")? == file(host, "ib0/iflink")?);
            ensure!(!file(host, "ib0/uevent")?.contains("DEVTYPE"));
            // Which is what ibdev2netdev looks at.
            host.ok(&format!("test -d /sys/class/net/ib0/device/infiniband/{}", hca(host)))?;
            host.ib_up()?;
        }
        a.ok(&format!("ping -q -c 3 -i 0.2 -W 5 {}", b.ip4()))?;
        as_the_c_driver_shows(a, b)?;
        let outside = a.outside();
        for queue in ["device", "rtnl"] {
            // The queue has a rescuer.
            outside.ok(&format!("cat /proc/[0-9]*/comm | grep -q 'kworker/R-ipoib_rs_{queue}'"))?;
        }
        outside.run("modprobe ib_ipoib")?.refused()?;
        // To the other host, where there is one already, and back.
        let (home, other) = (a.netns().context("a host")?, b.netns().context("a host")?);
        a.ok(&format!("rdma dev set {} netns {other}", hca(a)))?;
        a.run("ip link show ib0")?.refused()?;
        b.ok("test -e /sys/class/net/ib1")?;
        b.ok(&format!("rdma dev set {} netns {home}", hca(a)))?;
        b.run("ip link show ib1")?.refused()?;
        ensure!(file(a, "ib0/operstate")? == "down");
        manager.kill()?;
        outside.run_for("ib-hwsim down && modprobe -r ib_hwsim", Duration::from_secs(60))?.ok()?;
        for host in [a, b] {
            host.run("ip link show ib0")?.refused()?;
        }
        outside.ok("modprobe -r ipoib_rs")?;
        bed.finish()
    }
}

/// Three HCAs on a switch, of one port and twice two, the last of which has no cable.
const SEVERAL: &str = "set -e
    modprobe ib_hwsim && mount -t configfs configfs /sys/kernel/config
    mkdir /sys/kernel/config/ib_hwsim/several && cd /sys/kernel/config/ib_hwsim/several
    mkdir hcas/h1 hcas/h2 hcas/h3 switches/s1 cables/c1 cables/c2 cables/c3 cables/c4
    echo 2 | tee hcas/h2/ports hcas/h3/ports
    echo h1/1 s1/1 >cables/c1/ends && echo h2/1 s1/2 >cables/c2/ends
    echo h2/2 s1/3 >cables/c3/ends && echo h3/1 s1/4 >cables/c4/ends
    echo 1 >live";

/// Prints a line for each IPoIB interface, by which udev may know it: the end of its address, which is its port's GUID, and
/// its files in sysfs.
const KNOWN_BY: &str = "cd /sys/class/net
    for name in *; do
        [ $(cat $name/type) = 32 ] || continue
        echo $(tail -c 24 $name/address) $(readlink -f $name/device) $(cat $name/dev_port $name/dev_id)
    done";

/// The second port of an HCA, by a name of its own.
const RULE: &str =
    r#"SUBSYSTEM=="net", ACTION=="add", ATTR{type}=="32", ATTR{dev_port}=="1", NAME="second""#;

scenario! {
    /// Of several HCAs with several ports, those in the list have an interface each, and no others. udev knows them by what
    /// it knows ib_ipoib's by, and gives them other names.
    #[on(lockdep)]
    fn listed_ports_have_interfaces(bed) {
        let bed = bed.one_machine().hosts(1).up()?;
        let outside = bed.hosts[0].outside();
        outside.ok(SEVERAL)?;
        let manager = Manager::start(&outside, &device(1), "")?;
        active(&outside, &device(2))?;
        outside.ok("modprobe ib_ipoib")?;
        let theirs = outside.ok(KNOWN_BY)?;
        ensure!(theirs.lines().count() == 5, "{theirs}");
        outside.ok("modprobe -r ib_ipoib")?;
        outside.ok(&format!("mkdir -p /etc/udev/rules.d && echo '{RULE}' >/etc/udev/rules.d/70-second.rules"))?;
        udev(&outside)?;

        // In no order, with one that is not there.
        let list = format!("{}:2,{}:1,nosuch0:1,{}:1", device(2), device(3), device(1));
        outside.ok(&format!("modprobe ipoib_rs ports={list} && udevadm settle"))?;
        let ours = outside.ok(KNOWN_BY)?;
        ensure!(ours.lines().count() == 3, "{ours}");
        for line in ours.lines() {
            ensure!(theirs.lines().any(|their| their == line), "{line}, of {theirs}");
        }
        let mut places = Vec::new();
        // In the order of the alphabet.
        for name in outside.ok("cd /sys/class/net && grep -lx 32 */type | cut -d/ -f1")?.lines() {
            let links: serde_json::Value = serde_json::from_str(&outside.ok(&format!("ip -j -d link show {name}"))?)?;
            let data = &links[0]["linkinfo"]["info_data"];
            places.push((data["device"].as_str().unwrap_or_default().to_owned(), data["port"].to_string()));
            let renamed = if name == "second" { "4" } else { "1" };
            ensure!(file(&outside, &format!("{name}/name_assign_type"))? == renamed, "{name}");
        }
        ensure!(places.pop() == Some((device(2), "\"2\"".to_owned())), "{places:?}");
        places.sort();
        let others = [device(1), device(3)].map(|device| (device, "\"1\"".to_owned()));
        ensure!(places == others, "{places:?}");
        // The second port of an HCA carries frames.
        outside.ok(&format!(
            "set -e
             for name in $(cd /sys/class/net && grep -lx 32 */type | cut -d/ -f1); do
                 ip -d link show $name | grep -q 'device {} port 1 ' && first=$name
             done
             ip netns add other && ip link set second netns other
             ip addr add 10.9.0.1/24 dev $first && ip link set $first up
             ip -n other addr add 10.9.0.2/24 dev second && ip -n other link set second up",
            device(1)
        ))?;
        outside.wait_until("ping -q -c 1 -W 1 10.9.0.2", Duration::from_secs(20))?;
        outside.ok("ip netns exec other ping -q -c 3 -i 0.1 -W 2 -s 10000 10.9.0.1 && ip netns del other")?;
        outside.ok("udevadm control --exit && modprobe -r ipoib_rs")?;
        manager.end()?;
        bed.finish()
    }
}

scenario! {
    /// A port has no network interface: it is named, or any IPoIB interface on it is.
    fn a_port_is_named(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let outside = bed.hosts[0].outside();
        outside.ok("modprobe ib_ipoib && modprobe ipoib_rs")?;
        make(&outside, "pair")?;
        let manager = inhabit(&bed, "")?;
        let (a, b) = bed.pair()?;
        for host in [a, b] {
            host.ok("ip link set ib0 name ibc0")?;
        }
        a.ok(&format!("ip link add name ib0 type ipoib_rs device {} port 1", hca(a)))?;
        b.ok("ip link add link ibc0 name ib0 type ipoib_rs")?;
        for host in [a, b] {
            ensure!(host.ok("ip -d link show ib0")?.contains(&format!("device {} port 1", hca(host))));
            host.ib_up()?;
        }
        a.ok(&format!("ping -q -c 3 -i 0.2 -W 5 {}", b.ip4()))?;
        let text = a
            .run(&format!("ip link add name ib7 type ipoib_rs device {}", hca(b)))?
            .refused()?;
        ensure!(text.contains("No usable RDMA device has that name"), "{text}");
        let text = a
            .run(&format!("ip link add name ib7 type ipoib_rs device {} port 2", hca(a)))?
            .refused()?;
        ensure!(text.contains("The RDMA device has no usable port"), "{text}");
        manager.end()?;
        bed.finish()
    }
}

scenario! {
    /// Children by sysfs as NetworkManager makes them: named by the P_Key, one for each partition, up and down with
    /// the parent, deleted by the P_Key.
    #[on(lockdep, both)]
    fn children_by_sysfs(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = by_themselves(&bed, "pair", "ports=all")?;
        let (a, b) = bed.pair()?;
        let write = |host: &Host, name: &str, text: &str| {
            host.run(&format!("echo {text} | tee /sys/class/net/ib0/{name}"))
        };
        for host in [a, b] {
            host.ib_up()?;
            write(host, "create_child", "0x8001")?.ok()?;
            ensure!(file(host, "ib0.8001/pkey")? == "0x8001");
            ensure!(file(host, "ib0.8001/parent")? == "ib0");
            ensure!(file(host, "ib0.8001/name_assign_type")? == "2");
            ensure!(host.ok("ip -o link show ib0.8001")?.contains("ib0.8001@ib0"));
            for text in ["0x8001", "1", "0x0001", "0xffff"] {
                let said = write(host, "create_child", text)?.refused()?;
                ensure!(said.contains("not unique"), "{text}: {said}");
            }
            host.ok(&format!(
                "ip link set ib0 down && ip link set ib0 up
                 ip addr replace {}/24 dev ib0
                 ip addr add 10.2.0.{}/24 dev ib0.8001",
                host.ip4(),
                host.number()
            ))?;
        }
        for address in ["10.2.0.2", &b.ip4()] {
            a.wait_until(&format!("ping -q -c 1 -W 1 {address}"), LIMIT)?;
        }
        // One that has no partition yet waits; netlink may make several for one partition.
        write(a, "create_child", "0x9999")?.ok()?;
        a.ok("ip link set ib0.9999 up && ip link add link ib0 name second type ipoib_rs pkey 0x8001")?;
        ensure!(a.ok("ip -o link show ib0.9999")?.contains("NO-CARRIER"));
        for (text, name) in [("0x8001", "ib0.8001"), ("0x1999", "ib0.9999")] {
            write(a, "delete_child", text)?.ok()?;
            write(a, "delete_child", text)?.refused()?;
            a.wait_until(&format!("! test -e /sys/class/net/{name}"), LIMIT)?;
        }
        a.ok("ip link show second")?;
        // Whoever makes one anew waits until the old one is gone.
        for _ in 0..20 {
            write(a, "create_child", "0x8001")?.ok()?;
            write(a, "delete_child", "0x8001")?.ok()?;
        }
        manager.end()?;
        bed.finish()
    }
}

scenario! {
    /// Files are written while interfaces are deleted, renamed and made: nothing hangs, and nobody is told what is
    /// not so.
    #[on(lockdep)]
    fn sysfs_races_removal(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = by_themselves(&bed, "pair", "")?;
        let (a, _) = bed.pair()?;
        let writers = [
            "create_child 0x8001",
            "create_child 0x8002",
            "delete_child 0x8001",
            "delete_child 0x8002",
            "umcast 1",
            "mode connected",
            "mode datagram",
        ]
        .map(|what| {
            let (name, text) = what.split_once(' ').unwrap_or_default();
            a.repeat(&format!(
                "{{ echo {text} >/sys/class/net/ib0/{name}; cat /sys/class/net/ib0*/parent; }} 2>/dev/null >&2"
            ))
        });
        for _ in 0..30 {
            a.ok(&format!(
                "ip link add name ib0 type ipoib_rs device {}
                 ip link set ib0 up
                 ip link add link ib0 name ib0x type ipoib_rs pkey 0x8001
                 ip link set ib0 down
                 ip link set ib0 up
                 ip link del ib0",
                hca(a)
            ))?;
        }
        for writer in writers {
            writer?.stop()?;
        }
        let left = a.ok("ip -o link show type ipoib_rs")?;
        ensure!(left.is_empty(), "{left}");
        manager.end()?;
        bed.finish()
    }
}

scenario! {
    /// The GUID of the address can be changed while the interface is down, and nothing else of it. One that the port
    /// does not have is waited for; with the port's own the interface works again. Children have their parent's.
    fn the_guid_of_the_address(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = by_themselves(&bed, "pair", "ports=all")?;
        let (a, b) = bed.pair()?;
        a.ok("echo 0x8001 >/sys/class/net/ib0/create_child")?;
        let own = file(a, "ib0/address")?;
        let (rest, guid) = own.split_at(36);
        for (wrong, reason) in [
            (format!("00:11:22:33{}", &own[11..]), "Invalid argument"),
            (format!("{}:fe:81{}", &own[..11], &own[17..]), "Invalid argument"),
            (format!("{rest}00:00:00:00:00:00:00:00"), "Invalid argument"),
            ("02:00:5e:00:53:01".to_owned(), ""),
        ] {
            let text = a.run(&format!("ip link set ib0 address {wrong}"))?.refused()?;
            ensure!(text.contains(reason), "{wrong}: {text}");
            ensure!(file(a, "ib0/address")? == own);
        }
        let other = format!("{rest}02:00:5e:ff:fe:00:53:01");
        a.ok(&format!("ip link set ib0 address {other}"))?;
        ensure!(file(a, "ib0/address")? == other);
        a.wait_until("grep -q 02:00:5e:ff:fe:00:53:01 /sys/class/net/ib0.8001/address", LIMIT)?;
        for host in [a, b] {
            host.ok(&format!("ip addr add {}/24 dev ib0", host.ip4()))?;
        }
        // While it waits, the device is asked for its ports, and not for their partitions, of which it may have many.
        let (outside, faults) = (a.outside(), format!("{CONFIGFS}/pair/hcas/h1/faults"));
        outside.ok(&format!("printf 'query_port EIO at 100000\\nquery_pkey EIO at 100000\\n' >{faults}"))?;
        a.ok("ip link set ib0 up")?;
        b.ok("ip link set ib0 up")?;
        std::thread::sleep(a.scaled(Duration::from_millis(2500)));
        ensure!(a.ok("ip -o link show ib0")?.contains("NO-CARRIER"));
        let calls = outside.ok(&format!("cat {faults}; echo clear >{faults}"))?;
        // To ask the device again sends no link messages.
        let news = a.ok("(timeout 3 ip monitor link; true) & sleep 1; ip link set lo mtu 65535; wait")?;
        ensure!(news.contains("lo: ") && !news.contains("ib0"), "{news}");
        let asked = |verb: &str| calls.lines().any(|line| line.starts_with(verb) && !line.contains("calls 0"));
        ensure!(asked("query_port") && !asked("query_pkey"), "{calls}");
        let text = a.run(&format!("ip link set ib0 address {own}"))?.refused()?;
        ensure!(text.contains("busy"), "{text}");
        a.ok(&format!("ip link set ib0 down && ip link set ib0 address {rest}{guid} && ip link set ib0 up"))?;
        a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), LIMIT)?;
        a.wait_until(&format!("grep -q {guid} /sys/class/net/ib0.8001/address"), LIMIT)?;
        manager.end()?;
        bed.finish()
    }
}

const GUID: &str = include_str!("../../guest/hwsim/control/guid.py");

/// Asks the subnet manager to "set" or "delete" a second GUID of the port of a host.
pub(super) fn ask_for_guid(host: &Host, method: &str, guid: &str) -> Result<()> {
    let port = Port::of(host, &hca(host))?;
    let (lid, sm_lid) = (port.lid.to_string(), port.sm_lid.to_string());
    let arguments = [&*hca(host), &lid, &sm_lid, method, guid];
    host.python(&format!("{UMAD}{GUID}"), &arguments)?.ok()?;
    Ok(())
}

scenario! {
    /// An interface has a GUID that the port lacks: when the subnet manager adds it, the interface and its child work with
    /// it, in both modes. When it is taken away, they wait again. The port's other interface does not restart.
    #[on(lockdep)]
    fn the_manager_adds_a_guid(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = by_themselves(&bed, "pair", "ports=all")?;
        let (a, b) = bed.pair()?;
        let (raw, text) = ("0x02005efffe005301", "02:00:5e:ff:fe:00:53:01");
        a.ok(&format!(
            "set -e
             ip link add name other type ipoib_rs device {}
             ip addr add 10.4.0.1/24 dev other && ip link set other up
             address=$(cat /sys/class/net/ib0/address)
             ip link set ib0 address ${{address%:??:??:??:??:??:??:??:??}}:{text}",
            hca(a)
        ))?;
        for host in [a, b] {
            host.ok(&format!(
                "set -e
                 echo 0x8001 >/sys/class/net/ib0/create_child
                 ip addr add {}/24 dev ib0 && ip addr add {}/64 dev ib0 nodad
                 ip addr add 10.2.0.{}/24 dev ib0.8001
                 ip link set ib0 up",
                host.ip4(), host.ip6(), host.number()
            ))?;
        }
        b.ok("ip addr add 10.4.0.2/24 dev ib0")?;
        let other = "ping -q -c 1 -W 1 10.4.0.2";
        a.wait_until(other, LIMIT)?;
        let count = || a.ok("ethtool -S other | grep ' restarts:'");
        let restarts = count()?;
        let waits = "ip -o link show ib0 | grep -q NO-CARRIER && ip -o link show ib0.8001 | grep -Eq 'NO-CARRIER|LOWERLAYERDOWN'";
        for mode in ["datagram", "connected"] {
            for host in [a, b] {
                host.ok(&format!("for name in ib0 ib0.8001; do echo {mode} >/sys/class/net/$name/mode || exit 1; done"))?;
            }
            a.wait_until(waits, LIMIT)?;
            ask_for_guid(a, "set", raw)?;
            for (from, to) in [(a, b), (b, a)] {
                for target in [to.ip4(), to.ip6(), format!("10.2.0.{}", to.number())] {
                    from.wait_until(&format!("ping -q -c 1 -W 1 {target}"), LIMIT)
                        .with_context(|| format!("{mode}, to {target}"))?;
                    from.ok(&format!("ping -q -c 3 -i 0.05 -W 5 -s 10000 {target}"))?;
                }
            }
            let address = file(a, "ib0/address")?;
            ensure!(address.ends_with(text) && neighbour(b, &a.ip4(), "ib0")? == address, "{address}");
            // A new interface gets it, too, while the port has it.
            a.ok(&format!("ip link add name third address {address} type ipoib_rs device {}", hca(a)))?;
            ensure!(file(a, "third/address")?.ends_with(text));
            a.ok("ip link del third")?;
            ask_for_guid(a, "delete", raw)?;
            a.wait_until(waits, LIMIT)?;
            a.ok(other)?;
        }
        ensure!(count()? == restarts);
        manager.end()?;
        bed.finish()
    }
}

scenario! {
    /// The device has no virtual functions, and says so.
    fn virtual_functions_are_the_devices(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = by_themselves(&bed, "pair", "ports=all")?;
        let (a, _) = bed.pair()?;
        for option in [
            "state enable",
            "node_guid 00:11:22:33:44:55:66:77",
            "port_guid 00:11:22:33:44:55:66:77",
        ] {
            let text = a.run(&format!("ip link set ib0 vf 0 {option}"))?.refused()?;
            ensure!(text.contains("not supported"), "{option}: {text}");
        }
        ensure!(Port::of(a, &hca(a))?.guid != 0);
        manager.end()?;
        bed.finish()
    }
}

scenario! {
    /// The administrator of another user namespace makes no interfaces on a device of the host's, and does not configure its
    /// virtual functions by an interface that it was given.
    ///
    /// Only Debian's kernel has user namespaces.
    #[on(stock)]
    fn another_user_namespace_configures_no_device(bed) {
        let bed = bed.one_machine().hosts(1).up()?;
        let host = bed.hosts[0].outside();
        host.ok("modprobe ipoib_rs")?;
        make(&host, "pair")?;
        let device = device(1);
        let container = host.spawn("unshare --user --map-root-user --net sh -c 'echo $$ >/tmp/container; exec sleep 1000'")?;
        host.wait_until("[ -s /tmp/container ]", LIMIT)?;
        let inside = "nsenter --preserve-credentials --user --net --target $(cat /tmp/container)";
        let add = format!("ip link add name ib9 type ipoib_rs device {device}");
        let text = host.run(&format!("{inside} {add}"))?.refused()?;
        ensure!(text.contains("The RDMA device belongs to another network namespace"), "{text}");
        host.ok(&format!("{add} && ip link set ib9 netns $(cat /tmp/container) && {inside} ip link set ib9 up"))?;
        for option in ["state enable", "node_guid 00:11:22:33:44:55:66:77"] {
            let text = host.run(&format!("{inside} ip link set ib9 vf 0 {option}"))?.refused()?;
            ensure!(text.contains("Operation not permitted"), "{option}: {text}");
        }
        container.stop()?;
        bed.finish()
    }
}
