//! A pod process of the test's own, with an edited config, beside those of the fleet: behind a proxy, with another
//! limit, with another pod's secrets.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use shared::PodId;
use tokio::process::{Child, Command};
use toml::{Table, Value};

use crate::process::{Process, binary, free_port};
use crate::{Fleet, PodDoor, wait_until};

/// Connections, start-up checks, first health look, on a machine that has more to do.
const READY_MAX: Duration = Duration::from_secs(45);
/// A free port may be taken between the look and the use.
const PORT_TRIES: u32 = 3;

/// The process; it is killed with the value.
#[derive(Debug)]
pub struct OwnPod {
    child: Child,
    home: PathBuf,
    log: PathBuf,
    /// Its door.
    pub door: PodDoor,
    /// Health and metrics, `host:port`.
    pub admin: String,
}

impl OwnPod {
    /// The config of a pod's first process as the fleet rendered it.
    pub fn config_of(fleet: &Fleet, pod: PodId) -> Result<Table> {
        let path = fleet.home().join(format!("pod-{pod}/pod-1.toml"));
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        text.parse()
            .with_context(|| format!("read {}", path.display()))
    }

    /// Starts a process on that config, with ports of its own, and waits until it is ready.
    pub async fn start(fleet: &Fleet, pod: PodId, edit: impl Fn(&mut Table)) -> Result<Self> {
        Self::start_binary("pod", fleet, pod, edit).await
    }

    /// The same with another application on the pod library.
    pub async fn start_binary(
        name: &str,
        fleet: &Fleet,
        pod: PodId,
        edit: impl Fn(&mut Table),
    ) -> Result<Self> {
        let mut last = None;
        for _ in 0..PORT_TRIES {
            match Self::try_start(name, fleet, pod, &edit).await {
                Ok(own) => return Ok(own),
                Err(e) if format!("{e:#}").contains("in use") => last = Some(e),
                Err(e) => return Err(e),
            }
        }
        Err(last.context("no free port")?)
    }

    async fn try_start(
        name: &str,
        fleet: &Fleet,
        pod: PodId,
        edit: &impl Fn(&mut Table),
    ) -> Result<Self> {
        let mut config = Self::config_of(fleet, pod)?;
        let (http, admin) = (free_port()?, free_port()?);
        config.insert("process".into(), Value::Integer(9));
        let listen = Value::String(format!("127.0.0.1:{http}"));
        let listen = match config.get("listen") {
            Some(Value::Array(_)) => Value::Array(vec![listen]),
            _ => listen,
        };
        config.insert("listen".into(), listen);
        config.insert("admin".into(), Value::String(format!("127.0.0.1:{admin}")));
        edit(&mut config);
        // Beside the rendered one, since paths in a config start at its folder.
        let folder = fleet.home().join(format!("pod-{pod}"));
        let (file, log) = (
            folder.join(format!("own-{http}.toml")),
            folder.join(format!("own-{http}.log")),
        );
        fs::write(&file, config.to_string()).context("write a config")?;
        let out = File::create(&log).context("make a log")?;
        let child = Command::new(binary(name)?)
            .arg("--config")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(out.try_clone().context("make a log")?)
            .stderr(out)
            .kill_on_drop(true)
            .spawn()
            .context("start a pod process")?;
        let address = format!("127.0.0.1:{http}").parse().context("an address")?;
        let door = PodDoor::new(address, pod, fleet.pod_keys(pod)?)?;
        let mut own = Self {
            child,
            home: fleet.home().to_owned(),
            log,
            door,
            admin: format!("127.0.0.1:{admin}"),
        };
        own.ready().await?;
        Ok(own)
    }

    async fn ready(&mut self) -> Result<()> {
        let url = format!("http://{}/readyz", self.admin);
        let child = &mut self.child;
        let log = self.log.clone();
        let ready = wait_until("a pod process is ready", READY_MAX, async || {
            if let Some(status) = child.try_wait().context("look at a pod process")? {
                return Ok(Err(status));
            }
            let answer = reqwest::get(&url).await.context("ask readyz")?;
            ensure!(
                answer.status() == 200,
                "{}",
                answer.text().await.unwrap_or_default()
            );
            Ok(Ok(()))
        })
        .await;
        match ready.with_context(|| read(&log))? {
            Ok(()) => Ok(()),
            Err(status) => bail!("the pod process ended with {status}:\n{}", read(&log)),
        }
    }

    /// The process, for signals.
    pub fn process(&self) -> Result<Process> {
        Process::of(
            &self.home,
            self.child.id().context("the pod process has ended")?,
        )
    }

    /// Its log.
    pub fn log(&self) -> String {
        read(&self.log)
    }

    /// Points the primary of a config at another port: a proxy's.
    pub fn primary_at(config: &mut Table, port: u16) {
        if let Some(Value::Table(mysql)) = config.get_mut("mysql")
            && let Some(Value::Table(primary)) = mysql.get_mut("primary")
        {
            primary.insert("port".into(), Value::Integer(port.into()));
        }
    }

    /// The port of the primary in a config.
    pub fn primary_port(config: &Table) -> Result<u16> {
        let port = config
            .get("mysql")
            .and_then(|m| m.get("primary"))
            .and_then(|p| p.get("port"));
        let port = port
            .and_then(Value::as_integer)
            .context("a config without mysql.primary.port")?;
        u16::try_from(port).context("a port")
    }
}

/// Runs a binary on a config that it must refuse; its exit code and what it said.
pub async fn refused(name: &str, config: &Path) -> Result<(Option<i32>, String)> {
    let run = Command::new(binary(name)?)
        .arg("--config")
        .arg(config)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(READY_MAX, run)
        .await
        .with_context(|| format!("{name} neither ended nor refused its config"))?
        .with_context(|| format!("run {name}"))?;
    let text = [output.stdout, output.stderr].concat();
    Ok((
        output.status.code(),
        String::from_utf8_lossy(&text).into_owned(),
    ))
}

fn read(log: &Path) -> String {
    fs::read_to_string(log).unwrap_or_default()
}
