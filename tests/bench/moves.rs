//! Part 3: moving a shop. The copy of one large shop by the mover, with its verification, beside `mysqldump` and
//! `mydumper`, which verify nothing; then the pause that writers see, over many moves of a shop that sells.

mod copy;
mod fill;
mod pause;
mod tools;

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use tests::{Fleet, wait_until};
use time::OffsetDateTime;

use crate::Options;

/// A move of the largest shop that this is for.
const MOVE_MAX: Duration = Duration::from_secs(1_800);
/// How long the source's copy is kept where it shall be deleted later: longer than anything here takes.
const OBSERVE: &str = "2h";

/// What `podctl move show --json` says, as far as a bench reads it.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Shown {
    pub(crate) state: String,
    #[serde(default)]
    pub(crate) error: Option<String>,
    #[serde(default)]
    pub(crate) record: Record,
    #[serde(default)]
    pub(crate) events: Vec<Event>,
}

/// A step of a move.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Event {
    pub(crate) state: String,
    #[serde(default)]
    pub(crate) note: Option<String>,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) at: OffsetDateTime,
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
    /// Where the source's copy was kept before it was deleted.
    pub(crate) dump: Option<String>,
}

impl Shown {
    /// Seconds from one step to another; the last word for a step counts.
    fn seconds(&self, from: impl Fn(&Event) -> bool, to: impl Fn(&Event) -> bool) -> Result<f64> {
        let from = self.events.iter().find(|event| from(event));
        let to = self.events.iter().rev().find(|event| to(event));
        let (from, to) = from.zip(to).context("the move lacks a step")?;
        Ok((to.at - from.at).as_seconds_f64())
    }

    /// From `preparing` to the moment at which the other pod owned the shop.
    pub(crate) fn to_the_owner(&self) -> Result<f64> {
        self.seconds(|_| true, owned)
    }

    /// How long the move was in a state.
    pub(crate) fn within(&self, state: &str) -> Result<f64> {
        let begun = self.events.iter().position(|event| event.state == state);
        let begun = begun.with_context(|| format!("the move was never {state}"))?;
        let rest = &self.events[begun..];
        let next = rest.iter().find(|event| event.state != state);
        let next = next.with_context(|| format!("the move is still {state}"))?;
        Ok((next.at - rest[0].at).as_seconds_f64())
    }
}

fn owned(event: &Event) -> bool {
    let note = event.note.as_deref();
    note.is_some_and(|note| note.contains("owns the shop"))
}

/// Brings up a fleet, measures, stops it.
pub(crate) async fn run(options: &Options) -> Result<()> {
    let fleet = Fleet::start().await?;
    if options.mib > 0 {
        copy::run(options, &fleet).await?;
    }
    if options.moves > 0 {
        pause::run(options, &fleet).await?;
    }
    fleet.stop().await
}

/// Moves a shop, and comes back when it sells at the other pod.
async fn move_shop(fleet: &Fleet, handle: &str, to: u32) -> Result<Shown> {
    let to = to.to_string();
    let args = ["shop", "move", handle, "--to", &to, "--observe", OBSERVE];
    let mut command = fleet.podctl.command(&[&args[..], &["--watch"]].concat());
    let ended = tokio::time::timeout(MOVE_MAX, command.output())
        .await
        .context("a move takes too long")?
        .context("podctl shop move")?;
    let said = String::from_utf8_lossy(&ended.stderr);
    ensure!(ended.status.success(), "the move of {handle}: {said}");
    let shown: Shown = fleet
        .podctl
        .json(&["move", "show", handle, "--all"])
        .await?;
    match shown.state.as_str() {
        "observing" | "retiring" | "done" => Ok(shown),
        state => bail!(
            "the move of {handle} ended in {state}: {}",
            shown.error.as_deref().unwrap_or("no reason told")
        ),
    }
}

/// Deletes the source's copy, so that the next move may begin.
async fn retire(fleet: &Fleet, handle: &str) -> Result<Shown> {
    fleet.podctl.ok(&["move", "finish", handle]).await?;
    wait_until("the move ends", MOVE_MAX, async || {
        let shown: Shown = fleet
            .podctl
            .json(&["move", "show", handle, "--all"])
            .await?;
        ensure!(shown.state == "done", "it is {}", shown.state);
        Ok(())
    })
    .await?;
    let shown: Shown = fleet
        .podctl
        .json(&["move", "show", handle, "--all"])
        .await?;
    // Fifty of them fill a disk, and then the next move is refused.
    if let Some(dump) = &shown.record.dump {
        tokio::fs::remove_dir_all(dump)
            .await
            .with_context(|| format!("remove {dump}"))?;
    }
    Ok(shown)
}

/// A number out of a text that a server gave.
fn number(text: &str) -> Result<u64> {
    text.trim()
        .parse()
        .with_context(|| format!("{text} is no number"))
}
