// SPDX-License-Identifier: GPL-2.0

//! A host's interfaces: names, addresses, and the commands that make and change them.

use crate::fabric;
use crate::program::{inside, namespace, run};
use crate::world::World;
use anyhow::{Context, Result, ensure};
use sim::plan::{Driver, Host, Interface, Mode};
use std::fs;

/// The P_Key of child interfaces.
const PKEY: &str = "0x8001";

/// The name of an interface.
pub(crate) fn name(interface: Interface) -> &'static str {
    match interface {
        Interface::Parent => "ib0",
        Interface::Child => "ib0.8001",
    }
}

/// The number of the subnet of an interface.
fn subnet(interface: Interface) -> u8 {
    match interface {
        Interface::Parent => 1,
        Interface::Child => 2,
    }
}

/// The IPv4 address of a host's interface.
pub(crate) fn ip4(host: Host, interface: Interface) -> std::net::Ipv4Addr {
    [10, subnet(interface), 0, host].into()
}

/// The IPv6 address of a host's interface.
pub(crate) fn ip6(host: Host, interface: Interface) -> std::net::Ipv6Addr {
    let subnet = u16::from(subnet(interface));
    [0xfd00, subnet, 0, 0, 0, 0, 0, host.into()].into()
}

/// The name of a host's interface in another host's namespace.
pub(crate) fn away(host: Host, interface: Interface) -> String {
    format!("{}-{host}", name(interface))
}

/// Sets the sizes of the rings of a host's `ib0`.
pub(crate) fn set_rings(host: Host, receive: u32, send: u32) -> Result<()> {
    let (receive, send) = (receive.to_string(), send.to_string());
    let words = ["ethtool", "-G", "ib0", "rx", &receive, "tx", &send];
    inside(host, || run(&words, "")).map(drop)
}

/// Sets a variable of an interface.
pub(crate) fn set_variable(
    host: Host,
    interface: Interface,
    variable: &str,
    value: u32,
) -> Result<()> {
    let file = format!("/proc/sys/net/ipoib/{}/{variable}", name(interface));
    inside(host, || {
        fs::write(&file, value.to_string()).with_context(|| file.clone())
    })
}

/// Runs lines of `ip` in a host's namespace, up to the first that fails.
pub(crate) fn ip(host: Host, lines: &str) -> Result<()> {
    run(&["ip", "-n", &namespace(host), "-batch", "-"], lines)?;
    Ok(())
}

/// Returns true if a host has an interface of this name in its namespace.
pub(crate) fn exists(host: Host, name: &str) -> bool {
    inside(host, || Ok(nix::net::if_::if_nametoindex(name).is_ok())).unwrap_or(false)
}

/// Makes an interface, which is down then and has no address.
pub(crate) fn add(world: &World, host: Host, interface: Interface) -> Result<()> {
    let setting = world.host(host)?;
    match (interface, setting.driver) {
        (Interface::Parent, Driver::Ours) => {
            let device = fabric::device(host)?;
            ensure!(!device.is_empty(), "the HCA is off");
            // The kernel's own driver has made one, if it is loaded.
            if exists(host, "ib0") && world.has_theirs() && !is_ours(host) {
                ip(host, "link set ib0 down\nlink set ib0 name ibc0\n")?;
            }
            ip(
                host,
                &format!("link add name ib0 type ipoib_rs device {device}\n"),
            )
        }
        // It comes with the HCA.
        (Interface::Parent, Driver::Theirs) => Ok(()),
        (Interface::Child, driver) => {
            let kind = match driver {
                Driver::Ours => "ipoib_rs",
                Driver::Theirs => "ipoib",
            };
            ip(
                host,
                &format!("link add link ib0 name ib0.8001 type {kind} pkey {PKEY}\n"),
            )
        }
    }
}

/// Returns true if a host's `ib0` is of this checkout's driver, which is so if it has sysctls: with `replace=1`, its link type
/// is `ipoib`.
pub(crate) fn is_ours(host: Host) -> bool {
    inside(host, || Ok(fs::exists("/proc/sys/net/ipoib/ib0")?)).unwrap_or(false)
}

/// Sets the mode of an interface, and the MTU that goes with it.
pub(crate) fn set_mode(world: &World, host: Host, interface: Interface, mode: Mode) -> Result<()> {
    let kind = match world.host(host)?.driver {
        Driver::Ours => "ipoib_rs",
        Driver::Theirs => "ipoib",
    };
    let (mode, mtu) = match mode {
        Mode::Datagram => ("datagram", 4092),
        Mode::Connected => ("connected", 65_520),
    };
    let name = name(interface);
    ip(
        host,
        &format!("link set {name} type {kind} mode {mode}\nlink set {name} mtu {mtu}\n"),
    )
}

/// Gives an interface its addresses, unless it has them.
pub(crate) fn add_addresses(host: Host, interface: Interface) -> Result<()> {
    let name = name(interface);
    ip(
        host,
        &format!(
            "addr replace {}/24 dev {name}\naddr replace {}/64 dev {name} nodad\n",
            ip4(host, interface),
            ip6(host, interface)
        ),
    )
}
