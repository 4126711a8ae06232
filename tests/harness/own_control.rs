//! A second control server on a fleet's catalog: of the test's own, with fail points, made to lose its moves.
//!
//! The fleet's server must share its catalog for that ([`Fleet::share_catalog`]). Both are frozen only where they hold no
//! lock of the catalog's file: a control server that is stopped inside of a change keeps all others waiting, which is what
//! a shared file means and not what is tested.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use shared::ShopId;
use tokio::process::{Child, Command};
use toml::{Table, Value};

use crate::failpoint::{new_revision, runs_with, set_moves};
use crate::moves::ControlDoor;
use crate::process::{Frozen, Process, binary, free_port};
use crate::{Call, Fleet, wait_until};

/// The catalog is there; it opens it and listens.
const READY_MAX: Duration = Duration::from_secs(20);
/// A free port may be taken between the look and the use.
const PORT_TRIES: u32 = 3;
/// A change of the catalog takes milliseconds, its flush to the disk more on a busy machine.
const UNLOCKED_MAX: Duration = Duration::from_secs(20);
/// Until a signal has stopped every thread, and between two tries to stop a process at a good moment.
const STOPPED_AFTER: Duration = Duration::from_millis(5);

/// The config of a control server that shares its catalog, beside its own.
const SHARED: &str = "control-shared.toml";

/// The fleet's control server as it was before it shared its catalog.
#[derive(Debug)]
pub struct Unshared(String);

impl Fleet {
    /// Starts the control server anew so that others may have its catalog too, with these keys in its `[moves]` table.
    pub async fn share_catalog(&self, moves: &[(&str, Value)]) -> Result<Unshared> {
        let config = self.control_config(SHARED, |config| {
            config.insert("catalog_shared".into(), true.into());
            set_moves(config, moves);
        })?;
        let was = self.control_unit_now()?;
        let mut unit: Table = was.parse().context("the control server's unit")?;
        runs_with(&mut unit, &config)?;
        unit.insert("revision".into(), new_revision("shares").into());
        self.control_runs_as(&unit.to_string()).await?;
        Ok(Unshared(was))
    }

    /// Starts it as it was.
    pub async fn share_catalog_no_more(&self, was: Unshared) -> Result<()> {
        self.control_runs_as(&was.0).await
    }

    /// SIGSTOP to the fleet's control server, while it holds no lock of the catalog.
    pub async fn freeze_control(&self) -> Result<Frozen> {
        freeze_unlocked(self.unit("control")?).await
    }
}

/// The server; it is killed with the value.
#[derive(Debug)]
pub struct OwnControl {
    child: Child,
    home: PathBuf,
    log: PathBuf,
    points: PathBuf,
    /// Its operator's door.
    pub door: ControlDoor,
}

impl OwnControl {
    /// Starts one beside the fleet's, which shares its catalog, and waits until it answers.
    pub async fn start(fleet: &Fleet) -> Result<Self> {
        let mut last = None;
        for _ in 0..PORT_TRIES {
            match Self::try_start(fleet).await {
                Ok(own) => return Ok(own),
                Err(e) if format!("{e:#}").contains("in use") => last = Some(e),
                Err(e) => return Err(e),
            }
        }
        Err(last.context("no free port")?)
    }

    async fn try_start(fleet: &Fleet) -> Result<Self> {
        let rendered = fleet.home().join("control").join(SHARED);
        let text = fs::read_to_string(&rendered).context("the catalog is not shared")?;
        let mut config: Table = text.parse().context("read a config")?;
        let port = free_port()?;
        config.insert("listen".into(), format!("127.0.0.1:{port}").into());
        let file = |kind: &str| rendered.with_file_name(format!("own-{port}.{kind}"));
        fs::write(file("toml"), config.to_string()).context("write a config")?;
        fs::create_dir_all(file("points")).context("make a folder for fail points")?;
        let out = File::create(file("log")).context("make a log")?;
        let child = Command::new(binary("podctl-failpoints")?)
            .args(["serve", "--config"])
            .arg(file("toml"))
            .env("PODHOST_FAILPOINT_DIR", file("points"))
            .stdin(Stdio::null())
            .stdout(out.try_clone().context("make a log")?)
            .stderr(out)
            .kill_on_drop(true)
            .spawn()
            .context("start a control server")?;
        let token_file = fleet.home().join("secrets/operator-token");
        let address = ([127, 0, 0, 1], port).into();
        let mut own = Self {
            child,
            home: fleet.home().to_owned(),
            log: file("log"),
            points: file("points"),
            door: ControlDoor::at(address, &token_file)?,
        };
        own.ready().await?;
        Ok(own)
    }

    async fn ready(&mut self) -> Result<()> {
        let (child, door) = (&mut self.child, &self.door);
        let ready = wait_until("a control server answers", READY_MAX, async || {
            if let Some(status) = child.try_wait().context("look at a control server")? {
                return Ok(Err(status));
            }
            door.send(Call::get("/v1/status")).await?.wants(200)?;
            Ok(Ok(()))
        })
        .await;
        match ready.with_context(|| self.log())? {
            Ok(()) => Ok(()),
            Err(status) => bail!("the control server ended with {status}:\n{}", self.log()),
        }
    }

    /// Sets a fail point of a shop: `<step>.<before|after>` with what is to happen, or `statement` with its number.
    pub fn set(&self, shop: ShopId, place: &str, what: &str) -> Result<()> {
        let part = self.points.join(format!(".{shop}.part"));
        fs::write(&part, what).context("write a fail point")?;
        fs::rename(&part, self.points.join(format!("{shop}.{place}"))).context("set a fail point")
    }

    /// Takes one away that has not happened.
    pub fn unset(&self, shop: ShopId, place: &str) -> bool {
        fs::remove_file(self.points.join(format!("{shop}.{place}"))).is_ok()
    }

    /// Whether it has happened.
    pub fn happened(&self, shop: ShopId, place: &str) -> bool {
        self.points
            .join(format!("{shop}.{place}.happened"))
            .exists()
    }

    /// Lets what stopped there go on, if it did.
    pub fn go_on(&self, shop: ShopId, place: &str) -> bool {
        self.unset(shop, &format!("{place}.happened"))
    }

    /// From now on it does not hear that a move of this shop was lost: it goes on until something refuses it.
    pub fn deafen(&self, shop: ShopId) -> Result<()> {
        self.set(shop, "deaf", "")
    }

    /// Its next runs of the shop's move have no bounds for fence and pause, and their sessions outlive a stop: after it they
    /// are refused, not late.
    pub fn have_patience(&self, shop: ShopId) -> Result<()> {
        self.set(shop, "patient", "")
    }

    /// SIGSTOP, while it holds no lock of the catalog.
    pub async fn freeze(&self) -> Result<Frozen> {
        let pid = self.child.id().context("the control server has ended")?;
        freeze_unlocked(Process::of(&self.home, pid)?).await
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

/// Stops a process where it holds no lock on a part of a file, as SQLite takes them for a change.
async fn freeze_unlocked(process: Process) -> Result<Frozen> {
    let until = Instant::now() + UNLOCKED_MAX;
    loop {
        let frozen = process.freeze()?;
        while !stopped(process.pid())? {
            tokio::time::sleep(STOPPED_AFTER).await;
        }
        let locks = fs::read_to_string("/proc/locks").context("read /proc/locks")?;
        if !holds(&locks, process.pid()) {
            return Ok(frozen);
        }
        drop(frozen);
        ensure!(Instant::now() < until, "always in a change of the catalog");
        tokio::time::sleep(STOPPED_AFTER).await;
    }
}

/// Whether each of its threads is stopped.
fn stopped(pid: u32) -> Result<bool> {
    let tasks = fs::read_dir(Path::new("/proc").join(pid.to_string()).join("task"));
    for task in tasks.context("read the threads of a process")? {
        let stat = task
            .context("read the threads of a process")?
            .path()
            .join("stat");
        // One that has ended meanwhile does nothing.
        let stat = fs::read_to_string(stat).unwrap_or_default();
        let state = stat
            .rsplit(") ")
            .next()
            .and_then(|rest| rest.chars().next());
        if !matches!(state, None | Some('T' | 'Z' | 'X')) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a line of `/proc/locks` says that it holds part of a file for writing: `7: POSIX ADVISORY WRITE <pid> ...`.
fn holds(locks: &str, pid: u32) -> bool {
    let pid = pid.to_string();
    locks.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(1) == Some(&"POSIX")
            && words.get(3) == Some(&"WRITE")
            && words.get(4) == Some(&pid.as_str())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_for_writing_is_seen_and_others_are_not() {
        let locks = "1: POSIX  ADVISORY  READ  70 fe:00:9 124 124\n2: FLOCK  ADVISORY  WRITE 70 fe:00:8 0 EOF\n";
        assert!(!holds(locks, 70));
        let locks = format!("{locks}3: POSIX  ADVISORY  WRITE 70 fe:00:9 120 120\n");
        assert!(holds(&locks, 70) && !holds(&locks, 7));
    }
}
