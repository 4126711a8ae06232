//! The protocol of a move, searched whole within stated bounds.

mod catalog;
mod clients;
mod mover;
mod packed;
mod pods;
mod properties;
mod protocol;
mod safeguards;
mod state;
mod way_on;

use std::collections::BTreeSet;
use std::io::Write;
use std::time::Instant;

use parking_lot::Mutex;
use shared::moves::MoveState;
use stateright::{Checker, HasDiscoveries, Model, Property};

use properties as p;
use protocol::Protocol;
use safeguards::{Bounds, Rules, Safeguards};
use state::State;

fn seen(name: &'static str, condition: fn(&Protocol, &State) -> bool) -> Property<Protocol> {
    Property::sometimes(name, condition)
}

fn protocol(safeguards: Safeguards, bounds: Bounds, examples: Vec<Property<Protocol>>) -> Protocol {
    Protocol {
        rules: Rules {
            on: safeguards,
            within: bounds,
        },
        examples,
        with_a_way_on: Mutex::default(),
    }
}

/// Searches everything within the bounds: all properties hold, and each example was reached.
fn holds(name: &str, bounds: Bounds, examples: Vec<Property<Protocol>>) {
    let wanted: BTreeSet<&str> = examples.iter().map(|it| it.name).collect();
    let since = Instant::now();
    let checker = protocol(Safeguards::ALL, bounds, examples)
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let found = checker.discoveries();
    let line = format!(
        "{name}: {} states, {} steps, depth {}, {} ms, within {bounds:?}\n",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        since.elapsed().as_millis(),
    );
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    for (name, path) in &found {
        if !wanted.contains(name) {
            panic!("{name:?} does not hold:\n{}", told(path.clone().into_vec()));
        }
    }
    let reached: BTreeSet<&str> = found.keys().copied().collect();
    assert_eq!(reached, wanted);
}

/// Takes one rule away: the search must find that this property breaks.
fn breaks(off: fn(&mut Safeguards), bounds: Bounds, property: &'static str) {
    let mut safeguards = Safeguards::ALL;
    off(&mut safeguards);
    let since = Instant::now();
    let checker = protocol(safeguards, bounds, Vec::new())
        .checker()
        .finish_when(HasDiscoveries::AnyOf([property].into()))
        .spawn_bfs()
        .join();
    let path = checker.discovery(property);
    let line = format!(
        "{property}: {} states, {} ms, {} steps to the counterexample\n",
        checker.unique_state_count(),
        since.elapsed().as_millis(),
        path.clone().map_or(0, |it| it.into_actions().len()),
    );
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    if std::env::var_os("PODHOST_MODEL_TRACE").is_some()
        && let Some(path) = path.clone()
    {
        std::io::stderr()
            .write_all(told(path.into_vec()).as_bytes())
            .unwrap();
    }
    assert!(path.is_some(), "no counterexample to {property:?}");
}

fn told(path: Vec<(State, Option<protocol::Action>)>) -> String {
    let mut text = String::new();
    for (state, action) in path {
        let home = |at: usize| {
            state.pods[at]
                .home
                .map(|h| (h.state, h.epoch, h.mv, h.owner))
        };
        let moves: Vec<_> = state
            .catalog
            .moves
            .iter()
            .flatten()
            .map(|m| (m.state, m.owner))
            .collect();
        let movers = state.movers.map(|m| (m.mv, m.owner, m.pc, m.open));
        text.push_str(&format!(
            "  A {:?} {:?}; B {:?} {:?}; {:?} {moves:?}; {movers:?}; acked {:b}\n",
            home(0),
            state.pods[0].data,
            home(1),
            state.pods[1].data,
            catalog::placement(&state),
            state.clients.acked,
        ));
        if let Some(action) = action {
            text.push_str(&format!("{action:?}\n"));
        }
    }
    text
}

fn moved(s: &State, number: usize, state: MoveState) -> bool {
    s.catalog.moves[number - 1].is_some_and(|mv| mv.state == state)
}

#[test]
fn inv1_inv2_inv3_inv11_one_move_while_it_sells() {
    holds(
        "one move",
        Bounds {
            writes: 2,
            tries: 2,
            slow_commits: true,
            ..Bounds::QUIET
        },
        vec![
            seen("the move is done", |_, s| moved(s, 1, MoveState::Done)),
            seen("B sold", |_, s| s.pods[1].executed != 0),
        ],
    );
}

#[test]
fn takeovers() {
    holds(
        "takeovers",
        Bounds {
            owners: 3,
            misses: 1,
            ..Bounds::QUIET
        },
        vec![
            seen("the move is done", |_, s| moved(s, 1, MoveState::Done)),
            seen("B sold", |_, s| s.pods[1].executed != 0),
        ],
    );
}

#[test]
fn aborts() {
    holds(
        "aborts",
        Bounds {
            owners: 3,
            aborts: 1,
            after_abort: Some(2),
            ..Bounds::QUIET
        },
        vec![
            seen("the move is done", |_, s| moved(s, 1, MoveState::Done)),
            seen("C sold", |_, s| s.pods[2].executed != 0),
        ],
    );
}

#[test]
fn aborts_again() {
    holds(
        "aborts, and again",
        Bounds {
            owners: 3,
            aborts: 1,
            after_abort: Some(1),
            ..Bounds::QUIET
        },
        vec![seen("B sold at 3", |_, s| {
            s.pods[1].executed != 0 && catalog::placement(s).1 == 3
        })],
    );
}

#[test]
fn back() {
    holds(
        "back",
        Bounds {
            owners: 3,
            writes: 1,
            back: true,
            finish: false,
            ..Bounds::QUIET
        },
        vec![seen("A again", |_, s| {
            catalog::placement(s).1 == 3 && moved(s, 2, MoveState::Observing)
        })],
    );
}

#[test]
fn readers() {
    holds(
        "readers",
        Bounds {
            owners: 2,
            reader: true,
            back: true,
            tries: 1,
            ..Bounds::QUIET
        },
        vec![seen("A again", |_, s| {
            catalog::placement(s).1 == 3 && moved(s, 2, MoveState::Observing)
        })],
    );
}

#[test]
fn primaries() {
    holds(
        "primaries",
        Bounds {
            owners: 2,
            changes: 1,
            slow_commits: true,
            ..Bounds::QUIET
        },
        vec![],
    );
}

#[test]
fn stops() {
    holds(
        "stops",
        Bounds {
            owners: 3,
            fails: 1,
            pauses: 1,
            ..Bounds::QUIET
        },
        vec![],
    );
}

const TAKEOVERS: Bounds = Bounds {
    owners: 3,
    ..Bounds::QUIET
};
const ABORTS: Bounds = Bounds {
    aborts: 1,
    owners: 3,
    ..Bounds::QUIET
};
const FAILS: Bounds = Bounds {
    fails: 1,
    owners: 3,
    ..Bounds::QUIET
};

#[test]
fn inv3_without_the_share_lock_a_write_is_lost() {
    breaks(|g| g.share_lock = false, Bounds::QUIET, p::NOT_LOST);
}

#[test]
fn inv1_without_the_share_lock_a_write_goes_on_that_its_home_forbids() {
    breaks(|g| g.share_lock = false, Bounds::QUIET, p::ONE_WRITER);
}

#[test]
fn inv3_without_the_owner_on_rows_a_write_is_lost() {
    breaks(|g| g.row_owner = false, TAKEOVERS, p::NOT_LOST);
}

#[test]
fn inv3_without_a_takeover_at_the_pods_a_write_is_lost() {
    breaks(|g| g.take_over = false, TAKEOVERS, p::NOT_LOST);
}

#[test]
fn inv3_without_aborting_first_a_write_is_lost() {
    breaks(|g| g.aborting_first = false, ABORTS, p::NOT_LOST);
}

#[test]
fn inv11_without_handing_a_strong_read_misses_a_write() {
    breaks(|g| g.handing = false, Bounds::QUIET, p::STRONG);
}

#[test]
fn without_ready_first_the_catalog_names_a_pod_that_cannot_answer() {
    breaks(|g| g.ready_first = false, Bounds::QUIET, p::OWNER);
}

#[test]
fn inv3_serving_instead_of_ready_loses_what_a_job_wrote() {
    breaks(
        |g| g.ready_is_quiet = false,
        Bounds {
            job: true,
            writes: 2,
            tries: 1,
            ..ABORTS
        },
        p::NOT_LOST,
    );
}

#[test]
fn inv3_without_the_tail_to_the_fence_a_write_is_lost() {
    breaks(|g| g.tail_to_fence = false, Bounds::QUIET, p::NOT_LOST);
}

#[test]
fn inv2_without_reserved_epochs_one_has_two_owners() {
    breaks(
        |g| g.reserved_epochs = false,
        Bounds {
            after_abort: Some(2),
            ..ABORTS
        },
        p::EPOCHS,
    );
}

#[test]
fn inv1_without_reserved_epochs_two_pods_may_write() {
    breaks(
        |g| g.reserved_epochs = false,
        Bounds {
            after_abort: Some(2),
            owners: 4,
            ..ABORTS
        },
        p::ONE_WRITER,
    );
}

#[test]
fn inv3_a_key_read_before_its_transaction_is_executed_is_lost() {
    breaks(
        |g| g.wait_executed = false,
        Bounds {
            slow_commits: true,
            ..Bounds::QUIET
        },
        p::NOT_LOST,
    );
}

#[test]
fn under_the_old_number_after_an_unknown_outcome_the_shop_stays_fenced() {
    breaks(
        |_| {},
        Bounds {
            unknown: 1,
            ..TAKEOVERS
        },
        p::OPEN,
    );
}

#[test]
fn a_fence_lifted_after_the_catalog_step_stays() {
    breaks(|g| g.lift_first = false, FAILS, p::OPEN);
}

#[test]
fn inv3_with_marks_of_an_earlier_try_a_write_is_lost() {
    breaks(|g| g.cleaned = false, FAILS, p::NOT_LOST);
}

#[test]
fn a_cleared_home_lets_a_late_mover_in_and_no_other_after_it() {
    breaks(|g| g.owner_kept = false, ABORTS, p::WAY_ON);
}

#[test]
fn rows_deleted_without_a_takeover_come_back() {
    breaks(|g| g.leftover_taken = false, ABORTS, p::CLEAN);
}

#[test]
fn inv11_a_hand_over_that_does_not_wait_for_caches_takes_a_session_back() {
    breaks(
        |g| g.caches_expire = false,
        Bounds {
            reader: true,
            back: true,
            tries: 1,
            ..Bounds::QUIET
        },
        p::SESSION,
    );
}

#[test]
fn inv11_a_replica_without_the_ready_set_takes_a_session_back() {
    breaks(
        |g| g.ready_gtid = false,
        Bounds {
            reader: true,
            tries: 1,
            ..Bounds::QUIET
        },
        p::SESSION,
    );
}
