//! A mover's transactions of the catalog, and where it goes on after each.
//!
//! Mirrors `Driver::step` of `infra/src/mover/driver.rs` and what follows its calls.

use shared::moves::{MoveEvent, MoveState};

use super::{take, work};
use crate::catalog;
use crate::safeguards::Safeguards;
use crate::state::{Change, Mover, Pc, State, Step, Why};

/// A transaction of the catalog, and what follows. Refused, it ends the run.
pub(super) fn step(g: &Safeguards, s: &mut State, m: usize, what: Step) -> Option<()> {
    let Mover {
        mv, owner, at, why, ..
    } = s.movers[m];
    let event = match what {
        Step::Prepared if catalog::mv(s, mv).back => MoveEvent::PreparedBack,
        Step::Prepared => MoveEvent::Prepared,
        Step::Copied => MoveEvent::Copied,
        Step::CaughtUp => MoveEvent::CaughtUp,
        Step::Verified => MoveEvent::Verified,
        Step::Followed => MoveEvent::Followed,
        Step::Stopped => match why {
            Why::Missed => MoveEvent::FenceMissed,
            Why::Primary => MoveEvent::PrimaryChanged,
            Why::Fail => MoveEvent::Fail,
        },
        Step::HandedOver => MoveEvent::HandedOver,
        Step::Retired => MoveEvent::Retired,
        Step::Undone => MoveEvent::Undone,
        Step::NoteMustFail => {
            match catalog::note_must_fail(s, mv, owner, at) {
                Some(()) => s.movers[m].next(Pc::Home(Change::TakeSource)),
                None => s.movers[m] = Mover::IDLE,
            }
            return Some(());
        }
        Step::Switch => {
            match catalog::switch(s, mv, owner) {
                Some(()) if g.ready_first => s.movers[m].next(Pc::Home(Change::Serving)),
                Some(()) => s.movers[m].next(Pc::Home(Change::Ready)),
                None => s.movers[m] = Mover::IDLE,
            }
            return Some(());
        }
        Step::LeftoverDone => {
            catalog::leftover_done(s, mv, owner);
            s.movers[m] = Mover::IDLE;
            return Some(());
        }
    };
    if g.orders_wait && s.catalog.ordered && event == MoveEvent::Verified {
        return None;
    }
    if g.orders_wait && s.catalog.ordered && event == MoveEvent::Undone {
        // The order may have changed the placement: the source's home is set from it again.
        s.movers[m].frozen = s.catalog.frozen;
        s.movers[m].next(Pc::Home(Change::Restore));
        return Some(());
    }
    if catalog::step(s, mv, owner, at, event).is_none() {
        s.movers[m] = Mover::IDLE;
        return Some(());
    }
    stepped(g, s, m, at);
    Some(())
}

fn stepped(g: &Safeguards, s: &mut State, m: usize, from: MoveState) {
    let number = s.movers[m].mv;
    let mv = catalog::mv(s, number);
    if mv.state == MoveState::Aborted {
        // What is left at the target is a task of its own.
        return take(g, s, m, number, Why::Missed);
    }
    let mover = &mut s.movers[m];
    mover.at = mv.state;
    mover.why = Why::Missed;
    mover.frozen = s.catalog.frozen;
    let lifted = from.may_be_fenced();
    let back = mv.state == MoveState::CatchingUp || mv.state == MoveState::Failed;
    let next = if lifted && back && !g.lift_first {
        Pc::Home(Change::TakeSource)
    } else if lifted && mv.state == MoveState::CatchingUp && g.take_over {
        Pc::Home(Change::TakeTarget)
    } else {
        work(g, s, number)
    };
    if next == Pc::Idle {
        s.movers[m] = Mover::IDLE;
    } else {
        s.movers[m].fence = None;
        s.movers[m].next(next);
    }
}
