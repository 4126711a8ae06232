//! How a run ends before its work is done. Where a fence stands, the next run lifts it before the catalog is told why; it is
//! the same process's, so it remembers the reason. Another's, which takes the move over in between, has it from the catalog
//! where the move is to fail (`must_fail`), and takes every other fence for one that missed. (The product notes it in the run
//! that compared, and again before the lift where the catalog did not take that; here it is noted then only, which allows more.)
//!
//! Mirrors `fault` of `infra/src/mover/run/task.rs` and `infra/src/mover/driver/recover.rs`.

use shared::home::HomeState;
use shared::moves::{MoveEvent, MoveState};

use super::{op, pod_of, take};
use crate::catalog;
use crate::pods;
use crate::safeguards::{Rules, Safeguards};
use crate::state::{Change, Mover, Pc, State, Step, Why};

/// Whether it is where it can turn back: not while it takes over or stops already, nor inside a transaction.
fn turns(mover: &Mover) -> bool {
    let early = [
        Pc::Idle,
        Pc::Home(Change::TakeSource),
        Pc::Home(Change::TakeTarget),
        Pc::Step(Step::Stopped),
        Pc::Step(Step::NoteMustFail),
    ];
    !early.contains(&mover.pc) && !mover.open
}

/// Ends the run for a reason.
fn stop(r: &Rules, s: &mut State, m: usize, why: Why) -> Option<()> {
    let mover = s.movers[m];
    if !mover.at.may_be_fenced() {
        s.movers[m].why = why;
        s.movers[m].next(Pc::Step(Step::Stopped));
        return Some(());
    }
    if s.catalog.owner >= r.within.owners {
        return None;
    }
    let row = catalog::mv(s, mover.mv);
    if row.owner != mover.owner {
        s.movers[m] = Mover::IDLE;
        return Some(());
    }
    take(&r.on, s, m, mover.mv, why);
    if !r.on.lift_first && row.state.may_be_fenced() && s.movers[m].lift {
        s.movers[m].next(Pc::Step(Step::Stopped));
    }
    Some(())
}

/// The fence did not close in time: the server says that the lock was not to be had, or the rest takes too long.
pub(crate) fn miss(r: &Rules, s: &mut State, m: usize) -> Option<()> {
    let mover = s.movers[m];
    if !mover.at.may_be_fenced() || !turns(&mover) || catalog::switched(s, mover.mv) {
        return None;
    }
    stop(r, s, m, Why::Missed)
}

/// It cannot go on as it is.
pub(crate) fn fail(r: &Rules, s: &mut State, m: usize) -> Option<()> {
    let mover = s.movers[m];
    let may = mover.at.after(MoveEvent::Fail).is_some();
    if !may || !turns(&mover) || catalog::switched(s, mover.mv) {
        return None;
    }
    stop(r, s, m, Why::Fail)
}

/// The next connection finds another primary.
pub(crate) fn primary_changed(r: &Rules, s: &mut State, m: usize) -> Option<()> {
    let mover = s.movers[m];
    let before = matches!(
        mover.at,
        MoveState::Copying | MoveState::CatchingUp | MoveState::Verifying
    );
    if before && turns(&mover) || mover.at.may_be_fenced() && !catalog::switched(s, mover.mv) {
        return stop(r, s, m, Why::Primary);
    }
    s.movers[m] = Mover::IDLE;
    Some(())
}

/// A mover's connection is cut, or it is killed, inside a transaction on rows: the server rolls it back.
pub(crate) fn cut(s: &mut State, m: usize) -> Option<()> {
    if !s.movers[m].open {
        return None;
    }
    s.movers[m] = Mover::IDLE;
    Some(())
}

/// A mover does not learn what became of its fence and gives it up under its old number, which it must not.
pub(crate) fn lose_answer(s: &mut State, m: usize) -> Option<()> {
    let mover = s.movers[m];
    if mover.pc != Pc::Home(Change::Fence) {
        return None;
    }
    s.late = Some(op(&mover, pod_of(s, &mover)?));
    s.movers[m].why = Why::Missed;
    s.movers[m].next(Pc::Home(Change::TakeSource));
    Some(())
}

/// Then it happens after all.
pub(crate) fn late(g: &Safeguards, s: &mut State) -> Option<()> {
    let op = s.late.take()?;
    if !pods::lock_free(g, s, op.pod) {
        return None;
    }
    // Nobody is there to hear that it was refused.
    let _ = pods::change(g, s, Change::Fence, &op);
    Some(())
}

/// Without `aborting` first: a control server that does not drive the move opens the source, whatever its home says, and
/// tells the catalog afterwards.
pub(crate) fn abort_at_pod(s: &mut State, number: u8) -> Option<()> {
    let mv = catalog::mv(s, number);
    if s.spent.aborts > 0 {
        return catalog::abort(s, number);
    }
    s.spent.aborts += 1;
    mv.state.after(MoveEvent::Abort)?;
    let home = s.pod_mut(mv.source).home.as_mut()?;
    home.state = HomeState::Serving;
    home.mv = 0;
    Some(())
}
