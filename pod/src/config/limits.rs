//! The limits, each with its reason. Each has a key in the file, but for [`EXTRA_CONNECTIONS`], which the program itself
//! decides.

use std::time::Duration;

use shared::config::{Section, Size, format_duration};
use shared::pause;

/// Connections from edges at once. An edge keeps some dozens to each process; a connection costs about 20 kB here.
pub const CONNECTIONS: usize = 4_096;
/// From the end of one request to the end of the next one's head on a connection, idle time included: longer than an
/// edge keeps an idle connection, so that it is the edge that closes it and no request meets a closing one.
pub const HEAD_TIME: Duration = Duration::from_secs(75);
/// Room for a session cookie, forwarded headers and a long query; hyper's own floor is 8 KiB.
pub const HEAD_MAX: Size = Size::kib(64);
/// Header fields. An edge passes on at most a hundred.
pub const HEADERS: usize = 128;
/// A cart of a hundred lines is 10 kB of JSON.
pub const BODY_MAX: Size = Size::kib(256);
/// How long a body may take. A phone in a tunnel has less time than the edge gives it.
pub const BODY_TIME: Duration = Duration::from_secs(5);
/// Of a body that is too large, or that nobody wants, so much is read for [`BODY_TIME`] at most beside the answer: closed
/// earlier, the connection is reset, and the client reads no answer. A photograph in place of a product's text is this
/// large; it costs no memory.
pub const UNREAD_MAX: Size = Size::mib(32);
/// A request as a whole: shorter than the edge's answer deadline, longer than a checkout that waits for its duplicate,
/// its payment and two transactions.
pub const REQUEST: Duration = Duration::from_secs(12);
/// A transaction, from its first packet to the answer to its commit: a fence waits for it.
pub const TRANSACTION: Duration = pause::TRANSACTION;
/// When a mover ends a write (`moves.fence_kill_after` at the control server).
pub const FENCE_KILL_AFTER: Duration = pause::FENCE_KILL_AFTER;
/// A write with all its reruns: no further one begins after this.
pub const WRITE: Duration = Duration::from_secs(4);
/// Reruns of one write. Deadlocks come in pairs; five in a row are an overload.
pub const RERUNS: u32 = 5;
/// How long a duplicate waits for the first request's answer before its 409.
pub const DUPLICATE_WAIT: Duration = Duration::from_secs(2);
/// How long the first step of a two-step call keeps others from taking it up: a payment's own deadline and its last
/// transaction. It is also how long the same request gets 409 after the process that held it was killed.
pub const HOLD: Duration = Duration::from_secs(5);
/// From the signal to the last connection's end; a supervisor gives the fleet 20 s.
pub const DRAIN: Duration = Duration::from_secs(8);
/// How long "not ready" shows before the listeners close: an edge's health checks must have seen it.
pub const DRAIN_NOTICE: Duration = Duration::from_millis(600);

const _: () = assert!(TRANSACTION.as_millis() <= WRITE.as_millis());
const _: () = assert!(WRITE.as_millis() < REQUEST.as_millis());
const _: () = assert!(DRAIN_NOTICE.as_millis() < DRAIN.as_millis());

/// Of requests and transactions.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the constants above say it")]
pub struct Limits {
    pub connections: usize,
    pub head_time: Duration,
    pub head_max: Size,
    pub headers: usize,
    pub body_max: Size,
    pub body_time: Duration,
    pub unread_max: Size,
    pub request: Duration,
    pub transaction: Duration,
    pub write: Duration,
    pub reruns: u32,
    pub duplicate_wait: Duration,
    pub hold: Duration,
    pub drain: Duration,
    pub drain_notice: Duration,
}

const SECOND: Duration = Duration::from_secs(1);
/// As much as the control server takes of its `moves.fence_kill_after`, and a transaction below that.
const KILL_MAX: Duration = Duration::from_secs(9);
const TRANSACTION_MAX: Duration = Duration::from_secs(8);

impl Limits {
    pub(super) fn read(s: &mut Section<'_>) -> Self {
        let limits = Self {
            connections: s.within("connections", CONNECTIONS, 1..=1_000_000),
            head_time: s.or("head_time", HEAD_TIME),
            head_max: s.within("head_max", HEAD_MAX, Size::kib(8)..=Size::mib(1)),
            headers: s.within("headers", HEADERS, 16..=1_024),
            body_max: s.within("body_max", BODY_MAX, Size::kib(1)..=Size::mib(16)),
            body_time: s.or("body_time", BODY_TIME),
            unread_max: s.within("unread_max", UNREAD_MAX, Size::bytes(0)..=Size::mib(1024)),
            request: s.or("request", REQUEST),
            // MySQL's wait_timeout counts whole seconds.
            transaction: s.within("transaction", TRANSACTION, SECOND..=TRANSACTION_MAX),
            write: s.or("write", WRITE),
            reruns: s.within("reruns", RERUNS, 0..=100),
            duplicate_wait: s.or("duplicate_wait", DUPLICATE_WAIT),
            hold: s.or("hold", HOLD),
            drain: s.or("drain", DRAIN),
            drain_notice: s.or("drain_notice", DRAIN_NOTICE),
        };
        let ended = s.within("fence_kill_after", FENCE_KILL_AFTER, SECOND..=KILL_MAX);
        if limits.transaction >= ended {
            let text = format!(
                "{} is not below limits.fence_kill_after ({}): a move would end writes that are still in time",
                format_duration(limits.transaction),
                format_duration(ended)
            );
            s.fault("transaction", text);
        }
        if limits.write < limits.transaction || limits.write >= limits.request {
            s.fault(
                "write",
                "must be at least `transaction` and less than `request`",
            );
        }
        if limits.drain_notice >= limits.drain {
            s.fault("drain_notice", "must be less than `drain`");
        }
        limits
    }
}

/// Processes of the pod that share its servers, for the sum below.
pub const PROCESSES: u32 = 2;
/// Write transactions at once per process: each holds locks, and a server with two cores does not commit more at once.
pub const WRITE_CONNECTIONS: u32 = 16;
/// Reads of the primary at once per process.
pub const READ_CONNECTIONS: u32 = 16;
/// Reads of each replica at once per process.
pub const REPLICA_CONNECTIONS: u32 = 16;
/// Connections of a process outside of pools: the monitor's, one for killing a session, one for start-up checks, one
/// spare.
pub const EXTRA_CONNECTIONS: u32 = 4;
/// What a server keeps for operators, replication, migrations and movers.
pub const RESERVED_CONNECTIONS: u32 = 20;
/// Waiting for a connection: a rush on one product commits its buyers one after the other, some hundred in a second.
pub const POOL_WAIT: Duration = Duration::from_secs(1);
/// Requests that may wait for a connection of a pool; more are shed at once. In a second no more get one.
pub const POOL_QUEUE: u32 = 1_024;
/// Requests of one shop that may wait for its share of a pool.
pub const SHOP_QUEUE: u32 = 256;
/// Connecting and logging in, over a network and with TLS.
pub const CONNECT: Duration = Duration::from_secs(1);
/// A ping of an idle connection.
pub const PING: Duration = Duration::from_millis(250);
/// How long an unused connection is kept.
pub const IDLE: Duration = Duration::from_secs(60);
/// How old a connection gets: the server's memory for one grows.
pub const LIFE: Duration = Duration::from_secs(30 * 60);
/// Part of a pool of the primary that one shop may hold, in percent.
pub const SHOP_SHARE: u32 = 50;

/// Of connections to the servers.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the constants above say it")]
pub struct Pools {
    pub processes: u32,
    pub write: u32,
    pub read: u32,
    pub replica: u32,
    pub reserved: u32,
    pub wait: Duration,
    pub queue: u32,
    pub shop_queue: u32,
    pub connect: Duration,
    pub ping: Duration,
    pub idle: Duration,
    pub life: Duration,
    pub shop_share_percent: u32,
}

impl Pools {
    pub(super) fn read(s: &mut Section<'_>) -> Self {
        Self {
            processes: s.within("processes", PROCESSES, 1..=1_000),
            write: s.within("write", WRITE_CONNECTIONS, 1..=1_000),
            read: s.within("read", READ_CONNECTIONS, 1..=1_000),
            replica: s.within("replica", REPLICA_CONNECTIONS, 1..=1_000),
            reserved: s.within("reserved", RESERVED_CONNECTIONS, 0..=10_000),
            wait: s.or("wait", POOL_WAIT),
            queue: s.within("queue", POOL_QUEUE, 1..=1_000_000),
            shop_queue: s.within("shop_queue", SHOP_QUEUE, 1..=1_000_000),
            connect: s.or("connect", CONNECT),
            ping: s.or("ping", PING),
            idle: s.or("idle", IDLE),
            life: s.or("life", LIFE),
            shop_share_percent: s.within("shop_share_percent", SHOP_SHARE, 1..=100),
        }
    }

    /// How many connections of a pool one shop may hold: its share, and at least one.
    pub(crate) fn per_shop(&self, pool: u32) -> u32 {
        (pool * self.shop_share_percent).div_ceil(100).max(1)
    }

    /// What all processes of the pod may open at the primary, together.
    pub(crate) const fn at_primary(&self) -> u32 {
        self.processes * (self.write + self.read + EXTRA_CONNECTIONS) + self.reserved
    }

    /// What all processes of the pod may open at a replica, together.
    pub(crate) const fn at_replica(&self) -> u32 {
        self.processes * (self.replica + EXTRA_CONNECTIONS) + self.reserved
    }
}

/// How old the home may be by which a replica's or a cached answer is given: the design's one second.
pub const HOME_AGE: Duration = Duration::from_secs(1);
/// How far a replica may be behind to answer `eventual` reads. With a cache entry's own second it makes the two seconds
/// that the interface promises for `available`.
pub const LAG_MAX: Duration = Duration::from_secs(1);
/// How often servers are asked how they are.
pub const POLL: Duration = Duration::from_millis(300);
/// How long replicas that were in band go on answering `eventual` reads when the primary is lost: a failover takes
/// seconds; a pod without a primary for longer needs an operator, and old prices should not be shown for ever.
pub const ORPHAN: Duration = Duration::from_secs(5 * 60);
/// Memory of the cache in a process.
pub const CACHE_BYTES: Size = Size::mib(32);
/// How long a look-up in Redis may take: it is there to be quicker than the database.
pub const REDIS_WAIT: Duration = Duration::from_millis(50);

/// Of reads and the cache.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the constants above say it")]
pub struct Reads {
    pub home_age: Duration,
    pub lag_max: Duration,
    pub poll: Duration,
    pub orphan: Duration,
    pub cache_bytes: Size,
    pub redis_wait: Duration,
}

impl Reads {
    pub(super) fn read(s: &mut Section<'_>) -> Self {
        let reads = Self {
            home_age: s.within("home_age", HOME_AGE, Duration::from_millis(10)..=HOME_AGE),
            lag_max: s.or("lag_max", LAG_MAX),
            poll: s.within("poll", POLL, Duration::from_millis(50)..=SECOND),
            orphan: s.or("orphan", ORPHAN),
            cache_bytes: s.or("cache_bytes", CACHE_BYTES),
            redis_wait: s.or("redis_wait", REDIS_WAIT),
        };
        if reads.lag_max < reads.poll * 2 {
            s.fault(
                "lag_max",
                "must be at least twice `poll`: lag is only known that well",
            );
        }
        reads
    }
}

/// How often the relay looks for events when nothing woke it.
pub const RELAY_EVERY: Duration = Duration::from_millis(200);
/// Events of one shop in one go: bounds the transaction that marks them.
pub const RELAY_BATCH: u32 = 100;
/// How long relayed events are kept, so that they can be replayed.
pub const EVENTS_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// Entries that the Redis stream keeps at least; older ones are in the database for days.
pub const STREAM_LEN: u32 = 100_000;
/// How long answers are kept under their keys.
pub const KEYS_KEPT: Duration = Duration::from_secs(24 * 3600);
/// How often old events and keys are looked for.
pub const CLEAN_EVERY: Duration = Duration::from_secs(60);
/// Rows deleted in one transaction: some milliseconds of work, and replicas apply it as fast.
pub const CLEAN_BATCH: u32 = 500;
/// How long a process keeps the relay or the jobs without renewing: longer than a pause, shorter than anyone waits for
/// an event.
pub const LEASE: Duration = Duration::from_secs(5);

/// Of the relay, the jobs and the clean-ups.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the constants above say it")]
pub struct Background {
    pub relay_every: Duration,
    pub relay_batch: u32,
    pub events_kept: Duration,
    pub stream_len: u32,
    pub keys_kept: Duration,
    pub clean_every: Duration,
    pub clean_batch: u32,
    pub lease: Duration,
}

impl Background {
    pub(super) fn read(s: &mut Section<'_>) -> Self {
        Self {
            relay_every: s.within(
                "relay_every",
                RELAY_EVERY,
                Duration::from_millis(10)..=SECOND * 60,
            ),
            relay_batch: s.within("relay_batch", RELAY_BATCH, 1..=1_000),
            events_kept: s.or("events_kept", EVENTS_KEPT),
            stream_len: s.within("stream_len", STREAM_LEN, 1..=100_000_000),
            keys_kept: s.or("keys_kept", KEYS_KEPT),
            clean_every: s.or("clean_every", CLEAN_EVERY),
            clean_batch: s.within("clean_batch", CLEAN_BATCH, 1..=10_000),
            lease: s.within("lease", LEASE, SECOND * 2..=SECOND * 60),
        }
    }
}
