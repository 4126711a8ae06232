//! The background runner: one task for each open move and for each leftover.
//!
//! Moves found in `fenced` or `cutover` come first: a shop waits. Which control server drives a move is decided by its
//! lease in the catalog; a task renews it, hears of orders by the same way, and ends quietly when it is another's.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::Mutex;
use shared::moves::MoveId;
use shared::{PodId, ShopId};
use tokio::sync::{Semaphore, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::MoveLimits;
use super::error::MoveError;
use super::registry::Moves;
use crate::catalog::{Catalog, CatalogError};
use crate::pod_store::PodStore;

// Rows that no move made, and an operator's order to clear them.
mod clear;
// How many moves do what at once, by pod and in the fleet.
mod caps;
// What a server said and nobody has thought of.
mod doubts;
// Dumps that were kept for long enough.
mod dumps;
// What keeps a lease and hears of orders.
mod keeper;
// The copy that an aborted move left at its target, or one that ended without its source at that.
mod leftover;
// What a move's row says of what went wrong.
mod notes;
// One move, from takeover to takeover.
mod task;

pub(super) use caps::{Caps, Turn};
pub(super) use keeper::{Gate, other_primary};

/// How often the list of moves is read without being woken. Another control server's orders, and a lease that ran out,
/// are seen then: a fraction of the lease.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Between two tries to take up what another control server holds: a fraction of the lease.
const AGAIN_AFTER: Duration = Duration::from_millis(250);
/// How often dumps are looked at for their age: they are kept for days.
const DUMPS_EVERY: Duration = Duration::from_secs(600);

/// What drives moves here. Cheap to share behind an `Arc`.
#[derive(Debug)]
pub(crate) struct Mover {
    pub(super) catalog: Arc<Catalog>,
    pub(super) store: Arc<PodStore>,
    pub(super) limits: Arc<MoveLimits>,
    /// Where files of moves are: keys that do not fit into memory, dumps.
    pub(super) dir: PathBuf,
    /// This process, in leases.
    pub(super) holder: String,
    /// This process holds the catalog's lock alone: a lease that it finds is a dead process's.
    pub(super) force: bool,
    pub(super) moves: Arc<Moves>,
    /// Moves that copy.
    pub(super) caps: Caps,
    /// Moves whose source is watched after the hand-over.
    pub(super) watches: Caps,
    /// Copies that are dumped and deleted.
    pub(super) clearings: Caps,
    /// Transactions of moves at each pod.
    commits: Mutex<BTreeMap<PodId, Arc<AtomicU64>>>,
    /// Fences at once, of those that their movers may still end by themselves.
    pub(super) fences: Arc<Semaphore>,
    pub(super) stop: CancellationToken,
}

impl Mover {
    /// Files of moves lie under `dir`.
    pub(crate) fn new(
        catalog: Arc<Catalog>,
        store: Arc<PodStore>,
        moves: Arc<Moves>,
        limits: Arc<MoveLimits>,
        dir: PathBuf,
    ) -> Self {
        let force = !catalog.is_shared();
        let holder = format!("{}-{}", std::process::id(), uuid::Uuid::new_v4().simple());
        Self {
            catalog,
            store,
            dir,
            holder,
            force,
            moves,
            caps: Caps::copying(&limits),
            watches: Caps::watching(&limits),
            clearings: Caps::clearing(&limits),
            commits: Mutex::default(),
            fences: Arc::new(Semaphore::new(limits.fences_max)),
            limits,
            stop: CancellationToken::new(),
        }
    }

    /// The folder of dumps; made if it is not there.
    pub(super) fn dumps(&self) -> Result<PathBuf, MoveError> {
        let dir = self.dir.join("dumps");
        std::fs::create_dir_all(&dir).map_err(|source| MoveError::File {
            doing: format!("make the folder {}", dir.display()),
            source,
        })?;
        Ok(dir)
    }

    /// Counts the transactions of all moves at a pod.
    pub(super) fn commits(&self, pod: PodId) -> Arc<AtomicU64> {
        Arc::clone(self.commits.lock().entry(pod).or_default())
    }

    pub(super) fn lease_ms(&self) -> u64 {
        u64::try_from(self.limits.lease.as_millis()).unwrap_or(u64::MAX)
    }
}

/// What a task works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Work {
    Move(MoveId),
    Leftover(MoveId),
    /// Dumps that are older than they are kept.
    Dumps,
}

/// Drives moves until the server stops. A fence that stands then is ended in order, within the pause's bound.
pub(crate) async fn run(mover: Arc<Mover>, mut stopping: watch::Receiver<bool>) {
    let mut stop = std::pin::pin!(async move {
        // An error means that the sender is gone, which is a stop too.
        let _ = stopping.wait_for(|stop| *stop).await;
    });
    let mut changes = mover.catalog.watch_moves();
    let mut tasks = JoinSet::new();
    let mut running: BTreeMap<Work, AbortHandle> = BTreeMap::new();
    let mut dumps = tokio::time::interval(DUMPS_EVERY);
    loop {
        running.retain(|_, task| !task.is_finished());
        match due(&mover).await {
            Ok(due) => {
                for (work, shop) in due {
                    let mover = &mover;
                    running.entry(work).or_insert_with(|| {
                        tasks.spawn(of_shop(shop, work_on(Arc::clone(mover), work)))
                    });
                }
            }
            Err(error) => {
                tracing::warn!("the moves cannot be read: {}", shared::error::chain(&error));
            }
        }
        tokio::select! {
            _ = changes.changed() => {}
            Some(_) = tasks.join_next() => {}
            () = tokio::time::sleep(LOOK_EVERY) => {}
            // Gigabytes of them may take long; one task does it at a time.
            _ = dumps.tick() => {
                running.entry(Work::Dumps).or_insert_with(|| {
                    tasks.spawn(work_on(Arc::clone(&mover), Work::Dumps))
                });
            }
            () = &mut stop => break,
        }
    }
    mover.stop.cancel();
    while tasks.join_next().await.is_some() {}
}

async fn work_on(mover: Arc<Mover>, work: Work) {
    match work {
        Work::Move(id) => {
            task::drive(&mover, id).await;
            give_back(&mover, id).await;
        }
        Work::Leftover(id) => {
            leftover::drive(&mover, id).await;
            give_back(&mover, id).await;
        }
        Work::Dumps => dumps::prune(&mover).await,
    }
    // What another control server holds is looked at again at this pace.
    tokio::time::sleep(AGAIN_AFTER).await;
}

/// At a stop, however the work ended: the next control server takes it up at once. Inside of a fence a shop's writes would wait
/// for the lease to run out.
async fn give_back(mover: &Mover, id: MoveId) {
    if !mover.stop.is_cancelled() {
        return;
    }
    if let Err(error) = mover.catalog.leave_move(id, &mover.holder).await {
        tracing::warn!(%id, "the lease is not given back: {}", shared::error::chain(&error));
    }
}

/// A task's fail points may be its shop's own.
#[cfg(feature = "failpoints")]
pub(super) async fn of_shop<T>(shop: ShopId, work: impl Future<Output = T>) -> T {
    super::failpoint::of_shop(shop.get(), work).await
}

#[cfg(not(feature = "failpoints"))]
pub(super) fn of_shop<W: Future>(_: ShopId, work: W) -> W {
    work
}

/// The limits of a run; a test may give it all the time that it needs.
#[cfg(feature = "failpoints")]
pub(super) fn limits(mover: &Mover) -> Arc<MoveLimits> {
    super::failpoint::limits(&mover.limits)
}

#[cfg(not(feature = "failpoints"))]
pub(super) fn limits(mover: &Mover) -> Arc<MoveLimits> {
    Arc::clone(&mover.limits)
}

/// What a keeper heard; a test may make a driver deaf.
#[cfg(feature = "failpoints")]
async fn heard<T>(keeper: impl Future<Output = T>) -> T {
    super::failpoint::unless_deaf(keeper).await
}

#[cfg(not(feature = "failpoints"))]
fn heard<K: Future>(keeper: K) -> K {
    keeper
}

/// All that is open, a shop that waits first.
async fn due(mover: &Mover) -> Result<Vec<(Work, ShopId)>, CatalogError> {
    let mut moves = mover.catalog.open_moves().await?;
    moves.sort_by_key(|row| !row.state.may_be_fenced());
    let leftovers = mover.catalog.leftovers().await?;
    let moves = moves.into_iter().map(|row| (Work::Move(row.id), row.shop));
    let leftovers = leftovers
        .into_iter()
        .map(|left| (Work::Leftover(left.id), left.shop));
    Ok(moves.chain(leftovers).collect())
}
