//! What ended an earlier run of a move that goes on: an operator reads it until some work is done again, and not for the
//! hours that the rest of the work takes.

use std::convert::Infallible;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::sleep;

use crate::catalog::{Catalog, MoveDetail, MoveRow};
use crate::mover::error::MoveError;
use crate::mover::job::Job;
use crate::mover::progress::Progress;

/// Does a part of a run; what ended an earlier one is forgotten on the way, once it does not stand in the way any more.
pub(super) async fn forgetting<T>(
    catalog: &Catalog,
    row: &mut MoveRow,
    job: &Job,
    work: impl Future<Output = Result<T, MoveError>>,
) -> Result<T, MoveError> {
    tokio::select! {
        biased;
        done = work => done,
        never = forget(catalog, row, &job.progress, job.limits.note_every) => match never {},
    }
}

/// Looks so often whether a piece of work is done.
async fn forget(
    catalog: &Catalog,
    row: &mut MoveRow,
    progress: &Progress,
    every: Duration,
) -> Infallible {
    let pieces = || progress.pieces.load(Ordering::Relaxed);
    let before = pieces();
    while row.error.is_some() || row.detail.waits.is_some() {
        sleep(every).await;
        if pieces() == before {
            continue;
        }
        let detail = MoveDetail {
            waits: None,
            ..row.detail.clone()
        };
        match catalog.note_move(row, &detail, None).await {
            Ok(noted) => *row = noted,
            // Another's, or the catalog is busy: it is tried again as long as there is a run to do it.
            Err(error) => {
                tracing::debug!(id = %row.id, "not noted: {}", shared::error::chain(&error));
            }
        }
    }
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use shared::moves::MoveId;
    use tokio::time::timeout;

    use super::*;
    use crate::catalog::tests::{catalog, make};
    use crate::catalog::{MoveRef, NewMove, ShopRef};

    const EVERY: Duration = Duration::from_millis(10);

    async fn begun(catalog: &Catalog) -> MoveRow {
        let shop = make(catalog, "snow").await;
        let new = NewMove {
            shop: ShopRef::Id(shop.id),
            target: if shop.pod.name == "one" { "two" } else { "one" }.to_owned(),
            reason: None,
            observe_ms: 0,
        };
        let row = catalog.begin_move("ops", &new).await.unwrap();
        let taken = catalog.take_move(row.id, "a", 1_000, true).await;
        taken.unwrap().unwrap()
    }

    async fn told(catalog: &Catalog, id: MoveId) -> (Option<String>, Option<String>) {
        let row = catalog.move_row(&MoveRef::Id(id)).await.unwrap();
        (row.error, row.detail.waits)
    }

    #[tokio::test]
    async fn what_ended_an_earlier_run_is_told_until_a_piece_of_work_is_done() {
        let (_dir, catalog) = catalog().await;
        let mut row = begun(&catalog).await;
        row.detail.waits = Some("held back".to_owned());
        let noted = catalog.note_move(&row, &row.detail, Some("connect failed"));
        let mut row = noted.await.unwrap();
        let id = row.id;
        let progress = Progress::default();
        // What another run did counts for nothing, nor do rows that were there before.
        Progress::add(&progress.pieces, 7);
        let mut forgetting = std::pin::pin!(forget(&catalog, &mut row, &progress, EVERY));
        Progress::add(&progress.rows_copied, 7);
        timeout(EVERY * 10, &mut forgetting).await.unwrap_err();
        let before = (
            Some("connect failed".to_owned()),
            Some("held back".to_owned()),
        );
        assert_eq!(told(&catalog, id).await, before);
        Progress::add(&progress.pieces, 1);
        timeout(EVERY * 50, &mut forgetting).await.unwrap_err();
        assert_eq!(told(&catalog, id).await, (None, None));
    }
}
