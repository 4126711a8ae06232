//! What the handlers and the background work of one control server share.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use shared::ShopId;
use shared::error::Kind;
use shared::telemetry::MetricsText;
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::Instant;

use super::config::Limits;
use super::failure::{Answer, Failure};
use super::gauges::Looked;
use super::keeper::Primaries;
use crate::catalog::{ApiToken, Catalog};
use crate::mover::{MoveLimits, Mover, Moves};
use crate::pod_store::PodStore;
use crate::turns::Turns;

/// The shared state; behind an `Arc` everywhere.
#[derive(Debug)]
pub(super) struct App {
    pub(super) catalog: Arc<Catalog>,
    pub(super) store: Arc<PodStore>,
    pub(super) limits: Limits,
    /// Replaced as a whole when tokens are read again.
    pub(super) tokens: RwLock<Arc<[ApiToken]>>,
    /// One permit for each long poll, and for each full table.
    pub(super) polls: Semaphore,
    pub(super) tables: Arc<Semaphore>,
    /// What the keepers last saw.
    pub(super) primaries: Primaries,
    /// Work on one shop is done one after the other.
    pub(super) shops: Turns<ShopId>,
    /// What the movers of this server are doing.
    pub(super) moves: Arc<Moves>,
    /// Drives them.
    pub(super) mover: Arc<Mover>,
    /// How much a move may take.
    pub(super) move_limits: Arc<MoveLimits>,
    /// `true` once the server stops.
    pub(super) stopping: watch::Receiver<bool>,
    pub(super) metrics: Option<MetricsText>,
    /// What the metrics were last brought up to.
    pub(super) looked: Looked,
}

impl App {
    /// A place among the long polls, and how long this one may wait: `wait_ms`, but no longer than the limit.
    pub(super) fn poll(&self, wait_ms: Option<u64>) -> Answer<(SemaphorePermit<'_>, Instant)> {
        let place = self.polls.try_acquire().map_err(|_| {
            let text = "too many long polls wait here (`limits.long_polls_max` of control.toml)";
            Failure::new(Kind::Limited, text)
        })?;
        let max = self.limits.wait_max;
        let wait = wait_ms.map_or(max, |ms| Duration::from_millis(ms).min(max));
        Ok((place, Instant::now() + wait))
    }
}

/// Resolves once the server stops; for ever pending before.
pub(super) async fn stopped(mut stopping: watch::Receiver<bool>) {
    // An error means that the sender is gone, which is a stop too.
    let _ = stopping.wait_for(|stop| *stop).await;
}
