//! How much a move may take: sizes, times, rates, each with its reason. The `[moves]` table of `control.toml`.

use std::time::Duration;

use super::session::READ_LIMIT;
use shared::config::{Section, Size, format_duration};
use shared::pause::{self, FENCE_BOUND, FENCE_KILL_AFTER, LEASE, PAUSE_BOUND};

/// A chunk's transaction holds its rows' locks at the target and delays its replicas for that long.
const CHUNK_TIME: Duration = Duration::from_millis(100);
/// The smallest chunk: below it the statements and their commits cost more than the rows (2 ms of a core, tried).
const CHUNK_ROWS_MIN: u64 = 500;
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
/// Keys that changed since they were compared, in memory, some hundred bytes each: where more wait, the comparison begins anew.
const TOUCHED_KEYS_MAX: u64 = 300_000;
/// Fences that missed before the move fails.
const FENCE_TRIES: u32 = 20;
/// Between two tries; it grows from here.
const FENCE_RETRY: Duration = Duration::from_secs(2);
/// A feed that gains nothing on its shop's writers for that long never will.
const CONVERGE_BOUND: Duration = Duration::from_secs(600);
/// One answer to a question of `move_check`, which joins all rows of a shop; it is given up after some that took longer.
const CHECK_BOUND: Duration = Duration::from_secs(300);
/// A replica that is further behind stops the copying: its reads would be refused by then.
const REPLICA_LAG_MAX: Duration = Duration::from_secs(1);
/// Statements running at once at a primary (`Threads_running`) above which copying waits.
const THREADS_RUNNING_MAX: u64 = 48;
/// Beside shops that sell, a piece of work is followed by a rest so many times as long: a fifth of the time is the move's.
const NICE_RATIO: u32 = 4;
/// Free disk, as a share of the disk, below which copying waits; in percent.
const DISK_FREE_MIN_PERCENT: u8 = 10;
/// How long copying waits for the throttle before the reason is noted with the move.
const THROTTLE_BOUND: Duration = Duration::from_secs(600);
/// Open moves that copy, at a pod and in all, of one control server.
const MOVES_PER_POD: usize = 2;
const MOVES_MAX: usize = 8;
/// Moves of one source that are observed at once: each holds a connection to its primary, which has 200 of them
/// (`my.cnf`), most of them its pod's.
const OBSERVED_PER_POD: usize = 16;
/// Fences at once of one control server: each parks requests at every edge.
const FENCES_MAX: usize = 2;
/// How often a move notes, at the target and in the catalog, how far comparing, applying and observing have come: whoever takes
/// it up repeats little more than that. Each note is a small transaction.
const NOTE_EVERY: Duration = Duration::from_secs(5);
/// How long the source's copy is kept after a cutover, unless the move says otherwise.
const OBSERVE: Duration = Duration::from_secs(900);
/// How long the dump of the source's rows is kept.
const DUMPS_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// The limits of moves.
#[derive(Debug, Clone)]
#[expect(
    missing_docs,
    reason = "each is described at its default, above or in `shared::pause`"
)]
pub struct MoveLimits {
    pub chunk_time: Duration,
    pub chunk_rows_min: u64,
    pub chunk_rows_max: u64,
    pub chunk_bytes_max: Size,
    pub streams: usize,
    pub keys_bytes_max: Size,
    pub fence_keys_max: u64,
    pub touched_keys_max: u64,
    pub fence_bound: Duration,
    pub fence_kill_after: Duration,
    pub pause_bound: Duration,
    pub fence_tries: u32,
    pub fence_retry: Duration,
    pub converge_bound: Duration,
    pub check_bound: Duration,
    pub replica_lag_max: Duration,
    pub threads_running_max: u64,
    pub nice_ratio: u32,
    pub disk_free_min_percent: u8,
    pub throttle_bound: Duration,
    pub moves_per_pod: usize,
    pub moves_max: usize,
    pub observed_per_pod: usize,
    pub fences_max: usize,
    pub note_every: Duration,
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
            touched_keys_max: TOUCHED_KEYS_MAX,
            fence_bound: FENCE_BOUND,
            fence_kill_after: FENCE_KILL_AFTER,
            pause_bound: PAUSE_BOUND,
            fence_tries: FENCE_TRIES,
            fence_retry: FENCE_RETRY,
            converge_bound: CONVERGE_BOUND,
            check_bound: CHECK_BOUND,
            replica_lag_max: REPLICA_LAG_MAX,
            threads_running_max: THREADS_RUNNING_MAX,
            nice_ratio: NICE_RATIO,
            disk_free_min_percent: DISK_FREE_MIN_PERCENT,
            throttle_bound: THROTTLE_BOUND,
            moves_per_pod: MOVES_PER_POD,
            moves_max: MOVES_MAX,
            observed_per_pod: OBSERVED_PER_POD,
            fences_max: FENCES_MAX,
            note_every: NOTE_EVERY,
            lease: LEASE,
            observe: OBSERVE,
            dumps_kept: DUMPS_KEPT,
        }
    }
}

impl MoveLimits {
    /// Reads the `[moves]` table.
    pub(crate) fn read(s: &mut Section<'_>) -> Self {
        let (ms, second) = (Duration::from_millis(1), Duration::from_secs(1));
        let (hour, day) = (3600 * second, 24 * 3600 * second);
        let limits = Self {
            chunk_time: s.within("chunk_time", CHUNK_TIME, 10 * ms..=second),
            chunk_rows_min: s.within("chunk_rows_min", CHUNK_ROWS_MIN, 1..=10_000),
            chunk_rows_max: s.within("chunk_rows_max", CHUNK_ROWS_MAX, 1..=1_000_000),
            chunk_bytes_max: s.within(
                "chunk_bytes_max",
                CHUNK_BYTES_MAX,
                Size::kib(64)..=Size::mib(256),
            ),
            streams: s.within("streams", STREAMS, 1..=32),
            keys_bytes_max: s.within(
                "keys_bytes_max",
                KEYS_BYTES_MAX,
                Size::kib(64)..=Size::mib(4096),
            ),
            fence_keys_max: s.within("fence_keys_max", FENCE_KEYS_MAX, 1..=1_000_000),
            touched_keys_max: s.within("touched_keys_max", TOUCHED_KEYS_MAX, 100..=10_000_000),
            fence_bound: s.within("fence_bound", FENCE_BOUND, second..=9 * second),
            fence_kill_after: s.within("fence_kill_after", FENCE_KILL_AFTER, second..=9 * second),
            pause_bound: s.within("pause_bound", PAUSE_BOUND, second..=9 * second),
            fence_tries: s.within("fence_tries", FENCE_TRIES, 1..=1_000),
            fence_retry: s.within("fence_retry", FENCE_RETRY, 10 * ms..=hour),
            converge_bound: s.within("converge_bound", CONVERGE_BOUND, second..=day),
            // Below what a server gives any statement of a mover.
            check_bound: s.within("check_bound", CHECK_BOUND, second..=READ_LIMIT),
            replica_lag_max: s.within("replica_lag_max", REPLICA_LAG_MAX, 100 * ms..=hour),
            threads_running_max: s.within("threads_running_max", THREADS_RUNNING_MAX, 1..=100_000),
            nice_ratio: s.within("nice_ratio", NICE_RATIO, 0..=100),
            // At a hundred no disk would ever do: nothing is copied while that holds.
            disk_free_min_percent: s.within(
                "disk_free_min_percent",
                DISK_FREE_MIN_PERCENT,
                0..=100,
            ),
            throttle_bound: s.within("throttle_bound", THROTTLE_BOUND, second..=day),
            moves_per_pod: s.within("moves_per_pod", MOVES_PER_POD, 1..=1_000),
            moves_max: s.within("moves_max", MOVES_MAX, 1..=10_000),
            observed_per_pod: s.within("observed_per_pod", OBSERVED_PER_POD, 1..=1_000),
            fences_max: s.within("fences_max", FENCES_MAX, 1..=1_000),
            note_every: s.within("note_every", NOTE_EVERY, 100 * ms..=60 * second),
            lease: s.within("lease", LEASE, 500 * ms..=LEASE),
            observe: s.within("observe", OBSERVE, Duration::ZERO..=30 * day),
            dumps_kept: s.within("dumps_kept", DUMPS_KEPT, Duration::ZERO..=366 * day),
        };
        if limits.chunk_rows_min > limits.chunk_rows_max {
            s.fault("chunk_rows_min", "is above chunk_rows_max");
        }
        if limits.fence_keys_max > limits.touched_keys_max {
            s.fault("fence_keys_max", "is above touched_keys_max");
        }
        limits.check_pause(s);
        limits
    }

    /// A write, the fence that waits for it, the pause around both and the edges' window: each within the next. (What pods
    /// and edges have is theirs to configure; they refuse what does not fit what they are told of a move.)
    fn check_pause(&self, s: &Section<'_>) {
        let within = [
            (
                ("fence_kill_after", self.fence_kill_after),
                ("a pod's limits.transaction", pause::TRANSACTION),
                "writes that are still in time would be ended",
            ),
            (
                ("fence_bound", self.fence_bound),
                ("fence_kill_after", self.fence_kill_after),
                "nothing would ever be ended in time",
            ),
            (
                ("pause_bound", self.pause_bound),
                ("fence_bound", self.fence_bound),
                "there would be no time to hand the shop over, nor to say why a fence missed",
            ),
        ];
        for ((key, value), (of, least), why) in within {
            if value <= least {
                let (value, least) = (format_duration(value), format_duration(least));
                s.fault(key, format!("{value} is not above {of} ({least}): {why}"));
            }
        }
        if self.pause_bound + self.lease > pause::WINDOW {
            let [pause, lease, window] =
                [self.pause_bound, self.lease, pause::WINDOW].map(format_duration);
            let text = format!(
                "{pause} and lease ({lease}) are more than the time for which an edge parks requests ({window}): a pause \
                 whose control server dies would outlast it"
            );
            s.fault("pause_bound", text);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use shared::config;

    use super::*;

    fn faults(moves: &str) -> String {
        let read = config::parse(Path::new("control.toml"), moves, |s| {
            Some(MoveLimits::read(s))
        });
        read.err().map(|it| it.to_string()).unwrap_or_default()
    }

    /// Limits that depend on one another are told with both values.
    #[test]
    fn inv9_a_write_a_fence_a_pause_and_a_window_are_each_within_the_next() {
        for (moves, fault) in [
            (
                "fence_kill_after = '2s'",
                "fence_kill_after: 2s is not above a pod's limits.transaction (2s)",
            ),
            (
                "fence_bound = '2200ms'",
                "fence_bound: 2200ms is not above fence_kill_after (2200ms)",
            ),
            (
                "pause_bound = '4s'",
                "pause_bound: 4s is not above fence_bound (4s)",
            ),
            (
                "pause_bound = '8s'",
                "pause_bound: 8s and lease (3s) are more than the time for which an edge parks requests (10s)",
            ),
        ] {
            let told = faults(moves);
            assert!(told.contains(fault), "{moves}: {told}");
        }
        for good in [
            "",
            "pause_bound = '7s'",
            "pause_bound = '9s'\nlease = '1s'",
            "fence_kill_after = '3500ms'",
            "fence_bound = '3s'\npause_bound = '3100ms'",
        ] {
            assert_eq!(faults(good), "", "{good}");
        }
    }
}
