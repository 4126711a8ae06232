//! Names, labels and descriptions of all metrics: one table, so that dashboards, alarms and tests have something to
//! compare with. Shops are no label: there may be ten million.

use metrics::Unit;

/// Why: the reason of a 421, a refusal, a retry.
pub const REASON: &str = "reason";
/// Which pod, by id.
pub const POD: &str = "pod";
/// Which pool of connections: `primary`, `batch`, or the address of a replica.
pub const POOL: &str = "pool";
/// An error's kind ([`crate::error::Kind::slug`]).
pub const KIND: &str = "kind";
/// The class of an HTTP status: `2xx` to `5xx`.
pub const STATUS: &str = "status";
/// The template of a route (`/products/{id}`), never a path.
pub const ROUTE: &str = "route";
/// Which layer of a cache: `process` or `redis`.
pub const LAYER: &str = "layer";
/// How something ended.
pub const OUTCOME: &str = "outcome";
/// Which server, by address.
pub const SERVER: &str = "server";
/// The state of a move ([`crate::moves::MoveState::as_str`]).
pub const STATE: &str = "state";
/// What a pod is to a move: `source` or `target`.
pub const SIDE: &str = "side";

#[derive(Debug, Clone, Copy)]
enum Type {
    Counter,
    Gauge,
    Histogram,
}

struct Description {
    name: &'static str,
    of: Type,
    unit: Unit,
    text: &'static str,
}

macro_rules! metrics {
    ($($name:ident = $text:literal, $of:ident, $unit:ident, $help:literal;)*) => {
        $(#[doc = $help] pub const $name: &str = $text;)*
        const ALL: &[Description] = &[
            $(Description { name: $name, of: Type::$of, unit: Unit::$unit, text: $help },)*
        ];
    };
}

metrics! {
    BUILD_INFO = "podhost_build_info", Gauge, Count, "Always 1; the labels say which program and version this is.";

    REQUESTS = "podhost_requests_total", Counter, Count, "Requests answered, by class of status (and route in a pod).";
    REQUEST_SECONDS = "podhost_request_seconds", Histogram, Seconds, "From the request's head to the end of its answer.";
    REQUESTS_IN_FLIGHT = "podhost_requests_in_flight", Gauge, Count, "Requests begun and not yet answered.";
    ERRORS = "podhost_errors_total", Counter, Count, "Errors answered, by kind.";

    PLACEMENT_CACHE_HITS = "podhost_placement_cache_hits_total", Counter, Count, "Look-ups of a placement that the route table (edge) or the cached home (pod) answered.";
    PLACEMENT_CACHE_MISSES = "podhost_placement_cache_misses_total", Counter, Count, "Look-ups of a placement that found none (edge) or had to read the home on the primary (pod).";
    STALE_ROUTE_ANSWERS = "podhost_stale_route_answers_total", Counter, Count, "421 answers by reason: given (pod) or received (edge).";
    FENCE_WAIT_SECONDS = "podhost_fence_wait_seconds", Histogram, Seconds, "How long requests were held because of a fence, by how it ended.";

    ROUTE_VERSION = "podhost_route_version", Gauge, Count, "The catalog's version that the edge's table shows.";
    ROUTE_SHOPS = "podhost_route_shops", Gauge, Count, "Shops in the edge's table.";
    ROUTE_AGE_SECONDS = "podhost_route_age_seconds", Gauge, Seconds, "Since the edge last heard from a control server.";
    ROUTE_TABLES_REFUSED = "podhost_route_tables_refused_total", Counter, Count, "Route tables that were not taken, by reason. More than 0 is an alarm.";
    UPSTREAM_ATTEMPTS = "podhost_upstream_attempts_total", Counter, Count, "Forwarding attempts to pods, by pod and outcome.";
    UPSTREAM_UP = "podhost_upstream_up", Gauge, Count, "1 while a pod's process passes its health checks.";

    CONNECTIONS = "podhost_edge_connections", Gauge, Count, "Connections of clients to the edge.";
    HEADER_TIMEOUTS = "podhost_edge_header_timeouts_total", Counter, Count, "Connections that the edge closed because no whole request header came in time.";
    CLIENTS_GONE = "podhost_edge_clients_gone_total", Counter, Count, "Requests whose client left before the answer ended.";
    LIMITED = "podhost_edge_limited_total", Counter, Count, "Requests refused at a limit on what is in flight, by reason: shop or pod.";
    GIVE_UPS = "podhost_edge_give_ups_total", Counter, Count, "Requests not sent again after a 421, by reason.";
    PARKED = "podhost_edge_parked", Gauge, Count, "Requests that hold a seat while their shop is fenced or its pod has no primary.";
    PARKED_BYTES = "podhost_edge_parked_bytes", Gauge, Bytes, "Bodies kept for parked requests.";
    PARKED_TOTAL = "podhost_edge_parked_total", Counter, Count, "Requests that were parked, by reason: fenced or unready.";
    PARK_REFUSED_AGAIN = "podhost_edge_park_refused_again_total", Counter, Count, "Parked requests that were sent to ask and were refused again.";
    PARK_SENT = "podhost_edge_park_sent_total", Counter, Count, "Parked requests that were sent to their pod, by what for: probe (to ask) or drain (since it takes requests).";
    LOG_LINES_DROPPED = "podhost_edge_log_lines_dropped_total", Counter, Count, "Lines of the access log that nobody took in time.";
    ROUTE_CHANGES = "podhost_route_changes_total", Counter, Count, "Changes applied to the edge's table.";
    CATALOG_FAILURES = "podhost_catalog_failures_total", Counter, Count, "Calls of the edge to control servers that failed.";

    COMMIT_SECONDS = "podhost_commit_seconds", Histogram, Seconds, "Commits of write transactions, the replica's acknowledgement included.";
    COMMIT_UNKNOWN = "podhost_commit_unknown_total", Counter, Count, "Commits whose connection died before the answer, by how they were settled.";
    TRANSACTION_RETRIES = "podhost_transaction_retries_total", Counter, Count, "Write transactions run again, by reason.";
    POOL_WAIT_SECONDS = "podhost_pool_wait_seconds", Histogram, Seconds, "Waiting for a database connection, by pool.";
    POOL_SHED = "podhost_pool_shed_total", Counter, Count, "Requests refused because no connection came free in time, by pool.";
    POOL_CONNECTIONS = "podhost_pool_connections", Gauge, Count, "Open database connections, by pool.";
    IDEMPOTENT_REPLAYS = "podhost_idempotent_replays_total", Counter, Count, "Requests answered from a stored answer.";
    REPLICA_LAG_SECONDS = "podhost_replica_lag_seconds", Gauge, Seconds, "Age of the newest heartbeat on a replica, by server.";
    READS = "podhost_reads_total", Counter, Count, "Reads by the pool that they were sent to.";
    CACHE_HITS = "podhost_cache_hits_total", Counter, Count, "Cache look-ups answered, by layer.";
    CACHE_MISSES = "podhost_cache_misses_total", Counter, Count, "Cache look-ups not answered, by layer.";
    OUTBOX_RELAYED = "podhost_outbox_relayed_total", Counter, Count, "Domain events handed to the sinks.";
    OUTBOX_WAITING = "podhost_outbox_waiting", Gauge, Count, "Domain events not yet handed on.";

    CATALOG_VERSION = "podhost_catalog_version", Gauge, Count, "The catalog's last version.";
    CATALOG_LOOK = "podhost_catalog_look_timestamp_seconds", Gauge, Seconds, "When this control server last looked into the catalog for its gauges, in seconds since 1970. Where it cannot, counts stay as they were, and ages grow on.";
    CATALOG_COMMIT_SECONDS = "podhost_catalog_commit_seconds", Histogram, Seconds, "Changes of the catalog, from the wait for the write lock to the durable commit.";
    LONG_POLLS = "podhost_long_polls", Gauge, Count, "Long polls that wait at the control server.";
    POD_SHOPS = "podhost_pod_shops", Gauge, Count, "Shops by pod, those being made included.";
    PRIMARY_OPEN = "podhost_primary_open", Gauge, Count, "1 while a pod's primary takes writes, as the control server sees it.";
    OPERATIONS_OPEN = "podhost_operations_open", Gauge, Count, "Operations that are neither done nor failed.";

    MOVES_OPEN = "podhost_moves_open", Gauge, Count, "Open moves by state; those in `failed` wait for somebody.";
    MOVES_OLDEST_SECONDS = "podhost_moves_oldest_seconds", Gauge, Seconds, "Age of the oldest open move, since it was ordered.";
    MOVES_STATE_OLDEST_SECONDS = "podhost_moves_state_oldest_seconds", Gauge, Seconds, "How long the move is in its state that is there the longest, by state. In fenced, cutover and aborting the shop's writes may wait.";
    MOVES_WAITING = "podhost_moves_waiting", Gauge, Count, "Open moves that say what they wait for.";
    MOVES_HELD_BACK = "podhost_moves_held_back", Gauge, Count, "Moves of this control server that a replica, a primary or a disk holds back just now; a rest beside shops that sell does not count.";
    MOVES_STRAYS = "podhost_moves_strays", Gauge, Count, "Changes at sources after the fence that nobody has let go: of open moves.";
    POD_MOVES = "podhost_pod_moves", Gauge, Count, "Open moves by pod and side: source or target.";
    POD_LEFTOVERS = "podhost_pod_leftovers", Gauge, Count, "Copies that moves left and that wait to be deleted, by pod.";
    POD_CLEARINGS = "podhost_pod_clearings", Gauge, Count, "Orders to clear rows that no move made (`podctl shop clear`), and that are not done, by pod.";
    CLEARINGS_STRAYS = "podhost_clearings_strays", Gauge, Count, "Changes by somebody else to rows while they are cleared: of orders that are not done.";
    MOVES_ENDED = "podhost_moves_ended_total", Counter, Count, "Moves that this control server brought to an end, by outcome: done, taken_back, aborted, failed (each time).";
    MOVES_FENCES_MISSED = "podhost_moves_fences_missed_total", Counter, Count, "Fences that this control server lifted before the hand-over.";
    MOVES_FENCE_SECONDS = "podhost_moves_fence_seconds", Histogram, Seconds, "From the fence at the source to the target that takes writes, of hand-overs.";
    MOVES_DRAIN_SECONDS = "podhost_moves_drain_seconds", Histogram, Seconds, "How long fences waited for the writes in flight, of hand-overs.";
    MOVES_PARK_SECONDS = "podhost_moves_park_seconds", Histogram, Seconds, "The longest park that an edge told of a fence, lifted ones included.";
}

/// Tells the recorder what each metric is.
pub(super) fn describe() {
    for Description {
        name,
        of,
        unit,
        text,
    } in ALL
    {
        match of {
            Type::Counter => metrics::describe_counter!(*name, *unit, *text),
            Type::Gauge => metrics::describe_gauge!(*name, *unit, *text),
            Type::Histogram => metrics::describe_histogram!(*name, *unit, *text),
        }
    }
}

/// Every name with its description, for documents and tests.
pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    ALL.iter().map(|d| (d.name, d.text))
}

/// The class of a status as a label.
pub const fn status_class(status: u16) -> &'static str {
    match status / 100 {
        1 => "1xx",
        2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        5 => "5xx",
        _ => "other",
    }
}
