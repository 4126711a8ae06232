//! How much a move may take: sizes, times, rates, each with its reason. The `[moves]` table of `control.toml`.

use std::time::Duration;

use shared::config::Size;

/// A chunk's transaction holds its rows' locks at the target and delays its replicas for that long.
const CHUNK_TIME: Duration = Duration::from_millis(100);
/// The smallest chunk: below it the statements cost more than the rows.
const CHUNK_ROWS_MIN: u64 = 100;
/// The largest chunk: a fingerprint of it is one statement, and so is the difference of two.
const CHUNK_ROWS_MAX: u64 = 20_000;
/// What a chunk may hold in memory; one row that is larger goes alone.
const CHUNK_BYTES_MAX: Size = Size::mib(8);
/// Streams of one copy: more than a small server has cores would starve its buyers.
const STREAMS: usize = 3;
/// Changed keys in memory, of all tables; more go to a file.
const KEYS_BYTES_MAX: Size = Size::mib(64);
/// What may be left to apply when a fence closes: what the pause can take at a thousand keys in some tens of milliseconds.
const FENCE_KEYS_MAX: u64 = 1_000;
/// How long a fence waits for the writes in flight; above the longest write (2 s), below the park window (10 s).
const FENCE_BOUND: Duration = Duration::from_secs(5);
/// All of fence and cutover, seen by a parked request; past it the fence is lifted and tried again later.
const PAUSE_BOUND: Duration = Duration::from_secs(5);
/// Fences that missed before the move fails.
const FENCE_TRIES: u32 = 20;
/// Between two tries; it grows from here.
const FENCE_RETRY: Duration = Duration::from_secs(2);
/// A feed that gains nothing on its shop's writers for that long never will.
const CONVERGE_BOUND: Duration = Duration::from_secs(600);
/// A replica that is further behind stops the copying: its reads would be refused by then.
const REPLICA_LAG_MAX: Duration = Duration::from_secs(1);
/// Statements running at once at a primary (`Threads_running`) above which copying waits.
const THREADS_RUNNING_MAX: u64 = 48;
/// Free disk, as a share of the disk, below which copying waits; in percent.
const DISK_FREE_MIN_PERCENT: u8 = 10;
/// How long copying waits for the throttle before it says why.
const THROTTLE_BOUND: Duration = Duration::from_secs(600);
/// Open moves that copy, at a pod and in the fleet.
const MOVES_PER_POD: usize = 2;
const MOVES_MAX: usize = 8;
/// Fences at once in the fleet: each parks requests at every edge.
const FENCES_MAX: usize = 2;
/// A holder that does not renew for that long is dead or cut off: half of the park window is left for the next one.
const LEASE: Duration = Duration::from_secs(3);
/// How long A's copy is kept after a cutover, unless the move says otherwise.
const OBSERVE: Duration = Duration::from_secs(900);
/// How long the dump of A's rows is kept.
const DUMPS_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// The limits of moves.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "each is described at its default above")]
pub struct MoveLimits {
    pub chunk_time: Duration,
    pub chunk_rows_min: u64,
    pub chunk_rows_max: u64,
    pub chunk_bytes_max: Size,
    pub streams: usize,
    pub keys_bytes_max: Size,
    pub fence_keys_max: u64,
    pub fence_bound: Duration,
    pub pause_bound: Duration,
    pub fence_tries: u32,
    pub fence_retry: Duration,
    pub converge_bound: Duration,
    pub replica_lag_max: Duration,
    pub threads_running_max: u64,
    pub disk_free_min_percent: u8,
    pub throttle_bound: Duration,
    pub moves_per_pod: usize,
    pub moves_max: usize,
    pub fences_max: usize,
    pub lease: Duration,
    pub observe: Duration,
    pub dumps_kept: Duration,
}

impl Default for MoveLimits {
    fn default() -> Self {
        Self {
            chunk_time: CHUNK_TIME,
            chunk_rows_min: CHUNK_ROWS_MIN,
            chunk_rows_max: CHUNK_ROWS_MAX,
            chunk_bytes_max: CHUNK_BYTES_MAX,
            streams: STREAMS,
            keys_bytes_max: KEYS_BYTES_MAX,
            fence_keys_max: FENCE_KEYS_MAX,
            fence_bound: FENCE_BOUND,
            pause_bound: PAUSE_BOUND,
            fence_tries: FENCE_TRIES,
            fence_retry: FENCE_RETRY,
            converge_bound: CONVERGE_BOUND,
            replica_lag_max: REPLICA_LAG_MAX,
            threads_running_max: THREADS_RUNNING_MAX,
            disk_free_min_percent: DISK_FREE_MIN_PERCENT,
            throttle_bound: THROTTLE_BOUND,
            moves_per_pod: MOVES_PER_POD,
            moves_max: MOVES_MAX,
            fences_max: FENCES_MAX,
            lease: LEASE,
            observe: OBSERVE,
            dumps_kept: DUMPS_KEPT,
        }
    }
}
