//! Strict TOML configuration that reports everything that is wrong with a file at once.
//!
//! serde stops at its first error, so a file is parsed into a table and its keys are pulled out of it by a [`Section`],
//! which notes faults and goes on; keys that nobody asked for are faults too. A reading function pulls **all** keys
//! first and uses `?` only in the last expression:
//!
//! ```
//! use std::time::Duration;
//! use shared::config::{self, Section, Size};
//!
//! /// A client that sends nothing for so long is gone.
//! const IDLE: Duration = Duration::from_secs(60);
//! /// A cart fits a hundred times.
//! const BODY_MAX: Size = Size::kib(64);
//!
//! struct Config {
//!     listen: Vec<std::net::SocketAddr>,
//!     limits: Limits,
//! }
//! struct Limits {
//!     idle: Duration,
//!     body_max: Size,
//!     hops_max: u32,
//! }
//!
//! impl Config {
//!     fn read(s: &mut Section<'_>) -> Option<Self> {
//!         let listen = s.list("listen");
//!         let limits = s.section("limits", Limits::read);
//!         Some(Self { listen: listen?, limits: limits? })
//!     }
//! }
//! impl Limits {
//!     fn read(s: &mut Section<'_>) -> Option<Self> {
//!         let hops_max = s.within("hops_max", 4, 1..=16);
//!         Some(Self { idle: s.or("idle", IDLE), body_max: s.or("body_max", BODY_MAX), hops_max })
//!     }
//! }
//!
//! let text = "listen = ['127.0.0.1:8080']\nlimits = { idle = '250ms' }";
//! let config = config::parse("edge.toml".as_ref(), text, Config::read).unwrap();
//! assert_eq!(config.limits.idle, Duration::from_millis(250));
//!
//! let bad = "listen = ['here']\nlimits = { idle = 5, hops_max = 99, colour = 'red' }";
//! let faults = config::parse("edge.toml".as_ref(), bad, Config::read).err().unwrap();
//! assert_eq!(faults.to_string().lines().collect::<Vec<_>>(), [
//!     r#"edge.toml: listen[0]: "here" is not an IP address with a port ("127.0.0.1:8080")"#,
//!     r#"edge.toml: limits.hops_max: 99 is not within 1 and 16"#,
//!     r#"edge.toml: limits.idle: 5 is not a duration ("250ms", "2s", "5m", "24h", "7d")"#,
//!     r#"edge.toml: limits.colour: unknown key; known here: body_max, hops_max, idle"#,
//! ]);
//! ```
//!
//! Relative paths in a file are relative to the folder of the file, so that a folder can be moved as a whole.

use std::fmt;
use std::path::{Path, PathBuf};

// Reading the keys of one table.
mod section;
pub use section::Section;

// What a key can hold.
mod value;
pub use value::{Endpoint, Size, Value, format_duration, parse_duration};

// Secrets and references to them.
mod secret;
pub use secret::{SECRET_COMMAND_MAX, SECRET_LEN_MAX, Secret, SecretError, SecretRef};

/// The exit code for a wrong command line or configuration (`EX_USAGE` of sysexits.h): a supervisor need not try again.
pub const EXIT_USAGE: u8 = 64;

/// A file of settings has some kilobytes; something larger is the wrong file.
const FILE_LEN_MAX: u64 = 4 * 1024 * 1024;

/// One thing that is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The key with the tables that it is in (`limits.idle`, `pod[1].name`); empty for the file as a whole.
    pub key: String,
    /// What is wrong, and what would be right.
    pub text: String,
}

/// Everything that is wrong with a file. `Display` gives a line for each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults {
    file: PathBuf,
    list: Vec<Fault>,
}

impl Faults {
    /// The file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The faults, in the order in which the keys were asked for.
    pub fn list(&self) -> &[Fault] {
        &self.list
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Fault { key, text }) in self.list.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{}: ", self.file.display())?;
            if !key.is_empty() {
                write!(f, "{key}: ")?;
            }
            f.write_str(text)?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

/// Reads a file.
pub fn load<T>(path: &Path, read: impl FnOnce(&mut Section<'_>) -> Option<T>) -> Result<T, Faults> {
    let whole = |text: String| Faults {
        file: path.to_owned(),
        list: vec![Fault {
            key: String::new(),
            text,
        }],
    };
    let long = std::fs::metadata(path).is_ok_and(|m| m.len() > FILE_LEN_MAX);
    if long {
        return Err(whole(format!("longer than {FILE_LEN_MAX} bytes")));
    }
    match std::fs::read_to_string(path) {
        Ok(text) => parse(path, &text, read),
        Err(error) => Err(whole(format!("cannot be read: {error}"))),
    }
}

/// Reads a text; `path` is where it came from, for messages and relative paths.
pub fn parse<T>(
    path: &Path,
    text: &str,
    read: impl FnOnce(&mut Section<'_>) -> Option<T>,
) -> Result<T, Faults> {
    let faults = |list| Faults {
        file: path.to_owned(),
        list,
    };
    let table: toml::Table = match text.parse() {
        Ok(table) => table,
        Err(error) => return Err(faults(vec![syntax(text, &error)])),
    };
    let folder = path.parent().unwrap_or(Path::new(""));
    let context = section::Context::new(folder);
    let mut root = Section::root(&table, &context);
    let read = read(&mut root);
    root.finish();
    let mut list = context.into_faults();
    match read {
        Some(it) if list.is_empty() => Ok(it),
        Some(_) | None => {
            if list.is_empty() {
                list.push(Fault {
                    key: String::new(),
                    text: "not usable, and the reader does not say why".into(),
                });
            }
            Err(faults(list))
        }
    }
}

/// The place and the message alone: the error's own text repeats the line, which may hold a secret.
fn syntax(text: &str, error: &toml::de::Error) -> Fault {
    let before = error.span().and_then(|span| text.get(..span.start));
    let place = before.map_or_else(String::new, |before| {
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        format!("line {line}, column {column}: ")
    });
    Fault {
        key: String::new(),
        text: format!("{place}not TOML: {}", error.message()),
    }
}

#[cfg(test)]
mod tests;
