// SPDX-License-Identifier: GPL-2.0

//! The files of a crate, and what each imports from the others.

use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};

/// The files that each file imports from, by the paths of their modules below `crate`. The root file is none of them:
/// what it re-exports counts where it comes from, and what it declares for nobody's.
pub type Graph = BTreeMap<String, BTreeSet<String>>;

/// Path of a module or an item below `crate`.
type Segments = Vec<String>;

/// A file, and the module that it is.
struct File {
    module: Segments,
    /// Modules in files of their own that it declares.
    children: BTreeSet<String>,
    syntax: syn::File,
}

/// Names by which a file hands on something of another one.
type Names = BTreeMap<String, Segments>;

/// Reads a crate from its root file: all files that it declares, but for tests.
///
/// # Errors
///
/// A file that cannot be read, or is not Rust.
pub fn read(root: &Path) -> Result<Graph> {
    let mut files = Vec::new();
    let dir = root.parent().context("a root file has a directory")?;
    read_file(root, dir, Vec::new(), &mut files)?;
    let mut found = BTreeMap::new();
    let mut handed_on = BTreeMap::new();
    for file in &files {
        let mut collector = Collector {
            file,
            inner: Vec::new(),
            names: Names::new(),
            used: Names::new(),
            found: Vec::new(),
        };
        collector.visit_file(&file.syntax);
        handed_on.insert(file.module.join("::"), collector.names);
        found.insert(file.module.join("::"), collector.found);
    }
    let mut graph = Graph::new();
    for (module, paths) in found.into_iter().filter(|(module, _)| !module.is_empty()) {
        // What is used of a module counts, not that it has a name here.
        let used = paths
            .into_iter()
            .filter(|path| !handed_on.contains_key(&path.join("::")));
        let files = used.map(|path| resolve(&handed_on, path));
        let others = files.filter(|file| !file.is_empty() && *file != module);
        graph.insert(module.clone(), others.collect());
    }
    Ok(graph)
}

/// Returns true if an item is compiled for tests only.
pub(crate) fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let tokens = match &attribute.meta {
            syn::Meta::List(list) if !list.tokens.to_string().starts_with("not") => {
                list.tokens.to_string()
            }
            _ => String::new(),
        };
        let tested = |word: &str| matches!(word, "test" | "CONFIG_KUNIT" | "kunit_tests");
        tokens
            .split(|c: char| !(c.is_alphanumeric() || c == '_'))
            .any(tested)
    })
}

/// Reads a file, and those of the modules that it declares.
fn read_file(path: &Path, dir: &Path, module: Segments, files: &mut Vec<File>) -> Result<()> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let syntax = syn::parse_file(&text).with_context(|| path.display().to_string())?;
    let mut children = BTreeSet::new();
    for item in &syntax.items {
        let syn::Item::Mod(declared) = item else {
            continue;
        };
        if declared.content.is_some() || is_test(&declared.attrs) || declared.ident == "tests" {
            continue;
        }
        let name = declared.ident.to_string();
        let candidates: [PathBuf; 2] = [
            dir.join(format!("{name}.rs")),
            dir.join(&name).join("mod.rs"),
        ];
        // A file with another name is one of several of which one is compiled.
        let Some(child) = candidates.iter().find(|path| path.is_file()) else {
            continue;
        };
        let mut inside = module.clone();
        inside.push(name.clone());
        read_file(child, &dir.join(&name), inside, files)?;
        children.insert(name);
    }
    files.push(File {
        module,
        children,
        syntax,
    });
    Ok(())
}

/// Returns the file that a path leads to: the longest module of it, or where that has the next name from.
fn resolve(handed_on: &BTreeMap<String, Names>, mut path: Segments) -> String {
    // One that is handed on in a circle leads nowhere.
    for _ in 0..8 {
        let mut len = path.len();
        while !handed_on.contains_key(&path[..len].join("::")) {
            len -= 1;
        }
        let module = path[..len].join("::");
        let origin = path
            .get(len)
            .and_then(|name| handed_on.get(&module)?.get(name));
        let Some(origin) = origin else {
            return module;
        };
        let rest = path.split_off(len + 1);
        path = origin.iter().cloned().chain(rest).collect();
    }
    String::new()
}

/// Collects the paths in a file that lead to others of its crate.
struct Collector<'a> {
    file: &'a File,
    /// Modules inside the file around the present place.
    inner: Segments,
    /// Names that it hands on, and those that it has for itself.
    names: Names,
    used: Names,
    found: Vec<Segments>,
}

impl Collector<'_> {
    /// Returns a path below `crate`; `None` for one of another crate's, or of something declared here.
    fn absolute(&self, path: &[String]) -> Option<Segments> {
        let module = &self.file.module;
        let here = || module.iter().chain(&self.inner).cloned();
        let (first, rest) = path.split_first()?;
        let (around, rest): (Segments, _) = match first.as_str() {
            "crate" => (Vec::new(), rest),
            "self" => (here().collect(), rest),
            "super" => {
                let ups = path
                    .iter()
                    .take_while(|segment| *segment == "super")
                    .count();
                let depth = (module.len() + self.inner.len()).checked_sub(ups)?;
                (here().take(depth).collect(), &path[ups..])
            }
            child if self.inner.is_empty() && self.file.children.contains(child) => {
                (module.clone(), path)
            }
            name => (self.used.get(name).or(self.names.get(name))?.clone(), rest),
        };
        Some(around.into_iter().chain(rest.iter().cloned()).collect())
    }

    fn note(&mut self, path: &[String]) {
        self.found.extend(self.absolute(path));
    }

    /// Notes what a `use` names, and if that is handed on, by which name.
    fn note_use(&mut self, tree: &syn::UseTree, before: &[String], handed_on: bool) {
        let mut path = before.to_vec();
        let name = match tree {
            syn::UseTree::Path(inner) => {
                path.push(inner.ident.to_string());
                return self.note_use(&inner.tree, &path, handed_on);
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.note_use(tree, before, handed_on);
                }
                return;
            }
            syn::UseTree::Glob(_) => {
                path.push("*".to_owned());
                None
            }
            syn::UseTree::Name(name) => Some((&name.ident, &name.ident)),
            syn::UseTree::Rename(name) => Some((&name.ident, &name.rename)),
        };
        if let Some((ident, alias)) = name {
            if ident != "self" {
                path.push(ident.to_string());
            }
            let Some(absolute) = self.absolute(&path) else {
                return;
            };
            let alias = match path.last() {
                Some(last) if alias == "self" => last.clone(),
                _ => alias.to_string(),
            };
            if handed_on && self.inner.is_empty() {
                // A module that hands on something from inside itself need not know it.
                let inside = absolute.starts_with(&self.file.module);
                self.names.insert(alias, absolute.clone());
                if inside {
                    return;
                }
            } else {
                self.used.insert(alias, absolute.clone());
            }
        }
        self.note(&path);
    }
}

impl<'ast> Visit<'ast> for Collector<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if is_test(&item.attrs) || item.ident == "tests" {
            return;
        }
        self.inner.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.inner.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let handed_on = !matches!(item.vis, syn::Visibility::Inherited);
        self.note_use(&item.tree, &[], handed_on);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        if segments.len() > 1 {
            self.note(&segments);
        }
        visit::visit_path(self, path);
    }

    /// The arguments of a macro are no paths yet.
    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let text = call.tokens.to_string().replace(char::is_whitespace, "");
        for (at, _) in text.match_indices("crate::") {
            let path = text[at..].split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | ':')));
            let path = path.take(1).flat_map(|path| path.split("::"));
            self.note(&path.map(str::to_owned).collect::<Vec<_>>());
        }
        visit::visit_macro(self, call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a crate of these files.
    fn graph(files: &[(&str, &str)]) -> Result<Graph> {
        let dir = tempfile::tempdir()?;
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().context("a directory")?)?;
            fs::write(path, text)?;
        }
        read(&dir.path().join("lib.rs"))
    }

    fn imports(graph: &Graph, module: &str) -> Vec<String> {
        graph[module].iter().cloned().collect()
    }

    #[test]
    fn all_forms_of_paths_are_seen() -> Result<()> {
        let graph = graph(&[
            (
                "lib.rs",
                "mod low; mod high; pub use low::b::Known; struct Own;",
            ),
            ("low.rs", "pub mod b; pub mod c; mod d; pub use d::Hidden;"),
            ("low/b.rs", "pub struct X;"),
            (
                "low/c.rs",
                "use super::{b::X, d}; use crate::Own; fn f() { d::g() }",
            ),
            (
                "low/d/mod.rs",
                "pub(crate) struct Hidden; fn f() { super::b::g() }",
            ),
            (
                "high.rs",
                "use crate::low::{self, b::{self, X}}; use other::low::c;
                 mod inner { use super::*; fn f() -> crate::low::c::Y { panic!() } }
                 #[cfg(test)] mod tests { use crate::low::d; }",
            ),
        ])?;
        assert_eq!(imports(&graph, "high"), ["low::b", "low::c"]);
        assert_eq!(imports(&graph, "low::c"), ["low::b", "low::d"]);
        assert_eq!(imports(&graph, "low::d"), ["low::b"]);
        assert!(graph["low"].is_empty() && !graph.contains_key(""));
        Ok(())
    }

    #[test]
    fn what_is_handed_on_counts_where_it_comes_from() -> Result<()> {
        let graph = graph(&[
            (
                "lib.rs",
                "mod a; mod b; mod c; mod d; mod e; pub use a::deep::Thing as Renamed; pub use a::Handed;",
            ),
            ("a.rs", "pub(crate) mod deep; pub use self::deep::Handed;"),
            ("a/deep.rs", "pub struct Thing; pub struct Handed;"),
            ("b.rs", "fn f(_: crate::Renamed) {}"),
            ("c.rs", "fn f() { vec![crate::Handed::new()]; }"),
            ("d.rs", "use crate::a; fn f() { a::Handed::new(); }"),
            ("e.rs", "use crate::a::*;"),
        ])?;
        for module in ["b", "c", "d"] {
            assert_eq!(imports(&graph, module), ["a::deep"], "{module}");
        }
        assert_eq!(imports(&graph, "e"), ["a"]);
        assert!(graph["a"].is_empty());
        Ok(())
    }
}
