//! The moves that this control server drives: what each is doing, and how fast.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use shared::moves::MoveId;

use super::progress::{HeldBack, Progress, ProgressNow};
use super::throttle::SHOPS_SELL;
use crate::api::MoveProgress;

/// Rates are over this time: shorter they jump with each chunk, longer they are about another phase.
const RATE_WINDOW: Duration = Duration::from_secs(10);
/// Looks that lie closer together add nothing to a rate.
const SAMPLE_EVERY: Duration = Duration::from_millis(500);

/// Progress by move. Cheap to share.
#[derive(Debug, Default)]
pub(crate) struct Moves(Mutex<HashMap<MoveId, Entry>>);

#[derive(Debug)]
struct Entry {
    progress: Arc<Progress>,
    /// When, and rows and bytes that the run had copied by then; the oldest first.
    samples: VecDeque<(Instant, u64, u64)>,
}

impl Moves {
    /// A run of a move begins here; its counters are the new run's.
    pub(crate) fn enter(&self, id: MoveId) -> Arc<Progress> {
        let progress = Arc::new(Progress::default());
        let entry = Entry {
            progress: Arc::clone(&progress),
            samples: VecDeque::from([(Instant::now(), 0, 0)]),
        };
        self.0.lock().insert(id, entry);
        progress
    }

    /// The next run of a move goes on with the counters of the one before.
    pub(crate) fn go_on(&self, id: MoveId, progress: &Arc<Progress>) {
        if let Some(entry) = self.0.lock().get_mut(&id) {
            entry.progress = Arc::clone(progress);
        }
    }

    /// The run has ended, unless a later one has taken its place.
    pub(crate) fn leave(&self, id: MoveId, progress: &Arc<Progress>) {
        let mut all = self.0.lock();
        if all
            .get(&id)
            .is_some_and(|entry| Arc::ptr_eq(&entry.progress, progress))
        {
            all.remove(&id);
        }
    }

    /// What holds it back just now, if it is driven here.
    pub(crate) fn held_back(&self, id: MoveId) -> Option<HeldBack> {
        let all = self.0.lock();
        all.get(&id)?.progress.held_back.lock().clone()
    }

    /// How many are held back just now by what somebody may mend; to rest beside shops that sell is no such thing.
    pub(crate) fn held_back_all(&self) -> u64 {
        let all = self.0.lock();
        let held = |entry: &&Entry| {
            let held = entry.progress.held_back.lock();
            held.as_ref().is_some_and(|held| held.by != SHOPS_SELL)
        };
        all.values().filter(held).count() as u64
    }

    /// Nothing of a move is done here any more, by whichever run.
    pub(crate) fn forget(&self, id: MoveId) {
        self.0.lock().remove(&id);
    }

    /// What a move is doing, if it is driven here.
    pub(crate) fn progress(&self, id: MoveId) -> Option<MoveProgress> {
        let mut all = self.0.lock();
        let entry = all.get_mut(&id)?;
        Some(entry.look(Instant::now()))
    }
}

impl Entry {
    fn look(&mut self, at: Instant) -> MoveProgress {
        let now = self.progress.now();
        while self.samples.len() > 1
            && self
                .samples
                .front()
                .is_some_and(|(then, _, _)| at.duration_since(*then) > RATE_WINDOW)
        {
            self.samples.pop_front();
        }
        let copied = self.progress.copied_now();
        let first = self.samples.front();
        let (rows_per_s, bytes_per_s) = first.map_or((0, 0), |(then, rows, bytes)| {
            let time = at.duration_since(*then);
            (rate(copied.0, *rows, time), rate(copied.1, *bytes, time))
        });
        if self
            .samples
            .back()
            .is_none_or(|(then, _, _)| at.duration_since(*then) >= SAMPLE_EVERY)
        {
            self.samples.push_back((at, copied.0, copied.1));
        }
        let held_back = self.progress.held_back.lock().clone();
        MoveProgress {
            seconds_left: seconds_left(&now, rows_per_s),
            now,
            rows_per_s,
            bytes_per_s,
            held_back_by: held_back.map(|held| held.by),
        }
    }
}

/// So many a second.
fn rate(now: u64, then: u64, time: Duration) -> u64 {
    let ms = time.as_millis().max(1);
    let per_s = u128::from(now.saturating_sub(then)) * 1000 / ms;
    u64::try_from(per_s).unwrap_or(u64::MAX)
}

/// Until the copy is whole, at this rate; nothing where all is there that was expected, or nothing comes.
fn seconds_left(now: &ProgressNow, rows_per_s: u64) -> Option<u64> {
    let left = now.rows_expected.checked_sub(now.rows_copied)?;
    (left > 0 && rows_per_s > 0).then(|| left.div_ceil(rows_per_s))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn rates_are_of_the_last_seconds_and_the_estimate_follows() {
        let moves = Moves::default();
        let id = MoveId::random();
        assert_eq!(moves.progress(id), None);
        let progress = moves.enter(id);
        progress.rows_expected.store(3_000, Ordering::Relaxed);
        let begun = Instant::now();
        let mut all = moves.0.lock();
        let entry = all.get_mut(&id).unwrap();
        entry.samples = VecDeque::from([(begun, 0, 0)]);
        progress.rows_copied.store(1_000, Ordering::Relaxed);
        progress.bytes_copied.store(50_000, Ordering::Relaxed);
        let first = entry.look(begun + Duration::from_secs(10));
        assert_eq!((first.rows_per_s, first.bytes_per_s), (100, 5_000));
        assert_eq!(first.seconds_left, Some(20));
        // The first sample is too old by now; nothing was copied since the second.
        let later = entry.look(begun + Duration::from_secs(15));
        assert_eq!((later.rows_per_s, later.seconds_left), (0, None));
    }

    #[test]
    fn nothing_is_estimated_where_nothing_is_known() {
        let left = |rows_expected, rows_copied, rows_per_s| {
            let now = ProgressNow {
                rows_expected,
                rows_copied,
                ..ProgressNow::default()
            };
            seconds_left(&now, rows_per_s)
        };
        // The last rows take a moment too.
        assert_eq!(left(1_000, 990, 100), Some(1));
        assert_eq!(left(1_000, 750, 100), Some(3));
        assert_eq!(left(1_000, 750, 0), None);
        assert_eq!(left(1_000, 1_000, 100), None);
        assert_eq!(left(1_000, 1_200, 100), None);
        assert_eq!(left(0, 10, 100), None);
    }

    /// What was there before a run is not its work.
    #[test]
    fn a_run_that_goes_on_with_a_copy_is_no_faster_for_it() {
        let moves = Moves::default();
        let id = MoveId::random();
        let progress = moves.enter(id);
        progress.rows_expected.store(3_000, Ordering::Relaxed);
        progress.found.set(2_000, 20_000);
        let begun = Instant::now();
        let mut all = moves.0.lock();
        let entry = all.get_mut(&id).unwrap();
        entry.samples = VecDeque::from([(begun, 0, 0)]);
        progress.rows_copied.store(100, Ordering::Relaxed);
        let seen = entry.look(begun + Duration::from_secs(10));
        assert_eq!((seen.now.rows_copied, seen.rows_per_s), (2_100, 10));
        assert_eq!(seen.seconds_left, Some(90));
    }

    #[test]
    fn a_rest_beside_shops_that_sell_holds_nothing_back() {
        let moves = Moves::default();
        let entered = [MoveId::random(), MoveId::random()].map(|id| moves.enter(id));
        assert_eq!(moves.held_back_all(), 0);
        for (progress, by) in entered.iter().zip([SHOPS_SELL, "a disk"]) {
            *progress.held_back.lock() = Some(HeldBack {
                by: by.to_owned(),
                since: tokio::time::Instant::now(),
            });
        }
        assert_eq!(moves.held_back_all(), 1);
    }

    #[test]
    fn an_older_run_does_not_take_a_later_ones_place_away() {
        let moves = Moves::default();
        let id = MoveId::random();
        let first = moves.enter(id);
        let second = moves.enter(id);
        moves.leave(id, &first);
        assert!(moves.progress(id).is_some());
        moves.leave(id, &second);
        assert!(moves.progress(id).is_none());
    }
}
