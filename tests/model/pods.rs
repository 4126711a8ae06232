//! What a pod's database does with a mover's transaction: the lock on the home, the comparison of the owner, the change.
//!
//! Mirrors `infra/src/mover/home/rules.rs` (which rows each change may replace), `Session::begin_owned` and
//! `infra/src/mover/{copy,apply,retire,leftover}.rs` (what a transaction on rows does). Who may read and write is not
//! mirrored but called: [`shared::home::decide`].

use shared::home::{self, Access, Claim, HomeState, Mark, Verdict};
use shared::{Epoch, PodId};

use crate::catalog;
use crate::mover;
use crate::safeguards::Safeguards;
use crate::state::{At, Change, Data, Home, Move, OnRows, Op, State, Tx};

/// The transaction changed nothing: another mover's home, or one in no state for this.
#[derive(Debug)]
pub(crate) struct Refused;

fn epoch(raw: u8) -> Epoch {
    Epoch::try_from(u64::from(raw)).expect("epochs start at 1")
}

fn pod_id(index: u8) -> PodId {
    PodId::new(u64::from(index) + 1).expect("pods are numbered from 1")
}

/// The product's table: what a pod with this home says to a request.
pub(crate) fn decide(pod: u8, home: Option<&Home>, to: At, token: u8, access: Access) -> Verdict {
    let home = home.map(|row| home::Home {
        epoch: epoch(row.epoch),
        state: row.state,
        mark: row.mark.map(|(pod, at)| Mark {
            pod: pod_id(pod),
            epoch: epoch(at),
        }),
    });
    let claim = Claim {
        pod: pod_id(to.0),
        epoch: epoch(to.1),
        token_epoch: (token > 0).then(|| epoch(token)),
    };
    home::decide(pod_id(pod), home.as_ref(), claim, access)
}

/// What a pod says to a request without a token now.
pub(crate) fn says(s: &State, to: At, access: Access) -> Verdict {
    decide(to.0, s.pod(to.0).home.as_ref(), to, 0, access)
}

/// Whether it runs it.
pub(crate) fn runs(s: &State, to: At, access: Access) -> bool {
    says(s, to, access) == Verdict::Run
}

/// Whether a mover's transaction on rows has begun at a pod.
fn busy(s: &State, pod: u8) -> bool {
    let mut open = s.movers.iter().filter(|m| m.open);
    open.any(|m| mover::pod_of(s, m) == Some(pod))
}

/// Whether the exclusive lock on a pod's home is free: every write and every mover's transaction on rows holds it shared.
pub(crate) fn lock_free(g: &Safeguards, s: &State, pod: u8) -> bool {
    let mut writes = s.clients.txs.iter().map(|txs| txs[usize::from(pod)]);
    let writing = g.share_lock && writes.any(|tx| tx != Tx::None);
    !writing && !busy(s, pod)
}

/// Begins a transaction on rows. `Ok(false)`: two of a move's change the same row of `move_mark`, so the second waits.
pub(crate) fn begin(g: &Safeguards, s: &State, what: OnRows, op: &Op) -> Result<bool, Refused> {
    if busy(s, op.pod) {
        return Ok(false);
    }
    let row = s.pod(op.pod).home;
    if what == OnRows::Leftover && !g.leftover_taken {
        row.filter(|row| row.mv == op.mv).ok_or(Refused)?;
    } else if g.row_owner {
        owned(g, row.as_ref(), op)?;
    }
    Ok(true)
}

/// Commits it.
pub(crate) fn commit(s: &mut State, what: OnRows, op: &Op) {
    let from = catalog::mv(s, op.mv).from;
    let pod = s.pod_mut(op.pod);
    let (of, chunks, applied) = pod.marks;
    let (chunks, applied) = if of == op.mv {
        (chunks, applied)
    } else {
        (0, None)
    };
    match what {
        OnRows::Clean | OnRows::Leftover => {
            pod.data = Data::default();
            pod.marks = (0, 0, None);
        }
        OnRows::Delete => pod.data = Data::default(),
        OnRows::Copy => {
            pod.data.take(op.rows, op.data);
            pod.marks = (op.mv, chunks | op.rows, applied);
        }
        OnRows::Apply => {
            let before = applied.or(from).unwrap_or(0);
            pod.data.take(op.rows, op.data);
            pod.marks = (op.mv, chunks, Some(before | op.upto));
        }
    }
}

fn owned(g: &Safeguards, row: Option<&Home>, op: &Op) -> Result<(), Refused> {
    let row = row.ok_or(Refused)?;
    let known = row.owner == op.owner || (!g.take_over && row.owner < op.owner);
    if known && row.mv == op.mv {
        Ok(())
    } else {
        Err(Refused)
    }
}

/// The newest mover that ever came may take a row.
fn may_take(g: &Safeguards, row: &Home, op: &Op) -> Result<(), Refused> {
    let may = if g.owner_kept {
        row.owner < op.owner || (row.owner == op.owner && (row.mv == op.mv || row.mv == 0))
    } else {
        let free = row.mv == 0 || row.state == HomeState::Moved;
        free || (row.mv == op.mv && row.owner <= op.owner)
    };
    if may { Ok(()) } else { Err(Refused) }
}

/// No move's any more.
pub(crate) fn release(g: &Safeguards, row: &mut Home) {
    row.mv = 0;
    if !g.owner_kept {
        row.owner = 0;
    }
}

/// Changes a home, in one transaction under its exclusive lock.
pub(crate) fn change(g: &Safeguards, s: &mut State, what: Change, op: &Op) -> Result<(), Refused> {
    let mv = catalog::mv(s, op.mv);
    if what == Change::Incoming {
        return incoming(g, s, &mv, op);
    }
    let Some(mut row) = s.pod(op.pod).home else {
        return absent(g, s, what, &mv, op);
    };
    match what {
        Change::TakeSource | Change::TakeTarget | Change::Restore | Change::TakeLeftover => {
            may_take(g, &row, op)?;
        }
        Change::Forget if !g.leftover_taken => may_take(g, &row, op)?,
        // What was released already is released.
        Change::ReleaseTarget | Change::ReleaseSource if row.mv == 0 && row.owner == op.owner => {}
        Change::ReleaseTarget
        | Change::ReleaseSource
        | Change::Incoming
        | Change::Fence
        | Change::Handing
        | Change::Ready
        | Change::Serving
        | Change::Moved
        | Change::Forget => owned(g, Some(&row), op)?,
    }
    row.mv = op.mv;
    row.owner = op.owner;
    // A home that never was this move's has nothing of it.
    if what != Change::TakeLeftover || row.epoch == mv.epoch || op.pod == mv.source {
        row.state = to(g, what, op, row.state).ok_or(Refused)?;
    }
    match what {
        Change::Ready => {
            row.mark = None;
            row.ready = s.pod(op.pod).ready.0 + 1;
            s.pod_mut(op.pod).ready = (row.ready, row.epoch);
        }
        Change::Moved => row.mark = Some((mv.target, mv.epoch)),
        // The source's, which was gone when the shop was handed over.
        Change::TakeLeftover if op.pod == mv.source => row.mark = Some((mv.target, mv.epoch)),
        Change::Forget => {
            row.mark = Some((mv.source, mv.source_epoch));
            release(g, &mut row);
        }
        Change::ReleaseTarget | Change::ReleaseSource | Change::Restore => release(g, &mut row),
        Change::TakeSource
        | Change::TakeTarget
        | Change::TakeLeftover
        | Change::Incoming
        | Change::Fence
        | Change::Handing
        | Change::Serving => {}
    }
    let gone = what == Change::Forget && !g.owner_kept;
    s.pod_mut(op.pod).home = (!gone).then_some(row);
    Ok(())
}

/// A home that is not there has nothing to take over. What forgets it leaves a row with its owner number, which refuses
/// whoever of that move wakes up late.
fn absent(g: &Safeguards, s: &mut State, what: Change, mv: &Move, op: &Op) -> Result<(), Refused> {
    match what {
        Change::TakeTarget | Change::TakeLeftover => Ok(()),
        Change::Forget => {
            let tombstone = Home {
                epoch: mv.epoch,
                state: HomeState::Moved,
                mark: Some((mv.source, mv.source_epoch)),
                mv: 0,
                owner: op.owner,
                ready: 0,
            };
            s.pod_mut(op.pod).home = g.owner_kept.then_some(tombstone);
            Ok(())
        }
        Change::TakeSource
        | Change::Incoming
        | Change::Fence
        | Change::Handing
        | Change::Ready
        | Change::Serving
        | Change::Moved
        | Change::ReleaseTarget
        | Change::ReleaseSource
        | Change::Restore => Err(Refused),
    }
}

/// The state that a change gives a home; `None` where it is refused.
fn to(g: &Safeguards, what: Change, op: &Op, from: HomeState) -> Option<HomeState> {
    use HomeState as H;
    let word = if op.frozen { H::Frozen } else { H::Serving };
    match (what, from) {
        // Only what a mover set is lifted: an order that is under way has the last word.
        (Change::TakeSource, H::Fenced | H::Handing) if op.lift => Some(word),
        (Change::TakeSource, H::Moved | H::Incoming | H::Ready) if op.lift => None,
        (Change::Restore, H::Fenced | H::Handing) => Some(word),
        (Change::Restore, H::Serving | H::Frozen) => Some(from),
        (
            Change::TakeSource | Change::TakeTarget | Change::ReleaseTarget | Change::ReleaseSource,
            _,
        ) => Some(from),
        (Change::Fence, H::Serving | H::Frozen | H::Fenced) => Some(H::Fenced),
        (Change::Handing, H::Fenced | H::Handing) if g.handing => Some(H::Handing),
        (Change::Handing, H::Fenced) => Some(H::Fenced),
        (Change::Ready, H::Incoming | H::Ready | H::Serving | H::Frozen) => Some(ready(g, op)),
        (Change::Serving, H::Ready | H::Serving | H::Frozen) => Some(word),
        // After the catalog's step the source never serves again, whatever its home says.
        (Change::Moved, _) => Some(H::Moved),
        (Change::TakeLeftover, H::Handing) => Some(H::Moved),
        (Change::TakeLeftover, H::Incoming | H::Ready | H::Frozen) => Some(H::Incoming),
        (Change::TakeLeftover, _) => Some(from),
        (Change::Forget, H::Incoming | H::Moved) => Some(H::Moved),
        (Change::Forget, H::Ready) if !g.leftover_taken => Some(H::Moved),
        _ => None,
    }
}

/// What the target's home is before the catalog's step.
const fn ready(g: &Safeguards, op: &Op) -> HomeState {
    if op.frozen && g.ready_as_placed {
        HomeState::Frozen
    } else if g.ready_is_quiet {
        HomeState::Ready
    } else {
        HomeState::Serving
    }
}

fn incoming(g: &Safeguards, s: &mut State, mv: &Move, op: &Op) -> Result<(), Refused> {
    let pod = s.pod_mut(op.pod);
    if let Some(row) = &pod.home {
        may_take(g, row, op)?;
        let free = match row.state {
            HomeState::Moved => true,
            HomeState::Incoming | HomeState::Ready => row.epoch == mv.epoch,
            HomeState::Frozen => row.epoch == mv.epoch && row.mv == op.mv,
            HomeState::Serving | HomeState::Fenced | HomeState::Handing | HomeState::Offline => {
                false
            }
        };
        if !free {
            return Err(Refused);
        }
    }
    pod.home = Some(Home {
        epoch: mv.epoch,
        state: HomeState::Incoming,
        mark: pod.home.and_then(|row| row.mark),
        mv: op.mv,
        owner: op.owner,
        ready: 0,
    });
    Ok(())
}
