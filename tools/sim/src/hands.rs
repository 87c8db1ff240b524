// SPDX-License-Identifier: GPL-2.0

//! The hands that do a plan's steps.

use crate::host::{
    add, add_addresses, away, exists, ip, ip4, name, set_mode, set_rings, set_variable,
};
use crate::program::{inside, namespace, own_sysfs, run, start};
use crate::traffic::{self, Traffic};
use crate::world::World;
use crate::{checks, fabric, watch};
use anyhow::{Context, Error, Result, bail};
use nix::errno::Errno;
use sim::plan::{Act, Cable, Driver, Fault, Host, Interface, Step, is_fatal};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

/// Guest time after which a hand is taken to hang.
const LONGEST: Duration = Duration::from_secs(180);

/// Time between two looks at what is used.
const SECOND: Duration = Duration::from_secs(1);

/// Program that sets the GUIDs of a port as a subnet manager would.
const SET_GUIDS: &str = concat!(
    include_str!("../../../tests/guest/hwsim/mads/umad.py"),
    include_str!("../../../tests/guest/hwsim/weather/guids.py")
);

/// Program that asks for connections.
const KNOCK: &str = concat!(
    include_str!("../../../tests/guest/hwsim/rdmacm/ucm.py"),
    include_str!("../../../tests/guest/hwsim/weather/knock.py")
);

/// Program that accepts connections of the RDMA connection manager.
const ACCEPT: &str = concat!(
    include_str!("../../../tests/guest/hwsim/rdmacm/ucm.py"),
    include_str!("../../../tests/guest/hwsim/rdmacm/server.py")
);
/// Program that makes one.
const CONNECT: &str = concat!(
    include_str!("../../../tests/guest/hwsim/rdmacm/ucm.py"),
    include_str!("../../../tests/guest/hwsim/rdmacm/client.py")
);

/// Where the agent has debugfs.
pub(crate) const DEBUG: &str = "/run/debug";

/// Does all steps, each hand its own, and waits until the time of the plan is over.
pub(crate) fn play(world: &Arc<World>, steps: &[Step], traffic: &Arc<Traffic>) -> Result<()> {
    let begin = Instant::now();
    let mut by_hand: BTreeMap<u8, Vec<Step>> = BTreeMap::new();
    for step in steps {
        by_hand.entry(step.hand).or_default().push(step.clone());
    }
    // One that hangs is left alone.
    let hands: Vec<_> = by_hand
        .into_iter()
        .map(|(number, steps)| {
            let hand = Hand {
                world: Arc::clone(world),
                traffic: Arc::clone(traffic),
            };
            thread::spawn(move || hand.work(number, &steps, begin))
        })
        .collect();
    let end = begin + Duration::from_millis(world.setting.length.into());
    let watches = world.hosts();
    let watches: Vec<_> = watches
        .map(|(host, _)| watch::start(world, host, end))
        .collect();
    while Instant::now() < end {
        checks::bounds(world)?;
        until(end.min(Instant::now() + SECOND));
    }
    let deadline = begin + LONGEST;
    for hand in hands {
        while !hand.is_finished() {
            if Instant::now() > deadline {
                // The tasks that wait, for the log.
                let _ = fs::write("/proc/sysrq-trigger", "w");
                bail!("a hand hangs");
            }
            thread::sleep(Duration::from_millis(50));
        }
        hand.join().ok().context("a hand has panicked")??;
    }
    for watch in watches {
        watch.join().ok().context("a watch has panicked")??;
    }
    Ok(())
}

/// Waits until a time.
fn until(time: Instant) {
    thread::sleep(time.saturating_duration_since(Instant::now()));
}

/// One that does steps, one after the other.
struct Hand {
    world: Arc<World>,
    traffic: Arc<Traffic>,
}

impl Hand {
    /// Does steps at their times. Steps may fail, but not for want of sense.
    fn work(self, number: u8, steps: &[Step], begin: Instant) -> Result<()> {
        for step in steps {
            until(begin + Duration::from_millis(step.at.into()));
            let result = self.act(&step.act);
            let is_nonsense = result.as_ref().is_err_and(is_invalid)
                && matches!(step.act, Act::Fail(..) | Act::Event(..) | Act::Impair(..));
            let what = format!("hand {number}: {:?}", step.act);
            match result {
                Ok(()) => self.world.log(&what),
                Err(e) => self.world.log(&format!("{what}: {e:#}")),
            }
            if is_nonsense {
                bail!("{what}: is invalid");
            }
        }
        Ok(())
    }

    /// Does an act.
    fn act(&self, act: &Act) -> Result<()> {
        let world = &*self.world;
        match act {
            Act::Plug(cable, plugged) => fabric::plug(world, *cable, *plugged),
            Act::Impair(cable, fault) => {
                if matches!(fault, Fault::Duplicate(packets) if *packets > 0) {
                    world.doubles.store(true, Ordering::Relaxed);
                }
                fabric::impair(world, *cable, *fault)
            }
            Act::Route(how) => fabric::route(world, how),
            Act::Power(host, on) => power(world, *host, *on),
            Act::StartManager(host, anew) => fabric::start_manager(world, *host, *anew),
            Act::EndManager(host, at_once) => fabric::end_manager(world, *host, *at_once),
            Act::Expel(host) => {
                fabric::write_partitions(world, *host)?;
                fabric::read_partitions(world);
                Ok(())
            }
            Act::Load(on) => load(world, *on),
            Act::LoadWith(options) => {
                let words = ["modprobe", "ipoib_rs"];
                let words: Vec<&str> = words.into_iter().chain(options.split(' ')).collect();
                run(&words, "")?;
                world.has_options.store(true, Ordering::Relaxed);
                Ok(())
            }
            Act::Fail(host, rules) => {
                world.note_rules(*host, rules != "clear");
                fabric::set(&format!("hcas/h{host}/faults"), rules)
            }
            Act::Event(host, event) => {
                if is_fatal(event) {
                    world.note_use(*host, true);
                    fabric::end_manager(world, *host, true)?;
                }
                fabric::set(&format!("hcas/h{host}/event"), event)
            }
            Act::Starve(host, interface, file, value, nth) => {
                starve(world, *host, *interface, (file, value), *nth)
            }
            Act::Scarce(some) => {
                world.scarce.store(*some, Ordering::Relaxed);
                scarce(*some)
            }
            Act::Noise(host, interface, to, frames) => {
                traffic::noise(world, *host, *interface, *to, *frames)
            }
            Act::Frames(host, interface, to, frames) => {
                traffic::frames(world, *host, *interface, *to, *frames)
            }
            Act::Flood(host, to, datagrams) => traffic::flood(*host, *to, *datagrams),
            Act::Ask(host, interface, text) => ask(world, *host, *interface, text),
            Act::Knock(host, interface, to, seed, requests) => {
                knock(world, *host, *interface, *to, [*seed, *requests])
            }
            Act::Meet(host, interface, to) => meet(world, *host, *interface, *to),
            Act::Guids(host, some) => set_guids(world, *host, *some),
            Act::Burst(from, bytes) => {
                self.traffic.burst(*from, *bytes);
                Ok(())
            }
            _ => interface_act(world, act),
        }
    }
}

/// Does an act of an interface.
fn interface_act(world: &World, act: &Act) -> Result<()> {
    match act {
        Act::Exist(host, Interface::Child, true) if !world.host(*host)?.child => Ok(()),
        Act::Link(host, interface, up) => {
            let state = if *up { "up" } else { "down" };
            ip(*host, &format!("link set {} {state}\n", name(*interface)))?;
            if *up {
                // IPv6 forgets them with the link.
                add_addresses(*host, *interface)?;
            }
            Ok(())
        }
        Act::SetMode(host, interface, mode) => set_mode(world, *host, *interface, *mode),
        Act::Mtu(host, interface, mtu) => {
            ip(*host, &format!("link set {} mtu {mtu}\n", name(*interface)))
        }
        Act::Rings(host, receive, send) => set_rings(*host, *receive, *send),
        Act::Exist(host, interface, true) => {
            add(world, *host, *interface)?;
            set_mode(world, *host, *interface, world.host(*host)?.mode)?;
            ip(*host, &format!("link set {} up\n", name(*interface)))?;
            add_addresses(*host, *interface)
        }
        Act::Exist(host, interface, false) => {
            // The kernel's own driver does not let its parents go.
            if *interface == Interface::Parent && world.host(*host)?.driver == Driver::Theirs {
                return Ok(());
            }
            ip(*host, &format!("link del {}\n", name(*interface)))
        }
        Act::Addresses(host, interface, true) => add_addresses(*host, *interface),
        Act::Addresses(host, interface, false) => {
            ip(*host, &format!("addr flush dev {}\n", name(*interface)))
        }
        Act::Forget(host) => ip(*host, "neigh flush all\n"),
        Act::Move(host, interface, other) => relocate(world, *host, *interface, *other),
        Act::Sysctl(host, interface, variable, value) => {
            set_variable(*host, *interface, variable, *value)
        }
        _ => bail!("{act:?}: is of no interface"),
    }
}

/// Runs a user's command line in a host's namespace. What it changes of addresses is not healed by itself.
fn ask(world: &World, host: Host, interface: Interface, text: &str) -> Result<()> {
    if text.contains("$i address ") || text.contains("$i broadcast ") {
        world.note_address(host);
    }
    let line = format!("i={} h={host}\n{text}", name(interface));
    inside(host, || {
        own_sysfs()?;
        run(&["sh", "-c", &line], "")
    })
    .map(drop)
}

/// Gives a host's port a second GUID, or takes it away.
fn set_guids(world: &World, host: Host, some: bool) -> Result<()> {
    if world.setting.roce {
        return Ok(());
    }
    let guid = format!(
        "{:#x}",
        if some {
            0x0200_5eff_fe00_5300 + u64::from(host)
        } else {
            0
        }
    );
    inside(host, || {
        own_sysfs()?;
        run(
            &["python3", "-c", SET_GUIDS, &fabric::device(host)?, &guid],
            "",
        )
    })
    .map(drop)
}

/// Has `host` send `to` connection requests; `how` is the seed and the number of requests.
fn knock(world: &World, host: Host, interface: Interface, to: Host, how: [u32; 2]) -> Result<()> {
    let identity = |host| {
        let file = format!("/sys/class/net/{}/address", name(interface));
        let read = || {
            own_sysfs()?;
            fs::read_to_string(&file).with_context(|| file.clone())
        };
        let digits = inside(host, read)?.trim().replace(':', "");
        let address = u128::from_str_radix(digits.get(8..).unwrap_or_default(), 16)?;
        let qpn = u32::from_str_radix(&digits[2..8], 16)?;
        anyhow::Ok((Ipv6Addr::from(address).to_string(), qpn.to_string()))
    };
    let ((own_gid, own_qpn), (gid, qpn)) = (identity(host)?, identity(to)?);
    let pkey = match interface {
        Interface::Parent => "0xffff",
        Interface::Child => "0x8001",
    };
    let [seed, requests] = how.map(|number| number.to_string());
    let words = [
        "python3", "-c", KNOCK, &gid, &qpn, &own_gid, &own_qpn, pkey, &seed, &requests,
    ];
    let answers = inside(host, || run(&words, ""))?;
    let confirmed = answers.matches("confirmed").count();
    world.log(&format!("{confirmed} requests were confirmed"));
    Ok(())
}

/// Connects a program on `host` to a listener on `to`.
fn meet(world: &World, host: Host, interface: Interface, to: Host) -> Result<()> {
    let [from, to_ip] = [host, to].map(|host| ip4(host, interface).to_string());
    let words = ["python3", "-c", ACCEPT, &to_ip, "7", "peer"].map(str::to_owned);
    let mut server = start(to, &words, &[])?;
    thread::sleep(Duration::from_millis(300));
    let words = ["python3", "-c", CONNECT, &from, &to_ip, "7", "5"];
    let result = inside(host, || run(&words, ""));
    let _ = server.kill();
    let _ = server.wait();
    world.log(&format!("met: {}", result?.trim()));
    Ok(())
}

/// Returns true if an error says that an argument was invalid.
fn is_invalid(error: &Error) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    io.is_some_and(|error| error.raw_os_error() == Some(Errno::EINVAL as i32))
}

/// Switches an HCA on or off. Once it is on, its interfaces are made again.
fn power(world: &World, host: Host, on: bool) -> Result<()> {
    if !on {
        // opensm would ask the HCA that is gone for ever, as fast as it can.
        fabric::end_manager(world, host, true)?;
    }
    fabric::power(world, host, on)?;
    // One that fails as it is switched on, or for which there is no memory, may have no queue pairs for management. They are made
    // again as it comes into its namespace.
    let fails = || world.fails(host) || world.scarce.load(Ordering::Relaxed);
    world.note_use(host, on && fails());
    if !on {
        // One may have been started since.
        return fabric::end_manager(world, host, true);
    }
    // It came off as the HCA was switched off.
    fabric::plug(world, Cable::Host(host), true)?;
    let taken = fabric::take_in(host);
    if fails() {
        world.note_use(host, true);
    }
    taken?;
    fabric::set_up(world, host)
}

/// Takes an interface to another host's namespace under another name, or back.
fn relocate(world: &World, host: Host, interface: Interface, other: Option<Host>) -> Result<()> {
    let name = name(interface);
    let away = away(host, interface);
    match other {
        Some(other) => {
            let to = namespace(other);
            ip(
                host,
                &format!("link set {name} down\nlink set {name} netns {to} name {away}\n"),
            )?;
            ip(other, &format!("link set {away} up\n"))
        }
        None => {
            let back = namespace(host);
            for (other, _) in world.hosts().filter(|(other, _)| *other != host) {
                if exists(other, &away) {
                    ip(
                        other,
                        &format!("link set {away} netns {back} name {name}\n"),
                    )?;
                    ip(host, &format!("link set {name} up\n"))?;
                    return add_addresses(host, interface);
                }
            }
            Ok(())
        }
    }
}

/// Unloads the driver, which deletes its interfaces, or loads it and makes them.
pub(crate) fn load(world: &World, on: bool) -> Result<()> {
    if on {
        run(&["modprobe", "ipoib_rs"], "")?;
        for (host, setting) in world.hosts() {
            if setting.driver == Driver::Ours && !fabric::device(host)?.is_empty() {
                fabric::set_up(world, host)?;
            }
        }
        return Ok(());
    }
    run(&["modprobe", "-r", "ipoib_rs"], "")?;
    world.has_options.store(false, Ordering::Relaxed);
    Ok(())
}

/// Writes a value to a file of an interface in sysfs, while the allocation of this number fails. No program is started: the
/// allocations are those of the write.
fn starve(
    world: &World,
    host: Host,
    interface: Interface,
    (file, value): (&str, &str),
    nth: u32,
) -> Result<()> {
    if !world.scarce.load(Ordering::Relaxed) {
        let path = format!("{DEBUG}/failslab/ignore-gfp-wait");
        fs::write(&path, "N").context(path)?;
    }
    inside(host, || {
        const FAIL_NTH: &str = "/proc/thread-self/fail-nth";
        own_sysfs()?;
        let path = format!("/sys/class/net/{}/{file}", name(interface));
        let mut file = File::options().write(true).open(&path).context(path)?;
        fs::write(FAIL_NTH, nth.to_string()).context(FAIL_NTH)?;
        let result = file.write_all(value.as_bytes());
        // If it made fewer.
        fs::write(FAIL_NTH, "0").context(FAIL_NTH)?;
        result.context("a write")
    })
}

/// Makes one in two hundred atomic allocations fail, or none.
pub(crate) fn scarce(some: bool) -> Result<()> {
    for kind in ["failslab", "fail_page_alloc"] {
        for (file, value) in [
            ("probability", "0"),
            ("task-filter", "N"),
            ("ignore-gfp-wait", "Y"),
            ("verbose", "0"),
            ("times", "-1"),
            ("interval", "100"),
            ("probability", if some { "50" } else { "0" }),
        ] {
            let path = format!("{DEBUG}/{kind}/{file}");
            fs::write(&path, value).context(path)?;
        }
    }
    Ok(())
}
