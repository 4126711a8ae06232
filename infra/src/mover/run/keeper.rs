//! Keeps the lease of a move while it is driven, and hears what ends the run: an order, another holder, another primary.

use std::sync::Arc;
use std::time::Duration;

use shared::PodId;
use shared::moves::MoveState;
use tokio::time::Instant;

use super::Mover;
use crate::catalog::{CatalogError, MoveRef, MoveRow};
use crate::mover::job::{End, Job};

/// Where the driver stands; held across each of its steps in the catalog, so that a state which is another one than this,
/// before and after it was read, is somebody else's doing.
pub(in crate::mover) type Gate = Arc<tokio::sync::Mutex<MoveState>>;

/// A lease is renewed so often in its time: two renewals may fail.
pub(super) const RENEWALS: u32 = 3;
/// A move that only waits (for an operator, or for time to pass) is nobody's pause: its lease is longer by this, which
/// spares the disk.
const IDLE_FACTOR: u32 = 4;

/// Why a run ends before its work does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Heard {
    /// The state is another one: an order, or a later move.
    Ordered,
    /// It is another control server's.
    Lost,
    /// A pod has another primary.
    PrimaryChanged {
        /// Which one.
        pod: PodId,
        /// From what to what.
        text: String,
    },
    /// The server stops.
    Stopping,
}

const fn idle(state: MoveState) -> bool {
    matches!(
        state,
        MoveState::Paused | MoveState::Failed | MoveState::Observing
    )
}

/// Ends only with something to hear.
pub(super) async fn keep(mover: &Mover, job: &Job, gate: &Gate) -> Heard {
    let mut changes = mover.catalog.watch_moves();
    let mut renewed = Instant::now();
    // What the takeover was given.
    let mut granted = mover.limits.lease;
    loop {
        let state = *gate.lock().await;
        let factor = if idle(state) { IDLE_FACTOR } else { 1 };
        let lease = mover.limits.lease * factor;
        let due = renewed + granted / RENEWALS;
        let renew = tokio::select! {
            () = tokio::time::sleep_until(due) => true,
            _ = changes.changed() => false,
            () = stopping(mover, gate) => return Heard::Stopping,
        };
        let renewal = renew.then_some(lease);
        let (known, (row, stale)) = beside_steps(gate, || look(mover, job, renewal)).await;
        match row {
            Ok(row) if row.owner != job.owner => return Heard::Lost,
            Ok(row) if row.state != known => return Heard::Ordered,
            Ok(_) if stale => return Heard::Lost,
            Ok(_) if renew => (renewed, granted) = (Instant::now(), lease),
            Ok(_) => {}
            Err(_) if stale => return Heard::Lost,
            // Nobody else can take it while the catalog takes no changes; past the lease it may be another's, if there are others.
            Err(_) if renewed.elapsed() > granted && !mover.force => return Heard::Lost,
            Err(error) => {
                tracing::warn!(%job.id, "the lease cannot be renewed: {}", shared::error::chain(&error));
                tokio::time::sleep(lease / RENEWALS / 4).await;
            }
        }
        if renew && let Some((pod, text)) = other_primary(mover, job).await {
            return Heard::PrimaryChanged { pod, text };
        }
    }
}

/// The row as it stands, for a renewal the lease of so long; and whether that is not this run's any more.
async fn look(
    mover: &Mover,
    job: &Job,
    renewal: Option<Duration>,
) -> (Result<MoveRow, CatalogError>, bool) {
    let catalog = &mover.catalog;
    let mut stale = false;
    if let Some(lease) = renewal {
        let lease_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
        let renewed = catalog
            .renew_move(job.id, job.owner, &mover.holder, lease_ms)
            .await;
        stale = matches!(renewed, Err(CatalogError::Stale(_)));
        if !stale {
            return (renewed, false);
        }
    }
    // One that is closed by somebody else, or taken: what stands there tells.
    (catalog.move_row(&MoveRef::Id(job.id)).await, stale)
}

/// What a look at the catalog has found, and the state that the driver stood in from before it to after it. A look may wait
/// for the catalog for seconds, and the driver, which may be inside a fence, waits for no look: one that a step of the driver
/// came between is made again. There are few steps in a life of a move.
async fn beside_steps<F: Future>(gate: &Gate, look: impl Fn() -> F) -> (MoveState, F::Output) {
    loop {
        let before = *gate.lock().await;
        let found = look().await;
        let known = *gate.lock().await;
        if known == before {
            return (known, found);
        }
    }
}

/// Resolves once the server stops, and no fence stands: that one is ended first, within its own bound.
async fn stopping(mover: &Mover, gate: &Gate) {
    const LOOK_EVERY: Duration = Duration::from_millis(10);
    mover.stop.cancelled().await;
    let patience = Instant::now() + mover.limits.pause_bound;
    while gate.lock().await.may_be_fenced() && Instant::now() < patience {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// The pod, and from what to what, if the catalog names another primary or term for one of them than this run works with.
pub(in crate::mover) async fn other_primary(mover: &Mover, job: &Job) -> Option<(PodId, String)> {
    let source = (!job.source_gone).then_some(&job.source);
    for end in source.into_iter().chain([&job.target]) {
        if let Some(text) = differs(mover, end).await {
            return Some((end.pod, text));
        }
    }
    None
}

async fn differs(mover: &Mover, end: &End) -> Option<String> {
    // Nothing is done there; the next run looks where it is.
    if end.unknown.is_some() {
        return None;
    }
    // What cannot be read now is looked at again with the next renewal.
    let (term, servers) = mover.catalog.mysql_servers(end.pod).await.ok()?;
    let primary = servers.into_iter().find(|server| server.primary)?;
    let same = term == end.term && primary.address == end.primary;
    (!same).then(|| {
        format!(
            "it is {} of term {term} now, not {} of term {}",
            primary.address, end.primary, end.term
        )
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Mutex;
    use tokio::time::timeout;

    use super::*;

    /// What is read while the driver does a step is no order, and a look that takes long holds up no step.
    #[tokio::test]
    async fn a_look_waits_for_no_step_nor_a_step_for_a_look() {
        let gate: Gate = Arc::new(Mutex::new(MoveState::Verifying));
        let looks = std::cell::Cell::new(0);
        let look = || async {
            looks.set(looks.get() + 1);
            if looks.get() == 1 {
                // The catalog has the driver's step already, and the driver notes it.
                let step = timeout(Duration::from_secs(5), gate.lock());
                *step.await.unwrap() = MoveState::Fenced;
            }
            MoveState::Fenced
        };
        let (known, found) = beside_steps(&gate, look).await;
        assert_eq!((known, found, looks.get()), (found, MoveState::Fenced, 2));
    }

    #[tokio::test]
    async fn what_nobody_here_did_is_an_order() {
        let gate: Gate = Arc::new(Mutex::new(MoveState::Copying));
        let found = beside_steps(&gate, || std::future::ready(MoveState::Paused)).await;
        assert_eq!(found, (MoveState::Copying, MoveState::Paused));
    }
}
