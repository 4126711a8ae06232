//! `podctl doctor`.

use std::process::ExitCode;
use std::time::Duration;

use super::Context;
use crate::doctor::{self, Diagnosis};

/// What is found once is looked at again after this: a restart or a change in between is over by then.
const LOOK_AGAIN: Duration = Duration::from_millis(1500);

/// Looks, and fails when something is wrong.
pub async fn run(cx: &Context) -> anyhow::Result<ExitCode> {
    let control = cx.control()?;
    let home = if cx.is_remote() {
        None
    } else {
        Some(cx.home()?)
    };
    let look = async || -> anyhow::Result<Diagnosis> {
        let facts = doctor::observe::observe(&control, home.as_ref()).await?;
        Ok(Diagnosis::of(doctor::judge(&facts)))
    };
    let mut diagnosis = look().await?;
    if !diagnosis.healthy {
        tokio::time::sleep(LOOK_AGAIN).await;
        diagnosis = diagnosis.lasting(look().await?);
    }
    cx.out.result(&diagnosis, doctor::text)?;
    Ok(if diagnosis.healthy {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
