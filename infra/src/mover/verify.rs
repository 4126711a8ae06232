//! Whether both sides hold the same rows: by chunks while the shop sells, by keys inside the fence.
//!
//! A chunk is a range of the primary key, so the chunks of a table cover every row that either side may have. Both servers
//! compute its fingerprint; where the two differ, the keys whose rows differ are found by digests of single rows
//! and noted in the ledger, together with every key that the applier writes meanwhile. Those are compared by
//! themselves, again and again while they change. A key that differs although everything that could have been seen is
//! applied is a true difference: it is put in order once, and when it differs again the move fails.
//!
//! What is left in the ledger when the fence closes is compared inside it. So every key is compared after its last
//! change, and a row that somebody alters at the target later than that is found by the tail of the target's binlog.

use std::sync::Arc;
use std::time::{Duration, Instant};

use shared::gtid::GtidSet;
use tokio::sync::watch;

use super::apply::{Applier, Ledger};
use super::error::MoveError;
use super::job::Job;
use super::progress::Stretch;
use super::table::{Table, unchanged};
use super::throttle::Throttle;

// Comparisons that were in vain.
mod anew;
// Ranges of keys, one after the other.
mod chunks;
// Questions that applications registered.
mod checks;
// Single keys.
mod keys;
// A session at each side.
mod pair;
// Where a comparison stands.
mod stand;

pub(crate) use anew::Anew;
pub(crate) use pair::Pair;
use stand::Noter;
pub(crate) use stand::{Compared, Stand};

/// The ledger is gone through as soon as it has this many keys: a round of that size is one statement at each side.
const SETTLE_AT: usize = 500;
/// How often an idle look at the ledger is taken.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// A comparison begins with its sessions.
const NO_PAIR: MoveError = MoveError::Unexpected("the comparison has no sessions");

/// What a whole comparison did.
#[derive(Debug, Clone, Default)]
pub(crate) struct Verified {
    /// Rows of the source, by chunks.
    pub(crate) rows: u64,
    /// Keys that differed with nothing on its way, and were put in order.
    pub(crate) keys_repaired: u64,
    /// Contradictions that the source has too: not the move's, but somebody should know.
    pub(crate) contradictions: Vec<String>,
}

/// What all parts of a comparison share.
pub(super) struct Comparison<'a> {
    pub(super) job: &'a Job,
    pub(super) tables: &'a [Table],
    pub(super) ledger: &'a Ledger,
    /// What the applier has applied.
    pub(super) applied: watch::Receiver<GtidSet>,
    pub(super) throttle: &'a Throttle,
}

impl Comparison<'_> {
    /// Waits until everything that a reader of the source could have seen up to now is applied.
    pub(super) async fn settled(&self, pair: &mut Pair) -> Result<(), MoveError> {
        let seen = pair.source.gtid_executed().await?;
        let mut applied = self.applied.clone();
        let limits = &self.job.limits;
        let (began, mut held) = (Instant::now(), Duration::ZERO);
        loop {
            let looked = Instant::now();
            let follows = applied.wait_for(|set| set.contains(&seen));
            tokio::select! {
                biased;
                () = self.job.stop.cancelled() => return Err(MoveError::Stopped),
                // Without a sender the applier has ended: its own error says why.
                followed = follows => return followed.map(drop).map_err(|_| MoveError::Stopped),
                () = tokio::time::sleep(LOOK_AGAIN) => {}
            }
            // To be held back is not to be slow.
            if self.throttle.holds() {
                held += looked.elapsed();
            }
            if began.elapsed().saturating_sub(held) > limits.converge_bound {
                return Err(MoveError::Bound(format!(
                    "the target did not follow the source within {} s while both were compared; move at a calmer time, or freeze the shop",
                    limits.converge_bound.as_secs()
                )));
            }
        }
    }
}

impl Applier {
    /// Compares all rows of the shop, or those that an earlier run has not, while its changes are applied. Ends when every
    /// row compared equal after its last change, but for few keys that [`Self::compare_touched`] compares in the fence.
    pub(crate) async fn compare_all(&mut self) -> Result<Verified, MoveError> {
        loop {
            if self.ledger.is_off() && self.anew.forgot(&self.job.limits)? {
                tracing::warn!(
                    move_id = %self.job.id,
                    "more than {} keys changed before they could be compared: the comparison begins anew",
                    self.job.limits.touched_keys_max
                );
                // What changed so fast is followed first; none of it needs to be noted.
                self.converge().await?;
            }
            self.anew.begin();
            if let Some(verified) = self.compare_once().await? {
                return Ok(verified);
            }
        }
    }

    /// Whether all rows were compared, and every key is known that changed since.
    pub(crate) fn is_compared(&self) -> bool {
        self.ledger.is_complete()
    }

    /// One comparison; none, where the ledger has forgotten meanwhile what changed.
    async fn compare_once(&mut self) -> Result<Option<Verified>, MoveError> {
        self.refresh().await?;
        let ledger = Arc::clone(&self.ledger);
        let stand = self.begin_comparison();
        let comparison = Comparison {
            job: &self.job,
            tables: &self.tables,
            ledger: &ledger,
            applied: self.applied.subscribe(),
            throttle: &self.throttle,
        };
        let done = tokio_util::sync::CancellationToken::new();
        let Some((settler, workers)) = self.pairs.split_first_mut() else {
            return Err(NO_PAIR);
        };
        let comparing = async {
            let mut noter = Noter::new(&stand, comparison.job.limits.note_every);
            let plan = chunks::Plan::new(&comparison, stand.place);
            let read = tokio_util::sync::CancellationToken::new();
            let chunks = async {
                plan.run(workers).await?;
                read.cancel();
                Ok::<(), MoveError>(())
            };
            let settling = settle(&comparison, &plan, &mut noter, settler, &read);
            tokio::try_join!(chunks, settling)?;
            let mut verified = Verified {
                rows: plan.rows(),
                keys_repaired: stand.repaired + ledger.repaired(),
                ..Verified::default()
            };
            checks::ask(&comparison, settler, &mut verified).await?;
            settler.awake().await?;
            tokio::try_join!(
                unchanged(&mut settler.source, &self.tables),
                unchanged(&mut settler.target, &self.tables)
            )?;
            done.cancel();
            Ok((verified, Compared::new(noter, plan.position())))
        };
        let comparing = async {
            tokio::select! {
                biased;
                // The applier ended first: the ledger has forgotten what changed.
                () = done.cancelled() => Ok(None),
                found = comparing => found.map(Some),
            }
        };
        let hand = &mut self.hand;
        let applying = async {
            let applied = hand.apply_while(&ledger, &self.applied, &self.throttle, &done);
            applied.await?;
            done.cancel();
            Ok::<(), MoveError>(())
        };
        let (found, ()) = tokio::try_join!(comparing, applying)?;
        // (Its last batch may have been the one that was too much.)
        let Some((verified, compared)) = found.filter(|_| ledger.complete()) else {
            return Ok(None);
        };
        self.compared = Some(compared);
        Ok(Some(verified))
    }

    /// Where the comparison begins: at the first row, unless an earlier run came further.
    fn begin_comparison(&mut self) -> Stand {
        self.compared = None;
        if let Some(stand) = self.stand.take().filter(|_| self.ledger.goes_on()) {
            let (id, rows) = (self.job.id, stand.place.rows);
            tracing::info!(move_id = %id, rows, "the comparison goes on after what an earlier run compared");
            return stand;
        }
        self.ledger.begin();
        Stand::beginning(self.applied.borrow().clone())
    }

    /// Notes how far a comparison is that is over, when it is time. Says whether keys are to be looked at before.
    pub(crate) async fn note_compared(&mut self) -> Result<bool, MoveError> {
        let (Some(compared), Some(pair)) = (&mut self.compared, self.pairs.first_mut()) else {
            return Ok(false);
        };
        if !self.ledger.is_complete() {
            return Ok(false);
        }
        let comparison = Comparison {
            job: &self.job,
            tables: &self.tables,
            ledger: &self.ledger,
            applied: self.applied.subscribe(),
            throttle: &self.throttle,
        };
        compared.note_on(&comparison, pair).await
    }

    /// Compares the keys that changed since they were compared last. To be called when nothing changes any more and
    /// everything is applied: a difference is final. Gives the number of keys.
    pub(crate) async fn compare_touched(&mut self) -> Result<u64, MoveError> {
        if !self.is_compared() {
            return Err(MoveError::Waits(format!(
                "more than {} keys changed since they were compared: all rows are compared again",
                self.job.limits.touched_keys_max
            )));
        }
        let round = self.ledger.round(usize::MAX);
        let count = round.len() as u64;
        let keys: Vec<_> = round.iter().map(|(key, _)| key.clone()).collect();
        let different = keys::compare(&self.job, &self.tables, &mut self.pairs, &keys).await?;
        if let Some(key) = different.iter().next() {
            let pair = self.pairs.first_mut().ok_or(NO_PAIR)?;
            let told = keys::describe(&self.job, &self.tables, pair, key).await?;
            return Err(MoveError::Diverged(told));
        }
        self.ledger.judge(round, &different);
        Ok(count)
    }

    /// One look at the oldest keys of the ledger, when the applier stands still.
    pub(crate) async fn settle_some(&mut self) -> Result<(), MoveError> {
        let max = SETTLE_AT * self.pairs.len();
        let round = self.ledger.round(max);
        let keys: Vec<_> = round.iter().map(|(key, _)| key.clone()).collect();
        let different = keys::compare(&self.job, &self.tables, &mut self.pairs, &keys).await?;
        let pair = self.pairs.first_mut().ok_or(NO_PAIR)?;
        let seen = pair.source.gtid_executed().await?;
        self.hand
            .catch_up(&seen, &self.ledger, &self.applied, Some(&self.throttle))
            .await?;
        let pair = self.pairs.first_mut().ok_or(NO_PAIR)?;
        keys::judge(
            &self.job,
            &self.tables,
            &self.ledger,
            pair,
            round,
            &different,
        )
        .await
        .map(drop)
    }
}

/// Goes through the ledger while chunks are compared, and after them until little is left. Notes where the comparison
/// stands, for which it looks at the keys that are in the way.
async fn settle(
    comparison: &Comparison<'_>,
    plan: &chunks::Plan<'_>,
    noter: &mut Noter,
    pair: &mut Pair,
    read: &tokio_util::sync::CancellationToken,
) -> Result<(), MoveError> {
    let Comparison {
        job,
        tables,
        ledger,
        ..
    } = comparison;
    let few = usize::try_from(job.limits.fence_keys_max).unwrap_or(usize::MAX);
    let progress = &job.progress;
    let mut ended: Option<Stretch> = None;
    loop {
        job.progress.uncompared(ledger.len());
        // (The place is asked for before anything else of a note.)
        let due = noter.is_due() && !noter.note(comparison, plan.position(), pair).await?;
        if read.is_cancelled() {
            if ledger.unsettled() == 0 && ledger.len() <= few {
                // Whoever takes the move up before it is over compares nothing twice.
                let noted = noter.note(comparison, plan.position(), pair).await;
                return noted.map(drop);
            }
            // To be held back is not to be slow.
            let since = ended.get_or_insert_with(|| Stretch::begin(progress));
            if since.elapsed(progress) > job.limits.converge_bound {
                return Err(MoveError::Bound(format!(
                    "{} keys change faster than they can be compared; move at a calmer time, or freeze the shop",
                    ledger.len()
                )));
            }
        } else if ledger.len() < SETTLE_AT && !due {
            tokio::select! {
                () = read.cancelled() => {}
                () = tokio::time::sleep(LOOK_AGAIN) => {}
            }
            pair.awake().await?;
            continue;
        }
        let round = ledger.round(SETTLE_AT);
        let keys: Vec<_> = round.iter().map(|(key, _)| key.clone()).collect();
        pair.awake().await?;
        let one = std::slice::from_mut(pair);
        let different = keys::compare(job, tables, one, &keys).await?;
        comparison.settled(pair).await?;
        // The applier may have been held back for long.
        pair.awake().await?;
        if keys::judge(job, tables, ledger, pair, round, &different).await? == 0 {
            // The applier has to do something first, and may be held back.
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}
