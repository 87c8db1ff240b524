// SPDX-License-Identifier: GPL-2.0

//! Several connections to a peer.

use super::{connected, sends_by, set_mode, story};
use crate::order::set;
use anyhow::{Context, Result};
use lab::bed::Host;
use lab::scenario;
use std::time::Duration;

const FLOWS: &str = include_str!("../../guest/connected/lanes/flows.py");

scenario! {
    /// Two connections to a peer are two again after a while without traffic, whichever is wanted first.
    #[on(timed, races)]
    fn lanes_stay_apart(bed) {
        let bed = bed.lifetime(Duration::from_secs(300)).up()?;
        let (a, b) = connected(&bed)?;
        let idle = a.scaled(Duration::from_secs(2)).as_secs() as u32;
        for host in [a, b] {
            set(host, "rc_max_qps", 2)?;
            set(host, "rc_idle_s", idle)?;
        }
        for first in 0..6 {
            let flows = a.spawn_python(FLOWS, &[&b.ip4(), &first.to_string()])?;
            a.wait_until(&sends_by(a, "= 2")?, Duration::from_secs(10))
                .with_context(|| format!("{first} first: {}", story(a)))?;
            flows.wait(a.scaled(Duration::from_secs(20)))?.ok()?;
            for host in [a, b] {
                let none = "ethtool -S ib0 | grep -q ' rc_current: 0'";
                host.wait_until(none, Duration::from_secs(20))?;
            }
        }
        bed.finish()
    }
}

/// Waits until both hosts have two connections each way, and no other ones.
fn two_each(hosts: [&Host; 2]) -> Result<()> {
    for host in hosts {
        host.wait_until(
            "ethtool -S ib0 | grep -q ' rc_current: 4'",
            Duration::from_secs(10),
        )
        .with_context(|| hosts.map(story).concat())?;
    }
    Ok(())
}

scenario! {
    /// Two connections to a peer are two again after each change of the mode, whoever changes it and in whichever order,
    /// while frames go on both ways.
    #[on(timed)]
    fn lanes_outlive_a_change_of_the_mode(bed) {
        let (rounds, more) = bed.rounds(8)?;
        let bed = bed.lifetime(Duration::from_secs(120) * more).up()?;
        let (a, b) = connected(&bed)?;
        for host in [a, b] {
            set(host, "rc_max_qps", 2)?;
        }
        let flows = [(a, b), (b, a)].map(|(from, to)| from.spawn_python(FLOWS, &[&to.ip4(), "0", "1000"]));
        two_each([a, b])?;
        for round in 0..rounds {
            let (first, second) = if round % 2 == 0 { (a, b) } else { (b, a) };
            match round % 8 / 2 {
                0 => {
                    set_mode(first, "datagram")?;
                    set_mode(first, "connected")?;
                }
                1 => for mode in ["datagram", "connected"] {
                    set_mode(first, mode)?;
                    set_mode(second, mode)?;
                },
                2 => {
                    set_mode(first, "datagram")?;
                    set_mode(second, "datagram")?;
                    set_mode(second, "connected")?;
                    std::thread::sleep(Duration::from_millis(500));
                    set_mode(first, "connected")?;
                }
                _ => {
                    set_mode(first, "datagram")?;
                    std::thread::sleep(Duration::from_millis(500));
                    set_mode(second, "datagram")?;
                    set_mode(first, "connected")?;
                    set_mode(second, "connected")?;
                }
            }
            two_each([a, b]).with_context(|| format!("round {round}"))?;
        }
        for flow in flows {
            flow?.stop()?;
        }
        bed.finish()
    }
}
