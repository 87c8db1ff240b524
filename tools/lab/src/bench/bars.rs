// SPDX-License-Identifier: GPL-2.0

//! Bars for the ratios that Documentation/performance.rst publishes: a measurement that falls below one fails.
//!
//! Only the lane that counts instructions repeats well enough for that.

use super::report::Record;
use anyhow::{Result, bail, ensure};
use std::ops::Range;

/// Difference of a pair in which the C driver is compared with itself (performance.rst, Method).
const NOISE: f64 = 0.012;

/// Pages whose cases compare one driver with another.
const PAGES: [&str; 3] = ["ud", "rc", "ib"];

/// The least ratio that a case may have.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Bar {
    page: String,
    case: String,
    least: f64,
}

/// The bars of the tables of a text, each of which follows the command that measured it.
pub(super) fn published(text: &str) -> Result<Vec<Bar>> {
    let mut bars = Vec::new();
    let mut page = None;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some((_, rest)) = line.split_once("``make bench ") {
            let command = rest.split("``").next().unwrap_or_default();
            page = counted(command);
        }
        if let Some(page) = page.filter(|_| line.starts_with("==") && line.contains(' ')) {
            let header = lines.next().unwrap_or_default();
            let rows = lines.by_ref().skip(1).take_while(|l| !l.starts_with("=="));
            let table = rows.map(str::to_owned).collect::<Vec<_>>();
            add(&mut bars, page, &columns(line), header, &table);
        }
    }
    for page in PAGES {
        ensure!(
            bars.iter().any(|bar| bar.page == page),
            "no ratios of page {page} are published"
        );
    }
    Ok(bars)
}

/// The page that a command measures by instructions, if that is one whose ratios have bars.
fn counted(command: &str) -> Option<&'static str> {
    let mut words = command.split_whitespace();
    let page = words.clone().find_map(|word| word.strip_prefix("PAGE="))?;
    let is_counted = words.any(|word| word == "LANE=qemu");
    PAGES.into_iter().find(|p| is_counted && *p == page)
}

/// Where the columns of a table are, by the line above it; the last one is open.
fn columns(line: &str) -> Vec<Range<usize>> {
    let mut columns: Vec<Range<usize>> = Vec::new();
    let mut at = 0;
    for part in line.split("  ") {
        columns.push(at..at + part.len());
        at += part.len() + 2;
    }
    columns
}

/// A cell of a row, whose columns are counted in characters.
fn cell(row: &str, columns: &[Range<usize>], number: usize) -> String {
    let Some(column) = columns.get(number) else {
        return String::new();
    };
    let text: String = row.chars().skip(column.start).take(column.len()).collect();
    text.trim().to_owned()
}

/// Adds the bars of a table's rows, if it has ratios.
fn add(bars: &mut Vec<Bar>, page: &str, columns: &[Range<usize>], header: &str, rows: &[String]) {
    let named = |name: &str| (0..columns.len()).find(|&n| cell(header, columns, n) == name);
    let (Some(ratio), Some(range)) = (named("ratio"), named("min … max")) else {
        return;
    };
    for row in rows {
        let least = cell(row, columns, range);
        let least = least.split(' ').next().and_then(|n| n.parse::<f64>().ok());
        let ratio = cell(row, columns, ratio).parse::<f64>().ok();
        if let Some(least) = least.or(ratio) {
            bars.push(Bar {
                page: page.to_owned(),
                case: cell(row, columns, 0).trim_matches('`').to_owned(),
                least: least * (1.0 - NOISE),
            });
        }
    }
}

/// Fails if a result is below its bar, and names all that are.
pub(super) fn check(bars: &[Bar], results: &[Record]) -> Result<()> {
    let counted = results.iter().filter(|r| r.lane == "icount");
    let below: Vec<String> = counted
        .filter_map(|r| {
            let bar = bars.iter().find(|b| b.page == r.page && b.case == r.case)?;
            let ratio = r.ratio.unwrap_or(f64::NAN);
            let reached = ratio >= bar.least;
            (!reached).then(|| {
                let (page, case, least) = (&r.page, &r.case, bar.least);
                format!("{page} {case}: {ratio:.3} is below the bar of {least:.3}")
            })
        })
        .collect();
    if below.is_empty() {
        return Ok(());
    }
    bail!(
        "less than Documentation/performance.rst says:\n{}",
        below.join("\n")
    )
}

#[cfg(test)]
mod tests {
    use super::{Bar, check, published};
    use crate::bench::report::Record;
    use crate::bench::results::tests::record;

    const TEXT: &str = include_str!("../../../../Documentation/performance.rst");

    fn bars() -> Vec<Bar> {
        published(TEXT).expect("the tables are there")
    }

    fn bar(page: &str, case: &str) -> f64 {
        let bars = bars();
        let found: Vec<_> = bars
            .iter()
            .filter(|b| b.page == page && b.case == case)
            .collect();
        assert_eq!(found.len(), 1, "{page} {case}");
        found[0].least
    }

    /// A result as it is recorded.
    fn result(page: &str, case: &str, ratio: f64) -> Record {
        Record {
            page: page.into(),
            lane: "icount".into(),
            ..record(case, None, ratio * 100.0)
        }
    }

    #[test]
    fn each_published_case_has_a_bar() {
        for (page, case, published) in [
            ("ud", "tcp_1", 1.057),
            ("ud", "udp_64", 1.558),
            ("rc", "tcp_65520", 1.089),
            ("rc", "tcp_4092_vs_peer_4092", 1.575),
            ("rc", "tcp_4092_vs_peer_65520", 1.052),
            // Its ratio has no range.
            ("rc", "tcp_1020_large", 1.669),
            ("ib", "text_share", 1.252),
            ("ib", "tcp_port_mtu", 1.949),
        ] {
            assert!(
                (bar(page, case) - published * 0.988).abs() < 1e-9,
                "{page} {case}"
            );
        }
        let of = |page: &str| bars().iter().filter(|b| b.page == page).count();
        assert_eq!((of("ud"), of("rc"), of("ib")), (5, 8, 14));
    }

    #[test]
    fn a_text_without_tables_is_an_error() {
        published("").expect_err("no table");
        let text = TEXT.replace("PAGE=ib PAIRS", "PAGE=disorder PAIRS");
        let error = published(&text).expect_err("no page ib");
        assert_eq!(error.to_string(), "no ratios of page ib are published");
    }

    #[test]
    fn what_falls_below_its_bar_is_named() {
        let good = result("rc", "tcp_4092_vs_peer_4092", 1.57);
        let bad = result("rc", "tcp_4092_vs_peer_4092", 1.55);
        let nothing = Record {
            ratio: None,
            ..result("ud", "tcp_1", 1.0)
        };
        check(&bars(), std::slice::from_ref(&good)).expect("within the noise");
        let error = check(&bars(), &[good, bad, nothing]).expect_err("two are below");
        let said = error.to_string();
        let lines: Vec<&str> = said.lines().skip(1).collect();
        assert_eq!(
            lines,
            [
                "rc tcp_4092_vs_peer_4092: 1.550 is below the bar of 1.556",
                "ud tcp_1: NaN is below the bar of 1.044"
            ]
        );
    }

    #[test]
    fn the_wall_clock_and_unpublished_cases_have_no_bar() {
        let clock = Record {
            lane: "uml".into(),
            ..result("ud", "tcp_1", 0.5)
        };
        let other = result("rc", "flows_64", 0.5);
        check(&bars(), &[clock, other]).expect("none of them has one");
    }
}
