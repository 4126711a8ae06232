//! What the binlog says of a table before its rows: the columns' types, and how long each value is.

use super::bytes::{Bytes, Read, bit};
use crate::mover::table::{Kind as Value, Table};

/// A column's type as the binlog has it, with what is needed to know a value's length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// So many bytes, the least significant first.
    Integer(usize),
    /// The server's years begin at 1901.
    Year,
    Float,
    Double,
    Decimal {
        precision: u8,
        scale: u8,
    },
    Date,
    /// With so many digits of a second.
    Time(u8),
    Datetime(u8),
    Timestamp(u8),
    /// So many bits.
    Bit(usize),
    /// An index of so many bytes.
    Enum(usize),
    Set(usize),
    /// Of fixed length, kept without its end; the full length in bytes, and how many say how long a value is.
    Char(usize, usize),
    /// How many bytes say how long a value is.
    Varchar(usize),
    /// Text, bytes, JSON, shapes, vectors: how many bytes say how long a value is.
    Blob(usize),
    /// Of before 5.6, as an upgraded table may still have it: so many bytes.
    Old(usize),
}

/// Numbers of the types, as the server's sources name them.
mod code {
    pub(super) const TINY: u8 = 1;
    pub(super) const SHORT: u8 = 2;
    pub(super) const LONG: u8 = 3;
    pub(super) const FLOAT: u8 = 4;
    pub(super) const DOUBLE: u8 = 5;
    pub(super) const TIMESTAMP: u8 = 7;
    pub(super) const LONGLONG: u8 = 8;
    pub(super) const INT24: u8 = 9;
    pub(super) const DATE: u8 = 10;
    pub(super) const TIME: u8 = 11;
    pub(super) const DATETIME: u8 = 12;
    pub(super) const YEAR: u8 = 13;
    pub(super) const NEWDATE: u8 = 14;
    pub(super) const VARCHAR: u8 = 15;
    pub(super) const BIT: u8 = 16;
    pub(super) const TIMESTAMP2: u8 = 17;
    pub(super) const DATETIME2: u8 = 18;
    pub(super) const TIME2: u8 = 19;
    pub(super) const VECTOR: u8 = 242;
    pub(super) const JSON: u8 = 245;
    pub(super) const NEWDECIMAL: u8 = 246;
    pub(super) const ENUM: u8 = 247;
    pub(super) const SET: u8 = 248;
    pub(super) const TINY_BLOB: u8 = 249;
    pub(super) const MEDIUM_BLOB: u8 = 250;
    pub(super) const LONG_BLOB: u8 = 251;
    pub(super) const BLOB: u8 = 252;
    pub(super) const VAR_STRING: u8 = 253;
    pub(super) const STRING: u8 = 254;
    pub(super) const GEOMETRY: u8 = 255;
}

/// A column as the binlog describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) kind: Kind,
    pub(super) json: bool,
}

/// Which table, and where the rest of its description begins.
pub(super) struct Named<'a> {
    pub(super) id: u64,
    pub(super) database: &'a [u8],
    pub(super) table: &'a [u8],
    rest: Bytes<'a>,
}

impl<'a> Named<'a> {
    /// Reads the beginning: most tables of a server are not looked for.
    pub(super) fn parse(body: &'a [u8]) -> Read<Self> {
        let mut bytes = Bytes(body);
        let id = bytes.little(6)?;
        let _flags = bytes.u16()?;
        let length = usize::from(bytes.u8()?);
        let database = bytes.take(length)?;
        bytes.u8()?;
        let length = usize::from(bytes.u8()?);
        let table = bytes.take(length)?;
        bytes.u8()?;
        Ok(Self {
            id,
            database,
            table,
            rest: bytes,
        })
    }

    /// What comes after the names: equal bytes are an equal table.
    pub(super) fn description(&self) -> &'a [u8] {
        self.rest.0
    }
}

/// The columns of a table, and their names and signs where the server tells them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Columns {
    pub(super) columns: Vec<Column>,
    names: Option<Vec<String>>,
    unsigned: Option<Vec<bool>>,
}

impl Columns {
    /// Reads all of a description.
    pub(super) fn parse(description: &[u8]) -> Read<Self> {
        const SIGNS: u8 = 1;
        const NAMES: u8 = 4;

        let mut bytes = Bytes(description);
        let count = bytes.packed_length()?;
        let codes = bytes.take(count)?;
        let length = bytes.packed_length()?;
        let mut meta = Bytes(bytes.take(length)?);
        let mut columns = Vec::with_capacity(count);
        for code in codes {
            columns.push(column(*code, &mut meta)?);
        }
        bytes.take(count.div_ceil(8))?;
        let (mut names, mut unsigned) = (None, None);
        while !bytes.is_empty() {
            let field = bytes.u8()?;
            let length = bytes.packed_length()?;
            let value = bytes.take(length)?;
            match field {
                SIGNS => unsigned = Some(signs(codes, value)),
                NAMES => names = Some(texts(value)?),
                _ => {}
            }
        }
        Ok(Self {
            columns,
            names,
            unsigned,
        })
    }

    /// Compares with what was discovered; `Err` says the first difference.
    pub(super) fn compare(&self, table: &Table) -> Result<(), String> {
        let (here, there) = (self.columns.len(), table.columns.len());
        if here != there {
            return Err(format!("{here} columns in place of {there}"));
        }
        if let Some(names) = &self.names {
            for (name, column) in names.iter().zip(&table.columns) {
                if !name.eq_ignore_ascii_case(&column.name) {
                    return Err(format!("a column {name} in place of {}", column.name));
                }
            }
        }
        for (index, (here, there)) in self.columns.iter().zip(&table.columns).enumerate() {
            let signs = self.unsigned.as_ref().and_then(|signs| signs.get(index));
            let sign = if let Value::Int { unsigned } = there.kind {
                signs.is_none_or(|here| *here == unsigned)
            } else {
                true
            };
            if !is_of(here, &there.data_type) || !sign {
                return Err(format!(
                    "another type of {} than {}",
                    there.name, there.data_type
                ));
            }
        }
        Ok(())
    }
}

/// Whether a column's type in the binlog is that of its definition.
fn is_of(column: &Column, defined: &str) -> bool {
    match (column.kind, defined) {
        (Kind::Integer(1), "tinyint")
        | (Kind::Integer(2), "smallint")
        | (Kind::Integer(3), "mediumint")
        | (Kind::Integer(4), "int")
        | (Kind::Integer(8), "bigint")
        | (Kind::Year, "year")
        | (Kind::Float, "float")
        | (Kind::Double, "double")
        | (Kind::Decimal { .. }, "decimal")
        | (Kind::Date, "date")
        | (Kind::Time(_), "time")
        | (Kind::Datetime(_), "datetime")
        | (Kind::Timestamp(_), "timestamp")
        | (Kind::Old(_), "time" | "datetime" | "timestamp")
        | (Kind::Bit(_), "bit")
        | (Kind::Enum(_), "enum")
        | (Kind::Set(_), "set")
        | (Kind::Char(..), "char" | "binary")
        | (Kind::Varchar(_), "varchar" | "varbinary") => true,
        (Kind::Blob(_), "json") => column.json,
        (Kind::Blob(_), other) if !column.json => {
            let known = ["text", "blob", "vector", "point", "polygon", "linestring"];
            known.iter().any(|kind| other.ends_with(kind))
                || other.starts_with("geom")
                || other.ends_with("collection")
        }
        _ => false,
    }
}

fn column(code: u8, meta: &mut Bytes<'_>) -> Read<Column> {
    let kind = match code {
        code::TINY => Kind::Integer(1),
        code::SHORT => Kind::Integer(2),
        code::INT24 => Kind::Integer(3),
        code::LONG => Kind::Integer(4),
        code::LONGLONG => Kind::Integer(8),
        code::YEAR => Kind::Year,
        code::DATE | code::NEWDATE => Kind::Date,
        code::TIME => Kind::Old(3),
        code::TIMESTAMP => Kind::Old(4),
        code::DATETIME => Kind::Old(8),
        code::FLOAT => sized(meta.u8()?, 4, Kind::Float)?,
        code::DOUBLE => sized(meta.u8()?, 8, Kind::Double)?,
        code::TIME2 => Kind::Time(digits(meta.u8()?)?),
        code::DATETIME2 => Kind::Datetime(digits(meta.u8()?)?),
        code::TIMESTAMP2 => Kind::Timestamp(digits(meta.u8()?)?),
        code::TINY_BLOB
        | code::MEDIUM_BLOB
        | code::LONG_BLOB
        | code::BLOB
        | code::GEOMETRY
        | code::JSON
        | code::VECTOR => Kind::Blob(length_bytes(meta.u8()?)?),
        code::VARCHAR | code::VAR_STRING => Kind::Varchar(if meta.u16()? > 255 { 2 } else { 1 }),
        code::NEWDECIMAL => {
            let [precision, scale] = meta.array()?;
            if precision < scale || precision > 65 {
                return Err("a decimal that no server has".into());
            }
            Kind::Decimal { precision, scale }
        }
        code::BIT => {
            let [bits, bytes] = meta.array()?;
            Kind::Bit(usize::from(bytes) * 8 + usize::from(bits))
        }
        code::STRING | code::ENUM | code::SET => string(meta.array()?)?,
        other => return Err(format!("a column of the unknown type {other}").into()),
    };
    Ok(Column {
        kind,
        json: code == code::JSON,
    })
}

/// The first byte is the true type, with two bits of the length in it where that is above 255.
fn string([first, second]: [u8; 2]) -> Read<Kind> {
    let upper = (first & 0x30) ^ 0x30;
    let (real, length) = (
        first | 0x30,
        usize::from(second) | (usize::from(upper) << 4),
    );
    match real {
        _ if first == code::ENUM => Ok(Kind::Enum(usize::from(second))),
        _ if first == code::SET => Ok(Kind::Set(usize::from(second))),
        code::STRING => Ok(Kind::Char(length, if length > 255 { 2 } else { 1 })),
        _ => Err("a string of an unknown type".into()),
    }
}

fn sized(said: u8, bytes: u8, kind: Kind) -> Read<Kind> {
    if said == bytes {
        Ok(kind)
    } else {
        Err("a number of an unknown size".into())
    }
}

fn digits(said: u8) -> Read<u8> {
    if said <= 6 {
        Ok(said)
    } else {
        Err("a time with too many digits".into())
    }
}

fn length_bytes(said: u8) -> Read<usize> {
    if (1..=4).contains(&said) {
        Ok(said.into())
    } else {
        Err("a length of an unknown size".into())
    }
}

/// A bit for each number, from the highest of the first byte; other columns are not told of.
fn signs(codes: &[u8], value: &[u8]) -> Vec<bool> {
    let mut at = 0;
    let codes = codes.iter();
    codes
        .map(|code| {
            let number = matches!(
                *code,
                code::TINY
                    | code::SHORT
                    | code::INT24
                    | code::LONG
                    | code::LONGLONG
                    | code::NEWDECIMAL
                    | code::FLOAT
                    | code::DOUBLE
                    | code::YEAR
            );
            let from_the_top = (at / 8) * 8 + (7 - at % 8);
            at += usize::from(number);
            number && bit(value, from_the_top)
        })
        .collect()
}

fn texts(value: &[u8]) -> Read<Vec<String>> {
    let mut bytes = Bytes(value);
    let mut texts = Vec::new();
    while !bytes.is_empty() {
        let length = bytes.packed_length()?;
        let text = String::from_utf8_lossy(bytes.take(length)?);
        texts.push(text.into_owned());
    }
    Ok(texts)
}
