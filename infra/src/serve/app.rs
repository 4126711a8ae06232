//! What the handlers and the background work of one control server share.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use shared::telemetry::MetricsText;
use shared::{PodId, ShopId};
use tokio::sync::{OwnedMutexGuard, Semaphore, watch};

use super::config::Limits;
use super::keeper::Primaries;
use crate::catalog::{ApiToken, Catalog};
use crate::pod_store::PodStore;

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
    /// `true` once the server stops.
    pub(super) stopping: watch::Receiver<bool>,
    pub(super) metrics: Option<MetricsText>,
}

/// Resolves once the server stops; for ever pending before.
pub(super) async fn stopped(mut stopping: watch::Receiver<bool>) {
    // An error means that the sender is gone, which is a stop too.
    let _ = stopping.wait_for(|stop| *stop).await;
}

/// One mutex for each key, kept only while somebody holds or waits for it.
#[derive(Debug)]
pub(super) struct Turns<K>(Mutex<HashMap<K, Arc<tokio::sync::Mutex<()>>>>);

impl<K> Default for Turns<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash + Copy> Turns<K> {
    /// Waits for the turn.
    pub(super) async fn take(&self, key: K) -> OwnedMutexGuard<()> {
        self.entry(key).lock_owned().await
    }

    /// Takes the turn if nobody has it.
    pub(super) fn try_take(&self, key: K) -> Option<OwnedMutexGuard<()>> {
        self.entry(key).try_lock_owned().ok()
    }

    fn entry(&self, key: K) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.0.lock();
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(turns.entry(key).or_default())
    }
}

/// The ids of the pods that a kind of work is under way at, for grouping.
pub(super) fn by_pod<T>(work: Vec<T>, pod: impl Fn(&T) -> PodId) -> Vec<Vec<T>> {
    let mut groups: HashMap<PodId, Vec<T>> = HashMap::new();
    for item in work {
        groups.entry(pod(&item)).or_default().push(item);
    }
    groups.into_values().collect()
}
