//! The program of a mover, one side effect at a time; between any two others may act, and whoever takes over remembers
//! nothing.
//!
//! Mirrors `infra/src/mover/driver.rs` and `driver/*`, `infra/src/mover/run/{task,leftover}.rs`. A mover goes by what it
//! remembers: the catalog and the pods refuse what is out of date. `verifying` compares nothing here: what the model shows holds
//! without comparisons, which are there to find faults of servers and of our own code. Inside a fence one may fail at any time.

use shared::home::HomeState;
use shared::moves::MoveState;

use crate::catalog;
use crate::pods::{self, Refused};
use crate::safeguards::{Rules, Safeguards};
use crate::state::{
    Change, Data, Look, Mover, OnRows, Op, Pc, Rows, Set, State, Step, Why, changed,
};

// How a run ends before its work is done.
mod ends;
// Its transactions of the catalog.
mod steps;
pub(crate) use ends::{abort_at_pod, cut, fail, late, lose_answer, miss};

/// The row of `stock`, and the rows of idempotency: the two chunks of the copy.
const CHUNKS: [Rows; 2] = [0b001, 0b110];

/// Takes a move (or what an aborted one left) over: a new run, with the next owner number.
pub(crate) fn take(g: &Safeguards, s: &mut State, m: usize, number: u8, why: Why) {
    let owner = catalog::take(g, s, number);
    let mv = catalog::mv(s, number);
    let switched = catalog::switched(s, number);
    let fails = mv.state.may_be_fenced() && !switched && g.must_fail;
    // What an earlier run has noted is graver than what ended the last one.
    let why = if fails && mv.must_fail {
        Why::Fail
    } else {
        why
    };
    let pc = match mv.state {
        MoveState::Aborting => Pc::Home(Change::Restore),
        MoveState::Done => Pc::Home(Change::TakeLeftover),
        MoveState::Aborted if g.leftover_taken => Pc::Home(Change::TakeLeftover),
        MoveState::Aborted if s.pod(mv.target).home.is_some() => Pc::Rows(OnRows::Leftover),
        MoveState::Aborted => Pc::Home(Change::Forget),
        MoveState::Cutover if switched => Pc::Home(Change::TakeTarget),
        _ if fails && why == Why::Fail && !mv.must_fail => Pc::Step(Step::NoteMustFail),
        MoveState::Preparing | MoveState::Fenced | MoveState::Cutover => {
            Pc::Home(Change::TakeSource)
        }
        MoveState::Retiring if mv.source_gone => Pc::Home(Change::TakeTarget),
        _ if g.take_over => Pc::Home(Change::TakeSource),
        MoveState::Copying
        | MoveState::CatchingUp
        | MoveState::Verifying
        | MoveState::Retiring
        | MoveState::Observing
        | MoveState::Paused
        | MoveState::Failed => work(g, s, number),
    };
    let mover = Mover {
        mv: number,
        owner,
        pc,
        at: mv.state,
        why,
        terms: terms(s, number),
        lift: !switched,
        frozen: s.catalog.frozen,
        ..Mover::IDLE
    };
    s.movers[m] = if pc == Pc::Idle { Mover::IDLE } else { mover };
}

fn terms(s: &State, number: u8) -> (u8, u8) {
    let mv = catalog::mv(s, number);
    (s.pod(mv.source).term, s.pod(mv.target).term)
}

/// What a state asks for, once both homes are this run's and the target's is `incoming`.
fn work(g: &Safeguards, s: &State, number: u8) -> Pc {
    let mv = catalog::mv(s, number);
    match mv.state {
        MoveState::Preparing if mv.back || !g.cleaned => Pc::Step(Step::Prepared),
        MoveState::Preparing => Pc::Rows(OnRows::Clean),
        MoveState::Copying if mv.from.is_none() => Pc::Look(Look::From),
        MoveState::Copying => Pc::Look(Look::Chunk),
        MoveState::CatchingUp => Pc::Look(Look::Feed),
        MoveState::Verifying => Pc::Step(Step::Verified),
        MoveState::Fenced => Pc::Home(Change::Fence),
        MoveState::Cutover => Pc::Home(Change::Handing),
        MoveState::Retiring => Pc::Rows(OnRows::Delete),
        MoveState::Observing
        | MoveState::Done
        | MoveState::Paused
        | MoveState::Failed
        | MoveState::Aborting
        | MoveState::Aborted => Pc::Idle,
    }
}

/// The set up to which all changes are at the target.
fn applied(s: &State, number: u8) -> Set {
    let mv = catalog::mv(s, number);
    let (of, _, applied) = s.pod(mv.target).marks;
    let noted = applied.filter(|_| of == number);
    noted.or(mv.from).unwrap_or(0)
}

/// The pod that a step is about; `None` for a step of the catalog.
pub(crate) fn pod_of(s: &State, mover: &Mover) -> Option<u8> {
    let (source, target, left) = match mover.pc {
        Pc::Idle | Pc::Step(_) => return None,
        Pc::Look(_) | Pc::Rows(_) | Pc::Home(_) => {
            let mv = catalog::mv(s, mover.mv);
            // A closed move's leftover is where it came from, an aborted one's where it went.
            let left = if mover.at == MoveState::Done {
                mv.source
            } else {
                mv.target
            };
            (mv.source, mv.target, left)
        }
    };
    Some(match mover.pc {
        Pc::Idle | Pc::Step(_) => return None,
        Pc::Look(_) => source,
        Pc::Rows(OnRows::Delete) => source,
        Pc::Rows(OnRows::Clean | OnRows::Copy | OnRows::Apply) => target,
        Pc::Rows(OnRows::Leftover) => left,
        Pc::Home(change) => match change {
            Change::TakeSource
            | Change::Fence
            | Change::Handing
            | Change::Moved
            | Change::ReleaseSource
            | Change::Restore => source,
            Change::TakeTarget
            | Change::Incoming
            | Change::Ready
            | Change::Serving
            | Change::ReleaseTarget
            | Change::Forget => target,
            Change::TakeLeftover => left,
        },
    })
}

/// A mover's next step. `None`: it has to wait.
pub(crate) fn go(r: &Rules, s: &mut State, m: usize) -> Option<()> {
    let g = &r.on;
    let mover = s.movers[m];
    if let Pc::Step(what) = mover.pc {
        return steps::step(g, s, m, what);
    }
    let pod = pod_of(s, &mover)?;
    let (now, mv) = (terms(s, mover.mv), catalog::mv(s, mover.mv));
    let known = if pod == mv.source {
        mover.terms.0 == now.0
    } else {
        mover.terms.1 == now.1
    };
    if !known {
        return ends::primary_changed(r, s, m);
    }
    let op = op(&mover, pod);
    match mover.pc {
        Pc::Idle | Pc::Step(_) => None,
        Pc::Look(what) => look(g, s, m, what),
        Pc::Rows(what) if mover.open => {
            pods::commit(s, what, &op);
            s.movers[m].open = false;
            let next = match what {
                OnRows::Clean => Pc::Step(Step::Prepared),
                OnRows::Copy => Pc::Look(Look::Chunk),
                OnRows::Apply => followed(s, m).unwrap_or(Pc::Look(Look::Feed)),
                OnRows::Delete => Pc::Home(Change::ReleaseTarget),
                OnRows::Leftover if mover.at == MoveState::Done => Pc::Home(Change::ReleaseSource),
                OnRows::Leftover => Pc::Home(Change::Forget),
            };
            s.movers[m].next(next);
            Some(())
        }
        Pc::Rows(what) => {
            match pods::begin(g, s, what, &op) {
                Ok(true) => s.movers[m].open = true,
                Ok(false) => return None,
                Err(Refused) => s.movers[m] = Mover::IDLE,
            }
            Some(())
        }
        Pc::Home(_) if !pods::lock_free(g, s, pod) => None,
        Pc::Home(what) => {
            match pods::change(g, s, what, &op) {
                Ok(()) => changed_home(g, s, m, what),
                Err(Refused) => s.movers[m] = Mover::IDLE,
            }
            Some(())
        }
    }
}

fn op(mover: &Mover, pod: u8) -> Op {
    Op {
        pod,
        mv: mover.mv,
        owner: mover.owner,
        rows: mover.rows,
        data: mover.data,
        upto: mover.seen,
        lift: mover.lift,
        frozen: mover.frozen,
    }
}

impl Mover {
    /// Goes on; what it has read is used up.
    fn next(&mut self, pc: Pc) {
        self.pc = pc;
        self.data = Data::default();
        self.rows = 0;
        self.seen = 0;
    }
}

/// Whether the target has all that the source had after the fence.
fn followed(s: &State, m: usize) -> Option<Pc> {
    let mover = &s.movers[m];
    let fence = mover.fence?;
    (fence & !applied(s, mover.mv) == 0).then_some(Pc::Step(Step::Followed))
}

/// Steps that only look at the source.
fn look(g: &Safeguards, s: &mut State, m: usize, what: Look) -> Option<()> {
    let mover = s.movers[m];
    let mv = catalog::mv(s, mover.mv);
    let source = *s.pod(mv.source);
    match what {
        Look::From => {
            s.movers[m].next(Pc::Look(Look::Chunk));
            if catalog::note_from(s, mover.mv, mover.owner, source.executed).is_none() {
                s.movers[m] = Mover::IDLE;
            }
        }
        Look::Chunk => {
            let (of, chunks, _) = s.pod(mv.target).marks;
            let done = if of == mover.mv { chunks } else { 0 };
            let left = CHUNKS.into_iter().find(|rows| done & rows == 0);
            s.movers[m].next(left.map_or(Pc::Step(Step::Copied), |_| Pc::Rows(OnRows::Copy)));
            s.movers[m].rows = left.unwrap_or(0);
            s.movers[m].data = left.map_or(Data::default(), |_| source.data);
        }
        Look::Feed => {
            let seen = source.logged;
            let rows = changed(seen & !applied(s, mover.mv));
            if rows != 0 {
                s.movers[m].pc = Pc::Look(Look::Changed);
                s.movers[m].seen = seen;
                s.movers[m].rows = rows;
            } else if mover.fence.is_some() {
                let next = followed(s, m)?;
                s.movers[m].next(next);
            } else {
                s.movers[m].next(Pc::Step(Step::CaughtUp));
            }
        }
        Look::Changed => {
            if g.wait_executed && mover.seen & !source.executed != 0 {
                return None;
            }
            s.movers[m].data = source.data;
            s.movers[m].pc = Pc::Rows(OnRows::Apply);
        }
        Look::Still => {
            let ours = source.home.is_some_and(|row| {
                let mine = (row.mv, row.owner) == (mover.mv, mover.owner);
                mine && (row.state == HomeState::Handing || !g.handing)
            });
            s.movers[m].next(Pc::Step(Step::Switch));
            if !ours {
                s.movers[m] = Mover::IDLE;
            }
        }
    }
    Some(())
}

/// What follows a change of a home.
fn changed_home(g: &Safeguards, s: &mut State, m: usize, what: Change) {
    let Mover {
        mv, at, lift, why, ..
    } = s.movers[m];
    let it = catalog::mv(s, mv);
    let standing = at.may_be_fenced();
    if what == Change::TakeSource && standing && lift && why == Why::Fail && !g.must_fail {
        catalog::lifted_without_a_note(s, mv);
    }
    let next = match what {
        Change::TakeSource if standing && !lift => Pc::Home(Change::Moved),
        Change::TakeSource if standing => Pc::Step(Step::Stopped),
        Change::TakeSource => Pc::Home(Change::TakeTarget),
        Change::TakeTarget if standing => Pc::Home(Change::Serving),
        Change::TakeTarget if at == MoveState::Retiring && it.source_gone => {
            Pc::Home(Change::ReleaseTarget)
        }
        Change::TakeTarget if at == MoveState::Retiring => work(g, s, mv),
        Change::TakeTarget => Pc::Home(Change::Incoming),
        Change::Incoming => work(g, s, mv),
        Change::Fence => {
            let executed = s.pod(it.source).executed;
            s.movers[m].fence = Some(executed);
            if g.tail_to_fence {
                followed(s, m).unwrap_or(Pc::Look(Look::Feed))
            } else {
                Pc::Step(Step::Followed)
            }
        }
        Change::Handing if g.ready_first => Pc::Home(Change::Ready),
        Change::Handing => Pc::Look(Look::Still),
        Change::Ready => {
            let executed = s.pod(it.target).executed;
            catalog::note_ready(s, mv, executed);
            if g.ready_first {
                Pc::Look(Look::Still)
            } else {
                Pc::Home(Change::Serving)
            }
        }
        Change::Serving if it.source_gone => Pc::Step(Step::HandedOver),
        // A run that was taken up after the catalog's step has not been at the source yet.
        Change::Serving if lift => Pc::Home(Change::Moved),
        Change::Serving => Pc::Home(Change::TakeSource),
        Change::Moved => {
            if let Some(row) = s.pod_mut(it.target).home.as_mut()
                && !g.owner_kept
            {
                pods::release(g, row);
            }
            Pc::Step(Step::HandedOver)
        }
        Change::ReleaseTarget if it.source_gone => Pc::Step(Step::Retired),
        Change::ReleaseTarget => Pc::Home(Change::ReleaseSource),
        Change::ReleaseSource if at == MoveState::Done => Pc::Step(Step::LeftoverDone),
        Change::ReleaseSource => Pc::Step(Step::Retired),
        Change::Restore => Pc::Step(Step::Undone),
        Change::TakeLeftover if at == MoveState::Done => Pc::Rows(OnRows::Leftover),
        Change::TakeLeftover => match s.pod(it.target).home.map(|row| row.state) {
            Some(HomeState::Incoming) => Pc::Rows(OnRows::Leftover),
            // Undone before it made the home `incoming`; what the shop left there is nobody's else any more.
            Some(HomeState::Moved) if it.back => Pc::Rows(OnRows::Leftover),
            // It never was this move's: nothing was copied.
            _ => Pc::Home(Change::Forget),
        },
        Change::Forget => Pc::Step(Step::LeftoverDone),
    };
    s.movers[m].next(next);
}

/// In `catching_up` the rest may be few enough at any time.
pub(crate) fn go_on(s: &mut State, m: usize) -> Option<()> {
    let mover = &mut s.movers[m];
    if mover.pc != Pc::Look(Look::Feed) || mover.fence.is_some() {
        return None;
    }
    mover.next(Pc::Step(Step::CaughtUp));
    Some(())
}
