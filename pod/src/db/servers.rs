//! Which replica may answer: what the monitor last saw of each server.
//!
//! Lag is told by sets of transactions, not by clocks of servers: the monitor notes the primary's executed set with the
//! instant at which it asked, and a replica whose set contains it is at most that old. A replica that is stopped, cannot
//! be asked or follows another source is out; unknown is never lag 0.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rand::RngExt as _;
use shared::config::Endpoint;
use tokio::time::Instant;

use crate::config::{Config, Group, Mysql, Reads};
use crate::db::GtidSet;
use crate::db::pool::Pool;
use crate::meter;

mod monitor;

/// Samples of the primary's set that are kept: some seconds, which is more than any replica in band is behind.
const SAMPLES_MAX: usize = 64;

/// The servers of the pod.
#[derive(Debug)]
pub(crate) struct Servers {
    primary_at: Endpoint,
    replicas: Vec<Arc<ReplicaServer>>,
    primary: Mutex<Primary>,
    reads: Reads,
    mysql: Mysql,
    connect: Duration,
}

/// A replica with its pool and its standing.
#[derive(Debug)]
pub(crate) struct ReplicaServer {
    pub(crate) at: Endpoint,
    pub(crate) pool: Pool,
    group: Group,
    weight: u32,
    standing: ArcSwap<Standing>,
}

/// What the monitor saw last of the primary.
#[derive(Debug, Default)]
struct Primary {
    server_uuid: Option<String>,
    samples: VecDeque<(Instant, Arc<GtidSet>)>,
    open: bool,
    /// Since when it has not answered, or not as an open primary.
    lost: Option<Instant>,
}

/// What the monitor saw last of a replica.
#[derive(Debug, Clone)]
pub(crate) struct Standing {
    at: Instant,
    executed: GtidSet,
    /// Why it is out whatever its lag; empty where it is not.
    fault: &'static str,
    /// Its receiver has lost the source, which rules it out only while there is a primary.
    cut_off: bool,
}

impl Standing {
    fn out(fault: &'static str) -> Self {
        Self {
            at: Instant::now(),
            executed: GtidSet::default(),
            fault,
            cut_off: true,
        }
    }
}

impl Servers {
    pub(crate) fn new(config: &Config, pool: impl Fn(&Endpoint) -> Pool) -> Self {
        let replica = |r: &crate::config::Replica| {
            Arc::new(ReplicaServer {
                at: r.at.clone(),
                pool: pool(&r.at),
                group: r.group,
                weight: r.weight,
                standing: ArcSwap::from_pointee(Standing::out("not asked yet")),
            })
        };
        Self {
            primary_at: config.mysql.primary.clone(),
            replicas: config.mysql.replicas.iter().map(replica).collect(),
            primary: Mutex::default(),
            reads: config.reads.clone(),
            mysql: config.mysql.clone(),
            connect: config.pools.connect,
        }
    }

    pub(crate) fn pools(&self) -> impl Iterator<Item = &Pool> {
        self.replicas.iter().map(|r| &r.pool)
    }

    /// Whether the primary answered the monitor as an open one.
    pub(crate) fn primary_open(&self) -> bool {
        self.primary.lock().open
    }

    /// Whether replicas may stand in for a primary that did not answer: not once it has been lost for too long.
    pub(crate) fn may_stand_in(&self) -> bool {
        self.primary
            .lock()
            .lost
            .is_none_or(|since| since.elapsed() <= self.reads.orphan)
    }

    /// Replicas that may answer an `eventual` read of a shop whose home became `ready` at a set: in random order by
    /// weight. At most two are tried, then the primary.
    pub(crate) fn candidates(&self, ready: Option<&GtidSet>) -> Vec<Arc<ReplicaServer>> {
        const TRIED: usize = 2;
        let mut left: Vec<&Arc<ReplicaServer>> = self
            .replicas
            .iter()
            .filter(|r| r.weight > 0 && self.may_answer(r, ready))
            .collect();
        let mut chosen = Vec::new();
        while chosen.len() < TRIED && !left.is_empty() {
            let total: u32 = left.iter().map(|r| r.weight).sum();
            let mut point = rand::rng().random_range(0..total);
            let index = left.iter().position(|r| {
                let hit = point < r.weight;
                point = point.saturating_sub(r.weight);
                hit
            });
            chosen.push(left.swap_remove(index.unwrap_or(0)).clone());
        }
        chosen
    }

    fn may_answer(&self, replica: &ReplicaServer, ready: Option<&GtidSet>) -> bool {
        let standing = replica.standing.load();
        replica.group == Group::Online
            && standing.fault.is_empty()
            && ready.is_none_or(|r| standing.executed.contains(r))
            && self
                .lag(&standing)
                .is_some_and(|lag| lag <= self.reads.lag_max)
    }

    /// How far a replica is behind, at most; `None` where that is not known. Without a primary: how far it was behind
    /// when the primary was lost, for a stated time.
    fn lag(&self, standing: &Standing) -> Option<Duration> {
        let primary = self.primary.lock();
        let newest_held = primary
            .samples
            .iter()
            .rev()
            .find(|(_, set)| standing.executed.contains(set))
            .map(|(at, _)| *at)?;
        match primary.lost {
            Some(since) if since.elapsed() > self.reads.orphan => None,
            Some(_) => primary
                .samples
                .back()
                .map(|(at, _)| at.duration_since(newest_held)),
            None if standing.cut_off => None,
            None if standing.at.elapsed() > self.reads.lag_max => None,
            None => Some(newest_held.elapsed()),
        }
    }

    fn note_primary(&self, at: Instant, answer: Option<PrimaryAnswer>) {
        let mut primary = self.primary.lock();
        match answer {
            Some(answer) if answer.open => {
                if primary.server_uuid.as_ref() != Some(&answer.server_uuid) {
                    primary.samples.clear();
                    primary.server_uuid = Some(answer.server_uuid);
                }
                if primary.samples.len() == SAMPLES_MAX {
                    primary.samples.pop_front();
                }
                primary.samples.push_back((at, Arc::new(answer.executed)));
                primary.open = true;
                primary.lost = None;
            }
            Some(_) | None => {
                primary.open = false;
                primary.lost.get_or_insert(at);
            }
        }
    }

    fn note_replica(&self, replica: &ReplicaServer, standing: Standing) {
        let lag = if standing.fault.is_empty() {
            self.lag(&standing)
        } else {
            None
        };
        meter::replica_lag(&replica.at.to_string(), lag);
        let standing = Arc::new(standing);
        let before = replica.standing.swap(standing.clone());
        if before.fault != standing.fault {
            let server = replica.at.to_string();
            if standing.fault.is_empty() {
                tracing::info!(server, "a replica may answer reads");
            } else {
                tracing::warn!(
                    server,
                    reason = standing.fault,
                    "a replica answers no reads"
                );
            }
        }
    }

    fn source_uuid(&self) -> Option<String> {
        self.primary.lock().server_uuid.clone()
    }

    /// One line for each replica, for the readiness page.
    pub(crate) fn describe(&self) -> Vec<(String, String)> {
        self.replicas
            .iter()
            .map(|r| {
                let standing = r.standing.load();
                let text = match (standing.fault, self.lag(&standing)) {
                    ("", Some(lag)) => format!("at most {} ms behind", lag.as_millis()),
                    ("", None) => "lag unknown".to_owned(),
                    (fault, _) => fault.to_owned(),
                };
                (r.at.to_string(), text)
            })
            .collect()
    }
}

/// What a primary says of itself.
#[derive(Debug)]
struct PrimaryAnswer {
    open: bool,
    server_uuid: String,
    executed: GtidSet,
}

#[cfg(test)]
mod tests;
