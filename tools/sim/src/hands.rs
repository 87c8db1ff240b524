// SPDX-License-Identifier: GPL-2.0

//! The hands that do a plan's steps.

use crate::checks;
use crate::fabric;
use crate::host::{self, add, add_addresses, ip, set_mode};
use crate::program::{inside, namespace, run};
use crate::traffic::{self, Traffic};
use crate::world::World;
use anyhow::{Context, Result, bail};
use sim::plan::{Act, Cable, Driver, Fault, Host, Interface, Step, is_fatal};
use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

/// Guest time after which a hand that has not come to its end hangs.
const LONGEST: Duration = Duration::from_secs(180);

/// Time between two looks at what is used.
const SECOND: Duration = Duration::from_secs(1);

/// Where the agent has debugfs.
pub(crate) const DEBUG: &str = "/run/debug";

/// Does all steps, each hand its own, and waits until the time of the plan is over.
pub(crate) fn play(world: &World, steps: &[Step], traffic: &Traffic) -> Result<()> {
    let begin = Instant::now();
    let mut by_hand: BTreeMap<u8, Vec<&Step>> = BTreeMap::new();
    for step in steps {
        by_hand.entry(step.hand).or_default().push(step);
    }
    thread::scope(|scope| -> Result<()> {
        let hands: Vec<_> = by_hand
            .into_iter()
            .map(|(hand, steps)| {
                scope.spawn(move || {
                    for step in steps {
                        until(begin + Duration::from_millis(step.at.into()));
                        let what = format!("hand {hand}: {:?}", step.act);
                        world.noted(&what, act(world, &step.act, traffic));
                    }
                })
            })
            .collect();
        let deadline = begin + LONGEST;
        let end = begin + Duration::from_millis(world.setting.length.into());
        while Instant::now() < end {
            checks::bounds(world)?;
            until(end.min(Instant::now() + SECOND));
        }
        for hand in hands {
            while !hand.is_finished() {
                if Instant::now() > deadline {
                    // There is no way to end it: what it waits for is in the log of the kernel.
                    let _ = fs::write("/proc/sysrq-trigger", "w");
                    world.log("a hand does not come to its end");
                    bail!("a hand does not come to its end");
                }
                thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(())
    })
}

fn until(time: Instant) {
    thread::sleep(time.saturating_duration_since(Instant::now()));
}

/// Does an act.
fn act(world: &World, act: &Act, traffic: &Traffic) -> Result<()> {
    match act {
        Act::Plug(cable, plugged) => fabric::set(
            &format!("{}/plugged", fabric::cable(*cable)),
            if *plugged { "1" } else { "0" },
        ),
        Act::Impair(cable, fault) => {
            if matches!(fault, Fault::Duplicate(_)) {
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
        Act::Link(host, interface, up) => {
            let name = host::name(*interface);
            let state = if *up { "up" } else { "down" };
            ip(*host, &format!("link set {name} {state}\n"))?;
            if *up {
                // IPv6 forgets them with the link.
                add_addresses(*host, *interface)?;
            }
            Ok(())
        }
        Act::SetMode(host, interface, mode) => set_mode(world, *host, *interface, *mode),
        Act::Mtu(host, interface, mtu) => ip(
            *host,
            &format!("link set {} mtu {mtu}\n", host::name(*interface)),
        ),
        Act::Rings(host, receive, send) => {
            let (receive, send) = (receive.to_string(), send.to_string());
            in_namespace(
                *host,
                &["ethtool", "-G", "ib0", "rx", &receive, "tx", &send],
            )
        }
        Act::Exist(host, interface, true) => {
            add(world, *host, *interface)?;
            set_mode(world, *host, *interface, world.host(*host)?.mode)?;
            ip(*host, &format!("link set {} up\n", host::name(*interface)))?;
            add_addresses(*host, *interface)
        }
        Act::Exist(host, interface, false) => {
            // The kernel's own driver does not let its parents go.
            if *interface == Interface::Parent && world.host(*host)?.driver == Driver::Theirs {
                return Ok(());
            }
            ip(*host, &format!("link del {}\n", host::name(*interface)))
        }
        Act::Addresses(host, interface, true) => add_addresses(*host, *interface),
        Act::Addresses(host, interface, false) => ip(
            *host,
            &format!("addr flush dev {}\n", host::name(*interface)),
        ),
        Act::Forget(host) => in_namespace(*host, &["ip", "neigh", "flush", "all"]),
        Act::Move(host, interface, other) => relocate(world, *host, *interface, *other),
        Act::Load(on) => load(world, *on),
        Act::Fail(host, rules) => {
            world.note_rules(*host, rules != "clear");
            fabric::set(&format!("hcas/h{host}/faults"), rules)
        }
        Act::Event(host, event) => {
            if is_fatal(event) {
                world.note_use(*host, true);
                without_device(world, *host)?;
            }
            fabric::set(&format!("hcas/h{host}/event"), event)
        }
        Act::Starve(nth) => starve(*nth),
        Act::Scarce(some) => scarce(*some),
        Act::Sysctl(host, interface, variable, value) => {
            let file = format!("/proc/sys/net/ipoib/{}/{variable}", host::name(*interface));
            inside(*host, || {
                fs::write(&file, value.to_string()).with_context(|| file.clone())
            })
        }
        Act::Noise(host, interface, to, frames) => {
            traffic::noise(world, *host, *interface, *to, *frames)
        }
        Act::Burst(from, bytes) => {
            traffic.burst(*from, *bytes);
            Ok(())
        }
    }
}

/// Runs a command in a host's namespace.
fn in_namespace(host: Host, words: &[&str]) -> Result<()> {
    inside(host, || run(words, "")).map(drop)
}

/// Switches an HCA on or off. What was on it is made anew.
fn power(world: &World, host: Host, on: bool) -> Result<()> {
    if !on {
        without_device(world, host)?;
    }
    fabric::set(&format!("hcas/h{host}/power"), if on { "1" } else { "0" })?;
    // One that fails as it is switched on may have no queue pairs for management.
    world.note_use(host, on && world.fails(host));
    if !on {
        // One may have been started since.
        return without_device(world, host);
    }
    // It came off as the HCA was switched off.
    fabric::set(
        &format!("{}/plugged", fabric::cable(Cable::Host(host))),
        "1",
    )?;
    fabric::capture(world, host)?;
    fabric::take_in(host)?;
    fabric::set_up(world, host)
}

/// Ends the subnet manager of a host whose HCA is no use: opensm would ask it for ever, as fast as it can.
fn without_device(world: &World, host: Host) -> Result<()> {
    fabric::end_manager(world, host, true)
}

/// Takes an interface to another host's namespace under another name, or back.
fn relocate(world: &World, host: Host, interface: Interface, other: Option<Host>) -> Result<()> {
    let name = host::name(interface);
    let away = format!("{name}-{host}");
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
                if host::exists(other, &away) {
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

/// Unloads the driver, which wants no interface of it, or loads it and makes all interfaces.
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
    run(&["modprobe", "-r", "ipoib_rs"], "").map(drop)
}

/// Lets every n-th allocation of this thread, and of what it starts, fail, once.
fn starve(nth: u32) -> Result<()> {
    for (file, value) in [
        ("task-filter", "Y"),
        ("ignore-gfp-wait", "N"),
        ("verbose", "0"),
        ("space", "0"),
        ("times", "1"),
        ("interval", &nth.to_string()),
        ("probability", "100"),
    ] {
        let path = format!("{DEBUG}/failslab/{file}");
        fs::write(&path, value).context(path)?;
    }
    fs::write("/proc/thread-self/make-it-fail", "1").context("make-it-fail")
}

/// Lets one in two hundred atomic allocations fail, or none.
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
