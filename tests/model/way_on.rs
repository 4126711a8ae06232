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
/// server lead to a shop that sells, a closed or observed move, and another move after it. They do so too where the target is
/// gone for good before it owns the shop, and where the source is after that (the latter by `source_gone`, an
/// operator's order).
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
    let on = heals(p, s, Lost::Nothing)
        && (!abortable(&s) || heals(p, s, Lost::Target))
        && (!handed_over(&s) || heals(p, s, Lost::Source));
    if on {
        p.with_a_way_on.lock().insert(key);
    }
    on
}

/// Which pod of the latest move is gone for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lost {
    Nothing,
    /// The operator aborts.
    Target,
    /// The operator says so.
    Source,
}

fn abortable(s: &State) -> bool {
    let number = catalog::latest(s);
    let state = || catalog::mv(s, number).state;
    number > 0 && !catalog::switched(s, number) && state().after(MoveEvent::Abort).is_some()
}

/// Whether the latest move, still open, has made its target the owner.
fn handed_over(s: &State) -> bool {
    let number = catalog::latest(s);
    number > 0 && catalog::switched(s, number) && catalog::mv(s, number).state.is_open()
}

fn heals(p: &Protocol, mut s: State, lost: Lost) -> bool {
    let r = &Rules {
        on: p.rules.on,
        within: Bounds {
            owners: u8::MAX,
            ..p.rules.within
        },
    };
    let g = &r.on;
    let last = catalog::latest(&s);
    let gone = match lost {
        Lost::Nothing => None,
        Lost::Target => Some(catalog::mv(&s, last).target),
        Lost::Source => Some(catalog::mv(&s, last).source),
    };
    if lost == Lost::Target && catalog::abort(&mut s, last).is_none() {
        return false;
    }
    for _ in 0..STEPS_MAX {
        let _ = catalog::order_at_pod(g, &mut s);
        let sells = pods::runs(&s, catalog::placement(&s), Access::Write);
        if s.movers[0] == Mover::IDLE {
            if lost == Lost::Source && catalog::source_gone(&mut s, last).is_some() {
                continue;
            }
            let Some(next) = unattended(&s, gone.is_none()) else {
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
        } else if gone.is_some() && gone == mover::pod_of(&s, &s.movers[0]) {
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
        stopped(s, number) || catalog::wants_mover(&mv) && (leftovers || mv.state.is_open())
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
