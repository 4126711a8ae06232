//! Whether every stop has a way on: no dead end that only SQL by hand would lead out of.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use shared::home::Access;
use shared::moves::{MoveEvent, MoveState};

use crate::protocol::Protocol;
use crate::safeguards::{Bounds, Rules};
use crate::state::{Mover, State, Why};
use crate::{catalog, clients, mover, pods};

/// Steps within which a shop must sell again: more than any way on takes, few enough to end a search that turns in a circle.
const STEPS_MAX: usize = 200;

/// From here, with all control servers dead and every client gone, the operator's ordinary commands and one fresh control
/// server lead to a shop that sells, a closed or observed move, and another move after it. Where an abort is allowed it
/// does so too, with the target gone for good.
pub(crate) fn way_on(p: &Protocol, s: &State) -> bool {
    let mut s = *s;
    s.movers = [Mover::IDLE; 2];
    s.late = None;
    s.spent = Default::default();
    for pod in clients::pods_in_use() {
        for w in 0..s.clients.txs.len() {
            let _ = clients::commit(&mut s, w, pod, false);
        }
    }
    s.clients = State::first().clients;
    let key = BuildHasherDefault::<DefaultHasher>::default().hash_one(s);
    if p.with_a_way_on.lock().contains(&key) {
        return true;
    }
    let number = catalog::latest(&s);
    let abortable = number > 0
        && !catalog::switched(&s, number)
        && catalog::mv(&s, number)
            .state
            .after(MoveEvent::Abort)
            .is_some();
    let on = heals(p, s, false) && (!abortable || heals(p, s, true));
    if on {
        p.with_a_way_on.lock().insert(key);
    }
    on
}

fn heals(p: &Protocol, mut s: State, abort: bool) -> bool {
    let r = &Rules {
        on: p.rules.on,
        within: Bounds {
            owners: u8::MAX,
            ..p.rules.within
        },
    };
    let g = &r.on;
    let lost = abort.then(|| catalog::mv(&s, catalog::latest(&s)).target);
    let last = catalog::latest(&s);
    if abort && catalog::abort(&mut s, last).is_none() {
        return false;
    }
    for _ in 0..STEPS_MAX {
        let _ = catalog::order_at_pod(g, &mut s);
        let sells = pods::runs(&s, catalog::placement(&s), Access::Write);
        if s.movers[0] == Mover::IDLE {
            let Some(next) = unattended(&s, lost.is_none()) else {
                if s.catalog.frozen && catalog::order(g, &mut s).is_some() {
                    continue;
                }
                if !sells {
                    return false;
                }
                if !another(p, &mut s) {
                    return true;
                }
                continue;
            };
            if !stopped(&s, next) {
                mover::take(g, &mut s, 0, next, Why::Missed);
            } else if catalog::resume(&mut s, next).is_none() {
                return false;
            }
        } else if lost.is_some() && lost == mover::pod_of(&s, &s.movers[0]) {
            // What is left there waits, and keeps nothing else waiting.
            if catalog::mv(&s, s.movers[0].mv).state.is_open() {
                return false;
            }
            s.movers[0] = Mover::IDLE;
        } else if mover::go(r, &mut s, 0).is_none() {
            return false;
        }
    }
    false
}

/// A move that an operator or a control server would go on with; the leftovers of one wait where their pod is gone.
fn unattended(s: &State, leftovers: bool) -> Option<u8> {
    (1..=catalog::latest(s)).find(|&number| {
        let mv = catalog::mv(s, number);
        let only_leftovers = mv.state == MoveState::Aborted;
        stopped(s, number) || catalog::wants_mover(&mv) && (leftovers || !only_leftovers)
    })
}

/// Whether a move waits for an operator's word to go on.
fn stopped(s: &State, number: u8) -> bool {
    let state = catalog::mv(s, number).state;
    matches!(state, MoveState::Paused | MoveState::Failed)
}

/// The shop must be able to move again.
fn another(p: &Protocol, s: &mut State) -> bool {
    clients::pods_in_use().any(|pod| catalog::begin(&p.rules.on, s, pod).is_some())
}
