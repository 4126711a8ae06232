//! Fail points of the mover: a fleet's control server runs as `podctl-failpoints`, which stops, ends, fails or repeats a step
//! of a move at a named place, once.
//!
//! The unit of the control server is rewritten and started anew, so that any running fleet can be used.

use std::fs;
use std::path::{Path, PathBuf};
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
/// The folder in a fleet's home for the fail points of single shops.
pub(crate) const OWN_FAILPOINTS: &str = "failpoints";

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

    /// Takes one away that has not happened.
    pub fn unset(&self, shop: ShopId, place: &str) -> Result<()> {
        fs::remove_file(self.folder.join(format!("{shop}.{place}"))).context("unset a fail point")
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

    /// The next runs of a shop's move have no bounds for fence and pause, and end nothing that holds its home: what a test
    /// does inside of them may take its time. (A limit that is to be seen needs a run without it.)
    pub fn have_patience(&self, shop: ShopId) -> Result<()> {
        self.set(shop, "patient", "")
    }

    /// Its runs that begin from now on have their bounds again.
    pub fn lose_patience(&self, shop: ShopId) -> Result<()> {
        self.unset(shop, "patient")
    }

    /// What reads a pod's binlog for the shop comes no further, until [`Self::see`].
    pub fn be_blind(&self, shop: ShopId, pod: u32) -> Result<()> {
        self.set(shop, &format!("blind-at-{pod}"), "")
    }

    /// It reads on.
    pub fn see(&self, shop: ShopId, pod: u32) -> Result<()> {
        self.unset(shop, &format!("blind-at-{pod}"))
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

/// A revision for a unit that no unit had before: with the one it runs with, nothing would be started anew.
pub(crate) fn new_revision(what: &str) -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("{what}-{}", NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// These are the values of a config's `[moves]` table.
pub(crate) fn set_moves<V: Clone + Into<Value>>(config: &mut Table, moves: &[(&str, V)]) {
    let moves = moves
        .iter()
        .map(|(key, value)| ((*key).to_owned(), value.clone().into()));
    config.insert("moves".into(), Value::Table(moves.collect()));
}

/// A unit of the control server gets another config: the last word of `serve --config <file>`.
pub(crate) fn runs_with(unit: &mut Table, config: &Path) -> Result<()> {
    let command = unit.get_mut("command").and_then(Value::as_array_mut);
    let last = command.and_then(|words| words.last_mut());
    *last.context("a unit without a command")? = config.display().to_string().into();
    Ok(())
}

impl Fleet {
    /// Starts the control server anew with a fail point.
    pub async fn with_failpoint(&self, name: &str) -> Result<FailPoint> {
        let revision = new_revision("failpoint");
        let file = self.home().join(&revision);
        let variables = [
            format!("PODHOST_FAILPOINT={name}"),
            format!("PODHOST_FAILPOINT_FILE={}", file.display()),
        ];
        let unit = self.failpoints_run(&revision, &variables, None).await?;
        Ok(FailPoint {
            name: name.to_owned(),
            file,
            unit,
        })
    }

    /// Starts the control server anew with fail points that can be set for one shop at a time, while it runs.
    pub async fn with_own_failpoints(&self) -> Result<OwnFailPoints> {
        self.with_own_failpoints_and_moves::<i64>(&[]).await
    }

    /// The same with values of its own in the `[moves]` table of `control.toml`.
    pub async fn with_own_failpoints_and_moves<V: Clone + Into<Value>>(
        &self,
        moves: &[(&str, V)],
    ) -> Result<OwnFailPoints> {
        let folder = self.home().join(OWN_FAILPOINTS);
        fs::create_dir_all(&folder).context("make a folder for fail points")?;
        let variables = [format!("PODHOST_FAILPOINT_DIR={}", folder.display())];
        let config = if moves.is_empty() {
            None
        } else {
            let edit = |config: &mut Table| set_moves(config, moves);
            Some(self.control_config("control-own.toml", edit)?)
        };
        let unit = self
            .failpoints_run(&new_revision("failpoints"), &variables, config.as_deref())
            .await?;
        Ok(OwnFailPoints { folder, unit })
    }

    /// A copy of the control server's config beside it, edited.
    pub(crate) fn control_config(
        &self,
        name: &str,
        edit: impl FnOnce(&mut Table),
    ) -> Result<PathBuf> {
        let path = self.home().join("control/control.toml");
        let text = fs::read_to_string(&path).context("read control.toml")?;
        let mut config: Table = text.parse().context("read control.toml")?;
        edit(&mut config);
        let own = path.with_file_name(name);
        fs::write(&own, config.to_string()).context("write a config")?;
        Ok(own)
    }

    /// Starts the control server anew as the binary with fail points; the unit as it was.
    async fn failpoints_run(
        &self,
        revision: &str,
        variables: &[String],
        config: Option<&Path>,
    ) -> Result<String> {
        let unit = self.control_unit_now()?;
        let mut changed: Table = unit.parse().context("the control server's unit")?;
        let command = changed.get("command").and_then(Value::as_array);
        // It may run with fail points already: `env` and its words stand before this.
        let arguments = command
            .context("a unit without a command")?
            .iter()
            .skip_while(|word| word.as_str() != Some("serve"));
        let mut words: Vec<Value> = vec!["/usr/bin/env".into()];
        words.extend(variables.iter().map(|it| it.as_str().into()));
        words.push(binary(BINARY)?.display().to_string().into());
        words.extend(arguments.cloned());
        changed.insert("command".into(), Value::Array(words));
        if let Some(config) = config {
            runs_with(&mut changed, config)?;
        }
        changed.insert("revision".into(), revision.into());
        self.control_runs_as(&changed.to_string()).await?;
        Ok(unit)
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

    /// The control server's unit.
    pub(crate) fn control_unit_now(&self) -> Result<String> {
        let path = self.home().join("units").join(format!("{UNIT}.toml"));
        fs::read_to_string(path).context("read the unit of the control server")
    }

    /// Writes the control server's unit, and waits until it runs like that and answers.
    pub(crate) async fn control_runs_as(&self, unit: &str) -> Result<()> {
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
