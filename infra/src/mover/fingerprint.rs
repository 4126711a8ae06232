//! Fingerprints of rows, computed by the servers: what makes two rows the same, in SQL.
//!
//! A row becomes one string of bytes, and that a SHA-256; a chunk is the number of its rows and the exclusive or of
//! their digests. Digests of different rows of one table never cancel out, since a row's key is part of it and stands in
//! a table once.
//!
//! The string cannot be read in two ways: first which columns are null, then the others in order. Numbers and times are
//! their text, which has no comma; whatever may hold any byte has its length before it, or is a digest of its own, so
//! that no row comes near `max_allowed_packet`. Text is taken as the bytes that are stored, not as what they mean in a
//! collation: `a` and `A` differ, and so do `é` in two encodings. A `float` is taken as the double that it is, enum, set
//! and bit as their numbers, times as the session shows them (UTC).
//!
//! What cannot be seen: trailing spaces of a `char`, which MySQL itself does not show; and of JSON, whose stored bytes no
//! function gives, what leaves both the text and the size of a freshly written copy the same. That is a number that came
//! as signed on one side and as unsigned on the other, and a decimal of seven to nine digits that became a double of
//! the same text. Dates, times and binary strings within JSON are told from strings that look like them by that size.

use super::table::{Column, Kind, Table};

/// Longer values are hashed by themselves before the row is.
const INLINE_MAX: usize = 512;

/// The length of a digest.
pub(crate) const DIGEST_BYTES: usize = 32;

/// Bits of one number that says which columns are null.
const NULL_BITS: usize = 60;

/// How a column goes into the string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Its text, which has no comma.
    Plain,
    /// As a double, whose shortest text is exact.
    Double,
    /// As an unsigned number.
    Number,
    /// Its bytes after their number; at most some kilobytes.
    Bytes,
    /// Its bytes after their number, or the digest of them.
    Large,
    /// Text and size of a fresh copy.
    Json,
}

fn form(column: &Column) -> Form {
    match column.kind {
        Kind::Int { .. } | Kind::Decimal | Kind::Temporal => Form::Plain,
        Kind::Float | Kind::Double => Form::Double,
        Kind::Bit | Kind::Enum { .. } | Kind::Set => Form::Number,
        Kind::Char | Kind::Binary => Form::Bytes,
        // All of a row's short values together have at most 64 KiB: MySQL says so. Values beside the row have no such bound.
        Kind::Text | Kind::Bytes if column.data_type.starts_with("var") => Form::Bytes,
        Kind::Text | Kind::Bytes | Kind::Geometry | Kind::Vector => Form::Large,
        Kind::Json => Form::Json,
    }
}

/// The members of the string that stand for one column.
fn members(column: &Column) -> String {
    let name = &column.quoted;
    match form(column) {
        Form::Plain => name.clone(),
        Form::Double => format!("cast({name} as double)"),
        // `+ 0` makes a double of a set of 64 members.
        Form::Number => format!("cast({name} as unsigned)"),
        Form::Bytes => format!("length({name}),cast({name} as binary)"),
        Form::Large => format!(
            "length({name}),if(length({name})>{INLINE_MAX},unhex(sha2(cast({name} as binary),256)),cast({name} as binary))"
        ),
        Form::Json => format!("unhex(sha2({name},256)),json_storage_size(json_array({name}))"),
    }
}

/// Which of the columns are null, as numbers.
fn nulls(columns: &[Column]) -> Vec<String> {
    let nullable: Vec<&Column> = columns.iter().filter(|c| c.nullable).collect();
    let number = |some: &[&Column]| {
        let bits: Vec<String> = some
            .iter()
            .enumerate()
            .map(|(bit, column)| format!("isnull({})<<{bit}", column.quoted))
            .collect();
        bits.join("|")
    };
    nullable.chunks(NULL_BITS).map(number).collect()
}

/// The digest of a row: 32 bytes, null only if a server could not compute it.
pub(crate) fn row(table: &Table) -> String {
    let mut all = nulls(&table.columns);
    all.extend(table.columns.iter().map(members));
    digest(&all)
}

/// The digest of each column of a row, in order, to name those that differ.
pub(crate) fn columns(table: &Table) -> String {
    let of = |column: &Column| digest(&[format!("isnull({})", column.quoted), members(column)]);
    let all: Vec<String> = table.columns.iter().map(of).collect();
    all.join(", ")
}

fn digest(members: &[String]) -> String {
    format!("unhex(sha2(concat_ws(',',{}),256))", members.join(","))
}

/// Number of rows, and the exclusive or of their digests. A digest that is null must not go unseen, which is what the
/// function does with nulls: it becomes one that is never the same twice. (`left` since the function takes arguments that
/// are declared short only.)
pub(crate) fn of_rows(table: &Table) -> String {
    format!(
        "count(*), bit_xor(ifnull({},left(random_bytes({DIGEST_BYTES}),{DIGEST_BYTES})))",
        row(table)
    )
}
