//! The protocol of a move, searched whole within stated bounds.

mod catalog;
mod clients;
mod mover;
mod pods;
mod properties;
mod protocol;
mod safeguards;
mod state;

use std::collections::BTreeSet;
use std::io::Write;
use std::time::Instant;

use parking_lot::Mutex;
use shared::moves::MoveState;
use stateright::{Checker, HasDiscoveries, Model, Property};

use properties as p;
use protocol::Protocol;
use safeguards::{Bounds, Safeguards};
use state::State;

fn seen(name: &'static str, condition: fn(&Protocol, &State) -> bool) -> Property<Protocol> {
    Property::sometimes(name, condition)
}

fn protocol(safeguards: Safeguards, bounds: Bounds, examples: Vec<Property<Protocol>>) -> Protocol {
    Protocol {
        safeguards,
        bounds,
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
        let movers = state
            .movers
            .map(|m| (m.mv, m.owner, m.pc, m.out.map(|o| o.open)));
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
            crashes: 1,
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
            crashes: 1,
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
            crashes: 1,
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
            crashes: 1,
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
            crashes: 0,
            fails: 1,
            pauses: 1,
            ..Bounds::QUIET
        },
        vec![],
    );
}

#[test]
fn inv3_without_the_share_lock_a_write_is_lost() {
    breaks(|g| g.share_lock = false, Bounds::QUIET, p::NOT_LOST);
}
