//! The applier's hand: takes a batch from the feed, reads, writes, notes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use shared::gtid::GtidSet;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::reader::{Found, Reader};
use super::{Ledger, PART};
use crate::mover::error::MoveError;
use crate::mover::feed::{Batch, Changed, Feed};
use crate::mover::job::Job;
use crate::mover::progress::Progress;
use crate::mover::session::Session;
use crate::mover::size;
use crate::mover::table::{self, Table};
use crate::mover::throttle::Throttle;
use crate::mover::tries::{self, Tries};

/// The first batch, and the smallest: later ones go by time, but in a fence each costs a commit, and its acknowledgement.
const BATCH_MIN: u64 = 500;
/// The largest: a transaction of that many rows is what a replica of the target can still swallow at once.
const BATCH_MAX: u64 = 5_000;
/// How long the source may take to show what its binlog already told of. It does so in milliseconds; semi-synchronous
/// replication can hold it up for as long as its replicas are away.
const VISIBLE_WITHIN: Duration = Duration::from_secs(20);
/// How long the feed may stand still before it has read what the source has executed: longer than a reconnect of it.
const SEEN_WITHIN: Duration = Duration::from_secs(30);
/// With everything read that is to be applied there are the fewest batches, each with a commit. A feed that needs longer
/// than this reads a binlog of minutes or hours: what it has is applied meanwhile, or it would pile up.
const GATHER: Duration = Duration::from_millis(100);

/// The feed, the sessions, and how far it is.
pub(crate) struct Hand {
    job: Job,
    tables: Arc<[Table]>,
    feed: Feed,
    /// What was taken from the feed and is not known to be applied: a call that is dropped half way loses no key.
    open: Option<Arc<Batch>>,
    reader: Reader,
    target: Session,
    size: u64,
    noted: Instant,
    noted_set: GtidSet,
}

impl Hand {
    pub(super) async fn open(
        job: &Job,
        feed: Feed,
        tables: Arc<[Table]>,
    ) -> Result<Self, MoveError> {
        let (reader, mut target) = tokio::try_join!(
            Reader::open(job, Arc::clone(&tables)),
            Session::open(job, &job.target)
        )?;
        target.squeeze().await?;
        Ok(Self {
            job: job.clone(),
            tables,
            feed,
            open: None,
            reader,
            target,
            size: BATCH_MIN,
            noted: Instant::now(),
            noted_set: GtidSet::default(),
        })
    }

    pub(super) const fn renumber(&mut self, owner: u64) {
        self.job.owner = owner;
    }

    /// What the source has executed.
    pub(super) async fn source_executed(&mut self) -> Result<GtidSet, MoveError> {
        self.reader.session()?.gtid_executed().await
    }

    /// Keys that the feed has and nobody applied.
    pub(super) fn pending(&self) -> u64 {
        self.feed.pending()
    }

    /// Lets time go by, but not past the run's end.
    pub(super) async fn wait(&self, pause: Duration) -> Result<(), MoveError> {
        tokio::select! {
            () = self.job.stop.cancelled() => Err(MoveError::Stopped),
            () = tokio::time::sleep(pause) => Ok(()),
        }
    }

    pub(super) async fn refresh(&mut self) -> Result<(), MoveError> {
        self.reader.refresh().await?;
        self.target.awake().await
    }

    /// Applies everything of a set, also while the feed still reads it. A fence gives no throttle: its shop waits.
    pub(in crate::mover) async fn catch_up(
        &mut self,
        set: &GtidSet,
        ledger: &Ledger,
        applied: &watch::Sender<GtidSet>,
        throttle: Option<&Throttle>,
    ) -> Result<(), MoveError> {
        let whole = self.feed.reads(set, GATHER).await?;
        loop {
            if let Some(throttle) = throttle {
                throttle.pass().await?;
                self.refresh().await?;
            }
            let any = self.apply_batch(ledger, applied).await?;
            // Batches beyond the set are not this call's.
            if applied.borrow().contains(set) && !(any && ledger.has_repairs()) {
                return Ok(());
            }
            if self.job.stop.is_cancelled() {
                return Err(MoveError::Stopped);
            }
            if !any && !whole {
                let handed = applied.borrow().clone();
                self.feed.reads_beyond(&handed, SEEN_WITHIN).await?;
            }
        }
    }

    /// Applies whatever comes until told to end, or until the ledger has forgotten what it was to note.
    pub(in crate::mover) async fn apply_while(
        &mut self,
        ledger: &Ledger,
        applied: &watch::Sender<GtidSet>,
        throttle: &Throttle,
        done: &CancellationToken,
    ) -> Result<(), MoveError> {
        /// How long the feed is left alone when it had nothing.
        const IDLE: Duration = Duration::from_millis(5);
        while !done.is_cancelled() && !ledger.is_off() {
            throttle.pass().await?;
            self.refresh().await?;
            if !self.apply_batch(ledger, applied).await? {
                self.wait(IDLE).await?;
            }
        }
        Ok(())
    }

    /// One batch. Says whether there was one.
    async fn apply_batch(
        &mut self,
        ledger: &Ledger,
        applied: &watch::Sender<GtidSet>,
    ) -> Result<bool, MoveError> {
        self.feed.add_keys(ledger.take_repairs())?;
        let batch = match &self.open {
            Some(batch) => Arc::clone(batch),
            None => {
                let size = usize::try_from(self.size).unwrap_or(usize::MAX);
                Arc::new(self.feed.take(size).await?)
            }
        };
        if batch.keys.is_empty() {
            // With no key to apply a run that takes the move up reads no more binlog again than this.
            if self.noted.elapsed() > self.job.limits.note_every && batch.upto != self.noted_set {
                self.note(&batch.upto).await?;
            }
            applied.send_replace(batch.upto.clone());
            return Ok(false);
        }
        let began = Instant::now();
        self.open = Some(Arc::clone(&batch));
        let upto = batch.upto.clone();
        let count = batch.keys.len() as u64;
        let places: Vec<_> = batch
            .keys
            .iter()
            .map(|it| (it.table, it.key.clone()))
            .collect();
        self.write(&batch).await?;
        ledger.applied(places);
        self.open = None;
        Progress::add(&self.job.progress.keys_applied, count);
        Progress::add(&self.job.progress.pieces, 1);
        self.noted = Instant::now();
        self.noted_set.clone_from(&upto);
        applied.send_replace(upto);
        if count >= self.size / 2 {
            let next = size::next(self.size, began.elapsed(), self.job.limits.chunk_time);
            self.size = next.clamp(BATCH_MIN, BATCH_MAX);
        }
        Ok(true)
    }

    /// Notes how far the feed came, when there was no key to apply.
    async fn note(&mut self, upto: &GtidSet) -> Result<(), MoveError> {
        let text = upto.to_string();
        self.target.awake().await?;
        tries::note(&mut self.target, &self.job, PART, text.as_bytes()).await?;
        self.noted = Instant::now();
        self.noted_set.clone_from(upto);
        Ok(())
    }

    /// Makes the target equal for the keys of a batch. One transaction, or several where the rows are too large for one; the
    /// last one notes the set.
    async fn write(&mut self, batch: &Batch) -> Result<(), MoveError> {
        let source = self.reader.session()?;
        source.awake().await?;
        source.wait_executed(&batch.needs, VISIBLE_WITHIN).await?;
        let mut by_table: Vec<Vec<_>> = vec![Vec::new(); self.tables.len()];
        for Changed { table, key } in &batch.keys {
            if let Some(keys) = by_table.get_mut(*table) {
                keys.push(key.clone());
            }
        }
        let mut wishes = VecDeque::new();
        for (table, keys) in by_table.into_iter().enumerate() {
            wishes.extend(self.reader.wishes(table, keys));
        }
        let upto = batch.upto.to_string();
        loop {
            let found = self.reader.read(&mut wishes).await?;
            self.target.awake().await?;
            let last = wishes.is_empty().then_some(upto.as_bytes());
            self.transaction(&found, last).await?;
            if last.is_some() {
                return Ok(());
            }
        }
    }

    /// Writes rows, and with the last ones how far that is; again after a deadlock.
    async fn transaction(&mut self, found: &[Found], upto: Option<&[u8]>) -> Result<(), MoveError> {
        let mut tries = Tries::default();
        loop {
            match self.try_transaction(found, upto).await {
                Ok(()) => return Ok(()),
                Err(error) => tries.undo(&mut self.target, error).await?,
            }
        }
    }

    async fn try_transaction(
        &mut self,
        found: &[Found],
        upto: Option<&[u8]>,
    ) -> Result<(), MoveError> {
        let (job, target) = (&self.job, &mut self.target);
        match upto {
            Some(upto) => target.begin_owned_at(job, PART, upto).await?,
            None => target.begin_owned(job, PART).await?,
        }
        self.put(found).await?;
        self.target.commit().await
    }

    async fn put(&mut self, found: &[Found]) -> Result<(), MoveError> {
        for Found { table, keys, rows } in found {
            let Some(table) = self.tables.get(*table) else {
                continue;
            };
            // As many rows as keys: each key has its row. Otherwise which are gone is a question of the server's
            // collations, so all go, and those that are there come back.
            if rows.count < keys.len() as u64 {
                let sql = format!(
                    "delete from {} where {}",
                    table.quoted,
                    table.keys_in(self.job.shop, keys)
                );
                self.target.exec("delete rows", &sql).await?;
            }
            table::load(&mut self.target, table, rows).await?;
        }
        Ok(())
    }
}
