//! Ends what was begun: creations and orders that a crash, a dead pod or a lost connection left open. Periodic, without
//! input, and safe to run at any time; the same work done by a request just now is left to it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use shared::PodId;
use shared::error::chain;
use tokio::time::{MissedTickBehavior, interval};

use super::app::{App, stopped};
use super::{creation, state_order};
use crate::catalog::{CatalogError, Creation, StateOrder, now_ms};

/// What happened to a move that is over is told for a quarter of a year: it is for the report on a bad night.
const MOVE_EVENTS_KEPT: Duration = Duration::from_secs(90 * 24 * 3600);

/// Runs until the server stops; the first round at once.
pub(super) async fn run(app: Arc<App>) {
    let mut ticks = interval(app.limits.resume_every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = stopped(app.stopping.clone()) => return,
        }
        if let Err(error) = round(&app).await {
            tracing::warn!("unfinished operations cannot be read: {}", chain(&error));
        }
    }
}

/// One thing to be ended.
enum Work {
    Creation(Creation),
    Order(StateOrder),
}

impl Work {
    const fn pod(&self) -> PodId {
        match self {
            Self::Creation(creation) => creation.pod,
            Self::Order(order) => order.pod,
        }
    }
}

async fn round(app: &Arc<App>) -> Result<(), CatalogError> {
    let creations = app
        .catalog
        .open_creations()
        .await?
        .into_iter()
        .map(Work::Creation);
    let orders = app
        .catalog
        .open_states()
        .await?
        .into_iter()
        .map(Work::Order);
    // Pods apart: a dead one must not hold up the others.
    let mut groups: HashMap<PodId, Vec<Work>> = HashMap::new();
    for work in creations.chain(orders) {
        groups.entry(work.pod()).or_default().push(work);
    }
    futures::future::join_all(groups.into_values().map(|group| end(app, group))).await;
    let kept = i64::try_from(MOVE_EVENTS_KEPT.as_millis()).unwrap_or(i64::MAX);
    app.catalog
        .prune_move_events(now_ms().saturating_sub(kept))
        .await?;
    let kept = i64::try_from(app.limits.tombstones_kept.as_millis()).unwrap_or(i64::MAX);
    app.catalog
        .prune_tombstones(now_ms().saturating_sub(kept))
        .await
        .map(drop)
}

async fn end(app: &App, group: Vec<Work>) {
    for work in group {
        let store = app.store.as_ref();
        let (operation, ended) = match work {
            Work::Creation(creation) => {
                let Some(_turn) = app.shops.try_take(creation.shop) else {
                    continue;
                };
                let ended = match creation::as_it_stands(&app.catalog, &creation).await {
                    Ok(Some(creation)) => {
                        creation::resume(&app.catalog, store, &creation, now_ms())
                            .await
                            .err()
                    }
                    Ok(None) => None,
                    Err(error) => Some(error.into()),
                };
                (creation.operation, ended)
            }
            Work::Order(order) => {
                let Some(_turn) = app.shops.try_take(order.shop) else {
                    continue;
                };
                let ended = state_order::drive(&app.catalog, store, &order).await.err();
                (order.operation, ended)
            }
        };
        if let Some(failure) = ended {
            let text = failure.log.or(failure.detail).unwrap_or_default();
            tracing::info!(operation, "not ended yet, or ended without success: {text}");
        }
    }
}
