//! What the metrics count of moves, once the catalog has it. Each control server counts what it did itself.

use std::time::Duration;

use metrics::{counter, histogram};
use shared::moves::MoveState;
use shared::telemetry::metric;

use super::MoveRow;

/// How a move ended. One that failed may be resumed, and end once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done,
    TakenBack,
    Aborted,
    Failed,
}

impl Outcome {
    const ALL: [Self; 4] = [Self::Done, Self::TakenBack, Self::Aborted, Self::Failed];

    /// As a label.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::TakenBack => "taken_back",
            Self::Aborted => "aborted",
            Self::Failed => "failed",
        }
    }

    /// What a step to another state brings about.
    const fn of(now: MoveState) -> Option<Self> {
        match now {
            MoveState::Done => Some(Self::Done),
            MoveState::Aborted => Some(Self::Aborted),
            MoveState::Failed => Some(Self::Failed),
            MoveState::Preparing
            | MoveState::Copying
            | MoveState::CatchingUp
            | MoveState::Verifying
            | MoveState::Fenced
            | MoveState::Cutover
            | MoveState::Observing
            | MoveState::Retiring
            | MoveState::Paused
            | MoveState::Aborting => None,
        }
    }
}

/// Whether a driver lifts the fence by it: of these states it is the only other way out than to hand over.
const fn lifts_a_fence(before: MoveState, now: MoveState) -> bool {
    before.may_be_fenced() && !now.may_be_fenced() && !matches!(now, MoveState::Observing)
}

/// All of them are there from the start, so that the first one is an increase.
pub(crate) fn begin() {
    for outcome in Outcome::ALL {
        ended(outcome, 0);
    }
    counter!(metric::MOVES_FENCES_MISSED).increment(0);
}

fn ended(outcome: Outcome, moves: u64) {
    counter!(metric::MOVES_ENDED, metric::OUTCOME => outcome.as_str()).increment(moves);
}

/// A driver's step from another state.
pub(super) fn stepped(before: MoveState, row: &MoveRow) {
    let now = row.state;
    if before == now {
        return;
    }
    if lifts_a_fence(before, now) {
        counter!(metric::MOVES_FENCES_MISSED).increment(1);
    }
    if let Some(outcome) = Outcome::of(now) {
        ended(outcome, 1);
    }
    if now == MoveState::Observing {
        let record = &row.detail.record;
        for (name, ms) in [
            (metric::MOVES_FENCE_SECONDS, record.fence_ms),
            (metric::MOVES_DRAIN_SECONDS, record.drain_ms),
        ] {
            if let Some(ms) = ms {
                histogram!(name).record(Duration::from_millis(ms));
            }
        }
    }
}

/// A later move brings the shop back.
pub(super) fn taken_back() {
    ended(Outcome::TakenBack, 1);
}

/// What an edge told.
pub(super) fn parked(longest_ms: u64) {
    histogram!(metric::MOVES_PARK_SECONDS).record(Duration::from_millis(longest_ms));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_is_missed_by_every_way_out_but_the_hand_over() {
        let missed = |before| {
            let all = MoveState::ALL.into_iter();
            all.filter(|now| lifts_a_fence(before, *now)).count()
        };
        let others = MoveState::ALL.len() - 3;
        for before in MoveState::ALL {
            let expected = if before.may_be_fenced() { others } else { 0 };
            assert_eq!(missed(before), expected, "{before}");
        }
        assert!(lifts_a_fence(MoveState::Fenced, MoveState::CatchingUp));
        assert!(!lifts_a_fence(MoveState::Cutover, MoveState::Observing));
    }

    #[test]
    fn what_nobody_works_on_any_more_has_an_outcome() {
        for state in MoveState::ALL {
            let over = !state.is_open() || state == MoveState::Failed;
            assert_eq!(Outcome::of(state).is_some(), over, "{state}");
        }
    }
}
