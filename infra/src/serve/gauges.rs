//! What the metrics show of the catalog. It is looked up every few seconds: a scrape asks nobody, and what waits for a pod
//! does not make numbers old. Ages are of the scrape: where nobody can look any more they grow on, since what they are for is
//! to say that something stands still.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use metrics::gauge;
use parking_lot::Mutex;
use shared::PodId;
use shared::error::chain;
use shared::moves::MoveState;
use shared::telemetry::metric;
use tokio::time::{MissedTickBehavior, interval};

use super::app::{App, stopped};
use crate::api::Pod;
use crate::catalog::{CatalogError, MoveRow, counts, now_ms};

/// A third of the time between two scrapes, as that mostly is.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// What is known of moves, for ages.
#[derive(Debug, Default)]
pub(super) struct Looked(Mutex<Option<Moves>>);

impl Looked {
    /// Before each scrape.
    pub(super) fn show_ages(&self) {
        if let Some(moves) = &*self.0.lock() {
            moves.show_ages(now_ms());
        }
    }
}

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
    let (catalog, at) = (&app.catalog, now_ms());
    let pods = catalog.pods().await?;
    for pod in &pods {
        gauge!(metric::POD_SHOPS, metric::POD => pod.id.to_string()).set(number(pod.shops));
    }
    let version = catalog.position().await?.version;
    gauge!(metric::CATALOG_VERSION).set(number(version));
    gauge!(metric::OPERATIONS_OPEN).set(number(catalog.open_operations().await?));
    let (moves, left) = (catalog.open_moves().await?, catalog.leaving_moves().await?);
    let moves = Moves::of(&pods, &moves, &left);
    moves.show();
    *app.looked.0.lock() = Some(moves);
    gauge!(metric::MOVES_HELD_BACK).set(number(app.moves.held_back_all()));
    gauge!(metric::CATALOG_LOOK).set(seconds(at));
    Ok(())
}

fn seconds(ms: i64) -> f64 {
    Duration::from_millis(ms.try_into().unwrap_or(0)).as_secs_f64()
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
    clearings: u64,
}

/// Open moves, and what others left. Times are in ms since 1970.
#[derive(Debug, Default)]
struct Moves {
    /// How many are in each state, and since when the first of them is.
    states: Vec<(MoveState, u64, Option<i64>)>,
    /// When the oldest was ordered.
    oldest: Option<i64>,
    waiting: u64,
    strays: u64,
    /// Of orders to clear rows.
    clearings_strays: u64,
    pods: BTreeMap<PodId, OfPod>,
}

impl Moves {
    fn of(pods: &[Pod], open: &[MoveRow], left: &[MoveRow]) -> Self {
        let since = |it: &MoveRow| it.detail.since_ms.unwrap_or(it.changed_ms);
        let states = MoveState::ALL.into_iter().filter(|state| state.is_open());
        let states = states.map(|state| {
            let there = open.iter().filter(|it| it.state == state);
            (state, there.clone().count() as u64, there.map(since).min())
        });
        let stand = open.iter().filter(|it| it.detail.strays_stand());
        let clearings = left.iter().filter(|it| it.clears());
        let mut moves = Self {
            states: states.collect(),
            oldest: open.iter().map(|it| it.created_ms).min(),
            waiting: open.iter().filter(|it| it.detail.waits.is_some()).count() as u64,
            strays: stand.map(|it| it.detail.strays_told()).sum(),
            clearings_strays: clearings.map(|it| it.detail.strays_told()).sum(),
            // Those without any too: what was there before must not stay.
            pods: pods.iter().map(|it| (it.id, OfPod::default())).collect(),
        };
        for it in open {
            moves.pods.entry(it.source).or_default().from += 1;
            moves.pods.entry(it.target).or_default().to += 1;
        }
        for it in left {
            let there = moves.pods.entry(it.left_at()).or_default();
            if it.clears() {
                there.clearings += 1;
            } else {
                there.leftovers += 1;
            }
        }
        moves
    }

    /// For how long the first one is in each state, and since the oldest was ordered, in seconds; 0 where there is none.
    fn ages(&self, now_ms: i64) -> (Vec<(MoveState, f64)>, f64) {
        let age = |since: Option<i64>| since.map_or(0.0, |at| seconds(now_ms.saturating_sub(at)));
        let states = self.states.iter();
        let states = states.map(|(state, _, first)| (*state, age(*first)));
        (states.collect(), age(self.oldest))
    }

    fn show_ages(&self, now_ms: i64) {
        let (states, oldest) = self.ages(now_ms);
        for (state, age) in states {
            gauge!(metric::MOVES_STATE_OLDEST_SECONDS, metric::STATE => state.as_str()).set(age);
        }
        gauge!(metric::MOVES_OLDEST_SECONDS).set(oldest);
    }

    fn show(&self) {
        let Self {
            states,
            // (As ages, when they are asked for.)
            oldest: _,
            waiting,
            strays,
            clearings_strays,
            pods,
        } = self;
        for (state, there, _) in states {
            gauge!(metric::MOVES_OPEN, metric::STATE => state.as_str()).set(number(*there));
        }
        gauge!(metric::MOVES_WAITING).set(number(*waiting));
        gauge!(metric::MOVES_STRAYS).set(number(*strays));
        gauge!(metric::CLEARINGS_STRAYS).set(number(*clearings_strays));
        for (pod, there) in pods {
            let OfPod {
                from,
                to,
                leftovers,
                clearings,
            } = there;
            let pod = pod.to_string();
            for (side, moves) in [("source", from), ("target", to)] {
                gauge!(metric::POD_MOVES, metric::POD => pod.clone(), metric::SIDE => side)
                    .set(number(*moves));
            }
            gauge!(metric::POD_LEFTOVERS, metric::POD => pod.clone()).set(number(*leftovers));
            gauge!(metric::POD_CLEARINGS, metric::POD => pod).set(number(*clearings));
        }
    }
}

#[cfg(test)]
mod tests;
