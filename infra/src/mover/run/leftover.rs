//! What an aborted move left at its target: its rows there are deleted and the home is taken away, by an operation of its
//! own that is tried until it is done. It keeps nobody waiting but moves of the shop to that pod.

use std::sync::Arc;
use std::time::Duration;

use shared::home::HomeState;
use shared::moves::MoveId;

use super::Mover;
use super::keeper::RENEWALS;
use crate::catalog::{CatalogError, Leftover, MoveRef, MoveRow};
use crate::mover::driver::job_of;
use crate::mover::error::MoveError;
use crate::mover::home::{self, Change};
use crate::mover::leftover;
use crate::mover::session::Session;
use crate::mover::step::{Step, step};
use crate::mover::table::discover;

/// Between two tries: the pod may be away for long.
const RETRY: Duration = Duration::from_secs(2);

/// Takes it up, if it is nobody's, and tries once.
pub(super) async fn drive(mover: &Arc<Mover>, id: MoveId) {
    let taken = mover
        .catalog
        .take_leftover(id, &mover.holder, mover.lease_ms(), mover.force)
        .await;
    let left = match taken {
        Ok(Some(left)) => left,
        Ok(None) => return,
        Err(error) => {
            tracing::warn!(%id, "the leftover is not taken up: {}", shared::error::chain(&error));
            return;
        }
    };
    let ended = tokio::select! {
        done = Box::pin(clear(mover, &left)) => done,
        () = keep(mover, &left) => Err(MoveError::Stopped),
        () = mover.stop.cancelled() => Err(MoveError::Stopped),
    };
    match ended {
        Ok(()) => {
            tracing::info!(%id, pod = left.pod.get(), "the copy that an aborted move left is deleted")
        }
        Err(MoveError::Stopped) => {}
        Err(error) => {
            let text = error.brief();
            tracing::warn!(%id, pod = left.pod.get(), "an aborted move's copy is still there: {text}");
            if let Err(error) = mover.catalog.note_leftover(&left, &text).await {
                tracing::warn!(%id, "not noted: {}", shared::error::chain(&error));
            }
            tokio::select! {
                () = tokio::time::sleep(RETRY) => {}
                () = mover.stop.cancelled() => {}
            }
        }
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

async fn clear(mover: &Arc<Mover>, left: &Leftover) -> Result<(), MoveError> {
    // The source need not be there: nothing is asked of it but its name.
    let of_move = mover.catalog.move_row(&MoveRef::Id(left.id)).await?;
    let source = of_move.source;
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
    let filled = home.is_some_and(|row| row.state == HomeState::Incoming);
    if filled {
        let tables = discover(&mut session).await?;
        step!(Step::LeftoverDelete => {
            leftover::delete_rows(&job, &tables).await
        })
        .await?;
    }
    step!(Step::LeftoverForget => {
        home::change(&mut session, &job, &Change::Forget).await
    })
    .await?;
    session.close().await;
    step!(Step::LeftoverDone => {
        Ok(mover.catalog.leftover_done(left).await?)
    })
    .await?;
    mover.moves.leave(job.id, &job.progress);
    // Nothing of it is needed any more; what cannot be removed costs an empty folder.
    let _ = tokio::fs::remove_dir_all(&job.dir).await;
    Ok(())
}
