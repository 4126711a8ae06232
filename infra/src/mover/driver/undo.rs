//! `paused`, `failed` and `aborting`: whatever the run before left, the source serves.

use shared::moves::{MoveEvent, MoveState};

use super::{Driver, Placed};
use crate::catalog::MoveDetail;
use crate::mover::error::MoveError;
use crate::mover::home::Change;
use crate::mover::step::Step;

impl Driver {
    /// A move that was stopped: makes sure once that its fence does not stand, then waits for an order.
    pub(super) async fn rest(&mut self) -> Result<(), MoveError> {
        self.take_source().await?;
        if self.row.state == MoveState::Paused {
            // What went wrong on the way here has passed.
            self.waits(None).await?;
        } else if self.row.detail.waits.is_some() {
            // It waits for an operator alone; why it failed stays.
            let detail = MoveDetail {
                waits: None,
                ..self.row.detail.clone()
            };
            let (catalog, error) = (&self.mover.catalog, self.row.error.clone());
            self.row = catalog
                .note_move(&self.row, &detail, error.as_deref())
                .await?;
        }
        std::future::pending::<Result<(), MoveError>>().await
    }

    /// The catalog says `aborting`, so nobody can change the owner any more. A fence that stands at the source is lifted by a
    /// locking update, whatever has become of the target: no edge was ever told the reserved epoch. What is at the target is
    /// an operation of its own.
    pub(super) async fn undo(&mut self) -> Result<(), MoveError> {
        let Placed { state, .. } = self.placed().await?;
        self.at_source(Step::Lift, &Change::Restore(state)).await?;
        let detail = self.counted();
        let error = self.row.error.clone();
        self.step(MoveEvent::Undone, &detail, error.as_deref())
            .await
    }
}
