//! What must hold in every state that can be reached.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use shared::home::{Access, HomeState};
use shared::moves::{MoveEvent, MoveState};
use stateright::Property;

use crate::protocol::Protocol;
use crate::state::{Data, Mover, State, Tx};
use crate::{catalog, clients, mover, pods};

pub(crate) const ONE_WRITER: &str = "at any epoch one pod may write";
pub(crate) const EPOCHS: &str = "epochs grow, and none has two owners";
pub(crate) const NOT_LOST: &str = "no acknowledged write is missing at the owner";
pub(crate) const NOT_DOUBLED: &str = "no write is applied twice";
pub(crate) const STRONG: &str = "a strong read sees every write acknowledged before it began";
pub(crate) const SESSION: &str = "a session never goes back";
pub(crate) const OWNER: &str = "the pod that the catalog names can answer";
pub(crate) const OPEN: &str = "where nobody drives a move, the shop sells";
pub(crate) const CLEAN: &str = "no rows are left where nobody takes them away";
pub(crate) const WAY_ON: &str = "every stop has a way on";

/// Steps within which a shop must sell again: more than any way on takes, few enough to end a search that turns in a circle.
const STEPS_MAX: usize = 200;

pub(crate) fn all() -> Vec<Property<Protocol>> {
    vec![
        Property::always(ONE_WRITER, |_, s| one_writer(s)),
        Property::always(EPOCHS, |_, s| epochs(s)),
        Property::always(NOT_LOST, |_, s: &State| {
            s.clients.acked & !owner_keys(s) == 0
        }),
        Property::always(NOT_DOUBLED, |_, s: &State| {
            let data = s.pod(catalog::placement(s).0).data;
            u32::from(data.stock) == data.keys.count_ones()
        }),
        Property::always(STRONG, |_, s| strong(s)),
        Property::always(SESSION, |p: &Protocol, s: &State| {
            !p.bounds.reader
                || clients::answers(&p.safeguards, s)
                    .all(|(_, _, data)| s.clients.session.2 & !data.keys == 0)
        }),
        Property::always(OWNER, |_, s| owner_answers(s)),
        Property::always(OPEN, |_, s| {
            driven(s) || pods::runs(s, catalog::placement(s), Access::Write)
        }),
        Property::always(CLEAN, |_, s| {
            clients::pods_in_use().all(|pod| clean(s, pod))
        }),
        Property::always(WAY_ON, way_on),
    ]
}

fn owner_keys(s: &State) -> u8 {
    s.pod(catalog::placement(s).0).data.keys
}

/// By the table of homes for whoever comes, and by each transaction that has begun.
fn one_writer(s: &State) -> bool {
    let may = |pod, epoch| pods::runs(s, (pod, epoch), Access::Write);
    let highest = catalog::latest(s) + 1;
    let one = (1..=highest).all(|epoch| {
        clients::pods_in_use()
            .filter(|&pod| may(pod, epoch))
            .count()
            <= 1
    });
    let begun = |pod: u8, tx| match tx {
        Tx::None => true,
        Tx::Open(epoch) | Tx::Committing(epoch, _) => may(pod, epoch),
    };
    let txs = |pod: u8| s.clients.txs.iter().map(move |txs| txs[usize::from(pod)]);
    one && clients::pods_in_use().all(|pod| txs(pod).all(|tx| begun(pod, tx)))
}

fn epochs(s: &State) -> bool {
    let placed = clients::known_placements(s);
    let grow = placed.windows(2).all(|pair| pair[0].1 < pair[1].1);
    let home = |pod: usize| s.pods[pod].home.map(|home| home.epoch);
    let two = (0..s.pods.len())
        .any(|one| (0..one).any(|other| home(one).is_some() && home(one) == home(other)));
    let down = s
        .pods
        .iter()
        .any(|pod| pod.home.is_some_and(|home| home.epoch < pod.ready));
    grow && !two && !down
}

/// A strong read is one look at home and rows on the primary, so it is enough to ask in each state.
fn strong(s: &State) -> bool {
    clients::known_placements(s).iter().all(|&to| {
        !pods::runs(s, to, Access::Read) || s.clients.acked & !s.pod(to.0).data.keys == 0
    })
}

fn owner_answers(s: &State) -> bool {
    let (pod, epoch) = catalog::placement(s);
    s.pod(pod).home.is_some_and(|home| {
        home.epoch == epoch && !matches!(home.state, HomeState::Incoming | HomeState::Moved)
    })
}

/// A pod that is not the owner has rows only for a move that is under way, or that will delete them.
fn clean(s: &State, pod: u8) -> bool {
    s.pod(pod).data == Data::default()
        || catalog::placement(s).0 == pod
        || s.catalog.moves.iter().flatten().any(|mv| {
            let leaves = mv.source == pod && mv.state.is_open();
            leaves || (mv.target == pod && (mv.leftover || mv.state.is_open()))
        })
}

fn driven(s: &State) -> bool {
    s.catalog.moves.iter().flatten().any(|mv| match mv.state {
        MoveState::Preparing
        | MoveState::Copying
        | MoveState::CatchingUp
        | MoveState::Verifying
        | MoveState::Retiring
        | MoveState::Observing
        | MoveState::Paused
        | MoveState::Failed
        | MoveState::Done
        | MoveState::Aborted => false,
        MoveState::Fenced | MoveState::Cutover | MoveState::Aborting => true,
    })
}

/// From here, with all control servers dead and every client gone, the operator's ordinary commands and one fresh control
/// server lead to a shop that sells, a closed or observed move, and another move after it. Where an abort is allowed it
/// does so too, with the target gone for good.
fn way_on(p: &Protocol, s: &State) -> bool {
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
    let g = &p.safeguards;
    let lost = abort.then(|| catalog::mv(&s, catalog::latest(&s)).target);
    let last = catalog::latest(&s);
    if abort && catalog::abort(&mut s, last).is_none() {
        return false;
    }
    for _ in 0..STEPS_MAX {
        let number = catalog::latest(&s);
        let sells = pods::runs(&s, catalog::placement(&s), Access::Write);
        if s.movers[0] == Mover::IDLE {
            let Some(next) = unattended(&s, lost.is_none()) else {
                if !sells {
                    return false;
                }
                if !another(p, &mut s) {
                    return true;
                }
                continue;
            };
            match catalog::mv(&s, next).state {
                MoveState::Paused | MoveState::Failed if next == number => {
                    if catalog::resume(&mut s, number).is_none() {
                        return false;
                    }
                }
                _ => mover::take(g, &mut s, 0, next),
            }
        } else if lost.is_some() && lost == mover::pod_of(&s, &s.movers[0]) {
            // What is left there waits, and keeps nothing else waiting.
            if catalog::mv(&s, s.movers[0].mv).state.is_open() {
                return false;
            }
            s.movers[0] = Mover::IDLE;
        } else if mover::go(g, &mut s, 0).is_none() {
            return false;
        }
    }
    false
}

/// A move that an operator or a control server would go on with; the leftovers of one wait where their pod is gone.
fn unattended(s: &State, leftovers: bool) -> Option<u8> {
    (1..=catalog::latest(s)).find(|&number| {
        let mv = catalog::mv(s, number);
        match mv.state {
            MoveState::Paused | MoveState::Failed => true,
            MoveState::Aborted => leftovers && mv.leftover,
            _ => catalog::wants_mover(&mv),
        }
    })
}

/// The shop must be able to move again.
fn another(p: &Protocol, s: &mut State) -> bool {
    clients::pods_in_use().any(|pod| catalog::begin(&p.safeguards, s, pod).is_some())
}
