//! The keys of the shop's rows that changed at the source.
//!
//! A task reads the source's binlog and collects keys; whoever applies them takes them in batches. A key is handed out
//! only after its transaction has ended in the binlog. It may not be visible at the source yet: a batch says which
//! transactions the source must have executed before the rows are read ([`Batch::needs`]), and of which all keys have been
//! handed out by then ([`Batch::upto`]). The two differ while many keys are handed out in parts.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use shared::gtid::{Gtid, GtidSet};
use time::OffsetDateTime;

use super::binlog::{Follow, Sink, Watch};
use super::error::MoveError;
use super::job::Job;
use super::keys::{Keys, TableKey};
use super::progress::Progress;
use super::table::{Key, Table};

/// The sets that share the memory for keys: of the transaction that is read, of those before it, of what is handed out.
const SETS: usize = 3;

/// A key that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Changed {
    /// Its table's index.
    pub(crate) table: usize,
    /// The key.
    pub(crate) key: Key,
}

/// Keys to make equal.
#[derive(Debug)]
pub(crate) struct Batch {
    /// The keys.
    pub(crate) keys: Vec<Changed>,
    /// The source must have executed these before the rows are read.
    pub(crate) needs: GtidSet,
    /// Once this batch is applied, everything of these transactions is: the place to resume from.
    pub(crate) upto: GtidSet,
}

/// Collects changed keys until it is dropped. One at a time takes from it.
#[derive(Debug)]
pub(crate) struct Feed {
    follow: Follow,
    state: Arc<Mutex<State>>,
    progress: Arc<Progress>,
}

/// What was read and not handed out.
#[derive(Debug)]
struct State {
    /// The keys of whole transactions, up to `seen`.
    fresh: Keys,
    seen: GtidSet,
    /// What is handed out now, in parts: keys of transactions up to `current_seen`.
    current: Keys,
    current_seen: GtidSet,
    /// Everything of these was handed out.
    handed: GtidSet,
}

impl Feed {
    /// Begins to read after `from`. Keys that do not fit into memory go to files in `folder`.
    pub(crate) async fn start(
        job: &Job,
        tables: &Arc<[Table]>,
        from: GtidSet,
        folder: &Path,
    ) -> Result<Self, MoveError> {
        let watch = Watch {
            pod: job.source.pod,
            shop: job.shop,
            tables: Arc::clone(tables),
            mark: job.id.to_string(),
            past_marked: false,
            goes_on: false,
        };
        let bytes_max = job.limits.keys_bytes_max.get();
        let folder: Arc<Path> = folder.into();
        let keys = || Keys::new(Arc::clone(&folder), bytes_max / SETS);
        let state = Arc::new(Mutex::new(State {
            fresh: keys(),
            seen: from.clone(),
            current: keys(),
            current_seen: from.clone(),
            handed: from.clone(),
        }));
        let sink = Collector {
            open: keys(),
            state: Arc::clone(&state),
            progress: Arc::clone(&job.progress),
        };
        Ok(Self {
            follow: Follow::start(job.source.clone(), watch, from, &job.stop, sink).await?,
            state,
            progress: Arc::clone(&job.progress),
        })
    }

    /// Takes up to so many keys. Without any, `upto` is all that has been read.
    #[expect(
        clippy::unused_async,
        reason = "reading a file of keys may become slow enough to wait for"
    )]
    pub(crate) async fn take(&mut self, max: usize) -> Result<Batch, MoveError> {
        self.follow.check()?;
        let mut state = self.state.lock();
        let batch = state.take(max)?;
        self.progress
            .keys_pending
            .store(state.pending(), Ordering::Relaxed);
        Ok(batch)
    }

    /// Adds keys that must be made equal though nothing changed at the source. They are handed out before anything that
    /// is read from now on counts as handed out.
    pub(crate) fn add_keys(
        &mut self,
        keys: impl IntoIterator<Item = TableKey>,
    ) -> Result<(), MoveError> {
        let mut state = self.state.lock();
        for (table, key) in keys {
            state.current.insert(table, key)?;
        }
        Ok(())
    }

    /// Waits until it ends, and says why. Never, as long as all is well.
    pub(crate) async fn watch(&self) -> MoveError {
        self.follow.watch().await
    }

    /// How many keys wait.
    pub(crate) fn pending(&self) -> u64 {
        self.state.lock().pending()
    }

    /// Whether all of a set is read, at the latest when the limit is over.
    pub(crate) async fn reads(&self, set: &GtidSet, limit: Duration) -> Result<bool, MoveError> {
        self.follow.wait(limit, |seen| seen.contains(set)).await
    }

    /// Waits until something beyond a set is read. The limit is for standing still.
    pub(crate) async fn reads_beyond(
        &self,
        set: &GtidSet,
        limit: Duration,
    ) -> Result<(), MoveError> {
        self.follow.wait_beyond(set, limit).await
    }
}

impl State {
    fn pending(&self) -> u64 {
        self.fresh.len() + self.current.len()
    }

    fn take(&mut self, max: usize) -> Result<Batch, MoveError> {
        if self.current.is_empty() {
            std::mem::swap(&mut self.current, &mut self.fresh);
            self.current_seen.clone_from(&self.seen);
        }
        let keys = self.current.take(max)?;
        if self.current.is_empty() {
            self.handed.clone_from(&self.current_seen);
        }
        let keys = keys.into_iter();
        Ok(Batch {
            keys: keys.map(|(table, key)| Changed { table, key }).collect(),
            needs: self.current_seen.clone(),
            upto: self.handed.clone(),
        })
    }
}

/// Puts keys of whole transactions where they are taken from.
struct Collector {
    /// Keys of the transaction that is read.
    open: Keys,
    state: Arc<Mutex<State>>,
    progress: Arc<Progress>,
}

impl Sink for Collector {
    fn row(&mut self, table: usize, key: Key) -> Result<(), MoveError> {
        self.open.insert(table, key)
    }

    fn mark(&mut self) {}

    fn odd(&mut self, _: String) {}

    fn end(&mut self, gtid: &Gtid, at_ms: u64) -> Result<(), MoveError> {
        let mut state = self.state.lock();
        if !self.open.is_empty() {
            state.fresh.append(&mut self.open)?;
            self.progress
                .keys_pending
                .store(state.pending(), Ordering::Relaxed);
        }
        state.seen.add(gtid);
        drop(state);
        let now = OffsetDateTime::now_utc().unix_timestamp_nanos() / 1_000_000;
        let now = u64::try_from(now).unwrap_or_default();
        self.progress
            .feed_lag_ms
            .store(now.saturating_sub(at_ms), Ordering::Relaxed);
        Ok(())
    }

    fn again(&mut self) {
        self.open.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mover::table::KeyPart;

    fn gtid(number: u64) -> Gtid {
        Gtid::new([1; 16], None, number).unwrap()
    }

    fn upto(number: u64) -> GtidSet {
        let mut set = GtidSet::default();
        for number in 1..=number {
            set.add(&gtid(number));
        }
        set
    }

    fn key(number: u64) -> Key {
        Key([KeyPart::Unsigned(number)].into())
    }

    struct World {
        _folder: tempfile::TempDir,
        state: Arc<Mutex<State>>,
        collector: Collector,
    }

    fn world() -> World {
        let folder = tempfile::tempdir().unwrap();
        let keys = || Keys::new(folder.path().into(), 1_000);
        let state = Arc::new(Mutex::new(State {
            fresh: keys(),
            seen: GtidSet::default(),
            current: keys(),
            current_seen: GtidSet::default(),
            handed: GtidSet::default(),
        }));
        let collector = Collector {
            open: keys(),
            state: Arc::clone(&state),
            progress: Arc::default(),
        };
        World {
            _folder: folder,
            state,
            collector,
        }
    }

    impl World {
        fn transaction(&mut self, number: u64, keys: std::ops::Range<u64>) {
            for n in keys {
                self.collector.row(0, key(n)).unwrap();
            }
            self.collector.end(&gtid(number), 0).unwrap();
        }

        fn take(&self, max: usize) -> (usize, GtidSet, GtidSet) {
            let batch = self.state.lock().take(max).unwrap();
            (batch.keys.len(), batch.needs, batch.upto)
        }
    }

    #[test]
    fn a_transaction_that_has_not_ended_gives_nothing() {
        let mut world = world();
        world.collector.row(0, key(1)).unwrap();
        assert_eq!(world.take(10), (0, upto(0), upto(0)));
        world.collector.again();
        world.transaction(1, 2..3);
        assert_eq!(world.take(10), (1, upto(1), upto(1)));
        world.transaction(2, 0..0);
        assert_eq!(world.take(10), (0, upto(2), upto(2)));
    }

    /// A key that is added holds the place to resume from, though it is of no transaction.
    #[test]
    fn what_is_added_is_handed_out_first() {
        let mut world = world();
        world.transaction(1, 0..2);
        world.state.lock().current.insert(0, key(9)).unwrap();
        world.transaction(2, 2..3);
        assert_eq!(world.take(10), (1, upto(0), upto(0)));
        assert_eq!(world.take(10), (3, upto(2), upto(2)));
    }

    /// Also while more comes than is taken, and through files.
    #[test]
    fn everything_up_to_a_set_was_handed_out() {
        let mut world = world();
        world.transaction(1, 0..100);
        assert_eq!(world.take(60), (60, upto(1), upto(0)));
        world.transaction(2, 100..110);
        assert_eq!(world.take(60), (40, upto(1), upto(1)));
        assert_eq!(world.take(60), (10, upto(2), upto(2)));
    }
}
