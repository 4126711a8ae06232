//! A fence that is found standing: by the next run after a fault, or by the control server that starts after a crash.
//! Before the catalog's step it is lifted; after it the hand-over goes only forward, and is tried for ever. It waits for no
//! turn among the fences: the pause is there, and what makes it last is a server that does not answer.

use std::time::Duration;

use shared::moves::{MoveEvent, MoveState};

use super::{Driver, Fences};
use crate::mover::error::MoveError;
use crate::mover::home::Change;
use crate::mover::step::{Step, step};

/// A pod's process reads a home again when its own is older than a second; and some more.
pub(in crate::mover) const HOME_CACHED: Duration = Duration::from_millis(1_500);

/// What a fence that is lifted means for the move; the later the graver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::mover) enum Why {
    /// It is tried again.
    Missed,
    /// What was compared does not count any more.
    PrimaryChanged,
    /// Nothing leads past it but an operator.
    Fail,
}

/// Why a fence that stands is to be lifted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::mover) struct Reason {
    pub(in crate::mover) why: Why,
    pub(in crate::mover) text: String,
}

impl Driver {
    /// Ends the pause, one way or the other.
    pub(super) async fn recover(&mut self, fences: &mut Fences) -> Result<(), MoveError> {
        let placed = self.placed().await?;
        if self.switched(&placed) {
            return self.forward(fences).await;
        }
        let Reason { why, text } = self.reason.clone().unwrap_or_else(|| Reason {
            why: Why::Missed,
            text: "the mover ended inside the fence; it is lifted".to_owned(),
        });
        if why == Why::Fail && self.row.detail.must_fail.is_none() {
            // Whoever comes after this run would take a fence that is lifted for one that missed.
            let (catalog, row) = (&self.mover.catalog, &self.row);
            self.row = step!(Step::NoteMustFail => {
                Ok(catalog.note_must_fail(row, &text).await?)
            })
            .await?;
        }
        // The takeover lifts it: one update, which waits for all that an earlier run has under way at the source. No
        // earlier run can do the catalog's step any more, since the owner number was raised there first.
        let lift = Change::TakeOverSource(Some(placed.state));
        self.at_source(Step::Lift, &lift).await?;
        self.source_taken = true;
        fences.open();
        let mut detail = self.row.detail.clone();
        detail.fence_gtid = None;
        detail.watched = None;
        detail.ready_gtid = None;
        let missed = fences.missed.saturating_add(1);
        let (event, told) = match why {
            Why::Missed if missed >= self.job.limits.fence_tries => (
                MoveEvent::Fail,
                format!(
                    "{missed} fences did not hold (`moves.fence_tries` of fleet.toml); the last one: {text}"
                ),
            ),
            Why::Missed => (MoveEvent::FenceMissed, text.clone()),
            Why::PrimaryChanged => (MoveEvent::PrimaryChanged, text.clone()),
            Why::Fail => (MoveEvent::Fail, text.clone()),
        };
        self.step(event, &detail, Some(&told)).await?;
        // The catalog has it.
        self.reason = None;
        if event == MoveEvent::FenceMissed {
            fences.missed(self.job.limits.fence_retry, &text);
        }
        Ok(())
    }

    /// After the catalog's step: the target serves as the placement says, the source keeps the mark. Neither waits for
    /// the other, since either may be away; a source that is gone for good is done without.
    pub(super) async fn forward(&mut self, fences: &mut Fences) -> Result<(), MoveError> {
        debug_assert_eq!(self.row.state, MoveState::Cutover);
        let placed = self.placed().await?;
        let target = self.serve_at_target(placed.state).await;
        if target.is_ok() {
            // Nobody waits for the rest.
            fences.open();
        }
        if !self.row.detail.source_gone {
            let source = self.mark_source().await;
            target.and(source)?;
        } else {
            target?;
        }
        // A process of the source's pod may still answer reads by the home it has cached; neither the end of the time of
        // observation nor a move back may touch the rows before that.
        tokio::time::sleep(HOME_CACHED).await;
        let detail = self.row.detail.clone();
        self.step(MoveEvent::HandedOver, &detail, None).await
    }

    async fn serve_at_target(&mut self, state: shared::PlacementState) -> Result<(), MoveError> {
        if !self.target_taken {
            self.take_target().await?;
        }
        let change = Change::Serving(state);
        self.at_target(Step::Serving, &change).await.map(drop)
    }

    async fn mark_source(&mut self) -> Result<(), MoveError> {
        self.take_source().await?;
        self.at_source(Step::Moved, &Change::Moved).await.map(drop)
    }
}
