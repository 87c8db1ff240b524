// SPDX-License-Identifier: GPL-2.0

//! Where instructions go: samples of a guest whose clock counts instructions.
//!
//! perf's cpu-clock fires every so many guest nanoseconds, which on the icount lane are
//! instructions, so that a share of samples is a share of instructions.
//!
//! A stream on that lane repeats itself to the instruction, packet by packet. Sampled at one frequency, it
//! shows the same few places of that rhythm over and over: the driver's share came out anywhere from 1.3 to
//! 3.4 %, and functions that run once for each packet had a third of the samples that their instructions are
//! worth. Many frequencies at a time, in no simple ratio to each other, upset the rhythm: then a
//! function has as many samples as it has instructions. But what comes right behind another sample shows
//! where the processor goes from that one's interrupt, which is a softirq if one waits: one instruction of a
//! driver's poll had a hundred times the samples of the others. Those are left out.

use super::rig::{Rig, Side};
use anyhow::{Result, ensure};
use std::collections::BTreeMap;

/// Samples per second of the guest's clock: primes, some 10,000 in all.
const FREQUENCIES: [u32; 16] = [
    467, 487, 509, 541, 563, 587, 613, 641, 661, 683, 709, 739, 757, 773, 797, 823,
];

/// Counts the lines of `perf script` by symbol, as `count|dso|symbol`, less those that come within five
/// microseconds of the line before.
const COUNT: &str = r#"
    {
        time = $1 + 0
        if (time - last >= 0.000005) {
            dso = $NF
            gsub(/[()]/, "", dso)
            if (dso ~ /\.ko$/) {
                gsub(/^.*\/|\.ko$/, "", dso)
                dso = "[" dso "]"
            }
            count[dso "|" $3]++
        }
        last = time
    }
    END {
        for (place in count)
            print count[place] "|" place
    }"#;

/// Whether a sample in a DSO, at a symbol, belongs to a group.
type Belongs = fn(&str, &str) -> bool;

/// Groups of samples beside the driver's own; a sample goes to the first that it belongs to.
pub(super) const GROUPS: [(&str, Belongs); 6] = [
    ("copies between user and kernel", |_, s| {
        s.contains("copy_user")
            || s.contains("copy_to_iter")
            || s.contains("copy_from_iter")
            || s.starts_with("rep_movs")
    }),
    ("memcpy: soft-RoCE's two copies", |_, s| {
        s.contains("memcpy")
    }),
    ("ICRC", |_, s| s.contains("crc32")),
    ("checksums of TCP", |_, s| s.contains("csum")),
    ("rdma_rxe", |d, _| d == "[rdma_rxe]"),
    ("user space", |d, _| !d.starts_with('[')),
];

/// Shares of all instructions, in percent.
#[derive(Debug, Clone)]
pub(super) struct Profile {
    /// The driver's own text.
    pub(super) driver: f64,
    /// The same by function.
    pub(super) functions: Vec<(String, f64)>,
    /// As [`GROUPS`] has them.
    pub(super) groups: [f64; GROUPS.len()],
    /// Everything else.
    pub(super) rest: f64,
}

/// Profiles one TCP stream, sender and receiver and all that lies between, for `seconds`.
pub(super) fn profile(rig: &Rig, side: Side, seconds: u32) -> Result<Profile> {
    let to = rig.address(side)?;
    let events = FREQUENCIES
        .map(|hertz| format!("-e cpu-clock/freq={hertz}/"))
        .join(" ");
    let report = rig.client(&format!(
        "set -e
         perf record -q -o /tmp/perf.data {events} -a -- iperf3 -c {to} -t {seconds} >/dev/null
         perf script -i /tmp/perf.data --ns -F time,ip,sym,dso >/tmp/perf.txt 2>/tmp/perf.err || {{
             cat /tmp/perf.err >&2
             exit 1
         }}
         awk '{COUNT}' /tmp/perf.txt
         rm /tmp/perf.data /tmp/perf.txt"
    ))?;
    shares(&report, rig.module(side))
}

/// Reads what [`COUNT`] writes.
fn shares(text: &str, module: &str) -> Result<Profile> {
    let driver_dso = format!("[{module}]");
    let (mut driver, mut rest, mut total) = (0.0, 0.0, 0.0);
    let mut groups = [0.0; GROUPS.len()];
    let mut functions: BTreeMap<String, f64> = BTreeMap::new();
    for line in text.lines() {
        let mut columns = line.splitn(3, '|').map(str::trim);
        let (Some(samples), Some(dso), Some(symbol)) =
            (columns.next(), columns.next(), columns.next())
        else {
            continue;
        };
        let Ok(samples) = samples.parse::<f64>() else {
            continue;
        };
        if is_idle(symbol) {
            continue;
        }
        total += samples;
        if dso == driver_dso {
            driver += samples;
            *functions.entry(symbol.to_owned()).or_default() += samples;
        } else if let Some(n) = GROUPS.iter().position(|(_, belongs)| belongs(dso, symbol)) {
            groups[n] += samples;
        } else {
            rest += samples;
        }
    }
    ensure!(total >= 1000.0, "{total} samples are too few:\n{text}");
    ensure!(driver > 0.0, "no sample in {driver_dso}:\n{text}");
    let percent = |samples: f64| 100.0 * samples / total;
    let mut functions: Vec<(String, f64)> = functions
        .into_iter()
        .map(|(name, n)| (name, percent(n)))
        .collect();
    functions.sort_by(|a, b| b.1.total_cmp(&a.1));
    Ok(Profile {
        driver: percent(driver),
        functions,
        groups: groups.map(percent),
        rest: percent(rest),
    })
}

/// A halted processor executes nothing, though its clock goes on.
fn is_idle(symbol: &str) -> bool {
    [
        "native_safe_halt",
        "default_idle",
        "acpi_safe_halt",
        "acpi_idle_do_entry",
    ]
    .iter()
    .any(|idle| symbol.ends_with(idle))
}

#[cfg(test)]
mod tests {
    use super::{GROUPS, shares};

    #[test]
    fn a_report() {
        let text = "\n# noise\n\
            500|[kernel.kallsyms]|memcpy_orig\n\
            300|[rdma_rxe]|rxe_requester\n\
            400|[kernel.kallsyms]|pv_native_safe_halt\n\
            15|[ipoib_rs]|_RNvCs1_8ipoib_rs4xmit\n\
            5|[ipoib_rs]|_RNvCs1_8ipoib_rs4xmit\n\
            100|[kernel.kallsyms]|tcp_sendmsg\n\
            80|iperf3|main\n";
        let profile = shares(text, "ipoib_rs").expect("is complete");
        assert!((profile.driver - 2.0).abs() < 1e-9);
        assert_eq!(profile.functions.len(), 1);
        assert_eq!(profile.functions[0].0, "_RNvCs1_8ipoib_rs4xmit");
        assert!((profile.rest - 10.0).abs() < 1e-9);
        let named: Vec<(&str, f64)> = GROUPS
            .iter()
            .map(|(n, _)| *n)
            .zip(profile.groups)
            .filter(|(_, v)| *v > 0.0)
            .collect();
        assert_eq!(
            named,
            [
                ("memcpy: soft-RoCE's two copies", 50.0),
                ("rdma_rxe", 30.0),
                ("user space", 8.0)
            ]
        );
    }

    #[test]
    fn a_driver_without_samples_is_an_error() {
        shares("5000|[kernel.kallsyms]|memcpy\n", "ipoib_rs").expect_err("no driver");
    }
}
