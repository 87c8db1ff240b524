// SPDX-License-Identifier: GPL-2.0

//! The order of a crate's layers: a file imports from its own layer and those below it, and no two files import
//! each other.

use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use syn::visit::{self, Visit};

/// A crate whose modules have an order.
struct Layered {
    /// Directory of the crate's root file.
    dir: &'static str,
    /// Top-level modules, the lowest first. Others, as the root file, are above all of them.
    layers: &'static [&'static str],
}

const CRATES: &[Layered] = &[
    Layered {
        dir: "drivers/infiniband/ulp/ipoib_rs",
        layers: &["base", "ud", "rc", "data", "ctl"],
    },
    Layered {
        dir: "drivers/infiniband/ulp/ipoib_rs/proto",
        layers: &["drop", "wire", "table", "seq", "flow", "fsm"],
    },
];

/// Modules that a file imports, as paths below `crate`.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// Checks all crates that have layers.
///
/// # Errors
///
/// Each import that leads up, and each circle, a line each.
pub fn check(checkout: &Path) -> Result<()> {
    let mut wrong = Vec::new();
    for layered in CRATES {
        let imports = read(&checkout.join(layered.dir), layered.layers)?;
        wrong.extend(upward(&imports, layered.layers));
        wrong.extend(circles(&imports));
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Reads the imports of all files in a crate's layers.
fn read(dir: &Path, layers: &[&str]) -> Result<Imports> {
    let mut sources = BTreeMap::new();
    for layer in layers {
        let file = dir.join(format!("{layer}.rs"));
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        sources.insert((*layer).to_owned(), text);
        let Ok(entries) = fs::read_dir(dir.join(layer)) else {
            continue;
        };
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "rs") {
                let stem = path.file_stem().unwrap_or_default().to_string_lossy();
                let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
                sources.insert(format!("{layer}::{stem}"), text);
            }
        }
    }
    let names: BTreeSet<String> = sources.keys().cloned().collect();
    let parsed = sources.into_iter().map(|(name, text)| {
        let file = syn::parse_file(&text).with_context(|| name.clone())?;
        let mut collector = Collector {
            names: &names,
            found: BTreeSet::new(),
        };
        collector.visit_file(&file);
        collector.found.remove(&name);
        // The root of a layer declares its files, which is no import.
        Ok((name, collector.found))
    });
    parsed.collect()
}

/// Collects the modules that the paths of a file lead to.
struct Collector<'a> {
    names: &'a BTreeSet<String>,
    found: BTreeSet<String>,
}

impl Collector<'_> {
    /// Notes the file that a path below `crate` leads to: the longest prefix that is one.
    fn note(&mut self, segments: &[String]) {
        for len in (1..=segments.len().min(2)).rev() {
            let name = segments[..len].join("::");
            if self.names.contains(&name) {
                self.found.insert(name);
                return;
            }
        }
    }

    fn note_use(&mut self, tree: &syn::UseTree, before: &[String]) {
        match tree {
            syn::UseTree::Path(path) => {
                let mut segments = before.to_vec();
                segments.push(path.ident.to_string());
                self.note_use(&path.tree, &segments);
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.note_use(tree, before);
                }
            }
            syn::UseTree::Name(_) | syn::UseTree::Rename(_) | syn::UseTree::Glob(_) => {
                let mut segments = before.to_vec();
                match tree {
                    syn::UseTree::Name(name) => segments.push(name.ident.to_string()),
                    syn::UseTree::Rename(name) => segments.push(name.ident.to_string()),
                    _ => {}
                }
                if let Some(("crate", segments)) = segments
                    .split_first()
                    .map(|(first, rest)| (first.as_str(), rest))
                {
                    self.note(segments);
                }
            }
        }
    }
}

impl<'ast> Visit<'ast> for Collector<'_> {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.note_use(&item.tree, &[]);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        if segments.first().is_some_and(|first| first == "crate") {
            self.note(&segments[1..]);
        }
        visit::visit_path(self, path);
    }
}

/// The imports that lead from a layer to one above it.
fn upward(imports: &Imports, layers: &[&str]) -> Vec<String> {
    let height = |name: &str| {
        let layer = name.split("::").next().unwrap_or(name);
        layers.iter().position(|other| *other == layer)
    };
    let all = imports
        .iter()
        .flat_map(|(from, targets)| targets.iter().map(move |to| (from, to)));
    all.filter(|(from, to)| height(to) > height(from))
        .map(|(from, to)| format!("{from} imports from {to}, which is above it"))
        .collect()
}

/// The files that import themselves by way of others.
fn circles(imports: &Imports) -> Vec<String> {
    let circular = |start: &String| {
        let mut seen = BTreeSet::new();
        let mut rest = vec![start];
        while let Some(name) = rest.pop() {
            for next in imports.get(name).into_iter().flatten() {
                if next == start {
                    return true;
                }
                if seen.insert(next) {
                    rest.push(next);
                }
            }
        }
        false
    };
    imports
        .keys()
        .filter(|name| circular(name))
        .map(|name| format!("{name} imports itself by way of others"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error;

    fn imports(list: &[(&str, &[&str])]) -> Imports {
        list.iter()
            .map(|(from, to)| {
                let to = to.iter().map(|name| (*name).to_owned()).collect();
                ((*from).to_owned(), to)
            })
            .collect()
    }

    #[test]
    fn imports_lead_down() {
        let layers = ["low", "high"];
        let down = imports(&[("high::a", &["low::b"]), ("low::b", &["low::c"])]);
        assert!(upward(&down, &layers).is_empty());
        let up = imports(&[("low::b", &["high::a"])]);
        assert_eq!(
            upward(&up, &layers),
            ["low::b imports from high::a, which is above it"]
        );
    }

    #[test]
    fn circles_are_found() {
        let chain = imports(&[("a", &["b"]), ("b", &["c"]), ("c", &[])]);
        assert!(circles(&chain).is_empty());
        let circle = imports(&[("a", &["b"]), ("b", &["c"]), ("c", &["a"]), ("d", &["a"])]);
        assert_eq!(circles(&circle).len(), 3);
    }

    #[test]
    fn all_forms_of_paths_are_seen() -> Result<(), Box<dyn Error>> {
        let names = ["low::b", "low::c", "high::a", "low"].map(str::to_owned);
        let names = BTreeSet::from(names);
        let mut collector = Collector {
            names: &names,
            found: BTreeSet::new(),
        };
        collector.visit_file(&syn::parse_file(
            "use crate::{low::{b::{self, X}}, high};
             use other::high::a;
             fn f() -> crate::low::c::Y { crate::high::a::g() }",
        )?);
        let found: Vec<_> = collector.found.into_iter().collect();
        assert_eq!(found, ["high::a", "low::b", "low::c"]);
        Ok(())
    }

    /// The checkout's own layers.
    #[test]
    fn this_tree_is_layered() -> Result<()> {
        check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
    }
}
