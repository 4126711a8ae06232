//! What is told of a move: everything that is news, and of very much the first and the last.

use shared::moves::{MoveEvent, MoveState};

use super::moves::{at, begun, step, taken, to};
use super::*;
use crate::api::{MOVE_EVENTS_FIRST, MOVE_EVENTS_MAX};

const MAX: u64 = MOVE_EVENTS_MAX as u64;
const FIRST: u64 = MOVE_EVENTS_FIRST as u64;

async fn notes(catalog: &Catalog, row: &MoveRow) -> Vec<String> {
    let events = catalog.move_events(row.id, 0).await.unwrap();
    let notes = events.into_iter().map(|it| it.note.unwrap_or_default());
    notes.collect()
}

/// A move that stands still is taken up again by the same process, days long: its owner number grows, and nothing else does.
#[tokio::test]
async fn a_takeover_by_the_same_holder_in_the_same_state_is_no_event() {
    let (_dir, catalog) = catalog().await;
    let (_, row) = begun(&catalog, "snow").await;
    let before = notes(&catalog, &row).await;
    for owner in 2..=40 {
        let again = taken(&catalog, &row, "a").await;
        assert_eq!(again.owner, owner);
    }
    assert_eq!(notes(&catalog, &row).await, before);
    // Somebody else, the first one again, and another state are news.
    let row = taken(&catalog, &row, "b").await;
    taken(&catalog, &row, "b").await;
    let row = taken(&catalog, &row, "a").await;
    let row = step(&catalog, &row, MoveEvent::Prepared).await;
    let row = taken(&catalog, &row, "a").await;
    let row = taken(&catalog, &row, "a").await;
    let after = notes(&catalog, &row).await;
    assert_eq!(
        after[before.len()..],
        ["taken up by b", "taken up by a", "", "taken up by a"]
    );
    // So it is with a copy that a move left.
    let row = step(&catalog, &row, MoveEvent::Abort).await;
    step(&catalog, &row, MoveEvent::Undone).await;
    for _ in 0..5 {
        let left = catalog.take_leftover(row.id, "a", 1, true).await.unwrap();
        assert!(left.is_some());
    }
    let left = notes(&catalog, &row).await.into_iter();
    let left = left.filter(|note| note.starts_with("the copy it left is taken up"));
    assert_eq!(left.count(), 1);
}

/// Whatever is noted, and however often: so many are kept, the first and the last, and the rest is counted.
#[tokio::test]
async fn of_very_many_events_the_first_and_the_last_are_kept_and_the_others_counted() {
    let (_dir, catalog) = catalog().await;
    let (shop, mut row) = begun(&catalog, "snow").await;
    let began = notes(&catalog, &row).await;
    let made = MAX + 50 - began.len() as u64;
    for n in 0..made {
        let text = format!("fault {n}");
        row = catalog
            .note_move(&row, &row.detail, Some(&text))
            .await
            .unwrap();
    }
    assert_eq!(row.detail.events_left_out, 50);
    let kept = notes(&catalog, &row).await;
    assert_eq!(kept.len() as u64, MAX);
    assert_eq!(kept[..began.len()], began);
    assert_eq!(kept.last(), Some(&format!("fault {}", made - 1)));
    let gap = usize::try_from(FIRST).unwrap();
    let number = |note: &str| note.strip_prefix("fault ").unwrap().parse::<u64>().unwrap();
    assert_eq!(number(&kept[gap]) - number(&kept[gap - 1]), 51);
    // The last ones alone, and how many came before.
    let last = catalog.last_move_events(row.id, 50).await.unwrap();
    let all = catalog.move_events(row.id, 0).await.unwrap();
    assert_eq!(last, all[all.len() - 50..]);
    let before = catalog.move_events_before(row.id, last[0].sequence).await;
    assert_eq!(before.unwrap(), MAX - 50);
    // A driver that knows nothing of them takes the number not back, and neighbours keep theirs.
    let mut stale = row.detail.clone();
    stale.events_left_out = 0;
    let row = catalog.note_move(&row, &stale, Some("one more")).await;
    assert_eq!(row.unwrap().detail.events_left_out, 51);
    let (_, other) = begun(&catalog, "ice").await;
    assert_eq!(notes(&catalog, &other).await.len(), 2);
    assert_eq!(
        catalog.shop(&ShopRef::Id(shop.id)).await.unwrap().handle,
        shop.handle
    );
}

/// A note makes a move no younger in its state; a step does.
#[tokio::test]
async fn since_when_a_move_is_in_its_state_is_kept_through_notes() {
    const PAUSE: std::time::Duration = std::time::Duration::from_millis(5);
    let (_dir, catalog) = catalog().await;
    let (_, row) = begun(&catalog, "snow").await;
    let since = row.detail.since_ms;
    assert_eq!(since, Some(row.created_ms));
    tokio::time::sleep(PAUSE).await;
    // Not even one by a driver that has another instant in mind.
    let mut detail = row.detail.clone();
    detail.since_ms = None;
    let row = catalog.note_move(&row, &detail, Some("away")).await;
    let row = taken(&catalog, &row.unwrap(), "b").await;
    assert!(row.changed_ms > row.created_ms);
    assert_eq!(row.detail.since_ms, since);
    let row = step(&catalog, &row, MoveEvent::Prepared).await;
    assert_eq!(row.detail.since_ms, Some(row.changed_ms));
    assert!(row.detail.since_ms > since);
}

/// Whoever follows a move hears that it was taken back, and by which.
#[tokio::test]
async fn a_move_that_was_taken_back_names_the_other_one() {
    let (_dir, catalog) = catalog().await;
    let (shop, row) = begun(&catalog, "snow").await;
    let row = at(&catalog, row, MoveState::Observing).await;
    let back = catalog.begin_move("ops", &to(&shop, "one")).await.unwrap();
    let closed = catalog.move_row(&MoveRef::Id(row.id)).await.unwrap();
    let told = closed.into_api().unwrap();
    assert_eq!(
        (told.state, told.taken_back_by),
        (MoveState::Done, Some(back.id))
    );
    assert_eq!(back.detail.taken_back_by, None);
}
