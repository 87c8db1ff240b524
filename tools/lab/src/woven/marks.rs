// SPDX-License-Identifier: GPL-2.0

//! Marks of a source: one before each statement, and before each expression that is a branch or a closure by itself.

use crate::modules::is_test;
use crate::woven::{Change, MADE, position};
use anyhow::Result;
use std::collections::BTreeMap;
use std::ops::Range;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// Finds the marks of a source, each before those inside of it.
///
/// # Errors
///
/// The source is not Rust.
pub(super) fn marks(source: &str) -> Result<Vec<Change>> {
    let file = syn::parse_file(source)?;
    let mut finder = Finder {
        source,
        found: Vec::new(),
    };
    finder.visit_file(&file);
    Ok(finder.found)
}

/// The lines of a source, from 1, that are code of marks, with the indices of these: a line is reached if one of them is. They
/// are those that begin in it, or else the innermost one around it. Lines that have nothing but comments or closing brackets
/// are none.
pub(crate) fn lines(source: &str, marks: &[&Range<usize>]) -> BTreeMap<usize, Vec<usize>> {
    let line_of = |at: usize| source[..at].matches('\n').count() + 1;
    let mut begin: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut around: BTreeMap<usize, usize> = BTreeMap::new();
    for (index, range) in marks.iter().enumerate() {
        let (first, last) = (line_of(range.start), line_of(range.end));
        begin.entry(first).or_default().push(index);
        for line in first + 1..=last {
            let inner = around.entry(line).or_insert(index);
            if range.len() < marks[*inner].len() {
                *inner = index;
            }
        }
    }
    let mut lines = BTreeMap::new();
    for (number, text) in (1..).zip(source.lines()) {
        let text = text.trim();
        let is_code = !text.starts_with("//") && text.contains(|c: char| !"()[]{},;? ".contains(c));
        let inner = || around.get(&number).map(|index| vec![*index]);
        if let (true, Some(marks)) = (is_code, begin.remove(&number).or_else(inner)) {
            lines.insert(number, marks);
        }
    }
    lines
}

/// Returns true if a macro makes a build fail that has code for it.
fn refuses(of: &syn::Macro) -> bool {
    of.path
        .segments
        .last()
        .is_some_and(|name| name.ident == "build_error")
}

struct Finder<'a> {
    source: &'a str,
    found: Vec<Change>,
}

impl Finder<'_> {
    fn add(&mut self, range: Range<usize>, around: [String; 2]) {
        self.found.push(Change {
            name: format!("{}: mark", position(self.source, range.start)),
            range,
            around,
            operator: None,
        });
    }

    /// Makes an expression a block that begins with a mark, unless it is a block, whose statements have marks.
    fn expression(&mut self, expression: &syn::Expr) {
        if !matches!(expression, syn::Expr::Block(_) | syn::Expr::Unsafe(_)) {
            let around = [format!("{{ let _ = {MADE}; "), " }".to_owned()];
            self.add(expression.span().byte_range(), around);
        }
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) && item.ident != "tests" {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if !is_test(&item.attrs) {
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test(&item.attrs) && item.sig.constness.is_none() {
            self.visit_block(&item.block);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test(&item.attrs) && item.sig.constness.is_none() {
            self.visit_block(&item.block);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let (None, Some(block)) = (&item.sig.constness, &item.default) {
            self.visit_block(block);
        }
    }

    fn visit_stmt(&mut self, statement: &'ast syn::Stmt) {
        let is_never_code = match statement {
            syn::Stmt::Item(_) => true,
            syn::Stmt::Macro(statement) => refuses(&statement.mac),
            syn::Stmt::Expr(syn::Expr::Macro(expression), _) => refuses(&expression.mac),
            _ => false,
        };
        if !is_never_code {
            let around = [format!("let _ = {MADE}; "), String::new()];
            self.add(statement.span().byte_range(), around);
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        self.expression(&arm.body);
        visit::visit_arm(self, arm);
    }

    fn visit_expr_closure(&mut self, closure: &'ast syn::ExprClosure) {
        if matches!(closure.output, syn::ReturnType::Default) {
            self.expression(&closure.body);
        }
        visit::visit_expr_closure(self, closure);
    }

    // Constants, types, patterns, attributes and macros have no marks.

    fn visit_expr_repeat(&mut self, repeat: &'ast syn::ExprRepeat) {
        self.visit_expr(&repeat.expr);
    }

    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_item_enum(&mut self, _: &'ast syn::ItemEnum) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}
    fn visit_macro(&mut self, _: &'ast syn::Macro) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "fn f(a: u32) -> u32 {\n\
        // Why.\n\
        let b = g(\n\
        a,\n\
        );\n\
        match b {\n\
        1 => h(|c| c + 1),\n\
        _ => {\n\
        return 2;\n\
        }\n\
        }\n\
        }\n\
        const fn k() -> u8 { 1 }\n\
        fn l() { build_error!(L) }\n\
        #[cfg(CONFIG_KUNIT)]\n\
        fn t() { u(); }\n";

    #[test]
    fn statements_arms_and_closures_have_marks() {
        let found = marks(SOURCE).expect("Rust");
        let texts: Vec<&str> = found
            .iter()
            .map(|mark| SOURCE[mark.range.clone()].lines().next().unwrap_or(""))
            .collect();
        assert_eq!(
            texts,
            [
                "let b = g(",
                "match b {",
                "h(|c| c + 1)",
                "c + 1",
                "return 2;"
            ]
        );
    }

    #[test]
    fn lines_have_marks() {
        let found = marks(SOURCE).expect("Rust");
        let ranges: Vec<&Range<usize>> = found.iter().map(|mark| &mark.range).collect();
        let lines = lines(SOURCE, &ranges);
        let expected = [
            (3, vec![0]),
            (4, vec![0]),
            (6, vec![1]),
            (7, vec![2, 3]),
            (8, vec![1]),
            (9, vec![4]),
        ];
        assert_eq!(lines, BTreeMap::from(expected));
    }
}
