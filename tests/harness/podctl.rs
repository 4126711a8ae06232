//! Runs `podctl`.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::de::DeserializeOwned;
use tokio::process::Command;

use crate::process::binary;

/// Adding a pod starts three database servers; nothing else takes nearly as long.
const COMMAND_MAX: Duration = Duration::from_secs(150);

/// Exit code for a wrong command line (`sysexits.h`).
pub const USAGE: i32 = 64;

/// `podctl` for one home.
#[derive(Debug, Clone)]
pub struct Podctl {
    binary: PathBuf,
    home: PathBuf,
}

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    /// The exit code; `None` after a signal.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Ended {
    /// Both outputs, for failures.
    pub fn text(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }
}

impl Podctl {
    /// For a home, which need not exist yet.
    pub fn new(home: &Path) -> Result<Self> {
        Ok(Self {
            binary: binary("podctl")?,
            home: home.to_owned(),
        })
    }

    /// Where the binary is.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// The command before it runs, with the home in its environment: all of `podctl` finds it there.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command
            .args(args)
            .env("PODHOST_HOME", &self.home)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Runs it and says how it ended, whatever that is.
    pub async fn run(&self, args: &[&str]) -> Result<Ended> {
        let what = || format!("podctl {}", args.join(" "));
        let run = self.command(args).output();
        let output = tokio::time::timeout(COMMAND_MAX, run)
            .await
            .with_context(|| format!("{} did not end within {COMMAND_MAX:?}", what()))?
            .with_context(what)?;
        Ok(Ended {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Runs it, wants success, gives its output.
    pub async fn ok(&self, args: &[&str]) -> Result<String> {
        let ended = self.run(args).await?;
        let (code, text) = (ended.code, ended.text());
        ensure!(
            code == Some(0),
            "podctl {} ended with {code:?}:\n{text}",
            args.join(" ")
        );
        Ok(ended.stdout)
    }

    /// The same for arguments in an array, whose future borrows nothing but them.
    pub async fn ok_owned<const N: usize>(&self, args: [&str; N]) -> Result<String> {
        self.ok(&args).await
    }

    /// Runs it with `--json`, wants success and JSON of that form.
    pub async fn json<T: DeserializeOwned>(&self, args: &[&str]) -> Result<T> {
        let args = [args, &["--json"]].concat();
        let text = self.ok(&args).await?;
        serde_json::from_str(&text)
            .with_context(|| format!("podctl {} printed:\n{text}", args.join(" ")))
    }

    /// Runs it, wants that exit code, and gives both outputs: what the operator reads.
    pub async fn refused(&self, args: &[&str], code: i32) -> Result<String> {
        let ended = self.run(args).await?;
        let (got, text) = (ended.code, ended.text());
        ensure!(
            got == Some(code),
            "podctl {} ended with {got:?}, not {code}:\n{text}",
            args.join(" ")
        );
        Ok(text)
    }
}
