//! What the commands do: one file for each group, and here what they share.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use secrecy::{ExposeSecret as _, SecretString};
use shared::config::SecretRef;

use crate::cli::Global;
use crate::client::Control;
use crate::home_dir::HomeDir;
use crate::output::Out;
use crate::secrets;

pub mod doctor;
pub mod fleet;
pub mod moves;
pub mod pod;
pub mod process;
pub mod shop;
pub mod status;

/// Who is asked, and how the answer is told.
#[derive(Debug)]
pub struct Context {
    global: Global,
    /// Where results go.
    pub out: Out,
}

impl Context {
    /// From the flags.
    pub fn new(global: Global) -> Self {
        let out = Out::new(global.json);
        Self { global, out }
    }

    /// The home folder; a refusal names the way out.
    pub fn home(&self) -> anyhow::Result<HomeDir> {
        let here = std::env::current_dir().context("find the current folder")?;
        Ok(HomeDir::find(self.global.home.as_deref(), &here)?)
    }

    /// The home folder that the flags name.
    pub fn home_wish(&self) -> Option<PathBuf> {
        self.global.home.clone()
    }

    /// Whether another control server than the home's is named.
    pub fn is_remote(&self) -> bool {
        !self.global.control.is_empty()
    }

    /// How long a call may take.
    pub const fn timeout(&self) -> Duration {
        self.global.timeout
    }

    /// The control server that the flags name, else the home's.
    pub fn control(&self) -> anyhow::Result<Control> {
        self.control_within(self.timeout())
    }

    /// The same, with a bound of its own.
    pub fn control_within(&self, timeout: Duration) -> anyhow::Result<Control> {
        let (urls, token_file) = if self.is_remote() {
            let Some(file) = self.global.token_file.clone() else {
                bail!("--control needs --token-file: the file with that fleet's operator token");
            };
            (self.global.control.clone(), file)
        } else {
            let home = self.home()?;
            let file = self.global.token_file.clone();
            let file = file.unwrap_or_else(|| home.secret_file(secrets::OPERATOR_TOKEN));
            (crate::status::control_urls(&home)?, file)
        };
        Ok(Control::new(&urls, read_token(&token_file)?, timeout)?)
    }
}

/// Reads a token from its file.
fn read_token(file: &Path) -> anyhow::Result<SecretString> {
    let token = SecretRef::File(file.into()).read()?;
    if !token.expose_secret().bytes().all(|b| b.is_ascii_graphic()) {
        bail!(
            "{} is no token: it must hold one word of visible ASCII",
            file.display()
        );
    }
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_file_holds_one_word() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let missing = format!("{:#}", read_token(&file).unwrap_err());
        assert!(
            missing.contains("token") && missing.contains("No such file"),
            "{missing}"
        );
        std::fs::write(&file, "abc\n").unwrap();
        assert_eq!(read_token(&file).unwrap().expose_secret(), "abc");
        for bad in ["", "\n", "two words", "\u{e9}", &"x".repeat(70_000)] {
            std::fs::write(&file, bad).unwrap();
            assert!(read_token(&file).is_err(), "{bad:?}");
        }
    }
}
