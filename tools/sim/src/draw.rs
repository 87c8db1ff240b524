// SPDX-License-Identifier: GPL-2.0

//! Plans from seeds.

use crate::Plan;
use crate::asked::{ETHERNET, GUID, OPTIONS, QUESTIONS, REQUESTS, SCOPE};
use crate::plan::{
    Act, Cable, Driver, Fault, Host, HostSetting, Interface, Mode, Setting, Step, is_fatal,
};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Milliseconds of a history until everything is healed.
const LENGTH: u32 = 60_000;

/// The latest time of a step, in milliseconds.
const LAST: u32 = LENGTH - 1;

/// Hands that do things at the same time.
const HANDS: u8 = 3;

/// Rules by which HCAs fail, as ib_hwsim's `faults` takes them.
const RULES: [&str; 27] = [
    "create_ah ENOMEM at 1",
    "create_ah ENOMEM from 2",
    "create_qp ENOMEM at 1",
    "create_qp EIO from 1",
    "create_cq ENOMEM at 1",
    "create_srq ENOMEM at 1",
    "modify_qp:init EIO at 1",
    "modify_qp:rtr EINVAL at 1",
    "modify_qp:rtr EINVAL from 1",
    "modify_qp:rts EIO at 1",
    "query_port EIO at 1",
    "query_pkey EIO at 1",
    "attach_mcast ENOMEM at 1",
    "attach_mcast EINVAL from 1",
    "post_send ENOMEM at 3",
    "post_send EIO from 5",
    "post_send EINVAL at 2",
    "post_recv ENOMEM at 2",
    "post_srq_recv ENOMEM at 2",
    "alloc_pd ENOMEM at 1",
    "send WR_FLUSH_ERR at 3",
    "send RETRY_EXC_ERR at 2",
    "send LOC_QP_OP_ERR at 4",
    "receive LOC_LEN_ERR at 3",
    "receive LOC_PROT_ERR from 4",
    "hold",
    "delay 40",
];

/// Events that HCAs report, as ib_hwsim's `event` takes them.
const EVENTS: [&str; 15] = [
    "port_active",
    "port_error",
    "lid_change",
    "sm_change",
    "client_reregister",
    "pkey_change",
    "gid_change",
    "speed_change",
    "comm_established all",
    "last_wqe_reached all",
    "qp_fatal all",
    "cq_error all",
    "srq_error all",
    "link_integrity",
    "device_fatal",
];

/// Files of an interface in sysfs, and values that are written while an allocation fails: up, down, and others.
const STARVED: [(&str, &str); 6] = [
    ("flags", "0x1003"),
    ("flags", "0x1003"),
    ("flags", "0x1002"),
    ("mode", "connected"),
    ("mode", "datagram"),
    ("create_child", "0x8001"),
];

/// Variables of an interface in `/proc/sys/net/ipoib`: the default, and other values.
pub const VARIABLES: [(&str, u32, [u32; 2]); 12] = [
    ("reorder_window", 32, [0, 128]),
    ("reorder_timeout_us", 5000, [0, 100_000]),
    ("extensions", 1, [0, 0]),
    ("rx_copybreak", 0, [200, 2048]),
    ("napi_budget", 64, [1, 3]),
    ("icrc", 1, [0, 0]),
    ("large_frames", 1, [0, 0]),
    ("rc_max_qps", 1, [3, 8]),
    ("rc_max_connections", 64, [1, 2]),
    ("rc_idle_s", 60, [1, 3]),
    ("traffic_class", 0, [32, 184]),
    ("service_level", 0, [1, 5]),
];

/// Makes the plan of a seed.
///
/// Devices fail in half of the plans, and memory is scarce in a third of them: in the others, the driver has no reason to
/// heal itself.
#[must_use]
pub fn draw(seed: u64) -> Plan {
    let mut source = Source(ChaCha8Rng::seed_from_u64(seed));
    let setting = source.setting(seed);
    let devices_fail = source.once_in(2);
    let is_scarce =
        source.once_in(3) && setting.hosts.iter().all(|host| host.driver == Driver::Ours);
    let mut steps = Vec::new();
    let mut at = source.between(0, 1500);
    while at < LAST {
        let hand = u8::try_from(source.between(0, u32::from(HANDS) - 1)).unwrap_or(0);
        for (delay, act) in source.acts(&setting) {
            let is_fair = match &act {
                Act::Fail(host, _) => devices_fail && is_ours(&setting, *host),
                Act::Event(host, event) if is_fatal(event) => {
                    devices_fail && is_ours(&setting, *host)
                }
                // Those of queue pairs come untimely.
                Act::Event(host, event) if event.ends_with(" all") => is_ours(&setting, *host),
                Act::Starve(..) | Act::Scarce(_) => is_scarce,
                // The kernel's own driver is not sent malformed requests either.
                Act::Knock(_, _, to, ..) => !setting.roce && is_ours(&setting, *to),
                _ => true,
            };
            if !is_fair {
                continue;
            }
            let at = (at + delay).min(LAST);
            steps.push(Step { at, hand, act });
        }
        // Some things come together, most come alone.
        at += match source.between(0, 9) {
            0..=3 => source.between(0, 30),
            4 => source.between(3000, 8000),
            _ => source.between(30, 3000),
        };
    }
    steps.sort_by_key(|step| step.at);
    Plan { setting, steps }
}

/// Returns true if a host has this checkout's driver. The kernel's own does not promise to bear a device that fails.
fn is_ours(setting: &Setting, host: Host) -> bool {
    let host = setting.hosts.get(usize::from(host) - 1);
    host.is_some_and(|host| host.driver == Driver::Ours)
}

/// A source of random choices.
struct Source(ChaCha8Rng);

impl Source {
    /// A number from `low` to `high`.
    fn between(&mut self, low: u32, high: u32) -> u32 {
        self.0.random_range(low..=high)
    }

    /// Returns true once in so many times.
    fn once_in(&mut self, times: u32) -> bool {
        self.between(1, times) == 1
    }

    /// One of several values.
    fn pick<T: Copy>(&mut self, among: &[T]) -> T {
        *among.choose(&mut self.0).expect("a choice")
    }

    /// Hosts and fabric.
    fn setting(&mut self, seed: u64) -> Setting {
        let roce = self.once_in(5);
        let hosts = if roce {
            2
        } else {
            self.pick(&[2, 2, 2, 3, 3, 4, 5])
        };
        let has_theirs = !roce && self.once_in(3);
        let hosts: Vec<HostSetting> = (0..hosts)
            .map(|n| HostSetting {
                driver: if n > 0 && has_theirs && self.once_in(2) {
                    Driver::Theirs
                } else {
                    Driver::Ours
                },
                mode: self.pick(&[Mode::Datagram, Mode::Connected]),
                child: !roce && self.once_in(2),
            })
            .collect();
        Setting {
            seed,
            length: LENGTH,
            roce,
            trunks: if roce { 0 } else { self.pick(&[0, 0, 2, 3]) },
            offloads: self.once_in(2),
            shared_queues: !self.once_in(6),
            // The kernel's own driver needs more.
            poor: self.once_in(6) && hosts.iter().all(|host| host.driver == Driver::Ours),
            rate: self.pick(&[100, 1000, 10_000]),
            delay: self.pick(&[2, 20, 200]),
            hosts,
        }
    }

    /// A host.
    fn host(&mut self, setting: &Setting) -> Host {
        Host::try_from(self.between(1, setting.hosts.len() as u32)).unwrap_or(1)
    }

    /// A host other than this one.
    fn other(&mut self, setting: &Setting, than: Host) -> Host {
        loop {
            let host = self.host(setting);
            if host != than {
                return host;
            }
        }
    }

    /// An interface; `ib0` mostly.
    fn interface(&mut self) -> Interface {
        self.pick(&[Interface::Parent, Interface::Parent, Interface::Child])
    }

    /// A cable.
    fn cable(&mut self, setting: &Setting) -> Cable {
        if setting.trunks > 0 && self.once_in(2) {
            let trunk = self.between(1, u32::from(setting.trunks));
            return Cable::Trunk(u8::try_from(trunk).unwrap_or(1));
        }
        Cable::Host(self.host(setting))
    }

    /// Milliseconds that something lasts.
    fn duration(&mut self) -> u32 {
        match self.between(0, 3) {
            0 => self.between(0, 5),
            1 => self.between(5, 100),
            2 => self.between(100, 1500),
            _ => self.between(1500, 8000),
        }
    }

    /// An act and what undoes it, each with its delay in milliseconds.
    fn acts(&mut self, setting: &Setting) -> Vec<(u32, Act)> {
        match self.between(0, 109) {
            0..=34 => self.fabric_acts(setting),
            35..=72 => self.host_acts(setting),
            73..=89 => self.failing_acts(setting),
            90..=99 => self.traffic_acts(setting),
            _ => self.asked_acts(setting),
        }
    }

    /// Acts of cables, switches, HCAs and subnet managers.
    fn fabric_acts(&mut self, setting: &Setting) -> Vec<(u32, Act)> {
        let (host, lasts) = (self.host(setting), self.duration());
        match self.between(0, 34) {
            0..=8 => {
                let cable = self.cable(setting);
                vec![
                    (0, Act::Plug(cable, false)),
                    (lasts, Act::Plug(cable, true)),
                ]
            }
            9..=18 => {
                let cable = self.cable(setting);
                let (fault, none) = self.fault();
                vec![
                    (0, Act::Impair(cable, fault)),
                    (lasts, Act::Impair(cable, none)),
                ]
            }
            19..=20 => {
                let how = self.pick(&["off", "packet", "flowlet"]);
                vec![(0, Act::Route(how.to_owned()))]
            }
            21..=24 => vec![
                (0, Act::Power(host, false)),
                (lasts, Act::Power(host, true)),
            ],
            25..=29 => {
                let (kill, anew) = (self.once_in(2), self.once_in(4));
                vec![
                    (0, Act::EndManager(host, kill)),
                    (lasts, Act::StartManager(host, anew)),
                ]
            }
            30..=31 => vec![
                (0, Act::StartManager(host, false)),
                (lasts, Act::EndManager(host, self.once_in(2))),
            ],
            _ => vec![(0, Act::Expel(Some(host))), (lasts, Act::Expel(None))],
        }
    }

    /// Acts of interfaces, and of the driver.
    fn host_acts(&mut self, setting: &Setting) -> Vec<(u32, Act)> {
        let (host, interface, lasts) = (self.host(setting), self.interface(), self.duration());
        match self.between(0, 40) {
            0..=7 => vec![
                (0, Act::Link(host, interface, false)),
                (lasts, Act::Link(host, interface, true)),
            ],
            8..=14 => {
                let mode = self.pick(&[Mode::Datagram, Mode::Connected]);
                vec![(0, Act::SetMode(host, interface, mode))]
            }
            15..=18 => {
                let mtu = self.pick(&[1280, 1500, 2044, 4092, 16_384, 65_520]);
                vec![(0, Act::Mtu(host, interface, mtu))]
            }
            19..=21 => {
                let (receive, send) = (self.pick(&[64, 256, 2048]), self.pick(&[64, 128, 1024]));
                vec![(0, Act::Rings(host, receive, send))]
            }
            22..=26 => vec![
                (0, Act::Exist(host, interface, false)),
                (lasts, Act::Exist(host, interface, true)),
            ],
            27..=29 => vec![
                (0, Act::Addresses(host, interface, false)),
                (lasts, Act::Addresses(host, interface, true)),
            ],
            30..=32 => vec![(0, Act::Forget(host))],
            33..=35 => {
                let other = self.other(setting, host);
                vec![
                    (0, Act::Move(host, interface, Some(other))),
                    (lasts, Act::Move(host, interface, None)),
                ]
            }
            36 => vec![(0, Act::Load(false)), (lasts, Act::Load(true))],
            37 => vec![
                (0, Act::Load(false)),
                (lasts, Act::LoadWith(self.pick(&OPTIONS).to_owned())),
                (lasts + 1, Act::Load(true)),
            ],
            _ => {
                let (name, default, others) = self.pick(&VARIABLES);
                let set = |value| Act::Sysctl(host, interface, name.to_owned(), value);
                let other = self.pick(&others);
                vec![(0, set(other)), (lasts, set(default))]
            }
        }
    }

    /// Questions and requests of users.
    fn asked_acts(&mut self, setting: &Setting) -> Vec<(u32, Act)> {
        let (host, interface, lasts) = (self.host(setting), self.interface(), self.duration());
        let ask = |text: &str| Act::Ask(host, interface, text.to_owned());
        let (text, undo) = match self.between(0, 11) {
            0..=4 => return vec![(0, ask(self.pick(&QUESTIONS)))],
            5..=8 => self.pick(&REQUESTS),
            9..=11 if setting.roce => self.pick(&ETHERNET),
            9..=10 => {
                let delay = self.duration();
                return vec![
                    (0, ask(GUID.0)),
                    (0, Act::Addresses(host, interface, true)),
                    (delay, Act::Guids(host, true)),
                    (lasts, ask(GUID.1)),
                    (lasts, Act::Addresses(host, interface, true)),
                    (lasts + delay, Act::Guids(host, false)),
                ];
            }
            _ => SCOPE,
        };
        vec![(0, ask(text)), (lasts, ask(undo))]
    }

    /// Acts after which devices or allocations fail, and events.
    fn failing_acts(&mut self, setting: &Setting) -> Vec<(u32, Act)> {
        let (host, interface, lasts) = (self.host(setting), self.interface(), self.duration());
        match self.between(0, 16) {
            0..=7 => {
                let rule = self.rule();
                // The driver takes a queue for stuck after ten seconds only.
                let lasts = if rule == "hold" { 2 * lasts } else { lasts };
                vec![
                    (0, Act::Fail(host, rule)),
                    (lasts, Act::Fail(host, "clear".to_owned())),
                ]
            }
            8..=12 => {
                let event = self.pick(&EVENTS);
                let mut acts = vec![(0, Act::Event(host, event.to_owned()))];
                if is_fatal(event) {
                    acts.push((lasts, Act::Power(host, false)));
                    acts.push((lasts + 10, Act::Power(host, true)));
                }
                acts
            }
            13..=14 => vec![(0, Act::Scarce(true)), (lasts, Act::Scarce(false))],
            _ => {
                let (file, value) = self.pick(&STARVED);
                let nth = if self.once_in(2) {
                    self.between(1, 40)
                } else {
                    self.between(1, 400)
                };
                let starve = Act::Starve(host, interface, file.to_owned(), value.to_owned(), nth);
                vec![
                    (0, starve),
                    (lasts, Act::Link(host, interface, false)),
                    (lasts, Act::Link(host, interface, true)),
                ]
            }
        }
    }

    /// A rule by which an HCA fails; a third of those for verbs have another error, and another call.
    fn rule(&mut self) -> String {
        let rule = self.pick(&RULES);
        let verb = rule.split_once(' ').and_then(|(verb, rest)| {
            let is_errno = rest.starts_with('E');
            is_errno.then_some(verb)
        });
        match verb {
            Some(verb) if self.once_in(3) => {
                format!("{verb} ETIMEDOUT at {}", self.between(1, 6))
            }
            _ => rule.to_owned(),
        }
    }

    /// Traffic beside that which goes on all the time.
    fn traffic_acts(&mut self, setting: &Setting) -> Vec<(u32, Act)> {
        let (host, interface) = (self.host(setting), self.interface());
        match self.between(0, 7) {
            0..=1 => return vec![(0, Act::Burst(host, self.between(1, 2_000_000)))],
            2..=3 => {
                let to = self.other(setting, host);
                return vec![(0, Act::Flood(host, to, self.between(100, 4000)))];
            }
            4 => {
                let to = self.other(setting, host);
                let (seed, requests) = (self.between(0, u32::MAX), self.between(1, 40));
                return vec![(0, Act::Knock(host, interface, to, seed, requests))];
            }
            5 => return vec![(0, Act::Meet(host, interface, self.other(setting, host)))],
            _ => {}
        }
        let to = self.once_in(2).then(|| self.other(setting, host));
        let frames = if self.once_in(4) {
            self.between(200, 3000)
        } else {
            self.between(1, 200)
        };
        let act = if self.once_in(2) {
            Act::Noise(host, interface, to, frames)
        } else {
            Act::Frames(host, interface, to, frames)
        };
        vec![(0, act)]
    }

    /// A fault of a cable, and what ends it.
    fn fault(&mut self) -> (Fault, Fault) {
        match self.between(0, 5) {
            0 => (Fault::Loss(self.between(1, 200_000)), Fault::Loss(0)),
            1 => (
                Fault::Duplicate(self.between(1, 100_000)),
                Fault::Duplicate(0),
            ),
            2 => (Fault::Corrupt(self.between(1, 50_000)), Fault::Corrupt(0)),
            3 => (Fault::Delay(self.between(1, 20_000)), Fault::Delay(0)),
            4 => (Fault::Jitter(self.between(1, 3000)), Fault::Jitter(0)),
            _ => (Fault::Rate(self.between(1, 50)), Fault::Rate(0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{EVENTS, LENGTH, RULES, draw};
    use crate::plan::{Act, Cable, Host, Plan};
    use ib_fabric::fault::{Order, Table};
    use std::collections::BTreeSet;

    /// The hosts that a plan's acts name.
    fn named(plan: &Plan) -> Vec<Host> {
        let hosts = plan.steps.iter().flat_map(|step| match step.act {
            Act::Plug(Cable::Host(a), _)
            | Act::Impair(Cable::Host(a), _)
            | Act::Power(a, _)
            | Act::StartManager(a, _)
            | Act::EndManager(a, _)
            | Act::Link(a, ..)
            | Act::SetMode(a, ..)
            | Act::Exist(a, ..)
            | Act::Guids(a, _)
            | Act::Ask(a, ..)
            | Act::Forget(a) => vec![a],
            Act::Flood(a, b, _)
            | Act::Knock(a, _, b, ..)
            | Act::Meet(a, _, b)
            | Act::Move(a, _, Some(b))
            | Act::Noise(a, _, Some(b), _)
            | Act::Frames(a, _, Some(b), _) => {
                vec![a, b]
            }
            _ => vec![],
        });
        hosts.collect()
    }

    /// Rules and events are such that ib_hwsim takes them, and each comes.
    #[test]
    fn devices_fail_as_they_can() {
        let (mut rules, mut events) = (BTreeSet::new(), BTreeSet::new());
        for step in (0..2000).flat_map(|seed| draw(seed).steps) {
            match step.act {
                Act::Fail(_, rule) => {
                    assert!(Table::new().change(&rule).is_some(), "{rule}");
                    rules.insert(rule);
                }
                Act::Event(_, event) => {
                    assert!(Order::parse(&event).is_some(), "{event}");
                    events.insert(event);
                }
                _ => {}
            }
        }
        assert!(RULES.iter().all(|rule| rules.contains(*rule)));
        assert!(EVENTS.iter().all(|event| events.contains(*event)));
    }

    #[test]
    fn a_seed_makes_one_plan_of_hosts_that_are_there() {
        for seed in 0..500 {
            let plan = draw(seed);
            assert_eq!(plan, draw(seed));
            assert!(plan.steps.len() >= 20, "{}", plan.steps.len());
            assert!(plan.steps.is_sorted_by_key(|step| step.at));
            assert!(plan.steps.iter().all(|step| step.at < LENGTH));
            let hosts = plan.setting.hosts.len();
            assert!(
                named(&plan)
                    .iter()
                    .all(|h| *h >= 1 && usize::from(*h) <= hosts)
            );
        }
        assert_ne!(draw(1), draw(2));
    }
}
