// SPDX-License-Identifier: GPL-2.0

//! A history's plan, and the text that it is written as.

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A host, by its number from 1.
pub type Host = u8;

/// All that a history depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Its hosts and its fabric.
    pub setting: Setting,
    /// Its steps, in order of time.
    pub steps: Vec<Step>,
}

/// Hosts and fabric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// The seed of all random numbers.
    pub seed: u64,
    /// Milliseconds after which everything is healed.
    pub length: u32,
    /// Ports are Ethernet ones of two HCAs, back to back; there is neither a switch nor a subnet manager.
    pub roce: bool,
    /// Cables between the two switches that hosts are on by turns, up to 8; 0 if all hosts are on one switch.
    pub trunks: u8,
    /// HCAs compute checksums and segment TCP.
    pub offloads: bool,
    /// HCAs have shared receive queues.
    pub shared_queues: bool,
    /// HCAs have few queue pairs, short lists of memory, and two completion vectors.
    pub poor: bool,
    /// Mbit/s of each cable.
    pub rate: u32,
    /// Microseconds that a packet is under way on a cable.
    pub delay: u32,
    /// The hosts.
    pub hosts: Vec<HostSetting>,
}

/// A host at the beginning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSetting {
    /// The driver of its interfaces.
    pub driver: Driver,
    /// Their mode.
    pub mode: Mode,
    /// It has a child interface for the partition 0x8001 as well.
    pub child: bool,
}

/// A driver of IPoIB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Driver {
    /// This checkout's.
    Ours,
    /// The kernel's own.
    Theirs,
}

/// A mode of IPoIB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// RFC 4391.
    Datagram,
    /// RFC 4755.
    Connected,
}

/// A step: an act at a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Milliseconds from the beginning.
    pub at: u32,
    /// The hand that does it. A hand does one step at a time; a step that is due before that has ended is late.
    pub hand: u8,
    /// Its act.
    pub act: Act,
}

/// An interface of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Interface {
    /// `ib0`.
    Parent,
    /// `ib0.8001`.
    Child,
}

/// A cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cable {
    /// A host's.
    Host(Host),
    /// One between the switches, from 1.
    Trunk(u8),
}

/// A fault of a cable, with its value as configfs takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// Packets of a million that are lost.
    Loss(u32),
    /// Packets of a million that arrive twice.
    Duplicate(u32),
    /// Packets of a million that arrive with a wrong CRC.
    Corrupt(u32),
    /// Microseconds that a packet is under way; 0 for those of the setting.
    Delay(u32),
    /// Microseconds up to which a packet is under way for longer.
    Jitter(u32),
    /// Mbit/s; 0 for those of the setting.
    Rate(u32),
}

/// An act. In a state that does not allow it, it fails, so that a plan without some of its steps is a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Act {
    /// Plugs a cable in, or pulls it.
    Plug(Cable, bool),
    /// Sets a fault of a cable.
    Impair(Cable, Fault),
    /// Sets the routing of the switches: off, packet or flowlet.
    Route(String),
    /// Switches an HCA on or off.
    Power(Host, bool),
    /// Starts a subnet manager on a host; with new LIDs for all, if true.
    StartManager(Host, bool),
    /// Ends the subnet manager of a host; by SIGKILL, if true.
    EndManager(Host, bool),
    /// Has the subnet managers take away the partition 0x8001 from a host, or give it to all.
    Expel(Option<Host>),
    /// Brings an interface up or down.
    Link(Host, Interface, bool),
    /// Sets the mode of an interface.
    SetMode(Host, Interface, Mode),
    /// Sets the MTU of an interface.
    Mtu(Host, Interface, u32),
    /// Sets the sizes of the receive and the send ring of `ib0`.
    Rings(Host, u32, u32),
    /// Makes an interface or deletes it.
    Exist(Host, Interface, bool),
    /// Gives an interface its addresses, or takes them away.
    Addresses(Host, Interface, bool),
    /// Forgets all neighbours.
    Forget(Host),
    /// Takes an interface to the namespace of another host, or back. It comes up there without addresses.
    Move(Host, Interface, Option<Host>),
    /// Unloads the driver, or loads it.
    Load(bool),
    /// Loads the driver with these options, some of which are invalid.
    LoadWith(String),
    /// Sets rules for how an HCA fails.
    Fail(Host, String),
    /// Has an HCA report an event.
    Event(Host, String),
    /// Writes a value to a file of an interface in sysfs, while the allocation of this number fails.
    Starve(Host, Interface, String, String, u32),
    /// Makes one in two hundred atomic allocations fail, or none.
    Scarce(bool),
    /// Writes a sysctl of the driver.
    Sysctl(Host, Interface, String, u32),
    /// Sends so many frames of random bytes from a host's interface: to another host, or to all.
    Noise(Host, Interface, Option<Host>, u32),
    /// Hands so many frames of any type, with random bytes, to a host's interface: for another host, or for all.
    Frames(Host, Interface, Option<Host>, u32),
    /// Sends so many small datagrams from a host to another one, as fast as sockets take them.
    Flood(Host, Host, u32),
    /// Has a host send another one connection requests, many of them malformed: a seed, and how many.
    Knock(Host, Interface, Host, u32, u32),
    /// Connects a program of a host to one of another host through the RDMA connection manager, by the addresses of an interface.
    Meet(Host, Interface, Host),
    /// Gives a host's port a second GUID, as a subnet manager would, or takes it away.
    Guids(Host, bool),
    /// Runs a command line of a user, with the interface as `$i` and the host as `$h`.
    Ask(Host, Interface, String),
    /// Sends so many bytes by TCP from a host to the next one.
    Burst(Host, u32),
}

/// Returns true if an event leaves an HCA, or its queue pairs for management, unusable until it is switched off.
#[must_use]
pub fn is_fatal(event: &str) -> bool {
    [
        "device_fatal",
        "qp_fatal all",
        "cq_error all",
        "srq_error all",
    ]
    .contains(&event)
}

impl Plan {
    /// Reads what [`Display`](fmt::Display) has written. Lines that begin with `#` are comments.
    ///
    /// # Errors
    ///
    /// A text that is no plan, and too many or too few hosts or cables.
    pub fn parse(text: &str) -> Result<Plan> {
        let mut lines = text
            .lines()
            .filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
        let first = lines.next().context("an empty plan")?;
        let setting: Setting = ron::from_str(first).with_context(|| first.to_owned())?;
        let hosts = setting.hosts.len();
        ensure!((2..=5).contains(&hosts), "{hosts} hosts");
        ensure!(
            setting.trunks <= 8,
            "{} cables between switches",
            setting.trunks
        );
        let mut steps = Vec::new();
        for line in lines {
            steps.push(ron::from_str(line).with_context(|| line.to_owned())?);
        }
        Ok(Plan { setting, steps })
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |value: ron::Result<String>| value.map_err(|_| fmt::Error);
        writeln!(f, "{}", text(ron::to_string(&self.setting))?)?;
        for step in &self.steps {
            writeln!(f, "{}", text(ron::to_string(step))?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::Plan;
    use crate::draw::draw;

    #[test]
    fn a_plan_is_read_as_it_was_written() {
        for seed in 0..200 {
            let plan = draw(seed);
            assert_eq!(Plan::parse(&plan.to_string()).expect("a plan"), plan);
        }
        for wrong in ["", "(seed: 1)", "# nothing\n"] {
            Plan::parse(wrong).expect_err(wrong);
        }
    }
}
