//! The catalog's transactions: each compares owner and state and changes all or nothing.
//!
//! Mirrors `infra/src/catalog/moves.rs`. How states follow each other is not mirrored but called:
//! [`MoveState::after`](shared::moves::MoveState::after).

use shared::home::HomeState;
use shared::moves::{MoveEvent, MoveState, Order, ResumePoint};

use crate::pods;
use crate::safeguards::Safeguards;
use crate::state::{At, Move, State};

/// The current placement.
pub(crate) fn placement(s: &State) -> At {
    s.catalog.placed[usize::from(s.catalog.placements) - 1]
}

/// A move by its number, from 1.
pub(crate) fn mv(s: &State, number: u8) -> Move {
    s.catalog.moves[usize::from(number) - 1].expect("movers know only moves that are there")
}

fn mv_mut(s: &mut State, number: u8) -> &mut Move {
    let slot = &mut s.catalog.moves[usize::from(number) - 1];
    slot.as_mut().expect("moves are never removed")
}

/// The shop's latest move.
pub(crate) fn latest(s: &State) -> u8 {
    s.catalog.moves.iter().flatten().fold(0, |n, _| n + 1)
}

/// Whether the target of this move is the owner already: nothing but forward.
pub(crate) fn switched(s: &State, number: u8) -> bool {
    let mv = mv(s, number);
    placement(s).1 >= mv.epoch
}

/// Whether a mover has something to do for this move without an operator's word.
pub(crate) fn wants_mover(mv: &Move) -> bool {
    match mv.state {
        MoveState::Preparing
        | MoveState::Copying
        | MoveState::CatchingUp
        | MoveState::Verifying
        | MoveState::Fenced
        | MoveState::Cutover
        | MoveState::Retiring
        | MoveState::Aborting => true,
        MoveState::Aborted | MoveState::Done => mv.leftover.is_some(),
        MoveState::Observing | MoveState::Paused | MoveState::Failed => false,
    }
}

/// A new move; the one that is observed ends with it if it goes back.
pub(crate) fn begin(g: &Safeguards, s: &mut State, target: u8) -> Option<()> {
    let (source, epoch) = placement(s);
    let number = latest(s) + 1;
    let slot = usize::from(number) - 1;
    if slot >= s.catalog.moves.len() || target == source {
        return None;
    }
    let mut from = None;
    let mut back = false;
    for old in s.catalog.moves.iter_mut().flatten() {
        if old.leftover == Some(target) {
            return None;
        }
        if old.state == MoveState::Observing && old.source == target && !old.source_gone {
            old.state = old.state.after(MoveEvent::TakenBack)?;
            from = Some(old.ready);
            back = true;
        } else if old.state.is_open() {
            return None;
        }
    }
    let moves = s.catalog.moves.iter().flatten();
    let highest = moves.map(|mv| mv.epoch).max().unwrap_or(0).max(epoch);
    s.catalog.moves[slot] = Some(Move {
        state: MoveState::Preparing,
        source,
        target,
        source_epoch: epoch,
        epoch: 1 + if g.reserved_epochs { highest } else { epoch },
        owner: 0,
        from,
        ready: 0,
        back,
        resume: None,
        leftover: None,
        source_gone: false,
        must_fail: false,
    });
    Some(())
}

/// A takeover: the next owner number.
pub(crate) fn take(g: &Safeguards, s: &mut State, number: u8) -> u8 {
    s.catalog.owner += 1;
    let given = s.catalog.owner;
    let mv = mv_mut(s, number);
    mv.owner = if g.owner_kept { given } else { mv.owner + 1 };
    mv.owner
}

/// A mover's step: compares owner and state. `None` is refused.
pub(crate) fn step(
    s: &mut State,
    number: u8,
    owner: u8,
    at: MoveState,
    event: MoveEvent,
) -> Option<()> {
    let refused_once_switched = matches!(
        event,
        MoveEvent::Fail | MoveEvent::PrimaryChanged | MoveEvent::FenceMissed
    );
    if refused_once_switched && switched(s, number) {
        return None;
    }
    let mv = mv_mut(s, number);
    if mv.owner != owner || mv.state != at {
        return None;
    }
    mv.state = at.after(event)?;
    mv.must_fail &= event != MoveEvent::Fail;
    if event == MoveEvent::Undone {
        mv.leftover = Some(mv.target);
    }
    if event == MoveEvent::Retired && mv.source_gone {
        mv.leftover = Some(mv.source);
    }
    if event == MoveEvent::Prepared {
        // What an earlier try noted is about rows that are gone.
        mv.from = None;
    }
    Some(())
}

/// Remembers that a comparison inside the fence failed.
pub(crate) fn note_must_fail(s: &mut State, number: u8, owner: u8, at: MoveState) -> Option<()> {
    let mv = mv_mut(s, number);
    if mv.owner != owner || mv.state != at {
        return None;
    }
    mv.must_fail = true;
    Some(())
}

/// Without such a note: the fence is lifted for a comparison that failed, and nobody else is told. The property alone goes by
/// it.
pub(crate) fn lifted_without_a_note(s: &mut State, number: u8) {
    mv_mut(s, number).must_fail = true;
}

/// Remembers the source's executed set, once.
pub(crate) fn note_from(s: &mut State, number: u8, owner: u8, set: u8) -> Option<()> {
    let mv = mv_mut(s, number);
    if mv.owner != owner || mv.state != MoveState::Copying {
        return None;
    }
    mv.from.get_or_insert(set);
    Some(())
}

/// Remembers the set that the target had executed when it became ready.
pub(crate) fn note_ready(s: &mut State, number: u8, set: u8) {
    mv_mut(s, number).ready = set;
}

/// The point of no return. (The product refuses it to a move that is to fail too: no mover should come so far with one.)
pub(crate) fn switch(s: &mut State, number: u8, owner: u8) -> Option<()> {
    let now = placement(s);
    let mv = mv(s, number);
    let as_told = now == (mv.source, mv.source_epoch);
    if mv.owner != owner || mv.state != MoveState::Cutover || !as_told {
        return None;
    }
    s.catalog.placed[usize::from(s.catalog.placements)] = (mv.target, mv.epoch);
    s.catalog.placements += 1;
    Some(())
}

/// The rows of an aborted move are gone at its target.
pub(crate) fn leftover_done(s: &mut State, number: u8, owner: u8) {
    let mv = mv_mut(s, number);
    if mv.owner == owner {
        mv.leftover = None;
    }
}

/// An operator's order to abort; refused once the target owns the shop.
pub(crate) fn abort(s: &mut State, number: u8) -> Option<()> {
    if switched(s, number) {
        return None;
    }
    let mv = mv_mut(s, number);
    mv.state = mv.state.after(MoveEvent::Abort)?;
    mv.must_fail = false;
    Some(())
}

/// An operator's order to pause.
pub(crate) fn pause(s: &mut State, number: u8) -> Option<()> {
    let mv = mv_mut(s, number);
    mv.resume = mv.state.resume_point();
    mv.state = mv.state.after(MoveEvent::Pause)?;
    Some(())
}

/// An operator's order to go on: where it was paused, or from the beginning.
pub(crate) fn resume(s: &mut State, number: u8) -> Option<()> {
    let mv = mv_mut(s, number);
    let failed = mv.state == MoveState::Failed;
    let to = if failed {
        ResumePoint::Preparing
    } else {
        mv.resume?
    };
    mv.state = mv.state.after(MoveEvent::Resume(to))?;
    mv.resume = None;
    Some(())
}

/// An operator's word, or the end of the time of observation. A source that was gone at the hand-over has no mark: what is
/// there is a leftover.
pub(crate) fn finish(s: &mut State, number: u8) -> Option<()> {
    if mv(s, number).source_gone {
        return source_gone(s, number);
    }
    let mv = mv_mut(s, number);
    mv.state = mv.state.after(MoveEvent::Finish)?;
    Some(())
}

/// An operator's word that the source is gone for good, once the target owns the shop: the hand-over does without it, and the
/// move ends with what it left there.
pub(crate) fn source_gone(s: &mut State, number: u8) -> Option<()> {
    if !switched(s, number) {
        return None;
    }
    let mv = mv_mut(s, number);
    let next = mv.state.ordered(Order::SourceGone, mv.resume)?;
    let changes = next != mv.state || !mv.source_gone;
    mv.state = next;
    mv.source_gone = true;
    changes.then_some(())
}

/// An operator's order to freeze the shop, or to open it again; refused while a move holds the shop up.
pub(crate) fn order(g: &Safeguards, s: &mut State) -> Option<()> {
    let latest = s.catalog.moves.iter().flatten().last();
    let held = latest.is_some_and(|mv| {
        matches!(
            mv.state,
            MoveState::Fenced | MoveState::Cutover | MoveState::Aborting
        )
    });
    if s.catalog.ordered || (held && g.orders_wait) {
        return None;
    }
    s.catalog.frozen = !s.catalog.frozen;
    s.catalog.ordered = true;
    Some(())
}

/// The order reaches the owner's home (`set_home_state` of `infra/src/pod_store/homes.rs`), which must be the operator's.
pub(crate) fn order_at_pod(g: &Safeguards, s: &mut State) -> Option<()> {
    let (pod, epoch) = placement(s);
    if !s.catalog.ordered || !pods::lock_free(g, s, pod) {
        return None;
    }
    let frozen = s.catalog.frozen;
    let home = s.pod_mut(pod).home.as_mut()?;
    let operators = matches!(home.state, HomeState::Serving | HomeState::Frozen);
    if home.epoch != epoch || !operators {
        return None;
    }
    home.state = if frozen {
        HomeState::Frozen
    } else {
        HomeState::Serving
    };
    s.catalog.ordered = false;
    Some(())
}
