// SPDX-License-Identifier: GPL-2.0

//! Reads the facts. What cannot be read is left out, and noted with the reason.
//!
//! Files are below a root, which tests make for themselves.

use crate::ethtool::Ethtool;
use crate::facts::{Facts, Filter, Gid, Interface, Module, Port};
use crate::netlink::{self, Found, parts};
use crate::table::{Row, rows};
use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read};
use std::net::Ipv6Addr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

const NAME: &str = "ipoib_rs";
/// Tables of the driver in debugfs.
const TABLES: [&str; 5] = ["sources", "paths", "groups", "connections", "device"];
/// Empty entries of a GID table after which no more are read: most tables have hundreds.
const EMPTY: usize = 16;
/// More bytes than most files of sysfs have.
const ROOM: usize = 4097;
/// Directory at which debugfs is mounted, as a rule.
const DEBUGFS: &str = "/sys/kernel/debug";
/// Time for the answer of a neighbour that is asked for its address just now.
const ANSWER: Duration = Duration::from_millis(300);
/// Variables below /proc/sys that rules judge.
const SYSCTLS: &[&str] = &[
    "net/ipv4/tcp_rmem",
    "net/ipv4/tcp_wmem",
    "net/ipv4/tcp_sack",
    "net/ipv4/tcp_window_scaling",
    "net/ipv4/ip_no_pmtu_disc",
    "net/ipv4/neigh/default/gc_thresh3",
    "net/ipv6/neigh/default/gc_thresh3",
    "net/ipv4/icmp_echo_ignore_all",
    "net/ipv4/conf/all/arp_ignore",
    "net/ipv4/conf/all/arp_filter",
];
/// Variables of each interface of IPoIB.
const OWN: &[&str] = &[
    "reorder_window",
    "reorder_timeout_us",
    "extensions",
    "napi_budget",
    "icrc",
    "large_frames",
    "rc_max_connections",
    "rc_max_qps",
];

/// Contents of a small file without white space around. Files of sysfs and sysctls, of which there are many, give all that
/// they have at once: one call is enough to know that a short one ends there.
fn read(path: impl AsRef<Path>) -> Option<String> {
    let mut file = fs::File::open(path).ok()?;
    let mut bytes = vec![0; ROOM];
    let count = loop {
        match file.read(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => break result.ok()?,
        }
    };
    bytes.truncate(count);
    if count == ROOM {
        file.read_to_end(&mut bytes).ok()?;
    }
    Some(String::from_utf8(bytes).ok()?.trim().to_owned())
}

/// Names in a directory, sorted; none if it is not there.
fn names(dir: impl AsRef<Path>) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .filter_map(|e| e.ok()?.file_name().into_string().ok())
        .collect();
    names.sort_by_key(|name| (name.parse().unwrap_or(u32::MAX), name.clone()));
    names
}

/// A number as sysfs has it: 0x1f, or decimal.
pub(crate) fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The word behind a number and a colon: "4: ACTIVE".
pub(crate) fn word(text: Option<String>) -> String {
    let text = text.unwrap_or_default();
    text.rsplit(": ").next().unwrap_or_default().to_owned()
}

/// All facts. With `whole`, also those that take time: the packet filter's rules, which another program reads, and whether
/// neighbours answer that are asked just now.
///
/// # Errors
///
/// The kernel does not answer about its links.
pub(crate) fn facts(whole: bool) -> anyhow::Result<Facts> {
    let root = Path::new("/");
    let mut facts = Facts {
        ports: ports(root),
        ..Facts::default()
    };
    let found = netlink::links()?;
    let debug = Debugfs::find(&mut facts.unread);
    for one in found {
        if one.infiniband {
            let interface = interface(&one, &facts.ports, debug.as_ref(), &mut facts.unread);
            facts.interfaces.push(interface);
        }
        facts.links.push(one.link);
    }
    neighbours(&mut facts);
    children(&mut facts);
    facts.module = module(root);
    facts.sysctls = sysctls(root, &facts);
    facts.without_ipv6 = without_ipv6(root);
    facts.tcp_reordered = tcp_reordered(root);
    let is_asked = |i: &Interface| i.neighbours.iter().any(|n| n.state == "incomplete");
    if whole && facts.interfaces.iter().any(is_asked) {
        thread::sleep(ANSWER);
        neighbours(&mut facts);
    }
    let is_lost = |i: &Interface| i.neighbours.iter().any(|n| n.is_lost() && n.ip.is_ipv6());
    let passes = |port: &Port| port.is_roce() && port.software;
    if whole && (facts.ports.iter().any(passes) || facts.interfaces.iter().any(is_lost)) {
        facts.filter = filter();
    }
    Ok(facts)
}

/// Reads what changes all the time again: links, neighbours, counters and tables. If interfaces have come or gone, all facts.
///
/// # Errors
///
/// The kernel does not answer about its links.
pub(crate) fn again(facts: &mut Facts) -> anyhow::Result<()> {
    let found = netlink::links()?;
    let names = found.iter().filter(|one| one.infiniband);
    let names = names.map(|one| one.link.name.as_str());
    if !names.eq(facts.interfaces.iter().map(|i| i.name.as_str())) {
        *facts = self::facts(false)?;
        return Ok(());
    }
    facts.unread.clear();
    let debug = Debugfs::find(&mut facts.unread);
    for interface in &mut facts.interfaces {
        current(interface, debug.as_ref(), &mut facts.unread);
    }
    facts.links = found.into_iter().map(|one| one.link).collect();
    neighbours(facts);
    Ok(())
}

/// Mode, counters and tables of an interface.
fn current(interface: &mut Interface, debug: Option<&Debugfs>, unread: &mut Vec<String>) {
    let name = &interface.name;
    let mode = read(format!("/sys/class/net/{name}/mode"));
    interface.mode = mode.unwrap_or_default();
    match Ethtool::new(name).and_then(|ethtool| ethtool.counters()) {
        Ok(counters) => interface.counters = counters,
        Err(error) => unread.push(format!("counters of {name}: {error}")),
    }
    if let (true, Some(debug)) = (interface.ours, debug) {
        interface.tables = debug.tables(name);
        if interface.tables.is_empty() {
            unread.push(format!("tables of {name} in debugfs: none is there"));
        }
    }
}

/// An interface of IPoIB: its files in sysfs, what ethtool shows, and its tables in debugfs.
fn interface(
    found: &Found,
    ports: &[Port],
    debug: Option<&Debugfs>,
    unread: &mut Vec<String>,
) -> Interface {
    let name = &found.link.name;
    let sysfs = |file: &str| read(format!("/sys/class/net/{name}/{file}"));
    let (_, qpn, gid) = parts(&found.hardware);
    let mut interface = Interface {
        name: name.clone(),
        pkey: sysfs("pkey")
            .and_then(|k| number(&k))
            .map_or(0, |k| k as u16),
        parent: sysfs("parent"),
        gid,
        qpn,
        device: found.device.clone(),
        port: found.port,
        ours: found.link.kind == NAME,
        gso: true,
        gro: true,
        ..Interface::default()
    };
    if let Ok(ethtool) = Ethtool::new(name) {
        interface.ours = ethtool.driver().is_ok_and(|driver| driver == NAME) || interface.ours;
        interface.ring = ethtool.ring().ok();
        interface.rx_frames = ethtool.moderation().map_or(0, |(_, frames)| frames);
        (interface.gso, interface.gro) = ethtool.offloads().unwrap_or((true, true));
        interface.tso = ethtool.tso().unwrap_or(false);
    }
    if interface.device.is_empty() {
        let has = |port: &&Port| port.gids.iter().any(|entry| entry.gid == interface.gid);
        if let Some(port) = ports.iter().find(has) {
            interface.device.clone_from(&port.device);
            interface.port = port.number;
        }
    }
    current(&mut interface, debug, unread);
    interface
}

fn neighbours(facts: &mut Facts) {
    match netlink::neighbours() {
        Ok(neighbours) => {
            for interface in &mut facts.interfaces {
                interface.neighbours.clear();
            }
            for (index, neighbour) in neighbours {
                let name = facts.links.iter().find(|link| link.index == index);
                let name = name.map(|link| link.name.as_str());
                let of = facts.interfaces.iter_mut();
                if let Some(of) = of.into_iter().find(|i| Some(i.name.as_str()) == name) {
                    of.neighbours.push(neighbour);
                }
            }
        }
        Err(error) => facts.unread.push(format!("neighbours: {error}")),
    }
}

/// Names the parents of children that have none in sysfs.
fn children(facts: &mut Facts) {
    let parent = |interface: &Interface| {
        let parent = facts.parent_of(facts.link(&interface.name)?)?;
        Some(parent.name.clone())
    };
    let parents: Vec<Option<String>> = facts.interfaces.iter().map(parent).collect();
    for (interface, parent) in facts.interfaces.iter_mut().zip(parents) {
        interface.parent = interface.parent.take().or(parent);
    }
}

fn ports(root: &Path) -> Vec<Port> {
    let class = root.join("sys/class/infiniband");
    let mut ports = Vec::new();
    for device in names(&class) {
        let dir = class.join(&device);
        // Hardware is behind a bus.
        let software = !dir.join("device").exists();
        for number in names(dir.join("ports")) {
            let mut port = port(&dir.join("ports").join(&number));
            port.device.clone_from(&device);
            port.number = number.parse().unwrap_or(0);
            port.software = software;
            ports.push(port);
        }
    }
    ports
}

fn port(dir: &Path) -> Port {
    let text = |file: &str| read(dir.join(file));
    let of = |file: &str| text(file).and_then(|t| number(&t)).unwrap_or(0);
    let pkeys = names(dir.join("pkeys"))
        .iter()
        .filter_map(|index| number(&read(dir.join("pkeys").join(index))?))
        .filter_map(|pkey| u16::try_from(pkey).ok())
        .filter(|pkey| pkey & 0x7fff != 0)
        .collect();
    Port {
        link_layer: text("link_layer").unwrap_or_default(),
        state: word(text("state")),
        physical: word(text("phys_state")),
        rate: text("rate").unwrap_or_default(),
        lid: of("lid"),
        sm_lid: of("sm_lid"),
        pkeys,
        gids: gids(dir),
        ..Port::default()
    }
}

fn gids(dir: &Path) -> Vec<Gid> {
    let (mut gids, mut empty) = (Vec::new(), 0);
    for index in names(dir.join("gids")) {
        let gid = read(dir.join("gids").join(&index)).and_then(|t| t.parse::<Ipv6Addr>().ok());
        // An unused entry has at most the subnet prefix.
        let Some(gid) = gid.filter(|gid| gid.segments()[4..] != [0; 4]) else {
            empty += 1;
            if empty == EMPTY {
                break;
            }
            continue;
        };
        let attribute = |name: &str| read(dir.join("gid_attrs").join(name).join(&index));
        gids.push(Gid {
            gid: gid.to_string(),
            kind: attribute("types").unwrap_or_default(),
            netdev: attribute("ndevs").unwrap_or_default(),
        });
    }
    gids
}

/// The driver's directory in debugfs, which may be mounted anywhere.
struct Debugfs {
    dir: PathBuf,
    /// Inode number of the network namespace.
    namespace: u64,
    /// It is the initial one.
    first: bool,
}

impl Debugfs {
    /// Finds it. A failure is noted if the driver is loaded.
    fn find(unread: &mut Vec<String>) -> Option<Debugfs> {
        if !Path::new("/sys/module/ipoib_rs").exists() {
            return None;
        }
        let at = |mount: &str| {
            let dir = Path::new(mount).join(NAME);
            fs::read_dir(&dir).ok().map(|_| dir)
        };
        let mut is_mounted = false;
        // Before the list of mounts is read, which is long on a host of many containers.
        let found = at(DEBUGFS).or_else(|| {
            let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
            let mut mounts = mounts
                .lines()
                .map(|line| line.split(' ').collect::<Vec<_>>())
                .filter(|words| words.get(2) == Some(&"debugfs"))
                .inspect(|_| is_mounted = true);
            mounts.find_map(|words| at(words.get(1)?))
        });
        // `ip netns exec` mounts a /sys of its own, without what was mounted below the other one.
        let found = found.or_else(|| at(&format!("/proc/1/root{DEBUGFS}")));
        let inode = |path: &str| fs::metadata(path).map(|m| m.ino());
        let own = inode("/proc/self/ns/net").ok()?;
        let Some(dir) = found else {
            let mounts = |of: &str| inode(&format!("/proc/{of}/ns/mnt")).ok();
            let has_mounts = mounts("1").is_some_and(|first| mounts("self") != Some(first));
            unread.push(if is_mounted {
                "paths and connections: only root can read debugfs".into()
            } else if has_mounts {
                "paths and connections: debugfs is not mounted in this mount namespace, which `ip netns exec` and containers \
                 have of their own (mount -t debugfs none /sys/kernel/debug there)"
                    .into()
            } else {
                "paths and connections: debugfs is not mounted (mount -t debugfs none /sys/kernel/debug)".into()
            });
            return None;
        };
        Some(Debugfs {
            dir,
            namespace: own,
            first: inode("/proc/1/ns/net").map_or(true, |first| first == own),
        })
    }

    fn tables(&self, interface: &str) -> BTreeMap<String, Vec<Row>> {
        let numbered = self.dir.join(format!("{interface}:{}", self.namespace));
        let dir = if !numbered.exists() && self.first {
            self.dir.join(interface)
        } else {
            numbered
        };
        let tables = TABLES.iter().filter_map(|name| {
            let text = fs::read_to_string(dir.join(name)).ok()?;
            Some(((*name).to_owned(), rows(&text)))
        });
        tables.collect()
    }
}

fn module(root: &Path) -> Module {
    let release = read(root.join("proc/sys/kernel/osrelease")).unwrap_or_default();
    let loaded = |name: &str| root.join("sys/module").join(name).exists();
    let mut module = Module {
        loaded: loaded(NAME),
        ib_ipoib_loaded: loaded("ib_ipoib"),
        ..Module::default()
    };
    // Obstacles to loading it matter only then.
    if !module.loaded {
        let modules = root.join("lib/modules");
        let has = |release: &str| {
            let list = fs::read_to_string(modules.join(release).join("modules.dep"));
            list.is_ok_and(|list| {
                list.lines()
                    .filter_map(|line| line.split(':').next()?.rsplit('/').next())
                    .any(|file| file.starts_with("ipoib_rs.ko"))
            })
        };
        module.installed = has(&release);
        module.other_kernels = names(&modules)
            .into_iter()
            .filter(|other| *other != release && has(other))
            .collect();
        module.signatures_enforced = read(root.join("sys/module/module/parameters/sig_enforce"))
            .is_some_and(|value| value == "Y")
            || read(root.join("sys/kernel/security/lockdown")).is_some_and(|text| {
                text.contains("[integrity]") || text.contains("[confidentiality]")
            });
        module.modprobe = modprobe(root);
    }
    module.release = release;
    module
}

/// Lines of modprobe's configuration that name the module or ib_ipoib.
fn modprobe(root: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    // A file in a directory hides those of its name in later ones.
    let mut seen = Vec::new();
    for dir in ["etc/modprobe.d", "run/modprobe.d", "usr/lib/modprobe.d"] {
        let dir = root.join(dir);
        for name in names(&dir) {
            if !name.ends_with(".conf") || seen.contains(&name) {
                continue;
            }
            let text = fs::read_to_string(dir.join(&name)).unwrap_or_default();
            let about = |line: &&str| {
                let mut words = line.split_whitespace();
                words.any(|word| word == NAME || word == "ib_ipoib")
            };
            let found = text.lines().map(str::trim).filter(|l| !l.starts_with('#'));
            lines.extend(found.filter(about).map(str::to_owned));
            seen.push(name);
        }
    }
    lines
}

/// Returns true if the kernel was booted with `ipv6.disable=1`: there are no variables about IPv6 then.
fn without_ipv6(root: &Path) -> bool {
    read(root.join("sys/module/ipv6/parameters/disable")).is_some_and(|value| value == "1")
}

/// The variables that rules judge, as far as there are such.
fn sysctls(root: &Path, facts: &Facts) -> BTreeMap<String, String> {
    let mut wanted: Vec<String> = SYSCTLS.iter().map(|name| (*name).to_owned()).collect();
    for interface in &facts.interfaces {
        wanted.extend(OWN.iter().map(|name| interface.sysctl(name)));
        wanted.push(format!("net/ipv6/conf/{}/disable_ipv6", interface.name));
        wanted.push(format!("net/ipv4/conf/{}/arp_ignore", interface.name));
        wanted.push(format!("net/ipv4/conf/{}/arp_filter", interface.name));
    }
    let links = facts.interfaces.iter().filter_map(|i| facts.link(&i.name));
    for ethernet in links.filter_map(|link| facts.ethernet_of(link)) {
        wanted.push(format!("net/ipv6/conf/{}/disable_ipv6", ethernet.name));
    }
    wanted
        .into_iter()
        .filter_map(|name| {
            let value = read(root.join("proc/sys").join(&name))?;
            Some((name, value))
        })
        .collect()
}

/// Times that TCP has found segments reordered, which a sender learns from what is acknowledged.
fn tcp_reordered(root: &Path) -> u64 {
    let text = fs::read_to_string(root.join("proc/net/netstat")).unwrap_or_default();
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
    let (names, values) = (lines.next(), lines.next());
    let names = names.unwrap_or_default().split(' ');
    let pairs = names.zip(values.unwrap_or_default().split(' '));
    let reordered = pairs.filter(|(name, _)| name.ends_with("Reorder"));
    reordered
        .filter_map(|(_, value)| value.parse::<u64>().ok())
        .sum()
}

/// The packet filter's rules, as far as programs for them are there and may read them.
fn filter() -> Filter {
    let list = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output();
        output.map_or(String::new(), |output| {
            String::from_utf8_lossy(&output.stdout).into_owned()
        })
    };
    Filter {
        nft: list("nft", &["list", "ruleset"]),
        iptables: list("iptables-save", &[]),
        ip6tables: list("ip6tables-save", &[]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A root with files of these contents.
    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
            fs::write(path, text).expect("a file");
        }
        root
    }

    #[test]
    fn a_port_of_infiniband_is_read() {
        let files = [
            ("link_layer", "InfiniBand\n"),
            ("state", "4: ACTIVE\n"),
            ("phys_state", "5: LinkUp\n"),
            ("rate", "100 Gb/sec (4X EDR)\n"),
            ("lid", "0x3\n"),
            ("sm_lid", "0x1\n"),
            ("pkeys/0", "0xffff\n"),
            ("pkeys/1", "0x0000\n"),
            ("pkeys/10", "0x0001\n"),
            ("gids/0", "fe80:0000:0000:0000:0000:0000:0000:0007\n"),
            ("gids/1", "fe80:0000:0000:0000:0000:0000:0000:0000\n"),
            ("gid_attrs/types/0", "IB/RoCE v1\n"),
            ("../../device/vendor", "0x15b3\n"),
        ];
        let files: Vec<(String, &str)> = files
            .iter()
            .map(|(name, text)| (format!("sys/class/infiniband/mlx5_0/ports/1/{name}"), *text))
            .collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(n, t)| (n.as_str(), *t)).collect();
        let root = root(&files);
        let expected = Port {
            device: "mlx5_0".into(),
            number: 1,
            link_layer: "InfiniBand".into(),
            state: "ACTIVE".into(),
            physical: "LinkUp".into(),
            rate: "100 Gb/sec (4X EDR)".into(),
            lid: 3,
            sm_lid: 1,
            pkeys: vec![0xffff, 1],
            gids: vec![Gid {
                gid: "fe80::7".into(),
                kind: "IB/RoCE v1".into(),
                netdev: String::new(),
            }],
            software: false,
        };
        assert_eq!(ports(root.path()), [expected]);
        assert_eq!(ports(Path::new("/nonexistent")), []);
    }

    #[test]
    fn a_module_is_found_or_what_keeps_it_from_loading() {
        let loaded = root(&[
            ("proc/sys/kernel/osrelease", "7.3.4\n"),
            ("sys/module/ipoib_rs/refcnt", "1\n"),
            ("sys/module/ib_ipoib/refcnt", "0\n"),
        ]);
        let module_of = |root: &tempfile::TempDir| module(root.path());
        let found = module_of(&loaded);
        assert!(found.loaded && found.ib_ipoib_loaded);
        assert_eq!(found.release, "7.3.4");

        let not = module_of(&root(&[
            ("proc/sys/kernel/osrelease", "7.3.4\n"),
            (
                "lib/modules/7.3.3/modules.dep",
                "updates/dkms/ipoib_rs.ko.xz: kernel/x.ko\n",
            ),
            (
                "lib/modules/7.3.4/modules.dep",
                "kernel/ib_ipoib.ko: kernel/x.ko\n",
            ),
            ("sys/module/module/parameters/sig_enforce", "Y\n"),
            (
                "etc/modprobe.d/a.conf",
                "# ipoib_rs\nblacklist ipoib_rs\nblacklist pcspkr\n",
            ),
            ("run/modprobe.d/a.conf", "install ipoib_rs /bin/false\n"),
            ("etc/modprobe.d/b.txt", "install ipoib_rs /bin/false\n"),
        ]));
        assert!(!not.loaded && !not.installed && not.signatures_enforced);
        assert_eq!(not.other_kernels, ["7.3.3"]);
        assert_eq!(not.modprobe, ["blacklist ipoib_rs"]);

        let locked = module_of(&root(&[
            ("proc/sys/kernel/osrelease", "7.3.4\n"),
            ("lib/modules/7.3.4/modules.dep", "extra/ipoib_rs.ko:\n"),
            ("sys/module/module/parameters/sig_enforce", "N\n"),
            (
                "sys/kernel/security/lockdown",
                "none [integrity] confidentiality\n",
            ),
        ]));
        assert!(locked.installed && locked.signatures_enforced);
    }

    #[test]
    fn variables_are_read_for_each_interface() {
        let mut facts = crate::healthy::healthy(true);
        facts.sysctls.clear();
        let root = root(&[
            ("proc/sys/net/ipv4/tcp_sack", "1\n"),
            ("proc/sys/net/ipoib/ib0/reorder_window", "32\n"),
            ("proc/sys/net/ipv6/conf/eth0/disable_ipv6", "0\n"),
            ("proc/sys/net/ipv4/conf/ib0/arp_ignore", "8\n"),
        ]);
        let read = sysctls(root.path(), &facts);
        assert_eq!(read.len(), 4);
        assert_eq!(read["net/ipv4/conf/ib0/arp_ignore"], "8");
        assert!(!without_ipv6(root.path()));
    }

    #[test]
    fn reordered_segments_are_counted() {
        let netstat = "TcpExt: SyncookiesSent TCPSACKReorder TCPTimeouts TCPTSReorder\nTcpExt: 1 20 300 4000\n\
                       IpExt: InNoRoutes\nIpExt: 7\n";
        assert_eq!(
            tcp_reordered(root(&[("proc/net/netstat", netstat)]).path()),
            4020
        );
        assert_eq!(tcp_reordered(Path::new("/nonexistent")), 0);
    }

    #[test]
    fn a_kernel_may_do_without_ipv6() {
        let disabled = |value| root(&[("sys/module/ipv6/parameters/disable", value)]);
        assert!(without_ipv6(disabled("1\n").path()));
        assert!(!without_ipv6(disabled("0\n").path()));
    }

    #[test]
    fn words_and_numbers_of_sysfs() {
        assert_eq!(word(Some("4: ACTIVE".into())), "ACTIVE");
        assert_eq!(word(None), "");
        assert_eq!(
            (number("0x1f"), number("7"), number("x")),
            (Some(31), Some(7), None)
        );
    }
}
