//! `observing` and `retiring`: the target sells; the source's copy is kept as it was at the fence, then dumped and
//! deleted. Whatever changes it meanwhile is a stray: somebody writes past the home.

use std::sync::Arc;
use std::time::Duration;

use shared::gtid::GtidSet;
use shared::moves::{MoveEvent, MoveId};
use tokio::time::sleep;

use super::Driver;
use super::follow::{Tables, set_of};
use super::trouble::{Trouble, telling};
use crate::api::Stray;
use crate::catalog::{MoveDetail, MoveRef, now_ms};
use crate::mover::error::MoveError;
use crate::mover::home::Change;
use crate::mover::job::End;
use crate::mover::session::{COMMIT_LIMIT, Session};
use crate::mover::step::{Step, step};
use crate::mover::table::discover;
use crate::mover::tail::{STRAYS_KEPT, Strays, Tail};
use crate::mover::{leftover, retire};
use crate::output::count;

/// How often strays are looked for.
pub(in crate::mover) const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long the source's binlog may take to be read to its end: it holds other shops' changes too.
pub(in crate::mover) const READ_WITHIN: Duration = Duration::from_secs(30);

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
            let strays = detail.strays_stand();
            let back = format!(
                "`podctl shop move {} --to {} --despite-strays {}` (which undoes them), or ",
                self.row.handle,
                self.row.source_name,
                detail.strays_told()
            );
            let waits = (over && strays).then(|| self.word_wanted(&back));
            // What ended the run before has passed: it would be told for days.
            self.waits(waits).await?;
            if over && !strays && self.is_seen_to_the_end(&tail).await? {
                let detail = self.row.detail.clone();
                return self.step(MoveEvent::Finish, &detail, None).await;
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// What an operator is asked for who finds strays, beside what else may be done.
    fn word_wanted(&self, or: &str) -> String {
        let strays = self.row.detail.strays_told();
        format!(
            "the source's copy was changed after the fence, {} by now; look at the strays, then {or}`podctl move finish {} \
             --despite-strays {strays}`",
            count(strays, "time"),
            self.row.id
        )
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
            self.wait_for_word(&tail).await?;
            let pods = [self.job.source.pod; 2];
            let _turn = self.turn_of(|mover| &mover.clearings, pods).await?;
            // It may have been long in coming.
            self.read_to_the_end(&tail).await?;
            if self.row.detail.strays_stand() {
                continue;
            }
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
        self.job.progress.now().keep_in(&mut detail.record);
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

    /// Whether it is done; not, where a stray stopped it, which neither the word that was said nor the dump knows of.
    async fn retire_rows(&mut self, tables: &Tables, tail: &Tail) -> Result<bool, MoveError> {
        let job = self.job.clone();
        let dumps = self.mover.dumps()?;
        // All of them were committed before the dump begins. One that it may have is counted afterwards.
        let strays = self.row.detail.strays_told();
        let dumping = Box::pin(step!(Step::Dump => {
            retire::dump_rows(&job, tables, &dumps, retire::Of::Copy { strays }).await
        }));
        let dump = telling(&self.mover.catalog, &mut self.row, &job, dumping).await?;
        let mut detail = self.row.detail.clone();
        detail.record.dump = Some(dump.display().to_string());
        if detail != self.row.detail {
            self.note(Step::NoteDump, &detail).await?;
        }
        // The dump may have taken long: nobody has looked at what was written since.
        if self.read_to_the_end(tail).await? != strays {
            return Ok(false);
        }
        let mut deleting = std::pin::pin!(step!(Step::Delete => {
            retire::delete_rows(&job, tables, Some(tail)).await
        }));
        let mut trouble = Trouble::of(&job.progress, &job.limits);
        loop {
            tokio::select! {
                done = &mut deleting => {
                    done?;
                    // A table whose rows were gone already may have new ones.
                    return Ok(self.read_to_the_end(tail).await? == strays);
                }
                () = sleep(LOOK_EVERY) => {
                    trouble.look(&self.mover.catalog, &mut self.row).await;
                    self.note_strays(tail).await?;
                    if self.row.detail.strays_told() != strays {
                        return Ok(false);
                    }
                }
            }
        }
    }

    /// Waits while there are strays of which nobody has said that they may go. More of them are told meanwhile.
    async fn wait_for_word(&mut self, tail: &Tail) -> Result<(), MoveError> {
        loop {
            if !self.row.detail.strays_stand() {
                return self.waits(None).await;
            }
            let text = self.word_wanted("");
            self.waits(Some(text)).await?;
            sleep(LOOK_EVERY).await;
            self.note_strays(tail).await?;
            let reference = MoveRef::Id(self.row.id);
            let row = self.mover.catalog.move_row(&reference).await?;
            if row.detail.source_gone {
                // The next run asks nothing more of the source.
                return Err(MoveError::Ordered);
            }
            // Of another owner or state the keeper hears.
            self.row.detail.strays_let_go = row.detail.strays_let_go;
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
        take_in(&mut detail, unseen(text, now_ms()));
        self.note(Step::NoteStrays, &detail).await
    }

    /// Reads all that the source has executed by now; says whether nothing stands against the end.
    async fn is_seen_to_the_end(&mut self, tail: &Tail) -> Result<bool, MoveError> {
        self.read_to_the_end(tail).await?;
        Ok(!self.row.detail.strays_stand())
    }

    /// Reads all that the source has executed by now; gives how many strays there are.
    async fn read_to_the_end(&mut self, tail: &Tail) -> Result<u64, MoveError> {
        let source: &End = &self.job.source;
        let mut session = Session::open(&self.job, source).await?;
        let executed = session.gtid_executed().await?;
        tail.wait_for(&executed, READ_WITHIN).await?;
        self.note_strays(tail).await?;
        // A transaction is in the binlog before it is committed. What is counted is there for whoever dumps it.
        session.wait_executed(&tail.seen(), COMMIT_LIMIT).await?;
        session.close().await;
        Ok(self.row.detail.strays_told())
    }

    /// Takes the strays that the tail has seen into the move's record. Where that fails the run ends, and the next one sees
    /// them again.
    async fn note_strays(&mut self, tail: &Tail) -> Result<(), MoveError> {
        let (strays, watched) = tail.take_strays()?;
        let mut detail: MoveDetail = self.row.detail.clone();
        let count = take_in(&mut detail, strays);
        if count == 0 {
            return self.note_watched(tail, watched).await;
        }
        tracing::error!(id = %self.row.id, shop = self.job.shop.get(), count, "strays at the source");
        detail.watched = Some(watched.to_string());
        self.note(Step::NoteStrays, &detail).await
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

/// What nobody will know, as a stray: it has no transaction, so that it is one however often it is met.
pub(in crate::mover) fn unseen(text: String, at_ms: i64) -> Strays {
    let stray = Stray {
        table: text,
        gtid: String::new(),
        at_ms: u64::try_from(at_ms).unwrap_or(0),
    };
    Strays {
        listed: vec![stray],
        more: 0,
    }
}

/// Adds strays that are not known yet, within the bound of those that are listed; says how many there were.
pub(in crate::mover) fn take_in(detail: &mut MoveDetail, found: Strays) -> u64 {
    let told = detail.strays_told();
    let mut count = found.more;
    for stray in found.listed {
        let known = detail
            .strays
            .iter()
            .any(|known| (&known.table, &known.gtid) == (&stray.table, &stray.gtid));
        if known {
            continue;
        }
        count += 1;
        if detail.strays.len() < STRAYS_KEPT {
            detail.strays.push(stray);
        }
    }
    detail.strays_total = told + count;
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strays(numbers: std::ops::Range<u64>) -> Strays {
        let of = |number| Stray {
            table: "orders".to_owned(),
            gtid: format!("a:{number}"),
            at_ms: 7,
        };
        Strays {
            listed: numbers.map(of).collect(),
            more: 0,
        }
    }

    #[test]
    fn what_was_not_seen_counts_once_and_within_the_bound() {
        let mut detail = MoveDetail::default();
        for at_ms in [7, 8] {
            take_in(&mut detail, unseen("purged".to_owned(), at_ms));
        }
        let first = detail.strays.first().unwrap();
        assert_eq!((detail.strays.len(), first.at_ms), (1, 7));
        for number in 0..2 * STRAYS_KEPT {
            take_in(&mut detail, unseen(number.to_string(), 9));
        }
        assert_eq!(detail.strays.len(), STRAYS_KEPT);
    }

    /// A word holds for what was looked at: neither the same ones that are met again nor the bound of the list changes what
    /// it says, and one more stands.
    #[test]
    fn a_word_is_of_the_strays_that_there_were_also_beyond_those_that_are_listed() {
        let mut detail = MoveDetail::default();
        assert!(!detail.strays_stand());
        let many = STRAYS_KEPT as u64 + 3;
        for (upto, new) in [(2, 2), (2, 0), (many, many - 2)] {
            assert_eq!(take_in(&mut detail, strays(0..upto)), new);
            assert_eq!(detail.strays_stand(), new > 0);
            detail.strays_let_go = detail.strays_told();
            assert!(!detail.strays_stand());
        }
        assert_eq!(
            (detail.strays.len(), detail.strays_told()),
            (STRAYS_KEPT, many)
        );
        let more = Strays {
            listed: Vec::new(),
            more: 1,
        };
        assert_eq!(take_in(&mut detail, more), 1);
        assert!(detail.strays_stand());
        // Of a move that was under way before they were counted.
        detail.strays_total = 0;
        assert_eq!(detail.strays_told(), STRAYS_KEPT as u64);
    }
}
