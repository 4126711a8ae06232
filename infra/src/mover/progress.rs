//! Counters of one run of a mover: written by its parts, read by whoever watches the move.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use utoipa::ToSchema;

use crate::api::MoveRecord;

/// What the parts have done so far.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The estimate of what there is to copy.
    pub(crate) rows_expected: AtomicU64,
    /// In bytes of the tables' own statistics.
    pub(crate) bytes_expected: AtomicU64,
    /// Copied by chunks, over all runs. (Of this run are these; what was there before is beside them.)
    pub(crate) rows_copied: AtomicU64,
    /// As they came from the source.
    pub(crate) bytes_copied: AtomicU64,
    /// What this run found at the target.
    pub(crate) found: Copied,
    /// What the move's record knows as copied. A run that takes the move up copies some of that again: a count that went back
    /// would look as if the copy began anew.
    pub(crate) noted: Copied,
    /// Keys that the feed collected and nobody applied yet.
    pub(crate) keys_pending: AtomicU64,
    /// Keys made equal so far.
    pub(crate) keys_applied: AtomicU64,
    /// How old the newest event that the feed has seen was when it came, in ms.
    pub(crate) feed_lag_ms: AtomicU64,
    /// Rows compared by chunks.
    pub(crate) rows_compared: AtomicU64,
    /// Whether this run has begun to compare; before it catches up.
    pub(crate) compares: AtomicBool,
    /// Keys that changed since they were compared.
    pub(crate) keys_uncompared: AtomicU64,
    /// Pieces of work that are done in this run: chunks that are copied or compared, batches that are applied.
    pub(crate) pieces: AtomicU64,
    /// Rows of the source that this run has read for their dump.
    pub(crate) rows_dumped: AtomicU64,
    /// Rows that were in that dump before.
    pub(crate) rows_dumped_before: AtomicU64,
    /// Rows deleted at the source (retiring) or the target (after an abort).
    pub(crate) rows_deleted: AtomicU64,
    /// Time in which work waited because of the throttle or rested beside shops that sell, in ms.
    pub(crate) throttled_ms: AtomicU64,
    /// What the throttle waits for just now.
    pub(crate) held_back: Mutex<Option<HeldBack>>,
}

/// So much of a copy.
#[derive(Debug, Default)]
pub(crate) struct Copied {
    rows: AtomicU64,
    bytes: AtomicU64,
}

impl Copied {
    pub(crate) fn set(&self, rows: u64, bytes: u64) {
        self.rows.store(rows, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    fn get(&self) -> (u64, u64) {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (of(&self.rows), of(&self.bytes))
    }
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

/// What was told of being held back: that it lasts for so many bounds, or nothing.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Told(u128);

impl Told {
    /// Whether it is news that it lasts for so many bounds: past the first one, and again each time that it lasts twice as long.
    /// So is that it is over, if it was told.
    pub(crate) const fn is_news(self, bounds: u128) -> bool {
        match (self.0, bounds) {
            (before, 0) => before > 0,
            (before, now) => now >= before.saturating_mul(2),
        }
    }

    /// Whether anything was told that is not over.
    pub(crate) const fn stands(self) -> bool {
        self.0 > 0
    }
}

impl From<u128> for Told {
    fn from(bounds: u128) -> Self {
        Self(bounds)
    }
}

/// A stretch of work: what the throttle held back of it does not count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stretch {
    began: Instant,
    held: Duration,
}

impl Stretch {
    /// Begins now.
    pub(crate) fn begin(progress: &Progress) -> Self {
        Self {
            began: Instant::now(),
            held: progress.held(),
        }
    }

    /// How long it is by now.
    pub(crate) fn elapsed(&self, progress: &Progress) -> Duration {
        let held = progress.held().saturating_sub(self.held);
        self.began.elapsed().saturating_sub(held)
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
    pub compares: bool,
    pub keys_uncompared: u64,
    pub rows_dumped: u64,
    pub rows_dumped_before: u64,
    pub rows_deleted: u64,
    pub throttled_ms: u64,
}

impl Progress {
    fn held(&self) -> Duration {
        Duration::from_millis(self.throttled_ms.load(Ordering::Relaxed))
    }

    /// Adds to a counter.
    pub(crate) fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }

    /// What there is to copy and what is done of it, as the move's record has it.
    pub(crate) fn go_on(&self, record: &MoveRecord) {
        let set = |counter: &AtomicU64, to| counter.store(to, Ordering::Relaxed);
        set(&self.rows_expected, record.expected_rows);
        set(&self.bytes_expected, record.expected_bytes);
        self.noted.set(record.copied_rows, record.copied_bytes);
        set(&self.keys_applied, record.applied_keys);
        set(&self.rows_deleted, record.deleted_rows);
    }

    /// So many keys changed since they were compared.
    pub(crate) fn uncompared(&self, keys: usize) {
        self.keys_uncompared.store(keys as u64, Ordering::Relaxed);
    }

    /// Rows and bytes that this run has copied.
    pub(crate) fn copied_now(&self) -> (u64, u64) {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (of(&self.rows_copied), of(&self.bytes_copied))
    }

    /// All counters, read one after the other.
    pub(crate) fn now(&self) -> ProgressNow {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let ((rows, bytes), found) = (self.copied_now(), self.found.get());
        let noted = self.noted.get();
        ProgressNow {
            rows_expected: of(&self.rows_expected),
            bytes_expected: of(&self.bytes_expected),
            rows_copied: found.0.saturating_add(rows).max(noted.0),
            bytes_copied: found.1.saturating_add(bytes).max(noted.1),
            keys_pending: of(&self.keys_pending),
            keys_applied: of(&self.keys_applied),
            feed_lag_ms: of(&self.feed_lag_ms),
            rows_compared: of(&self.rows_compared),
            compares: self.compares.load(Ordering::Relaxed),
            keys_uncompared: of(&self.keys_uncompared),
            rows_dumped: of(&self.rows_dumped),
            rows_dumped_before: of(&self.rows_dumped_before),
            rows_deleted: of(&self.rows_deleted),
            throttled_ms: of(&self.throttled_ms),
        }
    }
}

impl ProgressNow {
    /// Brings a move's record up to date. Its counts never go back.
    pub(crate) fn keep_in(self, record: &mut MoveRecord) {
        record.copied_rows = record.copied_rows.max(self.rows_copied);
        record.copied_bytes = record.copied_bytes.max(self.bytes_copied);
        record.applied_keys = record.applied_keys.max(self.keys_applied);
        record.deleted_rows = record.deleted_rows.max(self.rows_deleted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copied(progress: &Progress) -> (u64, u64) {
        let now = progress.now();
        (now.rows_copied, now.bytes_copied)
    }

    #[test]
    fn what_lasts_is_told_past_its_bound_at_each_double_and_when_it_is_over() {
        let mut told = Told::default();
        let mut news = Vec::new();
        for bounds in [0, 0, 1, 1, 2, 3, 4, 5, 7, 9, 0, 0, 3, 5, 6, 0] {
            if told.is_news(bounds) {
                told = Told::from(bounds);
                news.push(bounds);
            }
            assert_eq!(told.stands(), bounds > 0);
        }
        assert_eq!(news, [1, 2, 4, 9, 0, 3, 6, 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_held_back_does_not_count() {
        let (progress, second) = (Progress::default(), Duration::from_secs(1));
        Progress::add(&progress.throttled_ms, 7_000);
        let stretch = Stretch::begin(&progress);
        tokio::time::advance(600 * second).await;
        assert_eq!(stretch.elapsed(&progress), 600 * second);
        Progress::add(&progress.throttled_ms, 590_000);
        assert_eq!(stretch.elapsed(&progress), 10 * second);
        // A wait counts when it is over, which may be a moment later than it is long.
        Progress::add(&progress.throttled_ms, 11_000);
        assert_eq!(stretch.elapsed(&progress), Duration::ZERO);
    }

    /// The marks at the target are before the chunks that were on their way, which are copied again.
    #[test]
    fn what_a_run_copies_again_is_not_counted_again() {
        let record = MoveRecord {
            copied_rows: 40,
            copied_bytes: 400,
            ..MoveRecord::default()
        };
        let progress = Progress::default();
        progress.go_on(&record);
        assert_eq!(copied(&progress), (40, 400), "before it has a connection");
        progress.found.set(10, 100);
        for (rows, expected) in [(0, 40), (20, 40), (30, 40), (31, 41)] {
            progress.rows_copied.store(rows, Ordering::Relaxed);
            progress.bytes_copied.store(rows * 10, Ordering::Relaxed);
            assert_eq!(copied(&progress), (expected, expected * 10));
        }
        let mut record = record;
        progress.now().keep_in(&mut record);
        assert_eq!(record.copied_rows, 41);
    }

    #[test]
    fn keys_applied_and_rows_deleted_by_earlier_runs_count() {
        let mut record = MoveRecord {
            applied_keys: 7,
            deleted_rows: 70,
            ..MoveRecord::default()
        };
        let progress = Progress::default();
        progress.go_on(&record);
        Progress::add(&progress.keys_applied, 5);
        Progress::add(&progress.rows_deleted, 50);
        progress.now().keep_in(&mut record);
        assert_eq!((record.applied_keys, record.deleted_rows), (12, 120));
    }
}
