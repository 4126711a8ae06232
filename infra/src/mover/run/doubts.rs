//! What a server said and nobody here has thought of: it is tried again, since it may pass as most of that does, and it ends
//! the move where it does not.

use std::time::Duration;

use shared::moves::MoveState;
use tokio::time::Instant;

use crate::mover::error::MoveError;

/// So many tries: a server that is restarted or overloaded answers a few of them oddly.
const TRIES: u32 = 10;
/// For so long: a failover, a backup, a burst of buyers are over by then. Whatever came only after so long a time meanwhile is
/// new: work was done in between.
const WITHIN: Duration = Duration::from_secs(600);

/// The tries that one move has made in a row.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    row: Option<InARow>,
}

#[derive(Debug)]
struct InARow {
    state: MoveState,
    first: Instant,
    last: Instant,
    tries: u32,
}

impl Doubts {
    /// What an error means after those before it.
    pub(super) fn judge(&mut self, state: MoveState, error: MoveError) -> MoveError {
        if !error.is_doubtful() {
            return error;
        }
        let now = Instant::now();
        let before = self.row.take();
        let goes_on = |row: &InARow| row.state == state && now - row.last < WITHIN;
        let mut row = before.filter(goes_on).unwrap_or(InARow {
            state,
            first: now,
            last: now,
            tries: 0,
        });
        (row.last, row.tries) = (now, row.tries + 1);
        let passes = row.tries < TRIES || now - row.first < WITHIN;
        self.row = Some(row);
        if !passes && let MoveError::Lost { pod, doing, source } = error {
            return MoveError::Sql { pod, doing, source };
        }
        error
    }
}

#[cfg(test)]
mod tests {
    use mysql_async::{Error, ServerError};
    use shared::PodId;
    use tokio::time::advance;

    use super::*;
    use crate::mover::error::Verdict;

    fn said(code: u16) -> MoveError {
        MoveError::Lost {
            pod: PodId::new(1).unwrap(),
            doing: "load rows",
            source: Error::Server(ServerError {
                code,
                message: "that".into(),
                state: "HY000".into(),
            }),
        }
    }

    /// How many tries end without success before the move fails, `every` so often; none after a day.
    async fn tries(doubts: &mut Doubts, code: u16, every: Duration) -> Option<u32> {
        let most = 86_400 / u32::try_from(every.as_secs()).unwrap().max(1);
        for tries in 1..most {
            let error = doubts.judge(MoveState::Copying, said(code));
            if error.verdict() == Verdict::Fail {
                let told = error.brief();
                assert!(
                    told.starts_with("pod 1: load rows: ") && told.contains("1105"),
                    "{told}"
                );
                return Some(tries);
            }
            advance(every).await;
        }
        None
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_knows_is_tried_for_a_while_and_no_longer() {
        let second = Duration::from_secs(1);
        let mut doubts = Doubts::default();
        assert_eq!(tries(&mut doubts, 1105, 10 * second).await, Some(61));
        // A run that takes long has its ten tries all the same.
        assert_eq!(
            tries(&mut Doubts::default(), 1105, 300 * second).await,
            Some(10)
        );
        // What comes now and then does not stay, and a busy server is waited for.
        assert_eq!(
            tries(&mut Doubts::default(), 1105, 1_200 * second).await,
            None
        );
        assert_eq!(tries(&mut Doubts::default(), 1135, 10 * second).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn another_state_is_a_beginning() {
        let mut doubts = Doubts::default();
        tries(&mut doubts, 1105, Duration::from_secs(10)).await;
        let next = doubts.judge(MoveState::CatchingUp, said(1105));
        assert_eq!(next.verdict(), Verdict::Again);
    }
}
