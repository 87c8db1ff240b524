// SPDX-License-Identifier: GPL-2.0

//! Where instructions go: those that a guest executes, counted one by one and summed up.

use super::count::{Counter, Counts, Symbols};
use super::rig::{Rig, Side};
use anyhow::{Result, ensure};

/// True if a symbol of a module belongs to a group.
type Belongs = fn(&str, &str) -> bool;

/// Groups of functions beside the driver's own; one goes to the first that it belongs to.
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
    ("rdma_rxe", |m, _| m == "rdma_rxe"),
    ("user space", |m, _| m == "user"),
];

/// Shares of all instructions, in percent.
#[derive(Debug, Clone)]
pub(super) struct Profile {
    /// The driver's own text.
    pub(super) driver: f64,
    /// Shares by function.
    pub(super) functions: Vec<(String, f64)>,
    /// As [`GROUPS`] has them.
    pub(super) groups: [f64; GROUPS.len()],
    /// Everything else.
    pub(super) rest: f64,
}

/// Profiles what a client's command has done, by both hosts and all that lies between.
pub(super) fn profile(rig: &Rig, counter: &Counter, side: Side, script: &str) -> Result<Profile> {
    let symbols = Symbols::new(&rig.client("grep -i ' [tw] ' /proc/kallsyms")?)?;
    counter.clear()?;
    rig.client(&counter.between_marks(script))?;
    shares(&counter.take()?, &symbols, rig.module(side))
}

/// Share of a module in all instructions, and of everything else.
fn shares(counts: &Counts, symbols: &Symbols, module: &str) -> Result<Profile> {
    let (mut driver, mut rest, mut total) = (0, 0, 0);
    let mut groups = [0; GROUPS.len()];
    let mut functions = Vec::new();
    for ((of, symbol), count) in counts.by_symbol(symbols) {
        total += count;
        if of == module {
            driver += count;
            functions.push((symbol.to_owned(), count));
        } else if let Some(n) = GROUPS.iter().position(|(_, belongs)| belongs(of, symbol)) {
            groups[n] += count;
        } else {
            rest += count;
        }
    }
    ensure!(driver > 0, "nothing of {module} was executed");
    let percent = |count: u64| 100.0 * count as f64 / total as f64;
    functions.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    Ok(Profile {
        driver: percent(driver),
        functions: functions
            .into_iter()
            .map(|(name, count)| (name, percent(count)))
            .collect(),
        groups: groups.map(percent),
        rest: percent(rest),
    })
}

#[cfg(test)]
mod tests {
    use super::{Counts, GROUPS, Symbols, shares};

    #[test]
    fn a_profile() {
        let symbols = Symbols::new(
            "ffffffff81000000 t memcpy_orig\n\
             ffffffff82000000 t tcp_sendmsg\n\
             ffffffffc0001000 t rxe_requester\t[rdma_rxe]\n\
             ffffffffc0002000 t xmit\t[ipoib_rs]\n\
             ffffffffc0003000 t poll\t[ipoib_rs]\n",
        )
        .expect("they are there");
        let counts = Counts::difference(
            "",
            "0 80\nffffffff81000000 500\nffffffff82000000 100\nffffffffc0001000 300\n\
             ffffffffc0002000 10\nffffffffc0002004 5\nffffffffc0003000 5\n",
        )
        .expect("they are right");
        let profile = shares(&counts, &symbols, "ipoib_rs").expect("is complete");
        assert!((profile.driver - 2.0).abs() < 1e-9);
        let functions: Vec<&str> = profile.functions.iter().map(|(n, _)| n.as_str()).collect();
        assert_eq!(functions, ["xmit", "poll"]);
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
        shares(&counts, &symbols, "ib_ipoib_peer").expect_err("it did nothing");
    }
}
