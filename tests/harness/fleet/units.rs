//! The units of a fleet: stopped, killed, started again, and whether all is well afterwards.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::json;

use crate::failpoint::OWN_FAILPOINTS;
use crate::process::{Process, thaw_all_of};
use crate::{Fleet, Shop, wait_until};

/// After something was broken and mended: supervisor's backoff (5 s), opening of a primary, health checks.
pub const RECOVER_MAX: Duration = Duration::from_secs(45);

impl Fleet {
    /// The process of a unit now (`edge-1`, `mysql-1-1`, `pod-2-1`, `control`).
    pub fn unit(&self, name: &str) -> Result<Process> {
        #[derive(Deserialize)]
        struct Run {
            pid: u32,
        }
        let path = self.home.join("run").join(format!("{name}.json"));
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let run: Run = serde_json::from_str(&text).with_context(|| format!("{name}: {text}"))?;
        Process::of(&self.home, run.pid)
    }

    /// Stops a unit and keeps it down.
    pub async fn hold_down(&self, unit: &str) -> Result<()> {
        self.podctl.ok(&["process", "stop", unit]).await.map(drop)
    }

    /// Kills a unit without a chance to tidy up, and keeps it down.
    pub async fn kill_and_hold_down(&self, unit: &str) -> Result<()> {
        let process = self.unit(unit)?;
        let stop = self.hold_down(unit);
        let (killed, held) = tokio::join!(process.kill(), stop);
        held?;
        killed
    }

    /// Lets a unit run again.
    pub async fn let_up(&self, unit: &str) -> Result<()> {
        self.podctl.ok(&["process", "start", unit]).await.map(drop)
    }

    /// Waits until every process of a pod says that it is ready.
    pub async fn processes_ready(&self, pod: u32) -> Result<()> {
        wait_until("all processes of a pod serve", RECOVER_MAX, async || {
            for process in &self.status().await?.pod(pod)?.processes {
                let url = format!("{}/readyz", process.admin.trim_end_matches('/'));
                let answer = reqwest::get(url).await.context("readyz")?;
                ensure!(answer.status() == 200, "{} is not ready", process.admin);
            }
            Ok(())
        })
        .await
    }

    /// After a test: puts back what it has broken, and the fleet's control server in the place of the test's own.
    pub(crate) async fn restore_all(&self) -> Result<()> {
        // A frozen one would not let itself be replaced.
        thaw_all_of(&self.home)?;
        self.restore_control().await?;
        self.restore().await
    }

    /// Puts back what a test has broken, as far as the harness can: frozen processes run, stopped units are started. Then
    /// waits until everything works. The control server stays as it is: a test does this in its midst too.
    pub async fn restore(&self) -> Result<()> {
        thaw_all_of(&self.home)?;
        for entry in fs::read_dir(self.home.join("units"))
            .context("read the units")?
            .flatten()
        {
            let text = fs::read_to_string(entry.path()).context("read a unit")?;
            let unit: toml::Table = text.parse().context("read a unit")?;
            if unit.get("desired").and_then(toml::Value::as_str) == Some("stopped")
                && let Some(name) = unit.get("name").and_then(toml::Value::as_str)
            {
                self.let_up(name).await?;
            }
        }
        self.recovered().await
    }

    /// A test that did not come to its end leaves its own control server, with fail points or other bounds for moves.
    async fn restore_control(&self) -> Result<()> {
        let command = |unit: &str| -> Result<Option<toml::Value>> {
            let unit: toml::Table = unit.parse().context("the control server's unit")?;
            Ok(unit.get("command").cloned())
        };
        // Whether it is held down is no difference: all that is held down is started below.
        if command(&self.control_unit_now()?)? != command(&self.control_unit)? {
            self.control_runs_as(&self.control_unit).await?;
        }
        // Those that have not happened would, in a move that is still under way, when the next test has fail points.
        match fs::remove_dir_all(self.home.join(OWN_FAILPOINTS)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e).context("tidy up"),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Waits until the control server answers, and each active pod takes two writes in a row: one for each process.
    async fn recovered(&self) -> Result<()> {
        let status = wait_until("the status answers", RECOVER_MAX, async || {
            let status = self.status().await?;
            ensure!(
                status.controls.iter().all(|c| c.pid.is_some()),
                "no control server"
            );
            Ok(status)
        })
        .await?;
        for pod in status.pods.iter().filter(|p| p.status == "active") {
            let what = format!("pod {} takes writes", pod.id);
            wait_until(&what, RECOVER_MAX, async || {
                let canary = self.canary(pod.id).await?;
                for process in &pod.processes {
                    sells(&canary).await.with_context(|| process.http.clone())?;
                }
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    async fn canary(&self, pod: u32) -> Result<Shop> {
        let mut canaries = self.canaries.lock().await;
        if let Some(canary) = canaries.get(&pod) {
            return Ok(canary.clone());
        }
        let canary = self.shop_named(&format!("canary-{pod}"), pod).await?;
        canaries.insert(pod, canary.clone());
        Ok(canary)
    }
}

async fn sells(shop: &Shop) -> Result<()> {
    let product = json!({"title": "Canary", "price": "1.00", "currency": "USD", "available": 1});
    let answer = shop.merchant_post("/api/v1/products", &product).await?;
    answer.wants(201).map(drop)
}
