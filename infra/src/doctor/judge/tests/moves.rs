//! Faults of moves.

use shared::home::HomeState;
use shared::moves::{MoveId, MoveState};
use time::Duration;

use super::cases::{Case, error, warning};
use super::sound::{Reach as _, a_move, shop_id};
use crate::api::{Move, MoveProgress, Stray};
use crate::doctor::facts::{Facts, Home};

pub(super) const MOVES: &[Case] = &[
    error("move", "milk", "fenced, and no move of it is open", |f| {
        f.home().state = HomeState::Fenced;
    }),
    error("move", "bread", "incoming, and no move fills it", |f| {
        let home = *f.home();
        let incoming = Home {
            state: HomeState::Incoming,
            ..home
        };
        f.contents().homes.insert(shop_id(2), incoming);
    }),
    warning("move", "milk", "which is not open", |f| {
        f.home().move_id = Some(MoveId::random());
    }),
    error("move", "milk", "its writes wait", |f| {
        moving(f, MoveState::Fenced, Duration::seconds(40));
    }),
    error("move", "milk", "is aborting for 90 s", |f| {
        moving(f, MoveState::Aborting, Duration::seconds(90));
    }),
    warning("move", "milk", "failed: no room", |f| {
        moving(f, MoveState::Failed, Duration::ZERO).error = Some("no room".into());
    }),
    warning("move", "milk", "no progress since 11 min", |f| {
        moving(f, MoveState::Copying, Duration::minutes(11));
    }),
    warning("move", "milk", "does not copy: no disk", |f| {
        moving(f, MoveState::Copying, Duration::ZERO).progress = Some(MoveProgress {
            held_back_by: Some("no disk".into()),
            ..MoveProgress::default()
        });
    }),
    warning("move", "milk", "paused since 30 h", |f| {
        moving(f, MoveState::Paused, Duration::hours(30));
    }),
    error("move", "milk", "1 change of its rows at p1", |f| {
        let stray = Stray {
            table: "orders".into(),
            gtid: "a:1".into(),
            at_ms: 1,
        };
        moving(f, MoveState::Observing, Duration::ZERO)
            .strays
            .push(stray);
    }),
    warning(
        "move",
        "milk",
        "left at p2 cannot be deleted: p2 is away",
        |f| {
            let it = left(f, Duration::minutes(20));
            it.error = Some("the operator gave it up".into());
            it.waits = Some("p2 is away".into());
        },
    ),
    warning("move", "milk", "at p2 cannot be deleted: a job", |f| {
        let it = left(f, Duration::minutes(20));
        it.clears = true;
        it.waits = Some("a job writes them".into());
    }),
    warning("move", "milk", "is being deleted for 61 min", |f| {
        left(f, Duration::minutes(61)).clears = true;
    }),
    warning(
        "move",
        "milk",
        "left at p1 cannot be deleted: p1 is read only",
        |f| {
            let since = f.at - Duration::minutes(20);
            let it = moving(f, MoveState::Done, Duration::minutes(20));
            it.source_gone = true;
            it.leftover_since = Some(since);
            it.waits = Some("p1 is read only".into());
        },
    ),
];

/// An aborted one, whose copy is still there after so long.
pub(super) fn left(facts: &mut Facts, for_long: Duration) -> &mut Move {
    let since = facts.at - for_long;
    let it = moving(facts, MoveState::Aborted, for_long);
    it.leftover_since = Some(since);
    it
}

/// A move in that state, unchanged for so long.
fn moving(facts: &mut Facts, state: MoveState, since: Duration) -> &mut Move {
    let mut it = a_move(state);
    (it.changed_at, it.state_since) = (facts.at - since, facts.at - since);
    let moves = &mut facts.catalog().moves;
    moves.push(it);
    moves.last_mut().unwrap()
}
