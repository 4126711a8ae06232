//! How long to wait before the next try: exponential, jittered, bounded, and pure.

use std::time::Duration;

use rand::{Rng, RngExt};

/// Waits between tries. Doubles from `first` to `most`; of each wait the upper half is random, so that those who failed
/// together do not come back together, and none comes back at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    most: Duration,
}

impl Backoff {
    /// From the shortest wait to the longest.
    ///
    /// # Panics
    /// If the first wait is zero or longer than the longest: a constant that says so does not compile.
    pub const fn new(first: Duration, most: Duration) -> Self {
        assert!(
            !first.is_zero() && first.as_nanos() <= most.as_nanos(),
            "a backoff needs 0 < first <= most"
        );
        Self { first, most }
    }

    /// The wait before try `attempt`, where 1 is the first one that is repeated. 0 is the try that nobody waits for.
    pub fn delay(&self, attempt: u32, rng: &mut impl Rng) -> Duration {
        let Some(doublings) = attempt.checked_sub(1) else {
            return Duration::ZERO;
        };
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        let full = self.first.saturating_mul(factor).min(self.most);
        full.mul_f64(rng.random_range(0.5..=1.0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng;

    use super::*;

    #[test]
    #[should_panic(expected = "0 < first")]
    fn waits_of_nothing_are_refused() {
        Backoff::new(Duration::ZERO, Duration::from_secs(1));
    }

    #[test]
    #[should_panic(expected = "first <= most")]
    fn bounds_in_the_wrong_order_are_refused() {
        Backoff::new(Duration::from_secs(2), Duration::from_secs(1));
    }

    proptest! {
        #[test]
        fn waits_double_up_to_the_bound(attempt in 0..200_u32, first in 1..1000_u64, times in 1..1000_u64, seed: u64) {
            let (first, most) = (Duration::from_millis(first), Duration::from_millis(first * times));
            let backoff = Backoff::new(first, most);
            let mut rng = rand::rngs::StdRng::seed_from_u64(seed);
            let wait = backoff.delay(attempt, &mut rng);
            let full = match attempt {
                0 => Duration::ZERO,
                _ => most.min(first.saturating_mul(1 << (attempt - 1).min(30))),
            };
            prop_assert!(wait <= full && wait >= full / 2, "{wait:?} of {full:?}");
        }
    }
}
