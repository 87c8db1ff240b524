// SPDX-License-Identifier: GPL-2.0

//! Limits on the sizes of the kernel crates' files and functions.

use crate::modules::is_test;
use anyhow::{Context, Result, ensure};
use proc_macro2::Span;
use std::fs;
use std::path::Path;
use syn::visit::{self, Visit};

/// Lines of a file without its tests.
const FILE_LINES: usize = 600;

/// Lines of a function.
const FUNCTION_LINES: usize = 60;

/// Parameters of a function besides `self`, unless its prototype is C's.
const PARAMETERS: usize = 5;

/// Directories whose files have limits.
const DIRECTORIES: [&str; 2] = ["drivers", "rust"];

/// Checks all files of the kernel's crates.
///
/// # Errors
///
/// Each file and each function that is too long, and each function with too many parameters, a line each.
pub fn check(checkout: &Path) -> Result<()> {
    let mut wrong = Vec::new();
    for dir in DIRECTORIES {
        check_dir(&checkout.join(dir), dir, &mut wrong)?;
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

fn check_dir(dir: &Path, shown: &str, wrong: &mut Vec<String>) -> Result<()> {
    let entries = fs::read_dir(dir).with_context(|| shown.to_owned())?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let (path, shown) = (entry.path(), format!("{shown}/{name}"));
        // Tests, what is generated, and what Cargo leaves.
        if matches!(name.as_str(), "tests" | "tests.rs" | "gen.rs" | "target") {
            continue;
        }
        if entry.file_type()?.is_dir() {
            check_dir(&path, &shown, wrong)?;
        } else if name.ends_with(".rs") {
            let text = fs::read_to_string(&path).with_context(|| shown.clone())?;
            let complaints = complaints(&text).with_context(|| shown.clone())?;
            wrong.extend(complaints.iter().map(|what| format!("{shown}: {what}")));
        }
    }
    Ok(())
}

/// Returns a line for each item of a file that is too long.
fn complaints(text: &str) -> Result<Vec<String>> {
    let mut measure = Measure::default();
    measure.visit_file(&syn::parse_file(text)?);
    let lines = text.lines().count() - measure.tests;
    let mut wrong = measure.wrong;
    if lines > FILE_LINES {
        wrong.push(format!("{lines} lines besides tests"));
    }
    Ok(wrong)
}

#[derive(Default)]
struct Measure {
    wrong: Vec<String>,
    /// Lines of modules of tests.
    tests: usize,
}

/// Lines from a keyword to the brace that closes what it begins.
fn lines(from: Span, to: &syn::token::Brace) -> usize {
    to.span.close().end().line - from.start().line + 1
}

impl Measure {
    fn function(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let name = &signature.ident;
        let lines = lines(signature.fn_token.span, &block.brace_token);
        if lines > FUNCTION_LINES {
            self.wrong.push(format!("{name} has {lines} lines"));
        }
        let typed = |input: &&syn::FnArg| matches!(input, syn::FnArg::Typed(_));
        let parameters = signature.inputs.iter().filter(typed).count();
        if parameters > PARAMETERS && signature.abi.is_none() {
            self.wrong
                .push(format!("{name} has {parameters} parameters"));
        }
    }
}

impl<'ast> Visit<'ast> for Measure {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if is_test(&item.attrs) || item.ident == "tests" {
            let content = item.content.as_ref();
            let attribute = item.attrs.first().map(|first| first.pound_token.span);
            let first = attribute.unwrap_or(item.mod_token.span);
            self.tests += content.map_or(1, |(brace, _)| lines(first, brace));
        } else {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_found() -> Result<()> {
        let body = |lines: usize| "    f();\n".repeat(lines);
        let function = |lines: usize| format!("fn long() {{\n{}}}\n", body(lines - 2));
        assert!(complaints(&function(60))?.is_empty());
        assert_eq!(complaints(&function(61))?, ["long has 61 lines"]);
        let method = format!("/// Doc.\nimpl X {{\n{}}}\n", function(61));
        assert_eq!(complaints(&method)?, ["long has 61 lines"]);
        let test = format!("#[cfg(test)]\nmod x {{\n{}}}\n", function(700));
        assert!(complaints(&test)?.is_empty());
        let constants = "const X: u32 = 0;\n".repeat(600);
        assert!(complaints(&(constants.clone() + &test))?.is_empty());
        assert_eq!(
            complaints(&(constants + "const Y: u32 = 0;"))?,
            ["601 lines besides tests"]
        );
        Ok(())
    }

    #[test]
    fn parameters_are_counted() -> Result<()> {
        let five = "fn f(&self, a: u8, b: u8, c: u8, d: u8, e: u8";
        let method = |end: &str| complaints(&format!("impl X {{ {five}{end}) {{}} }}"));
        assert!(method("")?.is_empty());
        assert_eq!(method(", f: u8")?, ["f has 6 parameters"]);
        let six = five.replace("&self", "z: u8");
        assert!(complaints(&format!("unsafe extern \"C\" {six}) {{}}"))?.is_empty());
        Ok(())
    }

    /// The checkout's own files.
    #[test]
    fn this_tree_keeps_the_limits() -> Result<()> {
        check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
    }
}
