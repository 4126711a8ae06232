//! What a task remembers of why a run ended, and what it leaves at a stop.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::super::notes::tests::row;
use super::super::{Work, work_on};
use super::*;
use crate::catalog::tests::{catalog, make};
use crate::catalog::{NewMove, ShopRef};
use crate::mover::MoveLimits;
use crate::pod_store::PodStore;

const DIFFERS: &str = "a row differs";
const AWAY: &str = "pod 1: connect failed";

fn blamed(reasons: &[(Why, &str)]) -> Memory {
    let mut memory = Memory::default();
    for (why, text) in reasons {
        memory.blame(*why, text);
    }
    memory
}

/// What lifts the fence next, in a state.
fn next(mut memory: Memory, state: MoveState) -> Option<Why> {
    memory.look_at(&row(state));
    memory.reason.map(|reason| reason.why)
}

#[test]
fn no_later_fault_takes_a_graver_reasons_place() {
    let memory = blamed(&[
        (Why::Missed, "the home stayed locked"),
        (Why::Fail, DIFFERS),
        (Why::Missed, AWAY),
        (Why::PrimaryChanged, "another server"),
        (Why::Fail, "something else"),
    ]);
    let (why, text) = (Why::Fail, DIFFERS.to_owned());
    assert_eq!(memory.reason, Some(Reason { why, text }));
}

#[test]
fn a_reason_holds_until_the_catalog_has_it() {
    for state in MoveState::ALL {
        let standing = state.may_be_fenced();
        for why in [Why::Missed, Why::PrimaryChanged] {
            let kept = next(blamed(&[(why, AWAY)]), state);
            assert_eq!(kept.is_some(), standing, "{state}");
        }
        // A pause changes nothing about a comparison that failed.
        let before = state == MoveState::Paused || state.after(MoveEvent::Fail).is_some();
        let kept = next(blamed(&[(Why::Fail, DIFFERS)]), state);
        assert_eq!(kept.is_some(), before, "{state}");
        let now = blamed(&[(Why::Fail, DIFFERS)]).fails(state).is_some();
        let may = !standing && state.after(MoveEvent::Fail).is_some();
        assert_eq!(now, may, "{state}");
        assert_eq!(blamed(&[(Why::Missed, AWAY)]).fails(state), None, "{state}");
    }
}

/// Another process found it, and was killed before the fence was lifted.
#[test]
fn what_an_earlier_process_has_noted_is_the_reason() {
    let mut found = row(MoveState::Fenced);
    found.detail.must_fail = Some(DIFFERS.to_owned());
    let mut memory = blamed(&[(Why::Missed, AWAY)]);
    memory.look_at(&found);
    let (why, text) = (Why::Fail, DIFFERS.to_owned());
    assert_eq!(memory.reason, Some(Reason { why, text }));
}

/// A stop that comes while the move waits to try again what did not work: its pods have no password here.
#[tokio::test]
async fn a_stop_gives_the_lease_back_whatever_the_move_waits_for() {
    let (dir, catalog) = catalog().await;
    let shop = make(&catalog, "snow").await;
    let new = NewMove {
        shop: ShopRef::Id(shop.id),
        target: if shop.pod.name == "one" { "two" } else { "one" }.to_owned(),
        reason: None,
        observe_ms: 0,
        despite_strays: 0,
    };
    let id = catalog.begin_move("ops", &new).await.unwrap().id;
    let limits = MoveLimits {
        lease: Duration::from_secs(3_600),
        ..MoveLimits::default()
    };
    let path = dir.path().to_owned();
    let mover = Arc::new(Mover::new(
        Arc::clone(&catalog),
        Arc::new(PodStore::new(Arc::clone(&catalog), path.clone())),
        Arc::default(),
        Arc::new(limits),
        path,
    ));
    let driven = Arc::clone(&mover);
    let driving = tokio::spawn(work_on(driven, Work::Move(id)));
    let fault = async {
        loop {
            let row = catalog.move_row(&MoveRef::Id(id)).await.unwrap();
            if row.error.is_some() {
                break;
            }
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(60), fault).await.unwrap();
    let other = || catalog.take_move(id, "another", 1_000, false);
    assert_eq!(other().await.unwrap(), None);
    mover.stop.cancel();
    timeout(Duration::from_secs(60), driving)
        .await
        .unwrap()
        .unwrap();
    assert!(other().await.unwrap().is_some());
}
