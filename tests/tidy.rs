//! The rules that a reader of this repository may rely on, as tests.
//!
//! Each rule is a function over texts that gives a list of breaches, so that the rule itself is tested on samples that
//! break it. The tests here run the rules over the tree.

#![expect(
    clippy::unwrap_used,
    reason = "a rule that cannot be looked at is a failed test"
)]

#[path = "tidy/arrows.rs"]
mod arrows;
#[path = "tidy/code.rs"]
mod code;
#[path = "tidy/config.rs"]
mod config;
#[path = "tidy/proof.rs"]
mod proof;
#[path = "tidy/sql.rs"]
mod sql;
#[path = "tidy/tree.rs"]
mod tree;

use std::collections::BTreeSet;

use tree::{File, Tree};

/// Fails with every breach on a line of its own, where an editor can jump to it.
fn none(breaches: impl IntoIterator<Item = String>) {
    let breaches: Vec<String> = breaches.into_iter().collect();
    assert!(
        breaches.is_empty(),
        "{} breaches:\n{}",
        breaches.len(),
        breaches.join("\n")
    );
}

/// All Rust files but vendored ones.
fn rust(tree: &Tree) -> impl Iterator<Item = &File> {
    tree.with_extension("rs")
}

#[test]
fn crates_depend_as_the_design_draws_it() {
    let tree = Tree::read();
    none(arrows::between_crates(|path| tree.text(path)));
}

#[test]
fn the_top_level_holds_only_what_the_design_names() {
    none(arrows::top_level(&Tree::read().top));
}

#[test]
fn foreign_systems_are_named_only_where_they_are_meant_to_be() {
    none(rust(&Tree::read()).flat_map(code::foreign_names));
}

#[test]
fn the_pod_never_uses_a_transaction_that_is_unsafe_to_drop() {
    none(rust(&Tree::read()).flat_map(code::droppable_transactions));
}

#[test]
fn files_and_functions_keep_below_their_ceilings() {
    none(rust(&Tree::read()).flat_map(code::ceilings));
}

#[test]
fn each_file_says_first_what_it_is_for() {
    none(rust(&Tree::read()).flat_map(code::first_lines));
}

#[test]
fn no_file_is_named_mod() {
    none(rust(&Tree::read()).flat_map(code::mod_files));
}

/// Invariant 7: no statement on shop data lacks `shop_id`; every tenant table's keys begin with it.
#[test]
fn inv7_no_statement_on_shop_data_lacks_shop_id() {
    let tree = Tree::read();
    let schema: Vec<&File> = tree
        .with_extension("sql")
        .filter(|file| file.path.starts_with("migrations/pod/"))
        .collect();
    assert!(!schema.is_empty(), "no migrations of the pod were found");
    let tables: BTreeSet<String> = schema
        .iter()
        .flat_map(|file| sql::tenant_tables(&file.text))
        .collect();
    assert!(
        tables.contains("shop_home") && tables.len() > 5,
        "tenant tables found: {tables:?}"
    );
    none(schema.iter().flat_map(|file| sql::keys(file)));
    // Tests look at all shops of a pod at once: that is how they see what leaked.
    let code = rust(&tree).filter(|file| !file.path.starts_with("tests/"));
    none(code.flat_map(|file| sql::statements(file, &tables)));
}

#[test]
fn no_statement_selects_a_star_or_pages_by_offset() {
    let tree = Tree::read();
    none(rust(&tree).flat_map(sql::stars_and_offsets));
}

#[test]
fn every_invariant_of_the_readme_is_named_by_a_test() {
    let tree = Tree::read();
    let readme = tree.text("README.md").unwrap_or_default();
    none(proof::invariants(&readme, &proof::tests(rust(&tree))));
}

#[test]
fn every_configuration_key_stands_in_the_readme() {
    let tree = Tree::read();
    let readme = tree.text("README.md").unwrap_or_default();
    none(config::READERS.into_iter().flat_map(|path| {
        let source = tree
            .text(path)
            .unwrap_or_else(|| panic!("{path} is not there"));
        config::missing(&readme, path, &source)
    }));
}
