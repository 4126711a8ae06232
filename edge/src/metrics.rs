//! What the edge counts. Handles are made once: a look-up by label on each request would cost more than the counting.

use std::net::SocketAddr;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use shared::PodId;
use shared::error::Kind;
use shared::telemetry::metric;
use shared::wire::Fence;

use crate::retry::Why;

/// Of the edge as a whole.
pub(crate) struct Metrics {
    pub(crate) route_hits: Counter,
    pub(crate) route_misses: Counter,
    errors: Vec<(Kind, Counter)>,
    fences: [Counter; 4],
    give_ups: [(Why, Counter); Why::ALL.len()],
    pub(crate) limited_shop: Counter,
    pub(crate) limited_pod: Counter,
    pub(crate) connections: Gauge,
    pub(crate) header_timeouts: Counter,
    pub(crate) clients_gone: Counter,
    /// Requests that reached no pod: their shop is unknown, or they are malformed.
    pub(crate) podless: Answers,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let limited = |what| counter!(metric::LIMITED, metric::REASON => what);
        let fence = |reason| counter!(metric::STALE_ROUTE_ANSWERS, metric::REASON => reason);
        let error = |kind: Kind| counter!(metric::ERRORS, metric::KIND => kind.slug());
        let give_up = |why: Why| counter!(metric::GIVE_UPS, metric::REASON => why.as_str());
        Self {
            route_hits: counter!(metric::PLACEMENT_CACHE_HITS),
            route_misses: counter!(metric::PLACEMENT_CACHE_MISSES),
            errors: Kind::ALL.map(|kind| (kind, error(kind))).into(),
            fences: ["moved", "fenced", "stale", "unready"].map(fence),
            give_ups: Why::ALL.map(|why| (why, give_up(why))),
            limited_shop: limited("shop"),
            limited_pod: limited("pod"),
            connections: gauge!(metric::CONNECTIONS),
            header_timeouts: counter!(metric::HEADER_TIMEOUTS),
            clients_gone: counter!(metric::CLIENTS_GONE),
            podless: Answers::new("none"),
        }
    }

    /// An answer of the edge's own.
    pub(crate) fn error(&self, kind: Kind) {
        if let Some((_, counter)) = self.errors.iter().find(|(k, _)| *k == kind) {
            counter.increment(1);
        }
    }

    /// A pod said "not here".
    pub(crate) fn fence(&self, fence: Fence) {
        let index = match fence {
            Fence::Moved { .. } => 0,
            Fence::Fenced => 1,
            Fence::Stale { .. } => 2,
            Fence::Unready => 3,
        };
        self.fences[index].increment(1);
    }

    /// A request was not sent again.
    pub(crate) fn give_up(&self, why: Why) {
        if let Some((_, counter)) = self.give_ups.iter().find(|(w, _)| *w == why) {
            counter.increment(1);
        }
    }
}

/// Answers to clients, by class of status.
pub(crate) struct Answers([Counter; 5]);

impl Answers {
    fn new(pod: &str) -> Self {
        // In the order of the classes: 1xx to 5xx.
        Self([100, 200, 300, 400, 500].map(|status| {
            let class = metric::status_class(status);
            counter!(metric::REQUESTS, metric::POD => pod.to_owned(), metric::STATUS => class)
        }))
    }

    pub(crate) fn count(&self, status: u16) {
        let class = usize::from(status / 100).clamp(1, 5) - 1;
        self.0[class].increment(1);
    }
}

/// Of one pod.
pub(crate) struct PodMetrics {
    /// Requests for its shops, whoever answered.
    pub(crate) answers: Answers,
    pub(crate) seconds: Histogram,
    pub(crate) in_flight: Gauge,
    /// A pod answered.
    pub(crate) answered: Counter,
    /// A pod said "not here".
    pub(crate) misdirected: Counter,
    /// No connection.
    pub(crate) unconnected: Counter,
    /// Connected, and then no whole answer.
    pub(crate) broken: Counter,
}

impl PodMetrics {
    pub(crate) fn new(pod: PodId) -> Self {
        let pod = pod.to_string();
        let attempt = |outcome| counter!(metric::UPSTREAM_ATTEMPTS, metric::POD => pod.clone(), metric::OUTCOME => outcome);
        Self {
            answers: Answers::new(&pod),
            answered: attempt("answered"),
            misdirected: attempt("misdirected"),
            unconnected: attempt("unconnected"),
            broken: attempt("broken"),
            seconds: histogram!(metric::REQUEST_SECONDS, metric::POD => pod.clone()),
            in_flight: gauge!(metric::REQUESTS_IN_FLIGHT, metric::POD => pod),
        }
    }
}

/// Whether a process passes its health checks.
pub(crate) fn process_up(pod: PodId, address: SocketAddr) -> Gauge {
    let (pod, server) = (pod.to_string(), address.to_string());
    gauge!(metric::UPSTREAM_UP, metric::POD => pod, metric::SERVER => server)
}

/// Of the route table.
pub(crate) struct RouteMetrics {
    pub(crate) version: Gauge,
    pub(crate) shops: Gauge,
    pub(crate) age: Gauge,
    pub(crate) changes: Counter,
    pub(crate) failures: Counter,
}

impl RouteMetrics {
    pub(crate) fn new() -> Self {
        Self {
            version: gauge!(metric::ROUTE_VERSION),
            shops: gauge!(metric::ROUTE_SHOPS),
            age: gauge!(metric::ROUTE_AGE_SECONDS),
            changes: counter!(metric::ROUTE_CHANGES),
            failures: counter!(metric::CATALOG_FAILURES),
        }
    }
}

/// A table that was not taken, over the network or from disk.
pub(crate) fn table_refused(reason: &'static str) {
    counter!(metric::ROUTE_TABLES_REFUSED, metric::REASON => reason).increment(1);
}

/// Lines of the access log that nobody took in time.
pub(crate) fn log_lines_dropped() -> Counter {
    counter!(metric::LOG_LINES_DROPPED)
}
