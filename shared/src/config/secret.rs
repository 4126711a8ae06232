//! Secrets and references to them. A configuration file, the catalog and a log hold the reference alone.

use std::fmt;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::sync::mpsc;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};

/// A key file with some keys has a kilobyte; something larger is the wrong file.
pub const SECRET_LEN_MAX: u64 = 64 * 1024;

/// A vault on the network answers in a second; a start or a SIGHUP must not hang on one that does not.
pub const SECRET_COMMAND_MAX: Duration = Duration::from_secs(10);

/// Where a secret is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SecretRef {
    /// `file:PATH`
    File(PathBuf),
    /// `env:NAME`
    Env(String),
    /// `command:PROGRAM ARGUMENT ...`: words between blanks, run without a shell; what it prints is the secret.
    Command(String),
}

/// Why a secret could not be had. Never says any of it.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum SecretError {
    #[error("a reference to a secret is file:PATH, env:NAME or command:PROGRAM ARGUMENT ...")]
    Reference,
    #[error("cannot read the secret file {path}")]
    File { path: PathBuf, source: io::Error },
    #[error("the secret file {0} is empty")]
    EmptyFile(PathBuf),
    #[error("the secret file {0} is longer than {SECRET_LEN_MAX} bytes")]
    LongFile(PathBuf),
    #[error("the environment variable {0} is not set, or empty, or not UTF-8")]
    Env(String),
    #[error("cannot run the command for a secret, {command}")]
    Run { command: String, source: io::Error },
    #[error("the command for a secret, {command}, {how}")]
    Command { command: String, how: String },
}

impl FromStr for SecretRef {
    type Err = SecretError;
    fn from_str(text: &str) -> Result<Self, SecretError> {
        match text.split_once(':') {
            Some(("file", path)) if !path.is_empty() => Ok(Self::File(path.into())),
            Some(("env", name)) if !name.is_empty() => Ok(Self::Env(name.to_owned())),
            Some(("command", words)) if !words.trim().is_empty() => {
                Ok(Self::Command(words.trim().to_owned()))
            }
            Some(_) | None => Err(SecretError::Reference),
        }
    }
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Env(name) => write!(f, "env:{name}"),
            Self::Command(words) => write!(f, "command:{words}"),
        }
    }
}

impl SecretRef {
    /// Reads the secret. Line ends at its end do not belong to it.
    pub fn read(&self) -> Result<SecretString, SecretError> {
        match self {
            Self::File(path) => {
                let fail = |source| SecretError::File {
                    path: path.clone(),
                    source,
                };
                let mut text = String::new();
                let file = std::fs::File::open(path).map_err(fail)?;
                let mut file = file.take(SECRET_LEN_MAX + 1);
                file.read_to_string(&mut text).map_err(fail)?;
                if text.len() as u64 > SECRET_LEN_MAX {
                    return Err(SecretError::LongFile(path.clone()));
                }
                trimmed(text).ok_or_else(|| SecretError::EmptyFile(path.clone()))
            }
            Self::Env(name) => std::env::var(name)
                .ok()
                .and_then(trimmed)
                .ok_or_else(|| SecretError::Env(name.clone())),
            Self::Command(words) => run(words),
        }
    }
}

/// Runs a command and takes what it prints, within [`SECRET_COMMAND_MAX`] and [`SECRET_LEN_MAX`].
fn run(command: &str) -> Result<SecretString, SecretError> {
    let fail = |source| SecretError::Run {
        command: command.to_owned(),
        source,
    };
    let bad = |how: String| SecretError::Command {
        command: command.to_owned(),
        how,
    };
    let mut words = command.split_whitespace();
    let mut child = Command::new(words.next().unwrap_or_default())
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(fail)?;
    let output = child.stdout.take();
    let (said, hear) = mpsc::channel();
    // Ends with the command's output, which ends with the command at the latest.
    std::thread::spawn(move || {
        let mut text = String::new();
        let read = output.map_or(Ok(0), |output| {
            output.take(SECRET_LEN_MAX + 1).read_to_string(&mut text)
        });
        let _ = said.send(read.map(|_| text));
    });
    let Ok(text) = hear.recv_timeout(SECRET_COMMAND_MAX) else {
        let _ = child.kill();
        let _ = child.wait();
        return Err(bad(format!("did not end within {SECRET_COMMAND_MAX:?}")));
    };
    let text = text.map_err(fail)?;
    if text.len() as u64 > SECRET_LEN_MAX {
        let _ = child.kill();
        let _ = child.wait();
        return Err(bad(format!("printed more than {SECRET_LEN_MAX} bytes")));
    }
    let status = child.wait().map_err(fail)?;
    if !status.success() {
        return Err(bad(format!("ended with {status}")));
    }
    trimmed(text).ok_or_else(|| bad("printed nothing".to_owned()))
}

fn trimmed(text: String) -> Option<SecretString> {
    let whole = SecretString::from(text);
    let text = whole.expose_secret().trim_end_matches(['\n', '\r']);
    (!text.is_empty()).then(|| SecretString::from(text))
}

/// A secret that was read, and where from, so that it can be read again when it was rotated.
#[derive(Debug, Clone)]
pub struct Secret {
    source: SecretRef,
    value: SecretString,
}

impl Secret {
    /// Reads it.
    pub fn read(source: SecretRef) -> Result<Self, SecretError> {
        let value = source.read()?;
        Ok(Self { source, value })
    }

    /// The secret itself.
    pub fn expose(&self) -> &str {
        self.value.expose_secret()
    }

    /// Where it came from.
    pub const fn source(&self) -> &SecretRef {
        &self.source
    }

    /// Reads it again.
    pub fn reread(&self) -> Result<Self, SecretError> {
        Self::read(self.source.clone())
    }
}
