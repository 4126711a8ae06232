//! What the metrics show of the catalog. It is looked up every few seconds: a scrape asks nobody, and what waits for a pod
//! does not make numbers old.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use metrics::gauge;
use shared::PodId;
use shared::error::chain;
use shared::moves::MoveState;
use shared::telemetry::metric;
use tokio::time::{MissedTickBehavior, interval};

use super::app::{App, stopped};
use crate::api::Pod;
use crate::catalog::{CatalogError, Leftover, MoveRow, counts, now_ms};

/// A third of the time between two scrapes, as that mostly is.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Runs until the server stops.
pub(super) async fn run(app: Arc<App>) {
    counts::begin();
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = stopped(app.stopping.clone()) => return,
        }
        if let Err(error) = look(&app).await {
            tracing::warn!("the metrics are not brought up to date: {}", chain(&error));
        }
    }
}

async fn look(app: &App) -> Result<(), CatalogError> {
    let catalog = &app.catalog;
    let pods = catalog.pods().await?;
    for pod in &pods {
        gauge!(metric::POD_SHOPS, metric::POD => pod.id.to_string()).set(number(pod.shops));
    }
    let version = catalog.position().await?.version;
    gauge!(metric::CATALOG_VERSION).set(number(version));
    gauge!(metric::OPERATIONS_OPEN).set(number(catalog.open_operations().await?));
    let (moves, left) = (catalog.open_moves().await?, catalog.leftovers().await?);
    Moves::of(&pods, &moves, &left, now_ms()).show();
    gauge!(metric::MOVES_HELD_BACK).set(number(app.moves.held_back_all()));
    Ok(())
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a gauge; what is counted is far below 2^52"
)]
const fn number(count: u64) -> f64 {
    count as f64
}

/// What one pod has of moves.
#[derive(Debug, Default, PartialEq, Eq)]
struct OfPod {
    from: u64,
    to: u64,
    leftovers: u64,
}

/// Open moves, and what others left, at one moment.
#[derive(Debug, Default)]
struct Moves {
    /// How many are in each state, and for how many ms the first of them is.
    states: Vec<(MoveState, u64, u64)>,
    /// The age of the oldest, in ms.
    oldest: u64,
    waiting: u64,
    strays: u64,
    pods: BTreeMap<PodId, OfPod>,
}

impl Moves {
    fn of(pods: &[Pod], open: &[MoveRow], left: &[Leftover], now_ms: i64) -> Self {
        let age = |since: i64| u64::try_from(now_ms.saturating_sub(since)).unwrap_or(0);
        let since = |it: &MoveRow| it.detail.since_ms.unwrap_or(it.changed_ms);
        let states = MoveState::ALL.into_iter().filter(|state| state.is_open());
        let states = states.map(|state| {
            let there = open.iter().filter(|it| it.state == state);
            let ages = there.map(|it| age(since(it)));
            ages.fold((state, 0, 0), |(state, number, first), age| {
                (state, number + 1, age.max(first))
            })
        });
        let stand = open.iter().filter(|it| it.detail.strays_stand());
        let mut moves = Self {
            states: states.collect(),
            oldest: open.iter().map(|it| age(it.created_ms)).max().unwrap_or(0),
            waiting: open.iter().filter(|it| it.detail.waits.is_some()).count() as u64,
            strays: stand.map(|it| it.detail.strays_told()).sum(),
            // Those without any too: what was there before must not stay.
            pods: pods.iter().map(|it| (it.id, OfPod::default())).collect(),
        };
        for it in open {
            moves.pods.entry(it.source).or_default().from += 1;
            moves.pods.entry(it.target).or_default().to += 1;
        }
        for it in left {
            moves.pods.entry(it.pod).or_default().leftovers += 1;
        }
        moves
    }

    fn show(&self) {
        let Self {
            states,
            oldest,
            waiting,
            strays,
            pods,
        } = self;
        let seconds = |ms: u64| Duration::from_millis(ms).as_secs_f64();
        for (state, there, first) in states {
            let state = state.as_str();
            gauge!(metric::MOVES_OPEN, metric::STATE => state).set(number(*there));
            gauge!(metric::MOVES_STATE_OLDEST_SECONDS, metric::STATE => state).set(seconds(*first));
        }
        gauge!(metric::MOVES_OLDEST_SECONDS).set(seconds(*oldest));
        gauge!(metric::MOVES_WAITING).set(number(*waiting));
        gauge!(metric::MOVES_STRAYS).set(number(*strays));
        for (pod, there) in pods {
            let OfPod {
                from,
                to,
                leftovers,
            } = there;
            let pod = pod.to_string();
            for (side, moves) in [("source", from), ("target", to)] {
                gauge!(metric::POD_MOVES, metric::POD => pod.clone(), metric::SIDE => side)
                    .set(number(*moves));
            }
            gauge!(metric::POD_LEFTOVERS, metric::POD => pod).set(number(*leftovers));
        }
    }
}

#[cfg(test)]
mod tests;
