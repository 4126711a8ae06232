//! One column, from the server's description of it.

use mysql_async::Row;

use crate::mover::session::text;
use crate::mover::table::{Column, Kind, named};

/// A column's definition as one line.
pub(super) fn definition(row: &Row) -> String {
    let of = |at| text(row, at).unwrap_or_default();
    let mut line = of(3);
    for (word, at) in [("character set", 4), ("collate", 5), ("srid", 10)] {
        if let Some(value) = text(row, at) {
            line.push_str(&format!(" {word} {value}"));
        }
    }
    if of(6) == "NO" {
        line.push_str(" not null");
    }
    if let Some(default) = text(row, 7) {
        line.push_str(&format!(" default {default}"));
    }
    let (extra, expression) = (of(8), of(9));
    if !extra.is_empty() {
        line.push_str(&format!(" {}", extra.to_lowercase()));
    }
    if !expression.is_empty() {
        line.push_str(&format!(" as ({expression})"));
    }
    line
}

/// A column that can be moved; `None` if its type is not known.
pub(super) fn column(row: &Row) -> Option<Column> {
    let data_type = text(row, 2)?.to_lowercase();
    let column_type = text(row, 3)?.to_lowercase();
    let unsigned = column_type.contains("unsigned");
    let kind = match data_type.as_str() {
        "tinyint" | "smallint" | "mediumint" | "int" | "bigint" => Kind::Int { unsigned },
        "year" => Kind::Int { unsigned: true },
        "decimal" => Kind::Decimal,
        "float" => Kind::Float,
        "double" => Kind::Double,
        "bit" => Kind::Bit,
        "date" | "time" | "datetime" | "timestamp" => Kind::Temporal,
        "char" => Kind::Char,
        "varchar" | "tinytext" | "text" | "mediumtext" | "longtext" => Kind::Text,
        "binary" => Kind::Binary,
        "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" => Kind::Bytes,
        "enum" => Kind::Enum {
            members: members(&text(row, 3)?),
        },
        "set" => Kind::Set,
        "json" => Kind::Json,
        "geometry" | "point" | "linestring" | "polygon" | "multipoint" | "multilinestring"
        | "multipolygon" | "geomcollection" | "geometrycollection" => Kind::Geometry,
        "vector" => Kind::Vector,
        _ => return None,
    };
    let (name, quoted) = named(&text(row, 1)?);
    let generated = text(row, 9).is_some_and(|expression| !expression.is_empty());
    Some(Column {
        name,
        quoted,
        kind,
        data_type,
        charset: text(row, 4),
        digits: digits(&column_type),
        nullable: text(row, 6).as_deref() == Some("YES"),
        generated,
    })
}

/// The digits of `float(10,3)`.
fn digits(column_type: &str) -> Option<(u32, u32)> {
    let rest = column_type.strip_prefix("float(")?;
    let (all, behind) = rest.split_once(')')?.0.split_once(',')?;
    Some((all.trim().parse().ok()?, behind.trim().parse().ok()?))
}

/// How many members `enum('a','it''s')` has: quotes inside of one are doubled.
fn members(column_type: &str) -> u32 {
    let mut inside = false;
    let mut count = 0;
    let mut chars = column_type.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\'' {
            continue;
        }
        if inside && chars.peek() == Some(&'\'') {
            chars.next();
            continue;
        }
        inside = !inside;
        count += u32::from(inside);
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_of_floats_that_have_them() {
        assert_eq!(digits("float(10,3) unsigned"), Some((10, 3)));
        for other in ["float", "float unsigned", "double(10,3)", "decimal(10,3)"] {
            assert_eq!(digits(other), None, "{other}");
        }
    }

    #[test]
    fn members_are_counted_whatever_is_in_them() {
        for (column_type, count) in [
            ("enum('a')", 1),
            ("enum('a','b','')", 3),
            ("enum('it''s','''','a,b',''',''')", 4),
        ] {
            assert_eq!(members(column_type), count, "{column_type}");
        }
    }
}
