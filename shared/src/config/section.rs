//! Reading the keys of one table.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use toml::Table;

use super::Fault;
use super::secret::{Secret, SecretRef};
use super::value::{Value, show};

/// What all sections of a file share.
#[derive(Debug)]
pub(super) struct Context {
    folder: PathBuf,
    faults: RefCell<Vec<Fault>>,
}

impl Context {
    pub(super) fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            faults: RefCell::default(),
        }
    }

    pub(super) fn into_faults(self) -> Vec<Fault> {
        self.faults.into_inner()
    }
}

/// One table of a configuration file. A method that gives `None` for a key that is there has noted a fault.
#[derive(Debug)]
pub struct Section<'a> {
    path: String,
    table: &'a Table,
    asked: BTreeSet<String>,
    context: &'a Context,
}

impl<'a> Section<'a> {
    pub(super) fn root(table: &'a Table, context: &'a Context) -> Self {
        Self::at(String::new(), table, context)
    }

    const fn at(path: String, table: &'a Table, context: &'a Context) -> Self {
        Self {
            path,
            table,
            asked: BTreeSet::new(),
            context,
        }
    }

    /// The keys that the table has: for tables whose keys are names of things.
    pub fn keys(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.table.keys().map(String::as_str)
    }

    /// The table as it is written, for a reader that hands it on to another file.
    pub const fn table(&self) -> &'a Table {
        self.table
    }

    /// Whether the key is there.
    pub fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Notes that a key breaks a rule that the reader knows.
    pub fn fault(&self, key: &str, text: impl Into<String>) {
        self.note(self.name(key), text.into());
    }

    fn note(&self, key: String, text: String) {
        self.context.faults.borrow_mut().push(Fault { key, text });
    }

    fn name(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    fn take(&mut self, key: &str) -> Option<&'a toml::Value> {
        self.asked.insert(key.to_owned());
        self.table.get(key)
    }

    fn missing<T>(&self, key: &str, expected: &str) -> Option<T> {
        self.fault(key, format!("missing; it is {expected}"));
        None
    }

    fn convert<V: Value>(&self, name: String, value: &toml::Value) -> Option<V> {
        let it = V::from_toml(value);
        if it.is_none() {
            self.note(name, format!("{} is not {}", show(value), V::EXPECTED));
        }
        it
    }

    /// A key that must be there.
    pub fn required<V: Value>(&mut self, key: &str) -> Option<V> {
        match self.take(key) {
            Some(value) => self.convert(self.name(key), value),
            None => self.missing(key, V::EXPECTED),
        }
    }

    /// A key that may be left out.
    pub fn optional<V: Value>(&mut self, key: &str) -> Option<V> {
        let value = self.take(key)?;
        self.convert(self.name(key), value)
    }

    /// A key with a default.
    pub fn or<V: Value>(&mut self, key: &str, default: V) -> V {
        self.optional(key).unwrap_or(default)
    }

    /// A key with a default and bounds.
    pub fn within<V>(&mut self, key: &str, default: V, bounds: RangeInclusive<V>) -> V
    where
        V: Value + PartialOrd,
    {
        let Some(value) = self.take(key) else {
            return default;
        };
        let Some(it) = self.convert::<V>(self.name(key), value) else {
            return default;
        };
        if !bounds.contains(&it) {
            let (low, high) = (bounds.start().show(), bounds.end().show());
            let text = format!("{} is not within {low} and {high}", show(value));
            self.fault(key, text);
        }
        it
    }

    /// One of some words.
    pub fn word<T: Copy>(&mut self, key: &str, default: T, words: &[(&str, T)]) -> T {
        let Some(value) = self.take(key) else {
            return default;
        };
        let found = words.iter().find(|(word, _)| value.as_str() == Some(word));
        found.map_or_else(
            || {
                let words: Vec<_> = words.iter().map(|(word, _)| *word).collect();
                let text = format!("{} is not one of {}", show(value), words.join(", "));
                self.fault(key, text);
                default
            },
            |(_, it)| *it,
        )
    }

    /// A text that must be there and is read by its type's `FromStr`, whose error says what would be right.
    pub fn parsed<T: FromStr<Err: Display>>(&mut self, key: &str) -> Option<T> {
        let text: String = self.required(key)?;
        self.parse_text(key, &text)
    }

    /// As [`Self::parsed`], for a key that may be left out.
    pub fn parsed_optional<T: FromStr<Err: Display>>(&mut self, key: &str) -> Option<T> {
        let text: String = self.optional(key)?;
        self.parse_text(key, &text)
    }

    fn parse_text<T: FromStr<Err: Display>>(&self, key: &str, text: &str) -> Option<T> {
        text.parse()
            .inspect_err(|error: &T::Err| self.fault(key, error.to_string()))
            .ok()
    }

    /// A list with at least one element that must be there.
    pub fn list<V: Value>(&mut self, key: &str) -> Option<Vec<V>> {
        if !self.has(key) {
            self.take(key);
            return self.missing(key, &format!("a list, each element {}", V::EXPECTED));
        }
        let list = self.list_or_empty(key)?;
        if list.is_empty() {
            self.fault(key, "empty; at least one is needed");
            return None;
        }
        Some(list)
    }

    /// A list; empty when it is left out. `None` only after a fault.
    pub fn list_or_empty<V: Value>(&mut self, key: &str) -> Option<Vec<V>> {
        let Some(value) = self.take(key) else {
            return Some(Vec::new());
        };
        let Some(values) = value.as_array() else {
            let text = format!(
                "{} is not a list, each element {}",
                show(value),
                V::EXPECTED
            );
            self.fault(key, text);
            return None;
        };
        // All elements are looked at before the first bad one ends it.
        let read: Vec<Option<V>> = values
            .iter()
            .enumerate()
            .map(|(index, value)| self.convert(format!("{}[{index}]", self.name(key)), value))
            .collect();
        read.into_iter().collect()
    }

    /// A path; a relative one starts at the folder of the file.
    pub fn path(&mut self, key: &str) -> Option<PathBuf> {
        let path: PathBuf = self.required(key)?;
        Some(self.context.folder.join(path))
    }

    /// As [`Self::path`], for a key that may be left out.
    pub fn optional_path(&mut self, key: &str) -> Option<PathBuf> {
        let path: PathBuf = self.optional(key)?;
        Some(self.context.folder.join(path))
    }

    /// A secret that must be there: `<key> = "file:PATH"`, `"env:NAME"` or `"command:PROGRAM ..."`, or
    /// `<key>_file = "PATH"`. It is read at once.
    pub fn secret(&mut self, key: &str) -> Option<Secret> {
        let file_key = format!("{key}_file");
        if !self.has(key) && !self.has(&file_key) {
            self.take(key);
            self.take(&file_key);
            let text = format!(
                "missing; it is \"file:PATH\", \"env:NAME\" or \"command:PROGRAM ...\", or {file_key} is a path"
            );
            self.fault(key, text);
            return None;
        }
        self.optional_secret(key)
    }

    /// As [`Self::secret`], for one that may be left out.
    pub fn optional_secret(&mut self, key: &str) -> Option<Secret> {
        let file_key = format!("{key}_file");
        let direct = self.take(key);
        let path = self.optional_path(&file_key);
        let (key, source) = match (direct, path) {
            (Some(_), Some(_)) => {
                self.fault(
                    key,
                    format!("{file_key} is there too; one of the two is enough"),
                );
                return None;
            }
            (None, path) => (file_key.as_str(), SecretRef::File(path?)),
            (Some(value), None) => {
                // The value is not repeated in the fault: it may be the secret itself.
                let reference = value.as_str().and_then(|text| text.parse().ok());
                let Some(reference) = reference else {
                    self.fault(
                        key,
                        "not a reference to a secret: \"file:PATH\", \"env:NAME\" or \"command:PROGRAM ...\"",
                    );
                    return None;
                };
                (key, self.resolve(reference))
            }
        };
        Secret::read(source)
            .inspect_err(|error| self.fault(key, crate::error::chain(error)))
            .ok()
    }

    fn resolve(&self, reference: SecretRef) -> SecretRef {
        match reference {
            SecretRef::File(ref path) => SecretRef::File(self.context.folder.join(path)),
            SecretRef::Env(_) | SecretRef::Command(_) => reference,
        }
    }

    /// A table; one that is left out is read as an empty one, so that defaults apply and missing keys are named.
    pub fn section<T>(&mut self, key: &str, read: impl FnOnce(&mut Section<'_>) -> T) -> T {
        let empty = Table::new();
        let table = match self.take(key) {
            None => &empty,
            Some(toml::Value::Table(table)) => table,
            Some(other) => {
                self.fault(key, format!("{} is not a table", show(other)));
                &empty
            }
        };
        let mut inner = Section::at(self.name(key), table, self.context);
        let it = read(&mut inner);
        inner.finish();
        it
    }

    /// A table that may be left out as a whole.
    pub fn optional_section<T>(
        &mut self,
        key: &str,
        read: impl FnOnce(&mut Section<'_>) -> Option<T>,
    ) -> Option<T> {
        if self.has(key) {
            self.section(key, read)
        } else {
            self.take(key);
            None
        }
    }

    /// A list of tables (`[[key]]`); empty when it is left out. `None` only after a fault.
    pub fn sections<T>(
        &mut self,
        key: &str,
        mut read: impl FnMut(&mut Section<'_>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let Some(value) = self.take(key) else {
            return Some(Vec::new());
        };
        let tables: Option<Vec<&Table>> = value
            .as_array()
            .and_then(|list| list.iter().map(toml::Value::as_table).collect());
        let Some(tables) = tables else {
            self.fault(key, format!("{} is not a list of tables", show(value)));
            return None;
        };
        let read: Vec<Option<T>> = tables
            .iter()
            .enumerate()
            .map(|(index, table)| {
                let path = format!("{}[{index}]", self.name(key));
                let mut inner = Section::at(path, table, self.context);
                let it = read(&mut inner);
                inner.finish();
                it
            })
            .collect();
        read.into_iter().collect()
    }

    /// Reports the keys that nobody asked for.
    pub(super) fn finish(self) {
        let known: Vec<_> = self.asked.iter().map(String::as_str).collect();
        for key in self.table.keys().filter(|key| !self.asked.contains(*key)) {
            self.fault(
                key,
                format!("unknown key; known here: {}", known.join(", ")),
            );
        }
    }
}
