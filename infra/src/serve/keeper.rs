//! Keeps the primaries of the pods open: a loop for each pod.
//!
//! Every server starts read only. The one that the catalog names primary is opened here, and only when [`judge`] finds
//! that a replica holds all it has executed: semi-sync's source side on, then writes for the operator alone, then the
//! term into `pod_identity` (acknowledged by a replica), then writes for all. Here nothing is ever shut: setting a live
//! primary read only acknowledges or hangs commits that no replica has.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use parking_lot::RwLock;
use shared::PodId;
use shared::error::chain;
use shared::telemetry::metric;
use time::OffsetDateTime;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::app::{App, stopped};
use crate::api::{PrimaryState, PrimaryStatus};
use crate::pod_store::{PodStore, ServerLook, Step, Watched};

mod judge;
use judge::{ReplicaSeen, Shut, covered, fit, unfit};

/// A replica whose threads stopped for an error is started again no more often than this.
const START_REPLICA_EVERY: Duration = Duration::from_secs(5);
/// How often the list of pods is read without being woken: a change wakes at once.
const PODS_EVERY: Duration = Duration::from_secs(5);

/// What the keepers last saw, by pod.
#[derive(Debug, Default)]
pub(super) struct Primaries(RwLock<BTreeMap<PodId, PrimaryStatus>>);

impl Primaries {
    /// All of them.
    pub(super) fn all(&self) -> Vec<PrimaryStatus> {
        self.0.read().values().cloned().collect()
    }

    fn forget(&self, pod: PodId) {
        self.0.write().remove(&pod);
    }

    /// Notes what is so now and says whether that is news.
    fn note(&self, status: PrimaryStatus) -> bool {
        let mut all = self.0.write();
        let old = all.get(&status.pod);
        let same = old.is_some_and(|old| {
            (&old.address, old.term, old.state, &old.reason)
                == (&status.address, status.term, status.state, &status.reason)
        });
        if !same {
            all.insert(status.pod, status);
        }
        !same
    }
}

/// Runs a keeper for each pod, until the server stops.
pub(super) async fn run(app: Arc<App>) {
    let mut changes = app.catalog.watch();
    let mut keepers: BTreeMap<PodId, tokio::task::AbortHandle> = BTreeMap::new();
    let mut tasks = JoinSet::new();
    loop {
        match app.catalog.pod_ids().await {
            Ok(wanted) => {
                // Also of an offline one: a new pod is so until everything of it serves, its primary too.
                keepers.retain(|pod, keeper| {
                    let keep = wanted.contains(pod) && !keeper.is_finished();
                    if !keep {
                        keeper.abort();
                        app.primaries.forget(*pod);
                    }
                    keep
                });
                for pod in wanted {
                    let app = &app;
                    keepers
                        .entry(pod)
                        .or_insert_with(|| tasks.spawn(keep(Arc::clone(app), pod)));
                }
            }
            Err(error) => tracing::warn!("the pods cannot be read: {}", chain(&error)),
        }
        tokio::select! {
            _ = changes.changed() => {}
            () = tokio::time::sleep(PODS_EVERY) => {}
            () = stopped(app.stopping.clone()) => break,
        }
    }
    tasks.shutdown().await;
}

/// Keeps one pod.
async fn keep(app: Arc<App>, pod: PodId) {
    let mut ticks = interval(app.limits.keeper_every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut keeper = Keeper {
        pod,
        servers: Vec::new(),
        replica_started: BTreeMap::new(),
    };
    loop {
        ticks.tick().await;
        let (term, servers) = match app.catalog.mysql_servers(pod).await {
            Ok(servers) => servers,
            Err(error) => {
                tracing::warn!(
                    pod = pod.get(),
                    "its servers cannot be read: {}",
                    chain(&error)
                );
                continue;
            }
        };
        keeper.follow(servers);
        let outcome = keeper.tick(&app.store, term).await;
        let address = keeper.primary().map(|s| s.server.address.to_string());
        report(&app.primaries, pod, term, address, outcome);
    }
}

fn report(
    primaries: &Primaries,
    pod: PodId,
    term: u64,
    address: Option<String>,
    outcome: Result<(), Shut>,
) {
    let (state, reason) = match &outcome {
        Ok(()) => (PrimaryState::Open, None),
        Err(shut @ Shut::Unreachable(_)) => (PrimaryState::Unknown, Some(shut.to_string())),
        Err(shut) => (PrimaryState::Closed, Some(shut.to_string())),
    };
    let open = if state == PrimaryState::Open {
        1.0
    } else {
        0.0
    };
    metrics::gauge!(metric::PRIMARY_OPEN, metric::POD => pod.to_string()).set(open);
    let since = OffsetDateTime::now_utc();
    let status = PrimaryStatus {
        pod,
        address: address.clone(),
        term,
        state,
        reason,
        since,
    };
    if !primaries.note(status) {
        return;
    }
    let address = address.unwrap_or_default();
    match outcome {
        Ok(()) => tracing::info!(pod = pod.get(), term, address, "primary open"),
        Err(shut) if shut.needs_a_person() => {
            tracing::error!(
                pod = pod.get(),
                term,
                address,
                reason = shut.slug(),
                "primary shut: {shut}"
            );
        }
        Err(shut) => {
            tracing::warn!(
                pod = pod.get(),
                term,
                address,
                reason = shut.slug(),
                "primary shut: {shut}"
            );
        }
    }
}

/// The servers of one pod, watched.
struct Keeper {
    pod: PodId,
    servers: Vec<Watched>,
    replica_started: BTreeMap<String, Instant>,
}

impl Keeper {
    /// Takes the catalog's list; connections to servers that stay are kept.
    fn follow(&mut self, listed: Vec<crate::catalog::MysqlServer>) {
        self.servers
            .retain(|watched| listed.contains(&watched.server));
        for server in listed {
            if !self.servers.iter().any(|watched| watched.server == server) {
                self.servers.push(Watched::new(self.pod, server));
            }
        }
    }

    fn primary(&self) -> Option<&Watched> {
        self.servers.iter().find(|s| s.server.primary)
    }

    /// Looks at all servers, mends replicas, opens the primary if it may be. `Ok` means that it is open.
    async fn tick(&mut self, store: &PodStore, term: u64) -> Result<(), Shut> {
        let looks = join_all(self.servers.iter_mut().map(|server| server.look(store))).await;
        let mut primary = None;
        let mut replicas = Vec::new();
        for (server, look) in self.servers.iter_mut().zip(looks) {
            if server.server.primary {
                primary = Some((server, look));
            } else {
                replicas.push((server, look.ok()));
            }
        }
        let (server, look) = primary.ok_or(Shut::Unnamed)?;
        let look = look.map_err(|error| Shut::Unreachable(error.brief()))?;
        for (replica, seen) in &mut replicas {
            if let Some(seen) = seen {
                mend(
                    store,
                    replica,
                    seen,
                    &server.server,
                    &mut self.replica_started,
                )
                .await;
            }
        }
        if !look.read_only {
            return supervise(store, self.pod, term, server, &look, &replicas).await;
        }
        let identity = server
            .identity(store)
            .await
            .map_err(|e| Shut::Unreachable(e.brief()))?;
        fit(self.pod, term, &look, identity)?;
        let seen = holders(store, &look, &mut replicas).await;
        covered(&look, &seen)?;
        open(store, term, server, &look).await
    }
}

/// Asks each replica that may acknowledge whether it holds all that the primary has executed.
async fn holders(
    store: &PodStore,
    primary: &ServerLook,
    replicas: &mut [(&mut Watched, Option<ServerLook>)],
) -> Vec<ReplicaSeen> {
    let asked = replicas.iter_mut().map(|(server, look)| async {
        let fit = unfit(primary, look.as_ref()).is_none();
        let holds = fit
            && server
                .holds(store, &primary.executed)
                .await
                .unwrap_or(false);
        ReplicaSeen {
            address: server.server.address.to_string(),
            look: look.clone(),
            holds,
        }
    });
    join_all(asked).await
}

/// The steps from shut to open. Cut off anywhere, the next round does them again.
async fn open(
    store: &PodStore,
    term: u64,
    server: &mut Watched,
    look: &ServerLook,
) -> Result<(), Shut> {
    let failed = |error: crate::pod_store::PodStoreError| Shut::Step(error.brief());
    if look.source_on != Some(true) {
        server.step(store, Step::SourceOn).await.map_err(failed)?;
    }
    if look.acknowledgers == 0 {
        // A primary without an acknowledging replica hangs on its first commit.
        return Err(Shut::NoAcknowledger);
    }
    if look.super_read_only {
        server.step(store, Step::HalfOpen).await.map_err(failed)?;
    }
    let written = server
        .write_term(store, term)
        .await
        .map_err(|error| Shut::Term(error.brief()))?;
    if !written {
        return Err(Shut::Term(
            "another term stands in pod_identity now".to_owned(),
        ));
    }
    server.step(store, Step::Open).await.map_err(failed)
}

/// An open primary: its term is the catalog's, and no commit of it goes unacknowledged.
async fn supervise(
    store: &PodStore,
    pod: PodId,
    term: u64,
    server: &mut Watched,
    look: &ServerLook,
    replicas: &[(&mut Watched, Option<ServerLook>)],
) -> Result<(), Shut> {
    let identity = server
        .identity(store)
        .await
        .map_err(|e| Shut::Unreachable(e.brief()))?;
    fit(pod, term, look, identity)?;
    let attached = replicas
        .iter()
        .any(|(_, replica)| unfit(look, replica.as_ref()).is_none());
    if look.source_on != Some(true) && attached {
        tracing::error!(
            pod = pod.get(),
            "semi-sync was off at an open primary; switched on"
        );
        server
            .step(store, Step::SourceOn)
            .await
            .map_err(|e| Shut::Step(e.brief()))?;
    }
    if identity.is_some_and(|identity| identity.term < term) {
        server
            .write_term(store, term)
            .await
            .map_err(|error| Shut::Term(error.brief()))?;
    }
    Ok(())
}

/// Puts right what a replica of this primary may have after a restart or a lost connection.
async fn mend(
    store: &PodStore,
    replica: &mut Watched,
    seen: &ServerLook,
    primary: &crate::catalog::MysqlServer,
    started: &mut BTreeMap<String, Instant>,
) {
    let address = replica.server.address.to_string();
    let Some(source) = &seen.follows else { return };
    let ours = source.host == primary.address.host && source.port == primary.address.port;
    if !ours || !seen.super_read_only {
        return;
    }
    if seen.source_on == Some(true) {
        tracing::warn!(
            address,
            "semi-sync's source side was on at a replica; switched off"
        );
        note_failure(&address, replica.step(store, Step::SourceOff).await);
    }
    let stopped = source.receiver_stopped || !source.applying;
    let due = started
        .get(&address)
        .is_none_or(|at| at.elapsed() >= START_REPLICA_EVERY);
    if stopped && due {
        started.insert(address.clone(), Instant::now());
        let error = source.error.as_deref().unwrap_or("none is told");
        tracing::warn!(
            address,
            "a replica had stopped (error: {error}); starting it"
        );
        note_failure(&address, replica.step(store, Step::StartReplica).await);
    }
}

fn note_failure(address: &str, outcome: Result<(), crate::pod_store::PodStoreError>) {
    if let Err(error) = outcome {
        tracing::warn!(address, "a step at a replica failed: {}", error.brief());
    }
}
