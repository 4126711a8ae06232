//! Which pod an isolated shop gets, and what is told of one that need not or does not move.

use shared::PodId;

use super::*;

fn pod(id: u64, region: &str, status: PodStatus, shops: u64) -> Pod {
    Pod {
        id: PodId::new(id).unwrap(),
        name: format!("pod-{id}"),
        region: region.into(),
        pool: "shared".into(),
        class: "small".into(),
        max_shops: 5,
        status,
        shops,
        term: 1,
        version: 1,
        endpoints: Vec::new(),
    }
}

fn shop(region: Option<&str>) -> Shop {
    let json = serde_json::json!({
        "id": 1, "handle": "milk", "plan": "standard", "currency": "USD", "region": region, "status": "active",
        "hosts": [], "pod": { "id": 1, "name": "pod-1" }, "epoch": 1, "state": "serving", "version": 1, "move": null,
    });
    serde_json::from_value(json).unwrap()
}

#[test]
fn an_isolated_shop_gets_an_empty_active_pod_of_its_region() {
    let pods = [
        pod(1, "eu", PodStatus::Active, 2),
        pod(2, "eu", PodStatus::Draining, 0),
        pod(3, "us", PodStatus::Active, 0),
        pod(4, "eu", PodStatus::Active, 0),
    ];
    let id = |region| empty_pod(&shop(region), &pods).map(|pod| pod.id.get());
    assert_eq!(id(None), Some(3));
    assert_eq!(id(Some("eu")), Some(4));
    assert_eq!(id(Some("asia")), None);
}

#[test]
fn a_shop_alone_in_its_pod_is_alone_while_its_move_there_is_observed() {
    let alone = |shops, of: Option<(u64, &str)>| {
        let open = of.map(|(target, state)| a_move(target, state));
        is_alone(
            &shop(None),
            &[pod(1, "eu", PodStatus::Active, shops)],
            open.as_ref(),
        )
    };
    assert!(alone(1, None));
    assert!(!alone(2, None));
    assert!(alone(1, Some((1, "observing"))) && alone(1, Some((1, "retiring"))));
    assert!(!alone(2, Some((1, "observing"))));
    assert!(!alone(1, Some((2, "copying"))));
    assert!(!alone(1, Some((1, "cutover"))));
}

fn a_move(target: u64, state: &str) -> Move {
    let at = "2026-01-31T12:00:00Z";
    let json = serde_json::json!({
        "id": "01890000-0000-7000-8000-000000000001", "shop": { "id": 1, "handle": "milk" },
        "source": { "id": 3 - target, "name": "a" }, "target": { "id": target, "name": "b" }, "source_epoch": 1,
        "epoch": 2, "state": state, "open": true, "owner": 1, "reason": null, "observe_ms": 1, "back_of": null,
        "waits": null, "error": null, "record": {}, "strays": [], "leftover_since": null, "actor": "ops",
        "created_at": at, "changed_at": at, "state_since": at, "progress": null,
    });
    serde_json::from_value(json).unwrap()
}

#[test]
fn what_an_operator_stopped_stays_so() {
    let mut shop = shop(None);
    assert_eq!(stopped(&shop), None);
    shop.state = PlacementState::Offline;
    let text = stopped(&shop).unwrap();
    assert!(text.contains("milk is offline") && text.contains("shop online milk"));
    shop.state = PlacementState::Frozen;
    assert!(stopped(&shop).unwrap().contains("shop unfreeze milk"));
}

#[test]
fn only_a_pod_that_could_take_the_shop_is_asked_before_one_is_added() {
    let full = pod(3, "eu", PodStatus::Active, 5);
    let pods = [
        pod(1, "eu", PodStatus::Active, 2),
        pod(2, "eu", PodStatus::Draining, 1),
        full,
        pod(4, "us", PodStatus::Active, 1),
        pod(5, "eu", PodStatus::Active, 1),
    ];
    let asked = |region| {
        let shop = shop(region);
        let taken = pods.iter().filter(|pod| takes(&shop, pod));
        taken.map(|pod| pod.id.get()).collect::<Vec<_>>()
    };
    assert_eq!(asked(None), [4, 5]);
    assert_eq!(asked(Some("eu")), [5]);
}
