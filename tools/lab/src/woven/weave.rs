// SPDX-License-Identifier: GPL-2.0

//! A copy of the sources that has numbered places.

use crate::layout::tracked;
use crate::step::replace;
use crate::woven::{Change, MADE, changes, marks};
use anyhow::{Context, Result};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::ops::Range;
use std::path::Path;

const DRIVER: &str = "drivers/infiniband/ulp/ipoib_rs";
const PROTO: &str = "drivers/infiniband/ulp/ipoib_rs/proto/";

/// Beginnings of the paths of the hot path. The rings are changed with the protocol's rules, since the host has their tests.
const HOT: [&str; 19] = [
    "drivers/infiniband/ulp/ipoib_rs/base/order.rs",
    "drivers/infiniband/ulp/ipoib_rs/data/",
    "drivers/infiniband/ulp/ipoib_rs/rc/",
    "drivers/infiniband/ulp/ipoib_rs/ud/",
    "rust/netdev/napi.rs",
    "rust/netdev/packet.rs",
    "rust/netdev/page_pool.rs",
    "rust/netdev/pool.rs",
    "rust/netdev/skb.rs",
    "rust/netdev/skb/",
    "rust/rdma/cq.rs",
    "rust/rdma/intake.rs",
    "rust/rdma/intake_ring",
    "rust/rdma/left.rs",
    "rust/rdma/rc_send",
    "rust/rdma/recv.rs",
    "rust/rdma/recv/",
    "rust/rdma/recv_chain.rs",
    "rust/rdma/send",
];

/// Parts of paths that belong to tests only.
const FOR_TESTS: [&str; 6] = ["tests", "fake", "live", "dummy", "faults", "mapper"];

/// Beginnings of the paths of what marks are put in: all that is Rust in the module, but bindings.
const MARKED: [&str; 6] = [
    "drivers/infiniband/ulp/ipoib_rs/",
    "rust/ipoib_module/",
    "rust/ipoib_trace/",
    "rust/netdev/",
    "rust/rdma/",
    "rust/rings/",
];

/// The roots of the crates that have places.
const ROOTS: [&str; 7] = [
    "drivers/infiniband/ulp/ipoib_rs/main.rs",
    "drivers/infiniband/ulp/ipoib_rs/proto/lib.rs",
    "rust/ipoib_module/lib.rs",
    "rust/ipoib_trace/lib.rs",
    "rust/netdev/lib.rs",
    "rust/rdma/lib.rs",
    "rust/rings/lib.rs",
];

/// A C file of the module, which gets the parameter.
const PARAMETER: &str = "rust/sys/helpers_skb.c";

/// Prefix of the log line that reports a place that was reached.
const REACHED: &str = "ipoib_rs: reached place ";

/// The numbers of the places that are reached by a log.
pub(crate) fn reached(log: &str) -> impl Iterator<Item = usize> + '_ {
    let numbers = log.split(REACHED).skip(1);
    numbers.filter_map(|text| {
        let digits = text.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse().ok()
    })
}

/// A kind of places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Places {
    /// Faults that can be made in the driver, but for the protocol's rules, and in the hot path of what it is built on.
    Changes,
    /// Statements of the whole module.
    Marks,
}

impl Places {
    /// A directory's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Places::Changes => "mutants",
            Places::Marks => "marks",
        }
    }

    /// Returns true if a file has such places.
    fn has(self, file: &str) -> bool {
        let begins = |parts: &[&str]| parts.iter().any(|part| file.starts_with(part));
        let for_tests = file.split(['/', '.']).any(|part| FOR_TESTS.contains(&part));
        let wanted = match self {
            Places::Changes => begins(&HOT) || begins(&[DRIVER]) && !begins(&[PROTO]),
            Places::Marks => begins(&MARKED),
        };
        wanted && !for_tests && file.ends_with(".rs")
    }

    /// Finds all of a checkout.
    pub(crate) fn find(self, checkout: &Path) -> Result<Vec<Site>> {
        let mut sites = Vec::new();
        for file in files(checkout)?.into_iter().filter(|file| self.has(file)) {
            let source = fs::read_to_string(checkout.join(&file)).with_context(|| file.clone())?;
            let found = match self {
                Places::Changes => changes::changes(&source),
                Places::Marks => marks::marks(&source),
            };
            sites.extend(
                found
                    .with_context(|| file.clone())?
                    .into_iter()
                    .map(|change| Site {
                        file: file.clone(),
                        change,
                    }),
            );
        }
        Ok(sites)
    }
}

/// A change of a file.
#[derive(Debug, Clone)]
pub(crate) struct Site {
    /// Path below the checkout.
    pub(crate) file: String,
    pub(crate) change: Change,
}

impl Site {
    /// Name, such as "ud/ring.rs:12:5: replace < with <= in post".
    pub(crate) fn name(&self) -> String {
        let file = self.file.strip_prefix(DRIVER).unwrap_or(&self.file);
        format!("{}:{}", file.trim_start_matches('/'), self.change.name)
    }

    /// Returns true if it is in the hot path.
    pub(crate) fn is_hot(&self) -> bool {
        HOT.iter().any(|part| self.file.starts_with(part))
    }
}

/// The files of a checkout that the modules are made of.
fn files(checkout: &Path) -> Result<Vec<String>> {
    let parts = ["Kbuild", "Kconfig", "drivers", "rust", "samples"];
    let files = tracked(checkout)?.into_iter();
    let files = files.filter(|file| parts.iter().any(|part| file.starts_with(part)));
    let mut files: Vec<String> = files
        .map(|file| file.to_string_lossy().into_owned())
        .collect();
    files.sort_unstable();
    Ok(files)
}

/// Places in a woven file: the number of each, and its bytes there.
type Positions = Vec<(usize, Range<usize>)>;

/// Weaves numbered changes into a source. Returns the text, and the place of each change in it.
fn woven(source: &str, changes: &[(usize, &Change)]) -> (String, Positions) {
    // At one place: what ends there, the inner first; an operator; what begins there, the outer first.
    let mut pieces = Vec::new();
    for (n, (_, change)) in changes.iter().enumerate() {
        let [before, after] = &change.around;
        let Range { start, end } = change.range;
        pieces.push(((start, 2, n), Reverse(0), start, before.as_str()));
        if !after.is_empty() {
            pieces.push(((end, 0, 0), Reverse(n), end, after.as_str()));
        }
        if let Some(edit) = &change.operator {
            let Range { start, end } = edit.range;
            pieces.push(((start, 1, 0), Reverse(n), end, edit.text.as_str()));
        }
    }
    pieces.sort_unstable();
    let mut text = String::with_capacity(source.len() * 2);
    let mut places: Vec<Range<usize>> = vec![0..0; changes.len()];
    let mut at = 0;
    for ((start, kind, opened), Reverse(closed), resume, piece) in pieces {
        text += &source[at..start];
        let begin = text.len();
        // Operators are replaced, and belong to the change whose text takes their place.
        let n = if kind == 2 { opened } else { closed };
        let made = format!("crate::mutant({})", changes[n].0);
        text += &piece.replace(MADE, &made);
        match kind {
            2 => places[n] = begin..text.len(),
            0 => places[n].end = text.len(),
            _ => {}
        }
        at = resume;
    }
    text += &source[at..];
    let numbers = changes.iter().map(|(number, _)| *number);
    (text, numbers.zip(places).collect())
}

/// The sources of the modules with changes.
pub(crate) struct Tree {
    /// Changes of each woven file, by its path.
    woven: BTreeMap<String, Positions>,
}

impl Tree {
    /// Writes the sources of `checkout` to `dir`, with the changes of `sites` that are not `refused`.
    pub(crate) fn write(
        checkout: &Path,
        dir: &Path,
        sites: &[Site],
        refused: &HashSet<usize>,
    ) -> Result<Tree> {
        let mut by_file: BTreeMap<&str, Vec<(usize, &Change)>> = BTreeMap::new();
        for (number, site) in sites.iter().enumerate() {
            if !refused.contains(&number) {
                let changes = by_file.entry(&site.file).or_default();
                changes.push((number, &site.change));
            }
        }
        let mut tree = Tree {
            woven: BTreeMap::new(),
        };
        for file in files(checkout)? {
            let from = checkout.join(&file);
            let mut content = fs::read(&from).with_context(|| file.clone())?;
            if let Some(changes) = by_file.get(&*file) {
                let (text, places) = woven(&String::from_utf8(content)?, changes);
                content = text.into_bytes();
                tree.woven.insert(file.clone(), places);
            }
            if ROOTS.contains(&&*file) {
                let text = String::from_utf8(content)?;
                content = (text.replace("#![forbid(unsafe_code)]", "") + CONDITION).into_bytes();
            }
            if file == PARAMETER {
                content.extend(parameter(sites.len()).into_bytes());
            }
            let path = dir.join(&file);
            fs::create_dir_all(path.parent().unwrap_or(dir))?;
            // make compiles what has changed.
            replace(&path, &content)?;
        }
        Ok(tree)
    }

    /// The changes that a compiler complains about in its log.
    pub(crate) fn complaints(&self, dir: &Path, log: &str) -> Result<HashSet<usize>> {
        let mut found = HashSet::new();
        // "  --> path:line:column" tells where, and lines of the source follow, each behind its number.
        let arrow = regex::Regex::new(r"^\s*(?:-->|:::) (.+\.rs):(\d+):(\d+)$")?;
        let quoted = regex::Regex::new(r"^\s*(\d+)\s*(?:\||[+~-] )")?;
        for report in log.split("\nerror").skip(1) {
            let mut file = None;
            let mut inner = HashSet::new();
            let mut around = HashSet::new();
            // A report ends at an empty line.
            let lines = report.lines().take_while(|line| !line.is_empty());
            for line in lines {
                if let Some(found) = arrow.captures(line) {
                    let path = Path::new(&found[1]);
                    let name = path.strip_prefix(dir).unwrap_or(path);
                    let Some(places) = self.woven.get(&*name.to_string_lossy()) else {
                        file = None;
                        continue;
                    };
                    let text = fs::read_to_string(dir.join(name))?;
                    let (line, column) = (found[2].parse()?, found[3].parse()?);
                    inner.extend(at(places, offset(&text, line, column)));
                    file = Some((places, text));
                } else if let (Some(found), Some((places, text))) = (quoted.captures(line), &file) {
                    let begin = offset(text, found[1].parse()?, 1);
                    let end = begin + text[begin..].find('\n').unwrap_or(0);
                    let here = places
                        .iter()
                        .filter(|(_, place)| (begin..end).contains(&place.start));
                    around.extend(here.map(|(number, _)| *number));
                }
            }
            found.extend(if inner.is_empty() { around } else { inner });
        }
        Ok(found)
    }
}

/// Byte offset of a line and of a column, which counts characters; both from 1 on.
fn offset(text: &str, line: usize, column: usize) -> usize {
    let mut lines = text.split_inclusive('\n');
    let before: usize = lines.by_ref().take(line - 1).map(str::len).sum();
    let line = lines.next().unwrap_or_default();
    let at = line.char_indices().nth(column - 1);
    before + at.map_or(line.len(), |(at, _)| at)
}

/// The innermost change at a place of a file.
fn at(places: &Positions, offset: usize) -> Option<usize> {
    let around = places.iter().filter(|(_, place)| place.contains(&offset));
    around
        .min_by_key(|(_, place)| place.len())
        .map(|(number, _)| *number)
}

/// Function of each crate that asks whether a change is made.
const CONDITION: &str = r#"
fn mutant(number: u32) -> bool {
    unsafe extern "C" {
        safe fn ipoib_rs_mutant(number: u32) -> bool;
    }
    ipoib_rs_mutant(number)
}
"#;

/// C code of the module's parameter, and of the function that reads it.
fn parameter(changes: usize) -> String {
    format!(
        r#"
#include <linux/moduleparam.h>

static unsigned int mutant = UINT_MAX;
module_param(mutant, uint, 0444);

bool ipoib_rs_mutant(unsigned int number);
bool ipoib_rs_mutant(unsigned int number)
{{
	static u8 reached[{}];

	if (!READ_ONCE(reached[number])) {{
		WRITE_ONCE(reached[number], 1);
		printk(KERN_NOTICE "{REACHED}%u\n", number);
	}}
	return number == mutant;
}}
"#,
        changes.max(1)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(source: &str) -> (String, Positions, Vec<Change>) {
        let changes = changes::changes(source).expect("Rust");
        let numbered: Vec<_> = changes.iter().enumerate().collect();
        let (text, places) = woven(source, &numbered);
        (text, places, changes)
    }

    /// Every source with all its changes is Rust again, however they are nested.
    #[test]
    fn what_is_woven_is_rust() {
        for source in [
            "fn f() -> bool { a + b * c == d && !(e < f) || g() }",
            "fn f() { if a(b - 1) { c(); d += 1; } else if !e { return; } }",
            "fn f() -> u8 { while a() || b { c()?; } 7 }",
            "fn f() { match a { B if c(d) && e => g(), _ => {} } }",
        ] {
            let (text, _, changes) = all(source);
            assert!(syn::parse_file(&text).is_ok(), "{text}");
            assert_eq!(text.matches("crate::mutant(").count(), changes.len());
        }
        let (text, ..) = all("fn f() { a == b; }");
        assert_eq!(
            text,
            "fn f() { if crate::mutant(0) { return ; } (match (&(a ), &( b)) { (l, r) => \
             if crate::mutant(1) { *l != *r } else { *l == *r } }); }"
        );
    }

    #[test]
    fn what_the_compiler_complains_about_is_found() {
        let dir = tempfile::tempdir().expect("a directory");
        let (text, places, changes) = all("fn f() {\n    g(a < b);\n    h();\n}\n");
        fs::create_dir_all(dir.path().join("rust")).expect("a directory");
        fs::write(dir.path().join("rust/a.rs"), &text).expect("writes");
        let tree = Tree {
            woven: BTreeMap::from([("rust/a.rs".to_owned(), places)]),
        };
        let column = text.lines().nth(1).and_then(|line| line.find("*l <= *r"));
        let complaints = |place: String| {
            let log =
                format!("  RUSTC M\nerror[E0308]: no\n  --> {place}\n   |\n 3 | x\n\nerror: 1");
            let found = tree.complaints(dir.path(), &log).expect("a report");
            let names: Vec<_> = found.iter().map(|n| changes[*n].name.clone()).collect();
            names
        };
        let inner = format!(
            "{}/rust/a.rs:2:{}",
            dir.path().display(),
            column.expect("a comparison") + 1
        );
        assert_eq!(complaints(inner), ["2:7: replace < with <= in f"]);
        // Nothing is changed there, but in a line that is quoted.
        assert_eq!(
            complaints("rust/a.rs:4:1".to_owned()),
            ["3:5: remove h(); in f"]
        );
        assert!(complaints("rust/b.rs:4:1".to_owned()).is_empty());
    }
}
