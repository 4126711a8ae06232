//! Orders to clear rows that no move made, and what a move back would undo.

use shared::moves::{MoveEvent, MoveState};

use super::moves::{at, begun, step, taken, text, to};
use super::*;
use crate::api::{OperationChange, OperationNew, OperationState, Stray};

fn order(shop: &Shop, at: &str) -> ClearOrder {
    ClearOrder {
        shop: ShopRef::Id(shop.id),
        at: at.into(),
        reason: Some("a test".into()),
    }
}

/// A shop at pod one that never moved.
async fn calm(catalog: &Catalog) -> Shop {
    let (shop, row) = begun(catalog, "calm").await;
    let row = step(catalog, &row, MoveEvent::Abort).await;
    step(catalog, &row, MoveEvent::Undone).await;
    let left = catalog.take_leftover(row.id, "a", 1, true).await.unwrap();
    catalog.leftover_done(&left.unwrap()).await.unwrap();
    shop
}

/// What is said to an order, by its check and by itself alike.
async fn refusal(catalog: &Catalog, order: &ClearOrder) -> String {
    let checked = catalog.check_clear(order).await.unwrap_err().to_string();
    let error = catalog.begin_clear("ops", order).await.unwrap_err();
    assert_eq!(checked, error.to_string());
    text(&error)
}

#[tokio::test]
async fn each_refusal_of_an_order_to_clear_says_why() {
    let (_dir, catalog) = catalog().await;
    let shop = calm(&catalog).await;
    let said = refusal(&catalog, &order(&shop, "nowhere")).await;
    assert!(
        said.contains("no pod") && said.contains("podctl pod list"),
        "{said}"
    );
    let nobody = ClearOrder {
        shop: ShopRef::Handle("nobody".parse().unwrap()),
        ..order(&shop, "two")
    };
    let said = refusal(&catalog, &nobody).await;
    assert!(said.contains("no shop"), "{said}");
    let said = refusal(&catalog, &order(&shop, "one")).await;
    assert!(said.contains("pod one owns shop calm"), "{said}");
    // An open move, to whichever pod.
    let row = catalog.begin_move("ops", &to(&shop, "two")).await.unwrap();
    let said = refusal(&catalog, &order(&shop, "two")).await;
    assert!(
        said.contains("has an open move") && said.contains("podctl move abort"),
        "{said}"
    );
    let row = taken(&catalog, &row, "a").await;
    let row = at(&catalog, row, MoveState::Observing).await;
    let said = refusal(&catalog, &order(&shop, "one")).await;
    assert!(
        said.contains("has an open move") && said.contains("podctl move finish"),
        "{said}"
    );
    // What a move has left there goes by itself.
    let gone = MoveOrder::SourceGone;
    let row = catalog
        .order_move("ops", &MoveRef::Id(row.id), gone)
        .await
        .unwrap();
    step(&catalog, &row, MoveEvent::Retired).await;
    let said = refusal(&catalog, &order(&shop, "one")).await;
    assert!(
        said.contains("left there") && said.contains("no leftover"),
        "{said}"
    );
}

async fn take(catalog: &Catalog, row: &MoveRow, holder: &str) -> Leftover {
    let taken = catalog.take_leftover(row.id, holder, 1, true).await;
    taken.unwrap().expect("nobody else has it")
}

/// The same order twice is one, and a move there waits until it is done.
#[tokio::test]
async fn an_order_to_clear_is_one_and_keeps_moves_of_the_shop_away_until_it_is_done() {
    let (_dir, catalog) = catalog().await;
    let shop = calm(&catalog).await;
    let order = order(&shop, "two");
    let ordered = catalog.begin_clear("ops", &order).await.unwrap();
    let again = catalog.begin_clear("ops", &order).await.unwrap();
    assert_eq!(again, ordered);
    assert!(ordered.clears() && ordered.leftover_ms.is_some());
    assert_eq!(
        (ordered.state, ordered.target),
        (MoveState::Aborted, pod(2))
    );
    assert_eq!(ordered.detail.reason.as_deref(), Some("a test"));
    let told = async || catalog.shop(&ShopRef::Id(shop.id)).await.unwrap().r#move;
    assert_eq!(told().await.as_deref(), Some("clearing"));
    let refused = catalog
        .begin_move("ops", &to(&shop, "two"))
        .await
        .unwrap_err();
    let said = text(&refused);
    assert!(
        said.contains("to be cleared") && said.contains(&ordered.id.to_string()),
        "{said}"
    );
    let resumed = async || {
        let reference = MoveRef::Id(ordered.id);
        let resumed = catalog.order_move("ops", &reference, MoveOrder::Resume);
        text(&resumed.await.unwrap_err())
    };
    let said = resumed().await;
    for part in [
        "order to clear rows of shop calm at pod two",
        "cannot be stopped",
        "move watch",
    ] {
        assert!(said.contains(part), "{said}");
    }
    let mine = take(&catalog, &ordered, "a").await;
    catalog.leftover_done(&mine).await.unwrap();
    assert_eq!(told().await.as_deref(), Some("cleared"));
    let said = resumed().await;
    assert!(
        said.contains("it is done") && said.contains("podctl shop clear calm --at two"),
        "{said}"
    );
    let events = catalog.move_events(ordered.id, 0).await.unwrap();
    assert_eq!(events.first().map(|it| it.actor.as_str()), Some("ops"));
    let plan = catalog.check_clear(&order).await.unwrap();
    assert_eq!((plan.last.is_some(), plan.under_way()), (true, None));
    let moved = catalog.begin_move("ops", &to(&shop, "two")).await.unwrap();
    assert!(moved.epoch > ordered.epoch);
}

/// Who deletes rows goes by the tables that were there when it began: a new one would keep its rows, and nobody would know.
#[tokio::test]
async fn the_schema_of_a_pod_changes_only_where_no_row_is_being_deleted() {
    let (_dir, catalog) = catalog().await;
    let shop = calm(&catalog).await;
    let migrate = async |subject: &str| {
        let new = OperationNew {
            id: uuid::Uuid::now_v7().to_string(),
            kind: "migrate".into(),
            subject: subject.into(),
            detail: serde_json::Value::Null,
        };
        catalog.put_operation("ops", &new).await
    };
    let ended = async |id: &str| {
        let done = OperationChange {
            state: Some(OperationState::Done),
            ..Default::default()
        };
        catalog.change_operation("ops", id, &done).await.unwrap();
    };
    // The copy that an aborted move left, then an order to clear rows.
    let moved = catalog.begin_move("ops", &to(&shop, "two")).await.unwrap();
    let moved = taken(&catalog, &moved, "a").await;
    let moved = step(&catalog, &moved, MoveEvent::Abort).await;
    let aborted = step(&catalog, &moved, MoveEvent::Undone).await;
    for (begun, words) in [
        (Some(aborted), "left there"),
        (None, "to be cleared (order"),
    ] {
        let left = match begun {
            Some(row) => row,
            None => catalog
                .begin_clear("ops", &order(&shop, "two"))
                .await
                .unwrap(),
        };
        for name in ["two", "2"] {
            let said = text(&migrate(name).await.unwrap_err());
            let way = format!("podctl move show {}", left.id);
            for part in [
                "pod two still has rows of shop calm",
                words,
                "change its schema",
                &way,
            ] {
                assert!(said.contains(part), "{said}");
            }
        }
        ended(&migrate("one").await.unwrap().id).await;
        let mine = take(&catalog, &left, "a").await;
        catalog.leftover_done(&mine).await.unwrap();
    }
    let running = migrate("two").await.unwrap();
    let said = refusal(&catalog, &order(&shop, "two")).await;
    assert!(
        said.contains("the schema of pod two is being changed") && said.contains(&running.id),
        "{said}"
    );
    ended(&running.id).await;
    catalog.check_clear(&order(&shop, "two")).await.unwrap();
}

/// Owner numbers only grow: over whatever the shop had before, with each takeover, and on to the next move. Whoever of a former
/// owner wakes up late notes nothing.
#[tokio::test]
async fn inv1_an_order_to_clear_is_of_a_later_owner_than_all_before_it() {
    let (_dir, catalog) = catalog().await;
    let shop = calm(&catalog).await;
    let last = catalog.move_row(&MoveRef::parse("calm")).await.unwrap();
    let ordered = catalog.begin_clear("ops", &order(&shop, "two")).await;
    let ordered = ordered.unwrap();
    let mine = take(&catalog, &ordered, "a").await;
    assert!(mine.owner > last.owner, "{} {}", mine.owner, last.owner);
    let next = take(&catalog, &ordered, "b").await;
    assert!(next.owner > mine.owner);
    let mut detail = ordered.detail.clone();
    detail.record.dump = Some("/dumps/cleared".into());
    let late = catalog.note_cleared(&mine, &detail, Some("late")).await;
    assert!(matches!(late, Err(CatalogError::Stale(_))), "{late:?}");
    let noted = catalog.note_cleared(&next, &detail, Some("dumped")).await;
    noted.unwrap();
    let dumped = catalog.move_of_copy(shop.id, pod(2), ordered.epoch).await;
    let dumped = dumped
        .unwrap()
        .expect("the dump is this order's until it is done");
    assert_eq!(
        (dumped.id, dumped.leftover_ms.is_some()),
        (ordered.id, true)
    );
    assert!(catalog.leftover_done(&mine).await.is_err());
    catalog.leftover_done(&next).await.unwrap();
    let events = catalog.move_events(ordered.id, 0).await.unwrap();
    let notes = events
        .iter()
        .filter(|it| it.note.as_deref() == Some("dumped"));
    assert_eq!(notes.count(), 1);
    let moved = catalog.begin_move("ops", &to(&shop, "two")).await.unwrap();
    let moved = taken(&catalog, &moved, "a").await;
    assert!(
        moved.owner > next.owner,
        "the next mover refuses this order's"
    );
}

/// Of a move there and an order to clear that come at once, one is taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_move_and_an_order_to_clear_exclude_each_other() {
    let (_dir, catalog) = catalog().await;
    for number in 0..12 {
        let handle = format!("shop-{number}");
        let mut new = new_shop(&handle);
        new.pod = Some("one".into());
        let Begun::Open(creation) = catalog.begin_creation("test", &new, None).await.unwrap()
        else {
            panic!("made before")
        };
        let shop = catalog.finish_creation(&creation).await.unwrap();
        let (moving, clearing) = (to(&shop, "two"), order(&shop, "two"));
        let (first, second) = (Arc::clone(&catalog), Arc::clone(&catalog));
        let moves = tokio::spawn(async move { first.begin_move("ops", &moving).await });
        let clears = tokio::spawn(async move { second.begin_clear("ops", &clearing).await });
        let (moved, cleared) = (moves.await.unwrap(), clears.await.unwrap());
        match (&moved, &cleared) {
            (Ok(_), Err(error)) => assert!(text(error).contains("open move"), "{error}"),
            (Err(error), Ok(_)) => assert!(text(error).contains("to be cleared"), "{error}"),
            (moved, cleared) => panic!("{moved:?} {cleared:?}"),
        }
    }
}

/// A copy that somebody changed is not made equal to the shop before somebody has looked at it, and the word is of so many.
#[tokio::test]
async fn a_move_back_over_strays_needs_a_word_that_says_how_many() {
    let (_dir, catalog) = catalog().await;
    let (shop, row) = begun(&catalog, "snow").await;
    let mut row = at(&catalog, row, MoveState::Observing).await;
    let back = |despite_strays| NewMove {
        despite_strays,
        ..to(&shop, "one")
    };
    // Of none nothing is to be said.
    let refused = catalog.begin_move("ops", &back(1)).await.unwrap_err();
    assert!(text(&refused).contains("0 stray changes"), "{refused}");
    for number in 1..=2 {
        row.detail.strays.push(Stray {
            table: "orders".into(),
            gtid: format!("a:{number}"),
            at_ms: 1,
        });
        row.detail.watched = Some(format!("set {number}"));
        row = catalog.note_move(&row, &row.detail, None).await.unwrap();
        for wrong in [0, number - 1, number + 1] {
            let checked = catalog.check_move(&back(wrong)).await.unwrap_err();
            let refused = catalog.begin_move("ops", &back(wrong)).await.unwrap_err();
            assert_eq!(checked.to_string(), refused.to_string());
            let said = text(&refused);
            let way = format!("podctl shop move snow --to one --despite-strays {number}");
            let look = format!("podctl move show {}", row.id);
            assert!(said.contains(&way) && said.contains(&look), "{said}");
        }
    }
    let elsewhere = NewMove {
        despite_strays: 2,
        ..to(&shop, "two")
    };
    assert!(catalog.begin_move("ops", &elsewhere).await.is_err());
    catalog.check_move(&back(2)).await.unwrap();
    let begun = catalog.begin_move("ops", &back(2)).await.unwrap();
    assert_eq!(begun.detail.back_of, Some(row.id));
    // What comes after those is nobody's to undo: the driver looks from there.
    assert_eq!(begun.detail.back_seen.as_deref(), Some("set 2"));
    let former = catalog.move_row(&MoveRef::Id(row.id)).await.unwrap();
    assert_eq!(former.detail.strays_let_go, 2);
    for id in [row.id, begun.id] {
        let events = catalog.move_events(id, 0).await.unwrap();
        let said = events.iter().filter_map(|it| it.note.as_deref());
        assert_eq!(said.filter(|it| it.contains("despite 2 stray")).count(), 1);
    }
}
