//! A table's definition in a form that can be compared: two pods must agree on it before a shop's rows are carried over,
//! and it must stay what it was while they are.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

/// What a table is made of: columns, primary and unique keys, checks, foreign keys, each by its name. Indexes that are
/// not unique are left out: they change no row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Shape(pub(super) BTreeMap<String, String>);

impl Shape {
    pub(super) fn put(&mut self, name: String, definition: String) {
        self.0.insert(name, definition);
    }

    /// What differs, each as a sentence about one thing of the table.
    pub(crate) fn differences(&self, other: &Self, here: &str, there: &str) -> Vec<String> {
        let names: std::collections::BTreeSet<&String> =
            self.0.keys().chain(other.0.keys()).collect();
        let mut found = Vec::new();
        for name in names {
            match (self.0.get(name), other.0.get(name)) {
                (Some(a), Some(b)) if a != b => {
                    found.push(format!("{name} is `{a}` at {here} and `{b}` at {there}"));
                }
                (Some(_), None) => found.push(format!("{name} is missing at {there}")),
                (None, Some(_)) => found.push(format!("{name} is missing at {here}")),
                (Some(_), Some(_)) | (None, None) => {}
            }
        }
        found
    }

    /// SHA-256 of all of it, in hex.
    pub(super) fn fingerprint(&self) -> String {
        let mut hash = Sha256::new();
        for (name, definition) in &self.0 {
            for part in [name, definition] {
                hash.update((part.len() as u64).to_be_bytes());
                hash.update(part);
            }
        }
        let digest = hash.finalize();
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_named_with_both_sides() {
        let shape = |entries: &[(&str, &str)]| {
            let pairs = entries.iter().map(|(a, b)| ((*a).into(), (*b).into()));
            Shape(pairs.collect())
        };
        let a = shape(&[("column a", "int"), ("column b", "int")]);
        let b = shape(&[("column a", "bigint"), ("key k", "a")]);
        assert_eq!(
            a.differences(&b, "pod 1", "pod 2"),
            [
                "column a is `int` at pod 1 and `bigint` at pod 2",
                "column b is missing at pod 2",
                "key k is missing at pod 1",
            ]
        );
        assert!(a.differences(&a, "x", "y").is_empty());
        assert_ne!(a.fingerprint(), b.fingerprint());
    }
}
