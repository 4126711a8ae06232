//! Keys of rows, exactly, and the predicates that page by them.
//!
//! A key is what the primary key holds after `shop_id`. Order and equality are the server's: text compares by the
//! column's collation, so two keys that differ here can be one there. Whoever removes or compares rows by keys asks the
//! server for them. Rows are paged by "after this key" and never by a count of rows to skip.

use std::fmt::Write as _;

use mysql_async::Row;
use shared::ShopId;

use super::{Column, Kind, Table};
use crate::mover::session::{bytes, literal};

/// An ENUM with more members than this is compared by number, which is exact but reads the shop's rows from the first.
const MEMBERS_LISTED: u32 = 512;

/// One part of a key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum KeyPart {
    /// A number without sign; BIT, ENUM, SET and YEAR by number too.
    Unsigned(u64),
    /// A number with sign.
    Signed(i64),
    /// The bytes of text or bytes (CHAR without the spaces at its end, BINARY at its full length); the server's own text
    /// of a decimal number, a date or a time.
    Bytes(Vec<u8>),
}

/// A key: the values of the primary key after `shop_id`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key(pub(crate) Box<[KeyPart]>);

/// The bytes are no key of that table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotAKey;

impl Key {
    /// The key in a row that was read by [`Table::select_list`].
    pub(crate) fn of_row(table: &Table, positions: &[usize], row: &Row) -> Result<Self, NotAKey> {
        let parts = table.key_columns().zip(positions);
        let parts = parts.map(|(column, at)| part(column, bytes(row, *at).ok_or(NotAKey)?));
        parts.collect::<Result<_, _>>().map(Self)
    }

    /// The key in a row that was read by [`Table::key_list`].
    pub(crate) fn of_key_row(table: &Table, row: &Row) -> Result<Self, NotAKey> {
        let positions: Vec<usize> = (0..table.key.len() - 1).collect();
        Self::of_row(table, &positions, row)
    }

    /// As bytes, for the mark and for files.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for part in &*self.0 {
            match part {
                KeyPart::Unsigned(n) => {
                    out.push(b'u');
                    out.extend_from_slice(&n.to_be_bytes());
                }
                KeyPart::Signed(n) => {
                    out.push(b's');
                    out.extend_from_slice(&n.to_be_bytes());
                }
                KeyPart::Bytes(bytes) => {
                    out.push(b'b');
                    out.extend_from_slice(&(bytes.len() as u64).to_be_bytes());
                    out.extend_from_slice(bytes);
                }
            }
        }
        out
    }

    /// Reads [`Self::to_bytes`].
    pub(crate) fn from_bytes(mut bytes: &[u8]) -> Result<Self, NotAKey> {
        let mut parts = Vec::new();
        while let Some((tag, rest)) = bytes.split_first() {
            let (number, rest) = rest.split_first_chunk::<8>().ok_or(NotAKey)?;
            let number = u64::from_be_bytes(*number);
            bytes = rest;
            parts.push(match tag {
                b'u' => KeyPart::Unsigned(number),
                b's' => KeyPart::Signed(number.cast_signed()),
                b'b' => {
                    let length = usize::try_from(number).map_err(|_| NotAKey)?;
                    let (value, rest) = bytes.split_at_checked(length).ok_or(NotAKey)?;
                    bytes = rest;
                    KeyPart::Bytes(value.to_vec())
                }
                _ => return Err(NotAKey),
            });
        }
        Ok(Self(parts.into()))
    }

    /// How much memory it takes, roughly.
    pub(crate) fn weight(&self) -> usize {
        let part = |part: &KeyPart| match part {
            KeyPart::Unsigned(_) | KeyPart::Signed(_) => 32,
            KeyPart::Bytes(bytes) => 32 + bytes.len(),
        };
        16 + self.0.iter().map(part).sum::<usize>()
    }
}

/// As an operator reads it: `(7, 'abc', x'00FF')`.
impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(")?;
        for (index, part) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            match part {
                KeyPart::Unsigned(n) => write!(f, "{n}")?,
                KeyPart::Signed(n) => write!(f, "{n}")?,
                KeyPart::Bytes(bytes) => match std::str::from_utf8(bytes) {
                    Ok(text) if !text.chars().any(char::is_control) => write!(f, "'{text}'")?,
                    _ => f.write_str(&literal(bytes))?,
                },
            }
        }
        f.write_str(")")
    }
}

fn part(column: &Column, value: &[u8]) -> Result<KeyPart, NotAKey> {
    fn parsed<T: std::str::FromStr>(value: &[u8]) -> Result<T, NotAKey> {
        let text = std::str::from_utf8(value).map_err(|_| NotAKey)?;
        text.parse().map_err(|_| NotAKey)
    }
    Ok(match column.kind {
        Kind::Int { unsigned: true } | Kind::Enum { .. } | Kind::Set => {
            KeyPart::Unsigned(parsed(value)?)
        }
        Kind::Int { unsigned: false } => KeyPart::Signed(parsed(value)?),
        Kind::Bit => KeyPart::Unsigned(
            value
                .iter()
                .fold(0, |number, byte| (number << 8) | u64::from(*byte)),
        ),
        Kind::Decimal
        | Kind::Float
        | Kind::Double
        | Kind::Temporal
        | Kind::Char
        | Kind::Text
        | Kind::Binary
        | Kind::Bytes
        | Kind::Json
        | Kind::Geometry
        | Kind::Vector => KeyPart::Bytes(value.to_vec()),
    })
}

/// A part as SQL that compares as the column does.
fn constant(column: &Column, part: &KeyPart) -> String {
    match part {
        KeyPart::Unsigned(n) => n.to_string(),
        KeyPart::Signed(n) => n.to_string(),
        KeyPart::Bytes(bytes) => match column.kind {
            // The server's own text: digits and `-:. ` only, or it is sent as bytes and compares as nothing.
            Kind::Decimal | Kind::Temporal
                if bytes
                    .iter()
                    .all(|b| b.is_ascii_digit() || b"-:. ".contains(b)) =>
            {
                let text = String::from_utf8_lossy(bytes);
                if column.kind == Kind::Decimal {
                    text.into_owned()
                } else {
                    format!("'{text}'")
                }
            }
            // A charset named makes it text; the column's collation wins over that of a constant.
            Kind::Char | Kind::Text => format!(
                "_{} {}",
                column.charset.as_deref().unwrap_or("binary"),
                literal(bytes)
            ),
            Kind::Int { .. }
            | Kind::Decimal
            | Kind::Float
            | Kind::Double
            | Kind::Bit
            | Kind::Temporal
            | Kind::Binary
            | Kind::Bytes
            | Kind::Enum { .. }
            | Kind::Set
            | Kind::Json
            | Kind::Geometry
            | Kind::Vector => literal(bytes),
        },
    }
}

/// Which side of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Above,
    Below,
}

/// `column > value` or `column < value`, so that the server uses the key for it. An ENUM compares by its text as soon as
/// the other side is text, and by number it uses no key for "greater"; a list of the numbers is both right and quick.
fn beside(column: &Column, part: &KeyPart, side: Side) -> String {
    let name = &column.quoted;
    if let (Kind::Enum { members }, KeyPart::Unsigned(number)) = (column.kind, part)
        && members <= MEMBERS_LISTED
    {
        let number = u32::try_from(*number).unwrap_or(u32::MAX);
        let others = match side {
            Side::Above => number.saturating_add(1)..members.saturating_add(1),
            Side::Below => 0..number.min(members.saturating_add(1)),
        };
        let list: Vec<String> = others.map(|n| n.to_string()).collect();
        if list.is_empty() {
            return "false".into();
        }
        return format!("{name} in ({})", list.join(","));
    }
    let sign = match side {
        Side::Above => '>',
        Side::Below => '<',
    };
    format!("{name} {sign} {}", constant(column, part))
}

impl Table {
    /// The key's order: as the table holds its rows.
    pub(crate) fn order_by(&self) -> String {
        let parts = self.key.iter().zip(&self.falling).map(|(at, falling)| {
            let direction = if *falling { " desc" } else { "" };
            format!("{}{direction}", self.columns[*at].quoted)
        });
        parts.collect::<Vec<_>>().join(", ")
    }

    /// The rows of the shop after one key (not that key itself) up to another (that one too).
    pub(crate) fn key_range(
        &self,
        shop: ShopId,
        after: Option<&Key>,
        upto: Option<&Key>,
    ) -> String {
        let mut sql = format!("shop_id = {shop}");
        if let Some(key) = after {
            let _ = write!(sql, " and {}", self.ordered(key, Side::Above, false));
        }
        if let Some(key) = upto {
            let _ = write!(sql, " and {}", self.ordered(key, Side::Below, true));
        }
        sql
    }

    /// The rows of the shop that have one of these keys. Never all rows: no key, no row.
    pub(crate) fn keys_in<'a>(
        &self,
        shop: ShopId,
        keys: impl IntoIterator<Item = &'a Key>,
    ) -> String {
        let columns: Vec<&Column> = self.key_columns().collect();
        let mut choices: Vec<String> = Vec::new();
        let constants = |key: &Key| -> Vec<String> {
            let parts = columns.iter().zip(&*key.0);
            parts.map(|(column, part)| constant(column, part)).collect()
        };
        // A list of rows with an ENUM in it would compare the text, and one with a time as well.
        let plain = |column: &&Column| {
            matches!(
                column.kind,
                Kind::Int { .. } | Kind::Char | Kind::Text | Kind::Binary | Kind::Bytes
            )
        };
        let one_by_one = !columns.iter().all(plain);
        for key in keys {
            let values = constants(key);
            choices.push(match values.as_slice() {
                [] => "1".into(),
                [one] => one.clone(),
                _ if one_by_one => {
                    let parts = columns.iter().zip(&values);
                    let parts = parts.map(|(column, value)| format!("{} = {value}", column.quoted));
                    format!("({})", parts.collect::<Vec<_>>().join(" and "))
                }
                several => format!("({})", several.join(",")),
            });
        }
        if choices.is_empty() {
            return format!("shop_id = {shop} and false");
        }
        let names: Vec<&str> = columns.iter().map(|c| c.quoted.as_str()).collect();
        match names.as_slice() {
            [] => format!("shop_id = {shop}"),
            [one] => format!("shop_id = {shop} and {one} in ({})", choices.join(",")),
            _ if one_by_one => format!("shop_id = {shop} and ({})", choices.join(" or ")),
            several => format!(
                "shop_id = {shop} and ({}) in ({})",
                several.join(", "),
                choices.join(",")
            ),
        }
    }

    /// `(a > x or (a = x and (b > y)))`: the form that the server's range search understands.
    fn ordered(&self, key: &Key, side: Side, inclusive: bool) -> String {
        let falling = self.falling.iter().skip(1);
        let parts: Vec<_> = self.key_columns().zip(&*key.0).zip(falling).collect();
        let mut sql = if inclusive { "true" } else { "false" }.to_owned();
        for (index, ((column, part), falling)) in parts.iter().enumerate().rev() {
            let side = match (side, falling) {
                (Side::Above, false) | (Side::Below, true) => Side::Above,
                (Side::Below, false) | (Side::Above, true) => Side::Below,
            };
            let strict = beside(column, part, side);
            let equal = format!("{} = {}", column.quoted, constant(column, part));
            sql = match (index + 1 == parts.len(), inclusive) {
                (true, false) => strict,
                (true, true) => format!("({strict} or {equal})"),
                (false, _) => format!("({strict} or ({equal} and {sql}))"),
            };
        }
        sql
    }
}
