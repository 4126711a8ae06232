//! What a statement in the binlog means for a mover.
//!
//! Rows come as row events; what comes as text begins and ends transactions, changes schemas, or changes rows in a way
//! that a mover cannot follow. Everything that is not known for harmless is not harmless.

use super::bytes::{Bytes, Read};

/// The number of a file, where its name stands in the statement, and what is done with doubles.
const LOAD_BYTES: usize = 13;

/// A statement, and the database it ran in.
#[derive(Debug)]
pub(super) struct Query<'a> {
    pub(super) database: &'a [u8],
    pub(super) text: &'a [u8],
}

impl<'a> Query<'a> {
    /// Takes the event's body apart.
    pub(super) fn parse(body: &'a [u8]) -> Read<Self> {
        Self::with(body, 0)
    }

    /// The same for a `LOAD DATA`, which says more about its file.
    pub(super) fn parse_load(body: &'a [u8]) -> Read<Self> {
        Self::with(body, LOAD_BYTES)
    }

    fn with(body: &'a [u8], more: usize) -> Read<Self> {
        let mut bytes = Bytes(body);
        let _session = bytes.u32()?;
        let _seconds = bytes.u32()?;
        let database = usize::from(bytes.u8()?);
        let _error = bytes.u16()?;
        let variables = usize::from(bytes.u16()?);
        bytes.take(more)?;
        bytes.take(variables)?;
        let database = bytes.take(database)?;
        bytes.take(1)?;
        Ok(Self {
            database,
            text: bytes.0,
        })
    }
}

/// What a statement means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Row events follow.
    Begin,
    /// The same, for a transaction in two steps, with its name.
    XaBegin(String),
    Commit,
    Rollback,
    /// The second step of the transaction of that name.
    XaCommit(String),
    /// It will never be.
    XaRollback(String),
    /// Nothing for a mover.
    Harmless,
    /// The tables are not what they were: what was done.
    Schema(String),
    /// Rows changed, and which ones the binlog does not say.
    Rows(String),
    /// Nobody knows.
    Unknown(String),
}

/// What a mover looks for.
pub(super) struct Look<'a> {
    /// The pod's database.
    pub(super) database: &'a str,
    /// Whether a name, in small letters, is that of a table whose rows belong to shops.
    pub(super) is_tenant: &'a dyn Fn(&str) -> bool,
}

/// Objects that can be made, changed and dropped without touching a row of a shop.
const ELSEWHERE: [&str; 17] = [
    "view",
    "procedure",
    "function",
    "event",
    "user",
    "role",
    "database",
    "schema",
    "server",
    "tablespace",
    "undo",
    "logfile",
    "resource",
    "spatial",
    "instance",
    "library",
    "masking",
];

/// Statements that change no row and no table.
const IDLE: [&str; 18] = [
    "savepoint",
    "release",
    "analyze",
    "optimize",
    "check",
    "checksum",
    "flush",
    "grant",
    "revoke",
    "set",
    "install",
    "uninstall",
    "cache",
    "reset",
    "purge",
    "kill",
    "use",
    "show",
];

/// Statements that change rows, or may by what they call.
const CHANGES: [&str; 14] = [
    "insert", "update", "delete", "replace", "load", "with", "select", "call", "do", "handler",
    "values", "table", "execute", "import",
];

/// The longest piece of a statement that is told.
const TOLD: usize = 120;

/// Finds out what a statement means.
pub(super) fn meaning(query: &Query<'_>, look: &Look<'_>) -> Meaning {
    let mut words = Words::new(query.text);
    let first = words.next().unwrap_or_default();
    let told = || told(query.text);
    match first.as_str() {
        "begin" => return Meaning::Begin,
        "commit" => return Meaning::Commit,
        "rollback" => {
            let to = words.take(2).any(|word| word == "to");
            return if to {
                Meaning::Harmless
            } else {
                Meaning::Rollback
            };
        }
        "xa" => return xa(&mut words, query.text),
        idle if IDLE.contains(&idle) => return Meaning::Harmless,
        _ => {}
    }
    let rest: Vec<String> = words.collect();
    let here = query
        .database
        .eq_ignore_ascii_case(look.database.as_bytes());
    let names = |what: &str| rest.iter().any(|word| word == what);
    let tenant = rest.iter().any(|word| (look.is_tenant)(word));
    let concerned = here || tenant || names(look.database);
    if !concerned {
        return Meaning::Harmless;
    }
    if CHANGES.contains(&first.as_str()) {
        return Meaning::Rows(told());
    }
    let schema = match first.as_str() {
        "create" => created(&rest, look),
        "alter" => match object(&rest) {
            // A new key, or a new name, can make a shop's table of any other.
            Some("table") => Some(tenant || names("shop_id") || names("rename")),
            other => elsewhere(other),
        },
        "drop" => match object(&rest) {
            Some("table" | "tables" | "index" | "trigger") => Some(tenant),
            Some("database" | "schema") => Some(names(look.database)),
            other => elsewhere(other),
        },
        "truncate" => Some(tenant),
        "rename" => Some(object(&rest) != Some("user")),
        "repair" => Some(tenant),
        _ => None,
    };
    match schema {
        Some(true) => Meaning::Schema(told()),
        Some(false) => Meaning::Harmless,
        None => Meaning::Unknown(told()),
    }
}

/// Whether what was created may be, or change, a shop's table.
fn created(words: &[String], look: &Look<'_>) -> Option<bool> {
    let temporary = words.iter().take(3).any(|word| word == "temporary");
    match object(words) {
        Some("table") if temporary => Some(false),
        Some("table") => {
            // Nothing is done where it is there already.
            let name = words.iter().skip_while(|w| *w != "exists").skip(1);
            let mut name = name.skip_while(|w| *w == look.database);
            if words.iter().any(|w| w == "if") && name.next().is_some_and(|n| (look.is_tenant)(n)) {
                return Some(false);
            }
            // A copy of another's columns may have a shop's key without naming it.
            let may = |word: &String| {
                ["shop_id", "like", "select", "as"].contains(&word.as_str())
                    || (look.is_tenant)(word)
            };
            Some(words.iter().any(may))
        }
        Some("index" | "trigger") => Some(words.iter().any(|w| (look.is_tenant)(w))),
        other => elsewhere(other),
    }
}

fn elsewhere(object: Option<&str>) -> Option<bool> {
    object.and_then(|o| ELSEWHERE.contains(&o).then_some(false))
}

/// The kind of thing that is made, changed or dropped: the first word that names one.
fn object(words: &[String]) -> Option<&str> {
    let known = |word: &&str| {
        ["table", "tables", "index", "trigger"].contains(word) || ELSEWHERE.contains(word)
    };
    words.iter().map(String::as_str).find(known)
}

fn xa(words: &mut Words<'_>, text: &[u8]) -> Meaning {
    let verb = words.next().unwrap_or_default();
    // The name as it is written: the server writes it the same way each time.
    let name = String::from_utf8_lossy(words.left).trim().to_owned();
    match verb.as_str() {
        "start" | "begin" => Meaning::XaBegin(name),
        "end" => Meaning::Harmless,
        "commit" => Meaning::XaCommit(name),
        "rollback" => Meaning::XaRollback(name),
        _ => Meaning::Unknown(told(text)),
    }
}

/// The beginning of a statement, in one line, for an operator. It ends before the first text: values belong to merchants, and
/// where a text ends depends on the session's mode.
pub(super) fn told(text: &[u8]) -> String {
    let mut words = Words::new(text);
    words.until_text = true;
    let words: Vec<String> = words.take(8).collect();
    words.join(" ").chars().take(TOLD).collect()
}

/// Words and quoted names of a statement in small letters, without text, numbers, comments and signs.
struct Words<'a> {
    left: &'a [u8],
    /// Whether a text ends them, in double quotes too, which may hold a name.
    until_text: bool,
}

impl<'a> Words<'a> {
    fn new(text: &'a [u8]) -> Self {
        Self {
            left: text,
            until_text: false,
        }
    }

    fn skip(&mut self, n: usize) {
        self.left = self.left.get(n..).unwrap_or_default();
    }

    /// Goes past `end`, or to the end.
    fn skip_past(&mut self, end: &[u8]) {
        let at = self.left.windows(end.len()).position(|w| w == end);
        self.skip(at.map_or(self.left.len(), |at| at + end.len()));
    }

    /// What is between two equal quotes; a doubled one, or one after a backslash where those count, is part of it.
    fn quoted(&mut self, quote: u8) -> Vec<u8> {
        let mut inside = Vec::new();
        self.skip(1);
        while let Some((&byte, rest)) = self.left.split_first() {
            self.left = rest;
            match byte {
                b if b == quote && rest.first() == Some(&quote) => {
                    inside.push(quote);
                    self.skip(1);
                }
                b if b == quote => break,
                b'\\' if quote != b'`' => self.skip(1),
                other => inside.push(other),
            }
        }
        inside
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80
}

fn small(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).to_lowercase()
}

impl Iterator for Words<'_> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        loop {
            match self.left {
                [] => return None,
                [b'\'' | b'"', ..] if self.until_text => return None,
                // What a comment of this kind holds is done.
                [b'/', b'*', b'!', rest @ ..] => {
                    let version = rest.iter().take_while(|b| b.is_ascii_digit()).count();
                    self.skip(3 + version);
                }
                [b'/', b'*', ..] => {
                    self.skip(2);
                    self.skip_past(b"*/");
                }
                [b'#', ..] | [b'-', b'-', b' ' | b'\t' | b'\n', ..] => self.skip_past(b"\n"),
                [b'`', ..] => return Some(small(&self.quoted(b'`'))),
                // A name where the session's mode says so; a text that looks like one does no harm.
                [b'"', ..] => return Some(small(&self.quoted(b'"'))),
                [b'\'', ..] => drop(self.quoted(b'\'')),
                [first, ..] if is_word(*first) => {
                    let length = self.left.iter().take_while(|b| is_word(**b)).count();
                    let word = self.left.get(..length).map(small);
                    self.skip(length);
                    // Numbers are no words.
                    if !first.is_ascii_digit() {
                        return word;
                    }
                }
                [_, ..] => self.skip(1),
            }
        }
    }
}

#[cfg(test)]
mod tests;
