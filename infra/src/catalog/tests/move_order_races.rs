//! Orders of operators beside the steps of a driver.

use shared::moves::{MoveEvent, MoveState};

use super::moves::{at, begun, step, text, to};
use super::*;
use crate::api::{MoveEventRow, ParkReport, Stray};

#[tokio::test]
async fn strays_keep_the_sources_copy_until_an_operator_says_otherwise_of_each() {
    let (_dir, catalog) = catalog().await;
    let (_, row) = begun(&catalog, "snow").await;
    let mut row = at(&catalog, row, MoveState::Observing).await;
    row.detail.strays.push(Stray {
        table: "orders".into(),
        gtid: "a:9".into(),
        at_ms: 1,
    });
    let row = catalog.note_move(&row, &row.detail, None).await.unwrap();
    let reference = MoveRef::parse(&row.id.to_string()[..18]);
    let finish = |despite_strays| {
        catalog.order_move("ops", &reference, MoveOrder::Finish { despite_strays })
    };
    for number in [0, 2] {
        let refused = finish(number).await.unwrap_err();
        assert!(text(&refused).contains("--despite-strays 1"), "{refused}");
    }
    let row = finish(1).await.unwrap();
    assert_eq!(
        (row.state, row.detail.strays_let_go),
        (MoveState::Retiring, 1)
    );
    // A driver that has not read the order yet does not take the word away.
    let mut before = row.clone();
    before.detail.strays_let_go = 0;
    let row = catalog
        .note_move(&before, &before.detail, None)
        .await
        .unwrap();
    assert_eq!(row.detail.strays_let_go, 1);
    // Of the next one nothing was said. It is beyond those that are listed.
    let mut more = row.detail.clone();
    more.strays_total = 2;
    let row = catalog.note_move(&row, &more, None).await.unwrap();
    assert!(row.detail.strays_stand());
    for number in [0, 1, 3] {
        let refused = finish(number).await.unwrap_err();
        assert!(text(&refused).contains("--despite-strays 2"), "{refused}");
    }
    let row = finish(2).await.unwrap();
    assert!(!row.detail.strays_stand());
    assert_eq!(row.state, MoveState::Retiring);
    let notes = catalog.move_events(row.id, 0).await.unwrap();
    assert!(
        notes
            .iter()
            .any(|e| e.note.as_deref().is_some_and(|n| n.contains("1 stray")))
    );
}

/// An order to freeze a shop and a fence never meet.
#[tokio::test]
async fn a_state_order_and_a_fence_keep_apart() {
    let (_dir, catalog) = catalog().await;
    let (shop, row) = begun(&catalog, "snow").await;
    let reference = ShopRef::Id(shop.id);
    let row = at(&catalog, row, MoveState::Verifying).await;
    let freeze = || catalog.begin_state("ops", &reference, PlacementState::Frozen, None);
    let order = freeze().await.unwrap();
    let held = catalog
        .step_move(&row, MoveEvent::Verified, &row.detail, None)
        .await;
    assert!(matches!(held, Err(CatalogError::Conflict(_))), "{held:?}");
    catalog.finish_state(&order).await.unwrap();
    let row = step(&catalog, &row, MoveEvent::Verified).await;
    let refused = freeze().await.unwrap_err();
    assert!(
        text(&refused).contains("try again in some seconds"),
        "{refused}"
    );
    let row = step(&catalog, &row, MoveEvent::Followed).await;
    assert!(freeze().await.is_err());
    let row = step(&catalog, &row, MoveEvent::FenceMissed).await;
    // An abort may come while an order runs; it closes only after that has ended.
    let order = freeze().await.unwrap();
    let row = step(&catalog, &row, MoveEvent::Abort).await;
    assert!(freeze().await.is_err());
    let held = catalog
        .step_move(&row, MoveEvent::Undone, &row.detail, None)
        .await;
    assert!(matches!(held, Err(CatalogError::Conflict(_))), "{held:?}");
    catalog.finish_state(&order).await.unwrap();
    step(&catalog, &row, MoveEvent::Undone).await;
}

/// Of two moves of one shop that are ordered at once one begins, and the other names it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_moves_ordered_at_once_one_begins() {
    let (_dir, catalog) = catalog().await;
    let shop = make(&catalog, "snow").await;
    let target = ["two", "one"][usize::from(shop.pod.id == pod(2))];
    let orders: Vec<_> = (0..6)
        .map(|_| {
            let (catalog, new) = (Arc::clone(&catalog), to(&shop, target));
            tokio::spawn(async move { catalog.begin_move("ops", &new).await })
        })
        .collect();
    let mut begun = 0;
    for order in orders {
        match order.await.unwrap() {
            Ok(_) => begun += 1,
            Err(error) => assert!(text(&error).contains("open move"), "{error}"),
        }
    }
    assert_eq!(begun, 1);
}

/// What edges parked is kept with the move that had the epoch, whatever its driver writes meanwhile.
#[tokio::test]
async fn edges_tell_what_they_parked_and_events_are_pruned_with_their_move() {
    let (_dir, catalog) = catalog().await;
    let (shop, row) = begun(&catalog, "snow").await;
    let report = |shop, epoch, parked, longest_ms| ParkReport {
        shop,
        epoch,
        parked,
        longest_ms,
        late: 1,
    };
    catalog
        .note_park(&report(shop.id, row.epoch, 3, 40))
        .await
        .unwrap();
    let row = at(&catalog, row, MoveState::Observing).await;
    catalog
        .note_park(&report(shop.id, row.epoch, 2, 30))
        .await
        .unwrap();
    let row = at(&catalog, row, MoveState::Done).await;
    let record = &row.detail.record;
    assert_eq!(
        (
            record.requests_parked,
            record.longest_park_ms,
            record.late_arrivals
        ),
        (Some(5), Some(40), 2)
    );
    let calm = make(&catalog, "calm").await;
    let nobody = catalog
        .note_park(&report(calm.id, row.epoch, 1, 1))
        .await
        .unwrap_err();
    assert_eq!(nobody.kind(), Kind::NotFound);
    let (_, open) = begun(&catalog, "ice").await;
    assert!(catalog.prune_move_events(now_ms() + 1).await.unwrap() > 8);
    assert_eq!(catalog.move_events(row.id, 0).await.unwrap(), []);
    assert!(!catalog.move_events(open.id, 0).await.unwrap().is_empty());
}

/// A source that is gone for good: the order is kept by whoever has not read it, is the same when it comes twice, and what
/// the source has stays an obligation.
#[tokio::test]
async fn a_move_ends_without_its_source_and_keeps_what_that_has_as_an_obligation() {
    let gone = MoveOrder::SourceGone;
    for state in [
        MoveState::Cutover,
        MoveState::Observing,
        MoveState::Retiring,
    ] {
        let (_dir, catalog) = catalog().await;
        let (shop, row) = begun(&catalog, "snow").await;
        let row = at(&catalog, row, state).await;
        let reference = MoveRef::Id(row.id);
        let mut seen = row.clone();
        if state == MoveState::Cutover {
            let early = catalog.order_move("ops", &reference, gone).await;
            let early = early.unwrap_err();
            assert!(text(&early).contains("still owns the shop"), "{early}");
            seen = catalog.switch_move(&row, &row.detail, &[]).await.unwrap();
        }
        let ordered = catalog.order_move("ops", &reference, gone).await.unwrap();
        assert!(ordered.detail.source_gone);
        let again = catalog.order_move("ops", &reference, gone).await.unwrap();
        assert_eq!(again, ordered);
        // It is no way back either.
        let back = catalog.begin_move("ops", &to(&shop, "one")).await;
        assert!(back.is_err(), "{back:?}");
        let mut row = ordered;
        if state == MoveState::Cutover {
            // The driver has not read the word yet.
            seen.detail.source_gone = false;
            row = step(&catalog, &seen, MoveEvent::HandedOver).await;
            assert!(row.detail.source_gone);
            let back = catalog.begin_move("ops", &to(&shop, "one")).await;
            assert!(back.is_err(), "{back:?}");
            row = step(&catalog, &row, MoveEvent::Finish).await;
        }
        assert_eq!(row.state, MoveState::Retiring);
        assert!(catalog.leftovers().await.unwrap().is_empty());
        let row = step(&catalog, &row, MoveEvent::Retired).await;
        assert_eq!(row.state, MoveState::Done);
        let again = catalog.order_move("ops", &reference, gone).await.unwrap();
        assert_eq!(again, row, "also when it is over");
        let left = catalog.leftovers().await.unwrap();
        assert_eq!(
            (left.len(), left[0].pod, left[0].epoch),
            (1, row.source, row.source_epoch)
        );
        let there = catalog.begin_move("ops", &to(&shop, "one")).await;
        assert!(text(&there.unwrap_err()).contains("no leftover"));
        let mine = catalog.take_leftover(row.id, "a", 1000, false).await;
        let mine = mine.unwrap().unwrap();
        assert!(
            mine.owner > row.owner,
            "the home there refuses whoever was before"
        );
        // What it sold meanwhile is in a dump and nowhere else, which is named for as long as the move is kept.
        let mut other = mine.clone();
        other.owner -= 1;
        assert!(catalog.note_left_dump(&other, "/dumps/x").await.is_err());
        for _ in 0..2 {
            catalog.note_left_dump(&mine, "/dumps/gone").await.unwrap();
        }
        catalog.leftover_done(&mine).await.unwrap();
        let told = catalog.move_row(&reference).await.unwrap().detail.record;
        assert_eq!(told.gone_dump.as_deref(), Some("/dumps/gone"));
        let events = catalog.move_events(row.id, 0).await.unwrap();
        let named = |event: &&MoveEventRow| {
            event
                .note
                .as_ref()
                .is_some_and(|n| n.contains("/dumps/gone"))
        };
        assert_eq!(events.iter().filter(named).count(), 1);
        catalog.begin_move("ops", &to(&shop, "one")).await.unwrap();
    }
}

/// A move back that failed does not go on from rows that may be the reason; one that was only stopped, or refused before it
/// used them, does.
#[tokio::test]
async fn a_move_that_failed_past_preparing_copies_anew_when_it_is_begun_anew() {
    let (_dir, catalog) = catalog().await;
    let (_, row) = begun(&catalog, "snow").await;
    let reference = MoveRef::Id(row.id);
    let resume = async || {
        let resumed = catalog.order_move("ops", &reference, MoveOrder::Resume);
        resumed.await.unwrap()
    };
    step(&catalog, &row, MoveEvent::Pause).await;
    let row = resume().await;
    assert!(!row.detail.recopy, "only stopped");
    step(&catalog, &row, MoveEvent::Fail).await;
    let mut row = resume().await;
    assert!(!row.detail.recopy, "refused in preparing");
    row.detail.source_from = Some("a:1-5".into());
    let row = step(&catalog, &row, MoveEvent::PreparedBack).await;
    step(&catalog, &row, MoveEvent::Fail).await;
    let mut row = resume().await;
    assert!(row.detail.recopy);
    // It stays so, whatever comes of the next try.
    row.detail.source_from = None;
    step(&catalog, &row, MoveEvent::Fail).await;
    assert!(resume().await.detail.recopy);
}

/// They are counted anew, and it is known all the same that there were some; what a hand-over took is kept.
#[tokio::test]
async fn fences_that_missed_before_a_move_was_resumed_are_not_counted() {
    let (_dir, catalog) = catalog().await;
    let (_, row) = begun(&catalog, "snow").await;
    let reference = MoveRef::Id(row.id);
    let resume = async || {
        let resumed = catalog.order_move("ops", &reference, MoveOrder::Resume);
        resumed.await.unwrap()
    };
    step(&catalog, &row, MoveEvent::Fail).await;
    let row = resume().await;
    assert!(!row.detail.was_fenced());
    for stop in [MoveEvent::Fail, MoveEvent::Pause] {
        let mut row = at(
            &catalog,
            catalog.move_row(&reference).await.unwrap(),
            MoveState::Verifying,
        )
        .await;
        row.detail.record.fence_tries = 20;
        step(&catalog, &row, stop).await;
        let detail = resume().await.detail;
        assert_eq!(
            (detail.record.fence_tries, detail.was_fenced()),
            (0, true),
            "{stop:?}"
        );
    }
    let mut row = at(
        &catalog,
        catalog.move_row(&reference).await.unwrap(),
        MoveState::Retiring,
    )
    .await;
    row.detail.record.fence_tries = 2;
    step(&catalog, &row, MoveEvent::Pause).await;
    assert_eq!(resume().await.detail.record.fence_tries, 2);
}
