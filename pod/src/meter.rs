//! The pod's metrics: one function for each thing that is counted, by the names in [`shared::telemetry::metric`].

use std::time::Duration;

use metrics::{counter, gauge, histogram};
use shared::error::Kind;
use shared::telemetry::metric;
use shared::wire::Fence;

pub(crate) fn request(route: &str, status: u16, took: Duration) {
    let labels = [
        (metric::ROUTE, route.to_owned()),
        (metric::STATUS, metric::status_class(status).to_owned()),
    ];
    counter!(metric::REQUESTS, &labels).increment(1);
    histogram!(metric::REQUEST_SECONDS, metric::ROUTE => route.to_owned()).record(took);
}

pub(crate) fn in_flight(change: i32) {
    gauge!(metric::REQUESTS_IN_FLIGHT).increment(f64::from(change));
}

pub(crate) fn problem(kind: Kind) {
    counter!(metric::ERRORS, metric::KIND => kind.slug()).increment(1);
}

pub(crate) fn fenced(fence: &Fence) {
    counter!(metric::STALE_ROUTE_ANSWERS, metric::REASON => fence.reason()).increment(1);
}

pub(crate) fn pool_wait(pool: &'static str, waited: Duration, served: bool) {
    histogram!(metric::POOL_WAIT_SECONDS, metric::POOL => pool).record(waited);
    if !served {
        counter!(metric::POOL_SHED, metric::POOL => pool).increment(1);
    }
}

pub(crate) fn pool_size(pool: &'static str, open: usize) {
    gauge!(metric::POOL_CONNECTIONS, metric::POOL => pool)
        .set(f64::from(u32::try_from(open).unwrap_or(u32::MAX)));
}

pub(crate) fn commit(took: Duration) {
    histogram!(metric::COMMIT_SECONDS).record(took);
}

/// How long the first round trip took, which is all a write waits for a fence: `nowait` never queues.
pub(crate) fn fence_wait(took: Duration, outcome: &'static str) {
    histogram!(metric::FENCE_WAIT_SECONDS, metric::OUTCOME => outcome).record(took);
}

pub(crate) fn commit_settled(settled: bool) {
    let outcome = if settled { "settled" } else { "unsettled" };
    counter!(metric::COMMIT_UNKNOWN, metric::OUTCOME => outcome).increment(1);
}

pub(crate) fn rerun(reason: &'static str) {
    counter!(metric::TRANSACTION_RETRIES, metric::REASON => reason).increment(1);
}

pub(crate) fn replayed() {
    counter!(metric::IDEMPOTENT_REPLAYS).increment(1);
}

pub(crate) fn read(pool: &'static str) {
    counter!(metric::READS, metric::POOL => pool).increment(1);
}

pub(crate) fn home_cached(hit: bool) {
    if hit {
        counter!(metric::PLACEMENT_CACHE_HITS).increment(1);
    } else {
        counter!(metric::PLACEMENT_CACHE_MISSES).increment(1);
    }
}

pub(crate) fn cache(layer: &'static str, hit: bool) {
    if hit {
        counter!(metric::CACHE_HITS, metric::LAYER => layer).increment(1);
    } else {
        counter!(metric::CACHE_MISSES, metric::LAYER => layer).increment(1);
    }
}

pub(crate) fn replica_lag(server: &str, lag: Option<Duration>) {
    gauge!(metric::REPLICA_LAG_SECONDS, metric::SERVER => server.to_owned())
        .set(lag.map_or(f64::INFINITY, |l| l.as_secs_f64()));
}

pub(crate) fn relayed(events: usize) {
    counter!(metric::OUTBOX_RELAYED).increment(events as u64);
}

pub(crate) fn events_waiting(events: i64) {
    #[expect(clippy::cast_precision_loss, reason = "a gauge")]
    gauge!(metric::OUTBOX_WAITING).set(events as f64);
}
