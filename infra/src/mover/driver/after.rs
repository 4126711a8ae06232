//! `observing` and `retiring`: the target sells; the source's copy is kept as it was at the fence, then dumped and
//! deleted. Whatever changes it meanwhile is a stray: somebody writes past the home.

use shared::moves::{MoveEvent, MoveId};
use tokio::time::sleep;

use super::Driver;
use super::trouble::{Trouble, telling};
use crate::catalog::{MoveDetail, MoveRef, now_ms};
use crate::mover::error::MoveError;
use crate::mover::home::Change;
use crate::mover::step::{Step, step};
use crate::mover::watched::{Account, LOOK_EVERY, Watched, is_news};
use crate::mover::{leftover, retire};
use crate::output::count;

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
        let watched = self.watch_source().await?;
        loop {
            watched.look(self).await?;
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
            // Nothing may stand against the end that has not been read yet.
            if over && !strays {
                watched.read_to_the_end(self).await?;
            }
            if over && !self.row.detail.strays_stand() {
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
        let watched = self.watch_source().await?;
        loop {
            watched.read_to_the_end(self).await?;
            self.wait_for_word(&watched).await?;
            let pods = [self.job.source.pod; 2];
            let _turn = self.turn_of(|mover| &mover.clearings, pods).await?;
            // It may have been long in coming.
            watched.read_to_the_end(self).await?;
            if self.row.detail.strays_stand() {
                continue;
            }
            if Box::pin(self.retire_rows(&watched)).await? {
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
    async fn retire_rows(&mut self, watched: &Watched) -> Result<bool, MoveError> {
        let job = self.job.clone();
        let dumps = self.mover.dumps()?;
        // All of them were committed before the dump begins. One that it may have is counted afterwards.
        let strays = self.row.detail.strays_told();
        let dumping = Box::pin(step!(Step::Dump => {
            retire::dump_rows(&job, watched.tables(), &dumps, retire::Of::Copy { strays }).await
        }));
        let dump = telling(&self.mover.catalog, &mut self.row, &job, dumping).await?;
        let mut detail = self.row.detail.clone();
        detail.record.dump = Some(dump.display().to_string());
        if detail != self.row.detail {
            self.note(Step::NoteDump, &detail).await?;
        }
        let deleting = step!(Step::Delete => {
            retire::delete_rows(&job, watched).await
        });
        let mut account = Deleting {
            driver: self,
            trouble: Trouble::of(&job.progress, &job.limits),
        };
        watched.until_gone(&mut account, strays, deleting).await
    }

    /// Waits while there are strays of which nobody has said that they may go. More of them are told meanwhile.
    async fn wait_for_word(&mut self, watched: &Watched) -> Result<(), MoveError> {
        loop {
            if !self.row.detail.strays_stand() {
                return self.waits(None).await;
            }
            let text = self.word_wanted("");
            self.waits(Some(text)).await?;
            sleep(LOOK_EVERY).await;
            watched.look(self).await?;
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
    async fn watch_source(&mut self) -> Result<Watched, MoveError> {
        let (job, detail) = (self.job.clone(), &self.row.detail);
        let from = detail.watched.clone().or(detail.fence_gtid.clone());
        Watched::open(&job, from.as_deref(), self).await
    }
}

impl Account for Driver {
    fn detail(&self) -> &MoveDetail {
        &self.row.detail
    }

    async fn keep(&mut self, detail: MoveDetail, found: u64) -> Result<(), MoveError> {
        let told = detail.strays_told();
        if is_news(told.saturating_sub(found), told) {
            let shop = self.job.shop.get();
            tracing::error!(id = %self.row.id, shop, strays = told, "strays at the source");
        }
        if found > 0 {
            return self.note(Step::NoteStrays, &detail).await;
        }
        let watched = detail.watched.unwrap_or_default();
        self.row = self.mover.catalog.note_watched(&self.row, &watched).await?;
        Ok(())
    }

    async fn look_on(&mut self) {}
}

/// A driver whose rows are being deleted.
struct Deleting<'a> {
    driver: &'a mut Driver,
    trouble: Trouble<'a>,
}

impl Account for Deleting<'_> {
    fn detail(&self) -> &MoveDetail {
        self.driver.detail()
    }

    async fn keep(&mut self, detail: MoveDetail, found: u64) -> Result<(), MoveError> {
        self.driver.keep(detail, found).await
    }

    async fn look_on(&mut self) {
        let Driver { mover, row, .. } = &mut *self.driver;
        self.trouble.look(&mover.catalog, row).await;
    }
}
