//! `podctl status`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;

use super::Context;
use crate::api::{MOVES_MAX, MoveQuery};
use crate::client::{Control, Error};
use crate::output::note;
use crate::status::{self, Catalog};

/// A status must come soon also when the control server hangs.
const PATIENCE: Duration = Duration::from_secs(5);

/// Prints what runs. Without an answer of the control server it prints what the machine shows, says so, and fails.
pub async fn run(cx: &Context) -> anyhow::Result<ExitCode> {
    if cx.is_remote() {
        bail!(
            "status shows the processes of this machine's fleet: leave --control away, or use `podctl pod list`"
        );
    }
    let home = cx.home()?;
    let control = cx.control_within(cx.timeout().min(PATIENCE))?;
    let (catalog, fault) = match catalog(&control).await {
        Ok(catalog) => (Some(catalog), None),
        Err(error) if error.is_unreachable() => (None, Some(error)),
        Err(error) => return Err(error.into()),
    };
    let report = status::of_home(&home, catalog.as_ref())?;
    cx.out.result(&report, status::text)?;
    match fault {
        None => Ok(ExitCode::SUCCESS),
        Some(error) => {
            note(&format!(
                "podctl: {error:#}; shops and the pods' status are left out"
            ));
            Ok(ExitCode::FAILURE)
        }
    }
}

async fn catalog(control: &Control) -> Result<Catalog, Error> {
    let pods = control.pods().await?;
    let shops = control.shops().await?;
    let open = MoveQuery {
        open: Some(true),
        limit: Some(MOVES_MAX),
        ..MoveQuery::default()
    };
    let moves = control.moves(&open).await?;
    Ok(Catalog { pods, shops, moves })
}
