//! Work on one thing is done one after the other.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

/// One mutex for each key, kept only while somebody holds or waits for it.
#[derive(Debug)]
pub(crate) struct Turns<K>(Mutex<HashMap<K, Arc<tokio::sync::Mutex<()>>>>);

impl<K> Default for Turns<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash + Copy> Turns<K> {
    /// Waits for the turn.
    pub(crate) async fn take(&self, key: K) -> OwnedMutexGuard<()> {
        self.entry(key).lock_owned().await
    }

    /// Takes the turn if nobody has it.
    pub(crate) fn try_take(&self, key: K) -> Option<OwnedMutexGuard<()>> {
        self.entry(key).try_lock_owned().ok()
    }

    fn entry(&self, key: K) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.0.lock();
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(turns.entry(key).or_default())
    }
}
