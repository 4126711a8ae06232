//! How large the next piece of work shall be, by the time that one took.

use std::time::Duration;

/// A piece grows and shrinks by this at most: one slow read says little.
const STEP: f64 = 2.0;

/// A size for the next piece, when one of size `now` took that long.
pub(super) fn next(now: u64, took: Duration, wanted: Duration) -> u64 {
    let factor = wanted.as_secs_f64() / took.as_secs_f64().max(0.000_1);
    let factor = factor.clamp(1.0 / STEP, STEP);
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a positive number of rows, far below 2^52"
    )]
    let next = (now as f64 * factor) as u64;
    next.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_follows_the_time_in_steps() {
        let wanted = Duration::from_millis(100);
        let next = |now, ms| next(now, Duration::from_millis(ms), wanted);
        assert_eq!(next(100, 50), 200);
        assert_eq!(next(100, 1), 200);
        assert_eq!(next(100, 80), 125);
        assert_eq!(next(100, 9_000), 50);
        assert_eq!(next(1, 9_000), 1);
    }
}
