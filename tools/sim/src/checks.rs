// SPDX-License-Identifier: GPL-2.0

//! The end of a history: all is healed, counters are read, and all goes away.

use crate::fabric;
use crate::hands::{DEBUG, load, scarce};
use crate::host::{away, exists, ip, set_variable};
use crate::program::{inside, run};
use crate::world::World;
use anyhow::{Context, Result, ensure};
use sim::draw::VARIABLES;
use sim::plan::{Driver, Fault, Host, HostSetting, Interface, Mode};
use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// After so long without a fault, each host reaches each other one.
pub(crate) const HEALED: Duration = Duration::from_secs(10);

/// After so long in connected mode, hosts have connections: no peer that has failed is avoided for longer.
const CONNECTED: Duration = Duration::from_secs(70);

/// Frames that are under way have so long to arrive.
const SETTLED: Duration = Duration::from_secs(2);

/// Program that prints the counters of all interfaces.
const READ: &str = include_str!("../../../tests/guest/accounts/read.sh");

/// The most queue pairs for one interface and one peer: `rc_max_qps` to the peer, and as many from there.
const TO_A_PEER: usize = 2 * 8;

/// KiB of memory that a guest always has left.
const MEMORY_LEFT: u64 = 64 << 10;

/// The most queue pairs of an HCA: two for management, one for datagrams of each interface, of which the kernel's own driver
/// may have made one more, and those of connections.
fn queue_pairs(world: &World) -> usize {
    let peers = world.setting.hosts.len() - 1;
    2 + 1 + 2 * (1 + TO_A_PEER * peers)
}

/// Fails if too many queue pairs or too much memory are in use.
pub(crate) fn bounds(world: &World) -> Result<()> {
    let most = queue_pairs(world);
    for (host, _) in world.hosts() {
        let table = format!("{DEBUG}/ib_hwsim/sim/h{host}/qps");
        let pairs = match fs::read_to_string(&table) {
            Ok(text) => text.lines().count().saturating_sub(1),
            Err(e) => {
                let is_off = fabric::device(host)?.is_empty();
                ensure!(is_off, "{table}: {e}");
                continue;
            }
        };
        ensure!(pairs <= most, "host {host} has {pairs} queue pairs");
    }
    let text = fs::read_to_string("/proc/meminfo")?;
    let left = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok())
        .context("MemAvailable")?;
    ensure!(left >= MEMORY_LEFT, "{left} KiB of memory are left");
    Ok(())
}

/// Ends all faults, and makes all missing interfaces.
pub(crate) fn heal(world: &World) -> Result<()> {
    scarce(false)?;
    for (host, _) in world.hosts() {
        fabric::end_manager(world, host, true)?;
    }
    for cable in fabric::cables(world) {
        for fault in [
            Fault::Loss(0),
            Fault::Duplicate(0),
            Fault::Corrupt(0),
            Fault::Delay(0),
            Fault::Jitter(0),
            Fault::Rate(0),
        ] {
            fabric::impair(world, cable, fault)?;
        }
    }
    fabric::route(world, "off")?;
    fabric::write_partitions(world, None)?;
    for (host, setting) in world.hosts() {
        heal_device(world, host, setting.driver)?;
    }
    // Those of an HCA come off as it is switched off.
    for cable in fabric::cables(world) {
        fabric::plug(world, cable, true)?;
    }
    fabric::keep_manager(world, 1)?;
    if world.has_options.load(Ordering::Relaxed) {
        // With options, the driver may have made interfaces by itself.
        load(world, false)?;
    }
    load(world, true)?;
    for (host, setting) in world.hosts() {
        if !setting.child && exists(host, "ib0.8001") {
            ip(host, "link del ib0.8001\n")?;
        }
        if setting.driver == Driver::Ours && world.has_changed_addresses(host) {
            ip(host, "link del ib0\n")?;
        }
        fabric::set_up(world, host).with_context(|| format!("host {host}"))?;
        if setting.driver == Driver::Ours {
            set_defaults(host, setting.child)?;
        }
    }
    world.doubles.store(false, Ordering::Relaxed);
    Ok(())
}

/// Makes an HCA work and takes it into its namespace.
fn heal_device(world: &World, host: Host, driver: Driver) -> Result<()> {
    fabric::set(&format!("hcas/h{host}/faults"), "clear")?;
    if world.setting.roce {
        fabric::heal_ethernet(host)?;
    }
    // Interfaces that are in other namespaces go; what is made then is at home.
    for (other, _) in world.hosts() {
        for interface in [Interface::Child, Interface::Parent] {
            let away = away(host, interface);
            if exists(other, &away) {
                // A parent of the kernel's own driver goes with its device only.
                let _ = ip(other, &format!("link del {away}\n"));
            }
        }
    }
    // An HCA that is unusable has to be switched off and on. So has one of the kernel's own driver, whose interface comes
    // and goes with it.
    let is_off = fabric::device(host)?.is_empty();
    if is_off || world.beyond_use(host) || driver == Driver::Theirs {
        fabric::power(world, host, false)?;
        fabric::power(world, host, true)?;
    }
    fabric::take_in(host)
}

/// Gives the interfaces of a host the variables that they begin with. Rings stay as they are: new ones would repair whatever
/// is wrong.
fn set_defaults(host: Host, child: bool) -> Result<()> {
    let interfaces = [Interface::Parent, Interface::Child];
    for interface in &interfaces[..1 + usize::from(child)] {
        for (variable, default, _) in VARIABLES {
            set_variable(host, *interface, variable, default)?;
        }
    }
    Ok(())
}

/// Fails if a host has received a datagram or a segment with a wrong checksum: fabrics damage no payload unseen.
pub(crate) fn checksums(world: &World) -> Result<()> {
    for (host, _) in world.hosts() {
        for (file, names) in [
            ("snmp", &["InCsumErrors"][..]),
            ("snmp6", &["Udp6InCsumErrors", "Icmp6InCsumErrors"]),
        ] {
            let path = format!("/proc/thread-self/net/{file}");
            let text = inside(host, || {
                fs::read_to_string(&path).with_context(|| path.clone())
            })?;
            for (name, value) in counters(&text) {
                let is_wrong = names.contains(&name) && value != "0";
                ensure!(!is_wrong, "host {host}: {name} is {value}");
            }
        }
    }
    Ok(())
}

/// Names and values of a file of counters: in two columns, or each in a line of its own behind the name of the protocol.
fn counters(text: &str) -> Vec<(&str, &str)> {
    let mut all = Vec::new();
    let mut names: Option<(&str, &str)> = None;
    for line in text.lines() {
        match (line.split_once(": "), names.take()) {
            (Some((protocol, values)), Some((before, text))) if protocol == before => {
                all.extend(text.split_whitespace().zip(values.split_whitespace()));
            }
            (Some(pair), _) => names = Some(pair),
            (None, _) => all.extend(
                line.split_once(char::is_whitespace)
                    .map(|(n, v)| (n, v.trim())),
            ),
        }
    }
    all
}

/// Writes the counters of all interfaces to a file once no frame is under way and no queue pair in error, or after
/// [`SETTLED`].
pub(crate) fn accounts(world: &World, file: &Path) -> Result<()> {
    let deadline = Instant::now() + SETTLED;
    loop {
        let text = run(&["sh", "-c", READ], "")?;
        let waits = ["tx_waiting: ", "tx_posted: ", "rx_seq_holding: "];
        let at_rest = text.lines().all(|line| {
            let counter = waits.iter().find_map(|w| line.trim().strip_prefix(w));
            // The queue pair of a connection that is being closed is in that state for a moment.
            counter.is_none_or(|n| n == "0") && !line.starts_with("error ")
        });
        if at_rest || Instant::now() > deadline {
            world.log("counters");
            return fs::write(file, text).context("counters");
        }
        sleep(Duration::from_millis(100));
    }
}

/// Returns true if the kernel has reported a failure of its own driver.
pub(crate) fn theirs_has_failed(world: &World) -> bool {
    world.has_theirs()
        && run(&["dmesg"], "").is_ok_and(|log| {
            let mut lines = log.lines();
            lines.any(|line| line.contains("WARNING: ") && line.contains("[ib_ipoib]"))
        })
}

/// Fails if all hosts are in connected mode, and one with this checkout's driver has no connection. Traffic goes on.
pub(crate) fn connected(world: &World) -> Result<()> {
    let mut all = world.setting.hosts.iter();
    // Poor HCAs need not have room for one.
    if world.setting.poor || !all.all(|host| host.mode == Mode::Connected) {
        return Ok(());
    }
    for (host, _) in ours(world) {
        let deadline = Instant::now() + CONNECTED;
        let current = || -> Result<bool> {
            let text = inside(host, || run(&["ethtool", "-S", "ib0"], ""))?;
            let mut lines = text.lines();
            let count = lines.find_map(|line| line.trim().strip_prefix("rc_current: "));
            Ok(count.is_some_and(|count| count != "0"))
        };
        while !current()? {
            ensure!(Instant::now() < deadline, "host {host} has no connection");
            sleep(Duration::from_millis(500));
        }
    }
    Ok(())
}

/// The hosts with this checkout's driver.
fn ours(world: &World) -> impl Iterator<Item = (Host, &HostSetting)> {
    let hosts = world.hosts();
    hosts.filter(|(_, host)| host.driver == Driver::Ours)
}

/// Fails if devices still have connections once all interfaces are down.
fn left(world: &World) -> Result<()> {
    for (host, setting) in ours(world) {
        if setting.child {
            ip(host, "link set ib0.8001 down\n")?;
        }
        ip(host, "link set ib0 down\n")?;
    }
    let deadline = Instant::now() + SETTLED;
    for (host, _) in ours(world) {
        let table = format!("{DEBUG}/ib_hwsim/sim/h{host}/qps");
        loop {
            let text = fs::read_to_string(&table).with_context(|| table.clone())?;
            if !text.lines().any(|line| line.contains(" RC ")) {
                break;
            }
            ensure!(Instant::now() < deadline, "host {host}: {text}");
            sleep(Duration::from_millis(100));
        }
    }
    Ok(())
}

/// Takes away interfaces, subnet managers, fabric and modules, and looks for memory that is left.
pub(crate) fn tear_down(world: &World) -> Result<()> {
    left(world)?;
    for (host, setting) in world.hosts() {
        if setting.child {
            ip(host, "link del ib0.8001\n")?;
        }
        if setting.driver == Driver::Ours {
            ip(host, "link del ib0\n")?;
        }
        fabric::end_manager(world, host, false)?;
    }
    run(&["modprobe", "-r", "ipoib_rs"], "")?;
    if world.has_theirs() {
        run(&["modprobe", "-r", "ib_ipoib"], "")?;
    }
    fabric::remove(world)?;
    run(&["modprobe", "-r", "ib_hwsim"], "")?;
    leaks()
}

/// The state of hosts and fabric, for people.
pub(crate) fn state(world: &World) -> String {
    let mut text = String::new();
    let ports = format!(
        "grep -H . {DEBUG}/ib_hwsim/sim/*/port* /sys/kernel/config/ib_hwsim/sim/cables/*/*"
    );
    text += &run(&["sh", "-c", &ports], "").unwrap_or_else(|e| format!("{e:#}\n"));
    for (host, _) in world.hosts() {
        for words in [
            &["ip", "-d", "-s", "addr"][..],
            &["ip", "neigh"],
            &["rdma", "link"],
            &["ethtool", "-S", "ib0"],
            &["ls", "-l", "/dev/infiniband", "/sys/class/infiniband_mad"],
        ] {
            let output = inside(host, || run(words, ""));
            let output = output.unwrap_or_else(|e| format!("{e:#}\n"));
            text += &format!("# host {host}: {}\n{output}\n", words.join(" "));
        }
        let log = format!("/var/log/opensm-h{host}.log");
        text += &format!("# {log}\n{}", fs::read_to_string(&log).unwrap_or_default());
    }
    text
}

/// Fails if kmemleak finds something: it looks twice for what is five seconds old.
fn leaks() -> Result<()> {
    let file = format!("{DEBUG}/kmemleak");
    sleep(Duration::from_millis(5500));
    for _ in 0..2 {
        fs::write(&file, "scan").context("kmemleak")?;
    }
    let report = fs::read_to_string(&file)?;
    ensure!(report.is_empty(), "kmemleak:\n{report}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::counters;

    #[test]
    fn both_kinds_of_files_are_read() {
        let snmp = "Ip: Forwarding DefaultTTL\nIp: 1 64\nUdp: InDatagrams InCsumErrors\nUdp: 7 0\n";
        assert_eq!(
            counters(snmp),
            [
                ("Forwarding", "1"),
                ("DefaultTTL", "64"),
                ("InDatagrams", "7"),
                ("InCsumErrors", "0")
            ]
        );
        let snmp6 = "Udp6InDatagrams                 \t3\nUdp6InCsumErrors\t12\n";
        assert_eq!(
            counters(snmp6),
            [("Udp6InDatagrams", "3"), ("Udp6InCsumErrors", "12")]
        );
    }
}
