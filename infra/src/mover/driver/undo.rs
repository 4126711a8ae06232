//! `paused`, `failed` and `aborting`: whatever the run before left, the source serves.

use shared::moves::MoveEvent;

use super::{Driver, Placed};
use crate::mover::error::MoveError;
use crate::mover::home::Change;
use crate::mover::step::Step;

impl Driver {
    /// A move that was stopped: makes sure once that its fence does not stand, then waits for an order.
    pub(super) async fn rest(&mut self) -> Result<(), MoveError> {
        self.take_source().await?;
        std::future::pending::<Result<(), MoveError>>().await
    }

    /// The catalog says `aborting`, so nobody can change the owner any more. The source serves by a locking update,
    /// whatever its home says and whatever has become of the target: no edge was ever told the reserved epoch. What is at
    /// the target is an operation of its own.
    pub(super) async fn undo(&mut self) -> Result<(), MoveError> {
        let Placed { state, .. } = self.placed().await?;
        self.at_source(Step::Lift, &Change::Restore(state)).await?;
        let detail = self.counted();
        let error = self.row.error.clone();
        self.step(MoveEvent::Undone, &detail, error.as_deref())
            .await
    }
}
