// SPDX-License-Identifier: GPL-2.0

//! Reports: bench.json, and tables for people.

use super::statistics::Pairs;
use super::text_share::{GROUPS, Profile};
use anyhow::{Context, Result};
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::path::Path;

/// A case's result, as bench.json has it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Record {
    page: String,
    case: String,
    lane: String,
    unit: String,
    ours: Option<f64>,
    peer: Option<f64>,
    ceiling: Option<f64>,
    ratio: Option<f64>,
    ratio_min: Option<f64>,
    ratio_max: Option<f64>,
    bound: Option<f64>,
    pairs: usize,
}

impl Record {
    pub(super) fn new(page: &str, case: &str, lane: &str, unit: &str, pairs: &Pairs) -> Record {
        Record {
            page: page.to_owned(),
            case: case.to_owned(),
            lane: lane.to_owned(),
            unit: unit.to_owned(),
            ours: pairs.ours(),
            peer: pairs.peer(),
            ceiling: pairs.ceiling(),
            ratio: pairs.ratio(),
            ratio_min: pairs.ratio_min(),
            ratio_max: pairs.ratio_max(),
            bound: pairs.bound(),
            pairs: pairs.count(),
        }
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
#[derive(Debug, Serialize)]
pub(super) struct Report {
    schema: u32,
    /// The release of the kernel that was measured.
    pub(super) kernel: String,
    pub(super) results: Vec<Record>,
    /// For the eye only.
    #[serde(skip)]
    pub(super) profiles: Vec<Profiles>,
}

impl Default for Report {
    fn default() -> Report {
        Report {
            schema: 1,
            kernel: String::new(),
            results: Vec::new(),
            profiles: Vec::new(),
        }
    }
}

impl Report {
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir)?;
        }
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        fs::write(path, text).with_context(|| path.display().to_string())
    }
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
fn number(value: Option<f64>) -> String {
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
                r.case.clone(),
                r.lane.clone(),
                r.unit.clone(),
                number(r.ours),
                number(r.peer),
                number(r.ceiling),
                r.ratio.map_or_else(String::new, |v| format!("{v:.3}")),
                match (r.ratio_min, r.ratio_max) {
                    (Some(min), Some(max)) => format!("{min:.3} … {max:.3}"),
                    _ => String::new(),
                },
                r.bound.map_or_else(String::new, |v| format!("{v:.3}")),
                r.pairs.to_string(),
            ]);
        }
        writeln!(
            f,
            "Linux {}; a ratio above 1 says that ours is better; a driver of no instructions would reach the bound\n{results}",
            self.kernel
        )?;
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
