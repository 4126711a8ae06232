//! Takes away dumps that were kept for long enough. One of a move that is not over is in use, or will be.

use std::time::{Duration, SystemTime};

use super::Mover;
use crate::catalog::CatalogError;
use crate::mover::retire::{Found, found};

pub(super) async fn prune(mover: &Mover) {
    let Ok(dir) = mover.dumps() else { return };
    let dumps = match tokio::task::spawn_blocking(move || found(&dir)).await {
        Ok(Ok(dumps)) => dumps,
        Ok(Err(error)) => {
            tracing::warn!("the dumps cannot be listed: {error}");
            return;
        }
        Err(_) => return,
    };
    for dump in dumps {
        if mover.stop.is_cancelled() {
            return;
        }
        match is_old(mover, &dump).await {
            Ok(false) => continue,
            Ok(true) => {}
            Err(error) => {
                tracing::warn!("old dumps stay: {}", shared::error::chain(&error));
                return;
            }
        }
        let path = dump.path.clone();
        let gone = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(path)).await;
        let path = dump.path.display();
        match gone {
            Ok(Ok(())) => tracing::info!(%path, "an old dump is deleted"),
            Ok(Err(error)) => tracing::warn!(%path, "an old dump cannot be deleted: {error}"),
            Err(_) => {}
        }
    }
}

async fn is_old(mover: &Mover, dump: &Found) -> Result<bool, CatalogError> {
    let (shop, pod, epoch) = (dump.shop, dump.pod, dump.epoch);
    let Some(of_move) = mover.catalog.move_of_copy(shop, pod, epoch).await? else {
        return Ok(dump.is_old(None, mover.limits.dumps_kept));
    };
    if of_move.state.is_open() || of_move.leftover_ms.is_some() {
        return Ok(false);
    }
    let ended = of_move.detail.since_ms.unwrap_or(of_move.changed_ms);
    let ended = Duration::from_millis(u64::try_from(ended).unwrap_or(0));
    Ok(dump.is_old(
        Some(SystemTime::UNIX_EPOCH + ended),
        mover.limits.dumps_kept,
    ))
}
