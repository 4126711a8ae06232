//! `copying`, `catching_up` and `verifying`: the target gets the rows, follows the source, and is compared with it.
//!
//! From the first row on two binlogs are read: the source's for the keys that change, the target's for changes that are
//! not the mover's. Both begin where the catalog says that they did when the copy began, whichever run reads them.

use std::sync::Arc;

use shared::gtid::GtidSet;
use shared::moves::{MoveEvent, MoveState};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::fence::SEEN_WITHIN;
use super::trouble::{forgetting, telling};
use super::{Driver, Fences};
use crate::catalog::MoveDetail;
use crate::mover::apply::{self, Applier, Until};
use crate::mover::copy;
use crate::mover::error::MoveError;
use crate::mover::feed::Feed;
use crate::mover::home::Change;
use crate::mover::job::Job;
use crate::mover::session::Session;
use crate::mover::step::{Step, step};
use crate::mover::table::{Table, discover};
use crate::mover::tail::Tail;
use crate::mover::throttle::Throttle;
use crate::mover::verify::{Stand, Verified};

/// A step for which hands are made first.
pub(super) const NO_HANDS: MoveError = MoveError::Unexpected("a step began without its hands");

/// The shop's tables.
pub(super) type Tables = Arc<[Table]>;

/// What works on the rows: of one run, or of several (see [`Kept`](super::Kept)). Its connections end with it.
pub(super) struct Hands {
    pub(super) tables: Tables,
    /// What its parts were begun with.
    pub(super) job: Job,
    /// What the last comparison of all rows found. From then on the applier knows each key that changed since it was compared,
    /// unless that are too many.
    pub(super) verified: Option<Verified>,
    /// Collects changed keys; the applier's, once that is there.
    feed: Option<Feed>,
    /// What an earlier run compared, for the applier; the feed begins there.
    stand: Option<Stand>,
    pub(super) applier: Option<Applier>,
    /// Sees changes at the target that are nobody's business.
    pub(super) tail: Tail,
}

impl Drop for Hands {
    fn drop(&mut self) {
        self.job.stop.cancel();
    }
}

impl Driver {
    /// Copies the chunks that are left.
    pub(super) async fn copy(&mut self) -> Result<(), MoveError> {
        self.go_to_work().await?;
        let (job, Some(hands)) = (&self.job, &mut self.hands) else {
            return Err(NO_HANDS);
        };
        let Hands {
            tables, feed, tail, ..
        } = hands;
        let Some(feed) = feed else {
            return Err(NO_HANDS);
        };
        let copying = step!(Step::Copy => {
            copy::copy_all(job, tables, Throttle::start(job)).await
        });
        let copying = Box::pin(async {
            tokio::select! {
                done = copying => done,
                // A binlog that cannot be followed any more is told now, not when all is copied.
                fault = feed.watch() => Err(fault),
                fault = tail.watch() => Err(fault),
            }
        });
        forgetting(&self.mover.catalog, &mut self.row, job, copying).await?;
        let detail = self.counted();
        self.step(MoveEvent::Copied, &detail, None).await
    }

    /// Follows the source until few changes are left, compares everything, and goes into the fence.
    pub(super) async fn follow(&mut self, fences: &mut Fences) -> Result<(), MoveError> {
        self.go_to_work().await?;
        let converging = Box::pin(converge(&mut self.hands));
        forgetting(&self.mover.catalog, &mut self.row, &self.job, converging).await?;
        if self.row.state == MoveState::CatchingUp {
            let detail = self.counted();
            self.step(MoveEvent::CaughtUp, &detail, None).await?;
        }
        self.compare().await?;
        self.wait_for_fence(fences).await?;
        self.hand_over(fences).await
    }

    /// Compares all rows, unless these hands have done so: then each key that changed since is compared by itself, as long as
    /// the applier knows them all.
    async fn compare(&mut self) -> Result<(), MoveError> {
        let Some(Hands {
            applier: Some(applier),
            tail,
            verified,
            ..
        }) = &mut self.hands
        else {
            return Err(NO_HANDS);
        };
        if verified.is_none() || !applier.is_compared() {
            let comparing = step!(Step::Compare => applier.compare_all().await);
            let comparing = Box::pin(async {
                tokio::select! {
                    done = comparing => done,
                    fault = tail.watch() => Err(fault),
                }
            });
            let (catalog, row) = (&self.mover.catalog, &mut self.row);
            let found = forgetting(catalog, row, &self.job, comparing).await?;
            for text in &found.contradictions {
                tracing::warn!(id = %self.row.id, "the source contradicts itself: {text}");
            }
            *verified = Some(found);
        }
        if let Some(found) = verified {
            self.row.detail.record.compared_rows = found.rows;
            self.row.detail.record.repaired_rows = found.keys_repaired;
        }
        Ok(())
    }

    /// Applies changed keys until few are left. All rows are compared again, where so many changed at once that it is not known
    /// any more which.
    pub(super) async fn converge(&mut self) -> Result<(), MoveError> {
        loop {
            let converging = Box::pin(converge(&mut self.hands));
            telling(&self.mover.catalog, &mut self.row, &self.job, converging).await?;
            let compared = |hands: &Hands| hands.applier.as_ref().is_some_and(Applier::is_compared);
            if self.hands.as_ref().is_some_and(compared) {
                return Ok(());
            }
            self.compare().await?;
        }
    }

    /// Everything that a run needs before it touches a row: the owner number in both homes, the target's home
    /// `incoming`, and the two binlogs.
    async fn go_to_work(&mut self) -> Result<(), MoveError> {
        if self.at_work {
            return Ok(());
        }
        self.take_turn().await?;
        self.take_source().await?;
        if !self.target_taken {
            self.take_target().await?;
        }
        if self.incoming_since.is_none() {
            // A lifted hand-over may have left it `ready`.
            self.at_target(Step::Incoming, &Change::Incoming).await?;
            self.incoming_since = Some(Instant::now());
        }
        self.at_work = true;
        if let Some(hands) = &mut self.hands {
            hands.job.owner = self.job.owner;
            if let Some(applier) = &mut hands.applier {
                applier.renumber(self.job.owner);
            }
            return Ok(());
        }
        let (mut source, mut target) = tokio::try_join!(
            Session::open(&self.job, &self.job.source),
            Session::open(&self.job, &self.job.target)
        )?;
        self.note_start(&mut source, &mut target).await?;
        let tables: Tables = match self.tables.take() {
            // (The comparison at the end makes sure that they are the same then.)
            Some(tables) => tables,
            None => discover(&mut source).await?.into(),
        };
        let noted = apply::resume_point(&mut target, &self.job).await?;
        let from = match noted {
            Some(set) => set,
            None => set_of(self.row.detail.source_from.as_deref())?,
        };
        let executed = source.gtid_executed().await?;
        // (A server that lacks what was followed is not the one that was compared, whatever its term says.)
        let stand = Stand::noted(&mut target, &self.job, &tables).await?;
        let stand = stand.filter(|_| executed.contains(&from));
        let from = match &stand {
            Some(stand) => from.intersection(&stand.since),
            None => from,
        };
        // A primary that was replaced may lack what was never acknowledged.
        let from = from.intersection(&executed);
        let at_target = target.gtid_executed().await?;
        let watched = set_of(self.row.detail.target_from.as_deref())?.intersection(&at_target);
        let job = Job {
            stop: CancellationToken::new(),
            ..self.job.clone()
        };
        let feed = Feed::start(&job, &tables, from, &job.dir).await?;
        let tail = Tail::target(&job, &tables, watched).await?;
        if job.back {
            // A row that somebody else wrote there is nobody's to undo: it fails the move before anything is written.
            tail.wait_for(&at_target, SEEN_WITHIN).await?;
        }
        tokio::join!(source.close(), target.close());
        self.hands = Some(Hands {
            tables,
            job,
            verified: None,
            feed: Some(feed),
            stand,
            applier: None,
            tail,
        });
        Ok(())
    }

    /// Where the two binlogs begin: noted once, before the first row is copied, in files that are short until there.
    async fn note_start(
        &mut self,
        source: &mut Session,
        target: &mut Session,
    ) -> Result<(), MoveError> {
        if self.row.detail.source_from.is_some() && self.row.detail.target_from.is_some() {
            return Ok(());
        }
        tokio::try_join!(source.begin_file(), target.begin_file())?;
        let detail = MoveDetail {
            source_from: Some(source.gtid_executed().await?.to_string()),
            target_from: Some(target.gtid_executed().await?.to_string()),
            ..self.row.detail.clone()
        };
        self.note(Step::NoteStart, &detail).await
    }

    /// The detail with the counters of this run, and how far it has watched the target: a run that takes the move up looks
    /// at nothing twice.
    pub(super) fn counted(&self) -> MoveDetail {
        let now = self.job.progress.now();
        let mut detail = self.row.detail.clone();
        if let Some(hands) = &self.hands {
            detail.target_from = Some(hands.tail.seen().to_string());
        }
        now.keep_in(&mut detail.record);
        detail
    }
}

/// Applies changed keys until few are left.
async fn converge(hands: &mut Option<Hands>) -> Result<(), MoveError> {
    let Some(Hands {
        tables,
        feed,
        stand,
        applier,
        tail,
        job,
        ..
    }) = hands
    else {
        return Err(NO_HANDS);
    };
    if let Some(feed) = feed.take() {
        *applier = Some(Applier::open(job, feed, Arc::clone(tables), stand.take()).await?);
    }
    let Some(applier) = applier else {
        return Err(NO_HANDS);
    };
    let applying = step!(Step::CatchUp => {
        applier.apply_until(Until::Converged).await
    });
    tokio::select! {
        done = applying => done.map(drop),
        fault = tail.watch() => Err(fault),
    }
}

/// A set that the catalog keeps as text.
pub(super) fn set_of(text: Option<&str>) -> Result<GtidSet, MoveError> {
    let bad = || {
        MoveError::Refused {
        reasons: vec![
            "the move's record names no set of transactions to begin with; abort it and begin another one".to_owned(),
        ],
    }
    };
    GtidSet::parse(text.ok_or_else(bad)?).map_err(|_| bad())
}
