//! Makes the target equal to the source, key by key.
//!
//! The feed says which keys changed, not how: each batch reads the rows of its keys as they are now at the source and
//! writes them at the target, or deletes what is gone, in one transaction that also notes up to which set of the source's
//! transactions everything is applied. Done again it does no harm, and late it is not wrong: a row that was read newer than
//! its batch comes once more with the batch that it belongs to.
//!
//! A row is read only once the source says that it has executed what the batch needs, since the binlog tells of a
//! transaction before its rows can be seen.
//!
//! Unique values that change hands: a row that is written takes the place of whatever has its unique value at the
//! target. The row that had it there is another one at the source by now, so its change is in the feed too, in this
//! batch or in a later one; where it is already applied it has another value, and is not in the way.
//!
//! There is one applier for all tables, so that the noted set is one truth.

use std::sync::Arc;
use std::time::{Duration, Instant};

use shared::gtid::GtidSet;
use tokio::sync::watch;

use super::error::MoveError;
use super::feed::Feed;
use super::job::Job;
use super::progress::Stretch;
use super::session::Session;
use super::table::Table;
use super::throttle::Throttle;
use super::verify::{Anew, Compared, Pair, Stand};

// One batch after the other.
mod hand;
// Keys changed since they were compared.
mod ledger;
// Reading the rows of keys, within a bound of memory.
mod reader;

use hand::Hand;
pub(crate) use ledger::{Ledger, Place};

/// Whose mark the applier's transactions carry.
pub(crate) const PART: &str = "apply";

/// With nothing left to do, catching up takes this long at most: about what a fence may cost then.
const CLOSE: Duration = Duration::from_millis(250);
/// Machines that are too slow for that get a fence all the same, if one has room in its bound: after so long catching up may
/// take so large a part of the bound of all of the pause. Pods that do not keep up are those which shops are moved away from.
const PATIENCE: [(Duration, u32); 2] = [(Duration::from_secs(5), 4), (Duration::from_secs(20), 2)];
/// Keys to compare that are left for the fence: less than this takes it a few milliseconds.
const SETTLED_FEW: usize = 50;
/// Between two looks whether the target is close enough.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// How far to apply.
#[derive(Debug, Clone)]
pub(crate) enum Until {
    /// Until what is left would not hold up a fence.
    Converged,
    /// Until everything of this set is applied.
    Set(GtidSet),
}

/// Owns the feed, and its connections. A call that was dropped before it ended, or that failed, loses nothing but the
/// connections that it used: what was taken from the feed and is not known to be applied is applied again. A comparison of
/// all rows begins anew then. A new one takes up the work where the target's mark stands.
pub(crate) struct Applier {
    pub(super) job: Job,
    pub(super) tables: Arc<[Table]>,
    pub(super) ledger: Arc<Ledger>,
    /// What is applied, for whoever compares.
    pub(super) applied: watch::Sender<GtidSet>,
    pub(super) hand: Hand,
    pub(super) throttle: Throttle,
    /// For comparing; opened beforehand, since a fence has no time for it.
    pub(super) pairs: Vec<Pair>,
    /// What an earlier run compared; the feed begins there.
    pub(super) stand: Option<Stand>,
    /// The comparison of all rows, when it is over.
    pub(super) compared: Option<Compared>,
    /// Comparisons that were in vain.
    pub(super) anew: Anew,
}

impl Applier {
    /// Opens the connections. Where an earlier run's comparison is to be gone on with, the feed has everything since then.
    pub(crate) async fn open(
        job: &Job,
        feed: Feed,
        tables: Arc<[Table]>,
        stand: Option<Stand>,
    ) -> Result<Self, MoveError> {
        let streams = job.limits.streams.max(1);
        let pairs = (0..=streams).map(|_| Pair::open(job));
        let (hand, pairs) = tokio::try_join!(
            Hand::open(job, feed, Arc::clone(&tables)),
            futures::future::try_join_all(pairs)
        )?;
        let touched_max = usize::try_from(job.limits.touched_keys_max).unwrap_or(usize::MAX);
        let ledger = Arc::new(Ledger::new(touched_max));
        if stand.is_some() {
            ledger.go_on();
        }
        Ok(Self {
            job: job.clone(),
            tables,
            ledger,
            applied: watch::Sender::new(GtidSet::default()),
            hand,
            throttle: Throttle::start(job),
            pairs,
            stand,
            compared: None,
            anew: Anew::default(),
        })
    }

    /// The next run goes on with it, under its own owner number, which is in the target's home by now.
    pub(crate) const fn renumber(&mut self, owner: u64) {
        self.job.owner = owner;
        self.hand.renumber(owner);
    }

    /// The next run has other replicas to watch.
    pub(crate) fn watch_anew(&mut self, job: &Job) {
        self.job.source.replicas.clone_from(&job.source.replicas);
        self.job.target.replicas.clone_from(&job.target.replicas);
        self.throttle = Throttle::start(&self.job);
    }

    /// Applies; gives the set up to which everything is at the target.
    pub(crate) async fn apply_until(&mut self, until: Until) -> Result<GtidSet, MoveError> {
        match until {
            Until::Set(set) => {
                self.hand
                    .catch_up(&set, &self.ledger, &self.applied, None)
                    .await?;
            }
            Until::Converged => self.converge().await?,
        }
        Ok(self.applied.borrow().clone())
    }

    /// How many keys changed since they were compared.
    pub(crate) fn touched(&self) -> usize {
        self.ledger.len()
    }

    /// Applies until the target is close behind the source and little is left to compare.
    pub(super) async fn converge(&mut self) -> Result<(), MoveError> {
        self.refresh().await?;
        let limits = Arc::clone(&self.job.limits);
        let progress = Arc::clone(&self.job.progress);
        let begun = Instant::now();
        let mut best = u64::MAX;
        // To be held back is not to be slow.
        let mut gained = Stretch::begin(&progress);
        loop {
            self.throttle.pass().await?;
            self.refresh().await?;
            let began = Instant::now();
            let seen = self.hand.source_executed().await?;
            self.hand
                .catch_up(&seen, &self.ledger, &self.applied, Some(&self.throttle))
                .await?;
            let took = began.elapsed();
            let few = limits.fence_keys_max.min(SETTLED_FEW as u64);
            let in_the_way = self.note_compared().await?;
            if in_the_way || self.touched() as u64 > few || self.ledger.unsettled() > 0 {
                self.settle_some().await?;
            }
            progress.uncompared(self.touched());
            let left = self.hand.pending().saturating_add(self.touched() as u64);
            let close = close(begun.elapsed(), limits.pause_bound);
            if took <= close && left <= limits.fence_keys_max && self.ledger.unsettled() == 0 {
                return Ok(());
            }
            // A tenth less is a gain; to gain nothing for long means that the writers are faster.
            let behind = left.saturating_add(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
            if behind < best - best / 10 {
                best = behind;
                gained = Stretch::begin(&progress);
            } else if gained.elapsed(&progress) > limits.converge_bound {
                return Err(MoveError::Bound(format!(
                    "the target does not come close to the source: {left} keys are left, and catching up takes {} ms; \
                     move at a calmer time, or freeze the shop",
                    took.as_millis()
                )));
            }
            self.hand.wait(LOOK_AGAIN).await?;
        }
    }

    /// Says something on every connection, and opens those anew that are gone.
    pub(super) async fn refresh(&mut self) -> Result<(), MoveError> {
        self.hand.refresh().await?;
        for pair in &mut self.pairs {
            pair.awake().await?;
        }
        Ok(())
    }
}

/// What catching up may take where a fence has been waited for that long.
fn close(waited: Duration, pause_bound: Duration) -> Duration {
    let late = PATIENCE.iter().rfind(|(since, _)| waited >= *since);
    late.map_or(CLOSE, |(_, part)| CLOSE.max(pause_bound / *part))
}

/// The set of the source's transactions up to which everything is at the target, as the target's mark says; `None` where
/// nothing was applied yet.
pub(crate) async fn resume_point(
    target: &mut Session,
    job: &Job,
) -> Result<Option<GtidSet>, MoveError> {
    let Some(at) = target.marked(job, PART).await? else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(&at);
    let set = GtidSet::parse(&text).map_err(|error| MoveError::Binlog {
        pod: job.target.pod,
        text: format!("the mark of what is applied: {error}"),
    })?;
    Ok(Some(set))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_machine_gets_a_fence_in_time() {
        let bound = Duration::from_secs(5);
        let close = |seconds| close(Duration::from_secs(seconds), bound);
        assert_eq!(close(0), CLOSE);
        assert_eq!(close(5), bound / 4);
        assert_eq!(close(60), bound / 2);
    }
}
