//! The tables of a shop, as the servers describe them, and how their values travel without changing.
//!
//! Nothing is listed in code: every table of the pod's database whose primary key begins with `shop_id` is the shop's,
//! unless `table_kind` says otherwise. What cannot be moved exactly is named with its table, column and reason.
//!
//! A value is read as the bytes that the column holds, and written again as those bytes, by `load data local infile`
//! with `character set binary`. Where the text of a value is not the value it travels in another form: FLOAT as the
//! double that it is, ENUM and SET by number (two members, or none, can have the same text), JSON with its charset
//! named. Generated columns are not written; they come out of the others, and verification compares them.

use std::fmt::Write as _;

use super::session::quoted;

// Reads tables from the server's own description.
mod discover;
// Whether JSON survives as text.
mod json;
// Keys of rows, and predicates on them.
mod key;
// Reads rows at one side and loads them at the other.
mod rows;
// Two descriptions compared.
mod shape;

pub(crate) use discover::{Survey, discover, survey, unchanged};
pub(crate) use json::{json_questions, json_refusal};
pub(crate) use key::{Key, KeyPart};
pub(crate) use rows::{Limit, Rows, load, read};
pub(crate) use shape::Shape;

/// What kind of value a column holds, as far as moving it asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// A whole number of any size; `year` too.
    Int {
        /// Without sign.
        unsigned: bool,
    },
    /// A decimal number: its text is the value.
    Decimal,
    /// A float of four bytes: its text is not the value.
    Float,
    /// A float of eight bytes: its text is read back as the same.
    Double,
    /// Up to 64 bits, highest first.
    Bit,
    /// A date, or a time, or both: the text is the value, with the session at UTC.
    Temporal,
    /// Text of fixed length: without the spaces at its end.
    Char,
    /// Other text.
    Text,
    /// Bytes of fixed length.
    Binary,
    /// Other bytes.
    Bytes,
    /// One of a list: by number.
    Enum {
        /// How many there are.
        members: u32,
    },
    /// Some of a list: by number.
    Set,
    /// A document.
    Json,
    /// A shape: the server's own bytes.
    Geometry,
    /// Floats in a row: the server's own bytes.
    Vector,
}

/// A column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    /// The name.
    pub(crate) name: String,
    /// The same in backticks.
    pub(crate) quoted: String,
    /// What it holds.
    pub(crate) kind: Kind,
    /// The server's word for the type, `varchar`.
    pub(crate) data_type: String,
    /// The charset of text.
    pub(crate) charset: Option<String>,
    /// The digits of a float that has a fixed number of them: in all, and behind the point.
    pub(crate) digits: Option<(u32, u32)>,
    /// Whether it may be NULL.
    pub(crate) nullable: bool,
    /// Computed from others, and so never written.
    pub(crate) generated: bool,
}

impl Column {
    /// The expression by which a value is read exactly.
    pub(crate) fn read(&self) -> String {
        match self.kind {
            Kind::Float => self.within(&format!("cast({} as double)", self.quoted)),
            Kind::Enum { .. } | Kind::Set => format!("cast({} as unsigned)", self.quoted),
            Kind::Int { .. }
            | Kind::Decimal
            | Kind::Double
            | Kind::Bit
            | Kind::Temporal
            | Kind::Char
            | Kind::Text
            | Kind::Binary
            | Kind::Bytes
            | Kind::Json
            | Kind::Geometry
            | Kind::Vector => self.quoted.clone(),
        }
    }

    /// A float of so many digits can be a little more than the digits allow: the nearest float to 9999999.999 is ten
    /// million. The largest number allowed is stored as that float again.
    fn within(&self, value: &str) -> String {
        match self.digits {
            None => value.to_owned(),
            Some((all, behind)) => {
                let nines = |n: u32| "9".repeat(usize::try_from(n).unwrap_or(0));
                let whole = nines(all.saturating_sub(behind));
                let most = format!("0{whole}.{}0e0", nines(behind));
                format!("least(greatest({value}, -{most}), {most})")
            }
        }
    }

    /// How the value of a variable is stored, where the plain text will not do.
    fn store(&self, variable: &str) -> Option<String> {
        match self.kind {
            Kind::Enum { .. } | Kind::Set => Some(format!("cast({variable} as unsigned)")),
            Kind::Json => Some(format!("convert({variable} using utf8mb4)")),
            Kind::Int { .. }
            | Kind::Decimal
            | Kind::Float
            | Kind::Double
            | Kind::Bit
            | Kind::Temporal
            | Kind::Char
            | Kind::Text
            | Kind::Binary
            | Kind::Bytes
            | Kind::Geometry
            | Kind::Vector => None,
        }
    }
}

/// A table of the shop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Table {
    /// The name.
    pub(crate) name: String,
    /// The same in backticks.
    pub(crate) quoted: String,
    /// All columns in the table's order.
    pub(crate) columns: Vec<Column>,
    /// The columns of the primary key; the first is `shop_id`.
    pub(crate) key: Vec<usize>,
    /// Which of them the key holds in falling order.
    pub(crate) falling: Vec<bool>,
    /// Average bytes of a row by the table's statistics.
    pub(crate) row_bytes: u64,
    /// The definition, for comparing.
    pub(crate) shape: Shape,
}

impl Table {
    /// The columns of the key after `shop_id`.
    pub(crate) fn key_columns(&self) -> impl Iterator<Item = &Column> {
        self.key.iter().skip(1).map(|at| &self.columns[*at])
    }

    /// What is written, in the table's order.
    pub(crate) fn written(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().filter(|column| !column.generated)
    }

    /// Where the key's parts (after `shop_id`) stand in [`Self::select_list`].
    pub(crate) fn key_positions(&self) -> Vec<usize> {
        let mut behind = self.written().count();
        let mut positions = Vec::with_capacity(self.key.len());
        for column in self.key_columns() {
            let written = self.written().position(|other| other.name == column.name);
            positions.push(written.unwrap_or_else(|| {
                behind += 1;
                behind - 1
            }));
        }
        positions
    }

    /// What is read: the written columns, and those of the key that are generated behind them.
    pub(crate) fn select_list(&self) -> String {
        let generated = self.key_columns().filter(|column| column.generated);
        let all = self.written().chain(generated);
        all.map(Column::read).collect::<Vec<_>>().join(", ")
    }

    /// The key's parts after `shop_id`, as they are read; `1` where there are none.
    pub(crate) fn key_list(&self) -> String {
        let parts: Vec<String> = self.key_columns().map(Column::read).collect();
        if parts.is_empty() {
            return "1".into();
        }
        parts.join(", ")
    }

    /// `from`, by the primary key alone: another index would give another order.
    pub(crate) fn by_key(&self) -> String {
        format!("from {} force index (primary)", self.quoted)
    }

    /// The statement that writes rows in the form of [`Rows`]; each takes the place of the row with its key.
    pub(crate) fn load_statement(&self) -> String {
        let mut names = Vec::new();
        let mut sets = Vec::new();
        for (at, column) in self.written().enumerate() {
            let variable = format!("@v{at}");
            match column.store(&variable) {
                Some(expression) => {
                    sets.push(format!("{} = {expression}", column.quoted));
                    names.push(variable);
                }
                None => names.push(column.quoted.clone()),
            }
        }
        let mut sql = format!(
            "load data local infile 'rows' replace into table {} character set binary \
             fields terminated by '\\t' escaped by '\\\\' lines terminated by '\\n' ({})",
            self.quoted,
            names.join(", ")
        );
        if !sets.is_empty() {
            let _ = write!(sql, " set {}", sets.join(", "));
        }
        sql
    }

    /// A short text that is another one whenever the definition is.
    pub(crate) fn fingerprint_of_schema(&self) -> String {
        self.shape.fingerprint()
    }
}

/// A table's name from the catalog of the server, quoted.
fn named(name: &str) -> (String, String) {
    (name.to_owned(), quoted(name))
}

#[cfg(test)]
mod tests;
