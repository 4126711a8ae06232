//! The protocol of a move as a model: everything that movers, pods, the catalog, edges and clients may do, in every order, within
//! stated bounds. `whole.rs` shows what holds; `without.rs` takes each rule away and shows what breaks.
//!
//! Read `state.rs`, `pods.rs`, `catalog.rs`, `mover.rs`, `clients.rs`, then `properties.rs`. The states of a move and what a home
//! allows are the product's own: `shared::moves`, `shared::home`. With `PODHOST_MODEL_TRACE=1` counterexamples are printed.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a model that cannot go on is a failed test"
)]

// What is known in a state, and a state as bytes.
mod packed;
mod state;
// What each part does.
mod catalog;
mod clients;
mod mover;
mod pods;
mod protocol;
// What must hold.
mod properties;
mod way_on;
// What is searched, and the tests.
mod safeguards;
mod whole;
mod without;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Instant;

use parking_lot::Mutex;
use stateright::{Checker, HasDiscoveries, Model, Property};

use protocol::{Action, Protocol};
use safeguards::{Bounds, Rules, Safeguards};
use state::State;

fn protocol(on: Safeguards, within: Bounds, examples: Vec<Property<Protocol>>) -> Protocol {
    Protocol {
        rules: Rules { on, within },
        examples,
        with_a_way_on: Mutex::default(),
    }
}

/// Past the test harness, which keeps what a test that passes prints.
fn say(text: &str) {
    std::io::stderr().write_all(text.as_bytes()).unwrap();
}

/// Something that the search must reach, so that it is known not to be empty.
fn reached(name: &'static str, condition: fn(&Protocol, &State) -> bool) -> Property<Protocol> {
    Property::sometimes(name, condition)
}

/// Searches everything within the bounds: all properties hold, and each example is reached.
fn holds(name: &str, within: Bounds, examples: Vec<Property<Protocol>>) {
    let wanted: BTreeSet<&str> = examples.iter().map(|it| it.name).collect();
    let since = Instant::now();
    let checker = protocol(Safeguards::ALL, within, examples)
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let found = checker.discoveries();
    say(&format!(
        "{name}: all {} states ({} steps, at most {} in a row) in {:.1} s, within {within:?}\n",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        since.elapsed().as_secs_f64(),
    ));
    for (name, path) in &found {
        if !wanted.contains(name) {
            panic!("broken: {name}\n{}", told(path.clone().into_vec()));
        }
    }
    let found: BTreeSet<&str> = found.keys().copied().collect();
    assert_eq!(found, wanted, "examples that the search reached");
}

/// Takes one rule away: the search must find that this property breaks.
fn breaks(off: fn(&mut Safeguards), within: Bounds, property: &'static str) {
    let mut on = Safeguards::ALL;
    off(&mut on);
    let since = Instant::now();
    let checker = protocol(on, within, Vec::new())
        .checker()
        .finish_when(HasDiscoveries::AnyOf([property].into()))
        .spawn_bfs()
        .join();
    let Some(path) = checker.discovery(property) else {
        panic!("no counterexample to: {property}");
    };
    let path = path.into_vec();
    say(&format!(
        "broken by {} steps, after {} states in {:.1} s: {property}\n",
        path.len(),
        checker.unique_state_count(),
        since.elapsed().as_secs_f64(),
    ));
    if std::env::var_os("PODHOST_MODEL_TRACE").is_some() {
        say(&told(path));
    }
}

/// A history, one step and the state after it on two lines.
fn told(path: Vec<(State, Option<Action>)>) -> String {
    let mut text = String::new();
    for (s, action) in path {
        for (name, pod) in ["A", "B", "C"].iter().zip(&s.pods) {
            if let Some(home) = pod.home {
                let (state, epoch, mv, owner) = (home.state, home.epoch, home.mv, home.owner);
                let data = (pod.data.stock, pod.data.keys);
                let _ = write!(
                    text,
                    " {name}: {state:?} {epoch} move {mv} owner {owner} {data:?};"
                );
            }
        }
        for mv in s.catalog.moves.iter().flatten() {
            let _ = write!(text, " {:?} owner {};", mv.state, mv.owner);
        }
        for mover in s.movers.iter().filter(|m| m.mv != 0) {
            let open = if mover.open { " begun" } else { "" };
            let _ = write!(text, " mover {}: {:?}{open};", mover.owner, mover.pc);
        }
        let (pod, epoch) = catalog::placement(&s);
        let _ = writeln!(text, " pod {pod} at {epoch}, acked {:b}", s.clients.acked);
        if let Some(action) = action {
            let _ = writeln!(text, "{action:?}");
        }
    }
    text
}
