//! With all its rules, the protocol holds: searches that together cover what can go wrong, each with its bound.

use shared::moves::MoveState;

use crate::safeguards::Bounds;
use crate::state::{Move, Mover, State, Why};
use crate::{catalog, holds, reached};

fn is(s: &State, number: usize, state: MoveState) -> bool {
    s.catalog.moves[number - 1].is_some_and(|mv| mv.state == state)
}

#[test]
fn inv1_inv2_inv3_inv11_one_move_while_it_sells() {
    holds(
        "one move, two writes whose commits are slow",
        Bounds {
            writes: 2,
            slow_commits: true,
            ..Bounds::QUIET
        },
        vec![
            reached("the move is done", |_, s| is(s, 1, MoveState::Done)),
            reached("A and B sold", |_, s| {
                s.pods[0].executed != 0 && s.pods[1].executed != 0
            }),
            reached("a write was tried again at B", |_, s| {
                s.clients.tries[0] == 2 && s.pods[1].data.keys & 1 != 0
            }),
        ],
    );
}

#[test]
fn inv1_inv2_inv3_inv11_takeovers_with_a_zombie_in_each_state() {
    holds(
        "takeovers, and fences that miss",
        Bounds {
            owners: 4,
            misses: 1,
            tries: 1,
            ..Bounds::QUIET
        },
        vec![
            reached("the move is done", |_, s| is(s, 1, MoveState::Done)),
            reached(
                "B sold while a former mover was inside a transaction",
                |_, s| {
                    s.pods[1].executed != 0
                        && s.movers.iter().any(|m| m.open && m.owner < s.catalog.owner)
                },
            ),
        ],
    );
}

#[test]
fn inv1_inv2_inv3_inv11_aborts_then_a_move_elsewhere() {
    holds(
        "an abort in each state, then a move to a third pod",
        Bounds {
            aborts: 1,
            owners: 4,
            tries: 1,
            finish: false,
            after_abort: Some(2),
            ..Bounds::QUIET
        },
        vec![
            reached("aborted, and C sold", |_, s| {
                is(s, 1, MoveState::Aborted) && s.pods[2].executed != 0
            }),
            reached("B was ready, and C is the owner", |_, s| {
                s.pods[1].ready.1 == 2 && catalog::placement(s) == (2, 3)
            }),
        ],
    );
}

#[test]
fn inv1_inv2_inv3_inv11_aborts_then_the_same_move_again() {
    holds(
        "an abort in each state, then the same move again",
        Bounds {
            aborts: 1,
            owners: 4,
            tries: 1,
            finish: false,
            after_abort: Some(1),
            ..Bounds::QUIET
        },
        vec![reached("B sold at the third epoch", |_, s| {
            s.pods[1].executed != 0 && catalog::placement(s) == (1, 3)
        })],
    );
}

#[test]
fn inv1_inv2_inv3_inv11_there_and_back() {
    holds(
        "there and back, and a move back that is undone",
        Bounds {
            aborts: 1,
            owners: 4,
            tries: 1,
            back: true,
            finish: false,
            ..Bounds::QUIET
        },
        vec![
            reached("A has what B sold", |_, s| {
                catalog::placement(s) == (0, 3)
                    && s.pods[1].executed != 0
                    && s.pods[0].data.keys != 0
            }),
            reached("the move back is observed", |_, s| {
                is(s, 2, MoveState::Observing)
            }),
            reached("undone, and nothing of it is at A", |_, s| {
                let over = |mv: Move| mv.state == MoveState::Aborted && mv.leftover.is_none();
                s.catalog.moves[1].is_some_and(over) && s.clients.acked != 0
            }),
            reached("undone before A's home was touched", |_, s| {
                is(s, 2, MoveState::Aborted) && s.pods[0].home.is_some_and(|home| home.epoch == 1)
            }),
        ],
    );
}

#[test]
fn inv1_inv2_inv3_inv11_back_after_the_copy_was_deleted() {
    holds(
        "there, the old copy deleted, and back by a copy",
        Bounds {
            owners: 4,
            tries: 1,
            after_done: Some(0),
            ..Bounds::QUIET
        },
        vec![reached("A sold again", |_, s| {
            catalog::placement(s) == (0, 3) && s.pods[0].executed != 0
        })],
    );
}

#[test]
fn inv11_a_session_by_stale_edges_caches_and_replicas() {
    holds(
        "a session there and back",
        Bounds {
            reader: true,
            back: true,
            finish: false,
            tries: 1,
            ..Bounds::QUIET
        },
        vec![
            reached("read at B", |_, s| s.clients.session.0 == 2),
            reached("read at A again", |_, s| s.clients.session.0 == 3),
            reached("a process goes by a home that is gone", |_, s| {
                s.pods[0].cached.is_some() && catalog::placement(s).0 == 1
            }),
        ],
    );
}

#[test]
fn inv11_a_session_while_movers_take_over_and_copies_are_deleted() {
    holds(
        "a session, a takeover, retiring",
        Bounds {
            reader: true,
            tries: 1,
            ..Bounds::QUIET
        },
        vec![reached("B was ready twice", |_, s| s.pods[1].ready.0 == 2)],
    );
}

#[test]
fn inv1_inv2_inv3_inv11_a_primary_changes() {
    holds(
        "a primary changes, under commits that are there afterwards or not",
        Bounds {
            changes: 1,
            owners: 3,
            slow_commits: true,
            ..Bounds::QUIET
        },
        vec![
            reached("the move is done", |_, s| {
                is(s, 1, MoveState::Done) && s.spent.changes == 1
            }),
            reached("what was never acknowledged is gone", |_, s| {
                s.clients.spent & !(s.pods[0].logged | s.pods[1].logged) != 0
            }),
        ],
    );
}

#[test]
fn inv1_inv2_inv3_inv11_stopped_and_begun_anew() {
    holds(
        "paused, failed, resumed",
        Bounds {
            fails: 1,
            pauses: 1,
            owners: 4,
            tries: 1,
            finish: false,
            ..Bounds::QUIET
        },
        vec![
            reached("failed", |_, s| is(s, 1, MoveState::Failed)),
            reached("one more mover knows that it must fail", |_, s| {
                let knows = |m: &&Mover| m.mv == 1 && m.why == Why::Fail;
                s.catalog.moves[0].is_some_and(|mv| mv.must_fail)
                    && s.movers.iter().filter(knows).count() == 2
            }),
            reached("paused", |_, s| is(s, 1, MoveState::Paused)),
            reached("over, after both", |_, s| {
                let both = s.spent.fails == 1 && s.spent.pauses == 1;
                both && is(s, 1, MoveState::Observing)
            }),
        ],
    );
}

#[test]
fn inv1_inv2_inv3_inv11_frozen_in_the_middle() {
    holds(
        "frozen and opened again in each state",
        Bounds {
            orders: 2,
            aborts: 1,
            owners: 3,
            tries: 1,
            finish: false,
            ..Bounds::QUIET
        },
        vec![
            reached("arrived frozen", |_, s| {
                is(s, 1, MoveState::Observing) && s.catalog.frozen
            }),
            reached("aborted while frozen", |_, s| {
                is(s, 1, MoveState::Aborted) && s.catalog.frozen
            }),
        ],
    );
}

#[test]
fn inv1_inv2_inv3_inv11_the_source_is_gone_for_good_and_comes_back() {
    holds(
        "the source gone for good, and back all the same",
        Bounds {
            source_gone: true,
            owners: 4,
            tries: 1,
            after_done: Some(0),
            ..Bounds::QUIET
        },
        vec![
            reached("handed over without the source", |_, s| {
                is(s, 1, MoveState::Observing)
                    && s.catalog.moves[0].is_some_and(|mv| mv.source_gone)
            }),
            reached("A sold again", |_, s| {
                catalog::placement(s) == (0, 3) && s.pods[0].executed != 0
            }),
        ],
    );
}
