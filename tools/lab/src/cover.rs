// SPDX-License-Identifier: GPL-2.0

//! Lines of the module that were reached, by its marks.

use crate::woven::{Woven, lines};
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::ops::Range;
use std::path::Path;

/// The directories whose lines are counted together.
const TOGETHER: [&str; 3] = [
    "drivers/infiniband/ulp/ipoib_rs/proto",
    "drivers/infiniband/ulp/ipoib_rs",
    "rust",
];

/// Lines of code of a file.
#[derive(Debug, Default, PartialEq, Eq)]
struct Lines {
    reached: usize,
    /// The others, with their text.
    missed: Vec<(usize, String)>,
}

impl Lines {
    fn total(&self) -> usize {
        self.reached + self.missed.len()
    }
}

/// Lines of code by file.
#[derive(Debug, Default)]
pub(crate) struct Cover {
    files: BTreeMap<String, Lines>,
}

impl Cover {
    /// The lines of the marks of a checkout's module, by the numbers of those that were reached.
    pub(crate) fn of(checkout: &Path, woven: &Woven, reached: &BTreeSet<usize>) -> Result<Cover> {
        let mut marks: BTreeMap<&str, Vec<(usize, &Range<usize>)>> = BTreeMap::new();
        for number in woven.compiled() {
            let site = &woven.sites[number];
            let marks = marks.entry(&site.file).or_default();
            marks.push((number, &site.change.range));
        }
        let mut cover = Cover::default();
        for (file, marks) in marks {
            let source =
                fs::read_to_string(checkout.join(file)).with_context(|| file.to_owned())?;
            cover
                .files
                .insert(file.to_owned(), of_file(&source, &marks, reached));
        }
        Ok(cover)
    }

    /// A line for each directory, and one for each file, those that miss most first.
    pub(crate) fn table(&self) -> String {
        let mut text = String::new();
        for dir in TOGETHER {
            let inside = self
                .files
                .iter()
                .filter(|(file, _)| Path::new(file).starts_with(dir));
            let (reached, total) = inside.fold((0, 0), |(reached, total), (_, lines)| {
                (reached + lines.reached, total + lines.total())
            });
            row(&mut text, dir, reached, total);
        }
        text.push('\n');
        let mut files: Vec<_> = self.files.iter().collect();
        files.sort_by_key(|(file, lines)| (std::cmp::Reverse(lines.missed.len()), *file));
        for (file, lines) in files {
            row(&mut text, file, lines.reached, lines.total());
        }
        text
    }

    /// The lines that were not reached, by file.
    pub(crate) fn missed(&self) -> String {
        let mut text = String::new();
        for (file, lines) in &self.files {
            for (number, line) in &lines.missed {
                let _ = writeln!(text, "{file}:{number}: {line}");
            }
        }
        text
    }
}

/// A row of the table.
fn row(text: &mut String, name: &str, reached: usize, total: usize) {
    let percent = 100.0 * reached as f64 / total.max(1) as f64;
    let _ = writeln!(
        text,
        "{percent:5.1} %  {reached:5} of {total:5} lines  {name}"
    );
}

/// The lines of a source with these numbered marks.
fn of_file(source: &str, marks: &[(usize, &Range<usize>)], reached: &BTreeSet<usize>) -> Lines {
    let ranges: Vec<&Range<usize>> = marks.iter().map(|(_, range)| *range).collect();
    let texts: Vec<&str> = source.lines().collect();
    let mut found = Lines::default();
    for (line, owners) in lines(source, &ranges) {
        if owners
            .iter()
            .any(|index| reached.contains(&marks[*index].0))
        {
            found.reached += 1;
        } else {
            let text = texts.get(line - 1).copied().unwrap_or_default();
            found.missed.push((line, text.trim().to_owned()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_file() {
        let source = "fn f() {\n    a();\n    if b() {\n        c();\n    }\n}\n";
        let at = |text: &str, end: &str| {
            let start = source.find(text).expect("there");
            start..source[start..].find(end).expect("an end") + start + end.len()
        };
        let ranges = [at("a()", ";"), at("if", "}"), at("c()", ";")];
        let marks: Vec<_> = (7..).zip(&ranges).collect();
        let found = of_file(source, &marks, &BTreeSet::from([7, 8]));
        assert_eq!(
            found,
            Lines {
                reached: 2,
                missed: vec![(4, "c();".to_owned())],
            }
        );
        let cover = Cover {
            files: BTreeMap::from([("rust/rings/f.rs".to_owned(), found)]),
        };
        assert_eq!(cover.missed(), "rust/rings/f.rs:4: c();\n");
        assert!(
            cover
                .table()
                .contains(" 66.7 %      2 of     3 lines  rust/rings/f.rs")
        );
    }
}
