//! What a move's row says of what went wrong.

use shared::moves::{MoveEvent, MoveState};

use super::Mover;
use crate::catalog::{MoveDetail, MoveRow};
use crate::mover::error::MoveError;
use crate::mover::step::{Step, step};

/// Notes the reason, where the state has this event; where it has not, the move goes on as it is and says why it waits.
/// The state in which that leaves it; `None` if the catalog did not take it.
pub(super) async fn settle(
    mover: &Mover,
    row: &MoveRow,
    event: MoveEvent,
    text: &str,
) -> Option<MoveState> {
    if row.state.after(event).is_none() {
        keep_note(mover, row, row.detail.waits.clone(), text).await;
        return Some(row.state);
    }
    let detail = row.detail.clone();
    let done = step!(Step::of(event) => {
        Ok(mover
            .catalog
            .step_move(row, event, &detail, Some(text))
            .await?)
    })
    .await;
    match done {
        Ok(row) => Some(row.state),
        Err(error) => {
            tracing::warn!(id = %row.id, "not noted: {}", error.brief());
            None
        }
    }
}

/// Notes why a move is to fail, before its fence is lifted: who takes it up in between is told. What the catalog does not
/// take now it is told again before the lift.
pub(super) async fn note_must_fail(mover: &Mover, row: MoveRow, text: &str) -> MoveRow {
    if row.detail.must_fail.is_some() {
        return row;
    }
    let noted = step!(Step::NoteMustFail => {
        Ok(mover.catalog.note_must_fail(&row, text).await?)
    })
    .await;
    noted.unwrap_or_else(|error| {
        tracing::warn!(id = %row.id, "not noted: {}", error.brief());
        row
    })
}

pub(super) async fn note(mover: &Mover, row: &MoveRow, error: &MoveError, text: &str) {
    let waits = matches!(error, MoveError::Waits(_));
    let waits = waits.then(|| text.to_owned());
    keep_note(mover, row, waits, text).await;
}

async fn keep_note(mover: &Mover, row: &MoveRow, waits: Option<String>, text: &str) {
    let (waits, error) = told(row, waits, text);
    // The same again is no news, and costs a write.
    if row.error == error && row.detail.waits == waits {
        return;
    }
    let detail = MoveDetail {
        waits,
        ..row.detail.clone()
    };
    let noted = mover.catalog.note_move(row, &detail, error.as_deref());
    if let Err(error) = noted.await {
        tracing::warn!(id = %row.id, "not noted: {}", shared::error::chain(&error));
    }
}

/// What a move waits for, and its error, after a try that failed with this text. Where it was stopped for a reason, or is to
/// be, that reason is what an operator needs: what keeps it from resting, from being undone or from failing passes.
fn told(row: &MoveRow, waits: Option<String>, text: &str) -> (Option<String>, Option<String>) {
    let stopped = match row.state {
        MoveState::Failed | MoveState::Aborting => true,
        MoveState::Fenced | MoveState::Cutover => row.detail.must_fail.is_some(),
        MoveState::Preparing
        | MoveState::Copying
        | MoveState::CatchingUp
        | MoveState::Verifying
        | MoveState::Observing
        | MoveState::Retiring
        | MoveState::Paused
        | MoveState::Done
        | MoveState::Aborted => false,
    };
    if stopped {
        (Some(text.to_owned()), row.error.clone())
    } else {
        (waits, Some(text.to_owned()))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use shared::moves::MoveId;
    use shared::{Epoch, PodId, ShopId};

    use super::*;
    use crate::catalog::MoveKind;

    /// A move in a state.
    pub(in crate::mover::run) fn row(state: MoveState) -> MoveRow {
        let (source, target) = (PodId::new(1).unwrap(), PodId::new(2).unwrap());
        MoveRow {
            id: MoveId::random(),
            shop: ShopId::new(1).unwrap(),
            handle: "snow".parse().unwrap(),
            source,
            source_name: "one".to_owned(),
            target,
            target_name: "two".to_owned(),
            source_epoch: Epoch::FIRST,
            epoch: Epoch::FIRST.next(),
            kind: MoveKind::Move,
            state,
            owner: 1,
            detail: MoveDetail::default(),
            error: None,
            actor: "ops".to_owned(),
            created_ms: 0,
            changed_ms: 0,
            leftover_ms: None,
        }
    }

    #[test]
    fn why_a_move_was_stopped_outlasts_what_keeps_it_from_resting() {
        let (reason, passing) = ("a row differs", "pod 1: connect failed");
        let some = |text: &str| Some(text.to_owned());
        for state in MoveState::ALL {
            for must_fail in [None, some(reason)] {
                let mut row = row(state);
                row.error = some(reason);
                row.detail.must_fail.clone_from(&must_fail);
                let found = told(&row, some("a turn"), passing);
                let stops = must_fail.is_some() && state.may_be_fenced();
                if stops || matches!(state, MoveState::Failed | MoveState::Aborting) {
                    assert_eq!(found, (some(passing), some(reason)), "{state}");
                } else {
                    assert_eq!(found, (some("a turn"), some(passing)), "{state}");
                }
            }
        }
    }
}
