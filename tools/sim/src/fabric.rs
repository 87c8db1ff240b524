// SPDX-License-Identifier: GPL-2.0

//! The fabric, its subnet managers, and the hosts at the beginning.

use crate::host::{add, add_addresses, exists, ip, is_ours, name, set_mode};
use crate::program::{inside, namespace, run, start};
use crate::world::World;
use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sim::plan::{Cable, Driver, Fault, Host, Interface};
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The fabric's directory in configfs.
const FABRIC: &str = "/sys/kernel/config/ib_hwsim/sim";

/// The partitions that all subnet managers share.
const PARTITIONS: &str = "/tmp/partitions.conf";

/// The bytes that a capture has room for.
const CAPTURE: &str = "8388608";

/// How often a subnet manager is started, and how long it has to run.
const ATTEMPTS: u32 = 10;
const ATTEMPT: Duration = Duration::from_millis(100);

/// Limits of poor HCAs.
const POOR: [(&str, &str); 5] = [
    ("max_qp", "6"),
    ("max_send_sge", "4"),
    ("max_recv_sge", "4"),
    ("max_ah", "48"),
    ("comp_vectors", "2"),
];

/// The switches, by the cables that lead to them.
const SWITCHES: [&str; 2] = ["s1", "s2"];

/// Writes an attribute of the fabric.
pub(crate) fn set(path: &str, value: &str) -> Result<()> {
    fs::write(format!("{FABRIC}/{path}"), value).with_context(|| format!("{path}: {value}"))
}

/// Reads an attribute of the fabric.
fn get(path: &str) -> Result<String> {
    let text = fs::read_to_string(format!("{FABRIC}/{path}")).with_context(|| path.to_owned())?;
    Ok(text.trim().to_owned())
}

/// The directory of a cable below the fabric's.
fn cable(world: &World, cable: Cable) -> String {
    match cable {
        // There is one cable between both.
        Cable::Host(_) if world.setting.roce => "cables/c1".to_owned(),
        Cable::Host(host) => format!("cables/c{host}"),
        Cable::Trunk(trunk) => format!("cables/t{trunk}"),
    }
}

/// Sets a fault of a cable; 0 for a delay or a rate means that of the setting.
pub(crate) fn impair(world: &World, which: Cable, fault: Fault) -> Result<()> {
    let or_setting = |value, setting| if value == 0 { setting } else { value };
    let (name, value) = match fault {
        Fault::Loss(value) => ("loss", value),
        Fault::Duplicate(value) => ("duplicate", value),
        Fault::Corrupt(value) => ("corrupt", value),
        Fault::Delay(value) => ("delay", or_setting(value, world.setting.delay)),
        Fault::Jitter(value) => ("jitter", value),
        Fault::Rate(value) => ("rate", or_setting(value, world.setting.rate)),
    };
    set(
        &format!("{}/{name}", cable(world, which)),
        &value.to_string(),
    )
}

/// All cables.
pub(crate) fn cables(world: &World) -> Vec<Cable> {
    let hosts = world
        .hosts()
        .take(if world.setting.roce { 1 } else { usize::MAX });
    let hosts = hosts.map(|(host, _)| Cable::Host(host));
    let trunks = (1..=world.setting.trunks).map(Cable::Trunk);
    hosts.chain(trunks).collect()
}

/// Plugs a cable in, or pulls it.
pub(crate) fn plug(world: &World, which: Cable, plugged: bool) -> Result<()> {
    let value = if plugged { "1" } else { "0" };
    set(&format!("{}/plugged", cable(world, which)), value)
}

/// Switches an HCA on or off.
pub(crate) fn power(world: &World, host: Host, on: bool) -> Result<()> {
    set(&format!("hcas/h{host}/power"), if on { "1" } else { "0" })?;
    if on {
        capture(world, host)?;
    }
    Ok(())
}

/// The switches of a setting.
fn switches(world: &World) -> &'static [&'static str] {
    let number = match world.setting.trunks {
        _ if world.setting.roce => 0,
        0 => 1,
        _ => 2,
    };
    &SWITCHES[..number]
}

/// Sets how the switches route.
pub(crate) fn route(world: &World, how: &str) -> Result<()> {
    for switch in switches(world) {
        set(&format!("switches/{switch}/adaptive"), how)?;
    }
    Ok(())
}

/// The RDMA device of a host's HCA; empty while it is off.
pub(crate) fn device(host: Host) -> Result<String> {
    get(&format!("hcas/h{host}/device"))
}

/// Makes the fabric, starts a subnet manager, and makes all interfaces.
pub(crate) fn make(world: &World) -> Result<()> {
    for module in ["ib_umad", "rdma_ucm", "ib_hwsim", "ipoib_rs"] {
        run(&["modprobe", module], "")?;
    }
    if world.has_theirs() {
        run(&["modprobe", "ib_ipoib"], "")?;
    }
    if !fs::exists("/sys/kernel/config/ib_hwsim")? {
        run(
            &["mount", "-t", "configfs", "configfs", "/sys/kernel/config"],
            "",
        )?;
    }
    for (host, _) in world.hosts() {
        run(&["ip", "netns", "add", &namespace(host)], "")?;
        ip(host, "link set lo up\n")?;
        forget_fragments(host)?;
    }
    if world.setting.roce {
        ip(
            1,
            "link add eth0 mtu 4200 type veth peer name eth0 netns h2 mtu 4200\n",
        )?;
        for (host, _) in world.hosts() {
            heal_ethernet(host)?;
        }
    }
    lay(world).context("the fabric")?;
    write_partitions(world, None)?;
    for (host, _) in world.hosts() {
        capture(world, host)?;
        take_in(host)?;
    }
    keep_manager(world, 1)?;
    for (host, _) in world.hosts() {
        set_up(world, host).with_context(|| format!("host {host}"))?;
    }
    Ok(())
}

/// Has a host give up datagrams that lack fragments after some seconds. By IPv6 they would keep their frames for 60, after
/// which the kernel takes those of an interface that is gone for lost.
fn forget_fragments(host: Host) -> Result<()> {
    inside(host, || {
        for file in ["ipv4/ipfrag_time", "ipv6/ip6frag_time"] {
            let path = format!("/proc/sys/net/{file}");
            fs::write(&path, "5").context(path)?;
        }
        Ok(())
    })
}

/// Gives the Ethernet interface of a RoCE port the settings and the addresses that it begins with.
pub(crate) fn heal_ethernet(host: Host) -> Result<()> {
    ip(
        host,
        &format!(
            "link set eth0 down\nlink set eth0 addrgenmode eui64\nlink set eth0 address 02:00:00:00:00:0{host} mtu 4200\naddr flush dev eth0\nlink set eth0 up\n"
        ),
    )
}

/// Makes HCAs, switches and cables, and switches all on.
fn lay(world: &World) -> Result<()> {
    fs::create_dir(FABRIC)?;
    let setting = &world.setting;
    set("seed", &setting.seed.to_string())?;
    let switches = switches(world);
    for switch in switches {
        fs::create_dir(format!("{FABRIC}/switches/{switch}"))?;
        set(&format!("switches/{switch}/ports"), "16")?;
    }
    for (host, _) in world.hosts() {
        let hca = format!("hcas/h{host}");
        fs::create_dir(format!("{FABRIC}/{hca}"))?;
        if setting.offloads {
            set(&format!("{hca}/checksum"), "1")?;
            set(&format!("{hca}/lso"), "65536")?;
        }
        if setting.poor {
            for (limit, value) in POOR {
                set(&format!("{hca}/{limit}"), value)?;
            }
        }
        if !setting.shared_queues {
            set(&format!("{hca}/max_srq"), "0")?;
        }
        if setting.roce {
            inside(host, || set(&format!("{hca}/netdev"), "eth0"))?;
            continue;
        }
        let switch = switches[usize::from(host - 1) % switches.len()];
        fs::create_dir(format!("{FABRIC}/cables/c{host}"))?;
        set(
            &format!("cables/c{host}/ends"),
            &format!("h{host}/1 {switch}/{host}"),
        )?;
    }
    if setting.roce {
        fs::create_dir(format!("{FABRIC}/cables/c1"))?;
        set("cables/c1/ends", "h1/1 h2/1")?;
    }
    for trunk in 1..=setting.trunks {
        let port = 8 + trunk;
        fs::create_dir(format!("{FABRIC}/cables/t{trunk}"))?;
        set(
            &format!("cables/t{trunk}/ends"),
            &format!("s1/{port} s2/{port}"),
        )?;
    }
    for which in cables(world) {
        impair(world, which, Fault::Delay(0))?;
        impair(world, which, Fault::Rate(0))?;
    }
    set("live", "1")
}

/// Captures the packets of a host's HCA from now on, if that is wanted. Takes as long if it is not.
fn capture(world: &World, host: Host) -> Result<()> {
    let bytes = if world.trace { CAPTURE } else { "0" };
    set(&format!("hcas/h{host}/capture"), bytes)
}

/// Copies the captures of all HCAs that are on into a directory.
pub(crate) fn save_traces(world: &World, to: &Path) -> Result<()> {
    for (host, _) in world.hosts().filter(|_| world.trace) {
        let from = format!("{FABRIC}/hcas/h{host}/capture.pcap");
        // It ended with its HCA, if that is off.
        if let Ok(packets) = fs::read(from) {
            fs::write(to.join(format!("h{host}.pcap")), packets)?;
        }
    }
    Ok(())
}

/// Takes a host's HCA into its namespace, unless it is there.
pub(crate) fn take_in(host: Host) -> Result<()> {
    let device = device(host)?;
    ensure!(!device.is_empty(), "the HCA of host {host} is off");
    // Two devices in different namespaces can have the same name, but then libibumad takes one for the other.
    let own = format!("hca{host}");
    if device == own {
        return Ok(());
    }
    run(&["rdma", "dev", "set", &device, "name", &own], "")?;
    run(&["rdma", "dev", "set", &own, "netns", &namespace(host)], "").map(drop)
}

/// Makes a host's interfaces as they are at the beginning, as far as they are not there, and brings them up.
pub(crate) fn set_up(world: &World, host: Host) -> Result<()> {
    let setting = world.host(host)?;
    let interfaces = [Interface::Parent, Interface::Child];
    for interface in &interfaces[..1 + usize::from(setting.child)] {
        let name = name(*interface);
        let is_there = exists(host, name)
            && (*interface == Interface::Child
                || setting.driver == Driver::Theirs
                || is_ours(host));
        if !is_there {
            add(world, host, *interface)?;
        }
        set_mode(world, host, *interface, setting.mode)?;
        add_addresses(host, *interface)?;
        ip(host, &format!("link set {name} up\n"))?;
    }
    Ok(())
}

/// Writes the partitions: all hosts are full members of both, but for one, which is not in 0x8001.
pub(crate) fn write_partitions(world: &World, expelled: Option<Host>) -> Result<()> {
    if world.setting.roce {
        return Ok(());
    }
    let members: Vec<String> = world
        .hosts()
        .filter(|(host, _)| Some(*host) != expelled)
        .map(|(host, _)| Ok(format!("{}=full", port_guid(host)?)))
        .collect::<Result<_>>()?;
    let text = format!(
        "Default=0x7fff, ipoib, mtu=5 : ALL=full;\nBlue=0x0001, ipoib, mtu=5 : {};\n",
        members.join(", ")
    );
    fs::write(PARTITIONS, text).context(PARTITIONS)
}

/// The GUID of a host's port, which follows that of the node.
fn port_guid(host: Host) -> Result<String> {
    let text = get(&format!("hcas/h{host}/node_guid"))?;
    let digits = text.trim_start_matches("0x");
    let node = u64::from_str_radix(digits, 16).with_context(|| text.clone())?;
    Ok(format!("{:#018x}", node + 1))
}

/// Has all subnet managers read the partitions again.
pub(crate) fn read_partitions(world: &World) {
    for manager in world.managers().values() {
        signal(manager.id(), Signal::SIGHUP);
    }
}

/// Sends a signal to a process, which may have ended.
fn signal(process: u32, signal: Signal) {
    if let Ok(process) = i32::try_from(process) {
        let _ = kill(Pid::from_raw(process), signal);
    }
}

/// Starts a subnet manager on a host unless one runs there, or ports are Ethernet ones.
pub(crate) fn start_manager(world: &World, host: Host, anew: bool) -> Result<()> {
    if world.setting.roce {
        return Ok(());
    }
    let mut managers = world.managers();
    if let Some(manager) = managers.get_mut(&host) {
        if manager.try_wait()?.is_none() {
            return Ok(());
        }
        managers.remove(&host);
    }
    ensure!(!device(host)?.is_empty(), "the HCA of host {host} is off");
    let cache = format!("/var/cache/opensm-h{host}");
    fs::create_dir_all(&cache)?;
    let guid = port_guid(host)?;
    let log = format!("/var/log/opensm-h{host}.log");
    let mut words = vec!["opensm", "-g", &guid, "-f", &log, "-P", PARTITIONS];
    if anew {
        words.push("-r");
    }
    let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
    let environment = [("OSM_CACHE_DIR", &*cache), ("OSM_TMP_DIR", &*cache)];
    managers.insert(host, start(host, &words, &environment)?);
    Ok(())
}

/// Starts a subnet manager on a host, as often as it ends at once: opensm does while its HCA has no device file. Ethernet ports
/// have none.
pub(crate) fn keep_manager(world: &World, host: Host) -> Result<()> {
    if world.setting.roce {
        return Ok(());
    }
    for _ in 0..ATTEMPTS {
        start_manager(world, host, false)?;
        sleep(ATTEMPT);
        let mut managers = world.managers();
        if let Some(manager) = managers.get_mut(&host) {
            if manager.try_wait()?.is_none() {
                return Ok(());
            }
        }
    }
    bail!("no subnet manager stays on host {host}")
}

/// Ends the subnet manager of a host, if one runs there.
pub(crate) fn end_manager(world: &World, host: Host, at_once: bool) -> Result<()> {
    let Some(mut manager) = world.managers().remove(&host) else {
        return Ok(());
    };
    let (how, limit) = if at_once {
        (Signal::SIGKILL, 1)
    } else {
        (Signal::SIGTERM, 30)
    };
    signal(manager.id(), how);
    let deadline = Instant::now() + Duration::from_secs(limit);
    while manager.try_wait()?.is_none() {
        if Instant::now() > deadline {
            manager.kill()?;
            manager.wait()?;
            break;
        }
        sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Takes the fabric away.
pub(crate) fn remove(world: &World) -> Result<()> {
    set("live", "0")?;
    for which in cables(world) {
        fs::remove_dir(format!("{FABRIC}/{}", cable(world, which)))?;
    }
    for (host, _) in world.hosts() {
        fs::remove_dir(format!("{FABRIC}/hcas/h{host}"))?;
    }
    for switch in switches(world) {
        fs::remove_dir(format!("{FABRIC}/switches/{switch}"))?;
    }
    fs::remove_dir(FABRIC).context("the fabric")
}
