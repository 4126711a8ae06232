//! How much moves may take is written in fleet.toml, and reaches the control server through everything that writes its file.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tests::podctl::USAGE;
use tests::suite::Test;
use tests::{Fleet, tests};

pub(crate) fn list() -> Vec<Test> {
    tests![own: limits_of_moves_stay_through_every_apply]
}

/// A value that nobody has by default; a move without `--observe` tells it.
const OBSERVE_MS: u64 = 77_000;

/// A wrong key or value is refused by name when the file is applied, and the control server's file stays as it is. Good ones
/// are in force after `podctl apply`, and still after `podctl pod add` and a restart of the control server.
async fn limits_of_moves_stay_through_every_apply() -> Result<()> {
    let fleet = Fleet::start().await?;
    let shop = fleet.shop(1).await?;
    let wish = fleet.home().join("fleet.toml");
    let written = fs::read_to_string(&wish).context("read fleet.toml")?;
    let file = fleet.home().join("control/control.toml");
    let before = fs::read_to_string(&file).context("read control.toml")?;

    fs::write(&wish, format!("{written}\n[moves]\nstreams = 99\nnise = 1"))?;
    for command in ["plan", "apply"] {
        let said = fleet.podctl.refused(&[command], USAGE).await?;
        for part in [
            "fleet.toml",
            "moves.streams: 99 is not within",
            "moves.nise",
        ] {
            ensure!(said.contains(part), "{command}: {part:?} in {said}");
        }
    }
    assert_eq!(fs::read_to_string(&file)?, before);

    fs::write(&wish, format!("{written}\n[moves]\nobserve = '77s'"))?;
    fleet.podctl.ok(&["apply"]).await?;
    takes(&fleet, &shop.handle, "2").await.context("apply")?;
    // This writes the file anew, for the pod's token, and starts nothing that runs.
    fleet.podctl.ok(&["pod", "add", "third"]).await?;
    fleet.podctl.ok(&["process", "stop", "control"]).await?;
    fleet.podctl.ok(&["process", "start", "control"]).await?;
    takes(&fleet, &shop.handle, "third")
        .await
        .context("pod add")?;
    let nothing: Value = fleet.podctl.json(&["plan"]).await?;
    ensure!(nothing["steps"] == serde_json::json!([]), "{nothing}");
    fleet.stop().await
}

/// A move without a word of its own has the value.
async fn takes(fleet: &Fleet, handle: &str, to: &str) -> Result<()> {
    let line = ["shop", "move", handle, "--to", to, "--watch"];
    let moved: Value = fleet.podctl.json(&line).await?;
    ensure!(moved["observe_ms"] == OBSERVE_MS, "{moved}");
    fleet.podctl.ok(&["move", "finish", handle]).await?;
    fleet.podctl.ok(&["move", "watch", handle]).await.map(drop)
}
