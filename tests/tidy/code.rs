//! Rules on Rust code: what it names, how long it is, how it begins.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::tree::File;

const FILE_LINES_MAX: usize = 400;
const FUNCTION_LINES_MAX: usize = 70;

/// A crate (or all crates that begin so), and the paths under which code may name it. Each foreign system stays behind
/// few files, so that it can be looked at, patched and replaced there.
const FOREIGN: [(&str, &[&str]); 3] = [
    // What a request means, where it goes and what is tried again are plain functions in the other files.
    (
        "pingora",
        &[
            "edge/src/config.rs",
            "edge/src/connection.rs",
            "edge/src/headers.rs",
            "edge/src/limits.rs",
            "edge/src/listener.rs",
            "edge/src/proxy",
            "edge/src/reply.rs",
            "edge/src/run.rs",
            "edge/src/upstream.rs",
        ],
    ),
    (
        "sqlx",
        &[
            "pod/src/db",
            "pod/src/home.rs",
            "pod/src/error.rs",
            "pod/src/startup",
            // Statements for the guard; they open nothing.
            "pod/src/idempotency.rs",
            "pod/src/outbox/rows.rs",
            "pod/src/extract/merchant.rs",
            "pod/src/shop/",
            "pod/examples/",
            "infra/src/catalog",
            "infra/src/doctor/observe/database.rs",
            "infra/src/migrate",
            "infra/src/mysqld",
            "infra/src/pod_store",
            "tests/",
        ],
    ),
    ("mysql_async", &["infra/src/mover/"]),
];

fn tokens(file: &File) -> TokenStream {
    file.text
        .parse()
        .unwrap_or_else(|error| panic!("{}: {error}", file.path))
}

/// Calls `see` for each run of sibling tokens, from the outermost in.
fn runs(stream: TokenStream, see: &mut impl FnMut(&[TokenTree])) {
    let run: Vec<TokenTree> = stream.into_iter().collect();
    see(&run);
    for tree in run {
        if let TokenTree::Group(group) = tree {
            runs(group.stream(), see);
        }
    }
}

/// Names of foreign crates where they may not be named.
pub(crate) fn foreign_names(file: &File) -> Vec<String> {
    let mut breaches = Vec::new();
    runs(tokens(file), &mut |run| {
        for tree in run {
            let TokenTree::Ident(ident) = tree else {
                continue;
            };
            let name = ident.to_string();
            for (foreign, paths) in FOREIGN {
                let is = name == foreign || name.starts_with(&format!("{foreign}_"));
                if is && !paths.iter().any(|path| file.path.starts_with(path)) {
                    let what = format!("`{name}` may be named only under {paths:?}");
                    breaches.push(file.breach(ident.span().start().line, &what));
                }
            }
        }
    });
    breaches
}

/// In the pod: `.begin()`, and `Transaction` of sqlx. A dropped future of either leaves an open transaction to the next
/// borrower of its connection.
pub(crate) fn droppable_transactions(file: &File) -> Vec<String> {
    let mut breaches = Vec::new();
    if !file.path.starts_with("pod/") {
        return breaches;
    }
    runs(tokens(file), &mut |run| {
        for window in run.windows(3) {
            let [
                TokenTree::Punct(dot),
                TokenTree::Ident(name),
                TokenTree::Group(call),
            ] = window
            else {
                continue;
            };
            let empty = call.delimiter() == Delimiter::Parenthesis && call.stream().is_empty();
            if dot.as_char() == '.' && name == "begin" && empty {
                let what = "`.begin()` is not safe to drop; open transactions by the guard";
                breaches.push(file.breach(name.span().start().line, what));
            }
        }
        for tree in run {
            if let TokenTree::Ident(name) = tree
                && name == "Transaction"
            {
                let what = "`Transaction` is not safe to drop; use the guard's";
                breaches.push(file.breach(name.span().start().line, what));
            }
        }
    });
    breaches
}

struct Functions<'a> {
    file: &'a File,
    lines: Vec<&'a str>,
    breaches: Vec<String>,
}

impl Functions<'_> {
    /// As clippy counts: lines of the body with code on them.
    fn check(&mut self, name: &syn::Ident, body: &syn::Block) {
        let span = body.brace_token.span.join();
        let (first, last) = (span.start().line, span.end().line);
        let code = |line: &&&str| {
            let line = line.trim();
            !line.is_empty() && !line.starts_with("//")
        };
        let inner = self
            .lines
            .get(first..last.saturating_sub(1))
            .unwrap_or_default();
        let count = inner.iter().filter(code).count();
        if count > FUNCTION_LINES_MAX {
            let what =
                format!("fn {name} has {count} lines, at most {FUNCTION_LINES_MAX} are allowed");
            self.breaches
                .push(self.file.breach(name.span().start().line, &what));
        }
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, it: &'ast syn::ItemFn) {
        self.check(&it.sig.ident, &it.block);
        visit::visit_item_fn(self, it);
    }

    fn visit_impl_item_fn(&mut self, it: &'ast syn::ImplItemFn) {
        self.check(&it.sig.ident, &it.block);
        visit::visit_impl_item_fn(self, it);
    }

    fn visit_trait_item_fn(&mut self, it: &'ast syn::TraitItemFn) {
        if let Some(body) = &it.default {
            self.check(&it.sig.ident, body);
        }
        visit::visit_trait_item_fn(self, it);
    }
}

/// Files and functions that are too long.
pub(crate) fn ceilings(file: &File) -> Vec<String> {
    let lines: Vec<&str> = file.text.lines().collect();
    let mut functions = Functions {
        file,
        breaches: Vec::new(),
        lines,
    };
    let count = functions.lines.len();
    if count > FILE_LINES_MAX {
        let what = format!("{count} lines, at most {FILE_LINES_MAX} are allowed: split it by noun");
        functions.breaches.push(file.breach(count, &what));
    }
    match syn::parse_file(&file.text) {
        Ok(parsed) => functions.visit_file(&parsed),
        Err(error) => {
            let what = format!("not Rust: {error}");
            functions
                .breaches
                .push(file.breach(error.span().start().line, &what));
        }
    }
    functions.breaches
}

/// Files that do not begin with what they are for.
pub(crate) fn first_lines(file: &File) -> Option<String> {
    (!file.text.starts_with("//! ")).then(|| file.breach(1, "begins without a `//!` sentence"))
}

/// `mod.rs` files: many tabs of one name.
pub(crate) fn mod_files(file: &File) -> Option<String> {
    let is = file.path == "mod.rs" || file.path.ends_with("/mod.rs");
    is.then(|| file.breach(1, "`foo/mod.rs` is `foo.rs` here"))
}

/// The line of a token that can be spanned.
pub(crate) fn line_of(it: &impl Spanned) -> usize {
    it.span().start().line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_names_are_found_in_every_form() {
        for bad in [
            "use sqlx::query;",
            "fn f() { sqlx::query(\"\"); }",
            "use {std::fmt, pingora_core::Server};",
            "fn f() { debug!(\"{}\", mysql_async::Row::new()); }",
        ] {
            assert_eq!(
                foreign_names(&File::new("shared/src/x.rs", bad)).len(),
                1,
                "{bad}"
            );
        }
        assert!(foreign_names(&File::new("pod/src/db/x.rs", "use sqlx::query;")).is_empty());
        assert_eq!(
            foreign_names(&File::new("pod/src/cache.rs", "use sqlx::query;")).len(),
            1
        );
        assert_eq!(
            foreign_names(&File::new("pod/src/x.rs", "use pingora::Server;")).len(),
            1
        );
        assert!(foreign_names(&File::new("shared/src/x.rs", "/// By sqlx.\nfn f() {}")).is_empty());
    }

    #[test]
    fn droppable_transactions_are_found() {
        let breaches = |path, text| droppable_transactions(&File::new(path, text)).len();
        let begin = "async fn f(p: Pool) { let t = p.begin().await; }";
        assert_eq!(breaches("pod/src/db/tx.rs", begin), 1);
        assert_eq!(
            breaches("pod/src/db/tx.rs", "use sqlx::{MySql, Transaction};"),
            1
        );
        assert_eq!(
            breaches("infra/src/catalog.rs", begin),
            0,
            "SQLite's are another matter"
        );
        assert_eq!(
            breaches("pod/src/x.rs", "fn f(a: App) { a.begin(call); }"),
            0
        );
    }

    #[test]
    fn long_files_and_functions_are_found() {
        let long = |n: usize| format!("//! x\nfn f() {{\n{}}}\n", "    g();\n".repeat(n));
        assert!(ceilings(&File::new("x.rs", &long(70))).is_empty());
        assert_eq!(ceilings(&File::new("x.rs", &long(71))).len(), 1);
        assert_eq!(ceilings(&File::new("x.rs", &long(401))).len(), 2);
        let method = long(71).replace("//! x\n", "struct S;\nimpl S {\n") + "}\n";
        assert_eq!(ceilings(&File::new("x.rs", &method)).len(), 1);
        let commented = format!("fn f() {{\n{}}}\n", "    // why\n\n".repeat(100));
        assert!(ceilings(&File::new("x.rs", &commented)).is_empty());
        assert_eq!(ceilings(&File::new("x.rs", "fn {")).len(), 1);
    }

    #[test]
    fn beginnings_and_names_of_files_are_looked_at() {
        assert!(first_lines(&File::new("x.rs", "//! What it is.\n")).is_none());
        for bad in ["", "use x;\n", "\n//! late\n", "// a comment\n", "//!\n"] {
            assert!(first_lines(&File::new("x.rs", bad)).is_some(), "{bad:?}");
        }
        assert!(mod_files(&File::new("pod/src/db/mod.rs", "")).is_some());
        assert!(mod_files(&File::new("pod/src/db/model.rs", "")).is_none());
    }
}
