//! The route table in use, how fresh it is, and who is told when it changes.
//!
//! `catalog` fills it, `disk` keeps it, requests read it. They meet here and know nothing of each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwapOption, Guard};
use shared::routes::wire::{Changes, Now};
use shared::routes::{Fault, Refusal, check_replacement};
use shared::{Epoch, PlacementState, PodId, RouteTable, ShopId};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};

use crate::keys::Keys;
use crate::metrics::RouteMetrics;
use crate::upstream::Pods;

/// The route table in use.
pub(crate) struct Routes {
    table: ArcSwapOption<RouteTable>,
    /// The pods of that table.
    pub(crate) pods: Pods,
    /// The keys that requests to them are signed with.
    pub(crate) keys: Keys,
    max_stale: Duration,
    started: Instant,
    /// When the catalog last said that this is its table, in ms after `started`; before it for a table from disk.
    confirmed_ms: AtomicI64,
    /// When the last answered question to the catalog was asked.
    asked: watch::Sender<Option<Instant>>,
    nudge: Notify,
    changed: Notify,
    /// Counts the changes of the table, for those who look at single rows.
    changes: watch::Sender<u64>,
    pub(crate) metrics: RouteMetrics,
}

/// Whether the edge may serve by its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Yes.
    Good,
    /// It has none: no file, and no control server has answered.
    Empty,
    /// No control server has answered for longer than `max_stale`.
    Stale,
}

impl Routes {
    pub(crate) fn new(pods: Pods, keys: Keys, max_stale: Duration) -> Self {
        Self {
            table: ArcSwapOption::empty(),
            pods,
            keys,
            max_stale,
            started: Instant::now(),
            confirmed_ms: AtomicI64::new(0),
            asked: watch::Sender::new(None),
            nudge: Notify::new(),
            changed: Notify::new(),
            changes: watch::Sender::new(0),
            metrics: RouteMetrics::new(),
        }
    }

    /// The table. Cheap: no count of references is touched.
    pub(crate) fn table(&self) -> Guard<Option<Arc<RouteTable>>> {
        self.table.load()
    }

    /// Whether the edge may serve by it.
    pub(crate) fn standing(&self) -> Standing {
        if self.table.load().is_none() {
            Standing::Empty
        } else if self.age() > self.max_stale {
            Standing::Stale
        } else {
            Standing::Good
        }
    }

    /// How long ago the catalog last said that this is its table.
    pub(crate) fn age(&self) -> Duration {
        let confirmed = self.confirmed_ms.load(Ordering::Relaxed);
        let age = self.now_ms().saturating_sub(confirmed);
        Duration::from_millis(u64::try_from(age).unwrap_or(0))
    }

    fn now_ms(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    /// Puts a table from disk in place, as it was so long ago.
    pub(crate) fn start_from(&self, table: RouteTable, age: Duration) {
        let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        self.confirmed_ms
            .store(self.now_ms().saturating_sub(age), Ordering::Relaxed);
        self.put(table);
    }

    /// Puts a whole table from the catalog in place, unless the one in use says that something is wrong with it.
    pub(crate) fn replace(&self, table: RouteTable) -> Result<(), Refusal> {
        if let Some(held) = &*self.table.load() {
            check_replacement(held, &table)?;
        }
        self.put(table);
        self.note_change();
        Ok(())
    }

    fn put(&self, table: RouteTable) {
        self.table.store(Some(Arc::new(table)));
        self.sync_pods();
    }

    /// Applies an answer of the change feed. After a fault a whole table is needed.
    pub(crate) fn apply(&self, changes: &Changes) -> Result<(), Fault> {
        let held = self.table.load();
        let Some(table) = &*held else {
            return Ok(());
        };
        let applied = table.apply_all(changes);
        if changes.changes.iter().any(|c| is_of_pod(&c.now)) {
            self.sync_pods();
        }
        let applied = applied?;
        if applied > 0 {
            self.metrics.changes.increment(applied as u64);
            self.note_change();
        }
        Ok(())
    }

    fn note_change(&self) {
        self.changed.notify_one();
        self.changes.send_modify(|count| *count += 1);
    }

    /// Wakes at each change of the table.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Where the table places a shop.
    pub(crate) fn placed(&self, shop: ShopId) -> Option<(PodId, Epoch, PlacementState)> {
        let table = self.table();
        let placement = table.as_ref()?.lookup_shop(shop)?;
        Some((placement.pod, placement.epoch, placement.state))
    }

    /// Makes the pods what table and keys say.
    pub(crate) fn sync_pods(&self) {
        if let Some(table) = &*self.table.load() {
            self.pods.sync(table.pods(), &self.keys.now());
        }
    }

    /// The catalog has answered a question that was asked at `asked`: the table is its table.
    pub(crate) fn confirm(&self, asked: Instant) {
        self.confirmed_ms.store(self.now_ms(), Ordering::Relaxed);
        self.asked.send_replace(Some(asked));
    }

    /// Asks the catalog now, and waits until it has answered; `false` when it does not in time. Requests that ask at
    /// the same time share one question.
    pub(crate) async fn refresh(&self, patience: Duration) -> bool {
        let now = Instant::now();
        let mut asked = self.asked.subscribe();
        self.nudge.notify_one();
        let answered = asked.wait_for(|asked| asked.is_some_and(|asked| asked >= now));
        matches!(timeout(patience, answered).await, Ok(Ok(_)))
    }

    /// Returns when a request wants the catalog to be asked.
    pub(crate) async fn nudged(&self) {
        self.nudge.notified().await;
    }

    /// Returns when the table has changed since the last call.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Sets the gauges, for a scrape.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a version past 2^53 would be off by one in a gauge"
    )]
    pub(crate) fn observe(&self) {
        self.metrics.age.set(self.age().as_secs_f64());
        if let Some(table) = &*self.table.load() {
            self.metrics.version.set(table.version() as f64);
            self.metrics.shops.set(table.len() as f64);
        }
        for pod in self.pods.all() {
            pod.observe();
        }
    }
}

const fn is_of_pod(now: &Now) -> bool {
    match now {
        Now::Pod(_) => true,
        Now::Shop(_) | Now::ShopRemoved(_) => false,
    }
}
