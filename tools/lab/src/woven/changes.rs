// SPDX-License-Identifier: GPL-2.0

//! Small faults that can be made in a source.

use crate::modules::is_test;
use crate::woven::{Change, Edit, MADE, position};
use anyhow::Result;
use std::ops::Range;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// Finds the changes in a source, each before those inside of it.
///
/// # Errors
///
/// The source is not Rust.
pub(super) fn changes(source: &str) -> Result<Vec<Change>> {
    let file = syn::parse_file(source)?;
    let mut finder = Finder {
        source,
        function: Vec::new(),
        found: Vec::new(),
    };
    finder.visit_file(&file);
    Ok(finder.found)
}

struct Finder<'a> {
    source: &'a str,
    /// Names of the functions around the present place, the innermost last.
    function: Vec<String>,
    found: Vec<Change>,
}

impl Finder<'_> {
    fn add(
        &mut self,
        range: Range<usize>,
        what: &str,
        around: [String; 2],
        operator: Option<Edit>,
    ) {
        let at = position(self.source, range.start);
        let function = self.function.last().map_or("", String::as_str);
        self.found.push(Change {
            name: format!("{at}: {what} in {function}"),
            range,
            around,
            operator,
        });
    }

    /// The source's text, in one line.
    fn text(&self, range: Range<usize>) -> String {
        let words: Vec<&str> = self.source[range].split_whitespace().collect();
        words.join(" ")
    }

    /// Adds the change that negates a condition.
    fn negate(&mut self, condition: &impl Spanned) {
        let range = condition.span().byte_range();
        let what = format!("negate {}", self.text(range.clone()));
        self.add(
            range,
            &what,
            [format!("({MADE} ^ ("), "))".to_owned()],
            None,
        );
    }

    /// Negates the condition of an `if` or a `while`, unless the operators in it are changed anyway.
    fn condition(&mut self, condition: &syn::Expr) {
        use syn::Expr;
        let changed_anyway = matches!(
            condition,
            Expr::Binary(_) | Expr::Unary(_) | Expr::Let(_) | Expr::Lit(_)
        );
        if !changed_anyway {
            self.negate(condition);
        }
    }

    /// Adds changes that make a function return at once.
    fn body(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let start = block.brace_token.span.open().byte_range().end;
        for value in values(&signature.output) {
            let what = match *value {
                "" => "return at once".to_owned(),
                value => format!("return {value} at once"),
            };
            let text = format!(" if {MADE} {{ return {value}; }}");
            self.add(start..start, &what, [text, String::new()], None);
        }
    }

    fn function(
        &mut self,
        attributes: &[syn::Attribute],
        signature: &syn::Signature,
        block: &syn::Block,
    ) {
        let tested = attributes.iter().any(|a| a.path().is_ident("test"));
        if is_test(attributes) || tested || signature.constness.is_some() {
            return;
        }
        self.function.push(signature.ident.to_string());
        self.body(signature, block);
        self.visit_block(block);
        self.function.pop();
    }

    fn binary(&mut self, binary: &syn::ExprBinary) {
        use syn::BinOp as Op;
        let (is_comparison, with) = match binary.op {
            Op::Eq(_) => (true, "!="),
            Op::Ne(_) => (true, "=="),
            Op::Lt(_) => (true, "<="),
            Op::Le(_) => (true, "<"),
            Op::Gt(_) => (true, ">="),
            Op::Ge(_) => (true, ">"),
            Op::Add(_) => (false, "-"),
            Op::Sub(_) => (false, "+"),
            Op::Mul(_) | Op::Rem(_) => (false, "/"),
            Op::Div(_) => (false, "*"),
            Op::BitAnd(_) => (false, "|"),
            Op::BitOr(_) => (false, "&"),
            Op::And(_) | Op::Or(_) => return self.sides(binary),
            _ => return,
        };
        // Comparisons borrow their operands.
        let (by, of) = if is_comparison { ("&", "*") } else { ("", "") };
        let at = binary.op.span().byte_range();
        let operator = self.source[at.clone()].to_owned();
        let after = format!(
            ")) {{ (l, r) => if {MADE} {{ {of}l {with} {of}r }} else {{ {of}l {operator} {of}r }} }})"
        );
        let between = Edit {
            range: at,
            text: format!("), {by}("),
        };
        self.add(
            binary.span().byte_range(),
            &format!("replace {operator} with {with}"),
            [format!("(match ({by}("), after],
            Some(between),
        );
    }

    /// Leaves out one side of `&&` or `||`.
    fn sides(&mut self, binary: &syn::ExprBinary) {
        for side in [&*binary.left, &*binary.right] {
            if has_let(side) {
                continue;
            }
            let range = side.span().byte_range();
            let what = format!("leave out {}", self.text(range.clone()));
            let before = match binary.op {
                syn::BinOp::And(_) => format!("({MADE} || ("),
                _ => format!("(!{MADE} && ("),
            };
            self.add(range, &what, [before, "))".to_owned()], None);
        }
    }
}

/// Returns true if a condition binds something.
fn has_let(condition: &syn::Expr) -> bool {
    match condition {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

/// Values that a function with this output may return at once.
fn values(output: &syn::ReturnType) -> &'static [&'static str] {
    let syn::ReturnType::Type(_, result) = output else {
        return &[""];
    };
    let syn::Type::Path(path) = &**result else {
        return &[];
    };
    let Some(last) = path.path.segments.last() else {
        return &[];
    };
    let unit = |arguments: &syn::PathArguments| match arguments {
        syn::PathArguments::None => true,
        syn::PathArguments::AngleBracketed(list) => matches!(
            list.args.first(),
            Some(syn::GenericArgument::Type(syn::Type::Tuple(tuple))) if tuple.elems.is_empty()
        ),
        syn::PathArguments::Parenthesized(_) => false,
    };
    match last.ident.to_string().as_str() {
        "bool" => &["true", "false"],
        "u8" | "u16" | "u32" | "u64" | "usize" | "i32" | "isize" => &["0", "1"],
        "Result" if unit(&last.arguments) => &["Ok(())"],
        "Option" => &["None"],
        _ => &[],
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) && item.ident != "tests" {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let shown = item.trait_.as_ref().is_some_and(|(path, _)| {
            let last = path.segments.last();
            last.is_some_and(|name| name.ident == "Debug" || name.ident == "Display")
        });
        if !is_test(&item.attrs) && !shown {
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.attrs, &item.sig, &item.block);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.attrs, &item.sig, &item.block);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.attrs, &item.sig, block);
        }
    }

    fn visit_stmt(&mut self, statement: &'ast syn::Stmt) {
        use syn::{BinOp, Expr, Stmt};
        if let Stmt::Expr(expression, Some(_)) = statement {
            let removable = match expression {
                Expr::Call(_) | Expr::MethodCall(_) | Expr::Assign(_) | Expr::Try(_) => true,
                Expr::Binary(binary) => matches!(
                    binary.op,
                    BinOp::AddAssign(_)
                        | BinOp::SubAssign(_)
                        | BinOp::BitOrAssign(_)
                        | BinOp::BitAndAssign(_)
                ),
                _ => false,
            };
            let range = statement.span().byte_range();
            if removable {
                let what = format!("remove {}", self.text(range.clone()));
                let before = format!("if !{MADE} {{ ");
                self.add(range, &what, [before, " }".to_owned()], None);
            }
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_expr_if(&mut self, branch: &'ast syn::ExprIf) {
        self.condition(&branch.cond);
        visit::visit_expr_if(self, branch);
    }

    fn visit_expr_while(&mut self, branch: &'ast syn::ExprWhile) {
        self.condition(&branch.cond);
        visit::visit_expr_while(self, branch);
    }

    fn visit_expr_unary(&mut self, unary: &'ast syn::ExprUnary) {
        if matches!(unary.op, syn::UnOp::Not(_)) {
            self.negate(unary);
        }
        visit::visit_expr_unary(self, unary);
    }

    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        self.binary(binary);
        visit::visit_expr_binary(self, binary);
    }

    // Constants, types, patterns and attributes have no changes.

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

    fn visit_pat(&mut self, pattern: &'ast syn::Pat) {
        if let syn::Pat::Guard(guarded) = pattern {
            self.condition(&guarded.guard);
            self.visit_expr(&guarded.guard);
        }
    }

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}
    fn visit_macro(&mut self, _: &'ast syn::Macro) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(source: &str) -> Vec<String> {
        let found = changes(source).expect("Rust");
        found.into_iter().map(|change| change.name).collect()
    }

    #[test]
    fn operators_conditions_statements_and_functions() {
        let source = "fn f(a: u32) -> bool {\n\
                      if a < 3 && g() { h(a + 1); }\n\
                      while ready() { x -= 1; }\n\
                      match a { n if odd(n) => !flag, _ => a == 7 }\n\
                      }";
        assert_eq!(
            names(source),
            [
                "1:23: return true at once in f",
                "1:23: return false at once in f",
                "2:4: leave out a < 3 in f",
                "2:13: leave out g() in f",
                "2:4: replace < with <= in f",
                "2:19: remove h(a + 1); in f",
                "2:21: replace + with - in f",
                "3:7: negate ready() in f",
                "3:17: remove x -= 1; in f",
                "4:16: negate odd(n) in f",
                "4:26: negate !flag in f",
                "4:38: replace == with != in f",
            ]
        );
    }

    #[test]
    fn values_of_outputs() {
        let first = |output: &str| {
            let source = format!("fn f() -> {output} {{ g() }}");
            let names = names(&source);
            let first = names.first().and_then(|name| name.split_once(": "));
            first.map_or(String::new(), |(_, what)| what.to_owned())
        };
        assert_eq!(first("Result"), "return Ok(()) at once in f");
        assert_eq!(first("Result<()>"), "return Ok(()) at once in f");
        assert_eq!(first("Result<u8>"), "");
        assert_eq!(first("Option<u8>"), "return None at once in f");
        assert_eq!(first("usize"), "return 0 at once in f");
        assert_eq!(names("fn f() {}"), ["1:9: return at once in f"]);
    }

    #[test]
    fn tests_constants_and_bindings_stay() {
        for source in [
            "#[cfg(test)] mod tests { fn f() {} }",
            "mod tests { fn f() {} }",
            "const fn f() -> u8 { 1 + 2 }",
            "const N: u8 = 1 + 2;",
            "static N: [u8; 1 + 2] = [0; 3];",
            "impl core::fmt::Debug for A { fn fmt(&self) {} }",
            "enum A { B = 1 + 2 }",
        ] {
            assert_eq!(names(source), [""; 0], "{source}");
        }
        let chain = "fn f() -> A { if let Some(a) = b && let C = a && d() {} }";
        assert_eq!(names(chain), ["1:50: leave out d() in f"]);
    }
}
