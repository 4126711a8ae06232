//! Counters of one run of a mover: written by its parts, read by whoever watches the move.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use utoipa::ToSchema;

/// What the parts have done so far.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The estimate of what there is to copy.
    pub(crate) rows_expected: AtomicU64,
    /// In bytes of the tables' own statistics.
    pub(crate) bytes_expected: AtomicU64,
    /// Copied by chunks.
    pub(crate) rows_copied: AtomicU64,
    /// As they came from the source.
    pub(crate) bytes_copied: AtomicU64,
    /// Keys that the feed collected and nobody applied yet.
    pub(crate) keys_pending: AtomicU64,
    /// Keys made equal so far.
    pub(crate) keys_applied: AtomicU64,
    /// How old the newest event that the feed has seen was when it came, in ms.
    pub(crate) feed_lag_ms: AtomicU64,
    /// Rows compared by chunks.
    pub(crate) rows_compared: AtomicU64,
    /// Pieces of work that are done in this run: chunks that are copied or compared, batches that are applied.
    pub(crate) pieces: AtomicU64,
    /// Rows of the source that this run has read for their dump.
    pub(crate) rows_dumped: AtomicU64,
    /// Rows deleted at the source (retiring) or the target (after an abort).
    pub(crate) rows_deleted: AtomicU64,
    /// Time in which work waited because of the throttle or rested beside shops that sell, in ms.
    pub(crate) throttled_ms: AtomicU64,
    /// What the throttle waits for just now.
    pub(crate) held_back: Mutex<Option<HeldBack>>,
}

/// What work waits for, and since when.
#[derive(Debug, Clone)]
pub(crate) struct HeldBack {
    pub(crate) by: String,
    pub(crate) since: Instant,
}

impl HeldBack {
    /// How many bounds it lasts by now.
    pub(crate) fn bounds(&self, bound: Duration) -> u128 {
        self.since.elapsed().as_millis() / bound.as_millis().max(1)
    }

    /// What an operator is told of it.
    pub(crate) fn told(&self) -> String {
        format!(
            "held back for {} s by now: {}; mend that, or raise the limit in `[moves]` of fleet.toml",
            self.since.elapsed().as_secs(),
            self.by
        )
    }
}

/// The same, at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[expect(missing_docs, reason = "each is described at `Progress`")]
#[serde(default)]
pub struct ProgressNow {
    pub rows_expected: u64,
    pub bytes_expected: u64,
    pub rows_copied: u64,
    pub bytes_copied: u64,
    pub keys_pending: u64,
    pub keys_applied: u64,
    pub feed_lag_ms: u64,
    pub rows_compared: u64,
    pub rows_dumped: u64,
    pub rows_deleted: u64,
    pub throttled_ms: u64,
}

impl Progress {
    /// Adds to a counter.
    pub(crate) fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }

    /// What there is to copy, for whoever watches; a later run has it from the move's record.
    pub(crate) fn expects(&self, rows: u64, bytes: u64) {
        self.rows_expected.store(rows, Ordering::Relaxed);
        self.bytes_expected.store(bytes, Ordering::Relaxed);
    }

    /// All counters, read one after the other.
    pub(crate) fn now(&self) -> ProgressNow {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ProgressNow {
            rows_expected: of(&self.rows_expected),
            bytes_expected: of(&self.bytes_expected),
            rows_copied: of(&self.rows_copied),
            bytes_copied: of(&self.bytes_copied),
            keys_pending: of(&self.keys_pending),
            keys_applied: of(&self.keys_applied),
            feed_lag_ms: of(&self.feed_lag_ms),
            rows_compared: of(&self.rows_compared),
            rows_dumped: of(&self.rows_dumped),
            rows_deleted: of(&self.rows_deleted),
            throttled_ms: of(&self.throttled_ms),
        }
    }
}
