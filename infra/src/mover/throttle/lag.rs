//! How far a replica is behind, by sets of transactions.

use std::collections::VecDeque;
use std::time::Duration;

use shared::gtid::GtidSet;
use tokio::time::Instant;

/// Sets kept to measure by: two minutes; a replica further behind is just far behind.
const SAMPLES: usize = 480;

/// What the primary had executed, and when.
#[derive(Debug, Default)]
pub(super) struct Samples(pub(super) VecDeque<(Instant, GtidSet)>);

impl Samples {
    pub(super) fn add(&mut self, at: Instant, set: GtidSet) {
        // An idle primary says the same again and again: the first time counts.
        if self.0.back().is_some_and(|(_, last)| *last == set) {
            return;
        }
        if self.0.len() >= SAMPLES {
            self.0.pop_front();
        }
        self.0.push_back((at, set));
    }

    /// How long ago the oldest set was executed that the replica has not whole.
    pub(super) fn lag(&self, now: Instant, replica: &GtidSet) -> Duration {
        let first = self.0.partition_point(|(_, set)| replica.contains(set));
        let sample = self.0.get(first);
        sample.map_or(Duration::ZERO, |(at, _)| now.duration_since(*at))
    }
}
