//! The numbers of moves, of rows made by hand.

use std::cmp::Ordering;

use shared::moves::MoveId;
use shared::{Epoch, ShopId};

use super::*;
use crate::api::PodStatus;
use crate::catalog::{MoveDetail, MoveKind};

const NOW: i64 = 1_000_000;

fn id(pod: u64) -> PodId {
    PodId::new(pod).unwrap()
}

fn pod(number: u64) -> Pod {
    Pod {
        id: id(number),
        name: format!("pod-{number}"),
        region: "eu".into(),
        pool: "shared".into(),
        class: "small".into(),
        max_shops: 5,
        status: PodStatus::Active,
        shops: 0,
        term: 1,
        version: 1,
        endpoints: Vec::new(),
    }
}

/// From pod 1 to pod 2, ordered and in its state for so many seconds.
fn row(state: MoveState, ordered: i64, there: i64) -> MoveRow {
    MoveRow {
        id: MoveId::random(),
        shop: ShopId::new(1).unwrap(),
        handle: "snow".parse().unwrap(),
        source: id(1),
        source_name: "one".to_owned(),
        target: id(2),
        target_name: "two".to_owned(),
        source_epoch: Epoch::FIRST,
        epoch: Epoch::FIRST.next(),
        kind: MoveKind::Move,
        state,
        owner: 1,
        detail: MoveDetail {
            since_ms: Some(NOW - there * 1_000),
            ..MoveDetail::default()
        },
        error: None,
        actor: "ops".to_owned(),
        created_ms: NOW - ordered * 1_000,
        changed_ms: NOW,
        leftover_ms: None,
    }
}

#[test]
fn moves_are_counted_by_state_with_the_one_that_is_there_the_longest() {
    let open = [
        row(MoveState::Copying, 50, 40),
        row(MoveState::Copying, 90, 10),
        row(MoveState::Fenced, 20, 3),
        row(MoveState::Failed, 70, 60),
    ];
    let moves = Moves::of(&[], &open, &[]);
    let found = |state| {
        let all = moves.states.iter();
        let mut all = all.filter(|(of, _, _)| *of == state);
        let since = |first: i64| (NOW - first) / 1_000;
        all.next()
            .map(|(_, there, first)| (*there, first.map(since)))
    };
    assert_eq!(found(MoveState::Copying), Some((2, Some(40))));
    assert_eq!(found(MoveState::Fenced), Some((1, Some(3))));
    assert_eq!(found(MoveState::Failed), Some((1, Some(60))));
    // None is there any more: that must be shown.
    assert_eq!(found(MoveState::Cutover), Some((0, None)));
    assert_eq!(found(MoveState::Done), None);
}

/// An alert goes by them: they must not stand still where the catalog cannot be asked any more.
#[test]
fn ages_are_of_the_moment_in_which_they_are_asked_for() {
    let open = [
        row(MoveState::Fenced, 50, 3),
        row(MoveState::Copying, 90, 10),
    ];
    let moves = Moves::of(&[], &open, &[]);
    for later in [0, 60] {
        let (states, oldest) = moves.ages(NOW + later * 1_000);
        let states: BTreeMap<_, _> = states
            .into_iter()
            .map(|(it, age)| (it.as_str(), age))
            .collect();
        let seconds = |ms: i64| seconds(ms * 1_000);
        assert_eq!(oldest.total_cmp(&seconds(90 + later)), Ordering::Equal);
        for (state, age) in [
            ("fenced", 3 + later),
            ("copying", 10 + later),
            ("cutover", 0),
        ] {
            assert_eq!(
                states[state].total_cmp(&seconds(age)),
                Ordering::Equal,
                "{state}"
            );
        }
    }
    // A clock that was set back makes nothing old.
    assert_eq!(moves.ages(0).1.total_cmp(&0.0), Ordering::Equal);
}

#[test]
fn strays_count_until_they_are_let_go() {
    let mut with = row(MoveState::Retiring, 9, 9);
    with.detail.strays_total = 3;
    let mut listed = row(MoveState::Observing, 9, 9);
    listed.detail.strays = vec![crate::api::Stray {
        table: "orders".into(),
        gtid: "a:7".into(),
        at_ms: 1,
    }];
    let strays = |open: &[MoveRow]| Moves::of(&[], open, &[]).strays;
    assert_eq!(strays(&[with.clone(), listed.clone()]), 4);
    with.detail.strays_let_go = 3;
    assert_eq!(strays(&[with.clone(), listed]), 1);
    // One that came later stops the move once more.
    with.detail.strays_total = 4;
    assert_eq!(strays(&[with]), 4);
}

#[test]
fn pods_have_what_goes_and_comes_and_what_was_left() {
    let mut waits = row(MoveState::Preparing, 1, 1);
    waits.detail.waits = Some("a turn".into());
    let open = [waits, row(MoveState::Observing, 1, 1)];
    let mut aborted = row(MoveState::Aborted, 1, 1);
    aborted.target = id(3);
    let mut without_source = row(MoveState::Done, 1, 1);
    without_source.source = id(4);
    let mut cleared = aborted.clone();
    cleared.kind = MoveKind::Clear;
    cleared.detail.strays_total = 5;
    let left = [aborted, without_source, cleared];
    let moves = Moves::of(&[1, 2, 3, 4].map(pod), &open, &left);
    let counted = |from, to, leftovers, clearings| OfPod {
        from,
        to,
        leftovers,
        clearings,
    };
    let expected = [
        (id(1), counted(2, 0, 0, 0)),
        (id(2), counted(0, 2, 0, 0)),
        (id(3), counted(0, 0, 1, 1)),
        (id(4), counted(0, 0, 1, 0)),
    ];
    assert_eq!(moves.pods, BTreeMap::from(expected));
    assert_eq!(moves.waiting, 1);
    // Those have an alert of their own: nobody is asked for a word.
    assert_eq!((moves.strays, moves.clearings_strays), (0, 5));
}
