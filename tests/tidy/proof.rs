//! Invariants of the README and the tests that show them.

use std::collections::BTreeSet;

use regex::Regex;
use syn::visit::{self, Visit};

use crate::tree::File;

struct Names(BTreeSet<String>);

impl<'ast> Visit<'ast> for Names {
    fn visit_item_fn(&mut self, it: &'ast syn::ItemFn) {
        self.0.insert(it.sig.ident.to_string());
        visit::visit_item_fn(self, it);
    }
}

/// Names of functions that may be tests: all of `tests/`, whose list is its own, and `#[test]`s beside the code.
pub(crate) fn tests<'a>(files: impl Iterator<Item = &'a File>) -> BTreeSet<String> {
    let mut names = Names(BTreeSet::new());
    for file in files {
        let Ok(parsed) = syn::parse_file(&file.text) else {
            continue;
        };
        names.visit_file(&parsed);
    }
    names.0
}

/// The invariants that the README numbers under its heading: number and text.
fn numbered(readme: &str) -> Vec<(usize, String)> {
    let start = Regex::new(r"^(\d+)\.\s").unwrap();
    let mut found: Vec<(usize, String)> = Vec::new();
    let section = readme
        .lines()
        .skip_while(|line| !line.to_lowercase().starts_with("## invariants"))
        .skip(1);
    for line in section.take_while(|line| !line.starts_with("## ")) {
        if let Some(number) = start.captures(line) {
            found.push((number[1].parse().unwrap(), line.to_owned()));
        } else if let Some((_, text)) = found.last_mut() {
            text.push('\n');
            text.push_str(line);
        }
    }
    found
}

/// The design has eleven.
const INVARIANTS: usize = 11;

/// Whether a test is named after an invariant (`inv3_...`, or `inv3_inv4_...` after two).
fn names(test: &str, number: usize) -> bool {
    let mut parts = test.split('_').take_while(|part| part.starts_with("inv"));
    parts.any(|part| part == format!("inv{number}"))
}

/// Invariants that are not in the README, that no test is named after, or whose line names a test that does not exist, or
/// none.
pub(crate) fn invariants(readme: &str, tests: &BTreeSet<String>) -> Vec<String> {
    let named = Regex::new(r"`(\w+)`").unwrap();
    let mut breaches = Vec::new();
    let found = numbered(readme);
    let numbers: Vec<usize> = found.iter().map(|(number, _)| *number).collect();
    if numbers != (1..=INVARIANTS).collect::<Vec<_>>() {
        breaches.push(format!(
            "README.md: the invariants are numbered {numbers:?}, not 1 to {INVARIANTS}"
        ));
    }
    for (number, text) in found {
        if !tests.iter().any(|test| names(test, number)) {
            breaches.push(format!(
                "invariant {number}: no test is named inv{number}_..."
            ));
        }
        let listed: Vec<&str> = named
            .captures_iter(&text)
            .filter_map(|c| c.get(1).map(|m| m.as_str()))
            .filter(|name| name.starts_with("inv"))
            .collect();
        if listed.is_empty() {
            breaches.push(format!("README.md: invariant {number} names no test"));
        }
        for test in listed.iter().filter(|test| !tests.contains(**test)) {
            breaches.push(format!(
                "README.md: invariant {number} names {test}, which does not exist"
            ));
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readme(change: impl Fn(usize) -> Option<String>) -> String {
        let line =
            |n| change(n).unwrap_or_else(|| format!("{n}. A rule.\n   Test: `inv{n}_holds`\n"));
        let lines: String = (1..=INVARIANTS).map(line).collect();
        format!("# X\n1. not this\n## Invariants\n\n{lines}\n## Next\n1. nor this\n")
    }

    fn all() -> BTreeSet<String> {
        (1..=INVARIANTS).map(|n| format!("inv{n}_holds")).collect()
    }

    #[test]
    fn gaps_between_readme_and_tests_are_found() {
        assert_eq!(invariants(&readme(|_| None), &all()), Vec::<String>::new());
        let mut fewer = all();
        fewer.remove("inv1_holds");
        assert_eq!(
            invariants(&readme(|_| None), &fewer).len(),
            2,
            "inv11_holds is not of 1"
        );
        let unnamed = readme(|n| (n == 3).then(|| "3. A rule.\n".into()));
        assert_eq!(invariants(&unnamed, &all()).len(), 1);
        let wrong = readme(|n| (n == 3).then(|| "3. A rule: `inv3_hold`\n".into()));
        assert_eq!(invariants(&wrong, &all()).len(), 1);
        let missing = readme(|n| (n == 11).then(String::new));
        assert_eq!(invariants(&missing, &all()).len(), 1);
        assert_eq!(invariants("", &all()).len(), 1);
    }

    #[test]
    fn a_test_can_be_named_after_two() {
        assert!(names("inv3_inv4_holds", 3) && names("inv3_inv4_holds", 4));
        assert!(!names("inv3_inv4_holds", 1) && !names("a_inv3_holds", 3) && !names("inv33_x", 3));
    }

    #[test]
    fn functions_are_found_wherever_they_stand() {
        let file = File::new(
            "x.rs",
            "fn inv1_a() {}\nmod tests { #[test] fn inv2_b() {} }",
        );
        let names = tests([&file].into_iter());
        assert_eq!(names, ["inv1_a", "inv2_b"].map(str::to_owned).into());
    }
}
