//! `observing` and `retiring`: the target sells; the source's copy is kept as it was at the fence, then dumped and
//! deleted. Whatever changes it meanwhile is a stray: somebody writes past the home.

use std::sync::Arc;
use std::time::Duration;

use shared::gtid::GtidSet;
use shared::moves::{MoveEvent, MoveId};
use tokio::time::sleep;

use super::Driver;
use super::follow::{Tables, set_of};
use crate::api::Stray;
use crate::catalog::{MoveDetail, MoveRef, now_ms};
use crate::mover::error::MoveError;
use crate::mover::home::Change;
use crate::mover::job::End;
use crate::mover::session::Session;
use crate::mover::step::{Step, step};
use crate::mover::table::discover;
use crate::mover::tail::{STRAYS_KEPT, Tail};
use crate::mover::{leftover, retire};

/// How often strays are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long the source's binlog may take to be read to its end: it holds other shops' changes too.
const READ_WITHIN: Duration = Duration::from_secs(30);

impl Driver {
    /// Watches the source's copy until the time is over or an operator ends it.
    pub(super) async fn observe(&mut self) -> Result<(), MoveError> {
        self.hands = None;
        self.turn = None;
        if self.row.detail.source_gone {
            // There is nothing to observe, nor to move back to.
            let detail = self.row.detail.clone();
            return self.step(MoveEvent::Finish, &detail, None).await;
        }
        self.take_both().await?;
        let (_, tail) = self.watch_source().await?;
        loop {
            self.note_strays(&tail).await?;
            let detail = &self.row.detail;
            let since = detail.observing_since_ms.unwrap_or(self.row.changed_ms);
            let over = u64::try_from(now_ms() - since).is_ok_and(|ms| ms >= detail.observe_ms);
            let strays = !detail.strays.is_empty() && !detail.despite_strays;
            let id = self.row.id;
            let waits = (over && strays).then(|| {
                format!(
                    "the source's copy was changed after the fence; look at the strays, then move the shop back, \
                     or `podctl move finish {id} --despite-strays`"
                )
            });
            // What ended the run before has passed: it would be told for days.
            self.waits(waits).await?;
            if over && !strays && self.read_to_the_end(&tail).await? {
                let detail = self.row.detail.clone();
                return self.step(MoveEvent::Finish, &detail, None).await;
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Dumps and deletes the source's copy; a stray stops it until an operator says otherwise.
    pub(super) async fn retire(&mut self) -> Result<(), MoveError> {
        if self.row.detail.source_gone {
            return self.close_without_source().await;
        }
        self.take_both().await?;
        let (tables, tail) = self.watch_source().await?;
        loop {
            self.read_to_the_end(&tail).await?;
            self.wait_for_word().await?;
            let pods = [self.job.source.pod; 2];
            let _turn = self.turn_of(|mover| &mover.clearings, pods).await?;
            if self.retire_rows(&tables, &tail).await? {
                break;
            }
        }
        let former = leftover::former(&self.mover.catalog, &self.job).await?;
        self.leave_target(&former).await?;
        let job = &self.job;
        step!(Step::ForgetSourceMarks => {
            leftover::forget_marks(job, &job.source, &former).await
        })
        .await?;
        self.at_source(Step::ReleaseSource, &Change::Release)
            .await?;
        let mut detail = self.row.detail.clone();
        detail.record.deleted_rows = detail
            .record
            .deleted_rows
            .max(self.job.progress.now().rows_deleted);
        self.step(MoveEvent::Retired, &detail, None).await
    }

    /// Ends the move at the target and in the catalog. What the source has is an operation of its own, for the day on which
    /// that pod comes back.
    async fn close_without_source(&mut self) -> Result<(), MoveError> {
        if !self.target_taken {
            self.take_target().await?;
        }
        let former = leftover::former(&self.mover.catalog, &self.job).await?;
        self.leave_target(&former).await?;
        let detail = self.row.detail.clone();
        self.step(MoveEvent::Retired, &detail, None).await
    }

    /// The target is done with the move: no mark of it is there, and its home is no move's any more.
    async fn leave_target(&mut self, former: &[MoveId]) -> Result<(), MoveError> {
        let job = &self.job;
        step!(Step::ForgetTargetMarks => {
            leftover::forget_marks(job, &job.target, former).await
        })
        .await?;
        self.at_target(Step::ReleaseTarget, &Change::Release)
            .await
            .map(drop)
    }

    /// Whether it is done; not, where a stray stopped it.
    async fn retire_rows(&mut self, tables: &Tables, tail: &Tail) -> Result<bool, MoveError> {
        let job = self.job.clone();
        let dumps = self.mover.dumps()?;
        let dump = step!(Step::Dump => {
            retire::dump_rows(&job, tables, &dumps, retire::Of::Copy).await
        })
        .await?;
        let mut detail = self.row.detail.clone();
        detail.record.dump = Some(dump.display().to_string());
        if detail != self.row.detail {
            self.note(Step::NoteDump, &detail).await?;
        }
        // The turn and the dump may have taken long: nobody has looked at what was written since.
        if !self.read_to_the_end(tail).await? {
            return Ok(false);
        }
        let despite = self.row.detail.despite_strays;
        let mut deleting = std::pin::pin!(step!(Step::Delete => {
            retire::delete_rows(&job, tables).await
        }));
        loop {
            tokio::select! {
                done = &mut deleting => {
                    done?;
                    // A table whose rows were gone already may have new ones.
                    return self.read_to_the_end(tail).await;
                }
                () = sleep(LOOK_EVERY) => {
                    if self.note_strays(tail).await? && !despite {
                        return Ok(false);
                    }
                }
            }
        }
    }

    /// Waits while there are strays and nobody has said that they may go.
    async fn wait_for_word(&mut self) -> Result<(), MoveError> {
        loop {
            let detail = &self.row.detail;
            if detail.strays.is_empty() || detail.despite_strays {
                return self.waits(None).await;
            }
            let text = format!(
                "the source's copy was changed after the fence; look at the strays, then \
                 `podctl move finish {} --despite-strays`",
                self.row.id
            );
            self.waits(Some(text)).await?;
            sleep(LOOK_EVERY).await;
            let reference = MoveRef::Id(self.row.id);
            let row = self.mover.catalog.move_row(&reference).await?;
            if row.detail.source_gone {
                // The next run asks nothing more of the source.
                return Err(MoveError::Stopped);
            }
            // Of another owner or state the keeper hears.
            self.row.detail.despite_strays = row.detail.despite_strays;
        }
    }

    /// The owner number in both homes; they are what the hand-over made them.
    async fn take_both(&mut self) -> Result<(), MoveError> {
        self.take_source().await?;
        if !self.target_taken {
            self.take_target().await?;
        }
        Ok(())
    }

    /// Reads the source's binlog from the fence on.
    async fn watch_source(&mut self) -> Result<(Tables, Tail), MoveError> {
        let mut session = Session::open(&self.job, &self.job.source).await?;
        let tables: Tables = discover(&mut session).await?.into();
        let executed = session.gtid_executed().await?;
        session.close().await;
        let detail = &self.row.detail;
        let from = detail.watched.as_deref().or(detail.fence_gtid.as_deref());
        let Ok(from) = set_of(from) else {
            let text = "the move's record names no set of transactions to look from".to_owned();
            self.note_unseen(text, &executed).await?;
            return Ok((
                Arc::clone(&tables),
                Tail::source(&self.job, &tables, executed).await?,
            ));
        };
        let from = from.intersection(&executed);
        let tail = match Tail::source(&self.job, &tables, from).await {
            Err(MoveError::Binlog { text, .. }) => {
                self.note_unseen(text, &executed).await?;
                Tail::source(&self.job, &tables, executed).await?
            }
            tail => tail?,
        };
        Ok((tables, tail))
    }

    /// A part of the source's binlog is gone: what it held nobody will know. That counts as a stray, so that an operator
    /// decides, and the watch goes on from here.
    async fn note_unseen(&mut self, text: String, executed: &GtidSet) -> Result<(), MoveError> {
        let mut detail = self.row.detail.clone();
        detail.watched = Some(executed.to_string());
        unseen(&mut detail.strays, text, now_ms());
        self.note(Step::NoteStrays, &detail).await
    }

    /// Reads all that the source has executed by now; says whether nothing stands against the end.
    async fn read_to_the_end(&mut self, tail: &Tail) -> Result<bool, MoveError> {
        let source: &End = &self.job.source;
        let mut session = Session::open(&self.job, source).await?;
        let executed = session.gtid_executed().await?;
        session.close().await;
        tail.wait_for(&executed, READ_WITHIN).await?;
        self.note_strays(tail).await?;
        Ok(self.row.detail.strays.is_empty() || self.row.detail.despite_strays)
    }

    /// Takes the strays that the tail has seen into the move's record; says whether there were new ones.
    async fn note_strays(&mut self, tail: &Tail) -> Result<bool, MoveError> {
        let watched = tail.seen();
        let seen = tail.strays()?;
        let known = &self.row.detail.strays;
        let new: Vec<Stray> = seen
            .into_iter()
            .filter(|stray| !known.contains(stray))
            .take(STRAYS_KEPT.saturating_sub(known.len()))
            .collect();
        if new.is_empty() {
            self.note_watched(tail, watched).await?;
            return Ok(false);
        }
        tracing::error!(id = %self.row.id, shop = self.job.shop.get(), count = new.len(), "strays at the source");
        let mut detail: MoveDetail = self.row.detail.clone();
        detail.watched = Some(watched.to_string());
        detail.strays.extend(new);
        self.note(Step::NoteStrays, &detail).await?;
        Ok(true)
    }

    /// Now and then, how far the source was looked at.
    async fn note_watched(&mut self, tail: &Tail, watched: GtidSet) -> Result<(), MoveError> {
        if !tail.is_to_note(&watched) {
            return Ok(());
        }
        let catalog = &self.mover.catalog;
        self.row = catalog
            .note_watched(&self.row, &watched.to_string())
            .await?;
        Ok(())
    }
}

/// Adds what nobody will know to the strays: once, however often it is met, and no more than are kept.
fn unseen(strays: &mut Vec<Stray>, text: String, at_ms: i64) {
    let known = strays
        .iter()
        .any(|it| it.gtid.is_empty() && it.table == text);
    if !known && strays.len() < STRAYS_KEPT {
        strays.push(Stray {
            table: text,
            gtid: String::new(),
            at_ms: u64::try_from(at_ms).unwrap_or_default(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_seen_counts_once_and_within_the_bound() {
        let mut strays = Vec::new();
        for at_ms in [7, 8] {
            unseen(&mut strays, "purged".to_owned(), at_ms);
        }
        assert_eq!((strays.len(), strays[0].at_ms), (1, 7));
        for number in 0..2 * STRAYS_KEPT {
            unseen(&mut strays, number.to_string(), 9);
        }
        assert_eq!(strays.len(), STRAYS_KEPT);
    }
}
