//! Values in row events: how long each is, and what those of a key say.

use std::fmt::Write as _;

use super::bytes::{Bytes, Read, Unreadable, big, little};
use super::table_map::Kind;
use crate::mover::table::{Column, KeyPart, Kind as Value};

/// Bytes of a decimal's last group by its digits; a full group of nine takes four.
const DECIMAL_BYTES: [usize; 10] = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4];
const GROUP: usize = 9;

/// Takes a value, without what says how long it is.
pub(super) fn take<'a>(kind: Kind, bytes: &mut Bytes<'a>) -> Read<&'a [u8]> {
    let length = match kind {
        Kind::Integer(n) | Kind::Enum(n) | Kind::Set(n) | Kind::Old(n) => n,
        Kind::Year => 1,
        Kind::Float => 4,
        Kind::Double => 8,
        Kind::Decimal { precision, scale } => decimal_bytes(precision, scale),
        Kind::Date => 3,
        Kind::Time(digits) => 3 + fraction_bytes(digits),
        Kind::Datetime(digits) => 5 + fraction_bytes(digits),
        Kind::Timestamp(digits) => 4 + fraction_bytes(digits),
        Kind::Bit(bits) => bits.div_ceil(8),
        Kind::Char(_, prefix) | Kind::Varchar(prefix) | Kind::Blob(prefix) => {
            usize::try_from(bytes.little(prefix)?).map_err(|_| Unreadable::SHORT)?
        }
    };
    bytes.take(length)
}

fn fraction_bytes(digits: u8) -> usize {
    usize::from(digits.div_ceil(2))
}

fn decimal_bytes(precision: u8, scale: u8) -> usize {
    let of = |digits: usize| {
        let last = DECIMAL_BYTES.get(digits % GROUP).copied();
        digits / GROUP * 4 + last.unwrap_or_default()
    };
    of(usize::from(precision - scale)) + of(usize::from(scale))
}

/// What a key's value says, in the one form that is read from tables too.
pub(super) fn decode(kind: Kind, column: &Column, value: &[u8]) -> Read<KeyPart> {
    Ok(match kind {
        Kind::Integer(size) if column.kind == Value::Int { unsigned: true } => {
            KeyPart::Unsigned(little_of(value, size))
        }
        Kind::Integer(size) => KeyPart::Signed(signed(little_of(value, size), size)),
        Kind::Enum(size) | Kind::Set(size) => KeyPart::Unsigned(little_of(value, size)),
        Kind::Bit(_) => KeyPart::Unsigned(big(value)),
        Kind::Year => match value {
            [0] => KeyPart::Unsigned(0),
            [years] => KeyPart::Unsigned(1900 + u64::from(*years)),
            _ => return Err("a year of more than a byte".into()),
        },
        Kind::Char(length, _) if column.kind == Value::Binary => {
            // The zeros at its end are not sent.
            let mut whole = value.to_vec();
            whole.resize(length.max(value.len()), 0);
            KeyPart::Bytes(whole)
        }
        Kind::Char(..) | Kind::Varchar(_) => KeyPart::Bytes(value.to_vec()),
        Kind::Date => KeyPart::Bytes(date(little(value)).into_bytes()),
        Kind::Time(digits) => KeyPart::Bytes(time(value, digits)?.into_bytes()),
        Kind::Datetime(digits) => KeyPart::Bytes(datetime(value, digits)?.into_bytes()),
        Kind::Timestamp(digits) => KeyPart::Bytes(timestamp(value, digits)?.into_bytes()),
        Kind::Decimal { precision, scale } => {
            KeyPart::Bytes(decimal(value, precision, scale)?.into_bytes())
        }
        Kind::Float => {
            let bits = <[u8; 4]>::try_from(value).map_err(|_| Unreadable::SHORT)?;
            float(f32::from_le_bytes(bits).into())
        }
        Kind::Double => {
            let bits = <[u8; 8]>::try_from(value).map_err(|_| Unreadable::SHORT)?;
            float(f64::from_le_bytes(bits))
        }
        Kind::Blob(_) | Kind::Old(_) => {
            let text = format!("a key of the type {}", column.data_type);
            return Err(text.into());
        }
    })
}

fn little_of(value: &[u8], size: usize) -> u64 {
    little(value.get(..size).unwrap_or_default())
}

/// The same bytes as a number with a sign.
fn signed(number: u64, bytes: usize) -> i64 {
    let unused = 64 - 8 * bytes;
    (number << unused).cast_signed() >> unused
}

/// Exact, and the same for both zeros, as for the server.
fn float(value: f64) -> KeyPart {
    KeyPart::Bytes(format!("{:?}", value + 0.0).into_bytes())
}

fn date(packed: u64) -> String {
    let (year, month, day) = (packed >> 9, (packed >> 5) & 15, packed & 31);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Digits of a second, as the server shows so many.
fn fraction(stored: u64, digits: u8) -> String {
    if digits == 0 {
        return String::new();
    }
    // An odd number of digits is stored as the next even one.
    let stored_digits = usize::from(digits.div_ceil(2)) * 2;
    let mut text = format!(".{stored:0stored_digits$}");
    text.truncate(1 + usize::from(digits));
    text
}

fn datetime(value: &[u8], digits: u8) -> Read<String> {
    let (whole, part) = value.split_at_checked(5).ok_or(Unreadable::SHORT)?;
    // The highest bit says that it is not before the year 0.
    let packed = big(whole) & !(1 << 39);
    let (day_part, clock) = (packed >> 17, packed & 0x1_ffff);
    let months = day_part >> 5;
    let (year, month, day) = (months / 13, months % 13, day_part & 31);
    let (hour, minute, second) = (clock >> 12, (clock >> 6) & 63, clock & 63);
    let fraction = fraction(big(part), digits);
    Ok(format!(
        "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}{fraction}"
    ))
}

/// In UTC, as a session of the mover sees it.
fn timestamp(value: &[u8], digits: u8) -> Read<String> {
    let (whole, part) = value.split_at_checked(4).ok_or(Unreadable::SHORT)?;
    let (seconds, part) = (big(whole), big(part));
    let fraction = fraction(part, digits);
    if seconds == 0 && part == 0 {
        return Ok(format!("0000-00-00 00:00:00{fraction}"));
    }
    let at = time::OffsetDateTime::from_unix_timestamp(seconds.cast_signed());
    let at = at.map_err(|_| "a timestamp that is none")?;
    let (year, month, day) = at.to_calendar_date();
    let (hour, minute, second) = at.to_hms();
    let month = u8::from(month);
    Ok(format!(
        "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}{fraction}"
    ))
}

/// Below zero, the whole of it is a complement, its fraction too.
fn time(value: &[u8], digits: u8) -> Read<String> {
    let fraction_bytes = fraction_bytes(digits);
    if value.len() != 3 + fraction_bytes {
        return Err(Unreadable::SHORT);
    }
    let shift = 8 * fraction_bytes;
    let packed = big(value).cast_signed() - (0x80_0000 << shift);
    let sign = if packed < 0 { "-" } else { "" };
    let packed = packed.unsigned_abs();
    let (clock, part) = (packed >> shift, packed & ((1 << shift) - 1));
    let (hours, minutes, seconds) = ((clock >> 12) & 0x3ff, (clock >> 6) & 63, clock & 63);
    let fraction = fraction(part, digits);
    Ok(format!(
        "{sign}{hours:02}:{minutes:02}:{seconds:02}{fraction}"
    ))
}

/// Groups of nine digits in four bytes each, a shorter group first and last; the first bit is the sign, and below zero
/// all bits are turned.
fn decimal(value: &[u8], precision: u8, scale: u8) -> Read<String> {
    let negative = value.first().is_none_or(|first| first & 0x80 == 0);
    let turn = if negative { 0xff } else { 0 };
    let mut plain: Vec<u8> = value.iter().map(|byte| byte ^ turn).collect();
    if let Some(first) = plain.first_mut() {
        *first ^= 0x80;
    }
    let mut bytes = Bytes(&plain);
    let (whole, part) = (usize::from(precision - scale), usize::from(scale));
    let mut digits = String::new();
    let mut group = |digits: &mut String, count: usize| -> Read<()> {
        let size = DECIMAL_BYTES.get(count).copied().unwrap_or_default();
        if count > 0 {
            let _ = write!(digits, "{:0count$}", big(bytes.take(size)?));
        }
        Ok(())
    };
    group(&mut digits, whole % GROUP)?;
    for _ in 0..whole / GROUP {
        group(&mut digits, GROUP)?;
    }
    let mut text = digits.trim_start_matches('0').to_owned();
    if text.is_empty() {
        text.push('0');
    }
    if part > 0 {
        text.push('.');
        for _ in 0..part / GROUP {
            group(&mut text, GROUP)?;
        }
        group(&mut text, part % GROUP)?;
    }
    let zero = text.bytes().all(|b| b == b'0' || b == b'.');
    if negative && !zero {
        text.insert(0, '-');
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
