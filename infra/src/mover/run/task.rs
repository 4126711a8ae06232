//! One move: it is taken up, driven until something ends the run, and taken up again with the next owner number. So
//! nothing that an earlier run has sent and not heard the end of can do anything any more.

use std::sync::Arc;
use std::time::Duration;

use shared::moves::{MoveEvent, MoveId, MoveState};
use tokio::time::{Instant, sleep};

use super::doubts::Doubts;
use super::keeper::{Gate, Heard, keep};
use super::notes::{note, note_must_fail, settle};
use super::{AGAIN_AFTER, Mover, heard};
use crate::catalog::{MoveRef, MoveRow};
use crate::mover::driver::{Driver, Fences, Kept, Reason, Why};
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
    /// The gravest reason why a fence that stands is to be lifted, or the move fails, until the catalog has it: what is found
    /// later may only be in the way of that.
    reason: Option<Reason>,
    /// What the last run left to the next.
    kept: Option<Kept>,
    /// What servers said and nobody knows.
    doubts: Doubts,
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

    /// Of two reasons that are equally grave the first counts: the other may follow from it.
    fn blame(&mut self, why: Why, text: &str) {
        if self.reason.as_ref().is_none_or(|known| known.why < why) {
            let text = text.to_owned();
            self.reason = Some(Reason { why, text });
        }
    }

    /// Takes what an earlier process has noted, and drops what the catalog has.
    fn look_at(&mut self, row: &MoveRow) {
        if let Some(text) = &row.detail.must_fail {
            self.blame(Why::Fail, text);
        }
        let state = row.state;
        // A move that was paused before it could fail does so when it goes on.
        let may_fail = state == MoveState::Paused || state.after(MoveEvent::Fail).is_some();
        self.reason.take_if(|reason| match reason.why {
            Why::Missed | Why::PrimaryChanged => !state.may_be_fenced(),
            Why::Fail => !may_fail,
        });
    }

    /// Why the move fails now: where a fence stands, that is lifted first.
    fn fails(&self, state: MoveState) -> Option<String> {
        let reason = self.reason.as_ref()?;
        let now = state.after(MoveEvent::Fail).is_some() && !state.may_be_fenced();
        (now && reason.why == Why::Fail).then(|| reason.text.clone())
    }
}

const fn shop_waits(state: MoveState) -> bool {
    state.may_be_fenced() || matches!(state, MoveState::Aborting)
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
                // Another task would not know what this one has found, and go on past it.
                tokio::select! {
                    () = sleep(AGAIN_AFTER) => continue,
                    () = mover.stop.cancelled() => break,
                }
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
    memory.begun = Some(Instant::now());
    memory.look_at(&row);
    if let Some(text) = memory.fails(row.state) {
        return fail(mover, &row, &text, memory).await;
    }
    let (reason, kept) = (memory.reason.clone(), memory.kept.take());
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
    let (row, kept, reason) = driver.end(error);
    (memory.kept, memory.reason) = (kept, reason);
    if !row.state.may_be_fenced() {
        memory.fences.open();
    }
    match ended {
        Ended::Over => {
            // Dumps are elsewhere.
            let _ = tokio::fs::remove_dir_all(&job.dir).await;
            Next::Leave
        }
        Ended::Heard(Heard::Ordered) => {
            // An operator has looked at it: what was missed before counts no more. What the catalog was to be told does.
            *memory = Memory {
                reason: memory.reason.take(),
                ..Memory::default()
            };
            Next::Again
        }
        Ended::Heard(Heard::Lost) => {
            tracing::info!(%id, "move left to another control server");
            Next::Leave
        }
        Ended::Heard(Heard::Stopping) => Next::Leave,
        Ended::Heard(Heard::PrimaryChanged { pod, text }) => {
            fault(mover, row, MoveError::PrimaryChanged { pod, text }, memory).await
        }
        Ended::Fault(error) => fault(mover, row, error, memory).await,
    }
}

/// What an error means for the move: see [`MoveError::verdict`].
async fn fault(mover: &Mover, row: MoveRow, error: MoveError, memory: &mut Memory) -> Next {
    let error = memory.doubts.judge(row.state, error);
    let (id, state, text) = (row.id, row.state, error.brief());
    let verdict = error.verdict();
    tracing::warn!(%id, %state, ?verdict, "{text}");
    if state.may_be_fenced() && verdict != Verdict::TakeAnew {
        return fault_inside(mover, row, error, memory).await;
    }
    if state.may_be_fenced() && !matches!(error, MoveError::Stopped | MoveError::Ordered) {
        memory.blame(Why::Missed, &text);
    }
    let event = match verdict {
        Verdict::TakeAnew | Verdict::Again => None,
        Verdict::Rewind => Some(MoveEvent::PrimaryChanged),
        Verdict::Fail if aborts(&row, &error) => Some(MoveEvent::Abort),
        Verdict::Fail => {
            memory.blame(Why::Fail, &text);
            return fail(mover, &row, &text, memory).await;
        }
    };
    let (mut known, pause) = (state, memory.pause(state));
    match event {
        Some(event) => known = settle(mover, &row, event, &text).await.unwrap_or(state),
        // Whose home it is now an operator must know: nobody else may drive the move.
        None if verdict == Verdict::Again || matches!(error, MoveError::NotOwner { .. }) => {
            note(mover, &row, &error, &text).await;
        }
        None => {}
    }
    rest(mover, &row, known, pause).await;
    again(mover)
}

/// The same where the shop's writes may wait: the next run lifts the fence at once, unless the target owns the shop.
async fn fault_inside(mover: &Mover, row: MoveRow, error: MoveError, memory: &mut Memory) -> Next {
    let text = error.brief();
    let why = match error.verdict() {
        Verdict::Rewind => Why::PrimaryChanged,
        Verdict::Fail => Why::Fail,
        Verdict::Again | Verdict::TakeAnew => Why::Missed,
    };
    memory.blame(why, &text);
    // What an earlier run has found too, where the catalog did not take it then.
    let row = match memory.reason.as_ref().filter(|it| it.why == Why::Fail) {
        Some(reason) => note_must_fail(mover, row, &reason.text).await,
        None => row,
    };
    let pause = memory.pause(row.state);
    if memory.faults > 1 {
        // A pod that is away holds up no stop: the next control server lifts the fence.
        if mover.stop.is_cancelled() {
            return Next::Leave;
        }
        note(mover, &row, &error, &text).await;
        rest(mover, &row, row.state, pause).await;
    }
    Next::Again
}

/// Nothing leads past this reason: what the catalog does not take now is told it again before anything else is done.
async fn fail(mover: &Mover, row: &MoveRow, text: &str, memory: &mut Memory) -> Next {
    let pause = memory.pause(row.state);
    let known = settle(mover, row, MoveEvent::Fail, text).await;
    if known.is_some() {
        memory.reason = None;
    }
    rest(mover, row, known.unwrap_or(row.state), pause).await;
    again(mover)
}

fn again(mover: &Mover) -> Next {
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
    let words = |row: &MoveRow| (row.detail.strays_let_go, row.detail.source_gone);
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

#[cfg(test)]
mod tests;
