//! The rules of homes, change by change: who may, from which state, and what stays.

use super::*;

fn epoch(n: u64) -> Epoch {
    Epoch::try_from(n).unwrap()
}

fn pod(n: u64) -> PodId {
    PodId::new(n).unwrap()
}

fn who(owner: u64) -> Who {
    Who {
        id: "this".to_owned(),
        owner,
        source_epoch: epoch(3),
        target_epoch: epoch(4),
        source: pod(1),
        target: pod(2),
    }
}

fn row(state: HomeState, at: u64, move_id: Option<&str>, owner: u64) -> HomeRow {
    HomeRow {
        epoch: epoch(at),
        state,
        move_id: move_id.map(str::to_owned),
        owner,
        ready_gtid: None,
        mark: None,
    }
}

fn state_after(change: &Change, owner: u64, found: &HomeRow) -> Result<HomeState, Refusal> {
    after(change, &who(owner), Some(found)).map(|row| row.unwrap().state)
}

const CHANGES: [Change; 15] = [
    Change::TakeOverSource(None),
    Change::TakeOverSource(Some(PlacementState::Serving)),
    Change::TakeOverTarget,
    Change::Incoming,
    Change::Fence,
    Change::Handing,
    Change::Ready(String::new(), PlacementState::Serving),
    Change::Serving(PlacementState::Serving),
    Change::Moved,
    Change::Restore(PlacementState::Serving),
    Change::Release,
    Change::TakeGone,
    Change::TakeToClear,
    Change::TakeLeftover,
    Change::Forget,
];

/// Invariant 1: whatever an older mover sends, in whichever state it finds the home, nothing comes of it.
#[test]
fn inv1_an_older_owner_changes_nothing() {
    for change in &CHANGES {
        for state in HomeState::ALL {
            for at in [3, 4] {
                for id in [Some("this"), Some("another"), None] {
                    let found = row(state, at, id, 8);
                    let refused = after(change, &who(7), Some(&found));
                    assert!(
                        matches!(refused, Err(Refusal::NotOwner(_))),
                        "{change:?} of {found:?}: {refused:?}"
                    );
                }
            }
        }
    }
}

/// The same number under another move's name is another mover.
#[test]
fn inv1_the_number_alone_is_not_enough() {
    for change in &CHANGES {
        let found = row(HomeState::Serving, 3, Some("another"), 7);
        let refused = after(change, &who(7), Some(&found));
        assert!(
            matches!(refused, Err(Refusal::NotOwner(_))),
            "{change:?}: {refused:?}"
        );
    }
}

#[test]
fn a_takeover_matches_every_state_and_lifts_what_a_mover_set() {
    for state in HomeState::ALL {
        let found = row(state, 3, Some("before"), 6);
        let taken = after(&Change::TakeOverSource(None), &who(7), Some(&found));
        let taken = taken.unwrap().unwrap();
        assert_eq!((taken.state, taken.owner), (state, 7));
        assert_eq!(taken.move_id.as_deref(), Some("this"));
    }
    for state in [HomeState::Fenced, HomeState::Handing] {
        let found = row(state, 3, Some("this"), 6);
        let lift = Change::TakeOverSource(Some(PlacementState::Frozen));
        assert_eq!(state_after(&lift, 7, &found), Ok(HomeState::Frozen));
    }
    // An order to freeze that has reached the home already, and not yet the catalog, stays.
    let lift = Change::TakeOverSource(Some(PlacementState::Serving));
    let found = row(HomeState::Frozen, 3, None, 0);
    assert_eq!(state_after(&lift, 7, &found), Ok(HomeState::Frozen));
    // What is handed over goes only forward.
    let found = row(HomeState::Moved, 3, Some("this"), 6);
    assert!(matches!(
        state_after(&lift, 7, &found),
        Err(Refusal::State(_))
    ));
}

#[test]
fn the_way_of_the_source_and_back() {
    let mut home = row(HomeState::Offline, 3, Some("this"), 7);
    for (change, state) in [
        (Change::Fence, HomeState::Fenced),
        (Change::Fence, HomeState::Fenced),
        (Change::Handing, HomeState::Handing),
        (Change::Handing, HomeState::Handing),
        (Change::Moved, HomeState::Moved),
        (Change::Moved, HomeState::Moved),
    ] {
        home = after(&change, &who(7), Some(&home)).unwrap().unwrap();
        assert_eq!(home.state, state);
    }
    let mark = home.mark.unwrap();
    assert_eq!((mark.pod, mark.epoch), (pod(2), epoch(4)));
    // Without a fence nothing is handed over, and not at another epoch.
    for found in [
        row(HomeState::Serving, 3, Some("this"), 7),
        row(HomeState::Fenced, 5, Some("this"), 7),
    ] {
        assert!(matches!(
            state_after(&Change::Handing, 7, &found),
            Err(Refusal::State(_))
        ));
    }
    let aborted = row(HomeState::Handing, 3, Some("this"), 6);
    let restored = after(
        &Change::Restore(PlacementState::Offline),
        &who(7),
        Some(&aborted),
    );
    let restored = restored.unwrap().unwrap();
    assert_eq!(
        (restored.state, restored.move_id.clone()),
        (HomeState::Offline, None)
    );
    // Once more changes nothing.
    let again = after(
        &Change::Restore(PlacementState::Offline),
        &who(7),
        Some(&restored),
    );
    assert_eq!(again.unwrap().unwrap().move_id, None);
}

#[test]
fn the_way_of_the_target_keeps_an_older_mark_until_it_serves() {
    let old = HomeRow {
        mark: Some(Mark {
            pod: pod(1),
            epoch: epoch(3),
        }),
        ready_gtid: Some("old".to_owned()),
        ..row(HomeState::Moved, 2, None, 5)
    };
    let home = after(&Change::Incoming, &who(7), Some(&old))
        .unwrap()
        .unwrap();
    assert_eq!((home.state, home.epoch), (HomeState::Incoming, epoch(4)));
    assert_eq!((home.mark, home.ready_gtid.clone()), (old.mark, None));
    let ready = Change::Ready("set".to_owned(), PlacementState::Serving);
    let home = after(&ready, &who(7), Some(&home)).unwrap().unwrap();
    assert_eq!(
        (home.state, home.ready_gtid.as_deref()),
        (HomeState::Ready, Some("set"))
    );
    // A lifted hand-over goes back.
    let back = after(&Change::Incoming, &who(7), Some(&home))
        .unwrap()
        .unwrap();
    assert_eq!((back.state, back.mark), (HomeState::Incoming, old.mark));
    let serving = Change::Serving(PlacementState::Serving);
    let home = after(&serving, &who(7), Some(&home)).unwrap().unwrap();
    assert_eq!((home.state, home.mark), (HomeState::Serving, None));
    let released = after(&Change::Release, &who(7), Some(&home))
        .unwrap()
        .unwrap();
    assert_eq!((released.move_id, released.owner), (None, 7));
}

/// A frozen shop takes no write at its target for a moment, and an offline one no read.
#[test]
fn a_shop_that_does_not_sell_arrives_as_it_is() {
    for (placement, state) in [
        (PlacementState::Frozen, HomeState::Frozen),
        (PlacementState::Offline, HomeState::Offline),
    ] {
        let incoming = row(HomeState::Incoming, 4, Some("this"), 7);
        let ready = Change::Ready("set".to_owned(), placement);
        let home = after(&ready, &who(7), Some(&incoming)).unwrap().unwrap();
        assert_eq!(
            (home.state, home.ready_gtid.as_deref()),
            (state, Some("set"))
        );
        assert_eq!(
            state_after(&Change::Serving(placement), 7, &home),
            Ok(state)
        );
        // Before the catalog's step it can go back, or be taken away.
        assert_eq!(
            state_after(&Change::Incoming, 7, &home),
            Ok(HomeState::Incoming)
        );
        assert_eq!(
            state_after(&Change::TakeLeftover, 8, &home),
            Ok(HomeState::Incoming)
        );
    }
}

/// Invariant 1: nobody becomes the target of a move where it sells.
#[test]
fn inv1_a_home_that_serves_is_never_made_incoming() {
    for state in HomeState::ALL {
        let found = row(state, 9, None, 0);
        let free = state == HomeState::Moved;
        assert_eq!(
            after(&Change::Incoming, &who(7), Some(&found)).is_ok(),
            free,
            "{state:?}"
        );
    }
    assert!(after(&Change::Incoming, &who(7), None).is_ok());
    // Nor does it serve without having been ready.
    let found = row(HomeState::Incoming, 4, Some("this"), 7);
    let serving = Change::Serving(PlacementState::Serving);
    assert!(matches!(
        state_after(&serving, 7, &found),
        Err(Refusal::State(_))
    ));
}

#[test]
fn what_an_abort_leaves_keeps_the_number_and_names_the_owner() {
    let filled = row(HomeState::Ready, 4, Some("this"), 7);
    let taken = after(&Change::TakeLeftover, &who(8), Some(&filled))
        .unwrap()
        .unwrap();
    assert_eq!(taken.state, HomeState::Incoming);
    for found in [Some(&taken), None] {
        let left = after(&Change::Forget, &who(8), found).unwrap().unwrap();
        assert_eq!(
            (left.state, left.move_id.clone(), left.owner),
            (HomeState::Moved, None, 8)
        );
        assert_eq!(left.mark.map(|mark| mark.pod), Some(pod(1)));
        // Done twice it is the same; whoever of the move wakes up late is refused.
        assert_eq!(
            after(&Change::Forget, &who(8), Some(&left)),
            Ok(Some(left.clone()))
        );
        let late = after(&Change::Incoming, &who(7), Some(&left));
        assert!(matches!(late, Err(Refusal::NotOwner(_))));
    }
    assert_eq!(after(&Change::TakeLeftover, &who(8), None), Ok(None));
}

/// A source that was gone comes back as it was lost, or as its backup was made: whatever it says, it is handed over.
#[test]
fn inv1_a_source_that_comes_back_is_marked_whatever_it_says() {
    let mark = Some(Mark {
        pod: pod(2),
        epoch: epoch(4),
    });
    for state in HomeState::ALL {
        for at in [1, 3] {
            for id in [Some("this"), Some("before"), None] {
                let found = HomeRow {
                    mark: Some(Mark {
                        pod: pod(3),
                        epoch: epoch(2),
                    }),
                    ..row(state, at, id, 6)
                };
                let taken = after(&Change::TakeGone, &who(7), Some(&found));
                let taken = taken.unwrap().unwrap();
                assert_eq!((taken.state, taken.owner), (HomeState::Moved, 7));
                assert_eq!((taken.epoch, taken.mark), (epoch(at), mark));
                // Done twice it is the same.
                let again = after(&Change::TakeGone, &who(7), Some(&taken));
                assert_eq!(again, Ok(Some(taken)));
            }
        }
        let found = row(state, 4, Some("this"), 6);
        let refused = after(&Change::TakeGone, &who(7), Some(&found));
        assert!(matches!(refused, Err(Refusal::State(_))), "{state:?}");
    }
    let made = after(&Change::TakeGone, &who(7), None).unwrap().unwrap();
    assert_eq!(
        (made.state, made.epoch, made.mark),
        (HomeState::Moved, epoch(3), mark)
    );
}

/// Rows that no move made are cleared where nobody may serve by the home: what it says stays, and its number grows.
#[test]
fn inv1_a_home_by_which_somebody_may_serve_is_never_taken_to_clear_its_rows() {
    for state in HomeState::ALL {
        for id in [Some("this"), Some("before"), None] {
            let found = row(state, 3, id, 6);
            let taken = after(&Change::TakeToClear, &who(7), Some(&found));
            if state != HomeState::Moved {
                assert!(matches!(taken, Err(Refusal::State(_))), "{taken:?}");
                continue;
            }
            let mine = HomeRow {
                move_id: Some("this".to_owned()),
                owner: 7,
                ..found
            };
            assert_eq!(taken, Ok(Some(mine.clone())));
            let again = after(&Change::TakeToClear, &who(7), Some(&mine));
            assert_eq!(again, Ok(Some(mine.clone())));
            let released = after(&Change::Release, &who(7), Some(&mine));
            assert_eq!(
                released,
                Ok(Some(HomeRow {
                    move_id: None,
                    ..mine
                }))
            );
        }
    }
    let made = after(&Change::TakeToClear, &who(7), None).unwrap().unwrap();
    let there = Some(Mark {
        pod: pod(2),
        epoch: epoch(4),
    });
    assert_eq!((made.state, made.mark), (HomeState::Moved, there));
    assert_eq!((made.epoch, made.owner), (epoch(3), 7));
}
