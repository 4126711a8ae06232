//! A fence that is found standing: by the next run after a fault, or by the control server that starts after a crash.
//! Before the catalog's step it is lifted; after it the hand-over goes only forward, and is tried for ever. It waits for no
//! turn among the fences: the pause is there, and what makes it last is a server that does not answer.

use std::time::Duration;

use shared::moves::{MoveEvent, MoveState};

use super::{Driver, Fences, Reason};
use crate::mover::error::MoveError;
use crate::mover::home::Change;
use crate::mover::step::Step;

/// A pod's process reads a home again when its own is older than a second; and some more.
pub(in crate::mover) const HOME_CACHED: Duration = Duration::from_millis(1_500);

impl Driver {
    /// Ends the pause, one way or the other.
    pub(super) async fn recover(&mut self, fences: &mut Fences) -> Result<(), MoveError> {
        let placed = self.placed().await?;
        if self.switched(&placed) {
            return self.forward(fences).await;
        }
        // The takeover lifts it: one update, which waits for all that an earlier run has under way at the source. No
        // earlier run can do the catalog's step any more, since the owner number was raised there first.
        let lift = Change::TakeOverSource(Some(placed.state));
        self.at_source(Step::Lift, &lift).await?;
        self.source_taken = true;
        fences.open();
        let Reason { event, text } = self.reason.take().unwrap_or_else(|| Reason {
            event: MoveEvent::FenceMissed,
            text: "the mover ended inside the fence; it is lifted".to_owned(),
        });
        let missed = fences.missed(self.job.limits.fence_retry, &text);
        let (event, text) = if event == MoveEvent::FenceMissed
            && missed >= self.job.limits.fence_tries
        {
            (
                MoveEvent::Fail,
                format!(
                    "{missed} fences did not hold (`moves.fence_tries` of fleet.toml); the last one: {text}"
                ),
            )
        } else {
            (event, text)
        };
        let mut detail = self.row.detail.clone();
        detail.fence_gtid = None;
        detail.watched = None;
        detail.ready_gtid = None;
        self.step(event, &detail, Some(&text)).await
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
