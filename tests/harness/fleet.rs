//! A whole fleet: started by `podctl up`, stopped with asserts that nothing of it remains.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use parking_lot::Mutex;
use regex::Regex;
use serde::Deserialize;
use shared::keys::{FleetKeys, PodKeys};
use shared::{Epoch, PodId, ShopId};
use tempfile::TempDir;

use crate::podctl::Podctl;
use crate::process::{Process, kill_all_of, processes_of};
use crate::{Edge, PodDoor, Server, Shop, Status, logs, status, wait_until};

mod left;
mod units;
mod up;
pub(crate) use left::Left;
pub use units::RECOVER_MAX;
pub use up::Halt;
use up::{STOP_MAX, Terminal, end_of, spawn_up, stop_up, up_log};

/// Six database servers and the rest start in seconds; this is for a machine that builds meanwhile.
const READY_MAX: Duration = Duration::from_secs(180);
/// A new shop is at the edge after one change of the long poll, which comes sooner than the end of a poll without one (30 s).
const SHOP_READY_MAX: Duration = Duration::from_secs(25);

/// The fleet. Dropping it stops it.
#[derive(Debug)]
pub struct Fleet {
    folder: Option<TempDir>,
    home: PathBuf,
    /// Runs `podctl` for this fleet.
    pub podctl: Podctl,
    /// The door for buyers.
    pub edge: Edge,
    up: Mutex<Option<Child>>,
    served: bool,
    /// Whether the stop left nothing behind; none before the stop.
    clean: Mutex<Option<bool>>,
    /// Whether its home is needed to find out why a test failed.
    kept: AtomicBool,
    announced: Mutex<Vec<Regex>>,
    /// The unit of the control server as the start made it; tests put their own in its place.
    control_unit: String,
    /// Whom it tells what it has left behind.
    left: Left,
    shops: AtomicU32,
    /// A shop on each pod by which the harness sees whether the pod sells.
    canaries: tokio::sync::Mutex<BTreeMap<u32, Shop>>,
}

impl Fleet {
    /// A fleet as `podctl up` makes it from nothing, without the demo shops.
    pub async fn start() -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("ph-")
            .tempdir()
            .context("make a home")?;
        let home = folder.path().join("home");
        fs::create_dir(&home).context("make a home")?;
        Self::start_in(folder, home).await
    }

    /// The same on a home that was prepared.
    pub async fn start_in(folder: TempDir, home: PathBuf) -> Result<Self> {
        let podctl = Podctl::new(&home)?;
        let up = spawn_up(&podctl, folder.path(), &home, Terminal::EndsIt)?;
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 9));
        let mut fleet = Self {
            folder: Some(folder),
            home,
            podctl,
            edge: Edge::new(nowhere)?,
            up: Mutex::new(Some(up)),
            served: false,
            clean: Mutex::new(None),
            kept: AtomicBool::new(false),
            announced: Mutex::new(Vec::new()),
            control_unit: String::new(),
            left: Left::here(),
            shops: AtomicU32::new(0),
            canaries: tokio::sync::Mutex::default(),
        };
        fleet.ready().await?;
        let status = fleet.status().await?;
        let edge = status.edges.first().context("the fleet has no edge")?;
        fleet.edge = Edge::new(status::address(&edge.http)?)?;
        fleet.control_unit = fleet.control_unit_now()?;
        fleet.served = true;
        Ok(fleet)
    }

    /// Waits for the file that says that everything serves.
    pub async fn ready(&self) -> Result<()> {
        let file = self.home.join("ready");
        let started = Instant::now();
        loop {
            let ended = match self.up.lock().as_mut() {
                // One that was killed leaves its mark behind: the mark names its process.
                Some(up) if marked_by(&file, up.id()) => return Ok(()),
                Some(up) => up.try_wait().context("look at podctl up")?,
                None => bail!("the fleet was stopped"),
            };
            if ended.is_some() || started.elapsed() > READY_MAX {
                let how = ended.map_or("does not get ready".to_owned(), |s| format!("ended: {s}"));
                bail!(
                    "podctl up {how} after {:?}:\n{}",
                    started.elapsed(),
                    self.up_log()
                );
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The home folder.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// What `podctl up` has printed.
    pub fn up_log(&self) -> String {
        let path = up_log(self.home.parent().unwrap_or(&self.home));
        fs::read_to_string(path).unwrap_or_default()
    }

    /// The process of `podctl up`.
    pub fn up_process(&self) -> Result<Process> {
        let up = self.up.lock();
        Process::of(
            &self.home,
            up.as_ref().context("the fleet was stopped")?.id(),
        )
    }

    /// What `podctl status` says now.
    pub async fn status(&self) -> Result<Status> {
        self.podctl.json(&["status"]).await
    }

    /// ERROR lines that the test is about to provoke; all others fail the stop.
    pub fn announce_error(&self, pattern: &str) -> Result<()> {
        self.announced
            .lock()
            .push(Regex::new(pattern).context("a pattern of log lines")?);
        Ok(())
    }

    /// A new shop on a pod, with a merchant's token, reachable through the edge.
    pub async fn shop(&self, pod: u32) -> Result<Shop> {
        let number = self.shops.fetch_add(1, Ordering::Relaxed);
        self.shop_named(&format!("shop-{number}"), pod).await
    }

    /// The same by name.
    pub async fn shop_named(&self, handle: &str, pod: u32) -> Result<Shop> {
        #[derive(Deserialize)]
        struct Created {
            id: ShopId,
            hosts: Vec<String>,
            epoch: Epoch,
        }
        let pod_arg = pod.to_string();
        let created: Created = self
            .podctl
            .json(&["shop", "create", handle, "--pod", &pod_arg])
            .await?;
        let shop = Shop {
            id: created.id,
            handle: handle.to_owned(),
            host: created
                .hosts
                .first()
                .context("a shop without a host")?
                .clone(),
            pod: PodId::try_from(u64::from(pod)).context("a pod id")?,
            epoch: created.epoch,
            token: self.token(handle).await?,
            edge: self.edge.clone(),
        };
        wait_until("a new shop answers", SHOP_READY_MAX, async || {
            shop.get("/api/v1/products").await?.wants(200)
        })
        .await?;
        Ok(shop)
    }

    /// A new merchant's token.
    pub async fn token(&self, shop: &str) -> Result<String> {
        #[derive(Deserialize)]
        struct Token {
            token: String,
        }
        Ok(self
            .podctl
            .json::<Token>(&["shop", "token", shop])
            .await?
            .token)
    }

    /// The keys of a pod.
    pub fn pod_keys(&self, pod: PodId) -> Result<PodKeys> {
        let path = self.home.join("secrets/fleet-key");
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        Ok(FleetKeys::parse(&text)
            .context("read the fleet key")?
            .pod(pod))
    }

    /// The first process of a pod, past the edge.
    pub async fn pod_door(&self, pod: PodId) -> Result<PodDoor> {
        let status = self.status().await?;
        let address = status::address(&status.pod(pod_number(pod)?)?.http)?;
        PodDoor::new(address, pod, self.pod_keys(pod)?)
    }

    /// The primary of a pod under the operator's account.
    pub async fn primary(&self, pod: u32) -> Result<Server> {
        let status = self.status().await?;
        let mysql = &status.pod(pod)?.mysql;
        Server::operator(mysql, &mysql.primary)
    }

    /// The replicas of a pod under the operator's account.
    pub async fn replicas(&self, pod: u32) -> Result<Vec<Server>> {
        let status = self.status().await?;
        let mysql = &status.pod(pod)?.mysql;
        mysql
            .replicas
            .iter()
            .map(|server| Server::operator(mysql, server))
            .collect()
    }

    /// The rendered config of the first edge.
    pub fn edge_config(&self) -> Result<PathBuf> {
        let folder = self.home.join("edge");
        let edges = fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))?;
        let mut names: Vec<_> = edges.flatten().map(|edge| edge.path()).collect();
        names.sort();
        Ok(names
            .first()
            .context("the fleet has no edge")?
            .join("edge.toml"))
    }

    /// SIGTERM (or SIGINT) to `podctl up`, and everything that must be true afterwards.
    pub async fn stop(self) -> Result<()> {
        tokio::task::spawn_blocking(move || self.shut_down())
            .await
            .context("stop the fleet")?
    }

    /// Stops `podctl up` and leaves the home for a second start.
    pub async fn halt(&self, signal: Halt) -> Result<Duration> {
        let process = self.up_process()?;
        let started = Instant::now();
        match signal {
            Halt::Terminate => process.terminate()?,
            Halt::Interrupt => process.interrupt()?,
            Halt::HangUp => process.hang_up()?,
            Halt::Kill => process.kill().await?,
        }
        let up = self.up.lock().take();
        tokio::task::spawn_blocking(move || up.map_or(Ok(()), |up| end_of(up, STOP_MAX)))
            .await
            .context("wait for podctl up")??;
        Ok(started.elapsed())
    }

    /// Starts `podctl up` again on the same home.
    pub async fn start_again(&self) -> Result<()> {
        self.start_again_at(Terminal::EndsIt).await
    }

    /// The same by `nohup`.
    pub async fn start_again_for_good(&self) -> Result<()> {
        self.start_again_at(Terminal::IsNothing).await
    }

    async fn start_again_at(&self, terminal: Terminal) -> Result<()> {
        let folder = self.home.parent().context("a home has a folder above it")?;
        *self.up.lock() = Some(spawn_up(&self.podctl, folder, &self.home, terminal)?);
        self.ready().await
    }

    /// A test has failed on it: its home stays when it is dropped.
    pub(crate) fn keep(&self) {
        self.kept.store(true, Ordering::Relaxed);
    }

    /// Stops everything and says what remained; a second call finds nothing to do.
    pub(crate) fn shut_down(&self) -> Result<()> {
        let mut clean = self.clean.lock();
        if clean.is_none() {
            let ended = self.shut_down_once();
            *clean = Some(ended.is_ok());
            return ended;
        }
        Ok(())
    }

    fn shut_down_once(&self) -> Result<()> {
        let up = self.up.lock().take();
        let ended = match up {
            None => Ok(()),
            Some(up) => stop_up(&self.home, up),
        };
        let left = kill_all_of(&self.home)?;
        ended?;
        ensure!(
            left.is_empty(),
            "processes of the fleet were left behind: {left:#?}"
        );
        let faults = logs::faults(&self.home, &self.announced.lock())?;
        ensure!(
            faults.is_empty(),
            "in the logs of the fleet:\n{}",
            faults.join("\n")
        );
        Ok(())
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // A test that has a fleet of its own stops it, unless it failed before.
        let left = self.clean.lock().is_none();
        let ended = self.shut_down();
        let clean = *self.clean.lock() == Some(true);
        let failed = left || self.kept.load(Ordering::Relaxed) || std::thread::panicking();
        let keep = !clean || failed || !self.served;
        if let Some(folder) = self.folder.take()
            && (keep || std::env::var_os("PODHOST_TEST_KEEP").is_some())
        {
            say(&format!(
                "the fleet's home is kept in {}",
                folder.keep().display()
            ));
        }
        // One that never served has failed its test already. So may others: then this is not what the test says.
        if let Err(fault) = ended
            && self.served
        {
            say(&format!("{fault:#}"));
            self.left.note(format!("{fault:#}"));
        }
    }
}

/// One line for a developer: figures, or what is needed after a failure.
#[expect(
    clippy::print_stderr,
    reason = "a run of tests is watched in a terminal"
)]
pub fn say(text: &str) {
    eprintln!("{text}");
}

/// The processes of a fleet that run now; for tests of the stop itself.
pub fn running(fleet: &Fleet) -> Result<Vec<(u32, String)>> {
    processes_of(&fleet.home)
}

fn marked_by(ready: &Path, pid: u32) -> bool {
    #[derive(Deserialize)]
    struct Ready {
        pid: u32,
    }
    let text = fs::read_to_string(ready).unwrap_or_default();
    serde_json::from_str::<Ready>(&text).is_ok_and(|ready| ready.pid == pid)
}

fn pod_number(pod: PodId) -> Result<u32> {
    pod.to_string().parse().context("a pod id")
}
