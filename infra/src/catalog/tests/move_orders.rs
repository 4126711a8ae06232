//! Every order in every state, every refusal of a move, and the names of moves.

use shared::moves::{MoveEvent, MoveState};

use super::moves::{at, begun, step, taken, to};
use super::*;
use crate::api::OperationNew;

const ORDERS: [(&str, MoveOrder); 4] = [
    ("pause", MoveOrder::Pause),
    ("resume", MoveOrder::Resume),
    ("abort", MoveOrder::Abort),
    (
        "finish",
        MoveOrder::Finish {
            despite_strays: false,
        },
    ),
];

/// A move in each state, reached as a driver reaches it.
async fn in_state(catalog: &Catalog, state: MoveState) -> MoveRow {
    let (_, row) = begun(catalog, &format!("s-{}", state.as_str().replace('_', "-"))).await;
    match state {
        MoveState::Paused => step(catalog, &row, MoveEvent::Pause).await,
        MoveState::Failed => catalog
            .step_move(&row, MoveEvent::Fail, &row.detail, Some("no room"))
            .await
            .unwrap(),
        MoveState::Aborting => step(catalog, &row, MoveEvent::Abort).await,
        MoveState::Aborted => {
            let row = step(catalog, &row, MoveEvent::Abort).await;
            step(catalog, &row, MoveEvent::Undone).await
        }
        MoveState::Preparing
        | MoveState::Copying
        | MoveState::CatchingUp
        | MoveState::Verifying
        | MoveState::Fenced
        | MoveState::Cutover
        | MoveState::Observing
        | MoveState::Retiring
        | MoveState::Done => at(catalog, row, state).await,
    }
}

/// What each order makes of each state; `-` is a refusal.
#[rustfmt::skip] // a table: one state a line
const fn expected(state: MoveState) -> [&'static str; 4] {
    match state {
        //                        pause       resume        abort       finish
        MoveState::Preparing  => ["paused",   "-",          "aborting", "-"],
        MoveState::Copying    => ["paused",   "-",          "aborting", "-"],
        MoveState::CatchingUp => ["paused",   "-",          "aborting", "-"],
        MoveState::Verifying  => ["paused",   "-",          "aborting", "-"],
        MoveState::Fenced     => ["-",        "-",          "aborting", "-"],
        MoveState::Cutover    => ["-",        "-",          "aborting", "-"],
        MoveState::Observing  => ["-",        "-",          "-",        "retiring"],
        MoveState::Retiring   => ["paused",   "-",          "-",        "retiring"],
        MoveState::Done       => ["-",        "-",          "-",        "-"],
        MoveState::Paused     => ["paused",   "preparing",  "aborting", "-"],
        MoveState::Aborting   => ["-",        "-",          "aborting", "-"],
        MoveState::Aborted    => ["-",        "-",          "-",        "-"],
        MoveState::Failed     => ["-",        "preparing",  "aborting", "-"],
    }
}

#[tokio::test]
async fn every_order_in_every_state_does_its_work_or_says_the_way_out() {
    for (column, (word, order)) in ORDERS.into_iter().enumerate() {
        let (_dir, catalog) = catalog().await;
        for state in MoveState::ALL {
            let row = in_state(&catalog, state).await;
            let before = catalog.move_events(row.id, 0).await.unwrap().len();
            let answer = catalog.order_move("ops", &MoveRef::Id(row.id), order).await;
            let now = catalog.move_row(&MoveRef::Id(row.id)).await.unwrap();
            match expected(state)[column] {
                "-" => {
                    let error = answer.expect_err(word);
                    let said = error.client_text().unwrap();
                    let names = [
                        row.id.to_string(),
                        row.handle.to_string(),
                        state.to_string(),
                    ];
                    assert!(
                        names.iter().all(|name| said.contains(name)),
                        "{word} {state}: {said}"
                    );
                    assert!(
                        said.contains("podctl"),
                        "{word} {state} has no way out: {said}"
                    );
                    assert_eq!(now, row, "{word} {state}");
                }
                next => {
                    assert_eq!(answer.unwrap().state.as_str(), next, "{word} {state}");
                    let events = catalog.move_events(row.id, 0).await.unwrap().len();
                    assert_eq!(
                        events > before,
                        next != state.as_str(),
                        "{word} {state}: audited"
                    );
                }
            }
        }
    }
}

#[tokio::test]
async fn a_paused_move_goes_on_where_it_was_and_one_that_deletes_is_never_aborted() {
    let (_dir, catalog) = catalog().await;
    for (state, back) in [
        (MoveState::Preparing, "preparing"),
        (MoveState::Copying, "copying"),
        (MoveState::CatchingUp, "catching_up"),
        (MoveState::Verifying, "catching_up"),
        (MoveState::Retiring, "retiring"),
    ] {
        let row = in_state(&catalog, state).await;
        let reference = MoveRef::Id(row.id);
        catalog
            .order_move("ops", &reference, MoveOrder::Pause)
            .await
            .unwrap();
        if state == MoveState::Retiring {
            let refused = catalog
                .order_move("ops", &reference, MoveOrder::Abort)
                .await
                .unwrap_err();
            assert!(refused.to_string().contains("move resume"), "{refused}");
        }
        let row = catalog
            .order_move("ops", &reference, MoveOrder::Resume)
            .await
            .unwrap();
        assert_eq!(row.state.as_str(), back);
        taken(&catalog, &row, "a").await;
    }
}

/// What stands in the way of a move, and a word of what is said.
#[tokio::test]
async fn each_refusal_of_a_move_says_what_to_do() {
    let (_dir, catalog) = catalog().await;
    let mut new = new_shop("snow");
    new.pod = Some("one".into());
    new.region = Some("local".into());
    let Begun::Open(creation) = catalog.begin_creation("test", &new, None).await.unwrap() else {
        panic!("made before")
    };
    let refused = async |target: &str, reference: ShopRef| {
        let new = NewMove {
            shop: reference,
            ..to_handle(target)
        };
        let checked = catalog.check_move(&new).await.unwrap_err().to_string();
        let error = catalog.begin_move("ops", &new).await.unwrap_err();
        assert_eq!(
            checked,
            error.to_string(),
            "the check says what the move says"
        );
        error.client_text().unwrap_or_default()
    };
    let snow = || ShopRef::Handle("snow".parse().unwrap());
    let being_made = refused("two", snow()).await;
    assert!(being_made.contains("is being made"), "{being_made}");
    let shop = catalog.finish_creation(&creation).await.unwrap();
    let far = PodPut {
        region: "far".into(),
        ..pod_put("far", 3)
    };
    catalog.put_pod("test", pod(3), &far).await.unwrap();
    let nobody = ShopRef::Handle("nobody".parse().unwrap());
    let cases: [(&str, ShopRef, &[&str]); 4] = [
        ("two", nobody, &["no shop"]),
        ("nowhere", snow(), &["no pod", "podctl pod list"]),
        ("one", snow(), &["is at pod one already", "another pod"]),
        ("far", snow(), &["pinned to region local", "name a pod"]),
    ];
    for (target, reference, parts) in cases {
        let said = refused(target, reference).await;
        assert!(
            parts.iter().all(|part| said.contains(part)),
            "{target}: {said}"
        );
    }
    catalog
        .pin_shop("ops", &snow(), Some("far"), None)
        .await
        .unwrap();
    let pinned = refused("two", snow()).await;
    assert!(
        pinned.contains("pinned to pod far") && pinned.contains("podctl shop unpin snow"),
        "{pinned}"
    );
    catalog.unpin_shop("ops", &snow()).await.unwrap();
    for (status, part) in [
        (PodStatus::Draining, "is draining"),
        (PodStatus::Offline, "is offline"),
    ] {
        catalog
            .set_pod_status("test", "two", status, None)
            .await
            .unwrap();
        let said = refused("two", snow()).await;
        assert!(
            said.contains(part) && said.contains("podctl pod undrain two"),
            "{said}"
        );
    }
    catalog
        .set_pod_status("test", "one", PodStatus::Offline, None)
        .await
        .unwrap();
    let both = refused("two", snow()).await;
    assert!(
        both.contains("undrain two") && both.contains("undrain one"),
        "all reasons: {both}"
    );
    for name in ["one", "two"] {
        catalog
            .set_pod_status("test", name, PodStatus::Active, None)
            .await
            .unwrap();
    }
    let frozen = PlacementState::Frozen;
    let order = catalog
        .begin_state("ops", &snow(), frozen, None)
        .await
        .unwrap();
    let busy = refused("two", snow()).await;
    assert!(
        busy.contains(&order.operation) && busy.contains("wait"),
        "{busy}"
    );
    catalog.finish_state(&order).await.unwrap();
    let migration = OperationNew {
        id: uuid::Uuid::now_v7().to_string(),
        kind: "migrate".into(),
        subject: "two".into(),
        detail: serde_json::Value::Null,
    };
    catalog.put_operation("ops", &migration).await.unwrap();
    let migrating = refused("two", snow()).await;
    assert!(migrating.contains("schema of pod two"), "{migrating}");
    let done = crate::api::OperationChange {
        state: Some(crate::api::OperationState::Done),
        ..Default::default()
    };
    catalog
        .change_operation("ops", &migration.id, &done)
        .await
        .unwrap();
    catalog.begin_move("ops", &to(&shop, "two")).await.unwrap();
    let second = refused("far", snow()).await;
    assert!(
        second.contains("open move")
            && second.contains("preparing")
            && second.contains("move abort"),
        "{second}"
    );
    let beside = OperationNew {
        id: uuid::Uuid::now_v7().to_string(),
        ..migration
    };
    let beside = catalog.put_operation("ops", &beside).await.unwrap_err();
    assert!(beside.to_string().contains("open move"), "{beside}");
    let astray = catalog
        .pin_shop("ops", &snow(), Some("one"), None)
        .await
        .unwrap_err();
    assert!(
        astray.to_string().contains("on its way to pod two"),
        "{astray}"
    );
}

fn to_handle(target: &str) -> NewMove {
    NewMove {
        shop: ShopRef::Handle("snow".parse().unwrap()),
        target: target.into(),
        reason: None,
        observe_ms: 0,
    }
}

/// Room is counted with the shops that are on their way, so that two moves cannot both take the last place.
#[tokio::test]
async fn a_shop_on_its_way_has_its_place() {
    let (_dir, catalog) = catalog().await;
    let one_place = PodPut {
        max_shops: 1,
        ..pod_put("two", 2)
    };
    catalog.put_pod("test", pod(2), &one_place).await.unwrap();
    let (_, first) = begun(&catalog, "first").await;
    let mut new = new_shop("second");
    new.pod = Some("one".into());
    let Begun::Open(creation) = catalog.begin_creation("test", &new, None).await.unwrap() else {
        panic!("made before")
    };
    let second = catalog.finish_creation(&creation).await.unwrap();
    let full = catalog
        .begin_move("ops", &to(&second, "two"))
        .await
        .unwrap_err();
    let said = full.to_string();
    assert!(
        said.contains("full with 1 of 1") && said.contains("max_shops"),
        "{said}"
    );
    new.handle = "third".parse().unwrap();
    (new.pod, new.hosts) = (Some("two".into()), Vec::new());
    assert!(
        catalog.begin_creation("test", &new, None).await.is_err(),
        "nor a new shop"
    );
    let arrived = at(&catalog, first, MoveState::Observing).await;
    assert_eq!(
        catalog.pod("two").await.unwrap().shops,
        1,
        "not counted twice"
    );
    assert_eq!(arrived.target, pod(2));
}

#[tokio::test]
async fn a_catalog_that_is_not_reconciled_moves_nothing() {
    let (_dir, catalog) = catalog().await;
    let shop = make(&catalog, "snow").await;
    sqlx::query("update catalog_meta set incarnation = incarnation + 1")
        .execute(&catalog.write)
        .await
        .unwrap();
    let error = catalog
        .begin_move("ops", &to(&shop, "two"))
        .await
        .unwrap_err();
    assert!(matches!(error, CatalogError::Unreconciled));
}

#[tokio::test]
async fn a_move_is_named_by_its_id_by_a_part_of_it_or_by_its_shop() {
    let (_dir, catalog) = catalog().await;
    let (shop, row) = begun(&catalog, "snow").await;
    let (_, other) = begun(&catalog, "ice").await;
    let id = row.id.to_string();
    let host = "snow.localhost".to_owned();
    for name in [
        id.clone(),
        id.to_uppercase(),
        id[..30].to_owned(),
        "snow".into(),
        shop.id.to_string(),
        host,
    ] {
        let found = catalog.move_row(&MoveRef::parse(&name)).await.unwrap();
        assert_eq!(found.id, row.id, "{name}");
    }
    let common = id
        .chars()
        .zip(other.id.to_string().chars())
        .take_while(|(a, b)| a == b)
        .count();
    let both = catalog
        .move_row(&MoveRef::parse(&id[..common.min(8)]))
        .await
        .unwrap_err();
    assert!(both.to_string().contains("more than one"), "{both}");
    make(&catalog, "calm").await;
    let none = catalog.move_row(&MoveRef::parse("calm")).await.unwrap_err();
    assert!(none.to_string().contains("move of the shop"), "{none}");
    for wrong in ["%", "f00", "no such", ""] {
        let error = catalog.move_row(&MoveRef::parse(wrong)).await.unwrap_err();
        assert_eq!(error.kind(), Kind::NotFound, "{wrong}");
    }
    let filter = |shop: Option<ShopRef>, pod: Option<&str>, open| MoveFilter {
        shop,
        pod: pod.map(str::to_owned),
        open,
        limit: 10,
    };
    let count = async |filter: MoveFilter| catalog.list_moves(&filter).await.unwrap().len();
    assert_eq!(count(filter(None, None, None)).await, 2);
    assert_eq!(
        count(filter(Some(ShopRef::Id(shop.id)), Some("two"), Some(true))).await,
        1
    );
    assert_eq!(count(filter(None, None, Some(false))).await, 0);
}
