//! `podctl down`: asks the `podctl up` that runs a fleet to end it, and waits.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::time::Instant;

use crate::home_dir::{FleetLock, HomeDir};
use crate::output::note;
use crate::supervisor::{STOP_WITHIN, end_leftovers};

/// The supervisor ends within its own bound; a little more for the lock.
const WITHIN: Duration = STOP_WITHIN.saturating_add(Duration::from_secs(5));

const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Ends the fleet. One that does not run is fine; what a killed `podctl up` left behind is ended.
pub async fn run(home: &HomeDir) -> anyhow::Result<()> {
    let path = home.lock_file();
    let Some(holder) = FleetLock::holder(&path) else {
        // Held while it is done: nobody may start meanwhile.
        let _lock = FleetLock::take(&path)
            .await
            .context("the fleet is being started just now")?;
        let left = end_leftovers(home).await?;
        note(&match left.len() {
            0 => "the fleet does not run".to_owned(),
            _ => format!(
                "ended what a killed `podctl up` had left: {}",
                left.join(", ")
            ),
        });
        return Ok(());
    };
    let pid = i32::try_from(holder)
        .ok()
        .and_then(Pid::from_raw)
        .context("the lock names no process")?;
    let process =
        pidfd_open(pid, PidfdFlags::empty()).with_context(|| format!("reach process {holder}"))?;
    // Held by the process just opened, and by no later one with its id.
    ensure!(
        FleetLock::holder(&path) == Some(holder),
        "another process has just taken over the fleet: try again"
    );
    pidfd_send_signal(&process, Signal::TERM)
        .with_context(|| format!("tell process {holder} to end"))?;
    let began = Instant::now();
    while FleetLock::holder(&path) == Some(holder) {
        if began.elapsed() > WITHIN {
            bail!(
                "process {holder} has not ended the fleet within {WITHIN:?}: look at its terminal; `kill -9 {holder}` and `podctl down` once more end everything at once"
            );
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    note("the fleet has ended");
    Ok(())
}
