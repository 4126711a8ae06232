//! What the catalog keeps of a move whose fence stands, or was lifted.

use shared::moves::{MoveEvent, MoveState};

use super::moves::{at, begun, step, taken, text, to};
use super::*;
use crate::api::ParkReport;

const DIFFERS: &str = "verification: a row of `product` differs";

/// As its driver does it: the fence is counted with the step that it is closed by.
async fn fenced(catalog: &Catalog, row: MoveRow) -> MoveRow {
    let mut row = at(catalog, row, MoveState::Verifying).await;
    row.detail.record.fence_tries += 1;
    step(catalog, &row, MoveEvent::Verified).await
}

/// Why a move is to fail is there for whoever takes it up, keeps it from the point of no return, and is gone when it has
/// failed: an operator begins it anew.
#[tokio::test]
async fn why_a_move_is_to_fail_outlasts_its_driver_and_closes_the_way_to_the_target() {
    let (_dir, catalog) = catalog().await;
    let (_, row) = begun(&catalog, "snow").await;
    let row = fenced(&catalog, row).await;
    let seen = step(&catalog, &row, MoveEvent::Followed).await;
    catalog.note_must_fail(&seen, DIFFERS).await.unwrap();
    let next = taken(&catalog, &seen, "b").await;
    assert_eq!(next.detail.must_fail.as_deref(), Some(DIFFERS));
    assert_eq!(next.error.as_deref(), Some(DIFFERS));
    // One that is nobody's driver any more may be wrong.
    let stale = catalog.note_must_fail(&seen, "a zombie's").await;
    assert!(matches!(stale, Err(CatalogError::Stale(_))), "{stale:?}");
    // Nor does a note of somebody who has not read it take it away.
    let kept = catalog.note_move(&next, &seen.detail, None).await.unwrap();
    assert_eq!(kept.detail.must_fail.as_deref(), Some(DIFFERS));
    let refused = catalog.switch_move(&kept, &kept.detail, &[]).await;
    let refused = refused.unwrap_err();
    assert!(text(&refused).contains(DIFFERS), "{refused}");
    let failed = step(&catalog, &kept, MoveEvent::Fail).await;
    assert_eq!(
        (failed.state, failed.detail.must_fail),
        (MoveState::Failed, None)
    );
    let notes = catalog.move_events(next.id, 0).await.unwrap();
    let note = format!("to fail: {DIFFERS}");
    let told = notes
        .iter()
        .any(|event| event.note.as_deref() == Some(&note));
    assert!(told, "{notes:?}");
}

/// From the catalog's step on it goes only forward, whatever a driver found that does not know of that step.
#[tokio::test]
async fn a_move_whose_target_owns_the_shop_is_not_to_fail() {
    let (_dir, catalog) = catalog().await;
    let (_, row) = begun(&catalog, "snow").await;
    let row = at(&catalog, row, MoveState::Cutover).await;
    catalog.switch_move(&row, &row.detail, &[]).await.unwrap();
    let row = catalog.note_must_fail(&row, DIFFERS).await.unwrap();
    assert_eq!((row.detail.must_fail.as_deref(), row.error), (None, None));
}

/// After a fence that missed the requests go on at the epoch that the shop had: the move before has reserved that one, and
/// is told of late arrivals alone.
#[tokio::test]
async fn what_a_missed_fence_parked_is_told_to_the_move_that_missed_it() {
    let (_dir, catalog) = catalog().await;
    let (shop, row) = begun(&catalog, "snow").await;
    let before = at(&catalog, row, MoveState::Done).await;
    let back = catalog.begin_move("ops", &to(&shop, "one")).await.unwrap();
    assert_eq!(back.source_epoch, before.epoch);
    let report = |parked, late| ParkReport {
        shop: shop.id,
        epoch: before.epoch,
        parked,
        longest_ms: 10 * parked,
        late,
    };
    let parked = async |row: &MoveRow| {
        let row = catalog.move_row(&MoveRef::Id(row.id)).await.unwrap();
        let record = row.detail.record;
        (record.requests_parked, record.late_arrivals)
    };
    // An edge that tells late what the first move cost.
    catalog.note_park(&report(1, 0)).await.unwrap();
    assert_eq!(parked(&before).await, (Some(1), 0));
    let row = taken(&catalog, &back, "a").await;
    let row = fenced(&catalog, row).await;
    let row = step(&catalog, &row, MoveEvent::FenceMissed).await;
    catalog.note_park(&report(3, 0)).await.unwrap();
    catalog.note_park(&report(0, 2)).await.unwrap();
    assert_eq!(parked(&before).await, (Some(1), 2));
    assert_eq!(parked(&row).await, (Some(3), 0));
    // Also where it is over by then, or was begun anew.
    let row = step(&catalog, &row, MoveEvent::Abort).await;
    step(&catalog, &row, MoveEvent::Undone).await;
    catalog.note_park(&report(4, 0)).await.unwrap();
    assert_eq!(parked(&row).await, (Some(7), 0));
}
