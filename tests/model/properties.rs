//! What must hold in every state that can be reached.

use shared::home::{Access, HomeState, Verdict};
use shared::moves::MoveState;
use stateright::Property;

use crate::protocol::Protocol;
use crate::state::{Data, State, Tx};
use crate::way_on::way_on;
use crate::{catalog, clients, pods};

pub(crate) const ONE_WRITER: &str = "at any epoch one pod may write";
pub(crate) const EPOCHS: &str = "epochs grow, and none has two owners";
pub(crate) const NOT_LOST: &str = "no acknowledged write is missing at the owner";
pub(crate) const NOT_DOUBLED: &str = "no write is applied twice";
pub(crate) const STRONG: &str = "a strong read sees every write acknowledged before it began";
pub(crate) const SESSION: &str = "a session never goes back";
pub(crate) const ARRIVES: &str = "no move arrives whose comparison inside the fence failed";
pub(crate) const OWNER: &str = "the pod that the catalog names can answer";
pub(crate) const OPEN: &str = "where nobody drives a move, the shop sells";
pub(crate) const FROZEN: &str = "a frozen shop takes no writes";
pub(crate) const CLEAN: &str = "no rows are left where nobody takes them away";
pub(crate) const WAY_ON: &str = "every stop has a way on";

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
            !p.rules.within.reader
                || clients::answers(&p.rules.on, s)
                    .all(|(_, _, data)| s.clients.session.2 & !data.keys == 0)
        }),
        Property::always(ARRIVES, |_, s: &State| {
            let mut all = 1..=catalog::latest(s);
            all.all(|number| !(catalog::mv(s, number).must_fail && catalog::switched(s, number)))
        }),
        Property::always(OWNER, |_, s| owner_answers(s)),
        Property::always(OPEN, |_, s| driven(s) || s.catalog.ordered || as_placed(s)),
        Property::always(FROZEN, |_, s: &State| {
            !s.catalog.frozen || s.catalog.ordered || quiet(s)
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
        .any(|pod| pod.home.is_some_and(|home| home.epoch < pod.ready.1));
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

/// The owner's home does what the catalog says of the shop.
pub(crate) fn as_placed(s: &State) -> bool {
    let wanted = if s.catalog.frozen {
        Verdict::Frozen
    } else {
        Verdict::Run
    };
    pods::says(s, catalog::placement(s), Access::Write) == wanted
}

/// No write runs, and none could begin.
fn quiet(s: &State) -> bool {
    let none = s.clients.txs.iter().flatten().all(|tx| *tx == Tx::None);
    let known = clients::known_placements(s);
    none && !known.iter().any(|&to| pods::runs(s, to, Access::Write))
}

/// A pod that is not the owner has rows only for a move that is under way, or that will delete them.
fn clean(s: &State, pod: u8) -> bool {
    s.pod(pod).data == Data::default()
        || catalog::placement(s).0 == pod
        || s.catalog.moves.iter().flatten().any(|mv| {
            let leaves = mv.source == pod && mv.state.is_open();
            leaves || mv.leftover == Some(pod) || (mv.target == pod && mv.state.is_open())
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
