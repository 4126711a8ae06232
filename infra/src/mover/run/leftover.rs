//! What a move left at a pod, by an operation of its own that is tried until it is done. It keeps nobody waiting but moves of
//! the shop to that pod.
//!
//! An aborted move left a copy at its target: the rows are deleted, and of the home a mark to the owner stays. A move that ended without its
//! source left the shop as that had it: should the pod come back, its home is marked first, whatever it says, then the rows
//! are dumped and deleted as `retiring` does it. (Rows that no move made, and that an operator has ordered to be cleared, are
//! `clear`'s.)

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use shared::home::HomeState;
use shared::moves::{MoveId, MoveState};

use super::keeper::RENEWALS;
use super::{Mover, heard};
use crate::catalog::{CatalogError, Leftover, MoveRef, MoveRow};
use crate::mover::driver::{HOME_CACHED, job_of};
use crate::mover::error::MoveError;
use crate::mover::home::{self, Change, HomeRow};
use crate::mover::progress::Told;
use crate::mover::session::Session;
use crate::mover::step::{Step, step};
use crate::mover::table::discover;
use crate::mover::{gone, leftover, retire};

/// Between two tries: the pod may be away for long.
const RETRY: Duration = Duration::from_secs(2);

/// Between two looks whether a pod that was gone is back: nobody waits for it but moves of the shop to that pod.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Takes it up, if it is nobody's, and tries once.
pub(super) async fn drive(mover: &Arc<Mover>, id: MoveId) {
    if is_silent(mover, id).await {
        tokio::select! {
            () = tokio::time::sleep(LOOK_AGAIN) => {}
            () = mover.stop.cancelled() => {}
        }
        return;
    }
    let taken = step!(Step::LeftoverTake => {
        let (holder, lease) = (&mover.holder, mover.lease_ms());
        Ok(mover
            .catalog
            .take_leftover(id, holder, lease, mover.force)
            .await?)
    })
    .await;
    let left = match taken {
        Ok(Some(left)) => left,
        Ok(None) => return,
        Err(error) => {
            tracing::warn!(%id, "the leftover is not taken up: {}", error.brief());
            return;
        }
    };
    let ended = tokio::select! {
        done = Box::pin(clear(mover, &left)) => done,
        () = heard(keep(mover, &left)) => Err(MoveError::Stopped),
        never = tell(mover, &left) => match never {},
        () = mover.stop.cancelled() => Err(MoveError::Stopped),
    };
    // Nothing of it is needed any more; what cannot be removed costs an empty folder.
    mover.moves.forget(id);
    let _ = tokio::fs::remove_dir_all(mover.dir.join(id.to_string())).await;
    match ended {
        Ok(()) => {
            tracing::info!(%id, pod = left.pod.get(), "nothing that a move left is there any more")
        }
        Err(MoveError::Stopped) => {}
        Err(error) => {
            let text = error.brief();
            tracing::warn!(%id, pod = left.pod.get(), "what a move left may still be there: {text}");
            note(mover, &left, Some(&text)).await;
            tokio::select! {
                () = tokio::time::sleep(RETRY) => {}
                () = mover.stop.cancelled() => {}
            }
        }
    }
}

/// Tells what holds the work back for long, and when it goes on; again each time that it lasts twice as long.
async fn tell(mover: &Mover, left: &Leftover) -> Infallible {
    let mut told = Told::default();
    loop {
        tokio::time::sleep(mover.limits.note_every).await;
        let held = mover.moves.held_back(left.id);
        let bounds = held
            .as_ref()
            .map_or(0, |held| held.bounds(mover.limits.throttle_bound));
        if told.is_news(bounds) {
            let text = held.filter(|_| bounds > 0).map(|held| held.told());
            note(mover, left, text.as_deref()).await;
            told = Told::from(bounds);
        }
    }
}

async fn note(mover: &Mover, left: &Leftover, text: Option<&str>) {
    if let Err(error) = mover.catalog.note_leftover(left, text).await {
        tracing::warn!(id = %left.id, "not noted: {}", shared::error::chain(&error));
    }
}

/// Ends when the lease is another's.
async fn keep(mover: &Mover, left: &Leftover) {
    loop {
        tokio::time::sleep(mover.limits.lease / RENEWALS).await;
        let renewed = mover
            .catalog
            .renew_leftover(left.id, left.owner, &mover.holder, mover.lease_ms())
            .await;
        if let Err(CatalogError::Stale(_)) = renewed {
            return;
        }
    }
}

/// Whether it is at a pod that was gone and still is: nothing is tried, noted or taken up then, for years if need be.
async fn is_silent(mover: &Arc<Mover>, id: MoveId) -> bool {
    let Ok(of_move) = mover.catalog.move_row(&MoveRef::Id(id)).await else {
        return false;
    };
    let pod = if of_move.state == MoveState::Done {
        of_move.source
    } else if of_move.detail.waits.is_some() {
        // A try has told that it is gone.
        of_move.target
    } else {
        return false;
    };
    matches!(gone::answering(mover, pod).await, Ok(None))
}

async fn clear(mover: &Arc<Mover>, left: &Leftover) -> Result<(), MoveError> {
    let of_move = mover.catalog.move_row(&MoveRef::Id(left.id)).await?;
    if of_move.clears() {
        return Box::pin(super::clear::clear_rows(mover, left, of_move)).await;
    }
    let _turn = mover.clearings.take(left.id, [left.pod; 2]).await;
    if left.pod == of_move.source {
        Box::pin(clear_source(mover, left, of_move)).await
    } else {
        Box::pin(clear_target(mover, left, of_move)).await
    }
}

/// A source that was gone and came back.
async fn clear_source(
    mover: &Arc<Mover>,
    left: &Leftover,
    of_move: MoveRow,
) -> Result<(), MoveError> {
    let target = of_move.target;
    // Nothing is asked of the target but its name: the shop may be elsewhere by now.
    let row = MoveRow {
        owner: left.owner,
        target: of_move.source,
        ..of_move
    };
    let mut job = job_of(mover, &row).await?;
    job.target.pod = target;
    let mut session = Session::open(&job, &job.source).await?;
    step!(Step::GoneMark => {
        home::change(&mut session, &job, &Change::TakeGone).await
    })
    .await?;
    // A process of that pod may still read by the home that it has cached.
    tokio::time::sleep(HOME_CACHED).await;
    let tables = discover(&mut session).await?;
    let dumps = mover.dumps()?;
    let dump = step!(Step::GoneDump => {
        retire::dump_rows(&job, &tables, &dumps, retire::Of::Gone).await
    })
    .await?;
    let dump = dump.display().to_string();
    mover.catalog.note_left_dump(left, &dump).await?;
    let former = leftover::former(&mover.catalog, &job).await?;
    step!(Step::GoneDelete => {
        retire::delete_gone(&job, &tables).await?;
        leftover::forget_marks(&job, &job.source, &former).await
    })
    .await?;
    session.awake().await?;
    step!(Step::GoneRelease => {
        home::change(&mut session, &job, &Change::Release).await
    })
    .await?;
    session.close().await;
    step!(Step::GoneDone => {
        Ok(mover.catalog.leftover_done(left).await?)
    })
    .await
}

/// The copy of an aborted move.
async fn clear_target(
    mover: &Arc<Mover>,
    left: &Leftover,
    of_move: MoveRow,
) -> Result<(), MoveError> {
    // The source need not be there: nothing is asked of it but its name.
    let (source, back_of) = (of_move.source, of_move.detail.back_of);
    let row = MoveRow {
        owner: left.owner,
        source: of_move.target,
        ..of_move
    };
    let mut job = job_of(mover, &row).await?;
    job.source.pod = source;
    let mut session = Session::open(&job, &job.target).await?;
    let home = step!(Step::LeftoverTakeOver => {
        home::change(&mut session, &job, &Change::TakeLeftover).await
    })
    .await?;
    if let Some(state) = with_rows(home, back_of.is_some()) {
        let tables = discover(&mut session).await?;
        if back_of.is_some() {
            let dump = leftover::dump_back(&job, &tables, &mover.dumps()?).await?;
            step!(Step::NoteBackDump => {
                Ok(mover.catalog.note_left_dump(left, &dump).await?)
            })
            .await?;
        }
        let former = leftover::former(&mover.catalog, &job).await?;
        step!(Step::LeftoverDelete => {
            leftover::delete_rows(&job, &tables, state, &former).await
        })
        .await?;
    }
    // Rows may have taken long to delete, by sessions of their own.
    session.awake().await?;
    step!(Step::LeftoverForget => {
        home::change(&mut session, &job, &Change::Forget).await
    })
    .await?;
    session.close().await;
    step!(Step::LeftoverDone => {
        Ok(mover.catalog.leftover_done(left).await?)
    })
    .await
}

/// The state of a target's home that may have rows of an aborted move. One that the move never made `incoming` has none; but
/// where the shop was to go back, what it had left there is nobody else's to delete any more: the move that left it is over.
fn with_rows(home: Option<HomeRow>, back: bool) -> Option<HomeState> {
    let state = home?.state;
    match state {
        HomeState::Incoming => Some(state),
        HomeState::Moved => back.then_some(state),
        HomeState::Serving
        | HomeState::Ready
        | HomeState::Frozen
        | HomeState::Offline
        | HomeState::Fenced
        | HomeState::Handing => None,
    }
}

#[cfg(test)]
mod tests {
    use shared::Epoch;

    use super::*;

    #[test]
    fn what_the_shop_left_there_goes_with_a_move_back_that_is_undone_and_with_no_other() {
        let home = |state| {
            Some(HomeRow {
                epoch: Epoch::FIRST,
                state,
                move_id: None,
                owner: 1,
                ready_gtid: None,
                mark: None,
            })
        };
        let incoming = Some(HomeState::Incoming);
        for back in [false, true] {
            assert_eq!(with_rows(home(HomeState::Incoming), back), incoming);
            assert_eq!(with_rows(home(HomeState::Serving), back), None);
            assert_eq!(with_rows(None, back), None);
        }
        let moved = HomeState::Moved;
        assert_eq!(with_rows(home(moved), true), Some(moved));
        assert_eq!(with_rows(home(moved), false), None);
    }
}
