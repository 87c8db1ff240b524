// SPDX-License-Identifier: GPL-2.0

//! Reports of a run: what is kept of it, and tables for people.

use super::plot::Plot;
use super::results::{self, Results};
use super::statistics::Pairs;
use super::text_share::{GROUPS, Profile};
use crate::layout::Layout;
use crate::step::say;
use anyhow::Result;
use comfy_table::{CellAlignment, Table, presets};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;

/// A case's result.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) page: String,
    pub(super) case: String,
    /// The place on the x axis of the plot that has the case's name.
    pub(super) at: Option<u32>,
    pub(super) lane: String,
    pub(super) unit: String,
    pub(super) ours: Option<f64>,
    pub(super) peer: Option<f64>,
    pub(super) ceiling: Option<f64>,
    pub(super) ratio: Option<f64>,
    pub(super) ratio_min: Option<f64>,
    pub(super) ratio_max: Option<f64>,
    pub(super) bound: Option<f64>,
    /// Where the instructions for each unit of work went: ours and the peer's, the means of the pairs.
    pub(super) costs: Option<[Costs; 2]>,
    pub(super) pairs: usize,
    /// Which kernel and version were measured, and when.
    pub(super) stamp: String,
}

impl Record {
    pub(super) fn new(page: &str, case: &str, lane: &str, unit: &str, pairs: &Pairs) -> Record {
        Record {
            page: page.to_owned(),
            case: case.to_owned(),
            at: None,
            lane: lane.to_owned(),
            unit: unit.to_owned(),
            ours: pairs.ours(),
            peer: pairs.peer(),
            ceiling: pairs.ceiling(),
            ratio: pairs.ratio(),
            ratio_min: pairs.ratio_min(),
            ratio_max: pairs.ratio_max(),
            bound: pairs.bound(),
            costs: None,
            pairs: pairs.count(),
            stamp: String::new(),
        }
    }

    /// The result as a point of a plot.
    pub(super) fn at(mut self, x: u32) -> Record {
        self.at = Some(x);
        self
    }

    /// The least and the greatest ratio, with `to` between them.
    pub(super) fn extremes(&self, to: &str) -> String {
        match (self.ratio_min, self.ratio_max) {
            (Some(min), Some(max)) => format!("{min:.3}{to}{max:.3}"),
            _ => String::new(),
        }
    }
}

/// Instructions for each unit of work, by where they are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Costs {
    /// The driver's own text.
    pub(super) driver: f64,
    /// The stack: all that is not one of the others.
    pub(super) stack: f64,
    /// Copies between the kernel and user space.
    pub(super) copies: f64,
    pub(super) user: f64,
    /// The simulated device, which the rate leaves out.
    pub(super) device: f64,
}

impl Costs {
    /// Names of the parts, in the order of [`Costs::parts`].
    pub(super) const NAMES: [&'static str; 5] =
        ["driver", "stack", "copies", "user space", "device"];

    /// The parts, as whole numbers.
    pub(super) fn parts(&self) -> [String; 5] {
        [self.driver, self.stack, self.copies, self.user, self.device]
            .map(|part| format!("{part:.0}"))
    }

    /// The mean of several; none of none.
    pub(super) fn mean(all: &[Costs]) -> Option<Costs> {
        let mean = |of: &dyn Fn(&Costs) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
        (!all.is_empty()).then(|| Costs {
            driver: mean(&|c| c.driver),
            stack: mean(&|c| c.stack),
            copies: mean(&|c| c.copies),
            user: mean(&|c| c.user),
            device: mean(&|c| c.device),
        })
    }
}

/// Where the instructions of one TCP stream went, on a page.
#[derive(Debug)]
pub(super) struct Profiles {
    page: String,
    ours: Vec<Profile>,
    peer: Vec<Profile>,
}

impl Profiles {
    pub(super) fn new(page: &str) -> Profiles {
        Profiles {
            page: page.to_owned(),
            ours: Vec::new(),
            peer: Vec::new(),
        }
    }

    /// A pair that was taken in turn.
    pub(super) fn add(&mut self, ours: Profile, peer: Profile) {
        self.ours.push(ours);
        self.peer.push(peer);
    }
}

/// All of a run.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// Where results are kept; nowhere if they are not this driver's.
    dir: Option<PathBuf>,
    /// Version of the sources, and the day.
    version: String,
    /// The release of the kernel that was measured.
    pub(super) kernel: String,
    pub(super) results: Vec<Record>,
    pub(super) plots: Vec<Plot>,
    /// For the eye only.
    pub(super) profiles: Vec<Profiles>,
}

impl Report {
    /// A report whose results are kept.
    pub(super) fn kept(layout: &Layout) -> Report {
        Report {
            dir: Some(results::dir(layout)),
            version: results::version(layout),
            ..Report::default()
        }
    }

    /// Keeps what was measured until now; earlier results of other cases stay.
    pub(super) fn keep(&mut self) -> Result<()> {
        let Some(dir) = &self.dir else {
            return Ok(());
        };
        let mut fresh: Vec<(String, Results)> = Vec::new();
        for record in &mut self.results {
            if record.stamp.is_empty() {
                record.stamp = format!("Linux {}, {}", self.kernel, self.version);
            }
            of(&mut fresh, &record.page, &record.lane)
                .records
                .push(record.clone());
        }
        for plot in &self.plots {
            of(&mut fresh, &plot.page, &plot.lane)
                .plots
                .push(plot.clone());
        }
        for (name, fresh) in fresh {
            let path = dir.join(name);
            let mut results = Results::load(&path).unwrap_or_else(|e| {
                say(&format!("{e:#}: written anew"));
                None
            });
            results
                .get_or_insert_with(Results::default)
                .merge(fresh)
                .save(&path)?;
        }
        Ok(())
    }
}

/// Results of a page on a lane, in a list by file names.
fn of<'a>(all: &'a mut Vec<(String, Results)>, page: &str, lane: &str) -> &'a mut Results {
    let name = results::file(page, lane);
    let n = all.iter().position(|(n, _)| *n == name).unwrap_or_else(|| {
        all.push((name, Results::default()));
        all.len() - 1
    });
    &mut all[n].1
}

/// A driver's functions, the largest first.
fn functions(profiles: &[Profile]) -> Vec<(String, f64)> {
    let mut sums: HashMap<&str, f64> = HashMap::new();
    for (name, share) in profiles.iter().flat_map(|p| &p.functions) {
        *sums.entry(name).or_default() += share / profiles.len() as f64;
    }
    let mut functions: Vec<(String, f64)> = sums
        .into_iter()
        .map(|(name, share)| (name.to_owned(), share))
        .collect();
    functions.sort_by(|a, b| b.1.total_cmp(&a.1));
    functions
}

/// So many of a driver's functions are told.
const FUNCTIONS: usize = 12;

/// Three digits that mean something.
pub(super) fn number(value: Option<f64>) -> String {
    match value {
        None => "–".to_owned(),
        Some(v) if v >= 100.0 => format!("{v:.0}"),
        Some(v) => format!("{v:.2}"),
    }
}

fn table(header: &[&str], numbers_from: usize) -> Table {
    let mut table = Table::new();
    table
        .load_preset(presets::UTF8_FULL_CONDENSED)
        .set_header(header);
    for column in table.column_iter_mut().skip(numbers_from) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Where the instructions of cases went.
fn costs(results: &[Record]) -> Table {
    let header = [&["instructions for each unit"], &Costs::NAMES[..]].concat();
    let mut costs = table(&header, 1);
    for r in results {
        for (side, cost) in ["ours", "C driver"].iter().zip(r.costs.iter().flatten()) {
            let mut row = vec![format!("{}, {side}", r.case)];
            row.extend(cost.parts());
            costs.add_row(row);
        }
    }
    costs
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut results = table(
            &[
                "page",
                "case",
                "lane",
                "unit",
                "ours",
                "C driver",
                "Ethernet",
                "ratio",
                "min … max",
                "bound",
                "pairs",
            ],
            4,
        );
        for r in &self.results {
            results.add_row([
                r.page.clone(),
                match r.at {
                    Some(x) => format!("{} {x}", r.case),
                    None => r.case.clone(),
                },
                r.lane.clone(),
                r.unit.clone(),
                number(r.ours),
                number(r.peer),
                number(r.ceiling),
                r.ratio.map_or_else(String::new, |v| format!("{v:.3}")),
                r.extremes(" … "),
                r.bound.map_or_else(String::new, |v| format!("{v:.3}")),
                r.pairs.to_string(),
            ]);
        }
        writeln!(
            f,
            "Linux {}; a ratio above 1 says that ours is better; a driver of no instructions would reach the bound\n{results}",
            self.kernel
        )?;
        if self.results.iter().any(|r| r.costs.is_some()) {
            writeln!(f, "{}", costs(&self.results))?;
        }
        self.profiles.iter().try_for_each(|p| p.fmt(f))
    }
}

impl fmt::Display for Profiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let title = format!("{}: one TCP stream, % of all instructions", self.page);
        let mut shares = table(&[&title, "ours", "C driver"], 1);
        let mean = |profiles: &[Profile], share: &dyn Fn(&Profile) -> f64| {
            let sum: f64 = profiles.iter().map(share).sum();
            format!("{:.2}", sum / profiles.len() as f64)
        };
        let mut row = |name: &str, share: &dyn Fn(&Profile) -> f64| {
            shares.add_row([
                name.to_owned(),
                mean(&self.ours, share),
                mean(&self.peer, share),
            ]);
        };
        for (n, (name, _)) in GROUPS.iter().enumerate() {
            row(name, &|p| p.groups[n]);
        }
        row("the driver", &|p| p.driver);
        row("all the rest", &|p| p.rest);
        writeln!(f, "{shares}")?;
        for (profiles, name) in [(&self.ours, "ours"), (&self.peer, "the C driver")] {
            let mut table = table(&["% of all instructions", name], 2);
            for (function, share) in functions(profiles).into_iter().take(FUNCTIONS) {
                table.add_row([format!("{share:.3}"), function]);
            }
            writeln!(f, "{table}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Costs, Report, costs};
    use crate::bench::plot::tests::plot;
    use crate::bench::results::tests::record;
    use crate::bench::results::{Results, file};
    use std::fs;
    use std::path::Path;

    /// Keeps one result as a run does.
    fn keep(dir: &Path, case: &str, page: &str, ours: f64) {
        let mut result = record(case, None, ours);
        result.page = page.into();
        result.stamp.clear();
        let mut report = Report {
            dir: Some(dir.to_owned()),
            version: "abc".into(),
            kernel: "7.3.4".into(),
            results: vec![result],
            plots: vec![plot(false, Vec::new())],
            ..Report::default()
        };
        // After each page, and at the end.
        report.keep().expect("kept");
        report.keep().expect("kept again");
    }

    #[test]
    fn results_of_runs_are_kept_together() {
        let dir = tempfile::tempdir().expect("a directory");
        keep(dir.path(), "a", "papers", 1.0);
        keep(dir.path(), "b", "papers", 2.0);
        keep(dir.path(), "a", "ud", 3.0);
        let load = |page| {
            let results = Results::load(&dir.path().join(file(page, "uml")));
            results.expect("no error").expect("is there")
        };
        let papers = load("papers");
        let cases: Vec<_> = papers.records.iter().map(|r| (&*r.case, r.ours)).collect();
        assert_eq!(cases, [("a", Some(1.0)), ("b", Some(2.0))]);
        assert_eq!(papers.records[0].stamp, "Linux 7.3.4, abc");
        assert_eq!((papers.plots.len(), load("ud").plots.len()), (1, 0));
        assert_eq!(load("ud").records[0].ours, Some(3.0));
    }

    #[test]
    fn a_table_of_costs() {
        let of = |driver| Costs {
            driver,
            device: 7.0,
            ..Costs::default()
        };
        assert_eq!(Costs::mean(&[]), None);
        assert_eq!(Costs::mean(&[of(2.0), of(4.0)]), Some(of(3.0)));
        let mut results = [record("a", None, 1.0), record("b", None, 1.0)];
        results[1].costs = Some([of(123.4), of(200.0)]);
        let text = costs(&results).to_string();
        let rows: Vec<&str> = text.lines().filter(|line| line.contains(", ")).collect();
        assert_eq!(rows.len(), 2);
        let ours = ["b, ours", "123", "7"];
        assert!(ours.iter().all(|part| rows[0].contains(part)), "{text}");
        assert!(rows[1].contains("b, C driver") && rows[1].contains("200"));
    }

    #[test]
    fn half_a_file_is_written_anew() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join(file("papers", "uml"));
        keep(dir.path(), "a", "papers", 1.0);
        let whole = fs::read_to_string(&path).expect("text");
        fs::write(&path, &whole[..whole.len() / 2]).expect("written");
        keep(dir.path(), "b", "papers", 2.0);
        let results = Results::load(&path).expect("no error").expect("is there");
        let cases: Vec<_> = results.records.iter().map(|r| &*r.case).collect();
        assert_eq!(cases, ["b"]);
    }
}
