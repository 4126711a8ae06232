//! Units: what the supervisor shall run (`units/<name>.toml`, the wish) and what it runs (`run/<name>.json`, the fact).
//!
//! The two folders are the whole interface between the supervisor in `podctl up` and every other `podctl`: whoever wants
//! something writes the wish, and reads the fact until it is so. Files are replaced whole, so there is no half wish.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use shared::PodId;

use crate::home_dir::{FleetLock, HomeDir, write_atomically};

// Processes by id: told apart from later ones with the same id, and signalled without mistaking one for another.
pub mod proc;

/// What a unit is; the order is that of a fleet's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The control server.
    Control,
    /// A cache.
    Redis,
    /// A database server.
    Mysql,
    /// A pod's process.
    Pod,
    /// An edge.
    Edge,
}

impl Kind {
    /// How long a process of this kind has for ending by itself before it is killed. In all they stay below the 20 s that
    /// the fleet has: edges (they finish answers), pods, primaries, replicas, caches, control server, in this order.
    pub const fn patience(self) -> Duration {
        match self {
            Self::Edge | Self::Pod => Duration::from_secs(3),
            // Twice: primaries, then replicas. A server takes more than a second even with nothing to do.
            Self::Mysql => Duration::from_secs(4),
            Self::Redis | Self::Control => Duration::from_secs(1),
        }
    }
}

/// What is wanted of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Desired {
    /// Started, and started again when it dies.
    Running,
    /// Ended, and left so.
    Stopped,
}

/// How a unit is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stop {
    /// SIGTERM, and SIGKILL when its patience is over.
    Term,
    /// A database server: one that takes writes is first put into `offline_mode`, and killed if a session still waits for a
    /// replica's acknowledgement: an ordinary stop would tell that client that its commit is safe.
    Mysql,
}

/// Where a unit is reached.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    /// URL of what it serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<String>,
    /// URL of its health and metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin: Option<String>,
    /// Port of a database server or a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Socket file of a database server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
}

/// The wish for one process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unit {
    /// Unique in the fleet; the names of its files.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// The pod it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodId>,
    /// Program and arguments.
    pub command: Vec<String>,
    /// What is wanted.
    pub desired: Desired,
    /// How it is ended.
    pub stop: Stop,
    /// Changes with its configuration: another one means a restart.
    pub revision: String,
    /// Where it is reached.
    #[serde(default)]
    pub facts: Facts,
}

/// How far a unit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It has a process.
    Running,
    /// It died or could not be started, and will be started again shortly.
    Waiting,
    /// It is being ended.
    Stopping,
    /// It has no process and shall have none.
    Stopped,
}

/// What the supervisor runs for a unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunState {
    /// Its process.
    pub pid: Option<u32>,
    /// When that was started, Unix milliseconds.
    pub started_ms: Option<u64>,
    /// How often it was started again since `podctl up` began.
    pub restarts: u64,
    /// How far it is.
    pub state: State,
    /// The revision of the wish that the process was started with.
    pub revision: String,
    /// How the last process ended, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_exit: Option<String>,
}

impl Unit {
    /// Writes the wish; the supervisor sees it within [`crate::supervisor::LOOK_EVERY`].
    pub fn save(&self, home: &HomeDir) -> anyhow::Result<()> {
        let text = toml::to_string(self).with_context(|| format!("write unit {}", self.name))?;
        Ok(write_atomically(
            &home.unit_file(&self.name),
            text.as_bytes(),
            0o600,
        )?)
    }

    /// Reads the wish; none if there is no such unit.
    pub fn load(home: &HomeDir, name: &str) -> anyhow::Result<Option<Self>> {
        let path = home.unit_file(name);
        let text = match std::fs::read_to_string(&path) {
            Err(fault) if fault.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            text => text.with_context(|| format!("read {}", path.display()))?,
        };
        let unit =
            toml::from_str(&text).with_context(|| format!("understand {}", path.display()))?;
        Ok(Some(unit))
    }

    /// Every wish, by start order and name.
    pub fn all(home: &HomeDir) -> anyhow::Result<Vec<Self>> {
        let folder = home.units();
        let entries =
            std::fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))?;
        let mut units = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            // A name with a dot in front is a file that is being written.
            let name = name.to_str().and_then(|n| n.strip_suffix(".toml"));
            if let Some(name) = name.filter(|n| !n.starts_with('.')) {
                units.extend(Self::load(home, name)?);
            }
        }
        units.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
        Ok(units)
    }
}

impl RunState {
    /// What the supervisor says of a unit. None while it has said nothing, or when no supervisor is there.
    pub fn load(home: &HomeDir, name: &str) -> Option<Self> {
        let text = std::fs::read(home.run_file(name)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Says it.
    pub(crate) fn save(&self, home: &HomeDir, name: &str) -> anyhow::Result<()> {
        let text = serde_json::to_vec(self)?;
        Ok(write_atomically(&home.run_file(name), &text, 0o600)?)
    }
}

/// Every unit with what is run for it; nothing is run when no `podctl up` is there.
pub fn list(home: &HomeDir) -> anyhow::Result<Vec<(Unit, Option<RunState>)>> {
    let supervised = FleetLock::holder(&home.lock_file()).is_some();
    let run = |unit: &Unit| {
        supervised
            .then(|| RunState::load(home, &unit.name))
            .flatten()
    };
    Ok(Unit::all(home)?
        .into_iter()
        .map(|unit| {
            let run = run(&unit);
            (unit, run)
        })
        .collect())
}

/// What an operator may want of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Run it.
    Start,
    /// End it and leave it so.
    Stop,
    /// SIGKILL, now. The supervisor starts it again if it shall run.
    Kill,
}

/// Gives an order and, for start and stop, waits until it is so. `within` bounds the wait.
pub async fn order(
    home: &HomeDir,
    name: &str,
    order: Order,
    within: Duration,
) -> anyhow::Result<()> {
    let Some(mut unit) = Unit::load(home, name)? else {
        let names: Vec<_> = Unit::all(home)?.into_iter().map(|u| u.name).collect();
        bail!("there is no unit {name:?}; there are: {}", names.join(", "));
    };
    if FleetLock::holder(&home.lock_file()).is_none() {
        bail!(
            "no `podctl up` runs this fleet ({}): start it first",
            home.path().display()
        );
    }
    let state = match order {
        Order::Kill => {
            return process(home, name).await?.kill();
        }
        Order::Start => State::Running,
        Order::Stop => State::Stopped,
    };
    unit.desired = if state == State::Running {
        Desired::Running
    } else {
        Desired::Stopped
    };
    unit.save(home)?;
    wait_for(home, &unit, state, within).await
}

/// A process that has just been made shows whose it is a moment later.
const SHOWN_WITHIN: Duration = Duration::from_millis(500);

/// The process that a unit has now.
async fn process(home: &HomeDir, name: &str) -> anyhow::Result<proc::Process> {
    let began = tokio::time::Instant::now();
    loop {
        let pid = RunState::load(home, name).and_then(|run| run.pid);
        let pid = pid.with_context(|| format!("unit {name} has no process just now"))?;
        match proc::Process::open(pid, &proc::Mark::new(home, name)) {
            Some(process) => return Ok(process),
            None if began.elapsed() > SHOWN_WITHIN => {
                bail!("unit {name}'s process {pid} has just ended")
            }
            None => tokio::time::sleep(LOOK_AGAIN).await,
        }
    }
}

/// How often somebody who waits for a unit looks.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Waits until the supervisor says that a unit is in a state, with the revision wished for.
pub(crate) async fn wait_for(
    home: &HomeDir,
    unit: &Unit,
    state: State,
    within: Duration,
) -> anyhow::Result<()> {
    let began = tokio::time::Instant::now();
    loop {
        let run = RunState::load(home, &unit.name);
        let there = run.as_ref().is_some_and(|run| {
            run.state == state && (state == State::Stopped || run.revision == unit.revision)
        });
        if there {
            return Ok(());
        }
        if began.elapsed() > within {
            let why = run
                .and_then(|run| run.last_exit)
                .unwrap_or_else(|| "it has not said why".into());
            bail!(
                "unit {} is not {state:?} after {within:?} ({why}); its log is {}",
                unit.name,
                home.log_file(&unit.name).display()
            );
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(name: &str, kind: Kind) -> Unit {
        Unit {
            name: name.into(),
            kind,
            pod: PodId::new(1).ok(),
            command: vec!["sleep".into(), "1".into()],
            desired: Desired::Running,
            stop: Stop::Term,
            revision: "r1".into(),
            facts: Facts {
                port: Some(1),
                ..Facts::default()
            },
        }
    }

    #[test]
    fn wishes_are_read_back_in_start_order() {
        let folder = tempfile::tempdir().unwrap();
        let home = HomeDir::at(folder.path()).create().unwrap();
        for (name, kind) in [
            ("edge-1", Kind::Edge),
            ("control", Kind::Control),
            ("mysql-1-1", Kind::Mysql),
        ] {
            unit(name, kind).save(&home).unwrap();
        }
        // A file that is being written is nobody's wish yet.
        std::fs::write(home.units().join(".mysql-1-2.toml.1.part"), "half").unwrap();
        let names: Vec<_> = Unit::all(&home)
            .unwrap()
            .into_iter()
            .map(|u| u.name)
            .collect();
        assert_eq!(names, ["control", "mysql-1-1", "edge-1"]);
        assert_eq!(
            Unit::load(&home, "edge-1").unwrap().unwrap(),
            unit("edge-1", Kind::Edge)
        );
        assert_eq!(Unit::load(&home, "none").unwrap(), None);
    }

    #[test]
    fn a_wish_with_an_unknown_key_names_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let home = HomeDir::at(folder.path()).create().unwrap();
        std::fs::write(home.unit_file("x"), "nmae = \"x\"").unwrap();
        let fault = format!("{:#}", Unit::load(&home, "x").unwrap_err());
        assert!(
            fault.contains("x.toml") && fault.contains("nmae"),
            "{fault}"
        );
    }

    #[test]
    fn the_patience_of_all_kinds_in_turn_fits_the_time_to_stop() {
        let mysql = Kind::Mysql.patience();
        let all = [Kind::Edge, Kind::Pod, Kind::Redis, Kind::Control].map(Kind::patience);
        let sum = all.into_iter().sum::<Duration>() + mysql + mysql;
        // Servers that do not answer are found out three times: who is primary, then before each end.
        let asked = 3 * crate::mysqld::admin::STOP_ANSWER_WITHIN;
        assert!(
            sum + asked <= crate::supervisor::ORDERED_WITHIN,
            "{sum:?} and {asked:?}"
        );
    }

    #[tokio::test]
    async fn an_order_for_a_unit_that_is_not_there_lists_those_that_are() {
        let folder = tempfile::tempdir().unwrap();
        let home = HomeDir::at(folder.path()).create().unwrap();
        unit("redis-1", Kind::Redis).save(&home).unwrap();
        let fault = order(&home, "redis", Order::Stop, Duration::ZERO)
            .await
            .unwrap_err()
            .to_string();
        assert!(fault.contains("redis-1"), "{fault}");
        let fault = order(&home, "redis-1", Order::Stop, Duration::ZERO)
            .await
            .unwrap_err()
            .to_string();
        assert!(fault.contains("no `podctl up`"), "{fault}");
    }
}
