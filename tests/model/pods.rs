//! What a pod's database does with a mover's transaction: the lock on the home, the comparison of the owner, the change.
//!
//! Mirrors `infra/src/mover/home/rules.rs` (which rows each change may replace), `Session::begin_owned` and
//! `infra/src/mover/{copy,apply,retire,leftover}.rs` (what a transaction on rows does). Who may read and write is not
//! mirrored but called: [`shared::home::decide`].

use shared::home::{self, Access, Claim, HomeState, Mark, Verdict};
use shared::{Epoch, PodId};

use crate::safeguards::Safeguards;
use crate::state::{At, Home, Op, Pc, State, Tx};

/// The transaction changed nothing: another mover's home, or one in no state for this.
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

/// Whether a pod would run this now.
pub(crate) fn runs(s: &State, to: At, access: Access) -> bool {
    decide(to.0, s.pod(to.0).home.as_ref(), to, 0, access) == Verdict::Run
}

/// The pod at which a mover's transaction on rows has begun.
fn busy(s: &State) -> impl Iterator<Item = u8> + '_ {
    let open = s.movers.iter().filter(|m| m.open);
    open.filter_map(|m| crate::mover::pod_of(s, m))
}

/// Whether the exclusive lock on a pod's home is free: every write and every mover's transaction on rows holds it shared.
pub(crate) fn lock_free(g: &Safeguards, s: &State, pod: u8) -> bool {
    let mut writes = s.clients.txs.iter().map(|txs| txs[usize::from(pod)]);
    let writing = g.share_lock && writes.any(|tx| tx != Tx::None);
    !writing && !busy(s).any(|at| at == pod)
}

/// Whether it is a transaction on rows, which lasts, rather than a change of the home.
pub(crate) const fn on_rows(what: Pc) -> bool {
    matches!(what, Pc::Copy | Pc::Apply | Pc::Delete | Pc::DeleteLeftover)
}

/// Begins a transaction on rows. `Ok(false)`: two of a move's change the same row of `move_mark`, so the second waits.
pub(crate) fn begin(g: &Safeguards, s: &State, op: &Op) -> Result<bool, Refused> {
    if busy(s).any(|at| at == op.pod) {
        return Ok(false);
    }
    let row = s.pod(op.pod).home;
    if op.what == Pc::DeleteLeftover && !g.leftover_taken {
        row.filter(|row| row.mv == op.mv).ok_or(Refused)?;
    } else if g.row_owner {
        owned(g, row.as_ref(), op)?;
    }
    Ok(true)
}

/// Commits it.
pub(crate) fn commit(s: &mut State, op: &Op) {
    let pod = s.pod_mut(op.pod);
    match op.what {
        Pc::Delete | Pc::DeleteLeftover => pod.data = crate::state::Data::default(),
        Pc::Copy => {
            pod.data.take(op.rows, op.data);
            pod.copied.1 |= op.rows;
        }
        _ => {
            pod.data.take(op.rows, op.data);
            pod.applied |= op.upto;
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
pub(crate) fn change(g: &Safeguards, s: &mut State, op: Op) -> Result<(), Refused> {
    let mv = s.catalog.moves[usize::from(op.mv) - 1].ok_or(Refused)?;
    let found = s.pod(op.pod).home;
    if op.what == Pc::Incoming {
        return incoming(g, s, op);
    }
    let Some(mut row) = found else {
        return absent(g, s, op);
    };
    match op.what {
        Pc::TakeSource | Pc::TakeTarget | Pc::Undo | Pc::TakeLeftover => may_take(g, &row, &op)?,
        Pc::Forget if !g.leftover_taken => may_take(g, &row, &op)?,
        _ => owned(g, Some(&row), &op)?,
    }
    row.mv = op.mv;
    row.owner = op.owner;
    row.state = to(g, &op, row.state).ok_or(Refused)?;
    match op.what {
        Pc::Ready => {
            row.mark = None;
            let pod = s.pod_mut(op.pod);
            pod.ready = row.epoch;
        }
        Pc::Moved => row.mark = Some((mv.target, mv.epoch)),
        Pc::Forget => row.mark = Some((mv.source, mv.source_epoch)),
        _ => {}
    }
    if matches!(op.what, Pc::Undo | Pc::Release | Pc::Forget) {
        release(g, &mut row);
    }
    let gone = op.what == Pc::Forget && !g.owner_kept;
    s.pod_mut(op.pod).home = (!gone).then_some(row);
    Ok(())
}

/// A home that is not there has nothing to take over. What forgets it leaves a row with its owner number, which refuses
/// whoever of that move wakes up late.
fn absent(g: &Safeguards, s: &mut State, op: Op) -> Result<(), Refused> {
    let mv = s.catalog.moves[usize::from(op.mv) - 1].ok_or(Refused)?;
    match op.what {
        Pc::TakeTarget | Pc::TakeLeftover => Ok(()),
        Pc::Forget => {
            let tombstone = Home {
                epoch: mv.epoch,
                state: HomeState::Moved,
                mark: Some((mv.source, mv.source_epoch)),
                mv: 0,
                owner: op.owner,
            };
            s.pod_mut(op.pod).home = g.owner_kept.then_some(tombstone);
            Ok(())
        }
        _ => Err(Refused),
    }
}

/// The state that a change gives a home; `None` where it is refused.
fn to(g: &Safeguards, op: &Op, from: HomeState) -> Option<HomeState> {
    use HomeState as H;
    match (op.what, from) {
        (Pc::TakeSource, H::Fenced | H::Handing) if op.lift => Some(H::Serving),
        (Pc::TakeSource | Pc::TakeTarget | Pc::Release, state) => Some(state),
        (Pc::Fence, H::Serving | H::Fenced) => Some(H::Fenced),
        (Pc::Lift | Pc::Undo, H::Serving | H::Fenced | H::Handing) => Some(H::Serving),
        (Pc::Handing, H::Serving) if !g.handing_from_fenced => Some(H::Handing),
        (Pc::Handing, H::Fenced | H::Handing) => {
            Some(if g.handing { H::Handing } else { H::Fenced })
        }
        (Pc::Ready, H::Incoming | H::Ready | H::Serving) => Some(if g.ready_is_quiet {
            H::Ready
        } else {
            H::Serving
        }),
        (Pc::Serving, H::Ready | H::Serving) => Some(H::Serving),
        // After the catalog's step the source never serves again, whatever its home says.
        (Pc::Moved, _) => Some(H::Moved),
        (Pc::TakeLeftover, H::Incoming | H::Ready) => Some(H::Incoming),
        (Pc::TakeLeftover, state) => Some(state),
        (Pc::Forget, H::Incoming | H::Moved) => Some(H::Moved),
        (Pc::Forget, H::Ready) if !g.leftover_taken => Some(H::Moved),
        _ => None,
    }
}

fn incoming(g: &Safeguards, s: &mut State, op: Op) -> Result<(), Refused> {
    let mv = s.catalog.moves[usize::from(op.mv) - 1].ok_or(Refused)?;
    let pod = s.pod_mut(op.pod);
    if let Some(row) = &pod.home {
        may_take(g, row, &op)?;
        let free = match row.state {
            HomeState::Moved => true,
            HomeState::Incoming | HomeState::Ready => row.epoch == mv.epoch,
            HomeState::Serving
            | HomeState::Fenced
            | HomeState::Handing
            | HomeState::Frozen
            | HomeState::Offline => false,
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
    });
    if g.marks_cleared || pod.copied.0 != op.mv {
        pod.copied = (op.mv, 0);
        pod.applied = 0;
    }
    Ok(())
}
