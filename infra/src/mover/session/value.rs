//! Values and names in statements, values in rows: the one place where text becomes SQL.

use mysql_async::Row;

/// Bytes as SQL: `x'41'`. The one way in which a value becomes part of a statement's text.
pub(crate) fn literal(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut text = String::with_capacity(bytes.len() * 2 + 3);
    text.push_str("x'");
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text.push('\'');
    text
}

/// A name as SQL, in backticks.
pub(crate) fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// A column's bytes as the server sent them; `None` is NULL.
pub(crate) fn bytes(row: &Row, at: usize) -> Option<&[u8]> {
    match row.as_ref(at) {
        Some(mysql_async::Value::Bytes(bytes)) => Some(bytes),
        _ => None,
    }
}

/// A column as text; what is no UTF-8 is shown as such.
pub(crate) fn text(row: &Row, at: usize) -> Option<String> {
    bytes(row, at).map(|b| String::from_utf8_lossy(b).into_owned())
}

/// A column as a number without sign.
pub(crate) fn number(row: &Row, at: usize) -> Option<u64> {
    std::str::from_utf8(bytes(row, at)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_names_cannot_end_what_they_stand_in() {
        assert_eq!(literal(b"'\\\0"), "x'275C00'");
        assert_eq!(literal(b""), "x''");
        assert_eq!(quoted("a`b"), "`a``b`");
    }
}
