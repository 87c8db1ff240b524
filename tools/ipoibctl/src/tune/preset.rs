// SPDX-License-Identifier: GPL-2.0

//! Presets: the values that were measured to be best, and for what.
//!
//! Figures are those of Documentation/performance.rst. A setting for which there is none is in no preset, but for the time
//! that frames wait on purpose.

use super::setting::{COALESCING, GSO, MODE, Setting, coalescing};
use crate::facts::{Facts, Interface};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Goal of a preset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Preset {
    /// Bytes per second of bulk streams.
    Throughput,
    /// Short round trips of requests and answers.
    Latency,
}

impl Preset {
    /// Its name on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Preset::Throughput => "throughput",
            Preset::Latency => "latency",
        }
    }
}

/// A value that a preset wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Want {
    Exactly(String),
    /// A greater number is as good.
    AtLeast(u64),
    /// As [`Want::AtLeast`], for the last of several numbers; those in front stay.
    LastAtLeast(u64),
}

impl Want {
    /// The value to set where `now` is set.
    pub(super) fn given(&self, now: &str) -> String {
        match self {
            Want::Exactly(value) => value.clone(),
            Want::AtLeast(least) => match now.parse::<u64>() {
                Ok(now) if now >= *least => now.to_string(),
                _ => least.to_string(),
            },
            Want::LastAtLeast(least) => match now.rsplit_once(' ') {
                Some((first, last)) => format!("{first} {}", Want::AtLeast(*least).given(last)),
                None => now.to_owned(),
            },
        }
    }
}

/// A setting that a preset is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) setting: Setting,
    pub(super) want: Want,
    /// Reason in a sentence, with the figure.
    pub(super) why: &'static str,
}

/// A variable of an interface that a preset is about.
struct Own {
    name: &'static str,
    want: Want,
    why: &'static str,
}

const OWN: [Own; 5] = [
    Own {
        name: "extensions",
        want: Want::AtLeast(1),
        why: "Frames that are numbered can be put in order, and need no checksums and no segmentation on connections; \
              the settings that follow have the figures.",
    },
    Own {
        name: "large_frames",
        want: Want::AtLeast(1),
        why: "Packets that cross a connection whole carry 1019 Mbit per 10^9 instructions, segmented ones 700 \
              (tcp_4092_vs_peer_4092, plain_4092).",
    },
    Own {
        name: "icrc",
        want: Want::AtLeast(1),
        why: "Connections without checksums of TCP carry 1.086 times as much as the C driver with them, all else alike \
              (plain_4092).",
    },
    Own {
        name: "reorder_window",
        want: Want::AtLeast(32),
        why: "On a fabric that reorders, a stream carries 1047 Mbit/s with the window and 791 without; where nothing \
              is late it carries 0.998 of what it does without (adaptive_goodput, adaptive_no_window, window_cost).",
    },
    Own {
        name: "reorder_timeout_us",
        want: Want::AtLeast(5000),
        why: "With 5 ms the window removes 0.997 of the disorder at full load, with 1 ms 0.85 (reorders).",
    },
];

/// The delayed ACK's least delay. Kernels without a patch do not have it.
const DELACK: &str = "net/ipv4/tcp_delack_min_us";
/// The value of both presets, and of samples/sysctl.
const DELACK_US: &str = "2000";
const DELACK_WHY: &str = "Requests in two small writes are answered 334 times a second where ACKs wait for 2 ms at least, \
                          and 25 times where they wait for 40 ms; a bulk stream does not care.";

/// Largest buffer of a socket, which is that of samples/sysctl.
const BUFFER: u64 = 16 << 20;

/// Bounds of the buffers of sockets. Those of `net/core` are the first network namespace's alone.
const BUFFERS: [(&str, Want, &str); 4] = [
    ("net/ipv4/tcp_rmem", Want::LastAtLeast(BUFFER), BUFFERS_WHY),
    ("net/ipv4/tcp_wmem", Want::LastAtLeast(BUFFER), BUFFERS_WHY),
    ("net/core/rmem_max", Want::AtLeast(BUFFER), ASKED_WHY),
    ("net/core/wmem_max", Want::AtLeast(BUFFER), ASKED_WHY),
];
const BUFFERS_WHY: &str = "A stream carries no more than its buffers in a round trip: of 20 ms, 62 Mbit/s with 256 KiB and \
                           565 with 16 MiB; Linux's own bounds, where memory is enough, do as well there (buffers_bound).";
const ASKED_WHY: &str = "A program that asks for its buffers gets no more than this: a stream carries 97 Mbit/s with the \
                         default, 208 KiB, and 513 with 4 MiB (buffers_bound).";

fn exactly(setting: Setting, value: &str, why: &'static str) -> Target {
    Target {
        setting,
        want: Want::Exactly(value.to_owned()),
        why,
    }
}

fn throughput(interface: &Interface) -> Vec<Target> {
    let name = &interface.name;
    let mode = exactly(
        Setting::of(name, MODE),
        "connected",
        "At MTU 4092, a stream carries 1019 Mbit per 10^9 instructions by connections and 846 by datagrams on soft-RoCE, \
         3074 and 2700 on InfiniBand (tcp_4092_vs_peer_4092 and tcp_1, tcp_port_mtu and tcp_1).",
    );
    let gso = exactly(
        Setting::of(name, GSO),
        "on",
        "Only packets that the stack has left to be segmented can cross a connection whole, which carries 1019 instead \
         of 700 Mbit per 10^9 instructions (tcp_4092_vs_peer_4092, plain_4092).",
    );
    let own = OWN.map(|own| Target {
        setting: Setting::own(name, own.name),
        want: own.want,
        why: own.why,
    });
    [mode, gso].into_iter().chain(own).collect()
}

fn latency(facts: &Facts, interface: &Interface) -> Vec<Target> {
    let name = &interface.name;
    let mut targets = Vec::new();
    // On RoCE both modes are alike: rr_vs_ud is 1.003.
    let infiniband = facts.port_of(interface).is_some_and(|port| !port.is_roce());
    if infiniband {
        targets.push(exactly(
            Setting::of(name, MODE),
            "datagram",
            "On InfiniBand, a round trip by datagrams takes nine tenths of the instructions of one by connections: 30333 \
             per 10^9 instead of 27005 (tcp_rr, rr).",
        ));
    }
    targets.push(exactly(
        Setting::of(name, COALESCING),
        &coalescing(0, 0),
        "A received frame waits for up to rx-usecs until the device reports it, and so does each answer.",
    ));
    targets
}

/// Everything that a preset is about: the interfaces of this driver, and the host if there is one.
pub(super) fn targets(preset: Preset, facts: &Facts) -> Vec<Target> {
    let ours: Vec<&Interface> = facts.interfaces.iter().filter(|i| i.ours).collect();
    let mut targets: Vec<Target> = ours
        .iter()
        .flat_map(|interface| match preset {
            Preset::Throughput => throughput(interface),
            Preset::Latency => latency(facts, interface),
        })
        .collect();
    if ours.is_empty() {
        return targets;
    }
    if preset == Preset::Throughput {
        targets.extend(BUFFERS.map(|(name, want, why)| Target {
            setting: Setting::host(name),
            want,
            why,
        }));
    }
    targets.push(exactly(Setting::host(DELACK), DELACK_US, DELACK_WHY));
    targets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::healthy::healthy;

    fn names(preset: Preset, facts: &Facts) -> Vec<String> {
        targets(preset, facts)
            .into_iter()
            .map(|target| target.setting.name)
            .collect()
    }

    #[test]
    fn datagrams_are_for_round_trips_on_infiniband_only() {
        assert!(names(Preset::Latency, &healthy(false)).contains(&MODE.to_owned()));
        assert!(!names(Preset::Latency, &healthy(true)).contains(&MODE.to_owned()));
        let mut unknown = healthy(false);
        unknown.ports.clear();
        assert!(!names(Preset::Latency, &unknown).contains(&MODE.to_owned()));
    }

    #[test]
    fn others_interfaces_are_left_alone() {
        let mut facts = healthy(false);
        facts.interfaces[0].ours = false;
        for preset in [Preset::Throughput, Preset::Latency] {
            assert_eq!(targets(preset, &facts), []);
        }
    }

    #[test]
    fn more_is_as_good() {
        let want = Want::AtLeast(32);
        assert_eq!(want.given("16"), "32");
        assert_eq!(want.given("128"), "128");
        assert_eq!(want.given("nonsense"), "32");
        let last = Want::LastAtLeast(16);
        assert_eq!(last.given("4096 131072 8"), "4096 131072 16");
        assert_eq!(last.given("4096 131072 32"), "4096 131072 32");
        assert_eq!(last.given("8"), "8");
    }

    /// The sample has the same values.
    #[test]
    fn the_sample_gives_the_same_answer() {
        let sample = include_str!("../../../../samples/sysctl/90-ipoib_rs.conf");
        let lines = sample.lines().map(|line| line.trim_start_matches('-'));
        let lines = lines.filter(|line| !line.starts_with('#'));
        let mut count = 0;
        for (name, value) in lines.filter_map(|line| line.split_once(" = ")) {
            let name = name.replace('.', "/");
            let all = targets(Preset::Throughput, &healthy(true));
            let target = all.iter().find(|target| target.setting.name == name);
            let target = target.unwrap_or_else(|| panic!("{name} is in no preset"));
            let now = value
                .rsplit_once(' ')
                .map_or("1".into(), |(first, _)| format!("{first} 1"));
            assert_eq!(target.want.given(&now), value, "{name}");
            count += 1;
        }
        assert_eq!(count, 5);
    }

    /// The figures in a text: numbers of three digits or more, and those with a fraction.
    fn figures(text: &str) -> impl Iterator<Item = &str> {
        text.split(|c: char| !c.is_ascii_alphanumeric() && c != '.')
            .map(|word| word.trim_matches('.'))
            .filter(|word| word.len() >= 3 && word.parse::<f64>().is_ok())
    }

    /// Each figure in a reason is one of the documentation's.
    #[test]
    fn figures_are_those_of_the_documentation() {
        let measured: Vec<&str> =
            figures(include_str!("../../../../Documentation/performance.rst")).collect();
        for (roce, preset) in [(true, Preset::Throughput), (false, Preset::Latency)] {
            for target in targets(preset, &healthy(roce)) {
                for figure in figures(target.why) {
                    assert!(measured.contains(&figure), "{figure}: {}", target.why);
                }
            }
        }
    }
}
