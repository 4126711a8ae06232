//! The program of a mover, one side effect at a time; between any two others may act, and whoever takes over remembers
//! nothing.
//!
//! Mirrors `infra/src/mover/driver.rs` and `driver/*`. A mover goes by what it remembers: the catalog and the pods refuse what
//! is out of date. `verifying` compares nothing here: what the model shows holds without comparisons, which are there to
//! find faults of servers and of our own code.

use shared::moves::{MoveEvent, MoveState};

use crate::catalog;
use crate::pods::{self, Refused};
use crate::safeguards::Safeguards;
use crate::state::{Data, Mover, Op, Pc, Rows, Set, State, Why, changed};

/// The row of `stock`, and the rows of idempotency: the two chunks of the copy.
const CHUNKS: [Rows; 2] = [0b001, 0b110];

/// Takes a move (or what an aborted one left) over.
pub(crate) fn take(g: &Safeguards, s: &mut State, m: usize, number: u8) {
    let owner = catalog::take(g, s, number);
    let mv = catalog::mv(s, number);
    let pc = match mv.state {
        MoveState::Aborting => Pc::Undo,
        MoveState::Aborted => leftover(g, s, number),
        _ => Pc::TakeSource,
    };
    s.movers[m] = Mover {
        mv: number,
        owner,
        pc,
        at: mv.state,
        ..Mover::IDLE
    };
    s.movers[m].terms = terms(s, number);
    if !g.take_over && pc == Pc::TakeSource && mv.state != MoveState::Preparing {
        plan(g, s, m);
    }
}

/// How what an aborted move left is taken away.
fn leftover(g: &Safeguards, s: &State, number: u8) -> Pc {
    if g.leftover_taken {
        return Pc::TakeLeftover;
    }
    let home = s.pod(catalog::mv(s, number).target).home;
    home.map_or(Pc::Forget, |_| Pc::DeleteLeftover)
}

fn terms(s: &State, number: u8) -> (u8, u8) {
    let mv = catalog::mv(s, number);
    (s.pod(mv.source).term, s.pod(mv.target).term)
}

/// Reads the catalog and goes on from there.
fn plan(g: &Safeguards, s: &mut State, m: usize) {
    let mover = s.movers[m];
    let mv = catalog::mv(s, mover.mv);
    let pc = match mv.state {
        _ if mv.owner != mover.owner => Pc::Idle,
        MoveState::Preparing => Pc::Incoming,
        MoveState::Copying if mv.from.is_none() => Pc::From,
        MoveState::Copying => Pc::CopyRead,
        MoveState::CatchingUp => Pc::Collect,
        MoveState::Verifying => Pc::Verified,
        MoveState::Fenced => Pc::Fence,
        MoveState::Cutover if catalog::switched(s, mover.mv) => Pc::Serving,
        MoveState::Cutover => Pc::Handing,
        MoveState::Retiring => Pc::Delete,
        MoveState::Aborting => Pc::Undo,
        MoveState::Aborted if mv.leftover => leftover(g, s, mover.mv),
        MoveState::Observing
        | MoveState::Done
        | MoveState::Paused
        | MoveState::Failed
        | MoveState::Aborted => Pc::Idle,
    };
    s.movers[m] = if pc == Pc::Idle {
        Mover::IDLE
    } else {
        Mover {
            mv: mover.mv,
            owner: mover.owner,
            terms: mover.terms,
            pc,
            at: mv.state,
            ..Mover::IDLE
        }
    };
}

/// All changes up to here are at the target.
fn applied(s: &State, number: u8) -> Set {
    let mv = catalog::mv(s, number);
    mv.from.unwrap_or(0) | s.pod(mv.target).applied
}

/// The pod that a step is about; `None` for a step of the catalog.
pub(crate) fn pod_of(s: &State, mover: &Mover) -> Option<u8> {
    let mv = catalog::mv(s, mover.mv);
    match mover.pc {
        Pc::TakeSource
        | Pc::From
        | Pc::CopyRead
        | Pc::Collect
        | Pc::Read
        | Pc::Fence
        | Pc::Lift
        | Pc::Handing
        | Pc::Still
        | Pc::Moved
        | Pc::Delete
        | Pc::Release
        | Pc::Undo => Some(mv.source),
        Pc::TakeTarget
        | Pc::Incoming
        | Pc::Copy
        | Pc::Apply
        | Pc::Ready
        | Pc::Serving
        | Pc::TakeLeftover
        | Pc::DeleteLeftover
        | Pc::Forget => Some(mv.target),
        Pc::Idle
        | Pc::Prepared
        | Pc::Copied
        | Pc::CaughtUp
        | Pc::Verified
        | Pc::Followed
        | Pc::Lifted
        | Pc::Switch
        | Pc::HandedOver
        | Pc::Retired
        | Pc::Undone
        | Pc::LeftoverDone => None,
    }
}

/// A mover's next step: in the catalog, at a pod, or only a look. `None`: it has to wait.
pub(crate) fn go(g: &Safeguards, s: &mut State, m: usize) -> Option<()> {
    let mover = s.movers[m];
    if mover.pc == Pc::Idle {
        return None;
    }
    let Some(pod) = pod_of(s, &mover) else {
        catalog_step(g, s, m);
        return Some(());
    };
    let now = terms(s, mover.mv);
    let source = pod == catalog::mv(s, mover.mv).source;
    let known = if source {
        mover.terms.0 == now.0
    } else {
        mover.terms.1 == now.1
    };
    if !known {
        primary_changed(g, s, m);
        return Some(());
    }
    if matches!(
        mover.pc,
        Pc::From | Pc::CopyRead | Pc::Collect | Pc::Read | Pc::Still
    ) {
        return look(g, s, m, pod);
    }
    let op = op(&mover, pod);
    let done = if mover.open {
        pods::commit(s, &op);
        Ok(())
    } else if pods::on_rows(op.what) {
        match pods::begin(g, s, &op) {
            Ok(true) => {
                s.movers[m].open = true;
                return Some(());
            }
            Ok(false) => return None,
            Err(refused) => Err(refused),
        }
    } else if pods::lock_free(g, s, pod) {
        pods::change(g, s, op)
    } else {
        return None;
    };
    heard(g, s, m, &op, done);
    Some(())
}

fn op(mover: &Mover, pod: u8) -> Op {
    let carries = matches!(mover.pc, Pc::Copy | Pc::Apply);
    let lifts = matches!(
        mover.at,
        MoveState::Preparing | MoveState::Copying | MoveState::CatchingUp | MoveState::Verifying
    );
    Op {
        pod,
        mv: mover.mv,
        owner: mover.owner,
        what: mover.pc,
        rows: if carries { mover.rows } else { 0 },
        data: if carries { mover.data } else { Data::default() },
        upto: if mover.pc == Pc::Apply { mover.seen } else { 0 },
        lift: mover.pc == Pc::TakeSource && lifts,
    }
}

/// Steps that only look at a pod.
fn look(g: &Safeguards, s: &mut State, m: usize, pod: u8) -> Option<()> {
    let mover = s.movers[m];
    let there = *s.pod(pod);
    match mover.pc {
        Pc::From => {
            let noted = catalog::note_from(s, mover.mv, mover.owner, there.executed);
            match noted {
                Some(()) => s.movers[m].pc = Pc::CopyRead,
                None => plan(g, s, m),
            }
        }
        Pc::CopyRead => {
            let target = catalog::mv(s, mover.mv).target;
            let copied = s.pod(target).copied;
            let done = if copied.0 == mover.mv { copied.1 } else { 0 };
            let mover = &mut s.movers[m];
            match CHUNKS.into_iter().find(|rows| done & rows == 0) {
                Some(rows) => {
                    mover.rows = rows;
                    mover.data = there.data;
                    mover.pc = Pc::Copy;
                }
                None => mover.pc = Pc::Copied,
            }
        }
        Pc::Collect => {
            let seen = mover.seen | there.logged;
            let done = applied(s, mover.mv);
            let rows = changed(seen & !done);
            let mover = &mut s.movers[m];
            mover.pc = match mover.fence {
                _ if rows != 0 => Pc::Read,
                None => Pc::CaughtUp,
                Some(fence) if fence & !done == 0 => Pc::Followed,
                Some(_) => return None,
            };
            if rows != 0 {
                mover.seen = seen;
                mover.rows = rows;
            }
        }
        Pc::Read => {
            if g.wait_executed && mover.seen & !there.executed != 0 {
                return None;
            }
            s.movers[m].data = there.data;
            s.movers[m].pc = Pc::Apply;
        }
        _ => {
            let ours = there.home.is_some_and(|row| {
                row.mv == mover.mv
                    && row.owner == mover.owner
                    && (row.state == shared::home::HomeState::Handing || !g.handing)
            });
            if ours {
                s.movers[m].pc = Pc::Switch;
            } else {
                plan(g, s, m);
            }
        }
    }
    Some(())
}

fn catalog_step(g: &Safeguards, s: &mut State, m: usize) {
    let Mover {
        mv, owner, at, why, ..
    } = s.movers[m];
    let back = catalog::mv(s, mv).back;
    let event = match s.movers[m].pc {
        Pc::Prepared if back => MoveEvent::PreparedBack,
        Pc::Prepared => MoveEvent::Prepared,
        Pc::Copied => MoveEvent::Copied,
        Pc::CaughtUp => MoveEvent::CaughtUp,
        Pc::Verified => MoveEvent::Verified,
        Pc::Followed => MoveEvent::Followed,
        Pc::HandedOver => MoveEvent::HandedOver,
        Pc::Retired => MoveEvent::Retired,
        Pc::Undone => MoveEvent::Undone,
        Pc::Lifted => match why {
            Why::Missed => MoveEvent::FenceMissed,
            Why::Primary => MoveEvent::PrimaryChanged,
            Why::Fail => MoveEvent::Fail,
        },
        Pc::Switch => {
            match catalog::switch(s, mv, owner) {
                Some(()) => s.movers[m].pc = after_switch(g),
                None => plan(g, s, m),
            }
            return;
        }
        _ => {
            let _ = catalog::leftover_done(s, mv, owner);
            s.movers[m] = Mover::IDLE;
            return;
        }
    };
    let done = catalog::step(s, mv, owner, at, event).is_some();
    let to_lift = matches!(at, MoveState::Fenced | MoveState::Cutover);
    if done && s.movers[m].pc == Pc::Lifted && to_lift && !g.lift_first {
        s.movers[m].pc = Pc::Lift;
    } else {
        plan(g, s, m);
    }
}

const fn after_switch(g: &Safeguards) -> Pc {
    if g.ready_first {
        Pc::Serving
    } else {
        Pc::Ready
    }
}

/// A mover hears of its transaction.
fn heard(g: &Safeguards, s: &mut State, m: usize, op: &Op, answer: Result<(), Refused>) {
    s.movers[m].open = false;
    if answer.is_err() {
        return refused(g, s, m);
    }
    let mv = op.mv;
    let next = match op.what {
        Pc::TakeSource => Pc::TakeTarget,
        Pc::TakeTarget => return plan(g, s, m),
        Pc::Incoming => Pc::Prepared,
        Pc::Copy => Pc::CopyRead,
        Pc::Apply => match s.movers[m].fence {
            Some(fence) if fence & !applied(s, mv) == 0 => Pc::Followed,
            _ => Pc::Collect,
        },
        Pc::Fence => {
            let fence = s.pod(op.pod).executed;
            s.movers[m].fence = Some(fence);
            if !g.tail_to_fence || fence & !applied(s, mv) == 0 {
                Pc::Followed
            } else {
                Pc::Collect
            }
        }
        Pc::Lift if g.lift_first => Pc::Lifted,
        Pc::Lift => return plan(g, s, m),
        Pc::Handing if g.ready_first => Pc::Ready,
        Pc::Handing => Pc::Still,
        Pc::Ready => {
            let set = s.pod(op.pod).executed;
            catalog::note_ready(s, mv, set);
            if g.ready_first {
                Pc::Still
            } else {
                Pc::Serving
            }
        }
        Pc::Serving => Pc::Moved,
        Pc::Moved => {
            let target = catalog::mv(s, mv).target;
            if let Some(row) = s.pod_mut(target).home.as_mut()
                && !g.owner_kept
            {
                pods::release(g, row);
            }
            Pc::HandedOver
        }
        Pc::Delete => Pc::Release,
        Pc::Release => Pc::Retired,
        Pc::Undo => Pc::Undone,
        // No home, no rows: nothing was ever copied.
        Pc::TakeLeftover if s.pod(op.pod).home.is_none() => Pc::Forget,
        Pc::TakeLeftover => Pc::DeleteLeftover,
        Pc::DeleteLeftover => Pc::Forget,
        _ => Pc::LeftoverDone,
    };
    let mover = &mut s.movers[m];
    mover.pc = next;
    forget(mover);
}

/// What a mover has read and no longer needs.
fn forget(mover: &mut Mover) {
    mover.data = Data::default();
    mover.rows = 0;
    mover.seen = 0;
}

fn refused(g: &Safeguards, s: &mut State, m: usize) {
    let Mover { mv, owner, pc, .. } = s.movers[m];
    if pc == Pc::Handing && catalog::mv(s, mv).owner == owner {
        // A takeover found the fence lifted and the catalog not told: as after a change of the primary.
        lift(g, s, m, Why::Primary);
    } else {
        s.movers[m] = Mover::IDLE;
    }
}

/// Gives the fence up, or the move; where no fence stands, only the catalog is told.
fn lift(g: &Safeguards, s: &mut State, m: usize, why: Why) {
    let mover = &mut s.movers[m];
    let fenced = matches!(mover.at, MoveState::Fenced | MoveState::Cutover);
    mover.why = why;
    mover.pc = if fenced && g.lift_first {
        Pc::Lift
    } else {
        Pc::Lifted
    };
    mover.fence = None;
    forget(mover);
}

fn primary_changed(g: &Safeguards, s: &mut State, m: usize) {
    let mover = s.movers[m];
    s.movers[m].terms = terms(s, mover.mv);
    forget(&mut s.movers[m]);
    if matches!(mover.pc, Pc::TakeSource | Pc::TakeTarget | Pc::Lift) {
        return;
    }
    match mover.at {
        MoveState::Copying | MoveState::CatchingUp | MoveState::Verifying | MoveState::Fenced => {
            lift(g, s, m, Why::Primary);
        }
        MoveState::Cutover if !catalog::switched(s, mover.mv) => lift(g, s, m, Why::Primary),
        _ => plan(g, s, m),
    }
}

/// In `catching_up` the rest may be few enough at any time.
pub(crate) fn go_on(s: &mut State, m: usize) -> Option<()> {
    let mover = &mut s.movers[m];
    if mover.pc != Pc::Collect || mover.fence.is_some() {
        return None;
    }
    mover.pc = Pc::CaughtUp;
    Some(())
}

/// Whether it is where a driver can turn back: not while it takes over or lifts the fence already, nor inside a transaction.
fn turns(mover: &Mover) -> bool {
    let early = [
        Pc::Idle,
        Pc::TakeSource,
        Pc::TakeTarget,
        Pc::Lift,
        Pc::Lifted,
    ];
    !early.contains(&mover.pc) && !mover.open
}

/// The fence did not close in time: the server says that the lock was not to be had, or the rest takes too long.
pub(crate) fn miss(g: &Safeguards, s: &mut State, m: usize) -> Option<()> {
    let mover = s.movers[m];
    if mover.at != MoveState::Fenced || !turns(&mover) {
        return None;
    }
    lift(g, s, m, Why::Missed);
    Some(())
}

/// It cannot go on as it is.
pub(crate) fn fail(g: &Safeguards, s: &mut State, m: usize) -> Option<()> {
    let mover = s.movers[m];
    let may = mover.at.after(MoveEvent::Fail).is_some();
    if !may || !turns(&mover) || catalog::switched(s, mover.mv) {
        return None;
    }
    lift(g, s, m, Why::Fail);
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
pub(crate) fn lose_answer(g: &Safeguards, s: &mut State, m: usize) -> Option<()> {
    let mover = s.movers[m];
    if mover.pc != Pc::Fence {
        return None;
    }
    s.late = Some(op(&mover, pod_of(s, &mover)?));
    lift(g, s, m, Why::Missed);
    Some(())
}

/// Then it happens after all.
pub(crate) fn late(g: &Safeguards, s: &mut State) -> Option<()> {
    let op = s.late.take()?;
    if !pods::lock_free(g, s, op.pod) {
        return None;
    }
    // Nobody is there to hear that it was refused.
    let _ = pods::change(g, s, op);
    Some(())
}

/// Without `aborting` first: a control server that does not drive the move opens the source, whatever its home says, and
/// tells the catalog afterwards.
pub(crate) fn abort_at_pod(s: &mut State, number: u8) -> Option<()> {
    let mv = catalog::mv(s, number);
    let open = s.spent.aborts > 0;
    if open {
        return catalog::abort(s, number);
    }
    s.spent.aborts += 1;
    mv.state.after(MoveEvent::Abort)?;
    let home = s.pod_mut(mv.source).home.as_mut()?;
    home.state = shared::home::HomeState::Serving;
    home.mv = 0;
    Some(())
}
