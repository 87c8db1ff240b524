// SPDX-License-Identifier: GPL-2.0

//! Identities of an interface's counters, as `Documentation/accounts.rst` has them.

use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;

const TEXT: &str = include_str!("../../../Documentation/accounts.rst");

/// Counters by their names.
pub type Counters = BTreeMap<String, u64>;

/// Shell script that runs `command` for each interface of the driver, `$name`, in all network namespaces, after its name.
pub(crate) fn each(command: &str) -> String {
    format!(
        r#"each='for directory in /proc/sys/net/ipoib/*/; do
    [ -d "$directory" ] || continue
    name=$(basename "$directory")
    echo "interface $1$name"
    {command}
done'
command -v ethtool >/dev/null || exit 0
sh -c "$each" sh ""
for file in /run/netns/*; do
    [ -e "$file" ] || continue
    nsenter --net="$file" sh -c "$each" sh "$(basename "$file")/" 2>/dev/null
done
true
"#
    )
}

/// Command for [`each`] that prints counters.
pub(crate) const READ: &str = "ethtool -S $name";

/// Reads what [`READ`] prints for each interface.
///
/// # Errors
///
/// A line that is no counter.
pub(crate) fn parse(text: &str) -> Result<Vec<(String, Counters)>> {
    let mut all: Vec<(String, Counters)> = Vec::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("interface ") {
            all.push((name.to_owned(), Counters::new()));
        } else if let (Some((name, value)), Some((_, counters))) =
            (line.trim().split_once(": "), all.last_mut())
        {
            let value = value.parse().with_context(|| line.to_owned())?;
            counters.insert(name.to_owned(), value);
        }
    }
    // One that has gone meanwhile has none.
    all.retain(|(_, counters)| !counters.is_empty());
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

/// Identities that do not hold, with both sides.
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
    Ok(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All counters that occur in the identities, at zero.
    fn zeros() -> Counters {
        let names = identities().flat_map(|line| line.split([' ', '+', '=']));
        names
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
        for name in zeros.keys() {
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
        let text = "interface h0/ib0\nNIC statistics:\n     rx_frames: 7\n     tx_frames: 8\ninterface gone\n";
        let all = parse(text)?;
        assert_eq!(all.len(), 1);
        assert_eq!((&*all[0].0, all[0].1["tx_frames"]), ("h0/ib0", 8));
        assert!(parse("interface a\n x: y\n").is_err());
        Ok(())
    }
}
