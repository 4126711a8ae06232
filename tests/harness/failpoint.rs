//! Fail points of the mover: a fleet's control server runs as `podctl-failpoints`, which stops, ends, fails or repeats a step
//! of a move at a named place, once.
//!
//! The unit of the control server is rewritten and started anew, so that any running fleet can be used.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use shared::ShopId;
use tokio::process::Command;
use toml::{Table, Value};

use crate::fleet::RECOVER_MAX;
use crate::process::binary;
use crate::{Fleet, wait_until};

const BINARY: &str = "podctl-failpoints";
const UNIT: &str = "control";

/// A fail point that a fleet's control server runs with.
#[derive(Debug)]
pub struct FailPoint {
    /// What it is, `<step>:<before|after>:<stop|kill|error|twice>`.
    pub name: String,
    /// Made when it happens. A stopped step waits while it is there.
    file: PathBuf,
    /// The unit as it was.
    unit: String,
}

impl FailPoint {
    /// Waits until it happens.
    pub async fn happens(&self, deadline: Duration) -> Result<()> {
        wait_until(&format!("{} happens", self.name), deadline, async || {
            ensure!(self.file.exists(), "not yet");
            Ok(())
        })
        .await
    }

    /// Lets a stopped step go on. It can happen again.
    pub fn go_on(&self) -> Result<()> {
        fs::remove_file(&self.file).with_context(|| format!("let {} go on", self.name))
    }
}

/// Fail points of single shops.
#[derive(Debug)]
pub struct OwnFailPoints {
    folder: PathBuf,
    /// The unit as it was.
    unit: String,
}

impl OwnFailPoints {
    /// Sets one: `<step>.<before|after>`, and `stop`, `kill`, `error`, `fail` or `twice`.
    pub fn set(&self, shop: ShopId, place: &str, what: &str) -> Result<()> {
        let part = self.folder.join(format!(".{shop}.part"));
        fs::write(&part, what).context("write a fail point")?;
        fs::rename(&part, self.folder.join(format!("{shop}.{place}"))).context("set a fail point")
    }

    /// Waits until it happens.
    pub async fn happens(&self, shop: ShopId, place: &str, deadline: Duration) -> Result<()> {
        let file = self.happened(shop, place);
        wait_until(
            &format!("{place} of shop {shop} happens"),
            deadline,
            async || {
                ensure!(file.exists(), "not yet");
                Ok(())
            },
        )
        .await
    }

    /// Whether it has happened; forgets it, which lets a stopped step go on.
    pub fn go_on(&self, shop: ShopId, place: &str) -> bool {
        fs::remove_file(self.happened(shop, place)).is_ok()
    }

    fn happened(&self, shop: ShopId, place: &str) -> PathBuf {
        self.folder.join(format!("{shop}.{place}.happened"))
    }
}

/// The steps that have fail points, as the binary names them.
pub async fn steps() -> Result<Vec<String>> {
    let output = Command::new(binary(BINARY)?).arg("failpoints").output();
    let output = output.await.context("ask for the fail points")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{text}");
    let words = text.split_whitespace().map(str::to_owned);
    Ok(words.collect())
}

impl Fleet {
    /// Starts the control server anew with a fail point.
    pub async fn with_failpoint(&self, name: &str) -> Result<FailPoint> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = self.home().join("units").join(format!("{UNIT}.toml"));
        let unit = fs::read_to_string(&path).context("read the unit of the control server")?;
        let file = self.home().join(format!("failpoint-{number}"));
        let point = FailPoint {
            name: name.to_owned(),
            file,
            unit,
        };
        let mut changed: Table = point.unit.parse().context("the control server's unit")?;
        let command = changed.get("command").and_then(Value::as_array);
        let arguments = command.context("a unit without a command")?.iter().skip(1);
        let mut words: Vec<Value> = vec![
            "/usr/bin/env".into(),
            format!("PODHOST_FAILPOINT={name}").into(),
            format!("PODHOST_FAILPOINT_FILE={}", point.file.display()).into(),
            binary(BINARY)?.display().to_string().into(),
        ];
        words.extend(arguments.cloned());
        changed.insert("command".into(), Value::Array(words));
        changed.insert("revision".into(), format!("failpoint-{number}").into());
        self.control_runs_as(&changed.to_string()).await?;
        Ok(point)
    }

    /// Starts the control server anew with fail points that can be set for one shop at a time, while it runs.
    pub async fn with_own_failpoints(&self) -> Result<OwnFailPoints> {
        let path = self.home().join("units").join(format!("{UNIT}.toml"));
        let unit = fs::read_to_string(&path).context("read the unit of the control server")?;
        let folder = self.home().join("failpoints");
        fs::create_dir_all(&folder).context("make a folder for fail points")?;
        let mut changed: Table = unit.parse().context("the control server's unit")?;
        let command = changed.get("command").and_then(Value::as_array);
        let arguments = command.context("a unit without a command")?.iter().skip(1);
        let mut words: Vec<Value> = vec![
            "/usr/bin/env".into(),
            format!("PODHOST_FAILPOINT_DIR={}", folder.display()).into(),
            binary(BINARY)?.display().to_string().into(),
        ];
        words.extend(arguments.cloned());
        changed.insert("command".into(), Value::Array(words));
        changed.insert("revision".into(), "failpoints".into());
        self.control_runs_as(&changed.to_string()).await?;
        Ok(OwnFailPoints { folder, unit })
    }

    /// Starts the control server as it was before.
    pub async fn without_own_failpoints(&self, points: OwnFailPoints) -> Result<()> {
        self.control_runs_as(&points.unit).await?;
        fs::remove_dir_all(&points.folder).context("tidy up")
    }

    /// Starts the control server as it was before.
    pub async fn without_failpoint(&self, point: FailPoint) -> Result<()> {
        self.control_runs_as(&point.unit).await?;
        match fs::remove_file(&point.file) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e).context("tidy up"),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Writes the control server's unit, and waits until it runs like that and answers.
    async fn control_runs_as(&self, unit: &str) -> Result<()> {
        #[derive(Deserialize)]
        struct Run {
            revision: String,
            pid: Option<u32>,
        }
        let wanted: Table = unit.parse().context("a unit")?;
        let revision = wanted.get("revision").and_then(Value::as_str);
        let revision = revision.context("a unit without a revision")?;
        let units = self.home().join("units");
        let part = self.home().join(format!("{UNIT}.part"));
        fs::write(&part, unit).context("write a unit")?;
        fs::rename(&part, units.join(format!("{UNIT}.toml"))).context("write a unit")?;
        let run = self.home().join("run").join(format!("{UNIT}.json"));
        wait_until("the control server runs anew", RECOVER_MAX, async || {
            let text = fs::read_to_string(&run).context("how it runs")?;
            let run: Run = serde_json::from_str(&text).with_context(|| text.clone())?;
            ensure!(run.revision == revision && run.pid.is_some(), "{text}");
            self.status().await.map(drop)
        })
        .await
    }
}
