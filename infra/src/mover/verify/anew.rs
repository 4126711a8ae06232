//! Comparisons that were in vain: so many keys changed that the ledger forgot them, and all begins with the first row again.
//!
//! A burst of changes costs one comparison, not the move. A shop that goes on like that is one that cannot be followed.

use std::time::{Duration, Instant};

use crate::mover::error::MoveError;
use crate::mover::limits::MoveLimits;

/// In all, of one run: for a large shop each is worth hours, in which a calm one would have been moved.
const TIMES_MAX: u32 = 20;

/// What was in vain so far.
#[derive(Debug, Default)]
pub(crate) struct Anew {
    /// When the last comparison began.
    begun: Option<Instant>,
    /// How long those took that were in vain one after the other. One that lasted is none of them.
    lost: Duration,
    times: u32,
}

impl Anew {
    /// A comparison begins.
    pub(super) fn begin(&mut self) {
        self.begun = Some(Instant::now());
    }

    /// The ledger notes nothing. Says whether it has forgotten a comparison, and fails where that went on for too long.
    pub(super) fn forgot(&mut self, limits: &MoveLimits) -> Result<bool, MoveError> {
        let Some(begun) = self.begun.take() else {
            return Ok(false);
        };
        self.lost(begun.elapsed(), limits).map(|()| true)
    }

    fn lost(&mut self, lasted: Duration, limits: &MoveLimits) -> Result<(), MoveError> {
        let bound = limits.converge_bound;
        self.times += 1;
        self.lost = if lasted > bound {
            Duration::ZERO
        } else {
            self.lost + lasted
        };
        if self.lost > bound || self.times > TIMES_MAX {
            return Err(MoveError::Bound(format!(
                "{} times more than {} keys changed before they could be compared; move at a calmer time, freeze the shop, or \
                 raise `moves.touched_keys_max` of fleet.toml",
                self.times, limits.touched_keys_max
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> MoveLimits {
        MoveLimits {
            converge_bound: Duration::from_secs(600),
            ..MoveLimits::default()
        }
    }

    fn seconds(anew: &mut Anew, lasted: u64) -> Result<(), MoveError> {
        anew.lost(Duration::from_secs(lasted), &limits())
    }

    #[test]
    fn what_goes_on_for_the_bound_ends_the_move() {
        let mut anew = Anew::default();
        for _ in 0..10 {
            seconds(&mut anew, 60).unwrap();
        }
        assert!(matches!(seconds(&mut anew, 1), Err(MoveError::Bound(_))));
    }

    #[test]
    fn a_burst_now_and_then_costs_a_comparison_only_but_not_for_ever() {
        let mut anew = Anew::default();
        for _ in 0..TIMES_MAX / 2 {
            seconds(&mut anew, 590).unwrap();
            seconds(&mut anew, 7_000).unwrap();
        }
        assert!(matches!(
            seconds(&mut anew, 7_000),
            Err(MoveError::Bound(_))
        ));
    }

    #[test]
    fn before_a_comparison_nothing_is_in_vain() {
        let mut anew = Anew::default();
        assert!(!anew.forgot(&limits()).unwrap());
        anew.begin();
        assert!(anew.forgot(&limits()).unwrap());
        assert!(!anew.forgot(&limits()).unwrap(), "it is told once");
        assert_eq!(anew.times, 1);
    }
}
