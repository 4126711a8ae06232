//! An edge of the test's own, with an edited config, beside that of the fleet: impatient, or soon stale.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use toml::{Table, Value};

use crate::fleet::RECOVER_MAX;
use crate::process::{binary, free_port};
use crate::{Edge, Fleet, Shop, wait_until};

/// A table of a few shops loads in milliseconds; this is for a machine that has more to do.
const READY_MAX: Duration = Duration::from_secs(30);

/// A patient edge: how long it parks a request, how long a shop may be fenced, how long an answer may take. A fence that a
/// test holds stands for as long as the machine needs for what the test does meanwhile.
const PATIENT: [(&str, &str, &str); 3] = [
    ("park", "window", "60s"),
    ("park", "fence_max", "2m"),
    ("timeouts", "answer", "90s"),
];
/// Its clients, and some more.
const PATIENT_ANSWER_MAX: Duration = Duration::from_secs(100);

/// The edge; it is killed with the value.
#[derive(Debug)]
pub struct OwnEdge {
    child: Child,
    log: PathBuf,
    /// The door.
    pub edge: Edge,
    /// Health and metrics, `host:port`.
    pub admin: String,
}

impl OwnEdge {
    /// Starts it on the config of the fleet's first edge, with ports and a route file of its own.
    pub async fn start(fleet: &Fleet, edit: impl Fn(&mut Table)) -> Result<Self> {
        let rendered = fleet.edge_config()?;
        let text = fs::read_to_string(&rendered).with_context(|| rendered.display().to_string())?;
        let mut config: Table = text
            .parse()
            .with_context(|| rendered.display().to_string())?;
        let (http, admin) = (free_port()?, free_port()?);
        let file = |kind: &str| rendered.with_file_name(format!("own-{http}.{kind}"));
        let address = |port: u16| Value::String(format!("127.0.0.1:{port}"));
        config.insert("listen".into(), Value::Array(vec![address(http)]));
        config.insert("admin".into(), address(admin));
        let state = file("bin").display().to_string();
        config.insert("state_file".into(), Value::String(state));
        edit(&mut config);
        fs::write(file("toml"), config.to_string()).context("write a config")?;
        let out = File::create(file("log")).context("make a log")?;
        let child = Command::new(binary("edge")?)
            .arg("--config")
            .arg(file("toml"))
            .stdin(Stdio::null())
            .stdout(out.try_clone().context("make a log")?)
            .stderr(out)
            .kill_on_drop(true)
            .spawn()
            .context("start an edge")?;
        let own = Self {
            child,
            log: file("log"),
            edge: Edge::new(([127, 0, 0, 1], http).into())?,
            admin: format!("127.0.0.1:{admin}"),
        };
        let ready = wait_until("an edge is ready", READY_MAX, async || {
            ensure!(own.readyz().await? == 200, "not ready");
            Ok(())
        });
        ready
            .await
            .with_context(|| fs::read_to_string(&own.log).unwrap_or_default())?;
        Ok(own)
    }

    /// Starts one whose parked requests, and clients, wait for much longer than a fence may last.
    pub async fn start_patient(fleet: &Fleet) -> Result<Self> {
        let mut own = Self::start(fleet, |config| {
            for (table, key, value) in PATIENT {
                set(config, table, key, value.into());
            }
        })
        .await?;
        own.edge = Edge::new_patient(own.edge.address(), PATIENT_ANSWER_MAX)?;
        Ok(own)
    }

    /// A shop behind this edge, once that knows it.
    pub async fn shows(&self, shop: &Shop) -> Result<Shop> {
        let shop = Shop {
            edge: self.edge.clone(),
            ..shop.clone()
        };
        wait_until("the own edge knows the shop", RECOVER_MAX, async || {
            shop.get("/api/v1/products").await?.wants(200)
        })
        .await?;
        Ok(shop)
    }

    /// SIGTERM.
    pub fn terminate(&self) -> Result<()> {
        let pid = self.child.id().and_then(|pid| i32::try_from(pid).ok());
        let pid = pid.and_then(Pid::from_raw).context("it has ended")?;
        kill_process(pid, Signal::TERM).context("stop an edge")
    }

    /// Waits until it has ended.
    pub async fn ended(mut self, deadline: Duration) -> Result<()> {
        let ended = tokio::time::timeout(deadline, self.child.wait()).await;
        ended
            .context("an edge does not stop")?
            .context("wait for an edge")?;
        Ok(())
    }

    /// The status of its `/readyz`.
    pub async fn readyz(&self) -> Result<u16> {
        let answer = reqwest::get(format!("http://{}/readyz", self.admin)).await;
        Ok(answer.context("ask readyz")?.status().as_u16())
    }
}

/// Sets a key of a table of a config, which is made if it is not there.
pub fn set(config: &mut Table, table: &str, key: &str, value: Value) {
    let table = config
        .entry(table)
        .or_insert_with(|| Value::Table(Table::new()));
    if let Value::Table(table) = table {
        table.insert(key.into(), value);
    }
}
