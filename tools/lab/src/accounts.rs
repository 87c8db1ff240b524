// SPDX-License-Identifier: GPL-2.0

//! Identities of an interface's counters, as `Documentation/accounts.rst` has them.

use anyhow::{Context, Result, bail, ensure};
use regex::Regex;
use std::collections::BTreeMap;

const TEXT: &str = include_str!("../../../Documentation/accounts.rst");

/// Program that prints the counters of each interface of the driver, in all network namespaces.
pub(crate) const READ: &str = include_str!("../../../tests/guest/accounts/read.sh");

/// Counters of what the driver mends by itself, and of what its device must not do: 0 unless a scenario says otherwise.
pub const HEALED: [&str; 7] = [
    "tx_timeouts",
    "qp_recoveries",
    "self_restarts",
    "tx_bad_completions",
    "rx_drop_bad_completion",
    "tx_drop_post_failed",
    "tx_drop_ring",
];

/// Counters of frames that are under way. An interface at rest has none: one that stays there is stuck.
const UNDER_WAY: [&str; 3] = ["tx_waiting", "tx_posted", "rx_seq_holding"];

/// Counters by their names.
pub type Counters = BTreeMap<String, u64>;

/// Reads what [`READ`] prints.
///
/// # Errors
///
/// An interface without counters, a line that is no counter, and a queue pair in error, but for that of the connection
/// manager (`gsi`) where that may be.
pub(crate) fn parse(text: &str, gsi: bool) -> Result<Vec<(String, Counters)>> {
    let mut all: Vec<(String, Counters)> = Vec::new();
    for line in text.lines() {
        if let Some(queue_pair) = line.strip_prefix("error ") {
            if gsi && queue_pair.contains(" type GSI ") {
                continue;
            }
            bail!("a queue pair is in error: {queue_pair}");
        } else if let Some(name) = line.strip_prefix("interface ") {
            all.push((name.to_owned(), Counters::new()));
        } else if let (Some((name, value)), Some((_, counters))) =
            (line.trim().split_once(": "), all.last_mut())
        {
            let value = value.parse().with_context(|| line.to_owned())?;
            counters.insert(name.to_owned(), value);
        }
    }
    for (name, counters) in &all {
        ensure!(!counters.is_empty(), "{name} has no counters");
    }
    Ok(all)
}

/// Reads the counters that a driver with debug assertions leaves in the log, in lines of some each, of each interface that
/// is deleted.
///
/// # Errors
///
/// A line that is not there.
pub(crate) fn last_words(log: &[String]) -> Result<Vec<(String, Counters)>> {
    let pattern = Regex::new(r"(\S+)(?: \(\w+\))?: counters at the end, (\d+) of (\d+):(.*)$")?;
    let mut all = Vec::new();
    let mut counters = Counters::new();
    let mut next = 1;
    for found in log.iter().filter_map(|line| pattern.captures(line)) {
        let (number, of): (u32, u32) = (found[2].parse()?, found[3].parse()?);
        ensure!(number == next, "line {next} is not there: {}", &found[0]);
        for pair in found[4].split_whitespace() {
            let (name, value) = pair.split_once('=').context("name=value")?;
            counters.insert(name.to_owned(), value.parse()?);
        }
        next = number + 1;
        if number == of {
            let name = format!("{}, deleted", &found[1]);
            all.push((name, std::mem::take(&mut counters)));
            next = 1;
        }
    }
    ensure!(next == 1, "the log ends before line {next}");
    Ok(all)
}

/// The identities, each as it is written.
fn identities() -> impl Iterator<Item = &'static str> {
    TEXT.lines()
        .filter_map(|line| line.strip_prefix("    "))
        .filter(|line| line.contains(" = "))
}

/// Sum of one side of an identity.
fn sum(side: &str, counters: &Counters) -> Result<u64> {
    let mut sum = 0u64;
    for term in side.split('+').map(str::trim) {
        let value = match term.strip_suffix('*') {
            Some(start) => {
                let mut found = counters.range(start.to_owned()..).peekable();
                let known = found
                    .peek()
                    .is_some_and(|(name, _)| name.starts_with(start));
                ensure!(known, "no counter begins with {start}");
                found
                    .take_while(|(name, _)| name.starts_with(start))
                    .fold(0u64, |sum, (_, value)| sum.wrapping_add(*value))
            }
            None => *counters
                .get(term)
                .with_context(|| format!("no counter {term}"))?,
        };
        sum = sum.wrapping_add(value);
    }
    Ok(sum)
}

/// Identities that do not hold, with both sides, and frames that are under way.
///
/// # Errors
///
/// A counter that is not there.
pub fn differences(counters: &Counters) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for identity in identities() {
        let (left, right) = identity.split_once(" = ").context("an equation")?;
        let sides = (sum(left, counters)?, sum(right, counters)?);
        if sides.0 != sides.1 {
            wrong.push(format!("{identity}: {} is not {}", sides.0, sides.1));
        }
    }
    for name in UNDER_WAY {
        match counters
            .get(name)
            .with_context(|| format!("no counter {name}"))?
        {
            0 => {}
            frames => wrong.push(format!("{name}: {frames}")),
        }
    }
    Ok(wrong)
}

/// Interfaces with counters of [`HEALED`] that are not 0, but for those `wanted` or `allowed`, for a message. Fails if one
/// of `wanted` is 0 on all interfaces.
pub(crate) fn healed(
    all: &[(String, Counters)],
    wanted: &[&str],
    allowed: &[&str],
) -> Result<String> {
    let mut told = String::new();
    for (interface, counters) in all {
        for name in HEALED {
            let value = *counters
                .get(name)
                .with_context(|| format!("no counter {name}"))?;
            if value > 0 && !wanted.contains(&name) && !allowed.contains(&name) {
                told += &format!("{interface}: {name}: {value}\n");
            }
        }
    }
    for name in wanted {
        let came = all.iter().any(|(_, counters)| counters[*name] > 0);
        ensure!(came, "{name} is 0, which was to count");
    }
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All counters that occur in the identities, at zero.
    fn zeros() -> Counters {
        let names = identities().flat_map(|line| line.split([' ', '+', '=']));
        names
            .chain(HEALED)
            .filter(|name| !name.is_empty())
            .map(|name| (name.replace('*', "one"), 0))
            .collect()
    }

    #[test]
    fn the_document_has_identities() -> Result<()> {
        assert_eq!(identities().count(), 7);
        assert!(differences(&zeros())?.is_empty());
        assert!(differences(&Counters::new()).is_err());
        Ok(())
    }

    /// A frame too many or too few on either side is found.
    #[test]
    fn each_counter_matters() -> Result<()> {
        let zeros = zeros();
        let healed = [
            "tx_timeouts",
            "qp_recoveries",
            "self_restarts",
            "tx_bad_completions",
        ];
        for name in zeros.keys().filter(|name| !healed.contains(&&***name)) {
            let mut counters = zeros.clone();
            counters.insert(name.clone(), 1);
            assert!(!differences(&counters)?.is_empty(), "{name}");
        }
        let mut counters = zeros;
        for name in ["tx_handed", "tx_drop_one", "rc_refused", "rc_refused_one"] {
            counters.insert(name.to_owned(), 5);
        }
        counters.insert("rc_requests_received".to_owned(), 5);
        assert!(differences(&counters)?.is_empty());
        Ok(())
    }

    #[test]
    fn output_is_read() -> Result<()> {
        let text = "interface h0/ib0\nNIC statistics:\n     rx_frames: 7\n     tx_frames: 8\n";
        let all = parse(text, false)?;
        assert_eq!(all.len(), 1);
        assert_eq!((&*all[0].0, all[0].1["tx_frames"]), ("h0/ib0", 8));
        for wrong in [
            "interface a\n x: y\n",
            "interface gone\ninterface a\n x: 1\n",
            "interface a\n x: 1\nerror link rxe0/1 lqpn 17 type UD state ERR\n",
        ] {
            parse(wrong, true).expect_err(wrong);
        }
        let gsi = "interface a\n x: 1\nerror link rxe0/1 lqpn 1 type GSI state ERR\n";
        parse(gsi, false).expect_err(gsi);
        assert_eq!(parse(gsi, true)?.len(), 1);
        Ok(())
    }

    /// A frame that is counted as on its way for ever balances the sums.
    #[test]
    fn a_stuck_frame_is_found() -> Result<()> {
        let mut counters = zeros();
        counters.insert("tx_handed".to_owned(), 1);
        counters.insert("tx_posted".to_owned(), 1);
        assert_eq!(differences(&counters)?, ["tx_posted: 1"]);
        Ok(())
    }

    #[test]
    fn what_was_healed_is_told() -> Result<()> {
        let mut counters = zeros();
        let all = |counters: &Counters| vec![("ib0".to_owned(), counters.clone())];
        assert_eq!(healed(&all(&counters), &[], &[])?, "");
        assert!(healed(&all(&counters), &["tx_timeouts"], &[]).is_err());
        for name in HEALED {
            counters.insert(name.to_owned(), 2);
            assert_eq!(
                healed(&all(&counters), &[], &[])?,
                format!("ib0: {name}: 2\n")
            );
            assert_eq!(healed(&all(&counters), &[name], &[])?, "");
            assert_eq!(healed(&all(&counters), &[], &[name])?, "");
            counters.remove(name);
            assert!(healed(&all(&counters), &[], &[]).is_err(), "{name}");
            counters.insert(name.to_owned(), 0);
        }
        Ok(())
    }

    #[test]
    fn last_words_are_read() -> Result<()> {
        let lines = [
            "[ 1.0] ipoib_rs rxe0 ib0 (unregistering): counters at the end, 1 of 2: a=1 b=2",
            "[ 1.0] something else",
            "[ 1.0] ipoib_rs rxe0 ib0 (unregistering): counters at the end, 2 of 2:",
            "[ 2.0] ib1: counters at the end, 1 of 2:",
            "[ 2.0] ib1: counters at the end, 2 of 2: c=3",
        ]
        .map(str::to_owned);
        let all = last_words(&lines)?;
        assert_eq!(
            (all.len(), &*all[0].0, &*all[1].0),
            (2, "ib0, deleted", "ib1, deleted")
        );
        assert_eq!((all[0].1["b"], all[1].1["c"]), (2, 3));
        for lost in [0, 2, 3, 4] {
            let mut fewer = lines.to_vec();
            fewer.remove(lost);
            last_words(&fewer).expect_err("a line is lost");
        }
        Ok(())
    }
}
