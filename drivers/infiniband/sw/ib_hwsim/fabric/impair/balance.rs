// SPDX-License-Identifier: GPL-2.0

//! Adaptive routing: the choice among parallel cables.
//!
//! Only cables that lead to one neighbour are parallel. Whichever is chosen, the packet comes to the
//! switch that the forwarding table leads to, so that there is no loop that the table has not.

use core::fmt::{self, Write};

use super::Dice;
use crate::packet::{Packet, Transport};
use crate::switch::PortMask;
use crate::text::{number, words};

/// Flows that are told apart; others share a place.
const FLOWS: usize = 64;

/// The longest gap between two flowlets, in µs.
const LONGEST: u32 = 10_000_000;

words! {
    /// A mode of adaptive routing.
    pub enum Adaptive {
        /// All packets go by the port of the forwarding table.
        Off = "off",
        /// Each datagram goes its own way.
        Packet = "packet",
        /// The datagrams of a flow go one way until there is a gap between two of them.
        Flowlet = "flowlet",
    }
}

/// The adaptive routing that a user chooses for a switch.
///
/// # Invariants
///
/// The gap is 1 to 10,000,000 µs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Routing {
    mode: Adaptive,
    gap: u32,
}

/// A setting of adaptive routing, which has a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RoutingSetting {
    /// The mode: `off`, `packet` or `flowlet`.
    Adaptive,
    /// The time in µs without a datagram after which a flow may take another way.
    FlowletGap,
}

impl Routing {
    /// Routing by the forwarding table alone.
    pub const PLAIN: Routing = Routing {
        mode: Adaptive::Off,
        gap: 500,
    };

    /// Returns the mode.
    pub const fn mode(&self) -> Adaptive {
        self.mode
    }

    /// Prints a setting.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn print(&self, setting: RoutingSetting, out: &mut dyn Write) -> fmt::Result {
        match setting {
            RoutingSetting::Adaptive => out.write_str(self.mode.as_str()),
            RoutingSetting::FlowletGap => write!(out, "{}", self.gap),
        }
    }

    /// Parses and sets a setting; `None`, and no change, if it cannot have that value.
    pub fn set(&mut self, setting: RoutingSetting, text: &str) -> Option<()> {
        match setting {
            RoutingSetting::Adaptive => self.mode = Adaptive::parse(text.trim_ascii())?,
            RoutingSetting::FlowletGap => {
                self.gap = number(text, 1..=LONGEST)?;
            }
        }
        Some(())
    }
}

/// The way of a flow.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    /// Time of its latest datagram, in ns.
    last: u64,
    /// The port; 0 if there was no datagram.
    way: u8,
}

/// The choices of a switch among parallel cables.
#[derive(Clone, Debug)]
pub struct Balancer {
    routing: Routing,
    dice: Dice,
    flows: [Flow; FLOWS],
}

impl Balancer {
    /// Makes the choices of a switch of this name.
    pub fn new(routing: &Routing, seed: u64, switch: &str) -> Balancer {
        // The directions of a cable have the numbers below 4.
        Balancer {
            routing: *routing,
            dice: Dice::of(seed, switch, 4),
            flows: [Flow::default(); FLOWS],
        }
    }

    /// Chooses the port by which a packet leaves that the forwarding table has one for: `out`, which is
    /// one of `ways`. Only datagrams are spread: a connection needs its packets in order, and those of
    /// subnet management keep to the table.
    pub fn choose(&mut self, now: u64, packet: &Packet, out: u8, ways: PortMask) -> u8 {
        let is_datagram = matches!(packet.transport, Transport::Ud { .. });
        if !is_datagram || packet.management || ways.without(out).is_empty() {
            return out;
        }
        match self.routing.mode {
            Adaptive::Off => out,
            Adaptive::Packet => pick(&mut self.dice, ways).unwrap_or(out),
            Adaptive::Flowlet => {
                let gap = u64::from(self.routing.gap).saturating_mul(1000);
                let Some(flow) = self.flows.get_mut(place(packet)) else {
                    return out;
                };
                if !ways.contains(flow.way) || now.saturating_sub(flow.last) > gap {
                    flow.way = pick(&mut self.dice, ways).unwrap_or(out);
                }
                flow.last = now;
                flow.way
            }
        }
    }
}

/// Returns one of the ports; `None` if there is none.
fn pick(dice: &mut Dice, ways: PortMask) -> Option<u8> {
    let n = dice.below(ways.bits().count_ones());
    { ways }.nth(n as usize)
}

/// Returns the place of a packet's flow: the hosts and queue pairs that it is between.
fn place(packet: &Packet) -> usize {
    let lids = (u64::from(packet.slid.get()) << 16) | u64::from(packet.dlid.get());
    let qps = (u64::from(packet.source_qp()) << 24) ^ u64::from(packet.dest_qp);
    let mixed = Dice::new(lids ^ qps.rotate_left(20)).roll();
    mixed.checked_rem(FLOWS as u64).unwrap_or(0) as usize
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_spread))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;
    use crate::addr::Lid;
    use crate::rc::{Bth, Op, Psn};

    const WAYS: PortMask = PortMask::new(0b1011);

    fn datagram(src_qp: u32) -> Packet {
        Packet {
            len: 5,
            ..Packet::new(
                Lid::new(1),
                Lid::new(2),
                0x48,
                Transport::datagram(src_qp, 0),
            )
        }
    }

    fn balancer(mode: &str) -> Balancer {
        let mut routing = Routing::PLAIN;
        assert!(routing.set(RoutingSetting::Adaptive, mode).is_some());
        assert!(routing.set(RoutingSetting::FlowletGap, "100").is_some());
        Balancer::new(&routing, 5, "s1")
    }

    #[test]
    fn datagrams_take_all_ways() {
        let mut balancer = balancer("packet");
        let mut seen = 0;
        for now in 0..100 {
            let way = balancer.choose(now, &datagram(1), 2, WAYS);
            assert!(WAYS.contains(way));
            seen |= PortMask::of(way).bits();
        }
        assert_eq!(seen, WAYS.bits());
    }

    #[test]
    fn flowlets_stay_together() {
        let mut balancer = balancer("flowlet");
        let mut seen = 0;
        let mut now = 0;
        for _ in 0..50 {
            now += 100_001;
            let way = balancer.choose(now, &datagram(1), 2, WAYS);
            for _ in 0..20 {
                now += 100_000;
                assert_eq!(balancer.choose(now, &datagram(1), 2, WAYS), way);
            }
            seen |= PortMask::of(way).bits();
        }
        assert_eq!(seen, WAYS.bits());
        // A way that is gone is left at once.
        for way in WAYS {
            let rest = WAYS.without(way);
            now += 1;
            assert!(rest.contains(balancer.choose(now, &datagram(1), 2, rest)));
        }
    }

    #[test]
    fn all_others_keep_to_the_table() {
        let connected = Packet {
            transport: Transport::Rc(Bth::bare(Psn::new(0), Op::Resume)),
            ..datagram(0)
        };
        let management = Packet {
            management: true,
            ..datagram(0)
        };
        for now in 0..100 {
            for mode in ["packet", "flowlet"] {
                let mut balancer = balancer(mode);
                assert_eq!(balancer.choose(now, &connected, 2, WAYS), 2);
                assert_eq!(balancer.choose(now, &management, 2, WAYS), 2);
                assert_eq!(balancer.choose(now, &datagram(1), 2, PortMask::of(2)), 2);
            }
            assert_eq!(balancer("off").choose(now, &datagram(1), 2, WAYS), 2);
        }
    }

    #[test]
    fn texts() {
        let mut routing = Routing::PLAIN;
        for (setting, text, good) in [
            (RoutingSetting::Adaptive, "packet\n", true),
            (RoutingSetting::Adaptive, "Packet", false),
            (RoutingSetting::Adaptive, "", false),
            (RoutingSetting::FlowletGap, "1", true),
            (RoutingSetting::FlowletGap, "0", false),
            (RoutingSetting::FlowletGap, "10000000", true),
            (RoutingSetting::FlowletGap, "10000001", false),
        ] {
            assert_eq!(routing.set(setting, text).is_some(), good);
        }
        assert_eq!(routing.mode(), Adaptive::Packet);
    }
}
