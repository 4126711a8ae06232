//! Part 3: moving a shop. The copy of one large shop by the mover, with its verification, beside `mysqldump` and
//! `mydumper`, which verify nothing; then the pause that writers see, over many moves of a shop that sells.

mod copy;
mod fill;
mod pause;
mod tools;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use tests::Fleet;

use crate::Options;

/// What `podctl move show --json` says, as far as a bench reads it.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Shown {
    pub(crate) state: String,
    #[serde(default)]
    pub(crate) error: Option<String>,
    #[serde(default)]
    pub(crate) record: Record,
}

/// What a move has noted of itself.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Record {
    /// From the fence until the target takes writes.
    pub(crate) fence_ms: Option<f64>,
    /// Of it, until the writes in flight had ended.
    pub(crate) drain_ms: Option<f64>,
    pub(crate) tail_keys: Option<u64>,
}

/// Brings up a fleet, measures, stops it.
pub(crate) async fn run(options: &Options) -> Result<()> {
    let fleet = Fleet::start().await?;
    copy::run(options, &fleet).await?;
    pause::run(options, &fleet).await?;
    fleet.stop().await
}

/// Moves a shop and waits until it sells at the other pod; the source's copy is kept no longer than needed.
async fn move_shop(fleet: &Fleet, handle: &str, to: u32) -> Result<Shown> {
    let to = to.to_string();
    let args = ["shop", "move", handle, "--to", &to, "--observe", "0s"];
    fleet.podctl.ok(&[&args[..], &["--watch"]].concat()).await?;
    let shown: Shown = fleet.podctl.json(&["move", "show", handle]).await?;
    match shown.state.as_str() {
        "observing" | "retiring" | "done" => Ok(shown),
        state => bail!(
            "the move of {handle} ended in {state}: {}",
            shown.error.as_deref().unwrap_or("no reason told")
        ),
    }
}

/// A number out of a text that a server gave.
fn number(text: &str) -> Result<u64> {
    text.trim()
        .parse()
        .with_context(|| format!("{text} is no number"))
}
