//! Every order in every state, every refusal of a move, and the names of moves.

use shared::moves::{MoveEvent, MoveState, Order};

use super::moves::{at, begun, step, taken, to};
use super::*;
use crate::api::OperationNew;

const ORDERS: [(Order, MoveOrder); 5] = [
    (Order::Pause, MoveOrder::Pause),
    (Order::Resume, MoveOrder::Resume),
    (Order::Abort, MoveOrder::Abort),
    (Order::Finish, MoveOrder::Finish { despite_strays: 0 }),
    (Order::SourceGone, MoveOrder::SourceGone),
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

#[tokio::test]
async fn every_order_in_every_state_does_its_work_or_says_the_way_out() {
    for (word, order) in ORDERS {
        let (_dir, catalog) = catalog().await;
        for state in MoveState::ALL {
            let row = in_state(&catalog, state).await;
            let before = catalog.move_events(row.id, 0).await.unwrap().len();
            let reference = MoveRef::Id(row.id);
            let checked = catalog.check_order(&reference, order).await;
            let answer = catalog.order_move("ops", &reference, order).await;
            let now = catalog.move_row(&reference).await.unwrap();
            let expected = state.ordered(word, row.detail.resume);
            // The owner has not changed yet.
            let early = (word, state) == (Order::SourceGone, MoveState::Cutover);
            match expected.filter(|_| !early) {
                None => {
                    let error = answer.expect_err(state.as_str());
                    let said = error.client_text().unwrap();
                    assert_eq!(checked.unwrap_err().client_text().unwrap(), said);
                    let names = [
                        row.id.to_string(),
                        row.handle.to_string(),
                        state.to_string(),
                    ];
                    assert!(
                        names.iter().all(|name| said.contains(name)),
                        "{word:?} {state}: {said}"
                    );
                    assert!(
                        said.contains("podctl"),
                        "{word:?} {state} has no way out: {said}"
                    );
                    assert_eq!(now, row, "{word:?} {state}");
                }
                Some(next) => {
                    assert_eq!(answer.unwrap().state, next, "{word:?} {state}");
                    let events = catalog.move_events(row.id, 0).await.unwrap().len();
                    let changes = next != state || word == Order::SourceGone;
                    assert_eq!(events > before, changes, "{word:?} {state}: audited");
                    assert_eq!(
                        checked.unwrap().is_some(),
                        changes,
                        "{word:?} {state}: checked"
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

/// A shop pinned to its region, at pod one; pod `far` is elsewhere.
async fn snow(catalog: &Catalog) -> Shop {
    let mut new = new_shop("snow");
    new.pod = Some("one".into());
    new.region = Some("local".into());
    let Begun::Open(creation) = catalog.begin_creation("test", &new, None).await.unwrap() else {
        panic!("made before")
    };
    let said = refusal(catalog, "snow", "two").await;
    assert!(said.contains("is being made"), "{said}");
    let far = PodPut {
        region: "far".into(),
        ..pod_put("far", 3)
    };
    catalog.put_pod("test", pod(3), &far).await.unwrap();
    catalog.finish_creation(&creation).await.unwrap()
}

/// What is said to a move of a shop, by its check and by itself alike.
async fn refusal(catalog: &Catalog, handle: &str, target: &str) -> String {
    let new = NewMove {
        shop: ShopRef::Handle(handle.parse().unwrap()),
        target: target.into(),
        reason: None,
        observe_ms: 0,
        despite_strays: 0,
    };
    let checked = catalog.check_move(&new).await.unwrap_err().to_string();
    let error = catalog.begin_move("ops", &new).await.unwrap_err();
    assert_eq!(checked, error.to_string());
    error.client_text().unwrap_or_default()
}

async fn is_refused(catalog: &Catalog, target: &str, parts: &[&str]) {
    let said = refusal(catalog, "snow", target).await;
    assert!(
        parts.iter().all(|part| said.contains(part)),
        "{target}: {said}"
    );
}

#[tokio::test]
async fn each_refusal_by_a_pod_or_a_pin_says_what_to_do() {
    let (_dir, catalog) = catalog().await;
    let shop = ShopRef::Id(snow(&catalog).await.id);
    let nobody = refusal(&catalog, "nobody", "two").await;
    assert!(nobody.contains("no shop"), "{nobody}");
    is_refused(&catalog, "nowhere", &["no pod", "podctl pod list"]).await;
    is_refused(&catalog, "one", &["is at pod one already", "another pod"]).await;
    is_refused(&catalog, "far", &["pinned to region local", "name a pod"]).await;
    let pin = catalog
        .pin_shop("ops", &shop, Some("far"), Some("black friday"))
        .await;
    assert_eq!(pin.unwrap().pod.id, pod(3));
    let parts = ["pinned to pod far (black friday)", "podctl shop unpin snow"];
    is_refused(&catalog, "two", &parts).await;
    catalog.unpin_shop("ops", &shop).await.unwrap();
    let set = async |name, status| {
        let set = catalog.set_pod_status("test", name, status, None).await;
        set.unwrap();
    };
    set("two", PodStatus::Draining).await;
    is_refused(&catalog, "two", &["draining", "podctl pod undrain two"]).await;
    set("two", PodStatus::Offline).await;
    is_refused(&catalog, "two", &["offline", "podctl pod undrain two"]).await;
    // All reasons at once.
    set("one", PodStatus::Offline).await;
    is_refused(&catalog, "two", &["undrain two", "undrain one"]).await;
    set("two", PodStatus::Active).await;
    // A pod that is being emptied may be left.
    set("one", PodStatus::Draining).await;
    catalog
        .begin_move("ops", &to(&catalog.shop(&shop).await.unwrap(), "two"))
        .await
        .unwrap();
}

#[tokio::test]
async fn each_refusal_by_other_work_says_what_to_do() {
    let (_dir, catalog) = catalog().await;
    let shop = snow(&catalog).await;
    let reference = ShopRef::Id(shop.id);
    let frozen = PlacementState::Frozen;
    let order = catalog
        .begin_state("ops", &reference, frozen, None)
        .await
        .unwrap();
    is_refused(&catalog, "two", &[&order.operation, "wait"]).await;
    catalog.finish_state(&order).await.unwrap();
    let migration = || OperationNew {
        id: uuid::Uuid::now_v7().to_string(),
        kind: "migrate".into(),
        subject: "two".into(),
        detail: serde_json::Value::Null,
    };
    let running = catalog.put_operation("ops", &migration()).await.unwrap();
    is_refused(&catalog, "two", &["schema of pod two", &running.id]).await;
    let done = crate::api::OperationChange {
        state: Some(crate::api::OperationState::Done),
        ..Default::default()
    };
    catalog
        .change_operation("ops", &running.id, &done)
        .await
        .unwrap();
    catalog.begin_move("ops", &to(&shop, "two")).await.unwrap();
    is_refused(&catalog, "far", &["open move", "preparing", "move abort"]).await;
    let beside = catalog
        .put_operation("ops", &migration())
        .await
        .unwrap_err();
    assert!(
        beside.to_string().contains("pod two has an open move"),
        "{beside}"
    );
    let astray = catalog
        .pin_shop("ops", &reference, Some("one"), None)
        .await
        .unwrap_err();
    assert!(
        astray.to_string().contains("on its way to pod two"),
        "{astray}"
    );
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
