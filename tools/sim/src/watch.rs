// SPDX-License-Identifier: GPL-2.0

//! Watches over hosts while a plan is played: an interface's carrier must match its port, and its address its mode, after a few
//! seconds.

use crate::hands::DEBUG;
use crate::host::name;
use crate::program::{inside, own_sysfs};
use crate::world::World;
use anyhow::{Context, Result, bail};
use sim::plan::{Driver, Host, Interface};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Time between two looks.
const SECOND: Duration = Duration::from_secs(1);

/// Wrong looks in a row that are a failure: the driver may have to wait for RTNL, which others hold while they wait for the
/// SA.
const LATE: u32 = 4;

/// The flag of an address for connections (RFC 4755, section 3).
const RC: u8 = 0x80;

/// Watches over a host with this checkout's driver until `end`.
pub(crate) fn start(world: &Arc<World>, host: Host, end: Instant) -> JoinHandle<Result<()>> {
    let world = Arc::clone(world);
    thread::spawn(move || {
        if world.host(host)?.driver != Driver::Ours {
            return Ok(());
        }
        inside(host, || {
            own_sysfs()?;
            watch(&world, host, end).with_context(|| format!("host {host}"))
        })
    })
}

/// Looks at a host's interfaces once a second, in its namespace.
fn watch(world: &World, host: Host, end: Instant) -> Result<()> {
    let interfaces = [Interface::Parent, Interface::Child];
    let mut wrong = [0; 2];
    while Instant::now() < end {
        for (interface, wrong) in interfaces.iter().zip(&mut wrong) {
            let Some(what) = look(world, host, *interface) else {
                *wrong = 0;
                continue;
            };
            *wrong += 1;
            if *wrong == LATE {
                let what = format!("{} {what}", name(*interface));
                world.log(&format!("host {host}: {what}"));
                bail!(what);
            }
        }
        thread::sleep(SECOND);
    }
    Ok(())
}

/// Returns what is wrong with an interface of this checkout's driver; None if it does not exist.
fn look(world: &World, host: Host, interface: Interface) -> Option<&'static str> {
    let name = name(interface);
    if !Path::new("/proc/sys/net/ipoib").join(name).exists() {
        return None;
    }
    let attribute = |attribute| fs::read_to_string(format!("/sys/class/net/{name}/{attribute}"));
    // There is none while the HCA is off.
    let port = format!("{DEBUG}/ib_hwsim/sim/h{host}/port1");
    let port = fs::read_to_string(port).unwrap_or_default();
    // It cannot be read of an interface that is down.
    let has_carrier = attribute("carrier").is_ok_and(|carrier| carrier.trim() == "1");
    if has_carrier && !port.starts_with("state: Active") {
        return Some("has a carrier without a port");
    }
    // Without a GID, a port gives its interface no carrier, and no address.
    if !has_carrier || world.has_changed_addresses(host) {
        return None;
    }
    let (address, mode) = (attribute("address").ok()?, attribute("mode").ok()?);
    let flags = u8::from_str_radix(address.get(..2)?, 16).ok()?;
    let connected = mode.trim() == "connected";
    (connected != (flags & RC != 0)).then_some("has an address of another mode")
}
