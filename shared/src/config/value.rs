//! What a key can hold.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::{Handle, Host, PodId, ShopId};

/// A type that a key can have.
pub trait Value: Sized {
    /// What is expected, as it ends the sentence "`x` is not ...", with an example.
    const EXPECTED: &'static str;

    /// Reads it; `None` when it is something else.
    fn from_toml(value: &toml::Value) -> Option<Self>;

    /// How the file would say it.
    fn show(&self) -> String;
}

/// A value as it stands in a message, cut at a length that fits a line.
pub(super) fn show(value: &toml::Value) -> String {
    const LEN_MAX: usize = 60;
    let text = match value {
        toml::Value::String(text) => format!("{text:?}"),
        toml::Value::Table(_) => "a table".to_owned(),
        toml::Value::Array(_) => "a list".to_owned(),
        toml::Value::Integer(_)
        | toml::Value::Float(_)
        | toml::Value::Boolean(_)
        | toml::Value::Datetime(_) => value.to_string(),
    };
    if text.chars().count() <= LEN_MAX {
        return text;
    }
    let mut cut: String = text.chars().take(LEN_MAX).collect();
    cut.push_str("...");
    cut
}

macro_rules! whole_number {
    ($($type:ty: $expected:literal),*) => {$(
        impl Value for $type {
            const EXPECTED: &'static str = $expected;
            fn from_toml(value: &toml::Value) -> Option<Self> {
                value.as_integer()?.try_into().ok()
            }
            fn show(&self) -> String {
                self.to_string()
            }
        }
    )*};
}
whole_number!(
    u8: "a whole number from 0 to 255",
    u16: "a whole number from 0 to 65535",
    u32: "a whole number from 0 to 4294967295",
    u64: "a whole number from 0 on",
    usize: "a whole number from 0 on"
);

macro_rules! from_text {
    ($($type:ty: $expected:literal),*) => {$(
        impl Value for $type {
            const EXPECTED: &'static str = $expected;
            fn from_toml(value: &toml::Value) -> Option<Self> {
                value.as_str()?.parse().ok()
            }
            fn show(&self) -> String {
                self.to_string()
            }
        }
    )*};
}
from_text!(
    SocketAddr: "an IP address with a port (\"127.0.0.1:8080\")",
    Host: "a DNS name (\"shops.example\")",
    Handle: "a handle: 1 to 63 of a-z, 0-9 and '-', with a letter (\"snow-9\")",
    Size: "a size (\"512B\", \"64KiB\", \"16MiB\", \"1GiB\")"
);

macro_rules! id {
    ($($type:ty: $expected:literal),*) => {$(
        impl Value for $type {
            const EXPECTED: &'static str = $expected;
            fn from_toml(value: &toml::Value) -> Option<Self> {
                u64::try_from(value.as_integer()?).ok().and_then(|raw| Self::new(raw).ok())
            }
            fn show(&self) -> String {
                self.to_string()
            }
        }
    )*};
}
id!(PodId: "the number of a pod, from 1 on", ShopId: "the number of a shop, from 1 on");

impl Value for bool {
    const EXPECTED: &'static str = "true or false";
    fn from_toml(value: &toml::Value) -> Option<Self> {
        value.as_bool()
    }
    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for f64 {
    const EXPECTED: &'static str = "a number";
    fn from_toml(value: &toml::Value) -> Option<Self> {
        #[expect(
            clippy::cast_precision_loss,
            reason = "a setting of 2^53 or more does not need its last digit"
        )]
        let whole = value.as_integer().map(|n| n as Self);
        value.as_float().or(whole).filter(|n| n.is_finite())
    }
    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for String {
    const EXPECTED: &'static str = "a text that is not empty";
    fn from_toml(value: &toml::Value) -> Option<Self> {
        let text = value.as_str()?;
        (!text.trim().is_empty()).then(|| text.to_owned())
    }
    fn show(&self) -> String {
        format!("{self:?}")
    }
}

impl Value for PathBuf {
    const EXPECTED: &'static str = "a path";
    fn from_toml(value: &toml::Value) -> Option<Self> {
        String::from_toml(value).map(Self::from)
    }
    fn show(&self) -> String {
        self.display().to_string()
    }
}

impl Value for Duration {
    const EXPECTED: &'static str = r#"a duration ("250ms", "2s", "5m", "24h", "7d")"#;
    fn from_toml(value: &toml::Value) -> Option<Self> {
        parse_duration(value.as_str()?)
    }
    fn show(&self) -> String {
        format_duration(*self)
    }
}

/// Units of durations in milliseconds, small to large.
const UNITS: [(&str, u64); 5] = [
    ("ms", 1),
    ("s", 1000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
];

/// Splits digits from what follows them. No sign, no fraction: `1500ms` says 1.5 s.
fn number_and_unit(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(end);
    Some((number.parse().ok()?, unit))
}

/// Reads `250ms`, `2s`, `5m`, `24h` or `7d`.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = number_and_unit(text)?;
    let (_, ms) = UNITS.iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(*ms).map(Duration::from_millis)
}

/// Writes a duration in the largest unit that gives a whole number; less than a millisecond is cut off.
pub fn format_duration(duration: Duration) -> String {
    let ms = duration.as_millis();
    let fits = |(_, unit): &&(&str, u64)| ms > 0 && ms.is_multiple_of(u128::from(*unit));
    let (name, unit) = UNITS.iter().rev().find(fits).unwrap_or(&UNITS[0]);
    format!("{}{name}", ms / u128::from(*unit))
}

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(usize);

impl Size {
    /// So many bytes.
    pub const fn bytes(n: usize) -> Self {
        Self(n)
    }

    /// So many times 1024 bytes.
    pub const fn kib(n: usize) -> Self {
        Self(n * 1024)
    }

    /// So many times 1024 KiB.
    pub const fn mib(n: usize) -> Self {
        Self::kib(n * 1024)
    }

    /// In bytes.
    pub const fn get(self) -> usize {
        self.0
    }
}

/// Units of sizes in bytes, small to large.
const SIZES: [(&str, usize); 4] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

impl FromStr for Size {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let (number, unit) = number_and_unit(text).ok_or(())?;
        let (_, bytes) = SIZES.iter().find(|(name, _)| *name == unit).ok_or(())?;
        let number = usize::try_from(number).map_err(|_| ())?;
        number.checked_mul(*bytes).map(Self).ok_or(())
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |(_, unit): &&(&str, usize)| self.0 > 0 && self.0.is_multiple_of(*unit);
        let (name, unit) = SIZES.iter().rev().find(fits).unwrap_or(&SIZES[0]);
        write!(f, "{}{name}", self.0 / unit)
    }
}

/// A server by host and port. In a file: `{ host = "127.0.0.1", port = 3306 }` or `"127.0.0.1:3306"`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// A name or an address.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl Value for Endpoint {
    const EXPECTED: &'static str =
        r#"a host and a port ("127.0.0.1:3306" or { host = "127.0.0.1", port = 3306 })"#;
    fn from_toml(value: &toml::Value) -> Option<Self> {
        let (host, port) = if let Some(text) = value.as_str() {
            let (host, port) = text.rsplit_once(':')?;
            (host.to_owned(), port.parse().ok()?)
        } else {
            let table = value.as_table().filter(|table| table.len() == 2)?;
            let host = table.get("host")?.as_str()?.to_owned();
            (host, u16::from_toml(table.get("port")?)?)
        };
        let bracketed = host.starts_with('[') && host.ends_with(']');
        let plain = !host.is_empty() && !host.contains([':', '/', ' ', '@']);
        (port > 0 && (plain || bracketed)).then_some(Self { host, port })
    }
    fn show(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}
