//! Moves in the catalog: what is refused, who drives, and the one step that changes the owner.

use shared::moves::{MoveEvent, MoveState};

use super::*;

pub(super) fn to(shop: &Shop, target: &str) -> NewMove {
    NewMove {
        shop: ShopRef::Id(shop.id),
        target: target.into(),
        reason: Some("launch".into()),
        observe_ms: 1000,
        despite_strays: 0,
    }
}

/// A shop at pod one, and its move to pod two as its first driver has it.
pub(super) async fn begun(catalog: &Catalog, handle: &str) -> (Shop, MoveRow) {
    let mut new = new_shop(handle);
    new.pod = Some("one".into());
    let Begun::Open(creation) = catalog.begin_creation("test", &new, None).await.unwrap() else {
        panic!("made before")
    };
    let shop = catalog.finish_creation(&creation).await.unwrap();
    let row = catalog.begin_move("ops", &to(&shop, "two")).await.unwrap();
    let row = taken(catalog, &row, "a").await;
    (shop, row)
}

pub(super) async fn taken(catalog: &Catalog, row: &MoveRow, holder: &str) -> MoveRow {
    let row = catalog.take_move(row.id, holder, 1, true).await.unwrap();
    row.expect("nobody else has it")
}

pub(super) async fn step(catalog: &Catalog, row: &MoveRow, event: MoveEvent) -> MoveRow {
    let stepped = catalog.step_move(row, event, &row.detail, None).await;
    stepped.unwrap_or_else(|e| panic!("{} {event:?}: {e}", row.state))
}

/// Through the states to one of them.
pub(super) async fn at(catalog: &Catalog, mut row: MoveRow, state: MoveState) -> MoveRow {
    for event in [
        MoveEvent::Prepared,
        MoveEvent::Copied,
        MoveEvent::CaughtUp,
        MoveEvent::Verified,
        MoveEvent::Followed,
        MoveEvent::HandedOver,
        MoveEvent::Finish,
        MoveEvent::Retired,
    ] {
        if row.state == state {
            return row;
        }
        if row.state.after(event).is_none() {
            continue;
        }
        if event == MoveEvent::HandedOver {
            catalog.switch_move(&row, &row.detail, &[]).await.unwrap();
        }
        row = step(catalog, &row, event).await;
    }
    assert_eq!(row.state, state);
    row
}

pub(super) fn text(error: &CatalogError) -> String {
    error.client_text().unwrap_or_default()
}

#[tokio::test]
async fn a_whole_move_is_audited_and_the_epoch_grows() {
    let (_dir, catalog) = catalog().await;
    let (shop, row) = begun(&catalog, "snow").await;
    assert_eq!((row.state, row.owner), (MoveState::Preparing, 1));
    assert_eq!(row.epoch, Epoch::FIRST.next());
    let done = at(&catalog, row, MoveState::Done).await;
    let reference = ShopRef::Id(shop.id);
    let shop = catalog.shop(&reference).await.unwrap();
    assert_eq!((shop.pod.id, shop.epoch), (pod(2), done.epoch));
    assert_eq!(shop.r#move.as_deref(), Some("done"));
    assert_eq!(shop.move_id, Some(done.id.to_string()));
    let history = catalog.history(&reference).await.unwrap();
    let last = history.last().unwrap();
    assert_eq!((last.old_pod, last.new_pod), (Some(pod(1)), Some(pod(2))));
    assert_eq!(last.actor, "ops");
    let reason = last.reason.as_deref().unwrap();
    assert!(
        reason.contains("launch") && reason.contains(&done.id.to_string()),
        "{reason}"
    );
    let events = catalog.move_events(done.id, 0).await.unwrap();
    let states: Vec<_> = events.iter().map(|e| e.state.as_str()).collect();
    let expected = "preparing preparing copying catching_up verifying fenced cutover cutover observing retiring done";
    assert_eq!(states.join(" "), expected);
    let later = catalog
        .move_events(done.id, events[4].sequence)
        .await
        .unwrap();
    assert_eq!(later, events[5..]);
    assert!(done.detail.observing_since_ms.is_some());
}

/// Invariant 2: an epoch that a move had reserved is never another's, also when that move was aborted.
#[tokio::test]
async fn inv2_an_aborted_moves_epoch_is_never_used_again() {
    let (_dir, catalog) = catalog().await;
    let (shop, row) = begun(&catalog, "snow").await;
    let row = step(&catalog, &row, MoveEvent::Abort).await;
    step(&catalog, &row, MoveEvent::Undone).await;
    let left = catalog.leftovers().await.unwrap();
    assert_eq!(
        (left.len(), left[0].pod, left[0].epoch),
        (1, pod(2), row.epoch)
    );
    let over = async || catalog.moves_over(row.shop, 9).await.unwrap();
    assert_eq!(over().await, []);
    let refused = catalog
        .begin_move("ops", &to(&shop, "two"))
        .await
        .unwrap_err();
    assert!(
        text(&refused).contains("as soon as the pod can be"),
        "{refused}"
    );
    // A late one of a former owner changes nothing.
    let mine = catalog
        .take_leftover(row.id, "a", 1000, false)
        .await
        .unwrap()
        .unwrap();
    assert!(catalog.leftover_done(&left[0]).await.is_err());
    assert_eq!(
        catalog
            .take_leftover(row.id, "b", 1000, false)
            .await
            .unwrap(),
        None
    );
    catalog
        .note_leftover(&mine, Some("pod two is away"))
        .await
        .unwrap();
    // Why the move was undone stays.
    let told = async || {
        let row = catalog.move_row(&MoveRef::Id(row.id)).await.unwrap();
        (row.detail.waits, row.error)
    };
    assert_eq!(told().await, (Some("pod two is away".to_owned()), None));
    catalog.leftover_done(&mine).await.unwrap();
    assert_eq!(told().await, (None, None));
    assert_eq!(over().await, [row.id]);
    let again = catalog.begin_move("ops", &to(&shop, "two")).await.unwrap();
    assert_eq!(again.epoch, row.epoch.next());
}

/// Of many that want to drive a move one does, and no function obeys an owner of before.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_many_takes_a_move_and_the_former_owner_is_refused_everywhere() {
    let (_dir, catalog) = catalog().await;
    let (_, first) = begun(&catalog, "snow").await;
    let first = at(&catalog, first, MoveState::Cutover).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    let takers: Vec<_> = (0..8)
        .map(|n| {
            let (catalog, id) = (Arc::clone(&catalog), first.id);
            tokio::spawn(async move {
                catalog
                    .take_move(id, &format!("h{n}"), 60_000, false)
                    .await
                    .unwrap()
            })
        })
        .collect();
    let mut won = Vec::new();
    for taker in takers {
        won.extend(taker.await.unwrap());
    }
    assert_eq!((won.len(), won[0].owner), (1, first.owner + 1));
    let stale = |answer: Result<MoveRow, CatalogError>| {
        assert!(matches!(answer, Err(CatalogError::Stale(_))), "{answer:?}");
    };
    stale(catalog.renew_move(first.id, first.owner, "a", 1000).await);
    stale(
        catalog
            .step_move(&first, MoveEvent::HandedOver, &first.detail, None)
            .await,
    );
    stale(
        catalog
            .step_move(&first, MoveEvent::Abort, &first.detail, None)
            .await,
    );
    stale(catalog.note_move(&first, &first.detail, Some("late")).await);
    stale(catalog.switch_move(&first, &first.detail, &[]).await);
    // The lease is another's; it is taken only by force.
    assert_eq!(
        catalog
            .take_move(first.id, "late", 1000, false)
            .await
            .unwrap(),
        None
    );
    let forced = catalog
        .take_move(first.id, "late", 1000, true)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(forced.owner, first.owner + 2);
    stale(
        catalog
            .renew_move(forced.id, won[0].owner, "h0", 1000)
            .await,
    );
    catalog.leave_move(forced.id, "late").await.unwrap();
    assert!(
        catalog
            .take_move(first.id, "next", 1000, false)
            .await
            .unwrap()
            .is_some()
    );
}

/// The point of no return and the abort exclude each other, whoever comes first.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn inv2_the_switch_and_the_abort_exclude_each_other() {
    let (_dir, catalog) = catalog().await;
    for n in 0..12 {
        let (shop, row) = begun(&catalog, &format!("s{n}")).await;
        let row = at(&catalog, row, MoveState::Cutover).await;
        let switch = {
            let (catalog, row) = (Arc::clone(&catalog), row.clone());
            tokio::spawn(async move { catalog.switch_move(&row, &row.detail, &[]).await })
        };
        let abort = {
            let (catalog, row) = (Arc::clone(&catalog), row.clone());
            tokio::spawn(async move {
                let by_operator = MoveRef::Id(row.id);
                if n % 2 == 0 {
                    catalog
                        .order_move("ops", &by_operator, MoveOrder::Abort)
                        .await
                } else {
                    catalog
                        .step_move(&row, MoveEvent::Fail, &row.detail, Some("why"))
                        .await
                }
            })
        };
        let (switched, aborted) = (switch.await.unwrap(), abort.await.unwrap());
        assert_ne!(
            switched.is_ok(),
            aborted.is_ok(),
            "{switched:?} {aborted:?}"
        );
        let placed = catalog.placement(shop.id).await.unwrap();
        let (owner, epoch) = match switched {
            Ok(_) => (pod(2), row.epoch),
            Err(_) => (pod(1), row.source_epoch),
        };
        assert_eq!((placed.pod, placed.epoch), (owner, epoch));
        let events = catalog.history(&ShopRef::Id(shop.id)).await.unwrap().len();
        // The same again, also from a driver that was killed before it heard the answer.
        if switched.is_ok() {
            catalog.switch_move(&row, &row.detail, &[]).await.unwrap();
            for event in [
                MoveEvent::Abort,
                MoveEvent::Fail,
                MoveEvent::FenceMissed,
                MoveEvent::PrimaryChanged,
            ] {
                let refused = catalog.step_move(&row, event, &row.detail, None).await;
                assert!(
                    matches!(refused, Err(CatalogError::Conflict(_))),
                    "{event:?} {refused:?}"
                );
            }
            step(&catalog, &row, MoveEvent::HandedOver).await;
        } else {
            let late = catalog.switch_move(&row, &row.detail, &[]).await;
            assert!(matches!(late, Err(CatalogError::Stale(_))), "{late:?}");
        }
        let again = catalog.history(&ShopRef::Id(shop.id)).await.unwrap().len();
        assert_eq!(events, again, "nothing is switched twice");
    }
}

#[tokio::test]
async fn the_owner_changes_only_in_cutover_and_the_move_goes_on_only_after_it() {
    let (_dir, catalog) = catalog().await;
    let (shop, mut row) = begun(&catalog, "snow").await;
    for state in [
        MoveState::Preparing,
        MoveState::CatchingUp,
        MoveState::Fenced,
    ] {
        row = at(&catalog, row, state).await;
        let refused = catalog
            .switch_move(&row, &row.detail, &[])
            .await
            .unwrap_err();
        assert!(matches!(refused, CatalogError::Conflict(_)), "{refused}");
    }
    row = at(&catalog, row, MoveState::Cutover).await;
    let early = catalog
        .step_move(&row, MoveEvent::HandedOver, &row.detail, None)
        .await;
    assert!(matches!(early, Err(CatalogError::Conflict(_))), "{early:?}");
    // A placement that is not the one told: somebody changed the shop's state behind the catalog's own rules.
    let placed = catalog.placement(shop.id).await.unwrap();
    let frozen = PlacementState::Frozen;
    catalog
        .swap_state("test", &placed, frozen, None)
        .await
        .unwrap();
    catalog.switch_move(&row, &row.detail, &[]).await.unwrap();
    let placed = catalog.placement(shop.id).await.unwrap();
    assert_eq!(
        (placed.pod, placed.state),
        (pod(2), frozen),
        "it arrives as it was"
    );
}

/// A move back closes the one in observation; its own abort leaves the shop where it is.
#[tokio::test]
async fn a_move_back_takes_the_place_of_the_one_in_observation() {
    let (_dir, catalog) = catalog().await;
    let (shop, row) = begun(&catalog, "snow").await;
    let mut row = at(&catalog, row, MoveState::Cutover).await;
    row.detail.ready_gtid = Some("b:1-7".into());
    catalog.switch_move(&row, &row.detail, &[]).await.unwrap();
    let row = step(&catalog, &row, MoveEvent::HandedOver).await;
    let elsewhere = PodPut {
        name: "three".into(),
        ..pod_put("three", 3)
    };
    catalog.put_pod("test", pod(3), &elsewhere).await.unwrap();
    let refused = catalog
        .begin_move("ops", &to(&shop, "three"))
        .await
        .unwrap_err();
    let said = text(&refused);
    assert!(
        said.contains("observing") && said.contains("--to one") && said.contains("move finish"),
        "{said}"
    );
    // The way back is open although the pod has filled up meanwhile.
    let full = PodPut {
        max_shops: 0,
        ..pod_put("one", 1)
    };
    catalog.put_pod("test", pod(1), &full).await.unwrap();
    let back = catalog.begin_move("ops", &to(&shop, "one")).await.unwrap();
    assert_eq!((back.source, back.target), (pod(2), pod(1)));
    assert_eq!(
        (back.detail.back_of, back.epoch),
        (Some(row.id), row.epoch.next())
    );
    assert_eq!(back.detail.back_from.as_deref(), Some("b:1-7"));
    let closed = catalog.move_row(&MoveRef::Id(row.id)).await.unwrap();
    assert_eq!(closed.state, MoveState::Done);
    let latest = catalog.move_row(&MoveRef::parse("snow")).await.unwrap();
    assert_eq!(latest.id, back.id);
    let open = catalog.open_moves().await.unwrap();
    assert_eq!(open.len(), 1);
    // A driver of the closed one finds out at its next word.
    let late = catalog
        .step_move(&row, MoveEvent::Finish, &row.detail, None)
        .await;
    assert!(matches!(late, Err(CatalogError::Stale(_))), "{late:?}");
}

/// Invariant 1: a primary of either pod that is another one by now makes the step wait, whatever was seen at the former one.
#[tokio::test]
async fn inv1_the_owner_does_not_change_under_another_term_of_either_pod() {
    let (_dir, catalog) = catalog().await;
    let (shop, row) = begun(&catalog, "snow").await;
    let row = at(&catalog, row, MoveState::Cutover).await;
    let mut terms = [(pod(1), 1), (pod(2), 1)];
    for (index, name) in ["one", "two"].into_iter().enumerate() {
        let replica = format!("127.0.0.{}:3307", index + 1);
        catalog
            .set_primary("test", name, &replica, 1)
            .await
            .unwrap();
        let refused = catalog.switch_move(&row, &row.detail, &terms).await;
        let refused = refused.expect_err(name);
        assert!(matches!(refused, CatalogError::Conflict(_)), "{refused}");
        let placed = catalog.placement(shop.id).await.unwrap();
        assert_eq!((placed.pod, placed.epoch), (pod(1), row.source_epoch));
        terms[index].1 = 2;
    }
    catalog
        .switch_move(&row, &row.detail, &terms)
        .await
        .unwrap();
    assert_eq!(catalog.placement(shop.id).await.unwrap().pod, pod(2));
}
