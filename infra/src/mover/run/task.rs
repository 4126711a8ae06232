//! One move: it is taken up, driven until something ends the run, and taken up again with the next owner number. So
//! nothing that an earlier run has sent and not heard the end of can do anything any more.

use std::sync::Arc;
use std::time::Duration;

use shared::moves::{MoveEvent, MoveId, MoveState};
use tokio::time::Instant;

use super::keeper::{Gate, Heard, keep};
use super::{Mover, heard, may_be_fenced};
use crate::catalog::{MoveDetail, MoveRef, MoveRow};
use crate::mover::driver::{Driver, Fences, Kept, Reason};
use crate::mover::error::{MoveError, Verdict};
use crate::mover::step::{Step, step};

/// Between two tries of what did not work: it doubles from the first to the last.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// The same while a shop waits for the end of its fence.
const FENCED_PAUSE_MAX: Duration = Duration::from_millis(400);

/// A run that was good for so long did some work: what ended it is no repetition of the fault before. Servers that do not
/// answer end one within a second or three.
const LASTED: Duration = Duration::from_secs(5);

/// What one task remembers from run to run.
#[derive(Default)]
struct Memory {
    /// What went wrong one after the other.
    faults: u32,
    /// When the last run began.
    begun: Option<Instant>,
    /// Fences that missed, and when the next may close.
    fences: Fences,
    /// Why a fence that stands is to be lifted.
    reason: Option<Reason>,
    /// What the last run left to the next.
    kept: Option<Kept>,
}

impl Memory {
    fn pause(&mut self, state: MoveState) -> Duration {
        // A run that lasted was no repetition of the fault before.
        if self.begun.is_some_and(|at| at.elapsed() > LASTED) {
            self.faults = 0;
        }
        let max = if shop_waits(state) {
            FENCED_PAUSE_MAX
        } else {
            PAUSE_MAX
        };
        let pause = PAUSE_MIN.saturating_mul(1 << self.faults.min(10)).min(max);
        self.faults = self.faults.saturating_add(1);
        pause
    }
}

const fn shop_waits(state: MoveState) -> bool {
    may_be_fenced(state) || matches!(state, MoveState::Aborting)
}

/// How a run ended.
enum Ended {
    Over,
    Heard(Heard),
    Fault(MoveError),
}

/// What the task does next.
enum Next {
    Again,
    Leave,
}

/// Drives one move until it is over, or another's.
pub(super) async fn drive(mover: &Arc<Mover>, id: MoveId) {
    let mut memory = Memory::default();
    loop {
        let taken = step!(Step::Take => {
            let (holder, lease) = (&mover.holder, mover.lease_ms());
            Ok(mover
                .catalog
                .take_move(id, holder, lease, mover.force)
                .await?)
        })
        .await;
        let row = match taken {
            Ok(Some(row)) => row,
            Ok(None) => {
                forget_files(mover, id).await;
                break;
            }
            Err(error) => {
                tracing::warn!(%id, "not taken up: {}", error.brief());
                break;
            }
        };
        tracing::info!(%id, shop = row.shop.get(), state = %row.state, owner = row.owner, "move taken up");
        if matches!(Box::pin(run(mover, row, &mut memory)).await, Next::Leave) {
            break;
        }
    }
}

/// The files of a move that somebody else closed: an order, or a later move.
async fn forget_files(mover: &Mover, id: MoveId) {
    let row = mover.catalog.move_row(&MoveRef::Id(id)).await;
    if row.is_ok_and(|row| !row.state.is_open()) {
        let _ = tokio::fs::remove_dir_all(mover.dir.join(id.to_string())).await;
    }
}

/// One run, and what follows from its end.
async fn run(mover: &Arc<Mover>, row: MoveRow, memory: &mut Memory) -> Next {
    let id = row.id;
    let gate: Gate = Arc::new(tokio::sync::Mutex::new(row.state));
    let (reason, kept) = (memory.reason.take(), memory.kept.take());
    memory.begun = Some(Instant::now());
    let begun = Driver::new(mover, row.clone(), Arc::clone(&gate), reason, kept).await;
    let mut driver = match begun {
        Ok(driver) => driver,
        Err(error) => return fault(mover, row, error, memory).await,
    };
    let job = driver.job().clone();
    let ended = {
        let work = Box::pin(driver.drive(&mut memory.fences));
        tokio::select! {
            biased;
            done = work => match done {
                Ok(()) => Ended::Over,
                Err(error) => Ended::Fault(error),
            },
            heard = heard(keep(mover, &job, &gate)) => Ended::Heard(heard),
        }
    };
    job.stop.cancel();
    let error = match &ended {
        Ended::Fault(error) => Some(error),
        Ended::Over | Ended::Heard(_) => None,
    };
    let (row, kept) = driver.end(error);
    memory.kept = kept;
    if !may_be_fenced(row.state) {
        memory.fences.open();
    }
    match ended {
        Ended::Over => {
            // Dumps are elsewhere.
            let _ = tokio::fs::remove_dir_all(&job.dir).await;
            Next::Leave
        }
        Ended::Heard(Heard::Ordered) => {
            // An operator has looked at it: what was missed before counts no more.
            *memory = Memory::default();
            Next::Again
        }
        Ended::Heard(Heard::Lost) => {
            tracing::info!(%id, "move left to another control server");
            Next::Leave
        }
        Ended::Heard(Heard::Stopping) => {
            if let Err(error) = mover.catalog.leave_move(id, &mover.holder).await {
                tracing::warn!(%id, "the lease is not given back: {}", shared::error::chain(&error));
            }
            Next::Leave
        }
        Ended::Heard(Heard::PrimaryChanged { pod, text }) => {
            fault(mover, row, MoveError::PrimaryChanged { pod, text }, memory).await
        }
        Ended::Fault(error) => fault(mover, row, error, memory).await,
    }
}

/// What an error means for the move: see [`MoveError::verdict`].
async fn fault(mover: &Mover, row: MoveRow, error: MoveError, memory: &mut Memory) -> Next {
    let (id, state, text) = (row.id, row.state, error.brief());
    let verdict = error.verdict();
    tracing::warn!(%id, %state, ?verdict, "{text}");
    let pause = memory.pause(state);
    let standing = may_be_fenced(state);
    if standing && verdict != Verdict::Leave {
        // The next run lifts the fence at once, unless the target owns the shop.
        let event = match verdict {
            Verdict::Rewind => MoveEvent::PrimaryChanged,
            Verdict::Fail => MoveEvent::Fail,
            Verdict::Again | Verdict::Leave => MoveEvent::FenceMissed,
        };
        if memory.faults > 1 {
            // A pod that is away holds up no stop: the next control server lifts the fence.
            if mover.stop.is_cancelled() {
                return Next::Leave;
            }
            note(mover, &row, &error, &text).await;
            rest(mover, &row, state, pause).await;
        }
        memory.reason = Some(Reason { event, text });
        return Next::Again;
    }
    let event = match verdict {
        Verdict::Leave | Verdict::Again => None,
        Verdict::Rewind => Some(MoveEvent::PrimaryChanged),
        Verdict::Fail if aborts(&row, &error) => Some(MoveEvent::Abort),
        Verdict::Fail => Some(MoveEvent::Fail),
    };
    let mut known = state;
    match event {
        Some(event) => known = settle(mover, &row, event, &text).await,
        // Whose home it is now an operator must know: nobody else may drive the move.
        None if verdict == Verdict::Again || matches!(error, MoveError::NotOwner { .. }) => {
            note(mover, &row, &error, &text).await;
        }
        None => {}
    }
    rest(mover, &row, known, pause).await;
    if mover.stop.is_cancelled() {
        Next::Leave
    } else {
        Next::Again
    }
}

/// A move whose shop changes faster than it can be followed is undone: it would never end.
fn aborts(row: &MoveRow, error: &MoveError) -> bool {
    let follows = matches!(row.state, MoveState::CatchingUp | MoveState::Verifying);
    follows && matches!(error, MoveError::Bound(_))
}

/// Waits before the next try. An order to this move is followed at once; what happens to others is no reason to try again:
/// moves whose pod is away would wake each other without an end.
async fn rest(mover: &Mover, seen: &MoveRow, known: MoveState, pause: Duration) {
    let words = |row: &MoveRow| (row.detail.despite_strays, row.detail.source_gone);
    let until = Instant::now() + pause;
    let mut changes = mover.catalog.watch_moves();
    loop {
        let row = mover.catalog.move_row(&MoveRef::Id(seen.id)).await;
        if row.is_ok_and(|row| row.state != known || words(&row) != words(seen)) {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep_until(until) => return,
            () = mover.stop.cancelled() => return,
            changed = changes.changed() => if changed.is_err() {
                return;
            },
        }
    }
}

/// Notes the reason, where the state has this event; where it has not, the move goes on as it is and says why it waits.
/// The state in which that leaves it.
async fn settle(mover: &Mover, row: &MoveRow, event: MoveEvent, text: &str) -> MoveState {
    if row.state.after(event).is_none() {
        keep_note(mover, row, row.detail.waits.clone(), text).await;
        return row.state;
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
        Ok(row) => row.state,
        Err(error) => {
            tracing::warn!(id = %row.id, "not noted: {}", error.brief());
            row.state
        }
    }
}

async fn note(mover: &Mover, row: &MoveRow, error: &MoveError, text: &str) {
    let waits = matches!(error, MoveError::Waits(_));
    let waits = waits.then(|| text.to_owned());
    keep_note(mover, row, waits, text).await;
}

async fn keep_note(mover: &Mover, row: &MoveRow, waits: Option<String>, text: &str) {
    let (waits, error) = told(row.state, row.error.as_deref(), waits, text);
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

/// What a move waits for, and its error, after a try that failed with this text. Where it was stopped for a reason, that reason
/// is what an operator needs: what keeps it from resting or from being undone passes.
fn told(
    state: MoveState,
    before: Option<&str>,
    waits: Option<String>,
    text: &str,
) -> (Option<String>, Option<String>) {
    match state {
        MoveState::Failed | MoveState::Aborting => {
            (Some(text.to_owned()), before.map(str::to_owned))
        }
        MoveState::Preparing
        | MoveState::Copying
        | MoveState::CatchingUp
        | MoveState::Verifying
        | MoveState::Fenced
        | MoveState::Cutover
        | MoveState::Observing
        | MoveState::Retiring
        | MoveState::Paused
        | MoveState::Done
        | MoveState::Aborted => (waits, Some(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_a_move_was_stopped_outlasts_what_keeps_it_from_resting() {
        let (reason, passing) = (Some("a row differs"), "pod 1: connect failed");
        let some = |text: &str| Some(text.to_owned());
        for state in MoveState::ALL {
            let (waits, error) = told(state, reason, some("a turn"), passing);
            if matches!(state, MoveState::Failed | MoveState::Aborting) {
                assert_eq!((waits, error), (some(passing), some("a row differs")));
            } else {
                assert_eq!((waits, error), (some("a turn"), some(passing)));
            }
        }
    }
}
