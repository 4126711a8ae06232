//! `preparing`: whether it can be done is found out, and the target's home becomes `incoming`. Nothing is changed at the
//! source but who may change its home.

use shared::home::HomeState;
use shared::moves::MoveEvent;
use tokio::time::Instant;

use super::Driver;
use crate::api::MoveRecord;
use crate::catalog::MoveDetail;
use crate::mover::error::MoveError;
use crate::mover::home::{self, Change};
use crate::mover::preflight::{Checked, Documents};
use crate::mover::session::Session;
use crate::mover::step::{Step, step};
use crate::mover::table::discover;
use crate::mover::{leftover, preflight};

impl Driver {
    /// Finds everything that stands against the move, then makes room for the shop at the target.
    pub(super) async fn prepare(&mut self) -> Result<(), MoveError> {
        self.take_watch().await?;
        self.take_turn().await?;
        self.take_source().await?;
        self.take_target().await?;
        self.clean().await?;
        let Checked { estimate, tables } = preflight::check(&self.job, Documents::Asked).await?;
        self.tables = Some(tables.into());
        self.at_target(Step::Incoming, &Change::Incoming).await?;
        self.incoming_since = Some(Instant::now());
        // What an earlier try noted is about rows that are gone.
        let mut detail = MoveDetail {
            source_from: None,
            target_from: None,
            fence_gtid: None,
            watched: None,
            ready_gtid: None,
            ..self.row.detail.clone()
        };
        detail.record = MoveRecord {
            expected_rows: estimate.rows,
            expected_bytes: estimate.bytes,
            copied_rows: 0,
            copied_bytes: 0,
            applied_keys: 0,
            compared_rows: 0,
            repaired_rows: 0,
            ..detail.record
        };
        self.job.progress.go_on(&detail.record);
        if !self.job.back {
            return self.step(MoveEvent::Prepared, &detail, None).await;
        }
        // The target's old rows are what it sold until the hand-over; all that changed since is in the source's binlog.
        let mut target = Session::open(&self.job, &self.job.target).await?;
        detail.source_from = detail.back_from.clone();
        let executed = target.gtid_executed().await?.to_string();
        // Strays until here were told before the move was ordered. A later one is nobody's to undo, and fails it.
        detail.target_from = detail.back_seen.clone().or(Some(executed));
        target.close().await;
        self.step(MoveEvent::PreparedBack, &detail, None).await
    }

    /// Takes away what an earlier try of this move left at the target, so that the copy begins with nothing. The rows
    /// that a move back finds are no leftovers.
    async fn clean(&mut self) -> Result<(), MoveError> {
        let mut target = Session::open(&self.job, &self.job.target).await?;
        let found = home::look(&mut target, self.job.shop).await?;
        // A move back that failed does without the rows that it found: the source owns the shop and has all of it.
        let copied_anew = self.row.detail.back_of.is_some() && !self.job.back;
        let tried = found.is_some_and(|row| {
            copied_anew || row.epoch == self.job.target_epoch && row.state != HomeState::Moved
        });
        if !tried || self.job.back {
            target.close().await;
            return Ok(());
        }
        self.at_target(Step::Incoming, &Change::Incoming).await?;
        let tables = discover(&mut target).await?;
        target.close().await;
        if copied_anew {
            let dump = leftover::dump_back(&self.job, &tables, &self.mover.dumps()?).await?;
            let mut detail = self.row.detail.clone();
            detail.record.back_dump = Some(dump);
            self.note(Step::NoteBackDump, &detail).await?;
        }
        let job = &self.job;
        step!(Step::Clean => {
            leftover::delete_rows(job, &tables, HomeState::Incoming, &[]).await
        })
        .await?;
        Ok(())
    }
}
