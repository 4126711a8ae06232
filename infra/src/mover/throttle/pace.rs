//! Rests: beside shops that sell, a move works in small pieces and leaves its servers alone after each for a multiple of
//! what it took (the nice ratio of gh-ost). Otherwise whoever shares a core or a disk with it waits for it.
//!
//! That shops sell is seen by their transactions: those that a primary has executed, less those of this server's moves. What
//! only reads is not seen; pods answer most of it from their caches.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Transactions of others are counted over so long: shops that sell now and then are shops that sell.
const OVER: Duration = Duration::from_secs(3);
/// So many in that time are no shop's: a pod renews leases by itself, and what a move has under way between two looks is
/// counted a look too late. Three a second are a shop that hardly sells.
const FEW: u64 = 9;
/// A piece of work takes this part of a chunk's time beside others: a client waits behind one at the most, now and then.
const PART: u32 = 4;
/// The longest rest that is owed, of all streams.
const REST_MAX: Duration = Duration::from_secs(2);

/// What all streams of one job owe. Begins as if shops sold, until it is known.
#[derive(Debug)]
pub(super) struct Pace {
    ratio: u32,
    /// A chunk's time.
    whole: Duration,
    pods: Mutex<Vec<Arc<AtomicBool>>>,
    until: Mutex<Until>,
}

/// Until when nothing is begun.
#[derive(Debug, Clone, Copy)]
struct Until {
    /// Rests that are owed.
    rested: Instant,
    /// A piece is under way; one that does not tell of its end counts for as long as it should have taken.
    worked: Instant,
}

impl Pace {
    pub(super) fn new(ratio: u32, whole: Duration) -> Self {
        Self {
            ratio,
            whole,
            pods: Mutex::default(),
            until: Mutex::new(Until {
                rested: Instant::now(),
                worked: Instant::now(),
            }),
        }
    }

    /// One more pod whose shops count.
    pub(super) fn pod(&self) -> Others {
        let sells = Arc::new(AtomicBool::new(true));
        self.pods.lock().push(Arc::clone(&sells));
        Others {
            sells,
            seen: VecDeque::new(),
        }
    }

    fn is_gentle(&self) -> bool {
        let pods = self.pods.lock();
        self.ratio > 0 && pods.iter().any(|sells| sells.load(Ordering::Relaxed))
    }

    /// The time that a piece of work shall take.
    pub(super) fn piece(&self) -> Duration {
        if self.is_gentle() {
            self.whole / PART
        } else {
            self.whole
        }
    }

    /// Work that took so long owes a rest: of all streams together, since it was all of them that a server felt. What took
    /// longer than a piece shall was not work but waiting: for a core that others have, for a lock.
    pub(super) fn worked(&self, took: Duration) {
        if !self.is_gentle() {
            return;
        }
        let now = Instant::now();
        let took = took.min(self.piece());
        let mut until = self.until.lock();
        let rested = until.rested.max(now) + took.saturating_mul(self.ratio);
        *until = Until {
            rested: rested.min(now + REST_MAX),
            worked: now,
        };
    }

    /// How long nothing is to be done; none means that a piece may be begun, which has its time to itself: streams that waited
    /// for the same moment go one after the other.
    pub(super) fn rest(&self) -> Duration {
        if !self.is_gentle() {
            return Duration::ZERO;
        }
        let now = Instant::now();
        let mut until = self.until.lock();
        let rest = until.rested.max(until.worked);
        let rest = rest.saturating_duration_since(now);
        if rest.is_zero() {
            until.worked = now + self.piece();
        }
        rest
    }
}

/// Whether shops of one pod sell beside a move.
#[derive(Debug)]
pub(super) struct Others {
    sells: Arc<AtomicBool>,
    /// What the primary had executed, and how much of it was ours.
    seen: VecDeque<(Instant, u64, u64)>,
}

impl Others {
    pub(super) fn seen(&mut self, at: Instant, executed: u64, ours: u64) {
        self.seen.push_back((at, executed, ours));
        // The oldest that is kept is just older than the time that counts.
        while let Some((second, ..)) = self.seen.get(1)
            && at.duration_since(*second) >= OVER
        {
            self.seen.pop_front();
        }
        let Some((first, before, ours_before)) = self.seen.front() else {
            return;
        };
        if *first == at {
            return;
        }
        let all = executed.saturating_sub(*before);
        let others = all.saturating_sub(ours.saturating_sub(*ours_before));
        self.sells.store(others > FEW, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace() -> (Pace, Others) {
        let pace = Pace::new(4, CHUNK);
        let others = pace.pod();
        (pace, others)
    }

    const CHUNK: Duration = Duration::from_millis(100);

    /// Looks four times a second, with so many transactions of others and of the move between two of them.
    fn look(others: &mut Others, from: Instant, times: u32, all: u64, ours: u64) -> Instant {
        let mut at = from;
        let (mut executed, mut own) = (1_000, 0);
        for _ in 0..times {
            others.seen(at, executed, own);
            at += Duration::from_millis(250);
            (executed, own) = (executed + all, own + ours);
        }
        at
    }

    /// Also where a pod renews a lease each second, and what is under way is counted late.
    #[tokio::test(start_paused = true)]
    async fn who_is_alone_goes_at_full_speed() {
        let (pace, mut others) = pace();
        assert_eq!(pace.piece(), CHUNK / PART);
        let at = look(&mut others, Instant::now(), 20, 7, 7);
        assert_eq!(pace.piece(), CHUNK);
        others.seen(at, 1_000 + 20 * 7 + 3 + 4, 20 * 7);
        assert_eq!(pace.piece(), CHUNK);
        pace.worked(CHUNK);
        assert_eq!(pace.rest(), Duration::ZERO);
        assert_eq!(pace.rest(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn beside_shops_that_sell_a_piece_is_small_and_a_rest_follows() {
        let (pace, mut others) = pace();
        look(&mut others, Instant::now(), 20, 10, 7);
        assert_eq!(pace.piece(), CHUNK / PART);
        // One at a time; a small one owes little.
        assert_eq!(pace.rest(), Duration::ZERO);
        assert_eq!(pace.rest(), CHUNK / PART);
        pace.worked(Duration::from_millis(1));
        assert_eq!(pace.rest().as_millis(), 4);
        // Two streams owe for both.
        tokio::time::advance(CHUNK).await;
        pace.worked(Duration::from_millis(10));
        pace.worked(Duration::from_millis(20));
        assert_eq!(pace.rest().as_millis(), 120);
        // No longer than for a piece; and there is an end to what many owe.
        tokio::time::advance(CHUNK * 4).await;
        pace.worked(Duration::from_secs(60));
        assert_eq!(pace.rest(), CHUNK);
        for _ in 0..100 {
            pace.worked(CHUNK);
        }
        assert_eq!(pace.rest(), REST_MAX);
    }

    /// One pod of two is enough; a shop that stops selling is forgotten after a while.
    #[tokio::test(start_paused = true)]
    async fn any_pod_counts_and_for_some_seconds() {
        let (pace, mut source) = pace();
        let mut target = pace.pod();
        let at = look(&mut source, Instant::now(), 20, 0, 0);
        look(&mut target, Instant::now(), 20, 1, 0);
        assert_eq!(pace.piece(), CHUNK / PART);
        look(&mut target, at, 20, 0, 0);
        assert_eq!(pace.piece(), CHUNK);
    }

    #[test]
    fn a_ratio_of_nothing_never_rests() {
        let pace = Pace::new(0, CHUNK);
        let _others = pace.pod();
        assert_eq!(pace.piece(), CHUNK);
    }
}
